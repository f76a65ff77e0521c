"""What two libraries tell of one program, compared; and every way in which they differ on purpose.

Order that no library promises (who of a step finishes first, in which order questions of a step are listed) is taken
out before comparing. Then comes the first place where the two differ: it is one of `ON_PURPOSE`, each of which says
how to recognise it, or a disagreement. Behind it nothing is compared, for the threads have gone different ways.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.differential.programs import Program

Json = Any


@dataclass(frozen=True, slots=True)
class Place:
    """The first place where the two differ.

    Attributes:
        number: Of the deed, from 0.
        what: `events`, `value`, `error`, `open` or `history`.
        ours, theirs: What the two tell there.
        told: What we tell of all deeds, then what they do.
    """

    program: Program
    number: int
    what: str
    ours: Json
    theirs: Json
    told: tuple[Sequence[Json], Sequence[Json]]

    @property
    def deed(self) -> Json:
        return self.program["deeds"][self.number]

    @property
    def name(self) -> str:
        return f"{self.deed['do']}.{self.what}"


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference on purpose: its name, what it is about, and how to recognise it."""

    name: str
    about: str
    is_at: Callable[[Place], bool]


def first_difference(program: Program, ours: Json, theirs: Json) -> Place | None:
    """The first place where the two differ, None if there is none."""
    ours, theirs = tidy(ours), tidy(theirs)
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        for what in ("error", "open", "value", "events", "history"):
            if mine.get(what) != other.get(what):
                return Place(program, number, what, mine.get(what), other.get(what), (ours, theirs))
    return None


def explanation(place: Place) -> Difference | None:
    """The difference on purpose that this place shows, None for a disagreement.

    The checkpoints of a history may differ for several reasons; each that differs must have one.
    """
    reasons = [next((known for known in ON_PURPOSE if known.is_at(one)), None) for one in _one_by_one(place)]
    return None if None in reasons else reasons[0]


def _one_by_one(place: Place) -> list[Place]:
    """A place in a history as one for each checkpoint that differs."""
    if place.what != "history" or len(place.ours) != len(place.theirs):
        return [place]
    return [replace(place, ours=[ours], theirs=[theirs]) for ours, theirs in _unequal(place)]


# Order --------------------------------------------------------------------------------------------------------------


def tidy(told: Json) -> Json:
    """What was told, without order that nobody promises."""
    if isinstance(told, dict):
        return [{"error": told["build"]}]
    return [_tidy_deed(one) for one in told]


def _tidy_deed(one: Json) -> Json:
    found = dict(one)
    if "events" in found:
        found["events"] = list(_tidy_events(found["events"]))
    if "value" in found:
        found["value"] = _tidy_value(found["value"])
    found["history"] = [_tidy_snapshot(snapshot) for snapshot in found["history"]]
    return found


def _tidy_snapshot(snapshot: Json) -> Json:
    """Which of several failures beside each other were noticed is a matter of time; whether there was one is not.

    Tasks of error handlers, which we show and they do not, are left out.
    """
    tasks = [
        [name, questions, result]
        for name, questions, _, result in snapshot["tasks"]
        if not name.startswith("__error_handler__")
    ]
    return {**snapshot, "tasks": tasks, "failed": any(task[2] for task in snapshot["tasks"])}


def _tidy_events(events: Json) -> Json:
    """The events of each graph by themselves, the root's first; those of one step are sorted."""
    by_graph: dict[tuple[str, ...], list[Json]] = {}
    for namespace, mode, data in events:
        # Numbers are those of a node's further calls, or attempts.
        place = tuple(level for level in namespace if not level.isdigit())
        by_graph.setdefault(place, []).append([mode, data])
    for namespace in sorted(by_graph):
        for event in _tidy_steps(by_graph[namespace]):
            yield [*namespace, *event]


