"""Poses and names that users pass to edits, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.core.description import Pose
from robodyn.core.spatial import IDENTITY, Transform
from robodyn.internals import strict_types
from robodyn.internals.arguments import real_array, require_finite
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief

_UNIT = 1e-9
"""Tolerance for a rotation to be orthonormal, as in a description."""
_WANTED = (
    "wanted None, three numbers (m), a 4 x 4 matrix of a pose, a row of `Model.link_X` (12), or a description.Pose"
)


def transform_of(name: str, pose: Any) -> Transform:
    """The transform from the frame that a pose is given in to the posed frame.

    `pose`: None for the identity, three numbers (m), a homogeneous matrix (4, 4), whose rotation transforms coordinates
    of the posed frame into those of the other, a row of `Model.link_X` (E row-major, r), or a `Pose`.

    Raises:
        ArgumentError: anything else, or a matrix that is not a rotation; names the argument.
        NumericalError: NaN or infinity.
    """
    if pose is None:
        return IDENTITY
    if strict_types.is_a(pose, Pose):
        if (exact := strict_types.of_kind(pose, Pose)) is None:
            raise ArgumentError(f"{name}: got {brief(pose)}; {_WANTED}")
        R = real_array(f"{name}.rotation", exact.rotation, (9,), np.float64).reshape(-1, 3, 3)
        r = real_array(f"{name}.xyz", exact.xyz, (3,), np.float64).reshape(-1, 3)
        if len(R) != 1 or len(r) != 1:
            raise ArgumentError(f"{name}: got {brief(pose)}; {_WANTED}")
        R, r = R[0], r[0]
    else:
        R, r = _matrix_of(name, pose)
    require_finite(name, np.append(R, r), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        orthonormal = bool(np.abs(R @ R.T - np.eye(3)).max() <= _UNIT) and float(np.linalg.det(R)) > 0.0
    if not orthonormal:
        raise ArgumentError(f"{name}: got {brief(pose)}; wanted a rotation: orthonormal to {_UNIT:g}, determinant 1")
    E, (x, y, z) = R.T.ravel().tolist(), r.tolist()
    return Transform(tuple(E), (x, y, z))


def _matrix_of(name: str, pose: Any) -> tuple[Any, Any]:
    """The rotation and the position of a pose that is an array."""
    array = real_array(name, pose, (), np.float64, what="a pose")
    if array.shape == (3,):
        return np.eye(3), array
    if array.shape == (12,):
        return array[:9].reshape(3, 3).T, array[9:]
    if array.shape != (4, 4):
        raise ArgumentError(f"{name}: got shape {array.shape}; {_WANTED}")
    if (array[3] != (0.0, 0.0, 0.0, 1.0)).any():
        raise ArgumentError(f"{name}: got the last row {array[3].tolist()}; wanted 0, 0, 0, 1")
    return array[:3, :3], array[:3, 3]


def row_of(X: Transform) -> list[float]:
    """A transform as a row of `Model.link_X`."""
    return [*X.E, *X.r]


def transform_in(row: Any) -> Transform:
    """The transform of a row of `Model.link_X` or `Model.Xtree`, as floats."""
    numbers = np.asarray(row, dtype=np.float64).tolist()
    return Transform(tuple(numbers[:9]), (numbers[9], numbers[10], numbers[11]))


def name_of(what: str, given: Any) -> str:
    """A checked name from a user.

    Raises:
        ArgumentError: not a text, or a blank one.
    """
    name = strict_types.text_or_none(given)
    if name is None or not name.strip():
        raise ArgumentError(f"{what}: got {brief(given)}; wanted a name, a text that is not blank")
    return name
