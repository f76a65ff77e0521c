"""What one call of a graph asks for, as a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from everstep.config import RunConfig
from everstep.context import ServerInfo
from everstep.control import RunControl
from everstep.pregel.blueprint import Blueprint, Names, OnPending
from everstep.pregel.commits import CommitQueue
from everstep.stream.buffer import Outlet
from everstep.tasks.current import Attempt
from everstep.types import Durability, OnError, StreamVersion
from everstep_savers.base import AtomicSaver

NodeNames = Sequence[str] | Literal["*"]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One call.

    Attributes:
        saver: None for a run that nothing outlives.
        output: The channels whose values are the result; `shown` those that streams show.
        on_pending: What new input does to an open question.
        output_model: Makes an instance of the output schema of them; None leaves them a mapping.
        version: "v2" gives the result as a `GraphOutput`.
        outlet: Where events go; None if nobody reads any.
        parent: The attempt of the node that called this graph as a subgraph; None for a root run.
        is_stateful: A subgraph that keeps its own history from run to run (`checkpointer=True`).
        replay: Namespace -> checkpoint id, for subgraphs that are to start from an earlier checkpoint.
        on_error: What a failing node does to its siblings; None takes it from the run that calls this one.
        deadline: Seconds the whole run may take.
        step_timeout: Seconds each superstep may take.
        control: Asks the run to stop at a barrier; None takes that of the run that calls this one.
        debug: Check that nodes do not change in place what they share.
    """

    graph: Blueprint
    input: Any
    config: RunConfig
    saver: AtomicSaver[Any] | None
    output: Names
    shown: Names
    output_model: Callable[[Any], Any] | None = None
    version: StreamVersion = "v1"
    durability: Durability = "async"
    context: Any = None
    store: Any = None
    cache: Any = None
    interrupt_before: NodeNames = ()
    interrupt_after: NodeNames = ()
    on_pending: OnPending = "supersede"
    outlet: Outlet | None = None
    parent: Attempt | None = None
    is_stateful: bool = False
    replay: Mapping[str, str] = field(default_factory=dict)
    on_error: OnError | None = None
    deadline: float | None = None
    step_timeout: float | None = None
    control: RunControl | None = None
    server_info: ServerInfo | None = None
    debug: bool = False


# The checkpoints from which a branch parted, the nearest first, each with the questions answered anew there: what
# subgraphs did under them is there on the branch too.
Continues = Sequence[tuple[str, frozenset[str]]]


@dataclass(frozen=True, slots=True)
class Nesting:
    """What a run hands to the runs of the subgraphs that its nodes call.

    Attributes:
        queue: The commits of the root run; None for a run that nothing outlives.
        parents: Namespace -> checkpoint id of each graph that contains this one.
        outlets: Of the readers that see subgraphs.
        may_continue: The run continues an earlier one: its subgraphs may have got somewhere.
        reask: Suspended tasks run again though they have no answer (the run continues without one).
        replay: Namespace -> checkpoint from which the subgraph in it starts.
        continues: On a branch that goes on from what was there, see `Continues`.
        reopened: Ids of the tasks that run again at the start of such a branch, because a question of theirs is
            answered anew; None if that is not known.
    """

    queue: CommitQueue | None
    parents: Mapping[str, str]
    outlets: tuple[Outlet, ...] = ()
    may_continue: bool = False
    reask: bool = False
    replay: Mapping[str, str] = field(default_factory=dict)
    continues: Continues = ()
    reopened: frozenset[str] | None = None
