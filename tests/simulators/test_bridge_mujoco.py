"""The bridge to MuJoCo: its numbers are those of mj_inverse, and steps of both are the same but for rounding."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import relative
from robots import own

import robodyn as rd

mujoco = pytest.importorskip("mujoco", reason="the extra 'mujoco' is not installed")

from robodyn.simulators.mujoco import Bridge  # noqa: E402

STEP = 2e-3
# A step's rounding grows with the motion: 1e-16 after one, and by no more than e^(10 t) in these swings.
PARTED = 1e-9

SCENE = """
<mujoco model="scene">
  <option timestep="0.002"/>
  <default>
    <geom density="600" contype="0" conaffinity="0"/><joint damping="0.3" armature="0.02" stiffness="0.7"/>
  </default>
  <worldbody>
    <body name="ball" pos="0 0 2"><freejoint/><geom size="0.1"/></body>
    <body name="trunk" pos="0 0 1"><freejoint name="root"/><geom type="box" size="0.2 0.1 0.05" pos="0.03 0 0.01"/>
      <body name="arm" pos="0.2 0 0" gravcomp="0.5"><joint name="shoulder" type="ball"/>
        <geom type="capsule" size="0.03 0.1" pos="0 0 0.1"/>
        <body name="forearm" pos="0 0 0.2"><joint name="elbow" axis="0 1 0" ref="0.3"/>
          <joint name="slide" type="slide" axis="0 0 1" pos="0 0 0.1"/>
          <geom type="capsule" size="0.02 0.1" pos="0 0 0.1"/>
          <body name="hand" pos="0 0 0.2"><geom size="0.05" pos="0.05 0 0"/></body>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="elbow" gear="3"/></actuator>
  <keyframe><key name="home" qpos="1 0 0 1 0 0 0  0 0 1 1 0 0 0  1 0 0 0 0.2 0.1"/><key/></keyframe>
