"""Solves with mass matrices for a vector of states: H = L' D L and its solves, as loops that serve every robot.

    void kernel(ptr table, i64 first, i64 last, ptr workspace)

Like every kernel, but for the W states from `first` on alone, and on arrays that hold vectors of states (scalar k of a
state is vector k), except for those that a user gave. The first solve with a matrix factorises it along the pattern
that `Elimination` found, spoils it, and leaves 1/d and the nonzero entries of V = -L; later ones find them there. A
right-hand side becomes the solution in its place, some columns at a time, from the leaves to the root and back
(`panel_code`): what is at work, V and these columns, stays in the nearest cache. Columns of one state alone stand side
by side in vectors meanwhile (`side_by_side`).
"""

from __future__ import annotations

from dataclasses import replace

from robodyn.chains import Solution, Solve
from robodyn.codegen.llvm.straight_line import attributes
from robodyn.codegen.llvm.streaming import FLUSHED, flush_functions
from robodyn.codegen.llvm.target import Target
from robodyn.codegen.llvm.vectors import Lines, VectorType, declarations, table_word
from robodyn.engines.cpu.chains.panel_code import WIDTH, panel_rows, sweep
from robodyn.engines.cpu.chains.side_by_side import load_tile, mirror_tile, store_tile, unit_tile
from robodyn.engines.cpu.loops.runtime import runtime_functions
from robodyn.records import dataclass
from robodyn.sweeps import DofOutput

CONSTANTS = ("n", "lower starts", "lower index")
"""Arrays of 64-bit integers: the matrix's size; columns below the diagonal by row."""
OF_SOLUTION = ("tiles", "programs")
"""The same for each solution. The first number of tiles is how many there are, the second the columns of an array; then
of each its first column, its columns, where among the programs those of its sweeps begin, up and down, and how much of
the solution before is flushed when the tile is done."""
FACTORS = "factors of "
"""Before a matrix' name: 1/d and V, which the first solve leaves to later ones."""


