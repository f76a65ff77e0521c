"""What a graph takes and gives, as JSON Schema for clients. Needs pydantic.

Made of the types of its channels; nothing is checked against it here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everstep.channels.base import BaseChannel
from everstep.pregel.blueprint import Blueprint, Names
from everstep.tasks.responses import json_schema_of

TypeOf = Callable[[BaseChannel[Any, Any]], Any]


class Described:
    """A graph that describes itself."""

    blueprint: Blueprint

    def get_input_jsonschema(self, config: Any = None) -> dict[str, Any]:
        """The JSON Schema of the input; needs pydantic."""
        return self._described(self.blueprint.input_channels, lambda channel: channel.UpdateType, "input")

    def get_output_jsonschema(self, config: Any = None) -> dict[str, Any]:
        """The JSON Schema of the output; needs pydantic."""
        return self._described(self.blueprint.output_channels, lambda channel: channel.ValueType, "output")

    def get_context_jsonschema(self) -> dict[str, Any] | None:
        """The JSON Schema of a run's `context`, None if the graph does not say; needs pydantic."""
        return json_schema_of(self.blueprint.context_schema)

    def _described(self, names: Names, type_of: TypeOf, what: str) -> dict[str, Any]:
        channels, title = self.blueprint.channels, f"{self.blueprint.name}_{what}"
        if isinstance(names, str):
            return {**(json_schema_of(type_of(channels[names])) or {}), "title": title}
        properties = {name: json_schema_of(type_of(channels[name])) or {} for name in names}
        return {"type": "object", "title": title, "properties": properties}
