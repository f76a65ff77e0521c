"""Several processes with one cache: what one has kept another takes, and nobody waits for one that is gone."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.recovery.conftest import Raise
from tests.recovery.killable import Ledger, Plan


@pytest.fixture
def plan(saver_url: str, tmp_path: Path) -> Plan:
    return Plan(saver_url, str(tmp_path / "ledger"))


def ran(plan: Plan) -> int:
    return len(Ledger(Path(plan.ledger)).lines())


async def test_what_one_process_has_computed_another_takes(plan: Plan, children: Raise) -> None:
    (first,) = await children("compute", [replace(plan, tag="a")])
    (second,) = await children("compute", [replace(plan, tag="b")])

    assert (first.result, second.result, first.error, second.error) == ("a", "a", None, None)
    assert ran(plan) == 1


async def test_two_processes_that_compute_at_once_each_have_a_whole_result(plan: Plan, children: Raise) -> None:
    endings = await children("compute", [replace(plan, tag=tag, meet="ab") for tag in "ab"])
    (third,) = await children("compute", [replace(plan, tag="c")])

    assert [(ending.result, ending.error) for ending in endings] == [("a", None), ("b", None)]
    assert third.result in ("a", "b")  # whoever was last
    assert ran(plan) == 2


async def test_nobody_waits_for_a_process_that_was_killed_while_it_computed(plan: Plan, children: Raise) -> None:
    both = [replace(plan, tag="a", meet="ab", point="met"), replace(plan, tag="b", meet="ab")]
    killed, other = await children("compute", both)
    (third,) = await children("compute", [replace(plan, tag="c")])

    assert (killed.killed, killed.result) == (signal.SIGKILL, None)
    assert (other.result, other.error, third.result) == ("b", None, "b")
    assert ran(plan) == 2


async def test_processes_that_write_the_same_entries_read_whole_ones(plan: Plan, children: Raise) -> None:
    endings = await children("hammer", [replace(plan, tag=tag) for tag in "abc"])

    assert [(ending.killed, ending.error, ending.result) for ending in endings] == [(0, None, "done")] * 3
