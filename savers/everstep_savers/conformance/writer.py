"""A program that commits as fast as it can on a few threads, and says so, until it is killed."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from everstep_savers.checkpoint import TaskWrites
from everstep_savers.conformance.records import claim, config, new, step
from everstep_savers.conformance.storage import Storage


async def commit_for_ever(saver: Any, thread_id: str) -> None:
    """Each commit stores two equal values, a checkpoint, and two writes; printed once it is stored."""
    loaded = await saver.aload(config(thread_id))
    token = await saver.acommit(saver.prepare(claim(thread_id, seen=loaded.thread)))
    number = loaded.newest_version
    parent = loaded.thread.head if loaded.thread else None
    while True:
        number += 1
        made = new({"a": number, "b": number}, number, parent=parent)
        parent = made.checkpoint["id"]
        writes = [TaskWrites("", parent, f"task-{each}", [("a", number)]) for each in range(2)]
        await saver.acommit(saver.prepare(step(token, made, thread_id=thread_id, writes=writes)))
        print(thread_id, number, flush=True)


async def main(storage: Storage, thread_ids: list[str]) -> None:
    """Commit on several threads at once."""
    async with storage.opened() as saver, asyncio.TaskGroup() as group:
        for thread_id in thread_ids:
            group.create_task(commit_for_ever(saver, thread_id))


if __name__ == "__main__":
    asyncio.run(main(Storage(*sys.argv[1:3]), sys.argv[3:]))
