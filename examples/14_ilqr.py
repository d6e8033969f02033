"""Trajectory optimisation with iLQR and DDP: a cart swings its pole up, an arm reaches. `14_ilqr.py [FIGURE.svg]`"""

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

import robodyn as rd

np.set_printoptions(precision=4, suppress=True, linewidth=120)

MODELS = Path(__file__).resolve().parent.parent / "models"
KNOTS = 100
STEP_SIZES = 0.5 ** np.arange(11)  # of the line search: all of them are one batch


class Clocked:
    """A Dynamics that adds up the time its queries take."""

    def __init__(self, dyn):
        self.dyn, self.model, self.seconds = dyn, dyn.model, 0.0

    def __getattr__(self, name):
        query = getattr(self.dyn, name)

        def timed(*arguments, **options):
            start = time.perf_counter()
            result = query(*arguments, **options)
            self.seconds += time.perf_counter() - start
            return result

        return timed


class Trajectory(NamedTuple):
    """Knots first, then any batch."""

    q: np.ndarray  # (KNOTS + 1, ..., nv)
    qd: np.ndarray  # (KNOTS + 1, ..., nv)
    u: np.ndarray  # (KNOTS, ..., nu)

    @property
    def x(self):
        return np.concatenate([self.q, self.qd], axis=-1)


class PoseCost:
    """weight / 2 |T - T*|^2 for the twelve numbers of a link's pose: smooth, however far it has to turn."""

    def __init__(self, dyn, link, target, weights):
        self.dyn, self.link, self.target, self.weights = dyn, link, target, weights
        self.number = dyn.model.link_index(link)

    def error(self, q):
        """T - T*, (..., 3, 4): of the link's axes, then of its origin in m."""
        return self.dyn.forward_kinematics(q)[..., self.number, :3, :] - self.target

    def cost(self, q):
        return np.einsum("k...ij,k->...", 0.5 * self.error(q) ** 2, self.weights)

    def expansion(self, q):
        """Gradient (KNOTS + 1, nv) and Gauss-Newton Hessian (KNOTS + 1, nv, nv).

        When the link turns by w, an axis e of it changes by w x e. So the gradient of |e - e*|^2 / 2 by w is e* x e,
        and the squares |w x e|^2 of three axes add up to 2 |w|^2.
        """
        error = self.error(q)
        J = self.dyn.jacobian(q, self.link)  # rows: w, then the velocity of the origin
        axes = np.swapaxes((error + self.target)[..., :3], -1, -2)
        moment = np.cross(self.target[:, :3].T, axes).sum(axis=-2)
        gradient = np.einsum("kij,ki->kj", J, np.concatenate([moment, error[..., 3]], axis=-1))
        hessian = np.swapaxes(J, -1, -2) @ (np.array([2.0, 2.0, 2.0, 1.0, 1.0, 1.0])[:, None] * J)
        return self.weights[:, None] * gradient, self.weights[:, None, None] * hessian


