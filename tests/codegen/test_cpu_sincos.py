"""The vector sine and cosine of the CPU engine, against exact arithmetic on every level that this processor has."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from robodyn.compile.llvm import sincos
from robodyn.compile.llvm.jit import Code, assembly, compile_object
from robodyn.compile.llvm.target import LEVELS, Target, host_target
from robodyn.compile.llvm.vectors import Lines, VectorType, declarations
from robodyn.internals.errors import UnavailableError

Pair = tuple[np.ndarray, np.ndarray]

MAX_ULP = 2.0
LARGEST = 1e5
LARGEST_TURN = 63662
"""Largest n of the angles up to LARGEST."""
SCALE = 400
"""Fractional bits of the exact arithmetic here: angles up to 1e5 come within 2^-61 of a multiple of pi / 2."""


def _arctan_inverse(k: int) -> int:
    """arctan(1 / k), scaled."""
    total, power, n = 0, (1 << SCALE + 20) // k, 0
    while power:
        total += (-1) ** n * power // (2 * n + 1)
        power //= k * k
        n += 1
    return total >> 20


HALF_PI = 2 * (4 * _arctan_inverse(5) - _arctan_inverse(239))
"""pi / 2, scaled: Machin's formula."""


def _scaled(x: float) -> int:
    numerator, denominator = x.as_integer_ratio()
    return (numerator << SCALE) // denominator


def _remainder(x: float) -> tuple[int, int]:
    """n and x - n pi / 2, scaled."""
    n = (2 * _scaled(x) + HALF_PI) // (2 * HALF_PI)
    return n, _scaled(x) - n * HALF_PI


def _series(r: int, term: int, k: int) -> int:
    """The Taylor series of the sine or the cosine from its first term on, of degree k."""
    total, square = 0, r * r >> SCALE
    while term:
        total += term
        term = -(term * square >> SCALE) // ((k + 1) * (k + 2))
        k += 2
    return total


def exact_sincos(x: float) -> tuple[Fraction, Fraction]:
    """sin x and cos x to a hundred digits."""
    n, r = _remainder(x)
    s, c = _series(r, r, 1), _series(r, 1 << SCALE, 0)
    s, c = ((s, c), (c, -s), (-s, -c), (-c, s))[n % 4]
    return Fraction(s, 1 << SCALE), Fraction(c, 1 << SCALE)


def extended_sincos(x: np.ndarray) -> Pair:
    """sin x and cos x in extended precision, reduced by parts of pi / 2 whose products with n are exact."""
    bits = np.finfo(np.longdouble).nmant + 1 - LARGEST_TURN.bit_length()
    long_x, rest, parts = x.astype(np.longdouble), HALF_PI, []
    for _ in range(3):
        shift = max(0, rest.bit_length() - bits)
        high, low = divmod(rest >> shift, 1 << 40)
        parts.append(np.ldexp(np.longdouble(high) * 2**40 + np.longdouble(low), shift - SCALE))
        rest -= rest >> shift << shift
    n = np.rint(long_x / (parts[0] + parts[1]))
    r = ((long_x - n * parts[0]) - n * parts[1]) - n * parts[2]
    turn, s, c = n.astype(np.int64) & 3, np.sin(r), np.cos(r)
    return np.choose(turn, [s, c, -s, -c]), np.choose(turn, [c, -s, -c, s])


def ulps(got: np.ndarray, wanted: np.ndarray) -> float:
    """Largest error in units in the last place of what is wanted; NaN counts as infinite."""
    limits = np.finfo(got.dtype)
    unit = np.ldexp(np.ones_like(wanted), np.maximum(np.frexp(wanted)[1] - 1, limits.minexp) - limits.nmant)
    error = float((np.abs(got - wanted) / unit).max())
    return math.inf if math.isnan(error) else error


@cache
def hard_angles(dtype: str) -> tuple[float, ...]:
    """The 250 angles below 1e5 nearest to a multiple of pi / 2, and one in 300 of those next in line, negative."""
    scalar = np.dtype(dtype).type
    near = [float(scalar(n * HALF_PI / (1 << SCALE))) for n in range(1, LARGEST_TURN + 1)]
    near.sort(key=lambda x: abs(_remainder(x)[1]))
    return tuple(near[:250] + [-x for x in near[250::300]])


