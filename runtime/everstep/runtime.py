"""Home of `Runtime` and what belongs to it, where people coming from the neighbouring ecosystem look."""

from __future__ import annotations

from typing import Any

from everstep.context import BaseUser, ExecutionInfo, Runtime, ServerInfo, running_task
from everstep.control import RunControl

__all__ = ["BaseUser", "ExecutionInfo", "RunControl", "Runtime", "ServerInfo", "get_runtime"]


def get_runtime(context_schema: type[Any] | None = None) -> Runtime[Any]:
    """The `Runtime` of the running node; `context_schema` only tells type checkers what `context` is."""
    return running_task("get_runtime").runtime
