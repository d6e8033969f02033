"""Whole-body control: optimality by multipliers that SciPy finds, what no torque can do, priorities, and MuJoCo."""

from __future__ import annotations

import ctypes
import os
import pickle
import shutil
import subprocess

import numpy as np
import pytest
from closed_loops import FRICTION, LEGS, MODELS, RADIUS, Humanoid, Quadruped, run
from robots import shared
from scipy.optimize import lsq_linear
from scipy.spatial.transform import Rotation

import robodyn as rd

FORCE = 1e-6
ENGINES = [("cpu", "float64"), ("cpu", "float32"), ("reference", "float64")]
POSTURE = np.concatenate([[0.0, 0.0, 0.32], [0.0, 0.0, 0.0, 1.0], np.tile([0.0, 0.75, -1.5], 4)])


def quadruped(friction=FRICTION, engine="cpu", dtype="float64", damping=()):
    model = rd.load_urdf(MODELS / "quadruped.urdf", base="floating")
    feet = [rd.Contact(rd.Sphere(f"{leg}_foot", radius=RADIUS), rd.Plane(), friction=friction) for leg in LEGS]
    return rd.Dynamics(model, engine=engine, dtype=dtype, joint_forces=damping, threads=1), feet


def tasks(weight=0.1):
    return [
        rd.Tracking(rd.PoseTask("trunk", (1.0, 0.5, 1.0, 0.3, 0.0, 1.0), point=(0.1, 0.0, 0.02)), 100.0, 20.0, 2.0),
        rd.Tracking(rd.CoMTask((1.0, 1.0, 0.0)), 60.0, 10.0, 3.0),
        rd.Tracking(rd.PositionTask("front_left_foot", point=(0.01, 0.02, 0.03)), 60.0, 10.0),
        rd.Tracking(rd.PostureTask(POSTURE, [0.0] * 6 + [0.7] * 12), 50.0, 10.0, weight),
        rd.Tracking(rd.PostureTask(POSTURE), 20.0, 3.0, weight),
    ]


def states(model, rng, n, size=0.3):
    """States near the posture, and targets of the tasks above."""
    q = model.integrate(np.tile(POSTURE, (n, 1)), size * rng.normal(size=(n, model.nv)))
    T = np.tile(np.eye(4), (n, 3, 1, 1))
    T[:, 0, :3, :3] = Rotation.from_rotvec(0.3 * rng.normal(size=(n, 3))).as_matrix()
    T[..., :3, 3] = POSTURE[:3] + 0.2 * rng.normal(size=(n, 3, 3))
    return q, size * rng.normal(size=(n, model.nv)), T


