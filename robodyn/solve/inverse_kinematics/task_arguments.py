"""Arguments of tasks of inverse kinematics."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.internals import strict_types
from robodyn.internals.arguments import as_array, count, finite_number, integer, real_array, require_finite
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief

Numbers = tuple[float, ...]
_HEAVIEST = 1e12
"""Largest weight. Its square, times the square of an error, does not overflow in single precision."""
_UNBOUNDED = 1e15
"""Bounds beyond this, in m, are open. Its square does not overflow in single precision."""
_LOWEST = 100
"""The largest number of a priority."""


def link_name(kind: str, field: str, link: Any) -> str | int:
    """Checks that a link is a name or an index. The model looks it up later."""
    name = strict_types.text_or_none(link)
    if name is not None:
        return name
    number = integer(link)
    if number is None:
        raise ArgumentError(f"{kind}.{field}: got {brief(link)}; wanted a link's name or index")
    return number


def vector(kind: str, field: str, value: Any) -> Numbers:
    """Three finite numbers."""
    array = real_array(f"{kind}.{field}", value, (3,), np.float64)
    if array.ndim != 1:
        raise ArgumentError(f"{kind}.{field}: got shape {array.shape}; wanted (3,)")
    require_finite(f"{kind}.{field}", array, 1)
    return tuple(array.tolist())


def weights_of(kind: str, value: Any, count: int, *counts: int) -> Any:
    """`count` finite numbers, or as many as another of the `counts`, none negative and not all 0. One number is
    repeated `count` times."""
    name = f"{kind}.weight"
    numbers = strict_types.members(value) if strict_types.is_a(value, list, tuple) else None
    several = "" if count == 1 else "".join(f", or {each} of them" for each in (count, *counts))
    if numbers is None and strict_types.is_a(value, np.ndarray):
        array = as_array(name, value, f"wanted a number from 0{several}")
        numbers = tuple(array.tolist()) if array.ndim == 1 else None
    if numbers is not None and len(numbers) not in (count, *counts):
        raise ArgumentError(f"{name}: got {brief(value)}; wanted a number from 0{several}")
    weights = tuple(finite_number(name, each) for each in (numbers if numbers is not None else (value,) * count))
    if min(weights) < 0.0 or max(weights) == 0.0:
        raise ArgumentError(f"{name}: got {brief(value)}; wanted numbers from 0, of which one is greater")
    if max(weights) > _HEAVIEST or min(each for each in weights if each) < 1.0 / _HEAVIEST:
        raise ArgumentError(f"{name}: got {brief(value)}; wanted 0, or numbers from {1 / _HEAVIEST:g} to {_HEAVIEST:g}")
    return weights


def priority_of(kind: str, value: Any) -> int:
    """An integer from 1, the highest."""
    return count(f"{kind}.priority", value, 1, _LOWEST)


def unit_vector(kind: str, field: str, value: Any) -> Numbers:
    """A vector that is not zero, of length 1."""
    along = np.array(vector(kind, field, value))
    largest = float(np.abs(along).max())
    if largest == 0.0:
        raise ArgumentError(f"{kind}.{field}: got {brief(value)}; wanted three numbers that are not all 0")
    along = along / largest
    return tuple((along / np.linalg.norm(along)).tolist())


def cone_angle(kind: str, value: Any) -> float:
    """An angle from 0 to below pi, rad."""
    angle = finite_number(f"{kind}.angle", value)
    if not 0.0 <= angle < np.pi:
        raise ArgumentError(f"{kind}.angle: got {brief(value)}; wanted a number from 0 to below pi, rad")
    return angle


def cone(angle: float) -> Numbers:
    """2 sin(angle / 2), sine and cosine of a cone's angle; nothing if it is 0."""
    return (2.0 * float(np.sin(0.5 * angle)), float(np.sin(angle)), float(np.cos(angle))) if angle else ()


def range_of(kind: str, lower: Any, upper: Any, size: int) -> tuple[Numbers, Numbers]:
    """Lower and upper bounds, `size` numbers each, or one that is repeated."""
    ends = []
    for name, value in (("lower", lower), ("upper", upper)):
        array = real_array(f"{kind}.{name}", value, (), np.float64)
        if array.shape not in ((), (size,)):
            raise ArgumentError(
                f"{kind}.{name}: got shape {array.shape}; wanted a number{f' or ({size},)' * (size > 1)}"
            )
        if np.isnan(array).any():
            raise ArgumentError(f"{kind}.{name}: got {brief(value)}; wanted numbers, of which none is NaN")
        ends.append(np.clip(np.broadcast_to(array, size), -_UNBOUNDED, _UNBOUNDED))
    if (ends[0] > ends[1]).any() or (ends[0] >= _UNBOUNDED).any() or (ends[1] <= -_UNBOUNDED).any():
        raise ArgumentError(
            f"{kind}.lower: got {brief(lower)}, upper={brief(upper)}; wanted none above the upper one, or so far away"
        )
    return tuple(ends[0].tolist()), tuple(ends[1].tolist())


def convex_polygon(name: str, value: Any) -> tuple[Numbers, ...]:
    """The corners of a convex polygon, counterclockwise, none twice or on an edge."""
    corners = real_array(name, value, (2,), np.float64, what="points")
    if corners.ndim != 2 or len(corners) < 3:
        raise ArgumentError(f"{name}: got shape {corners.shape}; wanted (k, 2), at least three corners")
    require_finite(name, corners, 1)
    if np.abs(corners).max() > _UNBOUNDED:
        raise ArgumentError(f"{name}: got {brief(value)}; wanted numbers up to {_UNBOUNDED:g} m")
    edges = np.roll(corners, -1, axis=0) - corners
    following = np.roll(edges, -1, axis=0)
    turns = edges[:, 0] * following[:, 1] - edges[:, 1] * following[:, 0]
    if (turns < 0.0).all():
        return convex_polygon(name, corners[::-1])
    around = np.arctan2(turns, (edges * following).sum(axis=1)).sum()
    if not (turns > 0.0).all() or abs(around - 2.0 * np.pi) > 1e-6:  # a star turns more than once
        raise ArgumentError(f"{name}: got {brief(value)}; wanted the corners of a convex polygon, in order")
    return tuple(tuple(corner) for corner in corners.tolist())
