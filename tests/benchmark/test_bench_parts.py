"""The suite that measures one tree on several threads, on small trees."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tests.bench.parts as suite
from robodyn.algorithms.rnea import rnea
from tests.bench.parts import DYNAMICS, SHAPES, measure, notes, page, scan_operations, tables, tree

ROOT = Path(__file__).resolve().parents[2]


def test_shapes_are_trees_and_those_that_they_are_named_for():
    for shape in SHAPES:
        assert tree(shape, 200).n_bodies == 200
    assert tree("chain", 200).tree.n_levels == 200
    assert np.bincount(tree("five children", 200).parent[1:]).max() == 5
    assert tree("star", 200).tree.n_levels == 2
    legs = tree("caterpillar, legs of 10", 220)
    assert legs.tree.n_levels == 20 + 10
    assert tree("caterpillar, legs of 1", 200).tree.n_levels == 100 + 1


def test_measured_beside_the_model(monkeypatch):
    monkeypatch.setattr(suite, "_WAIT_S", 0.0)
    monkeypatch.setattr(suite, "default_threads", lambda: 2)
    words = ("star, inverse", "chain, inverse", "binary, kinetic")
    found = measure(lambda name: any(word in name for word in words), 0.01, 9000, lambda name: None)
    measured = {(each.shape, each.query): each for each in found.measured}
    assert len(measured) == 3
    assert all(each.same and each.rounds >= 5 for each in measured.values())
    assert measured["chain", "inverse_dynamics"].model is None, "one thread"
    assert measured["binary", "kinetic_energy"].model is None, "not asked for"
    modelled = {each.shape: each for each in found.modelled}
    assert all(faster is None for faster in modelled["chain"].faster.values())
    star = modelled["star"].faster
    assert star[64] is not None
    assert star[64] > 1.5
    text = page(found, {"commit": "none"})
    assert all(table.title in text for table in tables(found))
    assert all(note in text for note in notes(found))


def test_the_page_counts_what_a_scan_adds():
    counted = scan_operations()
    assert list(counted) == list(DYNAMICS)
    assert DYNAMICS["inverse_dynamics"] is rnea()
    text = (ROOT / "docs" / "benchmarks" / "parts.md").read_text()
    for recursion, more in counted.values():
        assert f"{recursion:,} operations a body" in text
        assert f"by {more:,} more" in text
