"""Why a commit was refused: a thread's row as it stands against what the commit had seen of it.

Pure, so that all savers refuse in the same cases with the same words. Whoever calls this has found that the
thread's row did not let the commit through; nothing has been written.
"""

from __future__ import annotations

from typing import NamedTuple

from everstep_savers.addresses import Address
from everstep_savers.errors import (
    CheckpointNotFound,
    CodecError,
    LeaseLost,
    PersistenceError,
    ThreadConflict,
    ThreadDeleted,
)
from everstep_savers.rows import EncodedCommit


class ThreadState(NamedTuple):
    """The part of a thread's row that guards it.

    Attributes:
        token: Token of the last claim; a deletion takes one too.
        head: Id of the newest root checkpoint.
        generation: Token of the last deletion, 0 if there was none: older tokens belong to a deleted thread.
        is_deleted: The row only remembers the token of a thread that is gone.
        is_owned: Its token is that of a claim. A removal of runs takes the token from whoever held it, and is not one.
    """

    token: int
    head: str | None
    generation: int
    is_deleted: bool
    is_owned: bool = True

    def is_taken_from(self, token: int | None) -> bool:
        """Have runs been removed, and with them the claim of this token?"""
        return not (self.is_deleted or self.is_owned) and token is not None and token < self.token


def refusal(commit: EncodedCommit, state: ThreadState | None) -> PersistenceError:
    """The error for a commit that the thread's row did not let through."""
    thread = f"thread {commit.thread_id!r}"
    if commit.claim is None:
        if state is None or commit.token < state.generation:
            return ThreadDeleted(
                f"{thread} was deleted while this run was under way; nothing was written. "
                "A new run may use the thread id again."
            )
        if state.is_taken_from(commit.token):
            return LeaseLost(
                f"{thread} lost this run, or the one it goes on from, when runs were removed (adelete_for_runs); "
                "nothing was written and this run stores nothing more."
            )
        return LeaseLost(
            f"{thread} has been claimed by a later run (token {state.token}, this run holds {commit.token}); "
            "nothing was written and this run stores nothing more."
        )
    if state is not None and state.is_taken_from(commit.claim.seen_token):
        return ThreadConflict(
            f"runs of {thread} were removed (adelete_for_runs) since it was read; nothing was written. Read the thread "
            "again before another attempt."
        )
    seen = _described(commit.claim.seen_token, commit.claim.seen_head)
    found = "no row" if state is None or state.is_deleted else _described(state.token, state.head)
    if seen == found:
        return ThreadConflict(
            f"checkpoints of {thread} were removed since it was read, and the one to go on from may be among them; "
            "nothing was written. Read the thread again before another attempt."
        )
    return ThreadConflict(
        f"{thread} was moved by another run since it was read: seen {seen}, found {found}; "
        "nothing was written. Read the thread again before another attempt."
    )


def value_conflict(thread_id: str) -> ThreadConflict:
    """The error for a second, different value under one channel version."""
    return ThreadConflict(
        f"thread {thread_id!r} has another value under one of this checkpoint's channel versions already; "
        "nothing was written. A branch from an older checkpoint must count its versions on from the newest "
        "one of the thread (`Loaded.newest_version`)."
    )


def checkpoint_missing(address: Address) -> CheckpointNotFound:
    """The error for a config that names a checkpoint which is not there."""
    namespace = f" in namespace {address.checkpoint_ns!r}" if address.checkpoint_ns else ""
    return CheckpointNotFound(
        f"thread {address.thread_id!r} has no checkpoint {address.checkpoint_id!r}{namespace}; "
        "alist shows those it has."
    )


def copy_refused(source: str, target: str) -> ThreadConflict:
    """The error for a copy that has nothing to start from, or something in its way."""
    return ThreadConflict(
        f"thread {source!r} was not copied to {target!r}: there is no thread {source!r}, "
        f"or thread {target!r} exists already; nothing was written."
    )


def copy_without_key(source: str, target: str) -> CodecError:
    """The error for a copy by a saver that cannot seal what it copies."""
    return CodecError(
        f"thread {source!r} was not copied to {target!r}: it is encrypted, and what is encrypted has to be sealed anew "
        "for the copy; give the saver a codec with the key"
    )


def copy_outrun(source: str, target: str) -> ThreadConflict:
    """The error for a copy whose source is written to all the time."""
    return ThreadConflict(
        f"thread {source!r} was not copied to {target!r}: it was written to while its encrypted values were read, "
        "again and again; nothing was written. Copy it when its run has stopped."
    )


def _described(token: int | None, head: str | None) -> str:
    if token is None:
        return "no row"
    return f"token {token} at head {head!r}"
