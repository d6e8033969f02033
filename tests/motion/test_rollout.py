"""Rollouts and simulations: against each other, against conservation laws, and with everything that can go wrong."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any

import numpy as np
import pytest
from conftest import random_states
from cpu_queries import limit_programs
from driven import EVERY_INTEGRATOR, turning_armature
from robots import own

import robodyn as rd
from robodyn.algorithms.tasks import step_of
from robodyn.api.motion.rollout import _Trajectory
from robodyn.api.motion.simulation import METHODS
from robodyn.api.queries.call import Call
from robodyn.core.integrators import INTEGRATORS, evaluations
from robodyn.joints import KINDS

KINDS_OF_JOINTS = tuple(kind.name for kind in KINDS)


@pytest.fixture(scope="module")
def awkward() -> rd.Model:
    """A tree with every joint kind."""
    model = rd.random_tree(9, seed=4, joints=KINDS_OF_JOINTS, armature=True)
    assert {int(code) for code in model.joint_kind} == set(range(len(KINDS)))
    return model


def distance(model: rd.Model, a: Any, b: Any) -> float:
    """Between states (q, qd)."""
    return max(float(np.abs(model.difference(a[0], b[0])).max()), float(np.abs(a[1] - b[1]).max()))


# Numbers.


@pytest.mark.parametrize("integrator", EVERY_INTEGRATOR)
@pytest.mark.some(of=12, rest="matrix")
def test_rollouts_are_the_same_on_every_engine(integrator, awkward, make_dynamics, engine_dtype):
    q, qd, tau = random_states(awkward, (3,))
    wanted = rd.Dynamics(awkward, engine="reference").rollout(q, qd, tau, 1e-3, 20, integrator=integrator)
    found = make_dynamics(awkward).rollout(q, qd, tau, 1e-3, 20, integrator=integrator)
    assert found.q.shape == (21, 3, awkward.nq) and found.qd.shape == (21, 3, awkward.nv)
    assert found.q.dtype == found.qd.dtype == engine_dtype[1]
    # Bodies turn and shift by some 1e-2; what a step loses grows with how fast they fly apart.
    allowed = 1e-10 if engine_dtype[1] == "float64" else 2e-2
    assert distance(awkward, (found.q[-1], found.qd[-1]), (wanted.q[-1], wanted.qd[-1])) < allowed
    assert (found.diverged == -1).all() and found.steps == 20 and found.t[-1] == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("integrator", "order"),
    [("euler", 1), ("semi_implicit_euler", 1), ("implicit", 1), ("midpoint", 2), ("rk4", 4), ("mujoco", 1)],
)
def test_integrators_have_their_order_on_the_manifold(integrator, order, awkward):
    q, qd, tau = random_states(awkward, (2,))
    dyn, given = rd.Dynamics(awkward), {"armature": turning_armature(awkward), "save_every": None}
    ends = []
    for steps in (8, 16, 32):
        run = dyn.rollout(q, qd, tau, 0.04 / steps, steps, integrator=integrator, **given)
        ends.append((run.q[-1], run.qd[-1]))
    fine = dyn.rollout(q, qd, tau, 0.04 / 512, 512, integrator="rk4", **given)
    errors = [distance(awkward, each, (fine.q[-1], fine.qd[-1])) for each in ends]
    assert np.log2(errors[1] / errors[2]) == pytest.approx(order, abs=0.15)


def test_a_semi_implicit_step_is_forward_dynamics_and_integrate(awkward):
    q, qd, tau = random_states(awkward, (4,))
    dyn = rd.Dynamics(awkward)
    run = dyn.rollout(q, qd, tau, 1e-2, 1)
    after = qd + 1e-2 * dyn.forward_dynamics(q, qd, tau)
    assert np.abs(run.qd[1] - after).max() < 1e-10 * np.abs(after).max()
    assert np.abs(run.q[1] - awkward.integrate(q, after, 1e-2)).max() < 1e-12


@pytest.mark.parametrize("integrator", EVERY_INTEGRATOR)
@pytest.mark.some(of=16, rest="matrix")
def test_a_step_is_a_rollout_of_one(integrator, awkward, make_dynamics, engine_dtype):
    dyn = make_dynamics(awkward)
    for shape in ((), (4,), (2, 3), (0,)):
        q, qd, tau = random_states(awkward, shape)
        run = dyn.rollout(q, qd, tau, 1e-3, 1, integrator=integrator, damping=np.ones(awkward.nv))
        found = dyn.step(q, qd, tau, 1e-3, integrator=integrator, damping=np.ones(awkward.nv))
        for got, wanted in zip(found, (run.q[-1], run.qd[-1]), strict=True):
            assert got.shape == wanted.shape and got.dtype == engine_dtype[1] and np.array_equal(got, wanted)


def test_steps_return_what_is_not_finite_or_say_so():
    model = rd.load_urdf(own("arm6"))
    q, qd, tau = random_states(model, (2,))
    tau[1] = np.nan
    with np.errstate(all="raise"):
        after = rd.Dynamics(model).step(q, qd, tau)[1]
    assert np.isfinite(after[0]).all() and np.isnan(after[1]).any()
    with pytest.raises(rd.NumericalError, match="step: the state after it is not finite"):
        rd.Dynamics(model, check=True).step(q, 1e200 * qd)
    for dt in (0.0, -1.0, np.inf, "1"):
        with pytest.raises(rd.ArgumentError, match="dt: got"):
            rd.Dynamics(model).step(q, qd, dt=dt)


def test_programs_of_steps_give_what_arrays_give(monkeypatch):
    """The loop in machine code and the one over arrays run the same text."""
    model = rd.load_urdf(own("quadruped"), base="floating")
    q, qd, tau = random_states(model, (37,))
    dyn = rd.Dynamics(model, threads=2, joint_forces=("damping", "friction"))
    f_ext = np.random.default_rng(1).normal(size=(5, 37, model.n_bodies, 6))
    found = dyn.rollout(q, qd, tau, 1e-3, 5, integrator="rk4", f_ext=f_ext)
    monkeypatch.setattr(type(dyn.engine), "march", lambda *_: False)
    wanted = dyn.rollout(q, qd, tau, 1e-3, 5, integrator="rk4", f_ext=f_ext)
    assert distance(model, (found.q[-1], found.qd[-1]), (wanted.q[-1], wanted.qd[-1])) < 1e-11


IN_PARTS = {
    "kinds": lambda: rd.random_tree(9, seed=4, joints=KINDS_OF_JOINTS, armature=True),
    "forest": lambda: rd.random_tree(12, seed=3, joints=("revolute", "spherical")),
    "mimic": lambda: rd.random_tree(14, seed=4, joints=("revolute", "prismatic"), mimic=0.3),
}


@pytest.mark.parametrize(("code", "batch"), [("unrolled", 37), ("rolled", 1)])
@pytest.mark.parametrize("integrator", ["rk4", "semi_implicit_euler"])
@pytest.mark.parametrize("name", IN_PARTS)
@pytest.mark.some(of=4, when="matrix")
def test_steps_in_parts_give_what_arrays_give(name, integrator, batch, code, monkeypatch):
    """Steps too large for one program: those of their parts, around dynamics in straight-line code or in loops."""
    monkeypatch.setenv("ROBODYN_CACHE_DIR", "off")
    limit_programs(monkeypatch, chain=-1, step=-1)
    if code == "rolled":
        limit_programs(monkeypatch, query=-1)
    model = IN_PARTS[name]()
    q, qd, tau = random_states(model, (batch,))
    dyn = rd.Dynamics(model, threads=2, joint_forces=("damping", "friction"))
    given = {"f_ext": np.random.default_rng(1).normal(size=(4, batch, model.n_bodies, 6))}
    if name != "mimic":
        given["inertia"] = model.inertia * 1.1
    found = dyn.rollout(q, qd, tau, 1e-3, 4, integrator=integrator, **given)
    (march,) = dyn.engine._marches.values()
    modes = [call.kernel.mode for call in march._calls]
    assert len(modes) == 2 * evaluations(INTEGRATORS[integrator]) + 1
    assert set(modes[0::2]) == {"unrolled"}
    assert set(modes[1::2]) == {"chained" if name == "mimic" else code}
    monkeypatch.setattr(type(dyn.engine), "march", lambda *_: False)
    wanted = dyn.rollout(q, qd, tau, 1e-3, 4, integrator=integrator, **given)
    assert distance(model, (found.q[-1], found.qd[-1]), (wanted.q[-1], wanted.qd[-1])) < 1e-11


def test_a_humanoid_takes_large_steps_in_machine_code(monkeypatch):
    """In one program where that is made quickly, else in parts."""
    monkeypatch.setenv("ROBODYN_CACHE_DIR", "off")
    limit_programs(monkeypatch, step=24_000)
    model = rd.load_urdf(own("humanoid"), base="floating")
    dyn = rd.Dynamics(model)
    dyn.rollout(*random_states(model), 1e-3, 2, integrator="rk4")
    (march,) = dyn.engine._marches.values()
    assert len(march._calls) == 9


def test_a_free_double_pendulum_keeps_its_energy():
    model = rd.load_urdf(own("double_pendulum"))
    dyn = rd.Dynamics(model)
    q, qd = random_states(model, (8,))[:2]

    def energy(run: rd.Rollout) -> np.ndarray:
        return dyn.kinetic_energy(run.q, run.qd) + dyn.potential_energy(run.q)

    drifts = []
    for steps in (2000, 4000):
        found = energy(dyn.rollout(q, qd, None, 2.0 / steps, steps, integrator="rk4", save_every=steps // 50))
        drifts.append(np.abs(found - found[0]).max())
    print(drifts)
    assert drifts[1] < 1e-7 and drifts[1] < drifts[0] / 12


def test_a_floating_humanoid_keeps_its_momentum():
    model = rd.load_urdf(own("humanoid"), base="floating")
    dyn = rd.Dynamics(model)
    q, qd = model.random_configuration(2), np.random.default_rng(2).normal(size=model.nv)
    tau = np.zeros((200, model.nv))
    tau[:, 6:] = np.random.default_rng(3).normal(size=(200, model.nv - 6))
    run = dyn.rollout(q, qd, tau, 1e-3, 200, integrator="rk4")
    momentum = dyn.centroidal_momentum(run.q, run.qd)[0]
    momentum[:, 3:] -= run.t[:, None] * model.total_mass * model.gravity
    assert np.abs(momentum - momentum[0]).max() < 1e-6 * np.abs(momentum[0]).max()
    assert np.abs(np.linalg.norm(run.q[:, 3:7], axis=1) - 1.0).max() < 1e-15 * 4


def test_rollouts_agree_with_error_controlled_integration(awkward):
    q, qd, tau = random_states(awkward)
    dyn = rd.Dynamics(awkward)
    run = dyn.rollout(q, qd, tau, 1e-4, 300, integrator="rk4", save_every=None)
    found = rd.simulate(dyn, q, qd, 0.03, tau, rtol=1e-11, atol=1e-12)
    assert distance(awkward, (run.q[-1], run.qd[-1]), (found.q[-1], found.qd[-1])) < 1e-6 * np.abs(qd).max()
    assert found.status == "finished" and found.t[-1] == pytest.approx(0.03)


# What is kept, and shapes.


@pytest.mark.parametrize("leading", [(), (1,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("every", [1, 3, 7, 50, None])
def test_states_that_are_kept(leading, every, awkward, monkeypatch):
    monkeypatch.setattr("robodyn.api.motion.rollout._LONGEST_WINDOW", 5)
    q, qd, tau = random_states(awkward, leading)
    dyn = rd.Dynamics(awkward, check=False)
    whole = dyn.rollout(q, qd, tau, 1e-3, 17)
    found = dyn.rollout(q, qd, tau, 1e-3, 17, save_every=every)
    kept = sorted({*range(0, 18, every or 17), 17})
    assert np.array_equal(found.q, whole.q[kept]) and np.array_equal(found.qd, whole.qd[kept])
    assert np.allclose(found.t, 1e-3 * np.array(kept)) and np.shape(found.diverged) == leading
    out = tuple(np.full_like(each, np.nan) for each in (found.q, found.qd))
    given = dyn.rollout(q, qd, tau, 1e-3, 17, save_every=every, out=out)
    assert np.array_equal(out[0], found.q) and (
        given.q is out[0] or not given.q.size or np.shares_memory(given.q, out[0])
    )


def test_forces_may_change_with_time(awkward):
    q, qd, _ = random_states(awkward, (3,))
    rng = np.random.default_rng(5)
    tau, f_ext = rng.normal(size=(4, 3, awkward.nv)), rng.normal(size=(4, 3, awkward.n_bodies, 6))
    dyn = rd.Dynamics(awkward)
    found = dyn.rollout(q, qd, tau, 1e-3, 4, f_ext=f_ext)
    for k in range(4):
        q, qd = (
            each[-1] for each in (dyn.rollout(q, qd, tau[k], 1e-3, 1, f_ext=f_ext[k]).__dict__[n] for n in ("q", "qd"))
        )
    assert np.array_equal(found.q[-1], q) and np.array_equal(found.qd[-1], qd)
    still = dyn.rollout(q, qd, tau[0, 0], 1e-3, 4)  # one for all rows
    assert np.array_equal(still.q, dyn.rollout(q, qd, np.broadcast_to(tau[0, 0], (3, awkward.nv)), 1e-3, 4).q)


def test_forces_may_lie_in_memory_in_any_way(awkward, make_dynamics):
    q, qd, _ = random_states(awkward, (3,))
    rng = np.random.default_rng(5)
    tau, f_ext = rng.normal(size=(4, 3, awkward.nv)), rng.normal(size=(4, 3, awkward.n_bodies, 6))
    dyn = make_dynamics(awkward)
    wanted = dyn.rollout(q, qd, tau, 1e-3, 4, f_ext=f_ext)
    wide = np.zeros((4, 3, 2 * awkward.nv))
    wide[..., ::2] = tau
    for tau_laid, f_laid in (
        (wide[..., ::2], np.asfortranarray(f_ext)),
        (np.asfortranarray(tau), f_ext[..., ::-1].copy()[..., ::-1]),
        (tau[..., ::-1].copy()[..., ::-1], f_ext[:, ::-1].copy()[:, ::-1]),
        (tau[::-1].copy()[::-1], f_ext.astype(">f8")),
    ):
        assert np.array_equal(dyn.rollout(q, qd, tau_laid, 1e-3, 4, f_ext=f_laid).qd, wanted.qd)
    asked = dyn.rollout(q, qd, None, 1e-3, 1, f_ext=f_ext[:1], policy=lambda *_: np.asfortranarray(tau[0]))
    assert np.array_equal(asked.qd[1], wanted.qd[1])


def test_results_may_lie_where_forces_do(awkward):
    q, qd, tau = random_states(awkward, (3,))
    dyn = rd.Dynamics(awkward)
    wanted = dyn.rollout(q, qd, np.stack([tau] * 4), 1e-3, 4)
    out = np.zeros((5, 3, awkward.nq)), np.zeros((5, 3, awkward.nv))
    out[1][1:] = tau
    found = dyn.rollout(q, qd, out[1][1:], 1e-3, 4, out=out)
    assert np.array_equal(out[0], wanted.q) and np.array_equal(out[1], wanted.qd)
    assert np.shares_memory(found.q, out[0]) and np.shares_memory(found.qd, out[1])


def test_quaternions_at_the_start_are_scaled(make_dynamics):
    model = rd.load_urdf(own("satellite"))
    q, qd = model.random_configuration(0), np.ones(model.nv)
    dyn = make_dynamics(model)
    wanted = dyn.rollout(q, qd, None, 1e-3, 2)
    long = q.copy()
    long[3:7] *= 3.0
    assert np.allclose(dyn.rollout(long, qd, None, 1e-3, 2).q, wanted.q, rtol=0, atol=1e-6)
    long[3:7] = 0.0
    with pytest.raises(rd.ArgumentError, match=r"q: the quaternion .* zero length"):
        dyn.rollout(long, qd, None, 1e-3, 2)


def test_policies_may_keep_what_they_get_and_write_to_it(awkward):
    q, qd, _ = random_states(awkward, (2,))
    dyn = rd.Dynamics(awkward)
    seen: list[np.ndarray] = []

    def policy(t: float, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        seen.append(q)
        qd *= 0.0
        return qd

    found, wanted = dyn.rollout(q, qd, None, 1e-3, 20, policy=policy), dyn.rollout(q, qd, None, 1e-3, 20)
    assert np.array_equal(found.q, wanted.q) and np.array_equal(np.stack(seen), wanted.q[:-1])


def test_a_policy_is_asked_for_each_step(awkward):
    q, qd, tau = random_states(awkward, (2, 2))
    dyn = rd.Dynamics(awkward)
    asked: list[float] = []

    def policy(t: float, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        assert q.shape == (2, 2, awkward.nq) and qd.shape == (2, 2, awkward.nv)
        asked.append(t)
        return tau - 0.1 * qd

    found = dyn.rollout(q, qd, None, 1e-3, 3, policy=policy)
    assert np.allclose(asked, [0.0, 1e-3, 2e-3])
    damped = dyn.rollout(q, qd, tau - 0.1 * qd, 1e-3, 1)
    assert np.allclose(found.q[1], damped.q[1], rtol=0, atol=1e-14)


def test_inertias_and_mimicking_joints_take_part():
    model = rd.random_tree(6, seed=6, joints=("revolute",), mimic=0.5)
    assert model.has_mimic
    q, qd, tau = random_states(model, (3,))
    inertia = model.inertia * np.array([1.0, 2.0, 3.0])[:, None, None]
    found = rd.Dynamics(model).rollout(q, qd, tau, 1e-3, 5, inertia=inertia)
    wanted = rd.Dynamics(model, engine="reference").rollout(q, qd, tau, 1e-3, 5, inertia=inertia)
    assert np.allclose(found.qd, wanted.qd, rtol=1e-9)
    assert not np.allclose(found.qd, rd.Dynamics(model).rollout(q, qd, tau, 1e-3, 5).qd)
    grid = [each.reshape(3, 1, -1) for each in (q, qd, tau)]
    also = rd.Dynamics(model).rollout(*grid, 1e-3, 5, inertia=inertia[:, None])
    assert np.array_equal(also.qd.reshape(found.qd.shape), found.qd)
    alone = rd.Dynamics(model).rollout(q[1], qd[1], tau[1], 1e-3, 5, inertia=inertia[1])
    assert np.array_equal(alone.qd, found.qd[:, 1])
    with pytest.raises(rd.SingularError, match="inertia: the joint-space"):
        rd.Dynamics(model).rollout(q[1], qd[1], tau[1], 1e-3, 5, inertia=0.0 * inertia[1])


def test_large_trees_are_followed_by_their_accelerations():
    model = rd.auto_tree(600, branching=2)
    q, qd, tau = random_states(model, (2,))
    found = rd.Dynamics(model).rollout(q, qd, tau, 1e-4, 3)
    wanted = rd.Dynamics(model, engine="scan").rollout(q, qd, tau, 1e-4, 3)
    assert np.allclose(found.qd, wanted.qd, rtol=1e-6, atol=1e-6)
    still = rd.load_urdf("<robot name='r'><link name='a'/></robot>")
    assert rd.Dynamics(still).rollout(np.empty((2, 0)), np.empty((2, 0)), None, 1e-3, 3).q.shape == (4, 2, 0)


# What goes wrong.


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_rows_that_diverge_are_frozen_and_named(engine):
    model = rd.load_urdf(own("arm6"))
    q, qd, tau = random_states(model, (4,))
    q, qd, tau = 0.01 * q, 0.01 * qd, 0.0 * tau
    qd[2] = 1e6  # a step of a hundredth of a second is far too long for that
    dyn = rd.Dynamics(model, engine=engine)
    with pytest.warns(RuntimeWarning, match=r"rollout: 1 of 4 rows diverged, row 2 in step \d+ \(t = .* s\)"):
        found = dyn.rollout(q, qd, tau, 0.01, 40, integrator="euler")
    step = int(found.diverged[2])
    assert step > 0 and (np.delete(found.diverged, 2) == -1).all()
    assert np.isfinite(found.q).all() and np.isfinite(found.qd).all()
    assert (found.qd[step - 1 :, 2] == found.qd[step - 1, 2]).all()
    alone = dyn.rollout(np.delete(q, 2, 0), np.delete(qd, 2, 0), np.delete(tau, 2, 0), 0.01, 40, integrator="euler")
    assert np.array_equal(np.delete(found.qd, 2, 1), alone.qd)
    qd[0, 0] = np.nan
    with pytest.warns(RuntimeWarning, match="2 of 4 rows diverged, row 0 in step 0"):
        found = dyn.rollout(q, qd, tau, 0.01, 40, integrator="euler")
    assert np.isnan(found.qd[:, 0, 0]).all()
    with pytest.raises(rd.NumericalError, match="qd: NaN"):
        dyn.rollout(q[0], qd[0], tau[0], 0.1, 2)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_policies_see_what_is_frozen(engine):
    """One that takes no NaN, or mixes rows, loses none of the others."""
    dyn, seen = rd.Dynamics(rd.load_urdf(own("arm6")), engine=engine), []
    q, qd = np.zeros((4, 6)), np.zeros((4, 6))
    qd[2] = 1e6

    def policy(t, q, qd):
        seen.append(q)
        return np.sign(q).mean(axis=0) - np.clip(q, -1.0, 1.0)

    with pytest.warns(RuntimeWarning, match="rollout: 1 of 4 rows diverged, row 2"):
        found = dyn.rollout(q, qd, None, 0.01, 12, integrator="euler", policy=policy)
    assert 0 < found.diverged[2] < 12 and np.array_equal(found.q[:-1], seen)


def test_an_interruption_returns_what_was_computed(awkward, tmp_path, monkeypatch):
    monkeypatch.setattr("robodyn.api.motion.rollout._LONGEST_WINDOW", 4)
    q, qd, _ = random_states(awkward, (2,))

    def policy(t: float, *state: Any) -> np.ndarray:
        if t > 9.5e-3:
            raise KeyboardInterrupt
        return np.zeros(awkward.nv)

    dyn = rd.Dynamics(awkward)
    with pytest.warns(RuntimeWarning, match="interrupted after 10 of 100 steps"):
        found = dyn.rollout(q, qd, None, 1e-3, 100, policy=policy, checkpoint=tmp_path / "run.npz", save_every=3)
    assert found.steps == 10 and np.allclose(found.t, [0.0, 3e-3, 6e-3, 9e-3, 1e-2])
    assert len(found.q) == len(found.qd) == 5
    again = rd.Rollout.load(tmp_path / "run.npz")
    assert again.steps == 10 and np.array_equal(again.q, found.q) and np.array_equal(again.diverged, found.diverged)
    on = dyn.rollout(again.q[-1], again.qd[-1], None, 1e-3, 2)
    assert np.array_equal(on.q[-1], dyn.rollout(q, qd, None, 1e-3, 12).q[-1])


def test_ctrl_c_between_freezing_and_keeping_leaves_a_sound_result(tmp_path, monkeypatch):
    """Rows that diverged in steps that nobody gets to see have not diverged."""
    kept = _Trajectory.keep

    def keep(self: Any, q: np.ndarray, qd: np.ndarray, first: int) -> None:
        if len(q) > 1:  # steps, not the start
            raise KeyboardInterrupt
        kept(self, q, qd, first)

    monkeypatch.setattr(_Trajectory, "keep", keep)
    qd = np.zeros((2, 6))
    qd[1] = 1e200
    dyn = rd.Dynamics(rd.load_urdf(own("arm6")), engine="reference")
    with pytest.warns(RuntimeWarning, match="interrupted after 0 of 100 steps"):
        found = dyn.rollout(np.zeros((2, 6)), qd, None, 1e200, 100, integrator="euler", checkpoint=tmp_path / "x")
    assert found.steps == 0 and found.diverged.tolist() == [-1, -1]
    assert rd.Rollout.load(tmp_path / "x").diverged.tolist() == [-1, -1]


def test_a_slow_policy_loses_no_step(tmp_path, monkeypatch):
    """Steps that Python makes are kept, shown and written soon after they are made."""
    monkeypatch.setattr("robodyn.api.motion.run._WINDOW_S", 0.0)
    monkeypatch.setattr("robodyn.api.motion.rollout._CHECKPOINT_S", 0.0)
    monkeypatch.setattr("robodyn.api.motion.rollout._CHECKPOINT_SHARE", 0)
    path, written = tmp_path / "run", []

    def policy(t: float, *state: Any) -> np.ndarray:
        written.append(rd.Rollout.load(path).steps)
        if len(written) == 4:
            raise ZeroDivisionError
        return np.zeros(6)

    dyn = rd.Dynamics(rd.load_urdf(own("arm6")))
    with pytest.raises(ZeroDivisionError):
        dyn.rollout(np.zeros(6), np.zeros(6), None, 1e-3, 100, policy=policy, checkpoint=path)
    assert written == [0, 1, 2, 3] and rd.Rollout.load(path).steps == 3 and list(tmp_path.iterdir()) == [path]


def test_checkpoints_take_a_small_share_of_the_time(tmp_path, monkeypatch):
    model = rd.load_urdf(own("arm6"))
    saved: list[int] = []
    monkeypatch.setattr(rd.Rollout, "save", lambda self, path: saved.append(self.steps))
    monkeypatch.setattr("robodyn.api.motion.rollout._LONGEST_WINDOW", 1)
    rd.Dynamics(model).rollout(np.zeros(6), np.zeros(6), None, 1e-3, 100, checkpoint=tmp_path / "run.npz")
    assert saved[0] == 0 and saved[-1] == 100 and len(saved) < 20


def test_a_file_for_checkpoints_is_tried_first(tmp_path):
    dyn, asked = rd.Dynamics(rd.load_urdf(own("arm6"))), []
    with pytest.raises(FileNotFoundError):
        dyn.rollout(np.zeros(6), np.zeros(6), None, 1e-3, 9, policy=asked.append, checkpoint=tmp_path / "no" / "run")
    assert not asked
    run = dyn.rollout(np.zeros(6), np.zeros(6), None, 1e-3, 9, checkpoint=str(tmp_path / "run"))
    whole = (tmp_path / "run").read_bytes()
    assert np.array_equal(rd.Rollout.load(tmp_path / "run").q, run.q)
    for damaged in (b"no archive", b"PK\x03\x04", whole[: len(whole) // 2], whole[:99] + b"?" + whole[100:]):
        (tmp_path / "other.npz").write_bytes(damaged)
        with pytest.raises(rd.ArgumentError, match="holds no rollout"):
            rd.Rollout.load(tmp_path / "other.npz")


def test_whatever_an_archive_holds_it_is_a_rollout_or_refused(tmp_path):
    path = tmp_path / "run"
    run = rd.Dynamics(rd.load_urdf(own("arm6"))).rollout(np.zeros((2, 6)), np.zeros(6), None, 1e-3, 3, checkpoint=path)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(300):  # passwords, other versions of the format, places before the file
        damaged = bytearray(whole)
        # what comes last is the directory of the archive
        damaged[-rng.integers(1, 400)] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        with contextlib.suppress(rd.ArgumentError):
            rd.Rollout.load(path)
    good = {"t": run.t, "q": run.q, "qd": run.qd, "diverged": run.diverged, "steps": run.steps}
    for change in ({"qd": run.qd[1:]}, {"q": "x"}, {"steps": np.inf}, {"diverged": -1}, {"t": run.t[:, None]}):
        with path.open("wb") as file:
            np.savez(file, **{**good, **change})
        with pytest.raises(rd.ArgumentError, match="holds no rollout"):
            rd.Rollout.load(path)
    for name in (b"run", 3, "run\0"):
        with pytest.raises(rd.ArgumentError, match=r"path: got .*; wanted the name of a file"):
            rd.Rollout.load(name)


@pytest.fixture
def interrupts():
    """Ctrl-C raises, also where whoever started the tests has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread")
