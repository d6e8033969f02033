"""Identification: find an arm's masses, centres of mass and inertias from noisy torques along a few trajectories."""

from pathlib import Path

import numpy as np

import robodyn as rd

np.set_printoptions(precision=3, suppress=True, linewidth=120)

MODELS = Path(__file__).resolve().parent.parent / "models"
model = rd.load_urdf(MODELS / "arm7.urdf")
dyn = rd.Dynamics(model)
rng = np.random.default_rng(0)
NOISE = 0.1  # N m, standard deviation of a torque sensor


def trajectory(seconds=5.0, samples=200):
    """Sums of three sines per joint that start at different phases: q, qd, qdd, each (samples, nv)."""
    t = np.linspace(0.0, seconds, samples)[:, None, None]
    omega = 2.0 * np.pi * np.array([0.2, 0.45, 0.8])[:, None]
    size = rng.uniform(0.2, 0.6, (3, model.nv)) / [[1.0], [2.0], [3.0]]
    angle = omega * t + rng.uniform(0.0, 2.0 * np.pi, (3, model.nv))
    middle = rng.uniform(-0.5, 0.5, model.nv)
    q = middle + (size * np.sin(angle)).sum(axis=1)
    return q, (size * omega * np.cos(angle)).sum(axis=1), (-size * omega**2 * np.sin(angle)).sum(axis=1)


def measured(motion):
    """What sensors at the joints say: torques of the real arm, and noise."""
    return dyn.inverse_dynamics(*motion) + NOISE * rng.standard_normal(motion[0].shape)


# Eight trajectories are measured to learn from, three more to judge by.
training = [np.concatenate(parts) for parts in zip(*(trajectory() for _ in range(8)), strict=True)]
held_out = [np.concatenate(parts) for parts in zip(*(trajectory() for _ in range(3)), strict=True)]
tau, tau_held_out = measured(training), measured(held_out)

# What is known beforehand is a guess, from drawings for example: every body is weighed, shifted, stretched and turned a
# little wrong. J = L L' is the matrix of a body's second moments; for any invertible W, L W W' L' is that of another.
L = np.linalg.cholesky(rd.inertial_parameters.pseudo_inertia(model.inertia))
W = np.eye(4) + 0.12 * rng.standard_normal((model.n_bodies, 4, 4))
guess = rd.inertial_parameters.from_pseudo_inertia(L @ W @ np.swapaxes(W, -1, -2) @ np.swapaxes(L, -1, -2))

# Torques are linear in the parameters pi, ten for each body: tau = Y pi, but for the armature of the drives.
Y = dyn.regressor(*training).reshape(-1, 10 * model.n_bodies)
missing = (tau - model.armature * training[2]).reshape(-1) - Y @ guess.ravel()

# Not all combinations of parameters can be felt at the joints, only as many as Y has independent columns: the base
# parameters. Of the first link, for instance, nothing but the inertia about its vertical axis.
base_parameters = np.linalg.matrix_rank(Y)
print(f"{Y.shape[0]} torques, {Y.shape[1]} parameters, of which {base_parameters} combinations can be felt")

# Least squares, and what cannot be felt stays near the guess: deviations are weighed by what they are beside the body.
weight = 20.0  # a deviation of 1 / sqrt(weight) of a body is as improbable as an error of NOISE in one torque
A, b = Y.T @ Y / NOISE**2, Y.T @ missing / NOISE**2
for body, metric in enumerate(rd.inertial_parameters.deviation_metric(guess)):
    block = slice(10 * body, 10 * body + 10)
    A[block, block] += weight * metric
found = guess + np.linalg.solve(A, b).reshape(model.n_bodies, 10)


def torque_error(inertia):
    """How far predicted torques are from measured ones that were not learnt from, N m, root mean square."""
    return np.sqrt(np.mean((dyn.inverse_dynamics(*held_out, inertia=inertia) - tau_held_out) ** 2))


def acceleration_error(inertia):
    """The same for accelerations that follow from the real arm's torques, rad/s^2."""
    q, qd, qdd = held_out
    return np.sqrt(np.mean((dyn.forward_dynamics(q, qd, dyn.inverse_dynamics(*held_out), inertia=inertia) - qdd) ** 2))


print("\nheld-out trajectories      torque, N m   acceleration, rad/s^2")
errors = {}
for name, inertia in (("guess", guess), ("identified", found), ("the real arm", model.inertia)):
    errors[name] = torque_error(inertia), acceleration_error(inertia)
    print(f"  {name:<22} {errors[name][0]:12.3f} {errors[name][1]:12.3f}")

# Least squares knows nothing of bodies: whether one can have these parameters is to be asked.
consistent = rd.inertial_parameters.physically_consistent(found)
margins = rd.inertial_parameters.consistency_margin(found)
print("\nbody       mass: real  guessed    found   can exist")
for i, name in enumerate(model.body_names):
    masses = model.inertia[i, 0], guess[i, 0], found[i, 0]
    print(f"  {name:<12}{masses[0]:8.3f} {masses[1]:8.3f} {masses[2]:8.3f}   {consistent[i]} (margin {margins[i]:.1e})")

# Check. Torques of the real arm differ from measured ones by NOISE, and so many samples leave little else to be wrong.
# Accelerations of the light wrist are the worst: noise is not small beside the torques that its inertia takes.
assert errors["identified"][0] < 1.02 * NOISE, f"torques are off by {errors['identified'][0]:.3f} N m"
assert errors["guess"][0] > 10.0 * NOISE, "the guess should be felt"
assert errors["identified"][1] < 0.3 * errors["guess"][1], f"accelerations are off by {errors['identified'][1]:.3f}"
assert consistent.all(), f"no body can have the parameters of {np.array(model.body_names)[~consistent]}"
