"""`Pregel`: a compiled graph and what users do with it.

Async methods first; each sync method is its async twin over the blocking bridge. Here calls become
requests; running them is the loop's business.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from everstep.config import RunConfig, merge_configs, parse_config
from everstep.errors import ConfigError, did_you_mean
from everstep.pregel.blocking import iterate_blocking, run_blocking
from everstep.pregel.blueprint import Blueprint, CompileOptions
from everstep.pregel.described import Described
from everstep.pregel.direct import declared_graph
from everstep.pregel.edit import update_state
from everstep.pregel.loop import execute
from everstep.pregel.many import RunsMany
from everstep.pregel.options import CallOptions, call_options, checked_durability, checked_seconds, context_of
from everstep.pregel.request import NodeNames, RunRequest
from everstep.pregel.state import get_history, get_state
from everstep.pregel.streaming import Reading
from everstep.pregel.subgraphs import Persistence, calling_attempt, nested_request, node_names, waiting_for_subgraph
from everstep.stream.buffer import Outlet
from everstep.stream.parts import Modes, View, view_of
from everstep.tasks.caching import cache_namespaces, prepare_cache
from everstep.types import StateSnapshot, StateUpdate, StreamVersion
from everstep_savers.base import AtomicSaver
from everstep_savers.listings import closing


class Pregel(RunsMany, Described):
    """A compiled graph.

    Args:
        blueprint: Nodes and channels, as `StateGraph.compile` and `entrypoint` make them; without one, the graph is
            put together by hand: ``Pregel(nodes={...}, channels={...}, input_channels="a", output_channels="b")``.
        options: What `compile()` was given.
        config: That every call starts from.
        stream_mode: That `stream` uses when none is given.
        step_timeout: Seconds each superstep may take; None for no limit. May be set later, before the graph is used.
        declared: See `everstep.pregel.direct.Declaration`.
    """

    def __init__(
        self,
        blueprint: Blueprint | None = None,
        options: CompileOptions | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        stream_mode: Modes | None = None,
        step_timeout: float | None = None,
        **declared: Any,
    ) -> None:
        if blueprint is None:
            blueprint, options = declared_graph(declared)
        self.blueprint = blueprint
        self.options = options or CompileOptions()
        self.stream_mode: Modes = stream_mode or ("values" if declared else "updates")
        self.config: Mapping[str, Any] = dict(config or {})
        self.step_timeout = checked_seconds("step_timeout", step_timeout)
        self._saver = self.options.saver()
        if self._saver is not None:
            for annotation in blueprint.annotations:
                self._saver.codec.register_annotation(annotation)
        if self.options.cache is not None:
            prepare_cache(self.options.cache, blueprint.annotations)

    @property
    def name(self) -> str:
        """The graph's name."""
        return self.blueprint.name

    @property
    def checkpointer(self) -> Any:
        """The saver given at compile time; True and False are for subgraphs, see `CompileOptions`."""
        return self.options.checkpointer

    @property
    def store(self) -> Any:
        """The store given at compile time."""
        return self.options.store

    @property
    def cache(self) -> Any:
        """The cache given at compile time."""
        return self.options.cache

    @property
    def nodes(self) -> Mapping[str, Any]:
        """The nodes by name."""
        return self.blueprint.nodes

    @property
    def channels(self) -> Mapping[str, Any]:
        """The channels by key."""
        return self.blueprint.channels

    def with_config(self, config: Mapping[str, Any] | None = None, **more: Any) -> Pregel:
        """The same graph with a config that every call starts from."""
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound.config = merge_configs(self.config, config, more)
        return bound

    async def ainvoke(
        self,
        input: Any,
        config: Mapping[str, Any] | None = None,
        *,
        stream_mode: Modes = "values",
        version: StreamVersion = "v1",
        print_mode: Modes = (),
        subgraphs: bool = False,
        **options: Any,
    ) -> Any:
        """Run the graph to its end, or to a question, and return its output.

        Args:
            input: The state to begin with; `Command(resume=...)` to answer a question; None to continue
                the thread where it stopped or crashed.
            config: ``{"configurable": {"thread_id": ...}}`` and other keys, see `parse_config`.
            stream_mode: Any other than "values" returns the list of what `astream` yields in it.
            version: "v2" returns a `GraphOutput`: an instance of the output schema, and open questions beside it.
            print_mode: Stream modes whose events are printed meanwhile, those of subgraphs too if `subgraphs`.
            options: See `CallOptions`.

        Returns:
            The state's output keys; with open questions under ``"__interrupt__"`` if the run waits for answers.

        Raises:
            ConfigError: Input or config cannot be used; nothing was run or written.
            UnknownInterruptError: The answer belongs to no open question; nothing was run or written.
            ThreadConflict: Another run moved the thread at the same time.
            Exception: What a node raised, with a note that names it.
        """
        if stream_mode != "values":
            reader: Any = {"version": version, "print_mode": print_mode, "subgraphs": subgraphs}
            return [item async for item in self.astream(input, config, stream_mode=stream_mode, **reader, **options)]
        call = self._call_options(options)
        view = view_of((), print_mode or _debug_modes(call), version, subgraphs=subgraphs)
        outlet = Outlet(view.read, subgraphs=subgraphs) if view.printed else None
        request = self._request(input, config, call, view, outlet)
        if outlet is None:
            return await self._run(request)
        async with Reading(self._run(request), outlet, view, request.parent) as read:
            return await read.result()

    async def astream(
        self,
        input: Any,
        config: Mapping[str, Any] | None = None,
        *,
        stream_mode: Modes | None = None,
        version: StreamVersion = "v1",
        print_mode: Modes = (),
        subgraphs: bool = False,
        **options: Any,
    ) -> AsyncGenerator[Any, None]:
        """Run the graph and yield what happens; leaving the iterator early ends the run.

        The events of a task come in their order, "updates" as tasks finish, "values" once a step is applied. A
        reader that is slow slows the run: async nodes wait for it where they wait anyway, sync ones in their
        stream writer.

        Args:
            stream_mode: "values" (the state after each step), "updates" (what each node returned), "custom"
                (what nodes wrote to their stream writer), "messages" (what chat models say, and messages that nodes
                return, each with metadata), "tasks" (a task begins or ends), "checkpoints" (a checkpoint was taken),
                "debug" (both, with step and time), or a list of these: then pairs of mode and event are yielded.
                By default the graph's own: "updates", or "values" for one that is put together by hand.
            version: "v2" yields each event as a `StreamPart`, whatever the other options are.
            print_mode: Modes whose events are printed to standard output.
            subgraphs: Yield the events of subgraphs too; the namespace then comes first in each item, a
                tuple with a level ``node:task_id`` for each graph the event comes from below the root.
            options: See `CallOptions`.
        """
        call = self._call_options(options)
        view = view_of(stream_mode or self.stream_mode, print_mode or _debug_modes(call), version, subgraphs=subgraphs)
        outlet = Outlet(view.read, subgraphs=subgraphs)
        request = self._request(input, config, call, view, outlet)
        async with Reading(self._run(request), outlet, view, request.parent) as read:
            while (event := await read.next()) is not None:
                yield view.item(event)
            await read.result()

    async def aget_state(self, config: Mapping[str, Any], *, subgraphs: bool = False) -> StateSnapshot:
        """The thread's head, or the checkpoint the config names, as a snapshot.

        Args:
            config: With the `checkpoint_ns` of a subgraph's task it is the subgraph's state that is shown.
            subgraphs: Show the snapshots of subgraphs as the `state` of their tasks, not only their configs.
        """
        parsed = self._thread_config(config)
        blueprint = self._blueprint_at(parsed, is_read=True)
        return await get_state(blueprint, self._require_saver(), parsed, subgraphs=subgraphs)

    async def aget_state_history(
        self,
        config: Mapping[str, Any],
        *,
        filter: dict[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[StateSnapshot, None]:
        """The thread's checkpoints as snapshots, newest first.

        Args:
            filter: Metadata keys that must have these values.
            before: A config; only checkpoints older than the one it names.
            limit: At most this many.
        """
        parsed = self._thread_config(config)
        history = get_history(
            self._blueprint_at(parsed, is_read=True),
            self._require_saver(),
            parsed,
            filter=filter,
            before=before,
            limit=limit,
        )
        async with closing(history):
            async for snapshot in history:
                yield snapshot

    async def aupdate_state(self, config: Mapping[str, Any], values: Any, as_node: str | None = None) -> dict[str, Any]:
        """Write to a thread from outside of a run, as if a node had returned `values`.

        Args:
            as_node: The node; by default the one that ran last.

        Returns:
            The config that names the new checkpoint.
        """
        return await self.abulk_update_state(config, [[StateUpdate(values, as_node)]])

    async def abulk_update_state(
        self, config: Mapping[str, Any], supersteps: Sequence[Sequence[StateUpdate]]
    ) -> dict[str, Any]:
        """Write several supersteps of updates, each with a checkpoint of its own, in one transaction."""
        parsed = self._thread_config(config)
        return await update_state(self._blueprint_at(parsed), self._require_saver(), parsed, supersteps)

    async def aclear_cache(self, nodes: Sequence[str] | None = None) -> None:
        """Remove the cached results of some nodes, or of all of this graph's."""
        if self.options.cache is None:
            raise ConfigError("the graph has no cache to clear; compile it with cache=")
        await self.options.cache.aclear(cache_namespaces(self.name, self.blueprint.nodes, nodes))

    def invoke(self, input: Any, config: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """`ainvoke` for plain scripts."""
        return run_blocking(lambda: self.ainvoke(input, config, **options), "invoke")

    def stream(self, input: Any, config: Mapping[str, Any] | None = None, **options: Any) -> Iterator[Any]:
        """`astream` for plain scripts."""
        return iterate_blocking(lambda: self.astream(input, config, **options), "stream")

    def get_state(self, config: Mapping[str, Any], *, subgraphs: bool = False) -> StateSnapshot:
        """`aget_state` for plain scripts."""
        return run_blocking(lambda: self.aget_state(config, subgraphs=subgraphs), "get_state")

    def get_state_history(self, config: Mapping[str, Any], **options: Any) -> Iterator[StateSnapshot]:
        """`aget_state_history` for plain scripts."""
        return iterate_blocking(lambda: self.aget_state_history(config, **options), "get_state_history")

    def update_state(self, config: Mapping[str, Any], values: Any, as_node: str | None = None) -> dict[str, Any]:
        """`aupdate_state` for plain scripts."""
        return run_blocking(lambda: self.aupdate_state(config, values, as_node), "update_state")

    def bulk_update_state(
        self, config: Mapping[str, Any], supersteps: Sequence[Sequence[StateUpdate]]
    ) -> dict[str, Any]:
        """`abulk_update_state` for plain scripts."""
        return run_blocking(lambda: self.abulk_update_state(config, supersteps), "bulk_update_state")

    def clear_cache(self, nodes: Sequence[str] | None = None) -> None:
        """`aclear_cache` for plain scripts."""
        run_blocking(lambda: self.aclear_cache(nodes), "clear_cache")

    def get_subgraphs(self, namespace: str | None = None, *, recurse: bool = False) -> Iterator[tuple[str, Pregel]]:
        """The graphs that nodes of this one run, with the names of the nodes that lead to them, joined by "|".

        Args:
            namespace: Only the subgraph at this place.
            recurse: Those of subgraphs too.
        """
        for name, node in self.blueprint.nodes.items():
            if node.subgraph is None or (namespace is not None and f"{namespace}|".find(f"{name}|") != 0):
                continue
            rest = None if namespace is None else namespace[len(name) + 1 :]
            if not rest:
                yield name, node.subgraph
            if recurse and rest != "":
                for below, found in node.subgraph.get_subgraphs(rest, recurse=True):
                    yield f"{name}|{below}", found

    async def aget_subgraphs(
        self, namespace: str | None = None, *, recurse: bool = False
    ) -> AsyncGenerator[tuple[str, Pregel], None]:
        """`get_subgraphs` as an async iterator."""
        for found in self.get_subgraphs(namespace, recurse=recurse):
            yield found

    async def _run(self, request: RunRequest) -> Any:
        """Run as a root run, or in a node as the run of a subgraph."""
        if request.parent is not None:
            async with waiting_for_subgraph(request.parent):
                return await execute(request)
        return await execute(await self._replayed(request))

    async def _replayed(self, request: RunRequest) -> RunRequest:
        """A call that names a checkpoint of a subgraph, as a replay of the root graph from there."""
        config = request.config
        if not config.checkpoint_ns or request.saver is None:
            return request
        found = await request.saver.aload(config.saved(config.checkpoint_id))
        if found.saved is None:
            raise ConfigError(f"thread {config.thread_id!r} has no checkpoint in namespace {config.checkpoint_ns!r}")
        parents = dict(found.saved.metadata.get("parents", {}))
        root = parents.pop("", None)
        replay = {**parents, config.checkpoint_ns: found.saved.checkpoint["id"]}
        return replace(request, config=replace(config, checkpoint_ns="", checkpoint_id=root), replay=replay)

    def _call_options(self, options: dict[str, Any]) -> CallOptions:
        call = call_options(options)
        return replace(call, debug=self.options.debug) if call.debug is None else call

    def _request(
        self,
        value: Any,
        config: Mapping[str, Any] | None,
        options: CallOptions,
        view: View,
        outlet: Outlet | None,
    ) -> RunRequest:
        compiled, graph = self.options, self.blueprint
        before = compiled.interrupt_before if options.interrupt_before is None else options.interrupt_before
        after = compiled.interrupt_after if options.interrupt_after is None else options.interrupt_after
        self._check_breakpoints(before)
        self._check_breakpoints(after)
        parsed = parse_config(config, self.config)
        request = RunRequest(
            graph=graph,
            input=value,
            config=parsed,
            saver=self._saver,
            output=graph.output_channels if options.output_keys is None else _names(options.output_keys, graph),
            shown=graph.stream_channels if options.output_keys is None else _names(options.output_keys, graph),
            output_model=graph.output_model if options.output_keys is None else None,
            version=view.version,
            durability=checked_durability(options.durability),
            context=context_of(graph.context_schema, options.context),
            store=compiled.store,
            cache=compiled.cache,
            interrupt_before=before,
            interrupt_after=after,
            on_pending=options.on_pending or compiled.on_pending,
            outlet=outlet,
            on_error=options.on_error or compiled.on_error,
            deadline=checked_seconds("deadline", options.deadline),
            step_timeout=checked_seconds("step_timeout", self.step_timeout),
            control=options.control,
            server_info=options.server_info,
            debug=bool(options.debug),
        )
        attempt = calling_attempt(parsed, graph.name)
        if attempt is None or (self._saver is not None and not attempt.run.durable):
            if self.options.checkpointer is True:
                raise ConfigError("checkpointer=True is for subgraphs; a root graph needs a saver of its own")
            return request
        return nested_request(request, attempt, _persistence(compiled.checkpointer))

    def _check_breakpoints(self, names: NodeNames) -> None:
        if names == "*":
            return
        if isinstance(names, str):
            raise ConfigError(f"breakpoints are a list of node names or '*', got {names!r}")
        for name in names:
            if name not in self.blueprint.nodes:
                raise ConfigError(
                    f"breakpoint at {name!r}, which is not a node.{did_you_mean(name, self.blueprint.nodes)}"
                )

    def _require_saver(self) -> AtomicSaver[Any]:
        if self._saver is None:
            raise ConfigError(
                "the graph has no saver, so there is no thread to read or update; compile it with checkpointer="
            )
        return self._saver

    def _blueprint_at(self, config: RunConfig, *, is_read: bool = False) -> Blueprint:
        """The graph whose checkpoints are in the config's namespace: this one or one of its subgraphs.

        A subgraph that is not known can be read as far as it has the keys of the graph that calls it.
        """
        found = self.blueprint
        names = node_names(config.checkpoint_ns)
        for depth, name in enumerate(names, 1):
            node = found.node_at(name)
            if node is None or node.subgraph is None:
                if is_read:
                    return found
                raise ConfigError(
                    f"Subgraph {'|'.join(names[:depth])} not found: checkpoint_ns {config.checkpoint_ns!r} leads to it "
                    f"and graph {found.name!r} does not know that its nodes run it; add it as a node, or name it in a "
                    f"node's code"
                )
            found = node.subgraph.blueprint
        return found

    def _thread_config(self, config: Mapping[str, Any]) -> RunConfig:
        parsed = parse_config(config, self.config)
        if parsed.thread_id is None:
            raise ConfigError('which thread? Pass {"configurable": {"thread_id": "..."}} as the config')
        return parsed


def _debug_modes(call: CallOptions) -> Modes:
    return ("updates", "values") if call.debug else ()


def _persistence(checkpointer: Any) -> Persistence:
    """How a subgraph is stored; one with a saver of its own takes its parent's all the same."""
    return checkpointer if isinstance(checkpointer, bool) else None


def _names(names: str | Sequence[str], graph: Blueprint) -> str | tuple[str, ...]:
    given = (names,) if isinstance(names, str) else tuple(names)
    for name in given:
        if name not in graph.channels:
            raise ConfigError(f"output key {name!r} is not a key of the graph.{did_you_mean(name, graph.channels)}")
    return names if isinstance(names, str) else given
