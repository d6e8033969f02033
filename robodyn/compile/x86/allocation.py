"""Registers for the operations of straight-line code, in one pass.

Every next use of a value is known, so where a register is needed, that value gives up its own whose next use is the
farthest (Belady 1966). A value that has no place in memory yet is stored then. Constants have one, and so have inputs
and results that lie as vectors, and an operation reads its last operand from there where that saves a load: where the
value is not needed again, or every register holds one that is needed sooner. Places of values that are never read again
serve others.

A fused multiply-add writes over one of its operands: one that is not needed again, if there is one, or else a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations

from robodyn.compile.x86.instructions import (
    ADD,
    AND,
    CHOOSE,
    CLEAR,
    COMMUTES,
    DIV,
    FETCH,
    FMA132,
    FMS132,
    FNMA132,
    LESS,
    LOAD,
    LOWEST,
    MOVE,
    MUL,
    OF_BITS,
    OR,
    PICK,
    POOL,
    SECOND,
    SIGNED,
    SPACE,
    SPILLS,
    SPREAD,
    SQRT,
    STORE,
    STORE_MANY,
    SUB,
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
    for kind, first in {"fma": FMA132, "fms": FMS132, "fnma": FNMA132}.items()
} | {
    kind: {order: first + k for k, order in enumerate(permutations(range(3)))}
    for kind, first in {"choose": CHOOSE, "signed": SIGNED}.items()
}
"""What reads three operands and writes over one: the code by which operands d, a and x are. (A "pick", the same as
"choose" where AVX-512 is not, writes over none.)"""
BINARY = {"add": ADD, "sub": SUB, "mul": MUL, "div": DIV, "and": AND, "or": OR, "xor": XOR, "less": LESS}
UNARY = {"sqrt": SQRT, "lowest": LOWEST, "second": SECOND, "spread": SPREAD}
_LAST_FIRST = (2, 0, 1)
_OTHERS = ((1, 2), (0, 2), (0, 1))
"""Of three operands: in which order they are asked whether they end, and those that are not one of them."""
_MANY_BYTES = 32
"""What one instruction writes of zeros at most."""
_HELD = -1
"""The next use of a register that is not to be given up."""
NEVER = 1 << 60
"""The next use of what is not used again."""

Step = tuple[str, int, tuple[int, ...]]
"""What is computed: kind, result and operands, values by number. A "copy" writes its operand to the places of its
result, and has no other. A "load" makes the values of a block, a "store" writes its operands to one; "zeros" are
written together, and have neither."""


@dataclass(frozen=True)
class Block:
    """Columns of rows of an array: the place of their address and offsets, the first column, and the values by column;
    -1 is a column of an input that nothing needs. `more`: rows that are written go on behind them; `fetched`: lines of
    other rows that are fetched with them, in bytes from the first of these."""

    rows: int
    start: int
    values: tuple[int, ...]
    more: bool = False
    fetched: tuple[int, ...] = ()


def next_uses(steps: Sequence[Step]) -> tuple[list[tuple[int, ...]], list[int], dict[int, int]]:
    """For each step, when each of its operands is next used after it, and when its result is; and when each value is
    used first."""
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
        registers: how many there are.
        homes: places of the values that are in memory from the start: inputs and constants.
        stored: places that a result is written to once it is computed.
        staging: writes the instructions of blocks.
        blocks: of rows, by the number that their steps have in the place of a result.
        scalar: bytes of the one scalar that a register holds; 0 where it holds vectors.
        zeros: first places and numbers of zeros that are written together.
        spread: values that are in memory as a scalar each, the same for all states, like constants.
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
        """What is read where it is: an instruction spreads one number over a vector itself."""
        self.stored = stored
        self.where: dict[int, int] = {}
        self.value = [-1] * registers
        self.next = [NEVER] * registers
        self.free: list[int] = []
        self.spills = 0
        """Vectors of memory that registers gave values up to."""
        self.code: list[Instruction] = []
        self.staging, self.blocks = staging, blocks
        self.scalar, self.zeros = scalar, zeros
        self.first: dict[int, int] = {}

    def run(self, steps: Sequence[Step]) -> list[Instruction]:
        """The instructions."""
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
        """A register, given up by the value whose next use is the farthest."""
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
        """A register that holds a value of memory."""
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
                next_use[where[value]] = at  # no operand gives up its register to another one
            elif value not in self.stays:
                missing = True
        if missing:
            self._fetch(at, operands, following)
        code = BINARY.get(kind)
        if code is not None:
            register = self._binary(code, operands, following, at)
        elif kind in FUSED:
            register = self._fused(FUSED[kind], operands, following, at)
        else:
            register = self._other(kind, result, operands, following, at)
        home = self.home
        for value, later in zip(operands, following, strict=False):  # of the same length; to prove it takes time
            if later != NEVER:
                if value in where:
                    next_use[where[value]] = later
                continue
            if value in where:
                next_use[where.pop(value)] = NEVER
            if value in home and home[value] < SPACE:  # others may have it
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
        """The register of what is rare; -1 where there is none."""
        if kind == "pick":
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

    def _fetch(self, at: int, operands: tuple[int, ...], following: tuple[int, ...]) -> None:
        """Load what is used again, if a value in a register is needed later than it; constants stay where they are."""
        where, next_use = self.where, self.next
        for value, later in zip(operands, following, strict=False):  # as in `_step`
            if later != NEVER and value not in where and value not in self.stays and max(next_use) > later:
                self._load(value, at)

    def _hold(self) -> int:
        """A register that nobody is given until it is let go."""
        register = self._take()
        self.next[register] = _HELD
        return register

    def _load_rows(self, block: Block) -> None:
        assert self.staging is not None
        needed = [value >= 0 for value in block.values]
        registers = [self._hold() for _ in range(self.staging.loaded_registers(block.start, needed))]
        code, columns = self.staging.load(block.rows, block.start, needed, registers)
        self.code += code
        self.code += [(FETCH, 0, 0, distance) for distance in block.fetched]
        for register in registers:
            self.next[register] = NEVER
        for value, register in zip(block.values, columns, strict=False):
            if value >= 0 and value in self.first:
                self.where[value] = register
                self.value[register], self.next[register] = value, self.first[value]

    def _store_rows(self, block: Block, operands: tuple[int, ...], following: tuple[int, ...]) -> None:
        """Columns are those registers whose values are not needed again, and copies of others; columns of the same
        constant alone are one register."""
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
        """Write a value to the places of a result, which has no register."""
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
                self.code.append((STORE_MANY, register, many, ~place))
                place, count = place + many, count - many

    def _unary(self, code: int, value: int, following: int, at: int) -> int:
        if value not in self.where and code != SQRT:
            self._load(value, at)
        register = self.where.get(value)
        target = self._reused((value,), (following,))
        self.code.append((code, target, 0, ~self.home[value] if register is None else register))
        return target

    def _reused(self, operands: tuple[int, ...], following: tuple[int, ...]) -> int:
        """A register for the result: that of an operand which is not needed again, or one that is given up."""
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
                a, x = x, a  # which is a byte shorter
            if following[0] == NEVER:
                target = where.pop(first)
            else:
                target = where.pop(second) if following[1] == NEVER else self._take()
            self.code.append((code, target, a, x))
            return target
        if first not in where:
            if second in where and code in COMMUTES:
                first, second = second, first
            else:
                self._load(first, at)
        if self.scalar and code in OF_BITS and second not in where and second not in self.constants:
            # 16 bytes are read: an array may end before, and what was just stored is 8 or 4 of them, which has to wait.
            self._load(second, at)
        a, x = where[first], where[second] if second in where else ~self.home[second]
        if self.scalar and code in COMMUTES and x >= 8 > a:
            a, x = x, a
        target = self._reused(operands, following)
        self.code.append((code, target, a, x))
        return target

    def _pick(self, operands: tuple[int, ...], following: tuple[int, ...], at: int) -> int:
        where = self.where
        mask, one, other = operands
        for value in (mask, other):
            if value not in where:
                self._load(value, at)
        if self.scalar and one not in where and one not in self.constants:  # as in `_binary`
            self._load(one, at)
        code, a, x = PICK + where[mask], where[other], where.get(one)
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
        # One operand is memory at most, and none that stands in two places.
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
