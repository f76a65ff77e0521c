"""The running attempt of a task: what its node may reach, and what it has asked.

`Attempt` is the one object behind `current_task`. Once the attempt has ended it is closed: a late thread
of a timed-out sync node can neither ask nor stream any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from typing import Any, Protocol

from xxhash import xxh3_128_hexdigest

from everstep.channels.managed import ManagedValue, Progress
from everstep.config import RunConfig
from everstep.constants import BRANCH_PREFIX, PREVIOUS
from everstep.context import ExecutionInfo, Runtime, ServerInfo, current_task
from everstep.control import RunControl
from everstep.errors import (
    ConfigError,
    EverstepError,
    GraphInterrupt,
    InterruptMismatchError,
    InvalidUpdateError,
    did_you_mean,
)
from everstep.tasks.node import Write
from everstep.tasks.responses import checked_answer, json_schema_of
from everstep.tasks.task import Answer, Task
from everstep.types import MISSING, Interrupt
from everstep_savers.ids import new_checkpoint_id


class ReadsChannels(Protocol):
    """The channels of a run, as far as tasks read them."""

    @property
    def live(self) -> Mapping[str, Any]:
        """The channels by key."""

    def read_with(self, channels: Sequence[str], writes: Sequence[Write]) -> dict[str, Any]:
        """The channels that have a value, as they would be after `writes`."""


class Told(Protocol):
    """What a run tells its readers of its tasks' attempts, and how it waits for slow ones."""

    @property
    def is_full(self) -> bool:
        """Has a reader fallen behind?"""

    async def room(self) -> None:
        """Wait for slow readers."""

    def started(self, task: Task) -> None:
        """An attempt begins."""

    def retried(self, task: Task, error: BaseException, delay: float) -> None:
        """An attempt has failed, and another one follows in `delay` seconds."""

    def finished(self, task: Task) -> None:
        """A task has returned."""

    def failed(self, task: Task) -> None:
        """A task has failed for good."""


class Passes(Protocol):
    """What the nodes of a run pass on to the models that they call."""

    def callbacks_of(self, attempt: Attempt) -> Any:
        """The callbacks in the config of the attempt's node."""

    def enter(self, attempt: Attempt, context: Context) -> None:
        """Have what is called in this context inherit the config of the attempt."""

    def push(self, attempt: Attempt, message: Any) -> None:
        """Tell readers of a message that the attempt's node pushes."""


class Readable(Protocol):
    """The run of a subgraph whose events are read."""

    def end_if_left_by(self, task: asyncio.Task[Any] | None) -> None:
        """End the run if `task`, which has ended, was its reader."""


class RunScope:
    """What all tasks of one run share.

    Attributes:
        emit: Takes an attempt and the value its node wrote to the stream; None if nobody reads it.
        told: Hears of attempts; None if nobody reads anything.
        attempts: For each level of the run's namespace, the attempt of the task at that level.
        slots: Bounds the node bodies that run at once; None for no bound.
        durable: Is there a saver that keeps a suspended thread?
        step: The superstep under way; `stop` is the last one the recursion limit allows.
        managed: Keys that are computed for each task.
        models: What the models that nodes call inherit (`everstep.tasks.models`); None if there is nothing.
        control: Through it the run is asked to stop at a barrier; one for a root run and its subgraphs.
        drains: A failing task lets its siblings finish.
        verifies: A node's input is checked for changes in place.
        branch: What idempotency keys hash of the branch the run is on: its starting point, or the key of the caller;
            None while it is not known, which without a saver is until somebody asks.
        skipped: Steps that idempotency keys do not count.
        checkpoint_id: The checkpoint it started from.
        above: The run that this one is nested in.
        started_from: The checkpoint this run was loaded from.
        has_parted: The run began as a branch from there: what the tasks of that checkpoint did is not on its line.
        first_made: The first checkpoint this run made; what is younger is on its branch.
        rejected: Questions whose answers did not fit in this run; shared with its subgraphs.
        answers: Accepted answers that came with the run, by question id; those of its ancestors for a subgraph.
        nesting: What the engine hands to the runs of subgraphs.
        calls: The journalled `@task` calls of the superstep; None in a run that nothing outlives.
    """

    __slots__ = (
        "above",
        "answers",
        "attempts",
        "branch",
        "cache",
        "calls",
        "channels",
        "checkpoint_id",
        "config",
        "context",
        "control",
        "drains",
        "durable",
        "emit",
        "first_made",
        "graph",
        "has_parted",
        "loop",
        "managed",
        "models",
        "nesting",
        "rejected",
        "run_id",
        "server_info",
        "skipped",
        "slots",
        "started_from",
        "step",
        "stop",
        "store",
        "told",
        "verifies",
    )

    def __init__(self, config: RunConfig, channels: ReadsChannels, graph: str) -> None:
        self.config = config
        self.channels = channels
        self.graph = graph
        self.context: Any = None
        self.store: Any = None
        self.emit: Callable[[Attempt, Any], None] | None = None
        self.told: Told | None = None
        self.models: Passes | None = None
        self.attempts: tuple[int, ...] = ()
        self.cache: Any = None
        self.slots = asyncio.Semaphore(config.max_concurrency) if config.max_concurrency else None
        self.durable = self.drains = self.verifies = False
        self.control = RunControl()
        self.branch: str | None = None
        self.skipped = 0
        self.server_info: ServerInfo | None = None
        self.answers: Mapping[str, Answer] = {}
        self.nesting: Any = None
        self.rejected: set[str] = set()
        self.above: RunScope | None = None
        self.started_from: str | None = None
        self.first_made: str | None = None
        self.has_parted = False
        self.calls: Any = None
        self.managed: Mapping[str, type[ManagedValue]] = {}
        self.stop = 0
        self.step = 0
        self.checkpoint_id: str | None = None
        self.run_id = config.run_id
        self.loop = asyncio.get_running_loop()

    @property
    def place(self) -> str:
        """Thread and step, for messages."""
        thread = f", thread {self.config.thread_id!r}" if self.config.thread_id is not None else ""
        return f"step {self.step}{thread}"


