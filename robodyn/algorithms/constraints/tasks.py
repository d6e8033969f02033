"""Queries about constraints as tasks of engines, each written once.

One function serves scalars, for programs, and arrays of states, for engines and robots without programs or loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from robodyn.algorithms.constraints import arrays, scalars
from robodyn.algorithms.constraints.gradients import Moving, RowGradients
from robodyn.algorithms.constraints.sweeps import constraint_query
from robodyn.algorithms.relative_motion import Scalars
from robodyn.algorithms.tasks import Placed, RunAlgorithm, ScalarTask, Sized
from robodyn.core.constraints.resolved import resolved_constraints
from robodyn.core.model import Model
from robodyn.core.sweeps import PER_ROW
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError

Proximal: TypeAlias = tuple[float, int]


class _Solver(Protocol):
    def forces(self, rhs: Any) -> Any:
        """lambda with A lambda = rhs."""


class _Response(Protocol):
    def rates(self, free: Any) -> Any:
        """J qdd of accelerations without constraints."""

    def accelerations(self, free: Any, forces: Any) -> Any:
        """Accelerations without constraints plus H^-1 J' lambda."""


class _State(Moving, Protocol):
    """Constraints of a robot in one state or many. Vectors are arrays of scalars (n,), or arrays (B, n)."""

    phi: Any
    phidot: Any
    gamma: Any

    @property
    def jacobian(self) -> Any:
        """J."""

    def at(self, q: Any) -> _State:
        """The same constraints in another configuration."""

    def given(self, name: str) -> Any:
        """An input, or None."""

    def masked(self, values: Any) -> Any:
        """Values of rows, with zeros for inactive constraints."""

    def moved(self, step: Any) -> Any:
        """q (+) step."""

    def moved_by(self, step: Any) -> tuple[Any, Any]:
        """Derivatives of q (+) step by q and by step, (nv, nv)."""

    @property
    def active_jacobian(self) -> Any:
        """J (m, nv) of each state, with zeros for inactive constraints."""

    def product_gradient(self, vector: Any) -> Any:
        """Derivatives of H vector by q, (nv, nv)."""

    def response(self, r: Any = None, by_matrix: bool = False) -> tuple[Any, Any]:
        """A `_Response`, and zeros: the accelerations of a robot at rest without forces.

        `r` (m,): what J times accelerations shall cancel. With it both are those of the augmented equations where the
        mass matrix is singular (`robodyn.algorithms.constraints.augmented`). `by_matrix`: True if derivatives need it.
        """

    def response_of_forces(self, r: Any = None, by_matrix: bool = False) -> tuple[Any, Any]:
        """A `_Response`, and the accelerations without constraints; `r` and `by_matrix` as above."""

    def solver(self, responds: Any, proximal: Proximal) -> _Solver:
        """The solver of forces."""

    def times(self, A: Any, B: Any) -> Any:
        """The product of two matrices."""

    def inverse_gradient(self, qdd: Any, damping: bool) -> tuple[Any, Any]:
        """Derivatives of inverse dynamics by q and qd, (nv, nv)."""

    def delassus(self, responds: Any) -> Any:
        """A, with 1 on the diagonal of inactive rows."""

    def in_world(self, forces: Any) -> Any:
        """Forces of rows in world axes."""


def _drift(state: _State, model: Model) -> Any:
    """r = gamma - a + k_v (phidot - v) + k_p phi, with gains of velocity and position (`robodyn.Baumgarte`), and with v
    and a the given velocity and acceleration of rows."""
    gains = [each.gains for each in resolved_constraints(model) for _ in each.rows]
    r = _less(state.gamma, state.given("row_acceleration"))
    for k, error in enumerate((_less(state.phidot, state.given("row_velocity")), state.phi)):
        if any(each[k] for each in gains):
            r = r + state.constant([each[k] for each in gains]) * error
    return state.masked(r)


def _less(values: Any, given: Any) -> Any:
    """Values of rows less given ones, if there are any."""
    return values if given is None else values - given


def _forward(state: _State, model: Model, proximal: Proximal) -> dict[str, Any]:
    """qdd = H^-1 (tau - bias + J' lambda), A lambda = -(r + J H^-1 (tau - bias))."""
    r = _drift(state, model)
    responds, free = state.response_of_forces(r)
    forces = state.solver(responds, proximal).forces(-(r + responds.rates(free)))
    return {"qdd": responds.accelerations(free, forces), "lam": forces}


