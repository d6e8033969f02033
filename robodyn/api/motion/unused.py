"""Damping and friction that a robot has and a motion leaves out: said once for each robot."""

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
"""Robots of which it was said, by hashes of names and coefficients: a model with other constraints is the same."""


def warn_of_unused_forces(dyn: Dynamics, what: str, given: Mapping[str, Any] | None = None) -> None:
    """Say that the damping and friction of a robot's joints do not act, where nobody has said that they should not.

    Queries do not say so: there is nothing that they could have been expected in.

    Args:
        dyn: what moves the robot.
        what: who moves it, as messages call it.
        given: what the call was given by name; with damping or friction among it, somebody has thought of them.
    """
    model = dyn.model
    if dyn._forces_chosen or any((given or {}).get(name) is not None for name in RESISTANCES):
        return
    there = {name: getattr(model, name) for name in RESISTANCES}
    found = [name for name, coefficients in there.items() if coefficients.any()]
    if not found:
        return
    known = hash((model.name, *(coefficients.tobytes() for coefficients in there.values())))
    if known in _TOLD:
        return
    _TOLD.add(known)
    wanted, act = (repr(found[0]), "does") if len(found) == 1 else (repr(tuple(found)), "do")
    warnings.warn(
        f"{what}: joint {' and '.join(found)} of {brief(model.name)} {act} not act here: Dynamics(model, joint_forces="
        f"{wanted}) counts what the model has, and joint_forces=() leaves them out without this warning",
        JointForcesWarning,
        stacklevel=users_line(),
    )
