"""Targets and limits in rollouts: what drives joints, and what bounds them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from conftest import random_states
from driven import EVERY_INTEGRATOR, every_kind, far
from robots import own

import robodyn as rd


@pytest.fixture(scope="module")
def awkward() -> rd.Model:
    """Every joint kind, with bounds of every kind."""
    return bounded(every_kind(), 3)


@pytest.fixture(scope="module")
def mimicking() -> rd.Model:
    return bounded(rd.random_tree(10, seed=4, joints=("revolute", "prismatic"), mimic=0.3), 5)


def bounded(model: rd.Model, seed: int) -> rd.Model:
    rng = np.random.default_rng(seed)
    effort, velocity = rng.uniform(1.0, 3.0, (2, model.nv_tree))
    effort[0] = velocity[-1] = np.inf
    return dataclasses.replace(
        model,
        tree_effort=effort,
        tree_velocity=velocity,
        tree_lower=np.full(model.nq_tree, -1.5),
        tree_upper=np.full(model.nq_tree, 1.5),
        tree_damping=rng.uniform(0.0, 1.0, model.nv_tree),
    )


def gains(model: rd.Model, batch: int, seed: int = 7) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    kp, kd = rng.uniform(1.0, 50.0, (batch, model.nv)), rng.uniform(0.1, 5.0, model.nv)
    return {"kp": kp, "kd": kd, "q_des": model.random_configuration(rng, (batch,))}


@pytest.mark.parametrize("robot", ["awkward", "mimicking"])
def test_a_step_is_driven_from_where_it_leads(robot, request, make_dynamics, engine_dtype):
    """(H + dt (D + Kd) + dt^2 Kp) qdd = tau - bias - D qd + kp (q_des (-) q - dt qd) - kd qd, by dense matrices; where
    that force is beyond the limit of effort it is constant."""
    model, dt = request.getfixturevalue(robot), 5e-3
    q, qd, tau = random_states(model, (6,))
    given = gains(model, 6)
    dyn = rd.Dynamics(model, engine="reference")
    H, bias = dyn.mass_matrix(q), dyn.bias_force(q, qd)
    asked = tau + given["kp"] * (model.difference(q, given["q_des"]) - dt * qd) - given["kd"] * qd
    for limits in ((), "effort"):
        force, slope = asked, dt * given["kd"] + dt**2 * given["kp"]
        if limits:
            over = np.abs(asked) > model.effort_limit
            assert over.any() and not over.all()
            force, slope = np.clip(asked, -model.effort_limit, model.effort_limit), np.where(over, 0.0, slope)
        full = H + (slope + dt * model.damping)[..., None] * np.eye(model.nv)
        wanted = qd + dt * np.linalg.solve(full, (force - bias - model.damping * qd)[..., None])[..., 0]
        run = make_dynamics(model, joint_forces="damping").rollout(q, qd, tau, dt, 1, **given, limits=limits)
        assert far(run.qd[1], wanted) < (1e-10 if engine_dtype[1] == "float64" else 5e-3), limits


@pytest.mark.parametrize("integrator", EVERY_INTEGRATOR)
@pytest.mark.some(of=2, when="matrix")
def test_targets_and_limits_are_the_same_in_every_code(integrator, awkward, mimicking):
    """One program, rolled code, arrays."""
    for model in (awkward, mimicking):
        q, qd, tau = random_states(model, (3,))
        q = model.integrate(model.neutral(), 0.2 * qd)
        limits = ("effort", "velocity", "position") if integrator == "semi_implicit_euler" else ("effort",)
        options = {"integrator": integrator, "limits": limits, **gains(model, 3)}
        wanted = rd.Dynamics(model, engine="reference").rollout(q, qd, tau, 1e-3, 6, **options)
        for choice in ({}, {"code": "rolled"}, {"engine": "scan"}):
            found = rd.Dynamics(model, **choice).rollout(q, qd, tau, 1e-3, 6, **options)
            assert far(found.qd[-1], wanted.qd[-1]) < 1e-9, choice


@pytest.mark.parametrize("stiffness", [1e2, 1e6, 1e12])
def test_no_stiffness_is_too_much(stiffness):
    """A joint that is driven gets there, however stiff the drive and long the step."""
    model = rd.load_urdf(own("arm7"))
    q, _, _ = random_states(model, (8,))
    goal = 0.5 * q
    kp, kd = np.full(7, stiffness), np.full(7, 2.0 * np.sqrt(stiffness))
    run = rd.Dynamics(model).rollout(q, 0.0 * q, None, 1e-2, 600, kp=kp, kd=kd, q_des=goal, gravity=np.zeros(3))
    assert (run.diverged == -1).all()
    assert np.abs(run.q[-1] - goal).max() < 1e-2 and np.abs(run.qd[-1]).max() < 1e-2


@pytest.mark.parametrize("angle", [0.1, 3.0, 3.2, 6.2, 9.0, 25.0, -0.1, -3.0, -3.2, -6.2, -9.0, -25.0])
def test_targets_go_the_short_way_round(angle, make_dynamics, engine_dtype):
    """Of planar joints up to four turns away in single precision; attitudes at exactly half a turn stay finite."""
    planar = rd.random_tree(1, seed=0, joints=("planar",))
    ball = rd.random_tree(1, seed=0, joints=("spherical",))
    given = {"kp": np.full(3, 1e8), "gravity": np.zeros(3)}
    allowed = 1e-6 if engine_dtype[1] == "float64" else 1e-3
    goal = np.array([0.0, 0.0, angle])
    run = make_dynamics(planar).rollout(np.zeros(3), np.zeros(3), None, 1.0, 1, q_des=goal, **given)
    short = planar.difference(np.zeros(3), goal)
    assert abs(short[2]) <= np.pi and np.abs(run.qd[-1] - short).max() < allowed
    run = make_dynamics(ball).rollout(ball.neutral(), np.zeros(3), None, 1.0, 1, q_des=[0.0, 0.6, 0.8, 0.0], **given)
    assert np.abs(run.qd[-1] - ball.difference(ball.neutral(), [0.0, 0.6, 0.8, 0.0])).max() < allowed


def test_targets_may_change_with_time():
    model = rd.load_urdf(own("arm7"))
    q, qd, _ = random_states(model, (2,))
    goals = q + np.linspace(0.0, 0.1, 40)[:, None, None]
    kp, kd = np.full(7, 1e5), np.full(7, 1e3)
    dyn = rd.Dynamics(model)
    run = dyn.rollout(q, 0.0 * qd, None, 1e-2, 40, kp=kp, kd=kd, q_des=goals)
    assert np.abs(run.q[-1] - goals[-1]).max() < 0.05
    k = 7
    one = dyn.rollout(run.q[k], run.qd[k], None, 1e-2, 1, kp=kp, kd=kd, q_des=goals[k])
    assert np.abs(one.qd[1] - run.qd[k + 1]).max() < 1e-12


@pytest.mark.some(of=2, rest="matrix")
def test_limits_of_effort_velocity_and_position_hold(make_dynamics, engine_dtype):
    """Pushed with all that there is, joints go no faster than they may, and stop where they must."""
    model = rd.load_urdf(own("arm7"))
    q, _, _ = random_states(model, (5,))
    q = np.clip(q, model.lower + 0.05, model.upper - 0.05)
    push = np.where(np.arange(7) % 2, 1e3, -1e3) * np.ones((5, 1))
    dyn = make_dynamics(model)
    # The reference engine takes 20 ms for a step; what is left to see then is less.
    long = engine_dtype[0] != "reference"
    run = dyn.rollout(q, 0.0 * q, push, 2e-3, 1000 if long else 60, limits=("position", "velocity"))
    slack = 1e-12 if engine_dtype[1] == "float64" else 1e-4
    assert (run.diverged == -1).all()
    assert (np.abs(run.qd) <= model.velocity_limit * (1.0 + slack)).all()
    assert np.maximum(run.q - model.upper, model.lower - run.q).max() < slack
    assert (np.abs(run.qd) > 0.999 * model.velocity_limit).any()
    if not long:
        return
    stopped = np.minimum(np.abs(run.q[-1] - model.upper), np.abs(run.q[-1] - model.lower)) < 1e-3
    assert stopped.mean() > 0.5 and np.abs(run.qd[-1][stopped]).max() < 0.5
    free = dyn.rollout(q, 0.0 * q, push, 2e-3, 3)
    assert (np.abs(free.qd[-1]) > model.velocity_limit).any()
    weak = dyn.rollout(q, 0.0 * q, push, 2e-3, 5, limits="effort")
    same = dyn.rollout(q, 0.0 * q, np.clip(push, -model.effort_limit, model.effort_limit), 2e-3, 5)
    assert far(weak.qd[-1], same.qd[-1]) < (1e-12 if engine_dtype[1] == "float64" else 1e-3)


def test_joints_beyond_their_limits_come_back():
    model = rd.load_urdf(own("arm7"))
    q = np.where(np.arange(7) % 2, model.upper + 0.3, model.lower - 0.3)
    run = rd.Dynamics(model).rollout(q, np.zeros(7), None, 1e-3, 200, limits="position")
    beyond = np.maximum(run.q - model.upper, model.lower - run.q).max(-1)
    assert (np.diff(beyond[:10]) < 0.0).all() and beyond[1] == pytest.approx(0.3 * 0.8, rel=1e-6)
    assert beyond[-1] < 1e-4


def test_limits_that_are_not_met_change_nothing():
    """To a few roundings."""
    model = rd.load_urdf(own("arm7"))
    q, qd, tau = random_states(model, (4,))
    q = np.clip(q, model.lower + 0.5, model.upper - 0.5)
    dyn = rd.Dynamics(model)
    plain = dyn.rollout(q, 0.1 * qd, 0.1 * tau, 1e-5, 20)
    assert (np.abs(plain.qd) < model.velocity_limit).all()
    kept = dyn.rollout(q, 0.1 * qd, 0.1 * tau, 1e-5, 20, limits=("effort", "velocity", "position"))
    assert far(kept.qd[-1], plain.qd[-1]) < 1e-12 and far(kept.q[-1], plain.q[-1]) < 1e-13


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kp": np.ones(7)}, "q_des: got None; wanted both kp and q_des, or neither"),
        ({"q_des": np.ones(7)}, "kp: got None; wanted both kp and q_des, or neither"),
        ({"kp": np.ones(7), "q_des": np.ones(6)}, r"q_des: got shape \(6,\)"),
        ({"kd": -np.ones(7)}, "kd: got -1.0; wanted numbers of at least 0"),
        ({"limits": "force"}, "limits: got 'force'; allowed: 'effort', 'velocity', 'position'"),
        ({"limits": 3}, "limits: got 3; allowed: 'effort', 'velocity', 'position'"),
        (
            {"limits": "position", "integrator": "rk4"},
            "limits: got 'position' for integrator 'rk4'; wanted 'effort' alone",
        ),
    ],
)
def test_bad_targets_and_limits_are_named(given, message):
    model = rd.load_urdf(own("arm7"))
    q, qd, _ = random_states(model, (2,))
    with pytest.raises(rd.ArgumentError, match=message):
        rd.Dynamics(model).rollout(q, qd, None, 1e-3, 5, **given)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kp", [1e6, 1e12, 1e18, 1e30])
def test_stiff_targets_keep_to_limits_of_effort(kp, dtype):
    model = rd.load_urdf(own("arm6"))
    dyn, zero = rd.Dynamics(model, dtype=dtype), np.zeros(6)
    q = model.random_configuration(0)
    _, after = dyn.step(q, zero, None, 1e-3, kp=np.full(6, kp), q_des=q + 1.0, limits="effort")
    used = dyn.inverse_dynamics(q, zero, after / 1e-3) / model.effort_limit
    assert np.abs(used - 1.0).max() < (1e-9 if dtype == "float64" else 1e-4)


def test_armature_that_is_given_makes_regular_and_singular():
    model = rd.load_urdf(own("massless_tip"))
    dyn, zero = rd.Dynamics(model), np.zeros(model.nv)
    with pytest.raises(rd.SingularError):
        dyn.step(zero, zero)
    for given in ({"armature": zero + 1.0}, {"damping": zero + 1.0}, {"kd": zero + 1.0}):
        assert np.isfinite(dyn.step(zero, zero, **given)[1]).all()
    regular = rd.Dynamics(dataclasses.replace(model, tree_armature=np.ones(model.nv_tree)))
    assert np.isfinite(regular.step(zero, zero)[1]).all()
    with pytest.raises(rd.SingularError):
        regular.step(zero, zero, armature=zero)


def test_a_step_broadcasts_all_that_it_is_given():
    model = rd.load_urdf(own("arm6"))
    dyn, zero = rd.Dynamics(model), np.zeros(6)
    tau = np.random.default_rng(0).normal(size=(4, 6))
    q, qd = dyn.step(zero, zero, tau, damping=np.ones((3, 1, 6)))
    assert q.shape == qd.shape == (3, 4, 6)
    assert np.array_equal(qd[2, 1], dyn.step(zero, zero, tau[1], damping=np.ones(6))[1])
    A, B = dyn.step_gradient(zero, zero, tau)
    assert A.shape == (4, 12, 12) and B.shape == (4, 12, 6)
