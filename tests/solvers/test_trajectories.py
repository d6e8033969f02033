"""Trajectory optimisation: derivatives of costs, optima beside SciPy's, batches, limits, and what is refused."""

from __future__ import annotations

import copy
import dataclasses
import functools
import pickle

import numpy as np
import pytest
from robots import own
from scipy.optimize import minimize

import robodyn as rd
from robodyn.solve.trajectories.costs import Sum
from robodyn.solve.trajectories.optimize import read, searched

GOAL = np.array([0.4, 0.5, -0.2, -0.9, 0.3, 0.6, 0.2])


@functools.cache
def arm():
    return rd.Dynamics(rd.load_urdf(own("arm7")), joint_forces="damping")


@functools.cache
def cartpole():
    return rd.Dynamics(rd.load_urdf(own("cartpole")), joint_forces=())


@functools.cache
def quadruped():
    """On four feet, and how it stands."""
    model = rd.load_urdf(own("quadruped"), base="floating")
    q = model.neutral()
    q[7:] = np.tile([0.0, 0.8, -1.6], 4)
    feet = [rd.Point(name) for name in model.link_names if name.endswith("_foot")]
    return rd.Dynamics(model, joint_forces="damping", constraints=feet), q


def reaching(goal=GOAL, weight=1e-3):
    final = rd.costs.State(q=100.0, qd=5.0, q_goal=goal, final=True)
    return rd.costs.Control(weight) + rd.costs.State(q=0.1, qd=0.01, q_goal=goal) + final


def swing_up():
    return rd.costs.Control(6e-4) + rd.costs.State(q=100.0, qd=10.0, q_goal=np.zeros(2), final=True)


def problem_of(dyn, cost, q, qd, steps, dt=0.02, **options):
    names = dict.fromkeys(("limits", "actuated", "active", "targets"))
    return read(dyn, cost, (q, qd), steps, dt, None, None, **{**names, **options})[0]


def changed(problem, q, qd, u, step, size):
    """The trajectory moved along its tangent space."""
    nv = problem.nv
    moved = problem.dyn.model.integrate(q, size * step[0][..., :nv])
    return moved, qd + size * step[0][..., nv:], u + size * step[1]


EVERY_COST = {
    "state": lambda m: rd.costs.State(q=np.arange(1.0, m.nv + 1), qd=0.3, q_goal=m.random_configuration(5)),
    "pose": lambda m: rd.costs.Pose(m.link_names[-1], _pose(), weight=(2.0, 3.0)),
    "center": lambda m: rd.costs.CenterOfMass((0.1, 0.2, 0.3), weight=(1.0, 2.0, 3.0), final=True),
    "control": lambda m: rd.costs.Control(np.linspace(0.1, 1.0, m.nv), tau_goal=np.ones(m.nv)),
}


def _pose():
    return rd.exp([0.3, -0.2, 0.5, 0.2, 0.1, 0.4])


@pytest.mark.parametrize("name", EVERY_COST)
@pytest.mark.parametrize("base", ["fixed", "floating"])
def test_costs_have_their_gradients_and_gauss_newton_hessians(name, base):
    """Along random directions: differences of costs, and of residuals by costs that are squares."""
    model = rd.load_urdf(own("arm7" if base == "fixed" else "quadruped"), base=base)
    dyn, rng, n = rd.Dynamics(model), np.random.default_rng(3), 4
    q = model.random_configuration(rng, (2, n + 1))
    qd, u = rng.normal(size=(2, n + 1, model.nv)), rng.normal(size=(2, n, model.nv - (0 if base == "fixed" else 6)))
    problem = problem_of(dyn, EVERY_COST[name](model), q[:, 0], qd[:, 0], n)
    rows = np.arange(2)
    made = problem.expand(rows, q, qd, u)
    step = rng.normal(size=(2, n + 1, 2 * model.nv)), rng.normal(size=u.shape)
    h = 1e-6
    ahead, behind = (problem.cost(rows, *changed(problem, q, qd, u, step, size)) for size in (h, -h))
    slope = (made.lx * step[0]).sum((1, 2)) + (made.lu * step[1]).sum((1, 2))
    np.testing.assert_allclose((ahead - behind) / (2 * h), slope, rtol=1e-6)
    for matrix in (made.lxx, made.luu):
        assert np.linalg.eigvalsh(matrix).min() >= -1e-9 * np.abs(matrix).max()
    if name in ("control", "state") and base == "fixed":  # quadratic: the model is exact
        q, qd, u = changed(problem, q, qd, u, step, 1.0)
        curve = np.einsum("bki,bkij,bkj->b", step[0], made.lxx, step[0])
        curve += np.einsum("bki,bkij,bkj->b", step[1], made.luu, step[1])
        before = problem.cost(rows, *changed(problem, q, qd, u, step, -1.0))
        np.testing.assert_allclose(problem.cost(rows, q, qd, u), before + slope + 0.5 * curve, rtol=1e-12)


