"""Combines two robots into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.constraints.refusals import require_no_contacts
from robodyn.core.findings import Notes, Report, listed
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
    """Fixes one robot to a link of another one; see `Model.attach`."""
    if not strict_types.is_a(other, type(model)):
        raise ArgumentError(f"other: got {brief(other)}; wanted a robodyn.Model")
    for each in (model, other):
        require_no_contacts(each, "attach", carried.AFTERWARDS)
    prefix_text = strict_types.text_or_none(prefix)
    if prefix_text is None:
        raise ArgumentError(f"prefix: got {brief(prefix)}; wanted a text")
    link_number, X_pose = model.link_index(link), transform_of("pose", pose)
    base_fields, other_fields = fields_of(model), fields_of(other)
    old_link_joints = other_fields["link_joints"]
    for name in _NAMES:
        other_fields[name] = tuple(f"{prefix_text}{each}" if each else "" for each in other_fields[name])
    for what in ("link_names", "joint_names"):
        taken_names = set(base_fields[what])
        both = [quoted(each) for each in other_fields[what] if each in taken_names]
        if both:
            kind = what.split("_")[0]
            raise ArgumentError(f"prefix: both robots have a {kind} called {listed(both)}; wanted another prefix")
    configured.join(base_fields, other_fields, model, other, prefix_text)
    bodies, links = len(base_fields["parent"]), len(base_fields["link_names"])
    both_fields = joined(base_fields, other_fields)
    on = int(base_fields["link_body"][link_number])
    X = X_pose.after(transform_in(base_fields["link_X"][link_number]))
    for what, where, start in (("Xtree", "parent", bodies), ("link_X", "link_body", links)):
        roots = start + np.flatnonzero(other_fields[where] < 0)
        both_fields[where][roots] = on
        if X != IDENTITY:
            for i in roots.tolist():
                both_fields[what][i] = row_of(transform_in(both_fields[what][i]).after(X))
    _connect_roots(
        both_fields,
        links,
        link_number,
        {*base_fields["joint_names"], *base_fields["link_joints"]},
        set(other_fields["joint_names"]),
    )
    both_fields["report"] = Report((*model.report, *other_fields["report"]))
    new_names = dict(zip(old_link_joints, both_fields["link_joints"][links:], strict=True))
    new_names |= {name: f"{prefix_text}{name}" for name in (*other.joint_names, *other.link_names)}
    shapes, kept = carried.renamed(other.geometries, other.extensions, prefix_text, new_names)
    both_fields["geometries"] = (*model.geometries, *shapes)
    if model.collision_pairs is not None or other.collision_pairs is not None:
        first = len(model.collision_geometries)
        both_fields["collision_pairs"] = (*model.pairs, *((first + i, first + j) for i, j in other.pairs))
        notes = Notes()
        message = "pairs of shapes of this robot and of the one that it is attached to are in no list"
        notes.gather("pairs-not-between", f"robot {quoted(other.name)}", message)
        both_fields["report"] = Report((*both_fields["report"], *notes.findings()))
    both_fields["extensions"] = (*model.extensions, *kept)
    both_fields["constraints"] = constraint_edits.prefixed(other.constraints, prefix_text)
    constraint_edits.move_world(both_fields, base_fields["link_names"][link_number], X_pose)
    both_fields["constraints"] = (*model.constraints, *both_fields["constraints"])
    return finished(model, both_fields)


def _connect_roots(fields: Fields, first: int, at: int, mine: set[str], theirs: set[str]) -> None:
    """Makes the root links of the attached robot children of the link `at`.

    Its links begin at index `first`. Its fixed joints are renamed if this robot has a joint with the same name.
    """
    names, taken, parents = list(fields["link_joints"]), mine | theirs, fields["link_parent"]
    for k in range(first, len(names)):
        if parents[k] < 0:
            parents[k] = at
            names[k] = f"{fields['link_names'][k]}_fixed"
        if names[k] not in theirs:
            names[k] = unused(names[k], taken)
    fields["link_joints"] = tuple(names)
