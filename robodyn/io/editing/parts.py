"""Building blocks of edits: the fields of models, selections of bodies and links, and combinations of two models.

`robodyn.core.model_fields.FIRST_AXES` says which fields have one entry per body, link, coordinate or velocity. Edits
select entries by this table, so a new field of `Model` only needs a row there. `finished` computes derived fields at
the end: starts and sources of coordinates, and inertias of bodies.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from robodyn.core.constraints.refusals import require_no_contacts
from robodyn.core.inertial_parameters import in_frame
from robodyn.core.joints import KINDS
from robodyn.core.model_fields import FIRST_AXES, REFERENCES
from robodyn.core.poses import row_of, transform_in
from robodyn.core.spatial import Transform
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import quoted
from robodyn.io.builders.link_inertias import of_bodies
from robodyn.io.editing import carried, configured, constraint_edits

if TYPE_CHECKING:
    from robodyn.core.model import Model

Fields: TypeAlias = dict[str, Any]
"""The fields of a model by name. All fields of links are known, and the inertia of every body is the sum of those of
its links. `configurations` has names only (`robodyn.io.editing.configured`)."""

_AXES = {**FIRST_AXES, "tree_configurations": "nq_tree"}

_ROUNDING = 1e-12
"""Share of a body's largest inertia entry up to which a difference to the sum of its links counts as rounding."""
_NQ, _NV = (np.array([getattr(kind, what) for kind in KINDS]) for what in ("nq", "nv"))


def fields_of(model: Model) -> Fields:
    """The fields of a model. Unknown fields of links are derived from bodies."""
    fields: Fields = {each.name: getattr(model, each.name) for each in dataclasses.fields(model)}
    parents, carriers = _link_parents(model)
    fields["link_parent"] = parents
    names = fields["link_joints"]
    if names is None:
        names = [""] * len(model.link_names) if parents.size == 0 else _joint_names(model, parents, carriers)
    fields["link_joints"] = tuple(names)
    fields["configurations"], fields["tree_configurations"] = tuple(model.configurations), configured.of_tree(model)
    with np.errstate(over="ignore", invalid="ignore"):
        _assign_remaining_inertias(model, fields, carriers)
    return fields


def _link_parents(model: Model) -> tuple[Array, dict[int, int]]:
    """The parent link of each link, and for each body (-1: the world) its first link, the child link of its joint.

    If the parent is unknown or impossible, it is the link with the name of the body, or the body's first link.
    """
    body, known_parents = model.link_body.tolist(), model.link_parent
    above = [-1] * len(body) if known_parents is None else known_parents.tolist()
    links_of: dict[int, list[int]] = {}
    for k, b in enumerate(body):
        links_of.setdefault(b, []).append(k)
    numbers = {name: k for k, name in enumerate(model.link_names)}
    carriers = {}
    for b, links in links_of.items():
        candidates = [k for k in links if above[k] < 0 or body[above[k]] != b]
        namesake = numbers.get(model.body_names[b]) if b >= 0 else None
        carriers[b] = namesake if namesake in candidates else candidates[0]
    parents = np.full(len(body), -1, dtype=np.intp)
    parent = model.parent.tolist()
    for b, links in links_of.items():
        for k in links:
            if k != carriers[b]:
                parents[k] = above[k] if above[k] >= 0 and body[above[k]] == b else carriers[b]
            elif b >= 0:
                ancestor = parent[b]
                while ancestor >= 0 and ancestor not in links_of:
                    ancestor = parent[ancestor]
                known = above[k] >= 0 and body[above[k]] == ancestor
                parents[k] = above[k] if known else carriers.get(ancestor, -1)
    return parents, carriers


def _joint_names(model: Model, parents: Array, carriers: Mapping[int, int]) -> list[str]:
    """The name of each link's joint. Fixed joints get new names."""
    taken = set(model.joint_names)
    moving = {k: model.joint_names[b] for b, k in carriers.items() if b >= 0}
    roots = set(np.flatnonzero(parents < 0).tolist())
    names = []
    for k, link in enumerate(model.link_names):
        names.append("" if k in roots else moving[k] if k in moving else unused(f"{link}_fixed", taken))
    return names