def _tidy_steps(events: list[Json]) -> Json:
    """Values show where a step ends, but for those that tell of a question."""
    step: list[Json] = []
    for mode, data in events:
        if mode == "values" and "__interrupt__" not in data:
            yield from sorted(step, key=json.dumps)
            step = []
            yield [mode, data]
        elif mode == "values":
            step.append([mode, _tidy_value(data)])
        elif "__interrupt__" in data:
            step += [[mode, {"__interrupt__": question}] for question in data["__interrupt__"] or [None]]
        else:
            step.append([mode, data])
    yield from sorted(step, key=json.dumps)


def _tidy_value(value: Json) -> Json:
    if isinstance(value, dict) and "__interrupt__" in value:
        return {**value, "__interrupt__": sorted(value["__interrupt__"], key=json.dumps)}
    return value


# On purpose ---------------------------------------------------------------------------------------------------------


def _is_refused(place: Place) -> bool:
    """Here or before: the error itself must be the same at first."""
    errors = [told.get("error") for told in place.told[0]]
    first = errors.index("InvalidUpdateError") if "InvalidUpdateError" in errors else len(errors)
    return first < place.number or (first == place.number and place.what != "error")


def _can_be_read(place: Place) -> bool:
    ours, theirs = _errors(place)
    return bool(place.deed["do"] == "answer" and theirs == "InvalidUpdateError" != ours)


def _is_answered_once(place: Place) -> bool:
    """There an answer was handed to another question, when the run went on or the node asked again."""
    # A node that returns nothing does not show what it was handed.
    silent = {node["name"] for node in _nodes(place.program) if node.get("asks") and node["returns"] == "nothing"}
    is_silent = any(_has_run(place, name) for name in silent)
    if place.deed["do"] == "continue" and _asks_further(place.told[0][place.number - 1]["history"][0]):
        return True
    return place.deed["do"] in ("answer", "continue") and (is_silent or _has_stray_answer(place.theirs))


def _asks_further(snapshot: Json) -> bool:
    """Is a question open that its node asked after an answer?"""
    return any(question.split()[1] != "0" for question in _questions(snapshot))


def _has_stray_answer(told: Json) -> bool:
    """Is there an entry of a log with an answer to another question than its node asked?"""
    if isinstance(told, dict):
        return any(map(_has_stray_answer, told.values()))
    if not isinstance(told, list):
        return False
    name, *seen, answers = (told[0], *told[1:3], told[3:]) if len(told) > 3 else (None, [])
    if isinstance(name, str) and all(str(answer).startswith("answer to ") for answer in answers):
        return bool(answers != [f"answer to {name} {number} {tuple(seen)}" for number in range(len(answers))])
    return any(map(_has_stray_answer, told))


def _is_handled_once(place: Place) -> bool:
    """A handler ran again when the run went on, with the text of the error in place of the error."""
    return '"str"]' in json.dumps(place.theirs)


def _is_another_question(place: Place) -> bool:
    return bool(_errors(place)[0] == "InterruptMismatchError")


def _is_a_fresh_call(place: Place) -> bool:
    """A stateful subgraph that a command, or a run that is continued, comes to gets an input; there it has none."""
    keeping = {node["name"] for node in _nodes(place.program) if node.get("keeps")}
    if place.deed["do"] == "command":
        return any(_has_run(place, name) for name in keeping)
    if place.what != "events" or place.deed["do"] not in ("answer", "continue") or None in (place.ours, place.theirs):
        return False
    more = [event for event in place.theirs if event not in place.ours]
    return any(keeping & set(event[:-2]) and "__metadata__" in event[-1] for event in more)


def _was_updated_on_its_way(place: Place) -> bool:
    """A stateful subgraph that had asked or failed, and then an update: what it did in that run is left behind."""
    keeping = {node["name"] for node in _nodes(place.program) if node.get("keeps")}
    deeds, told = place.program["deeds"], place.told[0]
    stopped = [number for number in range(place.number) if keeping & set(told[number]["history"][0]["next"])]
    since = range(min(stopped, default=place.number) + 1, place.number)
    return place.deed["do"] in ("invoke", "continue", "answer") and any(
        deeds[number]["do"] in ("update", "fork") for number in since
    )


