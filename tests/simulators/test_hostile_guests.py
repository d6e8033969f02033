"""Hostile objects at the entries of simulators: only errors of our own come out."""

from __future__ import annotations

import itertools
import warnings
from types import SimpleNamespace

import hostile_objects as hostile
import numpy as np
import pytest
from robots import own

import robodyn as rd

mujoco = pytest.importorskip("mujoco", reason="the extra 'mujoco' is not installed")
gym = pytest.importorskip("gymnasium", reason="the extra 'gymnasium' is not installed")
pytest.importorskip("rosbags", reason="the extra 'ros' is not installed")

from robodyn.simulators import ros  # noqa: E402
from robodyn.simulators.drake import system  # noqa: E402
from robodyn.simulators.gymnasium import RobodynEnv, RobodynVectorEnv  # noqa: E402
from robodyn.simulators.mujoco import Bridge  # noqa: E402

ARM = rd.load_urdf(own("arm6"))
DYN = rd.Dynamics(ARM, threads=1)
COMMON = ("__class__", "__getattr__", "__getattribute__", "__repr__", "__eq__", "__len__", "__iter__", "__array__")
Z6 = [0.0] * 6
MJ = mujoco.MjModel.from_xml_path(str(own("arm6")))
BRIDGE, DATA = Bridge(MJ, ARM), mujoco.MjData(MJ)


def ones(q, qd, action):
    return np.ones(len(q))


def env(**options):
    return RobodynEnv(**{"dyn": DYN, "reward": ones, **options})


def stepped():
    envs = RobodynVectorEnv(DYN, 1, reward=ones)
    envs.reset(seed=0)
    return envs.step


def returning(name):
    """What a function of a user's returns: of an environment that is there, since making one takes longer."""
    made = env(**({} if name == "reward" else {name: None}))

    def call(thing):
        setattr(made.task, "_" + name if name in ("reset", "observation") else name, lambda *given: thing)
        made.reset(seed=0)
        return made.step(np.zeros(6))

    return call


def told(field):
    message = {"name": list(ARM.joint_names), "position": Z6, "velocity": [], "effort": []}
    return lambda thing: ros.from_joint_state(ARM, SimpleNamespace(**{**message, field: thing}))


ENTRIES = {
    "mj_model": (Bridge, None),
    "Bridge's model": (lambda thing: Bridge(MJ, thing), ARM),
    "data": (BRIDGE.q, None),
    "tau": (lambda thing: BRIDGE.apply_torque(DATA, thing), Z6),
    "state": (lambda thing: BRIDGE.set_state(DATA, thing), Z6),
    "damping": (lambda thing: BRIDGE.passive(DATA, damping=thing), True),
    "dyn": (lambda thing: env(dyn=thing), DYN),
    "dt": (lambda thing: env(dt=thing), 0.01),
    "substeps": (lambda thing: env(substeps=thing), 1),
    "integrator": (lambda thing: env(integrator=thing), "implicit"),
    "actuation": (lambda thing: env(actuation=thing), "torque"),
    "joints": (lambda thing: env(joints=thing), ("elbow",)),
    "effort": (lambda thing: env(effort=thing), 1.0),
    "kp": (lambda thing: env(actuation="position", kp=thing, kd=1.0), 1.0),
    "limits": (lambda thing: env(limits=thing), ("effort",)),
    "observation_space": (lambda thing: env(observation_space=thing), None),
    "autoreset_mode": (lambda thing: RobodynVectorEnv(DYN, reward=ones, autoreset_mode=thing), "NextStep"),
    "action": (stepped(), np.zeros((1, 6))),
    "reward's": (returning("reward"), np.zeros(1)),
    "terminated's": (returning("terminated"), np.zeros(1, np.bool_)),
    "reset's": (returning("reset"), (np.zeros((1, 6)), np.zeros((1, 6)))),
    "observation's": (returning("observation"), np.zeros((1, 2))),
    "drake": (system, ARM),
    "message": (lambda thing: ros.from_joint_state(ARM, thing), None),
    "name": (told("name"), list(ARM.joint_names)),
    "position": (told("position"), Z6),
    "header": (told("header"), None),
    "message class": (lambda thing: ros.to_joint_state(ARM, Z6, message=thing), None),
    "description": (ros.from_robot_description, own("arm6").read_text()),
    "robot of a message": (lambda thing: ros.to_joint_state(thing, Z6), ARM),
    "topic": (lambda thing: ros.read_bag("/nowhere", ARM, topic=thing), "/joint_states"),
}


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.some(of=6, rest="matrix")
def test_only_errors_of_our_own(name):
    call, valid = ENTRIES[name]
    count = 0
    for what, thing in itertools.chain(
        hostile.liars(valid), hostile.metaclasses(), hostile.raisers(valid, (RuntimeError,), COMMON)
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                call(thing)
            except rd.RobodynError as error:
                assert str(error)
            except OSError:
                assert name == "topic"  # a bag that is not there
            except Exception as error:
                pytest.fail(f"{name}: {what}: {type(error).__name__}: {error}")
        count += 1
    assert count > 100
