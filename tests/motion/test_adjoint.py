"""Gradients of rollouts: against differences of rollouts, matrices of steps, and each engine against the others."""

from __future__ import annotations

import dataclasses
import tracemalloc
from typing import Any

import numpy as np
import pytest
from conftest import nothing_compiles, random_states, relative
from driven import MATCHED, ROBOTS, every_kind, everything
from robots import own

import robodyn as rd
from robodyn.api.motion import adjoint

STEPS, EVERY, KEPT, DT = 7, 3, 4, 2e-3
SMALL = 1e-6
GENTLE = ("every_kind", "mimicking", "quadruped")


def weights(model: rd.Model, shape: tuple[int, ...], kept: int = KEPT) -> dict[str, Any]:
    print("weights: seed 3")
    q_weight, qd_weight = np.random.default_rng(3).normal(size=(2, kept, *shape, model.nv))
    return {"q_weight": q_weight, "qd_weight": qd_weight}


def differences(dyn: rd.Dynamics, arrays: dict[str, Any], name: str, along: Any, given: Any, **options: Any) -> float:
    """The rate of weights times states while one of the arrays changes along a direction, by central differences."""
    model, sums = dyn.model, []

    def states(arrays: dict[str, Any]) -> rd.Rollout:
        return dyn.rollout(**arrays, dt=DT, steps=STEPS, save_every=EVERY, **options)

    middle = states(arrays)
    for sign in (SMALL, -SMALL):
        moved = model.integrate(arrays[name], sign * along) if name in ("q0", "q_des") else arrays[name] + sign * along
        found = states({**arrays, name: moved})
        sums.append((given["q_weight"] * model.difference(middle.q, found.q)).sum())
        sums[-1] += (given["qd_weight"] * (found.qd - middle.qd)).sum()
    return (sums[0] - sums[1]) / (2.0 * SMALL)


@pytest.mark.filterwarnings("ignore:rollout. .* is unstable:RuntimeWarning")
@pytest.mark.parametrize("robot, integrator", MATCHED)
@pytest.mark.some(of=6, rest="matrix")
def test_it_is_what_differences_say(robot, integrator):
    """By everything that a step can be given, also tau and base motions of each step."""
    model, shape = ROBOTS[robot](), (2,)
    q, qd, tau = random_states(model, shape)
    given, rng = everything(model, shape), np.random.default_rng(4)
    given |= {name: rng.normal(size=(STEPS, *given[name].shape)) for name in ("V0", "dV0")}
    arrays = {"q0": q, "qd0": qd, "tau": tau * rng.normal(size=(STEPS, 1, 1)), **given}
    dyn, weighted = rd.Dynamics(model, engine="cpu"), weights(model, shape)
    found = dyn.rollout_vjp(
        **arrays, dt=DT, steps=STEPS, save_every=EVERY, integrator=integrator, wrt=tuple(arrays), **weighted
    )
    assert tuple(found) == tuple(arrays)
    for name, gradient in found.items():
        along = rng.normal(size=gradient.shape)
        wanted = differences(dyn, arrays, name, along, weighted, integrator=integrator)
        assert abs((gradient * along).sum() - wanted) < 1e-6 * max(1.0, abs(wanted)), name


@pytest.mark.parametrize("robot", GENTLE)
@pytest.mark.parametrize("limits", [(), ("effort", "velocity", "position")])
@pytest.mark.some(of=3, when="matrix")
def test_programs_and_matrices_agree(robot, limits, monkeypatch):
    model = ROBOTS[robot]()
    bounds = {"tree_effort": 2.0, "tree_velocity": 1.0}
    model = dataclasses.replace(model, **{name: np.full(model.nv_tree, value) for name, value in bounds.items()})
    q, qd, tau = random_states(model, (3,))
    options = {"limits": limits, "damping": np.full(model.nv, 0.1), "steps": 12, **weights(model, (3,), 13)}
    dyn = rd.Dynamics(model, engine="cpu")
    wanted = dyn.rollout_vjp(q, qd, tau, DT, **options)
    monkeypatch.setattr(adjoint._Programs, "there", lambda self: False)
    found = dyn.rollout_vjp(q, qd, tau, DT, **options)
    for name in wanted:
        assert relative(found[name], wanted[name]) < 1e-10, name


