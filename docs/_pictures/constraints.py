"""Draw docs/_static/constraints.svg and robots_with_loops.svg: one panel for each kind, and robots of models/loops.

    python docs/_pictures/constraints.py

needs Matplotlib. Pictures are computed: robots stand where their constraints hold, forces are those that hold them.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np

import robodyn as rd

mpl.use("Agg")
mpl.rcParams.update(rd.plots.STYLE)
from matplotlib import pyplot as plt  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "docs" / "_static"
GREY, (BLUE, RED, GREEN, *_) = "#999999", rd.plots.COLORS
Z = np.array([0, 2])
"""Seen from the side: x and z."""


def load(name, **options):
    """A robot of models/; one of loops/ without its loops."""
    return rd.load_urdf(ROOT / "models" / f"{name}.urdf", **options)


def held(model, constraints, q, steps=12):
    """(Dynamics, q) with q on the constraints."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that loops in a plane have a row too many
        dyn = rd.Dynamics(model, constraints=constraints)
    qd = np.zeros(model.nv)
    for _ in range(steps):
        q, qd = dyn.project(q, qd)
    return dyn, q


def skeleton(panel, dyn, q, seen=Z, color=GREY, width=4.0, alpha=0.7, ends=()):
    """Lines from each link's origin to those of the links that hang on it; `ends`: further points, (link, point)."""
    model, poses = dyn.model, dyn.forward_kinematics(q)
    lines = [(poses[k][:3, 3], poses[p][:3, 3]) for k, p in enumerate(model.link_parent.tolist()) if p >= 0]
    for link, point in ends:
        T = poses[model.link_index(link)]
        lines.append((T[:3, 3], T[:3, :3] @ point + T[:3, 3]))
    for a, b in lines:
        panel.plot(*np.stack([a, b])[:, seen].T, "-", color=color, linewidth=width, alpha=alpha, solid_capstyle="round")
        panel.plot(*a[seen], "o", color=color, markersize=0.9 * width, alpha=alpha)
    return poses


