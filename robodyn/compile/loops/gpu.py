"""Operations that functions of GPU kernels may use besides those of `language`.

They also run as plain Python inside `run_blocks`: each GPU thread is then a Python thread, and barriers synchronise
them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from robodyn.compile.loops.language import Array, Integer, Static, Word, local, primitive
from robodyn.internals.records import dataclass

T = TypeVar("T")
WARP = 32
"""Number of threads in a warp."""


class OutsideError(Exception):
    """A function asks for its thread outside of `run_blocks`."""


@dataclass(eq=False)
class _Block:
    """A thread block that runs as Python: its index, the grid's sizes, barriers, and shared memory in the order in
    which threads request it."""

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
    """The current block and thread."""

    block: _Block | None = None
    thread = 0
    asked = 0


_HERE = _Here()


def _block() -> _Block:
    if _HERE.block is None:
        raise OutsideError("there are no blocks of threads here: see run_blocks")
    return _HERE.block


def run_blocks(blocks: int, threads: int, kernel: Callable[..., None], *arguments: Any, **known: Any) -> None:
    """Run a kernel as Python, one block after another."""
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


# Thread and block indices.


@primitive
def thread() -> Integer:
    """Index of the thread in its block."""
    _block()
    return Integer(_HERE.thread)


@primitive
def block() -> Integer:
    """Index of the block in the grid."""
    return Integer(_block().number)


@primitive
def blocks() -> Integer:
    """Number of blocks in the grid."""
    return Integer(_block().blocks)


def lane() -> Integer:
    """Index of the thread in its warp."""
    return thread() % WARP


def first_work(threads: Static[int]) -> Word:
    """Index of the thread in the grid, whose blocks have `threads` threads."""
    return Word(block()) * threads + thread()


def all_threads(threads: Static[int]) -> Word:
    """Number of threads in the grid, whose blocks have `threads` threads."""
    return Word(blocks()) * threads


# Loops over known numbers that are printed as loops.


def rolled(count: int) -> range:
    """0, 1, ... count - 1 in a loop that the compiler must not unroll."""
    return range(count)


def unrolled(*bounds: int, times: int = 0) -> range:
    """The numbers of `range` in a loop that the compiler unrolls, so that arrays indexed by them stay in registers.

    `times`: the unroll factor; 0: complete unrolling.
    """
    return range(*bounds)


@primitive
def distance(first: Array[T], second: Array[T]) -> Word:
    """Number of values between two addresses: how far the second one is behind the first."""
    return (int(second) - int(first)) // int(first.to.size)


# Shared memory, and exchange between threads.


@primitive
def shared(of: type[T], count: int, alignment: int = 0) -> Array[T]:
    """Shared memory of the block for `count` values. `alignment`: in bytes; 0 for that of the values."""
    here = _block()
    with here.lock:
        if _HERE.asked == len(here.memory):
            here.memory.append(local(of, count))
        _HERE.asked += 1
        return cast("Array[T]", here.memory[_HERE.asked - 1])


@primitive
def pool(of: type[T], count: int) -> Array[T]:
    """The block's dynamic shared memory, whose size is set when the kernel is launched. A kernel has at most one."""
    return shared(of, count)


@primitive
def barrier() -> None:
    """Wait for all threads of the block. Afterwards each thread sees the others' earlier writes."""
    _block().barrier.wait()


@primitive
def warp_barrier() -> None:
    """Wait for all threads of the warp, likewise."""
    _block().warps[_HERE.thread // WARP].wait()


def _exchanged(value: T, source: int) -> T:
    """The value of another lane, or the own value if there is no such lane."""
    here = _block()
    here.lanes[_HERE.thread] = value
    warp_barrier()
    first = _HERE.thread // WARP * WARP
    found = here.lanes[first + source] if 0 <= source < WARP and first + source < here.threads else value
    warp_barrier()
    return cast(T, found)


@primitive
def from_before(value: T, distance: int) -> T:
    """The value of the lane `distance` places before this one; the own value if there is no such lane."""
    return _exchanged(value, _HERE.thread % WARP - distance)


@primitive
def from_behind(value: T, distance: int) -> T:
    """The value of the lane `distance` places after this one; the own value if there is no such lane."""
    return _exchanged(value, _HERE.thread % WARP + distance)


@primitive
def from_lane(value: T, lane: int) -> T:
    """The value of a lane."""
    return _exchanged(value, lane)
