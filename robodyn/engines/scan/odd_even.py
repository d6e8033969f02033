"""Symmetric block tri-diagonal systems of many segments at once: odd-even elimination, and a sequential factorisation.

Blocks are arrays (rows, columns, n, ...): n of them one after another, then the batch, so that an operation on entries
is one on arrays however many blocks there are. Symmetric blocks are factorised as L diag(d) L' without square roots;
values that are not finite stay in their rows of the batch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from robodyn.arguments import Array
from robodyn.engines.scan.kernels import Segments


def times(A: Array, B: Array) -> Array:
    """A B of blocks (r, s, ...) and (s, c, ...)."""
    total: Array = A[:, 0][:, None] * B[0][None]
    for k in range(1, A.shape[1]):
        total += A[:, k][:, None] * B[k][None]
    return total


def transposed_times(A: Array, B: Array) -> Array:
    """A' B of blocks (s, r, ...) and (s, c, ...)."""
    return times(A.swapaxes(0, 1), B)


def factor(D: Array) -> tuple[Array, Array]:
    """(L, d) with D = L diag(d) L' of symmetric blocks (k, k, ...): unit lower triangles (k, k, ...), and (k, ...).

    Only the lower triangle of D is read: rounding of the upper one cannot break the symmetry.
    """
    L, rest = np.zeros_like(D), D.copy()
    for k in range(len(D)):
        L[k:, k] = rest[k:, k] / rest[k, k]
        rest[k + 1 :, k + 1 :] -= L[k + 1 :, k][:, None] * rest[k + 1 :, k][None]
    return L, np.ascontiguousarray(np.diagonal(rest).transpose(-1, *range(rest.ndim - 2)))


def forward_substituted(L: Array, B: Array) -> Array:
    """L^-1 B of blocks (k, k, ...) and (k, c, ...)."""
    X = B.copy()
    for k in range(len(L) - 1):
        X[k + 1 :] -= L[k + 1 :, k][:, None] * X[k][None]
    return X


def back_substituted(L: Array, B: Array) -> Array:
    """L'^-1 B."""
    X = B.copy()
    for k in range(len(L) - 1, 0, -1):
        X[:k] -= L[k, :k][:, None] * X[k][None]
    return X


def odd_even(D: Array, U: Array, R: Array, segments: Segments) -> Array:
    """X (k, c, n, ...) with U_{i-1}' X_{i-1} + D_i X_i + U_i X_{i+1} = R_i within each segment.

    Odd-even elimination (Yang, Wu and Pan, A Novel GPU-based Parallel Implementation Scheme, 2016, algorithm 2): a step
    takes the neighbours at a distance out of all equations at once, which leaves couplings at twice the distance; after
    ceil(log2 of the longest segment) of them none is left. With D_i = L d L', P = L^-1 U_i and Q = L^-1 U_{i-s}', what
    body i takes from the diagonal blocks on either side are the symmetric P'P/d and Q'Q/d, and -Q'P/d couples them.

    Args:
        D: symmetric diagonal blocks (k, k, n, ...).
        U: (k, k, n, ...), which couple blocks i and i + 1; those of the last block of a segment are not used.
        R: right-hand sides (k, c, n, ...).
        segments: which blocks make a system.
    """
    D, U, R = D.copy(), U.copy(), R.copy()
    k, distance, longest = len(D), 1, int(segments.lengths.max(initial=0))
    before = segments.position
    after = np.repeat(segments.lengths, segments.lengths) - 1 - before
    while distance < longest:
        above, below = np.flatnonzero(before >= distance), np.flatnonzero(after >= distance)
        U[:, :, after < distance] = 0.0
        lower = np.zeros_like(U)
        lower[:, :, above] = U[:, :, above - distance].swapaxes(0, 1)
        L, d = factor(D)
        found = forward_substituted(L, np.concatenate((U, lower, R), axis=1))
        P, Q, rest = found[:, :k], found[:, k : 2 * k], found[:, 2 * k :]
        scaled = found / d[:, None]
        P_scaled, Q_scaled = scaled[:, :k], scaled[:, k : 2 * k]
        down, up = below + distance, above - distance
        D[:, :, down] -= transposed_times(P_scaled[:, :, below], P[:, :, below])
        D[:, :, up] -= transposed_times(Q_scaled[:, :, above], Q[:, :, above])
        R[:, :, down] -= transposed_times(P_scaled[:, :, below], rest[:, :, below])
        R[:, :, up] -= transposed_times(Q_scaled[:, :, above], rest[:, :, above])
        U[:, :, up] = -transposed_times(Q_scaled[:, :, above], P[:, :, above])
        distance *= 2
    L, d = factor(D)
    return back_substituted(L, forward_substituted(L, R) / d[:, None])


def direct(D: Array, U: Array, R: Array, segments: Segments) -> Array:
    """The same by a block L D L' factorisation along each segment, one block of every segment after the other."""
    longest_first = np.argsort(-segments.lengths, kind="stable")
    starts, lengths = segments.starts[longest_first], segments.lengths[longest_first]
    places = [starts[: int((lengths > step).sum())] + step for step in range(int(lengths.max(initial=0)))]
    factors: list[tuple[Array, Array, Array, Array]] = []
    X = np.empty_like(R)
    for step, rows in enumerate(places):
        block, right = D[:, :, rows], R[:, :, rows]
        if step:
            couplings, values = (part[:, :, : rows.size] for part in factors[-1][2:])
            scaled = couplings / factors[-1][1][:, None, : rows.size]
            block = block - transposed_times(scaled, couplings)
            right = right - transposed_times(scaled, values)
        L, d = factor(block)
        factors.append((L, d, forward_substituted(L, U[:, :, rows]), forward_substituted(L, right)))
    for step in range(len(places) - 1, -1, -1):
        L, d, couplings, values = factors[step]
        if step + 1 < len(places):
            behind = places[step + 1]
            values[:, :, : behind.size] -= times(couplings[:, :, : behind.size], X[:, :, behind])
        X[:, :, places[step]] = back_substituted(L, values / d[:, None])
    return X


def odd_even_refined(D: Array, U: Array, R: Array, segments: Segments) -> Array:
    """Odd-even elimination, and once more for the residual it leaves.

    It takes every block out of both its neighbours, like Gauss-Jordan elimination, which leaves larger residuals than a
    factorisation; one step of iterative refinement brings them down to those of `direct`.
    """
    X = odd_even(D, U, R, segments)
    inner = np.flatnonzero(segments.position > 0)
    before = inner - 1
    rest = R - times(D, X)
    rest[:, :, before] -= times(U[:, :, before], X[:, :, inner])
    rest[:, :, inner] -= transposed_times(U[:, :, before], X[:, :, before])
    return X + odd_even(D, U, rest, segments)


SOLVERS: dict[str, Callable[[Array, Array, Array, Segments], Array]] = {
    "odd_even": odd_even,
    "odd_even_refined": odd_even_refined,
    "direct": direct,
}
