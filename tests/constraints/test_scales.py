"""Constraints of any scale: coefficients, units, robots of millimetres and kilometres, and trees of any size.

Right values are the exact solution of scaled rows, the similarity of motions, and virtual work.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import random_states, relative
from ladders import ladder
from robots import own
from robots_with_loops import four_bar
from test_constraints import some

import robodyn as rd

pytestmark = pytest.mark.filterwarnings("ignore::robodyn.internals.errors.RedundantWarning")
EXACT = {"float64": 1e-9, "float32": 2e-3}
"""Of accelerations: rounding times what constraints of an arm amplify it by, some thousands."""


def resized(model: rd.Model, size: float) -> rd.Model:
    """A robot whose lengths are multiplied, of the same mass, where gravity is as well: it moves alike."""
    Xtree, link_X, inertia = model.Xtree.copy(), model.link_X.copy(), model.inertia.copy()
    Xtree[:, 9:], link_X[:, 9:] = size * Xtree[:, 9:], size * link_X[:, 9:]
    inertia[:, 1:4], inertia[:, 4:] = size * inertia[:, 1:4], size * size * inertia[:, 4:]
    return replace(model, Xtree=Xtree, link_X=link_X, inertia=inertia, gravity=size * model.gravity)


def exact(dyn: rd.Dynamics, q: np.ndarray, qd: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(qdd, J' lambda) by NumPy, of rows that are scaled to the same response; independent rows are assumed."""
    judge = rd.Dynamics(dyn.model, engine="reference")
    H, J = judge.mass_matrix(q), judge.constraint_jacobian(q)
    free, (_, v_free) = judge.forward_dynamics(q, qd, tau), judge.delassus(q, qd, tau)
    Y = np.linalg.solve(np.linalg.cholesky(H), J.T).T
    scale = 1.0 / np.linalg.norm(Y, axis=1)
    Y, wanted = scale[:, None] * Y, scale * v_free
    forces = (scale[:, None] * J).T @ -np.linalg.lstsq(Y @ Y.T, wanted, rcond=None)[0]
    return free + np.linalg.solve(H, forces), forces


@pytest.mark.parametrize("c", [1e-14, 1e-6, 1e-4, 1.0, 1e6, 1e14])
@pytest.mark.some(of=3, rest="matrix")
def test_couplings_of_any_coefficients(make_dynamics, engine_dtype, c):
    """Beside rows of another scale they hold as any other: in accelerations, impacts and projections."""
    model = rd.load_urdf(own("arm7"))
    one, other = model.joint_names[:2]
    held = [rd.Coupling({one: c, other: -2.0 * c}, offset=0.1 * c), rd.Point("tool0", to_at=(0.3, 0.2, 0.5))]
    dyn, allowed = make_dynamics(model, constraints=held), EXACT[engine_dtype[1]]
    q, qd, tau = random_states(model, seed=1)
    qdd, lam = dyn.constrained_forward_dynamics(q, qd, tau)
    wanted, forces = exact(dyn, q, qd, tau)
    assert relative(qdd, wanted) < allowed
    assert relative(lam @ np.asarray(dyn.constraint_jacobian(q), float), forces) < allowed
    after, _ = dyn.impact(q, qd)
    assert abs(after[0] - 2.0 * after[1]) < allowed * np.abs(qd).max()
    near = model.assemble(q, held)
    assert abs(near[0] - 2.0 * near[1] - 0.1) < 1e-9
    moved, _ = dyn.project(near + 1e-5, qd)
    assert abs(moved[0] - 2.0 * moved[1] - 0.1) < max(1e-9, 10 * np.finfo(dyn.dtype).eps)


@pytest.mark.parametrize("size", [1e-4, 1e-3, 1e3, 1e5])
@pytest.mark.some(of=3, rest="matrix")
def test_small_and_large_robots_hold_alike(make_dynamics, engine_dtype, size):
    """Lengths and gravity times a number leave accelerations of turning joints as they are."""
    model = rd.load_urdf(own("arm7"))
    q, qd, _ = random_states(model, seed=2)
    still, allowed = np.zeros(7), EXACT[engine_dtype[1]]
    found = []
    for at in (1.0, size):
        place = np.array([0.3, 0.2, 0.5]) * at
        weld = rd.Weld("tool0", to_at=place, baumgarte=(3.0, 1.0), rows=("rx", "x", "y", "z"))
        robot = resized(model, at)
        dyn = make_dynamics(robot, constraints=[weld, rd.Lock(model.joint_names[2], 0.1)])
        qdd, _ = dyn.constrained_forward_dynamics(q, qd, still)
        tau, _ = dyn.constrained_inverse_dynamics(q[None], qd, exact(dyn, q, qd, still)[0])
        near = robot.assemble(q, [rd.Point("tool0", to_at=place)])
        found.append((qdd, tau / at**2, dyn.impact(q, qd)[0], near))
    for one, other, least in zip(*found, (allowed, 10 * allowed, allowed, 1e-6), strict=True):
        assert relative(one, other) < least


