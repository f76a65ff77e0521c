"""``everstep threads ...``: what threads there are, how they stand, and how to be rid of them.

Nothing here runs a graph: what comes next on a thread only its graph could tell.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

from everstep.ops.report import Report, add_command, add_database, add_types, annotations_of, saver_of, table
from everstep.types import Interrupt
from everstep_savers.checkpoint import INTERRUPT, CheckpointTuple, Status, ThreadRecord
from everstep_savers.errors import CheckpointNotFound

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
# So much of a value is shown to people.
_SHOWN = 200


def add_threads(groups: Any) -> None:
    """Add the commands to the parser."""
    parser = groups.add_parser("threads", help="threads and their history")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listing = add_command(commands, "list", list_threads)
    listing.add_argument(
        "--status",
        choices=get_args(Status),
        metavar="STATUS",
        help=f"only threads whose last run stands so: {', '.join(get_args(Status))}",
    )
    showing = add_command(commands, "show", show_thread)
    history = add_command(commands, "history", show_history)
    deleting = add_command(commands, "delete", delete_threads)
    pruning = add_command(commands, "prune", prune_threads)
    for command in (listing, showing, history, deleting, pruning):
        add_database(command)
    for command in (showing, history):
        command.add_argument("thread", metavar="THREAD")
        command.add_argument("--namespace", default="", help="of a subgraph, such as node:task")
        add_types(command)
    showing.add_argument("--checkpoint", help="one of its checkpoints; the newest by default")
    for command in (listing, history):
        command.add_argument("--limit", type=int, default=50, help="so many at the most; 50 by default")
    deleting.add_argument("threads", nargs="+", metavar="THREAD")
    pruning.add_argument("threads", nargs="*", metavar="THREAD", help="only these; all by default")
    pruning.add_argument("--older-than", type=_age, help="an age such as 30d, 12h or 2w, or a date such as 2024-05-01")
    pruning.add_argument(
        "--keep-last", type=int, default=1, help="so many of each branch; 0 removes threads that are done"
    )
    pruning.add_argument("--dry-run", action="store_true", help="only tell what would be removed")


async def list_threads(options: argparse.Namespace) -> Report:
    """List threads, the most recently updated first."""
    async with saver_of(options) as saver:
        found = [each async for each in saver.alist_threads(status=options.status, limit=options.limit)]
    rows = [
        (each.thread_id, each.status, each.graph, _moment(each.updated_at), each.error and each.error[:60])
        for each in found
    ]
    text = table(("THREAD", "STATUS", "GRAPH", "UPDATED", "ERROR"), rows) if rows else "no threads"
    return Report(text, {"threads": [_thread_data(each) for each in found]})


async def show_thread(options: argparse.Namespace) -> Report:
    """Show how a thread stands: its values, its open questions, what tasks have left."""
    async with _reader(options) as saver:
        thread = await saver.aget_thread(options.thread)
        if thread is None:
            raise _no_thread(options.thread)
        saved = await saver.aget_tuple(_config(options, options.checkpoint))
        if saved is None and options.checkpoint:
            raise CheckpointNotFound(f"thread {options.thread!r} has no checkpoint {options.checkpoint!r}")
    data = _thread_data(thread)
    lines = [f"{name}: {value}" for name, value in data.items() if value is not None]
    if saved is not None:
        data["checkpoint"] = _checkpoint_data(saved)
        data["values"] = saved.checkpoint["channel_values"]
        data["questions"] = [{"id": question.id, "value": question.value} for question in _questions(saved)]
        data["writes"] = [[task, channel, value] for task, channel, value in saved.pending_writes or ()]
        lines += ["", *_described(saved)]
    return Report("\n".join(lines), _plain(data))


async def show_history(options: argparse.Namespace) -> Report:
    """List the checkpoints of a thread, newest first."""
    async with _reader(options) as saver:
        found = [each async for each in saver.alist(_config(options), limit=options.limit)]
        if not found and await saver.aget_thread(options.thread) is None:
            raise _no_thread(options.thread)
    checkpoints = [_checkpoint_data(each) for each in found]
    rows = [
        (each["id"], each["step"], each["source"], each["ts"][:19], each["parent"], len(saved.pending_writes or ()))
        for each, saved in zip(checkpoints, found, strict=True)
    ]
    text = table(("CHECKPOINT", "STEP", "SOURCE", "MADE", "PARENT", "WRITES"), rows) if rows else "no checkpoints"
    return Report(text, _plain({"thread_id": options.thread, "checkpoints": checkpoints}))


async def delete_threads(options: argparse.Namespace) -> Report:
    """Delete threads with all they have stored."""
    deleted: list[str] = []
    unknown: list[str] = []
    async with saver_of(options) as saver:
        for thread_id in options.threads:
            is_there = await saver.aget_thread(thread_id) is not None
            (deleted if is_there else unknown).append(thread_id)
            await saver.adelete_thread(thread_id)
    lines = [f"deleted {thread_id}" for thread_id in deleted] + [f"there is no thread {each!r}" for each in unknown]
    return Report("\n".join(lines), {"deleted": deleted, "unknown": unknown}, 1 if unknown else 0)


async def prune_threads(options: argparse.Namespace) -> Report:
    """Remove old checkpoints, but nothing that a head, a branch or an open question needs."""
    if not options.threads and options.older_than is None:
        raise ValueError("name threads, or say how old: --older-than 30d; --older-than 0s prunes every thread")
    async with saver_of(options) as saver:
        pruned = await saver.aprune(
            options.threads or None,
            older_than=options.older_than,
            keep_last=options.keep_last,
            dry_run=options.dry_run,
        )
    verb = "would be removed" if options.dry_run else "removed"
    total = sum(pruned.checkpoints.values())
    lines = [f"{total} checkpoints of {len(pruned.checkpoints)} threads {verb}"]
    if pruned.checkpoints:
        rows = [(each, count, "whole" if each in pruned.threads else "") for each, count in pruned.checkpoints.items()]
        lines += ["", table(("THREAD", "CHECKPOINTS", ""), rows)]
    data = {"checkpoints": dict(pruned.checkpoints), "threads": list(pruned.threads), "dry_run": options.dry_run}
    return Report("\n".join(lines), data)


@asynccontextmanager
async def _reader(options: argparse.Namespace) -> Any:
    """A saver that knows the classes that the options name."""
    saver = saver_of(options)
    for annotation in annotations_of(options):
        saver.codec.register_annotation(annotation)
    async with saver:
        yield saver


def _config(options: argparse.Namespace, checkpoint_id: str | None = None) -> dict[str, Any]:
    named = {"thread_id": options.thread, "checkpoint_ns": options.namespace, "checkpoint_id": checkpoint_id}
    return {"configurable": named}


def _no_thread(thread_id: str) -> LookupError:
    return LookupError(f"there is no thread {thread_id!r}")


def _thread_data(thread: ThreadRecord) -> dict[str, Any]:
    return {
        "thread_id": thread.thread_id,
        "status": thread.status,
        "graph": thread.graph,
        "run_id": thread.run_id,
        "attempt": thread.attempt,
        "head": thread.head,
        "error": thread.error,
        "created_at": _moment(thread.created_at),
        "updated_at": _moment(thread.updated_at),
    }


def _checkpoint_data(saved: CheckpointTuple) -> dict[str, Any]:
    parent = saved.parent_config["configurable"]["checkpoint_id"] if saved.parent_config else None
    return {
        "id": saved.checkpoint["id"],
        "ts": saved.checkpoint["ts"],
        "parent": parent,
        "step": saved.metadata.get("step"),
        "source": saved.metadata.get("source"),
        "metadata": dict(saved.metadata),
    }


def _described(saved: CheckpointTuple) -> list[str]:
    """A checkpoint for people."""
    values = saved.checkpoint["channel_values"]
    lines = [f"checkpoint {saved.checkpoint['id']} (step {saved.metadata.get('step')}):"]
    lines += [f"  {key} = {value!r:.{_SHOWN}}" for key, value in sorted(values.items())] or ["  no values"]
    if questions := _questions(saved):
        lines += ["", "questions:", *(f"  {question.id}  {question.value!r:.{_SHOWN}}" for question in questions)]
    if saved.pending_writes:
        rows = [(task_id, channel, f"{value!r:.{_SHOWN}}") for task_id, channel, value in saved.pending_writes]
        lines += ["", table(("TASK", "WRITE", "VALUE"), rows)]
    return lines


def _questions(saved: CheckpointTuple) -> list[Interrupt]:
    asked = [value for _, channel, value in saved.pending_writes or () if channel == INTERRUPT]
    return [question for questions in asked for question in questions if isinstance(question, Interrupt)]


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """Data that is JSON; what is not by itself is shown as text."""
    plain: dict[str, Any] = json.loads(json.dumps(data, default=repr, skipkeys=True))
    return plain


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds")


def _age(text: str) -> datetime:
    """An age or a date from the command line."""
    if found := re.fullmatch(r"(\d+)([smhdw])", text):
        with suppress(OverflowError):  # older than the calendar is no age either
            return datetime.now(UTC) - timedelta(**{_UNITS[found[2]]: int(found[1])})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither an age such as 30d, 12h or 2w nor a date such as 2024-05-01"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
