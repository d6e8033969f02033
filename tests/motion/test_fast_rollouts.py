"""Short rollouts and their gradients the short way give what the long way gives."""

from __future__ import annotations

import numpy as np
import pytest
from driven import EVERY_INTEGRATOR
from robots import own

import robodyn as rd
from robodyn.api.motion import rollout
from robodyn.joints import KINDS

ROBOTS = {
    "cartpole": lambda: rd.load_urdf(own("cartpole")),
    "arm": lambda: rd.load_urdf(own("arm7")),
    "floating": lambda: rd.load_urdf(own("quadruped"), base="floating"),
    "mimic": lambda: rd.load_urdf(own("gripper")),
    "every kind": lambda: rd.random_tree(7, seed=3, joints=tuple(kind.name for kind in KINDS), armature=True),
}
STEPS = 12
TOLERANCE = {"float64": 1e-11, "float32": 2e-3}
"""The same programs on the same numbers; sums over steps are made in another order."""


def case(robot, shape=(), dtype="float64", seed=0):
    """A new `Dynamics`, states, and forces of each step."""
    dyn = rd.Dynamics(ROBOTS[robot](), dtype=dtype)
    rng = np.random.default_rng(seed)
    q = np.array(dyn.model.random_configuration(rng, shape))
    for start in dyn.model.quaternion_starts.tolist():
        q[..., start : start + 4] *= 1.3
    qd, tau = 0.3 * rng.standard_normal((*shape, dyn.model.nv)), rng.standard_normal((STEPS, *shape, dyn.model.nv))
    return dyn, *(each.astype(dtype) for each in (q, qd, tau))


def is_known(dyn, name="_fast_rollouts"):
    kinds = dyn.__dict__[name]._known
    return bool(kinds) and all(kinds.values())


def same(one, other, dtype="float64"):
    assert one.keys() == other.keys()
    for name, array in one.items():
        wanted = other[name]
        assert array.shape == np.shape(wanted) and array.dtype == wanted.dtype, name
        most = TOLERANCE[dtype] * max(1.0, np.abs(wanted).max(initial=0.0))
        np.testing.assert_allclose(array, wanted, rtol=0, atol=most, err_msg=name)


def fields(run):
    return {name: getattr(run, name) for name in ("t", "q", "qd", "diverged")}


@pytest.mark.some(of=4, rest="matrix")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("integrator", EVERY_INTEGRATOR)
@pytest.mark.parametrize("robot", ROBOTS)
def test_every_robot_and_integrator(robot, integrator, dtype):
    for shape in ((), (5,), (2, 3)):
        dyn, q, qd, tau = case(robot, shape, dtype)
        for force in (tau, tau[0], None):
            runs = [dyn.rollout(q, qd, force, 2e-3, STEPS, integrator=integrator) for _ in range(3)]
            for run in runs[1:]:
                same(fields(run), fields(runs[0]), dtype)
                assert run.steps == STEPS and run.model is dyn.model
        assert is_known(dyn)


@pytest.mark.parametrize("every", [1, 3, 5, STEPS, 100, None])
@pytest.mark.parametrize("robot", ["arm", "floating"])
def test_states_that_are_kept(robot, every):
    dyn, q, qd, tau = case(robot)
    first, second = (dyn.rollout(q, qd, tau, steps=STEPS, save_every=every) for _ in range(2))
    same(fields(second), fields(first))
    assert is_known(dyn)


def test_every_array():
    dyn, q, qd, tau = case("arm", (4,))
    rng = np.random.default_rng(1)
    given = {
        "f_ext": rng.standard_normal((STEPS, 4, dyn.model.n_bodies, 6)),
        "V0": rng.standard_normal(6),
        "dV0": rng.standard_normal((4, 6)),
        "kp": np.full(7, 30.0),
        "kd": np.full((4, 7), 3.0),
        "q_des": rng.standard_normal((STEPS, 4, 7)),
        "damping": np.full(7, 0.3),
        "friction": np.full(7, 0.1),
    }
    limits = ("effort", "velocity")
    first, second = (dyn.rollout(q, qd, tau, steps=STEPS, limits=limits, **given) for _ in range(2))
    same(fields(second), fields(first))
    assert is_known(dyn)
    for name in ("kp", "kd", "damping", "friction"):
        with pytest.raises(rd.ArgumentError, match=name):
            dyn.rollout(q, qd, tau, steps=STEPS, limits=limits, **{**given, name: -given[name]})
    with pytest.raises(rd.NumericalError, match="tau"):
        dyn.rollout(q[0], qd[0], np.full((STEPS, 7), np.nan), steps=STEPS)


