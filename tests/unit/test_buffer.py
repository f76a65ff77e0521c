"""The buffer between a run and its reader: order, bounds, and who wakes whom."""

from __future__ import annotations

import asyncio
from typing import Any

from everstep.stream.buffer import Event, Outlet


def event(payload: Any) -> Event:
    return (), "values", payload


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


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
