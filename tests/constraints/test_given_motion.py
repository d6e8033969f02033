"""Rows whose motion is given: floors that move and accelerate, driven joints, a restitution for each row."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import robots
from conftest import random_states
from robots import of_every_kind
from test_constraints import some

import robodyn as rd

pytestmark = pytest.mark.filterwarnings("ignore::robodyn.internals.errors.RedundantWarning")


def standing():
    """A quadruped that floats, its feet, and a state."""
    model = rd.load_urdf(robots.own("quadruped"), base="floating")
    feet = [rd.Point(name) for name in model.link_names if name.endswith("_foot")]
    return model, feet, random_states(model, (3,), seed=11)


def rates(dyn, q, qd, **options):
    """phidot in double precision."""
    return rd.Dynamics(dyn.model, engine="reference").constraint_residual(q, qd, **options)[1]


@pytest.mark.some(of=2, rest="matrix")
def test_rows_rebound_from_what_moves(make_dynamics, tolerance):
    """phidot+ = v - e (phidot - v) for rows that are active, with mimics and a moving base; others have no impulse."""
    model = of_every_kind()
    point, _, rod, *_ = some(model, 2)  # others depend on these, so that not every motion of rows is possible
    dyn = make_dynamics(model, constraints=[point, rod])
    q, qd, _ = random_states(model, (3,), seed=2)
    rng = np.random.default_rng(3)
    m = dyn.model.n_rows
    v, e, base = rng.standard_normal((3, m)), rng.uniform(size=m), {"V0": rng.standard_normal(6)}
    active = np.ones((3, dyn.model.n_constraints))
    active[1, 0] = 0.0
    holds = np.ones((3, m), bool)
    holds[1, :3] = False
    before = rates(dyn, q, qd, **base)
    after, impulse = dyn.impact(q, qd, row_velocity=v, row_restitution=e, active=active, **base)
    off = rates(dyn, q, after, **base) - (v - e * (before - v))
    assert np.abs(off[holds]).max() < 1e4 * tolerance * np.abs(before).max()
    assert not np.asarray(impulse)[~holds].any()
    same, same_impulse = dyn.impact(q, qd, 0.3, row_velocity=v)
    again, again_impulse = dyn.impact(q, qd, row_velocity=v, row_restitution=np.full(m, 0.3))
    assert np.abs(same - again).max() < 1e4 * tolerance * np.abs(same).max()
    assert np.abs(same_impulse - again_impulse).max() < 1e4 * tolerance * np.abs(same_impulse).max()


def test_a_floor_that_moves_is_a_robot_that_moves_the_other_way(make_dynamics, tolerance):
    """Galilei: on a floor of velocity w the robot lands as one whose base moves by -w lands on a floor at rest."""
    model, feet, (q, qd, _) = standing()
    w = np.array([0.7, -0.4, 1.1])
    dyn = make_dynamics(model, constraints=feet)
    R = rd.Dynamics(model, engine="reference").link_pose(q, model.link_names[0])[:, :3, :3]
    shift = np.zeros_like(qd)
    shift[:, :3] = np.einsum("bji,j->bi", R, w)
    wanted, push = dyn.impact(q, qd - shift, 0.4)
    found, impulse = dyn.impact(q, qd, 0.4, row_velocity=np.tile(w, len(feet)))
    assert np.abs(found - (wanted + shift)).max() < 1e3 * tolerance * np.abs(found).max()
    assert np.abs(impulse - push).max() < 1e3 * tolerance * np.abs(push).max()


def test_two_restitutions_are_refused(make_dynamics):
    model, feet, (q, qd, _) = standing()
    dyn = make_dynamics(model, constraints=feet)
    with pytest.raises(rd.ArgumentError, match="restitution, row_restitution: got both"):
        dyn.impact(q, qd, 0.5, row_restitution=np.zeros(12))
    with pytest.raises(rd.ArgumentError, match=r"row_velocity: got shape \(4,\); .*: a number for each row"):
        dyn.impact(q, qd, row_velocity=np.zeros(4))


@pytest.mark.some(of=2, rest="matrix")
def test_rows_accelerate_as_they_are_told(make_dynamics, tolerance):
    """J qdd + r = a + k_v v for rows that are active: A lambda + v_free is zero, and both move what rows do without."""
    model = of_every_kind()
    dyn = make_dynamics(model, constraints=some(model, 1))
    q, qd, tau = random_states(model, (3,), seed=4)
    rng = np.random.default_rng(4)
    a, v = rng.standard_normal((2, 3, dyn.model.n_rows))
    given = {"row_acceleration": a, "row_velocity": v, "V0": rng.standard_normal(6), "dV0": rng.standard_normal(6)}
    judge = rd.Dynamics(dyn.model, engine="reference")
    base = {name: given[name] for name in ("V0", "dV0")}
    gains = np.zeros(dyn.model.n_rows)
    gains[:3], gains[6:7] = 2 * 3.0 * 0.7, 2 * 2.0
    active = np.array(
        [[1] * dyn.model.n_constraints, [0, *[1] * (dyn.model.n_constraints - 1)], [0] * dyn.model.n_constraints]
    )
    for holds in (None, active):
        _, lam = dyn.constrained_forward_dynamics(q, qd, tau, active=holds, **given)
        A, v_free = judge.delassus(q, qd, tau, active=holds, **base)
        rows = (
            np.ones(lam.shape)
            if holds is None
            else np.repeat(holds, [len(c.rows) for c in dyn.model.constraints], axis=1)
        )
        left = np.einsum("...ij,...j->...i", A, lam) + v_free - rows * (a + gains * v)
        assert np.abs(left).max() < 1e4 * tolerance * np.abs(v_free).max()
        assert np.abs(np.asarray(lam)[rows == 0]).max(initial=0.0) == 0.0
        A, v_free = dyn.delassus(q, qd, tau, active=holds, **given)
        left = np.einsum("...ij,...j->...i", A, lam) + v_free
        assert np.abs(left).max() < 1e4 * tolerance * np.abs(v_free).max()


def test_a_floor_that_accelerates_is_another_gravity(make_dynamics, tolerance):
    """Einstein's lift: on a floor of acceleration w the robot moves as in gravity g - w on a floor at rest."""
    model, feet, (q, qd, tau) = standing()
    w = np.array([0.7, -0.4, 1.1])
    R = rd.Dynamics(model, engine="reference").link_pose(q, model.link_names[0])[:, :3, :3]
    dyn = make_dynamics(model, constraints=feet)
    other = make_dynamics(dataclasses.replace(model, gravity=model.gravity - w), constraints=feet)
    wanted, push = other.constrained_forward_dynamics(q, qd, tau)
    found, force = dyn.constrained_forward_dynamics(q, qd, tau, row_acceleration=np.tile(w, len(feet)))
    shift = np.zeros_like(qd)
    shift[:, :3] = np.einsum("bji,j->bi", R, w)
    assert np.abs(found - (wanted + shift)).max() < 1e4 * tolerance * np.abs(found).max()
    assert np.abs(force - push).max() < 1e4 * tolerance * np.abs(push).max()
    drive, _ = dyn.constrained_inverse_dynamics(q[0], qd[0], found[0], row_acceleration=np.tile(w, len(feet)))
    again, _ = dyn.constrained_forward_dynamics(q[0], qd[0], drive, row_acceleration=np.tile(w, len(feet)))
    assert np.abs(again - found[0]).max() < 1e5 * tolerance * np.abs(found).max()
    with pytest.raises(rd.NumericalError, match="the constraints do not allow these accelerations"):
        dyn.constrained_inverse_dynamics(q[0], qd[0], found[0])


