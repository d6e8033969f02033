"""Robots with closed loops against closed forms, and against Pinocchio."""

from __future__ import annotations

import numpy as np
import pytest
import robots_with_loops as loops
from conftest import relative

import robodyn as rd

# That rows depend on each other is what these robots are for, whether or not it is said.
pytestmark = pytest.mark.filterwarnings("ignore:constraints of")

H = 1e-4  # a step of differences: errors of 1e-8 from what is left out, and of rounding in second differences


def dynamics(name, engine="reference", **options):
    """Of a robot with its loops."""
    model, constraints = loops.load(name)
    return rd.Dynamics(model, engine=engine, constraints=constraints, **options)


def moving(path, model):
    """(q, qd, qdd) at t = 0 of a path q(t), by central differences."""
    q, ahead, behind = path(0.0), path(H), path(-H)
    forth, back = model.difference(q, ahead), model.difference(q, behind)
    return q, (forth - back) / (2 * H), (forth + back) / (H * H)


def freedoms(dyn, q):
    """Degrees of freedom that constraints leave."""
    return dyn.model.nv - np.linalg.matrix_rank(dyn.constraint_jacobian(q), tol=1e-9)


@pytest.mark.parametrize(("name", "rows", "free"), [("four_bar", 3, 1), ("delta", 15, 3), ("linkage_gripper", 10, 1)])
def test_rows_and_freedoms(name, rows, free):
    dyn = dynamics(name)
    q = loops.four_bar(0.7) if name == "four_bar" else dyn.model.neutral()
    phi, _ = dyn.constraint_residual(q, np.zeros(dyn.model.nv))
    assert phi.shape == (rows,) and np.abs(phi).max() < 1e-15
    assert freedoms(dyn, q) == free


def test_legs_have_five_freedoms_each():
    dyn = dynamics("bird_legs")
    q, qd, _ = loops.near(dyn, 0)
    phi, phidot = dyn.constraint_residual(q, qd)
    assert max(np.abs(phi).max(), np.abs(phidot).max()) < 1e-13
    assert phi.shape == (12,) and freedoms(dyn, q) == 6 + 5 + 5


def test_the_foot_turns_as_its_crank():
    """The plantar rod makes a parallelogram."""
    dyn = dynamics("bird_legs")
    q, _, _ = loops.near(dyn, 1)
    at = {name: q[start] for name, start in zip(dyn.model.joint_names, dyn.model.q_start.tolist(), strict=True)}
    for side in ("left", "right"):
        assert abs(at[f"{side}_foot"] - at[f"{side}_toe"]) < 1e-12
        assert abs(at[f"{side}_foot"]) > 1e-3


# The four-bar, by two circles.

ANGLES = np.linspace(-3.0, 3.0, 7)


@pytest.mark.parametrize("angle", ANGLES)
def test_four_bar_closes_where_circles_meet(angle):
    dyn = dynamics("four_bar")
    q = loops.four_bar(angle)
    phi, _ = dyn.constraint_residual(q, np.zeros(3))
    assert np.abs(phi).max() < 1e-15
    # Pushed off it comes back to the same curve, at another angle of the crank.
    back = q + np.array([0.02, -0.03, 0.01])
    for _ in range(5):
        back, _ = dyn.project(back, np.zeros(3))
    assert np.abs(back - loops.four_bar(back[0])).max() < 1e-13


@pytest.mark.parametrize("angle", ANGLES)
@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_four_bar_moves_as_circles_say(angle, engine):
    """Velocities and accelerations of coupler and rocker, and of the crank by the equation of motion of one freedom,
    with G the tangent: (G'HG) a + 1/2 d(G'HG)/dangle w^2 + dV/dangle = G'tau."""
    dyn = dynamics("four_bar", engine)
    tau, speed = np.array([0.3, -0.1, 0.2]), 2.0
    tangent = moving(lambda t: loops.four_bar(angle + t), dyn.model)[1]
    q, qd = dyn.project(loops.four_bar(angle), tangent * speed)
    assert np.abs(q - loops.four_bar(angle)).max() < 1e-14
    assert relative(qd, tangent * speed) < 1e-7
    assert np.abs(dyn.constraint_residual(q, tangent)[1]).max() < 1e-7

    qdd, lam = dyn.constrained_forward_dynamics(q, qd, tau)
    _, _, along = moving(lambda t: loops.four_bar(angle + qd[0] * t + 0.5 * qdd[0] * t * t), dyn.model)
    assert relative(qdd, along) < 1e-5
    assert abs(lam[1]) < 1e-12 * np.abs(lam).max()  # across the plane: nothing pushes, and it is the shortest

    def reduced(at):
        _, G, _ = moving(lambda t: loops.four_bar(at + t), dyn.model)
        p = loops.four_bar(at)
        return G @ dyn.mass_matrix(p) @ G, dyn.potential_energy(p)

    (inertia, _), ahead, behind = reduced(angle), reduced(angle + H), reduced(angle - H)
    slope, pull = ((a - b) / (2 * H) for a, b in zip(ahead, behind, strict=True))
    assert abs(inertia * qdd[0] + 0.5 * slope * qd[0] ** 2 + pull - tangent @ tau) < 1e-6 * max(1.0, abs(tangent @ tau))


