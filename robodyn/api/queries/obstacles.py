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
from robodyn.internals.array_library import Library, require_one_place
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief

_DOUBLE = np.dtype(np.float64)
_TURNED = 1e-6
"""Tolerance for a rotation to be orthonormal."""


class Obstacles:
    """Spheres, capsules and boxes in world coordinates, one set for all configurations or one for each.

    Numbers of obstacles are no constants of programs: other numbers compile nothing. An obstacle with NaN gives NaN.
    Arrays on a GPU stay there, for configurations on that GPU. Their values are not checked.

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
        pair = (None, None) if boxes is None else _pair(boxes)
        given = {"spheres": spheres, "capsules": capsules, "boxes[0]": pair[0], "boxes[1]": pair[1]}
        self.on_device = require_one_place(given)
        self.spheres = None if spheres is None else self._read("spheres", spheres, 4)
        self.capsules = None if capsules is None else self._read("capsules", capsules, 7)
        self.boxes = None if boxes is None else _boxes(pair[0], pair[1], self.on_device)
        if not strict_types.is_a(ignore, list, tuple):
            raise ArgumentError(f"ignore: got {brief(ignore)}; wanted a list of names or indices of links")
        self.ignore = strict_types.members(ignore)
        self._of_dtype: dict[np.dtype[Any], dict[str, Array]] = {}
        self._counts, leading = {}, {}
        for name, array in (("spheres", self.spheres), ("capsules", self.capsules), ("boxes", self.boxes)):
            shape = () if array is None else _shape_of_boxes(*array) if name == "boxes" else _shape(array)[:-1]
            if array is not None and shape[-1]:
                self._counts[name], leading[name] = shape[-1], shape[:-1]
        try:
            self._leading = np.broadcast_shapes(*leading.values())
        except ValueError:
            shapes = ", ".join(f"{name} {axes}" for name, axes in leading.items())
            raise ArgumentError(f"obstacles: got leading axes {shapes}, which do not broadcast") from None

    def _read(self, name: str, value: Any, size: int) -> Any:
        return _on_device(name, value, size) if self.on_device else _rows(name, value, size, 1)

    @cached_property
    def numbers(self) -> tuple[Any, ...]:
        """What built-in functions depend on: numbers of obstacles, and what is ignored."""
        return *self._counts.items(), *self.ignore

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self._counts.items())
        return f"<Obstacles: {counts or 'none'}>"

    @property
    def leading(self) -> tuple[int, ...]:
        """Leading axes of all obstacles together."""
        return self._leading

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of the obstacles, in the order of `robodyn.algorithms.distances.tasks.OBSTACLES`."""
        return tuple(self._counts)

    @property
    def count(self) -> int:
        """Number of obstacles of a configuration."""
        return sum(self._counts.values())

    def require_host(self) -> None:
        """Raise if the arrays are on a GPU."""
        if self.on_device:
            raise ArgumentError("obstacles: got arrays on a GPU; wanted NumPy arrays here, or all of a call on the GPU")

    def rows(self, dtype: np.dtype[Any] = _DOUBLE) -> dict[str, Array]:
        """Obstacles (..., k, n) by kind, with the numbers of `robodyn.algorithms.distances.tasks.OBSTACLES`, contiguous
        arrays of a dtype."""
        self.require_host()
        if dtype not in self._of_dtype:
            self._of_dtype[dtype] = {kind: np.ascontiguousarray(array, dtype) for kind, array in self._rows.items()}
        return self._of_dtype[dtype]

    def rows_in(self, library: Library, dtype: np.dtype[Any]) -> dict[str, Array]:
        """The same as arrays of a library. On a GPU they are copied in each call if they are not there."""
        if not (self.on_device and library.on_device):
            return {kind: library.like_numpy(array) for kind, array in self.rows(dtype).items()}
        arrays = {}
        for name, value in self._arrays.items():
            array = library.array(name, value, "wanted an array of real numbers")
            if array.dtype.kind not in "fiu":
                raise ArgumentError(f"{name}: got an array of {array.dtype}; wanted real numbers")
            arrays[name] = array.astype(dtype)
        return rows_of(arrays, library.xp)

    @property
    def _arrays(self) -> dict[str, Any]:
        poses, edges = self.boxes or (None, None)
        every = {"spheres": self.spheres, "capsules": self.capsules, "box_poses": poses, "box_edges": edges}
        return {name: array for name, array in every.items() if array is not None}

    @cached_property
    def _rows(self) -> dict[str, Array]:
        return rows_of(self._arrays)

    def repeated(self, leading: tuple[int, ...], rows: Array) -> Obstacles:
        """The obstacles of some of many configurations, one set for each.

        Args:
            leading: leading axes of all configurations, with which those of the obstacles broadcast.
            rows: (k,) numbers of the chosen ones, as if they had one axis.
        """
        self.require_host()

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


def _shape(array: Any) -> tuple[int, ...]:
    """The shape of an array of any library."""
    return tuple(map(int, array.shape))


def _shape_of_boxes(poses: Any, edges: Any) -> tuple[int, ...]:
    """Leading axes and number of boxes."""
    return (*np.broadcast_shapes(_shape(poses)[:-3], _shape(edges)[:-2]), _shape(edges)[-2])


def _on_device(name: str, value: Any, *own: int) -> Any:
    """An array (..., k, *own) on a GPU, as it is."""
    try:
        shape = _shape(value)
    except Exception:  # a foreign object may raise anything
        raise ArgumentError(f"{name}: got {brief(value)}; wanted an array with a shape") from None
    if len(shape) <= len(own) or shape[-len(own) :] != own:
        raise ArgumentError(f"{name}: got shape {shape}; wanted (..., k, {', '.join(map(str, own))})")
    return value


def _pair(value: Any) -> tuple[Any, Any]:
    pair = strict_types.members(value) if strict_types.is_a(value, tuple, list) else ()
    if len(pair) != 2:
        raise ArgumentError(f"boxes: got {brief(value)}; wanted (poses (..., k, 4, 4), edges (..., k, 3))")
    return pair[0], pair[1]


def _boxes(poses: Any, edges: Any, on_device: bool) -> tuple[Array, Array]:
    if on_device:
        poses, edges = _on_device("boxes[0]", poses, 4, 4), _on_device("boxes[1]", edges, 3)
    else:
        edges = _rows("boxes[1]", edges, 3, 3)
        poses = np.array(real_array("boxes[0]", poses, (4, 4), np.float64))
    shapes = _shape(poses), _shape(edges)
    if len(shapes[0]) < 3 or shapes[0][-3] != shapes[1][-2]:
        raise ArgumentError(f"boxes: got shapes {shapes[0]} and {shapes[1]}; wanted (..., k, 4, 4) and (..., k, 3)")
    try:
        np.broadcast_shapes(shapes[0][:-3], shapes[1][:-2])
    except ValueError:
        raise ArgumentError(
            f"boxes: got shapes {shapes[0]} and {shapes[1]}, whose leading axes do not broadcast"
        ) from None
    if on_device:
        return poses, edges
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
