"""Solves with mass matrices for a vector of states: H = L' D L and its solves, as loops that serve every robot.

    void kernel(ptr table, i64 first, i64 last, ptr workspace)

Like every kernel, but for the W states from `first` on alone, and on arrays that hold vectors of states (scalar k of a
state is vector k), except for those that a user gave. The first solve with a matrix factorises it in place along the
pattern that `Elimination` found: V holds -L below its diagonal, D 1/d; later ones find them there. A right-hand side
becomes the solution in place, some columns at a time, so that what is at work, L and the columns, stays in the nearest
cache. A row of a sweep is

    x[row] = x[row] + sum over entries (v, y) of V[v] x[y]

with its columns in registers; entries are pairs of a vector's number and a row's, made once for a robot.
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


WIDTHS = tuple(range(12, 0, -1))
"""Columns that are worked on together: at most so many that their sums, and what they are made of, fit registers."""


def solve_module(kind: SolveKind, vector: VectorType, target: Target) -> str:
    """The module of a solve."""
    parts = [
        declarations(vector),
        runtime_functions(vector),
        _factor(vector) if kind.first else "",
        _mirror(vector),
        *(_sweep(vector, width, name) for width in WIDTHS for name in ("up", "down", "turn")),
        *(_solution(kind, vector, number) for number in range(len(kind.solve.outputs))),
        _kernel(kind, vector),
        attributes(target),
    ]
    return "".join(parts)


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
    """up, down and turn: rows first, first + step, ... of so many columns, `line` vectors apart; see the module.

    `down` multiplies a row by 1/d before its entries are added, `turn` by minus that.
    """
    T, s, columns = kind.name, kind.suffix, range(width)
    aligned = f"align {kind.bytes}"
    first = "".join(
        f"  %x{c}.at = getelementptr {T}, ptr %x.at, i64 {c}\n  %x{c} = load {T}, ptr %x{c}.at, {aligned}\n"
        for c in columns
    )
    begin = "x"
    if name != "up":
        first += f"  %d.at = getelementptr {T}, ptr %D, i64 %row\n  %d.plain = load {T}, ptr %d.at, {aligned}\n"
        first += f"  %d = {'fneg' if name == 'turn' else 'fadd'} {T} %d.plain"
        first += "\n" if name == "turn" else f", {kind.splat(-0.0)}\n"
        first += "".join(f"  %s{c} = fmul {T} %x{c}, %d\n" for c in columns)
        begin = "s"
    sums = "".join(f"  %acc{c} = phi {T} [ %{begin}{c}, %rows ], [ %new{c}, %terms ]\n" for c in columns)
    terms = "".join(
        f"  %y{c}.at = getelementptr {T}, ptr %y.at, i64 {c}\n"
        f"  %y{c} = load {T}, ptr %y{c}.at, {aligned}\n"
        f"  %new{c} = call {T} @llvm.fmuladd.{s}({T} %l, {T} %y{c}, {T} %acc{c})\n"
        for c in columns
    )
    results = "".join(f"  %out{c} = phi {T} [ %{begin}{c}, %rows ], [ %new{c}, %terms ]\n" for c in columns)
    store = "".join(f"  store {T} %out{c}, ptr %x{c}.at, {aligned}\n" for c in columns)
    arguments = "ptr %X, i64 %line, ptr %V, ptr %D, ptr %starts, ptr %entries, i64 %first, i64 %step, i64 %n"
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
  %x.index = mul i64 %row, %line
  %x.at = getelementptr {T}, ptr %X, i64 %x.index
{first}  %any = icmp slt i64 %start, %stop
  br i1 %any, label %terms, label %stored
terms:
  %e = phi i64 [ %start, %rows ], [ %e.next, %terms ]
{sums}  %entry.at = getelementptr {{i64, i64}}, ptr %entries, i64 %e
  %v = load i64, ptr %entry.at
  %second.at = getelementptr {{i64, i64}}, ptr %entries, i64 %e, i32 1
  %y.row = load i64, ptr %second.at
  %y = mul i64 %y.row, %line
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


def _mirror(kind: VectorType) -> str:
    """mirror(X, n, c, count): rows before c of columns c .. c + count - 1, from where they stand below the diagonal."""
    T, aligned = kind.name, f"align {kind.bytes}"
    return f"""define internal void @mirror(ptr %X, i64 %n, i64 %c, i64 %count) #0 {{
entry:
  %any = icmp sgt i64 %c, 0
  br i1 %any, label %rows, label %done
rows:
  %p = phi i64 [ 0, %entry ], [ %p.next, %row.done ]
  %line = mul i64 %p, %n
  br label %columns
columns:
  %j = phi i64 [ 0, %rows ], [ %j.next, %columns ]
  %k = add i64 %c, %j
  %to.index = add i64 %line, %k
  %from.line = mul i64 %k, %n
  %from.index = add i64 %from.line, %p
  %from = getelementptr {T}, ptr %X, i64 %from.index
  %to = getelementptr {T}, ptr %X, i64 %to.index
  %value = load {T}, ptr %from, {aligned}
  store {T} %value, ptr %to, {aligned}
  %j.next = add i64 %j, 1
  %j.more = icmp slt i64 %j.next, %count
  br i1 %j.more, label %columns, label %row.done
row.done:
  %p.next = add i64 %p, 1
  %p.more = icmp slt i64 %p.next, %c
  br i1 %p.more, label %rows, label %done
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


