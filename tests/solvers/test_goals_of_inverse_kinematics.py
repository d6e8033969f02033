"""Secondary goals, priorities and bounds of inverse kinematics: the same optima as SciPy's SLSQP, tasks of a higher
priority that do not feel the others, bounds that forward kinematics confirms, and scenes of other libraries."""

from __future__ import annotations

import numpy as np
import pytest
import robots
from gpu_host import missing
from scipy.optimize import minimize

import robodyn as rd
from robodyn.core.reach import reach
from robodyn.solve.inverse_kinematics.secondary import _SINGULAR, log_manipulability_gradient

TOLERANCE = {"float64": 1e-6, "float32": 1e-4}
SLACK = {"float64": 1e-8, "float32": 3e-5}
"""Roundings of the forward kinematics that confirms an answer in single precision."""


@pytest.fixture(scope="module")
def arm():
    return rd.load_urdf(robots.own("arm7"))


def logarithm(dyn, q, link, rows=slice(0, 6)):
    """log sqrt(det(J J'))."""
    J = dyn.jacobian(q, link, frame="world_aligned")[rows]
    return 0.5 * np.linalg.slogdet(J @ J.T)[1]


def off(A, B):
    """Errors of a pose, six numbers that are zero for the same."""
    R = A[:3, :3] @ B[:3, :3].T
    return np.r_[A[:3, 3] - B[:3, 3], 0.5 * np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])]


def least(model, cost, start, same=None, inside=None):
    """SLSQP's optimum of a cost within the limits, with constraints same(q) = 0 and inside(q) >= 0."""
    given = [{"type": "eq", "fun": same}] if same else []
    given += [{"type": "ineq", "fun": inside}] if inside else []
    bounds = list(zip(model.lower, model.upper, strict=True))
    return minimize(
        cost, start, constraints=given, bounds=bounds, method="SLSQP", options={"maxiter": 500, "ftol": 1e-13}
    )


# Secondary goals.


@pytest.mark.parametrize("posture", [None, "middle", "q0"])
def test_secondary_goals_reach_the_optimum_that_slsqp_finds(arm, posture):
    dyn, rng = rd.Dynamics(arm), np.random.default_rng(4)
    q0 = arm.random_configuration(rng, (6,))
    targets = dyn.link_pose(arm.random_configuration(rng, (6,)), "tool0")
    tasks = ["tool0", rd.ManipulabilityTask("tool0", 0.5), *([rd.PostureTask(posture, 0.7)] if posture else [])]
    q, report = rd.InverseKinematics(arm, tasks).solve(targets[:, None], q0, iterations=200)
    assert report.converged.all()
    near = q0 if posture == "q0" else np.broadcast_to(0.5 * (arm.lower + arm.upper), q0.shape)
    gaps = []
    for target, each, first in zip(targets, q, near, strict=True):

        def cost(x, first=first):
            return -0.5 * logarithm(dyn, x, "tool0") + (0.35 * ((x - first) ** 2).sum() if posture else 0.0)

        best = least(arm, cost, each, lambda x, target=target: off(dyn.link_pose(x, "tool0"), target))
        gaps.append(cost(each) - best.fun)
    assert np.sort(gaps)[-2] < 1e-3, gaps  # SLSQP may leave one for another local optimum


def test_a_posture_beyond_limits_is_approached_to_the_optimum_that_slsqp_finds(arm):
    dyn, rng = rd.Dynamics(arm), np.random.default_rng(3)
    q0, posture = arm.random_configuration(rng, (20,)), arm.random_configuration(rng)
    targets = dyn.link_pose(arm.random_configuration(rng, (20,)), "tool0")
    q, report = rd.InverseKinematics(arm, "tool0", posture=posture).solve(targets[:, None], q0, iterations=100)
    assert report.converged.all() and ((q == arm.lower) | (q == arm.upper)).any()
    for target, each in zip(targets, q, strict=True):
        best = least(
            arm,
            lambda x: ((x - posture) ** 2).sum(),
            each,
            lambda x, target=target: off(dyn.link_pose(x, "tool0"), target),
        )
        assert not best.success or ((each - posture) ** 2).sum() - best.fun < 1e-3


