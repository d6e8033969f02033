"""Model predictive control in MuJoCo: the tool of an arm follows a moving goal, and the arm is pushed.

MuJoCo's joints have dry friction, of which plans know nothing. Prints how well the tool follows, and how often a second
the controller could be called.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import robodyn as rd

try:
    import mujoco
except ImportError:
    print("MuJoCo is not installed (pip install '.[mujoco]'): nothing to simulate with")
    raise SystemExit(0) from None

PATH = Path(__file__).resolve().parent.parent / "models" / "arm7.urdf"
STEP, EVERY, SECONDS = 0.001, 2, 4.0  # s of MuJoCo's steps; steps between calls of the controller; s
HORIZON, DT = 20, 0.02  # steps of plans, s
PUSHED, LASTING, PUSH = 2.0, 0.1, 40.0  # s, s, N m at the shoulder

model = rd.load_urdf(PATH)
dyn = rd.Dynamics(model, joint_forces="damping", threads=1)
simulated = mujoco.MjModel.from_xml_path(str(PATH))
simulated.opt.timestep = STEP
data = mujoco.MjData(simulated)

ready = np.array([0.0, 0.6, 0.0, -1.3, 0.0, 0.9, 0.0])
pose = dyn.link_pose(ready, "tool0")
weight = (20.0, 500.0)  # of rotation and position
cost = rd.costs.Control(1e-5, tau_goal=dyn.gravity_force(ready)) + rd.costs.State(q=0.01, qd=0.02, q_goal=ready)
cost += rd.costs.Pose("tool0", pose, weight) + rd.costs.Pose("tool0", pose, weight, final=True)
mpc = rd.Mpc(dyn, cost, steps=HORIZON, dt=DT, limits="effort")


def wanted(t: np.ndarray | float) -> np.ndarray:
    """(..., 4, 4): the tool draws a figure of eight, 20 cm wide, in front of the arm."""
    share, turn = np.minimum(1.0, np.asarray(t)), np.pi * np.asarray(t)
    poses = np.tile(pose, (*np.shape(t), 1, 1))
    poses[..., 1, 3] += 0.1 * share * np.sin(turn)
    poses[..., 2, 3] += 0.05 * share * np.sin(2.0 * turn)
    return poses


ahead = DT * np.arange(HORIZON + 1)
data.qpos[:] = ready
times, errors, tau = [], [], np.zeros(model.nv)
for k in range(round(SECONDS / STEP)):
    t = k * STEP
    if k % EVERY == 0:
        begin = time.perf_counter()
        tau = mpc(data.qpos, data.qvel, goal=wanted(t + ahead), elapsed=EVERY * STEP)
        times.append(time.perf_counter() - begin)
    data.qfrc_applied[:] = tau
    if PUSHED <= t < PUSHED + LASTING:
        data.qfrc_applied[0] += PUSH
    mujoco.mj_step(simulated, data)
    errors.append(rd.pose_error(dyn.link_pose(data.qpos, "tool0"), wanted(t + STEP)))

off = np.linalg.norm(np.array(errors)[:, 3:], axis=1)
before, after = off[: round(PUSHED / STEP)].max(), off[round((PUSHED + 1.0) / STEP) :].max()
median, tail = np.percentile(times[1:], (50, 99))
print(f"the tool follows to {1e3 * before:.1f} mm, and to {1e3 * after:.1f} a second after a push of {PUSH:.0f} N m")
print(f"in between it is {1e3 * off.max():.0f} mm off")
rate = f"{1.0 / median:.0f} a second; it is called {1.0 / (EVERY * STEP):.0f} times"
print(f"a call takes {1e6 * median:.0f} us in the median, 99 of 100 take at most {1e6 * tail:.0f}: {rate}")

# Check: it follows, and again after the push.
assert before < 0.01 and after < 0.01
