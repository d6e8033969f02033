"""Products of matrices between the stages of a chain, for a vector of states: loops that serve every robot.

    void kernel(ptr table, i64 first, i64 last, ptr workspace)

Like the kernels of solves (`solve_code`) it works on arrays that hold vectors of states, for the W states of one
vector. A row of a product is the sum of rows of the right matrix, each times an entry of the left one, some columns at
a time, which stay in registers; entries that are zero whatever the state are left out.

Columns of one state alone stand side by side in vectors (`side_by_side`), and one state follows the other. Right
matrices are the same for all of them then: those of products with the same left one stand behind one another in the
rows of one matrix, so that there is one product, of longer rows.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import numpy as np

from robodyn.arguments import Array
from robodyn.chains import Product, Products, coupled
from robodyn.codegen.llvm.straight_line import attributes
from robodyn.codegen.llvm.target import Target
from robodyn.codegen.llvm.vectors import Lines, VectorType, declarations, spread, table_word, transposed
from robodyn.engines.cpu.chains.side_by_side import last_mask, load_last, store_last, vectors_of_columns
from robodyn.engines.cpu.chains.solves import pieces
from robodyn.model import Model

_CONSTANTS = ("n", "tiles", "starts", "index")
"""Arrays of 64-bit integers: the matrices' size; how many tiles of columns there are, then the first column and the
columns of each, in vectors, of every product where columns are side by side; columns where the left matrix can be
nonzero, by row."""
_WIDTHS = tuple(range(12, 0, -1))
_NS = 1.0 / 25.0


def _joined(stage: Products) -> dict[str, list[str]]:
    """Outputs that are products, by their left matrix."""
    found: dict[str, list[str]] = {}
    for name, product in stage.outputs.items():
        if product.left is not None and product.right is not None:
            found.setdefault(product.left, []).append(name)
    return found


class ProductsPlan:
    """Arrays of products on one model, in the order of the table's constants; `columns`: the vectors that columns of
    one state stand in."""

    def __init__(self, model: Model, stage: Products, kind: VectorType, columns: VectorType | None) -> None:
        self.stage, self.kind, self.columns, self.nv = stage, kind, columns, model.nv
        pattern = coupled(model)
        rows = [self.nv] if columns is None else [self._row * len(names) for names in _joined(stage).values()]
        found = {
            "n": [model.nv],
            "tiles": [number for row in rows for number in self._tiles(row)],
            "starts": [0, *accumulate(pattern.sum(axis=1).tolist())],
            "index": np.nonzero(pattern)[1],
        }
        self.entries = int(pattern.sum())
        self.arrays: list[Array] = [np.ascontiguousarray(found[name], np.int64) for name in _CONSTANTS]

    @staticmethod
    def _tiles(row: int) -> list[int]:
        widths = pieces(row, _WIDTHS[0])
        begins = accumulate([0, *widths[:-1]])
        return [len(widths), *(number for tile in zip(begins, widths, strict=True) for number in tile)]

    @property
    def words(self) -> tuple[int, ...]:
        """What follows inputs and outputs in the table."""
        return tuple(word for array in self.arrays for word in (array.ctypes.data, 0))

    @property
    def _lanes(self) -> int:
        """Columns of a vector."""
        return 1 if self.columns is None else self.columns.width

    @property
    def _row(self) -> int:
        """Vectors of a row of a matrix."""
        return -(-self.nv // self._lanes)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of one product; of columns side by side, of all of them and their right matrices."""
        if self.columns is None:
            return self.nv**2 * self.kind.bytes
        count = sum(map(len, _joined(self.stage).values()))
        return count * (self.nv + self._row * self._lanes) * self._row * self.columns.bytes

    @property
    def operations(self) -> int:
        """Floating-point operations for one state."""
        each = (2 * self.entries * self.nv * (product.left is not None) for product in self.stage.outputs.values())
        return sum(each) + 3 * self.nv**2 * len(self.stage.outputs)

    @property
    def row_ns(self) -> float:
        """About how long a state takes."""
        return self.operations * _NS * 8.0 / max(self.kind.width, self._lanes)


