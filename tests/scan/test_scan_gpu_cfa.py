"""Constraint forces on arrays that live on a GPU: kernels that solve block tri-diagonal systems, run on the host in
several orders of threads, and forward dynamics by them."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import random_states, relative
from gpu_host import ORDERS, missing, run_on_host, run_sanitized, set_numbers
from gpu_host.device import DeviceArray, HostDevice
from robots import own
from scan_forward import EVERY_KIND
from test_gpu_compile import compiles
from test_scan_cfa import LENGTHS, beyond, system
from test_scan_gpu import device, outside, required, there

import robodyn as rd
from robodyn.engines.gpu.compiler import compile_reported
from robodyn.engines.gpu.source import SHARED_BYTES, KernelSource
from robodyn.engines.scan import ScanOptions
from robodyn.engines.scan.algorithms import constraint_force
from robodyn.engines.scan.cuda.device import ScanDevice
from robodyn.engines.scan.cuda.elimination import TILE, elimination_kernel
from robodyn.engines.scan.cuda.steps import step_kernel
from robodyn.engines.scan.cuda.systems import column_steps, plan, tiles
from robodyn.engines.scan.elements import scanning_on
from robodyn.engines.scan.elementwise import traced
from robodyn.engines.scan.systems.odd_even import SOLVERS
from robodyn.engines.scan.trees.prefix_scans import Segments

__all__ = ["device"]  # a fixture

on_host = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
DTYPES = ("float64", "float32")
TOLERANCE = {"float64": 1e-12, "float32": 2e-4}
"""Of solutions, relative to the largest."""
RESIDUAL = {"float64": 1e-7, "float32": 2e-2}
"""Of forward dynamics, in torques, relative to the largest: what is promised on NumPy arrays as well."""
KERNELS = ("solve_tiles", "reduce_blocks", "take_blocks", "residual_blocks")
LONG = [[31], [32], [33], [64], [65], [130, 3, 40, 1], [1] * 70, [2] * 40]
GPU_SOLVERS = ("odd_even", "odd_even_refined")


# Systems.


def given_system(lengths: list[int], k: int, columns: int, batch: int, seed: int = 0) -> tuple[Any, ...]:
    """D, U, R, and the matrices of the whole, as `system` has them."""
    D, U, dense = system(lengths, k, batch, seed)
    return D, U, np.random.default_rng(seed).uniform(-1, 1, (k, columns, sum(lengths), batch)), dense


def solved_there(device: Any, name: str, arrays: tuple[np.ndarray, ...], segments: Segments) -> np.ndarray:
    with scanning_on(ScanDevice(device)):
        found = SOLVERS[name](*there(device, *arrays), segments)
    assert isinstance(found, device.xp.ndarray)
    return np.asarray(device.xp.asnumpy(found))


@pytest.mark.parametrize("name", GPU_SOLVERS)
@pytest.mark.parametrize(
    "k, columns, lengths",
    [
        *((1, 1, each) for each in (*LENGTHS, *LONG)),
        *((5, 7, each) for each in ([1], [2], [3], [8], [33], [2, 33, 1])),
        *((6, 2, each) for each in ([1, 5, 3, 1, 9], [70])),
    ],
    ids=lambda each: str(each)[:20],
)
@pytest.mark.some(of=3, rest="kernels")
def test_systems_on_a_gpu(k: int, columns: int, lengths: list[int], name: str, device: Any) -> None:
    batch = 3 if k * sum(lengths) < 150 else 1
    D, U, R, dense = given_system(lengths, k, columns, batch, len(lengths) + k)
    found = solved_there(device, name, (D, U, R), Segments(lengths))
    n = sum(lengths)
    flat = R.transpose(3, 2, 0, 1).reshape(batch, n * k, columns)
    wanted = np.linalg.solve(dense, flat).reshape(batch, n, k, columns).transpose(2, 3, 1, 0)
    assert relative(found, wanted) < TOLERANCE["float64"]
    assert relative(found, SOLVERS[name](D, U, R, Segments(lengths))) < TOLERANCE["float64"]


@pytest.mark.parametrize("name", GPU_SOLVERS)
def test_systems_on_a_gpu_in_single_precision(name: str, device: Any) -> None:
    lengths = [40, 5, 5, 1]
    D, U, R, _ = given_system(lengths, 5, 7, 2)
    wanted = SOLVERS[name](D, U, R, Segments(lengths))
    found = solved_there(device, name, tuple(each.astype(np.float32) for each in (D, U, R)), Segments(lengths))
    assert found.dtype == np.float32 and relative(found, wanted) < TOLERANCE["float32"]


@on_host
@pytest.mark.parametrize("lengths", [[7, 7, 3], [40, 2]], ids=str)
def test_systems_depend_neither_on_the_order_of_threads_nor_on_the_grid_nor_on_the_batch(lengths: list[int]) -> None:
    D, U, R, _ = given_system(lengths, 5, 1, 4)
    segments = Segments(lengths)
    first = solved_there(HostDevice(), "odd_even", (D, U, R), segments)
    for order in ORDERS:
        device = HostDevice(order)
        device.processors = 1
        np.testing.assert_array_equal(solved_there(device, "odd_even", (D, U, R), segments), first)
    one = solved_there(HostDevice(), "odd_even", tuple(each[..., 2:3] for each in (D, U, R)), segments)
    np.testing.assert_array_equal(one[..., 0], first[..., 2])


def test_systems_on_a_gpu_keep_what_is_not_finite_in_its_row_and_segment(device: Any) -> None:
    lengths = [7, 4, 40]
    D, U, R, _ = given_system(lengths, 5, 2, 3)
    right = solved_there(device, "odd_even", (D, U, R), Segments(lengths))
    D[2, 2, 3, 1], R[0, 0, 20, 2] = np.nan, np.nan
    found = solved_there(device, "odd_even", (D, U, R), Segments(lengths))
    np.testing.assert_array_equal(found[..., 0], right[..., 0])
    assert np.isnan(found[:, :, :7, 1]).all() and np.isfinite(found[:, :, 7:, 1]).all()
    assert np.isfinite(found[:, :, :11, 2]).all() and np.isnan(found[:, 0, 11:, 2]).all()


def test_systems_on_a_gpu_of_nothing(device: Any) -> None:
    for name in GPU_SOLVERS:
        empty = (np.ones((5, 5, 0, 1)), np.ones((5, 5, 0, 1)), np.ones((5, 2, 0, 1)))
        assert solved_there(device, name, empty, Segments([])).size == 0


def test_plans_of_systems() -> None:
    """Systems of one length side by side; long ones become every n-th block of them."""
    short = plan(Segments([2, 5, 2, 1]))
    assert short.distances == () and short.groups.tolist() == [[1, 0, 1], [2, 1, 2], [5, 5, 1]]
    assert short.order.tolist() == [9, 0, 1, 7, 8, 2, 3, 4, 5, 6]
    assert tiles(short.groups, 1) == 3 and tiles(short.groups, 33) == 2 + 5 + 6
    long = plan(Segments([100, 3]))
    assert long.distances == (1, 2) and long.groups.tolist() == [[1, 0, 3], [25, 3, 4]]
    assert long.order[:3].tolist() == [100, 101, 102] and long.order[3:28].tolist() == list(range(0, 100, 4))
    assert plan(Segments([TILE])).distances == () and plan(Segments([TILE + 1])).distances == (1,)


# Kernels alone.

BARRIER, BARRIERS = "__syncthreads();", 7


def kernel(name: str, k: int, columns: int, dtype: str = "float64") -> KernelSource:
    return elimination_kernel(name, column_steps(k), k, columns, np.dtype(dtype))


def alone(name: str) -> tuple[KernelSource, dict[str, Any], dict[str, Any], int, list[int]]:
    """A kernel, its inputs and outputs, rows and numbers, for systems of 5, 5, 5 and 9 blocks in two rows."""
    k, columns, batch, segments = 2, 1, 2, Segments([5, 5, 5, 9])
    D, U, R, _ = given_system([5, 5, 5, 9], k, columns, batch)
    n, how = segments.n, plan(segments)
    rng = np.random.default_rng(0)
    arrays = {"diagonal": D, "coupling": U, "right": R, "solution": np.full(R.shape, np.nan)}
    arrays["found"] = rng.uniform(-1, 1, (2 * k * k + k * columns + k, n, batch))
    if name == "residual_blocks":
        arrays["solution"] = rng.uniform(-1, 1, R.shape)
    for left, like in (("diagonal_left", D), ("coupling_left", U), ("right_left", R), ("residual", R)):
        arrays[left] = np.full(like.shape, np.nan)
    source = kernel(name, k, columns)
    around = (segments.position, segments.left)
    constants = (how.order, how.groups) if name == "solve_tiles" else around
    source = replace(source, constants=tuple(each.astype(np.int64) for each in constants))
    numbers = {"solve_tiles": [batch, tiles(how.groups, batch)], "residual_blocks": [batch]}.get(name, [batch, 2])
    inputs, outputs = ({each: arrays[each] for each in names} for names in (source.inputs, source.outputs))
    return source, inputs, outputs, n, numbers


@on_host
@pytest.mark.parametrize("sanitizer", ["thread", "address"])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.some(of=2, when="kernels")
def test_elimination_kernels_under_sanitizers(name: str, sanitizer: str) -> None:
    if reason := missing(sanitizer):
        pytest.skip(reason)
    source, inputs, outputs, rows, numbers = alone(name)
    assert run_sanitized(source, inputs, outputs, sanitizer, rows=rows, numbers=numbers) == ""
    for each in outputs.values():
        assert np.isfinite(each).all()


@on_host
@pytest.mark.parametrize("barrier", range(1, BARRIERS - 1))
def test_elimination_needs_its_barriers(barrier: int) -> None:
    """Without one of them results differ in some order of threads; without the first or the last, threads would read
    places that are none."""
    source, inputs, outputs, rows, numbers = alone("solve_tiles")
    parts = source.text.split(BARRIER)
    assert len(parts) == BARRIERS + 1
    broken = replace(source, text=BARRIER.join(parts[: barrier + 1]) + ";" + BARRIER.join(parts[barrier + 1 :]))

    def runs(of: KernelSource) -> list[np.ndarray]:
        found = []
        for order in ORDERS:
            set_numbers(of, numbers)
            left = {name: np.empty_like(array) for name, array in outputs.items()}
            found.append(run_on_host(of, inputs, left, order, 1, rows=rows)["solution"])
        return found

    right = runs(source)
    assert all(np.array_equal(each, right[0]) for each in right)
    assert not all(np.array_equal(each, right[0]) for each in runs(broken))


HEADROOM = 1.1
"""Of registers: versions of NVRTC differ."""
BUDGETS = {
    "solve_tiles": (96, 72),
    "reduce_blocks": (96, 96),
    "take_blocks": (72, 64),
    "residual_blocks": (58, 52),
}
"""Registers in float64 and float32: the most that NVRTC 13.0 gives for sm_80 and sm_90. None has a stack."""


@compiles
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.kernels
def test_elimination_kernels_keep_their_budgets(dtype: str, architecture: str) -> None:
    for k, columns in ((5, 1), (6, 7)):
        for name in KERNELS:
            report = compile_reported(kernel(name, k, columns, dtype), architecture).report
            assert report.registers <= HEADROOM * BUDGETS[name][DTYPES.index(dtype)], (name, k, columns, report)
            assert report.stack_bytes == report.spill_bytes == 0, (name, k, columns, report)
            assert report.shared_bytes <= SHARED_BYTES


@compiles
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.kernels
def test_steps_of_constraint_forces_spill_nothing(architecture: str) -> None:
    """The largest of them, of six constraints and seven right-hand sides."""
    of_bodies = vars(constraint_force._steps(6)).values()
    steps = (*of_bodies, *constraint_force._balanced(6, 7), constraint_force._combined(6, 7))
    for step in (*steps, constraint_force._factored, constraint_force._seen_from_below):
        report = compile_reported(step_kernel(traced(step), np.dtype(np.float64)), architecture).report
        assert report.stack_bytes == report.spill_bytes == 0, (step.step.__name__, report)


# Forward dynamics.


def models() -> dict[str, rd.Model]:
    """Bodies that all have inertia: chains, trees, forests, every such joint."""
    return {
        "arm": rd.load_urdf(own("arm6")),
        "chain": rd.auto_tree(40, skew=0.3),
        "bush": rd.auto_tree(36, branching=1.5, skew=0.3),
        "kinds": rd.random_tree(24, seed=1, joints=EVERY_KIND, armature=True),
        "forest": rd.random_tree(15, seed=3, joints=("revolute", "helical"), base="floating"),
    }


MODELS = ("arm", "chain", "bush", "kinds", "forest")


def surroundings(model: rd.Model, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """External forces, a moving base, and inertias that bodies can have."""
    given = outside(model, shape)
    given["inertia"] = model.inertia * (1.0 + np.random.default_rng(6).random((*shape, model.n_bodies, 1)))
    return given


def check_forward(
    device: Any, model: rd.Model, shape: tuple[int, ...], given: dict[str, Any], dtype: str = "float64", **options: Any
) -> None:
    q, qd, qdd = random_states(model, shape)
    tau = rd.Dynamics(model, engine="reference").inverse_dynamics(q, qd, qdd, **given)
    moved = dict(zip(given, there(device, *given.values()), strict=True))
    scan = rd.Dynamics(model, engine="scan", dtype=dtype, scan=ScanOptions(**options))
    found = scan.forward_dynamics(*there(device, q, qd, tau), method="cfa", **moved)
    assert isinstance(found, device.xp.ndarray) and found.dtype == dtype
    accelerations = device.xp.asnumpy(found).astype(float)
    assert required(model, accelerations, (q, qd, tau), given) < RESIDUAL[dtype]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.some(of=5, rest="kernels")
def test_constraint_forces_on_a_gpu(name: str, device: Any) -> None:
    model = models()[name]
    for shape in ((), (2, 2)):
        for given in ({}, surroundings(model, shape)):
            check_forward(device, model, shape, given)


@pytest.mark.parametrize("solver", GPU_SOLVERS)
@pytest.mark.parametrize("basis", ["unit", "balanced", lambda kind, S: np.linalg.svd(S)[0][:, S.shape[1] :] * 2.0])
@pytest.mark.some(of=3, rest="kernels")
def test_bases_and_solvers_on_a_gpu(basis: Any, solver: str, device: Any) -> None:
    model = models()["kinds"]
    check_forward(device, model, (2,), {}, constraint_basis=basis, constraint_solver=solver)


@pytest.mark.parametrize("n", [1, 2, 33, 70])
def test_constraint_forces_on_a_gpu_on_chains_of_any_length(n: int, device: Any) -> None:
    check_forward(device, rd.auto_tree(n), (3,), {})


def test_constraint_forces_on_a_gpu_as_operations_of_the_array_library(device: Any) -> None:
    check_forward(device, models()["arm"], (2,), {}, operators="library")
    model, states = models()["arm"], random_states(models()["arm"], (2,))
    library = rd.Dynamics(model, engine="scan", scan=ScanOptions(operators="library", constraint_basis="balanced"))
    wanted = rd.Dynamics(model, engine="reference").forward_dynamics(*states)
    assert relative(library.forward_dynamics(*states, method="cfa"), wanted) < 1e-8


def test_constraint_forces_on_a_gpu_in_single_precision(device: Any) -> None:
    check_forward(device, rd.load_urdf(own("arm6")), (3,), {}, "float32")


def test_constraint_forces_on_a_gpu_keep_rows_apart(device: Any) -> None:
    model = models()["bush"]
    q, qd, tau = random_states(model, (3,))
    scan = rd.Dynamics(model, engine="scan")
    right = device.xp.asnumpy(scan.forward_dynamics(*there(device, q, qd, tau), method="cfa"))
    q[1, 2] = np.nan
    found = device.xp.asnumpy(scan.forward_dynamics(*there(device, q, qd, tau), method="cfa"))
    assert np.isnan(found[1]).any()
    np.testing.assert_array_equal(found[[0, 2]], right[[0, 2]])


def test_constraint_forces_on_a_gpu_take_one_look(device: Any) -> None:
    model = models()["kinds"]
    states = there(device, *random_states(model, (2,)))
    scan = rd.Dynamics(model, engine="scan")
    scan.forward_dynamics(*states, method="cfa")
    DeviceArray.looks = 0
    scan.forward_dynamics(*states, method="cfa")
    assert DeviceArray.looks == int(isinstance(device, HostDevice))


def test_lost_digits_are_said_on_a_gpu(device: Any) -> None:
    model = beyond()
    q, qd, qdd = random_states(model, (2,))
    tau = rd.Dynamics(model, engine="reference").inverse_dynamics(q, qd, qdd)
    with pytest.warns(RuntimeWarning, match=r"'cfa': in [12] of 2 rows .* 'aba_scan' and 'crba' lose fewer digits"):
        rd.Dynamics(model, engine="scan").forward_dynamics(*there(device, q, qd, tau), method="cfa")


def test_inertias_without_an_inverse_on_a_gpu(device: Any) -> None:
    model = models()["arm"]
    states = random_states(model, (3,))
    given = np.stack([model.inertia] * 3)
    given[:, 3] = 0.0
    dyn = rd.Dynamics(model, engine="scan", check=False)
    message = f"inverse of every body's inertia, and '{model.body_names[3]}' has none; wanted mass"
    with pytest.raises(rd.SingularError, match=re.escape(message)):
        dyn.forward_dynamics(*there(device, *states), method="cfa", inertia=there(device, given)[0])
    given[[0, 2]] = model.inertia
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = dyn.forward_dynamics(*there(device, *states), method="cfa", inertia=there(device, given)[0])
    wanted = rd.Dynamics(model, engine="reference").forward_dynamics(*states)
    found = device.xp.asnumpy(found)
    assert np.isnan(found[1]).all() and relative(found[[0, 2]], wanted[[0, 2]]) < 1e-8


def test_what_constraint_forces_do_not_do_on_a_gpu(device: Any) -> None:
    model = models()["arm"]
    scan = rd.Dynamics(model, engine="scan", scan=ScanOptions(constraint_solver="direct"))
    with pytest.raises(rd.UnavailableError, match=r"constraint_solver: 'direct' .* there are 'odd_even' and"):
        scan.forward_dynamics(*there(device, *random_states(model)), method="cfa")