def test_gradients_of_manipulability_are_exact_also_with_followers():
    for seed, axes, rows in ((1, "translation", slice(3, 6)), (4, "rotation", slice(0, 3)), (6, "all", slice(0, 6))):
        model = rd.random_tree(12, seed=seed, shape="chain", mimic=0.3)
        dyn, link, q = rd.Dynamics(model), model.link_names[-1], model.random_configuration(seed)
        print("tree:", seed, axes)

        def at(algorithm, of, q=q, dyn=dyn, model=model):
            frame = {"frame": "world_aligned"}
            found = dyn.pose_hessian(q, of, **frame) if "hessian" in algorithm.name else dyn.jacobian(q, of, **frame)
            return dict.fromkeys(("H", "J"), found.ravel().tolist())

        own = log_manipulability_gradient(model, model.link_index(link), axes, at)
        added = _SINGULAR * np.array([1.0] * 3 + [reach(model) ** 2] * 3)[rows]

        def value(step, q=q, dyn=dyn, model=model, link=link, rows=rows, added=added):
            J = dyn.jacobian(model.integrate(q, step), link, frame="world_aligned")[rows]
            return 0.5 * np.linalg.slogdet(J @ J.T + np.diag(added))[1]

        differences = [(value(1e-5 * e) - value(-1e-5 * e)) / 2e-5 for e in np.eye(model.nv)]
        np.testing.assert_allclose(np.array(own, float), differences, atol=1e-6 * max(1.0, np.abs(differences).max()))


def test_postures_by_name(arm):
    dyn, rng = rd.Dynamics(arm), np.random.default_rng(1)
    q0 = arm.random_configuration(rng, (30,))
    targets = dyn.link_pose(arm.random_configuration(rng, (30,)), "tool0")[:, None]
    free, _ = rd.InverseKinematics(arm, "tool0").solve(targets, q0)
    stays, report = rd.InverseKinematics(arm, "tool0", posture="q0").solve(targets, q0)
    assert report.converged.all()
    assert np.mean((stays - q0) ** 2) < np.mean((free - q0) ** 2)
    middle = 0.5 * (arm.lower + arm.upper)
    one, _ = rd.InverseKinematics(arm, "tool0", posture="middle").solve(targets, q0)
    other, _ = rd.InverseKinematics(arm, "tool0", posture=middle).solve(targets, q0)
    assert np.array_equal(one, other) and np.mean((one - middle) ** 2) < np.mean((free - middle) ** 2)
    floating = rd.load_urdf(robots.own("quadruped"), base="floating")  # its base has no middle
    _, report = rd.InverseKinematics(floating, floating.link_names[-1], posture="middle").solve(np.eye(4))
    assert report.converged


# Priorities.


def test_lower_priorities_reach_the_optimum_that_slsqp_finds_in_the_null_space(arm):
    dyn, rng, elbow = rd.Dynamics(arm), np.random.default_rng(2), arm.link_names[4]
    q0 = arm.random_configuration(rng, (40,))
    hand = dyn.link_pose(q0, "tool0")
    wanted = dyn.link_pose(arm.random_configuration(rng, (40,)), elbow)  # most of them cannot be reached
    tasks = ["tool0", rd.PositionTask(elbow, priority=2)]
    q, report = rd.InverseKinematics(arm, tasks).solve(np.stack([hand, wanted], 1), q0, iterations=200)
    assert report.converged.all() and np.median(report.residual[:, 1, 0]) > 0.1
    assert ((q == arm.lower) | (q == arm.upper)).any()  # limits are active
    for k in range(6):

        def cost(x, k=k):
            return ((dyn.link_pose(x, elbow)[:3, 3] - wanted[k, :3, 3]) ** 2).sum()

        best = least(arm, cost, q[k], lambda x, k=k: off(dyn.link_pose(x, "tool0"), hand[k]))
        assert cost(q[k]) - best.fun < 1e-4
    order = [rd.PositionTask(elbow, priority=7), rd.PoseTask("tool0", priority=3)]
    same, told = rd.InverseKinematics(arm, order).solve(np.stack([wanted, hand], 1), q0, iterations=200)
    assert np.array_equal(same, q) and np.array_equal(told.residual[:, ::-1], report.residual)


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.matrix)])
def test_a_higher_priority_does_not_feel_a_lower_one(dtype):
    model = rd.load_urdf(robots.own("humanoid"))
    dyn, rng, slack = rd.Dynamics(model), np.random.default_rng(0), 20 * TOLERANCE[dtype]
    there = model.random_configuration(rng, (24,))
    left, right = dyn.link_pose(there, "left_hand"), dyn.link_pose(model.random_configuration(rng, (24,)), "right_hand")
    left[::2, :3, 3] *= 4.0  # stretched out, and out of reach
    right[::3, :3, 3] *= 4.0
    targets = np.stack([left, right], 1).astype(dtype)
    first = rd.PositionTask("left_hand")
    _, alone = rd.InverseKinematics(model, first, dtype=dtype).solve(targets[:, :1], there.astype(dtype))
    tasks = [first, rd.PoseTask("right_hand", priority=2)]
    ik = rd.InverseKinematics(model, tasks, posture=model.neutral(), dtype=dtype)
    _, report = ik.solve(targets, there.astype(dtype))
    assert np.array_equal(report.converged, alone.converged)
    assert np.abs(report.residual[:, 0, 0] - alone.residual[:, 0, 0]).max() < slack
    assert np.median(report.residual[1::2, 1, 0][[0, 2, 3, 5]]) < 0.3


