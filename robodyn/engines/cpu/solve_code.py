"""Solves with mass matrices for vectors of states: H = L' D L and its solves, as loops that serve every robot.

    void kernel(ptr table, i64 first, i64 last, ptr workspace)

Like every kernel; after inputs and outputs the table holds `CONSTANTS`, and five more for each solution. W states at a
time: the lower triangle of H is loaded and transposed, factorised in place along the pattern that `Elimination` found
(V: the matrix, with -L below its diagonal; D: 1/d), and right-hand sides go through W columns at a time (X: a row of W
vectors for each degree of freedom), so that the columns of a tile and L stay in the nearest cache. A row of a sweep is

    x[row] = x[row] + sum over entries (v, y) of V[v] X[y]

with its W columns in registers; entries are pairs of vector numbers, made once for a robot.
"""

from __future__ import annotations

from robodyn.chains import Solution, Solve
from robodyn.engines.cpu.rolled_runtime import runtime_functions
from robodyn.engines.cpu.straight_line import attributes
from robodyn.engines.cpu.target import Target
from robodyn.engines.cpu.vectors import Lines, VectorType, declarations, load_row, store_row, transposed

CONSTANTS = ("n", "lower starts", "lower index", "down starts", "down entries", "matrix tiles")
"""Arrays of 64-bit integers: the matrix's size; columns below the diagonal by row; the sweep from the root down; tiles
of its columns."""
OF_SOLUTION = ("tiles", "up starts", "up entries")
"""The same for each solution: its tiles, and for each of them the sweep from the leaves up. The first number of tiles
is how many there are, the second the columns of an array; then (first column, columns) of each."""


def solve_module(solve: Solve, kind: VectorType, target: Target) -> str:
    """The module of a solve."""
    parts = [
        declarations(kind),
        runtime_functions(kind),
        _block(kind, load=True),
        _block(kind, load=False),
        _factor(kind),
        _sweep(kind, "up", scaled=False),
        _sweep(kind, "down", scaled=True),
        _subtract(kind, "take", keep=True),
        _subtract(kind, "turn", keep=False),
        *(_solution(solve, kind, number) for number in range(len(solve.outputs))),
        _kernel(solve, kind),
        attributes(target),
    ]
    return "".join(parts)


def _block(kind: VectorType, *, load: bool) -> str:
    """block_in and block_out: W columns of W rows into vectors and back, or fewer, one column after the other."""
    out = Lines()
    T, W = kind.name, kind.width
    pointers = [
        out.new(f"load ptr, ptr {out.new(f'getelementptr ptr, ptr %rows, i64 {k}')}, align 8") for k in range(W)
    ]
    places = [out.new(f"getelementptr {T}, ptr %vectors, i64 {k}") for k in range(W)]
    if load:
        columns = transposed(out, kind, [load_row(out, kind, pointer, W) for pointer in pointers])
        for place, value in zip(places, columns, strict=True):
            out.do(f"store {T} {value}, ptr {place}, align {kind.bytes}")
    else:
        values = [out.new(f"load {T}, ptr {place}, align {kind.bytes}") for place in places]
        for pointer, row in zip(pointers, transposed(out, kind, values), strict=True):
            store_row(out, kind, row, pointer, W)
    name, staged = ("block_in", "stage_in") if load else ("block_out", "stage_out")
    body = "\n".join(out.lines)
    arguments = "ptr %data, i64 %stride, i64 %row, i64 %end, ptr %vectors, i64 %count"
    return f"""define internal void @{name}({arguments}) #0 {{
  %rows = alloca [{W} x ptr]
  %full = icmp eq i64 %count, {W}
  br i1 %full, label %whole, label %part
whole:
  call void @row_pointers(ptr %data, i64 %stride, i64 %row, i64 %end, ptr %rows)
{body}
  ret void
part:
  call void @{staged}({arguments})
  ret void
}}

"""


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