def test_ctrl_c_ends_a_rollout(interrupts):
    model = rd.load_urdf(own("arm6"))
    q, qd, _ = random_states(model, (1000,))
    dyn = rd.Dynamics(model)
    dyn.rollout(q, qd, None, 1e-6, 1)  # compiled before the time runs
    timer = threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    with pytest.warns(RuntimeWarning, match="rollout: interrupted after"):
        found = dyn.rollout(0.1 * q, 0.0 * qd, None, 1e-6, 10**9, save_every=None)
    assert 0 < found.steps < 10**9 and found.t[-1] == pytest.approx(found.steps * 1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dt": 0.0}, "dt: got 0.0; wanted a positive finite"),
        ({"dt": -1e-3}, "dt: got -0.001"),
        ({"dt": np.nan}, "dt: got nan"),
        ({"dt": 1e308}, r"dt: got 1e\+308 for 5 steps; wanted their times finite"),
        ({"steps": 0}, "steps: got 0; wanted an integer from 1"),
        ({"steps": 2.5}, "steps: got 2.5"),
        ({"integrator": "leapfrog"}, "integrator: got 'leapfrog'; allowed: 'semi_implicit_euler'"),
        ({"save_every": 0}, "save_every: got 0"),
        ({"tau": np.zeros(3)}, r"tau: got shape \(3,\)"),
        ({"tau": np.zeros((7, 2, 6))}, r"tau: got shape \(7, 2, 6\) for 5 steps of states \(2,\); wanted \(2, 6\), or"),
        ({"f_ext": np.zeros((3, 6, 6))}, r"f_ext: got shape \(3, 6, 6\) for 5 steps"),
        ({"policy": 3, "tau": None}, "policy: got 3; wanted a function"),
        ({"policy": lambda *_: 0.0}, "policy: got tau besides"),
        ({"policy": lambda *_: np.zeros(5), "tau": None}, r"policy: got shape \(5,\)"),
        ({"policy": lambda *_: np.zeros((3, 6)), "tau": None}, r"policy: returned shape \(3, 6\) for states \(2,\)"),
        ({"progress": 1}, "progress: got 1"),
        ({"checkpoint": 3}, "checkpoint: got 3; wanted the name of a file"),
        ({"checkpoint": ""}, "checkpoint: got ''; wanted the name of a file"),
        ({"checkpoint": "."}, r'checkpoint: "\.": it is a directory; give the name of a regular file'),
        ({"checkpoint": "a\0"}, r"checkpoint: got 'a\\x00'; wanted the name of a file"),
        ({"inertia": np.ones((5, 2, 6, 10))}, r"inertia: got shape .*; wanted \(2, 6, 10\)$"),
        ({"out": np.zeros(3)}, "out: wanted a tuple of 2 arrays"),
        ({"out": (np.zeros((6, 2, 6)), np.zeros((5, 2, 6)))}, r"out \(qd\): got a writeable"),
    ],
)
def test_bad_arguments_of_rollouts_are_named(change, message):
    model = rd.load_urdf(own("arm6"))
    given = {"q0": np.zeros((2, 6)), "qd0": np.zeros((2, 6)), "tau": np.zeros(6), "dt": 1e-3, "steps": 5}
    with pytest.raises(rd.ArgumentError, match=message):
        rd.Dynamics(model).rollout(**{**given, **change})


