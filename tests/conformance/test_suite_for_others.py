"""`python -m everstep_savers.conformance`: other people's savers, good ones and faulty ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAVERS = '''
import contextlib, pathlib, pickle
from everstep_savers.base import BaseCheckpointSaver
from everstep_savers.memory import InMemorySaver
from everstep_savers.sql.saver import SQLSaver


class PlainSaver(BaseCheckpointSaver):
    """A saver that has what the ecosystem's savers have, and no more."""

    def __init__(self):
        super().__init__()
        self.inner = InMemorySaver()

    async def aget_tuple(self, config):
        return await self.inner.aget_tuple(config)

    async def alist(self, config, **options):
        async for each in self.inner.alist(config, **options):
            yield each

    async def aput(self, config, checkpoint, metadata, new_versions):
        return await self.inner.aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config, writes, task_id, task_path=""):
        await self.inner.aput_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id):
        await self.inner.adelete_thread(thread_id)


class Forgetful(InMemorySaver):
    """Forgets special writes."""

    async def aput_writes(self, config, writes, task_id, task_path=""):
        kept = [write for write in writes if write[0] != "__interrupt__"]
        await super().aput_writes(config, kept, task_id, task_path)


class Unfenced(InMemorySaver):
    """Lets runs write that have lost their claim."""

    async def acommit(self, prepared):
        thread = await self.aget_thread(prepared.thread_id)
        if prepared.claim is None and thread is not None:
            prepared = prepared._replace(token=thread.token)
        return await super().acommit(prepared)


def plain(folder):
    return PlainSaver()


def forgetful(folder):
    return Forgetful()


def unfenced(folder):
    return Unfenced()


async def coroutine(folder):
    return SQLSaver.from_url(f"sqlite:///{folder}/threads.db")


@contextlib.asynccontextmanager
async def manager(folder):
    async with SQLSaver.from_url(f"sqlite:///{folder}/threads.db", auto_migrate=True) as saver:
        yield saver
'''


def check(tmp_path: Path, factory: str, *arguments: str) -> tuple[int, str]:
    """Exit code and output of the suite, run on one of the savers."""
    (tmp_path / "their_savers.py").write_text(SAVERS)
    done = subprocess.run(
        [sys.executable, "-m", "everstep_savers.conformance", f"their_savers:{factory}", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    return done.returncode, done.stdout


def test_a_plain_saver_is_asked_what_plain_savers_do(tmp_path: Path) -> None:
    code, said = check(tmp_path, "plain")

    assert (code, "failed" in said) == (0, False), said
    assert "listing.py" in said
    assert "commits.py" not in said


@pytest.mark.parametrize(("factory", "options"), [("coroutine", []), ("manager", ["--shared"])], ids=str)
def test_a_saver_of_another_program_is_asked_what_it_says_it_can(
    tmp_path: Path, factory: str, options: list[str]
) -> None:
    code, said = check(tmp_path, factory, *options, "--", "-k", "whole_commits_while or comes_back or claim_makes")

    assert code == 0, said
    for part in ("reading", "commits"):
        assert f"{part}.py" in said
    assert ("sharing.py" in said) == bool(options)


@pytest.mark.parametrize(
    ("factory", "found"),
    [
        ("forgetful", "test_special_writes_of_different_kinds_stand_side_by_side"),
        ("unfenced", "test_a_run_whose_thread_was_claimed_stores_nothing_more"),
    ],
)
def test_a_faulty_saver_is_found_out(tmp_path: Path, factory: str, found: str) -> None:
    code, said = check(tmp_path, factory, "--", "-k", found, "-rf")

    assert code == 1
    assert f"::{found}" in said
