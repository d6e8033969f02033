"""Random robots for tests and experiments, with any joint types and shapes, and physically possible inertias."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from robodyn.core.description import (
    JOINT_TYPES,
    ONE_COORDINATE_TYPES,
    Inertial,
    Joint,
    Limits,
    Link,
    Mimic,
    Pose,
    RobotDescription,
)
from robodyn.core.model import Model
from robodyn.internals.arguments import count, finite_number, flag, one_of, words
from robodyn.internals.errors import ArgumentError
from robodyn.io.builders.assemble import build_model

MAX_JOINTS = 1_000_000

SHAPES: dict[str, Callable[[int, np.random.Generator], int]] = {
    "random": lambda i, rng: int(rng.integers(0, i + 1)),
    "chain": lambda i, rng: i,
    "star": lambda i, rng: 0,
    "binary": lambda i, rng: (i + 1) // 2,
    "caterpillar": lambda i, rng: i if i % 2 == 0 else i - 1,
}
"""Functions from joint i to its parent link. Link 0 is the root, and the child of joint i is link i + 1."""


def random_tree(
    n: int,
    *,
    seed: int,
    joints: Sequence[str] = ("revolute", "prismatic"),
    shape: str = "random",
    mimic: float = 0.0,
    armature: bool = False,
    base: str = "fixed",
    gravity: ArrayLike = (0.0, 0.0, -9.81),
) -> Model:
    """A random robot of n joints, the same for the same arguments.

    Args:
        n: number of joints, fixed ones included, 0 to 10^6.
        seed: of the random generator.
        joints: joint types to draw from (`robodyn.description.JOINT_TYPES`). Each occurs at least once if n is large
            enough.
        shape: "random" (parents drawn uniformly from earlier links), "chain", "star", "binary" or "caterpillar".
        mimic: share of joints with one coordinate that mimic an earlier joint.
        armature: True to give joints armature, damping and friction.
        base: "fixed" or "floating".
        gravity: acceleration of free fall in world coordinates, m/s^2.

    Raises:
        ArgumentError: a value out of range, or an unknown name.
        NumericalError: NaN or infinity in `gravity`.
    """
    description = random_description(n, seed=seed, joints=joints, shape=shape, mimic=mimic, armature=armature)
    return build_model(description, base=base, gravity=gravity)


def random_description(
    n: int,
    *,
    seed: int,
    joints: Sequence[str] = ("revolute", "prismatic"),
    shape: str = "random",
    mimic: float = 0.0,
    armature: bool = False,
) -> RobotDescription:
    """The description of `random_tree`, with the same arguments."""
    n, seed = count("n", n, 0, MAX_JOINTS), count("seed", seed, 0, 2**63)
    shape, armature = one_of("shape", shape, tuple(SHAPES)), flag("armature", armature)
    mimic = finite_number("mimic", mimic)
    if not 0.0 <= mimic <= 1.0:
        raise ArgumentError(f"mimic: got {mimic}; wanted a share from 0 to 1")
    types = words("joints", joints, JOINT_TYPES)
    if not types:
        raise ArgumentError("joints: got none; wanted at least one joint type")
    rng = np.random.default_rng(seed)
    joint_types = [*types, *(types[k] for k in rng.integers(0, len(types), max(0, n - len(types))))][:n]
    joint_types = [joint_types[k] for k in rng.permutation(n)]
    joint_list: list[Joint] = []
    masters: list[str] = []
    for i, kind in enumerate(joint_types):
        joint = _joint(i, kind, f"link{SHAPES[shape](i, rng)}", rng, armature)
        if kind in ONE_COORDINATE_TYPES:
            if masters and rng.random() < mimic:
                master = masters[int(rng.integers(len(masters)))]
                coupling = Mimic(master, float(rng.choice([-1, 1]) * rng.uniform(0.3, 1.5)), float(rng.normal()))
                joint = replace(joint, mimic=coupling)
            masters.append(joint.name)
        joint_list.append(joint)
    links = tuple(Link(f"link{i}", _inertial(rng)) for i in range(n + 1))
    return RobotDescription(f"random_tree(seed={seed})", links, tuple(joint_list))


def _joint(i: int, kind: str, parent: str, rng: np.random.Generator, armature: bool) -> Joint:
    limited = kind in ("revolute", "prismatic", "helical")
    axis, axis2 = _unit(rng), _unit(rng)
    extra = tuple(float(x) for x in rng.uniform(0.01, 0.5, 3)) if armature and kind != "fixed" else (0.0, 0.0, 0.0)
    return Joint(
        name=f"joint{i}",
        type=kind,
        parent=parent,
        child=f"link{i + 1}",
        origin=_pose(rng, 0.5),
        axis=axis,
        axis2=axis2,
        pitch=float(rng.uniform(-0.3, 0.3)) if kind == "helical" else 0.0,
        limits=Limits(-2.0, 2.0, 100.0, 10.0) if limited else Limits(),
        armature=extra[0],
        damping=extra[1],
        friction=extra[2],
    )


def _unit(rng: np.random.Generator) -> tuple[float, float, float]:
    x, y, z = rng.standard_normal(3)
    length = float(np.sqrt(x * x + y * y + z * z))
    return (float(x) / length, float(y) / length, float(z) / length)


def _pose(rng: np.random.Generator, reach: float) -> Pose:
    Q, R = np.linalg.qr(rng.standard_normal((3, 3)))
    Q *= np.sign(np.diag(R))
    Q[:, 0] *= np.linalg.det(Q)
    x, y, z = rng.uniform(-reach, reach, 3).tolist()
    return Pose((x, y, z), tuple(Q.ravel().tolist()))


def _inertial(rng: np.random.Generator) -> Inertial:
    """Mass and inertia of eight random point masses. They always satisfy the triangle inequality."""
    points, mass = rng.uniform(-0.2, 0.2, (8, 3)), float(rng.uniform(0.3, 3.0))
    spread = (points - points.mean(axis=0)).T @ (points - points.mean(axis=0)) * (mass / 8)
    I = np.trace(spread) * np.eye(3) - spread
    xx, xy, xz, yy, yz, zz = (float(I[i, j]) for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)))
    return Inertial(mass, _pose(rng, 0.2), (xx, xy, xz, yy, yz, zz))
