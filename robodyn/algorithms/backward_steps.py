"""One step of a rollout's gradient, from the last state towards the first, as one program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robodyn.algorithms.tasks import Configuration, Vjp
from robodyn.core.model import Model
from robodyn.core.sweeps import DofOutput, NamedScalars, Sweep, TaskBase, Tracer
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass

ADDED = ("added_q", "added_qd")
"""Inputs: the user's weights of the state before the step."""


@dataclass(frozen=True, eq=False)
class BackwardStep(TaskBase):
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

    @property
    def outputs(self) -> Mapping[str, Any]:
        """Those of the gradient."""
        return self.step.outputs

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Those of the gradient."""
        return self.step.sweeps

    @property
    def budget(self) -> str:
        """That of gradients."""
        return "gradient"

    def least_operations(self, model: Model) -> int | None:
        """Those of the gradient."""
        return self.step.least_operations(model)

    def trace(self, tracer: Tracer, given: NamedScalars) -> NamedScalars:
        """Results at scalars of its inputs."""
        gradient = dict(self.step.trace(tracer, given))
        for name, added in zip(("by_q", "by_qd"), ADDED, strict=True):
            gradient[name] = [a + b for a, b in zip(gradient[name], given[added], strict=True)]
        return gradient
