"""Queries about constraints as tasks of engines, each written once.

One function serves scalars, for programs, and arrays of states, for robots that are too large for one program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeAlias

from robodyn.algorithms.constraints import arrays, scalars
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


class _State(Protocol):
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

    def constant(self, values: Sequence[float]) -> Any:
        """An array of constants, the same in all states."""

    def masked(self, values: Any) -> Any:
        """Values of rows, with zeros for inactive constraints."""

    def moved(self, step: Any) -> Any:
        """q (+) step."""

    def response(self, r: Any = None) -> tuple[Any, Any]:
        """A `_Response`, and zeros: the accelerations of a robot at rest without forces.

        `r` (m,): what J times accelerations shall cancel. With it both are those of the augmented equations where the
        mass matrix is singular (`robodyn.algorithms.constraints.augmented`).
        """

    def response_of_forces(self, r: Any = None) -> tuple[Any, Any]:
        """A `_Response`, and the accelerations without constraints; `r` as above."""

    def solver(self, responds: Any, proximal: Proximal) -> _Solver:
        """The solver of forces."""

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
    """`moving`: True if it needs rates and gamma. `responds`: True if it needs the mass matrix. `solves`: True if it
    needs the proximal term."""

    text: Callable[[_State, Model, Proximal], dict[str, Any]]
    outputs: dict[str, tuple[int | str, ...]]
    moving: bool = True
    responds: bool = True
    solves: bool = True


_ROWS = ("n_rows",)
_FORCES = ("lam", "impulse")
_QUERIES = {
    "constrained_forward_dynamics": _Query(_forward, {"qdd": ("nv",), "lam": _ROWS}),
    "constraint_residual": _Query(_residual, {"phi": _ROWS, "phidot": _ROWS}, responds=False, solves=False),
    "constraint_jacobian": _Query(_jacobian, {"J": ("n_rows", "nv")}, moving=False, responds=False, solves=False),
    "constraint_bias": _Query(_bias, {"r": _ROWS}, responds=False, solves=False),
    "delassus": _Query(_delassus, {"A": ("n_rows", "n_rows"), "v_free": _ROWS}, solves=False),
    "impact": _Query(_impact, {"qd_after": ("nv",), "impulse": _ROWS}),
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
def constraint_task(name: str, inputs: tuple[str, ...], proximal: Proximal, axes: str = "to") -> ScalarTask:
    """A query about a model's constraints with these inputs, and with forces in these axes.

    Raises:
        ArgumentError: two inputs say the same.
    """
    if {"restitution", "row_restitution"} <= set(inputs):
        raise ArgumentError("restitution, row_restitution: got both; wanted one number for all rows or one for each")
    query = _QUERIES[name]

    def answered(state: _State, model: Model) -> dict[str, Any]:
        results = query.text(state, model, proximal)
        if axes == "world":
            results |= {key: state.in_world(results[key]) for key in _FORCES if key in results}
        return results

    def text(model: Model, given: Mapping[str, Scalars], at: Any) -> Mapping[str, Scalars]:
        results = answered(scalars.ConstraintState(model, given, at, query.moving), model)
        return {key: list(values) for key, values in results.items()}

    def on_arrays(model: Model, given: Mapping[str, Array], run: RunAlgorithm, placed: Placed) -> Mapping[str, Array]:
        def piece(some: Mapping[str, Array]) -> Mapping[str, Array]:
            return answered(arrays.ConstraintState(model, some, run, placed, query.moving), model)

        return arrays.piece_by_piece(model, given, piece)

    inputs = tuple(each for each in _SIZES if each in inputs)
    return ScalarTask(
        "_".join(
            (name, *inputs, *(map(str, proximal) if query.solves else ()), *(("world",) if axes == "world" else ()))
        ),
        {each: _SIZES[each] for each in inputs},
        {key: Sized(axes) for key, axes in query.outputs.items()},
        text,
        lambda others: constraint_task(name, others, proximal, axes),
        on_arrays,
        scalars.least_operations if query.responds else None,
    )
