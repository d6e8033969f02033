"""Robots of MuJoCo: every joint and place, what is reported, and files that would do harm."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import relative
from robots import ROOT

import robodyn as rd
from robodyn.core.findings import FINDINGS

mujoco = pytest.importorskip("mujoco")

VERSION = tuple(int(part) for part in mujoco.__version__.split(".")[:3])

ROBOT = """
<mujoco model="awkward">
  <option gravity="0.5 -1 -9"/>
  <default><geom density="500"/></default>
  <worldbody>
    <body name="base"><freejoint name="root"/><geom size="0.2 0.1 0.3" type="box" pos="0.1 0 0.05"/>
      <body name="leg" pos="0.3 0.1 0" euler="20 30 10">
        <joint name="a" axis="1 1 0" pos="0 0.1 0.2" ref="25" range="-90 60" limited="true" actuatorfrcrange="-3 2"
               armature="0.2" damping="0.3" frictionloss="0.1"/>
        <joint name="b" type="slide" axis="0 1 2" ref="0.3"/>
        <joint axis="0 0 1" pos="0.1 0 0"/>
        <geom type="capsule" size="0.05 0.2"/>
        <body pos="0 0 -0.4"><joint name="ball" type="ball" pos="0 0 0.1" armature="0.01"/><geom size="0.1"/>
          <body name="tip" pos="0 0.1 0"><geom size="0.02 0.03 0.04" type="box"/></body>
        </body>
      </body>
    </body>
    <body name="other" pos="1 0 0"><joint name="follower" axis="0 1 0" ref="10"/><geom size="0.1" pos="0.2 0 0"/></body>
    <body name="third" pos="2 0 0"><joint name="leader" axis="0 1 0" ref="-5"/><geom size="0.1" pos="0.2 0 0"/></body>
    <body name="still" pos="0 2 0"><geom size="0.3"/></body>
  </worldbody>
  <equality><joint joint1="follower" joint2="leader" polycoef="0.1 2 0 0 0"/></equality>
  <actuator><motor joint="a" gear="10"/></actuator>
