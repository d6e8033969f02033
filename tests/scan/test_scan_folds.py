"""Folds along stretches of heavy paths: the order of bodies, kernels against NumPy's loop, and what hangs on bodies."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from conftest import random_states, relative
from gpu_host import ORDERS, missing
from gpu_host.arrays import _device, _plain
from gpu_host.device import HostDevice
from gpu_host.scan_functions import add_functions
from test_scan_gpu import ALL_KINDS

import robodyn as rd
from robodyn.description import Link, RobotDescription
from robodyn.engines.scan import ScanOptions
from robodyn.engines.scan import order as orders
from robodyn.engines.scan.cuda import engine as gpu_engine
from robodyn.engines.scan.cuda.device import ScanDevice
from robodyn.engines.scan.elements import scanning_on
from robodyn.engines.scan.folds import Fold, Handed
from robodyn.engines.scan.order import Order, order_of
from robodyn.engines.scan.states import Layout, State
from robodyn.engines.scan.systems import composites, gradients, motions, stretches
from robodyn.sweeps import INERTIA

TOLERANCE = {"float64": 1e-11, "float32": 2e-3}
ALONG = {
    "growing": stretches.growing(np.dtype(np.float64)),
    "settling": stretches.SETTLING,
    "accelerating": stretches.ACCELERATING,
    "moving": motions.MOVING,
    "loading": motions.LOADING,
    "loading, pushed": motions.LOADING_PUSHED,
    "twisting": motions.TWISTING,
    "exerting": motions.EXERTING,
    "exerting, pushed": motions.EXERTING_PUSHED,
    "pulling": motions.PULLING,
    "summing": motions.SUMMING,
    "posing": composites.POSING,
    "placing": composites.PLACING,
    "gathering": composites.gathering(INERTIA),
    "composing": composites.COMPOSING,
    "totalling": composites.totalling(gradients.PARTS),
    "steering": gradients.STEERING,
    "steering, pushed": gradients.STEERING_PUSHED,
}
on_host = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")


def models() -> dict[str, rd.Model]:
    return {
        "chain": rd.auto_tree(70),
        "bush": rd.auto_tree(60, branching=1.5, skew=0.3),
        "kinds": rd.random_tree(40, seed=1, joints=ALL_KINDS, armature=True),
        "forest": rd.random_tree(25, seed=3, joints=("revolute", "helical", "spherical")),
        "one body": rd.random_tree(1, seed=4, joints=("floating",)),
    }


def layout_of(model: rd.Model, dtype: Any = np.float64, device: ScanDevice | None = None) -> Layout:
    return Layout(model, np.dtype(dtype), ScanOptions(), device)


# The order.


@pytest.mark.parametrize("length", [2, 16, 1000])
@pytest.mark.parametrize("name", ["chain", "bush", "kinds", "forest", "one body"])
def test_an_order_holds_each_body_and_joint_once_and_stretches_follow_paths(name: str, length: int) -> None:
    model = models()[name]
    order = Order(layout_of(model), length)
    assert sorted(order.bodies.tolist()) == list(range(model.n_bodies))
    parents, seen = model.parent[order.bodies], 0
    for paths in order.levels:
        along, level = paths.along, paths.level
        assert int(along.lengths.sum()) == level.bodies.size and along.lengths.min() > 0
        assert along.lengths.max() <= max(1.5 * length, 1)
        assert (along.lengths[along.ends] <= along.stops[along.ends] - along.starts[along.ends]).all()
        for start, n, ends in zip(along.starts, along.lengths, along.ends, strict=True):
            path = along.bodies[start : start + n]
            np.testing.assert_array_equal(parents[path[1:]], order.bodies[path[:-1]])
            if not ends:
                assert parents[along.bodies[start + n]] == order.bodies[path[-1]]
        # First bodies of all stretches lie side by side, then second ones, and so on.
        within = np.concatenate([np.arange(n) for n in along.lengths])
        places = along.bodies - seen
        np.testing.assert_array_equal(np.sort(within), within[np.argsort(places)])
        heads = level.junctions
        np.testing.assert_array_equal(
            np.where(heads < 0, -1, order.bodies[heads]), parents[along.bodies[along.starts[_heads(along)]]]
        )
        seen += along.bodies.size
    numbers = np.arange(model.nv_tree, dtype=float)[:, None]
    there = order.of_dofs(numbers)
    np.testing.assert_array_equal(order.to_model(there), numbers)
    for place, body in enumerate(order.bodies):
        first = order.first_dofs[place]
        assert there[0, first, 0] == model.v_start[body]
    state = State(layout_of(model), {"q": random_states(model, (3,))[0]})
    np.testing.assert_array_equal(order.transforms(state), order.of_bodies(state.transforms))


def _heads(along: orders.Stretches) -> np.ndarray:
    return np.flatnonzero(np.concatenate(([True], along.ends[:-1])))


def test_stretches_are_moved_and_pushed_along_their_paths() -> None:
    """One that has no bodies left has none; none leaves its path."""
    along = Order(layout_of(rd.auto_tree(8)), 2).levels[0].along
    assert along.starts.tolist() == [0, 2, 4, 6]
    found = along.moved(np.array([0, 4, 4, 8]))
    assert found.lengths.tolist() == [4, 0, 4, 0] and found.segments is along.segments
    assert len(found.outward) == 4 and [len(each) for each in found.outward] == [1] * 4


# Kernels.


def host_device(order: str = "forward") -> Any:
    host: Any = HostDevice(order)
    add_functions(host.xp)
    return host


def arrays_of(fold: Fold, order: Order, batch: int, dtype: Any) -> dict[str, Any]:
    """Random quantities, some of which serve all states."""
    rng, model = np.random.default_rng(2), order.layout.model
    n, nv = model.n_bodies, model.nv_tree

    def numbers(size: int, many: int, rows: int) -> np.ndarray:
        return (rng.uniform(-1, 1, (size, many, rows)) / 3.0).astype(dtype)

    state = State(order.layout, {"q": random_states(model, (batch,))[0].astype(dtype)})
    transforms = order.transforms(state)
    bodies = [
        transforms if field.size(0) == 12 else numbers(field.size(0), n + k, batch if k else 1)
        for k, field in enumerate(fold.bodies)
    ]
    if fold.hung is not None and fold.bodies[fold.hung].size(0) == 27:  # an inertia
        held = np.zeros((27, n + 2, batch), dtype)
        held[[6, 12, 17, 21, 24, 26]] = rng.uniform(1, 2, (6, n + 2, batch))
        bodies[fold.hung] = held
    return {
        "bodies": bodies,
        "dofs": [numbers(field.size(0), nv, batch if k else 1) for k, field in enumerate(fold.dofs)],
        "carry": numbers(fold.size, n + 1, batch) if not fold.inward else np.zeros((fold.size, n + 1, batch), dtype),
        "found": np.full((fold.found.size(0), n + 1, batch), np.nan, dtype) if fold.found.size(0) else None,
        "found_dofs": np.full((fold.found_dofs.size(0), nv, batch), np.nan, dtype) if fold.found_dofs.size(0) else None,
    }


def folded(fold: Fold, model: rd.Model, batch: int, dtype: Any, device: Any) -> list[np.ndarray]:
    """What a fold makes of all levels, on NumPy arrays or on a device."""
    place = None if device is None else ScanDevice(device)
    there, plain = (lambda x: x, np.asarray) if device is None else (_device, _plain)
    order = Order(layout_of(model, dtype, place), 8)
    host = Order(layout_of(model, dtype), 8)
    given = arrays_of(fold, host, batch, dtype)
    moved = {
        name: [there(each) for each in value] if isinstance(value, list) else value if value is None else there(value)
        for name, value in given.items()
    }
    results = []
    with scanning_on(place) if place is not None else nullcontext():
        state = State(order.layout, {"q": there(random_states(model, (batch,))[0].astype(dtype))})
        handed = None
        if fold.hung is not None and place is not None:
            handed = Handed(state, order, moved["bodies"][fold.hung], fold.size)
            handed._all[...] = 0.0  # nothing hangs: what does is tested with whole algorithms
        for paths in order.levels:
            sources = there(np.arange(len(paths.along)) % 3 - 1)
            outs = {name: moved[name] for name in ("found", "found_dofs")}
            after = fold(
                paths.along, moved["carry"], moved["bodies"], moved["dofs"], sources=sources, handed=handed, **outs
            )
            results.append(plain(after).copy())
    return [*results, *(plain(moved[name]).copy() for name in ("found", "found_dofs") if moved[name] is not None)]


@on_host
@pytest.mark.parametrize("name", ALONG)
@pytest.mark.parametrize("which", ["bush", "kinds"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.some(of=12, rest="kernels")
def test_kernels_of_folds_are_numpys_loops(name: str, which: str, dtype: str) -> None:
    fold, model = ALONG[name], models()[which]
    for batch in (1, 3):
        wanted = folded(fold, model, batch, np.dtype(dtype), None)
        first = folded(fold, model, batch, np.dtype(dtype), host_device())
        for found, right in zip(first, wanted, strict=True):
            np.testing.assert_array_equal(np.isnan(found), np.isnan(right))
            assert relative(np.nan_to_num(found), np.nan_to_num(right)) < TOLERANCE[dtype], name
        for order in ORDERS[1:]:
            for found, right in zip(
                folded(fold, model, batch, np.dtype(dtype), host_device(order)), first, strict=True
            ):
                np.testing.assert_array_equal(found, right)


# What hangs on bodies.


def star(n: int) -> rd.Model:
    """Many paths on one body, and one on each of these."""
    return rd.random_tree(n, seed=6, joints=("revolute", "spherical"), shape="star", base="floating")


@on_host
@pytest.mark.parametrize("most", [orders.MOST_HANGING, 2])
@pytest.mark.parametrize("shape", ["star", "caterpillar", "binary"])
@pytest.mark.some(of=3, rest="matrix")
def test_kernels_look_for_what_hangs_on_bodies(shape: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for levels where too much hangs on one: that is added up before."""
    monkeypatch.setattr(orders, "MOST_HANGING", most)
    host = host_device()
    monkeypatch.setattr(gpu_engine, "default_device", lambda: host)
    model = rd.random_tree(50, seed=6, joints=("revolute", "spherical"), shape=shape, base="floating", armature=True)
    scan, judge = rd.Dynamics(model, engine="scan"), rd.Dynamics(model, engine="reference")
    q, qd, qdd = random_states(model, (2,))
    tau = judge.inverse_dynamics(q, qd, qdd)
    there = [_device(each) for each in (q, qd, qdd, tau)]
    found = _plain(scan.inverse_dynamics(*there[:3], method="twist_pair"))
    assert relative(found, tau) < 1e-12
    back = judge.inverse_dynamics(q, qd, _plain(scan.forward_dynamics(*there[:2], there[3], method="aba_scan")))
    assert relative(back, tau) < 1e-11
    order = order_of(State(scan.engine.there().layout, {"q": there[0]}))
    assert all(paths.direct for paths in order.levels) == (shape != "star")


