"""A humanoid balances on two feet: LQR of its linearised motion, tried from 64 starts around a posture.

    python examples/26_lqr_on_two_feet.py [FIGURE.svg]

draws it where Matplotlib is installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import robodyn as rd

try:
    from scipy.linalg import null_space, solve_discrete_are
except ImportError:
    print("SciPy is not installed (pip install '.[test]'): nothing solves the Riccati equation")
    raise SystemExit(0) from None

PATH = Path(__file__).resolve().parent.parent / "models" / "humanoid.urdf"
SOLES = ("left_sole", "right_sole")
HALF_SOLE = np.array([0.114, 0.04125])  # m: half the length and width of a foot in the file
FRICTION = 0.5
DT, STEPS, STARTS = 5e-3, 600, 64


def standing(model: rd.Model) -> np.ndarray:
    """A configuration with bent knees."""
    q = model.neutral()
    for side in ("left", "right"):
        for joint, angle in (("hip_pitch", -0.4), ("knee", 0.8), ("ankle_pitch", -0.4), ("elbow", -0.6)):
            q[model.coordinate_names.index(f"{side}_{joint}")] = angle
    return q


class Balance:
    """u = u0 - K x, with the least sum of x' Q x + (u - u0)' R (u - u0) over all steps of the linearised robot.

    x are the coordinates that the feet leave free: small motions are dq = Z y, with Z the null space of J. A projected
    step maps changes in the span of Z to such changes, so that nothing is lost with the others.
    """

    def __init__(self, dyn: rd.Dynamics, q0: np.ndarray) -> None:
        still = np.zeros(dyn.model.nv)
        self.q0, self.model = q0, dyn.model
        self.tau0, _ = dyn.constrained_inverse_dynamics(q0, still, still)
        self.Z = null_space(dyn.constraint_jacobian(q0))
        Z = np.kron(np.eye(2), self.Z)  # of positions and velocities
        A, B = dyn.step_gradient(q0, still, self.tau0, DT)
        self.left_out = np.abs(A @ Z - Z @ (Z.T @ A @ Z)).max()
        self.A, self.B = Z.T @ A @ Z, Z.T @ B[:, 6:]  # the pelvis has no drive
        free, drives = self.Z.shape[1], dyn.model.nv - 6
        self.Q, self.R = np.diag([100.0] * free + [1.0] * free), np.eye(drives)
        self.P = solve_discrete_are(self.A, self.B, self.Q, self.R)
        self.K = np.linalg.solve(self.R + self.B.T @ self.P @ self.B, self.B.T @ self.P @ self.A)

    def state(self, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        return np.concatenate((self.model.difference(self.q0, q) @ self.Z, qd @ self.Z), axis=-1)

    def __call__(self, t: float, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        tau = np.tile(self.tau0, (*q.shape[:-1], 1))
        tau[..., 6:] -= self.state(q, qd) @ self.K.T
        return tau


def starts(dyn: rd.Dynamics, balance: Balance, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Random states on the constraints: free coordinates of standard deviation `size`, rad, and as many rad/s."""
    y, yd = size * np.random.default_rng(0).standard_normal((2, STARTS, balance.Z.shape[1]))
    q, qd = dyn.model.integrate(balance.q0, y @ balance.Z.T), yd @ balance.Z.T
    for _ in range(5):
        q, qd = dyn.project(q, qd)
    return q, qd


def on_soles(lam: np.ndarray) -> np.ndarray:
    """Which wrenches (..., 2, 6) two soles that lie on the ground can transmit: they push, within the sole and within
    friction's cone. Welds could pull as well."""
    push = lam[..., 5]
    pressure_point = np.stack([-lam[..., 1], lam[..., 0]], axis=-1)  # times push, from the middle of the sole
    within = (np.abs(pressure_point) <= push[..., None] * HALF_SOLE).all(axis=-1)
    return (within & (np.hypot(lam[..., 3], lam[..., 4]) <= FRICTION * push)).all(axis=-1)


