"""Derivatives of steps: against differences, Pinocchio, dense matrices, and each engine against the others."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import random_states, relative
from driven import EVERY_INTEGRATOR, MATCHED, ROBOTS, every_kind, everything
from robots import own

import robodyn as rd
from robodyn.core.integrators import HOLDS_JOINTS

SMALL = 1e-5


def bounded(model: rd.Model) -> rd.Model:
    """Limits that some joints meet."""
    rng = np.random.default_rng(5)
    return dataclasses.replace(
        model,
        tree_effort=rng.uniform(1.0, 3.0, model.nv_tree),
        tree_velocity=rng.uniform(1.0, 3.0, model.nv_tree),
        tree_lower=np.full(model.nq_tree, -1.5),
        tree_upper=np.full(model.nq_tree, 1.5),
    )


def differences(dyn: rd.Dynamics, q: Any, qd: Any, tau: Any, dt: float, **options: Any) -> tuple[Any, Any]:
    """A and B of one state by central differences, all 3 nv of them as one batch. What has an axis of states is
    repeated for them."""
    model, nv = dyn.model, dyn.model.nv
    moves = SMALL * np.concatenate([np.eye(3 * nv), -np.eye(3 * nv)])
    dq, dqd, dtau = moves[:, :nv], moves[:, nv : 2 * nv], moves[:, 2 * nv :]
    q1, qd1 = dyn.step(model.integrate(q, dq), qd + dqd, tau + dtau, dt, **options)
    q0, _ = dyn.step(q, qd, tau, dt, **options)
    change = np.concatenate([model.difference(q0, q1), qd1], axis=-1)
    found = ((change[: 3 * nv] - change[3 * nv :]) / (2.0 * SMALL)).T
    return found[:, : 2 * nv], found[:, 2 * nv :]


@pytest.mark.filterwarnings("ignore:rollout. .* is unstable:RuntimeWarning")
@pytest.mark.parametrize("integrator", EVERY_INTEGRATOR)
@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize("given", ["nothing", "everything", "limits"])
@pytest.mark.some(of=36, rest="matrix")
def test_they_are_what_differences_say(given, robot, integrator):
    model, dt = ROBOTS[robot](), 3e-3
    q, qd, tau = random_states(model)
    options = {} if given == "nothing" else everything(model, ())
    if given == "limits":
        model = bounded(model)
        options["limits"] = ("effort", "velocity", "position") if integrator in HOLDS_JOINTS else "effort"
    reference = rd.Dynamics(model, engine="reference")
    wanted = differences(reference, q, qd, tau, dt, integrator=integrator, **options)
    for engine in ("reference", "cpu"):
        dyn = rd.Dynamics(model, engine=engine)
        for got, each in zip(dyn.step_gradient(q, qd, tau, dt, integrator=integrator, **options), wanted, strict=True):
            assert relative(got, each) < 1e-7


def test_a_quadrupeds_are_pinocchios():
    """Of a semi-implicit step, by computeABADerivatives and dIntegrate."""
    pin = pytest.importorskip("pinocchio")
    from robodyn.testing.pinocchio_models import pinocchio_model

    model, dt = rd.load_urdf(own("quadruped"), base="floating"), 2e-3
    theirs = pinocchio_model(model)
    data, nv = theirs.createData(), model.nv
    q, qd, tau = random_states(model)
    by_q, by_qd, by_tau = (x.copy() for x in pin.computeABADerivatives(theirs, data, q, qd, tau)[:3])
    v = qd + dt * data.ddq
    along = pin.dIntegrate(theirs, q, dt * v, pin.ARG1) * dt
    F = np.hstack([dt * by_q, np.eye(nv) + dt * by_qd])
    top = along @ F
    top[:, :nv] += pin.dIntegrate(theirs, q, dt * v, pin.ARG0)
    A, B = rd.Dynamics(model).step_gradient(q, qd, tau, dt)
    assert relative(A, np.vstack([top, F])) < 1e-10
    assert relative(B, np.vstack([along @ (dt * by_tau), dt * by_tau])) < 1e-10


@pytest.mark.filterwarnings("ignore:rollout. .* is unstable:RuntimeWarning")
@pytest.mark.parametrize("robot, integrator", MATCHED)
@pytest.mark.some(of=24, rest="matrix")
def test_every_engine_and_dtype(robot, integrator, make_dynamics, tolerance):
    model = bounded(ROBOTS[robot]())
    q, qd, tau = random_states(model, (5,))
    for options in ({}, {"limits": "effort"}, everything(model, (5,))):
        wanted = rd.Dynamics(model, engine="reference").step_gradient(q, qd, tau, integrator=integrator, **options)
        got = make_dynamics(model).step_gradient(q, qd, tau, integrator=integrator, **options)
        for mine, each in zip(got, wanted, strict=True):
            assert mine.dtype == make_dynamics(model).dtype
            assert relative(mine, each) < 10 * tolerance


@pytest.mark.parametrize("engine, options", [("cpu", {"code": "rolled"}), ("scan", {}), ("cpu", {"threads": 2})])
@pytest.mark.some(of=3, when="matrix")
def test_other_code_and_engines(engine, options):
    model = rd.random_tree(12, seed=2, joints=("floating", "revolute", "spherical"))
    q, qd, tau = random_states(model, (40,))
    for given in ({}, everything(model, (40,))):
        wanted = rd.Dynamics(model, engine="reference").step_gradient(q, qd, tau, **given)
        got = rd.Dynamics(model, engine=engine, **options).step_gradient(q, qd, tau, **given)
        assert all(relative(mine, each) < 1e-10 for mine, each in zip(got, wanted, strict=True))


@pytest.mark.parametrize("n", [1, pytest.param(40, marks=pytest.mark.matrix)])
def test_robots_of_any_size(n):
    """Programs and arrays; a chain of 40 bodies is too large for one program."""
    model = rd.random_tree(n, seed=1, shape="chain")
    q, qd, tau = random_states(model)
    A, B = rd.Dynamics(model, engine="cpu").step_gradient(q, qd, tau, 1e-3, integrator="midpoint")
    wanted = differences(rd.Dynamics(model, engine="cpu"), q, qd, tau, 1e-3, integrator="midpoint")
    assert relative(A, wanted[0]) < 1e-6 and relative(B, wanted[1]) < 1e-6


def test_nothing_moves_and_no_states():
    nothing = rd.Dynamics(rd.random_tree(0, seed=0))
    A, B = nothing.step_gradient(np.zeros(0), np.zeros(0))
    assert A.shape == B.shape == (0, 0)
    model = every_kind()
    A, B = rd.Dynamics(model).step_gradient(np.zeros((0, 2, model.nq)), np.zeros((0, 2, model.nv)))
    assert A.shape == (0, 2, 2 * model.nv, 2 * model.nv) and B.shape == (0, 2, 2 * model.nv, model.nv)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_shapes_and_arrays_for_results(shape):
    model = every_kind()
    nv = model.nv
    dyn = rd.Dynamics(model, engine="cpu")
    q, qd, tau = random_states(model, shape)
    A, B = dyn.step_gradient(q, qd, tau)
    assert A.shape == (*shape, 2 * nv, 2 * nv) and B.shape == (*shape, 2 * nv, nv)
    out = tuple(np.full(each.shape, np.nan) for each in (A, B))
    got = dyn.step_gradient(q, qd, tau, out=out)
    assert got[0] is out[0] and got[1] is out[1]
    assert np.array_equal(A, out[0]) and np.array_equal(B, out[1])
    for at in np.ndindex(shape):
        one = dyn.step_gradient(q[at], qd[at], tau[at])
        assert relative(A[at], one[0]) < 1e-12 and relative(B[at], one[1]) < 1e-12
    after = tuple(np.full((*shape, n), np.nan) for n in (model.nq, nv))
    assert dyn.step(q, qd, tau, out=after)[0] is after[0]
    for got, wanted in zip(after, dyn.step(q, qd, tau), strict=True):
        assert np.array_equal(got, wanted)


def test_results_may_lie_where_arguments_do():
    model = rd.load_urdf(own("arm6"))
    dyn, n = rd.Dynamics(model, engine="cpu"), 50
    q, qd, tau = random_states(model, (n,))
    wanted = dyn.step_gradient(q, qd, tau)
    memory = np.empty((n, 12, 12))
    memory.ravel()[: 6 * n] = q.ravel()
    A, _ = dyn.step_gradient(memory.ravel()[: 6 * n].reshape(n, 6), qd, tau, out=(memory, np.empty((n, 12, 6))))
    assert np.array_equal(A, wanted[0])
    state = [q.copy(), qd.copy()]
    dyn.step(*state, tau, out=tuple(state))
    for got, each in zip(state, dyn.step(q, qd, tau), strict=True):
        assert np.array_equal(got, each)


def test_at_a_limit_and_at_rest_nothing_is_nan():
    """Where all kinks are at once: joints at rest on their bounds, with friction."""
    model = dataclasses.replace(rd.load_urdf(own("arm6")), tree_lower=np.zeros(6), tree_upper=np.ones(6))
    for engine in ("reference", "cpu"):
        for dtype in ("float64", "float32"):
            dyn = rd.Dynamics(model, engine=engine, dtype=dtype)
            found = dyn.step_gradient(
                np.zeros(6),
                np.zeros(6),
                friction=np.ones(6),
                kp=np.ones(6),
                q_des=np.zeros(6),
                limits=("position", "effort"),
            )
            assert all(np.isfinite(each).all() for each in found)


def test_bad_arguments_are_named():
    dyn = rd.Dynamics(rd.load_urdf(own("arm6")))
    q = np.zeros(6)
    with pytest.raises(rd.ArgumentError, match="integrator: got 'rk5'"):
        dyn.step_gradient(q, q, integrator="rk5")
    with pytest.raises(rd.ArgumentError, match="dt: got 0"):
        dyn.step_gradient(q, q, dt=0)
    with pytest.raises(rd.ArgumentError, match="tau: got shape"):
        dyn.step_gradient(q, q, np.zeros((2, 5)))
    with pytest.raises(rd.ArgumentError, match="out: wanted a tuple of 2 arrays: A, B"):
        dyn.step_gradient(q, q, out=np.zeros((12, 12)))
    with pytest.raises(rd.ArgumentError, match=r"out \(B\)"):
        dyn.step_gradient(q, q, out=(np.zeros((12, 12)), np.zeros((12, 12))))
    memory = np.zeros((12, 18))
    with pytest.raises(rd.ArgumentError, match=r"out \(A\): got a strided array"):
        dyn.step_gradient(q, q, out=(memory[:, :12], memory[:, 12:]))
    with pytest.raises(rd.NumericalError, match="qd"):
        dyn.step_gradient(q, np.full(6, np.nan))
    singular = dataclasses.replace(dyn.model, inertia=np.zeros_like(dyn.model.inertia), tree_armature=np.zeros(6))
    with pytest.raises(rd.SingularError):
        rd.Dynamics(singular).step_gradient(q, q)


def test_an_explicit_step_that_is_too_long_is_warned_of():
    model = dataclasses.replace(rd.load_urdf(own("arm6")), tree_damping=np.full(6, 1e4))
    dyn = rd.Dynamics(model, joint_forces="damping")
    with pytest.warns(RuntimeWarning, match="'euler' is unstable"):
        dyn.step_gradient(np.zeros(6), np.zeros(6), integrator="euler")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dyn.step_gradient(np.zeros(6), np.zeros(6))
