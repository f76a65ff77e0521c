"""The SQL saver, store and cache: one class each, one schema, SQLite and Postgres.

Nothing loads before one of them is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everstep_savers.sql.cache import SQLCache
    from everstep_savers.sql.saver import SQLSaver
    from everstep_savers.sql.schema import include_object, metadata
    from everstep_savers.sql.store import SQLStore

__all__ = ["SQLCache", "SQLSaver", "SQLStore", "include_object", "metadata"]

# SQLAlchemy costs more to import than all the rest together.
_MODULES = {
    "SQLCache": "cache",
    "SQLSaver": "saver",
    "SQLStore": "store",
    "include_object": "schema",
    "metadata": "schema",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"everstep_savers.sql.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
