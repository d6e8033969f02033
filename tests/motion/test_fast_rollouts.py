"""Short rollouts and their gradients the short way give what the long way gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from driven import EVERY_INTEGRATOR
from robots import own
from test_fast_steps import arguments, states

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


def feet():
    """A quadruped whose feet stay where they stand at the start, and one that has them rolled up."""
    model = rd.load_urdf(own("quadruped"), base="floating")
    return replace(model, constraints=(rd.Point(model.link_names[-1]), rd.Point(model.link_names[4])))


EVERY_ROBOT = {**ROBOTS, "loop": lambda: rd.load_urdf(own("loops/four_bar")), "feet": feet}
GIVEN = [
    ("tau", "f_ext", "gravity"),
    ("gravity", "V0", "dV0"),
    ("inertia", "armature", "damping"),
    ("kp", "kd", "q_des", "friction"),
]


@pytest.mark.some(of=8, rest="matrix")
@pytest.mark.parametrize("integrator", EVERY_INTEGRATOR)
@pytest.mark.parametrize("given", GIVEN, ids="+".join)
@pytest.mark.parametrize("robot", ["arm", "floating", "mimic", "loop", "feet"])
def test_every_argument_bit_for_bit(robot, given, integrator):
    dyn = rd.Dynamics(EVERY_ROBOT[robot](), joint_forces=(), threads=3)
    if dyn.model.n_constraints and integrator == "implicit":
        pytest.skip("not for constraints")
    for shape in ((), (21,), (2, 3)):
        rng = np.random.default_rng(7)
        q, qd = states(dyn.model, rng, shape, "float64")
        others = {name: np.ascontiguousarray(each) for name, each in arguments(dyn.model, rng, shape, given).items()}
        for out, every in ((False, 1), (True, 1), (True, 5)):
            runs = []
            for _ in range(3):
                kept = 1 + -(-STEPS // every)
                room = np.full((kept, *q.shape), np.nan), np.full((kept, *qd.shape), np.nan)
                out_or_none = room if out else None
                call = dict(dt=1e-4, steps=STEPS, save_every=every, integrator=integrator, out=out_or_none, **others)
                runs.append(fields(dyn.rollout(q, 0.1 * qd, **call)))
                assert not out or np.shares_memory(runs[-1]["q"], room[0])
            for run in runs[1:]:
                identical(run, runs[0])
        assert is_known(dyn)


def identical(run, wanted):
    for name, array in wanted.items():
        assert np.shape(run[name]) == np.shape(array) and run[name].dtype == array.dtype
        np.testing.assert_array_equal(run[name], array, err_msg=name)


def test_arrays_of_the_users_that_do_not_fit():
    dyn, q, qd, tau = case("arm", (3,))
    wanted = dyn.rollout(q, qd, tau, steps=STEPS)
    dyn.rollout(q, qd, tau, steps=STEPS)
    room = [np.zeros((STEPS + 1, 3, 7)) for _ in range(2)]
    for wrong in (room, (room[0], room[0]), (room[0], room[1][:, :2]), (room[0], room[1].astype("f4")), room[:1]):
        with pytest.raises(rd.ArgumentError, match="out"):
            dyn.rollout(q, qd, tau, steps=STEPS, out=wrong)
    room[0][0], room[1][0] = q, qd  # the first states lie where all are to lie
    found = dyn.rollout(room[0][0], room[1][0], tau, steps=STEPS, out=tuple(room))
    identical(fields(found), fields(wanted))


def test_explicit_steps_too_long_for_damping_warn_each_time():
    dyn, q, qd, _ = case("arm")
    little, much = np.full(7, 1e-3), np.full(7, 1e3)
    for _ in range(3):
        dyn.rollout(q, qd, steps=2, integrator="rk4", damping=little)
    assert is_known(dyn)
    for _ in range(3):
        with pytest.warns(RuntimeWarning, match="unstable"):
            dyn.rollout(q, 0.0 * qd, steps=2, integrator="rk4", damping=much)


def test_inertias_that_leave_no_mass():
    dyn, q, qd, tau = case("arm")
    for _ in range(3):
        dyn.rollout(q, qd, tau, steps=STEPS, inertia=dyn.model.inertia)
    assert is_known(dyn)
    with pytest.raises(rd.SingularError):
        dyn.rollout(q, qd, tau, steps=STEPS, inertia=0.0 * dyn.model.inertia)
    inertia = 2.0 * dyn.model.inertia
    runs = [fields(dyn.rollout(q, qd, tau, steps=STEPS, inertia=inertia)) for _ in range(3)]
    inertia[:] = 0.0
    identical(runs[2], runs[0])


def test_arrays_that_change_with_the_steps_have_all_of_them():
    dyn, q, qd, tau = case("arm")
    for _ in range(2):
        dyn.rollout(q, qd, tau, steps=STEPS, kp=np.ones(7), q_des=q)
    for wrong in (tau[:-1], np.concatenate([tau, tau])):
        with pytest.raises(rd.ArgumentError, match="tau"):
            dyn.rollout(q, qd, wrong, steps=STEPS, kp=np.ones(7), q_des=q)
    with pytest.raises(rd.ArgumentError, match="kp"):
        dyn.rollout(q, qd, tau, steps=STEPS, kp=np.ones((STEPS, 7)), q_des=q)
    late = tau.copy()
    late[-1, 3] = np.nan
    with pytest.raises(rd.NumericalError, match="tau"):
        dyn.rollout(q, qd, late, steps=STEPS, kp=np.ones(7), q_des=q)


# Gradients.


@pytest.mark.some(of=8, rest="matrix")
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
