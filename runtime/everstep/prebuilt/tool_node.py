"""`ToolNode`: runs the tools that a model has called; and the route to it.

Every call gets a result message, in the order of the calls. Several calls run at the same time and are journalled one
by one, so that a call that has finished is not run again when another one asks, fails or is killed. A call that is
alone needs no journal of its own: its result is the node's. Async tools run on the loop, sync ones in worker threads.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from langchain_core.messages import ToolCall, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, Tool
from langchain_core.tools import tool as as_tool
from pydantic import ValidationError

from everstep.constants import PUSH
from everstep.context import Runtime, current_task
from everstep.errors import GraphTypeError, did_you_mean
from everstep.graph.functional import ReturnWriter
from everstep.prebuilt.injection import InjectedState, InjectedStore, ToolRuntime, Wanted, wanted_by
from everstep.prebuilt.threads import in_thread
from everstep.prebuilt.tool_errors import HandleErrors, ToolInvocationError, rule_of
from everstep.prebuilt.tool_results import (
    Asked,
    Item,
    ToolCallWithContext,
    answering,
    asked_in,
    failure,
    last_answer,
    update_from,
)
from everstep.pregel.blocking import run_blocking
from everstep.tasks.arguments import AppliedTo
from everstep.tasks.callable import Action
from everstep.tasks.calls import start_call
from everstep.tasks.current import Attempt
from everstep.tasks.node import Node
from everstep.types import MISSING, Command

__all__ = [
    "AsyncToolCallWrapper",
    "InjectedState",
    "InjectedStore",
    "ToolCallRequest",
    "ToolCallWithContext",
    "ToolCallWrapper",
    "ToolInvocationError",
    "ToolNode",
    "ToolRuntime",
    "tools_condition",
]


@dataclass(frozen=True, slots=True)
class ToolCallRequest:
    """One call, as `wrap_tool_call` gets it.

    Attributes:
        tool_call: What the model asked for.
        tool: The tool; None if the node has none of that name.
        state: The state as the node reads it.
        runtime: What the tool may use besides its arguments.
    """

    tool_call: ToolCall
    tool: BaseTool | None
    state: Any
    runtime: ToolRuntime[Any, Any]

    def override(self, **changed: Any) -> ToolCallRequest:
        """A copy with some fields changed."""
        return replace(self, **changed)


Result = ToolMessage | Command[Any] | list[Item]
ToolCallWrapper = Callable[[ToolCallRequest, Callable[[ToolCallRequest], Result]], Result]
AsyncToolCallWrapper = Callable[[ToolCallRequest, Callable[[ToolCallRequest], Awaitable[Result]]], Awaitable[Result]]
# One call to be run: on the loop, or in a thread.
Run = Callable[[ToolCall], Any]


class ToolNode(Runnable[Any, Any]):
    """A node that runs the tools which the last message of a model calls.

    Its input is a state with messages, a list of messages, or calls alone: ``Send("tools", call)``. It returns the
    results as an update of the messages, and the commands that tools return.

    Args:
        tools: Tools of langchain, or functions, which are made such.
        name: Of the node, where it is added without one.
        tags: Added to the tags of the tools' runs.
        handle_tool_errors: Which errors become result messages: all (True), none (False), those of some types, or
            those that a function takes, which returns the message; a text is the message for all.
        messages_key: The key of the state that holds the messages.
        wrap_tool_call: Called with each request and a function that runs it, in a worker thread; what it returns
            is the result.
        awrap_tool_call: The same for the loop; it goes before `wrap_tool_call`.

    Raises:
        GraphTypeError: A tool is none, two have one name, or `handle_tool_errors` is nothing that can be one.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool | Callable[..., Any]],
        *,
        name: str = "tools",
        tags: list[str] | None = None,
        handle_tool_errors: HandleErrors = True,
        messages_key: str = "messages",
        wrap_tool_call: ToolCallWrapper | None = None,
        awrap_tool_call: AsyncToolCallWrapper | None = None,
    ) -> None:
        self.name = name
        self.tags = list(tags or ())
        self.messages_key = messages_key
        self._tools = _by_name(tools)
        self._wanted = {name: wanted_by(tool) for name, tool in self._tools.items()}
        self._rule = rule_of(handle_tool_errors)
        self._wrap, self._awrap = wrap_tool_call, awrap_tool_call

    @property
    def tools_by_name(self) -> dict[str, BaseTool]:
        """The tools by the names that models call them by."""
        return dict(self._tools)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the tools from a plain script, or from a sync node; see `ainvoke`."""
        return run_blocking(lambda: self.ainvoke(input, config, **kwargs), "invoke")

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the tools that the input calls, in a node or outside of a graph.

        Args:
            input: A state with messages, a list of messages, or calls.
            config: Of the tools' runs.
            store: What tools get as the store outside of a graph.

        Raises:
            ConfigError: The input has no message of a model, or what a tool wants injected is not there.
            Exception: What a tool has raised, if `handle_tool_errors` does not take it.
        """
        running = current_task.get(None)
        attempt = running if isinstance(running, Attempt) else None
        asked = asked_in(input, self.messages_key)
        if asked.state is MISSING:
            asked = replace(asked, state=_state_of(attempt))
        runs = [self._run_of(call, asked, dict(config or {}), kwargs.get("store")) for call in asked.calls]
        results = await _all(attempt, asked.calls, runs)
        items = [item for result in results for item in result]
        for call, error in asked.refused:
            items.append(failure(call, f"Error: the arguments for tool {call['name']!r} cannot be read: {error}"))
        return update_from(items, self.messages_key, is_list=asked.is_list)

    def _run_of(self, call: ToolCall, asked: Asked, config: dict[str, Any], store: Any) -> tuple[bool, Run]:
        """Whether a call is run on the loop, and how."""

        def request(call: ToolCall) -> ToolCallRequest:
            # In the place of the call: only there it is known what its own config is.
            runtime = self._runtime(call, asked.state, config, store)
            return ToolCallRequest(call, self._tools.get(call["name"]), asked.state, runtime)

        async def on_loop(call: ToolCall) -> list[Item]:
            return await self._acall(request(call))

        def in_thread(call: ToolCall) -> list[Item]:
            return self._call(request(call))

        if self._awrap is None and (self._wrap is not None or _is_sync(self._tools.get(call["name"]))):
            return False, in_thread
        return True, on_loop

    def _runtime(self, call: ToolCall, state: Any, config: dict[str, Any], store: Any) -> ToolRuntime[Any, Any]:
        running = current_task.get(None)
        runtime: Runtime[Any] = Runtime(store=store) if running is None else running.runtime
        return ToolRuntime(
            state=state,
            context=runtime.context,
            config=_config_of(config, {} if running is None else running.config, self.tags),
            stream_writer=runtime.stream_writer,
            tool_call_id=call["id"],
            store=runtime.store,
            tools=list(self._tools.values()),
            execution_info=runtime.execution_info,
            server_info=runtime.server_info,
        )

    def _call(self, request: ToolCallRequest) -> list[Item]:
        """Run a call in this thread."""
        call = request.tool_call
        try:
            result = self._execute(request) if self._wrap is None else self._wrap(request, self._execute)
            return answering(call, result)
        except Exception as error:
            return [self._failed(call, error)]

    async def _acall(self, request: ToolCallRequest) -> list[Item]:
        """Run a call on the loop."""
        call = request.tool_call
        try:
            result = await (self._aexecute(request) if self._awrap is None else self._awrap(request, self._aexecute))
            return answering(call, result)
        except Exception as error:
            return [self._failed(call, error)]

    def _execute(self, request: ToolCallRequest) -> Any:
        tool = request.tool
        if tool is None:
            return self._unknown(request.tool_call)
        if not _is_sync(tool):
            return run_blocking(lambda: self._aexecute(request), "invoke")
        wanted = self._wanted_by(tool)
        try:
            return tool.invoke(*_arguments(tool.name, request, wanted))
        except Exception as error:
            return self._failed(request.tool_call, _explained(tool, request.tool_call, error, wanted))

    async def _aexecute(self, request: ToolCallRequest) -> Any:
        tool = request.tool
        if tool is None:
            return self._unknown(request.tool_call)
        if _is_sync(tool):
            return await in_thread(lambda: self._execute(request))
        wanted = self._wanted_by(tool)
        try:
            return await tool.ainvoke(*_arguments(tool.name, request, wanted))
        except Exception as error:
            return self._failed(request.tool_call, _explained(tool, request.tool_call, error, wanted))

    def _wanted_by(self, tool: BaseTool) -> Wanted:
        # A wrapper may have put another tool there.
        return self._wanted[tool.name] if self._tools.get(tool.name) is tool else wanted_by(tool)

    def _failed(self, call: ToolCall, error: Exception) -> ToolMessage:
        running = current_task.get(None)
        # An answer that does not fit its question fails the run, and the question is open again.
        refuses_answer = isinstance(running, Attempt) and running.run.rejected
        text = None if refuses_answer else self._rule.message_for(error)
        if text is None:
            raise error
        return failure(call, text)

    def _unknown(self, call: ToolCall) -> ToolMessage:
        names = ", ".join(map(repr, self._tools)) or "none"
        near = did_you_mean(call["name"], list(self._tools))
        return failure(call, f"Error: there is no tool {call['name']!r}.{near} The tools are: {names}.")