class _Sensitivity:
    """How accelerations and forces respond to errors of their equations at fixed q, qd and tau.

    With errors r1 of H qdd + bias = tau + J' lambda and r2 of J qdd + r = 0, d qdd = -P r1 - G' r2 and
    d lambda = G r1 - A^-1 r2 (`robodyn.algorithms.constraints.gradients`).

    If the mass matrix is singular, `responds` has H + J' R J in its place (`robodyn.algorithms.constraints.augmented`).
    Then r1 + J' R r2 takes the place of r1. P J' is zero, and G J' R r2 is added to d lambda.

    `G`, `P`: of the above. `inverse`: of A. `pushes`: d lambda = G r1 - pushes r2.
    """

    def __init__(self, state: _State, responds: Any, solver: Any) -> None:
        W, self.inverse, self._times = responds.columns, solver.inverse, state.times
        self.G = state.times(self.inverse, np.swapaxes(W, -1, -2))
        self.P = responds.less(W, self.G)
        self.pushes = self.inverse
        if responds.weights is not None:
            J = state.active_jacobian
            self.pushes = self.inverse - state.times(self.G, np.swapaxes(J, -1, -2)) * responds.weights[..., None, :]

    def to(self, r1: Any, r2: Any) -> tuple[Any, Any]:
        """d qdd (nv, n) and d lambda (m, n)."""
        n = r1.shape[-2]
        of_qdd = np.concatenate([self.P, np.swapaxes(self.G, -1, -2)], axis=-1)
        of_forces = np.concatenate([-self.G, self.pushes], axis=-1)
        change = self._times(np.concatenate([of_qdd, of_forces], axis=-2), np.concatenate([-r1, -r2], axis=-2))
        return change[..., :n, :], change[..., n:, :]


def _accelerations_gradient(state: _State, model: Model, proximal: Proximal, damping: bool) -> dict[str, Any]:
    """Accelerations of `_forward` and their derivatives, as steps need them."""
    found = _forward_gradient(state, model, proximal, damping)
    return {"qdd": found["qdd"], **{f"dqdd_d{by}": found[f"qdd_{by}"] for by in _BY}}


def _forward_gradient(state: _State, model: Model, proximal: Proximal, damping: bool) -> dict[str, Any]:
    """Derivatives of `_forward`, and its accelerations: see `robodyn.algorithms.constraints.gradients`."""
    r = _drift(state, model)
    responds, free = state.response_of_forces(r, by_matrix=True)
    solver = state.solver(responds, proximal)
    forces = solver.forces(-(r + responds.rates(free)))
    qdd = responds.accelerations(free, forces)
    answers = _Sensitivity(state, responds, solver)
    rows = RowGradients(model, state)
    rows_q, rows_qd = rows.accelerations(qdd)
    inverse_q, inverse_qd = state.inverse_gradient(qdd, damping)
    qdd_q, lam_q = answers.to(inverse_q - rows.forces(forces), rows_q)
    qdd_qd, lam_qd = answers.to(inverse_qd, rows_qd)
    return {
        "qdd_q": qdd_q,
        "qdd_qd": qdd_qd,
        "qdd_tau": answers.P,
        "lam_q": lam_q,
        "lam_qd": lam_qd,
        "lam_tau": -answers.G,
        "qdd": qdd,
    }


def _impact_gradient(state: _State, model: Model, proximal: Proximal) -> dict[str, Any]:
    """Derivatives of `_impact`: of H (qd+ - qd) = J' lambda and of J (qd+ - qd) + (1 + e) phidot = 0."""
    share, restitution = state.constant([1.0]), state.given("restitution")
    if restitution is not None:
        share = share + restitution
    closing = state.masked(share * state.phidot)
    responds, free = state.response(closing, by_matrix=True)
    solver = state.solver(responds, proximal)
    impulse = solver.forces(-(closing + responds.rates(free)))
    change = responds.accelerations(free, impulse)
    answers, rows = _Sensitivity(state, responds, solver), RowGradients(model, state)
    # Both terms of the rows are rates: J (qd+ - qd) without the velocity of the base, (1 + e) phidot with it.
    rates = rows.rates(change + share * state.given("qd"), share)
    qd_q, impulse_q = answers.to(state.product_gradient(change) - rows.forces(impulse), rates)
    closing_qd = -share[..., None] * state.active_jacobian
    impulse_qd = solved = state.times(answers.inverse, closing_qd)
    if answers.pushes is not answers.inverse:
        impulse_qd = state.times(answers.pushes, closing_qd)
    qd_qd = state.constant(np.eye(model.nv)) + state.times(responds.columns, solved)
    return {"qd_after_q": qd_q, "qd_after_qd": qd_qd, "impulse_q": impulse_q, "impulse_qd": impulse_qd}


