"""Large results, which go past the caches, have the bits of small ones, and touch nothing beside them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.algorithms.rnea import rnea
from robodyn.compile.llvm.streaming import streamed_bytes
from robodyn.compile.llvm.target import LEVEL_VARIABLE, LEVELS, host_target
from robodyn.compile.loops.language import Array, bound, struct_of
from robodyn.compile.loops.table import Argument
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.engines.cpu import streaming_stores_code
from robodyn.engines.cpu.backends import backend_of
from robodyn.engines.cpu.kernels import Kernel, workspace
from robodyn.engines.cpu.streaming_stores import _shifts
from robodyn.engines.query_table import QUERIES
from robodyn.tools.benchmark.contenders import draw, plain_call

STREAMED = ("forward_kinematics", "inverse_dynamics", "mass_matrix", "inverse_dynamics_gradient", "kinetic_energy")


def asked(dyn: rd.Dynamics, query: str, rows: int) -> list[np.ndarray]:
    """Arguments of a query."""
    states = draw(dyn.model, rows)
    return [states[name].astype(dyn.dtype) for name in QUERIES[query].plain]


def in_parts(call, arguments, rows):
    """The answers to parts that are small."""
    parts = [call(*(array[k : k + 1000] for array in arguments)) for k in range(0, rows, 1000)]
    several = isinstance(parts[0], tuple)
    return [np.concatenate(part) for part in (zip(*parts, strict=True) if several else [parts])]


def rows_for(dyn: rd.Dynamics, query: str) -> int:
    """States whose results are just large."""
    question = QUERIES[query]
    sizes = [int(np.prod(shape)) for shape in question.shapes(dyn.model, question.plain).values()]
    return streamed_bytes(host_target()) // (sum(sizes) * dyn.dtype.itemsize) + 13


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("query", STREAMED)
@pytest.mark.some(of=4, rest="nightly")
def test_same_bits(query: str, threads: int, dtype: str) -> None:
    dyn = rd.Dynamics(rd.load_urdf(own("arm7")), engine="cpu", dtype=dtype, threads=threads)
    rows = rows_for(dyn, query)
    arguments = asked(dyn, query, rows)
    call = plain_call(dyn, QUERIES[query])
    for found in (call(*arguments), plain_call(dyn, QUERIES[query])(*arguments)):  # checked, and quick
        results = found if isinstance(found, tuple) else (found,)
        for result, wanted in zip(results, in_parts(call, arguments, rows), strict=True):
            np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("off", [0, 1, 4, 8, 16, 56, 63])
@pytest.mark.parametrize("query", ["mass_matrix", "forward_kinematics", "centroidal_momentum_rate"])
def test_anywhere_and_nowhere_else(query: str, off: int) -> None:
    """Rows of 392, of 1,152 and of 48 bytes."""
    dyn = rd.Dynamics(rd.load_urdf(own("arm7")), engine="cpu", threads=2)
    rows = rows_for(dyn, query)
    arguments = asked(dyn, query, rows)
    call = plain_call(dyn, QUERIES[query])
    (wanted,) = in_parts(call, arguments, rows)
    memory = np.full(wanted.nbytes + 256, 0xA5, np.uint8)
    start = -memory.ctypes.data % 64 + 64 + off
    out = memory[start : start + wanted.nbytes].view(np.float64).reshape(wanted.shape)
    assert call(*arguments, out=out) is out
    np.testing.assert_array_equal(out, wanted)
    assert (memory[:start] == 0xA5).all() and (memory[start + wanted.nbytes :] == 0xA5).all()


def level_of(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the processor had no more than a level has."""
    host = host_target()
    if LEVELS[level] > host.vector_bytes or host.level == "neon":
        pytest.skip(f"this processor has no {level}")
    monkeypatch.setenv(LEVEL_VARIABLE, level)
    host_target.cache_clear()


@pytest.fixture
def levels_again():
    """What the processor has is looked for anew after a test."""
    yield
    host_target.cache_clear()


