"""What of a thread may be removed: pure, from the outlines of its checkpoints.

Kept are, whatever the policy says: the head and the tip of every branch, with as many of their ancestors as asked
for; the points at which branches part, with the first checkpoint of each branch, which tells that they are such points;
and of each subgraph what belongs to a checkpoint that is kept, with every checkpoint at which it asked a question.
What is kept can be read, continued and answered as before; its `parent_config` may name a checkpoint that is gone.
Nothing is read or removed here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from everstep_savers.addresses import checked_key, is_shared_by_runs
from everstep_savers.decoding import EPOCH
from everstep_savers.metadata import KEPT_ANCESTOR, Descent, descent, read_rest

# Where LangGraph counts, by channel, what a value is made of.
_COUNTERS = "counters_since_delta_snapshot"

# Namespace and checkpoint id: what tells apart the checkpoints of one thread.
Place = tuple[str, str]
Strategy = Literal["keep_latest", "delete"]


class Outline(NamedTuple):
    """What retention has to know of a checkpoint.

    Attributes:
        created_at: Microseconds since the epoch.
        parents: The checkpoints of the containing graphs to which one of a subgraph belongs, by namespace.
        origin: For a fork, the checkpoint whose subgraphs it shares.
        asks: Whether a question was asked at it.
        depth: So many of its ancestors hold writes of which its values are made. Our own values need none; graphs of
            LangGraph, which may use our savers too, tell it in the metadata.
        metadata: As it is stored, see `metadata.MetadataRow.rest`.
    """

    checkpoint_ns: str
    checkpoint_id: str
    descent: Descent
    created_at: int
    parents: Mapping[str, str]
    origin: str | None
    asks: bool
    depth: int = 0
    run_id: str | None = None
    metadata: str = "{}"


class OutlineRow(NamedTuple):
    """What is read of a checkpoint's row for its outline."""

    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    created_at: int
    source: str | None
    run_id: str | None
    metadata: str
    asks: bool


