"""A policy gradient in PyTorch: an arm learns to reach for points, in hundreds of environments stepped in one call."""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter

import numpy as np

try:
    import torch
except ImportError:
    print("PyTorch is not installed (pip install '.[torch]'): nothing to learn with")
    raise SystemExit(0) from None
try:
    import gymnasium
except ImportError:
    print("Gymnasium is not installed (pip install '.[gymnasium]'): nothing to learn in")
    raise SystemExit(0) from None

SEED, ENVS, HORIZON, UPDATES, EPISODE = 0, 512, 32, 120, 100
EPOCHS, MINIBATCHES = 8, 8
DISCOUNT, TRACE, CLIP = 0.95, 0.95, 0.2
RATE, VALUE = 1.5e-3, 0.5
NEAR = 0.1
# Actions are angles for drives, as robots that learn mostly have them: N m/rad and N m s/rad within the arm's torques.
ARM = {
    "id": "robodyn.simulators.gymnasium:robodyn/ArmReach-v0",
    "actuation": "position",
    "kp": [40.0, 60.0, 40.0, 10.0],
    "kd": [4.0, 6.0, 4.0, 1.0],
}


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
        self.log_deviation = torch.nn.Parameter(torch.full((acts,), -0.5))
        with torch.no_grad():
            self.mean[-1].weight *= 0.01

    def distribution(self, seen: torch.Tensor) -> torch.distributions.Normal:
        return torch.distributions.Normal(self.mean(seen), self.log_deviation.exp())


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(array, dtype=torch.float32)


def advantages(rewards: torch.Tensor, values: torch.Tensor, ended: torch.Tensor) -> torch.Tensor:
    """Generalised advantage estimates (Schulman et al. 2016, eq. 16) of rewards (T, n) and values (T + 1, n)."""
    found, ahead = torch.empty_like(rewards), torch.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        on = 1.0 - ended[t]
        ahead = rewards[t] + DISCOUNT * on * values[t + 1] - values[t] + DISCOUNT * TRACE * on * ahead
        found[t] = ahead
    return found


def collected(envs, agent: Agent, seen: np.ndarray) -> tuple[np.ndarray, dict[str, torch.Tensor]]:
    """What happens in HORIZON steps of all environments."""
    kept: dict[str, list[torch.Tensor]] = {
        name: [] for name in ("seen", "action", "chance", "reward", "ended", "value")
    }
    with torch.no_grad():
        for _ in range(HORIZON):
            now = tensor(seen)
            chosen = agent.distribution(now)
            action = chosen.sample()
            seen, reward, terminated, truncated, infos = envs.step(action.numpy().astype(np.float64))
            reward = reward * (1.0 - DISCOUNT)  # so that values are about as large as rewards are
            # An episode that was cut would have gone on: its last state is worth what the network says.
            cut = np.flatnonzero(truncated & ~terminated)
            if cut.size:
                last = tensor(np.stack(infos["final_obs"][cut].tolist()))
                reward[cut] += DISCOUNT * agent.value(last)[:, 0].numpy()
            told = (now, action, chosen.log_prob(action).sum(-1), tensor(reward), tensor(terminated | truncated))
            for name, value in zip(kept, (*told, agent.value(now)[:, 0]), strict=True):
                kept[name].append(value)
        batch = {name: torch.stack(values) for name, values in kept.items()}
        values = torch.cat((batch.pop("value"), agent.value(tensor(seen))[None, :, 0]))
        batch["advantage"] = advantages(batch["reward"], values, batch["ended"])
        batch["target"] = batch["advantage"] + values[:-1]
    return seen, {name: value.flatten(0, 1) for name, value in batch.items()}


def improve(agent: Agent, optimiser: torch.optim.Optimizer, batch: dict[str, torch.Tensor]) -> None:
    """Proximal policy optimisation (Schulman et al. 2017): several epochs on a clipped objective."""
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(batch["seen"])).chunk(MINIBATCHES):
            part = {name: value[rows] for name, value in batch.items()}
            chosen, gain = agent.distribution(part["seen"]), part["advantage"]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            ratio = (chosen.log_prob(part["action"]).sum(-1) - part["chance"]).exp()
            policy = -torch.minimum(ratio * gain, ratio.clamp(1.0 - CLIP, 1.0 + CLIP) * gain).mean()
            value = (agent.value(part["seen"])[:, 0] - part["target"]).square().mean()
            loss = policy + VALUE * value
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimiser.step()


def distances(agent: Agent, seed: int) -> np.ndarray:
    """How far 256 arms are from goals that they have not seen before, at the end of an episode without noise."""
    envs = gymnasium.make_vec(**ARM, num_envs=256, max_episode_steps=10_000)
    seen, _ = envs.reset(seed=seed)
    for _ in range(EPISODE):
        with torch.no_grad():
            action = agent.mean(tensor(seen)).numpy().astype(np.float64)
        seen, *_ = envs.step(action)
    return np.linalg.norm(seen[:, -3:], axis=1)


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # networks this small leave nothing for a second one
    envs = gymnasium.make_vec(**ARM, num_envs=ENVS, max_episode_steps=EPISODE, autoreset_mode="SameStep")
    seen, _ = envs.reset(seed=SEED)
    # Episodes that begin at different times: a batch has all parts of them.
    rng = np.random.default_rng(SEED)
    for _ in range(EPISODE):
        envs.step(np.zeros((ENVS, envs.single_action_space.shape[0])))
        mask = rng.random(ENVS) < 2.0 / EPISODE
        if mask.any():
            seen, _ = envs.reset(options={"reset_mask": mask})
    agent = Agent(seen.shape[1], envs.single_action_space.shape[0])
    optimiser = torch.optim.Adam(agent.parameters(), lr=RATE)
    before = distances(agent, SEED + 1)
    print(f"before: {100 * np.median(before):.0f} cm from the goal in the median")
    start = perf_counter()
    for k in range(UPDATES):
        for group in optimiser.param_groups:
            group["lr"] = RATE * (1.0 - k / UPDATES)
        seen, batch = collected(envs, agent, seen)
        improve(agent, optimiser, batch)
        if k % 20 == 19:
            steps, took = (k + 1) * ENVS * HORIZON, perf_counter() - start
            print(
                f"  {steps:9,} steps, {took:5.1f} s: mean reward {batch['reward'].mean() / (1.0 - DISCOUNT):.3f}",
                flush=True,
            )
    after = distances(agent, SEED + 1)
    print(f"after: {100 * np.median(after):.1f} cm in the median, {100 * np.mean(after < NEAR):.0f} % within 10 cm")

    assert np.median(after) < 0.25 * np.median(before), "the arm has not learnt to reach"
    assert np.mean(after < NEAR) > 0.5, "most goals are not reached"


if __name__ == "__main__":
    main()
