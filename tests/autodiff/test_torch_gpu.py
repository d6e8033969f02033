"""robodyn.torch on a GPU: tensors stay where they are. Without a GPU its place is taken by a fake device."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import relative
from gpu_host import missing
from gpu_host.cases import touching
from gpu_host.device import HostDevice
from robots import own

import robodyn as rd

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from torch.autograd import gradcheck, gradgradcheck  # noqa: E402
from torch.func import hessian, jacfwd, jacrev, vmap  # noqa: E402

import robodyn.torch as bridge  # noqa: E402
from robodyn.engines.gpu import GpuOptions, engine  # noqa: E402
from robodyn.torch import TorchDynamics, wrap  # noqa: E402

pytestmark = pytest.mark.extras
on_host = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")

STREAM = 0x5EED
# Central differences: truncation of 1e-6^2 and roundings of 1e-16 / 1e-6.
CHECK = {"eps": 1e-6, "atol": 1e-6, "rtol": 1e-5}
# Both engines compute the same; gradients of forward dynamics lose what the conditioning of H takes.
SAME = {"float64": 1e-9, "float32": 1e-3}


def states(model, shape=(), seed=0):
    rng = np.random.default_rng(seed)
    return model.random_configuration(rng, shape), *rng.standard_normal((2, *shape, model.nv))


@pytest.fixture(scope="module")
def arm():
    return rd.random_tree(3, seed=5, joints=("revolute", "prismatic"), armature=True)


@pytest.fixture(scope="module")
def ball():
    """A ball joint under a floating base: quaternions."""
    return rd.random_tree(1, seed=1, joints=("spherical",), base="floating")


@pytest.fixture
def host(monkeypatch):
    """The device of every engine made in a test; tensors in the processor's memory count as lying there."""
    found = HostDevice()
    monkeypatch.setattr(engine, "default_device", lambda: found)
    monkeypatch.setattr(bridge, "selected", lambda number: nullcontext())
    monkeypatch.setattr(bridge, "_is_gpu", lambda device: device.type == "cpu")
    stream = SimpleNamespace(__cuda_stream__=lambda: (0, STREAM))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    return found


def on(place, *arrays, requires_grad=False):
    return tuple(torch.tensor(array, device=place, requires_grad=requires_grad) for array in arrays)


def numbers(found):
    return [each.detach().cpu().numpy() for each in (found if isinstance(found, tuple) else (found,))]


def pushed(query):
    """A query with external forces as its last argument, to differentiate by."""
    return lambda *x: query(*x[:-1], f_ext=x[-1])


def questions(functions, q, qd, qdd, f_ext):
    """Name -> function and arguments."""
    return {
        "inverse_dynamics": (pushed(functions.inverse_dynamics), (q, qd, qdd, f_ext)),
        "forward_dynamics": (pushed(functions.forward_dynamics), (q, qd, qdd, f_ext)),
        "mass_matrix": (functions.mass_matrix, (q,)),
        "mass_matrix_inverse": (functions.mass_matrix_inverse, (q,)),
        "kinetic_energy": (functions.kinetic_energy, (q, qd)),
        "potential_energy": (functions.potential_energy, (q,)),
        "forward_kinematics": (functions.forward_kinematics, (q,)),
        "center_of_mass": (functions.center_of_mass, (q,)),
        "coordinate_rate": (functions.coordinate_rate, (q, qd)),
    }


def require_answers(model, place, dtype="float64", **options):
    """Answers and gradients of tensors there are those of tensors here."""
    dyn = rd.Dynamics(model, dtype=dtype, **options)
    here, there = wrap(rd.Dynamics(model, engine="reference", dtype=dtype)), wrap(dyn)
    for shape in ((), (5,), (0,), (2, 1)):
        x = (*states(model, shape), np.random.default_rng(1).standard_normal((*shape, model.n_bodies, 6)))
        x = [part.astype(dtype) for part in x]
        near, far = on("cpu", *x, requires_grad=True), on(place, *x, requires_grad=True)
        asked = questions(there, *far)
        for name, (query, arguments) in questions(here, *near).items():
            with pytest.MonkeyPatch.context() as patch:
                if place == "cpu":  # "here" is the reference engine, not the device that stands in for a GPU
                    patch.setattr(bridge, "_is_gpu", lambda device: False)
                wanted = query(*arguments)
                slopes = torch.autograd.grad(wanted.square().sum(), arguments, materialize_grads=True)
            function, given = asked[name]
            got = function(*given)
            assert got.device == far[0].device and got.dtype == near[0].dtype and got.shape == wanted.shape, name
            found = torch.autograd.grad(got.square().sum(), given, materialize_grads=True)
            for one, other in zip(numbers((got, *found)), numbers((wanted, *slopes)), strict=True):
                assert relative(one, other) < SAME[dtype], name