def arrow(panel, at, way, color=RED):
    """A force, from where it acts."""
    panel.annotate("", at + way, at, arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": 1.5})


def at(dyn, q, link, point):
    """A point of a link, in the world."""
    T = dyn.link_pose(q, link)
    return T[:3, :3] @ point + T[:3, 3]


def ground(panel, height, left, right):
    """A line, hatched below."""
    panel.fill_between(
        [left, right], height - 0.03, height, hatch="////", facecolor="none", edgecolor=GREY, linewidth=0
    )
    panel.plot([left, right], [height, height], color="#000000", linewidth=1.0)


def feet(panel):
    """Four feet of a quadruped that stands; forces that carry it."""
    model = load("quadruped", base="floating")
    names = [name for name in model.link_names if name.endswith("_foot")]
    q = model.neutral()
    q[7:] = np.tile([0.0, 0.8, -1.6], 4)
    place = rd.Dynamics(model)
    dyn, q = held(model, [rd.Point(name, to_at=place.link_pose(q, name)[:3, 3]) for name in names], q)
    force = np.zeros(model.nv)
    force[6:] = dyn.gravity_force(q)[6:]
    _, lam = dyn.constrained_forward_dynamics(q, np.zeros(model.nv), force)
    poses = skeleton(panel, dyn, q)
    for k, name in enumerate(names):
        foot = poses[model.link_index(name)][:3, 3]
        panel.plot(*foot[Z], "o", color=BLUE)
        arrow(panel, foot[Z], lam[3 * k : 3 * k + 3][Z] / 150)
    low = min(poses[model.link_index(name)][2, 3] for name in names)
    ground(panel, low, -0.32, 0.32)
    panel.set_title("Point: feet, to=None; forces")


def welded(panel):
    """A humanoid whose feet keep place and attitude."""
    model = load("humanoid", base="floating")
    q = model.neutral()
    place = rd.Dynamics(model)
    names = [name for name in model.link_names if name.endswith("_foot")]
    dyn, q = held(model, [rd.Weld(name, to_at=place.link_pose(q, name)) for name in names], q)
    lean = model.integrate(q, np.r_[0.03, 0.0, -0.03, 0.05, 0.12, 0.0, np.zeros(model.nv - 6)])
    _, lean = held(model, dyn.model.constraints, lean)
    skeleton(panel, dyn, q, alpha=0.25)
    poses = skeleton(panel, dyn, lean)
    for name in names:
        T = poses[model.link_index(name)]
        for k, color in ((0, RED), (2, BLUE)):
            panel.plot(*np.stack([T[:3, 3], T[:3, 3] + 0.15 * T[:3, k]])[:, Z].T, color=color, linewidth=2.0)
    ground(panel, min(poses[model.link_index(name)][2, 3] for name in names) - 0.06, -0.3, 0.3)
    panel.set_title("Weld: frames keep pose")


def hinges(panel):
    """The gripper's parallelograms."""
    model = load("loops/linkage_gripper")
    rows = ("rx", "ry", "x", "y", "z")  # z of the frames is turned to the hinge's axis
    turned = np.eye(4)
    turned[:3, :3] = [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    pins = []
    for side, sign in (("left", 1.0), ("right", -1.0)):
        a, b = turned.copy(), turned.copy()
        a[:3, 3], b[:3, 3] = [0, 0, 0.06], [0, sign * 0.025, 0.01]
        pins.append(rd.Weld(f"{side}_finger", f"{side}_follower", b, a, rows=rows))
    seen = np.array([1, 2])
    for angle, alpha in ((-0.7, 0.25), (0.0, 0.25), (0.3, 0.8)):
        dyn, q = held(model, pins, angle * np.array([1.0, -1.0, 1.0, 1.0, -1.0]))
        ends = [
            each
            for side, sign in (("left", 1.0), ("right", -1.0))
            for each in (
                (f"{side}_finger", [0, 0, 0.07]),
                (f"{side}_finger", [0, sign * 0.025, 0.01]),
                (f"{side}_follower", [0, 0, 0.06]),
            )
        ]
        skeleton(panel, dyn, q, seen, alpha=alpha, ends=ends)
        for side in ("left", "right"):
            panel.plot(*at(dyn, q, f"{side}_follower", [0, 0, 0.06])[seen], "o", color=BLUE, alpha=alpha)
    panel.set_title("Weld, five rows: hinges")


def rod(panel):
    """A double pendulum whose end keeps its distance from a point."""
    model, end = load("double_pendulum"), np.array([0.0, 0.0, -0.5])
    anchor, length = np.array([0.7, 0.0, -0.6]), 0.5
    for start, alpha in (([0.5, 0.4], 0.25), ([-0.1, 0.9], 0.8)):
        dyn, q = held(model, [rd.Rod("lower_rod", at=end, to_at=anchor, length=length)], np.array(start))
        skeleton(panel, dyn, q, alpha=alpha, ends=[("lower_rod", end)])
        line = np.stack([at(dyn, q, "lower_rod", end), anchor])[:, Z].T
        panel.plot(*line, "o-", color=BLUE, markersize=4, alpha=alpha)
    circle = np.linspace(0, 2 * np.pi, 200)
    panel.plot(anchor[0] + length * np.cos(circle), anchor[2] + length * np.sin(circle), ":", color=BLUE, linewidth=0.8)
    panel.set_title("Rod: a distance stays")


def coupled(panel):
    """A double pendulum whose second joint turns back twice as far as the first turns."""
    model = load("double_pendulum")
    first, second = model.joint_names
    for start, alpha in ((-0.8, 0.25), (-0.2, 0.45), (0.5, 0.8)):
        dyn, q = held(model, [rd.Coupling({first: 2.0, second: 1.0})], np.array([start, -2.0 * start]))
        skeleton(panel, dyn, q, alpha=alpha, ends=[("lower_rod", [0, 0, -0.5])])
    panel.set_title("Coupling: 2 q1 + q2 = 0")


def locked(panel):
    """An arm that moves with a joint held."""
    model = load("arm6")
    joint = "elbow"
    start = np.array([0.0, -1.2, 1.4, -0.6, 0.2, 0.0])
    for change, alpha in ((-0.5, 0.25), (0.0, 0.45), (0.5, 0.8)):
        q = start + np.array([0.0, change, 0.3, -change, 0.0, 0.0])
        dyn, q = held(model, [rd.Lock(joint, 1.4)], q)
        poses = skeleton(panel, dyn, q, alpha=alpha)
        panel.plot(*poses[model.link_index("forearm")][Z, 3], "s", color=BLUE, alpha=alpha)
    panel.set_title("Lock: a joint does not move")


def four_bar(panel):
    """The four-bar, its coupler's curve, and the cut."""
    model = load("loops/four_bar")
    loop = [rd.Weld("coupler", "rocker", (0.28, 0, 0), (0.2, 0, 0), rows=("x", "z"))]
    q, curve = np.array([0.0, 0.8, 1.6]), []
    for angle in np.linspace(0.0, 2.0 * np.pi, 73):
        q[0] = angle
        # The crank stands where it is put: it is locked besides.
        dyn, q = held(model, [*loop, rd.Lock("turn", angle)], q, 8)
        curve.append(at(dyn, q, "coupler", np.array([0.14, 0, 0.08])))
        if np.isclose(angle, np.pi / 3, atol=1e-9):
            ends = [("coupler", [0.28, 0, 0]), ("rocker", [0.2, 0, 0]), ("coupler", [0.14, 0, 0.08])]
            skeleton(panel, dyn, q, ends=ends)
            panel.plot(*at(dyn, q, "rocker", np.array([0.2, 0, 0]))[Z], "o", color=BLUE)
    panel.plot(*np.array(curve)[:, Z].T, "-", color=GREEN, linewidth=1.0)
    panel.set_title("four_bar: a point of the coupler")


def delta(panel):
    """The Delta as its file has it at zero."""
    model = load("loops/delta")
    dyn, q = rd.Dynamics(model), model.neutral()
    ends = [(name, [0, 0, -0.45]) for name in model.link_names if name.startswith("rod_")]
    skeleton(panel, dyn, q, np.array([1, 2]), width=3.0, ends=ends)
    for name, point in ends[1:]:
        panel.plot(*at(dyn, q, name, np.array(point))[[1, 2]], "o", color=BLUE, markersize=4)
    panel.set_title("delta, from the side: five balls are cut")


def legs(panel):
    """A leg at zero and with the knee bent, tarsus and foot following."""
    model = load("loops/bird_legs")
    heel = rd.Point("left_achilles_rod", "left_tarsus", (0, 0, -0.452), (-0.08, 0.03, 0))
    instep = rd.Point("left_plantar_rod", "left_foot", (0, 0, -0.34), (-0.05, 0.03, 0))
    ends = [("left_achilles_rod", [0, 0, -0.452]), ("left_plantar_rod", [0, 0, -0.34])]
    ends += [("left_tarsus", [-0.08, 0.03, 0]), ("left_foot", [-0.05, 0.03, 0]), ("left_foot", [0.09, 0, -0.02])]
    links = [
        "left_thigh",
        "left_shin",
        "left_tarsus",
        "left_foot",
        "left_achilles_rod",
        "left_crank",
        "left_plantar_rod",
    ]
    for knee, alpha in ((0.0, 0.25), (-0.5, 0.8)):
        q = model.neutral()
        q[list(model.joint_names).index("left_knee")] = knee
        dyn, q = held(model, [heel, instep, rd.Lock("left_knee", knee)], q, 20)
        poses = dyn.forward_kinematics(q)
        for name in links:
            k = model.link_index(name)
            pair = np.stack([poses[k][:3, 3], poses[int(model.link_parent[k])][:3, 3]])[:, Z]
            panel.plot(*pair.T, "o-", color=GREY, linewidth=3, markersize=3, alpha=alpha)
        for link, point in ends:
            pair = np.stack([dyn.link_pose(q, link)[:3, 3], at(dyn, q, link, np.array(point))])[:, Z]
            panel.plot(*pair.T, "-", color=GREY, linewidth=3, alpha=alpha)
        for link, point in ends[:2]:
            panel.plot(*at(dyn, q, link, np.array(point))[Z], "o", color=BLUE, alpha=alpha)
    panel.set_title("bird_legs: tarsus follows knee")


def page(name, drawn, size):
    """Panels in rows of three."""
    figure, panels = plt.subplots(len(drawn) // 3, 3, figsize=size)
    for draw, panel in zip(drawn, panels.flat, strict=True):
        draw(panel)
        panel.set_aspect("equal")
        panel.set_axis_off()
        panel.title.set_fontsize(9)
    figure.tight_layout()
    figure.savefig(STATIC / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Draw both."""
    page("constraints", (feet, welded, hinges, rod, coupled, locked), (8.0, 5.6))
    page("robots_with_loops", (four_bar, delta, legs), (8.0, 3.0))


if __name__ == "__main__":
    main()
