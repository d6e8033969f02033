"""Sweeps of triangular solves over tiles of columns, panel by panel: from the leaves to the root, and back.

With H = L' D L and V = -L, `up` replaces columns x by L'^-1 x, and `down` by L^-1 x. A *panel* is up to four
consecutive rows of V, restricted to the columns that are nonzero in all of them: an entry of x is read once for all
rows of the panel, and their sums stay in registers. Lanes of vectors are states, or columns of one state. In the second
case entries of V and D are scalars, which are broadcast as they are read.

The program of a sweep is a list of 64-bit integers, panel after panel, terminated by a zero. A panel has: number of
rows; first row; number of terms; for each row the index after its last entry in V; then the terms: p for `down`, or j
and the index of V[j, first row] for `up`. V holds nonzero entries only, row after row.
"""

from __future__ import annotations

from robodyn.compile.llvm.target import Target
from robodyn.compile.loops.language import Array, Entry, Static, Vector, Word, fma, routine, spread, switch

WIDTH = 6
"""Maximal columns of a tile, or maximal vectors of columns in a tile."""


def panel_rows(target: Target) -> int:
    """Maximal rows of a panel, such that the sums, one entry of each row and one entry of a column fit into
    registers."""
    return 2 if target.level in ("sse2", "avx2") else 4


@routine
def up(
    X: Array[Vector], V: Array[Entry], program: Array[Word], line: Word, width: Static[int], most: Static[int]
) -> None:
    """From the leaves to the root. Rows of X are `line` vectors apart, and a tile has `width` columns."""
    panel, rows = program, program[0]
    while rows != 0:
        for n in switch(rows, range(1, most + 1)):
            panel = _panel_up(X, V, panel, line, width, n)
        rows = panel[0]


def panel_rows_at(X: Array[Vector], first: Word, line: Word, n: Static[int]) -> list[Array[Vector]]:
    """Addresses of the rows of a panel."""
    rows = [X + first * line]
    while len(rows) < n:
        rows = [*rows, rows[-1] + line]
    return rows


def _panel_up(
    X: Array[Vector], V: Array[Entry], panel: Array[Word], line: Word, width: Static[int], n: Static[int]
) -> Array[Word]:
    """Process a panel of n rows. Returns the address of the next panel."""
    first, n_terms, terms = panel[1], panel[2], panel + (3 + n)
    rows, last = panel_rows_at(X, first, line, n), [panel[3 + r] - r for r in range(n)]
    sums = [[row[c] for c in range(width)] for row in rows]
    for k in range(n_terms):
        x, entries = X + terms[2 * k] * line, V + terms[2 * k + 1]
        factors = [spread(Vector, entries[r]) for r in range(n)]
        for c in range(width):
            value = x[c]
            for r in range(n):
                sums[r][c] = fma(factors[r], value, sums[r][c])
    for high in reversed(range(n)):
        for low in reversed(range(high + 1, n)):
            entry = spread(Vector, V[last[low] + high])
            for c in range(width):
                sums[high][c] = fma(entry, sums[low][c], sums[high][c])
    for r in range(n):
        for c in range(width):
            rows[r][c] = sums[r][c]
    return terms + 2 * n_terms


@routine
def down(
    X: Array[Vector],
    V: Array[Entry],
    program: Array[Word],
    line: Word,
    D: Array[Entry],
    sign: Vector,
    width: Static[int],
    most: Static[int],
) -> None:
    """Multiply by 1/d and the sign, then sweep from the root to the leaves."""
    panel, rows = program, program[0]
    while rows != 0:
        for n in switch(rows, range(1, most + 1)):
            panel = _panel_down(X, V, panel, line, D, sign, width, n)
        rows = panel[0]


def _panel_down(
    X: Array[Vector],
    V: Array[Entry],
    panel: Array[Word],
    line: Word,
    D: Array[Entry],
    sign: Vector,
    width: Static[int],
    n: Static[int],
) -> Array[Word]:
    """Process a panel of n rows. Returns the address of the next panel."""
    first, n_terms, terms = panel[1], panel[2], panel + (3 + n)
    rows = panel_rows_at(X, first, line, n)
    scales = [spread(Vector, D[first + r]) * sign for r in range(n)]
    sums = [[rows[r][c] * scales[r] for c in range(width)] for r in range(n)]
    last = [panel[3 + r] - r for r in range(n)]
    entries = [V + (last[r] - n_terms) for r in range(n)]
    for k in range(n_terms):
        x, factors = X + terms[k] * line, [spread(Vector, entries[r][k]) for r in range(n)]
        for c in range(width):
            value = x[c]
            for r in range(n):
                sums[r][c] = fma(factors[r], value, sums[r][c])
    for low in range(n):
        for high in range(low):
            entry = spread(Vector, V[last[low] + high])
            for c in range(width):
                sums[low][c] = fma(entry, sums[high][c], sums[low][c])
    for r in range(n):
        for c in range(width):
            rows[r][c] = sums[r][c]
    return terms + n_terms