def products_for(model: Model, stage: Products, kind: VectorType, target: Target) -> tuple[ProductsPlan, str]:
    """The plan and the module of products on vectors of states, or of one state's columns where `kind` has one."""
    columns = vectors_of_columns(kind, target)
    return ProductsPlan(model, stage, kind, columns), products_module(stage, kind, columns, target)


def products_module(stage: Products, kind: VectorType, columns: VectorType | None, target: Target) -> str:
    """The module of products, `columns` being as of `ProductsPlan`."""
    if columns is None:
        own = [_finish(kind, number, product) for number, product in enumerate(stage.outputs.values())]
        own.append(_kernel(stage))
    else:
        own = [declarations(columns), _load(columns)]
        own += [_finish_side_by_side(columns, number, product) for number, product in enumerate(stage.outputs.values())]
        own.append(_kernel_side_by_side(stage, columns))
    wide = columns or kind
    parts = [
        declarations(kind),
        *(_rows(wide, width, side_by_side=columns is not None) for width in _WIDTHS),
        _multiply(wide),
        *own,
        attributes(target if columns is None else replace(target, narrow=False)),
    ]
    return "".join(parts)


def _rows(kind: VectorType, width: int, *, side_by_side: bool) -> str:
    """rowsW(A, B, P, n, starts, index, line): W vectors of each row of P = A B, whose rows and those of B are so many
    vectors apart; A's entries are scalars if these are `side_by_side`."""
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
    arguments = "ptr %A, ptr %B, ptr %P, i64 %n, ptr %starts, ptr %index, i64 %line"
    return f"""define internal void @rows{width}({arguments}) #0 {{
entry:
  br label %rows
rows:
  %r = phi i64 [ 0, %entry ], [ %r.next, %stored ]
  %start.at = getelementptr i64, ptr %starts, i64 %r
  %start = load i64, ptr %start.at
  %stop.at = getelementptr i64, ptr %start.at, i64 1
  %stop = load i64, ptr %stop.at
  %a.line = mul i64 %r, %n
  %any = icmp slt i64 %start, %stop
  br i1 %any, label %terms, label %stored
terms:
  %e = phi i64 [ %start, %rows ], [ %e.next, %terms ]
{sums}  %l.at = getelementptr i64, ptr %index, i64 %e
  %l = load i64, ptr %l.at
  %a.index = add i64 %a.line, %l
  %a.at = getelementptr {entry.name}, ptr %A, i64 %a.index
  %b.index = mul i64 %l, %line
  %b.at = getelementptr {T}, ptr %B, i64 %b.index
{terms}
  %e.next = add i64 %e, 1
  %e.more = icmp slt i64 %e.next, %stop
  br i1 %e.more, label %terms, label %stored
stored:
{results}  %p.index = mul i64 %r, %line
  %p.at = getelementptr {T}, ptr %P, i64 %p.index
{store}  %r.next = add i64 %r, 1
  %more = icmp slt i64 %r.next, %n
  br i1 %more, label %rows, label %done
done:
  ret void
}}

"""


