"""Numbers to turn: what sliders set, for the coordinates of every joint.

A knob is a coordinate, or roll, pitch or yaw of a quaternion. Joints that follow others have no coordinates of their
own, and so no knobs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.spatial.transform import Rotation  # type: ignore[import-untyped]

from robodyn.core.description import rotation_from_rpy
from robodyn.core.joints import KINDS, unit_quaternion
from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass
from robodyn.io.editing.writer_common import quaternion_of, rpy_of

_ANGLES = ("roll", "pitch", "yaw")
_LENGTH, _FARTHEST = 1.0, 1e6
"""Where a limit is missing, m; and limits beyond which there is none for a slider."""


@dataclass(frozen=True)
class Slider:
    """A slider: its `name`, range, and whether it is an angle. `places` of q that it has a part in, one or the four of
    a quaternion, and `angle` which of roll, pitch and yaw it is then, else -1."""

    name: str
    lower: float
    upper: float
    is_angle: bool
    places: tuple[int, ...]
    angle: int = -1


def sliders(model: Model) -> list[Slider]:
    """The knobs of a model, in the order of its coordinates."""
    found: list[Slider] = []
    lower, upper, at = model.lower, model.upper, 0
    for i in np.flatnonzero(model.mimics < 0).tolist():
        kind, name = KINDS[model.joint_kind[i]], model.joint_names[i]
        start = kind.quaternion
        for k, part in enumerate(kind.coordinates):
            if start is not None and start <= k < start + 4:
                continue
            is_angle = k not in kind.lengths
            ends = _range(float(lower[at + k]), float(upper[at + k]), math.pi if is_angle else _LENGTH)
            found.append(Slider(f"{name}.{part}" if part else name, *ends, is_angle, (at + k,)))
        if start is not None:
            four = tuple(range(at + start, at + start + 4))
            for k, part in enumerate(_ANGLES):
                most = math.pi / 2 if part == "pitch" else math.pi
                found.append(Slider(f"{name}.{part}", -most, most, True, four, k))
        at += kind.nq
    return found


def first(found: Sequence[Slider], most: int) -> list[Slider]:
    """The first knobs, and no part of a quaternion's."""
    kept = list(found[:most])
    if len(found) > most and found[most].angle > 0:
        kept = [each for each in kept if each.places != found[most].places]
    return kept


def _range(lower: float, upper: float, otherwise: float) -> tuple[float, float]:
    """The range of a slider for limits; around zero, or from the one that there is, where one is missing or both are
    the wrong way round."""
    low, high = abs(lower) <= _FARTHEST, abs(upper) <= _FARTHEST
    if low and high:
        return (lower, upper) if lower < upper else (min(lower, upper) - otherwise, max(lower, upper) + otherwise)
    if low:
        return lower, max(lower + otherwise, otherwise)
    if high:
        return min(upper - otherwise, -otherwise), upper
    return -otherwise, otherwise


def readings(chosen: Sequence[Slider], q: Array) -> list[float]:
    """Where the knobs stand at a configuration (nq,)."""
    turned: dict[tuple[int, ...], tuple[float, float, float]] = {}
    found = []
    for knob in chosen:
        if knob.angle < 0:
            found.append(float(q[knob.places[0]]))
            continue
        if knob.places not in turned:
            attitude = Rotation.from_quat(unit_quaternion(tuple(q[list(knob.places)]))).as_matrix()
            turned[knob.places] = rpy_of(tuple(attitude.ravel().tolist()))
        found.append(float(turned[knob.places][knob.angle]))
    return found


def turned(chosen: Sequence[Slider], values: Sequence[float], q: Array, which: int) -> Array:
    """The configuration (nq,) after one knob was turned: `values` are where all of them stand now."""
    knob, found = chosen[which], q.copy()
    if knob.angle < 0:
        found[knob.places[0]] = values[which]
    else:
        roll, pitch, yaw = (value for each, value in zip(chosen, values, strict=True) if each.places == knob.places)
        w, x, y, z = quaternion_of(rotation_from_rpy(roll, pitch, yaw))
        found[list(knob.places)] = x, y, z, w
    return found
