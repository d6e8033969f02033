"""A quadruped learns to walk at 0.5 m/s by gradients through its contacts, in PyTorch, and walks the same in MuJoCo.

A short-horizon actor-critic (Xu et al. 2022, https://arxiv.org/abs/2204.07137): returns of windows of 0.3 s are
differentiated through steps with contacts, by the actions of a policy; a second network knows what comes after. The
reward is that of 32_learning_to_walk.py, which learns by trial and error. docs/contacts.md compares them.

    python 35_learning_to_walk_by_gradients.py [robot.urdf]

The robot is one with twelve joints, hip, thigh and knee of each leg, and links "..._foot", such as Unitree's Go2.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

import robodyn as rd

try:
    import torch

    import robodyn.torch
except ImportError:
    print("PyTorch is not installed (pip install '.[torch]'): nothing to learn with")
    raise SystemExit(0) from None
try:
    import mujoco
except ImportError:
    mujoco = None

ROBOT = Path(__file__).resolve().parent.parent / "models" / "quadruped.urdf"
SPEED, DT, SUBSTEPS, EPISODE = 0.5, 0.02, 5, 400
LEG = torch.tensor([0.0, 0.8, -1.6] * 4)
RADIUS, FRICTION = 0.02, 0.8
KP, KD = 40.0, 0.6  # N m/rad, N m s/rad
REACH = 0.3  # rad: an action of 1
PERIOD, LIFT = 0.5, 0.06  # s and m of a step
SEED, ENVS, HORIZON, UPDATES, EPOCHS, MINIBATCHES = 0, 64, 16, 400, 2, 4
DISCOUNT, TRACE, FOLLOW = 0.97, 0.95, 0.1
FALLEN = -1.0  # the value of a robot that has fallen
LONGEST = 2.0  # of gradients of one robot's return by its state
RATE = (2e-3, 1e-4)  # of the policy, at first and at last
NOISE = (-1.0, -2.5)  # logarithm of the standard deviation of actions, at first and at last

State = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Of n robots: q (n, 19), qd (n, 18), the clock (n, 1) and the last action (n, 12)."""


def squared(vectors: torch.Tensor) -> torch.Tensor:
    return vectors.square().sum(-1)


