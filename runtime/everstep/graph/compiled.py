"""A compiled `StateGraph`: the engine's graph, with what it was made from and how to draw it."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from everstep.graph.draw import Drawing, drawing_of
from everstep.graph.models import is_model
from everstep.graph.schema import Schema
from everstep.graph.spec import GraphSpec
from everstep.graph.typed import ContextT, InputT, OutputT, StateT, Typed
from everstep.pregel.blueprint import Blueprint, CompileOptions
from everstep.pregel.described import Side, model_of_one
from everstep.pregel.graph import Pregel
from everstep.tasks.responses import json_schema_of


class CompiledStateGraph(Pregel, Typed[StateT, ContextT, InputT, OutputT]):
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

    @property
    def input_schema(self) -> Any:
        """The input schema if it is a pydantic model, else a model of one value of it."""
        return self._model_of(self.spec.input, "input")

    @property
    def output_schema(self) -> Any:
        """The output schema if it is a pydantic model, else a model of one value of it."""
        return self._model_of(self.spec.output, "output")

    def get_input_jsonschema(self, config: Any = None) -> dict[str, Any]:
        """The JSON Schema of the input; needs pydantic."""
        return self._json_schema(self.spec.input, "input")

    def get_output_jsonschema(self, config: Any = None) -> dict[str, Any]:
        """The JSON Schema of the output; needs pydantic."""
        return self._json_schema(self.spec.output, "output")

    def _model_of(self, schema: Schema, side: Side) -> Any:
        return schema.source if is_model(schema.source) else model_of_one(self._title(side), schema.source)

    def _json_schema(self, schema: Schema, side: Side) -> dict[str, Any]:
        found = json_schema_of(schema.source) or {}
        # A TypedDict and a model have their own names; what is converted to an instance goes by the graph's.
        has_name = not schema.is_root and not is_dataclass(schema.source)
        return found if has_name else {**found, "title": self._title(side)}

    def get_graph(self, config: Any = None, *, xray: int | bool = False) -> Drawing:
        """Return the graph as it can be drawn.

        Args:
            config: Has no influence on the drawing; taken for symmetry with graphs that read it.
            xray: Draw the nodes of subgraphs too; a number limits how deep.
        """
        return drawing_of(self.spec, *self._stops, xray)
