"""Encodes instructions as words of 4 bytes.

General registers hold addresses: x0 that of the frame, x1 that of the constants. The addresses of arrays and of rows
are loaded where they are needed first, to x2 to x15; if there are more, the least recently used one gives way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robodyn.compile.neon.forms import (
    ADD_NUMBER,
    ADD_PAGES,
    ADD_WORD,
    CLEAR,
    FAR,
    LANES,
    LOAD_WORD,
    MOV,
    MOVES,
    NEAR,
    PAIR_REACH,
    STORE_WORD,
    Form,
    forms,
)
from robodyn.compile.x86 import instructions as I
from robodyn.compile.x86.instructions import ARRAYS, HEADER, POOL, SPACE, VECTORS, Instruction

FRAME, POOL_POINTER = 0, 1
POINTERS = range(2, 16)
"""General registers for the addresses of arrays and rows: all that a function may overwrite, but for those above and
below, and those that systems reserve."""
SCRATCH = 16
"""A general register for addresses that are too far from others."""
VECTOR_REGISTERS = (*range(8), *range(16, 32), *range(8, 16))
"""Registers in the order in which programs use them. A function must restore the lower halves of the last eight."""
FREE_REGISTERS = 24
_PART_BYTES = {I.MOVLPD: (8, 0), I.MOVHPD: (8, 1)}
"""Bytes and index of the part of a register that is stored."""


class Encoder:
    """Encodes the instructions of a program.

    Args:
        itemsize: bytes of a scalar, 8 or 4.
        size: bytes of a register that are used: 16, or those of a scalar.
        starts: for each space in the frame and of constants, its distance from the pointer, in bytes.
        addresses: places of the addresses of the spaces of arrays.
    """

    def __init__(self, itemsize: int, size: int, starts: Mapping[int, int], addresses: Sequence[int]) -> None:
        self.itemsize, self.bytes, self.scalar = itemsize, size, size == itemsize
        self.starts, self.addresses = starts, addresses
        self.forms = forms(itemsize, self.scalar)
        self.words: list[int] = []
        self.used: list[Form] = []
        """The form of each word, which prints it."""
        self._held: dict[int, int] = {}
        """General registers by the place of the address that they hold, the most recently used last."""
        self._rows = self._row = -1
        """Places of the address of the rows, and of the row's offset."""

    def emit(self, form: Form, *operands: int) -> None:
        """Add an instruction."""
        self.words.append(form.encoded(*operands))
        self.used.append(form)

    def lines(self) -> list[str]:
        """The instructions as text."""
        return [form.line(word) for form, word in zip(self.used, self.words, strict=True)]

    def encode(self, code: Sequence[Instruction]) -> None:
        """Add the words of instructions."""
        words, used, registers = self.words, self.used, VECTOR_REGISTERS
        three = {code: form for code, form in self.forms.items() if len(form.fields) == 3}
        following = iter([*code[1:], (-1, 0, 0, 0)])
        done = False
        for (operation, d, a, x), after in zip(code, following, strict=True):
            if done:
                done = False
                continue
            form = three.get(operation)
            if form is not None:
                n, m = (a, x) if form.fields[1].shift == 5 else (x, a)
                words.append(form.word | registers[d] | registers[n] << 5 | registers[m] << 16)
                used.append(form)
            elif operation in (I.LOAD, I.STORE):
                done = self._moved(operation, d, ~x, after)
            elif operation == I.MOVE:
                negated = after[0] == I.FMSUB231 and after[1] == d
                if not negated:
                    self.emit(MOV, registers[d], registers[x], registers[x])
                else:
                    self._subtracting(x, after)
                    done = True
            else:
                self._rare(operation, d, a, x)

    def _rare(self, operation: int, d: int, a: int, x: int) -> None:
        registers = VECTOR_REGISTERS
        if operation >= I.FMADD:
            kind = operation & -len(registers)
            self.emit(self.forms[kind], registers[d], registers[a], registers[x], registers[operation - kind])
        elif operation in self.forms:
            self.emit(self.forms[operation], registers[d], registers[x])
        elif operation == I.FMSUB231:
            self._subtracting(d, (operation, d, a, x))
        elif operation == I.CLEAR:
            self.emit(CLEAR, registers[d])
        elif operation == I.STORE_ZEROS:
            self._store_zeros(registers[d], a, ~x)
        elif operation == I.MOV_ROWS:
            self._rows = ~x
        elif operation == I.MOV_OFFSET:
            self._row = ~x
        elif operation == I.LOAD_ROW and a >= 0:
            self._load_part(registers[d], a, x)
        elif operation in (I.INSERTF128, I.LOAD_ROW, I.STORE_ROW):
            self.move(operation != I.STORE_ROW, registers[d], self._row_pointer(), x * self.itemsize, 16)
        else:
            size, lane = (4, a) if operation == I.EXTRACTPS else _PART_BYTES[operation]
            self._store_part(registers[d], size, lane, x)

    def _subtracting(self, summand: int, instruction: Instruction) -> None:
        """a x - summand: d becomes the negative summand, to which the product is added."""
        _, d, a, x = instruction
        registers = VECTOR_REGISTERS
        self.emit(self.forms[I.FNEG], registers[d], registers[summand])
        self.emit(self.forms[I.FMADD231], registers[d], registers[a], registers[x])

    def address(self, place: int) -> tuple[int, int]:
        """The general register and the distance in bytes that address a place."""
        space = place // SPACE * SPACE
        if space >= ARRAYS:
            return self._pointer(self.addresses[space // SPACE - ARRAYS // SPACE]), (place - space) * self.bytes
        unit = 8 if space == HEADER else self.bytes
        pointer = POOL_POINTER if space in (POOL, VECTORS) else FRAME
        return pointer, self.starts[space] + (place - space) * unit

    def _moved(self, operation: int, d: int, place: int, after: Instruction) -> bool:
        """Load or store a register at a place. True if the next instruction is done as well: two that move neighbours
        become one."""
        pointer, offset = self.address(place)
        load, size, registers = operation == I.LOAD, self.bytes, VECTOR_REGISTERS
        if after[0] == operation and after[1] != d and after[3] < 0 and ~after[3] // SPACE == place // SPACE:
            step = ~after[3] - place
            first = offset + min(step, 0) * size
            if abs(step) == 1 and first % size == 0 and -PAIR_REACH <= first // size < PAIR_REACH:
                pair = (d, after[1])[::step]
                form = MOVES["ldp" if load else "stp", size]
                self.emit(form, registers[pair[0]], registers[pair[1]], pointer, first)
                return True
        self.move(load, registers[d], pointer, offset, size)
        return False

    def move(self, load: bool, register: int, pointer: int, offset: int, size: int) -> None:
        """Load or store the first bytes of a register at some distance from a pointer."""
        name = "ld" if load else "st"
        if offset % size == 0 and 0 <= offset < FAR * size:
            self.emit(MOVES[name + "r", size], register, pointer, offset)
        elif -NEAR <= offset < NEAR:
            self.emit(MOVES[name + "ur", size], register, pointer, offset)
        else:
            self._point(pointer, offset)
            self.emit(MOVES[name + "r", size], register, SCRATCH, 0)

    def _point(self, pointer: int, offset: int) -> None:
        """Set the scratch register to an address."""
        assert 0 <= offset < 1 << 24
        if offset >= 4096:
            self.emit(ADD_PAGES, SCRATCH, pointer, offset >> 12)
            pointer = SCRATCH
        if offset & 4095 or pointer != SCRATCH:
            self.emit(ADD_NUMBER, SCRATCH, pointer, offset & 4095)

    def load_word(self, register: int, place: int) -> None:
        """Load an address or offset of the frame to a general register."""
        self.emit(LOAD_WORD, register, *self.address(place))

    def advance(self, places: Sequence[int]) -> None:
        """Add to the addresses at places the numbers of bytes in the words before them. At the end of a program."""
        one, other = POINTERS[:2]
        for place in places:
            self.load_word(one, place - 1)
            self.load_word(other, place)
            self.emit(ADD_WORD, other, other, one)
            self.emit(STORE_WORD, other, *self.address(place))

    def _pointer(self, place: int) -> int:
        """A register that holds the address at a place of the frame."""
        register = self._held.pop(place, -1)
        if register < 0:
            register = self._free()
            self.load_word(register, place)
        self._held[place] = register
        return register

    def _free(self) -> int:
        if len(self._held) < len(POINTERS):
            return POINTERS[len(self._held)]
        return self._held.pop(next(iter(self._held)))

    def _row_pointer(self) -> int:
        """A register that holds the address of the row: that of the first row and the row's offset."""
        first = self._pointer(self._rows)
        if self._row == self._rows + 1:
            return first
        register = self._held.pop(self._row, -1)
        if register < 0:
            register = self._free()
            self.load_word(register, self._row)
            self.emit(ADD_WORD, register, register, first)
        self._held[self._row] = register
        return register

    def _load_part(self, register: int, count: int, x: int) -> None:
        """Load the first scalars of a row, from index x on: one, two or three, without reading behind them."""
        pointer, offset = self._row_pointer(), x * self.itemsize
        self.move(True, register, pointer, offset, min(count, 2) * self.itemsize)
        if count == 3:
            self._point(pointer, offset + 2 * self.itemsize)
            self.emit(LANES["ld1", self.itemsize, 2], register, SCRATCH)

    def _store_part(self, register: int, size: int, lane: int, x: int) -> None:
        """Store `size` bytes of a register to the row, from index x on."""
        pointer, offset = self._row_pointer(), x * self.itemsize
        if lane == 0:
            self.move(False, register, pointer, offset, size)
            return
        if offset:
            self._point(pointer, offset)
            pointer = SCRATCH
        self.emit(LANES["st1", size, lane], register, pointer)

    def _store_zeros(self, register: int, count: int, place: int) -> None:
        pointer, offset = self.address(place)
        left = count * self.itemsize
        while left:
            size = 16
            while size > left or offset % size:  # a larger store would need an address of its own
                size //= 2
            self.move(False, register, pointer, offset, size)
            offset, left = offset + size, left - size
