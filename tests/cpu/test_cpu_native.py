"""Built-in entries of the CPU engine: quick where they may be, the checked function everywhere else."""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from native_kernels import DTYPES, Recorder, build, wanted

from robodyn.compile.llvm.jit import Code, compile_object
from robodyn.compile.llvm.target import LEVELS, host_target
from robodyn.engines.cpu.native.layout import layout_is_known
from robodyn.engines.cpu.threads import pool as pool_module
from robodyn.engines.cpu.threads.pool import Pool
from robodyn.internals.errors import UnavailableError

pytestmark = pytest.mark.skipif(not layout_is_known(), reason="no built-in entries on this Python and NumPy")


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(3)
    yield pool
    pool.close()


def test_it_is_a_builtin() -> None:
    entry = build()
    assert type(entry) is type(len)
    assert entry.__name__ == "query"
    assert entry.__doc__ == "A query."
    assert "query" in repr(entry)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inputs", [(7, 7, 7), (6,), (1, 2, 3, 4, 5, 6, 7, 8)])
@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 1, 2, 3), (), (0,)])
def test_states_and_batches(dtype: str, inputs: tuple[int, ...], shape: tuple[int, ...]) -> None:
    print("seed 5")
    rng, fallback = np.random.default_rng(5), Recorder()
    entry = build(inputs, shape, dtype, fallback)
    for rows in (None, 1, 2, 5, 100):
        for shared in ([False] * 8, [True, False] * 4, [False, True] * 4):
            arrays = [
                rng.uniform(-1, 1, (n,) if rows is None or one else (rows, n)).astype(dtype)
                for n, one in zip(inputs, shared[: len(inputs)], strict=True)
            ]
            got, right = entry(*arrays), wanted(arrays, shape)
            assert type(got) is (np.ndarray if right.ndim else np.dtype(dtype).type)
            assert got.dtype is np.dtype(dtype)
            assert got.shape == right.shape
            np.testing.assert_allclose(got, right, rtol=1e-5 if dtype == "float32" else 1e-14, atol=1e-6)
            if right.ndim:
                assert got.flags.owndata
                assert got.flags.c_contiguous
                assert got.flags.writeable
    assert not fallback.calls


def test_no_inputs_and_no_columns() -> None:
    fallback = Recorder()
    assert (build((), (3,), fallback=fallback)() == np.zeros(3)).all()
    assert (build((0, 2), (2,), fallback=fallback)(np.empty(0), np.ones(2)) == [2, 2]).all()
    assert (build((0, 2), (2,), fallback=fallback)(np.empty((4, 0)), np.ones((4, 2))) == 2 * np.ones((4, 2))).all()
    assert not fallback.calls


def test_unaligned_numbers_and_copied_dtypes() -> None:
    fallback = Recorder()
    entry = build(fallback=fallback)
    memory = np.zeros(8 * 7 * 4 + 1, np.uint8)[1:]
    odd = memory.view(np.float64) if memory.ctypes.data % 8 == 0 else np.frombuffer(memory, np.float64)
    odd = odd.reshape(4, 7)
    odd[...] = np.arange(28).reshape(4, 7)
    through_pickle = pickle.loads(pickle.dumps(np.ones((4, 7))))
    tagged = np.ones((4, 7), np.dtype(np.float64, metadata={"unit": "rad"}))
    assert (entry(odd, through_pickle, tagged) == odd + 5).all()
    assert not fallback.calls


class Sub(np.ndarray):
    pass


def odd_argument(rng: random.Random, rows: int, n: int, dtype: str) -> tuple[Any, int | None]:
    """An argument and how it looks to the entry: rows of a batch, 0 for a state, None for the fallback."""
    good = np.asarray(np.random.default_rng(rng.randrange(2**32)).uniform(-1, 1, (rows, n)), dtype)
    other = "float32" if dtype == "float64" else "float64"
    locked = good.copy()
    locked.flags.writeable = False
    wide = np.zeros((rows, 2 * n), dtype)
    choices: list[tuple[Any, int | None]] = [
        (good, rows),
        (locked, rows),
        (good[0], 0),
        (good[::-1], rows if rows == 1 else None),
        (wide[:, ::2], rows if rows == n == 1 else None),
        (wide[:, :n], rows if rows == 1 else None),
        (np.asfortranarray(good), rows if rows == 1 or n == 1 else None),
        (good.astype(other), None),
        (good.astype(good.dtype.newbyteorder()), None),
        (good.astype(np.int64), None),
        (good.astype(complex), None),
        (good.astype(object), None),
        (good.view(Sub), None),
        (np.ma.masked_array(good), None),
        (good.tolist(), None),
        (good[None], None),
        (np.array(1.0, dtype), None),
        (np.dtype(dtype).type(1), None),
        (np.empty((0, n), dtype), None),
        (np.zeros((rows, n + 1), dtype), None),
        (np.zeros(n + 1, dtype), None),
        (np.zeros((rows + 1, n), dtype), rows + 1),
        (None, None),
        (3.5, None),
        (b"bytes" * 20, None),
        ((), None),
    ]
    return rng.choice(choices) if rng.random() < 0.4 else choices[rng.choice((0, 0, 0, 2))]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.some(of=2, rest="matrix")
