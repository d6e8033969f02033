"""What edits are made of: the fields of models, some of their bodies and links, two of them side by side.

Fields are carried by what their entries stand for (`robodyn.core.model_fields.FIRST_AXES`), so that a field which is
added to `Model` is carried by its row there. What follows from others (where coordinates start, whose they are,
inertias of bodies) is worked out at the end, by `finished`."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

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
"""The fields of a model by name. Those of links are all there, every inertia is that of a link, and `configurations`
has names alone (`robodyn.io.editing.configured`)."""

_AXES = {**FIRST_AXES, "tree_configurations": "nq_tree"}

_ROUNDING = 1e-12
"""What of a body's inertia its links leave over counts from this share of it on."""
_NQ, _NV = (np.array([getattr(kind, what) for kind in KINDS]) for what in ("nq", "nv"))


def fields_of(model: Model) -> Fields:
    """The fields of a model, with those of links worked out where they are not known."""
    fields: Fields = {each.name: getattr(model, each.name) for each in dataclasses.fields(model)}
    parents, carriers = _links_hung(model)
    fields["link_parent"] = parents
    names = fields["link_joints"]
    if names is None:
        names = [""] * len(model.link_names) if parents.size == 0 else _joint_names(model, parents, carriers)
    fields["link_joints"] = tuple(names)
    fields["configurations"], fields["tree_configurations"] = tuple(model.configurations), configured.of_tree(model)
    with np.errstate(over="ignore", invalid="ignore"):
        _give_inertias(model, fields, carriers)
    return fields


def _links_hung(model: Model) -> tuple[Array, dict[int, int]]:
    """The link that each link hangs on, and of each body (-1: the world) the link that its joint carries.

    Where it is not known, or cannot be so, links hang on the link that the body is named after, or its first one.
    """
    body, given = model.link_body.tolist(), model.link_parent
    above = [-1] * len(body) if given is None else given.tolist()
    on: dict[int, list[int]] = {}
    for k, b in enumerate(body):
        on.setdefault(b, []).append(k)
    numbers = {name: k for k, name in enumerate(model.link_names)}
    carriers = {}
    for b, own in on.items():
        first = [k for k in own if above[k] < 0 or body[above[k]] != b]
        namesake = numbers.get(model.body_names[b]) if b >= 0 else None
        carriers[b] = namesake if namesake in first else first[0]
    parents = np.full(len(body), -1, dtype=np.intp)
    parent = model.parent.tolist()
    for b, own in on.items():
        for k in own:
            if k != carriers[b]:
                parents[k] = above[k] if above[k] >= 0 and body[above[k]] == b else carriers[b]
            elif b >= 0:
                before = parent[b]
                while before >= 0 and before not in on:
                    before = parent[before]
                known = above[k] >= 0 and body[above[k]] == before
                parents[k] = above[k] if known else carriers.get(before, -1)
    return parents, carriers


def _joint_names(model: Model, parents: Array, carriers: Mapping[int, int]) -> list[str]:
    """Names of the joints of links: those that move, and others made up for those that do not."""
    taken = set(model.joint_names)
    moving = {k: model.joint_names[b] for b, k in carriers.items() if b >= 0}
    roots = set(np.flatnonzero(parents < 0).tolist())
    names = []
    for k, link in enumerate(model.link_names):
        names.append("" if k in roots else moving[k] if k in moving else unused(f"{link}_fixed", taken))
    return names


def _give_inertias(model: Model, fields: Fields, carriers: dict[int, int]) -> None:
    """Give what inertia a body has beyond that of its links to the link that its joint carries."""
    known = model.link_inertia
    given = np.zeros((len(model.link_names), 10)) if known is None else known
    rest = model.inertia - of_bodies(given, model.link_body, model.link_X, model.n_bodies)
    left = (np.abs(rest) > _ROUNDING * np.abs(model.inertia).max(axis=1, initial=0.0)[:, None]).any(axis=1)
    owners = np.flatnonzero(left).tolist()
    fields["link_inertia"] = given
    if not owners:
        return
    bare = [b for b in owners if b not in carriers]
    for b in bare:
        carriers[b] = add_link(fields, model.body_names[b], b, transform_in(_HERE), model.joint_names[b])
    more = np.array(fields["link_inertia"])
    at = [carriers[b] for b in owners]
    more[at] += in_frame(rest[owners], np.asarray(fields["link_X"])[at])
    fields["link_inertia"] = more


_HERE = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


def unused(name: str, taken: set[str]) -> str:
    """`name`, after as many underscores as it takes to be none of the names `taken`, to which it is added."""
    while name in taken:
        name = f"_{name}"
    taken.add(name)
    return name


