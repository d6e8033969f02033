"""Named configurations of models that are edited: their coordinates go with the joints.

Until an edit is done they are a field `tree_configurations` (nq_tree, number of them): the coordinates of all joints of
the tree, followers included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from robodyn.core.findings import Notes
from robodyn.core.joints import KINDS, unit_quaternion
from robodyn.core.model_fields import Configurations
from robodyn.core.poses import transform_in
from robodyn.core.spatial import transpose
from robodyn.internals.arguments import Array
from robodyn.internals.messages import quoted
from robodyn.io.editing import constraint_edits
from robodyn.io.editing.writer_common import quaternion_of

if TYPE_CHECKING:
    from robodyn.core.model import Model
    from robodyn.io.editing.parts import Fields


_CLOSE = 1e-9
"""Joints that are no further apart, in m or rad, stand at one place."""


def of_tree(model: Model, unit: bool = False) -> Array:
    """(nq_tree, number of configurations) coordinates of all joints, a column for each.

    `unit`: whether quaternions are scaled to unit length.
    """
    rows = model.configurations.rows.reshape(len(model.configurations), model.nq)
    return model.tree_coordinates(model.unit_coordinates(rows) if unit else rows).T


def keep(fields: Fields) -> None:
    """Make configurations of the coordinates of joints that follow none."""
    free = np.repeat(fields["mimics"] < 0, [KINDS[kind].nq for kind in fields["joint_kind"].tolist()])
    columns = fields.pop("tree_configurations")
    fields["configurations"] = Configurations(fields["configurations"], columns[free].T)


def lock(fields: Fields, model: Model, held: Mapping[int, tuple[float, ...]]) -> None:
    """Say which configurations have locked joints elsewhere than they are locked."""
    notes = Notes()
    for b, at in held.items():
        if model.mimics[b] >= 0:
            continue
        kind, q = KINDS[model.joint_kind[b]], int(model.q_start[b])
        for name, row in zip(fields["configurations"], fields["tree_configurations"][q : q + kind.nq].T, strict=True):
            there = tuple(row.tolist())
            if kind.quaternion is not None:  # of any length but 0
                k = kind.quaternion
                there = (*there[:k], *unit_quaternion(there[k : k + 4]), *there[k + 4 :])
            if not np.abs(np.array(kind.difference(there, tuple(at)))).max() <= _CLOSE:
                message = f"it has joint {quoted(model.joint_names[b])} elsewhere than where it is locked"
                notes.gather("configuration-changed", _element(name), message)
    constraint_edits.note(fields, notes)


def join(own: Fields, other: Fields, model: Model, attached: Model, prefix: str) -> None:
    """Give the fields of two robots the same configurations. The other's get the prefix; a robot of which one says
    nothing is at neutral in it."""
    notes = Notes()
    theirs = [f"{prefix}{name}" for name in other["configurations"]]
    names = tuple(dict.fromkeys((*own["configurations"], *theirs)))
    if not names:
        return
    for fields, robot, said in ((own, model, list(own["configurations"])), (other, attached, theirs)):
        neutral = robot.tree_coordinates(robot.neutral())
        given = dict(zip(said, fields["tree_configurations"].T, strict=True))
        fields["tree_configurations"] = np.array([given.get(name, neutral) for name in names]).reshape(len(names), -1).T
        fields["configurations"] = names
        for name in names if robot.nq else ():
            if name not in given:
                message = f"it says nothing of the joints of {quoted(robot.name)}, which are at neutral in it"
                notes.gather("configuration-changed", _element(name), message)
    constraint_edits.note(other, notes)


def turn(fields: Fields, model: Model, joints: Iterable[int]) -> None:
    """Give joints of several coordinates, which are passed from the other side, those that they have there."""
    columns = fields["tree_configurations"] = np.array(fields["tree_configurations"])
    for b in joints:
        kind, q = KINDS[model.joint_kind[b]], int(model.q_start[b])
        if kind.nv > 1:
            for k, values in enumerate(columns[q : q + kind.nq].T.tolist()):
                columns[q : q + kind.nq, k] = constraint_edits.from_behind(kind, values)


def move_base(fields: Fields, model: Model, base: int, root: int) -> None:
    """Let the joint of a floating base say where another link is, the root, that it carries now."""
    columns = of_tree(model, unit=True)
    for k, q in enumerate(columns.T.tolist()):
        X, b = transform_in(model.link_X[root]), int(model.link_body[root])
        while b >= 0:
            kind, start = KINDS[model.joint_kind[b]], int(model.q_start[b])
            across = kind.transform(tuple(q[start : start + kind.nq]), float(model.pitch[b]))
            X = X.after(transform_in([*map(float, across.E), *map(float, across.r)]))
            if b == base:
                break
            X, b = X.after(transform_in(model.Xtree[b])), int(model.parent[b])
        w, x, y, z = quaternion_of(transpose(X.E))
        start = int(model.q_start[base])
        fields["tree_configurations"][start : start + 7, k] = (*X.r, x, y, z, w)


def _element(name: str) -> str:
    return f"configuration {quoted(name)}"
