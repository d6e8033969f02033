"""Solves with mass matrices for a vector of states: the factorisation H = L' D L and triangular solves, as loops that
serve every robot.

    void kernel(ptr table, i64 first, i64 last, ptr workspace)

It processes the W states from `first` on only. Arrays hold vectors of states (scalar k of the states is vector k),
except for the user's arrays. The first solve with a matrix factorises it along the pattern of `SymbolicFactor`,
overwrites it, and stores 1/d and the nonzero entries of V = -L for later solves. A solution overwrites its right-hand
side, some columns at a time, from the leaves to the root and back (`panel_code`): V and these columns stay in the
first-level cache. For a single state, the lanes of vectors are columns (`column_lanes`).
"""

from __future__ import annotations

import ctypes
from dataclasses import replace

from robodyn.algorithms.tasks import Solution, Solve
from robodyn.compile.llvm.straight_line import attributes
from robodyn.compile.llvm.streaming import FLUSHED
from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.loops.blocks import Number, Type
from robodyn.compile.loops.language import (
    Address,
    Array,
    Loose,
    State,
    Static,
    UnalignedScalar,
    Vector,
    Word,
    address,
    array,
    fma,
    lanes_of,
    routine,
    spread,
    switch,
)
from robodyn.compile.loops.llvm import printed_module
from robodyn.compile.loops.table import Argument, words_of
from robodyn.core.sweeps import DofOutput
from robodyn.engines.cpu.chains.column_lanes import load_tile, mirror_tile, store_tile, unit_tile
from robodyn.engines.cpu.chains.panel_code import WIDTH, down, panel_rows, up
from robodyn.engines.cpu.chains.store_rows_code import flush, large_bytes
from robodyn.engines.cpu.loops.runtime import stage_in, subtract, types_of
from robodyn.internals.records import dataclass

CONSTANTS = ("n", "lower starts", "lower index")
"""Arrays of 64-bit integers: the matrix's size; where rows begin in "lower index"; columns below the diagonal, row by
row."""
OF_SOLUTION = ("tiles", "programs")
"""Arrays of 64-bit integers for each solution: `Tiles`, and the programs of all sweeps."""
FACTORS = "factors of "
"""Prefix of a matrix' name: its factors 1/d and V, which the first solve stores for later ones."""


class Tiles(ctypes.Structure):
    """Number of tiles, and columns of the array; the tiles follow."""

    _fields_ = (("count", ctypes.c_int64), ("columns", ctypes.c_int64))


