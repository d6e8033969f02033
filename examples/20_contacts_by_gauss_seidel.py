"""Contacts with friction: a quadruped is dropped on the ground, by projected Gauss-Seidel on the Delassus matrix.

The library holds constraints that always hold. A foot that may lift off or slide is another problem, whose answer is
found by iterations that depend on the numbers: what it needs of the robot is `delassus`. This is the plainest such
solver, as game engines have it (Moreau's time steps, Coulomb's disc, one contact after the other): slow to converge
where contacts are many, without compliance, without a search for when feet touch within a step. It shows how to use A;
it is no simulator.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import robodyn as rd

MODELS = Path(__file__).resolve().parent.parent / "models"
DT, STEPS = 1e-3, 1500
FRICTION, RADIUS = 0.6, 0.02
KP, KD = 80.0, 2.0


def contact_impulses(
    A: np.ndarray, v: np.ndarray, gap: np.ndarray, start: np.ndarray, tolerance: float = 1e-10
) -> tuple[np.ndarray, int]:
    """(impulses (n, 3), sweeps): of n contacts, z up, with which velocities v + A p end the step.

    No foot goes through the ground in the step, w = v_z + gap / dt >= 0; the ground does not pull, p_z >= 0; one of
    both is zero; and friction takes away what slides as far as |p_xy| <= FRICTION p_z.
    """
    p, sweeps, change = start.copy(), 0, np.inf
    while change >= tolerance and sweeps < 500:
        before = p.copy()
        for k in range(len(gap)):
            rows = slice(3 * k, 3 * k + 3)
            block = A[rows, rows]
            after = v[rows] + A[rows] @ p.ravel()
            p[k, 2] = max(0.0, p[k, 2] - (after[2] + gap[k] / DT) / block[2, 2])
            after = v[rows] + A[rows] @ p.ravel()
            p[k, :2] -= after[:2] / max(block[0, 0], block[1, 1])
            size, most = np.linalg.norm(p[k, :2]), FRICTION * p[k, 2]
            if size > most:
                p[k, :2] *= most / size
        change, sweeps = np.abs(p - before).max(), sweeps + 1
    return p, sweeps


def main() -> None:
    model = rd.load_urdf(MODELS / "quadruped.urdf", base="floating")
    feet = [name for name in model.link_names if name.endswith("_foot")]
    # To the world's origin: residuals are places of the feet, rows are in the world's axes.
    dyn = rd.Dynamics(model, constraints=[rd.Point(name) for name in feet])

    legs = slice(7, model.nq), slice(6, model.nv)
    posture = np.tile([0.0, 0.8, -1.6], 4)
    q, qd = model.neutral(), np.zeros(model.nv)
    q[legs[0]] = posture
    q[2] += 0.15 + RADIUS - dyn.constraint_residual(q, qd)[0].reshape(4, 3)[:, 2].min()
    qd[0], qd[4] = 0.6, -0.8  # thrown forwards, nose up

    p = np.zeros((4, 3))
    energies, sweeps, worst, slid = [], [], 0.0, 0
    for _ in range(STEPS):
        tau = np.zeros(model.nv)
        tau[legs[1]] = KP * (posture - q[legs[0]]) - KD * qd[legs[1]]
        place, velocity = dyn.constraint_residual(q, qd)
        A, free = dyn.delassus(q, qd, tau)
        gap = place.reshape(4, 3)[:, 2] - RADIUS
        p, count = contact_impulses(A, velocity + DT * free, gap, p)

        v = (velocity + DT * free + A @ p.ravel()).reshape(4, 3)
        w, speed = v[:, 2] + gap / DT, np.linalg.norm(v[:, :2], axis=1)
        touches, slides = p[:, 2] > 1e-6, speed > 1e-5
        worst = max(worst, np.abs(np.minimum(p[:, 2], w)).max())
        on_disc = np.linalg.norm(p[:, :2], axis=1) - FRICTION * p[:, 2]
        assert (on_disc < 1e-12).all(), "friction is within its disc"
        assert (on_disc[touches & slides] > -1e-6).all(), "and at its rim where a foot slides"
        slid += int((touches & slides).any())
        sweeps.append(count)

        force = tau + dyn.constraint_jacobian(q).T @ p.ravel() / DT
        qd = qd + DT * dyn.forward_dynamics(q, qd, force)
        q = model.integrate(q, DT * qd)
        spring = 0.5 * KP * np.sum((posture - q[legs[0]]) ** 2)
        energies.append(dyn.kinetic_energy(q, qd) + dyn.potential_energy(q) + spring)

    rises = np.diff(energies).max()
    lost = energies[0] - energies[-1]
    print(f"A quadruped dropped from 0.15 m: {STEPS} steps of {DT * 1e3:.0f} ms")
    print(f"  sweeps a step: {np.mean(sweeps):.1f} in the mean, {max(sweeps)} at most; feet slid in {slid} steps")
    print(f"  complementarity: {worst:.1e} at most")
    print(f"  energy lost {lost:.2f} J; it rose by at most {rises:.1e} J in a step")
    carried, weight = p[:, 2].sum() / DT, -model.total_mass * model.gravity[2]
    print(f"  at the end feet carry {carried:.3f} N of {weight:.3f} N; speeds are below {np.abs(qd).max():.1e}")
    print(f"  feet are {gap.min():.1e} to {gap.max():.1e} m above the ground")

    assert worst < 1e-6
    assert lost > 1.0 and rises < 1e-3 * lost
    assert abs(carried - weight) < 1e-3 * weight
    assert np.abs(gap).max() < 1e-6


if __name__ == "__main__":
    main()