@dataclass
class Problem:
    """Minimise half the weighted squares of x - goal and u over all knots, and a pose's cost, from rest at `start`.

    States are vectors x = (q, qd). Of floating bases and spherical joints q is not one: `model.integrate` and
    `model.difference` take the place of + and - there.
    """

    dyn: Clocked
    actuation: np.ndarray  # (nv, nu): tau = actuation u
    dt: float  # s
    start: np.ndarray  # (nv,)
    guess: np.ndarray  # (nu,): what to hold at first
    goal: np.ndarray  # (2 nv,)
    state_weights: np.ndarray  # (KNOTS + 1, 2 nv)
    input_weights: np.ndarray  # (nu,)
    pose: PoseCost | None = None

    def cost(self, trajectory):
        """Cost of each trajectory of a batch."""
        squares = np.einsum("k...i,ki->...", (trajectory.x - self.goal) ** 2, self.state_weights)
        squares += np.einsum("k...i,i->...", trajectory.u**2, self.input_weights)
        return 0.5 * squares + (0.0 if self.pose is None else self.pose.cost(trajectory.q))

    def step(self, q, qd, u):
        """Semi-implicit Euler: qd' = qd + dt qdd, then q' = q + dt qd'."""
        qd = qd + self.dt * self.dyn.forward_dynamics(q, qd, u @ self.actuation.T)
        return q + self.dt * qd, qd

    # From here on everything is a function of dz = (1, dx, du), small changes at a knot. The leading 1 lets one matrix
    # hold a quadratic function: its gradient in row and column 0, its Hessian in the others.

    def quadratic_cost(self, trajectory):
        """L (KNOTS + 1, 1 + 2 nv + nu, 1 + 2 nv + nu): to second order a knot's cost changes by dz' L dz / 2."""
        nv, nu = self.actuation.shape
        size = 1 + 2 * nv + nu
        of_x, of_u = np.arange(1, 1 + 2 * nv), np.arange(1 + 2 * nv, size)
        L = np.zeros((KNOTS + 1, size, size))
        L[:, 0, of_x] = self.state_weights * (trajectory.x - self.goal)
        L[:, of_x, of_x] = self.state_weights
        L[:-1, 0, of_u] = self.input_weights * trajectory.u
        L[:-1, of_u, of_u] = self.input_weights
        if self.pose is not None:
            gradient, hessian = self.pose.expansion(trajectory.q)
            L[:, 0, 1 : 1 + nv] += gradient
            L[:, 1 : 1 + nv, 1 : 1 + nv] += hessian
        L[:, 1:, 0] = L[:, 0, 1:]
        return L

    def linear_dynamics(self, trajectory):
        """F (KNOTS, 1 + 2 nv, 1 + 2 nv + nu): (1, dx') = F dz. All knots are one call."""
        nv, nu = self.actuation.shape
        q, qd, u = trajectory.q[:-1], trajectory.qd[:-1], trajectory.u
        by_q, by_qd, by_tau = self.dyn.forward_dynamics_gradient(q, qd, u @ self.actuation.T)
        F = np.zeros((KNOTS, 1 + 2 * nv, 1 + 2 * nv + nu))
        F[:, 0, 0] = 1.0
        F[:, 1 + nv :, 1:] = self.dt * np.concatenate([by_q, by_qd, by_tau @ self.actuation], axis=-1)
        F[:, 1 + nv :, 1 + nv : 1 + 2 * nv] += np.eye(nv)
        F[:, 1 : 1 + nv] = self.dt * F[:, 1 + nv :]
        F[:, 1 : 1 + nv, 1 : 1 + nv] += np.eye(nv)
        return F

    def curvature(self, trajectory):
        """C (KNOTS, nv, 2 nv + nu, 2 nv + nu): second derivatives of qdd by (x, u), which DDP has and iLQR has not."""
        nv, nu = self.actuation.shape
        q, qd, u = trajectory.q[:-1], trajectory.qd[:-1], trajectory.u
        q_q, q_qd, qd_qd, q_tau = self.dyn.forward_dynamics_hessian(q, qd, u @ self.actuation.T)
        C = np.zeros((KNOTS, nv, 2 * nv + nu, 2 * nv + nu))
        C[..., :nv, :] = np.concatenate([q_q, q_qd, q_tau @ self.actuation], axis=-1)
        C[..., nv:, :nv] = np.swapaxes(C[..., :nv, nv:], -1, -2)
        C[..., nv : 2 * nv, nv : 2 * nv] = qd_qd
        return C


