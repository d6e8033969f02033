"""Operational space: what inertia a tool has, and torques that give it exactly the acceleration asked for."""

from pathlib import Path

import numpy as np

import robodyn as rd

np.set_printoptions(precision=4, suppress=True, linewidth=120)

MODELS = Path(__file__).resolve().parent.parent / "models"
model = rd.load_urdf(MODELS / "arm7.urdf")
dyn = rd.Dynamics(model)
tool = "tool0"

# Elbow bent, well away from the stretched-out pose where the tool could not move in every direction.
q = np.array([0.3, 0.6, -0.2, -1.3, 0.4, 0.9, 0.1])
qd = np.array([0.5, -0.4, 0.3, 0.6, -0.7, 0.8, -1.0])
still = np.zeros(model.nv)

# The tool's velocity is V = J qd: angular velocity, then the velocity of its origin, both in world axes.
J = dyn.jacobian(q, tool)


def tool_acceleration(qdd):
    """The rate of change of V. classical=True: of the tool's origin as it moves, not of the point it passes through."""
    return dyn.link_acceleration(q, qd, qdd, tool, classical=True)


# It is J qdd + Jdot qd; the second part is what remains at qdd = 0, so Jdot itself is never needed.
bias = tool_acceleration(still)
print("Jdot qd =", bias)

# The inertia of the tool is Lambda = (J H^-1 J')^-1: the wrench that it takes is Lambda times the acceleration.
Hinv = dyn.mass_matrix_inverse(q)
mobility = J @ Hinv @ J.T
Lambda = np.linalg.inv(mobility)
# Who pulls at the tool with a string, and lets it turn as it likes, feels only the linear block of its inverse.
masses, directions = np.linalg.eigh(np.linalg.inv(mobility[3:, 3:]))
print("\nmass felt by a string at the tool, along its principal directions:")
for mass, direction in zip(masses, directions.T, strict=True):
    print(f"  {mass:7.3f} kg along {direction}")

# Ask for an acceleration: turn about the vertical, move forward and up. The wrench that gives it goes to the joints
# with J'; the arm's own bias forces are added there.
wanted = np.array([0.0, 0.0, 2.0, 1.0, 0.0, 0.5])
tau = J.T @ Lambda @ (wanted - bias) + dyn.bias_force(q, qd)
realised = tool_acceleration(dyn.forward_dynamics(q, qd, tau))
print("\nacceleration wanted  ", wanted)
print("acceleration realised", realised)
print("tau =", tau, "N m")

# Seven joints, six equations: one motion of the elbow leaves the tool alone. Any torque filtered by N' = 1 - J' Jbar'
# drives only that motion; Jbar = H^-1 J' Lambda is the inverse of J that inertia weights.
Jbar = Hinv @ J.T @ Lambda
elbow_torque = (np.eye(model.nv) - J.T @ Jbar.T) @ (-10.0 * qd)
qdd = dyn.forward_dynamics(q, qd, tau + elbow_torque)
print("\nwith damping of the elbow's own motion, tau changes by", elbow_torque, "N m")
print("and the acceleration of the tool is still", tool_acceleration(qdd))

# Leaving out Jdot qd is a common mistake; it costs this much here.
careless = tool_acceleration(dyn.forward_dynamics(q, qd, J.T @ Lambda @ wanted + dyn.bias_force(q, qd)))
print("without Jdot qd it would be              ", careless)

# Check. Everything is linear algebra, so accelerations of order one agree up to roundings times the condition of H.
h = 1e-5
ahead, behind = (dyn.jacobian(model.integrate(q, qd, t), tool) for t in (h, -h))
errors = {
    # Central differences: truncation of h^2 = 1e-10, roundings of 1e-16 / 1e-5.
    "Jdot qd by differences": (np.abs((ahead - behind) / (2.0 * h) @ qd - bias).max(), 1e-8),
    "J qdd + Jdot qd = acceleration": (np.abs(J @ qdd + bias - tool_acceleration(qdd)).max(), 1e-11),
    "task acceleration realised": (np.abs(realised - wanted).max(), 1e-9),
    "elbow's motion leaves it alone": (np.abs(tool_acceleration(qdd) - wanted).max(), 1e-9),
    "J Jbar = 1": (np.abs(J @ Jbar - np.eye(6)).max(), 1e-10),
}
print()
for name, (error, allowed) in errors.items():
    print(f"{name:<32} off by {error:.1e}")
    assert error < allowed, f"{name}: off by {error:.1e}, allowed {allowed:.1e}"
assert np.abs(elbow_torque).max() > 0.1, "the elbow's own motion should take some torque"
assert np.abs(careless - wanted).max() > 0.1, "leaving out Jdot qd should be felt at these speeds"
