"""The bridge to PyBullet, where its wheel is installed: states as its own kinematics has them, an arm beside MuJoCo."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import relative
from robots import own

import robodyn as rd

bullet = pytest.importorskip("pybullet", reason="the extra 'pybullet' is not installed")

from robodyn.simulators.pybullet import Bridge  # noqa: E402

STEP = 1e-3


@pytest.fixture
def client():
    number = bullet.connect(bullet.DIRECT)
    bullet.setTimeStep(STEP, physicsClientId=number)
    bullet.setGravity(0.0, 0.0, -9.81, physicsClientId=number)
    yield number
    if bullet.isConnected(number):
        bullet.disconnect(number)


def loaded(client, name, fixed=True, made_up=False):
    flags = bullet.URDF_USE_INERTIA_FROM_FILE
    body = bullet.loadURDF(str(own(name)), useFixedBase=fixed, flags=flags, physicsClientId=client)
    for link in range(-1, bullet.getNumJoints(body, physicsClientId=client)):
        bullet.changeDynamics(body, link, linearDamping=0.0, angularDamping=0.0, physicsClientId=client)
        if not made_up and bullet.getDynamicsInfo(body, link, physicsClientId=client)[::2][:2] == (
            1.0,
            (1.0, 1.0, 1.0),
        ):
            bullet.changeDynamics(body, link, mass=0.0, localInertiaDiagonal=[0.0] * 3, physicsClientId=client)
    return body


@pytest.mark.parametrize("name", ["arm7", "quadruped", "hand"])
def test_states_there_and_back_and_poses(client, name):
    floats = name == "quadruped"
    model = rd.load_urdf(own(name), base="floating" if floats else "fixed")
    bridge = Bridge(loaded(client, name, fixed=not floats), client, model)
    rng = np.random.default_rng(0)
    q, qd = model.random_configuration(rng), rng.normal(size=model.nv)
    bridge.set_state(q, qd)
    found = bridge.state()
    assert relative(model.difference(q, found[0]) + 1.0, np.ones(model.nv)) < 1e-12 and relative(found[1], qd) < 1e-12
    bridge.set_state(q)
    assert not bridge.state()[1].any()
    bridge.set_state(q, qd)
    dyn = rd.Dynamics(model)
    for j in range(bullet.getNumJoints(bridge.body_id, physicsClientId=client)):
        told = bullet.getLinkState(bridge.body_id, j, 1, 1, physicsClientId=client)
        link = bullet.getJointInfo(bridge.body_id, j, physicsClientId=client)[12].decode()
        assert relative(np.array(told[4]), dyn.link_pose(q, link)[:3, 3]) < 1e-5
        # Of the link's centre of mass; it turns as the link does.
        assert relative(np.array(told[7]), dyn.link_velocity(q, qd, link)[:3]) < 1e-5


def test_loops_that_nobody_closes_are_said(client):
    model, body = rd.load_urdf(own("loops/four_bar")), loaded(client, "loops/four_bar")
    with pytest.warns(RuntimeWarning, match=r'"four_bar" has constraints \("pin"\), and the client has none: PyBullet'):
        Bridge(body, client, model)
    ends = {bullet.getJointInfo(body, j, physicsClientId=client)[12].decode(): j for j in range(3)}
    pin = bullet.createConstraint(
        body, ends["coupler"], body, ends["rocker"], bullet.JOINT_POINT2POINT, [0, 0, 0], [0.14, 0, 0], [0.1, 0, 0],
        physicsClientId=client,
    )  # fmt: skip
    Bridge(body, client, model)
    bullet.removeConstraint(pin, physicsClientId=client)
    Bridge(body, client, rd.Dynamics(model, constraints=()).model)


def reference(t):
    middle, rate = np.array([0.3, 0.6, -0.2, -1.3, 0.4, 0.9, 0.1]), 2.0 * np.pi * np.linspace(0.3, 0.6, 7)
    return middle + 0.3 * np.sin(rate * t), 0.3 * rate * np.cos(rate * t), -0.3 * rate**2 * np.sin(rate * t)


def test_an_arm_follows_a_trajectory_as_mujocos_does(client):
    """Computed torque with the same gains: both stay by the trajectory, and near each other."""
    mujoco = pytest.importorskip("mujoco", reason="the extra 'mujoco' is not installed")
    from robodyn.simulators.mujoco import Bridge as Other

    model = rd.load_urdf(own("arm7"))
    dyn = rd.Dynamics(model, joint_forces="damping")
    here = Bridge(loaded(client, "arm7"), client, model)
    simulated = mujoco.MjModel.from_xml_path(str(own("arm7")))
    simulated.opt.timestep, simulated.dof_frictionloss[:] = STEP, 0.0
    there, data = Other(simulated, model), mujoco.MjData(simulated)

    def torque(t, q, qd):
        q_to, qd_to, qdd = reference(t)
        return dyn.inverse_dynamics(q, qd, qdd + 900.0 * (q_to - q) + 60.0 * (qd_to - qd))

    here.set_state(*reference(0.0)[:2])
    there.set_state(data, *reference(0.0)[:2])
    apart, off = 0.0, [0.0, 0.0]
    for k in range(1000):
        here.apply_torque(torque(k * STEP, *here.state()))
        bullet.stepSimulation(physicsClientId=client)
        there.apply_torque(data, torque(data.time, there.q(data), there.qd(data)))
        mujoco.mj_step(simulated, data)
        states, wanted = (here.state()[0], there.q(data)), reference((k + 1) * STEP)[0]
        off = [max(worst, float(np.abs(q - wanted).max())) for worst, q in zip(off, states, strict=True)]
        apart = max(apart, float(np.abs(states[0] - states[1]).max()))
    print(f"PyBullet {off[0]:.1e} and MuJoCo {off[1]:.1e} rad from the trajectory, {apart:.1e} from each other")
    # Both step first position or velocity by an Euler step: half a millisecond of 1.1 rad/s from the trajectory.
    assert max(off) < 1.5e-3 and apart < 1.5e-3


def test_torques_alone_move_joints(client):
    """The motors that PyBullet has at first are off: an arm in balance of gravity stays, and falls without torques."""
    model = rd.load_urdf(own("arm7"))
    dyn, bridge = rd.Dynamics(model), Bridge(loaded(client, "arm7"), client, model)
    start = reference(0.3)[0]
    bridge.set_state(start)
    for _ in range(200):
        bridge.apply_torque(dyn.gravity_force(bridge.state()[0]))
        bullet.stepSimulation(physicsClientId=client)
    assert np.abs(bridge.state()[0] - start).max() < 1e-4
    for _ in range(200):
        bullet.stepSimulation(physicsClientId=client)
    assert np.abs(bridge.state()[0] - start).max() > 0.02


def test_masses_that_pybullet_makes_up_are_told(client):
    body = loaded(client, "arm7", made_up=True)
    with pytest.warns(
        RuntimeWarning, match=r"weighs 25.021 kg in PyBullet and 24.021 kg here; links without <inertial>"
    ):
        Bridge(body, client, rd.load_urdf(own("arm7")))


def test_what_is_wrong_is_named(client):
    model, floating = rd.load_urdf(own("arm7")), rd.load_urdf(own("quadruped"), base="floating")
    body, other = loaded(client, "arm7"), loaded(client, "quadruped", fixed=False)
    bridge, flying = Bridge(body, client, model), Bridge(other, client, floating)
    for call, error, text in (
        (lambda: Bridge(body, client, 3), rd.ArgumentError, "model: got 3; wanted a robodyn.Model"),
        (lambda: Bridge(7, client, model), rd.ArgumentError, r"body_id: got 7; the client has \[0, 1\]"),
        (lambda: Bridge(body, 99, model), rd.ArgumentError, "client: got 99; wanted one that pybullet.connect"),
        (lambda: Bridge("arm", client, model), rd.ArgumentError, "body_id: got 'arm'"),
        (lambda: Bridge(other, client, model), rd.ArgumentError, "PyBullet has no such joints as"),
        (lambda: Bridge(body, client, rd.load_urdf(own("ball_joint_arm"))), rd.ArgumentError, "several degrees of"),
        (lambda: bridge.apply_torque(np.zeros(6)), rd.ArgumentError, r"tau: got shape \(6,\)"),
        (lambda: bridge.apply_torque(np.full(7, np.nan)), rd.NumericalError, "tau: NaN"),
        (lambda: bridge.set_state(np.full(7, np.inf)), rd.NumericalError, "q: NaN or infinite"),
        (lambda: flying.apply_torque(np.ones(18)), rd.ArgumentError, "tau: got .* on the base, which floats"),
    ):
        with pytest.raises(error, match=text):
            call()


@pytest.mark.parametrize("floats", [False, True])
def test_a_body_that_is_gone_is_named(client, floats):
    name = "quadruped" if floats else "arm7"
    body, model = (
        loaded(client, name, fixed=not floats),
        rd.load_urdf(own(name), base="floating" if floats else "fixed"),
    )
    bridge = Bridge(body, client, model)
    bullet.removeBody(body, physicsClientId=client)
    calls = bridge.state, lambda: bridge.set_state(model.neutral()), lambda: bridge.apply_torque(np.zeros(model.nv))
    for call in calls:
        with pytest.raises(rd.ArgumentError, match=f"no body {body} of client {client} any more .* was removed"):
            call()
    assert loaded(client, "cartpole") == body, "numbers are given again"
    for call in calls:
        with pytest.raises(
            rd.ArgumentError, match=f'body {body} of client {client} is now "cartpole"; wanted "{name}"'
        ):
            call()
    bullet.disconnect(client)
    for call in calls:
        with pytest.raises(rd.ArgumentError, match="the client is disconnected"):
            call()


@pytest.mark.parametrize("floats", [False, True])
def test_bases_are_alike(client, floats):
    model = rd.load_urdf(own("arm6"), base="floating" if floats else "fixed")
    with pytest.raises(rd.ArgumentError, match="wanted both alike"):
        Bridge(loaded(client, "arm6", fixed=floats), client, model)
