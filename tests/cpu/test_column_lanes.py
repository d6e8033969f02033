"""Solves and products of one state, whose columns are side by side in vectors: the bits of loops over scalars."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import pytest

import robodyn as rd
from robodyn.algorithms.tasks import Product, Products, Solution, Solve, SymbolicFactor, coupled, on_paths
from robodyn.compile.llvm.jit import OPT, Code, compile_object
from robodyn.compile.llvm.streaming import FLUSHED
from robodyn.compile.llvm.target import LEVELS, Target, host_target
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.loops.blocks import Type
from robodyn.compile.loops.language import Array, Routine, bound, struct_of
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.chains import products_code
from robodyn.engines.cpu.chains.column_lanes import vectors_of_columns
from robodyn.engines.cpu.chains.panel_code import panel_rows
from robodyn.engines.cpu.chains.products import ProductsPlan, products_module
from robodyn.engines.cpu.chains.solve_code import FACTORS, SolveKind, kernel, solve_code, solve_module, solve_types
from robodyn.engines.cpu.chains.solves import SolvePlan
from robodyn.engines.cpu.kernels import workspace
from robodyn.internals.errors import UnavailableError
from robodyn.sweeps import BodyOutput, DofOutput, PairOutput

OF_DOFS, OF_BODIES = PairOutput(()), BodyOutput("Y", 10, flat=True)
SOLVE = Solve(
    "H",
    {
        "b": Solution(minus="torques", like=OF_DOFS, known=1),
        "a": Solution(minus="forces", like=OF_BODIES),
        "c": Solution("torques_too", like=OF_DOFS),
        "d": Solution("one", "other", like=DofOutput("tau")),
        "e": Solution(),
    },
)
PRODUCTS = Products(
    {
        "p": Product("plain", "left", "right", symmetric=True),
        "q": Product("plain", "left", "right"),
        "r": Product(None, "left", "right"),
        "s": Product("plain"),
        "t": Product(None, "left", "right", symmetric=True),
    }
)
KINDS = ("revolute", "prismatic", "spherical", "planar")
MODELS = {
    "one joint": {"n": 1, "seed": 0},
    "a forest": {"n": 9, "seed": 3, "joints": KINDS},
    "floats": {"n": 9, "seed": 4, "joints": KINDS, "base": "floating"},
    "fills in": {"n": 14, "seed": 5, "joints": KINDS, "mimic": 0.5},
    "a chain": {"n": 33, "seed": 6, "joints": ("revolute",), "shape": "chain"},
    "several tiles": {"n": 60, "seed": 7, "joints": ("revolute",), "shape": "caterpillar", "base": "floating"},
    "long rows": {"n": 110, "seed": 8, "joints": ("revolute",)},
}


def narrow(level: str) -> Target:
    """A processor for one state, or one whose registers are small, which has no code of its own for that."""
    try:
        return host_target(level).for_one_state
    except UnavailableError as error:
        pytest.skip(str(error))


def kinds(level: str, dtype: str) -> tuple[Target, VectorType, VectorType]:
    """The processor, vectors of one state, and vectors of columns."""
    target = narrow(level)
    kind = VectorType.of(np.dtype(dtype), target, 1)
    columns = vectors_of_columns(kind, target)
    assert columns is not None and columns.bytes == LEVELS[level]
    assert vectors_of_columns(columns, target) is None  # of several states
    return target, kind, columns


@cache
def code_of(level: str, dtype: str, what: str, column_lanes: bool) -> Code:
    target, kind, columns = kinds(level, dtype)
    found = columns if column_lanes else None
    if what == "products":
        text = products_module(PRODUCTS, kind, found, target)
    else:
        text = solve_module(solve_kind(found, what == "flushed"), kind, target)
    return Code(compile_object(text, target, OPT), target)


def solve_kind(columns: VectorType | None, flushes: bool) -> SolveKind:
    return SolveKind(SOLVE, True, ("one", "other"), flushes, columns)


def run(
    code: Code | Callable[[int, int, int, int], None], arrays: list[np.ndarray], constants: list[np.ndarray], size: int
) -> None:
    """One state, in scratch memory that holds no numbers."""
    address, owner = workspace(size)
    owner[:] = 255
    words = [word for array in arrays for word in (array.ctypes.data, array.nbytes)]
    words += [word for array in constants for word in (array.ctypes.data, 1)]
    table = (ctypes.c_int64 * len(words))(*words)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(code.address("kernel")) if isinstance(code, Code) else code
    call(ctypes.addressof(table), 0, 1, address)


def columns_of(model: rd.Model, solution: Solution) -> int:
    if isinstance(solution.like, BodyOutput):
        return 10 * model.n_bodies
    return 1 if isinstance(solution.like, DofOutput) else model.nv


def in_place(model: rd.Model, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of a solve, with right-hand sides where solutions go to."""
    found = {"H": values["H"].copy(), "one": values["one"].copy(), "other": values["other"].copy()}
    sizes = model.nv + sum(len(row) for row in SymbolicFactor(model).lower)
    found[FACTORS + "H"] = np.full(sizes, np.nan, values["H"].dtype)
    for name, solution in SOLVE.outputs.items():
        if len(solution.arrays) == 1:
            found[name] = found[solution.arrays[0]] = values[solution.arrays[0]].copy()
        else:
            found[name] = found["H"] if not solution.arrays else np.full_like(values["one"], np.nan)
    return found