def require_derivatives(model, place, names):
    """Of a batch with leading axes that broadcast, in reverse and forward; quaternions that are not of unit length."""
    q, qd, qdd = states(model, (2, 1))
    q[..., model.quaternion_starts[:, None] + np.arange(4)] *= 1.2
    f_ext = np.random.default_rng(2).standard_normal((3, model.n_bodies, 6))
    x = (q, qd[:1], 0.1 * np.broadcast_to(qdd[0, 0], (3, model.nv)), 0.1 * f_ext)
    asked = questions(wrap(model), *on(place, *x, requires_grad=True))
    for name in names:
        function, arguments = asked[name]
        assert gradcheck(function, arguments, check_forward_ad=True, fast_mode=True, **CHECK)
        assert gradgradcheck(function, arguments, check_fwd_over_rev=True, fast_mode=True, **CHECK)


@on_host
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tensors_on_a_gpu_are_answered_there(dtype, arm, host):
    require_answers(arm, "cpu", dtype)
    assert host.launches and set(host.streams) == {STREAM}
    assert not host.uploads and not host.downloads and not host.waits


@on_host
@pytest.mark.parametrize("name", ["inverse_dynamics", "forward_dynamics"])
def test_derivatives_of_tensors_on_a_gpu(name, ball, host):
    require_derivatives(ball, "cpu", (name,))
    assert host.launches and not host.uploads


@on_host
def test_transformations_of_tensors_on_a_gpu(arm, host):
    rt, dyn, x = wrap(arm), rd.Dynamics(arm), states(arm, (2,))
    q, qd, tau = on("cpu", *x)
    found = vmap(jacrev(rt.forward_dynamics, (0, 1, 2)))(q, qd, tau)
    for got, wanted in zip(numbers(found), dyn.forward_dynamics_gradient(*x), strict=True):
        assert relative(got, wanted) < 1e-9
    by_q, _ = dyn.inverse_dynamics_gradient(*x)
    (got,) = numbers(vmap(jacfwd(rt.inverse_dynamics))(q, qd, tau))
    assert relative(got, by_q) < 1e-9
    curved = hessian(lambda q: rt.inverse_dynamics(q, qd[0], tau[0]).sum())(q[0])
    wanted = dyn.inverse_dynamics_hessian(x[0][0], x[1][0], x[2][0], vector=np.ones(arm.nv))[0]
    assert relative(curved.numpy(), wanted) < 1e-9


@on_host
def test_memory_of_tensors_on_a_gpu_is_shared(arm, host, monkeypatch):
    """Kernels read the tensors' own memory, of whatever strides, and write into that of the results."""
    rt, (q, qd, qdd), seen = wrap(arm), on("cpu", *states(arm, (8,))), []
    far = rt._on(q.device)
    plain = far._inverse_dynamics.torques.dyn
    query = plain.inverse_dynamics
    monkeypatch.setitem(plain.__dict__, "inverse_dynamics", lambda *x, out: seen.append((x, out)) or query(*x, out=out))
    wide = torch.empty(8, 6, dtype=torch.float64)
    wide[:, ::2] = qd
    result = rt.inverse_dynamics(q, wide[:, ::2], qdd)
    ((given, out),) = seen
    assert [each.ctypes.data for each in given] == [q.data_ptr(), wide.data_ptr(), qdd.data_ptr()]
    assert given[1].strides == (48, 16) and out.ctypes.data == result.data_ptr()
    assert far is rt._on(q.device) and far.dyn.engine.name == "gpu"