class Walk:
    """The task: functions of batches of states, which PyTorch differentiates."""

    def __init__(self, path: Path) -> None:
        bare = rd.load_urdf(path, base="floating")
        # The damping of drives is that of joints: implicit, so that gradients do not grow at long steps.
        bare = replace(bare, tree_damping=bare.tree_damping + np.r_[np.zeros(6), np.full(12, KD)])
        feet = [name for name in bare.link_names if name.endswith("foot")]
        ground = [rd.Contact(rd.Sphere(foot, radius=RADIUS), rd.Plane(), friction=FRICTION) for foot in feet]
        self.model = bare.with_contacts(ground, limits=False, dry_friction=False)
        self.dyn = rd.Dynamics(self.model, joint_forces="damping", dtype="float32", threads=1)
        self.torch = robodyn.torch.wrap(self.dyn)
        self.stance = self.model.neutral()
        self.stance[7:] = LEG
        self.height = RADIUS - min(self.dyn.link_pose(self.stance, foot)[2, 3] for foot in feet)
        self.stance[2] = self.height
        # Feet at opposite corners move together: those whose x y has one sign.
        x, y = np.array([self.dyn.link_pose(self.stance, foot)[:2, 3] for foot in feet]).T
        self.phases = torch.from_numpy(np.where(x * y > 0.0, 0.0, np.pi).astype(np.float32))
        self.effort = self.model.effort_limit[6:].astype(np.float32)

    def reset(self, rng: np.random.Generator, n: int) -> State:
        away, qd = rng.uniform(-0.1, 0.1, (n, self.model.nv)), rng.uniform(-0.2, 0.2, (n, self.model.nv))
        away[:, :3] *= 0.1
        qd[:, 0] += rng.uniform(0.0, SPEED, n)
        q, clock = self.model.integrate(np.tile(self.stance, (n, 1)), away), rng.uniform(0.0, 2.0 * np.pi, (n, 1))
        q, qd, clock = (torch.from_numpy(each.astype(np.float32)) for each in (q, qd, clock))
        return q, qd, clock, torch.zeros(n, len(LEG))

    def torques(self, q: Any, target: Any) -> Any:
        """Of drives, but for their damping."""
        tau = np.zeros((len(q), self.model.nv), q.dtype)
        tau[:, 6:] = np.clip(KP * (target - q[:, 7:]), -self.effort, self.effort)
        return tau

    def after(self, state: State, action: torch.Tensor) -> State:
        q, qd, clock, _ = state
        q, qd = Controlled.apply(self, q, qd, LEG + REACH * action)
        return q, qd, clock + 2.0 * np.pi * DT / PERIOD, action

    @staticmethod
    def attitude(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The world's vertical in axes of the trunk (n, 3), and how far the trunk points to the left (n,)."""
        x, y, z, w = q[:, 3:7].T
        up = torch.stack([2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)], dim=1)
        return up, 2.0 * (x * y + w * z)

    def observation(self, state: State) -> torch.Tensor:
        q, qd, clock, last = state
        up, left = self.attitude(q)
        return torch.cat(
            [3.0 * up, 2.0 * left[:, None], 2.0 * qd[:, :3], 0.5 * qd[:, 3:6], 2.0 * (q[:, 7:] - LEG), 0.1 * qd[:, 6:],
             last, clock.sin(), clock.cos()], dim=1,
        )  # fmt: skip

    def reward(self, before: State, after: State) -> torch.Tensor:
        """About 3 for a robot that walks straight on at the wished speed, lifting its feet in time."""
        (_, _, clock, last), (q, qd, _, action) = before, after
        up, left = self.attitude(q)
        u, v, w = q[:, 3:6], qd[:, :3], q[:, 6:7]
        across = 2.0 * torch.linalg.cross(u, v)
        velocity = v + w * across + torch.linalg.cross(u, across)  # in the world's axes
        heading = torch.exp(-10.0 * left**2 - qd[:, 5] ** 2)
        speed = torch.exp(-10.0 * ((velocity[:, 0] - SPEED) ** 2 + velocity[:, 1] ** 2))
        wished = LIFT * (clock + self.phases).sin().clamp(min=0.0)
        trot = torch.exp(-squared(self.torch.contact_distances(q) - wished) / (4.0 * 0.02**2))
        cost = (
            velocity[:, 2] ** 2 + 0.05 * squared(qd[:, 3:5]) + 2.0 * squared(up[:, :2])
            + 30.0 * (q[:, 2] - self.height) ** 2 + 0.02 * squared(q[:, 7:] - LEG) + 2e-4 * squared(qd[:, 6:])
            + 0.005 * squared(action - last)
        )  # fmt: skip
        return speed + 0.5 * speed * heading + 0.2 * heading + trot + 0.3 - cost

    def fallen(self, q: torch.Tensor) -> torch.Tensor:
        return (q[:, 2] < 0.6 * self.height) | (self.attitude(q)[0][:, 2] < 0.7)


class Controlled(torch.autograd.Function):
    """The states (n, 19) and (n, 18) after a control step, whose drives have targets (n, 12).

    Backwards, the matrices of `step_gradient` of all substeps come from one call, which takes less than half the time
    of a graph of `robodyn.torch.step`.
    """

    @staticmethod
    def forward(ctx: Any, walk: Walk, q: torch.Tensor, qd: torch.Tensor, target: torch.Tensor) -> Any:
        states, wanted = [(q.numpy(), qd.numpy())], target.numpy()
        taus = []
        for _ in range(SUBSTEPS):
            taus.append(walk.torques(states[-1][0], wanted))
            states.append(walk.dyn.step(*states[-1], taus[-1], DT / SUBSTEPS, integrator="mujoco"))
        ctx.walk, ctx.states, ctx.taus = walk, states, taus
        return tuple(torch.from_numpy(each) for each in states[-1])

    @staticmethod
    def backward(ctx: Any, by_q: torch.Tensor, by_qd: torch.Tensor) -> Any:
        walk, n, nv = ctx.walk, len(by_q), by_qd.shape[1]
        rows = (*(np.concatenate(each) for each in zip(*ctx.states[:-1], strict=True)), np.concatenate(ctx.taus))
        A, B = walk.dyn.step_gradient(*rows, DT / SUBSTEPS, integrator="mujoco")
        A, B = (torch.from_numpy(each).unflatten(0, (SUBSTEPS, n)) for each in (A, B))
        # Of q (nq numbers) on the tangent space (nv), and back: dq/dt = N' qd, and N N' is 1, or 1/4 for turns.
        first, last = (
            walk.torch.coordinate_rate(torch.from_numpy(ctx.states[k][0])[:, None], torch.eye(nv)) for k in (0, -1)
        )
        g = torch.cat([torch.bmm(last, by_q[..., None])[..., 0], by_qd], 1)[:, None]
        # Where contacts begin and end, gradients of a few robots are far larger than those of all others.
        g = g * (LONGEST / ENVS / g.norm(dim=2, keepdim=True)).clamp(max=1.0)
        by_target = torch.zeros(n, len(LEG))
        for k in reversed(range(SUBSTEPS)):
            free = torch.from_numpy(np.abs(ctx.taus[k][:, 6:]) < walk.effort)
            stiff = KP * free * torch.bmm(g, B[k])[:, 0, 6:]
            g = torch.bmm(g, A[k])
            g[:, 0, 6:nv] -= stiff
            by_target += stiff
        g[:, 0, 3:6] *= 4.0
        return None, torch.bmm(g[..., :nv], first)[:, 0], g[:, 0, nv:], by_target


