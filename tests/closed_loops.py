"""Robots in MuJoCo, with MuJoCo's contacts, under whole-body control: standing, pushed, trotting, shifting weight."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import robodyn as rd

MODELS = Path(__file__).resolve().parent.parent / "models"
LEGS = tuple(f"{end}_{side}" for end in ("front", "hind") for side in ("left", "right"))
HEIGHT, RADIUS, FRICTION = 0.31, 0.02, 0.7
DT = 0.002
SWING, TRUNK = (900.0, 60.0), (100.0, 20.0)
"""kp and kd of feet that swing, and of the trunk."""
SOLE = (-0.1, 0.1), (-0.035, 0.035)
"""Corners of a humanoid's soles, m."""
PERIOD, LIFT = 0.36, 0.05
"""Duration of a step of two diagonal pairs, s, and how high feet swing, m."""


class World:
    """A robot on a plane in MuJoCo: `q`, `qd`, and `move(tau)` by one step, with forces (6,) on a body."""

    def __init__(self, model: rd.Model, q: np.ndarray, pushed: str) -> None:
        import mujoco

        self._mujoco, self.model, self.t = mujoco, model, 0.0
        self._m = mujoco.MjModel.from_xml_string(str(model.to_mjcf()))
        self._m.opt.timestep = DT
        self._d, self._c = mujoco.MjData(self._m), rd.converter(model, "mujoco")
        self._d.qpos[:] = self._c.q_to(q)
        self._body = self._m.body(pushed).id
        self.push = np.zeros(3)
        self.read()

    def read(self) -> None:
        """The state."""
        self.q = self._c.q_from(self._d.qpos)
        self.qd = self._c.v_from(self.q, self._d.qvel)

    def move(self, tau: np.ndarray) -> None:
        """One step."""
        self._d.qfrc_applied[:] = self._c.tau_to(self.q, tau)
        self._d.xfrc_applied[self._body, :3] = self.push
        self._mujoco.mj_step(self._m, self._d)
        self.t += DT
        self.read()

    @property
    def up(self) -> float:
        """The cosine of the base's tilt."""
        x, y = self.q[3], self.q[4]
        return 1.0 - 2.0 * (x * x + y * y)


def pose(p: np.ndarray) -> np.ndarray:
    """A pose without rotation."""
    T = np.eye(4)
    T[:3, 3] = p
    return T