def _sweep(kind: VectorType, name: str, *, scaled: bool) -> str:
    """up and down(X, V, D, starts, entries, first, step, n): rows first, first + step, ... of X; see the module.

    The way down multiplies each row by 1/d before its entries are added.
    """
    T, s, W = kind.name, kind.suffix, kind.width
    aligned = f"align {kind.bytes}"
    columns = range(W)
    load = "".join(
        f"  %x{c}.at = getelementptr {T}, ptr %x.at, i64 {c}\n  %x{c} = load {T}, ptr %x{c}.at, {aligned}\n"
        for c in columns
    )
    scale = ""
    if scaled:
        scale = f"  %d.at = getelementptr {T}, ptr %D, i64 %row\n  %d = load {T}, ptr %d.at, {aligned}\n"
        scale += "".join(f"  %b{c} = fmul {T} %x{c}, %d\n" for c in columns)
    begin = "b" if scaled else "x"
    sums = "".join(f"  %acc{c} = phi {T} [ %{begin}{c}, %rows ], [ %new{c}, %terms ]\n" for c in columns)
    terms = "".join(
        f"  %y{c}.at = getelementptr {T}, ptr %y.at, i64 {c}\n"
        f"  %y{c} = load {T}, ptr %y{c}.at, {aligned}\n"
        f"  %new{c} = call {T} @llvm.fmuladd.{s}({T} %l, {T} %y{c}, {T} %acc{c})\n"
        for c in columns
    )
    results = "".join(f"  %out{c} = phi {T} [ %{begin}{c}, %rows ], [ %new{c}, %terms ]\n" for c in columns)
    store = "".join(f"  store {T} %out{c}, ptr %x{c}.at, {aligned}\n" for c in columns)
    arguments = "ptr %X, ptr %V, ptr %D, ptr %starts, ptr %entries, i64 %first, i64 %step, i64 %n"
    return f"""define internal void @{name}({arguments}) #0 {{
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
  %x.index = mul i64 %row, {W}
  %x.at = getelementptr {T}, ptr %X, i64 %x.index
{load}{scale}  %any = icmp slt i64 %start, %stop
  br i1 %any, label %terms, label %stored
terms:
  %e = phi i64 [ %start, %rows ], [ %e.next, %terms ]
{sums}  %entry.at = getelementptr {{i64, i64}}, ptr %entries, i64 %e
  %v = load i64, ptr %entry.at
  %second.at = getelementptr {{i64, i64}}, ptr %entries, i64 %e, i32 1
  %y = load i64, ptr %second.at
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


def _subtract(kind: VectorType, name: str, *, keep: bool) -> str:
    """take(x, y): x -= y, and turn(x, y): x = -y, for W vectors."""
    T, aligned = kind.name, f"align {kind.bytes}"
    lines = []
    for c in range(kind.width):
        lines += [
            f"  %x{c}.at = getelementptr {T}, ptr %x, i64 {c}",
            f"  %y{c}.at = getelementptr {T}, ptr %y, i64 {c}",
            f"  %y{c} = load {T}, ptr %y{c}.at, {aligned}",
        ]
        if keep:
            lines += [f"  %x{c} = load {T}, ptr %x{c}.at, {aligned}", f"  %r{c} = fsub {T} %x{c}, %y{c}"]
        else:
            lines += [f"  %r{c} = fneg {T} %y{c}"]
        lines += [f"  store {T} %r{c}, ptr %x{c}.at, {aligned}"]
    body = "\n".join(lines)
    return f"define internal void @{name}(ptr %x, ptr %y) #0 {{\n{body}\n  ret void\n}}\n\n"


class _Table:
    """Loads of the table's words; constants follow inputs and outputs."""

    def __init__(self, solve: Solve, out: Lines) -> None:
        self.solve, self.out = solve, out
        self.arrays = [*solve.inputs, *solve.outputs]

    def _word(self, number: int, field: int, kind: str) -> str:
        at = self.out.new(f"getelementptr {{ptr, i64}}, ptr %table, i64 {number}, i32 {field}")
        return self.out.new(f"load {kind}, ptr {at}, align 8")

    def array(self, name: str) -> tuple[str, str]:
        """Data and stride of an input or output."""
        number = self.arrays.index(name)
        return self._word(number, 0, "ptr"), self._word(number, 1, "i64")

    def constant(self, name: str, solution: int | None = None) -> str:
        """Pointer to a constant array."""
        number = len(self.arrays)
        if solution is None:
            number += CONSTANTS.index(name)
        else:
            number += len(CONSTANTS) + len(OF_SOLUTION) * solution + OF_SOLUTION.index(name)
        return self._word(number, 0, "ptr")


