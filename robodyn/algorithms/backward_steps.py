"""One step of a rollout's gradient, from the last state towards the first, as one program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robodyn.algorithms.called_steps import AroundStep
from robodyn.algorithms.tasks import Configuration, Vjp
from robodyn.core.sweeps import DofOutput, NamedScalars, Tracer
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass

ADDED = ("added_q", "added_qd")
"""Inputs: the user's weights of the state before the step."""


@dataclass(frozen=True, eq=False)
class BackwardStep(AroundStep):
    """The gradient of a step, added to the user's weights of the state before it.

    `step`: the `Vjp` of a step by q, qd and other inputs. Weights of configurations are those of nq plain numbers.
    """

    step: Vjp

    @property
    def name(self) -> str:
        """That of the gradient."""
        return f"{self.step.name}_added"

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The inputs of the step, weights of the state after it, and those of the state before it."""
        return (*self.step.inputs, *ADDED)

    @cached_property
    def extra(self) -> Mapping[str, Any]:
        """Weights."""
        return {**self.step.extra, "added_q": Configuration(), "added_qd": DofOutput("")}

    def trace(self, tracer: Tracer, given: NamedScalars) -> NamedScalars:
        """Results at scalars of its inputs."""
        gradient = dict(self.step.trace(tracer, given))
        for name, added in zip(("by_q", "by_qd"), ADDED, strict=True):
            gradient[name] = [a + b for a, b in zip(gradient[name], given[added], strict=True)]
        return gradient