# The Delta, by its inverse kinematics.

PLACES = np.array([[0.0, 0.0, -0.36], [0.08, -0.05, -0.42], [-0.1, 0.06, -0.5], [0.02, 0.12, -0.4]])


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_delta_closes_by_its_inverse_kinematics(place):
    dyn = dynamics("delta")
    q = loops.delta(dyn.model, place)
    phi, _ = dyn.constraint_residual(q, np.zeros(dyn.model.nv))
    assert np.abs(phi).max() < 1e-14
    T = dyn.link_pose(q, "platform")
    assert np.abs(T[:3, :3] - np.eye(3)).max() < 1e-14 and np.abs(T[:3, 3] - place).max() < 1e-14
    assert freedoms(dyn, q) == 3


@pytest.mark.parametrize("place", PLACES[1:], ids=str)
@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_delta_moves_as_its_inverse_kinematics_say(place, engine):
    """Rods keep their length, d'(v - rate of the elbow) = 0; accelerations by differences along the platform's path."""
    dyn = dynamics("delta", engine)
    model, velocity = dyn.model, np.array([0.3, -0.2, 0.1])
    q, qd, _ = moving(lambda t: loops.delta(model, place + velocity * t), model)
    q, qd = dyn.project(q, qd)
    v = dyn.link_velocity(q, qd, "platform")
    assert np.abs(v[:3]).max() < 1e-12 and relative(v[3:], velocity) < 1e-6
    motors = [int(model.v_start[model.joint_index(f"motor_{k}")]) for k in (1, 2, 3)]
    for k, at in enumerate(motors):
        arm, rod = (dyn.link_pose(q, name) for name in (f"arm_{k + 1}", f"rod_{k + 1}a"))
        e, d = arm[:3, :3] @ [0.0, 0.0, -loops.ARM], rod[:3, 2]
        assert abs(d @ v[3:] - qd[at] * (d @ e)) < 1e-13

    tau = np.zeros(model.nv)
    tau[motors] = [0.5, -0.3, 0.8]
    qdd, _ = dyn.constrained_forward_dynamics(q, qd, tau)
    a = dyn.link_acceleration(q, qd, qdd, "platform", classical=True)
    assert np.abs(a[:3]).max() < 1e-8 * np.abs(a[3:]).max()
    _, _, along = moving(lambda t: loops.delta(model, place + v[3:] * t + 0.5 * a[3:] * t * t), model)
    assert relative(qdd, along) < 1e-5


# The gripper, by hand.


@pytest.mark.parametrize("angle", [-0.6, 0.0, 0.4, 0.8])
@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_fingers_stay_parallel(angle, engine):
    """Every finger moves round a circle without turning, so that one inertia is all there is, and it is constant."""
    dyn = dynamics("linkage_gripper", engine)
    model, length, bar, finger = dyn.model, 0.06, 0.02, 0.05
    followed = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    assert model.joint_names == ("left_drive", "left_tip", "left_swing", "right_drive", "right_tip", "right_swing")
    q, qd = angle * followed, 1.5 * followed
    phi, phidot = dyn.constraint_residual(q, qd)
    assert max(np.abs(phi).max(), np.abs(phidot).max()) < 1e-15
    for side, sign in (("left", 1.0), ("right", -1.0)):
        T = dyn.link_pose(q, f"{side}_finger")
        assert np.abs(T[:3, :3] - np.eye(3)).max() < 1e-15
        place = [0.0, sign * (0.015 - length * np.sin(angle)), length * np.cos(angle)]
        assert np.abs(T[:3, 3] - place).max() < 1e-15

    tau = np.array([0.02, 0.0, 0.0, 0.0, 0.0])
    qdd, lam = dyn.constrained_forward_dynamics(q, qd, tau)
    about_end = bar * (length**2 + 0.01**2) / 12 + bar * length**2 / 4
    inertia = 2 * (2 * about_end + finger * length**2)
    pull = 2 * 9.81 * length * np.sin(angle) * (bar / 2 + bar / 2 + finger)
    assert relative(qdd, (tau[0] + pull) / inertia * followed) < 1e-5  # files have six digits
    # Rows depend on each other: forces are the shortest, and do no work.
    assert lam.shape == (10,) and abs(lam @ dyn.constraint_jacobian(q) @ qd) < 1e-12