</mujoco>
"""


def moved(bridge, seed):
    """Data in a random state, with forces of every kind."""
    print(f"seed {seed}")
    rng, m = np.random.default_rng(seed), bridge.mj_model
    data = mujoco.MjData(m)
    bridge.set_state(data, bridge.model.random_configuration(rng), rng.normal(size=bridge.model.nv))
    data.xfrc_applied[1:] = rng.normal(size=(m.nbody - 1, 6))
    data.ctrl[:] = rng.normal(size=m.nu)
    bridge.apply_torque(data, rng.normal(size=bridge.model.nv))
    mujoco.mj_forward(m, data)
    return data


@pytest.mark.parametrize("seed", range(3))
def test_inverse_dynamics_of_what_mujoco_computed(seed):
    bridge = Bridge(mujoco.MjModel.from_xml_string(SCENE))
    data = moved(bridge, seed)
    q, qd, qdd = bridge.q(data), bridge.qd(data), bridge.qdd(data)
    assert bridge.model.nv == data.qvel.size and not bridge.constraint(data).any()
    for forces, damping in (((), True), (("damping",), False)):
        dyn = rd.Dynamics(bridge.model, joint_forces=forces)
        tau = dyn.inverse_dynamics(q, qd, qdd, f_ext=bridge.f_ext(data))
        # Armature of a free joint, which MuJoCo takes in the world's axes, is reported by load_mjcf; here it has none.
        assert relative(tau, bridge.tau(data) + bridge.passive(data, damping=damping)) < 1e-10


def test_a_robot_in_a_scene_has_its_own_numbers():
    m = mujoco.MjModel.from_xml_string(SCENE)
    whole = Bridge(m)
    alone = SCENE.replace('<body name="ball" pos="0 0 2"><freejoint/><geom size="0.1"/></body>', "")
    robot = rd.load_mjcf(alone.replace("1 0 0 1 0 0 0  0 0 1", "0 0 1"))
    bridge, data = Bridge(m, robot), moved(whole, 0)
    assert (bridge.model.nv, whole.model.nv) == (11, 17)
    for name in ("q", "qd", "qdd", "f_ext", "passive", "tau"):
        every, part = getattr(whole, name)(data), getattr(bridge, name)(data)
        assert relative(part, every[len(every) - len(part) :]) < 1e-14, name
    ball = data.qpos[:7].copy()
    bridge.set_state(data, robot.neutral())
    assert (data.qpos[:7] == ball).all() and (bridge.q(data) == robot.neutral()).all() and not bridge.qd(data).any()
    assert list(bridge.keyframes) == ["home", "key_1"]
    q, qd = bridge.keyframes["home"]
    assert q.tolist() == [0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0.2, 0.1] and not qd.any()


def test_a_floating_base_of_another_name():
    text = own("quadruped").read_text()
    spec = mujoco.MjSpec.from_string(text)
    spec.compiler.fusestatic = False
    spec.compiler.discardvisual = False
    spec.bodies[1].add_freejoint()
    bridge = Bridge(spec.compile(), rd.load_urdf(own("quadruped"), base="floating"))
    data = moved(bridge, 5)
    dyn = rd.Dynamics(bridge.model, joint_forces="damping")
    tau = dyn.inverse_dynamics(bridge.q(data), bridge.qd(data), bridge.qdd(data), f_ext=bridge.f_ext(data))
    wanted = bridge.tau(data) + bridge.passive(data, damping=False) + bridge.constraint(data)
    assert relative(tau, wanted) < 1e-9


def steps_of_ours(dyn, way, q, qd, tau, n):
    """MuJoCo's semi-implicit Euler in its own coordinates, with our accelerations: states of theirs, one for a step."""
    theirs, position = way.v_to(q, qd), way.q_to(q)
    found = []
    for _ in range(n):
        q = way.q_from(position)
        qd = way.v_from(q, theirs)
        theirs = theirs + STEP * way.a_to(q, qd, dyn.forward_dynamics(q, qd, tau))
        mujoco.mj_integratePos(steps_of_ours.model, position, theirs, STEP)
        found.append(position.copy())
    return np.array(found)


@pytest.mark.parametrize("name", ["arm6", "arm7", "double_pendulum"])
def test_rollouts_are_mujocos_until_rounding_parts_them(name):
    """Arms, of which arm7 is damped, by `Dynamics.rollout` as it stands: its default integrator is MuJoCo's Euler."""
    m = mujoco.MjModel.from_xml_path(str(own(name)))
    m.opt.timestep = STEP
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    bridge = Bridge(m, rd.load_urdf(own(name)))
    dyn, rng, data = rd.Dynamics(bridge.model, joint_forces="damping"), np.random.default_rng(0), mujoco.MjData(m)
    q, qd, tau = bridge.model.random_configuration(rng), *rng.normal(size=(2, bridge.model.nv))
    bridge.set_state(data, q, qd)
    run, errors = dyn.rollout(q, qd, tau, STEP, 500), []
    for k in range(500):
        bridge.apply_torque(data, tau)
        mujoco.mj_step(m, data)
        errors.append(np.abs(bridge.q(data) - run.q[k + 1]).max())
    print(f"{name}: apart by {errors[0]:.1e} after a step, {errors[-1]:.1e} after {len(errors)}")
    assert errors[0] < 1e-14 and max(errors) < PARTED
    assert np.abs(run.q[-1] - q).max() > 0.1


def test_free_bodies_move_as_mujocos_until_rounding_parts_them():
    """A floating tree: MuJoCo steps positions along velocities in the world, which is done here in its coordinates."""
    text = SCENE.replace('damping="0.3" armature="0.02" stiffness="0.7"', "").replace('gravcomp="0.5"', "")
    m = mujoco.MjModel.from_xml_string(text)
    bridge = Bridge(m)
    data, n = mujoco.MjData(m), 500
    rng = np.random.default_rng(1)
    q, qd = bridge.model.random_configuration(rng), rng.normal(size=bridge.model.nv)
    bridge.set_state(data, q, qd)
    steps_of_ours.model = m
    ours = steps_of_ours(rd.Dynamics(bridge.model), bridge.converter, q, qd, np.zeros(bridge.model.nv), n)
    errors = []
    for k in range(n):
        mujoco.mj_step(m, data)
        errors.append(np.abs(data.qpos - ours[k]).max())
    print(f"apart by {errors[0]:.1e} after a step, {errors[-1]:.1e} after {n}")
    assert errors[0] < 1e-14 and max(errors) < PARTED


