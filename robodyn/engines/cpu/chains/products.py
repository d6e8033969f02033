"""Products of matrices between the stages of a chain, for a vector of states: loops that serve every robot.

    void kernel(ptr table, i64 first, i64 last, ptr workspace)

Like the kernels of solves (`solve_code`) it works on arrays that hold vectors of states, for the W states of one
vector. A row of a product is the sum of rows of the right matrix, each times an entry of the left one, some columns at
a time, which stay in registers; entries that are zero whatever the state are left out. Columns of one state alone stand
side by side in vectors meanwhile (`side_by_side`), and so does the product; one state follows the other then.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import numpy as np

from robodyn.arguments import Array
from robodyn.chains import Product, Products, coupled
from robodyn.codegen.llvm.straight_line import attributes
from robodyn.codegen.llvm.target import Target
from robodyn.codegen.llvm.vectors import Lines, VectorType, declarations, spread, transposed
from robodyn.engines.cpu.chains.side_by_side import last_mask, load_last, load_tile, store_last
from robodyn.engines.cpu.chains.solves import pieces
from robodyn.model import Model

_CONSTANTS = ("n", "tiles", "starts", "index")
"""Arrays of 64-bit integers: the matrices' size; how many tiles of columns there are, then the first column and the
columns of each; columns where the left matrix can be nonzero, by row."""
_WIDTHS = tuple(range(12, 0, -1))
_NS = 1.0 / 25.0


class ProductsPlan:
    """Arrays of products on one model, in the order of the table's constants; `columns`: the vectors that columns of
    one state stand in."""

    def __init__(self, model: Model, stage: Products, kind: VectorType, columns: VectorType | None) -> None:
        self.stage, self.kind, self.columns, self.nv = stage, kind, columns, model.nv
        pattern = coupled(model)
        widths = pieces(self._row, _WIDTHS[0])
        begins = [first * self._lanes for first in accumulate([0, *widths[:-1]])]
        tiles = zip(begins, widths, strict=True)
        found = {
            "n": [model.nv],
            "tiles": [len(widths), *(number for tile in tiles for number in tile)],
            "starts": [0, *accumulate(pattern.sum(axis=1).tolist())],
            "index": np.nonzero(pattern)[1],
        }
        self.entries = int(pattern.sum())
        self.arrays: list[Array] = [np.ascontiguousarray(found[name], np.int64) for name in _CONSTANTS]

    @property
    def _lanes(self) -> int:
        """Columns of a vector."""
        return 1 if self.columns is None else self.columns.width

    @property
    def _row(self) -> int:
        """Vectors of a row of a product."""
        return -(-self.nv // self._lanes)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of one product, and of a tile of columns side by side."""
        if self.columns is None:
            return self.nv**2 * self.kind.bytes
        tile = self.nv * min(self._row, _WIDTHS[0])
        return (self._row * self._row * self._lanes + tile) * self.columns.bytes

    @property
    def operations(self) -> int:
        """Floating-point operations for one state."""
        each = (2 * self.entries * self.nv * (product.left is not None) for product in self.stage.outputs.values())
        return sum(each) + 3 * self.nv**2 * len(self.stage.outputs)

    @property
    def row_ns(self) -> float:
        """About how long a state takes."""
        return self.operations * _NS * 8.0 / max(self.kind.width, self._lanes)


def products_module(stage: Products, kind: VectorType, columns: VectorType | None, target: Target) -> str:
    """The module of products, `columns` being as of `ProductsPlan`."""
    finish = _finish if columns is None else _finish_side_by_side
    parts = [
        declarations(kind),
        "" if columns is None else declarations(columns),
        *("" if columns is None else load_tile(columns, width) for width in _WIDTHS),
        *(_rows(columns or kind, width, side_by_side=columns is not None) for width in _WIDTHS),
        _multiply(kind, columns),
        *(finish(columns or kind, number, product) for number, product in enumerate(stage.outputs.values())),
        _kernel(stage, rows=columns is not None),
        attributes(target if columns is None else replace(target, narrow=False)),
    ]
    return "".join(parts)


