"""Sparse mass matrices, and forward dynamics by them along the branches, on arrays that live on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import TOLERANCE, random_states, relative
from gpu_host import ORDERS, missing, run_sanitized
from gpu_host.device import DeviceArray, HostDevice
from scipy.sparse import csr_array
from test_gpu_compile import compiles
from test_scan_gpu import MODELS, device, models, required, there

import robodyn as rd
from robodyn.engines.gpu.compiler import compile_reported
from robodyn.engines.scan.algorithms.forward_crba import few_operations
from robodyn.engines.scan.cuda.branch_elimination import branch_kernel
from robodyn.engines.scan.cuda.branches import BranchSolver
from robodyn.engines.scan.cuda.device import ScanDevice
from robodyn.engines.scan.trees.branches import Branches

__all__ = ["device"]  # a fixture

on_host = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
AGREES = {"float64": 1e-11, "float32": 2e-3}
"""Of solutions, relative to the largest."""


# The sparse matrix.


def on_numpy(device: Any, H: Any) -> csr_array:
    """A sparse matrix of the device as one of SciPy's."""
    data, indices, starts = (device.xp.asnumpy(each) for each in (H.data, H.indices, H.indptr))
    return csr_array((data, indices, starts), shape=H.shape)


@pytest.mark.parametrize("name", MODELS)
def test_sparse_mass_matrices_on_a_gpu(name: str, device: Any) -> None:
    model = models()[name]
    scan = rd.Dynamics(model, engine="scan")
    q = random_states(model)[0]
    inertia = model.inertia * (1.0 + np.random.default_rng(0).random((model.n_bodies, 10)))
    for given in ({}, {"inertia": inertia}):
        moved = dict(zip(given, there(device, *given.values()), strict=True))
        wanted = scan.mass_matrix(q, sparse=True, **given)
        found = on_numpy(device, scan.mass_matrix(there(device, q)[0], sparse=True, **moved))
        np.testing.assert_array_equal(found.indptr, wanted.indptr)
        np.testing.assert_array_equal(found.indices, wanted.indices)
        assert relative(found.data, wanted.data) < TOLERANCE["float64"]
        assert relative(found.toarray(), scan.mass_matrix(q, **given)) < TOLERANCE["float64"]


