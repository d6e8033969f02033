"""Benchmarks of scans against the papers and on a GPU: tiny runs, and what is said of them.

Nothing here depends on how long anything took. The GPU is a fake one.
"""

from __future__ import annotations

import importlib.util
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import typer
from gpu_host import missing
from gpu_host.scan_functions import add_functions
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import robodyn as rd
from robodyn.engines.gpu import choice
from robodyn.engines.scan.cuda import engine as gpu_engine
from robodyn.engines.scan.methods import methods_of
from robodyn.engines.scan.options import LAYOUTS
from robodyn.engines.tuning_store import Table
from robodyn.internals.errors import UnavailableError
from robodyn.tools.benchmark.compare import Settings
from robodyn.tools.benchmark.timing import seconds_of
from tests.bench import __main__ as runner
from tests.bench import experiments, papers, published, records, scan_gpu
from tests.bench.experiments import Measured
from tests.bench.gpu import machine
from tests.bench.points import NOT_MEASURED, Point
from tests.bench.runner import Run

PLOTS = importlib.util.find_spec("matplotlib") is not None
on_host = pytest.mark.skipif(bool(missing()), reason=f"kernels do not run on the host: {missing()}")


def no_gpu():
    raise UnavailableError("engine 'gpu': no device")


@pytest.fixture
def gpu(host, monkeypatch):
    """A machine whose GPU is none, for every engine made in a test."""
    add_functions(host.xp)
    monkeypatch.setattr(gpu_engine, "default_device", lambda: host)
    monkeypatch.setattr(choice, "table", lambda section, name, otherwise: Table(section, ()))
    return machine.Machine(host, seconds_of, {"GPU": host.name})


def columns_of(page):
    """Of every table."""
    return [above.strip("| ").split(" | ") for above, rule in pairwise(page.splitlines()) if rule[:3] == "|--"]


def point(group, series, seconds, n=10, branching=1.0, batch=1, where="cpu"):
    return Point(group, series, n, branching, batch, best_s=seconds, median_s=seconds, runs=1, where=where)


# The papers of 2016.


