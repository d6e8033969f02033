"""What every query of a Dynamics stands on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np

from robodyn.arguments import Array
from robodyn.engines.protocol import Engine
from robodyn.errors import ArgumentError, NumericalError, SingularError
from robodyn.model import Model
from robodyn.singularity import singularity


class Core(ABC):
    """Attributes of a Dynamics and the work that several queries share."""

    model: Model
    dtype: np.dtype[Any]
    engine: Engine
    check: bool | None
    joint_forces: tuple[str, ...]
    argument_shapes: dict[str, tuple[int, ...]]

    @abstractmethod
    def _answered(self, name: str, result: Any) -> Any:
        """Pass on the first answer to a query, and let machine code take its plain calls from then on."""

    def _joint_force(self, qd: Array) -> Array | float:
        """Damping and friction as a generalised force that drives must supply."""
        force: Array | float = 0.0
        if "damping" in self.joint_forces:
            force = force + self.model.damping.astype(self.dtype) * qd
        if "friction" in self.joint_forces:
            force = force + self.model.friction.astype(self.dtype) * np.sign(qd)
        return force

    # What no state can cure.

    def _require_mass(self) -> None:
        if self.model.total_mass == 0.0:
            raise NumericalError(f"model {self.model.name!r}: nothing that moves has mass, so it has no centre of mass")

    def singularity(self) -> str | None:
        """Why the mass matrix is singular at every state, naming the body, or None where it is not.

        Forward dynamics, the inverse mass matrix and gradients of forward dynamics raise a `SingularError` with this
        message; inverse dynamics does not need the inverse and answers all the same.
        """
        return self._singular

    def _require_regular(self) -> None:
        if self._singular is not None:
            raise SingularError(self._singular)

    @cached_property
    def _singular(self) -> str | None:
        return singularity(self.model)


def require_model(model: Any) -> None:
    """Raise an ArgumentError for anything but a Model."""
    if not isinstance(model, Model):
        raise ArgumentError(f"model: got {type(model).__name__}; wanted a robodyn.Model (robodyn.load_urdf)")