# Pinocchio.


@pytest.mark.parametrize("name", ["delta", "bird_legs"])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_pinocchio(name, seed):
    pytest.importorskip("pinocchio")
    from oracles.pinocchio_constraints import Constrained

    dyn = dynamics(name, "cpu")
    q, qd, tau = loops.near(dyn, seed, size=0.15)
    assert np.abs(dyn.constraint_residual(q, qd)).max() < 1e-12
    qdd, _ = dyn.constrained_forward_dynamics(q, qd, tau)
    assert relative(qdd, Constrained(dyn.model).accelerations(q, qd, tau)) < 1e-7


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.some(of=3, rest="matrix")
def test_legs_that_stand_agree_with_pinocchio(seed):
    """Loops and feet at once: 24 rows, of which 22 count, on 26 velocities."""
    pytest.importorskip("pinocchio")
    from oracles.pinocchio_constraints import Constrained

    model, constraints = loops.load("bird_legs")
    free = rd.Dynamics(model, engine="cpu", constraints=constraints)
    q, qd, tau = loops.near(free, seed, size=0.15)
    feet = [rd.Weld(name, to_at=free.link_pose(q, name)) for name in ("left_foot", "right_foot")]
    # What they hold is light here and heavy there: the smallest eigenvalue of A that counts is 1e-7 of the mean.
    dyn = rd.Dynamics(model, engine="cpu", constraints=[*constraints, *feet], proximal=(1e-10, 3))
    _, qd = dyn.project(q, qd)
    assert np.abs(dyn.constraint_residual(q, qd)).max() < 1e-10
    tau[:6] = 0.0
    qdd, lam = dyn.constrained_forward_dynamics(q, qd, tau)
    assert relative(qdd, Constrained(dyn.model).accelerations(q, qd, tau)) < 1e-6
    # Feet carry what the robot weighs, less what it accelerates.
    up = [k for k, name in enumerate(dyn.constraint_names) if name.endswith("foot.z")]
    lifted = sum(free.link_pose(q, foot.link)[:3, :3] @ lam[k - 2 : k + 1] for foot, k in zip(feet, up, strict=True))
    rate = dyn.centroidal_momentum_rate(q, qd, qdd)[3:]
    assert relative(lifted, rate - model.total_mass * model.gravity) < 1e-8


def test_batches_and_float32():
    """Every state of a batch as if it were alone; single precision as close as conditioning lets it."""
    for name in loops.NAMES:
        dyn, single = dynamics(name, "cpu"), dynamics(name, "cpu", dtype="float32")
        one = [loops.near(dyn, seed, size=0.1) for seed in range(4)]
        if name == "four_bar":
            one = [(loops.four_bar(angle), np.zeros(3), np.ones(3) * 0.1) for angle in (0.3, 1.0, 2.0, -2.5)]
        q, qd, tau = map(np.stack, zip(*one, strict=True))
        qdd, lam = dyn.constrained_forward_dynamics(q, qd, tau)
        for k, state in enumerate(one):
            alone, _ = dyn.constrained_forward_dynamics(*state)
            assert relative(qdd[k], alone) < 1e-10, name
        assert relative(single.constrained_forward_dynamics(q, qd, tau)[0], qdd) < 0.03, name
        assert lam.shape == (4, len(dyn.constraint_names))


@pytest.mark.parametrize("name", loops.NAMES)
@pytest.mark.some(of=2, rest="matrix")
def test_the_reader_holds_the_same(name):
    """Constraints that a file's loop joints become leave the freedoms that they leave when read here."""
    model, constraints = loops.load(name)
    if not model.constraints:
        pytest.skip("the reader leaves <loop_joint> out, with a finding")
    assert len(model.constraints) == len(constraints)
    ours, theirs = (rd.Dynamics(model, engine="reference", constraints=each) for each in (constraints, None))
    q = loops.four_bar(0.7) if name == "four_bar" else loops.near(ours, 0)[0]
    zero = np.zeros(model.nv)
    assert np.abs(theirs.constraint_residual(q, zero)[0]).max() < 1e-12
    moves = [np.linalg.pinv(J, 1e-9) @ J for J in (ours.constraint_jacobian(q), theirs.constraint_jacobian(q))]
    assert np.abs(moves[0] - moves[1]).max() < 1e-9