def tools_condition(state: Any, messages_key: str = "messages") -> Literal["tools", "__end__"]:
    """The route after a model: to the node "tools" if its message calls tools, else to the end.

    Args:
        state: A state with messages, or a list of messages.
        messages_key: The key of the state that holds the messages.

    Raises:
        ConfigError: There is no message.
    """
    message = last_answer(state, messages_key)
    if message is None:
        asked_in(state, messages_key)
    calls = message is not None and (message.tool_calls or message.invalid_tool_calls)
    return "tools" if calls else "__end__"


async def _all(attempt: Attempt | None, calls: Sequence[ToolCall], runs: Sequence[tuple[bool, Run]]) -> list[Any]:
    """The results of all calls, in their order."""
    if attempt is None:
        return await asyncio.gather(*map(_in_place, calls, runs))
    if len(runs) == 1 and attempt.flow is asyncio.current_task():
        return [await _in_place(calls[0], runs[0])]
    return await asyncio.gather(*(start_call(_node(*each), (each[0],), {}) for each in zip(calls, runs, strict=True)))


async def _in_place(call: ToolCall, run: tuple[bool, Run]) -> Any:
    is_async, function = run
    return await (function(call) if is_async else in_thread(lambda: function(call)))


def _node(call: ToolCall, run: tuple[bool, Run]) -> Node:
    """A call as the journal knows it. Streams tell of the node of the tools alone."""
    is_async, function = run
    # A model may call a tool whatever it likes.
    name = re.sub(r"\W", "_", call["name"]) or "tool"
    action = Action(name, AppliedTo(function), is_async)
    return Node(name, (PUSH,), (), action, writers=(ReturnWriter(),), hidden=True)


