"""Built-in entries over their life: references, memory, threads, layouts, forks and the end of the process."""

from __future__ import annotations

import ctypes
import gc
import os
import struct
import subprocess
import sys
import sysconfig
import textwrap
import threading
import tracemalloc
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from conftest import nothing_compiles
from native_kernels import DTYPES, PATIENCE, Recorder, build, kernel, make_entry, special, until, wanted
from robots import FOLDERS

from robodyn.compile.llvm.jit import Code
from robodyn.engines.cpu.native import answers, layout
from robodyn.engines.cpu.native.answers import EntryKernel
from robodyn.engines.cpu.native.context import MAX_CONSTANTS, MAX_INPUTS, MAX_OUTPUTS, MAX_TRAILING
from robodyn.engines.cpu.native.entry import entry_text
from robodyn.engines.cpu.native.layout import layout_is_known
from robodyn.engines.cpu.native.objects import PyArray, PyBytes, PyDescr, PyFloat, PyObject, PyTuple
from robodyn.engines.cpu.threads import pool as pool_module
from robodyn.engines.cpu.threads.code import native_sleep
from robodyn.engines.cpu.threads.pool import Pool, compile_text
from robodyn.internals.errors import UnavailableError

pytestmark = pytest.mark.skipif(not layout_is_known(), reason="no built-in entries on this Python and NumPy")


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(3)
    yield pool
    pool.close()


def test_references_and_memory() -> None:
    def failing(*args: Any, **kwargs: Any) -> None:
        raise KeyError("as the fallback says")

    recorder = Recorder()
    entry, broken, scalar = build(fallback=recorder), build(fallback=failing), build((2,), ())
    state, batch, bad, two = np.ones(7), np.ones((50, 7)), np.full(7, np.nan), np.ones(2)
    extra = object()

    def use() -> None:
        entry(state, state, state)
        entry(batch, state, batch)
        scalar(two)
        result, other = entry(state, state, state), state.copy()
        assert sys.getrefcount(result) == sys.getrefcount(other)
        entry(state, state, bad)
        entry(state, extra, q=extra)
        recorder.calls.clear()
        for args in ((state, state, bad), (extra,), ()):
            with pytest.raises(KeyError, match="as the fallback says"):
                broken(*args)

    def counts() -> list[int]:
        things = (entry, broken, state, batch, bad, extra, recorder, failing, np.dtype(np.float64), np.ndarray)
        return [sys.getrefcount(thing) for thing in things]

    use()
    gc.collect()  # what other tests left behind refers to dtypes too
    before = counts()
    nothing_compiles()
    tracemalloc.start()
    try:
        use()
        gc.collect()
        memory = tracemalloc.get_traced_memory()[0]
        for _ in range(300):
            use()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - memory < 20_000
    finally:
        tracemalloc.stop()
    assert counts() == before


def test_entries_are_collected() -> None:
    class Owner:
        def __init__(self) -> None:
            self.pool = Pool(1)
            self.query = build(fallback=self.checked, pool=self.pool)

        def checked(self, *args: Any) -> None: ...

    owner = Owner()
    assert owner.query(np.ones(7), np.ones(7), np.ones(7)).shape == (7,)
    gone = weakref.ref(owner)
    entry = owner.query
    del owner
    gc.collect()
    assert entry(1) is None, "an entry keeps what it needs"
    del entry
    gc.collect()
    assert gone() is None


def test_the_collector_leaves_what_a_dying_entry_reads() -> None:
    """CPython reads the PyMethodDef of a function that it frees, after the collector has emptied what else is in
    the cycle: the memory of a ctypes structure is given back there, that of bytes is not."""
    entry = build()
    definition = ctypes.c_void_p.from_address(id(entry) + object.__basicsize__).value or 0
    inside = [each for each in entry.__self__ if isinstance(each, bytes)]
    starts = [id(each) + bytes.__basicsize__ - 1 for each in inside]
    assert any(start <= definition < start + len(each) for start, each in zip(starts, inside, strict=True))


def test_what_the_fallback_raises_and_returns() -> None:
    for error in (ValueError("x"), KeyboardInterrupt(), MemoryError()):

        def fallback(*args: Any, error: BaseException = error, **kwargs: Any) -> None:
            raise error

        with pytest.raises(type(error)) as caught:
            build(fallback=fallback)(1, 2, 3)
        assert caught.value is error
    assert build(fallback=lambda: None)() is None


