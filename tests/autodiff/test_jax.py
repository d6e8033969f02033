"""robodyn.jax: answers of Dynamics, derivatives against a plain implementation in JAX, and every transformation."""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import sys
from functools import partial
from inspect import signature

import numpy as np
import pytest
from conftest import TOLERANCE, relative
from ffi_frames import Caller
from robots import ROOT, own

import robodyn as rd
from robodyn.joints import KINDS

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # tests are not alone on a GPU
jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)  # half the time to compile, which is most of the time here
jax.config.update("jax_default_device", jax.devices("cpu")[0])  # also where there is a GPU

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

from robodyn.api.autodiff.calls import QueryCall  # noqa: E402
from robodyn.compile.llvm.jit import OPT, Code, compile_object  # noqa: E402
from robodyn.compile.llvm.target import host_target  # noqa: E402
from robodyn.compile.loops.language import Array, array, variable  # noqa: E402
from robodyn.engines.query_table import QUERIES  # noqa: E402
from robodyn.jax import handler, interface, primitives, wrap  # noqa: E402

pytestmark = pytest.mark.extras

EVERY_KIND = tuple(kind.name for kind in KINDS)
STEP = 1e-6
# Central differences: truncation of STEP^2 and roundings of 1e-16 / STEP.
DIFFERENCES = 1e-6


def states(model, shape=(), seed=0):
    rng = np.random.default_rng(seed)
    return model.random_configuration(rng, shape), *rng.standard_normal((2, *shape, model.nv))


@pytest.fixture(scope="module")
def arm():
    """Revolute and prismatic joints."""
    return rd.random_tree(3, seed=3, joints=("revolute", "prismatic"), armature=True)


@pytest.fixture(scope="module")
def ball():
    """A ball joint under a floating base: quaternions."""
    return rd.random_tree(1, seed=1, joints=("spherical",), base="floating")


@pytest.fixture(scope="module")
def hand():
    """Joints that follow others."""
    return rd.load_urdf(own("gripper"))


# What is compared with: 6 x 6 matrices and plain loops in JAX's own language.


def skew(a):
    return jnp.array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])


def transform(E, r):
    return jnp.block([[E, jnp.zeros((3, 3))], [-E @ skew(r), E]])


def motion_cross(v):
    return jnp.block([[skew(v[:3]), jnp.zeros((3, 3))], [skew(v[3:]), skew(v[:3])]])


def plain_inverse_dynamics(model, q, qd, qdd):
    """RNEA for revolute and prismatic joints."""
    X, S, v, a, f = [], [], [], [], []
    base = jnp.array([0.0, 0.0, 0.0, *(-model.gravity)])
    for i, parent in enumerate(model.parent):
        turns = KINDS[model.joint_kind[i]].name == "revolute"
        c, s = jnp.cos(q[i]), jnp.sin(q[i])
        turned = jnp.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
        joint = transform(turned, jnp.zeros(3)) if turns else transform(jnp.eye(3), jnp.array([0.0, 0.0, q[i]]))
        S.append(jnp.eye(6)[2 if turns else 5])
        X.append(joint @ transform(model.Xtree[i, :9].reshape(3, 3), model.Xtree[i, 9:]))
        vJ = S[i] * qd[i]
        v.append((X[i] @ v[parent] if parent >= 0 else jnp.zeros(6)) + vJ)
        a.append(X[i] @ (a[parent] if parent >= 0 else base) + S[i] * qdd[i] + motion_cross(v[i]) @ vJ)
        m, h, (xx, xy, xz, yy, yz, zz) = model.inertia[i, 0], skew(model.inertia[i, 1:4]), model.inertia[i, 4:]
        rotational = jnp.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        inertia = jnp.block([[rotational, h], [h.T, m * jnp.eye(3)]])
        f.append(inertia @ a[i] - motion_cross(v[i]).T @ inertia @ v[i])
    tau = [0.0] * len(X)
    for i in reversed(range(len(X))):
        tau[i] = S[i] @ f[i] + model.armature[i] * qdd[i]
        if model.parent[i] >= 0:
            f[model.parent[i]] = f[model.parent[i]] + X[i].T @ f[i]
    return jnp.stack(tau)


