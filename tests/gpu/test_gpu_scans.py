"""Kernels of steps and scans, run on the host in several orders of threads, against NumPy's scans; and what NVRTC
reports of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import relative
from gpu_host import ORDERS, missing, run_sanitized
from gpu_host.device import HostDevice, _device, _plain
from test_gpu_compile import compiles

from robodyn.compile.lowering import lower
from robodyn.compile.ordering import in_short_order, values_alive
from robodyn.engines.gpu.compiler import compile_reported
from robodyn.engines.gpu.device import Device, default_device
from robodyn.engines.gpu.source import SHARED_BYTES, WARP, KernelSource
from robodyn.engines.scan import AFFINE_FORCES, AFFINE_MOTIONS, POSES, TWIST_PAIRS, Semigroup, sums
from robodyn.engines.scan.algorithms.aba_scan import weakness
from robodyn.engines.scan.cuda.device import ScanDevice, positions
from robodyn.engines.scan.cuda.scans import LONGEST_RUN, lanes_of, run_length, scan_kernels
from robodyn.engines.scan.cuda.steps import BLOCK_THREADS, step_kernel
from robodyn.engines.scan.elements import scanning_on
from robodyn.engines.scan.elementwise import Elementwise, traced
from robodyn.engines.scan.states import body_force, joint_transform, motion_in
from robodyn.engines.scan.systems.riccati import AFFINE, CORRECTIONS, riccati
from robodyn.engines.scan.trees.prefix_scans import Segments
from robodyn.joints import KINDS
from robodyn.spatial import rotation_from_quaternion

on_host = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
DTYPES = ("float64", "float32")
TOLERANCE = {"float64": 1e-11, "float32": 5e-4}
"""Of prefixes, relative to the largest: scans of other associations differ by some roundings."""
OPERATORS = (POSES, AFFINE_MOTIONS, TWIST_PAIRS, AFFINE_FORCES, sums(6))
SIZES = (1, 31, 32, 33, 1000, 5000)


def elements(op: Semigroup, n: int, batch: int, dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    """Elements (size, n, batch) whose products neither vanish nor explode."""
    rng = np.random.default_rng(seed)
    if op.name.startswith("Riccati"):
        return stretches(n, batch, rng).astype(dtype)
    array = rng.uniform(-1, 1, (op.size, n, batch))
    if not op.plain:
        quaternion = rng.standard_normal((4, n, batch))
        array[:9] = rotation_from_quaternion(*(quaternion / np.linalg.norm(quaternion, axis=0)))
        array[9:] *= 1.0 / n
    return array.astype(dtype)


def stretches(n: int, batch: int, rng: np.random.Generator) -> np.ndarray:
    """Riccati elements (90, n, batch): A of norms below 1, and C and J with eigenvalues near 1."""
    upper = np.triu_indices(6)

    def definite() -> np.ndarray:
        root = rng.uniform(-0.3, 0.3, (n, batch, 6, 6)) + np.eye(6)
        return np.moveaxis((root @ root.swapaxes(-1, -2))[..., upper[0], upper[1]], -1, 0)

    A = rng.normal(size=(36, n, batch)) / 6.0
    b, eta = rng.normal(size=(2, 6, n, batch))
    return np.concatenate((A, b, definite(), eta, definite()))


def segments_of(n: int, kind: str, seed: int = 0) -> Segments:
    if kind == "one":
        return Segments([n])
    if kind == "short":
        return Segments([2] * (n // 2) + [1] * (n % 2))
    rng, lengths = np.random.default_rng(seed), []
    while sum(lengths) < n:
        lengths.append(min(n - sum(lengths), int(rng.choice([1, 3, 40, 700]))))
    return Segments(lengths)


def lengths() -> Iterator[Any]:
    """Elements, and kinds of segments; the most elements take long."""
    for n, kind in itertools.product(SIZES, ("one", "short", "random")):
        rare = pytest.mark.kernels if kind == "random" else pytest.mark.nightly
        yield pytest.param(n, kind, marks=[rare] if n == SIZES[-1] else [])


def check_scan(
    device: Device, op: Semigroup, segments: Segments, batch: int, dtype: str = "float64", seed: int = 0
) -> list[np.ndarray]:
    """Prefixes and suffixes of a device are NumPy's."""
    place, given = ScanDevice(device), elements(op, segments.n, batch, dtype, seed)
    results = []
    for backwards in (False, True):
        wanted = segments.scan(op, given, backwards=backwards)
        with scanning_on(place):
            found = segments.scan(op, device.xp.asarray(given), backwards=backwards)
        assert isinstance(found, device.xp.ndarray)
        results.append(device.xp.asnumpy(found))
        assert relative(results[-1], wanted) < TOLERANCE[dtype], (op.name, segments.n, batch, backwards)
    return results


