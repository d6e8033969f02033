"""Joints that follow others: a hand of twelve joints and six degrees of freedom, coupled by a matrix G."""

from pathlib import Path

import numpy as np

import robodyn as rd

np.set_printoptions(precision=3, suppress=True, linewidth=120)

MODELS = Path(__file__).resolve().parent.parent / "models"
path = MODELS / "hand.urdf"

# "follow" (the default) gives a mimicking joint no coordinate of its own. "ignore" sets every joint free.
hand = rd.load_urdf(path)
free = rd.load_urdf(path, mimic="ignore")
follow, ignore = rd.Dynamics(hand), rd.Dynamics(free)
print(f"follow: {hand!r}\nignore: {free!r}")
print("\ndegrees of freedom:", ", ".join(hand.velocity_names))
for finding in hand.report:
    if finding.code == "mimic-chain":
        print(finding)

# Every joint of the tree is multiplier * q[source] + offset; a joint that follows nobody has multiplier 1, offset 0.
print(f"\n{'joint':<18}position")
for joint, name in enumerate(hand.joint_names):
    source, multiplier, offset = hand.q_source[joint], hand.q_multiplier[joint], hand.q_offset[joint]
    law = hand.coordinate_names[source] if hand.mimics[joint] < 0 else ""
    print(f"{name:<18}{law or f'{multiplier:+.3f} {hand.coordinate_names[source]} {offset:+.3f}'}")


def all_positions(q):
    return hand.q_multiplier * q[..., hand.q_source] + hand.q_offset


# The same as a matrix: velocities of all joints = G qd. Forces go the other way, with its transpose.
G = np.zeros((free.nv, hand.nv))
G[np.arange(free.nv), hand.v_source] = hand.v_multiplier
print("\nG =", G, sep="\n")

rng = np.random.default_rng(8)
q = hand.random_configuration(rng)
qd, qdd = rng.uniform(-5.0, 5.0, (2, hand.nv))
y, yd, ydd = all_positions(q), G @ qd, G @ qdd
tau = follow.inverse_dynamics(q, qd, qdd)
print("\ntau at the six motors (mN m):", 1e3 * tau)
print("tau at all joints if each had a motor (mN m):", 1e3 * ignore.inverse_dynamics(y, yd, ydd))

# The thumb shares the middle finger's motor, which therefore feels the inertia of both.
H, H_free = follow.mass_matrix(q), ignore.mass_matrix(y)
motor, finger = hand.velocity_names.index("middle_proximal"), free.velocity_names.index("middle_proximal")
print(f"\ninertia at the middle finger's motor: {1e7 * H[motor, motor]:.1f} g cm^2")
print(f"of the finger without the thumb:      {1e7 * H_free[finger, finger]:.1f} g cm^2")

# Check against the hand whose twelve joints are free. Fingers weigh grams, so errors are relative to each result.
by_q_free, by_qd_free = ignore.inverse_dynamics_gradient(y, yd, ydd)
by_q, by_qd = follow.inverse_dynamics_gradient(q, qd, qdd)
pairs = {
    "H = G' H_free G": (H, G.T @ H_free @ G),
    "tau = G' tau_free": (tau, G.T @ ignore.inverse_dynamics(y, yd, ydd)),
    "dtau/dq = G' (dtau/dq)_free G": (by_q, G.T @ by_q_free @ G),
    "dtau/dqd = G' (dtau/dqd)_free G": (by_qd, G.T @ by_qd_free @ G),
    "same kinetic energy": (follow.kinetic_energy(q, qd), ignore.kinetic_energy(y, yd)),
    "same poses": (follow.forward_kinematics(q), ignore.forward_kinematics(y)),
    "FD(ID(qdd)) = qdd": (follow.forward_dynamics(q, qd, tau), qdd),
}
assert free.velocity_names == tuple(hand.joint_names), "both hands must list their joints in one order"
assert (hand.nv, free.nv) == (6, 12), f"six of twelve joints should be free, got {hand.nv} of {free.nv}"
print()
for name, (got, wanted) in pairs.items():
    error = np.abs(got - wanted).max() / np.abs(wanted).max()
    print(f"{name:<32} off by {error:.1e}")
    # Roundings of 1e-16, grown by the conditioning of H (about 1e2) where it is inverted.
    assert error < 1e-11, f"{name}: off by {error:.1e}"
