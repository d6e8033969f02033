"""Forward dynamics by `aba_scan` and the hybrid algorithm on arrays that live on a GPU, judged by the torques that the
accelerations need; and when the host looks at the device."""

from __future__ import annotations

import threading
import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import pytest
from conftest import TOLERANCE, nothing_compiles, random_states
from gpu_host import missing
from gpu_host.arrays import DeviceArray
from gpu_host.device import HostDevice
from gpu_host.scan_functions import add_functions
from robots import own
from test_gpu_compile import compiles
from test_scan_aba import lightened, wrists
from test_scan_gpu import ALL_KINDS, RESIDUAL, device, outside, required, there

import robodyn as rd
from robodyn.engines.gpu.compiler import compile_reported
from robodyn.engines.scan import ScanOptions
from robodyn.engines.scan.algorithms import aba_scan, hybrid_abia
from robodyn.engines.scan.cuda import engine as gpu_engine
from robodyn.engines.scan.cuda.scans import step_kernel
from robodyn.engines.scan.elementwise import traced
from robodyn.engines.scan.states import _SCALARS
from robodyn.engines.scan.systems.stages import motions, stages
from robodyn.joints import KINDS

__all__ = ["device"]

METHODS = ("aba_scan", "hybrid_abia", "hybrid_abia_fused")
BUSH = {"branching": 1.5, "skew": 0.3}


def models() -> dict[str, rd.Model]:
    """Chains, trees, forests, every joint."""
    return {
        "arm": rd.load_urdf(own("arm7")),
        "chain": rd.auto_tree(40),
        "bush": rd.auto_tree(36, **BUSH),
        "kinds": rd.random_tree(12, seed=1, joints=ALL_KINDS, armature=True),
        "forest": rd.random_tree(15, seed=3, joints=("revolute", "helical")),
    }


def answer(device: Any, scan: rd.Dynamics, states: Any, method: str, given: dict[str, Any] | None = None) -> Any:
    """Accelerations as a NumPy array; looks at the device on the way are counted from zero."""
    given = given or {}
    arrays, moved = there(device, *states), dict(zip(given, there(device, *given.values()), strict=True))
    DeviceArray.looks = 0
    found = scan.forward_dynamics(*arrays, method=method, **moved)
    assert isinstance(found, device.xp.ndarray)
    looks = DeviceArray.looks
    found = device.xp.asnumpy(found)
    DeviceArray.looks = looks
    return found


def torques(model: rd.Model, shape: tuple[int, ...], given: dict[str, Any] | None = None) -> tuple[Any, Any, Any]:
    """Positions, velocities and the torques of random accelerations."""
    q, qd, qdd = random_states(model, shape)
    return q, qd, rd.Dynamics(model, engine="reference").inverse_dynamics(q, qd, qdd, **(given or {}))


def residual(device: Any, model: rd.Model, method: str, shape: tuple[int, ...] = (), **options: Any) -> float:
    given = options.pop("given", {})
    states = torques(model, shape, given)
    found = answer(device, rd.Dynamics(model, engine="scan", **options), states, method, given)
    return required(model, found.astype(float), states, given)


# Answers.


