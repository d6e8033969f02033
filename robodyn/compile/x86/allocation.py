"""Register allocation for straight-line code, in one pass.

The next use of every value is known. If a register is needed, the value whose next use is farthest loses its register
(Belady 1966) and is stored, unless it already has a place in memory. Constants have one, and so have inputs and results
that are stored as vectors. An instruction reads its last operand from memory if that saves a load: if the value is not
used again, or all registers hold values that are needed sooner. Places of spilled values that are never read again are
reused.

A fused multiply-add overwrites one of its operands: one that is not used again, else a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations

from robodyn.compile.x86.instructions import (
    ADD,
    AND,
    BITWISE,
    BLENDV,
    CLEAR,
    CMPGT,
    COMMUTES,
    DIV,
    FABS,
    FACGT,
    FCMGT_ZERO,
    FMADD132,
    FMSUB132,
    FNEG,
    FNMADD132,
    LOAD,
    MAX,
    MIN,
    MOVE,
    MUL,
    OR,
    POOL,
    PREFETCHT0,
    SLL_BIT0,
    SLL_BIT1,
    SPACE,
    SPILLS,
    SQRT,
    SRA,
    STORE,
    STORE_ZEROS,
    SUB,
    TERNLOG_SELECT,
    TERNLOG_SIGN,
    XOR,
    Instruction,
)
from robodyn.compile.x86.staging import Staging
from robodyn.internals.records import dataclass

_PRODUCTS: dict[tuple[int, ...], int] = {
    (0, 2, 1): 0,
    (1, 2, 0): 0,
    (0, 1, 2): 1,
    (1, 0, 2): 1,
    (2, 0, 1): 2,
    (2, 1, 0): 2,
}
FUSED = {
    kind: {order: first + form for order, form in _PRODUCTS.items()}
    for kind, first in {"fma": FMADD132, "fms": FMSUB132, "fnma": FNMADD132}.items()
} | {
    kind: {order: first + k for k, order in enumerate(permutations(range(3)))}
    for kind, first in {"ternlog_select": TERNLOG_SELECT, "ternlog_sign": TERNLOG_SIGN}.items()
}
"""Instructions that read three operands and overwrite one: for each kind, the code by the operand numbers that d, a and
x hold. A "blendv", which selects without AVX-512, overwrites none and is not among them."""
BINARY = {
    "add": ADD,
    "sub": SUB,
    "mul": MUL,
    "div": DIV,
    "min": MIN,
    "max": MAX,
    "and": AND,
    "or": OR,
    "xor": XOR,
    "cmpgt": CMPGT,
    "beyond": FACGT,
}
UNARY = {
    "sqrt": SQRT,
    "sll_bit0": SLL_BIT0,
    "sll_bit1": SLL_BIT1,
    "sra": SRA,
    "neg": FNEG,
    "abs": FABS,
    "positive": FCMGT_ZERO,
}
_LAST_FIRST = (2, 0, 1)
_OTHERS = ((1, 2), (0, 2), (0, 1))
"""The order in which three operands are tried as destination; and for each operand, the two others."""
_MANY_BYTES = 32
"""Largest number of bytes of zeros that one instruction writes."""
_HELD = -1
"""The next use of a register that must not be reassigned."""
NEVER = 1 << 60
"""The next use of a value that is not used again."""

Step = tuple[str, int, tuple[int, ...]]
"""A step: kind, result and operands; values are numbered. A "copy" stores its operand to the places of its result,
which gets no register. A "load" loads the values of a block, a "store" stores its operands to a block; both have the
block's number as result. "zeros" stores zeros and has neither result nor operands."""


@dataclass(frozen=True)
class Block:
    """Columns of the rows of an array. `rows`: place of the rows' address, followed by their offsets; `start`: the
    first column; `values`: the value of each column, -1 for an unused column of an input. `more`: True if stored rows
    continue behind the block. `fetched`: cache lines of later rows to prefetch, in bytes from the first row."""

    rows: int
    start: int
    values: tuple[int, ...]
    more: bool = False
    fetched: tuple[int, ...] = ()


