"""Rolled code as Python, operation by operation, against the same as machine code."""

from __future__ import annotations

import ast
import ctypes
from typing import ClassVar

import numpy as np
import pytest
from conftest import relative

import robodyn as rd
from robodyn.compile.llvm.jit import OPT, Code, compile_object
from robodyn.compile.llvm.straight_line import attributes
from robodyn.compile.llvm.target import host_target
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.loops import language
from robodyn.compile.loops.language import Array, bound, struct_of
from robodyn.compile.loops.llvm import Module
from robodyn.compile.loops.table import Argument
from robodyn.compile.tracing.expression import CONSTANT
from robodyn.engines.cpu.engine import CpuEngine
from robodyn.engines.cpu.loops import runtime, steps
from robodyn.engines.cpu.loops.program import RolledProgram
from robodyn.engines.cpu.parts import plan, program
from robodyn.engines.cpu.parts.code import CALL_WORDS


class Value(np.ndarray):
    """Numbers of some states, and what they are if that is known."""

    constant = None


class AtOnce:
    """In the place of a reader: does what that one notes."""

    primitives: ClassVar = {"spread": lambda _, of, value: language.spread(of, value)}

    def binary(self, op, a, b):
        return a + b if isinstance(op, ast.Add) else a * b

    def moved(self, of, k):
        return of + k

    def load(self, at):
        return at[0]

    def cast(self, of, kind):
        return Array(int(of), kind.to)

    def once(self, key, make):
        return make()

    def compared(self, op, a, b):
        return a == b

    def select(self, test, a, b):
        return a if test else b

    def typed(self, value, kind):
        return language.spread(kind, value) if isinstance(value, float) else value

    def do(self, code, value, at):
        assert code == "store"
        at[0] = value


class Step(steps.StepReader):
    """A step whose program is evaluated."""

    def _results(self):
        traced = self.step.program
        given = np.stack([self._source(each) for each in self.step.sources], -1) if self.step.sources else np.empty(0)
        found = []
        for k, node in enumerate(traced.outputs[0].scalars):
            found.append(traced.evaluate({"in": given})["out"][..., k].view(Value))
            operation, constant, _ = traced.nodes[node] if isinstance(node, int) else (CONSTANT, node, 0)
            found[-1].constant = constant if operation == CONSTANT else None
        return found


@pytest.fixture
def as_python(monkeypatch):
    def run(self, step, bases, **subjects):
        Step(self.module, AtOnce(), step, bases, subjects).read()

    monkeypatch.setattr(steps.Steps, "__call__", run)


def arrays_of(kernel, rows):
    """Inputs of a kernel, and outputs of NaN, by name."""
    rng, of = np.random.default_rng(7), kernel.keep
    found = {}
    for name in (*of.module.inputs, *of.module.algorithm.outputs):
        shape = rows, of._columns(name)
        found[name] = rng.uniform(0.2, 1.0, shape) if name in of.module.inputs else np.full(shape, np.nan)
    return found


