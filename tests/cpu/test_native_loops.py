"""What built-in functions do around a kernel, run as plain Python: machine code does the same."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from robodyn.compile.llvm.jit import OPT, Code, compile_object
from robodyn.compile.llvm.target import host_target
from robodyn.compile.loops.blocks import Number
from robodyn.compile.loops.language import Address, Array, Routine, Word, address, array, bound, routine
from robodyn.compile.loops.llvm import Module
from robodyn.compile.loops.table import Argument
from robodyn.engines import buffer_pool
from robodyn.engines.cpu.native import entry
from robodyn.engines.cpu.native.answers import Answers, Input, JointForce
from robodyn.engines.cpu.native.buffer_pool_code import (
    kept_calloc,
    kept_free,
    kept_malloc,
    kept_realloc,
    kept_release,
)
from robodyn.engines.cpu.native.checks import DOUBLES, SINGLES, checked, finite
from robodyn.engines.cpu.native.code import read_inputs
from robodyn.engines.cpu.native.context import MAX_INPUTS, AnswerTable, Context, Force, Job
from robodyn.engines.cpu.native.forms import context_of
from robodyn.engines.cpu.native.joint_forces import DOUBLE, SINGLE, force
from robodyn.engines.cpu.native.layout import layout_is_known
from robodyn.engines.cpu.native.objects import PyArray
from robodyn.engines.cpu.native.results import ONE_STATE, adoptable
from robodyn.engines.cpu.native.rollouts import checked_steps

pytestmark = pytest.mark.skipif(not layout_is_known(), reason="no built-in entries on this Python and NumPy")

TYPES = {"Words": Number("i64", 8, align=64)}
KINDS = ((DOUBLE, DOUBLES, np.float64), (SINGLE, SINGLES, np.float32))
WORD = ctypes.c_int64


def compiled(*routines: Routine, **known: Any) -> list[Any]:
    """Functions of machine code, which take and give words."""
    module = Module(TYPES)
    for each in routines:
        module.export(each, **known)
    code = Code(compile_object(module.text(), host_target(), OPT), host_target())

    def runs(each: Routine) -> Any:
        types = WORD, *(WORD,) * (each.function.__code__.co_argcount - len(known))
        function = ctypes.CFUNCTYPE(*types)(code.address(each.__name__))
        return lambda *words: (function(*map(int, words)), code)[0]

    return list(map(runs, routines))


def at(memory: Any, of: Any = None) -> Any:
    """Where a structure, or an array, is."""
    start = memory.ctypes.data if isinstance(memory, np.ndarray) else ctypes.addressof(memory)
    return start if of is None else array(of, start)


@pytest.fixture(scope="module")
def scan() -> dict[Any, Any]:
    return {vector: compiled(finite, vector=vector)[0] for _, vector, _ in KINDS}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("kind", "vector", "dtype"), KINDS)
def test_numbers_that_are_not_finite_are_found(scan, kind, vector, dtype, bad):
    rng = np.random.default_rng(1)
    for count in (0, 1, 7, 8, 16, 31, 64, 65, 100, 201):
        numbers = rng.standard_normal(count + 1).astype(dtype) * (np.finfo(dtype).max / 8)
        numbers[count] = np.nan  # which nobody looks at
        places = {-1, 0, count // 2, count - 1} if count else {-1}
        for place in sorted(places):
            some = numbers.copy()
            if place >= 0:
                some[place] = bad
            with np.errstate(invalid="ignore"):
                as_python = finite(at(some), count, vector)
            assert as_python == bool(scan[vector](at(some), count) & 1) == (place < 0)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("kind", "vector", "dtype"), KINDS)
def test_damping_and_friction(kind, vector, dtype, sign):
    n, step = 5, 3
    rng = np.random.default_rng(2)
    damping, friction, rates = rng.random((3, n)).astype(dtype)
    rates -= dtype(0.5)
    rates[1:3] = 0.0, np.nan
    source = rng.random(n * step).astype(dtype)
    law = Force(0, 0, step, n, at(damping), at(friction))
    results = []
    for run in (lambda *words: force(*words, kind), compiled(force, kind=kind)[0]):
        to = source.copy()
        run(at(to), at(source), at(rates), at(law, Force), sign)
        results.append(to)
    np.testing.assert_array_equal(*results)
    wanted = source.copy()
    wanted[::step] += dtype(sign) * (damping * rates + friction * np.sign(rates))
    np.testing.assert_array_equal(results[0], wanted)


def test_a_kernel_between_two_looks_at_numbers():
    """Joint forces are taken from the input and added to the result; what is not finite is told."""
    ones = np.ones(2)
    forces = JointForce(0, 1, 2.0 * ones, ones), JointForce(2, None, 3.0 * ones, ones)
    shapes = Input(0, (2,)), Input(1, (2,))
    answers = Answers(np.dtype(float), shapes, ((2,),), None, None, True, forces=forces)
    lent, given, out = np.zeros((3, 2)), np.array([[1.0, 2.0]] * 3), np.zeros((3, 2))
    rates = np.array([[1.0, -1.0]] * 3)
    table = (Argument * 3)(Argument(at(lent), 16), Argument(at(rates), 16), Argument(at(out), 16))
    inputs = (Argument * 2)(Argument(at(given), 16), Argument(at(rates), 16))

    @ctypes.CFUNCTYPE(None, WORD, WORD, WORD, WORD)
    def kernel(_: int, first: int, last: int, __: int) -> None:
        out[first:last] = 10.0 * lent[first:last]

    for run in (checked, compiled(checked)[0]):
        for bad in (False, True):
            lent[:] = out[:] = 0.0
            rates[2, 0] = np.inf if bad else 1.0
            job = Job(ctypes.pointer(answers.context), ctypes.cast(kernel, ctypes.c_void_p), table, inputs)
            with np.errstate(invalid="ignore"):
                run(at(job, Job), 1, 3, 0)
            assert job.bad == bad
            wanted = [[0.0, 0.0], *([[0.0, 0.0]] * 2 if bad else [[-20.0 + 4.0, 50.0 + 4.0]] * 2)]
            np.testing.assert_array_equal(out, wanted)


@routine
def inputs_of(
    context: Array[Context],
    arrays: Array[Address],
    table: Array[Argument],
    given: Array[Argument],
    moves: Array[Word],
    singles: Address,
) -> Word:
    return read_inputs(context, arrays, table, given, moves, singles)


def test_inputs_are_read_as_they_are():
    answers = Answers(np.dtype(float), (Input(1, (2, 3)), Input(0, (4,)), Input(2, ())), ((1,),), None, None, None)
    machine = compiled(inputs_of)[0]
    grids = [np.zeros(shape) for shape in ((2, 3), (5, 2, 3), (4, 2, 3), (3, 2))]
    grids.append(np.zeros((5, 3, 2)).swapaxes(1, 2))
    lines = np.zeros(4), np.zeros((5, 4)), np.zeros((5, 8))[:, ::2], np.zeros((0, 4)), np.zeros(4, np.float32)
    numbers, room, moves = (1.5, 2), np.zeros(MAX_INPUTS, np.float32), np.zeros(MAX_INPUTS, np.int64)
    seen = set()
    for grid in grids:
        for line in lines:
            for number in numbers:
                arguments = (WORD * 3)(id(line), id(grid), id(number))
                found = []
                for run in (inputs_of, machine):
                    tables = (Argument * 6)()
                    table = at(tables, Argument)
                    memory = at(answers.context, Context), at(arguments, Address), table, table + 3, at(moves, Word)
                    rows = run(*memory, room.ctypes.data)
                    assert rows < ONE_STATE or bytes(tables)[:48] == bytes(tables)[48:]
                    found.append((rows, bytes(tables)))
                assert found[0] == found[1]
                seen.add(found[0][0])
    assert seen == {-2, ONE_STATE, 4, 5}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_inputs_within_bounds(dtype):
    """Floats that must be positive, floats that calls leave out, arrays without negative numbers."""
    inputs = Input(0, (3,), nonnegative=True), Input(1, (), positive=True), Input(2, (), default=0.25)
    answers = Answers(np.dtype(dtype), inputs, ((1,),), None, None, None)
    machine, room, moves = compiled(inputs_of)[0], np.zeros(MAX_INPUTS, np.float32), np.zeros(MAX_INPUTS, np.int64)
    arrays = [np.array(row, dtype) for row in ([0, 1, 2], [-0.0, 0, 0], [1, -1e-30, 1], [1, np.nan, 1], [np.inf, 1, 1])]
    arrays += [np.ones((4, 3), dtype), np.where(np.arange(12) == 11, -1.0, 1.0).astype(dtype).reshape(4, 3)]
    fine = [True, True, False, False, False, True, False]
    for given, allowed in zip(arrays, fine, strict=True):
        for number in (0.5, 5e-324, 0.0, -1.0, math.inf, math.nan):
            arguments = (WORD * 3)(id(given), id(number), id(None))
            rows = ONE_STATE if given.ndim == 1 else 4
            wanted = rows if allowed and 0.0 < number < math.inf else -2
            for run in (inputs_of, machine):
                tables = (Argument * 6)()
                table = at(tables, Argument)
                with np.errstate(invalid="ignore"):
                    memory = at(answers.context, Context), at(arguments, Address), table, table + 3, at(moves, Word)
                    found = run(*memory, room.ctypes.data)
                assert found == wanted, (given, number)
                if wanted != -2:
                    kind = ctypes.POINTER(np.ctypeslib.as_ctypes_type(dtype))
                    assert [ctypes.cast(tables[k].data, kind)[0] for k in (1, 2)] == [dtype(number), 0.25]


def test_arrays_of_the_users_are_taken_where_they_fit():
    answers = Answers(np.dtype(float), (Input(0, (4,)),), ((2, 3), (4,)), None, None, None)
    machine = compiled(adoptable)[0]
    memory = np.zeros(200)
    inputs, first = memory[:20].reshape(5, 4), memory[40:70].reshape(5, 2, 3)
    table = (Argument * 3)(Argument(at(inputs), 32), Argument(at(first), 48))
    locked = np.zeros((5, 2, 3))
    locked.flags.writeable = False
    right = [first, memory[20:50].reshape(5, 2, 3)]
    overlapping = memory[19:49].reshape(5, 2, 3)
    shaped = [np.zeros((5, 3, 2)), np.zeros((4, 2, 3)), memory, np.zeros((5, 2, 6))[:, :, ::2]]
    others = [overlapping, *shaped, locked, np.zeros((5, 2, 3), np.float32), 3.0, None]
    lines = [memory[20:40].reshape(5, 4), memory[70:90].reshape(5, 4)]
    wanted = [(0, each, True) for each in right] + [(0, each, False) for each in others]
    wanted += [(1, each, True) for each in lines] + [(1, memory[60:80].reshape(5, 4), False)]
    still = np.zeros(3, np.int64)
    context, records, moves = at(answers.context, Context), at(table, Argument), at(still, Word)
    for k, each, fits in wanted:
        for run in (adoptable, machine):
            assert bool(run(context, records, moves, 5, k, array(PyArray, id(each))) & 1) == fits


@pytest.mark.parametrize("bad", [None, "qd0", "tau", "result"])
@pytest.mark.parametrize("shared", [False, True])
def test_all_steps_of_a_rollout(shared, bad):
    """Two states of two numbers, three steps, forces of each step; a thread may have some of the rows."""
    shapes = Input(0, (2,)), Input(1, (2,)), Input(2, (2,))
    answers = Answers(np.dtype(float), shapes, ((2,), (2,)), None, None, None, steps=3)
    rng = np.random.default_rng(6)
    q0, qd0, tau = rng.random(2), rng.random((2, 2)), rng.random((3, 2, 2))
    q, qd = np.full((2, 4, 2, 2), np.nan)
    if bad == "qd0":
        qd0[1, 0] = np.nan
    elif bad == "tau":
        tau[2, 1, 1] = np.inf
    elif bad == "result":
        tau[0, 1, 1], qd0[1, 1] = 1e308, 1e308
    given = (Argument * 3)(Argument(at(q0), 0), Argument(at(qd0), 16), Argument(at(tau), 16))
    table = (Argument * 5)(*given, Argument(at(q), 16), Argument(at(qd), 16))
    moves = np.array([0, 0, 32, 32, 32])

    @ctypes.CFUNCTYPE(None, WORD, WORD, WORD, WORD)
    def kernel(records: int, first: int, last: int, __: int) -> None:
        def row(k: int, r: int) -> Any:
            record = (Argument * 5).from_address(records)[k]
            return np.ctypeslib.as_array((ctypes.c_double * 2).from_address(record.data + record.stride * r))

        for r in range(first, last):
            row(3, r)[:], row(4, r)[:] = row(0, r) + row(1, r), row(1, r) + row(2, r)

    for run in (checked_steps, compiled(checked_steps)[0]):
        q[:] = qd[:] = np.nan
        job = Job(
            ctypes.pointer(answers.context),
            ctypes.cast(kernel, ctypes.c_void_p),
            table,
            given,
            0,
            ctypes.cast(at(moves), ctypes.POINTER(WORD)),
        )
        told = []
        with np.errstate(invalid="ignore", over="ignore"):
            for rows in ((0, 1), (1, 2)) if shared else ((0, 2),):
                run(at(job, Job), *rows, 0)
                told.append(job.bad)
        assert told == ([0, 1] if shared else [1]) if bad else not any(told)
        if bad is None:
            wanted_qd = qd0 + np.concatenate([np.zeros((1, 2, 2)), tau.cumsum(0)])
            np.testing.assert_allclose(qd, wanted_qd, rtol=1e-15)
            np.testing.assert_allclose(q[1:], q[:-1] + qd[:-1], rtol=1e-15)
            np.testing.assert_array_equal(q[0], [q0, q0])


@routine
def context_at(table: Array[AnswerTable], key: Word) -> Address:
    return address(context_of(table, key))


def test_keys_are_found():
    form = entry._Form(1, (), [entry.Argument("choice", types=(int,), bits=60)])
    answers = [Answers(np.dtype(float), (Input(0, (1,)),), ((1,),), None, None, None) for _ in range(3)]
    keys = {key: answers[key % 3] for key in (0, 1, 5, 77, 1 << 40, (1 << 60) - 1, 12345678912345)}
    for key, each in keys.items():
        form.add([key], {0: key}, each)
    table, machine = array(AnswerTable, form.memory.answers), compiled(context_at)[0]
    for key in (*keys, 2, 3, 1 << 50):
        found = context_at(table, key)
        assert found == machine(table, key)
        assert found == (ctypes.addressof(keys[key].context) if key in keys else 0)


@pytest.fixture
def allocators() -> Iterator[list[tuple[buffer_pool.Kept, list[Any]]]]:
    """What waits, and the functions, once as Python and once as machine code."""
    if not sys.platform.startswith("linux"):
        pytest.skip("no allocator of its own on this system")
    library = ctypes.CDLL(None)
    calls = {name: ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in ("mmap", "munmap", "madvise")}
    functions = kept_release, kept_malloc, kept_calloc, kept_free, kept_realloc
    found = [(buffer_pool.Kept(limit=10 << 20, **calls), list(each)) for each in (functions, compiled(*functions))]
    with bound(**TYPES):
        yield found
    for waiting, (release, *_) in found:
        release(at(waiting, buffer_pool.Kept))


def test_memory_of_results(allocators):
    """The same blocks wait after each step, and numbers stay what they were."""
    rng = np.random.default_rng(4)
    sizes = np.exp2(rng.uniform(17.0, 23.5, 100)).astype(int)
    steps = list(zip(rng.integers(4, size=100), sizes.tolist(), rng.random(100), strict=True))
    seen = []
    for waiting, (release, malloc, calloc, free, realloc) in allocators:
        me, alive, told = at(waiting, buffer_pool.Kept), [], []
        for what, size, which in steps:
            if what == 0 or not alive:
                alive.append((malloc(me, size), size))
                ctypes.memset(alive[-1][0], len(alive), size)
            elif what == 1:
                alive.append((calloc(me, 8, size // 8), size // 8 * 8))
                assert not any(ctypes.string_at(alive[-1][0], 4096))
            else:
                start, old = alive.pop(int(which * len(alive)))
                first, last = (ctypes.string_at(start + k, 1) for k in (0, old - 1))
                if what == 2 or old > 1 << 19:
                    free(me, start, old)
                else:
                    start = realloc(me, start, size)
                    assert ctypes.string_at(start, 1) == first
                    assert size < old or ctypes.string_at(start + old - 1, 1) == last
                    alive.append((start, size))
            places = [(bool(each.start), each.bytes, each.since, each.marked) for each in waiting.places]
            told.append((waiting.lock, waiting.held, waiting.clock, places))
        for start, size in alive:
            free(me, start, size)
        free(me, 0, 0)
        held = waiting.held
        told.append((malloc(me, 1 << 62), malloc(me, -5), calloc(me, 1 << 40, 1 << 40), calloc(me, -1, 2)))
        assert 0 < held <= waiting.limit and release(me) == held and waiting.held == 0
        waiting.lock = 1  # as if another thread were in the middle of a change: nothing waits, nothing is taken
        block = malloc(me, 1 << 20)
        free(me, block, 1 << 20)
        assert (waiting.lock, waiting.held, release(me)) == (1, 0, 0)
        waiting.lock = 0
        seen.append(told)
    assert seen[0] == seen[1]
    assert seen[0][-1] == (0, 0, 0, 0)