@dataclass(frozen=True)
class SolveKind:
    """A solve as code knows it: `first` with its matrix, which right-hand sides are rows of the user's, whether it
    brings its results to rows, and the vectors that columns of one state stand in."""

    solve: Solve
    first: bool
    rows: tuple[str, ...] = ()
    flushes: bool = False
    columns: VectorType | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """Arrays that the table begins with; the matrix and its factors are outputs, too, of the first solve."""
        matrix, *others = self.solve.inputs
        return (matrix, FACTORS + matrix, *others)

    @property
    def stores_rows(self) -> bool:
        """Whether tiles are stored to the user's rows, and nothing is left to flush."""
        return self.flushes and self.columns is not None

    @property
    def widths(self) -> range:
        """Columns of tiles, or vectors of them; vectors have one."""
        likes = [solution.like for solution in self.solve.outputs.values()]
        vectors = all(isinstance(like, DofOutput) and not like.lanes for like in likes)
        return range(1, 2 if vectors else WIDTH + 1)

    @property
    def widths_of_inverse(self) -> range:
        """The same of an inverse, whose tiles have as many columns either way."""
        return self.widths if self.columns is None else range(1, -(-WIDTH // self.columns.width) + 1)

    @property
    def arrays(self) -> tuple[str, ...]:
        """All arrays of the table."""
        outputs = tuple(self.solve.outputs)
        return (*self.inputs, *outputs, *(FLUSHED + name for name in outputs if self.flushes))


def solve_module(kind: SolveKind, vector: VectorType, target: Target) -> str:
    """The module of a solve."""
    rows, columns = panel_rows(target), kind.columns
    if columns is None:
        tiles = [part(vector, width) for width in kind.widths for part in (_unit, _mirror)]
    else:
        tiles = [part(columns, width) for width in kind.widths for part in (load_tile, store_tile)]
        tiles += [mirror_tile(columns, width, WIDTH) for width in kind.widths_of_inverse]
        tiles = [declarations(columns), unit_tile(columns), *tiles]
    own = [
        flush_functions(vector, target) if kind.flushes and not kind.stores_rows else "",
        _factor(vector) if kind.first else "",
        *tiles,
        *(
            sweep(columns or vector, name, width, rows, side_by_side=columns is not None)
            for width in kind.widths
            for name in ("up", "down")
        ),
        *(_solution(kind, vector, number) for number in range(len(kind.solve.outputs))),
        _kernel(kind, vector),
    ]
    called = runtime_functions(vector, "".join(own))
    registers = target if columns is None else replace(target, narrow=False)
    return "".join([declarations(vector), called, *own, attributes(registers)])


def _factor(kind: VectorType) -> str:
    """factor(H, V, D, n, starts, index): from the last row to the first, -L to V and 1/d to D."""
    T, s = kind.name, kind.suffix
    return f"""define internal void @factor(ptr %H, ptr %V, ptr %D, i64 %n, ptr %starts, ptr %index) #0 {{
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %rows, label %done
rows:
  %left = phi i64 [ %n, %entry ], [ %k, %row.done ]
  %k = sub i64 %left, 1
  %start.at = getelementptr i64, ptr %starts, i64 %k
  %start = load i64, ptr %start.at
  %stop.at = getelementptr i64, ptr %starts, i64 %left
  %stop = load i64, ptr %stop.at
  %row.index = mul i64 %k, %n
  %row = getelementptr {T}, ptr %H, i64 %row.index
  %pivot.at = getelementptr {T}, ptr %row, i64 %k
  %pivot = load {T}, ptr %pivot.at
  %inverse = fdiv {T} {kind.splat(1.0)}, %pivot
  %d.at = getelementptr {T}, ptr %D, i64 %k
  store {T} %inverse, ptr %d.at
  %any = icmp slt i64 %start, %stop
  br i1 %any, label %columns, label %row.done
columns:
  %after = phi i64 [ %stop, %rows ], [ %e, %column.done ]
  %e = sub i64 %after, 1
  %p.at = getelementptr i64, ptr %index, i64 %e
  %p = load i64, ptr %p.at
  %h.at = getelementptr {T}, ptr %row, i64 %p
  %h = load {T}, ptr %h.at
  %share.up = fmul {T} %h, %inverse
  %share = fneg {T} %share.up
  %to.index = mul i64 %p, %n
  %to = getelementptr {T}, ptr %H, i64 %to.index
  br label %terms
terms:
  %f = phi i64 [ %start, %columns ], [ %f.next, %terms ]
  %r.at = getelementptr i64, ptr %index, i64 %f
  %r = load i64, ptr %r.at
  %source.at = getelementptr {T}, ptr %row, i64 %r
  %source = load {T}, ptr %source.at
  %target.at = getelementptr {T}, ptr %to, i64 %r
  %target = load {T}, ptr %target.at
  %sum = call {T} @llvm.fmuladd.{s}({T} %share, {T} %source, {T} %target)
  store {T} %sum, ptr %target.at
  %f.next = add i64 %f, 1
  %f.more = icmp slt i64 %f.next, %after
  br i1 %f.more, label %terms, label %column.done
column.done:
  %v.at = getelementptr {T}, ptr %V, i64 %e
  store {T} %share, ptr %v.at
  %e.more = icmp sgt i64 %e, %start
  br i1 %e.more, label %columns, label %row.done
row.done:
  %more = icmp sgt i64 %k, 0
  br i1 %more, label %rows, label %done
done:
  ret void
}}

"""


def _unit(kind: VectorType, width: int) -> str:
    """unitW(X, n, c): columns c .. c + W - 1 of the unit matrix, from row c on."""
    T, out = kind.name, Lines()
    for j in range(width):
        one = out.new(f"icmp eq i64 %k, {out.new(f'add i64 %c, {j}')}")
        value = out.new(f"select i1 {one}, {T} {kind.splat(1.0)}, {T} zeroinitializer")
        out.do(f"store {T} {value}, ptr {out.new(f'getelementptr {T}, ptr %at, i64 {j}')}, align {kind.bytes}")
    body = "\n".join(out.lines)
    return f"""define internal void @unit{width}(ptr %X, i64 %n, i64 %c) #0 {{
entry:
  br label %rows
rows:
  %k = phi i64 [ %c, %entry ], [ %k.next, %rows ]
  %line = mul i64 %k, %n
  %index = add i64 %line, %c
  %at = getelementptr {T}, ptr %X, i64 %index
{body}
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %n
  br i1 %more, label %rows, label %done
done:
  ret void
}}

"""


def _mirror(kind: VectorType, width: int) -> str:
    """mirrorW(X, n, c): of columns c .. c + W - 1 the rows before c, which stand below the diagonal."""
    T, aligned, out = kind.name, f"align {kind.bytes}", Lines()
    source = "%from"
    for j in range(width):
        value = out.new(f"load {T}, ptr {source}, {aligned}")
        out.do(f"store {T} {value}, ptr {out.new(f'getelementptr {T}, ptr %to, i64 {j}')}, {aligned}")
        source = out.new(f"getelementptr {T}, ptr {source}, i64 %n") if j < width - 1 else source
    body = "\n".join(out.lines)
    return f"""define internal void @mirror{width}(ptr %X, i64 %n, i64 %c) #0 {{
entry:
  %first.line = mul i64 %c, %n
  %first = getelementptr {T}, ptr %X, i64 %first.line
  %any = icmp sgt i64 %c, 0
  br i1 %any, label %rows, label %done
rows:
  %p = phi i64 [ 0, %entry ], [ %p.next, %rows ]
  %from = getelementptr {T}, ptr %first, i64 %p
  %line = mul i64 %p, %n
  %index = add i64 %line, %c
  %to = getelementptr {T}, ptr %X, i64 %index
{body}
  %p.next = add i64 %p, 1
  %more = icmp slt i64 %p.next, %c
  br i1 %more, label %rows, label %done
done:
  ret void
}}

"""


class _Table:
    """Loads of the table's words; constants follow inputs and outputs."""

    def __init__(self, kind: SolveKind, out: Lines) -> None:
        self.out, self.outputs, self.arrays = out, tuple(kind.solve.outputs), kind.arrays

    def word(self, number: int, field: int, kind: str) -> str:
        """A word of the table."""
        return table_word(self.out, number, field, kind)

    def array(self, name: str) -> str:
        """Data of an input or output."""
        return self.word(self.arrays.index(name), 0, "ptr")

    def constant(self, name: str, solution: int | None = None) -> str:
        """Pointer to a constant array."""
        number = len(self.arrays)
        if solution is None:
            number += CONSTANTS.index(name)
        else:
            number += len(CONSTANTS) + len(OF_SOLUTION) * solution + OF_SOLUTION.index(name)
        return self.word(number, 0, "ptr")

    def size(self, solution: int, n: str) -> str:
        """Scalars of a solution of n rows."""
        columns = self.out.new(f"getelementptr i64, ptr {self.constant('tiles', solution)}, i64 1")
        return self.out.new(f"mul i64 {n}, {self.out.new(f'load i64, ptr {columns}')}")

    def row(self, name: str) -> str:
        """Where the user's row %first of a solution begins."""
        number = self.arrays.index(FLUSHED + name)
        offset = self.out.new(f"mul i64 %first, {self.word(number, 1, 'i64')}")
        return self.out.new(f"getelementptr i8, ptr {self.word(number, 0, 'ptr')}, i64 {offset}")

    def flush(self, solution: int, size: str, start: str, stop: str) -> str:
        """The call that brings scalars start .. stop - 1 of a solution to the user's rows %first .. %end."""
        name = self.outputs[solution]
        number = self.arrays.index(FLUSHED + name)
        rows, stride = self.word(number, 0, "ptr"), self.word(number, 1, "i64")
        columns = f"i64 {start}, i64 {stop}, i64 {size}, i64 {self.word(len(self.arrays), 1, 'i64')}"
        return f"call void @flush(ptr {rows}, i64 {stride}, i64 %first, i64 %end, ptr {self.array(name)}, {columns})"


class _Steps:
    """What is called for a tile of a solution, of vectors of states or of columns. Those of columns are stored where
    results go, which is the user's row at once if there is one."""

    def __init__(self, kind: SolveKind, vector: VectorType, solution: Solution, result: str) -> None:
        self.columns, self.result, self.unit = kind.columns, result, not solution.arrays
        self.widths = kind.widths_of_inverse if self.unit else kind.widths
        self.sweeps = kind.columns or vector
        minus = solution.plus is None and solution.minus is not None
        self.sign = f"{self.sweeps.name} {self.sweeps.splat(-1.0 if minus else 1.0)}"

    @property
    def width(self) -> str:
        """Which of the widths a tile has."""
        if self.columns is None:
            return "  %width = add i64 %count, 0\n"
        W = self.columns.width
        return f"""  %to = getelementptr {self.columns.scalar}, ptr {self.result}, i64 %c
  %rounded = add i64 %count, {W - 1}
  %width = udiv i64 %rounded, {W}
"""

    def calls(self) -> str:
        """The calls for tiles of each width."""
        of = self._of_states if self.columns is None else self._of_columns
        cases = []
        for width in self.widths:
            lines = "".join(f"  {line}\n" for line in of(width))
            cases.append(f"tile.{width}:\n{lines}  br label %next\n")
        return "".join(cases)

    def _swept(self, width: int, tile: str, line: str, between: list[str]) -> list[str]:
        return [
            f"call void @up{width}(ptr {tile}, ptr %V, ptr %up, i64 {line})",
            *between,
            f"call void @down{width}(ptr {tile}, ptr %V, ptr %down, i64 {line}, ptr %D, {self.sign})",
        ]

    def _of_states(self, width: int) -> list[str]:
        begin, mirrored = (
            [f"call void @{name}{width}(ptr {self.result}, i64 %n, i64 %c)"] if self.unit else []
            for name in ("unit", "mirror")
        )
        return [*begin, *self._swept(width, "%X", "%columns", mirrored)]

    def _of_columns(self, width: int) -> list[str]:
        assert self.columns is not None
        last, mirrored = f"%last.{width}", list[str]()
        begin = f"call void @load_tile{width}(ptr %X, ptr %Y, i64 %columns, i64 {last}, i64 %n)"
        if self.unit:
            begin = f"call void @unit_tile(ptr %Y, i64 {width}, i64 %c, i64 %n, i64 %count)"
            mirrored = [f"call void @mirror_tile{width}(ptr {self.result}, ptr %Y, i64 %c, i64 %n, i64 %count)"]
        return [
            f"{last} = sub i64 %count, {(width - 1) * self.columns.width}",
            begin,
            *self._swept(width, "%Y", str(width), mirrored),
            f"call void @store_tile{width}(ptr %to, ptr %Y, i64 %columns, i64 {last}, i64 %n)",
        ]


def _solution(kind: SolveKind, vector: VectorType, number: int) -> str:
    """solution_K(table, n, V, D, first, end, Y): right-hand sides become one of the outputs in its place, by tiles.

    An inverse is symmetric: rows above a tile's first column are those of tiles before, and only the others are solved
    for. After each tile a part of the solution before goes to the user's rows: memory takes it while others are solved
    for.
    """
    name, solution = list(kind.solve.outputs.items())[number]
    out = Lines()
    table = _Table(kind, out)
    tiles, programs = (table.constant(each, number) for each in OF_SOLUTION)
    array = table.array(name)
    result, flush = array, ""
    if kind.stores_rows:
        result = table.row(name)
    elif kind.flushes and number > 0:
        flush = f"  {table.flush(number - 1, table.size(number - 1, '%n'), '%flushed', '%flushed.next')}\n"
    setup = "\n".join(out.lines)
    steps = _Steps(kind, vector, solution, result)
    cases = "".join(f"    i64 {width}, label %tile.{width}\n" for width in steps.widths[:-1])
    arguments = "ptr %table, i64 %n, ptr %V, ptr %D, i64 %first, i64 %end, ptr %Y"
    return f"""define internal void @solution_{number}({arguments}) #0 {{
entry:
{setup}
  %n_tiles = load i64, ptr {tiles}
  %columns.at = getelementptr i64, ptr {tiles}, i64 1
  %columns = load i64, ptr %columns.at
  %some = icmp sgt i64 %n_tiles, 0
  br i1 %some, label %each, label %done
each:
  %t = phi i64 [ 0, %entry ], [ %t.next, %next ]
  %flushed = phi i64 [ 0, %entry ], [ %flushed.next, %next ]
  %record = mul i64 %t, 5
  %c.number = add i64 %record, 2
  %c.at = getelementptr i64, ptr {tiles}, i64 %c.number
  %c = load i64, ptr %c.at
  %count.at = getelementptr i64, ptr %c.at, i64 1
  %count = load i64, ptr %count.at
  %up.at = getelementptr i64, ptr %c.at, i64 2
  %up.start = load i64, ptr %up.at
  %up = getelementptr i64, ptr {programs}, i64 %up.start
  %down.at = getelementptr i64, ptr %c.at, i64 3
  %down.start = load i64, ptr %down.at
  %down = getelementptr i64, ptr {programs}, i64 %down.start
  %flushed.at = getelementptr i64, ptr %c.at, i64 4
  %flushed.next = load i64, ptr %flushed.at
  %X = getelementptr {vector.name}, ptr {array}, i64 %c
{steps.width}  switch i64 %width, label %tile.{steps.widths[-1]} [
{cases}  ]
{steps.calls()}next:
{flush}  %t.next = add i64 %t, 1
  %more = icmp slt i64 %t.next, %n_tiles
  br i1 %more, label %each, label %done
done:
  ret void
}}

"""


def _kernel(kind: SolveKind, vector: VectorType) -> str:
    """The exported function: the factors, then each solution.

    Right-hand sides stand in the result's place, or come there: the user's rows become vectors, and of two that are
    both rows, one behind the other in the workspace. Tiles of columns side by side come first there.
    """
    out = Lines()
    table = _Table(kind, out)
    matrix, T = kind.solve.matrix, vector.name
    n = out.new(f"load i64, ptr {table.constant('n')}")
    D = table.array(FACTORS + matrix)
    V = out.new(f"getelementptr {T}, ptr {D}, i64 {n}")
    if kind.first:
        starts, index = table.constant("lower starts"), table.constant("lower index")
        out.do(f"call void @factor(ptr {table.array(matrix)}, ptr {V}, ptr {D}, i64 {n}, ptr {starts}, ptr {index})")
    out.do("%end = sub i64 %last, 1")
    staged = "%workspace"
    if kind.columns is not None:
        tile = out.new(f"mul i64 {n}, {WIDTH}")
        staged = out.new(f"getelementptr {kind.columns.name}, ptr %workspace, i64 {tile}")
    for number, (result, solution) in enumerate(kind.solve.outputs.items()):
        size, to = table.size(number, n), table.array(result)
        at = {name: table.array(name) for name in solution.arrays}
        for name, place in zip((each for each in at if each in kind.rows), (to, staged), strict=False):
            stride = table.word(table.arrays.index(name), 1, "i64")
            rows = f"ptr {at[name]}, i64 {stride}, i64 %first, i64 %end"
            out.do(f"call void @stage_in({rows}, ptr {place}, i64 {size})")
            at[name] = place
        if solution.plus is not None and solution.minus is not None:
            out.do(f"call void @subtract(ptr {at[solution.plus]}, ptr {at[solution.minus]}, ptr {to}, i64 {size})")
        out.do(
            f"call void @solution_{number}(ptr %table, i64 {n}, ptr {V}, ptr {D}, i64 %first, i64 %end, ptr %workspace)"
        )
    if kind.flushes and not kind.stores_rows:
        out.do(table.flush(number, size, "0", size))
    body = "\n".join(out.lines)
    return f"""define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) #0 {{
{body}
  ret void
}}

"""
