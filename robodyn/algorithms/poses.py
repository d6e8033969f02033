"""Exponentials and logarithms of rotations and poses, and errors between poses, as tasks.

A pose T = [R p; 0 1] has the rotation R from its own axes to those of the world. A twist has its angular part first.
exp(xi) is the pose that the twist xi, constant in the moving axes, reaches from the identity in one second; log is its
inverse (Murray, Li and Sastry, A Mathematical Introduction to Robotic Manipulation, 1994, section 2.3 and appendix A).
The formulas are those of floating and spherical joints, so that poses and configurations move alike. Derivatives are
those of `robodyn.core.tangent`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from robodyn.algorithms.manifold import scalars
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.joints import CODE, KINDS, flat, is_positive, quaternion_exp, quaternion_log
from robodyn.core.spatial import Mat3, Scalar, dot, matmul, rotation_from_quaternion, scale, sub, transpose
from robodyn.core.tangent import apart_by, moved_by

_Values: TypeAlias = Sequence[Scalar]
_Matrix: TypeAlias = list[list[Scalar]]
_SPHERICAL, _FLOATING = KINDS[CODE["spherical"]], KINDS[CODE["floating"]]
_AT_REST = _FLOATING.neutral
_ANGULAR_FIRST = (3, 4, 5, 0, 1, 2)
"""Order in which velocities of floating joints, whose linear part is first, are twists. It is its own inverse."""
NOT_A_POSE = 1e-4
"""Sum of squared deviations from a pose (`deviation`) from which a matrix is refused: entries are 1e-2 off."""
_LARGE_ENOUGH = 0.5
"""One of the four squared entries of a unit quaternion, times 4, is at least 1."""


def deviation(R: Mat3, row: _Values = (0.0, 0.0, 0.0, 1.0)) -> Scalar:
    """How far a matrix is from a pose: the sum of squares of R R' - 1 (each pair of rows once) and of the last row's
    errors. A reflection counts as a rotation."""
    total: Scalar = (row[3] - 1.0) * (row[3] - 1.0)
    for each in row[:3]:
        total = total + each * each
    for i in range(3):
        for j in range(i + 1):
            off = dot(R[3 * i : 3 * i + 3], R[3 * j : 3 * j + 3]) - float(i == j)
            total = total + off * off
    return total


def is_pose(R: Mat3, row: _Values = (0.0, 0.0, 0.0, 1.0)) -> Scalar:
    """1 for a rotation R and the last row of a pose, to 1e-2, and 0 for others; NaN for NaN."""
    return flat(is_positive(NOT_A_POSE - deviation(R, row)) * is_positive(_determinant(R)))


def quaternion_from_rotation(R: Mat3) -> tuple[Scalar, ...]:
    """The unit quaternion xyzw of a rotation R from its own axes to the world's. NaN where R is far from a rotation.

    The matrix 4 q q' is linear in R. Its columns are parallel to q. The first one whose diagonal entry is large
    enough is scaled to unit length (Shepperd, Quaternion from rotation matrix, 1978), without a branch.
    """
    a, b, c, d, e, f, g, h, i = R
    xx, yy, zz, ww = 1.0 + a - e - i, 1.0 - a + e - i, 1.0 - a - e + i, 1.0 + a + e + i
    xy, xz, yz, xw, yw, zw = b + d, c + g, f + h, h - f, c - g, d - b
    columns = ((xw, yw, zw, ww), (xx, xy, xz, xw), (xy, yy, yz, yw), (xz, yz, zz, zw))
    chosen: list[Scalar] = [0.0, 0.0, 0.0, 0.0]
    left: Scalar = 1.0
    for column, diagonal in zip(columns, (ww, xx, yy, zz), strict=True):
        share = flat(left * is_positive(diagonal - _LARGE_ENOUGH))
        chosen = [total + share * entry for total, entry in zip(chosen, column, strict=True)]
        left = left - share
    return scale(1.0 / np.sqrt(dot(chosen, chosen)), chosen)  # type: ignore[no-any-return]


def rotation_of(T: _Values) -> Mat3:
    """R of a pose of 16 scalars."""
    return (T[0], T[1], T[2], T[4], T[5], T[6], T[8], T[9], T[10])


def _position_of(T: _Values) -> tuple[Scalar, ...]:
    return (T[3], T[7], T[11])


def _checked(values: _Values, *matrices: tuple[Mat3, _Values]) -> list[Scalar]:
    """The values; NaN or infinite where one of the matrices is no pose."""
    ok: Scalar = 1.0
    for R, row in matrices:
        ok = ok * is_pose(R, row)
    return [each / ok for each in values]


def _determinant(R: Mat3) -> Scalar:
    a, b, c, d, e, f, g, h, i = R
    return a * (e * i - f * h) + b * (f * g - d * i) + c * (d * h - e * g)


def _exp_of_rotation(xi: _Values) -> list[Scalar]:
    return list(transpose(rotation_from_quaternion(*quaternion_exp((xi[0], xi[1], xi[2])))))


def _exp_of_pose(xi: _Values) -> list[Scalar]:
    moved = _FLOATING.integrate(_AT_REST, tuple(xi[k] for k in _ANGULAR_FIRST))
    R, p = transpose(rotation_from_quaternion(*moved[3:7])), moved[0:3]
    return [*R[0:3], p[0], *R[3:6], p[1], *R[6:9], p[2], 0.0, 0.0, 0.0, 1.0]


def _log(R: Mat3, p: _Values) -> tuple[Scalar, ...]:
    step = _FLOATING.difference(_AT_REST, (*p, *quaternion_from_rotation(R)))
    return tuple(step[k] for k in _ANGULAR_FIRST)


def _log_of_rotation(R: _Values) -> list[Scalar]:
    matrix = tuple(R)
    return _checked(quaternion_log(quaternion_from_rotation(matrix)), (matrix, (0.0, 0.0, 0.0, 1.0)))


def _log_of_pose(T: _Values) -> list[Scalar]:
    R = rotation_of(T)
    return _checked(_log(R, _position_of(T)), (R, T[12:16]))


def _error(frame: str, T1: _Values, T2: _Values) -> list[Scalar]:
    R1, R2 = rotation_of(T1), rotation_of(T2)
    p1, p2 = _position_of(T1), _position_of(T2)
    if frame == "body":
        back = transpose(R1)
        error = _log(matmul(back, R2), _turned(back, sub(p2, p1)))
    else:
        turn = matmul(R2, transpose(R1))
        if frame == "world":
            error = _log(turn, sub(p2, _turned(turn, p1)))
        else:
            error = (*quaternion_log(quaternion_from_rotation(turn)), *sub(p2, p1))
    return _checked(error, (R1, T1[12:16]), (R2, T2[12:16]))


def _turned(R: Mat3, a: _Values) -> tuple[Scalar, ...]:
    return tuple(dot(R[k : k + 3], tuple(a)) for k in (0, 3, 6))


def _derivatives(of: Callable[..., tuple[Any, Any]], twist: _Values) -> tuple[_Matrix, _Matrix]:
    """Both matrices of `robodyn.core.tangent`, in the order of twists. `twist`: three numbers, or six."""
    kind, order = (_FLOATING, _ANGULAR_FIRST) if len(twist) == 6 else (_SPHERICAL, (0, 1, 2))
    components = [twist[k] for k in order]
    batch = any(type(each) is np.ndarray and each.ndim for each in components)
    by_first, by_second = of(kind, np.stack(np.broadcast_arrays(*components), -1) if batch else scalars(components))
    first, second = ([[each[..., i, j][()] for j in order] for i in order] for each in (by_first, by_second))
    return first, second


def _negative(matrix: _Matrix) -> _Matrix:
    return [[-each for each in row] for row in matrix]


def _flat(matrix: _Matrix) -> list[Scalar]:
    return [each for row in matrix for each in row]


def _error_gradient(frame: str, T1: _Values, T2: _Values) -> tuple[list[Scalar], list[Scalar]]:
    error = _error(frame, T1, T2)
    by_1, by_2 = _derivatives(apart_by, error[:3] if frame == "world_aligned" else error)
    if frame != "body":
        by_1, by_2 = _negative(by_2), _negative(by_1)
    if frame == "world_aligned":
        below = [[0.0] * 3 + [float(i == j) for j in range(3)] for i in range(3)]
        by_1 = [[*row, 0.0, 0.0, 0.0] for row in by_1] + _negative(below)
        by_2 = [[*row, 0.0, 0.0, 0.0] for row in by_2] + below
    return _flat(by_1), _flat(by_2)


def _task(
    name: str, given: Mapping[str, tuple[int, ...]], results: Mapping[str, tuple[int, ...]], text: Callable[..., Any]
) -> ScalarTask:
    """A task of one or several results of inputs in their order."""

    def on_scalars(_: Any, values: Mapping[str, _Values], __: Any) -> Mapping[str, Any]:
        answer = text(*(values[each] for each in given))
        return dict(zip(results, (answer,) if len(results) == 1 else answer, strict=True))

    sizes = [{each: Sized(shape) for each, shape in some.items()} for some in (given, results)]
    return ScalarTask(name, sizes[0], sizes[1], on_scalars)


def _exp_gradient(xi: _Values) -> list[Scalar]:
    return _flat(_derivatives(moved_by, xi)[1])


TASKS = {
    "exp_of_rotation": _task("exp_of_rotation", {"xi": (3,)}, {"R": (3, 3)}, _exp_of_rotation),
    "exp_of_pose": _task("exp_of_pose", {"xi": (6,)}, {"T": (4, 4)}, _exp_of_pose),
    "log_of_rotation": _task("log_of_rotation", {"T": (3, 3)}, {"xi": (3,)}, _log_of_rotation),
    "log_of_pose": _task("log_of_pose", {"T": (4, 4)}, {"xi": (6,)}, _log_of_pose),
    "exp_gradient_of_rotation": _task("exp_gradient_of_rotation", {"xi": (3,)}, {"J": (3, 3)}, _exp_gradient),
    "exp_gradient_of_pose": _task("exp_gradient_of_pose", {"xi": (6,)}, {"J": (6, 6)}, _exp_gradient),
    "log_gradient_of_rotation": _task(
        "log_gradient_of_rotation",
        {"T": (3, 3)},
        {"J": (3, 3)},
        lambda R: _flat(_derivatives(apart_by, _log_of_rotation(R))[1]),
    ),
    "log_gradient_of_pose": _task(
        "log_gradient_of_pose",
        {"T": (4, 4)},
        {"J": (6, 6)},
        lambda T: _flat(_derivatives(apart_by, _log_of_pose(T))[1]),
    ),
} | {
    f"pose_error{kind}_{frame}": _task(f"pose_error{kind}_{frame}", {"T1": (4, 4), "T2": (4, 4)}, results, text)
    for frame in ("body", "world", "world_aligned")
    for kind, results, text in (
        ("", {"error": (6,)}, lambda T1, T2, frame=frame: _error(frame, T1, T2)),
        ("_gradient", {"by_T1": (6, 6), "by_T2": (6, 6)}, lambda T1, T2, frame=frame: _error_gradient(frame, T1, T2)),
    )
}
"""Tasks by the names of functions of poses."""