def network(*sizes: int) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [torch.nn.Linear(before, after), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


class Agent(torch.nn.Module):
    """A network for the mean of actions, one for the value of a state, and an older one of those."""

    def __init__(self, seen: int, acts: int) -> None:
        super().__init__()
        self.mean, self.value = network(seen, 64, 64, acts), network(seen, 64, 64, 1)
        with torch.no_grad():
            self.mean[-1].weight *= 0.01
        self.older = copy.deepcopy(self.value).requires_grad_(False)
        self.policy = torch.optim.Adam(self.mean.parameters(), betas=(0.9, 0.99))
        self.critic = torch.optim.Adam(self.value.parameters(), lr=1e-3)


def improved(walk: Walk, agent: Agent, state: State, noise: float) -> tuple[State, torch.Tensor, dict[str, Any]]:
    """A step of the policy along the gradient of the return of a window. Returns the last states, which robots have not
    fallen (n,), and what the critic learns from."""
    states, seen, on = [state], [walk.observation(state)], [torch.ones(ENVS)]
    for _ in range(HORIZON):
        mean = agent.mean(seen[-1])
        states.append(walk.after(states[-1], mean + noise * torch.randn_like(mean)))
        seen.append(walk.observation(states[-1]))
        on.append(on[-1] * ~walk.fallen(states[-1][0].detach()))
    before, after = ([torch.cat(each) for each in zip(*part, strict=True)] for part in (states[:-1], states[1:]))
    paid = walk.reward(before, after).view(HORIZON, ENVS)
    rewards = (1.0 - DISCOUNT) * paid.clamp(min=-20.0)  # so that values are about as large as rewards are
    weights = DISCOUNT ** torch.arange(HORIZON + 1)[:, None]
    alive = torch.stack(on)
    gain = (weights[:-1] * alive[:-1] * rewards).sum() + (weights[-1] * on[-1] * agent.older(seen[-1])[:, 0]).sum()
    agent.policy.zero_grad()
    (-gain / ENVS).backward()
    torch.nn.utils.clip_grad_norm_(agent.mean.parameters(), 1.0)
    agent.policy.step()
    data = {
        "seen": torch.stack(seen).detach(),
        "reward": rewards.detach(),
        "alive": alive,
        "paid": float(paid.detach().mean()),
    }
    return tuple(each.detach() for each in states[-1]), on[-1], data


def valued(agent: Agent, data: dict[str, Any]) -> None:
    """The critic learns TD(lambda) returns, computed by an older critic that follows it."""
    seen, rewards, alive = data["seen"], data["reward"], data["alive"]
    with torch.no_grad():
        values = agent.older(seen)[..., 0]
        returns, ahead = torch.empty_like(rewards), values[-1]
        for t in reversed(range(HORIZON)):
            ahead = torch.where(alive[t + 1] > 0.0, (1.0 - TRACE) * values[t + 1] + TRACE * ahead, FALLEN)
            ahead = rewards[t] + DISCOUNT * ahead
            returns[t] = ahead
    begun = alive[:-1] > 0.0
    seen, returns = seen[:-1][begun], returns[begun]
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(seen)).chunk(MINIBATCHES):
            loss = (agent.value(seen[rows])[:, 0] - returns[rows]).square().mean()
            agent.critic.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(agent.value.parameters(), 1.0)
            agent.critic.step()
    with torch.no_grad():
        for old, new in zip(agent.older.parameters(), agent.value.parameters(), strict=True):
            old.lerp_(new, FOLLOW)


