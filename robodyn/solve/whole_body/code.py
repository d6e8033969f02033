"""Whole-body control of one state after another, from the numbers of `robodyn.solve.whole_body.terms`.

    void kernel(ptr table, i64 first, i64 last, ptr workspace)

Equations are eliminated (`robodyn.solve.whole_body.elimination`): x = p + Z u fulfils them for all u. For batches this
and the minimum without bounds are found for several states at once, one in each element of a vector (`several`), by the
same text: there a number is a vector, and a row has one number in a vector.

For every priority, the highest first, the dual active set of `robodyn.solve.quadratic` finds the u that fulfils the
tasks of this priority best. Then their values are equations, and the same elimination gives the Z of the next one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from robodyn.compile.llvm.straight_line import attributes
from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.loops.language import (
    NULL,
    Address,
    Array,
    Flag,
    Loose,
    Scalar,
    Vector,
    Word,
    address,
    array,
    call,
    chosen,
    clear,
    copy,
    fma,
    lanes_of,
    local,
    routine,
    size_of,
    spread,
)
from robodyn.compile.loops.llvm import printed_module
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.loops.runtime import stage_in, stage_out, types_of
from robodyn.solve.quadratic.code import INFEASIBLE, INVALID, SOLVED, solve
from robodyn.solve.quadratic.factors import (
    FREE,
    LEFT_OUT,
    Work,
    add,
    close,
    factorise,
    numbers,
    padded,
    place_arrays,
    product,
    root,
    total,
    types,
    vectors_of,
    zero,
)
from robodyn.solve.quadratic.factors import workspace_bytes as of_quadratic
from robodyn.solve.whole_body.elimination import (
    AGREES,
    Robot,
    State,
    breaks,
    complete,
    descend,
    equations,
    is_zero,
    products,
)

HEAD = 8
"""Words before what is left of a state without its equations: `free`, `line`, and rows of C."""
_CONSTANT = 1e-26
"""Square of a reduced row, relative to the whole one, below which its value does not depend on u."""
_HUGE, _NAN, _INFINITY = 1e300, math.nan, math.inf
RESIDUALS = ("stationarity", "dynamics", "contacts", "violation")
"""Residuals of a state, see `robodyn.WholeBodyReport`."""


def lanes(target: Target) -> dict[str, Any]:
    """Types in the module of `several`: a number is a vector, with an element for each of several states."""
    kinds = types_of(VectorType.of(np.dtype(np.float64), target))
    return {**kinds, "Scalar": kinds["Vector"]}


def module_text(target: Target, at_once: bool) -> str:
    """The module for a target: `kernel`, or `several`."""
    kinds = lanes(target) if at_once else types(np.dtype(np.float64), target)
    exported: Any = several if at_once else kernel
    return printed_module(
        ("whole body", target, at_once), kinds, lambda module: module.export(exported, "kernel"), attributes(target)
    )


# The programme of one priority.


@routine
def task_rows(robot: Array[Robot], state: Array[State], work: Array[Work], terms: Array[Scalar], level: Word) -> None:
    """Rows of A, of tasks, then of postures and regularisation, and what they lack at p."""
    n, line, Z, A, values = state.free, state.line, numbers(state.Z), numbers(work.A), numbers(state.values)
    begin, end = 0, vectors_of(n + 1)
    for k in range(level):
        begin = begin + robot.rows[k]
    rows, nv = robot.rows[level], robot.nv
    products(A, terms + robot.at_A + begin * robot.line_A, robot.line_A, 1, rows, Z, nv, line, end, upper=False)
    for k in range(rows):
        row = A + k * line
        values[k] = row[n] - terms[robot.at_a + begin + k]
        row[n] = spread(Scalar, 0.0)
    roots, pull = robot.roots + level * robot.unknowns, terms + robot.at_pull + level * robot.line_pull
    for i in range(robot.unknowns):
        row, given, share = A + (rows + i) * line, array(Vector, Z + i * line), spread(Vector, roots[i])
        for v in range(end):
            array(Vector, row)[v] = given[v] * share
        left = row[n]
        if i < nv:
            left = left - pull[i]
        values[rows + i] = left
        row[n] = spread(Scalar, 0.0)


@routine
def least_squares(state: Array[State], work: Array[Work]) -> None:
    """H = A'A, g, and the minimum without bounds."""
    n, line, end = state.free, state.line, vectors_of(state.free + 1)
    A, g, H, own = numbers(work.A), numbers(work.g), numbers(work.H), numbers(state.g)
    products(g, numbers(state.values), 0, 1, 1, A, work.rows, line, end, upper=False)
    products(H, A, 1, line, n, A, work.rows, line, end, upper=True)
    for v in range(end):
        array(Vector, own)[v] = array(Vector, g)[v]
    factorise(work, squares=False)
    for k in range(n):  # what is no part of U
        for i in range(k // lanes_of(Vector) * lanes_of(Vector), k):
            H[k * line + i] = spread(Scalar, 0.0)
        for v in range(end, vectors_of(line)):
            array(Vector, H + k * line)[v] = spread(Vector, 0.0)


@routine
def bound(state: Array[State], work: Array[Work], k: Word, lower: Scalar, upper: Scalar, whole: Scalar) -> Word:
    """Give the row k of C, with p's part in column `free`, the length one, and its bounds; returns 0 if it is constant
    and beyond them. `whole`: squared length of the row over x."""
    n, end, row = state.free, vectors_of(state.free + 1), numbers(work.C) + k * state.line
    value, at = row[n], state.free + k
    vectors, mask, sums = array(Vector, row), array(Vector, state.mask), spread(Vector, 0.0)
    for v in range(end):
        part = vectors[v] * mask[v]
        sums = fma(part, part, sums)
    squared, none = total(sums), spread(Scalar, 0.0)
    varies = squared > whole * _CONSTANT
    share = chosen(varies, 1.0 / root(squared), none)
    for v in range(end):
        vectors[v] = vectors[v] * (mask[v] * spread(Vector, share))
    low, high = lower - value, value - upper
    numbers(work.status)[at] = chosen(varies, spread(Scalar, FREE), spread(Scalar, LEFT_OUT))
    numbers(work.lower)[at] = chosen(varies, low * share, spread(Scalar, -_INFINITY))
    numbers(work.upper)[at] = chosen(varies, -(high * share), spread(Scalar, _INFINITY))
    most = (chosen(value < 0.0, -value, value) + 1.0) * AGREES
    lack = chosen(varies, none, chosen(low > high, low, high))
    return 0 if breaks(lack, most) else 1


@routine
def inequalities(robot: Array[Robot], state: Array[State], work: Array[Work], terms: Array[Scalar]) -> Word:
    """Pyramids of friction and limits of torques; returns 0 if one cannot hold."""
    line, Z, end, nv, held = state.line, numbers(state.Z), vectors_of(state.free + 1), robot.nv, 1
    mask, C, on = numbers(state.mask), numbers(work.C), numbers(state.on)
    clear(mask, size_of(Scalar) * line)
    for i in range(state.free):
        mask[i] = spread(Scalar, 1.0)
    k, every = 0, numbers(state.products)
    free = 0  # without limits, the base among them
    while free < nv and robot.limit[free] >= _HUGE:
        free = free + 1
    W = terms + robot.at_W + free * robot.line_W
    products(every + free * line, W, robot.line_W, 1, nv - free, Z, robot.unknowns, line, end, upper=False)
    for foot in range(robot.feet):
        if not is_zero(on[3 * foot]):
            normal = Z + (nv + 3 * foot) * line
            one, other = normal + line, normal + 2 * line
            mu, nu = spread(Scalar, robot.friction[2 * foot]), spread(Scalar, robot.friction[2 * foot + 1])
            for side in range(4):
                # |f_1| / mu + |f_2| / nu <= f_0, times mu nu
                row = C + k * line
                clear(row, size_of(Scalar) * line)
                add(row, nu if side % 2 == 0 else -nu, one, 0, end)
                add(row, mu if side // 2 == 0 else -mu, other, 0, end)
                add(row, -mu * nu, normal, 0, end)
                whole = mu * mu + nu * nu + mu * nu * mu * nu
                fits = bound(state, work, k, spread(Scalar, -_INFINITY), spread(Scalar, 0.0), whole)
                held = min(held, fits)
                k = k + 1
    for i in range(nv):
        if robot.limit[i] < _HUGE:
            W, bias, limit = terms + robot.at_W + i * robot.line_W, terms[robot.at_bias + i], robot.limit[i]
            given, row = array(Vector, every + i * line), array(Vector, C + k * line)
            for v in range(end):
                row[v] = given[v]
            for v in range(end, vectors_of(line)):
                row[v] = spread(Vector, 0.0)
            whole = product(W, W, 0, vectors_of(robot.unknowns))
            most = spread(Scalar, limit)
            fits = bound(state, work, k, -most - bias, most - bias, whole)
            held = min(held, fits)
            k = k + 1
    close(work, k)
    return held


@routine
def place_programme(robot: Array[Robot], state: Array[State], work: Array[Work], level: Word) -> None:
    """Sizes and memory of the programme of a priority."""
    work.slack, work.loose, work.independent, work.scale = robot.slack, robot.loose, robot.independent, robot.scale
    work.n, work.m, work.padded, work.most, work.count = state.free, rows_of_bounds(robot), state.line, robot.most, 0
    work.first, work.rows = work.n, robot.rows[level] + robot.unknowns
    place_arrays(work, state.quadratic)


@routine
def programme(robot: Array[Robot], state: Array[State], work: Array[Work], terms: Array[Scalar], level: Word) -> Word:
    """The programme of a priority and its minimum without bounds; returns 0 if a bound cannot hold."""
    task_rows(robot, state, work, terms, level)
    least_squares(state, work)
    return inequalities(robot, state, work, terms)


@routine
def solution(robot: Array[Robot], state: Array[State], work: Array[Work]) -> Word:
    """Solve for one priority: x becomes p + Z u; returns what became of it."""
    n, line, end = state.free, state.line, vectors_of(state.line)
    zero(work.u, end)
    zero(work.r, end)
    zero(work.z, end)
    outcome = solve(work)
    if outcome == SOLVED:
        work.x[n] = spread(Scalar, 1.0)
        for i in range(robot.unknowns):
            state.x[i] = product(state.Z + i * line, work.x, 0, end)
        work.x[n] = spread(Scalar, 0.0)
    return outcome


# States whose equations another kernel has eliminated.


def rows_of_bounds(robot: Array[Robot]) -> Word:
    """The most rows of C."""
    rows: Word = 4 * robot.feet + robot.nv
    return rows


def most_reduced(robot: Array[Robot]) -> Word:
    """The most numbers of `place_reduced`."""
    line, wide = padded(robot.unknowns + 1), padded(rows_of_bounds(robot))
    count: Word = (2 * robot.unknowns + wide + 3) * line + 3 * wide
    return count


@routine
def place_reduced(robot: Array[Robot], state: Array[State], work: Array[Work], at: Array[Scalar]) -> None:
    """Give what is left of a state, without its equations, memory one after another."""
    n, line, wide = state.free, state.line, padded(rows_of_bounds(robot))
    state.Z, work.H = at, at + robot.unknowns * line
    at = at + (robot.unknowns + n) * line
    work.x, state.g, work.inverse = at, at + line, at + 2 * line
    at = at + (3 * line - n)
    work.lower, work.upper, work.status = at, at + wide, at + 2 * wide
    work.C = at + (n + 3 * wide)


def count_reduced(robot: Array[Robot], work: Array[Work]) -> Word:
    """Numbers of `place_reduced`."""
    count: Word = (robot.unknowns + work.n + work.wide + 3) * work.padded + 3 * padded(rows_of_bounds(robot))
    return count


@routine
def reduce(
    robot: Array[Robot], state: Array[State], work: Array[Work], terms: Array[Scalar], reduced: Array[Scalar]
) -> Flag:
    """Eliminate the equations of several states, and find the minima of the first priority without bounds. False where
    states differ in which equations depend on others, or where one may have no solution."""
    done = not breaks(terms[robot.at_sound], spread(Scalar, _HUGE))
    if done:
        done = equations(robot, state, terms) > 0
    if done:
        place_programme(robot, state, work, 0)
        place_reduced(robot, state, work, reduced)
        complete(state, numbers(state.Z), robot.unknowns, state.line)
        done = programme(robot, state, work, terms, 0) > 0
    return done


@routine
def several(table: Array[Argument], first: Word, last: Word, workspace: Address) -> None:
    """What `kernel` does, with the same table, and behind it the address of `kernel`: it gets what `reduce` has left of
    several states, or begins anew."""
    robot, state, work, width = array(Robot, table[7].data), local(State, 1), local(Work, 1), lanes_of(Vector)
    own, alone, row = local(Argument, 9), table[9].data, first
    copy(own, table, 9 * size_of(Argument))
    terms, size = array(Scalar, workspace), robot.at_sound + robot.line_sound
    reduced, most = terms + size, most_reduced(robot)
    heads, stride = address(reduced + most), 8 * (HEAD + most)
    place_state(robot, state, heads + width * stride)
    behind = state.end
    on, flags = numbers(state.on), numbers(state.size)
    while row < last:
        count = min(last - row, width)
        own[8].data, own[8].stride = 0, 0
        if count == width:
            stage_in(table[0].data, table[0].stride, row, last - 1, array(Loose, terms), size, width)
            stage_in(table[1].data, table[1].stride, row, last - 1, array(Loose, flags), robot.feet, width)
            for k in range(padded(robot.equations)):
                on[k] = spread(Scalar, 1.0)
            for k in range(robot.feet):
                for c in range(3):
                    on[3 * k + c] = flags[k]
            if reduce(robot, state, work, terms, reduced):
                count_of = count_reduced(robot, work)
                stage_out(heads + 8 * HEAD, stride, 0, width - 1, array(Loose, reduced), None, count_of, width)
                for k in range(width):
                    head = array(Word, heads + k * stride)
                    head[0], head[1], head[2] = state.free, state.line, work.m
                own[8].data, own[8].stride = heads - row * stride, stride
        call(None, alone, own, row, row + count, behind)
        row += count


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
    n, line, end = state.free, state.line, vectors_of(state.line)
    gradient, given = work.z, state.g
    for v in range(end):
        array(Vector, gradient)[v] = array(Vector, given)[v]
    for k in range(n):  # U'U x
        row, begin = work.H + k * line, k // lanes_of(Vector)
        add(gradient, product(row, work.x, begin, end), row, begin, end)
    for c in range(work.count):
        at = work.active[c] - work.n
        add(gradient, chosen(work.side[c] > 0, -work.u[c], work.u[c]), work.C + at * line, 0, end)
    found, size = spread(Scalar, 0.0), spread(Scalar, 1.0)
    for i in range(n):
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
    robot: Array[Robot],
    state: Array[State],
    terms: Array[Scalar],
    ends: Array[Word],
    residuals: Array[Scalar],
    reduced: Address,
) -> Word:
    """Solve all priorities of a state. `reduced`: what `reduce` has left of it, or 0."""
    work = local(Work, 1)
    ends[1] = 0
    for k in range(4):
        residuals[k] = spread(Scalar, _NAN)
    outcome, level, begun, head = INVALID, 0, reduced != NULL, array(Word, reduced)
    if begun:
        outcome = SOLVED
        state.free, state.line = head[0], head[1]
    elif terms[robot.at_sound] <= _HUGE:
        outcome = chosen(equations(robot, state, terms) > 0, SOLVED, INFEASIBLE)
        state.Z = array(Scalar, state.own)
        complete(state, state.Z, robot.unknowns, state.line)
    while outcome == SOLVED and level < robot.levels:
        last = level + 1 == robot.levels
        place_programme(robot, state, work, level)
        if begun and level == 0:
            place_reduced(robot, state, work, array(Scalar, reduced) + HEAD)
            work.m, work.wide, work.bounds = head[2], padded(head[2]), work.n + head[2]
        else:
            outcome = chosen(programme(robot, state, work, terms, level) > 0, SOLVED, INFEASIBLE)
        if outcome == SOLVED:
            outcome = solution(robot, state, work)
            ends[1] = ends[1] + work.most
        if outcome == SOLVED:
            if last:
                residuals[0] = stationarity(state, work)
            else:
                if begun and level == 0:
                    task_rows(robot, state, work, terms, level)
                descend(robot, state, work, level)
        level = level + 1
    return outcome


@routine
def kernel(table: Array[Argument], first: Word, last: Word, workspace: Address) -> None:
    """Torques, accelerations and forces for some rows.

    Entries of the table: terms; 1 where a foot stands, three numbers for each, and for every equation of the base; tau,
    qdd, f, ends, residuals; the robot; what `reduce` has left of each state, or nothing.
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
        outcome = control(robot, state, terms, ends, residuals, table[8].data + row * table[8].stride)
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
    state.own = address(at)
    state.Z, state.other = at, at + n * line
    at = at + 2 * n * line
    state.entries = at
    at = at + (n + 1) * padded(n + 1)
    state.size, state.right, state.on = at, at + wide, at + 2 * wide
    at = at + 3 * wide
    state.x, state.y, state.scales, state.g = at, at + line, at + 2 * line, at + 3 * line
    clear(state.x, size_of(Scalar) * line)
    state.mask = at + 4 * line
    at = at + 5 * line
    state.values, state.products = at, at + padded(n + most)
    at = at + padded(n + most) + robot.nv * line
    state.places = array(Word, at)
    at = at + (n + 1) * padded(n + 1)
    state.counts = array(Word, at)
    at = at + line
    state.quadratic, work = address(at), local(Work, 1)
    work.n, work.m, work.padded, work.rows = n, rows_of_bounds(robot), line, most - robot.nv + n
    place_arrays(work, state.quadratic)
    state.end = address(work.side) + 8 * line


def numbers_of_state(robot: Any, rows: int, width: int) -> tuple[int, int]:
    """Numbers of scratch memory for a `Robot` whose levels have at most `rows` rows of tasks, and the most numbers that
    `reduce` leaves, with those before. `width`: elements of a vector."""
    n = robot.unknowns

    def whole(count: int) -> int:
        return -(-count // width) * width

    most, bounds = rows + robot.nv, 4 * robot.feet + robot.nv
    line, wide = whole(n + 1), whole(max(robot.equations, most))
    numbers = n * max(wide, line) + 2 * n * line + 2 * (n + 1) * whole(n + 1) + 3 * wide + 6 * line
    numbers += whole(n + most) + robot.nv * line
    numbers += of_quadratic(n, bounds, rows + n, line, width) // 8
    return numbers, (2 * n + whole(bounds) + 3) * line + 3 * whole(bounds) + HEAD
