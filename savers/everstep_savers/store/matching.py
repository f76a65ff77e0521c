"""Which namespaces and which values match: pure, and the same for every store.

Namespaces are compared label by label and case by case; nothing in a label is a pattern but the whole label
``"*"`` in a listing. Filters are evaluated on the values themselves; what a database sorts out beforehand never
decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any

from everstep_savers.addresses import checked_key
from everstep_savers.errors import InvalidNamespaceError

WILDCARD = "*"
# Roots kept for what a runtime itself may put, by `batch`; that of the neighbouring ecosystem is one too.
RESERVED_ROOTS = frozenset({"everstep", "langgraph"})


def as_namespace(namespace: Sequence[str]) -> tuple[str, ...]:
    """A namespace as a tuple."""
    return tuple(namespace)


def check_namespace(namespace: Any, *, may_be_empty: bool = False) -> None:
    """Refuse what is no namespace.

    Raises:
        InvalidNamespaceError: With namespace and label.
    """
    if isinstance(namespace, str) or not isinstance(namespace, Sequence):
        raise InvalidNamespaceError(f"a namespace is a tuple of labels, such as ('users', 'ada'), not {namespace!r}")
    if not namespace and not may_be_empty:
        raise InvalidNamespaceError("Namespace cannot be empty: an item needs at least one label, such as ('users',)")
    for label in namespace:
        _check_label(label, namespace)


def check_root(namespace: Sequence[str]) -> None:
    """Refuse to put below a root that is kept for a runtime.

    Raises:
        InvalidNamespaceError: With the namespace.
    """
    if namespace[0] in RESERVED_ROOTS:
        raise InvalidNamespaceError(
            f"the first label of namespace {tuple(namespace)!r} is kept for the runtime; choose another"
        )


def check_pattern(path: Any) -> None:
    """Refuse what cannot match a namespace; the label ``"*"`` is one like any other here.

    Raises:
        InvalidNamespaceError: With path and label.
    """
    check_namespace(path, may_be_empty=True)


def _check_label(label: Any, namespace: Sequence[Any]) -> None:
    place = f"in namespace {tuple(namespace)!r}"
    if not isinstance(label, str):
        raise InvalidNamespaceError(f"label {label!r} {place} must be a string, not {type(label).__name__}")
    if not label:
        raise InvalidNamespaceError(f"labels cannot be empty strings, but one {place} is")
    if "." in label:
        raise InvalidNamespaceError(f"label {label!r} {place} cannot contain periods ('.')")
    try:
        checked_key("label", label)
    except ValueError as error:
        raise InvalidNamespaceError(f"{error}, {place}") from None


def has_prefix(namespace: Sequence[str], prefix: Sequence[str]) -> bool:
    """Do the first labels match? ``"*"`` is a label like any other."""
    return tuple(namespace[: len(prefix)]) == tuple(prefix)


def matching_namespaces(
    namespaces: Iterable[tuple[str, ...]],
    conditions: Iterable[tuple[str, Sequence[str]]],
    max_depth: int | None,
    page: slice,
) -> list[tuple[str, ...]]:
    """The namespaces that meet all conditions, cut to `max_depth`, each once, sorted, of these a page.

    Raises:
        ValueError: A condition is neither "prefix" nor "suffix".
    """
    wanted = [(_end_of(kind), tuple(path)) for kind, path in conditions]
    found = {
        namespace[:max_depth]
        for namespace in namespaces
        if all(_labels_match(end(namespace, len(path)), path) for end, path in wanted)
    }
    return sorted(found)[page]


def _end_of(kind: str) -> Callable[[tuple[str, ...], int], tuple[str, ...]]:
    if kind == "prefix":
        return lambda namespace, count: namespace[:count]
    if kind == "suffix":
        return lambda namespace, count: namespace[max(len(namespace) - count, 0) :]
    raise ValueError(f"a namespace is matched by 'prefix' or 'suffix', not by {kind!r}")


def _labels_match(labels: tuple[str, ...], path: tuple[str, ...]) -> bool:
    return len(labels) == len(path) and all(
        wanted in (WILDCARD, label) for label, wanted in zip(labels, path, strict=True)
    )


def literal_start(path: Sequence[str]) -> tuple[str, ...]:
    """The labels of a prefix before its first wildcard."""
    labels = tuple(path)
    return labels[: labels.index(WILDCARD)] if WILDCARD in labels else labels


_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
OPERATORS = ("$eq", "$ne", *_COMPARISONS)


def check_filter(filter: Mapping[str, Any] | None) -> None:
    """Refuse a filter with an operator that does not exist.

    Raises:
        ValueError: With key and operator.
    """
    if filter is not None and not isinstance(filter, Mapping):
        raise ValueError(f"a filter maps keys of the value to conditions, got {filter!r}")
    for key, condition in (filter or {}).items():
        if is_operators(condition):
            for operator in condition:
                if operator not in OPERATORS:
                    known = ", ".join(OPERATORS)
                    raise ValueError(f"unknown operator {operator!r} in the filter for {key!r}; known are {known}")
        elif isinstance(condition, Mapping):
            check_filter(condition)


def is_operators(condition: Any) -> bool:
    """Is this a condition of operators, and not a nested or plain value?"""
    return isinstance(condition, Mapping) and any(str(key).startswith("$") for key in condition)


def matches(value: Mapping[str, Any], filter: Mapping[str, Any] | None) -> bool:
    """Does a value meet every condition of a filter?"""
    return all(_meets(value.get(key), condition) for key, condition in (filter or {}).items())


def _meets(value: Any, condition: Any) -> bool:
    if is_operators(condition):
        return all(_compares(operator, value, wanted) for operator, wanted in condition.items())
    if isinstance(condition, Mapping):
        return isinstance(value, Mapping) and matches(value, condition)
    return _is_equal(value, condition)


def _compares(operator: str, value: Any, wanted: Any) -> bool:
    if operator == "$eq":
        return _is_equal(value, wanted)
    if operator == "$ne":
        return not _is_equal(value, wanted)
    try:
        return bool(_COMPARISONS[operator](value, wanted))
    except Exception:  # what cannot be compared does not match, whatever its class raises
        return False


def _is_equal(value: Any, wanted: Any) -> bool:
    try:
        return bool(value == wanted)
    except Exception:  # a user's __eq__ (numpy arrays, for one) may refuse or give no single truth
        return False
