"""Sine and cosine of a vector in LLVM's language, without branches, calls or tables.

    n = round(2 x / pi),  r = x - n pi / 2,  S = r - r^3 P(r^2),  C = 1 + r^2 Q(r^2)

(sin x, cos x) is (S, C), (C, -S), (-S, -C), (-C, S) for n = 0, 1, 2, 3 (mod 4). Both are within 2 units in the last
place for |x| <= 1e5. For larger angles the error grows with the spacing of floating-point numbers. Angles above 2^50
(float64) or 2^21 (float32), where the spacing is a quarter, give NaN, as do NaN and infinity. The sign of zero is kept.

P and Q are minimax polynomials on |r| <= pi / 4. Their coefficients were rounded one by one, and the remaining ones
fitted again each time. The fit of Q allows its largest errors at small r, where rounding errors are smallest; this
saves a term.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from robodyn.compile.llvm.vectors import VectorType
from robodyn.internals.records import dataclass


@dataclass(frozen=True)
class _Format:
    """The constants that depend on the precision."""

    bits: int
    magic: float
    """Adding it rounds a number to an integer and puts that integer into the lowest bits."""
    limit: float
    """The result is NaN for larger angles: their remainder modulo pi / 2 is not known."""
    parts: tuple[float, float, float]
    """Three numbers whose sum is pi / 2. Each is truncated, not rounded: all parts are positive, which keeps the sign
    of zero."""
    sine: tuple[float, ...]
    """Coefficients of P, constant term first."""
    cosine: tuple[float, ...]
    """Coefficients of Q, constant term first."""


FORMATS = {
    # n <= 63662 has 16 bits and the first two parts have at most 37: their products with n are exact even without FMA.
    "double": _Format(
        bits=64,
        magic=1.5 * 2.0**52,
        limit=2.0**50,
        parts=(
            float.fromhex("0x1.921fb54440000p+0"),
            float.fromhex("0x1.68c234c4c0000p-39"),
            float.fromhex("0x1.98a2e03707344p-77"),
        ),
        sine=(
            float.fromhex("0x1.5555555555548p-3"),
            float.fromhex("-0x1.111111110f730p-7"),
            float.fromhex("0x1.a01a019be9217p-13"),
            float.fromhex("-0x1.71de35552b51bp-19"),
            float.fromhex("0x1.ae5e4b83e1caep-26"),
            float.fromhex("-0x1.5d8b5592ff6e9p-33"),
        ),
        cosine=(
            float.fromhex("-0x1.fffffffffff85p-2"),
            float.fromhex("0x1.555555554e478p-5"),
            float.fromhex("-0x1.6c16c16357eb1p-10"),
            float.fromhex("0x1.a019f78d328b6p-16"),
            float.fromhex("-0x1.27df1193770bdp-22"),
            float.fromhex("0x1.1b7d4c8886fe0p-29"),
        ),
    ),
    # Exact products would need six shorter parts. With FMA, three parts of 24 bits suffice.
    "float": _Format(
        bits=32,
        magic=1.5 * 2.0**23,
        limit=2.0**21,
        parts=(float.fromhex("0x1.921fb4p+0"), float.fromhex("0x1.4442d0p-24"), float.fromhex("0x1.846988p-48")),
        sine=(float.fromhex("0x1.555544p-3"), float.fromhex("-0x1.1106c6p-7"), float.fromhex("0x1.991c26p-13")),
        cosine=(float.fromhex("-0x1.ffffa8p-2"), float.fromhex("0x1.553cc2p-5"), float.fromhex("-0x1.640c32p-10")),
    ),
}
"""By the name of the scalar type in LLVM's language and in C. The GPU engine uses the same numbers."""
TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
_WIDE_PARTS = (float.fromhex("0x1.921fb54440000p+0"), float.fromhex("0x1.68c234c4c6628p-39"))
"""pi / 2 as a sum of two numbers, for float32 angles that are reduced in float64."""


