"""Results of tasks for equal inputs: looked up before a task runs, kept after it, and shared while it runs.

What is kept is what the body returned. Its routes and edges are evaluated anew for every task that takes it, so that
they follow the state and the graph as they are now. Of equal tasks in one process only the first runs; the others wait
for it, each at most once, and a task that others may wait for never waits itself. A result that rests on somebody's
answer to a question is not kept: it belongs to the thread that was asked.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any
from weakref import WeakKeyDictionary

from everstep.constants import PULL
from everstep.context import current_task
from everstep.declared import check_methods
from everstep.errors import ConfigError, did_you_mean
from everstep.tasks.current import Attempt, RunScope
from everstep.tasks.node import Node
from everstep.tasks.outcome import Failed, Outcome, Returned
from everstep.tasks.task import CacheUse, Task
from everstep.types import MISSING
from everstep_savers.cache import FullKey, Namespace
from everstep_savers.codec import Codec, Encoded, default_codec
from everstep_savers.errors import CodecError

Attempts = Callable[[RunScope, Task], Awaitable[Outcome]]


class _Flight:
    """A task that runs, and how many equal ones wait for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.result: asyncio.Future[Encoded | None] = loop.create_future()
        self.waiting = 0

    def land(self, result: Encoded | None) -> None:
        """Give those that wait a result, or None to have them run; the first time counts."""
        if not self.result.done():
            self.result.set_result(result)


_flights: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[int, FullKey], _Flight]] = WeakKeyDictionary()


async def run_cached(run: RunScope, task: Task, attempts: Attempts) -> Outcome:
    """Run a task whose node has a cache policy; `attempts` runs its body, or its writers on what was kept.

    A cache that fails, a key that cannot be made and a result that cannot be kept fail the task.
    """
    policy = task.node.cache
    assert policy is not None
    if policy.ttl is not None and policy.ttl <= 0:
        return await attempts(run, task)
    use = task.cache_use = CacheUse()
    try:
        key = _key_of(run, task)
    except Exception as error:
        return _failed(run, task, error)
    flights = _flights.setdefault(run.loop, {})
    place = (id(run.cache), key)
    if (flight := flights.get(place)) is None:
        # Before the cache is asked: whoever comes meanwhile waits for both, the lookup and the run.
        flight = flights[place] = _Flight(run.loop)
        try:
            return await _run_and_keep(run, task, attempts, key, flight)
        finally:
            del flights[place]
            flight.land(None)
    if not _others_may_wait() and (encoded := await _landed(flight)) is not None:
        use.take(_codec_of(run).decode(*encoded))
        return await attempts(run, task)
    return await _run_and_keep(run, task, attempts, key, None)


async def _run_and_keep(run: RunScope, task: Task, attempts: Attempts, key: FullKey, flight: _Flight | None) -> Outcome:
    """Take the result that is kept, or run the task and keep its result; share it with those that wait."""
    use, policy = task.cache_use, task.node.cache
    assert use is not None
    assert policy is not None
    try:
        if not task.answers:  # an answer that was sent is to be used
            found = await run.cache.aget([key])
            if key in found:
                use.take(found[key])
                _share(run, use, flight)
    except Exception as error:
        return _failed(run, task, error)
    outcome = await attempts(run, task)
    if use.is_hit or type(outcome) is not Returned or use.is_private or use.value is MISSING:
        return outcome
    try:
        _share(run, use, flight)
        await run.cache.aset({key: (use.value, policy.ttl)})
    except Exception as error:
        return _failed(run, task, error)
    return outcome


def _share(run: RunScope, use: CacheUse, flight: _Flight | None) -> None:
    if flight is not None and flight.waiting:
        flight.land(_codec_of(run).encode(use.value))


async def _landed(flight: _Flight) -> Encoded | None:
    """Wait for a flight; its result, None if it has none to share."""
    flight.waiting += 1
    try:
        await asyncio.wait([flight.result])
    finally:
        flight.waiting -= 1
    return flight.result.result()