@dataclass(frozen=True, slots=True)
class Policy:
    """How much is to be kept.

    Attributes:
        keep_last: So many checkpoints of each branch, from its tip backwards; 0 removes threads that are done.
        before: Only what was made before this moment is removed; microseconds since the epoch, None for all.
        deletes: Threads are removed altogether, whatever state they are in.
    """

    keep_last: int = 1
    before: int | None = None
    deletes: bool = False

    def spares(self, created_at: int) -> bool:
        """Whether something is too young to be removed."""
        return self.before is not None and created_at >= self.before

    def takes_whole(self, status: str, updated_at: int) -> bool:
        """Whether a thread is removed altogether."""
        return self.deletes or (self.keep_last == 0 and status == "done" and not self.spares(updated_at))

    def leaves_alone(self, *, has_input: bool) -> bool:
        """Whether nothing of a thread is removed: its run has stored an input and no checkpoint to go on from yet."""
        return has_input and not self.deletes


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed, or in a dry run would be.

    Attributes:
        checkpoints: How many of each thread; threads of which nothing was removed are left out.
        threads: Threads that were removed altogether.
    """

    checkpoints: Mapping[str, int] = field(default_factory=dict)
    threads: Sequence[str] = ()


def policy_of(
    thread_ids: Sequence[str] | None,
    older_than: datetime | timedelta | None,
    keep_last: int,
    strategy: Strategy | None,
) -> Policy:
    """Read the arguments of `aprune`.

    Raises:
        ValueError: They do not say what to prune, or how.
    """
    if thread_ids is None and older_than is None:
        raise ValueError(
            "aprune was not told what to prune: pass thread_ids, older_than or both; "
            "older_than=timedelta(0) prunes every thread"
        )
    if isinstance(thread_ids, str):
        raise ValueError(f"thread_ids must be a list of thread ids, not the text {thread_ids!r}")
    if strategy not in (None, "keep_latest", "delete"):
        raise ValueError(f"strategy must be 'keep_latest' or 'delete', not {strategy!r}")
    if strategy is not None and (older_than is not None or thread_ids is None):
        raise ValueError(f"strategy={strategy!r} goes with thread_ids alone; use keep_last with older_than")
    if type(keep_last) is not int or keep_last < 0:
        raise ValueError(f"keep_last must be a number of checkpoints, 0 or more, not {keep_last!r}")
    if strategy == "delete":
        return Policy(0, None, deletes=True)
    return Policy(1 if strategy == "keep_latest" else keep_last, _micros(older_than))


def checked_runs(run_ids: Sequence[str]) -> list[str]:
    """Read the argument of `adelete_for_runs`; an empty name is that of no run.

    Raises:
        ValueError: It is no list of run ids.
    """
    if isinstance(run_ids, str):
        raise ValueError(f"run_ids must be a list of run ids, not the text {run_ids!r}")
    return [checked_key("run_id", run_id) for run_id in run_ids if run_id]


def _micros(older_than: datetime | timedelta | None) -> int | None:
    if older_than is None:
        return None
    if isinstance(older_than, timedelta):
        older_than = datetime.now(UTC) - older_than
    elif older_than.tzinfo is None:
        raise ValueError(f"older_than must say its time zone, as datetime.now(UTC) does; {older_than!r} does not")
    return (older_than - EPOCH) // timedelta(microseconds=1)


def outline(row: OutlineRow) -> Outline:
    """The outline of a checkpoint."""
    asks = bool(row.asks)
    beside: dict[str, Any] = {"run_id": row.run_id, "metadata": row.metadata}
    if row.checkpoint_ns or any(key in row.metadata for key in ("origin", _COUNTERS, KEPT_ANCESTOR)):
        found = read_rest(row.metadata)
    else:
        found = {}
    parents, origin, counters = found.get("parents"), found.get("origin"), found.get(_COUNTERS)
    return Outline(
        row.checkpoint_ns,
        row.checkpoint_id,
        descent(row.parent_id, {**found, "source": row.source}),
        row.created_at,
        parents if isinstance(parents, dict) else {},
        origin if isinstance(origin, str) else None,
        asks,
        _depth(counters) if isinstance(counters, dict) else 0,
        **beside,
    )


def _depth(counters: Mapping[str, Any]) -> int:
    """The most steps since a stored value that any channel counts; the counters are writes and steps."""
    steps = (pair[1] for pair in counters.values() if isinstance(pair, list) and len(pair) == 2)
    return max((each for each in steps if type(each) is int), default=0)


def removable(outlines: Iterable[Outline], head: str | None, policy: Policy) -> list[Place]:
    """The checkpoints of one thread that may be removed, ancestors first.

    Of the root's checkpoints those that are kept hang together, except at points where branches part: one that has
    no child is a tip, also when the thread is pruned again.

    Args:
        outlines: All checkpoints of the thread.
        head: Id of the thread's newest root checkpoint.
        policy: How much is kept.
    """
    by_namespace: dict[str, list[Outline]] = defaultdict(list)
    for each in outlines:
        by_namespace[each.checkpoint_ns].append(each)
    kept: set[Place] = set()
    points: set[Place] = set()
    # The checkpoints that checkpoints of a subgraph may belong to, by namespace.
    living: dict[str, set[str]] = {}
    # A containing graph's namespace is a prefix: it comes first.
    for namespace in sorted(by_namespace, key=len):
        line = _Namespace(by_namespace[namespace], policy, living, head if namespace == "" else None)
        ids = line.kept()
        if namespace and is_shared_by_runs(namespace):
            states = _gone_on_from(by_namespace, kept, namespace)
            ids |= {each.checkpoint_id for each in states}
            # Where they were made tells on which line.
            points |= {place for each in states for place in each.parents.items() if is_shared_by_runs(place[0])}
        living[namespace] = ids | {each.origin for each in line.all if each.origin and each.checkpoint_id in ids}
        kept |= {(namespace, checkpoint_id) for checkpoint_id in ids}
    doomed = [(each.checkpoint_ns, each.checkpoint_id) for rows in by_namespace.values() for each in rows]
    return sorted((place for place in doomed if place not in kept | points), key=lambda place: place[::-1])


def _gone_on_from(
    by_namespace: Mapping[str, Sequence[Outline]], kept: Collection[Place], namespace: str
) -> list[Outline]:
    """The states of a stateful subgraph from which runs at kept checkpoints of the graphs around it go on.

    Each is the newest one that was made on the line to the checkpoint. What was made at the point where a branch parts
    belongs to the old line.
    """
    made: dict[Place, Outline] = {}
    for each in by_namespace[namespace]:
        for place in each.parents.items():
            if place not in made or made[place].checkpoint_id < each.checkpoint_id:
                made[place] = each
    found = []
    for container in {place[0] for place in made}:
        newest: dict[str | None, Outline | None] = {}
        for each in sorted(by_namespace.get(container, ()), key=lambda each: each.checkpoint_id):
            ancestor, parts = each.descent
            state = newest.get(ancestor)
            if ancestor is not None and not parts:
                state = made.get((container, ancestor), state)
            newest[each.checkpoint_id] = state
            if state is not None and (container, each.checkpoint_id) in kept:
                found.append(state)
    return found


class Lines:
    """From which checkpoint of a thread each of its checkpoints comes, while some are removed."""

    def __init__(self, outlines: Iterable[Outline]) -> None:
        self._known: dict[Place, Outline] = {}
        self._children: dict[Place, list[Place]] = defaultdict(list)
        for each in outlines:
            self._add((each.checkpoint_ns, each.checkpoint_id), each)

    def remove(self, places: Iterable[Place]) -> list[Outline]:
        """Remove checkpoints; those that lose their parent, as they come from the nearest ancestor that stays."""
        gone = {place: self._known.pop(place) for place in places}
        orphans = [child for place in gone for child in self._children.pop(place, ()) if child in self._known]
        found = []
        for place in orphans:
            descent = self._known[place].descent
            while (parent := gone.get((place[0], descent.ancestor or ""))) is not None:
                descent = parent.descent
            found.append(self._known[place]._replace(descent=descent))
            self._add(place, found[-1])
        return found

    def _add(self, place: Place, each: Outline) -> None:
        self._known[place] = each
        if each.descent.ancestor is not None:
            self._children[place[0], each.descent.ancestor].append(place)


class _Namespace:
    """The checkpoints of one namespace, and which of them are kept."""

    def __init__(
        self, outlines: Sequence[Outline], policy: Policy, living: Mapping[str, Collection[str]], head: str | None
    ) -> None:
        self.all = outlines
        self._policy = policy
        self._living = living
        self._head = head
        self._by_id = {each.checkpoint_id: each for each in outlines}
        self._children: dict[str, list[str]] = defaultdict(list)
        for each in outlines:
            if each.descent.ancestor is not None:
                self._children[each.descent.ancestor].append(each.checkpoint_id)

    def kept(self) -> set[str]:
        """The ids of those that are kept."""
        belonging = [each for each in self.all if self._belongs(each)]
        kept = {each.checkpoint_id for each in self.all if self._policy.spares(each.created_at)}
        for each in belonging:
            children = self._children[each.checkpoint_id]
            if not children or each.checkpoint_id == self._head:
                kept.update(self._line(each, max(self._policy.keep_last, 1)))
            if len(children) > 1:
                kept.update((each.checkpoint_id, *children))
        kept |= self._subgraph_states(belonging)
        deep = [each for each in self.all if each.depth and each.checkpoint_id in kept]
        return kept.union(*(self._line(each, each.depth + 1) for each in deep))

    def _line(self, tip: Outline, length: int) -> Iterable[str]:
        """A checkpoint and its nearest ancestors."""
        at: Outline | None = tip
        for _ in range(length):
            if at is None:
                return
            yield at.checkpoint_id
            at = self._by_id.get(at.descent.ancestor or "")

    def _subgraph_states(self, belonging: Iterable[Outline]) -> set[str]:
        """What a replay of a containing graph's checkpoint starts from: the last state, and each question.

        Where runs share a namespace it is all between, since a checkpoint without a child would count as a tip later.
        """
        last: dict[tuple[tuple[str, str], ...], str] = {}
        found = set()
        for each in belonging:
            if not each.parents or not self._is_alive(each):
                continue
            key = tuple(sorted(each.parents.items()))
            last[key] = max(last.get(key, ""), each.checkpoint_id)
            if each.asks or is_shared_by_runs(each.checkpoint_ns):
                found.add(each.checkpoint_id)
        return found | set(last.values())

    def _belongs(self, each: Outline) -> bool:
        # Runs share the namespace of a subgraph with a history of its own: it outlives what it was called by.
        return is_shared_by_runs(each.checkpoint_ns) or self._is_alive(each)

    def _is_alive(self, each: Outline) -> bool:
        """Whether the checkpoints of the containing graphs are kept, as far as these are stored at all."""
        return all(
            namespace not in self._living or checkpoint_id in self._living[namespace]
            for namespace, checkpoint_id in each.parents.items()
        )
