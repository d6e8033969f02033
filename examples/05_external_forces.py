"""External forces: a quadruped that stands still, its weight carried by forces at its four feet."""

from pathlib import Path

import numpy as np

import robodyn as rd

np.set_printoptions(precision=3, suppress=True, linewidth=120)

MODELS = Path(__file__).resolve().parent.parent / "models"
model = rd.load_urdf(MODELS / "quadruped.urdf", base="floating")
dyn = rd.Dynamics(model)

# Standing: the trunk 0.3 m up and pitched a little, the knees bent backward.
feet = ["front_left_foot", "front_right_foot", "hind_left_foot", "hind_right_foot"]
q = model.neutral()
q[:7] = 0.0, 0.0, 0.3, 0.0, np.sin(0.05), 0.0, np.cos(0.05)
q[7:] = [0.1, 0.75, -1.4, -0.1, 0.75, -1.4] * 2
still = np.zeros(model.nv)

# The point Jacobian of each foot: the lower three rows are the linear velocity of its origin, in world axes.
J = {foot: dyn.jacobian(q, foot)[3:] for foot in feet}

# The base has no motor, so the feet alone must carry its six equations: sum of J' f = gravity, in the base's rows.
# Of all forces that do, least squares takes the smallest.
gravity = dyn.gravity_force(q)
forces = np.linalg.lstsq(np.hstack([J[foot][:, :6].T for foot in feet]), gravity[:6], rcond=None)[0].reshape(4, 3)
for foot, force in zip(feet, forces, strict=True):
    print(f"{foot:<18} pushes with {force} N")
print(f"together           {forces.sum(axis=0)} N; the robot weighs {model.total_mass * 9.81:.3f} N")

# external_force() makes the f_ext of one wrench (moment first, then force) on one link, by default in the frame of the
# Jacobians: world axes, about the link's origin. Wrenches add up.
wrenches = {foot: np.concatenate([np.zeros(3), force]) for foot, force in zip(feet, forces, strict=True)}
f_ext = sum(rd.external_force(model, q, foot, wrench) for foot, wrench in wrenches.items())
tau = dyn.inverse_dynamics(q, still, still, f_ext=f_ext)
print("\ntau of the base:", tau[:6], "(nothing has to hold it)")
for leg, row in zip(("front left", "front right", "hind left", "hind right"), tau[6:].reshape(4, 3), strict=True):
    print(f"motors, {leg:<12} {row} N m (abduction, hip, knee)")

# A wrench can be given in other frames; it is the same push.
pose = dyn.forward_kinematics(q)[model.link_index(feet[0])]
in_foot_axes = np.concatenate([np.zeros(3), pose[:3, :3].T @ forces[0]])
about_world_origin = np.concatenate([np.cross(pose[:3, 3], forces[0]), forces[0]])
same_push = [
    rd.external_force(model, q, feet[0], wrenches[feet[0]]),
    rd.external_force(model, q, feet[0], in_foot_axes, frame="body"),
    rd.external_force(model, q, feet[0], about_world_origin, frame="world"),
]

# Take one foot's force away and keep the torques: the centre of mass now lacks just that push. At rest, A qdd is the
# rate of change of the momentum h = A qd.
qdd = dyn.forward_dynamics(q, still, tau, f_ext=f_ext - same_push[0])
momentum_rate = dyn.centroidal_momentum(q, still)[1] @ qdd
print(f"\nwithout the force on {feet[0]} the centre of mass starts with {momentum_rate[3:] / model.total_mass} m/s^2")

# Check, all relative to the weight of about 90 N: no integration, so only roundings are left.
weight = model.total_mass * np.linalg.norm(model.gravity)
by_jacobian = -sum(J[foot].T @ force for foot, force in zip(feet, forces, strict=True))
standing = dyn.forward_dynamics(q, still, tau, f_ext=f_ext)
errors = {
    "tau_with - tau_without = -J' w": np.abs(tau - gravity - by_jacobian).max() / weight,
    "the feet carry the base": np.abs(tau[:6]).max() / weight,
    "the forces sum to the weight": np.abs(forces.sum(axis=0) + model.total_mass * model.gravity).max() / weight,
    "three frames, one push": max(np.abs(other - same_push[0]).max() for other in same_push) / weight,
    "the centre of mass lacks one push": np.abs(momentum_rate[3:] + forces[0]).max() / weight,
    # Light shanks turn small force errors into larger accelerations, hence the common tolerance of 1e-10.
    "the robot stands still": np.abs(standing).max() / np.linalg.norm(model.gravity),
}
print()
for name, error in errors.items():
    print(f"{name:<34} off by {error:.1e}")
    assert error < 1e-10, f"{name}: off by {error:.1e}"
assert (forces[:, 2] > 0.0).all(), f"a foot would have to pull at the ground: {forces[:, 2]}"
