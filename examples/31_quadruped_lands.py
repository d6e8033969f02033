"""A quadruped is dropped, lands on its feet, is pushed and recovers: contacts with friction, on flat and rough ground.

Drives hold a posture, within the limits of their torques. Sixteen robots fall from other heights and attitudes and are
pushed to other sides, as a batch. MuJoCo, where it is installed, moves one of them the same way.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import robodyn as rd

try:
    import mujoco
except ImportError:
    mujoco = None

PATH = Path(__file__).resolve().parent.parent / "models" / "quadruped.urdf"
FEET = tuple(f"{end}_{side}_foot" for end in ("front", "hind") for side in ("left", "right"))
RADIUS, FRICTION = 0.02, 0.8
DT, SECONDS, ROBOTS = 0.002, 2.5, 16
PUSHED, LASTING, PUSH = 1.2, 0.1, 60.0  # s, s, N: 0.67 m/s if nothing held
LEG = np.tile([0.0, 0.8, -1.6], 4)
KP, KD = 40.0, 1.2  # N m/rad, N m s/rad


def rough() -> rd.HeightField:
    """Ground of 2.4 m by 2.4 m, up to 1.5 cm high and low, in cells of 0.2 m."""
    heights = np.random.default_rng(0).uniform(-0.015, 0.015, (13, 13))
    return rd.HeightField(None, heights, (2.4, 2.4))


def on(ground: rd.Plane | rd.HeightField) -> rd.Dynamics:
    """The robot with round feet that the ground carries."""
    model = rd.load_urdf(PATH, base="floating")
    feet = [rd.Contact(rd.Sphere(foot, radius=RADIUS), ground, friction=FRICTION) for foot in FEET]
    return rd.Dynamics(model.with_contacts(feet), joint_forces="damping")


def starts(model: rd.Model) -> np.ndarray:
    """Postures 5 to 15 cm above the ground, tilted by up to 0.15 rad."""
    rng = np.random.default_rng(1)
    step = np.zeros((ROBOTS, model.nv))
    step[:, 3:6] = rng.uniform(-0.15, 0.15, (ROBOTS, 3))
    q = np.tile(model.neutral(), (ROBOTS, 1))
    q[:, 2], q[:, 7:] = rng.uniform(0.36, 0.46, ROBOTS), LEG
    return model.integrate(q, step)


def held(t: float, q: np.ndarray, qd: np.ndarray, side: np.ndarray) -> np.ndarray:
    """Torques of the drives, and for a while a push (3,) on the trunk, N in its axes."""
    tau = np.zeros_like(qd)
    tau[..., 6:] = np.clip(KP * (LEG - q[..., 7:]) - KD * qd[..., 6:], -18.0, 18.0)
    if PUSHED <= t + 0.5 * DT < PUSHED + LASTING:
        tau[..., :3] = side
    return tau


def sides() -> np.ndarray:
    """(robots, 3): pushes all around."""
    angle = np.linspace(0.0, 2.0 * np.pi, ROBOTS, endpoint=False)
    return PUSH * np.stack([np.cos(angle), np.sin(angle), 0.0 * angle], axis=1)


def simulate(dyn: rd.Dynamics, name: str) -> rd.Rollout:
    """All robots; after the fall and after the push they must stand."""
    model, push = dyn.model, sides()
    run = dyn.rollout(
        starts(model), np.zeros((ROBOTS, model.nv)), dt=DT, steps=round(SECONDS / DT), integrator="mujoco",
        policy=lambda t, q, qd: held(t, q, qd, push),
    )  # fmt: skip
    assert run.converged.all(), "contact forces did not converge"
    weight = 9.81 * model.total_mass
    for what, k in (("landed", round(PUSHED / DT) - 1), ("recovered", len(run.t) - 1)):
        q, qd = run.q[k], run.qd[k]
        _, f = dyn.contact_forward_dynamics(q, qd, held(run.t[k], q, qd, push), dt=DT)
        up = np.einsum("...ij,...j->...i", dyn.contact_frames(q)[..., :3, :3], f)[..., 2]
        tilt = np.arccos(np.clip(dyn.link_pose(q, "trunk")[:, 2, 2], -1.0, 1.0))
        print(
            f"{name:<6} {what:<9} at {run.t[k]:.1f} s: feet carry {up.sum(axis=1).min() / weight:.2f} to "
            f"{up.sum(axis=1).max() / weight:.2f} of the weight, each at least {up.min():.1f} N; trunks are up to "
            f"{tilt.max():.2f} rad from level, speeds up to {np.abs(qd).max():.3f}"
        )
        assert up.min() > 0.0, f"{name}, {what}: a foot is in the air"
        assert np.abs(up.sum(axis=1) / weight - 1.0).max() < 0.05, f"{name}, {what}: not at rest"
        assert tilt.max() < 0.3, f"{name}, {what}: a robot has fallen"
    return run


def replay(dyn: rd.Dynamics, run: rd.Rollout, robot: int) -> None:
    """The same robot in MuJoCo, under the same policy."""
    if mujoco is None:
        print("MuJoCo is not installed (pip install '.[mujoco]'): nothing to compare with")
        return
    m = mujoco.MjModel.from_xml_string(str(dyn.model.to_mjcf()))
    m.opt.timestep, m.opt.tolerance, m.opt.iterations = DT, 0.0, 100
    d, c, push = mujoco.MjData(m), rd.converter(dyn.model, "mujoco"), sides()[robot]
    d.qpos[:] = c.q_to(run.q[0, robot])
    worst = 0.0
    for k, t in enumerate(run.t[:-1]):
        q = c.q_from(d.qpos)
        d.qfrc_applied[:] = c.tau_to(q, held(t, q, c.v_from(q, d.qvel), push))
        mujoco.mj_step(m, d)
        q = c.q_from(d.qpos)
        worst = max(worst, np.abs(dyn.model.difference(q, run.q[k + 1, robot])).max())
    print(f"MuJoCo: positions differ by at most {worst:.0e} m or rad in {len(run.t) - 1} steps")
    assert worst < 1e-6, f"MuJoCo moves otherwise: {worst:.1e}"


def draw(dyn: rd.Dynamics, runs: dict[str, rd.Rollout], path: str) -> None:
    """Heights of trunks over time, and their paths seen from above."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("Matplotlib is not installed (pip install '.[bench]'): no figure")
        return
    mpl.use("Agg")
    mpl.rcParams.update(rd.plots.STYLE)
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")
    for (name, run), color in zip(runs.items(), rd.plots.COLORS, strict=False):
        lines = left.plot(run.t[::5], run.q[::5, :, 2], color=color, linewidth=0.6)
        right.plot(run.q[::5, :, 0] - run.q[0, :, 0], run.q[::5, :, 1] - run.q[0, :, 1], color=color, linewidth=0.6)
        lines[0].set_label(name)
    left.axvspan(PUSHED, PUSHED + LASTING, color="#dddddd")
    left.set(xlabel="time (s)", ylabel="height of the trunk (m)", title="dropped, and pushed at 1.2 s")
    left.legend()
    right.set(xlabel="x (m)", ylabel="y (m)", title="trunks from above", aspect="equal")
    figure.savefig(path, metadata={"Date": None})
    print(f"wrote {path}")


def main() -> None:
    flat = on(rd.Plane())
    print(f"{ROBOTS} robots of {flat.model.total_mass:.1f} kg, steps of {1e3 * DT:.0f} ms, pushed by {PUSH:.0f} N")
    runs = {"flat": simulate(flat, "flat")}
    replay(flat, runs["flat"], 3)
    runs["rough"] = simulate(on(rough()), "rough")
    if len(sys.argv) > 1:
        draw(flat, runs, sys.argv[1])


if __name__ == "__main__":
    main()
