"""From specifications to a blueprint: schemas become channels, edges become writes and triggers.

Pure. An edge is a write to the channel ``branch:to:<node>`` that triggers its target; a join is a channel
``join:<a>+<b>:<node>`` that has a value once every source has written. The start is a node without an
action that writes the input. What comes in here has been checked by `everstep.graph.validate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from everstep.channels.barrier import NamedBarrierValue, NamedBarrierValueAfterFinish, absent
from everstep.channels.base import BaseChannel
from everstep.channels.last_value import EphemeralValue, LastValueAfterFinish
from everstep.constants import BRANCH_PREFIX, DEFAULT_HANDLER, END, HANDLER_PREFIX, ROOT, START
from everstep.errors import GraphBuildError
from everstep.graph.branches import BranchWriter, Reading
from everstep.graph.hints import called_graph
from everstep.graph.inputs import InputCheck
from everstep.graph.keys import JOIN_PREFIX
from everstep.graph.schema import Mapper, Schema, merge_schemas
from everstep.graph.spec import BranchSpec, GraphSpec, JoinSpec, NodeSpec
from everstep.graph.writers import Destinations, KeyRules, ReducedCheck, RootWriter, StateWriter, SubgraphWriter
from everstep.pregel.blueprint import Blueprint, Names
from everstep.tasks.node import Node, Write, Writer


def compile_graph(spec: GraphSpec, name: str) -> Blueprint:
    """Make the blueprint of a graph.

    Raises:
        GraphBuildError: Two schemas disagree on a key.
    """
    return _Compiler(spec, name).blueprint()


class _Compiler:
    def __init__(self, spec: GraphSpec, name: str) -> None:
        self.spec = spec
        self.name = name
        self.state = merge_schemas(spec.schemas)
        self.joins = _joins(spec)
        self.targets = spec.targets_by_source()

    def blueprint(self) -> Blueprint:
        destinations = Destinations(self.spec.nodes)
        nodes = {START: self._start(destinations)}
        for node in self.spec.nodes.values():
            nodes[node.name] = self._node(node, destinations)
        return Blueprint(
            name=self.name,
            nodes=nodes,
            channels={**self.state.channels, **self._triggers()},
            input_channels=START,
            output_channels=_names(self.spec.output.stored_names),
            stream_channels=_names(tuple(self.state.channels)),
            managed=self.state.managed,
            context_schema=self.spec.context_schema,
            state_model=_model_of(self.spec.state),
            output_model=_model_of(self.spec.output),
            check_input=self._check_input(),
            write_command=self._update_writer(destinations).writes_of_command,
            annotations=_annotations(self.spec.schemas),
            aliases=self.spec.aliases,
            joins=self._awaited_joins(),
            checks={key: ReducedCheck(key, check) for key, check in self.state.reduced_checks.items()},
        )

    def _awaited_joins(self) -> dict[str, str]:
        if self.spec.unsatisfied_joins == "ignore":
            return {}
        return {key: join.target for key, join in self.joins.items()}

    def _start(self, destinations: Destinations) -> Node:
        edges = self._edges(START)
        writer: Writer
        if self.spec.input.is_root:
            writer = RootWriter(destinations, edges)
        else:
            writer = StateWriter(self._input_rules(), destinations, edges)
        writers = (writer, *self._branches(START, self.spec.state, destinations))
        return Node(START, (START,), START, None, writers, hidden=True)

    def _node(self, node: NodeSpec, destinations: Destinations) -> Node:
        is_subgraph = node.subgraph is not None
        writer = self._update_writer(
            destinations, self._edges(node.name), SubgraphWriter if is_subgraph else StateWriter
        )
        writers = (writer, *self._branches(node.name, node.input, destinations))
        reads, mapper = (ROOT, None) if node.input.is_root else (node.input.names, node.input.mapper)
        if is_subgraph and not node.input.is_root:
            reads, mapper = _subgraph_reads(node), None
        return Node(
            error_handler=self._handler(node, reads, mapper, destinations),
            name=node.name,
            triggers=_triggers_of(node.name, self.joins),
            channels=reads,
            action=node.action,
            writers=writers,
            mapper=mapper,
            retry=self.spec.retry if node.retry is None else node.retry,
            timeout=self.spec.timeout if node.timeout is None else node.timeout,
            cache=self.spec.cache if node.cache is None else node.cache,
            metadata=dict(node.metadata),
            identity=self._identity(node),
            subgraph=node.subgraph or called_graph(node.action.function),
        )

    def _identity(self, node: NodeSpec) -> str:
        """The first name that the node had."""
        return next((old for old, new in self.spec.aliases.items() if new == node.name), node.name)

    def _handler(self, node: NodeSpec, reads: Names, mapper: Any, destinations: Destinations) -> Node | None:
        """The node that runs when this one has failed; it is given what this one was given."""
        handler = self.spec.handler_of(node)
        if handler is None:
            return None
        kind: type[StateWriter] = StateWriter
        if handler.subgraph is not None:
            kind, mapper = SubgraphWriter, partial(_shared, handler.subgraph.spec.input)
        return Node(
            name=DEFAULT_HANDLER if node.error_handler is None else f"{HANDLER_PREFIX}{node.name}",
            identity=DEFAULT_HANDLER if node.error_handler is None else f"{HANDLER_PREFIX}{self._identity(node)}",
            triggers=(),
            channels=reads,
            action=handler.action,
            # A join must not wait for a node that has failed.
            writers=(self._update_writer(destinations, self._joined(node.name, absent(node.name)), kind),),
            mapper=mapper,
            subgraph=handler.subgraph or called_graph(handler.action.function),
            retry=self.spec.retry,
            timeout=self.spec.timeout,
        )

    def _update_writer(
        self, destinations: Destinations, edges: Iterable[Write] = (), kind: type[StateWriter] = StateWriter
    ) -> RootWriter | StateWriter:
        if self.spec.state.is_root:
            return RootWriter(destinations, edges)
        rules = KeyRules(
            known=frozenset(self.state.channels),
            dropped=frozenset(self.state.managed),
            checks=self.state.checks,
            ignore_unknown=self.spec.unknown_keys == "ignore",
        )
        return kind(rules, destinations, edges)

    def _branches(self, source: str, reads: Schema, destinations: Destinations) -> tuple[Writer, ...]:
        return tuple(
            BranchWriter(branch.name, branch.path, self._reading(branch, reads), branch.ends, destinations)
            for branch in self.spec.branches
            if branch.source == source
        )

    def _reading(self, branch: BranchSpec, reads: Schema) -> Reading:
        schema = branch.input or reads
        names = schema.names
        if branch.input is None and schema.mapper is None and not self.spec.state.is_root:
            # A path without an annotation sees the private keys of its node and the state.
            names = tuple(dict.fromkeys((*names, *self.spec.state.names)))
        return Reading(names, schema.mapper, schema.is_root)

    def _edges(self, source: str) -> list[Write]:
        edges: list[Write] = [
            (BRANCH_PREFIX + target, None) for target in self.targets.get(source, ()) if target != END
        ]
        return edges + self._joined(source, source)

    def _joined(self, source: str, value: str) -> list[Write]:
        """The writes of a value to the joins that wait for this source."""
        return [(key, value) for key, join in self.joins.items() if source in join.sources]

    def _triggers(self) -> dict[str, BaseChannel[Any, Any]]:
        channels: dict[str, BaseChannel[Any, Any]] = {START: EphemeralValue(self.spec.input.source)}
        for node in self.spec.nodes.values():
            channels[BRANCH_PREFIX + node.name] = (
                LastValueAfterFinish(Any) if node.defer else EphemeralValue(Any, guard=False)
            )
        for key, join in self.joins.items():
            kind = NamedBarrierValueAfterFinish if self.spec.nodes[join.target].defer else NamedBarrierValue
            channels[key] = kind(str, frozenset(join.sources))
        return channels

    def _input_rules(self) -> KeyRules:
        return KeyRules(
            known=frozenset(self.spec.input.stored_names),
            dropped=frozenset({*self.state.channels, *self.state.managed}),
            checks=self.state.checks,
            ignore_unknown=self.spec.unknown_keys == "ignore",
        )

    def _check_input(self) -> InputCheck | None:
        if self.spec.input.is_root:
            return None
        return InputCheck(self.name, self.spec.input.name, self._input_rules())


def _names(stored: tuple[str, ...]) -> Names:
    return ROOT if stored == (ROOT,) else stored


def _model_of(schema: Schema) -> Mapper | None:
    """Makes an instance of a schema of a state that may have more keys than it; None for mappings."""
    make, names = schema.mapper, schema.stored_names
    if make is None:
        return None
    return lambda values: make({key: values[key] for key in names if key in values})


def _joins(spec: GraphSpec) -> dict[str, JoinSpec]:
    """The joins by channel name; a join with the end has nothing to run."""
    joins: dict[str, JoinSpec] = {}
    for join in spec.joins:
        if join.target == END:
            continue
        key = f"{JOIN_PREFIX}{'+'.join(join.sources)}:{join.target}"
        other = joins.setdefault(key, join)
        if set(other.sources) != set(join.sources):
            raise GraphBuildError(
                f"the joins of {other.sources} and of {join.sources} with {join.target!r} have the same channel name "
                f"{key!r}; rename a node with '+' in its name"
            )
    return joins


def _triggers_of(name: str, joins: Mapping[str, JoinSpec]) -> tuple[str, ...]:
    return (BRANCH_PREFIX + name, *(key for key, join in joins.items() if join.target == name))


def _subgraph_reads(node: NodeSpec) -> tuple[str, ...]:
    """What a subgraph is given: the keys that its input schema shares with its node's."""
    schema: Schema = node.subgraph.spec.input
    return node.input.names if schema.is_root else tuple(key for key in node.input.names if key in schema.names)


def _shared(schema: Schema, value: Any) -> Any:
    """The part of a node's input that a subgraph takes."""
    if schema.is_root or not isinstance(value, dict):
        return value
    return {key: item for key, item in value.items() if key in schema.names}


def _annotations(schemas: Iterable[Schema]) -> tuple[Any, ...]:
    found: list[Any] = []
    for schema in schemas:
        found += [schema.source, *(key.hint for key in schema.keys)]
    return tuple(found)