def _knows_its_branch_alone(place: Place) -> bool:
    """A stateful subgraph goes on from what it did on the branch the thread is on; there from what it did last."""
    if not any(node.get("keeps") and _has_run(place, node["name"]) for node in _nodes(place.program)):
        return False
    before = place.program["deeds"][: place.number]
    return place.deed["do"] == "invoke" and any(deed["do"] in ("fork", "replay") for deed in before)


def _asking(snapshots: Json) -> set[str]:
    """The nodes of which some of these checkpoints have open questions."""
    return {task[0] for snapshot in snapshots for task in snapshot["tasks"] if task[1]}


def _has_run(place: Place, name: str) -> bool:
    """Does anything that was told up to here mention a node?"""
    mentions = (f'"{name}"', f'"{name} ')  # a question begins with the name of its node
    told = json.dumps([side[: place.number + 1] for side in place.told])
    return any(mention in told for mention in mentions)


def _is_called_off(place: Place) -> bool:
    """A join with a node whose failure was handled."""
    handled = {node["name"] for node in _nodes(place.program) if node.get("handled")}
    has_run = ' handled"' in json.dumps(place.told[0][: place.number + 1])
    return has_run and any(handled & set(sources) for sources, _ in place.program["joins"])


def _waits_for_its_siblings(place: Place) -> bool:
    """Commands for the parent count at the barrier, and all of them; there one of them ends the subgraph at once."""
    subgraphs = [node for node in _nodes(place.program) if "subgraph" in node and _has_run(place, node["name"])]
    graphs = [list(_nodes(node["subgraph"])) for node in subgraphs]
    if any(sum(node["returns"] == "parent" for node in nodes) > 1 for nodes in graphs):
        return True
    return any(
        any(node["returns"] == "parent" for node in nodes) and any(node.get("asks") for node in nodes)
        for nodes in graphs
    )


def _nodes(graph: Json) -> Iterator[Json]:
    for node in graph["nodes"]:
        yield node
        if "subgraph" in node:
            yield from _nodes(node["subgraph"])


def _is_head(place: Place) -> bool:
    return place.deed["do"] == "replay" and len(place.told[0][place.number - 1]["history"]) == 1


def _stays_open(place: Place) -> bool:
    """And what has finished or failed beside it is kept: a branch from there does not run it again."""
    if place.deed["do"] == "fork" and _asking([_forked(place)]):
        return True
    return place.what == "history" and all(
        ours["source"] == "update" and _asking([ours]) and _bare(ours) == theirs for ours, theirs in _unequal(place)
    )


def _bare(snapshot: Json) -> Json:
    """A checkpoint as it would be if none of its tasks had begun."""
    return {**snapshot, "tasks": sorted([task[0], [], None] for task in snapshot["tasks"]), "failed": False}


def _forked(place: Place) -> Json:
    """The checkpoint from which a replay or a fork starts."""
    before = place.told[0][place.number - 1]["history"]
    older = before[1:] or before
    return older[place.deed["back"] % len(older)]


def _is_on_the_old_line(place: Place) -> bool:
    return place.what == "history" and _deed(place) and all(_only(*both, "results") for both in _unequal(place))


def _stands_for_a_deferred_node(place: Place) -> bool:
    """One that is deferred, or that waits for a join: what it waits for is used up."""
    deferred = {node["name"] for node in place.program["nodes"] if node.get("defer")}
    joined = {target for _, target in place.program["joins"]}
    if place.deed["do"] == "command":
        # One that asks keeps its question in both; there the run does not tell of it.
        head = place.told[0][place.number - 1]["history"][0]
        asking = _asking([head]) if place.what == "history" else set()
        return bool(deferred & set(place.deed["goto"]) & set(head["next"]) - asking)
    return _deed(place) and place.deed["as_node"] in deferred | joined


def _deed(place: Place) -> bool:
    return place.deed["do"] in ("update", "fork")


def _has_command(place: Place) -> bool:
    return any(deed["do"] == "command" for deed in place.program["deeds"][: place.number + 1])


def _keeps_what_a_command_wrote(place: Place) -> bool:
    return (
        _deed(place) and _has_command(place) and '["command"]' in json.dumps([place.ours, place.told[0][place.number]])
    )


