"""Friction, inertia, damping, gravity and the ground's pose as inputs of states: MuJoCo with these values agrees."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from test_contact_dynamics import FEET, on_feet, quadruped, theirs_of

import robodyn as rd

mujoco = pytest.importorskip("mujoco")


def randomized(model: rd.Model, n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Parameters of n states."""
    print(f"parameters: seed {seed}")
    rng = np.random.default_rng(seed)
    joints = np.arange(model.nv) >= 6
    ground, quaternion, R = np.tile(np.eye(4), (n, 1, 1)), np.empty(4), np.empty(9)
    for k in range(n):
        mujoco.mju_axisAngle2Quat(quaternion, np.array([np.cos(k), np.sin(k), 0.0]), rng.normal(0.0, 0.1))
        mujoco.mju_quat2Mat(R, quaternion)
        ground[k, :3, :3] = R.reshape(3, 3)
    ground[:, :3, 3] = rng.normal(0.0, 0.003, (n, 3))
    of_foot = rng.uniform(0.2, 1.2, (n, len(FEET)))
    links = [[pair.first.link, pair.second.link] for pair in model.contacts.pairs]
    return {
        "inertia": model.inertia * rng.uniform(0.7, 1.3, (n, 1, 1)),
        "armature": joints * rng.uniform(0.0, 0.02, (n, model.nv)),
        "damping": joints * rng.uniform(0.0, 2.0, (n, model.nv)),
        "friction": joints * rng.uniform(0.0, 1.0, (n, model.nv)),
        "gravity": rng.normal(0.0, 1.0, (n, 3)) - np.array([0.0, 0.0, 9.81]),
        "contact_friction": np.stack([of_foot[:, [foot in each for foot in FEET]].max(axis=1) for each in links], 1),
        "ground_pose": ground,
    }


def changed(m, model: rd.Model, given: dict[str, np.ndarray], k: int):
    """MuJoCo's model with the parameters of state k; weights of rows stay."""
    m = copy.deepcopy(m)
    share = given["inertia"][k, 0, 0] / model.inertia[0, 0]
    for each in (m.body_mass, m.body_inertia, m.body_subtreemass):
        each *= share
    m.opt.gravity[:] = given["gravity"][k]
    m.dof_armature[:], m.dof_damping[:] = given["armature"][k], given["damping"][k]
    m.dof_frictionloss[:] = given["friction"][k]
    floor = int(np.flatnonzero(m.geom_type == mujoco.mjtGeom.mjGEOM_PLANE)[0])
    T = given["ground_pose"][k]
    m.geom_sameframe[floor] = 0  # a plane at the origin is not looked up
    m.geom_pos[floor] = T[:3, 3]
    mujoco.mju_mat2Quat(m.geom_quat[floor], np.ascontiguousarray(T[:3, :3]).ravel())
    m.geom_friction[floor, 0] = 0.0
    for each, mu in zip(model.contacts.pairs, given["contact_friction"][k], strict=True):
        if each.second.link == "":
            m.geom_friction[m.geom_bodyid == m.body(each.first.link).id, 0] = mu
    return m


