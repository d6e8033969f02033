"""What inverse kinematics reports about its answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.internals.array_library import Library
from robodyn.internals.records import dataclass
from robodyn.solve.inverse_kinematics.aims import MEASURES
from robodyn.solve.inverse_kinematics.clearance import Clearance
from robodyn.solve.inverse_kinematics.search import Found


@dataclass(frozen=True, eq=False)
class IKReport:
    """Result of each target, in arrays with the leading axes of the targets.

    `converged`: True if all tasks of the highest priority and constraints are within the tolerance, and links keep the
    clearance; `residual` (..., n, 2): error of each task but postures and manipulability, m and rad;
    `constraint_residual` (..., 2): error of all constraints of the model together, m and rad; `iterations`: steps
    taken, summed over all seeds up to the successful one; `start`: index of the successful seed, 0 for q0. If none
    succeeds, `start` is the seed with the smallest cost. It is -1 where there is no result: the target or q0 is not
    finite, or there are fewer `solutions`. `clearance` (...,): the least distance between shapes, m; None if no
    clearance is asked for.
    """

    converged: Array
    residual: Array
    constraint_residual: Array
    iterations: Array
    start: Array
    clearance: Array | None = None

    def __repr__(self) -> str:
        total, done = int(np.size(self.converged)), int(self.converged.sum())
        if not total:
            return "<IKReport: no targets>"
        worst = np.nanmax(np.asarray(_host(self.residual)).reshape(-1, 2), axis=0, initial=0.0)
        mean, lost = float(self.iterations.sum()) / total, int((self.start < 0).sum())
        return (
            f"<IKReport: {done} of {total} converged, {mean:.1f} iterations in the mean, "
            f"at most {worst[0]:.2g} m and {worst[1]:.2g} rad off{f', {lost} NaN' if lost else ''}>"
        )


def with_report(
    library: Library,
    found: Sequence[Found],
    leading: tuple[int, ...],
    near: Clearance | None,
    clipped: tuple[Array, Array] | None,
) -> tuple[Array, IKReport]:
    """Joins the results of all chunks, restores the leading axes, and makes the report.

    Args:
        library: of the arrays.
        found: results of the chunks.
        leading: leading axes of the answers.
        near: the clearance that answers keep, if any.
        clipped: limits that answers keep, if any.
    """
    xp = library.xp
    results = Found(*(xp.concatenate(parts) for parts in zip(*(each.arrays for each in found), strict=True)))
    q = results.q
    n = results.measures.shape[-1] // MEASURES - 1
    if clipped is not None:
        q = xp.clip(q, *map(library.constant, clipped))
    measures = results.measures.reshape(len(q), n + 1, MEASURES)
    distance = xp.sqrt(measures[..., 0])
    angle = xp.arctan2(xp.sqrt(measures[..., 1]), measures[..., 2])
    residual = xp.stack((distance[:, :n], angle[:, :n]), -1)
    constraint_residual = xp.sqrt(measures[:, n, :2])
    if results.lost.any():
        residual[results.lost] = np.nan
        q = xp.where(results.lost[:, None], np.nan, q)
    done, distance = results.done, None
    if near is not None:
        distance = near.distances(q, np.arange(len(q)))
        done = done & (distance > near.least)
        distance = distance.reshape(leading)
    report = IKReport(
        done.reshape(leading),
        residual.reshape(*leading, n, 2),
        constraint_residual.reshape(*leading, 2),
        results.iterations.reshape(leading),
        results.start.reshape(leading),
        distance,
    )
    return q.reshape(*leading, q.shape[-1]), report


def _host(array: Array) -> Any:
    """Copies an array from a device to the host, as a NumPy array."""
    return array.get() if hasattr(array, "get") else array
