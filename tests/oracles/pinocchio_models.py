"""Pinocchio models of the robots that we load: from URDF by its own reader, or joint by joint from a description."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pinocchio as pin

from oracles.urdf_text import Mimics, armatures
from robodyn.description import Inertial, Joint, Pose, RobotDescription


class Refused(Exception):
    """Pinocchio does not take the file, or takes it and says that something in it is wrong."""


def read_urdf(path: Path, floating: bool) -> pin.Model:
    """The model of a URDF file by Pinocchio's reader, mimics ignored, with the armature of Drake's transmissions.

    The reader zeroes an inertia that it cannot parse and says so on file descriptor 2 alone.

    Raises:
        Refused: it could not read the file, or said "Error".
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
        raise Refused("; ".join(line.strip() for line in text.splitlines() if "Error" in line) or "not a robot")
    along = np.zeros(model.nv)
    for joint, value in armatures(path).items():
        along[model.idx_vs[model.getJointId(joint)]] = value
    model.armature = along
    return model


def mimics_of_description(description: RobotDescription) -> Mimics:
    """Which joints of a description follow others."""
    return {
        joint.name: (joint.mimic.joint, joint.mimic.multiplier, joint.mimic.offset)
        for joint in description.joints
        if joint.mimic is not None
    }


def from_description(description: RobotDescription, floating: bool) -> pin.Model:
    """The model of a description, mimics ignored, made joint by joint: for joint types that URDF does not have.

    A universal joint becomes two revolute ones with nothing between them: Pinocchio's own has a wrong Coriolis matrix
    and wrong gradients (docs/accuracy.md).
    """
    children: dict[str, list[Joint]] = defaultdict(list)
    for joint in description.joints:
        children[joint.parent].append(joint)
    inertials = {link.name: link.inertial for link in description.links}
    model = pin.Model()
    armature: dict[int, float] = {}
    waiting: list[tuple[Joint, int, pin.SE3]] = []  # joints, the mover of their parent link and its pose there

    def place(link: str, mover: int, pose: pin.SE3) -> None:
        inertial = inertials[link]
        if inertial is not None:
            model.appendBodyToJoint(mover, _inertia(inertial), pose)
        model.addFrame(pin.Frame(link, mover, pose, pin.FrameType.BODY), False)
        waiting.extend((joint, mover, pose) for joint in reversed(children[link]))

    root, identity = 0, pin.SE3.Identity()
    if floating:
        root = model.addJoint(0, pin.JointModelFreeFlyer(), identity, "root_joint")
    place(description.root, root, identity)
    # The last to wait goes first: depth-first, which Pinocchio's mass matrix relies on.
    while waiting:
        joint, mover, pose = waiting.pop()
        pose = pose * _se3(joint.origin)
        turn = pin.SE3(_turn(joint), np.zeros(3))
        for name, joint_model in _movers(joint):
            mover = model.addJoint(mover, joint_model, pose * turn, name)
            armature[mover], pose = joint.armature, identity
        place(joint.child, mover, pose if joint.type == "fixed" else turn.inverse())
    along = np.zeros(model.nv)
    for mover, value in armature.items():
        along[model.idx_vs[mover] : model.idx_vs[mover] + model.nvs[mover]] = value
    model.armature = along
    return model


def _movers(joint: Joint) -> list[tuple[str, pin.JointModel]]:
    """Names and models of the Pinocchio joints that make up a joint, the first on the parent."""
    axis = np.array(joint.axis)
    if joint.type == "fixed":
        return []
    if joint.type == "universal":
        axes = (axis, np.array(joint.axis2))
        return [(f"{joint.name}/{i}", pin.JointModelRevoluteUnaligned(a)) for i, a in enumerate(axes, start=1)]
    make = {
        "revolute": lambda: pin.JointModelRevoluteUnaligned(axis),
        "continuous": lambda: pin.JointModelRevoluteUnaligned(axis),
        "prismatic": lambda: pin.JointModelPrismaticUnaligned(axis),
        "helical": lambda: pin.JointModelHelicalUnaligned(axis, joint.pitch),
        "spherical": pin.JointModelSpherical,
        "planar": pin.JointModelPlanar,
        "floating": pin.JointModelFreeFlyer,
    }
    return [(joint.name, make[joint.type]())]


def _turn(joint: Joint) -> np.ndarray:
    """Axes, in the joint frame, of the frame that a planar joint counts its coordinates in; otherwise the identity.

    Its z axis is the joint's axis, reached by the smallest rotation; an axis that points down is reached after half a
    turn about x.
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