def test_forces_that_are_not_finite_and_results_that_do_not_fit_are_refused():
    dyn, zero = rd.Dynamics(rd.load_urdf(own("arm6"))), np.zeros(6)
    with pytest.raises(rd.NumericalError, match="tau: NaN"):
        dyn.rollout(zero, zero, np.full(6, np.nan), 1e-3, 2)
    with pytest.raises(rd.UnavailableError, match=r"no memory for 1099511627777 states .* larger save_every"):
        dyn.rollout(zero, zero, None, 1e-3, 2**40)
    many = np.broadcast_to(zero, (10**14, 6))
    with pytest.raises(rd.UnavailableError, match=r"no memory for a step of 10{14} states .* fewer states at a time"):
        dyn.rollout(many, many, None, 1e-3, 2)


def test_rollouts_of_singular_robots_say_so():
    model = rd.load_urdf(own("massless_tip"))
    dyn = rd.Dynamics(model)
    with pytest.raises(rd.SingularError):
        dyn.rollout(model.neutral(), np.zeros(model.nv), None, 1e-3, 2)


def test_a_progress_bar_is_shown(capsys):
    model = rd.load_urdf(own("arm6"))
    rd.Dynamics(model).rollout(np.zeros(6), np.zeros(6), None, 1e-3, 3, progress=True)
    assert "rollout" in "".join(capsys.readouterr())


