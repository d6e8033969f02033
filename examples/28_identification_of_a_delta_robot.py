"""Identification with closed loops: what a Delta robot's three motors tell of its inertial parameters.

Of an open tree tau = Y pi, with a force at every joint. In closed loops tau + J' lambda = Y pi, and nobody measures
lambda. The columns of N span the motions that the loops leave: J N = 0, so that N' S tau_motors = N' Y pi.
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
    return q, qd, qdd, tau[:, drives]


def through_loops(dyn: rd.Dynamics, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
    """Regressors (samples, motors, parameters) of the torques of the motors."""
    drives = [dyn.model.velocity_names.index(name) for name in MOTORS]
    _, sizes, V = np.linalg.svd(dyn.constraint_jacobian(q))
    assert sizes.min() > 1e-3, "near a singular configuration the loops leave more than the motors move"
    N = V[:, sizes.shape[1] :]  # transposed: (samples, motions, nv)
    return np.linalg.solve(N[:, :, drives], N @ dyn.regressor(q, qd, qdd))


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def main() -> None:
    model = rd.load_urdf(PATH)
    dyn, pi, rng = rd.Dynamics(model, joint_forces=()), model.inertia.ravel(), np.random.default_rng(0)
    *motion, tau = recorded(dyn, rng, 6)
    *other, tau_other = recorded(dyn, rng, 2)
    Y, Y_other = through_loops(dyn, *motion), through_loops(dyn, *other)
    print(f"{len(tau)} samples of {len(MOTORS)} motors, {rms(tau):.2f} N m in the mean; {len(tau_other)} to judge by")
    print(f"N' Y pi and the motors' torques differ by at most {np.abs(Y @ pi - tau).max():.0e} N m")

    # Torques change along some combinations of parameters alone: these are the base parameters.
    U, sizes, V = np.linalg.svd(Y.reshape(-1, pi.size), full_matrices=False)
    rank = int((sizes > 1e-8 * sizes[0]).sum())
    U, base, least, rest = U[:, :rank], V[:rank], sizes[rank - 1] / sizes[0], sizes[rank] / sizes[0]
    true = base @ pi
    print(f"of {pi.size} parameters {rank} combinations can be felt: singular values to {least:.0e}, then {rest:.0e}")
    print(f"(were the loops open and all joints measured: {dyn.base_parameters().rank})")

    found = U.T @ tau.ravel() / sizes[:rank]
    off, error = np.abs(found - true).max() / np.abs(true).max(), np.abs(Y_other @ base.T @ found - tau_other).max()
    print(f"without noise: base parameters are found to {off:.0e}, other torques predicted to {error:.0e} N m")

    noisy, noisy_other = (torque + NOISE * rng.standard_normal(torque.shape) for torque in (tau, tau_other))
    estimate = U.T @ noisy.ravel() / sizes[:rank]
    predicted = Y_other @ base.T @ estimate
    left, error_of_noisy = rms(predicted - noisy_other), rms(predicted - tau_other)
    # Deviations in units of what noise explains: each base parameter adds one, in the mean.
    chi_square = float(np.sum((sizes[:rank] * (estimate - true) / NOISE) ** 2))
    print(f"noise of {NOISE} N m: {left:.4f} N m off other measured torques, {error_of_noisy:.4f} off the true ones")
    print(
        f"deviations of the base parameters: chi square {chi_square:.1f}, {rank} +- {np.sqrt(2.0 * rank):.1f} expected"
    )

    assert np.abs(Y @ pi - tau).max() < 1e-12
    assert rest < 1e-4 * least, "no gap between what is felt and what is not"
    assert off < 1e-8 and error < 1e-9, f"base parameters are off by {off:.1e}, torques by {error:.1e} N m"
    assert abs(left / NOISE - 1.0) < 0.1 and error_of_noisy < 0.25 * NOISE, f"{left} N m left of {NOISE} N m"
    assert abs(chi_square - rank) < 4.0 * np.sqrt(2.0 * rank), f"chi square {chi_square}"


if __name__ == "__main__":
    main()