def backward(problem, L, F, C, mu):
    """The Riccati recursion: gains G (KNOTS, nu, 1 + 2 nv) of du = G (1, dx), and by how much they promise to lower the
    cost. None where the cost is not convex in u. mu |dx'|^2 / 2 is added to it (Tassa et al. 2012, section II.F)."""
    dt, (nv, nu) = problem.dt, problem.actuation.shape
    end = 1 + 2 * nv
    near = mu * np.swapaxes(F[:, :, end:], -1, -2) @ F
    gains = np.empty((KNOTS, nu, end))
    closed = np.eye(end + nu, end)  # dz = closed (1, dx), once u follows the gains
    V = L[-1, :end, :end]  # the cost that is still to come changes by (1, dx)' V (1, dx) / 2
    for k in reversed(range(KNOTS)):
        Q = L[k] + F[k].T @ V @ F[k]
        if C is not None:  # by the chain rule through qd' = qd + dt qdd and q' = q + dt qd'
            by_qdd = dt * (V[0, 1 + nv :] + dt * V[0, 1 : 1 + nv])
            Q[1:, 1:] += (by_qdd @ C[k].reshape(nv, -1)).reshape(2 * nv + nu, 2 * nv + nu)
        A = Q[end:] + near[k]
        try:
            np.linalg.cholesky(A[:, end:])
        except np.linalg.LinAlgError:
            if C is None:
                raise  # input_weights are not positive
            return None
        gains[k] = closed[end:] = -np.linalg.solve(A[:, end:], A[:, :end])
        V = closed.T @ Q @ closed
        V = 0.5 * (V + V.T)
    return gains, -0.5 * V[0, 0]


def forward(problem, old, gains, sizes):
    """Trajectories (knots, sizes, ...) of u = old u + G (size, x - old x), one for each size of the step."""
    nv = problem.start.size
    new = Trajectory(*(np.empty((len(array), sizes.size, array.shape[-1])) for array in old))
    new.q[0], new.qd[0] = old.q[0], old.qd[0]
    change = np.empty((sizes.size, 1 + 2 * nv))
    change[:, 0] = sizes
    for k in range(KNOTS):
        change[:, 1 : 1 + nv] = new.q[k] - old.q[k]
        change[:, 1 + nv :] = new.qd[k] - old.qd[k]
        new.u[k] = old.u[k] + change @ gains[k].T
        new.q[k + 1], new.qd[k + 1] = problem.step(new.q[k], new.qd[k], new.u[k])
    return new


def one_of(trajectories, i):
    """Trajectory i of a batch."""
    return Trajectory(*(np.ascontiguousarray(array[:, i]) for array in trajectories))


def first_trajectory(problem):
    """What the robot does while the guess is held."""
    nv, nu = problem.actuation.shape
    q, qd = np.tile(problem.start, (KNOTS + 1, 1)), np.zeros((KNOTS + 1, nv))
    held = Trajectory(q, qd, np.tile(problem.guess, (KNOTS, 1)))
    return one_of(forward(problem, held, np.zeros((KNOTS, nu, 1 + 2 * nv)), np.zeros(1)), 0)


@dataclass
class Solution:
    trajectory: Trajectory
    gains: np.ndarray
    costs: list  # of the first trajectory, then after each iteration
    converged: bool
    seconds: float
    dynamics: float  # s: the part of it that robodyn took


def solve(problem, second_order=False, iterations=300, tolerance=1e-9):
    """iLQR, or DDP: with second derivatives of the dynamics, wherever the cost is convex in u with them.

    It has converged when the next step promises less than `tolerance` of the cost.
    """
    begin, before = time.perf_counter(), problem.dyn.seconds
    trajectory = first_trajectory(problem)
    costs = [float(problem.cost(trajectory))]
    mu, delta, converged = 1.0, 1.0, False
    while len(costs) <= iterations and mu < 1e10:
        L, F = problem.quadratic_cost(trajectory), problem.linear_dynamics(trajectory)
        C = problem.curvature(trajectory) if second_order else None
        gains, promised = backward(problem, L, F, C, mu) or backward(problem, L, F, None, mu)
        converged = bool(mu == 0.0 and promised < tolerance * costs[-1])
        if converged:
            break
        with np.errstate(over="ignore", invalid="ignore"):  # a step that is too long may end anywhere
            tried = forward(problem, trajectory, gains, STEP_SIZES)
            tried_costs = np.nan_to_num(problem.cost(tried), nan=np.inf)
        best = int(tried_costs.argmin())
        # The more often it succeeds or fails in a row, the faster mu shrinks or grows.
        if tried_costs[best] < costs[-1]:
            trajectory = one_of(tried, best)
            delta = min(0.5, 0.5 * delta)
            mu = mu * delta if mu * delta > 1e-6 else 0.0
        else:
            delta = max(2.0, 2.0 * delta)
            mu = max(1e-6, mu * delta)
        costs.append(float(problem.cost(trajectory)))
    return Solution(trajectory, gains, costs, converged, time.perf_counter() - begin, problem.dyn.seconds - before)


