"""Prints programs as a C99 file: functions that compute one state and need only <math.h>.

The file is also valid C++. The functions have no state and allocate only stack memory, so any thread may call them.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

from robodyn.compile.c.body import Body, Dialect
from robodyn.compile.tracing.program import Program
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import quoted
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import C_PART_OPERATIONS

_SCALARS = {"float64": "double", "float32": "float"}
_LONGEST_NAME = 40
_WIDTH = 100
KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t "
        "class co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue "
        "decltype default delete do double dynamic_cast else enum explicit export extern false float for friend "
        "goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private "
        "protected public register reinterpret_cast requires restrict return short signed sizeof static "
        "static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename "
        "typeof union unsigned using virtual void volatile wchar_t while xor xor_eq",
    )
)
"""Keywords of C99 and C++."""
_MATH = frozenset(
    re.findall(
        r"\w+",
        "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh drem erf erfc exp exp10 exp2 expm1 fabs "
        "fdim finite floor fma fmax fmin fmod fpclassify frexp gamma hypot ilogb isfinite isgreater isgreaterequal "
        "isinf isless islessequal islessgreater isnan isnormal isunordered j0 j1 jn ldexp lgamma llrint llround log "
        "log10 log1p log2 logb lrint lround modf nan nearbyint nextafter nexttoward pow pow10 remainder remquo rint "
        "round scalb scalbln scalbn signbit signgam significand sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn",
    )
)
"""Functions of <math.h>, which also exist with the suffixes f and l."""


@dataclass(frozen=True)
class Function:
    """A program as a C function: its name (a C identifier), and lines for the comment above it."""

    name: str
    program: Program
    about: Sequence[str] = ()


def identifier(text: str) -> str:
    """A C identifier made from `text`: each run of other characters becomes one underscore.

    It begins with a letter, ends with a letter or digit and has at most 40 characters. It may be a keyword of C;
    callers append a suffix.
    """
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")
    if not name[:1].isalpha():
        name = f"robot_{name}"
    return name[:_LONGEST_NAME].strip("_")


def require_identifier(argument: str, given: str) -> str:
    """A name that a user gives, if it is one that `identifier` makes. `argument`: that of the name.

    Raises:
        ArgumentError: it is none.
    """
    if identifier(given) != given:
        raise ArgumentError(f"{argument}: got {quoted(given)}; wanted a C identifier, such as {identifier(given)}")
    return given


def require_unreserved(argument: str, given: str) -> str:
    """A name that a user gives to a function, if C lets a function have it.

    Raises:
        ArgumentError: it is a keyword of C or C++, or declared by <math.h>.
    """
    if given in KEYWORDS:
        raise ArgumentError(f"{argument}: got {quoted(given)}, a keyword of C or C++; wanted another name")
    if given in _MATH or (given[-1:] in ("f", "l") and given[:-1] in _MATH):
        raise ArgumentError(f"{argument}: got {quoted(given)}, a function of <math.h>; wanted another name")
    return given


def comment(lines: Sequence[str]) -> str:
    """Lines as a block comment, or nothing if there are none.

    The lines may hold any text: character sequences with a meaning in C are split, and non-ASCII characters are
    escaped.
    """
    safe = (line.encode("unicode_escape").decode("ascii") for line in lines)
    # A blank splits "*/", "/*" and "??", which would end a comment, begin a comment, or begin a trigraph.
    apart = (re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)|(?<=\?)(?=\?)", " ", line) for line in safe)
    wrapped = [part for line in apart for part in textwrap.wrap(line, _WIDTH) or [""]]
    body = "\n".join(f" * {line}".rstrip() for line in wrapped)
    return f"/*\n{body}\n */\n" if lines else ""


def c_source(
    functions: Sequence[Function],
    *,
    prefix: str,
    sizes: Mapping[str, int],
    about: Sequence[str] = (),
    dtype: str = "float64",
    part_operations: int = C_PART_OPERATIONS,
) -> str:
    """A C99 file that defines `functions`.

    Args:
        functions: each becomes `void NAME(inputs, outputs)` of pointers to contiguous arrays.
        prefix: a C identifier; names of macros begin with it in capitals.
        sizes: macros to define, such as NQ, with their values.
        about: lines of the comment at the top of the file.
        dtype: "float64" or "float32", of arguments and arithmetic.
        part_operations: programs with more operations become several functions of this many operations.

    Raises:
        ArgumentError: a constant of a program is out of range in this precision.
    """
    macros = f"{prefix.upper()}_"
    dialect = Dialect(_SCALARS[dtype], macros)
    parts = [
        comment(about),
        "#include <math.h>\n",
        _sizes(macros, sizes),
        _keywords(macros),
        _fused(macros, dialect.suffix),
        _prototypes(functions, macros, dialect.scalar),
        *(_definition(function, macros, dialect, part_operations) for function in functions),
    ]
    return "\n".join(parts)


def c_header(
    functions: Sequence[Function],
    *,
    prefix: str,
    sizes: Mapping[str, int],
    about: Sequence[str] = (),
    dtype: str = "float64",
) -> str:
    """The header for `c_source` with the same arguments. The C file does not include it."""
    macros = f"{prefix.upper()}_"
    parts = [
        comment(about),
        f"#ifndef {macros}H\n#define {macros}H\n",
        _sizes(macros, sizes),
        _restrict(macros),
        _prototypes(functions, macros, _SCALARS[dtype], commented=True),
        "#endif\n",
    ]
    return "\n".join(parts)


def _sizes(macros: str, sizes: Mapping[str, int]) -> str:
    return "".join(f"#define {macros}{name} {value}\n" for name, value in sizes.items())


def _restrict(macros: str) -> str:
    return f"""#ifndef {macros}RESTRICT