def test_no_memory() -> None:
    fallback = Recorder()
    state = np.ones(2)
    code = kernel((2,), (2,), "float64")
    one = EntryKernel(code.address("kernel"), keep=code)
    for shapes in (((2**62, 2**62),), ((2**62,),), ((2,), (2**62,)), ((2**62,), (2,))):
        entry = make_entry("huge", "", np.dtype(float), (2,), shapes, fallback, one, one, False)
        assert entry is not None
        assert entry(state) is fallback.answer
    assert build((2,), (2,), fallback=fallback, workspace=2**60)(state) is fallback.answer
    assert len(fallback.calls) == 5


def test_workspace(pool: Pool) -> None:
    fallback, address = Recorder(), special().address("scratch")
    entry = build((2,), (1,), fallback=fallback, address=address, workspace=4097, pool=pool, check=False, grain=8)
    places = entry(np.ones(2)).view(np.int64)
    assert places.all()
    for _ in range(50):
        places = np.unique(entry(np.ones((3000, 2))).view(np.int64))
        assert 1 <= len(places) <= 3
        assert (places % 64 == 0).all()
        assert (np.diff(places) >= 4160).all()
    assert (
        not build((2,), (1,), fallback=fallback, address=special().address("scratch"), workspace=4096)(
            np.ones((1, 2))
        ).view(np.int64)[0, 0]
        % 64
    )
    assert not fallback.calls


def test_the_pool_starts_with_the_first_large_batch(pool: Pool) -> None:
    fallback = Recorder()
    entry = build(fallback=fallback, pool=pool, share_rows=300, grain=50)
    for rows, workers in ((299, 0), (300, 2), (5000, 2)):
        arrays = [np.random.default_rng(i).uniform(-1, 1, (rows, 7)) for i in range(3)]
        np.testing.assert_allclose(entry(*arrays), wanted(arrays, (7,)), rtol=1e-13, atol=1e-15)
        assert pool._state.workers == workers
    assert not fallback.calls


def test_an_interrupt_while_the_pool_starts(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pool, "start", interrupted)
    entry = build(pool=pool)
    with pytest.raises(KeyboardInterrupt):
        entry(*[np.ones((1000, 7))] * 3)
    assert entry(*[np.ones((10, 7))] * 3).shape == (10, 7)


