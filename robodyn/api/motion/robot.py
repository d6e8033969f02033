"""Converts the robot that a user passes to a function (not a method of `Dynamics`) to a `Dynamics`.

Functions that move a robot or use its accelerations call `dynamics_of` and declare how they treat its constraints. By
default robots with constraints are refused. Otherwise a function that ignores constraints would silently move the open
tree.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, cast

from robodyn.api.dynamics import Dynamics
from robodyn.core.constraints.refusals import require_no_constraints
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief

Stance: TypeAlias = Literal["refused", "obeyed", "of the tree alone"]
"""How a function treats constraints. The last is for functions documented to ignore them."""


def dynamics_of(robot: Any, what: str, constraints: Stance = "refused", name: str = "dyn", **options: Any) -> Dynamics:
    """Return a `Dynamics` unchanged; for a `Model` make a `Dynamics` with these options.

    `what`: name of the calling function, for messages; `name`: name of its argument.

    Raises:
        ArgumentError: `robot` is neither.
        UnavailableError: the robot has constraints, which the calling function does not support.
    """
    if not strict_types.is_a(robot, Model, Dynamics):
        raise ArgumentError(f"{name}: got {brief(robot)}; wanted a robodyn.Dynamics or Model")
    dyn = cast(Dynamics, robot) if strict_types.is_a(robot, Dynamics) else Dynamics(cast(Model, robot), **options)
    if constraints == "refused":
        require_no_constraints(dyn.model, what)
    return dyn