def test_a_bar_that_has_no_place_is_not_shown(monkeypatch):
    """Older versions of rich have room for one."""
    from rich.errors import LiveError
    from rich.progress import Progress

    def full(self):
        raise LiveError("Only one live display may be active at once")

    monkeypatch.setattr(Progress, "start", full)
    run = rd.Dynamics(rd.load_urdf(own("arm6"))).rollout(np.zeros(6), np.zeros(6), None, 1e-3, 3, progress=True)
    assert run.steps == 3


def test_steps_are_known_by_identity():
    from robodyn.algorithms.aba import aba

    dynamics = aba(("q", "qd", "tau"))
    assert step_of(dynamics, "rk4") is step_of(dynamics, "rk4") is not step_of(dynamics, "rk4", ("damping",))


# Simulations.


@pytest.mark.parametrize("method", METHODS)
def test_simulations_find_events(method):
    model = rd.load_urdf(own("double_pendulum"))
    dyn = rd.Dynamics(model)
    q, qd = np.array([1.0, 0.5]), np.zeros(2)

    def down(t, q, qd):
        return q[0]

    def still(t, q, qd):
        return qd[0]

    down.terminal, still.direction = True, 1
    loose = {"rtol": 1e-6, "atol": 1e-8} if method in ("RK23", "Radau", "BDF") else {}
    found = rd.simulate(dyn, q, qd, 5.0, events=(down, still), method=method, **loose)
    assert found.status == "event" and found.t[-1] == found.events[0][0] and not found.events[1].size
    assert abs(found.q[-1, 0]) < 1e-9
    assert found.t[-1] == pytest.approx(0.4753846, abs=1e-4)


