"""The map of scan methods and their accuracy: tiny runs, and what ends a curve.

Nothing here depends on how long anything took.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import scan_accuracy

from robodyn.engines.scan.methods import methods_of
from robodyn.internals.errors import ArgumentError
from tests.bench import __main__ as runner
from tests.bench import records, scan_map
from tests.bench.experiments import Measured
from tests.bench.points import NOT_MEASURED, Budget, Point, bounded_memory, remarks

PLOTS = importlib.util.find_spec("matplotlib") is not None


def call(word, folder, largest):
    """What the command does, in this process."""
    runner.run([word], write=True, batch="1", dtype="float64", threads="1", seconds=0.0, largest=largest, folder=folder)
    name = word.split(":")[0]
    return *records.load(folder / f"{name}.json", Measured), (folder / f"{name}.md").read_text()


def tables_of(page):
    """Columns of every table."""
    lines = page.splitlines()
    return [above.strip("| ").split(" | ") for above, rule in pairwise(lines) if rule[:3] == "|--"]


# The map.


@pytest.fixture(scope="module")
def map_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scan")
    return *call("scan: forward_dynamics", folder, 4), folder


@pytest.mark.matrix
def test_the_map_names_the_fastest_method(map_run):
    _, found, page, folder = map_run
    points = found.points
    assert {point.series for point in points} == {"cpu", "auto", *methods_of("forward_dynamics")}
    assert [point.problem for point in points if point.problem] == []
    assert all(point.best_s > 0.0 and point.off_by < 1e-10 for point in points)
    assert {point.batch for point in points} == set(scan_map.BATCHES)
    for grid in scan_map.grids(points):
        for n, batch in {(point.n, point.batch) for point in grid.points}:
            scans = {name: grid.seconds(name, (batch, n)) for name in methods_of("forward_dynamics")}
            best, theirs = min(scans, key=scans.get), grid.seconds("cpu", (batch, n))
            assert grid.best((batch, n)) == best
            assert grid.against_recursion((batch, n)) == pytest.approx(theirs / scans[best])
    assert "## forward_dynamics, chain" in page and "| fastest scan | times cpu |" in page
    assert (folder / "scan.svg").exists() == PLOTS


def test_a_method_that_fails_is_named_and_the_others_are_measured():
    def points(name, seconds, problem=""):
        return Point("inverse_dynamics, chain", name, 4, batch=64, best_s=seconds, median_s=seconds, problem=problem)

    found = [points("cpu", 1.0), points("rnea", 0.5), points("twist_pair", None, "TypeError: no")]
    (grid,) = scan_map.grids(found)
    assert grid.best((64, 4)) == "rnea" and grid.against_recursion((64, 4)) == 2.0
    assert grid.cells().rows == [("4", "64", "1 s", "**500 ms**", NOT_MEASURED, "rnea", "2 x")]
    assert "- twist_pair, n = 4 x 64: TypeError: no" in scan_map.PAGE.markdown(Measured(found), {"commit": "x"}, {})


# What ends a curve.


def measured(budget, n, prepare, check=None):
    return budget.measure(Point("g", "s", n), n, prepare, check)


def test_long_calls_are_foreseen():
    budget = Budget(seconds=0.0, limit=1.0)
    key = ("g", "s", 1.0, "float64", "cpu", None)
    budget.history[key] = [(10.0, 1e-3), (100.0, 1e-1)]
    assert budget.expected(key, 1000) == pytest.approx(10.0)
    point = measured(budget, 1000, lambda: pytest.fail("called"))
    assert point.best_s is None and point.problem == "a call of more than the 1 s allowed was expected"


def test_long_calls_are_interrupted_and_larger_ones_left_out():
    budget = Budget(seconds=0.0, limit=0.005)
    point = measured(budget, 5, lambda: lambda: time.sleep(20.0))
    assert point.cell == NOT_MEASURED and "from n = 5 on longer than 50 ms" in point.problem
    assert measured(budget, 6, lambda: pytest.fail("called")).problem == point.problem
    assert remarks([point]) == [f"s, n = 5: {point.problem}"]


@pytest.mark.parametrize("error", [ValueError("no\nway"), ArgumentError("too much"), np.linalg.LinAlgError("x")])
def test_a_call_that_raises_is_a_remark(error):
    def fail():
        raise error

    point = measured(Budget(seconds=0.0), 5, lambda: fail)
    assert point.best_s is None and point.problem == f"{type(error).__name__}: {' '.join(str(error).split())}"


def test_a_wrong_answer_has_no_time():
    for off_by in (0.5, math.nan):
        point = measured(Budget(seconds=0.0), 5, lambda: lambda: 1.0, lambda answer, off_by=off_by: off_by)
        assert point.best_s is None and point.problem.startswith("WRONG")
        json.dumps(records._plain(point), allow_nan=False)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_more_memory_than_there_is_raises():
    with bounded_memory():
        point = measured(Budget(seconds=0.0), 5, lambda: lambda: np.ones(1 << 46))
    assert point.problem == "from n = 5 on more memory than there is"


# Accuracy.


@pytest.mark.matrix
def test_accuracy_is_measured_and_written(tmp_path):
    scan_accuracy.main(["--write", "--largest=10"], tmp_path)
    page = (tmp_path / "scan-accuracy.md").read_text()
    columns = tables_of(page)
    for wanted in (scan_accuracy.INVERSE, scan_accuracy.KERNELS, scan_accuracy.FORWARD, scan_accuracy.CFA):
        assert any(table[-len(wanted) :] == list(wanted) for table in columns)
    stable, weak = page.split("## Forward dynamics by constraint forces")
    for part, number, most in ((stable, 2 * 4 * 2, 1e-5), (weak, 2 * 2, 1.0)):
        rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith(("| chain", "| star"))]
        assert len(rows) == number and max(float(cell) for row in rows for cell in row[2:]) < most
    assert (tmp_path / "scan-accuracy.svg").exists() == PLOTS


@pytest.mark.parametrize("shape", scan_accuracy.SHAPES)
def test_trees_have_the_shape_that_they_are_called(shape):
    tree = scan_accuracy.tree(shape, 9).tree
    depth, parent = tree.depth.tolist(), tree.parent.tolist()
    if shape == "star":
        assert parent == [-1] + [0] * 8
    elif shape == "caterpillar":
        assert parent == [-1, 0, 0, 2, 2, 4, 4, 6, 6]
    else:
        assert max(depth) == {"chain": 8, "branching 1.5": 4, "branching 2": 3}[shape]
