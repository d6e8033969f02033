"""Vectors of states in LLVM's language: types, constants, and loading and storing the rows of arrays."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from robodyn.compile.llvm.target import Target
from robodyn.internals.records import dataclass


def literal(value: float, scalar: str) -> str:
    """A floating-point constant. LLVM writes both precisions exactly, as the bits of a double."""
    if scalar == "float":
        value = float(np.float32(value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


@dataclass(frozen=True)
class VectorType:
    """A vector of W states of one scalar; W = 1 is the scalar itself."""

    scalar: str
    width: int
    masked: bool
    """Whether the processor has masked loads and stores."""
    fused: bool
    """Whether the processor has fused multiply-add (FMA)."""

    @staticmethod
    def of(dtype: np.dtype[Any], target: Target, width: int | None = None) -> VectorType:
        """The vector type of a dtype, as wide as the target's registers unless `width` is given."""
        states = target.width(dtype) if width is None else width
        scalar = "double" if dtype.itemsize == 8 else "float"
        return VectorType(scalar, states, masked=target.level == "avx512", fused=target.level != "sse2")

    @property
    def itemsize(self) -> int:
        """Bytes of one state."""
        return 8 if self.scalar == "double" else 4

    @property
    def bytes(self) -> int:
        """Bytes of a vector."""
        return self.itemsize * self.width

    @property
    def name(self) -> str:
        """The type in LLVM's language."""
        return self.of_width(self.width)

    @property
    def suffix(self) -> str:
        """The suffix of the names of LLVM intrinsics for this type."""
        return self.suffix_of(self.width)

    def of_width(self, width: int) -> str:
        """The type of a vector of `width` states."""
        return self.scalar if width == 1 else f"<{width} x {self.scalar}>"

    def suffix_of(self, width: int) -> str:
        """The suffix of the names of intrinsics for `width` states."""
        bare = f"f{8 * self.itemsize}"
        return bare if width == 1 else f"v{width}{bare}"

    def splat(self, value: float) -> str:
        """A constant that has the same value in every state."""
        number = literal(value, self.scalar)
        return number if self.width == 1 else f"splat ({self.scalar} {number})"


class Lines:
    """The lines of a function body. `numbers` counts the names; all `Lines` of one function share it."""

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        self.lines: list[str] = []
        self.numbers = itertools.count() if numbers is None else numbers

    def fresh(self) -> str:
        """A new name."""
        return f"%v{next(self.numbers)}"

    def new(self, text: str) -> str:
        """Add an instruction and return the new name of its result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Add an instruction without a result."""
        self.lines.append(f"  {text}")


def spread(out: Lines, scalar: str, width: int, value: str) -> str:
    """Broadcast a scalar to a vector of more than one element."""
    T = f"<{width} x {scalar}>"
    one = out.new(f"insertelement {T} poison, {scalar} {value}, i32 0")
    return out.new(f"shufflevector {T} {one}, {T} poison, <{width} x i32> zeroinitializer")


def _mask(lanes: int, width: int) -> str:
    return f"<{width} x i1> <{', '.join('i1 ' + ('true' if k < lanes else 'false') for k in range(width))}>"


def _indices(numbers: Sequence[int]) -> str:
    return f"<{len(numbers)} x i32> <{', '.join('i32 ' + ('poison' if k < 0 else str(k)) for k in numbers)}>"


def _pieces(count: int) -> list[tuple[int, int]]:
    """Split `count` into powers of two, largest first: (start, size)."""
    pieces, start = [], 0
    while start < count:
        size = 1 << ((count - start).bit_length() - 1)
        pieces.append((start, size))
        start += size
    return pieces


def load_row(out: Lines, kind: VectorType, pointer: str, count: int) -> str:
    """Load the first `count` scalars at a pointer as a vector. Memory beyond them is not accessed."""
    T, W = kind.name, kind.width
    if count == W:
        return out.new(f"load {T}, ptr {pointer}, align 1")
    if kind.masked:
        mask = _mask(count, W)
        return out.new(f"call {T} @llvm.masked.load.{kind.suffix}.p0(ptr {pointer}, i32 1, {mask}, {T} poison)")
    row = "poison"
    for start, size in _pieces(count):
        at = out.new(f"getelementptr {kind.scalar}, ptr {pointer}, i64 {start}")
        part = out.new(f"load {kind.of_width(size)}, ptr {at}, align 1")
        if size == 1:
            row = out.new(f"insertelement {T} {row}, {kind.scalar} {part}, i32 {start}")
            continue
        wide = _indices([k if k < size else -1 for k in range(W)])
        part = out.new(f"shufflevector {kind.of_width(size)} {part}, {kind.of_width(size)} poison, {wide}")
        blend = _indices([W + k - start if start <= k < start + size else k if k < start else -1 for k in range(W)])
        row = out.new(f"shufflevector {T} {row}, {T} {part}, {blend}")
    return row


def store_row(out: Lines, kind: VectorType, row: str, pointer: str, count: int) -> None:
    """Store the first `count` scalars of a vector. Memory beyond them is not accessed."""
    T, W = kind.name, kind.width
    if count == W:
        out.do(f"store {T} {row}, ptr {pointer}, align 1")
        return
    if kind.masked:
        out.do(f"call void @llvm.masked.store.{kind.suffix}.p0({T} {row}, ptr {pointer}, i32 1, {_mask(count, W)})")
        return
    for start, size in _pieces(count):
        at = out.new(f"getelementptr {kind.scalar}, ptr {pointer}, i64 {start}")
        if size == 1:
            part = out.new(f"extractelement {T} {row}, i32 {start}")
        else:
            chosen = _indices(range(start, start + size))
            part = out.new(f"shufflevector {T} {row}, {T} poison, {chosen}")
        out.do(f"store {kind.of_width(size)} {part}, ptr {at}, align 1")


def transposed(out: Lines, kind: VectorType, rows: Sequence[str]) -> list[str]:
    """Transpose W vectors of W scalars in registers, in log2(W) rounds of two-operand shuffles."""
    W, T = kind.width, kind.name
    rows = list(rows)
    distance = 1
    while distance < W:
        low = _indices([k if not k & distance else W + k - distance for k in range(W)])
        high = _indices([k + distance if not k & distance else W + k for k in range(W)])
        for i in range(W):
            if not i & distance:
                a, b = rows[i], rows[i + distance]
                if a == b == "poison":
                    continue
                rows[i] = out.new(f"shufflevector {T} {a}, {T} {b}, {low}")
                rows[i + distance] = out.new(f"shufflevector {T} {a}, {T} {b}, {high}")
        distance *= 2
    return rows


def declarations(kind: VectorType) -> str:
    """Declarations of the intrinsics that the programs call."""
    T, s, W = kind.name, kind.suffix, kind.width
    lines = [
        f"declare {T} @llvm.fmuladd.{s}({T}, {T}, {T})",
        f"declare {T} @llvm.sqrt.{s}({T})",
        f"declare {T} @llvm.fabs.{s}({T})",
    ]
    if kind.masked and W > 1:
        lines += [
            f"declare {T} @llvm.masked.load.{s}.p0(ptr, i32, <{W} x i1>, {T})",
            f"declare void @llvm.masked.store.{s}.p0({T}, ptr, i32, <{W} x i1>)",
        ]
    return "\n".join(lines) + "\n"