def _assign_remaining_inertias(model: Model, fields: Fields, carriers: dict[int, int]) -> None:
    """Add the difference between the inertia of a body and the sum of its links to the body's first link."""
    known = model.link_inertia
    links_inertia = np.zeros((len(model.link_names), 10)) if known is None else known
    difference = model.inertia - of_bodies(links_inertia, model.link_body, model.link_X, model.n_bodies)
    significant = (np.abs(difference) > _ROUNDING * np.abs(model.inertia).max(axis=1, initial=0.0)[:, None]).any(axis=1)
    owners = np.flatnonzero(significant).tolist()
    fields["link_inertia"] = links_inertia
    if not owners:
        return
    without_link = [b for b in owners if b not in carriers]
    for b in without_link:
        carriers[b] = add_link(fields, model.body_names[b], b, transform_in(_IDENTITY_ROW), model.joint_names[b])
    new_inertia = np.array(fields["link_inertia"])
    first_links = [carriers[b] for b in owners]
    new_inertia[first_links] += in_frame(difference[owners], np.asarray(fields["link_X"])[first_links])
    fields["link_inertia"] = new_inertia


_IDENTITY_ROW = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


def unused(name: str, taken: set[str]) -> str:
    """Prepends underscores to a name until it is not in `taken`, then adds it to `taken`."""
    while name in taken:
        name = f"_{name}"
    taken.add(name)
    return name


def add_link(fields: Fields, name: str, body: int, X: Transform, joint: str, parent: int = -1) -> int:
    """Adds a link without inertia to the fields; returns its index."""
    fields["link_names"] = (*fields["link_names"], unused(name, set(fields["link_names"])))
    fields["link_joints"] = (*fields["link_joints"], joint)
    for what, row in (
        ("link_body", body),
        ("link_parent", parent),
        ("link_X", row_of(X)),
        ("link_inertia", [0.0] * 10),
    ):
        fields[what] = np.concatenate([fields[what], np.array([row], dtype=fields[what].dtype)])
    return len(fields["link_names"]) - 1


def taken(fields: Fields, bodies: Sequence[int], links: Sequence[int]) -> Fields:
    """The fields of some bodies and links, in this order. References to other bodies and links become -1."""
    b, k = np.array(bodies, dtype=np.intp), np.array(links, dtype=np.intp)
    kind = fields["joint_kind"]
    rows = {"n_bodies": b, "n_links": k, "nq_tree": _coordinates(kind, _NQ, b), "nv_tree": _coordinates(kind, _NV, b)}
    numbers = {}
    for size, chosen in (("n_bodies", b), ("n_links", k)):
        length = len(kind) if size == "n_bodies" else len(fields["link_names"])
        number = np.full(length + 1, -1, dtype=np.intp)  # the last entry maps -1 to -1
        number[chosen] = np.arange(chosen.size)
        numbers[size] = number
    selected: Fields = {}
    for name, value in fields.items():
        if name not in _AXES:
            selected[name] = value
        elif isinstance(value, np.ndarray):
            selected[name] = value[rows[_AXES[name]]]
        else:
            selected[name] = tuple(value[i] for i in rows[_AXES[name]].tolist())
        if name in REFERENCES:
            selected[name] = numbers[REFERENCES[name]][selected[name]]
    return selected


def _coordinates(kind: Array, sizes: Array, bodies: Array) -> Array:
    """Indices of the tree coordinates, or velocities, of bodies in this order."""
    size = sizes[kind]
    start = np.cumsum(size) - size
    selected_size = size[bodies]
    first = np.repeat(start[bodies] - (np.cumsum(selected_size) - selected_size), selected_size)
    indices: Array = first + np.arange(selected_size.sum())
    return indices


def joined(first: Fields, second: Fields) -> Fields:
    """The fields of two robots in one world. Fields that are not arrays over bodies or links are the first robot's."""
    sizes = {"n_bodies": len(first["joint_kind"]), "n_links": len(first["link_names"])}
    fields = dict(first)
    for name in _AXES:
        a, b = first[name], second[name]
        if isinstance(a, np.ndarray):
            shifted = np.where(b < 0, b, b + sizes[REFERENCES[name]]) if name in REFERENCES else b
            fields[name] = np.concatenate([a, shifted]).astype(a.dtype)
        else:
            fields[name] = (*a, *b)
    return fields