def _projected_gradient(state: _State, model: Model, proximal: Proximal) -> dict[str, Any]:
    """Derivatives of `_projected`, of q on the tangent space: of H delta = J' kappa and of phi + J delta = 0, and those
    of the impact."""
    phi = state.masked(state.phi)
    responds, free = state.response(phi, by_matrix=True)
    solver = state.solver(responds, proximal)
    pushes = solver.forces(-(phi + responds.rates(free)))
    step = responds.accelerations(free, pushes)
    answers, rows = _Sensitivity(state, responds, solver), RowGradients(model, state)
    moved = state.constant([0.0])  # J delta is a rate without the velocity of the base
    step_q, _ = answers.to(state.product_gradient(step) - rows.forces(pushes), rows.errors() + rows.rates(step, moved))
    by_q, by_step = state.moved_by(step)
    q_q = by_q + state.times(by_step, step_q)
    after = _impact_gradient(state.at(state.moved(step)), model, proximal)
    return {"q_q": q_q, "qd_q": state.times(after["qd_after_q"], q_q), "qd_qd": after["qd_after_qd"]}


def _residual(state: _State, model: Model, proximal: Proximal) -> dict[str, Any]:
    return {"phi": state.phi, "phidot": state.phidot}


def _jacobian(state: _State, model: Model, proximal: Proximal) -> dict[str, Any]:
    return {"J": state.jacobian}


def _bias(state: _State, model: Model, proximal: Proximal) -> dict[str, Any]:
    return {"r": _drift(state, model)}


def _delassus(state: _State, model: Model, proximal: Proximal) -> dict[str, Any]:
    """A = J H^-1 J', v_free = r + J H^-1 (tau - bias)."""
    responds, free = state.response_of_forces()
    return {"A": state.delassus(responds), "v_free": _drift(state, model) + responds.rates(free)}


def _impact(state: _State, model: Model, proximal: Proximal) -> dict[str, Any]:
    """qd+ = qd + H^-1 J' lambda, A lambda = -(1 + e) (J qd - v), with v the given velocity of rows."""
    closing = _less(state.phidot, state.given("row_velocity"))
    for name in ("restitution", "row_restitution"):
        restitution = state.given(name)
        if restitution is not None:
            closing = (1.0 + restitution) * closing
    closing = state.masked(closing)
    responds, free = state.response(closing)
    impulse = state.solver(responds, proximal).forces(-(closing + responds.rates(free)))
    return {"qd_after": state.given("qd") + responds.accelerations(free, impulse), "impulse": impulse}


def _projected(state: _State, model: Model, proximal: Proximal) -> dict[str, Any]:
    """q (+) -H^-1 J' A^-1 phi, and an impact in that configuration."""
    phi = state.masked(state.phi)
    responds, free = state.response(phi)
    pushes = state.solver(responds, proximal).forces(-(phi + responds.rates(free)))
    q = state.moved(responds.accelerations(free, pushes))
    return {"q_held": q, "qd_held": _impact(state.at(q), model, proximal)["qd_after"]}


class _Query(NamedTuple):
    """`moving`: True if it needs rates and gamma. `least`: a lower bound of operations, where it needs the mass matrix.
    `solves`: True if it needs the proximal term. `matrices`: True if its results include matrices (nv, nv)."""

    text: Callable[..., dict[str, Any]]
    outputs: dict[str, tuple[int | str, ...]]
    moving: bool = True
    least: Callable[[Model], int] | None = scalars.least_operations
    solves: bool = True
    matrices: bool = False


