"""Products of matrices between the stages of a chain, for a vector of states: loops that serve every robot.

    void kernel(ptr table, i64 first, i64 last, ptr workspace)

Like the kernels of solves (`solve_code`) it works on arrays of vectors, for the W states of one vector. A row of a
product is the sum of rows of the right matrix, each times an entry of the left matrix. Some columns at a time are
summed in registers. Entries of the left matrix that are zero for every state are skipped.

For a single state, the lanes of vectors are columns (`column_lanes`), and states are processed one after another. All
of them have the same right matrices. Right matrices with the same left matrix are stored side by side as one wide
matrix, so that one product computes them all.
"""

from __future__ import annotations

from dataclasses import replace

from robodyn.algorithms.tasks import Product, Products
from robodyn.compile.llvm.straight_line import attributes
from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.loops.blocks import Number, Type
from robodyn.compile.loops.language import (
    Address,
    Array,
    Entry,
    Scalar,
    Static,
    Unaligned,
    UnalignedScalar,
    Vector,
    Word,
    array,
    fma,
    known,
    lanes_of,
    load_some,
    routine,
    spread,
    store_some,
    switch,
)
from robodyn.compile.loops.llvm import Module, printed_module
from robodyn.compile.loops.table import Argument, words_of
from robodyn.engines.cpu.chains.column_lanes import first_columns
from robodyn.engines.cpu.loops.runtime import transposed, types_of

CONSTANTS = ("n", "tiles", "starts", "index")
"""Arrays of 64-bit integers: the matrices' size; the number of tiles of columns, then first column and width of each
tile in vectors (for vectors of columns: of each wide product); where rows begin in `index`; columns where the left
matrix can be nonzero, row by row."""
WIDTHS = range(1, 13)


@known
def joined(stage: Products) -> dict[str, list[str]]:
    """Outputs that are products, grouped by their left matrix."""
    found: dict[str, list[str]] = {}
    for name, product in stage.outputs.items():
        if product.left is not None and product.right is not None:
            found.setdefault(product.left, []).append(name)
    return found


def products_types(kind: VectorType, columns: VectorType | None) -> dict[str, Type]:
    """Types in the module, by name; `columns` as for `ProductsPlan`."""
    return {**types_of(columns or kind), "Entry": Number(kind.scalar, kind.width)}


def products_module(stage: Products, kind: VectorType, columns: VectorType | None, target: Target) -> str:
    """The module of products."""

    def export(module: Module) -> None:
        module.export(kernel if columns is None else kernel_column_lanes, "kernel", stage=stage)

    attached = attributes(target if columns is None else replace(target, narrow=False))
    facts = "products", list(stage.outputs.items()), kind, columns, target
    return printed_module(facts, products_types(kind, columns), export, attached)


@routine
def multiply_columns(
    A: Array[Entry],
    B: Array[Vector],
    P: Array[Vector],
    n: Word,
    starts: Array[Word],
    index: Array[Word],
    line: Word,
    width: Static[int],
) -> None:
    """`width` vectors of each row of P = A B. Rows of B and P are `line` vectors apart."""
    for r in range(n):
        sums = [spread(Vector, 0.0) for _ in range(width)]
        row = A + r * n
        for e in range(starts[r], starts[r + 1]):
            k = index[e]
            factor, others = spread(Vector, row[k]), B + k * line
            for c in range(width):
                sums[c] = fma(factor, others[c], sums[c])
        to = P + r * line
        for c in range(width):
            to[c] = sums[c]


@routine
def multiply(
    A: Array[Entry],
    B: Array[Vector],
    P: Array[Vector],
    n: Word,
    starts: Array[Word],
    index: Array[Word],
    line: Word,
    tiles: Array[Word],
) -> Array[Word]:
    """P = A B, tile by tile. Rows of B and P are `line` vectors apart. Returns the address after the tiles."""
    for t in range(tiles[0]):
        column, width = tiles[1 + 2 * t], tiles[2 + 2 * t]
        for wide in switch(width, WIDTHS):
            multiply_columns(A, B + column, P + column, n, starts, index, line, wide)
    return tiles + (1 + 2 * tiles[0])