@pytest.mark.parametrize("robot", GENTLE)
@pytest.mark.some(of=6, rest="matrix")
def test_every_engine_and_dtype(robot, make_dynamics, tolerance):
    model = ROBOTS[robot]()
    q, qd, tau = random_states(model, (3,))
    options = {"steps": STEPS, "save_every": EVERY, "kp": np.full(model.nv, 5.0), "q_des": q, **weights(model, (3,))}
    wrt = ("tau", "kp", "q_des", "q0", "qd0")
    wanted = rd.Dynamics(model, engine="cpu").rollout_vjp(q, qd, tau, DT, wrt=wrt, **options)
    found = make_dynamics(model).rollout_vjp(q, qd, tau, DT, wrt=wrt, **options)
    assert tuple(found) == wrt
    for name in wrt:
        assert found[name].dtype == make_dynamics(model).dtype
        assert relative(found[name], wanted[name]) < 100 * tolerance, name


@pytest.mark.matrix
def test_scans_are_stepped_by_recursions():
    model = ROBOTS["quadruped"]()
    q, qd, tau = random_states(model, (3,))
    options = {"steps": STEPS, "save_every": EVERY, **weights(model, (3,))}
    wanted = rd.Dynamics(model, engine="cpu").rollout_vjp(q, qd, tau, DT, **options)
    found = rd.Dynamics(model, engine="scan").rollout_vjp(q, qd, tau, DT, **options)
    assert all(relative(found[name], wanted[name]) < 1e-9 for name in wanted)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,)])
@pytest.mark.parametrize("save_every", [1, 3, None])
def test_shapes(shape, save_every):
    model = every_kind()
    q, qd, tau = random_states(model, shape)
    dyn, kept = rd.Dynamics(model, engine="cpu"), {1: 6, 3: 3, None: 2}[save_every]
    weighted = weights(model, shape, kept)
    found = dyn.rollout_vjp(q, qd, np.stack([tau] * 5), DT, 5, save_every=save_every, **weighted)
    assert {name: array.shape for name, array in found.items()} == {
        "q0": (*shape, model.nv),
        "qd0": (*shape, model.nv),
        "tau": (5, *shape, model.nv),
    }
    constant = dyn.rollout_vjp(q, qd, tau, DT, 5, save_every=save_every, wrt="tau", **weighted)
    assert relative(constant["tau"], found["tau"].sum(axis=0)) < 1e-10
    nothing = dyn.rollout_vjp(q, qd, tau, DT, 5, save_every=save_every)
    assert all(not array.any() for array in nothing.values())


def test_the_last_state_by_powers_of_the_steps_matrix():
    """A robot that stands: A is the same in each step, and weights of the last state go back by powers of it."""
    model = dataclasses.replace(rd.load_urdf(own("arm6")), gravity=np.zeros(3))
    dyn, q = rd.Dynamics(model), np.full(6, 0.3)
    A, B = dyn.step_gradient(q, np.zeros(6), dt=DT)
    weighted = weights(model, (), 2)
    found = dyn.rollout_vjp(q, np.zeros(6), np.zeros((20, 6)), DT, 20, save_every=None, **weighted)
    first, last = (np.concatenate([each[k] for each in weighted.values()]) for k in (0, 1))
    state = np.concatenate([found["q0"], found["qd0"]])
    assert relative(state, first + last @ np.linalg.matrix_power(A, 20)) < 1e-10
    for k in range(20):
        assert relative(found["tau"][k], last @ np.linalg.matrix_power(A, 19 - k) @ B) < 1e-10


