"""Rollouts under a policy: what it is called with, how often, and what becomes of what it returns."""

from __future__ import annotations

import numpy as np
import pytest
from driven import EVERY_INTEGRATOR
from test_fast_rollouts import EVERY_ROBOT, fields, identical, is_known
from test_fast_steps import arguments, states

import robodyn as rd

STEPS, DT = 9, 1e-4


def case(robot="arm", shape=(), dtype="float64", **options):
    dyn = rd.Dynamics(EVERY_ROBOT[robot](), dtype=dtype, joint_forces=(), **options)
    q, qd = states(dyn.model, np.random.default_rng(3), shape, dtype)
    return dyn, q, (0.1 * qd).astype(dtype)


def asked(dyn, q, qd, policy, **given):
    """The rollout the long way, and twice as later calls go."""
    return [fields(dyn.rollout(q, qd, policy=policy, dt=DT, steps=STEPS, **given)) for _ in range(3)]


@pytest.mark.some(of=12, rest="matrix")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("integrator", EVERY_INTEGRATOR)
@pytest.mark.parametrize("robot", EVERY_ROBOT)
def test_every_robot_bit_for_bit(robot, integrator, dtype):
    """Each step asks once, at its time, with arrays that the policy may keep and change."""
    for shape in ((), (22,), (2, 3)):
        dyn, q, qd = case(robot, shape, dtype, threads=3)
        if dyn.model.n_constraints and integrator == "implicit":
            pytest.skip("not for constraints")
        times, kept = [], []

        def policy(t, q, qd, times=times, kept=kept, dtype=dtype):
            times.append(t)
            kept.append((q, qd, q.copy(), qd.copy()))
            tau = (-2.0 * qd).astype(dtype)
            if len(kept) % 2:
                q[...], qd[...] = np.nan, np.nan
            return tau

        first, *later = asked(dyn, q, qd, policy, integrator=integrator)
        assert is_known(dyn)
        assert times == [k * DT for k in range(STEPS)] * 3
        for run in later:
            identical(run, first)
        for k, (_, _, q_then, qd_then) in enumerate(kept):
            np.testing.assert_array_equal(q_then, first["q"][k % STEPS])
            np.testing.assert_array_equal(qd_then, first["qd"][k % STEPS])
        arrays = [array for each in kept for array in each[:2]]
        assert not any(np.shares_memory(arrays[0], other) for other in (q, qd, first["q"], *arrays[1:]))
        tau = -2.0 * first["qd"][:-1]
        same = dyn.rollout(q, qd, tau.astype(dtype), DT, STEPS, integrator=integrator)
        identical(fields(same), first)


@pytest.mark.parametrize(
    "given", [("f_ext", "gravity"), ("kp", "kd", "q_des", "V0"), ("inertia", "armature", "damping")], ids="+".join
)
@pytest.mark.parametrize("robot", ["floating", "mimic"])
def test_other_arguments(robot, given):
    dyn, q, qd = case(robot, (4,))
    others = {
        n: np.ascontiguousarray(a) for n, a in arguments(dyn.model, np.random.default_rng(1), (4,), given).items()
    }
    if "f_ext" in others:
        others["f_ext"] = np.repeat(others["f_ext"][None], STEPS, 0) * np.arange(STEPS)[:, None, None, None]
    room = np.empty((4, 4, dyn.model.nq)), np.empty((4, 4, dyn.model.nv))
    for more in ({}, {"save_every": 3, "out": room}):
        first, *later = asked(dyn, q, qd, lambda t, q, qd: -qd, **others, **more)
        for run in later:
            identical(run, first)
    assert is_known(dyn)


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_answers_of_every_kind(shape):
    dyn, q, qd = case("arm", shape)
    wanted = fields(dyn.rollout(q, qd, np.full(7, 0.5), DT, STEPS))
    answers = [
        [0.5] * 7,
        np.full(7, 0.5, np.float32),
        np.full((*shape, 7), 0.5, ">f8"),
        np.full((*shape, 14), 0.5)[..., ::2],
        np.full((*(1,) * len(shape), 7), 0.5),
    ]
    for answer in answers:
        for run in asked(dyn, q, qd, lambda t, q, qd, answer=answer: answer):
            identical(run, wanted)
    for answer, told in (
        (np.zeros(8), "policy: got shape"),
        (np.zeros((5, *shape, 7)), "policy: returned shape"),
        ("no tau", "policy: got 'no tau'"),
        (None, "policy: got None"),
    ):
        for _ in range(3):
            with pytest.raises(rd.ArgumentError, match=told):
                dyn.rollout(q, qd, policy=lambda t, q, qd, answer=answer: answer, dt=DT, steps=STEPS)


