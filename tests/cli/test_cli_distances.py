"""The command about distances: pairs by name, obstacles from files, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cli_runner import answer, refused, run, values
from robots import own
from test_export import call, check_syntax, compile_library

import robodyn as rd

INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
ROBOT = f"""<robot name="three"><link name="a">{INERTIAL}
<collision name="foot"><geometry><box size="0.2 0.2 0.1"/></geometry></collision></link>
<link name="b">{INERTIAL}</link><link name="c">{INERTIAL}
<collision name="knob"><geometry><sphere radius="0.1"/></geometry></collision>
<collision><origin xyz="0.3 0 0"/><geometry><sphere radius="0.05"/></geometry></collision></link>
<joint name="j0" type="continuous"><parent link="a"/><child link="b"/><origin xyz="0 0 0.5"/><axis xyz="0 1 0"/></joint>
<joint name="j1" type="continuous"><parent link="b"/><child link="c"/><origin xyz="0.5 0 0"/><axis xyz="0 1 0"/></joint>
</robot>"""
AROUND = {
    "spheres": [[1.0, 0.0, 0.0, 0.1], [0.0, 1.0, 0.0, 0.2]],
    "capsules": [[0.0, 0.0, 1.0, 0.0, 0.0, 1.2, 0.05]],
    "box_poses": [[0.5, 0.5, 0.5]],
    "box_edges": [[0.1, 0.2, 0.3]],
    "ignore": ["a"],
}


@pytest.fixture
def robot(tmp_path):
    path = tmp_path / "three.urdf"
    path.write_text(ROBOT)
    return path


@pytest.fixture
def around(tmp_path):
    path = tmp_path / "around.json"
    path.write_text(json.dumps(AROUND))
    return path


def test_obstacles_of_files_are_those_of_the_library(robot, around, tmp_path):
    pose = np.eye(4)
    pose[:3, 3] = AROUND["box_poses"][0]
    given = rd.Obstacles(AROUND["spheres"], AROUND["capsules"], (pose[None], AROUND["box_edges"]), ["a"])
    arrays = {key: np.array(value) for key, value in AROUND.items() if key != "box_poses"}
    np.savez(tmp_path / "around.npz", box_poses=pose[None], **arrays)
    dyn = rd.Dynamics(rd.load_urdf(robot), engine="reference")
    for path in (around, tmp_path / "around.npz"):
        for name in ("distances", "min_distance", "distances_gradient", "min_distance_gradient"):
            document = answer("ask", robot, name, "--random", 3, "--obstacles", path, "--engine", "reference")
            (found,) = values(document["results"]).values()
            q = np.array(document["inputs"]["q"]["values"])
            np.testing.assert_allclose(found, getattr(dyn, name)(q, given), atol=1e-13)
    assert document["pair_names"][:3] == ["foot - knob", "foot - shape 2 of c", "knob - sphere 0"]
    assert document["pair_names"][-1] == "shape 2 of c - box 0" and len(document["pair_names"]) == 2 + 2 * 4


def test_pairs_have_names_in_tables_and_csv(robot, around, tmp_path):
    status, out, err = run("ask", robot, "distances", "--obstacles", around)
    assert (status, err) == (0, "") and "foot - shape 2 of c" in out and "knob - capsule 0" in out
    assert run("ask", robot, "distances", "--random", 2, "--out", tmp_path / "d.csv")[0] == 0
    assert (tmp_path / "d.csv").read_text().splitlines()[0] == "q:j0,q:j1,d:foot - knob,d:foot - shape 2 of c"
    assert answer("ask", robot, "witness_points", "--states", tmp_path / "d.csv")["results"]["p"]["shape"] == [
        2,
        2,
        2,
        3,
    ]
    assert "pairs" in run("export", robot, "--query", "distances")[1]


@pytest.mark.parametrize(
    ("contents", "parts"),
    [
        ("{", ["is no JSON"]),
        ("[1]", ["wanted an object with spheres"]),
        ('{"sphere": []}', ["key: got 'sphere'", "spheres"]),
        ('{"spheres": [1, 2, 3, 4]}', ["spheres: got shape (4,)"]),
        ('{"spheres": [[0, 0, 0, -1]]}', ["negative radii"]),
        ('{"spheres": [[0, 0, NaN, 1]]}', ["spheres: NaN"]),
        ('{"spheres": [["x", 0, 0, 1]]}', ["spheres: got"]),
        ('{"spheres": [[[0, 0, 0, 1]], [[0, 0, 1, 1]]]}', ["leading axes (2,)", "one set of obstacles"]),
        ('{"box_edges": [[1, 1, 1]]}', ["box_poses: not given"]),
        ('{"box_poses": [[0, 0, 0]], "box_edges": [[1, 1]]}', ["boxes[1]: got shape"]),
        ('{"spheres": [[0, 0, 0, 1]], "ignore": ["x"]}', ["ignore[0]: got 'x'"]),
    ],
)
def test_obstacles_that_are_none(robot, tmp_path, contents, parts):
    path = tmp_path / "o.json"
    path.write_text(contents)
    refused(["ask", robot, "min_distance", "--obstacles", path], *parts)


def test_obstacles_where_they_have_no_part(robot, around, tmp_path):
    refused(["ask", robot, "witness_points", "--obstacles", around], "--obstacles: witness_points takes none")
    refused(["ask", robot, "mass_matrix", "--obstacles", around], "--obstacles: mass_matrix takes none")
    refused(["ask", robot, "distances", "--obstacles", tmp_path / "no.json"], "no.json", "No such file")
    refused(["ask", robot, "distances", "--obstacles", robot], "it ends in", ".json, .npz")
    refused(["ask", robot, "distances", "--collision-meshes", "hull"], "meshes: got 'hull'")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_exported_code_takes_obstacles(robot, tmp_path, dtype):
    options = ["--obstacles", "boxes=1, spheres=2,capsules=1", "--ignore", "a", "--dtype", dtype]
    names = ("distances", "min_distance", "min_distance_gradient", "distances_gradient")
    status, _, err = run("export", robot, "--query", ",".join(names), *options, "--out", tmp_path / "three.c")
    assert (status, err) == (0, "")
    assert "[8] shape 2 of c - capsule 0" in (tmp_path / "three.c").read_text()
    check_syntax(tmp_path / "three.c", "c99")
    library = compile_library(tmp_path / "three.c", tmp_path)
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = [[0.36, 0.48, -0.8], [-0.8, 0.6, 0.0], [0.48, 0.64, 0.6]], (0.5, 0.5, 0.5)
    given = rd.Obstacles(AROUND["spheres"], AROUND["capsules"], (pose[None], AROUND["box_edges"]), ["a"])
    rows = [given.rows()[kind] for kind in ("spheres", "capsules", "boxes")]
    dyn = rd.Dynamics(rd.load_urdf(robot), engine="reference")
    for q in dyn.model.random_configuration(4, (5,)):
        for name in names:
            wanted = getattr(dyn, name)(q, given)
            (found,) = call(getattr(library, f"three_{name}"), [q, *rows], [np.shape(wanted)], dtype)
            assert np.abs(found - wanted).max() < (1e-12 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--obstacles", "balls=3"], ["--obstacles: got 'balls'", "'spheres'"]),
        (["--obstacles", "spheres"], ['--obstacles: got "spheres"', "spheres=8"]),
        (["--obstacles", "spheres=0"], ["1 to 10000"]),
        (["--obstacles", "spheres=1,spheres=2"], ["each kind once"]),
        (["--obstacles", "spheres=10000"], ["operations, too many"]),
        (["--obstacles", "spheres=1", "--ignore", "x"], ["ignore[0]: got 'x'"]),
        (["--ignore", "a"], ["--ignore goes with --obstacles"]),
        (["--obstacles", "spheres=1", "--lang", "verilog"], ["--obstacles", "only --language c"]),
    ],
)
def test_exports_that_are_none(robot, options, parts):
    refused(["export", robot, "--query", "min_distance", *options], *parts)


def test_exports_of_what_has_no_obstacles_or_shapes(robot):
    refused(["export", robot, "--query", "id,distances", "--obstacles", "spheres=1"], "--obstacles: id takes none")
    refused(["export", own("arm7"), "--query", "distances"], "--query: distances is about shapes", "has no shapes")
