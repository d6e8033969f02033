"""What a function becomes: types, values, and blocks of operations in static single assignment form.

A block has parameters, and every jump to it gives them values, as in MLIR and SIL; they are the phi instructions of
other texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TypeAlias

from robodyn.internals.records import dataclass

BYTES = {"i1": 1, "i8": 1, "i32": 4, "i64": 8, "float": 4, "double": 8}


class Number:
    """A number, or a vector of `width` of them; `align`: bytes to which those in memory are aligned, 0: their size.

    There is one object for each type, so that types are the same where objects are; `Pointer` likewise. `name`: in
    LLVM's language; `real`: whether it is a floating-point number; `size`: bytes in memory; `alignment`: bytes to which
    it is aligned there; `value`: the type of what was loaded.
    """

    __slots__ = ("align", "alignment", "name", "real", "scalar", "size", "value", "width")
    name: str
    scalar: str
    width: int
    align: int
    real: bool
    size: int
    alignment: int
    value: Number

    def __new__(cls, scalar: str, width: int = 1, align: int = 0) -> Number:
        """The one object, also where several threads ask for it."""
        found = _NUMBERS.get((scalar, width, align))
        if found is None:
            found = object.__new__(cls)
            found.scalar, found.width, found.align = scalar, width, align
            found.real, found.size = scalar in ("float", "double"), BYTES[scalar] * width
            found.alignment = align or found.size
            found.name = scalar if width == 1 else f"<{width} x {scalar}>"
            found.value = Number(scalar, width) if align else found
            found = _NUMBERS.setdefault((scalar, width, align), found)
        return found

    def __repr__(self) -> str:
        return f"Number({self.scalar!r}, {self.width}, {self.align})"


_NUMBERS: dict[tuple[str, int, int], Number] = {}


@dataclass(eq=False)
class Struct:
    """Fields by name: bytes from the start, and the type; `size`: bytes of all."""

    name: str
    size: int
    fields: Mapping[str, tuple[int, Type]] = field(repr=False)


class Pointer:
    """An address of values of a type, or of bytes."""

    __slots__ = ("to",)
    to: Number | Struct | Pointer | None
    size = alignment = 8  # of the pointer itself
    name = "ptr"

    def __new__(cls, to: Number | Struct | Pointer | None = None) -> Pointer:
        """The one object."""
        found = _POINTERS.get(to)
        if found is None:
            found = object.__new__(cls)
            found.to = to
            found = _POINTERS.setdefault(to, found)
        return found

    def __repr__(self) -> str:
        return f"Pointer({self.to})"


_POINTERS: dict[Number | Struct | Pointer | None, Pointer] = {}


@dataclass(frozen=True)
class Fixed:
    """An array within a struct."""

    to: Number | Struct | Pointer
    count: int = 1


Type: TypeAlias = Number | Pointer | Struct | Fixed
I1, I8, I32, I64 = (Number(name) for name in ("i1", "i8", "i32", "i64"))
ADDRESS = Pointer()


class Unknown:
    """What is known only when a function runs."""

    __slots__ = ()


class Value(Unknown):
    """A value of a function: the result of an operation, a parameter of a block, or a constant."""

    __slots__ = ("constant", "key", "name", "type")

    def __init__(self, type: Number | Pointer, name: str = "", constant: float | None = None) -> None:
        self.type, self.name, self.constant = type, name, constant
        self.key = name or (type, repr(constant))  # -0.0 is not 0.0

    def __repr__(self) -> str:
        return f"<{self.type} {self.name if self.constant is None else self.constant}>"

    def __eq__(self, other: object) -> bool:
        """An address is the same whatever is there."""
        return isinstance(other, Value) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def loaded_type(at: Value) -> Number | Pointer:
    """The type of a value that is stored at an address."""
    assert isinstance(at.type, Pointer)
    to = at.type.to
    assert isinstance(to, (Number, Pointer)), f"nothing is stored as {to}"
    return to.value if isinstance(to, Number) else to


class Operation:
    """An instruction: what it is, its operands, and what else there is to know, by name; or "lines" of text."""

    __slots__ = ("code", "facts", "operands", "result")

    def __init__(
        self, code: str, operands: tuple[Value, ...], result: Value | None, facts: Mapping[str, object]
    ) -> None:
        self.code, self.operands, self.result, self.facts = code, operands, result, facts


class Edge:
    """A jump to a block; `origin`: the one that ends with it and nothing else."""

    __slots__ = ("arguments", "block", "origin")

    def __init__(self, block: Block, origin: Block | None = None) -> None:
        self.block, self.origin = block, origin
        self.arguments: list[Value] = []


class End:
    """How a block ends: `edges` to other blocks, chosen by `test` (the first if it holds, or that of the number among
    `cases`), or the function's `result`."""

    __slots__ = ("cases", "edges", "result", "test")

    def __init__(
        self,
        edges: tuple[Edge, ...] = (),
        test: Value | None = None,
        cases: tuple[int, ...] = (),
        result: Value | None = None,
    ) -> None:
        self.edges, self.test, self.cases, self.result = edges, test, cases, result


