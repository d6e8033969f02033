"""Chains as several unrolled kernels, on the host against the reference engine."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from gpu_host import missing, run_on_host, run_sanitized
from gpu_host.cases import check, empty, run, states, wanted
from robots import own, tree
from test_gpu_compile import compiles

import robodyn as rd
from robodyn.algorithms.forward_gradient import forward_gradient
from robodyn.algorithms.tasks import Chain, SymbolicFactor, Task, on_inertia, with_identity_seeds
from robodyn.compile.tracing.solves import PACK, Factors, packed_size
from robodyn.engines.gpu.choice import Variant, variants
from robodyn.engines.gpu.compiler import compile_reported
from robodyn.engines.gpu.source import KernelSource
from robodyn.engines.gpu.unrolled_chains import _solve_kernel, divisible, printable, unrolled_kernels
from robodyn.engines.query_table import QUERIES
from robodyn.internals.errors import UnavailableError

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"kernels do not run on the host: {missing()}")

DOUBLE, SINGLE = np.dtype(np.float64), np.dtype(np.float32)
GRADIENT = forward_gradient(("q", "qd", "tau"))


@cache
def model_of(name: str) -> rd.Model:
    stem, _, base = name.partition(" ")
    return rd.load_urdf(own(stem), base=base or "fixed")


def split(model: rd.Model, task: Task, dtype: np.dtype[Any] = DOUBLE, **options: Any) -> tuple[KernelSource, ...]:
    return unrolled_kernels(model, task, dtype, fusion="split", **options)


@pytest.mark.parametrize(
    "name",
    [
        "arm6",
        "gripper",
        "ball_joint_arm",
        "double_pendulum floating",
        pytest.param("hand", marks=pytest.mark.kernels),
        pytest.param("quadruped floating", marks=pytest.mark.kernels),
    ],
)
def test_gradient_as_accelerations_gradient_and_solves(name: str) -> None:
    model = model_of(name)
    sources = split(model, GRADIENT)
    assert [source.outputs for source in sources] == [("qdd", "H_factors"), ("tau_q", "tau_qd"), GRADIENT.results]
    assert sources[2].inputs == ("H_factors", "tau_q", "tau_qd")
    assert sources[2].threads_per_state == model.nv
    check(sources, model, GRADIENT, batch=37, orders=("forward", "random"))


def test_gradient_in_single_precision() -> None:
    model = model_of("gripper")
    check(split(model, GRADIENT, SINGLE), model, GRADIENT, batch=5, orders=("reverse",), tolerance=2e-3)


@pytest.mark.parametrize("seed", [3, 8, 21])
def test_gradient_of_trees(seed: int) -> None:
    """All joint kinds, joints that mimic others, several roots."""
    model = tree(seed, 6)
    check(split(model, GRADIENT), model, GRADIENT, batch=5, orders=("random",))


def test_gradient_with_forces_inertias_and_a_moving_base() -> None:
    model = model_of("gripper")
    task = on_inertia(forward_gradient(("q", "qd", "tau", "f_ext")))
    base = ("V0", "dV0")
    check(split(model, task, base=base), model, task, batch=3, base=base, orders=("forward",))


@pytest.mark.parametrize("query", ["forward_dynamics_parameter_gradient", "forward_dynamics_external_force_gradient"])
def test_other_solves_by_columns(query: str) -> None:
    model = model_of("arm6")
    task = QUERIES[query].plain_task(model)
    assert isinstance(task, Chain) and divisible(model, task)
    sources = split(model, task)
    columns = model.n_bodies * (10 if "parameter" in query else 6)
    assert sources[-1].threads_per_state == columns
    assert sources[-1].states_per_block == 128 // columns
    check(sources, model, task, batch=5, orders=("forward", "random"))


def test_solves_with_more_columns_than_threads() -> None:
    """A state has a block, whose threads take several columns where there are more than 256."""
    model = tree(4, 30, joints=("revolute",))
    task = QUERIES["forward_dynamics_parameter_gradient"].plain_task(model)
    assert isinstance(task, Chain)
    solve = _solve_kernel(model, task.stages[-1], DOUBLE, "solve")  # type: ignore[arg-type]
    assert (solve.threads_per_state, solve.block_threads, solve.states_per_block) == (300, 256, 1)
    rng = np.random.default_rng(0)
    H = rd.Dynamics(model, engine="reference").mass_matrix(model.random_configuration(rng, (3,)))
    Y = rng.normal(size=(3, model.nv, 300))
    factors = np.array([Factors(h.tolist()).packed(model) for h in H])
    names = {"H_factors": factors, "Y": Y.reshape(3, model.nv, 30, 10)}
    out = {"dqdd_dpi": np.empty((3, model.nv, 30, 10))}
    run_on_host(solve, {name: names[name] for name in solve.inputs}, out, "random", 2)
    wanted = -np.linalg.solve(H, Y)
    np.testing.assert_allclose(out["dqdd_dpi"].reshape(wanted.shape), wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("rows", [1, 20, 43, 130])
@pytest.mark.parametrize("blocks", [1, 3])
def test_solves_take_any_number_of_rows(rows: int, blocks: int) -> None:
    model = model_of("arm6")
    given = states(model, rows)
    right = wanted(model, GRADIENT, given)
    got = run(split(model, GRADIENT), model, GRADIENT, given, "random", blocks)
    for name, array in right.items():
        assert np.abs(got[name] - array).max() < 1e-9 * max(1.0, np.abs(array).max())


def test_values_that_are_not_finite_stay_in_their_rows() -> None:
    model = model_of("gripper")
    given, sources = states(model, 9), split(model, GRADIENT)
    clean = run(sources, model, GRADIENT, given)
    bad = {**given, "qd": given["qd"].copy()}
    bad["qd"][4, 1] = np.nan
    left = run(sources, model, GRADIENT, bad)
    for name in ("dqdd_dq", "dqdd_dqd"):
        others = np.arange(9) != 4
        np.testing.assert_array_equal(left[name][others], clean[name][others])
        assert np.isnan(left[name][4]).any()


@pytest.mark.parametrize("sanitizer", ["thread", "address"])
def test_solves_share_factors_in_turn(sanitizer: str) -> None:
    if missing(sanitizer):
        pytest.skip(missing(sanitizer))
    model = model_of("double_pendulum")
    given = states(model, 150)
    for source in split(model, GRADIENT)[:2]:
        shapes = {"qdd": (model.nv,), "H_factors": (packed_size(model),), "tau_q": (model.nv,) * 2}
        shapes["tau_qd"] = shapes["tau_q"]
        given |= run_on_host(source, given, {name: np.empty((150, *shapes[name])) for name in source.outputs})
    source, out = split(model, GRADIENT)[2], empty(model, GRADIENT, 150)
    assert run_sanitized(source, given, out, sanitizer, blocks=1) == ""
    for name, right in wanted(model, GRADIENT, given).items():
        np.testing.assert_allclose(out[name], right, rtol=1e-9, atol=1e-9)
    if sanitizer == "thread":
        careless = replace(source, text=source.text.replace("__syncthreads();", ""))
        assert "data race" in run_sanitized(careless, given, out, sanitizer, blocks=1)


def test_what_is_several_kernels() -> None:
    arm, long = model_of("arm6"), rd.auto_tree(300)
    second = QUERIES["forward_dynamics_hessian"].plain_task(arm)
    by_matrix = QUERIES["forward_dynamics"].plain_task(model_of("gripper"))
    assert divisible(arm, GRADIENT) and printable(arm, GRADIENT, (), None)
    assert isinstance(second, Chain) and not divisible(arm, second)  # it has products
    assert isinstance(by_matrix, Chain) and not divisible(model_of("gripper"), by_matrix)  # its solve has one column
    for model, task in (
        (long, GRADIENT),
        (arm, with_identity_seeds(GRADIENT, "tau")),
        (arm, QUERIES["mass_matrix"].plain_task(arm)),
    ):
        assert not divisible(model, task)
    assert Variant("unrolled", "split") in variants(arm, GRADIENT)
    assert Variant("unrolled", "fused") not in variants(arm, GRADIENT)
    assert not any(each.kernel == "unrolled" for each in variants(long, GRADIENT))
    # Where it is not, a chain asked for so is one kernel.
    assert len(split(arm, second)) == 1


def test_a_program_that_is_too_large() -> None:
    """Sizes let it pass, and its operations do not."""
    model = rd.auto_tree(45, branching=1.0, skew=0.3)
    assert divisible(model, GRADIENT)
    assert not printable(model, GRADIENT, (), None)
    with pytest.raises(UnavailableError, match="too large for straight-line code"):
        split(model, GRADIENT)


@pytest.mark.parametrize("name", ["arm6", "gripper", "hand", "quadruped floating"])
def test_factors_are_packed(name: str) -> None:
    model = model_of(name)
    entries = sum(map(len, SymbolicFactor(model).lower)) + model.nv
    assert packed_size(model) % PACK == 0 and entries <= packed_size(model) < entries + PACK


BUDGETS = {
    ("arm7", "float32"): (128, 255, 48),
    ("arm7", "float64"): (255, 255, 66),
    ("quadruped floating", "float32"): (255, 255, 89),
    ("quadruped floating", "float64"): (255, 255, 134),
    ("humanoid floating", "float32"): (0, 0, 161),
    ("humanoid floating", "float64"): (0, 0, 255),
}
"""Registers of the kernels of a gradient on sm_90; 0: not looked at, for NVRTC takes half a minute."""


@compiles
@pytest.mark.parametrize(("name", "dtype"), BUDGETS)
@pytest.mark.some(of=3, when="kernels")
def test_budgets(name: str, dtype: str) -> None:
    """Solves spill nothing, nor do those of single precision that are looked at."""
    sources = split(model_of(name), GRADIENT, np.dtype(dtype))
    for source, registers in zip(sources, BUDGETS[name, dtype], strict=True):
        if registers:
            report = compile_reported(source, "sm_90").report
            print(source.name, report)
            assert report.registers <= 1.1 * registers
            if dtype == "float32" or source is sources[2]:
                assert (report.stack_bytes, report.spill_bytes) == (0, 0)
