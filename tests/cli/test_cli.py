"""The command: what it shows, its values, and how it behaves as a process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_runner import QUERIES, answer, chain, library, refused, run, same, values
from robots import OWN, own

import robodyn as rd
from robodyn.core import tables
from robodyn.core.findings import FINDINGS
from robodyn.tools.cli import app as cli
from robodyn.tools.cli import results as cli_results

ROBODYN = [sys.executable, "-m", "robodyn"]
ARM = own("arm6")


# info.


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_info_shows_every_body_joint_and_the_sizes(path):
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


def test_info_takes_base_mimic_gravity():
    assert "root_joint, floating" in run("info", ARM, "--base", "floating")[1]
    assert "joints that mimic others: 6" in run("info", own("hand"))[1]
    assert "mimic others" not in run("info", own("hand"), "--mimic", "ignore")[1]
    assert "1 2 -3.5 m/s^2" in run("info", ARM, "--gravity", "1,2,-3.5")[1]


@pytest.mark.parametrize("name", ["hand", "quadruped"])
def test_info_as_json(name):
    model = rd.load_urdf(own(name), base="floating")
    status, out, err = run("info", own(name), "--base", "floating", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    sizes = {"nq": model.nq, "nv": model.nv, "bodies": model.n_bodies, "mass": model.total_mass, "model": model.name}
    assert sizes == {key: found[key] for key in sizes}
    assert found["coordinates"] == list(model.coordinate_names)
    assert [joint["name"] for joint in found["joints"]] == list(model.joint_names)
    for index, joint in enumerate(found["joints"]):
        if model.mimics[index] >= 0:
            assert joint["mimics"] == model.joint_names[model.mimics[index]]
            continue
        q, _ = model.coordinates(index)
        assert joint["q"] == [q.start, q.stop]
        assert [-np.inf if x is None else x for x in joint["lower"]] == model.lower[q].tolist()


def test_queries_have_a_line_each():
    lines = run("queries", columns=60)[1].splitlines()
    found = [line for line in lines if " inverse_dynamics " in line]
    assert len(found) == 1 and "Inverse dynamics: the generalised forces tau that give accelerations qdd." in found[0]


def test_info_cuts_a_large_robot_and_all_shows_it(tmp_path):
    path = tmp_path / "chain.urdf"
    path.write_text(chain(300))
    out = run("info", path, columns=100)[1]
    assert out.count("... and 260 more bodies") == 2  # in the tree and in the table
    assert "--all shows everything" in out
    assert all(len(line) <= 100 for line in out.splitlines())
    out = run("info", path, "--all", columns=100)[1]
    assert "more bodies" not in out
    lines = out.splitlines()
    # Twelve levels are indented; of what is deeper the depth is said.
    assert " " * 4 * 11 + "└── link12  joint11, revolute" in lines
    assert " " * 4 * 12 + "├── link13  joint12, revolute" in lines
    assert " " * 4 * 12 + "└── depth 299: link300  joint299, revolute" in lines


def test_the_depth_of_a_deep_body_tells_where_it_belongs():
    """Depth first, with the depth of each, is the whole tree."""
    model = rd.auto_tree(15, branching=2)
    wanted = [(int(model.tree.depth[i]), model.body_names[i]) for i in model.tree.preorder]
    for deepest in (1, 2, 3):
        lines = tables.to_text(tables.model_tree(model, 15, deepest)).splitlines()[1:]
        found = [re.match(r"(.*── )(?:depth (\d+): )?(\w+) ", line).groups() for line in lines]
        assert [(int(depth or len(indent) // 4 - 1), name) for indent, depth, name in found] == wanted


def test_names_that_do_not_print_are_shown_as_escapes(tmp_path):
    path = tmp_path / "evil.urdf"
    name = "na&#x85;me&#10;&#x9b;31m&#x202e;"
    path.write_text(chain(2).replace("link1", f"1{name}").replace("joint1", f"2{name}").replace("chain", f"3{name}"))
    model = rd.load_urdf(path)
    shown = r"na\x85me\n\x9b31m\u202e"
    commands = [("info", path), ("id", path), ("gradient", path), ("fd", path, "--random", 2), ("check", path)]
    outs = [str(model), *(run(*command)[1] for command in commands)]
    outs.append(run("id", path, "--q", "1")[2])
    for out, names in zip(outs, ("123", "123", "2", "2", "2", "3", "2"), strict=True):
        assert all(text.isprintable() for text in out.split("\n"))
        for each in names:
            assert each + shown in out, out


@pytest.mark.parametrize("columns", ["0", "1", "00"])
@pytest.mark.parametrize("arguments", [("info", ARM), ("--help",)])
@pytest.mark.some(of=3, rest="matrix")
def test_a_screen_of_no_width_is_taken_for_a_narrow_one(columns, arguments):
    done = process(*arguments, env={"COLUMNS": columns})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == process(*arguments, env={"COLUMNS": "40"}).stdout
    assert len(done.stdout) > 500


def test_info_prints_names_as_they_are(tmp_path):
    path = tmp_path / "markup.urdf"
    path.write_text(chain(2).replace("link1", "[/red]").replace("link2", ":warning: [bold]b"))
    status, out, _ = run("info", path)
    assert status == 0
    assert out.count("[/red]") == 2
    assert out.count(":warning: [bold]b") == 2
    assert "[/red]" in str(rd.load_urdf(path))


# check.


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
@pytest.mark.some(of=3, rest="matrix")
def test_check_lists_the_report(path):
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


def test_check_names_the_body_that_makes_the_mass_matrix_singular():
    status, out, _ = run("check", own("massless_tip"), "--json")
    assert status == 1
    last = json.loads(out)["findings"][-1]
    assert (last["severity"], last["code"]) == ("warning", "singular-mass-matrix")
    assert last["code"] in FINDINGS
    assert "'pointer'" in last["message"]
    assert (last["element"], last["elements"]) == ('robot "massless_tip"', ['robot "massless_tip"'])


def test_check_of_an_unusable_file_and_lenient(tmp_path):
    path = tmp_path / "negative.urdf"
    path.write_text(chain(1).replace('mass value="1"', 'mass value="-1"'))
    refused(["check", path], "mass", "link")
    status, out, _ = run("check", path, "--lenient", "--json")
    assert status == 1
    assert json.loads(out)["counts"]["error"] > 0
    status, out, _ = run("check", path, "--lenient")
    assert status == 1
    assert out.index("error") < out.index("info")


def test_check_of_a_file_without_findings(tmp_path):
    path = tmp_path / "chain.urdf"
    path.write_text(chain(2))
    status, out, _ = run("check", path)
    assert (status, out) == (0, "chain is clean: 0 errors, 0 warnings, 0 info\n")


# Values.


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.some(of=3, rest="matrix")
def test_values_are_those_of_the_library(path, name):
    model = rd.load_urdf(path)
    command = [*name.split()[:1], path, *name.split()[1:], "--random", 3, "--seed", 5]
    if rd.Dynamics(model).singularity() is not None and "fd" in name:
        refused(command, "singular", "'pointer'")
        return
    document = answer(*command)
    states, results = values(document["inputs"]), values(document["results"])
    same(states["q"], model.random_configuration(np.random.default_rng(5), (3,)))
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
def test_a_state_on_the_command_line(separator):
    q, qd, tau = np.linspace([-1.0, 0.5, 2.0], [1.0, -0.3, -4.0], 6).T
    texts = {name: separator.join(map(str, value)) for name, value in (("q", q), ("qd", qd), ("tau", tau))}
    results = values(answer("fd", ARM, *(f"--{name}={text}" for name, text in texts.items()))["results"])
    same(results["qdd"], rd.Dynamics(rd.load_urdf(ARM)).forward_dynamics(q, qd, tau)[None])


def test_what_is_not_given_is_neutral():
    model = rd.load_urdf(own("satellite"))
    document = answer("id", own("satellite"), "--qdd", "-1,0,0,0,0,0,0,0,0,1")
    qdd = np.array([-1.0, *[0.0] * 8, 1.0])
    same(document["inputs"]["q"]["values"], model.neutral()[None])
    wanted = rd.Dynamics(model).inverse_dynamics(model.neutral(), np.zeros(10), qdd)
    same(document["results"]["tau"]["values"], wanted[None])


def test_options_reach_the_library():
    hand = own("hand")
    document = answer(
        "id", hand, "--random=2", "--base=floating", "--mimic=ignore", "--gravity=1,2,3", "--dtype=float32",
        "--engine=reference",
    )  # fmt: skip
    model = rd.load_urdf(hand, base="floating", mimic="ignore", gravity=(1, 2, 3))
    states = values(document["inputs"])
    assert document["gravity"] == [1.0, 2.0, 3.0]
    assert (document["dtype"], document["engine"]) == ("float32", "reference")
    wanted = library("id", model, states, dtype="float32", engine="reference")["tau"]
    assert np.array_equal(np.array(document["results"]["tau"]["values"], np.float32), wanted)


def test_units():
    model = rd.load_urdf(own("satellite"))
    assert tables.units(model, "q")[:7] == ("m", "m", "m", "1", "1", "1", "1")
    assert tables.units(model, "tau") == ("N", "N", "N", "N m", "N m", "N m", "N m", "N m", "N", "N m")
    assert tables.step_units(model)[:4] == ("m", "m", "m", "rad")
    assert tables.units(rd.load_urdf(own("gripper")), "qdd") == ("rad/s^2", "rad/s^2", "m/s^2")
    entry = answer("gradient", own("cartpole"), "--of", "fd")["results"]["dqdd_dtau"]
    assert (entry["row_units"], entry["column_units"]) == (["m/s^2", "rad/s^2"], ["N", "N m"])


def test_long_input_is_cut_into_chunks(monkeypatch):
    whole = answer("gradient", ARM, "--random", 7)
    monkeypatch.setattr(cli_results, "_CHUNK_STATES", 3)
    assert answer("gradient", ARM, "--random", 7) == whole


# Tables of results.


def test_the_table_of_a_state():
    status, out, _ = run("id", ARM, "--q", "0,0,0,0,0,0")
    assert status == 0
    model = rd.load_urdf(ARM)
    tau = rd.Dynamics(model).gravity_force(np.zeros(6))
    row = next(line for line in out.splitlines() if "state 0" in line)
    same([float(text) for text in row.split()[2:]], [float(f"{x:.6g}") for x in tau])
    for name in model.velocity_names:
        assert name in out


def test_many_states_are_cut():
    out = run("id", ARM, "--random", 25)[1]
    assert "state 19 " in out
    assert "state 20 " not in out
    assert "... and 5 more states; --out FILE or --json gives all of them" in out


def test_a_wide_robot_is_turned():
    model = rd.load_urdf(own("humanoid"))
    out = run("id", own("humanoid"), "--random", 7, columns=100)[1]
    assert all(len(line) <= 100 for line in out.splitlines())
    for name in model.velocity_names:
        assert len(re.findall(rf"^ {name} \[N m\]", out, re.MULTILINE)) == 1
    assert "state 4" in out
    assert "... and 2 more states" in out


@pytest.mark.parametrize("width", [30, 60, 100, 500])
def test_gradients_keep_to_the_width(width):
    out = run("gradient", ARM, "--of", "fd", "--random", 2, columns=max(width, 60))[1]
    assert all(len(line) <= max(width, 60) for line in out.splitlines())
    assert "... and 1 more states" in out
    names = [f"c{i}\n[m]" for i in range(9)]
    made = tables.number_tables("T", ["row"], names, np.arange(9.0)[None], width)
    headers = [column.header for table in made for column in table.columns[1:]]
    assert headers == names


@pytest.mark.matrix
def test_a_robot_of_many_joints_is_cut(tmp_path):
    path = tmp_path / "chain.urdf"
    path.write_text(chain(130))
    assert "... and 1 more states and 30 more degrees of freedom" in run("gradient", path, "--random", 2)[1]
    assert "... and 30 more degrees of freedom; --out" in run("fd", path)[1]


def test_a_robot_without_joints(tmp_path):
    path = tmp_path / "block.urdf"
    path.write_text(chain(0))
    assert run("info", path)[0] == 0
    assert run("check", path)[0] == 0
    assert "0 degrees of freedom" in run("gradient", path, "--random", 2)[1]
    assert answer("id", path, "--q", "")["results"]["tau"]["shape"] == [1, 0]


def test_ctrl_c(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_results, "compute", interrupt)
    refused(["id", ARM], "interrupted", status=cli.INTERRUPTED)


def test_a_bug_is_called_one(monkeypatch, capsys):
    def break_down(*_):
        raise ZeroDivisionError("what\nhappened")

    monkeypatch.setattr(cli_results, "compute", break_down)
    refused(["id", ARM], "ZeroDivisionError: what happened", "bug", "ROBODYN_DEBUG=1", status=cli.BUG)
    monkeypatch.setenv("ROBODYN_DEBUG", "1")
    assert cli.run(["id", str(ARM)]) == cli.BUG
    assert "in break_down" in capsys.readouterr().err


# As a process of its own.


def process(*arguments, **options):
    env = {**os.environ, "COLUMNS": "200", **options.pop("env", {})}
    env.pop("FORCE_COLOR", None)
    command = [*ROBODYN, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, **options)


def test_help_names_the_commands_and_examples():
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
        "import sys; from robodyn.tools import cli; status = cli.run(sys.argv[1:]); "
        "sys.exit(9 if {'numpy', 'robodyn.core.model'} & set(sys.modules) else status)"
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
        done = process(command, "-", input=robot, encoding="utf-8", env={"PYTHONIOENCODING": "ascii"})
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
    command, env = [*ROBODYN, *map(str, arguments)], {**os.environ, "TERM": "xterm"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=slave, env=env, timeout=60)
    os.close(slave)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    assert done.returncode == 0
    assert "10000 states" in shown
    assert "\x1b" not in done.stdout.decode()


@pytest.mark.parametrize("query", QUERIES)
def test_joint_forces_are_included_when_asked_for(query):
    arm = own("arm7")
    model = rd.load_urdf(arm)
    shown = answer(*query.split()[:1], arm, *query.split()[1:], "--random", 2, "--joint-forces", "damping, friction")
    states = values(shown["inputs"])
    for name, wanted in library(query, model, states, joint_forces=("damping", "friction")).items():
        same(values(shown["results"])[name], wanted)
    refused([*query.split()[:1], arm, "--joint-forces", "drag"], "joint_forces: got 'drag'")
