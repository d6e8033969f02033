"""`robodyn ik`: a configuration for a pose."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cli_runner import refused, run
from robots import own

import robodyn as rd
from robodyn.description import rotation_from_rpy

ARM = own("arm7")


@pytest.mark.parametrize("point", [None, "0,0.02,0.05"])
@pytest.mark.parametrize("rpy", [None, "0.1,3,0.2"])
@pytest.mark.parametrize("position", [None, "0.45,0.1,0.5"])
def test_the_link_is_there(position, rpy, point):
    given = [
        word
        for name, value in (("position", position), ("rpy", rpy), ("point", point))
        if value is not None
        for word in (f"--{name}", value)
    ]
    if position is None and rpy is None:
        refused(["ik", ARM, "--link", "tool0", *given], "--position: not given")
        return
    status, out, err = run("ik", ARM, "--link", "tool0", *given, "--json")
    told = json.loads(out)
    assert (status, err, told["converged"]) == (0, "", True)
    model = rd.load_urdf(ARM)
    at = np.zeros(3) if point is None else np.array([float(word) for word in point.split(",")])
    T = rd.Dynamics(model).link_pose(told["q"], "tool0", point=at)
    if position is not None:
        assert np.abs(T[:3, 3] - [0.45, 0.1, 0.5]).max() < 1e-6
    if rpy is not None:
        assert np.abs(T[:3, :3] - np.array(rotation_from_rpy(0.1, 3, 0.2)).reshape(3, 3)).max() < 2e-6
    assert (told["q"] <= model.upper).all() and (told["q"] >= model.lower).all()


def test_what_is_printed():
    status, out, err = run("ik", ARM, "--link", "tool0", "--position", "0.45,0.1,0.5", "--q", "0,0.5,0,-1,0,0.5,0")
    assert (status, err) == (0, "") and "joint_7" in out and "[rad]" in out and "tool0 reached" in out
    status, out, err = run("ik", ARM, "--link", "tool0", "--position", "0,0,9", "--seeds", "3")
    assert (status, err) == (1, "") and "not reached: this is the nearest" in out
    number = rd.load_urdf(ARM).link_names.index("tool0")
    assert run("ik", ARM, "--link", number, "--position", "0.45,0.1,0.5", "--json")[0] == 0


def test_limits_can_be_left_out(tmp_path):
    path = tmp_path / "tight.urdf"
    path.write_text(ARM.read_text().replace('upper="2.', 'upper="0.'))
    given = ("--link", "tool0", "--position", "0.45,0.1,0.5", "--rpy", "0.1,3,0.2", "--json")
    loose = json.loads(run("ik", path, *given, "--without-limits")[1])
    assert loose["converged"] and max(loose["q"]) > 0.2


def test_a_clearance_is_kept(tmp_path):
    path, around = tmp_path / "limbs.npz", tmp_path / "around.json"
    model = rd.load_urdf(ARM)
    rods = [rd.Capsule(f"link_{k}", (0, 0, 0), (0, 0, 0.2), radius=0.04) for k in (3, 4, 5)]
    model = model.with_shapes([*rods, rd.Sphere("tool0", (0, 0, 0), 0.05)])
    model.save(path)
    plain = json.loads(run("ik", path, "--link", "tool0", "--position", "0.45,0.1,0.5", "--json")[1])
    elbow = rd.Dynamics(model).link_pose(plain["q"], "link_4")[:3, 3]
    around.write_text(json.dumps({"spheres": [[*elbow.tolist(), 0.1]]}))
    given = ("ik", path, "--link", "tool0", "--position", "0.45,0.1,0.5", "--obstacles", around)
    told = json.loads(run(*given, "--clearance", 0.02, "--json")[1])
    obstacles = rd.Obstacles(spheres=[[*elbow, 0.1]])
    assert told["converged"] and rd.Dynamics(model).is_free(told["q"], obstacles, 0.02) and told["clearance"] > 0.02
    status, out, err = run(*given)
    assert (status, err) == (0, "") and "m apart" in out
    refused(["ik", ARM, "--link", "tool0", "--position", "0,0,1", "--clearance", "0.1"], "no shapes")
    refused([*given[:-1], tmp_path / "none.json"], "none.json")


def test_what_is_refused(tmp_path):
    refused(["ik", ARM, "--link", "tool9", "--position", "0,0,1"], "error: link: got 'tool9'")
    refused(["ik", ARM, "--link", "tool0", "--position", "0,1"], "--position: 2 given; wanted 3")
    refused(["ik", ARM, "--link", "tool0", "--rpy", "0,1,x"], "--rpy: entry 3 is")
    refused(["ik", ARM, "--link", "tool0", "--position", "0,0,1", "--q", "1,2"], "--q: 2 given; wanted 7")
    refused(["ik", ARM, "--position", "0,0,1"], "--link")
    refused(["ik", ARM, "--link", "tool0", "--position", "1e300,0,0"], "--position: got '1e300,0,0'")


def test_secondary_goals():
    model = rd.load_urdf(ARM)
    given = ("ik", ARM, "--link", "tool0", "--position", "0.45,0.1,0.5", "--json")
    plain, centred, apart = (
        np.array(json.loads(run(*given, *more)[1])["q"])
        for more in (("--q", "0,1.5,0,-1,0,0.5,0"), ("--posture", "middle"), ("--manipulability",))
    )
    middle, J = 0.5 * (model.lower + model.upper), [rd.Dynamics(model).jacobian(q, "tool0")[3:] for q in (plain, apart)]
    assert np.linalg.norm(centred - middle) < np.linalg.norm(plain - middle)
    assert np.linalg.det(J[1] @ J[1].T) > np.linalg.det(J[0] @ J[0].T)
    refused([*given, "--posture", "neutral"], "--posture: got 'neutral'")
