"""Results that go to rows on the way have the bits of those that are brought to rows at once, wherever they lie."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.compile.llvm.streaming import streamed_bytes
from robodyn.compile.llvm.target import host_target
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.loops.language import Array as LoopArray
from robodyn.compile.loops.language import bound, struct_of
from robodyn.compile.loops.table import Argument
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.engines.cpu import backends, caches
from robodyn.engines.cpu.chains import row_writer_code
from robodyn.engines.cpu.engine import CpuEngine
from robodyn.engines.cpu.kernels import Kernel, workspace
from robodyn.engines.cpu.route import SingleProgram
from robodyn.engines.query_table import QUERIES
from robodyn.internals.tuning import STREAMED_BYTES
from robodyn.tools.benchmark.contenders import draw, plain_call

pytestmark = pytest.mark.skipif(
    host_target().level == "neon" or not backends._runs(host_target().level),
    reason="this processor or system runs no code of ours",
)
LINED = ("mass_matrix", "inverse_dynamics_gradient", "body_regressor", "inverse_dynamics_hessian")
dtypes = pytest.mark.parametrize("dtype", ["float64", "float32"])


def kernel_of(query: str, dtype: str, model: rd.Model | None = None, *, small: bool = False) -> Kernel:
    """Its lines are written in all batches, unless `small` ones are as they are made."""
    dyn = rd.Dynamics(model or rd.load_urdf(own("humanoid")), engine="cpu", threads=1, dtype=dtype)
    kernel = dyn.engine.kernel(QUERIES[query].plain_task(dyn.model))
    assert kernel.plain is not None and kernel.plain.mode == kernel.mode == "unrolled"
    if not small:
        kernel.keep.descriptor.small_bytes = 0
    return kernel


def given(kernel: Kernel, rows: int) -> list[np.ndarray]:
    states = draw(kernel.request.model, rows, 1)
    return [np.ascontiguousarray(states[name], kernel.request.dtype) for name in kernel.inputs]


def run(
    kernel: Kernel, arrays: list[np.ndarray], first: int, last: int, batch: int, function: Callable | None = None
) -> None:
    """Some rows of a batch; `function`: what runs in the kernel's place."""
    words = [word for array in arrays for word in (array.ctypes.data, array.strides[0])]
    table = (ctypes.c_int64 * (len(words) + len(kernel.constants)))(*words, *kernel.constants)
    table[len(table) - 1] = batch
    scratch, owner = workspace(kernel.workspace_bytes)
    ctypes.memset(scratch, 0xFF, kernel.workspace_bytes)
    (function or kernel.function)(ctypes.addressof(table), first, last, scratch)
    assert owner.size


def run_as_python(kernel: Kernel, arrays: list[np.ndarray], first: int, last: int, batch: int) -> None:
    """The same with the code around the program as Python."""
    kind = VectorType.of(kernel.request.dtype, kernel.request.target)

    def around(table: int, first: int, last: int, scratch: int) -> None:
        with bound(**row_writer_code.types_of(kind)):
            row_writer_code.run(LoopArray(table, struct_of(Argument)), len(arrays), first, last, scratch, kind)

    run(kernel, arrays, first, last, batch, around)


class Watched:
    """A kernel whose rows that are left over are written down, and computed as always."""

    def __init__(self, kernel: Kernel) -> None:
        self.rows: list[tuple[int, int]] = []
        descriptor, (behind,) = kernel.keep.descriptor, kernel.keep.kernels
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)

        def left_over(table: int, first: int, last: int, scratch: int) -> None:
            self.rows.append((first, last))
            behind.function(table, first, last, scratch)

        self._held = kind(left_over)
        assert descriptor.kernel == behind.address
        descriptor.kernel = ctypes.cast(self._held, ctypes.c_void_p).value


