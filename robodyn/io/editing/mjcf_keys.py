"""Named configurations of a model as keyframes of MJCF."""

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
    """The lines of an element <keyframe>; none where the model has no configurations.

    `joints`: those that are written, in MuJoCo's order, those that follow others among them.
    """
    if not model.configurations:
        return
    places = []
    for b in map(model.joint_index, joints):
        kind, q = KINDS[model.joint_kind[b]], int(model.q_start[b])
        own = list(range(q, q + kind.nq))
        if kind.quaternion is not None:  # MuJoCo's begin with w
            k = kind.quaternion
            own[k : k + 4] = own[k + 3], *own[k : k + 3]
        places += own
    rows = of_tree(model)[np.array(places, dtype=np.intp)].T
    yield "  <keyframe>"
    for called, qpos in zip(model.configurations, rows.tolist(), strict=True):
        yield f"    <key name={name('configuration', called)} qpos={values(qpos)}/>"
    yield "  </keyframe>"
