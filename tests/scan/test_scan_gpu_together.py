"""Levels of heavy paths that share a launch on a GPU: which ones do, and that nothing depends on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import random_states, relative
from gpu_host import ORDERS, missing
from gpu_host.arrays import _device, _plain
from gpu_host.device import HostDevice
from gpu_host.scan_functions import add_functions
from test_scan_folds import ALONG
from test_scan_gpu import ALL_KINDS, outside

import robodyn as rd
from robodyn.engines.gpu.source import SHARED_BYTES
from robodyn.engines.scan import order as orders
from robodyn.engines.scan.cuda import folds as kernels
from robodyn.engines.scan.elements import scanning_on
from robodyn.engines.scan.order import order_of
from robodyn.engines.scan.states import State
from robodyn.joints import KINDS

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")


def host_device(monkeypatch: pytest.MonkeyPatch, order: str = ORDERS[0]) -> Any:
    host: Any = HostDevice(order)
    add_functions(host.xp)
    monkeypatch.setattr("robodyn.engines.scan.cuda.engine.default_device", lambda: host)
    return host


def models() -> dict[str, rd.Model]:
    return {
        "bush": rd.auto_tree(300, branching=2, skew=0.3),
        "kinds": rd.random_tree(60, seed=1, joints=ALL_KINDS, armature=True),
        "binary": rd.random_tree(80, seed=2, joints=("revolute", "spherical"), shape="binary", base="floating"),
        "random": rd.random_tree(60, seed=6, joints=("revolute", "prismatic")),
    }


@pytest.mark.parametrize("name", models())
@pytest.mark.parametrize("batch", [1, 3, 200])
def test_launches_go_along_each_path_once(name: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    host_device(monkeypatch)
    model = models()[name]
    engine = rd.Dynamics(model, engine="scan").engine.there()
    state = State(engine.layout, {"q": _device(random_states(model, (batch,))[0])})
    with scanning_on(engine.layout.device):
        order = order_of(state)
        for apart in (False, True):
            launches = order.launches(state, first_apart=apart)
            assert len(launches) <= len(order.levels)
            bodies = np.concatenate([each.along.bodies for each in launches])
            np.testing.assert_array_equal(bodies, np.concatenate([each.along.bodies for each in order.levels]))
            ends = [(each.which.start, each.which.stop) for each in launches]
            assert [a for a, _ in ends] == [0, *(b for _, b in ends[:-1])] and ends[-1][1] == order.paths
            if apart:
                assert launches[0] is order.levels[0]
            for each in launches:
                turns = each.along.turns
                if turns is None:
                    assert any(each is one for one in order.levels)
                    continue
                assert len(turns) > 2 and turns[-1] == len(each.along) == each.which.stop - each.which.start
                assert (np.diff(turns) * batch <= orders.TOGETHER).all() and not each.along.several
                junctions, starts = _plain(each.level.junctions), each.along.starts
                parents = model.parent[order.bodies[each.along.bodies[starts]]]
                np.testing.assert_array_equal(np.where(junctions < 0, -1, order.bodies[junctions]), parents)
    assert order.launches(state) == order.levels  # operations of a library go level by level


def answers(model: rd.Model, batch: int) -> list[np.ndarray]:
    """Of all queries that go along stretches, plain and with everything that they take."""
    scan = rd.Dynamics(model, engine="scan")
    states = random_states(model, (batch,))
    q, qd, qdd = map(_device, states)
    found = [scan.mass_matrix(q)]
    for given in ({}, outside(model, (batch,))):
        moved = {name: _device(value) for name, value in given.items()}
        found.append(scan.inverse_dynamics(q, qd, qdd, method="twist_pair", **moved))
        found.append(scan.forward_dynamics(q, qd, qdd, method="aba_scan", **moved))
        found += scan.inverse_dynamics_gradient(q, qd, qdd, **moved)
    return [_plain(each).copy() for each in found]


@pytest.mark.parametrize("name", models())
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.some(of=6, when="kernels")
def test_nothing_depends_on_what_shares_a_launch(name: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = models()[name]
    host = host_device(monkeypatch)
    together = answers(model, batch)
    several = sum(name == "fold" for name, _ in host.launches)
    for order in ORDERS[1:]:
        host_device(monkeypatch, order)
        for found, right in zip(answers(model, batch), together, strict=True):
            np.testing.assert_array_equal(found, right)
    for limit in (0, 7):
        monkeypatch.setattr(orders, "TOGETHER", limit)
        host = host_device(monkeypatch)
        for found, right in zip(answers(model, batch), together, strict=True):
            np.testing.assert_array_equal(found, right)
        assert sum(name == "fold" for name, _ in host.launches) > several
    states = random_states(model, (batch,))
    assert relative(together[0], rd.Dynamics(model, engine="reference").mass_matrix(states[0])) < 1e-11


@pytest.mark.kernels
def test_a_stage_of_every_fold_has_room_on_every_gpu() -> None:
    codes = tuple(code for code, kind in enumerate(KINDS) if kind.nv)
    for name, fold in ALONG.items():
        if name == "growing":
            continue  # of stretches of paths that are cut
        for kinds in (codes, *((code,) for code in codes)):
            for limit in (SHARED_BYTES, kernels.TOGETHER_BYTES):
                source = kernels.fold_kernel(fold, kinds, np.dtype(np.float64), limit)
                assert source.shared_bytes <= limit and source.block_threads == kernels.TOGETHER_THREADS, name


@pytest.mark.kernels
def test_levels_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    model = models()["bush"]
    host_device(monkeypatch)
    right = answers(model, 1)
    monkeypatch.setattr(kernels, "_TURNED", "    }\n")
    changed = []
    for order in ORDERS:
        host_device(monkeypatch, order)
        found = zip(answers(model, 1), right, strict=True)
        changed.append(any(not np.array_equal(one, other) for one, other in found))
    assert any(changed)