@on_host
def test_folds_of_a_device_go_with_the_operations_of_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_device()
    monkeypatch.setattr(gpu_engine, "default_device", lambda: host)
    model = models()["kinds"]
    scan = rd.Dynamics(model, engine="scan", scan=ScanOptions(operators="library"))
    q, qd, qdd = random_states(model, (2,))
    found = _plain(scan.inverse_dynamics(*map(_device, (q, qd, qdd)), method="twist_pair"))
    assert relative(found, rd.Dynamics(model, engine="reference").inverse_dynamics(q, qd, qdd)) < 1e-12
    assert "fold" not in [name for name, _ in host.launches]


@pytest.mark.parametrize("leading", [(), (2,), (0,)])
def test_robots_without_joints_have_no_forces_and_no_accelerations(leading: tuple[int, ...]) -> None:
    """Nor are external ones looked for."""
    stone = rd.build_model(RobotDescription("stone", (Link("stone"),), ()))
    scan, nothing = rd.Dynamics(stone, engine="scan"), np.zeros((*leading, 0))
    forces = np.zeros((*leading, 0, 6))
    assert scan.inverse_dynamics(nothing, nothing, nothing, method="twist_pair", f_ext=forces).shape == nothing.shape
    assert scan.forward_dynamics(nothing, nothing, nothing, method="aba_scan", f_ext=forces).shape == nothing.shape
