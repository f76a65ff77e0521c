"""Is what a LangGraph database holds as LangGraph stores it? Asked before anything of ours is made of it.

Pure. Whatever is damaged is refused by name: what it is, at which checkpoint. Nothing is guessed or left out, since a
thread that lacks something goes on as if it had never been. That the value of a key is missing shows only where the
key has another value in the thread: LangGraph keeps no mark of those that are not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
from sqlalchemy.exc import SQLAlchemyError

from everstep.constants import BRANCH_PREFIX, NULL_TASK_ID, START, TASKS
from everstep.types import Interrupt, Send
from everstep_savers.addresses import checked_key
from everstep_savers.checkpoint import INTERRUPT, RESUME
from everstep_savers.errors import CodecError, PersistenceError

# Where LangGraph counts the steps since the value of a delta channel was stored, by channel.
COUNTERS = "counters_since_delta_snapshot"

_NONE = type(None)
_BODY: Mapping[str, tuple[type, ...]] = {
    "v": (int,),
    "id": (str,),
    "ts": (str,),
    "channel_values": (dict,),
    "channel_versions": (dict,),
    "versions_seen": (dict,),
    "updated_channels": (list, _NONE),
}
# What may be left out of metadata, but not be something else.
_METADATA: Mapping[str, tuple[type, ...]] = {
    "step": (int, _NONE),
    "source": (str, _NONE),
    "run_id": (str, _NONE),
    "parents": (dict, _NONE),
    COUNTERS: (dict, _NONE),
}


@contextmanager
def reading(*place: str) -> Iterator[None]:
    """Name the place in what is found wrong there; what nobody has foreseen is wrong with the data."""
    try:
        yield
    except CodecError as error:
        raise error.within(*place) from error.__cause__
    except ValueError as error:  # says what is wrong
        raise CodecError(str(error), place=place) from error
    except (PersistenceError, SQLAlchemyError, OSError):
        raise
    except Exception as error:
        raise CodecError(f"it is not as LangGraph stores it: {type(error).__name__}: {error}", place=place) from error


def check_texts(**texts: Any) -> None:
    """Refuse names that cannot be keys of ours.

    Raises:
        CodecError: Names the kind of name.
    """
    for kind, text in texts.items():
        try:
            checked_key(kind, text)
        except (TypeError, ValueError) as error:
            raise CodecError(str(error)) from None


def checked_body(checkpoint_id: str, stored: Any) -> Mapping[str, Any]:
    """A checkpoint, without its metadata, if it has the parts that one has, and is the one with this id.

    Raises:
        CodecError: It has not.
    """
    _check("the stored checkpoint", stored, (dict,))
    for name, kinds in _BODY.items():
        if name not in stored and _NONE not in kinds:
            raise CodecError(f"the stored checkpoint has no {name!r}")
        _check(repr(name), stored.get(name), kinds)
    if stored["id"] != checkpoint_id:
        raise CodecError(f"the stored checkpoint is another one, {stored['id']!r}")
    _check_versions("channel_versions", stored["channel_versions"])
    for node, seen in stored["versions_seen"].items():
        _check(f"versions_seen of {node!r}", seen, (dict,))
        _check_versions(f"versions_seen of {node!r}", seen)
    for channel in (*stored["channel_values"], *stored["channel_versions"], *(stored.get("updated_channels") or ())):
        check_texts(channel=channel)
    return dict(stored)


def checked_metadata(text: Any) -> Mapping[str, Any]:
    """A checkpoint's metadata.

    Raises:
        CodecError: It is not JSON, or not what LangGraph puts there.
    """
    metadata = from_json("its metadata", text)
    _check("metadata", metadata, (dict,))
    for name, kinds in _METADATA.items():
        _check(f"{name!r} in metadata", metadata.get(name), kinds)
    for parent in (metadata.get("parents") or {}).values():
        _check("'parents' in metadata", parent, (str,))
    return {name: value for name, value in metadata.items() if value is not None or name not in _METADATA}


def check_write(task_id: str, channel: str, value: Any) -> None:
    """Look at a write whose value means something to LangGraph.

    Raises:
        CodecError: It is not of the type that it has there.
    """
    if task_id == NULL_TASK_ID or channel not in (INTERRUPT, RESUME):
        return
    _check("the stored value", value, (list, tuple))
    if channel == INTERRUPT:
        for question in value:
            _check("the stored question", question, (Interrupt,))


def check_sends(values: Mapping[str, Any]) -> None:
    """Look at what waits to be sent.

    Raises:
        CodecError: It is not of the type that it has there.
    """
    sends = values.get(TASKS)
    _check("what is to be sent", sends, (list, _NONE))
    for send in sends or ():
        _check("what is to be sent", send, (Send,))


def check_lineage(parents: Mapping[tuple[str, str], str | None]) -> None:
    """Every parent is older than its child, so that there is no circle among them.

    Args:
        parents: Of checkpoints by namespace and id.

    Raises:
        CodecError: One is not.
    """
    for (ns, checkpoint_id), parent_id in parents.items():
        if parent_id is not None and parent_id >= checkpoint_id and (ns, parent_id) in parents:
            raise CodecError(f"its parent {parent_id!r} is not older than it", place=(f"checkpoint {checkpoint_id!r}",))


def check_complete(
    place: tuple[str, str], updated: Sequence[str] | None, values: Mapping[str, Any], known: set[tuple[str, str]]
) -> None:
    """The checkpoint at a place, which is its namespace and id, has the values of the channels that were updated.

    Args:
        known: Channels whose values are stored, by namespace: those that have one anywhere in the thread.

    Raises:
        CodecError: One is missing.
    """
    ns, checkpoint_id = place
    for channel in updated or ():
        if channel not in values and ((ns, channel) in known or channel.startswith((START, TASKS, BRANCH_PREFIX))):
            raise CodecError(
                "its value is missing from the database",
                place=(f"state key {channel!r}", f"checkpoint {checkpoint_id!r}"),
            )


def from_json(what: str, text: Any) -> Any:
    """JSON as it was stored.

    Raises:
        CodecError: It is none.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise CodecError(f"{what} cannot be read: {error}") from error


def _check(what: str, value: Any, kinds: tuple[type, ...]) -> None:
    if type(value) not in kinds:
        raise CodecError(f"{what} is {type(value).__name__} {value!r:.100}, not {kinds[0].__name__}")


def _check_versions(what: str, versions: Mapping[Any, Any]) -> None:
    for channel, version in versions.items():
        if type(version) not in (int, float, str) or not str(version).partition(".")[0].isdecimal():
            raise CodecError(f"{what} has the version {version!r:.100} for {channel!r}, which is none")