def test_first_derivatives_are_those_of_a_plain_implementation(arm):
    rj, plain, x = wrap(arm), jax.jit(partial(plain_inverse_dynamics, arm)), states(arm)
    assert relative(rj.inverse_dynamics(*x), plain(*x)) < 1e-12
    wanted = jax.jit(jax.jacfwd(plain, (0, 1, 2)))(*x)
    for mode in (jax.jacfwd, jax.jacrev):
        for got, each in zip(jax.jit(mode(rj.inverse_dynamics, (0, 1, 2)))(*x), wanted, strict=True):
            assert relative(got, each) < 1e-9
    # Forward dynamics by the theorem on implicit functions.
    qdd, H, (by_q, by_qd, _) = x[2], np.asarray(wanted[2]), wanted
    tau = plain(*x)
    assert relative(rj.forward_dynamics(*x[:2], tau), qdd) < 1e-9
    found = jax.jit(jax.jacrev(rj.forward_dynamics, (0, 1, 2)))(*x[:2], tau)
    for got, each in zip(found, (-by_q, -by_qd, np.eye(arm.nv)), strict=True):
        assert relative(H @ got, each) < 1e-9


def test_second_derivatives_are_those_of_a_plain_implementation(arm):
    rj, (q, qd, qdd) = wrap(arm), states(arm)

    def cost(inverse_dynamics, q, qd):
        return jnp.sin(inverse_dynamics(q, qd, qdd)).sum()

    wanted = jax.jit(jax.hessian(partial(cost, partial(plain_inverse_dynamics, arm)), (0, 1)))(q, qd)
    own_cost = partial(cost, rj.inverse_dynamics)
    for modes in ((jax.jacfwd, jax.jacrev), (jax.jacrev, jax.jacrev), (jax.jacfwd, jax.jacfwd)):
        found = jax.jit(modes[0](modes[1](own_cost, (0, 1)), (0, 1)))(q, qd)
        for got, each in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            assert relative(got, each) < 1e-9


def pushed(query):
    """A query with external forces as its last argument, to differentiate by."""
    return lambda *x: query(*x[:-1], f_ext=x[-1])


def questions(functions, model, q, qd, qdd, f_ext):
    """Name -> function of the arguments that it is differentiated by, and these."""
    return {
        "inverse_dynamics": (pushed(functions.inverse_dynamics), (q, qd, qdd, f_ext)),
        "forward_dynamics": (pushed(functions.forward_dynamics), (q, qd, qdd, f_ext)),
        "bias_force": (functions.bias_force, (q, qd)),
        "gravity_force": (functions.gravity_force, (q,)),
        "mass_matrix": (functions.mass_matrix, (q,)),
        "mass_matrix_inverse": (functions.mass_matrix_inverse, (q,)),
        "kinetic_energy": (functions.kinetic_energy, (q, qd)),
        "potential_energy": (functions.potential_energy, (q,)),
        "forward_kinematics": (functions.forward_kinematics, (q,)),
        "center_of_mass": (functions.center_of_mass, (q,)),
    }


def everything(functions, names, *x):
    """Answers to all questions at once, which JAX compiles in one piece."""
    model = functions.model
    return {
        name: function(*parts) for name, (function, parts) in questions(functions, model, *x).items() if name in names
    }


NAMES = tuple(questions(rd.Dynamics, None, *[None] * 4))


@pytest.mark.parametrize(
    ("options", "dtype"),
    [({}, "float64"), ({}, "float32"), ({"code": "rolled"}, "float64"), ({"engine": "reference"}, "float32")],
    ids=["cpu", "float32", "rolled", "callback"],
)
def test_answers_are_those_of_a_dynamics(options, dtype, hand):
    dyn = rd.Dynamics(hand, dtype=dtype, **options)
    ask = jax.jit(partial(everything, wrap(dyn), NAMES))
    for shape in ((), (5,), (0,), (2, 3)):
        x = (*states(hand, shape), np.random.default_rng(1).standard_normal((*shape, hand.n_bodies, 6)))
        wanted = everything(dyn, NAMES, *x)
        for name, got in ask(*x).items():
            assert got.shape == wanted[name].shape and got.dtype == dtype, name
            assert relative(got, wanted[name]) < 10 * TOLERANCE[dtype], name


