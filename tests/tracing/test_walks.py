"""Sweeps in one walk over the tree: what joins, its order, and that numbers are those of sweeps one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from algorithm_table import ALGORITHMS, needs_own_coordinates
from conftest import relative
from robots import own

import robodyn as rd
from robodyn.algorithms.aba import aba
from robodyn.compile.llvm.target import Target
from robodyn.compile.tracing import unrolled
from robodyn.compile.tracing.unrolled import trace
from robodyn.compile.tracing.walks import branch_by_branch, comes_back, walks
from robodyn.compile.x86.program import assembled
from robodyn.core.tree import Tree
from robodyn.description import JOINT_TYPES
from robodyn.engines.query_table import QUERIES
from robodyn.sweeps import Ancestors, Inward, Outward, World


def _nothing(*_):
    raise AssertionError("never called")


def _names(sweeps):
    return [[type(sweep).__name__ for sweep in walk] for walk in walks(sweeps)]


@pytest.mark.parametrize("seed", range(12))
def test_every_body_comes_before_and_after_all_that_it_carries(seed):
    rng = np.random.default_rng(seed)
    parents = [int(rng.integers(-1, k)) if k else -1 for k in range(int(rng.integers(1, 40)))]
    order = list(branch_by_branch(Tree(parents)))
    place = {visit: k for k, visit in enumerate(order)}
    assert len(place) == len(order) == 2 * len(parents)
    for body, parent in enumerate(parents):
        assert place[body, False] < place[body, True]
        inside = {each for each, _ in order[place[body, False] : place[body, True]]}
        carried = {body}
        for other in range(body + 1, len(parents)):
            if parents[other] in carried:
                carried.add(other)
        assert inside == carried
        for sibling in range(body):
            if parents[sibling] == parent:
                assert place[body, True] < place[sibling, False]


def test_no_bodies():
    assert list(branch_by_branch(Tree([]))) == []


def test_a_gradient_is_one_walk_and_forward_dynamics_two():
    model = rd.load_urdf(own("arm6"))
    gradient = QUERIES["inverse_dynamics_gradient"].plain_task(model)
    assert _names(gradient.sweeps) == [["World"], ["Outward", "Outward", "Inward", "Ancestors"]]
    assert _names(aba().sweeps) == [["World"], ["Outward", "Inward", "Inward"], ["Outward"]]


def test_what_reads_what_is_not_complete_waits():
    first = Outward(_nothing, writes=("a", "b"))
    back = Inward(_nothing, reads=("a",), writes=("c",), gives=("d",))
    for sweep, joins in (
        (Ancestors(_nothing, _nothing, reads=("c", "d"), visits=("a",)), True),
        (Ancestors(_nothing, _nothing, visits=("c",)), False),
        (Ancestors(_nothing, _nothing, visits=("d",)), False),
        (Ancestors(_nothing, _nothing, of_link=True), False),
        (Ancestors(_nothing, _nothing, of_links=True), False),
        (Inward(_nothing, reads=("c", "d"), gives=("e",)), True),
        (Inward(_nothing, gives=("a",)), False),
        (Inward(_nothing, gives=("c",)), False),
        (Inward(_nothing, gives=("d",)), False),
        (Inward(_nothing, lanes=True), False),
        (Outward(_nothing), False),
        (World(_nothing), False),
    ):
        wanted = [[first, back, sweep]] if joins else [[first, back], [sweep]]
        assert list(walks([first, back, sweep])) == wanted, sweep
    pairs = Ancestors(_nothing, _nothing)
    assert list(walks([first, pairs, back])) == [[first, pairs], [back]]
    assert list(walks([replace(first, lanes=True), back])) == [[replace(first, lanes=True)], [back]]


def _one_by_one(monkeypatch):
    monkeypatch.setattr(unrolled, "walks", lambda sweeps: [[sweep] for sweep in sweeps])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.some(of=4, when="matrix")
def test_programs_compute_what_sweeps_one_by_one_do(monkeypatch, seed):
    rng = np.random.default_rng(seed)
    mimic = (0.0, 0.3)[seed % 2]
    base = ("fixed", "floating")[seed // 2]
    model = rd.random_tree(10, seed=seed, joints=JOINT_TYPES, mimic=mimic, armature=True, base=base)
    together = 0
    for name, task in ALGORITHMS.items():
        if mimic and (needs_own_coordinates(task) or "armature" in task.inputs):
            continue
        together += any(sum(map(comes_back, walk)) > 1 for walk in walks(task.sweeps))
        link = len(model.link_names) - 1
        found = trace(model, task, link=link)
        with monkeypatch.context() as patch:
            _one_by_one(patch)
            wanted = trace(model, task, link=link)
        assert found.operations == wanted.operations, name
        given = {port.name: rng.standard_normal((5, *port.shape)) for port in found.inputs}
        results = found.evaluate(given), wanted.evaluate(given)
        for key, exact in results[1].items():
            assert relative(results[0][key], exact) < 1e-12, (name, key)
    assert together > 5


@pytest.mark.parametrize(
    "query, most", [("inverse_dynamics_gradient", 0.5), ("mass_matrix", 0.5), ("forward_dynamics", 0.6)]
)
def test_less_waits_in_memory(monkeypatch, query, most):
    model, target = rd.load_urdf(own("humanoid")), Target("x86_64-unknown-linux-gnu", "x86-64-v4", "", "avx512")
    task = QUERIES[query].plain_task(model)
    vectors = frozenset(task.outputs)
    found = assembled(trace(model, task), np.dtype(float), target, vectors).rows_at
    _one_by_one(monkeypatch)
    assert 0 < found < most * assembled(trace(model, task), np.dtype(float), target, vectors).rows_at
