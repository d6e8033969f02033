"""Batched dense solves with joint-space inertia matrices, vectorised over the batch.

H = L' D L from the last row to the first (RBDA section 6.5): there are no square roots, and zeros of branches stay
zeros. A state with NaN, or a singular one, does not affect other states.
"""

from __future__ import annotations

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.internals.tuning import DENSE_CHUNK_SCALARS


def ltdl(H: Array) -> tuple[Array, Array]:
    """L (..., n, n) unit lower triangular and d (..., n) with H = L' diag(d) L."""
    n = H.shape[-1]
    L, d = H.copy(), np.empty_like(H, shape=H.shape[:-1])
    for k in range(n - 1, -1, -1):
        d[..., k] = L[..., k, k]
        row = L[..., k, :k]
        scaled = row / d[..., k, None]
        L[..., :k, :k] -= scaled[..., :, None] * row[..., None, :]
        L[..., k, :k] = scaled
        L[..., k, k] = 1.0
        L[..., k, k + 1 :] = 0.0
    return L, d


def pivots_with_error(H: Array, size: Array, tolerance: float) -> tuple[Array, Array]:
    """The pivots d (..., n) of H = L' diag(d) L (..., n, n), and bounds of their errors.

    With p_k the column k of L^-1, d_k = p_k' H p_k: an error of H_ij of at most sqrt(size_i size_j) changes d_k by at
    most (sum of |p_ki| sqrt(size_i))^2. A degree of freedom whose pivot is at most `tolerance` times that bound counts
    as locked for those before it.
    """
    n = H.shape[-1]
    left, motions, root = H.copy(), np.broadcast_to(np.eye(n), H.shape).copy(), np.sqrt(np.abs(size))
    d, error = np.empty((2, *size.shape))
    for k in range(n - 1, -1, -1):
        d[..., k], error[..., k] = left[..., k, k], (np.abs(motions[..., k, :]) * root).sum(axis=-1) ** 2
        free = np.abs(d[..., k]) > tolerance * error[..., k]
        share = np.where(free, 1.0 / np.where(free, d[..., k], 1.0), 0.0)[..., None] * left[..., k, :k]
        left[..., :k, :k] -= share[..., :, None] * left[..., k, None, :k]
        motions[..., :k, :] -= share[..., :, None] * motions[..., k, None, :]
    return d, error


def solve(H: Array, b: Array) -> Array:
    """H^-1 b for H (B, n, n) and b (B, n, m)."""
    out = np.empty_like(b)
    rows = max(1, DENSE_CHUNK_SCALARS // max(1, H.shape[-1] ** 2))
    with np.errstate(all="ignore"):
        for start in range(0, H.shape[0], rows):
            piece = slice(start, start + rows)
            out[piece] = _solve_piece(H[piece], b[piece])
    return out


def _solve_piece(H: Array, b: Array) -> Array:
    n = H.shape[-1]
    L, d = ltdl(H)
    x = b.copy()
    for k in range(n - 1, -1, -1):
        x[:, :k] -= L[:, k, :k, None] * x[:, k, None]
    x /= d[..., None]
    for k in range(n):
        x[:, k] -= (L[:, k, :k, None] * x[:, :k]).sum(axis=1)
    return x
