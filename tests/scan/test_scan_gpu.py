"""The scan engine on arrays that live on a GPU: a fake device runs the kernels on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import TOLERANCE, random_states, relative
from gpu_host import missing
from gpu_host.device import DeviceArray, HostDevice
from gpu_host.scan_functions import add_functions
from robots import own
from test_dynamics import as_tuple
from test_gpu_compile import compiles

import robodyn as rd
from robodyn.engines.gpu.compiler import compile_reported
from robodyn.engines.gpu.device import default_device
from robodyn.engines.scan import ScanOptions
from robodyn.engines.scan.cuda import engine as gpu_engine
from robodyn.engines.scan.methods import methods_of
from robodyn.joints import KINDS

ALL_KINDS = tuple(kind.name for kind in KINDS if kind.nv)
DENSE = ("crba", "jsiia")
"""Methods of forward dynamics that make a mass matrix; others are in test_scan_gpu_forward.py, test_scan_gpu_cfa.py."""
RESIDUAL = 1e-10
"""Of forward dynamics, in torques, relative to the largest."""


@pytest.fixture(
    params=[
        pytest.param("host", marks=pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")),
        pytest.param("cuda", marks=pytest.mark.gpu),
    ]
)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The device of every engine made in a test: none, or a GPU."""
    found: Any = HostDevice() if request.param == "host" else default_device()
    if request.param == "host":
        add_functions(found.xp)
    monkeypatch.setattr(gpu_engine, "default_device", lambda: found)
    DeviceArray.looks = 0
    return found


def models() -> dict[str, rd.Model]:
    """Chains, trees, forests, every joint, joints that mimic others."""
    return {
        "arm": rd.load_urdf(own("arm7")),
        "chain": rd.auto_tree(40),
        "bush": rd.auto_tree(36, branching=1.5, skew=0.3),
        "kinds": rd.random_tree(24, seed=1, joints=ALL_KINDS, armature=True),
        "forest": rd.random_tree(15, seed=3, joints=("revolute", "helical")),
        "mimic": rd.random_tree(14, seed=4, joints=("revolute", "prismatic"), mimic=0.3),
    }


MODELS = ("arm", "chain", "bush", "kinds", "forest", "mimic")


def there(device: Any, *arrays: Any) -> tuple[Any, ...]:
    """Copies on the device."""
    return tuple(device.xp.asarray(np.array(array)) for array in arrays)


def compare(device: Any, got: Any, wanted: Any, tolerance: float = TOLERANCE["float64"]) -> None:
    for one, other in zip(as_tuple(got), as_tuple(wanted), strict=True):
        assert isinstance(one, device.xp.ndarray)
        assert relative(device.xp.asnumpy(one), other) < tolerance


