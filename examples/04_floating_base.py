"""A floating base: how its coordinates are laid out, moving on the manifold, and momentum in free fall."""

from pathlib import Path

import numpy as np

import robodyn as rd

np.set_printoptions(precision=4, suppress=True, linewidth=120)

MODELS = Path(__file__).resolve().parent.parent / "models"
model = rd.load_urdf(MODELS / "quadruped.urdf", base="floating")
dyn = rd.Dynamics(model)
print(f"{model!r}, {model.total_mass:.2f} kg")

# q starts with position and quaternion xyzw: one number more than qd, which holds linear and angular velocity in the
# base's own frame. The order is Pinocchio's.
print("q: ", ", ".join(model.coordinate_names[:9]), "...")
print("qd:", ", ".join(model.velocity_names[:8]), "...")
print("neutral:", model.neutral()[:7], "...")

rng = np.random.default_rng(4)
q = model.random_configuration(rng)
qd = rng.uniform(-1.0, 1.0, model.nv)

# Spatial vectors are angular first, coordinates are linear first: the trunk's velocity is qd[:6] in another order.
trunk = dyn.link_velocity(q, qd, "trunk", frame="body")
print("\ntrunk's spatial velocity (angular, linear):", trunk)
print("qd[:6] (linear, angular):                  ", qd[:6])

# Quaternions do not add. integrate() follows a constant velocity on the manifold, difference() finds that velocity.
step = 0.1
moved = model.integrate(q, qd, step)
recovered = model.difference(q, moved) / step
print(f"\nq[:7] before {q[:7]}\nq[:7] {step} s on {moved[:7]}, quaternion of length {np.linalg.norm(moved[3:7]):.15f}")

# In free fall nothing drives the robot. Gravity then shows in tau as a force on the base, in the base's frame.
rotation = dyn.forward_kinematics(q)[model.link_index("trunk"), :3, :3]
holding_force = rotation @ dyn.gravity_force(q)[:3]
print(f"\nforce that holds the robot, world axes: {holding_force} N")

# Momentum about the centre of mass, angular first, in world axes: h = A qd.
qdd = dyn.forward_dynamics(q, qd, np.zeros(model.nv))
h, A = dyn.centroidal_momentum(q, qd)
print("angular momentum", h[:3], "kg m^2/s")
print("linear momentum ", h[3:], "kg m/s")


# In free fall the angular one is constant, whatever the legs do, and the linear one grows by weight times time.
def momentum_at(t):
    """h a short time t away; q is right to second order in t, qd to first."""
    return dyn.centroidal_momentum(model.integrate(q, qd + 0.5 * t * qdd, t), qd + t * qdd)[0]


small = 1e-4
rate = (momentum_at(small) - momentum_at(-small)) / (2.0 * small)
weight = np.concatenate([np.zeros(3), model.total_mass * model.gravity])
print("rate of change of both by differences:", rate)
print("                               wanted:", weight)

# Check.
errors = {
    "the trunk's velocity is qd[:6] reordered": (np.abs(trunk - qd[[3, 4, 5, 0, 1, 2]]).max(), 1e-12),
    "difference undoes integrate": (np.abs(recovered - qd).max(), 1e-12),
    "quaternions stay unit": (abs(np.linalg.norm(moved[3:7]) - 1.0), 1e-14),
    "the holding force is the weight": (np.abs(holding_force + weight[3:]).max(), 1e-12 * np.abs(weight).max()),
    "h = A qd": (np.abs(h - A @ qd).max(), 1e-13 * np.abs(h).max()),
    # Differences at 1e-4: a truncation of third derivatives times 1e-8, and roundings of 1e-16 / 1e-4.
    "hdot is the weight": (np.abs(rate - weight).max(), 1e-5 * np.abs(weight).max()),
}
print()
for name, (error, allowed) in errors.items():
    print(f"{name:<42} off by {error:.1e}")
    assert error < allowed, f"{name}: off by {error:.1e}, allowed {allowed:.1e}"
