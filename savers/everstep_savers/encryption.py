"""Encryption of stored values: AES-256-GCM, with keys that have names and can be followed by others.

A value is encrypted under a key made of the named one and a random salt, which each process makes anew, so that random
nonces may be as short as they are. The name of the key is the value's tag: it tells which keys are still in use. What
is encrypted holds only in its place, so that nobody who can write the database puts one value where another was, in
this thread or in another. Needs the package ``cryptography`` (extra ``crypto``).
"""

from __future__ import annotations

import hmac
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from everstep_savers.codec import ENCRYPTED, Encoded
from everstep_savers.errors import CodecError
from everstep_savers.sealing import Seal

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,32}")
_KEY, _SALT, _NONCE = 32, 16, 12
# Messages under one salt; random nonces of 12 bytes are safe for twice as many.
_MESSAGES = 2**31


class Encryption(Seal):
    """Encrypts everything that is stored under the current key, and reads what was under any of the keys.

    To change the key, add a new one and make it current; the old one can go when nothing is left under it.

    Args:
        keys: By name, 32 bytes each, or their base64 text, as `new_key` gives it.
        current: The name of the key under which values are stored; the last one by default.
        is_required: Refuse to read values that are not encrypted. False for a database that had some before.

    Raises:
        ValueError: A key or its name is none.
    """

    is_secret = True

    def __init__(
        self, keys: Mapping[str, bytes | str], *, current: str | None = None, is_required: bool = True
    ) -> None:
        if not keys:
            raise ValueError("Encryption needs a key at least: Encryption({'2026': Encryption.new_key()})")
        self._keys = {_checked_name(name): _checked_key(name, key) for name, key in keys.items()}
        self._current = next(reversed(self._keys)) if current is None else current
        if self._current not in self._keys:
            raise ValueError(f"current={current!r} is none of the keys {', '.join(self._keys)}")
        self.is_required = is_required
        self._salt, self._left = b"", 0
        self._cipher: Any = None

    @staticmethod
    def new_key() -> str:
        """A new random key, as text."""
        return b64encode(os.urandom(_KEY)).decode()

    def close(self, encoded: Encoded, place: str) -> Encoded:
        if not self._left:
            self._salt, self._left = os.urandom(_SALT), _MESSAGES
            self._cipher = _cipher(self._keys[self._current], self._salt)
        self._left -= 1
        tag, data = encoded
        nonce = os.urandom(_NONCE)
        sealed = self._cipher.encrypt(nonce, tag.encode() + data, place.encode())
        return f"{ENCRYPTED}{self._current}", b"%b%b%b" % (self._salt, nonce, sealed)

    def is_on(self, tag: str) -> bool:
        return tag.startswith(ENCRYPTED)

    def is_newest(self, tag: str) -> bool:
        return tag == f"{ENCRYPTED}{self._current}"

    def open(self, encoded: Encoded, place: str) -> Encoded:
        tag, data = encoded
        name = tag.removeprefix(ENCRYPTED)
        key = self._keys.get(name)
        if key is None:
            raise CodecError(f"the value is encrypted under the key {name!r}, which is none of {', '.join(self._keys)}")
        cipher = _cipher(key, data[:_SALT])
        try:
            opened = cipher.decrypt(data[_SALT : _SALT + _NONCE], data[_SALT + _NONCE :], place.encode())
        except Exception as error:  # the package's own, which is not loaded here, and those of too few bytes
            raise CodecError(
                f"the value cannot be decrypted: it was changed or put into another place, or the key {name!r} is "
                "another one than it was encrypted under"
            ) from error
        return opened[:1].decode("latin-1"), opened[1:]


@lru_cache(maxsize=1024)
def _cipher(key: bytes, salt: bytes) -> Any:
    """AES-256-GCM under the key that HKDF (RFC 5869) makes of a key and a salt."""
    # Optional, and slow to load.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    extracted = hmac.digest(salt.ljust(_SALT, b"\0"), key, "sha256")
    return AESGCM(hmac.digest(extracted, b"everstep AES-256-GCM\x01", "sha256"))


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"a key's name has 1 to 32 letters, digits or one of _.-, unlike {name!r}")
    return name


def _checked_key(name: str, key: bytes | str) -> bytes:
    try:
        found = b64decode(key, validate=True) if isinstance(key, str) else key
    except ValueError:
        found = b""
    if len(found) != _KEY:
        raise ValueError(f"key {name!r} must be {_KEY} bytes or their base64 text; Encryption.new_key() makes one")
    return found
