"""Detects robots whose mass matrix is singular at every state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from robodyn.algorithms.constraints.augmented import weights
from robodyn.algorithms.constraints.redundancy import Numbers
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.dense import pivots_with_error
from robodyn.algorithms.pivots import MASS_MATRIX_SIZE, PIVOTS
from robodyn.core.constraints.resolved import resolved_constraints
from robodyn.core.model import Model
from robodyn.core.sweeps import Algorithm, with_given
from robodyn.engines.make import make_engine
from robodyn.engines.options import AUTO, REFERENCE, Options
from robodyn.engines.protocol import Engine
from robodyn.internals.arguments import Array

ROUNDING_ERRORS = 32.0
"""A pivot counts as zero up to this multiple of its rounding error: then not even two of its digits are certain.

Pivots that are zero in exact arithmetic came out below 1 rounding error for 1,599 of 1,600 robots, and at 6 for one.
Pivots of ordinary robots, also of chains of 100,000 links, are above 10^12. With massless links before the next body
they are above 10^8. Chains that mix lengths from 1e-6 to 1e7 m lie in between: in 45 of them computed pivots differ
from exact ones by up to 0.9 rounding errors, mostly by a tenth. The threshold is near the lower end, so that a joint
with a much smaller inertia than its neighbours is accepted while its acceleration has some digits left.
"""
GIVEN_ROUNDINGS = 4.0
"""Additional tolerance for inertias in float32, in units of the float32 epsilon: each entry was rounded once."""
_STATES = 3
"""Number of random states. A regular robot may be near a singular state, but not at the same joint in all of them."""
_MAX_NAMED = 5
_EPS = float(np.finfo(np.float64).eps)
_REFERENCE_BODIES = 300
_MOST_HELD = 2_000
"""Most degrees of freedom of robots without mass whose constraints are judged, by a dense matrix."""
_JUDGED_SCALARS = 1 << 20
"""Number of entries of the mass matrices factorised together."""


def singularity(model: Model) -> str | None:
    """Why the mass matrix is singular at every state, naming the body; None if it is regular.

    A pivot that vanishes at several random states is taken to vanish at all states.
    """
    # For one state of a small robot the reference engine is fastest, as it does not compile.
    engine = make_engine(
        model, np.dtype(np.float64), Options(REFERENCE if model.n_bodies <= _REFERENCE_BODIES else AUTO)
    )
    vanishing = np.ones(model.nv, dtype=bool)
    for q in _states(model):
        pivot, limit = (each[0] for each in _pivots(model, engine, {"q": q}, ROUNDING_ERRORS * _EPS))
        # Behind a pivot of exactly zero pivots are NaN; the comparison is False for them.
        vanishing &= np.abs(pivot) <= limit
        if not vanishing.any():
            return None
    return _message(model, np.flatnonzero(vanishing), pivot, limit)


def singularity_of_held(model: Model) -> str | None:
    """Why constraints do not determine accelerations at any state although mass is missing: a motion that no
    constraint holds moves no inertia. None if they do, or if the mass matrix is regular."""
    reason = singularity(model)
    if reason is None or not model.constraints or model.nv > _MOST_HELD:
        return reason
    engine = make_engine(model, np.dtype(np.float64), Options(REFERENCE))
    constraints, loose = Numbers(model, resolved_constraints(model)), np.ones(model.nv)
    for q in _states(model):
        H, J = np.empty((1, model.nv, model.nv)), constraints.constraint_jacobian(q[0])
        with np.errstate(all="ignore"):
            engine.run(CRBA, {"q": q}, {"H": H})
        square = (J * J).sum(axis=1)
        both = H[0] + (J.T * weights(np.trace(H[0]) / model.nv, square > 0.0, square)) @ J
        scale = 1.0 / np.sqrt(np.where(np.diag(both) > 0.0, np.diag(both), 1.0))
        values, motions = np.linalg.eigh(scale[:, None] * both * scale)
        if values[0] > model.nv * ROUNDING_ERRORS * _EPS:
            return None
        loose = np.minimum(loose, np.abs(motions[:, 0]))
    return f"{reason}. The constraints do not hold {model.velocity_names[int(loose.argmax())]!r} either"


class InertiaJudge:
    """Finds inertias that make the mass matrix of a model singular at every state.

    The test takes longer than forward dynamics, and a simulation repeats it for the same inertias at every step, so the
    last result is cached.

    Args:
        model: the robot; its own inertias are not used.
        engine: an engine of the model, in float64.
        dtype: dtype of the inertias.
    """

    def __init__(self, model: Model, engine: Engine, dtype: np.dtype[Any]) -> None:
        self.model, self.engine, self.states = model, engine, _states(model)
        rounded = GIVEN_ROUNDINGS * float(np.finfo(dtype).eps) if dtype == np.float32 else 0.0
        self.tolerance = ROUNDING_ERRORS * _EPS + rounded
        self._last = (np.empty((0, model.n_bodies, 10)), np.empty(0, dtype=bool))

    def singular(self, inertia: Array) -> Array:
        """Which rows of inertias (B, n_bodies, 10) make the mass matrix singular, (B,). Not finite rows do not."""
        cached, answer = self._last
        if not np.array_equal(cached, inertia):
            answer = np.empty(len(inertia), dtype=bool)
            rows = max(1, _JUDGED_SCALARS // max(1, self.model.nv**2))
            for start in range(0, len(inertia), rows):
                answer[start : start + rows] = self._judged(inertia[start : start + rows])
            self._last = inertia.copy(), answer
        return answer

    def _judged(self, inertia: Array) -> Array:
        return cast(Array, self._vanishing(inertia).any(axis=1))

    def body(self, inertia: Array) -> int | None:
        """The outermost body whose joint moves no inertia, with inertias (n_bodies, 10); None if there is none."""
        bodies = _bodies(self.model, np.flatnonzero(self._vanishing(inertia[None])[0]))
        return _outermost(self.model, bodies)[-1] if bodies.size else None

    def _vanishing(self, inertia: Array) -> Array:
        """Which pivots of rows of inertias (B, n_bodies, 10) vanish at every state, (B, nv)."""
        vanishing = np.ones((len(inertia), self.model.nv), dtype=bool)
        rows = np.arange(len(inertia))
        for q in self.states:
            inputs = {"q": np.broadcast_to(q, (rows.size, self.model.nq)), "inertia": inertia[rows]}
            pivot, limit = _pivots(self.model, self.engine, inputs, self.tolerance)
            vanishing[rows] &= np.abs(pivot) <= limit
            rows = np.flatnonzero(vanishing.any(axis=1))
            if not rows.size:
                break
        return vanishing


def _states(model: Model) -> Array:
    """(_STATES, 1, nq) random configurations without position limits: narrow limits do not make a robot singular."""
    infinite = np.full(model.nq_tree, np.inf)
    free = replace(model, tree_lower=-infinite, tree_upper=infinite)
    return free.random_configuration(np.random.default_rng(0), (_STATES, 1))


def _pivots(model: Model, engine: Engine, given: dict[str, Array], tolerance: float) -> tuple[Array, Array]:
    """(pivot, limit), each (B, nv): a pivot of magnitude up to the limit counts as zero. The limit is `tolerance` times
    the magnitude of the terms that the pivot was computed from."""
    batch = len(given["q"])

    def run(algorithm: Algorithm, **outputs: Array) -> None:
        engine.run(with_given(algorithm, "inertia") if "inertia" in given else algorithm, given, outputs)

    with np.errstate(all="ignore"):
        if model.has_mimic:
            H, size = np.empty((2, batch, model.nv, model.nv))
            run(CRBA, H=H)
            run(MASS_MATRIX_SIZE, size=size)
            diagonal = np.diagonal(size, axis1=1, axis2=2)
            pivot, error = pivots_with_error(H, diagonal, tolerance)
        else:
            pivot, error = np.empty((2, batch, model.nv))
            run(PIVOTS, pivot=pivot, error=error)
        return pivot, tolerance * np.abs(error)


def _message(model: Model, vanishing: Array, pivot: Array, limit: Array) -> str:
    bodies = _bodies(model, vanishing)
    outermost = _outermost(model, bodies)
    body = outermost[-1]
    dof = int(vanishing[bodies == body][0])
    others = [repr(model.body_names[i]) for i in outermost[:-1]]
    return (
        f"the joint-space inertia matrix of {model.name!r} is singular: body {model.body_names[body]!r} has no "
        f"inertia that its joint {model.joint_names[body]!r} could move ({model.velocity_names[dof]!r} has pivot "
        f"{pivot[dof]:.3g}; wanted more than {limit[dof]:.3g}, {ROUNDING_ERRORS:g} of its rounding errors). Give the "
        f"body, or one behind it, mass and inertia, or the joint armature, or fix the joint"
        + (f". The same holds for {', '.join(others[:_MAX_NAMED])}" if others else "")
        + (f" and {len(others) - _MAX_NAMED} more" if len(others) > _MAX_NAMED else "")
    )


def _bodies(model: Model, dofs: Array) -> Array:
    """The body that each degree of freedom moves."""
    return np.searchsorted(model.v_start, model._own_coordinates[1][dofs], side="right") - 1


def _outermost(model: Model, bodies: Array) -> list[int]:
    """The given bodies without a given descendant: pivots closer to the root than a vanishing one are meaningless."""
    inside: set[int] = set()
    outermost = []
    for body in sorted({int(i) for i in bodies}, reverse=True):
        if body not in inside:
            outermost.append(body)
        at = int(model.parent[body])
        while at >= 0 and at not in inside:
            inside.add(at)
            at = int(model.parent[at])
    return outermost[::-1]
