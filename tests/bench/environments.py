"""How many steps a second environments make: `python -m tests.bench.environments [ENVS]`, on one thread.

Everything counts that an agent waits for: actions, a step of the dynamics, rewards, observations, and episodes that end
and begin again. Times are the least and the median of many steps by the clock, and the mean by the thread's own time.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import robodyn as rd
from robodyn.simulators.environments import arms_reach, cartpoles
from robodyn.simulators.gymnasium import RobodynVectorEnv

_STEPS, _EPISODE = 300, 100


def measure(envs: RobodynVectorEnv) -> tuple[float, float, float]:
    """Steps a second of all environments together: at best, in the median, and by the thread's own time."""
    envs.reset(seed=0)
    envs.action_space.seed(0)
    actions = envs.action_space.sample()
    for _ in range(_EPISODE // 2):
        envs.step(actions)
    wall, own = np.empty(_STEPS), np.empty(_STEPS)
    for k in range(_STEPS):
        start, mine = time.perf_counter(), time.thread_time()
        envs.step(actions)
        wall[k], own[k] = time.perf_counter() - start, time.thread_time() - mine
    # The mean of the thread's time has the steps in it in which all episodes begin anew.
    return envs.num_envs / wall.min(), envs.num_envs / float(np.median(wall)), envs.num_envs / float(own.mean())


def main() -> None:
    """Print a table."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    arm = rd.load_urdf(Path(__file__).resolve().parents[2] / "models" / "arm7.urdf")
    # The thread that asks is the one that computes.
    plain = RobodynVectorEnv(
        rd.Dynamics(arm, joint_forces="damping", threads=1),
        n,
        reward=lambda q, qd, action: -np.einsum("ij,ij->i", q, q) - 1e-3 * np.einsum("ij,ij->i", action, action),
        actuation="normalized",
        max_episode_steps=_EPISODE,
    )
    print(f"{n} environments, one thread, millions of steps a second: best, median, mean by the thread's time")
    for name, envs in (
        ("arm of 7 joints, rewards of q and action", plain),
        ("the same, reaching: rewards of link poses, limits", arms_reach(n, model=arm, max_episode_steps=_EPISODE)),
        ("arm of 4 joints, reaching", arms_reach(n, max_episode_steps=_EPISODE)),
        ("cart and pole", cartpoles(n, max_episode_steps=_EPISODE)),
    ):
        print(f"{name:<52}" + "".join(f"{1e-6 * rate:8.2f}" for rate in measure(envs)), flush=True)


if __name__ == "__main__":
    main()
