"""Steps as one program: under the feedback of a plan with their cost, and the part of their derivatives that is not
known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np

from robodyn.algorithms.called_steps import AroundStep
from robodyn.algorithms.manifold import joint_by_joint, scalars
from robodyn.algorithms.tasks import Configuration, ScalarTask, Sized, Step, StepGradient
from robodyn.core.model import Model
from robodyn.core.sweeps import DofOutput, NamedScalars, Tracer
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass

_PLAN = ("u_plan", "k", "size", "K", "q_plan", "qd_plan")


@dataclass(frozen=True, eq=False)
class FollowedStep(AroundStep):
    """A step under u = u_plan + size k + K (x (-) x_plan), clipped to [-upper, upper] if `bounded`.

    `step`: the step; `nv`: number of velocities; `actuated`: those that u drives. Other joint forces
    are zero. `cost`: the cost of the state before the step and of u, or None.
    """

    step: Step
    nv: int
    actuated: tuple[int, ...]
    bounded: bool
    cost: ScalarTask | None
    recurrent: ClassVar[bool] = True

    @cached_property
    def name(self) -> str:
        """That of the step, and what is driven."""
        return "_".join((self.step.name, "followed", "clipped" * self.bounded, *map(str, self.actuated), self._costed))

    @property
    def _costed(self) -> str:
        return "" if self.cost is None else self.cost.name

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Those of the step without joint forces, and the plan."""
        others = tuple(name for name in self.step.inputs if name != "tau")
        return (*others, *_PLAN, *(("upper",) if self.bounded else ()), *self._of_cost)

    @property
    def _of_cost(self) -> tuple[str, ...]:
        """Weights and goals."""
        return () if self.cost is None else tuple(name for name in self.cost.given if name not in ("q", "qd", "u"))

    @cached_property
    def outputs(self) -> Mapping[str, Any]:
        """The state after the step, u, and the cost."""
        own = {} if self.cost is None else self.cost.outputs
        return {**self.step.outputs, "u": Sized((len(self.actuated),)), **own}

    @property
    def extra(self) -> Mapping[str, Any]:
        """The plan."""
        nu = len(self.actuated)
        own, gains = Sized((nu,)), Sized((nu, 2 * self.nv))
        sizes: dict[str, Any] = {"u_plan": own, "k": own, "upper": own, "size": Sized((1,)), "K": gains}
        of_cost = {} if self.cost is None else {name: self.cost.given[name] for name in self._of_cost}
        sizes |= {"q_plan": Configuration(), "qd_plan": DofOutput("")}
        plan = {name: size for name, size in sizes.items() if name in self.inputs}
        return {**self.step.extra, **plan, **of_cost}

    def trace(self, tracer: Tracer, given: NamedScalars) -> NamedScalars:
        """Results at scalars of its inputs."""
        model, state = tracer.model, {name: given[name] for name in self.inputs if name in self.step.inputs}
        off = [*_apart(model, given["q_plan"], given["q"]), *(scalars(given["qd"]) - scalars(given["qd_plan"]))]
        n, (size,), u = len(off), given["size"], []
        for i in range(len(self.actuated)):
            value = given["u_plan"][i] + size * given["k"][i]
            for gain, each in zip(given["K"][i * n : (i + 1) * n], off, strict=True):
                value = value + gain * each
            if self.bounded:
                most = given["upper"][i]
                value = np.maximum(np.minimum(value, most), -most)
            u.append(value)
        tau: list[Any] = [0.0] * model.nv
        for v, value in zip(self.actuated, u, strict=True):
            tau[v] = value
        cost = {} if self.cost is None else self.cost.trace(tracer, {**given, "u": u})
        return {**self.step.trace(tracer, {**state, "tau": tau}), "u": u, **cost}


def _apart(model: Model, a: Sequence[Any], b: Sequence[Any]) -> Any:
    """b (-) a of unit quaternions."""
    a, b = scalars(a), scalars(b)
    return joint_by_joint(model, "v", lambda kind, at, _: kind.difference(tuple(a[at]), tuple(b[at])))


@cache
def followed(step: Step, nv: int, actuated: tuple[int, ...], bounded: bool, cost: ScalarTask | None) -> FollowedStep:
    """A `FollowedStep`, cached because engines compare tasks by identity."""
    return FollowedStep(step, nv, actuated, bounded, cost)


@dataclass(frozen=True, eq=False)
class VelocityGradient(AroundStep):
    """The derivatives Y (nv, nu + 2 nv) of the velocities after a step by controls, q and qd: the lower half of (B, A).

    `step`: the gradient; `nv`: number of velocities; `actuated`: those that controls drive.
    """

    step: StepGradient
    nv: int
    actuated: tuple[int, ...]

    @cached_property
    def name(self) -> str:
        """That of the gradient, and what is driven."""
        return "_".join((self.step.name, "velocities", *map(str, self.actuated)))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Those of the step."""
        return self.step.inputs

    @cached_property
    def outputs(self) -> Mapping[str, Any]:
        """Y."""
        return {"Y": Sized((self.nv, len(self.actuated) + 2 * self.nv))}

    @property
    def extra(self) -> Mapping[str, Any]:
        """Those of the step."""
        return self.step.extra

    def trace(self, tracer: Tracer, given: NamedScalars) -> NamedScalars:
        """Results at scalars of its inputs."""
        found, n = self.step.trace(tracer, given), self.nv
        A, B = scalars(found["A"]).reshape(2 * n, 2 * n), scalars(found["B"]).reshape(2 * n, n)
        return {"Y": [each for i in range(n, 2 * n) for each in (*B[i, list(self.actuated)], *A[i])]}


@cache
def velocity_gradient(step: StepGradient, nv: int, actuated: tuple[int, ...]) -> VelocityGradient:
    """A `VelocityGradient`, cached because engines compare tasks by identity."""
    return VelocityGradient(step, nv, actuated)