def test_simulations_call_back_and_return_at_the_times_asked_for():
    model = rd.load_urdf(own("satellite"))
    dyn = rd.Dynamics(model)
    q, qd = model.random_configuration(0), np.random.default_rng(0).normal(size=model.nv)
    seen: list[float] = []

    def callback(t, q, qd):
        seen.append(t)
        return len(seen) == 3

    found = rd.simulate(dyn, q, qd, 2.0, callback=callback)
    assert found.status == "stopped" and len(found.t) == 4 and found.t[-1] == seen[-1]
    times = np.linspace(0.0, 1.0, 11)
    found = rd.simulate(dyn, q, qd, 1.0, t_eval=times)
    assert np.array_equal(found.t, times) and np.allclose(np.linalg.norm(found.q[:, 3:7], axis=1), 1.0)
    pushed = rd.simulate(
        dyn, q, qd, 1.0, tau=lambda t, q, qd: -qd, f_ext=lambda t, q, qd: np.zeros((model.n_bodies, 6))
    )
    assert np.linalg.norm(pushed.qd[-1]) < np.linalg.norm(found.qd[-1])


def test_events_are_found_where_two_steps_meet():
    """The end of a step and the start of the next differ by rounding, and a change of sign may fall between."""
    model = rd.load_urdf(own("double_pendulum"))
    seen: dict[float, float] = {}

    def watch(t, q, qd):
        seen[t] = q[0]
        return 1.0

    given = {"q0": [1.0, 0.5], "qd0": [0.0, 0.0], "t_end": 1.5, "method": "Radau", "rtol": 1e-6, "atol": 1e-8}
    found = rd.simulate(model, **given, events=watch)
    levels = [0.5 * (seen[t] + q) for t, q in zip(found.t, found.q[:, 0], strict=True) if seen[t] != q]
    assert levels
    events = [lambda t, q, qd, level=level, sign=sign: sign * (q[0] - level) for level in levels for sign in (1, -1)]
    assert sum(times.size for times in rd.simulate(model, **given, events=events).events) >= len(levels)


