"""A quadruped learns to walk at 0.5 m/s in a minute, in PyTorch, and walks the same in MuJoCo.

Proximal policy optimisation (Schulman et al. 2017) on hundreds of robots that one call steps. Actions are targets of
drives around a posture, 50 times a second. A clock says which feet should be in the air: those of a trot. The noise of
actions shrinks while the robot learns, as it would otherwise learn to walk by noise.

    python 32_learning_to_walk.py [robot.urdf]

The robot is one with twelve joints, hip, thigh and knee of each leg, and links "..._foot", such as Unitree's Go2.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

import robodyn as rd

try:
    import torch
except ImportError:
    print("PyTorch is not installed (pip install '.[torch]'): nothing to learn with")
    raise SystemExit(0) from None
try:
    from robodyn.simulators.gymnasium import RobodynVectorEnv
except rd.UnavailableError:
    print("Gymnasium is not installed (pip install '.[gymnasium]'): nothing to learn in")
    raise SystemExit(0) from None
try:
    import mujoco
except ImportError:
    mujoco = None

ROBOT = Path(__file__).resolve().parent.parent / "models" / "quadruped.urdf"
SPEED, DT, SUBSTEPS, EPISODE = 0.5, 0.02, 5, 400
LEG = np.tile(np.float32([0.0, 0.8, -1.6]), 4)
RADIUS, FRICTION = 0.02, 0.8
KP, KD = 40.0, 0.6  # N m/rad, N m s/rad
REACH = 0.3  # rad: an action of 1
PERIOD, LIFT = 0.5, 0.06  # s and m of a step
SEED, ENVS, HORIZON, UPDATES, EPOCHS, MINIBATCHES = 0, 256, 24, 320, 4, 2
DISCOUNT, TRACE, CLIP, RATE, DIVERGENCE = 0.97, 0.95, 0.2, 1e-3, 0.015
NOISE = (-1.0, -2.5)  # logarithm of the standard deviation of actions, at first and at last


def squared(vectors: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", vectors, vectors)


class Walk:
    """The task: functions of batches of states. Goals hold the clock, and the last action."""

    def __init__(self, path: Path, dtype: str = "float32") -> None:
        bare = rd.load_urdf(path, base="floating")
        feet = [name for name in bare.link_names if name.endswith("foot")]
        ground = [rd.Contact(rd.Sphere(foot, radius=RADIUS), rd.Plane(), friction=FRICTION) for foot in feet]
        model = bare.with_contacts(ground, limits=False, dry_friction=False)
        self.model, self.dyn = model, rd.Dynamics(model, joint_forces="damping", dtype=dtype)
        stance = model.neutral()
        stance[7:] = LEG
        stance[2] = self.height = RADIUS - min(self.dyn.link_pose(stance, foot)[2, 3] for foot in feet)
        self.stance = stance
        # Feet at opposite corners move together: those whose x y has one sign.
        x, y = np.array([self.dyn.link_pose(stance, foot)[:2, 3] for foot in feet], dtype=np.float32).T
        self.phases = np.where(x * y > 0.0, np.float32(0.0), np.float32(np.pi))

    def envs(self, n: int, episode: int) -> RobodynVectorEnv:
        return RobodynVectorEnv(
            self.dyn, n, reward=self.reward, terminated=self.terminated, reset=self.reset, update=self.update,
            observation=self.observation, dt=DT, substeps=SUBSTEPS, integrator="mujoco", actuation="position", kp=KP,
            kd=KD, max_episode_steps=episode, autoreset_mode="SameStep",
        )  # fmt: skip

    def reset(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        away, qd = rng.uniform(-0.1, 0.1, (n, self.model.nv)), rng.uniform(-0.2, 0.2, (n, self.model.nv))
        away[:, :3] *= 0.1
        qd[:, 0] += rng.uniform(0.0, SPEED, n)
        goal = np.concatenate([rng.uniform(0.0, 2.0 * np.pi, (n, 1)), np.tile(LEG, (n, 1))], axis=1)
        return self.model.integrate(np.tile(self.stance, (n, 1)), away), qd, goal

    @staticmethod
    def update(q: np.ndarray, qd: np.ndarray, action: np.ndarray, goal: np.ndarray) -> np.ndarray:
        return np.concatenate([(goal[:, :1] + 2.0 * np.pi * DT / PERIOD) % (2.0 * np.pi), action], axis=1)

    @staticmethod
    def attitude(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The world's vertical in axes of the trunk (n, 3), and how far the trunk points to the left (n,)."""
        x, y, z, w = q[:, 3:7].T
        up = np.stack([2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)], axis=1)
        return up, 2.0 * (x * y + w * z)

    def observation(self, q: np.ndarray, qd: np.ndarray, goal: np.ndarray) -> np.ndarray:
        up, left = self.attitude(q)
        clock, last = goal[:, :1], (goal[:, 1:] - LEG) / REACH
        return np.concatenate(
            [3.0 * up, 2.0 * left[:, None], 2.0 * qd[:, :3], 0.5 * qd[:, 3:6], 2.0 * (q[:, 7:] - LEG), 0.1 * qd[:, 6:],
             last, np.sin(clock), np.cos(clock)], axis=1, dtype=np.float32,
        )  # fmt: skip

    def reward(self, q: np.ndarray, qd: np.ndarray, action: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """About 3 for a robot that walks straight on at the wished speed, lifting its feet in time."""
        up, left = self.attitude(q)
        u, v, w = q[:, 3:6], qd[:, :3], q[:, 6:7]
        across = 2.0 * np.cross(u, v)
        velocity = v + w * across + np.cross(u, across)  # in the world's axes
        heading = np.exp(-10.0 * left**2 - qd[:, 5] ** 2)
        speed = np.exp(-10.0 * ((velocity[:, 0] - SPEED) ** 2 + velocity[:, 1] ** 2))
        wished = LIFT * np.maximum(0.0, np.sin(goal[:, :1] + self.phases))
        trot = np.exp(-squared(self.dyn.contact_distances(q) - wished) / (4.0 * 0.02**2))
        cost = (
            velocity[:, 2] ** 2 + 0.05 * squared(qd[:, 3:5]) + 2.0 * squared(up[:, :2])
            + 30.0 * (q[:, 2] - self.height) ** 2 + 0.02 * squared(q[:, 7:] - LEG) + 2e-4 * squared(qd[:, 6:])
            + 0.005 / REACH**2 * squared(action - goal[:, 1:])
        )  # fmt: skip
        return speed + 0.5 * speed * heading + 0.2 * heading + trot + 0.3 - cost

    def terminated(self, q: np.ndarray, qd: np.ndarray, goal: np.ndarray) -> np.ndarray:
        return (q[:, 2] < 0.6 * self.height) | (self.attitude(q)[0][:, 2] < 0.7)


def network(*sizes: int) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [torch.nn.Linear(before, after), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


class Agent(torch.nn.Module):
    """A normal distribution of actions, whose mean a network knows, and another network for the value of a state."""

    def __init__(self, seen: int, acts: int) -> None:
        super().__init__()
        self.mean, self.value = network(seen, 64, 64, acts), network(seen, 64, 64, 1)
        self.log_deviation = NOISE[0]
        with torch.no_grad():
            self.mean[-1].weight *= 0.01

    def chance(self, mean: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """The logarithm of the density of actions, but for a constant."""
        return -0.5 * ((action - mean) * np.exp(-self.log_deviation)).square().sum(-1)

    def act(self, seen: np.ndarray) -> np.ndarray:
        """Targets of joints, without noise."""
        with torch.no_grad():
            return LEG + REACH * self.mean(torch.from_numpy(seen)).numpy()


def collected(envs: RobodynVectorEnv, agent: Agent, seen: np.ndarray) -> tuple[np.ndarray, dict[str, torch.Tensor]]:
    """What happens in HORIZON steps of all environments, with advantages (Schulman et al. 2016, eq. 16)."""
    states, actions = torch.empty(HORIZON + 1, ENVS, seen.shape[1]), torch.empty(HORIZON, ENVS, len(LEG))
    rewards, on = torch.empty(HORIZON, ENVS), torch.empty(HORIZON, ENVS)
    paid = 0.0
    with torch.no_grad():
        for t in range(HORIZON):
            states[t] = torch.from_numpy(seen)
            mean = agent.mean(states[t])
            actions[t] = mean + np.exp(agent.log_deviation) * torch.randn_like(mean)
            seen, reward, terminated, truncated, infos = envs.step(LEG + REACH * actions[t].numpy())
            paid += reward.mean() / HORIZON
            reward = reward * (1.0 - DISCOUNT)  # so that values are about as large as rewards are
            # An episode that was cut would have gone on: its last state is worth what the network says.
            cut = np.flatnonzero(truncated & ~terminated)
            if cut.size:
                last = torch.from_numpy(np.stack(infos["final_obs"][cut].tolist()))
                reward[cut] += DISCOUNT * agent.value(last)[:, 0].numpy()
            rewards[t], on[t] = torch.from_numpy(reward), torch.from_numpy(1.0 - (terminated | truncated))
        states[HORIZON] = torch.from_numpy(seen)
        values = agent.value(states)[..., 0]
        advantage, ahead = torch.empty_like(rewards), torch.zeros(ENVS)
        for t in reversed(range(HORIZON)):
            ahead = rewards[t] + DISCOUNT * on[t] * (values[t + 1] + TRACE * ahead) - values[t]
            advantage[t] = ahead
        chance = agent.chance(agent.mean(states[:-1]), actions)
    batch = {"seen": states[:-1], "action": actions, "chance": chance, "advantage": advantage}
    batch["target"] = advantage + values[:-1]
    flat = {name: each.flatten(0, 1) for name, each in batch.items()}
    flat["advantage"] = (flat["advantage"] - flat["advantage"].mean()) / (flat["advantage"].std() + 1e-8)
    return seen, {**flat, "paid": torch.tensor(paid)}


def improve(agent: Agent, optimiser: torch.optim.Optimizer, batch: dict[str, torch.Tensor]) -> float:
    """Several epochs on a clipped objective. Returns how far the policy moved: the Kullback-Leibler divergence."""
    moved = 0.0
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(batch["seen"])).chunk(MINIBATCHES):
            part = {name: batch[name][rows] for name in ("seen", "action", "chance", "advantage", "target")}
            log_ratio = agent.chance(agent.mean(part["seen"]), part["action"]) - part["chance"]
            ratio, gain = log_ratio.exp(), part["advantage"]
            policy = -torch.minimum(ratio * gain, ratio.clamp(1.0 - CLIP, 1.0 + CLIP) * gain).mean()
            loss = policy + (agent.value(part["seen"])[:, 0] - part["target"]).square().mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
            optimiser.step()
            moved = float((ratio - 1.0 - log_ratio).detach().mean())
    return moved


def learned(walk: Walk) -> Agent:
    envs = walk.envs(ENVS, EPISODE)
    seen, _ = envs.reset(seed=SEED)
    agent, rate = Agent(seen.shape[1], len(LEG)), RATE
    optimiser = torch.optim.Adam(agent.parameters(), lr=rate)
    envs.step(np.tile(LEG, (ENVS, 1)))  # compiles
    start, cpu = perf_counter(), process_time()
    for k in range(UPDATES):
        agent.log_deviation = NOISE[0] + (NOISE[1] - NOISE[0]) * min(1.0, 1.2 * k / UPDATES)
        seen, batch = collected(envs, agent, seen)
        moved = improve(agent, optimiser, batch)
        rate = max(1e-4, rate / 1.5) if moved > 2.0 * DIVERGENCE else rate
        rate = min(5e-3, rate * 1.5) if moved < 0.5 * DIVERGENCE else rate
        for group in optimiser.param_groups:
            group["lr"] = rate
        if k % 40 == 39:
            print(
                f"  {(k + 1) * ENVS * HORIZON:9,} steps, {perf_counter() - start:5.1f} s, of the processor "
                f"{process_time() - cpu:5.1f} s: reward {batch['paid']:.2f}",
                flush=True,
            )
    return agent


def walked(walk: Walk, agent: Agent, seconds: float = 10.0, n: int = 64) -> tuple[np.ndarray, np.ndarray, list]:
    """First states, mean rewards (n,) and the states over time of robots without noise."""
    envs = walk.envs(n, 1 << 30)
    seen, _ = envs.reset(seed=SEED + 1)
    first, states, rewards, fallen = envs.states, [], np.zeros(n), np.zeros(n, np.bool_)
    for _ in range(round(seconds / DT)):
        seen, reward, terminated, *_ = envs.step(agent.act(seen))
        rewards, fallen = rewards + reward, fallen | terminated
        states.append(envs.states)
    x = np.array([q[:, 0] for q, *_ in states])
    speed = (x[-1] - x[50]) / (DT * (len(x) - 51))
    print(
        f"{n} other robots walk for {seconds:.0f} s: {fallen.sum()} fall, the others' speed is "
        f"{speed[~fallen].mean():.3f} m/s +- {speed[~fallen].std():.3f}, reward {rewards.mean() / len(x):.3f}"
    )
    assert fallen.mean() < 0.05, "too many robots fall"
    assert abs(speed[~fallen].mean() - SPEED) < 0.1, "they walk at another speed"
    return first, rewards / len(x), states


def replay(
    walk: Walk, agent: Agent, first: tuple[np.ndarray, ...], rewards: np.ndarray, steps: int, n: int = 4
) -> None:
    """The same policy in MuJoCo, from the same states."""
    if mujoco is None:
        print("MuJoCo is not installed (pip install '.[mujoco]'): nothing to compare with")
        return
    m = mujoco.MjModel.from_xml_string(str(walk.model.to_mjcf()))
    m.opt.timestep = DT / SUBSTEPS
    d, c = mujoco.MjData(m), rd.converter(walk.model, "mujoco")
    effort, found = walk.model.effort_limit[6:], np.zeros(n)
    for i in range(n):
        q, qd, goal = (each[i].astype(np.float64) for each in first)
        mujoco.mj_resetData(m, d)
        d.qpos[:], d.qvel[:] = c.q_to(q), c.v_to(q, qd)
        for _ in range(steps):
            target = agent.act(walk.observation(q[None], qd[None], goal[None]))[0].astype(np.float64)
            for _ in range(SUBSTEPS):
                tau = np.zeros_like(qd)
                tau[6:] = np.clip(KP * (target - q[7:]) - KD * qd[6:], -effort, effort)
                d.qfrc_applied[:] = c.tau_to(q, tau)
                mujoco.mj_step(m, d)
                q = c.q_from(d.qpos)
                qd = c.v_from(q, d.qvel)
            found[i] += walk.reward(q[None], qd[None], target[None], goal[None])[0] / steps
            goal = walk.update(q[None], qd[None], target[None], goal[None])[0]
        print(f"MuJoCo, robot {i}: reward {found[i]:.3f}, here {rewards[i]:.3f}; it walked to x = {q[0]:.2f} m")
    assert np.abs(found / rewards[:n] - 1.0).max() < 0.05, "rewards differ by more than 5 %"


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # networks this small leave nothing for a second one
    walk = Walk(Path(sys.argv[1]) if len(sys.argv) > 1 else ROBOT)
    print(f"{walk.model.name}, {walk.model.total_mass:.1f} kg; seed {SEED}, {ENVS} robots")
    agent = learned(walk)
    first, rewards, states = walked(walk, agent)
    replay(walk, agent, first, rewards, len(states))


if __name__ == "__main__":
    main()
