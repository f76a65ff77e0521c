"""A task: one planned execution of a node in one superstep.

Ids are hashes of where and why the task was planned, so that every process that plans from the same
checkpoint gives the same ids. A task is filled in by the runner and read at the barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from xxhash import xxh3_128, xxh3_128_hexdigest

from everstep.constants import NS_END, NS_SEP
from everstep.errors import NodeError
from everstep.policies import TimeoutPolicy
from everstep.tasks.node import Node, Write
from everstep.types import MISSING, Command, Interrupt
from everstep_savers.codec import default_codec

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """An accepted answer, bound to the question it was given to.

    Attributes:
        id: The question's.
        question: What was asked, to find out when the code asks something else at this place; `MISSING` if nobody
            knows any more.
    """

    id: str
    value: Any
    question: Any


default_codec.register(Answer, name="everstep:Answer")


class CacheUse:
    """What a cache has to do with a task.

    Attributes:
        value: What was kept, if `is_hit`; else what the body has returned.
        is_private: The result rests on an answer to a question, and is not kept.
    """

    __slots__ = ("is_hit", "is_private", "value")

    def __init__(self) -> None:
        self.value: Any = MISSING
        self.is_hit = self.is_private = False

    def take(self, value: Any) -> None:
        """Take what was kept in place of what the body would return."""
        self.value, self.is_hit = value, True


class TaskIds:
    """Makes the task ids of one superstep.

    An id is the XXH3-128 hash of checkpoint id, namespace, node, kind and path, in 32 hex digits. The step is
    not part of it: the checkpoint id tells it, and a fork, which is one step further, keeps its tasks' ids.
    """

    __slots__ = ("_seed", "checkpoint_ns")

    def __init__(self, checkpoint_id: str, checkpoint_ns: str) -> None:
        self.checkpoint_ns = checkpoint_ns
        self._seed = xxh3_128(f"{checkpoint_id}\0{checkpoint_ns}\0".encode())

    def id_of(self, node: str, path: Path) -> str:
        """The id of the task of this node at this path."""
        digest = self._seed.copy()
        digest.update("\0".join((node, *map(str, path))).encode())
        return digest.hexdigest()


class Task:
    """One planned execution.

    Attributes:
        path: Its place in the step's order: kind, then node name or number of the `Send`.
        triggers: Channels that its run marks as seen.
        writes: Its result; meaningful once `finished`.
        finished: The task has returned; in this run or, by stored writes, in an earlier one.
        answers: Accepted answers by question id.
        suspended: The task waits: for answers to its questions, or at a breakpoint of its subgraph.
        questions: Open questions.
        commands: For the graph that contains this one.
        above: For a `@task` call, the numbers of the attempts that it belongs to, the outermost first.
        is_repeated: A `@task` call that an earlier attempt of its caller may have begun.
        error: What the last attempt failed with.
        handler: The task that handles the failure; the failed task counts as finished then.
        source: The failed task that this one handles; None for all but handlers.
        stored: The task's writes are already in the storage.
        attempt: Number of the attempt under way, or of the last one, from 1.
        cache_use: Set while the task runs, if its node has a cache policy and the graph a cache.
    """

    __slots__ = (
        "_id",
        "answers",
        "attempt",
        "cache_use",
        "commands",
        "error",
        "finished",
        "handler",
        "ids",
        "input",
        "name",
        "node",
        "path",
        "questions",
        "source",
        "stored",
        "suspended",
        "timeout",
        "triggers",
        "writes",
    )

    # Only calls have others.
    above: tuple[int, ...] = ()
    is_repeated: bool = False

    def __init__(self, ids: TaskIds, node: Node, path: Path, triggers: tuple[str, ...], value: Any) -> None:
        self.ids = ids
        self._id: str | None = None
        self.name = node.name
        self.node = node
        self.path = path
        self.triggers = triggers
        self.input = value
        self.timeout: TimeoutPolicy | None = node.timeout
        self.writes: list[Write] = []
        self.finished = False
        self.stored = False
        self.attempt = 1
        self.suspended = False
        self.commands: tuple[Command[Any], ...] = ()
        self.answers: dict[str, Answer] = {}
        self.questions: list[Interrupt] = []
        self.error: BaseException | None = None
        self.cache_use: CacheUse | None = None
        self.handler: Task | None = None
        self.source: Task | None = None

    @property
    def failure(self) -> NodeError | None:
        """What an error handler is told."""
        source = self.source
        return None if source is None or source.error is None else NodeError(source.name, source.error)

    @property
    def stable_path(self) -> Path:
        """The path with the first name that a renamed node had."""
        if self.source is not None:
            return (*self.source.stable_path, self.path[-1])
        return (self.path[0], self.node.identity) if self.path[1] == self.name else self.path

    @property
    def id(self) -> str:
        """The task's id; hashed when first asked for, which a run without saver and listeners never does."""
        if self._id is None:
            self._id = self.ids.id_of(self.node.identity, self.stable_path)
        return self._id

    @property
    def cached(self) -> bool:
        """Does its result come from the cache? Then the node did not run."""
        return self.cache_use is not None and self.cache_use.is_hit

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What a cache key is made of."""
        return (self.input,), {}

    @property
    def depth(self) -> int:
        """0 for a node's task, one more for a `@task` call than for the task that makes it."""
        return len(self.above)

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"node {self.name!r}"

    @property
    def ns(self) -> str:
        """The checkpoint namespace of this task, that of a subgraph it may run."""
        own = f"{self.node.identity}{NS_END}{self.id}"
        parent = self.ids.checkpoint_ns
        return f"{parent}{NS_SEP}{own}" if parent else own

    @property
    def path_text(self) -> str:
        """The path as it is stored."""
        return "~" + ", ".join(map(str, self.path))

    def question_id(self, number: int) -> str:
        """The id of the task's question at this position, counted from 0."""
        text = self.ns if number == 0 else f"{self.ns}#{number}"
        return xxh3_128_hexdigest(text.encode())


def path_order(task: Task) -> tuple[Any, ...]:
    """Sort key that makes a barrier independent of the order in which tasks finished."""
    return task.path
