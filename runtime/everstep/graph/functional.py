"""The functional API: `@task` for pieces of work that are journalled, `@entrypoint` for a function as a graph.

An entrypoint is a graph whose one node is the function; its result is the graph's, and what it saves is what the next
run of the thread gets as `previous`. A `@task` may be called in an entrypoint, in any node of a graph, and in another
task. How calls run is the business of `everstep.tasks.calls`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, get_args, get_origin, overload

from everstep.channels.last_value import EphemeralValue, LastValue
from everstep.constants import END, PREVIOUS, PUSH, RETURN, START
from everstep.declared import at
from everstep.errors import GraphBuildError
from everstep.graph.hints import called_graph
from everstep.graph.validate import check_node_name
from everstep.policies import CachePolicy, RetryPolicy, TimeoutPolicy, cache_policy_of, retry_policies
from everstep.pregel.blueprint import Blueprint, CompileOptions
from everstep.pregel.graph import Pregel
from everstep.tasks.arguments import AppliedTo
from everstep.tasks.callable import Action, action_of, name_of, type_hints
from everstep.tasks.calls import start_call
from everstep.tasks.node import Node, Write, WriteScope
from everstep.tasks.promises import Promise, ThreadPromise
from everstep_savers.codec import default_codec

P = ParamSpec("P")
Q = ParamSpec("Q")
T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")

Retry = RetryPolicy | Sequence[RetryPolicy] | None
Timeout = float | timedelta | TimeoutPolicy | None


class TaskFunction(Generic[P, T]):
    """A function whose calls are journalled; made by `task`.

    Attributes:
        func: The function itself.
    """

    __name__: str

    def __init__(
        self, func: Callable[P, Any], name: str | None, retry: Retry, cache: CachePolicy | None, timeout: Timeout
    ) -> None:
        functools.update_wrapper(self, func)
        _refuse_generator(func, "task")
        self.func = func
        found = name_of(func) if name is None else name
        check_node_name(found, ())
        with at(f"task {found!r}"):
            action = action_of(func, found)
            self._node = Node(
                name=found,
                triggers=(PUSH,),
                channels=(),
                action=replace(action, function=AppliedTo(func), takes_input=True),
                writers=(ReturnWriter(),),
                retry=retry_policies(retry),
                timeout=TimeoutPolicy.of(timeout),
                cache=cache_policy_of(cache),
            )
        # Known before a thread is read whose journal holds values of them.
        for hint in type_hints(func).values():
            default_codec.register_annotation(hint)

    @property
    def name(self) -> str:
        """The name under which its calls are journalled and streamed."""
        return self._node.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Promise[T] | ThreadPromise[T]:
        """Start the call; await what this returns, or in a sync function ask for its `result()`.

        Raises:
            EverstepError: No graph runs here.
            DeterminismError: The code runs again, and its journal holds another call at this place.
        """
        return start_call(self._node, args, kwargs)

    @overload
    def __get__(self, instance: None, owner: Any = None) -> TaskFunction[P, T]: ...
    @overload
    def __get__(
        self: TaskFunction[Concatenate[Any, Q], T], instance: object, owner: Any = None
    ) -> Callable[Q, Promise[T] | ThreadPromise[T]]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)


class TaskMaker(Protocol):
    """What `task(...)` returns: the decorator."""

    @overload
    def __call__(self, func: Callable[P, Awaitable[T]], /) -> TaskFunction[P, T]: ...
    @overload
    def __call__(self, func: Callable[P, T], /) -> TaskFunction[P, T]: ...


@overload
def task(__func_or_none__: Callable[P, Awaitable[T]]) -> TaskFunction[P, T]: ...
@overload
def task(__func_or_none__: Callable[P, T]) -> TaskFunction[P, T]: ...
@overload
def task(
    __func_or_none__: None = None,
    *,
    name: str | None = None,
    retry_policy: Retry = None,
    cache_policy: CachePolicy | None = None,
    timeout: Timeout = None,
) -> TaskMaker: ...
def task(
    __func_or_none__: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    retry_policy: Retry = None,
    cache_policy: CachePolicy | None = None,
    timeout: Timeout = None,
) -> Any:
    """Make a function, async or sync, one whose calls are journalled.

    A call starts at once and returns something to await (in a sync function: to ask for its `result()`), so that
    several calls run at the same time. Once it has returned, its result is kept: when the calling code runs again,
    after an answer, a failure or a crash, it gets the result and the call is not run. A call that has failed is run
    again; to keep a failure, catch it in the task and return it. Arguments and results must be of types that can be
    stored; the types of its annotations are registered.

    Code that runs again must make the same calls in the same order, up to where it got.

    Args:
        name: Of the task; the function's by default.
        retry_policy: One policy or several, of which the first that matches counts.
        cache_policy: Keep what it returns, and take it for equal arguments; needs a graph with a cache.
        timeout: Seconds (or a timedelta or policy) per attempt.

    Raises:
        GraphBuildError: The name cannot be used, the function is a generator or cannot be called, or a policy is none.
    """

    def make(func: Callable[..., Any]) -> TaskFunction[Any, Any]:
        return TaskFunction(func, name, retry_policy, cache_policy, timeout)

    return make if __func_or_none__ is None else make(__func_or_none__)


class entrypoint:  # noqa: N801 - the ecosystem's name
    """Make a function a graph: `invoke`, `stream`, `aget_state` and all.

    The function's first parameter is the input; by name or annotation it also gets `previous` (what the last run of
    the thread saved; None in the first), `config`, `runtime`, `writer`, `store`.

    Args:
        checkpointer: The saver that keeps its threads.
        store: Handed to the function and its tasks as `store`.
        cache: Keeps results of tasks that have a `cache_policy`.
        context_schema: Type of the `context` that a run is given.
        cache_policy: Keep what the function returns, and take it for equal inputs.
        retry_policy: For the function as a whole; results of its tasks are kept from attempt to attempt.
        timeout: Seconds (or a timedelta or policy) per attempt.
    """

    def __init__(
        self,
        checkpointer: Any = None,
        store: Any = None,
        cache: Any = None,
        context_schema: Any = None,
        cache_policy: CachePolicy | None = None,
        retry_policy: Retry = None,
        timeout: Timeout = None,
    ) -> None:
        self.checkpointer, self.store, self.cache = checkpointer, store, cache
        self.context_schema = context_schema
        self.cache_policy, self.retry_policy, self.timeout = cache_policy, retry_policy, timeout

    @dataclass(frozen=True, slots=True, kw_only=True)
    class final(Generic[R, S]):  # noqa: N801 - the ecosystem's name
        """What an entrypoint returns to have its caller get one value and its next run, as `previous`, another."""

        value: R
        save: S

    def __call__(self, func: Callable[..., Any]) -> Pregel:
        """Make the graph.

        Raises:
            GraphBuildError: The function takes no input, is a generator, cannot be called or has a name that cannot be
                used, or an argument of the decorator is not what it can be.
        """
        _refuse_generator(func, "entrypoint")
        name = name_of(func)
        check_node_name(name, ())
        with at(f"entrypoint {name!r}"):
            action = action_of(func, name)
        taken, hints = _input_of(func, name), type_hints(func)
        with at(f"entrypoint {name!r}"):
            node = self._node(_with_input(action, taken))
        given, returned, saved = hints.get(taken), *_results(hints.get("return"))
        blueprint = Blueprint(
            name=name,
            nodes={name: node},
            channels={
                START: EphemeralValue(given),
                END: LastValue(returned),
                PREVIOUS: LastValue(saved),
            },
            input_channels=START,
            output_channels=END,
            stream_channels=END,
            context_schema=self.context_schema,
            annotations=(given, returned, saved),
        )
        return Pregel(blueprint, CompileOptions(self.checkpointer, self.store, self.cache))

    def _node(self, action: Action) -> Node:
        return Node(
            name=action.name,
            triggers=(START,),
            channels=START,
            action=action,
            writers=(_FinalWriter(),),
            retry=retry_policies(self.retry_policy),
            timeout=TimeoutPolicy.of(self.timeout),
            cache=cache_policy_of(self.cache_policy),
            subgraph=called_graph(action.function),
        )


class ReturnWriter:
    """Keeps what a task returned, as the one write of its call."""

    waits = False

    def __call__(self, output: Any, scope: WriteScope) -> Sequence[Write]:
        return ((RETURN, output),)


class _FinalWriter:
    """Writes what an entrypoint returned: the graph's result, and what is saved for the next run."""

    waits = False

    def __call__(self, output: Any, scope: WriteScope) -> Sequence[Write]:
        if isinstance(output, entrypoint.final):
            return ((END, output.value), (PREVIOUS, output.save))
        return ((END, output), (PREVIOUS, output))


def _refuse_generator(func: Any, what: str) -> None:
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise GraphBuildError(
            f"{what} {name_of(func)!r} is a generator; return one value, and send what comes before it to the stream "
            f"writer: get_stream_writer()(value)"
        )


def _input_of(func: Any, name: str) -> str:
    """The name of the parameter that takes an entrypoint's input."""
    for parameter in inspect.signature(func).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL):
            return parameter.name
        break
    raise GraphBuildError(f"entrypoint {name!r} takes no input; give it a parameter for it: def {name}(input)")


def _with_input(action: Action, parameter: str) -> Action:
    """The action with its first parameter taken for the input, whatever its name."""
    injected = tuple(pair for pair in action.injected if pair[0] != parameter)
    return replace(action, takes_input=True, injected=injected)


def _results(hint: Any) -> tuple[Any, Any]:
    """The types of an entrypoint's result and of what it saves, from its return annotation."""
    if hint is entrypoint.final:
        return Any, Any
    if get_origin(hint) is entrypoint.final:
        returned, saved = get_args(hint)
        return returned, saved
    return hint, hint
