"""Whole-body control of one state after another, from the numbers of `robodyn.solve.whole_body.terms`.

    void kernel(ptr table, i64 first, i64 last, ptr workspace)

Equations are eliminated (`robodyn.solve.whole_body.elimination`): x = p + Z u fulfils them for all u.

For every priority, the highest first, the dual active set of `robodyn.solve.quadratic` finds the u that fulfils the
tasks of this priority best. Then their values are equations, and the same elimination gives the Z of the next one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from robodyn.compile.llvm.straight_line import attributes
from robodyn.compile.llvm.target import Target
from robodyn.compile.loops.language import (
    Address,
    Array,
    Scalar,
    Vector,
    Word,
    address,
    array,
    chosen,
    clear,
    fma,
    lanes_of,
    local,
    routine,
    spread,
)
from robodyn.compile.loops.llvm import printed_module
from robodyn.compile.loops.table import Argument
from robodyn.solve.quadratic.code import INFEASIBLE, INVALID, SOLVED, solve
from robodyn.solve.quadratic.factors import (
    FREE,
    LEFT_OUT,
    Work,
    add,
    close,
    padded,
    place_arrays,
    product,
    root,
    total,
    types,
)
from robodyn.solve.quadratic.factors import workspace_bytes as of_quadratic
from robodyn.solve.whole_body.elimination import AGREES, Robot, State, descend, eliminate, products

_CONSTANT = 1e-26
"""Square of a reduced row, relative to the whole one, below which its value does not depend on u."""
_HUGE, _NAN, _INFINITY = 1e300, math.nan, math.inf
RESIDUALS = ("stationarity", "dynamics", "contacts", "violation")
"""Residuals of a state, see `robodyn.WholeBodyReport`."""


def module_text(target: Target) -> str:
    """The module for a target."""
    facts = "whole body", target
    return printed_module(
        facts, types(np.dtype(np.float64), target), lambda module: module.export(kernel, "kernel"), attributes(target)
    )


# The programme of one priority.


@routine
def least_squares(
    robot: Array[Robot], state: Array[State], work: Array[Work], terms: Array[Scalar], level: Word
) -> None:
    """Rows of A, of tasks, then of postures and regularisation; H = A'A, and g."""
    n, line, Z, end = state.free, state.line, state.Z, state.line // lanes_of(Vector)
    begin = 0
    for k in range(level):
        begin = begin + robot.rows[k]
    rows, nv = robot.rows[level], robot.nv
    products(work.A, terms + robot.at_A + begin * robot.line_A, robot.line_A, 1, rows, Z, nv, line)
    for k in range(rows):
        row = work.A + k * line
        state.values[k] = row[n] - terms[robot.at_a + begin + k]
        row[n] = spread(Scalar, 0.0)
    roots, pull = robot.roots + level * robot.unknowns, terms + robot.at_pull + level * robot.line_pull
    for i in range(robot.unknowns):
        row, given, share = work.A + (rows + i) * line, array(Vector, Z + i * line), spread(Vector, roots[i])
        for v in range(end):
            array(Vector, row)[v] = given[v] * share
        left = row[n]
        if i < nv:
            left = left - pull[i]
        state.values[rows + i] = left
        row[n] = spread(Scalar, 0.0)
    products(work.g, state.values, 0, 1, 1, work.A, work.rows, line)
    products(work.H, work.A, 1, line, n, work.A, work.rows, line)
    for v in range(end):
        array(Vector, state.g)[v] = array(Vector, work.g)[v]