@pytest.fixture(scope="module")
def papers_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("papers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "cuda_machine", no_gpu)
        patch.setattr(papers, "LINKS", (3, 10))
        patch.setattr(papers, "GROUPS", (1, 4))
        runner.run(["papers"], write=True, seconds=0.0, largest=10, folder=folder)
    return *records.load(folder / "papers.json", Measured), (folder / "papers.md").read_text(), folder


@pytest.mark.matrix
def test_the_papers_are_measured_and_written(papers_run):
    about, found, page, folder = papers_run
    points = found.points
    assert [each.problem for each in points if each.problem] == []
    for each in points:
        assert 0.0 < each.best_s <= each.median_s
        assert each.off_by < (1e-7 if "cfa" in each.series else 1e-11)
    there = {(each.group, each.n, each.batch) for each in points}
    assert there == {
        *((f"{words}, one robot", n, 1) for words in papers.WORDS.values() for n in (3, 10)),
        *((f"{words}, 10 links", 10, batch) for words in papers.WORDS.values() for batch in (1, 4)),
    }
    for query, words in papers.WORDS.items():
        series = {each.series for each in points if each.group.startswith(words)}
        assert {f"scan {method}" for method in methods_of(query)} < series
        assert {papers.SERIAL[query], papers.SERIAL[query].replace("one thread", "all threads")} < series
    for figure in papers.FIGURES:
        name = f"papers-{papers._SAME.get(figure, figure).replace(' figure ', '-')}.svg"
        assert (folder / name).exists() == PLOTS and (f"({name})" in page) == PLOTS
    assert f"{papers.NO_GPU} engine 'gpu': no device" in page and "scan rnea, GPU" not in page
    assert "filter" not in about


def test_tables_of_the_papers_have_all_series_and_claims(papers_run):
    _, _, page, _ = papers_run
    columns = columns_of(page)
    assert [
        "links",
        "rnea, one thread",
        "rnea, all threads",
        *(f"scan {m}" for m in methods_of(papers.INVERSE)),
    ] in columns
    assert sum(table[0] == "groups" for table in columns) == 2
    for claim in published.SCANS_2016:
        assert f"| {claim.where} | {claim.said} | " in page
    assert "all threads: at most " in page and "scan hybrid_abia is " in page


def test_the_runner_refuses_what_it_cannot_measure_or_store(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(machine, "cuda_machine", no_gpu)
    for words, options, message in (
        (["papers", "nowhere"], {}, "no case that is small enough has 'papers' and 'nowhere' in its name"),
        (["papers"], {"largest": 0}, "nothing was measured: no case that is small enough"),
        (["papers"], {"seconds": -1.0}, r"seconds: got -1.0; wanted a number from 0"),
        (["papers"], {"limit": np.nan}, "--limit: got nan; wanted a number of seconds"),
        (["papers"], {"batch": "1,x"}, "'x'"),
    ):
        with pytest.raises(typer.BadParameter, match=message):
            runner.run(words, **options)
    (tmp_path / "file").touch()
    app = typer.Typer()
    app.command()(runner.run)
    done = CliRunner().invoke(app, ["papers", "--write", "--folder", str(tmp_path / "file")])
    assert done.exit_code == 2 and "folder" in done.output


def test_claims_are_answered_by_figures():
    group, groups = "forward dynamics, one robot", "forward dynamics, 10 links"
    times = {"scan jsiia": (1.0, 4.0, 90.0), "scan cfa": (3.0, 4.0, 30.0), "scan hybrid_abia": (2.0, 2.0, 2.0)}
    points = [
        *(
            point(group, s, seconds, n)
            for s, row in times.items()
            for n, seconds in zip((10, 20, 50), row, strict=True)
        ),
        *(point(group, "aba, one thread", seconds, n) for n, seconds in ((10, 4.0), (20, 8.0), (50, 20.0))),
        *(point(groups, s, 1.0, batch=b) for s in ("aba, one thread", "aba, all threads") for b in (1, 4)),
        point(groups, "GPU engine", 0.01, batch=4, where="gpu"),
        point(groups, "scan jsiia, GPU", 0.5, batch=4, where="gpu"),
    ]
    found = {(row[0], row[1]): row[2] for row in papers.claims(points).rows}
    said = [found[claim.where, claim.said] for claim in published.SCANS_2016]
    assert said[0] == NOT_MEASURED
    assert said[1] == (
        "scans on NumPy arrays: at most 10 x (scan hybrid_abia, forward dynamics, one robot, links = 50); "
        "all threads: at most 1 x (aba, all threads, forward dynamics, 10 links, groups = 1); "
        "on a GPU: at most 100 x (GPU engine, forward dynamics, 10 links, groups = 4)"
    )
    assert said[4] == "scan hybrid_abia is faster than scan jsiia from 20 on (45 x at 50 links)"
    assert said[9] == (
        "scan cfa is faster than scan jsiia from 50 on (3 x at 50 links); "
        "scan cfa is not faster than scan hybrid_abia up to 50 links (0.0667 x)"
    )
    assert "groups = 4: scan jsiia, GPU 500 ms, aba, all threads 1 s" in said[7]


@on_host
@pytest.mark.matrix
def test_the_papers_on_a_gpu(gpu, monkeypatch):
    monkeypatch.setattr(papers, "LINKS", (3,))
    monkeypatch.setattr(papers, "GROUPS", ())
    monkeypatch.setattr(machine, "cuda_machine", lambda: gpu)
    asked = Run(("GPU",), Settings(seconds=0.0), largest=3)
    found = papers.measure(asked).points
    wanted = {f"scan {m}, GPU" for query in papers.WORDS for m in methods_of(query)} | {"GPU engine"}
    assert {each.series for each in found} == wanted
    for each in found:
        assert each.problem == "" and each.where == "gpu" and each.off_by < (1e-7 if "cfa" in each.series else 1e-11)
    assert gpu.device.launches


# Scans on a GPU.


@on_host
@pytest.mark.kernels
def test_scans_on_a_gpu_are_measured_and_written(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "cuda_machine", lambda: gpu)
    sizes = {"SIZES": (6,), "MATRIX_SIZES": (6,), "BRANCHINGS": (1.0, 2.0), "LINKS": (3,), "GROUPS": (1, 2)}
    for name, values in sizes.items():
        monkeypatch.setattr(scan_gpu, name, values)
    runner.run(["scan-gpu"], write=True, seconds=0.0, folder=tmp_path)
    asked, page = records.load(tmp_path / "scan-gpu.json", Measured)[1].points, (tmp_path / "scan-gpu.md").read_text()
    # A fake device records kernels alone, not what its array library does.
    points = [each for each in asked if not each.series.endswith(", recorded")]
    recorded = (*LAYOUTS, "crba, dense", "crba, sparse", *scan_gpu.RECORDED)
    assert {f"{each.series}, recorded" for each in points if each.series.endswith(recorded)} == {
        each.series for each in asked if each not in points
    }
    refused = [each for each in points if each.problem]
    # What is refused says so and has no time: layouts and matrices that the engine does not know on a GPU.
    assert all("Error: " in each.problem and each.best_s is None for each in refused)
    assert {each.series for each in refused} <= {
        "crba, sparse",
        *(f"{m}, euler" for m in methods_of(experiments.INVERSE)),
    }
    answered = [each for each in points if not each.problem]
    assert all(each.best_s > 0.0 and each.off_by < (1e-7 if "cfa" in each.series else 1e-11) for each in answered)
    assert {each.where for each in answered} == {"cpu", "gpu"}
    for query, words in scan_gpu.WORDS.items():
        there = {(each.n, each.branching) for each in answered if each.group == words and each.where == "gpu"}
        assert there == {(6, branching) for branching in scan_gpu.BRANCHINGS}
        series = {each.series for each in points if each.group == words}
        for method in methods_of(query):
            assert any(name.split(",")[0] == method for name in series)
        assert {each.batch for each in answered if each.group == f"{words}, 3 links"} == {1, 2}
    names = {each.series for each in points if each.group == scan_gpu.WORDS[experiments.INVERSE]}
    assert {f"rnea, {layout}" for layout in LAYOUTS} < names
    assert (tmp_path / "scan-gpu.svg").exists() == PLOTS and "GPU host" in page
    assert "## Goals" in page and "## inverse dynamics, branching 2" in page and "## forward dynamics, 3 links" in page
    assert any(published.GPU in table for table in columns_of(page))


def test_without_a_gpu_nothing_is_stored(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(machine, "cuda_machine", no_gpu)
    runner.run(["scan-gpu"], write=True, folder=tmp_path)
    assert "scan-gpu: not measured. engine 'gpu': no device" in " ".join(capsys.readouterr().out.split())
    assert not list(tmp_path.iterdir())


def test_goals_of_scans_are_compared_with_what_was_found():
    inverse, forward = scan_gpu.WORDS[experiments.INVERSE], scan_gpu.WORDS[experiments.FORWARD]
    points = [
        point(inverse, "rnea, heavy", 0.77e-4, 1_000, 2.0, where="gpu"),
        point(inverse, "twist_pair, heavy", 0.385e-4, 1_000, 2.0, where="gpu"),
        point(inverse, "rnea, heavy", 1e-3, 10_000, 2.0, where="gpu"),
        point(inverse, "cpu", 1e-9, 100_000, 2.0),
        point(forward, "cpu", 0.5, scan_gpu.CHAIN),
        point(forward, "aba_scan", 0.02, scan_gpu.CHAIN, where="gpu"),
        point(forward, "crba", None, scan_gpu.CHAIN, where="gpu"),
    ]
    found = scan_gpu.goals_of(points)
    assert [each[-1] for each in found] == ["yes", "NO", *[NOT_MEASURED] * 7, "NO"]
    assert found[0][2] == "20 x (twist_pair, heavy)" and found[1][2] == "1.29 x (rnea, heavy)"
    assert found[-1][1:3] == ("50 x", "25 x (aba_scan)")
    assert [each[-1] for each in scan_gpu.goals_of([])] == [NOT_MEASURED] * 10


@pytest.mark.parametrize("query", scan_gpu.WORDS)
def test_wrong_answers_are_noticed(query):
    problem = experiments.Problem(rd.auto_tree(5, branching=2.0, skew=0.3), 2)
    contender = experiments.Contender("cpu", query, "cpu")
    answer = contender.prepare(problem)()
    assert contender.off_by(problem, answer) < 1e-12
    several = answer if isinstance(answer, tuple) else (answer,)
    several[-1][1, 3] += 0.1 * np.abs(several[-1]).max()
    assert contender.off_by(problem, answer) > 1e-3
