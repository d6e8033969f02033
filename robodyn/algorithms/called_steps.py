"""One step of a rollout, from the arrays that users give to the state after it, as one program.

A step of `robodyn.algorithms.tasks` begins at a state as a rollout has it. A program of this module begins at the
arguments of `Dynamics.step`: it scales quaternions to unit length, takes forces that are not given as zero, and turns
another gravity into an acceleration of the base.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robodyn.algorithms.manifold import scalars, unit
from robodyn.algorithms.tasks import Sized, Step, StepGradient, Vjp
from robodyn.core.model import Model
from robodyn.core.sweeps import NamedScalars, Sweep, TaskBase, Tracer
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass

_NEAR = 8.3
"""Roundings by which entries of a unit quaternion may be off and stay. It is no multiple of a power of two: no entry is
off by exactly so much, where the ratio below would be 0 / 0."""
_TINY = 1e-300


class AroundStep(TaskBase):
    """A program that changes the inputs or the results of a step's program, in a few operations."""

    step: Step | StepGradient | Vjp

    @property
    def outputs(self) -> Mapping[str, Any]:
        """Those of the step."""
        return self.step.outputs

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Those of the step."""
        return self.step.sweeps

    @property
    def budget(self) -> str:
        """That of the step."""
        return self.step.budget

    def least_operations(self, model: Model) -> int | None:
        """Those of the step."""
        return self.step.least_operations(model)


@dataclass(frozen=True, eq=False)
class CalledStep(AroundStep):
    """A step, or its gradient, of arrays as users give them.

    `step`: what is computed; `inputs`: names of the arguments that are given, "dt" among them; `epsilon`: the rounding
    of the dtype, by which a quaternion counts as unit.
    """

    step: Step | StepGradient
    inputs: tuple[str, ...]
    epsilon: float

    @cached_property
    def name(self) -> str:
        """That of the step, and what is given."""
        return "_".join(("called", self.step.name, *self.inputs, f"{self.epsilon:.0e}"))

    @property
    def extra(self) -> Mapping[str, Any]:
        """Another gravity."""
        return {"gravity": Sized((3,))} if "gravity" in self.inputs else {}

    def trace(self, tracer: Tracer, given: NamedScalars) -> NamedScalars:
        """Results at scalars of the arguments."""
        model, state = tracer.model, dict(given)
        state["q"] = list(_nearly_unit(model, given["q"], self.epsilon))
        state.setdefault("tau", [0.0] * model.nv)
        if "q_des" in given:
            state["q_des"] = list(unit(model, given["q_des"]))
        gravity = state.pop("gravity", None)
        if gravity is not None:
            upward = scalars(model.gravity.tolist()) - scalars(gravity)
            rest = state.get("dV0", [0.0] * 6)
            state["dV0"] = [*rest[:3], *(scalars(rest[3:]) + upward)]
        moved = tuple(name for name in ("V0", "dV0") if name in state)
        return self.step.trace(tracer.on_base(moved), state)


def _nearly_unit(model: Model, q: Sequence[Any], epsilon: float) -> Any:
    """A configuration whose quaternions are scaled to unit length, but for entries that are so up to roundings: a step
    goes on from the state that another one left."""
    given, scaled = scalars(q), unit(model, q)
    for start in model.quaternion_starts.tolist():
        for k in range(start, start + 4):
            off = scaled[k] - given[k]
            left = _NEAR * epsilon - abs(off)
            near = (left + abs(left)) / (2.0 * abs(left) + _TINY)
            scaled[k] = scaled[k] - near * off
    return scaled
