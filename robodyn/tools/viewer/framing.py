"""Chooses a camera such that a robot of any size fills the picture."""

from __future__ import annotations

import itertools

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

FIELD = np.radians(45.0)
"""Vertical field of view, rad. A wider one would distort near objects."""
_TOWARDS = np.array([0.6, -0.6, 0.3])
"""Direction from the robot to the camera: right, ahead and above."""
_HIGH, _WIDE = 0.9, 0.9
"""Largest height and width of a robot relative to the picture's height. Pictures are wider than high, but the panel
covers a part of them."""
_STEPS = 20
_REACH = 3.0
"""The camera covers a motion up to this multiple of the robot's size."""


@dataclass(frozen=True)
class Camera:
    """Position of a camera and the point in the middle of its picture, (3,) each, m."""

    position: Array
    look_at: Array


def corners(low: Array, high: Array) -> Array:
    """Corners (n, 8, 3) of boxes from their lowest and highest coordinates (n, 3)."""
    chosen = np.array(list(itertools.product((False, True), repeat=3)))
    points: Array = np.where(chosen, high[:, None], low[:, None])
    return points


def middle_and_size(points: Array) -> tuple[Array, float]:
    """Middle of the bounding box of points (n, 3) and length of its diagonal, m; 1 m instead of zero."""
    if not len(points):
        return np.zeros(3), 1.0
    low, high = points.min(axis=0), points.max(axis=0)
    size = float(np.linalg.norm(high - low))
    return (low + high) / 2.0, size if size > 0.0 else 1.0


def together(clouds: list[Array]) -> Array:
    """Points (n, 3) of a motion's states that stay near the first one. A robot that runs away would be too small."""
    points = clouds[0]
    largest = _REACH * middle_and_size(points)[1]
    for each in clouds[1:]:
        grown = np.concatenate([points, each])
        if middle_and_size(grown)[1] <= largest:
            points = np.stack([grown.min(axis=0), grown.max(axis=0)]) if len(grown) > 1_000_000 else grown
    return points


def camera_for(points: Array) -> Camera:
    """A camera such that points (n, 3) fill its picture."""
    middle, size = middle_and_size(points)
    if len(points) < 2:
        points = middle + size / 2.0 * np.concatenate([np.eye(3), -np.eye(3)])
    direction = _TOWARDS / np.linalg.norm(_TOWARDS)
    right = np.cross([0.0, 0.0, 1.0], direction)
    right /= np.linalg.norm(right)
    axes = np.stack([right, np.cross(direction, right), direction])
    limits = np.tan(FIELD / 2.0) * np.array([_WIDE, _HIGH])
    for _ in range(_STEPS):
        x, y, depth = axes @ (points - middle).T
        # The least distance at which all points are within both limits.
        distance = max(float((depth + np.maximum(abs(x) / limits[0], abs(y) / limits[1])).max()), 0.1 * size)
        seen = np.stack([x, y]) / (distance - depth)
        off = (seen.min(axis=1) + seen.max(axis=1)) / 2.0 * distance
        middle = middle + off @ axes[:2]
    return Camera(middle + distance * direction, middle)
