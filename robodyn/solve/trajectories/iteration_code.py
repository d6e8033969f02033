"""One iteration of single shooting as loops: kernels one after another, then what has become of each problem.

    void kernel(ptr round, i64 first, i64 last, ptr workspace)

Some problems at a time go through all kernels, so that their arrays stay in the cache.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from robodyn.compile.llvm.straight_line import attributes
from robodyn.compile.llvm.target import Target
from robodyn.compile.loops.language import Address, Array, Byte, Scalar, Word, array, call, chosen, copy, routine
from robodyn.compile.loops.llvm import printed_module
from robodyn.solve.trajectories.backward_code import types
from robodyn.solve.trajectories.shooting import ARMIJO, LEAST_MU

TAKEN, DONE, FAILED, SHORTER = range(4)
"""What becomes of a problem: its step is taken; it has converged; the backward pass failed, or states are not finite;
the step does not lower the cost enough."""


class Piece(ctypes.Structure):
    """A kernel, its argument table, and the rows to call it for: 0 for those of the problems."""

    _fields_ = (("kernel", ctypes.c_void_p), ("table", ctypes.c_void_p), ("rows", ctypes.c_int64))


class Copied(ctypes.Structure):
    """A copy of a problem's part of an array, in bytes. `always`: not only if its step is taken, but if the backward
    pass did not fail."""

    _fields_ = (
        ("to", ctypes.c_void_p),
        ("source", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("always", ctypes.c_int64),
    )


class Round(ctypes.Structure):
    """Pieces and copies, and how many; problems at a time; numbers of knots, coordinates and velocities; arrays of
    problems: costs of knots, states of a roll-out, costs, what becomes of the problems, and results of backward passes,
    no addresses without a backward pass; the tolerance of convergence."""

    _fields_ = (
        ("pieces", ctypes.POINTER(Piece)),
        ("copies", ctypes.POINTER(Copied)),
        *((name, ctypes.c_int64) for name in ("n_pieces", "n_copies", "block", "knots", "nq", "nv")),
        *((name, ctypes.c_void_p) for name in ("costs", "q", "qd", "cost", "outcome", "mu", "expected", "ok")),
        ("tolerance", ctypes.c_double),
    )


def module_text(target: Target) -> str:
    """The module."""
    dtype: np.dtype[Any] = np.dtype(np.float64)
    return printed_module(
        ("iteration", target),
        types(dtype, target, several=False),
        lambda module: module.export(kernel, "kernel"),
        attributes(target),
    )


@routine
def kernel(given: Array[Round], first: Word, last: Word, workspace: Address) -> None:
    """All pieces for some problems at a time."""
    row = first
    while row < last:
        stop = min(row + given.block, last)
        for k in range(given.n_pieces):
            piece = given.pieces[k]
            own = piece.rows == 0
            call(None, piece.kernel, piece.table, chosen(own, row, 0), chosen(own, stop, piece.rows), workspace)
        for problem in range(row, stop):
            settle(given, problem)
        row = stop


@routine
def settle(given: Array[Round], row: Word) -> None:
    """Decide what becomes of a problem."""
    knots, last = given.knots, given.knots - 1
    costs = array(Scalar, given.costs) + row * knots
    q, qd = array(Scalar, given.q), array(Scalar, given.qd)
    q, qd = q + (row * knots + last) * given.nq, qd + (row * knots + last) * given.nv
    total: Scalar = costs[0]
    for k in range(1, knots):
        total = total + costs[k]
    rest: Scalar = 0.0 * q[0]  # what is not finite at a knot is not so at the last one
    for k in range(given.nq):
        rest = rest + 0.0 * q[k]
    for k in range(given.nv):
        rest = rest + 0.0 * qd[k]
    total = total + rest
    cost, outcome = array(Scalar, given.cost) + row, TAKEN
    if given.ok == 0:
        if total - total != 0.0:  # NaN or infinite
            outcome = FAILED
    else:
        expected, mu = array(Scalar, given.expected) + row * 2, array(Scalar, given.mu) + row
        change, size = expected[0] + expected[1], chosen(cost[0] < 0.0, -cost[0], cost[0])
        if array(Byte, given.ok + row)[0] == 0:
            outcome = FAILED
            mu[0] = chosen(10.0 * mu[0] < LEAST_MU, LEAST_MU, 10.0 * mu[0])
        else:
            copy_some(given, row, 1)
            least = chosen(ARMIJO * change < 0.0, ARMIJO * change, 0.0 * change)
            if chosen(change < 0.0, -change, change) <= given.tolerance * size and mu[0] <= LEAST_MU:
                outcome = DONE
            elif total - cost[0] <= least:  # not for NaN
                mu[0] = chosen(mu[0] < LEAST_MU, 0.0 * mu[0], 0.1 * mu[0])
            else:
                outcome = SHORTER
    if outcome == TAKEN:
        copy_some(given, row, 0)
        cost[0] = total
    array(Word, given.outcome)[row] = outcome


@routine
def copy_some(given: Array[Round], row: Word, always: Word) -> None:
    """The copies of one kind."""
    for k in range(given.n_copies):
        each = given.copies[k]
        if each.always == always:
            copy(each.to + row * each.size, each.source + row * each.size, each.size)