@on_host
@pytest.mark.parametrize(("n", "kind"), tuple(lengths()))
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
@pytest.mark.some(of=7, rest="kernels")
def test_scan_kernels_are_numpys_scans(op: Semigroup, n: int, kind: str) -> None:
    for batch in (1, 3):
        check_scan(HostDevice(), op, segments_of(n, kind), batch)


@on_host
@pytest.mark.parametrize("kind", ["one", "short", "random"])
@pytest.mark.parametrize("n", [1, 7, 32, 33, 300])
@pytest.mark.parametrize("op", [TWIST_PAIRS, sums(6)], ids=lambda op: op.name)
@pytest.mark.some(of=3, rest="kernels")
def test_scan_kernels_whose_lanes_are_rows(op: Semigroup, n: int, kind: str) -> None:
    device = HostDevice()
    for batch in (WARP, 70):
        check_scan(device, op, segments_of(n, kind), batch)
    assert lanes_of(WARP) == 1 and (("scan_totals", n) in device.launches) == (n > LONGEST_RUN)


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 33, 1100])
@pytest.mark.some(of=6, rest="kernels")
def test_scan_kernels_take_riccati_elements(n: int, dtype: str) -> None:
    for batch in (2, 33) if n == 33 else (2,):
        check_scan(HostDevice(), riccati(np.dtype(dtype)), segments_of(n, "random"), batch, dtype)


@on_host
def test_scan_kernels_take_elements_for_which_shared_memory_has_no_room() -> None:
    source = scan_kernels(traced(sums(100).step), np.dtype(np.float64), backwards=False)[0]
    assert source.shared_bytes == 0 and "__noinline__" in source.text
    check_scan(HostDevice(), sums(100), segments_of(200, "random"), 2)


@on_host
@pytest.mark.parametrize("op", [AFFINE_FORCES, sums(10)], ids=lambda op: op.name)
@pytest.mark.some(of=1, when="kernels")
def test_scan_kernels_in_single_precision(op: Semigroup) -> None:
    check_scan(HostDevice(), op, segments_of(1500, "random"), 3, "float32")


@on_host
@pytest.mark.parametrize("op", [TWIST_PAIRS, riccati(np.dtype(np.float64))], ids=lambda op: op.name)
@pytest.mark.parametrize(("n", "batch", "fewer"), [(1300, 3, 2), (200, 37, 35)])
@pytest.mark.some(of=4, rest="kernels")
def test_scan_kernels_do_not_depend_on_the_order_of_threads_or_on_the_batch(
    n: int, batch: int, fewer: int, op: Semigroup
) -> None:
    segments = segments_of(n, "random", 3)
    first = check_scan(HostDevice(ORDERS[0]), op, segments, batch)
    for order in ORDERS[1:]:
        for found, wanted in zip(check_scan(HostDevice(order), op, segments, batch), first, strict=True):
            np.testing.assert_array_equal(found, wanted)
    device = HostDevice()
    device.processors = 1
    given = device.xp.asarray(elements(op, segments.n, batch)[:, :, 1:fewer])
    with scanning_on(ScanDevice(device)):
        np.testing.assert_array_equal(_plain(segments.scan(op, given)), first[0][..., 1:fewer])


