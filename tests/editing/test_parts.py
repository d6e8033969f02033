"""Robots put together and taken apart, against descriptions that are edited as a file would be."""

from __future__ import annotations

from dataclasses import fields as dataclass_fields
from dataclasses import replace

import numpy as np
import pytest
from edited import EVERY, fixed, loaded, name, prefixed, reference, require_alike, require_same
from robots import own, shared

import robodyn as rd
from robodyn.core.model_fields import FIRST_AXES, REFERENCES
from robodyn.description import JOINT_TYPES, Pose, RobotDescription, rotation_from_rpy
from robodyn.io.builders.random_tree import random_description

AT = Pose((0.1, -0.2, 0.3), rotation_from_rpy(0.4, -0.5, 0.6))


def put_together(first, second, link, prefix, pose):
    """The description of two robots, as a file of both would be."""
    more = prefixed(second, prefix)
    joint = fixed(f"{more.root}_fixed", link, more.root, pose.xyz, pose.rotation)
    return replace(first, links=first.links + more.links, joints=(*first.joints, *more.joints, joint))


def described(path):
    return rd.read_urdf(path, strict=False)


@pytest.mark.some(of=8, rest="matrix")
@pytest.mark.parametrize("path", EVERY, ids=name)
def test_every_robot_is_attached_and_attached_to(path):
    """An arm carries it, and it carries a gripper with joints that follow others."""
    for carrier, carried in ((own("arm6"), path), (path, own("gripper"))):
        first, second = described(carrier), described(carried)
        link = first.links[-1].name
        wanted = rd.build_model(put_together(first, second, link, "x/", AT), strict=False)
        model = loaded(carrier).attach(loaded(carried), link=link, pose=AT, prefix="x/")
        assert model.report == (*loaded(carrier).report, *loaded(carried).report)
        if model.joint_names == wanted.joint_names:
            require_alike(wanted, model)
        require_same(model, wanted, 1e-13)


@pytest.mark.some(of=5, rest="matrix")
@pytest.mark.parametrize("seed", range(12))
def test_random_trees_are_put_together(seed):
    first = random_description(8, seed=seed, joints=JOINT_TYPES, mimic=0.3, armature=True)
    second = random_description(6, seed=seed + 99, joints=JOINT_TYPES, mimic=0.3)
    link = f"link{seed % 9}"
    wanted = rd.build_model(put_together(first, second, link, "b_", AT), strict=False)
    model = rd.build_model(first).attach(rd.build_model(second), link, AT, "b_")
    require_alike(wanted, model, 1e-14)
    floating = rd.build_model(first, base="floating").attach(rd.build_model(second), link, AT, "b_")
    require_same(rd.build_model(put_together(first, second, link, "b_", AT), base="floating", strict=False), floating)


def test_a_robot_attached_to_itself():
    arm = loaded(own("arm6"))
    twice = arm.attach(arm, "tool0", prefix="second_")
    assert twice.nv == 12 and len(twice.link_names) == 16
    assert twice.total_mass == pytest.approx(2 * arm.total_mass + arm.link_inertia[arm.link_body < 0, 0].sum())


ARM, GRIPPER = loaded(own("arm6")), loaded(own("gripper"))


@pytest.mark.parametrize(
    "other,options,match",
    [
        (None, {"link": "tool0"}, "other: got None; wanted a robodyn.Model"),
        (ARM, {"link": "tool0"}, "a link called .base.,.* wanted another prefix"),
        (GRIPPER, {"link": "tool"}, "link: got 'tool'"),
        (GRIPPER, {"link": "tool0", "prefix": 3}, "prefix: got 3; wanted a text"),
        (GRIPPER, {"link": "tool0", "prefix": None}, "prefix: got None"),
        (GRIPPER, {"link": "tool0", "pose": np.eye(3)}, "pose: got shape"),
    ],
)
def test_what_is_not_attached(other, options, match):
    with pytest.raises(rd.ArgumentError, match=match):
        ARM.attach(other, **options)


def test_joints_of_one_name_are_refused():
    text = '<robot name="r"><link name="a"/><link name="b"/><joint name="elbow" type="fixed"><parent link="a"/>'
    other = rd.load_urdf(text + '<child link="b"/></joint></robot>')
    assert "_elbow" in ARM.attach(other, "tool0").link_joints  # a fixed one steps aside
    moving = rd.load_urdf(text.replace("fixed", "continuous") + '<child link="b"/></joint></robot>')
    with pytest.raises(rd.ArgumentError, match=r"a joint called .elbow."):
        ARM.attach(moving, "tool0")