def learned(walk: Walk) -> Agent:
    rng = np.random.default_rng(SEED)
    state, age = walk.reset(rng, ENVS), torch.from_numpy(rng.integers(0, EPISODE, ENVS))
    agent = Agent(walk.observation(state).shape[1], len(LEG))
    start, cpu = perf_counter(), process_time()
    for k in range(UPDATES):
        part = k / UPDATES
        agent.policy.param_groups[0]["lr"] = RATE[0] + (RATE[1] - RATE[0]) * part
        noise = np.exp(NOISE[0] + (NOISE[1] - NOISE[0]) * min(1.0, 1.2 * part))
        state, on, data = improved(walk, agent, state, noise)
        valued(agent, data)
        age += HORIZON
        anew = (on == 0.0) | (age >= EPISODE)
        if anew.any():
            for each, fresh in zip(state, walk.reset(rng, int(anew.sum())), strict=True):
                each[anew] = fresh
            age[anew] = 0
        if k % 100 == 99:
            print(
                f"  {(k + 1) * ENVS * HORIZON:9,} steps, {perf_counter() - start:5.1f} s, of the processor "
                f"{process_time() - cpu:5.1f} s: reward {data['paid']:.2f}",
                flush=True,
            )
    return agent


@torch.no_grad()
def walked(walk: Walk, agent: Agent, seconds: float = 10.0, n: int = 64) -> tuple[State, torch.Tensor, int]:
    """First states, mean rewards (n,) of robots without noise, and the number of steps."""
    first = state = walk.reset(np.random.default_rng(SEED + 1), n)
    rewards, fallen, x, steps = torch.zeros(n), torch.zeros(n, dtype=torch.bool), [], round(seconds / DT)
    for _ in range(steps):
        after = walk.after(state, agent.mean(walk.observation(state)))
        rewards += walk.reward(state, after) / steps
        state = after
        fallen |= walk.fallen(state[0])
        x.append(state[0][:, 0])
    speed = ((x[-1] - x[50]) / (DT * (steps - 51)))[~fallen]
    print(
        f"{n} other robots walk for {seconds:.0f} s: {int(fallen.sum())} fall, the others' speed is "
        f"{speed.mean():.3f} m/s +- {speed.std():.3f}, reward {rewards.mean():.3f}"
    )
    assert fallen.float().mean() < 0.05, "too many robots fall"
    assert abs(speed.mean() - SPEED) < 0.15, "they walk at another speed"
    return first, rewards, steps


@torch.no_grad()
def replay(walk: Walk, agent: Agent, first: State, rewards: torch.Tensor, steps: int, n: int = 4) -> None:
    """The same policy in MuJoCo, from the same states."""
    if mujoco is None:
        print("MuJoCo is not installed (pip install '.[mujoco]'): nothing to compare with")
        return
    m = mujoco.MjModel.from_xml_string(str(walk.model.to_mjcf()))
    m.opt.timestep = DT / SUBSTEPS
    d, c = mujoco.MjData(m), rd.converter(walk.model, "mujoco")
    for i in range(n):
        state, found = tuple(each[i : i + 1] for each in first), 0.0
        q, qd = (each[0].numpy().astype(np.float64) for each in state[:2])
        mujoco.mj_resetData(m, d)
        d.qpos[:], d.qvel[:] = c.q_to(q), c.v_to(q, qd)
        for _ in range(steps):
            action = agent.mean(walk.observation(state))
            target = (LEG + REACH * action).numpy().astype(np.float64)
            for _ in range(SUBSTEPS):
                d.qfrc_applied[:] = c.tau_to(q, walk.torques(q[None], target)[0])
                mujoco.mj_step(m, d)
                q = c.q_from(d.qpos)
            now = (torch.from_numpy(each[None].astype(np.float32)) for each in (q, c.v_from(q, d.qvel)))
            after = (*now, state[2] + 2.0 * np.pi * DT / PERIOD, action)
            found += float(walk.reward(state, after)) / steps
            state = after
        print(f"MuJoCo, robot {i}: reward {found:.3f}, here {rewards[i]:.3f}; it walked to x = {q[0]:.2f} m")
        assert abs(found / rewards[i] - 1.0) < 0.05, "rewards differ by more than 5 %"


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # networks this small leave nothing for a second one
    walk = Walk(Path(sys.argv[1]) if len(sys.argv) > 1 else ROBOT)
    print(f"{walk.model.name}, {walk.model.total_mass:.1f} kg; seed {SEED}, {ENVS} robots")
    agent = learned(walk)
    replay(walk, agent, *walked(walk, agent))


if __name__ == "__main__":
    main()