def outside(model: rd.Model, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """External forces, inertias of their own, and a moving base."""
    rng = np.random.default_rng(5)
    return {
        "f_ext": rng.normal(size=(*shape, model.n_bodies, 6)),
        "inertia": model.inertia * (1.0 + 0.1 * rng.random((*shape, model.n_bodies, 10))),
        "V0": rng.normal(size=6),
        "dV0": rng.normal(size=(*shape, 6)),
    }


# Inverse dynamics.


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", methods_of("inverse_dynamics"))
@pytest.mark.some(of=10, rest="kernels")
def test_scans_on_a_gpu_give_inverse_dynamics(method: str, name: str, device: Any) -> None:
    model = models()[name]
    assert name != "forest" or np.count_nonzero(model.parent < 0) > 1
    scan, reference = rd.Dynamics(model, engine="scan"), rd.Dynamics(model, engine="reference")
    for shape in ((), (2, 2)):
        q, qd, qdd = random_states(model, shape)
        options = outside(model, shape)
        for given in ({}, options):
            wanted = scan.inverse_dynamics(q, qd, qdd, method=method, **given)
            assert relative(wanted, reference.inverse_dynamics(q, qd, qdd, **given)) < 1e-10
            moved = dict(zip(given, there(device, *given.values()), strict=True))
            compare(device, scan.inverse_dynamics(*there(device, q, qd, qdd), method=method, **moved), wanted)


def test_scans_on_a_gpu_give_bias_and_gravity(device: Any) -> None:
    model = models()["kinds"]
    scan = rd.Dynamics(model, engine="scan")
    q, qd, _ = random_states(model, (3,))
    compare(device, scan.bias_force(*there(device, q, qd)), scan.bias_force(q, qd))
    compare(device, scan.gravity_force(*there(device, q)), scan.gravity_force(q))


@pytest.mark.parametrize("method", methods_of("inverse_dynamics"))
@pytest.mark.some(of=3, rest="kernels")
def test_scans_on_a_gpu_in_single_precision(method: str, device: Any) -> None:
    model = models()["kinds"]
    states = random_states(model, (2,))
    scan = rd.Dynamics(model, engine="scan", dtype="float32")
    wanted = rd.Dynamics(model, engine="reference").inverse_dynamics(*states)
    found = scan.inverse_dynamics(*there(device, *states), method=method)
    assert found.dtype == np.float32
    compare(device, found, wanted, TOLERANCE["float32"])


def test_scans_on_a_gpu_run_as_operations_of_the_array_library(device: Any) -> None:
    model = models()["kinds"]
    states = random_states(model, (2,))
    scan = rd.Dynamics(model, engine="scan", scan=ScanOptions(operators="library"))
    compare(device, scan.inverse_dynamics(*there(device, *states)), scan.inverse_dynamics(*states))


# What is around them.


def test_scans_on_a_gpu_do_not_wait(device: Any) -> None:
    model = models()["bush"]
    states = there(device, *random_states(model, (2,)))
    rd.Dynamics(model, engine="scan").inverse_dynamics(*states)
    assert DeviceArray.looks == 0


def test_scans_on_a_gpu_keep_nan_in_its_row(device: Any) -> None:
    model = models()["kinds"]
    q, qd, qdd = random_states(model, (4,))
    scan = rd.Dynamics(model, engine="scan")
    right = device.xp.asnumpy(scan.inverse_dynamics(*there(device, q, qd, qdd)))
    qd[1, 0] = np.nan
    found = device.xp.asnumpy(scan.inverse_dynamics(*there(device, q, qd, qdd)))
    assert np.isnan(found[1]).any()
    np.testing.assert_array_equal(found[[0, 2, 3]], right[[0, 2, 3]])


def test_scans_on_a_gpu_scale_quaternions(device: Any) -> None:
    model = rd.random_tree(6, seed=2, joints=("floating", "spherical"))
    q, qd, qdd = random_states(model, (3,))
    scan = rd.Dynamics(model, engine="scan")
    wanted = scan.inverse_dynamics(q, qd, qdd)
    for start in model.quaternion_starts:
        q[:, start : start + 4] *= 1e-200
    compare(device, scan.inverse_dynamics(*there(device, q, qd, qdd)), wanted)
    q[1, model.quaternion_starts[0] : model.quaternion_starts[0] + 4] = 0.0
    found = device.xp.asnumpy(scan.inverse_dynamics(*there(device, q, qd, qdd)))
    assert np.isnan(found[1]).any() and np.isfinite(found[[0, 2]]).all()


def test_scans_on_a_gpu_take_pieces_that_memory_holds(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = models()["bush"]
    states = random_states(model, (5,))
    scan = rd.Dynamics(model, engine="scan")
    room = 2 * 2048 * 8 * model.n_bodies
    monkeypatch.setattr("robodyn.engines.scan.cuda.device.ScanDevice.free_bytes", lambda self: room)
    assert scan.engine.there().layout.states_at_once == 2
    compare(device, scan.inverse_dynamics(*there(device, *states)), scan.inverse_dynamics(*states))


def test_scans_on_a_gpu_of_no_states_and_no_bodies(device: Any) -> None:
    model = models()["arm"]
    scan = rd.Dynamics(model, engine="scan")
    assert scan.inverse_dynamics(*there(device, *random_states(model, (0, 3)))).shape == (0, 3, 7)
    still = rd.Dynamics(rd.load_urdf("<robot name='r'><link name='a'/></robot>"), engine="scan")
    assert still.inverse_dynamics(*there(device, *(np.empty((4, 0)),) * 3)).shape == (4, 0)


def test_scans_on_a_gpu_put_results_where_out_says(device: Any) -> None:
    model = models()["arm"]
    states = random_states(model, (5,))
    scan = rd.Dynamics(model, engine="scan")
    (out,) = there(device, np.full((5, 7), np.nan))
    assert scan.inverse_dynamics(*there(device, *states), out=out) is out
    compare(device, out, scan.inverse_dynamics(*states))


def test_scans_say_what_they_do_not_do_on_a_gpu(device: Any) -> None:
    model = models()["arm"]
    scan = rd.Dynamics(model, engine="scan")
    states = there(device, *random_states(model))
    with pytest.raises(rd.ArgumentError, match="method: got 'aba'"):
        scan.forward_dynamics(*states, method="aba")
    with pytest.raises(rd.UnavailableError, match="does not answer this query"):
        scan.kinetic_energy(*states[:2])
    with pytest.raises(rd.ArgumentError, match="not on the GPU as q is"):
        scan.inverse_dynamics(states[0], *random_states(model)[1:])


# Matrices and forward dynamics.


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.some(of=3, rest="kernels")
def test_scans_on_a_gpu_give_mass_matrices(name: str, device: Any) -> None:
    model = models()[name]
    scan = rd.Dynamics(model, engine="scan")
    for shape in ((), (2, 2)):
        q, inertia = random_states(model, shape)[0], outside(model, shape)["inertia"]
        compare(device, scan.mass_matrix(*there(device, q)), scan.mass_matrix(q))
        there_q, there_inertia = there(device, q, inertia)
        compare(device, scan.mass_matrix(there_q, inertia=there_inertia), scan.mass_matrix(q, inertia=inertia))


def required(model: rd.Model, qdd: np.ndarray, states: Any, given: Any) -> float:
    """By how much the torques that accelerations need miss those given, relative to the largest."""
    q, qd, tau = states
    again = rd.Dynamics(model, engine="reference").inverse_dynamics(q, qd, qdd, **given)
    return relative(again, tau)


# One run of inverse dynamics for each column takes the host long on larger trees.
FORWARD = [(method, name) for method in DENSE for name in (("arm", "forest", "mimic") if method == "jsiia" else MODELS)]


@pytest.mark.parametrize(("method", "name"), FORWARD)
@pytest.mark.some(of=5, rest="kernels")
def test_scans_on_a_gpu_give_forward_dynamics(method: str, name: str, device: Any) -> None:
    model = models()[name]
    scan, reference = rd.Dynamics(model, engine="scan"), rd.Dynamics(model, engine="reference")
    columns = method == "jsiia" and model.nv > 20  # each state is as many as there are joints: that takes the host long
    for shape in ((),) if columns else ((), (2, 2)):
        q, qd, qdd = random_states(model, shape)
        for given in ({},) if columns else ({}, outside(model, shape)):
            tau = reference.inverse_dynamics(q, qd, qdd, **given)
            moved = dict(zip(given, there(device, *given.values()), strict=True))
            found = scan.forward_dynamics(*there(device, q, qd, tau), method=method, **moved)
            assert isinstance(found, device.xp.ndarray)
            assert required(model, device.xp.asnumpy(found), (q, qd, tau), given) < RESIDUAL


@pytest.mark.parametrize("method", DENSE)
def test_scans_on_a_gpu_give_forward_dynamics_in_single_precision(method: str, device: Any) -> None:
    model = models()["kinds"]
    q, qd, qdd = random_states(model, (3,))
    tau = rd.Dynamics(model, engine="reference").inverse_dynamics(q, qd, qdd)
    scan = rd.Dynamics(model, engine="scan", dtype="float32")
    found = scan.forward_dynamics(*there(device, q, qd, tau), method=method)
    assert found.dtype == np.float32
    assert required(model, device.xp.asnumpy(found).astype(float), (q, qd, tau), {}) < TOLERANCE["float32"]


@pytest.mark.parametrize("method", DENSE)
def test_scans_on_a_gpu_keep_rows_apart_in_forward_dynamics(method: str, device: Any) -> None:
    model = models()["arm"]
    q, qd, tau = random_states(model, (3,))
    scan = rd.Dynamics(model, engine="scan")
    right = device.xp.asnumpy(scan.forward_dynamics(*there(device, q, qd, tau), method=method))
    q[1, 2] = np.nan
    found = device.xp.asnumpy(scan.forward_dynamics(*there(device, q, qd, tau), method=method))
    assert np.isnan(found[1]).any()
    np.testing.assert_array_equal(found[[0, 2]], right[[0, 2]])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.some(of=7, rest="kernels")
def test_scans_on_a_gpu_give_gradients(name: str, device: Any) -> None:
    model = models()[name]
    scan = rd.Dynamics(model, engine="scan")
    for shape in ((), (2, 2)):
        states = random_states(model, shape)
        for given in ({}, outside(model, shape)):
            moved = dict(zip(given, there(device, *given.values()), strict=True))
            found = scan.inverse_dynamics_gradient(*there(device, *states), **moved)
            compare(device, found, scan.inverse_dynamics_gradient(*states, **given))


# What compilers say.


@compiles
@pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.kernels)])
@pytest.mark.kernels
def test_scan_kernels_of_all_queries_compile_and_spill_little(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But a register or two, where one more block then fits on a multiprocessor."""
    host: Any = HostDevice()
    add_functions(host.xp)
    monkeypatch.setattr(gpu_engine, "default_device", lambda: host)
    model = models()["kinds"]
    scan = rd.Dynamics(model, engine="scan", dtype=dtype)
    states, given = there(host, *random_states(model)), outside(model, ())
    moved = dict(zip(given, there(host, *given.values()), strict=True))
    for method in methods_of("inverse_dynamics"):
        scan.inverse_dynamics(*states, method=method, **moved)
    for method in DENSE:
        scan.forward_dynamics(*states, method=method, **moved)
    scan.inverse_dynamics_gradient(*states, **moved)
    for kernel in host.kernels:
        report = compile_reported(kernel.source, "sm_90").report
        assert report.stack_bytes <= 40 and report.spill_bytes <= 40, (kernel.source.text, report)
