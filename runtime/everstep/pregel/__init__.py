"""The engine: plan, execute, update, and what is stored when. Home of `Pregel` and `NodeBuilder`."""

from __future__ import annotations

from typing import Any

__all__ = ["ChannelWriteEntry", "NodeBuilder", "Pregel"]


def __getattr__(name: str) -> Any:
    # Loaded at first use: importing a room of this floor must not load the whole floor.
    if name == "Pregel":
        from everstep.pregel.graph import Pregel

        return Pregel
    if name in ("ChannelWriteEntry", "NodeBuilder"):
        from everstep.pregel import nodes

        return getattr(nodes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
