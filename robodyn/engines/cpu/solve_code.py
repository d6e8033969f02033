"""Solves with mass matrices for a vector of states: H = L' D L and its solves, as loops that serve every robot.

    void kernel(ptr table, i64 first, i64 last, ptr workspace)

Like every kernel, but for the W states from `first` on alone, and on arrays that hold vectors of states (scalar k of a
state array is vector k), except for those that a user gave. The first solve with a matrix factorises it in place along
the pattern that `Elimination` found: V holds -L below its diagonal, D 1/d; later ones find them there. Right-hand sides
go through some columns at a time (X: a row of a tile for each degree of freedom), so that a tile and L stay in the
nearest cache. A row of a sweep is

    x[row] = b[row] + sum over entries (v, y) of V[v] X[y]

with its columns in registers; entries are pairs of vector numbers, made once for a robot.
"""

from __future__ import annotations

from dataclasses import dataclass

from robodyn.chains import Solve
from robodyn.engines.cpu.rolled_runtime import runtime_functions
from robodyn.engines.cpu.straight_line import attributes
from robodyn.engines.cpu.target import Target
from robodyn.engines.cpu.vectors import Lines, VectorType, declarations

CONSTANTS = ("n", "lower starts", "lower index", "down starts", "down entries")
"""Arrays of 64-bit integers: the matrix's size; columns below the diagonal by row; the sweep from the root down."""
OF_SOLUTION = ("tiles", "up starts", "up entries")
"""The same for each solution: its tiles, and for each of them the sweep from the leaves up. The first number of tiles
is how many there are, the second the columns of an array; then the first column and the columns of each."""
PIVOTS = "pivots of "
"""Before a matrix' name: 1/d, which the first solve leaves to later ones."""


@dataclass(frozen=True)
class SolveKind:
    """A solve as code knows it: `first` with its matrix, and which arrays are rows of the user's."""

    solve: Solve
    first: bool
    rows: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Arrays that the table begins with; the matrix and its pivots are outputs, too, of the first solve."""
        matrix, *others = self.solve.inputs
        return (matrix, PIVOTS + matrix, *others)


def tile_width(target: Target) -> int:
    """Columns of a tile: as many sums as there are registers for, beside what they are made of."""
    return 8 if target.level in ("sse2", "avx2") else 16


def solve_module(kind: SolveKind, vector: VectorType, target: Target) -> str:
    """The module of a solve."""
    tile = tile_width(target)
    parts = [
        declarations(vector),
        runtime_functions(vector),
        _factor(vector) if kind.first else "",
        *(_sweep(vector, width, name) for width in _widths(tile) for name in ("up", "down", "turn")),
        *(_solution(kind, vector, tile, number) for number in range(len(kind.solve.outputs))),
        _kernel(kind, vector, tile),
        attributes(target),
    ]
    return "".join(parts)


def _widths(tile: int) -> tuple[int, int]:
    return (tile, tile // 2)


def _factor(kind: VectorType) -> str:
    """factor(V, D, n, starts, index): from the last row to the first, -L in place of H and 1/d in D."""
    T, s = kind.name, kind.suffix
    return f"""define internal void @factor(ptr %V, ptr %D, i64 %n, ptr %starts, ptr %index) #0 {{
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
  %row = getelementptr {T}, ptr %V, i64 %row.index
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
  %to = getelementptr {T}, ptr %V, i64 %to.index
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
  store {T} %share, ptr %h.at
  %e.more = icmp sgt i64 %e, %start
  br i1 %e.more, label %columns, label %row.done
row.done:
  %more = icmp sgt i64 %k, 0
  br i1 %more, label %rows, label %done
done:
  ret void
}}

