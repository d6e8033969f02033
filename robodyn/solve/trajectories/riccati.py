"""The backward pass of differential dynamic programming: a Riccati recursion over knots, as batches of NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.internals.arguments import Array

_BOX_STEPS, _BOX_TOLERANCE = 20, 1e-9


class BackwardPass:
    """Feedback and steps of controls that minimise the quadratic model of a trajectory's cost.

    Args:
        nv: the state's tangent has 2 nv numbers.
        nu: number of controls.
        steps: N.
        box: True if steps of controls are bounded: projected Newton in the box (Tassa, Mansard and Todorov,
            Control-limited differential dynamic programming, 2014).
    """

    def __init__(self, nv: int, nu: int, steps: int, dtype: Any = np.float64, box: bool = False) -> None:
        self._nx, self._nu, self._steps, self._dtype, self._box = 2 * nv, nu, steps, np.dtype(dtype), box

    def __call__(
        self,
        A: Array,
        B: Array,
        gap: Array | None,
        lx: Array,
        lu: Array,
        lxx: Array,
        lux: Array,
        luu: Array,
        vx: Array,
        vxx: Array,
        mu: Array,
        lower: Array | None = None,
        upper: Array | None = None,
    ) -> tuple[Array, Array, Array, Array]:
        """k (..., N, nu), K (..., N, nu, 2 nv), expected (..., 2) and ok (...,).

        Args:
            A, B: derivatives of steps, (..., N, 2 nv, 2 nv) and (..., N, 2 nv, nu).
            gap: (..., N, 2 nv) by which steps miss the next knot, or None.
            lx, lu, lxx, lux, luu: quadratic model of the cost at knots 0 to N - 1.
            vx, vxx: of the cost at knot N.
            mu: (...,) regularisation, added to the diagonal of Quu.
            lower, upper: (..., N, nu) bounds of steps of controls.

        `expected`: the predicted change of the cost is a expected[0] + a^2 expected[1] for a step of size a. `ok`:
        False where Quu is not positive definite; other results of such rows are of no use.
        """
        with np.errstate(all="ignore"):  # of rows that are not ok
            return self._solved(A, B, gap, (lx, lu, lxx, lux, luu), vx, vxx, mu, (lower, upper))

    def _solved(
        self,
        A: Array,
        B: Array,
        gap: Array | None,
        model: tuple[Array, Array, Array, Array, Array],
        v: Array,
        V: Array,
        mu: Array,
        bounds: tuple[Array | None, Array | None],
    ) -> tuple[Array, Array, Array, Array]:
        (lx, lu, lxx, lux, luu), (lower, upper) = model, bounds
        leading = A.shape[:-3]
        K = np.zeros((*leading, self._steps, self._nu, self._nx), self._dtype)
        k = np.zeros((*leading, self._steps, self._nu), self._dtype)
        expected, ok = np.zeros((*leading, 2), self._dtype), np.ones(leading, bool)
        eye = np.eye(self._nu)
        for i in reversed(range(self._steps)):
            At, Bt = A[..., i, :, :].swapaxes(-1, -2), B[..., i, :, :].swapaxes(-1, -2)
            if gap is not None:
                v = v + _times(V, gap[..., i, :])
            VA, VB = V @ A[..., i, :, :], V @ B[..., i, :, :]
            Qx, Qu = lx[..., i, :] + _times(At, v), lu[..., i, :] + _times(Bt, v)
            Qxx, Qux, Quu = lxx[..., i, :, :] + At @ VA, lux[..., i, :, :] + Bt @ VA, luu[..., i, :, :] + Bt @ VB
            regular = Quu + mu[..., None, None] * eye
            regular, fine = _positive(regular)
            ok &= fine
            if self._box:
                assert lower is not None and upper is not None
                step, free = _in_box(regular, Qu, lower[..., i, :], upper[..., i, :])
                masked = np.where(free[..., :, None] & free[..., None, :], regular, eye)
                gain = -np.linalg.solve(masked, np.where(free[..., None], Qux, 0.0))
            else:
                both = -np.linalg.solve(regular, np.concatenate((Qu[..., None], Qux), axis=-1))
                step, gain = both[..., 0], both[..., 1:]
            k[..., i, :], K[..., i, :, :] = step, gain
            curved, gain_t = _times(Quu, step), gain.swapaxes(-1, -2)
            expected[..., 0] += (step * Qu).sum(-1)
            expected[..., 1] += 0.5 * (step * curved).sum(-1)
            v = Qx + _times(gain_t, curved + Qu) + _times(Qux.swapaxes(-1, -2), step)
            cross = gain_t @ Qux
            V = Qxx + gain_t @ Quu @ gain + cross + cross.swapaxes(-1, -2)
            V = 0.5 * (V + V.swapaxes(-1, -2))
        return k, K, expected, ok


def _times(matrix: Array, vector: Array) -> Array:
    result: Array = (matrix @ vector[..., None])[..., 0]
    return result


def _positive(matrix: Array) -> tuple[Array, Array]:
    """The matrices, with the identity in place of those that are not positive definite, and which are."""
    try:
        with np.errstate(invalid="ignore"):
            np.linalg.cholesky(matrix)
        fine: Array = np.asarray(np.isfinite(matrix).all(axis=(-1, -2)))
        if fine.all():
            return matrix, fine
    except np.linalg.LinAlgError:
        pass
    fine = np.asarray(np.isfinite(matrix).all(axis=(-1, -2)))
    safe = np.where(fine[..., None, None], matrix, -np.eye(matrix.shape[-1]))
    fine = np.linalg.eigvalsh(safe)[..., 0] > 0.0
    return np.where(fine[..., None, None], matrix, np.eye(matrix.shape[-1])), fine


def _in_box(H: Array, g: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """The minimum of 1/2 x' H x + g' x between bounds, and which entries are not at one: projected Newton."""
    eye, x = np.eye(g.shape[-1]), np.clip(np.zeros_like(g), lower, upper)
    scale = _BOX_TOLERANCE * np.maximum(1.0, np.abs(g).max(axis=-1, initial=0.0))
    for _ in range(_BOX_STEPS):
        slope = g + _times(H, x)
        free = ~(((x <= lower) & (slope > 0.0)) | ((x >= upper) & (slope < 0.0)))
        left = np.where(free, slope, 0.0)
        going = np.abs(left).max(axis=-1, initial=0.0) > scale
        if not going.any():
            break
        masked = np.where(free[..., :, None] & free[..., None, :], H, eye)
        direction = -np.linalg.solve(masked, left[..., None])[..., 0]
        size, now = np.where(going, 1.0, 0.0), 0.5 * (x * _times(H, x)).sum(-1) + (g * x).sum(-1)
        for _ in range(20):
            tried = np.clip(x + size[..., None] * direction, lower, upper)
            value = 0.5 * (tried * _times(H, tried)).sum(-1) + (g * tried).sum(-1)
            bad = value - now > 0.1 * (slope * (tried - x)).sum(-1)
            if not bad.any():
                break
            size = np.where(bad, 0.5 * size, size)
        x = np.where(going[..., None], tried, x)
    return x, free
