"""Scans of backward passes beside the recursion, and trajectories by either."""

from __future__ import annotations

import numpy as np
import pytest
from robots import own
from test_backward_pass import problems, recursion

import robodyn as rd
from robodyn.solve.trajectories.riccati_scan import RiccatiScan, counts

ROUNDING = {"float64": 1e-9, "float32": 1e-3}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", [((7, 7, 40), 6), ((3, 1, 50), 8), ((2, 2, 9), 9), ((1, 1, 1), None)], ids=str)
@pytest.mark.some(of=3, rest="kernels")
def test_scan(size, dtype):
    """Time-varying steps and costs, gaps, products of states and controls; mu is part of luu. Some knots are left over
    in front of the stretches."""
    (nv, nu, steps), length = size
    given = problems(np.random.default_rng(steps), nv, nu, steps, 3, dtype)
    given["mu"][0] = 0.0
    *found, ok = RiccatiScan(nv, nu, steps, dtype=dtype, length=length)(**given)
    assert ok.all()
    given["luu"] = given["luu"] + given["mu"][:, None, None, None] * np.eye(nu)
    given["mu"] = np.zeros(3)
    for row in range(3):
        wanted = recursion(**{name: array[row].astype(float) for name, array in given.items()})
        for one, each in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one[row], each, rtol=0.0, atol=ROUNDING[dtype] * np.abs(each).max())


def test_long_horizons_keep_their_digits():
    """An unstable robot near its equilibrium, 10,000 steps: costs of one coordinate alone, so that values of stretches
    are singular. Without gaps what is not given is zero."""
    steps, dt, rng = 10_000, 0.01, np.random.default_rng(6)
    A = np.eye(4) + dt * np.array([[0, 0, 1, 0], [0, 0, 0, 1], [0, -1.0, 0, 0], [0, 15.0, 0, 0]])
    B = dt * np.array([[0.0], [0.0], [1.0], [-1.5]])
    of_state = np.diag([1.0, 0.0, 0.0, 0.0])
    costs = {"lxx": of_state, "luu": 1e-2 * np.eye(1), "lux": np.zeros((1, 4)), "vxx": of_state, "vx": np.zeros(4)}
    given = {name: np.broadcast_to(each, (steps, *each.shape)) for name, each in {"A": A, "B": B, **costs}.items()}
    given |= {"vxx": of_state, "vx": np.zeros(4), "mu": 0.0, "gap": 1e-3 * rng.normal(size=(steps, 4))}
    given |= {"lx": rng.normal(size=(steps, 4)) * np.diag(of_state), "lu": rng.normal(size=(steps, 1))}
    k, K, _, ok = RiccatiScan(2, 1, steps)(**given)
    wanted = recursion(**given)
    off = [np.abs(one - each).max() / np.abs(each).max() for one, each in zip((k, K), wanted, strict=False)]
    print("relative errors of k and K:", off)
    assert ok and max(off) < 1e-9
    given = {name: each[:300] if np.ndim(each) and len(each) == steps else each for name, each in given.items()}
    k, _, _, ok = RiccatiScan(2, 1, 300)(**{**given, "gap": None})
    without = recursion(**{**given, "gap": np.zeros((300, 4))})[0]
    assert ok and np.abs(k - without).max() < 1e-9 * np.abs(without).max()


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_scan_on_engines(engine):
    """Threads give the same numbers, the text as Python, too; a row that fails is NaN."""
    given = problems(np.random.default_rng(7), 1, 1, 5, 2)
    wanted = RiccatiScan(1, 1, 5, length=2)(**given)
    given["A"][1, 3, 0, 0] = np.nan
    of = rd.Dynamics(rd.random_tree(1, seed=1), engine=engine).engine
    *found, ok = RiccatiScan(1, 1, 5, engine=of, length=2)(**given)
    assert ok.tolist() == [True, False]
    for one, each in zip(found, wanted, strict=False):
        np.testing.assert_allclose(one[0], each[0], rtol=1e-12, atol=1e-12)
        assert np.isnan(one[1]).all()


def test_trajectories_by_scans():
    """The same iterations, with limits of states and gaps of multiple shooting, too; what a scan cannot do is refused.
    By count a scan does a multiple of the work, in a small part of the depth."""
    dyn = rd.Dynamics(rd.load_urdf(own("arm7")), joint_forces="damping")
    goal = np.array([0.4, 0.5, -0.2, -0.9, 0.3, 0.6, 0.2])
    cost = rd.costs.Control(1e-3) + rd.costs.State(q=0.1, qd=0.01, q_goal=goal)
    cost += rd.costs.State(q=100.0, qd=5.0, q_goal=goal, final=True)
    start = np.zeros((2, 7)), np.zeros(7)
    guess = np.linspace(0.0, 1.0, 31)[:, None] * goal
    for options in ({}, {"limits": "velocity"}, {"q_guess": guess}):
        found, wanted = (
            rd.optimize_trajectory(dyn, cost, start, 30, 0.02, backward=way, **options) for way in ("scan", "recursion")
        )
        assert found.converged.all() and (found.iterations == wanted.iterations).all()
        assert np.abs(found.gains - wanted.gains).max() < 1e-7 * np.abs(wanted.gains).max()
        assert np.abs(found.tau - wanted.tau).max() < 1e-7
    some = np.array([1e-3] * 6 + [0.0])
    for options, own_cost, what in (
        ({"limits": "effort"}, cost, "limits of effort"),
        ({"method": "ddp"}, cost, "'ddp'"),
        ({}, rd.costs.Control(some), "no positive weight of Control"),
    ):
        with pytest.raises(rd.ArgumentError, match=rf"backward: got 'scan' with .*{what}.*; wanted 'auto' or"):
            rd.optimize_trajectory(dyn, own_cost, start, 30, 0.02, backward="scan", **options)
    work, depth = (np.divide(*(counts(14, 7, 10_000, 32)[way][k] for way in ("scan", "recursion"))) for k in (0, 1))
    assert 3.0 < work < 6.0 and depth < 0.02