@pytest.mark.matrix
def test_three_levels_of_which_each_has_what_is_left():
    model = rd.load_urdf(robots.own("humanoid"), base="floating")
    dyn, stand = rd.Dynamics(model), model.neutral()
    feet = dyn.link_pose(stand, links=["left_sole", "right_sole"])
    hand = dyn.link_pose(stand, "left_hand")
    hand[:3, 3] += 0.1, 0.1, 0.1
    far = dyn.link_pose(stand, "right_hand")
    far[:3, 3] += 5.0, 0.0, 0.0
    last = [rd.PoseTask("left_hand", priority=2), rd.PositionTask("right_hand", priority=3)]
    ik = rd.InverseKinematics(model, ["left_sole", "right_sole", *last])
    _, report = ik.solve(np.stack([*feet, hand, far]), stand, iterations=100)
    assert (
        report.converged
        and report.residual[:2].max() < 1e-6
        and report.residual[2].max() < 0.05
        and 4.0 < report.residual[3, 0] < 5.0
    )


# Bounds.


def about(T, offset):
    """Poses moved by an offset in their own frame."""
    moved = T.copy()
    moved[..., :3, 3] += np.einsum("...ij,j->...i", T[..., :3, :3], offset)
    return moved


SQUARE = np.array([[0.02, 0.02], [-0.02, 0.02], [-0.02, -0.02], [0.02, -0.02]])
KINDS = ("box", "cone", "gaze", "gaze in a cone", "distance", "distance of links", "polygon")