def swing_up():
    """A cart is pushed. Its pole hangs down and is to stand, at rest where it began."""
    dyn = Clocked(rd.Dynamics(rd.load_urdf(MODELS / "cartpole.urdf")))
    state_weights = np.zeros((KNOTS + 1, 4))
    state_weights[-1] = 100.0, 100.0, 10.0, 10.0
    return Problem(
        dyn,
        actuation=np.array([[1.0], [0.0]]),
        dt=0.03,
        start=np.array([0.0, np.pi]),
        guess=np.zeros(1),
        goal=np.zeros(4),
        state_weights=state_weights,
        input_weights=np.array([6e-4]),
    )


def reach():
    """An arm brings its tool to the far side, pointing down, and to rest."""
    dyn = Clocked(rd.Dynamics(rd.load_urdf(MODELS / "arm7.urdf")))
    model = dyn.model
    start = np.array([-1.0, 0.3, 0.0, -1.4, 0.0, 0.8, 0.0])
    s, c = np.sin(0.7), np.cos(0.7)
    target = np.array([[-c, -s, 0.0, 0.45], [-s, c, 0.0, 0.40], [0.0, 0.0, -1.0, 0.25]])
    state_weights = np.zeros((KNOTS + 1, 2 * model.nv))
    state_weights[:, model.nv :] = 0.001 / model.velocity_limit**2
    state_weights[-1, model.nv :] = 100.0
    return Problem(
        dyn,
        actuation=np.eye(model.nv),
        dt=0.02,
        start=start,
        guess=dyn.gravity_force(start),
        goal=np.zeros(2 * model.nv),
        state_weights=state_weights,
        input_weights=0.02 / model.effort_limit**2,
        pose=PoseCost(dyn, "tool0", target, np.append(np.zeros(KNOTS), 1e4)),
    )


def derivative_errors(problem, trajectory, second_order):
    """Derivatives along random directions against central differences, relative to their largest entry."""
    rng, h, nv = np.random.default_rng(0), 1e-5, problem.start.size
    direction = Trajectory(*(rng.standard_normal(array.shape) for array in trajectory))
    sides = [Trajectory(*(a + side * d for a, d in zip(trajectory, direction, strict=True))) for side in (h, -h)]
    dz = np.concatenate([direction.x[:-1], direction.u], axis=-1)[..., None]

    def stepped(trajectory):
        return np.concatenate(problem.step(trajectory.q[:-1], trajectory.qd[:-1], trajectory.u), axis=-1)

    def error(function, expected):
        ahead, behind = (function(side) for side in sides)
        return np.abs((ahead - behind) / (2.0 * h) - expected).max() / np.abs(expected).max()

    L, F = problem.quadratic_cost(trajectory), problem.linear_dynamics(trajectory)
    slope = (L[:, 0, 1 : 1 + 2 * nv] * direction.x).sum() + (L[:-1, 0, 1 + 2 * nv :] * direction.u).sum()
    errors = {"cost": error(problem.cost, slope), "step": error(stepped, (F[:, 1:, 1:] @ dz)[..., 0])}
    if second_order:
        expected = problem.dt * (problem.curvature(trajectory) @ dz[:, None])[..., 0]
        errors["gradient of the step"] = error(lambda t: problem.linear_dynamics(t)[:, 1 + nv :, 1:], expected)
    return errors


