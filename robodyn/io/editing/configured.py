"""Named configurations of edited models.

During an edit they are a field `tree_configurations` (nq_tree, number of configurations): the coordinates of all joints
of the tree, including joints that mimic others. Edits select its rows with the joints.
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
"""Largest difference in m or rad of two coordinates that count as equal."""


def of_tree(model: Model, unit: bool = False) -> Array:
    """(nq_tree, number of configurations) coordinates of all joints, one column per configuration.

    `unit`: True to scale quaternions to unit length.
    """
    rows = model.configurations.rows.reshape(len(model.configurations), model.nq)
    return model.tree_coordinates(model.unit_coordinates(rows) if unit else rows).T


def keep(fields: Fields) -> None:
    """Converts `tree_configurations` back to configurations, without the coordinates of mimicking joints."""
    free = np.repeat(fields["mimics"] < 0, [KINDS[kind].nq for kind in fields["joint_kind"].tolist()])
    columns = fields.pop("tree_configurations")
    fields["configurations"] = Configurations(fields["configurations"], columns[free].T)


def lock(fields: Fields, model: Model, held: Mapping[int, tuple[float, ...]]) -> None:
    """Reports configurations in which a locked joint has another coordinate. `held`: locked coordinates by body."""
    notes = Notes()
    for b, at in held.items():
        if model.mimics[b] >= 0:
            continue
        kind, q = KINDS[model.joint_kind[b]], int(model.q_start[b])
        for name, row in zip(fields["configurations"], fields["tree_configurations"][q : q + kind.nq].T, strict=True):
            coordinates = tuple(row.tolist())
            if kind.quaternion is not None:  # its length is not 0, but may differ from 1
                k = kind.quaternion
                coordinates = (*coordinates[:k], *unit_quaternion(coordinates[k : k + 4]), *coordinates[k + 4 :])
            if not np.abs(np.array(kind.difference(coordinates, tuple(at)))).max() <= _CLOSE:
                message = f"it has joint {quoted(model.joint_names[b])} elsewhere than where it is locked"
                notes.gather("configuration-changed", _element(name), message)
    constraint_edits.note(fields, notes)


def join(own: Fields, other: Fields, model: Model, attached: Model, prefix: str) -> None:
    """Gives the fields of two robots the same configurations, before they are joined.

    Names of the attached robot's configurations get the prefix. A robot that lacks a configuration is neutral in it.
    """
    notes = Notes()
    prefixed_names = [f"{prefix}{name}" for name in other["configurations"]]
    names = tuple(dict.fromkeys((*own["configurations"], *prefixed_names)))
    if not names:
        return
    for fields, robot, own_names in ((own, model, list(own["configurations"])), (other, attached, prefixed_names)):
        neutral = robot.tree_coordinates(robot.neutral())
        columns = dict(zip(own_names, fields["tree_configurations"].T, strict=True))
        fields["tree_configurations"] = (
            np.array([columns.get(name, neutral) for name in names]).reshape(len(names), -1).T
        )
        fields["configurations"] = names
        for name in names if robot.nq else ():
            if name not in columns:
                message = f"it says nothing of the joints of {quoted(robot.name)}, which are at neutral in it"
                notes.gather("configuration-changed", _element(name), message)
    constraint_edits.note(other, notes)


def turn(fields: Fields, model: Model, joints: Iterable[int]) -> None:
    """Converts the coordinates of reversed joints with several coordinates."""
    columns = fields["tree_configurations"] = np.array(fields["tree_configurations"])
    for b in joints:
        kind, q = KINDS[model.joint_kind[b]], int(model.q_start[b])
        if kind.nv > 1:
            for k, values in enumerate(columns[q : q + kind.nq].T.tolist()):
                columns[q : q + kind.nq, k] = constraint_edits.from_behind(kind, values)


def move_base(fields: Fields, model: Model, base: int, root: int) -> None:
    """Sets the coordinates of a floating base such that they are the pose of the new root link.

    `base`: body of the floating joint; `root`: the new root link.
    """
    columns = of_tree(model, unit=True)
    for k, q in enumerate(columns.T.tolist()):
        X, b = transform_in(model.link_X[root]), int(model.link_body[root])
        while b >= 0:
            kind, start = KINDS[model.joint_kind[b]], int(model.q_start[b])
            joint_motion = kind.transform(tuple(q[start : start + kind.nq]), float(model.pitch[b]))
            X = X.after(transform_in([*map(float, joint_motion.E), *map(float, joint_motion.r)]))
            if b == base:
                break
            X, b = X.after(transform_in(model.Xtree[b])), int(model.parent[b])
        w, x, y, z = quaternion_of(transpose(X.E))
        start = int(model.q_start[base])
        fields["tree_configurations"][start : start + 7, k] = (*X.r, x, y, z, w)


def _element(name: str) -> str:
    return f"configuration {quoted(name)}"