def _by_name(tools: Sequence[BaseTool | Callable[..., Any]]) -> dict[str, BaseTool]:
    found: dict[str, BaseTool] = {}
    for given in tools:
        if not isinstance(given, BaseTool) and not callable(given):
            raise GraphTypeError(f"a ToolNode takes tools of langchain and functions, got {given!r}")
        tool = given if isinstance(given, BaseTool) else as_tool(given)
        if tool.name in found:
            raise GraphTypeError(f"two tools are named {tool.name!r}; a model could not tell them apart")
        found[tool.name] = tool
    return found


def _is_sync(tool: BaseTool | None) -> bool:
    if tool is None:
        return False
    if isinstance(tool, StructuredTool | Tool):
        return tool.coroutine is None
    return type(tool)._arun is BaseTool._arun


def _arguments(name: str, request: ToolCallRequest, wanted: Wanted) -> tuple[dict[str, Any], Any]:
    """What a tool is invoked with; nothing that is injected comes from the model."""
    call = request.tool_call
    given = {key: value for key, value in call["args"].items() if key not in wanted.names}
    args = {**given, **wanted.arguments(name, request.runtime)}
    return {**call, "args": args, "id": call["id"] or "", "type": "tool_call"}, request.runtime.config


def _explained(tool: BaseTool, call: ToolCall, error: Exception, wanted: Wanted) -> Exception:
    """The error, as one of the arguments if the model gave wrong ones."""
    if not isinstance(error, ValidationError) or error.title != tool.get_input_schema().__name__:
        return error
    if any(detail["loc"] and detail["loc"][0] in wanted.names for detail in error.errors()):
        return error  # what was injected does not fit
    explained = ToolInvocationError(tool.name, error, dict(call["args"]))
    explained.__cause__ = error
    return explained


def _state_of(attempt: Attempt | None) -> Any:
    """The state as the running node reads it."""
    if attempt is None:
        return {}
    node = attempt.task.node
    if isinstance(node.channels, str):
        return attempt.read((node.channels,)).get(node.channels)
    state = attempt.read(node.channels)
    return state if node.mapper is None else node.mapper(state)


def _config_of(given: dict[str, Any], running: Mapping[str, Any], tags: Sequence[str]) -> dict[str, Any]:
    """The config of one call: what was given, in the place where the call runs."""
    made = {**running, **given}
    made["configurable"] = {**given.get("configurable", {}), **running.get("configurable", {})}
    made["metadata"] = {**running.get("metadata", {}), **given.get("metadata", {})}
    made["tags"] = [*made.get("tags", ()), *tags]
    # They belong to what calls the tools.
    made.pop("run_id", None)
    made.pop("run_name", None)
    return made
