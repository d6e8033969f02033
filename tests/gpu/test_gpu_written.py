"""Kernels from functions in restricted Python do on the host what they do as Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from gpu_host import ORDERS, missing
from gpu_host.device import HostDevice
from robots import own

import robodyn as rd
from robodyn.algorithms.tasks import Solution, Solve, SymbolicFactor
from robodyn.compile.loops.blocks import I64, Number
from robodyn.compile.loops.gpu import (
    WARP,
    OutsideError,
    barrier,
    block,
    from_before,
    from_lane,
    lane,
    rolled,
    run_blocks,
    shared,
    thread,
    unrolled,
    warp_barrier,
)
from robodyn.compile.loops.language import Array, Index, Routine, Scalar, Static, Word, bound, local, routine
from robodyn.compile.loops.source import MISSING, each_part, is_static, source_of
from robodyn.engines.gpu import staged_stores, tiles
from robodyn.engines.gpu.functions import kernel_source, several
from robodyn.engines.gpu.source import KernelSource
from robodyn.engines.gpu.straight import Straight
from robodyn.engines.gpu.unrolled_chains import _solve_kernel, columns_of, solve_columns
from robodyn.engines.scan.cuda.branch_elimination import branch_kernel, eliminate_level, solve_level
from robodyn.engines.scan.cuda.pairs import pair_kernel, pair_list, pair_matrix
from robodyn.engines.scan.cuda.steps import move_kernel, scan_move, scan_step, step_kernel
from robodyn.engines.scan.elementwise import traced
from robodyn.engines.scan.states import body_force
from robodyn.engines.scan.trees.branches import Branches
from robodyn.engines.scan.trees.pairs import entry_of

on_host = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
DOUBLE = np.dtype(np.float64)


KINDS = {np.dtype(np.float64): Number("double"), np.dtype(np.int64): I64}


def as_python(
    kernel: Routine[..., None],
    arrays: Sequence[np.ndarray],
    rows: int,
    numbers: Sequence[int],
    threads: int,
    blocks: int = 1,
    **known: Any,
) -> None:
    """Run a kernel as Python on arrays, which it changes."""
    assert all(each.flags.c_contiguous for each in arrays)
    given = [Array(each.ctypes.data, KINDS[each.dtype]) for each in arrays]
    flat = iter([*given, Array(0, Number("double")), rows, *numbers])
    source = source_of(kernel.function)
    arguments = {
        name: each_part(name, annotation, source, known.pop(name, MISSING), lambda *_: next(flat))
        for name, annotation in source.parameters
        if annotation is not None and not is_static(annotation)
    }
    with bound(Scalar=Number("double")):
        run_blocks(blocks, threads, kernel, **arguments, **known)


def same(
    source: KernelSource,
    kernel: Routine[..., None],
    arrays: Sequence[np.ndarray],
    rows: int,
    numbers: Sequence[int],
    blocks: int = 1,
    **known: Any,
) -> list[np.ndarray]:
    """What a kernel leaves in copies of arrays, the same as Python and on the host in every order of threads."""
    found = [each.copy() for each in arrays]
    as_python(kernel, found, rows, numbers, source.block_threads, blocks, **known)
    for order in ORDERS:
        left = [each.copy() for each in arrays]
        device = HostDevice(order)
        device.load(source).launch(blocks, [*map(device.wrapped, left), None], rows, list(numbers))
        for one, other in zip(left, found, strict=True):
            np.testing.assert_array_equal(one, other)
    return found


def doubled(to: Array[Scalar], stride: Index) -> None:
    for k in unrolled(3):
        to[k * stride] = 2.0 * to[k * stride]


@routine
def neighbours(
    given: Array[Scalar],
    found: Array[Scalar],
    places: Array[Word],
    workspace: Array[Scalar],
    rows: Word,
    width: Word,
    count: Static[int],
) -> None:
    """Sums over lanes before, of values that other threads have put into shared memory."""
    near = shared(Scalar, 96)
    seen = shared(Word, 2)
    own = local(Scalar, 3)
    me = thread()
    for row in range(Word(block()), rows, 2):
        near[me] = given[row * width + places[me]]
        if me == 0:
            seen[0] = row
        barrier()
        for k in unrolled(3):
            own[k] = near[(me + k) % width]
        doubled(own, 1)
        total: Scalar = 0.0
        for k in rolled(count):
            total += own[k]
        distance = 1
        while distance < WARP:
            before = from_before(total, distance)
            if lane() >= distance:
                total += before
            distance *= 2
        warp_barrier()
        if me >= count:
            found[seen[0] * width + me] = total
        else:
            found[seen[0] * width + me] = -total
        barrier()


@on_host
def test_barriers_shared_memory_and_shuffles() -> None:
    width = 64
    source = kernel_source(neighbours, DOUBLE, ["given"], ["found"], threads=width, count=3)
    places = np.random.default_rng(1).permutation(width)
    given = np.random.default_rng(0).integers(-9, 9, (5, width)).astype(float)
    _, found, _ = same(source, neighbours, [given, np.full_like(given, np.nan), places], 5, [width], 2, count=3)
    moved = given[:, places]
    sums = sum(2.0 * np.roll(moved, -k, 1) for k in range(3))
    wanted = sums.reshape(5, -1, WARP).cumsum(-1).reshape(5, width)
    wanted[:, :3] *= -1.0
    np.testing.assert_array_equal(found, wanted)


def test_a_thread_has_a_number_in_a_block_alone() -> None:
    with pytest.raises(OutsideError, match="run_blocks"):
        lane()

    @routine
    def fails(given: Array[Scalar], workspace: Array[Scalar], rows: Word) -> None:
        barrier()
        assert thread() != 3, "the fourth thread"
        barrier()

    with pytest.raises(AssertionError, match="the fourth thread"):
        as_python(fails, [np.zeros(1)], 1, [], 40)


def test_addresses_say_what_is_only_read() -> None:
    source = kernel_source(neighbours, DOUBLE, ["given"], ["found"], threads=64, count=3)
    assert "const double* __restrict__ given" in source.text and "    double* __restrict__ found" in source.text
    assert "const long long* __restrict__ places" in source.text and "#pragma unroll 1" in source.text
    assert "__shared__ double near[96];" in source.text


# Kernels of the library.


@on_host
@pytest.mark.parametrize("name", ["eliminate_level", "solve_level"])
def test_kernels_along_the_branches(name: str) -> None:
    branches, batch, depth = Branches(rd.auto_tree(15, branching=2)), 2, 2
    tree, nv = branches.tree, len(branches)
    rng = np.random.default_rng(2)
    arrays = {"entries": rng.uniform(1, 2, (branches.pairs, batch))}
    arrays |= {each: rng.uniform(1, 2, (nv, batch)) for each in ("vector", "reciprocals", "solution")}
    dofs = tree.level(depth)
    eliminates = name == "eliminate_level"
    walk = [tree.preorder, tree.preorder_rank, tree.subtree_size] if eliminates else [branches.ancestors]
    constants = [np.ascontiguousarray(each, np.int64) for each in (dofs, branches.first, *walk)]
    source, kernel = branch_kernel(name, DOUBLE), eliminate_level if eliminates else solve_level
    names = [*source.inputs, *source.outputs]
    found = same(source, kernel, [*(arrays[each] for each in names), *constants], len(dofs), [batch, depth])
    assert all(np.isfinite(each).all() for each in found)
    assert not np.array_equal(found[len(source.inputs)], arrays[source.outputs[0]])


@on_host
@pytest.mark.parametrize(("kernel", "how"), [(pair_matrix, (1, 1, 1)), (pair_matrix, (0, 1, 0)), (pair_list, (3, 1))])
def test_kernels_of_pairs(kernel: Routine[..., None], how: tuple[int, ...]) -> None:
    branches, batch = Branches(rd.auto_tree(7, branching=1.5)), 2
    nv = len(branches)
    rng = np.random.default_rng(5)
    arrays = [rng.uniform(1, 2, (size, nv, batch)) for size in (6, 6, 3)]
    arrays += [rng.uniform(1, 2, (nv, 1)), np.full((batch, nv, nv), 7.0)]
    places = np.arange(nv)[::-1]
    indices = [*branches.walk, places]
    if kernel is pair_list:
        indices = [*branches.all_pairs, np.arange(branches.pairs)[::-1], places]
    constants = [np.ascontiguousarray(each, np.int64) for each in indices]
    numbers = [batch, *how, 1, 1, *[nv * batch, batch, 1] * 3, nv * nv, nv, 1]
    rows = branches.pairs if kernel is pair_list else nv
    known: dict[str, Any] = {"product": Straight("product", traced(entry_of(1)), DOUBLE, value=True), "size": 6}
    found = same(pair_kernel(kernel.__name__, 1, DOUBLE), kernel, [*arrays, *constants], rows, numbers, **known)
    assert np.isfinite(found[4]).all() and not (found[4] == 7.0).all()


@on_host
def test_a_step() -> None:
    rng = np.random.default_rng(6)
    program = traced(body_force)
    n, batch = 5, 3
    arrays = [rng.uniform(-1, 1, (port.size, n, batch)) for port in (*program.inputs, *program.outputs)]
    numbers = [batch, *(step for _ in arrays for step in (n * batch, batch, 1))]
    count = several(len(program.inputs))
    step = Straight("step", program, DOUBLE, reads="first")
    same(step_kernel(program, DOUBLE), scan_step, arrays, n * batch, numbers, given=count, given_by=count, step=step)


@on_host
@pytest.mark.parametrize("putting", [0, 1])
def test_moves(putting: int) -> None:
    rng = np.random.default_rng(7)
    source, to, places = rng.uniform(-1, 1, (2, 5, 3)), np.full((2, 5, 3), 7.0), np.array([4, -5, 1, 2, -2])
    numbers = [3, 2, putting, 5, 15, 3, 1, 15, 3, 1]
    _, found, _ = same(move_kernel(DOUBLE), scan_move, [source, to, places], 15, numbers)
    if putting:
        np.testing.assert_array_equal(found[:, places], source)
    else:
        np.testing.assert_array_equal(found, source[:, places])


@routine
def turned(out: Array[Scalar], workspace: Array[Scalar], rows: Word, places: Static[int]) -> None:
    kept = shared(Scalar, 2 * WARP, 16)
    kept[thread()] = out[thread()]
    warp_barrier()
    other = from_lane(kept[thread()], (lane() + places) % WARP)
    for k in unrolled(0, 2 * WARP, WARP, times=2):
        out[k + lane()] = other + k


def test_values_of_any_lane_and_loops_repeated_some_times() -> None:
    source = kernel_source(turned, DOUBLE, (), ("out",), threads=WARP, places=5)
    assert "#pragma unroll 2\n" in source.text and "alignas(16) __shared__ double" in source.text
    start = np.arange(2.0 * WARP)
    (got,) = same(source, turned, [start], len(start), (), places=5)
    lanes = np.roll(np.arange(WARP), -5)
    assert np.array_equal(got, np.concatenate([lanes, lanes + WARP]))


COUNT, WIDTH = 29, 40


@routine
def through_tiles(
    rows_in: Array[Scalar], out: Array[Scalar], spread: Array[Scalar], workspace: Array[Scalar], rows: Word, size: Word
) -> None:
    tile, band = shared(Scalar, WARP * (WIDTH + 1)), shared(Scalar, tiles.BAND)
    tiles.load(tile, rows_in, Index(size), Index(rows), lane())
    warp_barrier()
    tiles.store(out, tile, Index(size), Index(rows), lane())
    tiles.drain(spread, workspace + lane(), band, Index(size), Index(rows), lane())


@pytest.mark.parametrize("size", [1, 6, 7, 32, 33, WIDTH])
def test_rows_go_through_tiles(size: int) -> None:
    """Into tiles and back, and from the workspace, where rows lie interleaved."""
    rng = np.random.default_rng(size)
    rows, interleaved = rng.normal(size=(COUNT, size)), rng.normal(size=(size, WARP))
    out, spread = np.full((2, COUNT + 1, size), np.nan)
    given = [Array(each.ctypes.data, Number("double")) for each in (rows, out, spread, interleaved)]
    with bound(Scalar=Number("double")):
        run_blocks(1, WARP, through_tiles, *given, COUNT, size)
    assert np.array_equal(out[:COUNT], rows) and np.array_equal(spread[:COUNT], interleaved.T[:COUNT])
    assert np.isnan(out[COUNT]).all() and np.isnan(spread[COUNT]).all()


@pytest.mark.parametrize(
    "width, size, start", [(1, 3, 2), (3, 5, 0), (20, 21, 1), (32, 33, 0), (70, 75, 4), (64, 70, 6)]
)
def test_windows_are_flushed(width: int, size: int, start: int) -> None:
    """Each scalar from where it waits to its place in the rows, and nothing else is written."""
    rng = np.random.default_rng(width)
    slots = rng.permutation(max(width, 3))[:width]
    row = tiles.padded(max(width, 3))
    window = rng.normal(size=(WARP, row))
    words = [
        word for first in range(0, width, WARP) for word in staged_stores._packed(slots[first : first + WARP].tolist())
    ]
    wanted = np.full((COUNT + 1, size), np.nan)
    wanted[:COUNT, start : start + width] = window[:COUNT, slots]
    out = np.full((2, COUNT + 1, size), np.nan)

    def kernel(pieces: Any, lines: Any, source: Any) -> None:
        for first in range(0, width, WARP):
            staged_stores.flush(
                pieces + start + first,
                source,
                COUNT,
                lane(),
                *words[first // 8 : first // 8 + 4],
                width=min(WARP, width - first),
                size=size,
                row=row,
            )
        staged_stores.flush_lines(
            lines + start, source, COUNT, lane(), width=width, size=size, row=row, start=start, line=16, words=words
        )

    arrays = [Array(each.ctypes.data, Number("double")) for each in (*out, window)]
    with bound(Scalar=Number("double")):
        run_blocks(1, WARP, kernel, *arrays)
    assert np.array_equal(out[0], wanted, equal_nan=True) and np.array_equal(out[1], wanted, equal_nan=True)


@on_host
def test_columns_are_solved() -> None:
    """As Python, on the host and by NumPy, for right-hand sides of every kind."""
    model = rd.load_urdf(own("gripper"))
    nv, rows, rng = model.nv, 5, np.random.default_rng(7)
    sides = {"a": Solution("p"), "b": Solution(None, "m"), "c": Solution("p", "m"), "d": Solution()}
    given, how = columns_of(model, Solve("H", sides), DOUBLE)
    (source,) = (_solve_kernel(model, Solve("H", sides), DOUBLE, "solve"),)
    lower = [row.tolist() for row in SymbolicFactor(model).lower]
    L, d = np.tile(np.eye(nv), (rows, 1, 1)), rng.uniform(1.0, 2.0, (rows, nv))
    packed = np.zeros((rows, how.size))
    for r in range(rows):
        place = 0
        for k, row in enumerate(lower):
            L[r, k, row] = rng.normal(size=len(row))
            packed[r, place : place + 1 + len(row)] = [1.0 / d[r, k], *L[r, k, row]]
            place += 1 + len(row)
    H = L.swapaxes(1, 2) @ (d[:, :, None] * L)
    p, m = rng.normal(size=(2, rows, nv, nv))
    out = [np.full((rows, nv, nv), np.nan) for _ in sides]
    assert given == ("p", "m")
    known = {"given": several(2), "out": several(4), "how": how}
    _, _, _, *found = same(source, solve_columns, [packed, p, m, *out], rows, (), 2, **known)
    for got, right in zip(found, (p, -m, p - m, np.broadcast_to(np.eye(nv), p.shape)), strict=True):
        np.testing.assert_allclose(got, np.linalg.solve(H, right), atol=1e-12 * np.abs(np.linalg.inv(H)).max())
