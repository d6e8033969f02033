"""Sweeps of a triangular solve over a tile of columns: panels of rows, their sums in registers.

A panel is some consecutive rows whose entries stand in the same columns, but for those between themselves: joints one
after another on a path. A tile is some columns of a right-hand side. All of a panel's rows and a tile's columns are
worked on together, so that a vector that was loaded is used as often as there are columns, or rows. With V = -L,

    up    x[k] += sum over rows j that have k among their columns of V[j, k] x[j]      from the leaves to the root
    down  x[k] = s d[k] x[k] + sum over the columns p of row k of V[k, p] x[p]         from the root to the leaves

Where columns are side by side in the vectors of X, entries are scalars that are spread over one as they are read.

The program of a sweep is 64-bit integers, panel after panel, and a zero behind the last one: how many rows; the first
row; how many terms; for each row the place behind its last entry in V; then the terms: for `down` p, for `up` j and the
place of V[j, first row]. V holds the nonzero entries alone, row after row.
"""

from __future__ import annotations

from dataclasses import replace

from robodyn.codegen.llvm.target import Target
from robodyn.codegen.llvm.vectors import Lines, VectorType, spread

WIDTH = 6
"""Columns of a tile, at most, or vectors of columns that are side by side."""


def panel_rows(target: Target) -> int:
    """Rows of a panel, at most: so many that sums, an entry of each row and one of a column fit the registers."""
    return 2 if target.level in ("sse2", "avx2") else 4


def sweep(kind: VectorType, name: str, width: int, most: int, *, side_by_side: bool = False) -> str:
    """The function up or down for tiles of `width` columns and panels of up to `most` rows.

    Vectors are of states; with `side_by_side` they are of columns of one state, and V and D are scalars.

    - up(X, V, program, line): rows of X are so many vectors apart;
    - down(X, V, program, line, D, s).
    """
    out = Lines()
    for rows in range(1, most + 1):
        _Panel(out, kind, name == "up", width, rows, side_by_side).write()
    counts = range(1, most + 1)
    cases = "".join(f"    i64 {rows}, label %panel{rows}\n" for rows in counts)
    ends = ", ".join(f"[ %end{rows}, %stored{rows} ]" for rows in counts)
    more = "" if name == "up" else f", ptr %D, {kind.name} %s"
    panels = "\n".join(out.lines)
    return f"""define internal void @{name}{width}(ptr %X, ptr %V, ptr %program, i64 %line{more}) #0 {{
entry:
  br label %next
next:
  %panel = phi ptr [ %program, %entry ], {ends}
  %rows = load i64, ptr %panel
  %row.at = getelementptr i64, ptr %panel, i64 1
  %row = load i64, ptr %row.at
  %count.at = getelementptr i64, ptr %panel, i64 2
  %count = load i64, ptr %count.at
  %x.index = mul i64 %row, %line
  %x = getelementptr {kind.name}, ptr %X, i64 %x.index
  switch i64 %rows, label %done [
{cases}  ]
{panels}
done:
  ret void
}}

"""


