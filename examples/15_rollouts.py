"""Rollouts: many throws of a floating robot at once, an arm under a policy, and one pendulum with events."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import numpy as np

import robodyn as rd

MODELS = Path(__file__).resolve().parent.parent / "models"


def main() -> None:
    rng = np.random.default_rng(0)

    print("A quadruped in free fall, 256 throws, 300 ms in steps of 1 ms (rk4)")
    quadruped = rd.load_urdf(MODELS / "quadruped.urdf", base="floating")
    dyn = rd.Dynamics(quadruped, joint_forces="damping")
    q0 = quadruped.random_configuration(rng, (256,))
    qd0 = rng.normal(size=(256, quadruped.nv))
    dyn.rollout(q0, qd0, None, 1e-3, 1, integrator="rk4")  # compiles
    start = perf_counter()
    run = dyn.rollout(q0, qd0, None, 1e-3, 300, integrator="rk4", save_every=100)
    took = perf_counter() - start
    print(f"  {256 * 300 / took:,.0f} steps a second")
    momentum = dyn.centroidal_momentum(run.q, run.qd)[0]
    lost = momentum[-1] - momentum[0]
    lost[:, 3:] -= run.t[-1] * quadruped.total_mass * quadruped.gravity
    print(f"  momentum that got lost: {np.abs(lost).max():.1e} of {np.abs(momentum).max():.1f}")
    assert np.abs(lost).max() < 1e-5

    print("An arm held by a policy, from 64 states")
    arm = rd.load_urdf(MODELS / "arm7.urdf")
    dyn = rd.Dynamics(arm, joint_forces=())  # the policy knows of no damping or friction
    q0 = arm.random_configuration(rng, (64,))
    goal = arm.neutral()

    def policy(t: float, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        pull = dyn.mass_matrix(q) @ (25.0 * (goal - q) - 10.0 * qd)[..., None]
        return dyn.bias_force(q, qd) + pull[..., 0]

    run = dyn.rollout(q0, np.zeros((64, arm.nv)), dt=2e-3, steps=1500, policy=policy, save_every=None)
    print(f"  farthest from the goal after {run.t[-1]:.0f} s: {np.abs(run.q[-1] - goal).max():.1e} rad")
    assert np.abs(run.q[-1] - goal).max() < 1e-3

    print("A pendulum until its first link hangs down")
    pendulum = rd.load_urdf(MODELS / "double_pendulum.urdf")

    def down(t: float, q: np.ndarray, qd: np.ndarray) -> float:
        return float(q[0])

    down.terminal = True  # type: ignore[attr-defined]
    found = rd.simulate(pendulum, [1.0, 0.5], [0.0, 0.0], 5.0, events=down)
    print(f"  after {found.t[-1]:.6f} s, {len(found.t) - 1} steps")
    assert found.status == "event"


if __name__ == "__main__":
    main()