@pytest.mark.parametrize("times", [1e-10, 1e-4, 1e6, 1e10])
@pytest.mark.some(of=3, rest="matrix")
def test_light_and_heavy_robots_hold_alike(make_dynamics, engine_dtype, times):
    """Masses times a number leave accelerations as they are where no force acts but weight."""
    model = rd.load_urdf(own("arm7"))
    q, qd, _ = random_states(model, (2,), seed=3)
    found = []
    for inertia in (model.inertia, times * model.inertia):
        dyn = make_dynamics(replace(model, inertia=inertia), constraints=[rd.Weld("tool0", to_at=(0.3, 0.2, 0.5))])
        for active in (None, True):
            found.append(dyn.constrained_forward_dynamics(q, qd, np.zeros(7), active=active)[0])
    for each in found[1:]:
        assert relative(each, found[0]) < EXACT[engine_dtype[1]]


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_loops_of_any_size(size):
    """Assembled, simulated and rolled out: the loop stays closed, beside its size."""
    small = resized(rd.load_urdf(own("loops/four_bar")), size)
    held = [rd.Weld("coupler", "rocker", at=(0.28 * size, 0, 0), to_at=(0.2 * size, 0, 0), rows=("x", "z"))]
    model = replace(small, constraints=held)
    q = model.assemble(np.array([0.9, -0.5, 1.5]), free=["elbow", "swing"])
    assert np.abs(q - four_bar(0.9)).max() < 1e-9
    dyn = rd.Dynamics(model)
    for run in (rd.simulate(dyn, q, np.zeros(3), 0.1, rtol=1e-5), dyn.rollout(q, np.zeros(3), dt=1e-3, steps=100)):
        assert np.abs(dyn.constraint_residual(run.q[-1], run.qd[-1])[0]).max() < 1e-9 * size
    wanted = rd.Dynamics(rd.load_urdf(own("loops/four_bar"))).rollout(q, np.zeros(3), dt=1e-3, steps=100).q[-1]
    assert relative(run.q[-1], wanted) < 1e-6


def test_rows_that_move_nothing_are_none(make_dynamics, tolerance):
    """A loop in a plane that is turned: rows across it are rounding errors, and hold nothing."""
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((3, 3)))[0]
    turn *= np.linalg.det(turn)
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = turn, (0.3, -0.2, 0.1)
    flat = rd.load_urdf(own("loops/four_bar"))
    model = rd.load_urdf(own("loops/four_bar"))
    X = model.Xtree.copy()
    for i in np.flatnonzero(model.parent < 0):
        E, r = X[i, :9].reshape(3, 3), X[i, 9:]
        X[i] = [*(E @ turn.T).ravel(), *(turn @ r + pose[:3, 3])]
    model = replace(model, Xtree=X, gravity=turn @ flat.gravity)
    q, qd, tau = four_bar(0.9), np.array([1.0, -0.4, 0.3]), np.array([0.1, 0.0, 0.2])
    places = {"at": (0.28, 0, 0), "to_at": (0.2, 0, 0)}
    wanted = rd.Dynamics(
        flat, engine="reference", constraints=[rd.Weld("coupler", "rocker", **places, rows=("x", "z"))]
    ).constrained_forward_dynamics(q, qd, tau)
    for held in (
        [rd.Point("coupler", "rocker", **places)],
        [rd.Weld("coupler", "rocker", **places, rows=("rx", "rz", "x", "y", "z"))],
    ):
        dyn = make_dynamics(model, constraints=held)
        qdd, lam = dyn.constrained_forward_dynamics(q, qd, tau)
        assert relative(qdd, wanted[0]) < 1e3 * tolerance
        names = [name.split(".")[-1] for name in dyn.constraint_names]
        assert not any(lam[names.index(name)] for name in names if name in ("rx", "rz", "y"))
        assert relative(lam[[names.index("x"), names.index("z")]], wanted[1]) < 1e4 * tolerance
    across = make_dynamics(model, constraints=[rd.Weld("coupler", "rocker", **places, rows=("y",))])
    qdd, lam = across.constrained_forward_dynamics(q, qd, tau)
    assert not lam.any() and relative(qdd, across.forward_dynamics(q, qd, tau)) < 10 * tolerance
    with pytest.warns(rd.RedundantWarning, match="coupler.y"):
        rd.Dynamics(model, constraints=across.model.constraints)


