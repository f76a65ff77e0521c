"""The buffer between a run and its reader: order, bounds, and who wakes whom."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

from everstep.stream.buffer import DEFAULT_SIZE, Outlet
from everstep.stream.events import Event


def event(payload: Any) -> Event:
    return Event((), "values", payload)


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def read(outlet: Outlet, count: int) -> list[int]:
    """The next events' numbers."""
    found = []
    for _ in range(count):
        got = await outlet.get()
        assert got is not None
        found.append(got.data)
    return found


async def in_thread(body: Callable[[], None]) -> None:
    """Run a body in a thread of its own until it ends."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        try:
            body()
        finally:
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=run).start()
    await ended.wait()


async def test_events_come_out_in_the_order_they_were_put_in() -> None:
    outlet = Outlet(["values"])
    for number in range(3):
        outlet.put(event(number))
    assert [await outlet.get() for _ in range(3)] == [event(number) for number in range(3)]


async def test_a_waiting_reader_is_woken_by_an_event() -> None:
    outlet = Outlet(["values"])
    reader = asyncio.create_task(outlet.get())
    await turns()
    assert not reader.done()
    outlet.put(event(1))
    assert await reader == event(1)


async def test_what_is_in_the_buffer_when_it_is_closed_is_still_read() -> None:
    outlet = Outlet(["values"])
    outlet.put(event(1))
    outlet.close()
    outlet.put(event("too late"))
    assert [await outlet.get(), await outlet.get(), await outlet.get()] == [event(1), None, None]


async def test_closing_wakes_a_waiting_reader() -> None:
    outlet = Outlet(["values"])
    reader = asyncio.create_task(outlet.get())
    await turns()
    outlet.close()
    assert await reader is None


async def test_a_writer_waits_for_room_until_the_reader_has_made_some() -> None:
    outlet = Outlet(["values"], size=2)
    await outlet.room()
    outlet.put(event(1))
    await outlet.room()
    outlet.put(event(2))
    writer = asyncio.create_task(outlet.room())
    await turns()
    assert not writer.done()
    await outlet.get()
    await writer


async def test_a_writer_waits_until_all_that_is_too_much_has_been_read() -> None:
    outlet = Outlet(["values"], size=2)
    for number in range(5):
        outlet.put(event(number))
    writer = asyncio.create_task(outlet.room())
    for _ in range(3):
        await turns()
        assert not writer.done()
        await outlet.get()
    await turns()
    await outlet.get()
    await writer


async def test_closing_lets_a_waiting_writer_go() -> None:
    outlet = Outlet(["values"], size=1)
    outlet.put(event(1))
    writer = asyncio.create_task(outlet.room())
    await turns()
    outlet.close()
    await writer


async def test_events_from_a_thread_reach_a_waiting_reader_in_order() -> None:
    outlet = Outlet(["custom"])

    def write() -> None:
        for number in range(100):
            outlet.put(event(number))

    reader = asyncio.create_task(outlet.get())
    await asyncio.to_thread(write)
    events = [await reader, *[await outlet.get() for _ in range(99)]]
    assert events == [event(number) for number in range(100)]


async def test_a_cancelled_reader_takes_no_event_with_it() -> None:
    outlet = Outlet(["values"])
    reader = asyncio.create_task(outlet.get())
    await turns()
    outlet.put(event(1))
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    assert await outlet.get() == event(1)


async def test_all_waiting_writers_are_let_go_when_there_is_room() -> None:
    outlet = Outlet(["values"], size=1)
    outlet.put(event(1))
    writers = [asyncio.create_task(outlet.room()) for _ in range(3)]
    await turns()
    await outlet.get()
    await asyncio.wait_for(asyncio.gather(*writers), 1)


async def test_closing_lets_all_waiting_writers_go() -> None:
    outlet = Outlet(["values"], size=1)
    outlet.put(event(1))
    writers = [asyncio.create_task(outlet.room()) for _ in range(3)]
    await turns()
    outlet.close()
    await asyncio.wait_for(asyncio.gather(*writers), 1)


async def test_all_who_wait_for_room_go_on_once_half_of_the_events_are_read() -> None:
    outlet = Outlet(["values"], size=4)
    for number in range(4):
        outlet.put(event(number))
    waiting = [asyncio.create_task(outlet.room()) for _ in range(3)]
    await turns()
    await read(outlet, 1)
    await turns()
    assert not any(task.done() for task in waiting)
    await read(outlet, 1)
    await turns()
    assert all(task.done() for task in waiting)


async def test_one_who_gives_up_waiting_for_room_does_not_hold_up_the_others() -> None:
    outlet = Outlet(["values"], size=1)
    outlet.put(event(1))
    first, second = (asyncio.create_task(outlet.room()) for _ in range(2))
    await turns()
    first.cancel()
    await read(outlet, 1)
    await asyncio.wait_for(second, 5)
    assert first.cancelled()


async def test_a_thread_that_waits_for_room_never_goes_beyond_the_size() -> None:
    outlet = Outlet(["values"])
    total, most, written = 100_000, 0, 0

    def write() -> None:
        nonlocal written
        for number in range(total):
            outlet.wait_for_room()
            outlet.put(event(number))
            written += 1
        outlet.close()

    writer = asyncio.create_task(in_thread(write))
    expected = 0
    while (got := await outlet.get()) is not None:
        assert got.data == expected
        expected += 1
        most = max(most, written - expected)
    await writer
    assert expected == total
    # The writer may have put one in that it has not counted, and counted none that is not in.
    assert most <= DEFAULT_SIZE


async def test_several_threads_that_wait_lose_no_event() -> None:
    outlet = Outlet(["values"], size=2)

    def write(first: int) -> Callable[[], None]:
        def run() -> None:
            for number in range(first, first + 500):
                outlet.wait_for_room()
                outlet.put(event(number))

        return run

    writers = [asyncio.create_task(in_thread(write(first))) for first in (0, 1000, 2000)]
    found = await read(outlet, 1500)
    await asyncio.gather(*writers)
    for first in (0, 1000, 2000):
        assert [number for number in found if first <= number < first + 500] == list(range(first, first + 500))


async def test_closing_lets_a_waiting_thread_go() -> None:
    outlet, entered = Outlet(["values"], size=1), asyncio.Event()
    loop = asyncio.get_running_loop()
    outlet.put(event(1))

    def write() -> None:
        loop.call_soon_threadsafe(entered.set)
        outlet.wait_for_room()

    writer = asyncio.create_task(in_thread(write))
    await entered.wait()
    outlet.close()
    await asyncio.wait_for(writer, 5)


async def test_the_loop_itself_is_never_blocked() -> None:
    outlet = Outlet(["values"], size=1)
    outlet.put(event(1))
    outlet.wait_for_room()
    outlet.put(event(2))
    assert await read(outlet, 2) == [1, 2]


async def test_a_run_on_another_loop_waits_for_room_too() -> None:
    outlet = Outlet(["values"], size=1)
    outlet.put(event(1))
    order: list[str] = []
    entered, loop = asyncio.Event(), asyncio.get_running_loop()

    async def wait() -> None:
        loop.call_soon_threadsafe(entered.set)
        await outlet.room()
        order.append("room")

    writer = asyncio.create_task(in_thread(lambda: asyncio.run(wait())))
    await entered.wait()
    await turns(50)
    order.append("read")
    await read(outlet, 1)
    await writer
    assert order == ["read", "room"]


def test_a_thread_that_waits_does_not_keep_a_program_from_ending() -> None:
    program = textwrap.dedent(
        """
        import asyncio, threading
        from everstep.stream.buffer import Outlet
        from everstep.stream.events import Event

        async def main():
            outlet = Outlet(["values"], size=1)
            outlet.put(Event((), "custom", 1))
            return outlet

        outlet = asyncio.run(main())
        threading.Thread(target=outlet.wait_for_room).start()
        print("left")
        """
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == "left\n"
