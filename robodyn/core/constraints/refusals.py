"""Errors of calls that do not support constraints: they name the constraints, and alternatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robodyn.core.constraints.kinds import ROWS, Rolling
from robodyn.core.constraints.resolved import anchored_by_calls, resolved_constraints
from robodyn.core.findings import listed
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import quoted

if TYPE_CHECKING:
    from robodyn.core.model import Model


def require_no_constraints(model: Model, what: str) -> None:
    """Raise for a call that supports neither constraints nor contacts.

    Raises:
        UnavailableError: the model has some.
    """
    require_no_contacts(model, what)
    if model.constraints:
        raise UnavailableError(
            f"{what}: not available for robots with constraints; {quoted(model.name)} has {constraints_named(model)}, "
            "which step, rollout and simulate obey; Dynamics(model, constraints=()) has none"
        )


_WITHOUT = "contact_forward_dynamics, step and rollout obey them; Dynamics(model, contacts=()) has none"


def require_no_contacts(model: Model, what: str, instead: str = _WITHOUT) -> None:
    """Raise for a call that does not support contacts. `instead`: what to do.

    Raises:
        UnavailableError: the model has some.
    """
    if model.contacts is not None:
        raise UnavailableError(f"{what}: not available for robots with contacts, as {quoted(model.name)}; {instead}")


def require_places(model: Model, what: str) -> None:
    """Raise for a call without `targets`, where a constraint to the world needs them.

    Raises:
        ArgumentError: the model has such a constraint.
    """
    anchored = [quoted(each.name) for each in model.constraints if anchored_by_calls([each])]
    if anchored:
        raise ArgumentError(f"constraints: {listed(anchored)} to the world without a place; {what} wants to_at= for it")


def require_whole_vectors(model: Model) -> None:
    """Raise if some constraint holds one or two of three directions: its forces have no rows in other axes.

    Raises:
        ArgumentError: names the constraint.
    """
    for each in resolved_constraints(model):
        names = [name for name in each.rows if name in (*ROWS, *Rolling.rows)]
        if len(names) % 3 or (len(names) == 3 and names not in (list(ROWS[:3]), list(ROWS[3:]))):
            raise ArgumentError(
                f"axes: got 'world' for {quoted(each.name)}, which holds {', '.join(names)} along its own axes only; "
                "wanted 'to', or constraint_wrenches(q, lam) for forces in world axes"
            )


def constraints_named(model: Model) -> str:
    """Names of a model's constraints, a few of them."""
    return listed([quoted(each.name) for each in model.constraints])
