"""Matrices over pairs of degrees of freedom on a GPU: kernels against NumPy, alone and in whole queries."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import random_states, relative
from gpu_host import ORDERS, missing, run_sanitized
from gpu_host.arrays import _device, _plain
from gpu_host.device import HostDevice
from gpu_host.scan_functions import add_functions
from test_dynamics import as_tuple
from test_gpu_compile import compiles
from test_scan_gpu import MODELS, device, models, there
from test_scan_gpu_branches import on_numpy

import robodyn as rd
from robodyn.engines.gpu.compiler import compile_reported
from robodyn.engines.scan.cuda.device import ScanDevice
from robodyn.engines.scan.cuda.pairs import LISTED, LOWER, UPPER, pair_kernel
from robodyn.engines.scan.elements import scanning_on
from robodyn.engines.scan.trees.branches import Branches
from robodyn.engines.scan.trees.pairs import Pairs

__all__ = ["device"]  # a fixture

on_host = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
AGREES = {"float64": 1e-13, "float32": 1e-5}
TREES = {
    "chain": lambda: rd.auto_tree(20),
    "bush": lambda: rd.auto_tree(150, branching=2, skew=0.3),
    "kinds": lambda: models()["kinds"],
    "forest": lambda: rd.random_tree(70, seed=3, joints=("revolute", "spherical"), shape="star"),
    "one": lambda: rd.auto_tree(1),
}


def given(nv: int, terms: int, batch: int, dtype: str) -> tuple[np.ndarray, ...]:
    """Motions, forces, points and a diagonal."""
    rng = np.random.default_rng(nv)
    motions, forces, points = (rng.uniform(-1, 1, (size, nv, batch)) for size in (6 * terms, 6 * terms, 3))
    return tuple(each.astype(dtype) for each in (motions, forces, points, rng.uniform(1, 2, (nv, 1))))


def filled(tree: str, terms: int, batch: int, dtype: str, order: str | None, moved: bool) -> list[np.ndarray]:
    """What pairs make of arrays full of NaN, on NumPy arrays (no order) or on a device whose threads run in an order;
    `moved`: the arrays are in another order than degrees of freedom."""
    model = TREES[tree]()
    nv, host, place = model.nv_tree, None, None
    if order is not None:
        host = HostDevice(order)
        add_functions(host.xp)
        place = ScanDevice(host)
    to, back = (np.array, np.asarray) if place is None else (_device, _plain)
    branches = Branches(model, None if place is None else place.placed)
    motions, forces, points, diagonal = given(nv, terms, batch, dtype)
    places = np.random.default_rng(1).permutation(nv)
    if moved:
        at = np.argsort(places)
        motions, forces, points = (each[:, at] for each in (motions, forces, points))
    results = []
    with nullcontext() if place is None else scanning_on(place):
        arrays = [to(np.ascontiguousarray(each)) for each in (motions, forces, points)]
        pairs = Pairs(branches, *arrays, to(places) if moved else None)
        for upper, lower in ((True, False), (False, True), (True, True)):
            out = to(np.full((batch, nv, nv), np.nan, dtype))
            pairs.fill(out, upper=upper, lower=lower)
            results.append(out)
        wide = to(np.full((batch, nv, nv + 3), np.nan, dtype))
        pairs.whole(wide[:, :, :nv], to(diagonal))
        source = np.random.default_rng(2).integers(0, branches.pairs, branches.pairs + 5)
        results += [wide, pairs.rows(to(diagonal)), pairs.rows(to(diagonal), to(source))]
        return [back(each).copy() for each in results]


@on_host
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.some(of=8, rest="kernels")
def test_kernels_make_the_matrices_that_numpy_makes(tree: str, batch: int, moved: bool, dtype: str) -> None:
    """What is no place of a pair stays as it was, or is zero in whole matrices."""
    for terms in (1, 3):
        wanted = filled(tree, terms, batch, dtype, None, moved)
        assert np.isfinite(wanted[3][:, :, :-3]).all() and np.isfinite(wanted[4]).all()
        first = filled(tree, terms, batch, dtype, ORDERS[0], moved)
        for found, right in zip(first, wanted, strict=True):
            np.testing.assert_array_equal(np.isnan(found), np.isnan(right))
            assert relative(np.nan_to_num(found), np.nan_to_num(right)) < AGREES[dtype]
        for order in ORDERS[1:]:
            for found, right in zip(filled(tree, terms, batch, dtype, order, moved), first, strict=True):
                np.testing.assert_array_equal(found, right)


def alone(name: str, how: list[int]) -> tuple[Any, dict[str, Any], dict[str, Any], int, list[int]]:
    """A kernel, its inputs and outputs, rows and numbers, for a small tree and two matrices."""
    branches, batch = Branches(rd.auto_tree(19, branching=1.5)), 2
    nv = len(branches)
    motions, forces, points, diagonal = given(nv, 1, batch, "float64")
    inputs = {"motions": motions, "forces": forces, "points": points, "diagonal": diagonal}
    source, places = pair_kernel(name, 1, np.dtype(np.float64)), np.arange(nv)[::-1]
    rows, indices = nv, [*branches.walk, places]
    strides = [nv * batch, batch, 1] * 3
    if name == "pair_list":
        rows, indices = branches.pairs, [*branches.all_pairs, np.arange(branches.pairs)[::-1], places]
        how = [*how, 1]
    out = np.empty((branches.pairs, batch) if how[0] == LISTED and name == "pair_list" else (batch, nv, nv))
    source = replace(source, constants=tuple(np.ascontiguousarray(each, np.int64) for each in indices))
    return source, inputs, {"out": out}, rows, [batch, *how, 1, 1, *strides, nv * nv, nv, 1]


@on_host
@pytest.mark.parametrize("sanitizer", ["thread", "address"])
@pytest.mark.parametrize(("name", "how"), [("pair_matrix", [1, 1, 1]), ("pair_list", [LISTED]), ("pair_list", [3])])
@pytest.mark.some(of=2, when="kernels")
def test_kernels_of_pairs_under_sanitizers(name: str, how: list[int], sanitizer: str) -> None:
    assert UPPER + LOWER == 3
    if reason := missing(sanitizer):
        pytest.skip(reason)
    source, inputs, outputs, rows, numbers = alone(name, how)
    assert run_sanitized(source, inputs, outputs, sanitizer, 2, rows=rows, numbers=numbers) == ""


@compiles
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.some(of=2, when="kernels")
def test_kernels_of_pairs_keep_their_budgets(dtype: str, architecture: str) -> None:
    for name in ("pair_matrix", "pair_list"):
        for terms in (1, 3):
            report = compile_reported(pair_kernel(name, terms, np.dtype(dtype)), architecture).report
            assert report.registers <= (96, 168)[terms > 1], (name, terms, report)
            assert report.stack_bytes == report.spill_bytes == 0, (name, terms, report)


# Whole queries.


@on_host
def test_matrices_of_a_bush_take_few_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = HostDevice()
    add_functions(host.xp)
    monkeypatch.setattr("robodyn.engines.scan.cuda.engine.default_device", lambda: host)
    model = rd.auto_tree(500, branching=2, skew=0.3)
    scan, judge = rd.Dynamics(model, engine="scan"), rd.Dynamics(model, engine="cpu")
    q = random_states(model, (1,))[0]
    for _ in range(2):
        host.launches.clear()
        H = scan.mass_matrix(_device(q), out=_device(np.full((1, model.nv, model.nv), np.nan)))
    assert [name for name, _ in host.launches] == ["scan_step", "scan_move", "fold", "fold", "pair_matrix"]
    assert relative(_plain(H), judge.mass_matrix(q)) < 1e-12
    states = random_states(model, (1,))
    for _ in range(2):
        host.launches.clear()
        found = scan.inverse_dynamics_gradient(*map(_device, states))
    assert len(host.launches) <= 17 and sum(name == "fold" for name, _ in host.launches) == 3
    for one, other in zip(found, judge.inverse_dynamics_gradient(*states), strict=True):
        assert relative(_plain(one), other) < 1e-11


@on_host
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_matrices_of_joints_that_mimic_others_have_the_same_bits_in_any_batch(
    dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none but themselves and one over all joints is made."""
    host: Any = HostDevice("random")
    add_functions(host.xp)
    monkeypatch.setattr("robodyn.engines.scan.cuda.engine.default_device", lambda: host)
    model = rd.random_tree(40, seed=11, joints=("revolute", "prismatic"), shape="chain", mimic=0.3)
    scan, judge = rd.Dynamics(model, engine="scan", dtype=dtype), rd.Dynamics(model, engine="reference")
    states = [each.astype(dtype) for each in random_states(model, (5,))]
    host.launches.clear()
    H, gradients = (query(*map(_device, given)) for query, given in asked(scan, states))
    assert [name for name, _ in host.launches].count("couple") == 3
    for k in range(5):
        one = [query(*(_device(each[k : k + 1]) for each in given)) for query, given in asked(scan, states)]
        for found, whole in zip(as_tuple(one[0]) + as_tuple(one[1]), (H, *gradients), strict=True):
            np.testing.assert_array_equal(_plain(found)[0], _plain(whole)[k])
    right = [query(*given) for query, given in asked(judge, states)]
    for found, wanted in zip((H, *gradients), (right[0], *right[1]), strict=True):
        assert relative(_plain(found), wanted) < {"float64": 1e-12, "float32": 1e-4}[dtype]


