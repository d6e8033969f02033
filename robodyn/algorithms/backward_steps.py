"""One step of a rollout's gradient, from the last state towards the first, as one program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robodyn.algorithms.called_steps import AroundStep
from robodyn.algorithms.definite import product
from robodyn.algorithms.manifold import rates_of_coordinates
from robodyn.algorithms.tasks import Configuration, Sized, Vjp
from robodyn.core.sweeps import NamedScalars, Tracer
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass

ADDED = ("added_q", "added_qd")
"""Inputs: the user's weights of the state before the step."""
AFTER = "q_after"
"""Input: the configuration after the step."""
_OF_QUATERNION = 4.0
"""Of the squared length of the rates of a quaternion, that of the angular velocity."""


@dataclass(frozen=True, eq=False)
class BackwardStep(AroundStep):
    """The gradient of a step, added to the user's weights of the state before it.

    `step`: the `Vjp` of a step by q, qd and other inputs. Weights of configurations are on tangent spaces here, and
    those of nq plain numbers there.
    """

    step: Vjp

    @property
    def name(self) -> str:
        """That of the gradient."""
        return f"{self.step.name}_added"

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The inputs of the step, the state after it and its weights, and weights of the state before it."""
        return (*self.step.inputs, AFTER, *ADDED)

    @cached_property
    def extra(self) -> Mapping[str, Any]:
        """Weights, and what the step itself has."""
        of_degrees = dict.fromkeys((self.step.weights["q_next"], *ADDED), Sized(("nv",)))
        return {**self.step.task.extra, **self.step.extra, AFTER: Configuration(), **of_degrees}

    @cached_property
    def outputs(self) -> Mapping[str, Any]:
        """Those of the step."""
        return {**self.step.outputs, "by_q": Sized(("nv",))}

    def trace(self, tracer: Tracer, given: NamedScalars) -> NamedScalars:
        """Results at scalars of its inputs. With G the rates of coordinates, weights of nq numbers are G (G' G)^-1
        times those on the tangent space, and these are G' times the others."""
        model, name, state = tracer.model, self.step.weights["q_next"], dict(given)
        factors = [1.0] * model.nq
        for start in model.quaternion_starts.tolist():
            factors[start : start + 4] = [_OF_QUATERNION] * 4
        state[name] = [
            factor * product([*row.values()], [given[name][j] for j in row])
            for factor, row in zip(factors, rates_of_coordinates(model, given[AFTER]), strict=True)
        ]
        gradient = dict(self.step.trace(tracer, state))
        by_q = list(given[ADDED[0]])
        for row, x in zip(rates_of_coordinates(model, given["q"]), gradient["by_q"], strict=True):
            for j, rate in row.items():
                by_q[j] = by_q[j] + rate * x
        by_qd = [a + b for a, b in zip(gradient["by_qd"], given[ADDED[1]], strict=True)]
        return {**gradient, "by_q": by_q, "by_qd": by_qd}
