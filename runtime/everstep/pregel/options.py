"""The options of one call of a graph, and whether they can be used. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, is_dataclass
from datetime import timedelta
from typing import Any, get_args

from everstep.context import ServerInfo
from everstep.control import RunControl
from everstep.errors import ConfigError, did_you_mean
from everstep.pregel.blueprint import OnPending, checked_choice
from everstep.pregel.request import NodeNames
from everstep.types import Durability, OnError


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The options of one call, besides input and config.

    Attributes:
        context: What nodes find as `runtime.context`; a dict becomes an instance of the graph's `context_schema`.
        debug: As at compile time: print what happens, and check that nodes do not change what they share.
        on_error: "drain" lets the nodes beside one that fails finish, and raises several failures as a group.
        deadline: Seconds the whole run may take, as a number or a timedelta; then it ends with
            `DeadlineExceededError`, and its thread can be continued.
        control: Asks the run to stop at its next barrier.
        server_info: Shown to nodes as `runtime.server_info`.
    """

    context: Any = None
    output_keys: str | Sequence[str] | None = None
    interrupt_before: NodeNames | None = None
    interrupt_after: NodeNames | None = None
    durability: Durability | None = None
    on_pending: OnPending | None = None
    on_error: OnError | None = None
    deadline: float | timedelta | None = None
    control: RunControl | None = None
    server_info: ServerInfo | None = None
    debug: bool | None = None


def call_options(options: dict[str, Any]) -> CallOptions:
    """The options of a call from its keywords.

    Raises:
        TypeError: There is no such option.
        ConfigError: One has a value that means nothing.
    """
    for key in options:
        if key not in CallOptions.__slots__:
            raise TypeError(f"unknown option {key!r} of a call.{did_you_mean(key, CallOptions.__slots__)}")
    call = CallOptions(**options)
    checked_choice("on_error", call.on_error, OnError)
    checked_choice("on_pending", call.on_pending, OnPending)
    if call.control is not None and not isinstance(call.control, RunControl):
        raise ConfigError(f"control is a RunControl, got {type(call.control).__name__} {call.control!r:.100}")
    for key in ("interrupt_before", "interrupt_after", "output_keys"):
        if (names := getattr(call, key)) is not None and not isinstance(names, Iterable):
            raise ConfigError(f"{key} is a list of names, got {type(names).__name__} {names!r:.100}")
    return call


def context_of(schema: Any, given: Any) -> Any:
    """A run's context: an instance of its schema, if that is a dataclass or a model and a dict was given.

    Raises:
        TypeError: The dict does not fit the dataclass.
        ValueError: The dict does not fit the model.
    """
    is_class = isinstance(schema, type) and (is_dataclass(schema) or hasattr(schema, "model_validate"))
    return schema(**given) if is_class and type(given) is dict else given


def checked_durability(value: Durability | None) -> Durability:
    """When steps are stored; "async" unless the call says otherwise.

    Raises:
        ConfigError: It is none of the three.
    """
    if value is None:
        return "async"
    if value not in get_args(Durability):
        raise ConfigError(f"durability is 'sync', 'async' or 'exit', got {value!r}")
    return value


def checked_seconds(option: str, value: float | timedelta | None) -> float | None:
    """A limit of time, such as a deadline, in seconds.

    Raises:
        ConfigError: It is no time above zero.
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ConfigError(f"{option} is a number of seconds above zero or a timedelta, got {value!r}")
    return float(seconds)
