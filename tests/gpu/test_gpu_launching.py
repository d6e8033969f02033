"""Calls on arrays of a GPU that are like one before: what is launched again is right, and what must be looked at is."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import TOLERANCE, random_states, relative
from gpu_host import missing
from gpu_host.arrays import DeviceArray, Moving, _device, _plain, there
from gpu_host.device import HostDevice
from robots import own
from test_dynamics import as_tuple, queries

import robodyn as rd
from robodyn.api.queries import replay
from robodyn.api.queries.replay import Launching
from robodyn.engines.gpu.engine import GpuEngine
from robodyn.engines.query_table import QUERIES
from robodyn.engines.reference import ReferenceEngine

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
ROWS = 5


@pytest.fixture(scope="module")
def small() -> rd.Model:
    return rd.random_tree(3, seed=1, joints=("revolute", "prismatic"), armature=True)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of methods that calls on a device were passed on to."""
    seen: list[str] = []
    learn = Launching._learn

    def counted(self: Launching, *given: Any) -> Any:
        seen.append(self.__name__)
        return learn(self, *given)

    monkeypatch.setattr(Launching, "_learn", counted)
    return seen


def on_device(dyn: rd.Dynamics, name: str, seed: int) -> tuple[Callable[..., Any], Any]:
    """A call of a query on arrays of the device, and what is right."""
    q, qd, qdd = random_states(dyn.model, (ROWS,), seed)
    forces = np.random.default_rng(seed).normal(size=(ROWS, dyn.model.n_bodies, 6))
    wanted = queries(rd.Dynamics(dyn.model, engine="reference"), q, qd, qdd, forces)[name][0]()
    return queries(Moving(dyn), q, qd, qdd, forces)[name][0], wanted


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.some(of=3, rest="kernels")
def test_every_query_is_launched_again(name: str, small: rd.Model, host: HostDevice, asked: list[str]) -> None:
    dyn = rd.Dynamics(small, engine="gpu")
    tolerance = 1e-9 if "forward_dynamics" in name else TOLERANCE["float64"]
    for seed in range(3):
        call, wanted = on_device(dyn, name, seed)
        launches = len(host.launches)
        answer = call()
        for got, right in zip(as_tuple(answer), as_tuple(wanted), strict=True):
            assert type(got) is DeviceArray and got.shape == right.shape and relative(_plain(got), right) < tolerance
        out = tuple(_device(np.full_like(right, np.nan)) for right in as_tuple(wanted))
        given = call(out=out if len(out) > 1 else out[0])
        assert all(one is other for one, other in zip(as_tuple(given), out, strict=True))
        assert all(relative(_plain(got), right) < tolerance for got, right in zip(out, as_tuple(wanted), strict=True))
        assert len(host.launches) == launches + 2
    assert asked == [name, name]  # without `out=` and with it, both once
    assert DeviceArray.looks == 0


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("engine", ["gpu", "auto"])
def test_shapes_and_choices_are_told_apart(engine: Any, dtype: Any, host: HostDevice, asked: list[str]) -> None:
    model = rd.load_urdf(own("arm6"))
    dyn, reference = rd.Dynamics(model, engine=engine, dtype=dtype), rd.Dynamics(model, engine="reference")
    tip, other = model.link_names[-1], model.link_names[2]
    for turn in range(2):
        for shape in ((), (1,), (4,), (2, 3)):
            q, qd, qdd = (each.astype(dtype) for each in random_states(model, shape, turn))
            for link in (tip, other, len(model.link_names) - 1):
                for frame in ("world_aligned", "body"):
                    for asked_of in (reference, dyn):
                        states = there(q, qd) if asked_of is dyn else (q, qd)
                        found = asked_of.link_velocity(*states, link=link, frame=frame)
                        right = found if asked_of is reference else right  # noqa: F821
                    assert found.shape == right.shape and relative(_plain(found), right) < TOLERANCE[dtype]
            right = reference.inverse_dynamics(q, qd, qdd)
            assert relative(_plain(dyn.inverse_dynamics(*there(q, qd, qdd))), right) < TOLERANCE[dtype]
            (one, two, three), by_name = there(q, qd, qdd), dyn.inverse_dynamics
            assert relative(_plain(by_name(one, qdd=three, qd=two)), right) < TOLERANCE[dtype]
    known = len(asked)
    q, qd, qdd = (each.astype(dtype) for each in random_states(model, (4,), 9))
    dyn.link_velocity(*there(q, qd), link=tip, frame="body")
    assert (len(asked) == known) and known > 0


