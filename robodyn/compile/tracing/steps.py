"""Integration steps on traced expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from robodyn.algorithms.constraints.scalars import times
from robodyn.algorithms.dual_numbers import Differentiable, step_gradient
from robodyn.algorithms.joint_limits import dof_of_coordinates, inertia_moved, limits_of, linear_dofs
from robodyn.algorithms.manifold import joint_by_joint, scalars
from robodyn.algorithms.tasks import Step, StepGradient, StepPart
from robodyn.compile.tracing.expression import Value
from robodyn.core.integrators import INTEGRATORS
from robodyn.core.joints import JointKind, flat
from robodyn.core.model import Model

_Scalars: TypeAlias = Sequence[Value]
_Dynamics: TypeAlias = Callable[[Mapping[str, _Scalars]], Mapping[str, _Scalars]]


class TracedSystem(Differentiable):
    """A robot for the integrators. Vectors are arrays of expressions, so that they can be added and scaled.

    `dynamics` maps the inputs of a state, by name, to "qdd"; for `gradient` also to the derivatives of qdd.
    """

    def __init__(self, model: Model, task: Step, given: Mapping[str, _Scalars], dynamics: _Dynamics) -> None:
        values = {name: given[name] if name in given else getattr(model, name).tolist() for name in task.acting}
        moves = scalars(inertia_moved(model).tolist()) if task.holds else None
        super().__init__({name: scalars(each) for name, each in values.items()}, limits_of(model, task.limits), moves)
        self._model, self._dynamics = model, dynamics
        self.identity, self.v_of = np.eye(model.nv).astype(object), dof_of_coordinates(model)
        self._linear = scalars(linear_dofs(model).tolist())

    def solved(self, q: Any, qd: Any, tau: Any, armature: Any) -> Any:
        """qdd (nv,)."""
        return scalars(self._asked(q, qd, tau, armature)["qdd"])

    def gradient(self, q: Any, qd: Any, tau: Any, armature: Any) -> tuple[Any, Mapping[str, Any]]:
        """qdd (nv,), and its derivatives (nv, nv) by q, qd and tau."""
        derived, nv = self._asked(q, qd, tau, armature), self._model.nv
        by = {name: scalars(derived[f"dqdd_d{name}"]).reshape(nv, nv) for name in ("q", "qd", "tau")}
        return scalars(derived["qdd"]), by

    def _asked(self, q: Any, qd: Any, tau: Any, armature: Any) -> Mapping[str, _Scalars]:
        state = {"q": q, "qd": qd, "tau": tau} | ({} if armature is None else {"armature": armature})
        return self._dynamics({name: list(values) for name, values in state.items()})

    def blocks(self, operation: Callable[[JointKind, Any, Any], Any], v: Any) -> list[tuple[Any, Any]]:
        """Apply an operation joint by joint: NumPy functions work on single expressions only."""
        free = self._model.free_joints
        return [(row, operation(kind, v[row], np)) for kind, _, v_index in free if kind.nv > 1 for row in v_index]

    def flat(self, function: Callable[[Any], Any], values: Any) -> Any:
        """The function's values as expressions that derivatives of the program treat as constants."""
        return scalars([flat(each) for each in function(values)])

    def apart(self, q: Any, other: Any) -> Any:
        """The difference of two configurations, other (-) q (nv,)."""
        return joint_by_joint(self._model, "v", lambda kind, at, along: kind.difference(tuple(q[at]), tuple(other[at])))

    def spread(self, values: Any, on: Any) -> Any:
        """A vector (nv,) with the values at the degrees of freedom `on`, and zeros elsewhere."""
        out = scalars([0.0] * self._model.nv)
        out[on] = values
        return out

    def moved(self, q: Any, u: Any) -> Any:
        """q (+) u (nq,)."""
        return joint_by_joint(self._model, "q", lambda kind, at, along: kind.integrate(tuple(q[at]), tuple(u[along])))

    def linear(self, v: Any) -> Any:
        """The components in m/s."""
        return v * self._linear

    def turned(self, v: Any, u: Any) -> Any:
        """Linear velocities (nv,) in axes that turn by u."""
        return joint_by_joint(self._model, "v", lambda kind, _, along: kind.turned(tuple(v[along]), tuple(u[along])))

    def bracket(self, a: Any, b: Any) -> Any:
        """The Lie bracket (nv,)."""
        return joint_by_joint(self._model, "v", lambda kind, at, along: kind.bracket(tuple(a[along]), tuple(b[along])))


def stepped(model: Model, task: Step, given: Mapping[str, _Scalars], dynamics: _Dynamics) -> dict[str, _Scalars]:
    """The state after a step, as expressions of the inputs `given`."""
    q, qd = INTEGRATORS[task.integrator](TracedSystem(model, task, given, dynamics), *_start(given))
    return {"q_next": list(q), "qd_next": list(qd)}


def _start(given: Mapping[str, _Scalars]) -> tuple[Any, Any, Any]:
    """The state and the time step, all as arrays: q (nq,), qd (nv,), dt (1,)."""
    q, qd, dt = (scalars(given[name]) for name in ("q", "qd", "dt"))
    return q, qd, dt


def step_differentiated(
    model: Model,
    task: StepGradient,
    given: Mapping[str, _Scalars],
    dynamics: _Dynamics,
    projected: _Dynamics | None = None,
) -> dict[str, _Scalars]:
    """The derivatives A and B of the state after a step, as expressions of the inputs `given`.

    `projected`: maps "q" and "qd" to the derivatives of a projection in that state, "q_q", "qd_q" and "qd_qd".
    """
    step, nv = task.step, model.nv
    system = TracedSystem(model, step, given, dynamics)
    (q, qd), gradients = step_gradient(INTEGRATORS[step.integrator], system, *_start(given))
    no_block = np.full((nv, nv), 0.0, dtype=object)
    rows = [np.hstack([gradients.get((of, by), no_block) for by in ("q", "qd", "tau")]) for of in ("q", "qd")]
    if projected is not None:
        found = projected({"q": list(q), "qd": list(qd)})
        by = {name: scalars(values).reshape(nv, nv) for name, values in found.items()}
        rows = [times(by["q_q"], rows[0]), times(np.hstack([by["qd_q"], by["qd_qd"]]), np.vstack(rows))]
    every = np.vstack(rows)
    return {"A": list(every[:, : 2 * nv].ravel()), "B": list(every[:, 2 * nv :].ravel())}


def stepped_in_part(model: Model, part: StepPart, given: Mapping[str, _Scalars]) -> dict[str, _Scalars]:
    """The outputs of one part of a step, as expressions of the inputs `given`. The whole step is traced. Known
    accelerations are inputs; later ones are zero, and only nodes that do not depend on them are used."""
    asked: list[Mapping[str, _Scalars]] = []

    def accelerations(state: Mapping[str, _Scalars]) -> Mapping[str, _Scalars]:
        asked.append(state)
        known = part.known[len(asked) - 1 : len(asked)]
        return {"qdd": given[known[0]] if known else [0.0] * model.nv}

    after = stepped(model, part.step, given, accelerations)
    return after if part.last else {part.at(name): scalars for name, scalars in asked[part.number].items()}
