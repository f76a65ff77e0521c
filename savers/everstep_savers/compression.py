"""Compression of large stored values by zstd; needs the package ``zstandard`` (extra ``zstd``).

Worth it for text and records of a kilobyte and more, which take half the bytes or less. What does not shrink by an
eighth stays as it is.
"""

from __future__ import annotations

import threading
from typing import Any

from everstep_savers.codec import COMPRESSED, Encoded
from everstep_savers.errors import CodecError
from everstep_savers.sealing import Seal

# No value that was ever stored is larger; what claims to be is damage.
_LARGEST = 2**31


class Compression(Seal):
    """Compresses values of many bytes.

    Args:
        over: Only values of more bytes than this.
        level: zstd's; 1 is the fastest.
    """

    def __init__(self, *, over: int = 1024, level: int = 1) -> None:
        self._over = over
        self._level = level
        # The package's objects belong to one thread at a time.
        self._own = threading.local()

    def close(self, encoded: Encoded, place: str) -> Encoded:
        tag, data = encoded
        if len(data) <= self._over:
            return encoded
        smaller = self._tools()[0].compress(tag.encode() + data)
        return (COMPRESSED, smaller) if len(smaller) < len(data) - len(data) // 8 else encoded

    def is_on(self, tag: str) -> bool:
        return tag == COMPRESSED

    def is_newest(self, tag: str) -> bool:
        return tag == COMPRESSED

    def open(self, encoded: Encoded, place: str) -> Encoded:
        _, tool, size_of = self._tools()
        data = encoded[1]
        try:
            if not 0 < size_of(data).content_size <= _LARGEST:
                raise CodecError("the compressed bytes do not tell their size")
            opened = tool.decompress(data)
        except CodecError:
            raise
        except Exception as error:  # the package's own, which is not loaded here
            raise CodecError(f"the compressed bytes cannot be read: {error}") from error
        return opened[:1].decode("latin-1"), opened[1:]

    def _tools(self) -> Any:
        tools = getattr(self._own, "tools", None)
        if tools is None:
            # Optional.
            import zstandard

            tools = (
                zstandard.ZstdCompressor(level=self._level),
                zstandard.ZstdDecompressor(),
                zstandard.get_frame_parameters,
            )
            self._own.tools = tools
        return tools