def as_function(kernel: Routine, types: dict[str, Type], **known: object) -> Callable[[int, int, int, int], None]:
    """A kernel as Python."""

    def call(table: int, first: int, last: int, scratch: int) -> None:
        with bound(**types):
            kernel(Array(table, struct_of(Argument)), first, last, scratch, **known)

    return call


def solved(
    model: rd.Model,
    values: Mapping[str, np.ndarray],
    level: str,
    column_lanes: bool,
    flushes: bool,
    as_python: bool = False,
) -> dict[str, np.ndarray]:
    target, kind, columns = kinds(level, values["H"].dtype.name)
    asked = solve_kind(columns if column_lanes else None, flushes)
    plan = SolvePlan(model, asked, kind, panel_rows(target))
    arrays = in_place(model, values)
    memory = {}
    for name, solution in SOLVE.outputs.items() if flushes else ():
        size = model.nv * columns_of(model, solution)
        memory[name] = np.full(size + 40, np.nan, values["H"].dtype)
        arrays[FLUSHED + name] = memory[name][17 : 17 + size]
    code = code_of(level, values["H"].dtype.name, "flushed" if flushes else "between", column_lanes)
    if as_python:
        code = as_function(kernel, solve_types(asked, kind), code=solve_code(asked, kind, target))
    run(code, [arrays[name] for name in asked.arrays], plan.arrays, plan.workspace_bytes)
    for around in memory.values():
        assert np.isnan(around[:17]).all() and np.isnan(around[-23:]).all() and not np.isnan(around[17:-23]).any()
    return {name: arrays[FLUSHED * flushes + name].reshape(model.nv, -1) for name in SOLVE.outputs}


