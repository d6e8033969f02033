"""Changes the root link of robots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robodyn.core.constraints.refusals import require_no_contacts
from robodyn.core.joints import CODE, KINDS
from robodyn.core.poses import row_of, transform_in
from robodyn.core.spatial import IDENTITY, ZERO3, Transform
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import quoted
from robodyn.io.editing import configured, constraint_edits
from robodyn.io.editing.carried import AFTERWARDS
from robodyn.io.editing.parts import Fields, add_link, fields_of, finished, parents_first, taken, unused

if TYPE_CHECKING:
    from robodyn.core.model import Model

_FLIP = Transform((1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, -1.0), ZERO3)
"""Rotation by pi about x. It turns the z axis of a reversed joint to -z, so that its coordinate keeps its sign."""


def reroot(model: Model, link: str | int) -> Model:
    """Makes another link the root of a robot; see `Model.reroot`.

    Joints keep their indices until the end, but the bodies that they move change. `moves` maps an old body, or the old
    world (-1), to the joint that moves it in the new tree. `frames` has the transform from a body's new frame to its
    old one.
    """
    require_no_contacts(model, "reroot", AFTERWARDS)
    root = model.link_index(link)
    fields = fields_of(model)
    base = _base(model, int(fields["link_body"][root]))
    path = []  # joints from the link to the old root
    b = int(fields["link_body"][root])
    while b != base and b >= 0:
        path.append(b)
        b = int(model.parent[b])
    for joint in path:
        _require_reversible(model, joint)
    new_root_joint = path[0] if path else base
    moves, frames = {new_root_joint: base}, {new_root_joint: transform_in(fields["link_X"][root]).inverse()}
    parent = model.parent.copy()
    for joint in path:
        flip = _flip_of(model, joint)
        parent_body = int(model.parent[joint])
        moves[parent_body] = joint
        frames[parent_body] = flip.after(transform_in(model.Xtree[joint])).inverse()
    reversed_joints = set(path)
    Xtree = np.array(fields["Xtree"])
    for j, p in enumerate(model.parent.tolist()):
        if j in reversed_joints:
            parent[j] = moves[j]
            Xtree[j] = row_of(_flip_of(model, j).after(frames[j]))
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
    _reverse_link_parents(fields, root, base)
    _place_links(fields, root, moves, frames)
    _name_bodies(model, fields, moves)
    return finished(model, taken(fields, parents_first(parent.tolist()), range(len(fields["link_names"]))))


def _move_world(model: Model, fields: Fields, moves: dict[int, int], frames: dict[int, Transform]) -> None:
    """Redirects constraints to the old world: to a link fixed to it, or to the new world if the new root is fixed to
    it."""
    fixed = np.flatnonzero(fields["link_body"] < 0).tolist()
    if moves[-1] < 0:
        constraint_edits.move_world(fields, None, frames[-1])
    elif constraint_edits.holds_world(fields):
        k = fixed[0] if fixed else _link_of_the_world(model, fields)
        constraint_edits.move_world(fields, fields["link_names"][k], transform_in(fields["link_X"][k]).inverse())


def _link_of_the_world(model: Model, fields: Fields) -> int:
    """Adds a link that is fixed to the old world, and makes it the parent of all root links."""
    roots = np.flatnonzero(fields["link_parent"] < 0).tolist()
    world = add_link(fields, "world", -1, IDENTITY, "")
    names = list(fields["link_joints"])
    for k in roots:
        fields["link_parent"][k] = world
        names[k] = model.joint_names[int(fields["link_body"][k])]
    fields["link_joints"] = tuple(names)
    return world


def _base(model: Model, body: int) -> int:
    """The body of a floating base that carries all other bodies; -1, the world, if there is none."""
    children = np.flatnonzero(model.parent < 0)
    floats = children.size == 1 and model.joint_kind[children[0]] == CODE["floating"]
    return int(children[0]) if floats and body >= 0 else -1


def _flip_of(model: Model, joint: int) -> Transform:
    return _FLIP if KINDS[model.joint_kind[joint]].nv == 1 else IDENTITY


def _require_reversible(model: Model, joint: int) -> None:
    """Checks that armature, damping and friction of a joint stay constant if the joint is reversed.

    The velocity v of a spherical joint becomes -R v, which has the same norm, so equal armatures or dampings of its
    axes are unchanged. Velocities of other joints with several degrees of freedom have different components.

    Raises:
        ArgumentError: a coefficient would depend on the joint's position.
    """
    kind = KINDS[model.joint_kind[joint]]
    if kind.nv == 1:
        return
    v = int(model.v_start[joint])
    for what in ("armature", "damping", "friction"):
        values = getattr(model, f"tree_{what}")[v : v + kind.nv]
        isotropic = kind.name == "spherical" and what != "friction" and bool((values == values[0]).all())
        if values.any() and not isotropic:
            raise ArgumentError(
                f"link: the way to it passes the {kind.name} joint {quoted(model.joint_names[joint])}, whose {what} "
                "would depend on its position from the other side; wanted none there, or another link"
            )


def _reverse_link_parents(fields: Fields, root: int, base: int) -> None:
    """Reverses the parents of links from the new root to the old one. The parent of a floating base does not change."""
    above, names, body = fields["link_parent"].copy(), list(fields["link_joints"]), fields["link_body"].tolist()
    k, previous, previous_name = root, -1, ""
    while k >= 0 and (base < 0 or body[k] >= 0):
        next_link = int(above[k])
        above[k], previous = previous, k
        names[k], previous_name = previous_name, names[k]
        k = next_link
    above[root], names[root] = k, previous_name if k >= 0 else ""
    fields["link_parent"], fields["link_joints"] = above, tuple(names)


def _place_links(fields: Fields, root: int, moves: dict[int, int], frames: dict[int, Transform]) -> None:
    """Transforms the poses of links to the new frames of their bodies."""
    body, link_X = fields["link_body"].copy(), np.array(fields["link_X"])
    for k, b in enumerate(body.tolist()):
        if b in moves:
            body[k] = moves[b]
            link_X[k] = row_of(transform_in(link_X[k]).after(frames[b]))
    link_X[root] = row_of(IDENTITY)
    fields["link_body"], fields["link_X"] = body, link_X


def _name_bodies(model: Model, fields: Fields, moves: dict[int, int]) -> None:
    """Names bodies after the first link that their joint moves now; other bodies keep their names."""
    changed = {j: b for b, j in moves.items() if j >= 0}
    taken = {name for b, name in enumerate(model.body_names) if b not in changed}
    first_links, body = {}, fields["link_body"].tolist()
    for k, above in enumerate(fields["link_parent"].tolist()):
        if above < 0 or body[above] != body[k]:
            first_links[body[k]] = fields["link_names"][k]
    names = list(model.body_names)
    for j, b in changed.items():
        names[j] = unused(first_links.get(j, model.body_names[b] if b >= 0 else "world"), taken)
    fields["body_names"] = tuple(names)
