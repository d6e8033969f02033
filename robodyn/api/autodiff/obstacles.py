"""Differentiable distances to obstacles, which are arrays of the library.

Obstacles go through the same programs as in `Dynamics.distances`, a block at a time; blocks are rows of one batch. The
rate of a distance is n . (v1 - v2), with the velocities of both witness points and the normal n from the obstacle to
the shape. So derivatives by the numbers of an obstacle are those of the velocity of its witness point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from robodyn.algorithms.distances.formulas import TINY
from robodyn.algorithms.distances.tasks import OBSTACLES, Asked, obstacle_blocks, task_of
from robodyn.api.autodiff.calls import TaskCall
from robodyn.api.autodiff.coordinates import Coordinates
from robodyn.api.autodiff.dynamics_rules import times, times_transposed
from robodyn.api.autodiff.rules import Arrays, Library, Rates, Smooth
from robodyn.api.dynamics import Dynamics
from robodyn.api.queries.obstacles import Obstacles
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief

SHAPES = {
    "spheres": "(..., k, 4)",
    "capsules": "(..., k, 7)",
    "box_poses": "(..., k, 4, 4)",
    "box_edges": "(..., k, 3)",
}
"""Arrays of obstacles, for messages."""
_WANTED = "wanted robodyn.Obstacles, or a dict with arrays spheres, capsules, boxes=(poses, edges), and ignore=[links]"


def arrays_of(given: Any) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Arrays of obstacles, not read yet, and the links to ignore, from an argument `obstacles`.

    Raises:
        ArgumentError: neither `Obstacles` nor such a dict.
    """
    if given is None:
        return {}, ()
    if isinstance(given, Obstacles):
        given.require_host()
        found: dict[str, Any] = {"spheres": given.spheres, "capsules": given.capsules, "boxes": given.boxes}
        ignore = given.ignore
    else:
        if not strict_types.is_a(given, dict):
            raise ArgumentError(f"obstacles: got {brief(given)}; {_WANTED}")
        unknown = [key for key in given if key not in ("spheres", "capsules", "boxes", "ignore")]
        if unknown:
            raise ArgumentError(f"obstacles: got {brief(unknown[0])} in a dict; {_WANTED}")
        found, ignore = {key: given.get(key) for key in ("spheres", "capsules", "boxes")}, given.get("ignore", ())
    boxes = found.pop("boxes")
    if boxes is not None:
        if not strict_types.is_a(boxes, tuple, list) or len(boxes) != 2:
            raise ArgumentError(f"obstacles: got boxes {brief(boxes)}; wanted (poses {SHAPES['box_poses']}, edges)")
        found |= dict(zip(("box_poses", "box_edges"), boxes, strict=True))
    return {name: array for name, array in found.items() if array is not None}, Obstacles(ignore=ignore).ignore


def require_shapes(arrays: Mapping[str, Any]) -> None:
    """Raise unless arrays of obstacles have the shapes of `SHAPES`.

    Raises:
        ArgumentError: another shape, or other numbers of poses and edges.
    """
    for name, array in arrays.items():
        wanted, shape = {"box_poses": (4, 4), "box_edges": (3,)}.get(name) or (OBSTACLES[name],), tuple(array.shape)
        if len(shape) <= len(wanted) or shape[len(shape) - len(wanted) :] != wanted:
            raise ArgumentError(f"{name}: got shape {shape}; wanted {SHAPES[name]}")
    if "box_poses" in arrays and arrays["box_poses"].shape[-3] != arrays["box_edges"].shape[-2]:
        got = tuple(arrays["box_poses"].shape), tuple(arrays["box_edges"].shape)
        raise ArgumentError(f"boxes: got shapes {got[0]} and {got[1]}; wanted (..., k, 4, 4) and (..., k, 3)")


def parts(
    model: Model, near: Sequence[int], rows: Mapping[str, Any], library: Library
) -> Iterator[tuple[Asked, Any, int]]:
    """Shapes and obstacles in parts that are programs: what is asked, blocks of obstacles (..., blocks, block, n), and
    the number of obstacles, which blocks exceed by copies of the last one."""
    for kind, asked, _, numbers in obstacle_blocks(model, near, {kind: rows[kind].shape[-2] for kind in rows}):
        array, k = rows[kind], rows[kind].shape[-2]
        padded = array if numbers.size == k else array[..., library.constant(numbers.ravel()), :]
        yield asked, padded.reshape((*array.shape[:-2], *numbers.shape, OBSTACLES[kind])), k


