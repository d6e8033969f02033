"""What stages of a chain leave out, as no solve reads it: results do not depend on what is there instead."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.algorithms.tasks import Chain, Stage
from robodyn.compile.llvm.target import LEVELS, host_target
from robodyn.compile.tracing.program import is_unread
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.engines.cpu import hoisting, route
from robodyn.engines.cpu.backends import BACKEND_VARIABLE
from robodyn.engines.cpu.chains.dead_outputs import unread
from robodyn.engines.cpu.engine import CpuEngine
from robodyn.engines.cpu.kernels import workspace
from robodyn.internals.errors import UnavailableError
from robodyn.tools.benchmark.contenders import draw

QUERIES = ("forward_dynamics_gradient", "forward_dynamics_hessian", "mass_matrix_inverse", "forward_dynamics")
KINDS = ("revolute", "prismatic", "spherical", "planar", "helical")
TOLERANCES = {"float64": 1e-9, "float32": 2e-2}  # of the largest entry; condition numbers are up to 1e5


def tree(seed: int) -> rd.Model:
    """Several trees on the world, or one that floats; every third has joints that mimic others."""
    base = "floating" if seed % 2 else "fixed"
    return rd.random_tree(10, seed=seed, joints=KINDS, base=base, mimic=0.4 * (seed % 3 == 0), armature=True)


def in_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """No chain is one program, however small the robot is."""
    plain = route.most_operations

    def limit(asked, mode):
        return None if isinstance(asked.algorithm, Chain) else plain(asked, mode)

    for module in (route, hoisting):
        monkeypatch.setattr(module, "most_operations", limit)


def run_in_dirt(kernel, values: dict[str, np.ndarray], dtype) -> dict[str, np.ndarray]:
    """Results of a kernel whose scratch memory and results begin as NaN."""
    rows, task, model = len(values["q"]), kernel.request.algorithm, kernel.request.model
    outputs = {
        name: np.full((rows, *output_shape(model, output)), np.nan, dtype) for name, output in task.outputs.items()
    }
    arrays = [np.ascontiguousarray(values[name], dtype) for name in kernel.inputs] + list(outputs.values())
    words = [word for array in arrays for word in (array.ctypes.data, array.strides[0])]
    table = (ctypes.c_int64 * (len(words) + len(kernel.constants)))(*words, *kernel.constants)
    if kernel.batch:
        table[len(table) - 1] = rows
    address, owner = workspace(kernel.workspace_bytes)
    owner[:] = 255
    kernel.function(ctypes.addressof(table), 0, rows, address)
    return outputs


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("backend", ["x86", "llvm"])
@pytest.mark.parametrize("level", list(LEVELS))
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.some(of=9, when="matrix")
def test_chains_in_scratch_memory_that_holds_no_numbers(seed, level, backend, dtype, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv(BACKEND_VARIABLE, backend)
    in_stages(monkeypatch)
    model = tree(seed)
    try:
        engine = CpuEngine(model, np.dtype(dtype), target=host_target(level))
        engine.kernel(rd.Dynamics(model, engine="reference").plain_task("mass_matrix"))
    except UnavailableError as error:
        pytest.skip(str(error))
    right, states = rd.Dynamics(model, engine="reference"), draw(model, 21, seed)
    for query in QUERIES:
        task = right.plain_task(query)
        if not isinstance(task, Chain):  # of robots without joints that mimic
            continue
        vectors = np.random.default_rng(seed).standard_normal((21, model.nv))
        values = {**states, "tau": states["qdd"], "vector": vectors}
        kernel = engine.kernel(task)
        assert kernel.mode == "chained"
        inputs = {name: values[name] for name in kernel.inputs if name != "q"}
        given = {"vector": inputs.pop("vector")} if "vector" in inputs else {}
        wanted = getattr(right, query)(values["q"], **inputs, **given)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for got, exact in zip(run_in_dirt(kernel, values, dtype).values(), wanted, strict=True):
            largest = np.abs(exact).max(axis=tuple(range(1, exact.ndim)), initial=1e-3, keepdims=True)
            assert (np.abs(got - exact) <= TOLERANCES[dtype] * largest).all(), query


@pytest.mark.parametrize("name", ["humanoid", "quadruped", "hand"])
def test_programs_leave_out_what_the_tree_makes_zero_and_what_stands_above_the_diagonal(name) -> None:
    """Most of a mass matrix, and of a gradient all that no tile of a solve passes."""
    model = rd.load_urdf(own(name))
    dyn = rd.Dynamics(model, engine="cpu")
    chain = dyn.plain_task("forward_dynamics_gradient")
    found = unread(model, chain)
    H = dyn.mass_matrix(model.neutral())
    assert set(found) >= {"H"} and not found["H"].zero
    assert (found["H"].entries.reshape(H.shape) >= (np.triu(np.ones_like(H), 1) > 0)).all()
    requests = [each for each in route.parts_of(dyn.engine.request(chain)) if each.unread]
    stages = [stage for stage in chain.stages if isinstance(stage, Stage)]
    assert len(requests) == len({stage.algorithm.name for stage in stages if set(stage.outputs) & set(found)})
    for request in requests:
        for port in request.trace().outputs:
            left = dict(request.unread).get(port.name, bytes(port.size))
            assert [is_unread(scalar) for scalar in port.scalars] == [bool(each) for each in left]


def test_what_others_read_is_left_whole() -> None:
    """The Hessian's products read what its solves leave, and a mass matrix that is a result is all there."""
    model = rd.load_urdf(own("humanoid"))
    dyn = rd.Dynamics(model, engine="cpu")
    hessian = dyn.plain_task("forward_dynamics_hessian")
    found = unread(model, hessian)
    assert set(found) == {"H", "tau_q", "tau_qd"} and found["tau_q"].zero
    for names in ({"D_qq", "C", "D_q_qd", "D_qd_qd"}, {"bias"}):
        assert names.isdisjoint(found)
