"""Converts a model back to links and joints, including fixed joints, for writers and graphs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.description import Joint, Limits, Link, Mimic, Pose
from robodyn.core.findings import Notes
from robodyn.core.joints import CODE, KINDS
from robodyn.core.poses import transform_in
from robodyn.core.spatial import IDENTITY, Transform, transpose
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import quoted
from robodyn.internals.records import dataclass
from robodyn.io.builders.axes import turn_to_z
from robodyn.io.editing.inertias import about_centre
from robodyn.io.editing.parts import Fields, add_link, fields_of, hung_on, unused

if TYPE_CHECKING:
    from robodyn.core.model import Model

_COEFFICIENTS = ("armature", "damping", "friction")


@dataclass(frozen=True)
class Described:
    """The links and joints of a model.

    `links`: in the model's order, then added links; `joints`: moving joints in the model's order, then fixed joints;
    `root`: the root link; `floating`: body of the floating joint if the root link is a floating base, else None;
    `bodies`: body of each link, -1 for the world.
    """

    links: tuple[Link, ...]
    joints: tuple[Joint, ...]
    root: str
    floating: int | None
    bodies: tuple[int, ...]


def describe(model: Model, notes: Notes) -> Described:
    """The links and joints of a model. Necessary changes are reported in `notes`.

    Raises:
        ArgumentError: duplicate names; armature, damping or friction that differ between the coordinates of a joint;
            or a link without mass whose first moment is not zero.
    """
    for what in ("joint", "link"):
        twice = [name for name, n in Counter(getattr(model, f"{what}_names")).items() if n > 1]
        if twice:
            raise ArgumentError(f"{what} {quoted(twice[0])} occurs twice; wanted names that are unique to be written")
    fields = fields_of(model)
    floating = _floating(model, fields)
    _complete(model, fields, floating, notes)
    above, body = fields["link_parent"].tolist(), fields["link_body"].tolist()
    first_links = {body[k]: k for k, p in enumerate(above) if p < 0 or body[p] != body[k]}
    moving = [b for b in range(model.n_bodies) if b != floating]
    frames = [transform_in(row) for row in fields["link_X"]]
    names, joints = fields["link_names"], []
    for b in moving:
        k = first_links[b]
        X = frames[k].after(transform_in(model.Xtree[b])).after(frames[above[k]].inverse())
        joints.append(_moving_joint(model, b, names[above[k]], names[k], pose_of(X), frames[k], notes))
    taken = set(model.joint_names)
    for k, p in enumerate(above):
        if p >= 0 and body[p] == body[k]:
            name = unused(fields["link_joints"][k], taken)
            joints.append(Joint(name, "fixed", names[p], names[k], pose_of(frames[k].after(frames[p].inverse()))))
    links = []
    for name, ten in zip(names, fields["link_inertia"], strict=True):
        try:
            links.append(Link(name, about_centre(ten)))
        except ArgumentError as error:
            raise ArgumentError(f"link {quoted(name)}: {error}") from None
    return Described(tuple(links), tuple(joints), names[above.index(-1)], floating, tuple(body))


def rotation_in(X: Transform) -> tuple[float, ...]:
    """The rotation of a pose: it converts coordinates in the frame at the pose to coordinates in the reference
    frame."""
    return tuple(entry + 0.0 for entry in transpose(X.E))


def pose_of(X: Transform) -> Pose:
    """The pose of a transform's target frame in its source frame."""
    x, y, z = X.r
    return Pose((x + 0.0, y + 0.0, z + 0.0), rotation_in(X))  # type: ignore[arg-type]


def _floating(model: Model, fields: Fields) -> int | None:
    """The body of a floating base that loading with base="floating" would create, or None.

    It is the only child of the world, at the origin, without coefficients and limits, and no link is fixed to the
    world.
    """
    children = np.flatnonzero(model.parent < 0)
    if children.size != 1 or (fields["link_body"] < 0).any():
        return None
    b = int(children[0])
    v = slice(int(model.v_start[b]), int(model.v_start[b]) + 6)
    has_values = [getattr(model, f"tree_{what}")[v].any() for what in _COEFFICIENTS]
    has_values += [np.isfinite(getattr(model, f"tree_{what}")[v]).any() for what in ("effort", "velocity")]
    at_origin = transform_in(model.Xtree[b]) == IDENTITY
    return b if model.joint_kind[b] == CODE["floating"] and at_origin and not any(has_values) else None


