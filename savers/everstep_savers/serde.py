"""The codec by the name, and with the arguments, of the neighbouring ecosystem's serializer.

For programs that make a serializer themselves, to hand it to a saver. What it writes is our codec's; it reads nothing
that the other one wrote.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, cast

from everstep_savers.codec import Codec


class JsonPlusSerializer(Codec):
    """A codec.

    Args:
        pickle_fallback: See `Codec`, where it is called `allow_pickle`.
        allowed_msgpack_modules: Classes that may be stored, or their modules and names.
    """

    def __init__(
        self,
        *,
        pickle_fallback: bool = False,
        allowed_msgpack_modules: Iterable[type | tuple[str, str]] | None = None,
    ) -> None:
        super().__init__(allow_pickle=pickle_fallback)
        for each in allowed_msgpack_modules or ():
            self.register(each if isinstance(each, type) else _named(*each))


def _named(module: str, name: str) -> type:
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return cast(type, found)
