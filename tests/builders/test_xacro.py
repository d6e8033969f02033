"""xacro: an explicit call, arguments, packages without ROS, and what goes wrong."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings

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


def expand_error(path, **options):
    with pytest.raises(rd.LoadError) as caught:
        rd.load_xacro(path, **options)
    return str(caught.value)


def test_errors_name_the_inner_file_and_the_macros(path, tmp_path):
    """In the order that xacro's own command prints: the innermost first."""
    inner, outer = tmp_path / "inner.xacro", tmp_path / "outer.xacro"
    inner.write_text(f'{HEAD}<xacro:macro name="inside" params="n"><link name="${{nowhere}}"/></xacro:macro></robot>')
    outer.write_text(
        f'{HEAD}<xacro:include filename="inner.xacro"/>'
        '<xacro:macro name="outside" params="n"><xacro:inside n="${n}"/></xacro:macro></robot>'
    )
    path.write_text(f'{HEAD}<xacro:include filename="outer.xacro"/><xacro:outside n="a"/></robot>')
    macros = f', in macro "inside" of "{inner}", called by macro "outside" of "{outer}"'
    files = f', in "{inner}", included by "{outer}"'
    message = expand_error(path)
    assert f"cannot expand the xacro \"{path}\": name 'nowhere' is not defined" in message
    assert message.endswith(macros)
    text = inner.read_text()
    for change, said, where in (
        (("<xacro:macro", "<xacro:nothing/><xacro:macro"), "unknown macro name: xacro:nothing", files),
        (("</robot>", ""), "not well-formed XML at line 1: <robot> is not closed", files),
        (("<robot", "<!DOCTYPE r><robot"), "document type or entities", files),
        (("<xacro:macro", '<xacro:include filename="none.xacro"/><xacro:macro'), "there is no file", files),
        (('params="n"', 'params="m"'), 'Invalid parameter "n"', macros),
    ):
        inner.write_text(text.replace(*change))
        message = expand_error(path)
        assert said in message and message.endswith(where), message
    deep = "".join(f'<xacro:macro name="m{i}"><xacro:m{i + 1}/></xacro:macro>' for i in range(30))
    path.write_text(f"{HEAD}{deep}<xacro:m0/></robot>")
    assert expand_error(path).endswith("and 25 more")
    path.write_text(f'{HEAD}<xacro:include filename="{path.name}"/></robot>')
    assert "includes are nested more than 100 deep" in expand_error(path)


def test_optional_includes_may_be_missing(path):
    path.write_text(ROBOT.replace("<xacro:arg", '<xacro:include filename="none.xacro" optional="true"/><xacro:arg', 1))
    assert rd.load_xacro(path).nv == 1


def test_arguments_that_no_file_declares_are_findings(path):
    def said(args):
        report = rd.load_xacro(path, args).report
        found = [each for each in report if each.code == "xacro-argument-not-used"]
        return [(each.severity, each.element, each.message) for each in found]

    assert said({}) == said({"mass": 3, "tool": True}) == []
    (found,) = said({"tol": True, "mass": 3})
    assert found == ("warning", 'argument "tol"', 'no <xacro:arg> declares it; did you mean "tool"?')
    assert [each[1] for each in said({"quite_other": 1, "MASS": 2})] == ['argument "quite_other"', 'argument "MASS"']
    path.write_text(ROBOT.replace('<xacro:arg name="mass" default="2"/>', ""))
    assert said({"mass": 3}) == []  # not declared, but asked for


def test_files_of_macros_alone_say_so(path, tmp_path):
    assert 'it only defines macros ("body"); load a file that calls' in expand_error(tmp_path / "parts.xacro")
    path.write_text(
        f'{HEAD}<xacro:include filename="parts.xacro"/><xacro:macro name="whole"><xacro:body/></xacro:macro></robot>'
    )
    assert 'only defines macros ("whole", "body")' in expand_error(path)
    path.write_text(f"{HEAD}<material/></robot>")
    assert "the robot has no links" in expand_error(path)


def test_xml_that_others_let_pass_is_let_pass_in_every_file(path, tmp_path):
    parts = tmp_path / "parts.xacro"
    expected = rd.load_xacro(path)
    parts.write_bytes(PARTS.replace("<link", "<!-- M\u00fcller -- -->\n<link").encode("latin-1"))
    path.write_text("<!-- a -- b -->" + ROBOT)
    model = rd.load_xacro(path)
    assert model == expected
    found = {(each.element, each.line) for each in model.report if each.code == "xml-not-well-formed"}
    assert found == {(f'file "{path}"', 1), (f'file "{parts}"', 2)}
    parts.write_text(PARTS.replace("</robot>", "<a x=1/></robot>"))
    assert 'the attribute "x" has no value in quotes' in expand_error(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
def test_forks_while_another_thread_expands(path):
    """A child of a fork has the lock that another thread held, and no such thread."""
    over = threading.Event()

    def expand():
        while not over.is_set():
            rd.load_xacro(path)

    thread = threading.Thread(target=expand)
    thread.start()
    try:
        for pause in range(8):
            time.sleep(pause / 1000)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that there are threads
                child = os.fork()
            if not child:
                signal.alarm(30)
                os._exit(0 if rd.load_xacro(path).nv == 1 else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        over.set()
        thread.join()


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
    with pytest.raises(rd.UnavailableError, match=r'pip install "\.\[xacro\]"'):
        rd.load_xacro(path)