@pytest.mark.parametrize("far", [1e30, 1e160, 1e200, 1e300])
def test_places_too_far_away_are_not_reached(far):
    model = rd.load_urdf(own("arm7"))
    for places in ({"to_at": (far, 0, 0)}, {"at": (far, 0, 0), "to_at": (0, 0, 0)}):
        with pytest.raises(rd.AssemblyError, match="is not reachable"):
            model.assemble(model.neutral() + 0.3, [rd.Point("tool0", **places)])
        dyn = rd.Dynamics(model, engine="reference", constraints=[rd.Point("tool0", **places)])
        dyn.constrained_inverse_dynamics(model.neutral()[None], np.zeros(7), np.zeros(7))


# Inverse dynamics.


def test_one_drive_for_one_freedom(make_dynamics, engine_dtype):
    """A four-bar at rest: the torque of the crank is the slope of the energy along the way that is free."""
    model = rd.load_urdf(own("loops/four_bar"))
    judge = rd.Dynamics(model, engine="reference")
    q, still, step = four_bar(0.9), np.zeros(3), 1e-4
    energy = [float(judge.potential_energy(four_bar(0.9 + h))) for h in (-step, step)]
    wanted = np.array([(energy[1] - energy[0]) / (2.0 * step), 0.0, 0.0])
    allowed = 1e-7 if engine_dtype[1] == "float64" else 1e-4
    drives = (["turn"], np.array([True, False, False]))
    for held in (None, [rd.Weld("coupler", "rocker", at=(0.28, 0, 0), to_at=(0.2, 0, 0), rows=("x", "z"))]):
        dyn = make_dynamics(model, constraints=held)
        for actuated in drives:
            for state in (q, q[None], np.stack([q] * 5)):
                tau, lam = dyn.constrained_inverse_dynamics(state, still, still, actuated=actuated)
                assert np.abs(tau - wanted).max() < allowed
                J = np.asarray(dyn.constraint_jacobian(state), float)
                left = dyn.inverse_dynamics(state, still, still) - tau - np.einsum("...mi,...m->...i", J, lam)
                assert np.abs(left).max() < allowed
    off, _ = dyn.constrained_inverse_dynamics(q, still, still, actuated=["turn", "elbow", "swing"], active=False)
    assert relative(off, dyn.inverse_dynamics(q, still, still)) < 1e-6


@pytest.mark.some(of=3, rest="matrix")
def test_standing_on_one_foot(make_dynamics, engine_dtype):
    """Six joints without drives fix the forces of the foot; what holds what falls is left over in no joint."""
    model = rd.load_urdf(own("humanoid"), base="floating")
    q, still = model.neutral(), np.zeros(model.nv)
    pose = rd.Dynamics(model, engine="reference").link_pose(q, "left_sole")
    feet = [rd.Weld("left_sole", to_at=pose), rd.Weld("right_sole", to_at=(5.0, 0.0, 0.0))]
    dyn = make_dynamics(model, constraints=feet)
    need, J = (np.asarray(each, float) for each in (dyn.inverse_dynamics(q, still, still), dyn.constraint_jacobian(q)))
    wanted = need - J[:6].T @ np.linalg.solve(J[:6, :6].T, need[:6])
    joints = [name for name in model.joint_names if name != model.joint_names[0]]
    single = list(model.velocity_names[6:])
    allowed = 1e-9 if engine_dtype[1] == "float64" else 1e-3
    for actuated in (None, joints, single, np.arange(model.nv) >= 6):
        tau, lam = dyn.constrained_inverse_dynamics(q[None], still, still, actuated, active=[True, False])
        assert relative(tau[0], wanted) < allowed and not lam[0, 6:].any()


