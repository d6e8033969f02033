"""Memory of large results: kept, used again, never twice at a time, bounded, and given back."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.engines import buffer_pool
from robodyn.internals.tuning import KEPT_FROM_BYTES

FLOATS = np.dtype(np.float64)
MEGABYTE = 1 << 17  # of float64
ROLLUP = Path("/proc/self/smaps_rollup")


@pytest.fixture(scope="module")
def dyn() -> rd.Dynamics:
    dyn = rd.Dynamics(rd.load_urdf(own("arm7")), engine="cpu")
    dyn.forward_kinematics(np.zeros((2, 7)))
    if not buffer_pool.handler():
        pytest.skip("no allocator of its own on this system")
    return dyn


@pytest.fixture(autouse=True)
def _nothing_waits() -> None:
    rd.release_memory()


def new(size: int) -> np.ndarray:
    return buffer_pool.empty((size,), FLOATS)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("megabytes", [1 / 4, 1, 3, 4, 50])
def test_an_array_gets_what_another_one_left(dyn: rd.Dynamics, megabytes: float) -> None:
    size = int(megabytes * MEGABYTE)
    first, other = new(size), new(size)
    assert address(first) % 64 == address(other) % 64 == 0
    assert first.flags.owndata and first.base is None
    first[:], other[:] = 1.0, 2.0
    assert (first == 1.0).all()
    place = address(first)
    del first
    assert buffer_pool.held_bytes() > 8 * size
    again = new(size)
    assert address(again) == place and buffer_pool.held_bytes() == 0
    again[:] = 3.0
    assert (other == 2.0).all()


def test_queries_use_it(dyn: rd.Dynamics) -> None:
    q = dyn.model.random_configuration(0, (20_000,))
    dyn.forward_kinematics(q)
    first = dyn.forward_kinematics(q)
    copy, place = first.copy(), address(first)
    view = first[7:]
    del first
    assert address(dyn.forward_kinematics(q)) != place  # a view keeps it
    del view
    second = dyn.forward_kinematics(q)
    assert place in (address(second), address(dyn.forward_kinematics(q)))
    np.testing.assert_array_equal(second, copy)


def test_small_results_and_sizes_that_differ_do_not(dyn: rd.Dynamics) -> None:
    del (small := [new(KEPT_FROM_BYTES // FLOATS.itemsize - 1)])[:]
    assert buffer_pool.held_bytes() == 0 and not small
    new(40 * MEGABYTE)
    held = buffer_pool.held_bytes()
    assert held
    smaller, larger = new(20 * MEGABYTE), new(60 * MEGABYTE)
    assert buffer_pool.held_bytes() == held and smaller.size + larger.size == 80 * MEGABYTE


def test_release(dyn: rd.Dynamics) -> None:
    alive = new(5 * MEGABYTE)
    alive[:] = 4.0
    new(6 * MEGABYTE)
    new(2 * MEGABYTE)
    held = buffer_pool.held_bytes()
    assert held >= 8 << 20 and rd.release_memory() == held
    assert buffer_pool.held_bytes() == rd.release_memory() == 0 and (alive == 4.0).all()


def test_arrays_are_numpys_own_in_all_else(dyn: rd.Dynamics) -> None:
    array = new(2 * MEGABYTE)
    array[:] = np.arange(array.size)
    array.resize((5 * MEGABYTE,))  # in place: through the allocator that it came from
    assert (array[: 2 * MEGABYTE] == np.arange(2 * MEGABYTE)).all() and not array[2 * MEGABYTE :].any()
    array.resize((10,))
    assert array.tolist() == list(range(10))
    assert (pickle.loads(pickle.dumps(array)) == array).all()
    assert np._core.multiarray.get_handler_name(array) == "robodyn"
    assert np._core.multiarray.get_handler_name(np.empty(4 * MEGABYTE)) == "default_allocator"


def test_as_much_as_the_limit_and_the_oldest_go_first() -> None:
    said = run(
        """
        limit = 64 << 20
        assert buffer_pool.memory_limit() == limit
        arrays = [new(m * MEGABYTE) for m in (10, 15, 20, 25, 30, 70)]
        places = {int(a.size / MEGABYTE): address(a) for a in arrays}
        while arrays:
            del arrays[0]
            assert buffer_pool.held_bytes() <= limit
        assert address(new(30 * MEGABYTE)) == places[30]
        assert address(new(25 * MEGABYTE)) == places[25]
        held = buffer_pool.held_bytes()
        first = new(10 * MEGABYTE)
        assert buffer_pool.held_bytes() == held  # it went
        many = [new(2 * MEGABYTE) for _ in range(100)]
        del many
        assert 0 < buffer_pool.held_bytes() <= limit
        print("done")
        """,
        ROBODYN_KEPT_MB="64",
    )
    assert said == "done"


def lazily_free() -> int:
    """Bytes that the system may take."""
    lines = ROLLUP.read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("LazyFree")), 0)


@pytest.mark.skipif(not ROLLUP.exists(), reason=f"no {ROLLUP} here")
def test_the_system_may_have_what_waits_long_or_is_large(dyn: rd.Dynamics) -> None:
    def used(megabytes: float) -> np.ndarray:
        array = new(int(megabytes * MEGABYTE))
        array[:] = 1.0
        return array

    before = lazily_free()
    for _ in range(20):
        used(9)  # the same block
    assert lazily_free() == before
    arrays = [used(m) for m in (9, 12, 16, 21, 28)]
    while arrays:
        del arrays[0]
    found = lazily_free() - before
    assert found >= 8 << 20, f"{found} bytes"  # the first of five
    assert found < 12 << 20
    again = used(9)
    assert (again == 1.0).all() and lazily_free() == before
    used(100)
    assert lazily_free() - before >= 96 << 20


def test_switched_off() -> None:
    said = run(
        "print(buffer_pool.memory_limit(), buffer_pool.handler(), rd.release_memory(), new(9).size)",
        ROBODYN_KEPT_MB="0",
    )
    assert said == "0 0 0 9"


@pytest.mark.parametrize("word", ["", "much", "nan", "inf", "-1"])
def test_words_that_are_no_limit(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.delenv(buffer_pool.LIMIT_VARIABLE, raising=False)
    usual = buffer_pool.memory_limit()
    monkeypatch.setenv(buffer_pool.LIMIT_VARIABLE, word)
    assert buffer_pool.memory_limit() == usual


def test_what_waits_is_given_back_before_there_is_no_memory() -> None:
    said = run(
        """
        import resource
        new(400 * MEGABYTE)
        assert buffer_pool.held_bytes() >= 400 << 20
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20),) * 2)
        large = new(600 * MEGABYTE)
        assert buffer_pool.held_bytes() == 0
        try:
            new(600 * MEGABYTE)
        except MemoryError:
            print("done", large.size // MEGABYTE)
        """
    )
    assert said == "done 600"


def test_in_the_child_of_a_fork() -> None:
    said = run(
        """
        alive = new(4 * MEGABYTE)
        alive[:] = 1.0
        new(3 * MEGABYTE)
        held = buffer_pool.held_bytes()
        child = os.fork()
        if not child:
            other = new(3 * MEGABYTE)
            other[:] = 2.0
            good = (alive == 1.0).all() and buffer_pool.held_bytes() == 0 and rd.release_memory() == 0
            del alive, other
            os._exit(0 if good and buffer_pool.held_bytes() else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert buffer_pool.held_bytes() == held and (alive == 1.0).all()
        buffer_pool._STARTED[0].kept.lock = 1  # as if another thread were in the middle of a change
        child = os.fork()
        if not child:
            os._exit(0 if buffer_pool.held_bytes() == 0 and new(3 * MEGABYTE).size else 1)
        assert os.waitpid(child, 0)[1] == 0
        size = new(3 * MEGABYTE).size  # whoever finds it taken does without
        assert buffer_pool.held_bytes() == held and rd.release_memory() == 0
        buffer_pool._STARTED[0].kept.lock = 0
        print("done" if rd.release_memory() == held else "lost")
        """
    )
    assert said == "done"


def test_at_the_end_of_the_interpreter() -> None:
    assert run("sys.kept_for_ever = [new(3 * MEGABYTE), new(30 * MEGABYTE)]; print('done')") == "done"


def test_an_interrupt_leaves_no_allocator_behind() -> None:
    said = run(
        """
        import signal
        def stop(*_):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, stop)
        interrupted = 0
        while interrupted < 300:
            try:
                signal.setitimer(signal.ITIMER_REAL, 2e-5 * (1 + interrupted % 20))
                while True:
                    new(MEGABYTE)
            except KeyboardInterrupt:
                interrupted += 1
            assert np._core.multiarray.get_handler_name(np.empty(10)) == "default_allocator"
        print("done")
        """
    )
    assert said == "done"


def test_threads_never_share(dyn: rd.Dynamics) -> None:
    """Arrays of many sizes, each full of its own number as long as it lives."""
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng, alive = np.random.default_rng(seed), []
        for turn in range(150):
            array = new(int(rng.choice([1, 2, 4, 5])) * MEGABYTE)
            array[::512] = number = seed * 1e6 + turn
            alive.append((array, number))
            if len(alive) > 4:
                old, expected = alive.pop(int(rng.integers(len(alive))))
                if not (old[::512] == expected).all():
                    wrong.append((seed, turn))
            if turn % 50 == 49:
                rd.release_memory()

    print("seeds 1 to 4")
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def run(body: str, **environment: str) -> str:
    """What a process of its own prints."""
    start = """
        import os, sys
        import numpy as np
        import robodyn as rd
        from robodyn.engines import buffer_pool
        MEGABYTE = 1 << 17
        def new(size):
            return buffer_pool.empty((size,), np.dtype(float))
        def address(array):
            return array.__array_interface__["data"][0]
        dyn = rd.Dynamics(rd.auto_tree(2), engine="cpu")
        dyn.gravity_force(np.zeros((3, 2)))
    """
    text = textwrap.dedent(start) + (
        "" if environment.get("ROBODYN_KEPT_MB", "1")[0] == "0" else "if not buffer_pool.handler(): sys.exit(77)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("no allocator of its own on this system")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
