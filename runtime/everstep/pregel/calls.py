"""How `@task` calls are stored, and what of them a later run finds.

A call that has returned is stored under a task id of its own, against the checkpoint of the running superstep, and
its caller is told only then ("sync"), or once it is encoded and handed over ("async"); durability "exit" keeps it for
the end of the run. Results that come while two commits are under way are stored together. A call that has failed or
asked is stored along with the next result, or with the end of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from everstep.constants import INTERRUPT, RETURN, SCHEDULED
from everstep.pregel.journal import Journal
from everstep.tasks.calls import CallTask
from everstep.tasks.replay import CallRecord, Journalled
from everstep.tasks.task import Task
from everstep.types import MISSING
from everstep_savers.checkpoint import PendingWrite, TaskWrites
from everstep_savers.codec import Codec
from everstep_savers.errors import CodecError

# A call, and what tells it that it is stored.
_Waiting = tuple[str, asyncio.Future[None]]


class CallJournal:
    """Stores the `@task` calls of one graph's run; a `Keeper`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._waiting: list[_Waiting] = []
        self._due: list[str] = []

    @property
    def codec(self) -> Codec:
        """Of the run's saver."""
        return self._journal.queue.saver.codec

    async def keep(self, call: CallTask) -> None:
        """See `Keeper`."""
        journal = self._journal
        writes = self._writes(call, [(RETURN, call.result)])
        if journal.queue.durability == "exit":
            _ = journal.prepare([writes])
            # The caller may change the result by the time it is stored.
            frozen = self.codec.decode(*self.codec.encode(call.result))
            journal.beside[call.id] = self._writes(call, [(RETURN, frozen)])
            return
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[None] = loop.create_future()
        journal.beside[call.id] = writes
        self._due.append(call.id)
        self._waiting.append((call.id, stored))
        if len(self._waiting) == 1:
            loop.call_soon(self._hand_over)
        await stored

    def hold(self, call: CallTask) -> None:
        """See `Keeper`."""
        asked = [(INTERRUPT, list(call.questions))] if call.questions else []
        self._journal.beside[call.id] = self._writes(call, asked)
        if not asked:  # questions are stored when the run leaves, with those of its nodes
            self._due.append(call.id)

    def _writes(self, call: CallTask, writes: list[tuple[str, Any]]) -> TaskWrites:
        assert call.record is not None
        return self._journal.writes_of(call, [*writes, (SCHEDULED, call.record.stored())])

    def _hand_over(self, _: Any = None) -> None:
        """Store what has come together; once there is room, if too many commits are under way."""
        try:
            oldest = self._journal.queue.in_the_way()
        except Exception as error:  # a commit under way has failed, and this one would with it
            _tell(self._taken(), error)
            return
        if oldest is not None:
            oldest.add_done_callback(self._hand_over)
        else:
            self._store()

    def _store(self) -> None:
        queue, beside = self._journal.queue, self._journal.beside
        due = {call_id: writes for call_id in self._due if (writes := beside.pop(call_id, None)) is not None}
        self._due.clear()
        waiting = self._taken()
        prepared = self._prepare(due, waiting) if due else None
        if prepared is None:
            return  # there was nothing that can be stored, or the run has ended and has stored it
        commit = queue.soon(prepared)
        if queue.durability == "sync":
            commit.add_done_callback(lambda done: _tell(waiting, None if done.cancelled() else done.exception()))
        else:
            _tell(waiting)

    def _prepare(self, due: dict[str, TaskWrites], waiting: Sequence[_Waiting]) -> Any:
        """Encode what is due; calls whose results cannot be stored are told so, and left out."""
        try:
            return self._journal.prepare(list(due.values()))
        except CodecError as error:
            if len(due) == 1:
                _tell(waiting, error)
                return None
        fitting = [
            writes
            for call_id, writes in due.items()
            if self._prepare({call_id: writes}, [one for one in waiting if one[0] == call_id]) is not None
        ]
        return self._journal.prepare(fitting) if fitting else None

    def _taken(self) -> list[_Waiting]:
        waiting, self._waiting = self._waiting, []
        return waiting


def _tell(waiting: Sequence[_Waiting], error: BaseException | None = None) -> None:
    for _, stored in waiting:
        if stored.done():
            continue
        if error is None:
            stored.set_result(None)
        else:
            stored.set_exception(error)


def journalled_calls(pending: Iterable[PendingWrite]) -> list[Journalled]:
    """The calls among the writes that are stored against a checkpoint."""
    records: dict[str, CallRecord] = {}
    values: dict[str, Any] = {}
    asked: dict[str, Any] = {}
    for task_id, channel, value in pending:
        if channel == SCHEDULED and (record := CallRecord.restored(value)) is not None:
            records[task_id] = record
        elif channel == RETURN:
            values[task_id] = value
        elif channel == INTERRUPT:
            asked[task_id] = value
    return [
        Journalled(record, values.get(task_id, MISSING), tuple(asked.get(task_id, ())))
        for task_id, record in records.items()
    ]


def calls_of(
    callers: Iterable[Task], calls: Iterable[Journalled], limit: Callable[[Task], int] | None = None
) -> list[tuple[CallTask, Journalled]]:
    """The calls that tasks have made, and the calls that these have made.

    Args:
        limit: How many answers a task may have been given by then; later calls are left out.
    """
    by_caller: dict[str, list[Journalled]] = {}
    for call in calls:
        by_caller.setdefault(call.record.caller, []).append(call)
    found: list[tuple[CallTask, Journalled]] = []
    for root in callers:
        most = None if limit is None else limit(root)
        waiting: list[Task] = [root]
        for caller in waiting:  # grows while it is read
            made = [call for call in by_caller.get(caller.id, ()) if most is None or call.record.answers <= most]
            pairs = [(CallTask.of(caller, call.record), call) for call in made]
            found += pairs
            waiting += [task for task, _ in pairs]
    return found


def kept_calls(at: tuple[str, str], calls: Iterable[tuple[CallTask, Journalled]]) -> list[TaskWrites]:
    """The writes that keep calls at another checkpoint, given by its namespace and id."""
    return [TaskWrites(*at, task.id, _writes_of(call), task.path_text, task.name) for task, call in calls]


def _writes_of(call: Journalled) -> list[tuple[str, Any]]:
    writes: list[tuple[str, Any]] = [(SCHEDULED, call.record.stored())]
    if call.value is not MISSING:
        writes.append((RETURN, call.value))
    if call.questions:
        writes.append((INTERRUPT, list(call.questions)))
    return writes