def _multiply(kind: VectorType) -> str:
    """multiply(A, B, P, n, starts, index, line, tiles): P = A B, tile after tile, of a robot that moves, where rows of
    B and P are so many vectors; a pointer behind the tiles."""
    T = kind.name
    cases = "".join(f"    i64 {width}, label %tile.{width}\n" for width in _WIDTHS[1:])
    arguments = "ptr %A, ptr %B.at, ptr %P.at, i64 %n, ptr %starts, ptr %index, i64 %line"
    calls = "".join(f"tile.{width}:\n  call void @rows{width}({arguments})\n  br label %next\n" for width in _WIDTHS)
    taken = "ptr %A, ptr %B, ptr %P, i64 %n, ptr %starts, ptr %index, i64 %line, ptr %tiles"
    return f"""define internal ptr @multiply({taken}) #0 {{
entry:
  %count = load i64, ptr %tiles
  %first = getelementptr i64, ptr %tiles, i64 1
  br label %tile
tile:
  %t = phi i64 [ 0, %entry ], [ %t.next, %next ]
  %at = phi ptr [ %first, %entry ], [ %at.next, %next ]
  %c = load i64, ptr %at
  %width.at = getelementptr i64, ptr %at, i64 1
  %width = load i64, ptr %width.at
  %B.at = getelementptr {T}, ptr %B, i64 %c
  %P.at = getelementptr {T}, ptr %P, i64 %c
  switch i64 %width, label %tile.{_WIDTHS[0]} [
{cases}  ]
{calls}next:
  %at.next = getelementptr i64, ptr %at, i64 2
  %t.next = add i64 %t, 1
  %more = icmp slt i64 %t.next, %count
  br i1 %more, label %tile, label %done
done:
  ret ptr %at.next
}}

"""


def _load(kind: VectorType) -> str:
    """load(X, Y, n, row, line): n rows of as many scalars to rows of vectors that are `line` vectors apart; behind the
    last scalar of each is 0."""
    T, S, W, out = kind.name, kind.scalar, kind.width, Lines()
    column = out.new(f"mul i64 %j, {W}")
    at = out.new(f"getelementptr {S}, ptr %X, i64 {out.new(f'add i64 %from, {column}')}")
    value = load_last(out, kind, at, last_mask(out, kind, out.new(f"sub i64 %n, {column}")))
    to = out.new(f"getelementptr {T}, ptr %Y, i64 {out.new('add i64 %to, %j')}")
    out.do(f"store {T} {value}, ptr {to}, align {kind.bytes}")
    body = "\n".join(out.lines)
    return f"""define internal void @load(ptr %X, ptr %Y, i64 %n, i64 %row, i64 %line) #0 {{
entry:
  br label %rows
rows:
  %k = phi i64 [ 0, %entry ], [ %k.next, %row.done ]
  %from = mul i64 %k, %n
  %to = mul i64 %k, %line
  br label %vectors
vectors:
  %j = phi i64 [ 0, %rows ], [ %j.next, %vectors ]
{body}
  %j.next = add i64 %j, 1
  %j.more = icmp slt i64 %j.next, %row
  br i1 %j.more, label %vectors, label %row.done
row.done:
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, %n
  br i1 %k.more, label %rows, label %done
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
    """finishK(out, plain, P, n, pitch): the same of vectors of columns, for as many rows at a time where P is turned as
    well; rows of P are so many scalars apart."""
    T, S, W, out = kind.name, kind.scalar, kind.width, Lines()
    rows = W if product.symmetric else 1
    mask = last_mask(out, kind, "%left")

    def of_product(row: str, column: str) -> str:
        index = out.new(f"add i64 {out.new(f'mul i64 {row}, %pitch')}, {column}")
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
        terms = []
        if product.plain is not None:
            terms.append(load_last(out, kind, out.new(f"getelementptr {S}, ptr %plain, i64 {index}"), there))
        if product.left is not None:
            terms += [of_product(row, "%c"), *turned[k : k + 1]]
        total = terms[0]
        for term in terms[1:]:
            total = out.new(f"fadd {T} {total}, {term}")
        store_last(out, kind, out.new(f"fneg {T} {total}"), out.new(f"getelementptr {S}, ptr %out, i64 {index}"), there)
    body = "\n".join(out.lines)
    return f"""define internal void @finish{number}(ptr %out, ptr %plain, ptr %P, i64 %n, i64 %pitch) #0 {{
entry:
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


