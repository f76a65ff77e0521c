"""Joins that cannot complete any more, once a run has nothing left to do. Pure."""

from __future__ import annotations

from typing import cast

from everstep.channels.barrier import NamedBarrierValue
from everstep.channels.snapshot import Channels
from everstep.errors import UnsatisfiedJoinError
from everstep.pregel.blueprint import Blueprint


def check_joins(graph: Blueprint, channels: Channels) -> None:
    """Refuse to end while a join waits for sources that were routed around.

    Raises:
        UnsatisfiedJoinError: Names the join and the sources that have not run.
    """
    for key, target in graph.joins.items():
        join = _join(channels, key)
        names, seen = join.names, join.seen
        if seen and seen != names:
            have, missing = (", ".join(map(repr, sorted(part))) for part in (seen, names - seen))
            raise UnsatisfiedJoinError(
                f"the join with {target!r} waits for {missing}, and nothing is left to run ({have} has come); let "
                f"every source run, route to {target!r} instead of joining, or compile(unsatisfied_joins='ignore')"
            )


def has_unsatisfied(graph: Blueprint, channels: Channels) -> bool:
    """Would `check_joins` refuse?"""
    joins = [_join(channels, key) for key in graph.joins]
    return any(join.seen and join.seen != join.names for join in joins)


def _join(channels: Channels, key: str) -> NamedBarrierValue:
    return cast(NamedBarrierValue, channels.live[key])