@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("robot", ["universalUR5", "panda_arm", "go2"])
def test_pinocchio_appends_alike(robot, floating):
    pin = pytest.importorskip("pinocchio")
    path = shared(robot)  # robots whose joints and links share no name, which Pinocchio would trip over
    first = pin.buildModelFromUrdf(str(path), *([pin.JointModelFreeFlyer()] if floating else []))
    second = pin.buildModelFromUrdf(str(shared("allegro_hand_description_left")))
    ours, carried = rd.from_pinocchio(first), rd.from_pinocchio(second)
    link = ours.link_names[-1]
    frame = first.getFrameId(link, pin.FrameType.BODY)
    placed = pin.SE3(np.array(AT.rotation).reshape(3, 3), np.array(AT.xyz))
    theirs = pin.appendModel(first, second, frame, placed)
    names = tuple(each.replace("universe", "mount") for each in carried.link_names)
    model = ours.attach(replace(carried, link_names=names), link, AT)
    there = rd.converter(model, "pinocchio", joint_names=list(theirs.names)[1:])
    data, rng, dyn = theirs.createData(), np.random.default_rng(1), reference(model)
    q, v, a = model.random_configuration(rng), *rng.normal(size=(2, model.nv))
    tau = pin.rnea(theirs, data, there.q_to(q), there.v_to(q, v), there.a_to(q, v, a))
    np.testing.assert_allclose(there.tau_to(q, dyn.inverse_dynamics(q, v, a)), tau, atol=1e-11 * np.abs(tau).max())
    pin.framesForwardKinematics(theirs, data, there.q_to(q))
    for each, pose in zip(model.link_names, dyn.forward_kinematics(q), strict=True):
        if theirs.existFrame(each, pin.FrameType.BODY):
            at = theirs.getFrameId(each, pin.FrameType.BODY)
            np.testing.assert_allclose(pose, data.oMf[at].homogeneous, atol=1e-12, err_msg=each)


def below(description, link):
    """The description of what hangs on a link."""
    kept, joints = {link}, []
    waiting = True
    while waiting:
        waiting = [joint for joint in description.joints if joint.parent in kept and joint.child not in kept]
        kept |= {joint.child for joint in waiting}
    joints = tuple(joint for joint in description.joints if joint.parent in kept)
    return RobotDescription(
        description.name, tuple(each for each in description.links if each.name in kept), joints, description.report
    )


def require_subtree(description, model, link):
    part = below(description, link)
    inside = {joint.name for joint in part.joints}
    leaders = {
        model.joint_names[leader]
        for joint, leader in zip(model.joint_names, model.mimics.tolist(), strict=True)
        if leader >= 0 and joint in inside
    }
    if leaders - inside:
        with pytest.raises(rd.ArgumentError, match="which stays behind; lock that one first"):
            model.subtree(link)
        return
    found = model.subtree(link)
    if any(joint.mimic is not None and joint.mimic.joint not in inside for joint in part.joints):
        return  # a chain of followers whose last leader alone is inside: no file says that
    wanted = rd.build_model(part, strict=False)
    assert [each for each in found.report if each.code != "extension-dropped"] == list(model.report)
    if {joint.type for joint in part.joints} & {"universal"} and found.body_names != wanted.body_names:
        require_same(wanted, found)
        return
    require_alike(wanted, found, 1e-14)