def test_a_controller_drives_its_own_model_alone():
    path = own("arm6")
    m, other = (mujoco.MjModel.from_xml_path(str(path)) for _ in range(2))
    bridge = Bridge(m, rd.load_urdf(path))
    dyn = rd.Dynamics(bridge.model)
    data, others = mujoco.MjData(m), mujoco.MjData(other)
    q = np.array([0.0, -1.2, 1.4, -1.0, -1.5, 0.5])
    times = []

    def hold(t, q, qd):
        times.append(t)
        return dyn.gravity_force(q)

    bridge.set_state(data, q)
    with bridge.controlled(hold):
        for _ in range(200):
            mujoco.mj_step(m, data)
            mujoco.mj_step(other, others)
    assert mujoco.get_mjcb_control() is None
    assert np.abs(bridge.q(data) - q).max() < 1e-9 and len(times) == 200 and times[-1] > times[0]
    assert not others.qfrc_applied.any() and np.abs(others.qpos).max() > 0.01
    with pytest.raises(ZeroDivisionError), bridge.controlled(lambda t, q, qd: 1 / 0):
        mujoco.mj_step(m, data)
    assert mujoco.get_mjcb_control() is None


def test_what_is_wrong_is_named():
    m = mujoco.MjModel.from_xml_path(str(own("arm6")))
    bridge = Bridge(m, rd.load_urdf(own("arm6")))
    data = mujoco.MjData(m)
    pendulum = mujoco.MjData(mujoco.MjModel.from_xml_path(str(own("double_pendulum"))))
    slides = own("arm6").read_text().replace('type="revolute"', 'type="prismatic"', 1)
    for call, error, text in (
        (lambda: Bridge(3), rd.ArgumentError, "mj_model: got 3; wanted a mujoco.MjModel"),
        (lambda: Bridge(m, 3), rd.ArgumentError, "model: got 3; wanted a robodyn.Model, or None"),
        (lambda: Bridge(m, rd.load_urdf(own("arm7"))), rd.ArgumentError, "it lacks"),
        (lambda: Bridge(m, rd.load_urdf(slides)), rd.ArgumentError, r"another type: .* \(prismatic here, revolute"),
        (lambda: bridge.q(m), rd.ArgumentError, "data: got .*; wanted a mujoco.MjData"),
        (lambda: bridge.q(pendulum), rd.ArgumentError, "data: got nq 2, nv 2 and 3 bodies; wanted data of the"),
        (lambda: bridge.apply_torque(data, np.zeros(5)), rd.ArgumentError, r"tau: got shape \(5,\)"),
        (lambda: bridge.apply_torque(data, np.zeros((2, 6))), rd.ArgumentError, "one robot has one state"),
        (lambda: bridge.apply_torque(data, np.full(6, np.nan)), rd.NumericalError, "tau: NaN or infinite"),
        (lambda: bridge.set_state(data, np.full(6, np.inf)), rd.NumericalError, "q: NaN or infinite"),
        (lambda: bridge.controller(7), rd.ArgumentError, "policy: got 7; wanted a function"),
        (lambda: bridge.passive(data, damping=2), rd.ArgumentError, "damping: got 2"),
    ):  # fmt: skip
        with pytest.raises(error, match=text):
            call()


