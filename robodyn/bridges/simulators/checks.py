"""Checks of arguments that all simulator bridges share: models, and vectors of one state."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, real_array, require_finite
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief


def require_model(model: Any, otherwise: str = "") -> None:
    """Raise unless `model` is a `Model`; `otherwise` ends the message.

    Raises:
        ArgumentError: it is no `Model`.
    """
    if not strict_types.is_a(model, Model):
        raise ArgumentError(f"model: got {brief(model)}; wanted a robodyn.Model{otherwise}")


def vector(name: str, value: Any, n: int) -> Array:
    """Convert `value` to an array (n,) of finite numbers, float64.

    Raises:
        ArgumentError: wrong shape or type.
        NumericalError: NaN or infinity.
    """
    array = real_array(name, value, (n,), np.float64)
    if array.ndim != 1:
        raise ArgumentError(f"{name}: got shape {array.shape}; wanted ({n},): one robot has one state")
    require_finite(name, array, 1)
    return array