@routine
def bound(state: Array[State], work: Array[Work], k: Word, lower: Scalar, upper: Scalar, whole: Scalar) -> Word:
    """Give the row k of C, with p's part in column `free`, the length one, and its bounds; returns 0 if it is constant
    and beyond them. `whole`: squared length of the row over x."""
    n, end, row = state.free, state.line // lanes_of(Vector), work.C + k * state.line
    value, at, held = row[n], state.free + k, 1
    vectors, mask, sums = array(Vector, row), array(Vector, state.mask), spread(Vector, 0.0)
    for v in range(end):
        part = vectors[v] * mask[v]
        sums = fma(part, part, sums)
    squared = total(sums)
    work.status[at], work.norm[at] = spread(Scalar, FREE), spread(Scalar, 1.0)
    work.lower[at], work.upper[at] = lower - value, upper - value
    if squared > _CONSTANT * whole:
        norm = root(squared)
        share = 1.0 / norm
        for v in range(end):
            vectors[v] = vectors[v] * (mask[v] * spread(Vector, share))
        work.norm[at] = norm
        work.lower[at], work.upper[at] = (lower - value) * share, (upper - value) * share
    else:
        clear(row, 8 * state.line)
        most = AGREES * (chosen(value < 0.0, -value, value) + 1.0)
        held = chosen(lower - value > most, 0, chosen(value - upper > most, 0, 1))
        work.status[at] = spread(Scalar, LEFT_OUT)
        work.lower[at], work.upper[at] = spread(Scalar, -_INFINITY), spread(Scalar, _INFINITY)
    return held


