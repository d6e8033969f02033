"""Converts models to graphs of networkx, which can find paths and subtrees, and make drawings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.description import Pose
from robodyn.core.findings import Notes
from robodyn.internals.errors import UnavailableError
from robodyn.internals.messages import install
from robodyn.io.editing.to_description import describe

if TYPE_CHECKING:
    from robodyn.core.model import Model


def graph(model: Model) -> Any:
    """The robot as a directed graph; see `Model.graph`."""
    try:
        import networkx
    except ImportError as error:
        raise UnavailableError(f"graph: networkx cannot be imported here ({error}): {install('graph')}") from error
    robot = describe(model, Notes())
    result = networkx.DiGraph(name=model.name)
    for link, body in zip(robot.links, robot.bodies, strict=True):
        inertial = link.inertial
        mass, com, inertia = (0.0, (0.0,) * 3, (0.0,) * 6)
        if inertial is not None:
            mass, com, inertia = inertial.mass, inertial.pose.xyz, inertial.inertia
        result.add_node(link.name, body=body, mass=mass, com=com, inertia=inertia)
    for joint in robot.joints:
        fixed, limits = joint.type == "fixed", joint.limits
        result.add_edge(
            joint.parent,
            joint.child,
            joint=joint.name,
            type=joint.type,
            index=-1 if fixed else model.joint_index(joint.name),
            origin=_matrix(joint.origin),
            axis=joint.axis,
            pitch=joint.pitch,
            lower=limits.lower,
            upper=limits.upper,
            effort=limits.effort,
            velocity=limits.velocity,
            armature=joint.armature,
            damping=joint.damping,
            friction=joint.friction,
            mimic=joint.mimic,
        )
    return result


def _matrix(pose: Pose) -> Any:
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = np.reshape(pose.rotation, (3, 3)), pose.xyz
    return matrix
