"""Target frames with which a configuration satisfies constraints to the world, on arrays of any library."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from robodyn.algorithms.constraints.terms import APART
from robodyn.core.constraints.kinds import Rod, Rolling
from robodyn.core.constraints.resolved import ResolvedConstraint, resolved_constraints
from robodyn.core.model import Model
from robodyn.core.spatial import cross
from robodyn.internals.arguments import Array


def targets_of(model: Model, poses: Any, xp: Any, constant: Callable[[Array], Any]) -> Any:
    """`targets` (..., n_constraints, 12) that hold where the robot is: see `Dynamics.constraint_targets`.

    A rod whose ends coincide has no direction, and gets NaN.

    Args:
        model: the robot.
        poses: (..., n_links, 4, 4) transforms from links to the world.
        xp: the array library.
        constant: converts NumPy arrays to arrays of the library, in the precision of `poses`.
    """
    held, (links, E, r) = to_the_world(model)
    leading = poses.shape[:-3]
    if not held:
        return xp.zeros((*leading, model.n_constraints, 12), dtype=poses.dtype)
    T = poses[..., links, :, :]
    R = T[..., :3, :3]
    axes = constant(E) @ xp.swapaxes(R, -1, -2)
    places = T[..., :3, 3] + (R @ constant(r))[..., 0]
    rows = xp.concatenate((axes.reshape((*leading, len(held), 9)), places), -1)
    if len(held) == model.n_constraints and not any(each.kind in (Rod, Rolling) for each in held):
        return rows
    every = dict.fromkeys(range(model.n_constraints), xp.zeros_like(rows[..., 0, :]))
    for k, each in enumerate(held):
        row = rows[..., k, :]
        if each.kind is Rod:
            row = xp.concatenate((row[..., :9], _end_of_rod(each, row[..., 9:], xp, constant)), -1)
        elif each.kind is Rolling:
            row = _ground_below(each, row[..., 9:], axes[..., k, 2, :], xp, constant)
        every[each.number] = row
    return xp.stack(tuple(every.values()), -2)


@lru_cache(maxsize=64)
def to_the_world(model: Model) -> tuple[tuple[ResolvedConstraint, ...], tuple[Array, Array, Array]]:
    """Constraints to the world that have a frame: their links, and the frames on these, E (n, 3, 3) and r (n, 3, 1)."""
    held = tuple(each for each in resolved_constraints(model) if each.framed and each.to < 0)
    E = np.array([each.X.E for each in held], float).reshape(len(held), 3, 3)
    r = np.array([each.X.r for each in held], float).reshape(len(held), 3, 1)
    return held, (np.array([each.link for each in held], int), E, r)


def _ground_below(wheel: ResolvedConstraint, centre: Any, axle: Any, xp: Any, constant: Callable[[Array], Any]) -> Any:
    """The target (..., 12) of a wheel: its plane, moved along the normal until the wheel touches it."""
    E, r = np.array(wheel.X_to.E), np.array(wheel.X_to.r)
    up = E[6:]
    level = cross((axle[..., 0], axle[..., 1], axle[..., 2]), (float(up[0]), float(up[1]), float(up[2])))
    low = wheel.length * xp.sqrt(level[0] * level[0] + level[1] * level[1] + level[2] * level[2])
    height = ((centre - constant(r)) * constant(up)).sum(-1) - low
    place = constant(r) + height[..., None] * constant(up)
    return xp.concatenate((xp.broadcast_to(constant(E), (*place.shape[:-1], 9)), place), -1)


def _end_of_rod(rod: ResolvedConstraint, place: Any, xp: Any, constant: Callable[[Array], Any]) -> Any:
    """World end (..., 3) of a rod whose other end is at `place` (..., 3), in the rod's present direction."""
    direction = constant(np.array(rod.X_to.r)) - place
    distance = xp.sqrt((direction * direction).sum(-1))[..., None]
    apart = xp.where(distance <= APART * rod.length, math.nan, 1.0)
    return place + direction * (rod.length / (distance * apart))
