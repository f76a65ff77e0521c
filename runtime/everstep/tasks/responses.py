"""Response schemas of questions: shown to clients as JSON Schema, and checked against the answer.

A schema is a JSON Schema dict (checked with jsonschema), or a pydantic model, a dataclass, a TypedDict or any
other type pydantic knows: the answer is then converted to it. Both libraries are optional.
"""

from __future__ import annotations

import dataclasses
import sys
from functools import lru_cache
from typing import Any, get_type_hints, is_typeddict


def json_schema_of(schema: Any) -> dict[str, Any] | None:
    """What clients are shown.

    Raises:
        ImportError: The library that the schema needs is not installed.
        TypeError: It is not a schema.
    """
    if schema is None:
        return None
    if isinstance(schema, dict):
        _ = _jsonschema()  # who asks is to hear what is missing, not who answers
        return schema
    shown: dict[str, Any] = _adapter(schema).json_schema()
    return shown


def checked_answer(schema: Any, value: Any) -> Any:
    """The answer, converted to the schema's type.

    Raises:
        ValueError: It does not fit; the validation error of pydantic or jsonschema.
    """
    if schema is None:
        return value
    if not isinstance(schema, dict):
        return _adapter(schema).validate_python(value)
    library = _jsonschema()
    try:
        library.validate(value, schema)
    except library.ValidationError as error:
        place = "".join(f"[{part!r}]" for part in error.absolute_path)
        raise ValueError(
            f"the answer {value!r:.200} does not fit its response_schema: {error.message} (at {place or 'top'})"
        ) from error
    return value


def plain_answer(shown: dict[str, Any] | None, value: Any) -> Any:
    """An answer as it is kept: of a question with a schema, an instance of a model or dataclass by its fields.

    The schema makes an instance of it again; until its node runs, nobody can know the class.

    Args:
        shown: The question's schema, as clients are shown it.
    """
    if shown is None:
        return value
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return value.model_dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def _jsonschema() -> Any:
    try:
        import jsonschema
    except ImportError as error:
        raise ImportError(
            "a JSON Schema as response_schema needs jsonschema: pip install 'everstep[schemas]'"
        ) from error
    return jsonschema


@lru_cache(maxsize=256)
def _adapter(schema: Any) -> Any:
    try:
        from pydantic import TypeAdapter
    except ImportError as error:
        raise ImportError("a type as response_schema needs pydantic: pip install 'everstep[schemas]'") from error
    return TypeAdapter(pydantic_type(schema))


def pydantic_type(schema: Any) -> Any:
    """The type as pydantic takes it: before Python 3.12, it knows only the TypedDict of typing_extensions."""
    if not is_typeddict(schema) or sys.version_info >= (3, 12):
        return schema
    from typing_extensions import TypedDict

    make: Any = TypedDict
    return make(schema.__name__, get_type_hints(schema, include_extras=True), total=schema.__total__)
