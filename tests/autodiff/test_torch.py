"""robodyn.torch: answers of Dynamics, and every kind of derivative that PyTorch has."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import TOLERANCE, relative
from robots import ROOT, own

import robodyn as rd

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from torch.autograd import forward_ad, gradcheck, gradgradcheck  # noqa: E402
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap  # noqa: E402

from robodyn.torch import wrap  # noqa: E402

pytestmark = pytest.mark.extras

# Central differences: truncation of 1e-6^2 and roundings of 1e-16 / 1e-6.
CHECK = {"eps": 1e-6, "atol": 1e-6, "rtol": 1e-5}


def states(model, shape=(), seed=0):
    rng = np.random.default_rng(seed)
    return model.random_configuration(rng, shape), *rng.standard_normal((2, *shape, model.nv))


def tensors(*arrays, requires_grad=False):
    return tuple(torch.tensor(array, requires_grad=requires_grad) for array in arrays)


ROBOTS = {
    "fixed": lambda: rd.load_urdf(own("arm6")),
    "floating": lambda: rd.random_tree(2, seed=1, joints=("revolute", "helical"), base="floating"),
    "spherical": lambda: rd.random_tree(3, seed=2, joints=("spherical", "planar", "prismatic"), armature=True),
    "mimic": lambda: rd.load_urdf(own("gripper")),
}


@pytest.fixture(scope="module", params=list(ROBOTS))
def model(request):
    return ROBOTS[request.param]()


@pytest.fixture(scope="module")
def arm():
    return rd.load_urdf(own("arm6"))


@pytest.mark.parametrize("given", ["leaf", "result", "list", "batched"])
def test_queries_of_arrays_name_what_takes_tensors(arm, given):
    q = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    mass_matrix = rd.Dynamics(arm).mass_matrix
    if given == "batched":
        with pytest.raises(rd.ArgumentError, match=r"^q: .*torch\.func's transformations; robodyn\.torch\.wrap"):
            vmap(lambda each: torch.as_tensor(mass_matrix(each)))(torch.zeros(2, 6))
        return
    with pytest.raises(rd.ArgumentError, match=r"^q: .*robodyn\.torch\.wrap\(dyn\) gives them, and tensor\.detach\(\)"):
        mass_matrix({"leaf": q, "result": 2.0 * q, "list": list(q)}[given])
    assert (mass_matrix(q.detach()) == mass_matrix(np.zeros(6))).all()


@pytest.fixture(scope="module")
def ball():
    return ROBOTS["floating"]()


def pushed(query):
    """A query with external forces as its last argument, to differentiate by."""
    return lambda *x: query(*x[:-1], f_ext=x[-1])


def questions(functions, q, qd, qdd, f_ext):
    """Name -> function and arguments."""
    return {
        "inverse_dynamics": (functions.inverse_dynamics, (q, qd, qdd)),
        "inverse_dynamics f_ext": (pushed(functions.inverse_dynamics), (q, qd, qdd, f_ext)),
        "forward_dynamics": (functions.forward_dynamics, (q, qd, qdd)),
        "forward_dynamics f_ext": (pushed(functions.forward_dynamics), (q, qd, qdd, f_ext)),
        "bias_force": (functions.bias_force, (q, qd)),
        "gravity_force": (functions.gravity_force, (q,)),
        "mass_matrix": (functions.mass_matrix, (q,)),
        "mass_matrix_inverse": (functions.mass_matrix_inverse, (q,)),
        "kinetic_energy": (functions.kinetic_energy, (q, qd)),
        "potential_energy": (functions.potential_energy, (q,)),
        "forward_kinematics": (functions.forward_kinematics, (q,)),
        "center_of_mass": (functions.center_of_mass, (q,)),
    }


NAMES = tuple(questions(rd.Dynamics, *[None] * 4))


@pytest.mark.parametrize(
    ("options", "dtype"),
    [({}, "float64"), ({}, "float32"), ({"code": "rolled"}, "float64"), ({"engine": "reference"}, "float32")],
    ids=["cpu", "float32", "rolled", "reference"],
)
def test_answers_are_those_of_a_dynamics(options, dtype, model):
    dyn = rd.Dynamics(model, dtype=dtype, **options)
    for shape in ((), (5,), (0,), (2, 3)):
        x = (*states(model, shape), np.random.default_rng(1).standard_normal((*shape, model.n_bodies, 6)))
        x = tuple(part.astype(dtype) for part in x)
        mine = questions(wrap(dyn), *tensors(*x))
        for name, (query, arguments) in questions(dyn, *x).items():
            wanted, got = query(*arguments), mine[name][0](*mine[name][1])
            assert tuple(got.shape) == wanted.shape and got.dtype == getattr(torch, dtype), name
            assert relative(got.numpy(), wanted) < 10 * TOLERANCE[dtype], name


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_by_the_checker_of_pytorch(name, model):
    """Of a batch with leading axes that broadcast, in reverse and forward; quaternions that are not of unit length."""
    q, qd, qdd = states(model, (2, 1))
    q[..., model.quaternion_starts[:, None] + np.arange(4)] *= 1.2
    f_ext = np.random.default_rng(2).standard_normal((3, model.n_bodies, 6))
    x = tensors(q, qd[:1], 0.1 * np.broadcast_to(qdd[0, 0], (3, model.nv)), 0.1 * f_ext, requires_grad=True)
    function, arguments = questions(wrap(rd.Dynamics(model)), *x)[name]
    assert gradcheck(function, arguments, check_forward_ad=True, fast_mode=True, **CHECK)
    assert gradgradcheck(function, arguments, check_fwd_over_rev=True, fast_mode=True, **CHECK)


def test_gradients_are_those_of_a_dynamics(arm):
    dyn, x = rd.Dynamics(arm), states(arm)
    rt, given = wrap(dyn), tensors(*x)
    for got, wanted in zip(
        jacrev(rt.forward_dynamics, (0, 1, 2))(*given), dyn.forward_dynamics_gradient(*x), strict=True
    ):
        assert relative(got.numpy(), wanted) < 1e-10
    by_q, by_qd = dyn.inverse_dynamics_gradient(*x)
    for mode in (jacfwd, jacrev):
        found = mode(rt.inverse_dynamics, (0, 1, 2))(*given)
        for got, wanted in zip(found, (by_q, by_qd, dyn.mass_matrix(x[0])), strict=True):
            assert relative(got.numpy(), wanted) < 1e-11


def test_every_way_to_second_derivatives(model):
    x = tensors(*states(model))
    rt, n = wrap(rd.Dynamics(model)), model.nq

    def cost(z):
        return torch.sin(0.1 * rt.forward_dynamics(z[:n], z[n : n + model.nv], z[n + model.nv :])).sum()

    z = torch.cat(x)
    wanted = torch.autograd.functional.hessian(cost, z)
    assert relative(wanted.numpy(), wanted.numpy().T) < 1e-9
    for found in (hessian(cost)(z), jacrev(jacrev(cost))(z), jacrev(jacfwd(cost))(z)):
        assert relative(found.numpy(), wanted.numpy()) < 1e-9
    # One product with the Hessian, which is what iterative solvers take.
    along = torch.randn(z.shape, dtype=z.dtype, generator=torch.Generator().manual_seed(0))
    _, product = jvp(grad(cost), (z,), (along,))
    assert relative(product.numpy(), (wanted @ along).numpy()) < 1e-9


@pytest.mark.parametrize("axes", [(0, 0, 0), (1, None, 0), (None, 0, None)])
def test_vmap_is_a_batch(axes, ball):
    x = tensors(*states(ball, (4,)))
    rt = wrap(rd.Dynamics(ball))
    given = [part[0] if axis is None else part.movedim(0, axis) for part, axis in zip(x, axes, strict=True)]
    whole = [part[0].expand_as(part) if axis is None else part for part, axis in zip(x, axes, strict=True)]
    for function in (rt.inverse_dynamics, rt.forward_dynamics):
        wanted = function(*whole)
        assert relative(vmap(function, axes)(*given).numpy(), wanted.numpy()) < 1e-10
        slope = grad(lambda *x, f=function: f(*x).sum(), (0, 1, 2))
        for got, each in zip(vmap(slope, axes)(*given), slope(*whole), strict=True):
            assert relative(got.numpy(), each.numpy()) < 1e-10
        inside = grad(lambda *x, f=function: vmap(f, axes)(*x).sum(), 2)(*given)
        if axes[2] is not None:
            assert relative(inside.numpy(), slope(*whole)[2].numpy()) < 1e-10


def test_vmap_in_vmap(arm):
    dyn, x = rd.Dynamics(arm), states(arm, (4,))
    twice = vmap(vmap(wrap(dyn).inverse_dynamics, (None, 0, 0)), (0, None, None))(*tensors(*x))
    assert relative(twice.numpy(), dyn.inverse_dynamics(x[0][:, None], *x[1:])) < 1e-11


def test_only_what_is_asked_for_is_differentiated(arm):
    rt, (q, qd, tau) = wrap(rd.Dynamics(arm)), tensors(*states(arm, (3,)))
    qd.requires_grad_()
    rt.forward_dynamics(q, qd, tau).sum().backward()
    assert q.grad is None and tau.grad is None and qd.grad.shape == qd.shape
    with torch.no_grad():
        assert not rt.forward_dynamics(q, qd, tau).requires_grad
    assert not rt.forward_dynamics(q, qd.detach(), tau).requires_grad


def test_inference_mode_leaves_nothing_behind(arm):
    rt, (q, _, _) = wrap(rd.Dynamics(arm)), tensors(*states(arm))
    with torch.inference_mode():
        rt.center_of_mass(q)
    slope = jacrev(rt.center_of_mass)(q)
    assert relative(slope.numpy(), rd.Dynamics(arm).center_of_mass_jacobian(q.numpy())) < 1e-12


def test_an_optimiser_finds_the_load_that_bends_the_arm(arm):
    """Torques that hold the arm still, found by descent through forward dynamics."""
    rt, q = wrap(rd.Dynamics(arm)), torch.zeros(6, dtype=torch.float64) + 0.3
    tau = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([tau], max_iter=50, tolerance_change=1e-14, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        value = rt.forward_dynamics(q, torch.zeros_like(q), tau).square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    assert relative(tau.detach().numpy(), rd.Dynamics(arm).gravity_force(q.numpy())) < 1e-4


def test_coordinates_of_a_floating_base(ball):
    rt, (q, qd, _) = wrap(rd.Dynamics(ball)), states(ball, (3,))
    step = 1e-6
    wanted = (ball.integrate(q, step * qd) - ball.integrate(q, -step * qd)) / (2 * step)
    longer = q.copy()
    longer[:, 3:7] *= 2.0
    assert relative(rt.coordinate_rate(*tensors(longer, qd)).numpy(), wanted) < 1e-8
    assert relative(rt.unit_coordinates(*tensors(longer)).numpy(), q) < 1e-14


def test_memory_is_shared_where_it_can_be(arm, monkeypatch):
    """Contiguous tensors are read in place; others become what NumPy makes of them."""
    dyn, (q, qd, qdd) = rd.Dynamics(arm), tensors(*states(arm, (8,)))
    rt, seen = wrap(dyn), []
    plain = rt._inverse_dynamics.torques.dyn
    query = plain.inverse_dynamics
    monkeypatch.setitem(plain.__dict__, "inverse_dynamics", lambda *x: seen.append(x) or query(*x))
    wide = torch.empty(8, 12, dtype=torch.float64)
    wide[:, ::2] = qd
    rt.inverse_dynamics(q, wide[:, ::2], qdd.flip(0))
    assert seen[0][0].ctypes.data == q.data_ptr()
    assert seen[0][1].ctypes.data == wide.data_ptr() and seen[0][1].strides == (96, 16)


def test_rows_that_are_not_finite_stay_alone(ball):
    dyn, x = rd.Dynamics(ball), states(ball, (4,))
    rt, wanted = wrap(dyn), dyn.inverse_dynamics(*x)
    x[1][1, 0], x[2][2, 0] = np.nan, np.inf
    q, qd, qdd = tensors(*x, requires_grad=True)
    got = rt.inverse_dynamics(q, qd, qdd)
    got.sum().backward()
    assert not np.isfinite(got.detach().numpy()[1:3]).all(axis=1).any()
    assert relative(got.detach().numpy()[[0, 3]], wanted[[0, 3]]) < 1e-12
    assert np.isfinite(q.grad.numpy()[[0, 3]]).all()
    with pytest.raises(rd.NumericalError, match=r"^qd: NaN or infinite"):
        rt.inverse_dynamics(q[0], qd[1], qdd[0])


def test_nothing_that_moves():
    still = rd.build_model(rd.description.RobotDescription("still", (rd.description.Link("a"),), ()))
    rt, nothing = wrap(still), torch.empty((2, 0), dtype=torch.float64, requires_grad=True)
    rt.kinetic_energy(nothing, nothing).sum().backward()
    assert nothing.grad.shape == (2, 0)
    assert rt.forward_kinematics(nothing).shape == (2, 1, 4, 4)


# Errors.


def test_wrong_arguments_are_named(arm):
    rt, v = wrap(arm), torch.zeros(6, dtype=torch.float64)
    with pytest.raises(rd.ArgumentError, match=r"^qd: got shape \(3,\); wanted a real array of shape \(\.\.\., 6\)"):
        rt.inverse_dynamics(v, v[:3], v)
    with pytest.raises(rd.ArgumentError, match=r"^q: got a tensor of dtype torch\.float32; wanted torch\.float64"):
        rt.mass_matrix(v.float())
    with pytest.raises(rd.ArgumentError, match=r"^q: got .*; wanted a torch\.Tensor of dtype torch\.float64"):
        rt.mass_matrix(np.zeros(6))
    with pytest.raises(rd.ArgumentError, match=r"^q: got a tensor on device 'meta'"):
        rt.mass_matrix(v.to("meta"))
    with pytest.raises(rd.ArgumentError, match=r"^q: .* layout torch\.sparse_coo"):
        rt.mass_matrix(v.to_sparse())
    for missing, given in (("q", (None, v, v)), ("qd", (v, None, v)), ("qdd", (v, v, None))):
        with pytest.raises(
            rd.ArgumentError, match=rf"^{missing}: got None; wanted a real array of shape \(\.\.\., 6\)"
        ):
            rt.inverse_dynamics(*given)
    with pytest.raises(rd.ArgumentError, match=r"^q: got 33 leading axes; wanted at most 32"):
        rt.mass_matrix(v.reshape((1,) * 33 + (6,)))
    with pytest.raises(rd.ArgumentError, match=r"^leading axes do not broadcast"):
        rt.bias_force(v.expand(2, 6), v.expand(3, 6))
    with pytest.raises(rd.ArgumentError, match=r"^dyn: got .*; wanted a robodyn\.Dynamics or Model"):
        wrap("arm")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_refused(layout, arm):
    v = torch.zeros(6, dtype=torch.float64)
    nested = torch.nested.nested_tensor([v, v], layout=layout)
    with pytest.raises(rd.ArgumentError, match=r"^qd: got a nested tensor; wanted one whose rows"):
        wrap(arm).bias_force(v, nested)


def test_third_derivatives_are_refused(arm):
    rt, (q, qd, qdd) = wrap(arm), tensors(*states(arm))
    with pytest.raises(rd.UnavailableError, match="those of first and second order are"):
        jacrev(jacrev(jacrev(lambda q: rt.inverse_dynamics(q, qd, qdd).sum())))(q)


def test_forward_mode_in_forward_mode_is_refused(arm):
    """PyTorch would leave out, without a word, how the inner derivative changes."""
    rt, (q, _, _) = wrap(arm), tensors(*states(arm))
    with pytest.raises(rd.UnavailableError, match=r"torch\.func\.hessian"):
        jacfwd(jacfwd(rt.potential_energy))(q)


def test_forward_mode_without_functions_of_pytorch(arm):
    rt, (q, qd, qdd) = wrap(arm), tensors(*states(arm))
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(rt.inverse_dynamics(forward_ad.make_dual(q, qd), qd, qdd)).tangent
    by_q, _ = rd.Dynamics(arm).inverse_dynamics_gradient(q.numpy(), qd.numpy(), qdd.numpy())
    assert relative(found.numpy(), by_q @ qd.numpy()) < 1e-11


def test_without_pytorch_the_extra_is_named():
    code = "import sys; sys.modules['torch'] = None; import robodyn as rd; rd.Dynamics\ntry:\n import robodyn.torch\n"
    code += "except rd.UnavailableError as error:\n print(error)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert 'pip install ".[torch]"' in done.stdout, done.stderr


def test_importing_robodyn_does_not_import_pytorch():
    code = "import sys, robodyn as rd; rd.Dynamics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