_ARGUMENTS = "ptr %table, i64 %row, i64 %end, i64 %n, ptr %V, ptr %D, ptr %X, ptr %spare"


def _rows_of(kind: VectorType, call: str, array: tuple[str, str], label: str, before: str, after: str) -> str:
    """A loop over rows i of a tile of an array: its block and a call with it; from block `before` on to `after`."""
    data, stride = array
    return f"""{label}:
  %{label}.i = phi i64 [ 0, %{before} ], [ %{label}.next, %{label} ]
  %{label}.line = mul i64 %{label}.i, %columns
  %{label}.place = add i64 %{label}.line, %c
  %{label}.data = getelementptr {kind.scalar}, ptr {data}, i64 %{label}.place
  %{label}.index = mul i64 %{label}.i, {kind.width}
  %{label}.x = getelementptr {kind.name}, ptr %X, i64 %{label}.index
{call.format(label=label, data=f"%{label}.data", stride=stride, x=f"%{label}.x")}
  %{label}.next = add i64 %{label}.i, 1
  %{label}.more = icmp slt i64 %{label}.next, %n
  br i1 %{label}.more, label %{label}, label %{after}
"""


def _solution(solve: Solve, kind: VectorType, number: int) -> str:
    """solution_K: one output, tile after tile."""
    name, solution = list(solve.outputs.items())[number]
    out = Lines()
    table = _Table(solve, out)
    tiles, starts, entries = (table.constant(each, number) for each in OF_SOLUTION)
    down_starts, down_entries = table.constant("down starts"), table.constant("down entries")
    arrays = {each: table.array(each) for each in (*solution.arrays, name)}
    setup = "\n".join(out.lines)
    W = kind.width
    loops, last = _right_hand_side(solution, kind, arrays)
    block_out = "  call void @block_out(ptr {data}, i64 {stride}, i64 %row, i64 %end, ptr {x}, i64 %count)"
    store = _rows_of(kind, block_out, arrays[name], "out", "solved", "next")
    return f"""define internal void @solution_{number}({_ARGUMENTS}) #0 {{
entry:
{setup}
  %n_tiles = load i64, ptr {tiles}
  %columns.at = getelementptr i64, ptr {tiles}, i64 1
  %columns = load i64, ptr %columns.at
  %last = sub i64 %n, 1
  %rows_of_starts = add i64 %n, 1
  %x.vectors = mul i64 %n, {W}
  %x.bytes = mul i64 %x.vectors, {kind.bytes}
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
  call void @llvm.memset.p0.i64(ptr %X, i8 0, i64 %x.bytes, i1 false)
  br label %first
{loops}
{last}:
  %starts.index = mul i64 %t, %rows_of_starts
  %starts = getelementptr i64, ptr {starts}, i64 %starts.index
  call void @up(ptr %X, ptr %V, ptr %D, ptr %starts, ptr {entries}, i64 %last, i64 -1, i64 %n)
  call void @down(ptr %X, ptr %V, ptr %D, ptr {down_starts}, ptr {down_entries}, i64 0, i64 1, i64 %n)
  br label %solved
solved:
  br label %out
{store}
next:
  %t.next = add i64 %t, 1
  %more = icmp slt i64 %t.next, %n_tiles
  br i1 %more, label %tile, label %done
done:
  ret void
}}

"""


