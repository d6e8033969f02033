"""Quadratic programmes: optimality conditions, SciPy's answers, infeasible and odd ones, and the text as Python."""

from __future__ import annotations

import numpy as np
import pytest

import robodyn as rd
from robodyn.solve.quadratic.code import INFEASIBLE, INVALID, SOLVED, UNFINISHED
from robodyn.solve.quadratic.program import Programmes

ROUNDING = {"float64": 1e-9, "float32": 3e-5}
"""Largest violation of an optimality condition, relative to its terms. In float32 dependent rows are told apart only to
1e-6."""
KINDS = ("plain", "degenerate", "dependent", "equal", "scaled", "soft", "zero")


def engine(name="cpu", dtype="float64"):
    return rd.Dynamics(rd.random_tree(1, seed=1), engine=name, dtype=dtype, threads=1).engine


def problem(rng, kind, batch, dtype, most=20):
    """Least squares with bounds that the point x0 keeps, of random size."""
    n, m = int(rng.integers(1, most)), int(rng.integers(1, most))
    r = int(rng.integers(1, n + 4))
    A, b = rng.normal(size=(batch, r, n)), rng.normal(size=(batch, r))
    d = np.full((batch, n), 1e-6 if kind == "soft" else 1e-3)
    C, x0 = rng.normal(size=(batch, m, n)), rng.normal(size=(batch, n))
    if kind == "degenerate":
        C, x0 = np.round(2 * C) / 2, 0.0 * x0
    if kind == "dependent":
        C[:, -1] = 2.0 * C[:, 0]
        C[:, m // 2] = C[:, 0] + 1e-14 * rng.normal(size=(batch, n))
    if kind == "zero":
        C[:, 0] = 0.0
    if kind == "scaled":
        C *= 10.0 ** rng.uniform(-3, 3, (batch, m, 1))
        far = 10.0 ** rng.uniform(-2, 2, (batch, r))
        A, b = A * far[..., None], b * far
    value = np.concatenate((x0, np.einsum("bij,bj->bi", C, x0)), -1)
    size = np.concatenate((np.ones((batch, n)), np.linalg.norm(C, axis=-1)), -1)
    lower, upper = (value + sign * size * rng.uniform(0, 1, value.shape) for sign in (-1, 1))
    if kind == "degenerate":
        lower, upper = -np.round(rng.uniform(0, 3, value.shape)), np.round(rng.uniform(0, 3, value.shape))
        lower[rng.random(value.shape) < 0.2] = -np.inf
    if kind == "equal":
        fixed = rng.random(value.shape) < 0.3
        lower[fixed] = upper[fixed] = value[fixed]
    return [np.ascontiguousarray(each, dtype) for each in (A, b, d, 0.1 * rng.normal(size=d.shape), C, lower, upper)]


def solved(of, arrays, most=300, squares=True):
    """x, multipliers, outcomes and steps."""
    C, dtype = arrays[-3], arrays[0].dtype
    batch, m, n = C.shape
    programmes = Programmes(of, n, m, arrays[0].shape[1] if squares else None, most=most)
    x, u = np.full((batch, n), np.nan, dtype), np.full((batch, n + m), np.nan, dtype)
    ends = np.full((batch, 2), -7)
    programmes.run(programmes.table(arrays, (x, u, ends)), batch)
    return x, u, *ends.T


def as_matrices(arrays):
    """H, g, rows of all bounds, lower and upper bounds, in double precision."""
    A, b, d, e, C, lower, upper = (each.astype(float) for each in arrays)
    H = np.einsum("bki,bkj->bij", A, A) + d[:, None] * np.eye(d.shape[1])
    rows = np.concatenate((np.broadcast_to(np.eye(C.shape[2]), (len(C), *[C.shape[2]] * 2)), C), 1)
    return H, -np.einsum("bki,bk->bi", A, b) - e, rows, lower, upper


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_optimality(kind, dtype):
    """The gradient is a sum of rows at their bounds, pushing inwards; all bounds hold."""
    rng, of, most = np.random.default_rng(KINDS.index(kind)), engine(dtype=dtype), ROUNDING[dtype]
    for _ in range(40):
        arrays = problem(rng, kind, 3, dtype)
        x, u, outcome, _ = solved(of, arrays)
        assert (outcome == SOLVED).all()
        for H, g, rows, lower, upper, xx, uu in zip(
            *as_matrices(arrays), x.astype(float), u.astype(float), strict=True
        ):
            terms = np.abs(H) @ np.abs(xx) + np.abs(g) + np.abs(rows.T) @ np.abs(uu)
            assert np.abs(H @ xx + g - rows.T @ uu).max() <= most * terms.max()
            value, size = rows @ xx, np.abs(rows) @ np.abs(xx) + np.linalg.norm(rows, axis=1)
            assert (lower - value <= most * size).all() and (value - upper <= most * size).all()
            assert (np.where(uu > 0, value - lower, 0.0) <= most * size).all()
            assert (np.where(uu < 0, upper - value, 0.0) <= most * size).all()
            n = len(xx)
            assert (xx >= lower[:n]).all() and (xx <= upper[:n]).all()  # to the bit: they are limits of joints


def test_scipy_finds_the_same():
    from scipy.optimize import LinearConstraint, minimize

    rng, of = np.random.default_rng(5), engine()
    for kind in ("plain", "equal"):
        arrays = problem(rng, kind, 4, "float64")
        x, *_ = solved(of, arrays)
        for H, g, rows, lower, upper, xx in zip(*as_matrices(arrays), x, strict=True):
            fixed = lower == upper
            found = minimize(
                lambda y, H=H, g=g: 0.5 * y @ H @ y + g @ y,
                np.zeros(len(g)),
                jac=lambda y, H=H, g=g: H @ y + g,
                constraints=[LinearConstraint(rows[at], lower[at], upper[at]) for at in (fixed, ~fixed) if at.any()],
                method="SLSQP",
                options={"ftol": 1e-10, "maxiter": 500},
            )
            assert found.success and np.abs(found.x - xx).max() < 1e-4


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_solution_is_told(dtype):
    """Each row ends by itself: rows that contradict, bounds that cross, NaN, too few steps."""
    rng, of = np.random.default_rng(3), engine(dtype=dtype)
    A, b, d, e, C, lower, upper = problem(rng, "plain", 6, dtype)
    A, b, d, e = (np.repeat(each[:1], 7, 0) for each in (A, b, d, e))
    n = d.shape[1]
    C = np.ones((7, 3, n), dtype)
    lower, upper = np.full((7, n + 3), -10.0, dtype), np.full((7, n + 3), 10.0, dtype)
    lower[1, n], upper[1, n + 1] = 1.0, 0.999  # the same row above and below
    lower[2, 0], upper[2, 0] = 1.0, 0.5
    b[3, 0] = np.nan
    upper[4, n + 2] = np.nan
    C[5, 1], lower[5, n + 1] = 0.0, 1e-3
    lower[6, n:], upper[6, n:] = 2.0, 2.0  # one equality three times
    x, u, outcome, _ = solved(of, [A, b, d, e, C, lower, upper])
    assert outcome.tolist() == [SOLVED, INFEASIBLE, INFEASIBLE, INVALID, INVALID, INFEASIBLE, SOLVED]
    assert np.isnan(x[1:6]).all() and np.isnan(u[1:6]).all() and np.isfinite(x[[0, 6]]).all()
    assert abs(x[6].sum() - 2.0) < 1e-5
    # Bounds that all bind need more steps than are allowed.
    lower[...], upper[...] = 0.3, 0.4
    lower[:, n:], upper[:, n:] = -1e3, 1e3
    few = solved(of, [A, b, d, e, C, lower, upper], most=1)
    assert (few[2][[0, 1, 2]] == UNFINISHED).all() and np.isnan(few[0]).all()


def test_given_matrices_and_the_text_as_python():
    """H and g instead of A; and the same operations in Python."""
    rng = np.random.default_rng(8)
    for kind in ("equal", "dependent"):
        arrays = problem(rng, kind, 2, "float64", 7)
        wanted = solved(engine(), arrays)
        H, g, *_ = as_matrices(arrays)
        for found in (
            solved(engine(), [H, g, *arrays[4:]], squares=False),
            solved(engine("reference"), arrays),
            solved(engine("reference"), [H, g, *arrays[4:]], squares=False),
        ):
            assert np.abs(found[0] - wanted[0]).max() < 1e-9
            assert (found[2] == wanted[2]).all()
