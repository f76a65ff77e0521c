"""Values stored in parts, as Core expressions: which rows some checkpoints need.

Pure, see `statements`. The SQL of `everstep_savers.delta.needed_values`; whoever reads, copies or removes values asks
here, so that a part is never left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import (
    ARRAY,
    CTE,
    BigInteger,
    ColumnElement,
    FromClause,
    Select,
    Table,
    Text,
    and_,
    any_,
    bindparam,
    cast,
    func,
    literal_column,
    select,
    true,
)

from everstep_savers.parts import MOST_PARTS
from everstep_savers.sql.schema import Key, channel_values

VALUE_KEY = ("thread_id", "checkpoint_ns", "channel", "version")


def named_versions(source: FromClause, *, is_postgres: bool, only_some: bool = False) -> Select[Any]:
    """Thread, namespace, channel and version of every value that some checkpoints name, each once.

    Args:
        source: Of checkpoint rows: a table, or a query with their thread, namespace and versions.
        is_postgres: The dialect, Postgres or SQLite.
        only_some: Only the values of the channels that are bound as ``channels`` (see `bound_texts`).
    """
    each = func.json_each_text if is_postgres else func.json_each
    named = each(source.c.versions).table_valued("key", "value", name="named")
    found = (
        select(
            source.c.thread_id,
            source.c.checkpoint_ns,
            cast(named.c.key, Key).label("channel"),
            cast(named.c.value, Key).label("version"),
        )
        .distinct()
        .select_from(source.join(named, true()))
    )
    return found.where(is_among(named.c.key, "channels", is_postgres=is_postgres)) if only_some else found


def is_among(item: ColumnElement[Any], name: str, *, is_postgres: bool) -> ColumnElement[bool]:
    """Whether a text is one of those bound under a name, see `bound_texts`."""
    if is_postgres:
        return item == any_(bindparam(name, type_=ARRAY(Text())))
    texts = func.json_each(bindparam(name, type_=Text())).table_valued("value", name=name)
    return item.in_(select(texts.c.value))


def bound_texts(texts: Sequence[str], *, is_postgres: bool) -> Any:
    """A list of texts as one argument."""
    return list(texts) if is_postgres else orjson.dumps(list(texts)).decode()


def needed_values(source: FromClause, *, is_postgres: bool, only_some: bool = False) -> CTE:
    """The keys of all value rows that some checkpoints need, with all that these continue, each once."""
    named = named_versions(source, is_postgres=is_postgres, only_some=only_some)
    needed = named.cte("needed", recursive=True)
    stored, on = looked_up(channel_values, needed, VALUE_KEY, is_postgres=is_postgres)
    kept = stored.c
    bases = (
        select(kept.thread_id, kept.checkpoint_ns, kept.channel, kept.base)
        .select_from(needed.join(stored, on))
        .where(kept.base.is_not(None))
    )
    return needed.union(bases)


def read_parts(source: FromClause, *, is_postgres: bool) -> CTE:
    """The value rows that one checkpoint needs, themselves.

    One checkpoint shares no row with itself, so that each is looked up once; `needed_values` looks up most of
    them twice, but gives each once however many checkpoints need it.
    """
    named = named_versions(source, is_postgres=is_postgres).subquery("named_versions")
    stored, on = looked_up(channel_values, named, VALUE_KEY, is_postgres=is_postgres)
    depth = literal_column("0", BigInteger).label("depth")
    parts = select(*stored.c, depth).select_from(named.join(stored, on)).cte("parts", recursive=True)
    before, on = looked_up(channel_values, parts, VALUE_KEY[:-1], is_postgres=is_postgres, base=parts.c.base)
    bases = select(*before.c, parts.c.depth + literal_column("1", BigInteger)).select_from(parts.join(before, on))
    # A chain that bites its own tail is damage; reading it has to end all the same.
    return parts.union_all(bases.where(parts.c.base.is_not(None), parts.c.depth < literal_column(str(MOST_PARTS))))


def looked_up(
    table: Table,
    keys: FromClause,
    names: Sequence[str],
    *,
    is_postgres: bool,
    base: ColumnElement[str] | None = None,
) -> tuple[FromClause, ColumnElement[bool]]:
    """A table's rows under some keys, or those that they continue (`base`), and the condition to join them on.

    Postgres cannot know how many keys a JSON object has, and would rather read a whole table of middling
    size; a lateral subquery with an offset leaves it nothing but the index.
    """
    on = and_(*(table.c[name] == keys.c[name] for name in names))
    if base is not None:
        on &= table.c.version == base
    if not is_postgres:
        return table, on
    return select(table).where(on).offset(literal_column("0")).lateral(f"stored_{table.name}"), true()
