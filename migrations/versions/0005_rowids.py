"""SQLite tables with long rows get rowids.

Revision 0005. A table without rowids keeps a quarter of a page of a row in place and the rest on a page of its own, so
that rows of more than a kilobyte took four. Nothing changes on PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = ("checkpoints", "channel_values", "checkpoint_writes", "store_items", "store_vectors", "cache_entries")
WITHOUT = " WITHOUT ROWID"


def upgrade() -> None:
    _make_anew(lambda definition: definition.rstrip().removesuffix(WITHOUT))


def downgrade() -> None:
    _make_anew(lambda definition: definition.rstrip() + WITHOUT)


def _make_anew(change: Callable[[str], str]) -> None:
    """Make each table anew by its changed definition, with its rows and indexes."""
    context = op.get_context()
    if context.dialect.name != "sqlite" or context.as_sql:  # both kinds of tables do; only a database tells the text
        return
    bind = op.get_bind()
    for table in TABLES:
        query = f"SELECT type, name, sql FROM sqlite_master WHERE tbl_name = '{table}' AND sql IS NOT NULL"  # noqa: S608
        found = bind.exec_driver_sql(query).all()
        indexes = {name: text for kind, name, text in found if kind == "index"}
        for name in indexes:
            bind.exec_driver_sql(f'DROP INDEX "{name}"')
        bind.exec_driver_sql(f'ALTER TABLE "{table}" RENAME TO "{table}_before"')
        bind.exec_driver_sql(change(next(text for kind, _, text in found if kind == "table")))
        bind.exec_driver_sql(f'INSERT INTO "{table}" SELECT * FROM "{table}_before"')  # noqa: S608  # names of ours
        bind.exec_driver_sql(f'DROP TABLE "{table}_before"')
        for text in indexes.values():
            bind.exec_driver_sql(text)
