"""``compile(debug=True)``: changes in place that copies of one level do not keep apart are found and named."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import numpy as np
import pydantic
import pytest

from everstep.channels.last_value import LastValue
from everstep.constants import START
from everstep.errors import InputChangedError
from everstep.graph.builder import StateGraph
from everstep.policies import RetryPolicy
from everstep.types import Send
from tests.engine.graphs import Log, chain, notes_of, side_by_side, thread


@dataclass
class Cart:
    items: list[str] = field(default_factory=list)
    total: int = 0


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Model(pydantic.BaseModel):
    tags: list[str] = []


@dataclass(frozen=True)
class Frozen:
    parts: tuple[Any, ...]


class Values(TypedDict, total=False):
    value: Any
    other: Any


def checked(node: Any, saver: Any = None) -> Any:
    builder = StateGraph(Values).add_node("node", node).add_edge(START, "node")
    return builder.compile(saver, debug=True)


CHANGES: dict[str, tuple[Any, Any, str]] = {
    "list in a list": ([[1]], lambda value: value[0].append(2), "value[0]"),
    "list in a dict": ({"a": {"b": [1]}}, lambda value: value["a"]["b"].append(2), "value['a']['b']"),
    "dict in a list": ([{"x": 1}], lambda value: value[0].update(x=2), "value[0]['x']"),
    "removed": ([{"x": 1}], lambda value: value[0].clear(), "value[0]"),
    "set in a dict": ({"s": {1}}, lambda value: value["s"].add(2), "value['s']"),
    "list in a tuple": (([1], 2), lambda value: value[0].append(2), "value[0]"),
    "object": (Cart(), lambda value: setattr(value, "total", 3), "value.total"),
    "list of an object": (Cart(), lambda value: value.items.append("x"), "value.items"),
    "new attribute": (Cart(), lambda value: setattr(value, "more", 3), "value"),
    "slots": (Slotted([1]), lambda value: value.value.append(2), "value.value"),
    "slot": (Slotted(1), lambda value: setattr(value, "value", 2), "value.value"),
    "model": (Model(), lambda value: value.tags.append("x"), "value.tags"),
    "inside of a frozen one": (Frozen(([1],)), lambda value: value.parts[0].append(2), "value.parts[0]"),
    "deque": (deque([1]), lambda value: value.append(2), "value"),
    "bytearray": (bytearray(b"ab"), lambda value: value.extend(b"c"), "value"),
    "array": (np.arange(3), lambda value: value.__setitem__(0, 9), "value"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_in_place_is_found_with_its_place(change: str) -> None:
    value, do, place = CHANGES[change]

    async def node(state: Values) -> Values:
        do(state["value"])
        return {"other": 1}

    with pytest.raises(InputChangedError) as caught:
        await checked(node).ainvoke({"value": value})
    assert str(caught.value) == (
        f"node 'node' (or one beside it) changed key 'value' in place, at {place}, and did not write it; other nodes "
        f"and stored state share that value. Make a changed copy and return it"
    )
    assert (caught.value.node, caught.value.key) == ("node", "value")
    assert notes_of(caught.value) == ["in node 'node' (attempt 1, step 1)"]


async def test_what_a_node_may_do_is_not_found() -> None:
    cart = Cart(["anna"])
    looped: list[Any] = [1]
    looped.append([looped])

    async def node(state: Values) -> Values:
        state["value"].append(1)  # a copy of its own
        state["other"].items[0] = "ANNA".lower()  # equal, though another object
        state["new"] = 1  # type: ignore[typeddict-unknown-key]
        return {}

    assert await checked(node).ainvoke({"value": [looped, np.arange(2)], "other": cart}) is not None

    async def writes(state: Values) -> Values:
        state["value"][0].append(2)
        return {"value": state["value"]}

    assert await checked(writes).ainvoke({"value": [[1]]}) == {"value": [[1, 2]]}


async def test_nothing_is_checked_without_debug() -> None:
    async def node(state: Log) -> None:
        state["items"][0].append(2)

    await chain(node).ainvoke({"items": [[1]]})


async def test_the_step_of_the_change_is_not_stored(saver: Any) -> None:
    async def node(state: Log) -> dict[str, Any]:
        state["items"][0].append("spoilt")
        return {"log": ["a"]}

    graph = chain(node, saver=saver, debug=True)
    with pytest.raises(InputChangedError):
        await graph.ainvoke({"items": [[1]]}, thread())
    state = await graph.aget_state(thread())
    assert (state.values["items"], state.next) == ([[1]], ("node",))


async def test_a_change_is_a_mistake_that_no_retry_repairs() -> None:
    attempts = 0

    async def node(state: Log) -> None:
        nonlocal attempts
        attempts += 1
        state["items"][0].append(attempts)

    with pytest.raises(InputChangedError):
        await chain(node, debug=True, node={"retry_policy": RetryPolicy(initial_interval=0)}).ainvoke({"items": [[1]]})
    assert attempts == 1


async def test_sent_inputs_siblings_and_subgraphs_are_checked() -> None:
    async def node(state: Log) -> None:
        state["items"][0].append(2)

    builder = StateGraph(Log).add_node(node)
    builder.add_conditional_edges(START, lambda state: Send("node", {"items": [[1]]}), ["node"])
    with pytest.raises(InputChangedError, match=r"changed key 'items' in place, at items\[0\]"):
        await builder.compile(debug=True).ainvoke({"log": []})
    with pytest.raises(InputChangedError):
        await side_by_side(node, ("other", lambda state: None), debug=True).ainvoke({"items": [[1]]})
    builder = StateGraph(Log).add_node("inner", chain(node)).add_edge(START, "inner")
    with pytest.raises(InputChangedError):
        await builder.compile(debug=True).ainvoke({"items": [[1]]})


async def test_a_state_that_is_one_value_is_checked() -> None:
    async def node(state: Any) -> None:
        state[0].append(2)

    graph = StateGraph(Annotated[list[Any], LastValue]).add_node(node).add_edge(START, "node").compile(debug=True)
    with pytest.raises(InputChangedError, match=r"key '__root__' in place, at __root__\[0\]"):
        await graph.ainvoke([[1]])


async def test_a_state_that_is_an_object_is_checked() -> None:
    @dataclass
    class State:
        carts: list[Cart]

    async def node(state: State) -> None:
        state.carts[0].items.append("x")

    graph = StateGraph(State).add_node(node).add_edge(START, "node").compile(debug=True)
    with pytest.raises(InputChangedError, match=r"at carts\[0\]\.items,"):
        await graph.ainvoke(State([Cart()]))