def _right_hand_side(solution: Solution, kind: VectorType, arrays: dict[str, tuple[str, str]]) -> tuple[str, str]:
    """Blocks from `first` on that fill X, and the name of the one that comes after them."""
    if not solution.arrays:
        one = kind.splat(1.0)
        return (
            f"""first:
  %u = phi i64 [ 0, %tile ], [ %u.next, %first ]
  %u.row = add i64 %c, %u
  %u.line = mul i64 %u.row, {kind.width}
  %u.index = add i64 %u.line, %u
  %u.at = getelementptr {kind.name}, ptr %X, i64 %u.index
  store {kind.name} {one}, ptr %u.at
  %u.next = add i64 %u, 1
  %u.more = icmp slt i64 %u.next, %count
  br i1 %u.more, label %first, label %ready
""",
            "ready",
        )
    block_in = "  call void @block_in(ptr {data}, i64 {stride}, i64 %row, i64 %end, ptr {x}, i64 %count)"
    combine = (
        "  call void @block_in(ptr {{data}}, i64 {{stride}}, i64 %row, i64 %end, ptr %spare, i64 %count)\n"
        "  call void @{function}(ptr {{x}}, ptr %spare)"
    )
    if solution.plus is None:
        assert solution.minus is not None
        call = combine.format(function="turn")
        return _rows_of(kind, call, arrays[solution.minus], "first", "tile", "ready"), "ready"
    if solution.minus is None:
        return _rows_of(kind, block_in, arrays[solution.plus], "first", "tile", "ready"), "ready"
    plus = _rows_of(kind, block_in, arrays[solution.plus], "first", "tile", "between")
    minus = _rows_of(kind, combine.format(function="take"), arrays[solution.minus], "second", "between", "ready")
    return f"{plus}between:\n  br label %second\n{minus}", "ready"


def _kernel(solve: Solve, kind: VectorType) -> str:
    """The exported function."""
    out = Lines()
    table = _Table(solve, out)
    n_at, tiles = table.constant("n"), table.constant("matrix tiles")
    starts, index = table.constant("lower starts"), table.constant("lower index")
    data, stride = table.array(solve.matrix)
    setup = "\n".join(out.lines)
    T, W = kind.name, kind.width
    arguments = "ptr %table, i64 %row, i64 %end, i64 %n, ptr %V, ptr %D, ptr %X, ptr %spare"
    calls = "\n".join(f"  call void @solution_{number}({arguments})" for number in range(len(solve.outputs)))
    return f"""define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) #0 {{
entry:
{setup}
  %n = load i64, ptr {n_at}
  %n_tiles = load i64, ptr {tiles}
  %size = mul i64 %n, %n
  %D = getelementptr {T}, ptr %workspace, i64 %size
  %X = getelementptr {T}, ptr %D, i64 %n
  %x.size = mul i64 %n, {W}
  %spare = getelementptr {T}, ptr %X, i64 %x.size
  %V = getelementptr {T}, ptr %workspace, i64 0
  %end = sub i64 %last, 1
  br label %states
states:
  %row = phi i64 [ %first, %entry ], [ %row.next, %solve ]
  br label %lines
lines:
  %k = phi i64 [ 0, %states ], [ %k.next, %line.done ]
  %line = mul i64 %k, %n
  br label %tiles
tiles:
  %t = phi i64 [ 0, %lines ], [ %t.next, %tiles ]
  %record = mul i64 %t, 2
  %c.number = add i64 %record, 2
  %c.at = getelementptr i64, ptr {tiles}, i64 %c.number
  %c = load i64, ptr %c.at
  %count.at = getelementptr i64, ptr %c.at, i64 1
  %count = load i64, ptr %count.at
  %place = add i64 %line, %c
  %data = getelementptr {kind.scalar}, ptr {data}, i64 %place
  %to = getelementptr {T}, ptr %V, i64 %place
  call void @block_in(ptr %data, i64 {stride}, i64 %row, i64 %end, ptr %to, i64 %count)
  %t.next = add i64 %t, 1
  %c.end = add i64 %c, %count
  %covered = icmp sgt i64 %c.end, %k
  br i1 %covered, label %line.done, label %tiles
line.done:
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, %n
  br i1 %k.more, label %lines, label %solve
solve:
  call void @factor(ptr %V, ptr %D, i64 %n, ptr {starts}, ptr {index})
{calls}
  %row.next = add i64 %row, {W}
  %more = icmp slt i64 %row.next, %last
  br i1 %more, label %states, label %done
done:
  ret void
}}

"""
