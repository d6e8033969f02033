"""Pinocchio models of the robots that we load: from the URDF by its own reader, or joint by joint from a description."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pinocchio as pin

from robodyn.description import Inertial, Joint, Pose, RobotDescription

MIDDLE = "/1"
"""What our models append to the name of a universal joint to name its first axis and the body behind it."""

AT_ORIGIN = pin.SE3.Identity()


class Refused(Exception):
    """Pinocchio does not take the file, or takes it and says that something in it is wrong."""


def read_urdf(path: Path, floating: bool) -> pin.Model:
    """The model of a URDF file by Pinocchio's reader, mimics ignored. Raises Refused.

    The reader zeroes inertias that it cannot parse and says so on file descriptor 2 alone.
    """
    with tempfile.TemporaryFile() as said:
        stderr = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            model = pin.buildModelFromUrdf(str(path), *([pin.JointModelFreeFlyer()] if floating else []))
        except ValueError:
            model = None
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        said.seek(0)
        text = said.read().decode(errors="replace")
    if model is None or "Error" in text:
        raise Refused("; ".join(line.strip() for line in text.splitlines() if "Error" in line) or "not a URDF model")
    return model


def from_description(description: RobotDescription, floating: bool) -> pin.Model:
    """The model of a description, mimics ignored, made joint by joint: for joint types that URDF does not have."""
    children: dict[str, list[Joint]] = defaultdict(list)
    for joint in description.joints:
        children[joint.parent].append(joint)
    inertials = {link.name: link.inertial for link in description.links}
    model = pin.Model()
    model.name = description.name
    armature: dict[int, float] = {}
    waiting: list[tuple[Joint, int, pin.SE3]] = []  # joints, the mover of their parent link and its place there

    def place(link: str, mover: int, placement: pin.SE3) -> None:
        inertial = inertials[link]
        if inertial is not None:
            model.appendBodyToJoint(mover, _inertia(inertial), placement)
        model.addFrame(pin.Frame(link, mover, placement, pin.FrameType.BODY))
        waiting.extend((joint, mover, placement) for joint in reversed(children[link]))

    root_joint = pin.JointModelFreeFlyer()
    place(description.root, model.addJoint(0, root_joint, pin.SE3.Identity(), "root_joint") if floating else 0, AT_ORIGIN)
    # The last to wait goes first: depth-first, which Pinocchio's mass matrix relies on.
    while waiting:
        joint, mover, placement = waiting.pop()
        placement = placement * _se3(joint.origin)
        if joint.type != "fixed":
            turn = pin.SE3(_turn(joint), np.zeros(3))
            mover = model.addJoint(mover, _joint_model(joint), placement * turn, joint.name)
            armature[mover], placement = joint.armature, turn.inverse()
        place(joint.child, mover, placement)
    along = np.zeros(model.nv)
    for number, value in armature.items():
        along[model.idx_vs[number] : model.idx_vs[number] + model.nvs[number]] = value
    model.armature = along
    return model


def _joint_model(joint: Joint) -> pin.JointModel:
    axis = np.array(joint.axis)
    return {
        "revolute": lambda: pin.JointModelRevoluteUnaligned(axis),
        "continuous": lambda: pin.JointModelRevoluteUnboundedUnaligned(axis),
        "prismatic": lambda: pin.JointModelPrismaticUnaligned(axis),
        "helical": lambda: pin.JointModelHelicalUnaligned(axis, joint.pitch),
        "universal": lambda: pin.JointModelUniversal(axis, np.array(joint.axis2)),
        "spherical": pin.JointModelSpherical,
        "planar": pin.JointModelPlanar,
        "floating": pin.JointModelFreeFlyer,
    }[joint.type]()


def _turn(joint: Joint) -> np.ndarray:
    """Axes of the frame that a planar joint counts its coordinates in, in the joint frame; else the identity.

    Its z axis is the joint's normal, reached by the smallest rotation; a normal that points down is reached after
    half a turn about x.
    """
    if joint.type != "planar":
        return np.eye(3)
    half_turn = np.diag([1.0, -1.0, -1.0]) if joint.axis[2] < 0 else np.eye(3)
    up = np.array([0.0, 0.0, 1.0])
    return half_turn @ pin.Quaternion.FromTwoVectors(up, half_turn @ np.array(joint.axis)).matrix()


def _se3(pose: Pose) -> pin.SE3:
    return pin.SE3(np.array(pose.rotation).reshape(3, 3), np.array(pose.xyz))


def _inertia(inertial: Inertial) -> pin.Inertia:
    xx, xy, xz, yy, yz, zz = inertial.inertia
    pose = _se3(inertial.pose)
    about_center = pose.rotation @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ pose.rotation.T
    return pin.Inertia(inertial.mass, pose.translation, about_center)
