"""Columns of one state side by side in vectors: what solves and products of a single state work on.

A matrix of one state is rows of scalars. Its columns take the places in a vector that states have otherwise, so that
the arithmetic of one state is on vectors, too. A tile of columns is copied to whole vectors in the workspace, and back:
sweeps know nothing of where rows end.
"""

from __future__ import annotations

from dataclasses import replace

from robodyn.codegen.llvm.target import LEVELS, Target
from robodyn.codegen.llvm.vectors import Lines, VectorType, spread, transposed


def vectors_of_columns(kind: VectorType, target: Target) -> VectorType | None:
    """Vectors for the columns of what code for vectors of a kind works on; None where these are of several states."""
    return replace(kind, width=LEVELS[target.level] // kind.itemsize, masked=True) if kind.width == 1 else None


def load_tile(kind: VectorType, width: int) -> str:
    """load_tileW(X, Y, line, last, n): columns of n rows of a matrix, which are `line` scalars apart, to W vectors a
    row. The last vector has `last` of them, and zeros behind."""
    return _tile("load_tile", kind, width, load=True)


def store_tile(kind: VectorType, width: int) -> str:
    """store_tileW: the other way."""
    return _tile("store_tile", kind, width, load=False)


def _tile(name: str, kind: VectorType, width: int, *, load: bool) -> str:
    T, W, head = kind.name, kind.width, Lines()
    mask = last_mask(head, kind, "%last")
    out = Lines(head.numbers)
    row = out.new(f"getelementptr {kind.scalar}, ptr %X, i64 {out.new('mul i64 %k, %line')}")
    tile = out.new(f"getelementptr {T}, ptr %Y, i64 {out.new(f'mul i64 %k, {width}')}")
    for j in range(width):
        at = out.new(f"getelementptr {kind.scalar}, ptr {row}, i64 {j * W}")
        to = out.new(f"getelementptr {T}, ptr {tile}, i64 {j}")
        whole = j < width - 1
        if load:
            value = out.new(f"load {T}, ptr {at}, align 1") if whole else load_last(out, kind, at, mask)
            out.do(f"store {T} {value}, ptr {to}, align {kind.bytes}")
            continue
        value = out.new(f"load {T}, ptr {to}, align {kind.bytes}")
        if whole:
            out.do(f"store {T} {value}, ptr {at}, align 1")
        else:
            store_last(out, kind, value, at, mask)
    entry, body = ("\n".join(lines) + "\n" for lines in (head.lines, out.lines))
    return counted(f"{name}{width}", "ptr %X, ptr %Y, i64 %line, i64 %last", "k", body, entry)


def counted(name: str, arguments: str, counter: str, body: str, entry: str = "") -> str:
    """A function that runs `body` for %{counter} = 0 .. %count - 1."""
    return f"""define internal void @{name}({arguments}, i64 %count) #0 {{
entry:
{entry}  %some = icmp sgt i64 %count, 0
  br i1 %some, label %loop, label %done
loop:
  %{counter} = phi i64 [ 0, %entry ], [ %{counter}.next, %loop ]
{body}  %{counter}.next = add i64 %{counter}, 1
  %more = icmp slt i64 %{counter}.next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}}

"""


def last_mask(out: Lines, kind: VectorType, count: str) -> str:
    """The mask of a vector's first columns, a number of them."""
    W = kind.width
    places = f"<{', '.join(f'i64 {k}' for k in range(W))}>"
    return out.new(f"icmp ult <{W} x i64> {places}, {spread(out, 'i64', W, count)}")


def load_last(out: Lines, kind: VectorType, at: str, mask: str) -> str:
    """What a mask says of a vector in memory, and zeros."""
    T, W = kind.name, kind.width
    return out.new(
        f"call {T} @llvm.masked.load.{kind.suffix}.p0(ptr {at}, i32 1, <{W} x i1> {mask}, {T} zeroinitializer)"
    )


def store_last(out: Lines, kind: VectorType, value: str, at: str, mask: str) -> None:
    """What a mask says of a vector to memory."""
    W = kind.width
    out.do(f"call void @llvm.masked.store.{kind.suffix}.p0({kind.name} {value}, ptr {at}, i32 1, <{W} x i1> {mask})")


def unit_tile(kind: VectorType) -> str:
    """unit_tile(Y, W, c, n, count): `count` columns of the unit matrix of n rows from c on, of W vectors a row."""
    S, size = kind.scalar, kind.itemsize
    one = replace(kind, width=1).splat(1.0)
    return f"""define internal void @unit_tile(ptr %Y, i64 %width, i64 %c, i64 %n, i64 %count) #0 {{
entry:
  %row.bytes = mul i64 %width, {kind.bytes}
  %bytes = mul i64 %n, %row.bytes
  call void @llvm.memset.p0.i64(ptr align {kind.bytes} %Y, i8 0, i64 %bytes, i1 false)
  %begin = mul i64 %c, %row.bytes
  %first = getelementptr i8, ptr %Y, i64 %begin
  %next.one = add i64 %row.bytes, {size}
  br label %ones
ones:
  %j = phi i64 [ 0, %entry ], [ %j.next, %ones ]
  %offset = mul i64 %j, %next.one
  %at = getelementptr i8, ptr %first, i64 %offset
  store {S} {one}, ptr %at, align {size}
  %j.next = add i64 %j, 1
  %more = icmp slt i64 %j.next, %count
  br i1 %more, label %ones, label %done
done:
  ret void
}}

"""


def mirror_tile(kind: VectorType, width: int, most: int) -> str:
    """mirror_tileW(X, Y, c, n, count): the rows before c of `count` columns of an inverse from there on, which stand
    below the diagonal of X; `most`: of columns. As many rows at a time as a vector has places, then one by one.
    """
    T, S, W, out = kind.name, kind.scalar, kind.width, Lines()
    last = out.new("sub i64 %count, 1")
    for g in range(width):
        rows = ["poison"] * W
        for j in range(g * W, min(g * W + W, most)):
            there = out.new(f"icmp slt i64 {last}, {j}")  # behind the last column: that one again
            line = out.new(f"mul i64 {out.new(f'select i1 {there}, i64 {last}, i64 {j}')}, %n")
            at = out.new(f"getelementptr {S}, ptr %from, i64 {line}")
            rows[j - g * W] = out.new(f"load {T}, ptr {at}, align 1")
        for k, turned in enumerate(transposed(out, kind, rows)):
            at = out.new(f"getelementptr {T}, ptr %to, i64 {k * width + g}")
            out.do(f"store {T} {turned}, ptr {at}, align {kind.bytes}")
    block = "\n".join(out.lines)
    return f"""define internal void @mirror_tile{width}(ptr %X, ptr %Y, i64 %c, i64 %n, i64 %count) #0 {{
entry:
  %line = mul i64 %c, %n
  %first = getelementptr {S}, ptr %X, i64 %line
  %whole = and i64 %c, {-W}
  %any = icmp sgt i64 %whole, 0
  br i1 %any, label %blocks, label %rest
blocks:
  %p = phi i64 [ 0, %entry ], [ %p.next, %blocks ]
  %from = getelementptr {S}, ptr %first, i64 %p
  %to.vector = mul i64 %p, {width}
  %to = getelementptr {T}, ptr %Y, i64 %to.vector
{block}
  %p.next = add i64 %p, {W}
  %more = icmp slt i64 %p.next, %whole
  br i1 %more, label %blocks, label %rest
rest:
  %some = icmp slt i64 %whole, %c
  br i1 %some, label %row, label %done
row:
  %r = phi i64 [ %whole, %rest ], [ %r.next, %row.done ]
  %row.from = getelementptr {S}, ptr %first, i64 %r
  %row.vector = mul i64 %r, {width}
  %row.to = getelementptr {T}, ptr %Y, i64 %row.vector
  br label %columns
columns:
  %j = phi i64 [ 0, %row ], [ %j.next, %columns ]
  %offset = mul i64 %j, %n
  %at = getelementptr {S}, ptr %row.from, i64 %offset
  %value = load {S}, ptr %at, align 1
  %place = getelementptr {S}, ptr %row.to, i64 %j
  store {S} %value, ptr %place, align {kind.itemsize}
  %j.next = add i64 %j, 1
  %j.more = icmp slt i64 %j.next, %count
  br i1 %j.more, label %columns, label %row.done
row.done:
  %r.next = add i64 %r, 1
  %r.more = icmp slt i64 %r.next, %c
  br i1 %r.more, label %row, label %done
done:
  ret void
}}

"""
