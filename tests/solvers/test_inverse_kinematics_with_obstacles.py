"""Inverse kinematics that keeps a clearance, of several solutions and starts, and partly free poses."""

from __future__ import annotations

import numpy as np
import pytest
import robots
from scipy.spatial.transform import Rotation

import robodyn as rd
from robodyn.solve.inverse_kinematics import search


@pytest.fixture(scope="module")
def arm():
    """An arm whose links are capsules."""
    model = rd.load_urdf(robots.own("arm7"))
    names, T = model.link_names, rd.Dynamics(model).forward_kinematics(model.neutral())
    shapes = [
        rd.Capsule(names[k], (0.0, 0.0, 0.0), T[k, :3, :3].T @ (T[k + 1] - T[k])[:3, 3], radius=0.03)
        for k in range(1, 7)
    ]
    return model.with_shapes([*shapes, rd.Sphere(names[8], (0.0, 0.0, 0.0), 0.04)])


def around(rng, count, radius=0.14):
    """Spheres around an arm, none at its base."""
    centres = rng.uniform((-1.0, -1.0, 0.0), (1.0, 1.0, 1.3), (count, 3))
    centres = centres[np.linalg.norm(centres - [0.0, 0.0, 0.3], axis=1) > 0.5]
    return np.c_[centres, np.full(len(centres), radius)]


def reachable(model, obstacles, count, least=0.04, seed=0):
    """Poses of the tool at configurations that are free."""
    dyn = rd.Dynamics(model)
    q = model.random_configuration(seed, (20 * count,))
    q = q[dyn.min_distance(q, obstacles) > least][:count]
    return dyn.link_pose(q, model.link_names[-1])[:, None], q


def coal_distances(model, q, spheres):
    """Least distance of capsules and spheres of a robot to spheres, and of its pairs, by coal."""
    coal = pytest.importorskip("coal")
    T = dict(zip(model.link_names, rd.Dynamics(model).forward_kinematics(q), strict=True))
    found = []

    def placed(shape):
        frame, pose = T[shape.link], np.eye(4)
        if isinstance(shape, rd.Sphere):
            pose[:3, 3] = shape.at
            made = coal.Sphere(shape.radius)
        else:
            start, end = np.array(shape.start), np.array(shape.end)
            along = (end - start) / np.linalg.norm(end - start)
            pose[:3, :3] = Rotation.align_vectors([along], [[0.0, 0.0, 1.0]])[0].as_matrix()
            pose[:3, 3] = 0.5 * (start + end)
            made = coal.Capsule(shape.radius, np.linalg.norm(end - start))
        pose = frame @ pose
        return made, coal.Transform3s(pose[:3, :3], pose[:3, 3])

    own = [placed(each) for each in model.shapes]
    things = [(coal.Sphere(r), coal.Transform3s(np.eye(3), np.array(c))) for *c, r in spheres]
    request = coal.DistanceRequest(True, True)
    pairs = [(own[i], own[j]) for i, j in model.pairs] + [(one, thing) for one in own for thing in things]
    for (a, A), (b, B) in pairs:
        found.append(coal.distance(a, A, b, B, request, coal.DistanceResult()))
    return min(found)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_answers_keep_the_clearance(arm, dtype):
    """Seen by coal, too."""
    spheres = around(np.random.default_rng(1), 60)
    obstacles = rd.Obstacles(spheres=spheres)
    targets, _ = reachable(arm, obstacles, 200)
    ik = rd.InverseKinematics(arm, arm.link_names[-1], clearance=0.02, obstacles=obstacles, dtype=dtype)
    q, report = ik.solve(targets)
    assert report.converged.all() and (report.clearance > 0.02).all() and "200 of 200" in repr(report)
    assert ((q >= arm.lower) & (q <= arm.upper)).all()
    plain, _ = rd.InverseKinematics(arm, arm.link_names[-1], dtype=dtype).solve(targets)
    assert (rd.Dynamics(arm).min_distance(plain, obstacles) < 0.02).any()
    for k in range(0, 200, 20):
        by_coal = coal_distances(arm, q[k], spheres)
        assert by_coal > 0.02 - 2e-6 and abs(by_coal - report.clearance[k]) < {"float64": 2e-6, "float32": 1e-4}[dtype]


