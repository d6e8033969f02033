"""Assembly within position limits, against SciPy's bounded least squares and closed forms."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import robots
from scipy.optimize import least_squares

import robodyn as rd

pytestmark = pytest.mark.filterwarnings("ignore::robodyn.internals.errors.RedundantWarning")


def limited(model, lower, upper):
    return dataclasses.replace(
        model, tree_lower=np.full(model.nq_tree, lower), tree_upper=np.full(model.nq_tree, upper)
    )


@pytest.mark.parametrize("seed", range(8))
def test_within_limits_where_there_is_a_way(seed):
    """A chain with more joints than rows: reached within limits that assembly without them leaves."""
    rng = np.random.default_rng(seed)
    model = limited(rd.random_tree(8, seed=seed, joints=("revolute", "prismatic"), shape="chain"), -0.6, 0.6)
    inside = rng.uniform(-0.5, 0.5, model.nq)
    there = rd.Dynamics(model, engine="reference").link_pose(inside, model.link_names[-1])
    held = [rd.Point(model.link_names[-1], to_at=there[:3, 3])]
    starts = rng.uniform(-0.9, 0.9, (3, model.nq))
    q = model.assemble(starts, held, limits=True)
    assert (q >= -0.6).all() and (q <= 0.6).all()
    dyn = rd.Dynamics(model, engine="reference", constraints=held)
    assert np.abs(dyn.constraint_residual(q, np.zeros(model.nv))[0]).max() < 1e-10


def test_what_is_in_the_way_is_named():
    """Two rods of a pendulum that has to fold: a knee that bends one way alone, or not enough."""
    model = rd.load_urdf(robots.own("double_pendulum"))
    place = rd.Dynamics(model, engine="reference").link_pose([0.4, 1.2], "lower_rod")
    tip = np.array([0.0, 0.0, -0.4, 1.0])
    held = [rd.Point("lower_rod", at=tip[:3], to_at=(place @ tip)[:3])]
    q = model.assemble([0.3, 0.5], held)
    for lower, upper in ((-3.0, 3.0), (0.0, 3.0)):
        assert np.abs(limited(model, lower, upper).assemble([0.3, 0.5], held, limits=True) - q).max() < 1e-8
    for lower, upper, end in ((-3.0, 0.9, "upper limit 0.9"), (1.3, 3.0, "lower limit 1.3")):
        tight = limited(model, lower, upper)
        with pytest.raises(rd.AssemblyError, match=f"Position limits are in the way: .* at its {end}"):
            tight.assemble([0.3, 0.5], held, limits=True)

        def residual(x, tight=tight):
            dyn = rd.Dynamics(tight, engine="reference", constraints=held)
            return dyn.constraint_residual(x, np.zeros(2))[0]

        best = least_squares(residual, np.clip([0.3, 0.5], lower, upper), bounds=(lower, upper))
        assert best.cost > 1e-4
    with pytest.raises(
        rd.AssemblyError, match=r"is at 0\.5, beyond its limits -0\.1 and 0\.1, and no step moves it back"
    ):
        limited(model, -0.1, 0.1).assemble([0.05, 0.5], held, free=[model.joint_names[0]], limits=True)
    far = [rd.Point("lower_rod", to_at=(50.0, 0.0, 0.0))]
    with pytest.raises(rd.AssemblyError, match="not reachable") as told:
        limited(model, -3.0, 3.0).assemble([0.3, 0.5], far, limits=True)
    assert "in the way" not in str(told.value)
    with pytest.raises(rd.ArgumentError, match="limits: got 1"):
        model.assemble([0.3, 0.5], held, limits=1)


def test_mimics_and_floating_bases():
    """Limits are those that a joint and its followers keep to at once; free bases have none."""
    model = rd.random_tree(8, seed=5, joints=("revolute", "spherical"), base="floating", mimic=0.4)
    assert model.has_mimic
    model = limited(model, -0.7, 0.8)
    tree = np.where(np.isin(np.arange(model.nq_tree), np.flatnonzero(model.q_multiplier != 1.0)), 0.5, 0.8)
    wide = np.full(model.nq_tree, np.inf)
    single = [int(s) for s, k in zip(model.q_start, model.joint_kind, strict=True) if k == model.joint_kind[-1]]
    lower, upper = -wide, wide.copy()
    for at in single:
        lower[at], upper[at] = -tree[at], tree[at]
    model = dataclasses.replace(model, tree_lower=lower, tree_upper=upper)
    rng = np.random.default_rng(1)
    q0 = model.random_configuration(rng)
    link = model.link_names[-1]
    held = [rd.Weld(link, to_at=rd.Dynamics(model, engine="reference").link_pose(q0, link))]
    q = model.assemble(model.random_configuration(rng, (3,)), held, limits=True)
    assert (q >= model.lower - 1e-15).all() and (q <= model.upper + 1e-15).all()
    residual = rd.Dynamics(model, engine="reference", constraints=held).constraint_residual(q, np.zeros(model.nv))[0]
    assert np.abs(residual).max() < 1e-10
