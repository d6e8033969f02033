"""Derivatives of integrate and difference: against differences, Pinocchio, and each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from conftest import random_states
from robots import own

import robodyn as rd
from robodyn.joints import KINDS

EVERY = tuple(kind.name for kind in KINDS)
STEP = 1e-5


@pytest.fixture(scope="module")
def awkward() -> rd.Model:
    return rd.random_tree(9, seed=4, joints=EVERY)


def small(model: rd.Model) -> np.ndarray:
    return STEP * np.eye(model.nv)


@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-3, 0.3, 0.9999, 1.0001, 3.0, 20.0])
def test_they_are_what_differences_say(size, awkward):
    rng = np.random.default_rng(0)
    q, qd, dt = awkward.random_configuration(rng), rng.normal(size=awkward.nv), 0.7
    qd *= size / 0.7
    moved = awkward.integrate(q, qd, dt)
    by_q, by_qd = awkward.integrate_gradient(q, qd, dt)
    for got, ends in (
        (by_q, [awkward.integrate(awkward.integrate(q, s * small(awkward)), qd, dt) for s in (1.0, -1.0)]),
        (by_qd, [awkward.integrate(q, qd + s * small(awkward), dt) for s in (1.0, -1.0)]),
    ):
        wanted = (awkward.difference(moved, ends[0]) - awkward.difference(moved, ends[1])).T / (2 * STEP)
        assert np.abs(got - wanted).max() < 1e-8 * max(1.0, size)
    by_q0, by_q1 = awkward.difference_gradient(q, moved)
    back = awkward.difference(q, moved)
    for got, ends in (
        (by_q0, [awkward.difference(awkward.integrate(q, s * small(awkward)), moved) for s in (1.0, -1.0)]),
        (by_q1, [awkward.difference(q, awkward.integrate(moved, s * small(awkward))) for s in (1.0, -1.0)]),
    ):
        wanted = (ends[0] - ends[1]).T / (2 * STEP)
        assert np.abs(got - wanted).max() < 1e-7 * max(1.0, np.abs(back).max() ** 2)


@pytest.mark.parametrize("kind", EVERY)
def test_moving_and_taking_apart_undo_each_other(kind):
    """Where no angle is beyond pi: d (q (+) u (-) q) / du = 1, and by q with q (+) u following it is zero."""
    model = rd.random_tree(3, seed=1, joints=(kind,))
    rng = np.random.default_rng(1)
    q, u = model.random_configuration(rng, (50,)), rng.uniform(-1.5, 1.5, (50, model.nv))
    by_q, by_u = model.integrate_gradient(q, u)
    by_q0, by_q1 = model.difference_gradient(q, model.integrate(q, u))
    assert np.abs(by_q1 @ by_u - np.eye(model.nv)).max() < 1e-13
    assert np.abs(by_q0 + by_q1 @ by_q).max() < 1e-12


def test_they_are_pinocchios():
    pin = pytest.importorskip("pinocchio")
    made = pin.Model()
    made.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "base")
    made.addJoint(1, pin.JointModelSpherical(), pin.SE3.Random(), "ball")
    made.addJoint(2, pin.JointModelRZ(), pin.SE3.Random(), "hinge")
    parts = [rd.random_tree(1, seed=0, joints=(kind,)) for kind in ("floating", "spherical", "revolute")]
    rng = np.random.default_rng(3)
    for size in (0.0, 1e-4, 0.1, 1.0, 2.5):
        q = np.concatenate([part.random_configuration(rng) for part in parts])
        u = rng.normal(size=10)
        u *= size / np.linalg.norm(u) if size else 0.0
        moved = pin.integrate(made, q, u)
        wanted = [pin.dIntegrate(made, q, u, arg) for arg in (pin.ARG0, pin.ARG1)]
        apart = [pin.dDifference(made, q, moved, arg) for arg in (pin.ARG0, pin.ARG1)]
        q_at, v_at = ([0, *itertools.accumulate(sizes)] for sizes in ((7, 4, 1), (6, 3, 1)))
        for k, part in enumerate(parts):
            at, on = slice(q_at[k], q_at[k + 1]), slice(v_at[k], v_at[k + 1])
            got = part.integrate_gradient(q[at], u[on]), part.difference_gradient(q[at], moved[at])
            for pair, theirs in zip(got, (wanted, apart), strict=True):
                for mine, other in zip(pair, theirs, strict=True):
                    assert np.abs(mine - other[on, on]).max() < 1e-9, (size, k)


def test_batches_broadcast_and_rows_are_their_own(awkward):
    rng = np.random.default_rng(0)
    q, qd = awkward.random_configuration(rng, (3, 1)), rng.normal(size=(2, awkward.nv))
    by_q, by_qd = awkward.integrate_gradient(q, qd, np.array([0.1, 0.2]))
    assert by_q.shape == by_qd.shape == (3, 2, awkward.nv, awkward.nv)
    one = awkward.integrate_gradient(q[1, 0], qd[1], 0.2)
    assert np.array_equal(by_q[1, 1], one[0]) and np.array_equal(by_qd[1, 1], one[1])
    qd[0, 0] = np.nan
    assert np.isfinite(awkward.integrate_gradient(q, qd)[1][:, 1]).all()
    none = awkward.integrate_gradient(np.zeros((0, awkward.nq)), np.zeros((0, awkward.nv)))
    assert none[0].shape == (0, awkward.nv, awkward.nv)


def test_bad_arguments_are_named(awkward):
    q = awkward.neutral()
    with pytest.raises(rd.ArgumentError, match="qd: got shape"):
        awkward.integrate_gradient(q, np.zeros(3))
    with pytest.raises(rd.ArgumentError, match="q1: got shape"):
        awkward.difference_gradient(q, np.zeros(3))


def test_the_derivative_of_a_step_of_a_floating_robot():
    """Written out, semi-implicit Euler."""
    model = rd.load_urdf(own("quadruped"), base="floating")
    dyn, dt, nv = rd.Dynamics(model), 0.02, model.nv
    q, qd, tau = random_states(model)

    def step(dx: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        at, speed = model.integrate(q, dx[:nv]), qd + dx[nv : 2 * nv]
        after = speed + dt * dyn.forward_dynamics(at, speed, tau + dx[2 * nv :])
        return model.integrate(at, after, dt), after

    by_q, by_qd, by_tau = dyn.forward_dynamics_gradient(q, qd, tau)
    dqd = np.concatenate([dt * by_q, np.eye(nv) + dt * by_qd, dt * by_tau], axis=-1)
    there, after = step(np.zeros(3 * nv))
    moved_by_q, moved_by_qd = model.integrate_gradient(q, after, dt)
    dq = moved_by_qd @ dqd
    dq[:, :nv] += moved_by_q
    naive = dt * dqd
    naive[:, :nv] += np.eye(nv)
    wanted = np.empty((2 * nv, 3 * nv))
    for k, unit in enumerate(1e-4 * np.eye(3 * nv)):
        ends = [step(s * unit) for s in (2.0, 1.0, -1.0, -2.0)]
        for rows, values in (
            (slice(0, nv), [model.difference(there, each[0]) for each in ends]),
            (slice(nv, None), [each[1] for each in ends]),
        ):
            wanted[rows, k] = (8.0 * (values[1] - values[2]) - (values[0] - values[3])) / 12e-4
    size = np.abs(wanted).max()
    assert np.abs(np.concatenate([dq, dqd]) - wanted).max() < 1e-9 * size
    assert np.abs(naive - wanted[:nv]).max() > 1e-3
