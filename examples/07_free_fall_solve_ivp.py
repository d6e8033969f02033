"""Motion by SciPy's solve_ivp: a swinging double pendulum, and one that is thrown and tumbles freely."""

from pathlib import Path

import numpy as np

import robodyn as rd

try:
    from scipy.integrate import solve_ivp
except ImportError:
    print("SciPy is not installed (pip install scipy): nothing to integrate with")
    raise SystemExit(0) from None

MODELS = Path(__file__).resolve().parent.parent / "models"
TOLERANCE = 1e-8


def energy(dyn, q, qd):
    return dyn.kinetic_energy(q, qd) + dyn.potential_energy(q)


# Hanging from a fixed block, every coordinate is an angle: the state is simply q and qd, one below the other.
swing = rd.Dynamics(rd.load_urdf(MODELS / "double_pendulum.urdf"))


def swinging(t, y):
    q, qd = y[:2], y[2:]
    return np.concatenate([qd, swing.forward_dynamics(q, qd, np.zeros(2))])


start = np.array([2.0, 1.0, 0.0, 0.0])
path = solve_ivp(swinging, (0.0, 1.5), start, method="DOP853", rtol=TOLERANCE, atol=TOLERANCE)
energies = energy(swing, path.y[:2].T, path.y[2:].T)
swing_drift = np.abs(energies - energies[0]).max()
print(f"double pendulum, 1.5 s: {path.t.size} steps, {path.nfev} evaluations")
print(f"  kinetic energy up to {swing.kinetic_energy(path.y[:2].T, path.y[2:].T).max():.3f} J")
print(f"  total energy {energies[0]:.6f} J, drifts by {swing_drift:.1e} J")

# Thrown: with a floating base q holds a quaternion, and q and qd have different lengths. solve_ivp wants a vector
# space, so over a short stretch the state is (xi, qd), where xi is the tangent vector from where the stretch began:
#     q = q0 (+) xi, which is model.integrate(q0, xi).
# Its rate is not quite qd, because velocities are in the body frame and that turns with xi. On any Lie group
#     d xi / dt = qd + [xi, qd] / 2 + [xi, [xi, qd]] / 12 - [xi, [xi, [xi, [xi, qd]]]] / 720 + ...
thrown = rd.load_urdf(MODELS / "double_pendulum.urdf", base="floating")
tumble = rd.Dynamics(thrown)


def bracket(a, b):
    """[a, b]: of rigid motions for the base (linear part first), zero for joints, whose motions commute."""
    (va, wa), (vb, wb) = a[:6].reshape(2, 3), b[:6].reshape(2, 3)
    turned = np.cross([wa, va, wa], [vb, wb, wb])
    return np.concatenate([turned[0] + turned[1], turned[2], np.zeros(b.size - 6)])


def tangent_rate(xi, qd):
    """d xi / dt; the next term left out is |xi|^6 / 30240 of qd: below 1e-9 of it while |xi| < 0.17."""
    once = bracket(xi, qd)
    twice = bracket(xi, once)
    return qd + once / 2.0 + twice / 12.0 - bracket(xi, bracket(xi, twice)) / 720.0


def tumbling(t, y, q0):
    xi, qd = y[: thrown.nv], y[thrown.nv :]
    qdd = tumble.forward_dynamics(thrown.integrate(q0, xi), qd, np.zeros(thrown.nv))
    return np.concatenate([tangent_rate(xi, qd), qdd])


q = thrown.neutral()
q[7:] = 0.4, -0.8
qd = np.array([0.5, 0.0, 3.0, 1.0, 2.0, 0.5, 2.0, -3.0])
E_start, com_start = energy(tumble, q, qd), tumble.center_of_mass(q)
h_start = tumble.centroidal_momentum(q, qd)[0]
duration, stretch = 0.5, 0.025
largest_xi = evaluations = 0
for _ in range(round(duration / stretch)):
    y = np.concatenate([np.zeros(thrown.nv), qd])
    path = solve_ivp(tumbling, (0.0, stretch), y, args=(q,), method="DOP853", rtol=TOLERANCE, atol=TOLERANCE)
    xi, qd = path.y[: thrown.nv, -1], path.y[thrown.nv :, -1]
    q = thrown.integrate(q, xi)
    evaluations += path.nfev
    largest_xi = max(largest_xi, np.linalg.norm(xi[:6]))

# Physics knows where this must end: energy and angular momentum stay, the centre of mass follows a parabola.
h = tumble.centroidal_momentum(q, qd)[0]
parabola = com_start + h_start[3:] / thrown.total_mass * duration + 0.5 * thrown.gravity * duration**2
drifts = {
    "energy (J)": abs(energy(tumble, q, qd) - E_start),
    "angular momentum (kg m^2/s)": np.abs(h[:3] - h_start[:3]).max(),
    "centre of mass from its parabola (m)": np.abs(tumble.center_of_mass(q) - parabola).max(),
}
print(f"\nthrown, {duration} s: {evaluations} evaluations, |xi| up to {largest_xi:.2f}, base ends at {q[:3].round(3)}")
for name, drift in drifts.items():
    print(f"  {name:<38} {drift:.1e}")

# Check. solve_ivp keeps each step within 1e-8; steps add up, and energies of some ten joules scale them.
assert swing_drift < 1e-6, f"the pendulum's energy drifts by {swing_drift:.1e} J"
for name, drift in drifts.items():
    assert drift < 1e-6, f"{name} drifts by {drift:.1e}"
