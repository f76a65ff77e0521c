"""The input of a run, checked before anything is stored.

A run's input is an update like any other, but that keys outside the input schema are left out where the
graph knows them. It becomes a plain dict, so that no stored input needs the schema's class.
"""

from __future__ import annotations

from typing import Any

from everstep.errors import InvalidUpdateError
from everstep.graph.schema import update_of
from everstep.graph.writers import KeyRules, shown


class InputCheck:
    """Checks the input of a graph whose state is a mapping of keys.

    Raises:
        InvalidUpdateError: The input is no update, or has a key that is in no schema.
        pydantic.ValidationError: A value does not fit its field.
    """

    __slots__ = ("_graph", "_rules", "_schema")

    def __init__(self, graph: str, schema: str, rules: KeyRules) -> None:
        self._graph = graph
        self._schema = schema
        self._rules = rules

    def __call__(self, value: Any) -> dict[str, Any]:
        """Return the input as a dict of the input schema's keys."""
        where = f"the input of graph {self._graph!r}"
        update = update_of(value)
        if update is None:
            raise InvalidUpdateError(
                f"{where} is {shown(value)}; expected a dict of state keys or an instance of {self._schema}"
            )
        kept = self._rules.kept(update, where)
        for key in kept.keys() & self._rules.checks.keys():
            try:
                self._rules.checks[key](kept[key])
            except ValueError as error:
                error.add_note(f"in key {key!r} of {where}")
                raise
        return kept