def _rows(kind: VectorType, width: int, *, side_by_side: bool) -> str:
    """rowsW(A, B, P, n, starts, index, lineB, lineP): W vectors of each row of P = A B, whose rows and those of B are
    so many vectors apart; A's entries are scalars if these are `side_by_side`."""
    T, s, columns, aligned = kind.name, kind.suffix, range(width), f"align {kind.bytes}"
    zero, entry = kind.splat(0.0), replace(kind, width=1) if side_by_side else kind
    sums = "".join(f"  %acc{c} = phi {T} [ {zero}, %rows ], [ %new{c}, %terms ]\n" for c in columns)
    out = Lines()
    a = out.new(f"load {entry.name}, ptr %a.at, align {entry.bytes}")
    a = spread(out, kind.scalar, kind.width, a) if side_by_side else a
    for c in columns:
        value = out.new(f"load {T}, ptr {out.new(f'getelementptr {T}, ptr %b.at, i64 {c}')}, {aligned}")
        out.do(f"%new{c} = call {T} @llvm.fmuladd.{s}({T} {a}, {T} {value}, {T} %acc{c})")
    terms = "\n".join(out.lines)
    results = "".join(f"  %out{c} = phi {T} [ {zero}, %rows ], [ %new{c}, %terms ]\n" for c in columns)
    store = "".join(
        f"  %p{c}.at = getelementptr {T}, ptr %p.at, i64 {c}\n  store {T} %out{c}, ptr %p{c}.at, {aligned}\n"
        for c in columns
    )
    arguments = "ptr %A, ptr %B, ptr %P, i64 %n, ptr %starts, ptr %index, i64 %lineB, i64 %lineP"
    return f"""define internal void @rows{width}({arguments}) #0 {{
entry:
  br label %rows
rows:
  %r = phi i64 [ 0, %entry ], [ %r.next, %stored ]
  %start.at = getelementptr i64, ptr %starts, i64 %r
  %start = load i64, ptr %start.at
  %stop.at = getelementptr i64, ptr %start.at, i64 1
  %stop = load i64, ptr %stop.at
  %line = mul i64 %r, %n
  %any = icmp slt i64 %start, %stop
  br i1 %any, label %terms, label %stored
terms:
  %e = phi i64 [ %start, %rows ], [ %e.next, %terms ]
{sums}  %l.at = getelementptr i64, ptr %index, i64 %e
  %l = load i64, ptr %l.at
  %a.index = add i64 %line, %l
  %a.at = getelementptr {entry.name}, ptr %A, i64 %a.index
  %b.index = mul i64 %l, %lineB
  %b.at = getelementptr {T}, ptr %B, i64 %b.index
{terms}
  %e.next = add i64 %e, 1
  %e.more = icmp slt i64 %e.next, %stop
  br i1 %e.more, label %terms, label %stored
stored:
{results}  %p.index = mul i64 %r, %lineP
  %p.at = getelementptr {T}, ptr %P, i64 %p.index
{store}  %r.next = add i64 %r, 1
  %more = icmp slt i64 %r.next, %n
  br i1 %more, label %rows, label %done
done:
  ret void
}}

"""


