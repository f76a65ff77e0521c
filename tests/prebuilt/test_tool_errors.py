"""Errors of tools: which become result messages, which fail the node, and what they say."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langchain_core.tools import ToolException, tool
from pydantic import BaseModel

from everstep.context import interrupt
from everstep.control import RunControl
from everstep.errors import ConfigError, GraphDrained, GraphTypeError
from everstep.prebuilt.injection import InjectedState
from everstep.prebuilt.tool_node import ToolInvocationError, ToolNode
from everstep.types import Command
from tests.engine.graphs import chain, thread
from tests.prebuilt.chats import asking, results, tools_graph


def divide(a: int, b: int) -> float:
    """Divide a by b."""
    return a / b


async def choose(option: str) -> str:
    """Choose an option."""
    raise ToolException(f"no option {option}")


BAD = asking(("divide", {"a": 1, "b": 0}), ("choose", {"option": "x"}))


async def test_by_default_every_error_becomes_a_result() -> None:
    assert results(await tools_graph(divide, choose).ainvoke(BAD)) == [
        ("c0", "error", "Error: ZeroDivisionError('division by zero'). Correct the call, or go another way."),
        ("c1", "error", "Error: ToolException('no option x'). Correct the call, or go another way."),
    ]


async def test_wrong_arguments_and_unknown_tools_become_results_that_say_so() -> None:
    given = asking(("divide", {"a": "one"}), ("devide", {"a": 1, "b": 1}), ("sing", {}))
    assert results(await tools_graph(divide).ainvoke(given)) == [
        (
            "c0",
            "error",
            (
                "Error: tool 'divide' cannot be called with {'a': 'one'}: a: Input should be a valid integer, unable "
                "to parse string as an integer; b: Field required. Correct the arguments."
            ),
        ),
        ("c1", "error", "Error: there is no tool 'devide'. Did you mean 'divide'? The tools are: 'divide'."),
        ("c2", "error", "Error: there is no tool 'sing'. The tools are: 'divide'."),
    ]


def only_zero(error: ZeroDivisionError) -> str:
    return "zero"


def both(error: ZeroDivisionError | ToolException) -> str:
    return type(error).__name__


class Handler:
    def any(self, error):  # type: ignore[no-untyped-def]
        return "any"


@pytest.mark.parametrize(
    ("handle", "texts"),
    [
        ("Try again.", ["Try again."] * 2),
        (both, ["ZeroDivisionError", "ToolException"]),
        (Handler().any, ["any"] * 2),
        ((ArithmeticError, ToolException), None),
    ],
)
async def test_what_is_handled_becomes_a_result(handle: Any, texts: list[str] | None) -> None:
    found = results(await tools_graph(divide, choose, handle_tool_errors=handle).ainvoke(BAD))
    assert [status for _, status, _ in found] == ["error", "error"]
    assert texts is None or [text for _, _, text in found] == texts


@pytest.mark.parametrize(
    ("handle", "error"),
    [
        (False, ZeroDivisionError),
        (ToolException, ZeroDivisionError),
        ((ToolException, ValueError), ZeroDivisionError),
        (only_zero, ToolException),
    ],
)
@pytest.mark.parametrize("count", [1, 2])
async def test_what_is_not_handled_fails_the_node(handle: Any, error: type[Exception], count: int) -> None:
    call = ("choose", {"option": "x"}) if error is ToolException else ("divide", {"a": 1, "b": 0})
    with pytest.raises(error) as caught:
        await tools_graph(divide, choose, handle_tool_errors=handle).ainvoke(asking(*[call] * count))
    places = [note.partition(" (")[0] for note in caught.value.__notes__]
    assert places == [*([f"in task {call[0]!r}"] if count == 2 else []), "in node 'tools'"]


async def test_wrong_arguments_fail_the_node_where_nothing_is_handled() -> None:
    with pytest.raises(ToolInvocationError) as caught:
        await ToolNode([divide], handle_tool_errors=False).ainvoke(asking(("divide", {"a": 1})))
    assert str(caught.value) == "tool 'divide' cannot be called with {'a': 1}: b: Field required"
    assert (caught.value.tool_name, caught.value.tool_kwargs) == ("divide", {"a": 1})


async def test_a_tools_own_handling_goes_first() -> None:
    @tool
    def fail() -> str:
        """Fail."""
        raise ToolException("no")

    fail.handle_tool_error = "handled by the tool"
    assert results(await tools_graph(fail, handle_tool_errors="no").ainvoke(asking("fail"))) == [
        ("c0", "error", "handled by the tool")
    ]


async def test_a_wrong_value_inside_of_a_tool_is_no_wrong_argument() -> None:
    class Shape(BaseModel):
        sides: int

    def draw(text: str) -> str:
        """Draw it."""
        return str(Shape.model_validate({"sides": text}))

    [(_, status, text)] = results(await tools_graph(draw).ainvoke(asking(("draw", {"text": "x"}))))
    assert status == "error"
    assert text.startswith("Error: 1 validation error for Shape\n")


async def test_what_is_injected_and_does_not_fit_is_not_the_models_fault() -> None:
    def count(messages: Annotated[int, InjectedState("messages")]) -> int:
        """Count."""
        return messages

    [(_, _, text)] = results(await tools_graph(count).ainvoke(asking("count")))
    assert text.startswith("Error: 1 validation error for count\n")


@pytest.mark.parametrize("count", [1, 2])
async def test_a_question_without_a_saver_is_an_error_of_the_graph(count: int) -> None:
    def ask() -> Any:
        """Ask."""
        return interrupt("what?")

    with pytest.raises(ConfigError, match=r"called interrupt\(\), but the graph has no saver"):
        await tools_graph(ask).ainvoke(asking(*["ask"] * count))


@pytest.mark.parametrize("count", [1, 2])
async def test_a_drain_of_a_run_in_a_tool_is_no_error(count: int) -> None:
    control = RunControl()

    def first(state: Any) -> None:
        control.request_drain("deploy")

    inner = chain(("first", first), ("second", lambda state: None))

    async def work() -> str:
        """Run a graph."""
        await inner.ainvoke({"log": []})
        return "done"

    with pytest.raises(GraphDrained):
        await tools_graph(work).ainvoke(asking(*["work"] * count), control=control)


def test_what_cannot_be_a_rule_is_refused() -> None:
    def number(error: int) -> str:
        return ""

    with pytest.raises(GraphTypeError) as caught:
        ToolNode([divide], handle_tool_errors=3)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "handle_tool_errors is True, False, a text, a function of the error, or one or several types of exceptions; "
        "got 3"
    )
    with pytest.raises(GraphTypeError) as caught:
        ToolNode([divide], handle_tool_errors=number)
    assert str(caught.value) == (
        "handle_tool_errors is a function whose first parameter is annotated with <class 'int'>; annotate it with a "
        "type of exceptions, or a union of such, or leave it without"
    )


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("handle", [True, ValueError, "handled"])
async def test_an_answer_that_does_not_fit_fails_the_run_and_leaves_the_question(
    count: int, handle: Any, saver: Any
) -> None:
    class Approval(BaseModel):
        approved: bool

    def ask() -> str:
        """Ask."""
        return f"{interrupt('ok?', response_schema=Approval).approved}"

    graph = tools_graph(ask, saver=saver, handle_tool_errors=handle)
    asked = await graph.ainvoke(asking(*["ask"] * count), thread())
    ids = [question.id for question in asked["__interrupt__"]]
    with pytest.raises(ValueError, match="approved"):
        good = {each: {"approved": True} for each in ids}
        await graph.ainvoke(Command(resume={**good, ids[0]: {"approved": "maybe"}}), thread())
    assert [question.id for question in (await graph.aget_state(thread())).interrupts] == ids[:1]
    result = await graph.ainvoke(Command(resume={ids[0]: {"approved": True}}), thread())
    assert [text for _, _, text in results(result)] == ["True"] * count


async def test_a_wrong_answer_fails_the_run_also_while_another_tool_waits(saver: Any) -> None:
    async def ask(what: str) -> str:
        """Ask."""
        return f"{interrupt(what, response_schema=int)}"

    graph = tools_graph(ask, saver=saver)
    asked = await graph.ainvoke(asking(("ask", {"what": "a"}), ("ask", {"what": "b"})), thread())
    first, second = asked["__interrupt__"]
    with pytest.raises(ValueError, match="valid integer"):
        await graph.ainvoke(Command(resume={first.id: "many"}), thread())
    assert (await graph.aget_state(thread())).interrupts == (first, second)
    assert (await graph.ainvoke(Command(resume={second.id: 2}), thread()))["__interrupt__"] == [first]
    result = await graph.ainvoke(Command(resume={first.id: 1}), thread())
    assert [text for _, _, text in results(result)] == ["1", "2"]
