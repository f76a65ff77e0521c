"""Errors of everything that outlives the process.

Every error says what happened, with the thread, key and value it happened to, then the way out.

::

    PersistenceError
    ├── CodecError             a value that cannot be kept, or stored bytes that cannot be read
    ├── CheckpointNotFound     a config names a checkpoint the thread does not have
    ├── ThreadConflict         another run moved the thread since it was read; nothing was written
    │   └── LeaseLost          a later run has claimed the thread, or this one was removed; it stores nothing more
    ├── ThreadDeleted          the thread was deleted while the run was under way
    ├── SchemaOutOfDate        the database's schema is behind or ahead of this package
    ├── DatabaseUnavailable    the database cannot be reached or refused the connection
    ├── InvalidNamespaceError  (ValueError) a store cannot have such a namespace; nothing was done
    └── InvalidKeyError        (ValueError) a name that no database can hold in a key; nothing was done
"""

from __future__ import annotations


class PersistenceError(Exception):
    """Base of all errors of the savers."""


class CodecError(PersistenceError):
    """A value cannot be stored as it is, or stored bytes cannot be read back.

    Attributes:
        reason: What is wrong, without the place.
        path: The place inside the value, such as ``['items'][3].price``; empty for the value itself.
        place: Where the value lives, such as ``state key 'order'`` and ``thread 't-1'``, outermost last.
    """

    def __init__(self, reason: str, *, path: str = "", place: tuple[str, ...] = ()) -> None:
        self.reason = reason
        self.path = path
        self.place = place
        where = ", ".join(([f"at {path}"] if path else []) + list(place))
        super().__init__(f"{reason} ({where})" if where else reason)

    def within(self, *place: str) -> CodecError:
        """The same error with the place it happened in added, outermost last."""
        return type(self)(self.reason, path=self.path, place=(*self.place, *place))


class CheckpointNotFound(PersistenceError):
    """The thread exists, the named checkpoint does not."""


class ThreadConflict(PersistenceError):
    """Another run moved the thread between reading and claiming it; nothing was written."""


class LeaseLost(ThreadConflict):
    """A later run has claimed the thread, or this run was removed: what it tried to store was refused."""


class ThreadDeleted(PersistenceError):
    """The thread was deleted while the run was under way; the late write was refused."""


class SchemaOutOfDate(PersistenceError):
    """The database's schema is behind or ahead of this package; the message has the command to run."""


class DatabaseUnavailable(PersistenceError):
    """The database cannot be reached, or refused the connection; the URL is shown without its password."""


class InvalidNamespaceError(PersistenceError, ValueError):
    """A namespace that a store cannot have; the operation was not done."""


class InvalidKeyError(PersistenceError, ValueError):
    """A thread, namespace, checkpoint or other name that cannot be part of a key; the operation was not done."""
