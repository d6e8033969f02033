"""Trajectory optimisation of robots with contacts: optima beside SciPy's, first guesses, and what is refused."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
from robots import own
from scipy.optimize import minimize
from test_trajectories import problem_of

import robodyn as rd
from robodyn.solve.trajectories.guess import holding

PUSHER = """<robot name="pusher"><link name="world"/><link name="finger"><inertial><mass value="1"/>
<inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="push" type="prismatic"><parent link="world"/><child link="finger"/><axis xyz="1 0 0"/>
<origin xyz="0 0 .05"/><limit lower="-2" upper="2" effort="5" velocity="9"/></joint>
<link name="block"><inertial><mass value=".5"/>
<inertia ixx=".001" iyy=".001" izz=".001" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="free" type="floating"><parent link="world"/><child link="block"/></joint></robot>"""
DT = 0.02


@functools.cache
def pusher(cone="pyramidal", **options):
    """A finger that touches a block on the ground; where both are, and where the block shall be."""
    model = rd.load_urdf(PUSHER)
    block = rd.Box("block", size=(0.1, 0.1, 0.1))
    touching = rd.Contact(rd.Sphere("finger", radius=0.03), block, friction=0.4)
    model = model.with_contacts([touching, rd.Contact(block, rd.Plane(), friction=0.5)], cone=cone)
    q = model.neutral()
    q[0], q[3] = -0.0795, 0.0499
    return rd.Dynamics(model, joint_forces=(), **options), q, q + 0.1 * np.eye(model.nq)[1]


PUSH = {"limits": "effort", "actuated": ["push"], "tau0": 4.0 * np.eye(7)[0]}
FEET = ("front_left_foot", "front_right_foot", "hind_left_foot", "hind_right_foot")


@functools.cache
def quadruped(**options):
    """On four feet, and how it stands for an angle of its hips."""
    model = rd.load_urdf(own("quadruped"), base="floating")

    def standing(bend):
        q = model.neutral()
        q[7:] = np.tile([0.0, bend, -2.0 * bend], 4)
        q[2] = 0.0185 - rd.Dynamics(model).forward_kinematics(q)[model.link_index(FEET[0]), 2, 3]
        return q

    contacts = [rd.Contact(rd.Sphere(foot, radius=0.02), rd.Plane(), friction=0.8) for foot in FEET]
    return rd.Dynamics(model.with_contacts(contacts, **options), joint_forces="damping"), standing


class Costs:
    """Weights of states and forces, as the cost and as a function of rollouts.

    `running` and `final`: weights (q, qd) of the knots 0 to N - 1 and of knot N.
    """

    def __init__(self, dyn, goal, control, running, final):
        nv = dyn.model.nv
        self.dyn, self.goal, self.control = dyn, goal, control
        self.weights = [[np.broadcast_to(each, nv) for each in both] for both in (running, final)]

    def __call__(self):
        (q, qd), (q_end, qd_end) = self.weights
        cost = rd.costs.Control(self.control) + rd.costs.State(q=q, qd=qd, q_goal=self.goal)
        return cost + rd.costs.State(q=q_end, qd=qd_end, q_goal=self.goal, final=True)

    def of_rollout(self, run):
        model, last = self.dyn.model, len(run.q) - 1
        off = model.difference(self.goal, run.q)
        q, qd = (np.stack([running] * last + [final]) for running, final in zip(*self.weights, strict=True))
        by_q = model.difference_gradient(np.broadcast_to(self.goal, run.q.shape), run.q)[1]
        value = 0.5 * ((q * off * off).sum() + (qd * run.qd * run.qd).sum())
        return value, ((q * off)[:, None] @ by_q)[:, 0], qd * run.qd

    def least(self, start, steps, dt, actuated, u, iterations=200):
        """The cost that bounded L-BFGS reaches from controls (steps, nu), with gradients of rollouts."""
        limit = np.tile(self.dyn.model.effort_limit[actuated], steps)

        def value(flat):
            tau = np.zeros((steps, self.dyn.model.nv))
            tau[:, actuated] = flat.reshape(u.shape)
            found, by = self.dyn.rollout_gradient(self.of_rollout, *start, tau, dt, steps, save_every=1, wrt=("tau",))
            return found + 0.5 * self.control * (tau * tau).sum(), (by["tau"] + self.control * tau)[:, actuated].ravel()

        options = {"maxiter": iterations, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 30}
        bounds = list(zip(-limit, limit, strict=True))
        return minimize(value, u.ravel(), jac=True, method="L-BFGS-B", bounds=bounds, options=options).fun


@functools.cache
def pushed(cone):
    """The least cost of a push, and its result."""
    dyn, q, goal = pusher(cone)
    costs = Costs(dyn, goal, 1e-3, (0.0, 0.0), (200.0 * np.eye(7)[1], 0.0))
    return costs, rd.optimize_trajectory(dyn, costs(), (q, np.zeros(7)), 15, DT, **PUSH)


def test_a_block_is_pushed():
    """A floating body that nothing drives, through friction on the ground; efforts end at their limit."""
    dyn, q, _ = pusher()
    _, found = pushed("pyramidal")
    assert found.status == "converged" and np.diff(found.log).max() <= 0.0 and found.cost < 0.7 * found.log[0]
    assert np.abs(found.tau).max() == 5.0 and not found.tau[:, 1:].any() and found.q[-1, 1] > 0.06
    run = dyn.rollout(q, np.zeros(7), found.tau, DT, 15, save_every=1)
    np.testing.assert_allclose(found.q, run.q, atol=1e-9)


@pytest.mark.matrix
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_a_block_is_pushed_as_by_l_bfgs(cone):
    """From our answer it gains nothing; from near it, it comes back, as far as kinks let it."""
    (_, q, _), (costs, found) = pusher(cone), pushed(cone)
    assert found.converged
    near = found.tau[:, :1] + np.random.default_rng(0).normal(0.0, 0.01, (15, 1))
    for start, most in ((found.tau[:, :1], 1e-6), (np.clip(near, -5.0, 5.0), 1e-3)):
        least = costs.least((q, np.zeros(7)), 15, DT, [0], start)
        assert abs(found.cost / least - 1.0) < most and found.cost < least * (1.0 + 1e-6), (found.cost, least)


def test_a_row_of_a_batch_is_the_problem_alone():
    dyn, q, _ = pusher()
    cost = pushed("pyramidal")[0]()
    starts = np.stack([q, q + 0.02 * np.eye(8)[1] + 0.02 * np.eye(8)[0]])
    many = rd.optimize_trajectory(dyn, cost, (starts, np.zeros(7)), 15, DT, **PUSH)
    assert many.q.shape == (2, 16, 8) and many.converged.all()
    for k in range(2):
        alone = rd.optimize_trajectory(dyn, cost, (starts[k], np.zeros(7)), 15, DT, **PUSH)
        np.testing.assert_allclose(many.q[k], alone.q, atol=1e-7)
    none = rd.optimize_trajectory(dyn, cost, (starts[:0], np.zeros(7)), 15, DT, limits="effort", actuated=["push"])
    assert none.q.shape == (0, 16, 8)


@pytest.mark.matrix
def test_engines_and_dtypes_agree():
    dyn, q, _ = pusher()
    cost = pushed("pyramidal")[0]()
    wanted = rd.optimize_trajectory(dyn, cost, (q, np.zeros(7)), 6, DT, **PUSH)
    for engine, dtype in (("reference", "float64"), ("cpu", "float32")):
        found = rd.optimize_trajectory(dyn.variant(engine=engine, dtype=dtype), cost, (q, np.zeros(7)), 6, DT, **PUSH)
        assert found.q.dtype == dtype and abs(found.cost / wanted.cost - 1.0) < 1e-6


@pytest.mark.matrix
def test_a_quadruped_lowers_its_trunk():
    """On soft feet, which slip and lift: the cost falls to what L-BFGS does not lower; both kinds of shooting."""
    dyn, standing = quadruped(cone="elliptic")
    q, goal, weight = standing(0.8), standing(1.0), np.repeat([100.0, 2.0], (6, 12))
    start = q, np.zeros(18)
    costs = Costs(dyn, goal, 5e-4, (0.05 * weight, 0.005), (weight, 0.5))
    found = rd.optimize_trajectory(dyn, costs(), start, 30, 0.01, limits="effort")
    assert found.status in ("converged", "stalled") and np.diff(found.log).max() <= 0.0
    assert abs(found.q[-1, 2] - goal[2]) < 0.3 * (q[2] - goal[2]) and not found.tau[:, :6].any()
    driven = np.arange(6, 18)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # steps of line searches that lead nowhere
        from_ours = costs.least(start, 30, 0.01, driven, found.tau[:, driven])
    assert found.cost < from_ours * (1.0 + 1e-3), (found.cost, from_ours)
    many = rd.optimize_trajectory(dyn, costs(), start, 30, 0.01, limits="effort", q_guess=q)
    assert abs(many.cost / found.cost - 1.0) < 0.05


@pytest.mark.matrix
def test_a_quadruped_jumps_off_soft_feet():
    """All feet leave the ground; L-BFGS with gradients of rollouts gains nothing."""
    dyn, standing = quadruped(cone="elliptic")
    q, weight, driven = standing(0.8), np.repeat([3000.0, 2.0], (6, 12)), np.arange(6, 18)
    goal, start = q + 0.15 * np.eye(19)[2], (q, np.zeros(18))
    costs = Costs(dyn, goal, 5e-4, (0.002 * weight, 0.0005), (weight, 0.05))
    found = rd.optimize_trajectory(dyn, costs(), start, 20, 0.01, limits="effort")
    assert found.status in ("converged", "stalled") and found.cost < 0.25 * found.log[0]
    assert dyn.contact_distances(found.q).min(axis=1).max() > 0.01
    least = costs.least(start, 20, 0.01, driven, found.tau[:, driven], iterations=40)
    assert found.cost < least * (1.0 + 1e-4), (found.cost, least)


@pytest.mark.matrix
def test_a_first_guess_holds_joints_with_drives():
    """Through a landing from 5 cm, from velocities that stop at once."""
    dyn, standing = quadruped()
    q, rng = standing(0.8) + 0.05 * np.eye(19)[2], np.random.default_rng(2)
    qd = np.concatenate([np.zeros(6), rng.normal(0.0, 0.2, 12)])
    problem = problem_of(dyn, rd.costs.Control(1.0), q[None], qd[None], 30, dt=0.01)
    q, qd = problem.roll_out(np.arange(1), holding(problem))
    assert np.abs(qd[:, 1:, 6:]).max() < 1e-5
    assert (dyn.contact_distances(q[0, -1]) < 0.0).all() and np.abs(qd[0, -1]).max() < 0.2


@pytest.mark.matrix
def test_mpc_lifts_a_quadruped():
    """A plan of longer steps than those of the robot."""
    dyn, standing = quadruped()
    weight = np.repeat([100.0, 2.0], (6, 12))
    cost = rd.costs.Control(1e-4) + rd.costs.State(q=weight, qd=0.01)
    cost += rd.costs.State(q=10 * weight, qd=0.1, final=True)
    mpc = rd.Mpc(dyn, cost, 15, 0.01, limits="effort")
    q, qd, goal = standing(0.8), np.zeros(18), standing(0.7)
    for k in range(80):
        tau = mpc(q, qd, goal=goal if k == 0 else None)
        assert not tau[:6].any() and (np.abs(tau) <= dyn.model.effort_limit).all()
        for _ in range(5):
            q, qd = dyn.step(q, qd, tau, 0.002)
    assert goal[2] - standing(0.8)[2] > 0.025 and abs(q[2] - goal[2]) < 0.005


@pytest.mark.matrix
def test_forces_that_do_not_converge_are_told():
    dyn, standing = quadruped(cone="elliptic", impratio=100.0, iterations=1)
    qd = np.random.default_rng(3).normal(0.0, 1.0, (20, 18))
    with pytest.warns(rd.ConvergenceWarning, match="optimize_trajectory: contact forces did not converge"):
        rd.optimize_trajectory(dyn, rd.costs.Control(1.0), (standing(0.8), qd), 2, 0.002, tau0=np.zeros(18))


def test_what_does_not_know_contacts_is_refused():
    dyn, q, _ = pusher()
    cost, start = rd.costs.Control(1.0), (q, np.zeros(7))
    crowded = dyn.variant(
        dyn.model.with_contacts([rd.Contact(rd.Box("block", size=(0.1, 0.1, 0.1)), rd.Plane())], max_contacts=2)
    )
    cases = {
        "ddp": lambda: rd.optimize_trajectory(dyn, cost, start, 2, 0.01, method="ddp"),
        "active": lambda: rd.optimize_trajectory(dyn, cost, start, 2, 0.01, active=np.ones(4)),
        "targets": lambda: rd.optimize_trajectory(dyn, cost, start, 2, 0.01, targets=np.ones((4, 12))),
        "Friction": lambda: rd.optimize_trajectory(dyn, cost + rd.costs.Friction("block", 0.5), start, 2, 0.01),
        "max_contacts": lambda: rd.optimize_trajectory(crowded, cost, start, 2, 0.01),
    }
    for word, call in cases.items():
        with pytest.raises(rd.UnavailableError, match=word):
            call()
