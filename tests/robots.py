"""Robots to test on: our own, the shared collection beside a checkout, and those of the example-robot-data wheel."""

from __future__ import annotations

import functools
import importlib.util
import os
from pathlib import Path

import pytest

import robodyn as rd
from robodyn.description import JOINT_TYPES
from robodyn.io.builders.random_tree import SHAPES

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = [str(ROOT / "tests"), str(ROOT / "tests" / "cpu")]
"""Where processes of their own find what tests of the CPU engine share."""
OWN = sorted((ROOT / "models").glob("*.urdf"))
SHARED_FOLDER = Path(os.environ.get("ROBODYN_SHARED_ROBOTS", ROOT.parent / "shared" / "robots"))
SHARED = sorted(SHARED_FOLDER.glob("*.urdf"))

# Arms, quadruped, humanoid, hands with mimic, planar and massless peculiarities: the eight that every run tests.
EVERY_RUN = (
    "universalUR5",
    "iiwa14",
    "panda_arm",
    "go2",
    "g1_29dof",
    "pr2_pr2",
    "pepper",
    "shadow_hand_right",
)


def example_robot_data() -> list[Path]:
    """URDF files of the example-robot-data wheel, if it is installed."""
    spec = importlib.util.find_spec("cmeel")
    if spec is None or spec.origin is None:
        return []
    share = Path(spec.origin).parent.parent / "cmeel.prefix" / "share" / "example-robot-data" / "robots"
    return sorted(share.rglob("*.urdf"))


def shared(name: str) -> Path:
    """A robot of the shared collection, or a skip that says why."""
    path = SHARED_FOLDER / f"{name}.urdf"
    if not path.exists():
        pytest.skip(f"{path.name}: the shared robot collection is not beside this checkout")
    return path


def own(name: str) -> Path:
    """A robot of models/."""
    return ROOT / "models" / f"{name}.urdf"


def tree(seed: int, n: int | None = None, **options) -> rd.Model:
    """A random tree of every joint kind; shape, base, mimics and, where it is not said, size follow from the seed."""
    options = {
        "joints": JOINT_TYPES,
        "shape": list(SHAPES)[seed % len(SHAPES)],
        "base": "floating" if seed % 2 else "fixed",
        "mimic": 0.4 if seed % 3 == 0 else 0.0,
        "armature": True,
        **options,
    }
    print(f"tree: seed {seed}, {options}")
    return rd.random_tree(2 + seed % 9 if n is None else n, seed=seed, **options)


@functools.cache
def of_every_kind() -> rd.Model:
    """Every joint kind, joints that follow others, a floating base, armature."""
    made = rd.random_tree(8, seed=8, joints=JOINT_TYPES, base="floating", armature=True, mimic=0.3)
    assert made.has_mimic
    return made
