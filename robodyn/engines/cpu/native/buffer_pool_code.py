"""The allocator of memory that is kept for results (`robodyn.engines.buffer_pool`): functions with loops.

A block starts 64 bytes before its array; its size in bytes is there while an array has it.
"""

from __future__ import annotations

import mmap

from robodyn.compile.loops.language import (
    NULL,
    Address,
    Array,
    Flag,
    Integer,
    Static,
    Word,
    Words,
    array,
    call,
    convert,
    exchange_if,
    leading_zeros,
    place,
    routine,
    store_atomic,
    unsigned_less,
)
from robodyn.engines.buffer_pool import HEAD, HUGE_PAGE, PLACES, STEP, Kept
from robodyn.internals.tuning import HUGE_FROM_BYTES, MARKED_AFTER, MARKED_FROM_BYTES

_MADV_HUGEPAGE, _MADV_FREE = 14, 8
_READ_WRITE = 3  # PROT_READ and PROT_WRITE
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS if hasattr(mmap, "MAP_ANONYMOUS") else 0
_MOST_BITS = 62
_MOST = 1 << _MOST_BITS
"""No array has so many bytes."""


@routine
def kept_malloc(kept: Array[Kept], size: Word) -> Address:
    """Memory for an array: the smallest block that waits and is at most a quarter too large, or a new one."""
    wanted = block_bytes(size)
    if locked(kept):
        i = smallest(kept, wanted, wanted + (wanted >> 2))
        if i >= 0:
            own = kept.places[i].bytes
            block = taken(kept, i)
            array(Word, block)[0] = own
            unlock(kept)
            return block + HEAD
        unlock(kept)
    return fresh(kept, size)


@routine
def kept_calloc(kept: Array[Kept], count: Word, size: Word) -> Address:
    """The same of zeros, as new blocks are."""
    if leading_zeros(count | 1) + leading_zeros(size | 1) < 128 - _MOST_BITS:  # too large to be multiplied, perhaps
        return NULL
    return fresh(kept, count * size)


@routine
def kept_free(kept: Array[Kept], data: Address, size: Word) -> None:
    """An array's block waits for the next one, or goes back to the system."""
    if data == NULL:
        return
    block = data - HEAD
    own, limit = array(Word, block)[0], kept.limit
    if own <= limit:
        at_once = own >= MARKED_FROM_BYTES
        if at_once:
            advise(kept, block, own, _MADV_FREE)
        if locked(kept):
            i = empty(kept)
            while i < 0 or kept.held + own > limit:
                give_back(kept, oldest(kept))
                i = empty(kept)
            there, clock = kept.places + i, kept.clock
            kept.clock, kept.held = clock + 1, kept.held + own
            there.start, there.bytes, there.since, there.marked = block, own, clock, int(at_once)
            mark_old(kept, clock)
            unlock(kept)
            return
    unmap(kept, block, own)


@routine
def kept_realloc(kept: Array[Kept], data: Address, size: Word) -> Address:
    """Memory of another size with the numbers of an array; the same where the block has room."""
    if data == NULL:
        return kept_malloc(kept, size)
    room = array(Word, data - HEAD)[0] - HEAD
    if not unsigned_less(room, size):
        return data
    larger = kept_malloc(kept, size)
    if larger == NULL:
        return NULL
    lines, source = array(Words, larger), array(Words, data)
    for k in range(room >> 6):
        lines[k] = source[k]
    kept_free(kept, data, room)
    return larger


@routine
def kept_release(kept: Array[Kept]) -> Word:
    """Give all that waits back to the system; how many bytes it was."""
    if not locked(kept):
        return 0
    held: Word = kept.held
    i = oldest(kept)
    while i >= 0:
        give_back(kept, i)
        i = oldest(kept)
    unlock(kept)
    return held


# The lock: a thread that finds it taken does not wait, but does without what waits.


def locked(kept: Array[Kept]) -> Flag:
    """Take the lock, if it is free; whether it was."""
    return exchange_if(place(kept, "lock"), 0, 1, "acquire")


def unlock(kept: Array[Kept]) -> None:
    """Leave the lock to others."""
    store_atomic(place(kept, "lock"), 0, "release")


# Blocks that wait. All this is for whoever has the lock.


def smallest(kept: Array[Kept], least: Word, most: Word) -> Word:
    """The place of the smallest block from `least` to `most` bytes, or -1."""
    best, fewest = -1, _MOST
    for i in range(convert(Word, PLACES)):
        there = kept.places + i
        size = there.bytes
        if there.start != NULL and least <= size <= most and size < fewest:
            best, fewest = i, size
    return best


@routine
def oldest(kept: Array[Kept]) -> Word:
    """The place of the block that waits for longest, or -1."""
    best, earliest = -1, _MOST
    for i in range(convert(Word, PLACES)):
        there = kept.places + i
        since = there.since
        if there.start != NULL and since < earliest:
            best, earliest = i, since
    return best


def empty(kept: Array[Kept]) -> Word:
    """A place where no block waits, or -1."""
    for i in range(convert(Word, PLACES)):
        if kept.places[i].start == NULL:
            return i
    return -1


def taken(kept: Array[Kept], i: Word) -> Address:
    """The block of a place, which is empty from now on."""
    there = kept.places + i
    block: Address = there.start
    kept.held -= there.bytes
    there.start = NULL
    return block


@routine
def give_back(kept: Array[Kept], i: Word) -> None:
    """Give the block of a place back to the system."""
    size = kept.places[i].bytes
    unmap(kept, taken(kept, i), size)


def mark_old(kept: Array[Kept], clock: Word) -> None:
    """Let the system have pages of blocks that waited while others came back. Nobody takes one meanwhile."""
    for i in range(convert(Word, PLACES)):
        there = kept.places + i
        if there.start != NULL and there.since <= clock - MARKED_AFTER and there.marked == 0:
            advise(kept, there.start, there.bytes, _MADV_FREE)
            there.marked = 1


# The system.


def block_bytes(size: Word) -> Word:
    """Bytes of a block for an array of `size`."""
    step = HUGE_PAGE if size >= HUGE_FROM_BYTES else STEP
    return (size + HEAD + step - 1) & -step


@routine
def fresh(kept: Array[Kept], size: Word) -> Address:
    """A new block for an array of `size` bytes: where the system has none, what waits is given back first."""
    if not unsigned_less(size, _MOST):
        return NULL
    wanted = block_bytes(size)
    block = mapped(kept, wanted)
    if block == NULL:
        kept_release(kept)
        block = mapped(kept, wanted)
        if block == NULL:
            return NULL
    return block + HEAD


@routine
def mapped(kept: Array[Kept], size: Word) -> Address:
    """A block of new pages, or null."""
    how, flags, no_file = (convert(Integer, each) for each in (_READ_WRITE, _FLAGS, -1))
    block = call(Address, kept.mmap, NULL, size, how, flags, no_file, 0)
    if block == -1:
        return NULL
    advise(kept, block, size, _MADV_HUGEPAGE)
    array(Word, block)[0] = size
    return block


def unmap(kept: Array[Kept], block: Address, size: Word) -> None:
    """Give pages back to the system."""
    call(Integer, kept.munmap, block, size)


def advise(kept: Array[Kept], block: Address, size: Word, what: Static[int]) -> None:
    """Tell the system something about a block of huge pages."""
    if size >= HUGE_FROM_BYTES:
        call(Integer, kept.madvise, block, size, convert(Integer, what))
