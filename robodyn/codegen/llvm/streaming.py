"""Vectors of states to rows of the user's: past the caches for results of batches that are larger than they are.

A processor that writes a few bytes of a line loads the line first, and later writes it back: twice the traffic that the
results take. Whole lines can be written without that, if they are aligned; rows of a result seldom are. So a line is
put together in registers, from two neighbouring blocks of a row, or from a row's end and the beginning of the next one,
by a shuffle whose indices are as far off as the row. Within the caches that takes half of the time as well: each line
is written once, where stores of unaligned blocks take two lines each.
"""

from __future__ import annotations

from robodyn.codegen.llvm.target import Target
from robodyn.codegen.llvm.vectors import Lines, VectorType, same_places, spread, transposed, vector_places

FLUSHED = "flushed "
"""Before a name: the user's array of a result that kernels leave as vectors."""
_LINE = 64
_PAST, _NEAR = "past_caches", "in_lines"
"""Functions that write whole lines past the caches, and to them."""
STREAMED_BYTES = 1 << 23
"""Results of a batch, by array, from which they are written past the caches, which they would only clear; with AVX-512
seven sixteenths of that (`streamed_bytes`)."""
CROWD = 3
"""Results that go to new arrays count for n times their bytes, from an n-th of the above on: caches are full of the
results of calls before them (`crowd`)."""


def streams(kind: VectorType, target: Target) -> bool:
    """Whether vectors are as long as a line, and the processor has the shuffle that lines take."""
    return target.level == "avx512" and kind.bytes == _LINE


def streamed_bytes(target: Target) -> int:
    """Bytes of results of a batch, by array, from which they are written past the caches.

    A core of a Zen 4 has 4 of the 32 MB of its last cache. On a virtual machine that shares that with others an arm's
    results of 4 to 8 MB, with `out=` as well, took 1.3 to 3.2 times as long through it as past it in some minutes, and
    0.9 of the time in others; results of 1.5 to 3 MB 0.8 of it always.
    """
    return STREAMED_BYTES * 7 // 16 if target.level == "avx512" else STREAMED_BYTES


def crowd(target: Target) -> int:
    """For how many times their bytes large results in new arrays count.

    With AVX2: on a Zen 3 that has 8 of the 32 MB of its last cache an arm's results of 3 to 7 MB took 1.6 to 3 times as
    long through it as past it where the last three were kept, and 0.7 to 2.4 times where only the one before was. With
    AVX-512 all results go past the caches from about there on (`streamed_bytes`).
    """
    return CROWD if target.level == "avx2" else 1


def flush_functions(kind: VectorType, target: Target, *, packed: bool = False, dense: bool = True) -> str:
    """flush(data, stride, row, end, vectors, from, to, count, batch): some columns of W rows of `count`.

    Like `stage_out`, or line by line where that is quicker: where rows follow one another without a gap, W of them are
    there, and a row is two lines or longer; past the caches where an array of `batch` rows is large. Whoever lets
    others read the rows waits for them with a store fence. `from` and `to` are multiples of W, or the end. `packed`:
    behind the vectors comes where each is among them. `dense`: whether such rows come at all.
    """
    vectors = "ptr %vectors, ptr %places" if packed else "ptr %vectors"
    arguments = f"ptr %data, i64 %stride, i64 %row, i64 %end, {vectors}"
    lines = dense and streams(kind, target)
    past = _choice(kind, vectors, streamed_bytes(target)) if lines else "  br label %through\n"
    written = "".join(_stream(kind, packed, name) for name in (_PAST, _NEAR)) if lines else ""
    first = "%vectors, ptr %place" if packed else "%vector"
    return f"""{_declared(kind) if lines else ""}{written}\
define internal void @flush({arguments}, i64 %from, i64 %to, i64 %count, i64 %batch) #0 {{
entry:
{past}through:
  %column = getelementptr {kind.scalar}, ptr %data, i64 %from
  {"%place = getelementptr i64, ptr %places" if packed else f"%vector = getelementptr {kind.name}, ptr %vectors"}, \
i64 %from
  %some = sub i64 %to, %from
  call void @stage_{"packed" if packed else "out"}(ptr %column, i64 %stride, i64 %row, i64 %end, ptr {first}, \
i64 %some)
  ret void
}}

"""


