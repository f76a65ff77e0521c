"""Channels: state cells with update semantics. Home of their public names."""

from __future__ import annotations

from everstep.channels.barrier import NamedBarrierValue, NamedBarrierValueAfterFinish
from everstep.channels.base import BaseChannel
from everstep.channels.delta import DeltaChannel
from everstep.channels.last_value import (
    AnyValue,
    EphemeralValue,
    LastValue,
    LastValueAfterFinish,
    UntrackedValue,
)
from everstep.channels.reducer import BinaryOperatorAggregate
from everstep.channels.topic import Topic

__all__ = [
    "AnyValue",
    "BaseChannel",
    "BinaryOperatorAggregate",
    "DeltaChannel",
    "EphemeralValue",
    "LastValue",
    "LastValueAfterFinish",
    "NamedBarrierValue",
    "NamedBarrierValueAfterFinish",
    "Topic",
    "UntrackedValue",
]
