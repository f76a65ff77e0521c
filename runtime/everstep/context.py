"""What a running node may reach: one object in one ContextVar.

`Runtime` is what users get injected; `TaskContext` is the interface that the engine's own object for a
running task has. The functions that nodes call (`interrupt`, `get_config`, ...) find it here. This module
does not run anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Generic, Protocol, TypeVar

from everstep.control import RunControl
from everstep.errors import EverstepError

ContextT = TypeVar("ContextT")


@dataclass(frozen=True, slots=True)
class ExecutionInfo:
    """Which execution of a node this is.

    Attributes:
        node_attempt: Number of this attempt, from 1.
        node_first_attempt_time: Unix time of the first attempt, in seconds.
    """

    thread_id: str | None = None
    checkpoint_ns: str = ""
    checkpoint_id: str | None = None
    task_id: str = ""
    run_id: str | None = None
    node_attempt: int = 1
    node_first_attempt_time: float | None = None

    def patch(self, **changed: Any) -> ExecutionInfo:
        """A copy with some fields changed."""
        return replace(self, **changed)


class BaseUser(Protocol):
    """Whoever a server has authenticated."""

    @property
    def is_authenticated(self) -> bool: ...
    @property
    def display_name(self) -> str: ...
    @property
    def identity(self) -> str: ...
    @property
    def permissions(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server that runs the graph tells its nodes, with `ainvoke(..., server_info=...)`."""

    assistant_id: str
    graph_id: str
    user: BaseUser | None = None


def _no_writer(_: Any) -> None:
    """The stream writer of a run that nobody streams."""


def _no_heartbeat() -> None:
    """The heartbeat of a task without an idle timeout."""


# Without slots: a frozen slotted generic cannot be called through its alias, Runtime[Context](...).
@dataclass(frozen=True)
class Runtime(Generic[ContextT]):
    """What a node may use besides its state; injected into a parameter annotated with it or named `runtime`.

    Attributes:
        context: The run's `context`, constant for the whole run.
        store: The store given at compile time.
        stream_writer: Sends a value to the readers of stream mode "custom".
        previous: The value the last run of an entrypoint saved.
        execution_info: Attempt number, task and thread.
        heartbeat: Tells an idle timeout that the node is alive.
        server_info: What the server that runs the graph tells; None without one.
        control: Asks the run to stop at its next barrier.
        idempotency_key: 32 hex digits, the same at each attempt of this task, after crashes and in other processes;
            for outside calls that must not happen twice. Another input, or a branch, gives another key.
    """

    context: ContextT = None  # type: ignore[assignment]
    store: Any = None
    stream_writer: Callable[[Any], None] = _no_writer
    previous: Any = None
    execution_info: ExecutionInfo = field(default_factory=ExecutionInfo)
    heartbeat: Callable[[], None] = _no_heartbeat
    server_info: ServerInfo | None = None
    control: RunControl | None = None
    idempotency_key: str = ""

    @property
    def drain_requested(self) -> bool:
        """Is the run to stop at its next barrier?"""
        return self.control is not None and self.control.drain_requested

    @property
    def drain_reason(self) -> str | None:
        """Why the run is to stop; None while it is not."""
        return self.control.drain_reason if self.control is not None else None

    def override(self, **changed: Any) -> Runtime[Any]:
        """A copy with some fields changed."""
        return replace(self, **changed)

    def merge(self, other: Runtime[Any]) -> Runtime[Any]:
        """A copy with what the other has set."""
        return replace(self, **{each.name: getattr(other, each.name) for each in fields(other) if _is_set(other, each)})


def _is_set(runtime: Runtime[Any], field: Field[Any]) -> bool:
    value = getattr(runtime, field.name)
    return value != ExecutionInfo() if field.name == "execution_info" else value is not field.default


class TaskContext(Protocol):
    """The engine's object for one running attempt of a task."""

    @property
    def config(self) -> dict[str, Any]:
        """The run's config as the node sees it; a copy of its own."""

    @property
    def runtime(self) -> Runtime[Any]:
        """What is injected as `runtime`."""

    def ask(self, value: Any, response_schema: Any = None) -> Any:
        """Return the answer to this question, or suspend the task."""

    def push(self, message: Any, key: str | None) -> None:
        """Tell readers of a message, and write it to a key, before what the node returns."""


current_task: ContextVar[TaskContext] = ContextVar("everstep_current_task")


def running_task(what: str) -> TaskContext:
    """The task that runs here; `what` is the name of the function that needs it."""
    try:
        return current_task.get()
    except LookupError:
        raise EverstepError(
            f"{what}() was called outside of a node; call it in a node, or in a function that a node calls"
        ) from None


def interrupt(value: Any, *, response_schema: Any = None) -> Any:
    """Ask a question; return its answer.

    The first time, the task is suspended and the run returns with the question under ``"__interrupt__"``.
    Once it is answered with `Command(resume=...)`, the node runs again from its top, and this call returns
    the answer. Several calls in one node are answered in order; code before them runs again each time.

    Args:
        value: What to ask; anything that can be stored.
        response_schema: A JSON Schema dict, or a pydantic model, dataclass, TypedDict or other type: shown to
            clients with the question. An answer that does not fit fails the run and leaves the question open;
            one that does is converted to the type.

    Raises:
        EverstepError: Called outside of a node.
        ConfigError: The graph has no saver that would keep the suspended thread.
        InterruptMismatchError: The stored answer at this place belongs to another question.
    """
    return running_task("interrupt").ask(value, response_schema)
