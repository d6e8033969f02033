"""Joints that are locked: what they carry is merged into the body before them."""

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
"""Shapes of arrays that are one number."""


def lock(model: Model, joints: Any) -> Model:
    """The model with joints locked; see `Model.lock`."""
    held = _with_followers(model, _held(model, joints))
    fields = fields_of(model)
    carrier, moved = _merged(model, held, fields)
    bodies = [b for b in range(model.n_bodies) if b not in held]
    body = fields["link_body"]
    link_X = np.array(fields["link_X"])
    for k in np.flatnonzero(np.isin(body, list(held))).tolist():
        link_X[k] = row_of(transform_in(link_X[k]).after(moved[int(body[k])]))
    fields["link_X"] = link_X
    fields["link_body"] = np.array([carrier[b] if b >= 0 else -1 for b in body.tolist()], dtype=np.intp)
    constraint_edits.lock(fields, {model.joint_names[b]: at[0] for b, at in held.items() if len(at) == 1})
    configured.lock(fields, model, held)
    fields["parent"] = np.array([carrier[p] if p >= 0 else -1 for p in model.parent.tolist()], dtype=np.intp)
    return finished(model, taken(fields, bodies, range(len(body))))


def _merged(model: Model, held: dict[int, tuple[float, ...]], fields: Fields) -> tuple[list[int], dict[int, Transform]]:
    """The body, or the world, that each body becomes part of, and the transforms from its frame to those of bodies that
    are merged. Joints on these get new places in `fields`."""
    carrier: list[int] = []
    moved: dict[int, Transform] = {}
    Xtree = np.array(fields["Xtree"])
    for b, p in enumerate(model.parent.tolist()):
        if p in moved:
            Xtree[b] = row_of(transform_in(Xtree[b]).after(moved[p]))
        if b not in held:
            carrier.append(b)
            continue
        carrier.append(carrier[p] if p >= 0 else -1)
        across = KINDS[model.joint_kind[b]].transform(held[b], float(model.pitch[b]))
        turned = Transform(tuple(map(float, across.E)), (float(across.r[0]), float(across.r[1]), float(across.r[2])))
        at = transform_in(Xtree[b])
        moved[b] = at if turned == IDENTITY else turned.after(at)
    fields["Xtree"] = Xtree
    return carrier, moved


def _held(model: Model, joints: Any) -> dict[int, tuple[float, ...]]:
    """Bodies whose joints a user locks, and the coordinates they are locked at."""
    if not strict_types.is_a(joints, dict):
        raise ArgumentError(f"joints: got {brief(joints)}; wanted a dictionary of joints to coordinates, or None")
    held: dict[int, tuple[float, ...]] = {}
    for joint, at in dict.items(joints):
        b = model.joint_index(joint)
        name = quoted(model.joint_names[b])
        leader = int(model.mimics[b])
        if leader >= 0:
            raise ArgumentError(f"joints: {name} follows {quoted(model.joint_names[leader])}; lock that one")
        if b in held:
            raise ArgumentError(f"joints: {name} is given twice; wanted each joint once")
        held[b] = _coordinates(f"joints[{name}]", at, b, model)
    return held


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
    at = slice(kind.quaternion, kind.quaternion + 4)
    if not q[at].any():
        raise ArgumentError(f"{what}: got a quaternion of zero length; wanted four numbers xyzw of any other length")
    return (*q[: at.start].tolist(), *map(float, unit_quaternion(tuple(q[at]))))


def _with_followers(model: Model, held: dict[int, tuple[float, ...]]) -> dict[int, tuple[float, ...]]:
    """Locked joints, and those that follow them, where these are put."""
    found = dict(held)
    for b in np.flatnonzero(model.mimics >= 0).tolist():
        leader, c = int(model.mimics[b]), int(model.q_start[b])
        if leader in held:
            at = float(model.q_multiplier[c]) * held[leader][0] + float(model.q_offset[c])
            found[b] = (finite_number(f"joints[{quoted(model.joint_names[leader])}]", at),)
    return found