def add_link(fields: Fields, name: str, body: int, X: Transform, joint: str, parent: int = -1) -> int:
    """Add a link without inertia to the fields; its place."""
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
    """The fields of some bodies and links, in this order; who stood on others stands on nobody (-1)."""
    b, k = np.array(bodies, dtype=np.intp), np.array(links, dtype=np.intp)
    kind = fields["joint_kind"]
    rows = {"n_bodies": b, "n_links": k, "nq_tree": _coordinates(kind, _NQ, b), "nv_tree": _coordinates(kind, _NV, b)}
    numbers = {}
    for size, chosen in (("n_bodies", b), ("n_links", k)):
        length = len(kind) if size == "n_bodies" else len(fields["link_names"])
        number = np.full(length + 1, -1, dtype=np.intp)  # the last entry is what -1 stands for
        number[chosen] = np.arange(chosen.size)
        numbers[size] = number
    found: Fields = {}
    for name, value in fields.items():
        if name not in _AXES:
            found[name] = value
        elif isinstance(value, np.ndarray):
            found[name] = value[rows[_AXES[name]]]
        else:
            found[name] = tuple(value[i] for i in rows[_AXES[name]].tolist())
        if name in REFERENCES:
            found[name] = numbers[REFERENCES[name]][found[name]]
    return found


def _coordinates(kind: Array, sizes: Array, bodies: Array) -> Array:
    """Places of the tree coordinates, or velocities, of bodies, in this order."""
    each = sizes[kind]
    start = np.cumsum(each) - each
    wanted = each[bodies]
    first = np.repeat(start[bodies] - (np.cumsum(wanted) - wanted), wanted)
    places: Array = first + np.arange(wanted.sum())
    return places


def joined(first: Fields, second: Fields) -> Fields:
    """The fields of two robots side by side in one world; what there is once is the first's."""
    sizes = {"n_bodies": len(first["joint_kind"]), "n_links": len(first["link_names"])}
    found = dict(first)
    for name in _AXES:
        a, b = first[name], second[name]
        if isinstance(a, np.ndarray):
            moved = np.where(b < 0, b, b + sizes[REFERENCES[name]]) if name in REFERENCES else b
            found[name] = np.concatenate([a, moved]).astype(a.dtype)
        else:
            found[name] = (*a, *b)
    return found


def finished(model: Model, fields: Fields) -> Model:
    """The model of fields, with what follows from others."""
    kind, mimics = fields["joint_kind"], fields["mimics"]
    for letter, each in (("q", _NQ[kind]), ("v", _NV[kind])):
        start = np.cumsum(each) - each
        source = np.cumsum(np.repeat(mimics < 0, each)) - 1
        followers = np.flatnonzero(mimics >= 0)
        source[start[followers]] = source[start[mimics[followers]]]
        fields[f"{letter}_start"], fields[f"{letter}_source"] = start.astype(np.intp), source.astype(np.intp)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is met by the checks of a model
        placed = fields["link_inertia"], fields["link_body"], fields["link_X"]
        fields["inertia"] = of_bodies(*placed, len(kind))
    constraint_edits.keep(fields)
    carried.keep(model, fields)
    configured.keep(fields)
    return type(model)(**fields)


def hung_on(fields: Fields) -> list[int]:
    """The link that each body's joint hangs on; a body without links hangs where the bodies on it do."""
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
        if b not in carrier and hung[b] < 0:  # nothing with a link is beyond it
            hung[b] = carrier.get(p, hung[p] if p >= 0 else -1)
    return hung


def subtree(model: Model, link: str | int) -> Model:
    """The part that hangs on a link; see `Model.subtree`."""
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
    if np.array_equal(fields["link_X"][root], _HERE):
        return finished(model, part)
    part["Xtree"], part["link_X"] = np.array(part["Xtree"]), np.array(part["link_X"])
    for what, on in (("Xtree", fields["parent"][bodies]), ("link_X", fields["link_body"][np.flatnonzero(kept)])):
        for i in np.flatnonzero(on == stays).tolist():
            part[what][i] = row_of(transform_in(part[what][i]).after(X))
    part["link_X"][place] = _HERE
    return finished(model, part)


def parents_first(above: Sequence[int]) -> list[int]:
    """Places such that what each stands on comes before it, otherwise in their order."""
    on: list[list[int]] = [[] for _ in range(len(above) + 1)]
    for k, p in enumerate(above):
        on[p].append(k)  # the last list is that of -1
    ready = list(on[-1])
    order = []
    while ready:
        k = heapq.heappop(ready)
        order.append(k)
        for each in on[k]:
            heapq.heappush(ready, each)
    return order
