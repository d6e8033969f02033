"""What other libraries mean by a configuration and a velocity, as data."""

from __future__ import annotations

from typing import Literal

from robodyn.internals.records import dataclass

Frame = Literal["world", "body"]
Order = Literal["depth-first", "breadth-first", "alphabetical"]


@dataclass(frozen=True)
class Convention:
    """How a library writes states.

    Of a floating base: `position_first`: whether the position stands before the quaternion; `scalar_first`:
    quaternions wxyz instead of xyzw, of ball joints, too; `linear_first`: whether velocities begin with the linear one;
    `linear` and `angular`: in whose axes velocities are; `position_at`, `velocity_at`: the point of the base whose
    position and velocity are meant, "origin" or centre of mass, "com". Accelerations are the rates of these numbers. Of
    others: `planar`: in whose axes a planar joint's velocity is; `circle`: joints that turn without bounds, and planar
    ones, have a cosine and a sine for an angle. `order`: of joints, where no names are given. `moment_first` of a
    wrench. `source`: where this is written.
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
"""By name."""
