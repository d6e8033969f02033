"""Benchmarks: they measure what they say, and never a wrong answer. Nothing here depends on how long anything took."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli_runner import chain, refused, run
from robots import own

import robodyn as rd
from robodyn.engines.query_table import QUERIES
from robodyn.tools.benchmark import compare as module
from robodyn.tools.benchmark.compare import Report, Result, Settings, compare, find_peers, threads_from
from robodyn.tools.benchmark.contenders import (
    USUAL,
    Contender,
    Prepared,
    RefusedError,
    available_threads,
    draw,
    repeated,
)
from robodyn.tools.benchmark.mujoco_peer import MuJoCo
from robodyn.tools.benchmark.pinocchio_peer import Pinocchio
from robodyn.tools.benchmark.tables import footnotes, number, tables
from robodyn.tools.benchmark.timing import measure, seconds_of
from tests.bench import __main__ as command

ROOT = Path(__file__).resolve().parents[2]
QUICK = Settings(engine="reference", batches=(1, 3), seconds=0.0)
TINY = ("--engine", "reference", "--batch", "1,5", "--seconds", "0")
PEERS = {"pinocchio": Pinocchio, "mujoco": MuJoCo}

# The robots of models/ that a peer takes, on the bases that they are meant for.
FIXED, FLOATING = "fixed", "floating"
TAKEN = {
    "pinocchio": [
        ("arm6", FIXED),
        ("arm7", FIXED),
        ("quadruped", FLOATING),
        ("humanoid", FLOATING),
        ("oblique", FIXED),
        ("oblique", FLOATING),
        ("ball_joint_arm", FLOATING),
        ("planar_rover", FIXED),
        ("satellite", FIXED),
        ("screw_press", FLOATING),
    ],
    "mujoco": [
        ("arm6", FIXED),
        ("arm7", FIXED),
        ("quadruped", FLOATING),
        ("humanoid", FLOATING),
        ("oblique", FIXED),
        ("cartpole", FIXED),
        ("satellite", FIXED),
    ],
}


def peer_of(library, model):
    pytest.importorskip(library)
    return PEERS[library](model)


@pytest.mark.parametrize(
    ("library", "robot", "base"), [(library, *case) for library, cases in TAKEN.items() for case in cases]
)
@pytest.mark.some(of=3, rest="matrix")
def test_every_answer_of_a_peer_is_ours(library, robot, base):
    model = rd.load_urdf(own(robot), base=base)
    peer = peer_of(library, model)
    dyn = rd.Dynamics(model, engine="reference")
    states = repeated(draw(model, 4, seed=3), 6)
    asked = 0
    for query in USUAL:
        wanted = getattr(dyn, query)(*(states[name] for name in QUERIES[query].plain))
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for contender in peer.contenders(query, (1, 2)):
            prepared = contender.prepare(states)
            prepared.run()
            for got, right in zip(prepared.answers(), wanted, strict=True):
                np.testing.assert_allclose(got, right, rtol=0, atol=1e-9 * np.abs(right).max(), err_msg=contender.name)
            assert prepared.states == 6
            asked += 1
    assert asked == {"pinocchio": 6 + 4, "mujoco": 2 + 2}[library]


@pytest.mark.parametrize("library", PEERS)
def test_robots_that_a_peer_has_no_model_for_are_refused(library):
    pytest.importorskip(library)
    cases = [(rd.load_urdf(own("hand")), "mimic"), (rd.auto_tree(3000), "2000 bodies")]
    if library == "mujoco":
        cases += [(rd.load_urdf(own("planar_rover")), "planar"), (rd.load_urdf(own("massless_tip")), "inertia")]
    for model, part in cases:
        with pytest.raises(RefusedError, match=part):
            PEERS[library](model)


@pytest.mark.parametrize("library", PEERS)
@pytest.mark.parametrize("error", [ImportError("gone"), AttributeError("built for another NumPy")])
def test_a_library_that_cannot_be_imported_is_left_out_and_named(library, error, monkeypatch):
    def fail(name):
        raise error

    monkeypatch.setattr(f"robodyn.tools.benchmark.{library}_peer.import_module", fail)
    peers, reasons = find_peers(rd.load_urdf(own("arm6")))
    assert all(library not in peer.name.lower() for peer in peers)
    assert any(library in reason.lower() and str(error) in reason for reason in reasons)


# Comparing.


class Peer:
    """A peer that answers inverse dynamics as it is told."""

    name = "peer 1.0"
    notes = ("a note",)

    def __init__(self, model, change):
        self.dyn, self.change = rd.Dynamics(model, engine="reference"), change

    def contenders(self, query, threads):
        if query != "inverse_dynamics":
            return []

        def prepare(states):
            answer = self.dyn.inverse_dynamics(states["q"], states["qd"], states["qdd"])
            return Prepared(lambda: None, lambda: (self.change(answer),), len(answer))

        return [Contender("peer", query, "float64", 1, single=False, prepare=prepare)]


def one_report(change, **options):
    model = rd.load_urdf(own("arm6"))
    settings = replace(QUICK, queries=("inverse_dynamics",), batches=(1, 300), **options)
    return compare(model, settings, [Peer(model, change)])


def last_row(answer):
    answer[-1, -1] += 1e-3
    return answer


def nan(answer):
    answer[-1, 0] = np.nan
    return answer


def test_a_right_answer_is_timed():
    report = one_report(lambda answer: answer)
    assert [(each.name, each.batch, each.problem) for each in report.results] == [
        ("robodyn reference", 1, ""),
        ("robodyn reference", 300, ""),
        ("peer", 1, ""),
        ("peer", 300, ""),
    ]
    for each in report.results:
        assert each.off_by == 0.0
        assert 0 < each.best_ns <= each.median_ns < math.inf
        assert each.runs >= 1
    assert "a note" in report.notes


@pytest.mark.parametrize("change", [last_row, nan])
def test_a_wrong_answer_is_not_timed_but_shown(change):
    """Also where only the last row of a batch is wrong."""
    report = one_report(change)
    wrong = [each for each in report.results if each.name == "peer"]
    assert [each.batch for each in wrong] == [1, 300]
    for each in wrong:
        assert each.problem.startswith("WRONG: differs from robodyn by")
        assert each.best_ns is None
    assert report.best_peer(report.results[0]) is None
    shown = tables(report)[1]
    assert all(row[-1].startswith("WRONG") for row in shown.rows)
    json.dumps(wrong[0].__dict__, allow_nan=False)


def test_a_peer_that_fails_is_shown():
    def fail(answer):
        raise RuntimeError("the peer's own trouble")

    wrong = [each for each in one_report(fail).results if each.name == "peer"]
    assert {each.problem for each in wrong} == {"RuntimeError: the peer's own trouble"}


def test_a_contender_may_be_held_to_more(monkeypatch):
    """The text in JAX is held to 1e-9."""
    model = rd.load_urdf(own("arm6"))
    peer = Peer(model, lambda answer: answer * (1 + 1e-8))
    strict = [replace(each, tolerance=1e-9) for each in peer.contenders("inverse_dynamics", (1,))]
    settings = replace(QUICK, queries=("inverse_dynamics",))
    assert compare(model, settings, [peer]).results[-1].problem == ""
    monkeypatch.setattr(peer, "contenders", lambda query, threads: strict)
    assert compare(model, settings, [peer]).results[-1].problem.startswith("WRONG")


def test_an_engine_that_is_wrong_is_not_timed(monkeypatch):
    monkeypatch.setattr(module, "_difference", lambda answers, truth: 0.5)
    report = one_report(lambda answer: answer)
    (only,) = report.results
    assert only.problem.startswith("WRONG: engine 'reference' differs")
    assert only.best_ns is None


def test_a_robot_without_an_answer_says_why():
    report = compare(rd.load_urdf(own("massless_tip")), replace(QUICK, queries=("forward_dynamics", "bias_force")))
    first, *others = report.results
    assert "'pointer'" in first.problem
    assert [each.query for each in others] == ["bias_force"] * 2
    assert any(note.startswith("[1] ") and "'pointer'" in note for note in footnotes(report))
    assert tables(report)[0].rows[0][-1] == "not measured [1]"


def test_what_would_take_too_much_memory_is_named(monkeypatch):
    monkeypatch.setattr(module, "_MOST_GIB", 1e-6)
    problems = [each.problem for each in one_report(lambda answer: answer).results]
    assert problems == ["", "left out: it would fill 0 GiB"] * 2
    model = rd.load_urdf(own("arm6"))
    monkeypatch.setattr(module, "_MOST_NUMBERS", 5)
    assert "6 numbers" in compare(model, replace(QUICK, queries=("bias_force",))).results[0].problem


@pytest.mark.parametrize(
    ("call_s", "state_s", "left_out"),
    [
        (0.01, 0.0, ""),
        (0.01, 1e-6, ""),
        (0.0, 0.01, "left out: one call would take about 41 s"),
        (9.0, 0.0, "left out"),
    ],
)
def test_what_would_take_too_long_is_named(monkeypatch, call_s, state_s, left_out):
    """A call that is slow whatever the batch is not taken for one whose states are slow."""
    ran = []

    def prepare(states):
        rows = len(states["q"])
        return Prepared(lambda: ran.append(rows), lambda: (), rows)

    def seconds(run, times=1):
        run()
        return call_s + state_s * ran[-1]

    monkeypatch.setattr(module, "seconds_of", lambda *arguments: 1e-3)
    bench = module._Bench(rd.load_urdf(own("arm6")), QUICK, "bias_force", lambda text: None)
    monkeypatch.setattr(module, "seconds_of", seconds)
    contender = Contender("peer", "bias_force", "float64", 1, False, prepare)
    said = bench._too_much(contender, 4096)
    assert said.startswith(left_out) and bool(said) == bool(left_out)
    assert max(ran) < 4096


def test_peers_are_compared_at_the_same_batch_on_no_more_threads():
    def result(name, best, **values):
        defaults = {"ours": False, "query": "bias_force", "dtype": "float64", "threads": 1, "batch": 16}
        return Result(name, best_ns=best, median_ns=best, **{**defaults, **values})

    ours = result("robodyn cpu", 10.0, ours=True)
    report = Report("arm", 6, 6, "cpu", [], [])
    report.results = [
        ours,
        result("other query", 1.0, query="mass_matrix"),
        result("other batch", 2.0, batch=128),
        result("more threads", 3.0, threads=2),
        result("wrong", None, problem="WRONG"),
        result("estimated", 4.0, batch=None, estimated=True),
        result("call", 5.0, batch=None),
        result("batch", 6.0),
    ]
    assert report.best_peer(ours).name == "estimated"
    assert report.best_peer(replace(ours, batch=1)).name == "call"
    assert report.best_peer(replace(ours, threads=2)).name == "more threads"
    row = dict(zip(tables(report)[0].columns, tables(report)[0].rows[0], strict=True))
    assert (row["best peer"], row["its ns "], row["ratio "]) == ("estimated", "4", "0.4 x")


def test_operations_become_a_rate():
    result = Result("robodyn cpu", True, "bias_force", "float64", 1, 16, 20.0, 21.0, 5, 0.0, operations=900)
    table = tables(Report("arm", 6, 6, "cpu", [], [], [result]))[0]
    assert dict(zip(table.columns, table.rows[0], strict=True))["GFLOP/s "] == "45"
    assert "| bias_force | float64 | 1 | 16 | 20 | 21 | 50,000,000 | 45 |" in table.markdown()


def test_numbers_have_three_digits():
    assert [number(x) for x in (0.12345, 12.345, 1234.5, 1234567.0)] == ["0.123", "12.3", "1,230", "1,230,000"]


@pytest.mark.matrix
def test_every_own_contender_is_measured():
    model = rd.load_urdf(own("arm6"))
    settings = replace(QUICK, dtypes=("float64", "float32"), threads=(1, 2))
    report = compare(model, settings)
    cases = [(each.query, each.dtype, each.threads, each.batch) for each in report.results]
    assert cases == [
        (query, dtype, 1, batch) for query in USUAL for dtype in ("float64", "float32") for batch in (1, 3)
    ]
    assert any("one thread" in note for note in report.notes)


def test_timing_runs_what_it_is_given():
    """By a clock of its own: the processor's may take a whole turn of the scheduler for one sample."""
    calls = []

    def clock(call, times):
        for _ in range(times):
            call()
        return 1e-6 * times

    timing = measure(lambda: calls.append(1), 0.001, clock)
    assert timing.runs >= 3
    assert len(calls) > timing.runs
    assert timing.best_s == timing.median_s == pytest.approx(1e-6)
    assert measure(lambda: None, 0.001).best_s > 0.0 and seconds_of(lambda: None, 3) >= 0.0


