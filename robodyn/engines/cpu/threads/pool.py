"""A pool of threads that runs a compiled kernel over the rows of a batch.

A batch of some thousand states takes tens of microseconds, so distributing it must take far less. Threads therefore
never touch the interpreter: each of them stays inside one native call, and batches are distributed by machine code.
Idle threads poll for work for some tens of microseconds and then sleep.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from robodyn.compile.llvm.jit import Code, compile_object
from robodyn.compile.llvm.target import host_target
from robodyn.engines.cpu.threads.code import AHEAD, LINE, MOST, SLEEPING, State, native_sleep, pool_text
from robodyn.internals import forks
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import PAUSE_SECONDS, YIELDS

EXIT_SECONDS = 1.0
"""Maximal time that the interpreter's exit waits for workers inside a kernel, s."""


def default_threads() -> int:
    """Number of processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def compile_text(text: str) -> Code:
    """Compile and load a module for this processor."""
    target = host_target()
    return Code(compile_object(text, target, 2), target)


@dataclass(frozen=True)
class _Functions:
    """Functions of a compiled pool, shared by all pools with the same way to sleep."""

    worker: Callable[[int, int], None]
    parallel: Callable[[int, int, int, int, int, int, int], None]
    wake_all: Callable[[int], None]
    parallel_address: int
    give_way: int
    calls: dict[str, int]
    pauses: int


_LOCK = forks.lock()
_CODE: dict[str, Code] = {}
_FUNCTIONS: dict[str, _Functions] = {}
_SHARED: dict[int, Pool] = {}
_POOLS: list[Pool] = []


def load_once(text: str, load: Callable[[str], Code]) -> Code:
    """The code of a module that the whole process shares, compiled by `load` on first use.

    It is never unloaded: threads may still run it while the interpreter shuts down.
    """
    with _LOCK:
        if text not in _CODE:
            _CODE[text] = load(text)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(_CODE[text]))
        return _CODE[text]


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _functions(sleep: str, load: Callable[[str], Code]) -> _Functions:
    with _LOCK:
        if sleep not in _FUNCTIONS:
            _FUNCTIONS[sleep] = _functions_of(load_once(pool_text(sleep), load), sleep)
        return _FUNCTIONS[sleep]


def _functions_of(code: Code, sleep: str) -> _Functions:
    word, library = ctypes.c_int64, ctypes.CDLL(None)
    return _Functions(
        ctypes.CFUNCTYPE(None, word, word)(code.address("worker")),
        ctypes.CFUNCTYPE(None, *(word,) * 7)(code.address("parallel")),
        ctypes.CFUNCTYPE(None, word)(code.address("wake_all")),
        code.address("parallel"),
        _address(library.sched_yield),
        {name: _address(getattr(library, name)) for name in SLEEPING[sleep]},
        _pauses(ctypes.CFUNCTYPE(None, word)(code.address("spin"))),
    )


class _Better:
    """Replaces the pool's first code by optimized code (`tiered_compilation.later`), for later batches and threads.
    Threads that still run the first code may share a batch with the others: both versions use the same `State`."""

    def replace(self, code: Code) -> None:
        """Let all pools that sleep as this system does use the code, including later pools."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))  # never unloaded; see `load_once`
        sleep = native_sleep()
        with _LOCK:
            _FUNCTIONS[sleep] = functions = _functions_of(code, sleep)
            for pool in tuple(_POOLS):
                pool.go_on_with(functions, sleep)


BETTER_POOLS = _Better()


def _pauses(spin: Callable[[int], None], count: int = 1000) -> int:
    """Number of pauses that take `PAUSE_SECONDS`. The duration of a pause depends on the processor."""

    def once() -> float:
        start = time.perf_counter()
        spin(count)
        return time.perf_counter() - start

    return max(int(PAUSE_SECONDS / max(min(once() for _ in range(5)), 1e-9) * count), 1)