def run(kernel, arrays, *, python):
    """A kernel on its rows; of one of tasks all tasks in their order, for one vector of states after another."""
    module, rows = kernel.keep.module, len(next(iter(arrays.values())))
    words = [word for array in arrays.values() for word in (array.ctypes.data, array.strides[0])]
    table = (ctypes.c_int64 * (len(words) + len(kernel.constants)))(*words, *kernel.constants)
    workspace = np.zeros(kernel.workspace_bytes // 8 + 8)
    place = -(-workspace.ctypes.data // 64) * 64

    def go(last):
        if python:
            with bound(**module.types):
                module.KERNEL(Array(ctypes.addressof(table), struct_of(Argument)), 0, last, place, module)
        else:
            kernel.function(ctypes.addressof(table), 0, last, place)

    if not kernel.tasks:
        go(rows)
    for row in range(0, rows if kernel.tasks else 0, kernel.width):
        done = np.zeros(kernel.tasks, np.int32)
        table[-CALL_WORDS:] = [row, rows, done.ctypes.data, 0]
        go(kernel.tasks)
        assert done.all()


def compare(dyn, rows):
    """All kernels of an engine both ways; their number."""
    kernels = list(dyn.engine._kernels.values())
    for kernel in kernels:
        kernels += getattr(kernel.keep, "kernels", ())
        kernels += [kernel.keep._kernel] if hasattr(kernel.keep, "_kernel") else []  # around another one
    kernels = [each for each in kernels if isinstance(each.keep, RolledProgram)]
    for kernel in kernels:
        wanted, found = arrays_of(kernel, rows), arrays_of(kernel, rows)
        run(kernel, wanted, python=False)
        run(kernel, found, python=True)
        for name, array in wanted.items():
            assert relative(found[name], array) < 1e-11, (kernel.request.algorithm.name, name)
    return len(kernels)


@pytest.mark.some(of=3, when="matrix")
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("tree", [{"joints": ("revolute",)}, {"armature": True}, {"base": "floating"}])
def test_loops_over_trees(tree, rows, as_python):
    model = rd.random_tree(5, seed=2, **tree)
    dyn = rd.Dynamics(model, engine="cpu", threads=1, code="rolled")
    rng = np.random.default_rng(1)
    q, (qd, qdd) = model.random_configuration(rng, (rows,)), rng.normal(size=(2, rows, model.nv))
    dyn.inverse_dynamics(q, qd, qdd)
    dyn.forward_dynamics(q, qd, qdd)
    dyn.mass_matrix(q)
    dyn.inverse_dynamics_gradient(q, qd, qdd)
    dyn.forward_kinematics(q)
    dyn.jacobian(q, link=model.link_names[-1])
    dyn.jacobian_derivative(q, qd, link=model.link_names[-1])
    assert compare(dyn, rows) >= 7


def test_loops_over_joints_that_follow_others(as_python):
    model = rd.load_urdf(rd.__path__[0] + "/../models/gripper.urdf")
    dyn = rd.Dynamics(model, engine="cpu", threads=1, code="rolled")
    q = np.full((3, model.nq), 0.01)
    dyn.inverse_dynamics(q, q, q)
    dyn.mass_matrix(q)
    assert compare(dyn, 3) >= 2


@pytest.mark.matrix
def test_loops_over_parts_of_a_tree(as_python, monkeypatch):
    for module, name, value in ((plan, "LEAST_BODIES", 1), (plan, "LEAST_GAIN", 0.0), (program, "LEAST_GRAIN", 3)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(program, "MOST_GRAIN", 3)
    model = rd.random_tree(20, seed=4)
    dyn = rd.Dynamics(model, engine="cpu", threads=2, code="rolled")
    q, (qd, qdd) = model.random_configuration(np.random.default_rng(1)), np.ones((2, model.nv))
    dyn.inverse_dynamics(q, qd, qdd)
    dyn.forward_dynamics(q, qd, qdd)
    dyn.forward_kinematics(q)
    assert isinstance(dyn.engine, CpuEngine) and any(each.tasks for each in dyn.engine._kernels.values())
    assert compare(dyn, 3) >= 3


# What loops call beside steps.


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("count", [1, 7, 8, 16, 19])
def test_rows_into_vectors_and_back(dtype, count):
    """Rows past the end are the last one again, and nothing is written behind what there is."""
    target, (first, rows), end = host_target(), (2, 5), 4
    kind = VectorType.of(np.dtype(dtype), target)
    W, rng = kind.width, np.random.default_rng(count)
    functions = {
        "stage_in": (runtime.stage_in, {"width": W}),
        "stage_out": (runtime.stage_out, {"width": W, "places": None}),
        "stage_packed": (runtime.stage_out, {"width": W}),
    }
    module = Module(runtime.types_of(kind), "#0")
    for name, (function, known) in functions.items():
        module.export(function, name, **known)
    code = Code(compile_object(module.text() + attributes(target), target, OPT), target)
    places = rng.integers(0, 3, count)
    places[: min(count, W)] = 1  # all the same
    given = rng.normal(size=(rows, count + 3)).astype(dtype)
    scattered = rng.normal(size=(3, W)).astype(dtype)
    found = []
    for python in (True, False):
        data, vectors, packed = given.copy(), np.full((count + 2, W), 7, dtype), given.copy()

        def call(name, *arguments, python=python):
            if not python:
                ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(arguments))(code.address(name))(*arguments)
                return
            types, (function, _) = runtime.types_of(kind), functions[name]
            of = {4: types["Loose"], 5: language.I64} if name == "stage_packed" else {4: types["Loose"]}
            typed = [Array(each, of[k]) if k in of else each for k, each in enumerate(arguments)]
            if name == "stage_out":
                typed.insert(5, None)
            with bound(**types):
                function(*typed, W)

        stride = data.strides[0]
        call("stage_in", data.ctypes.data, stride, first, end, vectors.ctypes.data, count)
        assert np.array_equal(vectors[:count], given[np.minimum(np.arange(W) + first, end), :count].T)
        assert (vectors[count:] == 7).all()
        vectors[:count] *= 2
        call("stage_out", data.ctypes.data, stride, first, first, vectors.ctypes.data, count)
        arguments = packed.ctypes.data, stride, first, first, scattered.ctypes.data, places.ctypes.data, count
        call("stage_packed", *arguments)
        found.append((data, packed))
        for each in (data, packed):
            assert np.array_equal(np.delete(each, first, 0), np.delete(given, first, 0))
            assert np.array_equal(each[first, count:], given[first, count:])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
