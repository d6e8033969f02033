"""What tests of rollouts share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.algorithms.joint_limits import linear_dofs
from robodyn.core.integrators import INTEGRATORS
from robodyn.joints import KINDS


def every_kind() -> rd.Model:
    """A tree with every joint kind, and armature."""
    return rd.random_tree(9, seed=4, joints=tuple(kind.name for kind in KINDS), armature=True)


def far(got: Any, wanted: Any) -> float:
    """The largest error relative to the size of its state, or to 1."""
    return float((np.abs(got - wanted).max(-1) / (1.0 + np.abs(wanted).max(-1))).max())


EVERY_INTEGRATOR = [
    pytest.param(name, marks=pytest.mark.matrix) if name == "implicit" else name for name in INTEGRATORS
]
"""By name. Programs of "implicit" take the longest to compile; tests/motion/test_spin.py is about it in every run."""
MATCHED = [
    ("small", "semi_implicit_euler"),
    pytest.param("small", "implicit", marks=pytest.mark.matrix),
    ("small", "euler"),
    ("small", "midpoint"),
    ("small", "rk4"),
    ("small", "mujoco"),
    ("mimicking", "midpoint"),
    ("every_kind", "semi_implicit_euler"),
    ("quadruped", "semi_implicit_euler"),
]
"""Robots and integrators whose programs do not take seconds to compile."""
ROBOTS = {
    "every_kind": every_kind,
    "small": lambda: rd.random_tree(4, seed=3, joints=("planar", "spherical", "revolute")),
    "mimicking": lambda: rd.random_tree(10, seed=4, joints=("revolute", "prismatic", "spherical"), mimic=0.3),
    "quadruped": lambda: rd.load_urdf(own("quadruped"), base="floating"),
    "hand": lambda: rd.load_urdf(own("hand")),
}


def turning_armature(model: rd.Model) -> Any:
    """The model's armature of rotations. Integrators take that of linear velocities along axes of their own."""
    return model.armature * (1.0 - linear_dofs(model))


def everything(model: rd.Model, batch: tuple[int, ...], seed: int = 1) -> dict[str, Any]:
    """All that a step can be given, but limits."""
    rng = np.random.default_rng(seed)
    nv, inertia = model.nv, np.broadcast_to(model.inertia, (*batch, *model.inertia.shape))
    return {
        "f_ext": rng.normal(size=(*batch, model.n_bodies, 6)),
        "inertia": inertia * rng.uniform(1.0, 1.2, (*batch, 1, 1)),
        "armature": rng.uniform(0.1, 0.5, (*batch, nv)),
        "damping": rng.uniform(0.1, 0.5, (*batch, nv)),
        "friction": rng.uniform(0.1, 0.5, nv),
        "gravity": rng.normal(size=(*batch, 3)),
        "V0": rng.normal(size=(*batch, 6)),
        "dV0": rng.normal(size=(*batch, 6)),
        "kp": rng.uniform(1.0, 20.0, (*batch, nv)),
        "kd": rng.uniform(0.1, 1.0, nv),
        "q_des": model.random_configuration(rng, batch),
    }
