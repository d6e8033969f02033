"""Robot objects of urchin and yourdfpy (and so urdfpy, whose classes urchin kept) against our own reading."""

import io
import json
import os
import subprocess
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from lxml import etree
from robots import own
from urdf_texts import INERTIAL, LIMIT, codes, finding, robot

from robodyn.internals.errors import ArgumentError, LoadError
from robodyn.io.builders.checks import check
from robodyn.io.builders.urdf import read_urdf

ROBOTS = Path(__file__).resolve().parents[3] / "shared" / "robots"
NAMES = ("iiwa14", "cassie_v4", "baxter", "FTP_left_hand", "kinovaGen3V12", "cartpole", "double_pendulum_continuous")
RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "urdfpy.json"
"""What urdfpy 0.0.22 made of some robots, by Python 3.8."""
READING = 1e-12
"""Largest difference between two readings of one text: both compute rotations from the same angles."""


def without_geometry(text):
    """The XML without visuals, collisions and materials: those libraries open their meshes."""
    root = etree.fromstring(text.encode())
    for element in list(root.iter("visual", "collision", "material", "transmission", "gazebo")):
        element.getparent().remove(element)
    return etree.tostring(root)


def urchin_robot(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what its imports say is not about this project
        import urchin
    file = io.BytesIO(without_geometry(text))
    file.name = "robot.urdf"  # urchin looks for meshes beside it
    return urchin.URDF.load(file)


def yourdfpy_robot(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import yourdfpy
    return yourdfpy.URDF.load(io.BytesIO(without_geometry(text)), build_scene_graph=False, load_meshes=False)


BUILDERS = [urchin_robot, yourdfpy_robot]


def assert_same(got, expected):
    assert [link.name for link in got.links] == [link.name for link in expected.links]
    for a, b in zip(got.links, expected.links, strict=True):
        if b.inertial is None:
            continue
        assert a.inertial.mass == b.inertial.mass
        np.testing.assert_allclose(a.inertial.inertia, b.inertial.inertia, atol=READING)
        assert_same_pose(a.inertial.pose, b.inertial.pose)
    for a, b in zip(got.joints, expected.joints, strict=True):
        assert (a.name, a.type, a.parent, a.child, a.mimic) == (b.name, b.type, b.parent, b.child, b.mimic)
        assert (a.damping, a.friction) == (b.damping, b.friction)
        if b.type != "fixed":
            assert a.limits == b.limits
        np.testing.assert_allclose(a.axis, b.axis, atol=READING)
        assert_same_pose(a.origin, b.origin)


def assert_same_pose(a, b):
    np.testing.assert_allclose(a.xyz, b.xyz, atol=READING)
    np.testing.assert_allclose(a.rotation, b.rotation, atol=READING)


RICH = (
    '<robot name="rich"><link name="base"/><link name="arm"><inertial><origin xyz="1 2 3" rpy="0.1 -0.2 3"/>'
    '<mass value="2"/><inertia ixx="3" ixy="0.1" ixz="0.2" iyy="2.5" iyz="0.3" izz="2"/></inertial></link>'
    '<link name="slide"/><link name="hand"/><joint name="turn" type="revolute"><parent link="base"/><child link="arm"/>'
    '<origin xyz="0 0 1" rpy="1 2 3"/><axis xyz="0 1 2"/><limit lower="-1" upper="1" effort="3" velocity="4"/>'
    '<dynamics damping="0.5" friction="0.25"/></joint><joint name="shift" type="prismatic"><parent link="arm"/>'
    '<child link="slide"/><limit lower="0" upper="1" effort="3" velocity="4"/>'
    '<mimic joint="turn" multiplier="-2" offset="0.5"/></joint>'
    '<joint name="weld" type="fixed"><parent link="slide"/><child link="hand"/></joint></robot>'
)


@pytest.mark.parametrize("build", BUILDERS)
def test_a_robot_with_everything_reads_the_same(build):
    expected, got = read_urdf(RICH), read_urdf(build(RICH))
    assert got.name == "rich"
    assert_same(got, expected)
    assert got.joints[0].damping == 0.5
    assert got.joints[1].mimic.multiplier == -2.0


@pytest.mark.skipif(not ROBOTS.is_dir(), reason="the collection of real robots is not here")
@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("name", NAMES)
def test_real_robots_read_the_same(name, build):
    path = ROBOTS / f"{name}.urdf"
    got = read_urdf(build(path.read_text()))
    assert_same(got, read_urdf(path))
    assert check(got) is got


def recorded_robot(record):
    """An object with the attributes that urdfpy's had (`tests/record_urdfpy.py`), matrices and axes as arrays."""
    if isinstance(record, list):
        return np.array(record)
    if not isinstance(record, dict):
        return record
    parts = {name: recorded_robot(value) for name, value in record.items() if name not in ("links", "joints")}
    for name in record.keys() & {"links", "joints"}:
        parts[name] = [recorded_robot(each) for each in record[name]]
    return SimpleNamespace(**parts)


def urdfpy_robots():
    """What urdfpy read: by the interpreter that the variable names, or as it was recorded."""
    interpreter = os.environ.get("ROBODYN_URDFPY")
    if not interpreter:
        return json.loads(RECORDED.read_text())
    names = json.loads(RECORDED.read_text())
    command = [interpreter, RECORDED.parents[1] / "record_urdfpy.py", *(own(name) for name in names)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("name", json.loads(RECORDED.read_text()))
def test_robots_of_urdfpy_read_the_same(name):
    got = read_urdf(recorded_robot(urdfpy_robots()[name]))
    text = own(name).read_text()
    assert_same(got, read_urdf(text))
    without = [link.name for link in read_urdf(text).links if link.inertial is None]
    assert [f.element for f in got.report if f.code == "suspected-default-inertial"] == [f'link "{x}"' for x in without]


def test_made_up_inertials_of_urchin_are_reported():
    got = read_urdf(urchin_robot(RICH))
    assert [f.element for f in got.report if f.code == "suspected-default-inertial"] == [
        'link "base"',
        'link "slide"',
        'link "hand"',
    ]
    assert got.links[0].inertial.mass == 1.0
    assert finding(got, "suspected-default-inertial").severity == "warning"
    assert "suspected-default-inertial" not in codes(read_urdf(yourdfpy_robot(RICH)))
    assert "suspected-default-inertial" not in codes(read_urdf(robot(LIMIT, tip=INERTIAL)))


def test_options_and_checks_reach_objects():
    assert "mimic-ignored" in codes(read_urdf(yourdfpy_robot(RICH), mimic="ignore"))
    two_roots = RICH.replace('<link name="base"/>', '<link name="base"/><link name="stray"/>')
    with pytest.raises(LoadError, match='2 links have no parent: "base", "stray"'):
        read_urdf(yourdfpy_robot(two_roots))
    with pytest.raises(LoadError, match="negative"):
        read_urdf(urchin_robot(RICH.replace('<mass value="2"/>', '<mass value="-2"/>')))


def test_axes_of_yourdfpy_are_normalised():
    got = read_urdf(yourdfpy_robot(RICH))
    assert finding(got, "axis-normalised").element == 'joint "turn"'
    with pytest.raises(LoadError, match=r'joint "turn" axis.*norm 0'):
        read_urdf(yourdfpy_robot(RICH.replace("0 1 2", "0 0 0")))


def pair(link=None, joint=None, **values):
    """A minimal robot object, with attributes of its link or joint changed."""
    tip = {"name": "tip", "inertial": None, **(link or {})}
    links = [SimpleNamespace(name="base", inertial=None), SimpleNamespace(**tip)]
    given = {"name": "j", "type": "continuous", "parent": "base", "child": "tip", **(joint or {})}
    return SimpleNamespace(**{"name": "r", "links": links, "joints": [SimpleNamespace(**given)], **values})


def inertial(mass=2.0, inertia=None, origin=None):
    matrix = np.diag([2.0, 2.0, 3.0]) if inertia is None else inertia
    return {"inertial": SimpleNamespace(mass=mass, inertia=matrix, origin=origin)}


class Raising:
    """An object that every look at raises, but for those at its name."""

    name = "odd"

    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")

    def __repr__(self):
        raise RuntimeError("no repr")


def test_a_minimal_object_is_enough():
    description = read_urdf(pair())
    assert description.joints[0].axis == (1.0, 0.0, 0.0)
    assert "axis-defaulted" in codes(description)
    assert read_urdf(SimpleNamespace(robot=pair())) == description
    for name in (None, " ", Raising()):
        assert "robot-name-missing" in codes(read_urdf(pair(name=name)))


def test_objects_with_parts_of_an_inertial():
    none = SimpleNamespace(inertial=SimpleNamespace(mass=None, inertia=None, origin=None))
    assert "inertial-empty" in codes(read_urdf(pair(vars(none))))
    assert "mass-missing" in codes(read_urdf(pair(inertial(mass=None))))
    weight = SimpleNamespace(mass=1.0, inertia=None, origin=None)
    assert "inertia-missing" in codes(read_urdf(pair({"inertial": weight})))
    assert "suspected-default-inertial" not in codes(read_urdf(pair(inertial(1.0, 2 * np.eye(3)))))


SKEWED = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        (pair({"name": None}), ("link name", "None")),
        (pair({"name": "${n}"}), ("link name", "${n}", "xacro")),
        (pair(inertial(mass=np.nan)), ('link "tip" inertial mass', "nan", "a finite number")),
        (pair(inertial(mass="heavy")), ('link "tip" inertial mass', "heavy")),
        (pair(inertial(mass=[1.0, 2.0])), ('link "tip" inertial mass', "a finite number")),
        (pair(inertial(inertia=np.eye(2))), ('link "tip" inertial inertia', "shape (3, 3)")),
        (pair(inertial(inertia=np.full((3, 3), np.inf))), ('link "tip" inertial inertia', "shape (3, 3)")),
        (pair(inertial(inertia=SKEWED)), ('link "tip" inertial inertia', "not symmetric")),
        (pair(inertial(origin="here")), ('link "tip" inertial origin', "here", "shape (4, 4)")),
        (pair(joint={"origin": np.ones((4, 4))}), ('joint "j" origin', "last row")),
        (pair(joint={"origin": np.diag([1.0, 1.0, -1.0, 1.0])}), ('joint "j" origin', "right-handed")),
        (pair(joint={"name": " "}), ("joint name",)),
        (pair(joint={"type": None}), ('joint "j"', '"None"', "revolute")),
        (pair(joint={"type": "ball"}), ('joint "j"', '"ball"')),
        (pair(joint={"parent": None}), ('joint "j" parent', "None")),
        (pair(joint={"axis": [0.0, 1.0]}), ('joint "j" axis', "shape (3,)")),
        (pair(joint={"dynamics": SimpleNamespace(damping="1_0")}), ('joint "j" dynamics damping', "1_0")),
        (pair(joint={"limit": SimpleNamespace(lower=object())}), ('joint "j" limit lower',)),
        (pair(joint={"mimic": SimpleNamespace(joint=3)}), ('joint "j" mimic joint', "3")),
        (pair(links=[]), ("no links",)),
        (pair(joint={"type": ["revolute"]}), ('joint "j"', "['revolute']", "prismatic")),
        (pair(joint={"joint_type": {}}), ('joint "j"', "{}", "prismatic")),
        (pair(joint={"type": np.array(["fixed", "fixed"])}), ('joint "j"', "array", "prismatic")),
        (pair(joint={"type": Raising()}), ('joint "j"', "<Raising>", "prismatic")),
        (pair(joint={"limit": SimpleNamespace(lower=10**400)}), ('joint "j" limit lower', "a finite number")),
        (pair(joint={"axis": Raising()}), ("joint number 1 of the robot object", "RuntimeError")),
        (pair(inertial(mass=10**400)), ('link "tip" inertial mass', "a finite number")),
        (pair(inertial(mass=10**5000)), ('link "tip" inertial mass', "<int>", "a finite number")),
        (pair(inertial(inertia=[[10**400] * 3] * 3)), ('link "tip" inertial inertia', "shape (3, 3)")),
        (pair(links=[SimpleNamespace(name="base", inertial=None), Raising()]), ("link number 2", "no inertial")),
        (pair(name="$(arg)"), ("robot name", "$(arg)")),
    ],
)
def test_values_that_cannot_be_used_are_refused(source, parts):
    with pytest.raises(LoadError) as caught:
        read_urdf(source)
    for part in parts:
        assert part in str(caught.value), f"{part!r} is not in {caught.value}"


@pytest.mark.parametrize("build", BUILDERS)
def test_infinite_limits_of_objects_are_none(build):
    limit = '<limit lower="-inf" upper="inf" effort="inf" velocity="inf"/>'
    description = read_urdf(build(robot(limit)))
    assert description.joints[0].limits == read_urdf(robot(limit)).joints[0].limits
    assert finding(description, "limit-infinite").severity == "info"


@pytest.mark.parametrize(
    "infinite", [float("inf"), np.float32("inf"), np.float64("inf"), np.array(np.inf), "inf", "Infinity"]
)
def test_infinite_limits_of_any_type_are_none(infinite):
    description = read_urdf(pair(joint={"limit": SimpleNamespace(lower=-1.0, upper=infinite, effort=1.0)}))
    limits = description.joints[0].limits
    assert (limits.lower, limits.upper, limits.effort) == (-1.0, None, 1.0)
    for wrong in (np.nan, "nan", np.full(2, np.inf)):
        with pytest.raises(LoadError, match='joint "j" limit upper'):
            read_urdf(pair(joint={"limit": SimpleNamespace(upper=wrong)}))


def test_limits_of_a_class_that_raises_do_not_end_the_process():
    """NumPy asks the class how to wrap what its functions return."""

    class Hostile(np.ndarray):
        def __getattribute__(self, name):
            raise RuntimeError(name)

    for given, wanted in ((np.inf, None), (2.0, 2.0)):
        limit = SimpleNamespace(lower=-1.0, upper=np.array(given).view(Hostile))
        assert read_urdf(pair(joint={"limit": limit, "type": "revolute"})).joints[0].limits.upper == wanted


def test_shapes_of_objects_with_other_numbers_of_sizes_are_left_out():
    for size in ([1.0, 2.0], 1.0, [1.0, 2.0, 3.0, 4.0]):
        box = SimpleNamespace(geometry=SimpleNamespace(box=SimpleNamespace(size=size)))
        description = read_urdf(pair(link={"visuals": [box]}))
        assert not description.geometries
        assert "wanted 3 numbers" in finding(description, "shape-not-read").message


@pytest.mark.parametrize("build", BUILDERS)
def test_joints_of_the_world_need_no_link_world_in_objects(build):
    if build is urchin_robot:
        pytest.skip("urchin refuses them")
    text = robot(extra='<joint name="held" type="fixed"><parent link="world"/><child link="base"/></joint>')
    assert read_urdf(build(text)).root == "world"


def test_classes_and_halves_of_objects_are_no_robots():
    halves = (SimpleNamespace(links=[]), SimpleNamespace(links=3, joints=[]), SimpleNamespace(robot=None))
    for source in (type(urchin_robot(RICH)), *halves):
        with pytest.raises(ArgumentError, match="a robot object of urdfpy, urchin or yourdfpy"):
            read_urdf(source)


@pytest.mark.parametrize("name", ["screw_press", "ball_joint_arm"])
def test_joints_that_objects_cannot_hold_are_refused(name):
    text = own(name).read_text(encoding="utf-8")
    with pytest.raises(
        LoadError, match=r'joint ".*": a robot object does not hold the .* of a .* joint; load the file'
    ):
        read_urdf(yourdfpy_robot(text))