@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "rk4"])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_steps_with_constraints_that_are_no_program(shape, integrator):
    """Of rolled code, and of robots whose step is too large for straight-line code, each part of a step is a call."""
    (dyn, q, qd), (one_program, _, _) = case("loop", shape, code="rolled"), case("loop", shape)
    first, *later = asked(dyn, q, qd, lambda t, q, qd: -2.0 * qd, integrator=integrator)
    for run in later:
        identical(run, first)
    identical(fields(dyn.rollout(q, qd, -2.0 * first["qd"][:-1], DT, STEPS, integrator=integrator)), first)
    wanted = asked(one_program, q, qd, lambda t, q, qd: -2.0 * qd, integrator=integrator)[0]
    for name in ("q", "qd"):
        np.testing.assert_allclose(first[name], wanted[name], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_tau_that_is_not_finite_ends_a_row(shape):
    dyn, q, qd = case("floating", shape)
    asked(dyn, q, qd, lambda t, q, qd: -qd)
    assert is_known(dyn)
    seen = []

    def policy(t, q, qd):
        seen.append(qd)
        tau = -qd
        if len(seen) % STEPS > 4:
            tau.reshape(-1, tau.shape[-1])[-1, 2] = np.nan
        return tau

    runs = []
    for fresh in (rd.Dynamics(dyn.model, joint_forces=()), dyn, dyn):
        with pytest.warns(RuntimeWarning, match="not finite") as told:
            runs.append(fields(fresh.rollout(q, qd, policy=policy, dt=DT, steps=STEPS)))
        assert told[0].filename == __file__
    assert len(seen) == 3 * STEPS
    for run in runs[1:]:
        identical(run, runs[0])
    assert np.isfinite(runs[0]["q"]).all() and np.ravel(runs[0]["diverged"])[-1] == 5
    assert all(np.isfinite(each).all() for each in seen)


def test_policies_that_raise():
    dyn, q, qd = case("arm")
    wanted = asked(dyn, q, qd, lambda t, q, qd: -qd)[0]
    called = []

    def raising(error):
        def policy(t, q, qd):
            called.append(t)
            if len(called) == 5:
                raise error
            return -qd

        return policy

    with pytest.raises(ZeroDivisionError, match="mine"):
        dyn.rollout(q, qd, policy=raising(ZeroDivisionError("mine")), dt=DT, steps=STEPS)
    assert len(called) == 5
    called.clear()
    with pytest.warns(RuntimeWarning, match="interrupted after 4 of 9"):
        run = dyn.rollout(q, qd, policy=raising(KeyboardInterrupt), dt=DT, steps=STEPS)
    assert run.steps == 4 and len(called) == 5
    np.testing.assert_array_equal(run.q, wanted["q"][:5])
    identical(asked(dyn, q, qd, lambda t, q, qd: -qd)[0], wanted)


def test_what_is_refused_is_refused_before_the_policy_is_asked():
    dyn, q, qd = case("arm")
    called, good = [], np.ones(7)

    def policy(t, q, qd):
        called.append(t)
        return -qd

    asked(dyn, q, qd, policy, damping=good)
    asked(dyn, q, qd, policy)
    assert is_known(dyn)
    called.clear()
    for change, told in (
        ({"damping": -good}, "damping"),
        ({"damping": np.full(7, np.nan)}, "damping"),
        ({"q0": np.full(7, np.inf)}, "q0|q:"),
        ({"qd0": qd[:-1]}, "qd"),
        ({"tau": good}, "policy"),
        ({"out": (np.zeros(3), np.zeros(3))}, "out"),
        ({"policy": "none"}, "policy"),
    ):
        with pytest.raises((rd.ArgumentError, rd.NumericalError), match=told):
            dyn.rollout(**{"q0": q, "qd0": qd, "policy": policy, "dt": DT, "steps": STEPS, **change})
    assert not called


def test_long_rollouts_and_rollouts_within_a_policy():
    """Windows of a long rollout follow each other; a policy may itself take rollouts and steps."""
    dyn, q, qd = case("arm", (3,))
    tau = np.random.default_rng(2).standard_normal((3000, 3, 7)) * 0.01
    wanted = dyn.rollout(q, 0.0 * qd, tau, DT, 3000)
    run = dyn.rollout(q, 0.0 * qd, policy=lambda t, q, qd: tau[round(t / DT)], dt=DT, steps=3000)
    identical(fields(run), fields(wanted))

    def policy(t, q, qd):
        dyn.rollout(q, qd, policy=lambda t, q, qd: -qd, dt=DT, steps=STEPS)
        dyn.step(q, qd, -qd, DT)
        return -qd

    first, *later = asked(dyn, q, qd, policy)
    for other in (*later, asked(dyn, q, qd, lambda t, q, qd: -qd)[0]):
        identical(other, first)
