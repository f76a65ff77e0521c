"""The live channels of one graph, with their versions: restored from a checkpoint, dumped into the next.

Versions of one thread and namespace never repeat: the next one is always greater than every version that
was ever stored there, so that a value is found by channel and version alone, on every branch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from everstep.channels.base import BaseChannel
from everstep.channels.delta import restored
from everstep.constants import TASKS
from everstep.types import MISSING
from everstep_savers.checkpoint import Checkpoint, Version

# Containers that a node gets a copy of (one level), so that changing them in place changes nothing else.
COPIED = frozenset({list, dict, set})


class Channels:
    """The live channels of a run.

    Attributes:
        live: By key.
        versions: Of the channels that were ever written.
        seen: Node -> trigger channel -> version the node last acted on.
        refused: The nodes whose writes the last barrier refused; it failed then.
        changed: Channels changed since the last checkpoint was taken, with their versions.
        transient: Keys of the channels whose values live inside the checkpoint.
        consuming: Keys of the channels that react to `consume()`.
        finishing: Keys of the channels that react to `finish()`.
    """

    __slots__ = (
        "_next_version",
        "_ticking",
        "changed",
        "consuming",
        "finishing",
        "live",
        "newest",
        "refused",
        "seen",
        "transient",
        "versions",
    )

    def __init__(
        self,
        specs: Mapping[str, BaseChannel[Any, Any]],
        checkpoint: Checkpoint | None,
        *,
        newest: Version | None = None,
        next_version: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        values: Mapping[str, Any] = checkpoint["channel_values"] if checkpoint else {}
        self.live = {key: restored(spec, values.get(key, MISSING)) for key, spec in specs.items()}
        self.versions: dict[str, Version] = dict(checkpoint["channel_versions"]) if checkpoint else {}
        self.seen = {node: dict(seen) for node, seen in checkpoint["versions_seen"].items()} if checkpoint else {}
        self.changed: dict[str, Version] = {}
        self.refused: tuple[str, ...] = ()
        self.newest: Any = newest or None
        for version in self.versions.values():
            if self.newest is None or version > self.newest:  # type: ignore[operator]  # one kind per thread
                self.newest = version
        self._next_version = next_version
        self.transient = frozenset(key for key, channel in specs.items() if channel.transient)
        # Only a channel that holds something can be changed by a step without a write.
        self._ticking = {
            key for key, channel in self.live.items() if channel.ticks and channel.checkpoint() is not MISSING
        }
        self.consuming = frozenset(key for key, channel in specs.items() if channel.reacts_to_consume)
        self.finishing = tuple(key for key, channel in specs.items() if channel.reacts_to_finish)

    def next_version(self) -> Any:
        """The version of this barrier's changes."""
        if self._next_version is not None:
            return self._next_version(self.newest, None)
        return (self.newest or 0) + 1

    def bump(self, key: str, version: Version) -> None:
        """Record that a channel changed."""
        self.versions[key] = self.changed[key] = version
        self.newest = version

    def write(self, key: str, values: Sequence[Any]) -> bool:
        """Apply the writes of one superstep to a channel; tell whether it changed."""
        channel = self.live[key]
        changed = channel.update(values)
        if channel.ticks:
            if channel.checkpoint() is MISSING:
                self._ticking.discard(key)
            else:
                self._ticking.add(key)
        return changed

    def tick(self, written: Collection[str]) -> list[str]:
        """Tell the channels nobody wrote to that a step has passed; return those that changed."""
        return [key for key in sorted(self._ticking) if key not in written and self.write(key, ())]

    def read(self, names: str | Sequence[str]) -> Any:
        """One channel's value (`MISSING` if it has none), or a mapping of those that have a value."""
        if isinstance(names, str):
            return one_level_copy(self.live[names].peek())
        found = {}
        for key in names:
            value = self.live[key].peek()
            if value is not MISSING:
                found[key] = value.copy() if type(value) in COPIED else value
        return found

    def read_with(self, channels: Sequence[str], writes: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        """Several channels' values, as they would be after `writes`."""
        written: dict[str, list[Any]] = {}
        for key, value in writes:
            written.setdefault(key, []).append(value)
        found = {}
        for key in channels:
            channel = self.live.get(key)
            if channel is None:
                continue
            if key in written:
                channel = channel.copy()
                channel.update(written[key])
            value = channel.peek()
            if value is not MISSING:
                found[key] = one_level_copy(value)
        return found

    def pending_sends(self) -> Sequence[Any]:
        """The `Send`s that wait for the next superstep."""
        sends = self.live[TASKS].peek()
        return () if sends is MISSING else sends

    def dump(self, keys: Iterable[str], *, whole: bool = False) -> dict[str, Any]:
        """What is stored of some channels; those without a value are left out.

        Args:
            whole: By a saver that knows nothing of this package.
        """
        live, found = self.live, {}
        for key in keys:
            value = live[key].snapshot() if whole else live[key].checkpoint()
            if value is not MISSING:
                found[key] = value
        return found

    def take_changed(self) -> dict[str, Version]:
        """The changes since the last call."""
        changed, self.changed = self.changed, {}
        return changed


def input_copy(value: Any) -> Any:
    """A copy of a node's input: of the mapping itself, and one level of the containers that are its values."""
    if type(value) is dict:
        return {key: one_level_copy(item) for key, item in value.items()}
    return one_level_copy(value)


def one_level_copy(value: Any) -> Any:
    """A copy of a list, dict or set whose items are shared; anything else as it is."""
    return value.copy() if type(value) in COPIED else value
