"""Reorders arrays of joint values by joint names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from robodyn.core.findings import listed
from robodyn.core.tree import Indices, read_only
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, flag, require_few_axes
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief, quoted
from robodyn.io.conventions.arrays import as_numbers, kind_of, library_of, like

_MOST_NAMES = 1 << 20


class JointOrder:
    """Maps values between two orders of joints by name. Each joint has one value.

    Args:
        names_from: joints in the order of the input.
        names_to: joints in the order of the output.
        strict: True if both must have the same joints. Otherwise joints missing in the output are dropped, and joints
            missing in the input get the values of `fill`.

    Raises:
        ArgumentError: a name is no string or occurs twice, or one side lacks a joint.
    """

    def __init__(self, names_from: Sequence[str], names_to: Sequence[str], strict: bool = True) -> None:
        self.names_from, self.names_to = _names("names_from", names_from), _names("names_to", names_to)
        self.strict = flag("strict", strict)
        place = {name: k for k, name in enumerate(self.names_from)}
        wanted = set(self.names_to)
        missing = [quoted(name) for name in self.names_to if name not in place]
        more = [quoted(name) for name in self.names_from if name not in wanted]
        if self.strict and (missing or more):
            problems = ((missing, "names_from lacks"), (more, "names_to lacks"))
            raise ArgumentError(
                "; ".join(f"{text} {listed(names)}" for names, text in problems if names)
                + "; wanted the same joints on both sides, or strict=False"
            )
        self.missing: tuple[str, ...] = tuple(name for name in self.names_to if name not in place)
        """Joints of `names_to` that `names_from` lacks."""
        self.index: Indices = read_only(np.array([place.get(name, -1) for name in self.names_to], dtype=np.intp))
        """(len(names_to),) position of each output joint in the input, -1 if the input lacks it."""

    def __repr__(self) -> str:
        return f"<JointOrder of {len(self.names_from)} joints to {len(self.names_to)}>"

    def __call__(self, values: Any, fill: Any = 0.0) -> Any:
        """Reorders values (..., len(names_from)) to (..., len(names_to)).

        Args:
            values: arrays of NumPy, PyTorch or CuPy, or lists.
            fill: (len(names_to),) or one number: values of joints that the input lacks. An array of integers becomes
                float64 if its dtype cannot represent them.

        Raises:
            ArgumentError: wrong number of joints, or values that are not numbers.
        """
        return _permuted(values, self.names_from, self.index, fill)

    def back(self, values: Any, fill: Any = 0.0) -> Any:
        """Reorders values (..., len(names_to)) to (..., len(names_from)): the inverse of a call.

        Raises:
            ArgumentError: wrong number of joints.
        """
        place = {name: k for k, name in enumerate(self.names_to)}
        index = np.array([place.get(name, -1) for name in self.names_from], dtype=np.intp)
        return _permuted(values, self.names_to, index, fill)


def _permuted(values: Any, names: Sequence[str], index: Indices, fill: Any) -> Any:
    xp = library_of({"values": values})
    array = as_numbers("values", values, "biuf") if xp is np else values
    if len(array.shape) < 1 or array.shape[-1] != len(names):
        raise ArgumentError(f"values: got shape {tuple(array.shape)}; wanted (..., {len(names)})")
    require_few_axes("values", len(array.shape) - 1)
    missing = np.flatnonzero(index < 0)
    if not missing.size:
        return array[..., index.tolist()]
    numbers = _fill_values(fill, index.size)[missing]
    array = _with_dtype_for(xp, array, numbers)
    if array.shape[-1]:
        result = array[..., np.maximum(index, 0).tolist()]
    else:  # no input joints: all values are filled
        result = xp.broadcast_to(array.sum(-1)[..., None], (*array.shape[:-1], index.size)) + 0
    result[..., missing.tolist()] = like(xp, numbers, result)
    return result


def _fill_values(fill: Any, n: int) -> Array:
    """The fill values (n,)."""
    wanted = f"wanted one number or {n}"
    xp = library_of({"fill": fill})
    array = as_numbers("fill", fill, "biuf") if xp is np else np.asarray(fill.tolist())
    if array.shape not in ((), (n,)):
        raise ArgumentError(f"fill: got shape {array.shape}; {wanted}")
    return np.broadcast_to(array, (n,))


def _with_dtype_for(xp: Any, array: Any, numbers: Array) -> Any:
    """The array in its own dtype, or in float64 if its integer dtype cannot represent the fill values."""
    if kind_of(xp, array) == "f":
        return array
    dtype = np.dtype(str(array.dtype).removeprefix("torch."))
    with np.errstate(invalid="ignore"):
        if (numbers.astype(dtype) == numbers).all():
            return array
    return array.to(xp.float64) if xp.__name__ == "torch" else array.astype(np.float64)


def _names(name: str, given: Any) -> tuple[str, ...]:
    members = None if strict_types.is_a(given, str) else strict_types.at_most(given, _MOST_NAMES)
    texts = None if members is None else [strict_types.text_or_none(each) for each in members]
    if texts is None or None in texts:
        raise ArgumentError(f"{name}: got {brief(given)}; wanted a sequence of names")
    texts_of_names = tuple(text for text in texts if text is not None)
    if len(set(texts_of_names)) < len(texts_of_names):
        twice = sorted(quoted(each) for each, times in Counter(texts_of_names).items() if times > 1)
        raise ArgumentError(f"{name}: {listed(twice)} occurs twice; wanted each joint once")
    return texts_of_names
