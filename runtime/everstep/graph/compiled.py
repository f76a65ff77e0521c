"""A compiled `StateGraph`: the engine's graph, with what it was made from and how to draw it."""

from __future__ import annotations

from typing import Any

from everstep.graph.draw import Drawing, drawing_of
from everstep.graph.schema import Schema
from everstep.graph.spec import GraphSpec
from everstep.pregel.blueprint import Blueprint, CompileOptions
from everstep.pregel.graph import Pregel
from everstep.tasks.responses import json_schema_of


class CompiledStateGraph(Pregel):
    """A graph that is ready to run; made by `StateGraph.compile`.

    Attributes:
        builder: The `StateGraph` it was made from, which may have changed since.
        spec: What was declared when it was compiled.
    """

    def __init__(self, blueprint: Blueprint, options: CompileOptions, builder: Any, spec: GraphSpec) -> None:
        super().__init__(blueprint, options)
        self.builder = builder
        self.spec = spec
        self._stops = (options.interrupt_before, options.interrupt_after)

    def get_input_jsonschema(self, config: Any = None) -> dict[str, Any]:
        """The JSON Schema of the input; needs pydantic."""
        return self._json_schema(self.spec.input, f"{self.name}_input")

    def get_output_jsonschema(self, config: Any = None) -> dict[str, Any]:
        """The JSON Schema of the output; needs pydantic."""
        return self._json_schema(self.spec.output, f"{self.name}_output")

    def _json_schema(self, schema: Schema, title: str) -> dict[str, Any]:
        found = json_schema_of(schema.source) or {}
        return {**found, "title": title}

    def get_graph(self, config: Any = None, *, xray: int | bool = False) -> Drawing:
        """Return the graph as it can be drawn.

        Args:
            config: Has no influence on the drawing; taken for symmetry with graphs that read it.
            xray: Draw the nodes of subgraphs too; a number limits how deep.
        """
        return drawing_of(self.spec, *self._stops, xray)
