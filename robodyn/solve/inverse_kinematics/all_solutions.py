"""Several solutions of each target: what all initial configurations lead to, without those that are alike."""

from __future__ import annotations

import numpy as np

from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.solve.inverse_kinematics.limits import bounds
from robodyn.solve.inverse_kinematics.search import Found

DISTINCT = 0.1
"""Two solutions are different if some joint moves by more than this between them, rad or m."""


def _turning(model: Model) -> Array:
    """(nv,) True for joints that turn without limits and that no joint mimics."""
    lower, upper = bounds(model)
    found = np.zeros(model.nv, bool)
    for kind, q_index, v_index in model.free_joints:
        if kind.name == "revolute":
            endless = np.isinf(lower[q_index]) & np.isinf(upper[q_index])
            found[v_index[endless]] = True
    for body in np.flatnonzero(model.mimics >= 0).tolist():
        found[model.v_source[model.v_start[body]]] = False
    return found


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
    q, turning = model.unit_coordinates(found.q).reshape(targets, starts, model.nq), _turning(model)
    with np.errstate(invalid="ignore"):
        far = np.linalg.norm(model.difference(model.unit_coordinates(first)[:, None], q), axis=-1)
    left = np.where(found.done.reshape(targets, starts), far, np.inf)
    rows, chosen, there = np.arange(targets), np.zeros((targets, count), np.int64), np.zeros((targets, count), bool)
    for k in range(count):
        pick = left.argmin(axis=1)
        chosen[:, k], there[:, k] = pick, np.isfinite(left[rows, pick])
        with np.errstate(invalid="ignore"):
            apart = model.difference(q[rows, pick][:, None], q)
            turned = np.abs((apart + np.pi) % (2.0 * np.pi) - np.pi)  # whole turns lead to the same pose
            apart = np.where(turning, turned, np.abs(apart)).max(axis=-1, initial=0.0)
        left[apart <= DISTINCT] = np.inf
    entries = (rows[:, None] * starts + chosen).ravel()
    kept = Found(*(array[entries] for array in found.arrays))
    kept.start, kept.lost = np.where(there, chosen, -1).ravel(), ~there.ravel()
    kept.done = there.ravel().copy()
    return kept
