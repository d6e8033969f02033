"""Converts vectors, quaternions and poses of a mjModel to those of a description."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.core.description import Pose, Rotation
from robodyn.core.spatial import rotation_from_quaternion, transpose
from robodyn.internals.arguments import Array


def three(values: Any) -> tuple[float, float, float]:
    """A vector as three floats."""
    x, y, z = (float(each) for each in values)
    return x, y, z


def rotation(quaternion: Any) -> Rotation:
    """The rotation matrix (row-major) of a quaternion wxyz."""
    w, x, y, z = (float(each) for each in np.asarray(quaternion) / np.linalg.norm(quaternion))
    return transpose(rotation_from_quaternion(x, y, z, w))


def moved(pose: Pose, step: Array) -> Pose:
    """Translates a pose by a vector in the pose's own axes."""
    R = np.array(pose.rotation).reshape(3, 3)
    return Pose(three(np.array(pose.xyz) + R @ step), pose.rotation)


def turned_back(pose: Pose, kind: str, axis: tuple[float, float, float], zero: float) -> Pose:
    """The frame of a joint at coordinate 0, from its frame at coordinate `zero`."""
    if zero == 0.0:
        return pose
    if kind == "prismatic":
        return moved(pose, -zero * np.array(axis))
    quaternion = np.concatenate([[np.cos(0.5 * zero)], -np.sin(0.5 * zero) * np.array(axis)])
    R = np.array(pose.rotation).reshape(3, 3) @ np.array(rotation(quaternion)).reshape(3, 3)
    return Pose(pose.xyz, tuple(R.ravel().tolist()))