@routine
def inequalities(robot: Array[Robot], state: Array[State], work: Array[Work], terms: Array[Scalar]) -> Word:
    """Pyramids of friction and limits of torques; returns 0 if one cannot hold."""
    line, Z, end, nv, held = state.line, state.Z, state.line // lanes_of(Vector), robot.nv, 1
    clear(state.mask, 8 * line)
    for i in range(state.free):
        state.mask[i] = spread(Scalar, 1.0)
    k, every = 0, state.products
    products(every, terms + robot.at_W, robot.line_W, 1, nv, Z, robot.unknowns, line)
    for foot in range(robot.feet):
        if state.on[3 * foot] != 0.0:
            normal = Z + (nv + 3 * foot) * line
            one, other = normal + line, normal + 2 * line
            mu, nu = robot.friction[2 * foot], robot.friction[2 * foot + 1]
            for side in range(4):
                # |f_1| / mu + |f_2| / nu <= f_0, times mu nu
                row = work.C + k * line
                clear(row, 8 * line)
                add(row, nu if side % 2 == 0 else -nu, one, 0, end)
                add(row, mu if side // 2 == 0 else -mu, other, 0, end)
                add(row, -mu * nu, normal, 0, end)
                whole = mu * mu + nu * nu + mu * nu * mu * nu
                fits = bound(state, work, k, spread(Scalar, -_INFINITY), spread(Scalar, 0.0), whole)
                held = min(held, fits)
                k = k + 1
    for i in range(nv):
        limit = robot.limit[i]
        if limit < _HUGE:
            W, bias = terms + robot.at_W + i * robot.line_W, terms[robot.at_bias + i]
            given, row = array(Vector, every + i * line), array(Vector, work.C + k * line)
            for v in range(end):
                row[v] = given[v]
            whole = product(W, W, 0, padded(robot.unknowns) // lanes_of(Vector))
            fits = bound(state, work, k, -limit - bias, limit - bias, whole)
            held = min(held, fits)
            k = k + 1
    close(work, k)
    return held


@routine
def programme(robot: Array[Robot], state: Array[State], work: Array[Work], terms: Array[Scalar], level: Word) -> Word:
    """Solve for one priority: x becomes p + Z u; returns what became of it."""
    n, line, end = state.free, state.line, state.line // lanes_of(Vector)
    work.slack, work.loose, work.independent, work.scale = robot.slack, robot.loose, robot.independent, robot.scale
    work.n, work.m, work.padded, work.most, work.count = n, 4 * robot.feet + robot.nv, line, robot.most, 0
    work.first, work.rows = work.n, robot.rows[level] + robot.unknowns
    place_arrays(work, state.quadratic)
    least_squares(robot, state, work, terms, level)
    held, outcome = inequalities(robot, state, work, terms), INFEASIBLE
    if held > 0:
        clear(work.u, 8 * line)
        clear(work.r, 8 * line)
        clear(work.z, 8 * line)
        outcome = solve(work, squares=False)
        if outcome == SOLVED:
            work.x[n] = spread(Scalar, 1.0)
            for i in range(robot.unknowns):
                state.x[i] = product(state.Z + i * line, work.x, 0, end)
            work.x[n] = spread(Scalar, 0.0)
    return outcome


# Results.


def size_of_number(a: Scalar) -> Scalar:
    """|a|."""
    return chosen(a < 0.0, -a, a)


def largest(a: Scalar, b: Scalar) -> Scalar:
    """The larger of two numbers; NaN if b is."""
    return chosen(b <= a, a, b)


def larger(a: Scalar, b: Scalar) -> Scalar:
    """The larger of a and |b|; NaN if b is."""
    return largest(a, size_of_number(b))


@routine
def stationarity(state: Array[State], work: Array[Work]) -> Scalar:
    """The largest entry of the gradient less the rows that push, relative to that of the gradient at p."""
    end = state.line // lanes_of(Vector)
    gradient, given = work.z, state.g
    for v in range(end):
        array(Vector, gradient)[v] = array(Vector, given)[v]
    for k in range(work.rows):
        row = work.A + k * state.line
        add(gradient, product(row, work.x, 0, end), row, 0, end)
    for c in range(work.count):
        at = work.active[c] - work.n
        add(gradient, chosen(work.side[c] > 0, -work.u[c], work.u[c]), work.C + at * state.line, 0, end)
    found, size = spread(Scalar, 0.0), spread(Scalar, 1.0)
    for i in range(state.free):
        found, size = larger(found, gradient[i]), larger(size, given[i])
    return found / size


@routine
def equations_left(robot: Array[Robot], state: Array[State], terms: Array[Scalar], residuals: Array[Scalar]) -> None:
    """What the base's dynamics lack, and accelerations of feet that stand."""
    line = padded(robot.equations)
    left, feet = state.size, 3 * robot.feet
    clear(left, 8 * line)
    for i in range(robot.unknowns):
        add(left, state.x[i], terms + robot.at_E + i * robot.line_E, 0, line // lanes_of(Vector))
    still, balance = spread(Scalar, 0.0), spread(Scalar, 0.0)
    for k in range(feet):
        still = larger(still, state.on[k] * (left[k] + terms[robot.at_drift + k]))
    for k in range(robot.bases):
        balance = larger(balance, left[feet + k] + terms[robot.at_bias + robot.base[k]])
    residuals[1], residuals[2] = balance, still


@routine
def write(
    robot: Array[Robot],
    state: Array[State],
    terms: Array[Scalar],
    tau: Array[Scalar],
    qdd: Array[Scalar],
    f: Array[Scalar],
) -> Scalar:
    """Torques, accelerations and forces of a solution; returns by how much a pyramid or a limit is violated most."""
    x, nv, worst = state.x, robot.nv, spread(Scalar, 0.0)
    for i in range(nv):
        qdd[robot.order[i]] = x[i]
    for i in range(nv):
        W = terms + robot.at_W + i * robot.line_W
        tau[i] = terms[robot.at_bias + i] + product(W, x, 0, padded(robot.unknowns) // lanes_of(Vector))
        worst = largest(worst, size_of_number(tau[i]) - robot.limit[i])
    for k in range(robot.bases):
        tau[robot.base[k]] = spread(Scalar, 0.0)
    for foot in range(robot.feet):
        on, mu, nu = state.on[3 * foot], robot.friction[2 * foot], robot.friction[2 * foot + 1]
        for c in range(3):
            f[3 * foot + c] = on * x[nv + 3 * foot + c]
        push, one, other = f[3 * foot], f[3 * foot + 1], f[3 * foot + 2]
        worst = largest(worst, nu * size_of_number(one) + mu * size_of_number(other) - mu * nu * push)
    return worst


@routine
def control(
    robot: Array[Robot], state: Array[State], terms: Array[Scalar], ends: Array[Word], residuals: Array[Scalar]
) -> Word:
    """Solve all priorities of a state."""
    work = local(Work, 1)
    ends[1] = 0
    for k in range(4):
        residuals[k] = spread(Scalar, _NAN)
    outcome = INVALID
    if terms[robot.at_sound] <= _HUGE:
        outcome = chosen(eliminate(robot, state, terms) > 0, SOLVED, INFEASIBLE)
    level = 0
    while outcome == SOLVED and level < robot.levels:
        last = level + 1 == robot.levels
        outcome = programme(robot, state, work, terms, level)
        ends[1] = ends[1] + work.most
        if outcome == SOLVED:
            if last:
                residuals[0] = stationarity(state, work)
            else:
                descend(robot, state, work, level)
        level = level + 1
    return outcome


@routine
def kernel(table: Array[Argument], first: Word, last: Word, workspace: Address) -> None:
    """Torques, accelerations and forces for some rows.

    Entries of the table: terms; 1 where a foot stands, three numbers for each, and for every equation of the base; tau,
    qdd, f, ends, residuals; the robot.
    """
    robot, state = array(Robot, table[7].data), local(State, 1)
    place_state(robot, state, workspace)
    for row in range(first, last):
        terms, given, on = row_at(table, 0, row), row_at(table, 1, row), state.on
        for k in range(padded(robot.equations)):
            on[k] = spread(Scalar, 1.0)
        for k in range(robot.feet):
            for c in range(3):
                on[3 * k + c] = given[k]
        tau, qdd, f = row_at(table, 2, row), row_at(table, 3, row), row_at(table, 4, row)
        ends, residuals = array(Word, row_at(table, 5, row)), row_at(table, 6, row)
        outcome = control(robot, state, terms, ends, residuals)
        if outcome == SOLVED:
            equations_left(robot, state, terms, residuals)
            residuals[3] = write(robot, state, terms, tau, qdd, f)
            if not residuals[1] + residuals[2] + residuals[3] <= _HUGE:
                outcome = INVALID
        ends[0] = outcome
        if outcome != SOLVED:
            for k in range(4):
                residuals[k] = spread(Scalar, _NAN)
            for k in range(robot.nv):
                tau[k] = spread(Scalar, _NAN)
                qdd[k] = spread(Scalar, _NAN)
            for k in range(3 * robot.feet):
                f[k] = spread(Scalar, _NAN)


def row_at(table: Array[Argument], number: Word, row: Word) -> Array[Scalar]:
    """A row of an array in the table."""
    return array(Scalar, table[number].data + row * table[number].stride)


@routine
def place_state(robot: Array[Robot], state: Array[State], workspace: Address) -> None:
    """Give each array its memory."""
    n, at = robot.unknowns, array(Scalar, workspace)
    most = 0
    for k in range(robot.levels):
        most = max(most, robot.rows[k] + robot.nv)
    line, wide = padded(n + 1), padded(max(robot.equations, most))
    state.M = at
    at = at + n * max(wide, line)
    state.Z, state.other = at, at + n * line
    at = at + 2 * n * line
    state.entries = at
    at = at + (n + 1) * padded(n + 1)
    state.size, state.right, state.on = at, at + wide, at + 2 * wide
    at = at + 3 * wide
    state.x, state.y, state.scales, state.g = at, at + line, at + 2 * line, at + 3 * line
    clear(state.x, 8 * line)
    state.mask = at + 4 * line
    at = at + 5 * line
    state.values, state.products = at, at + padded(n + most)
    at = at + padded(n + most) + robot.nv * line
    state.places = array(Word, at)
    at = at + (n + 1) * padded(n + 1)
    state.counts = array(Word, at)
    at = at + line
    state.quadratic = address(at)


def workspace_bytes(robot: Any, rows: int, width: int) -> int:
    """Bytes of scratch memory for a `Robot` whose levels have at most `rows` rows of tasks."""
    n = robot.unknowns

    def whole(count: int) -> int:
        return -(-count // width) * width

    most = rows + robot.nv
    line, wide = whole(n + 1), whole(max(robot.equations, most))
    numbers = n * max(wide, line) + 2 * n * line + 2 * (n + 1) * whole(n + 1) + 3 * wide + 6 * line
    numbers += whole(n + most) + robot.nv * line
    return int(8 * numbers) + of_quadratic(n, 4 * robot.feet + robot.nv, rows + n, line, width)
