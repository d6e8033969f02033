"""The command takes every format that the library reads."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from cli_runner import refused, run
from robots import own
from sdf_texts import POSE, axis, joint, link, sdf

SDF = sdf(POSE, link("a"), link("b", POSE), joint("j", "a", "b", more=axis()))
MJCF = """<mujoco model="box"><option gravity="0 0 -3"/><worldbody><body name="a"><joint name="j"/><geom size="1"/>
</body></worldbody></mujoco>"""
XACRO = """<robot name="r" xmlns:xacro="http://www.ros.org/wiki/xacro"><xacro:property name="n" value="a"/>
<link name="${n}"/></robot>"""
NEEDS = {"sdf": "numpy", "mjcf": "mujoco", "xacro": "xacrodoc"}


@pytest.fixture(params=["sdf", "mjcf", "xacro"])
def given(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The arguments that name a file."""
    if importlib.util.find_spec(NEEDS[request.param]) is None:
        pytest.skip(f"{NEEDS[request.param]} is not installed")
    text, name = {"sdf": (SDF, "m.sdf"), "mjcf": (MJCF, "m.xml"), "xacro": (XACRO, "m.urdf.xacro")}[request.param]
    path = tmp_path / name
    path.write_text(text)
    return [str(path), *(["--xacro"] if request.param == "xacro" else [])]


def test_info_and_check(given):
    status, out, err = run("info", *given)
    assert (status, err) == (0, "") and "bodies" in out and "findings" in out
    status, out, _ = run("check", *given, "--json")
    assert status in (0, 1) and json.loads(out)["findings"]


def test_bench(given):
    if given[-1] == "--xacro":
        pytest.skip("a robot of no degree of freedom")
    options = ("--no-peers", "--batch", "1", "--threads", "1", "--query", "mass_matrix", "--seconds", "0.001")
    status, out, err = run("bench", *given, *options, "--engine", "reference", "--json")
    assert (status, err) == (0, "") and json.loads(out)["robodyn"]


def test_what_a_file_says_itself(tmp_path):
    path = tmp_path / "m.sdf"
    path.write_text(SDF)
    assert "dof       7" in run("info", path)[1] and "dof       1" in run("info", path, "--base", "fixed")[1]
    assert "gravity   0 0 -9.81" in run("info", path)[1]
    assert "gravity   1 2 3" in run("info", path, "--gravity", "1,2,3")[1]
    assert run("id", path, "--random", "2", "--joint-forces", "damping", "--engine", "reference")[0] == 0


def test_options_that_a_format_has_not(tmp_path):
    pytest.importorskip("mujoco")
    path = tmp_path / "m.xml"
    path.write_text(MJCF)
    assert "gravity   0 0 -3" in run("info", path)[1]
    refused(["info", path, "--base", "floating"], "base", "no option of load_mjcf")


def test_xacro_is_run_where_it_is_asked_for_alone(tmp_path):
    path = tmp_path / "m.urdf.xacro"
    path.write_text(XACRO)
    refused(["info", path], "is xacro", "--xacro")
    refused(["info", "-", "--xacro"], "--xacro wants a file")
    pytest.importorskip("xacrodoc")
    assert run("info", own("arm6"), "--xacro") == run("info", own("arm6"))


def test_model_dir_says_where_models_are_that_sdf_includes(tmp_path):
    (tmp_path / "models" / "part").mkdir(parents=True)
    (tmp_path / "models" / "part" / "model.sdf").write_text(SDF)
    path = tmp_path / "robot.sdf"
    path.write_text(sdf("<include merge='1'><uri>model://part</uri></include>"))
    given = ["--model-dir", str(tmp_path), "--model-dir", str(tmp_path / "models")]
    status, out, err = run("id", str(path), "--base", "fixed", "--q", "0.1", "--json", *given)
    assert (status, err) == (0, "") and "tau" in out
    assert run("convert", str(path), tmp_path / "out.urdf", *given)[0] == 0
    refused(["info", path], "model://part", "model_dirs")
    refused(["info", own("arm6"), *given], "model_dirs: no option of load_urdf")
