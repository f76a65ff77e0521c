"""An agent's model, and what it reads: tools bound to it, chosen anew for each step, prompted.

Functions of the user's run as nodes do: async ones on the loop, sync ones in worker threads, with `config`, `runtime`,
`store` and `writer` injected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage
from langchain_core.runnables import Runnable, RunnableBinding, RunnableSequence
from langchain_core.tools import BaseTool

from everstep.context import Runtime, current_task
from everstep.errors import GraphBuildError, GraphTypeError
from everstep.prebuilt.agent_state import MODEL_INPUT, value_in, with_all_results, with_messages
from everstep.prebuilt.threads import in_thread
from everstep.tasks.callable import Action, action_of
from everstep.tasks.current import Attempt

Prompt = str | SystemMessage | Callable[..., Any] | Runnable[Any, Any]


@dataclass(frozen=True, slots=True)
class Model:
    """The model of an agent.

    Attributes:
        bound: With the tools bound; None if it is chosen for each step.
        plain: Without.
        choose: Gives the model for a state and a runtime.
    """

    bound: Runnable[Any, Any] | None = None
    plain: Any = None
    choose: Callable[[Any, Runtime[Any]], Any] | None = None

    async def for_state(self, state: Any, runtime: Runtime[Any]) -> Runnable[Any, Any]:
        """The model that is to answer."""
        if self.bound is not None:
            return self.bound
        found: Runnable[Any, Any] = await self._chosen(state, runtime)
        return found

    async def plain_for(self, state: Any, runtime: Runtime[Any]) -> Any:
        """The model itself, for a structured response."""
        return plain_model(await self._chosen(state, runtime)) if self.bound is None else self.plain

    async def _chosen(self, state: Any, runtime: Runtime[Any]) -> Any:
        assert self.choose is not None
        choose = self.choose
        # Both are given by place, whatever their names.
        found = await called(action_of(_Placed(choose, runtime), "model"), state)
        if not isinstance(found, Runnable):
            raise GraphTypeError(f"the function that chooses the model returned {found!r}; expected a chat model")
        return found


class _Placed:
    """A function of a state and a runtime, as one of the state."""

    def __init__(self, function: Callable[..., Any], runtime: Runtime[Any]) -> None:
        self._function, self._runtime = function, runtime

    def __call__(self, value: Any) -> Any:
        return self._function(value, self._runtime)


def model_of(given: Any, tools: Sequence[BaseTool | dict[str, Any]]) -> Model:
    """The model that was given to an agent: a name, a chat model, a runnable with one in it, or a function.

    Raises:
        GraphTypeError: It is none of these.
        GraphBuildError: It has other tools bound than the agent.
        ImportError: It is a name, and langchain is not installed.
    """
    if isinstance(given, str):
        given = _named(given)
    if isinstance(given, Runnable):
        return Model(_with_tools(given, tools), plain_model(given))
    if callable(given):
        return Model(choose=given)
    raise GraphTypeError(
        f"the model of an agent is a chat model, its name, or a function of state and runtime that returns one; "
        f"got {given!r}"
    )


def plain_model(model: Any) -> Any:
    """The chat model within bindings and sequences; what has none is taken as it is."""
    if isinstance(model, RunnableSequence):
        model = next((step for step in model.steps if _is_model(step)), model)
    while isinstance(model, RunnableBinding):
        model = model.bound
    return model


async def model_input(prompt: Prompt | None, state: Any, config: Any) -> Any:
    """What the model reads."""
    read = value_in(state, MODEL_INPUT) or value_in(state, "messages")
    if read is None:
        raise GraphBuildError("an agent needs messages in its state")
    messages = with_all_results(read)
    if prompt is None:
        return messages
    if isinstance(prompt, str):
        return [SystemMessage(prompt), *messages]
    if isinstance(prompt, SystemMessage):
        return [prompt, *messages]
    state = with_messages(state, messages)
    # A function may give a template, as `SystemMessage(...) + messages` does.
    found = prompt if isinstance(prompt, Runnable) else await called(action_of(prompt, "prompt"), state)
    return await found.ainvoke(state, config) if isinstance(found, Runnable) else found


async def called(action: Action, value: Any) -> Any:
    """Call a function of the user's in the running node."""
    attempt = current_task.get()
    assert isinstance(attempt, Attempt)
    if action.is_async:
        return await action.call(value, attempt)
    found = await in_thread(action.bind(value, attempt))
    return await found if asyncio.iscoroutine(found) else found


def _named(name: str) -> Any:
    try:
        chat_models = import_module("langchain.chat_models")
    except ImportError as error:
        raise ImportError(f"the model {name!r} by its name needs langchain: pip install langchain") from error
    return chat_models.init_chat_model(name)


def _with_tools(model: Runnable[Any, Any], tools: Sequence[BaseTool | dict[str, Any]]) -> Runnable[Any, Any]:
    if not tools:
        return model
    if isinstance(model, RunnableSequence):
        bound = [_with_tools(step, tools) if _is_model(step) else step for step in model.steps]
        return RunnableSequence(*bound, name=model.name)
    if isinstance(model, RunnableBinding) and "tools" in model.kwargs:
        _check_bound(model.kwargs["tools"], tools)
        return model
    bind: Any = getattr(model, "bind_tools", None)
    if bind is None:
        return model
    try:
        found: Runnable[Any, Any] = bind(tools)
    except NotImplementedError:  # it knows of no tools, or has been told of them otherwise
        return model
    return found


def _is_model(step: Any) -> bool:
    return isinstance(step, BaseChatModel) or (isinstance(step, RunnableBinding) and _is_model(step.bound))


def _check_bound(bound: Sequence[Any], tools: Sequence[BaseTool | dict[str, Any]]) -> None:
    wanted = {tool.name for tool in tools if isinstance(tool, BaseTool)}
    found = {name for tool in bound if (name := _bound_name(tool)) is not None}
    if missing := wanted - found:
        raise GraphBuildError(
            f"the model has tools bound, but not {', '.join(map(repr, sorted(missing)))} of the agent; give a model "
            f"without tools, and the agent binds them, or bind all of them"
        )


def _bound_name(tool: Any) -> str | None:
    if isinstance(tool, BaseTool):
        return tool.name
    if isinstance(tool, dict):
        name = tool.get("function", {}).get("name") or tool.get("name") or tool.get("toolSpec", {}).get("name")
        return name if isinstance(name, str) else None
    return getattr(tool, "__name__", None)