def test_threads_by_name():
    assert threads_from(["1", "all", "1"]) == tuple(dict.fromkeys([1, available_threads()]))


# The command.


@pytest.mark.matrix
def test_the_command_measures_and_names_the_peers():
    pytest.importorskip("pinocchio")
    pytest.importorskip("mujoco")
    status, out, err = run("bench", own("arm6"), *TINY)
    assert (status, err) == (0, "")
    for part in ("arm6: 6 degrees of freedom", "engine 'reference'", *USUAL, "Pinocchio", "MuJoCo", "mj_forward"):
        assert part in out
    assert "WRONG" not in out

    status, out, err = run("bench", own("quadruped"), "--base", "floating", "--threads", "1", *TINY, "--json")
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert report["dof"] == 18
    names = {each["name"] for each in report["results"]}
    assert names >= {"robodyn reference", "pin.rnea", "pin C++, estimated", "abaInParallel", "mujoco.rollout"}
    for each in report["results"]:
        assert each["off_by"] < 1e-6
        if each["estimated"]:  # a difference of two times, of which nothing may be left
            continue
        assert each["problem"] == ""
        assert 0 < each["best_ns"] <= each["median_ns"]


def test_the_command_without_peers_and_with_a_choice():
    status, out, _ = run("bench", own("hand"), *TINY, "--no-peers", "--query", "mass_matrix", "--dtype", "float32")
    assert status == 0
    assert "mass_matrix" in out
    assert "float32" in out
    for part in ("inverse_dynamics", "float64", "pin", "MuJoCo"):
        assert part not in out
    status, out, _ = run("bench", own("hand"), *TINY, "--query", "mass_matrix")
    assert "Pinocchio: not compared on robots with joints that mimic others" in out


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--batch", "0"], ["batch", "0"]),
        (["--batch", "1,x"], ["--batch", "'x'"]),
        (["--batch", ","], ["--batch"]),
        (["--threads", "many"], ["threads", "'many'"]),
        (["--threads", "0"], ["threads"]),
        (["--dtype", "float16"], ["dtype", "'float16'"]),
        (["--dtype", ","], ["dtype"]),
        (["--query", "id"], ["query", "'id'", "inverse_dynamics"]),
        (["--engine", "warp"], ["engine", "'warp'"]),
        (["--seconds", "-1"], ["seconds"]),
        (["--seconds", "nan"], ["seconds"]),
    ],
)
def test_wrong_options(options, parts):
    refused(["bench", own("arm6"), *options], *parts)


