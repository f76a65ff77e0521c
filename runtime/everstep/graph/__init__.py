"""Building graphs: home of `StateGraph` and of the names a graph is built with."""

from __future__ import annotations

from everstep.constants import END, START
from everstep.graph.builder import StateGraph
from everstep.graph.compiled import CompiledStateGraph
from everstep.graph.message import MessagesState, add_messages, push_message
from everstep.graph.validate import GraphWarning

__all__ = [
    "END",
    "START",
    "CompiledStateGraph",
    "GraphWarning",
    "MessagesState",
    "StateGraph",
    "add_messages",
    "push_message",
]