"""


def _sweep(kind: VectorType, width: int, name: str) -> str:
    """up, down and turn: rows first, first + step, ... of a tile of so many columns; see the module.

    `up` starts from rows of an array (B, `line` vectors apart) and leaves its own in X. `down` starts from X times 1/d,
    `turn` from minus that, and both leave theirs in X and in the array.
    """
    T, s, columns = kind.name, kind.suffix, range(width)
    aligned = f"align {kind.bytes}"
    down = name != "up"

    def at(pointer: str, label: str) -> str:
        return "".join(f"  %{label}{c}.at = getelementptr {T}, ptr {pointer}, i64 {c}\n" for c in columns)

    start = "x" if down else "b"
    first = at("%x.at", "x") + at("%b.at", "b")
    first += "".join(f"  %{start}{c} = load {T}, ptr %{start}{c}.at, {aligned}\n" for c in columns)
    begin = start
    if down:
        first += f"  %d.at = getelementptr {T}, ptr %D, i64 %row\n  %d.plain = load {T}, ptr %d.at, {aligned}\n"
        first += f"  %d = {'fneg' if name == 'turn' else 'fadd'} {T} %d.plain"
        first += "\n" if name == "turn" else f", {kind.splat(-0.0)}\n"
        first += "".join(f"  %s{c} = fmul {T} %x{c}, %d\n" for c in columns)
        begin = "s"
    sums = "".join(f"  %acc{c} = phi {T} [ %{begin}{c}, %rows ], [ %new{c}, %terms ]\n" for c in columns)
    terms = at("%y.at", "y") + "".join(
        f"  %y{c} = load {T}, ptr %y{c}.at, {aligned}\n"
        f"  %new{c} = call {T} @llvm.fmuladd.{s}({T} %l, {T} %y{c}, {T} %acc{c})\n"
        for c in columns
    )
    results = "".join(f"  %out{c} = phi {T} [ %{begin}{c}, %rows ], [ %new{c}, %terms ]\n" for c in columns)
    store = "".join(f"  store {T} %out{c}, ptr %x{c}.at, {aligned}\n" for c in columns)
    if down:
        store += "".join(f"  store {T} %out{c}, ptr %b{c}.at, {aligned}\n" for c in columns)
    arguments = "ptr %X, ptr %B, i64 %line, ptr %V, ptr %D, ptr %starts, ptr %entries, i64 %first, i64 %step, i64 %n"
    return f"""define internal void @{name}{width}({arguments}) #0 {{
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %rows, label %done
rows:
  %k = phi i64 [ 0, %entry ], [ %k.next, %stored ]
  %steps = mul i64 %k, %step
  %row = add i64 %first, %steps
  %start.at = getelementptr i64, ptr %starts, i64 %row
  %start = load i64, ptr %start.at
  %stop.at = getelementptr i64, ptr %start.at, i64 1
  %stop = load i64, ptr %stop.at
  %x.index = mul i64 %row, {width}
  %x.at = getelementptr {T}, ptr %X, i64 %x.index
  %b.index = mul i64 %row, %line
  %b.at = getelementptr {T}, ptr %B, i64 %b.index
{first}  %any = icmp slt i64 %start, %stop
  br i1 %any, label %terms, label %stored
terms:
  %e = phi i64 [ %start, %rows ], [ %e.next, %terms ]
{sums}  %entry.at = getelementptr {{i64, i64}}, ptr %entries, i64 %e
  %v = load i64, ptr %entry.at
  %second.at = getelementptr {{i64, i64}}, ptr %entries, i64 %e, i32 1
  %y.row = load i64, ptr %second.at
  %y = mul i64 %y.row, {width}
  %l.at = getelementptr {T}, ptr %V, i64 %v
  %l = load {T}, ptr %l.at, {aligned}
  %y.at = getelementptr {T}, ptr %X, i64 %y
{terms}  %e.next = add i64 %e, 1
  %e.more = icmp slt i64 %e.next, %stop
  br i1 %e.more, label %terms, label %stored
stored:
{results}{store}  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %n
  br i1 %more, label %rows, label %done
done:
  ret void
}}

"""


class _Table:
    """Loads of the table's words; constants follow inputs and outputs."""

    def __init__(self, kind: SolveKind, out: Lines) -> None:
        self.out = out
        self.arrays = [*kind.inputs, *kind.solve.outputs]

    def word(self, number: int, field: int, kind: str) -> str:
        """A word of the table."""
        at = self.out.new(f"getelementptr {{ptr, i64}}, ptr %table, i64 {number}, i32 {field}")
        return self.out.new(f"load {kind}, ptr {at}, align 8")

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


_ARGUMENTS = "ptr %table, i64 %n, ptr %V, ptr %D, ptr %X, ptr %plus, ptr %minus"


