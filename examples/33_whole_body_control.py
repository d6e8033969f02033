"""Quadrupeds trot and are pushed: whole-body control of a batch, with contacts.

In every time step the controller finds torques within their limits, and forces within the friction cones of the two
feet that stand, so that trunks follow their path and the other two feet swing to where they should land. Eight robots
are pushed to eight sides and recover.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import robodyn as rd

PATH = Path(__file__).resolve().parent.parent / "models" / "quadruped.urdf"
FEET = tuple(f"{end}_{side}_foot" for end in ("front", "hind") for side in ("left", "right"))
RADIUS, FRICTION = 0.02, 0.7
DT, SECONDS, ROBOTS = 0.002, 2.4, 8
HALF, LIFT, SPEED = 0.18, 0.05, 0.3  # s of each pair of feet, m, m/s
PUSHED, LASTING, PUSH = 1.0, 0.1, 40.0  # s, s, N
TRUNK, SWING = (100.0, 20.0), (900.0, 60.0)  # kp in 1/s^2, kd in 1/s
LEG = np.tile([0.0, 0.75, -1.5], 4)


def poses(places: np.ndarray) -> np.ndarray:
    """Poses without rotation at places (..., 3)."""
    T = np.zeros((*places.shape[:-1], 4, 4))
    T[...] = np.eye(4)
    T[..., :3, 3] = places
    return T


class Trot:
    """A policy for a batch: two diagonal feet stand, the two others swing."""

    def __init__(self) -> None:
        feet = [rd.Contact(rd.Sphere(foot, radius=RADIUS), rd.Plane(), friction=FRICTION) for foot in FEET]
        model = rd.load_urdf(PATH, base="floating").with_contacts(feet, cone="elliptic", impratio=10.0)
        self.dyn = rd.Dynamics(model, joint_forces="damping")
        self.q0 = np.concatenate([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], LEG])
        self.q0[2] = RADIUS - self.dyn.link_pose(self.q0, FEET[0])[2, 3]
        joints = [0.0] * 6 + [1.0] * 12
        tasks = [
            rd.Tracking(rd.PoseTask("trunk"), *TRUNK, weight=5.0),
            *(rd.Tracking(rd.PositionTask(foot), *SWING) for foot in FEET),
            rd.Tracking(rd.PostureTask(self.q0, joints), kp=20.0, kd=5.0, weight=1e-2),
        ]
        self.control = rd.WholeBodyControl(self.dyn, tasks, feet)
        self.home = self.feet_of(self.q0[None])[0] - self.q0[:3] * [1.0, 1.0, 0.0]
        self.lifted, self.step = np.zeros((ROBOTS, 4, 3)), -1
        self.forces: list[np.ndarray] = []
        angle = np.linspace(0.0, 2.0 * np.pi, ROBOTS, endpoint=False)
        self.push = PUSH * np.stack([np.cos(angle), np.sin(angle), 0.0 * angle], axis=1)

    def feet_of(self, q: np.ndarray) -> np.ndarray:
        """Places of the feet (robots, 4, 3)."""
        return np.stack([self.dyn.link_pose(q, foot)[:, :3, 3] for foot in FEET], axis=1)

    def __call__(self, t: float, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        """Torques, and for a while a push on the trunk."""
        step, s = divmod(t / HALF + 1e-9, 1.0)
        swing = [0, 3] if step % 2 == 0 else [1, 2]
        feet, R = self.feet_of(q), self.dyn.link_pose(q, "trunk")[:, :3, :3]
        if step != self.step:
            self.lifted, self.step = feet, step
        v, wanted = (R @ qd[:, :3, None])[..., 0], np.array([SPEED, 0.0, 0.0])
        # A foot lands where it will be under its hip in the middle of its stand, and farther if the robot is too fast.
        land = (q[:, :3] * [1.0, 1.0, 0.0] + v * (1.5 - s) * HALF + 0.15 * (v - wanted))[:, None] + self.home
        land[..., 2] = RADIUS - 0.005
        way, w = land - self.lifted, np.pi / HALF
        c, rate, bend = 0.5 - 0.5 * np.cos(np.pi * s), 0.5 * w * np.sin(np.pi * s), 0.5 * w**2 * np.cos(np.pi * s)
        place, speed, acceleration = self.lifted + c * way, rate * way, bend * way
        place[..., 2] += LIFT * np.sin(np.pi * s) ** 2
        speed[..., 2] += LIFT * w * np.sin(2.0 * np.pi * s)
        acceleration[..., 2] += 2.0 * LIFT * w**2 * np.cos(2.0 * np.pi * s)
        # A target ahead by kd / kp of the speed and 1 / kp of the acceleration makes the foot follow without a lag.
        ahead = place + speed * (SWING[1] / SWING[0]) + acceleration / SWING[0]
        trunk = np.array([SPEED * (t + TRUNK[1] / TRUNK[0]), 0.0, self.q0[2]])
        targets = poses(np.concatenate([np.tile(trunk, (len(q), 1, 1)), ahead], axis=1))
        active = np.ones(4, bool)
        active[swing] = False
        tau, _, f, report = self.control(q, qd, targets, active)
        assert report.feasible.all(), f"at {t:.3f} s: {report}"
        self.forces.append(f)
        if PUSHED <= t + 0.5 * DT < PUSHED + LASTING:
            tau[:, :3] += (np.swapaxes(R, 1, 2) @ self.push[..., None])[..., 0]
        return tau


def draw(run: rd.Rollout, forces: np.ndarray, path: str) -> None:
    """Paths of trunks from above, and forces of the feet of one robot."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("Matplotlib is not installed (pip install '.[bench]'): no figure")
        return
    mpl.use("Agg")
    mpl.rcParams.update(rd.plots.STYLE)
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.0), layout="constrained")
    for robot in range(ROBOTS):
        color = rd.plots.COLORS[robot % len(rd.plots.COLORS)]
        left.plot(run.q[::5, robot, 0], run.q[::5, robot, 1], color=color, linewidth=0.8)
    left.set(xlabel="x (m)", ylabel="y (m)", title="trunks from above, pushed to all sides")
    begin, end = round(0.8 / DT), round(1.6 / DT)
    for foot, color in zip(range(4), rd.plots.COLORS, strict=False):
        name = FEET[foot].removesuffix("_foot").replace("_", " ")
        right.plot(run.t[begin:end], forces[begin:end, 2, foot, 0], color=color, linewidth=0.8, label=name)
    right.axvspan(PUSHED, PUSHED + LASTING, color="#dddddd")
    right.set(xlabel="time (s)", ylabel="normal force (N)", title="forces that the controller wants")
    right.legend(fontsize=7, ncols=2)
    figure.savefig(path, metadata={"Date": None})
    print(f"wrote {path}")


