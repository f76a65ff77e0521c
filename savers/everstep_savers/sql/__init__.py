"""The SQL saver, store and cache: one class each, one schema, SQLite and Postgres.

Nothing loads before one of them is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everstep_savers.sql.cache import SQLCache
    from everstep_savers.sql.place import Place, include_object
    from everstep_savers.sql.poolers import UNNAMED_STATEMENTS
    from everstep_savers.sql.saver import SQLSaver
    from everstep_savers.sql.schema import metadata
    from everstep_savers.sql.store import SQLStore

__all__ = ["UNNAMED_STATEMENTS", "Place", "SQLCache", "SQLSaver", "SQLStore", "include_object", "metadata"]

# SQLAlchemy costs more to import than all the rest together.
_MODULES = {
    "Place": "place",
    "SQLCache": "cache",
    "SQLSaver": "saver",
    "SQLStore": "store",
    "UNNAMED_STATEMENTS": "poolers",
    "include_object": "place",
    "metadata": "schema",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"everstep_savers.sql.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