def test_one_array_for_two_arguments(host: HostDevice, asked: list[str]) -> None:
    """Which of them a kernel reads cannot be seen, so nothing is learnt; what was learnt from others holds."""
    model = rd.load_urdf(own("arm6"))
    dyn, reference = rd.Dynamics(model, engine="gpu"), rd.Dynamics(model, engine="reference")
    q, qd, qdd = random_states(model, (4,))
    for first, second in ((qd, qd), (qd, qdd), (qdd, qd), (qd, qd)):
        one, two = there(q, first)
        (three,) = (two,) if second is first else there(second)
        found = dyn.inverse_dynamics(one, two, three)
        assert relative(_plain(found), reference.inverse_dynamics(q, first, second)) < TOLERANCE["float64"]
    assert len(asked) == 2


def test_results_that_overlap(host: HostDevice) -> None:
    """An argument that is also where results go, a part of it, and two results in one place."""
    model = rd.load_urdf(own("arm6"))
    dyn, reference = rd.Dynamics(model, engine="gpu"), rd.Dynamics(model, engine="reference")
    for turn in range(3):
        q, qd, qdd = random_states(model, (4,), turn)
        right = reference.inverse_dynamics(q, qd, qdd)
        apart = _device(np.full((4, 6), np.nan))
        dyn.inverse_dynamics(*there(q, qd, qdd), out=apart)
        arrays = there(q, qd, qdd)
        assert dyn.inverse_dynamics(*arrays, out=arrays[2]) is arrays[2]
        whole = _device(np.zeros((5, 6)))
        whole[:4] = _device(qd)
        dyn.inverse_dynamics(arrays[0], whole[:4], _device(qdd), out=whole[1:])
        for each in (apart, arrays[2], whole[1:]):
            assert relative(_plain(each), right) < TOLERANCE["float64"]
        by_q, by_qd = _device(np.empty((4, 6, 6))), _device(np.empty((4, 6, 6)))
        dyn.inverse_dynamics_gradient(*there(q, qd, qdd), out=(by_q, by_qd))
        with pytest.raises(rd.ArgumentError, match="out: got arrays that share memory"):
            dyn.inverse_dynamics_gradient(*there(q, qd, qdd), out=(by_q, by_q))


def test_what_must_be_looked_at_is(host: HostDevice, asked: list[str]) -> None:
    """Another dtype, strides, lists, other objects, and arrays of both places, after a call like them was learnt."""
    model = rd.load_urdf(own("arm6"))
    dyn, reference = rd.Dynamics(model, engine="gpu"), rd.Dynamics(model, engine="reference")
    q, qd, qdd = random_states(model, (4,))
    right = reference.inverse_dynamics(q, qd, qdd)
    arrays = there(q, qd, qdd)
    for _ in range(2):
        assert relative(_plain(dyn.inverse_dynamics(*arrays)), right) < TOLERANCE["float64"]
    assert len(asked) == 1
    wide = _device(np.repeat(q, 2, axis=1))[:, ::2]
    assert relative(_plain(dyn.inverse_dynamics(wide, *arrays[1:])), right) < TOLERANCE["float64"]
    single = _device(qd.astype(np.float32))
    assert relative(_plain(dyn.inverse_dynamics(arrays[0], single, arrays[2])), right) < 1e-5
    assert relative(dyn.inverse_dynamics(q, qd.tolist(), qdd), right) < TOLERANCE["float64"]
    with pytest.raises(rd.ArgumentError, match=r"qd: got .* not on the GPU as q is"):
        dyn.inverse_dynamics(arrays[0], qd, arrays[2])
    with pytest.raises(rd.ArgumentError, match=r"qdd: got shape \(4, 5\)"):
        dyn.inverse_dynamics(*arrays[:2], arrays[2][:, :5].copy())
    with pytest.raises(rd.ArgumentError, match=r"out: got a float64 array of shape \(3, 6\)"):
        dyn.inverse_dynamics(*arrays, out=_device(np.zeros((3, 6))))
    with pytest.raises(TypeError):
        dyn.inverse_dynamics(*arrays, wrong=arrays[0])
    with pytest.raises(TypeError):
        dyn.inverse_dynamics(*arrays, q=arrays[0])
    assert dyn.inverse_dynamics(*(each[:0].copy() for each in arrays)).shape == (0, 6)
    assert relative(_plain(dyn.inverse_dynamics(*arrays, f_ext=None)), right) < TOLERANCE["float64"]


def test_changes_of_a_dynamics_hold(host: HostDevice) -> None:
    """Also for a method that was looked up before."""
    model = rd.load_urdf(own("arm6"))
    dyn = rd.Dynamics(model, engine="gpu", joint_forces=())
    call = dyn.inverse_dynamics
    q, qd, qdd = random_states(model, (4,))
    arrays = there(q, qd, qdd)
    for forces in ((), ("damping", "friction"), ()):
        dyn.joint_forces = forces
        right = rd.Dynamics(model, engine="reference", joint_forces=forces).inverse_dynamics(q, qd, qdd)
        for each in (call, dyn.inverse_dynamics, call):
            assert relative(_plain(each(*arrays)), right) < TOLERANCE["float64"]
    bad = there(np.full_like(q, np.nan), qd, qdd)
    for check in (True, np.True_, 1):
        dyn.check = check
        for each in (call, dyn.inverse_dynamics):
            with pytest.raises(rd.NumericalError):
                each(*bad)
    dyn.check = None
    assert np.isnan(_plain(call(*bad))).all()


