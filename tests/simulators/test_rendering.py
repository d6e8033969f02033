"""What environments draw: pictures of what is there, and the viewer live."""

from __future__ import annotations

import time

import numpy as np
import pytest
from robots import own

import robodyn as rd

gym = pytest.importorskip("gymnasium", reason="the extra 'gymnasium' is not installed")

from gymnasium.utils.passive_env_checker import env_render_passive_checker  # noqa: E402

from robodyn.simulators.gymnasium import RobodynEnv, RobodynVectorEnv  # noqa: E402

BALL = """<robot name="ball"><link name="rail"/><joint name="slide" type="prismatic"><parent link="rail"/>
<child link="ball"/><axis xyz="0 0 1"/><limit lower="-9" upper="9" effort="9" velocity="9"/></joint><link name="ball">
<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial><visual>SHAPE
<material name="red"><color rgba="1 0 0 1"/></material></visual></link></robot>"""
SHAPES = {
    "sphere": '<geometry><sphere radius="0.5"/></geometry>',
    "box": '<geometry><box size="1 1 1"/></geometry>',
    "cylinder": '<geometry><cylinder radius="0.5" length="1"/></geometry>',
}


def nothing(q, qd, action):
    return np.zeros(len(q))


def red(picture):
    return (picture == [255, 0, 0]).all(axis=-1)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_picture_shows_shapes_where_they_are(shape):
    pytest.importorskip("matplotlib")
    model = rd.load_urdf(BALL.replace("SHAPE", SHAPES[shape]), gravity=(0.0, 0.0, 0.0))
    heights = np.array([[0.0], [0.4]])
    envs = RobodynVectorEnv(
        model, 2, reward=nothing, reset=lambda rng, n: (heights[:n], 0.0 * heights[:n]), render_mode="rgb_array"
    )
    envs.reset(seed=0)
    low, high = map(red, envs.render())
    assert low.shape == (360, 480) and low[180, 240]
    size = {"sphere": np.pi / 4.0, "box": 1.6, "cylinder": 1.1}[shape]  # m^2, seen from the side
    # Half the height of the picture is 1.3 times the reach of the shape.
    reach = 0.5 * {"sphere": 1.0, "box": np.sqrt(3.0), "cylinder": np.sqrt(2.0)}[shape]
    assert low.sum() * (2.6 * reach / 360.0) ** 2 == pytest.approx(size, rel=0.2)
    # The camera looks at the middle of both links, so the ball rises by half of 0.4 m, seen at an angle.
    rows = [np.flatnonzero(each.any(axis=1)).mean() for each in (low, high)]
    assert (rows[0] - rows[1]) * 2.6 * reach / 360.0 == pytest.approx(0.2 * np.sqrt(1.25 / 1.41), abs=0.01)


def test_pictures_of_contacts():
    """The ground is drawn where it is in each episode."""
    pytest.importorskip("matplotlib")
    env = gym.make("robodyn/QuadrupedWalk-v0", render_mode="rgb_array")
    env.reset(seed=0)
    env_render_passive_checker(env.unwrapped)
    first = env.render()
    env.step(env.action_space.sample())
    assert first.dtype == np.uint8 and (env.render() != first).any()
    task, tilted = env.unwrapped.task, np.eye(4)
    tilted[:3, :3] = [[0.96, 0.0, 0.28], [0.0, 1.0, 0.0], [-0.28, 0.0, 0.96]]
    more = {"reset": lambda rng, n: task.start(np.random.default_rng(0), n), "render_mode": "rgb_array"}
    flat, steep = (
        RobodynEnv(
            task.model, reward=nothing, randomize=lambda rng, n, ground=ground: {"ground_pose": ground[None]}, **more
        )
        for ground in (np.eye(4), tilted)
    )
    one, other = (each.reset()[0] for each in (flat, steep))
    assert (one == other).all() and (flat.render() != steep.render()).any()


def test_modes():
    model = rd.load_urdf(own("arm6"))
    with pytest.raises(rd.ArgumentError, match="render_mode: got 'ansi'; allowed: 'human', 'rgb_array'"):
        RobodynEnv(model, reward=nothing, render_mode="ansi")
    env = RobodynEnv(model, reward=nothing, dt=0.02)
    assert env.metadata["render_modes"] == ["human", "rgb_array"] and env.metadata["render_fps"] == 50
    with pytest.raises(gym.error.ResetNeeded):
        env.render()
    env.reset()
    assert env.render() is None and env.view is None
    env.close()


@pytest.mark.extras
@pytest.mark.parametrize("kind", [RobodynEnv, RobodynVectorEnv])
def test_the_viewer_follows_in_real_time(kind):
    pytest.importorskip("viser")
    model = rd.load_urdf(own("arm6"))
    env = kind(rd.Dynamics(model, dtype="float32"), reward=nothing, dt=0.05, render_mode="human")
    seen, _ = env.reset(seed=0)
    view, start = env.view, time.monotonic()
    for _ in range(6):
        assert np.abs(view.q - np.ravel(seen)[: model.nq]).max() < 1e-6
        seen, *_ = env.step(env.action_space.sample())
    assert time.monotonic() - start >= 0.29 and env.render() is None
    env.close()
    assert env.view is None
    with pytest.raises(rd.ArgumentError, match="closed"):
        view.show(model.neutral())
