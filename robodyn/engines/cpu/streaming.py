"""Rows written past the caches: for results of batches that are larger than they are.

A processor that writes a few bytes of a line loads the line first, and later writes it back: twice the traffic that the
results take. Whole lines can be written without that, if they are aligned; rows of a result seldom are. So a line is
put together in registers, from two neighbouring blocks of a row, by a shuffle whose indices are as far off as the row.
"""

from __future__ import annotations

from robodyn.engines.cpu.vectors import Lines, VectorType, transposed

_LINE = 64


def stream_functions(kind: VectorType, most: int) -> str:
    """flush(data, stride, row, end, vectors, count, batch): `stage_out`, past the caches where that is quicker.

    That is where rows follow one another without a gap, W of them are there, an array of `batch` rows has more than
    `most` bytes, and a row is two lines or longer. For vectors of the length of a line.
    """
    W, T = kind.width, kind.name
    integer = "i64" if kind.itemsize == 8 else "i32"
    suffix = "pd" if kind.itemsize == 8 else "ps"
    permute = f"@llvm.x86.avx512.vpermi2var.{suffix}.512"
    indices = f"<{W} x {integer}>"
    arguments = "ptr %data, i64 %stride, i64 %row, i64 %end, ptr %vectors, i64 %count"
    return f"""declare {T} {permute}({T}, {indices}, {T})
declare void @llvm.x86.sse.sfence()

{_stream(kind, permute, indices, integer)}
define internal void @flush({arguments}, i64 %batch) #0 {{
  %bytes = mul i64 %count, {kind.itemsize}
  %dense = icmp eq i64 %bytes, %stride
  %left = sub i64 %end, %row
  %whole = icmp sge i64 %left, {W - 1}
  %all = mul i64 %bytes, %batch
  %large = icmp sgt i64 %all, {most}
  %long = icmp sge i64 %count, {2 * W}
  %word = ptrtoint ptr %data to i64
  %odd = and i64 %word, {kind.itemsize - 1}
  %aligned = icmp eq i64 %odd, 0
  %a = and i1 %dense, %whole
  %b = and i1 %large, %long
  %c = and i1 %a, %b
  %go = and i1 %c, %aligned
  br i1 %go, label %past, label %through
past:
  call void @stream(ptr %data, i64 %stride, i64 %row, i64 %end, ptr %vectors, i64 %count)
  ret void
through:
  call void @stage_out({arguments})
  ret void
}}

"""


def _stream(kind: VectorType, permute: str, indices: str, integer: str) -> str:
    """stream: the first block of a row is stored up to the first line's end, the last ones from the last line's on."""
    W, T, size = kind.width, kind.name, kind.itemsize
    lanes = "<" + ", ".join(f"{integer} {k}" for k in range(W)) + ">"
    setup, first, loop, tail = Lines(), Lines(), Lines(), Lines()
    for out in (first, loop, tail):
        out.numbers = setup.numbers
    rows = [
        setup.new(f"load ptr, ptr {setup.new(f'getelementptr ptr, ptr %rows, i64 {k}')}, align 8") for k in range(W)
    ]

    def splat(out: Lines, value: str) -> str:
        one = out.new(f"insertelement <{W} x {integer}> poison, {integer} {value}, i32 0")
        return out.new(f"shufflevector <{W} x {integer}> {one}, <{W} x {integer}> poison, <{W} x i32> zeroinitializer")

    def masked(out: Lines, value: str, place: str, mask: str) -> None:
        out.do(
            f"call void @llvm.masked.store.{kind.suffix}.p0({T} {value}, ptr {place}, i32 {size}, <{W} x i1> {mask})"
        )

    offs, lines, shuffles = [], [], []
    for row in rows:
        word = setup.new(f"ptrtoint ptr {row} to i64")
        off = setup.new(f"lshr i64 {setup.new(f'and i64 {word}, {_LINE - 1}')}, {size.bit_length() - 1}")
        offs.append(off if integer == "i64" else setup.new(f"trunc i64 {off} to i32"))
        back = setup.new(f"sub i64 0, {off}")
        lines.append(setup.new(f"getelementptr {kind.scalar}, ptr {row}, i64 {back}"))
        # Lane k of a line is lane k + W - off of the block before and this one, side by side.
        shift = setup.new(f"sub {integer} {W}, {offs[-1]}")
        shuffles.append(setup.new(f"add <{W} x {integer}> {lanes}, {splat(setup, shift)}"))

    def block(out: Lines, column: str) -> list[str]:
        at = out.new(f"getelementptr {T}, ptr %vectors, i64 {column}")
        places = [out.new(f"getelementptr {T}, ptr {at}, i64 {k}") for k in range(W)]
        return transposed(out, kind, [out.new(f"load {T}, ptr {place}, align {kind.bytes}") for place in places])

    starts = block(first, "0")
    for row, value, off in zip(rows, starts, offs, strict=True):
        room = splat(first, first.new(f"sub {integer} {W}, {off}"))
        masked(first, value, row, first.new(f"icmp ult <{W} x {integer}> {lanes}, {room}"))
    before = [f"%before{k}" for k in range(W)]
    values = block(loop, "%c")
    for line, last, value, shuffle in zip(lines, before, values, shuffles, strict=True):
        whole = loop.new(f"call {T} {permute}({T} {last}, {indices} {shuffle}, {T} {value})")
        place = loop.new(f"getelementptr {kind.scalar}, ptr {line}, i64 %c")
        loop.do(f"store {T} {whole}, ptr {place}, align {_LINE}, !nontemporal !0")
    phis = "\n".join(
        f"  {name} = phi {T} [ {start}, %entry ], [ {value}, %blocks ]"
        for name, start, value in zip(before, starts, values, strict=True)
    )
    # What is left of the last whole block, then columns behind it, from a block that ends where the row does.
    for row, value, off in zip(rows, values, offs, strict=True):
        room = splat(tail, tail.new(f"sub {integer} {W}, {off}"))
        place = tail.new(f"getelementptr {kind.scalar}, ptr {row}, i64 %c")
        masked(tail, value, place, tail.new(f"icmp uge <{W} x {integer}> {lanes}, {room}"))
    ends = block(tail, "%last")
    narrow = "%left" if integer == "i64" else tail.new("trunc i64 %left to i32")
    room = splat(tail, tail.new(f"sub {integer} {W}, {narrow}"))
    mask = tail.new(f"icmp uge <{W} x {integer}> {lanes}, {room}")
    for row, value in zip(rows, ends, strict=True):
        masked(tail, value, tail.new(f"getelementptr {kind.scalar}, ptr {row}, i64 %last"), mask)

    def text(out: Lines) -> str:
        return "\n".join(out.lines)

    return f"""define internal void @stream(ptr %data, i64 %stride, i64 %row, i64 %end, ptr %vectors, i64 %count) #0 {{
entry:
  %rows = alloca [{W} x ptr]
  call void @row_pointers(ptr %data, i64 %stride, i64 %row, i64 %end, ptr %rows)
  %last = sub i64 %count, {W}
  %left = and i64 %count, {W - 1}
  %whole = sub i64 %count, %left
{text(setup)}
{text(first)}
  br label %blocks
blocks:
  %c = phi i64 [ {W}, %entry ], [ %c.next, %blocks ]
{phis}
{text(loop)}
  %c.next = add i64 %c, {W}
  %more = icmp slt i64 %c.next, %whole
  br i1 %more, label %blocks, label %rest
rest:
{text(tail)}
  call void @llvm.x86.sse.sfence()
  ret void
}}

!0 = !{{i32 1}}
"""
