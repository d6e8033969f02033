"""Prints a program as a module in LLVM's language: straight-line code in which every value is a vector of states.

    void NAME(ptr table, i64 first, i64 last, ptr workspace)

runs rows first to last - 1. `table` holds two words for each array, inputs first: the address of its data, and the
stride in bytes from one row to the next. W rows at a time are loaded and transposed in registers. Rows past the end
repeat the last row: its results are stored again, so the tail needs no code of its own, and a single state runs like a
batch.

Arrays can also be stored as columns, all rows of one scalar contiguous. The second word of the table is then the stride
from one scalar to the next, and nothing is transposed. For a tail, the last W rows are run again. Column arrays
therefore need at least W rows, and no output may share memory with an input.

LLVM's compile time grows faster than the length of a function. A program is therefore cut into parts of some thousand
operations, which pass values through a frame on the stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from robodyn.compile.llvm import sincos
from robodyn.compile.llvm.straight_line import StraightLine, attributes
from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.vectors import Lines, VectorType, declarations, load_row, store_row, transposed
from robodyn.compile.lowering import Operation, frame_slots, last_readers, lower
from robodyn.compile.tracing.expression import INPUT
from robodyn.compile.tracing.program import Port, Program, is_unread
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import LLVM_PART_OPERATIONS


@dataclass(frozen=True)
class _Block:
    """At most W neighbouring columns of one array, which are loaded or stored together.

    `vectors`: True if the array holds vectors of states: nothing is transposed, and a block is one column. `column`:
    True if the array is stored as columns.
    """

    array: int
    start: int
    scalars: tuple[int | float, ...]
    vectors: bool = False
    column: bool = False


def _blocks(
    ports: Iterable[Port], first_array: int, width: int, vectors: frozenset[str], columns: bool
) -> list[_Block]:
    blocks = []
    for k, port in enumerate(ports):
        step = 1 if columns or port.name in vectors else width
        for start in range(0, port.size, step):
            scalars = port.scalars[start : start + step]
            if port.name in vectors and is_unread(scalars[0]):
                continue
            blocks.append(_Block(first_array + k, start, scalars, port.name in vectors, columns))
    return blocks


class _Schedule:
    """The operations of each part, when outputs are complete, and the values that pass from part to part."""

    def __init__(self, program: Program, width: int, vectors: frozenset[str], columns: bool) -> None:
        self.program = program
        operations = lower(program, nested=True)
        starts = range(0, max(1, len(operations)), LLVM_PART_OPERATIONS)
        self.parts = [operations[start : start + LLVM_PART_OPERATIONS] for start in starts]
        self.loads = {
            node: block
            for block in _blocks(program.inputs, 0, width, vectors, columns)
            for node in block.scalars
            if isinstance(node, int) and node >= 0
        }
        made = {node: k for k, operation in enumerate(operations) for node in operation.results}
        self.stores: dict[int, list[_Block]] = {}
        """Output blocks by the index of the operation that completes them; -1: they need no operation."""
        for block in _blocks(program.outputs, len(program.inputs), width, vectors, columns):
            after = max((made.get(node, -1) for node in block.scalars if isinstance(node, int)), default=-1)
            self.stores.setdefault(after, []).append(block)
        self.slots, self.frame_size = frame_slots(self.parts, self._last_readers())

    def stores_after(self, part: int, place: int) -> list[_Block]:
        """Output blocks that an operation of a part completes. Place -1 of part 0: blocks that are complete at the
        start."""
        return self.stores.get(part * LLVM_PART_OPERATIONS + place if place >= 0 else -1, [])

    def _last_readers(self) -> dict[int, int]:
        """For each node, the index of the last part that computes with it or stores it."""
        last = last_readers(self.parts)
        for k, part in enumerate(self.parts):
            for place in range(len(part)):
                for block in self.stores_after(k, place):
                    for node in block.scalars:
                        if isinstance(node, int):
                            last[node] = max(k, last.get(node, k))
        return last


class _Part:
    """Writes one function: the operations of one part."""

    def __init__(self, schedule: _Schedule, kind: VectorType, number: int) -> None:
        self.schedule, self.kind, self.number = schedule, kind, number
        self.out = Lines()
        self.code = StraightLine(kind, schedule.program.nodes, self.out, self._fetch)
        self.rows: list[str] = []
        self.pointers: dict[int, list[str]] = {}
        self.starts: dict[int, str] = {}
        self.columns: dict[int, tuple[str, str]] = {}

    def text(self, name: str) -> str:
        """The function's text."""
        schedule = self.schedule
        if self.number == 0:
            for block in schedule.stores_after(0, -1):
                self._store(block)
        for place, operation in enumerate(schedule.parts[self.number]):
            self._compute(operation)
            for block in schedule.stores_after(self.number, place):
                self._store(block)
        body = "\n".join([*self.out.lines, "  ret void"])
        return f"define internal void @{name}(ptr %table, i64 %row, i64 %end, ptr %frame) #0 {{\n{body}\n}}\n\n"

    def _compute(self, operation: Operation) -> None:
        self.code.compute(operation)
        for node in operation.results:
            if node in self.schedule.slots:
                T = self.kind.name
                at = self.out.new(f"getelementptr {T}, ptr %frame, i64 {self.schedule.slots[node]}")
                self.out.do(f"store {T} {self.code.values[node]}, ptr {at}, align {self.kind.itemsize}")

    def _fetch(self, node: int) -> str:
        """An input, or a result that an earlier part stored in the frame."""
        if self.schedule.program.nodes[node][0] == INPUT:
            self._load(self.schedule.loads[node])
            return self.code.values[node]
        T = self.kind.name
        at = self.out.new(f"getelementptr {T}, ptr %frame, i64 {self.schedule.slots[node]}")
        return self.out.new(f"load {T}, ptr {at}, align {self.kind.itemsize}")

    def _row_pointers(self, block: _Block) -> list[str]:
        """Pointers to a block in each of the W rows."""
        out = self.out
        if not self.rows:
            self.rows = ["%row"]
            for k in range(1, self.kind.width):
                next_row = out.new(f"add i64 %row, {k}")
                inside = out.new(f"icmp slt i64 {next_row}, %end")
                self.rows.append(out.new(f"select i1 {inside}, i64 {next_row}, i64 %end"))
        if block.array not in self.pointers:
            record = out.new(f"getelementptr {{ptr, i64}}, ptr %table, i64 {block.array}")
            data = out.new(f"load ptr, ptr {record}, align 8")
            stride_at = out.new(f"getelementptr {{ptr, i64}}, ptr %table, i64 {block.array}, i32 1")
            stride = out.new(f"load i64, ptr {stride_at}, align 8")
            self.pointers[block.array] = [
                out.new(f"getelementptr i8, ptr {data}, i64 {out.new(f'mul i64 {row}, {stride}')}") for row in self.rows
            ]
        return [
            out.new(f"getelementptr {self.kind.scalar}, ptr {row}, i64 {block.start}")
            for row in self.pointers[block.array]
        ]

    def _vector(self, block: _Block) -> str:
        """Pointer to a block of one column in an array of vectors."""
        if block.array not in self.starts:
            record = self.out.new(f"getelementptr {{ptr, i64}}, ptr %table, i64 {block.array}")
            self.starts[block.array] = self.out.new(f"load ptr, ptr {record}, align 8")
        return self.out.new(f"getelementptr {self.kind.name}, ptr {self.starts[block.array]}, i64 {block.start}")

    def _column(self, block: _Block) -> str:
        """Pointer to the W rows of a block of one column in an array stored as columns."""
        out = self.out
        if block.array not in self.columns:
            record = out.new(f"getelementptr {{ptr, i64}}, ptr %table, i64 {block.array}")
            stride_at = out.new(f"getelementptr {{ptr, i64}}, ptr %table, i64 {block.array}, i32 1")
            data, stride = out.new(f"load ptr, ptr {record}, align 8"), out.new(f"load i64, ptr {stride_at}, align 8")
            self.columns[block.array] = out.new(f"getelementptr {self.kind.scalar}, ptr {data}, i64 %row"), stride
        start, stride = self.columns[block.array]
        return out.new(f"getelementptr i8, ptr {start}, i64 {out.new(f'mul i64 {stride}, {block.start}')}")

    def _load(self, block: _Block) -> None:
        if block.column:
            if block.scalars[0] != -1:
                load = f"load {self.kind.name}, ptr {self._column(block)}, align {self.kind.itemsize}"
                self.code.values[int(block.scalars[0])] = self.out.new(load)
            return
        if block.vectors:
            value = self.out.new(f"load {self.kind.name}, ptr {self._vector(block)}, align {self.kind.bytes}")
            self.code.values[int(block.scalars[0])] = value
            return
        pointers = self._row_pointers(block)
        rows = [load_row(self.out, self.kind, pointer, len(block.scalars)) for pointer in pointers]
        for node, value in zip(block.scalars, transposed(self.out, self.kind, rows), strict=False):
            if node != -1:
                self.code.values[int(node)] = value

    def _store(self, block: _Block) -> None:
        if block.column:
            value = self.code.value(block.scalars[0])
            self.out.do(f"store {self.kind.name} {value}, ptr {self._column(block)}, align {self.kind.itemsize}")
            return
        if block.vectors:
            value = self.code.value(block.scalars[0])
            self.out.do(f"store {self.kind.name} {value}, ptr {self._vector(block)}, align {self.kind.bytes}")
            return
        columns = [self.code.value(scalar) for scalar in block.scalars]
        columns += ["poison"] * (self.kind.width - len(columns))
        rows = transposed(self.out, self.kind, columns)
        for row, pointer in zip(rows, self._row_pointers(block), strict=True):
            store_row(self.out, self.kind, row, pointer, len(block.scalars))


