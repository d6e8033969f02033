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
"""Functions of the C library for each way to sleep."""
_FUTEX = {"x86_64": 202, "aarch64": 98}  # number of the system call
_WAIT, _WAKE = 128, 129  # FUTEX_WAIT and FUTEX_WAKE, for threads of one process


class State(ctypes.Structure):
    """Shared memory of a pool's threads. Words that different threads write are on different cache lines."""

    _fields_ = (
        ("workers", ctypes.c_int64),  # threads besides the caller that may join
        ("pauses", ctypes.c_int64),  # a waiting thread first polls so many times, with a pause in between
        ("looks", ctypes.c_int64),  # polls in all before it sleeps; it yields between those after the pauses
        ("give_way", ctypes.c_void_p),  # sched_yield
        *((name, ctypes.c_void_p) for names in SLEEPING.values() for name in names),
        ("started", ctypes.c_int32),
        ("stop", ctypes.c_int32),
        ("parallel", ctypes.c_void_p),  # address of `parallel`, once it is compiled
        ("_0", ctypes.c_char * (LINE - 88)),
        ("lock", ctypes.c_int32),  # 1 while a caller has the pool
        ("_1", ctypes.c_char * (LINE - 4)),
        ("epoch", ctypes.c_int32),  # number of batches; workers poll it
        ("sleepers", ctypes.c_int32),
        ("_2", ctypes.c_char * (LINE - 8)),
        ("gate", ctypes.c_int32),  # _OPEN while there is work, _WAITING while the caller sleeps, plus workers inside
        ("_3", ctypes.c_char * (LINE - 4)),
        ("next", ctypes.c_int64),  # first row that no thread has taken
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
"""Sizes of pieces. A piece has `grain` rows times a power of two: at most `MOST`, and at most 1 / `AHEAD` of each
thread's share of the remaining rows. Early pieces are large, because a program that writes the previous vector's
results during the next vector restarts with each piece. Late pieces are small, so that threads finish together. If
`grain` is 1, pieces have one row."""


def _architecture() -> str:
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


_HERE = _architecture()


def native_sleep() -> str:
    """How idle workers sleep on this system: "futex", "pthread", or "" if there is no native pool."""
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
    """Sleep until another thread calls `unpark`. Returns at once if the word has changed from `seen`, and may return
    spuriously: the caller must check the word again."""
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
    """Wake `count` threads that sleep on a word, or all of them."""
    if sleep == "futex":
        call(Word, pool.syscall, _FUTEX[_HERE], word, _WAKE, count, fixed=1)
        return
    mutex = place(pool, "mutex")
    call(Integer, pool.pthread_mutex_lock, mutex)
    call(Integer, pool.pthread_cond_broadcast, place(pool, "condition"))
    call(Integer, pool.pthread_mutex_unlock, mutex)


@routine
def wake_all(pool: Array[State], sleep: Static[str]) -> None:
    """Wake all workers, for a new batch or because the pool stops."""
    epoch = place(pool, "epoch")
    update(epoch, "add", 1, "seq_cst")
    unpark(pool, epoch, (1 << 31) - 1, sleep)


# Waiting.


def pause() -> None:
    """Pause the processor for a moment, in favour of the other hardware thread of its core."""
    if _HERE == "x86_64":
        processor("x86.sse2.pause")
    elif _HERE == "aarch64":
        processor("aarch64.hint", 1)


@routine
def spin(count: Word) -> None:
    """Pause `count` times, to measure the duration of a pause."""
    for _ in range(count):
        pause()


@routine
def linger(pool: Array[State], looks: Word) -> None:
    """The delay between two polls of a waiting thread. After the first polls the thread yields: if processors are
    scarce, the thread that it waits for may need this one."""
    if looks < pool.pauses:
        pause()
    else:
        call(Integer, pool.give_way)


def next_epoch(pool: Array[State], epoch: Array[Integer], seen: Integer, sleep: Static[str]) -> Integer:
    """Wait for a batch after the batch `seen`."""
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
# late worker finds the gate closed and does not touch the batch, which may be gone. So the caller does not wait for
# sleeping workers.


@routine
def run_pieces(pool: Array[State], participant: Word) -> None:
    """Take pieces of the batch and run them, until no rows are left."""
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
    """A thread of the pool: it waits for batches and takes part in them, until the pool stops."""
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
    """Close the gate, and wait until all workers inside have left."""
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
    """Run a kernel on the rows of a batch, in pieces of at least `wanted` rows. The caller runs all rows alone if they
    are one piece, if there are no workers, or if another caller uses the pool."""
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
