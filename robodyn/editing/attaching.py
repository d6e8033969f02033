"""Robots that are put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn import exact
from robodyn.builders.findings import Report, listed
from robodyn.editing.parts import fields_of, finished, joined, unused
from robodyn.editing.placing import row_of, transform_in, transform_of
from robodyn.errors import ArgumentError
from robodyn.messages import brief, quoted
from robodyn.spatial import IDENTITY

if TYPE_CHECKING:
    from robodyn.model import Model

_NAMES = ("link_names", "joint_names", "body_names", "link_joints")


def attach(model: Model, other: Any, link: str | int, pose: Any, prefix: Any) -> Model:
    """One robot fixed to a link of another one; see `Model.attach`."""
    if not exact.is_a(other, type(model)):
        raise ArgumentError(f"other: got {brief(other)}; wanted a robodyn.Model")
    before = exact.text_or_none(prefix)
    if before is None:
        raise ArgumentError(f"prefix: got {brief(prefix)}; wanted a text")
    at = model.link_index(link)
    own, more = fields_of(model), fields_of(other)
    for name in _NAMES:
        more[name] = tuple(f"{before}{each}" if each else "" for each in more[name])
    for what in ("link_names", "joint_names"):
        mine = set(own[what])
        both = [quoted(each) for each in more[what] if each in mine]
        if both:
            kind = what.split("_")[0]
            raise ArgumentError(f"prefix: both robots have a {kind} called {listed(both)}; wanted another prefix")
    bodies, links = len(own["parent"]), len(own["link_names"])
    both_fields = joined(own, more)
    on = int(own["link_body"][at])
    X = transform_of("pose", pose).after(transform_in(own["link_X"][at]))
    for what, where, start in (("Xtree", "parent", bodies), ("link_X", "link_body", links)):
        hung = start + np.flatnonzero(more[where] < 0)
        both_fields[where][hung] = on
        if X != IDENTITY:
            for i in hung.tolist():
                both_fields[what][i] = row_of(transform_in(both_fields[what][i]).after(X))
    names, taken = list(both_fields["link_joints"]), {*both_fields["joint_names"], *own["link_joints"]}
    for k in range(links, len(names)):
        root = both_fields["link_parent"][k] < 0
        moving = both_fields["link_body"][k] >= bodies
        if root:
            both_fields["link_parent"][k] = at
        if not moving:
            names[k] = unused(f"{both_fields['link_names'][k]}_fixed" if root else names[k], taken)
    both_fields["link_joints"] = tuple(names)
    both_fields["report"] = Report((*model.report, *other.report))
    return finished(model, both_fields)