def next_uses(steps: Sequence[Step]) -> tuple[list[tuple[int, ...]], list[int], dict[int, int]]:
    """For each step, the next use of each operand and of the result after it; and the first use of each value."""
    operands: list[tuple[int, ...]] = [()] * len(steps)
    results = [NEVER] * len(steps)
    upcoming: dict[int, int] = {}
    later = upcoming.get
    for at in range(len(steps) - 1, -1, -1):
        kind, result, read = steps[at]
        if kind != "load" and kind != "store":
            results[at] = later(result, NEVER)
        if len(read) == 2:
            a, x = read
            operands[at] = later(a, NEVER), later(x, NEVER)
            upcoming[a] = upcoming[x] = at
        else:
            operands[at] = tuple([later(value, NEVER) for value in read])
            for value in read:
                upcoming[value] = at
    return operands, results, upcoming


class Allocator:
    """Turns steps into instructions.

    Args:
        registers: number of registers.
        homes: places of the values that are in memory at the start: inputs and constants.
        stored: places to which each result is stored as soon as it is computed.
        staging: writes the instructions of blocks.
        blocks: the blocks of rows; "load" and "store" steps refer to their indices.
        scalar: bytes of the scalar in a register; 0 if registers hold vectors.
        zeros: first places and lengths of runs of zeros.
        spread: values that are in memory as one scalar for all states, like constants.
    """

    def __init__(
        self,
        registers: int,
        homes: Mapping[int, int],
        stored: Mapping[int, Sequence[int]],
        staging: Staging | None = None,
        blocks: Sequence[Block] = (),
        scalar: int = 0,
        zeros: Sequence[tuple[int, int]] = (),
        spread: Iterable[int] = (),
    ) -> None:
        self.home = dict(homes)
        self.constants = {value for value, place in homes.items() if POOL <= place < POOL + SPACE}
        self.stays = self.constants.union(spread)
        """Values that instructions read from memory each time, because they can broadcast a scalar."""
        self.stored = stored
        self.where: dict[int, int] = {}
        self.value = [-1] * registers
        self.next = [NEVER] * registers
        self.free: list[int] = []
        self.spills = 0
        """Number of vectors in memory for spilled values."""
        self.code: list[Instruction] = []
        self.staging, self.blocks = staging, blocks
        self.scalar, self.zeros = scalar, zeros
        self.first: dict[int, int] = {}

    def run(self, steps: Sequence[Step]) -> list[Instruction]:
        """The instructions of all steps."""
        operands, results, self.first = next_uses(steps)
        for at, step in enumerate(steps):
            self._step(at, step, operands[at], results[at])
        return self.code

    def _spill(self, register: int, value: int) -> None:
        if self.free:
            slot = self.free.pop()
        else:
            slot = self.spills
            self.spills += 1
        self.home[value] = SPILLS + slot
        self.code.append((STORE, register, 0, ~(SPILLS + slot)))

    def _take(self) -> int:
        """A free register; if there is none, that of the value with the farthest next use."""
        next_use = self.next
        farthest = max(next_use)
        register = next_use.index(farthest)
        if farthest != NEVER:
            value = self.value[register]
            if value not in self.home:
                self._spill(register, value)
            del self.where[value]
            next_use[register] = NEVER
        return register

    def _load(self, value: int, following: int) -> int:
        """Load a value from memory and return its register."""
        register = self._take()
        self.code.append((LOAD, register, 0, ~self.home[value]))
        self.where[value] = register
        self.value[register], self.next[register] = value, following
        return register

    def _step(self, at: int, step: Step, following: tuple[int, ...], used: int) -> None:
        kind, result, operands = step
        where, next_use = self.where, self.next
        missing = False
        for value in operands:
            if value in where:
                next_use[where[value]] = at  # keeps the operand's register until this step is done
            elif value not in self.stays:
                missing = True
        if missing:
            self._fetch(at, kind, operands, following)
        code = BINARY.get(kind)
        if code is not None:
            register = self._binary(code, operands, following, at)
        elif kind in FUSED:
            register = self._fused(FUSED[kind], operands, following, at)
        else:
            register = self._other(kind, result, operands, following, at)
        home = self.home
        for value, later in zip(operands, following, strict=False):  # equal lengths; strict=True is slower
            if later != NEVER:
                if value in where:
                    next_use[where[value]] = later
                continue
            if value in where:
                next_use[where.pop(value)] = NEVER
            if value in home and home[value] < SPACE:  # a spill slot that can be reused
                self.free.append(home.pop(value))
        if register < 0:
            return
        self.value[register], next_use[register] = result, used
        if used != NEVER:
            where[result] = register
        if result in self.stored:
            for place in self.stored[result]:
                self.code.append((STORE, register, 0, ~place))
                home.setdefault(result, place)

    def _other(self, kind: str, result: int, operands: tuple[int, ...], following: tuple[int, ...], at: int) -> int:
        """The result's register for a rare kind of step, or -1 if it has none."""
        if kind == "blendv":
            return self._pick(operands, following, at)
        if kind in UNARY:
            return self._unary(UNARY[kind], operands[0], following[0], at)
        if kind == "copy":
            self._copy(operands[0], result)
        elif kind == "load":
            self._load_rows(self.blocks[result])
        elif kind == "zeros":
            self._write_zeros()
        else:
            self._store_rows(self.blocks[result], operands, following)
        return -1

    def _fetch(self, at: int, kind: str, operands: tuple[int, ...], following: tuple[int, ...]) -> None:
        """Load operands that are used again, if some register holds a value that is needed later. Constants stay in
        memory."""
        where, next_use = self.where, self.next
        for value, later in zip(operands, following, strict=False):  # as in `_step`
            if later != NEVER and value not in where and value not in self.stays and max(next_use) > later:
                self._load(value, at)

    def _hold(self) -> int:
        """A register that is not reassigned until it is released."""
        register = self._take()
        self.next[register] = _HELD
        return register

    def _load_rows(self, block: Block) -> None:
        assert self.staging is not None
        needed = [value >= 0 for value in block.values]
        registers = [self._hold() for _ in range(self.staging.loaded_registers(block.start, needed))]
        code, columns = self.staging.load(block.rows, block.start, needed, registers)
        self.code += code
        self.code += [(PREFETCHT0, 0, 0, distance) for distance in block.fetched]
        for register in registers:
            self.next[register] = NEVER
        for value, register in zip(block.values, columns, strict=False):
            if value >= 0 and value in self.first:
                self.where[value] = register
                self.value[register], self.next[register] = value, self.first[value]

    def _store_rows(self, block: Block, operands: tuple[int, ...], following: tuple[int, ...]) -> None:
        """Columns use the registers of values that are not used again, and copies of other values. If all columns are
        the same constant, they share one register."""
        assert self.staging is not None
        where, registers = self.where, []
        constants: dict[int, int] = {}
        count = self.staging.stored_registers(len(operands), self.constants.issuperset(operands))
        for k, (value, later) in enumerate(zip(operands, following, strict=True)):
            if value in self.constants:
                register = self._hold()
                constants[register] = value
            elif later == NEVER and value in where and value not in operands[k + 1 :]:
                register = where.pop(value)
                self.next[register] = _HELD
            else:
                register = self._hold()
                held = where.get(value)
                moved = (LOAD, ~self.home[value]) if held is None else (MOVE, held)
                self.code.append((moved[0], register, 0, moved[1]))
            registers.append(register)
            if k == 0 and constants and set(operands) == {value} and count == self.staging.registers:
                registers *= count - 1
                break
        registers += [self._hold() for _ in range(count - len(registers))]
        self.code += self.staging.store(block.rows, block.start, len(operands), registers, constants, block.more)
        for register in registers:
            self.next[register] = NEVER

    def _copy(self, value: int, result: int) -> None:
        """Store a value to the places of a result, which gets no register."""
        register = self.where.get(value)
        if register is None:
            register = self._take()
            self.code.append((LOAD, register, 0, ~self.home[value]))
        for place in self.stored[result]:
            self.code.append((STORE, register, 0, ~place))

    def _write_zeros(self) -> None:
        register = self._take()
        self.code.append((CLEAR, register, 0, 0))
        for place, count in self.zeros:
            while count:
                many = min(_MANY_BYTES // self.scalar, 1 << count.bit_length() - 1)
                self.code.append((STORE_ZEROS, register, many, ~place))
                place, count = place + many, count - many

    def _unary(self, code: int, value: int, following: int, at: int) -> int:
        if value not in self.where and code != SQRT:
            self._load(value, at)
        register = self.where.get(value)
        target = self._reused((value,), (following,))
        self.code.append((code, target, 0, ~self.home[value] if register is None else register))
        return target

    def _reused(self, operands: tuple[int, ...], following: tuple[int, ...]) -> int:
        """A register for the result: that of an operand that is not used again, or else another one."""
        where = self.where
        for value, later in zip(operands, following, strict=True):
            if later == NEVER and value in where:
                return where.pop(value)
        return self._take()

    def _binary(self, code: int, operands: tuple[int, ...], following: tuple[int, ...], at: int) -> int:
        where = self.where
        first, second = operands
        if first in where and second in where:
            a, x = where[first], where[second]
            if self.scalar and x >= 8 > a and code in COMMUTES:
                a, x = x, a  # one byte shorter
            if following[0] == NEVER:
                destination = where.pop(first)
            else:
                destination = where.pop(second) if following[1] == NEVER else self._take()
            self.code.append((code, destination, a, x))
            return destination
        if first not in where:
            if second in where and code in COMMUTES:
                first, second = second, first
            else:
                self._load(first, at)
        if self.scalar and code in BITWISE and second not in where and second not in self.constants:
            # The instruction would read 16 bytes of memory. The array may end before that, and reading just after a
            # store of 4 or 8 of these bytes would stall.
            self._load(second, at)
        a, x = where[first], where[second] if second in where else ~self.home[second]
        if self.scalar and code in COMMUTES and x >= 8 > a:
            a, x = x, a
        destination = self._reused(operands, following)
        self.code.append((code, destination, a, x))
        return destination

    def _pick(self, operands: tuple[int, ...], following: tuple[int, ...], at: int) -> int:
        where = self.where
        mask, one, other = operands
        for value in (mask, other):
            if value not in where:
                self._load(value, at)
        if self.scalar and one not in where and one not in self.constants:  # as in `_binary`
            self._load(one, at)
        code, a, x = BLENDV + where[mask], where[other], where.get(one)
        target = self._reused(operands, following)
        self.code.append((code, target, a, ~self.home[one] if x is None else x))
        return target

    def _fused(
        self,
        codes: Mapping[tuple[int, ...], int],
        operands: tuple[int, ...],
        following: tuple[int, ...],
        at: int,
    ) -> int:
        where = self.where
        one, other, last = operands
        apart = one != other and one != last and other != last
        if apart and one in where and other in where and last in where:
            if following[2] == NEVER:
                target, a, x = where.pop(last), where[one], where[other]
                self.code.append((codes[2, 0, 1], target, a, x))
                return target
            for d, value in enumerate((one, other)):
                if following[d] == NEVER:
                    target, a, x = where.pop(value), where[operands[1 - d]], where[last]
                    self.code.append((codes[d, 1 - d, 2], target, a, x))
                    return target
        missing = [value for value in (operands if apart else dict.fromkeys(operands)) if value not in where]
        # At most one operand is read from memory, and not one that occurs twice.
        while len(missing) > 1 or (missing and not apart and operands.count(missing[0]) > 1):
            self._load(missing.pop(), at)
        alone = _LAST_FIRST if apart else [k for k in _LAST_FIRST if operands.count(operands[k]) == 1]
        for d in alone:
            if following[d] == NEVER and operands[d] in where:
                target = where.pop(operands[d])
                break
        else:
            d = operands.index(missing.pop()) if missing else [*alone, 2][0]
            target = self._take()
            source = where.get(operands[d])
            self.code.append(
                (LOAD, target, 0, ~self.home[operands[d]]) if source is None else (MOVE, target, 0, source)
            )
        a, x = _OTHERS[d]
        if operands[a] in missing:
            a, x = x, a
        second = where.get(operands[x])
        self.code.append(
            (codes[d, a, x], target, where[operands[a]], ~self.home[operands[x]] if second is None else second)
        )
        return target
