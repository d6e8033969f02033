"""One target from a start nearby, the short way, gives what a batch of one gives."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from robots import own

import robodyn as rd


def both(ik, target, q0, **options):
    """The answers to a target, and to a batch of one, and the fields of their reports."""
    answers = ik.solve(target, q0, **options), ik.solve(target[None, None], q0[None], **options)
    names = ("converged", "residual", "constraint_residual", "iterations", "start")
    return [{"q": q, **{name: getattr(report, name) for name in names}} for q, report in answers]


@pytest.mark.parametrize("posture", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("robot", "base"), [("arm7", "fixed"), ("quadruped", "floating"), ("hand", "fixed")])
@pytest.mark.some(of=3, rest="matrix")
def test_it_is_a_batch_of_one(robot, base, dtype, posture):
    model = rd.load_urdf(own(robot), base=base)
    dyn, rng, link = rd.Dynamics(model), np.random.default_rng(0), model.link_names[-1]
    ik = rd.InverseKinematics(model, link, dtype=dtype, posture=model.random_configuration(rng) if posture else None)
    for size in (0.0, 1e-5, 1e-3, 0.1, 1.0):
        for _ in range(10):
            q = model.random_configuration(rng)
            target = dyn.link_pose(q, link).astype(dtype)
            q0 = model.integrate(q, size * rng.standard_normal(model.nv)).astype(dtype)
            for options in ({"seeds": 1}, {"seeds": 8, "tolerance": (1e-4, 1e-4)}, {"seeds": 2, "iterations": 3}):
                one, many = both(ik, target, q0, **options)
                for name, value in one.items():
                    assert value.dtype == many[name].dtype and value.shape == many[name].shape[1:], name
                    near = 1e-9 if dtype == "float64" else 1e-4
                    np.testing.assert_allclose(value, many[name][0], rtol=0, atol=near, err_msg=name)


def test_targets_that_are_none():
    model = rd.load_urdf(own("arm7"))
    ik, q = rd.InverseKinematics(model, model.link_names[-1]), model.neutral()
    good = rd.Dynamics(model).link_pose(q, model.link_names[-1])
    ik.solve(good, q)
    for bad in (np.full((4, 4), np.nan), np.zeros((4, 4)), 2.0 * good):
        found, report = ik.solve(bad, q)
        assert np.isnan(found).all() and not report.converged
    far = good + np.eye(4, k=3) * 100.0
    assert not ik.solve(far, q, seeds=2)[1].converged


def test_copies_and_pickles():
    model = rd.load_urdf(own("arm7"))
    ik, q = rd.InverseKinematics(model, model.link_names[-1]), model.neutral()
    target = rd.Dynamics(model).link_pose(q, model.link_names[-1])
    wanted = ik.solve(target, q + 0.01)[0]
    for other in (copy.deepcopy(ik), pickle.loads(pickle.dumps(ik))):
        np.testing.assert_array_equal(other.solve(target, q + 0.01)[0], wanted)