@pytest.mark.parametrize("robot", ["ball", "hand"])
def test_derivatives_against_differences_of_plain_coordinates(robot, request):
    """Each of the nq numbers of q changed alone, quaternions of any length included, forward and reverse."""
    model = request.getfixturevalue(robot)
    dyn = rd.Dynamics(model)
    q, qd, qdd = states(model, seed=1)
    q[model.quaternion_starts[:, None] + np.arange(4)] *= 1.3
    x = (qd, qdd, np.random.default_rng(2).standard_normal((model.n_bodies, 6)))
    steps = STEP * np.eye(model.nq)
    high, low = (everything(dyn, NAMES, q + sign * steps, *x) for sign in (1, -1))
    modes = (jax.jit(mode(partial(everything, wrap(dyn), NAMES))) for mode in (jax.jacfwd, jax.jacrev))
    forward, reverse = (mode(q, *x) for mode in modes)
    for name in NAMES:
        wanted = np.moveaxis((high[name] - low[name]) / (2 * STEP), 0, -1)
        assert relative(forward[name], wanted) < DIFFERENCES, name
        assert relative(reverse[name], forward[name]) < 1e-9, name


@pytest.mark.parametrize("name", ["inverse_dynamics", "forward_dynamics"])
def test_derivatives_by_the_checker_of_jax(name, arm):
    """Of a batch, with respect to every argument, along a random direction."""
    x = (*states(arm, (2,)), 0.3 * np.random.default_rng(2).standard_normal((2, arm.n_bodies, 6)))
    function, parts = questions(wrap(arm), arm, *x)[name]
    check_grads(jax.jit(function), parts, order=1, modes=("fwd", "rev"), atol=1e-5, rtol=1e-5, eps=1e-6)


def test_second_derivatives_against_differences(ball):
    """Of all questions at once, with respect to coordinates: forward over reverse."""
    rj, (q, qd, qdd) = wrap(ball), states(ball)
    x = (qd, 0.1 * qdd, 0.1 * np.random.default_rng(2).standard_normal((ball.n_bodies, 6)))
    names = ("forward_dynamics", "kinetic_energy", "center_of_mass")

    def costs(q):
        return jnp.stack([jnp.sin(answer).sum() for answer in everything(rj, names, q, *x).values()])

    slope, steps = jax.jit(jax.vmap(jax.jacrev(costs))), STEP * np.eye(ball.nq)
    wanted = np.moveaxis((slope(q + steps) - slope(q - steps)) / (2 * STEP), 0, -1)
    found = jax.jit(jax.jacfwd(jax.jacrev(costs)))(q)
    for got, each in zip(found, wanted, strict=True):
        assert relative(got, each) < DIFFERENCES
        assert relative(got, got.T) < 1e-9


def test_gradients_are_those_of_a_dynamics(arm):
    dyn, x = rd.Dynamics(arm), states(arm)
    rj = wrap(dyn)
    found = jax.jit(jax.jacrev(rj.forward_dynamics, (0, 1, 2)))(*x)
    for got, wanted in zip(found, dyn.forward_dynamics_gradient(*x), strict=True):
        assert relative(got, wanted) < 1e-10
    primal, rate = jax.jit(partial(jax.jvp, rj.inverse_dynamics))(x, x)
    by_q, by_qd = dyn.inverse_dynamics_gradient(*x)
    assert relative(primal, dyn.inverse_dynamics(*x)) < 1e-12
    assert relative(rate, by_q @ x[0] + by_qd @ x[1] + dyn.mass_matrix(x[0]) @ x[2]) < 1e-11


@pytest.mark.parametrize("axes", [(1, None, 0), (None, 0, None)])
def test_vmap_is_a_batch(axes, ball):
    dyn, x = rd.Dynamics(ball), states(ball, (4,))
    rj = wrap(dyn)
    given = [part[0] if axis is None else np.moveaxis(part, 0, axis) for part, axis in zip(x, axes, strict=True)]
    whole = [np.broadcast_to(part[0], part.shape) if axis is None else part for part, axis in zip(x, axes, strict=True)]
    assert relative(jax.jit(jax.vmap(rj.forward_dynamics, axes))(*given), dyn.forward_dynamics(*whole)) < 1e-9
    slope = jax.grad(lambda *x: rj.forward_dynamics(*x).sum(), (0, 1, 2))
    found, wanted = jax.jit(jax.vmap(slope, axes))(*given), jax.jit(slope)(*whole)
    assert all(relative(got, each) < 1e-9 for got, each in zip(found, wanted, strict=True))


