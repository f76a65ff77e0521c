"""The codec as the neighbouring ecosystem's serializer."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import pytest

from everstep_savers.codec import default_codec
from everstep_savers.errors import CodecError
from everstep_savers.serde import JsonPlusSerializer


@dataclass
class Order:
    """A class nobody has registered."""

    number: int


def test_a_codec_has_the_methods_of_a_serializer() -> None:
    typed = default_codec.dumps_typed((1, Decimal("2.0")))

    assert default_codec.loads_typed(typed) == (1, Decimal("2.0"))
    assert typed == default_codec.encode((1, Decimal("2.0")))


@pytest.mark.parametrize("allowed", [Order, (__name__, "Order")], ids=["class", "name"])
def test_classes_are_allowed_by_themselves_or_by_name(allowed: type | tuple[str, str]) -> None:
    serde = JsonPlusSerializer(allowed_msgpack_modules=[allowed])

    assert serde.loads_typed(serde.dumps_typed(Order(7))) == Order(7)
    with pytest.raises(CodecError):
        JsonPlusSerializer().dumps_typed(Order(7))


def test_pickle_is_a_fallback_by_choice() -> None:
    serde = JsonPlusSerializer(pickle_fallback=True)

    assert serde.dumps_typed(Order(7))[0] == "p"
