"""Programs in two halves: what does not depend on an input, and the rest; as machine code at every unit vector."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from assembler import assemble
from conftest import random_states, relative
from random_programs import run
from robots import own

import robodyn as rd
from robodyn.algorithms.forward_hessian import forward_hessian
from robodyn.algorithms.idsva_hessian import idsva_hessian
from robodyn.algorithms.tasks import with_identity_seeds
from robodyn.compile.cache import ObjectCache
from robodyn.compile.llvm.jit import Code, compile_object
from robodyn.compile.llvm.target import host_target
from robodyn.compile.llvm.unrolled_code import unrolled_module
from robodyn.compile.tracing.expression import Graph
from robodyn.compile.tracing.program import SHARED, Program
from robodyn.compile.tracing.unrolled import trace
from robodyn.compile.x86 import memory
from robodyn.compile.x86.program import assembled
from robodyn.description import JOINT_TYPES
from robodyn.engines.cpu import backends, hoisting
from robodyn.engines.cpu.hoisting import Images, find_hoisted
from robodyn.internals import tuning

OUTSIDE = ("q", "qd", "qdd", "vector", "f_ext")
TASKS = {"inverse": idsva_hessian(), "with forces": idsva_hessian(OUTSIDE), "forward": forward_hessian()}
TREES = {
    "fixed": {"seed": 3},
    "floating": {"seed": 4, "base": "floating"},
    "mimic": {"seed": 5, "mimic": 0.5},
}
here = pytest.mark.skipif(
    not backends._runs(host_target().level) or host_target().level != "avx512",
    reason="no instruction of this processor spreads a number, or its system runs no code of ours",
)


def tree(name: str) -> rd.Model:
    return rd.random_tree(7, joints=JOINT_TYPES, **TREES[name])


def given_to(model: rd.Model, program: Program, vectors: int) -> dict[str, np.ndarray]:
    """One state, and some vectors."""
    rng = np.random.default_rng(1)
    found = {port.name: rng.standard_normal(port.shape) for port in program.inputs}
    return {**found, "vector": rng.standard_normal((vectors, model.nv)), "q": model.random_configuration(2)}


# Programs.


@pytest.mark.parametrize(("task", "name"), list(itertools.product(TASKS, TREES)))
@pytest.mark.some(of=8, rest="matrix")
def test_halves_compute_what_the_whole_does(task, name):
    """In the same operations, so to the bit; the first without the vector, the second without the state."""
    model = tree(name)
    whole = trace(model, TASKS[task])
    first, second = whole.halves("vector")
    given = given_to(model, whole, 3)
    state = {key: each for key, each in given.items() if key != "vector"}
    shared = first.evaluate(state)[SHARED]
    assert shared.shape == (first.outputs[0].size,) and shared.size
    got = second.evaluate({"vector": given["vector"], SHARED: shared})
    for key, right in whole.evaluate(given).items():
        np.testing.assert_array_equal(got[key], right)
    assert 0.3 * whole.operations < first.operations < 0.8 * whole.operations
    assert first.operations + second.operations <= whole.operations


def test_what_needs_no_vector_is_handed_on():
    """A result that the vector does not change, an input, and a number."""
    graph = Graph()
    x, vector = graph.inputs(3), graph.inputs(2)
    results = [x[0] * x[1], x[2], 2.5, vector[0] + x[2], vector[1], (x[0] * x[1]) * vector[0]]
    ports = {"x": ((3,), x), "vector": ((2,), vector)}
    whole = Program.of("f", graph, ports, {"y": ((6,), results)})
    first, second = whole.halves("vector")
    assert first.outputs[0].size == 2 and first.operations == 1 and second.operations == 2
    arrays = {"x": np.array([3.0, 5.0, 7.0]), "vector": np.array([11.0, 13.0])}
    shared = first.evaluate(arrays)[SHARED]
    assert sorted(shared) == [7.0, 15.0]
    got = second.evaluate({"vector": arrays["vector"], SHARED: shared})["y"]
    np.testing.assert_array_equal(got, [15.0, 7.0, 2.5, 18.0, 13.0, 165.0])
    alone, rest = whole.halves("x")
    assert alone.operations == 0 and rest.operations == whole.operations


# Machine code.


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins with a line, as vectors do."""
    room = np.empty(array.size + 64, array.dtype)
    start = -room.ctypes.data % 64 // array.itemsize
    copy = room[start : start + array.size]
    copy[:] = array
    return copy