@on_host
def test_scan_kernels_of_sequences_with_many_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 32 elements, so that totals of totals have totals."""
    for name in ("robodyn.engines.scan.cuda.scans.run_length", "robodyn.engines.scan.cuda.device.run_length"):
        monkeypatch.setattr(name, lambda n, lanes, long=False: 1)
    device, segments = HostDevice(), segments_of(2000, "random")
    check_scan(device, AFFINE_MOTIONS, segments, 1)
    assert [name for name, _ in device.launches[: len(device.launches) // 2]] == ["scan_totals"] * 2 + [
        "scan_prefixes"
    ] * 3


def test_scan_kernels_know_segments_of_totals() -> None:
    first, second = positions(Segments([1500, 4, 1000]), WARP)
    assert first[[0, 1499, 1500, 1503, 1504, 2503]].tolist() == [0, 0, 1500, 1500, 1504, 1504]
    tile = WARP * run_length(2504, WARP)
    assert second.size == -(-2504 // tile)
    assert second.tolist() == [max(k * (k <= j) for k in {0, 1500 // tile, 1504 // tile}) for j in range(second.size)]
    assert [each.size for each in positions(Segments([4_000_000]), WARP)] == [4_000_000, 1017]
    assert [each.size for each in positions(Segments([200]), 1)] == [200, 25]
    assert [each.size for each in positions(Segments([2000]), WARP, long=True)] == [2000, 63, 2]


@on_host
@pytest.mark.skipif(bool(missing("thread")), reason=missing("thread") or "it runs")
@pytest.mark.parametrize("number", [0, 1], ids=["totals", "prefixes"])
@pytest.mark.parametrize("op", [POSES, CORRECTIONS], ids=["registers", "shared memory"])
@pytest.mark.some(of=2, when="kernels")
def test_scan_kernels_have_no_races(op: Semigroup, number: int) -> None:
    """What threads write, no other one reads without a barrier between."""
    n, batch = 200, 2
    source = scan_kernels(traced(op.step), np.dtype(np.float64), backwards=False)[number]
    assert (source.shared_bytes > 0) == (op is CORRECTIONS)
    given = elements(op, n, batch)
    tiles = {"prefixes": n, "totals": 7}
    outputs = {name: np.empty((op.size, tiles[name], batch)) for name in source.outputs}
    source = replace(source, constants=(positions(segments_of(n, "random"), WARP)[0], elements(op, 7, batch)))
    assert run_sanitized(source, {"elements": given}, outputs, "thread", rows=n, numbers=[batch, 1, number]) == ""
    assert np.isfinite(outputs[source.outputs[0]]).all()


@pytest.mark.gpu
@pytest.mark.parametrize("op", [*OPERATORS, riccati(np.dtype(np.float64))], ids=lambda op: op.name)
def test_scan_kernels_on_a_gpu(op: Semigroup) -> None:
    device = default_device()
    for n in SIZES:
        for kind in ("one", "short", "random"):
            for batch in (3, 40) if n < 1000 else (3,):
                check_scan(device, op, segments_of(n, kind), batch)


# Steps.

STEPS: dict[str, Elementwise] = {
    "body_force": body_force,
    "motion_in": motion_in,
    "weakness": weakness(np.dtype(np.float64)),
    **{f"joint_{kind.name}": joint_transform(kind) for kind in KINDS if kind.nv},
}


@on_host
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", STEPS)
def test_step_kernels_are_the_steps(name: str, dtype: str) -> None:
    step, rng = STEPS[name], np.random.default_rng(1)
    device = HostDevice()
    shapes = [(5, 3), (5, 1), (1, 3)]
    arrays = [rng.uniform(-1, 1, (field.size(0), *shapes[k % 3])) for k, field in enumerate(step.arguments)]
    arrays = [array.astype(dtype) for array in arrays]
    wanted = step(*arrays)
    with scanning_on(ScanDevice(device)):
        found = step(*map(_device, arrays))
        assert found.shape == wanted.shape and found.dtype == dtype
        assert relative(_plain(found), wanted) < TOLERANCE[dtype]
        # Strides are no trouble, and results go where they are asked for.
        wide = _device(np.full((step.size, 2 * wanted.shape[1], wanted.shape[2]), np.nan, dtype))
        into = wide[:, ::2]
        assert step(*(_device(np.repeat(each, 2, axis=1))[:, ::-2] for each in arrays), out=into) is into
        assert relative(_plain(wide)[:, ::2][:, ::-1], wanted) < TOLERANCE[dtype]
        assert np.isnan(_plain(wide)[:, 1::2]).all()
    assert [name for name, _ in device.launches] == ["scan_step"] * 2 and len(device.kernels) == 1


@on_host
def test_step_kernels_take_other_numbers_of_axes() -> None:
    rng, place = np.random.default_rng(2), ScanDevice(HostDevice())
    X, v = rng.normal(size=(12, 4)), rng.normal(size=(6, 4))
    with scanning_on(place):
        assert (
            relative(_plain(motion_in(_device(X), _device(v))), motion_in(X[..., None], v[..., None])[..., 0]) < 1e-13
        )
        deep = motion_in(_device(X[..., None, None]), _device(np.repeat(v[..., None, None], 3, 3)))
    assert relative(_plain(deep), np.repeat(motion_in(X, v)[..., None, None], 3, 3)) < 1e-13


# What compilers say.

HEADROOM = 1.1
"""Of registers: versions of NVRTC differ."""
SCAN_BUDGETS = {
    "pose": (96, 64),
    "affine motion": (120, 80),
    "twist pair": (160, 96),
    "affine force": (126, 72),
    "sum of 6": (64, 56),
}
STEP_BUDGETS = {
    "body_force": (64, 42),
    "motion_in": (48, 32),
    "weakness": (48, 40),
    "joint_revolute": (40, 32),
    "joint_floating": (56, 40),
}
"""Registers in float64 and float32: what NVRTC 13.0 gives for sm_80 and sm_90."""
SPILLED = 40
"""Bytes of a thread's stack that the assembler takes rather than a few more registers."""
LARGE: dict[str, tuple[int, int]] = {"Riccati": (720, 360), "Riccati correction": (552, 280), "affine": (0, 0)}
"""Bytes of stack of large elements in float64 and float32: those that a lane composes with what it has found."""


