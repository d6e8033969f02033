"""Robots of the package robot_descriptions: a package like it, and itself where it is installed."""

from __future__ import annotations

import importlib
import sys

import pytest
from robots import own
from sdf_texts import link, sdf

import robodyn as rd


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of that name with the modules that are written into it."""
    for name in [each for each in sys.modules if each.split(".")[0] == "robot_descriptions"]:
        monkeypatch.delitem(sys.modules, name)
    folder = tmp_path / "robot_descriptions"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (tmp_path / "robot.sdf").write_text(sdf(link("a")))
    (tmp_path / "robot.xacro").write_text(
        '<robot name="r" xmlns:xacro="http://www.ros.org/wiki/xacro"><xacro:arg name="name" default="a"/>'
        '<link name="$(arg name)"/></robot>'
    )
    (folder / "arm_description.py").write_text(f"URDF_PATH = {str(own('arm6'))!r}")
    (folder / "box_description.py").write_text(f"SDF_PATH = {str(tmp_path / 'robot.sdf')!r}")
    (folder / "made_description.py").write_text(
        f"XACRO_PATH = {str(tmp_path / 'robot.xacro')!r}\nXACRO_ARGS = {{'name': 'b'}}"
    )
    (folder / "lost_description.py").write_text("raise OSError('no network')")
    (folder / "empty_description.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield folder
    for name in [each for each in sys.modules if each.split(".")[0] == "robot_descriptions"]:
        del sys.modules[name]


def test_what_a_module_names_is_loaded(package):
    assert rd.load_description("arm_description").joint_names == rd.load_urdf(own("arm6")).joint_names
    assert rd.load_description("arm_description", base="floating").nv == 12
    assert rd.load_description("box_description").joint_names == ("a",)


def test_xacro_of_a_description_runs_with_its_arguments(package):
    pytest.importorskip("xacrodoc")
    assert rd.load_description("made_description").link_names == ("b",)
    assert rd.load_description("made_description", args={"name": "c"}).link_names == ("c",)


def test_what_cannot_be_loaded(package):
    with pytest.raises(rd.ArgumentError, match='no description "arm"; near it are "arm_description"'):
        rd.load_description("arm")
    for name in ("os", "../arm_description", "loaders.pinocchio", "", "a" * 1000):
        with pytest.raises(rd.ArgumentError, match="there is no description"):
            rd.load_description(name)
    with pytest.raises(rd.ArgumentError, match="wanted a name such as"):
        rd.load_description(3)
    with pytest.raises(rd.ArgumentError, match="no option of load_urdf"):
        rd.load_description("arm_description", equality="mimic")
    with pytest.raises(rd.UnavailableError, match="lost_description could not be fetched: OSError"):
        rd.load_description("lost_description")
    with pytest.raises(rd.LoadError, match="has none of URDF_PATH"):
        rd.load_description("empty_description")


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "robot_descriptions", None)
    with pytest.raises(rd.UnavailableError, match=r'pip install "\.\[descriptions\]"'):
        rd.load_description("panda_description")


def test_names_of_the_real_package():
    pytest.importorskip("robot_descriptions")
    with pytest.raises(rd.ArgumentError, match=r'near it are .*"panda_description"'):
        rd.load_description("panda_descriptoin")


@pytest.mark.nightly
def test_a_robot_of_the_real_package():
    """Fetched from where it is published, or skipped where nothing can be."""
    pytest.importorskip("robot_descriptions")
    try:
        model = rd.load_description("panda_description")
    except rd.UnavailableError as error:
        pytest.skip(str(error))
    assert model.nv == 8
