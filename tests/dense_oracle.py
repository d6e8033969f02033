"""An independent oracle: dense 6 x 6 matrices in world coordinates and plain loops over links, from a description.

It shares no code with the package: links are not merged, joints are homogeneous matrices, the mass matrix is the sum
of J' M J over links, and forces come from the Newton-Euler equation of each link by itself. Joints must be listed
parents first.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from robodyn.description import Joint, Link, RobotDescription


def hat(a):
    return np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])


def homogeneous(R, p):
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = R, p
    return T


def motion_to_world(T):
    """6 x 6 that takes motion vectors of a frame at T to world coordinates."""
    R, p = T[:3, :3], T[:3, 3]
    return np.block([[R, np.zeros((3, 3))], [hat(p) @ R, R]])


def cross_motion(v):
    return np.block([[hat(v[:3]), np.zeros((3, 3))], [hat(v[3:]), hat(v[:3])]])


def align_z_to(axis):
    """The smallest rotation that takes z to the axis, after half a turn about x where the axis points down."""
    axis = np.asarray(axis, float)
    flip = np.eye(3) if axis[2] >= 0 else np.diag([1.0, -1.0, -1.0])
    target = flip @ axis
    sine = np.cross([0, 0, 1], target)
    length = np.linalg.norm(sine)
    if length == 0:
        return flip
    return flip @ Rotation.from_rotvec(sine / length * np.arctan2(length, target[2])).as_matrix()


COUNTS = {"fixed": (0, 0), "planar": (3, 3), "floating": (7, 6), "spherical": (4, 3), "universal": (2, 2)}


def counts(joint: Joint):
    return COUNTS.get(joint.type, (1, 1))


def move(joint: Joint, q):
    """Homogeneous transform across the joint, and the columns of its motion in the child's frame."""
    axis = np.asarray(joint.axis)
    if joint.type in ("revolute", "continuous"):
        return homogeneous(Rotation.from_rotvec(axis * q[0]).as_matrix(), np.zeros(3)), [np.r_[axis, 0, 0, 0]]
    if joint.type == "prismatic":
        return homogeneous(np.eye(3), axis * q[0]), [np.r_[0, 0, 0, axis]]
    if joint.type == "helical":
        T = homogeneous(Rotation.from_rotvec(axis * q[0]).as_matrix(), axis * joint.pitch * q[0])
        return T, [np.r_[axis, joint.pitch * axis]]
    if joint.type == "spherical":
        return homogeneous(Rotation.from_quat(q).as_matrix(), np.zeros(3)), list(np.eye(6)[:3])
    if joint.type == "floating":
        return homogeneous(Rotation.from_quat(q[3:]).as_matrix(), q[:3]), [*np.eye(6)[3:], *np.eye(6)[:3]]
    if joint.type == "universal":
        first, second = (
            Rotation.from_rotvec(np.asarray(a) * x).as_matrix() for a, x in zip((axis, joint.axis2), q, strict=True)
        )
        return homogeneous(first @ second, np.zeros(3)), [np.r_[second.T @ axis, 0, 0, 0], np.r_[joint.axis2, 0, 0, 0]]
    if joint.type == "planar":
        A = align_z_to(axis)
        T = homogeneous(A, [0, 0, 0]) @ homogeneous(Rotation.from_rotvec([0, 0, q[2]]).as_matrix(), [q[0], q[1], 0])
        columns = [np.r_[0, 0, 0, A[:, 0]], np.r_[0, 0, 0, A[:, 1]], np.r_[A[:, 2], 0, 0, 0]]
        return T @ homogeneous(A.T, [0, 0, 0]), columns
    raise AssertionError(joint.type)


def spatial_inertia(link: Link):
    """6 x 6 inertia in the link's frame."""
    if link.inertial is None:
        return np.zeros((6, 6))
    m, c = link.inertial.mass, np.asarray(link.inertial.pose.xyz)
    xx, xy, xz, yy, yz, zz = link.inertial.inertia
    R = np.array(link.inertial.pose.rotation).reshape(3, 3)
    I = R @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ R.T
    return np.block([[I + m * hat(c) @ hat(c).T, m * hat(c)], [m * hat(c).T, m * np.eye(3)]])


