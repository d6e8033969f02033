"""Draw docs/_static/frames.svg: an arm, the frames that motion is seen from, a point, and an observer.

    python docs/_pictures/frames.py

needs Matplotlib. The picture is computed: links, origins and axes are those of the model.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

import robodyn as rd

mpl.use("Agg")
mpl.rcParams.update(rd.plots.STYLE)
from matplotlib import pyplot as plt  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
AXES = [rd.plots.COLORS[k] for k in (1, 2, 0)]
"""Red, green, blue for x, y, z."""
LINK, OBSERVER, POINT = "tool0", "forearm", np.array([0.0, 0.12, 0.1])


def arrows(panel, T, size, label, style="-"):
    """The axes of a frame of pose T."""
    for k, color in enumerate(AXES):
        line = np.stack([T[:3, 3], T[:3, 3] + size * T[:3, k]])
        panel.plot(*line.T, style, color=color, linewidth=2.0)
    panel.text(*(T[:3, 3] + np.array([0.03, 0.03, -0.07])), label)


def main() -> None:
    """Draw the picture."""
    model = rd.load_urdf(ROOT / "models" / "arm6.urdf")
    dyn = rd.Dynamics(model)
    q = np.array([0.4, -0.9, 1.1, 0.3, 0.7, 0.2])
    poses = dict(zip(model.link_names, dyn.forward_kinematics(q), strict=True))
    figure = plt.figure(figsize=(7.0, 5.0))
    panel = figure.add_subplot(projection="3d")
    chain = np.array([poses[name][:3, 3] for name in model.link_names])
    panel.plot(*chain.T, "o-", color="#999999", linewidth=5, markersize=6, alpha=0.7)

    tool = poses[LINK]
    aligned = np.eye(4)
    aligned[:3, 3] = tool[:3, 3]
    arrows(panel, np.eye(4), 0.3, '"world"')
    arrows(panel, tool, 0.22, f'"body" of {LINK}')
    arrows(panel, aligned, 0.16, "", style="--")
    panel.text(*(aligned[:3, 3] + np.array([0.0, 0.0, 0.2])), '"world_aligned"')
    arrows(panel, poses[OBSERVER], 0.16, f"relative_to={OBSERVER!r}")
    at = dyn.link_pose(q, LINK, point=POINT)[:3, 3]
    panel.plot(*np.stack([tool[:3, 3], at]).T, ":", color="#000000")
    panel.plot(*at, "k*", markersize=9)
    panel.text(*(at + np.array([0.02, 0.02, 0.02])), "point=")
    panel.set(
        xlabel="x, m", ylabel="y, m", zlabel="z, m", title="Frames that motion is seen from: x red, y green, z blue"
    )
    panel.set_box_aspect((1, 1, 1))
    centre, reach = (chain.max(0) + chain.min(0)) / 2, 0.6 * np.ptp(chain, axis=0).max()
    panel.set(**{f"{axis}lim": (c - reach, c + reach) for axis, c in zip("xyz", centre, strict=True)})
    panel.view_init(elev=18, azim=-58)
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "_static" / "frames.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
