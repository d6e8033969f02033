"""Results of built-in entries: several of them, in new arrays or the user's; constants, scratch memory, two kernels."""

from __future__ import annotations

import collections
import ctypes
import gc
import sys
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest
from conftest import nothing_compiles
from native_kernels import DTYPES, PATIENCE, Recorder, build, make_entry, special, until, wanted

from robodyn.engines.cpu.native.answers import EntryKernel, Scratch
from robodyn.engines.cpu.native.layout import layout_is_known
from robodyn.engines.cpu.threads.pool import Pool
from robodyn.internals.tuning import CROWD, STREAMED_BYTES

pytestmark = pytest.mark.skipif(not layout_is_known(), reason="no built-in entries on this Python and NumPy")

SHAPES: list[list[tuple[int, ...]]] = [[(7,), (3, 4)], [(2, 2), (), (5,)], [(), ()], [(1,), (0,), (2, 1, 3, 2), (4, 4)]]


def arguments(rows: int | None, inputs: tuple[int, ...], dtype: str = "float64") -> list[np.ndarray]:
    print("seed 4")
    rng = np.random.default_rng(4)
    return [rng.uniform(-1, 1, n if rows is None else (rows, n)).astype(dtype) for n in inputs]


def empties(rows: int | None, shapes: list[tuple[int, ...]], dtype: str = "float64") -> tuple[np.ndarray, ...]:
    return tuple(np.full(shape if rows is None else (rows, *shape), np.nan, dtype) for shape in shapes)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("check", [None, True, False])
def test_several_results(dtype: str, shapes: list[tuple[int, ...]], check: bool | None) -> None:
    fallback, inputs = Recorder(), (6, 5)
    entry = build(inputs, shapes, dtype, fallback, check=check)
    for rows in (None, 1, 2, 100):
        args = arguments(rows, inputs, dtype)
        out = empties(rows, shapes, dtype)
        new, theirs = entry(*args), entry(*args, out=out)
        assert type(new) is type(theirs) is tuple and theirs is not out
        for k, (one, two) in enumerate(zip(new, theirs, strict=True)):
            right = wanted(args, shapes[k], k)
            assert two is out[k]
            assert type(one) is (np.ndarray if right.ndim else np.dtype(dtype).type)
            assert one.dtype is two.dtype and one.shape == two.shape == right.shape
            assert (one == two).all()
            np.testing.assert_allclose(one, right, rtol=1e-5 if dtype == "float32" else 1e-14, atol=1e-6)
    assert not fallback.calls


@pytest.mark.parametrize("check", [None, True, False])
@pytest.mark.parametrize("shape", [(7,), (3, 4), ()])
def test_one_result_into_an_array(shape: tuple[int, ...], check: bool | None) -> None:
    fallback = Recorder()
    entry = build((6, 5), shape, fallback=fallback, check=check)
    for rows in (None, 1, 3):
        args = arguments(rows, (6, 5))
        (out,) = empties(rows, [shape])
        assert entry(*args, out=out) is out
        assert (entry(*args, out=None) == out).all()
        np.testing.assert_allclose(out, wanted(args, shape), rtol=1e-14)
    assert not fallback.calls


class Sub(np.ndarray):
    pass


class Bundle(tuple):
    __slots__ = ()


def spoilt(first: np.ndarray, second: np.ndarray, args: list[np.ndarray]) -> dict[str, Any]:
    """What is not a tuple of arrays to write to."""
    locked = second.copy()
    locked.flags.writeable = False
    both = np.zeros(first.size + second.size - 1)
    joined = both[: first.size].reshape(first.shape), both[first.size - 1 :].reshape(second.shape)
    beside = np.zeros(args[1].size + second.size - 1)
    args[1] = beside[: args[1].size].reshape(args[1].shape)
    return {
        "an array": first,
        "a list": [first, second],
        "too few": (first,),
        "too many": (first, second, second),
        "nothing": (),
        "a tuple of another class": Bundle((first, second)),
        "a named tuple": collections.namedtuple("Pair", "first second")(first, second),
        "a list in it": (first, second.tolist()),
        "none in it": (first, None),
        "the other order": (second, first),
        "another class": (first, second.view(Sub)),
        "another dtype": (first, second.astype(np.float32)),
        "another byte order": (first.astype(first.dtype.newbyteorder()), second),
        "integers": (first, np.zeros(second.shape, int)),
        "read-only": (first, locked),
        "another shape": (first, second[..., :-1].copy()),
        "another rank": (first, second[None]),
        "more rows": (np.concatenate([first, first]), second),
        "every second": (first, np.repeat(second, 2, axis=-1)[..., ::2]),
        "backwards": (first[..., ::-1], second),
        "one array twice": (first, first),
        "arrays that meet": joined,
        "an input": (first, beside[args[1].size - 1 :].reshape(second.shape)),
    }