def _choice(kind: VectorType, vectors: str, large: int) -> str:
    W = kind.width
    return f"""  %bytes = mul i64 %count, {kind.itemsize}
  %dense = icmp eq i64 %bytes, %stride
  %rows = sub i64 %end, %row
  %whole = icmp sge i64 %rows, {W - 1}
  %all = mul i64 %bytes, %batch
  %large = icmp sgt i64 %all, {large}
  %long = icmp sge i64 %count, {2 * W}
  %word = ptrtoint ptr %data to i64
  %odd = and i64 %word, {kind.itemsize - 1}
  %aligned = icmp eq i64 %odd, 0
  %a = and i1 %dense, %whole
  %b = and i1 %aligned, %long
  %go = and i1 %a, %b
  br i1 %go, label %lines, label %through
lines:
  br i1 %large, label %past, label %near
near:
  call void @{_NEAR}(ptr %data, i64 %stride, i64 %row, i64 %end, {vectors}, i64 %from, i64 %to, i64 %count)
  ret void
past:
  call void @{_PAST}(ptr %data, i64 %stride, i64 %row, i64 %end, {vectors}, i64 %from, i64 %to, i64 %count)
  ret void
"""


def _declared(kind: VectorType) -> str:
    parts = _Parts(kind, False, True)
    return f"declare {kind.name} {parts.permute}({kind.name}, {parts.indices}, {kind.name})\n\n!0 = !{{i32 1}}\n\n"


def _stream(kind: VectorType, packed: bool, name: str) -> str:
    """Of W rows the first line's beginning and the last one's end are stored as parts, all between as lines."""
    W, T = kind.width, kind.name
    parts = _Parts(kind, packed, name == _PAST)
    setup = parts.setup()
    starts, first = parts.block("%first")
    head = parts.head(starts[0])
    values, loop = parts.blocks(starts)
    after = [f"  %after{k} = phi {T} [ {starts[k]}, %ready ], [ {values[k]}, %{parts.latch} ]" for k in range(W)]
    vectors = "ptr %vectors, ptr %places" if packed else "ptr %vectors"
    arguments = f"ptr %data, i64 %stride, i64 %row, i64 %end, {vectors}, i64 %from, i64 %to, i64 %count"
    behind = "\n".join(after)
    return f"""define internal void @{name}({arguments}) #0 {{
entry:
  %rows = alloca [{W} x ptr]
  call void @row_pointers(ptr %data, i64 %stride, i64 %row, i64 %end, ptr %rows)
  %left = and i64 %count, {W - 1}
  %whole = sub i64 %count, %left
  %last = sub i64 %count, {W}
  %is.first = icmp eq i64 %from, 0
  %back = sub i64 %from, {W}
  %first = select i1 %is.first, i64 0, i64 %back
{setup}
{first}
  br i1 %is.first, label %head, label %ready
head:
{head}
  br label %ready
ready:
  %begin = add i64 %first, {W}
  %ends = icmp eq i64 %to, %count
  %stop = select i1 %ends, i64 %whole, i64 %to
  %any = icmp slt i64 %begin, %stop
  br i1 %any, label %blocks, label %behind
blocks:
  %c = phi i64 [ %begin, %ready ], [ %c.next, %{parts.latch} ]
{loop}
  %c.next = add i64 %c, {W}
  %more = icmp slt i64 %c.next, %stop
  br i1 %more, label %blocks, label %behind
behind:
{behind}
  br i1 %ends, label %tail, label %done
tail:
{parts.tail()}
  br label %done
done:
  ret void
}}

"""


