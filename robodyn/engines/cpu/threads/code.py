"""The machine code of a pool of threads, as a module in LLVM's language, and the memory that its threads share."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from string import Template

LINE = 128  # bytes; processors fetch cache lines of 64 in pairs
PTHREAD = ("pthread_mutex_lock", "pthread_mutex_unlock", "pthread_cond_wait", "pthread_cond_broadcast")
_FUTEX = {"x86_64": 202, "aarch64": 98}  # number of the system call


class State(ctypes.Structure):
    """What the threads of a pool share; words that different threads write lie on lines of their own."""

    _fields_ = (
        ("workers", ctypes.c_int64),  # threads besides the caller that may join
        ("pauses", ctypes.c_int64),  # looks of a wait with nothing but a pause between them
        ("looks", ctypes.c_int64),  # all looks of a wait, the others after giving way, before it becomes a sleep
        ("give_way", ctypes.c_void_p),  # sched_yield
        ("calls", ctypes.c_void_p * 4),  # functions of the C library that sleeping needs
        ("started", ctypes.c_int32),
        ("stop", ctypes.c_int32),
        ("parallel", ctypes.c_void_p),  # the function that shares rows between threads, once it is compiled
        ("_0", ctypes.c_char * (LINE - 80)),
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


# Sleeping is @park: it returns once somebody calls @unpark, at once if the word is no longer what was seen, or for no
# reason at all; who calls it looks again.
_PARK_FUTEX = """
define internal void @park(ptr %pool, ptr %word, i32 %seen) {
  $addresses
  %syscall = load ptr, ptr %at.calls, align 8
  %value = zext i32 %seen to i64
  %result = call i64 (i64, ...) %syscall(i64 $futex, ptr %word, i64 128, i64 %value, ptr null)
  ret void
}
define internal void @unpark(ptr %pool, ptr %word, i32 %count) {
  $addresses
  %syscall = load ptr, ptr %at.calls, align 8
  %value = zext i32 %count to i64
  %result = call i64 (i64, ...) %syscall(i64 $futex, ptr %word, i64 129, i64 %value)
  ret void
}
"""
_PARK_PTHREAD = """
define internal void @park(ptr %pool, ptr %word, i32 %seen) {
  $addresses
  %unlock.at = getelementptr ptr, ptr %at.calls, i64 1
  %wait.at = getelementptr ptr, ptr %at.calls, i64 2
  %lock = load ptr, ptr %at.calls, align 8
  %unlock = load ptr, ptr %unlock.at, align 8
  %wait = load ptr, ptr %wait.at, align 8
  %r0 = call i32 %lock(ptr %at.mutex)
  %now = load atomic i32, ptr %word seq_cst, align 4
  %same = icmp eq i32 %now, %seen
  br i1 %same, label %sleep, label %leave
sleep:
  %r1 = call i32 %wait(ptr %at.condition, ptr %at.mutex)
  br label %leave
leave:
  %r2 = call i32 %unlock(ptr %at.mutex)
  ret void
}
define internal void @unpark(ptr %pool, ptr %word, i32 %count) {
  $addresses
  %unlock.at = getelementptr ptr, ptr %at.calls, i64 1
  %broadcast.at = getelementptr ptr, ptr %at.calls, i64 3
  %lock = load ptr, ptr %at.calls, align 8
  %unlock = load ptr, ptr %unlock.at, align 8
  %broadcast = load ptr, ptr %broadcast.at, align 8
  %r0 = call i32 %lock(ptr %at.mutex)
  %r1 = call i32 %broadcast(ptr %at.condition)
  %r2 = call i32 %unlock(ptr %at.mutex)
  ret void
}
"""

# @parallel opens the gate, takes part, closes the gate, and waits until the last worker inside has left. A worker that
# comes late finds the gate closed and touches nothing of a batch that may be gone, so nobody waits for sleepers.
# @linger is the time between two looks of a wait: after the first few it gives way, because where processors are
# short the thread that is waited for may be the next in line for this one.
_TEXT = """
define void @spin(i64 %count) {
start:
  br label %again
again:
  %i = phi i64 [ 0, %start ], [ %more, %again ]
  $pause
  %more = add i64 %i, 1
  %on = icmp slt i64 %more, %count
  br i1 %on, label %again, label %done
done:
  ret void
}
define internal void @linger(ptr %pool, i64 %i) {
start:
  $addresses
  %pauses = load i64, ptr %at.pauses, align 8
  %early = icmp slt i64 %i, %pauses
  br i1 %early, label %hold, label %give
hold:
  $pause
  ret void
give:
  %yield = load ptr, ptr %at.give_way, align 8
  %result = call i32 %yield()
  ret void
}
define internal void @pieces(ptr %pool, i64 %participant) {
start:
  $addresses
  %kernel = load ptr, ptr %at.kernel, align 8
  %table = load ptr, ptr %at.table, align 8
  %rows = load i64, ptr %at.rows, align 8
  %grain = load i64, ptr %at.grain, align 8
  %workspace = load ptr, ptr %at.workspace, align 8
  %stride = load i64, ptr %at.stride, align 8
  %offset = mul i64 %participant, %stride
  %own = getelementptr i8, ptr %workspace, i64 %offset
  %none = icmp eq ptr %workspace, null
  %scratch = select i1 %none, ptr null, ptr %own
  %workers = load atomic i64, ptr %at.workers monotonic, align 8
  %threads = add i64 %workers, 1
  %all = mul i64 %threads, %grain
  %enough = mul i64 %all, $ahead
  %one = icmp eq i64 %grain, 1
  %most = select i1 %one, i64 1, i64 $most
  br label %take
take:
  %first = load atomic i64, ptr %at.next monotonic, align 8
  %some = icmp slt i64 %first, %rows
  br i1 %some, label %size, label %done
size:
  %left = sub i64 %rows, %first
  %times = udiv i64 %left, %enough
  %positive = call i64 @llvm.smax.i64(i64 %times, i64 1)
  %few = call i64 @llvm.smin.i64(i64 %positive, i64 %most)
  %zeros = call i64 @llvm.ctlz.i64(i64 %few, i1 true)
  %shift = sub i64 63, %zeros
  %piece = shl i64 %grain, %shift
  %end = add i64 %first, %piece
  %pair = cmpxchg ptr %at.next, i64 %first, i64 %end monotonic monotonic
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %run, label %take
run:
  %last = call i64 @llvm.smin.i64(i64 %end, i64 %rows)
  call void %kernel(ptr %table, i64 %first, i64 %last, ptr %scratch)
  br label %take
done:
  ret void
}
define void @worker(ptr %pool, i64 %participant) {
start:
  $addresses
  %looks = load i64, ptr %at.looks, align 8
  %first = load atomic i32, ptr %at.epoch acquire, align 4
  %before = sub i32 %first, 1
  br label %idle
idle:
  %seen = phi i32 [ %before, %start ], [ %now, %look ], [ %now, %leave ], [ %now, %wake ]
  br label %waiting
waiting:
  %i = phi i64 [ 0, %idle ], [ %i.next, %still ]
  %spun = load atomic i32, ptr %at.epoch acquire, align 4
  %new = icmp ne i32 %spun, %seen
  br i1 %new, label %called, label %still
still:
  call void @linger(ptr %pool, i64 %i)
  %i.next = add i64 %i, 1
  %patient = icmp slt i64 %i.next, %looks
  br i1 %patient, label %waiting, label %drowsy
drowsy:
  %s0 = atomicrmw add ptr %at.sleepers, i32 1 seq_cst
  br label %asleep
asleep:
  call void @park(ptr %pool, ptr %at.epoch, i32 %seen)
  %parked = load atomic i32, ptr %at.epoch seq_cst, align 4
  %spurious = icmp eq i32 %parked, %seen
  br i1 %spurious, label %asleep, label %awake
awake:
  %s1 = atomicrmw sub ptr %at.sleepers, i32 1 seq_cst
  br label %called
called:
  %now = phi i32 [ %spun, %waiting ], [ %parked, %awake ]
  %stop = load atomic i32, ptr %at.stop acquire, align 4
  %stopping = icmp ne i32 %stop, 0
  br i1 %stopping, label %end, label %look
look:
  %peek = load atomic i32, ptr %at.gate acquire, align 4
  %peek.open = and i32 %peek, $open
  %shut = icmp eq i32 %peek.open, 0
  br i1 %shut, label %idle, label %join
join:
  %old = atomicrmw add ptr %at.gate, i32 1 acq_rel
  %old.open = and i32 %old, $open
  %late = icmp eq i32 %old.open, 0
  br i1 %late, label %leave, label %work
work:
  call void @pieces(ptr %pool, i64 %participant)
  br label %leave
leave:
  %held = atomicrmw sub ptr %at.gate, i32 1 acq_rel
  %last = icmp eq i32 %held, $last
  br i1 %last, label %wake, label %idle
wake:
  call void @unpark(ptr %pool, ptr %at.gate, i32 1)
  br label %idle
end:
  ret void
}
define internal void @close(ptr %pool) {
start:
  $addresses
  %looks = load i64, ptr %at.looks, align 8
  %shut = atomicrmw and ptr %at.gate, i32 $not_open acq_rel
  br label %waiting
waiting:
  %i = phi i64 [ 0, %start ], [ %i.next, %still ]
  %inside = load atomic i32, ptr %at.gate acquire, align 4
  %empty = icmp eq i32 %inside, 0
  br i1 %empty, label %done, label %still
still:
  call void @linger(ptr %pool, i64 %i)
  %i.next = add i64 %i, 1
  %patient = icmp slt i64 %i.next, %looks
  br i1 %patient, label %waiting, label %drowsy
drowsy:
  %was = atomicrmw or ptr %at.gate, i32 $waiting acq_rel
  %is = or i32 %was, $waiting
  %left = icmp eq i32 %is, $waiting
  br i1 %left, label %awake, label %asleep
asleep:
  call void @park(ptr %pool, ptr %at.gate, i32 %is)
  br label %drowsy
awake:
  %clear = atomicrmw and ptr %at.gate, i32 $not_waiting acq_rel
  br label %done
done:
  ret void
}
define void @parallel(ptr %pool, ptr %kernel, ptr %table, i64 %rows, i64 %wanted, ptr %workspace, i64 %stride) {
start:
  $addresses
  %some = icmp sgt i64 %rows, 0
  br i1 %some, label %split, label %done
split:
  %positive = call i64 @llvm.smax.i64(i64 %wanted, i64 1)
  %grain = call i64 @llvm.smin.i64(i64 %positive, i64 %rows)
  %workers = load atomic i64, ptr %at.workers monotonic, align 8
  %several = icmp slt i64 %grain, %rows
  %staffed = icmp sgt i64 %workers, 0
  %shared = and i1 %several, %staffed
  br i1 %shared, label %try, label %alone
try:
  %pair = cmpxchg ptr %at.lock, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %pair, 1
  br i1 %mine, label %open, label %alone
alone:
  call void %kernel(ptr %table, i64 0, i64 %rows, ptr %workspace)
  br label %done
open:
  store ptr %kernel, ptr %at.kernel, align 8
  store ptr %table, ptr %at.table, align 8
  store i64 %rows, ptr %at.rows, align 8
  store i64 %grain, ptr %at.grain, align 8
  store ptr %workspace, ptr %at.workspace, align 8
  store i64 %stride, ptr %at.stride, align 8
  store atomic i64 0, ptr %at.next monotonic, align 8
  %opened = atomicrmw or ptr %at.gate, i32 $open acq_rel
  %called = atomicrmw add ptr %at.epoch, i32 1 seq_cst
  %sleepers = load atomic i32, ptr %at.sleepers seq_cst, align 4
  %silent = icmp eq i32 %sleepers, 0
  br i1 %silent, label %work, label %wake
wake:
  %behind = sub i64 %rows, 1
  %others = sdiv i64 %behind, %grain
  %needed = call i64 @llvm.smin.i64(i64 %others, i64 %workers)
  %count = trunc i64 %needed to i32
  call void @unpark(ptr %pool, ptr %at.epoch, i32 %count)
  br label %work
work:
  call void @pieces(ptr %pool, i64 0)
  call void @close(ptr %pool)
  store atomic i32 0, ptr %at.lock release, align 4
  br label %done
done:
  ret void
}
define void @wake_all(ptr %pool) {
  $addresses
  %called = atomicrmw add ptr %at.epoch, i32 1 seq_cst
  call void @unpark(ptr %pool, ptr %at.epoch, i32 2147483647)
  ret void
}
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.ctlz.i64(i64, i1)
"""
_PAUSES = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()\n"),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)\n"),
}
_OPEN, _WAITING = 1 << 30, 1 << 29
MOST, AHEAD = 16, 2
"""A piece is as many times its least rows as a power of two says, as long as that is no more than so many, and than one
part in so many of what would be left for each thread: large ones at first, so that what is ready on the way from one
vector of states to the next is not begun anew all the time, and small ones at last. Of one row, pieces are one row."""


def _architecture() -> str:
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def native_sleep() -> str:
    """How idle workers sleep on this system: "futex", "pthread", or "" where there is no native pool."""
    if sys.platform.startswith("linux") and _architecture() in _FUTEX:
        return "futex"
    return "pthread" if os.name == "posix" else ""


def pool_text(sleep: str) -> str:
    """The module of a native pool: `spin`, `worker`, `parallel` and `wake_all`."""
    fields = [name for name, _ in State._fields_ if not name.startswith("_")]
    at = {name: getattr(State, name).offset for name in fields}
    pause, declaration = _PAUSES.get(_architecture(), ("", ""))
    words = {
        "addresses": "\n".join(
            f"  %at.{name} = getelementptr i8, ptr %pool, i64 {at[name]}" for name in fields
        ).strip(),
        "futex": _FUTEX.get(_architecture(), 0),
        "pause": pause,
        "most": MOST,
        "ahead": AHEAD,
        "open": _OPEN,
        "not_open": ~_OPEN,
        "waiting": _WAITING,
        "not_waiting": ~_WAITING,
        "last": _WAITING | 1,
    }
    park = {"futex": _PARK_FUTEX, "pthread": _PARK_PTHREAD}[sleep]
    return Template(park + _TEXT).substitute(words) + declaration