def asked(dyn: rd.Dynamics, states: list[np.ndarray]) -> tuple[tuple[Any, Any], ...]:
    """Queries about matrices, and their arguments."""
    return (dyn.mass_matrix, states[:1]), (dyn.inverse_dynamics_gradient, states)


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
def test_scans_on_a_gpu_are_recorded(name: str, device: Any) -> None:
    """Of other states, too, which are written to the arrays later."""
    if isinstance(device, HostDevice):
        pytest.skip("the fake device records kernels alone")
    model = models()[name]
    scan, reference = rd.Dynamics(model, engine="scan"), rd.Dynamics(model, engine="reference")
    first, then = (random_states(model, (2,), seed=seed) for seed in (0, 1))
    arrays = there(device, *first)
    single = (there(device, first[0][0])[0],)
    asked: dict[str, tuple[Any, ...]] = {
        "inverse_dynamics": arrays,
        "bias_force": arrays[:2],
        "mass_matrix": arrays[:1],
        "inverse_dynamics_gradient": arrays,
    }
    steps = {query: scan.capture(query, *given) for query, given in asked.items()}
    sparse = scan.capture("mass_matrix", *single, sparse=True)
    for array, value in zip((*arrays, *single), (*then, then[0][0]), strict=True):
        array[...] = device.xp.asarray(value)
    for query, step in steps.items():
        found, wanted = as_tuple(step()), as_tuple(getattr(reference, query)(*then[: len(asked[query])]))
        for one, other in zip(found, wanted, strict=True):
            assert relative(device.xp.asnumpy(one), other) < 1e-10, query
    assert relative(on_numpy(device, sparse()).toarray(), reference.mass_matrix(then[0][0])) < 1e-10
