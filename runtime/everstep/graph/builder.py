"""`StateGraph`: declares nodes, edges and routes, and compiles them.

Each method checks what it can see alone; `compile` checks the whole. The builder holds declarations only:
what is added after `compile` changes no graph that was compiled before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self

from everstep.constants import END, START
from everstep.declared import at, check_flag, check_kind, check_schema, mapping_of, names_of
from everstep.errors import GraphBuildError
from everstep.graph.compile import compile_graph
from everstep.graph.compiled import CompiledStateGraph
from everstep.graph.hints import Targets, goto_targets, input_schema_of, route_targets
from everstep.graph.schema import Schema, read_schema
from everstep.graph.spec import (
    BranchSpec,
    EdgeSpec,
    GraphSpec,
    HandlerSpec,
    JoinSpec,
    NodeSpec,
    UnknownKeys,
    UnsatisfiedJoins,
)
from everstep.graph.typed import ContextT, InputT, OutputT, StateT, Typed
from everstep.graph.validate import GraphWarning, check_ends, check_graph, check_node_name, suspicions
from everstep.policies import CachePolicy, RetryPolicy, TimeoutPolicy, cache_policy_of, retry_policies
from everstep.pregel.blueprint import CompileOptions, OnPending, checked_choice, stops_of
from everstep.tasks.callable import action_of, name_of
from everstep.types import All, OnError

Retry = RetryPolicy | Sequence[RetryPolicy] | None
Timeout = float | timedelta | TimeoutPolicy | None
PathMap = Mapping[Any, str] | Sequence[str] | None


class StateGraph(Typed[StateT, ContextT, InputT, OutputT]):
    """A graph whose nodes read a shared state and return updates of it.

    A schema is a TypedDict, a dataclass or a pydantic model; each of its keys becomes a channel:
    ``Annotated[T, reducer]`` reduces what is written, ``Annotated[T, Channel]`` uses that channel, a plain
    key keeps the last value. Any other type is a state of one value.

    Args:
        state_schema: What all nodes share.
        context_schema: Type of the `context` that a run is given.
        input_schema: The keys a run takes; all of the state by default.
        output_schema: The keys a run returns; all of the state by default.

    Raises:
        GraphBuildError: There is no schema, or it says something that cannot be.
    """

    def __init__(
        self,
        state_schema: Any,
        context_schema: Any = None,
        *,
        input_schema: Any = None,
        output_schema: Any = None,
    ) -> None:
        if state_schema is None:
            raise GraphBuildError(
                "a graph needs a state: StateGraph(State), with a TypedDict, dataclass or pydantic model"
            )
        if context_schema is not None:
            check_schema("context_schema", context_schema)
        self._schemas: list[Schema] = []
        self.state_schema = state_schema
        self.context_schema = context_schema
        self.input_schema = state_schema if input_schema is None else input_schema
        self.output_schema = state_schema if output_schema is None else output_schema
        self.nodes: dict[str, NodeSpec] = {}
        self._edges: dict[EdgeSpec, None] = {}
        self._joins: dict[JoinSpec, None] = {}
        self._branches: dict[tuple[str, str], BranchSpec] = {}
        self._retry: tuple[RetryPolicy, ...] = ()
        self._timeout: TimeoutPolicy | None = None
        self._cache: CachePolicy | None = None
        self._error_handler: HandlerSpec | None = None
        for schema in (self.state_schema, self.input_schema, self.output_schema):
            self._schema(schema)

    def add_node(
        self,
        node: str | Callable[..., Any] | Any,
        action: Any = None,
        *,
        defer: bool = False,
        metadata: Mapping[str, Any] | None = None,
        input_schema: Any = None,
        retry_policy: Retry = None,
        cache_policy: CachePolicy | None = None,
        error_handler: Any = None,
        destinations: Mapping[str, str] | Sequence[str] | None = None,
        timeout: Timeout = None,
    ) -> Self:
        """Add a node.

        Args:
            node: Its name; or its action, whose name it takes.
            action: An async or sync callable, or an object with `ainvoke`. It is given the state, and by
                name or annotation `config`, `runtime`, `writer`, `store`, `previous`.
            defer: Run it when nothing else is left to run.
            metadata: For your own use; shown in drawings and in the config of the node.
            input_schema: The keys it reads, the state's by default or those of the schema that annotates
                its first parameter. Keys that are new are private to the nodes that name them.
            retry_policy: One policy or several, of which the first that matches counts.
            cache_policy: Keep what it returns, and take it for equal inputs; needs `compile(cache=...)`.
            error_handler: Runs when the node has failed and its retries are spent; called like the node, with its
                input, and given an `everstep.errors.NodeError` by the name `error` or by annotation. What it returns
                stands for the node's result; the node's edges are not followed, a `Command` goes elsewhere.
            destinations: Where its `Command`s may go, optionally with labels for a drawing; taken from a
                return type ``Command[Literal[...]]`` by default.
            timeout: Seconds (or a timedelta or policy) per attempt.

        Raises:
            GraphBuildError: The name cannot be used or is taken, the action cannot be called, or another argument
                is not what it can be.
        """
        name, action = _named(node, action)
        check_node_name(name, self.nodes)
        handler = _handler(error_handler, f"error handler of node {name!r}")
        with at(f"node {name!r}"):
            bound = action_of(action, name)
            check_flag("defer", defer)
            source = input_schema_of(action) if input_schema is None else input_schema
            self.nodes[name] = NodeSpec(
                name=name,
                action=bound,
                input=self._schema(self.state_schema if source is None else source),
                defer=defer,
                metadata=mapping_of("metadata is a mapping of your own keys to values", metadata),
                retry=None if retry_policy is None else retry_policies(retry_policy),
                timeout=TimeoutPolicy.of(timeout),
                cache=cache_policy_of(cache_policy),
                error_handler=handler,
                goto=goto_targets(action) if destinations is None else Targets(names_of("destinations", destinations)),
                labels=dict(destinations) if isinstance(destinations, Mapping) else {},
                subgraph=action if isinstance(action, CompiledStateGraph) else None,
            )
        return self

    def add_edge(self, start_key: str | Sequence[str], end_key: str) -> Self:
        """Run `end_key` after `start_key`; after all of several, once.

        Raises:
            GraphBuildError: It starts at `END` or ends at `START`.
        """
        if isinstance(start_key, str):
            check_ends((start_key,), end_key, f"edge {start_key!r} -> {end_key!r}")
            self._edges[EdgeSpec(start_key, end_key)] = None
            return self
        check_kind("the start of an edge is the name of a node, or a list of them for a join", start_key, Iterable)
        sources = tuple(dict.fromkeys(start_key))
        if len(sources) == 1:
            return self.add_edge(sources[0], end_key)
        if not sources:
            raise GraphBuildError(f"the join with {end_key!r} has no sources; name the nodes it waits for")
        check_ends(sources, end_key, f"join {', '.join(map(repr, sources))} -> {end_key!r}")
        self._joins[JoinSpec(sources, end_key)] = None
        return self

    def add_conditional_edges(self, source: str, path: Callable[..., Any] | Any, path_map: PathMap = None) -> Self:
        """Ask `path` where to go after `source`.

        Args:
            source: Name of a node, or `START`.
            path: Given the state, returns the name of a node, a `Send`, `END`, or a list of these.
            path_map: What `path` may return -> name of the node; or a list of names. Taken from a return
                type `Literal` by default.

        Raises:
            GraphBuildError: `source` has a route of this name already or is `END`, `path` cannot be called, or
                `path_map` is not what it can be.
        """
        check_ends((source,), END, f"the route of {source!r}")
        name = name_of(path)
        with at(f"route of node {source!r}"):
            bound = action_of(path, name)
            ends, sends = _ends(path, path_map)
        name = self._free_route_name(source, name)
        hint = input_schema_of(path)
        schema = None if hint is None else self._schema(hint)
        self._branches[source, name] = BranchSpec(source, name, bound, ends, sends, schema)
        return self

    def add_sequence(self, nodes: Iterable[Any]) -> Self:
        """Add nodes that run one after the other; each a callable, or a tuple of name and callable.

        Raises:
            GraphBuildError: There are none, or a name cannot be used.
        """
        previous: str | None = None
        check_kind("a sequence is a list of nodes", nodes, Iterable)
        for item in nodes:
            if isinstance(item, tuple) and len(item) != 2:
                raise GraphBuildError(f"a node of a sequence is an action, or a tuple of name and action, got {item!r}")
            name, action = item if isinstance(item, tuple) else (name_of(item), item)
            self.add_node(name, action)
            if previous is not None:
                self.add_edge(previous, name)
            previous = name
        if previous is None:
            raise GraphBuildError("a sequence needs at least one node")
        return self

    def set_entry_point(self, key: str) -> Self:
        """Begin with this node."""
        return self.add_edge(START, key)

    def set_finish_point(self, key: str) -> Self:
        """End after this node."""
        return self.add_edge(key, END)

    def set_conditional_entry_point(self, path: Callable[..., Any] | Any, path_map: PathMap = None) -> Self:
        """Ask `path` where to begin, see `add_conditional_edges`."""
        return self.add_conditional_edges(START, path, path_map)

    def set_node_defaults(
        self,
        *,
        retry_policy: Retry = None,
        cache_policy: CachePolicy | None = None,
        timeout: Timeout = None,
        error_handler: Any = None,
    ) -> Self:
        """Set the policies of all nodes that have none of their own, whenever they are added.

        Error handlers get `retry_policy` and `timeout` too.

        Raises:
            GraphBuildError: A policy is none, or the error handler cannot be called.
        """
        with at("the node defaults"):
            if retry_policy is not None:
                self._retry = retry_policies(retry_policy)
            if cache_policy is not None:
                self._cache = cache_policy_of(cache_policy)
            if timeout is not None:
                self._timeout = TimeoutPolicy.of(timeout)
        if error_handler is not None:
            self._error_handler = _handler(error_handler, "default error handler")
        return self

    def compile(
        self,
        checkpointer: Any = None,
        *,
        cache: Any = None,
        store: Any = None,
        interrupt_before: All | Sequence[str] | None = None,
        interrupt_after: All | Sequence[str] | None = None,
        debug: bool = False,
        name: str | None = None,
        unknown_keys: UnknownKeys = "error",
        unsatisfied_joins: UnsatisfiedJoins = "error",
        aliases: Mapping[str, str] | None = None,
        on_pending: OnPending = "supersede",
        on_error: OnError | None = None,
    ) -> CompiledStateGraph[StateT, ContextT, InputT, OutputT]:
        """Check the whole graph and make it ready to run.

        Args:
            checkpointer: The saver that keeps its threads.
            cache: Keeps results of nodes that have a `cache_policy`.
            store: Handed to nodes as `store`. Subgraphs without a cache or store of their own use those of the graph
                that runs them.
            interrupt_before: Nodes to stop before, or "*" for all; continued with input None.
            interrupt_after: Nodes to stop after.
            debug: Print what happens to the terminal, and check that nodes do not change in place what they read
                and do not write.
            name: Of the graph, as threads and messages tell it.
            unknown_keys: What becomes of update keys that no schema has: "error" or "ignore".
            unsatisfied_joins: What becomes of a run that has nothing left to do while a join still waits for
                sources that were routed around: "error" or "ignore".
            aliases: Old name of a node -> its name now, for threads that stand at the old name.
            on_pending: What new input does to an open question: "supersede" it, or "reject" the input.
            on_error: What becomes of the nodes beside one that fails: "cancel" (the default), or "drain" to let them
                finish. A subgraph does as the graph that contains it unless it says otherwise.

        Raises:
            GraphBuildError: The graph does not fit together; names nodes and edges, with near matches.

        Warns:
            GraphWarning: A node that nothing can reach, or static edges beside `Command` destinations.
        """
        renamed = mapping_of("aliases is a mapping of old names of nodes to new ones", aliases)
        spec = replace(self.spec(unknown_keys), unsatisfied_joins=unsatisfied_joins, aliases=renamed)
        before, after = stops_of("interrupt_before", interrupt_before), stops_of("interrupt_after", interrupt_after)
        options = CompileOptions(checkpointer, store, cache, before, after, debug)
        options = replace(options, on_pending=checked_choice("on_pending", on_pending, OnPending), name=name)
        options = replace(options, on_error=checked_choice("on_error", on_error, OnError))
        checked_choice("unsatisfied_joins", unsatisfied_joins, UnsatisfiedJoins)
        stops = {"interrupt_before": options.interrupt_before, "interrupt_after": options.interrupt_after}
        check_graph(spec, {option: names for option, names in stops.items() if names != "*"})
        for suspicion in suspicions(spec):
            warnings.warn(suspicion, GraphWarning, stacklevel=2)
        return CompiledStateGraph(compile_graph(spec, name or "graph"), options, self, spec)

    def spec(self, unknown_keys: UnknownKeys = "error") -> GraphSpec:
        """What has been declared so far, frozen."""
        if unknown_keys not in ("error", "ignore"):
            raise GraphBuildError(f"unknown_keys is 'error' or 'ignore', got {unknown_keys!r}")
        return GraphSpec(
            state=self._schema(self.state_schema),
            input=self._schema(self.input_schema),
            output=self._schema(self.output_schema),
            nodes=dict(self.nodes),
            edges=tuple(self._edges),
            joins=tuple(self._joins),
            branches=tuple(self._branches.values()),
            context_schema=self.context_schema,
            retry=self._retry,
            timeout=self._timeout,
            cache=self._cache,
            error_handler=self._error_handler,
            unknown_keys=unknown_keys,
        )

    def _schema(self, source: Any) -> Schema:
        # By identity: an Annotated with a channel instance in it cannot be hashed.
        for schema in self._schemas:
            if schema.source is source:
                return schema
        self._schemas.append(read_schema(source))
        return self._schemas[-1]

    def _free_route_name(self, source: str, name: str) -> str:
        if (source, name) not in self._branches:
            return name
        if name != "<lambda>":
            raise GraphBuildError(
                f"node {source!r} has a route {name!r} already; give one of the two functions another name"
            )
        taken = sum(1 for key in self._branches if key[0] == source)
        return f"{name}{taken + 1}"


def _handler(handler: Any, what: str) -> HandlerSpec | None:
    if handler is None:
        return None
    with at(what):
        action = action_of(handler, what, handles_errors=True)
    return HandlerSpec(action, goto_targets(handler), handler if isinstance(handler, CompiledStateGraph) else None)


def _named(node: Any, action: Any) -> tuple[Any, Any]:
    if action is not None:
        return node, action
    if isinstance(node, str):
        raise GraphBuildError(f"node {node!r} has no action: add_node({node!r}, action)")
    return name_of(node), node


def _ends(path: Any, path_map: PathMap) -> tuple[Mapping[Hashable, str] | None, bool]:
    """What a route may return, and whether it may also send anywhere."""
    if path_map is not None:
        if isinstance(path_map, Mapping):
            names_of("path_map", path_map.values())
            return dict(path_map), False
        return {name: name for name in names_of("path_map", path_map)}, False
    targets = route_targets(path)
    if targets.names is None:
        return None, True
    return {name: name for name in targets.names}, targets.anywhere
