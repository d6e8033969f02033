"""Constraints as dictionaries of plain values, for files, and back; they are checked like those that users make."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from robodyn.core.constraints.kinds import KINDS, Baumgarte, Constraint, Numbers
from robodyn.core.description import Pose
from robodyn.core.spatial import IDENTITY, Transform, transpose
from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief

_KINDS = {kind.__name__: kind for kind in KINDS}
_PLACES = ("at", "to_at")
_PLACE = 12


def frame(numbers: Numbers | None) -> Transform:
    """The transform that a constraint stores as `at` or `to_at`; None is the identity."""
    if numbers is None:
        return IDENTITY
    return Transform(tuple(numbers[:9]), (numbers[9], numbers[10], numbers[11]))


def pose(X: Transform) -> Pose:
    """The pose of the frame that a transform leads to."""
    return Pose(X.r, transpose(X.E))


def plain(constraint: Constraint) -> dict[str, Any]:
    """Kind and fields of a constraint, as plain values."""
    values = {"kind": type(constraint).__name__, **_fields_of(constraint)}
    if isinstance(constraint.baumgarte, Baumgarte):
        values["baumgarte"] = _fields_of(constraint.baumgarte)
    return values


def _fields_of(made: Any) -> dict[str, Any]:
    return {each.name: getattr(made, each.name) for each in fields(made)}


def constraint_of(given: Any) -> Constraint:
    """The constraint that `plain` has written, after JSON.

    Raises:
        ArgumentError: it is not a constraint; names the field.
    """
    kind = _KINDS.get(str(given.get("kind"))) if type(given) is dict else None
    if kind is None:
        raise ArgumentError(f"it holds a constraint {brief(given)}; wanted one of {', '.join(_KINDS)}")
    names = [each.name for each in fields(kind)]
    if given.keys() != {"kind", *names}:
        raise ArgumentError(f"it holds a {kind.__name__} of {brief(sorted(given))}; wanted {', '.join(names)}")
    values = {name: given[name] for name in names}
    for place in _PLACES:
        if values.get(place) is not None:
            _require_place(kind.__name__, place, values[place])
    if "joints" in values and type(values["joints"]) is not list:
        raise ArgumentError(f"Coupling.joints: got {brief(values['joints'])}; wanted pairs of a joint and a number")
    if type(values["baumgarte"]) is dict:
        values["baumgarte"] = _gains_of(kind.__name__, values["baumgarte"])
    constraint: Constraint = kind(**values)
    return constraint


def _require_place(kind: str, place: str, given: Any) -> None:
    good = type(given) is list and len(given) == _PLACE and strict_types.all_are(given, float)
    if not good or not all(map(math.isfinite, given)):
        raise ArgumentError(f"{kind}.{place}: got {brief(given)}; wanted {_PLACE} finite numbers")


def _gains_of(kind: str, given: dict[str, Any]) -> Baumgarte:
    names = {each.name for each in fields(Baumgarte)}
    if given.keys() != names:
        raise ArgumentError(f"{kind}.baumgarte: got {brief(given)}; wanted {', '.join(sorted(names))}")
    return Baumgarte(**given)
