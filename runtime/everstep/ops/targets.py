"""Objects that a command line names: ``package.module:name``.

Importing runs the module, as Python does; the current directory is searched too, as by ``python -m``.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from everstep.errors import did_you_mean


def load_target(target: str) -> Any:
    """The object that ``package.module:name`` names; dots in the name look further inside.

    Raises:
        LookupError: There is no such module, or no such name in it.
        Exception: What the module raised when it was imported.
    """
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise LookupError(f"{target!r} names nothing; write package.module:name")
    found: Any = _module(module_name)
    where = f"module {module_name!r}"
    for name in path.split("."):
        if not hasattr(found, name):
            raise LookupError(f"{where} has no {name!r}.{did_you_mean(name, dir(found))}")
        found, where = getattr(found, name), repr(name)
    return found


def _module(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a module that the named one wants
        raise LookupError(
            f"there is no module {error.name!r}; run this where it can be imported, from {here} it cannot"
        ) from None
