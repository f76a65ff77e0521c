"""Listings of a saver that may be left before their end: a saver's cursor must not stay open until it is collected."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def closing(listing: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close a listing when it is left, if it can be closed."""
    try:
        yield listing
    finally:
        if isinstance(listing, AsyncGenerator):
            await listing.aclose()