@pytest.mark.parametrize("kind", ["", native_sleep()])
def test_a_pool_without_native_code_takes_large_batches_through_the_fallback(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such code for a system, and code that does not compile."""
    monkeypatch.setattr(pool_module, "_FUNCTIONS", {})
    monkeypatch.setattr(pool_module, "_CODE", {})

    def load(text: str) -> Code:
        raise UnavailableError("no memory may be both written and run")

    for threads, calls in ((2, 1), (1, 0)):
        fallback = Recorder()
        entry = build(fallback=fallback, pool=Pool(threads, sleep=kind, load=load), share_rows=100)
        for rows in (99, 100):
            entry(*[np.ones((rows, 7))] * 3)
        assert len(fallback.calls) == calls


@pytest.mark.parametrize("check", [None, True])
def test_many_threads_use_one_entry(pool: Pool, check: bool | None) -> None:
    fallback = Recorder()
    entry = build(fallback=fallback, pool=pool, check=check, grain=32, release_rows=2)

    def use(number: int) -> None:
        rng = np.random.default_rng(number)
        for rows in (0, 1, 3, 100, 1000, 5000) * 8:
            arrays = [rng.uniform(-1, 1, (rows, 7) if rows else 7) for _ in range(3)]
            np.testing.assert_allclose(entry(*arrays), wanted(arrays, (7,)), rtol=1e-12, atol=1e-14)

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(use, range(8)))
    assert not fallback.calls


@pytest.mark.parametrize("pooled", [False, True])
def test_other_threads_run_meanwhile(pooled: bool, pool: Pool) -> None:
    options = {"pool": pool, "share_rows": 4} if pooled else {"release_rows": 4}
    entry = build((2,), (2,), address=special().address("wait"), check=False, **options)
    data = np.zeros((4, 2))
    words = data.view(np.int64)
    thread = threading.Thread(target=entry, args=(data,))
    thread.start()
    until(lambda: bool(words[0, 1]))
    words[0, 0] = 1
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_code_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_CODE", {})
    texts: list[str] = []

    def load(text: str) -> Code:
        texts.append(text)
        return compile_text(text)

    for dtype in DTYPES:
        build(dtype=dtype, load=load)
        build((3,), (2, 2), dtype, load=load)
    assert texts == [entry_text()]


FIELDS = {
    PyArray: ("type", "data", "ndim", "shape", "strides", "descr", "flags"),
    PyBytes: ("data",),
    PyDescr: ("byteorder",),
    PyFloat: ("type", "value"),
    PyObject: ("type",),
    PyTuple: ("size", "items"),
}
"""What machine code reads of objects."""


def moved(kind: Any, field: str) -> Any:
    """A structure with more before a field."""
    fields: list[Any] = []
    for name, *of in kind._fields_:
        fields += [("_more", ctypes.c_int64), (name, *of)] if name == field else [(name, *of)]
    return type(kind.__name__, (ctypes.Structure,), {"_fields_": fields})


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind, fields in FIELDS.items() for field in fields])
def test_another_layout_is_noticed(kind: Any, field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(layout, kind.__name__, moved(kind, field))
        assert not layout_is_known.__wrapped__()
    assert layout_is_known.__wrapped__()
    monkeypatch.setattr(answers, "layout_is_known", lambda: False)
    one = EntryKernel(kernel((7,), (7,), "float64").address("kernel"))
    assert make_entry("f", "", np.dtype(float), (7,), ((7,),), len, one, one, None) is None


def test_other_pythons_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = layout_is_known.__wrapped__
    assert probe()
    for owner, name, value in (
        (sys, "byteorder", "big"),
        (sys, "implementation", type("Pypy", (), {"name": "pypy"})),
        (sysconfig, "get_config_var", lambda name: 1 if name == "Py_GIL_DISABLED" else None),
        (struct, "calcsize", lambda code: 4),
        (layout, "_NUMPY_ABI", 0x03000000),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            layout.api.cache_clear()
            assert not probe()
    layout.api.cache_clear()
    assert probe()


def test_what_an_entry_cannot_be() -> None:
    def attempt(dtype: Any, inputs: tuple[int, ...], *shapes: tuple[int, ...], constants: int = 0) -> Any:
        one = EntryKernel(0, constants=(0,) * constants)
        return make_entry("f", "", np.dtype(dtype), inputs, shapes, len, one, one, None)

    longest = (1,) * MAX_TRAILING
    assert attempt(float, (1,) * MAX_INPUTS, *[longest] * MAX_OUTPUTS, constants=MAX_CONSTANTS) is not None
    assert attempt(float, (1,) * (MAX_INPUTS + 1), (1,)) is None
    assert attempt(float, (1,)) is None
    assert attempt(float, (1,), *[(1,)] * (MAX_OUTPUTS + 1)) is None
    assert attempt(float, (1,), longest, (*longest, 1)) is None
    assert attempt(float, (1,), (1,), constants=MAX_CONSTANTS + 1) is None
    for dtype in (">f8", "f2", "i8", "c16", "O"):
        assert attempt(dtype, (1,), (1,)) is None


def script(body: str) -> None:
    """Run a script in a process of its own; it must end well and say nothing."""
    head = """
        import faulthandler, os, sys, threading, time
        sys.path[:0] = TESTS
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        import numpy as np
        from native_kernels import build, wanted
        from robodyn.engines.cpu.threads.pool import Pool
        pool = Pool(3)
        entry = build(pool=pool, grain=16, fallback=lambda *args: sys.exit(3))
        def batch(rows=1000):
            arrays = [np.random.default_rng(i).uniform(-1, 1, (rows, 7)) for i in range(3)]
            np.testing.assert_allclose(entry(*arrays), wanted(arrays, (7,)), rtol=1e-12, atol=1e-14)
        batch()
    """
    constants = f"TESTS = {FOLDERS!r}\nPATIENCE = {PATIENCE}\n"
    text = constants + textwrap.dedent(head) + textwrap.dedent(body)
    command = [sys.executable, "-W", "ignore", "-c", text]
    run = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_fork() -> None:
    script(
        """
        stop = False
        def work():
            while not stop:
                batch(600)
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    batch()
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitpid(pid, 0)[1] == 0
        stop = True
        for thread in threads:
            thread.join()
        batch()
        """
    )


@pytest.mark.skipif(native_sleep() == "", reason="large batches would go through the fallback")
@pytest.mark.parametrize("rows", [1, 400, 200_000])
@pytest.mark.matrix
def test_exit_while_daemon_threads_work(rows: int) -> None:
    script(
        f"""
        arrays = [np.ones(({rows}, 7))] * 3
        def work():
            while True:
                entry(*arrays)
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.05)
        """
    )
