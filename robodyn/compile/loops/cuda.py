"""Modules of functions in C, and in CUDA C++.

Statements become statements of C, so that loops and tests stay what they are. Python's variables live as long as the
function, those of C as long as a block: what is read after a block is declared before it.

Every function that is called becomes a function of C, for each set of known parameters and of types once; compilers put
it where it is called.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from robodyn.compile.loops.blocks import Fixed, Number, Pointer, Struct, Type
from robodyn.compile.loops.c_statements import Writer
from robodyn.compile.loops.c_terms import Printed, Term, c_type
from robodyn.compile.loops.language import Routine
from robodyn.compile.loops.source import MISSING, each_part, is_static, source_of, type_named
from robodyn.internals.records import dataclass

INLINE = "static __device__ __forceinline__"
"""Of functions of a device that become parts of their callers."""


@dataclass(frozen=True)
class _Function:
    """A function of C."""

    name: str
    result: Term | tuple[Term, ...] | None


class Module:
    """Functions, each printed once.

    Args:
        types: what names of types stand for.
        device: whether it is CUDA C++ for a GPU; else it is C.
        prefix: what names of functions begin with.
    """

    def __init__(self, types: Mapping[str, Type], *, device: bool = False, prefix: str = "") -> None:
        self.types, self.device, self._prefix = types, device, prefix
        self._functions: dict[object, _Function] = {}
        self._defined: dict[object, str] = {}
        self._texts: list[str] = []
        self._names: Counter[str] = Counter()

    def export(
        self,
        routine: Routine[..., Any],
        name: str | None = None,
        read: Iterable[str] = (),
        alone: Iterable[str] = (),
        **known: Any,
    ) -> str:
        """Have a function, with what is known of its parameters, that others may call by the name that is returned; on
        a device, it becomes a part of its callers. `read` and `alone` are those of `kernel`."""
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
        """Have a kernel: its launch bounds, parameters that are addresses of what is only read, and those of memory
        that no other parameter leads to."""
        head = f'extern "C" __global__ void __launch_bounds__({bounds})'
        self._print(routine.function, self.name(name), known, _marks(read, alone), head)

    def text(self) -> str:
        """The module."""
        return "\n".join((*self._defined.values(), *self._texts))

    def name(self, wanted: str) -> str:
        """A name that nothing else has."""
        wanted = self._prefix + wanted
        self._names[wanted] += 1
        return wanted if self._names[wanted] == 1 else f"{wanted}_{self._names[wanted] - 1}"

    def printed(self, key: object, function: Printed, arguments: Sequence[Any]) -> str:
        """The name of a function that is printed by other means."""
        if key not in self._functions:
            if function.needs:
                self._defined.setdefault(function.needs, function.needs)
            self._functions[key] = _Function(self.name(function.name), None)
            self._texts.append(function.definition(self._functions[key].name, arguments))
        return self._functions[key].name

    def struct(self, kind: Struct) -> None:
        """Have a structure's definition."""
        if kind not in self._defined:
            fields = []
            for name, (_, of) in kind.fields.items():
                if isinstance(inner := of.to if isinstance(of, Fixed) else of, Struct):
                    self.struct(inner)
                fields.append(f"    {c_type(inner)} {name}{f'[{of.count}]' if isinstance(of, Fixed) else ''};\n")
            self._defined[kind] = f"typedef struct {{\n{''.join(fields)}}} {kind.name};\n"

    def called(self, function: Any, given: Mapping[str, Any]) -> _Function:
        """The function of C for arguments of which some are known."""
        key = function, *map(_fact, given.values())
        if key not in self._functions:
            inline = INLINE if self.device else "static inline"
            self._functions[key] = self._print(function, self.name(function.__name__), given, {}, inline)
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
                writer.variables[parameter] = one
            else:
                writer.variables[parameter] = each_part(parameter, annotation, source, one, part)
        writer.write(source.body)
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
    """Of parameters whether what they lead to is only read, and whether no other parameter leads there."""
    return {each: (each in read, each in alone) for each in (*read, *alone)}


def _fact(value: Any) -> object:
    if isinstance(value, Term):
        return "term", value.type, value.read
    return tuple(map(_fact, value)) if isinstance(value, (list, tuple)) else value
