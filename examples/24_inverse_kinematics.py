"""A humanoid on two feet draws a circle with a hand, its centre of mass over its feet: inverse kinematics with tasks.

    python examples/24_inverse_kinematics.py [FIGURE.svg]

draws it where Matplotlib is installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import robodyn as rd

PATH = Path(__file__).resolve().parent.parent / "models" / "humanoid.urdf"
FEET, HAND = ("left_sole", "right_sole"), "left_hand"
POINTS, RADIUS = 48, 0.18


def standing(model: rd.Model) -> np.ndarray:
    """A configuration with bent knees."""
    q = model.neutral()
    for side in ("left", "right"):
        for joint, angle in (("hip_pitch", -0.4), ("knee", 0.8), ("ankle_pitch", -0.4), ("elbow", -0.6)):
            q[model.coordinate_names.index(f"{side}_{joint}")] = angle
    return q


def main() -> None:
    model = rd.load_urdf(PATH, base="floating")
    dyn, stand = rd.Dynamics(model), standing(model)
    feet = dyn.link_pose(stand, links=FEET)
    over = feet[:, :3, 3].mean(axis=0)

    tasks = [*FEET, rd.PositionTask(HAND), rd.CoMTask(weight=(1, 1, 0))]
    ik = rd.InverseKinematics(model, tasks, posture=stand)

    angle = np.linspace(0.0, 2.0 * np.pi, POINTS, endpoint=False)
    circle = np.stack([np.zeros(POINTS), np.cos(angle), np.sin(angle)], axis=1)
    centre = dyn.link_pose(stand, HAND)[:3, 3] + [0.1, 0.05, 0.15]
    targets = np.tile(np.eye(4), (POINTS, 4, 1, 1))
    targets[:, :2] = feet
    targets[:, 2, :3, 3] = centre + RADIUS * circle
    targets[:, 3, :3, 3] = over

    q, report = ik.solve(targets, stand)
    print(report)
    assert report.converged.all()
    hand, com = dyn.link_pose(q, HAND)[:, :3, 3], dyn.center_of_mass(q)
    print(f"the hand is at most {np.linalg.norm(hand - targets[:, 2, :3, 3], axis=1).max():.1e} m off its circle")
    print(f"the centre of mass is at most {np.abs(com[:, :2] - over[:2]).max():.1e} m off the middle of the feet")
    assert (q >= model.lower).all() and (q <= model.upper).all()

    # Two metres away no hand gets: what comes nearest is found, and said to be that.
    far = targets[:1].copy()
    far[0, 2, :3, 3] += [2.0, 0.0, 0.0]
    _, beyond = ik.solve(far, stand, seeds=4)
    print(f"two metres further: {beyond}")
    assert not beyond.converged.any()
    if len(sys.argv) > 1:
        draw(dyn, q[:: POINTS // 4], targets[:, 2, :3, 3], com, over, sys.argv[1])


def draw(dyn: rd.Dynamics, q: np.ndarray, circle: np.ndarray, com: np.ndarray, over: np.ndarray, path: str) -> None:
    """Four configurations as skeletons, seen from the front and from the side."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("Matplotlib is not installed (pip install '.[bench]'): no figure")
        return
    mpl.use("Agg")
    mpl.rcParams.update(rd.plots.STYLE)
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(7.2, 5.0), sharey=True)
    poses = dyn.forward_kinematics(q)
    links = [(k, p) for k, p in enumerate(dyn.model.link_parent.tolist()) if p >= 0]
    for panel, axis, label in zip(panels, (1, 0), ("y (m)", "x (m)"), strict=True):
        for pose, shade in zip(poses, np.linspace(0.25, 0.9, len(poses)), strict=True):
            for k, parent in links:
                ends = np.stack([pose[k][:3, 3], pose[parent][:3, 3]])
                panel.plot(ends[:, axis], ends[:, 2], color=rd.plots.COLORS[0], alpha=shade, linewidth=2.5)
        closed = np.concatenate([circle, circle[:1]])
        panel.plot(closed[:, axis], closed[:, 2], color=rd.plots.COLORS[1], linewidth=1.5, label="the hand's path")
        panel.plot(com[:, axis], com[:, 2], ".", color="#228833", label="centre of mass")
        panel.axvline(over[axis], color="#228833", linestyle=":", linewidth=1, label="middle of the feet")
        panel.set_aspect("equal")
        panel.set_xlabel(label)
    panels[0].set_ylabel("z (m)")
    panels[0].legend(loc="upper right", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