def _multiply(kind: VectorType, columns: VectorType | None) -> str:
    """multiply(A, B, P, n, starts, index, tiles): P = A B, tile after tile, of a robot that moves; a tile of columns
    side by side goes behind P."""
    cases = "".join(f"    i64 {width}, label %tile.{width}\n" for width in _WIDTHS[1:])
    if columns is None:
        place, line = f"  %P.at = getelementptr {kind.name}, ptr %P, i64 %c\n", "%n"
        loads = dict.fromkeys(_WIDTHS, "")
        factor, lines = "%B.at", dict.fromkeys(_WIDTHS, "%n")
    else:
        W, T = columns.width, columns.name
        line, factor = "%row", "%Y"
        place = f"""  %rounded = add i64 %n, {W - 1}
  %row = udiv i64 %rounded, {W}
  %padded = mul i64 %row, {W}
  %entries = mul i64 %row, %padded
  %Y = getelementptr {T}, ptr %P, i64 %entries
  %P.at = getelementptr {columns.scalar}, ptr %P, i64 %c
  %left = sub i64 %n, %c
"""
        loads = {
            width: f"""  %before.{width} = sub i64 %left, {(width - 1) * W}
  %less.{width} = icmp slt i64 %before.{width}, {W}
  %last.{width} = select i1 %less.{width}, i64 %before.{width}, i64 {W}
  call void @load_tile{width}(ptr %B.at, ptr %Y, i64 %n, i64 %last.{width}, i64 %n)
"""
            for width in _WIDTHS
        }
        lines = {width: str(width) for width in _WIDTHS}
    calls = "".join(
        f"tile.{width}:\n{loads[width]}  call void @rows{width}(ptr %A, ptr {factor}, ptr %P.at, i64 %n, ptr %starts, "
        f"ptr %index, i64 {lines[width]}, i64 {line})\n  br label %next\n"
        for width in _WIDTHS
    )
    taken = "ptr %A, ptr %B, ptr %P, i64 %n, ptr %starts, ptr %index, ptr %tiles"
    return f"""define internal void @multiply({taken}) #0 {{
entry:
  %count = load i64, ptr %tiles
  br label %tile
tile:
  %t = phi i64 [ 0, %entry ], [ %t.next, %next ]
  %record = shl i64 %t, 1
  %c.number = add i64 %record, 1
  %c.at = getelementptr i64, ptr %tiles, i64 %c.number
  %c = load i64, ptr %c.at
  %width.at = getelementptr i64, ptr %c.at, i64 1
  %width = load i64, ptr %width.at
  %B.at = getelementptr {kind.name}, ptr %B, i64 %c
{place}  switch i64 %width, label %tile.{_WIDTHS[0]} [
{cases}  ]
{calls}next:
  %t.next = add i64 %t, 1
  %more = icmp slt i64 %t.next, %count
  br i1 %more, label %tile, label %done
done:
  ret void
}}

"""


def _finish(kind: VectorType, number: int, product: Product) -> str:
    """finishK(out, plain, P, n): -(plain + P), or -(plain + P + P')."""
    T, aligned, out = kind.name, f"align {kind.bytes}", Lines()

    def load(array: str, index: str) -> str:
        at = out.new(f"getelementptr {T}, ptr %{array}, i64 {index}")
        return out.new(f"load {T}, ptr {at}, {aligned}")

    terms = [load("plain", "%k")] if product.plain is not None else []
    if product.left is not None:
        terms.append(load("P", "%k"))
        if product.symmetric:
            terms.append(load("P", out.new(f"add i64 {out.new('mul i64 %c, %n')}, %r")))
    total = terms[0]
    for term in terms[1:]:
        total = out.new(f"fadd {T} {total}, {term}")
    negative = out.new(f"fneg {T} {total}")
    body = "\n".join(out.lines)
    return f"""define internal void @finish{number}(ptr %out, ptr %plain, ptr %P, i64 %n) #0 {{
entry:
  br label %rows
rows:
  %r = phi i64 [ 0, %entry ], [ %r.next, %row.done ]
  %line = mul i64 %r, %n
  br label %columns
columns:
  %c = phi i64 [ 0, %rows ], [ %c.next, %columns ]
  %k = add i64 %line, %c
{body}
  %at = getelementptr {T}, ptr %out, i64 %k
  store {T} {negative}, ptr %at, {aligned}
  %c.next = add i64 %c, 1
  %c.more = icmp slt i64 %c.next, %n
  br i1 %c.more, label %columns, label %row.done
row.done:
  %r.next = add i64 %r, 1
  %r.more = icmp slt i64 %r.next, %n
  br i1 %r.more, label %rows, label %done
done:
  ret void
}}

"""


