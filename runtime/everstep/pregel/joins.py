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
        come, waited_for = _join(channels, key).missing()
        if waited_for:
            have, missing = (", ".join(map(repr, sorted(part))) for part in (come, waited_for))
            raise UnsatisfiedJoinError(
                f"the join with {target!r} waits for {missing}, and nothing is left to run ({have} has come); let "
                f"every source run, route to {target!r} instead of joining, or compile(unsatisfied_joins='ignore')"
            )


def has_unsatisfied(graph: Blueprint, channels: Channels) -> bool:
    """Would `check_joins` refuse?"""
    return any(_join(channels, key).missing()[1] for key in graph.joins)


def _join(channels: Channels, key: str) -> NamedBarrierValue:
    return cast(NamedBarrierValue, channels.live[key])
