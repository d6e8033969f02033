"""Velocities of joints for wished twists: bounded least squares by SciPy, motions by differences, loops of control."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import robots
import robots_with_loops
from scipy.optimize import lsq_linear
from scipy.spatial.transform import Rotation

import robodyn as rd
from robodyn import ArgumentError

DT = 0.01
ARM = rd.load_urdf(robots.own("arm7"))
HUMANOID = rd.load_urdf(robots.own("humanoid"), base="floating")
ENGINES = [("cpu", "float64"), ("cpu", "float32"), ("reference", "float64")]
ROUNDING = {"float64": 1e-9, "float32": 2e-4}


def bent(model, seed=0, share=0.5):
    """A configuration away from limits and singular ones."""
    rng = np.random.default_rng(seed)
    return model.integrate(model.neutral(), share * rng.uniform(0.3, 1.0, model.nv) * rng.choice([-1, 1], model.nv))


def box(model, q, dt, gain):
    """Bounds of velocities of a fixed arm, by the formulas of the docstring."""
    room = gain * (model.upper - q) / dt, gain * (model.lower - q) / dt
    return np.maximum(room[1], -model.velocity_limit), np.minimum(room[0], model.velocity_limit)


@pytest.mark.parametrize(("engine", "dtype"), ENGINES)
def test_bounded_least_squares(engine, dtype):
    """A pose task with weights and a posture, far from and at limits: SciPy solves the same problem."""
    weights, damping, rng = np.array([1.0, 0.5, 2.0, 3.0, 1.0, 0.7]), 0.01, np.random.default_rng(1)
    posture = bent(ARM, 7)
    tasks = [rd.PoseTask("tool0", weight=weights.tolist(), point=(0.0, 0.1, 0.05))]
    ik = rd.InverseKinematics(ARM, tasks, posture=posture, engine=engine, dtype=dtype)
    dyn = rd.Dynamics(ARM)
    q = ARM.random_configuration(rng, (6,))
    q[3:] = np.clip(1.2 * q[3:], ARM.lower, ARM.upper)
    twists = rng.normal(size=(6, 1, 6)) * np.array([0.1, 0.1, 3.0, 0.2, 5.0, 0.1])[:, None, None]
    qd, report = ik.velocity(q, twists, DT, damping=damping, limit_gain=0.4, posture_rate=2.0)
    assert report.feasible.all() and (report.at_limit != 0).any() and qd.dtype == dtype
    for each, twist, found, held in zip(q, twists[:, 0], qd, report.at_limit, strict=True):
        J = dyn.jacobian(each, "tool0", point=(0.0, 0.1, 0.05))
        A = np.concatenate((weights[:, None] * J, damping * np.eye(7), 0.01 * np.eye(7)))
        b = np.concatenate((weights * twist, np.zeros(7), 0.01 * 2.0 * (posture - each)))
        low, high = box(ARM, each.astype(dtype).astype(float), DT, 0.4)
        wanted = lsq_linear(A, b, (low, np.maximum(high, low + 1e-12)), method="bvls", tol=1e-14).x
        size = 1.0 + np.abs(wanted).max()
        assert np.abs(found - wanted).max() <= (1e-7 if dtype == "float64" else 5e-3) * size
        close = ROUNDING[dtype] * size
        assert (found >= low - close).all() and (found <= high + close).all()
        assert (np.abs(found[held > 0] - high[held > 0]) <= close).all()
        assert (np.abs(found[held < 0] - low[held < 0]) <= close).all()


def moved(dyn, task, q, qd):
    """The twist of a task by central differences of its pose, as the docstring of `velocity` defines it."""
    h, ends = 1e-6, []
    for sign in (-1.0, 1.0):
        there = dyn.model.integrate(q, sign * h * qd)
        if isinstance(task, rd.CoMTask):
            ends.append((np.eye(3), dyn.center_of_mass(there)))
            continue
        T = dyn.link_pose(there, task.link)
        point = np.array(getattr(task, "point", (0.0, 0.0, 0.0)))
        R, p = T[:3, :3], T[:3, :3] @ point + T[:3, 3]
        if isinstance(task, rd.RelativePoseTask):
            to = dyn.link_pose(there, task.to)
            R, p = to[:3, :3].T @ R, to[:3, :3].T @ (p - to[:3, 3])
        ends.append((R, p))
    (R0, p0), (R1, p1) = ends
    return np.concatenate((Rotation.from_matrix(R1 @ R0.T).as_rotvec(), p1 - p0)) / (2 * h)


TASKS = [
    rd.PoseTask("left_hand", point=(0.02, 0.0, -0.1)),
    rd.PositionTask("left_hand", point=(0.0, 0.1, 0.0)),
    rd.RelativePoseTask("left_hand", "right_hand", point=(0.0, 0.0, 0.1)),
    rd.DirectionTask("left_hand", axis=(1.0, 2.0, 0.5)),
    rd.CoMTask(),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_twists_are_produced(task):
    """The robot moves as wished, also towards a target: by differences of poses. A second task competes."""
    dyn, q, rng = rd.Dynamics(HUMANOID), bent(HUMANOID, 3), np.random.default_rng(4)
    ik = rd.InverseKinematics(HUMANOID, [rd.PositionTask("right_hand"), task], limits=False)
    size = 6 if isinstance(task, rd.PoseTask | rd.RelativePoseTask) else 3
    twist, turning = rng.normal(size=size), size == 6 or isinstance(task, rd.DirectionTask)
    qd, report = ik.velocity(q, [np.zeros(3), twist], DT, False, hard=[1])
    assert report.feasible and not report.at_limit.any()
    found = moved(dyn, task, q, qd)
    found = found[:size] if turning else found[3:]
    if isinstance(task, rd.DirectionTask):  # the rotation about the axis is free
        axis = dyn.link_pose(q, task.link)[:3, :3] @ np.array(task.axis)
        found, twist = np.cross(found, axis), np.cross(twist, axis)
    assert np.abs(found - twist).max() < 1e-7
    # With full gain the step ends at the target, to second order.
    there = HUMANOID.integrate(q, 1e-3 * rng.normal(size=HUMANOID.nv))
    goal = np.eye(4)
    if isinstance(task, rd.CoMTask):
        goal[:3, 3] = dyn.center_of_mass(there)
    else:
        goal = dyn.link_pose(there, task.link)
        goal[:3, 3] += goal[:3, :3] @ np.array(getattr(task, "point", (0.0, 0.0, 0.0)))
        if isinstance(task, rd.RelativePoseTask):
            goal = np.linalg.inv(dyn.link_pose(there, task.to)) @ goal
    alone = rd.InverseKinematics(HUMANOID, task, limits=False)
    qd, report = alone.velocity(q, None, DT, False, targets=goal, hard=[0])
    assert report.feasible and np.abs(qd).max() < 10.0
    _, before = alone.solve(goal, q, seeds=1, iterations=1, tolerance=(1e-2, 1e-2))
    _, after = alone.solve(goal, HUMANOID.integrate(q, DT * qd), seeds=1, iterations=1, tolerance=(1e-2, 1e-2))
    assert before.iterations == after.iterations == 0
    assert after.residual.max() < 1e-3 * before.residual.max() + 1e-12 or after.residual.max() < 1e-5


@pytest.mark.parametrize(("engine", "dtype"), ENGINES[:2])
def test_a_loop_of_control_arrives_within_limits(engine, dtype):
    """A frame task converges, as in the scenes of pink and mink; limits of position, velocity and acceleration hold."""
    ik = rd.InverseKinematics(ARM, "tool0", engine=engine, dtype=dtype, threads=1)
    dyn, most, rng = rd.Dynamics(ARM), 20.0, np.random.default_rng(2)
    q = 0.8 * ARM.random_configuration(rng, (20,)).astype(dtype)
    goals = dyn.link_pose(np.clip(q + 0.2 * rng.normal(size=q.shape), ARM.lower, ARM.upper), "tool0")
    qd, slack = np.zeros_like(q), ROUNDING[dtype]
    for _ in range(300):
        before = qd
        qd, report = ik.velocity(q, None, DT, targets=goals[:, None], gain=0.1, qd=qd, acceleration_limits=most)
        assert report.feasible.all()
        assert (np.abs(qd - before) <= most * DT + slack).all()
        assert (np.abs(qd) <= ARM.velocity_limit + slack).all()
        q = (q + DT * qd).astype(dtype)
        assert (q >= ARM.lower - slack).all() and (q <= ARM.upper + slack).all()
    arrived = np.abs(dyn.link_pose(q, "tool0") - goals).max((1, 2)) < (1e-5 if dtype == "float64" else 1e-3)
    assert arrived.mean() >= 0.9  # a few are stuck at limits


def test_a_humanoid_on_its_feet():
    """Feet as equalities, the hand reaches, the centre of mass stays."""
    dyn, q = rd.Dynamics(HUMANOID), HUMANOID.neutral()
    for side in ("left", "right"):
        for joint, angle in (("hip_pitch", -0.4), ("knee", 0.8), ("ankle_pitch", -0.4)):
            q[HUMANOID.coordinate_names.index(f"{side}_{joint}")] = angle
    feet, hand = ["left_sole", "right_sole"], rd.PositionTask("left_hand")
    ik = rd.InverseKinematics(HUMANOID, [*feet, hand, rd.CoMTask(weight=(1, 1, 0))], posture=q)
    stand, com = dyn.link_pose(q, links=feet), dyn.center_of_mass(q)
    reach, over = np.eye(4), np.eye(4)
    reach[:3, 3], over[:3, 3] = dyn.link_pose(q, "left_hand")[:3, 3] + [0.1, 0.05, 0.1], com
    for _ in range(150):
        targets = np.stack([*stand, reach, over])
        qd, report = ik.velocity(q, None, DT, targets=targets, hard=[0, 1], gain=[1.0, 1.0, 0.1, 0.1], posture_rate=0.1)
        assert report.feasible
        for foot in feet:
            assert np.abs(dyn.link_velocity(q, qd, foot)).max() < 1e-2  # what corrects the error of the step before
        q = HUMANOID.integrate(q, DT * qd)
    assert np.abs(dyn.link_pose(q, links=feet) - stand).max() < 1e-5
    assert np.abs(dyn.link_pose(q, "left_hand")[:3, 3] - reach[:3, 3]).max() < 2e-3
    assert np.abs(dyn.center_of_mass(q) - com)[:2].max() < 2e-3


@pytest.mark.filterwarnings("ignore::robodyn.RedundantWarning")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", robots_with_loops.NAMES)
def test_loops_stay_closed(name, dtype):
    """Velocities obey the model's constraints, whose rows may depend on one another, and correct their errors."""
    model, held = robots_with_loops.load(name)
    dyn = rd.Dynamics(model, constraints=held)
    model = dyn.model
    q, *_ = robots_with_loops.near(dyn, 1)
    ik = rd.InverseKinematics(model, rd.PositionTask(model.link_names[-1]), limits=False, dtype=dtype)
    q, limits, errors = model.integrate(q, np.full(model.nv, 1e-4)), {"velocity_limits": False, "limit_gain": 0.5}, []
    for _ in range(20):
        qd, report = ik.velocity(q, np.array([0.05, 0.02, 0.05]), DT, **limits)
        assert report.feasible and np.abs(qd).max() < 10.0
        q = model.integrate(q, DT * qd)
        errors.append(np.abs(dyn.constraint_residual(q, np.zeros(model.nv))[0]).max())
    assert errors[0] > 1e-6 and errors[-1] < 0.1 * errors[0] + 1e-6  # what a step adds is of second order
    assert np.abs(q).max() < 10.0