class Tile(ctypes.Structure):
    """A tile: first column; number of columns; where the programs of its sweeps begin; and the end of the part of the
    previous solution that is flushed after the tile."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("column", "count", "up", "down", "flushed"))


@dataclass(frozen=True)
class SolveKind:
    """What the code of a solve depends on. `first`: True for the first solve with its matrix; `rows`: right-hand sides
    that are the user's rows; `flushes`: True if results go to rows; `columns`: vectors of columns of one state, or
    None."""

    solve: Solve
    first: bool
    rows: tuple[str, ...] = ()
    flushes: bool = False
    columns: VectorType | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The first arrays of the table. The matrix and its factors are outputs as well for the first solve."""
        matrix, *others = self.solve.inputs
        return (matrix, FACTORS + matrix, *others)

    @property
    def stores_rows(self) -> bool:
        """True if tiles are stored directly to the user's rows, so that nothing is left to flush."""
        return self.flushes and self.columns is not None

    @property
    def widths(self) -> range:
        """Widths of tiles, in columns or vectors of columns."""
        likes = [solution.like for solution in self.solve.outputs.values()]
        vectors = all(isinstance(like, DofOutput) and not like.lanes for like in likes)
        return range(1, 2 if vectors else WIDTH + 1)

    def widths_of(self, solution: Solution) -> range:
        """Widths of a solution's tiles. Those of an inverse have the same columns in both cases."""
        if solution.arrays or self.columns is None:
            return self.widths
        return range(1, -(-WIDTH // self.columns.width) + 1)

    @property
    def arrays(self) -> tuple[str, ...]:
        """All arrays of the table."""
        outputs = tuple(self.solve.outputs)
        return (*self.inputs, *outputs, *(FLUSHED + name for name in outputs if self.flushes))

    def number(self, name: str) -> int:
        """Index of an array in the table."""
        return self.arrays.index(name)

    def constant(self, name: str, solution: int = 0) -> int:
        """Index of a constant in the table."""
        if name in CONSTANTS:
            return len(self.arrays) + CONSTANTS.index(name)
        return len(self.arrays) + len(CONSTANTS) + len(OF_SOLUTION) * solution + OF_SOLUTION.index(name)


@dataclass(frozen=True)
class SolveCode:
    """Everything that a module depends on: the solve, maximal rows of panels, and the bytes of results from which
    streaming stores are used."""

    kind: SolveKind
    panel: int
    large: int | None


def solve_types(kind: SolveKind, vector: VectorType) -> dict[str, Type]:
    """Types in the module, by name."""
    state = Number(vector.scalar, vector.width)
    if kind.columns is None:
        return {**types_of(vector), "Entry": state, "State": state}
    return {**types_of(kind.columns), "Entry": state, "State": state, "Loose": state}


def solve_code(kind: SolveKind, vector: VectorType, target: Target) -> SolveCode:
    """The code of a solve on a processor."""
    return SolveCode(kind, panel_rows(target), large_bytes(vector, target))


def solve_module(kind: SolveKind, vector: VectorType, target: Target) -> str:
    """The module of a solve."""
    outputs, code = kind.solve.outputs.items(), solve_code(kind, vector, target)
    facts = (
        *("solve", kind.solve.matrix, [(name, each.plus, each.minus) for name, each in outputs], kind.first, kind.rows),
        *(kind.flushes, kind.columns, list(kind.widths), vector, target, code.panel, code.large),
    )
    attached = attributes(target if kind.columns is None else replace(target, narrow=False))
    return printed_module(facts, solve_types(kind, vector), lambda module: module.export(kernel, code=code), attached)


@routine
def factor(H: Array[State], V: Array[State], D: Array[State], n: Word, starts: Array[Word], index: Array[Word]) -> None:
    """Factorise H = L' D L from the last row to the first (Featherstone 2008, section 6.5). Stores -L in V and 1/d in
    D."""
    for k in reversed(range(n)):
        start, row = starts[k], H + k * n
        inverse = 1.0 / row[k]
        D[k] = inverse
        for e in reversed(range(start, starts[k + 1])):
            p = index[e]
            share, to = -(row[p] * inverse), H + p * n
            for f in range(start, e + 1):
                r = index[f]
                to[r] = fma(share, row[r], to[r])
            V[e] = share


@routine
def unit(X: Array[State], n: Word, column: Word, width: Static[int]) -> None:
    """`width` columns of the identity matrix from `column` on, without the rows before `column`."""
    for k in range(column, n):
        row = X + (k * n + column)
        for j in range(width):
            row[j] = spread(State, 1.0) if k == column + j else spread(State, 0.0)


@routine
def mirror(X: Array[State], n: Word, column: Word, width: Static[int]) -> None:
    """The rows before `column` of `width` columns of a symmetric inverse, copied from below the diagonal."""
    for p in range(column):
        source, to = X + (column * n + p), X + (p * n + column)
        for j in range(width):
            to[j] = (source + j * n)[0]


def flush_solution(
    table: Array[Argument],
    code: Static[SolveCode],
    number: Static[int],
    first: Word,
    end: Word,
    size: Word,
    start: Word,
    stop: Word,
) -> None:
    """Bring scalars `start` to `stop - 1` of a solution to the user's rows; a state has `size` scalars."""
    name = list(code.kind.solve.outputs)[number]
    rows = table[code.kind.number(FLUSHED + name)]
    vectors, batch = array(Loose, table[code.kind.number(name)].data), table[len(code.kind.arrays)].stride
    flush(rows.data, rows.stride, first, end, vectors, None, start, stop, size, batch, code.large)


def solve_tile(
    X: Array[State],
    result: Array[State],
    tile: Tile,
    V: Array[State],
    D: Array[State],
    programs: Array[Word],
    n: Word,
    columns: Word,
    Y: Array[Vector],
    code: Static[SolveCode],
    solution: Static[Solution],
    width: Static[int],
) -> None:
    """Solve for a tile of `width` columns, or vectors of columns: in place for vectors of states, in the workspace for
    columns of one state. The right-hand side of an inverse is the identity matrix."""
    sign = spread(Vector, -1.0 if solution.plus is None and solution.minus is not None else 1.0)
    column, count = tile.column, tile.count
    going_up, going_down = programs + tile.up, programs + tile.down
    if code.kind.columns is None:
        if not solution.arrays:
            unit(result, n, column, width)
        at, line = array(Vector, X + column), columns
    else:
        last = count - (width - 1) * lanes_of(Vector)
        if not solution.arrays:
            unit_tile(Y, width, column, n, count)
        else:
            load_tile(array(UnalignedScalar, X + column), Y, columns, last, n, width)
        at, line = Y, width
    up(at, V, going_up, line, width, code.panel)
    if not solution.arrays:
        if code.kind.columns is None:
            mirror(result, n, column, width)
        else:
            mirror_tile(array(UnalignedScalar, result), Y, column, n, count, width, WIDTH)
    down(at, V, going_down, line, D, sign, width, code.panel)
    if code.kind.columns is not None:
        store_tile(array(UnalignedScalar, result + column), Y, columns, last, n, width)


@routine
def solve_columns(
    table: Array[Argument],
    n: Word,
    V: Array[State],
    D: Array[State],
    first: Word,
    end: Word,
    Y: Array[Vector],
    code: Static[SolveCode],
    number: Static[int],
) -> None:
    """Solve for one of the outputs, tile by tile; it overwrites its right-hand side.

    An inverse is symmetric: rows above a tile's first column are known from earlier tiles, and only the other rows are
    solved for. After each tile a part of the previous solution is brought to the user's rows, so that memory traffic
    and arithmetic overlap.
    """
    kind = code.kind
    name, solution = list(kind.solve.outputs.items())[number]
    head, programs = (table[kind.constant(each, number)].data for each in OF_SOLUTION)
    tiles, columns = array(Tile, array(Tiles, head) + 1), array(Tiles, head).columns
    X = array(State, table[kind.number(name)].data)
    result = X
    if kind.stores_rows:
        rows = table[kind.number(FLUSHED + name)]
        result = array(State, rows.data + first * rows.stride)
    flushed, size = 0, 0
    if number > 0:
        size = n * array(Tiles, table[kind.constant("tiles", number - 1)].data).columns
    for t in range(array(Tiles, head).count):
        tile = tiles[t]
        width = tile.count
        if kind.columns is not None:
            width = (width + (lanes_of(Vector) - 1)) // lanes_of(Vector)
        for wide in switch(width, kind.widths_of(solution)):
            solve_tile(X, result, tile, V, D, array(Word, programs), n, columns, Y, code, solution, wide)
        if kind.flushes and not kind.stores_rows and number > 0:
            flush_solution(table, code, number - 1, first, end, size, flushed, tile.flushed)
            flushed = tile.flushed


def staged_rows(
    table: Array[Argument], name: Static[str], to: Address, first: Word, end: Word, size: Word, code: Static[SolveCode]
) -> Array[Loose]:
    """The user's rows of a right-hand side as vectors."""
    rows = table[code.kind.number(name)]
    stage_in(rows.data, rows.stride, first, end, array(Loose, to), size, lanes_of(State))
    return array(Loose, to)


@routine
def kernel(table: Array[Argument], first: Word, last: Word, workspace: Address, code: Static[SolveCode]) -> None:
    """The factors, then each solution.

    Right-hand sides that are the user's rows are first converted to vectors in the result's memory. If both right-hand
    sides of a difference are rows, the second one is converted in the workspace, after the tile of columns.
    """
    kind = code.kind
    n = words_of(table, kind.constant("n"))[0]
    D = array(State, table[kind.number(FACTORS + kind.solve.matrix)].data)
    V = D + n
    if kind.first:
        starts, index = (words_of(table, kind.constant(each)) for each in CONSTANTS[1:])
        factor(array(State, table[kind.number(kind.solve.matrix)].data), V, D, n, starts, index)
    end, Y = last - 1, array(Vector, workspace)
    behind = address(Y if kind.columns is None else Y + n * WIDTH)
    for number, (result, solution) in enumerate(kind.solve.outputs.items()):
        size = n * array(Tiles, table[kind.constant("tiles", number)].data).columns
        to = table[kind.number(result)].data
        places = [to, behind]
        sides = [array(Loose, table[kind.number(name)].data) for name in solution.arrays]
        for k, name in enumerate(solution.arrays):
            if name in kind.rows:
                sides[k] = staged_rows(table, name, places[0], first, end, size, code)
                places = places[1:]
        if solution.plus is not None and solution.minus is not None:
            names = list(solution.arrays)
            plus, minus = sides[names.index(solution.plus)], sides[names.index(solution.minus)]
            subtract(plus, minus, array(Loose, to), size)
        solve_columns(table, n, V, D, first, end, Y, code, number)
        if kind.flushes and not kind.stores_rows and number == len(kind.solve.outputs) - 1:
            flush_solution(table, code, number, first, end, size, 0, size)