def compiled_for(*always: tuple[str, str]) -> Any:
    """These in every run; by the mark every dtype and architecture once, and their other pairs by night."""
    once = ("float64", "sm_90"), ("float32", "sm_80")
    return pytest.mark.parametrize(
        ("dtype", "architecture"),
        [
            pytest.param(
                *case, marks=[] if case in always else pytest.mark.kernels if case in once else pytest.mark.nightly
            )
            for case in itertools.product(DTYPES, ("sm_80", "sm_90"))
        ],
    )


def kernels_of(op: Semigroup, dtype: str) -> list[KernelSource]:
    """Both of a scan, whose lanes share tiles and whose lanes do not."""
    composition = traced(op.step)
    return [
        source
        for lanes in (WARP, 1)
        for source in scan_kernels(composition, np.dtype(dtype), backwards=True, lanes=lanes)
    ]


@compiles
@compiled_for()
def test_scan_kernels_keep_their_budgets(dtype: str, architecture: str) -> None:
    which = DTYPES.index(dtype)
    scans = {op.name: kernels_of(op, dtype) for op in OPERATORS}
    sources = {name: (SCAN_BUDGETS[name], kernels) for name, kernels in scans.items()}
    sources |= {
        name: (each, (step_kernel(traced(STEPS[name]), np.dtype(dtype)),)) for name, each in STEP_BUDGETS.items()
    }
    for name, (budget, kernels) in sources.items():
        for source in kernels:
            report = compile_reported(source, architecture).report
            assert report.registers <= HEADROOM * budget[which], (name, source.name, report)
            assert report.stack_bytes <= SPILLED and report.spill_bytes <= SPILLED, (name, source.name, report)
            size = source.dtype.itemsize * (BLOCK_THREADS // WARP if "kept" in source.text else 0)
            kept = next((op.size for op in OPERATORS if op.name == name), 0)
            assert report.shared_bytes == size * kept, (name, source.name, report)


def test_compositions_of_riccati_elements_wait_for_few_values() -> None:
    """In the order of the text 120 wait at once, of which registers hold no more than 127 in double precision."""
    composition = traced(riccati(np.dtype(np.float64)).step)
    assert values_alive(lower(in_short_order(composition))) <= 63


@compiles
@compiled_for()
def test_scan_kernels_of_large_elements_spill_little(dtype: str, architecture: str) -> None:
    for op in (riccati(np.dtype(dtype)), CORRECTIONS, AFFINE):
        stack = LARGE[op.name.removesuffix(f" {dtype}")][DTYPES.index(dtype)]
        for source in kernels_of(op, dtype):
            report = compile_reported(source, architecture).report
            assert report.spill_bytes <= SPILLED and report.stack_bytes <= HEADROOM * stack + SPILLED, (op.name, report)
            element = op.size * np.dtype(dtype).itemsize
            assert source.shared_bytes == ((2 * WARP + 1) * element if stack else 0) <= SHARED_BYTES
