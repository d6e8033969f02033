"""Contacts as dictionaries of plain values, for files, and back; they are checked like those that users make."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, TypeVar

from robodyn.core.contacts.kinds import (
    CONDIMS,
    SLOTS,
    ContactPair,
    Contacts,
    EqualityRows,
    JointRow,
    Softness,
    checked_options,
    checked_softness,
)
from robodyn.core.description import Geometry
from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief

_T = TypeVar("_T", bound=Softness)


def plain(contacts: Contacts) -> dict[str, Any]:
    """The fields, as plain values; files of heights have no folders."""
    return asdict(contacts)


def contacts_of(given: Any, geometry: Callable[[Any], Geometry]) -> Contacts:
    """The contacts that `plain` has written, after JSON. `geometry`: makes a geometry of plain values.

    Raises:
        ArgumentError: it holds no contacts; names the field.
    """
    _require_fields(Contacts, given)
    pairs = []
    for each in given["pairs"]:
        _require_fields(ContactPair, each)
        pair = _row(ContactPair, {**each, "first": geometry(each["first"]), "second": geometry(each["second"])})
        if pair.kinds not in SLOTS or pair.condim not in CONDIMS:
            raise ArgumentError(f"it holds a contact of {brief(pair.kinds)} with condim {brief(pair.condim)}")
        pairs.append(pair)
    rows = {name: tuple(_row(JointRow, each) for each in given[name]) for name in ("limits", "dry_friction")}
    held = tuple(_row(EqualityRows, each) for each in given["equalities"])
    options = checked_options(*(given[name] for name in Contacts.NAMES))
    return Contacts(tuple(pairs), rows["limits"], rows["dry_friction"], held, **options)


def _row(kind: type[_T], given: Any) -> _T:
    """A row or a contact with checked numbers."""
    _require_fields(kind, given)
    found = kind(**{**given, **checked_softness(kind.__name__, given)})
    for name, wanted in (("joint", str), ("constraint", str), ("component", int), ("condim", int)):
        if type(getattr(found, name, wanted())) is not wanted:
            raise ArgumentError(f"it holds a {kind.__name__} with {name} {brief(getattr(found, name))}")
    most = getattr(found, "most", None)
    if most is not None and not (strict_types.is_a(most, float) and math.isfinite(most)):
        raise ArgumentError(f"it holds a {kind.__name__} with most {brief(most)}")
    return found


def _require_fields(kind: type[Any], given: Any) -> None:
    names = {each.name for each in fields(kind)}
    if not strict_types.is_a(given, dict) or given.keys() != names:
        raise ArgumentError(f"it holds {kind.__name__} {brief(given)}; wanted {', '.join(sorted(names))}")