class _Body:
    """Writes instructions for one vector type."""

    def __init__(self, kind: VectorType, fresh: Callable[[], str]) -> None:
        self.kind, self.fresh, self.format = kind, fresh, FORMATS[kind.scalar]
        self.integers = f"<{kind.width} x i{self.format.bits}>"
        self.lines: list[str] = []

    def new(self, text: str) -> str:
        """Add an instruction and return the new name of its result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def value(self, x: str | float) -> str:
        """A name unchanged; a number as a constant vector."""
        return x if isinstance(x, str) else self.kind.splat(x)

    def real(self, operation: str, x: str, y: str | float) -> str:
        """A floating-point operation on two values."""
        return self.new(f"{operation} {self.kind.name} {x}, {self.value(y)}")

    def fma(self, x: str, y: str | float, z: str | float, intrinsic: str = "fmuladd") -> str:
        """x y + z."""
        T = self.kind.name
        operands = ", ".join(f"{T} {self.value(operand)}" for operand in (x, y, z))
        return self.new(f"call {T} @llvm.{intrinsic}.{self.kind.suffix}({operands})")

    def select(self, condition: str, x: str, y: str | float) -> str:
        """x in states where the condition holds, y elsewhere."""
        T = self.kind.name
        return self.new(f"select <{self.kind.width} x i1> {condition}, {T} {x}, {T} {self.value(y)}")

    def integer(self, operation: str, x: str, y: str | int) -> str:
        """An integer operation on the bits of two values, or of a value and a number."""
        number = y if isinstance(y, str) else f"splat (i{self.format.bits} {y})"
        return self.new(f"{operation} {self.integers} {x}, {number}")

    def polynomial(self, z: str, coefficients: tuple[float, ...]) -> str:
        """Horner's rule, which needs the fewest operations. Its latency is hidden because other angles are computed in
        between."""
        value = self.fma(z, coefficients[-1], coefficients[-2])
        for coefficient in coefficients[-3::-1]:
            value = self.fma(z, value, coefficient)
        return value


def _reduced(out: _Body, x: str, n: str, fused: bool) -> tuple[str, str | float]:
    """x - n pi / 2 as a difference r - low."""
    kind, form = out.kind, out.format
    small = out.new(f"call {kind.name} @llvm.fabs.{kind.suffix}({kind.name} {x})")
    small = out.new(f"fcmp ole {kind.name} {small}, {kind.splat(form.limit)}")
    if kind.scalar == "double" or fused:
        first, second, third = form.parts
        intrinsic = "fmuladd" if kind.scalar == "double" else "fma"
        r = out.fma(n, -second, out.fma(n, -first, x, intrinsic), intrinsic)
        low: str | float = out.real("fmul", n, third)
    else:
        wide = _Body(replace(kind, scalar="double"), out.fresh)
        r, turns = (wide.new(f"fpext {kind.name} {name} to {wide.kind.name}") for name in (x, n))
        for part in _WIDE_PARTS:
            r = wide.fma(turns, -part, r)
        out.lines += wide.lines
        r, low = out.new(f"fptrunc {wide.kind.name} {r} to {kind.name}"), 0.0
    return out.select(small, r, math.nan), low  # infinity and NaN are not small either


def _turned(out: _Body, shifted: str, s: str, c: str) -> tuple[str, str]:
    """Swap S and C and set their signs, according to the two lowest bits of n."""
    T, top = out.kind.name, out.format.bits - 1
    turns = out.new(f"bitcast {T} {shifted} to {out.integers}")
    odd = out.integer("shl", turns, top)
    sine_sign = out.integer("and", out.integer("shl", turns, top - 1), -(1 << top))
    cosine_sign = out.integer("xor", sine_sign, odd)
    # Comparing with zero is free where blend instructions select by the sign bit (AVX2).
    swap = out.integer("icmp slt", odd, 0)

    def signed(value: str, sign: str) -> str:
        bits = out.integer("xor", out.new(f"bitcast {T} {value} to {out.integers}"), sign)
        return out.new(f"bitcast {out.integers} {bits} to {T}")

    return signed(out.select(swap, c, s), sine_sign), signed(out.select(swap, s, c), cosine_sign)


def _register(kind: VectorType) -> VectorType:
    """A vector type of 16 bytes in place of a scalar; the scalar is computed in its first element.

    Scalars are in vector registers anyway, so this is free. LLVM would turn a select between scalars into a branch.
    """
    return replace(kind, width=16 // kind.itemsize) if kind.width == 1 else kind


def declarations(kind: VectorType) -> str:
    """Declarations of the intrinsics that `sincos_lines` calls, except those of `vectors.declarations(kind)`."""
    T = _register(kind)
    missing = [(T, "fma", 3), (replace(T, scalar="double"), "fmuladd", 3)] if kind.scalar == "float" else []
    if kind.width == 1:
        missing += [(T, "fmuladd", 3), (T, "fabs", 1)]
    return "".join(
        f"declare {t.name} @llvm.{name}.{t.suffix}({', '.join([t.name] * operands)})\n" for t, name, operands in missing
    )


def sincos_lines(
    x: str, kind: VectorType, fresh: Callable[[], str], *, fused: bool = False
) -> tuple[list[str], str, str]:
    """Instructions that compute the sine and the cosine of every state of a vector.

    Args:
        x: name of the angles (rad).
        kind: their type; a width of 1 is the scalar itself.
        fresh: returns a new name.
        fused: True if the processor has FMA. float32 angles are then reduced without float64; on a processor without
            FMA,
            LLVM would call the C library for each fused operation. float64 is not affected.

    Returns:
        The lines, the name of the sine and the name of the cosine.
    """
    out = _Body(_register(kind), fresh)
    T, form = out.kind.name, out.format
    if kind.width == 1:
        x = out.new(f"insertelement {T} zeroinitializer, {kind.name} {x}, i32 0")
    shifted = out.fma(x, TWO_OVER_PI, form.magic)
    r, low = _reduced(out, x, out.real("fsub", shifted, form.magic), fused)
    z = out.real("fmul", r, r)
    # Only the leading term of the sine needs `low`, which is far below a unit in the last place of r unless r is tiny.
    # The sum of -0 and a zero `low` is +0, and subtracting +0 from r keeps the sign of a zero r.
    s = out.real("fsub", r, out.fma(out.real("fmul", r, z), out.polynomial(z, form.sine), low))
    c = out.fma(z, out.polynomial(z, form.cosine), 1.0)
    sine, cosine = _turned(out, shifted, s, c)
    if kind.width == 1:
        sine, cosine = (out.new(f"extractelement {T} {name}, i32 0") for name in (sine, cosine))
    return out.lines, sine, cosine
