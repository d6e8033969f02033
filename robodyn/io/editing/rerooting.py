"""Robots that are hung on another link."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robodyn.core.joints import CODE, KINDS
from robodyn.core.poses import row_of, transform_in
from robodyn.core.spatial import IDENTITY, ZERO3, Transform
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import quoted
from robodyn.io.editing import configured, constraint_edits
from robodyn.io.editing.parts import Fields, add_link, fields_of, finished, parents_first, taken, unused

if TYPE_CHECKING:
    from robodyn.core.model import Model

_FLIP = Transform((1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, -1.0), ZERO3)
"""Half a turn about x: a joint that is passed from the other side turns about -z, and keeps its coordinate so."""


def reroot(model: Model, link: str | int) -> Model:
    """The same robot, hung on another link; see `Model.reroot`.

    Joints keep their numbers until the end, and what they move changes: `moves` says which joint moves an old body, or
    the old world, in the new tree, and `frames` leads from a body's new frame to its old one.
    """
    root = model.link_index(link)
    fields = fields_of(model)
    base = _base(model, int(fields["link_body"][root]))
    path = []  # joints between the link and the old root, from the link on
    b = int(fields["link_body"][root])
    while b != base and b >= 0:
        path.append(b)
        b = int(model.parent[b])
    for joint in path:
        _require_same_from_behind(model, joint)
    here = path[0] if path else base
    moves, frames = {here: base}, {here: transform_in(fields["link_X"][root]).inverse()}
    parent = model.parent.copy()
    for joint in path:
        turn = _turn(model, joint)
        before = int(model.parent[joint])
        moves[before] = joint
        frames[before] = turn.after(transform_in(model.Xtree[joint])).inverse()
    turned = set(path)
    Xtree = np.array(fields["Xtree"])
    for j, p in enumerate(model.parent.tolist()):
        if j in turned:
            parent[j] = moves[j]
            Xtree[j] = row_of(_turn(model, j).after(frames[j]))
        elif j != base and p in frames:
            parent[j] = moves[p]
            Xtree[j] = row_of(transform_in(Xtree[j]).after(frames[p]))
    fields["parent"], fields["Xtree"] = parent, Xtree
    if base < 0:
        _move_world(model, fields, moves, frames)
    constraint_edits.turn_locks(fields, model, path)
    configured.turn(fields, model, path)
    if base >= 0:
        configured.move_base(fields, model, base, root)
    _hang_links(fields, root, base)
    _place_links(fields, root, moves, frames)
    _name_bodies(model, fields, moves)
    return finished(model, taken(fields, parents_first(parent.tolist()), range(len(fields["link_names"]))))


def _move_world(model: Model, fields: Fields, moves: dict[int, int], frames: dict[int, Transform]) -> None:
    """Let constraints to the world be constraints to a link that was fixed to it, or to the world where it still is."""
    fixed = np.flatnonzero(fields["link_body"] < 0).tolist()
    if moves[-1] < 0:
        constraint_edits.move_world(fields, None, frames[-1])
    elif constraint_edits.holds_world(fields):
        k = fixed[0] if fixed else _link_of_the_world(model, fields)
        constraint_edits.move_world(fields, fields["link_names"][k], transform_in(fields["link_X"][k]).inverse())


def _link_of_the_world(model: Model, fields: Fields) -> int:
    """A new link, fixed to the world, that carries what hung on none."""
    hung = np.flatnonzero(fields["link_parent"] < 0).tolist()
    world = add_link(fields, "world", -1, IDENTITY, "")
    names = list(fields["link_joints"])
    for k in hung:
        fields["link_parent"][k] = world
        names[k] = model.joint_names[int(fields["link_body"][k])]
    fields["link_joints"] = tuple(names)
    return world


def _base(model: Model, body: int) -> int:
    """The body that floats in the world and carries all that moves, the given one too; -1, the world, where there is
    none."""
    children = np.flatnonzero(model.parent < 0)
    floats = children.size == 1 and model.joint_kind[children[0]] == CODE["floating"]
    return int(children[0]) if floats and body >= 0 else -1


def _turn(model: Model, joint: int) -> Transform:
    return _FLIP if KINDS[model.joint_kind[joint]].nv == 1 else IDENTITY


def _require_same_from_behind(model: Model, joint: int) -> None:
    """Raise where armature, damping or friction of a joint is not such a thing once it is passed from the other side.

    Its velocity there is -R v for a spherical joint, whose size is the same, and has other components for others.
    """
    kind = KINDS[model.joint_kind[joint]]
    if kind.nv == 1:
        return
    v = int(model.v_start[joint])
    for what in ("armature", "damping", "friction"):
        values = getattr(model, f"tree_{what}")[v : v + kind.nv]
        even = kind.name == "spherical" and what != "friction" and bool((values == values[0]).all())
        if values.any() and not even:
            raise ArgumentError(
                f"link: the way to it passes the {kind.name} joint {quoted(model.joint_names[joint])}, whose {what} "
                "would depend on its position from the other side; wanted none there, or another link"
            )


def _hang_links(fields: Fields, root: int, base: int) -> None:
    """Let links on the way to the root hang the other way round. Where a base floats, what it hangs on stays."""
    above, names, body = fields["link_parent"].copy(), list(fields["link_joints"]), fields["link_body"].tolist()
    k, before, name = root, -1, ""
    while k >= 0 and (base < 0 or body[k] >= 0):
        after = int(above[k])
        above[k], before = before, k
        names[k], name = name, names[k]
        k = after
    above[root], names[root] = k, name if k >= 0 else ""
    fields["link_parent"], fields["link_joints"] = above, tuple(names)


def _place_links(fields: Fields, root: int, moves: dict[int, int], frames: dict[int, Transform]) -> None:
    """Put links into the new frames of their bodies."""
    body, link_X = fields["link_body"].copy(), np.array(fields["link_X"])
    for k, b in enumerate(body.tolist()):
        if b in moves:
            body[k] = moves[b]
            link_X[k] = row_of(transform_in(link_X[k]).after(frames[b]))
    link_X[root] = row_of(IDENTITY)
    fields["link_body"], fields["link_X"] = body, link_X


def _name_bodies(model: Model, fields: Fields, moves: dict[int, int]) -> None:
    """Name bodies after the link that their joint now carries, or as before."""
    changed = {j: b for b, j in moves.items() if j >= 0}
    taken = {name for b, name in enumerate(model.body_names) if b not in changed}
    carried, body = {}, fields["link_body"].tolist()
    for k, above in enumerate(fields["link_parent"].tolist()):
        if above < 0 or body[above] != body[k]:
            carried[body[k]] = fields["link_names"][k]
    names = list(model.body_names)
    for j, b in changed.items():
        names[j] = unused(carried.get(j, model.body_names[b] if b >= 0 else "world"), taken)
    fields["body_names"] = tuple(names)