def simulated(problem, solution, gains, parts=10):
    """The last q when every step is integrated in several parts, with feedback through the gains at each."""
    trajectory, finer = solution.trajectory, replace(problem, dt=problem.dt / parts)
    x, q, qd = trajectory.x, trajectory.q[0], trajectory.qd[0]
    for k in range(KNOTS):
        for part in range(parts):
            expected = x[k] + part / parts * (x[k + 1] - x[k])
            u = trajectory.u[k] + gains[k, :, 1:] @ (np.concatenate([q, qd]) - expected)
            q, qd = finer.step(q, qd, u)
    return q


def report(name, problem, second_order):
    """Solve a problem with iLQR, and with DDP if asked to, print what it took, and check. Returns the solutions."""
    print(f"\n{name}: {KNOTS} steps of {problem.dt} s, {problem.start.size} joints, {problem.guess.size} inputs")
    solutions = {}
    for method, flag in {"iLQR": False, "DDP": True}.items():
        if flag and not second_order:
            continue
        on_the_way = solve(problem, flag, iterations=1).trajectory  # and everything is compiled
        found = solutions[method] = solve(problem, flag)
        n, ms = len(found.costs) - 1, 1e3 * found.seconds
        print(
            f"  {method:<5}{n:4d} iterations, cost {found.costs[0]:.1f} -> {found.costs[-1]:.6f}; {ms:.0f} ms, "
            f"{ms / n:.1f} ms an iteration, {found.dynamics / found.seconds:.0%} of it in robodyn"
        )
        assert found.converged, f"{name}: {method} has not converged"
        assert (np.diff(found.costs) <= 0.0).all(), f"{name}: the cost of {method} went up"
        assert abs(found.costs[-1] / solutions["iLQR"].costs[-1] - 1.0) < 1e-6, f"{name}: {method} ends elsewhere"
    errors = derivative_errors(problem, on_the_way, second_order)
    print("  derivatives and differences:", ", ".join(f"{what} {error:.0e}" for what, error in errors.items()))
    # Truncation of (1e-5)^2 and roundings of 1e-16 / 1e-5, and a margin for what later derivatives are larger.
    assert max(errors.values()) < 1e-7, f"{name}: derivatives and differences disagree: {errors}"

    alone, fed_back = (
        np.abs(simulated(problem, found, gains) - found.trajectory.q[-1]).max()
        for gains in (0.0 * found.gains, found.gains)
    )
    print(f"  in ten times finer steps the inputs alone end {alone:.3f} away, with feedback {fed_back:.3f}")
    assert fed_back < 0.1, f"{name}: feedback through the gains ends {fed_back:.3f} away"
    return solutions


def shares_of_limits(problem, trajectory):
    """The largest force, velocity and position of any joint, as parts of what the robot's file allows."""
    model = problem.dyn.model
    limits = {"effort": model.effort_limit, "velocity": model.velocity_limit, "position": model.upper}
    values = trajectory.u @ problem.actuation.T, trajectory.qd, trajectory.q
    return {
        name: float(np.abs(value[:, limit > 0.0] / limit[limit > 0.0]).max())
        for (name, limit), value in zip(limits.items(), values, strict=True)
    }


