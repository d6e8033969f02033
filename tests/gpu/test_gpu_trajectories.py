"""Trajectories on the GPU engine: its backward pass beside the CPU engine's, from the same text."""

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

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
ROUNDING = {"float64": 1e-12, "float32": 1e-5}


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


def launched(device: HostDevice, source: KernelSource, arrays: dict[str, Any], rows: int, *numbers: int) -> list[Any]:
    """Results of a kernel on two blocks."""
    held = [*(arrays[name] for name in (*source.inputs, *source.outputs)), *source.constants]
    scratch = np.full(source.workspace(2), np.nan, source.dtype)
    there = [*map(_device, held), _device(scratch) if scratch.size else None]
    device.load(source).launch(2, there, rows, numbers)
    return [_plain(each) for each in there[len(source.inputs) :][: len(source.outputs)]]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("box", [True, False])
@pytest.mark.some(of=4, rest="kernels")
def test_gpu_backward_pass_is_that_of_the_cpu(box: bool, dtype: str) -> None:
    """A warp for a problem: in shared memory and in global memory, in each order of threads, and rows that fail."""
    rng, batch = np.random.default_rng(5), 2
    for order, (nv, nu, steps), room in zip(ORDERS, ((3, 2, 3), (2, 3, 2), (14, 4, 1)), (48 << 10, 0, 0), strict=True):
        given = problems(rng, nv, nu, steps, batch, dtype)
        given["A"][-1, 1, 0, 0] = np.nan
        source = backward_source(2 * nv, nu, np.dtype(dtype), room, gap=True, box=box)
        assert bool(source.workspace_scalars) is not bool(source.shared_bytes)
        shapes = {"k": (steps, batch, nu), "K": (steps, batch, nu, 2 * nv), "expected": (batch, 2)}
        empty = {name: np.full(shape, np.inf, dtype) for name, shape in shapes.items()}
        found = launched(HostDevice(order), source, {**given, **empty}, batch, batch, 0, steps)
        plain = {
            name: array if name in ("vx", "vxx", "mu") else array.swapaxes(0, 1)
            for name, array in given.items()
            if box or name not in ("lower", "upper")
        }
        zero = np.zeros((1, 1, nu, 2 * nv))
        *wanted, ok = BackwardPass(nv, nu, steps, dtype=dtype, box=box)(**plain, lux=zero)
        assert ok.tolist() == [True, False]
        for one, each in zip((found[0].swapaxes(0, 1), found[1].swapaxes(0, 1), found[2]), wanted, strict=True):
            np.testing.assert_allclose(one, each, rtol=0.0, atol=ROUNDING[dtype] * np.abs(each[ok]).max())


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


@pytest.mark.parametrize("case", [_cartpole, _floating])
@pytest.mark.some(of=2, rest="kernels")
def test_gpu_batches_of_trajectories_are_those_of_the_cpu(case: Any, host: HostDevice) -> None:
    """All stages of all iterations, in a few launches each."""
    model, cost, start, steps, options = case()
    wanted, found = (
        rd.optimize_trajectory(rd.Dynamics(model, engine=name, joint_forces=()), cost, start, steps, 0.1, **options)
        for name in ("cpu", "gpu")
    )
    print(found.status, found.iterations, found.log)
    assert found.status.tolist() == wanted.status.tolist() and len(set(found.iterations)) > (case is _cartpole)
    for name in ("q", "qd", "tau", "gains", "cost", "log"):
        one, other = getattr(found, name), getattr(wanted, name)
        np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-7 * np.abs(other).max(), err_msg=name)
    rounds, rolled = (sum(name == each for name, _ in host.launches) for each in ("backward", "march"))
    assert rounds == found.iterations.max() + (found.status == "converged").all()
    assert (rolled > rounds + 1) is (case is _cartpole)  # a first one, and those of shorter steps
    single = rd.Dynamics(model, engine="gpu", dtype="float32", joint_forces=())
    part = rd.optimize_trajectory(single, cost, start, steps, 0.1, **{**options, "iterations": 1})
    assert part.q.dtype == np.float32 and (part.cost == found.log[..., 1].astype(np.float32)).all()


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