def test_simulations_may_return_no_states_and_count_events():
    model = rd.load_urdf(own("double_pendulum"))

    def wave(t, q, qd):
        return np.sin(20.0 * t)

    wave.terminal = 2
    found = rd.simulate(model, [1.0, 0.5], [0.0, 0.0], 1.0, t_eval=[0.9], events=wave)
    assert found.status == "event" and np.allclose(found.events[0], [np.pi / 20, np.pi / 10])
    assert found.t.shape == (0,) and found.q.shape == found.qd.shape == (0, 2)


def test_events_are_told_what_they_mean():
    model = rd.load_urdf(own("double_pendulum"))

    def event(**attributes):
        def down(t, q, qd):
            return q[0]

        down.__dict__.update(attributes)
        return down

    never = event(terminal=None), event(terminal=0), event(terminal=np.False_)
    found = rd.simulate(model, [1.0, 0.5], [0.0, 0.0], 1.0, events=(*never, event(terminal=np.int64(1))))
    assert found.status == "event" and [len(times) for times in found.events] == [1, 1, 1, 1]
    for attributes, message in (
        ({"terminal": "x"}, "events: terminal: got 'x'; wanted an integer"),
        ({"terminal": -1}, "events: terminal: got -1"),
        ({"terminal": 1.5}, "events: terminal: got 1.5"),
        ({"direction": None}, "events: direction: got None; wanted a finite real number"),
    ):
        with pytest.raises(rd.ArgumentError, match=message):
            rd.simulate(model, [1.0, 0.5], [0.0, 0.0], 1.0, events=event(**attributes))


