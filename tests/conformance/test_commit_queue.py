"""The queue behind group commit: what shares a group, in which order, and what giving up does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from everstep_savers.checkpoint import Commit
from everstep_savers.codec import default_codec
from everstep_savers.encoding import encode_commit
from everstep_savers.rows import EncodedCommit
from everstep_savers.sql.group import GROUP_SIZE, CommitQueue, Outcome


def commit(thread_id: str, token: int = 0) -> EncodedCommit:
    return encode_commit(default_codec, Commit(thread_id, token=token))


class Store:
    """Notes what it is asked to store, and stores when it is let."""

    def __init__(self) -> None:
        self.groups: list[list[tuple[str, int]]] = []
        self.tasks: list[asyncio.Task[None] | None] = []
        self.gate = asyncio.Event()
        self.fails = False

    async def __call__(self, commits: Sequence[EncodedCommit]) -> Sequence[Outcome]:
        self.groups.append([(each.thread_id, each.token) for each in commits])
        self.tasks.append(asyncio.current_task())
        await self.gate.wait()
        if self.fails:
            raise OSError("no disk")
        return [KeyError(each.thread_id) if each.thread_id == "bad" else each.token for each in commits]


async def started(queue: CommitQueue, *commits: EncodedCommit) -> list[asyncio.Task[int]]:
    """Ask for commits one after the other, without waiting for any."""
    tasks = []
    for each in commits:
        tasks.append(asyncio.create_task(queue.submit(each)))
        await asyncio.sleep(0)
    return tasks


async def test_a_lone_commit_is_stored_by_whoever_asks() -> None:
    store = Store()
    store.gate.set()

    assert await CommitQueue(store).submit(commit("t", 7)) == 7

    assert store.groups == [[("t", 7)]]
    assert store.tasks == [asyncio.current_task()]


async def test_commits_that_wait_share_a_group_with_one_of_each_thread() -> None:
    store = Store()
    queue = CommitQueue(store)
    tasks = await started(
        queue, commit("a", 1), commit("b", 1), commit("a", 2), commit("a", 3), commit("c", 1), commit("b", 2)
    )

    store.gate.set()

    assert await asyncio.gather(*tasks) == [1, 1, 2, 3, 1, 2]
    assert store.groups == [[("a", 1)], [("b", 1), ("a", 2), ("c", 1)], [("a", 3), ("b", 2)]]


async def test_a_group_has_a_largest_size() -> None:
    store = Store()
    queue = CommitQueue(store)
    tasks = await started(queue, *(commit(f"t-{number}") for number in range(GROUP_SIZE + 11)))

    store.gate.set()
    await asyncio.gather(*tasks)

    assert [len(group) for group in store.groups] == [1, GROUP_SIZE, 10]


async def test_a_refused_commit_is_refused_to_its_own_waiter_only() -> None:
    store = Store()
    queue = CommitQueue(store)
    tasks = await started(queue, commit("a", 1), commit("b", 2), commit("bad"), commit("c", 3))

    store.gate.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)

    assert [repr(outcome) for outcome in outcomes] == ["1", "2", "KeyError('bad')", "3"]


async def test_a_failing_store_fails_all_of_its_group_and_no_later_one() -> None:
    store = Store()
    store.fails = True
    queue = CommitQueue(store)
    tasks = await started(queue, commit("a"), commit("b"), commit("c"))

    store.gate.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    store.fails = False

    assert [repr(outcome) for outcome in outcomes] == ["OSError('no disk')"] * 3
    assert await queue.submit(commit("d", 4)) == 4


async def test_a_commit_given_up_while_it_waits_is_never_begun() -> None:
    store = Store()
    queue = CommitQueue(store)
    first, second, third = await started(queue, commit("a", 1), commit("b", 2), commit("c", 3))

    second.cancel()
    await asyncio.wait([second])
    store.gate.set()

    assert [await first, await third] == [1, 3]
    assert store.groups == [[("a", 1)], [("c", 3)]]


async def test_giving_up_a_commit_of_a_group_does_not_stop_the_group() -> None:
    store = Store()
    store.gate.set()
    queue = CommitQueue(store)
    first, second, third = await started(queue, commit("a", 1), commit("b", 2), commit("c", 3))
    assert await first == 1

    store = Store()
    queue = CommitQueue(store)
    first, second, third = await started(queue, commit("a", 1), commit("b", 2), commit("c", 3))
    first.cancel()  # it stores alone, and the others are handed over
    await asyncio.wait([first])
    await asyncio.sleep(0)
    assert store.groups == [[("a", 1)], [("b", 2), ("c", 3)]]
    second.cancel()
    await asyncio.wait([second])
    store.gate.set()

    assert await third == 3
    assert await queue.submit(commit("d", 4)) == 4


async def test_closing_waits_for_what_is_under_way() -> None:
    store = Store()
    queue = CommitQueue(store)
    tasks = await started(queue, commit("a", 1), commit("b", 2))
    closing = asyncio.create_task(queue.close())
    await asyncio.sleep(0)
    assert not closing.done()

    store.gate.set()
    await closing

    assert [task.result() for task in tasks if task.done()] == [1, 2]


async def test_nothing_is_left_running() -> None:
    store = Store()
    queue = CommitQueue(store)
    tasks = await started(queue, commit("a"), commit("b"))
    store.gate.set()
    await asyncio.gather(*tasks)

    await queue.close()

    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("count", [1, 2, 30])
async def test_each_commit_is_stored_exactly_once(count: int) -> None:
    store = Store()
    queue = CommitQueue(store)
    tasks = await started(queue, *(commit(f"t-{number % 7}", number) for number in range(count)))

    store.gate.set()

    assert await asyncio.gather(*tasks) == list(range(count))
    assert sorted(token for group in store.groups for _, token in group) == list(range(count))
