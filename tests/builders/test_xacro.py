"""xacro: an explicit call, arguments, packages without ROS, and what goes wrong."""

from __future__ import annotations

import sys

import pytest
from robots import own

import robodyn as rd

pytest.importorskip("xacrodoc")

HEAD = '<robot name="r" xmlns:xacro="http://www.ros.org/wiki/xacro">'
PARTS = f"""{HEAD}<xacro:macro name="body" params="name mass">
  <link name="${{name}}"><inertial><mass value="${{mass}}"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/>
  </inertial></link></xacro:macro></robot>"""
ROBOT = f"""{HEAD}<xacro:arg name="mass" default="2"/><xacro:arg name="tool" default="false"/>
  <xacro:include filename="parts.xacro"/>
  <link name="base"/><xacro:body name="arm" mass="${{2 * $(arg mass)}}"/>
  <joint name="j" type="continuous"><parent link="base"/><child link="arm"/></joint>
  <xacro:if value="$(arg tool)"><xacro:body name="tool" mass="1"/>
    <joint name="t" type="fixed"><parent link="arm"/><child link="tool"/></joint></xacro:if></robot>"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "parts.xacro").write_text(PARTS)
    path = tmp_path / "robot.urdf.xacro"
    path.write_text(ROBOT)
    return path


def test_arguments_and_files_beside(path):
    assert rd.load_xacro(path).total_mass == 4.0
    assert rd.load_xacro(str(path), {"mass": 3}, ()).total_mass == 6.0
    model = rd.load_xacro(path, {"tool": True}, base="floating", gravity=(0, 0, 0))
    assert model.link_names == ("base", "arm", "tool") and model.nv == 7 and not model.gravity.any()


def test_packages_are_found_without_ros(path, tmp_path):
    other = tmp_path / "elsewhere" / "parts_description"
    other.mkdir(parents=True)
    (tmp_path / "parts.xacro").rename(other / "parts.xacro")
    path.write_text(ROBOT.replace('"parts.xacro"', '"$(find parts_description)/parts.xacro"'))
    with pytest.raises(rd.LoadError, match='no package "parts_description"; say where by package_dirs'):
        rd.load_xacro(path)
    for dirs in ([tmp_path / "elsewhere"], (str(other.parent),), {"parts_description": other}):
        assert rd.load_xacro(path, {}, dirs).nv == 1
    (other / "package.xml").write_text("<package><name>parts_description</name></package>")
    other.rename(other.parent / "renamed")
    assert rd.load_xacro(path, package_dirs=[other.parent]).nv == 1
    with pytest.raises(rd.LoadError, match='no package "parts_description"'):
        rd.load_xacro(path)  # nothing of other calls stays


def test_load_never_runs_it(path, tmp_path):
    with pytest.raises(rd.LoadError, match="is xacro, which can read the machine and is never run by load"):
        rd.load(path)
    plain = tmp_path / "robot.urdf"
    plain.write_text(ROBOT)
    for source in (plain, ROBOT, ROBOT.encode()):
        with pytest.raises(rd.LoadError, match="xacro, not URDF"):
            rd.load(source)


def test_urdf_is_xacro_that_says_nothing_new():
    assert rd.load_xacro(own("arm6")).joint_names == rd.load_urdf(own("arm6")).joint_names


@pytest.mark.parametrize(
    "change, message",
    [
        (("$(arg mass)", "$(arg weight)"), "weight"),
        (("parts.xacro", "absent.xacro"), "absent.xacro"),
        (("${2 * ", "${nonsense * "), "nonsense"),
        (("<robot", "<!DOCTYPE r [<!ENTITY a 'b'>]><robot"), "document type or entities"),
        (("<robot", "<mujoco><robot"), 'root element is "mujoco"'),
        (("</robot>", ""), "not well-formed XML"),
        ((ROBOT, f'{HEAD}<xacro:macro name="m"><xacro:m/></xacro:macro><xacro:m/></robot>'), "recursion"),
        (('type="continuous"', 'type="hinge"'), 'type "hinge"'),
    ],
)
def test_what_cannot_be_expanded(path, change, message):
    path.write_text(ROBOT.replace(*change))
    with pytest.raises(rd.LoadError, match=message):
        rd.load_xacro(path)


def test_arguments_are_checked(path, tmp_path):
    for given, message in (
        ((ROBOT,), "got XML text; wanted the path"),
        ((3,), "got int"),
        ((path, [1]), "args"),
        ((path, {1: "a"}), "names that are texts"),
        ((path, {}, str(tmp_path)), "wanted several folders"),
        ((path, {}, [tmp_path / "none"]), "is no folder"),
        ((path, {}, {"p": 3}), "is no folder"),
    ):
        with pytest.raises(rd.ArgumentError, match=message):
            rd.load_xacro(*given)
    with pytest.raises(rd.ArgumentError, match="base"):
        rd.load_xacro(path, base="free")
    with pytest.raises(rd.LoadError, match="cannot read the file"):
        rd.load_xacro(tmp_path)


def test_the_extra_is_named(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xacrodoc", None)
    monkeypatch.setitem(sys.modules, "xacrodoc.packages", None)
    with pytest.raises(rd.UnavailableError, match=r"pip install 'robodyn\[xacro\]'"):
        rd.load_xacro(path)
