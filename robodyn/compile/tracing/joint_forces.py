"""Joint damping and friction in traced programs, as `Dynamics(joint_forces=)` adds them to an engine's results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robodyn.compile.tracing.expression import Value
from robodyn.core.joints import is_positive
from robodyn.core.model import Model

Scalars = Sequence[Value]


class JointForces:
    """The damping and friction forces of a model that a query counts: damping qd + friction sign(qd).

    Args:
        model: the robot.
        parts: the inputs and results that they change, as in `robodyn.engines.query_table.QuerySpec.joint_forces`.
        results: names of the query's results, in order.
        counted: the forces to count, of "damping" and "friction".
    """

    def __init__(self, model: Model, parts: Mapping[str, str], results: Sequence[str], counted: Sequence[str]) -> None:
        self._parts, self._results = parts if counted else {}, results
        self._damping = model.damping.tolist() if "damping" in counted else [0.0] * model.nv
        self._friction = model.friction.tolist() if "friction" in counted else [0.0] * model.nv

    def taken(self, given: Mapping[str, Scalars]) -> dict[str, Scalars]:
        """The inputs of a query with the joint forces subtracted from `tau`."""
        inputs = dict(given)
        for name in self._parts:
            if name in given:
                inputs[name] = [t - f for t, f in zip(given[name], self._forces(given["qd"]), strict=True)]
        return inputs

    def added(self, results: Mapping[str, Scalars], given: Mapping[str, Scalars]) -> dict[str, Scalars]:
        """A task's results under the query's result names, with the contributions of the joint forces added."""
        named = dict(results)
        for key, name in zip(results, self._results, strict=True):
            if name in self._parts:
                part = self._parts[name]
                added: list[Value] = [0.0] * len(results[key])
                if part == "slope":  # on the diagonal
                    added[:: len(self._damping) + 1] = self._damping
                elif part == "force":
                    added = self._forces(given["qd"])
                else:
                    added = [d * v for d, v in zip(self._damping, given["vector"], strict=True)]
                named[key] = [value + more for value, more in zip(results[key], added, strict=True)]
        return named

    def _forces(self, qd: Scalars) -> list[Value]:
        columns = zip(self._damping, self._friction, qd, strict=True)
        return [d * v + (f * (is_positive(v) - is_positive(-v)) if f else 0.0) for d, f, v in columns]
