"""Example environments for Gymnasium: a cart-pole, an arm that reaches for points, a quadruped that walks."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.bridges.simulators.checks import require_model
from robodyn.bridges.simulators.gymnasium import Box, RobodynEnv, RobodynVectorEnv
from robodyn.core.contacts.kinds import Contact
from robodyn.core.description import Inertial, Joint, Limits, Link, Pose, RobotDescription
from robodyn.core.model import Model
from robodyn.core.shapes import Plane, Sphere
from robodyn.internals.arguments import Array
from robodyn.io.builders.assemble import build_model
from robodyn.io.builders.load import load_urdf

# Barto, Sutton and Anderson, "Neuronlike adaptive elements that can solve difficult learning control problems", IEEE
# Trans. SMC 13 (1983): cart 1 kg, pole 0.1 kg and 1 m long, force 10 N, track 2.4 m to each side, 12 degrees, 0.02 s.
_CARTPOLE = """
<robot name="cartpole">
  <link name="track"/>
  <joint name="slide" type="prismatic">
    <parent link="track"/><child link="cart"/><axis xyz="1 0 0"/>
    <limit lower="-2.4" upper="2.4" effort="10" velocity="10"/><dynamics friction="0.0005"/>
  </joint>
  <link name="cart"><inertial><mass value="1"/><inertia ixx="0.002" ixy="0" ixz="0" iyy="0.004" iyz="0" izz="0.004"/>
    </inertial></link>
  <joint name="hinge" type="continuous">
    <parent link="cart"/><child link="pole"/><axis xyz="0 1 0"/><limit effort="0" velocity="30"/>
    <dynamics damping="2e-06"/>
  </joint>
  <link name="pole"><inertial><origin xyz="0 0 0.5"/><mass value="0.1"/>
    <inertia ixx="0.00833583" ixy="0" ixz="0" iyy="0.00833583" iyz="0" izz="5e-06"/></inertial></link>