def _kernel(stage: Products) -> str:
    """The exported function: one output after another. Constants follow inputs and outputs in the table."""
    out, arrays = Lines(), [*stage.inputs, *stage.outputs]

    def array(number: int) -> str:
        return table_word(out, number, 0, "ptr")

    n_at, tiles_at, starts, index = (array(len(arrays) + number) for number in range(len(_CONSTANTS)))
    n = out.new(f"load i64, ptr {n_at}")
    for number, (name, product) in enumerate(stage.outputs.items()):
        if product.left is not None and product.right is not None:
            factors = ", ".join(f"ptr {array(arrays.index(each))}" for each in (product.left, product.right))
            pattern = f"ptr {starts}, ptr {index}, i64 {n}, ptr {tiles_at}"
            out.new(f"call ptr @multiply({factors}, ptr %workspace, i64 {n}, {pattern})")
        plain = "poison" if product.plain is None else array(arrays.index(product.plain))
        result = array(arrays.index(name))
        out.do(f"call void @finish{number}(ptr {result}, ptr {plain}, ptr %workspace, i64 {n})")
    body = "\n".join(out.lines)
    return f"""define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) #0 {{
{body}
  ret void
}}

"""


def _kernel_side_by_side(stage: Products, kind: VectorType) -> str:
    """The same for states one by one: rows of arrays, but for right matrices, which are copied once."""
    out, arrays, W = Lines(), [*stage.inputs, *stage.outputs], kind.width

    def place(vectors: str, of: str) -> str:
        return out.new(f"getelementptr {kind.name}, ptr {of}, i64 {vectors}")

    def row_of(name: str) -> str:
        number = arrays.index(name)
        offset = out.new(f"mul i64 %state, {table_word(out, number, 1, 'i64')}")
        return out.new(f"getelementptr i8, ptr {table_word(out, number, 0, 'ptr')}, i64 {offset}")

    n_at, tiles, starts, index = (table_word(out, len(arrays) + number, 0, "ptr") for number in range(len(_CONSTANTS)))
    n = out.new(f"load i64, ptr {n_at}")
    row = out.new(f"udiv i64 {out.new(f'add i64 {n}, {W - 1}')}, {W}")
    padded, free = out.new(f"mul i64 {row}, {W}"), "%workspace"
    joined = []
    for left, names in _joined(stage).items():
        line = out.new(f"mul i64 {row}, {len(names)}")
        Y, P = free, place(out.new(f"mul i64 {n}, {line}"), free)
        free = place(out.new(f"mul i64 {padded}, {line}"), P)
        joined.append((left, names, line, Y, P))
        for k, name in enumerate(names):
            right = table_word(out, arrays.index(stage.outputs[name].right or ""), 0, "ptr")
            to = place(out.new(f"mul i64 {row}, {k}"), Y)
            out.do(f"call void @load(ptr {right}, ptr {to}, i64 {n}, i64 {row}, i64 {line})")
    before, out.lines = "\n".join(out.lines), []
    found: dict[str, tuple[str, str]] = {}
    for left, names, line, Y, P in joined:
        pattern = f"ptr {starts}, ptr {index}, i64 {line}, ptr {tiles}"
        tiles = out.new(f"call ptr @multiply(ptr {row_of(left)}, ptr {Y}, ptr {P}, i64 {n}, {pattern})")
        pitch = out.new(f"mul i64 {line}, {W}")
        found.update((name, (place(out.new(f"mul i64 {row}, {k}"), P), pitch)) for k, name in enumerate(names))
    for number, (name, product) in enumerate(stage.outputs.items()):
        P, pitch = found.get(name, ("poison", "0"))
        plain = "poison" if product.plain is None else row_of(product.plain)
        out.do(f"call void @finish{number}(ptr {row_of(name)}, ptr {plain}, ptr {P}, i64 {n}, i64 {pitch})")
    body = "\n".join(out.lines)
    return f"""define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) #0 {{
entry:
{before}
  %some = icmp slt i64 %first, %last
  br i1 %some, label %each, label %done
each:
  %state = phi i64 [ %first, %entry ], [ %next, %each ]
{body}
  %next = add i64 %state, 1
  %more = icmp slt i64 %next, %last
  br i1 %more, label %each, label %done
done:
  ret void
}}

"""
