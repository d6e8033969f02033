"""Identification: find an arm's masses, inertias and friction from a noisy log, with an exciting motion."""

from dataclasses import replace
from pathlib import Path

import numpy as np

import robodyn as rd

np.set_printoptions(precision=3, suppress=True, linewidth=120)

MODELS = Path(__file__).resolve().parent.parent / "models"
arm = rd.load_urdf(MODELS / "arm7.urdf")
rng = np.random.default_rng(0)
NOISE, RATE = 0.1, 200.0  # N m, standard deviation of a torque sensor; samples a second

# The real arm. What is known beforehand is a guess, from drawings for example: every body is weighed, shifted,
# stretched and turned a little wrong. J = L L' is the matrix of a body's second moments; for any invertible W,
# L W W' L' is that of another.
real = replace(
    arm,
    tree_armature=np.array([0.2, 0.2, 0.1, 0.1, 0.05, 0.05, 0.02]),
    tree_damping=np.array([2.0, 2.0, 1.0, 1.0, 0.5, 0.3, 0.2]),
    tree_friction=np.array([1.5, 1.5, 1.0, 1.0, 0.5, 0.3, 0.2]),
)
L = np.linalg.cholesky(rd.inertial_parameters.pseudo_inertia(arm.inertia))
W = np.eye(4) + 0.12 * rng.standard_normal((arm.n_bodies, 4, 4))
guess = replace(
    arm, inertia=rd.inertial_parameters.from_pseudo_inertia(L @ W @ np.swapaxes(W, -1, -2) @ np.swapaxes(L, -1, -2))
)


def log(motion):
    """What encoders and torque sensors of the real arm say while it follows a motion: q and tau."""
    q, qd, qdd = motion(np.arange(0.0, motion.duration, 1.0 / RATE))
    tau = rd.Dynamics(real, joint_forces=("damping", "friction")).inverse_dynamics(q, qd, qdd)
    return q + 2e-6 * rng.standard_normal(q.shape), tau + NOISE * rng.standard_normal(tau.shape)


# A motion that tells parameters well, and another to judge by.
motion = rd.exciting_trajectory(guess, duration=20.0, acceleration_limit=15.0, rounds=12)
other = rd.exciting_trajectory(guess, duration=10.0, acceleration_limit=15.0, rounds=1, rng=1)
print(f"condition number of an exciting motion {motion.condition:.1f}, of another {other.condition:.1f}")

q, tau = log(motion)
state = rd.differentiate(q, 1.0 / RATE, cutoff=20.0)
inner = slice(20, -20)  # the ends of filtered samples are less exact
found = rd.identify(guess, *(each[inner] for each in state), tau[inner], slowest=0.02)
print(found)

held_out = [each[inner] for each in rd.differentiate(log(other)[0], 1.0 / RATE, cutoff=20.0)]
exact = rd.Dynamics(real, joint_forces=("damping", "friction")).inverse_dynamics(*held_out)
before = rd.Dynamics(guess, joint_forces=("damping", "friction")).inverse_dynamics(*held_out)
errors = [np.sqrt(np.mean((torques - exact) ** 2)) for torques in (before, found.torques(*held_out))]
print(f"torques of another motion: {errors[0]:.2f} N m off before, {errors[1]:.3f} N m after; noise of {NOISE} N m")

print("\njoint        damping: real    found     friction: real    found")
for k, name in enumerate(arm.velocity_names):
    row = real.damping[k], found.model.damping[k], real.friction[k], found.model.friction[k]
    print(f"  {name:<14}{row[0]:8.3f} {row[1]:8.3f} {row[2]:17.3f} {row[3]:8.3f}")

# Base parameters are all that torques depend on. They are within their covariance.
x = np.concatenate((real.inertia.ravel(), real.armature, real.damping, real.friction))
off = (found.base_values - found.base_matrix @ x) / np.sqrt(np.diag(found.covariance))
print(f"\n{len(off)} base parameters, {np.mean(np.abs(off) < 1.96):.0%} of them within 1.96 standard deviations")

assert np.abs(found.noise / NOISE - 1.0).max() < 0.1
assert errors[0] > 10.0 * NOISE, "the guess should be felt"
assert errors[1] < 0.3 * NOISE, f"torques are off by {errors[1]:.3f} N m"
assert np.mean(np.abs(off) < 1.96) > 0.85
assert rd.inertial_parameters.physically_consistent(found.model.inertia).all()
