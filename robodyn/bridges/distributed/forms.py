"""Splits values of blocks for storage into a form (their nested structure in JSON) and a list of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief


def form_of(value: Any, leaves: list[Array]) -> Any:
    """The form of a value. Its arrays are appended to `leaves`.

    Raises:
        ArgumentError: the value holds something else than numbers, arrays, tuples, lists and dictionaries with texts as
            keys.
    """
    if isinstance(value, dict) and all(type(name) is str for name in value):
        return {"dict": {name: form_of(each, leaves) for name, each in value.items()}}
    if isinstance(value, tuple | list):
        return {"tuple" if isinstance(value, tuple) else "list": [form_of(each, leaves) for each in value]}
    try:
        leaf = np.asarray(value)
    except Exception as error:  # a foreign object may raise anything
        raise ArgumentError(f"reduce: gave {brief(value)}, which cannot be stored") from error
    if leaf.dtype.kind not in "biufc":
        raise ArgumentError(
            f"reduce: gave {brief(value)}; out= stores numbers, arrays, and dictionaries, tuples and lists"
        )
    leaves.append(leaf)
    return {"array": len(leaves) - 1}


def built(form: Any, leaves: list[Array]) -> Any:
    """The value with this form and these arrays."""
    ((kind, inside),) = form.items()
    if kind == "array":
        return leaves[inside][()]
    if kind == "dict":
        return {name: built(each, leaves) for name, each in inside.items()}
    members = [built(each, leaves) for each in inside]
    return tuple(members) if kind == "tuple" else members


def count_of(form: Any) -> int | None:
    """The number of arrays in a value of this form; None if it is no form."""
    numbers: list[Any] = []
    stack = [form]
    while stack:
        node = stack.pop()
        if not isinstance(node, dict) or len(node) != 1:
            return None
        ((kind, inside),) = node.items()
        if kind == "array":
            numbers.append(inside)
        elif kind == "dict" and isinstance(inside, dict):
            stack.extend(inside.values())
        elif kind in ("tuple", "list") and isinstance(inside, list):
            stack.extend(inside)
        else:
            return None
    count = len(numbers)
    return count if all(type(each) is int for each in numbers) and sorted(numbers) == [*range(count)] else None
