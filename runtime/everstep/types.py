"""Types that users meet: what a node returns, what a run yields, what a thread looks like.

Frozen records. Those that may be part of stored state are known to the codec under stable names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from everstep.context import interrupt
from everstep.policies import CachePolicy, RetryPolicy, TimeoutPolicy
from everstep_savers.codec import default_codec

__all__ = [
    "All",
    "CachePolicy",
    "Command",
    "Durability",
    "Interrupt",
    "Overwrite",
    "PregelTask",
    "RetryPolicy",
    "Send",
    "StateSnapshot",
    "StateUpdate",
    "StreamMode",
    "StreamWriter",
    "TimeoutPolicy",
    "interrupt",
]

# When a step is stored: before the next one starts, behind it, or when the run leaves.
Durability = Literal["sync", "async", "exit"]
StreamMode = Literal["values", "updates", "custom", "tasks", "checkpoints", "messages", "debug"]
StreamWriter = Callable[[Any], None]
# All node names, in place of a list of them.
All = Literal["*"]

NodeT = TypeVar("NodeT", bound=str)


class _Missing:
    """The type of `MISSING`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


# Stands for "no value" where None is a value.
MISSING: Any = _Missing()


@dataclass(frozen=True, slots=True, unsafe_hash=False)
class Send:
    """Run a node in the next superstep with an input of its own.

    Attributes:
        node: Name of the node.
        arg: Its input, in place of the state.
        timeout: Seconds per attempt, in place of the node's own timeout.
    """

    node: str
    arg: Any
    timeout: float | timedelta | TimeoutPolicy | None = field(default=None, kw_only=True)

    def __hash__(self) -> int:
        return hash(self.node)


@dataclass(frozen=True, slots=True)
class Interrupt:
    """A question that a node asked with `interrupt()`.

    Attributes:
        value: What was asked.
        id: 32 hex digits; the key under which `Command(resume={id: answer})` answers it.
        response_schema: JSON Schema of the answer, None for any.
    """

    value: Any
    id: str = ""
    response_schema: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Replace the value of a key with a reducer instead of reducing into it."""

    value: Any


# Without slots: a frozen slotted generic cannot be called through its alias, Command[str](...).
@dataclass(frozen=True, kw_only=True)
class Command(Generic[NodeT]):
    """An update and a destination in one; a node's result, or the input of a run.

    Attributes:
        graph: None for this graph, `Command.PARENT` for the one that contains it.
        update: As a node would return it.
        resume: As input only: the answer to the open question, or a map from question id to answer.
        goto: Node name, `Send`, or a sequence of these; they run beside the static edges of the node.
    """

    graph: str | None = None
    update: Any = None
    resume: Any = MISSING
    goto: Send | Sequence[Send | str] | str = ()

    PARENT: ClassVar[Literal["__parent__"]] = "__parent__"


class PregelTask(NamedTuple):
    """One task of a snapshot."""

    id: str
    name: str
    path: tuple[str | int | tuple[Any, ...], ...]
    error: str | None = None  # repr of the exception
    interrupts: tuple[Interrupt, ...] = ()
    state: Any = None  # config or snapshot of a subgraph
    result: Any = None


class StateSnapshot(NamedTuple):
    """A thread at one checkpoint."""

    values: Any
    next: tuple[str, ...]  # nodes that would run next
    config: dict[str, Any]
    metadata: dict[str, Any] | None
    created_at: str | None
    parent_config: dict[str, Any] | None
    tasks: tuple[PregelTask, ...]
    interrupts: tuple[Interrupt, ...]


class StateUpdate(NamedTuple):
    """One update of `abulk_update_state`."""

    values: Any
    as_node: str | None = None
    task_id: str | None = None


default_codec.register_record(
    _Missing, name="everstep:MISSING", to_fields=lambda _: None, from_fields=lambda _: MISSING
)
for _kind in (Send, Interrupt, Overwrite, Command, TimeoutPolicy):
    default_codec.register(_kind, name=f"everstep:{_kind.__name__}")
