"""The other side of the thesis' figure 10: transforms and inertias as 6 x 6 matrices, motions and forces as 6-vectors.

The same scan on the same vector tree as ours, and the same two ways to run a step (`Elementwise`: as operations of
NumPy over all bodies, or compiled), so that what differs is the structures alone. Matrices are full ones: no product
knows of blocks that are zero or that repeat. `matmul_rootfix` leaves products to `numpy.matmul` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from robodyn.core.model import Model
from robodyn.engines.scan import Semigroup, VectorTree, sums
from robodyn.engines.scan.elementwise import Elementwise
from robodyn.spatial import Scalar
from robodyn.sweeps import FieldType

Array = np.ndarray
_Scalars = tuple[Scalar, ...]
_MATRIX, _VECTOR = FieldType((0.0,) * 36), FieldType((0.0,) * 6)
_IDENTITY = tuple(float(i == j) for i in range(6) for j in range(6))
# Where entries of X^-1 and of X* = X^-T stand in X = [[A, 0], [B, A]]: every 3 x 3 block transposed, and, of X*, all.
_BLOCKWISE = [6 * (3 * (i // 3) + j % 3) + 3 * (j // 3) + i % 3 for i in range(6) for j in range(6)]
_INVERSE_TRANSPOSE = [_BLOCKWISE[6 * j + i] for i in range(6) for j in range(6)]


def _dot(a: _Scalars, b: _Scalars) -> Scalar:
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        total = total + x * y
    return total


def _product(A: _Scalars, B: _Scalars) -> _Scalars:
    return tuple(_dot(A[6 * i : 6 * i + 6], B[j::6]) for i in range(6) for j in range(6))


def _times(A: _Scalars, x: _Scalars) -> _Scalars:
    return tuple(_dot(A[6 * i : 6 * i + 6], x) for i in range(6))


def _transposed_times(A: _Scalars, x: _Scalars) -> _Scalars:
    return tuple(_dot(A[i::6], x) for i in range(6))


def _plus(a: _Scalars, b: _Scalars) -> _Scalars:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _cross_motion(v: _Scalars) -> _Scalars:
    """The matrix of v x on motions (RBDA eq. 2.31)."""
    wx, wy, wz, vx, vy, vz = v
    zero = 0.0 * wx
    spin, shift = (
        ((zero, -wz, wy), (wz, zero, -wx), (-wy, wx, zero)),
        ((zero, -vz, vy), (vz, zero, -vx), (-vy, vx, zero)),
    )
    upper = [entry for row in spin for entry in (*row, zero, zero, zero)]
    lower = [entry for row, turn in zip(shift, spin, strict=True) for entry in (*row, *turn)]
    return (*upper, *lower)


def _then(a: _Scalars, b: _Scalars) -> _Scalars:
    """x -> X x + b, a followed by b: 36 and 6 scalars."""
    return (*_product(b[:36], a[:36]), *_plus(_times(b[:36], a[36:]), b[36:]))


def _undo(a: _Scalars) -> _Scalars:
    back = tuple(a[k] for k in _BLOCKWISE)
    return (*back, *(-x for x in _times(back, a[36:])))


AFFINE = Semigroup("affine motion, 6 x 6", (*_IDENTITY, *(0.0,) * 6), _then, _undo)
"""The recurrence of velocities on full matrices."""


def _body_force(inertia: _Scalars, v: _Scalars, a: _Scalars) -> _Scalars:
    """I a + v x* I v, with v x* = -(v x)'."""
    momentum = _times(inertia, v)
    return tuple(x - y for x, y in zip(_times(inertia, a), _transposed_times(_cross_motion(v), momentum), strict=True))


_matrices = Elementwise(_product, _MATRIX, _MATRIX, _MATRIX)
_vectors = Elementwise(_times, _VECTOR, _MATRIX, _VECTOR)
_to_world = Elementwise(_transposed_times, _VECTOR, _MATRIX, _VECTOR)
_crossed = Elementwise(lambda v, m: _times(_cross_motion(v), m), _VECTOR, _VECTOR, _VECTOR)
_forces = Elementwise(_body_force, _VECTOR, _MATRIX, _VECTOR, _VECTOR)


def matrices(X: Array) -> Array:
    """Full matrices (36, n, ...) of transforms (12, n, ...): [[E, 0], [-E r x, E]]."""
    E, (x, y, z) = X[:9].reshape(3, 3, *X.shape[1:]), X[9:]
    full = np.zeros((6, 6, *X.shape[1:]), X.dtype)
    full[:3, :3] = full[3:, 3:] = E
    for i in range(3):
        full[3 + i, 0] = E[i, 2] * y - E[i, 1] * z
        full[3 + i, 1] = E[i, 0] * z - E[i, 2] * x
        full[3 + i, 2] = E[i, 1] * x - E[i, 0] * y
    return full.reshape(36, *X.shape[1:])


