"""Elimination of the equations of whole-body control, and the memory of a state.

Equations E'x = r are eliminated: Householder reflections of the columns of E, one for each that does not depend on
those before, give E = Q (R, 0)' and x = p + Z u, where Z is the rest of the columns of Q. Columns that depend on others
fulfil their equation by themselves, or no x does. Reflections are kept as lists of their entries that are not zero,
which are few: an equation of a foot moves its leg and the base alone.
"""

from __future__ import annotations

import ctypes

from robodyn.compile.loops.language import (
    Array,
    Flag,
    Scalar,
    Static,
    Vector,
    Word,
    all_of,
    array,
    chosen,
    clear,
    fma,
    lanes_of,
    routine,
    size_of,
    spread,
    switch,
)
from robodyn.solve.quadratic.factors import Work, accumulate, add, numbers, padded, root, vectors_of

_DEPENDENT = 1e-16
"""Square of what reflections leave of an equation, relative to its own, below which it depends on those before."""
AGREES = 1e-7
"""Relative error below which an equation that depends on others is fulfilled."""
_SHORT, _TALL, _WIDE = 4, 4, 2
"""Vectors of a row of reflections, and rows and vectors of products, that are summed in registers."""
PLACES = ("E", "W", "bias", "drift", "A", "a", "pull", "sound")
"""Matrices and vectors of the terms, see `robodyn.solve.whole_body.terms.Layout`."""


class Robot(ctypes.Structure):
    """Sizes and constants of a controller.

    `at_X`, `line_X`: where a matrix of the terms begins, and numbers of a row. `roots`: for each level square roots of
    the weights of unknowns. `friction`: coefficients of each foot; `limit`: largest |tau|, infinity without one, and
    for the base; `order`, `base`: as in `Layout`; `rows`: rows of tasks of each level;
    `kept`: for each level and unknown acceleration 1 if a posture of this level has a weight there."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("nv", "feet", "bases", "unknowns", "equations", "levels", "most")),
        *((f"at_{name}", ctypes.c_int64) for name in PLACES),
        *((f"line_{name}", ctypes.c_int64) for name in PLACES),
        *((name, ctypes.c_double) for name in ("slack", "loose", "independent", "scale")),
        *((name, ctypes.POINTER(ctypes.c_double)) for name in ("roots", "friction", "limit")),
        *((name, ctypes.POINTER(ctypes.c_int64)) for name in ("order", "base", "rows", "kept")),
    )


class State(ctypes.Structure):
    """Memory of one state.

    `line`: numbers of a row of Z, whose column `free` is p. `M` is factorised; reflection k has `counts[k]` entries in
    row k of `entries`, at the indices in row k of `places`, and `scales[k]`. `y`: p in
    coordinates of Q. `own`: memory for Z, which may also be where another kernel has left it; `end`: of the memory."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("free", "line", "pivots")),
        *(
            (name, ctypes.POINTER(ctypes.c_double))
            for name in (
                "M",
                "size",
                "entries",
                "scales",
                "Z",
                "other",
                "x",
                "y",
                "right",
                "on",
                "g",
                "mask",
                "values",
                "products",
            )
        ),
        *((name, ctypes.POINTER(ctypes.c_int64)) for name in ("places", "counts")),
        ("quadratic", ctypes.c_int64),
        ("own", ctypes.c_int64),
        ("end", ctypes.c_int64),
    )