_ROWS = ("n_rows",)
_FORCES = ("lam", "impulse")
_SQUARE, _WIDE = ("nv", "nv"), ("n_rows", "nv")
_BY = ("q", "qd", "tau")
_QUERIES = {
    "constrained_forward_dynamics": _Query(_forward, {"qdd": ("nv",), "lam": _ROWS}),
    "constrained_forward_dynamics_gradient": _Query(
        _forward_gradient,
        {**{f"qdd_{by}": _SQUARE for by in _BY}, **{f"lam_{by}": _WIDE for by in _BY}},
        least=scalars.least_operations_of_gradient,
        matrices=True,
    ),
    "impact_gradient": _Query(
        _impact_gradient,
        {"qd_after_q": _SQUARE, "qd_after_qd": _SQUARE, "impulse_q": _WIDE, "impulse_qd": _WIDE},
        least=scalars.least_operations_of_gradient,
        matrices=True,
    ),
    "constraint_residual": _Query(_residual, {"phi": _ROWS, "phidot": _ROWS}, least=None, solves=False),
    "constraint_jacobian": _Query(_jacobian, {"J": _WIDE}, moving=False, least=None, solves=False),
    "constraint_bias": _Query(_bias, {"r": _ROWS}, least=None, solves=False),
    "delassus": _Query(_delassus, {"A": ("n_rows", "n_rows"), "v_free": _ROWS}, solves=False),
    "impact": _Query(_impact, {"qd_after": ("nv",), "impulse": _ROWS}),
    "project_gradient": _Query(
        _projected_gradient,
        {"q_q": _SQUARE, "qd_q": _SQUARE, "qd_qd": _SQUARE},
        least=scalars.least_operations_of_gradient,
        matrices=True,
    ),
    "constrained_accelerations_gradient": _Query(
        _accelerations_gradient,
        {"qdd": ("nv",), **{f"dqdd_d{by}": _SQUARE for by in _BY}},
        least=scalars.least_operations_of_gradient,
        matrices=True,
    ),
    "project": _Query(_projected, {"q_held": ("nq",), "qd_held": ("nv",)}, moving=False),
}
_SIZES: dict[str, Sized] = {
    "q": Sized(("nq",)),
    **dict.fromkeys(("qd", "tau", "armature"), Sized(("nv",))),
    "f_ext": Sized(("n_bodies", 6)),
    "inertia": Sized(("n_bodies", 10)),
    "targets": Sized(("n_constraints", 12)),
    "active": Sized(("n_constraints",)),
    "restitution": Sized(()),
    **dict.fromkeys(PER_ROW, Sized(("n_rows",))),
}


@cache
def constraint_task(
    name: str, inputs: tuple[str, ...], proximal: Proximal, *, damping: bool = False, axes: str = "to"
) -> ScalarTask:
    """A query about a model's constraints with these inputs, and with forces in these axes.

    `damping`: True for derivatives of a robot whose joints are damped by the model's coefficients.

    Raises:
        ArgumentError: two inputs say the same.
    """
    if {"restitution", "row_restitution"} <= set(inputs):
        raise ArgumentError("restitution, row_restitution: got both; wanted one number for all rows or one for each")
    query = _QUERIES[name]
    options = (damping,) if query.text in (_forward_gradient, _accelerations_gradient) else ()

    def answered(state: Any, model: Model) -> dict[str, Any]:
        results = query.text(state, model, proximal, *options)
        if axes == "world":
            results |= {key: state.in_world(results[key]) for key in _FORCES if key in results}
        return results

    def text(model: Model, given: Mapping[str, Scalars], at: Any) -> Mapping[str, Scalars]:
        results = answered(scalars.ConstraintState(model, given, at, query.moving), model)
        return {key: list(results[key].ravel()) for key in query.outputs}

    def on_arrays(model: Model, given: Mapping[str, Array], run: RunAlgorithm, placed: Placed) -> Mapping[str, Array]:
        def piece(some: Mapping[str, Array]) -> Mapping[str, Array]:
            results = answered(arrays.ConstraintState(model, some, run, placed, query.moving), model)
            return {key: results[key] for key in query.outputs}

        return arrays.piece_by_piece(model, given, piece, query.matrices)

    inputs = tuple(each for each in _SIZES if each in inputs)
    words = *(("damping",) if damping else ()), *(("world",) if axes == "world" else ())
    return ScalarTask(
        "_".join((name, *inputs, *(map(str, proximal) if query.solves else ()), *words)),
        {each: _SIZES[each] for each in inputs},
        {key: Sized(sizes) for key, sizes in query.outputs.items()},
        text,
        lambda others: constraint_task(name, others, proximal, damping=damping, axes=axes),
        on_arrays,
        query.least,
        constraint_query(name, inputs, proximal) if axes == "to" else None,
    )
