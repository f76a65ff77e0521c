"""What a run knows to be stored of its lists, so that a list which grows is stored as what was added.

A changed list shares with the stored one those items at its beginning that are the very same objects; after a reload
also those that would be stored with the same bytes. It then continues the stored parts up to there, whatever reducer
made it. Nothing here stores: `bases` of a checkpoint say what it continues, and the saver does with that what it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from everstep.errors import InvalidUpdateError
from everstep.tasks.task import Task
from everstep_savers.checkpoint import Chain, Loaded, NewCheckpoint, Part, Version
from everstep_savers.codec import Codec
from everstep_savers.delta import is_log
from everstep_savers.errors import CodecError
from everstep_savers.parts import extended, same_items, shared


class _Known(NamedTuple):
    """A list as it was stored: its items, and its parts."""

    items: list[Any]
    chain: Chain


class StoredLists:
    """The lists of one namespace, as the thread has them stored.

    Args:
        codec: Of the saver.
        loaded: What the run started from.
        verify: Find items that were changed in place after they were stored (``compile(debug=True)``).
    """

    def __init__(self, codec: Codec, loaded: Loaded, *, verify: bool = False) -> None:
        self._codec = codec
        self._verify = verify
        self._known: dict[str, _Known] = {}
        if loaded.saved is not None:
            values = loaded.saved.checkpoint["channel_values"]
            chains = loaded.chains.items()
            self._known = {key: _Known(values[key].copy(), chain) for key, chain in chains if key in values}

    def copy(self) -> StoredLists:
        """The same, for another branch."""
        copied = StoredLists(self._codec, Loaded(None), verify=self._verify)
        copied._known = dict(self._known)
        return copied

    def with_bases(self, new: NewCheckpoint, tasks: Sequence[Task] = ()) -> NewCheckpoint:
        """The checkpoint about to be stored, with what its lists continue.

        Args:
            tasks: Of this step, for the message.

        Raises:
            InvalidUpdateError: With `verify`: an item was changed in place after it was stored.
        """
        bases: dict[str, Part] = {}
        values = new.checkpoint["channel_values"]
        for key, version in new.changed.items():
            value = values.get(key)
            if type(value) is not list or key in new.transient:
                self._known.pop(key, None)
                continue
            known = self._known.get(key)
            if known is None or known.chain[-1].version != version:  # else: it failed to be stored, and is tried again
                # The copy is stored: a reducer that goes on changing its list in place changes no checkpoint.
                values[key] = items = value.copy()
                known = self._known[key] = self._next(key, items, version, tasks)
            if len(known.chain) > 1:
                bases[key] = known.chain[-2]
        return replace(new, bases=bases) if bases else new

    def _next(self, key: str, items: list[Any], version: Version, tasks: Sequence[Task]) -> _Known:
        chain = extended(self._shared(key, items, tasks), version, len(items), pinned=int(is_log(items)))
        return _Known(items, self._noted(chain, items) if self._verify else _without_bytes(chain))

    def _shared(self, key: str, items: list[Any], tasks: Sequence[Task]) -> Chain:
        """The stored parts that a list begins with."""
        known = self._known.get(key)
        if known is None:
            return ()
        kept = shared(known.chain, same_items(known.items, items))
        if self._verify:
            self._check(key, items, kept, tasks)
        for part in known.chain[len(kept) :]:
            start = kept[-1].length if kept else 0
            if part.stored is None or part.length > len(items):
                break
            if part.stored != self._encoded(items[start : part.length]):
                break
            kept = (*kept, part)
        return kept

    def _encoded(self, items: list[Any]) -> tuple[str, bytes] | None:
        try:
            return self._codec.encode(items)
        except CodecError:
            return None  # whoever stores them says so, with all there is to say

    def _noted(self, chain: Chain, items: list[Any]) -> Chain:
        """The chain with what is stored by its last part, to compare with later on."""
        start = chain[-2].length if len(chain) > 1 else 0
        return (*chain[:-1], chain[-1]._replace(stored=self._encoded(items[start:])))

    def _check(self, key: str, items: list[Any], kept: Chain, tasks: Sequence[Task]) -> None:
        start = 0
        for part in kept:
            now = items[start : part.length]
            if part.stored is not None and part.stored != self._encoded(now):
                for place, stored in enumerate(self._codec.decode(*part.stored)):
                    if self._encoded([stored]) != self._encoded(now[place : place + 1]):
                        raise _changed_in_place(key, start + place, tasks)
            start = part.length


def _without_bytes(chain: Chain) -> Chain:
    """The chain without what is stored: from now on the items themselves tell."""
    if chain[0].stored is None:
        return chain
    return tuple(part._replace(stored=None) for part in chain)


def _changed_in_place(key: str, index: int, tasks: Sequence[Task]) -> InvalidUpdateError:
    by = f", in a step of node {', '.join(repr(task.name) for task in tasks)}" if tasks else ""
    return InvalidUpdateError(
        f"item {index} of key {key!r} was changed in place after it was stored{by}; of a list that grows only what was "
        f"added is stored, so the change would be lost. Put a changed copy into the list instead"
    )
