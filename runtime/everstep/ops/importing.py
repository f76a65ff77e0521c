"""Threads of another runtime brought into our database.

Each thread is stored in one transaction, or refused with a reason; a thread that exists already is left alone, so that
an import which was broken off is simply repeated. The source is only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from everstep.ops.langgraph_checks import check_texts, reading
from everstep.ops.langgraph_rows import TheirDatabase
from everstep.ops.langgraph_threads import OurThread, converted
from everstep.ops.langgraph_values import StoredValues
from everstep_savers.base import AtomicSaver
from everstep_savers.checkpoint import Claim, Commit, Status
from everstep_savers.errors import CodecError, PersistenceError, ThreadConflict
from everstep_savers.ids import new_run_id
from everstep_savers.values.reachable import reachable_classes


@dataclass(frozen=True, slots=True)
class Import:
    """What is to be brought over.

    Attributes:
        graph: Name of the graph that continues the threads, as `compile(name=...)` gives it.
        annotations: Of the graph's states, or classes: what their values may consist of.
        thread_ids: Only these threads; None for all.
        is_dry: Only find out what could be imported.
        tasks: Names of the `@task`s that the threads may have called.
    """

    url: str
    graph: str = "graph"
    annotations: Sequence[Any] = ()
    thread_ids: Sequence[str] | None = None
    is_dry: bool = False
    tasks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ImportedThread:
    """A thread that was stored.

    Attributes:
        checkpoints: How many it has.
        questions: The ids of open questions, LangGraph's -> ours.
        asked_again: Ids of LangGraph's for questions that the thread asks anew when it goes on.
    """

    thread_id: str
    status: Status
    checkpoints: int
    questions: Mapping[str, str]
    asked_again: Sequence[str]


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of the threads.

    Attributes:
        threads: Those that were stored.
        refused: Thread -> why it was not.
        present: Those that were there already, and were left alone.
    """

    threads: list[ImportedThread]
    refused: dict[str, str]
    present: list[str]


async def import_langgraph(
    what: Import, saver: AtomicSaver[Any], told: Callable[[int, int], None] | None = None
) -> Imported:
    """Bring threads over from a database that LangGraph's SQLite or Postgres saver has written.

    Args:
        told: Called after each thread: how many are done, and of how many.

    Raises:
        DatabaseUnavailable: The source cannot be read, or is not one of LangGraph's.
    """
    for annotation in what.annotations:
        saver.codec.register_annotation(annotation)
    imported = Imported([], {}, [])
    async with TheirDatabase(what.url, StoredValues(_classes(what.annotations)), saver.codec) as source:
        names = await source.thread_ids() if what.thread_ids is None else what.thread_ids
        for number, thread_id in enumerate(names, 1):
            await _bring(source, thread_id, saver, what, imported)
            if told is not None:
                told(number, len(names))
    return imported


async def _bring(
    source: TheirDatabase, thread_id: str, saver: AtomicSaver[Any], what: Import, imported: Imported
) -> None:
    """Bring one thread over, and note what became of it."""
    try:
        check_texts(thread_id=thread_id)
    except CodecError as error:
        imported.refused[str(thread_id)] = str(error)
        return
    if await saver.aget_thread(thread_id) is not None:
        imported.present.append(thread_id)
        return
    try:
        theirs = await source.thread(thread_id)
        with reading(f"thread {thread_id!r}"):
            thread = converted(theirs, saver.codec, what.tasks)
            prepared = saver.prepare(_commit(thread, what.graph))
        if not what.is_dry:
            await saver.acommit(prepared)
    except PersistenceError as error:
        if isinstance(error, ThreadConflict) and await saver.aget_thread(thread_id) is not None:
            imported.present.append(thread_id)  # somebody has made it meanwhile: another import, or a run
        else:
            imported.refused[thread_id] = str(error)
    else:
        imported.threads.append(_told(thread))


def _told(thread: OurThread) -> ImportedThread:
    return ImportedThread(
        thread.thread_id, thread.status, len(thread.checkpoints), thread.questions, thread.asked_again
    )


def _classes(annotations: Iterable[Any]) -> Iterable[type]:
    return (cls for annotation in annotations for cls in reachable_classes(annotation))


def _commit(thread: OurThread, graph: str) -> Commit:
    run_id = next((each.metadata["run_id"] for each in reversed(thread.checkpoints) if "run_id" in each.metadata), None)
    claim = Claim(seen=None, run_id=run_id or new_run_id(), graph=graph)
    return Commit(
        thread.thread_id,
        claim=claim,
        status=thread.status,
        error=thread.error,
        checkpoints=thread.checkpoints,
        writes=thread.writes,
    )