def test_vmap_in_vmap(arm):
    dyn, x = rd.Dynamics(arm), states(arm, (4,))
    twice = jax.jit(jax.vmap(jax.vmap(wrap(dyn).inverse_dynamics, (None, 0, 0)), (0, None, None)))(*x)
    assert relative(twice, dyn.inverse_dynamics(x[0][:, None], *x[1:])) < 1e-11


def test_a_batch_with_leading_axes_that_broadcast(arm):
    dyn, (q, qd, qdd) = rd.Dynamics(arm), states(arm, (3, 4))
    rj, parts = wrap(dyn), (q[:, :1], qd[0], qdd[0, 0])
    assert relative(rj.inverse_dynamics(*parts), dyn.inverse_dynamics(*parts)) < 1e-12
    found = jax.jit(jax.grad(lambda *x: (rj.forward_dynamics(*x) ** 2).sum(), (0, 1, 2)))(*parts)
    whole = [np.broadcast_to(part, (3, 4, part.shape[-1])) for part in parts]
    wanted = jax.jit(jax.grad(lambda *x: (rj.forward_dynamics(*x) ** 2).sum(), (0, 1, 2)))(*whole)
    for got, full, part in zip(found, wanted, parts, strict=True):
        axes = tuple(range(full.ndim - part.ndim))
        full = full.sum(axes)
        summed = full.sum(tuple(i for i in range(part.ndim) if part.shape[i] != full.shape[i]), keepdims=True)
        assert got.shape == part.shape and relative(got, summed) < 1e-10


def test_a_batch_that_threads_share(arm):
    dyn = rd.Dynamics(arm, threads=2)
    x = states(arm, (20_000,))
    rj = wrap(dyn)
    assert relative(rj.inverse_dynamics(*x), dyn.inverse_dynamics(*x)) < 1e-12
    found = jax.jit(jax.grad(lambda q: (rj.inverse_dynamics(q, *x[1:]) ** 2).sum()))(x[0])
    tau, (by_q, _) = dyn.inverse_dynamics(*x), dyn.inverse_dynamics_gradient(*x)
    assert relative(found, 2.0 * np.einsum("...ij,...i->...j", by_q, tau)) < 1e-11


def test_a_rollout_in_a_loop(arm):
    """A scan over forward dynamics, differentiated in reverse and by its initial velocity."""
    rj, (q, qd, tau) = wrap(arm), states(arm)

    def end(qd):
        def step(state, _):
            q, qd = state
            qd = qd + 1e-2 * rj.forward_dynamics(q, qd, tau)
            return (q + 1e-2 * qd, qd), None

        (last, _), _ = jax.lax.scan(step, (jnp.asarray(q), qd), None, length=10)
        return (last**2).sum()

    gradient, curved = jax.jit(jax.grad(end))(qd), jax.jit(jax.hessian(end))(qd)
    value = jax.jit(jax.vmap(end))
    steps = STEP * np.eye(arm.nv)
    assert relative(gradient, (value(qd + steps) - value(qd - steps)) / (2 * STEP)) < DIFFERENCES
    slope = jax.jit(jax.vmap(jax.grad(end)))
    assert relative(curved, (slope(qd + steps) - slope(qd - steps)) / (2 * STEP)) < DIFFERENCES


def test_integrating_coordinates_of_a_floating_base(ball):
    """dq/dt of coordinates, in a loop, leads where `model.integrate` leads."""
    rj, (q, qd, _) = wrap(ball), states(ball)
    n = 2000

    def step(q, _):
        half = q + 0.5 / n * rj.coordinate_rate(q, qd)
        return q + 1.0 / n * rj.coordinate_rate(half, qd), None

    last = rj.unit_coordinates(jax.jit(lambda q: jax.lax.scan(step, q, None, length=n)[0])(q))
    # Midpoints: an error of the second order of 1 / n.
    assert np.abs(ball.difference(last, ball.integrate(q, qd))).max() < 1e-5


def test_rows_that_are_not_finite_stay_alone(ball):
    dyn, x = rd.Dynamics(ball), states(ball, (5,))
    rj, wanted = wrap(dyn), dyn.inverse_dynamics(*x)
    x[0][1, ball.quaternion_starts[0] : ball.quaternion_starts[0] + 4] = 0.0
    x[1][2, 0], x[2][3, 0] = np.nan, np.inf
    got = np.asarray(rj.inverse_dynamics(*x))
    assert not np.isfinite(got[1:4]).all(axis=1).any()
    assert relative(got[[0, 4]], wanted[[0, 4]]) < 1e-12
    slope = np.asarray(jax.jit(jax.grad(lambda q: rj.inverse_dynamics(q, *x[1:]).sum()))(x[0]))
    assert np.isfinite(slope[[0, 4]]).all() and not np.isfinite(slope[1]).all()


