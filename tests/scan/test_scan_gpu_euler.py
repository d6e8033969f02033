"""Vector trees on arrays that live on a GPU: a fake device runs the kernels on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import TOLERANCE, random_states, relative
from gpu_host.device import DeviceArray
from test_gpu_scans import OPERATORS, elements
from test_scan_gpu import MODELS, compare, device, models, outside, there

import robodyn as rd
from robodyn.engines.scan import HeavyPaths, ScanOptions, VectorTree
from robodyn.engines.scan.cuda.device import ScanDevice
from robodyn.engines.scan.elements import scanning_on
from robodyn.engines.scan.methods import methods_of
from robodyn.engines.scan.semigroups import Semigroup

__all__ = ["device"]  # a fixture

EULER = ScanOptions(layout="euler")
AGREES = 1e-10
"""With other engines, relative to the largest: what is taken back leaves its rounding behind."""
LONG = 700
"""Bodies of a tree whose tour is longer than a tile."""


# Trees.


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
@pytest.mark.some(of=8, rest="kernels")
def test_vector_trees_on_a_gpu_are_numpys(op: Semigroup, device: Any) -> None:
    for model in (rd.auto_tree(1), rd.auto_tree(33), rd.random_tree(60, seed=2), rd.auto_tree(LONG, branching=1.5)):
        place = ScanDevice(device)
        tree, moved = VectorTree(model.tree), VectorTree(model.tree, place.placed)
        given = elements(op, model.n_bodies, 2)
        there_given = device.xp.asarray(given)
        with scanning_on(place):
            for inclusive in (True, False):
                found = moved.rootfix(op, there_given, inclusive=inclusive)
                assert isinstance(found, device.xp.ndarray)
                assert relative(device.xp.asnumpy(found), tree.rootfix(op, given, inclusive=inclusive)) < 1e-11
                found = moved.leaffix(op, there_given, inclusive=inclusive)
                assert relative(device.xp.asnumpy(found), tree.leaffix(op, given, inclusive=inclusive)) < 1e-11
            outward = HeavyPaths(model.tree, place.placed).rootfix(op, there_given)
        assert relative(device.xp.asnumpy(outward), tree.rootfix(op, given)) < 1e-11


# Queries.


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", methods_of("inverse_dynamics"))
@pytest.mark.some(of=6, rest="kernels")
def test_vector_trees_on_a_gpu_give_inverse_dynamics(method: str, name: str, device: Any) -> None:
    model = models()[name]
    scan, reference = rd.Dynamics(model, engine="scan", scan=EULER), rd.Dynamics(model, engine="reference")
    for shape in ((), (2, 2)):
        q, qd, qdd = random_states(model, shape)
        for given in ({}, outside(model, shape)):
            wanted = scan.inverse_dynamics(q, qd, qdd, method=method, **given)
            assert relative(wanted, reference.inverse_dynamics(q, qd, qdd, **given)) < AGREES
            moved = dict(zip(given, there(device, *given.values()), strict=True))
            compare(device, scan.inverse_dynamics(*there(device, q, qd, qdd), method=method, **moved), wanted)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.some(of=3, rest="kernels")
def test_vector_trees_on_a_gpu_give_mass_matrices_and_gradients(name: str, device: Any) -> None:
    model = models()[name]
    scan = rd.Dynamics(model, engine="scan", scan=EULER)
    for shape in ((), (2, 2)):
        states, given = random_states(model, shape), outside(model, shape)
        (q,), (inertia,) = there(device, states[0]), there(device, given["inertia"])
        compare(device, scan.mass_matrix(q), scan.mass_matrix(states[0]))
        compare(device, scan.mass_matrix(q, inertia=inertia), scan.mass_matrix(states[0], inertia=given["inertia"]))
        moved = dict(zip(given, there(device, *given.values()), strict=True))
        found = scan.inverse_dynamics_gradient(*there(device, *states), **moved)
        compare(device, found, scan.inverse_dynamics_gradient(*states, **given))


@pytest.mark.parametrize("kernel", ["native", "mapped", "hillis_steele"])
def test_vector_trees_on_a_gpu_have_one_kernel_whatever_is_asked_for(kernel: str, device: Any) -> None:
    model = models()["bush"]
    states = random_states(model, (2,))
    scan = rd.Dynamics(model, engine="scan", scan=ScanOptions(layout="euler", kernel=kernel))
    compare(device, scan.inverse_dynamics(*there(device, *states)), scan.inverse_dynamics(*states))


def test_vector_trees_on_a_gpu_give_forward_dynamics(device: Any) -> None:
    model = models()["kinds"]
    q, qd, qdd = random_states(model, (3,))
    scan, reference = rd.Dynamics(model, engine="scan", scan=EULER), rd.Dynamics(model, engine="reference")
    tau = reference.inverse_dynamics(q, qd, qdd)
    found = device.xp.asnumpy(scan.forward_dynamics(*there(device, q, qd, tau), method="crba"))
    assert relative(reference.inverse_dynamics(q, qd, found), tau) < AGREES


def test_vector_trees_on_a_gpu_in_single_precision(device: Any) -> None:
    model = models()["kinds"]
    states = random_states(model, (2,))
    scan = rd.Dynamics(model, engine="scan", dtype="float32", scan=EULER)
    wanted = rd.Dynamics(model, engine="reference").inverse_dynamics(*states)
    found = scan.inverse_dynamics(*there(device, *states))
    assert found.dtype == np.float32
    compare(device, found, wanted, 10 * TOLERANCE["float32"])


def test_vector_trees_on_a_gpu_keep_nan_in_its_row_and_do_not_wait(device: Any) -> None:
    model = models()["forest"]
    q, qd, qdd = random_states(model, (4,))
    scan = rd.Dynamics(model, engine="scan", scan=EULER)
    right = device.xp.asnumpy(scan.inverse_dynamics(*there(device, q, qd, qdd)))
    qd[1, 0] = np.nan
    given = there(device, q, qd, qdd)
    DeviceArray.looks = 0
    found = scan.inverse_dynamics(*given)
    assert DeviceArray.looks == 0
    found = device.xp.asnumpy(found)
    assert np.isnan(found[1]).any()
    np.testing.assert_array_equal(found[[0, 2, 3]], right[[0, 2, 3]])