def programme(dyn, trackings, feet, q, qd, targets, active):
    """P, g, A, b, C, d of min x'Px/2 + g'x with A x = b and C x <= d, x = (qdd, f), from queries."""
    model, nv, nf, still = dyn.model, dyn.model.nv, len(feet), np.zeros(dyn.model.nv)
    H, bias = dyn.mass_matrix(q), dyn.inverse_dynamics(q, qd, still)
    P, g, given = np.zeros((nv + 3 * nf,) * 2), np.zeros(nv + 3 * nf), iter(targets if targets is not None else ())
    for each in trackings:
        task, weight = each.task, np.array(each.task.weight)
        if isinstance(task, rd.PostureTask):
            J, rate, drift, error = np.eye(nv), qd, still, model.difference(q, np.array(task.q))
        elif isinstance(task, rd.CoMTask):
            J, drift = dyn.center_of_mass_jacobian(q), dyn.center_of_mass_acceleration(q, qd, still)
            rate, error = J @ qd, next(given)[:3, 3] - dyn.center_of_mass(q)
        else:
            T, wished = dyn.link_pose(q, task.link), next(given)
            J = dyn.jacobian(q, task.link, point=task.point)
            drift = dyn.link_acceleration(q, qd, still, task.link, point=task.point, classical=True)
            way = wished[:3, 3] - T[:3, 3] - T[:3, :3] @ task.point
            turn = Rotation.from_matrix(wished[:3, :3] @ T[:3, :3].T).as_rotvec()
            rate, error = J @ qd, np.concatenate([turn, way])
            if isinstance(task, rd.PositionTask):
                J, rate, drift, error = J[3:], rate[3:], drift[3:], error[3:]
            elif len(weight) == 2:
                weight = np.repeat(weight, 3)
        scale = each.weight * weight**2 * np.ones(len(J))
        P[:nv, :nv] += J.T * scale @ J
        g[:nv] -= J.T * scale @ (each.kp * error - each.kd * rate - drift)
    P[nv:, nv:] += FORCE * np.eye(3 * nf)
    rows, right, drifts, J_feet = [], [], [], []
    for contact in feet:
        T = dyn.link_pose(q, contact.first.link)
        point = np.array(contact.first.at) + T[:3, :3].T @ [0.0, 0.0, -contact.first.radius]
        axes = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
        J_feet.append(axes @ dyn.jacobian(q, contact.first.link, point=point)[3:])
        A = dyn.link_acceleration(q, qd, still, contact.first.link, point=point, classical=True)
        drifts.append(axes @ A[3:])
    J = np.concatenate(J_feet)
    on = np.repeat(active, 3).astype(float)
    A = np.concatenate([np.hstack([H[:6], -J.T[:6]]), np.hstack([on[:, None] * J, np.diag(1.0 - on)])])
    b = np.concatenate([-bias[:6], -on * np.concatenate(drifts)])
    for k in np.flatnonzero(active):
        mu, nu = feet[k].friction
        for one, other in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            row = np.zeros(len(g))
            row[nv + 3 * k : nv + 3 * k + 3] = -1.0, one / mu, other / nu
            rows.append(row)
            right.append(0.0)
    W = np.hstack([H, -J.T])
    for k in range(6, nv):
        rows += [W[k], -W[k]]
        right += [model.effort_limit[k] - bias[k], model.effort_limit[k] + bias[k]]
    return P, g, A, b, np.array(rows), np.array(right), W, bias


def require_optimal(dyn, trackings, feet, q, qd, targets, active, answer, most, kept=()):
    """Feasible, and the gradient is a sum of rows that hold with equality, pushing inwards; returns how many.

    `kept`: further rows whose values may not change."""
    tau, qdd, f = (np.asarray(each, float) for each in answer)
    P, g, A, b, C, d, W, bias = programme(dyn, trackings, feet, q, qd, targets, active)
    x = np.concatenate([qdd, f.ravel()])
    size = 1.0 + np.abs(x).max()
    assert np.abs(A @ x - b).max() <= most * size * np.abs(A).max()
    slack = d - C @ x
    assert (slack >= -most * size * np.abs(C).max(axis=1)).all()
    assert np.abs(W @ x + bias - tau)[6:].max() <= most * size * np.abs(W).max() and (tau[:6] == 0.0).all()
    assert (f[~active] == 0.0).all()
    tight = slack <= 10 * most * size * np.abs(C).max(axis=1)
    A = np.concatenate([A, np.reshape(kept, (-1, len(x)))])
    rows = np.concatenate([A, C[tight]])
    scale = np.linalg.norm(rows, axis=1)
    lower = np.concatenate([np.full(len(A), -np.inf), np.zeros(tight.sum())])
    found = lsq_linear((rows / scale[:, None]).T, -(P @ x + g), (lower, np.inf), method="bvls", tol=1e-14)
    left = P @ x + g + (rows / scale[:, None]).T @ found.x
    terms = np.abs(P) @ np.abs(x) + np.abs(g) + 1e-3
    assert np.abs(left).max() <= most * terms.max()
    return int((found.x[len(A) :] > 1e-9 * terms.max()).sum())