def test_rows_of_rounding_errors_hold_nothing():
    """A planar arm cannot turn out of its plane: hard twists within it hold, others are refused."""
    model = rd.load_urdf(robots.own("double_pendulum"))
    dyn, link, q = rd.Dynamics(model), model.link_names[-1], np.array([0.3, 0.9])
    point = (0.1, 0.2, 0.3)
    ik = rd.InverseKinematics(model, rd.PoseTask(link, point=point))
    possible = dyn.jacobian(q, link, point=point) @ [0.4, -0.7]
    qd, report = ik.velocity(q, possible, DT, False, hard=[0])
    assert report.feasible and np.abs(qd - [0.4, -0.7]).max() < 1e-9
    for k in range(6):
        off = possible + 0.01 * np.eye(6)[k]
        assert not ik.velocity(q, off, DT, False, hard=[0])[1].feasible


def with_shapes():
    names, T = ARM.link_names, rd.Dynamics(ARM).forward_kinematics(ARM.neutral())
    shapes = [
        rd.Capsule(names[k], (0.0, 0.0, 0.0), T[k, :3, :3].T @ (T[k + 1] - T[k])[:3, 3], radius=0.03)
        for k in range(1, 7)
    ]
    return ARM.with_shapes([*shapes, rd.Sphere(names[8], (0.0, 0.0, 0.0), 0.04)])


