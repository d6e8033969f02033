"""Programs as a C99 file of their own: functions of one state that need nothing but <math.h>.

The file is C++ as well. Functions keep no state and take no memory but their stack, so any thread may call them.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

from robodyn.compile.c.body import Body, Dialect
from robodyn.compile.tracing.program import Program
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import C_PART_OPERATIONS

_SCALARS = {"float64": "double", "float32": "float"}
_LONGEST_NAME = 40
_WIDTH = 100


@dataclass(frozen=True)
class Function:
    """A program as a function: its name (a C identifier), and lines about it for the comment that stands above it."""

    name: str
    program: Program
    about: Sequence[str] = ()


def identifier(text: str) -> str:
    """A C identifier like `text`: what C does not allow in one becomes an underscore, never two in a row.

    It begins with a letter, ends with a letter or digit and is at most 40 characters long. It may still be a word of
    the language, which it is no more with something behind it.
    """
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")
    if not name[:1].isalpha():
        name = f"robot_{name}"
    return name[:_LONGEST_NAME].strip("_")


def comment(lines: Sequence[str]) -> str:
    """Lines as a block comment, or nothing where there are none.

    They may hold anything: what C would read is taken apart, what is not ASCII is escaped.
    """
    safe = (line.encode("unicode_escape").decode("ascii") for line in lines)
    # A star or question mark beside what would end the comment, begin another, or make a trigraph gets a blank.
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
        part_operations: a longer program becomes several functions of n operations.

    Raises:
        ArgumentError: a constant of a program is beyond the precision.
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
    """The header that goes with `c_source` of the same arguments. The C file does not need it."""
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
    """Words that compilers spell differently; parts of a program stay apart, for as one they would compile slowly."""
    return f"""{_restrict(macros)}
#if defined(__GNUC__)
#define {macros}APART static __attribute__((noinline))
#else
#define {macros}APART static
#endif
"""


def _fused(macros: str, suffix: str) -> str:
    """A fused multiply-add where the processor has one; elsewhere it would be a slow call."""
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
    """The comment above a function: what it is about, and the shapes of its arrays."""
    ports = (*function.program.inputs, *function.program.outputs)
    shapes = ", ".join(f"{port.name}{''.join(f'[{n}]' for n in port.shape) or '[1]'}" for port in ports)
    return comment([*function.about, shapes, f"{function.program.operations} operations"])


def _definition(function: Function, macros: str, dialect: Dialect, part_operations: int) -> str:
    """The function, after the parts that it calls where it is too long for one."""
    body = Body(function.program, dialect, size=part_operations)
    parameters, parts = _parameters(function, macros, dialect.scalar), body.parts()
    ports = (*function.program.inputs, *function.program.outputs)
    head = _head(function)
    names = [port.name for port in ports]
    if len(parts) == 1:
        return head + _function(f"void {function.name}", parameters, parts[0], names)
    called = [f"{function.name}_part{k}" for k in range(len(parts))]
    handed = f"{parameters}, {dialect.scalar} *{macros}RESTRICT frame"
    pieces = [
        _function(f"{macros}APART void {name}", handed, lines, [*names, "frame"])
        for name, lines in zip(called, parts, strict=True)
    ]
    arguments = ", ".join([*names, "frame"])
    calls = [f"{dialect.scalar} frame[{max(1, body.frame_size)}];", *(f"{name}({arguments});" for name in called)]
    return "\n".join([*pieces, head + _function(f"void {function.name}", parameters, calls, [])])


def _function(start: str, parameters: str, lines: Sequence[str], names: Sequence[str]) -> str:
    """A definition; those of its parameters `names` that it does not use are mentioned, or compilers would warn."""
    text = "\n".join(lines)
    silent = [f"(void){name};" for name in names if not re.search(rf"\b{name}\[", text)]
    statements = "".join(f"    {line}\n" for line in [*lines, *silent])
    return f"{start}(\n    {parameters})\n{{\n{statements}}}\n"
