"""What functions of GPU kernels may use besides `language`.

They run as plain Python as well, inside `run_blocks`: every thread of a block is a thread of Python's then, and all of
them meet at barriers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from robodyn.compile.loops.language import Array, Integer, Static, Word, local, primitive
from robodyn.internals.records import dataclass

T = TypeVar("T")
WARP = 32
"""Threads of a warp."""


class OutsideError(Exception):
    """A function asks which thread it is, and it is none."""


@dataclass(eq=False)
class _Block:
    """A block of threads that run as Python: its number, the grid's sizes, barriers, and shared memory in the order in
    which threads ask for it."""

    number: int
    blocks: int
    threads: int
    barrier: threading.Barrier
    warps: list[threading.Barrier]
    lock: threading.Lock
    memory: list[Array[Any]]
    lanes: list[Any]
    failed: list[BaseException]


class _Here(threading.local):
    """The block and the thread that run."""

    block: _Block | None = None
    thread = 0
    asked = 0


_HERE = _Here()


def _block() -> _Block:
    if _HERE.block is None:
        raise OutsideError("there are no blocks of threads here: see run_blocks")
    return _HERE.block


def run_blocks(blocks: int, threads: int, kernel: Callable[..., None], *arguments: Any, **known: Any) -> None:
    """Run a kernel as Python, block after block."""
    for number in range(blocks):
        warps = [threading.Barrier(min(WARP, threads - first)) for first in range(0, threads, WARP)]
        block = _Block(number, blocks, threads, threading.Barrier(threads), warps, threading.Lock(), [], [], [])
        block.lanes.extend([None] * threads)

        def run(thread: int, block: _Block = block) -> None:
            _HERE.block, _HERE.thread, _HERE.asked = block, thread, 0
            try:
                kernel(*arguments, **known)
            except BaseException as error:
                block.failed.append(error)
                for each in (block.barrier, *block.warps):
                    each.abort()

        running = [threading.Thread(target=run, args=(thread,)) for thread in range(threads)]
        for each in running:
            each.start()
        for each in running:
            each.join()
        if block.failed:
            raise block.failed[0]


# Which thread it is.


@primitive
def thread() -> Integer:
    """The number of the thread in its block."""
    _block()
    return Integer(_HERE.thread)


@primitive
def block() -> Integer:
    """The number of the block in the grid."""
    return Integer(_block().number)


@primitive
def blocks() -> Integer:
    """Blocks of the grid."""
    return Integer(_block().blocks)


def lane() -> Integer:
    """The number of the thread in its warp."""
    return thread() % WARP


def first_work(threads: Static[int]) -> Word:
    """The number of the thread in the grid, whose blocks have so many threads."""
    return Word(block()) * threads + thread()


def all_threads(threads: Static[int]) -> Word:
    """Threads of the grid."""
    return Word(blocks()) * threads


# Loops over known numbers that stay loops.


def rolled(count: int) -> range:
    """0, 1, ... in a loop that the compiler does not repeat."""
    return range(count)


def unrolled(*bounds: int, times: int = 0) -> range:
    """Those of `range`, in a loop that the compiler repeats, so that arrays with such numbers are in registers.

    `times`: how many turns at once; 0: all of them.
    """
    return range(*bounds)


@primitive
def distance(first: Array[T], second: Array[T]) -> Word:
    """How many values the second place is behind the first."""
    return (int(second) - int(first)) // int(first.to.size)


# Shared memory, and what threads know of each other.


@primitive
def shared(of: type[T], count: int, alignment: int = 0) -> Array[T]:
    """Room for some values that all threads of a block have, at a multiple of so many bytes; 0: of the values' size."""
    here = _block()
    with here.lock:
        if _HERE.asked == len(here.memory):
            here.memory.append(local(of, count))
        _HERE.asked += 1
        return cast("Array[T]", here.memory[_HERE.asked - 1])


@primitive
def pool(of: type[T], count: int) -> Array[T]:
    """The shared memory of a block whose size is said when the kernel starts; a kernel has one."""
    return shared(of, count)


@primitive
def barrier() -> None:
    """All threads of a block come here before any goes on, and see what others have written."""
    _block().barrier.wait()


@primitive
def warp_barrier() -> None:
    """The same of the threads of a warp."""
    _block().warps[_HERE.thread // WARP].wait()


def _exchanged(value: T, source: int) -> T:
    """The value of another lane, or the own where there is no such lane."""
    here = _block()
    here.lanes[_HERE.thread] = value
    warp_barrier()
    first = _HERE.thread // WARP * WARP
    found = here.lanes[first + source] if 0 <= source < WARP and first + source < here.threads else value
    warp_barrier()
    return cast(T, found)


@primitive
def from_before(value: T, distance: int) -> T:
    """What the lane that many places before has of a value; the own value where there is no such lane."""
    return _exchanged(value, _HERE.thread % WARP - distance)


@primitive
def from_behind(value: T, distance: int) -> T:
    """What the lane that many places behind has."""
    return _exchanged(value, _HERE.thread % WARP + distance)


@primitive
def from_lane(value: T, lane: int) -> T:
    """What a lane has."""
    return _exchanged(value, lane)