@pytest.mark.some(of=4, rest="matrix")
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_parameters_of_states_are_those_of_mujoco(cone, make_dynamics):
    text = quadruped("floating", "", 'contype="2" conaffinity="1"')  # feet touch the floor alone
    m = theirs_of(text, cone, 1.0)
    model = rd.load_mjcf(m, contacts=True)
    dyn, exact = make_dynamics(model), make_dynamics(model).dtype == np.float64
    n, rng, c = 4 if dyn.engine.name == "reference" else 24, np.random.default_rng(1), rd.converter(model, "mujoco")
    given = randomized(model, n)
    q = np.tile(model.neutral(), (n, 1))
    q[:, 2], q[:, 7:] = 0.313, np.tile([0.0, 0.7, -1.4], 4) + rng.normal(0.0, 0.05, (n, 12))
    qd, tau = rng.normal(0.0, 0.3, (n, model.nv)), rng.normal(0.0, 3.0, (n, model.nv))
    wanted, after, touching = [], [], 0
    for k in range(n):
        theirs = changed(m, model, given, k)
        d = mujoco.MjData(theirs)
        d.qpos[:], d.qvel[:] = c.q_to(q[k]), c.v_to(q[k], qd[k])
        d.qfrc_applied[:] = c.tau_to(q[k], tau[k])
        mujoco.mj_forward(theirs, d)
        wanted.append(c.a_from(q[k], qd[k], d.qacc))
        touching += d.ncon
        mujoco.mj_step(theirs, d)
        after.append(c.q_from(d.qpos))
    assert touching > n
    for chosen in (slice(None), 2):  # a batch, and one state
        own = {name: array[chosen] for name, array in given.items()}
        qdd, f = dyn.contact_forward_dynamics(q[chosen], qd[chosen], tau[chosen], **own)
        size = np.maximum(1.0, np.abs(np.array(wanted)[chosen]).max(axis=-1, keepdims=True))
        error = np.abs(qdd - np.array(wanted)[chosen]) / size
        assert error.max() <= 1e-9 if exact else np.quantile(error, 0.8) <= 5e-3
        moved, _ = dyn.step(q[chosen], qd[chosen], tau[chosen], 0.002, integrator="mujoco", **own)
        assert np.abs(moved - np.array(after)[chosen]).max() <= (1e-10 if exact else 1e-3)
    apart = dyn.contact_distances(q, ground_pose=given["ground_pose"])
    assert ((apart < 0.0).sum(axis=1) > 0).any() and (f[..., 0] > 0.0).any()


@pytest.mark.some(of=4, rest="matrix")
def test_rollouts_and_the_deepest_slots_take_parameters(make_dynamics, tolerance):
    model, q = on_feet()
    contacts = [rd.Contact(rd.Sphere(foot, radius=0.02), rd.Plane()) for foot in FEET]
    second = [rd.Contact(rd.Sphere(foot, radius=0.02), rd.Plane(offset=-1.0), condim=1) for foot in FEET[:1]]
    every, some = (model.with_contacts([*contacts, *second], max_contacts=most) for most in (None, 4))
    n, steps = (2, 2) if make_dynamics(model).engine.name == "reference" else (6, 20)
    given = randomized(every, n)
    states = np.tile(q, (n, 1)), np.zeros((n, model.nv))
    ends = [make_dynamics(each).rollout(*states, dt=0.002, steps=steps, **given) for each in (every, some)]
    x, v = states
    for _ in range(steps):
        x, v = make_dynamics(every).step(x, v, dt=0.002, **given)
    for end in ends:
        assert end.converged.all() and np.abs(end.q[-1] - x).max() <= 10.0 * tolerance
    given["ground_pose"] = np.eye(4)
    level = make_dynamics(every).rollout(*states, dt=0.002, steps=steps, **given)
    assert np.abs(level.q[-1] - x).max() > 1e-4


def test_nan_in_a_parameter_stays_in_its_row():
    model, q = on_feet()
    n, dyn = 5, rd.Dynamics(model, check=False)
    given = randomized(model, n)
    states = np.tile(q, (n, 1)), np.zeros((n, model.nv)), np.zeros((n, model.nv))
    right = dyn.contact_forward_dynamics(*states, **given)
    given["contact_friction"][1, 2] = given["ground_pose"][3, 0, 3] = np.nan
    for got, wanted in zip(dyn.contact_forward_dynamics(*states, **given), right, strict=True):
        bad = np.isnan(got).reshape(n, -1).any(axis=1)
        assert bad.nonzero()[0].tolist() == [1, 3] and np.array_equal(got[~bad], wanted[~bad])