def _others_may_wait() -> bool:
    """Does this run within a task that others may wait for? If that waited, two could wait for each other."""
    attempt = current_task.get(None)
    while isinstance(attempt, Attempt):
        if attempt.task.cache_use is not None:
            return True
        attempt = attempt.caller
    return False


def prepare_cache(cache: Any, annotations: Iterable[Any]) -> None:
    """Look at a cache once, when a graph is compiled with it, and make the types of the graph's state known to it.

    Raises:
        GraphTypeError: It is not a cache.
    """
    rule = "cache must be a cache such as InMemoryCache() or SQLCache.from_url(...)"
    check_methods(rule, cache, ("aget", "aset", "aclear"))
    codec = getattr(cache, "codec", None)
    if isinstance(codec, Codec):
        for annotation in annotations:
            codec.register_annotation(annotation)


def cache_namespace(graph: str, node: Node) -> Namespace:
    """Where the results of a node are kept: by graph, node and the function it runs."""
    return ("everstep", graph, node.identity, _origin(node))


def cache_namespaces(graph: str, nodes: Mapping[str, Node], names: Sequence[str] | None) -> list[Namespace]:
    """Where the results of some nodes are kept, or of all.

    Raises:
        ConfigError: There is no such node.
    """
    for name in names or ():
        if name not in nodes:
            raise ConfigError(f"{name!r} is not a node of graph {graph!r}.{did_you_mean(name, nodes)}")
    found = [node for node in nodes.values() if not node.hidden] if names is None else [nodes[name] for name in names]
    return [cache_namespace(graph, node) for node in found]


def _origin(node: Node) -> str:
    """The module and name of what a node runs."""
    if node.subgraph is not None:
        return f"graph {node.subgraph.name}"
    target: Any = node.action.function if node.action is not None else None
    while isinstance(target, functools.partial):
        target = target.func
    if not hasattr(target, "__qualname__"):
        target = type(target)
    return f"{target.__module__}.{target.__qualname__}"


def _key_of(run: RunScope, task: Task) -> FullKey:
    policy = task.node.cache
    assert policy is not None
    args, kwargs = task.arguments
    value: Any = (args, kwargs)
    if policy.key_func is not None:
        if task.node.mapper is not None and task.path[0] == PULL:
            args = (task.node.mapper(task.input),)
        value = policy.key_func(*args, **kwargs)
    return cache_namespace(run.graph, task.node), digest(_codec_of(run), value).hex()


def digest(codec: Codec, value: Any) -> bytes:
    """A digest that equal values of equal types have in every process, and no others.

    Sets and the keys of dicts count in whatever order they come.

    Raises:
        CodecError: The value, or a part of it, cannot be stored.
    """
    kind = type(value)
    if kind is dict:
        parts = sorted(digest(codec, key) + digest(codec, member) for key, member in value.items())
    elif kind is set or kind is frozenset:
        parts = sorted(digest(codec, member) for member in value)
    elif kind is list or kind is tuple:
        parts = [digest(codec, member) for member in value]
    else:
        tag, data = codec.encode(value)
        return _hash(f"value {tag}", data)
    return _hash(kind.__name__, b"".join(parts))


def _hash(kind: str, data: bytes) -> bytes:
    return blake2b(kind.encode() + b"\0" + data, digest_size=32).digest()


def _codec_of(run: RunScope) -> Codec:
    """The cache's codec; caches of the neighbouring ecosystem have none."""
    codec = getattr(run.cache, "codec", None)
    return codec if isinstance(codec, Codec) else default_codec


def _failed(run: RunScope, task: Task, error: Exception) -> Failed:
    if isinstance(error, CodecError):
        error = error.within(f"node {task.name!r}")
    error.add_note(f"in the cache of node {task.name!r} ({run.place})")
    return Failed(error)