class Block:
    """Operations without a jump between them."""

    __slots__ = ("end", "name", "operations", "parameters")

    def __init__(self, name: str) -> None:
        self.name = name
        self.parameters: list[Value] = []
        self.operations: list[Operation] = []
        self.end: End | None = None


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
    given: dict[object, list[Value]] = {}
    for edge in function.edges():
        for parameter, argument in zip(edge.block.parameters, edge.arguments, strict=True):
            given.setdefault(parameter.key, []).append(argument)
    if given:
        _remove_parameters(function, given)
    _join_blocks(function)


def _remove_parameters(function: Function, given: Mapping[object, list[Value]]) -> None:
    """`given`: what jumps give to each parameter."""
    replaced: dict[object, Value] = {}

    def resolved(value: Value) -> Value:
        found = value
        while found.key in replaced:
            found = replaced[found.key]
        return found if found is value or found.type is value.type else Value(value.type, found.name, found.constant)

    known = -1
    while known != len(replaced):
        known = len(replaced)
        for key, arguments in given.items():
            if key not in replaced:
                others = {found.key: found for found in map(resolved, arguments) if found.key != key}
                if len(others) == 1:
                    (replaced[key],) = others.values()
    read, waiting = set[object](), list[object]()

    def used(value: Value) -> Value:
        found = resolved(value)
        if found.key in given and found.key not in read:
            read.add(found.key)
            waiting.append(found.key)
        return found

    for block in function.blocks:
        for operation in block.operations:
            for each in operation.operands:
                if each.key in given:
                    operation.operands = tuple(map(used, operation.operands))
                    break
        if block.end is not None:
            block.end.test = block.end.test and used(block.end.test)
            block.end.result = block.end.result and used(block.end.result)
    while waiting:
        for each in given[waiting.pop()]:
            used(each)
    for edge in function.edges():
        pairs = zip(edge.block.parameters, edge.arguments, strict=True)
        edge.arguments = [resolved(argument) for parameter, argument in pairs if parameter.key in read]
    for block in function.blocks:
        block.parameters = [each for each in block.parameters if each.key in read]


def _join_blocks(function: Function) -> None:
    """Skip empty blocks, and put those together of which one always follows the other."""
    for block in reversed(function.blocks):
        if block.end is not None:
            for edge in block.end.edges:
                edge.origin = None
                while (onward := _onward(edge.block)) is not None and _can_skip(block.end, edge, onward):
                    edge.block, edge.arguments = onward.block, onward.arguments
    entering: dict[Block, int] = {}
    reached = _reached(function)
    for block in reached:
        for edge in block.end.edges if block.end is not None else ():
            entering[edge.block] = entering.get(edge.block, 0) + 1
    gone = set[Block]()
    for block in reached:
        if block in gone:
            continue
        while block.end is not None and len(block.end.edges) == 1:
            (edge,) = block.end.edges
            other = edge.block
            if entering[other] > 1 or other.parameters or other is block:
                break
            block.operations += other.operations
            block.end = other.end
            gone.add(other)
    function.blocks = [block for block in reached if block not in gone]


def _onward(block: Block) -> Edge | None:
    """The jump of a block that does nothing else."""
    if block.operations or block.parameters or block.end is None or len(block.end.edges) != 1:
        return None
    (edge,) = block.end.edges
    return None if edge.block is block else edge


def _can_skip(end: End, edge: Edge, onward: Edge) -> bool:
    """Whether a jump may go where the next one goes: not twice from one block with different values."""
    others = [each for each in end.edges if each is not edge and each.block is onward.block]
    return all(each.arguments == onward.arguments for each in others)


def _reached(function: Function) -> list[Block]:
    """Blocks that are reached, in their order."""
    found, ahead = set[Block](), [function.blocks[0]]
    while ahead:
        block = ahead.pop()
        if block not in found:
            found.add(block)
            ahead += [edge.block for edge in block.end.edges] if block.end is not None else []
    return [block for block in function.blocks if block in found]
