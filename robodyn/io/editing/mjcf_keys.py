"""Writes named configurations of a model as keyframes of MJCF."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from robodyn.core.joints import KINDS
from robodyn.io.editing.configured import of_tree
from robodyn.io.editing.writer_common import name, values

if TYPE_CHECKING:
    from robodyn.core.model import Model


def keyframes(model: Model, joints: Sequence[str]) -> Iterator[str]:
    """The lines of a <keyframe> element; none if the model has no configurations.

    `joints`: written joints in MuJoCo's order, including joints that mimic others.
    """
    if not model.configurations:
        return
    indices = []
    for b in map(model.joint_index, joints):
        kind, q = KINDS[model.joint_kind[b]], int(model.q_start[b])
        coordinates = list(range(q, q + kind.nq))
        if kind.quaternion is not None:  # MuJoCo's quaternions begin with w
            k = kind.quaternion
            coordinates[k : k + 4] = coordinates[k + 3], *coordinates[k : k + 3]
        indices += coordinates
    rows = of_tree(model)[np.array(indices, dtype=np.intp)].T
    yield "  <keyframe>"
    for key, qpos in zip(model.configurations, rows.tolist(), strict=True):
        yield f"    <key name={name('configuration', key)} qpos={values(qpos)}/>"
    yield "  </keyframe>"
