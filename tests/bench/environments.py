"""How many steps a second environments make: `python -m tests.bench.environments [ENVS]`, on one thread.

Everything counts that an agent waits for: actions, a step of the dynamics, rewards, observations, and episodes that end
and begin again.
"""

from __future__ import annotations

import sys

import numpy as np

import robodyn as rd
from robodyn.simulators.environments import arms_reach, cartpoles
from robodyn.simulators.gymnasium import RobodynVectorEnv
from robodyn.tools.benchmark.timing import measure
from tests.bench.shared import robot

_SECONDS, _EPISODE = 3.0, 100

if __name__ == "__main__":
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    plain = RobodynVectorEnv(
        rd.Dynamics(robot("arm7"), joint_forces="damping", threads=1),  # the thread that asks is the one that computes
        n,
        reward=lambda q, qd, action: -np.einsum("ij,ij->i", q, q) - 1e-3 * np.einsum("ij,ij->i", action, action),
        actuation="normalized",
        max_episode_steps=_EPISODE,
    )
    print(f"{n} environments, one thread, millions of steps a second: at best, in the median")
    for name, envs in {
        "arm of 7 joints, rewards of q and action": plain,
        "the same, reaching: rewards of link poses, limits": arms_reach(
            n, model=robot("arm7"), max_episode_steps=_EPISODE
        ),
        "arm of 4 joints, reaching": arms_reach(n, max_episode_steps=_EPISODE),
        "cart and pole": cartpoles(n, max_episode_steps=_EPISODE),
    }.items():
        envs.reset(seed=0)
        envs.action_space.seed(0)
        actions = envs.action_space.sample()
        timing = measure(lambda envs=envs, actions=actions: envs.step(actions), _SECONDS)  # type: ignore[misc]
        print(
            f"{name:<52}" + "".join(f"{1e-6 * n / each:8.2f}" for each in (timing.best_s, timing.median_s)), flush=True
        )