class DenseOracle:
    """Dynamics of one state at a time. `base` as for load_urdf; mimicking joints follow."""

    def __init__(self, description: RobotDescription, base: str = "fixed", gravity=(0, 0, -9.81)):
        self.links = {link.name: link for link in description.links}
        self.root = description.root
        self.joints = list(description.joints)
        if base == "floating":
            self.joints.insert(0, Joint("root_joint", "floating", "", self.root))
        self.gravity = np.asarray(gravity, float)
        self.moving = {joint.child for joint in self.joints if joint.type != "fixed"}
        for joint in self.joints:
            if joint.parent in self.moving:
                self.moving.add(joint.child)
        by_name = {joint.name: joint for joint in self.joints}
        # G and g0: one row per tree coordinate.
        self.q_slot, self.v_slot, nq, nv = {}, {}, 0, 0
        for joint in self.joints:
            if joint.mimic is None:
                self.q_slot[joint.name], self.v_slot[joint.name] = nq, nv
                nq, nv = nq + counts(joint)[0], nv + counts(joint)[1]
        self.nq, self.nv = nq, nv
        self.follow = {}
        for joint in self.joints:
            multiplier, offset, at = 1.0, 0.0, joint
            while at.mimic is not None:
                multiplier, offset = multiplier * at.mimic.multiplier, offset + multiplier * at.mimic.offset
                at = by_name[at.mimic.joint]
            self.follow[joint.name] = (at.name, multiplier, offset)

    def kinematics(self, q, qd, qdd, V0=None, dV0=None):
        """Poses, world Jacobians, velocities and accelerations of every link, in world coordinates."""
        T, J, V, A = {}, {}, {}, {}
        still = np.zeros(6)
        world = (np.eye(4), np.zeros((6, self.nv)), still if V0 is None else V0, still if dV0 is None else dV0)
        T[self.root], J[self.root], V[self.root], A[self.root] = world
        for joint in self.joints:
            parent = world if joint.parent == "" else tuple(values[joint.parent] for values in (T, J, V, A))
            source, multiplier, offset = self.follow[joint.name]
            n_q, n_v = counts(joint)
            q_j = multiplier * np.asarray(q[self.q_slot[source] : self.q_slot[source] + n_q]) + offset
            if joint.mimic is None:
                q_j = np.asarray(q[self.q_slot[source] : self.q_slot[source] + n_q])
            across, columns = (np.eye(4), []) if n_v == 0 else move(joint, q_j)
            origin = homogeneous(np.array(joint.origin.rotation).reshape(3, 3), joint.origin.xyz)
            frame = parent[0] @ origin
            pose = frame @ across
            Jc = parent[1].copy()
            velocity, acceleration = parent[2].copy(), parent[3].copy()
            if joint.type == "universal":
                # The first axis stands still in the frame before the joint, not in the child's.
                first = motion_to_world(frame) @ np.r_[joint.axis, 0, 0, 0]
                worlds = [first, motion_to_world(pose) @ columns[1]]
            else:
                worlds = [motion_to_world(pose) @ column for column in columns]
            for c, column in enumerate(worlds):
                slot = self.v_slot[source] + c
                Jc[:, slot] += multiplier * column
                velocity = velocity + column * multiplier * qd[slot]
                acceleration = acceleration + column * multiplier * qdd[slot]
                if joint.type == "universal":
                    acceleration = acceleration + cross_motion(velocity) @ (column * multiplier * qd[slot])
            if joint.type != "universal" and worlds:
                rate = sum(column * multiplier * qd[self.v_slot[source] + c] for c, column in enumerate(worlds))
                acceleration = acceleration + cross_motion(velocity) @ rate
            T[joint.child], J[joint.child], V[joint.child], A[joint.child] = pose, Jc, velocity, acceleration
        return T, J, V, A

    def _world_inertia(self, name, T):
        X = np.linalg.inv(motion_to_world(T[name]))
        return X.T @ spatial_inertia(self.links[name]) @ X

    def armature(self):
        total = np.zeros(self.nv)
        for joint in self.joints:
            source, multiplier, _ = self.follow[joint.name]
            for c in range(counts(joint)[1]):
                total[self.v_slot[source] + c] += joint.armature * multiplier**2
        return total

    def mass_matrix(self, q):
        zero = np.zeros(self.nv)
        T, J, _, _ = self.kinematics(q, zero, zero)
        return sum(
            (J[n].T @ self._world_inertia(n, T) @ J[n] for n in self.moving), np.zeros((self.nv, self.nv))
        ) + np.diag(self.armature())

    def inverse_dynamics(self, q, qd, qdd, V0=None, dV0=None, wrenches=None):
        """`wrenches`: link name -> (6,) in world coordinates about the world's origin."""
        T, J, V, A = self.kinematics(q, qd, qdd, V0, dV0)
        tau = self.armature() * qdd
        for name in self.moving:
            I = self._world_inertia(name, T)
            force = I @ (A[name] - np.r_[0, 0, 0, self.gravity]) - cross_motion(V[name]).T @ (I @ V[name])
            if wrenches and name in wrenches:
                force = force - wrenches[name]
            tau = tau + J[name].T @ force
        return tau

    def energies(self, q, qd, V0=None):
        zero = np.zeros(self.nv)
        T, _, V, _ = self.kinematics(q, qd, zero, V0)
        K = 0.5 * sum((V[n] @ self._world_inertia(n, T) @ V[n] for n in self.moving), self.armature() @ qd**2)
        return K, -self.gravity @ self._first_moment(T)[1]

    def _first_moment(self, T):
        mass, moment = 0.0, np.zeros(3)
        for name in self.moving:
            inertial = self.links[name].inertial
            if inertial is not None:
                mass += inertial.mass
                moment = moment + inertial.mass * (T[name] @ np.r_[inertial.pose.xyz, 1.0])[:3]
        return mass, moment

    def momentum(self, q, qd, V0=None):
        """Centre of mass and momentum about it."""
        T, _, V, _ = self.kinematics(q, qd, np.zeros(self.nv), V0)
        mass, moment = self._first_moment(T)
        total = sum((self._world_inertia(n, T) @ V[n] for n in self.moving), np.zeros(6))
        com = moment / mass
        return com, np.r_[total[:3] - np.cross(com, total[3:]), total[3:]]
