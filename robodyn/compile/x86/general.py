"""What general registers hold: addresses of arrays of vectors, offsets of rows, and addresses amidst places that are
far from all others. Decided after all else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from robodyn.compile.x86.instructions import (
    ADVANCE,
    AHEAD,
    ARRAYS,
    FETCH,
    KEPT,
    LOAD,
    LOAD_HALF,
    LOAD_LANE,
    LOAD_ROW,
    MASK,
    NO_OFFSET,
    POINTER,
    ROW,
    ROWS,
    SPACE,
    STORE_HIGH,
    STORE_LANE,
    STORE_LOW,
    STORE_ONE,
    STORE_PAST,
    STORE_ROW,
    STORE_SOME,
    Instruction,
)
from robodyn.compile.x86.pointers import ARRAY_POINTERS, Base

_IN_ROWS = frozenset(
    (LOAD_ROW, STORE_ROW, LOAD_LANE, LOAD_HALF, STORE_LANE, STORE_LOW, STORE_HIGH, STORE_ONE, STORE_SOME, FETCH, AHEAD)
)
"""What reads the register of `ROWS`."""


def advancing(code: Sequence[Instruction], addresses: Iterable[int]) -> list[Instruction]:
    """Instructions that make addresses of rows go on to the next ones as soon as these are done, so that the code for
    the next W rows, which begins with them, does not wait.

    `addresses`: their places.
    """
    ends = [-1]  # where the register of `ROWS` is read last, for each time that it is written
    last: dict[int, tuple[int, int]] = {}
    for at, (operation, _, _, x) in enumerate(code):
        if operation == ROWS:
            ends.append(at)
        elif operation in _IN_ROWS:
            ends[-1] = at
        if operation in (ROWS, POINTER):
            last[~x] = at, len(ends) - 1
    points: list[tuple[int, int]] = []
    for address in addresses:
        at, block = last.get(address, (-1, 0))  # what no instruction reads a register has from the start
        points.append((max(at, ends[block]) + 1, address))
    found: list[Instruction] = []
    done = 0
    for upto, address in sorted(points):
        found += code[done:upto]
        found.append((ADVANCE, 0, 0, ~address))
        done = upto
    return found + list(code[done:])


COPIED_FROM, COPIED_TO = 3, 4
"""The last two registers of arrays, which point to what is copied on the way, and to where it goes."""


def once(code: Sequence[Instruction]) -> list[Instruction]:
    """Instructions without those that load an address of rows or an offset which is there already."""
    kept: list[Instruction] = []
    there: dict[int, Instruction] = {}
    for each in code:
        if each[0] in (ROWS, ROW):
            if there.get(each[0]) == each:
                continue
            there[each[0]] = each
        elif each[0] == MASK:  # it goes through the register of the offset
            there.pop(ROW, None)
        kept.append(each)
    return kept


def in_turns(code: Sequence[Instruction], addresses: Sequence[int]) -> list[Instruction]:
    """Instructions in which the k-th space of arrays is what the k-th of their registers points to. Where arrays are
    more than registers, an address that is read takes the register of the one that was used the longest ago.

    `addresses`: places of the arrays' addresses.
    """
    if len(addresses) <= len(ARRAY_POINTERS):
        return list(code)
    found: list[Instruction] = []
    held = {array: array for array in range(len(ARRAY_POINTERS))}
    """Registers by array; those used last stand last."""
    for each in code:
        operation, d, a, x = each
        if x < 0 and ~x >= ARRAYS:
            array, index = divmod(~x - ARRAYS, SPACE)
            register = held.pop(array, -1)
            if register < 0:
                register = held.pop(next(iter(held)))
                found.append((POINTER, register, 0, ~addresses[array]))
            held[array] = register
            each = operation, d, a, ~(ARRAYS + register * SPACE + index)
        found.append(each)
    return found


_OFFSET_BYTES, _FAR_BYTES, _SAVED_BYTES = 7, 3, 24
"""What an instruction that loads an offset takes, and four bytes of displacement more than one; and what a register has
to be worth that is to be given back: two instructions for that, and one that fills it."""


def shared_out(
    offsets: Counter[int], far: Counter[tuple[int, int]], free: Sequence[int], saved: Sequence[int], bases_free: bool
) -> tuple[list[Base], list[int]]:
    """Bases, and registers for offsets of rows: each register is for what it saves most bytes of. Long programs take as
    long as their bytes take to come from the second cache, once for every W states.

    Args:
        offsets: how often the offset at a place is loaded.
        far: how many instructions a base would shorten, by pointer and start.
        free: registers that take nothing.
        saved: those that have to be given back.
        bases_free: whether bases may be any of them.
    """
    wishes: list[tuple[int, tuple[int, int] | None]] = [(_FAR_BYTES * times, where) for where, times in far.items()]
    wishes += [(_OFFSET_BYTES * times, None) for times in offsets.values() if times > 1]
    left, more = list(free), list(saved)
    bases, kept_offsets = [], []
    for worth, where in sorted(wishes, key=lambda wish: -wish[0]):
        registers = left if left and (where is None or bases_free) else more
        if not registers or (registers is more and worth < _SAVED_BYTES):
            continue
        if where is None:
            kept_offsets.append(registers.pop())
        else:
            bases.append(Base(registers.pop(0), *where))
    return bases, kept_offsets


def offset_loads(code: Iterable[Instruction], firsts: Iterable[int]) -> Counter[int]:
    """How often the offset at each place is loaded; of first rows, whose places are given, it is zero."""
    none = set(firsts)
    return Counter(~x for operation, _, _, x in code if operation == ROW and ~x not in none)


def kept(
    code: Sequence[Instruction], registers: Sequence[int], loads: Counter[int], firsts: Iterable[int]
) -> tuple[list[Instruction], dict[int, int]]:
    """Instructions that find the offsets which they load most often in registers, and these registers by place.

    `loads`: how often each is, as of `offset_loads`; `firsts`: places of offsets of first rows, which are zero.
    """
    none = dict.fromkeys(firsts, NO_OFFSET)
    often = [place for place, times in loads.most_common(len(registers)) if times > 1]
    found = dict(zip(often, registers, strict=False))
    where = found | none
    return [(KEPT, where[~x], 0, 0) if c == ROW and ~x in where else (c, d, a, x) for c, d, a, x in code], found


def copying(code: Sequence[Instruction], arrays: Iterable[tuple[int, int, int]], register: int) -> list[Instruction]:
    """Instructions that copy vectors past the caches on the way, one from time to time.

    A processor goes on computing while it waits for memory to take what it wrote, as long as that is not too much at
    once.

    Args:
        code: instructions that do not use the register, nor those of `COPIED_FROM` and `COPIED_TO`.
        arrays: for each array places of both addresses, and how many vectors it has.
        register: where a vector is on the way.
    """
    copies: list[list[Instruction]] = []
    for source, target, count in arrays:
        for k in range(count):
            copies.append([(LOAD, register, 0, ~(ARRAYS + COPIED_FROM * SPACE + k))])
            copies[-1].append((STORE_PAST, register, 0, ~(ARRAYS + COPIED_TO * SPACE + k)))
            if k == 0:
                copies[-1][:0] = [(POINTER, COPIED_FROM, 0, ~source), (POINTER, COPIED_TO, 0, ~target)]
    found: list[Instruction] = []
    done = 0
    for k, each in enumerate(copies, 1):
        upto = k * len(code) // (len(copies) + 1)
        found += code[done:upto]
        found += each
        done = upto
    return found + list(code[done:])
