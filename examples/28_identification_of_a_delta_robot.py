"""Identification with closed loops: what a Delta robot's three motors tell of its inertial parameters.

Of an open tree tau = Y pi, with a force at every joint. In closed loops tau + J' lambda = Y pi, and nobody measures
lambda: `identify` uses the combinations of torques in which lambda does not occur.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import robodyn as rd

PATH = Path(__file__).resolve().parent.parent / "models" / "loops" / "delta.urdf"
MOTORS = ("motor_1", "motor_2", "motor_3")
DT, STEPS, EVERY = 2e-3, 1500, 20
KP, KD = 4.0, 0.05  # N m/rad, N m s/rad
NOISE = 0.02  # N m, standard deviation of a torque


def recorded(dyn: rd.Dynamics, rng: np.random.Generator, runs: int) -> tuple[np.ndarray, ...]:
    """q, qd, qdd of all joints, and torques of the motors, while these follow sums of sines: (samples, ...) each."""
    model, drives = dyn.model, [dyn.model.velocity_names.index(name) for name in MOTORS]
    coordinates = [model.coordinate_names.index(name) for name in MOTORS]
    t = DT * np.arange(STEPS)[:, None, None]
    wanted = np.tile(model.neutral(), (STEPS, runs, 1))
    for rate in 2.0 * np.pi * np.array([0.4, 0.9, 1.7]):
        phase = rng.uniform(0.0, 2.0 * np.pi, (runs, len(MOTORS)))
        wanted[:, :, coordinates] += rng.uniform(0.05, 0.25, phase.shape) * (np.sin(rate * t + phase) - np.sin(phase))
    kp, kd = np.zeros((2, model.nv))
    kp[drives], kd[drives] = KP, KD
    start = np.tile(model.neutral(), (runs, 1)), np.zeros((runs, model.nv))
    run = dyn.rollout(*start, dt=DT, steps=STEPS, kp=kp, kd=kd, q_des=wanted)
    kept = slice(EVERY, STEPS, EVERY)
    q, qd = run.q[kept].reshape(-1, model.nq), run.qd[kept].reshape(-1, model.nv)
    tau = np.zeros_like(qd)
    tau[:, drives] = KP * (wanted[kept].reshape(q.shape) - q)[:, coordinates] - KD * qd[:, drives]
    qdd, _ = dyn.constrained_forward_dynamics(q, qd, tau)
    return q, qd, qdd, tau


def drives_torques(model: rd.Model, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
    """Torques (samples, motors) that a motion takes, if only the motors drive."""
    dyn = rd.Dynamics(model, joint_forces=())
    tau, _ = dyn.constrained_inverse_dynamics(q, qd, qdd, actuated=list(MOTORS))
    return tau[:, [model.velocity_names.index(name) for name in MOTORS]]


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def main() -> None:
    model = rd.load_urdf(PATH)
    dyn, pi, rng = rd.Dynamics(model, joint_forces=()), model.inertia.ravel(), np.random.default_rng(0)
    *motion, tau = recorded(dyn, rng, 6)
    *other, tau_other = recorded(dyn, rng, 2)
    print(f"{len(tau)} samples of {len(MOTORS)} motors, {rms(tau):.2f} N m in the mean; {len(tau_other)} to judge by")

    # The rows of N span the motions that the loops leave: N tau = N Y pi, without forces of the loops.
    found = rd.identify(model, *motion, tau, friction=False, armature=False, consistent=False, noise=1.0)
    off = np.abs(found.base_values - found.base_matrix @ pi).max() / np.abs(found.base_values).max()
    print(f"of {pi.size} parameters {len(found.base_values)} combinations can be felt, condition {found.condition:.0f}")
    print(f"(were the loops open and all joints measured: {dyn.base_parameters().rank})")
    print(f"without noise: base parameters are found to {off:.0e}")

    drives = [model.velocity_names.index(name) for name in MOTORS]
    noisy = tau.copy()
    noisy[:, drives] += NOISE * rng.standard_normal((len(tau), len(drives)))
    estimate = rd.identify(model, *motion, noisy, friction=False, armature=False)
    error = rms(drives_torques(estimate.model, *other) - tau_other[:, drives])
    print(f"noise of {NOISE} N m: {error:.4f} N m off the true torques of other motions")

    assert off < 1e-6, f"base parameters are off by {off:.1e}"
    assert error < 0.25 * NOISE, f"{error} N m"
    assert rd.inertial_parameters.physically_consistent(estimate.model.inertia).all()


if __name__ == "__main__":
    main()
