"""pydantic models as state schemas.

pydantic is optional: it is never imported here, only found where the user has imported it. A model's
fields are checked one by one, as it would check them itself, its field validators included: an update
holds some of the fields, so the model as a whole cannot be asked. Validators of the whole model run when
a node is given its input.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

# Raises a ValueError (pydantic's ValidationError) if the value does not fit its field.
Check = Callable[[Any], object]


def is_model(kind: Any) -> bool:
    """Is this a pydantic model class, one with fields?"""
    return _is_any_model(kind) and not kind.__pydantic_root_model__


def is_root_model(kind: Any) -> bool:
    """Is this a pydantic model class of a single value?"""
    return _is_any_model(kind) and bool(kind.__pydantic_root_model__)


def _is_any_model(kind: Any) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def model_hints(model: Any) -> dict[str, Any]:
    """The fields of a model with their annotations, metadata included."""
    model.model_rebuild()
    return {name: _hint(field) for name, field in model.model_fields.items()}


def _hint(field: Any) -> Any:
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def model_update(instance: Any) -> dict[str, Any]:
    """The fields of an instance that it says something about: those set, and defaults other than None."""
    fields_set = instance.model_fields_set
    fields = {name: getattr(instance, name) for name in type(instance).model_fields}
    return {name: value for name, value in fields.items() if value is not None or name in fields_set}


class ModelMapper:
    """Makes an instance of a model from what a node reads.

    Raises:
        pydantic.ValidationError: The state does not make a valid model.
    """

    __slots__ = ("_options", "_validate")

    def __init__(self, model: Any) -> None:
        self._validate = model.model_validate
        has_alias = any(field.validation_alias is not None for field in model.model_fields.values())
        # Keys of the state are names of fields, never their aliases.
        self._options = {"by_name": True, "by_alias": False} if has_alias else {}

    def __call__(self, value: Any) -> Any:
        return self._validate(value, **self._options) if type(value) is dict else value


def field_checks(model: Any, names: Iterable[str]) -> Mapping[str, Check]:
    """A check for each of these fields."""
    core = _core_of(model.__pydantic_core_schema__)
    return {name: _FieldCheck(name, core, model.__name__) for name in names}


@dataclass(frozen=True, slots=True)
class _Core:
    """What pydantic compiled a model to."""

    fields: Mapping[str, Any]
    definitions: list[Any]
    config: Any


class _FieldCheck:
    """Validates one field alone, as a mapping of one key: validators that look at other fields see none."""

    __slots__ = ("_name", "_validate")

    def __init__(self, name: str, core: _Core, model: str) -> None:
        field = {"type": "typed-dict-field", "schema": core.fields[name]["schema"], "required": False}
        schema = {"type": "typed-dict", "fields": {name: field}, "config": core.config, "cls_name": model}
        if core.definitions:
            schema = {"type": "definitions", "schema": schema, "definitions": core.definitions}
        self._name = name
        self._validate = sys.modules["pydantic_core"].SchemaValidator(schema).validate_python

    def __call__(self, value: Any) -> object:
        return self._validate({self._name: value})


def _core_of(schema: Any) -> _Core:
    """Find the fields inside of what stands around them: shared definitions, the model, its validators."""
    definitions: list[Any] = []
    config: Any = {}
    while schema["type"] != "model-fields":
        if schema["type"] == "definitions":
            definitions = schema["definitions"]
        elif schema["type"] == "model":
            config = schema.get("config", {})
        if schema["type"] == "definition-ref":
            schema = next(found for found in definitions if found["ref"] == schema["schema_ref"])
        else:
            schema = schema["schema"]
    return _Core(schema["fields"], definitions, config)
