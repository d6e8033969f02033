"""Trajectory optimisation with iLQR and DDP: a cart swings its pole up, an arm reaches. `14_ilqr.py [FIGURE.svg]`"""

import sys
import time
from pathlib import Path

import numpy as np

import robodyn as rd

np.set_printoptions(precision=4, suppress=True, linewidth=120)

MODELS = Path(__file__).resolve().parent.parent / "models"
KNOTS = 100

# A cart is pushed. Its pole hangs down and is to stand, at rest where it began.
cartpole = rd.Dynamics(rd.load_urdf(MODELS / "cartpole.urdf"), joint_forces=())
upright = rd.costs.Control(6e-4) + rd.costs.State(q=100.0, qd=10.0, q_goal=[0.0, 0.0], final=True)
hanging = [0.0, np.pi], [0.0, 0.0]
cart = cartpole.model.velocity_names[:1]

# An arm brings its tool to the far side, pointing down, and to rest, within its limits of effort.
arm = rd.Dynamics(rd.load_urdf(MODELS / "arm7.urdf"), joint_forces=())
s, c = np.sin(0.7), np.cos(0.7)
target = np.array([[-c, -s, 0.0, 0.45], [-s, c, 0.0, 0.40], [0.0, 0.0, -1.0, 0.25], [0.0, 0.0, 0.0, 1.0]])
reach = rd.costs.Control(0.02 / arm.model.effort_limit**2)
reach += rd.costs.State(qd=0.001 / arm.model.velocity_limit**2)
reach += rd.costs.State(qd=100.0, final=True) + rd.costs.Pose("tool0", target, weight=1e4, final=True)
ready = [-1.0, 0.3, 0.0, -1.4, 0.0, 0.8, 0.0], np.zeros(7)


def solved(name, dyn, cost, start, dt, **options):
    """Solve by both methods, and print what they took."""
    print(f"\n{name}: {KNOTS} steps of {dt} s, {dyn.model.nv} joints")
    found = {}
    for method in ("ilqr", "ddp"):
        begin = time.perf_counter()
        found[method] = run = rd.optimize_trajectory(
            dyn, cost, start, KNOTS, dt, method=method, iterations=300, **options
        )
        ms = 1e3 * (time.perf_counter() - begin)
        told = f"{run.status}, {run.iterations} iterations, cost {run.log[0]:.1f} -> {run.cost:.6f}; {ms:.0f} ms"
        print(f"  {method}: {told}")
    return found


def simulated(dyn, run, dt, gains, parts=10):
    """The last q when every step is integrated in several parts, with feedback through the gains at each."""
    q, qd = run.q[0], run.qd[0]
    for k, (tau, gain) in enumerate(zip(run.tau, gains, strict=True)):
        for part in range(parts):
            share = part / parts
            expected = [(1.0 - share) * each[k] + share * each[k + 1] for each in (run.q, run.qd)]
            off = np.concatenate([q - expected[0], qd - expected[1]])
            q, qd = dyn.step(q, qd, tau + gain @ off, dt / parts)
    return q


def draw(path, swung, reached):
    """Both motions, the inputs, and how the cost fell."""
    try:
        import matplotlib
    except ImportError:
        print("\nMatplotlib is not installed (pip install matplotlib): no figure")
        return
    matplotlib.use("Agg")
    matplotlib.rcParams.update(rd.plots.STYLE)
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(9.0, 6.4), layout="constrained")
    colours = matplotlib.colormaps["viridis"](np.linspace(0.9, 0.0, KNOTS + 1))

    panel = figure.add_subplot(2, 2, 1, aspect="equal", title="swing-up, light to dark", xlabel="x [m]", ylabel="z [m]")
    for T, colour in list(zip(cartpole.link_pose(swung["ddp"].q, "pole"), colours, strict=True))[::4]:
        foot, tip = T[:3, 3], (T @ [0.0, 0.0, 1.0, 1.0])[:3]
        panel.plot([foot[0], tip[0]], [foot[2], tip[2]], color=colour)

    panel = figure.add_subplot(2, 2, 2, projection="3d", title="reach, light to dark")
    joints = arm.forward_kinematics(reached["ilqr"].q)[..., :3, 3]
    for line, colour in list(zip(joints, colours, strict=True))[::10]:
        panel.plot(*line.T, color=colour)
    panel.plot(*joints[:, -1].T, color="black", linewidth=0.8)
    panel.set(xlabel="x [m]", ylabel="y [m]", zlabel="z [m]", aspect="equal")

    panel = figure.add_subplot(2, 2, 3, title="inputs", xlabel="time [s]", ylabel="part of the limit")
    for dyn, run, dt, style, label in (
        (cartpole, swung["ddp"], 0.03, "black", "force on the cart"),
        (arm, reached["ilqr"], 0.02, "C0", "torques of the arm"),
    ):
        driven = run.tau.any(axis=0)
        parts = run.tau[:, driven] / dyn.model.effort_limit[driven]
        panel.step(dt * np.arange(KNOTS), parts, where="post", color=style)[0].set_label(label)
    panel.legend()

    panel = figure.add_subplot(2, 2, 4, yscale="log", title="cost above the best", xlabel="iteration")
    for name, found in (("swing-up", swung), ("reach", reached)):
        best = min(run.cost for run in found.values())
        for method, run in found.items():
            panel.plot(np.maximum(run.log[:-1] - best, 1e-12), label=f"{name}, {method}")
    panel.legend()
    figure.savefig(path, metadata={"Date": None})
    print(f"\nfigure: {path}")


swung = solved("swing-up of a cart-pole", cartpole, upright, hanging, 0.03, actuated=cart)
reached = solved("reach with an arm", arm, reach, ready, 0.02, limits="effort")

end = np.concatenate([swung["ddp"].q[-1], swung["ddp"].qd[-1]])
print(f"\nthe pole ends {end[1]:.4f} rad from upright, {end[3]:.4f} rad/s; the cart {end[0]:.4f} m from its start")
run = reached["ilqr"]
error = rd.pose_error(arm.link_pose(run.q[-1], "tool0"), target)
angle, distance, speed = np.linalg.norm(error[:3]), np.linalg.norm(error[3:]), np.abs(run.qd[-1]).max()
print(f"the tool ends {1e3 * distance:.2f} mm and {angle:.5f} rad from its pose, at no more than {speed:.4f} rad/s")
alone, fed_back = (np.abs(simulated(arm, run, 0.02, gains) - run.q[-1]).max() for gains in (0.0 * run.gains, run.gains))
print(f"in ten times finer steps its torques alone end {alone:.3f} rad away, with feedback {fed_back:.3f}")
if len(sys.argv) > 1:
    draw(sys.argv[1], swung, reached)

# Check: the goals are reached, by both methods at the same cost, which never rises.
for found in (swung, reached):
    assert all(run.converged and (np.diff(run.log) <= 0.0).all() for run in found.values())
    assert abs(found["ddp"].cost / found["ilqr"].cost - 1.0) < 1e-6
assert np.abs(end).max() < 0.01, f"the pole does not stand: {end}"
assert distance < 1e-3 and angle < 1e-3 and speed < 1e-2 and fed_back < 0.1
assert swung["ddp"].iterations < 0.5 * swung["ilqr"].iterations, "second derivatives should save iterations"