def _solution(kind: SolveKind, vector: VectorType, tile: int, number: int) -> str:
    """solution_K: one output, tile after tile. Its right-hand sides are vectors by now."""
    name, solution = list(kind.solve.outputs.items())[number]
    out = Lines()
    table = _Table(kind, out)
    tiles, starts, entries = (table.constant(each, number) for each in OF_SOLUTION)
    down_starts, down_entries = table.constant("down starts"), table.constant("down entries")
    result = table.array(name)
    setup = "\n".join(out.lines)
    T = vector.name
    wide, narrow = _widths(tile)
    unit = not solution.arrays
    way_down = "turn" if solution.plus is None and solution.minus is not None else "down"
    source = "%minus" if way_down == "turn" else "%plus"

    def sweeps(width: int) -> str:
        b, line = ("%X", str(width)) if unit else ("%source", "%columns")
        up = f"ptr %X, ptr {b}, i64 {line}, ptr %V, ptr %D, ptr %starts, ptr {entries}, i64 %last, i64 -1, i64 %n"
        down = f"ptr %X, ptr %result, i64 %columns, ptr %V, ptr %D, ptr {down_starts}, ptr {down_entries}, i64 0, i64 1"
        units = ""
        if unit:
            units = f"""  %bytes.{width} = mul i64 %n, {width * vector.bytes}
  call void @llvm.memset.p0.i64(ptr %X, i8 0, i64 %bytes.{width}, i1 false)
  br label %unit.{width}
unit.{width}:
  %u.{width} = phi i64 [ 0, %tile.{width} ], [ %u.{width}.next, %unit.{width} ]
  %row.{width} = add i64 %c, %u.{width}
  %line.{width} = mul i64 %row.{width}, {width}
  %index.{width} = add i64 %line.{width}, %u.{width}
  %at.{width} = getelementptr {T}, ptr %X, i64 %index.{width}
  store {T} {vector.splat(1.0)}, ptr %at.{width}
  %u.{width}.next = add i64 %u.{width}, 1
  %u.{width}.more = icmp slt i64 %u.{width}.next, %count
  br i1 %u.{width}.more, label %unit.{width}, label %sweep.{width}
sweep.{width}:
"""
        return f"""tile.{width}:
{units}  call void @up{width}({up})
  call void @{way_down}{width}({down}, i64 %n)
  br label %next
"""

    return f"""define internal void @solution_{number}({_ARGUMENTS}) #0 {{
entry:
{setup}
  %n_tiles = load i64, ptr {tiles}
  %columns.at = getelementptr i64, ptr {tiles}, i64 1
  %columns = load i64, ptr %columns.at
  %last = sub i64 %n, 1
  %rows_of_starts = add i64 %n, 1
  %some = icmp sgt i64 %n_tiles, 0
  br i1 %some, label %tile, label %done
tile:
  %t = phi i64 [ 0, %entry ], [ %t.next, %next ]
  %record = mul i64 %t, 2
  %c.number = add i64 %record, 2
  %c.at = getelementptr i64, ptr {tiles}, i64 %c.number
  %c = load i64, ptr %c.at
  %count.at = getelementptr i64, ptr %c.at, i64 1
  %count = load i64, ptr %count.at
  %source = getelementptr {T}, ptr {source}, i64 %c
  %result = getelementptr {T}, ptr {result}, i64 %c
  %starts.index = mul i64 %t, %rows_of_starts
  %starts = getelementptr i64, ptr {starts}, i64 %starts.index
  %is.wide = icmp sgt i64 %count, {narrow}
  br i1 %is.wide, label %tile.{wide}, label %tile.{narrow}
{sweeps(wide)}{sweeps(narrow)}next:
  %t.next = add i64 %t, 1
  %more = icmp slt i64 %t.next, %n_tiles
  br i1 %more, label %tile, label %done
done:
  ret void
}}

"""


def _kernel(kind: SolveKind, vector: VectorType, tile: int) -> str:
    """The exported function: the factors, then each solution, its right-hand side made of vectors first.

    Rows of the user's are staged; a difference is made beside them.
    """
    out = Lines()
    table = _Table(kind, out)
    T, matrix = vector.name, kind.solve.matrix
    n = out.new(f"load i64, ptr {table.constant('n')}")
    V, D = table.array(matrix), table.array(PIVOTS + matrix)
    X = "%workspace"
    staged = out.new(f"getelementptr {T}, ptr {X}, i64 {out.new(f'mul i64 {n}, {tile}')}")
    if kind.first:
        starts, index = table.constant("lower starts"), table.constant("lower index")
        out.do(f"call void @factor(ptr {V}, ptr {D}, i64 {n}, ptr {starts}, ptr {index})")
    end = out.new("sub i64 %last, 1")
    for number, solution in enumerate(kind.solve.outputs.values()):
        columns_at = out.new(f"getelementptr i64, ptr {table.constant('tiles', number)}, i64 1")
        size = out.new(f"mul i64 {n}, {out.new(f'load i64, ptr {columns_at}')}")
        at = {name: table.array(name) for name in solution.arrays}
        for name in (each for each in at if each in kind.rows):
            stride = table.word(table.arrays.index(name), 1, "i64")
            rows = f"ptr {at[name]}, i64 {stride}, i64 %first, i64 {end}"
            out.do(f"call void @stage_in({rows}, ptr {staged}, i64 {size})")
            at[name], staged = staged, out.new(f"getelementptr {T}, ptr {staged}, i64 {size}")
        plus, minus = (at.get(each or "", "null") for each in (solution.plus, solution.minus))
        if solution.plus is not None and solution.minus is not None:
            out.do(f"call void @subtract(ptr {plus}, ptr {minus}, ptr {staged}, i64 {size})")
            plus, staged = staged, out.new(f"getelementptr {T}, ptr {staged}, i64 {size}")
        arguments = f"ptr %table, i64 {n}, ptr {V}, ptr {D}, ptr {X}, ptr {plus}, ptr {minus}"
        out.do(f"call void @solution_{number}({arguments})")
    body = "\n".join(out.lines)
    return f"""define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) #0 {{
{body}
  ret void
}}

"""