class Pool:
    """Threads that run kernels over the rows of a batch, together with the calling thread.

    The pool runs one batch at a time. A caller that finds it busy runs its rows alone, so no more threads work than
    requested, plus callers. The pool's code is loaded by its first batch; threads start with the first batch of several
    pieces. In a forked child they start again. A pool exists until the process ends.

    Args:
        threads: working threads, including the caller.
        sleep: see `native_sleep`; "" runs the pieces through `concurrent.futures`, as do pools whose code does not
            compile.
        load: compiles the pool's code, once per process, e.g. through a cache.

    Attributes:
        pointer: address of the native pool, first argument of `parallel`; 0 if there is none.
    """

    def __init__(self, threads: int, *, sleep: str | None = None, load: Callable[[str], Code] = compile_text) -> None:
        self.threads, self.pointer = threads, 0
        self._closed = False
        self._workers: list[threading.Thread] = []
        self._executor: ThreadPoolExecutor | None = None
        self._sleep, self._load = native_sleep() if sleep is None else sleep, load
        self._functions: _Functions | None = None
        if self._sleep:
            # Never freed: workers read it until the process ends.
            allocate = ctypes.pythonapi.PyMem_RawCalloc
            allocate.restype, allocate.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)
            self.pointer = -(-(allocate(1, ctypes.sizeof(State) + LINE) or 0) // LINE) * LINE
            if not self.pointer:
                raise MemoryError
            self._state = State.from_address(self.pointer)
        self.reset()
        _POOLS.append(self)

    def reset(self) -> None:
        """Forget threads and batches. A forked child has none, whatever the parent was doing."""
        self._start_lock = threading.RLock()  # a signal handler may use the pool while this thread starts it
        self._busy = threading.Lock()
        self._workers, self._executor = [], None
        if self._sleep:
            ctypes.memset(self.pointer, 0, ctypes.sizeof(State))
            if self._functions is not None:
                self._equip(self._functions)

    def _equip(self, functions: _Functions) -> None:
        self._state.pauses, self._state.looks = functions.pauses, functions.pauses + YIELDS
        self._state.give_way = functions.give_way
        for name, address in functions.calls.items():
            setattr(self._state, name, address)
        if self._sleep == "pthread":
            library = ctypes.CDLL(None)
            library.pthread_mutex_init(ctypes.c_void_p(self.pointer + State.mutex.offset), None)
            library.pthread_cond_init(ctypes.c_void_p(self.pointer + State.condition.offset), None)
        self._state.parallel = functions.parallel_address

    def _native(self) -> _Functions | None:
        """The pool's functions; None if there is no native pool."""
        if self._functions is None and self._sleep and not self._closed:
            with self._start_lock:
                if self._functions is None:
                    try:
                        functions = _functions(self._sleep, self._load)
                    except UnavailableError:  # does not compile here; use Python's threads
                        self._sleep = ""
                    else:
                        self._equip(functions)
                        self._functions = functions
        return self._functions

    def go_on_with(self, functions: _Functions, sleep: str) -> None:
        """Use other code for the next batches, if this pool sleeps that way and has code."""
        if self._functions is not None and self._sleep == sleep:
            self._functions = functions
            self._state.parallel = functions.parallel_address

    @property
    def parallel(self) -> int:
        """Address of `void parallel(ptr pool, ptr kernel, ptr table, i64 rows, i64 grain, ptr workspace, i64
        workspace_stride)`, 0 if there is no native pool.

        It runs `kernel(table, first, last, workspace + k * workspace_stride)` on pieces of `grain` rows or more
        (`MOST`), where k < threads is the thread's index; a null workspace stays null. Pieces are taken in order, so a
        piece may wait for those before it. It does not start threads.
        """
        functions = self._native()
        return 0 if functions is None else functions.parallel_address

    @property
    def give_way(self) -> int:
        """Address of `sched_yield`, which waiting threads call; 0 if there is no native pool."""
        functions = self._native()
        return 0 if functions is None else functions.give_way

    @property
    def sleeping(self) -> int:
        """Number of sleeping workers."""
        return int(self._state.sleepers) if self._sleep else 0

    def start(self) -> None:
        """Start the threads, as many as the system allows, unless they run."""
        with self._start_lock:
            if self._closed or not self._sleep or self._state.started:
                return
            functions = self._native()
            if functions is None:
                return
            while len(self._workers) < self.threads - 1:
                number = len(self._workers) + 1
                thread = threading.Thread(
                    target=functions.worker, args=(self.pointer, number), name=f"robodyn-{number}", daemon=True
                )
                self._workers.append(thread)  # before its start: after an interrupt, its number must not be reused
                try:
                    thread.start()
                except (RuntimeError, MemoryError):
                    self._workers.pop()
                    break
            self._state.workers = len(self._workers)
            self._state.started = 1

    def run(
        self, kernel: int, table: int, rows: int, grain: int, workspace: int = 0, workspace_stride: int = 0
    ) -> None:
        """Run a kernel on rows 0 <= r < rows. Returns when all rows are done.

        Args:
            kernel: address of a `void kernel(ptr table, i64 first, i64 last, ptr workspace)`.
            table: address of its table of arrays.
            rows: number of rows of the batch.
            grain: minimal rows of a piece; a batch of one piece runs on the calling thread.
            workspace: address of scratch memory for `threads` threads, or 0.
            workspace_stride: bytes of scratch memory per thread.
        """
        functions = self._native()
        if functions is not None:
            if grain < rows and not self._state.started:
                self.start()
            functions.parallel(self.pointer, kernel, table, rows, grain, workspace, workspace_stride)
        elif rows > 0:
            self._run_futures(kernel, table, rows, max(grain, 1), workspace, workspace_stride)

    def run_tasks(self, kernel: int, table: int, tasks: int, workspace: int) -> None:
        """Run a kernel on tasks 0 <= t < tasks, in a workspace that all threads share. A task may wait for earlier
        tasks.

        Without a native pool the caller runs all tasks in order: a Python thread may be interrupted after it took a
        task and before it begins, and others would wait for that task for ever.
        """
        if self._native() is not None:
            self.run(kernel, table, tasks, 1, workspace)
        else:
            word = ctypes.c_int64
            ctypes.CFUNCTYPE(None, word, word, word, word)(kernel)(table, 0, tasks, workspace)

    def _run_futures(self, kernel: int, table: int, rows: int, grain: int, workspace: int, stride: int) -> None:
        word = ctypes.c_int64
        function = ctypes.CFUNCTYPE(None, word, word, word, word)(kernel)
        if self._closed or self.threads == 1 or grain >= rows or not self._busy.acquire(blocking=False):
            function(table, 0, rows, workspace)
            return
        pieces = deque(_pieces(rows, grain, self.threads))

        def take(participant: int) -> None:
            with contextlib.suppress(IndexError):
                while True:
                    first, last = pieces.popleft()
                    function(table, first, last, workspace and workspace + participant * stride)

        others: list[Future[None]] = []
        try:
            with contextlib.suppress(RuntimeError):  # no more threads, or the interpreter exits: fewer threads work
                self._executor = self._executor or ThreadPoolExecutor(self.threads - 1, "robodyn")
                others.extend(self._executor.submit(take, k) for k in range(1, min(self.threads, len(pieces))))
            take(0)
        finally:
            pieces.clear()
            for other in others:
                other.cancel()
            _wait_for(others)
            self._busy.release()

    def close(self, seconds: float = EXIT_SECONDS) -> None:
        """End the threads, and wait at most `seconds` for those inside a kernel. Later batches run on the calling
        thread."""
        self.stop()
        until = time.monotonic() + seconds
        for thread in self._workers:
            with contextlib.suppress(RuntimeError):  # the thread's start was interrupted
                thread.join(max(until - time.monotonic(), 0.0))

    def stop(self) -> None:
        """Tell the threads to end, without waiting for them."""
        with self._start_lock:
            self._closed = True
            if self._sleep:
                self._state.started = self._state.stop = 1
                if self._functions is not None:
                    self._functions.wake_all(self.pointer)
            elif self._executor is not None:
                self._executor.shutdown(wait=False)


def _pieces(rows: int, grain: int, threads: int) -> Iterator[tuple[int, int]]:
    """First and last rows of pieces, as native threads take them (`MOST`)."""
    first = 0
    while first < rows:
        times = min((rows - first) // (AHEAD * threads * grain), MOST if grain > 1 else 1)
        last = first + (grain << max(times.bit_length() - 1, 0))
        yield first, min(last, rows)
        first = last


def _wait_for(futures: list[Future[None]]) -> None:
    """Wait for futures despite interrupts: they hold addresses of arrays that the caller may free."""
    while not all(future.done() for future in futures):
        with contextlib.suppress(KeyboardInterrupt):
            wait(futures)


def begin_pool(begin: Callable[[str], None]) -> None:
    """Start to compile the pool's code if it is not loaded, by calling `begin` with its text."""
    sleep = native_sleep()
    if sleep and sleep not in _FUNCTIONS:
        begin(pool_text(sleep))


def shared_pool(threads: int, load: Callable[[str], Code] = compile_text) -> Pool:
    """The pool of this process with `threads` threads; see `Pool`."""
    with _LOCK:
        if threads not in _SHARED:
            _SHARED[threads] = Pool(threads, load=load)
        return _SHARED[threads]


def _after_fork() -> None:
    for pool in _POOLS:
        pool.reset()


def _at_exit() -> None:
    for pool in _POOLS:
        pool.stop()  # stop all pools before waiting for any
    until = time.monotonic() + EXIT_SECONDS
    for pool in _POOLS:
        pool.close(max(until - time.monotonic(), 0.0))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
