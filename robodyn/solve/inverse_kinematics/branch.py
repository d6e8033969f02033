"""A branch of solutions, by signs of named joints: elbow up, wrist flipped."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, finite_number
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.solve.inverse_kinematics.limits import bounds


class Branch:
    """Configurations of which named joints have given signs.

    Args:
        model: the robot.
        signs: 1 or -1 by the name or index of a joint with one degree of freedom.
    """

    def __init__(self, model: Model, signs: Any) -> None:
        if not strict_types.is_a(signs, dict) or not signs:
            raise ArgumentError(f"branch: got {brief(signs)}; wanted a dict of signs (1 or -1) by joint names")
        at, wanted = [], []
        lower, upper = bounds(model)
        for joint, sign in signs.items():
            name = f"branch[{joint!r}]"
            number = model.joint_index(joint)
            if KINDS[model.joint_kind[number]].nq != 1 or int(model.mimics[number]) >= 0:
                raise ArgumentError(f"{name}: wanted a joint with one coordinate that mimics none")
            value, k = finite_number(name, sign), int(model.q_source[model.q_start[number]])
            if value not in (1.0, -1.0):
                raise ArgumentError(f"{name}: got {brief(sign)}; wanted 1 or -1")
            if max(value * lower[k], value * upper[k]) <= 0.0:
                raise ArgumentError(f"{name}: got {brief(sign)}; its limits are {lower[k]:g} and {upper[k]:g}")
            at.append(k)
            wanted.append(value)
        self._at, self._signs = np.array(at), np.array(wanted)
        self._ends = lower[self._at], upper[self._at]

    def holds(self, q: Array) -> Array:
        """True (...,) for configurations (..., nq) of the branch."""
        return np.asarray((q[..., self._at] * self._signs > 0.0).all(axis=-1))

    def moved(self, q: Array) -> Array:
        """Configurations (..., nq) with the joints moved to the branch, evenly over what their limits leave of it."""
        moved, (lower, upper) = q.copy(), self._ends
        some, up = q[..., self._at], self._signs > 0.0
        low, high = np.where(up, np.maximum(lower, 0.0), lower), np.where(up, upper, np.minimum(upper, 0.0))
        both = np.isfinite(lower) & np.isfinite(upper)
        with np.errstate(invalid="ignore", divide="ignore"):
            even = low + (some - lower) / (upper - lower) * (high - low)
        moved[..., self._at] = np.where(both, even, np.clip(self._signs * np.abs(some), low, high))
        return moved
