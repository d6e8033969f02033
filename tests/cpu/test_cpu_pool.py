"""The thread pool of the CPU engine: every row once, from many threads, across forks and at exit."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from robots import FOLDERS

from robodyn.compile.llvm.jit import Code, compile_object
from robodyn.compile.llvm.target import host_target
from robodyn.compile.loops.language import (
    NULL,
    Address,
    Array,
    Word,
    array,
    load_atomic,
    routine,
    store_atomic,
    struct_of,
    update,
)
from robodyn.compile.loops.llvm import Module
from robodyn.engines.cpu.threads import pool as pool_module
from robodyn.engines.cpu.threads.code import SLEEPING, State, native_sleep, parallel, pool_text, worker
from robodyn.engines.cpu.threads.pool import Pool, compile_text, default_threads, shared_pool
from robodyn.engines.cpu.tiered_compilation import HURRIED
from robodyn.internals.errors import UnavailableError

PATIENCE = 60.0  # seconds that nothing here comes near unless something hangs
KINDS = [kind for kind in ("futex", "pthread", "") if not kind or native_sleep() in ("futex", kind)]
NATIVE = [kind for kind in KINDS if kind]


class Entry(ctypes.Structure):
    """Of a kernel's table."""

    _fields_ = (("data", ctypes.c_void_p), ("stride", ctypes.c_int64))


@routine
def count(table: Array[Entry], first: Word, last: Word, workspace: Address) -> None:
    """Add 1 to word 0 of each row, write the address of the workspace in word 1, and add the number of rows to the
    first word of the workspace."""
    if workspace != NULL:
        update(array(Word, workspace), "add", last - first, "monotonic")
    for r in range(first, last):
        row = array(Word, table.data + r * table.stride)
        update(row, "add", 1, "monotonic")
        row[1] = workspace


@routine
def wait(table: Array[Entry], first: Word, last: Word, workspace: Address) -> None:
    """Leave a row only when word 0 of it is not 0, after writing 1 to word 1."""
    for r in range(first, last):
        row = array(Word, table.data + r * table.stride)
        store_atomic(row + 1, 1, "seq_cst")
        while load_atomic(row, "seq_cst") == 0:
            pass


@cache
def kernels() -> Code:
    module = Module({})
    module.export(count)
    module.export(wait)
    return compile_text(module.text())


class Rows:
    """Rows of words with untouched ones before and after, and their table."""

    def __init__(self, rows: int) -> None:
        self.all = np.zeros((rows + 8, 2), np.int64)
        self.words = self.all[4 : 4 + rows]
        self._table = np.array([self.words.ctypes.data, self.all.strides[0]], np.int64)
        self.table = int(self._table.ctypes.data)

    def require_counted(self, times: int = 1) -> None:
        assert (self.words[:, 0] == times).all()
        assert not self.all[:4].any()
        assert not self.all[len(self.words) + 4 :].any()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.001)


@contextlib.contextmanager
def opened(threads: int, kind: str) -> Iterator[Pool]:
    pool = Pool(threads, sleep=kind)
    try:
        yield pool
    finally:
        pool.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_every_row_is_run_once(kind: str, threads: int) -> None:
    seed = 20 + threads
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    count = kernels().address("count")
    sizes = [(0, 1), (1, 1), (7, 100), (5, 0), (5, -3), (9, 2**62), (64, 1)]
    sizes += [(int(rng.integers(1, 3000)), int(rng.integers(1, 200))) for _ in range(150)]
    with opened(threads, kind) as pool:
        for n, grain in sizes:
            rows = Rows(n)
            pool.run(count, rows.table, n, grain)
            rows.require_counted()
            assert not rows.words[:, 1].any(), "a null workspace stays null"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [2, 3])
