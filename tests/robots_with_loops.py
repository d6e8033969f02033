"""Robots of models/loops: the constraints of their files, and closed states, in closed form where there is one."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
from robots import own
from scipy.spatial.transform import Rotation

import robodyn as rd

NAMES = ("four_bar", "delta", "linkage_gripper", "bird_legs")

# Of four_bar.urdf and delta.urdf, m.
CRANK, COUPLER, ROCKER, GROUND = 0.1, 0.28, 0.2, 0.3
PIVOT, ARM, ROD, CORNER, HALF = 0.12, 0.2, 0.45, 0.05, 0.04


def load(name):
    """(model, constraints) of a file of models/loops."""
    path = own(f"loops/{name}")
    return rd.load_urdf(path, base="floating" if name == "bird_legs" else "fixed"), constraints_of(path)


def constraints_of(path):
    """What the <loop_joint>s of a URDF file hold: the second link by the first; rows are in axes of the first's joint
    frame, turned such that the joint's axis is z."""
    return [_constraint(element) for element in ET.parse(path).getroot().iter("loop_joint")]


def _constraint(element):
    ends = [element.find("link1"), element.find("link2")]
    poses = [_pose(end) for end in ends]
    kind, axis = element.get("type"), element.find("axis")
    if kind in ("revolute", "continuous", "prismatic"):
        turned = _onto(_numbers(axis.get("xyz")))
        poses = [pose @ turned for pose in poses]
    given = {
        "link": ends[1].get("link"),
        "to": ends[0].get("link"),
        "at": poses[1],
        "to_at": poses[0],
        "name": element.get("name"),
    }
    free = {"fixed": (), "revolute": ("rz",), "continuous": ("rz",), "prismatic": ("z",), "ball": ("rx", "ry", "rz")}
    if kind == "ball":
        return rd.Point(**given)
    return rd.Weld(**given, rows=[row for row in ("rx", "ry", "rz", "x", "y", "z") if row not in free[kind]])


def _numbers(text):
    return np.array([float(word) for word in text.split()])


def _pose(end):
    T = np.eye(4)
    T[:3, :3] = _turn("xyz", _numbers(end.get("rpy", "0 0 0")))
    T[:3, 3] = _numbers(end.get("xyz", "0 0 0"))
    return T


def _onto(axis):
    """A pose that takes z to an axis."""
    z = axis / np.linalg.norm(axis)
    x = np.cross(np.eye(3)[np.argmin(np.abs(z))], z)
    x /= np.linalg.norm(x)
    T = np.eye(4)
    T[:3, :3] = np.stack([x, np.cross(z, x), z], axis=1)
    return T


def four_bar(angle):
    """q (3,) of a crank at an angle, by the intersection of the circles of coupler and rocker; the branch above."""
    B, D = CRANK * np.array([np.cos(angle), np.sin(angle)]), np.array([GROUND, 0.0])
    d = np.linalg.norm(D - B)
    along = (d * d + COUPLER * COUPLER - ROCKER * ROCKER) / (2.0 * d)
    e = (D - B) / d
    C = B + along * e + np.sqrt(COUPLER * COUPLER - along * along) * np.array([-e[1], e[0]])
    coupler, rocker = np.arctan2(*(C - B)[::-1]), np.arctan2(*(C - D)[::-1])
    return np.array([angle, coupler - angle, rocker])


def delta_motor(place, k):
    """The angle of arm k for a place (3,) of the platform's middle: E cos + F sin + G = 0."""
    x, y, z = _turn("z", -2.0 * np.pi * k / 3.0) @ place
    reach = x + CORNER - PIVOT
    E, F, G = -2.0 * ARM * reach, 2.0 * ARM * z, reach**2 + y**2 + z**2 + ARM**2 - ROD**2
    # Of the two answers that whose elbow is outside.
    t = (-F - np.sqrt(E * E + F * F - G * G)) / (G - E)
    return 2.0 * np.arctan(t)


def delta(model, place):
    """q (nq,) with the platform's middle at a place (3,)."""
    q = model.neutral()

    def put(name, value):
        start = model.q_start[model.joint_index(name)]
        q[start : start + np.size(value)] = value

    tilt = np.arctan2(0.27, 0.36)  # rods at zero
    for k in range(3):
        turned, angle = _turn("z", 2.0 * np.pi * k / 3.0), delta_motor(place, k)
        put(f"motor_{k + 1}", angle)
        frame = turned @ _turn("y", angle + tilt)
        rod = place + turned @ [CORNER - PIVOT - ARM * np.cos(angle), 0.0, ARM * np.sin(angle)]
        x, y, z = frame.T @ rod / ROD
        swing, aside = np.arctan2(-x, -z), np.arcsin(y)
        for side in "ab":
            put(f"elbow_{k + 1}{side}/1", swing)
            put(f"elbow_{k + 1}{side}/2", aside)
        if k == 0:
            wrist = frame @ _turn("y", swing) @ _turn("x", aside) @ _turn("y", -tilt)
            put("wrist_1a", Rotation.from_matrix(wrist.T).as_quat())
    return q


def _turn(axes, angles):
    return Rotation.from_euler(axes, angles).as_matrix()


def near(dyn, seed, size=0.25):
    """A closed state near the neutral one, by steps of `project`, and forces."""
    model, rng = dyn.model, np.random.default_rng(seed)
    q = model.integrate(model.neutral(), size * rng.uniform(-1.0, 1.0, model.nv))
    qd, tau = rng.uniform(-1.0, 1.0, (2, model.nv))
    for _ in range(12):
        q, qd = dyn.project(q, qd)
    return q, qd, tau
