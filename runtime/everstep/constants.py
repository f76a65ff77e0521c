"""Reserved names of graphs and channels.

The literals that show in snapshots, streams and stored data are those of the neighbouring ecosystem.
"""

from __future__ import annotations

from everstep_savers.checkpoint import ERROR, INTERRUPT, NULL_TASK_ID, RESUME, SCHEDULED

__all__ = [
    "BRANCH_PREFIX",
    "COMMANDS",
    "DEFAULT_HANDLER",
    "END",
    "ERROR",
    "HANDLER_PREFIX",
    "INPUT",
    "INTERRUPT",
    "NS_END",
    "NS_SEP",
    "NULL_TASK_ID",
    "PREVIOUS",
    "PULL",
    "PUSH",
    "RESERVED",
    "RESUME",
    "RETURN",
    "ROOT",
    "SCHEDULED",
    "START",
    "TAG_HIDDEN",
    "TASKS",
]

# The pseudo nodes before the first and after the last node.
START = "__start__"
END = "__end__"

# Kinds of tasks, the first part of a task's path: triggered by channels, or sent.
PULL = "__pregel_pull"
PUSH = "__pregel_push"

# The channel of pending `Send`s.
TASKS = "__pregel_tasks"
# The one channel of a graph whose schema is not a mapping of keys.
ROOT = "__root__"
# The channel of what an entrypoint saves for its next run.
PREVIOUS = "__previous__"
# The writer of a run's own writes (input, update).
INPUT = "__input__"
# The write that holds the value a `@task` call returned.
RETURN = "__return__"
# The write that holds the commands of a task for the graph that contains its own.
COMMANDS = "__commands__"
# A channel of this prefix triggers the node named after it; an edge is a write to it.
BRANCH_PREFIX = "branch:to:"

# Names of error handlers in streams and snapshots: of a node's own, and of the one that all nodes share.
HANDLER_PREFIX = "__error_handler__"
DEFAULT_HANDLER = "__default_error_handler__"

# "parent:task|child:task": levels of a checkpoint namespace, and a node's name and its task.
NS_SEP = "|"
NS_END = ":"

# A node with this tag shows in no stream.
TAG_HIDDEN = "langsmith:hidden"

# Names that neither a node nor a state key may have.
RESERVED = frozenset(
    {COMMANDS, ERROR, INPUT, INTERRUPT, PULL, PUSH, RESUME, RETURN, SCHEDULED, TASKS, START, END, "__no_writes__"}
)
