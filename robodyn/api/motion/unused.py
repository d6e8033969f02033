"""Warns, once for each robot, if a motion ignores the damping and friction of the robot's joints."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from robodyn.algorithms.tasks import RESISTANCES
from robodyn.internals.errors import JointForcesWarning
from robodyn.internals.messages import brief, users_line

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics

_TOLD = set[int]()
"""Hashes of names and coefficients of robots that the warning was issued for. Constraints do not count."""


def warn_of_unused_forces(dyn: Dynamics, what: str, given: Mapping[str, Any] | None = None) -> None:
    """Warn that the damping and friction of a robot's joints are ignored, unless the user chose so.

    Only motions warn; users of a query do not expect these forces.

    Args:
        dyn: the `Dynamics` that moves the robot.
        what: name of the calling function, for the message.
        given: arguments of the call by name. Explicit damping or friction suppresses the warning.
    """
    model = dyn.model
    if dyn._forces_chosen or any((given or {}).get(name) is not None for name in RESISTANCES):
        return
    coefficients_by_name = {name: getattr(model, name) for name in RESISTANCES}
    names = [name for name, coefficients in coefficients_by_name.items() if coefficients.any()]
    if not names:
        return
    key = hash((model.name, *(coefficients.tobytes() for coefficients in coefficients_by_name.values())))
    if key in _TOLD:
        return
    _TOLD.add(key)
    option, act = (repr(names[0]), "does") if len(names) == 1 else (repr(tuple(names)), "do")
    warnings.warn(
        f"{what}: joint {' and '.join(names)} of {brief(model.name)} {act} not act here: Dynamics(model, joint_forces="
        f"{option}) counts what the model has, and joint_forces=() leaves them out without this warning",
        JointForcesWarning,
        stacklevel=users_line(),
    )
