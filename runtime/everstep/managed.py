"""Home of the managed values, where people coming from the neighbouring ecosystem look."""

from __future__ import annotations

from everstep.channels.managed import IsLastStep, RemainingSteps

__all__ = ["IsLastStep", "RemainingSteps"]
