"""The machine code of a pool of threads, and the memory that its threads share."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache

from robodyn.compile.loops.language import (
    NULL,
    Address,
    Array,
    Integer,
    Static,
    Word,
    call,
    convert,
    exchange_if,
    leading_zeros,
    load_atomic,
    place,
    processor,
    routine,
    store_atomic,
    update,
)
from robodyn.compile.loops.llvm import Module, printed_module

LINE = 128  # bytes; processors fetch cache lines of 64 in pairs
SLEEPING = {
    "futex": ("syscall",),
    "pthread": ("pthread_mutex_lock", "pthread_mutex_unlock", "pthread_cond_wait", "pthread_cond_broadcast"),
}
"""Functions of the C library that each way to sleep needs."""
_FUTEX = {"x86_64": 202, "aarch64": 98}  # number of the system call
_WAIT, _WAKE = 128, 129  # what it shall do, for the threads of one process


class State(ctypes.Structure):
    """What the threads of a pool share; words that different threads write lie on lines of their own."""

    _fields_ = (
        ("workers", ctypes.c_int64),  # threads besides the caller that may join
        ("pauses", ctypes.c_int64),  # looks of a wait with nothing but a pause between them
        ("looks", ctypes.c_int64),  # all looks of a wait, the others after giving way, before it becomes a sleep
        ("give_way", ctypes.c_void_p),  # sched_yield
        *((name, ctypes.c_void_p) for names in SLEEPING.values() for name in names),
        ("started", ctypes.c_int32),
        ("stop", ctypes.c_int32),
        ("parallel", ctypes.c_void_p),  # the function that shares rows between threads, once it is compiled
        ("_0", ctypes.c_char * (LINE - 88)),
        ("lock", ctypes.c_int32),  # 1 while a caller has the pool
        ("_1", ctypes.c_char * (LINE - 4)),
        ("epoch", ctypes.c_int32),  # counts the batches; workers watch it
        ("sleepers", ctypes.c_int32),
        ("_2", ctypes.c_char * (LINE - 8)),
        ("gate", ctypes.c_int32),  # OPEN while there is work, WAITING while the caller sleeps, plus workers inside
        ("_3", ctypes.c_char * (LINE - 4)),
        ("next", ctypes.c_int64),  # first row that nobody has taken
        ("_4", ctypes.c_char * (LINE - 8)),
        ("kernel", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("grain", ctypes.c_int64),
        ("workspace", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
        ("_5", ctypes.c_char * (LINE - 48)),
        ("mutex", ctypes.c_char * LINE),
        ("condition", ctypes.c_char * LINE),
    )


_OPEN, _WAITING = 1 << 30, 1 << 29
MOST, AHEAD = 16, 2
"""A piece is as many times its least rows as a power of two says, as long as that is no more than so many, and than one
part in so many of what would be left for each thread: large ones at first, so that what is ready on the way from one
vector of states to the next is not begun anew all the time, and small ones at last. Of one row, pieces are one row."""


def _architecture() -> str:
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


_HERE = _architecture()


def native_sleep() -> str:
    """How idle workers sleep on this system: "futex", "pthread", or "" where there is no native pool."""
    if sys.platform.startswith("linux") and _architecture() in _FUTEX:
        return "futex"
    return "pthread" if os.name == "posix" else ""


@cache
def pool_text(sleep: str) -> str:
    """The module of a native pool: `spin`, `worker`, `parallel` and `wake_all`."""

    def export(module: Module) -> None:
        module.export(spin)
        for each in (worker, parallel, wake_all):
            module.export(each, sleep=sleep)

    return printed_module(("pool", sleep, _HERE), {}, export)


# Sleeping.


@routine
def park(pool: Array[State], word: Array[Integer], seen: Integer, sleep: Static[str]) -> None:
    """Sleep until somebody calls `unpark`. Returns at once if the word is no longer what was seen, and may return for
    no reason at all: who calls it looks again."""
    if sleep == "futex":
        call(Word, pool.syscall, _FUTEX[_HERE], word, _WAIT, convert(Word, seen), NULL, fixed=1)
        return
    mutex, condition = place(pool, "mutex"), place(pool, "condition")
    call(Integer, pool.pthread_mutex_lock, mutex)
    if load_atomic(word, "seq_cst") == seen:
        call(Integer, pool.pthread_cond_wait, condition, mutex)
    call(Integer, pool.pthread_mutex_unlock, mutex)


@routine
def unpark(pool: Array[State], word: Array[Integer], count: Word, sleep: Static[str]) -> None:
    """Wake so many threads that sleep on a word, or all."""
    if sleep == "futex":
        call(Word, pool.syscall, _FUTEX[_HERE], word, _WAKE, count, fixed=1)
        return
    mutex = place(pool, "mutex")
    call(Integer, pool.pthread_mutex_lock, mutex)
    call(Integer, pool.pthread_cond_broadcast, place(pool, "condition"))
    call(Integer, pool.pthread_mutex_unlock, mutex)


@routine
def wake_all(pool: Array[State], sleep: Static[str]) -> None:
    """Wake all workers, to see that there is a new batch, or that they shall end."""
    epoch = place(pool, "epoch")
    update(epoch, "add", 1, "seq_cst")
    unpark(pool, epoch, (1 << 31) - 1, sleep)


# Waiting.


def pause() -> None:
    """Leave the processor's core to its other thread for a moment."""
    if _HERE == "x86_64":
        processor("x86.sse2.pause")
    elif _HERE == "aarch64":
        processor("aarch64.hint", 1)


