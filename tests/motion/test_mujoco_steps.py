"""Steps by integrator "mujoco" are those of mj_step."""

from __future__ import annotations

import numpy as np
import pytest
from robots import own, shared

import robodyn as rd

mujoco = pytest.importorskip("mujoco")


def damped(path, base, seed=0):
    """A mjModel without constraints whose joints have armature and damping, those of the free joint included."""
    m = mujoco.MjModel.from_xml_string(str(rd.load_urdf(path, base=base).to_mjcf()))
    rng = np.random.default_rng(seed)
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    m.opt.timestep = 5e-3
    m.dof_damping[:], m.dof_armature[:] = rng.uniform(0.1, 1.0, m.nv), rng.uniform(0.1, 0.2, m.nv)
    if base == "floating":
        m.dof_damping[:6], m.dof_armature[:6] = 0.3, 0.2
    return m


def apart(got, wanted, quaternions):
    """Difference of configurations of MuJoCo; quaternions (by their starts) q and -q are the same."""
    error = np.abs(got - wanted)
    for k in quaternions:
        error[k : k + 4] = np.minimum(error[k : k + 4], np.abs(got + wanted)[k : k + 4])
    return error.max()


def stepped(m, qpos, qvel, forces):
    d = mujoco.MjData(m)
    d.qpos, d.qvel = qpos, qvel
    for force in forces:
        d.qfrc_applied = force
        mujoco.mj_step(m, d)
    return d.qpos.copy(), d.qvel.copy()


ROBOTS = [
    ("arm7", "fixed", ()),
    ("ball_joint_arm", "fixed", None),
    ("quadruped", "floating", (3,)),
    pytest.param("humanoid", "floating", (3,), marks=pytest.mark.matrix),
    pytest.param("atlas", "floating", (3,), marks=pytest.mark.matrix),
]


@pytest.mark.parametrize(("robot", "base", "quaternions"), ROBOTS)
def test_rollouts_are_mujocos(robot, base, quaternions, make_dynamics, engine_dtype):
    m = damped(shared(robot) if robot == "atlas" else own(robot), base)
    model = rd.load_mjcf(m)
    dyn, convert = make_dynamics(model, joint_forces="damping"), rd.converter(model, "mujoco")
    steps, rng = 300 if engine_dtype[0] == "cpu" else 10, np.random.default_rng(1)
    forces = rng.normal(0.0, 1.0, (steps, 2, m.nv))
    forces[..., : 6 if base == "floating" else 0] = 0.0  # of joints alone: those are the same in both libraries
    qvel = rng.normal(0.0, 1.0, (2, m.nv))
    q0 = np.tile(convert.q_from(m.qpos0), (2, 1))
    run = dyn.rollout(
        q0, convert.v_from(q0, qvel), convert.tau_from(q0, forces), m.opt.timestep, steps,
        integrator="mujoco", save_every=steps // 2,
    )  # fmt: skip
    places = quaternions if quaternions is not None else m.jnt_qposadr[m.jnt_type == mujoco.mjtJoint.mjJNT_BALL]
    allowed = 1e-11 if engine_dtype[1] == "float64" else 1e-3
    for row in range(2):
        wanted_q, wanted_v = stepped(m, m.qpos0, qvel[row], forces[:, row])
        q = run.q[-1, row].astype(float)
        assert apart(convert.q_to(q), wanted_q, places) < allowed
        assert np.abs(convert.v_to(q, run.qd[-1, row].astype(float)) - wanted_v).max() < allowed


def test_a_single_step_and_a_batch_take_the_same_way(make_dynamics, engine_dtype):
    """Calls of one state, which built-in functions answer from the second on, and batches."""
    model = rd.load_urdf(own("quadruped"), base="floating")
    dyn, rng = make_dynamics(model, joint_forces="damping"), np.random.default_rng(2)
    q, qd, tau = model.random_configuration(rng, (5,)), rng.normal(size=(5, model.nv)), rng.normal(size=(5, model.nv))
    whole = dyn.step(q, qd, tau, 2e-3, integrator="mujoco")
    for _ in range(3):
        for k in range(5):
            one = dyn.step(q[k], qd[k], tau[k], 2e-3, integrator="mujoco")
            for part, every in zip(one, whole, strict=True):
                assert np.abs(part - every[k]).max() < (1e-12 if engine_dtype[1] == "float64" else 1e-4)


def test_drives_act_at_the_velocities_before_the_step():
    """As MuJoCo's actuators of position do by Euler's method."""
    m = damped(own("arm7"), "fixed")
    spec = mujoco.MjSpec.from_string(str(rd.load_urdf(own("arm7")).to_mjcf()))
    kp, kd, goal = 40.0, 3.0, np.linspace(-0.5, 0.5, 7)
    for joint in spec.joints:
        spec.add_actuator(
            target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT, gainprm=[kp, *[0.0] * 9],
            biastype=mujoco.mjtBias.mjBIAS_AFFINE, biasprm=[0.0, -kp, -kd, *[0.0] * 7],
        )  # fmt: skip
    driven = spec.compile()
    driven.opt.disableflags, driven.opt.timestep = m.opt.disableflags, m.opt.timestep
    driven.dof_damping[:], driven.dof_armature[:] = m.dof_damping, m.dof_armature
    driven.jnt_actfrclimited[:] = 0
    d = mujoco.MjData(driven)
    d.ctrl = goal
    for _ in range(100):
        mujoco.mj_step(driven, d)
    dyn = rd.Dynamics(rd.load_mjcf(m), joint_forces="damping")
    gains = {"kp": np.full(7, kp), "kd": np.full(7, kd), "q_des": goal}
    run = dyn.rollout(m.qpos0, np.zeros(7), None, m.opt.timestep, 100, integrator="mujoco", **gains)
    assert np.abs(run.q[-1] - d.qpos).max() < 1e-11


def test_limits_are_refused_by_name():
    dyn = rd.Dynamics(rd.load_urdf(own("arm7")))
    with pytest.raises(rd.ArgumentError, match=r"limits: got 'position' for integrator 'mujoco'"):
        dyn.step(np.zeros(7), np.zeros(7), integrator="mujoco", limits="position")
