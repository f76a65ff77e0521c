"""What savers say when they refuse: whole messages, with names, and the way out."""

from __future__ import annotations

from typing import Any

import pytest

from everstep_savers.addresses import Address, address_of
from everstep_savers.checkpoint import Claim, Commit, ThreadRecord
from everstep_savers.codec import default_codec
from everstep_savers.encoding import encode_commit, task_writes
from everstep_savers.errors import CodecError, InvalidKeyError
from everstep_savers.fencing import ThreadState, checkpoint_missing, copy_refused, refusal, value_conflict
from everstep_savers.metadata import encode_metadata

SEEN = ThreadRecord("t-1", "head-1", "done", 1)


def refused(claim: Claim | None, state: ThreadState | None, token: int = 1) -> tuple[str, str]:
    error = refusal(encode_commit(default_codec, Commit("t-1", claim=claim, token=token)), state)
    return type(error).__name__, str(error)


def test_a_claim_of_a_thread_that_moved() -> None:
    claim = Claim(SEEN, "run-2", "orders")

    assert refused(claim, ThreadState(2, "head-2", 0, is_deleted=False)) == (
        "ThreadConflict",
        (
            "thread 't-1' was moved by another run since it was read: seen token 1 at head 'head-1', found token 2 at "
            "head 'head-2'; nothing was written. Read the thread again before another attempt."
        ),
    )
    assert "seen token 1 at head 'head-1', found no row;" in refused(claim, None)[1]
    assert refused(claim, ThreadState(1, "head-1", 0, is_deleted=False)) == (
        "ThreadConflict",
        (
            "checkpoints of thread 't-1' were removed since it was read, and the one to go on from may be among them; "
            "nothing was written. Read the thread again before another attempt."
        ),
    )
    assert "found no row;" in refused(claim, ThreadState(2, None, 2, is_deleted=True))[1]
    unseen = Claim(None, "run-2", "orders")
    assert "seen no row, found token 0 at head None;" in refused(unseen, ThreadState(0, None, 0, is_deleted=False))[1]


def test_a_run_that_lost_its_thread() -> None:
    assert refused(None, ThreadState(2, "head", 0, is_deleted=False)) == (
        "LeaseLost",
        (
            "thread 't-1' has been claimed by a later run (token 2, this run holds 1); nothing was written and this "
            "run stores nothing more."
        ),
    )


def test_a_run_that_was_removed() -> None:
    removed = ThreadState(2, "head", 0, is_deleted=False, is_owned=False)

    assert refused(None, removed) == (
        "LeaseLost",
        (
            "thread 't-1' lost this run, or the one it goes on from, when runs were removed (adelete_for_runs); "
            "nothing was written and this run stores nothing more."
        ),
    )
    assert refused(Claim(SEEN, "run-2", "orders"), removed) == (
        "ThreadConflict",
        (
            "runs of thread 't-1' were removed (adelete_for_runs) since it was read; nothing was written. Read the "
            "thread again before another attempt."
        ),
    )
    # A thread that nobody has claimed yet, such as a copy, can move without a removal.
    assert "was moved by another run" in refused(Claim(SEEN, "run-2", "orders"), removed._replace(token=1))[1]


@pytest.mark.parametrize("state", [None, ThreadState(3, "head", 2, is_deleted=False)], ids=["gone", "made anew"])
def test_a_run_whose_thread_was_deleted(state: ThreadState | None) -> None:
    assert refused(None, state) == (
        "ThreadDeleted",
        (
            "thread 't-1' was deleted while this run was under way; nothing was written. A new run may use the "
            "thread id again."
        ),
    )


def test_a_second_value_under_one_version() -> None:
    assert str(value_conflict("t-1")) == (
        "thread 't-1' has another value under one of this checkpoint's channel versions already; nothing was written. "
        "A branch from an older checkpoint must count its versions on from the newest one of the thread "
        "(`Loaded.newest_version`)."
    )


def test_a_checkpoint_that_is_not_there() -> None:
    assert str(checkpoint_missing(Address("t-1", "", "none"))) == (
        "thread 't-1' has no checkpoint 'none'; alist shows those it has."
    )
    assert str(checkpoint_missing(Address("t-1", "sub", "none"))) == (
        "thread 't-1' has no checkpoint 'none' in namespace 'sub'; alist shows those it has."
    )


def test_a_copy_without_a_source_or_with_a_target() -> None:
    assert str(copy_refused("t-1", "t-2")) == (
        "thread 't-1' was not copied to 't-2': there is no thread 't-1', or thread 't-2' exists already; nothing was "
        "written."
    )


@pytest.mark.parametrize(
    ("configurable", "complaint"),
    [
        ({}, "the config names no thread; pass one, such as {'configurable': {'thread_id': 'order-17'}}"),
        (
            {"thread_id": "a\0b"},
            r"thread_id 'a\x00b' contains a NUL character, which a database key cannot hold",
        ),
        (
            {"thread_id": "t", "checkpoint_ns": "a\ud800b"},
            r"checkpoint_ns 'a\ud800b' contains a lone surrogate, which a database key cannot hold",
        ),
        (
            {"thread_id": "t", "checkpoint_id": "a\0b"},
            r"checkpoint_id 'a\x00b' contains a NUL character, which a database key cannot hold",
        ),
        ({"thread_id": 1.5}, "thread_id must be a string, not 1.5"),
        (
            {"thread_id": ""},
            "the config names no thread; pass one, such as {'configurable': {'thread_id': 'order-17'}}",
        ),
    ],
    ids=str,
)
def test_a_config_that_names_nothing(configurable: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidKeyError) as caught:
        address_of({"configurable": configurable})

    assert str(caught.value) == complaint


def test_writes_without_a_checkpoint() -> None:
    with pytest.raises(ValueError) as caught:
        task_writes(Address("t-1"), [("a", 1)], "task-1", "")

    assert str(caught.value) == (
        "writes of task 'task-1' belong to a checkpoint, but the config for thread 't-1' has no checkpoint_id; "
        "pass the config that aput or aget_tuple returned"
    )


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        pytest.param(object(), "builtins.object is not JSON (at user.x)", id="object"),
        (float("nan"), "nan is not JSON (at user.x)"),
        (2**63, "9223372036854775808 does not fit into 64 bits (at user.x)"),
        ({1: 2}, "key 1 is not a string (at user.x)"),
        ("a\0", r"'a\x00' contains a NUL character (at user.x)"),
        ([1, {2}], "builtins.set is not JSON (at user.x[1])"),
    ],
    ids=str,
)
def test_metadata_that_is_not_json(value: Any, complaint: str) -> None:
    with pytest.raises(CodecError) as caught:
        encode_metadata({"user": {"x": value}})

    assert str(caught.value) == f"metadata must be JSON: {complaint}"