class _Panel:
    """Writes the instructions for panels of n rows."""

    def __init__(self, out: Lines, kind: VectorType, up: bool, width: int, rows: int, side_by_side: bool) -> None:
        self.out, self.kind, self.up, self.width, self.rows = out, kind, up, width, rows
        self.entry = replace(kind, width=1) if side_by_side else kind
        self.cells = [(r, c) for r in range(rows) for c in range(width)]

    def write(self) -> None:
        """All of it, from the label that the switch knows to the next panel."""
        out, n = self.out, self.rows
        out.lines.append(f"panel{n}:")
        ends = [self._word("%panel", 3 + r) for r in range(n)]
        first = out.new(f"getelementptr i64, ptr %panel, i64 {3 + n}")
        words = out.new("shl i64 %count, 1") if self.up else "%count"
        out.do(f"%end{n} = getelementptr i64, ptr {first}, i64 {words}")
        self.lines = ["%x"]
        while len(self.lines) < n:
            self.lines.append(self._vector(self.lines[-1], "%line"))
        begin = self._begin()
        behind = [out.new(f"sub i64 {end}, {r}") for r, end in enumerate(ends)]
        heads = [] if self.up else [self._entry_at("%V", out.new(f"sub i64 {each}, %count")) for each in behind]
        any_term = out.new("icmp sgt i64 %count, 0")
        out.do(f"br i1 {any_term}, label %terms{n}, label %sums{n}")
        self._terms(first, begin, heads)
        out.lines.append(f"sums{n}:")
        for (r, c), value in begin.items():
            out.do(f"%sum{n}.{r}.{c} = phi {self.kind.name} [ {value}, %panel{n} ], [ %new{n}.{r}.{c}, %terms{n} ]")
        sums = {(r, c): f"%sum{n}.{r}.{c}" for r, c in self.cells}
        self._between(sums, behind)
        self._store(sums)

    def _word(self, at: str, number: int) -> str:
        return self.out.new(f"load i64, ptr {self.out.new(f'getelementptr i64, ptr {at}, i64 {number}')}")

    def _vector(self, at: str, number: str | int) -> str:
        return self.out.new(f"getelementptr {self.kind.name}, ptr {at}, i64 {number}")

    def _load(self, at: str) -> str:
        return self.out.new(f"load {self.kind.name}, ptr {at}, align {self.kind.bytes}")

    def _entry_at(self, at: str, number: str | int) -> str:
        return self.out.new(f"getelementptr {self.entry.name}, ptr {at}, i64 {number}")

    def _entry(self, at: str) -> str:
        """An entry of V or D, in all columns."""
        value = self.out.new(f"load {self.entry.name}, ptr {at}, align {self.entry.bytes}")
        return value if self.entry is self.kind else spread(self.out, self.kind.scalar, self.kind.width, value)

    def _fma(self, a: str, b: str, c: str) -> str:
        T = self.kind.name
        return f"call {T} @llvm.fmuladd.{self.kind.suffix}({T} {a}, {T} {b}, {T} {c})"

    def _begin(self) -> dict[tuple[int, int], str]:
        """What sums begin with."""
        begin = {}
        d_at = "" if self.up else self._entry_at("%D", "%row")
        for r in range(self.rows):
            scale = "" if self.up else self.out.new(f"fmul {self.kind.name} {self._entry(self._entry_at(d_at, r))}, %s")
            for c in range(self.width):
                x = self._load(self._vector(self.lines[r], c))
                begin[r, c] = x if self.up else self.out.new(f"fmul {self.kind.name} {x}, {scale}")
        return begin

    def _terms(self, first: str, begin: dict[tuple[int, int], str], heads: list[str]) -> None:
        """The loop over what all rows of the panel have in common."""
        out, n, T = self.out, self.rows, self.kind.name
        out.lines.append(f"terms{n}:")
        out.do(f"%at{n} = phi ptr [ {first}, %panel{n} ], [ %at.next{n}, %terms{n} ]")
        out.do(f"%off{n} = phi i64 [ 0, %panel{n} ], [ %off.next{n}, %terms{n} ]")
        for (r, c), value in begin.items():
            out.do(f"%acc{n}.{r}.{c} = phi {T} [ {value}, %panel{n} ], [ %new{n}.{r}.{c}, %terms{n} ]")
        row = out.new(f"mul i64 {self._word(f'%at{n}', 0)}, %line")
        if self.up:
            head = self._entry_at("%V", self._word(f"%at{n}", 1))
            entries = [self._entry(self._entry_at(head, r)) for r in range(n)]
        else:
            entries = [self._entry(out.new(f"getelementptr i8, ptr {head}, i64 %off{n}")) for head in heads]
        y = self._vector("%X", row)
        for c in range(self.width):
            value = self._load(self._vector(y, c))
            for r in range(n):
                out.do(f"%new{n}.{r}.{c} = {self._fma(entries[r], value, f'%acc{n}.{r}.{c}')}")
        out.do(f"%at.next{n} = getelementptr i64, ptr %at{n}, i64 {2 if self.up else 1}")
        out.do(f"%off.next{n} = add i64 %off{n}, {self.entry.bytes}")
        more = out.new(f"icmp ult ptr %at.next{n}, %end{n}")
        out.do(f"br i1 {more}, label %terms{n}, label %sums{n}")

    def _between(self, sums: dict[tuple[int, int], str], behind: list[str]) -> None:
        """What a panel's rows give one another: its last entries."""
        order = range(self.rows)
        pairs = [(r, k) for r in order for k in range(r)]
        for low, high in sorted(pairs, key=lambda pair: (-pair[1], -pair[0])) if self.up else pairs:
            entry = self._entry(self._entry_at(self._entry_at("%V", behind[low]), high))
            to, of = (high, low) if self.up else (low, high)
            for c in range(self.width):
                sums[to, c] = self.out.new(self._fma(entry, sums[of, c], sums[to, c]))

    def _store(self, sums: dict[tuple[int, int], str]) -> None:
        out, n = self.out, self.rows
        out.do(f"br label %stored{n}")
        out.lines.append(f"stored{n}:")
        for r, c in self.cells:
            place = self._vector(self.lines[r], c)
            out.do(f"store {self.kind.name} {sums[r, c]}, ptr {place}, align {self.kind.bytes}")
        out.do("br label %next")
