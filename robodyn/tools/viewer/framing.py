"""Where one looks from: a camera that a robot fills, however large it is."""

from __future__ import annotations

import itertools

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

FIELD = np.radians(45.0)
"""Vertical field of view, rad. Wider ones distort what is near."""
_TOWARDS = np.array([0.6, -0.6, 0.3])
"""From the robot to the camera: from the right, ahead and above."""
_HIGH, _WIDE = 0.9, 0.9
"""The parts of the picture's height that a robot is high and wide at most: pictures are wider than high, and the panel
covers a part of them."""
_STEPS = 20
_REACH = 3.0
"""A motion is fitted as far as it takes no more than so many times the robot's own size."""


@dataclass(frozen=True)
class Camera:
    """Where it is and what is in the middle of its picture, (3,) each, m."""

    position: Array
    look_at: Array


def corners(low: Array, high: Array) -> Array:
    """(n, 8, 3) corners of boxes, of their lowest and highest coordinates (n, 3)."""
    chosen = np.array(list(itertools.product((False, True), repeat=3)))
    found: Array = np.where(chosen, high[:, None], low[:, None])
    return found


def middle_and_size(points: Array) -> tuple[Array, float]:
    """The middle of the box around points (n, 3) and the length of its diagonal, m; 1 m where that is none."""
    if not len(points):
        return np.zeros(3), 1.0
    low, high = points.min(axis=0), points.max(axis=0)
    size = float(np.linalg.norm(high - low))
    return (low + high) / 2.0, size if size > 0.0 else 1.0


def together(clouds: list[Array]) -> Array:
    """(n, 3) points of a motion's states, as far as they stay near the first: one that runs away would fill nothing."""
    found = clouds[0]
    most = _REACH * middle_and_size(found)[1]
    for each in clouds[1:]:
        grown = np.concatenate([found, each])
        if middle_and_size(grown)[1] <= most:
            found = np.stack([grown.min(axis=0), grown.max(axis=0)]) if len(grown) > 1_000_000 else grown
    return found


def camera_for(points: Array) -> Camera:
    """A camera whose picture points (n, 3) fill."""
    middle, size = middle_and_size(points)
    if len(points) < 2:
        points = middle + size / 2.0 * np.concatenate([np.eye(3), -np.eye(3)])
    away = _TOWARDS / np.linalg.norm(_TOWARDS)
    right = np.cross([0.0, 0.0, 1.0], away)
    right /= np.linalg.norm(right)
    axes = np.stack([right, np.cross(away, right), away])
    limits = np.tan(FIELD / 2.0) * np.array([_WIDE, _HIGH])
    for _ in range(_STEPS):
        x, y, depth = axes @ (points - middle).T
        # The least distance at which each point is within both limits; of all of them the largest.
        distance = max(float((depth + np.maximum(abs(x) / limits[0], abs(y) / limits[1])).max()), 0.1 * size)
        seen = np.stack([x, y]) / (distance - depth)
        off = (seen.min(axis=1) + seen.max(axis=1)) / 2.0 * distance
        middle = middle + off @ axes[:2]
    return Camera(middle + distance * away, middle)
