"""The forms in which readers get events: bare payloads and tuples (v1), typed parts (v2), lines of text.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from everstep.constants import INTERRUPT
from everstep.errors import ConfigError, did_you_mean
from everstep.stream.events import Event
from everstep.types import Interrupt, StreamMode, StreamVersion

MODES = ("values", "updates", "custom", "messages", "tasks", "checkpoints", "debug")

Modes = StreamMode | Sequence[StreamMode]


@dataclass(frozen=True, slots=True)
class View:
    """How a reader wants to see events.

    Attributes:
        modes: What is yielded; `printed` are the modes whose events are printed.
        pairs: Each v1 item begins with its mode; `with_ns`: with its namespace, which comes first.
    """

    modes: tuple[str, ...]
    printed: tuple[str, ...] = ()
    pairs: bool = False
    with_ns: bool = False
    version: StreamVersion = "v1"

    @property
    def read(self) -> frozenset[str]:
        """The modes of which events are needed."""
        return frozenset((*self.modes, *self.printed))

    def item(self, event: Event) -> Any:
        """What is yielded for an event."""
        return as_part(event) if self.version == "v2" else self._bare(event)

    def _bare(self, event: Event) -> Any:
        data = with_questions(event.data, event.interrupts, tuple)
        if self.pairs:
            return (event.ns, event.mode, data) if self.with_ns else (event.mode, data)
        return (event.ns, data) if self.with_ns else data


def view_of(mode: Modes | None, print_mode: Modes, version: StreamVersion, *, subgraphs: bool) -> View:
    """A reader's options, checked.

    Raises:
        ConfigError: There is no such mode or version.
        ImportError: Mode "messages" is read, and langchain-core is not installed.
    """
    modes = ("updates",) if mode is None else _names(mode, "stream_mode")
    pairs = not (mode is None or isinstance(mode, str))
    if version not in get_args(StreamVersion):
        raise ConfigError(f"version is 'v1' or 'v2', got {version!r}")
    view = View(modes, _names(print_mode, "print_mode"), pairs, subgraphs, version)
    if "messages" in view.read:
        _check_installed()
    return view


def _names(given: Modes, what: str) -> tuple[str, ...]:
    if not isinstance(given, Iterable):
        raise ConfigError(f"{what} is a mode or a list of modes, got {type(given).__name__} {given!r:.100}")
    modes = (given,) if isinstance(given, str) else tuple(given)
    for mode in modes:
        if mode not in MODES:
            raise ConfigError(
                f"{what} {mode!r} is not one of {', '.join(map(repr, MODES))}.{did_you_mean(str(mode), MODES)}"
            )
    return modes


def _check_installed() -> None:
    try:
        import langchain_core.callbacks
        import langchain_core.runnables.config  # noqa: F401  # nodes' models inherit through it
    except ImportError as error:
        raise ImportError("stream mode 'messages' needs langchain-core: pip install 'everstep[langchain]'") from error


def with_questions(values: Any, questions: Sequence[Interrupt], kind: type[list[Any] | tuple[Any, ...]]) -> Any:
    """The values of a run together with its open questions."""
    if not questions:
        return values
    return {**(values if isinstance(values, dict) else {}), INTERRUPT: kind(questions)}


def as_part(event: Event) -> dict[str, Any]:
    """An event as a `StreamPart`."""
    part: dict[str, Any] = {"type": event.mode, "ns": event.ns, "data": _modelled(event)}
    if event.mode == "values":
        part["interrupts"] = event.interrupts
    if any(number > 1 for number in event.attempts):
        part["attempts"] = event.attempts
    return part


def _modelled(event: Event) -> Any:
    model, data = event.model, event.data
    if model is None:
        return data
    if event.mode == "values":
        return as_model(model, data)
    if event.mode == "debug":
        return {**data, "payload": _values_modelled(model, data["payload"])}
    return _values_modelled(model, data)


def _values_modelled(model: Callable[[Any], Any], payload: Mapping[str, Any]) -> dict[str, Any]:
    return {**payload, "values": as_model(model, payload["values"])}


def as_model(model: Callable[[Any], Any] | None, values: Any) -> Any:
    """Values as an instance of the schema; as they are where they are nothing yet, or not enough for one."""
    if model is None or not values:
        return values
    try:
        return model(values)
    except (TypeError, ValueError):  # a dataclass, or a pydantic model, that lacks a required field so far
        return values


def as_text(event: Event, *, with_style: bool) -> str:
    """An event as it is printed."""
    bold, dim, off = ("\x1b[1m", "\x1b[2m", "\x1b[0m") if with_style else ("", "", "")
    place = f" {dim}[graph={event.ns}]{off}" if event.ns else ""
    return f"{bold}[{event.mode}]{off}{place} {with_questions(event.data, event.interrupts, tuple)!r}"