def test_nothing_that_moves():
    still = rd.build_model(rd.description.RobotDescription("still", (rd.description.Link("a"),), ()))
    rj, nothing = wrap(still), np.empty((2, 0))
    assert rj.inverse_dynamics(nothing, nothing, nothing).shape == (2, 0)
    assert rj.forward_kinematics(nothing).shape == (2, 1, 4, 4)
    assert jax.grad(lambda q: rj.kinetic_energy(q, nothing).sum())(nothing).shape == (2, 0)


# Errors.


def test_wrong_arguments_are_named(arm):
    rj, v = wrap(arm), np.zeros(3)
    with pytest.raises(rd.ArgumentError, match=r"^qd: got shape \(2,\); wanted a real array of shape \(\.\.\., 3\)"):
        rj.inverse_dynamics(v, v[:2], v)
    with pytest.raises(rd.ArgumentError, match=r"^q: got an array of dtype complex128; wanted a real array"):
        rj.mass_matrix(1j * v)
    with pytest.raises(rd.ArgumentError, match=r"^leading axes do not broadcast"):
        rj.bias_force(np.zeros((2, 3)), np.zeros((4, 3)))
    with pytest.raises(rd.ArgumentError, match=r"^dyn: got .*; wanted a robodyn\.Dynamics or Model"):
        wrap("arm")
    assert rj.gravity_force([0, 0, 0]).shape == (3,)  # a list of integers will do


REFUSED = {
    "none": None,
    "text": "x",
    "objects": np.array([None] * 3),
    "dates": np.zeros(3, "datetime64[s]"),
    "generator": (0.0 for _ in range(3)),
    "dict": {"a": 1.0},
    "texts": ["x"] * 3,
    "ragged": [1.0, [2.0]],
    "integers beyond 64 bits": [2**100] * 3,
    "bools": np.zeros(3, bool),
    "masked": np.ma.masked_array(np.zeros(3), mask=[1, 0, 0]),
    "axes": np.zeros((1,) * 33 + (3,)),
}


@pytest.mark.filterwarnings("ignore:Python iterable type:DeprecationWarning")  # of JAX, about generators
@pytest.mark.parametrize("case", REFUSED)
def test_arguments_that_jax_itself_refuses_are_named_too(case, arm):
    rj, q, bad = wrap(arm), np.zeros(3), REFUSED[case]
    got = "33 leading axes; wanted at most 32" if case == "axes" else ".*; wanted a real array of shape "
    for name, call in {
        "q": lambda: rj.inverse_dynamics(bad, q, q),
        "qd": lambda: rj.inverse_dynamics(q, bad, q),
        "qdd": lambda: rj.inverse_dynamics(q, q, qdd=bad),
        "tau": lambda: jax.grad(lambda x: rj.forward_dynamics(x, q, bad).sum())(q),
        "f_ext": lambda: None if bad is None else rj.bias_force(q, q, f_ext=bad),
    }.items():
        if name == "f_ext" and case in ("none", "axes", "bools"):  # None will do, and others are judged by their shape
            continue
        with pytest.raises(rd.ArgumentError, match=f"^{name}: got {got}"):
            call()


def test_calls_that_python_refuses_stay_type_errors(arm):
    q = np.zeros(3)
    for call in (
        lambda: wrap(arm).mass_matrix(),
        lambda: wrap(arm).mass_matrix(q, q),
        lambda: wrap(arm).mass_matrix(a=q),
    ):
        with pytest.raises(TypeError, match="mass_matrix"):
            call()


def test_double_precision_is_refused_where_jax_has_none(arm):
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(rd.ArgumentError, match="jax_enable_x64"):
            wrap(arm).mass_matrix(np.zeros(3))
        single = wrap(rd.Dynamics(arm, dtype="float32"))
        assert single.mass_matrix(np.zeros(3)).dtype == np.float32
        slope = jax.grad(lambda q: single.potential_energy(q))(jnp.zeros(3))
    finally:
        jax.config.update("jax_enable_x64", True)
    assert relative(slope, rd.Dynamics(arm).gravity_force(np.zeros(3))) < 1e-5


