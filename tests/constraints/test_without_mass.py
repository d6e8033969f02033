"""Robots whose mass matrix is singular and whose constraints hold what has no mass, against dense KKT systems."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
from conftest import random_states, relative
from test_constraint_gradients import differences, step_differences

import robodyn as rd

pytestmark = pytest.mark.filterwarnings("ignore::robodyn.internals.errors.RedundantWarning")


def light(base="fixed", mimic=False):
    """A tree with two links of no mass at its end, the last one held at a point: three joints move nothing but them."""
    options = {"joints": ("revolute",), "shape": "chain", "base": base}
    model = rd.random_tree(6, seed=3, mimic=0.3 if mimic else 0.0, **options)
    inertia = model.inertia.copy()
    inertia[-2:] = 0.0
    armature = model.tree_armature.copy()
    armature[-2:] = 0.0
    model = dataclasses.replace(model, inertia=inertia, tree_armature=armature)
    return dataclasses.replace(model, constraints=[rd.Point(model.link_names[-1], at=(0.1, 0.2, 0.3), name="tip")])


def kkt(model, q, r, force):
    """Accelerations and forces by the dense system [H J'; J 0], in double precision."""
    judge = rd.Dynamics(model, engine="reference", check=False)
    H, J = judge.mass_matrix(q), judge.constraint_jacobian(q)
    n, m = model.nv, len(J)
    both = np.block([[H, -J.T], [J, np.zeros((m, m))]])
    solved = np.linalg.lstsq(both, np.concatenate([force, -r]), rcond=1e-12)[0]
    return solved[:n], solved[n:]


@pytest.mark.parametrize(("base", "mimic"), [("fixed", False), ("floating", False), ("fixed", True)])
@pytest.mark.some(of=3, rest="matrix")
def test_accelerations_and_forces(base, mimic, make_dynamics, tolerance):
    model = light(base, mimic)
    dyn = make_dynamics(model)
    judge = rd.Dynamics(model, engine="reference", check=False)
    assert judge.singularity() is not None
    q, qd, tau = random_states(model, (3,), seed=1)
    a = np.array([0.3, -0.2, 0.1])
    qdd, lam = dyn.constrained_forward_dynamics(q, qd, tau, row_acceleration=a)
    after, impulse = dyn.impact(q, qd, 0.5, row_velocity=a)
    bias, r = judge.inverse_dynamics(q, qd, 0.0 * qd), judge.constraint_bias(q, qd, row_acceleration=a)
    phidot = judge.constraint_residual(q, qd)[1]
    for k in range(3):
        for found, wanted in (
            ((qdd[k], lam[k]), kkt(model, q[k], r[k], tau[k] - bias[k])),
            ((after[k] - qd[k], impulse[k]), kkt(model, q[k], 1.5 * (phidot[k] - a), np.zeros(model.nv))),
        ):
            for one, other in zip(found, wanted, strict=True):
                assert np.abs(one - other).max() < 1e5 * tolerance * np.abs(other).max()
    moved, _ = dyn.project(q, qd)
    before = judge.constraint_residual(q, qd)[0]
    step = np.array([kkt(model, q[k], before[k], np.zeros(model.nv))[0] for k in range(3)])
    assert np.abs(moved - model.integrate(q, step)).max() < 1e4 * tolerance * max(1.0, np.abs(step).max())


@pytest.mark.parametrize(("base", "mimic"), [("fixed", False), ("floating", False), ("fixed", True)])
@pytest.mark.some(of=6, rest="matrix")
def test_gradients(base, mimic, make_dynamics, tolerance):
    """Against differences in double precision, of accelerations, impacts and steps."""
    model = light(base, mimic)
    judge = rd.Dynamics(model, engine="reference")
    q, qd, tau = random_states(model, seed=1)
    targets = judge.constraint_targets(q)
    targets[:, 9:] += 0.01
    given = {"targets": targets, **({"V0": np.array([0.1, 0.2, -0.1, 0.3, 0.0, 0.2])} if mimic else {})}
    wanted = differences(model, partial(judge.constrained_forward_dynamics, **given), q, (qd, tau))
    wanted += differences(model, partial(judge.impact, restitution=0.3, **given), q, (qd,))
    wanted += step_differences(judge, q, qd, tau, 2e-3, **given)
    dyn = make_dynamics(model)
    found = dyn.constrained_forward_dynamics_gradient(q, qd, tau, **given)
    found += dyn.impact_gradient(q, qd, 0.3, **given) + dyn.step_gradient(q, qd, tau, 2e-3, **given)
    for one, other in zip(found, wanted, strict=True):
        assert relative(one, other) < max(1e-8, 2e2 * tolerance)


def test_what_is_not_held_is_named(make_dynamics):
    """Without the constraint, with one that holds something else, and in the rows of a batch where it is off."""
    model = light()
    q, qd, tau = random_states(model, (3,), seed=2)
    dyn = make_dynamics(model)
    active = np.array([[1], [0], [1]])
    for found in dyn.constrained_forward_dynamics(q, qd, tau, active=active):
        assert np.isnan(found[1]).any() and np.isfinite(found[[0, 2]]).all()
    with pytest.raises(rd.NumericalError, match="singular"):
        dyn.constrained_forward_dynamics(q[0], qd[0], tau[0], active=active[1])
    other = make_dynamics(model, constraints=[rd.Lock(model.joint_names[0])])
    with pytest.raises(rd.SingularError, match=r"The constraints do not hold .* either"):
        other.constrained_forward_dynamics(q, qd, tau)
    with pytest.raises(rd.SingularError, match=r"The constraints do not hold .* either"):
        other.constrained_forward_dynamics_gradient(q, qd, tau)
    for refused in (dyn.forward_dynamics, dyn.delassus):
        with pytest.raises(rd.SingularError, match="has no inertia that its joint"):
            refused(q, qd, tau)


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.some(of=1, when="matrix")
def test_rollouts_and_inverse_dynamics(engine):
    """The motion is that of a robot whose light links weigh next to nothing, and conserves energy."""
    model = light()
    q, qd, _ = random_states(model, seed=5)
    dyn = rd.Dynamics(model, engine=engine)
    targets = dyn.constraint_targets(q)
    qd, _ = dyn.impact(q, qd, None, targets)
    heavy = model.inertia.copy()
    heavy[-2:] = [1e-6, 0, 0, 0, 1e-8, 0, 0, 1e-8, 0, 1e-8]
    other = rd.Dynamics(dataclasses.replace(model, inertia=heavy), engine=engine)
    found = dyn.rollout(q, qd, dt=1e-3, steps=50, targets=targets, integrator="rk4")
    wanted = other.rollout(q, qd, dt=1e-3, steps=50, targets=targets, integrator="rk4")
    assert np.abs(found.q - wanted.q).max() < 1e-6
    energy = dyn.kinetic_energy(found.q, found.qd) + dyn.potential_energy(found.q)
    assert np.abs(energy - energy[0]).max() < 1e-10 * max(1.0, np.abs(energy[0]))
    tau = np.linspace(-1.0, 1.0, model.nv)
    qdd, _ = dyn.constrained_forward_dynamics(q, qd, tau, targets)
    drive, _ = dyn.constrained_inverse_dynamics(q, qd, qdd, None, targets)
    assert np.abs(dyn.constrained_forward_dynamics(q, qd, drive, targets)[0] - qdd).max() < 1e-6 * np.abs(qdd).max()


@pytest.mark.matrix
def test_large_trees():
    """Too large for a program: a chain of many links whose last ones weigh nothing."""
    chain = rd.auto_tree(400)
    inertia = chain.inertia.copy()
    inertia[-2:] = 0.0
    model = dataclasses.replace(chain, inertia=inertia, constraints=[rd.Weld(chain.link_names[-1])])
    dyn = rd.Dynamics(model, engine="cpu")
    q, qd, tau = (1e-3 * each for each in random_states(model, (2,), seed=0))
    qdd, lam = dyn.constrained_forward_dynamics(q, qd, tau)
    J = dyn.constraint_jacobian(q)
    need = dyn.inverse_dynamics(q, qd, qdd) - tau - np.einsum("bmi,bm->bi", J, lam)
    assert np.abs(need).max() < 1e-6 * np.abs(lam).max()
    rows = np.einsum("bmi,bi->bm", J, qdd) + dyn.constraint_bias(q, qd)
    assert np.abs(rows).max() < 1e-6 * np.abs(qdd).max()
