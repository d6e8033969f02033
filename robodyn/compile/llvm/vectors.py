"""Vectors of states in LLVM's language: types, constants, and moving rows of arrays into and out of them."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from robodyn.compile.llvm.target import Target
from robodyn.internals.records import dataclass


def literal(value: float, scalar: str) -> str:
    """A floating-point constant, exactly: LLVM writes both precisions as the bits of a double."""
    if scalar == "float":
        value = float(np.float32(value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


@dataclass(frozen=True)
class VectorType:
    """W states of one scalar; W = 1 is the scalar itself."""

    scalar: str
    width: int
    masked: bool
    """Whether the processor loads and stores parts of a vector by a mask."""
    fused: bool
    """Whether it multiplies and adds in one instruction."""

    @staticmethod
    def of(dtype: np.dtype[Any], target: Target, width: int | None = None) -> VectorType:
        """The vector type of a dtype, as wide as the target's registers unless told otherwise."""
        chosen = target.width(dtype) if width is None else width
        scalar = "double" if dtype.itemsize == 8 else "float"
        return VectorType(scalar, chosen, masked=target.level == "avx512", fused=target.level != "sse2")

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
        """What LLVM appends to the names of intrinsics on this type."""
        return self.suffix_of(self.width)

    def of_width(self, width: int) -> str:
        """The type of `width` states."""
        return self.scalar if width == 1 else f"<{width} x {self.scalar}>"

    def suffix_of(self, width: int) -> str:
        """The intrinsics' suffix of `width` states."""
        bare = f"f{8 * self.itemsize}"
        return bare if width == 1 else f"v{width}{bare}"

    def splat(self, value: float) -> str:
        """A constant in every state."""
        number = literal(value, self.scalar)
        return number if self.width == 1 else f"splat ({self.scalar} {number})"


class Lines:
    """Lines of a function body, with fresh names; lines of one function share the numbers they are made of."""

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        self.lines: list[str] = []
        self.numbers = itertools.count() if numbers is None else numbers

    def fresh(self) -> str:
        """A name that nothing has yet."""
        return f"%v{next(self.numbers)}"

    def new(self, text: str) -> str:
        """Assign an instruction to a fresh name."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self.lines.append(f"  {text}")


def spread(out: Lines, scalar: str, width: int, value: str) -> str:
    """A scalar of a type in every place of a vector of more than one."""
    T = f"<{width} x {scalar}>"
    one = out.new(f"insertelement {T} poison, {scalar} {value}, i32 0")
    return out.new(f"shufflevector {T} {one}, {T} poison, <{width} x i32> zeroinitializer")


def _mask(lanes: int, width: int) -> str:
    return f"<{width} x i1> <{', '.join('i1 ' + ('true' if k < lanes else 'false') for k in range(width))}>"


def _indices(numbers: Sequence[int]) -> str:
    return f"<{len(numbers)} x i32> <{', '.join('i32 ' + ('poison' if k < 0 else str(k)) for k in numbers)}>"


def _pieces(count: int) -> list[tuple[int, int]]:
    """`count` as powers of two, largest first: (start, size)."""
    found, start = [], 0
    while start < count:
        size = 1 << ((count - start).bit_length() - 1)
        found.append((start, size))
        start += size
    return found


def load_row(out: Lines, kind: VectorType, pointer: str, count: int) -> str:
    """The first `count` scalars at a pointer, as a vector; nothing beyond them is touched."""
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
    """Store the first `count` scalars of a vector; nothing beyond them is touched."""
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
    """W vectors of W scalars, transposed in registers by log2(W) rounds of two-operand shuffles."""
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
    """Declarations of the intrinsics that programs call."""
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
