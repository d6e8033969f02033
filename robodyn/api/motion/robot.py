"""The robot that a user passes to what is no method of it, as a `Dynamics`.

What moves a robot, or computes with its accelerations, takes it from here and says what becomes of its constraints.
What says nothing refuses robots that have some: who forgets them meets an error that names them, and no motion of the
open tree.
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
"""What becomes of constraints. The last is for what is documented to be about the tree without them."""


def dynamics_of(robot: Any, what: str, constraints: Stance = "refused", name: str = "dyn", **options: Any) -> Dynamics:
    """What is given, or of a `Model` a `Dynamics` with these options.

    `what`: who asks, as messages call it; `name`: of the argument.

    Raises:
        ArgumentError: it is neither.
        UnavailableError: it has constraints, which the one who asks does not know.
    """
    if not strict_types.is_a(robot, Model, Dynamics):
        raise ArgumentError(f"{name}: got {brief(robot)}; wanted a robodyn.Dynamics or Model")
    dyn = cast(Dynamics, robot) if strict_types.is_a(robot, Dynamics) else Dynamics(cast(Model, robot), **options)
    if constraints == "refused":
        require_no_constraints(dyn.model, what)
    return dyn
