"""Obstacles: inputs of queries about distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.distances.tasks import OBSTACLES
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, real_array
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief

_DOUBLE = np.dtype(np.float64)
_TURNED = 1e-6
"""Tolerance for a rotation to be orthonormal."""


class Obstacles:
    """Spheres, capsules and boxes in world coordinates, one set for all configurations or one for each.

    Numbers of obstacles are no constants of programs: other numbers compile nothing. An obstacle with NaN gives NaN.

    Args:
        spheres: (..., k, 4) centre and radius, m.
        capsules: (..., k, 7) both ends of the axis, and radius, m.
        boxes: (poses (..., k, 4, 4) of centres, edges (..., k, 3) along their axes), m.
        ignore: names or indices of links whose shapes are not measured to obstacles, such as one that stands on them.

    Raises:
        ArgumentError: wrong shapes, negative radii or edges, or matrices that are no poses.
    """

    def __init__(
        self,
        spheres: ArrayLike | None = None,
        capsules: ArrayLike | None = None,
        boxes: tuple[ArrayLike, ArrayLike] | None = None,
        ignore: Sequence[str | int] = (),
    ) -> None:
        self.spheres = None if spheres is None else _rows("spheres", spheres, 4, 1)
        self.capsules = None if capsules is None else _rows("capsules", capsules, 7, 1)
        self.boxes = None if boxes is None else _boxes(boxes)
        if not strict_types.is_a(ignore, list, tuple):
            raise ArgumentError(f"ignore: got {brief(ignore)}; wanted a list of names or indices of links")
        self.ignore = strict_types.members(ignore)
        self._of_dtype: dict[np.dtype[Any], dict[str, Array]] = {}
        try:
            self._leading = np.broadcast_shapes(*(array.shape[:-2] for array in self._rows.values()))
        except ValueError:
            shapes = ", ".join(f"{name} {array.shape[:-2]}" for name, array in self._rows.items())
            raise ArgumentError(f"obstacles: got leading axes {shapes}, which do not broadcast") from None

    @cached_property
    def numbers(self) -> tuple[Any, ...]:
        """What built-in functions depend on: numbers of obstacles, and what is ignored."""
        return *((kind, array.shape[-2]) for kind, array in self._rows.items()), *self.ignore

    def __repr__(self) -> str:
        counts = ", ".join(f"{array.shape[-2]} {name}" for name, array in self._rows.items())
        return f"<Obstacles: {counts or 'none'}>"

    @property
    def leading(self) -> tuple[int, ...]:
        """Leading axes of all obstacles together."""
        return self._leading

    @property
    def count(self) -> int:
        """Number of obstacles of a configuration."""
        return sum(array.shape[-2] for array in self._rows.values())

    def rows(self, dtype: np.dtype[Any] = _DOUBLE) -> dict[str, Array]:
        """Obstacles (..., k, n) by kind, with the numbers of `robodyn.algorithms.distances.tasks.OBSTACLES`, contiguous
        arrays of a dtype."""
        if dtype not in self._of_dtype:
            self._of_dtype[dtype] = {kind: np.ascontiguousarray(array, dtype) for kind, array in self._rows.items()}
        return self._of_dtype[dtype]

    @cached_property
    def _rows(self) -> dict[str, Array]:
        poses, edges = self.boxes or (None, None)
        every = {"spheres": self.spheres, "capsules": self.capsules, "box_poses": poses, "box_edges": edges}
        return rows_of({name: array for name, array in every.items() if array is not None})

    def repeated(self, leading: tuple[int, ...], rows: Array) -> Obstacles:
        """The obstacles of some of many configurations, one set for each.

        Args:
            leading: leading axes of all configurations, with which those of the obstacles broadcast.
            rows: (k,) numbers of the chosen ones, as if they had one axis.
        """

        def chosen(array: Array | None, trailing: int) -> Any:
            if array is None or not array.shape[-trailing]:
                return None
            own = array.shape[array.ndim - trailing :]
            return np.broadcast_to(array, (*leading, *own)).reshape(-1, *own)[rows]

        poses, edges = (None, None) if self.boxes is None else self.boxes
        boxes = None if poses is None or not poses.shape[-3] else (chosen(poses, 3), chosen(edges, 2))
        return Obstacles(chosen(self.spheres, 2), chosen(self.capsules, 2), boxes, self.ignore)

    def near(self, model: Model) -> tuple[int, ...]:
        """Indices of the shapes of a model that are measured to obstacles.

        Raises:
            ArgumentError: an ignored link that the model does not have.
        """
        ignored = set()
        for k, link in enumerate(self.ignore):
            try:
                ignored.add(model.link_names[model.link_index(link)])
            except ArgumentError as error:
                raise ArgumentError(f"ignore[{k}]{str(error).removeprefix('link')}") from None
        return tuple(k for k, each in enumerate(model.collision_geometries) if each.link not in ignored)


def require_fitting(obstacles: Obstacles | None, leading: tuple[int, ...], whose: str) -> None:
    """Refuse obstacles whose leading axes do not broadcast to those of a call. `whose`: the array that has these."""
    own = () if obstacles is None else obstacles.leading
    try:
        fits = np.broadcast_shapes(own, leading) == leading
    except ValueError:
        fits = False
    if not fits:
        raise ArgumentError(
            f"obstacles: got leading axes {own}; wanted some that broadcast to those of {whose}, {leading}"
        )


def rows_of(arrays: Mapping[str, Any], xp: Any = np) -> dict[str, Any]:
    """Obstacles (..., k, n) by kind, with the numbers of `robodyn.algorithms.distances.tasks.OBSTACLES`, from
    "spheres", "capsules", "box_poses" and "box_edges"; `xp`: the library of the arrays."""
    rows = {name: array for name, array in arrays.items() if name in OBSTACLES}
    if "box_poses" in arrays:
        poses, edges = arrays["box_poses"], arrays["box_edges"]
        leading = np.broadcast_shapes(tuple(poses.shape[:-2]), tuple(edges.shape[:-1]))
        flat = xp.broadcast_to(poses, (*leading, 4, 4))[..., :3, :].reshape((*leading, 12))
        rows["boxes"] = xp.concatenate((flat, xp.broadcast_to(edges, (*leading, 3))), -1)
    return {kind: rows[kind] for kind in OBSTACLES if kind in rows and rows[kind].shape[-2]}


def _rows(name: str, value: Any, size: int, lengths: int) -> Array:
    """An array (..., k, size), whose last `lengths` numbers are not negative; a copy that cannot be written to."""
    array = np.array(real_array(name, value, (size,), np.float64))
    if array.ndim < 2:
        raise ArgumentError(f"{name}: got shape {array.shape}; wanted (..., k, {size})")
    if (array[..., -lengths:] < 0.0).any():
        what = "radii" if lengths == 1 else "edges"
        raise ArgumentError(f"{name}: got negative {what}; wanted lengths of 0 or more, in m")
    array.setflags(write=False)
    return array


def _boxes(value: Any) -> tuple[Array, Array]:
    pair = strict_types.members(value) if strict_types.is_a(value, tuple, list) else ()
    if len(pair) != 2:
        raise ArgumentError(f"boxes: got {brief(value)}; wanted (poses (..., k, 4, 4), edges (..., k, 3))")
    edges = _rows("boxes[1]", pair[1], 3, 3)
    poses = np.array(real_array("boxes[0]", pair[0], (4, 4), np.float64))
    if poses.ndim < 3 or poses.shape[-3] != edges.shape[-2]:
        raise ArgumentError(f"boxes: got shapes {poses.shape} and {edges.shape}; wanted (..., k, 4, 4) and (..., k, 3)")
    try:
        np.broadcast_shapes(poses.shape[:-3], edges.shape[:-2])
    except ValueError:
        raise ArgumentError(
            f"boxes: got shapes {poses.shape} and {edges.shape}, whose leading axes do not broadcast"
        ) from None
    R = poses[..., :3, :3]
    with np.errstate(all="ignore"):
        off = np.abs(R @ np.swapaxes(R, -1, -2) - np.eye(3)) > _TURNED
        wrong = (
            off.any() or (np.linalg.det(R) < 0.0).any() or (np.abs(poses[..., 3, :] - (0.0, 0.0, 0.0, 1.0)) > 0.0).any()
        )
    if wrong:
        raise ArgumentError(
            "boxes[0]: got matrices that are no poses; wanted rotations, positions, last row 0, 0, 0, 1"
        )
    poses.setflags(write=False)
    return poses, edges