def finished(model: Model, fields: Fields) -> Model:
    """Builds a model from fields, after computing derived fields."""
    kind, mimics = fields["joint_kind"], fields["mimics"]
    for letter, size in (("q", _NQ[kind]), ("v", _NV[kind])):
        start = np.cumsum(size) - size
        source = np.cumsum(np.repeat(mimics < 0, size)) - 1
        followers = np.flatnonzero(mimics >= 0)
        source[start[followers]] = source[start[mimics[followers]]]
        fields[f"{letter}_start"], fields[f"{letter}_source"] = start.astype(np.intp), source.astype(np.intp)
    with np.errstate(over="ignore", invalid="ignore"):  # the checks of Model report overflow
        links = fields["link_inertia"], fields["link_body"], fields["link_X"]
        fields["inertia"] = of_bodies(*links, len(kind))
    constraint_edits.keep(fields)
    carried.keep(model, fields)
    configured.keep(fields)
    return type(model)(**fields)


def hung_on(fields: Fields) -> list[int]:
    """The parent link of each body's joint. A body without links has the same parent link as its child bodies."""
    parent, body = fields["parent"].tolist(), fields["link_body"].tolist()
    hung, carrier = [-1] * len(parent), {}
    for k, above in enumerate(fields["link_parent"].tolist()):
        if above < 0 or body[above] != body[k]:
            carrier[body[k]] = k
            if body[k] >= 0:
                hung[body[k]] = above
    for b in reversed(range(len(parent))):
        p = parent[b]
        if p >= 0 and p not in carrier and hung[p] < 0:
            hung[p] = hung[b]
    for b, p in enumerate(parent):
        if b not in carrier and hung[b] < 0:  # no descendant has a link
            hung[b] = carrier.get(p, hung[p] if p >= 0 else -1)
    return hung


def subtree(model: Model, link: str | int) -> Model:
    """The part of a robot from a link outward; see `Model.subtree`."""
    require_no_contacts(model, "subtree", carried.AFTERWARDS)
    root = model.link_index(link)
    fields = fields_of(model)
    above: list[int] = fields["link_parent"].tolist()
    order = parents_first(above)
    kept = [False] * len(above)
    for k in order:
        kept[k] = k == root or (above[k] >= 0 and kept[above[k]])
    hung = hung_on(fields)
    bodies = [b for b, k in enumerate(hung) if k >= 0 and kept[k]]
    stays, inside = int(fields["link_body"][root]), set(bodies)
    for b in bodies:
        leader = int(model.mimics[b])
        if leader >= 0 and leader not in inside:
            raise ArgumentError(
                f"link: joint {quoted(model.joint_names[b])} of this part follows {quoted(model.joint_names[leader])}, "
                "which stays behind; lock that one first"
            )
    part = taken(fields, bodies, [k for k, within in enumerate(kept) if within])
    place = sum(kept[:root])
    part["link_joints"] = (*part["link_joints"][:place], "", *part["link_joints"][place + 1 :])
    X = transform_in(fields["link_X"][root]).inverse()
    if stays >= 0:
        constraint_edits.drop_world(part, "it holds a link to the world, which is no part of this")
    else:
        constraint_edits.move_world(part, None, X)
    if np.array_equal(fields["link_X"][root], _IDENTITY_ROW):
        return finished(model, part)
    part["Xtree"], part["link_X"] = np.array(part["Xtree"]), np.array(part["link_X"])
    for what, on in (("Xtree", fields["parent"][bodies]), ("link_X", fields["link_body"][np.flatnonzero(kept)])):
        for i in np.flatnonzero(on == stays).tolist():
            part[what][i] = row_of(transform_in(part[what][i]).after(X))
    part["link_X"][place] = _IDENTITY_ROW
    return finished(model, part)


def parents_first(above: Sequence[int]) -> list[int]:
    """Indices sorted such that parents come first, otherwise in ascending order. `above`: parent of each, -1 for
    none."""
    children: list[list[int]] = [[] for _ in range(len(above) + 1)]
    for k, p in enumerate(above):
        children[p].append(k)  # on[-1] has the roots
    ready = list(children[-1])
    order = []
    while ready:
        k = heapq.heappop(ready)
        order.append(k)
        for each in children[k]:
            heapq.heappush(ready, each)
    return order
