"""Computed torque: robodyn's inverse dynamics makes a MuJoCo simulation of the same robot follow a trajectory."""

from pathlib import Path

import numpy as np

import robodyn as rd

try:
    import mujoco
except ImportError:
    print("MuJoCo is not installed (pip install mujoco): nothing to simulate with")
    raise SystemExit(0) from None

MODELS = Path(__file__).resolve().parent.parent / "models"
path = MODELS / "arm6.urdf"

# One file, two programs.
model = rd.load_urdf(path)
dyn = rd.Dynamics(model)
simulated = mujoco.MjModel.from_xml_path(str(path))
simulated.opt.timestep = 0.002
print(f"{model!r}; MuJoCo {mujoco.__version__}, steps of {simulated.opt.timestep} s")

# Every joint swings about a middle position, at its own frequency and phase.
middle = np.array([0.0, -1.2, 1.4, -1.0, -1.5, 0.5])
amplitude = np.array([0.6, 0.4, 0.5, 0.6, 0.6, 0.8])
frequency = 2.0 * np.pi * np.array([0.4, 0.5, 0.6, 0.4, 0.7, 0.6])
phase = np.linspace(0.0, 2.0, 6)


def reference(t):
    """Position, velocity and acceleration wanted at time t."""
    angle = frequency * t + phase
    return (
        middle + amplitude * np.sin(angle),
        amplitude * frequency * np.cos(angle),
        -amplitude * frequency**2 * np.sin(angle),
    )


# The same feedback for all: every joint is to close an error as a critically damped 4 Hz oscillator would.
bandwidth = 2.0 * np.pi * 4.0
typical_inertia = np.diag(dyn.mass_matrix(middle))


def feedback(t, q, qd):
    wanted_q, wanted_qd, _ = reference(t)
    return bandwidth**2 * (wanted_q - q) + 2.0 * bandwidth * (wanted_qd - qd)


def feedback_alone(t, q, qd):
    return typical_inertia * feedback(t, q, qd)


def feedback_and_gravity(t, q, qd):
    return feedback_alone(t, q, qd) + dyn.gravity_force(q)


def computed_torque(t, q, qd):
    """Inverse dynamics cancels the robot: what is left of it is qdd = wanted + feedback, joint by joint."""
    return dyn.inverse_dynamics(q, qd, reference(t)[2] + feedback(t, q, qd))


def largest_error(control, duration=1.5):
    """Simulate with MuJoCo, starting on the trajectory; largest distance of any joint from it, in rad."""
    data = mujoco.MjData(simulated)
    data.qpos[:], data.qvel[:], _ = reference(0.0)
    worst = 0.0
    while data.time < duration:
        data.qfrc_applied[:] = control(data.time, data.qpos, data.qvel)
        mujoco.mj_step(simulated, data)
        worst = max(worst, np.abs(data.qpos - reference(data.time)[0]).max())
    return worst


# Do both programs read the same robot? Forces that hold it and that accelerate it, in a pose of the trajectory.
q, qd, qdd = reference(0.3)
data = mujoco.MjData(simulated)
data.qpos[:], data.qvel[:], data.qacc[:] = q, qd, qdd
mujoco.mj_inverse(simulated, data)
tau = dyn.inverse_dynamics(q, qd, qdd)
disagreement = np.abs(tau - data.qfrc_inverse).max() / np.abs(tau).max()
print(f"inverse dynamics of both differ by {disagreement:.1e} of the largest torque")

errors = {
    control.__name__: largest_error(control) for control in (feedback_alone, feedback_and_gravity, computed_torque)
}
print("\nlargest tracking error:")
for name, error in errors.items():
    print(f"  {name.replace('_', ' '):<22}{error:.5f} rad")

# Check. Two programs, one file: only roundings are between them.
assert disagreement < 1e-9, f"robodyn and MuJoCo disagree about the robot by {disagreement:.1e}"
# With an exact model the step is what is left: acceleration * step / bandwidth = 11 rad/s^2 * 2 ms / 25 rad/s, 1 mrad.
assert errors["computed_torque"] < 0.002, f"computed torque is off by {errors['computed_torque']:.4f} rad"
for name in ("feedback_alone", "feedback_and_gravity"):
    assert errors[name] > 20.0 * errors["computed_torque"], f"feed-forward makes no difference to {name}: {errors}"
