"""A connection to Postgres that drops costs one retry, and what was stored stays stored once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from everstep_savers.checkpoint import Commit, TaskWrites
from everstep_savers.errors import DatabaseUnavailable, ThreadConflict
from everstep_savers.sql.database import parse_url
from everstep_savers.sql.saver import SQLSaver
from tests.conformance.proxy import Proxy
from tests.conformance.records import claim, config, named, new, put_chain, step


async def store(saver: SQLSaver, commit: Commit) -> int:
    return await saver.acommit(saver.prepare(commit))


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(postgres_url).running() as running:
        yield running


@pytest.fixture
async def saver(proxy: Proxy) -> AsyncIterator[SQLSaver]:
    """A saver behind a proxy, which has prepared the statements of a small commit."""
    async with SQLSaver.from_url(proxy.url) as opened:
        first = new({"n": 0})
        token = await store(opened, claim("warm", first))
        writes = [TaskWrites("", first.checkpoint["id"], "task-1", [("n", 1)])]
        await store(opened, step(token, new({"n": 1}, 2), thread_id="warm", writes=writes))
        await store(opened, step(token, new({"n": 2}, 3), thread_id="warm"))
        seen = await opened.aget_thread("warm")
        await store(opened, claim("warm", new({"n": 3}, 4), seen=seen))
        await opened.aload(config("warm"))
        yield opened


async def terminate_backends(url: str) -> None:
    connection = await asyncpg.connect(url)
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    await connection.fetch(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}")
    await connection.close()


async def test_a_commit_survives_the_end_of_its_idle_connection(saver: SQLSaver, postgres_url: str) -> None:
    token = await store(saver, claim("t-1", new({"n": 0})))
    await terminate_backends(postgres_url)
    second = new({"n": 1}, 2)

    assert await store(saver, step(token, second)) == token

    assert named(await saver.aget_tuple(config())) == second.checkpoint["id"]


async def test_a_read_survives_the_end_of_its_idle_connection(saver: SQLSaver, postgres_url: str) -> None:
    made = await put_chain(saver, 2)
    await terminate_backends(postgres_url)

    assert named(await saver.aget_tuple(config())) == made[-1]


@pytest.mark.parametrize("fault", ["drops_next_answer", "drops_next_request"])
async def test_a_step_whose_fate_is_unknown_is_stored_once(saver: SQLSaver, proxy: Proxy, fault: str) -> None:
    first = new({"n": 0})
    token = await store(saver, claim("t-1", first))
    second = new({"n": 1}, 2)
    writes = [TaskWrites("", first.checkpoint["id"], "task-1", [("n", 1)])]
    setattr(proxy, fault, True)

    assert await store(saver, step(token, second, writes=writes)) == token

    assert not getattr(proxy, fault)
    found = [each async for each in saver.alist(config())]
    assert [named(each) for each in found] == [second.checkpoint["id"], first.checkpoint["id"]]
    assert found[1].pending_writes == [("task-1", "n", 1)]


@pytest.mark.parametrize("fault", ["drops_next_answer", "drops_next_request"])
@pytest.mark.parametrize("is_new", [True, False], ids=["new thread", "seen thread"])
async def test_a_claim_whose_fate_is_unknown_is_granted_once(
    saver: SQLSaver, proxy: Proxy, fault: str, is_new: bool
) -> None:
    seen = None
    if not is_new:
        await put_chain(saver, 1)
        seen = await saver.aget_thread("t-1")
    setattr(proxy, fault, True)

    token = await store(saver, claim("t-1", new({"x": 5}, 5), seen=seen))

    assert not getattr(proxy, fault)
    thread = await saver.aget_thread("t-1")
    assert thread is not None
    assert thread.token == token == 1
    await store(saver, step(token, new({"x": 6}, 6)))


async def test_a_claim_that_another_run_was_granted_meanwhile_is_refused(saver: SQLSaver, proxy: Proxy) -> None:
    await put_chain(saver, 1)
    seen = await saver.aget_thread("t-1")
    await store(saver, claim("t-1", seen=seen, run_id="the same"))
    proxy.drops_next_request = True

    with pytest.raises(ThreadConflict):
        await store(saver, claim("t-1", new({"x": 5}, 5), seen=seen, run_id="the same"))


async def test_a_group_whose_fate_is_unknown_is_stored_once(saver: SQLSaver, proxy: Proxy) -> None:
    names = [f"t-{number}" for number in range(10)]
    for round_ in range(2):  # the second group's statement is prepared
        commits = [store(saver, claim(f"{name}-{round_}", new({"n": 0}))) for name in names]
        proxy.drops_next_answer = round_ == 1
        assert await asyncio.gather(*commits) == [1] * len(names)

    assert len([each async for each in saver.alist_threads()]) == 2 * len(names) + 1


async def test_all_connections_dropped_at_once_are_replaced(saver: SQLSaver, proxy: Proxy) -> None:
    made = await put_chain(saver, 1)
    await asyncio.gather(*(saver.aget(config()) for _ in range(5)))
    proxy.drop_all()

    found = await asyncio.gather(*(saver.aget_tuple(config()) for _ in range(5)))

    assert {named(each) for each in found} == {made[0]}


async def test_a_pool_of_the_host_whose_connections_all_dropped_is_replaced(proxy: Proxy) -> None:
    engine = create_async_engine(parse_url(proxy.url), pool_size=3)
    saver = SQLSaver(engine)
    made = await put_chain(saver, 1)
    await asyncio.gather(*(saver.aget(config()) for _ in range(3)))
    proxy.drop_all()

    # The one kept at hand is tried first; those that wait in the pool have dropped as well.
    assert named(await saver.aget_tuple(config())) == made[0]

    await saver.aclose()
    await engine.dispose()


async def test_a_host_with_a_pool_of_one_connection_can_read_and_write(postgres_url: str) -> None:
    engine = create_async_engine(parse_url(postgres_url), pool_size=1, max_overflow=0, pool_timeout=5)
    saver = SQLSaver(engine)

    await asyncio.gather(*(put_chain(saver, 3, thread_id=f"t-{number}") for number in range(5)))
    found = await asyncio.gather(*(saver.aget(config(f"t-{number}")) for number in range(5)))

    assert [each["channel_values"] for each in found if each] == [{"n": 2}] * 5
    await saver.aclose()
    await engine.dispose()


async def test_giving_up_a_commit_leaves_the_saver_usable(saver: SQLSaver, postgres_url: str) -> None:
    token = await store(saver, claim("t-1", new({"n": 0})))
    holder = await asyncpg.connect(postgres_url)
    second = new({"n": 1}, 2)
    async with holder.transaction():
        await holder.execute("SELECT * FROM threads WHERE thread_id = 't-1' FOR UPDATE")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await store(saver, step(token, second))
    await holder.close()

    assert await store(saver, step(token, second)) == token

    assert named(await saver.aget_tuple(config())) == second.checkpoint["id"]


async def test_a_commit_that_waits_for_another_program_holds_back_no_reader(saver: SQLSaver, postgres_url: str) -> None:
    token = await store(saver, claim("t-1", new({"n": 0})))
    holder = await asyncpg.connect(postgres_url)
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute("SELECT * FROM threads WHERE thread_id = 't-1' FOR UPDATE")
    waiting = asyncio.create_task(store(saver, step(token, new({"n": 1}, 2))))
    await asyncio.sleep(0)

    async with asyncio.timeout(5):
        found = await saver.aget(config())

    assert found is not None
    assert found["channel_values"] == {"n": 0}
    assert not waiting.done()
    await transaction.rollback()
    assert await waiting == token
    await holder.close()


@pytest.mark.parametrize("fault", ["drops_next_answer", "drops_next_request"])
async def test_deleting_and_pruning_survive_a_dropped_connection(saver: SQLSaver, proxy: Proxy, fault: str) -> None:
    made = await put_chain(saver, 3)
    await put_chain(saver, 3, thread_id="t-2")
    setattr(proxy, fault, True)
    await saver.aprune(["t-1"])
    assert not getattr(proxy, fault)
    setattr(proxy, fault, True)

    await saver.adelete_thread("t-2")

    assert not getattr(proxy, fault)
    assert [named(each) async for each in saver.alist(config())] == made[-1:]
    assert await saver.aget_thread("t-2") is None


async def test_removing_runs_survives_the_end_of_idle_connections(saver: SQLSaver, postgres_url: str) -> None:
    token = await store(saver, claim("t-1", new({"n": 0}, metadata={"source": "loop", "run_id": "run-1"})))
    await terminate_backends(postgres_url)

    await saver.adelete_for_runs(["run-1"])

    assert token == 1
    assert await saver.aget_thread("t-1") is None


async def test_a_copy_whose_fate_is_unknown_is_reported(
    saver: SQLSaver, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be repeated: the copy that is there may be another one's."""
    await put_chain(saver, 1)
    await saver.acopy_thread("t-1", "warm-copy")
    database: Any = saver._database
    write = database.write

    async def write_and_lose(steps: Any, **how: Any) -> bool:
        proxy.drops_next_answer = True
        return bool(await write(steps, **how))

    monkeypatch.setattr(database, "write", write_and_lose)

    with pytest.raises(DatabaseUnavailable, match="cannot use database"):
        await saver.acopy_thread("t-1", "t-2")

    proxy.drops_next_answer = False
    assert await saver.aget_thread("t-1") is not None


async def test_a_server_that_went_away_is_reported_without_the_password(proxy: Proxy) -> None:
    url = parse_url(proxy.url).set(username="postgres", password="s3cret")
    saver = SQLSaver.from_url(url.render_as_string(hide_password=False))
    token = await store(saver, claim())
    assert proxy._server is not None
    proxy._server.close()
    proxy.drop_all()

    async def reported(work: Any) -> str:
        with pytest.raises(DatabaseUnavailable) as caught:
            await work
        return str(caught.value)

    shown = f"cannot use database postgresql://postgres:***@127.0.0.1:{url.port}/{url.database}: "
    assert (await reported(store(saver, step(token, new({"n": 1}))))).startswith(shown)
    assert (await reported(saver.aget_tuple(config()))).startswith(shown)
    assert (await reported(saver.adelete_thread("t-1"))).startswith(shown)
    await saver.aclose()