@pytest.mark.usefixtures("levels_again")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("level", ["avx512", "avx2", "sse2"])
@pytest.mark.parametrize(
    "query", ["center_of_mass", "mass_matrix", "forward_dynamics_gradient", "momenta", "forward_kinematics_gradient"]
)
@pytest.mark.some(of=4, rest="matrix")
def test_any_range_of_rows(query: str, level: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of a large batch: results of several arrays, of one scalar, wherever they begin and end."""
    level_of(level, monkeypatch)
    question = QUERIES["centroidal_momentum" if query == "momenta" else query]
    dyn = rd.Dynamics(rd.load_urdf(own("arm7")), engine="cpu", threads=1, dtype=dtype)
    kernel = dyn.engine.kernel(question.plain_task(dyn.model))
    assert kernel.plain is not None
    rows_at_once = kernel.keep.descriptor.rows
    if backend_of(kernel.request).name == "x86":
        assert bool(kernel.keep.descriptor.large) == (not kernel.request.vectors)
    rows = 4 * rows_at_once + 20
    rng = np.random.default_rng(rows)
    states = draw(dyn.model, rows)
    arrays = [np.ascontiguousarray(states[name], dyn.dtype) for name in kernel.inputs]
    outputs = kernel.request.algorithm.outputs.values()
    shapes = [(rows, *output_shape(dyn.model, output)) for output in outputs]
    sizes = [int(np.prod(shape)) * dyn.dtype.itemsize for shape in shapes]
    wanted = [np.full(shape, np.nan, dyn.dtype) for shape in shapes]
    run(kernel.plain, [*arrays, *wanted], 0, rows)
    assert not any(np.isnan(each).any() for each in wanted)
    for _ in range(12):
        first, last = sorted(int(each) for each in rng.integers(0, rows + 1, 2))
        first, last = (first, last) if rng.random() < 0.7 else (first, min(first + int(rng.integers(30)), rows))
        memory, found = [], []
        for shape, size in zip(shapes, sizes, strict=True):
            memory.append(np.full(size + 256, 0xA5, np.uint8))
            start = 64 - memory[-1].ctypes.data % 64 + int(rng.integers(16)) * 4
            found.append((start, memory[-1][start : start + size].view(dyn.dtype).reshape(shape)))
        if last > first:
            run(kernel, [*arrays, *(each for _, each in found)], first, last)
        for (start, each), right, bytes_, size in zip(found, wanted, memory, sizes, strict=True):
            np.testing.assert_array_equal(each[first:last], right[first:last], err_msg=f"rows {first} to {last}")
            row = size // rows
            assert (bytes_[: start + first * row] == 0xA5).all() and (bytes_[start + last * row :] == 0xA5).all()


@pytest.mark.parametrize("vector", [32, 64])
@pytest.mark.parametrize(
    "row, rows", [(0, 8), (4, 48), (56, 40), (336, 24), (392, 16), (560, 16), (1152, 8), (3024, 8)]
)
def test_buffers_lie_where_the_fewest_stores_are_across_pages(row: int, rows: int, vector: int) -> None:
    """Counted one by one, for a buffer at every line of a page."""
    pieces = [(row * r + p, min(vector, row - p)) for r in range(rows) for p in range(0, row, vector)]
    shifts = _shifts(row, rows, vector)
    assert len(shifts) == 16 and all(shift % 64 == 0 and 0 <= shift < 4096 for shift in shifts)
    for word, shift in enumerate(shifts):
        across = [
            sum((line + 4 * word + at) // 4096 != (line + 4 * word + at + size - 1) // 4096 for at, size in pieces)
            for line in range(0, 4096, 64)
        ]
        assert across[shift // 64] == min(across)


@pytest.mark.parametrize("in_turns", [False, True])
@pytest.mark.parametrize("query", ["mass_matrix", "forward_dynamics_gradient", "center_of_mass"])
def test_as_python_it_does_the_same(query: str, in_turns: bool) -> None:
    """Around machine code for some vectors at once, for one, and for results of a few bytes; to the byte."""
    dyn = rd.Dynamics(rd.load_urdf(own("arm7")), engine="cpu", threads=1)
    kernel = dyn.engine.kernel(QUERIES[query].plain_task(dyn.model))
    descriptor = kernel.keep.descriptor
    if in_turns:
        descriptor.large = 0
    rows, first = 2 * descriptor.rows + 3 * descriptor.width + 5, 3
    states = draw(dyn.model, rows)
    inputs = [np.ascontiguousarray(states[name]) for name in kernel.inputs]
    shapes = [output_shape(dyn.model, output) for output in kernel.request.algorithm.outputs.values()]
    found = []
    for how in (run, run_as_python):
        memory = [np.full(8 * rows * int(np.prod(shape)) + 256, 0xA5, np.uint8) for shape in shapes]
        starts = [-each.ctypes.data % 64 + 64 + 8 * k for k, each in enumerate(memory, 1)]
        results = [
            each[start : start + each.size - 256].view(np.float64).reshape(rows, *shape)
            for each, start, shape in zip(memory, starts, shapes, strict=True)
        ]
        how(kernel, [*inputs, *results], first, rows - 2)
        found.append([each[start - 64 : start + each.size - 192] for each, start in zip(memory, starts, strict=True)])
    for compiled, python in zip(*found, strict=True):
        np.testing.assert_array_equal(compiled, python)


def run_as_python(kernel: Kernel, arrays: list[np.ndarray], first: int, last: int) -> None:
    """The same with the code around the kernel as Python."""

    def around(table: int, first: int, last: int, scratch: int) -> None:
        entries = Array(table, struct_of(Argument))
        with bound(**streaming_stores_code.TYPES):
            streaming_stores_code.run(entries, len(arrays), first, last, scratch, streamed=1 << 30, fence="")

    run(kernel, arrays, first, last, around)


def run(kernel: Kernel, arrays: list[np.ndarray], first: int, last: int, function: Callable | None = None) -> None:
    """Some rows of what the kernel takes to be a large batch; `function`: what runs in its place."""
    words = [word for array in arrays for word in (array.ctypes.data, array.nbytes // len(array))]
    table = (ctypes.c_int64 * (len(words) + len(kernel.constants)))(*words, *kernel.constants)
    if kernel.batch:
        table[len(table) - 1] = 1 << 40
    scratch, owner = workspace(kernel.workspace_bytes)
    (function or kernel.function)(ctypes.addressof(table), first, last, scratch)
    del owner


def test_rows_that_are_not_dense_go_through() -> None:
    dyn = rd.Dynamics(rd.load_urdf(own("arm7")), engine="cpu", threads=1)
    rows = 20_000
    states = draw(dyn.model, rows)
    wide = np.full((rows, 60, 7), np.nan)
    target = {"tau": wide[:, 3]}
    dyn.engine.run(rnea(), {name: states[name] for name in ("q", "qd", "qdd")}, target)
    np.testing.assert_array_equal(wide[:, 3], dyn.inverse_dynamics(states["q"], states["qd"], states["qdd"]))
    assert np.isnan(wide[:, :3]).all() and np.isnan(wide[:, 4:]).all()


def test_one_state_and_steps_have_none_of_it() -> None:
    dyn = rd.Dynamics(rd.load_urdf(own("arm7")), engine="cpu", threads=1)
    q = np.zeros(7)
    dyn.inverse_dynamics(q, q, q)
    dyn.inverse_dynamics(q[None].repeat(9, 0), q, q)
    kernels = dyn.engine._kernels.values()
    assert all(kernel.plain is None for kernel in kernels if kernel.alone)
    around = [kernel for kernel in kernels if kernel.plain is not None]
    assert around and all(kernel.operations == kernel.plain.operations for kernel in around)
