"""Expressions of C."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from robodyn.compile.loops.blocks import Number, Pointer, Struct, Type, Unknown
from robodyn.compile.loops.language import Operator

ATOM, PREFIX, AND, OR, CHOICE = 15, 14, 5, 4, 3
_SCALARS = {"i1": "bool", "i8": "signed char", "i32": "int", "i64": "long long", "float": "float", "double": "double"}


def c_type(kind: Type | None, read: bool = False) -> str:
    """A type in C. `read`: True for an address whose contents are only read (const)."""
    if kind is None:
        return "void"
    if isinstance(kind, Pointer):
        return f"{'const ' if read else ''}{'char' if kind.to is None else c_type(kind.to)}*"
    if isinstance(kind, Struct):
        return kind.name
    assert isinstance(kind, Number)
    return _SCALARS[kind.scalar]  # of a vector, the element of one lane


def lanes(kind: Any) -> int:
    """The number of elements of a vector, which are spread over the lanes of a warp; 1 for other types."""
    return kind.width if isinstance(kind, Number) else 1


def moved(places: str, level: int, kind: Any) -> str:
    """A number of values of a type as a number of scalars. `places`: an expression of C with that precedence."""
    if lanes(kind) == 1:
        return places
    if re.fullmatch(r"-?\d+", places):
        return str(int(places) * kind.width)
    return f"{places if level >= 13 else f'({places})'} * {kind.width}"


LANE = "(int)threadIdx.x % 32"
"""The lane of this thread, whose warp shares a vector."""


class Term(Unknown):
    """An expression of C: its text, its type and its precedence `level`. `read`: True for an address whose contents are
    only read. `fixed`: True for a name that cannot be assigned, such as that of an array. `unsigned`: the expression as
    an unsigned one, if it is never negative."""

    __slots__ = ("fixed", "level", "read", "text", "type", "unsigned")

    def __init__(
        self,
        text: str,
        type: Number | Pointer | None,
        level: int = ATOM,
        read: bool = False,
        fixed: bool = False,
        unsigned: str = "",
    ) -> None:
        self.text, self.type, self.level = text, type, level
        self.read, self.fixed, self.unsigned = read, fixed, unsigned

    def at(self, level: int) -> str:
        """The text as an operand of an operator with this precedence, in parentheses if necessary."""
        return self.text if self.level >= level else f"({self.text})"

    @property
    def number(self) -> Number:
        """Its type, which must be a number."""
        assert isinstance(self.type, Number), f"{self.text} is no number"
        return self.type

    @property
    def pointed(self) -> Number | Pointer | Struct:
        """The type of the contents of an address."""
        assert isinstance(self.type, Pointer) and self.type.to is not None, f"{self.text}: an address of what?"
        return self.type.to


class Printed(Operator):
    """A function whose C text is written by hand: its name, the text that must precede it, and the type of its
    result."""

    name = needs = ""
    result: Number | None = None

    def read(self, reader: Any, *arguments: Any, **named: Any) -> Term:
        """Print a call."""
        key = "printed", self, *((each.type, each.read) if isinstance(each, Term) else each for each in arguments)
        name = reader.module.printed(key, self, arguments)
        return Term(f"{name}({', '.join(each.text for each in arguments if isinstance(each, Term))})", self.result)

    def definition(self, name: str, arguments: Sequence[Term | Any]) -> str:
        """The C definition for these arguments. Known arguments are not passed."""
        raise NotImplementedError


def is_address(value: Any) -> bool:
    """Whether an expression or a type is that of an address."""
    return isinstance(value.type if isinstance(value, Term) else value, Pointer)


def has_terms(value: Any) -> bool:
    """Whether a value is, or contains, an expression of C."""
    if isinstance(value, dict):
        return has_terms(list(value.values()))
    return any(map(has_terms, value)) if isinstance(value, (list, tuple)) else isinstance(value, Term)