def test_forces_of_least_weighted_norm(make_dynamics, engine_dtype):
    """By NumPy: of all forces that the base needs, those with the least weighted sum of squares. Drives do the rest."""
    model = rd.load_urdf(own("quadruped"), base="floating")
    feet = [name for name in model.link_names if name.endswith("_foot")]
    q, qd, tau = random_states(model, (3,), seed=5)
    q[:, 7:] = np.tile([0.1, 0.8, -1.6], 4) + 0.1 * np.sin(q[:, 7:])
    dyn = make_dynamics(model, constraints=[rd.Point(foot) for foot in feet])
    here, drives = dyn.constraint_targets(q), np.arange(model.nv) >= 6
    qdd = dyn.constrained_forward_dynamics(q, 0.0 * qd, tau * drives, here)[0]
    weight = np.random.default_rng(5).uniform(0.1, 10.0, 12)
    active = np.array([1, 1, 0, 1])
    free = dyn.constrained_forward_dynamics(q, 0.0 * qd, tau * drives, here, active=active)[0]
    allowed = 1e-9 if engine_dtype[1] == "float64" else 2e-3
    for acceleration, on in ((qdd, np.ones(4)), (free, active)):
        found, lam = dyn.constrained_inverse_dynamics(
            q, 0.0 * qd, acceleration, targets=here, active=on, force_weight=weight
        )
        need = dyn.inverse_dynamics(q, 0.0 * qd, acceleration)
        J = dyn.constraint_jacobian(q, here) * np.repeat(on, 3)[:, None]
        assert relative(found + np.einsum("kmi,km->ki", J, lam), need) < allowed and not found[:, :6].any()
        for k in range(3):
            wanted = np.linalg.lstsq(J[k, :, :6].T / weight, need[k, :6], rcond=1e-6)[0] / weight
            assert relative(lam[k], wanted) < allowed


@pytest.mark.parametrize("given", [np.ones(2), np.ones((2, 3)), [1, 0, 1], [1, np.nan, 1], [1, 1, 11], "ones", 1.0])
def test_weights_that_are_none(given):
    dyn = rd.Dynamics(rd.load_urdf(own("loops/four_bar")), engine="reference")
    with pytest.raises(rd.ArgumentError, match="force_weight: "):
        dyn.constrained_inverse_dynamics(four_bar(0.9), np.zeros(3), np.zeros(3), force_weight=given)


@pytest.mark.parametrize("seed", [1, 3, 5, 18, 34, 142])
def test_drives_at_random(seed):
    """The least torques that do it, by NumPy: of all solutions of [S J'] x = need the one with the shortest first part.
    In 142 a foot moves with no joint, and all of J is a rounding error."""
    rng = np.random.default_rng(seed)
    kinds = ("revolute", "prismatic", "spherical", "helical", "planar")
    options = {"mimic": 0.3 if seed % 2 else 0.0, "base": "fixed" if seed % 3 else "floating"}
    model = rd.random_tree(int(rng.integers(3, 12)), seed=seed, joints=kinds, **options)
    dyn = rd.Dynamics(model, engine="reference", constraints=some(model, seed)[: int(rng.integers(1, 4))], check=False)
    q, qd, tau = random_states(model, (2,), seed=seed)
    drives = rng.random(model.nv) < 0.7
    qdd = dyn.constrained_forward_dynamics(q, qd, tau * drives)[0]
    # In 1 and 142 rows contradict each other: rounding errors of their forces are more than may be missing.
    found, lam, missing, _ = dyn.constrained_inverse_dynamics(q, qd, qdd, actuated=drives, residual=True)
    assert np.abs(missing).max() < 1e-9
    need, J = dyn.inverse_dynamics(q, qd, qdd), dyn.constraint_jacobian(q)
    assert relative(found + np.einsum("...mi,...m->...i", J, lam), need) < 1e-7 and not found[:, ~drives].any()
    for k in range(2):
        both = np.hstack([np.eye(model.nv)[:, drives], J[k].T])
        one, (_, values, rows) = np.linalg.lstsq(both, need[k], rcond=1e-10)[0], np.linalg.svd(both)
        null = rows[int((values > 1e-10).sum()) :, : drives.sum()].T
        left, sizes, right = np.linalg.svd(null, full_matrices=False)
        counted = np.where(sizes > 1e-9, 1.0 / np.maximum(sizes, 1e-9), 0.0)
        wanted = one[: drives.sum()] - null @ (right.T * counted) @ (left.T @ one[: drives.sum()])
        assert np.abs(found[k, drives] - wanted).max() < 1e-7 * np.abs(need[k]).max()


