"""The command: what it prints and writes, its exit status, and one clear line for every error."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from robots import OWN, own

import robodyn as rd
from robodyn import cli, cli_results, tables

ROBODYN = [sys.executable, "-m", "robodyn"]
ARM = own("arm6")
QUERIES = {
    "id": ("inverse_dynamics", ("q", "qd", "qdd"), ("tau",)),
    "fd": ("forward_dynamics", ("q", "qd", "tau"), ("qdd",)),
    "gradient --of id": ("inverse_dynamics_gradient", ("q", "qd", "qdd"), ("dtau_dq", "dtau_dqd")),
    "gradient --of fd": ("forward_dynamics_gradient", ("q", "qd", "tau"), ("dqdd_dq", "dqdd_dqd", "dqdd_dtau")),
}


@pytest.fixture(autouse=True)
def _wide_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("ROBODYN_DEBUG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capsys):
    """Run the command in this process: (exit status, stdout, stderr)."""

    def call(*arguments):
        status = cli.run([str(each) for each in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return status, out, err

    return call


@pytest.fixture
def refused(run):
    """The command ends with status 2, prints nothing, and says in one line on stderr all of `parts`."""

    def call(arguments, *parts, status=2):
        got, out, err = run(*arguments)
        assert got == status, err
        assert out == ""
        assert err.startswith("robodyn: error: ")
        assert err.count("\n") == 1
        assert err.endswith("\n")
        for part in parts:
            assert part in err, f"{part!r} is not in {err}"

    return call


@pytest.fixture
def answer(run):
    """The JSON that the command prints, after it went well."""

    def call(*arguments):
        status, out, err = run(*arguments, "--json")
        assert (status, err) == (0, "")
        return json.loads(out)

    return call


def library(name, model, states, **options):
    """What the library says: results by name."""
    method, inputs, names = QUERIES[name]
    results = getattr(rd.Dynamics(model, **options), method)(*(states[i] for i in inputs))
    return dict(zip(names, results if len(names) > 1 else (results,), strict=True))


def same(got, wanted):
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(wanted).max(initial=0)))


def values(entries):
    return {name: np.array(entry["values"]).reshape(entry["shape"]) for name, entry in entries.items()}


def chain(n):
    """A robot that is one long chain, as URDF."""
    inertial = '<inertial><mass value="1"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial>'
    links = "".join(f'<link name="link{i}">{inertial}</link>' for i in range(n + 1))
    joints = "".join(
        f'<joint name="joint{i}" type="continuous"><parent link="link{i}"/><child link="link{i + 1}"/>'
        '<axis xyz="0 1 0"/></joint>'
        for i in range(n)
    )
    return f'<robot name="chain">{links}{joints}</robot>'


# info.


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_info_shows_every_body_joint_and_the_sizes(run, path):
    model = rd.load_urdf(path)
    status, out, err = run("info", path)
    assert (status, err) == (0, "")
    for name in (model.name, *model.link_names, *model.joint_names):
        assert name in out
    assert f"{model.total_mass:.6g} kg" in out
    assert re.search(rf"dof +{model.nv}\b", out)
    assert "0 0 -9.81 m/s^2" in out
    for mass in model.inertia[:, 0]:
        assert f" {mass:.4g} " in out


def test_info_takes_base_mimic_gravity(run):
    assert "root_joint, floating" in run("info", ARM, "--base", "floating")[1]
    assert "joints that mimic others: 6" in run("info", own("hand"))[1]
    assert "mimic others" not in run("info", own("hand"), "--mimic", "ignore")[1]
    assert "1 2 -3.5 m/s^2" in run("info", ARM, "--gravity", "1,2,-3.5")[1]


def test_info_cuts_a_large_robot_and_all_shows_it(run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    path = tmp_path / "chain.urdf"
    path.write_text(chain(300))
    out = run("info", path)[1]
    assert "... and 287 more bodies" in out  # in the tree, which is too deep for the screen
    assert "... and 260 more bodies" in out  # in the table
    assert "--all shows everything" in out
    assert all(len(line) <= 100 for line in out.splitlines())
    out = run("info", path, "--all")[1]
    assert "more bodies" not in out
    assert " " * 4 * 299 + "└── link300  joint299, revolute" in out.splitlines()


def test_info_prints_names_as_they_are(run, tmp_path):
    path = tmp_path / "markup.urdf"
    path.write_text(chain(2).replace("link1", "[/red]").replace("link2", ":warning: [bold]b"))
    status, out, _ = run("info", path)
    assert status == 0
    assert out.count("[/red]") == 2
    assert out.count(":warning: [bold]b") == 2
    assert "[/red]" in str(rd.load_urdf(path))


# check.


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_check_lists_the_report(run, path):
    model = rd.load_urdf(path)
    singular = rd.Dynamics(model).singularity()
    clean = singular is None and all(finding.severity == "info" for finding in model.report)
    status, out, err = run("check", path)
    assert (status, err) == (0 if clean else 1, "")
    for finding in model.report:
        assert finding.code in out
    assert ("is clean" if clean else "has findings") in out

    status, out, err = run("check", path, "--json")
    assert (status, err) == (0 if clean else 1, "")
    document = json.loads(out)
    assert document["model"] == model.name
    assert document["clean"] is clean
    assert sum(document["counts"].values()) == len(document["findings"])
    listed = [(each["severity"], each["code"], each["element"], each["line"]) for each in document["findings"]]
    report = [(each.severity, each.code, each.element, each.line) for each in model.report]
    assert listed[: len(report)] == report
    assert len(listed) - len(report) == (singular is not None)


def test_check_names_the_body_that_makes_the_mass_matrix_singular(run):
    status, out, _ = run("check", own("massless_tip"), "--json")
    assert status == 1
    last = json.loads(out)["findings"][-1]
    assert (last["severity"], last["code"]) == ("warning", "singular-mass-matrix")
    assert "'pointer'" in last["message"]


def test_check_of_an_unusable_file_and_lenient(run, refused, tmp_path):
    path = tmp_path / "negative.urdf"
    path.write_text(chain(1).replace('mass value="1"', 'mass value="-1"'))
    refused(["check", path], "mass", "link")
    status, out, _ = run("check", path, "--lenient", "--json")
    assert status == 1
    assert json.loads(out)["counts"]["error"] > 0
    status, out, _ = run("check", path, "--lenient")
    assert status == 1
    assert out.index("error") < out.index("info")


def test_check_of_a_file_without_findings(run, tmp_path):
    path = tmp_path / "chain.urdf"
    path.write_text(chain(2))
    status, out, _ = run("check", path)
    assert (status, out) == (0, "chain is clean: 0 errors, 0 warnings, 0 info\n")


# Values.


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
@pytest.mark.parametrize("name", QUERIES)
def test_values_are_those_of_the_library(answer, refused, path, name):
    model = rd.load_urdf(path)
    command = [*name.split()[:1], path, *name.split()[1:], "--random", 3, "--seed", 5]
    if rd.Dynamics(model).singularity() is not None and "fd" in name:
        refused(command, "singular", "'pointer'")
        return
    document = answer(*command)
    states, results = values(document["inputs"]), values(document["results"])
    assert np.array_equal(states["q"], model.random_configuration(np.random.default_rng(5), (3,)))
    wanted = library(name, model, states)
    assert list(results) == list(wanted)
    for key, value in wanted.items():
        same(results[key], value)
    assert document["query"] == QUERIES[name][0]
    assert document["velocity_names"] == list(model.velocity_names)
    assert document["coordinate_names"] == list(model.coordinate_names)
    for entry in (*document["inputs"].values(), *document["results"].values()):
        assert len(entry["axes"]) == len(entry["shape"])


@pytest.mark.parametrize("separator", [",", " ", " , "])
def test_a_state_on_the_command_line(answer, separator):
    q, qd, tau = np.linspace([-1.0, 0.5, 2.0], [1.0, -0.3, -4.0], 6).T
    texts = {name: separator.join(map(str, value)) for name, value in (("q", q), ("qd", qd), ("tau", tau))}
    results = values(answer("fd", ARM, *(f"--{name}={text}" for name, text in texts.items()))["results"])
    same(results["qdd"], rd.Dynamics(rd.load_urdf(ARM)).forward_dynamics(q, qd, tau)[None])


def test_what_is_not_given_is_neutral(answer):
    model = rd.load_urdf(own("satellite"))
    document = answer("id", own("satellite"), "--qdd", "-1,0,0,0,0,0,0,0,0,1")
    qdd = np.array([-1.0, *[0.0] * 8, 1.0])
    same(document["inputs"]["q"]["values"], model.neutral()[None])
    wanted = rd.Dynamics(model).inverse_dynamics(model.neutral(), np.zeros(10), qdd)
    same(document["results"]["tau"]["values"], wanted[None])


def test_options_reach_the_library(answer):
    hand = own("hand")
    document = answer(
        "id", hand, "--random=2", "--base=floating", "--mimic=ignore", "--gravity=1,2,3", "--dtype=float32",
        "--engine=reference",
    )  # fmt: skip
    model = rd.load_urdf(hand, base="floating", mimic="ignore", gravity=(1, 2, 3))
    states = values(document["inputs"])
    assert document["gravity"] == [1.0, 2.0, 3.0]
    assert (document["dtype"], document["engine"]) == ("float32", "reference")
    wanted = library("id", model, states, dtype="float32")["tau"]
    assert np.array_equal(np.array(document["results"]["tau"]["values"], np.float32), wanted)


def test_units(answer):
    model = rd.load_urdf(own("satellite"))
    assert tables.units(model, "q")[:7] == ("m", "m", "m", "1", "1", "1", "1")
    assert tables.units(model, "tau") == ("N", "N", "N", "N m", "N m", "N m", "N m", "N m", "N", "N m")
    assert tables.step_units(model)[:4] == ("m", "m", "m", "rad")
    assert tables.units(rd.load_urdf(own("gripper")), "qdd") == ("rad/s^2", "rad/s^2", "m/s^2")
    entry = answer("gradient", own("cartpole"), "--of", "fd")["results"]["dqdd_dtau"]
    assert (entry["row_units"], entry["column_units"]) == (["m/s^2", "rad/s^2"], ["N", "N m"])


def test_long_input_is_cut_into_chunks(answer, monkeypatch):
    whole = answer("gradient", ARM, "--random", 7)
    monkeypatch.setattr(cli_results, "_CHUNK_STATES", 3)
    assert answer("gradient", ARM, "--random", 7) == whole


# Tables of results.


def test_the_table_of_a_state(run):
    status, out, _ = run("id", ARM, "--q", "0,0,0,0,0,0")
    assert status == 0
    model = rd.load_urdf(ARM)
    tau = rd.Dynamics(model).gravity_force(np.zeros(6))
    row = next(line for line in out.splitlines() if "state 0" in line)
    same([float(text) for text in row.split()[2:]], [float(f"{x:.6g}") for x in tau])
    for name in model.velocity_names:
        assert name in out


def test_many_states_are_cut(run):
    out = run("id", ARM, "--random", 25)[1]
    assert "state 19 " in out
    assert "state 20 " not in out
    assert "... and 5 more states; --out FILE or --json gives all of them" in out


def test_a_wide_robot_is_turned(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    model = rd.load_urdf(own("humanoid"))
    out = run("id", own("humanoid"), "--random", 7)[1]
    assert all(len(line) <= 100 for line in out.splitlines())
    for name in model.velocity_names:
        assert len(re.findall(rf"^ {name} \[N m\]", out, re.MULTILINE)) == 1
    assert "state 4" in out
    assert "... and 2 more states" in out


@pytest.mark.parametrize("width", [30, 60, 100, 500])
def test_gradients_keep_to_the_width(run, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(max(width, 60)))
    out = run("gradient", ARM, "--of", "fd", "--random", 2)[1]
    assert all(len(line) <= max(width, 60) for line in out.splitlines())
    assert "... and 1 more states" in out
    names = [f"c{i}\n[m]" for i in range(9)]
    made = tables.number_tables("T", ["row"], names, np.arange(9.0)[None], width)
    headers = [column.header for table in made for column in table.columns[1:]]
    assert headers == names


def test_a_robot_of_many_joints_is_cut(run, tmp_path):
    path = tmp_path / "chain.urdf"
    path.write_text(chain(130))
    assert "... and 1 more states and 30 more degrees of freedom" in run("gradient", path, "--random", 2)[1]
    assert "... and 30 more degrees of freedom; --out" in run("fd", path)[1]


def test_a_robot_without_joints(run, answer, tmp_path):
    path = tmp_path / "block.urdf"
    path.write_text(chain(0))
    assert run("info", path)[0] == 0
    assert run("check", path)[0] == 0
    assert "0 degrees of freedom" in run("gradient", path, "--random", 2)[1]
    assert answer("id", path, "--q", "")["results"]["tau"]["shape"] == [1, 0]


# Files.


def test_npz_goes_round(run, tmp_path):
    model = rd.load_urdf(own("satellite"))
    path = tmp_path / "fd.npz"
    status, out, _ = run("fd", own("satellite"), "--random", 6, "--seed", 1, "--out", path)
    assert (status, out) == (0, f"wrote qdd of 6 states to {path}\n")
    with np.load(path, allow_pickle=False) as file:
        first = dict(file)
    same(first["qdd"], library("fd", model, first)["qdd"])
    assert first["velocity_names"].tolist() == list(model.velocity_names)
    assert run("id", own("satellite"), "--states", path, "--out", tmp_path / "id.npz")[0] == 0
    with np.load(tmp_path / "id.npz", allow_pickle=False) as file:
        np.testing.assert_allclose(file["tau"], first["tau"], atol=1e-9)


def test_csv_goes_round(run, tmp_path):
    satellite = own("satellite")
    for out in ("fd.csv", "fd.json"):
        assert run("fd", satellite, "--random", 6, "--seed", 1, "--out", tmp_path / out)[0] == 0
    document = json.loads((tmp_path / "fd.json").read_text())
    lines = (tmp_path / "fd.csv").read_text().splitlines()
    assert lines[0].startswith("q:orbit.x,q:orbit.y,")
    assert len(lines) == 7
    assert run("id", satellite, "--states", tmp_path / "fd.csv", "--out", tmp_path / "id.json")[0] == 0
    again = json.loads((tmp_path / "id.json").read_text())
    np.testing.assert_allclose(again["results"]["tau"]["values"], document["inputs"]["tau"]["values"], atol=1e-9)


def test_gradients_go_into_npz_and_json(run, tmp_path):
    states = rd.load_urdf(ARM).random_configuration(np.random.default_rng(0), (2,))
    for out in ("g.npz", "g.json"):
        assert run("gradient", ARM, "--random", 2, "--out", tmp_path / out)[0] == 0
    document = json.loads((tmp_path / "g.json").read_text())
    with np.load(tmp_path / "g.npz", allow_pickle=False) as file:
        assert np.array_equal(file["q"], states)
        for key in ("dtau_dq", "dtau_dqd"):
            assert np.array_equal(file[key], values(document["results"])[key])


def test_npy_holds_states_side_by_side(answer, tmp_path):
    model = rd.load_urdf(own("satellite"))
    rows = np.random.default_rng(3).uniform(0.1, 1.0, (4, model.nq + 2 * model.nv))
    np.save(tmp_path / "s.npy", rows)
    q, qd, third = np.split(rows, [11, 21], axis=1)
    document = answer("fd", own("satellite"), "--states", tmp_path / "s.npy")
    same(document["inputs"]["q"]["values"], model.normalized(q))
    same(document["results"]["qdd"]["values"], rd.Dynamics(model).forward_dynamics(q, qd, third))
    np.save(tmp_path / "one.npy", rows[0])
    document = answer("id", own("satellite"), "--states", tmp_path / "one.npy")
    same(document["results"]["tau"]["values"], rd.Dynamics(model).inverse_dynamics(q[0], qd[0], third[0])[None])


def test_csv_columns_in_any_order_and_the_rest_neutral(answer, tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("\ufeff tau:panel , q:mast, qd:orbit.vx ,q:orbit.qx\r\n1, 0.1,-2,1e0\r\n\r\n2,0.2,3,0\r\n", "utf-8")
    document = answer("id", own("satellite"), "--states", path)
    q, qd = (np.array(document["inputs"][name]["values"]) for name in ("q", "qd"))
    half = 0.5**0.5
    same(q, [[0, 0, 0, half, 0, 0, half, 0, 0, 0.1, 0], [0, 0, 0, 0, 0, 0, 1, 0, 0, 0.2, 0]])
    same(qd, np.outer([-2, 3], np.eye(10)[0]))
    same(document["inputs"]["qdd"]["values"], np.zeros((2, 10)))


def test_states_of_an_npz_broadcast(answer, tmp_path):
    np.savez(tmp_path / "s.npz", q=np.ones((3, 6), np.float32), qd=np.arange(6), tau=np.ones(6))
    document = answer("id", ARM, "--states", tmp_path / "s.npz")
    same(document["inputs"]["qd"]["values"], np.tile(np.arange(6.0), (3, 1)))
    assert document["results"]["tau"]["shape"] == [3, 6]


def test_no_states_at_all(run, answer, tmp_path):
    np.savez(tmp_path / "s.npz", q=np.ones((0, 6)))
    assert answer("id", ARM, "--states", tmp_path / "s.npz")["results"]["tau"]["values"] == []
    assert run("fd", ARM, "--random", 0) == (0, "nothing to show: 0 states, 6 degrees of freedom\n", "")
    assert run("id", ARM, "--random", 0, "--out", tmp_path / "o.csv")[0] == 0
    assert answer("fd", ARM, "--states", tmp_path / "o.csv")["results"]["qdd"]["shape"] == [0, 6]


# Errors.


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["fly"], ["fly", "see robodyn --help"]),
        (["id"], ["FILE", "see robodyn id --help"]),
        (["id", ARM, "--tau", "1"], ["--tau"]),
        (["info", "no-such.urdf"], ["no-such.urdf", "No such file"]),
        (["info", "<robot/>"], ["<robot/>", "No such file"]),
        (["info", "two\nlines.urdf"], ["two"]),
        (["check", ARM.parent], ["directory"]),
        (["info", ARM, "--base", "flying"], ["flying", "'fixed'", "'floating'"]),
        (["info", ARM, "--mimic", "x"], ["'follow'"]),
        (["info", ARM, "--gravity", "1,2"], ["--gravity", "2 given", "wanted 3", "x, y, z"]),
        (["info", ARM, "--gravity", "1,2,inf"], ["gravity", "infinite"]),
        (["id", ARM, "--q", "1,2"], ["--q", "2 given", "wanted 6", "shoulder_pan, shoulder_lift", "wrist_3"]),
        (["id", ARM, "--qdd", "1,2,3,4,5,6,7"], ["--qdd", "7 given", "wanted 6"]),
        (["id", ARM, "--q", ""], ["0 given"]),
        (["id", ARM, "--q", "1,2,x,4,5,6"], ["entry 3", '"x"']),
        (["id", ARM, "--q", "1,2,,4,5,6"], ["entry 3", '""']),
        (["id", ARM, "--q", "1,2,nan,4,5,6"], ["q", "NaN", "2"]),
        (["fd", ARM, "--tau", "1e999,0,0,0,0,0"], ["tau", "infinite"]),
        (["id", ARM, "--qd", "1e200,1e200,0,0,0,0"], ["tau", "overflows"]),
        (["id", own("satellite"), "--q", ",".join("0" * 11)], ["quaternion", "zero length"]),
        (["id", ARM, "--dtype", "float16"], ["float16", "'float32'"]),
        (["id", ARM, "--engine", "magic"], ["magic", "'reference'"]),
        (["id", ARM, "--random", "-1"], ["--random"]),
        (["id", ARM, "--random", "many"], ["--random", "many"]),
        (["id", ARM, "--random", "3", "--q", "1"], ["--random", "--q"]),
        (["id", ARM, "--random", "3", "--states", "x.npz"], ["--random", "--states"]),
        (["id", ARM, "--random", str(10**15)], ["memory"]),
        (["id", ARM, "--seed", "3"], ["--seed", "--random"]),
        (["id", ARM, "--json", "--out", "x.npz"], ["--json", "--out"]),
        (["gradient", ARM, "--of", "both"], ["both", "'id'"]),
        (["gradient", ARM, "--tau", "1,2,3,4,5,6"], ["--tau", "--qdd"]),
        (["gradient", ARM, "--out", "x.csv"], [".csv", ".npz", ".json"]),
        (["id", ARM, "--out", "x.txt"], [".txt", ".npz", ".json", ".csv"]),
        (["id", ARM, "--out", "no-such-folder/x.npz"], ["no-such-folder"]),
        (["id", ARM, "--states", "no-such.npz"], ["no-such.npz", "No such file"]),
        (["id", ARM, "--states", "x.mat"], [".mat", ".npz", ".npy", ".csv"]),
        (["fd", own("massless_tip")], ["singular", "'pointer'"]),
    ],
    ids=lambda value: " ".join(map(str, value))[:60] if isinstance(value, list) else None,
)
def test_errors(refused, arguments, parts):
    refused(arguments, *parts)


NPZ = {"q": np.zeros((2, 6))}


@pytest.mark.parametrize(
    ("arrays", "parts"),
    [
        ({**NPZ, "qqd": np.zeros(6), "a": 1}, ['"a"', '"qqd"', "q, qd, qdd, tau"]),
        ({"coordinate_names": np.array(["x"])}, ["none", "q, qd, qdd, tau"]),
        ({**NPZ, "velocity_names": np.array(["x"])}, ["velocity_names", "arm6"]),
        ({"q": np.zeros((2, 5))}, ["q", "(2, 5)", "6"]),
        ({"q": np.zeros((2, 2, 6))}, ["q", "(2, 2, 6)"]),
        ({**NPZ, "qd": np.zeros((3, 6))}, ["broadcast", "(3,)"]),
        ({**NPZ, "tau": np.zeros(5)}, ["tau", "(5,)"]),
        ({"q": np.array([[0, 0, 0, 0, 0, 0], [0, np.nan, 0, 0, 0, 0.0]])}, ["q", "1 of 2 rows: 1"]),
        ({"q": np.zeros(6, complex)}, ["complex"]),
        ({"q": np.array(["a"] * 6)}, ["<U1"]),
        ({"q": np.array([None] * 6)}, ["cannot be read", "pickle"]),
    ],
)
def test_errors_of_npz(refused, tmp_path, arrays, parts):
    path = tmp_path / "states.npz"
    np.savez(path, **arrays)
    refused(["id", ARM, "--states", path], "--states", "states.npz", *parts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["empty"]),
        ("q:elbow,q:elbow\n1,2\n", ["q:elbow", "two columns"]),
        ("q:elbow,elbow\n1,2\n", ['"elbow"', "q:elbow"]),
        ("q:elbow,qd:elbow\n1,2\n1,2,3\n", ["line 3", "3 values", "wanted 2"]),
        ("q:elbow,qd:elbow\n1\n", ["line 2", "1 values"]),
        ("q:elbow,qd:elbow\n1,two\n", ["line 2", "qd:elbow", '"two"']),
        ("q:elbow,qd:elbow\n1,\n", ["line 2", "qd:elbow"]),
        ("q:elbow\n1\ninf\n", ["q", "1 of 2 rows: 1"]),
        ("q:elbow\n\udcff\n", ["cannot be read"]),
    ],
)
def test_errors_of_csv(refused, tmp_path, text, parts):
    path = tmp_path / "states.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(["id", ARM, "--states", path], "states.csv", *parts)


def test_csv_needs_names_that_differ(refused, tmp_path):
    robot = tmp_path / "twins.urdf"
    robot.write_text(chain(2).replace("continuous", "planar", 1).replace("joint1", "joint0.x"))
    path = tmp_path / "states.csv"
    path.write_text("q:joint0.x\n1\n")
    refused(["id", robot, "--states", path], "share a name")


@pytest.mark.parametrize("ending", [".npz", ".npy", ".csv"])
def test_damaged_and_foreign_files(refused, tmp_path, ending):
    path = tmp_path / f"states{ending}"
    path.write_bytes(b"\x80\x04rubbish\x00\xff")
    refused(["id", ARM, "--states", path], "states")
    path.unlink()
    path.mkdir()
    refused(["id", ARM, "--states", path], "directory")


def test_cut_files(refused, tmp_path):
    np.save(tmp_path / "whole.npy", np.zeros((9, 18)))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:400])
    refused(["id", ARM, "--states", tmp_path / "cut.npy"], "cut.npy", "cannot be read")
    np.save(tmp_path / "narrow.npy", np.zeros((9, 17)))
    refused(["id", ARM, "--states", tmp_path / "narrow.npy"], "narrow.npy", "(9, 17)", "18")
    np.savez(tmp_path / "whole.npz", q=np.zeros((99, 6)))
    data = bytearray((tmp_path / "whole.npz").read_bytes())
    data[300:310] = b"0123456789"
    (tmp_path / "bad.npz").write_bytes(data)
    refused(["id", ARM, "--states", tmp_path / "bad.npz"], "bad.npz", "cannot be read")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody can write to")
def test_an_output_that_cannot_be_written(refused):
    refused(["id", ARM, "--out", "/proc/x.npz"], "/proc/x.npz")


def test_ctrl_c(refused, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_results, "compute", interrupt)
    refused(["id", ARM], "interrupted", status=cli.INTERRUPTED)


def test_a_bug_is_called_one(refused, monkeypatch, capsys):
    def break_down(*_):
        raise ZeroDivisionError("what\nhappened")

    monkeypatch.setattr(cli_results, "compute", break_down)
    refused(["id", ARM], "ZeroDivisionError: what happened", "bug", "ROBODYN_DEBUG=1", status=cli.BUG)
    monkeypatch.setenv("ROBODYN_DEBUG", "1")
    assert cli.run(["id", str(ARM)]) == cli.BUG
    assert "in break_down" in capsys.readouterr().err


# As a process of its own.


def process(*arguments, **options):
    return subprocess.run([*ROBODYN, *map(str, arguments)], capture_output=True, text=True, timeout=60, **options)


def test_help_names_the_commands_and_examples(run):
    for arguments in ([], ["--help"], ["-h"]):
        status, out, _ = run(*arguments)
        assert status == 0
        for word in ("info", "check", "id", "fd", "gradient", "Examples", "Exit status"):
            assert word in out
    for command in ("info", "check", "id", "fd", "gradient"):
        status, out, _ = run(command, "--help")
        assert status == 0
        assert "FILE" in out
    assert "severity info alone is clean" in run("check", "--help")[1]


def test_version_and_help_do_not_import_numpy():
    code = (
        "import sys; from robodyn import cli; status = cli.run(sys.argv[1:]); "
        "sys.exit(9 if {'numpy', 'robodyn.model'} & set(sys.modules) else status)"
    )
    for option in ("--version", "--help"):
        done = subprocess.run([sys.executable, "-c", code, option], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0
        assert option == "--help" or done.stdout == f"robodyn {rd.__version__}\n"


def test_standard_input_and_streams():
    done = process("info", "-", input=ARM.read_text())
    assert (done.returncode, done.stderr) == (0, "")
    assert "shoulder_pan" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 200
    done = process("info", "-", input="no robot")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


def test_names_that_the_terminal_cannot_show(tmp_path):
    robot = chain(1).replace("link1", "Gelenk_ä_腕")
    for command, wanted in (("info", "Gelenk_\\xe4_\\u8155"), ("check", "is clean")):
        done = process(command, "-", input=robot, encoding="utf-8", env={**os.environ, "PYTHONIOENCODING": "ascii"})
        assert (done.returncode, done.stderr) == (0, "")
        assert wanted in done.stdout


@pytest.mark.skipif(os.name != "posix", reason="pipes of a POSIX shell")
def test_a_reader_that_stops_early():
    # A pipe holds 64 KiB, so the command is still writing when the reader goes.
    command = f"{' '.join(ROBODYN)} id {ARM} --random 3000 --json | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (len(done.stdout), done.stderr) == (10, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_standard_output_that_is_full():
    for arguments in (["--version"], ["info", ARM]):
        with Path("/dev/full").open("w") as full:
            command = [*ROBODYN, *map(str, arguments)]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == 2
        assert re.fullmatch(r"robodyn: error: cannot write the output: .*\n", done.stderr)


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals")
def test_progress_is_shown_on_a_terminal_only(tmp_path):
    import pty

    arguments = ["fd", own("double_pendulum"), "--random", 10000, "--out", tmp_path / "x.npz"]
    done = process(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    master, slave = pty.openpty()
    done = subprocess.run([*ROBODYN, *map(str, arguments)], stdout=subprocess.PIPE, stderr=slave, timeout=60)
    os.close(slave)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    assert done.returncode == 0
    assert "10000 states" in shown
    assert "\x1b" not in done.stdout.decode()