def test_a_foothold_on_a_path():
    """The foot stays on a target that moves: second differences of the residual vanish."""
    model, feet, (q, qd, tau) = standing()
    dyn = rd.Dynamics(model, engine="cpu", constraints=feet)
    start, q, qd, tau = dyn.constraint_targets(q[0]), q[0], qd[0], tau[0]
    start[:, :9] = np.eye(3).ravel()
    v, a = np.random.default_rng(5).standard_normal((2, 4, 3))

    def there(t):
        targets = start.copy()
        targets[:, 9:] += t * v + 0.5 * t * t * a
        return targets

    qd, _ = dyn.impact(q, qd, None, start, row_velocity=v.ravel())
    qdd, _ = dyn.constrained_forward_dynamics(q, qd, tau, start, row_acceleration=a.ravel())

    def off(t):
        return dyn.constraint_residual(model.integrate(q, t * qd + 0.5 * t * t * qdd), qd, there(t))[0]

    h = 1e-4
    assert np.abs(off(h) + off(-h)).max() / h**2 < 1e-2 * np.abs(qdd).max()
    assert np.abs(off(h) - off(-h)).max() / h < 1e-4 * np.abs(qd).max()


def test_a_driven_joint(make_dynamics, tolerance):
    """A joint that a lock drives: the force of the lock is what inverse dynamics says of the whole motion."""
    model = rd.load_urdf(robots.own("double_pendulum"))
    dyn = make_dynamics(model, constraints=[rd.Lock("elbow", 0.4)])
    q, qd, tau = np.array([0.3, 0.4]), np.array([1.0, -2.0]), np.array([0.1, 0.2])
    qdd, lam = dyn.constrained_forward_dynamics(q, qd, tau, row_acceleration=[3.0])
    wanted = rd.Dynamics(model, engine="reference").inverse_dynamics(q, qd, qdd) - tau
    assert abs(qdd[1] - 3.0) < 1e2 * tolerance and np.abs(wanted - [0.0, lam[0]]).max() < 1e3 * tolerance * abs(lam[0])
