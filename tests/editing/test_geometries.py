"""What links look like and collide with, and what is kept of files as text: read, edited, saved and written."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from edited import EVERY, loaded, name
from robots import example_robot_data, own

import robodyn as rd
from robodyn.description import Extension, Geometry, Pose
from robodyn.io.editing.writer_common import RobotText

CLOSE = 1e-12
TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
MOTOR = '<transmission name="t"><joint name="{}"/><actuator name="m">{}</actuator></transmission>'
ARM = """<robot name="arm" xmlns:drake="http://drake.mit.edu"><material name="red"><color rgba="1 0 0 1"/></material>
<link name="base"><visual name="v"><origin xyz="0 0 1" rpy="0.1 0.2 0.3"/><geometry><box size="1 2 3"/></geometry>
<material name="red"/></visual>
<collision><geometry><mesh filename="part.obj" scale="1 -1 2"/></geometry></collision></link>
<joint name="j" type="continuous"><parent link="base"/><child link="tip"/><axis xyz="0 0 1"/>
<safety_controller k_velocity="10"/></joint>
<link name="tip"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>
<visual><geometry><cylinder radius="0.1" length="2"/></geometry>
<material name="blue"><color rgba="0 0 1 0.5"/></material></visual>
<collision><geometry><sphere radius="0.3"/></geometry></collision><visual><geometry/></visual></link>
<transmission name="t"><joint name="j"/><actuator name="m"><drake:gear_ratio value="3"/><drake:rotor_inertia value="2"/>
</actuator></transmission><gazebo reference="tip"><mu1>0.2 &lt; 1</mu1></gazebo></robot>"""


def looks(model: rd.Model) -> list[tuple[object, ...]]:
    """What tells geometries apart, materials without a name left out."""
    colors = [None if g.color is None else tuple(np.float32(g.color).tolist()) for g in model.geometries]
    return [
        (g.link, g.role, g.kind, g.size, Path(g.mesh).name, color, g.texture, g.name)
        for g, color in zip(model.geometries, colors, strict=True)
    ]


def said(text: RobotText) -> str:
    """All messages of the report on a text, with their elements."""
    return "; ".join(f"{each.element}: {each.message}" for each in text.report)


def require_same_shapes(model: rd.Model, back: rd.Model) -> None:
    assert looks(back) == looks(model)
    for a, b in zip(model.geometries, back.geometries, strict=True):
        np.testing.assert_allclose(b.pose.xyz, a.pose.xyz, atol=CLOSE)
        np.testing.assert_allclose(b.pose.rotation, a.pose.rotation, atol=CLOSE)


@pytest.mark.some(of=8, rest="matrix")
@pytest.mark.parametrize("path", EVERY, ids=name)
def test_no_robot_loses_a_shape_as_it_is_written(path):
    model = loaded(path)
    text = model.to_urdf()
    back = rd.load_urdf(str(text), strict=False)
    require_same_shapes(model, back)
    assert sorted(each.text for each in back.extensions) == sorted(each.text for each in model.extensions)
    source = path.read_bytes()
    if b"<!--" not in source:  # what a comment hides is no shape
        read = sum(each.text.startswith(("<visual", "<collision")) for each in model.extensions)
        assert len(model.geometries) + read == source.count(b"<visual") + source.count(b"<collision")


def test_what_an_urdf_says(tmp_path):
    (tmp_path / "arm.urdf").write_text(ARM)
    model = rd.load_urdf(tmp_path / "arm.urdf")
    box, mesh, cylinder, sphere = model.geometries
    assert (box.link, box.role, box.kind, box.size, box.name) == ("base", "visual", "box", (1.0, 2.0, 3.0), "v")
    assert (box.color, box.material, box.folder) == ((1.0, 0.0, 0.0, 1.0), "red", str(tmp_path))
    assert (mesh.role, mesh.mesh, mesh.size, mesh.color) == ("collision", "part.obj", (1.0, -1.0, 2.0), None)
    assert (cylinder.size, cylinder.color, sphere.size) == ((0.1, 2.0), (0.0, 0.0, 1.0, 0.5), (0.3,))
    assert {(each.parent, each.of, each.text.split()[0]) for each in model.extensions} == {
        ("joint", "j", "<safety_controller"),
        ("link", "tip", "<visual><geometry/></visual>"),
        ("robot", "", "<transmission"),
        ("robot", "", "<gazebo"),
    }
    kept = next(finding for finding in model.report if "it has 0 shapes" in finding.message)
    assert (kept.code, kept.severity) == ("kept-tag", "warning")
    text = model.to_urdf(folder=tmp_path / "elsewhere")
    assert 'filename="../part.obj"' in text and "<mu1>0.2 &lt; 1</mu1>" in text and "armature" not in text
    back = rd.load_urdf(str(text))
    assert back.tree_armature.tolist() == [18.0] and text.count("drake:rotor_inertia") == 1
    assert f'filename="{tmp_path / "part.obj"}"' in model.to_urdf()


def test_an_armature_that_was_changed_is_not_that_of_the_motor_any_more():
    model = replace(rd.load_urdf(ARM), tree_armature=np.array([5.0]))
    text = model.to_urdf()
    assert "rotor_inertia" not in text and "inertia of its motor" in said(text)
    assert rd.load_urdf(str(text)).tree_armature.tolist() == [5.0]


def test_edits_carry_them():
    model = rd.load_urdf(ARM)
    locked = model.lock({"j": 0.3})
    assert locked.geometries == model.geometries
    assert sorted(each.text[:7] for each in locked.extensions) == ["<gazebo", "<visual"]
    assert {each.code for each in locked.report} >= {"extension-dropped"}
    part = model.subtree("tip")
    assert {each.link for each in part.geometries} == {"tip"}
    both = model.attach(model, "tip", prefix="b_")
    assert [each.link for each in both.geometries] == ["base"] * 2 + ["tip"] * 2 + ["b_base"] * 2 + ["b_tip"] * 2
    text = both.to_urdf()
    assert (
        '<transmission xmlns:drake="http://drake.mit.edu" name="b_t"><joint name="b_j"/><actuator name="b_m">' in text
    )
    assert '<gazebo reference="b_tip">' in text and text.count('<material name="red">') == 1
    require_same_shapes(both, rd.load_urdf(str(text)))
    turned = model.reroot("tip")
    assert turned.geometries == model.geometries and len(turned.extensions) == 4
    other = replace(model, geometries=[replace(each, color=(0.0, 1.0, 0.0, 1.0)) for each in model.geometries])
    colours = [each.color for each in rd.load_urdf(str(model.attach(other, "tip", prefix="o_").to_urdf())).geometries]
    assert colours[0] == (1.0, 0.0, 0.0, 1.0) and colours[4] == (0.0, 1.0, 0.0, 1.0), "two materials of one name"


def test_they_are_saved_without_folders_and_those_that_are_seen_have_no_part_in_the_digest(tmp_path):
    (tmp_path / "arm.urdf").write_text(ARM)
    model = rd.load_urdf(tmp_path / "arm.urdf")
    model.save(tmp_path / "arm.npz")
    again = rd.Model.load(tmp_path / "arm.npz")
    assert again.geometries == tuple(replace(each, folder="") for each in model.geometries)
    assert again.extensions == model.extensions and pickle.loads(pickle.dumps(model)).geometries == model.geometries
    shapes = [each for each in model.geometries if each.role == "collision"]
    assert replace(model, geometries=shapes, extensions=()) == model == again
    assert replace(model, geometries=()) != model


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"geometries": 3}, "geometries: got 3; wanted a tuple"),
        ({"geometries": [None]}, r"geometries\[0\]: got None"),
        ({"geometries": [Geometry("tip", "visual", "box", Pose(), (1.0, 2.0))]}, r"geometries\[0\]"),
        ({"geometries": [Geometry("tip", "seen", "sphere", Pose(), (1.0,))]}, r"geometries\[0\]"),
        ({"geometries": [Geometry("tip", "visual", "torus", Pose(), (1.0,))]}, r"geometries\[0\]"),
        ({"geometries": [Geometry("tip", "visual", "sphere", Pose(), (np.nan,))]}, r"geometries\[0\]"),
        ({"geometries": [Geometry("tip", "visual", "sphere", Pose((1.0, 2.0)), (1.0,))]}, r"geometries\[0\]"),
        ({"extensions": "x"}, "extensions: got 'x'; wanted a tuple"),
        ({"extensions": [Extension("urdf", "robot", "", 3)]}, r"extensions\[0\]"),
    ],
)
def test_fields_are_checked(fields, match):
    with pytest.raises(rd.ArgumentError, match=match):
        replace(rd.load_urdf(ARM), **fields)


def test_geometries_of_python_are_written():
    shape = Geometry("nobody", "visual", "sphere", Pose(), (1.0,))
    model = replace(rd.load_urdf(own("arm6")), geometries=[shape, replace(shape, link="tool0")])
    for text in (model.to_urdf(), model.to_mjcf()):
        assert "a geometry of a link that the robot does not have" in said(text)
    assert len(rd.load_urdf(str(model.to_urdf())).geometries) == 1


# Beside other programs.


def panda() -> Path:
    """An arm with meshes of its packages, from a wheel."""
    found = [path for path in example_robot_data() if path.name == "panda.urdf"]
    if not found:
        pytest.skip("the wheel example-robot-data is not installed")
    return found[0]


def locked_with_gripper() -> rd.Model:
    model = rd.load_urdf(panda()).lock({"panda_joint3": 0.3})
    return model.attach(rd.load_urdf(own("gripper")), "panda_hand", pose=(0.0, 0.0, 0.1), prefix="g_")


def collisions(model: rd.Model) -> int:
    return sum(each.role != "visual" for each in model.geometries)


def test_a_locked_panda_with_a_gripper_keeps_all_its_meshes(tmp_path):
    model = locked_with_gripper()
    assert len(model.geometries) == 28 + 7
    (tmp_path / "robot.urdf").write_text(model.to_urdf(), encoding="utf-8")
    back = rd.load_urdf(tmp_path / "robot.urdf")
    meshes = [each for each in back.geometries if each.kind == "mesh"]
    assert meshes and all(Path(each.mesh).is_file() for each in meshes)
    named = [each.mesh for each in rd.load_urdf(str(model.to_urdf(meshes="named"))).geometries if each.kind == "mesh"]
    assert all(each.startswith("package://") for each in named)
    beside = model.to_urdf(folder=panda().parent)
    assert "package://" in beside and "named by where they are" not in said(beside)


def test_mujoco_has_every_shape_where_it_is(tmp_path):
    """Its own reading of the URDF that is written, and the MJCF: geoms of both are at the poses of the model."""
    mujoco = pytest.importorskip("mujoco")
    model = locked_with_gripper()
    file = tmp_path / "robot.urdf"
    file.write_text(model.to_urdf(), encoding="utf-8")
    assert mujoco.MjModel.from_xml_path(str(file)).ngeom == collisions(model)
    text = model.to_mjcf()
    m = mujoco.MjModel.from_xml_string(str(text))
    assert m.ngeom == sum(not each.mesh.endswith(".dae") for each in model.geometries)
    assert sum(m.geom_contype > 0) == collisions(model)
    assert "none of the formats that MuJoCo reads" in said(text), "visuals of Collada are named"


def every_kind(links: int) -> rd.Model:
    """A chain with shapes of all kinds at random poses."""
    rng = np.random.default_rng(links)
    print(f"every_kind: seed {links}")
    sizes = {"box": 3, "sphere": 1, "cylinder": 2, "capsule": 2, "ellipsoid": 3}
    model = rd.random_tree(links, seed=links, joints=("revolute",), shape="chain")
    shapes = []
    for k, link in enumerate(model.link_names):
        kind = list(sizes)[k % len(sizes)]
        turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        turn *= np.linalg.det(turn)
        pose = Pose(tuple(rng.normal(size=3).tolist()), tuple(turn.ravel().tolist()))
        size = tuple(rng.uniform(0.1, 1.0, sizes[kind]).tolist())
        shapes.append(Geometry(link, "collision", kind, pose, size, name=f"s{k}", color=(0.1, 0.2, 0.3, 1.0)))
    return replace(model, geometries=shapes)


def test_geoms_are_where_geometries_are():
    mujoco = pytest.importorskip("mujoco")
    model = every_kind(7)
    m = mujoco.MjModel.from_xml_string(str(model.to_mjcf()))
    data, q = mujoco.MjData(m), model.random_configuration(1)
    way = rd.converter(model, "mujoco", joint_names=[m.joint(j).name for j in range(m.njnt)])
    data.qpos[:] = way.q_to(q)
    mujoco.mj_kinematics(m, data)
    for each in model.geometries:
        T = rd.Dynamics(model, engine="reference").link_pose(q, each.link)
        geom = data.geom(each.name)
        np.testing.assert_allclose(geom.xpos, T[:3, :3] @ each.pose.xyz + T[:3, 3], atol=1e-9)
        turn = T[:3, :3] @ np.reshape(each.pose.rotation, (3, 3))
        np.testing.assert_allclose(geom.xmat.reshape(3, 3), turn, atol=1e-9)
    back = rd.load_mjcf(str(model.to_mjcf()))
    require_same_shapes(replace(model, geometries=[replace(g, role="both") for g in model.geometries]), back)


SCENE = """<mujoco><option timestep="0.002"/><asset><mesh name="part" file="part.obj" scale="0.2 0.3 0.1"/>
<material name="m" rgba="1 0 0 1"/><hfield name="h" nrow="2" ncol="2" size="1 1 1 1"/></asset>
<worldbody><geom name="floor" type="plane" size="0 0 1" friction="0.4 0.01 0.001"/>
<geom type="hfield" hfield="h" pos="9 9 0"/><body name="a" pos="0 0 0.6"><freejoint name="f"/>
<geom name="c" type="capsule" size="0.1 0.2" euler="10 20 30" material="m" solref="0.01 1" condim="4"/>
<site name="s" pos="0.1 0 0"/>
<body name="b" pos="0.3 0 0"><joint name="j" axis="0 1 0" damping="0.1"/><geom type="mesh" mesh="part" pos="0.1 0 0"/>
<body name="d" pos="0.2 0 0"><joint name="k" axis="1 0 0"/><geom type="ellipsoid" size="0.1 0.05 0.02" group="3"/>
<geom type="box" size="0.1 0.1 0.1" contype="0" conaffinity="0"/></body></body></body></worldbody>
<contact><exclude body1="a" body2="d"/></contact>
<actuator><motor name="u" joint="j" gear="2" ctrlrange="-1 1"/><position joint="k" kp="3" kv="0.2"/></actuator>
<sensor><jointpos name="p" joint="j"/><gyro site="s"/><framepos objtype="body" objname="d" reftype="site" refname="s"/>
<jointactuatorfrc joint="k"/><actuatorfrc actuator="u"/></sensor>
<keyframe><key name="up" qpos="0 0 0.7 1 0 0 0 0.2 0.3"/></keyframe></mujoco>"""


def test_a_scene_of_mujoco_is_simulated_as_before(tmp_path):
    """Contacts, actuators, sensors and keyframes: a second of motion of the file and of what is written of it."""
    mujoco = pytest.importorskip("mujoco")
    (tmp_path / "part.obj").write_text(TETRAHEDRON)
    (tmp_path / "scene.xml").write_text(SCENE)
    model = rd.load_mjcf(tmp_path / "scene.xml")
    text = model.to_mjcf()
    report = said(text)
    assert "height field" in report and 'sensor "4"' not in report and "sensor 4" in report
    before = mujoco.MjModel.from_xml_path(str(tmp_path / "scene.xml"))
    after = mujoco.MjModel.from_xml_string(str(text))
    assert (after.ngeom, after.nu, after.nsensor, after.nexclude) == (before.ngeom - 1, 2, 4, 1)
    states = []
    for m in (before, after):
        data = mujoco.MjData(m)
        mujoco.mj_resetDataKeyframe(m, data, 0)
        data.ctrl[:] = 0.3, -0.2
        for _ in range(500):
            mujoco.mj_step(m, data)
        assert data.ncon
        states.append(np.concatenate([data.qpos, data.qvel, data.sensordata[:8]]))
    np.testing.assert_allclose(states[1], states[0], atol=1e-6)
    roles = [(each.kind, each.role) for each in model.geometries]
    assert roles == [
        ("plane", "both"),
        ("capsule", "both"),
        ("mesh", "both"),
        ("ellipsoid", "collision"),
        ("box", "visual"),
    ]
    mesh = model.geometries[2]
    np.testing.assert_allclose(mesh.pose.xyz, (0.1, 0.0, 0.0), atol=CLOSE)
    np.testing.assert_allclose(mesh.size, (0.2, 0.3, 0.1))
    assert Path(mesh.folder, Path(mesh.mesh).name) == tmp_path / "part.obj"
    assert {each.code for each in model.report} >= {"shape-not-read", "ignored-tag"}


def test_a_robot_of_mjcf_as_urdf():
    model = rd.load_mjcf(
        SCENE.replace('<geom type="mesh" mesh="part" pos="0.1 0 0"/>', "")
        .replace('<mesh name="part" file="part.obj" scale="0.2 0.3 0.1"/>', "")
        .replace('<body name="b" pos="0.3 0 0">', '<body name="b" pos="0.3 0 0"><geom size="0.1"/>')
    )
    text = model.to_urdf()
    report = said(text)
    for part in (
        "of kind plane",
        "of kind ellipsoid",
        "a cylinder and two spheres",
        "general",
        "a kept element of MJCF",
    ):
        assert part in report, part
    back = rd.load_urdf(str(text))
    capsule = [each for each in back.geometries if each.link == "a" and each.role == "collision"]
    assert [each.kind for each in capsule] == ["cylinder", "sphere", "sphere"]
    ends = np.array([each.pose.xyz for each in capsule[1:]])
    np.testing.assert_allclose(np.linalg.norm(ends[0] - ends[1]), 0.4, atol=CLOSE)
    axis = np.reshape(capsule[0].pose.rotation, (3, 3))[:, 2]
    np.testing.assert_allclose(ends[0] - ends[1], 0.4 * axis, atol=CLOSE)


def test_bullet_has_every_shape(tmp_path):
    bullet = pytest.importorskip("pybullet")
    model = locked_with_gripper()
    file = tmp_path / "robot.urdf"
    file.write_text(model.to_urdf(), encoding="utf-8")
    client = bullet.connect(bullet.DIRECT)
    try:
        robot = bullet.loadURDF(str(file), useFixedBase=True, physicsClientId=client)
        every = range(-1, bullet.getNumJoints(robot, physicsClientId=client))
        found = [shape for k in every for shape in bullet.getCollisionShapeData(robot, k, physicsClientId=client)]
        assert len(found) == collisions(model)
        assert len(bullet.getVisualShapeData(robot, physicsClientId=client)) == len(model.geometries) - collisions(
            model
        )
    finally:
        bullet.disconnect(client)


SDF = """<sdf version="1.9"><model name="m"><link name="a"><pose>0 0 1 0 0 0</pose>
<inertial><mass>1</mass><inertia><ixx>1</ixx><iyy>1</iyy><izz>1</izz></inertia></inertial>
<visual name="v"><pose>1 0 0 0 0 1.5</pose>
<geometry><capsule><radius>0.1</radius><length>1</length></capsule></geometry>
<material><diffuse>1 0 0</diffuse></material></visual>
<collision name="c"><pose relative_to="f">0 0 0.5 0.3 0 0</pose>
<geometry><box><size>1 2 3</size></box></geometry></collision>
<collision name="p"><geometry><plane><normal>0 1 0</normal><size>2 3</size></plane></geometry></collision>
<visual name="h"><geometry><heightmap/></geometry></visual></link>
<frame name="f" attached_to="a"><pose relative_to="__model__">1 2 3 0 0 0.7</pose></frame></model></sdf>"""


def test_what_an_sdf_says():
    model = rd.load_sdf(SDF)
    capsule, box, plane = model.geometries
    assert (capsule.link, capsule.role, capsule.kind, capsule.size) == ("a", "visual", "capsule", (0.1, 1.0))
    assert capsule.color == (1.0, 0.0, 0.0, 1.0) and (box.name, plane.size) == ("c", (2.0, 3.0))
    c, s = np.cos(0.7), np.sin(0.7)
    np.testing.assert_allclose(box.pose.xyz, (1.0, 2.0, 2.5), atol=CLOSE)
    turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ np.array(
        [[1, 0, 0], [0, np.cos(0.3), -np.sin(0.3)], [0, np.sin(0.3), np.cos(0.3)]]
    )
    np.testing.assert_allclose(box.pose.rotation, turn.ravel(), atol=CLOSE)
    np.testing.assert_allclose(np.reshape(plane.pose.rotation, (3, 3))[:, 2], (0.0, 1.0, 0.0), atol=CLOSE)
    assert "heightmap" in next(each for each in model.report if each.code == "shape-not-read").message
    assert "heightmap" in said(model.to_mjcf())


def test_the_command_names_meshes_from_the_new_folder(tmp_path, monkeypatch):
    from cli_runner import run

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "arm.urdf").write_text(ARM)
    (tmp_path / "in" / "part.obj").write_text(TETRAHEDRON)
    monkeypatch.chdir(tmp_path)
    assert run("convert", "in/arm.urdf", "out.urdf")[0] == 0
    assert f'filename="in{os.sep}part.obj"' in Path("out.urdf").read_text(encoding="utf-8")
    assert run("convert", "in/arm.urdf", "out.xml")[0] == 0
    assert f'file="{tmp_path / "in" / "part.obj"}"' in Path("out.xml").read_text(encoding="utf-8")


@pytest.mark.parametrize("library", ["yourdfpy", "urchin"])
@pytest.mark.parametrize("robot", ["gripper", "quadruped", "panda"])
def test_robot_objects_have_the_shapes_of_their_files(library, robot):
    module = pytest.importorskip(library)
    path = panda() if robot == "panda" else own(robot)
    options = (
        {"load_meshes": False, "build_scene_graph": False} if library == "yourdfpy" else {"lazy_load_meshes": True}
    )
    there = module.URDF.load(str(path), **options)
    require_same_shapes(rd.load_urdf(path), rd.load_urdf(there))


CONTROLLED = """<robot name="r"><link name="a"/><link name="b"/><link name="c"/><link name="d"/>
<joint name="ab" type="continuous"><parent link="a"/><child link="b"/></joint>
<joint name="bc" type="continuous"><parent link="b"/><child link="c"/></joint>
<joint name="fix" type="fixed"><parent link="c"/><child link="d"/></joint><gazebo reference="fix"><x/></gazebo>
<gazebo><plugin name="p" type="ab"><joint_name>ab</joint_name><link name="c"/><collision>s</collision></plugin></gazebo>
<link name="e"/><joint name="de" type="fixed"><parent link="d"/><child link="e"/></joint>
<ros2_control name="sys" type="system"><joint name="ab"/><joint name="bc"/>
<sensor name="imu"><param name="frame_id">c</param></sensor>
<transmission name="t"><joint name="ab"/></transmission></ros2_control>
<transmission name="differential"><joint name="ab"/><joint name="bc"/>
<actuator name="m"/><actuator name="n"/></transmission>
</robot>"""


def test_names_in_kept_elements_are_those_of_the_new_robot():
    model = rd.load_urdf(CONTROLLED)
    both = model.attach(model, "e", prefix="x_")
    plugin, system = (
        next(each.text for each in both.extensions[4:] if each.text.startswith(start))
        for start in ("<gazebo><plugin", "<ros2_control")
    )
    assert '<plugin name="p" type="ab"><joint_name>x_ab</joint_name><link name="x_c"/>' in plugin
    for part in (
        'name="x_sys"',
        '<joint name="x_ab"/><joint name="x_bc"/>',
        ">x_c</param>",
        '<joint name="x_ab"/></tr',
    ):
        assert part in system, part
    locked = model.lock({"ab": 0.1})
    text = "".join(each.text for each in locked.extensions)
    assert "differential" not in text and '<ros2_control name="sys" type="system"><joint name="bc"/><sensor' in text
    assert '<transmission name="t">' not in text
    dropped = [each for each in locked.report if each.code == "extension-dropped"]
    assert len(dropped) == 2 and any("joints in it are gone" in each.message for each in dropped)


def test_fixed_joints_that_step_aside_take_their_elements_along():
    model = rd.load_urdf(CONTROLLED)
    names = {name: f"{name}2" for name in (*model.link_names, *model.joint_names)}
    other = replace(
        model,
        link_names=[names[name] for name in model.link_names],
        joint_names=[names[name] for name in model.joint_names],
        body_names=[names[name] for name in model.body_names],
        extensions=[each for each in model.extensions if "fix" in each.text],
    )
    both = model.attach(other, "e")
    joint = both.link_joints[both.link_names.index("d2")]
    assert joint == "_fix" and '<gazebo reference="_fix">' in both.extensions[-1].text


def test_a_sensor_is_where_its_site_was_when_the_site_carries_something(tmp_path):
    mujoco = pytest.importorskip("mujoco")
    model = rd.load_mjcf(SCENE_OF_SENSORS)
    before, after = (
        mujoco.MjModel.from_xml_string(str(text))
        for text in (model.to_mjcf(), model.with_frames({"tcp": ("s", (0.0, 0.0, 0.1))}).to_mjcf())
    )
    values = []
    for m in (before, after):
        data = mujoco.MjData(m)
        data.qpos[:] = 0.4
        mujoco.mj_forward(m, data)
        values.append(data.sensordata.copy())
    np.testing.assert_allclose(values[1], values[0], atol=CLOSE)


SCENE_OF_SENSORS = """<mujoco><worldbody><body name="a"><joint axis="0 1 0"/>
<geom size="0.1 0.2" type="capsule" pos="1 0 0"/>
<site name="s" pos="0.3 0 0" euler="10 20 30"/></body></worldbody>
<sensor><framepos objtype="site" objname="s"/><framequat objtype="site" objname="s"/></sensor></mujoco>"""


@pytest.mark.parametrize(
    "frame", ['refpos="1 2 3" scale="-1 2 3"', 'refpos="1 2 3" refquat="0.9 0.1 0.2 0.3" scale="2 2 2"']
)
def test_frames_of_meshes_are_kept(frame, tmp_path):
    """Vertices in the world, of the file and of what is written of it."""
    mujoco = pytest.importorskip("mujoco")
    (tmp_path / "part.obj").write_text(TETRAHEDRON)
    text = f"""<mujoco><asset><mesh name="m" file="part.obj" {frame}/></asset><worldbody><body><joint/>
    <geom type="mesh" mesh="m" pos="0.1 0.2 0.3" euler="10 20 30"/></body></worldbody></mujoco>"""
    (tmp_path / "scene.xml").write_text(text)
    places = []
    for m in (
        mujoco.MjModel.from_xml_path(str(tmp_path / "scene.xml")),
        mujoco.MjModel.from_xml_string(str(rd.load_mjcf(tmp_path / "scene.xml").to_mjcf())),
    ):
        data = mujoco.MjData(m)
        mujoco.mj_kinematics(m, data)
        found = m.mesh_vert @ data.geom_xmat[0].reshape(3, 3).T + data.geom_xpos[0]
        places.append(found[np.lexsort(np.round(found, 4).T)])
    np.testing.assert_allclose(places[1], places[0], atol=1e-5)


def test_what_mjcf_cannot_keep_is_named():
    text = """<mujoco><option timestep="0.01"><flag contact="disable"/></option><worldbody><light/>
    <body name="b" pos="0 0 1"><freejoint/><geom size="1"/>
    <body><joint name="j" type="ball" range="0 1" limited="true"/><geom size="1"/></body></body></worldbody></mujoco>"""
    report = said(rd.load_mjcf(text).to_mjcf())
    for part in ("timestep", "disableflags", "lights", "range of a ball joint", "where MuJoCo begins"):
        assert part in report, part


def test_a_folder_behind_a_link_is_where_it_is(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "in" / "arm.urdf").write_text(ARM)
    (tmp_path / "in" / "part.obj").write_text(TETRAHEDRON)
    try:
        (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")
    except OSError:
        pytest.skip("no links here")
    text = rd.load_urdf(tmp_path / "in" / "arm.urdf").to_urdf(folder=tmp_path / "link")
    (tmp_path / "link" / "out.urdf").write_text(text)
    (mesh,) = (each for each in rd.load_urdf(tmp_path / "link" / "out.urdf").geometries if each.kind == "mesh")
    assert Path(tmp_path / "link", mesh.mesh).is_file()


def test_numbers_and_words_of_the_format_are_no_names():
    """Of links that are called like them."""
    urdf = """<robot name="r"><link name="1"><visual name="2"><geometry><sphere radius="1"/></geometry></visual></link>
    <link name="b"/><joint name="j" type="continuous"><parent link="1"/><child link="b"/></joint>
    <gazebo reference="1"><kp>1</kp><kd value="2"/></gazebo><transmission name="t"><joint name="j"/>
    <actuator name="1"><mechanicalReduction>1</mechanicalReduction></actuator></transmission></robot>"""
    model = rd.load_urdf(urdf)
    gazebo, transmission = (each.text for each in model.attach(model, "b", prefix="p_").extensions[2:])
    assert gazebo == '<gazebo reference="p_1"><kp>1</kp><kd value="2"/></gazebo>'
    assert ">1</mechanicalReduction>" in transmission and '<actuator name="p_1">' in transmission
    mujoco = pytest.importorskip("mujoco")
    mjcf = """<mujoco><worldbody><body name="fixed"><joint name="none"/><geom size="1"/>
    <body name="true"><joint name="j"/><geom size="1"/></body></body></worldbody>
    <actuator><motor name="affine" joint="none"/></actuator></mujoco>"""
    robot = rd.load_mjcf(mjcf)
    text = robot.attach(robot, "true", prefix="p_").to_mjcf()
    assert mujoco.MjModel.from_xml_string(str(text)).nu == 2 and 'joint="p_none"' in text and 'biastype="none"' in text
