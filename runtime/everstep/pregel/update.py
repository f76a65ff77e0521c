"""The barrier: the one place where channels change.

Pure. All writes of a superstep are applied channel by channel, tasks in path order, so that the result
does not depend on which task finished first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from everstep.channels.snapshot import Channels
from everstep.errors import InvalidUpdateError, did_you_mean
from everstep.pregel.blueprint import Blueprint
from everstep.tasks.node import Write


class Writes(Protocol):
    """What a barrier needs of a task."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> tuple[Any, ...]: ...
    @property
    def triggers(self) -> tuple[str, ...]: ...
    @property
    def writes(self) -> Sequence[Write]: ...


def apply_writes(graph: Blueprint, channels: Channels, tasks: Sequence[Writes]) -> set[str]:
    """Apply the writes of finished tasks; return the channels that changed and have a value.

    Raises:
        InvalidUpdateError: Writes do not fit a channel; names key and nodes. The channels may then be
            changed in part: nothing of this barrier may be stored.
    """
    ordered = sorted(tasks, key=_path) if len(tasks) > 1 else tasks
    version = channels.next_version()
    is_step = _mark_seen(channels, ordered)
    written = _by_channel(graph, ordered)
    if is_step and channels.consuming:
        for key in sorted(channels.consuming & _triggers_of(ordered)):
            if channels.live[key].consume():
                channels.bump(key, version)
    updated = set()
    for key, values in written.items():
        try:
            changed = channels.write(key, values)
            if changed and key in graph.checks and channels.live[key].is_available():
                graph.checks[key](channels.live[key].get())
        except InvalidUpdateError as error:
            channels.refused = _writers(key, ordered)
            raise InvalidUpdateError(f"{error} (written by {_nodes(channels.refused)})") from error.__cause__
        except Exception as error:
            # A reducer's own exception, as it is: its author knows it.
            channels.refused = _writers(key, ordered)
            error.add_note(f"while reducing key {key!r}, written by {_nodes(channels.refused)}")
            raise
        if changed:
            channels.bump(key, version)
            if channels.live[key].is_available():
                updated.add(key)
    if is_step:
        for key in channels.tick(written):
            channels.bump(key, version)
            if channels.live[key].is_available():
                updated.add(key)
        if channels.finishing and not any(key in graph.triggers for key in updated):
            updated |= _finish(channels, version)
    return updated


def _path(task: Writes) -> tuple[Any, ...]:
    return task.path


def _mark_seen(channels: Channels, tasks: Iterable[Writes]) -> bool:
    """Note for each node the versions of its triggers that this step has acted on."""
    is_step = False
    for task in tasks:
        if not task.triggers:
            continue
        is_step = True
        seen = channels.seen.setdefault(task.name, {})
        for key in task.triggers:
            if (version := channels.versions.get(key)) is not None:
                seen[key] = version
    return is_step


def _triggers_of(tasks: Iterable[Writes]) -> set[str]:
    return {key for task in tasks for key in task.triggers}


def _by_channel(graph: Blueprint, tasks: Iterable[Writes]) -> dict[str, list[Any]]:
    written: dict[str, list[Any]] = {}
    for task in tasks:
        for key, value in task.writes:
            if key in written:
                written[key].append(value)
            elif key in graph.channels:
                written[key] = [value]
            else:
                raise InvalidUpdateError(
                    f"node {task.name!r} wrote to channel {key!r}, which does not exist."
                    f"{did_you_mean(key, graph.channels)}"
                )
    return written


def _writers(key: str, tasks: Iterable[Writes]) -> tuple[str, ...]:
    """The nodes that wrote to a channel, once each, in order."""
    return tuple(dict.fromkeys(task.name for task in tasks if any(name == key for name, _ in task.writes)))


def _nodes(names: Sequence[str]) -> str:
    listed = ", ".join(map(repr, names))
    return f"node {listed}" if len(names) == 1 else f"nodes {listed}"


def _finish(channels: Channels, version: Any) -> set[str]:
    updated = set()
    for key in channels.finishing:
        if channels.live[key].finish():
            channels.bump(key, version)
            if channels.live[key].is_available():
                updated.add(key)
    return updated