@pytest.mark.parametrize(("engine", "dtype"), ENGINES)
def test_optimality(engine, dtype, monkeypatch):
    """Feet that stand differ from state to state; friction differs along both tangents; rows are active. Scratch memory
    begins as NaN."""
    dyn, feet = quadruped((0.5, 0.8), engine, dtype)
    most, n = (1e-8 if dtype == "float64" else 2e-5), 1 if engine == "reference" else 30
    rng = np.random.default_rng(0)
    wbc = rd.WholeBodyControl(dyn, tasks(), feet, ("effort",))
    q, qd, T = (each.astype(dtype) for each in states(dyn.model, rng, n))
    active = rng.random((n, 4)) < 0.7
    own = wbc._controller._engine
    if engine == "cpu":
        take = own._take_workspace

        def filled(size):
            address, owner = take(size)
            ctypes.memset(address, 0xFF, size)
            return address, owner

        monkeypatch.setattr(own, "_take_workspace", filled)
    tau, qdd, f, report = wbc(q, qd, T, active)
    assert tau.dtype == dyn.dtype and tau.shape == qdd.shape == (n, 18) and f.shape == (n, 4, 3)
    assert report.feasible.all() and (report.residuals < 1e-9).all(), report.residuals.max(axis=0)
    exact = quadruped((0.5, 0.8))[0]
    held = [
        require_optimal(exact, wbc.tasks, feet, *(x[k].astype(float) for x in (q, qd, T)), active[k],
                        (tau[k], qdd[k], f[k]), most)
        for k in range(n)
    ]  # fmt: skip
    assert n == 1 or max(held) > 2, f"few rows are active: {held}"
    if engine == "reference":
        return  # it has one way
    one = wbc(q[0], qd[0], T[0], active[0])
    again = wbc(q[0], qd[0], T[0], active[0])  # on memory that is kept
    for x, y, z in zip(one[:3], again[:3], (tau[0], qdd[0], f[0]), strict=True):
        assert np.allclose(x, z, rtol=1e-6, atol=1e-6) and np.array_equal(x, y)


def test_clarabel_finds_the_same():
    """The optimum of an interior-point solver, to 1e-5 of its value."""
    clarabel, sparse = pytest.importorskip("clarabel"), pytest.importorskip("scipy.sparse")
    dyn, feet = quadruped()
    wbc, rng = rd.WholeBodyControl(dyn, tasks(), feet, ("effort",)), np.random.default_rng(9)
    q, qd, T = states(dyn.model, rng, 40)
    active = rng.random((40, 4)) < 0.7
    _, qdd, f, report = wbc(q, qd, T, active)
    for k in range(40):
        P, g, A, b, C, d, *_ = programme(dyn, wbc.tasks, feet, q[k], qd[k], T[k], active[k])
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        cones = [clarabel.ZeroConeT(len(b)), clarabel.NonnegativeConeT(len(d))]
        rows, right = sparse.csc_matrix(np.concatenate([A, C])), np.concatenate([b, d])
        found = clarabel.DefaultSolver(sparse.csc_matrix(P), g, rows, right, cones, settings).solve()
        theirs, x = np.array(found.x), np.concatenate([qdd[k], f[k].ravel()])
        values = [0.5 * each @ P @ each + g @ each for each in (x, theirs)]
        assert report.feasible[k] == (str(found.status) in ("Solved", "AlmostSolved"))
        assert abs(values[0] - values[1]) <= 1e-5 * abs(values[1])


def test_tilted_planes_damping_and_the_order_of_shapes():
    """On a slope, in axes of `contact_frames`; a plane may come first. Damping counts as in `inverse_dynamics`."""
    dyn, _ = quadruped(damping=("damping", "friction"))
    up = np.array([0.2, 0.1, 1.0]) / np.linalg.norm([0.2, 0.1, 1.0])
    slope = rd.Plane(None, normal=up)
    spheres = [rd.Sphere(f"{leg}_foot", radius=RADIUS) for leg in LEGS]
    pairs = [(one, slope) if k % 2 else (slope, one) for k, one in enumerate(spheres)]
    feet = [rd.Contact(*pair, friction=FRICTION) for pair in pairs]
    wbc = rd.WholeBodyControl(dyn, tasks(), feet)
    rng = np.random.default_rng(1)
    q, qd, T = (each[0] for each in states(dyn.model, rng, 1))
    tau, qdd, f, report = wbc(q, qd, T)
    assert report.feasible
    axes = rd.Dynamics(dyn.model.with_contacts(feet)).contact_frames(q)[:, :3, :3]
    needed = dyn.inverse_dynamics(q, qd, qdd)
    for k, sphere in enumerate(spheres):
        point = dyn.link_pose(q, sphere.link)[:3, :3].T @ (-RADIUS * up)
        force = axes[k] @ f[k] * (1.0 if k % 2 else -1.0)
        assert force @ up >= -1e-9
        needed -= dyn.jacobian(q, sphere.link, point=point)[3:].T @ force
        A = dyn.link_acceleration(q, qd, qdd, sphere.link, point=point, classical=True)
        assert np.abs(A[3:]).max() < 1e-9
    assert np.allclose(needed, tau, atol=1e-9)