def test_third_derivatives_are_refused(arm):
    rj, x = wrap(arm), states(arm)
    third = jax.jacfwd(jax.jacfwd(jax.jacfwd(lambda q: rj.inverse_dynamics(q, *x[1:]))))
    with pytest.raises(rd.UnavailableError, match="those of first and second order are"):
        third(x[0])


def test_a_query_is_pickled_as_a_method(arm):
    q = np.ones(3)
    assert (pickle.loads(pickle.dumps(wrap(arm).gravity_force))(q) == wrap(arm).gravity_force(q)).all()


def test_pickled_by_what_it_was_made_of(arm):
    again, q = pickle.loads(pickle.dumps(wrap(rd.Dynamics(arm, dtype="float32")))), np.zeros(3)
    assert again.dyn.dtype == np.float32 and again.mass_matrix(q).dtype == np.float32


# Machine code inside of what JAX compiles.


def test_queries_run_inside_of_what_jax_compiles(arm):
    x = states(arm, (3,))
    own_code = wrap(arm).inverse_dynamics.lower(*x).as_text()
    assert "custom_call @robodyn_rnea" in own_code and "callback" not in own_code
    plain = wrap(rd.Dynamics(arm, engine="reference")).inverse_dynamics.lower(*x).as_text()
    assert "callback" in plain and "@robodyn" not in plain


@pytest.mark.parametrize(("platform", "engine"), [("cuda", "cpu"), ("rocm", "auto")])
def test_other_devices_call_python(platform, engine, arm, monkeypatch):
    """Lowered for a device that is not there: machine code of the processor must not be asked for."""
    monkeypatch.setattr(primitives.Operation, "run_python", lambda self, *arrays: [jnp.full((3, 3), 12.5)])
    traced = wrap(rd.Dynamics(arm, engine=engine)).inverse_dynamics.trace(*states(arm, (3,)))
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert "12.5" in text.replace("1.250000e+01", "12.5") and "@robodyn" not in text


def test_names_of_machine_code_are_the_same_for_the_same_robot(arm):
    x = states(arm, (3,))
    texts = [wrap(rd.Dynamics(arm)).mass_matrix.lower(x[0]).as_text() for _ in range(2)]
    assert texts[0] == texts[1]
    other = wrap(rd.random_tree(3, seed=4, joints=("revolute", "prismatic"), armature=True))
    assert other.mass_matrix.lower(x[0]).as_text() != texts[0]


def operation(dyn, query):
    """A plain call of a query as an operation of JAX."""
    return primitives.Operation(QueryCall(dyn, QUERIES[query], QUERIES[query].plain))


@pytest.mark.parametrize(
    ("rows", "columns", "dtype"),
    [((5, 5), (3, 3), np.float32), ((5, 5), (3, 4), np.float64), ((2, 5), (3, 3), np.float64)],
)
def test_machine_code_refuses_buffers_that_are_not_the_querys(rows, columns, dtype, arm):
    query = operation(rd.Dynamics(arm), "bias_force")
    target = query._target(False)
    given = [jnp.zeros((n, m), dtype) for n, m in zip(rows, columns, strict=True)]
    call = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct((5, 3), np.float64))
    with pytest.raises(Exception, match="the buffers are not those of the query"):
        jax.block_until_ready(call(*given))
    with pytest.raises(Exception, match="the buffers are not those of the query"):
        jax.block_until_ready(call(jnp.zeros((5, 3))))


def test_memory_that_is_not_there_is_an_error(arm, monkeypatch):
    handlers = handler.Handlers("cpu")
    monkeypatch.setattr(handler, "HANDLERS", handlers)
    monkeypatch.setattr(handler, "target_name", lambda *_: "robodyn_test_of_memory")
    query = operation(rd.Dynamics(arm, code="rolled"), "bias_force")
    target = query._target(False)
    handlers.kept[target]._context.workspace = 2**60
    call = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct((5, 3), np.float64))
    with pytest.raises(Exception, match="there is not enough memory"):
        jax.block_until_ready(call(jnp.zeros((5, 3)), jnp.zeros((5, 3))))
    test_memory_that_is_not_there_is_an_error.kept = handlers  # XLA keeps the address


