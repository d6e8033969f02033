"""A robot that is given to the function of another format: the message names the right one."""

from __future__ import annotations

import numpy as np
import pytest

import robodyn as rd

URDF = '<robot name="r"><link name="a"/></robot>'
MJCF = '<!-- <robot> --><mujoco model="m"><worldbody/></mujoco>'
SDF = '<?xml version="1.0"?><sdf version="1.9"><model name="m"><link name="a"/></model></sdf>'
XACRO = '<robot name="r" xmlns:xacro="http://www.ros.org/wiki/xacro"><xacro:include filename="a"/></robot>'
READERS = {"load_urdf": rd.load_urdf, "load_sdf": rd.load_sdf, "load_mjcf": rd.load_mjcf, "read_urdf": rd.read_urdf}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("how", ["text", "bytes", "path"])
def test_documents_of_another_format_name_their_reader(reader, how, tmp_path):
    if reader == "load_mjcf":
        pytest.importorskip("mujoco")
    own = {"load_urdf": URDF, "read_urdf": URDF, "load_sdf": SDF, "load_mjcf": MJCF}[reader]
    for text, right in ((URDF, "load_urdf"), (MJCF, "load_mjcf"), (SDF, "load_sdf"), (XACRO, "load_xacro")):
        if text == own:
            continue
        path = tmp_path / "robot.xml"
        path.write_text(text)
        given = {"text": text, "bytes": text.encode(), "path": path}[how]
        with pytest.raises(rd.LoadError, match=f"robodyn.{right}"):
            READERS[reader](given)


@pytest.mark.parametrize(
    ("data", "right"),
    [(b"PK\x03\x04", "Model.load"), ((54321).to_bytes(4, "little"), "load_mjcf"), (b"#usda 1.0", "USD")],
)
def test_files_that_are_no_xml_name_their_reader(data, right):
    with pytest.raises(rd.LoadError, match=right):
        rd.load_urdf(data)


def test_robots_of_xml_are_not_what_a_model_saved(tmp_path):
    path = tmp_path / "robot.npz"
    path.write_text(URDF)
    with pytest.raises(rd.LoadError, match=r"robodyn\.load reads robots"):
        rd.Model.load(path)


@pytest.mark.parametrize("reader", READERS)
def test_objects_of_others_name_their_reader(reader):
    if reader == "load_mjcf":
        pytest.importorskip("mujoco")
    model = rd.load_urdf(URDF)
    given = {
        "Model, which needs no reading": model,
        "its model needs no reading": rd.Dynamics(model),
        "robodyn.build_model": rd.read_urdf(URDF),
        "robodyn.from_pinocchio": type("Model", (), {"__module__": "pinocchio.pinocchio_pywrap"})(),
    }
    if reader != "load_mjcf":
        given["robodyn.load_mjcf"] = type("MjModel", (), {"__module__": "mujoco._structs"})()
    for right, source in given.items():
        with pytest.raises(rd.ArgumentError, match=right):
            READERS[reader](source)
    with pytest.raises(rd.ArgumentError, match=r"object of type ndarray; give a path.* yourdfpy$"):
        READERS[reader](np.zeros(3))