#if defined(__cplusplus) && (defined(__GNUC__) || defined(_MSC_VER))
#define {macros}RESTRICT __restrict
#elif defined(__cplusplus)
#define {macros}RESTRICT
#else
#define {macros}RESTRICT restrict
#endif
#endif
"""


def _keywords(macros: str) -> str:
    """Macros for keywords that compilers spell differently. APART prevents inlining: as one function, the parts of a
    program would compile slowly."""
    return f"""{_restrict(macros)}
#if defined(__GNUC__)
#define {macros}APART static __attribute__((noinline))
#else
#define {macros}APART static
#endif
"""


def _fused(macros: str, suffix: str) -> str:
    """Macros for multiply-add: fused if the processor has FMA, because fma() is a slow call otherwise."""
    return f"""#ifdef FP_FAST_FMA{suffix.upper()}
#define {macros}MULADD(x, y, z) fma{suffix}((x), (y), (z))
#define {macros}MULSUB(x, y, z) fma{suffix}((x), (y), -(z))
#define {macros}NMULADD(x, y, z) fma{suffix}(-(x), (y), (z))
#else
#define {macros}MULADD(x, y, z) ((x) * (y) + (z))
#define {macros}MULSUB(x, y, z) ((x) * (y) - (z))
#define {macros}NMULADD(x, y, z) ((z) - (x) * (y))
#endif
"""


def _prototypes(functions: Sequence[Function], macros: str, scalar: str, commented: bool = False) -> str:
    listed = "\n".join(
        (_head(function) if commented else "") + f"void {function.name}(\n    {_parameters(function, macros, scalar)});"
        for function in functions
    )
    return f"""#ifdef __cplusplus
extern "C" {{
#endif

{listed}

#ifdef __cplusplus
}}
#endif
"""


def _parameters(function: Function, macros: str, scalar: str) -> str:
    program = function.program
    return ",\n    ".join(
        [f"const {scalar} *{macros}RESTRICT {port.name}" for port in program.inputs]
        + [f"{scalar} *{macros}RESTRICT {port.name}" for port in program.outputs]
    )


def _head(function: Function) -> str:
    """The comment above a function: its description and the shapes of its arrays."""
    ports = (*function.program.inputs, *function.program.outputs)
    shapes = ", ".join(f"{port.name}{''.join(f'[{n}]' for n in port.shape) or '[1]'}" for port in ports)
    return comment([*function.about, shapes, f"{function.program.operations} operations"])


def _definition(function: Function, macros: str, dialect: Dialect, part_operations: int) -> str:
    """A function's definition, after those of its parts if there are several."""
    body = Body(function.program, dialect, size=part_operations)
    parameters, parts = _parameters(function, macros, dialect.scalar), body.parts()
    ports = (*function.program.inputs, *function.program.outputs)
    head = _head(function)
    names = [port.name for port in ports]
    if len(parts) == 1:
        return head + _function(f"void {function.name}", parameters, parts[0], names)
    part_names = [f"{function.name}_part{k}" for k in range(len(parts))]
    interface = f"{parameters}, {dialect.scalar} *{macros}RESTRICT frame"
    pieces = [
        _function(f"{macros}APART void {name}", interface, lines, [*names, "frame"])
        for name, lines in zip(part_names, parts, strict=True)
    ]
    arguments = ", ".join([*names, "frame"])
    calls = [f"{dialect.scalar} frame[{max(1, body.frame_size)}];", *(f"{name}({arguments});" for name in part_names)]
    return "\n".join([*pieces, head + _function(f"void {function.name}", parameters, calls, [])])


def _function(start: str, parameters: str, lines: Sequence[str], names: Sequence[str]) -> str:
    """A function definition. Unused parameters among `names` are cast to void, so that compilers do not warn."""
    text = "\n".join(lines)
    used = set(re.findall(r"(\w+)\[", text))
    casts = [f"(void){name};" for name in names if name not in used]
    statements = "".join(f"    {line}\n" for line in [*lines, *casts])
    return f"{start}(\n    {parameters})\n{{\n{statements}}}\n"
