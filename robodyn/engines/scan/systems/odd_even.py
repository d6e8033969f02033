"""Solvers of symmetric block tri-diagonal systems, many at once: odd-even elimination and sequential factorisation.

Blocks are arrays (rows, columns, n, ...) with n blocks and the batch on the last axes, so an operation on an entry is
one array operation for all blocks. Symmetric blocks are factorised as L diag(d) L' without square roots. Non-finite
values affect only their own rows of the batch.

The algebra of single blocks, up to `taken`, is written once. Steps over scalars use it on blocks (rows, columns) of
scalars (`block`). The GPU kernels (`robodyn.engines.scan.cuda.elimination`) are generated from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from robodyn.engines.scan.elements import device_of
from robodyn.engines.scan.trees.prefix_scans import Segments
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError


def block(scalars: Iterable[Any], columns: int) -> Array:
    """A block (rows, columns) of scalars of any type, given row by row."""
    entries = tuple(scalars)
    blocks = np.empty(len(entries), object)
    for k, scalar in enumerate(entries):
        blocks[k] = scalar
    return blocks.reshape(-1, columns)


def lower(diagonal: Iterable[Any], below: Iterable[Any]) -> Array:
    """A lower triangle (k, k) of scalars, from its diagonal and the entries below it, row by row."""
    on, under = tuple(diagonal), tuple(below)
    triangle = np.zeros((len(on), len(on)), object)
    triangle[np.diag_indices(len(on))] = block(on, 1).ravel()
    triangle[np.tril_indices(len(on), -1)] = block(under, 1).ravel()
    return triangle


def below(L: Array) -> tuple[Any, ...]:
    """The entries below the diagonal of a block of scalars, row by row."""
    return tuple(L[np.tril_indices(len(L), -1)])


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
    """(L, d) with D = L diag(d) L' for symmetric blocks D (k, k, ...): unit lower triangles (k, k, ...), and (k, ...).

    Only the lower triangle of D is read, so rounding errors of the upper one have no effect.
    """
    L, rest = np.zeros_like(D), D.copy()
    for k in range(len(D)):
        L[k:, k] = rest[k:, k] / rest[k : k + 1, k]
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


def solved(L: Array, weights: Array, R: Array) -> Array:
    """D^-1 R for D = L diag(d) L', with weights 1 / d (k, ...)."""
    return back_substituted(L, weights[:, None] * forward_substituted(L, R))


def less(A: Any, left: Array, right: Array) -> Array:
    """A - left' right."""
    difference: Array = A - transposed_times(left, right)
    return difference


def taken(A: Any, left: Array, right: Array, weights: Array) -> Array:
    """A - left' D^-1 right for D = L diag(d) L'. The arguments are L^-1 left, L^-1 right, and weights 1 / d."""
    return less(A, left, weights[:, None] * right)


# Systems.


def odd_even(D: Array, U: Array, R: Array, segments: Segments) -> Array:
    """X (k, c, n, ...) with U_{i-1}' X_{i-1} + D_i X_i + U_i X_{i+1} = R_i within each segment.

    Odd-even elimination (Yang, Wu and Pan, A Novel GPU-based Parallel Implementation Scheme, 2016, algorithm 2): each
    step eliminates the neighbours at distance s from all equations at once and leaves couplings at distance 2 s. After
    ceil(log2 of the longest segment) steps no couplings are left. With D_i = L d L', P = L^-1 U_i and Q = L^-1
    U_{i-s}', body i subtracts the symmetric P'P/d and Q'Q/d from the diagonal blocks of its neighbours, and couples
    them by -Q'P/d.

    Args:
        D: symmetric diagonal blocks (k, k, n, ...).
        U: (k, k, n, ...), couplings of blocks i and i + 1; that of a segment's last block is not used.
        R: right-hand sides (k, c, n, ...).
        segments: the systems; each segment of blocks is one.
    """
    device = device_of(D)
    if device is not None:
        return device.systems.solved(D, U, R, segments)
    D, U, R = D.copy(), U.copy(), R.copy()
    k, distance, longest = len(D), 1, int(segments.lengths.max(initial=0))
    before, after = segments.position, segments.left
    while distance < longest:
        down, up = np.flatnonzero(after >= distance), np.flatnonzero(before >= distance)
        U[:, :, after < distance] = 0.0
        upward = np.zeros_like(U)
        upward[:, :, up] = U[:, :, up - distance].swapaxes(0, 1)
        L, d = factor(D)
        reduced, weights = forward_substituted(L, np.concatenate((U, upward, R), axis=1)), 1.0 / d
        P, Q, rest = reduced[:, :k], reduced[:, k : 2 * k], reduced[:, 2 * k :]
        for these, to, couplings in ((down, down + distance, P), (up, up - distance, Q)):
            left, weight = couplings[:, :, these], weights[:, these]
            D[:, :, to] = taken(D[:, :, to], left, left, weight)
            R[:, :, to] = taken(R[:, :, to], left, rest[:, :, these], weight)
        U[:, :, up - distance] = taken(0.0, Q[:, :, up], P[:, :, up], weights[:, up])
        distance *= 2
    L, d = factor(D)
    return solved(L, 1.0 / d, R)