def test_a_robot_in_which_nothing_moves(tmp_path):
    path = tmp_path / "stone.urdf"
    path.write_text(chain(0))
    refused(["bench", path], "nothing moves")


# The runner of this repository.


def runner(*arguments):
    words = [sys.executable, "-m", "tests.bench", *map(str, arguments)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600)


def test_the_runner_prints_and_writes(tmp_path):
    quick = ("--batch", "1,3", "--seconds", "0", "--dtype", "float64", "--threads", "1", "--engine", "reference")
    runner("arm6, bias_force", "--write", "--folder", tmp_path, *quick)
    page, document = (tmp_path / "cpu.md").read_text(), json.loads((tmp_path / "cpu.json").read_text())
    assert "## arm6, fixed base, engine reference" in page
    assert "filter 'arm6, bias_force'" in page
    (report,) = document["reports"]
    table = report["results"]
    assert {row[table["columns"].index("query")] for row in table["rows"]} == {"bias_force"}
    assert not (tmp_path / "load.md").exists()
    page_again = tmp_path / "again"
    (page_again).mkdir()
    (page_again / "cpu.json").write_text((tmp_path / "cpu.json").read_text())
    command.run(["cpu"], again=True, folder=page_again)
    assert (page_again / "cpu.md").read_text() == page
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        assert "cpu.svg" not in page
    else:
        assert (tmp_path / "cpu.svg").exists()
        assert "(cpu.svg)" in page


