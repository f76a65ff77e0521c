"""Managed values: keys that are computed for each task and never stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands: the superstep it is at, and the last one the recursion limit allows."""

    step: int
    stop: int


class ManagedValue(ABC):
    """A key whose value depends on where the run stands; used as an annotation, never instantiated."""

    @staticmethod
    @abstractmethod
    def get(progress: Progress) -> object:
        """The value for a task of this superstep."""


class IsLastStepManager(ManagedValue):
    """Must the run come to its end now? True one superstep before the limit, so that one more can finish."""

    @staticmethod
    def get(progress: Progress) -> bool:
        return progress.step == progress.stop - 1


class RemainingStepsManager(ManagedValue):
    """Supersteps that the recursion limit allows after this one."""

    @staticmethod
    def get(progress: Progress) -> int:
        return progress.stop - progress.step


IsLastStep = Annotated[bool, IsLastStepManager]
RemainingSteps = Annotated[int, RemainingStepsManager]
