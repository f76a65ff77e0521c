"""A program killed with -9 in the middle of its commits leaves whole commits, and all it was told are stored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from everstep_savers.sql.saver import SQLSaver
from tests.conformance.records import config

THREADS = ["t-1", "t-2", "t-3"]


def run_and_kill(url: str, acknowledged: int) -> dict[str, int]:
    """Kill a writer after so many commits; the last one it reported, by thread."""
    command = [sys.executable, "-m", "tests.conformance.killed_writer", url, *THREADS]
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


async def test_a_killed_writer_leaves_whole_commits_only(saver_url: str) -> None:
    reported: dict[str, int] = {}
    for acknowledged in (1, 20, 47, 101):
        reported |= run_and_kill(saver_url, acknowledged)

        async with SQLSaver.from_url(saver_url) as saver:
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