def test_results_are_the_users_own():
    dyn, q, qd, tau = case("floating")
    runs = [dyn.rollout(q, qd, tau, steps=STEPS) for _ in range(3)]
    q[:], tau[:] = 0.0, 0.0
    runs[1].q[:], runs[1].qd[:], runs[1].t[:] = np.nan, np.nan, np.nan
    same(fields(runs[2]), fields(runs[0]))
    arrays = [getattr(run, name) for run in runs for name in ("t", "q", "qd")]
    assert not any(np.shares_memory(a, b) for k, a in enumerate(arrays) for b in (*arrays[:k], q, qd, tau))


def test_rows_that_diverge_keep_their_last_state():
    dyn, q, qd, tau = case("arm", (3,))
    for _ in range(2):
        dyn.rollout(q, qd, tau, steps=STEPS)
    assert is_known(dyn)
    qd[1] = 1e200
    with pytest.warns(RuntimeWarning, match="1 of 3 rows diverged"):
        run = dyn.rollout(q, qd, tau, steps=STEPS)
    assert run.diverged[1] >= 0 and np.isfinite(run.q).all()


def test_changes_of_the_dynamics_are_seen():
    dyn, q, qd, tau = case("arm")
    for _ in range(2):
        dyn.rollout(q, qd, tau, steps=STEPS)
    dyn.joint_forces = ("damping", "friction")
    runs = [dyn.rollout(q, qd, tau, steps=STEPS) for _ in range(2)]
    fresh = rd.Dynamics(dyn.model, joint_forces=("damping", "friction")).rollout(q, qd, tau, steps=STEPS)
    for run in runs:
        same(fields(run), fields(fresh))


@pytest.mark.parametrize("robot", ["arm", "floating", "mimic"])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_policies(robot, shape):
    """A policy that returns what tau would be, in all the ways that it may."""
    dyn, q, qd, tau = case(robot, shape)
    wanted = dyn.rollout(q, qd, tau, 1e-3, STEPS)
    held = np.empty(tau.shape[1:])

    def overwrites(t, q, qd):
        q[...], qd[...] = np.nan, np.nan
        held[...] = tau[round(t / 1e-3)]
        return held

    answers = [
        lambda t, q, qd: tau[round(t / 1e-3)],
        lambda t, q, qd: tau[round(t / 1e-3)].tolist(),
        lambda t, q, qd: np.repeat(tau[round(t / 1e-3)], 2, axis=-1)[..., ::2],
        overwrites,
    ]
    for policy in answers:
        same(fields(dyn.rollout(q, qd, policy=policy, dt=1e-3, steps=STEPS)), fields(wanted))
    with pytest.raises(rd.ArgumentError, match="policy: got shape"):
        dyn.rollout(q, qd, policy=lambda t, q, qd: np.zeros(3 * dyn.model.nv + 1), steps=STEPS)
    timed = rd.Dynamics(dyn.model)
    f_ext = np.random.default_rng(2).standard_normal((STEPS, *shape, dyn.model.n_bodies, 6))
    wanted = timed.rollout(q, qd, tau, 1e-3, STEPS, f_ext=f_ext)
    same(fields(dyn.rollout(q, qd, policy=answers[0], dt=1e-3, steps=STEPS, f_ext=f_ext)), fields(wanted))


# Gradients.