def test_points_of_one_link_that_depend_on_each_other():
    """A humanoid on eight points: twelve of twenty-four equations depend on others."""
    robot = Humanoid()
    rng = np.random.default_rng(2)
    model, n = robot.model, 4
    q = model.integrate(np.tile(robot.q0, (n, 1)), 0.05 * rng.normal(size=(n, model.nv)))
    T = np.tile(np.eye(4), (n, 4, 1, 1))
    T[..., :3, 3] = rng.normal(size=(n, 4, 3)) * 0.1 + [0.0, 0.0, 0.8]
    active = np.ones((n, 8), bool)
    active[1, 4:], active[2, [0, 1, 3, 5, 6]] = False, False
    qd = np.zeros((n, model.nv))
    tau, qdd, f, report = robot.control(q, qd, T, active)
    assert report.feasible.all()
    plain = rd.Dynamics(model, joint_forces="damping", contacts=())
    for k in range(n):
        require_optimal(
            plain, robot.control.tasks, robot.feet, q[k], qd[k], T[k], active[k], (tau[k], qdd[k], f[k]), 1e-7
        )
    qd = 0.2 * rng.normal(size=(n, model.nv))  # feet turn: points of a link cannot all have no acceleration
    assert robot.control(q, qd, T, active)[3].feasible.all()


def test_what_no_torque_can_do_is_told():
    """Row by row: too fast for the drives, NaN, infinity, a target that is no pose; other rows do not change."""
    dyn, feet = quadruped()
    wbc = rd.WholeBodyControl(dyn, tasks(), feet, ("effort",))
    q, qd, T = states(dyn.model, np.random.default_rng(3), 8, 0.1)
    good = wbc(q, qd, T)
    qd[1] *= 3000.0
    q[2, 9], qd[3, 4], T[4, 0, 0, 0], T[5, 1, 0, 3] = np.nan, np.inf, 3.0, np.nan
    q[6, 3:7] = 0.0
    tau, qdd, f, report = wbc(q, qd, T)
    bad = np.arange(8) % 7 != 0
    assert (report.outcome == [0, 1, 3, 3, 3, 3, 3, 0]).all() and (report.feasible == ~bad).all()
    for x, y in zip((tau, qdd, f, report.residuals), (*good[:3], good[3].residuals), strict=True):
        assert np.isnan(x[bad]).all() and np.allclose(x[~bad], y[~bad], rtol=1e-9, atol=1e-9)
    one = wbc(q[1], qd[1], T[1])
    assert not one[3].feasible and np.isnan(one[0]).all() and np.isnan(wbc(q[1], qd[1], T[1])[2]).all()
    empty = wbc(q[:0], qd[:0], T[:0])
    assert empty[0].shape == (0, 18) and empty[2].shape == (0, 4, 3) and empty[3].feasible.shape == (0,)


def test_priorities():
    """A lower priority changes nothing for the higher one, and is optimal where that one's accelerations stay."""
    dyn, feet = quadruped()
    pose, com, foot, joints, every = tasks()
    first = [pose, foot]
    low = [rd.Tracking(each.task, each.kp, each.kd, each.weight, priority=3) for each in (com, joints, every)]
    q, qd, T = states(dyn.model, np.random.default_rng(5), 9, 0.15)
    active = np.array([True, True, True, False])
    both = rd.WholeBodyControl(dyn, [pose, low[0], foot, low[1], low[2]], feet, ("effort",))(q, qd, T, active)
    alone = rd.WholeBodyControl(dyn, first, feet, ("effort",))(q, qd, T[:, [0, 2]], active)
    assert both[3].feasible.all() and alone[3].feasible.all()
    for k in range(len(q)):
        P, g, *_ = programme(dyn, first, feet, q[k], qd[k], T[k, [0, 2]], active)
        costs = [0.5 * x @ P[:18, :18] @ x + g[:18] @ x for x in (both[1][k], alone[1][k])]
        assert abs(costs[0] - costs[1]) < 1e-6 * (abs(costs[1]) + 1.0)
        sizes, axes = np.linalg.eigh(P[:18, :18])
        kept = np.pad(axes[:, sizes > 1e-9 * sizes[-1]].T, ((0, 0), (0, 12)))
        answer = [each[k] for each in both[:3]]
        require_optimal(dyn, low, feet, q[k], qd[k], T[k, [1]], active, answer, 1e-7, kept)


