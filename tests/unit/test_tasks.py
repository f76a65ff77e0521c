"""Tasks: ids that are the same in every process, paths that order a barrier."""

from __future__ import annotations

import json
import random
import subprocess
import sys

from everstep.constants import PULL, PUSH
from everstep.tasks.node import Node
from everstep.tasks.task import Path, Task, TaskIds, path_order
from everstep.types import Interrupt

PROGRAM = """
import json
from everstep.tasks.node import Node
from everstep.tasks.task import Task, TaskIds
ids = TaskIds("1f000000-0000-6000-8000-000000000000", "parent:0123")
found = []
for name, path in (("a", ("__pregel_pull", "a")), ("b", ("__pregel_push", 12))):
    task = Task(ids, Node(name, (), "x", None), path, (), None)
    found.append([task.id, task.ns, task.question_id(0), task.question_id(3), task.path_text])
print(json.dumps(found))
"""


def task(name: str, path: Path | None = None, checkpoint_id: str = "c", ns: str = "") -> Task:
    return Task(TaskIds(checkpoint_id, ns), Node(name, (), "x", None), path or (PULL, name), (), None)


def test_ids_are_the_same_in_another_process_and_in_the_next_version() -> None:
    here: dict[str, object] = {}
    exec(PROGRAM.replace("print(json.dumps(found))", ""), here)
    env = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=env)
    assert json.loads(done.stdout) == here["found"]
    # Stored questions and results are found by these: they may never change.
    assert json.loads(done.stdout) == [
        [
            "6c29b8aa8fcf1faacaa09a480358242d",
            "parent:0123|a:6c29b8aa8fcf1faacaa09a480358242d",
            "6c4760424dd1a1edca3ae53e63163484",
            "646335976ddec4f619019d047b5752d4",
            "~__pregel_pull, a",
        ],
        [
            "b2ed1b0b01f042d5c70306ee9aeec1ae",
            "parent:0123|b:b2ed1b0b01f042d5c70306ee9aeec1ae",
            "195cf1d59e3ae49e5ccfcfb88b5f36d7",
            "6987866a70aeb7a1d261dca4fc9300cb",
            "~__pregel_push, 12",
        ],
    ]


def test_ids_differ_by_checkpoint_namespace_node_kind_and_place() -> None:
    tasks = [
        task("a"),
        task("b"),
        task("a", checkpoint_id="d"),
        task("a", ns="n"),
        task("a", (PUSH, 0)),
        task("a", (PUSH, 1)),
        task("a", (PUSH, 11)),
        task("b", (PUSH, 0)),
    ]
    assert len({each.id for each in tasks}) == len(tasks)
    assert all(len(each.id) == 32 and int(each.id, 16) >= 0 for each in tasks)


def test_parts_of_an_id_do_not_run_together() -> None:
    assert TaskIds("ab", "c").id_of("n", ()) != TaskIds("a", "bc").id_of("n", ())
    assert TaskIds("a", "").id_of("n", ("p", "q")) != TaskIds("a", "").id_of("np", ("q",))


def test_each_question_of_a_task_has_an_id_of_its_own() -> None:
    ids = [task(name).question_id(number) for name in "ab" for number in range(3)]
    assert len(set(ids)) == 6


def test_namespaces_nest() -> None:
    outer = task("outer")
    inner = task("inner", ns=outer.ns)
    assert outer.ns == f"outer:{outer.id}"
    assert inner.ns == f"outer:{outer.id}|inner:{inner.id}"


def test_paths_order_triggered_tasks_by_name_before_sent_ones_by_number() -> None:
    ordered = [task("a"), task("b"), *(task("z", (PUSH, number)) for number in (0, 2, 10, 100))]
    shuffled = list(ordered)
    random.Random(1).shuffle(shuffled)
    assert sorted(shuffled, key=path_order) == ordered


def test_a_new_task_has_neither_run_nor_asked() -> None:
    fresh = task("a")
    assert (
        fresh.finished,
        fresh.stored,
        fresh.suspended,
        fresh.writes,
        fresh.questions,
        fresh.answers,
        fresh.error,
    ) == (
        False,
        False,
        False,
        [],
        [],
        {},
        None,
    )
    fresh.questions.append(Interrupt("q", "0" * 32))
    assert task("a").questions == []
