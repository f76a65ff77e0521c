"""What a `@task` call gives its caller at once: something to wait for.

On the run's loop it is an `asyncio.Future`, in a worker thread a `concurrent.futures.Future`; both can be awaited.
Each remembers whether anybody has asked for its result, so that no failure passes unseen. Who waits does not
run the call: giving up waiting calls the call off.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Told(ABC, Generic[T]):
    """What both kinds of promise know of their call, and how its end is told; the future itself is theirs.

    Attributes:
        is_seen: Somebody has waited for it, or looked at it.
        work: The asyncio task that runs the call; None before, or where no such task is needed.
        context: In which the call runs.
        is_suspending: Tells whether the caller is being suspended: then its calls go on, for they may ask too.
        error: What the call failed with, or that it asks.
    """

    def __init__(self) -> None:
        self.is_seen = False
        self.work: asyncio.Task[None] | None = None
        self.context = contextvars.copy_context()
        self.is_suspending: Callable[[], bool] = bool
        self.error: BaseException | None = None

    @abstractmethod
    def begin(self, start: Callable[[], None]) -> None:
        """Start the work on the run's loop."""

    def settle(self, value: T) -> None:
        """Tell the result."""
        if not self.done():
            self.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Tell what the call failed with, or that it asks."""
        self.error = error
        if not self.done():
            self.set_exception(error)

    def call_off(self) -> None:
        """The work has ended; without a result, nobody has to wait any longer."""
        if not self.done():
            self._give_up()

    @abstractmethod
    def done(self) -> bool:
        """The future's own."""

    @abstractmethod
    def set_result(self, result: T, /) -> None:
        """The future's own."""

    @abstractmethod
    def set_exception(self, exception: BaseException, /) -> None:
        """The future's own."""

    @abstractmethod
    def _give_up(self) -> None:
        """Cancel the future alone."""


class Promise(asyncio.Future[T], _Told[T]):
    """The result of a call, for callers on the run's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        _Told.__init__(self)

    def begin(self, start: Callable[[], None]) -> None:
        """Start the work, now."""
        start()

    def set_exception(self, exception: type[BaseException] | BaseException, /) -> None:
        """See `asyncio.Future`."""
        super().set_exception(_settable(exception))
        super().exception()  # whether it was seen is told by `is_seen`, not by a line in the log

    def _give_up(self) -> None:
        super().cancel()

    def cancel(self, msg: Any = None) -> bool:
        """Call the call off; those who wait are told when it has ended."""
        if self.done() or self.work is None or self.is_suspending():
            return super().cancel(msg)
        return self.work.cancel(msg) or super().cancel(msg)

    def __await__(self) -> Generator[Any, None, T]:
        self.is_seen = True
        return super().__await__()

    __iter__ = __await__

    def add_done_callback(self, *args: Any, **kwargs: Any) -> None:
        """See `asyncio.Future`."""
        self.is_seen = True
        super().add_done_callback(*args, **kwargs)

    def result(self) -> T:
        """See `asyncio.Future`."""
        self.is_seen = True
        return super().result()

    def exception(self) -> BaseException | None:
        """See `asyncio.Future`."""
        self.is_seen = True
        return super().exception()


class ThreadPromise(concurrent.futures.Future[T], _Told[T]):
    """The result of a call, for callers in a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        _Told.__init__(self)
        self._loop = loop

    def begin(self, start: Callable[[], None]) -> None:
        """Start the work, on the run's loop."""
        self._loop.call_soon_threadsafe(start)

    def _give_up(self) -> None:
        super().cancel()

    def cancel(self) -> bool:
        """Call the call off; those who wait are told when it has ended."""
        if self.done():
            return super().cancel()
        self._loop.call_soon_threadsafe(self._cancel_work)
        return True

    def _cancel_work(self) -> None:
        if self.work is not None and not self.is_suspending():
            self.work.cancel()

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self).__await__()

    def result(self, timeout: float | None = None) -> T:
        """See `concurrent.futures.Future`."""
        self.is_seen = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See `concurrent.futures.Future`."""
        self.is_seen = True
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[Any]], object]) -> None:
        """See `concurrent.futures.Future`."""
        self.is_seen = True
        super().add_done_callback(fn)


AnyPromise = Promise[Any] | ThreadPromise[Any]


def promise_here(loop: asyncio.AbstractEventLoop) -> AnyPromise:
    """What suits the caller: on the run's loop, or in a thread."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return ThreadPromise(loop)
    return Promise(loop) if running is loop else ThreadPromise(loop)


def _settable(error: type[BaseException] | BaseException) -> type[BaseException] | BaseException:
    """An asyncio future does not take a StopIteration."""
    if not isinstance(error, StopIteration):
        return error
    stopped = RuntimeError("a task raised StopIteration")
    stopped.__cause__ = error
    return stopped