def test_a_fixed_base_and_no_feet():
    """An arm tracks a pose: torques are those of inverse dynamics, and saturate alone."""
    dyn = rd.Dynamics(rd.load_urdf(MODELS / "arm7.urdf"), joint_forces=())
    model, rng = dyn.model, np.random.default_rng(5)
    wbc = rd.WholeBodyControl(dyn, [rd.Tracking(rd.PoseTask(model.link_names[-1]), 100.0, 20.0)], limits=["effort"])
    assert rd.WholeBodyControl(dyn, wbc.tasks).limits == wbc.limits == ("effort",)
    q, qd, T = rng.normal(size=7), 0.1 * rng.normal(size=7), dyn.link_pose(rng.normal(size=7), model.link_names[-1])
    tau, qdd, f, report = wbc(q, qd, T)
    assert report.feasible and f.shape == (0, 3) and (np.abs(tau) <= model.effort_limit * (1 + 1e-9)).all()
    assert np.allclose(dyn.inverse_dynamics(q, qd, qdd), tau, atol=1e-9)
    tau, qdd, _, _ = rd.WholeBodyControl(dyn, wbc.tasks, limits=())(q, qd, T)
    J, now = dyn.jacobian(q, model.link_names[-1]), dyn.link_pose(q, model.link_names[-1])
    error = np.concatenate([Rotation.from_matrix(T[:3, :3] @ now[:3, :3].T).as_rotvec(), T[:3, 3] - now[:3, 3]])
    got = dyn.link_acceleration(q, qd, qdd, model.link_names[-1], classical=True)
    assert np.allclose(got, 100.0 * error - 20.0 * J @ qd, atol=1e-3)
    again = pickle.loads(pickle.dumps(wbc))
    assert np.array_equal(again(q, qd, T)[0], wbc(q, qd, T)[0])


