"""Where in a database the tables are: in a schema of their own, under a prefix, or (by default) neither.

The tables are known by their plain names everywhere, in statements, in revisions and in the code that compiles them.
Whoever runs a statement in another place names them anew in its text: the names are words that mean nothing else in
any statement of ours, which a test makes sure of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from sqlalchemy import MetaData
from sqlalchemy.dialects.postgresql.base import RESERVED_WORDS

from everstep_savers.sql.schema import VERSION_TABLE, alembic_version, metadata

# Names that need no quotes in either database, and leave room for those of the tables.
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_PREFIX = re.compile(r"(?:[a-z_][a-z0-9_]{0,29})?")


@dataclass(frozen=True, slots=True)
class Place:
    """A schema and a prefix.

    Attributes:
        schema: A Postgres schema, None for whatever the connection's search path begins with.
        table_prefix: What the names of all tables, constraints and indexes begin with.
    """

    schema: str | None = None
    table_prefix: str = ""

    def __post_init__(self) -> None:
        if self.schema is not None and not _SCHEMA.fullmatch(self.schema):
            raise ValueError(f"schema must be made of a-z, 0-9 and _, and not begin with a digit: {self.schema!r}")
        if self.schema in RESERVED_WORDS or (self.schema or "").startswith("pg_"):
            raise ValueError(f"schema must not be a name that Postgres keeps for itself: {self.schema!r}")
        if not _PREFIX.fullmatch(self.table_prefix):
            raise ValueError(
                "table_prefix must be made of a-z, 0-9 and _, not begin with a digit, and have 30 characters "
                f"at the most: {self.table_prefix!r}"
            )

    def __bool__(self) -> bool:
        """Whether it is another than the default place."""
        return self.schema is not None or bool(self.table_prefix)

    def named(self, text: str) -> str:
        """A statement with the tables as they are named in this place."""
        return _named(self, text)

    def qualified(self, name: str) -> str:
        """One table as it is named in this place."""
        full = self.table_prefix + name
        return f"{self.schema}.{full}" if self.schema else full

    def options(self) -> str:
        """The place as options of the command ``everstep db``, with a blank before each."""
        schema = f" --schema {self.schema}" if self.schema else ""
        return schema + (f" --table-prefix {self.table_prefix}" if self.table_prefix else "")

    def metadata(self) -> MetaData:
        """The tables in this place: for Alembic to compare with, or for a host application to know of."""
        placed = MetaData(schema=self.schema)
        for table in metadata.sorted_tables:
            copied = table.to_metadata(placed, schema=cast(str, self.schema), name=self.table_prefix + table.name)
            items: list[Any] = [*copied.constraints, *copied.indexes]
            for item in items:
                if isinstance(item.name, str):
                    item.name = self.table_prefix + item.name
        return placed

    def is_ours(self, item: Any, name: str | None, kind: str, reflected: bool, compare_to: Any) -> bool:
        """Alembic's `include_object` for Everstep's own migrations: other tables of the database do not exist."""
        return kind != "table" or self._has(item, name, metadata.tables)

    def include_object(self, item: Any, name: str | None, kind: str, reflected: bool, compare_to: Any) -> bool:
        """Alembic's `include_object` for a host application: leaves Everstep's tables alone."""
        return kind != "table" or not self._has(item, name, {*metadata.tables, VERSION_TABLE})

    def _has(self, item: Any, name: str | None, names: Any) -> bool:
        prefixed = {self.table_prefix + each for each in names}
        return name in prefixed and getattr(item, "schema", None) == self.schema


# Where the tables are unless somebody says otherwise.
DEFAULT_PLACE = Place()

# Of the default place; for another one it is `Place(schema=..., table_prefix=...).include_object`.
include_object = DEFAULT_PLACE.include_object


@lru_cache(maxsize=2048)
def _named(place: Place, text: str) -> str:
    tables = {*metadata.tables, VERSION_TABLE}
    others = set(_other_names())
    words = re.compile(rf"(?<![\w.])(?:{'|'.join(sorted(tables | others, key=len, reverse=True))})(?!\w)")

    def rename(found: re.Match[str]) -> str:
        name = found.group()
        return place.qualified(name) if name in tables else place.table_prefix + name

    return words.sub(rename, text)


def _other_names() -> Iterator[str]:
    """The names of constraints and indexes: they live in the schema of their table."""
    for table in (*metadata.tables.values(), alembic_version):
        names = [item.name for item in table.constraints] + [item.name for item in table.indexes]
        yield from (name for name in names if isinstance(name, str))
