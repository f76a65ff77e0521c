"""`RunControl`: how the outside asks a run to stop at its next barrier.

A flag and its reason. Setting it cancels nothing: nodes that run may finish, and what they did is stored. It may be
set from any thread, and from a signal handler.
"""

from __future__ import annotations


class RunControl:
    """Handed to a run as `control=`, and to its nodes as `runtime.control`; one may steer many runs.

    Attributes:
        drain_reason: Why the run is to stop; None while it is not.
    """

    __slots__ = ("drain_reason",)

    def __init__(self) -> None:
        self.drain_reason: str | None = None

    @property
    def drain_requested(self) -> bool:
        """Is the run to stop at its next barrier?"""
        return self.drain_reason is not None

    def request_drain(self, reason: str = "shutdown") -> None:
        """Stop at the next barrier: the run ends with `GraphDrained`, and its thread is continued with input None.

        A run that has nothing left to do then, or stops for a question or a breakpoint, ends as it would anyway.
        """
        self.drain_reason = reason

    def __repr__(self) -> str:
        return f"RunControl(drain_reason={self.drain_reason!r})"