def test_refusals():
    """What is not there is named."""
    dyn, feet = quadruped()
    posture, model = rd.Tracking(rd.PostureTask(POSTURE)), dyn.model
    wbc = rd.WholeBodyControl(dyn, tasks(), feet)
    q, qd, T = (each[0] for each in states(model, np.random.default_rng(6), 1))
    box = rd.Contact(rd.Box("trunk", None, (0.1, 0.1, 0.1)), rd.Plane())
    moving = rd.Contact(rd.Sphere("front_left_foot", radius=0.02), rd.Plane("trunk"))
    slippery = rd.Contact(rd.Sphere("front_left_foot", radius=0.02), rd.Plane(), condim=1)
    nowhere = rd.Contact(rd.Sphere("nose", radius=0.02), rd.Plane())
    hand = rd.load_urdf(MODELS / "gripper.urdf")
    tied = rd.Dynamics(model, constraints=[rd.Point("front_left_foot")])
    cases = [
        (lambda: rd.Tracking(rd.GazeTask("trunk")), "GazeTask has no acceleration"),
        (lambda: rd.Tracking(rd.DirectionTask("trunk")), "DirectionTask"),
        (lambda: rd.Tracking(rd.PositionTask("trunk", lower=0.0)), "with bounds"),
        (lambda: rd.Tracking(rd.PoseTask("trunk", priority=2)), "Tracking\\(priority=\\)"),
        (lambda: rd.Tracking("trunk"), "Tracking.task"),
        (lambda: rd.Tracking(rd.PostureTask("q0")), "'q0'"),
        (lambda: rd.Tracking(rd.CoMTask(), kp=-1.0), "Tracking.kp"),
        (lambda: rd.Tracking(rd.CoMTask(), weight=0.0), "Tracking.weight"),
        (lambda: rd.WholeBodyControl(model, [posture]), "wanted a robodyn.Dynamics"),
        (lambda: rd.WholeBodyControl(dyn, [rd.PostureTask(POSTURE)]), "tasks\\[0\\]"),
        (lambda: rd.WholeBodyControl(dyn, []), "at least one"),
        (lambda: rd.WholeBodyControl(dyn, [rd.Tracking(rd.PoseTask("nose"))]), "nose"),
        (lambda: rd.WholeBodyControl(dyn, [rd.Tracking(rd.PostureTask([0.0]))]), "tasks\\[0\\]"),
        (lambda: rd.WholeBodyControl(dyn, [posture], feet, ("velocity",)), "limits"),
        (lambda: rd.WholeBodyControl(dyn, [posture], [box]), "feet\\[0\\].*box"),
        (lambda: rd.WholeBodyControl(dyn, [posture], [moving]), "fixed to the world"),
        (lambda: rd.WholeBodyControl(dyn, [posture], [*feet, slippery]), "feet\\[4\\].*condim"),
        (lambda: rd.WholeBodyControl(dyn, [posture], ["front_left_foot"]), "feet\\[0\\]"),
        (lambda: rd.WholeBodyControl(dyn, [posture], [nowhere]), "feet\\[0\\].*nose"),
        (lambda: rd.WholeBodyControl(rd.Dynamics(hand), [rd.Tracking(rd.PostureTask(hand.neutral()))]), "mimic"),
        (lambda: rd.WholeBodyControl(rd.Dynamics(model, engine="scan"), [posture]), "'scan'"),
        (lambda: wbc(q, qd), "targets: got None"),
        (lambda: wbc(q, qd, T[:2]), "targets"),
        (lambda: wbc(q, qd, np.concatenate((T, T[:2]))), "targets"),
        (lambda: wbc(q, qd[:5], T), "qd"),
        (lambda: wbc(q, qd, T, [True, False]), "active"),
        (lambda: wbc(q, qd, T, [1.0, 0.5, 0.0, 1.0]), "active"),
        (lambda: wbc(np.tile(q, (3, 1)), np.tile(qd, (2, 1)), T), "leading axes"),
        (lambda: rd.WholeBodyControl(dyn, [posture], feet)(q, qd, T), "no task has one"),
        (lambda: rd.WholeBodyControl(tied, [posture]), "constraints"),
        (lambda: wbc.to_c("for"), '"for", a keyword of C'),
        (lambda: wbc.to_c("class"), '"class", a keyword of C'),
        (lambda: wbc.to_c("sqrtf"), '"sqrtf", a function of <math.h>'),
        (lambda: wbc.to_c("two words"), "wanted a C identifier, such as two_words"),
    ]
    for make, words in cases:
        with pytest.raises(rd.RobodynError, match=words):
            make()


