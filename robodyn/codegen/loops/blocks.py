"""What a function becomes: types, values, and blocks of operations in static single assignment form.

A block has parameters, and every jump to it gives them values, as in MLIR and SIL; they are the phi instructions of
other texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TypeAlias

from robodyn.records import dataclass

BYTES = {"i1": 1, "i8": 1, "i32": 4, "i64": 8, "float": 4, "double": 8}


@dataclass(frozen=True)
class Number:
    """A number, or a vector of `width` of them; `align`: bytes to which those in memory are aligned, 0: their size."""

    scalar: str
    width: int = 1
    align: int = 0

    @property
    def real(self) -> bool:
        """Whether it is a floating-point number."""
        return self.scalar in ("float", "double")

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return BYTES[self.scalar] * self.width

    @property
    def alignment(self) -> int:
        """Bytes to which it is aligned in memory."""
        return self.align or self.size

    @property
    def value(self) -> Number:
        """The type of a value that was loaded."""
        return Number(self.scalar, self.width)


@dataclass(frozen=True)
class Struct:
    """Fields by name: bytes from the start, and the type; `size`: bytes of all."""

    name: str
    size: int
    fields: Mapping[str, tuple[int, Type]] = field(compare=False)


@dataclass(frozen=True)
class Pointer:
    """An address of values of a type, or of bytes."""

    to: Number | Struct | Pointer | None = None

    @property
    def size(self) -> int:
        """Bytes of the pointer itself."""
        return 8

    @property
    def alignment(self) -> int:
        """Bytes to which pointers in memory are aligned."""
        return 8


@dataclass(frozen=True)
class Fixed:
    """An array within a struct."""

    to: Number | Struct | Pointer
    count: int = 1


Type: TypeAlias = Number | Pointer | Struct | Fixed
I1, I8, I32, I64 = (Number(name) for name in ("i1", "i8", "i32", "i64"))
ADDRESS = Pointer()


class Value:
    """A value of a function: the result of an operation, a parameter of a block, or a constant."""

    __slots__ = ("constant", "name", "type")

    def __init__(self, type: Number | Pointer, name: str = "", constant: float | None = None) -> None:
        self.type, self.name, self.constant = type, name, constant

    def __repr__(self) -> str:
        return f"<{self.type} {self.name if self.constant is None else self.constant}>"

    @property
    def _key(self) -> object:
        return self.name or (self.type, self.constant)

    def __eq__(self, other: object) -> bool:
        """An address is the same whatever is there."""
        return isinstance(other, Value) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@dataclass(eq=False)
class Operation:
    """An instruction: what it is, its operands, and what else there is to know, by name."""

    code: str
    operands: tuple[Value, ...]
    result: Value | None
    facts: Mapping[str, object]


@dataclass(eq=False)
class Edge:
    """A jump to a block; `origin`: the one that ends with it and nothing else."""

    block: Block
    arguments: list[Value] = field(default_factory=list)
    origin: Block | None = None


@dataclass(eq=False)
class End:
    """How a block ends: `edges` to other blocks, chosen by `test` (the first if it holds, or that of the case), or the
    function's `result`."""

    edges: tuple[Edge, ...] = ()
    test: Value | None = None
    cases: tuple[int, ...] = ()
    result: Value | None = None


@dataclass(eq=False)
class Block:
    """Operations without a jump between them."""

    name: str
    parameters: list[Value] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    end: End | None = None


@dataclass(eq=False)
class Function:
    """A function of a module; `public`: whether others may look it up."""

    name: str
    parameters: list[Value]
    result: Number | Pointer | None
    public: bool
    blocks: list[Block] = field(default_factory=list)

    def edges(self) -> Iterator[Edge]:
        """All jumps."""
        for block in self.blocks:
            if block.end is not None:
                yield from block.end.edges


def simplify(function: Function) -> None:
    """Remove parameters of blocks that always have one value, of what a loop does not change after all, and those that
    nobody reads."""
    replaced: dict[Value, Value] = {}

    def resolved(value: Value) -> Value:
        while value in replaced:
            value = replaced[value]
        return value

    while True:
        arguments: dict[Value, set[Value]] = {}
        for edge in function.edges():
            for parameter, argument in zip(edge.block.parameters, edge.arguments, strict=True):
                arguments.setdefault(parameter, set()).add(resolved(argument))
        found = {
            parameter: next(iter(others))
            for parameter, given in arguments.items()
            if len(others := given - {parameter}) == 1
        }
        if not found:
            break
        replaced.update(found)
        _drop(function, set(found))
    for block in function.blocks:
        for operation in block.operations:
            operation.operands = tuple(map(resolved, operation.operands))
        end = block.end
        if end is not None:
            end.test = end.test and resolved(end.test)
            end.result = end.result and resolved(end.result)
            for edge in end.edges:
                edge.arguments = list(map(resolved, edge.arguments))
    _drop(function, _unread(function))


def _unread(function: Function) -> set[Value]:
    """Parameters of blocks that only such ones depend on."""
    read: set[Value] = set()
    for block in function.blocks:
        for operation in block.operations:
            read.update(operation.operands)
        if block.end is not None:
            read.update(each for each in (block.end.test, block.end.result) if each is not None)
    more = True
    while more:
        more = False
        for edge in function.edges():
            for parameter, argument in zip(edge.block.parameters, edge.arguments, strict=True):
                if parameter in read and argument not in read:
                    read.add(argument)
                    more = True
    return {each for block in function.blocks for each in block.parameters} - read


def _drop(function: Function, parameters: set[Value]) -> None:
    for edge in function.edges():
        pairs = zip(edge.block.parameters, edge.arguments, strict=True)
        edge.arguments = [argument for parameter, argument in pairs if parameter not in parameters]
    for block in function.blocks:
        block.parameters = [each for each in block.parameters if each not in parameters]