def test_solutions_are_moved_apart(arm, monkeypatch):
    """From the middle alone; more so than without these steps."""
    obstacles = rd.Obstacles(spheres=around(np.random.default_rng(1), 60))
    targets, _ = reachable(arm, obstacles, 300)
    ik = rd.InverseKinematics(arm, arm.link_names[-1], clearance=0.02, obstacles=obstacles)
    q, report = ik.solve(targets, seeds=1)
    least = rd.Dynamics(arm).min_distance(q, obstacles)
    assert (least > 0.02)[report.converged].all() and np.allclose(least, report.clearance, atol=1e-12)
    assert (report.residual[report.converged] <= 1e-6).all()
    monkeypatch.setattr(search, "_PUSHES", 0)
    without = ik.solve(targets, seeds=1)[1].converged
    assert report.converged.sum() > without.sum() + 9 and report.converged[without].all()


def test_rows_do_not_depend_on_each_other(arm):
    """With obstacles of each target."""
    rng = np.random.default_rng(3)
    spheres = np.stack([around(rng, 300)[:80] for _ in range(30)])
    obstacles = rd.Obstacles(spheres=spheres)
    q = np.stack([reachable(arm, rd.Obstacles(spheres=each), 1, seed=3)[1][0] for each in spheres])
    targets = rd.Dynamics(arm).link_pose(q, arm.link_names[-1])[:, None]
    ik = rd.InverseKinematics(arm, arm.link_names[-1], clearance=0.01)
    found, report = ik.solve(targets, obstacles=obstacles, seeds=8)
    assert report.converged.mean() > 0.9 and len(set(report.start.tolist())) > 1
    for k in range(0, 30, 3):
        alone, one = ik.solve(targets[k], obstacles=rd.Obstacles(spheres=spheres[k]), seeds=8)
        assert (alone == found[k]).all()
        for name in ("converged", "iterations", "start"):
            assert getattr(one, name) == getattr(report, name)[k], name
        assert abs(one.clearance - report.clearance[k]) < 1e-12


def test_what_cannot_be_free_is_said(arm):
    ik = rd.InverseKinematics(arm, arm.link_names[-1], clearance=0.02)
    target = rd.Dynamics(arm).link_pose(np.full(7, 0.4), arm.link_names[-1])
    inside = rd.Obstacles(spheres=[[*target[:3, 3], 0.2]])
    q, report = ik.solve(target, obstacles=inside, seeds=8)
    assert not report.converged and report.clearance < -0.1 and report.residual.max() <= 1e-6 and np.isfinite(q).all()
    _, report = ik.solve(target, obstacles=rd.Obstacles(spheres=[[np.nan, 0.0, 0.0, 0.1]]), seeds=2)
    assert not report.converged and np.isnan(report.clearance)


def test_a_floating_robot_on_the_reference_engine():
    model = rd.random_tree(5, seed=2, joints=("revolute",), base="floating")
    model = model.with_shapes([rd.Sphere(name, (0.0, 0.0, 0.0), 0.05) for name in model.link_names[1:]])
    target = rd.Dynamics(model).link_pose(model.random_configuration(1), model.link_names[-1])
    near = rd.Obstacles(spheres=[[*(target[:3, 3] + [0.0, 0.0, 0.25]), 0.15]])
    for engine in ("cpu", "reference"):
        ik = rd.InverseKinematics(model, model.link_names[-1], engine=engine, clearance=0.01, obstacles=near)
        q, report = ik.solve(target, seeds=8)
        assert report.converged and rd.Dynamics(model).is_free(q, near, 0.01), engine