def test_inverse_dynamics_keeps_what_is_not_finite_in_its_row(make_dynamics):
    dyn = make_dynamics(rd.load_urdf(own("loops/four_bar")))
    q, still = np.stack([four_bar(angle) for angle in (0.7, 0.8, 0.9)]), np.zeros((3, 3))
    wanted = dyn.constrained_inverse_dynamics(q, still, still, actuated=["turn"])
    qd = still.copy()
    qd[1, 0] = np.nan
    found = dyn.constrained_inverse_dynamics(q, qd, still, actuated=["turn"])
    for one, other in zip(found, wanted, strict=True):
        assert np.isnan(one[1]).all() and relative(one[[0, 2]], other[[0, 2]]) < 1e-6


def test_a_light_joint_without_a_drive_is_not_overlooked(make_dynamics, engine_dtype):
    """Beside a heavy arm a small bar is to stand out without a drive: what it needs is nothing beside the others'."""
    inertial = '<inertial><origin xyz="0.5 0 0"/><mass value="{0}"/><inertia ixx="{1}" iyy="{1}" izz="{1}" '
    inertial += 'ixy="0" ixz="0" iyz="0"/></inertial>'
    masses = (100.0, 10.0, 0.1) if engine_dtype[1] == "float32" else (1e3, 10.0, 1e-4)
    text, parent = '<robot name="three"><link name="world"/>', "world"
    for k, mass in enumerate(masses):
        text += f'<link name="l{k}">{inertial.format(mass, 0.01 * mass)}</link><joint name="j{k}" type="continuous">'
        text += f'<parent link="{parent}"/><child link="l{k}"/><origin xyz="{float(k > 0)} 0 0"/>'
        text, parent = f'{text}<axis xyz="0 1 0"/></joint>', f"l{k}"
    dyn = make_dynamics(rd.load_urdf(f"{text}</robot>"), constraints=[rd.Lock("j0", 0.1)])
    q, still = np.array([0.1, 0.2, 0.3]), np.zeros(3)
    with pytest.raises(rd.NumericalError, match="the actuated joints cannot give"):
        dyn.constrained_inverse_dynamics(q, still, still, actuated=["j0", "j1"])
    dyn.constrained_inverse_dynamics(q, still, still, actuated=["j1", "j2"])


@pytest.mark.parametrize("given", ["turn", {"turn"}, [3], [True, False, False], np.ones(2, bool), np.ones(3)])
def test_drives_that_are_none(given):
    dyn = rd.Dynamics(rd.load_urdf(own("loops/four_bar")), engine="reference")
    with pytest.raises(rd.ArgumentError, match="actuated: "):
        dyn.constrained_inverse_dynamics(four_bar(0.9), np.zeros(3), np.zeros(3), actuated=given)


# Rods.


def test_targets_of_a_rod_are_at_its_length(make_dynamics, tolerance):
    """Towards its own place in the world, and what they hold is held: it swings as one that is made to stand there."""
    model = rd.load_urdf(own("arm7"))
    dyn = make_dynamics(model, constraints=[rd.Rod("tool0", at=(0, 0, 0.1), to_at=(1.0, 1.0, 1.0), length=0.4)])
    q, qd, tau = random_states(model, (3,), seed=5)
    targets = dyn.constraint_targets(q)
    assert np.abs(dyn.constraint_residual(q, qd, targets)[0]).max() < 100 * tolerance
    end = dyn.link_pose(q, "tool0", point=(0, 0, 0.1))[..., :3, 3]
    away = np.array([1.0, 1.0, 1.0]) - end
    assert np.abs(targets[:, 0, 9:] - end - 0.4 * away / np.linalg.norm(away, axis=-1)[:, None]).max() < 100 * tolerance
    for k in range(3):
        held = [rd.Rod("tool0", at=(0, 0, 0.1), to_at=np.array(targets[k, 0, 9:], float), length=0.4)]
        alone = make_dynamics(model, constraints=held).constrained_forward_dynamics(q[k], qd[k], tau[k])[0]
        found = dyn.constrained_forward_dynamics(q[k], qd[k], tau[k], targets[k])[0]
        assert relative(found, alone) < 1e4 * tolerance


