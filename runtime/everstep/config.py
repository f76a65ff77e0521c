"""A run's config, parsed once into a frozen record.

The user's dictionary has the shape of the neighbouring ecosystem: `configurable` with `thread_id`,
`checkpoint_ns`, `checkpoint_id` and user keys; beside it `recursion_limit`, `max_concurrency`, `tags`,
`metadata`, `run_id`, `run_name`, `callbacks`. Nothing of the engine's own ever travels in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from everstep.context import running_task
from everstep.errors import ConfigError, did_you_mean
from everstep_savers.addresses import checked_key
from everstep_savers.errors import InvalidKeyError

DEFAULT_RECURSION_LIMIT = 10_007

_KEYS = frozenset(
    {"configurable", "recursion_limit", "max_concurrency", "tags", "metadata", "run_id", "run_name", "callbacks"}
)
# Options of a call or of compile() that people put into the config, where they would do nothing.
_ELSEWHERE = frozenset(
    {
        "durability",
        "interrupt_before",
        "interrupt_after",
        "retry_policy",
        "cache_policy",
        "timeout",
        "context",
        "on_error",
    }
)


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What a run was asked for.

    Attributes:
        configurable: The user's own keys; those below are not repeated in it.
        recursion_limit: Supersteps one call may take.
        max_concurrency: Node bodies that may run at once; None for no bound.
    """

    thread_id: str | None = None
    checkpoint_ns: str = ""
    checkpoint_id: str | None = None
    configurable: Mapping[str, Any] = field(default_factory=dict)
    recursion_limit: int = DEFAULT_RECURSION_LIMIT
    max_concurrency: int | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    run_id: str | None = None
    run_name: str | None = None
    callbacks: Any = None

    def saved(self, checkpoint_id: str | None = None, checkpoint_ns: str | None = None) -> dict[str, Any]:
        """The config that names a checkpoint of this thread, for a saver."""
        configurable: dict[str, Any] = {
            "thread_id": self.thread_id,
            "checkpoint_ns": self.checkpoint_ns if checkpoint_ns is None else checkpoint_ns,
        }
        if checkpoint_id is not None:
            configurable["checkpoint_id"] = checkpoint_id
        return {"configurable": configurable}


def parse_config(config: Mapping[str, Any] | None, base: Mapping[str, Any] | None = None) -> RunConfig:
    """Parse the config of a call, over the one bound to the graph (`with_config`).

    Raises:
        ConfigError: A key is unknown or in the wrong place, or a value has the wrong type.
    """
    if not config and not base:
        return RunConfig(recursion_limit=default_recursion_limit())
    _check_shape(config)
    merged = merge_configs(base, config)
    _check_keys(merged)
    configurable = dict(merged.get("configurable") or {})
    configurable.pop("checkpoint_map", None)  # of a snapshot's config; the checkpoint itself names its parents
    return RunConfig(
        thread_id=_thread_id(configurable.pop("thread_id", None)),
        checkpoint_ns=_text(configurable.pop("checkpoint_ns", None), "checkpoint_ns") or "",
        checkpoint_id=_text(configurable.pop("checkpoint_id", None), "checkpoint_id") or None,
        configurable=configurable,
        recursion_limit=_positive(merged.get("recursion_limit"), "recursion_limit") or default_recursion_limit(),
        max_concurrency=_positive(merged.get("max_concurrency"), "max_concurrency"),
        tags=tuple(merged.get("tags") or ()),
        metadata=dict(merged.get("metadata") or {}),
        run_id=_text(merged.get("run_id"), "run_id") or None,
        run_name=_name(merged.get("run_name")),
        callbacks=merged.get("callbacks"),
    )


def _check_shape(config: Any) -> None:
    """Refuse what cannot be read as a config."""
    if config is None:
        return
    if not isinstance(config, Mapping):
        raise ConfigError(
            f'a config is a mapping such as {{"configurable": {{"thread_id": "..."}}}}, got {config!r:.100}'
        )
    for key in ("configurable", "metadata"):
        if config.get(key) is not None and not isinstance(config[key], Mapping):
            raise ConfigError(f"config key {key!r} is a mapping, got {type(config[key]).__name__} {config[key]!r:.100}")
    tags = config.get("tags")
    if tags is not None and (isinstance(tags, str) or not isinstance(tags, Iterable)):
        raise ConfigError(f"config key 'tags' is a list of strings, got {type(tags).__name__} {tags!r:.100}")


def merge_configs(*configs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Merge configs, later ones over earlier ones; `configurable` and `metadata` by key, `tags` joined."""
    merged: dict[str, Any] = {}
    for config in configs:
        for key, value in (config or {}).items():
            if value is None:
                continue
            if key in ("configurable", "metadata") and key in merged:
                merged[key] = {**merged[key], **value}
            elif key == "tags" and key in merged:
                merged[key] = [*merged[key], *(tag for tag in value if tag not in merged[key])]
            else:
                merged[key] = value
    return merged


def default_recursion_limit() -> int:
    """`EVERSTEP_RECURSION_LIMIT` of the environment, or 10,007."""
    text = os.environ.get("EVERSTEP_RECURSION_LIMIT")
    if text is None:
        return DEFAULT_RECURSION_LIMIT
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"EVERSTEP_RECURSION_LIMIT must be a whole number from 1, got {text!r}")
    return int(text)


def get_config() -> dict[str, Any]:
    """The config of the running node; for use in a node or in what it calls."""
    return running_task("get_config").config


def get_store() -> Any:
    """The store of the running graph; for use in a node or in what it calls."""
    return running_task("get_store").runtime.store


def get_stream_writer() -> Any:
    """The writer to stream mode "custom"; for use in a node or in what it calls."""
    return running_task("get_stream_writer").runtime.stream_writer


def _check_keys(config: Mapping[str, Any]) -> None:
    for key in config:
        if key in _KEYS:
            continue
        if key in _ELSEWHERE:
            raise ConfigError(
                f"config key {key!r} does nothing there; pass it to the call itself, or to compile()/add_node()"
            )
        if key in ("thread_id", "checkpoint_id", "checkpoint_ns"):
            raise ConfigError(f'config key {key!r} belongs under "configurable": {{"configurable": {{{key!r}: ...}}}}')
        raise ConfigError(
            f"unknown config key {key!r}.{did_you_mean(str(key), _KEYS)} Your own keys go under 'configurable'."
        )


def _thread_id(value: Any) -> str | None:
    if isinstance(value, str) and not value:
        raise ConfigError(
            'thread_id is empty and names no thread; pass one, such as {"configurable": {"thread_id": "order-17"}}, or '
            "leave it out where nothing is to be kept"
        )
    return _text(value, "thread_id")


def _text(value: Any, key: str) -> str | None:
    """A name that becomes part of a key, refused here and so alike whatever keeps the thread."""
    if value is None:
        return None
    if not isinstance(value, str):
        if isinstance(value, bool) or (not isinstance(value, int) and type(value).__name__ != "UUID"):
            raise ConfigError(f"{key} must be a string, got {type(value).__name__} {value!r:.100}")
        value = str(value)  # numbers and UUIDs are common thread ids; their text names the same thread
    try:
        return checked_key(key, value)
    except InvalidKeyError as error:
        raise ConfigError(f"{error}; nothing was run or written") from None


def _name(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"run_name must be a string, got {type(value).__name__} {value!r:.100}")
    return value


def _positive(value: Any, key: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{key} must be a whole number from 1, got {value!r}")
    return value