def direct(D: Array, U: Array, R: Array, segments: Segments) -> Array:
    """Solutions as of `odd_even`, by a block L D L' factorisation along each segment, sequential in blocks.

    Raises:
        UnavailableError: the arrays are on a device.
    """
    if device_of(D) is not None:
        raise UnavailableError(
            "constraint_solver: 'direct' takes the blocks of a path one after another, which leaves a GPU idle, and is "
            "for NumPy arrays; on a GPU there are 'odd_even' and, with residuals like its own, 'odd_even_refined'"
        )
    longest_first = np.argsort(-segments.lengths, kind="stable")
    starts, lengths = segments.starts[longest_first], segments.lengths[longest_first]
    places = [starts[: int((lengths > step).sum())] + step for step in range(int(lengths.max(initial=0)))]
    factors: list[tuple[Array, Array, Array, Array]] = []
    X = np.empty_like(R)
    for step, rows in enumerate(places):
        diagonal, right = D[:, :, rows], R[:, :, rows]
        if step:
            couplings, values = (part[:, :, : rows.size] for part in factors[-1][2:])
            scaled = couplings / factors[-1][1][:, None, : rows.size]
            diagonal = diagonal - transposed_times(scaled, couplings)
            right = right - transposed_times(scaled, values)
        L, d = factor(diagonal)
        factors.append((L, d, forward_substituted(L, U[:, :, rows]), forward_substituted(L, right)))
    for step in range(len(places) - 1, -1, -1):
        L, d, couplings, values = factors[step]
        if step + 1 < len(places):
            behind = places[step + 1]
            values[:, :, : behind.size] -= times(couplings[:, :, : behind.size], X[:, :, behind])
        X[:, :, places[step]] = back_substituted(L, values / d[:, None])
    return X


def residual(D: Array, U: Array, R: Array, X: Array, segments: Segments) -> Array:
    """The residual of a solution X (k, c, n, ...): the right-hand sides minus the left-hand sides."""
    device = device_of(D)
    if device is not None:
        return device.systems.residual(D, U, R, X, segments)
    inner = np.flatnonzero(segments.position > 0)
    before = inner - 1
    rest = less(R, D, X)
    rest[:, :, before] = less(rest[:, :, before], U[:, :, before].swapaxes(0, 1), X[:, :, inner])
    rest[:, :, inner] = less(rest[:, :, inner], U[:, :, before], X[:, :, before])
    return rest


def odd_even_refined(D: Array, U: Array, R: Array, segments: Segments) -> Array:
    """Odd-even elimination, and one step of iterative refinement.

    Odd-even elimination eliminates every block from both its neighbours, like Gauss-Jordan elimination. This leaves
    larger residuals than a factorisation. The refinement reduces them to those of `direct`.
    """
    X = odd_even(D, U, R, segments)
    return X + odd_even(D, U, residual(D, U, R, X, segments), segments)


SOLVERS: dict[str, Callable[[Array, Array, Array, Segments], Array]] = {
    "odd_even": odd_even,
    "odd_even_refined": odd_even_refined,
    "direct": direct,
}