def test_every_integrator_gives_up_where_velocities_grow_without_bound():
    model = rd.load_urdf(own("double_pendulum"))
    for method in ("LSODA", "RK45"):
        with pytest.raises(rd.NumericalError, match=rf"simulate: {method} gives up at t = 0.0002\d* s: .*step"):
            rd.simulate(model, [1.0, 0.5], [0.0, 0.0], 5.0, tau=lambda t, q, qd: np.exp(50.0 * qd), method=method)


def test_simulations_ask_in_machine_code(monkeypatch):
    model = rd.load_urdf(own("double_pendulum"))
    read: list[str] = []
    init = Call.__init__

    def watched(self: Call, *given: Any, **others: Any) -> None:
        read.append("a call")
        init(self, *given, **others)

    monkeypatch.setattr(Call, "__init__", watched)
    assert len(rd.simulate(model, [1.0, 0.5], [0.0, 0.0], 1.0).t) > 10 and len(read) < 3


def test_functions_of_simulations_may_write_to_what_they_get():
    model = rd.load_urdf(own("double_pendulum"))

    def spoil(t, q, qd):
        q *= 0.0
        qd *= 0.0
        return qd

    def none(t, q, qd):
        return spoil(t, q, qd)[0]

    given = model, [1.0, 0.5], [0.0, 0.0], 1.0
    found = rd.simulate(*given, tau=spoil, events=lambda *state: 1.0 + none(*state), callback=none)
    assert np.array_equal(found.q, rd.simulate(*given).q)