def test_the_runner_measures_loading(tmp_path):
    command.run(["load: 7-dof arm"], write=True, folder=tmp_path)
    assert "| load: 7-dof arm | " in (tmp_path / "load.md").read_text()
    assert json.loads((tmp_path / "load.json").read_text())["rows"][0]["name"] == "load: 7-dof arm"
    assert not (tmp_path / "cpu.md").exists()


def test_batches_are_timed_beside_their_bytes():
    from tests.bench import batches
    from tests.bench.runner import Run

    run = Run(("bias_force",), Settings(batches=(8, 64), threads=(1, 2), seconds=0.0), announce=lambda text: None)
    found = batches.measure(run)
    assert [(case.threads, case.batch) for case in found.cases] == [(1, 8), (1, 64), (2, 8), (2, 64)]
    assert all(min(case.fresh_ns, case.out_ns, case.bytes_ns, case.cpu_ns) > 0.0 for case in found.cases)
    assert "| bias_force | 112 + 56 |" in batches.PAGE.markdown(found, {"commit": "none"}, {})


@pytest.mark.parametrize("name", ["calls", "constraints", "gpu", "load"])
def test_stored_pages_are_what_their_files_say(name):
    from tests.bench import records
    from tests.bench.__main__ import page_called
    from tests.bench.shared import FOLDER

    page = page_called(name)
    about, found = records.load(FOLDER / f"{name}.json", page.found)
    assert page.markdown(found, about, {}) == (FOLDER / f"{name}.md").read_text()


