"""Keyframes of MJCF are configurations: where MuJoCo has the robot then, through files, edits and back."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

import robodyn as rd
from robodyn.core.model_fields import Configurations
from robodyn.core.tables import model_summary, to_text

mujoco = pytest.importorskip("mujoco")

ROBOT = """<mujoco><worldbody><body name="base" pos="0 0 1"><freejoint name="float"/><geom size=".1"/>
<body name="arm" pos=".1 .2 0"><joint name="a" ref="30" axis="0 1 0"/><joint name="b" type="slide" ref=".2"/>
<geom size=".1" pos=".3 0 0"/><body name="hand" pos="1 0 0"><joint name="c" type="ball" pos=".1 0 0"/><geom size=".1"/>
<body name="finger" pos=".1 0 0"><joint name="d" axis="1 0 0"/><geom size=".1"/><site name="tip" pos="0 .1 0"/></body>
</body></body></body></worldbody><equality><joint joint1="d" joint2="a" polycoef=".1 2 0 0 0"/></equality><keyframe>
<key name="home" qpos="1 2 3 .5 .5 -.5 .5  .3 .4  .8 .6 0 0  .7"/>
<key qpos="0 0 0 1 0 0 0  .1 0  1 0 0 0  0" qvel="1 0 0 0 0 0 0 0 0 0 0 0" time="2"/></keyframe></mujoco>"""


def same_poses(theirs, model, links, tolerance=1e-12):
    """At every keyframe."""
    data = mujoco.MjData(theirs)
    for k, (name, q) in enumerate(model.configurations.items()):
        assert name == (mujoco.mj_id2name(theirs, mujoco.mjtObj.mjOBJ_KEY, k) or f"key_{k}")
        mujoco.mj_resetDataKeyframe(theirs, data, k)
        mujoco.mj_kinematics(theirs, data)
        poses = rd.Dynamics(model, engine="reference").forward_kinematics(q)
        for link in links:
            b = mujoco.mj_name2id(theirs, mujoco.mjtObj.mjOBJ_BODY, link)
            assert np.abs(poses[model.link_index(link)][:3, 3] - data.xpos[b]).max() < tolerance
            assert np.abs(poses[model.link_index(link)][:3, :3].ravel() - data.xmat[b]).max() < tolerance


LINKS = ("base", "arm", "hand", "finger")


def findings(model, code="mjcf-keyframe"):
    return [(each.severity, *each.elements, each.message) for each in model.report if each.code == code]


def test_where_mujoco_has_them():
    theirs, model = mujoco.MjModel.from_xml_string(ROBOT), rd.load_mjcf(ROBOT)
    assert tuple(model.configurations) == ("home", "key_1")
    same_poses(theirs, model, LINKS)
    assert findings(model) == [("info", 'key "key_1"', "its time, velocities have no part in the model")]
    assert "home, key_1" in to_text(model_summary(model))


def test_followers_are_reduced():
    theirs, model = mujoco.MjModel.from_xml_string(ROBOT), rd.load_mjcf(ROBOT, equality="mimic")
    assert model.configurations["home"].shape == (model.nq,) == (13,)
    same_poses(theirs, model, LINKS[:3])
    assert [each[1:-1] for each in findings(model) if each[0] == "warning"] == [('key "home"', 'key "key_1"')]
    led = [float(0.1 + 2.0 * (a - np.radians(30))) for a in (0.3, 0.1)]
    agreeing = ROBOT.replace(' .7"', f' {led[0]!r}"').replace('1 0 0 0  0"', f'1 0 0 0 {led[1]!r}"')
    followed = rd.load_mjcf(agreeing, equality="mimic")
    same_poses(mujoco.MjModel.from_xml_string(agreeing), followed, LINKS)
    assert not [each for each in findings(followed) if each[0] == "warning"]
    welded = agreeing.replace(".1 2 0 0 0", ".1 0 0 0 0")
    assert [each[0] for each in findings(rd.load_mjcf(welded, equality="mimic"))] == ["warning", "info"]


@pytest.mark.parametrize("equality", ["report", "mimic"])
def test_written_and_read_again(equality):
    model = rd.load_mjcf(ROBOT, equality=equality)
    text = model.to_mjcf()
    again = rd.load_mjcf(text, equality=equality)
    assert tuple(again.configurations) == tuple(model.configurations)
    assert np.abs(again.configurations.rows - model.configurations.rows).max() < 1e-12
    same_poses(mujoco.MjModel.from_xml_string(text), again, LINKS)
    said = [each.elements for each in model.to_urdf().report if "configuration" in each.element]
    assert said == [('configuration "home"', 'configuration "key_1"')]


def test_a_floating_base_and_planar_joints_are_written():
    model = rd.random_tree(8, seed=3, joints=("planar", "spherical", "revolute", "prismatic"), base="floating")
    q = np.array([model.random_configuration(seed) for seed in range(2)])
    model = replace(model, configurations={"one": q[0], "two": q[1]})
    theirs = mujoco.MjModel.from_xml_string(model.to_mjcf())
    same_poses(theirs, model, [name for name in model.body_names if f'body name="{name}"' in model.to_mjcf()], 1e-10)


def test_files_pickles_and_identity(tmp_path):
    model = rd.load_mjcf(ROBOT)
    path = tmp_path / "robot.npz"
    model.save(path)
    for again in (rd.Model.load(path), pickle.loads(pickle.dumps(model)), rd.load(path)):
        assert again.configurations == model.configurations and again == model
        assert hash(again.configurations) == hash(model.configurations)
        assert not again.configurations["home"].flags.writeable
    bare = replace(model, configurations={})
    assert bare != model and bare.configurations == Configurations() and copy.deepcopy(model.configurations) is not None
    bare.save(path)
    assert rd.Model.load(path) == bare
    old = {name: value for name, value in model.__getstate__().items() if name != "configurations"}
    earlier = object.__new__(rd.Model)
    earlier.__setstate__(old)
    assert earlier.configurations == Configurations() and earlier == bare


def test_what_users_give():
    model = rd.load_mjcf(ROBOT)
    q = model.random_configuration(0)
    given = replace(model, configurations={"up": q})
    q[:] = 0.0
    assert given.configurations["up"].any() and list(given.configurations) == ["up"]
    for wrong, match in (
        ([1], "wanted a dictionary"),
        ({"up": np.zeros(3)}, r'configurations\["up"\]: got shape \(3,\)'),
        ({"up": np.zeros((2, model.nq))}, r'configurations\["up"\]: got shape'),
        ({" ": model.neutral()}, "not blank"),
        ({3: model.neutral()}, "the name 3"),
        ({"up": q}, "configurations.*zero length"),
        (Configurations(("up",), np.zeros((1, 3))), "got shape"),
        ({"up": "x"}, "up"),
    ):
        with pytest.raises(rd.ArgumentError, match=match):
            replace(model, configurations=wrong)
    with pytest.raises(rd.NumericalError, match="up"):
        replace(model, configurations={"up": np.full(model.nq, np.nan)})


def test_keyframes_that_are_none(monkeypatch):
    theirs = mujoco.MjModel.from_xml_string(ROBOT)
    theirs.key_qpos[0, 3:7] = 0.0
    model = rd.load_mjcf(theirs)
    assert tuple(model.configurations) == ("key_1",) and findings(model)[0][:2] == ("warning", 'key "home"')
    theirs.key_qpos[1, 0] = np.nan
    assert not rd.load_mjcf(theirs).configurations
    monkeypatch.setattr("robodyn.io.builders.mjcf.MOST_KEYFRAMES", 1)
    model = rd.load_mjcf(ROBOT)
    assert tuple(model.configurations) == ("home",) and "2 of them; the first 1 are read" in str(findings(model))


def test_keyframes_of_one_name():
    compiled = mujoco.MjModel.from_xml_string(ROBOT.replace("<key qpos", '<key name="hom2" qpos'))
    data = np.empty(mujoco.mj_sizeModel(compiled), np.uint8)
    mujoco.mj_saveModel(compiled, None, data)
    with pytest.raises(rd.LoadError, match="keyframes have one name"):
        rd.load_mjcf(data.tobytes().replace(b"hom2", b"home"))


def test_mocap_bodies_and_controls_are_named():
    text = """<mujoco><worldbody><body mocap="true"/><body><joint name="j"/><geom size="1"/></body></worldbody>
    <actuator><motor joint="j"/></actuator><keyframe><key name="k" qpos="1" ctrl="2" mpos="1 1 1"/></keyframe>
    </mujoco>"""
    assert findings(rd.load_mjcf(text)) == [
        ("info", 'key "k"', "its controls, poses of mocap bodies have no part in the model")
    ]
