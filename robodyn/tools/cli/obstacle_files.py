"""Reads obstacles of `--obstacles` from .json and .npz files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from robodyn.api.queries.obstacles import Obstacles
from robodyn.internals.archives import Archive
from robodyn.internals.arguments import Array, one_of, real_array, require_finite
from robodyn.internals.errors import ArgumentError, NumericalError
from robodyn.internals.files import file_named, open_regular, read_regular
from robodyn.internals.messages import brief, quoted

_KEYS = ("spheres", "capsules", "box_poses", "box_edges", "ignore")
_MOST_BYTES = 64 << 20


def read_obstacles(text: str) -> Obstacles:
    """The obstacles of a file.

    Its keys: `spheres` (k, 4), `capsules` (k, 7), `box_poses` (k, 4, 4), or (k, 3) for boxes along the world's axes,
    `box_edges` (k, 3), and `ignore`, names of links. Arrays are those of `robodyn.Obstacles`.

    Raises:
        ArgumentError: unknown suffix or keys, a file that cannot be read or is too large, wrong shapes.
        NumericalError: NaN or infinity.
        OSError: the file cannot be opened.
    """
    path = file_named("--obstacles", text)
    readers = {".json": _of_json, ".npz": _of_npz}
    reader = readers.get(path.suffix.lower())
    try:
        if reader is None:
            raise ArgumentError(f"it ends in {quoted(path.suffix)}; allowed: {', '.join(readers)}")
        return _obstacles(reader(path))
    except (ArgumentError, NumericalError) as error:
        raise type(error)(f"--obstacles {quoted(path.name)}: {error}") from None


def _of_json(path: Path) -> dict[str, Any]:
    data = read_regular(path, _MOST_BYTES)
    if len(data) > _MOST_BYTES:
        raise ArgumentError(f"it has more than {_MOST_BYTES} bytes")
    try:
        contents = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"it is no JSON: {brief(error)}") from None
    if not isinstance(contents, dict):
        raise ArgumentError(f"got {brief(contents)}; wanted an object with {', '.join(_KEYS)}")
    return contents


def _of_npz(path: Path) -> dict[str, Any]:
    with open_regular(path) as file:
        archive = Archive(file)
        kinds = {key: "U" if key == "ignore" else "fiu" for key in archive.keys}
        size = sum(array.size * 8 for array in (archive.like(key, kind) for key, kind in kinds.items()))
        if size > _MOST_BYTES:
            raise ArgumentError(f"its arrays take {size} bytes; wanted at most {_MOST_BYTES}")
        arrays = {key: archive.read(key, kind) for key, kind in kinds.items()}
    return {key: array.tolist() if key == "ignore" else array for key, array in arrays.items()}


def _obstacles(contents: dict[str, Any]) -> Obstacles:
    for key in contents:
        one_of("key", key, _KEYS)
    arrays = {key: _array(key, value) for key, value in contents.items() if key != "ignore"}
    boxes = None
    if "box_poses" in arrays or "box_edges" in arrays:
        missing = [key for key in ("box_poses", "box_edges") if key not in arrays]
        if missing:
            raise ArgumentError(f"{missing[0]}: not given; boxes have box_poses and box_edges")
        boxes = _matrices(arrays["box_poses"]), arrays["box_edges"]
    obstacles = Obstacles(arrays.get("spheres"), arrays.get("capsules"), boxes, contents.get("ignore", ()))
    if obstacles.leading:
        raise ArgumentError(f"got leading axes {obstacles.leading}; wanted one set of obstacles for all states")
    return obstacles


def _array(key: str, value: Any) -> Array:
    array = real_array(key, value, (), np.float64)
    require_finite(key, array, array.ndim)
    return array


def _matrices(poses: Array) -> Array:
    """Poses (k, 4, 4), also of positions (k, 3)."""
    if poses.shape[1:] != (3,):
        return poses
    matrices = np.tile(np.eye(4), (len(poses), 1, 1))
    matrices[:, :3, 3] = poses
    return matrices
