"""What a graph takes and gives, as pydantic models and as JSON Schema, for clients. Needs pydantic.

Made of the types of its channels; nothing is checked against it here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from everstep.channels.base import BaseChannel
from everstep.pregel.blueprint import Blueprint, CompileOptions, Names
from everstep.tasks.responses import json_schema_of, pydantic_type

TypeOf = Callable[[BaseChannel[Any, Any]], Any]
Side = Literal["input", "output"]

# By which clients of the neighbouring ecosystem know what a graph without a name takes and gives.
_NAMELESS = {"input": "LangGraphInput", "output": "LangGraphOutput"}


class Described:
    """A graph that describes itself."""

    blueprint: Blueprint
    options: CompileOptions

    @property
    def input_schema(self) -> Any:
        """A pydantic model of the input; one value is its `root`."""
        return self._model(self.blueprint.input_channels, lambda channel: channel.UpdateType, "input")

    @property
    def output_schema(self) -> Any:
        """A pydantic model of the output; one value is its `root`."""
        return self._model(self.blueprint.output_channels, lambda channel: channel.ValueType, "output")

    def get_input_jsonschema(self, config: Any = None) -> dict[str, Any]:
        """The JSON Schema of the input."""
        found: dict[str, Any] = self.input_schema.model_json_schema()
        return found

    def get_output_jsonschema(self, config: Any = None) -> dict[str, Any]:
        """The JSON Schema of the output."""
        found: dict[str, Any] = self.output_schema.model_json_schema()
        return found

    def get_context_jsonschema(self) -> dict[str, Any] | None:
        """The JSON Schema of a run's `context`, None if the graph does not say."""
        return json_schema_of(self.blueprint.context_schema)

    def _title(self, side: Side) -> str:
        return _NAMELESS[side] if self.options.name is None else f"{self.options.name}_{side}"

    def _model(self, names: Names, type_of: TypeOf, side: Side) -> Any:
        channels, title = self.blueprint.channels, self._title(side)
        if isinstance(names, str):
            return model_of_one(title, type_of(channels[names]))
        from pydantic import ConfigDict, create_model

        fields: dict[str, Any] = {name: (_type(type_of(channels[name])), None) for name in names}
        return create_model(title, __config__=ConfigDict(protected_namespaces=()), **fields)


def model_of_one(title: str, kind: Any) -> Any:
    """A model of one value."""
    from pydantic import RootModel, create_model

    root: Any = RootModel
    return create_model(title, __base__=root[_type(kind)])


def _type(kind: Any) -> Any:
    return Any if kind is None else pydantic_type(kind)