def bounded(kind, model, dyn, there):
    """A task, its targets, which configurations `there` fulfil, and a function that says by how much others miss it."""
    link, other, eyes = model.link_names[-1], model.link_names[2], np.array([0.02, 0.0, 0.1])
    T, point = dyn.link_pose(there, link), lambda q: dyn.link_pose(q, link, point=eyes)[..., :3, 3]
    if kind == "box":
        low, high, T = np.array([-0.05, -0.1, -0.02]), np.array([0.05, 0.02, np.inf]), about(T, (0.04, 0.09, 0.0))

        def missed(q, target):
            place = np.einsum("...ji,...j->...i", target[:, :3, :3], point(q) - target[:, :3, 3])
            return np.maximum(low - place, place - high).max(axis=-1)

        T = dyn.link_pose(there, link, point=eyes)
        return rd.PositionTask(link, point=eyes, lower=low, upper=high), T, missed
    if kind in ("cone", "gaze", "gaze in a cone"):
        widest = {"cone": 0.3, "gaze": 0.0, "gaze in a cone": 0.2}[kind]
        if kind != "cone":
            T = about(dyn.link_pose(there, link, point=eyes), (0.0, 0.0, 0.5))

        def missed(q, target):
            b = dyn.link_pose(q, link)[:, :3, 2]
            t = target[:, :3, 2] if kind == "cone" else target[:, :3, 3] - point(q)
            return np.arctan2(np.linalg.norm(np.cross(b, t), axis=1), (b * t).sum(axis=1)) - widest

        if kind == "cone":
            return rd.DirectionTask(link, angle=widest), T, missed
        return rd.GazeTask(link, point=eyes, angle=widest), T, missed
    if kind == "distance":
        T = about(dyn.link_pose(there, link, point=eyes), (0.35, 0.0, 0.0))
        task = rd.DistanceTask(link, lower=0.3, upper=0.4, point=eyes)
        return task, T, lambda q, t: np.abs(np.linalg.norm(point(q) - t[:, :3, 3], axis=1) - 0.35) - 0.05
    if kind == "distance of links":
        end = np.array([0.0, 0.05, 0.0])

        def apart(q):
            return np.linalg.norm(point(q) - dyn.link_pose(q, other, point=end)[:, :3, 3], axis=1)

        low, high = np.quantile(apart(there), [0.3, 0.7])
        task = rd.DistanceTask(link, other, lower=low, upper=high, point=eyes, to_point=end)
        return task, None, lambda q, _: np.maximum(low - apart(q), apart(q) - high)
    T = np.broadcast_to(np.eye(4), (len(there), 4, 4)).copy()
    T[:, :2, :2] = [[0.6, -0.8], [0.8, 0.6]]
    T[:, :3, 3] = dyn.center_of_mass(there) + np.array([0.01, 0.0, 0.3])

    def missed(q, target):
        place = np.einsum("...ji,...j->...i", target[:, :3, :3], dyn.center_of_mass(q) - target[:, :3, 3])
        return np.abs(place[:, :2]).max(axis=1) - 0.02

    return rd.CoMTask(polygon=SQUARE), T, missed


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("engine", ["cpu", "reference", "gpu"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.some(of=4, rest="matrix")
def test_bounds_are_kept_on_every_engine(arm, kind, engine, dtype, request):
    if engine == "gpu":
        if missing():
            pytest.skip(missing())
        request.getfixturevalue("host")
    dyn, rng, count = rd.Dynamics(arm), np.random.default_rng(3), 300 if engine == "cpu" else 8
    there, q0 = arm.random_configuration(rng, (2, count))
    task, targets, missed = bounded(kind, arm, dyn, there)
    if targets is None:
        there = there[missed(there, None) <= 0.0]
        q0, targets = q0[: len(there)], np.empty((len(there), 0, 4, 4))
    else:
        targets = targets[:, None]
    assert missed(there, targets[:, 0] if targets.size else None).max() < 1e-9  # so all can be reached
    tasks = [task, *([rd.PositionTask(arm.link_names[5])] if kind != "polygon" else [])]
    if kind != "polygon":
        targets = np.concatenate((targets, dyn.link_pose(there, arm.link_names[5])[:, None]), 1)
    ik = rd.InverseKinematics(arm, tasks, engine=engine, dtype=dtype)
    q, report = ik.solve(targets.astype(dtype), q0.astype(dtype))
    print(kind, report)
    assert report.converged.mean() >= 0.99
    beyond = missed(q.astype(float), targets[:, 0])[report.converged]
    assert beyond.max() <= TOLERANCE[dtype] + SLACK[dtype]


def test_bounds_and_a_posture_reach_the_optimum_that_slsqp_finds(arm):
    dyn, rng = rd.Dynamics(arm), np.random.default_rng(5)
    there, posture = arm.random_configuration(rng, (12,)), np.clip(np.zeros(7), arm.lower, arm.upper)
    T, size = dyn.link_pose(there, "tool0"), 0.1
    tasks = [rd.PositionTask("tool0", lower=-size, upper=size), rd.DirectionTask("tool0", angle=0.4)]
    ik = rd.InverseKinematics(arm, tasks, posture=posture)
    q, report = ik.solve(np.stack([T, T], 1), there, iterations=100)
    assert report.converged.all()
    gaps = []
    for k in range(12):

        def inside(x, k=k):
            X = dyn.link_pose(x, "tool0")
            place = T[k, :3, :3].T @ (X[:3, 3] - T[k, :3, 3])
            return np.r_[size - place, size + place, X[:3, 2] @ T[k, :3, 2] - np.cos(0.4)]

        best = least(arm, lambda x: ((x - posture) ** 2).sum(), q[k], inside=inside)
        gaps.append(((q[k] - posture) ** 2).sum() - best.fun)
    assert np.sort(gaps)[-2] < 1e-4 and max(gaps) < 0.1, gaps


def test_goals_and_clearance_are_kept_together(arm):
    names, rng = arm.link_names, np.random.default_rng(6)
    rods = [rd.Capsule(names[k], (0, 0, 0), (0, 0, 0.2), radius=0.04) for k in (2, 3, 4)]
    limbs = arm.with_shapes([*rods, rd.Sphere("tool0", (0, 0, 0), 0.05)])
    ball, dyn = rd.Obstacles(spheres=[[0.35, 0.0, 0.7, 0.15]]), rd.Dynamics(limbs)
    there = limbs.random_configuration(rng, (300,))
    there = there[dyn.is_free(there, ball, clearance=0.04)][:60]
    T = dyn.link_pose(there, "tool0")
    tasks = [rd.PositionTask("tool0", lower=-0.02, upper=0.02), rd.DirectionTask("tool0", priority=2)]
    ik = rd.InverseKinematics(limbs, tasks, posture="middle", clearance=0.02, obstacles=ball)
    q, report = ik.solve(np.stack([T, T], 1))
    assert report.converged.all() and (dyn.min_distance(q, ball) > 0.02).all()
    place = np.einsum("nji,nj->ni", T[:, :3, :3], dyn.link_pose(q, "tool0")[:, :3, 3] - T[:, :3, 3])
    assert np.abs(place).max() <= 0.02 + 1.001e-6


# Calls.


@pytest.mark.parametrize("count", [0, 1, 20, 4096])
def test_batches_and_single_calls_agree(arm, count):
    dyn, rng = rd.Dynamics(arm), np.random.default_rng(7)
    there, q0 = arm.random_configuration(rng, (2, count))
    targets = dyn.link_pose(there, "tool0")[:, None].repeat(2, 1)
    tasks = [
        rd.PositionTask("tool0", lower=-0.05, upper=0.05),
        rd.DirectionTask("tool0", priority=2),
        rd.PostureTask("q0", 0.5),
    ]
    ik = rd.InverseKinematics(arm, tasks)
    q, report = ik.solve(targets, q0)
    assert q.shape == (count, 7) and report.residual.shape == (count, 2, 2) and report.converged.all()
    for k in range(min(count, 3)):
        alone, told = ik.solve(targets[k], q0[k])
        np.testing.assert_allclose(alone, q[k], rtol=0, atol=1e-8)
        assert told.iterations == report.iterations[k] and told.start == report.start[k]


def test_rows_with_nan_are_lost_alone(arm):
    q0 = arm.random_configuration(1, (6,))
    targets = rd.Dynamics(arm).link_pose(q0, "tool0")[:, None].repeat(2, 1)
    targets[3, 1, 0, 3] = np.nan
    corners = [(0, 0), (1, 0), (0, 1)]
    for task in (
        rd.PositionTask("tool0", lower=-0.1, upper=0.1),
        rd.GazeTask("tool0", angle=0.2, point=(0, 0, 0.1)),
        rd.DistanceTask("tool0", lower=0.1, upper=0.2),
        rd.CoMTask(polygon=corners),
        rd.PoseTask("tool0", priority=2),
    ):
        q, report = rd.InverseKinematics(arm, [rd.PositionTask("tool0"), task]).solve(
            targets, q0, seeds=2, iterations=4
        )
        assert np.flatnonzero(np.isnan(q).any(axis=1)).tolist() == [3], task
        assert np.flatnonzero(report.start < 0).tolist() == [3], task


@pytest.mark.matrix
def test_trees_with_floating_bases_followers_and_loops():
    for seed in range(6):
        base, mimic = ("floating", "fixed")[seed % 2], 0.3 * (seed % 3 == 0)
        model = rd.random_tree(9, seed=seed, base=base, mimic=mimic, shape="chain")
        print("tree:", seed, base, mimic)
        dyn, there = rd.Dynamics(model), model.random_configuration(seed, (5,))
        last, T = model.link_names[-1], dyn.link_pose(there, model.link_names[-1])
        tasks = [rd.PositionTask(last, lower=-0.1, upper=0.1), rd.DirectionTask(last, angle=0.1, priority=2)]
        tasks += [rd.ManipulabilityTask(last, axes="rotation")] if sum(model.mimics >= 0) < 3 else []
        q, report = rd.InverseKinematics(model, tasks, posture="q0").solve(np.stack([T, T], 1), there)
        assert report.converged.all() and np.abs(dyn.link_pose(q, last) - T)[:, :3, 3].max() < 0.2
    delta = rd.load_urdf(robots.ROOT / "models" / "loops" / "delta.urdf")
    q0 = rd.Dynamics(delta).assemble(delta.neutral()) if hasattr(rd.Dynamics, "assemble") else delta.neutral()
    T = rd.Dynamics(delta).link_pose(q0, "platform_corner")
    box = rd.PositionTask("platform_corner", lower=-0.02, upper=0.02)
    _, report = rd.InverseKinematics(delta, box, posture="middle").solve(T, q0)
    assert report.converged and report.constraint_residual.max() < 1e-6


def test_configurations_by_name(arm):
    dyn, joint = rd.Dynamics(arm), arm.joint_names[3]
    ik = rd.InverseKinematics(arm, "tool0")
    middle = 0.5 * (arm.lower + arm.upper)
    start = middle.copy()
    start[3] = 0.7
    target = dyn.link_pose(start, "tool0")
    q, report = ik.solve(target, {joint: 0.7})
    assert np.allclose(q, start) and report.iterations == 0
    last, ending = arm.joint_names[-1], middle.copy()
    ending[-1] = 0.4
    q, report = ik.solve(dyn.link_pose(ending, "tool0"), {last: 0.4}, branch={last: 1})
    assert np.allclose(q, ending) and report.converged
    values = np.linspace(0.3, 0.9, 5)
    q, report = ik.solve(np.broadcast_to(target, (5, 1, 4, 4)), {joint: values}, iterations=1, seeds=1)
    assert np.allclose(q[3], ik.solve(target, np.r_[middle[:3], values[3], middle[4:]], iterations=1, seeds=1)[0])
    away = np.where(middle < 1.0, arm.upper, arm.lower)
    assert not ik.solve(target, away, iterations=1, seeds=1)[1].converged
    q, report = ik.solve(target, away, starts={joint: [0.7]}, iterations=1, seeds=2)
    assert report.start == 1 and np.allclose(q, start)
    floating = rd.load_urdf(robots.own("quadruped"), base="floating")
    base = {floating.joint_names[0]: (1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 1.0)}
    q, _ = rd.InverseKinematics(floating, floating.link_names[0]).solve(
        rd.Dynamics(floating).link_pose(floating.neutral(), floating.link_names[0]), base, iterations=1, seeds=1
    )
    assert np.isfinite(q).all()


def test_a_branch_is_chosen_by_signs_of_joints():
    arm6 = rd.load_urdf(robots.own("arm6"))
    dyn, rng, elbow = rd.Dynamics(arm6), np.random.default_rng(8), arm6.joint_names[2]
    there = arm6.random_configuration(rng, (60,))
    targets = dyn.link_pose(there, arm6.link_names[-1])[:, None]
    ik = rd.InverseKinematics(arm6, arm6.link_names[-1])
    up = np.sign(there[:, 2]) > 0
    for sign, known in ((1, up), (-1, ~up)):
        q, report = ik.solve(targets, branch={elbow: sign})
        assert report.converged[known].mean() > 0.98  # these have a solution
        assert (q[report.converged][:, 2] * sign > 0.0).all()
    q, report = ik.solve(targets[0], solutions=8, branch={elbow: 1})
    assert (q[report.converged][:, 2] > 0.0).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda arm: rd.PoseTask("tool0", priority=0), "PoseTask.priority: got 0"),
        (lambda arm: rd.PositionTask("tool0", lower=1.0, upper=0.0), "PositionTask.lower"),
        (lambda arm: rd.PositionTask("tool0", lower=(np.nan, 0, 0)), "NaN"),
        (lambda arm: rd.DirectionTask("tool0", angle=4.0), "DirectionTask.angle: got 4.0"),
        (lambda arm: rd.GazeTask("tool0", axis=(0, 0, 0)), "GazeTask.axis"),
        (lambda arm: rd.DistanceTask("tool0", upper=-1.0), "DistanceTask"),
        (lambda arm: rd.DistanceTask("tool0", to_point=(0, 0, 1)), "to_point"),
        (lambda arm: rd.CoMTask(polygon=[(0, 0), (1, 0)]), "at least three"),
        (lambda arm: rd.CoMTask(polygon=[(0, 0), (1, 1), (1, 0), (0, 1)]), "convex"),
        (lambda arm: rd.CoMTask((1, 1, 0), polygon=SQUARE), "wanted one number"),
        (lambda arm: rd.PostureTask("neutral"), "'q0' or 'middle'"),
        (lambda arm: rd.ManipulabilityTask("tool0", axes="x"), "ManipulabilityTask.axes"),
        (lambda arm: rd.InverseKinematics(arm, ["tool0", rd.ManipulabilityTask("link_2")]), "singular"),
        (lambda arm: rd.InverseKinematics(arm, rd.ManipulabilityTask("tool0")), "at least one task"),
        (lambda arm: rd.InverseKinematics(arm, rd.DistanceTask("tool0", "tool0")), "one body"),
        (lambda arm: rd.InverseKinematics(arm, "tool0").solve(np.eye(4), {"elbow9": 1.0}), "elbow9"),
        (lambda arm: rd.InverseKinematics(arm, "tool0").solve(np.eye(4), branch={arm.joint_names[1]: 2}), "1 or -1"),
        (lambda arm: rd.InverseKinematics(arm, "tool0").solve(np.eye(4), branch=[1]), "branch: got"),
    ],
)
def test_what_is_refused(arm, make, message):
    with pytest.raises(rd.ArgumentError, match=message):
        make(arm)