def _finish_side_by_side(kind: VectorType, number: int, product: Product) -> str:
    """The same of vectors of columns, for as many rows at a time where P is turned as well."""
    T, S, W, out = kind.name, kind.scalar, kind.width, Lines()
    rows = W if product.symmetric else 1
    mask = last_mask(out, kind, "%left")

    def of_product(row: str, column: str) -> str:
        index = out.new(f"add i64 {out.new(f'mul i64 {row}, %padded')}, {column}")
        return out.new(f"load {T}, ptr {out.new(f'getelementptr {S}, ptr %P, i64 {index}')}, align {kind.bytes}")

    turned = []
    if product.symmetric:
        turned = transposed(out, kind, [of_product(out.new(f"add i64 %c, {k}"), "%r") for k in range(W)])
    for k in range(rows):
        row = out.new(f"add i64 %r, {k}")
        index = out.new(f"add i64 {out.new(f'mul i64 {row}, %n')}, %c")
        there = out.new(
            f"select i1 {out.new(f'icmp slt i64 {row}, %n')}, <{W} x i1> {mask}, <{W} x i1> zeroinitializer"
        )
        terms = [
            load_last(out, kind, at, there)
            for at in [out.new(f"getelementptr {S}, ptr %plain, i64 {index}")]
            if product.plain
        ]
        if product.left is not None:
            terms += [of_product(row, "%c"), *turned[k : k + 1]]
        total = terms[0]
        for term in terms[1:]:
            total = out.new(f"fadd {T} {total}, {term}")
        store_last(out, kind, out.new(f"fneg {T} {total}"), out.new(f"getelementptr {S}, ptr %out, i64 {index}"), there)
    body = "\n".join(out.lines)
    return f"""define internal void @finish{number}(ptr %out, ptr %plain, ptr %P, i64 %n) #0 {{
entry:
  %rounded = add i64 %n, {W - 1}
  %padded = and i64 %rounded, {-W}
  br label %rows
rows:
  %r = phi i64 [ 0, %entry ], [ %r.next, %row.done ]
  br label %columns
columns:
  %c = phi i64 [ 0, %rows ], [ %c.next, %columns ]
  %left = sub i64 %n, %c
{body}
  %c.next = add i64 %c, {W}
  %c.more = icmp slt i64 %c.next, %n
  br i1 %c.more, label %columns, label %row.done
row.done:
  %r.next = add i64 %r, {rows}
  %r.more = icmp slt i64 %r.next, %n
  br i1 %r.more, label %rows, label %done
done:
  ret void
}}

"""


def _kernel(stage: Products, *, rows: bool) -> str:
    """The exported function: one output after another. Constants follow inputs and outputs in the table; `rows`: arrays
    have rows of states, which are worked on one by one."""
    out, arrays = Lines(), [*stage.inputs, *stage.outputs]

    def word(number: int, field: int, kind: str) -> str:
        at = out.new(f"getelementptr {{ptr, i64}}, ptr %table, i64 {number}, i32 {field}")
        return out.new(f"load {kind}, ptr {at}, align 8")

    def array(number: int) -> str:
        data = word(number, 0, "ptr")
        if not rows or number >= len(arrays):
            return data
        offset = out.new(f"mul i64 %row, {word(number, 1, 'i64')}")
        return out.new(f"getelementptr i8, ptr {data}, i64 {offset}")

    n_at, tiles_at, starts, index = (array(len(arrays) + number) for number in range(len(_CONSTANTS)))
    n = out.new(f"load i64, ptr {n_at}")
    for number, (name, product) in enumerate(stage.outputs.items()):
        if product.left is not None and product.right is not None:
            factors = ", ".join(f"ptr {array(arrays.index(each))}" for each in (product.left, product.right))
            pattern = f"ptr {starts}, ptr {index}, ptr {tiles_at}"
            out.do(f"call void @multiply({factors}, ptr %workspace, i64 {n}, {pattern})")
        plain = "poison" if product.plain is None else array(arrays.index(product.plain))
        result = array(arrays.index(name))
        out.do(f"call void @finish{number}(ptr {result}, ptr {plain}, ptr %workspace, i64 {n})")
    body = "\n".join(out.lines)
    if not rows:
        return f"""define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) #0 {{
{body}
  ret void
}}

"""
    return f"""define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) #0 {{
entry:
  %some = icmp slt i64 %first, %last
  br i1 %some, label %state, label %done
state:
  %row = phi i64 [ %first, %entry ], [ %next, %state ]
{body}
  %next = add i64 %row, 1
  %more = icmp slt i64 %next, %last
  br i1 %more, label %state, label %done
done:
  ret void
}}

"""
