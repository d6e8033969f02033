"""Inverse kinematics: answers held against forward kinematics of this package and of Pinocchio, nearest poses against
SciPy's bounded least squares; limits, rows that are lost, and what engines and batches have in common."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import robots
from conftest import relative
from gpu_host import missing
from gpu_host.arrays import DeviceArray, _device, _plain
from scipy.optimize import least_squares

import robodyn as rd
from robodyn.description import JOINT_TYPES
from robodyn.io.builders.random_tree import SHAPES
from robodyn.solve.inverse_kinematics.limits import bounds

ENGINES = ("cpu", "reference", "gpu")
TOLERANCE = {"float64": (1e-6, 1e-6), "float32": (1e-4, 1e-4)}


def arm():
    """An arm of seven joints, its tool, poses that it reaches, and other configurations."""
    model = rd.load_urdf(robots.own("arm7"))
    tool, rng = model.link_names[-1], np.random.default_rng(1)
    there = model.random_configuration(rng, 40)
    return model, tool, rd.Dynamics(model).link_pose(there, tool)[:, None], model.random_configuration(rng, 40), there


def angle(A, B):
    """The angle between rotations (..., 3, 3), which small ones do not make inexact."""
    return 2 * np.arcsin(np.minimum(1.0, np.linalg.norm(A - B, axis=(-2, -1)) / np.sqrt(8)))


def apart(A, B):
    """Distance and angle between poses."""
    return np.stack((np.linalg.norm(A[..., :3, 3] - B[..., :3, 3], axis=-1), angle(A[..., :3, :3], B[..., :3, :3])), -1)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.some(of=3, rest="matrix")
def test_an_arm_reaches_poses_on_every_engine(engine, dtype, request):
    if engine == "gpu":
        if missing():
            pytest.skip(missing())
        request.getfixturevalue("host")
    model, tool, targets, q0, _ = arm()
    q, report = rd.InverseKinematics(model, tool, engine=engine, dtype=dtype).solve(targets, q0)
    assert q.dtype == dtype and report.converged.all()
    off = apart(rd.Dynamics(model).link_pose(q.astype(float), tool), targets[:, 0])
    assert (off <= np.array(TOLERANCE[dtype]) * (1 + 1e-3)).all()
    assert np.abs(report.residual[:, 0] - off).max() < (1e-9 if dtype == "float64" else 1e-5)
    assert (q >= model.lower).all() and (q <= model.upper).all()


@pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
def test_arrays_on_a_device_stay_there(host):
    model, tool, targets, q0, _ = arm()
    wanted, told = rd.InverseKinematics(model, tool, engine="reference").solve(targets[:9], q0[:9])
    q, report = rd.InverseKinematics(model, tool, engine="gpu").solve(_device(targets[:9]), _device(q0[:9]))
    assert type(q) is DeviceArray and type(report.converged) is DeviceArray
    assert _plain(report.converged).all() and np.array_equal(_plain(report.start), told.start)
    assert np.abs(_plain(q) - wanted).max() < 1e-6


def test_pinocchio_sees_the_tool_at_the_target():
    model, tool, targets, q0, _ = arm()
    q, _ = rd.InverseKinematics(model, tool).solve(targets, q0)
    pin = pytest.importorskip("pinocchio")
    theirs = pin.buildModelFromXML(robots.own("arm7").read_text())
    data, frame = theirs.createData(), theirs.getFrameId(tool)
    assert list(theirs.names)[1:] == list(model.joint_names)
    for each, target in zip(q, targets[:, 0], strict=True):
        pin.framesForwardKinematics(theirs, data, each)
        assert (apart(data.oMf[frame].homogeneous, target) <= 1.001e-6).all()


def test_a_row_does_not_depend_on_the_others():
    model, tool, targets, q0, _ = arm()
    ik = rd.InverseKinematics(model, [tool], posture=model.neutral())
    q, report = ik.solve(targets, q0)
    for row in (0, 17, 39):
        alone, told = ik.solve(targets[row], q0[row])
        assert np.array_equal(alone, q[row]) and told.start == report.start[row]
        assert told.iterations == report.iterations[row]
    several, told = ik.solve(targets[5:8], q0[5:8])
    assert np.array_equal(several, q[5:8]) and np.array_equal(told.iterations, report.iterations[5:8])


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", (1e-2, 1e-2)), ("float64", (0.1, 0.1)), ("float32", None)]
)
def test_a_row_does_not_depend_on_the_others_when_it_is_good_enough_at_once(dtype, tolerance):
    model = rd.load_urdf(robots.own("arm7"))
    tool, rng = model.link_names[-1], np.random.default_rng(0)
    there, q0 = (model.random_configuration(rng, 300) for _ in range(2))
    targets = rd.Dynamics(model).link_pose(there, tool)[:, None]
    targets[::10, 0, :3, 3] *= 4  # out of reach
    ik = rd.InverseKinematics(model, tool, dtype=dtype)
    q, report = ik.solve(targets, q0, seeds=8, tolerance=tolerance)
    for size in (1, 3):
        for first in range(0, 300, size):
            rows = slice(first, first + size)
            alone, told = ik.solve(targets[rows], q0[rows], seeds=8, tolerance=tolerance)
            assert np.array_equal(alone, q[rows])
            assert np.array_equal(told.iterations, report.iterations[rows])
            assert np.array_equal(told.start, report.start[rows])


@pytest.mark.parametrize("weight", [1e-9, 1e-4, 1e9, (1.0, 1e-4), (1e-4, 1.0)])
def test_weights_of_any_size(weight):
    model, tool, targets, q0, _ = arm()
    _, report = rd.InverseKinematics(model, rd.PoseTask(tool, weight)).solve(targets, q0)
    assert report.converged.all()
    _, report = rd.InverseKinematics(model, [rd.PoseTask(tool, weight), tool]).solve(targets.repeat(2, axis=1), q0)
    assert report.converged.all()


@pytest.mark.parametrize("scale", [0.01, 100.0])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_robots_of_any_size(dtype, scale):
    model, tool, _, q0, there = arm()
    Xtree, link_X = model.Xtree.copy(), model.link_X.copy()
    Xtree[:, 9:], link_X[:, 9:] = scale * Xtree[:, 9:], scale * link_X[:, 9:]
    sized = dataclasses.replace(model, Xtree=Xtree, link_X=link_X)
    targets = rd.Dynamics(sized).link_pose(there, tool)[:, None]
    distance, turn = TOLERANCE[dtype]
    _, report = rd.InverseKinematics(sized, tool, dtype=dtype).solve(targets, q0, tolerance=(scale * distance, turn))
    assert report.converged.all(), report


@pytest.mark.parametrize("away", [100.0, 1e3, 1e5])
def test_a_base_goes_any_way(away):
    target = np.eye(4)
    target[:3, 3] = away, away / 3, 1.0
    humanoid = rd.load_urdf(robots.own("humanoid"), base="floating")
    q, report = rd.InverseKinematics(humanoid, "left_hand").solve(target, seeds=1)
    assert report.converged and apart(rd.Dynamics(humanoid).link_pose(q, "left_hand"), target).max() <= 1.1e-6
    rover = rd.load_urdf(robots.own("planar_rover"))
    _, report = rd.InverseKinematics(rover, rd.PositionTask(rover.link_names[-1], (1, 1, 0))).solve(target, seeds=1)
    assert report.converged


def test_wide_limits_hold():
    text = """<robot name="rail"><link name="base"/><link name="cart"/>
    <joint name="rail" type="prismatic"><parent link="base"/><child link="cart"/><axis xyz="1 0 0"/>
    <limit lower="-1" upper="2e6" effort="1" velocity="1"/></joint></robot>"""
    model, target = rd.load_urdf(text), np.eye(4)
    ik = rd.InverseKinematics(model, rd.PositionTask("cart"))
    for wanted, found in ((3e6, 2e6), (-5.0, -1.0)):
        target[0, 3] = wanted
        q, report = ik.solve(target)
        assert q == found and not report.converged
    target[0, 3] = 1.5e6
    q, report = ik.solve(target)
    assert report.converged and abs(q[0] - 1.5e6) < 1e-6 and report.iterations < 20


def trees(count):
    """Random trees of all joint kinds, shapes and bases, some of whose joints mimic others."""
    for seed in range(count):
        options = {
            "joints": JOINT_TYPES,
            "shape": list(SHAPES)[seed % len(SHAPES)],
            "base": "floating" if seed % 2 else "fixed",
            "mimic": 0.3 if seed % 3 == 0 else 0.0,
        }
        print(f"tree: seed {seed}, {options}")
        yield rd.random_tree(7, seed=seed, **options)


KINDS = ("pose", "position", "direction", "relative", "com", "turn")


def task_and_targets(kind, model, dyn, there, rng):
    """A task of a kind about the last link, and what it finds at configurations."""
    link, other = model.link_names[-1], model.link_names[len(model.link_names) // 2]
    point, axis = rng.standard_normal(3), rng.standard_normal(3)
    pose = dyn.link_pose(there, link)
    if kind == "pose":
        return rd.PoseTask(link, point=point), dyn.link_pose(there, link, point=point)
    if kind == "position":
        return rd.PositionTask(link, weight=(1, 2, 0.5), point=point), dyn.link_pose(there, link, point=point)
    if kind == "direction":
        return rd.DirectionTask(link, axis), pose
    if kind == "relative":
        return rd.RelativePoseTask(link, other), dyn.link_pose(there, link, relative_to=other)
    if kind == "turn":
        return rd.PoseTask(link, weight=(1, 0)), pose
    pose[..., :3, 3] = dyn.center_of_mass(there)
    return rd.CoMTask(), pose


def errors_of(task, model, dyn, q, targets):
    """What is left of a task, by other queries than those it is made of: m or rad."""
    if isinstance(task, rd.CoMTask):
        return np.linalg.norm(dyn.center_of_mass(q) - targets[..., :3, 3], axis=-1)
    if isinstance(task, rd.DirectionTask):
        R = dyn.link_pose(q, task.link)[..., :3, :3]
        return np.linalg.norm((R - targets[..., :3, :3]) @ np.array(task.axis), axis=-1)
    if isinstance(task, rd.RelativePoseTask):
        return apart(dyn.link_pose(q, task.link, relative_to=task.to), targets).max(-1)
    off = apart(dyn.link_pose(q, task.link, point=np.array(task.point)), targets)
    if isinstance(task, rd.PositionTask):
        return off[..., 0]
    return off.max(-1) if task.weight[1] else off[..., 1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.some(of=3, rest="matrix")
def test_tasks_are_done_on_trees_of_all_joints(kind):
    rng, done, asked = np.random.default_rng(3), 0, 0
    for model in trees(6):
        dyn = rd.Dynamics(model, engine="reference")
        there = model.random_configuration(rng, 8)
        try:
            task, targets = task_and_targets(kind, model, dyn, there, rng)
            ik = rd.InverseKinematics(model, task, engine="reference" if model.n_bodies % 2 else "auto")
        except rd.ArgumentError as error:
            assert "one body" in str(error)
            continue
        q, report = ik.solve(
            targets[:, None], model.integrate(there, 0.1 * rng.standard_normal((*there.shape[:-1], model.nv)))
        )
        left = errors_of(task, model, dyn, q, targets)
        assert np.array_equal(report.converged, report.residual[:, 0].max(-1) <= 1e-6)
        assert (left[report.converged] <= 1.01e-6).all()
        lower, upper = bounds(model)
        assert (q >= lower).all() and (q <= upper).all()
        done, asked = done + report.converged.sum(), asked + len(q)
    print(f"{kind}: {done} of {asked}")
    assert done >= 0.95 * asked > 30


def test_followers_keep_their_limits():
    model = rd.load_urdf(robots.own("hand"))
    links, rng = model.link_names[-1], np.random.default_rng(0)
    away = rd.Dynamics(model).link_pose(model.neutral(), links) + np.zeros((20, 1, 1))
    away[:, :3, 3] += rng.standard_normal((20, 3))
    q, _ = rd.InverseKinematics(model, rd.PositionTask(links)).solve(away[:, None], seeds=4)
    every = model.tree_coordinates(q)
    assert (every >= model.tree_lower - 1e-15).all() and (every <= model.tree_upper + 1e-15).all()
    assert (np.abs(every - model.tree_upper) < 1e-9).any(), "no target pulled a joint to its limit"


def test_limits_can_be_left_out():
    model, tool, targets, q0, _ = arm()
    turned = dataclasses.replace(model, tree_lower=model.tree_lower * 1e-3, tree_upper=model.tree_upper * 1e-3)
    q, report = rd.InverseKinematics(turned, tool).solve(targets, q0, seeds=3)
    assert not report.converged.any() and (np.abs(q) <= turned.upper).all()
    _, report = rd.InverseKinematics(turned, tool, limits=False).solve(targets, q0)
    assert report.converged.mean() > 0.95


def test_what_is_out_of_reach_gets_the_nearest_pose():
    model, tool, targets, q0, _ = arm()
    far = targets[:8].copy()
    far[:, 0, :3, 3] *= 4.0
    ik = rd.InverseKinematics(model, rd.PositionTask(tool))
    q, report = ik.solve(far, q0[:8])
    assert not report.converged.any()
    dyn = rd.Dynamics(model)
    for row in range(len(far)):

        def off(q, row=row):
            return dyn.link_pose(q, tool)[:3, 3] - far[row, 0, :3, 3]

        tries = [
            least_squares(off, start, bounds=(model.lower, model.upper), xtol=1e-12, ftol=1e-12) for start in q0[8:14]
        ]
        nearest = min(np.sqrt(2 * each.cost) for each in tries)
        assert np.isclose(np.linalg.norm(off(q[row])), report.residual[row, 0, 0])
        assert report.residual[row, 0, 0] <= nearest * 1.01


@pytest.mark.parametrize("rng", [None, 3])
def test_starts_are_near_where_limits_are_very_wide(rng):
    model, tool, _, q0, there = arm()
    text = robots.own("arm7").read_text()
    rail = """<link name="rail"/><joint name="rail" type="prismatic"><parent link="rail"/><child link="base"/>
    <axis xyz="1 0 0"/><limit lower="0" upper="1e16" effort="1" velocity="1"/></joint></robot>"""
    model = rd.load_urdf(text.replace("</robot>", rail))
    at = model.coordinate_names.index("rail")
    there, q0 = (np.insert(each, at, np.linspace(0, 1, len(each)), axis=1) for each in (there, q0))
    targets = rd.Dynamics(model).link_pose(there, tool)[:, None]
    q, report = rd.InverseKinematics(model, tool).solve(targets, q0, seeds=20, rng=rng, iterations=8)
    assert report.converged.all() and (report.start > 0).any() and (q[report.start > 0, at] < 10).all()


@pytest.mark.parametrize("task", [rd.PoseTask, rd.PositionTask])
def test_what_is_nearest_is_looked_for_from_several_starts(task):
    model, tool, targets, _, _ = arm()
    rng = np.random.default_rng(0)
    targets = np.tile(targets, (3, 1, 1, 1))
    targets[:, 0, :3, 3] *= rng.choice((0.1, 1.5, 2.5), (len(targets), 1))
    ik = rd.InverseKinematics(model, task(tool))

    def off(q):
        T, wanted = rd.Dynamics(model).link_pose(q, tool), targets[:, 0]
        turned = np.sum((T[:, :3, :3] - wanted[:, :3, :3]) ** 2, axis=(1, 2)) / 2  # the chord squared
        return np.sqrt(np.sum((T[:, :3, 3] - wanted[:, :3, 3]) ** 2, axis=1) + (turned if task is rd.PoseTask else 0.0))

    q, report = ik.solve(targets)
    lost = ~report.converged
    others = [off(ik.solve(targets, model.random_configuration(rng, len(q)), seeds=1)[0]) for _ in range(12)]
    more = off(q)[lost] / np.minimum(off(q), np.min(others, axis=0))[lost]
    print(f"{task.__name__}: {lost.sum()} out of reach, {(more > 1.01).sum()} of them off, at most {more.max()} times")
    assert lost.sum() > 50 and (more > 1.01).mean() < 0.05


def test_rows_with_nan_are_lost_alone():
    model, tool, targets, q0, _ = arm()
    ik = rd.InverseKinematics(model, tool)
    wanted, _ = ik.solve(targets, q0)
    bad, start = targets.copy(), q0.copy()
    bad[3, 0, 0, 0], bad[5, 0, 2, 3], start[7, 2] = np.nan, np.inf, np.nan
    bad[9, 0, :3, :3] *= 2.0
    bad[11, 0, :3, 0] *= -1.0
    bad[13, 0] = bad[13, 0].T
    lost = [3, 5, 7, 9, 11, 13]
    q, report = ik.solve(bad, start)
    assert not report.converged[lost].any() and np.isnan(q[lost]).all() and np.isnan(report.residual[lost]).all()
    assert (report.start[lost] == -1).all()
    rest = np.setdiff1d(np.arange(len(q)), lost)
    assert np.array_equal(q[rest], wanted[rest]) and report.converged[rest].all()
    q, report = ik.solve(bad[3], start[3])
    assert np.isnan(q).all() and not report.converged and "1 NaN" in repr(report)


def test_half_a_turn_is_found_from_one_start():
    model = rd.random_tree(1, seed=0, base="floating", joints=("revolute",))
    half = np.diag([1.0, -1.0, -1.0, 1.0])
    link = model.link_names[0]
    q, report = rd.InverseKinematics(model, rd.PoseTask(link)).solve(half[None], model.neutral(), seeds=1)
    assert report.converged
    q, report = rd.InverseKinematics(model, rd.DirectionTask(link)).solve(half[None], model.neutral(), seeds=1)
    assert report.converged and apart(rd.Dynamics(model).link_pose(q, link), np.eye(4))[1] > 3.1


def test_a_posture_is_kept_as_far_as_tasks_allow():
    model, tool, targets, _, there = arm()
    near = np.clip(there + np.random.default_rng(0).uniform(-0.2, 0.2, there.shape), model.lower, model.upper)
    for row in range(5):  # a posture that does the task is the answer
        q, report = rd.InverseKinematics(model, tool, posture=there[row]).solve(targets[row], near[row], iterations=60)
        assert report.converged and np.abs(q - there[row]).max() < 5e-3
    q, _ = rd.InverseKinematics(model, rd.PositionTask(tool)).solve(targets, near)
    held, report = rd.InverseKinematics(model, [rd.PositionTask(tool), rd.PostureTask(near[0])]).solve(targets, near)
    assert report.converged.all()
    assert np.linalg.norm(held - near[0], axis=1).mean() < np.linalg.norm(q - near[0], axis=1).mean()
    weights = np.zeros(model.nv)
    free, _ = rd.InverseKinematics(model, [rd.PositionTask(tool), rd.PostureTask(near[0], weights)]).solve(
        targets, near
    )
    assert np.allclose(free, q, atol=1e-6)


def standing():
    """A humanoid with bent knees, poses of its feet, and where its hand is."""
    model = rd.load_urdf(robots.own("humanoid"), base="floating")
    q = model.neutral()
    for side in ("left", "right"):
        for joint, value in (("hip_pitch", -0.4), ("knee", 0.8), ("ankle_pitch", -0.4)):
            q[model.q_start[model.joint_index(f"{side}_{joint}")]] = value
    dyn = rd.Dynamics(model)
    return model, dyn, q, dyn.link_pose(q, links=["left_sole", "right_sole", "left_hand"])


def test_a_humanoid_on_two_feet_reaches_with_a_hand():
    model, dyn, q0, poses = standing()
    between = poses[:2, :3, 3].mean(axis=0)
    targets = np.tile(np.eye(4), (60, 4, 1, 1))
    targets[:, :2] = poses[:2]
    targets[:, 2, :3, 3] = poses[2, :3, 3] + np.random.default_rng(0).uniform(-0.25, 0.25, (60, 3))
    targets[:, 3, :3, 3] = between
    tasks = ["left_sole", "right_sole", rd.PositionTask("left_hand"), rd.CoMTask(weight=(1, 1, 0))]
    q, report = rd.InverseKinematics(model, tasks, posture=q0).solve(targets, q0, seeds=4)
    assert report.converged.all(), report
    found = dyn.link_pose(q, links=["left_sole", "right_sole", "left_hand"])
    assert (apart(found[:, :2], targets[:, :2]) <= 1.001e-6).all()
    assert np.abs(found[:, 2, :3, 3] - targets[:, 2, :3, 3]).max() <= 1.001e-6
    assert np.abs(dyn.center_of_mass(q)[:, :2] - between[:2]).max() <= 1.001e-6
    assert (q >= model.lower).all() and (q <= model.upper).all()


@pytest.mark.filterwarnings("ignore::robodyn.internals.errors.RedundantWarning")
@pytest.mark.parametrize(
    ("name", "link"), [("four_bar", "coupler"), ("delta", "platform_corner"), ("bird_legs", "right_foot")]
)
def test_constraints_of_the_model_hold(name, link):
    model = rd.load_urdf(robots.ROOT / "models" / "loops" / f"{name}.urdf")
    start = np.array([1.0, -0.5, 1.5]) if name == "four_bar" else model.neutral()
    dyn, closed = rd.Dynamics(model, constraints=()), model.assemble(start)
    rng = np.random.default_rng(0)
    targets = np.array(
        [
            dyn.link_pose(model.assemble(model.integrate(closed, 0.05 * rng.standard_normal(model.nv))), link)
            for _ in range(6)
        ]
    )
    q, report = rd.InverseKinematics(model, rd.PositionTask(link)).solve(targets[:, None], closed, seeds=4)
    assert report.converged.all() and (report.constraint_residual <= 1e-6).all()
    held = rd.Dynamics(model, constraints=model.constraints)
    phi, _ = held.constraint_residual(q, np.zeros((6, model.nv)))
    assert np.abs(phi).max() <= 1.01e-6
    assert np.abs(dyn.link_pose(q, link)[:, :3, 3] - targets[:, :3, 3]).max() <= 1.001e-6


def test_starts_are_even_or_drawn():
    model, tool, targets, q0, _ = arm()
    ik = rd.InverseKinematics(model, tool)
    one, other = (ik.solve(targets, q0)[0] for _ in range(2))
    assert np.array_equal(one, other)
    drawn, report = ik.solve(targets, q0, rng=4)
    assert report.converged.all() and not np.array_equal(drawn, one)
    assert np.array_equal(drawn, ik.solve(targets, q0, rng=np.random.default_rng(4))[0])
    _, few = ik.solve(targets, q0, seeds=1, iterations=4)
    assert (few.start == 0).all() and not few.converged.all() and (few.iterations <= 8 + 64).all()


def test_shapes():
    model, tool, targets, q0, _ = arm()
    ik = rd.InverseKinematics(model, [tool, rd.PostureTask(q0[0])])
    for given, leading in (
        (targets[0, 0], ()),
        (targets[0], ()),
        (targets[:6].reshape(2, 3, 1, 4, 4), (2, 3)),
        (targets[:0], (0,)),
    ):
        q, report = ik.solve(given)
        assert (
            q.shape == (*leading, 7) and report.converged.shape == leading and report.residual.shape == (*leading, 1, 2)
        )
    q, report = ik.solve(targets[:, None], q0[:3])
    assert q.shape == (40, 3, 7) and report.converged.all()
    both = np.concatenate((targets, np.full_like(targets, np.nan)), axis=1)
    assert np.array_equal(ik.solve(both, q0)[0], ik.solve(targets, q0)[0])
    assert repr(report).startswith("<IKReport: 120 of 120 converged") and report == report
    one = rd.InverseKinematics(model, tool, posture=q0[0])
    with pytest.raises(rd.ArgumentError, match=r"wanted .*1, 4, 4"):
        one.solve(targets[:2, 0])  # two targets of one task, and not one with something for the posture


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda m: rd.InverseKinematics("arm", "tool0"), "model: got"),
        (lambda m: rd.InverseKinematics(m, []), "tasks: got []; wanted at least one"),
        (lambda m: rd.InverseKinematics(m, [3.5]), "tasks[0]: got 3.5"),
        (lambda m: rd.InverseKinematics(m, ["tool0", "flange9"]), "tasks[1]: link: got 'flange9'"),
        (lambda m: rd.InverseKinematics(m, "tool0", posture=[0.0]), "PostureTask.q: got 1 numbers"),
        (lambda m: rd.InverseKinematics(m, "tool0", posture=[np.nan] * 7), "PostureTask.q"),
        (
            lambda m: rd.InverseKinematics(m, ["tool0", rd.PostureTask(np.zeros(7))], posture=np.zeros(7)),
            "a second posture",
        ),
        (lambda m: rd.InverseKinematics(m, rd.RelativePoseTask("tool0", "tool0")), "one body"),
        (lambda m: rd.InverseKinematics(m, "tool0", engine="scan"), "engine: got 'scan'"),
        (lambda m: rd.InverseKinematics(m, "tool0", limits=1), "limits: got 1"),
        (lambda m: rd.PoseTask("tool0", weight=(1, 2, 3)), "PoseTask.weight: got (1, 2, 3)"),
        (lambda m: rd.PoseTask("tool0", weight=-1.0), "PoseTask.weight: got -1.0"),
        (lambda m: rd.PoseTask("tool0", weight=np.nan), "PoseTask.weight: got nan"),
        (lambda m: rd.PoseTask("tool0", weight=1e200), "PoseTask.weight: got 1e+200; wanted 0, or numbers from 1e-12"),
        (lambda m: rd.PoseTask("tool0", weight=(1, 1e-200)), "PoseTask.weight: got (1, 1e-200)"),
        (lambda m: rd.PositionTask("tool0", weight=(0, 0, 0)), "PositionTask.weight"),
        (lambda m: rd.PoseTask(1.5), "PoseTask.link: got 1.5"),
        (lambda m: rd.PoseTask("tool0", point=(1, 2)), "PoseTask.point"),
        (lambda m: rd.DirectionTask("tool0", axis=(0, 0, 0)), "DirectionTask.axis"),
        (lambda m: rd.PostureTask(np.zeros((2, 7))), "PostureTask.q: got shape"),
        (lambda m: rd.PostureTask(np.zeros(7), weight=2.0), "PostureTask.weight"),
        (lambda m: rd.InverseKinematics(m, "tool0").solve(np.zeros((2, 4, 4))), "targets: got shape (2, 4, 4)"),
        (lambda m: rd.InverseKinematics(m, "tool0").solve(np.zeros(3)), "targets: got shape (3,)"),
        (lambda m: rd.InverseKinematics(m, "tool0").solve("here"), "targets: got"),
        (lambda m: rd.InverseKinematics(m, "tool0").solve(np.eye(4), np.zeros(3)), "q0: got shape (3,)"),
        (lambda m: rd.InverseKinematics(m, "tool0").solve(np.eye(4), seeds=0), "seeds: got 0"),
        (lambda m: rd.InverseKinematics(m, "tool0").solve(np.eye(4), iterations=1.5), "iterations: got 1.5"),
        (lambda m: rd.InverseKinematics(m, "tool0").solve(np.eye(4), tolerance=1e-6), "tolerance: got 1e-06"),
        (
            lambda m: rd.InverseKinematics(m, "tool0").solve(np.eye(4), tolerance=(0.0, 1.0)),
            "tolerance: got (0.0, 1.0)",
        ),
        (
            lambda m: rd.InverseKinematics(m, "tool0").solve(np.eye(4), tolerance=(1e200, 0.1)),
            "tolerance: got (1e+200, 0.1)",
        ),
        (lambda m: rd.InverseKinematics(m, "tool0").solve(np.eye(4), rng="dice"), "rng: got 'dice'"),
    ],
)
def test_what_is_refused(make, words):
    with pytest.raises((rd.ArgumentError, rd.NumericalError)) as error:
        make(rd.load_urdf(robots.own("arm7")))
    assert words in str(error.value)


def test_a_posture_without_an_attitude_is_refused():
    model = rd.load_urdf(robots.own("humanoid"), base="floating")
    with pytest.raises(rd.ArgumentError, match=r"PostureTask.q: the quaternion .* zero length"):
        rd.InverseKinematics(model, "left_hand", posture=np.zeros(model.nq))


def test_a_place_that_comes_with_calls_is_refused():
    model = rd.load_urdf(robots.own("arm7"))
    held = dataclasses.replace(model, constraints=(rd.Point(model.link_names[3]),))
    with pytest.raises(rd.ArgumentError, match="to_at"):
        rd.InverseKinematics(held, "tool0")


@pytest.mark.matrix
@pytest.mark.parametrize("path", robots.SHARED, ids=lambda path: path.stem)
def test_shared_robots_reach_their_own_poses(path):
    model = rd.load_urdf(path, strict=False)
    far = int(np.argmax([len(model.tree.path(b)) if b >= 0 else 0 for b in model.link_body.tolist()]))
    there = np.clip(model.random_configuration(0, 200), *bounds(model))  # which joints that mimic allow as well
    dyn = rd.Dynamics(model)
    targets = dyn.link_pose(there, far)[:, None]
    q, report = rd.InverseKinematics(model, far).solve(targets, model.random_configuration(1, 200))
    print(path.stem, report)
    assert report.converged.mean() >= 0.98
    assert (apart(dyn.link_pose(q, far), targets[:, 0])[report.converged] <= 1.01e-6).all()
    lower, upper = bounds(model)
    assert (q >= lower).all() and (q <= upper).all()
    assert relative(q, np.clip(q, lower, upper)) == 0.0
