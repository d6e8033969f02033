"""The allocator with a pool of memory for results (`robodyn.engines.buffer_pool`): functions with loops.

A block starts 64 bytes before its array's data, with the block's size in bytes while an array uses it.
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
"""Upper limit for the bytes of an array."""


@routine
def kept_malloc(kept: Array[Kept], size: Word) -> Address:
    """Memory for an array: the smallest block in the pool that is large enough and at most a quarter too large, or a
    new one."""
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
    """Memory of zeros for an array: always new pages, which are zero."""
    if leading_zeros(count | 1) + leading_zeros(size | 1) < 128 - _MOST_BITS:  # the product may overflow
        return NULL
    return fresh(kept, count * size)


@routine
def kept_free(kept: Array[Kept], data: Address, size: Word) -> None:
    """Put an array's block into the pool, or return it to the system."""
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
    """Resize an array's memory. The block remains the same if it has room, else the numbers are copied."""
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
    """Return all blocks of the pool to the system. Returns their bytes."""
    if not locked(kept):
        return 0
    held: Word = kept.held
    i = oldest(kept)
    while i >= 0:
        give_back(kept, i)
        i = oldest(kept)
    unlock(kept)
    return held


# The lock: a thread that finds it taken does not wait, but works without the pool.


def locked(kept: Array[Kept]) -> Flag:
    """Try to take the lock; True if that worked."""
    return exchange_if(place(kept, "lock"), 0, 1, "acquire")


def unlock(kept: Array[Kept]) -> None:
    """Release the lock."""
    store_atomic(place(kept, "lock"), 0, "release")


# The pool. These functions require the lock.


def smallest(kept: Array[Kept], least: Word, most: Word) -> Word:
    """The place of the smallest block of `least` to `most` bytes, or -1."""
    best, fewest = -1, _MOST
    for i in range(convert(Word, PLACES)):
        there = kept.places + i
        size = there.bytes
        if there.start != NULL and least <= size <= most and size < fewest:
            best, fewest = i, size
    return best


@routine
def oldest(kept: Array[Kept]) -> Word:
    """The place of the block that has been in the pool for longest, or -1."""
    best, earliest = -1, _MOST
    for i in range(convert(Word, PLACES)):
        there = kept.places + i
        since = there.since
        if there.start != NULL and since < earliest:
            best, earliest = i, since
    return best


def empty(kept: Array[Kept]) -> Word:
    """A place without a block, or -1."""
    for i in range(convert(Word, PLACES)):
        if kept.places[i].start == NULL:
            return i
    return -1


def taken(kept: Array[Kept], i: Word) -> Address:
    """Remove the block of a place from the pool."""
    there = kept.places + i
    block: Address = there.start
    kept.held -= there.bytes
    there.start = NULL
    return block


@routine
def give_back(kept: Array[Kept], i: Word) -> None:
    """Return the block of a place to the system."""
    size = kept.places[i].bytes
    unmap(kept, taken(kept, i), size)


def mark_old(kept: Array[Kept], clock: Word) -> None:
    """Let the system take pages of blocks that have been in the pool for a while. The lock prevents their reuse
    meanwhile."""
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
    """A new block for an array of `size` bytes. If the system is out of memory, the pool is released first."""
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
    """Return pages to the system."""
    call(Integer, kept.munmap, block, size)


def advise(kept: Array[Kept], block: Address, size: Word, what: Static[int]) -> None:
    """Call `madvise` for a block of huge pages."""
    if size >= HUGE_FROM_BYTES:
        call(Integer, kept.madvise, block, size, convert(Integer, what))
