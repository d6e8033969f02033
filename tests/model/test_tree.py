"""Topology of random parent arrays against naive definitions, and trees that recursion could not survive."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import robodyn as rd
from robodyn.compile.llvm import tree_passes
from robodyn.compile.loops.blocks import I64
from robodyn.compile.loops.language import Array

parents = st.integers(0, 40).flatmap(lambda n: st.tuples(*[st.integers(-1, i - 1) for i in range(n)])).map(list)


def ancestors(parent, i):
    """i, its parent, and so on up to a child of the world."""
    found = []
    while i >= 0:
        found.append(i)
        i = parent[i]
    return found


@settings(max_examples=150, deadline=None)
@given(parents)
def test_topology_agrees_with_definitions(parent):
    tree, n = rd.Tree(np.array(parent, dtype=int)), len(parent)
    chains = [ancestors(parent, i) for i in range(n)]
    assert tree.depth.tolist() == [len(chain) - 1 for chain in chains]
    assert [tree.path(i).tolist() for i in range(n)] == [chain[::-1] for chain in chains]
    for i in range(-1, n):
        assert tree.children(i).tolist() == [j for j in range(n) if parent[j] == i]
    below = [{j for j in range(n) if i in chains[j]} for i in range(n)]
    assert tree.subtree_size.tolist() == [len(s) for s in below]
    assert [set(tree.subtree(i).tolist()) for i in range(n)] == below
    assert sorted(tree.preorder.tolist()) == list(range(n))
    levels = [tree.level(d).tolist() for d in range(tree.n_levels)]
    assert levels == [[i for i in range(n) if len(chains[i]) == d + 1] for d in range(tree.n_levels)]


@settings(max_examples=150, deadline=None)
@given(parents)
def test_euler_tour_nests_like_parentheses(parent):
    tree, n = rd.Tree(np.array(parent, dtype=int)), len(parent)
    lp, rp = tree.euler_tour
    assert sorted([*lp.tolist(), *rp.tolist()]) == list(range(2 * n))
    for i in range(n):
        inside = [j for j in range(n) if lp[i] <= lp[j] and rp[j] <= rp[i]]
        assert inside == [j for j in range(n) if i in ancestors(parent, j)]
    # Depth by a sum over the tour (rootfix of ones), the vector tree's own definition.
    steps = np.zeros(2 * n, dtype=int)
    steps[lp], steps[rp] = 1, -1
    assert (np.cumsum(steps)[lp] - 1 == tree.depth).all()


@settings(max_examples=150, deadline=None)
@given(parents)
def test_heavy_paths_cover_the_tree_in_few_levels(parent):
    tree, n = rd.Tree(np.array(parent, dtype=int)), len(parent)
    for i in range(n):
        children = tree.children(i).tolist()
        heavy = int(tree.heavy_child[i])
        assert (heavy in children) if children else heavy == -1
        assert all(tree.subtree_size[c] <= tree.subtree_size[heavy] for c in children)
        follows = parent[i] >= 0 and tree.heavy_child[parent[i]] == i
        assert tree.heavy_head[i] == (tree.heavy_head[parent[i]] if follows else i)
        light = sum(p >= 0 and tree.heavy_child[p] != c for c, p in ((c, parent[c]) for c in ancestors(parent, i)))
        assert tree.heavy_level[i] == light <= np.log2(n)


@pytest.mark.parametrize("branching", [1.0, 1.5, 2.0])
def test_large_trees_need_no_recursion(branching):
    tree = rd.auto_tree(100_000, branching=branching).tree
    lp, rp = tree.euler_tour
    assert (rp - lp == 2 * tree.subtree_size - 1).all()
    assert tree.heavy_level.max() <= np.log2(len(tree))
    assert tree.depth.max() + 1 == tree.n_levels


def test_a_tree_survives_pickling_and_is_read_only():
    tree = rd.Tree([-1, 0, 0])
    again = pickle.loads(pickle.dumps(tree))
    assert again.parent.tolist() == [-1, 0, 0]
    with pytest.raises(ValueError):
        tree.parent[0] = 1
    with pytest.raises(ValueError):
        again.depth[0] = 1


@pytest.mark.parametrize(
    ("parent", "words"),
    [
        ([0], r"parent\[0\]: got 0"),
        ([-1, 2, 0], r"parent\[1\]: got 2"),
        ([-2], "got -2"),
        ([[0]], "shape"),
        ([0.5], "dtype"),
    ],
)
def test_wrong_parents_are_named(parent, words):
    with pytest.raises(rd.ArgumentError, match=words):
        rd.Tree(parent)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda tree: tree.path(3), "^body: got 3; wanted an integer from -1 to 2"),
        (lambda tree: tree.path(-2), "^body: got -2; wanted an integer from -1"),
        (lambda tree: tree.children(99), "^body: got 99; wanted an integer from -1 to 2"),
        (lambda tree: tree.children(-2), "^body: got -2"),
        (lambda tree: tree.subtree(3), "^body: got 3; wanted an integer from 0 to 2"),
        (lambda tree: tree.subtree(-1), "^body: got -1; wanted an integer from 0"),
        (lambda tree: tree.subtree(1.0), "^body: got 1.0"),
        (lambda tree: tree.level(2), "^level: got 2; wanted an integer from 0 to 1"),
        (lambda tree: tree.level(-1), "^level: got -1"),
        (lambda tree: rd.Tree([]).level(0), "^level: got 0; there is none"),
    ],
)
def test_bodies_and_levels_that_do_not_exist_are_named(ask, words):
    with pytest.raises(rd.ArgumentError, match=words):
        ask(rd.Tree([-1, 0, 0]))


@pytest.mark.parametrize("shape", ["chain", "star", "random", "forest", "binary"])
def test_passes_as_machine_code_are_the_passes(shape, monkeypatch):
    n = 12_000
    rng = np.random.default_rng(3)
    index = np.arange(n)
    parent = {
        "chain": index - 1,
        "star": np.minimum(index - 1, 0),
        "random": np.floor(rng.random(n) * index).astype(int) - (index == 0),
        "forest": np.where(rng.random(n) < 0.2, -1, index - 1),
        "binary": (index + 1) // 2 - 1,
    }[shape]
    parent[0] = -1
    names = ("depth", "subtree_size", "preorder_rank", "heavy_child", "heavy_head", "heavy_level")
    compiled = {name: getattr(rd.Tree(parent), name) for name in names}
    monkeypatch.setattr("robodyn.core.tree._COMPILED_FROM", n + 1)
    plain = rd.Tree(parent)
    for name, found in compiled.items():
        np.testing.assert_array_equal(found, getattr(plain, name), err_msg=name)
        assert not found.flags.writeable


@pytest.mark.parametrize("seed", range(6))
def test_passes_as_python_are_those_as_machine_code(seed):
    rng = np.random.default_rng(seed)
    n = (0, 1, 2, 9, 40, 150)[seed]
    parent = np.floor(rng.random(n) * (np.arange(n) + 1)).astype(np.int64) - 1
    tree = rd.Tree(parent)
    size, heavy = tree.subtree_size.copy(), tree.heavy_child.copy()
    arrays = {
        "depth": [rng.integers(9, size=n)],
        "subtree_size": [np.ones(n, np.int64)],
        "preorder_rank": [size, *rng.integers(9, size=(2, n))],
        "heavy_child": [size, np.zeros(n, np.int64), np.full(n, -1)],
        "heavy_paths": [heavy, *rng.integers(9, size=(2, n))],
    }
    for each in tree_passes.PASSES:
        mine, compiled = ([array.copy() for array in arrays[each.__name__]] for _ in range(2))
        each(n, *(Array(array.ctypes.data, I64) for array in (parent, *mine)))
        tree_passes.passes()(each.__name__, parent, *compiled)
        for one, other in zip(mine, compiled, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=each.__name__)