def numbers(model: rd.Model, dtype: str) -> dict[str, np.ndarray]:
    """A mass matrix, and right-hand sides that are zero where the tree makes them so."""
    rng = np.random.default_rng(0)
    H = rd.Dynamics(model, engine="reference").mass_matrix(model.random_configuration(rng)) + 0.1 * np.eye(model.nv)
    bodies, dofs = np.repeat(on_paths(model), 10, axis=1), coupled(model)
    found = {"H": H, "forces": rng.uniform(-1, 1, bodies.shape) * bodies}
    found |= {name: rng.uniform(-1, 1, dofs.shape) * dofs for name in ("torques", "torques_too")}
    found |= {name: rng.uniform(-1, 1, (model.nv, 1)) for name in ("one", "other")}
    return {name: np.ascontiguousarray(array, dtype) for name, array in found.items()}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("level", list(LEVELS))
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.some(of=8, when="matrix")
def test_solves_have_the_bits_of_scalars(name: str, level: str, dtype: str) -> None:
    model = rd.random_tree(**MODELS[name])
    values = numbers(model, dtype)
    for flushes in (True, False):
        found = solved(model, values, level, True, flushes)
        for key, plain in solved(model, values, level, False, flushes).items():
            np.testing.assert_array_equal(found[key], plain, err_msg=key)
    if dtype == "float64":
        torques = -np.linalg.solve(values["H"], values["torques"])
        known = SOLVE.outputs["b"].known_columns(model)
        torques[:, known] = values["torques"][:, known]
        right = {"a": -np.linalg.solve(values["H"], values["forces"]), "b": torques, "e": np.linalg.inv(values["H"])}
        for key, exact in right.items():
            np.testing.assert_allclose(found[key], exact, atol=1e-9 * np.abs(exact).max(), rtol=0, err_msg=key)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("level", list(LEVELS))
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.some(of=28, rest="matrix")
def test_products_have_the_bits_of_scalars(name: str, level: str, dtype: str) -> None:
    model, rng = rd.random_tree(**MODELS[name]), np.random.default_rng(1)
    _, kind, columns = kinds(level, dtype)
    given = {each: rng.uniform(-1, 1, (model.nv, model.nv)).astype(dtype) for each in ("plain", "left", "right")}
    given["left"] *= coupled(model)
    results = []
    for which in (None, columns):
        plan = ProductsPlan(model, PRODUCTS, kind, which)
        around = [np.full(model.nv**2 + 40, np.nan, dtype) for _ in PRODUCTS.outputs]
        inside = [each[17 : 17 + model.nv**2] for each in around]
        code = code_of(level, dtype, "products", which is not None)
        run(code, [*(given[each] for each in PRODUCTS.inputs), *inside], plan.arrays, plan.workspace_bytes)
        for each in around:
            assert np.isnan(each[:17]).all() and np.isnan(each[-23:]).all() and not np.isnan(each[17:-23]).any()
        results.append([each.reshape(model.nv, model.nv) for each in inside])
    product = given["left"].astype(float) @ given["right"]
    exact = [-(given["plain"] + product + product.T), -(given["plain"] + product), -product, -given["plain"]]
    tolerance = (1e-13 if dtype == "float64" else 1e-5) * model.nv
    for plain, found, right in zip(*results, [*exact, -(product + product.T)], strict=True):
        np.testing.assert_array_equal(found, plain)
        np.testing.assert_allclose(found, right, atol=tolerance, rtol=0)


@pytest.mark.parametrize("column_lanes", [False, True])
@pytest.mark.parametrize("name", ["one joint", "a forest"])
def test_solves_run_as_python(name: str, column_lanes: bool) -> None:
    model = rd.random_tree(**MODELS[name])
    values = numbers(model, "float64")
    found = solved(model, values, "avx2", column_lanes, flushes=False, as_python=True)
    for key, compiled in solved(model, values, "avx2", column_lanes, flushes=False).items():
        np.testing.assert_allclose(found[key], compiled, rtol=0, atol=1e-13 * np.abs(compiled).max(), err_msg=key)


@pytest.mark.parametrize("column_lanes", [False, True])
def test_products_run_as_python(column_lanes: bool) -> None:
    model, rng = rd.random_tree(**MODELS["a forest"]), np.random.default_rng(2)
    _, kind, columns = kinds("avx2", "float64")
    which = columns if column_lanes else None
    plan = ProductsPlan(model, PRODUCTS, kind, which)
    given = [rng.uniform(-1, 1, (model.nv, model.nv)) for _ in PRODUCTS.inputs]
    own = products_code.kernel_column_lanes if column_lanes else products_code.kernel
    python = as_function(own, products_code.products_types(kind, which), stage=PRODUCTS)
    results = []
    for code in (python, code_of("avx2", "float64", "products", column_lanes)):
        found = [np.full(model.nv**2, np.nan) for _ in PRODUCTS.outputs]
        run(code, [*given, *found], plan.arrays, plan.workspace_bytes)
        results.append(found)
    for python_made, compiled in zip(*results, strict=True):
        np.testing.assert_allclose(python_made, compiled, rtol=0, atol=1e-13)
