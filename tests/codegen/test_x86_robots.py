"""Every query of robots: the bits of our own machine code are those of LLVM's."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest
from robots import OWN, SHARED

import robodyn as rd
from robodyn.compile.llvm.target import host_target
from robodyn.compile.tracing.unrolled import input_shapes, output_shape
from robodyn.engines.cpu import backends
from robodyn.engines.cpu.engine import CpuEngine
from robodyn.engines.cpu.kernels import workspace
from robodyn.engines.cpu.route import SingleProgram
from robodyn.engines.query_table import QUERIES

pytestmark = pytest.mark.skipif(
    host_target().level == "neon" or not backends._runs(host_target().level),
    reason="this processor or system has it not",
)
MOST = 6000
"""Operations of a program from which LLVM takes seconds."""
MATRIX = ("arm7", "ball_joint_arm", "massless_chain", "planar_rover", "satellite", "screw_press")
"""All kinds of joints, fixed; and one robot that floats and mimics."""


def cases():
    """Small robots by the mark `matrix`, and all; levels and precisions in turns."""
    levels = ("avx512", "avx2") if host_target().level == "avx512" else ("avx2",)
    kinds = itertools.cycle(itertools.product(levels, ("float64", "float32")))
    for path in (*OWN, *SHARED):
        for base in ("fixed", "floating"):
            level, dtype = next(kinds)
            often = (path.stem in MATRIX and base == "fixed") or (path.stem, base) == ("gripper", "floating")
            marks = [pytest.mark.matrix if often else pytest.mark.nightly]
            yield pytest.param(path, base, level, dtype, marks=marks)
        next(kinds)


def kernels_of(model, query, dtype, target, monkeypatch, single):
    """The kernels of both code generators; nothing where the query is no program, or one that is too large."""
    link = len(model.link_names) - 1 if QUERIES[query].of_link else None
    found = []
    for backend in ("x86", "llvm"):
        monkeypatch.setenv(backends.BACKEND_VARIABLE, backend)
        engine = CpuEngine(model, np.dtype(dtype), threads=1, target=target)
        request = engine.request(QUERIES[query].plain_task(model), link=link)
        try:
            route = engine.compiler.route(request)
        except rd.SingularError:  # of what some robots divide by zero
            return []
        if not isinstance(route, SingleProgram) or (route.program is not None and route.program.operations > MOST):
            return []
        found.append(engine.compiler.kernel(request, single=single))
    return found


def results_of(model, kernel, rows, dtype):
    rng = np.random.default_rng(3)
    task = kernel.request.algorithm
    shapes = input_shapes(model, task, ())
    given = [
        model.random_configuration(rng, (rows,)) if name == "q" else rng.normal(size=(rows, *shapes[name]))
        for name in kernel.inputs
    ]
    arrays = [np.ascontiguousarray(array.reshape(rows, -1), dtype) for array in given]
    results = [np.full((rows, *output_shape(model, each)), np.nan, dtype) for each in task.outputs.values()]
    words = [word for a in (*arrays, *results) for word in (a.ctypes.data, a.nbytes // rows)]
    table = (ctypes.c_int64 * (len(words) + len(kernel.constants)))(*words, *kernel.constants)
    if kernel.batch:
        table[len(table) - 1] = rows
    scratch, owner = workspace(kernel.workspace_bytes)
    kernel.function(ctypes.addressof(table), 0, rows, scratch)
    del owner
    return results


@pytest.mark.parametrize(("path", "base", "level", "dtype"), tuple(cases()))
def test_every_query_has_llvms_bits(path, base, level, dtype, monkeypatch):
    try:
        target = host_target(level)
    except rd.UnavailableError as error:
        pytest.skip(str(error))
    model = rd.load_urdf(path, base=base)
    singular = rd.Dynamics(model, engine="reference").singularity() is not None
    compared = 0
    for query in QUERIES:
        wanted = {}
        for single in (False, True) if model.n_bodies else ():
            both = kernels_of(model, query, dtype, target, monkeypatch, single)
            for rows in (1, target.width(np.dtype(dtype)) + 3) if both else ():
                ours, theirs = (results_of(model, kernel, rows, dtype) for kernel in both)
                for one, other, of_batch in zip(ours, theirs, wanted.setdefault(rows, ours), strict=True):
                    assert not np.isnan(one).any() or dtype == "float32" or singular, query
                    np.testing.assert_array_equal(one, other, err_msg=query)
                    np.testing.assert_array_equal(one, of_batch, err_msg=f"{query}, one state at a time")
                compared += 1
    print(f"{compared} comparisons")
    assert compared > 10 or model.n_bodies > 10 or not model.n_bodies
