"""Where the saver under test keeps things: how to open a saver there, also from another program."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any


@dataclass(frozen=True, slots=True)
class Storage:
    """A factory of savers, and what tells one storage from another.

    Attributes:
        factory: ``module:callable``; the callable may be dotted. It takes the argument and gives a saver, an
            asynchronous context manager of one, or a coroutine of either. Called twice with the same argument it
            gives two savers that share what they keep.
        argument: Names a storage, empty at first; a folder that exists, unless somebody else makes the arguments.
    """

    factory: str
    argument: str

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Any]:
        """A saver on this storage, open until the block is left."""
        module, _, name = self.factory.partition(":")
        factory: Any = reduce(getattr, name.split("."), importlib.import_module(module))
        made = factory(self.argument)
        async with AsyncExitStack() as stack:
            if inspect.isawaitable(made):
                made = await made
            is_saver = hasattr(made, "aget_tuple")
            if not is_saver:
                made = await stack.enter_async_context(made)
            # A database gets its schema before a saver opens it.
            if inspect.iscoroutinefunction(getattr(made, "setup", None)):
                await made.setup()
            if is_saver and hasattr(made, "__aenter__"):
                made = await stack.enter_async_context(made)
            yield made
