"""The GPU engine's arrays, and calls that are recorded, on a fake device."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from conftest import random_states
from gpu_host import missing
from gpu_host.arrays import DeviceArray, _device, _plain
from gpu_host.device import HostDevice
from robots import own
from test_gpu_engine import compare, there

import robodyn as rd
from robodyn.engines.gpu import GpuOptions
from robodyn.internals.array_library import on_device

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")


@pytest.fixture(scope="module")
def arm() -> rd.Model:
    return rd.load_urdf(own("arm7"))


# Arrays.


def test_gpu_engine_reads_any_array_on_the_device(arm: rd.Model, host: HostDevice) -> None:
    q, qd, qdd = random_states(arm, (6,))
    dyn = rd.Dynamics(arm, engine="gpu")
    wanted = rd.Dynamics(arm, engine="reference").inverse_dynamics(q, qd, qdd)
    wide = _device(np.full((12, 14), np.nan))
    wide[::2, ::2] = _device(q)
    compare(dyn.inverse_dynamics(wide[::2, ::2], *there(qd, qdd)), wanted)
    single = dyn.inverse_dynamics(*there(q.astype(np.float32), qd, qdd))
    assert single.dtype == np.float64
    compare(single, wanted, 1e-5)
    compare(dyn.inverse_dynamics(*there(q[:1], qd, qdd[:1])), rd.Dynamics(arm).inverse_dynamics(q[:1], qd, qdd[:1]))
    with pytest.raises(rd.ArgumentError, match=r"q: got .* of dtype bool"):
        dyn.mass_matrix(*there(np.zeros(7, bool)))
    with pytest.raises(rd.ArgumentError, match=r"q: got shape \(6,\)"):
        dyn.mass_matrix(*there(np.zeros(6)))


def test_gpu_engine_wants_all_arrays_in_one_place(
    arm: rd.Model, host: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, qd, qdd = random_states(arm, (2,))
    with pytest.raises(rd.ArgumentError, match=r"qd: got array.* not on the GPU as q is"):
        rd.Dynamics(arm, engine="gpu").inverse_dynamics(*there(q), qd, qdd)
    with pytest.raises(rd.ArgumentError, match=r"q: got .* on the GPU; engine 'cpu' wants NumPy arrays"):
        rd.Dynamics(arm, engine="cpu").mass_matrix(*there(q))
    far = _device(q)
    far.elsewhere = True
    with pytest.raises(rd.ArgumentError, match="q: got an array on another host; wanted one on the GPU of this"):
        rd.Dynamics(arm, engine="gpu").mass_matrix(far)
    monkeypatch.setattr(HostDevice, "current", 1)
    with pytest.raises(rd.ArgumentError, match=r"another GPU is the current one; wanted .* cupy\.cuda\.Device\(0\)"):
        rd.Dynamics(arm, engine="gpu").mass_matrix(*there(q))
    assert DeviceArray.looks == 0


def test_auto_engine_answers_on_the_gpu_what_lives_there(arm: rd.Model, host: HostDevice) -> None:
    states = random_states(arm, (2,))
    dyn = rd.Dynamics(arm)
    assert dyn.engine.name == "cpu"
    wanted = dyn.forward_dynamics(*states)
    answer = dyn.forward_dynamics(*there(*states))
    assert isinstance(answer, DeviceArray) and len(host.launches) == 1
    compare(answer, wanted, 1e-9)
    asked = rd.Dynamics(arm, gpu=GpuOptions("thread"))
    compare(asked.forward_dynamics(*there(*states)), wanted, 1e-9)
    assert host.kernels[-1].source.threads_per_state == 1 and asked._gpu.options == GpuOptions("thread")


def test_gpu_results_go_where_out_says(arm: rd.Model, host: HostDevice) -> None:
    states = random_states(arm, (5,))
    dyn = rd.Dynamics(arm, engine="gpu")
    wanted = rd.Dynamics(arm, engine="reference").inverse_dynamics(*states)
    (out,) = there(np.full((5, 7), np.nan))
    assert dyn.inverse_dynamics(*there(*states), out=out) is out
    compare(out, wanted)
    (wide,) = there(np.full((10, 7), np.nan))
    dyn.inverse_dynamics(*there(*states), out=wide[::2])
    compare(wide[::2], wanted)
    assert np.isnan(_plain(wide)[1::2]).all()
    q, qd, qdd = there(*states)
    assert dyn.inverse_dynamics(q, qd, qdd, out=qdd) is qdd  # its own input
    compare(qdd, wanted)
    for bad in (np.empty((5, 7)), *there(np.empty((5, 6)), np.empty((5, 7), np.float32))):
        with pytest.raises(rd.ArgumentError, match="out: got"):
            dyn.inverse_dynamics(*there(*states), out=bad)
    square = there(np.empty((5, 7, 7)))[0]
    with pytest.raises(rd.ArgumentError, match="share memory"):
        dyn.inverse_dynamics_gradient(*there(*states), out=(square, square))


def test_arrays_on_a_device_are_told_apart() -> None:
    class Foreign:
        def __init__(self, kind: int) -> None:
            self.kind = kind

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.kind, 0

    class Broken:
        @property
        def __cuda_array_interface__(self) -> Any:
            raise RuntimeError("broken")

    class Leaf(Foreign, Broken):
        """Such as PyTorch's, of which gradients are wanted: it raises, and says where it is."""

    assert on_device(_device(np.zeros(2))) and on_device(Foreign(2)) and on_device(Leaf(2))
    assert not any(map(on_device, (Foreign(1), Broken(), None, 3.0, [1.0], np.zeros(2))))