@pytest.mark.some(of=4, rest="matrix")
@pytest.mark.parametrize("every", [1, 5, None])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("robot", ROBOTS)
def test_gradients(robot, dtype, every):
    kept = 1 + -(-STEPS // (every or STEPS))
    for shape in ((), (4,)):
        dyn, q, qd, tau = case(robot, shape, dtype)
        rng = np.random.default_rng(3)
        weights = {
            name: rng.standard_normal((kept, *shape, dyn.model.nv)).astype(dtype) for name in ("q_weight", "qd_weight")
        }
        for force in (tau, tau[0], None):
            for given in (weights, {"q_weight": weights["q_weight"]}):
                call = dict(steps=STEPS, save_every=every, **given)
                first, second = (dyn.rollout_vjp(q, qd, force, **call) for _ in range(2))
                same(second, first, dtype)
        assert is_known(dyn, "_fast_gradients")


def test_gradients_by_every_array():
    dyn, q, qd, tau = case("arm", (3,))
    rng = np.random.default_rng(4)
    given = {
        "f_ext": rng.standard_normal((STEPS, 3, dyn.model.n_bodies, 6)),
        "kp": np.full(7, 30.0),
        "kd": np.full((3, 7), 3.0),
        "q_des": rng.standard_normal((STEPS, 3, 7)),
    }
    call = dict(steps=STEPS, q_weight=rng.standard_normal((STEPS + 1, 3, 7)), wrt=("tau", "qd0", *given), **given)
    first, second = (dyn.rollout_vjp(q, qd, tau, **call) for _ in range(2))
    same(second, first)
    assert list(second) == ["tau", "qd0", *given] and is_known(dyn, "_fast_gradients")
    with pytest.raises(rd.NumericalError):
        rd.Dynamics(dyn.model, check=True).rollout_vjp(q, qd, tau, **{**call, "q_weight": call["q_weight"] * np.nan})


def test_gradients_of_diverging_rows_are_nan():
    dyn, q, qd, tau = case("arm", (3,))
    call = {"steps": STEPS, "q_weight": np.ones((STEPS + 1, 3, 7))}
    for _ in range(2):
        dyn.rollout_vjp(q, qd, tau, **call)
    qd[1] = 1e200
    with pytest.warns(RuntimeWarning, match="1 of 3 rows diverged"):
        gradients = dyn.rollout_vjp(q, qd, tau, **call)
    assert np.isnan(gradients["q0"][1]).all() and np.isfinite(gradients["q0"][::2]).all()


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("robot", ["cartpole", "floating"])
def test_value_and_gradient_in_one_call(robot, every):
    dyn, q, qd, tau = case(robot, (2,))
    kept, calls = 1 + -(-STEPS // every), []
    weight = np.random.default_rng(5).standard_normal((kept, 2, dyn.model.nv))

    def function(run):
        calls.append(run)
        return (run.qd * weight).sum(), None, weight

    given = {"tau": tau, "dt": 2e-3, "steps": STEPS, "save_every": every}
    wanted = dyn.rollout(q, qd, **given)
    gradient = rd.Dynamics(dyn.model).rollout_vjp(q, qd, **given, qd_weight=weight)
    for _ in range(3):
        value, found = dyn.rollout_gradient(function, q, qd, **given)
        assert abs(value - (wanted.qd * weight).sum()) < 1e-9
        same(found, gradient)
        same(fields(calls[-1]), fields(wanted))
    assert len(calls) == 3 and is_known(dyn, "_fast_gradients")
    assert list(dyn.rollout_gradient(function, q, qd, **given, wrt="tau")[1]) == ["tau"]
    with pytest.raises(rd.ArgumentError, match="function: returned 0"):
        dyn.rollout_gradient(lambda run: 0.0, q, qd, **given)
    with pytest.raises(rd.ArgumentError, match="q_weight: got shape"):
        dyn.rollout_gradient(lambda run: (0.0, weight[:2], None), q, qd, **given)
    with pytest.raises(rd.ArgumentError, match="function: got 3"):
        dyn.rollout_gradient(3, q, qd, **given)
    with pytest.raises(TypeError, match="q_weight"):
        dyn.rollout_gradient(function, q, qd, **given, q_weight=weight)


def test_what_changes_during_a_rollout_is_not_learnt(monkeypatch):
    dyn, q, qd, tau = case("arm")
    follow = rollout._follow

    def changed(*given):
        follow(*given)
        dyn.joint_forces = ("damping",)

    monkeypatch.setattr(rollout, "_follow", changed)
    dyn.rollout(q, qd, tau, steps=STEPS)
    monkeypatch.undo()
    fresh = rd.Dynamics(dyn.model, joint_forces=("damping",)).rollout(q, qd, tau, steps=STEPS)
    for _ in range(3):
        same(fields(dyn.rollout(q, qd, tau, steps=STEPS)), fields(fresh))