def rootfix(tree: VectorTree, X: Array, vJ: Array) -> Callable[[], Array]:
    """Velocities of all bodies (6, n, 1) by the recurrence; X (12, n, 1) and vJ (6, n, 1) as ours gets them."""
    elements = np.concatenate((matrices(X), vJ))
    return lambda: tree.rootfix(AFFINE, elements)[36:]


def matmul_rootfix(tree: VectorTree, X: Array, vJ: Array) -> Callable[[], Array]:
    """The same, elements being rows [X | b] of memory, and every product one of `numpy.matmul` over all pairs."""
    n = len(tree)
    elements = np.concatenate((matrices(X).reshape(6, 6, n), vJ.reshape(6, 1, n)), axis=1)
    rows = np.ascontiguousarray(elements.transpose(2, 0, 1)).reshape(n, 42)
    identity = np.eye(6, 7).ravel()
    return lambda: tree.rootfix(_matmul_then, rows, inverse=_matmul_undo, identity=identity).reshape(n, 6, 7)[..., 6].T


def _matmul_then(a: Array, b: Array) -> Array:
    first, second = a.reshape(-1, 6, 7), b.reshape(-1, 6, 7)
    found = second[..., :6] @ first
    found[..., 6] += second[..., 6]
    return found.reshape(-1, 42)


def _matmul_undo(a: Array) -> Array:
    given = a.reshape(-1, 6, 7)
    found = np.empty_like(given)
    for rows in (slice(0, 3), slice(3, 6)):
        for columns in (slice(0, 3), slice(3, 6)):
            found[:, rows, columns] = given[:, rows, columns].transpose(0, 2, 1)
    found[..., 6] = -(found[..., :6] @ given[..., 6:])[..., 0]
    return found.reshape(-1, 42)


class SixBySix:
    """Inverse dynamics of a tree of revolute joints about z (thesis, listings 3 to 5) on full matrices."""

    def __init__(self, model: Model, dtype: str = "float64") -> None:
        self.tree, self.dtype = VectorTree(model.tree), np.dtype(dtype)
        self.roots = np.flatnonzero(model.parent < 0)
        self.Xtree = matrices(np.ascontiguousarray(model.Xtree.T.astype(dtype))[:, :, None])
        self.inertia = _inertia_matrices(model.inertia.T.astype(dtype))[:, :, None]
        start = np.array([*_IDENTITY, 0.0, 0.0, 0.0, *-np.asarray(model.gravity)], dtype)
        self.base = start[:, None, None]

    def inverse_dynamics(self, q: Array, qd: Array, qdd: Array) -> Array:
        """tau (n,)."""
        X = _matrices(self._joints(q), self.Xtree)
        vJ, aJ = self._rates(qd), self._rates(qdd)
        motions = self.tree.rootfix(AFFINE, np.concatenate((X, vJ)))
        X0, v = motions[:36], motions[36:]
        elements = np.concatenate((X, aJ + _crossed(v, vJ)))
        elements[:, self.roots] = AFFINE.compose(self.base, elements[:, self.roots])
        a = self.tree.rootfix(AFFINE, elements)[36:]
        subtrees = self.tree.leaffix(sums(6), _to_world(X0, _forces(self.inertia, v, a)))
        return _vectors(X0[_INVERSE_TRANSPOSE], subtrees)[2, :, 0]

    def call(self, q: Array, qd: Array, qdd: Array) -> Callable[[], Array]:
        """One state, ready to be timed."""
        return partial(self.inverse_dynamics, q, qd, qdd)

    def _rates(self, rates: Array) -> Array:
        found = np.zeros((6, rates.size, 1), self.dtype)
        found[2, :, 0] = rates
        return found

    def _joints(self, q: Array) -> Array:
        found = np.zeros((6, 6, q.size, 1), self.dtype)
        c, s = np.cos(q)[:, None], np.sin(q)[:, None]
        for k in (0, 3):
            found[k, k] = found[k + 1, k + 1] = c
            found[k, k + 1], found[k + 1, k], found[k + 2, k + 2] = s, -s, 1.0
        return found.reshape(36, q.size, 1)


def _inertia_matrices(inertia: Array) -> Array:
    """(36, n) of ten numbers each: [[I, h x], [-h x, m 1]]."""
    m, h, (xx, xy, xz, yy, yz, zz) = inertia[0], inertia[1:4], inertia[4:]
    zero = np.zeros_like(m)
    cross = ((zero, -h[2], h[1]), (h[2], zero, -h[0]), (-h[1], h[0], zero))
    turning = ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))
    upper = [entry for row, arm in zip(turning, cross, strict=True) for entry in (*row, *arm)]
    lower = [
        entry for i, arm in enumerate(cross) for entry in (*(-x for x in arm), *(m * float(i == j) for j in range(3)))
    ]
    return np.array([*upper, *lower])
