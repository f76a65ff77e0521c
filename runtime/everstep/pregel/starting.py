"""Starting points: what stays the same of a branch when its steps are taken again after a crash.

A thread's row keeps the id of the input, fork or update that its head's branch starts from; it is written with the
claim, so that it is there in every durability mode. Idempotency keys hash it, with the number of the step. An update
at the head that keeps questions open keeps the starting point too and moves the count of steps on: the waiting tasks
are the same tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

from everstep_savers.base import AtomicSaver
from everstep_savers.checkpoint import Loaded
from everstep_savers.listings import closing

# Sources of the checkpoints at which a branch starts.
STARTS = ("input", "fork", "update")


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """Where a branch starts.

    Attributes:
        id: Of its first checkpoint, which may not be stored yet.
        skipped: Steps that do not count: updates that kept what was waiting.
    """

    id: str
    skipped: int = 0

    @classmethod
    def of(cls, text: str) -> StartingPoint:
        """Read what `text` gave."""
        base, _, skipped = text.partition("+")
        return cls(base, int(skipped or 0))

    @property
    def text(self) -> str:
        """As it is stored."""
        return f"{self.id}+{self.skipped}" if self.skipped else self.id

    def after_updates(self, number: int) -> StartingPoint:
        """The same, after that many updates which kept what was waiting."""
        return StartingPoint(self.id, self.skipped + number)


async def starting_point_of(saver: AtomicSaver[object], loaded: Loaded, thread_id: str) -> StartingPoint:
    """The starting point of a thread that is continued.

    Threads of savers that keep no rows are asked for their history: the newest start is the head's.
    """
    if loaded.thread is not None and loaded.thread.starting_point is not None:
        return StartingPoint.of(loaded.thread.starting_point)
    first = ""
    async with closing(saver.alist({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}})) as listing:
        async for saved in listing:
            first = saved.checkpoint["id"]
            if saved.metadata.get("source") in STARTS:
                break
    return StartingPoint(first)