def negative_sum(terms: Static[list[Vector]]) -> Vector:
    """Minus the sum of some vectors."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return -total


@routine
def finish(to: Array[Vector], plain: Array[Vector] | None, P: Array[Vector], n: Word, product: Static[Product]) -> None:
    """-(plain + P), or -(plain + P + P')."""
    for r in range(n):
        for c in range(n):
            k = r * n + c
            terms = [] if plain is None else [plain[k]]
            if product.left is not None:
                terms = [*terms, P[k], P[c * n + r]] if product.symmetric else [*terms, P[k]]
            to[k] = negative_sum(terms)


def pattern_of(table: Array[Argument], stage: Static[Products]) -> list[Array[Word]]:
    """The arrays of constants, which follow inputs and outputs in the table."""
    first = len(stage.inputs) + len(stage.outputs)
    return [words_of(table, first + k) for k in range(len(CONSTANTS))]


@routine
def kernel(table: Array[Argument], first: Word, last: Word, workspace: Address, stage: Static[Products]) -> None:
    """Compute one output after another."""
    size, tiles, starts, index = pattern_of(table, stage)
    n, P = size[0], array(Vector, workspace)
    arrays = {name: k for k, name in enumerate([*stage.inputs, *stage.outputs])}
    for name, product in stage.outputs.items():
        if product.left is not None and product.right is not None:
            A, B = (array(Vector, table[arrays[each]].data) for each in (product.left, product.right))
            multiply(A, B, P, n, starts, index, n, tiles)
        plain = None if product.plain is None else array(Vector, table[arrays[product.plain]].data)
        finish(array(Vector, table[arrays[name]].data), plain, P, n, product)


@routine
def load_rows(X: Array[UnalignedScalar], Y: Array[Vector], n: Word, row: Word, line: Word) -> None:
    """Copy n rows of n scalars to rows of vectors, which are `line` vectors apart. Lanes after the last scalar of a row
    are zero."""
    for k in range(n):
        for j in range(row):
            column = j * lanes_of(Vector)
            Y[k * line + j] = load_some(array(Unaligned, X + (k * n + column)), first_columns(n - column))


@routine
def finish_column_lanes(
    to: Array[UnalignedScalar],
    plain: Array[UnalignedScalar] | None,
    P: Array[Scalar] | None,
    n: Word,
    pitch: Word,
    product: Static[Product],
) -> None:
    """`finish` for vectors of columns. If P is transposed too, it processes blocks of as many rows as a vector has
    lanes. Rows of P are `pitch` scalars apart."""
    W = lanes_of(Vector)
    rows = W if product.symmetric else 1
    for r in range(0, n, rows):
        for c in range(0, n, W):
            columns, turned = first_columns(n - c), []
            if product.symmetric and P is not None:
                turned = transposed([array(Vector, P + ((c + k) * pitch + r))[0] for k in range(W)])
            for k in range(rows):
                mask = first_columns(n - c if r + k < n else 0) if rows > 1 else columns
                at = (r + k) * n + c
                terms = [] if plain is None else [load_some(array(Unaligned, plain + at), mask)]
                if product.left is not None and P is not None:
                    terms = [*terms, array(Vector, P + ((r + k) * pitch + c))[0], *turned[k : k + 1]]
                store_some(array(Unaligned, to + at), mask, negative_sum(terms))


def row_of(table: Array[Argument], number: Word, state: Word) -> Array[UnalignedScalar]:
    """Address of a state's row."""
    return array(UnalignedScalar, table[number].data + state * table[number].stride)


@routine
def kernel_column_lanes(
    table: Array[Argument], first: Word, last: Word, workspace: Address, stage: Static[Products]
) -> None:
    """`kernel` for single states, one after another. Right matrices are copied once."""
    size, every_tile, starts, index = pattern_of(table, stage)
    n, W = size[0], lanes_of(Vector)
    row, groups = (n + (W - 1)) // W, list(joined(stage).items())
    arrays = {name: k for k, name in enumerate([*stage.inputs, *stage.outputs])}
    places = load_rights(table, array(Vector, workspace), n, row, stage, groups, arrays)
    for state in range(first, last):
        tiles = every_tile
        for (left, names), (Y, P) in zip(groups, places, strict=True):
            A = array(Entry, row_of(table, arrays[left], state))
            tiles = multiply(A, Y, P, n, starts, index, row * len(names), tiles)
        for name, product in stage.outputs.items():
            group = [k for k, (_, names) in enumerate(groups) if name in names]
            plain = None if product.plain is None else row_of(table, arrays[product.plain], state)
            to = row_of(table, arrays[name], state)
            if not group:
                finish_column_lanes(to, plain, None, n, 0, product)
            else:
                names, (_, P) = groups[group[0]][1], places[group[0]]
                own = array(Scalar, P + row * names.index(name))
                finish_column_lanes(to, plain, own, n, row * len(names) * W, product)


def load_rights(
    table: Array[Argument],
    workspace: Array[Vector],
    n: Word,
    row: Word,
    stage: Static[Products],
    groups: Static[list[tuple[str, list[str]]]],
    arrays: Static[dict[str, int]],
) -> list[tuple[Array[Vector], Array[Vector]]]:
    """Copy the right matrices of each left matrix to the workspace. Returns their addresses, and those for their
    products."""
    places: list[tuple[Array[Vector], Array[Vector]]] = []
    free = workspace
    for _, names in groups:
        line = row * len(names)
        P = free + n * line
        for k, name in enumerate(names):
            right = array(UnalignedScalar, table[arrays[stage.outputs[name].right or ""]].data)
            load_rows(right, free + row * k, n, row, line)
        places = [*places, (free, P)]
        free = P + row * lanes_of(Vector) * line
    return places