class _Parts:
    """Instructions of `_stream`, past the caches or not: lane k of a line is lane k + W - off of the block before and
    the next, side by side."""

    def __init__(self, kind: VectorType, packed: bool, past: bool) -> None:
        self.kind, self.packed, self.past = kind, packed, past
        self.latch = "joined" if packed else "blocks"
        self.out = Lines()
        self.integer = "i64" if kind.itemsize == 8 else "i32"
        self.permute = f"@llvm.x86.avx512.vpermi2var.{'pd' if kind.itemsize == 8 else 'ps'}.512"
        self.indices = f"<{kind.width} x {self.integer}>"
        self.lanes = "<" + ", ".join(f"{self.integer} {k}" for k in range(kind.width)) + ">"

    def _text(self) -> str:
        lines, self.out = self.out.lines, Lines(self.out.numbers)
        return "\n".join(lines)

    def _splat(self, value: str) -> str:
        return spread(self.out, self.integer, self.kind.width, value)

    def _narrow(self, value: str) -> str:
        return value if self.integer == "i64" else self.out.new(f"trunc i64 {value} to i32")

    def _shuffle(self, off: str) -> str:
        shift = self._splat(self.out.new(f"sub {self.integer} {self.kind.width}, {off}"))
        return self.out.new(f"add {self.indices} {self.lanes}, {shift}")

    def _joined(self, left: str, shuffle: str, right: str) -> str:
        T = self.kind.name
        return self.out.new(f"call {T} {self.permute}({T} {left}, {self.indices} {shuffle}, {T} {right})")

    def _line(self, value: str, place: str) -> None:
        how = ", !nontemporal !0" if self.past else ""
        self.out.do(f"store {self.kind.name} {value}, ptr {place}, align {_LINE}{how}")

    def _part(self, value: str, place: str, compare: str, lane: str) -> None:
        """Store the lanes before one (ult), or from it on (uge)."""
        W, T = self.kind.width, self.kind.name
        mask = self.out.new(f"icmp {compare} {self.indices} {self.lanes}, {self._splat(lane)}")
        arguments = f"{T} {value}, ptr {place}, i32 {self.kind.itemsize}, <{W} x i1> {mask}"
        self.out.do(f"call void @llvm.masked.store.{self.kind.suffix}.p0({arguments})")

    def setup(self) -> str:
        """Rows, how far each begins behind a line, and where that line is."""
        out, size = self.out, self.kind.itemsize
        places = [out.new(f"getelementptr ptr, ptr %rows, i64 {k}") for k in range(self.kind.width)]
        self.rows = [out.new(f"load ptr, ptr {place}, align 8") for place in places]
        self.offs, self.lines, self.shuffles = [], [], []
        for row in self.rows:
            within = out.new(f"and i64 {out.new(f'ptrtoint ptr {row} to i64')}, {_LINE - 1}")
            off = out.new(f"lshr i64 {within}, {size.bit_length() - 1}")
            self.offs.append(self._narrow(off))
            self.lines.append(self._column(row, out.new(f"sub i64 0, {off}")))
            self.shuffles.append(self._shuffle(self.offs[-1]))
        return self._text()

    def _column(self, row: str, column: str) -> str:
        return self.out.new(f"getelementptr {self.kind.scalar}, ptr {row}, i64 {column}")

    def block(self, column: str) -> tuple[list[str], str]:
        """W columns of all rows, and the instructions."""
        values = self._block(column)
        return values, self._text()

    def _block(self, column: str) -> list[str]:
        out, T = self.out, self.kind.name
        places = vector_places(out, self.kind, column, self.kind.width, packed=self.packed)
        return transposed(
            out, self.kind, [out.new(f"load {T}, ptr {place}, align {self.kind.bytes}") for place in places]
        )

    def head(self, start: str) -> str:
        """The first row up to its first line's end."""
        self._part(start, self.rows[0], "ult", self.out.new(f"sub {self.integer} {self.kind.width}, {self.offs[0]}"))
        return self._text()

    def blocks(self, starts: list[str]) -> tuple[list[str], str]:
        """A line of each row, from the block before and block %c, whose rows are returned."""
        values = self._joined_blocks() if self.packed else self._block("%c")
        phis = [
            f"  %before{k} = phi {self.kind.name} [ {start}, %ready ], [ {value}, %{self.latch} ]"
            for k, (start, value) in enumerate(zip(starts, values, strict=True))
        ]
        for k, value in enumerate(values):
            line = self._joined(f"%before{k}", self.shuffles[k], value)
            self._line(line, self._column(self.lines[k], "%c"))
        return values, "\n".join([*phis, self._text()])

    def _joined_blocks(self) -> list[str]:
        """W packed columns of all rows from %c on. Where all are in one place they are zeros, and need no shuffles."""
        out, T = self.out, self.kind.name
        out.lines += [f"  br i1 {same_places(out, self.kind)}, label %joined, label %mixed", "mixed:"]
        mixed = self._block("%c")
        out.lines += ["  br label %joined", "joined:"]
        return [out.new(f"phi {T} [ zeroinitializer, %blocks ], [ {value}, %mixed ]") for value in mixed]

    def tail(self) -> str:
        """What is left of each row, and the first line of the next one: a whole line before that, if there is one."""
        out, W = self.out, self.kind.width
        ends, starts = self._block("%last"), self._block("0")
        left = self._narrow("%left")
        rest = self._shuffle(left)
        for k in range(W - 1):
            line = self._joined(f"%after{k}", self.shuffles[k], self._joined(ends[k], rest, ends[k]))
            long = out.new(f"icmp uge {self.integer} {out.new(f'add {self.integer} {self.offs[k]}, {left}')}, {W}")
            out.do(f"br i1 {long}, label %whole{k}, label %next{k}")
            out.lines.append(f"whole{k}:")
            self._line(line, self._column(self.lines[k], "%whole"))
            out.do(f"br label %next{k}")
            out.lines.append(f"next{k}:")
            self._line(self._joined(ends[k], self.shuffles[k + 1], starts[k + 1]), self.lines[k + 1])
        row, before = self.rows[-1], out.new(f"sub i64 %whole, {W}")
        room = out.new(f"sub {self.integer} {W}, {self.offs[-1]}")
        self._part(f"%after{W - 1}", self._column(row, before), "uge", room)
        self._part(ends[-1], self._column(row, "%last"), "uge", out.new(f"sub {self.integer} {W}, {left}"))
        return self._text()
