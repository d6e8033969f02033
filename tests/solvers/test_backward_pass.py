"""Backward passes: NumPy's recursion, bounds by trying all active sets, rows that fail, the text as Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import robodyn as rd
from robodyn.solve.trajectories.backward import BackwardPass

ROUNDING = {"float64": 1e-11, "float32": 3e-4}
SIZES = ((7, 7, 6), (2, 1, 3), (1, 1, 1), (3, 8, 2), (9, 6, 3))
"""nv, nu and N: whole vectors and parts of them, more controls than states."""


def problems(rng, nv, nu, steps, batch, dtype="float64"):
    """Random steps near the identity, positive definite costs, gaps, mu."""
    n = 2 * nv

    def definite(*shape):
        root = rng.normal(size=(*shape, shape[-1]))
        return root @ root.swapaxes(-1, -2) + 0.1 * np.eye(shape[-1])

    given = {
        "A": np.eye(n) + 0.3 * rng.normal(size=(batch, steps, n, n)),
        "B": rng.normal(size=(batch, steps, n, nu)),
        "gap": 0.1 * rng.normal(size=(batch, steps, n)),
        "lx": rng.normal(size=(batch, steps, n)),
        "lu": rng.normal(size=(batch, steps, nu)),
        "lxx": definite(batch, steps, n),
        "lux": 0.1 * rng.normal(size=(batch, steps, nu, n)),
        "luu": definite(batch, steps, nu),
        "vx": rng.normal(size=(batch, n)),
        "vxx": definite(batch, n),
        "mu": rng.uniform(0.0, 1.0, batch),
    }
    return {name: array.astype(dtype) for name, array in given.items()}


def least_within(H, g, lower, upper):
    """The minimum of 1/2 x'H x + g'x within bounds, and which elements are free: the active set that fulfils the
    optimality conditions."""
    for sides in itertools.product((0, -1, 1), repeat=len(g)):
        side = np.array(sides)
        free, x = side == 0, np.where(side < 0, lower, upper)
        if np.isinf(x[~free]).any():
            continue
        x[free] = 0.0
        if free.any():
            x[free] = np.linalg.solve(H[np.ix_(free, free)], -g[free] - H[np.ix_(free, ~free)] @ x[~free])
        slope = g + H @ x
        if (lower <= x).all() and (x <= upper).all() and (slope * side <= 0.0).all():
            return x, free
    raise AssertionError("no active set fits")


def recursion(A, B, gap, lx, lu, lxx, lux, luu, vx, vxx, mu, lower=None, upper=None):
    """One problem, in double precision."""
    steps, n, nu = B.shape
    V, v, expected = vxx, vx, np.zeros(2)
    k, K = np.zeros((steps, nu)), np.zeros((steps, nu, n))
    for t in reversed(range(steps)):
        slope = v + V @ gap[t]
        Qx, Qu = lx[t] + A[t].T @ slope, lu[t] + B[t].T @ slope
        Qxx, Qux, Quu = lxx[t] + A[t].T @ V @ A[t], lux[t] + B[t].T @ V @ A[t], luu[t] + B[t].T @ V @ B[t]
        H = Quu + mu * np.eye(nu)
        k[t], free = np.linalg.solve(H, -Qu), np.ones(nu, bool)
        if lower is not None:
            k[t], free = least_within(H, Qu, lower[t], upper[t])
        K[t, free] = -np.linalg.solve(H[np.ix_(free, free)], Qux[free])
        expected += k[t] @ Qu, 0.5 * k[t] @ Quu @ k[t]
        v = Qx + K[t].T @ (Quu @ k[t] + Qu) + Qux.T @ k[t]
        V = Qxx + K[t].T @ Quu @ K[t] + K[t].T @ Qux + Qux.T @ K[t]
        V = 0.5 * (V + V.T)
    return k, K, expected


def compare(found, given, most):
    """Results of a batch against the recursion, row by row."""
    assert found[3].all()
    for row in range(len(found[3])):
        one = {name: array[row].astype(float) for name, array in given.items()}
        for result, wanted in zip((each[row] for each in found), recursion(**one), strict=False):
            assert np.abs(result - wanted).max() <= most * np.abs(wanted).max()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_recursion(size, dtype):
    rng = np.random.default_rng(size)
    given = problems(rng, *size, batch=11, dtype=dtype)
    given["mu"][0] = 0.0
    backward = BackwardPass(*size, dtype=dtype)
    found = backward(**given)
    compare(found, given, ROUNDING[dtype])
    for row in (0, 10):  # alone, by other code
        for one, each in zip(backward(**{name: array[row] for name, array in given.items()}), found, strict=True):
            np.testing.assert_allclose(one, each[row], rtol=0.0, atol=ROUNDING[dtype] * np.abs(each[row]).max())


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bounds(dtype):
    """Bounds that clamp none, some or all controls; equal ones; infinite ones."""
    rng, size, clamped = np.random.default_rng(1), (3, 3, 5), 0
    backward = BackwardPass(*size, dtype=dtype, box=True)
    for wide in (1e-3, 0.1, 0.3, 1.0, 3.0):
        given = problems(rng, *size, batch=8, dtype=dtype)
        high = rng.uniform(0.0, wide, (8, 5, 3)).astype(dtype)
        high[rng.random(high.shape) < 0.1] = np.inf
        given["lower"], given["upper"] = -high, high + rng.uniform(0.0, wide, high.shape).astype(dtype)
        given["lower"][0, :, 0] = given["upper"][0, :, 0] = 0.25 * wide
        found = backward(**given)
        compare(found, given, ROUNDING[dtype])
        assert (found[0] >= given["lower"]).all() and (found[0] <= given["upper"]).all()
        clamped += (found[0] == given["upper"]).mean() / 5
    assert 0.1 < clamped < 0.9


@pytest.mark.parametrize("box", [True, False])
def test_rows_fail_by_themselves(box):
    """Indefinite costs, NaN, infinity, and bounds that contradict."""
    rng, size = np.random.default_rng(2), (3, 2, 4)
    given = problems(rng, *size, batch=8)
    given["luu"][1, 2] -= 1e3 * np.eye(2)
    given["A"][2, 1, 0, 0] = np.nan
    given["A"][3, 0, 2, 2] = np.inf
    given["mu"][4] = np.nan
    given["B"][5, 3], given["luu"][5, 3], given["mu"][5] = 0.0, 0.0, 0.0  # singular, exactly
    given["lxx"][6, 0, 1, 1] = given["lu"][7, 0, 0] = np.nan
    if box:
        given = {name: np.concatenate((array, array[:1], array[:1])) for name, array in given.items()}
        given["lower"], given["upper"] = np.full((10, 4, 2), -0.2), np.full((10, 4, 2), 0.2)
        given["lower"][8, 0, 0] = np.nan
        given["lower"][9, 3, 1], given["upper"][9, 3, 1] = 0.1, 0.05
    *results, ok = BackwardPass(*size, box=box)(**given)
    assert ok.tolist() == [True, *[False] * (len(ok) - 1)]
    for each in results:
        assert np.isfinite(each[0]).all() and np.isnan(each[1:]).all()
    alone = BackwardPass(*size, box=box)(**{name: array[:1] for name, array in given.items()})
    for one, all_of_them in zip(alone, results, strict=False):
        np.testing.assert_allclose(one[0], all_of_them[0], rtol=1e-12, atol=1e-12)


def test_arrays_broadcast():
    """What all problems or knots share is given once, with any strides; no gap is a zero one."""
    rng, size = np.random.default_rng(3), (4, 2, 5)
    given = problems(rng, *size, batch=6)
    given["gap"][:] = 0.0
    for name in ("lxx", "lux", "luu"):
        given[name][:] = given[name][:1, :1]
    given["A"][:] = given["A"][:1]
    given["mu"][:] = 0.0
    wanted = BackwardPass(*size)(**given)
    given["lxx"], given["A"], given["luu"] = given["lxx"][0, :1], given["A"][0], given["luu"][:, :1]
    given["B"] = np.asfortranarray(given["B"])
    given["gap"], given["mu"], given["vx"] = None, 0.0, given["vx"].reshape(2, 3, -1)
    for name in ("B", "lx", "lu", "lux", "luu", "vxx"):
        given[name] = given[name].reshape(2, 3, *given[name].shape[1:])
    for found, each in zip(BackwardPass(*size)(**given), wanted, strict=True):
        np.testing.assert_array_equal(found.reshape(each.shape), each)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_engines(dtype):
    """Threads give the same bits; the text as Python the same numbers."""
    rng, size, model = np.random.default_rng(4), (2, 2, 2), rd.random_tree(1, seed=1)
    for box in (True, False):
        given = problems(rng, *size, batch=5, dtype=dtype)
        if box:
            given["lower"], given["upper"] = (np.full((5, 2, 2), sign * 0.2, dtype) for sign in (-1, 1))
        *wanted, ok = BackwardPass(*size, dtype=dtype, box=box)(**given)
        assert ok.all()
        for name in ("cpu", "reference"):
            of = rd.Dynamics(model, engine=name, dtype=dtype).engine
            for found, each in zip(BackwardPass(*size, dtype=dtype, box=box, engine=of)(**given), wanted, strict=False):
                np.testing.assert_allclose(found, each, rtol=0.0, atol=ROUNDING[dtype])
        many = {name: np.repeat(array, 2000, 0) for name, array in given.items()}
        of = rd.Dynamics(model, threads=2, dtype=dtype).engine
        for found, each in zip(BackwardPass(*size, dtype=dtype, box=box, engine=of)(**many), wanted, strict=False):
            np.testing.assert_allclose(found, np.repeat(each, 2000, 0), rtol=0.0, atol=ROUNDING[dtype])


@pytest.mark.parametrize("box", [True, False])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_shorter_forms(dtype, box):
    """Half of linear steps, diagonals, no zeros, columns of B: the same as full matrices, for batches and alone."""
    rng, (nv, nu, steps, batch, dt) = np.random.default_rng(6), (5, 3, 4, 11, 0.05)
    n, controls = 2 * nv, [1, 2, 4]
    given = problems(rng, nv, nv, steps, batch)
    Y = np.concatenate((given["B"][..., nv:, controls], given["A"][..., nv:, :]), axis=-1)
    given["A"][..., :nv, :] = dt * given["A"][..., nv:, :] + np.eye(nv, n)
    given["B"][..., :nv, :] = dt * given["B"][..., nv:, :]
    diagonals = {"lxx_diagonal": (batch, steps, n), "luu_diagonal": (batch, steps, nu)}
    diagonals = {name: rng.uniform(0.1, 1.0, shape) for name, shape in diagonals.items()}
    given |= {"gap": None, "lu": given["lu"][..., controls], "lux": np.zeros((1, nu, n))}
    given |= {name: diagonals[f"{name}_diagonal"][..., None] * np.eye(size) for name, size in (("lxx", n), ("luu", nu))}
    if box:
        wide = rng.uniform(0.0, 3.0, (batch, 1, 1))  # some problems are within their bounds, others are not
        given["lower"], given["upper"] = np.broadcast_to(-wide, (batch, steps, nu)), np.full((1, nu), 3.0)
    short = {**given, "lxx": None, "lux": None, "luu": None, **diagonals}
    columns, full = np.array(controls), {**given, "B": given["B"][..., controls]}
    wanted = BackwardPass(nv, nu, steps, box=box)(**full)
    assert wanted[3].all()
    if box:
        inside = (np.abs(wanted[0]) < wide).all(axis=(1, 2))
        assert inside.any() and not inside.all()
    for form in (short, {**short, "A": None, "B": None, "Y": Y, "dt": dt}):
        made = BackwardPass(nv, nu, steps, dtype, box=box, columns=None if form["B"] is None else columns)
        for rows in (slice(None), slice(2, 3), slice(4, 6)):
            own = {k: each[rows] if np.ndim(each) and len(each) == batch else each for k, each in form.items()}
            for found, each in zip(made(**own), wanted, strict=True):
                np.testing.assert_allclose(found, each[rows], rtol=0.0, atol=ROUNDING[dtype] * np.abs(each).max())


def test_arguments_that_contradict():
    given, Y = problems(np.random.default_rng(5), 1, 1, 1, 1), np.ones((1, 3))
    for wrong in ({"Y": Y, "dt": 0.1}, {"A": None}, {"A": None, "B": None, "Y": Y}):
        with pytest.raises(ValueError, match="give A and B"):
            BackwardPass(1, 1, 1)(**{**given, **wrong})


def test_bounds_belong_to_the_pass():
    given = problems(np.random.default_rng(5), 1, 1, 1, 1)
    with pytest.raises(ValueError, match="bounds"):
        BackwardPass(1, 1, 1)(**given, lower=np.zeros(1), upper=np.ones(1))
    with pytest.raises(ValueError, match="bounds"):
        BackwardPass(1, 1, 1, box=True)(**given)