@here
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", TREES)
@pytest.mark.some(of=10, rest="matrix")
def test_numbers_that_are_spread_have_llvms_bits(name, dtype):
    """The second half beside LLVM's code, which reads vectors of the same numbers; vectors of every remainder."""
    model, target, kind = tree(name), host_target(), np.dtype(dtype)
    first, second = trace(model, TASKS["inverse"]).halves("vector")
    width = target.width(kind)
    driver = backends._driver(target, width, ObjectCache.from_environment())
    made = assembled(second, kind, target, spread=frozenset((SHARED,)))
    ours = memory.LoadedImage(made.image(), driver.address("drive"), driver)
    module = unrolled_module(second, kind, target, vectors=frozenset((SHARED,)))
    theirs = Code(compile_object(module, target, 1), target)
    for rows in (1, width - 1, width):  # vectors are for one vector of states, scalars for all
        given = given_to(model, second, rows)
        shared = np.random.default_rng(3).standard_normal(first.outputs[0].size).astype(dtype)
        vector = given["vector"].astype(dtype)
        names = [port.name for port in second.inputs]
        found = []
        vectors = aligned(np.repeat(shared, width))
        for code, numbers in ((ours, shared[None]), (theirs, vectors[None])):
            outputs = [np.full((rows, port.size), np.nan, dtype) for port in second.outputs]
            arrays = [{"vector": vector, SHARED: numbers}.get(each, np.zeros((rows, 1), dtype)) for each in names]
            run(code.address("kernel"), [*arrays, *outputs], rows)
            found.append(outputs)
        for one, other in zip(*found, strict=True):
            assert not np.isnan(one).any()
            np.testing.assert_array_equal(one, other)


@here
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_second_half_is_what_llvms_assembler_makes_of_its_listing(dtype):
    second = trace(tree("floating"), TASKS["forward"]).halves("vector")[1]
    made = assembled(second, np.dtype(dtype), host_target(), spread=frozenset((SHARED,)))
    lines = [line.strip() for line in made.listing().splitlines()[1:] if "rip" not in line]
    (body,) = made.bodies
    assert sum("{1to" in line for line in lines) > 0.3 * second.operations
    assert assemble(lines) == made._before(body) + made._after(body)


# Kernels.

FORWARD = ("q", "qd", "tau", "vector", "f_ext")
UNITS = {"inverse_dynamics_hessian": idsva_hessian(OUTSIDE), "forward_dynamics_hessian": forward_hessian(FORWARD)}


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path / "objects"))


def kernels(dyn: rd.Dynamics) -> list:
    return [each for each in dyn.engine._kernels.values() if each.mode in ("halved", "repeated")]


@here
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("query", UNITS)
@pytest.mark.some(of=4, when="matrix")
def test_whole_second_derivatives_are_made_of_halves(query, dtype, monkeypatch):
    """Of a robot with more degrees of freedom than a vector has lanes; a row of a batch has the bits of one state."""
    model = rd.random_tree(12, seed=6, joints=("revolute",), shape="star", base="floating")
    assert model.nv > 16
    q, qd, x = random_states(model, (5,))
    f_ext = np.random.default_rng(0).standard_normal((5, model.n_bodies, 6))
    dyn = rd.Dynamics(model, dtype=dtype, engine="cpu")
    got = getattr(dyn, query)(q, qd, x, f_ext=f_ext)
    made = dyn.engine.generated(with_identity_seeds(UNITS[query]))
    assert made.mode == "halved" and made.assembly.count("kernel:") == 3 and made.ir.count("define") > 2
    assert made.operations < 0.7 * model.nv * trace(model, UNITS[query]).operations
    with pytest.raises(rd.UnavailableError, match="halved code is not one graph"):
        _ = made.program
    for k in (0, 4):
        alone = getattr(dyn, query)(*(each[k] for each in (q, qd, x)), f_ext=f_ext[k])
        for one, many in zip(alone, got, strict=True):
            np.testing.assert_array_equal(one, many[k])
    monkeypatch.setenv(backends.BACKEND_VARIABLE, "llvm")
    other = rd.Dynamics(model, dtype=dtype, engine="cpu")
    right = getattr(other, query)(q[:2], qd[:2], x[:2], f_ext=f_ext[:2])
    assert other.engine.generated(with_identity_seeds(UNITS[query])).mode in ("repeated", "apart")
    for one, wanted in zip(got, right, strict=True):
        assert relative(one[:2], wanted) < {"float64": 1e-11, "float32": 1e-3}[dtype]