</robot>
"""
_TRACK, _TILT, _AROUND = 2.4, 0.2094, 0.05
_EFFORT_COST, _SPEED_COST = 1e-3, 1e-3
_LEG = (0.0, 0.8, -1.6)
_REACH, _HEIGHT, _LOW, _TOP_SPEED = 0.6, 0.31, 0.15, 1.0


def cartpole(**options: Any) -> RobodynEnv:
    """One "robodyn/CartPole-v0". The action is the force on the cart in units of 10 N. The reward is 1 for every step
    with the pole within 12 degrees and the cart on its track. Options are those of `RobodynEnv`."""
    return RobodynEnv(**{**_balance(), **options})


def cartpoles(num_envs: int = 1, **options: Any) -> RobodynVectorEnv:
    """Many cart-poles; options are those of `RobodynVectorEnv`."""
    return RobodynVectorEnv(num_envs=num_envs, **{**_balance(), **options})


def _balance() -> dict[str, Any]:
    model = load_urdf(_CARTPOLE)
    # Twice the bounds, so that an episode's last observation lies within them. Speeds are unbounded.
    high = np.array([2.0 * _TRACK, 2.0 * _TILT, np.inf, np.inf])

    def terminated(q: Array, qd: Array) -> Array:
        fallen: Array = (np.abs(q[:, 0]) > _TRACK) | (np.abs(q[:, 1]) > _TILT)
        return fallen

    def reset(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        q, qd = rng.uniform(-_AROUND, _AROUND, (2, n, 2))
        return q, qd

    return {
        "dyn": Dynamics(model, joint_forces=("damping", "friction")),
        "reward": lambda q, qd, action: np.ones(len(q)),
        "terminated": terminated,
        "reset": reset,
        "observation_space": Box(-high, high, dtype=np.float64),
        "dt": 0.02,
        "actuation": "normalized",
    }


def arm_reach(model: Model | None = None, link: str | None = None, **options: Any) -> RobodynEnv:
    """One "robodyn/ArmReach-v0": the origin of a link should reach a point of its workspace and stay there.

    Args:
        model: the arm, with effort limits; None for an arm with four joints.
        link: name of the link that reaches; None for the last one.
        options: those of `RobodynEnv`.

    Actions are forces relative to their limits. Observations are q, qd, and the vector from the link to the goal in
    world axes, m. The reward is minus the distance in m, minus 0.001 times the sums of squared actions and speeds.
    """
    return RobodynEnv(**{**_reach(model, link), **options})


def arms_reach(
    num_envs: int = 1, model: Model | None = None, link: str | None = None, **options: Any
) -> RobodynVectorEnv:
    """Many arms as in `arm_reach`; options are those of `RobodynVectorEnv`."""
    return RobodynVectorEnv(num_envs=num_envs, **{**_reach(model, link), **options})


def _reach(model: Model | None, link: str | None) -> dict[str, Any]:
    if model is None:
        model = _arm()
    require_model(model, ", or None")
    arm, tip = model, model.link_index(len(model.link_names) - 1 if link is None else link)
    # A step of many small robots takes a thread 1 ms at most; other threads are left to learning.
    dyn = Dynamics(arm, joint_forces=("damping", "friction"), threads=1, check=False)

    def reached(q: Array) -> Array:
        return dyn.link_pose(q, tip)[:, :3, 3]

    def reset(rng: np.random.Generator, n: int) -> tuple[Array, Array, Array]:
        goal = reached(arm.random_configuration(rng, (n,)))
        return arm.random_configuration(rng, (n,)), np.zeros((n, arm.nv)), goal

    def observation(q: Array, qd: Array, goal: Array) -> Array:
        return np.concatenate((q, qd, goal - reached(q)), axis=1)

    def reward(q: Array, qd: Array, action: Array, goal: Array) -> Array:
        away = goal - reached(q)
        # einsum takes a tenth of the time of squaring and summing.
        distance, effort, speed = (np.einsum("ij,ij->i", each, each) for each in (away, action, qd))
        rewards: Array = -np.sqrt(distance) - _EFFORT_COST * effort - _SPEED_COST * speed
        return rewards

    return {
        "dyn": dyn,
        "reward": reward,
        "reset": reset,
        "observation": observation,
        "dt": 0.02,
        "actuation": "normalized",
        "limits": ("velocity", "position"),
    }


def _arm() -> Model:
    """An arm with one vertical and three horizontal joint axes and rods of 0.2 to 0.3 m. Armature and damping are those
    of geared motors in arms of this size, so that 20 ms of torque add 2 rad/s at most to a joint without load."""
    links, joints = [Link("base")], []
    for k, (axis, length, mass, effort) in enumerate(
        (((0.0, 0.0, 1.0), 0.2, 2.0, 10.0), ((0.0, 1.0, 0.0), 0.3, 1.5, 20.0), ((0.0, 1.0, 0.0), 0.3, 1.0, 10.0),
         ((0.0, 1.0, 0.0), 0.2, 0.5, 3.0))
    ):  # fmt: skip
        across, along = mass * length**2 / 12.0, 0.5 * mass * 0.04**2
        inertial = Inertial(mass, Pose((0.0, 0.0, 0.5 * length)), (across, 0.0, 0.0, across, 0.0, along))
        links.append(Link(f"link_{k + 1}", inertial))
        origin = Pose((0.0, 0.0, 0.0 if k == 0 else (0.2, 0.3, 0.3)[k - 1]))
        limits = Limits(-2.5, 2.5, effort, 6.0)
        parent = links[-2].name
        joints.append(
            Joint(
                f"joint_{k + 1}",
                "revolute",
                parent,
                links[-1].name,
                origin,
                axis,
                limits=limits,
                damping=1.0,
                armature=0.1,
            )
        )
    links.append(Link("tip"))
    joints.append(Joint("tip_fixed", "fixed", links[-2].name, "tip", Pose((0.0, 0.0, 0.2))))
    return build_model(RobotDescription("arm", tuple(links), tuple(joints)))


def quadruped_walk(**options: Any) -> RobodynEnv:
    """One "robodyn/QuadrupedWalk-v0": a quadruped of 9 kg in the proportions of the Mini Cheetah walks along x.

    Args:
        options: those of `RobodynEnv`.

    Feet are spheres on a floor with friction 0.8. Actions are target positions of the 12 joints within 0.6 rad of a
    posture with bent knees, for drives of 40 N m/rad and 0.6 N m s/rad within 18 and 28 N m. Observations are q without
    x and y, and qd. The reward is the trunk's speed along x, 1 m/s at most, plus 0.2 for not being fallen, minus 0.0005
    times the sum of squared speeds of joints. Episodes end when the trunk is below 0.15 m or tilted by 60 degrees.
    """
    return RobodynEnv(**{**_walk(), **options})


def quadrupeds_walk(num_envs: int = 1, **options: Any) -> RobodynVectorEnv:
    """Many quadrupeds as in `quadruped_walk`; options are those of `RobodynVectorEnv`."""
    return RobodynVectorEnv(num_envs=num_envs, **{**_walk(), **options})


def _walk() -> dict[str, Any]:
    model = _quadruped()
    posture = model.neutral()
    posture[2], posture[7:] = _HEIGHT, np.tile(_LEG, 4)

    def reset(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        away, qd = rng.uniform(-_AROUND, _AROUND, (2, n, model.nv))
        return model.integrate(np.broadcast_to(posture, (n, model.nq)), away), qd

    def reward(q: Array, qd: Array, action: Array) -> Array:
        x, y, z, w = q[:, 3:7].T
        along = np.stack([1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)], axis=1)
        ahead = np.einsum("ij,ij->i", along, qd[:, :3])
        moving = np.einsum("ij,ij->i", qd[:, 6:], qd[:, 6:])
        rewards: Array = np.minimum(ahead, _TOP_SPEED) + 0.2 - 5e-4 * moving
        return rewards

    def terminated(q: Array, qd: Array) -> Array:
        up = 1.0 - 2.0 * (q[:, 3] ** 2 + q[:, 4] ** 2)
        fallen: Array = (q[:, 2] < _LOW) | (up < 0.5)
        return fallen

    return {
        "dyn": Dynamics(model, joint_forces="damping", threads=1, check=False),
        "reward": reward,
        "terminated": terminated,
        "reset": reset,
        "observation": lambda q, qd: np.concatenate((q[:, 2:], qd), axis=1),
        "dt": 0.02,
        "substeps": 10,
        "integrator": "mujoco",
        "actuation": "position",
        "kp": 40.0,
        "kd": 0.6,
    }


def _quadruped() -> Model:
    """Lengths, masses and torques after Katz, Di Carlo and Kim, "Mini Cheetah", ICRA 2019, as in models/quadruped.urdf.
    Ranges of joints are those of the actions; no rows hold them there."""
    links = [Link("trunk", Inertial(4.0, Pose(), (0.00653467, 0.0, 0.0, 0.0514667, 0.0, 0.0513347)))]
    joints, feet = [], []
    for end, x in (("front", 0.19), ("hind", -0.19)):
        for side, y in (("left", 1.0), ("right", -1.0)):
            parent = "trunk"
            for k, (name, origin, mass, centre, inertia, effort) in enumerate(
                (("hip", (x, 0.049 * y, 0.0), 0.54, (0.0, 0.036 * y, 0.0), (4.0217e-4, 0.0, 6.2208e-4, 4.0217e-4), 18),
                 ("thigh", (0.0, 0.062 * y, 0.0), 0.62, (0.0, 0.0154839 * y, -0.0235968),
                  (2.08494e-3, -2.26529e-4 * y, 2.25406e-3, 3.99585e-4), 18),
                 ("shank", (0.0, 0.0, -0.209), 0.09, (0.0, 0.0, -0.13), (3.85e-4, 0.0, 3.85e-4, 6.7e-6), 28))
            ):  # fmt: skip
                xx, yz, yy, zz = inertia
                link = f"{end}_{side}_{name}"
                links.append(Link(link, Inertial(mass, Pose(centre), (xx, 0.0, 0.0, yy, yz, zz))))
                axis = (1.0, 0.0, 0.0) if k == 0 else (0.0, 1.0, 0.0)
                limits = Limits(_LEG[k] - _REACH, _LEG[k] + _REACH, effort, 40.0)
                joints.append(
                    Joint(f"{link}_joint", "revolute", parent, link, Pose(origin), axis, limits=limits, damping=0.01)
                )
                parent = link
            feet.append(Contact(Sphere(parent, at=(0.0, 0.0, -0.195), radius=0.02), Plane(), friction=0.8))
    model = build_model(RobotDescription("quadruped", tuple(links), tuple(joints)), base="floating")
    return model.with_contacts(feet, limits=False)
