"""Threads that outlive a change of their graph: renamed nodes, and nodes that are gone.

Pure. A checkpoint names the nodes and channels of the graph that made it. `compile(aliases={"old": "new"})`
reads the old names as the new ones, and tasks of a renamed node keep the ids they had; work that waits for a
node which no longer exists is shown by state reading, and running it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from everstep.constants import BRANCH_PREFIX, TASKS
from everstep.errors import GraphMismatchError, did_you_mean
from everstep.pregel.blueprint import Blueprint
from everstep_savers.checkpoint import Checkpoint, CheckpointTuple


def read_with_aliases(graph: Blueprint, saved: CheckpointTuple) -> CheckpointTuple:
    """The checkpoint with the names that its nodes have now."""
    if not graph.aliases:
        return saved
    checkpoint = saved.checkpoint
    values = _rename_keys(checkpoint["channel_values"], graph.aliases)
    if sends := values.get(TASKS):
        values[TASKS] = [replace(send, node=graph.aliases.get(send.node, send.node)) for send in sends]
    renamed: Checkpoint = {
        **checkpoint,
        "channel_values": values,
        "channel_versions": _rename_keys(checkpoint["channel_versions"], graph.aliases),
        "versions_seen": {
            graph.aliases.get(node, node): _rename_keys(seen, graph.aliases)
            for node, seen in checkpoint["versions_seen"].items()
        },
    }
    return saved._replace(checkpoint=renamed)


def missing_nodes(graph: Blueprint, saved: CheckpointTuple) -> list[str]:
    """The nodes that would run next at this checkpoint and that the graph does not have."""
    values = saved.checkpoint["channel_values"]
    triggered = [key.removeprefix(BRANCH_PREFIX) for key in values if key.startswith(BRANCH_PREFIX)]
    sent = [send.node for send in values.get(TASKS) or ()]
    return sorted({name for name in (*triggered, *sent) if name not in graph.nodes})


def refuse_missing(graph: Blueprint, saved: CheckpointTuple, thread_id: str | None) -> None:
    """Refuse to run a thread on which work waits for a node that is gone.

    Raises:
        GraphMismatchError: Names the nodes and the way out.
    """
    missing = missing_nodes(graph, saved)
    if missing:
        nodes, first = ", ".join(map(repr, missing)), missing[0]
        raise GraphMismatchError(
            f"thread {thread_id!r} waits for node {nodes}, which graph {graph.name!r} does not have."
            f"{did_you_mean(first, graph.nodes)} If it was renamed, compile with aliases={{{first!r}: new name}}; if "
            f"it is gone, move the thread on with aupdate_state(..., as_node=...)"
        )


def _rename_keys(found: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    return {_renamed(key, aliases): value for key, value in found.items()}


def _renamed(key: str, aliases: Mapping[str, str]) -> str:
    """A channel's key with the new names of the nodes in it."""
    if key.startswith(BRANCH_PREFIX):
        name = key.removeprefix(BRANCH_PREFIX)
        return BRANCH_PREFIX + aliases.get(name, name)
    if key.startswith("join:"):
        prefix, sources, target = key.split(":", 2)
        names = "+".join(aliases.get(name, name) for name in sources.split("+"))
        return f"{prefix}:{names}:{aliases.get(target, target)}"
    return key