@dtypes
@pytest.mark.parametrize("query", LINED)
@pytest.mark.some(of=4, rest="matrix")
def test_any_range_of_rows_anywhere(query: str, dtype: str) -> None:
    """Ranges, places in memory, rows before the first line and behind the last group, of which there may be none; past
    the caches and to them."""
    kernel = kernel_of(query, dtype)
    width = kernel.request.target.width(kernel.request.dtype)
    group = width * 64 // np.dtype(dtype).itemsize
    rows = 3 * group
    arrays = given(kernel, rows)
    shapes = [(rows, *output_shape(kernel.request.model, each)) for each in kernel.request.algorithm.outputs.values()]
    wanted = [np.full(shape, np.nan, dtype) for shape in shapes]
    run(kernel.plain, [*arrays, *wanted], 0, rows, rows)
    assert not any(np.isnan(each).any() for each in wanted)
    watched, rng, light = Watched(kernel), np.random.default_rng(rows), bool(kernel.keep.descriptor.leaves)
    target = kernel.request.target
    assert light == (query == "body_regressor" and target.level == "avx512")
    for k in range(20):
        first, last = sorted(int(each) for each in rng.integers(0, rows + 1, 2))
        first, last = (0, rows) if k == 0 else (first, last) if k % 3 else (first // 8, rows - last // 8)
        if k >= 14:
            last = min(first + (width - 1, width, width + 1, group - 1, group + 1, group + width)[k - 14], rows)
        off = 0 if k == 0 else int(rng.integers(16)) * 4
        sound = k % 2 == 0 or off % np.dtype(dtype).itemsize == 0
        memory, found = [], []
        for each in wanted:
            memory.append(np.full(each.nbytes + 192, 0xA5, np.uint8))
            start = (
                -memory[-1].ctypes.data % 64 + 64 + (off if k % 2 else int(rng.integers(3)) * each.itemsize * (k > 0))
            )
            found.append((start, memory[-1][start : start + each.nbytes].view(dtype).reshape(each.shape)))
        watched.rows.clear()
        if last > first:
            run(kernel, [*arrays, *(each for _, each in found)], first, last, 1 << 40 if k % 2 else rows)
        lined = last - first >= width and (not light or k % 2 == 0) and sound
        assert watched.rows == [(first, last)] * (not lined and first < last)
        for (start, each), right, bytes_ in zip(found, wanted, memory, strict=True):
            np.testing.assert_array_equal(each[first:last], right[first:last], err_msg=f"rows {first} to {last}")
            row = right[0].nbytes
            assert (bytes_[: start + first * row] == 0xA5).all() and (bytes_[start + last * row :] == 0xA5).all()


@dtypes
@pytest.mark.parametrize("large", [False, True])
def test_as_python_it_does_the_same(dtype: str, large: bool) -> None:
    """Around machine code, for a group and rows that follow it; to the byte."""
    kernel = kernel_of("inverse_dynamics_gradient", dtype)
    width, line = kernel.request.target.width(kernel.request.dtype), 64 // np.dtype(dtype).itemsize
    rows, found = width * line + 2 * width + 3, []
    arrays, watched = given(kernel, rows), Watched(kernel)
    shapes = [(rows, *output_shape(kernel.request.model, each)) for each in kernel.request.algorithm.outputs.values()]
    for how in (run, run_as_python):
        memory = [np.full(int(np.prod(shape)) + 3 * line, 7.0, dtype) for shape in shapes]
        starts = [(-each.ctypes.data % 64) // each.itemsize + line + k for k, each in enumerate(memory, 3)]
        results = [
            each[start : start + each.size - 3 * line].reshape(shape)
            for each, start, shape in zip(memory, starts, shapes, strict=True)
        ]
        how(kernel, [*arrays, *results], 1, rows - 1, 1 << 40 if large else rows)
        found.append([each[start - line :][: each.size - 2 * line] for each, start in zip(memory, starts, strict=True)])
    assert watched.rows == []
    for compiled, python in zip(*found, strict=True):
        np.testing.assert_array_equal(compiled, python)
        assert (python[:line] == 7.0).all() and (python == 7.0).mean() < 0.1


@dtypes
@pytest.mark.parametrize("query", LINED)
@pytest.mark.some(of=4, rest="matrix")
def test_queries_have_the_bits_of_small_batches(query: str, dtype: str) -> None:
    dyn = rd.Dynamics(rd.load_urdf(own("humanoid"), base="floating"), engine="cpu", dtype=dtype, threads=3)
    question = QUERIES[query]
    rows = 2000
    states = draw(dyn.model, rows)
    arguments = [states[name].astype(dtype) for name in question.plain]
    for call in (plain_call(dyn, question), plain_call(dyn.variant(check=False), question)):
        parts = [call(*(each[k : k + 20] for each in arguments)) for k in range(0, rows, 20)]
        found = call(*arguments)
        pairs = zip(found, zip(*parts, strict=True), strict=True) if isinstance(found, tuple) else [(found, parts)]
        for result, small in pairs:
            np.testing.assert_array_equal(result, np.concatenate(small))


@dtypes
def test_rows_with_gaps_and_odd_addresses_are_brought_at_once(dtype: str) -> None:
    kernel = kernel_of("mass_matrix", dtype)
    watched, rows = Watched(kernel), 600
    arrays, nv = given(kernel, rows), kernel.request.model.nv
    wanted = np.full((rows, nv, nv), np.nan, dtype)
    run(kernel.plain, [*arrays, wanted], 0, rows, rows)
    wide = np.full((rows, nv + 1, nv), np.nan, dtype)
    run(kernel, [*arrays, wide[:, 1:]], 0, rows, rows)
    np.testing.assert_array_equal(wide[:, 1:], wanted)
    assert np.isnan(wide[:, 0]).all() and watched.rows == [(0, rows)]
    memory = np.zeros(wanted.nbytes + 64, np.uint8)
    odd = memory[1 - memory.ctypes.data % 2 :][: wanted.nbytes]
    run(kernel, [*arrays, odd.view(dtype).reshape(wanted.shape)], 0, rows, rows)
    np.testing.assert_array_equal(odd.copy().view(dtype).reshape(wanted.shape), wanted)
    assert watched.rows == [(0, rows), (0, rows)]


@dtypes
@pytest.mark.parametrize("large", [STREAMED_BYTES, 1 << 25, 1 << 18])
@pytest.mark.parametrize("query", ["mass_matrix", "inverse_dynamics_hessian", "body_regressor"])
@pytest.mark.some(of=3, rest="matrix")
def test_small_batches_are_brought_at_once(query: str, large: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the caches' size what is many bytes of a vector of states, or of little arithmetic."""
    monkeypatch.setattr("robodyn.engines.cpu.chains.row_writer.streamed_bytes", lambda target: large)
    monkeypatch.setattr("robodyn.engines.cpu.chains.row_writer.last_cache_bytes", lambda: 0)
    kernel = kernel_of(query, dtype, small=True)
    target, row = kernel.request.target, kernel.keep.descriptor.row_bytes
    width, limit = target.width(kernel.request.dtype), kernel.keep.descriptor.small_bytes
    least = min(large, 1 << 20) if query == "mass_matrix" else large
    assert limit == least
    rows, watched, found = 2 * width, Watched(kernel), []
    arrays = given(kernel, rows)
    shapes = [output_shape(kernel.request.model, each) for each in kernel.request.algorithm.outputs.values()]
    leaves = bool(kernel.keep.descriptor.leaves)  # on processors that copy past the caches quickly
    assert leaves <= (query == "body_regressor")
    for k, batch in enumerate((limit // row, limit // row + 1)):
        found.append([np.full((rows, *shape), np.nan, dtype) for shape in shapes])
        run(kernel, [*arrays, *found[-1]], 0, rows, batch)
        assert watched.rows == [(0, rows)] * (1 + k * leaves)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
        assert not np.isnan(one).any()


@dtypes
def test_inputs_that_are_the_same_for_all_rows(dtype: str) -> None:
    dyn = rd.Dynamics(rd.load_urdf(own("humanoid")), engine="cpu", dtype=dtype, threads=1)
    s = draw(dyn.model, 700)
    q, qd, qdd = (s[name].astype(dtype) for name in ("q", "qd", "qdd"))
    found = dyn.inverse_dynamics_gradient(q, np.broadcast_to(qd[0], qd.shape), qdd[:1])
    wanted = dyn.inverse_dynamics_gradient(q, np.tile(qd[0], (700, 1)), np.tile(qdd[0], (700, 1)))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@dtypes
def test_what_the_cache_kept_does_the_same(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path))
    model = rd.load_urdf(own("humanoid"))
    states = draw(model, 700)
    arguments = [states[name].astype(dtype) for name in ("q", "qd", "qdd")]
    results = []
    for _ in range(2):
        dyn = rd.Dynamics(model, engine="cpu", dtype=dtype, threads=1)
        results.append(dyn.inverse_dynamics_gradient(*arguments))
        kernel = dyn.engine.kernel(QUERIES["inverse_dynamics_gradient"].plain_task(model))
        assert kernel.plain is not None and (kernel.keep.kernels[0].plain or kernel.keep.kernels[0]) is kernel.plain
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_some_large_results_are_brought_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the caches, of little arithmetic, or with AVX2 rows that begin at one place of their pages; and how large
    that is the processor's last cache says."""
    wide = host_target().level == "avx512"
    cache_pressure = rd.random_tree(64, seed=3)
    assert cache_pressure.nv == 64
    least = streamed_bytes(host_target())
    for held, limit in ((0, least), (1 << 20, least), (90 << 26, 10 << 26)):
        monkeypatch.setattr("robodyn.engines.cpu.chains.row_writer.last_cache_bytes", lambda held=held: held)
        for query, model, left in (
            ("body_regressor", None, wide),
            ("mass_matrix", cache_pressure, not wide),
            ("inverse_dynamics_gradient", None, False),
        ):
            kernel = kernel_of(query, "float64", model)
            assert kernel.keep.descriptor.large_bytes == limit and kernel.keep.descriptor.leaves == left
            rows, row = 128, kernel.keep.descriptor.row_bytes
            arrays = given(kernel, rows)
            outputs = kernel.request.algorithm.outputs.values()
            shapes = [output_shape(kernel.request.model, each) for each in outputs]
            results = []
            for shape in shapes:
                memory = np.empty((rows + 1) * int(np.prod(shape)), np.float64)
                start = -memory.ctypes.data % 64 // 8
                results.append(memory[start : start + rows * int(np.prod(shape))].reshape(rows, *shape))
            assert row == sum(each[0].nbytes for each in results)
            watched = Watched(kernel)
            run(kernel, [*arrays, *results], 0, rows, limit // row)
            assert watched.rows == []
            run(kernel, [*arrays, *results], 0, rows, limit // row + 1)
            assert watched.rows == [(0, rows)] * left


LEFT = (
    ("arm7", "fixed", "inverse_dynamics_gradient", False),  # 3 kB of a vector of states
    ("arm7", "fixed", "regressor", False),  # 16 kB, and not much is computed for them
    ("arm7", "fixed", "forward_dynamics_parameter_gradient", True),
    ("quadruped", "floating", "mass_matrix", False),  # 10 kB
    ("quadruped", "floating", "inverse_dynamics_gradient", True),  # 21 kB
    ("humanoid", "fixed", "mass_matrix", True),  # 31 kB
    ("humanoid", "fixed", "link_acceleration_gradient", False),  # 18 kB
)


@dtypes
@pytest.mark.parametrize(("robot", "base", "query", "left"), LEFT)
def test_what_goes_as_lines_with_avx2(robot: str, base: str, query: str, left: bool, dtype: str) -> None:
    """Which results do, and that these have the same bits in small batches and in large ones."""
    model, question, target = rd.load_urdf(own(robot), base=base), QUERIES[query], host_target("avx2")
    engine = CpuEngine(model, np.dtype(dtype), threads=1, target=target)
    request = engine.request(question.plain_task(model), link=len(model.link_names) - 1 if question.of_link else None)
    route = engine.compiler.route(request)
    assert isinstance(route, SingleProgram) and route.request.packed == left
    if not left:
        return
    kernel = engine.compiler.kernel(request, single=False)
    rows = 3 * target.width(kernel.request.dtype) * 64 // kernel.request.dtype.itemsize + 5
    arrays, watched, found = given(kernel, rows), Watched(kernel), []
    shapes = [output_shape(model, each) for each in kernel.request.algorithm.outputs.values()]
    for batch in (1, 1 << 40):
        found.append([np.full((rows, *shape), np.nan, dtype) for shape in shapes])
        run(kernel, [*arrays, *found[-1]], 0, rows, batch)
        assert watched.rows == [(0, rows)]  # of the small one
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
        assert not np.isnan(one).any()


def test_the_last_cache_is_what_linux_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "_CACHES", tmp_path)
    for sizes, wanted in (
        ((), 0),
        (("48K", "2048K", "32M"), 32 << 20),
        (("48K", "1G"), 1 << 30),
        (("what",), 0),
        (("",), 0),
    ):
        for k, size in enumerate(sizes):
            (tmp_path / f"index{k}").mkdir(exist_ok=True)
            (tmp_path / f"index{k}" / "size").write_text(f"{size}\n")
        caches.last_cache_bytes.cache_clear()
        assert caches.last_cache_bytes() == wanted
        for file in tmp_path.glob("*/size"):
            file.unlink()
    caches.last_cache_bytes.cache_clear()
