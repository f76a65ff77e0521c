"""Tests beside LangGraph, which is never installed beside us: `make test-peer` gives both an environment of their own.

Elsewhere there is nothing here to run.
"""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("langgraph") else ["test_*.py"]
