"""``python -m everstep_savers.conformance module:factory``: the suite, run on somebody's saver.

Everything after ``--`` goes to pytest. The exit code is pytest's.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from everstep_savers.base import AtomicSaver, MaintainedSaver
from everstep_savers.conformance.storage import Storage

# What a saver is asked, by what it is.
BASE = ("reading", "listing")
ATOMIC = ("commits", "results", "refusals", "groups")
MAINTAINED = ("maintenance", "pruning")
SHARED = ("sharing",)


class Fixtures:
    """What the tests ask for, as a plugin of pytest."""

    def __init__(self, factory: str) -> None:
        self._factory = factory

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        """An empty storage."""
        return Storage(self._factory, str(tmp_path))

    @pytest.fixture
    async def saver(self, storage: Storage) -> AsyncIterator[Any]:
        """An open saver on it."""
        async with storage.opened() as opened:
            yield opened


def main(arguments: Sequence[str]) -> int:
    """Find out what the saver is, and ask it what it has to answer."""
    parser = argparse.ArgumentParser(prog="python -m everstep_savers.conformance", description=__doc__)
    parser.add_argument("factory", help="module:callable, which takes a folder and gives a saver")
    parser.add_argument("--shared", action="store_true", help="several programs can use one storage")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])
    folder = Path(__file__).parent
    asked = [str(folder / f"{name}.py") for name in modules_for(options.factory, is_shared=options.shared)]
    settings = ("asyncio_mode=auto", "python_files=*.py", "asyncio_default_fixture_loop_scope=function")
    given = ["-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider"]
    given += [part for setting in settings for part in ("-o", setting)]
    return int(pytest.main([*given, *asked, *arguments[end + 1 :]], plugins=[Fixtures(options.factory)]))


def modules_for(factory: str, *, is_shared: bool) -> list[str]:
    """The parts of the suite that a saver has to pass."""
    kind = asyncio.run(_kind_of(factory))
    return [
        *BASE,
        *(ATOMIC if issubclass(kind, AtomicSaver) else ()),
        *(MAINTAINED if issubclass(kind, MaintainedSaver) else ()),
        *(SHARED if is_shared and issubclass(kind, AtomicSaver) else ()),
    ]


async def _kind_of(factory: str) -> type:
    with tempfile.TemporaryDirectory() as folder:
        async with Storage(factory, folder).opened() as saver:
            return type(saver)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