@pytest.mark.parametrize("rows", [None, 3])
@pytest.mark.parametrize("check", [True, False])
def test_out_that_is_left_to_the_method(rows: int | None, check: bool) -> None:
    fallback, shapes, args = Recorder(), [(6,), (3, 2)], arguments(rows, (6, 5))
    entry = build((6, 5), shapes, fallback=fallback, check=check)
    first, second = empties(rows, shapes)
    for name, out in spoilt(first, second, args).items():
        for one in (first, second):
            one[...] = np.nan
        counts = [sys.getrefcount(each) for each in (first, second)]
        fallback.calls.clear()
        assert entry(*args, out=out) is fallback.answer, name
        ((seen, keywords),) = fallback.calls
        assert all(one is two for one, two in zip(seen, args, strict=True)) and list(keywords) == ["out"]
        assert keywords["out"] is out
        assert np.isnan(first).all() and np.isnan(second).all(), name
        del seen, keywords
        fallback.calls.clear()
        assert [sys.getrefcount(each) for each in (first, second)] == counts, name
    assert entry(*args, out=(first, second))[1] is second


def test_out_beside_an_input_that_all_rows_share() -> None:
    """An input of one row is read where it is, whatever the batch."""
    fallback, memory = Recorder(), np.ones(5 + 4 * 6)
    entry = build((6, 5), [(6,)], fallback=fallback)
    out = memory[5:].reshape(4, 6)
    assert entry(np.ones((4, 6)), memory[:5], out=out) is out
    assert not fallback.calls
    assert entry(np.ones((4, 6)), memory[1:6], out=out) is fallback.answer


def test_each_result_is_looked_at() -> None:
    """Result k is 3 x_k, which overflows alone."""
    shapes: list[tuple[int, ...]] = [(1,), (1,), (1,)]
    for rows in (None, 5):
        for k in range(3):
            fallback = Recorder()
            entry = build((3, 3), shapes, fallback=fallback, check=True)
            args = [np.ones(3 if rows is None else (rows, 3)) for _ in range(2)]
            assert [one.flat[-1] for one in entry(*args)] == [3.0] * 3
            for array in args:
                array[..., k].flat[-1] = 1e308
            for out in (None, empties(rows, shapes)):
                keywords = {} if out is None else {"out": out}
                assert entry(*args, **keywords) is fallback.answer
            assert len(fallback.calls) == 2
            new = build((3, 3), shapes, fallback=fallback, check=False)(*args)
            assert [bool(np.isinf(one).any()) for one in new] == [j == k for j in range(3)]


def test_references_and_memory() -> None:
    recorder, shapes = Recorder(), [(7,), (), (3, 2)]
    entry = build((7, 7), shapes, fallback=recorder)
    state, batch, bad = np.ones(7), np.ones((50, 7)), np.full(7, np.nan)
    outs = {rows: empties(rows, shapes) for rows in (None, 50)}
    wrong = (*outs[None][:2], np.ones(9))

    def use() -> None:
        result = entry(state, state)
        other = tuple(one.copy() for one in result)
        assert sys.getrefcount(result) == sys.getrefcount(other)
        assert [sys.getrefcount(one) for one in result] == [sys.getrefcount(one) for one in other]
        entry(batch, state)
        for rows, q in ((None, state), (50, batch)):
            entry(q, state, out=outs[rows])
        entry(state, bad)
        entry(state, bad, out=outs[None])
        entry(state, state, out=wrong)
        recorder.calls.clear()

    def counts() -> list[int]:
        things = (entry, state, batch, bad, wrong, recorder, np.dtype(np.float64), np.ndarray, tuple, *outs.values())
        return [sys.getrefcount(thing) for thing in (*things, *outs[None], *outs[50], wrong[2])]

    use()
    gc.collect()
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


def test_results_stay_when_the_entry_goes() -> None:
    entry = build((7, 7), [(7,), (2,)])
    first, second = entry(np.ones(7), np.ones(7))
    del entry
    gc.collect()
    assert (first == 3).all() and (second == 3).all()


# Kernels.


def test_constants_stand_behind_the_arrays() -> None:
    word = np.array(1234.5).view(np.int64)[()]
    for constants in ((7, int(word)), (0, int(word), *range(90))):
        entry = build((3,), (1,), address=special().address("constant"), constants=constants)
        for rows in (1, 40):
            assert (entry(np.ones((rows, 3))) == 1234.5).all()


