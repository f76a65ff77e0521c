"""Where something is kept: thread, namespace, checkpoint; read from a config and written back into one.

Every name that becomes part of a key passes `checked_key`, so that all savers refuse the same names, before
anything is stored. Knows nothing of values or of storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from everstep_savers.errors import InvalidKeyError


class Address(NamedTuple):
    """What a config names; without a `checkpoint_id` the newest checkpoint of the namespace."""

    thread_id: str
    checkpoint_ns: str = ""
    checkpoint_id: str | None = None

    def config(self) -> dict[str, Any]:
        """The config that names this address by all three keys."""
        return {
            "configurable": {
                "thread_id": self.thread_id,
                "checkpoint_ns": self.checkpoint_ns,
                "checkpoint_id": self.checkpoint_id,
            }
        }


def address_of(config: Mapping[str, Any]) -> Address:
    """Read thread, namespace and checkpoint id out of a config.

    Raises:
        InvalidKeyError: There is no thread id, or a name cannot be part of a key.
    """
    configurable = config.get("configurable") or {}
    thread_id = configurable.get("thread_id")
    if thread_id is None or thread_id == "":
        raise InvalidKeyError(
            "the config names no thread; pass one, such as {'configurable': {'thread_id': 'order-17'}}"
        )
    return Address(
        checked_key("thread_id", _as_text("thread_id", thread_id)),
        checked_key("checkpoint_ns", _as_text("checkpoint_ns", configurable.get("checkpoint_ns") or "")),
        _optional_key(configurable.get("checkpoint_id")),
    )


def checked_key(kind: str, name: str) -> str:
    """Return a name that can be part of a key in every database.

    Args:
        kind: What the name is, such as ``thread_id``; stands in the message.
        name: The name; NUL and lone surrogates are refused, since Postgres cannot keep them in a key.

    Raises:
        InvalidKeyError: With kind and name.
    """
    if not isinstance(name, str):
        raise InvalidKeyError(f"{kind} must be a string, got {type(name).__name__} {name!r:.100}")
    if "\0" in name:
        raise InvalidKeyError(f"{kind} {name!r} contains a NUL character, which a database key cannot hold")
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InvalidKeyError(
                f"{kind} {name!r} contains a lone surrogate, which a database key cannot hold"
            ) from None
    return name


def _as_text(kind: str, name: object) -> str:
    if isinstance(name, str):
        return name
    if isinstance(name, bool | float | bytes) or name is None:
        raise InvalidKeyError(f"{kind} must be a string, not {name!r}")
    return str(name)  # int and UUID are usual thread ids


def _optional_key(checkpoint_id: object) -> str | None:
    if not checkpoint_id:
        return None
    return checked_key("checkpoint_id", _as_text("checkpoint_id", checkpoint_id))


def is_shared_by_runs(checkpoint_ns: str) -> bool:
    """Whether a namespace names no task, and so is the same in every run: the root's, and that of a subgraph with a
    history of its own. The others are ``node:task`` or ``node:task|node:task``."""
    return ":" not in checkpoint_ns