def test_several_solutions(arm):
    """All different, each a solution, near ones first; with a clearance, too."""
    model = rd.load_urdf(robots.own("arm6"))
    tool, dyn = model.link_names[-1], rd.Dynamics(model)
    q0 = model.random_configuration(0, (20,))
    targets = dyn.link_pose(q0, tool)[:, None]
    ik = rd.InverseKinematics(model, tool)
    q, report = ik.solve(targets, q0, solutions=6)
    assert q.shape == (20, 6, 6) and report.converged.shape == (20, 6) and report.residual.shape == (20, 6, 1, 2)
    assert np.abs(q[:, 0] - q0).max() < 1e-12 and report.converged.mean() > 0.9
    assert np.isnan(q[~report.converged]).all() and (report.start[~report.converged] == -1).all()
    off = np.abs(dyn.link_pose(q, tool) - targets)[report.converged]
    assert off.max() < 3e-6
    far = np.linalg.norm(q - q0[:, None], axis=-1)
    assert (np.diff(np.where(report.converged, far, np.inf), axis=1)[report.converged[:, 1:]] >= 0.0).all()
    gaps = np.abs(q[:, :, None] - q[:, None]).max(axis=-1)[:, ~np.eye(6, dtype=bool)]
    assert np.nanmin(gaps) > 0.1
    alone, _ = ik.solve(targets[3], q0[3], solutions=6)
    assert np.array_equal(alone, q[3], equal_nan=True)
    obstacles = rd.Obstacles(spheres=around(np.random.default_rng(1), 60))
    targets, q0 = reachable(arm, obstacles, 5)
    keeping = rd.InverseKinematics(arm, arm.link_names[-1], clearance=0.02, obstacles=obstacles)
    q, report = keeping.solve(targets, q0, solutions=4, seeds=16)
    assert (report.clearance[report.converged] > 0.02).all() and report.converged[:, 0].all()


def test_whole_turns_are_no_other_solutions():
    """Of joints without limits; and a quaternion of no length loses its row alone."""
    text = robots.own("double_pendulum").read_text().replace('type="revolute"', 'type="continuous"')
    model = rd.load_urdf(text)
    assert np.isinf(model.upper).all()
    tool, dyn = model.link_names[-1], rd.Dynamics(model)
    targets = dyn.link_pose(model.random_configuration(0, (5,)), tool)[:, None]
    q, report = rd.InverseKinematics(model, rd.PositionTask(tool)).solve(targets, solutions=8)
    poses = dyn.link_pose(q, tool)
    for k in range(5):
        angles = q[k][report.converged[k]]
        turns = np.abs((angles[:, None] - angles + np.pi) % (2.0 * np.pi) - np.pi).max(axis=-1)
        assert (turns[~np.eye(len(angles), dtype=bool)] > 0.1).all() and len(angles)
        assert np.abs(poses[k, report.converged[k], :3, 3] - targets[k, 0, :3, 3]).max() < 2e-6
    floating = rd.load_urdf(text, base="floating")
    q0 = floating.random_configuration(0, (3,))
    goals = rd.Dynamics(floating).link_pose(q0, tool)[:, None]
    q0[1, 3:7] = 0.0
    q, report = rd.InverseKinematics(floating, tool).solve(goals, q0, solutions=2, seeds=4)
    assert report.converged[[0, 2], 0].all() and np.isfinite(q[[0, 2], 0]).all()


def test_starts_of_ones_own():
    model = rd.load_urdf(robots.own("arm7"))
    tool, rng = model.link_names[-1], np.random.default_rng(0)
    there = model.random_configuration(rng, (30,))
    targets, ik = rd.Dynamics(model).link_pose(there, tool)[:, None], rd.InverseKinematics(model, tool)
    poor = np.clip(there + 2.5, model.lower, model.upper)
    near = np.stack([poor, there, poor], axis=1)
    q, report = ik.solve(targets, poor, starts=near, seeds=4)
    second = report.start == 2
    assert second.any() and np.abs(q[second] - there[second]).max() < 1e-9
    same, others = ik.solve(targets, poor, starts=there[0][None], seeds=2), ik.solve(targets, poor, seeds=1)
    assert same[1].converged.sum() >= others[1].converged.sum()
    for k in (0, 7):
        alone, _ = ik.solve(targets[k], poor[k], starts=near[k], seeds=4)
        assert (alone == q[k]).all()


