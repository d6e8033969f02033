"""Constraint forces as wrenches on bodies.

With E the rotation from world axes to those of frame a, and forces f and moments m of rows along these axes, the wrench
on the body of b is

    E' f at p_b,  E' m        that is, about the world's origin:        moment E' m + p_b x E' f,  force E' f

The body of a gets the opposite wrench at the same point in space. So virtual work is lambda' J qd, also where the
constraint is violated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robodyn.algorithms.constraints.terms import APART, Terms, rolling_rows
from robodyn.core.constraints.kinds import Rod, Rolling
from robodyn.core.constraints.resolved import ResolvedConstraint, resolved_constraints
from robodyn.core.model import Model
from robodyn.core.spatial import ZERO_MOTION, Transform, Vec3, add, cross, dot, rotate_back, scale, sub
from robodyn.core.sweeps import Algorithm
from robodyn.internals.arguments import Array


def holds_links(model: Model) -> bool:
    """True if some constraint is between frames, so that its forces are wrenches on bodies."""
    return any(held.framed for held in resolved_constraints(model))


def add_wrenches(model: Model, inputs: Mapping[str, Array], poses: Array, out: Array) -> None:
    """Add the wrenches of constraints between frames to `out` (B, n_bodies, 6).

    Args:
        model: the robot.
        inputs: "lam" (B, n_rows), and optionally "targets" (B, n_constraints, 12).
        poses: (B, n_links, 4, 4) of all links.
        out: moments about the world's origin, then forces, in world axes.
    """

    def at(algorithm: Algorithm, link: int | None = None, point: Any = None, **others: Any) -> Mapping[str, Any]:
        return {"T": [poses[:, link, i, j] for i in range(4) for j in range(4)]}

    targets = {}
    if "targets" in inputs:
        targets["targets"] = [inputs["targets"][:, k, j] for k in range(model.n_constraints) for j in range(12)]
    terms = Terms(model, resolved_constraints(model), targets, at, moving=False, columns=False)
    row = 0
    for held in resolved_constraints(model):
        strengths = [inputs["lam"][:, row + k] for k in range(len(held.rows))]
        row += len(held.rows)
        if not held.framed:
            continue
        moment, force = _on_b(held, *terms.frames(held), strengths)
        for link, sign in ((held.link, 1.0), (held.to, -1.0)):
            body = int(model.link_body[link]) if link >= 0 else -1
            if body >= 0:
                for k, scalar in enumerate((*moment, *force)):
                    out[:, body, k] += sign * scalar


def _on_b(held: ResolvedConstraint, a: Transform, b: Transform, strengths: Sequence[Any]) -> tuple[Vec3, Vec3]:
    """The moment about the world's origin, and the force, on the body of frame b."""
    moment: Any = (0.0, 0.0, 0.0)
    if held.kind is Rolling:
        pushes = np.where(sum(np.abs(each) for each in strengths) == 0.0, 0.0, 1.0)  # no force needs no contact
        _, contact = rolling_rows(held.length, a, b, ZERO_MOTION, ZERO_MOTION, pushes)
        force = (0.0, 0.0, 0.0)
        for strength, direction in zip(strengths, contact[1:], strict=True):
            force = add(force, scale(strength, direction))
        return cross(add(b.r, contact.arm), force), force
    if held.kind is Rod:
        d = sub(b.r, a.r)
        distance, (pull,) = np.sqrt(dot(d, d)), strengths
        apart = distance > APART * held.length
        # A rod without direction pulls nowhere: the force is zero, or NaN if the row's force is not.
        force = scale(np.where(apart, pull / np.where(apart, distance, 1.0), np.where(pull == 0.0, 0.0, np.nan)), d)
    else:
        along = dict(zip(held.rows, strengths, strict=True))
        moment, force = (
            rotate_back(a.E, tuple(along.get(name, 0.0) for name in names)) for names in (("rx", "ry", "rz"), "xyz")
        )
    return add(moment, cross(b.r, force)), force
