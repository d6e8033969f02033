"""Checks of what users pass in to every simulator: robots, and vectors of one state."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from robodyn import exact
from robodyn.arguments import Array, real_array, require_finite
from robodyn.dynamics import Dynamics
from robodyn.errors import ArgumentError
from robodyn.messages import brief
from robodyn.model import Model


def dynamics_of(dyn: Any, joint_forces: tuple[str, ...]) -> Dynamics:
    """What is given, or of a `Model` a `Dynamics` with these joint forces.

    Raises:
        ArgumentError: it is neither.
    """
    if exact.is_a(dyn, Model):
        return Dynamics(dyn, joint_forces=joint_forces)
    if not exact.is_a(dyn, Dynamics):
        raise ArgumentError(f"dyn: got {brief(dyn)}; wanted a robodyn.Dynamics or Model")
    return cast(Dynamics, dyn)


def require_model(model: Any, otherwise: str = "") -> None:
    """Raise for what is no model; `otherwise` ends the message.

    Raises:
        ArgumentError: so it is.
    """
    if not exact.is_a(model, Model):
        raise ArgumentError(f"model: got {brief(model)}; wanted a robodyn.Model{otherwise}")


def vector(name: str, value: Any, n: int) -> Array:
    """`value` as an array (n,) of finite numbers, float64.

    Raises:
        ArgumentError: of another shape or type.
        NumericalError: NaN or infinity.
    """
    array = real_array(name, value, (n,), np.float64)
    if array.ndim != 1:
        raise ArgumentError(f"{name}: got shape {array.shape}; wanted ({n},): one robot has one state")
    require_finite(name, array, 1)
    return array