def pushes(rng: np.random.Generator, seconds: float, force: float) -> Callable[[float], np.ndarray]:
    """Every two seconds a push of 0.1 s from another side."""
    angle = rng.uniform(0.0, 2.0 * np.pi, int(seconds) + 2)
    start = rng.uniform(0.5, 1.5, int(seconds) + 2)

    def at(t: float) -> np.ndarray:
        k = int(t // 2.0)
        if start[k] <= t - 2.0 * k < start[k] + 0.1:
            return force * np.array([np.cos(angle[k]), np.sin(angle[k]), 0.0])
        return np.zeros(3)

    return at


class Quadruped:
    """A quadruped that stands or trots.

    `still`: True to stand. `speed`: forwards, m/s. Swinging feet are those of the gait, whatever touches the ground.
    """

    def __init__(self, still: bool, speed: float = 0.3, dtype: str = "float64") -> None:
        model = rd.load_urdf(MODELS / "quadruped.urdf", base="floating")
        self.feet = [rd.Contact(rd.Sphere(f"{leg}_foot", radius=RADIUS), rd.Plane(), friction=FRICTION) for leg in LEGS]
        self.model = model.with_contacts(self.feet, cone="elliptic", impratio=10.0)
        self.dyn = rd.Dynamics(self.model, joint_forces="damping", dtype=dtype)
        self.still, self.speed = still, 0.0 if still else speed
        self.leg = np.tile([0.0, 0.75, -1.5], 4)
        self.q0 = np.concatenate([[0.0, 0.0, HEIGHT], [0.0, 0.0, 0.0, 1.0], self.leg])
        self.q0[2] += RADIUS - self.dyn.link_pose(self.q0.astype(dtype), "front_left_foot")[2, 3]
        weight = [0.0] * 6 + [1.0] * 12
        swing = [rd.Tracking(rd.PositionTask(f"{leg}_foot"), *SWING) for leg in LEGS]
        self.control = rd.WholeBodyControl(
            self.dyn,
            [
                rd.Tracking(rd.PoseTask("trunk"), *TRUNK, 5.0),
                *(() if still else swing),
                rd.Tracking(rd.PostureTask(self.q0, weight), 20.0, 5.0, 1e-2),
            ],
            self.feet,
            ("effort",),
        )
        self.home = np.array([self.dyn.link_pose(self.q0.astype(dtype), f"{leg}_foot")[:3, 3] for leg in LEGS], float)
        self.from_, self.pair = self.home.copy(), -1

    def policy(self, world: World) -> tuple[np.ndarray, rd.WholeBodyReport]:
        """tau and the report."""
        t, q, qd = world.t, world.q, world.qd
        base = np.array([self.speed * t, 0.0, self.q0[2]])
        if self.still:
            T = pose(base)[None]
            tau, _, _, report = self.control(q, qd, T)
            return tau, report
        phase = t / (0.5 * PERIOD)
        pair, s = int(phase) % 2, phase % 1.0
        swing = np.array([0, 3] if pair == 0 else [1, 2])
        places = np.array([self.dyn.link_pose(q, f"{leg}_foot")[:3, 3] for leg in LEGS])
        if self.pair != int(phase):
            self.from_, self.pair = places, int(phase)
        R = self.dyn.link_pose(q, "trunk")[:3, :3]
        v = R @ qd[:3]
        heading = np.array([self.speed, 0.0, 0.0])
        hip = q[:3] + (self.home - self.q0[:3]) * [1.0, 1.0, 0.0]
        half = 0.5 * PERIOD
        land = hip + v * (0.5 * half + (1.0 - s) * half) + 0.15 * (v - heading)
        land[:, 2] = RADIUS - 0.005
        targets = np.empty((5, 4, 4))
        targets[0] = pose(base)
        # Feed-forward of velocities and accelerations through the place of the target.
        kp, kd = SWING
        targets[0][:3, 3] += heading * TRUNK[1] / TRUNK[0]
        c = 0.5 - 0.5 * np.cos(np.pi * s)
        rate, bend = 0.5 * np.pi / half * np.sin(np.pi * s), 0.5 * (np.pi / half) ** 2 * np.cos(np.pi * s)
        rise = LIFT * np.array(
            [
                np.sin(np.pi * s) ** 2,
                np.pi / half * np.sin(2 * np.pi * s),
                2 * (np.pi / half) ** 2 * np.cos(2 * np.pi * s),
            ]
        )
        for k in range(4):
            way = land[k] - self.from_[k]
            p, pd, pdd = self.from_[k] + c * way, rate * way, bend * way
            p[2], pd[2], pdd[2] = p[2] + rise[0], pd[2] + rise[1], pdd[2] + rise[2]
            targets[1 + k] = pose(p + pd * kd / kp + pdd / kp) if k in swing else pose(places[k])
        active = np.ones(4, bool)
        active[swing] = False
        tau, _, _, report = self.control(q, qd, targets, active)
        return tau, report


class Humanoid:
    """A humanoid on four points a foot, which shifts its weight from side to side and reaches with its hands."""

    def __init__(self) -> None:
        model = rd.load_urdf(MODELS / "humanoid.urdf", base="floating")
        corners = [(x, y, 0.01) for x in SOLE[0] for y in SOLE[1]]
        self.feet = [
            rd.Contact(rd.Sphere(f"{side}_sole", at=at, radius=0.01), rd.Plane(), friction=FRICTION)
            for side in ("left", "right")
            for at in corners
        ]
        self.model = model.with_contacts(self.feet, cone="elliptic", impratio=10.0)
        self.dyn = rd.Dynamics(self.model, joint_forces="damping")
        q = self.model.neutral()
        for side in ("left", "right"):
            for joint, value in (("hip_pitch", -0.4), ("knee", 0.8), ("ankle_pitch", -0.4), ("elbow", -0.8)):
                q[self.model.q_start[self.model.joint_index(f"{side}_{joint}")]] = value
        q[2] -= self.dyn.link_pose(q, "left_sole")[2, 3]
        self.q0 = q
        self.com = self.dyn.center_of_mass(q)
        self.hands = [self.dyn.link_pose(q, f"{side}_hand")[:3, 3] for side in ("left", "right")]
        self.soles = [self.dyn.link_pose(q, f"{side}_sole")[:3, 3] for side in ("left", "right")]
        self.control = rd.WholeBodyControl(
            self.dyn,
            [
                rd.Tracking(rd.CoMTask(), 60.0, 15.0, 10.0),
                rd.Tracking(rd.PoseTask("thorax", (1.0, 0.0)), 60.0, 15.0, 1.0),
                *(rd.Tracking(rd.PositionTask(f"{side}_hand"), 60.0, 15.0, 1.0) for side in ("left", "right")),
                rd.Tracking(rd.PostureTask(q, [0.0] * 6 + [1.0] * (self.model.nv - 6)), 30.0, 8.0, 2e-2),
            ],
            self.feet,
            ("effort",),
        )
        middle = 0.5 * (self.soles[0] + self.soles[1])
        self.middle = np.array([middle[0] + 0.5 * sum(SOLE[0]), middle[1]])

    def policy(self, world: World) -> tuple[np.ndarray, rd.WholeBodyReport]:
        """tau and the report."""
        t = world.t
        shift = 0.6 * (self.soles[0][1] - self.middle[1]) * np.sin(2.0 * np.pi * t / 4.0)
        com = np.array([self.middle[0], self.middle[1] + shift, self.com[2] + 0.02 * np.sin(t)])
        reach = np.array([0.06 * np.sin(t), 0.03 * np.cos(t), 0.1 * np.sin(0.7 * t)])
        targets = np.stack([pose(com), pose(com), *(pose(hand + reach) for hand in self.hands)])
        tau, _, _, report = self.control(world.q, world.qd, targets)
        return tau, report


def run(robot: Quadruped | Humanoid, seconds: float, seed: int, force: float) -> dict[str, float]:
    """A robot in MuJoCo for some time: whether it fell, the least height and tilt, and states without torques."""
    rng = np.random.default_rng(seed)
    start = robot.model.integrate(robot.q0, 0.01 * rng.normal(size=robot.model.nv) * (np.arange(robot.model.nv) >= 6))
    world = World(robot.model, start, "trunk" if isinstance(robot, Quadruped) else "pelvis")
    push = pushes(rng, seconds, force)
    least, lost, height, tau = 1.0, 0, np.inf, np.zeros(robot.model.nv)
    for _ in range(round(seconds / DT)):
        world.push = push(world.t)
        wanted, report = robot.policy(world)
        if report.feasible:
            tau = wanted
        else:
            lost += 1
        world.move(tau)
        least, height = min(least, world.up), min(height, world.q[2])
        if not (world.q[2] > 0.6 * robot.q0[2] and world.up > 0.5):
            return {"fell": world.t, "up": least, "height": height, "lost": lost}
    return {"fell": 0.0, "up": least, "height": height, "lost": lost, "far": float(np.abs(world.q[:2]).max())}
