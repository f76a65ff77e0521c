"""What goes into a graph and what comes out: input to writes, writes to updates, channels to values.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from everstep.channels.snapshot import Channels, one_level_copy
from everstep.constants import RETURN
from everstep.errors import ConfigError, did_you_mean
from everstep.pregel.blueprint import Blueprint, Names
from everstep.tasks.node import Write
from everstep.tasks.task import Task
from everstep.types import MISSING
from everstep_savers.checkpoint import Version


def input_writes(graph: Blueprint, value: Any) -> list[Write]:
    """The writes of a run's input.

    Raises:
        ConfigError: The input is no mapping where the graph has several input channels, or has a key that
            is not one of them.
    """
    if graph.check_input is not None:
        value = graph.check_input(value)
    if isinstance(graph.input_channels, str):
        return [(graph.input_channels, value)]
    if not isinstance(value, Mapping):
        raise ConfigError(f"the input must map channels to values, got {type(value).__name__} {value!r:.200}")
    for key in value:
        if key not in graph.input_channels:
            raise ConfigError(
                f"the input has key {key!r}, which is no input channel.{did_you_mean(str(key), graph.input_channels)}"
            )
    return list(value.items())


def earlier_output(graph: Blueprint, channels: Channels) -> Version | None:
    """The version of what earlier runs have put out; None if there is nothing, or the graph has several outputs."""
    output, inputs = graph.output_channels, graph.input_channels
    if not isinstance(output, str) or output == inputs or (not isinstance(inputs, str) and output in inputs):
        return None
    return channels.versions.get(output)


def output_of(channels: Channels, names: Names) -> Any:
    """The value of one channel (None if it has none), or a mapping of those that have one."""
    value = channels.read(names)
    return None if value is MISSING else value


def update_of(task: Task, names: Names) -> Any:
    """What stream mode "updates" tells of a finished task; of a `@task` call, what it returned.

    Several writes to one key (updates in a list) are told one by one, in their order.
    """
    names = RETURN if task.depth else names
    if isinstance(names, str):
        values = [one_level_copy(value) for key, value in task.writes if key == names]
        return (values if len(values) > 1 else values[0]) if values else None
    written = [(key, one_level_copy(value)) for key, value in task.writes if key in names]
    found = dict(written)
    if len(found) < len(written):
        return [{key: value} for key, value in written]
    return found or None


def result_of(task: Task, names: Names) -> dict[str, Any]:
    """What snapshots and stream mode "tasks" tell of a finished task, by key; several writes as ``{"$writes": []}``."""
    wanted = (RETURN,) if task.depth else (names,) if isinstance(names, str) else names
    found: dict[str, list[Any]] = {}
    for key, value in task.writes:
        if key in wanted:
            found.setdefault(key, []).append(one_level_copy(value))
    return {key: values[0] if len(values) == 1 else {"$writes": values} for key, values in found.items()}


def touches(task_writes: Iterable[Sequence[Write]], names: Names) -> bool:
    """Does any of these writes go to one of the channels?"""
    wanted = (names,) if isinstance(names, str) else names
    return any(key in wanted for writes in task_writes for key, _ in writes)
