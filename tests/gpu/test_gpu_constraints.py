"""Constraints by the GPU engine on the fake device, whose kernels run on the host, against the reference engine."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from conftest import TOLERANCE, random_states, relative
from gpu_host import missing
from gpu_host.arrays import DeviceArray, _device, _plain
from gpu_host.device import HostDevice

import robodyn as rd
from robodyn.engines.gpu import GpuOptions
from robodyn.engines.query_table import CONSTRAINED

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")


def held() -> rd.Model:
    """A floating tree whose two last links are held, by the world and by each other."""
    tree = rd.random_tree(4, seed=5, joints=("revolute", "prismatic"), base="floating", armature=True)
    *_, one, other = tree.link_names
    return dataclasses.replace(tree, constraints=[rd.Point(other), rd.Rod(one, other, length=0.4)])


def arrays_of(model: rd.Model, name: str) -> tuple[list[Any], dict[str, Any]]:
    """What a query is asked for, in its order, with places and with what holds, in five states."""
    q, qd, tau = random_states(model, (5,), seed=2)
    rng = np.random.default_rng(2)
    given = {"q": q, "qd": qd, "tau": tau}
    named: dict[str, Any] = {"targets": rd.Dynamics(model, engine="reference").constraint_targets(q)}
    named["targets"][..., 9:] += 0.01 * rng.standard_normal((5, model.n_constraints, 3))
    if "active" in CONSTRAINED[name].optional:
        named["active"] = np.array([[1, 1], [1, 0], [0, 1], [0, 0], [1, 1]])
    if "dV0" in CONSTRAINED[name].optional:
        named |= {"V0": rng.standard_normal((5, 6)), "dV0": rng.standard_normal(6)}
    rows = (
        each for each in ("row_restitution", "row_velocity", "row_acceleration") if each in CONSTRAINED[name].optional
    )
    named |= {each: rng.uniform(size=(5, model.n_rows)) for each in rows}
    return [given[each] for each in CONSTRAINED[name].inputs], named


@pytest.mark.parametrize("kernel", ["auto", "warp"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CONSTRAINED)
@pytest.mark.some(of=6, rest="kernels")
def test_gpu_engine_answers_about_constraints(name: str, dtype: str, kernel: str, host: HostDevice) -> None:
    model = held()
    given, named = arrays_of(model, name)
    wanted = getattr(rd.Dynamics(model, engine="reference"), name)(*given, **named)
    dyn = rd.Dynamics(model, engine="gpu", dtype=dtype, gpu=GpuOptions(kernel))
    there = (
        [_device(np.array(each, dtype)) for each in given],
        {k: _device(np.array(v, dtype)) for k, v in named.items()},
    )
    for (arrays, others), kind in (((given, named), np.ndarray), (there, DeviceArray)):
        found = getattr(dyn, name)(*arrays, **others)
        found, expected = (x if isinstance(x, tuple) else (x,) for x in (found, wanted))
        for one, other in zip(found, expected, strict=True):
            assert type(one) is kind and relative(_plain(one), other) < 100 * TOLERANCE[dtype]
    if "active" in named:
        flags = named["active"] > 0
        for (arrays, others), bools in (((given, named), flags), (there, _device(flags))):
            found, again = (getattr(dyn, name)(*arrays, **{**others, **more}) for more in ({"active": bools}, {}))
            for one, other, number in zip(found, again, wanted, strict=True):
                assert np.array_equal(_plain(one), _plain(other))
                assert relative(_plain(one), number) < 100 * TOLERANCE[dtype]
    assert DeviceArray.looks == 0


@pytest.mark.parametrize("name", CONSTRAINED)
@pytest.mark.some(of=3, rest="kernels")
def test_gpu_captures_queries_about_constraints(name: str, host: HostDevice) -> None:
    model = held()
    given, named = arrays_of(model, name)
    dyn = rd.Dynamics(model, engine="gpu")
    there = [_device(np.array(each, float)) for each in given]
    others = {k: _device(np.array(v, float)) for k, v in named.items()}
    captured = dyn.capture(name, *there, **others)
    q, _, _ = random_states(model, (5,), seed=9)
    there[0][...] = _device(q)
    found, wanted = captured(), getattr(rd.Dynamics(model, engine="reference"), name)(q, *given[1:], **named)
    found, wanted = (x if isinstance(x, tuple) else (x,) for x in (found, wanted))
    for one, other in zip(found, wanted, strict=True):
        assert relative(_plain(one), other) < 100 * TOLERANCE["float64"]
    with pytest.raises(rd.ArgumentError, match=f"query: got '{name}'"):
        rd.Dynamics(model, engine="gpu", constraints=()).capture(name, *there, **others)


@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "rk4"])
def test_gpu_rollouts_obey_constraints(integrator: str, host: HostDevice) -> None:
    model = held()
    judge = rd.Dynamics(model, engine="reference")
    q, qd, tau = random_states(model, (3,), seed=3)
    targets = judge.constraint_targets(q)
    named = {"targets": targets, "integrator": integrator}
    wanted = judge.rollout(q, qd, tau, 1e-3, 4, **named)
    found = rd.Dynamics(model, engine="gpu").rollout(q, qd, tau, 1e-3, 4, **named)
    assert relative(found.q, wanted.q) < 1e-9 and relative(found.qd, wanted.qd) < 1e-9


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "rk4"])
@pytest.mark.some(of=4, rest="kernels")
def test_gpu_rollouts_obey_what_holds(integrator: str, timed: bool, host: HostDevice) -> None:
    """Some constraints for each state, or others in each step; from NumPy's arrays and from those of the device."""
    model, steps = held(), 4
    judge, rng = rd.Dynamics(model, engine="reference"), np.random.default_rng(4)
    q, qd, tau = random_states(model, (3,), seed=3)
    flags = rng.integers(0, 2, (*((steps,) if timed else ()), 3, model.n_constraints)).astype(bool)
    flags[..., 0, 1], flags[..., 2, 0] = False, True
    named = {"targets": judge.constraint_targets(q), "active": flags}
    wanted = judge.rollout(q, qd, tau, 1e-3, steps, **named, integrator=integrator)
    alone = judge.rollout(q, qd, tau, 1e-3, steps, targets=named["targets"], integrator=integrator)
    assert relative(alone.qd, wanted.qd) > 1e-3, "what is off has a part"
    dyn = rd.Dynamics(model, engine="gpu")
    there = {name: _device(np.array(each)) for name, each in named.items()}
    for arrays, others in (((q, qd, tau), named), (map(_device, (q, qd, tau)), there)):
        found = dyn.rollout(*arrays, 1e-3, steps, **others, integrator=integrator)
        assert relative(_plain(found.q), wanted.q) < 1e-9 and relative(_plain(found.qd), wanted.qd) < 1e-9
