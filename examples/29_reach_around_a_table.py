"""A humanoid on two feet moves a hand around the edge of a table, and no limb touches it: inverse kinematics that keeps
a clearance.

    python examples/29_reach_around_a_table.py [FIGURE.svg]

draws it where Matplotlib is installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import robodyn as rd

PATH = Path(__file__).resolve().parent.parent / "models" / "humanoid.urdf"
FEET, HAND = ("left_sole", "right_sole"), "left_hand"
LIMBS = {
    "left_thigh": "left_shank",
    "right_thigh": "right_shank",
    "left_shank": "left_ankle",
    "right_shank": "right_ankle",
    "left_upper_arm": "left_elbow",
    "right_upper_arm": "right_elbow",
    "left_elbow": "left_wrist",
    "right_elbow": "right_wrist",
    "pelvis": "thorax",
}
"""Links that are capsules up to another link's origin."""
RADIUS, CLEARANCE, POINTS, REACH = 0.05, 0.01, 40, 0.12


def with_limbs(model: rd.Model) -> rd.Model:
    """The robot with capsules along its limbs, and spheres for its hands."""
    places = dict(zip(model.link_names, rd.Dynamics(model).forward_kinematics(model.neutral()), strict=True))
    capsules = [
        rd.Capsule(link, (0, 0, 0), (np.linalg.inv(places[link]) @ places[end])[:3, 3], RADIUS)
        for link, end in LIMBS.items()
    ]
    return model.with_shapes(
        [*capsules, rd.Sphere("left_hand", (0, 0, 0), 0.04), rd.Sphere("right_hand", (0, 0, 0), 0.04)]
    )


def standing(model: rd.Model) -> np.ndarray:
    """A configuration with bent knees."""
    q = model.neutral()
    for side in ("left", "right"):
        for joint, angle in (("hip_pitch", -0.4), ("knee", 0.8), ("ankle_pitch", -0.4), ("elbow", -0.9)):
            q[model.coordinate_names.index(f"{side}_{joint}")] = angle
    return q


def main() -> None:
    model = with_limbs(rd.load_urdf(PATH, base="floating"))
    dyn, stand = rd.Dynamics(model), standing(rd.load_urdf(PATH, base="floating"))
    feet, hand = dyn.link_pose(stand, links=FEET), dyn.link_pose(stand, HAND)[:3, 3]

    # A table top in front of the robot, and a path of the hand around its edge: over it, in front of it, under it.
    size, centre = np.array([0.5, 1.2, 0.04]), np.array([hand[0] + 0.33, 0.0, hand[2] - 0.02])
    pose = np.eye(4)
    pose[:3, 3] = centre
    table = rd.Obstacles(boxes=(pose[None], size[None]), ignore=["left_foot", "right_foot"])
    edge = np.array([centre[0] - 0.5 * size[0], 0.3, centre[2]])
    along, angle = np.linspace(0.2, 0.0, POINTS // 4), np.linspace(0.5 * np.pi, 1.5 * np.pi, POINTS // 2)
    x = np.concatenate([along, REACH * np.cos(angle), along[::-1]])
    z = np.concatenate([np.full(len(along), REACH), REACH * np.sin(angle), np.full(len(along), -REACH)])
    path = edge + np.stack([x, 0.0 * x, z], axis=1)

    tasks = [*FEET, rd.PositionTask(HAND), rd.CoMTask(weight=(1, 1, 0))]
    targets = np.tile(np.eye(4), (POINTS, 4, 1, 1))
    targets[:, :2], targets[:, 2, :3, 3], targets[:, 3, :3, 3] = feet, path, feet[:, :3, 3].mean(axis=0)

    ik = rd.InverseKinematics(model, tasks, posture=stand, clearance=CLEARANCE, obstacles=table)
    q, report = ik.solve(targets, stand)
    print(report)
    print(f"shapes are at least {1e3 * report.clearance.min():.1f} mm apart")
    assert report.converged.all() and dyn.is_free(q, table, CLEARANCE).all()
    assert np.abs(dyn.link_pose(q, HAND)[:, :3, 3] - path).max() < 2e-6

    blind, _ = rd.InverseKinematics(model, tasks, posture=stand).solve(targets, stand)
    least = dyn.min_distance(blind, table)
    near = (least <= CLEARANCE).sum()
    print(f"without a clearance, {near} of {POINTS} configurations are too near, at worst {1e3 * least.min():.0f} mm")
    assert least.min() < 0.0
    if len(sys.argv) > 1:
        draw(dyn, q[[0, POINTS // 2, POINTS - 1]], blind[least.argmin()], path, centre, size, sys.argv[1])


def draw(
    dyn: rd.Dynamics, q: np.ndarray, blind: np.ndarray, path: np.ndarray, centre: np.ndarray, size: np.ndarray, to: str
) -> None:
    """Configurations from the side: with a clearance, and one that was found without."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("Matplotlib is not installed (pip install '.[bench]'): no figure")
        return
    mpl.use("Agg")
    mpl.rcParams.update(rd.plots.STYLE)
    from matplotlib import pyplot as plt
    from matplotlib.patches import Rectangle

    figure, panels = plt.subplots(1, 2, figsize=(7.2, 5.0), sharey=True)
    names, parents = dyn.model.link_names, dyn.model.link_parent.tolist()
    for panel, shown, title in zip(panels, (q, blind[None]), ("with a clearance", "without"), strict=True):
        for pose, shade in zip(dyn.forward_kinematics(shown), np.linspace(0.3, 0.9, len(shown)), strict=True):
            for k, parent in enumerate(parents):
                if parent >= 0 and not names[k].startswith("right"):
                    ends = np.stack([pose[k][:3, 3], pose[parent][:3, 3]])
                    panel.plot(ends[:, 0], ends[:, 2], color=rd.plots.COLORS[0], alpha=shade, linewidth=2.5)
            spot = pose[names.index(HAND)][:3, 3]
            panel.plot(spot[0], spot[2], "o", color=rd.plots.COLORS[0], alpha=shade)
        panel.plot(path[:, 0], path[:, 2], color=rd.plots.COLORS[1], linewidth=1.5, label="the hand's path")
        corner = centre - 0.5 * size
        panel.add_patch(Rectangle((corner[0], corner[2]), size[0], size[2], color="#999999", label="table"))
        panel.set_aspect("equal")
        panel.set_xlabel("x (m)")
        panel.set_title(title, fontsize=10)
    panels[0].set_ylabel("z (m)")
    panels[0].legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    figure.savefig(to, metadata={"Date": None})
    print(f"wrote {to}")


if __name__ == "__main__":
    main()
