"""The size of a robot."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from robodyn.core.model import Model


def reach(model: Model, point: Sequence[float] = (0.0, 0.0, 0.0)) -> float:
    """Longest distance (m) along the tree from the world to a link's origin, plus that from a link's origin to `point`.

    It is 1 where the sum is zero.
    """
    return _longest(model) + float(np.linalg.norm(point)) or 1.0


@lru_cache(maxsize=64)
def _longest(model: Model) -> float:
    lengths = np.zeros(model.n_bodies + 1)  # the last one is the world's
    for body, (parent, X) in enumerate(zip(model.parent.tolist(), model.Xtree, strict=True)):
        lengths[body] = lengths[parent] + np.linalg.norm(X[9:])
    return float((lengths[model.link_body] + np.linalg.norm(model.link_X[:, 9:], axis=1)).max(initial=0.0))