def test_simulations_are_interrupted_with_what_there_is():
    model = rd.load_urdf(own("double_pendulum"))

    def callback(t, q, qd):
        if t > 0.1:
            raise KeyboardInterrupt

    with pytest.warns(RuntimeWarning, match="simulate: interrupted at t ="):
        found = rd.simulate(model, [1.0, 0.5], [0.0, 0.0], 5.0, callback=callback)
    assert found.status == "interrupted" and found.t[-1] > 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"t_end": 0}, "t_end: got 0; wanted a positive"),
        ({"q0": np.zeros((2, 2))}, r"q0: got shape \(2, 2\); wanted one state"),
        ({"method": "Euler"}, "method: got 'Euler'; allowed: 'RK45'"),
        ({"rtol": -1.0}, "rtol: got -1.0"),
        ({"t_eval": [0.5, 0.1]}, "t_eval: got .*; wanted ascending times"),
        ({"events": [3]}, "events: got 3; wanted functions"),
        ({"events": None}, "events: got None; wanted functions"),
        ({"atol": np.ones(4)}, "atol: got array"),
        ({"rtol": np.inf}, "rtol: got inf; wanted a positive number"),
        ({"max_step": np.nan}, "max_step: got nan; wanted a positive number"),
        ({"tau": np.zeros((3, 2))}, r"tau: got shape \(3, 2\) for one state; wanted \(2,\)"),
        ({"f_ext": lambda *_: np.zeros((3, 2, 6))}, r"f_ext: got shape \(3, 2, 6\) for one state"),
        ({"events": lambda *_: "x"}, "events: what one returns: got 'x'"),
        ({"callback": 3}, "callback: got 3"),
        ({"tau": lambda *_: np.zeros(5)}, r"tau: got shape \(5,\)"),
    ],
)
def test_bad_arguments_of_simulations_are_named(change, message):
    model = rd.load_urdf(own("double_pendulum"))
    given = {"robot": model, "q0": np.zeros(2), "qd0": np.zeros(2), "t_end": 0.1}
    with pytest.raises(rd.ArgumentError, match=message):
        rd.simulate(**{**given, **change})
    with pytest.raises(rd.ArgumentError, match="robot: got a Dynamics in float32"):
        rd.simulate(rd.Dynamics(model, dtype="float32"), np.zeros(2), np.zeros(2), 0.1)
