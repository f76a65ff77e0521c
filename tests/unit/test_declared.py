"""What builders refuse at once, argument by argument: whole messages, all of the one family of errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, NewType, TypedDict

import pytest

from everstep.channels import LastValue
from everstep.constants import END, START
from everstep.errors import ConfigError, EverstepError, GraphBuildError, GraphTypeError
from everstep.func import entrypoint, task
from everstep.graph import StateGraph
from everstep.policies import CachePolicy, RetryPolicy, TimeoutPolicy
from everstep.pregel import NodeBuilder, Pregel
from everstep_savers import InMemoryStore


class State(TypedDict):
    total: int


@dataclass
class Address:
    street: str = ""


Odd = TypedDict("Odd", {"a\0": int})


def pay(state: Any) -> Any:
    return {}


def node(**given: Any) -> Callable[[], Any]:
    return lambda: StateGraph(State).add_node("pay", pay, **given)


def graph(**given: Any) -> Any:
    return StateGraph(State, **given).add_node("pay", pay).add_edge(START, "pay")


def compiled(**given: Any) -> Callable[[], Any]:
    return lambda: graph().compile(**given)


def by_hand(**given: Any) -> Callable[[], Any]:
    whole = {
        "nodes": {"pay": NodeBuilder().subscribe_only("in").do(pay).write_to("out")},
        "channels": {"in": LastValue(int), "out": LastValue(int)},
        "input_channels": "in",
        "output_channels": "out",
    }
    return lambda: Pregel(**(whole | given))


# Untyped: what is given below is wrong on purpose.
by_name: Any = NodeBuilder
retry: Any = RetryPolicy
limits: Any = TimeoutPolicy
kept: Any = CachePolicy
make_task: Any = task
flow: Any = entrypoint
WRONG: Any = 3

ATTEMPTS = "RetryPolicy.max_attempts, which counts the first attempt, is a whole number from 1, got"
RETRY_ON = "RetryPolicy.retry_on is an exception type, a list of them or a function of the error, got"
A_TYPE = "is a type, such as a TypedDict, a dataclass or a pydantic model, got"
A_STORE = "store must be a store such as InMemoryStore() or SQLStore.from_url(...), got"
A_SAVER = "checkpointer must be a saver such as InMemorySaver() or SQLSaver.from_url(...), got"
CALLED = "expected a function, a callable object or an object with ainvoke(), got"

REFUSED: list[tuple[Callable[[], Any], str]] = [
    (node(defer="yes"), "node 'pay': defer is True or False, got str 'yes'"),
    (node(metadata=["a"]), "node 'pay': metadata is a mapping of your own keys to values, got list ['a']"),
    (node(input_schema=3), f"node 'pay': a schema {A_TYPE} int 3"),
    (node(input_schema={"total": int}), f"node 'pay': a schema {A_TYPE} dict {{'total': <class 'int'>}}"),
    (node(input_schema=Address()), f"node 'pay': a schema {A_TYPE} Address Address(street='')"),
    (node(retry_policy="two"), "node 'pay': retry_policy is a RetryPolicy or a list of them, got str 'two'"),
    (
        node(retry_policy=RetryPolicy),
        "node 'pay': retry_policy is a RetryPolicy or a list of them, got the class RetryPolicy",
    ),
    (node(cache_policy=3), "node 'pay': cache_policy is a CachePolicy, got int 3"),
    (node(timeout="1 s"), "node 'pay': run_timeout is seconds or a timedelta, got str '1 s'"),
    (node(timeout=-1), "node 'pay': run_timeout must be greater than zero, got -1"),
    (node(error_handler=3), f"error handler of node 'pay': {CALLED} int 3"),
    (node(destinations=3), "node 'pay': destinations is a list of names, got int 3"),
    (node(destinations=[3]), "node 'pay': a name in destinations is a string, got int 3"),
    (
        lambda: node(destinations="zz")().add_edge(START, "pay").compile(),
        "node 'pay' declares the destination 'zz', which is not a node of this graph.",
    ),
    (lambda: graph(context_schema=3), f"context_schema {A_TYPE} int 3"),
    (lambda: graph(input_schema="State"), f"a schema {A_TYPE} str 'State'"),
    (lambda: graph(output_schema=[State]), f"a schema {A_TYPE} list [{State!r}]"),
    (
        lambda: graph().add_edge(None, "pay"),
        "the start of an edge is the name of a node, or a list of them for a join, got NoneType None",
    ),
    (
        lambda: graph().add_conditional_edges("pay", pay, 3),
        "route of node 'pay': path_map is a list of names, got int 3",
    ),
    (
        lambda: graph().add_conditional_edges("pay", pay, {"x": ["pay"]}),
        "route of node 'pay': a name in path_map is a string, got list ['pay']",
    ),
    (lambda: graph().add_sequence(3), "a sequence is a list of nodes, got int 3"),
    (
        lambda: graph().add_sequence([("a", pay, 3)]),
        f"a node of a sequence is an action, or a tuple of name and action, got ('a', {pay!r}, 3)",
    ),
    (
        lambda: graph().set_node_defaults(cache_policy=3),
        "the node defaults: cache_policy is a CachePolicy, got int 3",
    ),
    (
        lambda: graph().set_node_defaults(retry_policy=3),
        "the node defaults: retry_policy is a RetryPolicy or a list of them, got int 3",
    ),
    (
        lambda: graph().set_node_defaults(timeout=0),
        "the node defaults: run_timeout must be greater than zero, got 0",
    ),
    (compiled(checkpointer=3), f"{A_SAVER} int 3"),
    (compiled(store="redis"), f"{A_STORE} str 'redis'"),
    (compiled(store=InMemoryStore), f"{A_STORE} the class InMemoryStore"),
    (compiled(interrupt_before=3), "interrupt_before is a list of names, got int 3"),
    (compiled(interrupt_after=[pay]), f"a name in interrupt_after is a string, got function {pay!r}"),
    (
        compiled(interrupt_after="payy"),
        "interrupt_after names 'payy', which is not a node of this graph. Did you mean 'pay'?",
    ),
    (compiled(debug="yes"), "debug is True or False, got str 'yes'"),
    (
        compiled(name="a\0"),
        r"the graph's name 'a\x00' contains a NUL character, which a database key cannot hold; choose another",
    ),
    (
        lambda: graph().add_node("a\0", pay),
        r"node name 'a\x00' contains a NUL character, which a database key cannot hold; choose another",
    ),
    (
        lambda: make_task(pay, name="\ud800"),
        r"node name '\ud800' contains a lone surrogate, which a database key cannot hold; choose another",
    ),
    (
        lambda: StateGraph(Odd),
        r"key of Odd 'a\x00' contains a NUL character, which a database key cannot hold; choose another",
    ),
    (
        by_hand(channels={"in": LastValue(int), "out": LastValue(int), "a\0": LastValue(int)}),
        r"channel name 'a\x00' contains a NUL character, which a database key cannot hold; choose another",
    ),
    (compiled(name=3), "the name of a graph is a string, got int 3"),
    (compiled(aliases=["old"]), "aliases is a mapping of old names of nodes to new ones, got list ['old']"),
    (
        compiled(aliases={"old": "payy"}),
        "the alias 'old' -> 'payy' leads to 'payy', which is not a node of this graph. Did you mean 'pay'?",
    ),
    (compiled(aliases={"old": 3}), "the alias 'old' -> 3 leads to 3, which is not a node of this graph."),
    (
        compiled(aliases={"pay": "pay"}),
        "the alias 'pay' -> 'pay' renames 'pay', which is a node of this graph; an alias begins at a name that is gone",
    ),
    (lambda: make_task(pay, name=""), "the name of a node is a non-empty string, got str ''"),
    (lambda: make_task(cache_policy=3)(pay), "task 'pay': cache_policy is a CachePolicy, got int 3"),
    (lambda: make_task(retry_policy=3)(pay), "task 'pay': retry_policy is a RetryPolicy or a list of them, got int 3"),
    (lambda: make_task(timeout="x")(pay), "task 'pay': run_timeout is seconds or a timedelta, got str 'x'"),
    (lambda: make_task(3), f"task 'int': {CALLED} int 3"),
    (lambda: flow()(3), f"entrypoint 'int': {CALLED} int 3"),
    (lambda: flow(cache_policy=3)(pay), "entrypoint 'pay': cache_policy is a CachePolicy, got int 3"),
    (lambda: flow(timeout=-1)(pay), "entrypoint 'pay': run_timeout must be greater than zero, got -1"),
    (lambda: flow(context_schema=3)(pay), f"context_schema {A_TYPE} int 3"),
    (lambda: flow(checkpointer=3)(pay), f"{A_SAVER} int 3"),
    (lambda: flow(store=3)(pay), f"{A_STORE} int 3"),
    (by_hand(nodes=[3]), "nodes is a mapping of names to nodes, got list [3]"),
    (by_hand(nodes={"pay": 3}), "node 'pay' is a NodeBuilder, or what its build() returned, got int 3"),
    (by_hand(nodes={3: NodeBuilder()}), "the name of a node is a string, got int 3"),
    (by_hand(channels=[3]), "channels is a mapping of names to channels, got list [3]"),
    (
        by_hand(channels={"in": int}),
        "channel 'in' is a channel such as LastValue(int), or a managed value, got the class int",
    ),
    (by_hand(input_channels=3), "input_channels is a list of names, got int 3"),
    (by_hand(output_channels=[3]), "a name in output_channels is a string, got int 3"),
    (by_hand(stream_channels=3), "stream_channels is a list of names, got int 3"),
    (by_hand(interrupt_before_nodes=3), "interrupt_before_nodes is a list of names, got int 3"),
    (by_hand(cache_policy=3), "cache_policy is a CachePolicy, got int 3"),
    (by_hand(context_schema=3), f"context_schema {A_TYPE} int 3"),
    (by_hand(store=3), f"{A_STORE} int 3"),
    (by_hand(name=3), "the name of a graph is a string, got int 3"),
    (by_hand(debug=3), "debug is True or False, got int 3"),
    (by_hand(step_timeout="x"), "step_timeout is a number of seconds above zero or a timedelta, got 'x'"),
    (lambda: by_name().subscribe_only(3), "a name in subscribe_only is a string, got int 3"),
    (lambda: by_name().subscribe_to(3), "a name in subscribe_to is a string, got int 3"),
    (lambda: by_name().read_from(3), "a name in read_from is a string, got int 3"),
    (lambda: by_name().write_to(3), "a write goes to the name of a channel, or is a ChannelWriteEntry, got int 3"),
    (lambda: by_name().meta(3), "a name in tags is a string, got int 3"),
    (lambda: by_name().add_retry_policies(3), "retry_policy is a RetryPolicy or a list of them, got int 3"),
    (lambda: by_name().add_cache_policy(3), "cache_policy is a CachePolicy, got int 3"),
    (
        lambda: retry(max_attempts="3"),
        f"{ATTEMPTS} str '3'",
    ),
    (
        lambda: retry(max_attempts=2.5),
        f"{ATTEMPTS} float 2.5",
    ),
    (lambda: retry(initial_interval=-1), "RetryPolicy.initial_interval is a number from 0, got -1"),
    (lambda: retry(backoff_factor=float("nan")), "RetryPolicy.backoff_factor is a number from 0, got nan"),
    (lambda: retry(max_interval=None), "RetryPolicy.max_interval is a number from 0, got NoneType None"),
    (lambda: retry(jitter=0.5), "RetryPolicy.jitter is True or False, got float 0.5"),
    (
        lambda: retry(retry_on=int),
        f"{RETRY_ON} the class int",
    ),
    (
        lambda: retry(retry_on=["x"]),
        f"{RETRY_ON} list ['x']",
    ),
    (lambda: limits(refresh_on="write"), "refresh_on is 'auto' or 'heartbeat', got 'write'"),
    (lambda: kept(ttl="x"), "CachePolicy.ttl is a number of seconds, got str 'x'"),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[message[:60] for _, message in REFUSED])
def test_an_argument_that_cannot_be_meant_is_refused_where_it_is_given(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(EverstepError) as caught:
        build()
    assert str(caught.value) == message
    assert isinstance(caught.value, GraphBuildError | ConfigError)


def test_an_argument_of_a_wrong_type_is_a_type_error_and_one_of_a_wrong_value_is_not() -> None:
    with pytest.raises(TypeError) as caught:
        node(cache_policy=3)()
    assert type(caught.value) is GraphTypeError
    with pytest.raises(ValueError) as refused:
        node(timeout=-1)()
    assert type(refused.value) is GraphBuildError


def test_a_refused_node_is_not_part_of_the_graph() -> None:
    builder = graph()
    with pytest.raises(GraphBuildError):
        builder.add_node("more", pay, cache_policy=3)
    assert list(builder.add_node("more", pay).add_edge("pay", "more").compile().nodes) == [START, "pay", "more"]


Money = NewType("Money", int)


@pytest.mark.parametrize("schema", [int, Any, list[int], int | None, Annotated[list[int], max], Money, Address, State])
def test_whatever_can_annotate_is_a_schema(schema: Any) -> None:
    StateGraph(schema, context_schema=schema).add_node("pay", pay, input_schema=schema).add_edge(START, "pay").compile()


def test_one_name_stands_for_a_list_of_it() -> None:
    builder = graph().add_node("ask", pay, destinations="pay").add_conditional_edges("pay", lambda _: END, END)
    assert builder.nodes["ask"].goto.names == ("pay",)
    assert builder.add_edge("pay", "ask").compile(interrupt_before="pay").options.interrupt_before == ("pay",)


def test_what_policies_can_be_is_taken() -> None:
    policy = RetryPolicy(initial_interval=0, retry_on=[ValueError, KeyError])
    builder = StateGraph(State).add_node(
        "pay",
        pay,
        defer=True,
        metadata={"a": 1},
        retry_policy=[policy],
        cache_policy=CachePolicy(ttl=1),
        timeout=timedelta(1),
    )
    assert builder.nodes["pay"].retry == (policy,)
    assert RetryPolicy(retry_on=lambda error: True).matches(KeyError())
