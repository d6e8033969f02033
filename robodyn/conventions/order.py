"""Numbers of joints in another order, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robodyn import exact
from robodyn.arguments import flag
from robodyn.builders.findings import listed
from robodyn.errors import ArgumentError
from robodyn.messages import brief, quoted
from robodyn.tree import Indices, read_only

_MOST_NAMES = 1 << 20


class JointOrder:
    """The way between two orders of joints that have one number each, by their names.

    Args:
        names_from: joints in the order that numbers come in.
        names_to: joints in the order that is wanted.
        strict: whether both must have the same joints. Otherwise joints that one of them lacks are left out, or get the
            numbers of `fill`.

    Raises:
        ArgumentError: names that are no texts or occur twice, or joints that one side lacks.
    """

    def __init__(self, names_from: Sequence[str], names_to: Sequence[str], strict: bool = True) -> None:
        self.names_from, self.names_to = _names("names_from", names_from), _names("names_to", names_to)
        self.strict = flag("strict", strict)
        place = {name: k for k, name in enumerate(self.names_from)}
        missing = [quoted(name) for name in self.names_to if name not in place]
        more = [quoted(name) for name in self.names_from if name not in set(self.names_to)]
        if self.strict and (missing or more):
            told = ((missing, "names_from lacks"), (more, "names_to lacks"))
            raise ArgumentError(
                "; ".join(f"{text} {listed(names)}" for names, text in told if names)
                + "; wanted the same joints on both sides, or strict=False"
            )
        self.missing: tuple[str, ...] = tuple(name for name in self.names_to if name not in place)
        """Wanted joints that do not come."""
        self.index: Indices = read_only(np.array([place.get(name, -1) for name in self.names_to], dtype=np.intp))
        """(len(names_to),) where each wanted number stands among those that come, -1 where it does not."""

    def __repr__(self) -> str:
        return f"<JointOrder of {len(self.names_from)} joints to {len(self.names_to)}>"

    def __call__(self, values: Any, fill: Any = 0.0) -> Any:
        """Numbers (..., len(names_from)) in the wanted order (..., len(names_to)), arrays of any library.

        Args:
            values: arrays of NumPy, PyTorch or CuPy, or lists.
            fill: (len(names_to),) or one number, of joints that do not come.

        Raises:
            ArgumentError: another number of joints.
        """
        return _taken("values", values, self.names_from, self.index, fill)

    def back(self, values: Any, fill: Any = 0.0) -> Any:
        """Numbers (..., len(names_to)) in the order that they came in (..., len(names_from)).

        Raises:
            ArgumentError: another number of joints.
        """
        place = {name: k for k, name in enumerate(self.names_to)}
        index = np.array([place.get(name, -1) for name in self.names_from], dtype=np.intp)
        return _taken("values", values, self.names_to, index, fill)


def _taken(name: str, values: Any, names: Sequence[str], index: Indices, fill: Any) -> Any:
    array = values if hasattr(values, "shape") else np.asarray(values)
    if len(array.shape) < 1 or array.shape[-1] != len(names):
        raise ArgumentError(f"{name}: got shape {tuple(array.shape)}; wanted (..., {len(names)})")
    if not array.shape[-1] and index.size:  # nothing comes: all of it is filled
        return np.broadcast_to(np.asarray(fill, dtype=np.float64), (*array.shape[:-1], index.size)).copy()
    found = array[..., np.maximum(index, 0).tolist()]
    lacking = np.flatnonzero(index < 0)
    for k, number in zip(lacking.tolist(), np.broadcast_to(fill, (index.size,))[lacking].tolist(), strict=True):
        found[..., k] = number
    return found


def _names(name: str, given: Any) -> tuple[str, ...]:
    members = None if exact.is_a(given, str) else exact.at_most(given, _MOST_NAMES)
    texts = None if members is None else [exact.text_or_none(each) for each in members]
    if texts is None or None in texts:
        raise ArgumentError(f"{name}: got {brief(given)}; wanted a sequence of names")
    found = tuple(text for text in texts if text is not None)
    if len(set(found)) < len(found):
        twice = sorted({quoted(each) for each in found if found.count(each) > 1})
        raise ArgumentError(f"{name}: {listed(twice)} occurs twice; wanted each joint once")
    return found