@pytest.mark.parametrize("engine", ["cpu", pytest.param("reference", marks=pytest.mark.matrix)])
def test_rotations_about_some_axes_are_free(engine):
    model = rd.load_urdf(robots.own("arm7"))
    tool, dyn = model.link_names[-1], rd.Dynamics(model)
    targets = dyn.link_pose(model.random_configuration(0, (20,)), tool)[:, None]
    ik = rd.InverseKinematics(model, rd.PoseTask(tool, weight=(1.0, 1.0, 0.0, 1.0, 2.0, 0.0)), engine=engine)
    q, report = ik.solve(targets)
    assert report.converged.all()
    off = dyn.link_pose(q, tool)[:, :3, 3] - targets[:, 0, :3, 3]
    assert np.abs(off[:, :2]).max() < 2e-6 and np.abs(off[:, 2]).max() > 0.01
    turned = Rotation.from_matrix(targets[:, 0, :3, :3] @ dyn.link_pose(q, tool)[:, :3, :3].transpose(0, 2, 1))
    turn = turned.as_rotvec()
    assert np.abs(turn[:, :2]).max() < 2e-6 and np.abs(turn[:, 2]).max() > 0.1
    # Relative to a link that moves, along its axes.
    other = model.link_names[2]
    relative = np.linalg.inv(dyn.link_pose(model.random_configuration(1, (20,)), other)) @ targets[:, 0]
    task = rd.RelativePoseTask(tool, other, weight=(0.0, 1.0, 0.0, 1.0, 1.0, 1.0))
    q, report = rd.InverseKinematics(model, task, engine=engine).solve(relative[:, None])
    found = np.linalg.inv(dyn.link_pose(q, other)) @ dyn.link_pose(q, tool)
    turn = Rotation.from_matrix(relative[:, :3, :3] @ found[:, :3, :3].transpose(0, 2, 1)).as_rotvec()
    good = report.converged
    assert good.any() and np.abs(turn[good, 1]).max() < 2e-6 and np.abs((found - relative)[good, :3, 3]).max() < 2e-6


def test_positions_are_targets():
    model = rd.load_urdf(robots.own("arm7"))
    tool, dyn = model.link_names[-1], rd.Dynamics(model)
    targets = dyn.link_pose(model.random_configuration(0, (20,)), tool)[:, None]
    ik = rd.InverseKinematics(model, rd.PositionTask(tool))
    wanted, _ = ik.solve(targets)
    assert (ik.solve(targets[..., :3, 3])[0] == wanted).all()
    for one in (targets[4, 0, :3, 3], targets[4, 0, :3, 3].tolist()):
        assert (ik.solve(one)[0] == wanted[4]).all()
    with pytest.raises(rd.ArgumentError, match="targets"):
        rd.InverseKinematics(model, tool).solve(targets[..., :3, 3])


def bare():
    return rd.load_urdf(robots.own("arm7"))


REFUSED = {
    "no shapes": lambda arm: rd.InverseKinematics(bare(), 1, clearance=0.1),
    "clearance": lambda arm: rd.InverseKinematics(arm, 1, clearance=np.nan),
    "obstacles": lambda arm: rd.InverseKinematics(arm, 1, obstacles=[[0, 0, 0, 1]]),
    "obstacles: got": lambda arm: rd.InverseKinematics(arm, 1).solve(np.eye(4), obstacles="no"),
    "leading axes": lambda arm: rd.InverseKinematics(arm, 1).solve(
        np.eye(4), obstacles=rd.Obstacles(spheres=np.ones((3, 1, 4)))
    ),
    "position for each task": lambda arm: rd.InverseKinematics(arm, rd.PositionTask(1)).solve(np.zeros((9, 3))),
    "fewer, as q0 is the first": lambda arm: rd.InverseKinematics(arm, 1).solve(np.eye(4), starts=np.zeros((64, 7))),
    "1 to 64": lambda arm: rd.InverseKinematics(arm, 1).solve(np.eye(4), solutions=65),
    "starts: got": lambda arm: rd.InverseKinematics(arm, 1).solve(np.eye(4), starts=np.zeros(7)),
    "starts": lambda arm: rd.InverseKinematics(arm, 1).solve(np.eye(4), starts=np.zeros((2, 6))),
    "2 of them, or 6 of them": lambda arm: rd.PoseTask("tool0", weight=(1, 1, 1)),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(arm, words):
    with pytest.raises(rd.ArgumentError, match=words):
        REFUSED[words](arm)
