"""Places of a program's values in memory, and the steps that load and store its arrays."""

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
"""The word of an array of rows that holds its address. The word before it holds the number of bytes by which the
address advances; the offsets of its rows follow."""
_UNREAD = -1


class ProgramMemory:
    """The places of a program's values in memory, and the loading and storing of its arrays.

    If a register holds one scalar, the row of a state is used like a vector: nothing has to be transposed.
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
        """Number of 64-bit words in the frame for an array of rows."""
        self.homes: dict[int, int] = {}
        self.stored: dict[int, list[int]] = {}
        self.blocks: list[Block] = []
        self.rows: list[int] = []
        """Numbers of the arrays of rows."""
        self.arrays: list[int] = []
        """Numbers of the arrays of vectors."""
        self.spaces: list[tuple[bool, int]] = []
        """For each space of arrays: whether its array is one of rows, and its index in `rows` or `arrays`."""
        self.spread: dict[int, Sequence[int]] = {}
        """Spaces of the arrays named in `spread`, which have one scalar for all states, and the values in each."""
        self.zeros: list[tuple[int, int]] = []
        """First places and lengths of runs of zeros."""
        self.constants: dict[bytes | str, int] = {}
        self.rare: dict[int | tuple[int, ...], int] = {}
        """Places of masks, by their number of scalars, and of vectors of constants."""
        self._next = len(program.nodes)
        self.loads = self._inputs(spread)
        self.stores, self.copies = self._outputs()

    def fresh(self) -> int:
        """A new value, which is no node of the graph."""
        self._next += 1
        return self._next - 1

    def _space(self, array: int, name: str) -> int:
        """The first place of an array of vectors, or of rows that are used like vectors."""
        numbers = self.arrays if name in self.vectors else self.rows
        numbers.append(array)
        self.spaces.append((numbers is self.rows, len(numbers) - 1))
        return ARRAYS + SPACE * (len(self.spaces) - 1)

    def _moved(self, name: str) -> bool:
        """Whether an array has rows that are transposed into vectors or back."""
        return name not in self.vectors and not self.scalar

    def _block(self, start: int, values: tuple[int, ...], more: bool = False, fetched: tuple[int, ...] = ()) -> int:
        """Add a block of the last array of rows and return its number."""
        rows = HEADER + (len(self.rows) - 1) * self.row_words + ADDRESS
        self.blocks.append(Block(rows, start, values, more, fetched))
        return len(self.blocks) - 1

    def _fetched(self, start: int, end: int, size: int) -> tuple[int, ...]:
        """Cache lines to prefetch with a block of columns, for rows of `size` scalars: the block's share of the lines
        of later rows. The processor's own prefetcher stops at the end of each page. For data in the caches, prefetching
        costs a few percent, so it is used only if results are copied with streaming stores."""
        if not self.fetches:
            return ()
        span = self.staging.width * size * self.itemsize
        lines, first = -(-span // _LINE), -(-max(span, FETCHED_AHEAD) // _LINE)
        return tuple(_LINE * (first + k) for k in range(start * lines // size, end * lines // size))

    def _inputs(self, spread: frozenset[str]) -> dict[int, int]:
        """Blocks by the values that they load."""
        blocks: dict[int, int] = {}
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
                values = tuple(node if node not in blocks else -1 for node in nodes[start : start + count])
                if max(values) >= 0:
                    block = self._block(start, values, fetched=self._fetched(start, start + count, port.size))
                    blocks.update({node: block for node in values if node >= 0})
        return blocks

    def _outputs(self) -> tuple[list[int], list[Step]]:
        """The blocks of results, and "copy" steps for results in vectors that are not computed."""
        blocks: list[int] = []
        copied: dict[int, list[int]] = {}
        for array, port in enumerate(self.program.outputs, len(self.program.inputs)):
            values = [self._value(scalar) for scalar in port.scalars]
            if self._moved(port.name):
                self.rows.append(array)
                for start, count in self.staging.blocks(port.size):
                    more = start + count < port.size
                    blocks.append(self._block(start, tuple(values[start : start + count]), more))
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
                exists = value in self.homes or value in self.loads
                (copied if exists else self.stored).setdefault(value, []).append(place + k)
        copies: list[Step] = []
        for value, places in copied.items():
            result = self.fresh()
            self.stored[result] = places
            copies.append(("copy", result, (value,)))
        return blocks, copies

    def _value(self, scalar: int | float) -> int:
        """The value of a scalar of a result: computed, an input, a constant, or unread."""
        if is_unread(scalar):
            return _UNREAD
        if not isinstance(scalar, int):
            return self.constant(scalar)
        operation, number, _ = self.program.nodes[scalar]
        return self.constant(number) if operation == CONSTANT else scalar

    def _without_zeros(self, values: Sequence[int], place: int) -> Sequence[int]:
        """The scalars of a result that remain when runs of zeros are stored together."""
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
        """The steps with added steps: each block is loaded before its first value is read, and stored as soon as its
        values are computed."""
        expanded: list[Step] = []
        missing: dict[int, int] = {}
        waiting: dict[int, list[int]] = {}
        loaded: set[int] = set()
        known = set(self.homes)

        def bring(values: tuple[int, ...]) -> None:
            for value in values:
                block = self.loads.get(value, -1)
                if block >= 0 and block not in loaded:
                    loaded.add(block)
                    expanded.append(("load", block, ()))
                    for each in self.blocks[block].values:
                        made(each)

        def made(value: int) -> None:
            known.add(value)
            for block in waiting.pop(value, ()):
                missing[block] -= 1
                if missing[block] == 0:
                    expanded.append(("store", block, self.blocks[block].values))

        for block in self.stores:
            values = set(self.blocks[block].values) - known
            missing[block] = len(values)
            for value in values:
                waiting.setdefault(value, []).append(block)
            if not values:
                expanded.append(("store", block, self.blocks[block].values))
        for step in (*steps, *self.copies):
            bring(step[2])
            expanded.append(step)
            made(step[1])
        for value in list(waiting):
            bring((value,))
        if self.zeros:
            expanded.append(("zeros", -1, ()))
        return expanded

    def constant(self, number: float | str) -> int:
        """The value of a constant. Numbers are distinguished by their bits."""
        key = number if isinstance(number, str) else struct.pack("<d", number)
        if key not in self.constants:
            self.constants[key] = value = self.fresh()
            self.homes[value] = POOL + len(self.constants) - 1
        return self.constants[key]

    def is_constant(self, value: int) -> bool:
        """Whether a value is one of the constants."""
        return POOL <= self.homes.get(value, -1) < POOL + SPACE

    def _mask(self, count: int) -> int:
        return self.rare.setdefault(count, VECTORS + len(self.rare))

    def _vector(self, values: tuple[int, ...]) -> int:
        """Place of a vector of constants. If all are equal, it is the place of the scalar, which is broadcast."""
        if len(set(values)) == 1:
            return self.homes[values[0]]
        return self.rare.setdefault(values, VECTORS + len(self.rare))
