"""Symmetric block tri-diagonal systems of many segments at once: odd-even elimination, and a sequential factorisation.

Blocks are arrays (rows, columns, n, ...): n of them one after another, then the batch, so that an operation on entries
is one on arrays however many blocks there are. Symmetric blocks are factorised as L diag(d) L' without square roots;
values that are not finite stay in their rows of the batch.

What is done to blocks is written once, up to `taken`. Steps over scalars use it on blocks (rows, columns) of scalars
(`block`), and the kernels that solve systems on a GPU (`robodyn.engines.scan.cuda.elimination`) are printed from it.
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
    """A block (rows, columns) of scalars of any kind, row by row."""
    given = tuple(scalars)
    found = np.empty(len(given), object)
    for k, scalar in enumerate(given):
        found[k] = scalar
    return found.reshape(-1, columns)


def lower(diagonal: Iterable[Any], below: Iterable[Any]) -> Array:
    """A lower triangle (k, k) of scalars, of its diagonal and what is below that, row by row."""
    on, under = tuple(diagonal), tuple(below)
    found = np.zeros((len(on), len(on)), object)
    found[np.diag_indices(len(on))] = block(on, 1).ravel()
    found[np.tril_indices(len(on), -1)] = block(under, 1).ravel()
    return found


def below(L: Array) -> tuple[Any, ...]:
    """What is below the diagonal of a block of scalars, row by row."""
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
    """(L, d) with D = L diag(d) L' of symmetric blocks (k, k, ...): unit lower triangles (k, k, ...), and (k, ...).

    Only the lower triangle of D is read: rounding of the upper one cannot break the symmetry.
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
    """D^-1 R of D = L diag(d) L', with weights 1 / d (k, ...)."""
    return back_substituted(L, weights[:, None] * forward_substituted(L, R))


def less(A: Any, left: Array, right: Array) -> Array:
    """A - left' right."""
    found: Array = A - transposed_times(left, right)
    return found


def taken(A: Any, left: Array, right: Array, weights: Array) -> Array:
    """A - left' D^-1 right of D = L diag(d) L': left and right come as L^-1 left and L^-1 right, with weights 1 / d."""
    return less(A, left, weights[:, None] * right)


# Systems.


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
        found, weights = forward_substituted(L, np.concatenate((U, upward, R), axis=1)), 1.0 / d
        P, Q, rest = found[:, :k], found[:, k : 2 * k], found[:, 2 * k :]
        for these, to, couplings in ((down, down + distance, P), (up, up - distance, Q)):
            left, weight = couplings[:, :, these], weights[:, these]
            D[:, :, to] = taken(D[:, :, to], left, left, weight)
            R[:, :, to] = taken(R[:, :, to], left, rest[:, :, these], weight)
        U[:, :, up - distance] = taken(0.0, Q[:, :, up], P[:, :, up], weights[:, up])
        distance *= 2
    L, d = factor(D)
    return solved(L, 1.0 / d, R)


def direct(D: Array, U: Array, R: Array, segments: Segments) -> Array:
    """The same by a block L D L' factorisation along each segment, one block of every segment after the other.

    Raises:
        UnavailableError: for arrays on a device.
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
    """By how much the right-hand sides differ from what a solution X (k, c, n, ...) gives."""
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
    """Odd-even elimination, and once more for the residual it leaves.

    It takes every block out of both its neighbours, like Gauss-Jordan elimination, which leaves larger residuals than a
    factorisation; one step of iterative refinement brings them down to those of `direct`.
    """
    X = odd_even(D, U, R, segments)
    return X + odd_even(D, U, residual(D, U, R, X, segments), segments)


SOLVERS: dict[str, Callable[[Array, Array, Array, Segments], Array]] = {
    "odd_even": odd_even,
    "odd_even_refined": odd_even_refined,
    "direct": direct,
}