def test_what_is_learnt_while_a_dynamics_changes_is_forgotten(
    host: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method compiles, and meanwhile another thread sets the engine of another robot."""
    old, new = (rd.random_tree(2, seed=seed, joints=("revolute",)) for seed in (1, 2))
    dyn, other = rd.Dynamics(old, engine="gpu"), rd.Dynamics(new, engine="gpu")
    q = random_states(old, (4,))[0]
    started, changed, plan = threading.Event(), threading.Event(), dyn.engine.plan

    def slow(*given: Any, **named: Any) -> Any:
        started.set()
        assert changed.wait(60.0)
        return plan(*given, **named)

    monkeypatch.setattr(dyn.engine, "plan", slow)
    call = dyn.gravity_force
    thread = threading.Thread(target=call, args=there(q))
    thread.start()
    assert started.wait(60.0)
    dyn.engine, dyn.model = other.engine, new
    call(*there(q[:3]))
    changed.set()
    thread.join()
    right = rd.Dynamics(new, engine="reference").gravity_force(q)
    for _ in range(2):
        assert relative(_plain(call(*there(q))), right) < TOLERANCE["float64"]


def test_other_engines_answer_for_themselves(small: rd.Model, host: HostDevice) -> None:
    """One that is called as ours is, and one that is made from it."""

    class Mine(ReferenceEngine):
        name = "gpu"

    class Twice(GpuEngine):
        def run(self, algorithm: Any, inputs: Any, outputs: Any, *, link: int | None = None) -> None:
            super().run(algorithm, inputs, outputs, link=link)
            for array in outputs.values():
                array *= 2.0

    q = random_states(small, (4,))[0]
    right = rd.Dynamics(small, engine="reference").gravity_force(q)
    dyn = rd.Dynamics(small, engine="reference")
    dyn.engine = Mine(small, np.dtype(np.float64))
    assert (dyn.gravity_force(q) == right).all()
    dyn = rd.Dynamics(small, engine="gpu")
    dyn.engine = Twice(small, np.dtype(np.float64))
    for _ in range(3):
        assert relative(_plain(dyn.gravity_force(*there(q))), 2.0 * right) < TOLERANCE["float64"]


def test_kinds_of_calls_are_forgotten(
    small: rd.Model, host: HostDevice, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than are kept."""
    monkeypatch.setattr(replay, "_MOST", 3)
    dyn, q = rd.Dynamics(small, engine="gpu"), random_states(small, (9,))[0]
    for rows in (*range(1, 9), 8):
        (some,) = there(q[:rows])
        right = rd.Dynamics(small, engine="reference").gravity_force(q[:rows])
        assert relative(_plain(dyn.gravity_force(some)), right) < TOLERANCE["float64"]
        kept = dyn.gravity_force._known  # type: ignore[attr-defined]
        assert 1 <= len(kept) <= 3
    assert len(asked) == 8


def test_no_memory_is_said_as_ever(host: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    model = rd.load_urdf(own("arm6"))
    dyn = rd.Dynamics(model, engine="gpu")
    arrays = there(*random_states(model, (4,)))
    dyn.inverse_dynamics(*arrays)

    def none(shape: Any, dtype: Any) -> Any:
        raise MemoryError("nothing left")

    monkeypatch.setattr(host.xp, "empty", none)
    with pytest.raises(rd.UnavailableError, match="there is not that much memory"):
        dyn.inverse_dynamics(*arrays)


def test_recordings_and_pickles(host: HostDevice) -> None:
    model = rd.load_urdf(own("arm6"))
    dyn, reference = rd.Dynamics(model, engine="gpu"), rd.Dynamics(model, engine="reference")
    states = random_states(model, (4,))
    arrays = there(*states)
    for _ in range(2):
        dyn.inverse_dynamics(*arrays)
    step = dyn.capture("inverse_dynamics", *arrays)
    others = random_states(model, (4,), 7)
    for array, value in zip(arrays, there(*others), strict=True):
        array[...] = value
    assert relative(_plain(step()), reference.inverse_dynamics(*others)) < TOLERANCE["float64"]
    again = pickle.loads(pickle.dumps(dyn.inverse_dynamics))
    assert relative(_plain(again(*arrays)), reference.inverse_dynamics(*others)) < TOLERANCE["float64"]
    for each in ("__doc__", "__name__", "__qualname__"):
        assert getattr(dyn.inverse_dynamics, each) == getattr(rd.Dynamics.inverse_dynamics, each)