@here
@pytest.mark.matrix
def test_halves_come_from_the_cache(folder, monkeypatch):
    """Another engine makes nothing anew; what is no code of both is made again."""
    model = rd.load_urdf(own("arm7"))
    q, qd, x = random_states(model)

    def answer():
        return rd.Dynamics(model, engine="cpu").forward_dynamics_hessian(q, qd, x)

    def request():
        engine = rd.Dynamics(model, engine="cpu").engine
        return engine, engine.request(with_identity_seeds(forward_hessian()))

    engine, asked = request()
    assert not engine.compiler.in_cache(asked, single=True)
    wanted = answer()
    assert engine.compiler.in_cache(asked, single=True)
    cache = ObjectCache.from_environment()
    (entry,) = [each for each in cache.entries() if "forward_hessian" in each.label]
    good = cache.get(entry.key)
    assert Images.unpacked(good).packed() == good
    with monkeypatch.context() as patched:
        patched.setattr(hoisting, "assembled", lambda *_, **__: pytest.fail("made again"))
        np.testing.assert_array_equal(answer(), wanted)
    size = int.from_bytes(good[16:24], "little")
    for bad in (
        *(b"", b"too large", good[:-1], good + b"x", b"?" + good[1:], good[:24], good[: 24 + size]),
        *(good[:16] + (size + by).to_bytes(8, "little", signed=True) + good[24:] for by in (1, -1, -size - 1, 1 << 40)),
        *(good[:8] + count.to_bytes(8, "little", signed=True) + good[16:] for count in (0, -1)),
    ):
        assert Images.unpacked(bad) is None
        cache.put(entry.key, bad, entry.label)
        assert not engine.compiler.in_cache(asked, single=True)
        np.testing.assert_array_equal(answer(), wanted)
        assert cache.get(entry.key) == good


@here
@pytest.mark.matrix
def test_what_is_too_large_is_not_halved(folder, monkeypatch):
    model = tree("floating")
    q, qd, x = random_states(model)
    wanted = rd.Dynamics(model, engine="cpu").forward_dynamics_hessian(q, qd, x)
    for kind in ("contracted query", "contracted chain"):
        monkeypatch.setitem(tuning.MAX_OPERATIONS["x86"], kind, 100)
    dyn = rd.Dynamics(model, engine="cpu")
    for one, right in zip(dyn.forward_dynamics_hessian(q, qd, x), wanted, strict=True):
        assert relative(one, right) < 1e-11
    assert [each.mode for each in kernels(dyn)] in ([], ["repeated"])
    engine = dyn.engine
    assert find_hoisted(engine.request(with_identity_seeds(forward_hessian())), "auto", engine.compiler.cache) is None
    assert find_hoisted(engine.request(with_identity_seeds(forward_hessian())), "rolled", engine.compiler.cache) is None


@here
def test_where_nothing_is_shared_there_are_no_halves():
    """Joints that slide along fixed directions: second derivatives are zero whatever the state."""
    model = rd.random_tree(4, seed=1, joints=("prismatic",))
    q, qd, x = random_states(model)
    dyn = rd.Dynamics(model, engine="cpu")
    for tensor in dyn.forward_dynamics_hessian(q, qd, x):
        np.testing.assert_allclose(tensor, 0.0, atol=1e-13)
