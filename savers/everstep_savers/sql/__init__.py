"""The SQL saver: one class, one schema, SQLite and Postgres.

Nothing loads before `SQLSaver` is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everstep_savers.sql.saver import SQLSaver
    from everstep_savers.sql.schema import include_object, metadata

__all__ = ["SQLSaver", "include_object", "metadata"]


def __getattr__(name: str) -> Any:
    # SQLAlchemy costs more to import than all the rest together.
    if name == "SQLSaver":
        from everstep_savers.sql.saver import SQLSaver

        return SQLSaver
    if name in __all__:
        from everstep_savers.sql import schema

        return getattr(schema, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
