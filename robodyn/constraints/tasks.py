"""Queries about constraints as tasks of engines: programs where they are small enough, else their parts on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from robodyn.algorithms.aba import aba
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.forward_gradient import bias_and_mass_matrix
from robodyn.algorithms.manifold import joint_by_joint, scalars, unit
from robodyn.algorithms.places import OfLink
from robodyn.chains import Direct, Sized
from robodyn.constraints.held import held_by
from robodyn.constraints.solver import ByMatrix, ByRecursion, Contact, moves
from robodyn.constraints.terms import Terms
from robodyn.model import Model
from robodyn.sweeps import with_given

LARGE = 100
"""Bodies beyond which responses come by recursions, and not by the mass matrix."""
_LEAST_ROW = 1e-5
"""A row of J is taken for zero that is smaller than this, or than the proximal term's size, beside what it is made of:
where rows are scaled, its rounding errors would be held as well as anything."""
_SIZES: dict[str, Sized] = {
    "q": Sized(("nq",)),
    **dict.fromkeys(("qd", "qdd", "tau", "armature"), Sized(("nv",))),
    "f_ext": Sized(("n_bodies", 6)),
    "inertia": Sized(("n_bodies", 10)),
    "targets": Sized(("n_constraints", 12)),
    "active": Sized(("n_constraints",)),
    "restitution": Sized(()),
}
Text = Callable[[Model, Mapping[str, Sequence[Any]], OfLink], Mapping[str, Sequence[Any]]]


class _Scene:
    """What several queries need of a state."""

    def __init__(self, model: Model, given: Mapping[str, Sequence[Any]], at: OfLink, moving: bool = True) -> None:
        self.model, self.given, self.at = model, given, at
        terms = Terms(model, held_by(model), given, at, moving)
        self.rows, self.active = terms.rows(), terms.active
        self.held = [each for each in held_by(model) for _ in each.rows]

    @property
    def J(self) -> list[list[Any]]:
        """Rows of the Jacobian, those of constraints that are off zero."""
        rows = [row.J or [] for row in self.rows]
        if self.active is None:
            return rows
        return [
            [value if isinstance(value, float) and value == 0.0 else weight * value for value in row]
            for row, weight in zip(rows, self.active, strict=True)
        ]

    def weighed(self, values: Sequence[Any]) -> list[Any]:
        """Numbers of rows, those of constraints that are off zero."""
        if self.active is None:
            return list(values)
        return [weight * value for value, weight in zip(values, self.active, strict=True)]

    def contact(self, responds: ByMatrix | ByRecursion, proximal: tuple[float, int]) -> Contact:
        """What gives forces; rows that are off do not move, either."""
        least = min(proximal[0], _LEAST_ROW)
        moving = [moves(J, row.size, least) for row, J in zip(self.rows, self.J, strict=True)]
        return Contact(responds.delassus(), moving, proximal)

    def drift(self) -> list[Any]:
        """r = gamma + 2 zeta omega phidot + omega^2 phi."""
        found = []
        for row, held in zip(self.rows, self.held, strict=True):
            omega, zeta = held.baumgarte
            r = row.gamma
            if omega:
                r = r + 2.0 * zeta * omega * row.phidot + omega * omega * row.phi
            found.append(r)
        return self.weighed(found)

    # The robot.

    @property
    def by_recursion(self) -> bool:
        """Whether the tree is too large for its mass matrix."""
        return self.model.n_bodies > LARGE and not self.model.has_mimic

    def _with_inputs(self, algorithm: Any) -> Any:
        for name in ("inertia", "armature"):
            if name in self.given:
                algorithm = with_given(algorithm, name)
        return algorithm

    def matrix(self) -> list[list[Any]]:
        """H."""
        return self._square(self.at(self._with_inputs(CRBA))["H"])

    def _square(self, H: Sequence[Any]) -> list[list[Any]]:
        n = self.model.nv
        return [list(H[n * r : n * r + n]) for r in range(n)]

    def response(self) -> ByMatrix | ByRecursion:
        """What rows do to the robot at rest, without its weight."""
        if not self.by_recursion:
            return ByMatrix(self.model, self.matrix(), self.J)
        return ByRecursion(self._at_rest, self.J)

    def _at_rest(self, force: Sequence[Any]) -> list[Any]:
        """H^-1 f: accelerations of the robot at rest, whose base falls freely."""
        falling = (0.0, 0.0, 0.0, *self.model.gravity.tolist())
        still = (0.0,) * 6
        algorithm = self._with_inputs(aba(("q", "tau")))
        return list(self.at(algorithm, tau=force, V0=still, dV0=falling)["qdd"])

    def moved(self) -> tuple[ByMatrix | ByRecursion, list[Any], Callable[[Sequence[Any]], list[Any]]]:
        """What responds, J qdd without constraints, and what gives accelerations with a lambda."""
        inputs = tuple(name for name in ("q", "qd", "f_ext") if name in self.given)
        if self.by_recursion:
            forward = self._with_inputs(aba((*inputs[:2], "tau", *inputs[2:])))
            by_recursion = ByRecursion(self._at_rest, self.J)
            return by_recursion, *by_recursion.after(list(self.at(forward)["qdd"]))
        found = self.at(self._with_inputs(bias_and_mass_matrix(inputs)))
        by_matrix = ByMatrix(self.model, self._square(found["H"]), self.J)
        force = [t - b for t, b in zip(self.given["tau"], found["tau"], strict=True)]
        return by_matrix, *by_matrix.free(force)


def _constrained(proximal: tuple[float, int]) -> Text:
    def text(model: Model, given: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        """qdd = H^-1 (tau - bias + J' lambda), A lambda = -(r + J H^-1 (tau - bias))."""
        scene = _Scene(model, given, at)
        responds, free, accelerations = scene.moved()
        contact = scene.contact(responds, proximal)
        rhs = [-(r + v) for r, v in zip(scene.drift(), free, strict=True)]
        forces = contact.forces(rhs)
        return {"qdd": accelerations(forces), "lam": forces}

    return text


def _residual(model: Model, given: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
    rows = _Scene(model, given, at).rows
    return {"phi": [row.phi for row in rows], "phidot": [row.phidot for row in rows]}


def _jacobian(model: Model, given: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
    return {"J": [value for row in _Scene(model, given, at, moving=False).rows for value in row.J or []]}


def _delassus(model: Model, given: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
    scene = _Scene(model, given, at)
    responds, free, _ = scene.moved()
    A = responds.delassus()
    m = len(A)
    for k, weight in enumerate(scene.active or ()):
        A[k][k] = A[k][k] + (1.0 - weight)
    every = [A[max(i, j)][min(i, j)] for i in range(m) for j in range(m)]
    return {"A": every, "v_free": [r + v for r, v in zip(scene.drift(), free, strict=True)]}


def _impact(proximal: tuple[float, int]) -> Text:
    def text(model: Model, given: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        """qd+ = qd + H^-1 J' lambda, lambda = -(1 + e) A^-1 J qd."""
        scene = _Scene(model, given, at)
        responds = scene.response()
        contact = scene.contact(responds, proximal)
        impulse = contact.forces([-rate for rate in scene.weighed([row.phidot for row in scene.rows])])
        if "restitution" in given:
            back = 1.0 + given["restitution"][0]
            impulse = [back * strength for strength in impulse]
        jump = _answer(responds, model, impulse)
        return {"qd_after": [v + d for v, d in zip(given["qd"], jump, strict=True)], "impulse": impulse}

    return text


def _answer(responds: ByMatrix | ByRecursion, model: Model, forces: Sequence[Any]) -> list[Any]:
    """H^-1 J' lambda."""
    nothing = [0.0] * model.nv
    found = responds.free(nothing) if isinstance(responds, ByMatrix) else responds.after(nothing)
    return found[1](forces)


def _projected(proximal: tuple[float, int]) -> Text:
    def text(model: Model, given: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        """q (+) -H^-1 J' A^-1 phi, and there an impact."""
        scene = _Scene(model, given, at, moving=False)
        responds = scene.response()
        contact = scene.contact(responds, proximal)
        errors = scene.weighed([row.phi for row in scene.rows])
        step = scalars(_answer(responds, model, contact.forces([-phi for phi in errors])))
        q = unit(model, given["q"])
        moved = list(joint_by_joint(model, "q", lambda kind, at, on: kind.integrate(tuple(q[at]), tuple(step[on]))))
        after = _impact(proximal)(model, {**given, "q": moved}, partial(at, q=moved))
        return {"q_held": moved, "qd_held": after["qd_after"]}

    return text


_TEXTS: dict[str, tuple[Callable[..., Any], dict[str, tuple[int | str, ...]], bool]] = {
    "constrained_forward_dynamics": (_constrained, {"qdd": ("nv",), "lam": ("n_rows",)}, True),
    "constraint_residual": (_residual, {"phi": ("n_rows",), "phidot": ("n_rows",)}, False),
    "constraint_jacobian": (_jacobian, {"J": ("n_rows", "nv")}, False),
    "delassus": (_delassus, {"A": ("n_rows", "n_rows"), "v_free": ("n_rows",)}, False),
    "impact": (_impact, {"qd_after": ("nv",), "impulse": ("n_rows",)}, True),
    "project": (_projected, {"q_held": ("nq",), "qd_held": ("nv",)}, True),
}


@cache
def constraint_task(name: str, inputs: tuple[str, ...], proximal: tuple[float, int]) -> Direct:
    """A query about a model's constraints, of the inputs that are given."""
    made, outputs, solves = _TEXTS[name]
    text = made(proximal) if solves else made
    inputs = tuple(each for each in _SIZES if each in inputs)
    named = "_".join((name, *inputs, *(map(str, proximal) if solves else ())))
    results = {key: Sized(axes) for key, axes in outputs.items()}
    given = {each: _SIZES[each] for each in inputs}
    return Direct(named, given, results, text, of=lambda others: constraint_task(name, others, proximal))