@routine
def reflect(
    M: Array[Scalar],
    line: Word,
    entries: Array[Scalar],
    places: Array[Word],
    count: Word,
    scale: Scalar,
    begin: Word,
    end: Word,
) -> None:
    """M -= v (scale v'M) for vectors of columns from `begin` to before `end`; v has an even number of entries at some
    places."""
    width, at = lanes_of(Vector) // lanes_of(Scalar), begin
    while at < end:
        for tile in switch(min(end - at, _SHORT), range(1, _SHORT + 1)):
            rows = array(Vector, M) + at
            sums = [spread(Vector, 0.0) for _ in range(tile)]
            others = [spread(Vector, 0.0) for _ in range(tile)]
            for k in range(count // 2):
                row, share = rows + places[2 * k] * (line // width), spread(Vector, entries[2 * k])
                other, part = rows + places[2 * k + 1] * (line // width), spread(Vector, entries[2 * k + 1])
                for c in range(tile):
                    sums[c] = fma(share, row[c], sums[c])
                    others[c] = fma(part, other[c], others[c])
            for c in range(tile):
                sums[c] = (sums[c] + others[c]) * spread(Vector, -scale)
            for k in range(count):
                row, share = rows + places[k] * (line // width), spread(Vector, entries[k])
                for c in range(tile):
                    row[c] = fma(share, sums[c], row[c])
        at += _SHORT


@routine
def products(
    to: Array[Scalar],
    factors: Array[Scalar],
    step: Word,
    stride: Word,
    count: Word,
    Z: Array[Scalar],
    rows: Word,
    line: Word,
    end: Word,
    upper: Static[bool],
) -> None:
    """`count` rows of sums of the `rows` rows of Z, of `end` vectors: the factor of row i in sum k is
    factors[k step + i stride]. `upper`: True leaves out vectors that are left of the diagonal."""
    width, done = lanes_of(Vector) // lanes_of(Scalar), 0
    while done < count:
        for tall in switch(min(count - done, _TALL), range(1, _TALL + 1)):
            at = done // width if upper else 0
            while at < end:
                for tile in switch(min(end - at, _WIDE), range(1, _WIDE + 1)):
                    sums = [spread(Vector, 0.0) for _ in range(tall * tile)]
                    row, factor = array(Vector, Z) + at, factors + done * step
                    for _ in range(rows):
                        for k in range(tall):
                            share = spread(Vector, factor[k * step])
                            for c in range(tile):
                                sums[k * tile + c] = fma(share, row[c], sums[k * tile + c])
                        row, factor = row + line // width, factor + stride
                    for k in range(tall):
                        result = array(Vector, to + (done + k) * line) + at
                        for c in range(tile):
                            result[c] = sums[k * tile + c]
                at += _WIDE
        done += _TALL


def is_zero(a: Scalar) -> Flag:
    """Whether a number is zero, in all states."""
    return all_of(a == 0.0) if lanes_of(Scalar) > 1 else a == 0.0


def exceeds(a: Scalar, least: Scalar) -> Flag:
    """Whether a number is above another, in all states."""
    return all_of(a > least) if lanes_of(Scalar) > 1 else a > least


def breaks(a: Scalar, most: Scalar) -> Flag:
    """Whether a number is above another, or not below it in one of several states: NaN of a single state does not
    count."""
    return not all_of(a <= most) if lanes_of(Scalar) > 1 else a > most


@routine
def reflected(state: Array[State], n: Word, m: Word, line: Word) -> Word:
    """Reflect the columns of M (n, m), whose rows are `line` numbers apart; returns 1 if all equations M'x = right can
    hold, else 0; 0 as well if equations depend on others in some of several states only."""
    width, end = lanes_of(Vector) // lanes_of(Scalar), vectors_of(m)
    M, size, y, right = numbers(state.M), numbers(state.size), numbers(state.y), numbers(state.right)
    scales = numbers(state.scales)
    clear(size, size_of(Scalar) * line)
    for i in range(n):
        row, sums = array(Vector, M + i * line), array(Vector, size)
        for v in range(end):
            sums[v] = fma(row[v], row[v], sums[v])
    p, held, farthest = 0, 1, spread(Scalar, 0.0)
    for k in range(m):
        entries, places, count = numbers(state.entries) + p * (n + 1), state.places + p * (n + 1), 0
        left = spread(Scalar, 0.0)
        for i in range(p, n):
            entry = M[i * line + k]
            if i == p or not is_zero(entry):
                entries[count], places[count] = entry, i
                left = left + entry * entry
                count = count + 1
        rest, least = right[k], size[k] * _DEPENDENT
        if exceeds(left, least):
            first, length = entries[0], root(left)
            signed = chosen(first < 0.0, -length, length)
            entries[0] = first + signed
            if count % 2 == 1:
                entries[count], places[count] = spread(Scalar, 0.0), p
                count = count + 1
            state.counts[p], scales[p] = count, 1.0 / (left + signed * first)
            reflect(M, line, entries, places, count, scales[p], k // width, end)
            y[p] = rest / -signed
            add(right, -y[p], M + p * line, k // width, end)
            farthest = chosen(y[p] > farthest, y[p], chosen(-y[p] > farthest, -y[p], farthest))
            p = p + 1
        else:
            most = (root(size[k]) * farthest + 1.0) * AGREES
            if breaks(chosen(rest < 0.0, -rest, rest), most):
                held = 0
            if lanes_of(Scalar) > 1 and breaks(left, least):
                held = 0
    state.pivots = p
    return held


@routine
def complete(state: Array[State], to: Array[Scalar], n: Word, line: Word) -> None:
    """The columns of Q behind the pivots, and behind these Q y, to the rows of `to`."""
    p, y, scales = state.pivots, numbers(state.y), numbers(state.scales)
    clear(to, size_of(Scalar) * n * line)
    for i in range(n):
        if i < p:
            to[i * line + n - p] = y[i]
        else:
            to[i * line + i - p] = spread(Scalar, 1.0)
    for k in reversed(range(p)):
        reflect(
            to,
            line,
            numbers(state.entries) + k * (n + 1),
            state.places + k * (n + 1),
            state.counts[k],
            scales[k],
            0,
            vectors_of(n - p + 1),
        )


@routine
def equations(robot: Array[Robot], state: Array[State], terms: Array[Scalar]) -> Word:
    """Reflect the equations of the dynamics and the feet; returns 1 if there are accelerations and forces that fulfil
    both."""
    E, M, on, right = terms + robot.at_E, numbers(state.M), numbers(state.on), numbers(state.right)
    line, end = padded(robot.equations), vectors_of(robot.equations)
    feet, nv = 3 * robot.feet, robot.nv
    for i in range(robot.unknowns):
        row, given, mask = array(Vector, M + i * line), array(Vector, E + i * robot.line_E), array(Vector, on)
        for v in range(end):
            row[v] = given[v] * mask[v]
    for k in range(feet):
        M[(nv + k) * line + k] = 1.0 - on[k]
        right[k] = -(on[k] * terms[robot.at_drift + k])
    for k in range(robot.bases):
        right[feet + k] = -terms[robot.at_bias + robot.base[k]]
    held = reflected(state, robot.unknowns, robot.equations, line)
    state.free = robot.unknowns - state.pivots
    state.line = padded(state.free + 1)
    return held


@routine
def descend(robot: Array[Robot], state: Array[State], work: Array[Work], level: Word) -> None:
    """Z of the next priority, which keeps the values of rows of tasks and postures. p is the solution so far."""
    n, before, rows, kept = state.free, state.line, robot.rows[level], robot.kept + level * robot.nv
    line = padded(rows + robot.nv)
    M, Z, other = state.M, state.Z, state.other
    clear(M, 8 * n * line)
    clear(state.right, 8 * line)
    count = 0
    for j in range(rows + robot.nv):
        wanted = True
        if j >= rows:
            wanted = kept[j - rows] > 0
        if wanted:
            for i in range(n):
                M[i * line + count] = work.A[j * before + i]
            count = count + 1
    reflected(state, n, count, line)
    free = n - state.pivots
    after = padded(free + 1)
    complete(state, other, n, after)
    for i in range(robot.unknowns):
        row = state.M + i * after  # M is used up
        clear(row, 8 * after)
        accumulate(row, Z + i * before, 1, other, n, after, 0, after // lanes_of(Vector), minus=False)
        row[free] = state.x[i]
    for i in range(robot.unknowns * after // lanes_of(Vector)):
        array(Vector, Z)[i] = array(Vector, state.M)[i]
    state.free, state.line = free, after
