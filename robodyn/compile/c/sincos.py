"""Sine and cosine as a CUDA device function, with the polynomials and constants of `robodyn.compile.llvm.sincos`.

CUDA's own functions add a branch, a loop and memory for huge angles at every call. Without them a kernel is one block
of code and needs no stack. Engines also agree: angles too large to be reduced give NaN in all of them.
"""

from __future__ import annotations

from robodyn.compile.c.body import Dialect
from robodyn.compile.llvm.sincos import FORMATS, TWO_OVER_PI

NAME = "robodyn_sincos"


def text(scalar: str) -> str:
    """The text of `void robodyn_sincos(x, sine, cosine)` for "float" or "double". It calls functions of <math.h> and no
    macros."""
    form, f = FORMATS[scalar], Dialect(scalar).suffix
    number = Dialect(scalar).number

    def polynomial(coefficients: tuple[float, ...]) -> str:
        text = number(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            text = f"({text} * z + {number(coefficient)})"
        return text

    first, second, third = (number(part) for part in form.parts)
    # Adding +0 turns n = -0 into +0, which keeps the sign of a zero x.
    return f"""\
__device__ __forceinline__ void {NAME}({scalar} x, {scalar}* sine, {scalar}* cosine)
{{
    const bool small = fabs{f}(x) <= {number(form.limit)};
    const {scalar} n = rint{f}(small ? x * {number(TWO_OVER_PI)} : {number(0.0)}) + {number(0.0)};
    const {scalar} r = small ? fma{f}(n, -{second}, fma{f}(n, -{first}, x)) : nan{f}("");
    const {scalar} z = r * r;
    const {scalar} s = r - (r * z * {polynomial(form.sine)} + n * {third});
    const {scalar} c = z * {polynomial(form.cosine)} + {number(1.0)};
    const int turns = (int)(n - {number(4.0)} * floor{f}({number(0.25)} * n));
    const {scalar} a = turns & 1 ? c : s, b = turns & 1 ? s : c;
    *sine = turns & 2 ? -a : a;
    *cosine = turns + 1 & 2 ? -b : b;
}}
"""
