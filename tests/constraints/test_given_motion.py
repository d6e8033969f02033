"""Rows whose motion is given: floors that move under an impact, with a restitution for each row."""

from __future__ import annotations

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
    dyn = make_dynamics(model, constraints=some(model, 2))
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