@pytest.mark.parametrize(
    "rows", [2, STREAMED_BYTES // CROWD // 8, STREAMED_BYTES // CROWD // 8 + 1, 2 * STREAMED_BYTES // 8]
)
@pytest.mark.parametrize("times", [1, CROWD])
def test_large_new_results_count_for_more_rows(rows: int, times: int) -> None:
    """Kernels ask how many rows there are to see whether caches hold their results: beside those of calls before."""
    code = special()
    one = EntryKernel(code.address("constant"), constants=(0, 0), keep=code, batch=times)
    entry = make_entry("f", "", np.dtype(float), (3,), ((1,),), Recorder(), one, one, None)
    assert entry is not None
    states, out = np.ones((rows, 3)), np.full((rows, 1), np.nan)
    new = rows * times if 8 * rows > STREAMED_BYTES // CROWD else rows
    assert (entry(states).view(np.int64) == new).all()
    assert entry(states, out=out) is out
    assert (out.view(np.int64) == rows).all()


def two_kernels(**which: bool) -> tuple[Any, Recorder]:
    """An entry whose kernels answer 1 (batches) and 2 (single states), where they are there."""
    code, fallback = special(), Recorder()

    def answers(value: float) -> EntryKernel:
        return EntryKernel(code.address("constant"), constants=(0, int(np.array(value).view(np.int64)[()])), keep=code)

    batches, states = answers(1.0) if which["batches"] else None, answers(2.0) if which["states"] else None
    entry = make_entry("f", "", np.dtype(float), (3,), ((1,),), fallback, batches, states, None)
    assert entry is not None
    return entry, fallback


def test_single_states_have_a_kernel_of_their_own() -> None:
    entry, fallback = two_kernels(batches=True, states=True)
    answers = [entry(np.ones(shape)).flat[0] for shape in (3, (1, 3), (2, 3), (99, 3))]
    assert answers == [2, 2, 1, 1] and not fallback.calls
    entry, fallback = two_kernels(batches=True, states=False)
    assert entry(np.ones((2, 3)))[0] == 1 and not fallback.calls
    assert entry(np.ones(3)) is entry(np.ones((1, 3))) is fallback.answer
    entry, fallback = two_kernels(batches=False, states=True)
    assert entry(np.ones((1, 3)))[0] == 2 and not fallback.calls
    assert entry(np.ones((2, 3))) is fallback.answer


# Scratch memory.


class Kept:
    """Gives scratch memory and remembers it."""

    def __call__(self, size: int) -> Scratch:
        self.scratch = Scratch(size)
        return self.scratch

    @property
    def taken(self) -> int:
        return ctypes.c_int32.from_address(self.scratch.address).value


def scratching(name: str, **options: Any) -> Any:
    return build((2,), (1,), address=special().address(name), workspace=4097, check=False, **options)


def test_scratch_memory_is_used_again() -> None:
    kept, fallback = Kept(), Recorder()
    entry = scratching("scratch", scratch=kept, fallback=fallback)
    assert kept.scratch.size == 4160
    for rows in (1, 2, 100):
        assert set(entry(np.ones((rows, 2))).view(np.int64).flat) == {kept.scratch.address + 64}
        assert not kept.taken
    for k in range(3):  # taken, as in the child of a fork for ever
        ctypes.c_int32.from_address(kept.scratch.address).value = 1
        place = entry(np.ones((k + 1, 2))).view(np.int64)[0, 0]
        assert place % 64 == 0 and abs(place - kept.scratch.address) > 4160
        assert kept.taken
    assert not fallback.calls


def test_scratch_memory_is_for_all_threads() -> None:
    kept, pool = Kept(), Pool(3)
    entry = scratching("scratch", scratch=kept, pool=pool, grain=8, share_rows=9)
    assert kept.scratch.size == 3 * 4160
    seen: set[int] = set()
    for _ in range(50):
        seen |= {int(word) for word in entry(np.ones((3000, 2))).view(np.int64).flat}
    assert seen <= {kept.scratch.address + 64 + 4160 * k for k in range(3)}
    pool.close()


def test_calls_at_the_same_time_have_memory_of_their_own() -> None:
    kept, found = Kept(), []
    slow = scratching("linger", scratch=kept, release_rows=1)
    quick = scratching("scratch", scratch=lambda size: kept.scratch)
    data = np.zeros((2, 2))
    words = data.view(np.int64)
    thread = threading.Thread(target=lambda: found.append(slow(data)))
    thread.start()
    until(lambda: bool(words[0, 1]))
    assert kept.taken
    other = quick(np.ones((2, 2))).view(np.int64)[0, 0]
    words[0, 0] = 1
    thread.join(PATIENCE)
    assert not thread.is_alive() and not kept.taken
    assert found[0].view(np.int64)[0, 0] == kept.scratch.address + 64 != other
    assert quick(np.ones((2, 2))).view(np.int64)[0, 0] == kept.scratch.address + 64


def test_scratch_memory_is_given_back_where_a_result_is_not_finite() -> None:
    kept, fallback = Kept(), Recorder()
    code = special()
    nan = int(np.array(np.nan).view(np.int64)[()])
    one = EntryKernel(code.address("constant"), constants=(0, nan), workspace=64, keep=code)
    entry = make_entry("f", "", np.dtype(float), (3,), ((1,),), fallback, one, one, None, scratch=kept)
    assert entry is not None and entry(np.ones(3)) is fallback.answer and not kept.taken
    assert np.isnan(entry(np.ones((2, 3)))).all() and not kept.taken
