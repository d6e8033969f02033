"""What tests of rollouts share."""

from __future__ import annotations

from typing import Any

import numpy as np

import robodyn as rd
from robodyn.joints import KINDS


def every_kind() -> rd.Model:
    """A tree with every joint kind, and armature."""
    return rd.random_tree(9, seed=4, joints=tuple(kind.name for kind in KINDS), armature=True)


def far(got: Any, wanted: Any) -> float:
    """The largest error relative to the size of its state, or to 1."""
    return float((np.abs(got - wanted).max(-1) / (1.0 + np.abs(wanted).max(-1))).max())
