"""What users import: the names, where they are found, and that each says what it is for.

Homes are where people who know LangGraph look. Behaviour is tested elsewhere.
"""

from __future__ import annotations

import importlib
import inspect

import pytest

import everstep
import everstep_savers

HOMES: dict[str, set[str]] = {
    "everstep": {"END", "START", "Command", "Send", "StateGraph", "interrupt"},
    "everstep.graph": {"END", "START", "StateGraph"},
    "everstep.graph.message": {"MessagesState", "add_messages", "push_message"},
    "everstep.types": {
        "Command",
        "Durability",
        "GraphOutput",
        "Interrupt",
        "Overwrite",
        "PregelTask",
        "RetryPolicy",
        "Send",
        "StateSnapshot",
        "StateUpdate",
        "StreamMode",
        "StreamPart",
        "StreamWriter",
        "TimeoutPolicy",
        "interrupt",
    },
    "everstep.constants": {"END", "START"},
    "everstep.callbacks": {
        "GraphCallbackHandler",
        "GraphInterruptEvent",
        "GraphResumeEvent",
        "GraphRunEndEvent",
        "GraphRunStartEvent",
    },
    "everstep.errors": {
        "DeadlineExceededError",
        "DeterminismError",
        "EmptyChannelError",
        "GraphDrained",
        "GraphRecursionError",
        "InvalidUpdateError",
        "NodeCancelledError",
        "NodeError",
        "NodeTimeoutError",
        "UnknownInterruptError",
    },
    "everstep.channels": {
        "AnyValue",
        "BaseChannel",
        "BinaryOperatorAggregate",
        "EphemeralValue",
        "LastValue",
        "NamedBarrierValue",
        "Topic",
        "UntrackedValue",
    },
    "everstep.runtime": {"ExecutionInfo", "RunControl", "Runtime", "ServerInfo", "get_runtime"},
    "everstep.config": {"get_config", "get_store", "get_stream_writer"},
    "everstep.func": {"entrypoint", "task"},
    "everstep.pregel": {"NodeBuilder", "Pregel"},
    "everstep.prebuilt": {
        "InjectedState",
        "InjectedStore",
        "ToolNode",
        "ToolRuntime",
        "create_react_agent",
        "tools_condition",
    },
    "everstep.prebuilt.chat_agent_executor": {"AgentState", "AgentStatePydantic", "create_react_agent"},
    "everstep.prebuilt.tool_node": {"InjectedState", "InjectedStore", "ToolCallRequest", "ToolNode", "tools_condition"},
    "everstep_savers": {
        "BaseCache",
        "BaseCheckpointSaver",
        "BaseStore",
        "Checkpoint",
        "CheckpointMetadata",
        "CheckpointTuple",
        "CodecError",
        "InMemoryCache",
        "InMemorySaver",
        "InMemoryStore",
        "InvalidNamespaceError",
        "Item",
        "PersistenceError",
        "SQLCache",
        "SQLSaver",
        "SQLStore",
        "SearchItem",
    },
    "everstep_savers.cache": {"BaseCache", "InMemoryCache"},
    "everstep_savers.store": {
        "AsyncBatchedBaseStore",
        "BaseStore",
        "GetOp",
        "InMemoryStore",
        "IndexConfig",
        "InvalidNamespaceError",
        "Item",
        "ListNamespacesOp",
        "MatchCondition",
        "Op",
        "PutOp",
        "Result",
        "SearchItem",
        "SearchOp",
        "TTLConfig",
        "ensure_embeddings",
        "get_text_at_path",
        "tokenize_path",
        "validate_op_namespace",
    },
}
ROOTS = (everstep, everstep_savers)


def is_documented(value: object) -> bool:
    """Whether a class, function or module carries words of its own; constants cannot."""
    if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
        own = value.__doc__ or ""
        # `dataclass` and `NamedTuple` write a signature where nobody wrote a docstring.
        return bool(own.strip()) and not own.startswith(f"{getattr(value, '__name__', '')}(")
    return True


@pytest.mark.parametrize(("home", "name"), [(home, name) for home, names in HOMES.items() for name in sorted(names)])
def test_a_name_is_found_at_home(home: str, name: str) -> None:
    assert hasattr(importlib.import_module(home), name)


@pytest.mark.parametrize("home", HOMES)
def test_all_is_complete_sorted_and_importable(home: str) -> None:
    module = importlib.import_module(home)
    public: list[str] = list(getattr(module, "__all__", []))
    if module in ROOTS or hasattr(module, "__path__"):
        assert HOMES[home] <= set(public)
    assert len(set(public)) == len(public)
    missing = [name for name in public if not hasattr(module, name)]
    assert missing == []


@pytest.mark.parametrize("home", HOMES)
def test_every_public_name_is_documented(home: str) -> None:
    module = importlib.import_module(home)
    silent = [name for name in getattr(module, "__all__", HOMES[home]) if not is_documented(getattr(module, name))]
    assert silent == []


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.__name__)
def test_public_methods_are_documented(root: object) -> None:
    silent = [
        f"{name}.{method}"
        for name in getattr(root, "__all__", ())
        if inspect.isclass(value := getattr(root, name)) and value.__module__.startswith("everstep")
        for method, function in vars(value).items()
        if inspect.isfunction(function) and not method.startswith("_") and not inspect.getdoc(getattr(value, method))
    ]
    assert silent == []


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.__name__)
def test_an_unknown_name_is_an_attribute_error(root: object) -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(root, "no_such_name")  # noqa: B009


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.__name__)
def test_completion_offers_every_public_name(root: object) -> None:
    assert set(getattr(root, "__all__", ())) <= set(dir(root))


def test_a_name_is_the_same_object_at_every_home() -> None:
    assert everstep.StateGraph is importlib.import_module("everstep.graph").StateGraph
    assert everstep.interrupt is importlib.import_module("everstep.types").interrupt
    assert everstep.END is importlib.import_module("everstep.constants").END


def test_a_silent_name_is_found() -> None:
    class Silent:
        pass

    class Spoken:
        """Say something."""

    assert not is_documented(Silent)
    assert is_documented(Spoken)
