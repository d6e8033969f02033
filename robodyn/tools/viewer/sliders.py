"""Sliders for the coordinates of joints.

A slider sets a coordinate, or roll, pitch or yaw of a quaternion. Mimic joints have no coordinates of their own and so
no sliders.
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
"""Range of a slider without a limit, m; limits beyond the second number count as missing."""


@dataclass(frozen=True)
class Slider:
    """A slider with its `name` and range.

    `places`: indices of q that it sets, one or the four of a quaternion. `angle`: index in (roll, pitch, yaw) for a
    quaternion, else -1."""

    name: str
    lower: float
    upper: float
    is_angle: bool
    places: tuple[int, ...]
    angle: int = -1


def sliders(model: Model) -> list[Slider]:
    """The sliders of a model, in the order of its coordinates."""
    all_sliders: list[Slider] = []
    lower, upper, at = model.lower, model.upper, 0
    for i in np.flatnonzero(model.mimics < 0).tolist():
        kind, name = KINDS[model.joint_kind[i]], model.joint_names[i]
        start = kind.quaternion
        for k, part in enumerate(kind.coordinates):
            if start is not None and start <= k < start + 4:
                continue
            is_angle = k not in kind.lengths
            ends = _range(float(lower[at + k]), float(upper[at + k]), math.pi if is_angle else _LENGTH)
            all_sliders.append(Slider(f"{name}.{part}" if part else name, *ends, is_angle, (at + k,)))
        if start is not None:
            four = tuple(range(at + start, at + start + 4))
            for k, part in enumerate(_ANGLES):
                limit = math.pi / 2 if part == "pitch" else math.pi
                all_sliders.append(Slider(f"{name}.{part}", -limit, limit, True, four, k))
        at += kind.nq
    return all_sliders


def first(found: Sequence[Slider], most: int) -> list[Slider]:
    """The first sliders, at most `most`, without splitting those of a quaternion."""
    selected = list(found[:most])
    if len(found) > most and found[most].angle > 0:
        selected = [each for each in selected if each.places != found[most].places]
    return selected


def _range(lower: float, upper: float, otherwise: float) -> tuple[float, float]:
    """The range of a slider for limits. A missing limit is replaced by a default distance; limits in the wrong order
    are swapped and widened."""
    low, high = abs(lower) <= _FARTHEST, abs(upper) <= _FARTHEST
    if low and high:
        return (lower, upper) if lower < upper else (min(lower, upper) - otherwise, max(lower, upper) + otherwise)
    if low:
        return lower, max(lower + otherwise, otherwise)
    if high:
        return min(upper - otherwise, -otherwise), upper
    return -otherwise, otherwise


def readings(chosen: Sequence[Slider], q: Array) -> list[float]:
    """Values of the sliders at a configuration (nq,)."""
    angles_of: dict[tuple[int, ...], tuple[float, float, float]] = {}
    values = []
    for slider in chosen:
        if slider.angle < 0:
            values.append(float(q[slider.places[0]]))
            continue
        if slider.places not in angles_of:
            attitude = Rotation.from_quat(unit_quaternion(tuple(q[list(slider.places)]))).as_matrix()
            angles_of[slider.places] = rpy_of(tuple(attitude.ravel().tolist()))
        values.append(float(angles_of[slider.places][slider.angle]))
    return values


def turned(chosen: Sequence[Slider], values: Sequence[float], q: Array, which: int) -> Array:
    """The configuration (nq,) after slider `which` was moved. `values`: present values of all sliders."""
    slider, moved = chosen[which], q.copy()
    if slider.angle < 0:
        moved[slider.places[0]] = values[which]
    else:
        roll, pitch, yaw = (value for each, value in zip(chosen, values, strict=True) if each.places == slider.places)
        w, x, y, z = quaternion_of(rotation_from_rpy(roll, pitch, yaw))
        moved[list(slider.places)] = x, y, z, w
    return moved
