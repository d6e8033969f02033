"""Conventions of other libraries for configurations and velocities, as data."""

from __future__ import annotations

from typing import Literal

from robodyn.internals.records import dataclass

Frame = Literal["world", "body"]
Order = Literal["depth-first", "breadth-first", "alphabetical"]


@dataclass(frozen=True)
class Convention:
    """A library's convention for states. Accelerations are the time derivatives of its velocities.

    Attributes:
        name: name of the library.
        position_first: True if a floating base's position stands before its quaternion.
        scalar_first: True for quaternions wxyz, False for xyzw. It includes ball joints.
        linear_first: True if a floating base's linear velocity stands before the angular one.
        linear, angular: axes of a floating base's linear and angular velocity.
        order: order of joints, if no names are given.
        source: documentation of the convention.
        position_at, velocity_at: the point of a floating base whose position and velocity are used: "origin" of its
            frame, or "com", the centre of mass.
        planar: axes of a planar joint's velocity.
        circle: True if unbounded revolute joints and planar joints have cosine and sine instead of an angle.
        moment_first: True if a wrench's moment stands before its force.
    """

    name: str
    position_first: bool
    scalar_first: bool
    linear_first: bool
    linear: Frame
    angular: Frame
    order: Order
    source: str
    position_at: Literal["origin", "com"] = "origin"
    velocity_at: Literal["origin", "com"] = "origin"
    planar: Frame = "body"
    circle: bool = False
    moment_first: bool = False


CONVENTIONS: dict[str, Convention] = {
    each.name: each
    for each in (
        Convention(
            "pinocchio", True, False, True, "body", "body", "alphabetical",
            "Pinocchio: JointModelFreeFlyer; tested against its module", circle=True,
        ),
        Convention(
            "mujoco", True, True, True, "world", "body", "depth-first",
            "MuJoCo's documentation, Computation, floating objects; tested against its module",
        ),
        Convention(
            "drake", False, True, False, "world", "world", "depth-first",
            "Drake: QuaternionFloatingJoint, PlanarJoint; tested against its module where it is installed",
            planar="world", moment_first=True,
        ),
        Convention(
            "pybullet", True, False, True, "world", "world", "depth-first",
            "PyBullet Quickstart Guide: getBasePositionAndOrientation, getBaseVelocity; tested against its module "
            "where it is installed",
            position_at="com", velocity_at="com",
        ),
        Convention(
            "newton", True, False, True, "world", "world", "depth-first",
            "Newton's documentation, conventions: free joints; by its formulas",
            velocity_at="com",
        ),
        Convention(
            "isaaclab2", True, True, True, "world", "world", "breadth-first",
            "Isaac Lab 2: ArticulationData.root_link_state_w; by its formulas",
        ),
        Convention(
            "isaaclab3", True, False, True, "world", "world", "breadth-first",
            "Isaac Lab 3: ArticulationData.root_link_state_w; by its formulas",
        ),
    )
}  # fmt: skip
"""All conventions by name."""
