"""Exceptions: built-in ones as they were, all others as a record of what they said.

Of a built-in exception its type, arguments and notes are kept, and the attributes that its type fills
beside the arguments; its traceback, cause and context are not, nor the object of an AttributeError.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from everstep_savers.values.builtin import pair_up
from everstep_savers.values.tree import FINDERS, LIFTERS, Lowering, RefusedError, type_name

_EXCEPTION = 82  # stored code; never renumber

# Attributes that built-in exceptions take by keyword and leave out of their arguments.
_BY_KEYWORD = ("name", "path", "name_from")


@dataclass(frozen=True, slots=True)
class StoredError:
    """What is kept of an exception that cannot be kept as it was.

    Attributes:
        type_name: Module and name of its class.
        text: What `str` gave for it.
        notes: Its `__notes__`.
    """

    type_name: str
    text: str
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: BaseException) -> StoredError:
        """Write down an exception; does not fail, whatever the exception's own methods do."""
        try:
            text = str.__str__(str(error))
        except Exception as failure:
            text = f"<its __str__ raised {type_name(type(failure))}>"
        notes = BaseException.__getattribute__(error, "__dict__").get("__notes__")
        kept = tuple(str.__str__(n) for n in notes if isinstance(n, str)) if type(notes) is list else ()
        return cls(type_name(type(error)), text, kept)


def _find_exception(kind: type) -> Callable[[Lowering, Any], Any] | None:
    if issubclass(kind, BaseException) and getattr(builtins, kind.__name__, None) is kind:
        return _lower_exception
    return None


def _lower_exception(walk: Lowering, error: BaseException) -> list[Any]:
    # The arguments with which an OSError was made are known to its __reduce__ alone.
    args: Any = type(error).__reduce__(error)[1]
    lowered = walk.mark(_EXCEPTION, type(error).__name__.encode())
    try:
        lowered.append(walk.items(args, []))
    except RefusedError as refused:
        refused.at(".args")
        raise
    keywords = {name: getattr(error, name, None) for name in _BY_KEYWORD}
    attributes = vars(error) | {name: value for name, value in keywords.items() if value is not None}
    return walk.attributes(attributes, lowered)


def _lift_exception(data: bytes, items: list[Any]) -> BaseException:
    cls = getattr(builtins, data.decode(), None)
    if not (isinstance(cls, type) and issubclass(cls, BaseException)):
        raise RefusedError(f"the stored bytes are damaged: {data!r} is no built-in exception")
    error = cls(*items[0])
    if type(error) is not cls:
        raise RefusedError(f"the stored {type_name(cls)} would come back as {type_name(type(error))}")
    for name, value in pair_up(items[1:]).items():
        if name in _BY_KEYWORD:
            setattr(error, name, value)
        else:
            vars(error)[name] = value
    return error


FINDERS.append(_find_exception)
LIFTERS[_EXCEPTION] = _lift_exception