# Recorded calls.


def test_gpu_capture_runs_again_on_what_arrays_hold(arm: rd.Model, host: HostDevice) -> None:
    q, qd, tau = there(*random_states(arm, (4,)))
    dyn, reference = rd.Dynamics(arm, engine="gpu"), rd.Dynamics(arm, engine="reference")
    step = dyn.capture("forward_dynamics_gradient", q, qd, tau)
    launches = len(host.launches)  # of the call that made room for results, and of no other: nothing ran yet
    q[...] = _device(random_states(arm, (4,), seed=5)[0])
    found = step()
    assert found is step.results and len(host.launches) == 2 * launches > 0
    compare(found, reference.forward_dynamics_gradient(*map(_plain, (q, qd, tau))), 1e-9)
    (out,) = there(np.empty((4, 7)))
    assert dyn.capture("inverse_dynamics", q, qd, tau, out=out)() is out
    with pytest.raises(rd.ArgumentError, match="got no array on the GPU"):
        dyn.capture("mass_matrix", _plain(q))
    with pytest.raises(rd.ArgumentError, match="a strided float64 array; wanted contiguous float64"):
        dyn.capture("mass_matrix", _device(np.zeros((4, 14)))[:, ::2])
    with pytest.raises(rd.ArgumentError, match="query: got 'torques'"):
        dyn.capture("torques", q)
    with pytest.raises(rd.ArgumentError, match="check: got True"):
        rd.Dynamics(arm, engine="gpu", check=True).capture("mass_matrix", q)
    with pytest.raises(rd.ArgumentError, match="got no states"):
        dyn.capture("mass_matrix", *there(np.empty((0, 7))))
    still = rd.load_urdf("<robot name='r'><link name='a'/></robot>")
    with pytest.raises(rd.ArgumentError, match="in which nothing moves"):
        rd.Dynamics(still, engine="gpu").capture("forward_kinematics", *there(np.empty((4, 0))))


@pytest.mark.parametrize("query", ["inverse_dynamics", "forward_dynamics", "forward_dynamics_gradient"])
@pytest.mark.some(of=3, rest="kernels")
def test_gpu_capture_records_joint_forces_and_keeps_kernels(query: str, arm: rd.Model, host: HostDevice) -> None:
    arrays = there(*random_states(arm, (4,)))
    dyn = rd.Dynamics(arm, engine="gpu", joint_forces=("damping", "friction"))
    found = weakref.ref(dyn.engine)
    step = dyn.capture(query, *arrays)
    del dyn
    gc.collect()
    assert found() is not None  # whose code and constants the graph runs on
    step()
    del step
    gc.collect()
    assert found() is None