@pytest.mark.parametrize("name", ["arm", "chain", "bush", "kinds", "forest"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.some(of=7, rest="kernels")
def test_forward_dynamics_on_a_gpu_is_right(method: str, name: str, device: Any) -> None:
    model = models()[name]
    assert residual(device, model, method) < RESIDUAL
    assert residual(device, model, method, (2, 2), given=outside(model, (2, 2))) < RESIDUAL


@pytest.mark.parametrize("method", METHODS)
def test_forward_dynamics_on_a_gpu_agrees_with_numpys_scans(method: str, device: Any) -> None:
    model = models()["arm"]
    scan, states = rd.Dynamics(model, engine="scan"), torques(model, (3,))
    wanted = scan.forward_dynamics(*states, method=method)
    np.testing.assert_allclose(answer(device, scan, states, method), wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.some(of=3, rest="kernels")
def test_forward_dynamics_on_a_gpu_in_single_precision(method: str, device: Any) -> None:
    model = models()["bush"]
    assert residual(device, model, method, (2,), dtype="float32") < TOLERANCE["float32"]


@pytest.mark.parametrize("method", METHODS)
def test_forward_dynamics_on_a_gpu_as_operations_of_the_array_library(method: str, device: Any) -> None:
    model = rd.random_tree(9, seed=2, joints=("revolute", "spherical"))
    assert residual(device, model, method, (2,), scan=ScanOptions(operators="library")) < RESIDUAL


@pytest.mark.parametrize("scale", [1e-9, 0.0])
@pytest.mark.kernels
def test_light_and_massless_bodies_on_a_gpu(scale: float, device: Any) -> None:
    """Runs of two and three bodies, for which there are kernels, and of more, which go operation by operation."""
    for run, seen in ((1, {2}), (2, {3}), (3, {4})):
        model, lengths = lightened(scale, run, 12), Counter[int]()
        with counted_runs(lengths):
            assert residual(device, model, "aba_scan", (2,)) < RESIDUAL
        assert seen <= lengths.keys(), lengths
        scan = rd.Dynamics(model, engine="scan")
        rare = {length: aba_scan._rare((0,) * length, scan.engine.there().layout) for length in (1, 2, 3, 4)}
        assert rare == {1: False, 2: False, 3: False, 4: True}


class counted_runs:
    """Counts the lengths of runs that are made for the moment."""

    def __init__(self, lengths: Counter[int]) -> None:
        self.lengths, self.patch = lengths, pytest.MonkeyPatch()

    def __enter__(self) -> None:
        made = aba_scan._runs

        def runs(layout: Any, bodies: Any, starts: Any, lengths: Any, *, kept: bool) -> Any:
            found = made(layout, bodies, starts, lengths, kept=kept)
            if not kept:
                self.lengths.update(len(each.codes) for each in found)
            return found

        self.patch.setattr(aba_scan, "_runs", runs)

    def __exit__(self, *what: object) -> None:
        self.patch.undo()


def test_joints_spelled_out_on_a_gpu(device: Any) -> None:
    assert residual(device, wrists(True), "aba_scan", (2,)) < RESIDUAL


@pytest.mark.parametrize("method", METHODS)
def test_rows_stay_apart_in_forward_dynamics_on_a_gpu(method: str, device: Any) -> None:
    """To the last bit, also where other rows have made stages into runs."""
    model = lightened(1e-9, 1, 12)
    scan, (q, qd, tau) = rd.Dynamics(model, engine="scan"), torques(model, (3,))
    right = answer(device, scan, (q, qd, tau), method)
    q[1, 2], qd[1, 3] = np.nan, np.inf
    found = answer(device, scan, (q, qd, tau), method)
    assert np.isnan(found[1]).any()
    np.testing.assert_array_equal(found[[0, 2]], right[[0, 2]])


def test_parts_on_a_gpu(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long levels are cut, into as many parts as memory asks for."""
    monkeypatch.setattr(aba_scan, "PART", 7)
    monkeypatch.setattr(aba_scan, "DEVICE_PART", 28)
    room = 14 * aba_scan._PART_SCALARS * 8
    for free, parts in ((1 << 40, 3), (room, 5)):  # of 16 and 8 bodies
        monkeypatch.setattr("robodyn.engines.scan.cuda.device.ScanDevice.free_bytes", lambda self, free=free: free)
        model = models()["chain"]
        scan, states = rd.Dynamics(model, engine="scan"), torques(model, ())
        found = answer(device, scan, states, "aba_scan")
        assert required(model, found, states, {}) < RESIDUAL
        (known,) = scan.engine.there().layout.known["aba_scan"].values()
        assert len(known) == parts
    assert residual(device, models()["bush"], "aba_scan", (2,)) < RESIDUAL


# What is around them.


def test_looks_of_aba_scan_are_few(device: Any) -> None:
    """One before the scan of a level and one after it, none where each path is one body; and those of rounds."""
    for name in ("chain", "bush"):
        model = models()[name]
        scan, states = rd.Dynamics(model, engine="scan"), torques(model, (2,))
        answer(device, scan, states, "aba_scan")
        levels = scan.engine.there().layout.heavy_paths.here
        if not isinstance(device, HostDevice):  # which alone counts
            continue
        assert DeviceArray.looks == 2 * sum(level.segments.n > level.segments.lengths.size for level in levels)
    model = lightened(0.0, 2, 20)
    answer(device, rd.Dynamics(model, engine="scan"), torques(model, (2,)), "aba_scan")
    # Two rounds find weak stages, each by a number and by flags, before the two looks of a chain without any.
    assert DeviceArray.looks <= 2 * 2 + 2


@pytest.mark.parametrize("method", METHODS)
def test_later_calls_place_nothing_for_good(method: str, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which waits, as indices of runs must not; nor is anything compiled."""
    model = lightened(0.0, 2, 12)
    scan, states = rd.Dynamics(model, engine="scan"), torques(model, (2,))
    wanted = answer(device, scan, states, method)
    for name in ("constant", "load"):
        monkeypatch.setattr(device, name, None)
    np.testing.assert_array_equal(answer(device, scan, states, method), wanted)


@pytest.mark.parametrize("method", METHODS[1:])
def test_the_hybrid_algorithm_looks_at_what_the_recursion_needs(method: str, device: Any) -> None:
    model = models()["arm"]
    scan = rd.Dynamics(model, engine="scan")
    answer(device, scan, torques(model, (2,)), method)
    assert DeviceArray.looks == 1 or not isinstance(device, HostDevice)  # which alone counts
    given = outside(model, (2,))
    answer(device, scan, torques(model, (2,), given), method, given)
    assert DeviceArray.looks == 2 or not isinstance(device, HostDevice)


@pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
@pytest.mark.parametrize("method", METHODS[1:])
def test_the_recursion_runs_while_scans_are_launched(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends only once the last of them is: were one to wait for the other, this would end without."""
    host: Any = HostDevice()
    add_functions(host.xp)
    monkeypatch.setattr(gpu_engine, "default_device", lambda: host)
    run, launched = hybrid_abia._articulated_columns, threading.Event()

    def slow(*given: Any) -> Any:
        assert launched.wait(60.0)
        return run(*given)

    own_forces = hybrid_abia._own_forces

    def scans(state: Any) -> Any:
        found = own_forces(state)
        launched.set()
        return found

    monkeypatch.setattr(hybrid_abia, "_articulated_columns", slow)
    monkeypatch.setattr(hybrid_abia, "_own_forces", scans)
    assert residual(host, models()["arm"], method, (2,)) < RESIDUAL


@pytest.mark.parametrize("method", METHODS)
def test_recorded_calls_do_not_look(method: str, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robodyn.engines.gpu.engine.default_device", lambda: device)
    model = models()["arm"]
    scan, states = rd.Dynamics(model, engine="scan"), torques(model, (2,))
    arrays = there(device, *states)
    with pytest.raises(rd.UnavailableError, match="looks at values on its way, which a recorded call cannot do"):
        scan.capture("forward_dynamics", *arrays, method=method)
    assert required(model, answer(device, scan, states, method), states, {}) < RESIDUAL


def test_large_trees_have_no_dense_mass_matrix_on_a_gpu(device: Any) -> None:
    def chosen(model: rd.Model) -> str:
        return rd.Dynamics(model, engine="scan").engine.there().method("forward_dynamics", 1)

    most = gpu_engine.MOST_DENSE
    assert chosen(rd.auto_tree(most)) == "crba"
    assert chosen(rd.auto_tree(most + 1)) == "aba_scan"
    followers = rd.random_tree(most + 100, seed=4, joints=("revolute",), mimic=0.1)
    assert followers.nv > most and chosen(followers) == "crba"


@pytest.mark.parametrize("method", METHODS)
def test_recursive_methods_on_a_gpu_refuse_joints_that_mimic_others(method: str, device: Any) -> None:
    model = rd.random_tree(14, seed=4, joints=("revolute", "prismatic"), mimic=0.3)
    scan = rd.Dynamics(model, engine="scan")
    with pytest.raises(rd.ArgumentError, match=f"{method}.*mimic others"):
        scan.forward_dynamics(*there(device, *random_states(model)), method=method)


@pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
@pytest.mark.parametrize("method", METHODS)
def test_forward_dynamics_on_a_gpu_takes_no_more_memory_than_it_says(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host: Any = HostDevice()
    add_functions(host.xp)
    monkeypatch.setattr(gpu_engine, "default_device", lambda: host)
    model = rd.auto_tree(600)
    scan, states = rd.Dynamics(model, engine="scan"), there(host, *random_states(model, (4,)))
    scan.forward_dynamics(*states, method=method)
    nothing_compiles()
    tracemalloc.start()
    try:
        scan.forward_dynamics(*states, method=method)
        peak = tracemalloc.get_traced_memory()[1] / (8 * 4 * model.n_bodies)
    finally:
        tracemalloc.stop()
    print(f"{method}: {peak:.0f} scalars for each body and state")
    assert peak < aba_scan._PART_SCALARS < _SCALARS


# What compilers say.

SPILLS = {(5,): 712, (0, 0): 156, (0, 0, 0): 1632}
"""Bytes that threads write because registers run out: stages of floating joints, and runs of two and three revolute
joints, in float64."""


@compiles
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.kernels
def test_steps_of_forward_dynamics_spill_next_to_nothing(dtype: str) -> None:
    steps = {
        **{f"motions {code}": motions(code) for code in (0, 5)},
        **{f"elimination {code}": hybrid_abia.elimination(KINDS[code]) for code in (0, 5)},
        **{run: stages(run) for run in ((0,), (5,), (0, 0), (0, 0, 0))},
    }
    for name, step in steps.items():
        report = compile_reported(step_kernel(traced(step), np.dtype(dtype)), "sm_90").report
        allowed = SPILLS.get(name, 0) if dtype == "float64" else 0
        assert report.spill_bytes <= 1.1 * allowed, (name, report)
