"""Bytes on disk per step, by what a step stores and by codec: `python -m benchmarks.storage [--json out.json]`.

Each kind of value is stored by 300 steps of a new database, which is closed before it is measured; from that goes what
the same graph takes with 20 steps. On Postgres tables and indexes are counted, as the server has them then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import operator
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import asyncpg

from benchmarks.postgres import databases
from everstep import END, START, Command, StateGraph
from everstep_savers import Codec, Compression, Encryption, SealedCodec, SQLSaver
from everstep_savers.sql import metadata

FEW, MANY = 20, 300
WORDS = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which "
    "one you were her all she there would their we him been has when who will more no if out so said what up its about "
    "into than them can only other new some could time these two may then do first any my now such like our over man "
    "order customer payment invoice delivery address question answer model agent message thread state"
)


class Items(TypedDict):
    """A list that grows, and a value that changes."""

    items: Annotated[list[Any], operator.add]
    value: Any


def text(length: int, seed: int) -> str:
    """Words as they come in English: the first ones often, the last ones seldom."""
    rng = random.Random(seed)
    words = WORDS.split()
    weights = [1 / (place + 1) for place in range(len(words))]
    return " ".join(rng.choices(words, weights, k=length // 2))[:length]


def records(count: int, seed: int) -> list[dict[str, Any]]:
    """Rows as an API gives them."""
    rng = random.Random(seed)
    return [
        {"id": rng.randrange(10**9), "name": text(24, seed + n), "price": rng.random(), "note": text(100, seed - n)}
        for n in range(count)
    ]


KINDS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "200 bytes, added to a list": ("items", lambda n: [text(200, n)]),
    "4 KB of text, added to a list": ("items", lambda n: [text(4096, n)]),
    "12 KB of text": ("value", lambda n: text(12 * 1024, n)),
    "44 KB of records": ("value", lambda n: records(240, n)),
}

CODECS: dict[str, Callable[[], Codec | None]] = {
    "as it is": lambda: None,
    "zstd": lambda: SealedCodec(Compression()),
    "encrypted": lambda: SealedCodec(Encryption({"1": b"k" * 32})),
    "zstd, encrypted": lambda: SealedCodec(Compression(), Encryption({"1": b"k" * 32})),
}


async def run(url: str, kind: str, codec: str, steps: int) -> None:
    """Take so many steps that store one such value each."""
    key, make = KINDS[kind]
    left = iter(range(steps - 1, -1, -1))

    async def store(state: Items) -> Command[Any]:
        number = next(left)
        return Command(update={key: make(number)}, goto="store" if number else END)

    builder = StateGraph(Items).add_node("store", store, destinations=("store", END)).add_edge(START, "store")
    async with SQLSaver.from_url(url, auto_migrate=True, codec=CODECS[codec]()) as saver:
        config = {"configurable": {"thread_id": "t"}, "recursion_limit": steps + 1}
        await builder.compile(saver).ainvoke({"items": [], "value": None}, config)


async def size(url: str) -> int:
    """Bytes of the closed database."""
    if url.startswith("sqlite"):
        return Path(url.removeprefix("sqlite:///")).stat().st_size
    connection = await asyncpg.connect(url)
    try:
        return sum([await connection.fetchval("SELECT pg_total_relation_size($1)", name) for name in metadata.tables])
    finally:
        await connection.close()


def per_step(new_url: Callable[[], str], kind: str, codec: str) -> float:
    """Bytes that a step takes."""
    sizes = []
    for steps in (FEW, MANY):
        url = new_url()
        asyncio.run(run(url, kind, codec, steps))
        sizes.append(asyncio.run(size(url)))
    return (sizes[1] - sizes[0]) / (MANY - FEW)


def main() -> None:
    """Measure everything and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storage", description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all numbers here")
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with databases() as new_database, tempfile.TemporaryDirectory() as folder:
        made = iter(range(10**6))
        for database, new_url in (
            ("SQLite", lambda: f"sqlite:///{folder}/{next(made)}.db"),
            ("PostgreSQL", lambda: new_database(f"storage_{next(made)}")),
        ):
            for codec in CODECS:
                for kind in KINDS:
                    found.setdefault(kind, {})[f"{database}, {codec}"] = per_step(new_url, kind, codec)
                    sys.stderr.write(f"{database}, {codec}, {kind}\n")
    columns = list(next(iter(found.values())))
    print(f"| value | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for kind, numbers in found.items():
        print(f"| {kind} | {' | '.join(f'{numbers[column]:,.0f}' for column in columns)} |")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
