"""The last check of loading: merging links and following mimics must not overflow."""

from __future__ import annotations

import math

import numpy as np

from robodyn.core.description import RobotDescription
from robodyn.core.findings import at_line, listed
from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted


def check_finite(model: Model, description: RobotDescription) -> None:
    """Raise LoadError if a model made from this description contains NaN or infinity. It names the joint or links."""
    rows = (model.Xtree, model.link_X, model.inertia, np.asarray(model.link_inertia))
    # Without mimics, coefficients of joints are unchanged. Readers have checked that they are finite.
    if not model.has_mimic and all(map(_is_finite, rows)) and math.isfinite(model.total_mass):
        return
    for body in _overflowing(model.Xtree):
        raise _error(
            _joint(model, description, body), "the origins between it and the joint before it overflow as added"
        )
    for link in _overflowing(model.link_X):
        where = _links(description, [link])
        raise _error(where, "the origins between it and the joint that moves it overflow as added")
    for body in _overflowing(model.inertia):
        where = _links(description, _heavy(model, description, body))
        message = f"mass and inertia overflow as moved to the joint {quoted(model.joint_names[body])} and added"
        raise _error(where, message)
    for link in _overflowing(np.asarray(model.link_inertia)):
        raise _error(_links(description, [link]), "mass and inertia overflow as moved to its frame")
    for what in ("armature", "damping", "friction"):
        for dof in _overflowing(getattr(model, what)):
            body = int(np.searchsorted(model.v_start, model._own_coordinates[1][dof], side="right")) - 1
            message = f"its {what}, with that of the joints that mimic it, overflows"
            raise _error(_joint(model, description, body), message)
    if not np.isfinite(model.total_mass):
        where = _links(description, _heavy(model, description, int(model.inertia[:, 0].argmax())))
        raise _error(where, "the masses of the robot overflow as added")


def _error(where: str, message: str) -> LoadError:
    return LoadError(f"{where}: {message}; give smaller numbers")


def _is_finite(rows: Array) -> bool:
    return bool(np.isfinite(rows).all())


def _overflowing(rows: Array) -> list[int]:
    """A list of the first row with a number that is not finite; empty if there is none."""
    bad = ~np.isfinite(rows)
    first: list[int] = np.flatnonzero(bad.any(axis=1) if bad.ndim > 1 else bad)[:1].tolist()
    return first


def _joint(model: Model, description: RobotDescription, body: int) -> str:
    name = model.joint_names[body]
    line = next((joint.line for joint in description.joints if joint.name == name), None)
    return f"joint {quoted(name)}{at_line(line)}"


def _heavy(model: Model, description: RobotDescription, body: int) -> list[int]:
    """The links of a body that have mass or inertia."""
    return [i for i in np.flatnonzero(model.link_body == body).tolist() if description.links[i].inertial is not None]


def _links(description: RobotDescription, chosen: list[int]) -> str:
    return listed([f"link {quoted(link.name)}{at_line(link.line)}" for link in (description.links[i] for i in chosen)])
