"""Loops over small dense matrices, of one problem or of several at once.

For one problem, rows are padded to whole vectors, columns beside one another. For several, each entry is a vector, and
`Scalar` is `Vector`. `line`: entries from a row to the next.
"""

from __future__ import annotations

import math
from typing import Any

from robodyn.compile.loops.language import (
    Array,
    Lane,
    Lanes,
    Loose,
    Scalar,
    Static,
    Vector,
    Word,
    array,
    chosen,
    convert,
    fma,
    load_some,
    places_of,
    routine,
    size_of,
    spread,
    store_some,
    switch,
)
from robodyn.solve.quadratic.factors import accumulate, root

_NAN = math.nan
_LARGE = 64
HIGH, WIDE = (4, 7), 3
"""Most rows, and vectors of a row, of a product that are summed in registers: rows with 16 registers, and with 32 of 64
bytes."""


def first_lanes(count: Word) -> Any:
    """The mask of a vector's first `count` elements."""
    return places_of(Lanes) < spread(Lanes, convert(Lane, count))


def columns_of_vectors() -> Static[int]:
    """Entries of a row in a vector: 1 if an entry is a vector itself."""
    return size_of(Vector) // size_of(Scalar)


def transfer(to: Static[Array[Any]], source: Static[Array[Any]], count: Word) -> None:
    """Copy entries of a row, from and to any place."""
    width = columns_of_vectors()
    whole = count // width
    for v in range(whole):
        array(Loose, to + v * width)[0] = array(Loose, source + v * width)[0]
    if width > 1 and whole * width < count:
        mask = first_lanes(count - whole * width)
        rest = load_some(array(Loose, source + whole * width), mask)
        store_some(array(Loose, to + whole * width), mask, rest)


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
    width, most = columns_of_vectors(), HIGH[size_of(Vector) == _LARGE]
    end, begin, i = line // width, 0, 0
    blocks = (rows + (most - 1)) // most
    height = (rows + (blocks - 1)) // blocks  # blocks of the same height, but for the last one
    while i < rows:
        if upper:
            begin = (corner + i) // width
        for high in switch(min(rows - i, height), range(1, most + 1)):
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
        i += height


@routine
def eliminate(Q: Array[Scalar], inverse: Array[Scalar], count: Word, line: Word, least: Scalar) -> None:
    """The first `count` rows of a Cholesky factorisation of a symmetric matrix, in place, and 1 / U_kk in `inverse`.
    NaN where a pivot is not positive, or at most `least` of the diagonal entry."""
    width = columns_of_vectors()
    end = line // width
    for k in range(count):
        row, begin = Q + k * line, k // width
        bound = least * row[k]
        accumulate(row, Q + k, line, Q, k, line, begin, end, minus=True)
        pivot = row[k]
        one = chosen(pivot > bound, 1.0 / root(pivot), spread(Scalar, _NAN))
        inverse[k] = one
        vectors, share = array(Vector, row), spread(Vector, one)
        for v in range(begin, end):
            vectors[v] = vectors[v] * share


@routine
def substitute(
    G: Array[Scalar], U: Array[Scalar], inverse: Array[Scalar], count: Word, line: Word, begin: Word
) -> None:
    """-U^-1 times the columns behind those of U, for the rows of `eliminate`, from the vector `begin` on."""
    end = line // columns_of_vectors()
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
