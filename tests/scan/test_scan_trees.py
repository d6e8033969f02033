"""Vector trees, heavy paths and scan kernels, on plain numbers against loops over bodies."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import robodyn as rd
from robodyn.engines.scan import KERNELS, POSES, HeavyPaths, ScanOptions, VectorTree, sums
from robodyn.engines.scan.trees.prefix_scans import Segments
from robodyn.internals.errors import ArgumentError

GENERAL = [name for name in KERNELS if name not in ("native", "mapped")]


@st.composite
def parents(draw, largest=40):
    """Parent arrays of any shape: chains, stars, bushes, forests."""
    n = draw(st.integers(0, largest))
    reach = draw(st.sampled_from([1, 2, 5, largest]))
    return [draw(st.integers(max(-1, i - reach), i - 1)) for i in range(n)]


def path(parent, i):
    found = []
    while i >= 0:
        found.append(i)
        i = parent[i]
    return found[::-1]


def subtree(parent, i):
    return [j for j in range(len(parent)) if i in path(parent, j)]


def matmul(a, b):
    """Not commutative: what order a scan composes in shows."""
    return np.einsum("mij,mjk->mik", a, b)


def turns(n, seed):
    """Rotations (n, 2, 2) and a stretch: products that neither vanish nor explode."""
    angle = np.random.default_rng(seed).uniform(0, 6, n)
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0 * c], [s, c, angle], [0 * c, 0 * c, 1 + 0 * c]]).transpose(2, 0, 1)


def product(matrices):
    total = np.eye(3)
    for matrix in matrices:
        total = total @ matrix
    return total


@settings(deadline=None, max_examples=60)
@given(parent=parents(), kernel=st.sampled_from(GENERAL), block=st.integers(2, 9))
def test_paths_compose_from_the_root(parent, kernel, block):
    n, data = len(parent), turns(len(parent), 1)
    wanted = np.array([product(data[path(parent, i)]) for i in range(n)]).reshape(n, 3, 3)
    tree = VectorTree(np.array(parent, dtype=int))
    options = {"kernel": kernel, "block": block}
    found = tree.rootfix(matmul, data, inverse=np.linalg.inv, identity=np.eye(3), **options)
    np.testing.assert_allclose(found, wanted, atol=1e-9)
    before = tree.rootfix(matmul, data, inverse=np.linalg.inv, identity=np.eye(3), inclusive=False, **options)
    outer = np.array([product(data[path(parent, i)[:-1]]) for i in range(n)]).reshape(n, 3, 3)
    np.testing.assert_allclose(before, outer, atol=1e-9)
    np.testing.assert_allclose(HeavyPaths(tree.tree).rootfix(matmul, data, **options), wanted, atol=1e-12)


@settings(deadline=None, max_examples=60)
@given(parent=parents(), kernel=st.sampled_from(KERNELS), block=st.integers(2, 9))
def test_subtrees_add_up(parent, kernel, block):
    n = len(parent)
    data = np.arange(1, 2 * n + 1).reshape(n, 2)
    wanted = np.array([data[subtree(parent, i)].sum(axis=0) for i in range(n)], dtype=int).reshape(n, 2)
    tree = VectorTree(np.array(parent, dtype=int))
    options = {"kernel": kernel, "block": block}
    np.testing.assert_array_equal(tree.leaffix(np.add, data, np.negative, 0, **options), wanted)
    np.testing.assert_array_equal(tree.leaffix(np.add, data, np.negative, 0, inclusive=False, **options), wanted - data)
    np.testing.assert_array_equal(
        tree.rootfix(np.add, data, np.negative, 0, **options),
        np.array([data[path(parent, i)].sum(axis=0) for i in range(n)], dtype=int).reshape(n, 2),
    )
    if kernel in GENERAL:
        np.testing.assert_array_equal(HeavyPaths(tree.tree).leaffix(np.add, data, **options), wanted)
        largest = HeavyPaths(tree.tree).leaffix(np.maximum, data, **options)
        heaviest = np.array([data[subtree(parent, i)].max(axis=0) for i in range(n)], dtype=int).reshape(n, 2)
        np.testing.assert_array_equal(largest, heaviest)


@settings(deadline=None, max_examples=60)
@given(lengths=st.lists(st.integers(1, 30), max_size=8), block=st.integers(2, 7), kernel=st.sampled_from(GENERAL))
def test_segments_are_scanned_each_for_itself(lengths, block, kernel):
    segments, op = Segments(lengths), sums(2)
    elements = np.random.default_rng(len(lengths)).integers(-9, 9, (2, sum(lengths), 3)).astype(float)
    parts = np.split(elements, segments.starts[1:], axis=1) if lengths else [elements]
    wanted = np.concatenate([np.cumsum(part, axis=1) for part in parts], axis=1)
    np.testing.assert_array_equal(segments.scan(op, elements, kernel, block=block), wanted)
    suffixes = np.concatenate([np.cumsum(part[:, ::-1], axis=1)[:, ::-1] for part in parts], axis=1)
    np.testing.assert_array_equal(segments.scan(op, elements, kernel, block=block, backwards=True), suffixes)


def test_a_vector_tree_is_its_parentheses():
    tree = VectorTree([-1, 0, 1, 1, 0, -1])
    assert tree.lp.tolist() == [0, 1, 2, 4, 7, 10]
    assert tree.rp.tolist() == [9, 6, 3, 5, 8, 11]
    assert tree.depth.tolist() == [0, 1, 2, 2, 1, 0]
    assert tree.subtree_size.tolist() == [5, 3, 1, 1, 1, 1]
    bodies, starts = tree.paths
    assert [bodies[a:b].tolist() for a, b in pairwise(starts)] == [path([-1, 0, 1, 1, 0, -1], i) for i in range(6)]


@pytest.mark.parametrize("shape", ["chain", "binary", "star", "caterpillar"])
def test_few_levels_of_heavy_paths(shape):
    n = 5000
    index = np.arange(n)
    parent = {
        "chain": index - 1,
        "binary": (index - 1) // 2,
        "star": np.where(index == 0, -1, 0),
        "caterpillar": np.where(index % 2 == 0, index - 2, index - 1),
    }[shape]
    levels = HeavyPaths(np.maximum(parent, -1)).levels
    assert len(levels) <= np.log2(n) + 1
    assert np.array_equal(np.sort(np.concatenate([level.bodies for level in levels])), index)
    for level in levels:
        assert np.array_equal(np.maximum(parent, -1)[level.heads], level.junctions)


def test_ten_million_bodies_need_no_recursion():
    n = 1_000_000  # a tenth, for time: what grows is linear
    tree = VectorTree(np.arange(n) - 1)
    assert tree.rp[0] == 2 * n - 1
    assert tree.lp[-1] == n - 1
    assert len(HeavyPaths(tree.tree).levels) == 1
    depth = tree.rootfix(np.add, np.ones(n, int), np.negative, 0, kernel="mapped")
    assert np.array_equal(depth, np.arange(1, n + 1))


@pytest.mark.parametrize(
    ("parent", "named"),
    [
        ([1, -1], r"parent\[0\]"),
        ([-1, 1], r"parent\[1\]"),
        ([-1, 5], r"parent\[1\]"),
        ([-1, -2], r"parent\[1\]"),
        ([-1.0, 0.0], "dtype float64"),
        ([[-1]], "one-dimensional"),
        (["a"], "dtype"),
        ([[-1], [0, 1]], "one-dimensional"),
        (np.ma.array([-1, 0], mask=[0, 1]), "masked"),
        (np.array([2**64 - 1, 0], np.uint64), r"parent\[0\]"),
    ],
)
@pytest.mark.parametrize("kind", [VectorTree, HeavyPaths])
def test_parent_arrays_are_checked(kind, parent, named):
    with pytest.raises(ArgumentError, match=named):
        kind(parent)


def test_empty_trees():
    for tree in (VectorTree(np.empty(0, int)), HeavyPaths([])):
        assert len(tree) == 0
    assert VectorTree([]).rootfix(np.add, np.ones(0), np.negative, 0).shape == (0,)
    assert VectorTree([]).leaffix(np.add, np.ones((0, 3)), np.negative, 0).shape == (0, 3)
    assert HeavyPaths([]).rootfix(np.add, np.ones(0)).shape == (0,)
    assert HeavyPaths([]).leaffix(sums(2), np.ones((2, 0, 1))).shape == (2, 0, 1)


def broken(a, b):
    raise ZeroDivisionError("nothing to divide by")


def in_place(a, b):
    b += a
    return b


def negated_in_place(a):
    a *= -1
    return a


ONES = np.ones(3, int)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda tree: tree.rootfix(broken, np.ones(3), np.negative, 0), "op: 'broken' raised ZeroDivisionError"),
        (lambda tree: tree.rootfix(np.add, np.ones(3), lambda a: a[:1], 0), "inverse: .* returned"),
        (lambda tree: tree.rootfix(lambda a, b: 3, np.ones(3), np.negative, 0), "op: .* returned 3"),
        (lambda tree: tree.rootfix(np.add, np.ones(3), None, 0), "inverse: got None"),
        (lambda tree: tree.rootfix(in_place, ONES, np.negative, 0), "op: 'in_place' raised ValueError.*read-only"),
        (lambda tree: tree.rootfix(np.add, ONES, negated_in_place, 0), "inverse: .*read-only"),
        (
            lambda tree: tree.rootfix(lambda a, b: a + b + 0.5, ONES, np.negative, 0),
            "dtype float64 for values .* int64",
        ),
        (lambda tree: HeavyPaths(tree.tree).leaffix(lambda a, b: (a + b) * 1j, ONES), "dtype complex128 for values"),
        (lambda tree: tree.leaffix(lambda a, b: ["a"] * a.size, ONES, np.negative, 0), "op: .* returned"),
        (lambda tree: tree.rootfix(np.add, ONES, np.negative, 0.5), "identity: got 0.5; wanted .* int64 holds exactly"),
        (lambda tree: tree.rootfix(np.add, ONES, np.negative, np.nan), "identity: got nan"),
        (lambda tree: tree.rootfix(np.add, ONES, np.negative, "x"), "identity: got 'x'"),
        (lambda tree: tree.leaffix(np.add, ONES, np.negative, [0, 0]), r"identity: got \[0, 0\]"),
        (lambda tree: tree.rootfix(np.add, [1, [2], 3], np.negative, 0), r"data: got \[1, \[2\], 3\]"),
        (lambda tree: tree.rootfix(np.add, np.ma.array([1, 2, 3], mask=[0, 1, 0]), np.negative, 0), "masked"),
        (lambda tree: sums(2.5), "size: got 2.5"),
        (lambda tree: sums(0), "size: got 0"),
        (lambda tree: sums(10**12), "size: got 1000000000000"),
        (lambda tree: tree.rootfix(np.add, np.ones(3), np.negative), "identity: got None"),
        (lambda tree: tree.rootfix("add", np.ones(3), np.negative, 0), "op: got 'add'"),
        (lambda tree: tree.rootfix(np.add, np.ones(4), np.negative, 0), r"data: got shape \(4,\)"),
        (lambda tree: tree.rootfix(np.add, ["a", "b", "c"], np.negative, 0), "data: got shape"),
        (lambda tree: tree.rootfix(POSES, np.ones((12, 4))), r"wanted floats \(12, 3, ...\)"),
        (lambda tree: tree.rootfix(POSES, np.ones((12, 3), int)), "dtype int64"),
        (lambda tree: tree.rootfix(POSES, np.ones((12, 3)), kernel="native"), "kernel: got 'native'"),
        (lambda tree: tree.rootfix(np.add, np.ones(3), np.negative, 0, kernel="fast"), "kernel: got 'fast'"),
        (lambda tree: tree.rootfix(np.add, np.ones(3), np.negative, 0, block=1), "block: got 1"),
        (lambda tree: tree.rootfix(np.add, np.ones(3), np.negative, 0, inclusive=None), "inclusive"),
        (lambda tree: HeavyPaths(tree.tree).leaffix(POSES, np.ones((12, 3))), "not commutative"),
        (lambda tree: HeavyPaths(tree.tree).leaffix(matmul, turns(3, 0), commutative=False), "not commutative"),
        (lambda tree: HeavyPaths(tree.tree).rootfix(np.add, np.ones(3), kernel="mapped"), "kernel: got 'mapped'"),
        (lambda tree: ScanOptions(layout="wide"), "layout: got 'wide'"),
        (lambda tree: ScanOptions(kernel=None), "kernel: got None"),
        (lambda tree: ScanOptions(block=0), "block: got 0"),
        (lambda tree: rd.Dynamics(rd.auto_tree(2), engine="scan", scan="heavy"), "scan: got 'heavy'"),
    ],
)
def test_bad_arguments_are_named(call, named):
    with pytest.raises(ArgumentError, match=named):
        call(VectorTree([-1, 0, 0]))