@pytest.mark.matrix
@pytest.mark.parametrize(("name", "feet"), [("go2", "_foot"), ("anymal_anymal", "_FOOT"), ("g1_29dof", "roll_link")])
def test_other_robots(name, feet):
    """The same certificate, and one state as in a batch."""
    model = rd.load_urdf(shared(name), base="floating")
    dyn = rd.Dynamics(model, joint_forces=(), contacts=())
    links = [link for link in model.link_names if link.endswith(feet) and "hip" not in link and "wrist" not in link]
    points = [
        rd.Contact(rd.Sphere(link, radius=0.02), rd.Plane(), friction=0.7) for link in links if "shoulder" not in link
    ]
    aims = [
        rd.Tracking(rd.PoseTask(model.link_names[0]), 100.0, 20.0, 2.0),
        rd.Tracking(rd.PostureTask(model.neutral()), 50.0, 10.0, 0.1),
    ]
    wbc, rng, n = rd.WholeBodyControl(dyn, aims, points, ("effort",)), np.random.default_rng(8), 200
    q = model.integrate(np.tile(model.neutral(), (n, 1)), 0.1 * rng.normal(size=(n, model.nv)))
    qd, T, active = 0.1 * rng.normal(size=(n, model.nv)), np.eye(4)[None], np.ones(len(points), bool)
    tau, qdd, f, report = wbc(q, qd, T)
    assert len(points) >= 2 and report.feasible.all()
    for k in range(0, n, 10):
        require_optimal(dyn, aims, points, q[k], qd[k], T, active, (tau[k], qdd[k], f[k]), 1e-7)
        wbc(q[k], qd[k], T)
        assert np.allclose(wbc(q[k], qd[k], T)[0], tau[k], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("robot", ["stands", "trots", "shifts its weight"])
def test_in_mujoco(robot):
    """Half a second with MuJoCo's contacts: no fall, no state without torques."""
    pytest.importorskip("mujoco")
    made = Humanoid() if robot == "shifts its weight" else Quadruped(robot == "stands")
    seen = run(made, 0.5, 0, 30.0)
    assert not seen["fell"] and not seen["lost"] and seen["up"] > 0.95, seen


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(int(os.environ.get("SEEDS", "2"))))
@pytest.mark.parametrize("robot", ["stands", "trots", "shifts its weight"])
def test_a_minute_in_mujoco(robot, seed):
    """A minute, pushed every two seconds: no fall. SEEDS=20 in the environment: as many pushes and starts."""
    pytest.importorskip("mujoco")
    made = Humanoid() if robot == "shifts its weight" else Quadruped(robot == "stands")
    seen = run(made, 60.0, seed, {"stands": 30.0, "trots": 40.0, "shifts its weight": 20.0}[robot])
    print(robot, seed, seen)
    assert not seen["fell"], seen


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
@pytest.mark.parametrize("robot", ["quadruped", pytest.param("arm", marks=pytest.mark.matrix)])
def test_c(robot, tmp_path):
    """What gcc makes of the controller gives the same torques and outcomes, two priorities included."""
    rng, n = np.random.default_rng(7), 12
    if robot == "quadruped":
        dyn, feet = quadruped(damping=("damping",))
        low = [rd.Tracking(each.task, each.kp, each.kd, each.weight, priority=2) for each in tasks()[3:]]
        wbc = rd.WholeBodyControl(dyn, tasks()[:3] + low, feet, ("effort",))
        q, qd, T = states(dyn.model, rng, n)
        active = rng.random((n, 4)) < 0.7
        q[1, 0], qd[2], active[2] = np.nan, 3000.0 * qd[2], True
    else:
        dyn = rd.Dynamics(rd.load_urdf(MODELS / "arm7.urdf"), joint_forces=())
        wbc = rd.WholeBodyControl(dyn, [rd.Tracking(rd.PostureTask(np.zeros(7)), 100.0, 20.0)], limits=("effort",))
        q, qd, T, active = rng.normal(size=(n, 7)), rng.normal(size=(n, 7)), None, None
    source, made = tmp_path / "control.c", tmp_path / "control.so"
    source.write_text(wbc.to_c("balance"))
    flags = ["-std=c99", "-O0", "-fno-strict-aliasing", "-Wall", "-Werror", "-Wno-unused-function", "-shared", "-fPIC"]
    done = subprocess.run(["gcc", *flags, source, "-o", made, "-lm"], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    run = ctypes.CDLL(str(made)).balance
    tau, qdd, f, report = wbc(q, qd, T, active)
    for k in range(n):
        found = np.full(dyn.model.nv, -7.0), np.full(dyn.model.nv, -7.0), np.full((len(wbc.feet), 3), -7.0)
        given = [np.ascontiguousarray(each) for each in (q[k], qd[k])]
        if robot == "quadruped":
            given += [np.ascontiguousarray(T[k]), active[k].astype(np.uint8)]
        arrays = [*given, *(each for each in found if each.size)]
        assert run(*(ctypes.c_void_p(each.ctypes.data) for each in arrays)) == report.outcome[k]
        for x, y in zip(found, (tau[k], qdd[k], f[k]), strict=True):
            assert np.allclose(x, y, rtol=1e-6, atol=1e-6, equal_nan=True)
    assert robot == "arm" or set(report.outcome) >= {0, 3}
