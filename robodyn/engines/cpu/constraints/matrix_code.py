"""Loops over the rows of constraints: A from responses to rows, and forces by proximal iterations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robodyn.compile.loops.language import (
    Address,
    Array,
    Columns,
    Static,
    Vector,
    Word,
    array,
    clear,
    extracted,
    fma,
    routine,
    spread,
    switch,
)
from robodyn.engines.cpu.constraints.tables import BLOCK, Segment
from robodyn.engines.cpu.loops.code import base, number, vectors, words

if TYPE_CHECKING:
    from robodyn.engines.cpu.constraints.code import ConstraintModule

TILE = 64
"""Degrees of freedom of a segment whose responses are multiplied before those of others."""


@routine
def multiply(bases: Array[Address], module: Static[ConstraintModule]) -> None:
    """The upper triangle of A, and J H^-1 of the force without constraints, segment by segment."""
    side = number(bases, "side", module)
    A, rates = vectors(bases, "A", module), vectors(bases, "rates", module)
    clear(A, side * side * module.kind.bytes)
    clear(rates, side * module.kind.bytes)
    segments = array(Segment, base(bases, "segments", module))
    for s in range(number(bases, "n_segments", module)):
        segment = segments[s]
        rows, line = words(bases, "segment_rows", module) + segment.row, segment.rows
        for d in range(0, segment.dofs, TILE):
            dofs, count = words(bases, "segment_dofs", module) + (segment.dof + d), min(segment.dofs - d, TILE)
            Y = vectors(bases, "responses", module) + (segment.place + d * line)
            multiply_tile(bases, A, side, rates, rows, Y, line, dofs, count, module=module)


@routine
def multiply_tile(
    bases: Array[Address],
    A: Array[Vector],
    side: Word,
    rates: Array[Vector],
    rows: Array[Word],
    Y: Array[Vector],
    line: Word,
    dofs: Array[Word],
    count: Word,
    module: Static[ConstraintModule],
) -> None:
    """The same for some degrees of freedom, whose responses stay in the caches."""
    i = 0
    while i < line:
        for height in switch(min(line - i, module.most_lines), module.heights):
            for j in range(0, i + height, BLOCK):
                add_block(bases, A, side, rows, i, j, Y, line, dofs, count, module=module, height=height)
        i += module.most_lines
    if module.free:
        for at in range(0, line, BLOCK):
            add_rates(bases, rates, rows, at, Y, line, dofs, count, module=module)


@routine
def add_block(
    bases: Array[Address],
    A: Array[Vector],
    side: Word,
    rows: Array[Word],
    i: Word,
    j: Word,
    Y: Array[Vector],
    line: Word,
    dofs: Array[Word],
    count: Word,
    module: Static[ConstraintModule],
    height: Static[int],
) -> None:
    """Add the products of some rows of a segment with others, which are columns of vectors for a single state."""
    inverse, left, right = vectors(bases, "field inverse", module), Y + i, Y + j
    vectors_of_block = 1 if module.single else BLOCK
    sums = [[spread(Columns, 0.0) for b in range(vectors_of_block)] for a in range(height)]
    for d in range(count):
        share = spread(Columns, inverse[dofs[d]])
        others = [array(Columns, right + b)[0] * share for b in range(vectors_of_block)]
        factors = [spread(Columns, left[a]) for a in range(height)]
        for a in range(height):
            for b in range(vectors_of_block):
                sums[a][b] = fma(factors[a], others[b], sums[a][b])
        left, right = left + line, right + line
    for a in range(height):
        for b in range(BLOCK):
            at = A + (rows[j + b] * side + rows[i + a])
            if module.single:
                at[0] = at[0] + extracted(sums[a][0], b)
            else:
                at[0] = at[0] + sums[a][b]


@routine
def add_rates(
    bases: Array[Address],
    rates: Array[Vector],
    rows: Array[Word],
    i: Word,
    Y: Array[Vector],
    line: Word,
    dofs: Array[Word],
    count: Word,
    module: Static[ConstraintModule],
) -> None:
    """Add the products of some rows of a segment with the force without constraints."""
    inverse, w, left = vectors(bases, "field inverse", module), vectors(bases, "field w", module), Y + i
    sums = [spread(Vector, 0.0) for a in range(BLOCK)]
    for d in range(count):
        force = w[dofs[d]] * inverse[dofs[d]]
        for a in range(BLOCK):
            sums[a] = fma(left[a], force, sums[a])
        left = left + line
    for a in range(BLOCK):
        rates[rows[i + a]] = rates[rows[i + a]] + sums[a]


@routine
def push(bases: Array[Address], module: Static[ConstraintModule]) -> None:
    """Add the responses to constraint forces to that without constraints."""
    w, lam = vectors(bases, "field w", module), vectors(bases, "lam", module)
    if not module.free:
        clear(w, number(bases, "nv", module) * module.kind.bytes)
    segments = array(Segment, base(bases, "segments", module))
    for s in range(number(bases, "n_segments", module)):
        segment = segments[s]
        rows, line = words(bases, "segment_rows", module) + segment.row, segment.rows
        dofs, Y = words(bases, "segment_dofs", module) + segment.dof, vectors(bases, "responses", module)
        for i in range(0, line, BLOCK):
            forces, y = [lam[rows[i + a]] for a in range(BLOCK)], Y + (segment.place + i)
            for d in range(segment.dofs):
                total = w[dofs[d]]
                for a in range(BLOCK):
                    total = fma(forces[a], y[a], total)
                w[dofs[d]] = total
                y = y + line


# Forces.


@routine
def solve(bases: Array[Address], module: Static[ConstraintModule]) -> None:
    """lambda by proximal iterations: see `robodyn.algorithms.constraints.scalars.ProximalSolver`. Row k of A becomes
    column k of L times d_k."""
    m, side = number(bases, "n_rows", module), number(bases, "side", module)
    A, mu, inverse = vectors(bases, "A", module), vectors(bases, "mu", module), vectors(bases, "pivots", module)
    lam, rates = vectors(bases, "lam", module), vectors(bases, "rates", module)
    errors, moving = vectors(bases, "errors", module), vectors(bases, "moving", module)
    for r in range(m):
        module.run(module.tracer.moving(), bases, row=r)
        mu[r] = A[r * side + r] * module.proximal[0]
        A[r * side + r] = A[r * side + r] + (mu[r] + (1.0 - moving[r]))
        needed = errors[r]
        if module.free:
            needed = needed + rates[r]
        errors[r] = -(moving[r] * needed)
        lam[r] = spread(Vector, 0.0)
    for k in range(m):
        top = A + k * side
        inverse[k] = 1.0 / top[k]
        for i in range(k + 1, m):
            share, line = spread(Columns, top[i] * inverse[k]), A + i * side
            # For a single state the first vector begins left of the diagonal, where nothing is read.
            for j in range(i - i % module.columns, side, module.columns):
                at = array(Columns, line + j)
                at[0] = at[0] - share * array(Columns, top + j)[0]
    for _ in range(module.proximal[1]):
        for r in range(m):
            lam[r] = fma(mu[r], lam[r], errors[r])
        for k in range(m):
            top, y = A + k * side, lam[k] * inverse[k]
            for i in range(k + 1, m):
                lam[i] = lam[i] - top[i] * y
        for back in reversed(range(m)):
            top, total = A + back * side, lam[back]
            for i in range(back + 1, m):
                total = total - top[i] * lam[i]
            lam[back] = total * inverse[back]
    for r in range(m):
        lam[r] = moving[r] * lam[r]
        if "restitution" in module.inputs:
            lam[r] = (1.0 + vectors(bases, "in restitution", module)[0]) * lam[r]
    lam[m] = spread(Vector, 0.0)  # of rows that fill up lines of segments