def test_numbers_are_rounded_once(tmp_path):
    """What is stored with six digits, and shown with three, is the number that was measured, shown with three."""
    from dataclasses import make_dataclass

    from tests.bench import records

    numbers = [1.2349999999, 1.2350000001, 123456.7, 0.00012345678, float("nan")]
    kind = make_dataclass("Kind", [("numbers", list)])
    records.save(tmp_path / "page.json", {"commit": "x"}, kind(numbers))
    about, found = records.load(tmp_path / "page.json", kind)
    assert about == {"commit": "x"} and found.numbers[-1] is None
    assert [f"{x:.3g}" for x in found.numbers[:-1]] == [f"{x:.3g}" for x in numbers[:-1]]


def test_huge_trees_are_compared_first(capsys):
    command.run(["huge tree: binary, inverse"], largest=2000, seconds=0.0)
    out = capsys.readouterr().out
    assert "2,000" in out and "WRONG" not in out and "Error" not in out


@pytest.mark.matrix
def test_the_runner_times_first_answers():
    out = runner("first answer: arm7, inverse", "--engine", "reference").stdout
    assert "cold" in out
    assert "reference" in out


@pytest.mark.extras
@pytest.mark.parametrize(("robot", "base"), [("arm7", FIXED), ("quadruped", FLOATING), ("cartpole", FIXED)])
def test_the_plain_text_in_jax_is_right(robot, base):
    pytest.importorskip("jax")
    sys.path.insert(0, str(ROOT))
    from tests.bench.jax_rnea import Jax

    model = rd.load_urdf(own(robot), base=base)
    states = draw(model, 5, seed=4)
    wanted = rd.Dynamics(model, engine="reference").inverse_dynamics(states["q"], states["qd"], states["qdd"])
    for contender in Jax(model).contenders("inverse_dynamics", (1,)):
        (got,) = contender.prepare(states).answers()
        np.testing.assert_allclose(got, wanted, rtol=0, atol=contender.tolerance * np.abs(wanted).max())
