"""Queries about constraints as tasks of engines, written once: on scalars, of which programs are made, and on arrays of
states, for robots that are too large for one program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

from robodyn.algorithms.places import Scalars
from robodyn.arguments import Array
from robodyn.chains import Direct, Placed, RunAlgorithm, Sized
from robodyn.constraints import arrays, scalars
from robodyn.constraints.held import held_by
from robodyn.model import Model

_SIZES: dict[str, Sized] = {
    "q": Sized(("nq",)),
    **dict.fromkeys(("qd", "qdd", "tau", "armature"), Sized(("nv",))),
    "f_ext": Sized(("n_bodies", 6)),
    "inertia": Sized(("n_bodies", 10)),
    "targets": Sized(("n_constraints", 12)),
    "active": Sized(("n_constraints",)),
    "restitution": Sized(()),
}
Scene: TypeAlias = scalars.Scene | arrays.Scene
"""Both have the same methods; vectors are (n,) arrays of scalars in the one, (B, n) in the other."""
Text: TypeAlias = Callable[[Any], dict[str, Any]]


def _drift(scene: Scene, model: Model) -> Any:
    """r = gamma + 2 zeta omega phidot + omega^2 phi."""
    gains = [each.baumgarte for each in held_by(model) for _ in each.rows]
    r = scene.gamma
    if any(omega for omega, _ in gains):
        rate = scene.constant([2.0 * zeta * omega for omega, zeta in gains])
        r = r + rate * scene.phidot + scene.constant([omega * omega for omega, _ in gains]) * scene.phi
    return scene.weighed(r)


def _forward(model: Model, proximal: tuple[float, int]) -> Text:
    def text(scene: Any) -> dict[str, Any]:
        """qdd = H^-1 (tau - bias + J' lambda), A lambda = -(r + J H^-1 (tau - bias))."""
        responds, free = scene.response_of_forces()
        forces = scene.contact(responds, proximal).forces(-(_drift(scene, model) + responds.rates(free)))
        return {"qdd": responds.accelerations(free, forces), "lam": forces}

    return text


def _residual(model: Model, proximal: tuple[float, int]) -> Text:
    return lambda scene: {"phi": scene.phi, "phidot": scene.phidot}


def _jacobian(model: Model, proximal: tuple[float, int]) -> Text:
    return lambda scene: {"J": scene.jacobian}


def _delassus(model: Model, proximal: tuple[float, int]) -> Text:
    def text(scene: Any) -> dict[str, Any]:
        """A = J H^-1 J', v_free = r + J H^-1 (tau - bias)."""
        responds, free = scene.response_of_forces()
        return {"A": scene.delassus(responds), "v_free": _drift(scene, model) + responds.rates(free)}

    return text


def _impact(model: Model, proximal: tuple[float, int]) -> Text:
    def text(scene: Any) -> dict[str, Any]:
        """qd+ = qd + H^-1 J' lambda, lambda = -(1 + e) A^-1 J qd."""
        responds, nothing = scene.response()
        impulse = scene.contact(responds, proximal).forces(-scene.weighed(scene.phidot))
        restitution = scene.given("restitution")
        if restitution is not None:
            impulse = (1.0 + restitution) * impulse
        return {"qd_after": scene.given("qd") + responds.accelerations(nothing, impulse), "impulse": impulse}

    return text


def _projected(model: Model, proximal: tuple[float, int]) -> Text:
    def text(scene: Any) -> dict[str, Any]:
        """q (+) -H^-1 J' A^-1 phi, and there an impact."""
        responds, nothing = scene.response()
        pushes = scene.contact(responds, proximal).forces(-scene.weighed(scene.phi))
        moved = scene.moved(responds.accelerations(nothing, pushes))
        after = _impact(model, proximal)(scene.at(moved))
        return {"q_held": moved, "qd_held": after["qd_after"]}

    return text


_TEXTS: dict[str, tuple[Callable[[Model, tuple[float, int]], Text], dict[str, tuple[int | str, ...]], bool]] = {
    "constrained_forward_dynamics": (_forward, {"qdd": ("nv",), "lam": ("n_rows",)}, True),
    "constraint_residual": (_residual, {"phi": ("n_rows",), "phidot": ("n_rows",)}, False),
    "constraint_jacobian": (_jacobian, {"J": ("n_rows", "nv")}, False),
    "delassus": (_delassus, {"A": ("n_rows", "n_rows"), "v_free": ("n_rows",)}, False),
    "impact": (_impact, {"qd_after": ("nv",), "impulse": ("n_rows",)}, True),
    "project": (_projected, {"q_held": ("nq",), "qd_held": ("nv",)}, True),
}
_AT_REST = ("constraint_jacobian", "project")
"""Queries in whose first scene nothing moves."""

_RESPONDING = ("constrained_forward_dynamics", "delassus", "impact", "project")
"""Queries that take the response of the robot."""


@cache
def constraint_task(name: str, inputs: tuple[str, ...], proximal: tuple[float, int]) -> Direct:
    """A query about a model's constraints, of the inputs that are given."""
    made, outputs, solves = _TEXTS[name]
    moving = name not in _AT_REST

    def text(model: Model, given: Mapping[str, Scalars], at: Any) -> Mapping[str, Scalars]:
        found = made(model, proximal)(scalars.Scene(model, given, at, moving))
        return {key: list(values) for key, values in found.items()}

    def on_arrays(model: Model, given: Mapping[str, Array], run: RunAlgorithm, placed: Placed) -> Mapping[str, Array]:
        answer = made(model, proximal)
        return arrays.piece_by_piece(
            model, given, lambda piece: answer(arrays.Scene(model, piece, run, placed, moving))
        )

    inputs = tuple(each for each in _SIZES if each in inputs)
    named = "_".join((name, *inputs, *(map(str, proximal) if solves else ())))
    results = {key: Sized(axes) for key, axes in outputs.items()}
    known = {each: _SIZES[each] for each in inputs}
    return Direct(
        named,
        known,
        results,
        text,
        lambda others: constraint_task(name, others, proximal),
        on_arrays,
        scalars.least_operations if name in _RESPONDING else None,
    )
