"""Transforms of poses in descriptions, and rotations that turn joint axes to z."""

from __future__ import annotations

from robodyn.core.description import Pose
from robodyn.core.spatial import Mat3, Transform, Vec3, cross, transpose


def pose_transform(pose: Pose) -> Transform:
    """The transform from a pose's reference frame to the frame at the pose."""
    return Transform(transpose(pose.rotation), pose.xyz)


def turn_to_z(axis: Vec3) -> Mat3:
    """The rotation matrix E that maps the unit vector `axis` to the z axis.

    It is the smallest rotation if axis_z >= 0. Otherwise a rotation by pi about x comes first. Axes along a coordinate
    axis give matrices of exact zeros and ones.
    """
    x, y, z = axis
    flip = z < 0.0
    if flip:
        y, z = -y, -z
    vx, vy, _ = cross((x, y, z), (0.0, 0.0, 1.0))
    w = 1.0 / (1.0 + z)
    E: Mat3 = (1.0 - w * vy * vy, w * vx * vy, vy, w * vx * vy, 1.0 - w * vx * vx, -vx, -vy, vx, z)
    if flip:
        E = tuple(-entry if k % 3 else entry for k, entry in enumerate(E))
    return tuple(entry + 0.0 for entry in E)  # -0.0 becomes 0.0
