"""The sync methods of a saver, for plain scripts, threads, and (in memory only) running event loops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everstep_savers.base import AtomicSaver
from everstep_savers.blocking import run_at_once, run_blocking
from everstep_savers.memory import InMemorySaver
from everstep_savers.sql.saver import AsyncPostgresSaver, AsyncSqliteSaver, SQLSaver
from everstep_savers.sql.script_saver import PostgresSaver, SqliteSaver
from tests.conformance.records import checkpoint, config

Saver = AtomicSaver[Any]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def closed_saver(request: pytest.FixtureRequest) -> Any:
    """A saver that no event loop has opened yet; the bridge's loop will."""
    if request.param == "memory":
        yield InMemorySaver()
        return
    saver = SQLSaver.from_url(request.getfixturevalue(f"{request.param}_url"))
    yield saver
    run_blocking(saver.aclose, "close")


def use(saver: Saver) -> None:
    """Each sync method in turn."""
    first = checkpoint({"n": 1}, {"n": 1})
    second = checkpoint({"n": 2}, {"n": 2}, after=first["id"])
    at = saver.put(config(), first, {"source": "input", "step": -1}, {"n": 1})
    head = saver.put(at, second, {"source": "loop", "step": 0}, {"n": 2})
    saver.put_writes(head, [("n", 3)], "task", "path")

    found = saver.get_tuple(config())
    assert found is not None
    assert (found.config, found.parent_config) == (head, at)
    assert found.pending_writes == [("task", "n", 3)]
    assert saver.get(at) == first
    assert [listed.config for listed in saver.list(config())] == [head, at]
    assert [listed.config for listed in saver.list(config(), before=head, limit=1)] == [at]
    assert [listed.config for listed in saver.list(None, filter={"step": 0})] == [head]
    saver.delete_thread("t-1")
    assert saver.get(config()) is None


def test_a_script_uses_a_saver_without_an_event_loop(closed_saver: Saver) -> None:
    use(closed_saver)


def test_a_script_opens_a_saver_sets_it_up_and_closes_it(empty_url: str) -> None:
    with SqliteSaver.from_conn_string(empty_url) as saver:
        saver.setup()
        use(saver)
    assert not saver._is_open
    with SQLSaver.from_url(empty_url) as again:
        use(again)
    again.close()


def test_people_who_come_from_langgraph_find_their_names() -> None:
    assert AsyncSqliteSaver is AsyncPostgresSaver is SQLSaver
    assert PostgresSaver is SqliteSaver


async def test_a_saver_that_is_open_on_a_loop_is_closed_there_by_a_thread(sqlite_url: str) -> None:
    saver = SQLSaver.from_url(sqlite_url)
    await saver.aget(config())
    await asyncio.to_thread(saver.close)
    assert not saver._is_open


async def test_a_thread_uses_a_saver_on_the_event_loop_that_has_it_open(saver: Saver) -> None:
    await asyncio.to_thread(use, saver)
    assert await saver.aget(config()) is None


def test_a_listing_that_is_left_early_holds_nothing(closed_saver: Saver) -> None:
    at = closed_saver.put(config(), checkpoint({}, {}), {}, {})
    items = closed_saver.list(config())
    next(items)
    items.close()  # type: ignore[attr-defined]
    assert closed_saver.get_tuple(at) is not None


async def test_a_saver_in_memory_is_used_where_an_event_loop_runs() -> None:
    use(InMemorySaver())


async def test_a_saver_of_a_database_names_the_async_method_where_an_event_loop_runs(sqlite_url: str) -> None:
    saver = SQLSaver.from_url(sqlite_url)
    with pytest.raises(RuntimeError) as get:
        saver.get_tuple(config())
    assert str(get.value) == "get_tuple() would block the running event loop; use the async aget_tuple() here"
    with pytest.raises(RuntimeError) as listing:
        next(saver.list(config()))
    assert str(listing.value) == "list() would block the running event loop; use the async alist() here"


def test_what_must_wait_is_not_run_at_once() -> None:
    with pytest.raises(RuntimeError, match=r"^an async call that never waits has waited$"):
        run_at_once(asyncio.sleep(0))
