"""The gradient of inverse dynamics by scans."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import TOLERANCE, relative
from cpu_queries import states_of
from robots import OWN
from test_scan_matrices import OPTIONS, large, scan, tree

import robodyn as rd
from robodyn.description import JOINT_TYPES
from robodyn.engines.scan.trees import pairs
from robodyn.engines.scan.trees.branches import Branches
from robodyn.io.builders.random_tree import SHAPES

NAMES = ("dtau_dq", "dtau_dqd")


def agree(got, wanted, tolerance):
    for name, a, b in zip(NAMES, got, wanted, strict=True):
        assert relative(a, b) < tolerance, name


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.some(of=6, rest="matrix")
def test_random_trees(seed, options):
    """Of every joint kind, with moving bases, external forces and inertias of their own, and without."""
    model = tree(seed)
    judge, dyn, s = rd.Dynamics(model, engine="reference"), scan(model, options), states_of(model, (3,), seed)
    everything = {"f_ext": s.f_ext, "V0": s.V0, "dV0": s.dV0, "inertia": s.inertia}
    for more in ({}, everything):
        got, wanted = (each.inverse_dynamics_gradient(s.q, s.qd, s.qdd, **more) for each in (dyn, judge))
        agree(got, wanted, TOLERANCE["float64"])


@pytest.mark.parametrize("options", ["heavy", "euler"])
@pytest.mark.parametrize("seed", range(4))
def test_single_precision(seed, options):
    model = tree(seed)
    s = states_of(model, (2,), seed, "float32")
    dyn = scan(model, options, dtype="float32")
    got = dyn.inverse_dynamics_gradient(s.q, s.qd, s.qdd, f_ext=s.f_ext)
    wanted = rd.Dynamics(model, engine="reference").inverse_dynamics_gradient(s.q, s.qd, s.qdd, f_ext=s.f_ext)
    assert all(each.dtype == np.float32 for each in got)
    agree(got, wanted, TOLERANCE["float32"])


@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
@pytest.mark.some(of=3, rest="matrix")
def test_robots(path, base):
    model = rd.load_urdf(path, base=base)
    judge, dyn, s = rd.Dynamics(model, engine="reference"), scan(model), states_of(model, (2,), 1)
    got, wanted = (each.inverse_dynamics_gradient(s.q, s.qd, s.qdd, f_ext=s.f_ext) for each in (dyn, judge))
    agree(got, wanted, TOLERANCE["float64"])


# Relative to the largest entry. Ten times what was measured.
@pytest.mark.parametrize(("n", "heavy", "euler"), [(100, 1e-13, 1e-12), (1000, 1e-12, 5e-12)])
@pytest.mark.parametrize("shape", ["chain", "1.5", "2", "star", "caterpillar"])
@pytest.mark.some(of=3, rest="matrix")
def test_large_trees(shape, n, heavy, euler):
    model = large(shape, n)
    s = states_of(model)
    wanted = rd.Dynamics(model, engine="cpu", code="rolled").inverse_dynamics_gradient(s.q, s.qd, s.qdd)
    for options, tolerance in (("heavy", heavy), ("euler", euler)):
        agree(scan(model, options).inverse_dynamics_gradient(s.q, s.qd, s.qdd), wanted, tolerance)


def test_central_differences():
    """On the tangent space, with external forces that stay constant in the world, and damping."""
    model, step = rd.random_tree(5, seed=7, joints=("revolute", "planar"), base="floating"), 1e-5
    s, dyn = states_of(model, (), 7), scan(model, joint_forces="damping")
    by_q, by_qd = dyn.inverse_dynamics_gradient(s.q, s.qd, s.qdd, f_ext=s.f_ext)
    steps = step * np.eye(model.nv)
    forward, back = (
        dyn.inverse_dynamics(model.integrate(s.q, sign * steps), s.qd, s.qdd, f_ext=s.f_ext) for sign in (1.0, -1.0)
    )
    assert relative((forward - back).T / (2 * step), by_q) < 1e-7
    forward, back = (dyn.inverse_dynamics(s.q, s.qd + sign * steps, s.qdd, f_ext=s.f_ext) for sign in (1.0, -1.0))
    assert relative((forward - back).T / (2 * step), by_qd) < 1e-7


@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 2), (0,)])
def test_batches(shape):
    model = tree(1)
    s = states_of(model, shape, 3)
    got = scan(model).inverse_dynamics_gradient(s.q, s.qd, s.qdd)
    agree(got, rd.Dynamics(model, engine="reference").inverse_dynamics_gradient(s.q, s.qd, s.qdd), 1e-11)


@pytest.mark.parametrize("options", ["heavy", "euler"])
def test_rows_that_are_not_finite_stay_in_their_rows(options):
    model = tree(3)
    s, dyn = states_of(model, (4,), 3), scan(model, options)
    alone = dyn.inverse_dynamics_gradient(s.q, s.qd, s.qdd, f_ext=s.f_ext)
    q, qd, f_ext = s.q.copy(), s.qd.copy(), s.f_ext.copy()
    q[0], qd[1, 0], f_ext[2, -1] = np.nan, np.inf, np.nan
    for got, wanted in zip(dyn.inverse_dynamics_gradient(q, qd, s.qdd, f_ext=f_ext), alone, strict=True):
        assert np.array_equal(got[3], wanted[3])
        assert not np.isfinite(got[:2]).all(axis=(1, 2)).any()


@pytest.mark.parametrize("bushy", [True, False])
@pytest.mark.parametrize("seed", [0, 1, 4])
@pytest.mark.some(of=3, rest="matrix")
def test_pieces_and_tiles(seed, bushy, monkeypatch):
    """Small ones find the same entries."""
    model = rd.random_tree(30, seed=seed, joints=JOINT_TYPES, shape=list(SHAPES)[seed], mimic=0.2)
    s = states_of(model, (2,), seed)
    wanted = rd.Dynamics(model, engine="reference").inverse_dynamics_gradient(s.q, s.qd, s.qdd, f_ext=s.f_ext)
    monkeypatch.setattr(pairs, "PAIRS_PIECE", 50)
    monkeypatch.setattr(pairs, "ONE_THREAD", 0)
    monkeypatch.setattr(Branches, "bushy", property(lambda self: bushy))
    agree(scan(model).inverse_dynamics_gradient(s.q, s.qd, s.qdd, f_ext=s.f_ext), wanted, TOLERANCE["float64"])


def test_bad_arguments():
    model = tree(0)
    dyn, zeros = scan(model), np.zeros((2, model.nv))
    with pytest.raises(rd.ArgumentError, match=r"^method: got 'columns'; allowed: 'auto', 'idsva'"):
        dyn.inverse_dynamics_gradient(model.neutral(), *zeros, method="columns")
    with pytest.raises(rd.ArgumentError, match=r"^qd"):
        dyn.inverse_dynamics_gradient(model.neutral(), zeros[0, 1:], zeros[1])
    with pytest.raises(rd.NumericalError, match=r"^qdd"):
        dyn.inverse_dynamics_gradient(model.neutral(), zeros[0], zeros[1] + np.nan)


def test_a_model_without_joints():
    got = scan(rd.random_tree(0, seed=0)).inverse_dynamics_gradient(*np.zeros((3, 0)))
    assert [each.shape for each in got] == [(0, 0), (0, 0)]