def test_wrong_parameters_are_refused_by_name():
    model, q = on_feet()
    zero, upside_down = np.zeros(model.nv), np.diag([1.0, 1.0, -1.0, 1.0])
    dyn, bare = rd.Dynamics(model), rd.Dynamics(model, contacts=())
    on_base = np.zeros(model.nv)
    on_base[2] = 1.0
    for _ in range(3):  # wrong ones are refused where right ones are known
        dyn.rollout(q, zero, zero, steps=1, friction=zero)
        dyn.rollout(q, zero, steps=1, policy=lambda t, q, qd: zero, friction=zero)
    with pytest.raises(rd.ArgumentError, match="degree of freedom 2"):
        dyn.rollout(q, zero, steps=1, policy=lambda t, q, qd: zero, friction=on_base)
    for name, wrong, told in (
        ("contact_friction", np.ones(3), "shape"),
        ("contact_friction", -np.ones(4), "at least 0"),
        ("ground_pose", np.eye(3), "shape"),
        ("ground_pose", upside_down, "no pose"),
        ("ground_pose", 2.0 * np.eye(4), "no pose"),
        ("friction", on_base, "degree of freedom 2"),
        ("damping", -on_base, "at least 0"),
        ("armature", -on_base, "at least 0"),
    ):
        for call in (
            lambda: dyn.contact_forward_dynamics(q, zero, zero, **{name: wrong}),  # noqa: B023
            lambda: dyn.step(q, zero, zero, **{name: wrong}),  # noqa: B023
            lambda: dyn.rollout(q, zero, zero, steps=1, **{name: wrong}),  # noqa: B023
        ):
            with pytest.raises(rd.ArgumentError, match=f"^{name}: got.*{told}"):
                call()
    for _ in range(3):  # by the method, and by what it has learnt
        bare.step(q, zero, zero, contact_friction=None)
        bare.rollout(q, zero, zero, steps=2)
        for name in ("contact_friction", "ground_pose"):
            for call in (bare.step, bare.rollout):
                with pytest.raises(rd.ArgumentError, match=f"^{name}: got some"):
                    call(q, zero, zero, **{name: np.eye(4)})
    rubbing = rd.Dynamics(model.with_contacts([], dry_friction=False), joint_forces=("friction",))
    with pytest.raises(rd.ArgumentError, match="joint_forces"):
        rubbing.step(q, zero, zero)


def test_damping_with_that_of_actuators_makes_implicitfast_steps():
    """D of implicitfast has kv of actuators, through their gears: damping that is added is the same."""
    actuators = '<actuator><velocity joint="a" kv="3" gear="2"/><position joint="b" kp="40" kv="1.5"/></actuator>'
    m = mujoco.MjModel.from_xml_string(
        f"""<mujoco><option timestep="0.004" integrator="implicitfast" tolerance="0" iterations="100"/><worldbody>
        <geom type="plane" size="9 9 .1"/><body pos="0 0 .2"><joint name="a" axis="0 1 0" damping=".1"/>
        <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/><body pos=".3 0 0"><joint name="b" axis="0 .6 .8"/>
        <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/></body></body></worldbody>{actuators}</mujoco>"""
    )
    d, model = mujoco.MjData(m), rd.load_mjcf(m, contacts=True)
    dyn, q, qd, kv = rd.Dynamics(model), np.array([0.3, -0.2]), np.array([0.5, -3.0]), np.array([3.0 * 2.0**2, 1.5])
    d.qpos[:], d.qvel[:], d.ctrl[:] = q, qd, (0.4, 0.1)
    touched = 0
    for _ in range(150):
        tau = np.array([3.0 * 2.0 * d.ctrl[0], 40.0 * (d.ctrl[1] - q[1])])
        q, qd = dyn.step(q, qd, tau, 0.004, integrator="mujoco", damping=model.damping + kv)
        mujoco.mj_step(m, d)
        touched += d.ncon > 0
    assert touched > 50 and np.abs(q - d.qpos).max() < 1e-11 and np.abs(qd - d.qvel).max() < 1e-10
