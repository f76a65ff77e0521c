"""Ready-made parts for agents: home of `ToolNode` and its like. Needs the extra `langchain`."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("langchain_core") is None:
    raise ImportError("agents and tools need langchain-core: pip install 'everstep[langchain]'")

from everstep.prebuilt.chat_agent_executor import create_react_agent
from everstep.prebuilt.injection import InjectedState, InjectedStore, ToolRuntime
from everstep.prebuilt.tool_node import ToolNode, tools_condition

__all__ = ["InjectedState", "InjectedStore", "ToolNode", "ToolRuntime", "create_react_agent", "tools_condition"]