def test_loops_that_the_scene_does_not_close_are_said():
    path = own("loops/four_bar")
    m, model = mujoco.MjModel.from_xml_path(str(path)), rd.load_urdf(path)
    with pytest.warns(RuntimeWarning, match=r'"four_bar" has constraints \("pin"\), and the scene has no equalities'):
        Bridge(m, model)
    Bridge(m, rd.Dynamics(model, constraints=()).model)
    text = rd.Dynamics(model).model.to_mjcf()
    assert mujoco.MjModel.from_xml_string(str(text)).neq == 1
    Bridge(mujoco.MjModel.from_xml_string(str(text)), model)


def test_robots_that_stand_otherwise_in_the_scene_are_said():
    """Turned, or under another gravity: what is the scene's is in other axes than states."""
    rod = '<geom type="capsule" size=".03 .2" mass="1"/>'
    arm = f"""<body name="1" pos="1 0 .5"><joint name="j1" axis="0 1 0"/>{rod}
    <body name="2" pos="0 0 .3"><joint name="j2" axis="1 0 0"/>{rod}</body></body>"""

    def scene(world, options=""):
        return mujoco.MjModel.from_xml_string(f"<mujoco>{options}<worldbody>{world}</worldbody></mujoco>")

    own = rd.load_mjcf(scene(arm))
    Bridge(scene(f'<body name="mount" pos="1 2 3">{arm}</body>'), own)
    with pytest.warns(RuntimeWarning, match="joint 'j1' .* has the axis"):
        Bridge(scene(f'<body name="mount" euler="0 0 90">{arm}</body>'), own)
    with pytest.warns(RuntimeWarning, match="gravity of"):
        Bridge(scene(arm, '<option gravity="1 2 3"/>'), own)


def test_dampers_of_actuators_are_the_joints():
    """Of a scene whose actuators have several controls and outputs: nothing is taken twice, or from other rows."""
    if tuple(map(int, mujoco.__version__.split(".")[:2])) < (3, 13):
        pytest.skip("this version of MuJoCo has no such actuators")
    actuators = """<orientation joint="shoulder" kp="2"/><motor joint="elbow" gear="3" damping="0.2" armature="0.01"/>
    <pid joint="slide" kp="3" kv="1"/>"""
    bridge = Bridge(mujoco.MjModel.from_xml_string(SCENE.replace('<motor joint="elbow" gear="3"/>', actuators)))
    data = moved(bridge, 7)
    assert bridge.mj_model.nu == 6 and np.abs(data.qfrc_actuator).max() > 0.1
    q, qd, qdd = bridge.q(data), bridge.qd(data), bridge.qdd(data)
    for forces, damping in (((), True), (("damping",), False)):
        tau = rd.Dynamics(bridge.model, joint_forces=forces).inverse_dynamics(q, qd, qdd, f_ext=bridge.f_ext(data))
        assert relative(tau, bridge.tau(data) + bridge.passive(data, damping=damping)) < 1e-10


def test_arrays_of_another_shape_are_refused(monkeypatch):
    """As of a version of MuJoCo that counts otherwise."""
    m = mujoco.MjModel.from_xml_string(SCENE)
    bridge = Bridge(m)
    data = moved(bridge, 0)

    class Longer:
        def __init__(self, name):
            self.name = name

        def __getattr__(self, name):
            found = getattr(data, name)
            return np.concatenate([found, found[-1:]]) if name == self.name else found

    monkeypatch.setattr(bridge, "_of", lambda given: given)
    for name, read in (
        ("qpos", bridge.q),
        ("qvel", bridge.qd),
        ("qacc", bridge.qdd),
        ("xipos", bridge.f_ext),
        ("xfrc_applied", bridge.f_ext),
        ("qfrc_passive", bridge.passive),
        ("qfrc_applied", bridge.tau),
        ("qfrc_actuator", bridge.tau),
        ("qfrc_constraint", bridge.constraint),
    ):
        with pytest.raises(rd.LoadError, match=rf"{name} has shape .*; wanted .*: MuJoCo {mujoco.__version__} counts"):
            read(Longer(name))
