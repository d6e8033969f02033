"""Places of a program's values in memory, and steps that move its arrays."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby

from robodyn.compile.tracing.expression import CONSTANT
from robodyn.compile.tracing.program import Program, is_unread
from robodyn.compile.x86.allocation import Block, Step
from robodyn.compile.x86.instructions import ARRAYS, HEADER, POOL, SPACE, VECTORS
from robodyn.compile.x86.row_writer import Layout
from robodyn.compile.x86.staging import Staging
from robodyn.internals.tuning import FETCHED_AHEAD, FEWEST_ZEROS

_LINE = 64
ADDRESS = 1
"""The word of an array of rows that is its address. The one before says how far the address moves, and offsets of its
rows follow."""
_UNREAD = -1


class ProgramMemory:
    """Where values of a program are in memory, and how its arrays are moved.

    Where a register holds one scalar, a row of one state is as good as a vector: nothing of it has to be moved.
    """

    def __init__(
        self,
        program: Program,
        vectors: frozenset[str],
        itemsize: int,
        size: int,
        *,
        fetches: bool = False,
        layout: Layout | None = None,
        spread: frozenset[str] = frozenset(),
    ) -> None:
        self.program, self.vectors, self.itemsize, self.fetches = program, vectors, itemsize, fetches
        self.layout, self.scalar = layout, size == itemsize
        self.staging = Staging(itemsize, size, self._mask, self._vector)
        self.row_words = ADDRESS + 1 + self.staging.width
        """64-bit words of an array of rows."""
        self.homes: dict[int, int] = {}
        self.stored: dict[int, list[int]] = {}
        self.blocks: list[Block] = []
        self.rows: list[int] = []
        """Numbers of the arrays of rows."""
        self.arrays: list[int] = []
        """Numbers of the arrays of vectors."""
        self.spaces: list[tuple[bool, int]] = []
        """For each space of arrays whether it is one of rows, and which one of these or of the arrays of vectors."""
        self.spread: dict[int, Sequence[int]] = {}
        """Spaces of arrays, named in `spread`, of one scalar for all states; and the values there."""
        self.zeros: list[tuple[int, int]] = []
        """First places and numbers of zeros that are written together."""
        self.constants: dict[bytes | str, int] = {}
        self.rare: dict[int | tuple[int, ...], int] = {}
        """Places of masks, by how many scalars they have, and of vectors of constants."""
        self._next = len(program.nodes)
        self.loads = self._inputs(spread)
        self.stores, self.copies = self._outputs()

    def fresh(self) -> int:
        """A value that no node is."""
        self._next += 1
        return self._next - 1

    def _space(self, array: int, name: str) -> int:
        """The first place of an array of vectors, or of rows that are as good."""
        numbers = self.arrays if name in self.vectors else self.rows
        numbers.append(array)
        self.spaces.append((numbers is self.rows, len(numbers) - 1))
        return ARRAYS + SPACE * (len(self.spaces) - 1)

    def _moved(self, name: str) -> bool:
        """Whether an array has rows to be brought into vectors or back."""
        return name not in self.vectors and not self.scalar

    def _block(self, start: int, values: tuple[int, ...], more: bool = False, fetched: tuple[int, ...] = ()) -> int:
        """A block of the last array of rows; whether these go on behind it, and what is fetched with it."""
        at = HEADER + (len(self.rows) - 1) * self.row_words + ADDRESS
        self.blocks.append(Block(at, start, values, more, fetched))
        return len(self.blocks) - 1

    def _fetched(self, start: int, end: int, size: int) -> tuple[int, ...]:
        """What is fetched with some columns of rows of a size: their part of the lines of W rows to come. The processor
        does that by itself, but stops at the end of each page. What the caches have takes a few percent longer so;
        that is why it is not done but where results are copied past these."""
        if not self.fetches:
            return ()
        span = self.staging.width * size * self.itemsize
        lines, first = -(-span // _LINE), -(-max(span, FETCHED_AHEAD) // _LINE)
        return tuple(_LINE * (first + k) for k in range(start * lines // size, end * lines // size))

    def _inputs(self, spread: frozenset[str]) -> dict[int, int]:
        """Blocks by the values that they bring."""
        found: dict[int, int] = {}
        for array, port in enumerate(self.program.inputs):
            nodes = [node if isinstance(node, int) else -1 for node in port.scalars]
            if max(nodes, default=-1) < 0:
                continue
            if not self._moved(port.name):
                start = self._space(array, port.name)
                homes = {node: start + k for k, node in enumerate(nodes) if node >= 0}
                self.homes.update(homes)
                if port.name in spread:
                    self.spread[start] = tuple(homes)
                continue
            self.rows.append(array)
            for start, count in self.staging.blocks(port.size):
                values = tuple(node if node not in found else -1 for node in nodes[start : start + count])
                if max(values) >= 0:
                    block = self._block(start, values, fetched=self._fetched(start, start + count, port.size))
                    found.update({node: block for node in values if node >= 0})
        return found

    def _outputs(self) -> tuple[list[int], list[Step]]:
        """Blocks of results, and copies to vectors of what is not computed."""
        found: list[int] = []
        others: dict[int, list[int]] = {}
        for array, port in enumerate(self.program.outputs, len(self.program.inputs)):
            values = [self._value(scalar) for scalar in port.scalars]
            if self._moved(port.name):
                self.rows.append(array)
                for start, count in self.staging.blocks(port.size):
                    more = start + count < port.size
                    found.append(self._block(start, tuple(values[start : start + count]), more))
                continue
            place = self._space(array, port.name)
            written: Sequence[int] = range(port.size)
            if self.layout is not None:
                written = self.layout.written(array - len(self.program.inputs))
                values.append(self.constant(0.0))
            elif self.scalar:
                written = self._without_zeros(values, place)
            for k in written:
                value = values[k]
                if value == _UNREAD:
                    continue
                given = value in self.homes or value in self.loads
                (others if given else self.stored).setdefault(value, []).append(place + k)
        copies: list[Step] = []
        for value, places in others.items():
            result = self.fresh()
            self.stored[result] = places
            copies.append(("copy", result, (value,)))
        return found, copies

    def _value(self, scalar: int | float) -> int:
        """What a scalar of a result is: a value that is computed or given, a constant, or nothing that is read."""
        if is_unread(scalar):
            return _UNREAD
        if not isinstance(scalar, int):
            return self.constant(scalar)
        operation, number, _ = self.program.nodes[scalar]
        return self.constant(number) if operation == CONSTANT else scalar

    def _without_zeros(self, values: Sequence[int], place: int) -> Sequence[int]:
        """Which scalars of a result are left when zeros side by side are written together."""
        zero = self.constant(0.0)
        left: list[int] = []
        for value, run in groupby(range(len(values)), key=lambda k: values[k] if values[k] == zero else -1):
            each = list(run)
            if value == zero and len(each) >= FEWEST_ZEROS:
                self.zeros.append((place + each[0], len(each)))
            else:
                left += each
        return left

    def moved(self, steps: list[Step]) -> list[Step]:
        """Steps with those that bring a block before its first value is read, and those that write one as soon as its
        values are there."""
        found: list[Step] = []
        missing: dict[int, int] = {}
        waiting: dict[int, list[int]] = {}
        loaded: set[int] = set()
        known = set(self.homes)

        def bring(values: tuple[int, ...]) -> None:
            for value in values:
                block = self.loads.get(value, -1)
                if block >= 0 and block not in loaded:
                    loaded.add(block)
                    found.append(("load", block, ()))
                    for each in self.blocks[block].values:
                        made(each)

        def made(value: int) -> None:
            known.add(value)
            for block in waiting.pop(value, ()):
                missing[block] -= 1
                if missing[block] == 0:
                    found.append(("store", block, self.blocks[block].values))

        for block in self.stores:
            values = set(self.blocks[block].values) - known
            missing[block] = len(values)
            for value in values:
                waiting.setdefault(value, []).append(block)
            if not values:
                found.append(("store", block, self.blocks[block].values))
        for step in (*steps, *self.copies):
            bring(step[2])
            found.append(step)
            made(step[1])
        for value in list(waiting):
            bring((value,))
        if self.zeros:
            found.append(("zeros", -1, ()))
        return found

    def constant(self, number: float | str) -> int:
        """The value that a constant is; numbers are told apart by their bits."""
        key = number if isinstance(number, str) else struct.pack("<d", number)
        if key not in self.constants:
            self.constants[key] = value = self.fresh()
            self.homes[value] = POOL + len(self.constants) - 1
        return self.constants[key]

    def _mask(self, count: int) -> int:
        return self.rare.setdefault(count, VECTORS + len(self.rare))

    def _vector(self, values: tuple[int, ...]) -> int:
        """Where constants are, side by side; one that is the same in all states is spread over a register."""
        if len(set(values)) == 1:
            return self.homes[values[0]]
        return self.rare.setdefault(values, VECTORS + len(self.rare))