def main() -> None:
    model = rd.load_urdf(PATH, base="floating")
    q0, kinematics = standing(model), rd.Dynamics(model)
    welds = [rd.Weld(sole, to_at=kinematics.link_pose(q0, sole)) for sole in SOLES]
    dyn = rd.Dynamics(model, constraints=welds, joint_forces=())
    # What is asked for once is not worth compiling: the reference engine needs no compiler.
    balance = Balance(dyn.variant(engine="reference"), q0)

    free = balance.Z.shape[1]
    alone, fed_back = (np.abs(np.linalg.eigvals(M)).max() for M in (balance.A, balance.A - balance.B @ balance.K))
    print(f"{model.nv} velocities less {dyn.constraint_jacobian(q0).shape[0]} rows: {free} free, {model.nv - 6} drives")
    print(f"a step maps free motions to free motions up to {balance.left_out:.0e}")
    print(
        f"errors grow by {alone:.3f} a step of {1e3 * DT:.0f} ms without feedback, and shrink by {fed_back:.3f} with it"
    )
    assert balance.left_out < 1e-9 and alone > 1.0 > fed_back

    runs = {}
    for size in (0.05, 0.01):
        q, qd = starts(dyn, balance, size)
        run = dyn.rollout(q, qd, dt=DT, steps=STEPS, policy=balance)
        x, tau = balance.state(run.q, run.qd), balance(0.0, run.q, run.qd)
        _, lam = dyn.constrained_forward_dynamics(run.q, run.qd, tau)
        error, com = np.linalg.norm(x[..., :free], axis=-1), dyn.center_of_mass(run.q)
        settled = (np.linalg.norm(x[-1], axis=-1) < 0.01 * np.linalg.norm(x[0], axis=-1)).sum()
        on_ground = on_soles(lam.reshape(*lam.shape[:-1], 2, 6)).all(axis=0)
        effort = np.abs(tau / model.effort_limit)[..., 6:].max()
        moved = np.linalg.norm(com[0] - kinematics.center_of_mass(q0), axis=-1).max()
        u = (tau - balance.tau0)[..., 6:]
        spent = np.einsum("k...i,ij,k...j->...", x, balance.Q, x) + np.einsum("k...i,ij,k...j->...", u, balance.R, u)
        promised = np.einsum("...i,ij,...j->...", x[0], balance.P, x[0])
        off = np.abs(spent / promised - 1.0).max()
        print(
            f"starts up to {error[0].max():.3f} rad from the posture, centres of mass up to {1e3 * moved:.0f} mm off:"
        )
        print(
            f"  {settled} of {STARTS} settle to {error[-1].max():.0e} rad in {run.t[-1]:.0f} s, {effort:.0%} of torque"
        )
        print(f"  the cost differs by at most {off:.2%} from that of the Riccati equation")
        print(f"  {on_ground.sum()} of {STARTS} need no more of the ground than soles that lie on it can bear")
        assert settled == STARTS and effort < 1.0, f"{settled} of {STARTS} settle, with {effort:.0%} of torque limits"
        runs[size] = run.t, error, com, on_ground, off
    # Near the posture the robot is what was linearised, and the ground need not pull.
    assert runs[0.01][3].all() and runs[0.01][4] < 0.1
    if len(sys.argv) > 1:
        draw(*runs[0.05][:3], kinematics.link_pose(q0, links=SOLES)[:, :2, 3], sys.argv[1])


def draw(t: np.ndarray, error: np.ndarray, com: np.ndarray, soles: np.ndarray, path: str) -> None:
    """Errors over time, and paths of the centre of mass seen from above."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("Matplotlib is not installed (pip install '.[bench]'): no figure")
        return
    mpl.use("Agg")
    mpl.rcParams.update(rd.plots.STYLE)
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")
    left.semilogy(t[::30], error[::30], color=rd.plots.COLORS[0], linewidth=0.6, alpha=0.6)
    left.set(xlabel="time (s)", ylabel="distance from the posture (rad)", title=f"{STARTS} starts")
    right.plot(com[:300:25, :, 1], com[:300:25, :, 0], color=rd.plots.COLORS[0], linewidth=0.6, alpha=0.6)
    right.plot(com[0, :, 1], com[0, :, 0], ".", color=rd.plots.COLORS[1], markersize=4)
    for x, y in soles:
        box = plt.Rectangle((y - HALF_SOLE[1], x - HALF_SOLE[0]), *2.0 * HALF_SOLE[::-1], fill=False, color="#999999")
        right.add_patch(box)
    right.set(xlabel="y (m)", ylabel="x (m)", title="centre of mass over the soles", aspect="equal")
    right.invert_xaxis()
    figure.savefig(path, metadata={"Date": None})
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
