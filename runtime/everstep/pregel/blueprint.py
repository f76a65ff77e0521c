"""What a graph is once it is compiled: nodes, channels and which of them are input and output.

Frozen; shared by all runs of the graph. Making one checks that its names fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args

from everstep.channels.base import BaseChannel
from everstep.channels.managed import ManagedValue
from everstep.channels.topic import Topic
from everstep.constants import RESERVED, START, TASKS
from everstep.declared import check_flag, check_key, check_kind, check_methods, check_schema, names_of
from everstep.errors import ConfigError, GraphBuildError, GraphTypeError, did_you_mean
from everstep.tasks.node import Node, Write
from everstep.types import OnError, Send
from everstep_savers.base import AtomicSaver
from everstep_savers.shape import as_atomic

T = TypeVar("T")

Names = str | tuple[str, ...]
# What new input does to a question that is open.
OnPending = Literal["supersede", "reject"]


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A compiled graph.

    Attributes:
        nodes: By name.
        channels: Specifications by key; the channel of pending `Send`s is added where it is missing.
        managed: Keys computed per task.
        input_channels: One name: the input is its value. Several: the input maps names to values.
        output_channels: One name: its value is the result. Several: a mapping of those with a value.
        stream_channels: Likewise, for stream mode "values" and snapshots.
        state_model: Makes an instance of the state's schema of its values, for readers that want one.
        output_model: Likewise, of the output schema.
        check_input: Checks and converts the input of a run before anything is stored.
        write_command: Turns the update and destination of a `Command` given as input into writes.
        annotations: Types that state may hold; made known to the saver's codec.
        aliases: Old name of a node -> its name now.
        joins: Channels of joins that must complete before a run ends -> the node that waits.
        checks: Raise an `InvalidUpdateError` if what a step has made of a channel's value does not fit it.
        triggers: Channel -> names of the nodes it triggers; computed.
        untracked: Channels that are never stored; computed.
    """

    name: str
    nodes: Mapping[str, Node]
    channels: Mapping[str, BaseChannel[Any, Any]]
    input_channels: Names
    output_channels: Names
    stream_channels: Names
    managed: Mapping[str, type[ManagedValue]] = field(default_factory=dict)
    context_schema: Any = None
    state_model: Callable[[Any], Any] | None = None
    output_model: Callable[[Any], Any] | None = None
    check_input: Callable[[Any], Any] | None = None
    write_command: Callable[[Any], Sequence[Write]] | None = None
    annotations: tuple[Any, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    joins: Mapping[str, str] = field(default_factory=dict)
    checks: Mapping[str, Callable[[Any], None]] = field(default_factory=dict)
    triggers: Mapping[str, tuple[str, ...]] = field(init=False, default_factory=dict)
    untracked: frozenset[str] = field(init=False, default=frozenset())

    def __post_init__(self) -> None:
        channels = dict(self.channels)
        channels.setdefault(TASKS, Topic(Send, key=TASKS))
        for key, channel in channels.items():
            channel.key = key
        object.__setattr__(self, "channels", MappingProxyType(channels))
        object.__setattr__(self, "triggers", _trigger_map(self.nodes))
        object.__setattr__(self, "untracked", frozenset(key for key, one in channels.items() if not one.tracked))
        self._check()

    def node_at(self, name: str) -> Node | None:
        """The node of this name, error handlers included."""
        found = self.nodes.get(name)
        if found is None:
            handlers = (node.error_handler for node in self.nodes.values() if node.error_handler is not None)
            found = next((handler for handler in handlers if handler.name == name), None)
        return found

    def _check(self) -> None:
        if self.context_schema is not None:
            check_schema("context_schema", self.context_schema)
        for name in self.nodes:
            check_key("node name", name)
            if name in RESERVED and name != START:
                raise GraphBuildError(f"node name {name!r} is reserved; choose another")
        for key in self.channels:
            check_key("channel name", key)
        for node in self.nodes.values():
            reads = (node.channels,) if isinstance(node.channels, str) else node.channels
            self._check_names(f"node {node.name!r} is triggered by", node.triggers)
            self._check_names(f"node {node.name!r} reads", [key for key in reads if key not in self.managed])
        for what, names in (
            ("the graph's input is", self.input_channels),
            ("the graph's output is", self.output_channels),
            ("the graph streams", self.stream_channels),
        ):
            self._check_names(what, (names,) if isinstance(names, str) else names)

    def _check_names(self, what: str, names: Any) -> None:
        for name in names:
            if name not in self.channels:
                raise GraphBuildError(
                    f"{what} channel {name!r}, which does not exist.{did_you_mean(name, self.channels)}"
                )


def _trigger_map(nodes: Mapping[str, Node]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name in sorted(nodes):
        for channel in nodes[name].triggers:
            found.setdefault(channel, []).append(name)
    return MappingProxyType({channel: tuple(names) for channel, names in found.items()})


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What `compile()` adds to a graph.

    Attributes:
        checkpointer: The saver; None for runs that nothing outlives. A subgraph takes its parent's saver:
            with None it lives as long as the run that calls it, with True it keeps a history of its own from
            run to run, with False nothing of it is stored.
        interrupt_before: Static breakpoints: node names, or "*" for all.
        interrupt_after: Likewise.
        debug: Print what happens to the terminal, and check that nodes do not change what they share.
        on_pending: What new input does to an open question: supersede it, or be rejected.
        on_error: What becomes of the nodes beside one that fails.
        name: The graph's name as the user gave it, if so.
    """

    checkpointer: Any = None
    store: Any = None
    cache: Any = None
    interrupt_before: tuple[str, ...] | Literal["*"] = ()
    interrupt_after: tuple[str, ...] | Literal["*"] = ()
    debug: bool = False
    on_pending: OnPending = "supersede"
    on_error: OnError | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.debug is not None:
            check_flag("debug", self.debug)
        if self.name is not None:
            check_kind("the name of a graph is a string", self.name, str)
            check_key("the graph's name", self.name)
        if self.store is not None:
            rule = "store must be a store such as InMemoryStore() or SQLStore.from_url(...)"
            check_methods(rule, self.store, ("aget", "aput", "asearch"))

    def saver(self) -> AtomicSaver[Any] | None:
        """The saver as the engine takes it; None for a graph that has none of its own.

        Raises:
            GraphTypeError: It is not a saver.
        """
        if isinstance(self.checkpointer, bool | None):
            return None
        try:
            return as_atomic(self.checkpointer)
        except TypeError as error:
            raise GraphTypeError(str(error)) from None


def stops_of(option: str, names: Any) -> tuple[str, ...] | Literal["*"]:
    """Static breakpoints as they are kept; None for no breakpoints.

    Raises:
        GraphTypeError: They are neither names nor "*".
    """
    return "*" if isinstance(names, str) and names == "*" else names_of(option, () if names is None else names)


def checked_choice(option: str, value: T, choices: Any) -> T:
    """The value of an option, None if it is not given.

    Raises:
        ConfigError: It is none of the choices, a Literal.
    """
    names = get_args(choices)
    if value is not None and value not in names:
        raise ConfigError(f"{option} is {' or '.join(map(repr, names))}, got {value!r}")
    return value