def test_pieces_are_large_first_and_small_at_last(kind: str, threads: int) -> None:
    """Of 2^k times the least rows, which lined results want; of one row where one waits for others."""
    taken: list[tuple[int, int]] = []
    kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(
        lambda _table, first, last, _own: taken.append((first, last))
    )
    address = ctypes.cast(kernel, ctypes.c_void_p).value
    assert address
    with opened(threads, kind) as pool:
        for rows, grain in ((10_000, 8), (777, 24), (129, 8), (50, 1)):
            taken.clear()
            pool.run(address, 0, rows, grain)
            firsts, lasts = zip(*sorted(taken), strict=True)
            assert firsts == (0, *lasts[:-1]) and lasts[-1] == rows
            for first, last in zip(firsts[:-1], lasts[:-1], strict=True):
                most = max((rows - first) // (2 * threads * grain), 1) if grain > 1 else 1
                times, rest = divmod(last - first, grain)
                assert rest == 0 and times == 1 << min(most, 16).bit_length() - 1
            assert grain == 1 or lasts[0] - firsts[0] > grain > lasts[-1] - firsts[-1] or rows % grain == 0


@pytest.mark.parametrize("kind", NATIVE)
@pytest.mark.parametrize("wanted", [1, 3, 8])
def test_as_python_it_does_the_same(kind: str, wanted: int) -> None:
    """On one thread: the first piece of a batch lets a worker in, which does the others, sleeps, and is told to end."""
    rows, word, library, code = 200, ctypes.c_int64, ctypes.CDLL(None), compile_text(pool_text(kind))
    compiled = ctypes.CFUNCTYPE(None, word, word)(code.address("worker"))
    found = []
    for python in (True, False):
        memory = ctypes.create_string_buffer(ctypes.sizeof(State) + 128)
        place = -(-ctypes.addressof(memory) // 128) * 128
        state = State.from_address(place)
        seen: list[tuple[int, ...]] = []

        def run(table: int, first: int, last: int, own: int, seen=seen, python=python, place=place) -> None:
            seen.append((table, first, last, own))
            if first == 0 and python:
                worker(Array(place, struct_of(State)), 1, sleep=kind)
            elif first == 0:
                compiled(place, 1)

        def tell(state=state) -> int:
            state.epoch += 1
            state.stop = 1
            return 0

        kernel = ctypes.CFUNCTYPE(None, *[word] * 4)(run)
        given = ctypes.CFUNCTYPE(ctypes.c_int)(tell)
        state.workers, state.looks, state.give_way = 2, 1, ctypes.cast(given, ctypes.c_void_p).value
        for name in SLEEPING[kind]:
            setattr(state, name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
        arguments = ctypes.cast(kernel, ctypes.c_void_p).value, 5, rows, wanted, 0x1000, 64
        if python:
            parallel(Array(place, struct_of(State)), *arguments, sleep=kind)
        else:
            ctypes.CFUNCTYPE(None, *[word] * 7)(code.address("parallel"))(place, *arguments)
        words = (state.epoch, state.gate, state.lock, state.sleepers, state.next, state.rows, state.grain, state.stride)
        found.append((seen, words))
    (seen, words), other = found
    assert (seen, words) == other and words == (2, 0, 0, 0, words[4], rows, wanted, 64)
    assert seen == [(5, *piece, 0x1000 + 64 * (piece[0] > 0)) for piece in pool_module._pieces(rows, wanted, threads=3)]


@pytest.mark.parametrize("kind", KINDS)
def test_each_participant_has_its_own_workspace(kind: str) -> None:
    count, threads, stride = kernels().address("count"), 4, 256
    with opened(threads, kind) as pool:
        for n in (1, 50, 3000):
            rows, workspace = Rows(n), np.zeros((threads + 2, stride // 8), np.int64)
            own = workspace[1 : threads + 1]
            pool.run(count, rows.table, n, 7, own.ctypes.data, stride)
            rows.require_counted()
            assert not workspace[[0, -1]].any()
            assert own[:, 0].sum() == n
            places = {int(own.ctypes.data) + k * stride: k for k in range(threads)}
            used = np.array([places[int(address)] for address in rows.words[:, 1]])
            assert (np.bincount(used, minlength=threads) == own[:, 0]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_several_threads_use_one_pool(kind: str) -> None:
    count = kernels().address("count")

    def use(number: int) -> None:
        rows = Rows(200 + number)
        for _ in range(200):
            pool.run(count, rows.table, len(rows.words), 16)
        rows.require_counted(200)

    with opened(3, kind) as pool, ThreadPoolExecutor(8) as executor:
        list(executor.map(use, range(8)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_busy_pool_keeps_nobody_waiting(kind: str) -> None:
    held, rows = Rows(2), Rows(100)
    with opened(2, kind) as pool:
        holder = threading.Thread(target=pool.run, args=(kernels().address("wait"), held.table, 2, 1))
        holder.start()
        until(lambda: bool(held.words[:, 1].any()))
        pool.run(kernels().address("count"), rows.table, 100, 10)
        rows.require_counted()
        assert holder.is_alive()
        held.words[:, 0] = 1
        holder.join(PATIENCE)
        assert not holder.is_alive()


def wake(pool: Pool) -> None:
    """Wake whoever sleeps, for no reason."""
    library = ctypes.CDLL(None)
    for _ in range(20):
        if pool._sleep == "futex":
            for word in (State.epoch, State.gate):
                library.syscall(
                    202 if os.uname().machine == "x86_64" else 98, ctypes.c_void_p(pool.pointer + word.offset), 129, 99
                )
        else:
            library.pthread_cond_broadcast(ctypes.c_void_p(pool.pointer + State.condition.offset))
        time.sleep(0.001)


@pytest.mark.parametrize("kind", NATIVE)
def test_idle_workers_sleep_and_wake_only_for_work(kind: str) -> None:
    count = kernels().address("count")
    with opened(4, kind) as pool:
        assert pool.sleeping == 0, "no thread before there is work"
        for _ in range(3):
            rows = Rows(400)
            pool.run(count, rows.table, 400, 8)
            rows.require_counted()
            until(lambda: pool.sleeping == 3)
            wake(pool)
            until(lambda: pool.sleeping == 3)
        rows.require_counted()


@pytest.mark.parametrize("kind", NATIVE)
def test_the_caller_sleeps_until_the_last_row_is_done(kind: str) -> None:
    held = Rows(3)
    with opened(3, kind) as pool:
        holder = threading.Thread(target=pool.run, args=(kernels().address("wait"), held.table, 3, 1))
        holder.start()
        # Whoever has row 0, the caller or a worker, the others end first and the caller has to wait.
        for row in (2, 1):
            until(lambda: bool(held.words[:, 1].any()))
            held.words[row, 0] = 1
            time.sleep(0.01)
            wake(pool)
            assert holder.is_alive()
        held.words[0, 0] = 1
        holder.join(PATIENCE)
        assert not holder.is_alive()
        assert pool._state.gate == 0
        assert pool._state.lock == 0


@pytest.mark.parametrize("kind", NATIVE)
def test_too_few_threads_granted(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    granted: list[threading.Thread] = []

    def grudging(thread: threading.Thread) -> None:
        if granted:
            raise RuntimeError("can't start new thread")
        granted.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", grudging)
    with opened(5, kind) as pool:
        rows = Rows(1000)
        pool.run(kernels().address("count"), rows.table, 1000, 8)
        rows.require_counted()
        assert len(granted) == pool._state.workers == 1


@pytest.mark.parametrize("kind", NATIVE)
def test_interrupted_start(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start, seen = threading.Thread.start, []

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        seen.append(thread.name)
        if len(seen) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with opened(4, kind) as pool:
        rows = Rows(1000)
        with pytest.raises(KeyboardInterrupt):
            pool.run(kernels().address("count"), rows.table, 1000, 8)
        pool.run(kernels().address("count"), rows.table, 1000, 8)
        rows.require_counted()
        assert seen == ["robodyn-1", "robodyn-2", "robodyn-3"], "no two workers share a workspace"


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_pool_runs_on_the_caller(kind: str) -> None:
    count, pool = kernels().address("count"), Pool(3, sleep=kind)
    for close in (False, True):
        rows = Rows(500)
        if close:
            before = threading.active_count()
            pool.close()
            assert not kind or threading.active_count() == before - 2
        pool.run(count, rows.table, 500, 8)
        rows.require_counted()
    pool.close()


def test_pools_are_shared() -> None:
    assert shared_pool(3) is shared_pool(3)
    assert shared_pool(3) is not shared_pool(4)
    assert shared_pool(3).threads == 3
    assert default_threads() >= 1
    if hasattr(os, "sched_getaffinity"):
        assert default_threads() == len(os.sched_getaffinity(0))


def test_without_affinity_all_processors_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert default_threads() == 1


def test_code_is_compiled_once_and_by_the_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_FUNCTIONS", {})
    monkeypatch.setattr(pool_module, "_CODE", {})
    texts: list[str] = []

    def load(text: str) -> Code:
        texts.append(text)
        return compile_text(text)

    for kind in NATIVE * 2:
        before = len(texts)
        pool, rows = Pool(2, sleep=kind, load=load), Rows(10)
        assert len(texts) == before
        pool.run(kernels().address("count"), rows.table, 10, 100)
        pool.close()
        rows.require_counted()
    assert texts == [pool_text(kind) for kind in NATIVE]


@pytest.mark.parametrize("kind", NATIVE)
def test_a_pool_that_does_not_compile_has_threads_of_pythons(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_FUNCTIONS", {})
    monkeypatch.setattr(pool_module, "_CODE", {})

    def load(text: str) -> Code:
        raise UnavailableError("no memory may be both written and run")

    pool, rows = Pool(3, sleep=kind, load=load), Rows(1000)
    pool.start()
    pool.run(kernels().address("count"), rows.table, 1000, 8)
    rows.require_counted()
    assert not pool.parallel and not pool.give_way and not pool._state.started
    pool.close()


@pytest.mark.parametrize("kind", NATIVE)
def test_a_closed_pool_compiles_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_FUNCTIONS", {})
    monkeypatch.setattr(pool_module, "_CODE", {})
    pool, rows = Pool(3, sleep=kind, load=lambda text: pytest.fail("a module is loaded")), Rows(1000)
    pool.close()
    pool.run(kernels().address("count"), rows.table, 1000, 8)
    rows.require_counted()


@pytest.mark.parametrize(
    ("platform", "machine", "name", "kind"),
    [
        ("linux", "x86_64", "posix", "futex"),
        ("linux", "aarch64", "posix", "futex"),
        ("linux", "riscv64", "posix", "pthread"),
        ("darwin", "arm64", "posix", "pthread"),
        ("win32", "AMD64", "nt", ""),
    ],
)
def test_kind_of_sleep(platform: str, machine: str, name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(os, "name", name)
    assert native_sleep() == kind


def script(body: str, kind: str) -> None:
    """Run a script in a process of its own; it must end well and say nothing."""
    head = """
        import atexit, faulthandler, os, signal, sys, threading, time
        sys.path[:0] = TESTS
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        late = lambda: None
        atexit.register(lambda: late())  # registered before the pool's own, so run after it
        from test_cpu_pool import Pool, Rows, kernels, until
        count, wait = kernels().address("count"), kernels().address("wait")
        pool = Pool(3, sleep=KIND)
        def batch(n=1000):
            rows = Rows(n)
            pool.run(count, rows.table, n, 8)
            rows.require_counted()
        def child(work):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    work()
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitpid(pid, 0)[1] == 0
    """
    text = textwrap.dedent(head) + textwrap.dedent(body)
    names = {"TESTS": FOLDERS, "PATIENCE": PATIENCE, "KIND": kind}
    constants = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    command = [sys.executable, "-W", "ignore", "-c", constants + text]
    run = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@needs_fork
@pytest.mark.parametrize("kind", KINDS)
def test_fork_of_an_idle_pool(kind: str) -> None:
    script("batch(); child(batch); batch(); child(lambda: child(batch))", kind)


@needs_fork
@pytest.mark.parametrize("kind", KINDS)
def test_fork_in_the_middle_of_a_batch(kind: str) -> None:
    script(
        """
        held = Rows(3)
        thread = threading.Thread(target=pool.run, args=(wait, held.table, 3, 1))
        thread.start()
        until(lambda: bool(held.words[:, 1].all()))  # all three are inside
        child(batch)
        held.words[:, 0] = 1
        thread.join()
        batch()
        """,
        kind,
    )


@needs_fork
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.matrix
def test_forks_while_threads_work(kind: str) -> None:
    script(
        """
        stop = False
        def work():
            while not stop:
                batch(300)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(40):
            child(lambda: [batch(100) for _ in range(5)])
        stop = True
        for thread in threads:
            thread.join()
        """,
        kind,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "work", ["pass", "batch()", "batch(); time.sleep(0.01)", "late = batch", "batch(); late = batch"]
)
@pytest.mark.some(of=3, rest="matrix")
def test_exit(kind: str, work: str) -> None:
    script(work, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_exit_while_daemon_threads_work(kind: str) -> None:
    script(
        """
        def work():
            rows = Rows(100000)
            while True:
                pool.run(count, rows.table, 100000, 8)
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.05)
        """,
        kind,
    )


@pytest.mark.parametrize("kind", NATIVE)
@pytest.mark.matrix
def test_exit_while_a_kernel_never_returns(kind: str) -> None:
    script(
        """
        held = Rows(3)
        threading.Thread(target=pool.run, args=(wait, held.table, 3, 1), daemon=True).start()
        until(lambda: bool(held.words[:, 1].all()))
        """,
        kind,
    )


@pytest.mark.parametrize("kind", NATIVE)
def test_better_code_takes_the_place_of_what_was_made_in_a_hurry(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of batches, with threads that stay in the old code."""
    monkeypatch.setattr(pool_module, "_FUNCTIONS", {})
    monkeypatch.setattr(pool_module, "_CODE", {})
    monkeypatch.setattr(pool_module, "_POOLS", [])
    monkeypatch.setattr(pool_module, "native_sleep", lambda: kind)
    target = host_target()

    def hurried(text: str) -> Code:
        return Code(compile_object(text, target, HURRIED), target)

    used, unused = (Pool(3, sleep=kind, load=hurried) for _ in range(2))
    count, rows, done = kernels().address("count"), Rows(2000), threading.Event()
    failed: list[int] = []

    def runs() -> None:
        times = 0
        while not done.is_set() or times < 100:
            times += 1
            used.run(count, rows.table, 2000, 8)
            if not (rows.words[:, 0] == times).all():
                failed.append(times)

    thread = threading.Thread(target=runs)
    thread.start()
    until(lambda: rows.words[0, 0] > 10)
    before = used.parallel
    pool_module.BETTER_POOLS.replace(compile_text(pool_text(kind)))
    assert used.parallel == used._state.parallel != before and not unused._state.parallel
    done.set()
    thread.join(PATIENCE)
    assert not thread.is_alive() and not failed
    assert unused.parallel == used.parallel, "what is loaded later is the better one"
    for pool in (used, unused):
        pool.close()