def test_memory_is_that_of_two_square_roots_of_the_steps():
    """1,000 steps of 64 quadrupeds are 18 MB; 2 sqrt(1,000) of them 1.2, besides single steps."""
    model, batch = ROBOTS["quadruped"](), 64
    q, qd, tau = random_states(model, (batch,))
    dyn, options = rd.Dynamics(model, engine="cpu", check=False), {"save_every": None, **weights(model, (batch,), 2)}
    dyn.rollout_vjp(q, qd, tau, 1e-5, 5, **options)
    state = batch * (model.nq + model.nv) * 8
    nothing_compiles()
    tracemalloc.start()
    dyn.rollout_vjp(q, qd, tau, 1e-5, 1000, **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (2 * 1000**0.5 + 30) * state


def test_large_robots_have_no_more_than_states_and_tau():
    model = rd.random_tree(260, seed=1, shape="chain")
    q, qd, tau = random_states(model)
    dyn = rd.Dynamics(model, engine="cpu")
    weighted = weights(model, (), 4)
    found = dyn.rollout_vjp(q, 0 * qd, tau, 1e-4, 3, **weighted)
    along = np.random.default_rng(0).normal(size=(3, model.nv))
    ends = [dyn.rollout(q + s * along[0], s * along[1], tau + s * along[2], 1e-4, 3) for s in (1e-6, -1e-6)]
    change = (ends[0].q - ends[1].q) / 2e-6, (ends[0].qd - ends[1].qd) / 2e-6
    wanted = (weighted["q_weight"] * change[0] + weighted["qd_weight"] * change[1]).sum()
    got = sum((found[name] * each).sum() for name, each in zip(("q0", "qd0", "tau"), along, strict=True))
    assert abs(got - wanted) < 1e-5 * abs(wanted)
    with pytest.raises(rd.UnavailableError, match="by 'damping' takes; wanted wrt of 'q0', 'qd0' and 'tau'"):
        dyn.rollout_vjp(q, qd, tau, 1e-4, 3, damping=np.ones(model.nv), wrt="damping")


def test_rows_that_diverge_have_nan_and_the_others_do_not():
    model = rd.load_urdf(own("arm6"))
    q, qd, tau = random_states(model, (3,))
    dyn, weighted = rd.Dynamics(model, engine="cpu"), weights(model, (3,), 6)
    wanted = dyn.rollout_vjp(q, qd, tau, DT, 5, **weighted)
    tau[1] = 1e300
    with pytest.warns(RuntimeWarning, match="1 of 3 rows diverged; their gradients are NaN"):
        found = dyn.rollout_vjp(q, qd, tau, DT, 5, **weighted)
    for name, array in found.items():
        assert np.isnan(array[1]).all()
        assert np.array_equal(array[[0, 2]], wanted[name][[0, 2]])
    with pytest.warns(RuntimeWarning), pytest.raises(rd.NumericalError):
        rd.Dynamics(model, check=True).rollout_vjp(q, qd, tau, DT, 5, **weighted)


def test_bad_arguments_are_named():
    dyn = rd.Dynamics(rd.load_urdf(own("arm6")))
    q = np.zeros(6)
    for options, text in (
        ({"wrt": "kp"}, "wrt: got 'kp'; allowed: 'q0', 'qd0', 'tau'"),
        ({"wrt": ()}, "wrt: got"),
        ({"wrt": 3}, "wrt: got 3"),
        ({"steps": 0}, "steps: got 0"),
        ({"q_weight": np.zeros((3, 6))}, r"q_weight: got shape \(3, 6\); wanted \(6, 6\), 6 states being kept"),
        ({"qd_weight": np.zeros(5)}, "qd_weight: got shape"),
        ({"integrator": "rk5"}, "integrator: got 'rk5'"),
    ):
        with pytest.raises(rd.ArgumentError, match=text):
            dyn.rollout_vjp(q, q, **{"steps": 5, **options})
    with pytest.raises(rd.NumericalError, match="q_weight"):
        dyn.rollout_vjp(q, q, steps=5, q_weight=np.full(6, np.nan))


def test_nothing_moves():
    nothing = rd.Dynamics(rd.random_tree(0, seed=0))
    assert nothing.rollout_vjp(np.zeros(0), np.zeros(0), steps=3)["q0"].shape == (0,)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "euler", "midpoint"])