@pytest.mark.parametrize("workspace", [0, 192])
def test_a_handler_as_python_and_as_machine_code(workspace):
    """On a kernel that is there in name only: what it is told, and what is refused."""
    code = Code(compile_object(handler.handler_text(), host_target(), OPT), host_target())
    word, libc, told = ctypes.c_int64, ctypes.CDLL(None), []

    def run(table, first, last, scratch):
        assert scratch % 64 == 0 and bool(scratch) == (workspace > 0)
        told.append(((word * 8).from_address(table)[:], first, last))

    def share(pool, kernel, table, rows, grain, scratch, size):
        assert (pool, kernel, size) == (ctypes.addressof(state), context.kernel, workspace)
        run(table, -grain, rows, scratch)

    kernel, parallel = (
        ctypes.CFUNCTYPE(None, *[word] * len(signature(each).parameters))(each) for each in (run, share)
    )
    state = handler.State(parallel=ctypes.cast(parallel, ctypes.c_void_p).value)
    context = handler.Context(
        kernel=ctypes.cast(kernel, ctypes.c_void_p).value,
        minor=7,
        dtype=12,
        inputs=2,
        arrays=3,
        columns=(word * 3)(3, 1, 2),
        itemsize=8,
        constants=2,
        constant=(word * 2)(50, 60),
        workspace=workspace,
        threads=3,
        share_rows=6,
        grain=4,
        pool=ctypes.addressof(state),
        malloc=ctypes.cast(libc.malloc, ctypes.c_void_p).value,
        free=ctypes.cast(libc.free, ctypes.c_void_p).value,
        wrong=ctypes.addressof(interface.WRONG),
    )
    interface.fill(code, context)
    variable(Array[handler.Context], "context")[0] = ctypes.addressof(context)

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    def python(frame):
        return int(handler.handler(array(interface.Frame, frame)))

    caller = Caller(0)
    for address in (ctypes.cast(python, ctypes.c_void_p).value, code.address("handler")):
        assert caller.described(address) == (0, 7, 0)
        for rows, repeated in ((5, False), (6, True), (1, False), (0, False)):
            given = np.zeros((rows, 3)), np.zeros((1 if repeated else rows, 1))
            left = np.zeros((rows, 2))
            assert caller.call(address, given, [left]) is None
            if not rows:
                continue
            arrays = zip((*given, left), (24, 8, 16), strict=True)
            entries = [n for each, width in arrays for n in (each.ctypes.data, width if len(each) > 1 else 0)]
            assert told.pop() == ([*entries, 50, 60], -4 if rows >= 6 else 0, rows)
        good = np.zeros((5, 3)), np.zeros((5, 1)), np.zeros((5, 2))
        wrong = {
            "arguments": (good[:1], good[2:]),
            "results": (good[:2], []),
            "rows": ((good[0], good[1][:4]), good[2:]),
            "rows of results": (good[:2], [good[2][:1]]),
            "columns": ((good[0], good[2]), good[2:]),
            "rank": ((good[0], good[1][:, 0]), good[2:]),
            "dtype": ((good[0], good[1].astype(np.float32)), good[2:]),
        }
        for name, call in wrong.items():
            assert caller.call(address, *call) == 0xBAD, name
            assert caller.errors.pop() == (interface.WRONG.value.decode(), 3), name
        assert not told and not caller.errors


def test_an_interface_that_is_not_known_is_done_without(arm, monkeypatch):
    def refused(*_, **__):
        raise ValueError("version 7.1")

    monkeypatch.setattr(jax.ffi, "register_ffi_target", refused)
    query = operation(rd.Dynamics(arm), "coriolis_matrix")
    with pytest.warns(RuntimeWarning, match=r"XLA refuses machine code, Python is called instead: version 7\.1"):
        found = jax.jit(query.run_native)(*states(arm)[:2])
    assert relative(found[0], rd.Dynamics(arm).coriolis_matrix(*states(arm)[:2])) < 1e-12


def test_without_jax_the_extra_is_named():
    code = "import sys; sys.modules['jax'] = None; import robodyn as rd; rd.Dynamics\ntry:\n import robodyn.jax\n"
    code += "except rd.UnavailableError as error:\n print(error)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert 'pip install ".[jax]"' in done.stdout, done.stderr


def test_importing_robodyn_does_not_import_jax():
    code = "import sys, robodyn as rd; rd.Dynamics; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
