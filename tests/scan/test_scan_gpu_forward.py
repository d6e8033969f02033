"""Forward dynamics by `aba_scan` and the hybrid algorithm on arrays that live on a GPU, judged by the torques that the
accelerations need; and when the host looks at the device."""

from __future__ import annotations

import threading
import tracemalloc
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
from robodyn.engines.scan import order as orders
from robodyn.engines.scan.algorithms import aba_scan, hybrid_abia
from robodyn.engines.scan.cuda import engine as gpu_engine
from robodyn.engines.scan.cuda.folds import fold_kernel
from robodyn.engines.scan.cuda.steps import step_kernel
from robodyn.engines.scan.elementwise import traced
from robodyn.engines.scan.states import _SCALARS
from robodyn.engines.scan.systems.motions import LOADING, LOADING_PUSHED, MOVING
from robodyn.engines.scan.systems.stretches import ACCELERATING, SETTLING, growing
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
@pytest.mark.some(of=6, rest="kernels")
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
@pytest.mark.parametrize("run", [1, 2, 3])
@pytest.mark.some(of=6, rest="kernels")
def test_light_and_massless_bodies_on_a_gpu(run: int, scale: float, device: Any, monkeypatch: Any) -> None:
    """Stretches that would end in one are lengthened."""
    monkeypatch.setattr(orders, "DEVICE_STRETCH", 16)
    lengthen, lengthened = aba_scan._Ends.lengthen, []

    def counted(self: Any, weak: Any) -> None:
        lengthened.append(int(weak.sum()))
        lengthen(self, weak)

    monkeypatch.setattr(aba_scan._Ends, "lengthen", counted)
    assert residual(device, lightened(scale, run, 66), "aba_scan", (2,)) < RESIDUAL
    assert lengthened and min(lengthened) > 0


def test_joints_spelled_out_on_a_gpu(device: Any) -> None:
    assert residual(device, wrists(True), "aba_scan", (2,)) < RESIDUAL


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.some(of=6, rest="kernels")
def test_rows_stay_apart_in_forward_dynamics_on_a_gpu(method: str, device: Any) -> None:
    """To the last bit, also where stretches are lengthened."""
    model = lightened(1e-9, 1, 70)
    scan, (q, qd, tau) = rd.Dynamics(model, engine="scan"), torques(model, (3,))
    right = answer(device, scan, (q, qd, tau), method)
    q[1, 2], qd[1, 3] = np.nan, np.inf
    found = answer(device, scan, (q, qd, tau), method)
    assert np.isnan(found[1]).any()
    np.testing.assert_array_equal(found[[0, 2]], right[[0, 2]])


@pytest.mark.kernels
def test_stretches_on_a_gpu(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are longer where a batch keeps the device busy, and there is one kernel for all lengths."""
    monkeypatch.setattr(orders, "DEVICE_STRETCH", 4)
    monkeypatch.setattr(orders, "THREADS", 20)
    model = models()["chain"]
    scan = rd.Dynamics(model, engine="scan")
    for batch, length, longest in ((1, 4, 4), (2, 4, 4), (3, 8, 8), (20, 64, 40)):
        states = torques(model, (batch,))
        assert required(model, answer(device, scan, states, "aba_scan"), states, {}) < RESIDUAL
        known = scan.engine.there().layout.known["order"]
        assert max(map(int, known[length].levels[0].along.lengths)) == longest, known
    assert residual(device, models()["bush"], "aba_scan", (2,)) < RESIDUAL
    assert residual(device, models()["kinds"], "aba_scan", (2,), given=outside(models()["kinds"], (2,))) < RESIDUAL


# What is around them.


def test_looks_of_aba_scan_are_few(device: Any) -> None:
    """One in the end, none where each path is one stretch; where stretches are weak, those of rounds besides, and only
    these once that is known."""
    for model, looks in ((rd.auto_tree(70), 1), (models()["bush"], 0)):
        answer(device, rd.Dynamics(model, engine="scan"), torques(model, (2,)), "aba_scan")
        assert DeviceArray.looks == looks or not isinstance(device, HostDevice)  # which alone counts
    model = lightened(0.0, 2, 70)
    scan, states = rd.Dynamics(model, engine="scan"), torques(model, (2,))
    first, again = (answer(device, scan, states, "aba_scan") for _ in range(2))
    np.testing.assert_array_equal(first, again)
    # Two rounds lengthen stretches, each by a number and by flags, before the two looks that find none weak.
    assert DeviceArray.looks <= 2 * 2 + 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.some(of=6, rest="kernels")
def test_later_calls_place_nothing_for_good(method: str, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which waits, as indices of lengthened stretches must not; nor is anything compiled."""
    model = lightened(0.0, 2, 70)
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
@pytest.mark.some(of=6, rest="kernels")
def test_recorded_calls_do_not_look(method: str, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robodyn.engines.gpu.engine.default_device", lambda: device)
    model = rd.auto_tree(70)
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
    assert chosen(rd.auto_tree(most + 1)) == chosen(rd.auto_tree(40)) == chosen(models()["bush"]) == "aba_scan"
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
@pytest.mark.some(of=3, rest="kernels")
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
    assert peak < {"aba_scan": 150}.get(method, 700) < _SCALARS


# What compilers say.

SPILLS = {"growing 0": 492, "growing 5": 1984, "settling 0": 244, "settling 5": 1060}
"""Bytes that threads write because registers run out, along stretches of revolute and of floating joints, in
float64."""


@compiles
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.kernels
def test_forward_dynamics_spills_little(dtype: str) -> None:
    precision: Any = np.dtype(dtype)
    along = {"growing": growing(precision), "settling": SETTLING, "accelerating": ACCELERATING}
    along |= {"moving": MOVING, "loading": LOADING, "loading, pushed": LOADING_PUSHED}
    kernels = {}
    for code in (0, 5):
        kernels.update({f"{name} {code}": fold_kernel(fold, (code,), precision) for name, fold in along.items()})
        kernels[f"elimination {code}"] = step_kernel(traced(hybrid_abia.elimination(KINDS[code])), precision)
    for name, source in kernels.items():
        report = compile_reported(source, "sm_90").report
        allowed = SPILLS.get(name, 0) if dtype == "float64" else 0
        assert report.spill_bytes <= 1.1 * allowed, (name, report)