def _solution(kind: SolveKind, vector: VectorType, number: int) -> str:
    """solution_K: one output in place, tile after tile.

    Of an inverse, the unit matrix comes first. It is symmetric: rows above a tile's first column are those of tiles
    before, and only the others are solved for.
    """
    name, solution = list(kind.solve.outputs.items())[number]
    out = Lines()
    table = _Table(kind, out)
    tiles, starts, entries = (table.constant(each, number) for each in OF_SOLUTION)
    down_starts, down_entries = table.constant("down starts"), table.constant("down entries")
    result = table.array(name)
    setup = "\n".join(out.lines)
    T = vector.name
    way_down = "turn" if solution.plus is None and solution.minus is not None else "down"
    unit = not solution.arrays
    up = f"ptr %X, i64 %columns, ptr %V, ptr %D, ptr %starts, ptr {entries}, i64 %last, i64 -1, i64 %rows"
    down = f"ptr %X, i64 %columns, ptr %V, ptr %D, ptr {down_starts}, ptr {down_entries}, i64 %from, i64 1, i64 %rows"
    mirror = f"  call void @mirror(ptr {result}, i64 %n, i64 %c, i64 %count)\n" if unit else ""
    cases = "".join(f"    i64 {width}, label %tile.{width}\n" for width in WIDTHS[1:])
    widths = "".join(
        f"tile.{width}:\n  call void @up{width}({up})\n{mirror}"
        f"  call void @{way_down}{width}({down})\n  br label %next\n"
        for width in WIDTHS
    )
    units = ""
    if unit:
        units = f"""  %size = mul i64 %n, %n
  %bytes = mul i64 %size, {vector.bytes}
  call void @llvm.memset.p0.i64(ptr {result}, i8 0, i64 %bytes, i1 false)
  br label %unit
unit:
  %u = phi i64 [ 0, %entry ], [ %u.next, %unit ]
  %u.row = mul i64 %u, %n
  %u.index = add i64 %u.row, %u
  %u.at = getelementptr {T}, ptr {result}, i64 %u.index
  store {T} {vector.splat(1.0)}, ptr %u.at
  %u.next = add i64 %u, 1
  %u.more = icmp slt i64 %u.next, %n
  br i1 %u.more, label %unit, label %begin
begin:
"""
    origin = "%begin" if units else "%entry"
    return f"""define internal void @solution_{number}(ptr %table, i64 %n, ptr %V, ptr %D) #0 {{
entry:
{setup}
{units}  %n_tiles = load i64, ptr {tiles}
  %columns.at = getelementptr i64, ptr {tiles}, i64 1
  %columns = load i64, ptr %columns.at
  %last = sub i64 %n, 1
  %rows_of_starts = add i64 %n, 1
  %some = icmp sgt i64 %n_tiles, 0
  br i1 %some, label %tile, label %done
tile:
  %t = phi i64 [ 0, {origin} ], [ %t.next, %next ]
  %record = mul i64 %t, 2
  %c.number = add i64 %record, 2
  %c.at = getelementptr i64, ptr {tiles}, i64 %c.number
  %c = load i64, ptr %c.at
  %count.at = getelementptr i64, ptr %c.at, i64 1
  %count = load i64, ptr %count.at
  %X = getelementptr {T}, ptr {result}, i64 %c
  %starts.index = mul i64 %t, %rows_of_starts
  %starts = getelementptr i64, ptr {starts}, i64 %starts.index
  %from = add i64 {"%c" if unit else "0"}, 0
  %rows = sub i64 %n, %from
  switch i64 %count, label %tile.{WIDTHS[0]} [
{cases}  ]
{widths}next:
  %t.next = add i64 %t, 1
  %more = icmp slt i64 %t.next, %n_tiles
  br i1 %more, label %tile, label %done
done:
  ret void
}}

"""


def _kernel(kind: SolveKind, vector: VectorType) -> str:
    """The exported function: the factors, then each solution, whose right-hand side goes to its place first.

    One that is vectors already is there: a chain gives both one place.
    """
    out = Lines()
    table = _Table(kind, out)
    matrix = kind.solve.matrix
    n = out.new(f"load i64, ptr {table.constant('n')}")
    V, D = table.array(matrix), table.array(PIVOTS + matrix)
    if kind.first:
        starts, index = table.constant("lower starts"), table.constant("lower index")
        out.do(f"call void @factor(ptr {V}, ptr {D}, i64 {n}, ptr {starts}, ptr {index})")
    end = out.new("sub i64 %last, 1")
    for number, (result, solution) in enumerate(kind.solve.outputs.items()):
        columns_at = out.new(f"getelementptr i64, ptr {table.constant('tiles', number)}, i64 1")
        size = out.new(f"mul i64 {n}, {out.new(f'load i64, ptr {columns_at}')}")
        to = table.array(result)
        at = {name: table.array(name) for name in solution.arrays}
        for name, place in zip((each for each in at if each in kind.rows), (to, "%workspace"), strict=False):
            stride = table.word(table.arrays.index(name), 1, "i64")
            rows = f"ptr {at[name]}, i64 {stride}, i64 %first, i64 {end}"
            out.do(f"call void @stage_in({rows}, ptr {place}, i64 {size})")
            at[name] = place
        if solution.plus is not None and solution.minus is not None:
            both = f"ptr {at[solution.plus]}, ptr {at[solution.minus]}"
            out.do(f"call void @subtract({both}, ptr {to}, i64 {size})")
        out.do(f"call void @solution_{number}(ptr %table, i64 {n}, ptr {V}, ptr {D})")
    body = "\n".join(out.lines)
    return f"""define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) #0 {{
{body}
  ret void
}}

"""
