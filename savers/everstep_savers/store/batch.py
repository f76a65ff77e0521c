"""A store whose concurrent calls share batches.

Operations that are asked for in the same turn of the event loop go into one call of `abatch`. Batches do not wait
for each other, so that a slow search holds up nobody; a caller that awaits one call before the next sees its own
writes. An operation that fails fails its own call only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from everstep_savers.blocking import run_blocking
from everstep_savers.store.base import BaseStore, Op, Result, checked_ops

Outcome = Result | Exception


@dataclass(slots=True)
class _Turn:
    """What is asked for in one turn of an event loop."""

    loop: asyncio.AbstractEventLoop
    calls: list[tuple[Op, asyncio.Future[Result]]] = field(default_factory=list)


class AsyncBatchedBaseStore(BaseStore):
    """A store that implements `abatch` alone.

    Its sync methods are served by the event loop on which it was last used, if that loop runs, see `blocking`.
    """

    def __init__(self) -> None:
        self._turn: _Turn | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._home: asyncio.AbstractEventLoop | None = None

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        checked = checked_ops(ops)
        return run_blocking(lambda: self.abatch(checked), "batch", self._home_loop())

    def _run_one(self, op: Op, name: str) -> Result:
        checked_ops([op])
        return run_blocking(lambda: self._arun_one(op), name, self._home_loop())

    def _home_loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that serves the sync methods."""
        return self._home

    async def _arun_one(self, op: Op) -> Result:
        (checked,) = checked_ops([op])
        loop = self._home = asyncio.get_running_loop()
        if self._turn is None or self._turn.loop is not loop:
            self._turn = _Turn(loop)
            task = loop.create_task(self._send(self._turn))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        future: asyncio.Future[Result] = loop.create_future()
        self._turn.calls.append((checked, future))
        return await future

    async def _send(self, turn: _Turn) -> None:
        if self._turn is turn:
            self._turn = None
        try:
            calls = [(op, future) for op, future in turn.calls if not future.done()]
            outcomes = await self._outcomes([op for op, _ in calls])
            for (_, future), outcome in zip(calls, outcomes, strict=True):
                _settle(future, outcome)
        finally:
            for _, future in turn.calls:
                future.cancel()

    async def _outcomes(self, ops: Sequence[Op]) -> Sequence[Outcome]:
        if not ops:
            return []
        try:
            return await self.abatch(ops)
        except Exception as error:
            if len(ops) == 1:
                return [error]
        # One of them is at fault; it must not spoil the others.
        return [outcome for op in ops for outcome in await self._outcomes([op])]


def _settle(future: asyncio.Future[Result], outcome: Outcome) -> None:
    if future.done():
        return  # cancelled
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
