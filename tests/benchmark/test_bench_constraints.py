"""The benchmark of constraints: what it compares and writes, not how long it takes."""

from __future__ import annotations

import numpy as np
import pytest

import robodyn as rd
from robodyn.tools.benchmark.compare import Settings
from tests.bench import constraints
from tests.bench.runner import Run

# A ball in a plane has a row too many, whether or not it is said.
pytestmark = pytest.mark.filterwarnings("ignore:constraints of")


def test_a_case_is_judged_and_written():
    pytest.importorskip("pinocchio")
    measured = constraints.measure(Run(("four-bar",), Settings(seconds=0.0)))
    (found,) = measured.cases
    assert (found.rows, found.rank) == (3, 2) and 100 < found.operations < 400
    assert found.errors["float64"] < 1e-12 and found.errors["Pinocchio"] < 1e-12 and found.errors["float32"] < 1e-3
    assert found.peer_ns is not None and min(found.ns.values()) > 0.0
    page = constraints.PAGE.markdown(measured, {"commit": "none"}, {})
    assert "| four-bar | 3 | 2 |" in page and "wanted: 0.3" in page


@pytest.mark.parametrize("name", list(constraints.robots()))
def test_robots_are_closed_where_they_are_said_to_be(name):
    model, held, q = constraints.robots()[name]()
    phi, _ = rd.Dynamics(model, constraints=held, engine="reference").constraint_residual(q, np.zeros(model.nv))
    assert np.abs(phi).max() < 1e-14


@pytest.mark.matrix
def test_large_trees_are_judged_and_written(monkeypatch):
    monkeypatch.setattr(constraints, "LADDER_RUNGS", 10)
    found = constraints.Results([], [])
    for word in ("ladder", "chain, 60 bodies"):
        found.large += constraints.measure(Run(("large", word), Settings(seconds=0.0))).large
    assert [(each.bodies, each.rows) for each in found.large] == [(21, 20), (60, 3)]
    page = constraints.PAGE.markdown(found, {"commit": "none"}, {})
    assert "| ladder of 10 rungs | 21 | 20 |" in page and page.count("unrolled code") == 2
