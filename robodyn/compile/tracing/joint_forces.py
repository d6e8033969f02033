"""Damping and friction of joints in programs, as `Dynamics(joint_forces=)` has them around an engine's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robodyn.compile.tracing.expression import Value
from robodyn.core.joints import is_positive
from robodyn.core.model import Model

Scalars = Sequence[Value]


class JointForces:
    """What of "damping" and "friction" counts in a query of a model: damping qd + friction sign(qd).

    Args:
        model: the robot.
        parts: where they enter, as of `robodyn.engines.query_table.QuerySpec.joint_forces`.
        results: names of the query's results, in order.
        counted: which of the two count.
    """

    def __init__(self, model: Model, parts: Mapping[str, str], results: Sequence[str], counted: Sequence[str]) -> None:
        self._parts, self._results = parts if counted else {}, results
        self._damping = model.damping.tolist() if "damping" in counted else [0.0] * model.nv
        self._friction = model.friction.tolist() if "friction" in counted else [0.0] * model.nv

    def taken(self, given: Mapping[str, Scalars]) -> dict[str, Scalars]:
        """Inputs of a query, less what joint forces take."""
        found = dict(given)
        for name in self._parts:
            if name in given:
                found[name] = [t - f for t, f in zip(given[name], self._forces(given["qd"]), strict=True)]
        return found

    def added(self, results: Mapping[str, Scalars], given: Mapping[str, Scalars]) -> dict[str, Scalars]:
        """Results of a task, in the order of the query's, with what joint forces add."""
        found = dict(results)
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
                found[key] = [value + more for value, more in zip(results[key], added, strict=True)]
        return found

    def _forces(self, qd: Scalars) -> list[Value]:
        columns = zip(self._damping, self._friction, qd, strict=True)
        return [d * v + (f * (is_positive(v) - is_positive(-v)) if f else 0.0) for d, f, v in columns]