@pytest.mark.some(of=2, when="matrix")
def test_at_rest_and_upright_there_are_no_kinks(integrator, dtype):
    """Norms of zero, and quaternions with zeros: weights go back as the step's matrices say."""
    model = ROBOTS["quadruped"]()
    for engine in ("reference", "cpu"):
        dyn = rd.Dynamics(dataclasses.replace(model, gravity=np.zeros(3)), engine=engine, dtype=dtype)
        for q in (model.random_configuration(0), model.neutral()):
            A, B = dyn.step_gradient(q, np.zeros(model.nv), integrator=integrator)
            weight = np.random.default_rng(0).normal(size=(2, 2, model.nv))
            weight[:, 0] = 0.0
            found = dyn.rollout_vjp(
                q, np.zeros(model.nv), steps=1, integrator=integrator, q_weight=weight[0], qd_weight=weight[1]
            )
            last = np.concatenate(weight[:, 1])
            small = 1e-9 if dtype == "float64" else 1e-3
            assert relative(np.concatenate([found["q0"], found["qd0"]]), last @ A) < small
            assert relative(found["tau"], last @ B) < small


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_kinks_have_a_side(dtype):
    """At limits, at no torque where torques have bounds, and half a turn from a target."""
    arm = rd.load_urdf(own("arm6"))
    dyn, zero = rd.Dynamics(arm, dtype=dtype), np.zeros(6)
    for start, tau, limits in ((zero, zero, "effort"), (arm.upper, zero + 1e3, ("effort", "velocity", "position"))):
        found = dyn.rollout_vjp(start, zero, tau, 1e-3, 1, q_weight=zero + 1.0, limits=limits)
        assert all(np.isfinite(each).all() for each in found.values())
    model = rd.random_tree(1, seed=0, base="floating")
    dyn, q = rd.Dynamics(model, dtype=dtype), model.random_configuration(0)
    q_des = model.integrate(q, np.pi * np.eye(model.nv)[3])
    given, weight = {"kp": np.full(model.nv, 10.0), "q_des": q_des}, np.ones(model.nv)
    found = dyn.rollout_vjp(q, 0 * weight, None, 1e-2, 1, qd_weight=weight, save_every=None, **given)
    A, _ = dyn.step_gradient(q, 0 * weight, None, 1e-2, **given)
    assert np.abs(found["q0"]).max() < 100.0
    assert relative(found["qd0"] - weight, weight @ A[model.nv :, model.nv :]) < 1e-3


def test_targets_of_any_length_have_the_same_gradient():
    model = rd.random_tree(2, seed=0, joints=("spherical",), base="floating")
    dyn, rng = rd.Dynamics(model), np.random.default_rng(0)
    q, goal, weight = model.random_configuration(rng), model.random_configuration(rng), rng.normal(size=model.nv)
    long = goal.copy()
    for start in model.quaternion_starts:
        long[start : start + 4] *= 3.0
    zero = np.zeros(model.nv)
    options = {"qd_weight": weight, "kp": zero + 10.0, "wrt": "q_des", "save_every": None}
    wanted, found = (dyn.rollout_vjp(q, zero, None, 1e-2, 3, q_des=each, **options) for each in (goal, long))
    assert relative(found["q_des"], wanted["q_des"]) < 1e-12
    long[model.quaternion_starts[0] :][:4] = 0.0
    with pytest.raises(rd.ArgumentError, match=r"q_des: .*zero length"):
        dyn.step(q, zero, kp=zero + 1.0, q_des=long)