@pytest.mark.parametrize("engine", ["auto", "gpu", "scan"])
def test_sparse_mass_matrices_on_a_gpu_whatever_the_engine(
    engine: Any, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from robodyn.engines.gpu import engine as gpu

    monkeypatch.setattr(gpu, "default_device", lambda: device)
    model = rd.random_tree(5, seed=3, joints=("revolute",), base="floating")
    q = random_states(model)[0]
    wanted = rd.Dynamics(model, engine="reference").mass_matrix(q)
    q[3:7] *= 3.0
    dyn = rd.Dynamics(model, engine=engine)
    found = dyn.mass_matrix(there(device, q)[0], sparse=True)
    assert relative(on_numpy(device, found).toarray(), wanted) < TOLERANCE["float64"]
    single = rd.Dynamics(model, engine=engine, dtype="float32").mass_matrix(there(device, q)[0], sparse=True)
    assert single.data.dtype == np.float32
    assert relative(on_numpy(device, single).toarray(), wanted) < TOLERANCE["float32"]


def test_sparse_mass_matrices_on_a_gpu_are_the_callers_own(device: Any) -> None:
    model = models()["mimic"]
    scan = rd.Dynamics(model, engine="scan")
    (q,) = there(device, random_states(model)[0])
    first = scan.mass_matrix(q, sparse=True)
    first.data[...], first.indices[...], first.indptr[...] = 0.0, 0, 0
    DeviceArray.looks = 0
    again = scan.mass_matrix(q, sparse=True)
    assert DeviceArray.looks == 0
    wanted = scan.mass_matrix(device.xp.asnumpy(q))
    assert relative(on_numpy(device, again).toarray(), wanted) < TOLERANCE["float64"]


def test_what_a_gpus_memory_cannot_hold_is_refused(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = models()["arm"]
    scan = rd.Dynamics(model, engine="scan")
    q, qd, tau = there(device, *random_states(model))
    monkeypatch.setattr("robodyn.engines.scan.cuda.device.ScanDevice.free_bytes", lambda self: 500)
    with pytest.raises(rd.ArgumentError, match=r"^sparse mass matrix: .* entries take .* are available"):
        scan.mass_matrix(q, sparse=True)
    for method in ("crba", "jsiia"):
        with pytest.raises(
            rd.ArgumentError, match=r"^mass matrix: 1 x 7 x 7 entries .* wanted fewer states, or method="
        ):
            scan.forward_dynamics(q, qd, tau, method=method)


# Along the branches.


def bushes() -> dict[str, rd.Model]:
    """Trees whose matrices are mostly zeros."""
    return {
        "binary": rd.auto_tree(120, branching=2, skew=0.3),
        "forest": rd.random_tree(80, seed=3, joints=("revolute", "spherical"), armature=True, shape="star"),
        "random": rd.random_tree(90, seed=2, joints=("revolute", "planar"), armature=True),
    }


@pytest.mark.parametrize("name", bushes())
@pytest.mark.some(of=3, rest="kernels")
def test_forward_dynamics_on_a_gpu_along_the_branches(name: str, device: Any) -> None:
    model = bushes()[name]
    assert few_operations(Branches(model))
    scan, reference = rd.Dynamics(model, engine="scan"), rd.Dynamics(model, engine="reference")
    for shape in ((), (3,)):
        q, qd, qdd = random_states(model, shape)
        tau = reference.inverse_dynamics(q, qd, qdd)
        given = there(device, q, qd, tau)
        DeviceArray.looks = 0
        found = scan.forward_dynamics(*given, method="crba")
        assert DeviceArray.looks == 0
        assert required(model, device.xp.asnumpy(found), (q, qd, tau), {}) < 1e-10
    if isinstance(device, HostDevice):
        names = [launched for launched, _ in device.launches]
        assert names.count("eliminate_level") == names.count("solve_level") == 2 * Branches(model).tree.n_levels


def test_forward_dynamics_on_a_gpu_of_full_matrices_is_the_librarys(device: Any) -> None:
    for model in (rd.auto_tree(100), models()["mimic"]):
        assert model.has_mimic or not few_operations(Branches(model))
    if isinstance(device, HostDevice):
        model = models()["mimic"]
        rd.Dynamics(model, engine="scan").forward_dynamics(*there(device, *random_states(model)), method="crba")
        assert "eliminate_level" not in [name for name, _ in device.launches]


def matrix(model: rd.Model, batch: int, seed: int = 0) -> tuple[Branches, np.ndarray, np.ndarray, np.ndarray]:
    """Rows up to the diagonal of a positive definite matrix with the sparsity of a model's, the whole, and b."""
    print(f"matrix: seed {seed}")
    rng, branches = np.random.default_rng(seed), Branches(model)
    nv = len(branches)
    row = np.repeat(np.arange(nv), branches.tree.depth + 1)
    rows = rng.uniform(-1, 1, (branches.pairs, batch))
    rows[branches.diagonal] = 2.0 * nv
    H = np.zeros((batch, nv, nv))
    H[:, row, branches.ancestors] = H[:, branches.ancestors, row] = rows.T
    return branches, rows, H, rng.uniform(-1, 1, (nv, batch))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.some(of=2, when="kernels")
def test_solutions_along_the_branches(dtype: str, device: Any) -> None:
    for model in (*bushes().values(), rd.auto_tree(1), rd.auto_tree(40), rd.random_tree(33, seed=1)):
        branches, rows, H, b = matrix(model, 3)
        wanted = np.linalg.solve(H, b.T[..., None])[..., 0].T
        given = there(device, rows.astype(dtype), b.astype(dtype))
        found = device.xp.asnumpy(BranchSolver(ScanDevice(device)).solved(branches, *given))
        assert found.dtype == dtype and relative(found, wanted) < AGREES[dtype]


@on_host
def test_solutions_along_the_branches_in_any_order_of_threads() -> None:
    branches, rows, _, b = matrix(bushes()["forest"], 3)
    rows[branches.pairs // 2, 1] = np.nan

    def solved(device: Any, *arrays: np.ndarray) -> np.ndarray:
        return np.asarray(device.xp.asnumpy(BranchSolver(ScanDevice(device)).solved(branches, *there(device, *arrays))))

    first = solved(HostDevice(), rows, b)
    assert np.isfinite(first[:, [0, 2]]).all() and np.isnan(first[:, 1]).any()
    for order in ORDERS[1:]:
        np.testing.assert_array_equal(solved(HostDevice(order), rows, b), first)
    np.testing.assert_array_equal(solved(HostDevice(), rows[:, 2:], b[:, 2:])[:, 0], first[:, 2])


@on_host
@pytest.mark.skipif(bool(missing("thread")), reason=missing("thread") or "it runs")
@pytest.mark.parametrize("name", ["eliminate_level", "solve_level"])
def test_kernels_along_the_branches_have_no_races(name: str) -> None:
    branches, rows, _, b = matrix(rd.auto_tree(15, branching=2), 2)
    tree, depth = branches.tree, 2
    source = branch_kernel(name, np.dtype(np.float64))
    indices = [tree.level(depth), branches.first]
    indices += (
        [tree.preorder, tree.preorder_rank, tree.subtree_size] if name == "eliminate_level" else [branches.ancestors]
    )
    source = replace(source, constants=tuple(each.astype(np.int64) for each in indices))
    arrays = {"entries": rows, "vector": b, "reciprocals": np.ones(b.shape), "solution": np.ones(b.shape)}
    inputs, outputs = ({each: arrays[each] for each in names} for names in (source.inputs, source.outputs))
    numbers = [2, depth]
    assert run_sanitized(source, inputs, outputs, "thread", 2, rows=len(indices[0]), numbers=numbers) == ""


@compiles
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_kernels_along_the_branches_keep_their_budgets(dtype: str, architecture: str) -> None:
    for name in ("eliminate_level", "solve_level"):
        report = compile_reported(branch_kernel(name, np.dtype(dtype)), architecture).report
        assert report.registers <= 64, (name, report)
        assert report.stack_bytes == report.spill_bytes == report.shared_bytes == 0, (name, report)
