"""The intermediate representation of a function: types, values, and blocks of operations in static single assignment
(SSA) form.

A block has parameters, and every jump to it passes arguments for them, as in MLIR and SIL. LLVM's phi instructions are
equivalent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TypeAlias

from robodyn.internals.records import dataclass

BYTES = {"i1": 1, "i8": 1, "i32": 4, "i64": 8, "float": 4, "double": 8}


class Number:
    """A number, or a vector of `width` numbers. `align`: alignment in memory in bytes, 0 for its size.

    Each type is a single object, so types can be compared by identity; the same holds for `Pointer`. `name`: its name
    in LLVM's language; `real`: True for floating-point numbers; `size`: bytes in memory; `alignment`: bytes to which it
    is aligned in memory; `value`: the type after loading.
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
        """The single object of this type, for all threads."""
        kind = _NUMBERS.get((scalar, width, align))
        if kind is None:
            kind = object.__new__(cls)
            kind.scalar, kind.width, kind.align = scalar, width, align
            kind.real, kind.size = scalar in ("float", "double"), BYTES[scalar] * width
            kind.alignment = align or kind.size
            kind.name = scalar if width == 1 else f"<{width} x {scalar}>"
            kind.value = Number(scalar, width) if align else kind
            kind = _NUMBERS.setdefault((scalar, width, align), kind)
        return kind

    def __repr__(self) -> str:
        return f"Number({self.scalar!r}, {self.width}, {self.align})"


_NUMBERS: dict[tuple[str, int, int], Number] = {}


@dataclass(eq=False)
class Struct:
    """A structure. `fields`: the offset in bytes and the type of each field; `size`: its size in bytes."""

    name: str
    size: int
    fields: Mapping[str, tuple[int, Type]] = field(repr=False)


class Pointer:
    """The address of values of a type, or of bytes."""

    __slots__ = ("to",)
    to: Number | Struct | Pointer | None
    size = alignment = 8  # of the pointer itself
    name = "ptr"

    def __new__(cls, to: Number | Struct | Pointer | None = None) -> Pointer:
        """The single object of this type."""
        kind = _POINTERS.get(to)
        if kind is None:
            kind = object.__new__(cls)
            kind.to = to
            kind = _POINTERS.setdefault(to, kind)
        return kind

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
    """A value that is not known when the function is printed."""

    __slots__ = ()


class Value(Unknown):
    """A value in a function: the result of an operation, a parameter of a block, or a constant."""

    __slots__ = ("constant", "key", "name", "type")

    def __init__(self, type: Number | Pointer, name: str = "", constant: float | None = None) -> None:
        self.type, self.name, self.constant = type, name, constant
        self.key = name or (type, repr(constant))  # -0.0 is not 0.0

    def __repr__(self) -> str:
        return f"<{self.type} {self.name if self.constant is None else self.constant}>"

    def __eq__(self, other: object) -> bool:
        """Addresses are equal even if the types of their contents differ."""
        return isinstance(other, Value) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def loaded_type(at: Value) -> Number | Pointer:
    """The type of the value at an address."""
    assert isinstance(at.type, Pointer)
    to = at.type.to
    assert isinstance(to, (Number, Pointer)), f"nothing is stored as {to}"
    return to.value if isinstance(to, Number) else to


class Operation:
    """An operation: its code, operands, result, and further `facts` by name. The code "lines" is a piece of LLVM
    text."""

    __slots__ = ("code", "facts", "operands", "result")

    def __init__(
        self, code: str, operands: tuple[Value, ...], result: Value | None, facts: Mapping[str, object]
    ) -> None:
        self.code, self.operands, self.result, self.facts = code, operands, result, facts


class Edge:
    """A jump to a block. `origin`: the block that ends with this jump alone."""

    __slots__ = ("arguments", "block", "origin")

    def __init__(self, block: Block, origin: Block | None = None) -> None:
        self.block, self.origin = block, origin
        self.arguments: list[Value] = []


class End:
    """The end of a block: jumps to other blocks (`edges`), or a return of `result`. `test` selects the edge: the first
    one if it is true, or the one of the number among `cases`."""

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
    """A sequence of operations without a jump."""

    __slots__ = ("end", "name", "operations", "parameters")

    def __init__(self, name: str) -> None:
        self.name = name
        self.parameters: list[Value] = []
        self.operations: list[Operation] = []
        self.end: End | None = None


@dataclass(eq=False)
class Function:
    """A function of a module. `public`: True if other code can look it up."""

    name: str
    parameters: list[Value]
    result: Number | Pointer | None
    public: bool
    blocks: list[Block] = field(default_factory=list)

    def edges(self) -> Iterator[Edge]:
        """All jumps of the function."""
        for block in self.blocks:
            if block.end is not None:
                yield from block.end.edges


def simplify(function: Function) -> None:
    """Remove block parameters that always have the same value or are never read, and join blocks."""
    arguments_of: dict[object, list[Value]] = {}
    for edge in function.edges():
        for parameter, argument in zip(edge.block.parameters, edge.arguments, strict=True):
            arguments_of.setdefault(parameter.key, []).append(argument)
    if arguments_of:
        _remove_parameters(function, arguments_of)
    _join_blocks(function)


def _remove_parameters(function: Function, given: Mapping[object, list[Value]]) -> None:
    """`given`: the arguments that jumps pass for each parameter."""
    replaced: dict[object, Value] = {}

    def resolved(value: Value) -> Value:
        target = value
        while target.key in replaced:
            target = replaced[target.key]
        return (
            target if target is value or target.type is value.type else Value(value.type, target.name, target.constant)
        )

    known = -1
    while known != len(replaced):
        known = len(replaced)
        for key, arguments in given.items():
            if key not in replaced:
                others = {one.key: one for one in map(resolved, arguments) if one.key != key}
                if len(others) == 1:
                    (replaced[key],) = others.values()
    read, waiting = set[object](), list[object]()

    def used(value: Value) -> Value:
        target = resolved(value)
        if target.key in given and target.key not in read:
            read.add(target.key)
            waiting.append(target.key)
        return target

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
    """Skip empty blocks, and merge a block with its only successor if it is that one's only predecessor."""
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
    merged = set[Block]()
    for block in reached:
        if block in merged:
            continue
        while block.end is not None and len(block.end.edges) == 1:
            (edge,) = block.end.edges
            other = edge.block
            if entering[other] > 1 or other.parameters or other is block:
                break
            block.operations += other.operations
            block.end = other.end
            merged.add(other)
    function.blocks = [block for block in reached if block not in merged]


def _onward(block: Block) -> Edge | None:
    """The jump of a block that contains nothing else."""
    if block.operations or block.parameters or block.end is None or len(block.end.edges) != 1:
        return None
    (edge,) = block.end.edges
    return None if edge.block is block else edge


def _can_skip(end: End, edge: Edge, onward: Edge) -> bool:
    """Whether a jump may go directly to the target of the next jump. Two jumps from one block to the same target must
    pass the same arguments."""
    others = [each for each in end.edges if each is not edge and each.block is onward.block]
    return all(each.arguments == onward.arguments for each in others)


def _reached(function: Function) -> list[Block]:
    """The reachable blocks, in their order."""
    seen, ahead = set[Block](), [function.blocks[0]]
    while ahead:
        block = ahead.pop()
        if block not in seen:
            seen.add(block)
            ahead += [edge.block for edge in block.end.edges] if block.end is not None else []
    return [block for block in function.blocks if block in seen]
