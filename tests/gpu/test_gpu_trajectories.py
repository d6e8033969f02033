"""Trajectories on the GPU engine: backward passes beside the CPU engine's, from the same text, and whole batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_host import ORDERS, missing
from gpu_host.arrays import _device, _plain
from gpu_host.device import HostDevice
from robots import own

import robodyn as rd
from robodyn.engines.gpu.source import KernelSource
from robodyn.solve.trajectories.backward import BackwardPass
from robodyn.solve.trajectories.backward_kernel import backward_source
from robodyn.solve.trajectories.riccati_kernel import DeviceScan, chosen_length, scan_sources
from robodyn.solve.trajectories.riccati_scan import RiccatiScan

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
ROUNDING = {"float64": 1e-12, "float32": 1e-5}
BOUNDS = ("lower", "upper")


def problems(rng: Any, nv: int, nu: int, steps: int, batch: int, dtype: str) -> dict[str, Any]:
    """Steps near the identity, positive definite costs, gaps, mu, and bounds; knots before problems."""
    n, many = 2 * nv, (steps, batch)

    def definite(*shape: int) -> Any:
        root = rng.normal(size=(*shape, shape[-1]))
        return root @ root.swapaxes(-1, -2) + 0.1 * np.eye(shape[-1])

    given = {
        "A": np.eye(n) + 0.3 * rng.normal(size=(*many, n, n)),
        "B": rng.normal(size=(*many, n, nu)),
        "gap": 0.1 * rng.normal(size=(*many, n)),
        "lx": rng.normal(size=(*many, n)),
        "lu": rng.normal(size=(*many, nu)),
        "lxx": definite(*many, n),
        "luu": definite(*many, nu),
        "vx": rng.normal(size=(batch, n)),
        "vxx": definite(batch, n),
        "mu": rng.uniform(0.0, 1.0, batch),
        "lower": -rng.uniform(0.0, 0.3, (*many, nu)),
        "upper": rng.uniform(0.0, 0.3, (*many, nu)),
    }
    return {name: np.ascontiguousarray(array, dtype) for name, array in given.items()}


def of_problems(given: dict[str, Any], without: tuple[str, ...]) -> dict[str, Any]:
    """The same with problems before knots."""
    found = {
        name: array if name in ("vx", "vxx", "mu") else array.swapaxes(0, 1)
        for name, array in given.items()
        if name not in without
    }
    nu, n = given["lu"].shape[-1], given["lx"].shape[-1]
    return found | {"lux": np.zeros((1, 1, nu, n))}


def on(device: HostDevice, given: dict[str, Any], steps: int, batch: int, nu: int, n: int) -> dict[str, Any]:
    """Arrays there, and others for results."""
    shapes = {"k": (steps, batch, nu), "K": (steps, batch, nu, n), "expected": (batch, 2)}
    empty = {name: np.full(shape, np.inf, given["A"].dtype) for name, shape in shapes.items()}
    return {name: _device(array) for name, array in {**given, **empty}.items()}


def launches(device: HostDevice, source: KernelSource) -> Any:
    """Launches of a kernel on two blocks, as the engine makes them."""
    kernel, constants = device.load(source), [*map(_device, source.constants)]

    def call(arrays: Any, rows: int, xp: Any, numbers: Any) -> None:
        held = [arrays[name] for name in (*source.inputs, *source.outputs)]
        scratch = xp.empty((source.workspace(2),), source.dtype) if source.workspace_scalars else None
        kernel.launch(2, [*held, *constants, scratch], rows, numbers)

    return call


def compare(found: list[Any], wanted: list[Any], ok: Any, most: float) -> None:
    """k, K and expected, of the device and of the CPU."""
    k, K, expected = map(_plain, found)
    for one, each in zip((k.swapaxes(0, 1), K.swapaxes(0, 1), expected), wanted, strict=True):
        np.testing.assert_allclose(one, each, rtol=0.0, atol=most * np.abs(each[ok]).max())


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("box", [True, False])
@pytest.mark.kernels
def test_gpu_backward_pass_is_that_of_the_cpu(box: bool, dtype: str) -> None:
    """A warp for a problem: in shared memory and in global memory, in each order of threads, and rows that fail."""
    rng, batch = np.random.default_rng(5), 2
    for order, (nv, nu, steps), room in zip(ORDERS, ((3, 2, 3), (2, 3, 2), (14, 4, 1)), (48 << 10, 0, 0), strict=True):
        given = problems(rng, nv, nu, steps, batch, dtype)
        given["A"][-1, 1, 0, 0] = np.nan
        source = backward_source(2 * nv, nu, np.dtype(dtype), room, gap=True, box=box)
        assert bool(source.workspace_scalars) is not bool(source.shared_bytes)
        device = HostDevice(order)
        arrays = on(device, given, steps, batch, nu, 2 * nv)
        launches(device, source)(arrays, batch, device.xp, [batch, 0, steps])
        *wanted, ok = BackwardPass(nv, nu, steps, dtype=dtype, box=box)(**of_problems(given, () if box else BOUNDS))
        assert ok.tolist() == [True, False]
        compare([arrays[name] for name in ("k", "K", "expected")], wanted, ok, ROUNDING[dtype])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.kernels
def test_gpu_scans_are_those_of_the_cpu(dtype: str) -> None:
    """Stretches and pairs of two problems, in shared memory and in global memory, with knots left over in front."""
    rng, batch, (nv, nu, steps) = np.random.default_rng(6), 2, (2, 1, 7)
    given = problems(rng, nv, nu, steps, batch, dtype)
    *wanted, ok = RiccatiScan(nv, nu, steps, dtype=dtype, length=2)(**of_problems(given, BOUNDS))
    assert ok.all()
    for order, room in (("reverse", 48 << 10), ("random", 0)):
        device, n, kind = HostDevice(order), 2 * nv, np.dtype(dtype)
        sources = *scan_sources(n, nu, kind, room, gap=True), backward_source(n, nu, kind, room, gap=True)
        arrays = on(device, given, steps, batch, nu, n)
        scan = DeviceScan(tuple(launches(device, each) for each in sources), n, nu, 2, device.xp)
        expected = scan(arrays, batch, steps)
        compare([arrays["k"], arrays["K"], expected], wanted, ok, 10.0 * ROUNDING[dtype])


def test_gpu_chooses_scans_by_a_model_of_work() -> None:
    """Of few problems with long horizons, with stretches that keep all warps busy; of many problems never."""
    assert chosen_length(14, 7, 20, 1, 1000) == 0
    assert 1 <= chosen_length(14, 7, 1000, 1, 1000) <= 4 < chosen_length(14, 7, 10_000, 1, 1000) <= 20
    assert chosen_length(14, 7, 1000, 1000, 1000) == chosen_length(14, 7, 1, 1, 1000) == 0


def _cartpole() -> tuple[Any, ...]:
    """One drive of two joints within its limit, and problems of which some need short steps and some rest earlier."""
    goals = np.array([[0.0, 0.0], [0.3, 0.2], [0.0, 0.0]])
    final = rd.costs.State(q=100.0, qd=10.0, q_goal=goals[:, None], final=True)
    cost = rd.costs.Control(6e-4) + rd.costs.State(qd=0.1) + final
    options = {"limits": "effort", "actuated": ["slide"], "iterations": 7, "tolerance": 1e-6}
    q0 = np.array([[0.0, 0.1], [0.1, 1.0], [0.1, np.pi - 0.4]])
    return rd.load_urdf(own("cartpole")), cost, (q0, np.zeros(2)), 6, options


def _floating() -> tuple[Any, ...]:
    """Quaternions, a pose, the centre of mass, and drives of all joints but the base."""
    model, rng = rd.random_tree(2, seed=3, joints=("revolute",), base="floating"), np.random.default_rng(1)
    cost = rd.costs.Control(1e-2) + rd.costs.State(q=0.1, qd=0.1, q_goal=model.neutral())
    cost += rd.costs.CenterOfMass((0.0, 0.1, 0.0), weight=2.0)
    cost += rd.costs.Pose(model.link_names[-1], rd.exp(0.2 * rng.normal(size=6)), weight=1.0, final=True)
    start = model.random_configuration(rng, (2,)), 0.3 * rng.normal(size=(2, model.nv))
    return model, cost, start, 5, {"iterations": 2}


def _scanned() -> tuple[Any, ...]:
    """The same without limits, by scans."""
    model, cost, start, steps, options = _cartpole()
    return model, cost, start, steps, {**options, "limits": None, "backward": "scan"}


@pytest.mark.parametrize("case", [_cartpole, _floating, _scanned])
@pytest.mark.some(of=3, rest="kernels")
def test_gpu_batches_of_trajectories_are_those_of_the_cpu(case: Any, host: HostDevice) -> None:
    """All stages of all iterations, in a few launches each."""
    model, cost, start, steps, options = case()
    cpu, gpu = (rd.Dynamics(model, engine=name, joint_forces=()) for name in ("cpu", "gpu"))
    wanted, found = (rd.optimize_trajectory(dyn, cost, start, steps, 0.1, **options) for dyn in (cpu, gpu))
    print(found.status, found.iterations, found.log)
    assert found.status.tolist() == wanted.status.tolist() and len(set(found.iterations)) > (case is not _floating)
    for name in ("q", "qd", "tau", "gains", "cost", "log"):
        one, other = getattr(found, name), getattr(wanted, name)
        np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-7 * np.abs(other).max(), err_msg=name)
    rounds, rolled = (sum(name == each for name, _ in host.launches) for each in ("backward", "march"))
    if case is _scanned:
        assert [sum(name == each for name, _ in host.launches) for each in ("stretches", "pairs")] == [
            rounds,
            2 * rounds,
        ]
    assert rounds == found.iterations.max() + (found.status == "converged").all()
    assert (rolled > rounds + 1) is (case is not _floating)  # a first one, and those of shorter steps
    made, once = len(host.kernels), {**options, "iterations": 1}
    again = rd.optimize_trajectory(gpu, cost, start, steps, 0.1, **once)
    assert len(host.kernels) == made and (again.cost == found.log[..., 1]).all()  # nothing is compiled anew
    single = rd.Dynamics(model, engine="gpu", dtype="float32", joint_forces=())
    part = rd.optimize_trajectory(single, cost, start, steps, 0.1, **once)
    assert part.q.dtype == np.float32 and (part.cost == again.cost.astype(np.float32)).all()


def test_gpu_trajectories_refuse_what_has_no_kernels(host: HostDevice) -> None:
    model, cost, start, steps, _ = _cartpole()
    dyn, ball = (
        rd.Dynamics(model, engine="gpu", joint_forces=()),
        [rd.Contact(rd.Sphere("cart", radius=0.1), rd.Plane())],
    )
    guess = np.zeros((steps + 1, 2))
    for robot, options, what in (
        (dyn, {"q_guess": guess}, "q_guess"),
        (dyn, {"method": "ddp"}, "ddp"),
        (dyn, {"limits": "position"}, "position"),
        (rd.Dynamics(model.with_contacts(ball), engine="gpu"), {}, "contacts"),
        (rd.Dynamics(rd.auto_tree(210), engine="gpu"), {"tau0": np.zeros(210)}, "roll-outs"),
    ):
        own_cost, at = cost, start
        if robot.model.nv > 2:
            own_cost, at = rd.costs.Control(1.0), (np.zeros(210), np.zeros(210))
        with pytest.raises(rd.UnavailableError, match=rf"engine 'gpu' has no kernels? for .*{what}"):
            rd.optimize_trajectory(robot, own_cost, at, steps, 0.05, **options)
    with pytest.raises(rd.UnavailableError, match="Mpc: got engine 'gpu'"):
        rd.Mpc(dyn, rd.costs.Control(1.0), 5, 0.05)
