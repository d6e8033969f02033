"""What resists motion in rollouts: damping and friction, implicit where the integrator is; coefficients of each state;
moving bases and other gravity."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import random_states
from driven import EVERY_INTEGRATOR, every_kind, far, turning_armature
from robots import own

import robodyn as rd
from robodyn.core.integrators import IMPLICIT, STABLE, STICTION

BOTH = ("damping", "friction")


@pytest.fixture(scope="module")
def awkward() -> rd.Model:
    """Every joint kind, with damping and friction."""
    model = every_kind()
    return resisting(model, 3)


@pytest.fixture(scope="module")
def mimicking() -> rd.Model:
    return resisting(rd.random_tree(10, seed=4, joints=("revolute", "prismatic"), mimic=0.3), 5)


def resisting(model: rd.Model, seed: int) -> rd.Model:
    rng = np.random.default_rng(seed)
    damping, friction = rng.uniform(0.0, 3.0, (2, model.nv_tree))
    return dataclasses.replace(model, tree_damping=damping, tree_friction=friction)


def accelerated(model: rd.Model, dt: float, q: Any, qd: Any, tau: Any, given: dict[str, Any]) -> Any:
    """(H + dt R) qdd = tau - bias - R qd with R = diag(damping + friction over speed), by dense matrices."""
    dyn = rd.Dynamics(model, engine="reference")
    damping, friction = given.get("damping", model.damping), given.get("friction", model.friction)
    R = damping + friction / np.maximum(np.abs(qd), STICTION)
    H = dyn.mass_matrix(q) + (given.get("armature", model.armature) - model.armature + dt * R)[..., None] * np.eye(
        model.nv
    )
    base = {name: given[name] for name in ("V0", "dV0") if name in given}
    bias = dyn.bias_force(q, qd, **base)
    if "gravity" in given:
        other = dataclasses.replace(model, gravity=np.zeros(3))
        bias = rd.Dynamics(other, engine="reference").bias_force(
            q,
            qd,
            V0=given["V0"],
            dV0=given["dV0"] - np.concatenate((np.zeros_like(given["gravity"]), given["gravity"]), -1),
        )
    return np.linalg.solve(H, (tau - bias - R * qd)[..., None])[..., 0]


@pytest.mark.parametrize("robot", ["awkward", "mimicking"])
def test_a_step_resists_the_velocity_that_it_leads_to(robot, request, make_dynamics, engine_dtype):
    model = request.getfixturevalue(robot)
    q, qd, tau = random_states(model, (4,))
    dt, allowed = 5e-3, 1e-10 if engine_dtype[1] == "float64" else 2e-3
    run = make_dynamics(model, joint_forces=BOTH).rollout(q, qd, tau, dt, 1)
    wanted = qd + dt * accelerated(model, dt, np.asarray(q, float), np.asarray(qd, float), tau, {})
    assert far(run.qd[1], wanted) < allowed
    assert far(run.q[1], model.integrate(q, wanted, dt)) < allowed


@pytest.mark.parametrize("robot", ["awkward", "mimicking"])
@pytest.mark.some(of=3, rest="matrix")
def test_coefficients_may_differ_from_state_to_state(robot, request, make_dynamics, engine_dtype):
    model = request.getfixturevalue(robot)
    q, qd, tau = random_states(model, (4,))
    rng = np.random.default_rng(6)
    print("seed 6")
    given = {
        **{name: rng.uniform(0.1, 2.0, (4, model.nv)) for name in ("armature", "damping", "friction")},
        "gravity": rng.uniform(-9.0, 9.0, (4, 3)),
        "V0": rng.uniform(-1.0, 1.0, (4, 6)),
        "dV0": rng.uniform(-1.0, 1.0, (4, 6)),
    }
    dt, allowed = 5e-3, 1e-10 if engine_dtype[1] == "float64" else 2e-3
    run = make_dynamics(model).rollout(q, qd, tau, dt, 1, **given)
    wanted = qd + dt * accelerated(model, dt, np.asarray(q, float), np.asarray(qd, float), tau, given)
    assert far(run.qd[1], wanted) < allowed
    for name in ("armature", "damping", "friction", "gravity"):
        alone = make_dynamics(model).rollout(q, qd, tau, dt, 1, **{name: given[name]})
        assert far(alone.qd[1], run.qd[1]) > 1e-4, f"{name} is one of several"


@pytest.mark.parametrize("integrator", EVERY_INTEGRATOR)
@pytest.mark.some(of=4, when="matrix")
def test_given_coefficients_are_those_of_a_model_that_has_them(integrator, awkward):
    """By every integrator; in one program, in rolled code, and over arrays."""
    q, qd, tau = random_states(awkward, (3,))
    plain = every_kind()
    given = {"damping": awkward.damping, "friction": awkward.friction}
    for options in ({}, {"code": "rolled"}, {"engine": "reference"}, {"engine": "scan"}):
        wanted = rd.Dynamics(awkward, joint_forces=BOTH, **options).rollout(q, qd, tau, 1e-4, 5, integrator=integrator)
        found = rd.Dynamics(plain, **options).rollout(q, qd, tau, 1e-4, 5, integrator=integrator, **given)
        assert far(found.qd[-1], wanted.qd[-1]) < 1e-10, options
    undamped = rd.Dynamics(plain).rollout(q, qd, tau, 1e-4, 5, integrator=integrator)
    assert far(undamped.qd[-1], wanted.qd[-1]) > 1e-4


def test_bases_may_move_otherwise_in_every_step(awkward):
    q, qd, tau = random_states(awkward, (2,))
    rng = np.random.default_rng(0)
    V0, dV0 = rng.normal(size=(2, 3, 2, 6))
    dyn = rd.Dynamics(awkward)
    run = dyn.rollout(q, qd, tau, 1e-3, 3, V0=V0, dV0=dV0)
    for k in range(3):
        qdd = dyn.forward_dynamics(run.q[k], run.qd[k], tau, V0=V0[k], dV0=dV0[k])
        assert far(run.qd[k + 1], run.qd[k] + 1e-3 * qdd) < 1e-12


def test_whatever_the_step_nothing_overshoots():
    """A joint without a load comes to rest monotonically, one that is pushed less than friction holds stays."""
    model = rd.load_urdf(own("arm7"))
    still = {"gravity": np.zeros(3)}
    qd = np.random.default_rng(0).uniform(-1.0, 1.0, (20, model.nv))
    q = model.random_configuration(np.random.default_rng(1), (20,))
    for dt in (1e-3, 1e-2, 1.0):
        run = rd.Dynamics(model).rollout(q, qd, None, dt, 50, damping=np.full(model.nv, 1e6), **still)
        sizes = np.abs(run.qd).max(-1)
        assert (sizes[1:] <= sizes[:-1]).all() and sizes[1].max() < 1e-2
    held = rd.Dynamics(model).rollout(q, 0.0 * qd, 1.0 + 0.0 * qd, 5e-3, 200, friction=np.full(model.nv, 2.0), **still)
    assert np.abs(held.qd).max() <= STICTION
    moved = rd.Dynamics(model).rollout(q, 0.0 * qd, 3.0 + 0.0 * qd, 5e-3, 20, friction=np.full(model.nv, 2.0), **still)
    assert np.abs(moved.qd[-1]).max() > 10 * STICTION


def test_stopping_takes_the_time_that_friction_needs():
    """One joint of inertia J stops after J qd / f seconds, having moved J qd^2 / 2 f."""
    model = rd.load_urdf(own("double_pendulum"))
    locked = {"armature": np.array([2.0, 1e9]), "friction": np.array([4.0, 0.0]), "gravity": np.zeros(3)}
    J = float(rd.Dynamics(model).mass_matrix(np.zeros(2))[0, 0]) + 2.0
    run = rd.Dynamics(model).rollout(np.zeros(2), np.array([1.0, 0.0]), None, 1e-4, 20_000, **locked)
    stopped = run.t[np.flatnonzero(np.abs(run.qd[:, 0]) > 2 * STICTION)[-1]]
    assert stopped == pytest.approx(J / 4.0, rel=0.01)
    assert run.q[-1, 0] == pytest.approx(J / 8.0, rel=0.01)


@pytest.mark.parametrize(
    ("integrator", "order"), [("semi_implicit_euler", 1), ("midpoint", 2), ("rk4", 4), ("mujoco", 1)]
)
def test_damping_costs_no_order(integrator, order, awkward):
    q, qd, tau = random_states(awkward, (2,))
    dyn = rd.Dynamics(awkward, joint_forces="damping")
    given = {"armature": turning_armature(awkward), "save_every": None}
    ends = [
        dyn.rollout(q, qd, tau, 0.02 / steps, steps, integrator=integrator, **given).qd[-1] for steps in (16, 32, 64)
    ]
    fine = dyn.rollout(q, qd, tau, 0.02 / 1024, 1024, integrator="rk4", **given).qd[-1]
    errors = [far(each, fine) for each in ends]
    assert np.log2(errors[1] / errors[2]) == pytest.approx(order, abs=0.2)


@pytest.mark.parametrize("integrator", EVERY_INTEGRATOR)
@pytest.mark.some(of=4, rest="matrix")
def test_explicit_steps_that_are_too_long_for_the_damping_are_warned_of(integrator, make_dynamics):
    model = rd.load_urdf(own("arm7"))
    q, qd, _ = random_states(model, (3,))
    dyn = make_dynamics(model)
    weight = np.linalg.eigvals(np.linalg.inv(rd.Dynamics(model).mass_matrix(q)) * 10.0).real.max()
    limit = STABLE.get(integrator, np.inf) / weight
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dyn.rollout(q, qd, None, min(0.5 * limit, 1e-3), 1, integrator=integrator, damping=np.full(7, 10.0))
        if integrator in IMPLICIT:
            dyn.rollout(q, qd, None, 1.0, 1, integrator=integrator, damping=np.full(7, 10.0))
            return
    with pytest.warns(RuntimeWarning, match=f"{integrator!r} is unstable .* 'semi_implicit_euler'"):
        dyn.rollout(q, qd, None, 1.5 * limit, 1, integrator=integrator, damping=np.full(7, 10.0))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"damping": -np.ones(7)}, "damping: got -1.0; wanted numbers of at least 0"),
        ({"armature": np.full((2, 7), -2.0)}, "armature: got -2.0; wanted numbers of at least 0"),
        ({"friction": np.ones(6)}, r"friction: .*7\)"),
        (
            {"damping": np.ones((5, 2, 7))},
            r"damping: got shape \(5, 2, 7\) for 5 steps of states \(2,\); wanted \(2, 7\)$",
        ),
        ({"gravity": np.zeros(2)}, r"gravity: got shape \(2,\); wanted .*, 3\)"),
        ({"V0": np.zeros((4, 2, 6))}, r"V0: .* wanted \(2, 6\), or \(5, 2, 6\) for one in each step"),
    ],
)
def test_bad_coefficients_are_named(given, message):
    model = rd.load_urdf(own("arm7"))
    q, qd, _ = random_states(model, (2,))
    with pytest.raises(rd.ArgumentError, match=message):
        rd.Dynamics(model).rollout(q, qd, None, 1e-3, 5, **given)
    with pytest.raises(rd.NumericalError, match=r"damping.*NaN"):
        rd.Dynamics(model, check=True).rollout(q, qd, None, 1e-3, 5, damping=np.full(7, np.nan))
