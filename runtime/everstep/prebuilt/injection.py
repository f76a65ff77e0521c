"""What a tool gets that no model gives it: the state, the store, a `ToolRuntime`; and how that is told from its schema.

A parameter that is injected is never shown to a model, and what a model gives for it all the same is dropped. What a
tool wants is read once, from its argument schema and its function's annotations. Nothing is run here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, get_args, get_origin

from langchain_core.tools import BaseTool, InjectedToolArg
from langchain_core.tools.base import _DirectlyInjectedToolArg, get_all_basemodel_annotations
from pydantic_core import core_schema
from typing_extensions import TypeVar

from everstep.channels.snapshot import input_copy
from everstep.context import ExecutionInfo, ServerInfo
from everstep.errors import ConfigError
from everstep.tasks.callable import type_hints

ContextT = TypeVar("ContextT", default=Any)
StateT = TypeVar("StateT", default=Any)


class InjectedState(InjectedToolArg):
    """Marks a parameter of a tool that gets the state: ``Annotated[dict, InjectedState]``.

    Args:
        field: The key whose value it gets; None for the whole state.
    """

    def __init__(self, field: str | None = None) -> None:
        self.field = field


class InjectedStore(InjectedToolArg):
    """Marks a parameter of a tool that gets the graph's store: ``Annotated[BaseStore, InjectedStore()]``."""


# No dataclass: pydantic would build a schema of the fields, and write the whole state out with the arguments.
class ToolRuntime(_DirectlyInjectedToolArg, Generic[ContextT, StateT]):
    """What a tool may use besides its arguments; injected into a parameter annotated with it.

    Attributes:
        state: The state as the node of the tools reads it.
        context: The run's `context`.
        config: The config of the call.
        stream_writer: Sends a value to the readers of stream mode "custom".
        tool_call_id: Id of the call that is answered.
        store: The store given at compile time.
        tools: All tools of the node.
        execution_info: Which execution this is: attempt, task and thread.
        server_info: What the server that runs the graph tells; None without one.
    """

    def __init__(
        self,
        state: StateT,
        context: ContextT,
        config: dict[str, Any],
        stream_writer: Callable[[Any], None],
        tool_call_id: str | None,
        store: Any,
        tools: list[Any] | None = None,
        execution_info: ExecutionInfo | None = None,
        server_info: ServerInfo | None = None,
    ) -> None:
        self.state, self.context, self.config = state, context, config
        self.stream_writer, self.tool_call_id, self.store = stream_writer, tool_call_id, store
        self.tools = tools or []
        self.execution_info, self.server_info = execution_info, server_info

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        """How argument schemas take it: as it is, and never written out."""
        return core_schema.is_instance_schema(
            cls, serialization=core_schema.plain_serializer_function_ser_schema(lambda _: None)
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """The parameters of a tool that are injected.

    Attributes:
        state: Parameter -> key of the state; None for the whole of it.
        store: Parameters that get the store.
        runtime: Parameters that get the `ToolRuntime`.
        optional: Parameters that have a default.
    """

    state: Mapping[str, str | None] = field(default_factory=dict)
    store: frozenset[str] = frozenset()
    runtime: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        return self.store | self.runtime | self.state.keys()

    def arguments(self, tool: str, runtime: ToolRuntime[Any, Any]) -> dict[str, Any]:
        """The injected arguments of a call.

        Raises:
            ConfigError: The state has no such key, or the graph no store.
        """
        found: dict[str, Any] = dict.fromkeys(self.runtime, runtime)
        for name in self.store:
            if runtime.store is None and name not in self.optional:
                raise ConfigError(
                    f"tool {tool!r} takes the store as its {name!r}, and the graph has none; compile it with one: "
                    f"compile(store=InMemoryStore())"
                )
            found[name] = runtime.store
        if self.state:
            # The tools of one step share the state, and must not see what another does to it in place.
            state = input_copy(runtime.state)
            for name, key in self.state.items():
                self._add_state(found, tool, (name, key), state)
        return found

    def _add_state(self, found: dict[str, Any], tool: str, place: tuple[str, str | None], state: Any) -> None:
        name, key = place
        if key is None:
            found[name] = state
        elif isinstance(state, Mapping) and key in state:
            found[name] = state[key]
        elif not isinstance(state, Mapping) and hasattr(state, key):
            found[name] = getattr(state, key)
        elif name not in self.optional:
            raise ConfigError(
                f"tool {tool!r} takes key {key!r} of the state as its {name!r}, and the state has no value for it; "
                f"set the key before the tool runs, or give {name!r} a default"
            )


def wanted_by(tool: BaseTool) -> Wanted:
    """Tell which parameters of a tool are injected."""
    state: dict[str, str | None] = {}
    store: set[str] = set()
    runtime: set[str] = set()
    for name, hint in _annotations(tool):
        for mark in _marks(hint):
            if isinstance(mark, InjectedState):
                state[name] = mark.field
            elif mark is InjectedState:
                state[name] = None
            elif isinstance(mark, InjectedStore) or mark is InjectedStore:
                store.add(name)
            elif mark is ToolRuntime:
                runtime.add(name)
    return Wanted(state, frozenset(store), frozenset(runtime), frozenset(_with_default(tool)))


def _functions(tool: BaseTool) -> Iterator[Callable[..., Any]]:
    for name in ("func", "coroutine", "_run", "_arun"):
        function = getattr(tool, name, None)
        if callable(function):
            yield function


def _annotations(tool: BaseTool) -> Iterator[tuple[str, Any]]:
    for function in _functions(tool):
        yield from type_hints(function).items()
    schema = tool.get_input_schema()
    if isinstance(schema, type):
        yield from get_all_basemodel_annotations(schema).items()


def _with_default(tool: BaseTool) -> Iterator[str]:
    for function in _functions(tool):
        for parameter in inspect.signature(function).parameters.values():
            if parameter.default is not parameter.empty:
                yield parameter.name
    for name, info in getattr(tool.args_schema, "model_fields", {}).items():
        if not info.is_required():
            yield name


def _marks(hint: Any) -> Iterator[Any]:
    """What an annotation says besides the type, also within a union: ``Annotated[str, mark] | None``."""
    origin = get_origin(hint) or hint
    if origin is ToolRuntime:
        yield ToolRuntime
    elif origin is Annotated:
        inner, *marks = get_args(hint)
        yield from marks
        yield from _marks(inner)
    else:
        for part in get_args(hint):
            if not isinstance(part, list):
                yield from _marks(part)
