"""Several solutions of each target: what all initial configurations lead to, without those that are alike."""

from __future__ import annotations

import numpy as np

from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.solve.inverse_kinematics.search import Found

DISTINCT = 0.1
"""Two solutions are different if some joint moves by more than this between them, rad or m."""


def distinct(model: Model, found: Found, first: Array, starts: int, count: int) -> Found:
    """The `count` solutions of each target that are nearest to its first configuration and differ from each other.

    Args:
        model: the robot.
        found: results of every start of every target, (B starts, ...), target by target.
        first: (B, nq) the configurations from which distances are measured.
        starts: number of starts of each target.
        count: number of solutions of each target. If there are fewer, the others are lost.
    """
    targets = len(first)
    q = found.q.reshape(targets, starts, model.nq)
    with np.errstate(invalid="ignore"):
        far = np.linalg.norm(model.difference(first[:, None], q), axis=-1)
    left = np.where(found.done.reshape(targets, starts), far, np.inf)
    rows, chosen, there = np.arange(targets), np.zeros((targets, count), np.int64), np.zeros((targets, count), bool)
    for k in range(count):
        pick = left.argmin(axis=1)
        chosen[:, k], there[:, k] = pick, np.isfinite(left[rows, pick])
        with np.errstate(invalid="ignore"):
            alike = np.abs(model.difference(q[rows, pick][:, None], q)).max(axis=-1, initial=0.0) <= DISTINCT
        left[alike] = np.inf
    entries = (rows[:, None] * starts + chosen).ravel()
    kept = Found(*(array[entries] for array in found.arrays))
    kept.start, kept.lost = np.where(there, chosen, -1).ravel(), ~there.ravel()
    kept.done = there.ravel().copy()
    return kept