@on_host
def test_numbers_that_pytorch_keeps_in_mind_reach_kernels(arm, host):
    rt, dyn, (q, qd, qdd) = wrap(arm), rd.Dynamics(arm), states(arm)
    negative = torch.complex(torch.zeros(3, dtype=torch.float64), torch.tensor(qd)).conj().imag
    assert negative.is_neg()
    got = rt.inverse_dynamics(torch.tensor(q), negative, torch._efficientzerotensor((3,), dtype=torch.float64))
    assert relative(got.numpy(), dyn.inverse_dynamics(q, -qd, 0.0 * qdd)) < 1e-11


@on_host
def test_options_go_to_the_engine_on_a_gpu(arm, host):
    rt = wrap(rd.Dynamics(arm, gpu=GpuOptions("thread"), joint_forces="damping"))
    q, qd, qdd = states(arm, (2,))
    got = rt.inverse_dynamics(*on("cpu", q, qd, qdd))
    assert relative(got.numpy(), rd.Dynamics(arm, joint_forces="damping").inverse_dynamics(q, qd, qdd)) < 1e-11
    assert rt._on(got.device)._inverse_dynamics.torques.dyn.engine.options == GpuOptions("thread")


@on_host
def test_wrong_tensors_beside_those_on_a_gpu_are_named(arm, host, monkeypatch):
    v = torch.zeros(3, dtype=torch.float64)
    with pytest.raises(rd.ArgumentError, match=r"^dyn: got a Dynamics of engine 'cpu' for tensors on 'cpu'; wanted"):
        wrap(rd.Dynamics(arm, engine="cpu")).mass_matrix(v)
    rt = wrap(arm)
    with pytest.raises(rd.ArgumentError, match=r"^qd: got a tensor on device 'meta' .* all of a call on one device"):
        rt.bias_force(v, v.to("meta"))
    with pytest.raises(rd.ArgumentError, match=r"^q: got array"):
        rt.bias_force(np.zeros(3), v)
    with pytest.raises(rd.ArgumentError, match=r"^qd: got shape \(2,\)"):
        rt.bias_force(v, v[:2])
    with pytest.raises(rd.NumericalError, match=r"^qd: NaN or infinite"):
        wrap(rd.Dynamics(arm, check=True)).bias_force(v, v + torch.nan)
    assert torch.isnan(rt.bias_force(v, v + torch.nan)).any()  # nobody waits to look


# On a GPU.


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["arm7", "quadruped", "gripper"])
def test_gpu_tensors_are_answered(name, dtype):
    options = {"base": "floating"} if name == "quadruped" else {}
    require_answers(rd.load_urdf(own(name), **options), _cuda(), dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("name", list(questions(TorchDynamics, *[None] * 4)))
def test_gpu_tensors_have_derivatives(name, ball):
    require_derivatives(ball, _cuda(), (name,))


@on_host
def test_contacts_of_tensors_on_a_gpu(host):
    model, x = touching()
    x = on("cpu", *x, requires_grad=True)
    query = wrap(model).contact_forward_dynamics
    launches = len(host.launches)
    qdd, f = query(*x)
    assert [name for name, _ in host.launches[launches:]] == ["first", "repeated"]
    assert 0 < (f[:, 0, 0] > 0.0).sum() < len(f)
    slopes = torch.autograd.grad(qdd.square().sum(), x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bridge, "_is_gpu", lambda device: False)
        wanted = query(*x)
        beside = torch.autograd.grad(wanted[0].square().sum(), x)
    for one, other in zip(numbers((qdd, f, *slopes)), numbers((*wanted, *beside)), strict=True):
        assert relative(one, other) < SAME["float64"]


@pytest.mark.gpu
def test_gpu_tensors_of_another_stream(arm):
    """A result is there when the stream that asked for it is."""
    rt, x, stream = wrap(arm), on(_cuda(), *states(arm, (1 << 16,))), torch.cuda.Stream()
    wanted = rt.forward_dynamics(*x)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        moved = [each + 0.0 for each in x]
        got = rt.forward_dynamics(*moved)
    stream.synchronize()
    assert torch.equal(got, wanted)


@pytest.mark.gpu
def test_gpu_tensors_do_not_mix_with_others(arm):
    v = torch.zeros(3, dtype=torch.float64)
    there = v.to(_cuda())
    for q, qd in ((v, there), (there, v)):
        with pytest.raises(rd.ArgumentError, match=r"^qd: got a tensor on device .* all of a call on one device"):
            wrap(arm).bias_force(q, qd)


def _cuda():
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return torch.device("cuda", torch.cuda.current_device())
