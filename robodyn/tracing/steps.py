"""Steps of integrators on expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from robodyn.algorithms.joint_limits import inertia_moved, limits_of
from robodyn.algorithms.manifold import joint_by_joint, scalars
from robodyn.chains import Step, StepPart
from robodyn.integrators import INTEGRATORS, Driven
from robodyn.model import Model
from robodyn.tracing.expression import Value

_Scalars: TypeAlias = Sequence[Value]
_Accelerations: TypeAlias = Callable[[Mapping[str, _Scalars]], _Scalars]


class TracedSystem(Driven):
    """A robot for integrators: vectors are arrays of expressions, so that they add and scale.

    `accelerations` are those of a state given as inputs by name.
    """

    def __init__(self, model: Model, task: Step, given: Mapping[str, _Scalars], accelerations: _Accelerations) -> None:
        values = {name: given[name] if name in given else getattr(model, name).tolist() for name in task.acting}
        moves = scalars(inertia_moved(model).tolist()) if task.holds else None
        super().__init__({name: scalars(each) for name, each in values.items()}, limits_of(model, task.limits), moves)
        self._model, self._accelerations = model, accelerations

    def solved(self, q: Any, qd: Any, tau: Any, armature: Any) -> Any:
        """qdd (nv,)."""
        state = {"q": q, "qd": qd, "tau": tau} | ({} if armature is None else {"armature": armature})
        return scalars(self._accelerations({name: list(values) for name, values in state.items()}))

    def apart(self, q: Any, other: Any) -> Any:
        """other (-) q (nv,)."""
        return joint_by_joint(self._model, "v", lambda kind, at, along: kind.difference(tuple(q[at]), tuple(other[at])))

    def spread(self, values: Any, on: Any) -> Any:
        """Numbers of some degrees of freedom, zeros for the others (nv,)."""
        out = scalars([0.0] * self._model.nv)
        out[on] = values
        return out

    def moved(self, q: Any, u: Any) -> Any:
        """q (+) u (nq,)."""
        return joint_by_joint(self._model, "q", lambda kind, at, along: kind.integrate(tuple(q[at]), tuple(u[along])))

    def bracket(self, a: Any, b: Any) -> Any:
        """The Lie bracket (nv,)."""
        return joint_by_joint(self._model, "v", lambda kind, at, along: kind.bracket(tuple(a[along]), tuple(b[along])))


def stepped(
    model: Model, task: Step, given: Mapping[str, _Scalars], accelerations: _Accelerations
) -> dict[str, _Scalars]:
    """The state after a step, as expressions of the inputs given."""
    system = TracedSystem(model, task, given, accelerations)
    # The time, too, is an array: (1,) beside (nv,).
    q, qd = INTEGRATORS[task.integrator](system, *(scalars(given[name]) for name in ("q", "qd", "dt")))
    return {"q_next": list(q), "qd_next": list(qd)}


def stepped_in_part(model: Model, part: StepPart, given: Mapping[str, _Scalars]) -> dict[str, _Scalars]:
    """What a part of a step comes to, as expressions of the inputs given: the step's own text, in which accelerations
    are inputs as far as they are known. What follows is not looked at."""
    asked: list[Mapping[str, _Scalars]] = []

    def accelerations(state: Mapping[str, _Scalars]) -> _Scalars:
        asked.append(state)
        known = part.known[len(asked) - 1 : len(asked)]
        return given[known[0]] if known else [0.0] * model.nv

    found = stepped(model, part.step, given, accelerations)
    return found if part.last else {part.at(name): scalars for name, scalars in asked[part.number].items()}