class Attempt:
    """One attempt of a task; see `TaskContext` for what nodes reach and `WriteScope` for what writers do.

    Attributes:
        caller: The attempt whose node waits for this one; what happens here is a sign of life there too.
        drained: Why a run inside of it stopped at a barrier; None if none did.
    """

    __slots__ = (
        "_config",
        "_runtime",
        "asked",
        "called",
        "caller",
        "calls",
        "closed",
        "drained",
        "first_time",
        "flow",
        "holds_slot",
        "in_body",
        "in_thread",
        "inner",
        "last_sign",
        "lent",
        "number",
        "questions",
        "reads",
        "run",
        "task",
        "writes",
    )

    def __init__(self, run: RunScope, task: Task, number: int, first_time: float) -> None:
        self.run = run
        self.task = task
        self.number = number
        self.first_time = first_time
        self.asked = 0
        # The attempt in which this one runs: of the node that called this graph, or of the caller of a task.
        self.caller = current_task.get(None)
        self.last_sign = 0.0
        self.closed = False
        self.drained: str | None = None
        self.holds_slot = self.in_thread = self.in_body = False
        # How many of its own tasks run in the place of the body, which holds no slot meanwhile.
        self.lent = 0
        # `flow` is the asyncio task, or the thread, that the body runs in: what it does elsewhere is beside its flow;
        # `called` are its `@task` calls so far (`everstep.tasks.calls`).
        self.flow: Any = None
        self.called: Any = None
        self.questions: list[Interrupt] = []
        self.writes: list[Write] = []
        # Subgraph calls so far, to tell their namespaces apart, the asyncio tasks of those under way, and
        # those whose events the node reads.
        self.calls: dict[str, int] = {}
        self.inner: dict[asyncio.Task[Any], None] = {}
        self.reads: list[Readable] = []
        self._config: dict[str, Any] | None = None
        self._runtime: Runtime[Any] | None = None

    @property
    def node(self) -> str:
        return self.task.name

    @property
    def config(self) -> dict[str, Any]:
        if self._config is None:
            self._config = self._make_config()
        return self._config

    @property
    def runtime(self) -> Runtime[Any]:
        if self._runtime is None:
            self._runtime = self._make_runtime()
        return self._runtime

    @property
    def idempotency_key(self) -> str:
        """See `Runtime`."""
        run = self.run
        if run.branch is None:
            run.branch = new_checkpoint_id()
        place = (run.branch, run.step - run.skipped, self.task.node.identity, *self.task.stable_path)
        return xxh3_128_hexdigest("\0".join(map(str, place)).encode())

    def provide(self, name: str) -> Any:
        if name == "config":
            return self.config
        if name == "runtime":
            return self.runtime
        if name == "writer":
            return self._stream
        if name == "error":
            return self.task.failure
        return getattr(self.runtime, name)

    def read(self, channels: Sequence[str]) -> dict[str, Any]:
        found = self.run.channels.read_with(channels, self.writes)
        if self.run.managed:
            progress = Progress(self.run.step, self.run.stop)
            found.update({key: self.run.managed[key].get(progress) for key in channels if key in self.run.managed})
        return found

    def ask(self, value: Any, response_schema: Any = None) -> Any:
        """Return the answer to the task's next question, or suspend the task."""
        if self.closed:
            raise EverstepError(f"node {self.node!r} asked a question after its attempt had ended")
        if not self.run.durable:
            raise ConfigError(
                f"node {self.node!r} called interrupt(), but the graph has no saver to keep the suspended thread; "
                f"compile it with one: compile(checkpointer=InMemorySaver()) or SQLSaver.from_url(...)"
            )
        question_id = self.task.question_id(self.asked)
        self.asked += 1
        answer = self.task.answers.get(question_id) or self.run.answers.get(question_id)
        if answer is None:
            question = Interrupt(value, question_id, json_schema_of(response_schema))
            self.questions.append(question)
            raise GraphInterrupt((question,))
        if answer.question is not MISSING and not _same(answer.question, value):
            raise InterruptMismatchError(
                f"node {self.node!r} now asks {value!r} where it had asked {answer.question!r}, which was answered "
                f"with {answer.value!r} (question {question_id}); make what a node asks depend on its "
                f"state and earlier answers only"
            )
        try:
            checked = checked_answer(response_schema, answer.value)
        except ValueError:
            # Asked again when the thread goes on: an answer that does not fit answers nothing.
            self.run.rejected.add(question_id)
            raise
        self._keep_private()
        return checked

    def push(self, message: Any, key: str | None) -> None:
        """Tell readers of a message, and write it to a key, before what the node returns."""
        if self.closed:
            raise EverstepError(f"{self.task.title} pushed a message after its attempt had ended")
        if key is not None:
            self._check_pushed(key)
            self.writes.append((key, message))
            self._keep_private()
        if self.run.models is not None:
            self.run.models.push(self, message)

    def _check_pushed(self, key: str) -> None:
        if self.task.depth:
            raise EverstepError(
                f"{self.task.title} pushed a message to key {key!r}; a call that is not run again would not push it "
                f"again: push it in the node, or return it, or pass state_key=None to stream it alone"
            )
        keys = [name for name in self.run.channels.live if not name.startswith((BRANCH_PREFIX, "__"))]
        if key not in keys:
            raise InvalidUpdateError(
                f"node {self.node!r} pushed a message to key {key!r}, which is in no schema of this graph."
                f"{did_you_mean(key, keys)} state_key= names another one; with None the message is streamed alone."
            )

    def _keep_private(self) -> None:
        """What this task does, and those it runs in, is more than what its input leads to: no cache may keep it."""
        attempt: Any = self
        while isinstance(attempt, Attempt):
            if attempt.task.cache_use is not None:
                attempt.task.cache_use.is_private = True
            attempt = attempt.caller

    def sign_of_life(self) -> None:
        """Something has happened in the node: an idle timeout that takes any sign begins anew, here and above."""
        attempt: Any = self
        while isinstance(attempt, Attempt):
            policy = attempt.task.timeout
            if policy is not None and policy.refresh_on == "auto":
                attempt.last_sign = self.run.loop.time()
            attempt = attempt.caller

    def _stream(self, value: Any) -> None:
        self.sign_of_life()
        emit = self.run.emit
        if emit is not None and not self.closed:
            emit(self, value)

    def _heartbeat(self) -> None:
        attempt: Any = self
        while isinstance(attempt, Attempt):
            attempt.last_sign = self.run.loop.time()
            attempt = attempt.caller

    def _make_config(self) -> dict[str, Any]:
        config = self.run.config
        made: dict[str, Any] = {
            "configurable": {
                **config.configurable,
                "thread_id": config.thread_id,
                "checkpoint_ns": self.task.ns,
                "checkpoint_id": self.run.checkpoint_id,
            },
            "tags": [*config.tags, *self.task.node.tags],
            "metadata": {
                **config.metadata,
                **self.task.node.metadata,
                "everstep_step": self.run.step,
                "everstep_node": self.task.name,
                "everstep_triggers": self.task.triggers,
                "everstep_path": self.task.path,
                "everstep_checkpoint_ns": self.task.ns,
            },
            "recursion_limit": config.recursion_limit,
        }
        # Not the run's id and name: a model that is called with this config has its own.
        callbacks = config.callbacks if self.run.models is None else self.run.models.callbacks_of(self)
        if callbacks is not None:
            made["callbacks"] = callbacks
        if config.max_concurrency is not None:
            made["max_concurrency"] = config.max_concurrency
        return made

    def _make_runtime(self) -> Runtime[Any]:
        run, task = self.run, self.task
        return Runtime(
            context=run.context,
            store=run.store,
            stream_writer=self._stream,
            previous=run.channels.read_with((PREVIOUS,), ()).get(PREVIOUS),
            execution_info=ExecutionInfo(
                thread_id=run.config.thread_id,
                checkpoint_ns=task.ns,
                checkpoint_id=run.checkpoint_id,
                task_id=task.id,
                run_id=run.run_id,
                node_attempt=self.number,
                node_first_attempt_time=self.first_time,
            ),
            heartbeat=self._heartbeat,
            server_info=run.server_info,
            control=run.control,
            idempotency_key=self.idempotency_key,
        )


def _same(recorded: Any, asked: Any) -> bool:
    """Are these the same question? Values that cannot be compared are taken to be."""
    if recorded is MISSING:
        return True
    try:
        return bool(recorded == asked) or (recorded != recorded and asked != asked)
    except Exception:  # a user's __eq__ (numpy arrays, for one) may refuse or give no single truth
        return True