def _shows_where_a_command_went(place: Place) -> bool:
    return (
        place.what == "history"
        and _has_command(place)
        and all(
            Counter(theirs["next"]) <= Counter(ours["next"]) and ["command"] in ours["values"].get("log", ())
            for ours, theirs in _unequal(place)
        )
    )


def _limit_is_reached(place: Place) -> bool:
    """In a subgraph, it fails the node at once: its siblings may not have begun."""
    ours, theirs = _errors(place)
    # An error handler of the subgraph's node tells of it.
    here, there = ("GraphRecursionError" in json.dumps(told) for told in (place.ours, place.theirs))
    if there and (not here or place.deed["do"] != "invoke"):
        return True
    has_subgraph = any("subgraph" in node for node in place.program["nodes"])
    return "GraphRecursionError" in (ours, theirs) and (ours != theirs or place.deed["do"] != "invoke" or has_subgraph)


def _is_asked_no_more(place: Place) -> bool:
    """Events of nodes whose questions are still open, and of the questions themselves.

    Of several that are entered again within a subgraph, not all questions are told there in the end.
    """
    if place.what == "value" and place.deed["do"] in ("answer", "continue"):
        return _fewer_questions(place.theirs, place.ours)
    if place.what != "events" or place.deed["do"] not in ("answer", "continue") or None in (place.ours, place.theirs):
        return False
    ours, theirs = (Counter(map(json.dumps, told)) for told in (place.ours, place.theirs))
    asking = {task[0] for task in place.told[0][place.number]["history"][0]["tasks"] if task[1]}
    more = [json.loads(event) for event in theirs - ours]
    return not ours - theirs and all(event[0] in asking or "__interrupt__" in event[-1] for event in more)


def _fewer_questions(fewer: Json, more: Json) -> bool:
    """Are two results the same but for questions, of which the one has some of the other's?"""
    if not (isinstance(fewer, dict) and isinstance(more, dict)):
        return False
    some, all_ = (Counter(map(json.dumps, told.get("__interrupt__", ()))) for told in (fewer, more))
    return {**fewer, "__interrupt__": []} == {**more, "__interrupt__": []} and some < all_


def _has_failed_before(place: Place) -> bool:
    return place.what == "history" and all(
        theirs["failed"] and not ours["failed"] and {**ours, "failed": True} == theirs
        for ours, theirs in _unequal(place)
    )


def _is_held_back(place: Place) -> bool:
    """There a checkpoint that is stored late has what siblings and later steps did to its joins."""
    durabilities = {deed["durability"] for deed in place.program["deeds"][: place.number + 1]}
    return (
        place.what == "history"
        and durabilities != {"sync"}
        and all(set(ours["next"]) < set(theirs["next"]) for ours, theirs in _unequal(place))
    )


def _is_answered(place: Place) -> bool:
    return place.what == "history" and all(
        _only(ours, theirs, "questions") and _questions(ours) < _questions(theirs) for ours, theirs in _unequal(place)
    )


def _questions(snapshot: Json) -> Counter[str]:
    return Counter(question for task in snapshot["tasks"] for question in task[1])


def _goes_on_where_it_failed(place: Place) -> bool:
    """Another attempt of a node that runs a subgraph."""
    failing = [node["name"] for node in _nodes(place.program) if "subgraph" in node and node.get("fails")]
    return any(_has_run(place, name) for name in failing)


def _is_a_branch_from_the_input(place: Place) -> bool:
    """Where there is none, a stateful subgraph does not find what it did on that line."""
    if place.deed["do"] == "replay" and any(node.get("keeps") for node in _nodes(place.program)):
        is_input = _forked(place)["next"] == ["__start__"]
        if is_input or (place.deed["durability"] == "exit" and place.what != "history"):
            return True
    if place.what != "history" or place.deed["do"] != "replay":
        return False
    # Those of an input, and in exit durability all of them.
    forks = [(one["source"], one["next"]) for one in place.ours if one["source"] == "fork"]
    left_out = forks if place.deed["durability"] == "exit" else [("fork", ["__start__"])]
    ours, theirs = (
        [one for one in told if (one["source"], one["next"]) not in left_out] for told in (place.ours, place.theirs)
    )
    return ours == theirs