class ObstacleDistances(Smooth):
    """`distances` (..., shapes * obstacles) of some shapes to obstacles of one kind, or the least of them (...).

    Their derivatives are of first order only.

    Args:
        dyn: the robot's `Dynamics`.
        name: "distances" or "min_distance".
        asked: the shapes, and the kind and number of the obstacles.
        library: the differentiating library.
        coordinates: the robot's coordinates.
    """

    def __init__(self, dyn: Dynamics, name: str, asked: Asked, library: Library, coordinates: Coordinates) -> None:
        self.name, self.asked, self.library, self.coordinates = name, asked, library, coordinates
        model = dyn.model

        def call(task: str, checks: bool = False) -> TaskCall:
            return TaskCall(dyn, task, task_of(task, model, asked), checks=checks)

        self._value, self._slope, self._contacts = call(name, True), call(f"{name}_gradient"), call("contacts")

    def value(self, *x: Any) -> Any:
        """The distances."""
        return self.library.run(self._value, *x)[0]

    def _by_q(self, x: Arrays) -> Any:
        """The derivatives (..., n, nv) by q; n is 1 for a single distance."""
        rows = self.library.run(self._slope, *x)[0]
        return rows if self.name == "distances" else rows[..., None, :]

    def _by_obstacles(self, x: Arrays) -> Any:
        """The derivatives (..., shapes, count, numbers): entry (i, k) is that of shape i by the numbers of obstacle k.
        For a single distance the sum over all shapes is its derivative."""
        d, n, p = self.library.run(self._contacts, *x)
        xp, shapes, count = self.library.xp, len(self.asked.near), self.asked.count
        leading = tuple(d.shape[:-1])
        n, p = (each.reshape((*leading, shapes, count, 3)) for each in (n, p))
        slope = _OF_KIND[self.asked.kind](xp, x[1][..., None, :, :], n, p)
        if self.name == "min_distance":
            nearest = (d <= xp.amin(d, -1)[..., None]) * xp.ones_like(d)
            share = nearest / nearest.sum(-1)[..., None]
            slope = slope * share.reshape((*leading, shapes, count))[..., None]
        return slope

    def tangent(self, x: Arrays, y: Any, rates: Rates) -> Any:
        """n . (v1 - v2)."""
        total: Any = 0.0
        single = self.name == "min_distance"
        if rates[0] is not None:
            total = times(self._by_q(x), self.coordinates.velocity(x[0], rates[0]))
            total = total[..., 0] if single else total
        if rates[1] is not None:
            each = (self._by_obstacles(x) * rates[1][..., None, :, :]).sum(-1)
            each = each.reshape((*each.shape[:-2], each.shape[-2] * each.shape[-1]))
            total = total + (each.sum(-1) if single else each)
        return total

    def pullback(self, x: Arrays, y: Any, weights: Any, wanted: Sequence[bool]) -> Rates:
        """The gradients."""
        single = self.name == "min_distance"
        by_q = by_obstacles = None
        if wanted[0]:
            several = weights[..., None] if single else weights
            force = times_transposed(self._by_q(x), several)
            by_q = self.coordinates.velocity_transposed(x[0], force)
        if wanted[1]:
            slope = self._by_obstacles(x)
            w = weights[..., None, None] if single else weights.reshape(slope.shape[:-1])
            by_obstacles = (slope * w[..., None]).sum(-3)
        return by_q, by_obstacles


def _of_sphere(xp: Any, row: Any, n: Any, p: Any) -> Any:
    """Derivative of a distance by centre and radius."""
    return xp.concatenate((-n, -xp.ones_like(n[..., :1])), -1)


def _of_capsule(xp: Any, row: Any, n: Any, p: Any) -> Any:
    """Derivative of a distance by both ends of the axis and the radius: the ends share the velocity of the point of the
    axis below the witness point."""
    start, end, radius = row[..., :3], row[..., 3:6], row[..., 6:]
    axis = end - start
    square = (axis * axis).sum(-1)[..., None]
    t = ((p - radius * n - start) * axis).sum(-1)[..., None] / xp.clip(square, TINY, None)
    t = xp.where(square > TINY, xp.clip(t, 0.0, 1.0), 0.5 * xp.ones_like(t))
    return xp.concatenate((-(1.0 - t) * n, -t * n, -xp.ones_like(t)), -1)


def _of_box(xp: Any, row: Any, n: Any, p: Any) -> Any:
    """Derivative of a distance by the first three rows of the pose, and by the edges."""
    pose = row[..., :12].reshape((*row.shape[:-1], 3, 4))
    R, edges = pose[..., :3], row[..., 12:]
    local = times_transposed(R, p - pose[..., 3])
    out = times_transposed(R, n)
    share = local / xp.where(edges > 0.0, edges, xp.ones_like(edges))
    share = xp.where(edges > 0.0, xp.clip(share, -0.5, 0.5), xp.zeros_like(share))
    by_pose = -n[..., None] * xp.concatenate((local, xp.ones_like(local[..., :1])), -1)[..., None, :]
    return xp.concatenate((by_pose.reshape((*n.shape[:-1], 12)), -out * share), -1)


_OF_KIND = {"spheres": _of_sphere, "capsules": _of_capsule, "boxes": _of_box}