def _loop(name: str, parts: Sequence[str], kind: VectorType, frame_size: int, columns: bool) -> str:
    """The exported function, which calls every part for W rows at a time."""
    row = "%whole" if columns else "%row"
    calls = "\n".join(f"  call void @{part}(ptr %table, i64 {row}, i64 %end, ptr %frame)" for part in parts)
    if columns:
        calls = f"""  %last.whole = sub i64 %last, {kind.width}
  %fits = icmp sle i64 %row, %last.whole
  %whole = select i1 %fits, i64 %row, i64 %last.whole
{calls}"""
    return f"""define void @{name}(ptr %table, i64 %first, i64 %last, ptr %workspace) #0 {{
entry:
  %frame = alloca [{max(1, frame_size)} x {kind.name}], align {max(16, kind.bytes)}
  %end = sub i64 %last, 1
  br label %rows
rows:
  %row = phi i64 [ %first, %entry ], [ %next, %rows ]
{calls}
  %next = add i64 %row, {kind.width}
  %more = icmp slt i64 %next, %last
  br i1 %more, label %rows, label %done
done:
  ret void
}}

"""


def unrolled_module(
    program: Program,
    dtype: np.dtype[Any],
    target: Target,
    name: str = "kernel",
    vectors: frozenset[str] = frozenset(),
    columns: bool = False,
) -> str:
    """The text of a module that runs a program on arrays of a dtype.

    Arrays named in `vectors` hold vectors of states, and only for the W rows from `first` on. All other arrays have one
    row for each state, or with `columns` one column.
    """
    kind = VectorType.of(dtype, target)
    schedule = _Schedule(program, kind.width, vectors, columns)
    names = [f"{name}_part{k}" for k in range(len(schedule.parts))]
    functions = [_Part(schedule, kind, k).text(part) for k, part in enumerate(names)]
    loop = _loop(name, names, kind, schedule.frame_size, columns)
    head = (declarations(kind), sincos.declarations(kind), "\n")
    return "".join((*head, *functions, loop, attributes(target)))