@pytest.mark.parametrize(("engine", "dtype"), ENGINES[:2])
def test_barriers_keep_distances(engine, dtype):
    """A hand is sent through an obstacle and through the robot: distances stay above the clearance."""
    model, clearance = with_shapes(), 0.02
    dyn, rng = rd.Dynamics(model), np.random.default_rng(6)
    q = model.random_configuration(rng, (400,)).astype(dtype)
    away = rd.Obstacles(spheres=np.array([[0.35, 0.1, 0.5, 0.12], [-0.3, -0.3, 0.4, 0.1]]))
    q = q[dyn.min_distance(q.astype(float), away) > 0.05][:16]
    goals = np.tile(np.eye(4), (len(q), 1, 1, 1))
    goals[: len(q) // 2, 0, :3, 3] = [0.35, 0.1, 0.5]  # into the obstacle; the others to the base
    ik = rd.InverseKinematics(model, rd.PositionTask("tool0"), engine=engine, dtype=dtype, clearance=clearance)
    least, held = [], False
    for _ in range(80):
        qd, report = ik.velocity(q, None, DT, targets=goals, gain=0.1, obstacles=away)
        assert report.feasible.all()
        least.append(report.clearance)
        q = (q + DT * qd).astype(dtype)
        held = held or (dyn.min_distance(q.astype(float), away) < clearance + 5e-3).any()
    assert np.min(least) > clearance - 1e-3 and held  # a step follows tangents
    # Obstacles of each state are those of its own call; a batch is its rows.
    moved = rd.Obstacles(spheres=away.rows()["spheres"] + 0.01 * rng.normal(size=(len(q), 1, 4)) * [1, 1, 1, 0])
    every, _ = ik.velocity(q, None, DT, targets=goals, gain=0.1, obstacles=moved)
    own = rd.Obstacles(spheres=moved.rows()["spheres"][3])
    alone, _ = ik.velocity(q[3], None, DT, targets=goals[3], gain=0.1, obstacles=own)
    np.testing.assert_allclose(every[3], alone, atol=1e-6 if dtype == "float64" else 1e-2)


@pytest.mark.parametrize(("engine", "dtype"), ENGINES)
def test_rows_are_their_own(engine, dtype):
    """A state gives the same alone and in a batch; NaN stays in its row; what cannot be is told."""
    ik = rd.InverseKinematics(ARM, ["tool0", rd.PositionTask("link_4")], engine=engine, dtype=dtype, threads=2)
    rng, n = np.random.default_rng(9), 5 if engine == "reference" else 3000
    q, pair = 0.9 * ARM.random_configuration(rng, (n,)), [0.3 * rng.normal(size=(n, k)) for k in (6, 3)]
    q[1, 6], pair[0][2, 5], pair[1][3, 0] = np.nan, np.inf, np.nan
    qd, report = ik.velocity(q, pair, DT)
    lost = np.isin(np.arange(n), (1, 2, 3))
    assert (report.feasible == ~lost).all() and (report.outcome[lost] == 3).all()
    assert np.isnan(qd[lost]).all() and np.isfinite(qd[~lost]).all()
    for k in (0, 1, 4):
        for _ in range(2):  # the second call has memory of its own
            alone, told = ik.velocity(q[k].astype(dtype), [each[k].astype(dtype) for each in pair], DT)
            np.testing.assert_allclose(alone, qd[k], atol=1e-9 if dtype == "float64" else 1e-3)
            assert told.outcome == report.outcome[k] and told.at_limit.shape == (7,)
    # Two equalities that contradict, and one that is too fast for the joints.
    for hard, twists in (([0, 1], [np.ones(6), -np.ones(3)]), ([0], [np.full(6, 50.0), np.zeros(3)])):
        qd, report = ik.velocity(q[0], twists, DT, hard=hard)
        assert not report.feasible and report.outcome == 1 and np.isnan(qd).all()


def test_one_state_by_kept_memory():
    """Calls about one state in arrays of the dtype: the same as in a batch, whatever was asked before."""
    ik, rng = rd.InverseKinematics(ARM, "tool0"), np.random.default_rng(11)
    q, twists = 0.9 * ARM.random_configuration(rng, (8,)), rng.normal(size=(8, 1, 6))
    goals = rd.Dynamics(ARM).link_pose(0.9 * q, "tool0")[:, None]
    for options in ({}, {"gain": 0.3, "damping": 0.1}, {"velocity_limits": 1.0}, {"velocity_limits": True}):
        every, told = ik.velocity(q, twists, DT, targets=goals, **options)
        for k in range(8):
            alone, report = ik.velocity(q[k], twists[k], DT, targets=goals[k], **options)
            again, _ = ik.velocity(q[k], twists[k, 0], DT, targets=goals[k, 0], **options)
            np.testing.assert_allclose(alone, every[k], atol=1e-10)
            assert np.array_equal(alone, again) and (report.at_limit == told.at_limit[k]).all()
    lost = q[0].copy()
    lost[0] = np.nan
    assert np.isnan(ik.velocity(lost, twists[0], DT)[0]).all() and ik.velocity(q[0], twists[0], DT)[1].feasible
    before, _ = ik.velocity(q[0], twists[0], DT)
    ik.velocity(q[1], twists[1], DT)
    assert np.array_equal(ik.velocity(q[0], twists[0], DT)[0], before)
    assert np.array_equal(pickle.loads(pickle.dumps(ik)).velocity(q[0], twists[0], DT)[0], before)
    for dt in (0.001, 0.5):  # the length of a step is that of each call
        assert np.abs(ik.velocity(q[2], twists[2], dt)[0] - ik.velocity(q[2:3], twists[2:3], dt)[0][0]).max() < 1e-10


def test_wrong_arguments_are_named():
    ik, q, v = rd.InverseKinematics(ARM, "tool0"), np.zeros(7), np.zeros(6)
    two = rd.InverseKinematics(ARM, ["tool0", rd.PositionTask("link_4")])

    ik.velocity(q, v, DT, hard=(0,))

    def goal(*tasks):
        return rd.InverseKinematics(ARM, list(tasks)).velocity(q, v[3:], DT)

    for call, words in (
        (lambda: ik.velocity(q, v, 0.0), "dt: got 0.0; wanted a number above 0, s"),
        (lambda: ik.velocity(q, v[:5], DT), "twists"),
        (lambda: ik.velocity(q, np.zeros((4, 6)), DT), "twists: got shape"),
        (lambda: ik.velocity(q[:6], v, DT), "q: "),
        (lambda: two.velocity(q, np.zeros((2, 6)), DT), "twists: got .* wanted a list of 2 arrays"),
        (lambda: two.velocity(q, [v], DT), "twists: got 1 entries; wanted 2"),
        (lambda: ik.velocity(q, v, DT, hard=[1]), "hard: got .* wanted indices of tasks with a target"),
        (lambda: ik.velocity(q, v, DT, hard=(False,)), "hard: got .* wanted indices"),
        (lambda: ik.velocity(q, None, DT, targets=np.eye(4), gain=2.0), "gain: got 2.0"),
        (lambda: ik.velocity(q, v, DT, gain=0.5), "gain: is read with targets= alone"),
        (lambda: ik.velocity(q, v, DT, posture_rate=0.5), "posture_rate: the tasks have no posture"),
        (lambda: ik.velocity(q, v, DT, limit_gain=0.0), "limit_gain"),
        (lambda: ik.velocity(q, v, DT, damping=-1.0), "damping"),
        (lambda: ik.velocity(q, v, DT, velocity_limits=-1.0), "velocity_limits"),
        (lambda: ik.velocity(q, v, DT, acceleration_limits=1.0), "acceleration_limits: need qd="),
        (lambda: ik.velocity(q, v, DT, qd=q), "qd: is read with acceleration_limits alone"),
        (lambda: ik.velocity(q, v, DT, obstacles=3), "obstacles"),
        (lambda: ik.velocity(np.zeros((3, 7)), np.zeros((2, 1, 6)), DT), "leading axes"),
        (lambda: goal(rd.PositionTask("tool0", lower=-0.1)), r"tasks\[0\]: PositionTask with bounds"),
        (lambda: goal(rd.DirectionTask("tool0", angle=0.1)), r"tasks\[0\]: DirectionTask with bounds"),
        (lambda: goal(rd.GazeTask("tool0")), "GazeTask"),
        (lambda: goal(rd.PoseTask("tool0", priority=2)), "priority: velocities have none"),
        (lambda: goal("tool0", rd.ManipulabilityTask("tool0")), "ManipulabilityTask has no velocity"),
        (lambda: goal("tool0", rd.PostureTask("q0")), "PostureTask.q: got 'q0', but velocities have no initial"),
    ):
        with pytest.raises(ArgumentError, match=words):
            call()


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["panda_arm", "universalUR5", "iiwa14", "xarm7", "kinovaGen3V12"])
def test_published_arms_arrive(name):
    """A frame task converges on published arms."""
    model = rd.load_urdf(robots.shared(name))
    dyn, rng, link = rd.Dynamics(model), np.random.default_rng(12), model.link_names[-1]
    ik, q = rd.InverseKinematics(model, link), 0.5 * model.random_configuration(rng, (30,))
    goals = dyn.link_pose(np.clip(q + 0.1 * rng.normal(size=q.shape), model.lower, model.upper), link)
    for _ in range(200):
        qd, report = ik.velocity(q, None, DT, targets=goals[:, None], gain=0.2)
        assert report.feasible.all()
        q = model.integrate(q, DT * qd)
    assert (np.abs(dyn.link_pose(q, link) - goals).max((1, 2)) < 1e-4).mean() >= 0.9
