"""Loops over small dense matrices, for solvers that process one problem after another.

Rows are padded to whole vectors, columns beside one another. `line`: numbers from a row to the next.
"""

from __future__ import annotations

from typing import Any

from robodyn.compile.loops.language import (
    Array,
    Flag,
    Lane,
    Lanes,
    Loose,
    LooseScalar,
    Scalar,
    Static,
    Vector,
    Word,
    array,
    convert,
    fma,
    lanes_of,
    load_some,
    places_of,
    routine,
    spread,
    store_some,
    switch,
)
from robodyn.solve.quadratic.factors import accumulate, root

HIGH, WIDE = 6, 3
"""Most rows, and vectors of a row, of a product that are summed in registers."""


def first_lanes(count: Word) -> Any:
    """The mask of a vector's first `count` elements."""
    return places_of(Lanes) < spread(Lanes, convert(Lane, count))


def read(to: Array[Scalar], source: Array[LooseScalar], count: Word) -> None:
    """Copy numbers into a row, at any place. Up to a vector behind them is set to zero."""
    width = lanes_of(Vector)
    whole = count // width
    for v in range(whole):
        array(Loose, to + v * width)[0] = array(Loose, source + v * width)[0]
    if whole * width < count:
        mask = first_lanes(count - whole * width)
        array(Loose, to + whole * width)[0] = load_some(array(Loose, source + whole * width), mask)


def write(to: Array[LooseScalar], source: Array[Scalar], count: Word) -> None:
    """Copy numbers of a row, from any place."""
    width = lanes_of(Vector)
    whole = count // width
    for v in range(whole):
        array(Loose, to + v * width)[0] = array(Loose, source + v * width)[0]
    if whole * width < count:
        mask = first_lanes(count - whole * width)
        store_some(array(Loose, to + whole * width), mask, array(Loose, source + whole * width)[0])


@routine
def multiply(
    C: Array[Scalar],
    A: Array[Scalar],
    across: Word,
    along: Word,
    B: Array[Scalar],
    rows: Word,
    depth: Word,
    line: Word,
    corner: Word,
    upper: Static[bool],
    how: Static[str],
) -> None:
    """C "=", "+=" or "-=" A B. A's entry (i, l) is A[i across + l along]; rows of B and C are whole vectors.

    `upper`: entries of C left of the diagonal are not needed. `corner`: the column of the diagonal in the first row.
    """
    width = lanes_of(Vector)
    end, begin, i = line // width, 0, 0
    while i < rows:
        if upper:
            begin = (corner + i) // width
        for high in switch(min(rows - i, HIGH), range(1, HIGH + 1)):
            v = begin
            while v < end:
                for wide in switch(min(end - v, WIDE), range(1, WIDE + 1)):
                    to = [array(Vector, C + (i + a) * line) + v for a in range(high)]
                    sums = [spread(Vector, 0.0) if how == "=" else to[a][c] for a in range(high) for c in range(wide)]
                    entry, row = A + i * across, array(Vector, B) + v
                    places = [entry + a * across for a in range(high)]
                    for l in range(depth):
                        columns = [row[c] for c in range(wide)]
                        for a in range(high):
                            share = spread(Vector, -places[a][l * along] if how == "-=" else places[a][l * along])
                            for c in range(wide):
                                sums[a * wide + c] = fma(share, columns[c], sums[a * wide + c])
                        row = row + end
                    for a in range(high):
                        for c in range(wide):
                            to[a][c] = sums[a * wide + c]
                v += WIDE
        i += HIGH


@routine
def eliminate(Q: Array[Scalar], inverse: Array[Scalar], count: Word, line: Word, least: Scalar) -> Flag:
    """The first `count` rows of a Cholesky factorisation of a symmetric matrix, in place. Returns whether all pivots
    are positive, and more than `least` of the diagonal entry; then 1 / U_kk are in `inverse`."""
    width, held, k = lanes_of(Vector), True, 0
    while held and k < count:
        row, begin, end = Q + k * line, k // width, line // width
        bound = least * row[k]
        accumulate(row, Q + k, line, Q, k, line, begin, end, minus=True)
        pivot = row[k]
        held = pivot > bound and pivot > 0.0  # not for NaN
        if held:
            one = 1.0 / root(pivot)
            inverse[k] = one
            vectors, share = array(Vector, row), spread(Vector, one)
            for v in range(begin, end):
                vectors[v] = vectors[v] * share
        k += 1
    return held


@routine
def substitute(
    G: Array[Scalar], U: Array[Scalar], inverse: Array[Scalar], count: Word, line: Word, begin: Word
) -> None:
    """-U^-1 times the columns behind those of U, for the rows of `eliminate`, from the vector `begin` on."""
    end = line // lanes_of(Vector)
    for i in reversed(range(count)):
        to, source = array(Vector, G + i * line), array(Vector, U + i * line)
        for v in range(begin, end):
            to[v] = source[v]
        rest, behind = i + 1, G + (i + 1) * line
        accumulate(G + i * line, U + i * line + rest, 1, behind, count - rest, line, begin, end, minus=False)
        share = spread(Vector, -inverse[i])
        for v in range(begin, end):
            to[v] = to[v] * share


def mirror(V: Array[Scalar], n: Word, line: Word) -> None:
    """Copy the entries above the diagonal of a symmetric matrix to those below."""
    for i in range(n):
        row, column = V + i * line, V + i
        for j in range(i + 1, n):
            column[j * line] = row[j]