def test_a_rod_without_direction(make_dynamics):
    with pytest.raises(rd.ArgumentError, match=r"Rod.to_at: got None with to=None"):
        rd.Rod("tool0", length=0.3)
    model = rd.load_urdf(own("arm7"))
    q, still = np.full(7, 0.4), np.zeros(7)
    place = rd.Dynamics(model, engine="reference").link_pose(q, "tool0")[:3, 3]
    dyn = make_dynamics(model, constraints=[rd.Rod("tool0", to_at=place, length=0.3)])
    with pytest.raises(rd.ArgumentError, match="'tool0': both ends of the rod are in one place"):
        dyn.constraint_targets(q)
    for near in (q, q + 1e-13):
        assert np.isnan(dyn.constrained_forward_dynamics(near[None], still, still)[0]).all()
        with pytest.raises(rd.NumericalError):
            dyn.constrained_forward_dynamics(near, still, still)
    off = dyn.constrained_forward_dynamics(q[None], still, still, active=False)[0]
    assert relative(off, dyn.forward_dynamics(q[None], still, still)) < 1e-3


# Trees of any size.


def test_ladders_are_programs():
    """All arms turn as one: 111 bodies with 110 rows, by the equation of motion of one freedom, in some operations for
    each body."""
    model, held = ladder(55)
    dyn, still = rd.Dynamics(model, engine="cpu", constraints=held), np.zeros(111)
    turn, moves = 0.3, np.zeros(111)
    moves[[model.joint_index(f"ja{k}") for k in range(56)]] = 1.0
    moves[[model.joint_index(f"jb{k}") for k in range(55)]] = -1.0
    q = turn * moves
    qdd, _ = dyn.constrained_forward_dynamics(q, still, still)
    assert np.abs(qdd).max() < 1e-9, "gravity is along the axes"
    inertia, torque = 56 * (0.0833 + 0.25) + 55 * 1.0, np.zeros(111)
    torque[model.joint_index("ja0")] = 2.0
    assert relative(dyn.constrained_forward_dynamics(q, still, torque)[0], 2.0 / inertia * moves) < 1e-9
    said = dyn.explain("constrained_forward_dynamics").reason
    assert "unrolled code" in said and int(said.split(" operations")[0].split()[-1]) < 200 * 111


@pytest.mark.parametrize(
    ("bodies", "branching"),
    [
        (30, 1.0),
        (1200, 2.0),
        *(pytest.param(*each, marks=pytest.mark.matrix) for each in ((104, 2.0), (150, 1.0), (150, 1.5))),
    ],
)
@pytest.mark.matrix
def test_trees_of_any_size(bodies, branching):
    """By mass matrices, by recursions and by loops: what constraints want is so, and nothing else has changed."""
    model = rd.auto_tree(bodies, branching=branching, skew=0.3)
    leaf, other = model.body_names[-1], model.body_names[-(bodies // 3)]
    held = [
        rd.Point(leaf, other, at=(0.1, 0.0, 0.0), name="loop", baumgarte=(2.0, 0.5)),
        rd.Coupling({model.joint_names[3]: 1.0, model.joint_names[7]: -0.5}),
        rd.Lock(model.joint_names[1], 0.2),
    ]
    dyn = rd.Dynamics(model, constraints=held)
    q, qd, tau = random_states(model, (3,), seed=bodies)
    for active in (None, [[1, 1, 1], [0, 1, 1], [1, 0, 0]]):
        qdd, lam = dyn.constrained_forward_dynamics(q, qd, tau, active=active)
        A, v_free = dyn.delassus(q, qd, tau, active=active)
        J = dyn.constraint_jacobian(q)
        rows = np.ones((3, 5)) if active is None else np.repeat(active, [3, 1, 1], axis=1)
        need = dyn.inverse_dynamics(q, qd, qdd) - tau - np.einsum("...mi,...m->...i", J, lam * rows)
        assert np.abs(need).max() < 1e-7 * np.abs(tau).max() and not lam[rows == 0].any()
        left = rows * (np.einsum("...ij,...j->...i", A, lam) + v_free)
        assert np.abs(left).max() < 1e-7 * np.abs(v_free).max()
    one = dyn.constrained_forward_dynamics(q[1], qd[1], tau[1], active=[0, 1, 1])
    for single, row in zip(one, dyn.constrained_forward_dynamics(q, qd, tau, active=[0, 1, 1]), strict=True):
        assert relative(single, row[1]) < 1e-9
    after, _ = dyn.impact(q, qd)
    assert np.abs(np.einsum("...mi,...i->...m", J, after)).max() < 1e-8 * np.abs(qd).max()
    said = dyn.explain("constrained_forward_dynamics").reason
    assert said.startswith("rolled") == (bodies > 104), said