def cost_and_slope(problem, u):
    """The cost of controls (1, N, nu) and its gradient (N, nu) by the adjoint, with the penalties of limits."""
    rows = np.zeros(1, int)
    q, qd = problem.roll_out(rows, u)
    made, (A, B) = problem.expand(rows, q, qd, u), problem.derivatives(rows, q, qd, u)
    costate, slope = made.lx[0, -1], np.empty(u.shape[1:])
    for k in reversed(range(problem.steps)):
        slope[k] = made.lu[0, k] + B[0, k].T @ costate
        costate = made.lx[0, k] + A[0, k].T @ costate
    return float(problem.cost(rows, q, qd, u)[0]), slope


def optimum_of_scipy(dyn, cost, start, steps, dt, limit, guess, ours):
    """The cost that bounded L-BFGS reaches from a guess, with gradients by the adjoint, and that gradient at `ours`."""
    problem = problem_of(dyn, cost, *start, steps, dt)

    def value(flat):
        found, slope = cost_and_slope(problem, flat.reshape(1, steps, problem.nu))
        return found, slope.ravel()

    bounds = None if limit is None else [(-e, e) for e in np.tile(limit, steps)]
    options = {"maxiter": 40, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 50}
    found = minimize(value, guess.ravel(), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    slope = value(ours.ravel())[1].reshape(ours.shape)
    if limit is not None:
        slope = np.where((ours >= limit) & (slope < 0.0) | (ours <= -limit) & (slope > 0.0), 0.0, slope)
    return found.fun, np.abs(slope).max()


@pytest.mark.parametrize("limits", [pytest.param(None, marks=pytest.mark.matrix), "effort"])
def test_an_arm_reaches_the_optimum_of_l_bfgs(limits):
    dyn, start, steps = arm(), (np.zeros(7), np.zeros(7)), 12
    model, cost = dyn.model, reaching(2.0 * GOAL, 1e-5)
    found = rd.optimize_trajectory(dyn, cost, start, steps, 0.02, limits=limits)
    assert found.status == "converged" and found.converged and np.diff(found.log).max() <= 0.0
    limit = model.effort_limit if limits else None
    excess = (np.abs(found.tau) - model.effort_limit).max()
    assert excess > 1.0 if limits is None else excess == 0.0
    rng = np.random.default_rng(0)
    near = found.tau + rng.normal(0.0, 0.1, found.tau.shape)
    other, slope = optimum_of_scipy(dyn, cost, start, steps, 0.02, limit, near, found.tau)
    assert found.cost <= other * (1.0 + 1e-9) and found.cost >= other * (1.0 - 1e-4), (found.cost, other)
    assert slope < 1e-4, "the gradient, but where a bound stops it"
    q, qd = np.zeros(7), np.zeros(7)
    for k in range(steps):
        q, qd = dyn.step(q, qd, found.tau[k], 0.02)
    np.testing.assert_allclose(q, found.q[-1], atol=1e-12)


def test_a_row_of_a_batch_is_the_problem_alone():
    """Bit for bit, whatever the others do."""
    model = arm().model
    starts = np.array([np.zeros(7), np.full(7, 0.3), GOAL])
    goals = np.array([GOAL, -GOAL, GOAL])
    together = rd.optimize_trajectory(arm(), reaching(goals[:, None]), (starts, np.zeros(7)), 10, 0.02, limits="effort")
    assert together.q.shape == (3, 11, model.nq) and together.status.shape == (3,)
    for k in range(3):
        alone = rd.optimize_trajectory(arm(), reaching(goals[k]), (starts[k], np.zeros(7)), 10, 0.02, limits="effort")
        assert alone.iterations == together.iterations[k]
        np.testing.assert_array_equal(alone.q, together.q[k])
        np.testing.assert_array_equal(alone.gains, together.gains[k])
    velocities = np.array([np.full(7, 1e200), np.zeros(7)])  # one that diverges leaves the other one alone
    two = rd.optimize_trajectory(arm(), reaching(goals[1:, None]), (starts[2], velocities), 10, 0.02, limits="effort")
    assert two.status.tolist() == ["diverged", "converged"]
    np.testing.assert_array_equal(two.gains[1], alone.gains)


def test_gains_are_the_change_of_the_optimum_by_the_state():
    """Newton's gains (DDP) at the optimum against optima of nearby starts."""
    dyn, start = cartpole(), np.array([0.1, np.pi - 0.4])
    cost = rd.costs.Control(1e-2) + rd.costs.State(q=1.0, qd=0.1, q_goal=[0.0, np.pi], final=False)
    options = {"actuated": ["slider"], "method": "ddp", "tolerance": 1e-14, "iterations": 200}
    options["actuated"] = [dyn.model.joint_names[0]]
    found = rd.optimize_trajectory(dyn, cost, (start, np.zeros(2)), 15, 0.03, **options)
    h = 1e-5
    for k in range(4):
        ends = []
        for sign in (1.0, -1.0):
            x = np.concatenate((start, np.zeros(2)))
            x[k] += sign * h
            near = rd.optimize_trajectory(dyn, cost, (x[:2], x[2:]), 15, 0.03, tau0=found.tau, **options)
            ends.append(near.tau[0, 0])
        np.testing.assert_allclose((ends[0] - ends[1]) / (2 * h), found.gains[0, 0, k], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["ilqr", "ddp"])
def test_a_pole_swings_up(method):
    """The better of its two optima, which IPOPT and others reach from here too."""
    dyn = cartpole()
    cart = [dyn.model.joint_names[0]]
    start = [0.0, np.pi], [0.0, 0.0]
    found = rd.optimize_trajectory(dyn, swing_up(), start, 100, 0.03, actuated=cart, method=method, iterations=300)
    assert found.converged and abs(found.cost - 0.373353) < 1e-6
    assert np.diff(found.log).max() <= 0.0 and not found.tau[:, 1].any() and np.abs(found.q[-1]).max() < 0.01
    assert found.iterations < (60 if method == "ddp" else 200)


def test_gaps_close_from_a_guess_of_states():
    dyn, start = arm(), (np.zeros(7), np.zeros(7))
    single = rd.optimize_trajectory(dyn, reaching(), start, 12, 0.02, limits="effort")
    guess = GOAL * np.linspace(0.0, 1.0, 13)[:, None]
    many = rd.optimize_trajectory(dyn, reaching(), start, 12, 0.02, q_guess=guess, limits="effort")
    assert many.converged and abs(many.cost / single.cost - 1.0) < 1e-6
    q, _ = dyn.step(many.q[:-1], many.qd[:-1], many.tau, 0.02)
    np.testing.assert_allclose(q, many.q[1:], atol=1e-8)


def test_a_joint_without_room_stays():
    """Limits of velocity or effort that are zero, and equal limits of position."""
    model, cost = cartpole().model, rd.costs.Control(1e-3) + rd.costs.State(q=1.0, q_goal=np.array([0.1, 0.2]))
    none = np.array([0.0, np.inf])
    still = {
        "velocity": dataclasses.replace(model, tree_velocity=none),
        "position": dataclasses.replace(model, tree_lower=-none, tree_upper=none),
        "effort": dataclasses.replace(model, tree_effort=none),
    }
    for name, robot in still.items():
        dyn = rd.Dynamics(robot, joint_forces=())
        run = rd.optimize_trajectory(dyn, cost, (np.zeros(2), np.zeros(2)), 6, 0.02, limits=name)
        assert run.converged and run.violation < 1e-6
        assert np.abs({"velocity": run.qd, "position": run.q, "effort": run.tau}[name][:, 0]).max() < 1e-6
        assert np.abs(run.q[-1, 1]) > 0.01


def test_limits_of_states_hold():
    """Of positions and velocities, by multipliers; the optimum has some of them active."""
    dyn, model = arm(), arm().model
    names = ("effort", "position", "velocity")
    start = np.zeros(7), np.zeros(7)
    cost = reaching(1.5 * GOAL)
    free = rd.optimize_trajectory(dyn, cost, start, 20, 0.02, limits="effort")
    assert (np.abs(free.qd) > model.velocity_limit).any()
    found = rd.optimize_trajectory(dyn, cost, start, 20, 0.02, limits=names)
    assert found.converged and found.violation < 1e-6 and found.cost > free.cost
    assert (np.abs(found.qd) <= model.velocity_limit * (1 + 2e-6)).all()
    assert (np.abs(found.qd) > model.velocity_limit * (1 - 1e-5)).any()


@pytest.mark.matrix
def test_a_quadruped_on_its_feet():
    """A floating base with constraints, by both methods of shooting; forces are held where feet are."""
    dyn, q = quadruped()
    low = q.copy()
    low[2] -= 0.05
    weight = np.array([50.0] * 6 + [0.2] * 12)
    cost = rd.costs.Control(1e-3) + rd.costs.State(q=weight, qd=0.1, q_goal=low, final=True)
    start = q, np.zeros(18)
    single = rd.optimize_trajectory(dyn, cost, start, 10, 0.02)
    assert single.converged and not single.tau[:, :6].any()
    many = rd.optimize_trajectory(dyn, cost, start, 10, 0.02, q_guess=q)
    assert many.converged and abs(many.cost / single.cost - 1.0) < 1e-6
    phi, _ = dyn.constraint_residual(single.q, single.qd, dyn.constraint_targets(q))
    assert np.abs(phi).max() < 1e-5


def test_shapes_keep_clear_of_an_obstacle():
    """The straight way leads through the sphere; least distances at all knots."""
    model = arm().model.with_shapes([rd.Sphere("tool0", at=(0.0, 0.0, 0.0), radius=0.05)])
    dyn = rd.Dynamics(model, joint_forces="damping")
    start, goal = np.array([-0.6, 0.8, 0.0, -1.2, 0.0, 0.5, 0.0]), np.array([0.6, 0.8, 0.0, -1.2, 0.0, 0.5, 0.0])
    middle = dyn.link_pose(0.5 * (start + goal), "tool0")[:3, 3]
    ball = rd.Obstacles(spheres=[[middle[0], middle[1], middle[2] + 0.03, 0.1]])
    final = rd.costs.State(q=1000.0, qd=50.0, q_goal=goal, final=True)
    cost = rd.costs.Control(1e-4) + rd.costs.State(qd=0.05) + final
    free = rd.optimize_trajectory(dyn, cost, (start, np.zeros(7)), 25, 0.02)
    assert dyn.min_distance(free.q, ball).min() < 0.0
    found = rd.optimize_trajectory(dyn, cost + rd.costs.Clearance(0.01, ball), (start, np.zeros(7)), 25, 0.02)
    assert found.converged and found.cost > free.cost
    assert 0.01 - 2e-6 < dyn.min_distance(found.q, ball).min() < 0.01 + 1e-5


@pytest.mark.matrix
def test_a_quadruped_stands_on_few_feet():
    """A trot, and a foot alone: the first guess is near, both ways of shooting agree, and rows are problems alone."""
    dyn, q = quadruped()
    goal, weight = q.copy(), np.array([20.0] * 6 + [0.2] * 12)
    goal[:2] += 0.05, 0.03
    cost = rd.costs.Control(1e-3) + rd.costs.State(q=weight, qd=0.01, q_goal=goal)
    cost += rd.costs.State(q=20.0 * weight, qd=0.5, q_goal=goal, final=True)
    active = np.ones((2, 8, 4))
    active[0, 2:5, [0, 3]] = active[0, 5:7, [1, 2]] = active[1, 3:6, 1:] = 0.0
    start, options = (np.stack((q, q)), np.zeros(18)), {"limits": "effort", "active": active}
    single = rd.optimize_trajectory(dyn, cost, start, 8, 0.03, **options)
    many = rd.optimize_trajectory(dyn, cost, start, 8, 0.03, **options, q_guess=q)
    assert single.converged.all() and many.converged.all() and (single.log[:, 0] < 20.0 * single.cost).all()
    np.testing.assert_allclose(many.cost, single.cost, rtol=1e-6)
    alone = rd.optimize_trajectory(dyn, cost, (q, np.zeros(18)), 8, 0.03, limits="effort", active=active[1])
    np.testing.assert_allclose(alone.q, single.q[1], atol=1e-9)


@pytest.mark.matrix
def test_a_quadruped_jumps_within_friction():
    """Phases by `active`; both ways of shooting end at one cost, and pyramids hold where the legs push. The solution
    obeys the conditions of Karush, Kuhn and Tucker."""
    dyn, q = quadruped()
    apex, weight = q.copy(), np.array([5.0] * 6 + [0.2] * 12)
    apex[2] += 0.25
    cost = rd.costs.Control(1e-3) + rd.costs.State(q=0.1 * weight, qd=0.01, q_goal=q)
    cost += rd.costs.State(q=100.0 * weight, qd=0.5, q_goal=apex, final=True)
    names = [each.link for each in dyn.model.constraints]
    within = sum((rd.costs.Friction(name, 0.3) for name in names), cost)
    active = np.ones((30, 4))
    active[15:] = 0.0
    problem = (q, np.zeros(18)), 30, 0.02
    free = rd.optimize_trajectory(dyn, cost, *problem, limits="effort", active=active)
    many = rd.optimize_trajectory(dyn, cost, *problem, limits="effort", active=active, q_guess=q)
    assert free.converged and many.converged and abs(many.cost / free.cost - 1.0) < 1e-6
    assert free.q[:, 2].max() > q[2] + 0.2
    for guess in (None, q):
        found = rd.optimize_trajectory(dyn, within, *problem, limits="effort", active=active, q_guess=guess)
        assert found.converged and found.violation < 1e-6 and found.cost > free.cost
        targets = dyn.constraint_targets(q)
        targets[:, :9] = np.eye(3).ravel()
        at = found.q[:15], found.qd[:15], found.tau[:15]
        force = dyn.constrained_forward_dynamics(*at, targets=targets)[1].reshape(15, 4, 3)
        excess = np.abs(force[..., :2]).max(-1) - 0.3 * force[..., 2]
        assert -1e-3 < excess.max() < 1e-4
    options = {"actuated": None, "limits": "effort", "active": active, "targets": None}
    problem, u, _ = read(dyn, within, *problem, None, None, **options)
    search = searched(problem, u, None, None, 100, 1e-9, lambda done: None)
    (limit,) = problem.limits.limits
    g = limit.violations(np.arange(1), search.q, search.qd, search.u)
    assert (limit.y >= 0.0).all() and limit.y.max() > 1e-3 and np.abs(limit.y * g).max() < 1e-6
    limit.rho[:] = 1e-12  # what is left of the penalty is the multipliers
    slope = cost_and_slope(problem, search.u)[1]
    inward = (search.u[0] >= problem.upper) & (slope < 0.0) | (search.u[0] <= problem.lower) & (slope > 0.0)
    assert inward.any() and np.abs(np.where(inward, 0.0, slope)).max() < 1e-4


def test_mpc_follows_its_plan_and_shifts_it():
    dyn, goal = arm(), GOAL
    cost = rd.costs.Control(1e-4, tau_goal=dyn.gravity_force(goal)) + rd.costs.State(q=1.0, qd=0.05)
    cost += rd.costs.State(q=50.0, qd=5.0, q_goal=goal, final=True)
    mpc = rd.Mpc(dyn, cost, steps=15, dt=0.02, limits="effort")
    with pytest.raises(rd.ArgumentError, match="goal"):
        mpc(np.zeros(7), np.zeros(7))
    q, qd = np.zeros(7), np.zeros(7)
    for k in range(150):
        tau = mpc(q, qd, goal=goal if k == 0 else None, elapsed=0.01)
        assert tau.shape == (7,) and (np.abs(tau) <= dyn.model.effort_limit).all()
        q, qd = dyn.step(q, qd, tau, 0.01)
    assert np.abs(q - goal).max() < 1e-2 and mpc.plan.q.shape == (16, 7)


def _without_joints():
    return rd.load_urdf('<robot name="r"><link name="a"/></robot>')


def test_costs_keep_their_own_numbers():
    """What becomes of the arrays that a cost was made of does not change it."""
    arrays = [np.ones(7), np.full(7, 0.1), np.eye(4), np.ones(3)]
    q, goal, pose, point = arrays
    cost = reaching() + rd.costs.State(q=q, q_goal=goal) + rd.costs.Pose("tool0", pose) + rd.costs.CenterOfMass(point)
    wanted = rd.optimize_trajectory(arm(), cost, (np.zeros(7), np.zeros(7)), 5, 0.02)
    for each in arrays:
        each[...] = -5.0
    assert rd.optimize_trajectory(arm(), cost, (np.zeros(7), np.zeros(7)), 5, 0.02).cost == wanted.cost


def test_copies_of_mpc_keep_the_goal_and_have_no_plan():
    """As after `reset`. Calls that are refused change nothing."""
    still, tool = np.zeros(7), arm().link_pose(GOAL, "tool0")
    mpc = rd.Mpc(arm(), reaching() + rd.costs.Pose("tool0", tool), 5, 0.02)
    mpc(still, still)
    mpc(still, still, goal=-GOAL)
    wanted = rd.Mpc(arm(), reaching(-GOAL) + rd.costs.Pose("tool0", tool), 5, 0.02)(still, still)
    for others in (copy.copy(mpc), copy.deepcopy(mpc), pickle.loads(pickle.dumps(mpc))):
        with pytest.raises(rd.ArgumentError, match="plan"):
            _ = others.plan
        np.testing.assert_array_equal(others(still, still), wanted)
    mpc.reset()
    np.testing.assert_array_equal(mpc(still, still), wanted)
    for refused in ({"elapsed": 1e300}, {"goal": 2.0 * tool}, {"goal": [[1.0], [2.0, 3.0]]}, {"goal": GOAL[:5]}):
        with pytest.raises(rd.ArgumentError, match=next(iter(refused))):
            mpc(still, still, **refused)
    np.testing.assert_allclose(mpc(still, still, elapsed=0.0), wanted, atol=1e-3)
    with pytest.raises(rd.ArgumentError, match="steps"):
        rd.Mpc(quadruped()[0], reaching(np.zeros(19)), "x", 0.02, active=np.ones(4))


def test_what_does_not_fit_is_refused():
    dyn, start = arm(), (np.zeros(7), np.zeros(7))
    cases = {
        "cost": lambda: rd.optimize_trajectory(dyn, 3.0, start, 5, 0.02),
        "State.q_goal": lambda: rd.optimize_trajectory(dyn, rd.costs.State(q=1.0), start, 5, 0.02),
        "State.qd": lambda: rd.optimize_trajectory(dyn, rd.costs.State(qd=[1.0, 2.0]), start, 5, 0.02),
        "limits": lambda: rd.optimize_trajectory(dyn, reaching(), start, 5, 0.02, limits="torque"),
        "start": lambda: rd.optimize_trajectory(dyn, reaching(), np.zeros(7), 5, 0.02),
        "dt": lambda: rd.optimize_trajectory(dyn, reaching(), start, 5, -0.02),
        "active": lambda: rd.optimize_trajectory(dyn, reaching(), start, 5, 0.02, active=True),
        "tau0": lambda: rd.optimize_trajectory(dyn, reaching(), start, 5, 0.02, tau0=np.ones(7), actuated=["joint_1"]),
        "weight": lambda: rd.costs.Control(-1.0),
        "target": lambda: rd.costs.Pose("tool0", 2.0 * np.eye(4)),
        "the sum": lambda: rd.optimize_trajectory(dyn, Sum((reaching(), 1)), start, 5, 0.02),
        "actuated": lambda: rd.optimize_trajectory(_without_joints(), Sum(()), ([], []), 5, 0.02),
        "foot": lambda: rd.optimize_trajectory(dyn, reaching() + rd.costs.Friction("hand", 0.5), start, 5, 0.02),
    }
    for name, call in cases.items():
        with pytest.raises((rd.ArgumentError, rd.UnavailableError), match=name.replace(".", r"\.")):
            call()
    with pytest.raises(rd.NumericalError):
        rd.optimize_trajectory(dyn, reaching(), (np.full(7, np.nan), np.zeros(7)), 5, 0.02)
    loop = rd.Dynamics(rd.load_urdf(own("loops/four_bar")), joint_forces=())
    with pytest.raises(rd.UnavailableError, match="ddp"):
        rd.optimize_trajectory(loop, Sum(()), (np.zeros(3), np.zeros(3)), 5, 0.02, method="ddp")
    with pytest.raises(rd.SingularError, match="pointer"):
        rd.optimize_trajectory(rd.load_urdf(own("massless_tip")), Sum(()), (np.zeros(3), np.zeros(3)), 5, 0.02)
    ball = rd.load_urdf(own("ball_joint_arm"))
    with pytest.raises(rd.ArgumentError, match=r"State\.q_goal: the quaternion"):
        cost = rd.costs.State(q=1.0, q_goal=np.zeros(ball.nq))
        rd.optimize_trajectory(ball, cost, (ball.neutral(), np.zeros(ball.nv)), 5, 0.02)


@pytest.mark.parametrize("name", ["gripper", "ball_joint_arm", "planar_rover"])
@pytest.mark.some(of=3, rest="matrix")
def test_joints_of_every_kind_on_every_engine_and_dtype(name):
    """Mimicking, spherical and planar joints: engines agree, gaps close, and a batch may be empty."""
    model = rd.load_urdf(own(name))
    q, still = model.neutral(), np.zeros(model.nv)
    goal = model.integrate(q, np.full(model.nv, 0.1))
    cost = rd.costs.Control(1e-2) + rd.costs.State(q=1.0, qd=0.1, q_goal=goal)
    found = {}
    for engine, dtype in (("reference", "float64"), ("cpu", "float64"), ("cpu", "float32")):
        dyn = rd.Dynamics(model, engine=engine, dtype=dtype, joint_forces=())
        run = found[engine, dtype] = rd.optimize_trajectory(dyn, cost, (q, still), 5, 0.02)
        assert run.converged and run.q.dtype == dtype and np.diff(run.log).max() <= 0.0
        np.testing.assert_allclose(run.q, found["reference", "float64"].q, atol=1e-9 if dtype == "float64" else 1e-6)
    guessed = rd.optimize_trajectory(dyn.variant(dtype="float64"), cost, (q, still), 5, 0.02, q_guess=q)
    assert guessed.converged and abs(guessed.cost / found["cpu", "float64"].cost - 1.0) < 1e-7
    none = rd.optimize_trajectory(dyn, cost, (np.zeros((0, model.nq)), still), 5, 0.02)
    assert none.q.shape == (0, 6, model.nq) and none.converged.shape == (0,)


def test_a_guess_that_diverges_is_said():
    start = np.zeros(7), np.zeros(7)
    found = rd.optimize_trajectory(arm(), reaching(), start, 40, 0.02, tau0=np.full(7, 1e200))
    assert found.status == "diverged" and not found.converged
    beyond = rd.costs.State(q=1e300, q_goal=GOAL)
    single = rd.optimize_trajectory(arm().variant(dtype="float32"), beyond, start, 3, 0.02)
    assert np.isinf(single.cost) and np.isfinite(single.q).all()


@pytest.mark.parametrize(
    "robot", ["arm", *(pytest.param(k, marks=pytest.mark.matrix) for k in ("quadruped", "floating"))]
)
def test_programs_are_the_steps_and_costs_by_calls(robot):
    """Roll-outs with feedback, costs and their models: machine code of the robot beside calls of its queries."""
    rng, n, rows = np.random.default_rng(7), 4, 3
    dyn, stance = (arm(), GOAL) if robot == "arm" else quadruped()
    if robot == "floating":
        dyn = rd.Dynamics(rd.load_urdf(own("quadruped"), base="floating"), joint_forces=())
    model = dyn.model
    cost = Sum(tuple(make(model) for make in EVERY_COST.values()))
    cost += rd.costs.State(q=2.0, qd=0.1, q_goal=stance, final=True)
    near = model.integrate(
        np.broadcast_to(stance, (rows, n + 1, model.nq)), 0.01 * rng.normal(size=(rows, n + 1, model.nv))
    )
    qd, options = 0.01 * rng.normal(size=(rows, n + 1, model.nv)), {"limits": "effort"}
    if robot == "quadruped":
        options["active"] = np.array([[1, 1, 1, 1], [1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]])
    problem = problem_of(dyn, cost, near[:, 0], qd[:, 0], n, dt=0.005, **options)
    assert problem.programs is not None and problem.boxed
    u, k, K = (rng.normal(size=(rows, n, problem.nu, *more)) for more in ((), (), (2 * model.nv,)))
    every, plan = np.arange(rows), (near, qd, u)
    size = np.array([0.0, 0.5, 1.0])

    def results():
        for some in (every, every[1:2]):
            part = tuple(each[some] for each in plan)
            tried, value = problem.follow(some, part, size[some], k[some], 0.3 * K[some])
            model = problem.expand(some, *part)
            yield from (*tried, value, model.lx, model.lxx, model.lu, model.luu, model.lux)

    found = list(results())
    problem.programs = None
    for one, each in zip(found, results(), strict=True):
        np.testing.assert_allclose(one, each, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("robot", ["arm", pytest.param("quadruped", marks=pytest.mark.matrix)])
def test_warm_iterations_are_those_of_the_search(robot):
    """Control with a receding horizon on fixed arrays, and by the code for batches: goals, phases, limits, steps that
    are too long, states off the plan."""
    rng, options = np.random.default_rng(9), {"limits": "effort"}
    dyn, q = (arm(), np.zeros(7)) if robot == "arm" else quadruped()
    if robot == "quadruped":
        options["active"] = np.repeat([[1, 1, 1, 1], [1, 0, 0, 1], [1, 1, 1, 1]], 4, axis=0)
    nv, dt = dyn.model.nv, 0.02 if robot == "arm" else 0.01
    cost = rd.costs.State(q=1.0, qd=0.1) + rd.costs.Control(1e-3) + rd.costs.State(q=50.0, qd=1.0, final=True)
    goal = dyn.model.integrate(q, 0.2 * rng.normal(size=nv))
    both = [rd.Mpc(dyn, cost, 8, dt, **options) for _ in range(2)]
    qd, lengths = np.zeros(nv), []
    for call in range(12):
        if call == 6:
            goal = dyn.model.integrate(q, 2.0 * rng.normal(size=nv) if robot == "arm" else 0.5 * rng.normal(size=nv))
        one, other = (each(q, qd, goal=goal if call in (0, 6) else None, elapsed=dt * (call % 3)) for each in both)
        assert both[0]._warm is not None
        both[1]._warm = None
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-7)
        plans = [each.plan for each in both]
        assert plans[0].iterations == plans[1].iterations and plans[0].status == plans[1].status
        np.testing.assert_allclose(plans[0].gains, plans[1].gains, rtol=1e-6, atol=1e-6)
        lengths.append(plans[0].cost.item())
        q, qd = dyn.step(q, qd + 0.01 * rng.normal(size=nv), one, dt)
    assert np.isfinite(lengths).all()
