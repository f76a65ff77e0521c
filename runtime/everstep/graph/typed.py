"""What `StateGraph[State, Context, Input, Output]` means: types for annotations, nothing at run time.

Type checkers see a generic class whose parameters have defaults, so that ``StateGraph[State]`` is enough. Python has
such parameters from 3.13 on only; at run time any number of them is taken and none is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    StateT = TypeVar("StateT", default=Any)
    ContextT = TypeVar("ContextT", default=Any)
    InputT = TypeVar("InputT", default=Any)
    OutputT = TypeVar("OutputT", default=Any)

    class Typed(Generic[StateT, ContextT, InputT, OutputT]):
        """Base of the classes that are annotated with the types of a graph."""

else:
    from types import GenericAlias
    from typing import TypeVar

    StateT, ContextT, InputT, OutputT = map(TypeVar, ("StateT", "ContextT", "InputT", "OutputT"))

    class Typed:
        """Base of the classes that are annotated with the types of a graph."""

        __class_getitem__ = classmethod(GenericAlias)
