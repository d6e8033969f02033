"""Assigns general registers: addresses of arrays of vectors, offsets of rows, and bases near places that are far from
their pointers. This happens after all other decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from robodyn.compile.x86.instructions import (
    ADVANCE,
    ARRAYS,
    EXTRACTF128_STORE,
    EXTRACTPS,
    INSERTF64X4,
    INSERTF128,
    KMOV,
    LOAD,
    LOAD_ROW,
    MOV_OFFSET,
    MOV_POINTER,
    MOV_ROWS,
    MOVHPD,
    MOVLPD,
    MOVNT,
    MOVU_MASKED,
    NO_INDEX,
    PREFETCHT0,
    PREFETCHW,
    SPACE,
    STORE_ROW,
    USE_OFFSET,
    Instruction,
)
from robodyn.compile.x86.pointers import ARRAY_POINTERS, Base

_IN_ROWS = frozenset(
    (
        LOAD_ROW,
        STORE_ROW,
        INSERTF128,
        INSERTF64X4,
        EXTRACTF128_STORE,
        MOVLPD,
        MOVHPD,
        EXTRACTPS,
        MOVU_MASKED,
        PREFETCHT0,
        PREFETCHW,
    )
)
"""Instructions that read the register of `MOV_ROWS`."""


def advancing(code: Sequence[Instruction], addresses: Iterable[int]) -> list[Instruction]:
    """Insert instructions that advance each address of rows to the next W rows, directly behind its last use. The next
    iteration of the code begins by reading these addresses, and then need not wait.

    `addresses`: places of the addresses.
    """
    ends = [-1]  # last read of the register of `MOV_ROWS`, for each time that it is written
    last: dict[int, tuple[int, int]] = {}
    for at, (operation, _, _, x) in enumerate(code):
        if operation == MOV_ROWS:
            ends.append(at)
        elif operation in _IN_ROWS:
            ends[-1] = at
        if operation in (MOV_ROWS, MOV_POINTER):
            last[~x] = at, len(ends) - 1
    points: list[tuple[int, int]] = []
    for address in addresses:
        at, block = last.get(address, (-1, 0))  # no instruction loads it: a register holds it from the beginning
        points.append((max(at, ends[block]) + 1, address))
    result: list[Instruction] = []
    done = 0
    for upto, address in sorted(points):
        result += code[done:upto]
        result.append((ADVANCE, 0, 0, ~address))
        done = upto
    return result + list(code[done:])


COPIED_FROM, COPIED_TO = 3, 4
"""Spaces whose pointers, the last two in `ARRAY_POINTERS`, are source and target of copies during the computation."""


def once(code: Sequence[Instruction]) -> list[Instruction]:
    """Remove instructions that load an address or offset of rows that the register already holds."""
    kept: list[Instruction] = []
    loaded: dict[int, Instruction] = {}
    for each in code:
        if each[0] in (MOV_ROWS, MOV_OFFSET):
            if loaded.get(each[0]) == each:
                continue
            loaded[each[0]] = each
        elif each[0] == KMOV:  # it overwrites the register of the offset
            loaded.pop(MOV_OFFSET, None)
        kept.append(each)
    return kept


def in_turns(code: Sequence[Instruction], addresses: Sequence[int]) -> list[Instruction]:
    """Rewrite instructions so that the k-th space of arrays is relative to the k-th array pointer. If there are more
    arrays than registers, the address of an array is loaded before its use, to the least recently used register.

    `addresses`: places of the arrays' addresses.
    """
    if len(addresses) <= len(ARRAY_POINTERS):
        return list(code)
    result: list[Instruction] = []
    held = {array: array for array in range(len(ARRAY_POINTERS))}
    """Registers by array, the most recently used last."""
    for each in code:
        operation, d, a, x = each
        if x < 0 and ~x >= ARRAYS:
            array, index = divmod(~x - ARRAYS, SPACE)
            register = held.pop(array, -1)
            if register < 0:
                register = held.pop(next(iter(held)))
                result.append((MOV_POINTER, register, 0, ~addresses[array]))
            held[array] = register
            each = operation, d, a, ~(ARRAYS + register * SPACE + index)
        result.append(each)
    return result


_OFFSET_BYTES, _FAR_BYTES, _SAVED_BYTES = 7, 3, 24
"""Bytes of an instruction that loads an offset; bytes that a one-byte displacement saves; and bytes that a callee-saved
register must save to be used, because saving, filling and restoring it takes three instructions."""


def shared_out(
    offsets: Counter[int], far: Counter[tuple[int, int]], free: Sequence[int], saved: Sequence[int], bases_free: bool
) -> tuple[list[Base], list[int]]:
    """Chooses bases and registers for offsets of rows. Each register gets the use that saves most bytes of code: the
    time of a long program is the time to fetch its code from the L2 cache, once for every W states.

    Args:
        offsets: how often the offset at each place is loaded.
        far: how many instructions a base would shorten, by pointer and start.
        free: caller-saved registers, which cost nothing.
        saved: callee-saved registers.
        bases_free: True if bases may use free registers.
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
    """How often the offset at each place is loaded. The offsets of first rows, at the places `firsts`, are zero and do
    not count."""
    none = set(firsts)
    return Counter(~x for operation, _, _, x in code if operation == MOV_OFFSET and ~x not in none)


def kept(
    code: Sequence[Instruction], registers: Sequence[int], loads: Counter[int], firsts: Iterable[int]
) -> tuple[list[Instruction], dict[int, int]]:
    """Replace the most frequent loads of offsets by registers that hold these offsets. Returns the instructions, and
    the registers by place.

    `loads`: see `offset_loads`; `firsts`: places of the offsets of first rows, which are zero.
    """
    none = dict.fromkeys(firsts, NO_INDEX)
    often = [place for place, times in loads.most_common(len(registers)) if times > 1]
    register_of = dict(zip(often, registers, strict=False))
    where = register_of | none
    return [
        (USE_OFFSET, where[~x], 0, 0) if c == MOV_OFFSET and ~x in where else (c, d, a, x) for c, d, a, x in code
    ], register_of


def copying(code: Sequence[Instruction], arrays: Iterable[tuple[int, int, int]], register: int) -> list[Instruction]:
    """Insert streaming copies of vectors, evenly spaced between the instructions.

    A processor continues to compute while its stores wait for memory, as long as not too many are pending.

    Args:
        code: instructions that use neither `register` nor the registers of `COPIED_FROM` and `COPIED_TO`.
        arrays: for each array, the places of the source and target addresses, and the number of vectors.
        register: a vector register for the copies.
    """
    copies: list[list[Instruction]] = []
    for source, target, count in arrays:
        for k in range(count):
            copies.append([(LOAD, register, 0, ~(ARRAYS + COPIED_FROM * SPACE + k))])
            copies[-1].append((MOVNT, register, 0, ~(ARRAYS + COPIED_TO * SPACE + k)))
            if k == 0:
                copies[-1][:0] = [(MOV_POINTER, COPIED_FROM, 0, ~source), (MOV_POINTER, COPIED_TO, 0, ~target)]
    result: list[Instruction] = []
    done = 0
    for k, each in enumerate(copies, 1):
        upto = k * len(code) // (len(copies) + 1)
        result += code[done:upto]
        result += each
        done = upto
    return result + list(code[done:])
