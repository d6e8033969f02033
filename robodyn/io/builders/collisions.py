"""Geometries for collisions of robot files: which of them are shapes for distances."""

from __future__ import annotations

from collections.abc import Iterable

from robodyn.core.description import Geometry
from robodyn.core.findings import Notes
from robodyn.internals.messages import quoted

PAIR_CODES = frozenset({"cylinder-as-capsule", "collision-not-used", "pair-left-out", "srdf-unknown-link"})
"""Codes of findings about shapes and pairs, which other shapes replace."""


def note_geometries(geometries: Iterable[Geometry], notes: Notes) -> None:
    """Report geometries for collisions that are no shapes, or are other shapes in distances."""
    for each in geometries:
        if each.role == "visual":
            continue
        subject = f"link {quoted(each.link)}"
        if each.kind == "mesh":
            notes.gather("collision-not-used", subject, "a mesh for collisions, which has no part in distances")
        elif each.kind == "ellipsoid":
            message = "an ellipsoid for collisions, which has no part in distances: there is no formula"
            notes.gather("collision-not-used", subject, message)
        elif each.kind == "cylinder":
            message = "a cylinder: distances are those of the capsule around it, except to planes"
            notes.gather("cylinder-as-capsule", subject, message)
