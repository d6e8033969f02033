"""What is doubtful about configurations: `Model.check`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from robodyn.core.joints import KINDS
from robodyn.internals.arguments import Array, real_array
from robodyn.internals.messages import printable

if TYPE_CHECKING:
    from robodyn.core.model import Model

_TURNS = 4.0 * np.pi
"""An angle without limits beyond this looks like degrees."""
_SLACK = 1e-6
"""How far a value may be beyond a limit, and the length of a quaternion from 1: roundings of float32."""
_LARGE, _SMALL = 0.9, 0.45
"""[w, x, y, z] of a moderate rotation has a first component above, and a last one below."""


def doubts_about(model: Model, q: ArrayLike) -> list[str]:
    """`Model.check`."""
    given = real_array("q", q, (model.nq,), np.float64)
    rows = given.reshape(math.prod(given.shape[:-1]), model.nq)
    found = _Doubts(model, rows)
    with np.errstate(invalid="ignore", over="ignore"):
        found.numbers()
        found.quaternions()
    return found.said


class _Doubts:
    def __init__(self, model: Model, rows: Array) -> None:
        self.model, self.rows, self.said = model, rows, list[str]()

    def _say(self, where: str, states: Array, sentence: str) -> None:
        """A sentence about a coordinate in the states that a mask (B,) marks."""
        rows, marked = len(self.rows), int(np.count_nonzero(states))
        of = "" if rows == 1 else f" (state {int(np.argmax(states))}, and {marked} of {rows} in all)"
        self.said.append(f"{printable(where)}: {sentence}{of}")

    def numbers(self) -> None:
        """NaN and infinity, values beyond limits, and angles that look like degrees."""
        model = self.model
        angles = _angles(model)
        for k, (name, lower, upper) in enumerate(zip(model.coordinate_names, model.lower, model.upper, strict=True)):
            column = self.rows[:, k]
            if (wrong := ~np.isfinite(column)).any():
                self._say(name, wrong, f"{column[np.argmax(wrong)]}; wanted a finite number")
            slack = _SLACK * np.maximum(1.0, np.abs(column))
            beyond = np.isfinite(column) & ((column < lower - slack) | (column > upper + slack))
            turned = np.deg2rad(column)
            degrees = angles[k] & (np.abs(column) > _TURNS) & (turned >= lower - slack) & (turned <= upper + slack)
            unit = "rad" if angles[k] else "m"
            if degrees.any():
                first = column[np.argmax(degrees)]
                self._say(name, degrees, f"{first:g} rad looks like degrees, which are {np.deg2rad(first):.4g} rad")
            elif beyond.any():
                limits = f"its limits {lower:.6g} to {upper:.6g} {unit}"
                self._say(name, beyond, f"{column[np.argmax(beyond)]:g} {unit} is beyond {limits}")

    def quaternions(self) -> None:
        """Lengths, and the order of components."""
        for start in self.model.quaternion_starts.tolist():
            given = self.rows[:, start : start + 4]
            finite = np.isfinite(given).all(axis=1)
            size = np.abs(given).max(axis=1, initial=0.0)
            parts = given / np.where(size > 0.0, size, 1.0)[:, None]  # whose length neither overflows nor vanishes
            name = self.model.coordinate_names[start].rpartition(".")[0]
            length = size * np.linalg.norm(parts, axis=1)
            if (none := size == 0.0).any():
                self._say(name, none, "the quaternion is zero; wanted [x, y, z, w] of unit length")
            if (scaled := finite & (size > 0.0) & (np.abs(length - 1.0) > _SLACK)).any():
                first = length[np.argmax(scaled)]
                self._say(name, scaled, f"the quaternion has length {first:.6g}; queries scale it to unit length")
            swapped = (np.abs(given[:, 0]) > _LARGE * length) & (np.abs(given[:, 3]) < _SMALL * length)
            if swapped.all() and len(swapped):  # some attitudes are like that, but hardly those of all states
                said = ", ".join(f"{part:.3g}" for part in given[np.argmax(swapped)])
                self._say(name, swapped, f"the quaternion [{said}] looks like [w, x, y, z]; wanted [x, y, z, w]")


def _angles(model: Model) -> Array:
    """(nq,) True where a coordinate is an angle."""
    marks: list[bool] = []
    for code, followed in zip(model.joint_kind.tolist(), model.mimics.tolist(), strict=True):
        if followed < 0:
            kind = KINDS[code]
            first = kind.nq if kind.quaternion is None else kind.quaternion
            quaternion = range(first, first + 4)
            marks += [k not in kind.lengths and k not in quaternion for k in range(kind.nq)]
    return np.array(marks, dtype=bool)