def kernel_text(target: Target, kind: VectorType, fused: bool) -> str:
    """A module: sines and cosines of `count` angles, a multiple of the width."""
    out, T = Lines(), kind.name
    lines, sine, cosine = sincos.sincos_lines("%x", kind, out.fresh, fused=fused)
    body, bits = "\n".join(lines), 8 * target.vector_bytes
    pointers = "\n".join(f"  %at_{a} = getelementptr {kind.scalar}, ptr %{a}, i64 %i" for a in ("angles", "s", "c"))
    return f"""{declarations(kind)}{sincos.declarations(kind)}
define void @kernel(ptr %angles, ptr %s, ptr %c, i64 %count) #0 {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{pointers}
  %x = load {T}, ptr %at_angles, align {kind.itemsize}
{body}
  store {T} {sine}, ptr %at_s, align {kind.itemsize}
  store {T} {cosine}, ptr %at_c, align {kind.itemsize}
  %next = add i64 %i, {kind.width}
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}}
attributes #0 = {{ nounwind "min-legal-vector-width"="{bits}" "prefer-vector-width"="{bits}" }}
"""


def target_of(level: str) -> Target:
    """The target of a level, or a skip where this processor lacks it."""
    try:
        return host_target(level)
    except UnavailableError as error:
        pytest.skip(str(error))


@cache
def compiled(target: Target, dtype: str, width: int | None, fused: bool) -> Callable[[np.ndarray], Pair]:
    """Sine and cosine of an array, `width` at a time."""
    kind = VectorType.of(np.dtype(dtype), target, width)
    code = Code(compile_object(kernel_text(target, kind, fused), target, 1), target)
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    function = signature(code.address("kernel"))

    def run(x: np.ndarray) -> Pair:
        padded = np.append(x, np.zeros(-x.size % kind.width)).astype(dtype)
        sine, cosine = np.full_like(padded, np.nan), np.full_like(padded, np.nan)
        function(padded.ctypes.data, sine.ctypes.data, cosine.ctypes.data, padded.size)
        return sine[: x.size], cosine[: x.size]

    run.code = code  # type: ignore[attr-defined]  # the machine code lives as long as what calls it
    return run


# (level, width or None for that of the registers, whether operations are fused): fused ones are a call of the C
# library each on sse2, so nothing asks for them there.
_KERNELS = [(level, width, level != "sse2") for level in LEVELS for width in (None, 1)]
_KERNELS += [(level, None, False) for level in LEVELS if level != "sse2"]


@pytest.fixture(params=_KERNELS, ids=lambda k: f"{k[0]}-{k[1] or 'wide'}-{'fused' if k[2] else 'unfused'}")
def kernel_of(request: pytest.FixtureRequest) -> Callable[[str], Callable[[np.ndarray], Pair]]:
    """Makes the kernel of a dtype for each kind of code."""
    level, width, fused = request.param
    target = target_of(level)
    return lambda dtype: compiled(target, dtype, width, fused)


@cache
def random_angles(dtype: str, seed: int = 7) -> np.ndarray:
    """Angles of all scales up to 1e5, and those next to multiples of pi / 4 and to results that are powers of two."""
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    count = 30000
    multiples = rng.integers(-LARGEST_TURN + 1, LARGEST_TURN, count) * (math.pi / 2)
    angles = (
        rng.uniform(-LARGEST, LARGEST, count),
        rng.uniform(-math.pi, math.pi, count),
        rng.choice([-1.0, 1.0], count) * LARGEST ** rng.uniform(-2, 1, count),
        multiples + math.pi / 4 + rng.uniform(-1e-3, 1e-3, count),
        multiples + 2.0 ** -rng.integers(1, 20, count) * rng.uniform(1, 1.01, count),
        [LARGEST, -LARGEST, np.nextafter(np.dtype(dtype).type(LARGEST), 0)],
    )
    return np.concatenate(angles).astype(dtype)