def _needs_a_name(place: Place) -> bool:
    """It counts as the node that ran last; sent tasks count as well here."""
    if not _deed(place) or place.deed["as_node"] is not None:
        return False
    ours, theirs = _errors(place)
    is_unclear = ours != theirs and "InvalidUpdateError" in (ours, theirs)
    return is_unclear or any(node.get("sends") for node in place.program["nodes"])


def _errors(place: Place) -> tuple[Json, Json]:
    """How the deed failed, with us and with them."""
    ours, theirs = (told[place.number].get("error") for told in place.told)
    return ours, theirs


def _unequal(place: Place) -> list[tuple[Json, Json]]:
    """The snapshots of a history that differ, two by two; one that differs in everything if their numbers differ."""
    if len(place.ours) != len(place.theirs):
        nothing = {"source": "", "values": {}, "next": [], "tasks": [], "failed": False, "step": 0}
        return [(nothing, {**nothing, "source": "another"})]
    return [(ours, theirs) for ours, theirs in zip(place.ours, place.theirs, strict=True) if ours != theirs]


def _only(ours: Json, theirs: Json, what: str) -> bool:
    """Do two snapshots differ in the questions or in the results of their tasks alone?"""
    place = {"questions": 1, "results": 2}[what]

    def rest(snapshot: Json) -> Json:
        tasks = [[*task[:place], *task[place + 1 :]] for task in snapshot["tasks"]]
        return {**snapshot, "tasks": sorted(tasks, key=json.dumps)}

    return bool(rest(ours) == rest(theirs))


ON_PURPOSE = (
    Difference("refused", "results that the barrier refused are not stored: a mended node runs again", _is_refused),
    Difference("readable", "a thread whose results clash can be read", _can_be_read),
    Difference("head", "a replay of the newest checkpoint goes on from it; there it runs on a branch", _is_head),
    Difference("open", "a question stays open when the state is updated and its task still waits", _stays_open),
    Difference("old line", "an update leaves the tasks of the updated checkpoint as they were", _is_on_the_old_line),
    Difference("command kept", "an update keeps what a command had written", _keeps_what_a_command_wrote),
    Difference("command shown", "a checkpoint shows where a command went on from it", _shows_where_a_command_went),
    Difference("limit", "the recursion limit counts supersteps, resumed and fresh alike", _limit_is_reached),
    Difference("asked once", "a node whose question stays open is not entered again", _is_asked_no_more),
    Difference("answered once", "an answer belongs to the question that was open", _is_answered_once),
    Difference("handled once", "a handler whose result is stored does not run again", _is_handled_once),
    Difference("other question", "another question at the place of an answer is an error", _is_another_question),
    Difference(
        "parent", "commands for the parent count when all tasks of their step are done", _waits_for_its_siblings
    ),
    Difference("fresh call", "a command that leads to a stateful subgraph begins a run of it", _is_a_fresh_call),
    Difference("called off", "a join is told that a source has failed and was handled", _is_called_off),
    Difference("next attempt", "another attempt goes on in the subgraph where it failed", _goes_on_where_it_failed),
    Difference("failed before", "a task that has a result shows no error of an earlier run", _has_failed_before),
    Difference("held back", "a checkpoint that is stored late is as it was when it was taken", _is_held_back),
    Difference("answered", "a question that has its answer is not shown as open", _is_answered),
    Difference("branch", "every branch begins with a checkpoint of its own", _is_a_branch_from_the_input),
    Difference(
        "unclear", "which node an update without a name comes as, where several may have run last", _needs_a_name
    ),
    Difference(
        "deferred",
        "an update as a node that waits for others; a command to a deferred node that is about to run",
        _stands_for_a_deferred_node,
    ),
    Difference(
        "left behind",
        "an update on the way of a stateful subgraph leaves behind what it did in that run",
        _was_updated_on_its_way,
    ),
    Difference("its branch", "a stateful subgraph goes on from its state on the branch", _knows_its_branch_alone),
)