def draw(path, swing, swung, arm, reached):
    """Both motions, the inputs, and how the cost fell. `swung` and `reached` are solutions by method."""
    try:
        import matplotlib
    except ImportError:
        print("\nMatplotlib is not installed (pip install matplotlib): no figure")
        return
    matplotlib.use("Agg")
    matplotlib.rcParams.update(rd.plots.STYLE)
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(9.0, 6.4), layout="constrained")
    colours = matplotlib.colormaps["viridis"](np.linspace(0.9, 0.0, KNOTS + 1))

    panel = figure.add_subplot(2, 2, 1, aspect="equal", title="swing-up, light to dark", xlabel="x [m]", ylabel="z [m]")
    pole = swing.dyn.forward_kinematics(swung["DDP"].trajectory.q)[:, swing.dyn.model.link_index("pole")]
    for T, colour in list(zip(pole, colours, strict=True))[::4]:
        foot, tip = T[:3, 3], (T @ [0.0, 0.0, 1.0, 1.0])[:3]
        panel.plot([foot[0], tip[0]], [foot[2], tip[2]], color=colour)

    panel = figure.add_subplot(2, 2, 2, projection="3d", title="reach, light to dark")
    joints = arm.dyn.forward_kinematics(reached["iLQR"].trajectory.q)[..., :3, 3]
    for line, colour in list(zip(joints, colours, strict=True))[::10]:
        panel.plot(*line.T, color=colour)
    panel.plot(*joints[:, -1].T, color="black", linewidth=0.8)
    panel.set(xlabel="x [m]", ylabel="y [m]", zlabel="z [m]", aspect="equal")

    panel = figure.add_subplot(2, 2, 3, title="inputs", xlabel="time [s]", ylabel="part of the limit")
    for problem, solution, style in ((swing, swung["DDP"], "black"), (arm, reached["iLQR"], "C0")):
        limit = problem.dyn.model.effort_limit @ problem.actuation
        lines = panel.step(problem.dt * np.arange(KNOTS), solution.trajectory.u / limit, where="post", color=style)
        lines[0].set_label("force on the cart" if problem is swing else "torques of the arm")
    panel.legend()

    panel = figure.add_subplot(2, 2, 4, yscale="log", title="cost above the best", xlabel="iteration")
    for name, found in (("swing-up", swung), ("reach", reached)):
        best = min(solution.costs[-1] for solution in found.values())
        for method, solution in found.items():
            panel.plot(np.array(solution.costs[:-1]) - best, label=f"{name}, {method}")
    panel.legend()
    figure.savefig(path, metadata={"Date": None})
    print(f"\nfigure: {path}")


swing, arm = swing_up(), reach()
swung = report("swing-up of a cart-pole", swing, second_order=True)
reached = report("reach with an arm", arm, second_order=False)

print()
end = swung["DDP"].trajectory.x[-1]
print(f"the pole ends {end[1]:.4f} rad from upright, {end[3]:.4f} rad/s; the cart {end[0]:.4f} m from its start")
error, speed = arm.pose.error(reached["iLQR"].trajectory.q[-1]), np.abs(reached["iLQR"].trajectory.qd[-1]).max()
distance = np.linalg.norm(error[:, 3])
angle = 2.0 * np.arcsin(np.linalg.norm(error[:, :3]) / np.sqrt(8.0))  # |R - R*|^2 is 8 sin^2 (angle / 2)
print(f"the tool ends {1e3 * distance:.2f} mm and {angle:.5f} rad from its pose, at no more than {speed:.4f} rad/s")
for problem, solution in ((swing, swung["DDP"]), (arm, reached["iLQR"])):
    parts = shares_of_limits(problem, solution.trajectory)
    print(f"{problem.dyn.model.name} uses", ", ".join(f"{part:.0%} of its {name}" for name, part in parts.items()))
    assert max(parts.values()) < 1.0, f"{problem.dyn.model.name} leaves its limits: {parts}"
if len(sys.argv) > 1:
    draw(sys.argv[1], swing, swung, arm, reached)

# Check. The goals are reached; `report` has checked derivatives, costs and the way there.
assert np.abs(end).max() < 0.01, f"the pole does not stand: {end}"
assert distance < 1e-3 and angle < 1e-3 and speed < 1e-2, (
    f"the tool is {distance} m and {angle} rad off, at {speed} rad/s"
)
assert len(swung["DDP"].costs) < 0.5 * len(swung["iLQR"].costs), "second derivatives should save iterations"