# Scenes that other libraries show.


@pytest.mark.matrix
def test_a_quadruped_squats_below_a_barrier():
    """Pink's example of a Go2: the base is asked to rise to 0.5 m, and must stay below 0.35 m; feet do not move."""
    model = rd.load_urdf(robots.shared("go2"), base="floating")
    dyn, q0 = rd.Dynamics(model), model.neutral()
    q0[:3] = 0.0, 0.0, 0.3
    for name in model.joint_names:
        for part, angle in (("thigh", 0.8), ("calf", -1.57)):
            if part in name:
                q0[model.coordinate_names.index(name)] = angle
    feet = [f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")]
    base = dyn.link_pose(q0, "base")
    ceiling = np.eye(4)
    tasks = [
        *(rd.PositionTask(foot) for foot in feet),
        rd.PositionTask("base", lower=-np.inf, upper=(np.inf, 0.0, 0.35)),
    ]
    ik = rd.InverseKinematics(model, [*tasks, rd.PoseTask("base", priority=2)], posture=q0)
    for t in np.linspace(0.0, 2.0, 6):
        base[2, 3] = 0.3 + 0.2 * np.sin(0.5 * np.pi * t)
        base[1, 3] = 0.1 * np.sin(0.5 * np.pi * t)
        q, report = ik.solve(np.stack([*dyn.link_pose(q0, links=feet), ceiling, base]), q0, iterations=60)
        place = dyn.link_pose(q, "base")[:3, 3]
        assert report.converged and place[2] <= 0.35 + 1e-6 and place[1] <= 1e-6
        assert np.abs(place[2] - min(base[2, 3], 0.35)) < 0.01


@pytest.mark.matrix
def test_a_humanoid_keeps_its_feet_and_balance_and_reaches():
    """Mink's example of a G1: feet, hands, the torso's rotation, the centre of mass and a posture."""
    model = rd.load_urdf(robots.shared("g1_29dof"), base="floating")
    dyn, stand = rd.Dynamics(model), model.neutral()
    for side in ("left", "right"):
        for joint, angle in (("hip_pitch", -0.3), ("knee", 0.6), ("ankle_pitch", -0.3), ("elbow", 0.6)):
            stand[model.coordinate_names.index(f"{side}_{joint}_joint")] = angle
    soles = ["left_ankle_roll_link", "right_ankle_roll_link"]
    feet, hand = dyn.link_pose(stand, links=soles), dyn.link_pose(stand, "left_rubber_hand")
    hand[:3, 3] += 0.25, 0.1, 0.1
    middle = np.eye(4)
    middle[:3, 3] = feet[:, :3, 3].mean(axis=0)
    square = [(-0.05, -0.08), (0.1, -0.08), (0.1, 0.08), (-0.05, 0.08)]
    tasks = [
        *soles,
        rd.CoMTask(polygon=square),
        rd.PositionTask("left_rubber_hand"),
        rd.PoseTask("torso_link", (1, 0), priority=2),
    ]
    ik = rd.InverseKinematics(model, tasks, posture=stand)
    torso = dyn.link_pose(stand, "torso_link")
    q, report = ik.solve(np.stack([*feet, middle, hand, torso]), stand)
    com = dyn.center_of_mass(q)[:2] - middle[:2, 3]
    assert report.converged and (com >= np.min(square, 0) - 1e-6).all() and (com <= np.max(square, 0) + 1e-6).all()
    assert report.residual[4, 1] < 0.5
