"""Locked joints: against the whole robot held there, and against Pinocchio's reduced models."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from edited import EVERY, loaded, name, places, reference, tree, velocities_of
from robots import own, shared

import robodyn as rd


def some_joints(model, rng, share=0.5):
    """Free joints drawn at random with coordinates, or None for neutral."""
    q, chosen = model.random_configuration(rng), {}
    for joint, at in velocities_of(model).items():
        if rng.random() < share:
            values = q[at["q"]]
            chosen[joint] = None if rng.random() < 0.2 else float(values[0]) if values.size == 1 else values
    return chosen


def require_held(model, joints, seed=0):
    """The locked model is the whole one at rest in the locked joints: torques, mass matrix, poses, coefficients."""
    small = model.lock(joints)
    kept = tuple(each for each in small.report if each.code != "extension-dropped")
    assert small.link_names == model.link_names and kept == tuple(model.report)
    free = [joint for joint in velocities_of(model) if joint not in joints]
    assert list(velocities_of(small)) == free
    leaders = {model.joint_names[b] for b in np.flatnonzero(model.mimics < 0)} - set(free)
    assert not leaders & set(small.joint_names)
    q_at, v_at = places(small, model, "q"), places(small, model, "v")
    q, rng = model.neutral(), np.random.default_rng(seed)
    for joint, value in joints.items():
        if value is not None:
            q[velocities_of(model)[joint]["q"]] = value
    qs = small.random_configuration(rng, (2,))
    whole = np.tile(q, (2, 1))
    whole[:, q_at] = qs
    qd, qdd = np.zeros((2, 2, model.nv))
    qd[:, v_at], qdd[:, v_at] = rng.normal(size=(2, 2, small.nv))
    big, dyn = reference(model), reference(small)
    tau = big.inverse_dynamics(whole, qd, qdd)[:, v_at]
    size = max(np.abs(tau).max(initial=0.0), 1e-3)
    np.testing.assert_allclose(dyn.inverse_dynamics(qs, qd[:, v_at], qdd[:, v_at]), tau, atol=1e-11 * size)
    H = big.mass_matrix(whole)[:, v_at][:, :, v_at]
    np.testing.assert_allclose(dyn.mass_matrix(qs), H, atol=1e-11 * np.abs(H).max(initial=1e-3))
    poses = big.forward_kinematics(whole)
    np.testing.assert_allclose(dyn.forward_kinematics(qs), poses, atol=1e-12 * max(1.0, np.abs(poses).max(initial=0)))
    for what in ("armature", "damping", "friction", "effort_limit", "velocity_limit"):
        np.testing.assert_array_equal(getattr(small, what), getattr(model, what)[v_at], err_msg=what)
    for what in ("lower", "upper"):
        np.testing.assert_array_equal(getattr(small, what), getattr(model, what)[q_at], err_msg=what)
    return small


@pytest.mark.some(of=8, rest="matrix")
@pytest.mark.parametrize("path", EVERY, ids=name)
def test_every_robot(path):
    for base in ("fixed", "floating"):
        model = loaded(path, base)
        require_held(model, some_joints(model, np.random.default_rng(1)))


@pytest.mark.some(of=5, rest="matrix")
@pytest.mark.parametrize("seed", range(20))
def test_random_trees(seed):
    model = tree(seed, base=("fixed", "floating")[seed % 2])
    require_held(model, some_joints(model, np.random.default_rng(seed)), seed)


def test_nothing_and_everything():
    model = loaded(own("gripper"), "floating")
    assert model.lock({}).digest == model.digest
    still = model.lock(dict.fromkeys(velocities_of(model)))
    assert still.nv == 0 and still.n_bodies == 0 and still.link_names == model.link_names
    np.testing.assert_array_equal(still.link_body, -1)
    at_once = model.lock({"root_joint": None}).lock(dict.fromkeys(list(velocities_of(model))[1:]))
    np.testing.assert_allclose(at_once.link_X, still.link_X, atol=1e-15)


def test_bodies_that_nothing_is_merged_into_stay_as_they_are():
    model = loaded(own("arm6"))
    small = model.lock({"wrist_3": 0.3})
    for what in ("Xtree", "inertia"):
        np.testing.assert_array_equal(getattr(small, what)[:4], getattr(model, what)[:4])


def test_followers_are_locked_where_their_leader_puts_them():
    model = loaded(own("gripper"))
    follower = int(np.flatnonzero(model.mimics >= 0)[0])
    leader = model.joint_names[model.mimics[follower]]
    small = model.lock({leader: 0.01})
    assert model.joint_names[follower] not in small.joint_names and leader not in small.joint_names
    require_held(model, {leader: 0.01})


def test_models_that_know_their_bodies_alone():
    """Inertias that were changed belong to the links that joints carry; bodies without links get one."""
    model = rd.auto_tree(7, branching=2.0, skew=0.3)
    require_held(model, {"joint1": 0.4, "joint3": -1.0})
    arm = loaded(own("arm6"))
    heavier = dataclasses.replace(arm, inertia=1.5 * arm.inertia)
    require_held(heavier, {"elbow": 0.4})
    none = {"link_parent": None, "link_joints": None, "link_inertia": None}
    bare = dataclasses.replace(arm, link_names=(), link_body=[], link_X=np.zeros((0, 12)), **none)
    small = bare.lock({"elbow": 0.4})
    wanted, q = reference(arm.lock({"elbow": 0.4})), small.random_configuration(0)
    np.testing.assert_allclose(reference(small).mass_matrix(q), wanted.mass_matrix(q), atol=1e-12)


ARM = loaded(own("arm6"), "floating")


@pytest.mark.parametrize(
    "joints,error,match",
    [
        (None, rd.ArgumentError, "joints: got None; wanted a dictionary"),
        (["elbow"], rd.ArgumentError, "wanted a dictionary"),
        ({"elbw": None}, rd.ArgumentError, "joint: got 'elbw'.* such as elbow"),
        ({"tool0": None}, rd.ArgumentError, "a link"),
        ({99: None}, rd.ArgumentError, "joint: got 99"),
        ({"elbow": "x"}, rd.ArgumentError, r'joints\["elbow"\]: got .x.'),
        ({"elbow": (0.1, 0.2)}, rd.ArgumentError, r'joints\["elbow"\]: got'),
        ({"elbow": np.nan}, rd.NumericalError, r'joints\["elbow"\]: NaN'),
        ({"elbow": 10**400}, rd.ArgumentError, r'joints\["elbow"\]'),
        ({"elbow": np.float32(np.inf)}, rd.NumericalError, r'joints\["elbow"\]: NaN or infinite'),
        ({"elbow": np.ma.masked_array([0.1], [True])}, rd.ArgumentError, r'joints\["elbow"\]: got .* masked'),
        ({"elbow": np.zeros((1, 1))}, rd.ArgumentError, r'joints\["elbow"\]: got'),
        ({"elbow": 0.1, ARM.joint_index("elbow"): 0.2}, rd.ArgumentError, "given twice"),
        ({"root_joint": 0.1}, rd.ArgumentError, r'joints\["root_joint"\]: got shape \(\)'),
        ({"root_joint": np.zeros((1, 7))}, rd.ArgumentError, "wanted 7 numbers: x, y, z, qx"),
        ({"root_joint": np.zeros(7)}, rd.ArgumentError, "zero length"),
        ({"root_joint": np.full(7, np.inf)}, rd.NumericalError, "infinite"),
    ],
)
def test_what_is_refused(joints, error, match):
    with pytest.raises(error, match=match):
        ARM.lock(joints)


def test_followers_are_not_locked_alone():
    model = loaded(own("gripper"))
    b = int(np.flatnonzero(model.mimics >= 0)[0])
    with pytest.raises(rd.ArgumentError, match=f"follows .{model.joint_names[model.mimics[b]]}.; lock that one"):
        model.lock({model.joint_names[b]: 0.0})


@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("robot", ["universalUR5", "iiwa14", "g1_29dof", "shadow_hand_right", "go2"])
def test_pinocchio_reduces_alike(robot, floating):
    pin = pytest.importorskip("pinocchio")
    path = shared(robot)  # robots whose joints and links share no name, which its reduction would trip over
    theirs = pin.buildModelFromUrdf(str(path), *([pin.JointModelFreeFlyer()] if floating else []))
    theirs.armature = np.linspace(0.01, 0.4, theirs.nv)
    model, rng = rd.from_pinocchio(theirs), np.random.default_rng(3)
    way = rd.converter(model, "pinocchio", joint_names=model.joint_names)
    q = model.random_configuration(rng)
    chosen = [joint for joint in model.joint_names if rng.random() < 0.4]
    at = velocities_of(model)
    reduced = pin.buildReducedModel(theirs, [theirs.getJointId(joint) for joint in chosen], way.q_to(q))
    small = model.lock({joint: q[at[joint]["q"]] for joint in chosen})
    assert list(reduced.names)[1:] == list(small.joint_names)
    there = rd.converter(small, "pinocchio", joint_names=list(reduced.names)[1:])
    data = reduced.createData()
    q, v, a = small.random_configuration(rng), *rng.normal(size=(2, small.nv))
    tau = pin.rnea(reduced, data, there.q_to(q), there.v_to(q, v), there.a_to(q, v, a))
    dyn = reference(small)
    np.testing.assert_allclose(there.tau_to(q, dyn.inverse_dynamics(q, v, a)), tau, atol=1e-11 * np.abs(tau).max())
    np.testing.assert_array_equal(small.armature, reduced.armature)
    np.testing.assert_array_equal(
        small.effort_limit, np.where(reduced.effortLimit > 1e300, np.inf, reduced.effortLimit)
    )
    pin.framesForwardKinematics(reduced, data, there.q_to(q))
    for link, pose in zip(small.link_names, dyn.forward_kinematics(q), strict=True):
        if reduced.existFrame(link, pin.FrameType.BODY):
            frame = reduced.getFrameId(link, pin.FrameType.BODY)
            np.testing.assert_allclose(pose, data.oMf[frame].homogeneous, atol=1e-12, err_msg=link)
    # What is made of a reduced model is the same as what is reduced of a made one.
    again = rd.from_pinocchio(reduced)
    np.testing.assert_allclose(again.inertia, small.inertia, atol=1e-12)
