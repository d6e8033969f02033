"""The commands that edit robots and write them in other formats."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from cli_runner import refused, run
from robots import own

import robodyn as rd
from robodyn.description import Pose, rotation_from_rpy

ARM, GRIPPER = own("arm6"), own("gripper")


def done(*arguments):
    status, out, err = run(*arguments)
    assert (status, err) == (0, ""), err
    return out


@pytest.mark.parametrize("kind", ["urdf", "npz"])
def test_convert(kind, tmp_path):
    path, model = tmp_path / f"robot.{kind}", rd.load_urdf(GRIPPER, base="floating")
    out = done("convert", GRIPPER, path, "--base", "floating")
    assert f"robot.{kind}: gripper, 7 links" in out and (kind == "npz" or "base is left out" in out)
    again = rd.load(path) if kind == "npz" else rd.load_urdf(path, base="floating")
    assert again.joint_names == model.joint_names and again.has_mimic
    np.testing.assert_allclose(again.inertia, model.inertia, atol=1e-14)


def test_convert_to_mujoco_and_back(tmp_path):
    pytest.importorskip("mujoco")
    there, back = tmp_path / "robot.xml", tmp_path / "back.urdf"
    assert "velocity limits" in done("convert", GRIPPER, there)
    done("convert", there, back, "--equality", "mimic")
    model, again = rd.load_urdf(GRIPPER), rd.load_urdf(back)
    assert set(again.joint_names) == set(model.joint_names) and again.nv == model.nv


def test_standard_streams(monkeypatch):
    text = done("convert", ARM, "-")
    assert rd.load_urdf(text).joint_names == rd.load_urdf(ARM).joint_names
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(ARM.read_bytes())))
    assert done("convert", "-", "-") == text
    monkeypatch.setattr(sys, "stdin", None)
    refused(["convert", "-", "-"], "no standard input")


def test_lock(tmp_path):
    path, arm = tmp_path / "small.npz", rd.load_urdf(ARM, base="floating")
    joints = ("--joint", "elbow=0.3", "--joint", "wrist_1", "--joint", "root_joint=0,0,1,0,0,0,1")
    done("lock", ARM, path, *joints, "--base", "floating")
    assert rd.Model.load(path) == arm.lock({"elbow": 0.3, "wrist_1": None, "root_joint": [0, 0, 1, 0, 0, 0, 1]})


def test_names_with_equals_signs(tmp_path):
    path = tmp_path / "odd.urdf"
    path.write_text(ARM.read_text().replace('"elbow"', '"a=1"'))
    done("lock", path, tmp_path / "a.npz", "--joint", "a=1")
    done("lock", path, tmp_path / "b.npz", "--joint", "a=1=0.5")
    model = rd.load_urdf(path)
    assert rd.Model.load(tmp_path / "a.npz") == model.lock({"a=1": None})
    assert rd.Model.load(tmp_path / "b.npz") == model.lock({"a=1": 0.5})


def test_attach(tmp_path):
    path = tmp_path / "both.npz"
    done("attach", ARM, GRIPPER, path, "--link", "tool0", "--xyz", "0,0,0.1", "--rpy", "0,1.5,0", "--prefix", "g_")
    at = Pose((0.0, 0.0, 0.1), rotation_from_rpy(0.0, 1.5, 0.0))
    assert rd.Model.load(path) == rd.load_urdf(ARM).attach(rd.load_urdf(GRIPPER), "tool0", at, "g_")


def test_what_is_refused(tmp_path):
    out = tmp_path / "out.urdf"
    refused(["convert", ARM, tmp_path / "out.txt"], "OUT: got", ".urdf, .xml, .mjcf or .npz")
    refused(["convert", ARM, tmp_path], "OUT", "directory")
    refused(["convert", "", out], "FILE is")
    refused(["convert", tmp_path / "nowhere.urdf", out], "cannot read the file")
    refused(["convert", ARM, out, "--base", "flying"], "base: got 'flying'")
    refused(["convert", ARM, out, "--equality", "mimic"], "equality: no option of load_urdf")
    refused(["lock", ARM, out], "--joint")
    refused(["lock", ARM, out, "--joint", "elbw"], "joint: got 'elbw'", "such as elbow")
    refused(["lock", ARM, out, "--joint", "elbow=x"], "does not end in numbers")
    refused(["lock", ARM, out, "--joint", "elbow=nan"], "does not end in numbers")
    refused(["lock", ARM, out, "--joint", "elbow=1", "--joint", "elbow"], "given twice")
    refused(["attach", ARM, GRIPPER, out, "--link", "tool0"], "both robots have a link called", "another prefix")
    refused(["attach", ARM, GRIPPER, out, "--link", "tool9", "--prefix", "g_"], "link: got 'tool9'")
    refused(["attach", ARM, GRIPPER, out, "--link", "tool0", "--xyz", "1,2"], "--xyz: 2 given; wanted 3")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "robot.npz"
    rd.load_urdf(ARM).save(path)
    path.write_bytes(path.read_bytes()[:-100])
    refused(["convert", path, "-"], "robot.npz")