</mujoco>
"""


def same_as_mujoco(theirs: Any, model: rd.Model, states: int = 4) -> None:
    """Inverse dynamics without passive forces, mass matrix and poses of bodies."""
    theirs.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    data, way = mujoco.MjData(theirs), rd.converter(model, "mujoco")
    dyn = rd.Dynamics(model, engine="reference")
    rng = np.random.default_rng(3)
    for _ in range(states):
        q = model.random_configuration(rng)
        qd, qdd = rng.normal(size=(2, model.nv))
        data.qpos[:], data.qvel[:], data.qacc[:] = way.q_to(q), way.v_to(q, qd), way.a_to(q, qd, qdd)
        mujoco.mj_inverse(theirs, data)
        tau = way.tau_to(q, dyn.inverse_dynamics(q, qd, qdd))
        assert relative(tau, data.qfrc_inverse + data.qfrc_passive) < 1e-12
        H = np.zeros((theirs.nv, theirs.nv))
        for row, unit in zip(H, np.eye(theirs.nv), strict=True):
            mujoco.mj_mulM(theirs, data, row, unit)
        assert relative(way.mass_matrix_to(q, dyn.mass_matrix(q)), H) < 1e-12
        poses = dyn.forward_kinematics(q)
        for b in range(theirs.nbody):
            name = mujoco.mj_id2name(theirs, mujoco.mjtObj.mjOBJ_BODY, b) or f"body_{b}"
            pose = poses[model.link_names.index(name)]
            assert np.abs(pose[:3, 3] - data.xpos[b]).max() < 1e-12
            assert np.abs(pose[:3, :3].ravel() - data.xmat[b]).max() < 1e-12


def test_every_joint_and_place():
    model = rd.load_mjcf(ROBOT)
    same_as_mujoco(mujoco.MjModel.from_xml_string(ROBOT), model)
    assert model.name == "awkward" and np.array_equal(model.gravity, [0.5, -1.0, -9.0])
    a = model.joint_index("a")
    at = int(model.v_start[a])
    assert np.allclose([model.tree_armature[at], model.tree_damping[at], model.tree_friction[at]], [0.2, 0.3, 0.1])
    q = int(model.q_start[a])
    assert np.allclose([model.tree_lower[q], model.tree_upper[q]], np.radians([-90, 60]))
    assert model.tree_effort[at] == 3.0
    assert {"leg/0", "leg/1", "tip", "still"} <= set(model.link_names)
    assert {"mjcf-equality", "mjcf-actuator"} <= {each.code for each in model.report}


def test_every_source(tmp_path):
    path = tmp_path / "robot.xml"
    path.write_text(ROBOT)
    compiled = mujoco.MjModel.from_xml_string(ROBOT)
    binary = tmp_path / "robot.mjb"
    mujoco.mj_saveModel(compiled, str(binary), None)
    wanted = rd.load_mjcf(ROBOT)
    with path.open() as file:
        sources = [path, str(path), ROBOT.encode(), compiled, binary, file]
        if VERSION > (3, 2, 3):  # before, a MjSpec cannot be copied
            sources.append(mujoco.MjSpec.from_string(ROBOT))
        for source in sources:
            found = rd.load_mjcf(source)
            assert np.array_equal(found.Xtree, wanted.Xtree) and found.joint_names == wanted.joint_names
    assert rd.load(path).joint_names == rd.load(compiled).joint_names == rd.load(ROBOT).joint_names


def test_a_joint_follows_another_by_an_equality():
    model = rd.load_mjcf(ROBOT, equality="mimic")
    assert model.nv == rd.load_mjcf(ROBOT).nv - 1
    assert "mjcf-equality" not in {each.code for each in model.report}
    q = model.random_configuration(0)
    tree = model.tree_coordinates(q)
    y, x = (tree[model.q_start[model.joint_index(name)]] for name in ("follower", "leader"))
    assert abs((y - np.radians(10)) - (0.1 + 2.0 * (x - np.radians(-5)))) < 1e-12


def test_what_has_no_part_is_reported():
    text = """<mujoco><option density="1" timestep="0.01"/>
    <worldbody>
    <body name="b" gravcomp="1" pos="0 0 1"><freejoint name="f"/><geom size="1"/>
    <body name="c"><joint name="j" stiffness="2" solreflimit="0.01 1"/>
    <geom size="1" name="g"/><site name="s"/></body></body>
    <body mocap="true" name="m"/>
    <body><joint type="ball" range="0 1" limited="true"/><geom size="1"/></body></worldbody>
    <tendon><fixed name="t"><joint joint="j" coef="1"/></fixed></tendon>
    <equality><weld body1="b" body2="c"/></equality>
    <actuator><motor joint="j"/><general tendon="t"/></actuator></mujoco>"""
    compiled = mujoco.MjModel.from_xml_string(text)
    compiled.dof_armature[:6] = compiled.dof_frictionloss[:6] = 0.1
    if hasattr(compiled, "actuator_armature"):
        compiled.actuator_armature[1] = 0.1
    uneven = "1 0.5 0.2" if VERSION >= (3, 7) else "1"
    soft = f"""<mujoco><worldbody><body name="b"><joint name="j" damping="{uneven}"/><geom size="1"/>
    <flexcomp type="grid" count="2 2 1" spacing="0.1 0.1 0.1" name="cloth" dim="2" mass="1" radius="0.01"
     rigid="true"/></body><body><joint range="-1 1" actuatorfrcrange="-3 2"/><geom size="1"/></body></worldbody>
    </mujoco>"""
    codes = {each.code for source in (compiled, soft) for each in rd.load_mjcf(source).report}
    wanted = {code for code in FINDINGS if code.startswith("mjcf-")}
    wanted -= {"mjcf-site", "mjcf-keyframe", "mjcf-missing-file", "mjcf-warning", "mjcf-contact"}  # have their own
    if not hasattr(compiled, "dof_dampingpoly"):
        wanted -= {"mjcf-damping"}
    if not hasattr(compiled, "actuator_armature"):
        wanted -= {"mjcf-actuator-coefficient"}
    assert wanted <= codes


@pytest.mark.parametrize("kind", ["hinge", "slide", "ball", "free"])
@pytest.mark.parametrize("transmission", ["joint", "jointinparent"])
def test_armature_and_damping_of_actuators(kind, transmission):
    """MuJoCo adds them to all degrees of freedom of the joint, by the first number of the gear."""
    text = f"""<mujoco><option gravity="0 0 0"/><worldbody><body><joint name="j" type="{kind}" damping="0.3"/>
    <geom size=".1" pos=".1 .2 .3"/></body></worldbody><actuator>
    <general {transmission}="j" gear="2 1 3 .4 .5 .6" armature="0.1" damping="0.5"/>
    <general {transmission}="j" gear="3 1 3 .4 .5 .6" armature="0.2"/></actuator></mujoco>"""
    if VERSION < (3, 7):
        pytest.skip("this version of MuJoCo has no armature of actuators")
    theirs = mujoco.MjModel.from_xml_string(text)
    model, data = rd.load_mjcf(text), mujoco.MjData(theirs)
    way, rng = rd.converter(model, "mujoco"), np.random.default_rng(1)
    q, qd = model.random_configuration(rng), rng.normal(size=model.nv)
    data.qpos[:], data.qvel[:] = way.q_to(q), way.v_to(q, qd)
    mujoco.mj_forward(theirs, data)
    H = np.zeros((theirs.nv, theirs.nv))
    for row, unit in zip(H, np.eye(theirs.nv), strict=True):
        mujoco.mj_mulM(theirs, data, row, unit)
    assert relative(way.mass_matrix_to(q, rd.Dynamics(model).mass_matrix(q)), H) < 1e-12
    assert relative(way.tau_to(q, model.damping * qd), -data.qfrc_damper) < 1e-12
    assert ("mjcf-free-armature" in {each.code for each in model.report}) == (kind == "free")


def test_damping_and_friction_that_do_not_act_by_themselves():
    """Of joints of every kind, and of actuators."""
    text = """<mujoco><worldbody><body><joint name="a" damping=".1"/><joint name="b" axis="1 0 0"/><geom size=".1"/>
    <body><joint name="c" type="ball" frictionloss=".2"/><geom size=".1"/></body></body></worldbody></mujoco>"""
    (found,) = (each for each in rd.load_mjcf(text).report if each.code == "joint-forces-not-used")
    assert found.elements == ('joint "a"', 'joint "c"') and found.severity == "info"
    none = text.replace('damping=".1"', "").replace('frictionloss=".2"', "")
    assert "joint-forces-not-used" not in {each.code for each in rd.load_mjcf(none).report}
    urdf = rd.load_urdf(rd.load_mjcf(text).to_urdf())
    assert [each.message for each in urdf.report if each.code == found.code] == [found.message]


def test_names_of_mujoco_stay():
    text = """<mujoco><worldbody><body><joint/><geom size=".1"/><body name="body_1" pos="0 0 1">
    <joint name="joint_0" axis="1 0 0"/><geom size=".1"/><body name=" "><joint name=" " pos="1 0 0"/><geom size=".1"/>
    </body></body></body></worldbody></mujoco>"""
    model = rd.load_mjcf(text)
    assert model.joint_names == ("_joint_0", "joint_0", "joint_2")
    assert {"_body_1", "body_1", "body_3", "body_3/0"} <= set(model.link_names)
    pose = rd.Dynamics(model).forward_kinematics(model.neutral())[model.link_names.index("body_1")]
    assert pose[2, 3] == 1.0


def test_equalities_that_are_not_followed():
    body = '<body><joint name="{}"/><geom size=".1" pos=".1 0 0"/></body>'
    text = f"""<mujoco>{{}}<worldbody>{"".join(map(body.format, "abc"))}</worldbody><equality>
    <joint joint1="a" joint2="b" polycoef="0 2 0 0 0"/><joint joint1="a" joint2="c" polycoef="0 3 0 0 0"/></equality>
    </mujoco>"""
    model = rd.load_mjcf(text.format(""), equality="mimic")
    found = [each for each in model.report if each.code == "mjcf-equality"]
    assert model.nv == 2 and [each.elements for each in found] == [("equality 1",)]
    assert "its joint follows another one already" in found[0].message
    for flag in ("equality", "constraint"):
        model = rd.load_mjcf(text.format(f'<option><flag {flag}="disable"/></option>'), equality="mimic")
        assert model.nv == 3 and not [each for each in model.report if each.code == "mjcf-equality"]


@pytest.mark.parametrize(
    "what, field", [("armature", "armature"), ("damping", "damping"), ("friction", "frictionloss")]
)
def test_coefficients_that_cannot_be(what, field):
    theirs = mujoco.MjModel.from_xml_string(ROBOT)
    getattr(theirs, f"dof_{field}")[7] = -5.0
    with pytest.raises(rd.LoadError, match=f'joint "b": its {what} -5 is negative; at least 0 is allowed'):
        rd.load_mjcf(theirs)
    model = rd.load_mjcf(theirs, strict=False)
    assert ("error", "negative-coefficient") in {(each.severity, each.code) for each in model.report}
    assert getattr(model, f"tree_{what}").min() == -5.0
    for wrong in (np.nan, np.inf):
        getattr(theirs, f"dof_{field}")[7] = wrong
        with pytest.raises(rd.LoadError, match=f'joint "b": its {what} is {wrong}; wanted a finite number'):
            rd.load_mjcf(theirs, strict=False)


@pytest.mark.parametrize(
    "field, at, value, message",
    [
        ("jnt_type", slice(None), 0, "nv contradicts|jnt_dofadr contradicts"),
        ("jnt_type", 1, 9, "jnt_type is"),
        ("jnt_dofadr", 2, 3, "jnt_dofadr contradicts"),
        ("jnt_qposadr", 2, 3, "jnt_qposadr contradicts"),
        ("jnt_bodyid", 2, 1, "jnt_bodyid contradicts"),
        ("body_jntnum", 2, 0, "njnt contradicts"),
        ("body_jntadr", 2, 0, "body_jntadr contradicts"),
        ("body_parentid", 2, 4, "body_parentid has"),
        ("body_parentid", 3, 1, "dof_parentid contradicts body_parentid"),
        ("body_quat", 2, 0.9, "body_quat.2. is .*; wanted unit length"),
        ("body_iquat", 2, 0.9, "body_iquat.2. is .*; wanted unit length"),
        ("jnt_axis", 1, 0.9, "jnt_axis.1. is .*; wanted unit length"),
        ("actuator_trnid", 0, 1000, "actuator_trnid.0, 0. is 1000; wanted 0 to 6, as njnt is 7"),
        ("actuator_trnid", 0, -1, "actuator_trnid.0, 0. is -1; wanted 0 to 6"),
        ("qpos0", 8, np.nan, "finite|not a number|nan"),
    ],
)
def test_models_that_were_changed(field, at, value, message):
    if field == "actuator_trnid" and VERSION < (3, 7):
        pytest.skip("this version of MuJoCo has no armature of actuators")
    theirs = mujoco.MjModel.from_xml_string(ROBOT)
    getattr(theirs, field)[at] = value
    with pytest.raises(rd.LoadError, match=message):
        rd.load_mjcf(theirs)


def test_gravity_that_is_no_number():
    theirs = mujoco.MjModel.from_xml_string(ROBOT)
    theirs.opt.gravity[0] = np.nan
    with pytest.raises(rd.LoadError, match=r"gravity: got .nan, -1.0, -9.0.; wanted finite numbers"):
        rd.load_mjcf(theirs)


@pytest.mark.matrix
def test_many_equalities_and_bodies_take_no_time():
    """Each looked for in a list of all would take minutes."""
    n = 2000
    bodies = "".join(f'<body name="b{i}"><geom size=".1"/><joint name="a{i}" pos="1 0 0"/></body>' for i in range(n))
    follow = "".join(f'<joint joint1="a{i}" joint2="a0"/>' for i in range(1, n))
    text = f"<mujoco><worldbody>{bodies}</worldbody><equality>{follow}</equality></mujoco>"
    assert rd.load_mjcf(mujoco.MjModel.from_xml_string(text), equality="mimic").nv == 1


def test_gravity_that_is_off():
    text = ROBOT.replace('<option gravity="0.5 -1 -9"/>', '<option><flag gravity="disable"/></option>')
    assert not rd.load_mjcf(text).gravity.any()


@pytest.mark.parametrize(
    "text, message",
    [
        ("<mujoco><worldbody><body><joint/></body></worldbody></mujoco>", "MuJoCo does not compile it"),
        ("<robot name='r'/>", 'root element is `?"?robot'),
        ("<mujoco><worldbody>", "not well-formed XML"),
        ('<!DOCTYPE m [<!ENTITY a "b">]><mujoco/>', "document type or entities"),
        ('<mujoco><include file="/dev/zero"/></mujoco>', "it is a device"),
        ('<mujoco><asset><mesh name="m" file="/dev/zero"/></asset></mujoco>', "no regular file"),
        ("", "empty|blank"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(rd.LoadError, match=message):
        rd.load_mjcf(text.encode() if text else b" ")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_files_that_lead_round_or_to_pipes(tmp_path):
    one, two = tmp_path / "one.xml", tmp_path / "two.xml"
    one.write_text('<mujoco><include file="two.xml"/></mujoco>')
    two.write_text('<mujocoinclude><include file="one.xml"/></mujocoinclude>')
    with pytest.raises(rd.LoadError, match="includes itself"):
        rd.load_mjcf(one)
    os.mkfifo(tmp_path / "pipe.stl")
    one.write_text('<mujoco><compiler meshdir="."/><asset><mesh name="m" file="pipe.stl"/></asset></mujoco>')
    with pytest.raises(rd.LoadError, match="no regular file"):
        rd.load_mjcf(one)
    os.mkfifo(tmp_path / "robot.xml")
    with pytest.raises(rd.LoadError, match="cannot read"):
        rd.load_mjcf(tmp_path / "robot.xml")


def test_bad_arguments_are_named():
    with pytest.raises(rd.ArgumentError, match="equality: got 'soft'; allowed: 'report', 'mimic'"):
        rd.load_mjcf(ROBOT, equality="soft")
    with pytest.raises(rd.ArgumentError, match="strict"):
        rd.load_mjcf(ROBOT, strict="yes")
    with pytest.raises(rd.ArgumentError, match="cannot read a robot"):
        rd.load_mjcf(3)
    with pytest.raises(rd.LoadError, match="No such file"):
        rd.load_mjcf("nowhere.xml")


def test_one_door():
    urdf = ROOT / "models" / "arm6.urdf"
    assert rd.load(urdf, base="floating").nv == 12
    assert rd.load(urdf.read_text()).joint_names == rd.load_urdf(urdf).joint_names
    with urdf.open("rb") as file:
        assert rd.load(file).nv == 6
    model = rd.load_urdf(urdf)
    assert rd.load(model) is model
    for source, error, text in (
        ("robot.urdf.xacro", rd.LoadError, "xacro, which can read the machine"),
        (Path("robot.xacro"), rd.LoadError, "xacro"),
        ("<sdf version='1.7'/>", rd.LoadError, "the file holds no model"),
        ("<html/>", rd.LoadError, "root element"),
        (3, rd.ArgumentError, "cannot read a robot"),
    ):
        with pytest.raises(error, match=text):
            rd.load(source)
    with pytest.raises(rd.ArgumentError, match="base: no option of load_mjcf; wanted equality, strict"):
        rd.load(ROBOT, base="floating")
    with pytest.raises(rd.ArgumentError, match="strict: no option of a Model"):
        rd.load(model, strict=True)


def test_the_door_stays_a_function_whatever_is_imported():
    for each in pkgutil.walk_packages(rd.__path__, "robodyn.", onerror=lambda name: None):
        if each.name != "robodyn.__main__":
            with contextlib.suppress(rd.UnavailableError):  # JAX, PyTorch
                importlib.import_module(each.name)
    assert callable(rd.load) and callable(rd.load_mjcf) and callable(rd.converter)