def test_any_arguments(dtype: str) -> None:
    seed = 77
    print(f"seed {seed}")
    rng, quick = random.Random(seed), 0
    for _ in range(40):
        inputs = tuple(rng.randrange(1, 9) for _ in range(rng.randrange(1, 5)))
        fallback = Recorder()
        entry = build(inputs, (3,), dtype, fallback)
        for _ in range(60):
            rows = rng.randrange(1, 6)
            made = [odd_argument(rng, rows, n, dtype) for n in inputs]
            args, looks = [value for value, _ in made], [look for _, look in made]
            keywords: dict[str, Any] = {}
            change = rng.random()
            if change < 0.05:
                args.append(args[0])
            elif change < 0.1:
                args.pop()
            elif change < 0.15:
                keywords = {"out": None, "method": "auto"}
            elif change < 0.2:
                keywords = {"q": args.pop()}
            heights = {look for look in looks if look}
            fits = len(args) == len(inputs) and not keywords and None not in looks and len(heights) <= 1
            fallback.calls.clear()
            got = entry(*args, **keywords)
            if fits:
                quick += 1
                assert not fallback.calls
                np.testing.assert_allclose(got, wanted(args, (3,)), rtol=1e-5, atol=1e-5)
            else:
                assert got is fallback.answer
                ((seen, seen_keywords),) = fallback.calls
                assert all(one is two for one, two in zip(seen, args, strict=True))
                assert seen_keywords.keys() == keywords.keys()
                assert all(seen_keywords[name] is value for name, value in keywords.items())
    assert quick > 300


LEVEL_NAMES = ["host", *LEVELS]


def host_has(level: str) -> bool:
    try:
        return bool(host_target(level))
    except UnavailableError:
        return False


def entry_code_for(level: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options that compile the entries themselves anew, for a vector level."""
    if level == "host":
        return {}
    if not host_has(level):
        pytest.skip(f"this processor has no {level}")
    target = host_target(level)
    monkeypatch.setattr(pool_module, "_CODE", {})
    return {"load": lambda text: Code(compile_object(text, target, 2), target)}


@pytest.mark.parametrize("level", LEVEL_NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.some(of=2, rest="matrix")
def test_not_finite_inputs(dtype: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = entry_code_for(level, monkeypatch)
    huge = float(np.finfo(dtype).max) / 8
    for n in (1, 3, 4, 7, 8, 9, 16, 17, 40):
        fallbacks = {check: Recorder() for check in (None, True, False)}
        entries = {check: build((n, 2), (2,), dtype, fallbacks[check], check=check, **options) for check in fallbacks}
        for rows in (0, 1, 3):
            for bad in (np.nan, np.inf, -np.inf, huge):
                for place in range(max(rows, 1) * n):
                    first = np.ones((rows, n) if rows else n, dtype)
                    second = np.ones((rows, 2) if rows else 2, dtype)
                    first.flat[place] = bad
                    for check, entry in entries.items():
                        fallbacks[check].calls.clear()
                        for args in ((first, second), (first, second[0])) if rows else ((first, second),):
                            fallbacks[check].calls.clear()
                            entry(*args)
                            checked = check or (check is None and not rows)
                            assert bool(fallbacks[check].calls) == bool(checked and not np.isfinite(bad))


@pytest.mark.parametrize("dtype", DTYPES)
def test_not_finite_outputs(dtype: str, pool: Pool) -> None:
    huge = float(np.finfo(dtype).max)
    for rows in (0, 1, 5, 700):
        for check in (None, True, False):
            fallback = Recorder()
            entry = build((2, 2), (2,), dtype, fallback, check=check, pool=pool)
            args = [np.ones((rows, 2) if rows else 2, dtype) for _ in range(2)]
            entry(*args)
            assert not fallback.calls
            for array in args:
                array.flat[-1] = huge
            got = entry(*args)
            checked = check or (check is None and not rows)
            assert len(fallback.calls) == bool(checked)
            assert checked or np.isinf(got.flat[-1])


@pytest.mark.skipif(os.name != "posix", reason="guard pages are set with mprotect")
@pytest.mark.parametrize("level", LEVEL_NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.some(of=2, rest="matrix")
def test_nothing_is_read_outside_the_arrays(dtype: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = entry_code_for(level, monkeypatch)
    page, size = mmap.PAGESIZE, np.dtype(dtype).itemsize
    memory = mmap.mmap(-1, 3 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None).mprotect
    for guard in (0, 2):
        assert protect(ctypes.c_void_p(start + guard * page), page, 0) == 0
    fallback = Recorder()
    try:
        for n in (1, 2, 7, 8, 9, 15, 16, 17, 33):
            for rows in (1, 3):
                entry = build((n,), (2,), dtype, fallback, check=True, **options)
                for offset in (page, 2 * page - rows * n * size):
                    array = np.frombuffer(memory, dtype, rows * n, offset).reshape(rows, n)
                    array[...] = 1
                    assert (entry(array) == 1).all()
                    del array
    finally:
        for guard in (0, 2):
            protect(ctypes.c_void_p(start + guard * page), page, mmap.PROT_READ | mmap.PROT_WRITE)
    assert not fallback.calls
