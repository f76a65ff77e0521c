"""What queries return, put together: rows of one shape into checkpoints, arguments into a page's shape.

Pure; the counterpart of `queries`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from everstep_savers.addresses import address_of
from everstep_savers.base import Config
from everstep_savers.body import unpack_body
from everstep_savers.checkpoint import Chain, CheckpointTuple, PendingWrite
from everstep_savers.codec import SEALED_BODY, Codec, Encoded
from everstep_savers.decoding import decode_results, decode_tuple, decode_writes, version_keys
from everstep_savers.metadata import canonical_json, encode_metadata, read_rest
from everstep_savers.parts import Find, StoredValue, gathered, joined
from everstep_savers.rows import CheckpointRow, ThreadRow, WriteRow
from everstep_savers.sealing import opened_checkpoint, opened_thread, opened_value, opened_write
from everstep_savers.sql.queries import CHILD, THREAD, VALUE, WRITE, PageShape

_JSON_TYPES: Mapping[type, str] = {
    int: "integer",
    float: "real",
    str: "text",
    list: "array",
    dict: "object",
    type(None): "null",
}

# Checkpoint rows by place: thread, namespace, id.
Place = tuple[str, str, str]


@dataclass(slots=True)
class Page:
    """The rows of one query, by kind."""

    checkpoints: list[CheckpointRow] = field(default_factory=list)
    children: list[CheckpointRow] = field(default_factory=list)
    threads: list[ThreadRow] = field(default_factory=list)
    newest_version: int = 0
    values: dict[tuple[str, str, str, str], StoredValue] = field(default_factory=dict)
    writes: dict[Place, list[WriteRow]] = field(default_factory=lambda: defaultdict(list))

    def tuples(
        self,
        codec: Codec,
        results: Mapping[Place, Sequence[PendingWrite]],
        chains: dict[str, Chain] | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Decode the checkpoints, each with its own writes and then `results`; `chains` gets those of the lists."""
        for row in self.checkpoints:
            place = row[:3]
            writes = decode_writes(codec, self.writes.get(place, ()))
            writes += results.get(place, ())
            yield decode_tuple(codec, row, self.finder(row), writes, chains)

    def opened(self, codec: Codec) -> Page:
        """The same rows, with what is sealed opened."""
        return Page(
            [opened_checkpoint(codec, row) for row in self.checkpoints],
            [opened_checkpoint(codec, row) for row in self.children],
            [opened_thread(codec, row) for row in self.threads],
            self.newest_version,
            {key: opened_value(codec, *key[:3], row) for key, row in self.values.items()},
            {place: [opened_write(codec, row) for row in rows] for place, rows in self.writes.items()},
        )

    def raw_value(self, channel: str) -> Encoded | None:
        """A channel's value in the first checkpoint, as it is stored."""
        row = self.checkpoints[0]
        inside = {} if row.body.startswith(SEALED_BODY) else unpack_body(row).transient
        if (kept := inside.get(channel)) is not None:
            return kept[0], kept[1]
        rows = gathered(self.finder(row), channel, version_keys(row.versions).get(channel) or "")
        return joined(rows) if rows else None

    def finder(self, row: CheckpointRow) -> Find:
        """Gives the values stored in the place of a checkpoint."""
        thread_id, checkpoint_ns = row[:2]
        return lambda channel, version: self.values.get((thread_id, checkpoint_ns, channel, version))


def read_page(rows: Sequence[Sequence[Any]]) -> Page:
    """Sort a query's rows by kind, checkpoints newest first."""
    page = Page()
    for kind, t0, t1, t2, t3, t4, t5, t6, t7, n0, n1, n2, n3, n4, n5, data in rows:
        if kind == VALUE:
            page.values[t0, t1, t2, t3] = StoredValue(t3, t4, data, t5)
        elif kind == WRITE:
            page.writes[t0, t1, t2].append(WriteRow(t0, t1, t2, t3, n0, t4, t5, data, t6))
        elif kind == THREAD:
            page.threads.append(ThreadRow(t0, t1, t2, n0, t3, t4, n1, t5, t6, data, n2, n3, t7, n5))
            page.newest_version = n4
        else:
            row = CheckpointRow(t0, t1, t2, t3, n0, t4, t5, n1, t6, data, t7)
            (page.children if kind == CHILD else page.checkpoints).append(row)
    page.checkpoints.sort(key=lambda row: (row.checkpoint_id, *row[:2]), reverse=True)
    return page


@dataclass(slots=True)
class Listing:
    """What an `alist` selects, and how far it has come.

    Results of a step are kept in the checkpoint it led to, and shown with the checkpoint it started from. A
    whole listing meets the children of a checkpoint before it; any other must ask for them.
    """

    shape: PageShape
    values: dict[str, Any]
    results: dict[Place, list[PendingWrite]] = field(default_factory=lambda: defaultdict(list))

    def take(self, codec: Codec, page: Page) -> Iterator[CheckpointTuple]:
        """Decode a page, and move the cursor behind it."""
        for row in page.children if self.shape.has_children else page.checkpoints:
            if row.parent_id is not None and (results := decode_results(codec, row, page.finder(row))):
                self.results[row.thread_id, row.checkpoint_ns, row.parent_id] += results
        if page.checkpoints:
            thread_id, checkpoint_ns, checkpoint_id = page.checkpoints[-1][:3]
            self.values |= {
                "cursor_id": checkpoint_id,
                "cursor_thread_id": thread_id,
                "cursor_ns": checkpoint_ns,
            }
            self.shape = self.shape._replace(has_cursor=True)
        return page.tuples(codec, self.results)


def listing_of(
    config: Config | None, filter: Mapping[str, Any] | None, before: Config | None, *, is_postgres: bool
) -> Listing:
    """Turn the arguments of `alist` into a shape and bound values."""
    address = address_of(config) if config else None
    namespace = config["configurable"].get("checkpoint_ns") if config else None
    bound = address_of(before).checkpoint_id if before else None
    wanted = encode_metadata(filter or {})
    columns = {
        name: value for name, value in zip(("source", "step", "run_id"), wanted[:3], strict=True) if value is not None
    }
    filters, values = _filters(read_rest(wanted.rest), is_postgres=is_postgres)
    given: dict[str, Any] = {"before": bound, **columns, **values}
    if address is not None:
        given |= address._asdict()
    shape = PageShape(
        has_thread=address is not None,
        has_namespace=namespace is not None,
        has_id=address is not None and address.checkpoint_id is not None,
        has_before=bound is not None,
        columns=tuple(columns),
        filters=filters,
    )
    is_whole = not (shape.has_id or shape.has_before or shape.columns or shape.filters)
    return Listing(shape._replace(has_children=not is_whole), given)


def _filters(wanted: Mapping[str, Any], *, is_postgres: bool) -> tuple[tuple[str, ...], dict[str, Any]]:
    types, values = [], {}
    for position, (key, value) in enumerate(wanted.items()):
        text = canonical_json(value)
        types.append(text if isinstance(value, bool) else _JSON_TYPES[type(value)])
        is_scalar = isinstance(value, str | int) and not isinstance(value, bool)
        values[f"key_{position}"] = key
        values[f"value_{position}"] = value if is_scalar and not is_postgres else text
    return tuple(types), values
