"""Locks joints: the body of a locked joint is merged into its parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.joints import KINDS, unit_quaternion
from robodyn.core.poses import row_of, transform_in
from robodyn.core.spatial import IDENTITY, Transform
from robodyn.internals import strict_types
from robodyn.internals.arguments import as_array, finite_number, finite_real, real_array, require_finite
from robodyn.internals.errors import ArgumentError, NumericalError
from robodyn.internals.messages import brief, quoted
from robodyn.io.editing import configured, constraint_edits
from robodyn.io.editing.parts import Fields, fields_of, finished, taken

if TYPE_CHECKING:
    from robodyn.core.model import Model

_ONE = ((), (1,))
"""Shapes of arrays that contain one number."""


def lock(model: Model, joints: Any) -> Model:
    """Locks joints of a model; see `Model.lock`."""
    locked = _with_followers(model, _locked_joints(model, joints))
    fields = fields_of(model)
    kept_body, X_merged = _merged(model, locked, fields)
    bodies = [b for b in range(model.n_bodies) if b not in locked]
    body = fields["link_body"]
    link_X = np.array(fields["link_X"])
    for k in np.flatnonzero(np.isin(body, list(locked))).tolist():
        link_X[k] = row_of(transform_in(link_X[k]).after(X_merged[int(body[k])]))
    fields["link_X"] = link_X
    fields["link_body"] = np.array([kept_body[b] if b >= 0 else -1 for b in body.tolist()], dtype=np.intp)
    constraint_edits.lock(fields, {model.joint_names[b]: at[0] for b, at in locked.items() if len(at) == 1})
    configured.lock(fields, model, locked)
    fields["parent"] = np.array([kept_body[p] if p >= 0 else -1 for p in model.parent.tolist()], dtype=np.intp)
    return finished(model, taken(fields, bodies, range(len(body))))


def _merged(model: Model, held: dict[int, tuple[float, ...]], fields: Fields) -> tuple[list[int], dict[int, Transform]]:
    """Merges bodies of locked joints into their parents, and moves child joints of merged bodies in `fields`.

    Returns:
        For each body the body that it becomes part of, -1 for the world; and for each merged body the transform from
        that body's frame to its own.
    """
    kept_body: list[int] = []
    X_merged: dict[int, Transform] = {}
    Xtree = np.array(fields["Xtree"])
    for b, p in enumerate(model.parent.tolist()):
        if p in X_merged:
            Xtree[b] = row_of(transform_in(Xtree[b]).after(X_merged[p]))
        if b not in held:
            kept_body.append(b)
            continue
        kept_body.append(kept_body[p] if p >= 0 else -1)
        joint_motion = KINDS[model.joint_kind[b]].transform(held[b], float(model.pitch[b]))
        X_joint = Transform(
            tuple(map(float, joint_motion.E)),
            (float(joint_motion.r[0]), float(joint_motion.r[1]), float(joint_motion.r[2])),
        )
        X_tree = transform_in(Xtree[b])
        X_merged[b] = X_tree if X_joint == IDENTITY else X_joint.after(X_tree)
    fields["Xtree"] = Xtree
    return kept_body, X_merged


def _locked_joints(model: Model, joints: Any) -> dict[int, tuple[float, ...]]:
    """Reads the user's locked joints: returns their coordinates by body."""
    if not strict_types.is_a(joints, dict):
        raise ArgumentError(f"joints: got {brief(joints)}; wanted a dictionary of joints to coordinates, or None")
    locked: dict[int, tuple[float, ...]] = {}
    for joint, value in dict.items(joints):
        b = model.joint_index(joint)
        name = quoted(model.joint_names[b])
        leader = int(model.mimics[b])
        if leader >= 0:
            raise ArgumentError(f"joints: {name} follows {quoted(model.joint_names[leader])}; lock that one")
        if b in locked:
            raise ArgumentError(f"joints: {name} is given twice; wanted each joint once")
        locked[b] = _coordinates(f"joints[{name}]", value, b, model)
    return locked


def _coordinates(what: str, given: Any, b: int, model: Model) -> tuple[float, ...]:
    kind = KINDS[model.joint_kind[b]]
    if given is None:
        return tuple(kind.neutral)
    if kind.nq == 1:
        if strict_types.is_a(given, np.ndarray) and (array := as_array(what, given, "wanted a number")).shape in _ONE:
            given = array.reshape(())[()]
        if strict_types.is_a(given, float, np.floating) and finite_real(given) is None:
            raise NumericalError(f"{what}: NaN or infinite value; wanted a finite number")
        return (finite_number(what, given),)
    q = real_array(what, given, (kind.nq,), np.float64)
    if q.ndim != 1:
        raise ArgumentError(f"{what}: got shape {q.shape}; wanted {kind.nq} numbers: {', '.join(kind.coordinates)}")
    require_finite(what, q, 1)
    if kind.quaternion is None:
        return tuple(float(x) for x in q)
    part = slice(kind.quaternion, kind.quaternion + 4)
    if not q[part].any():
        raise ArgumentError(f"{what}: got a quaternion of zero length; wanted four numbers xyzw of any other length")
    return (*q[: part.start].tolist(), *map(float, unit_quaternion(tuple(q[part]))))


def _with_followers(model: Model, held: dict[int, tuple[float, ...]]) -> dict[int, tuple[float, ...]]:
    """Adds joints that mimic locked joints, at the coordinates that follow from these."""
    result = dict(held)
    for b in np.flatnonzero(model.mimics >= 0).tolist():
        leader, c = int(model.mimics[b]), int(model.q_start[b])
        if leader in held:
            coordinate = float(model.q_multiplier[c]) * held[leader][0] + float(model.q_offset[c])
            result[b] = (finite_number(f"joints[{quoted(model.joint_names[leader])}]", coordinate),)
    return result