def _complete(model: Model, fields: Fields, floating: int | None, notes: Notes) -> None:
    """Add links until every body, and the world, has a link whose frame is at the body's joint, as files require."""
    parent_links = hung_on(fields)
    body = fields["link_body"].tolist()
    carriers = {body[k]: k for k, p in enumerate(fields["link_parent"].tolist()) if p < 0 or body[p] != body[k]}
    wanted = [*([-1] if floating is None else []), *range(model.n_bodies)]
    taken = {*model.joint_names, *fields["link_joints"]}
    parents = {}
    for b in wanted:
        k = carriers.get(b)
        if k is not None and _fits(model, b, transform_in(fields["link_X"][k])):
            continue
        name = "world" if b < 0 else model.body_names[b] if k is None else f"{model.body_names[b]}/joint"
        added = add_link(fields, name, b, IDENTITY, "" if b < 0 else model.joint_names[b])
        notes.gather("written-otherwise", f"link {quoted(fields['link_names'][added])}", "added to have a frame there")
        if k is not None:
            names = list(fields["link_joints"])
            names[k] = unused(f"{fields['link_names'][k]}_fixed", taken)
            fields["link_joints"] = tuple(names)
            fields["link_parent"][k] = added
        carriers[b] = added
        parents[b] = added
    for b in range(model.n_bodies):
        parent_body = int(model.parent[b])
        above = parent_links[b]
        if b == floating:
            continue
        # If bodies in between had no links, the parent was a link of an earlier body. It is now the added link.
        known = above >= 0 and fields["link_body"][above] == parent_body
        fields["link_parent"][carriers[b]] = above if known else carriers[parent_body]


def _fits(model: Model, b: int, X: Transform) -> bool:
    """True if a link with this frame can be the child link of the body's joint in a file."""
    if b < 0:
        return X == IDENTITY
    kind = KINDS[model.joint_kind[b]]
    if X.r != (0.0, 0.0, 0.0):
        return False
    if not kind.axial:
        return X.E == IDENTITY.E
    if kind.name != "planar":
        return True
    return bool(np.abs(np.array(transpose(turn_to_z(_axis(X)))) - X.E).max() < 1e-15)


def _axis(X: Transform) -> tuple[float, float, float]:
    """The z axis of a body in the axes of a link: a unit vector without negative zeros."""
    x, y, z = (entry + 0.0 for entry in X.E[2::3])
    return x, y, z


def _moving_joint(model: Model, b: int, parent: str, child: str, origin: Pose, frame: Transform, notes: Notes) -> Joint:
    kind, name = KINDS[model.joint_kind[b]], model.joint_names[b]
    v = slice(int(model.v_start[b]), int(model.v_start[b]) + kind.nv)
    coefficients: dict[str, Any] = {}
    for what in _COEFFICIENTS:
        coefficient_values = getattr(model, f"tree_{what}")[v]
        if (coefficient_values != coefficient_values[0]).any():
            raise ArgumentError(
                f"joint {quoted(name)}: its {what} differs among its coordinates; files hold one number for a joint"
            )
        coefficients[what] = float(coefficient_values[0])
    limits = _limits(model, b, notes)
    type_ = kind.name
    if kind.name == "revolute" and limits.lower is None and limits.upper is None:
        type_ = "continuous"
    leader, c = int(model.mimics[b]), int(model.q_start[b])
    mimic = None
    if leader >= 0:
        mimic = Mimic(model.joint_names[leader], float(model.q_multiplier[c]), float(model.q_offset[c]))
    axis = _axis(frame) if kind.axial else (1.0, 0.0, 0.0)
    return Joint(
        name,
        type_,
        parent,
        child,
        origin,
        axis,
        pitch=float(model.pitch[b]) if kind.pitched else 0.0,
        limits=limits,
        mimic=mimic,
        **coefficients,
    )


def _limits(model: Model, b: int, notes: Notes) -> Limits:
    """The limits of a joint, None for no limit. Joints with several coordinates only have uniform effort and velocity
    limits; others are reported."""
    kind, subject = KINDS[model.joint_kind[b]], f"joint {quoted(model.joint_names[b])}"
    q, v = int(model.q_start[b]), int(model.v_start[b])
    limits: list[float | None] = []
    for what, start, n in (
        ("lower", q, kind.nq),
        ("upper", q, kind.nq),
        ("effort", v, kind.nv),
        ("velocity", v, kind.nv),
    ):
        tree_values = getattr(model, f"tree_{what}")[start : start + n]
        if n > 1 and what in ("lower", "upper") and np.isfinite(tree_values).any():
            notes.gather("not-written", subject, "position limits of a joint of several coordinates")
        if n > 1 and (tree_values != tree_values[0]).any() and what in ("effort", "velocity"):
            notes.gather("not-written", subject, f"{what} limits that differ among its coordinates")
        first = float(tree_values[0])
        keep = np.isfinite(first) and (
            n == 1 or (what in ("effort", "velocity") and bool((tree_values == first).all()))
        )
        limits.append(first if keep else None)
    return Limits(*limits)
