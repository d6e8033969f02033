"""Robots that are put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.findings import Report, listed
from robodyn.core.poses import row_of, transform_in, transform_of
from robodyn.core.spatial import IDENTITY
from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief, quoted
from robodyn.io.editing import carried, configured, constraint_edits
from robodyn.io.editing.parts import Fields, fields_of, finished, joined, unused

if TYPE_CHECKING:
    from robodyn.core.model import Model

_NAMES = ("link_names", "joint_names", "body_names", "link_joints")


def attach(model: Model, other: Any, link: str | int, pose: Any, prefix: Any) -> Model:
    """One robot fixed to a link of another one; see `Model.attach`."""
    if not strict_types.is_a(other, type(model)):
        raise ArgumentError(f"other: got {brief(other)}; wanted a robodyn.Model")
    before = strict_types.text_or_none(prefix)
    if before is None:
        raise ArgumentError(f"prefix: got {brief(prefix)}; wanted a text")
    at, placed = model.link_index(link), transform_of("pose", pose)
    own, more = fields_of(model), fields_of(other)
    fixed = more["link_joints"]
    for name in _NAMES:
        more[name] = tuple(f"{before}{each}" if each else "" for each in more[name])
    for what in ("link_names", "joint_names"):
        mine = set(own[what])
        both = [quoted(each) for each in more[what] if each in mine]
        if both:
            kind = what.split("_")[0]
            raise ArgumentError(f"prefix: both robots have a {kind} called {listed(both)}; wanted another prefix")
    configured.join(own, more, model, other, before)
    bodies, links = len(own["parent"]), len(own["link_names"])
    both_fields = joined(own, more)
    on = int(own["link_body"][at])
    X = placed.after(transform_in(own["link_X"][at]))
    for what, where, start in (("Xtree", "parent", bodies), ("link_X", "link_body", links)):
        hung = start + np.flatnonzero(more[where] < 0)
        both_fields[where][hung] = on
        if X != IDENTITY:
            for i in hung.tolist():
                both_fields[what][i] = row_of(transform_in(both_fields[what][i]).after(X))
    _hang(both_fields, links, at, {*own["joint_names"], *own["link_joints"]}, set(more["joint_names"]))
    both_fields["report"] = Report((*model.report, *more["report"]))
    new = dict(zip(fixed, both_fields["link_joints"][links:], strict=True))
    new |= {name: f"{before}{name}" for name in (*other.joint_names, *other.link_names)}
    shapes, kept = carried.renamed(other.geometries, other.extensions, before, new)
    both_fields["geometries"] = (*model.geometries, *shapes)
    both_fields["extensions"] = (*model.extensions, *kept)
    both_fields["constraints"] = constraint_edits.prefixed(other.constraints, before)
    constraint_edits.move_world(both_fields, own["link_names"][at], placed)
    both_fields["constraints"] = (*model.constraints, *both_fields["constraints"])
    return finished(model, both_fields)


def _hang(fields: Fields, first: int, at: int, mine: set[str], theirs: set[str]) -> None:
    """Hang links from the first of the other robot's on, those that hang on none, on the link `at`; fixed joints step
    aside where this robot has their name."""
    names, taken, parents = list(fields["link_joints"]), mine | theirs, fields["link_parent"]
    for k in range(first, len(names)):
        if parents[k] < 0:
            parents[k] = at
            names[k] = f"{fields['link_names'][k]}_fixed"
        if names[k] not in theirs:
            names[k] = unused(names[k], taken)
    fields["link_joints"] = tuple(names)
