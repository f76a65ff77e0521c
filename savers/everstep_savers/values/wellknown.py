"""Classes of well-known libraries that may be stored without being registered: a fixed table.

A value of one of these types exists only where its library is loaded, so nothing is imported to store it. To
read one, the module that this table names is imported; stored data chooses among its rows and no others.
"""

from __future__ import annotations

import sys
from importlib import import_module

_MESSAGES = {
    "ai": ("AIMessage", "AIMessageChunk"),
    "base": ("TextAccessor",),
    "chat": ("ChatMessage", "ChatMessageChunk"),
    "function": ("FunctionMessage", "FunctionMessageChunk"),
    "human": ("HumanMessage", "HumanMessageChunk"),
    "modifier": ("RemoveMessage",),
    "system": ("SystemMessage", "SystemMessageChunk"),
    "tool": ("ToolMessage", "ToolMessageChunk"),
}

# Stored name -> module, class.
WELL_KNOWN = {
    f"langchain_core.messages.{module}:{name}": (f"langchain_core.messages.{module}", name)
    for module, names in _MESSAGES.items()
    for name in names
} | {"langchain_core.documents.base:Document": ("langchain_core.documents.base", "Document")}


def is_well_known(cls: type, name: str) -> bool:
    """Is this class the one of the table, and not another of the same name?"""
    row = WELL_KNOWN.get(name)
    return row is not None and getattr(sys.modules.get(row[0]), row[1], None) is cls


def load_well_known(name: str) -> type | None:
    """The class under this name; None if the table or the installation does not have it."""
    row = WELL_KNOWN.get(name)
    if row is None:
        return None
    try:
        found = getattr(import_module(row[0]), row[1], None)
    except ImportError:
        return None
    return found if isinstance(found, type) else None
