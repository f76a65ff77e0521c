"""Savers of several programs on one storage, and one that is killed with -9 in the middle of its commits."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import Any

from everstep_savers.conformance.records import claim, config, new, step
from everstep_savers.conformance.storage import Storage
from everstep_savers.errors import ThreadConflict

THREADS = ["t-1", "t-2", "t-3"]


async def store(saver: Any, commit: Any) -> int:
    token: int = await saver.acommit(saver.prepare(commit))
    return token


async def test_savers_of_two_programs_share_a_database(storage: Storage) -> None:
    names = [f"t-{number:02}" for number in range(40)]
    async with storage.opened() as one, storage.opened() as other:
        outcomes = await asyncio.gather(
            *(store(saver, claim(name, new({"n": 0}))) for saver in (one, other) for name in names),
            return_exceptions=True,
        )
        granted = [outcome for outcome in outcomes if outcome == 1]
        refused = [outcome for outcome in outcomes if isinstance(outcome, ThreadConflict)]
        assert (len(granted), len(refused)) == (len(names), len(names))
        assert sorted([each.thread_id async for each in one.alist_threads()]) == names


async def test_readers_see_whole_commits_while_another_program_writes(storage: Storage) -> None:
    async with storage.opened() as writer, storage.opened() as reader:
        token = await store(writer, claim("t-1", new({"a": 0, "b": 0}, 1)))

        async def write() -> None:
            for number in range(2, 60):
                await store(writer, step(token, new({"a": number, "b": number}, number)))

        writing = asyncio.create_task(write())
        seen = set()
        while not writing.done():
            found = await reader.aget(config())
            assert found is not None
            values = found["channel_values"]
            assert values["a"] == values["b"]
            seen.add(values["a"])
        await writing
        assert len(seen) > 1


def run_and_kill(storage: Storage, acknowledged: int) -> dict[str, int]:
    """Kill a writer after so many commits; the last one it reported, by thread."""
    command = [sys.executable, "-m", "everstep_savers.conformance.writer", storage.factory, storage.argument, *THREADS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    last: dict[str, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        assert writer.stdout is not None
        for _ in range(acknowledged):
            thread_id, number = writer.stdout.readline().split()
            last[thread_id] = int(number)
        writer.send_signal(signal.SIGKILL)
        for line in writer.stdout:
            if line.endswith("\n"):
                thread_id, number = line.split()
                last[thread_id] = int(number)
    assert writer.returncode == -signal.SIGKILL
    return last


async def test_a_killed_writer_leaves_whole_commits_only(storage: Storage) -> None:
    reported: dict[str, int] = {}
    for acknowledged in (1, 20, 47, 101):
        reported |= run_and_kill(storage, acknowledged)

        async with storage.opened() as saver:
            for thread_id in THREADS:
                found = [each async for each in saver.alist(config(thread_id))]
                numbers = [each.checkpoint["channel_values"]["a"] for each in found]
                assert numbers == list(range(len(found), 0, -1))
                for each in found:
                    values = each.checkpoint["channel_values"]
                    assert values["a"] == values["b"]
                    assert each.pending_writes == [
                        ("task-0", "a", values["a"]),
                        ("task-1", "a", values["a"]),
                    ]
                thread = await saver.aget_thread(thread_id)
                assert len(found) >= reported.get(thread_id, 0)
                if found:
                    assert thread is not None
                    assert thread.head == found[0].checkpoint["id"]
                    assert (await saver.aload(config(thread_id))).newest_version == len(found)
