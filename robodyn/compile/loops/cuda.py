"""Modules of functions in C and in CUDA C++.

Python statements become C statements: loops stay loops, and tests stay tests. A variable of Python lives as long as the
function, a variable of C as long as its block. A variable that is read after a block is therefore declared before it.

Every called function becomes a C function, once for each combination of known parameters and types. Compilers inline
these functions.

In CUDA a vector may have 32 elements, each of which belongs to a lane of a warp. All lanes then do the same with the
same scalars, so each store to memory is between two barriers of the warp: behind the reads of other lanes, and before
their next ones.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from robodyn.compile.loops.blocks import Fixed, Number, Pointer, Struct, Type
from robodyn.compile.loops.c_statements import Writer
from robodyn.compile.loops.c_terms import Printed, Term, c_type, lanes
from robodyn.compile.loops.language import Routine
from robodyn.compile.loops.source import MISSING, each_part, is_static, source_of, type_named
from robodyn.internals.records import dataclass

INLINE = "static __device__ __forceinline__"
"""The qualifiers of device functions that compilers must inline."""


@dataclass(frozen=True)
class _Function:
    """A function of C. `known`: its result if it is known, so that nothing is printed."""

    name: str
    result: Term | tuple[Term, ...] | None
    known: Any = MISSING


class Module:
    """A module of functions, each printed once.

    Args:
        types: the types of type names.
        device: True for CUDA C++, False for C.
        prefix: prefix of the functions' names.
    """

    def __init__(self, types: Mapping[str, Type], *, device: bool = False, prefix: str = "") -> None:
        self.types, self.device, self._prefix = types, device, prefix
        self._inline = INLINE if device else "static inline"
        self._functions: dict[object, _Function] = {}
        self._defined: dict[object, str] = {}
        self._texts: list[str] = []
        self.by_lanes = any(lanes(kind) > 1 for kind in types.values())
        """Whether vectors are spread over lanes."""
        self._names: Counter[str] = Counter()

    def export(
        self,
        routine: Routine[..., Any],
        name: str | None = None,
        read: Iterable[str] = (),
        alone: Iterable[str] = (),
        **known: Any,
    ) -> str:
        """Print a function that other code may call, and return its name. `known`: values of parameters that are known.
        On a device the function is inlined. `read` and `alone` are those of `kernel`."""
        head, name = INLINE if self.device else "", self.name(name or routine.__name__)
        self._print(routine.function, name, known, _marks(read, alone), head)
        return name

    def kernel(
        self,
        routine: Routine[..., Any],
        name: str,
        bounds: str,
        read: Iterable[str] = (),
        alone: Iterable[str] = (),
        **known: Any,
    ) -> None:
        """Print a kernel. `bounds`: its launch bounds. `read`: address parameters whose contents are only read (const).
        `alone`: address parameters whose memory no other parameter reaches (restrict)."""
        head = f'extern "C" __global__ void __launch_bounds__({bounds})'
        self._print(routine.function, self.name(name), known, _marks(read, alone), head)

    def text(self) -> str:
        """The module's text."""
        return "\n".join((*self._defined.values(), *self._texts))

    def name(self, wanted: str) -> str:
        """A unique name."""
        wanted = self._prefix + wanted
        self._names[wanted] += 1
        return wanted if self._names[wanted] == 1 else f"{wanted}_{self._names[wanted] - 1}"

    def printed(self, key: object, function: Printed, arguments: Sequence[Any]) -> str:
        """The name of a function whose text is written by hand."""
        if key not in self._functions:
            if function.needs:
                self._defined.setdefault(function.needs, function.needs)
            self._functions[key] = _Function(self.name(function.name), None)
            self._texts.append(function.definition(self._functions[key].name, arguments))
        return self._functions[key].name

    def extreme(self, least: bool, kind: str) -> str:
        """The name of a function that returns the smaller, or the larger, of two values of a type of C."""
        key = "extreme", least, kind
        if key not in self._functions:
            self._functions[key] = _Function(self.name("smaller" if least else "larger"), None)
            name, head = self._functions[key].name, self._inline
            sign = "<" if least else ">"
            self._texts.append(f"{head} {kind} {name}({kind} a, {kind} b)\n{{\n    return a {sign} b ? a : b;\n}}\n")
        return self._functions[key].name

    def struct(self, kind: Struct) -> None:
        """Define a structure."""
        if kind not in self._defined:
            fields = []
            for name, (_, of) in kind.fields.items():
                if isinstance(inner := of.to if isinstance(of, Fixed) else of, Struct):
                    self.struct(inner)
                fields.append(f"    {c_type(inner)} {name}{f'[{of.count}]' if isinstance(of, Fixed) else ''};\n")
            self._defined[kind] = f"typedef struct {{\n{''.join(fields)}}} {kind.name};\n"

    def called(self, function: Any, given: Mapping[str, Any]) -> _Function:
        """The C function for these arguments, some of which are known."""
        key = function, *map(_fact, given.values())
        if key not in self._functions:
            self._functions[key] = self._print(function, self.name(function.__name__), given, {}, self._inline)
        return self._functions[key]

    def _print(
        self,
        function: Callable[..., Any],
        name: str,
        given: Mapping[str, Any],
        marks: Mapping[str, tuple[bool, bool]],
        head: str,
    ) -> _Function:
        source, parameters = source_of(function), list[str]()
        writer = Writer(self, source, name)

        def part(called: str, annotation: ast.expr, value: Any) -> Term:
            kind = value.type if isinstance(value, Term) else type_named(annotation, source, self.types)
            assert isinstance(kind, (Number, Pointer))
            read, alone = marks.get(called, (isinstance(value, Term) and value.read, False))
            term = Term(writer.new(called), kind, read=read)
            parameters.append(f"{c_type(kind, read)}{' __restrict__' if alone else ''} {term.text}")
            return term

        for parameter, annotation in source.parameters:
            one = given.get(parameter, MISSING)
            if is_static(annotation) or annotation is None:
                assert one is not MISSING, f"{name}: {parameter} must be known"
                writer.variables[parameter] = part(parameter, ast.Constant(None), one) if isinstance(one, Term) else one
            else:
                writer.variables[parameter] = each_part(parameter, annotation, source, one, part)
        writer.write(source.body)
        if (known := writer.known_result()) is not MISSING:
            return _Function(name, None, known)
        result, kind_name = writer.results(), "void"
        if isinstance(result, tuple):
            kind_name = f"{name}_result"
            entries = "".join(f"    {c_type(each.type, each.read)} {each.text};\n" for each in result)
            self._texts.append(f"typedef struct {{\n{entries}}} {kind_name};\n")
        elif result is not None:
            kind_name = c_type(result.type, result.read)
        start = head if "__global__" in head else f"{head} {kind_name}".lstrip()
        listed = ",\n    ".join(parameters) or "void"
        self._texts.append(f"{start} {name}(\n    {listed})\n{{\n{''.join(writer.lines)}}}\n")
        return _Function(name, result)


def _marks(read: Iterable[str], alone: Iterable[str]) -> dict[str, tuple[bool, bool]]:
    """For each parameter: whether its contents are only read, and whether no other parameter reaches its memory."""
    return {each: (each in read, each in alone) for each in (*read, *alone)}


def _fact(value: Any) -> object:
    if isinstance(value, Term):
        return "term", value.type, value.read
    return tuple(map(_fact, value)) if isinstance(value, (list, tuple)) else value
