"""The benchmark of constraints: what it compares and writes, not how long it takes."""

from __future__ import annotations

import numpy as np
import pytest

import robodyn as rd
from tests.bench import constraints, large_loops

# A ball in a plane has a row too many, whether or not it is said.
pytestmark = pytest.mark.filterwarnings("ignore:constraints of")


def test_a_case_is_judged_and_written():
    pytest.importorskip("pinocchio")
    (found,) = constraints.measure(lambda name: "four-bar" in name, 0.0, lambda _: None)
    assert (found.rows, found.rank) == (3, 2) and 100 < found.operations < 400
    assert found.errors["float64"] < 1e-12 and found.errors["Pinocchio"] < 1e-12 and found.errors["float32"] < 1e-3
    assert found.peer_ns is not None and min(found.ns.values()) > 0.0
    page = constraints.page([found], [], {"commit": "none"})
    assert "| four-bar | 3 | 2 |" in page and "wanted: 0.3" in page


@pytest.mark.parametrize("name", list(constraints._robots()))
def test_robots_are_closed_where_they_are_said_to_be(name):
    model, held, q = constraints._robots()[name]()
    phi, _ = rd.Dynamics(model, constraints=held, engine="reference").constraint_residual(q, np.zeros(model.nv))
    assert np.abs(phi).max() < 1e-14


def test_large_trees_are_judged_and_written():
    found = large_loops.measure(lambda name: "ladder" in name or "chain, 60 bodies" in name, 0.0, lambda _: None)
    assert [(each.bodies, each.rows) for each in found] == [(111, 110), (60, 3)]
    page = constraints.page([], found, {"commit": "none"})
    assert "| ladder of 55 rungs | 111 | 110 |" in page and page.count("unrolled code") == 2
