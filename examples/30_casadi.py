"""Nonlinear programs in CasADi, solved by IPOPT: a cart swings its pole up, an arm reaches, an arm rests its weight."""

import time
from pathlib import Path

import numpy as np

import robodyn as rd

try:
    import casadi

    import robodyn.casadi
except ImportError as error:
    print(f"CasADi is not installed (pip install '.[casadi]'): {error}")
    raise SystemExit from None

MODELS = Path(__file__).resolve().parent.parent / "models"
IPOPT = {"ipopt": {"print_level": 0, "sb": "yes", "tol": 1e-9}, "print_time": False}


def multiple_shooting(fd, model, knots, dt, actuation):
    """Variables q, qd (nv, knots + 1) and u (nu, knots) of an `Opti`, which semi-implicit Euler joins.

    All knots are one call: `map` makes a function of matrices with a column for each state.
    """
    opti = casadi.Opti()
    q, qd = opti.variable(model.nq, knots + 1), opti.variable(model.nv, knots + 1)
    u = opti.variable(actuation.shape[1], knots)
    qdd = fd.map(knots)(q[:, :-1], qd[:, :-1], casadi.DM(actuation) @ u)
    opti.subject_to(qd[:, 1:] == qd[:, :-1] + dt * qdd)
    opti.subject_to(q[:, 1:] == q[:, :-1] + dt * qd[:, 1:])
    opti.solver("ipopt", IPOPT)
    return opti, q, qd, u


def solved(name, opti):
    """Solve, and print what it took."""
    begin = time.perf_counter()
    solution = opti.solve()
    stats = solution.stats()
    print(
        f"{name}: {stats['iter_count']} iterations, {time.perf_counter() - begin:.2f} s, "
        f"cost {solution.value(opti.f):.6f}"
    )
    assert stats["success"], name
    return solution


def swing_up(knots=60, dt=0.05):
    """A cart is pushed. Its pole hangs down and is to stand, at rest where it began."""
    model = rd.load_urdf(MODELS / "cartpole.urdf")
    dyn = rd.Dynamics(model)
    fd = robodyn.casadi.wrap(dyn).function("forward_dynamics")
    opti, q, qd, u = multiple_shooting(fd, model, knots, dt, np.array([[1.0], [0.0]]))
    start = np.array([0.0, np.pi])
    opti.subject_to(q[:, 0] == start)
    opti.subject_to(qd[:, 0] == 0.0)
    opti.subject_to(q[:, -1] == 0.0)
    opti.subject_to(qd[:, -1] == 0.0)
    opti.subject_to(opti.bounded(-model.effort_limit[0], u, model.effort_limit[0]))
    opti.minimize(dt * casadi.sumsqr(u))
    opti.set_initial(q, np.linspace(start, 0.0 * start, knots + 1).T)
    solution = solved("cart-pole, swing-up", opti)

    x, v = start, np.zeros(2)  # the same inputs in robodyn end in the same place
    for push in solution.value(u):
        v = v + dt * dyn.forward_dynamics(x, v, np.array([push, 0.0]))
        x = x + dt * v
    print(f"  in robodyn the inputs end {np.abs(x).max():.1e} from upright")
    assert np.abs(x).max() < 1e-6


def reach(way, knots=30, dt=0.05):
    """An arm brings its tool to a point, from rest to rest; the derivatives are CasADi's, or those of robodyn."""
    model = rd.load_urdf(MODELS / "arm7.urdf")
    dyn = rd.Dynamics(model)
    rc = robodyn.casadi.wrap(dyn)
    start = np.array([-1.0, 0.3, 0.0, -1.4, 0.0, 0.8, 0.0])
    target = np.array([0.45, 0.40, 0.25])
    opti, q, qd, u = multiple_shooting(rc.function("forward_dynamics", way=way), model, knots, dt, np.eye(7))
    opti.subject_to(q[:, 0] == start)
    opti.subject_to(qd[:, 0] == 0.0)
    opti.subject_to(qd[:, -1] == 0.0)
    tool = rc.function("link_pose", link="tool0", way="sx")
    opti.subject_to(tool(q[:, -1])[:3, 3] == target)
    limits = model.effort_limit
    opti.subject_to(opti.bounded(-limits, u, limits))
    opti.minimize(casadi.sumsqr(u / np.repeat(limits[:, None], knots, 1)) + 0.01 * dt * casadi.sumsqr(qd))
    opti.set_initial(q, np.repeat(start[:, None], knots + 1, 1))
    opti.set_initial(u, np.repeat(dyn.gravity_force(start)[:, None], knots, 1))
    solution = solved(f"arm, reach, way={way!r}", opti)
    end = dyn.link_pose(solution.value(q)[:, -1], "tool0")[:3, 3]
    assert np.abs(end - target).max() < 1e-7
    return float(solution.value(opti.f))


def rest():
    """The posture that holds a tool at a point with the least torques, within the limits of the joints."""
    model = rd.load_urdf(MODELS / "arm7.urdf")
    dyn = rd.Dynamics(model)
    rc = robodyn.casadi.wrap(dyn)
    opti = casadi.Opti()
    q = opti.variable(7)
    target = np.array([0.45, 0.30, 0.40])
    opti.subject_to(rc.function("link_pose", link="tool0")(q)[:3, 3] == target)
    opti.subject_to(opti.bounded(np.maximum(model.lower, -np.pi), q, np.minimum(model.upper, np.pi)))
    torques = rc.function("gravity_force")(q)
    opti.minimize(casadi.sumsqr(torques))
    opti.set_initial(q, np.array([0.5, 0.3, 0.0, -1.4, 0.0, 0.8, 0.0]))
    opti.solver("ipopt", IPOPT)
    found = solved("arm, posture of least torque", opti).value(q)

    J = dyn.jacobian(found, "tool0")[3:]  # no motion that keeps the tool in place lowers the torques
    slope = 2.0 * dyn.gravity_force_gradient(found).T @ dyn.gravity_force(found)
    inside = (found > model.lower + 1e-4) & (found < model.upper - 1e-4)
    free = np.linalg.svd(J[:, inside])[2][3:]
    print(f"  slope along the free motions: {np.abs(free @ slope[inside]).max():.1e}")
    assert np.abs(free @ slope[inside]).max() < 1e-5


swing_up()
costs = [reach("sx")]
if robodyn.casadi.has_compiler():
    costs.append(reach("compiled"))
    assert abs(costs[1] / costs[0] - 1.0) < 1e-7
else:
    print("no C compiler: derivatives of robodyn are left out")
rest()
