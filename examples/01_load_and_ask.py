"""Load a robot and ask it for forces, accelerations, energies, poses and gradients.

python examples/01_load_and_ask.py [robot.urdf]
"""

import sys
from pathlib import Path

import numpy as np

import robodyn as rd

np.set_printoptions(precision=4, suppress=True, linewidth=120)

MODELS = Path(__file__).resolve().parent.parent / "models"
path = sys.argv[1] if len(sys.argv) > 1 else MODELS / "arm7.urdf"

# A model is the robot as frozen arrays; Dynamics is what answers questions about it.
model = rd.load_urdf(path)
dyn = rd.Dynamics(model)
print(model)
print(dyn)

# One state. Units are SI and radians; q has model.nq entries, velocities and forces have model.nv.
rng = np.random.default_rng(1)
q = model.random_configuration(rng)
qd = rng.uniform(-1.0, 1.0, model.nv)
qdd = rng.uniform(-1.0, 1.0, model.nv)
print("\nq   =", q)
print("qd  =", qd)
print("qdd =", qdd)

# Forces that give the accelerations, and back again.
tau = dyn.inverse_dynamics(q, qd, qdd)
print("\ntau = inverse_dynamics(q, qd, qdd) =", tau)
print("of which gravity                   =", dyn.gravity_force(q))
print("qdd = forward_dynamics(q, qd, tau) =", dyn.forward_dynamics(q, qd, tau))

# The file's damping and friction act only where they are asked for.
real = rd.Dynamics(model, joint_forces=("damping", "friction"))
print("tau with damping and friction      =", real.inverse_dynamics(q, qd, qdd))

# The equation of motion in pieces: tau = H qdd + C qd + g.
H, C, g = dyn.mass_matrix(q), dyn.coriolis_matrix(q, qd), dyn.gravity_force(q)
print("\nmass matrix H =", H, sep="\n")
print(f"kinetic energy {dyn.kinetic_energy(q, qd):.4f} J, potential energy {dyn.potential_energy(q):.4f} J")

# Where the last link of the file is, and how fast: angular velocity (rad/s), then that of its origin (m/s), in world
# axes.
link = model.link_names[-1]
print(f"\npose of {link!r} in the world =", dyn.forward_kinematics(q)[-1], sep="\n")
print("its velocity =", dyn.link_velocity(q, qd, link))

# Analytical gradients. Column j is the change with coordinate j; dtau/dqdd is the mass matrix.
dtau_dq, dtau_dqd = dyn.inverse_dynamics_gradient(q, qd, qdd)
dqdd_dq, dqdd_dqd, dqdd_dtau = dyn.forward_dynamics_gradient(q, qd, tau)
print("\ndtau/dq =", dtau_dq, sep="\n")
print("dqdd/dq =", dqdd_dq, sep="\n")


# Check: the answers fit together, and the gradients agree with central differences.
def relative(got, wanted):
    return np.abs(got - wanted).max() / max(1e-3, np.abs(wanted).max())


def slopes(function, step=1e-5):
    """Central differences along every coordinate: row j of the argument moves coordinate j."""
    nudges = step * np.eye(model.nv)
    return ((function(nudges) - function(-nudges)) / (2.0 * step)).T


errors = {
    "ID(FD(tau)) = tau": relative(dyn.inverse_dynamics(q, qd, dyn.forward_dynamics(q, qd, tau)), tau),
    "H qdd + C qd + g = tau": relative(H @ qdd + C @ qd + g, tau),
    "dqdd/dtau = H^-1": relative(dqdd_dtau @ H, np.eye(model.nv)),
}
differences = {
    "dtau/dq": (dtau_dq, slopes(lambda d: dyn.inverse_dynamics(model.integrate(q, d), qd, qdd))),
    "dtau/dqd": (dtau_dqd, slopes(lambda d: dyn.inverse_dynamics(q, qd + d, qdd))),
    "dqdd/dq": (dqdd_dq, slopes(lambda d: dyn.forward_dynamics(model.integrate(q, d), qd, tau))),
    "dqdd/dqd": (dqdd_dqd, slopes(lambda d: dyn.forward_dynamics(q, qd + d, tau))),
}
print()
for name, error in errors.items():
    print(f"{name:<24} off by {error:.1e}")
    # Roundings of 1e-16, grown by the conditioning of the mass matrix: up to 1e6 for an arm with a light wrist.
    assert error < 1e-9, f"{name} is off by {error:.1e}"
for name, (analytical, numerical) in differences.items():
    error = relative(analytical, numerical)
    print(f"{name + ' by differences':<24} off by {error:.1e}")
    # A step of 1e-5 leaves a truncation of 1e-10 and roundings of 1e-16 / 1e-5, more where H is badly conditioned.
    assert error < 1e-6, f"{name} differs from central differences by {error:.1e}"