@pytest.mark.some(of=8, rest="matrix")
@pytest.mark.parametrize("path", EVERY, ids=name)
def test_every_subtree(path):
    description, model = described(path), loaded(path)
    links = model.link_names
    for link in links[:: max(1, len(links) // 6)]:
        require_subtree(description, model, link)


@pytest.mark.some(of=5, rest="matrix")
@pytest.mark.parametrize("seed", range(10))
def test_subtrees_of_random_trees(seed):
    description = random_description(14, seed=seed, joints=JOINT_TYPES, armature=True)
    for base in ("fixed", "floating"):
        model = rd.build_model(description, base=base)
        for k in range(15):
            require_subtree(description, model, f"link{k}")


def test_a_gripper_comes_off_and_goes_on_again():
    arm = ARM.attach(GRIPPER, "tool0", AT, "g_")
    root = f"g_{GRIPPER.link_names[GRIPPER.link_parent.tolist().index(-1)]}"
    off = arm.subtree(root)
    assert off.nv == GRIPPER.nv and off.total_mass == pytest.approx(GRIPPER.total_mass)
    again = ARM.attach(off, "tool0", AT)
    require_alike(arm, again, 1e-14)


@pytest.mark.some(of=8, rest="matrix")
@pytest.mark.parametrize("path", EVERY, ids=name)
def test_inertias_of_links(path):
    description, model = described(path), loaded(path)
    rng = np.random.default_rng(2)
    k = int(rng.integers(len(model.link_names)))
    link = description.links[k]
    given = random_description(1, seed=3).links[0].inertial
    turned = np.array(given.pose.rotation).reshape(3, 3)
    square = turned @ np.array(given.inertia)[[0, 1, 2, 1, 3, 4, 2, 4, 5]].reshape(3, 3) @ turned.T
    links = [*description.links]
    links[k] = replace(link, inertial=given)
    wanted = rd.build_model(replace(description, links=tuple(links)), strict=False)
    found = model.with_inertia(link.name, mass=given.mass, com=given.pose.xyz, inertia=square)
    require_alike(wanted, found, 1e-14)
    six = square[[0, 0, 0, 1, 1, 2], [0, 1, 2, 1, 2, 2]]
    assert model.with_inertia(k, given.mass, np.array(given.pose.xyz), six) == found
    heavier = found.with_inertia(link.name, mass=2 * given.mass)
    links[k] = replace(link, inertial=replace(given, mass=2 * given.mass))
    require_alike(rd.build_model(replace(description, links=tuple(links)), strict=False), heavier, 1e-14)


def test_every_field_is_carried():
    """A new field of a model stands in the table that edits go by, or is one of those that a robot has once: `joined`
    takes the first robot's of these, and `attach` puts reports together. The joints of a file are of use as long as the
    model has them (`robodyn.conventions.file_order`). Configurations have a module of their own
    (`robodyn.io.editing.configured`), and what is found by names too (`carried`)."""
    names = {each.name for each in dataclass_fields(rd.Model)} - {"configurations"}
    of_names = {"constraints", "contacts", "geometries", "extensions", "collision_pairs"}
    assert names - FIRST_AXES.keys() == {"name", "gravity", "report", "file_tree", "source", "proximal", *of_names}
    assert set(REFERENCES) == {"parent", "mimics", "link_body", "link_parent"}


def test_findings_about_new_inertias_are_reported():
    found = ARM.with_inertia("tool0", mass=1.0)
    assert [each.code for each in found.report[len(ARM.report) :]] == ["mass-without-inertia"]
    assert found.total_mass == pytest.approx(ARM.total_mass + 1.0)
    assert ARM.with_inertia("tool0").inertia.tobytes() == ARM.inertia.tobytes()


@pytest.mark.parametrize(
    "given,error,match",
    [
        ({"mass": -1.0}, rd.ArgumentError, "the mass -1 kg is negative"),
        ({"mass": "x"}, rd.ArgumentError, "mass: got 'x'"),
        ({"mass": np.nan}, rd.ArgumentError, "mass: got"),
        ({"com": (1.0, 2.0)}, rd.ArgumentError, "com: got shape"),
        ({"com": np.zeros((2, 3))}, rd.ArgumentError, "com: got shape"),
        ({"com": (0.0, np.inf, 0.0)}, rd.NumericalError, "com: NaN or infinite"),
        ({"inertia": np.eye(2)}, rd.ArgumentError, "inertia: got shape"),
        ({"inertia": np.diag([1.0, 1.0, -5.0])}, rd.ArgumentError, "negative"),
        ({"inertia": np.arange(9.0).reshape(3, 3)}, rd.ArgumentError, "not symmetric"),
        ({"inertia": np.full((3, 3), np.nan)}, rd.NumericalError, "inertia: NaN"),
        ({"mass": 1e308, "com": (1e10, 0.0, 0.0)}, rd.ArgumentError, "inertia"),
    ],
)
def test_inertias_that_are_refused(given, error, match):
    with pytest.raises(error, match=match):
        ARM.with_inertia("tool0", **given)
