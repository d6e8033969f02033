"""Values of blocks as storage keeps them: a form in JSON, and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief


def form_of(value: Any, leaves: list[Array]) -> Any:
    """The form of a value in JSON, its arrays put at the end of `leaves`.

    Raises:
        ArgumentError: it holds something else than numbers, arrays, dictionaries by words, tuples and lists.
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
    """A value of this form."""
    ((kind, inside),) = form.items()
    if kind == "array":
        return leaves[inside][()]
    if kind == "dict":
        return {name: built(each, leaves) for name, each in inside.items()}
    found = [built(each, leaves) for each in inside]
    return tuple(found) if kind == "tuple" else found


def count_of(form: Any) -> int | None:
    """How many arrays are in a value of this form; None where it is no form."""
    numbers: list[Any] = []
    left = [form]
    while left:
        found = left.pop()
        if not isinstance(found, dict) or len(found) != 1:
            return None
        ((kind, inside),) = found.items()
        if kind == "array":
            numbers.append(inside)
        elif kind == "dict" and isinstance(inside, dict):
            left.extend(inside.values())
        elif kind in ("tuple", "list") and isinstance(inside, list):
            left.extend(inside)
        else:
            return None
    count = len(numbers)
    return count if all(type(each) is int for each in numbers) and sorted(numbers) == [*range(count)] else None