def main() -> None:
    trot = Trot()
    dyn, model = trot.dyn, trot.dyn.model
    print(f"{ROBOTS} robots of {model.total_mass:.1f} kg trot at {SPEED} m/s, pushed by {PUSH:.0f} N at {PUSHED:.0f} s")
    start = np.tile(trot.q0, (ROBOTS, 1))
    run = dyn.rollout(
        start, np.zeros((ROBOTS, model.nv)), dt=DT, steps=round(SECONDS / DT), integrator="mujoco", policy=trot
    )
    assert run.converged.all(), "contact forces did not converge"
    tilt = np.arccos(np.clip(dyn.link_pose(run.q, "trunk")[..., 2, 2], -1.0, 1.0))
    off = np.abs(run.q[..., 1])
    print(
        f"trunks tilt by up to {tilt.max():.2f} rad, are pushed {off.max():.2f} m aside and end {off[-1].max():.3f} m "
        f"beside the path, after {run.q[-1, :, 0].min():.2f} to {run.q[-1, :, 0].max():.2f} m"
    )
    assert tilt.max() < 0.3, "a robot has fallen"
    assert off[-1].max() < 0.1, "a robot has lost its way"
    if len(sys.argv) > 1:
        draw(run, np.array(trot.forces), sys.argv[1])


if __name__ == "__main__":
    main()