@cache
def random_results(dtype: str) -> Pair:
    """Sines and cosines of the random angles."""
    return extended_sincos(random_angles(dtype))


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no extended precision here to compare with")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_random_angles(kernel_of, dtype):
    for name, got, wanted in zip(
        ("sine", "cosine"), kernel_of(dtype)(random_angles(dtype)), random_results(dtype), strict=True
    ):
        error = ulps(got, wanted)
        print(f"{dtype} {name}: {error:.3f} ulp")
        assert error < MAX_ULP, name
        assert np.abs(got).max() <= 1


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_angles_nearest_to_multiples_of_half_pi(kernel_of, dtype):
    angles = np.array(hard_angles(dtype), dtype)
    worst = Fraction(0)
    limits = np.finfo(dtype)
    for x, *pair in zip(angles, *kernel_of(dtype)(angles), strict=True):
        for got, wanted in zip(pair, exact_sincos(float(x)), strict=True):
            unit = Fraction(2) ** (math.frexp(float(wanted))[1] - 1 - limits.nmant)
            worst = max(worst, abs(Fraction(float(got)) - wanted) / unit)
    print(f"{dtype}: {float(worst):.3f} ulp")
    assert worst < MAX_ULP


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tiny_angles_are_their_own_sines(kernel_of, dtype):
    limits = np.finfo(dtype)
    exponents = np.arange(limits.minexp - limits.nmant, -limits.nmant // 2 - 2)
    powers = np.ldexp(np.ones(len(exponents), dtype), exponents)
    angles = np.concatenate([powers, 1.25 * powers, [0.0, limits.smallest_subnormal, limits.tiny]]).astype(dtype)
    for x in (angles, -angles):
        sine, cosine = kernel_of(dtype)(x)
        np.testing.assert_array_equal(sine, x)
        np.testing.assert_array_equal(np.signbit(sine), np.signbit(x))
        np.testing.assert_array_equal(cosine, 1)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_infinity_and_nan_give_nan_in_their_place(kernel_of, dtype):
    x = np.array([0.5, np.nan, 0.5, np.inf, -np.inf, 0.5, -np.nan, 0.5], dtype)
    for got, one in zip(kernel_of(dtype)(x), (math.sin(0.5), math.cos(0.5)), strict=True):
        np.testing.assert_array_equal(np.isnan(got), ~np.isfinite(x))
        np.testing.assert_allclose(got[np.isfinite(x)], one, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_larger_angles_degrade_gracefully(kernel_of, dtype):
    """Wrong by no more than some spacings of the angle, and NaN where they are too wide for any digit."""
    rng = np.random.default_rng(11)
    limits = np.finfo(dtype)
    exponents = rng.uniform(17, limits.maxexp - 1e-6, 50000)
    x = (rng.choice([-1.0, 1.0], exponents.size) * 2.0**exponents).astype(dtype)
    borders = np.array([2.0**21, 2.0**50], dtype)
    x = np.concatenate([x, borders, -borders, np.nextafter(borders, limits.max)])
    x = np.concatenate([x, np.array([limits.max, -limits.max, 2.0**52, 2.0**100], dtype)])
    sine, cosine = kernel_of(dtype)(x)
    inside = np.abs(x) <= (2.0**50 if dtype == "float64" else 2.0**21)
    for got in (sine, cosine):
        np.testing.assert_array_equal(np.isnan(got), ~inside, "seed 11")
        assert np.abs(got[inside]).max() <= 1, "seed 11"
    for angle, s, c in zip(x[inside][:300], sine[inside][:300], cosine[inside][:300], strict=True):
        wanted = exact_sincos(float(angle))
        allowed = 2 * limits.eps + np.spacing(abs(angle))
        assert abs(s - float(wanted[0])) <= allowed and abs(c - float(wanted[1])) <= allowed, (angle, "seed 11")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_width_is_the_same_function(dtype):
    target = host_target()
    x = random_angles(dtype)[::500]
    wanted = compiled(target, dtype, None, False)(x)
    for width in range(1, 17):
        got = compiled(target, dtype, width, False)(x)
        np.testing.assert_array_equal(got, wanted, err_msg=f"width {width}")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("width", [None, 1])
def test_machine_code_has_one_branch_and_no_call(level, dtype, width):
    target = target_of(level)
    kind = VectorType.of(np.dtype(dtype), target, width)
    text = assembly(kernel_text(target, kind, fused=level != "sse2"), target, 1)
    words = [line.split()[0] for line in text.splitlines() if line.startswith("\t")]
    branches = [word for word in words if word.startswith(("j", "b.", "cb", "tb")) or word in ("call", "callq", "bl")]
    assert len(branches) == 1, branches