@routine
def spin(count: Word) -> None:
    """So many pauses, to measure them."""
    for _ in range(count):
        pause()


@routine
def linger(pool: Array[State], looks: Word) -> None:
    """The time between two looks of a wait. After the first few it gives way: where processors are short, the thread
    that is waited for may be the next in line for this one."""
    if looks < pool.pauses:
        pause()
    else:
        call(Integer, pool.give_way)


def next_epoch(pool: Array[State], epoch: Array[Integer], seen: Integer, sleep: Static[str]) -> Integer:
    """Wait for a batch after the one that was seen."""
    for looks in range(pool.looks):
        now = load_atomic(epoch, "acquire")
        if now != seen:
            return now
        linger(pool, looks)
    sleepers = place(pool, "sleepers")
    update(sleepers, "add", 1, "seq_cst")
    while True:
        park(pool, epoch, seen, sleep)
        now = load_atomic(epoch, "seq_cst")
        if now != seen:
            break
    update(sleepers, "sub", 1, "seq_cst")
    return now


# Batches. The caller opens the gate, takes part, closes the gate, and waits until the last worker inside has left. A
# worker that comes late finds the gate closed and touches nothing of a batch that may be gone, so nobody waits for
# sleepers.


@routine
def run_pieces(pool: Array[State], participant: Word) -> None:
    """Take pieces of the batch and run them, as long as there are any."""
    kernel, table, rows, grain = pool.kernel, pool.table, pool.rows, pool.grain
    workspace = pool.workspace
    own = NULL if workspace == NULL else workspace + participant * pool.stride
    threads = load_atomic(place(pool, "workers"), "monotonic") + 1
    enough = threads * grain * AHEAD
    most = 1 if grain == 1 else MOST
    next_row = place(pool, "next")
    while True:
        first = load_atomic(next_row, "monotonic")
        if first >= rows:
            return
        times = min(max((rows - first) // enough, 1), most)
        end = first + (grain << (63 - leading_zeros(times)))
        if exchange_if(next_row, first, end, "monotonic"):
            call(None, kernel, table, first, min(end, rows), own)


@routine
def worker(pool: Array[State], participant: Word, sleep: Static[str]) -> None:
    """A thread of the pool: wait for batches and take part in them, until the pool stops."""
    epoch, gate = place(pool, "epoch"), place(pool, "gate")
    seen = load_atomic(epoch, "acquire") - 1
    while True:
        seen = next_epoch(pool, epoch, seen, sleep)
        if load_atomic(place(pool, "stop"), "acquire") != 0:
            return
        if load_atomic(gate, "acquire") & _OPEN == 0:
            continue
        if update(gate, "add", 1, "acq_rel") & _OPEN != 0:
            run_pieces(pool, participant)
        if update(gate, "sub", 1, "acq_rel") == _WAITING | 1:
            unpark(pool, gate, 1, sleep)


@routine
def close(pool: Array[State], sleep: Static[str]) -> None:
    """Close the gate, and wait until nobody is inside."""
    gate = place(pool, "gate")
    update(gate, "and", ~_OPEN, "acq_rel")
    for looks in range(pool.looks):
        if load_atomic(gate, "acquire") == 0:
            return
        linger(pool, looks)
    while True:
        inside = update(gate, "or", _WAITING, "acq_rel") | _WAITING
        if inside == _WAITING:
            break
        park(pool, gate, inside, sleep)
    update(gate, "and", ~_WAITING, "acq_rel")


@routine
def parallel(
    pool: Array[State],
    kernel: Address,
    table: Address,
    rows: Word,
    wanted: Word,
    workspace: Address,
    stride: Word,
    sleep: Static[str],
) -> None:
    """Run a kernel on the rows of a batch: in pieces of `wanted` rows or more, or alone where that makes one piece,
    where there is no worker, or where another caller has the pool."""
    if rows <= 0:
        return
    grain = min(max(wanted, 1), rows)
    workers = load_atomic(place(pool, "workers"), "monotonic")
    lock = place(pool, "lock")
    if grain >= rows or workers <= 0 or not exchange_if(lock, 0, 1, "acquire"):
        call(None, kernel, table, 0, rows, workspace)
        return
    pool.kernel, pool.table = kernel, table
    pool.rows, pool.grain = rows, grain
    pool.workspace, pool.stride = workspace, stride
    store_atomic(place(pool, "next"), 0, "monotonic")
    update(place(pool, "gate"), "or", _OPEN, "acq_rel")
    epoch = place(pool, "epoch")
    update(epoch, "add", 1, "seq_cst")
    if load_atomic(place(pool, "sleepers"), "seq_cst") != 0:
        unpark(pool, epoch, min((rows - 1) // grain, workers), sleep)
    run_pieces(pool, 0)
    close(pool, sleep)
    store_atomic(lock, 0, "release")
