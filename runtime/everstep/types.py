"""Types that users meet: what a node returns, what a run yields, what a thread looks like.

Frozen records. Those that may be part of stored state are known to the codec under stable names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

from everstep.context import interrupt
from everstep.policies import CachePolicy, RetryPolicy, TimeoutPolicy
from everstep_savers.checkpoint import INTERRUPT
from everstep_savers.codec import default_codec

__all__ = [
    "All",
    "CachePolicy",
    "CheckpointPayload",
    "CheckpointStreamPart",
    "CheckpointTask",
    "Command",
    "CustomStreamPart",
    "DebugPayload",
    "DebugStreamPart",
    "Durability",
    "GraphOutput",
    "Interrupt",
    "MessagesStreamPart",
    "OnError",
    "Overwrite",
    "PregelTask",
    "RetryPolicy",
    "Send",
    "StateSnapshot",
    "StateUpdate",
    "StreamMode",
    "StreamPart",
    "StreamVersion",
    "StreamWriter",
    "TaskPayload",
    "TaskResultPayload",
    "TasksStreamPart",
    "TimeoutPolicy",
    "UpdatesStreamPart",
    "ValuesStreamPart",
    "interrupt",
]

# When a step is stored: before the next one starts, behind it, or when the run leaves.
Durability = Literal["sync", "async", "exit"]
# What becomes of the nodes beside one that fails: they are cancelled, or finish and keep their writes.
OnError = Literal["cancel", "drain"]
StreamMode = Literal["values", "updates", "custom", "tasks", "checkpoints", "messages", "debug"]
# How events and results come: v1 as bare payloads or tuples, v2 as `StreamPart` and `GraphOutput`.
StreamVersion = Literal["v1", "v2"]
StreamWriter = Callable[[Any], None]
# All node names, in place of a list of them.
All = Literal["*"]

NodeT = TypeVar("NodeT", bound=str)
OutputT = TypeVar("OutputT")


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


@dataclass(frozen=True)  # without slots, as Command
class GraphOutput(Generic[OutputT]):
    """What `ainvoke(version="v2")` returns.

    ``output[key]`` reads what a v1 result has there: a key of the value, or the open questions.

    Attributes:
        value: The output; an instance of the output schema where that is a dataclass or a pydantic model.
        interrupts: Open questions, if the run waits for answers.
    """

    value: OutputT
    interrupts: tuple[Interrupt, ...] = ()

    def __getitem__(self, key: Any) -> Any:
        if key == INTERRUPT:
            return self.interrupts
        value: Any = self.value
        return value[key]

    def __contains__(self, key: Any) -> bool:
        value: Any = self.value
        return bool(self.interrupts) if key == INTERRUPT else key in value


class TaskPayload(TypedDict):
    """A task begins, or begins again after a failed attempt."""

    id: str
    name: str
    input: Any  # as the node gets it
    triggers: Sequence[str]
    metadata: NotRequired[dict[str, Any]]  # of the run and the node, tags included; left out if there is none
    attempt: NotRequired[int]  # from the second one on


class TaskResultPayload(TypedDict):
    """A task, or an attempt of it, has ended."""

    id: str
    name: str
    error: BaseException | None
    result: dict[str, Any]  # by key; several writes to one key as {"$writes": [...]}
    interrupts: list[dict[str, Any]]
    attempt: NotRequired[int]  # from the second one on, and of every attempt that another one follows
    retry_in: NotRequired[float]  # seconds until the next attempt, if there will be one


class CheckpointTask(TypedDict):
    """One task that follows a checkpoint."""

    id: str
    name: str
    state: Any  # config of a subgraph
    result: NotRequired[dict[str, Any]]
    interrupts: NotRequired[tuple[dict[str, Any], ...]]
    error: NotRequired[str]


class CheckpointPayload(TypedDict):
    """A checkpoint was taken."""

    config: dict[str, Any]
    parent_config: dict[str, Any] | None
    values: Any
    metadata: dict[str, Any]
    next: list[str]
    tasks: list[CheckpointTask]


class DebugPayload(TypedDict):
    """What modes "tasks" and "checkpoints" tell, with step and time."""

    step: int
    timestamp: str
    type: Literal["checkpoint", "task", "task_result"]
    payload: CheckpointPayload | TaskPayload | TaskResultPayload


class _Part(TypedDict):
    """What all parts of a v2 stream have.

    Keys:
        ns: The graph it comes from: ``node:task_id`` for each level below the root, empty for the root.
        attempts: Present if the part belongs to a repeated attempt: the number of the attempt of the task at
            each level of `ns`, and of the task itself where the part is one task's.
    """

    ns: tuple[str, ...]
    attempts: NotRequired[tuple[int, ...]]


class ValuesStreamPart(_Part, Generic[OutputT]):
    """The state after a step."""

    type: Literal["values"]
    data: OutputT
    interrupts: tuple[Interrupt, ...]


class UpdatesStreamPart(_Part):
    """What a node returned, or which questions it asked."""

    type: Literal["updates"]
    data: dict[str, Any]


class CustomStreamPart(_Part):
    """What a node wrote to its stream writer."""

    type: Literal["custom"]
    data: Any


class MessagesStreamPart(_Part):
    """A token of a model, or a whole message; with its metadata."""

    type: Literal["messages"]
    data: tuple[Any, dict[str, Any]]


class TasksStreamPart(_Part):
    """A task has begun or ended."""

    type: Literal["tasks"]
    data: TaskPayload | TaskResultPayload


class CheckpointStreamPart(_Part):
    """A checkpoint was taken."""

    type: Literal["checkpoints"]
    data: CheckpointPayload


class DebugStreamPart(_Part):
    """What modes "tasks" and "checkpoints" tell."""

    type: Literal["debug"]
    data: DebugPayload


StreamPart = (
    ValuesStreamPart[Any]
    | UpdatesStreamPart
    | CustomStreamPart
    | MessagesStreamPart
    | TasksStreamPart
    | CheckpointStreamPart
    | DebugStreamPart
)

default_codec.register_record(
    _Missing, name="everstep:MISSING", to_fields=lambda _: None, from_fields=lambda _: MISSING
)
for _kind in (Send, Interrupt, Overwrite, Command, TimeoutPolicy):
    default_codec.register(_kind, name=f"everstep:{_kind.__name__}")
