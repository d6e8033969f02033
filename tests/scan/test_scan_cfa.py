"""The constraint force algorithm: block tri-diagonal systems against dense ones, answers against inverse dynamics."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
import robots
from conftest import random_states, relative
from scan_forward import EVERY_KIND, everything, residual

import robodyn as rd
from robodyn.engines.scan import ScanOptions
from robodyn.engines.scan.states import Layout
from robodyn.engines.scan.systems.constraints import complement, constraints_of
from robodyn.engines.scan.systems.odd_even import SOLVERS
from robodyn.engines.scan.trees.prefix_scans import Segments
from robodyn.joints import KINDS
from robodyn.spatial import articulated
from robodyn.sweeps import INERTIA

ON_CHAINS = 1e-7
"""The residual that is promised on skewed chains of up to 40 bodies; the condition of A is what it goes to."""
OPTIONS = [
    ScanOptions(constraint_basis=basis, constraint_solver=solver)
    for basis in ("unit", "balanced")
    for solver in SOLVERS
]


def named(scan: ScanOptions) -> str:
    return f"{scan.constraint_basis}-{scan.constraint_solver}"


# Block tri-diagonal systems.


def system(lengths: list[int], k: int, batch: int, seed: int) -> tuple[np.ndarray, ...]:
    """D, U, and the dense matrix (batch, n k, n k) that is positive definite; U is not zero between segments."""
    print(f"system: seed {seed}")
    rng, n = np.random.default_rng(seed), sum(lengths)
    U = rng.uniform(-1, 1, (k, k, n, batch))
    dense = np.zeros((batch, n, k, n, k))
    for i in np.flatnonzero(Segments(lengths).position > 0):
        dense[:, i - 1, :, i] = U[:, :, i - 1].transpose(2, 0, 1)
        dense[:, i, :, i - 1] = U[:, :, i - 1].transpose(2, 1, 0)
    factors = rng.uniform(-1, 1, (batch, n, k, k))
    blocks = factors @ factors.swapaxes(2, 3) + 2.5 * k * np.eye(k)
    for i in range(n):
        dense[:, i, :, i] = blocks[:, i]
    return blocks.transpose(2, 3, 1, 0), U, dense.reshape(batch, n * k, n * k)


LENGTHS = [[1], [2], [3], [7], [8], [33], [1, 5, 3, 1, 9], [4, 4, 4], [2, 33, 1]]


@pytest.mark.parametrize("solve", SOLVERS.values(), ids=SOLVERS.keys())
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("k, columns", [(1, 1), (5, 7), (6, 2)])
@pytest.mark.some(of=3, rest="matrix")
def test_block_tridiagonal_systems(solve, lengths, k, columns):
    D, U, dense = system(lengths, k, 3, seed=len(lengths) + k)
    n = sum(lengths)
    R = np.random.default_rng(1).uniform(-1, 1, (k, columns, n, 3))
    before = D.copy(), U.copy(), R.copy()
    flat = R.transpose(3, 2, 0, 1).reshape(3, n * k, columns)
    wanted = np.linalg.solve(dense, flat).reshape(3, n, k, columns).transpose(2, 3, 1, 0)
    np.testing.assert_allclose(solve(D, U, R, Segments(lengths)), wanted, rtol=0, atol=1e-13)
    for given, kept in zip((D, U, R), before, strict=True):
        np.testing.assert_array_equal(given, kept)


@pytest.mark.parametrize("solve", SOLVERS.values(), ids=SOLVERS.keys())
def test_what_is_not_finite_stays_in_its_row(solve):
    D, U, _ = system([7, 4], 5, 3, seed=2)
    R = np.ones((5, 1, 11, 3))
    wanted = solve(D, U, R, Segments([7, 4]))
    D[2, 2, 3, 1] = np.nan
    with np.errstate(all="ignore"):
        found = solve(D, U, R, Segments([7, 4]))
    np.testing.assert_array_equal(found[..., [0, 2]], wanted[..., [0, 2]])
    assert np.isnan(found[:, :, :7, 1]).all() and np.isfinite(found[:, :, 7:, 1]).all()


def test_no_system_at_all():
    for solve in SOLVERS.values():
        assert solve(np.ones((5, 5, 0, 1)), np.ones((5, 5, 0, 1)), np.ones((5, 2, 0, 1)), Segments([])).size == 0


# Bases.


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_bases_of_joint_kinds(kind):
    """Orthonormal complements; columns of S are orthogonal to each other, which the algorithm relies on."""
    S = np.array([(*s.ang, *s.lin) for s in kind.subspace(0.3)]).T
    gram = S.T @ S
    np.testing.assert_array_equal(gram, np.diag(np.diagonal(gram)))
    W = complement(S)
    assert W.shape == (6, 6 - kind.nv)
    np.testing.assert_allclose(W.T @ W, np.eye(6 - kind.nv), rtol=0, atol=1e-15)
    np.testing.assert_allclose(W.T @ S, 0.0, rtol=0, atol=1e-15)


def test_unit_basis_of_one_axis_is_fijanys():
    revolute = np.eye(6)[:, 2:3]
    np.testing.assert_array_equal(complement(revolute), np.delete(np.eye(6), 2, axis=1))


def motion_matrix(E: np.ndarray, r: np.ndarray) -> np.ndarray:
    cross = np.array([[0, -r[2], r[1]], [r[2], 0, -r[0]], [-r[1], r[0], 0]])
    return np.block([[E, np.zeros((3, 3))], [-E @ cross, E]])


def test_inverse_mass_matrix_of_the_paper():
    """M^-1 = C - B' A^-1 B (eq. 15-17), on a chain, from dense matrices and the basis that the algorithm uses."""
    model = rd.random_tree(5, seed=11, joints=("revolute", "prismatic", "helical"), shape="chain")
    q, _, _ = random_states(model, (), 11)
    layout = Layout(model, np.dtype(float), ScanOptions())
    n = model.n_bodies
    W = constraints_of(layout).W.reshape(5, 6, n).swapaxes(0, 1)
    gamma, J, Wn, Sn = np.zeros((n, 6, n, 6)), np.zeros((n, 6, n, 6)), np.zeros((n, 6, n, 5)), np.zeros((n, 6, n))
    for i in range(n):
        kind = KINDS[model.joint_kind[i]]
        X = kind.transform((q[i],), model.pitch[i])
        E, r = np.array(X.E, float).reshape(3, 3), np.array(X.r, float)
        Et, rt = model.Xtree[i, :9].reshape(3, 3), model.Xtree[i, 9:]
        if i:
            gamma[i, :, i - 1] = motion_matrix(E, r) @ motion_matrix(Et, rt)
        I = articulated(INERTIA.build(iter(model.inertia[i]), 0))
        upper = np.array([[I.I[0], I.I[1], I.I[2]], [I.I[1], I.I[3], I.I[4]], [I.I[2], I.I[4], I.I[5]]])
        H = np.array(I.H).reshape(3, 3)
        J[i, :, i] = np.block([[upper, H], [H.T, I.M[0] * np.eye(3)]])
        (column,) = kind.subspace(model.pitch[i])
        s = np.array((*column.ang, *column.lin))
        Sn[i, :, i], Wn[i, :, i] = s / (s @ s), W[:, :, i]
    G = np.eye(6 * n) - gamma.reshape(6 * n, 6 * n)
    T = G @ np.linalg.inv(J.reshape(6 * n, 6 * n)) @ G.T
    Wn, Sn = Wn.reshape(6 * n, 5 * n), Sn.reshape(6 * n, n)
    A, B, C = Wn.T @ T @ Wn, Wn.T @ T @ Sn, Sn.T @ T @ Sn
    wanted = rd.Dynamics(model, engine="reference").mass_matrix_inverse(q)
    assert relative(C - B.T @ np.linalg.solve(A, B), wanted) < 1e-10


def turned(kind: str, S: np.ndarray) -> np.ndarray:
    """Another basis of the same space, neither orthogonal nor of unit length."""
    rng = np.random.default_rng(S.shape[1])
    k = 6 - S.shape[1]
    return complement(S) @ (np.eye(k) + 0.3 * rng.uniform(-1, 1, (k, k)))


def test_basis_of_a_user():
    seen = []

    def basis(kind, S):
        seen.append((kind, S.shape))
        return turned(kind, S)

    model = rd.random_tree(12, seed=4, joints=EVERY_KIND, armature=True)
    assert residual(model, "cfa", (2,), scan=ScanOptions(constraint_basis=basis)) < 1e-9
    assert {name for name, _ in seen} >= {"revolute", "prismatic", "helical", "planar", "spherical"}
    assert all(shape[1] < 6 for _, shape in seen), "a floating joint has no constraints"


def raises(kind, S):
    raise KeyError("no such joint")


@pytest.mark.parametrize(
    "basis, message",
    [
        (lambda kind, S: np.eye(6), "constraint_basis: for 'revolute' it returned array"),
        (lambda kind, S: "W", "wanted finite numbers (6, 5)"),
        (lambda kind, S: complement(S) * np.nan, "wanted finite numbers (6, 5)"),
        (lambda kind, S: complement(S) * 1j, "wanted finite numbers (6, 5)"),
        (lambda kind, S: complement(S) + 1e-3, "that is not orthogonal to S; wanted W'S = 0"),
        (lambda kind, S: complement(S) * [1, 1, 0, 1, 1], "a W of rank below 5; wanted full"),
        (raises, "constraint_basis: for 'revolute' it raised KeyError: 'no such joint'"),
    ],
)
def test_functions_that_return_no_basis(basis, message):
    with pytest.raises(rd.ArgumentError, match=re.escape(message)):
        residual(rd.auto_tree(3), "cfa", scan=ScanOptions(constraint_basis=basis))


@pytest.mark.parametrize("option", ["constraint_basis", "constraint_solver"])
def test_options_that_do_not_exist(option):
    with pytest.raises(rd.ArgumentError, match=f"{option}: got 'best'"):
        ScanOptions(**{option: "best"})


# Forward dynamics.

TREES = [
    (1, "chain", "fixed"),
    (2, "star", "floating"),
    (9, "chain", "fixed"),
    (17, "random", "floating"),
    (30, "star", "fixed"),
    (60, "binary", "fixed"),
]


@pytest.mark.parametrize("scan", OPTIONS, ids=named)
@pytest.mark.parametrize("n, shape, base", TREES)
@pytest.mark.some(of=3, rest="matrix")
def test_random_trees(scan, n, shape, base):
    """Joints of every kind, forests and branches; forces, a moving base, armature."""
    model = rd.random_tree(n, seed=n, joints=EVERY_KIND, shape=shape, base=base, armature=n % 2 == 1)
    assert residual(model, "cfa", (3,), n, scan=scan, **everything(model, (3,), n)) < 1e-9


@pytest.mark.parametrize("armature", [1e-310, 1e-12, 1e-3, 1.0, 1e3, 1e10])
def test_armature_of_any_size(armature):
    model = rd.random_tree(8, seed=8, joints=("revolute", "helical", "spherical"), armature=True)
    model = replace(model, tree_armature=armature * np.where(np.arange(model.nv_tree) % 3, 1.0, 0.0))
    assert residual(model, "cfa", (2,)) < 1e-9


@pytest.mark.parametrize("scan", OPTIONS, ids=named)
@pytest.mark.parametrize("n", [5, 10, 20, 40])
@pytest.mark.some(of=3, rest="matrix")
def test_skewed_chains(scan, n):
    for seed in range(3):
        assert residual(rd.auto_tree(n, skew=0.3), "cfa", seed=seed, scan=scan) < ON_CHAINS


def test_refinement_has_the_residual_of_a_factorisation():
    model = rd.auto_tree(100, skew=0.3)
    plain, refined, direct = (
        residual(model, "cfa", (8,), scan=ScanOptions(constraint_solver=solver)) for solver in SOLVERS
    )
    assert refined < 10 * direct < plain


@pytest.mark.parametrize("branching", [1.5, 2.0, 500.0])
def test_larger_trees(branching):
    assert residual(rd.auto_tree(500, branching=branching, skew=0.3), "cfa", engine="cpu") < ON_CHAINS


@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.parametrize("path", robots.OWN, ids=lambda path: path.stem)
@pytest.mark.some(of=3, rest="matrix")
def test_robots(path, base):
    model = rd.load_urdf(path, base=base)
    scan = rd.Dynamics(model, engine="scan")
    q, qd, tau = random_states(model, (2,))
    if scan.singularity() is not None:
        pytest.skip("no inverse mass matrix")
    if model.has_mimic:
        with pytest.raises(rd.ArgumentError, match="mimic"):
            scan.forward_dynamics(q, qd, tau, method="cfa")
    elif path.stem in ("massless_chain", "ball_joint_arm"):
        name = {"massless_chain": "cross", "ball_joint_arm": "wrist/1"}[path.stem]
        with pytest.raises(rd.SingularError, match=f"inverse of every body's inertia, and '{name}' has none"):
            scan.forward_dynamics(q, qd, tau, method="cfa")
    else:
        wanted = rd.Dynamics(model, engine="reference").forward_dynamics(q, qd, tau)
        assert relative(scan.forward_dynamics(q, qd, tau, method="cfa"), wanted) < 1e-8


def point(m: float, c: np.ndarray) -> np.ndarray:
    """The inertia of a point mass."""
    (x, y, z), h = c, m * c
    rotational = m * np.array([y * y + z * z, -x * y, -x * z, x * x + z * z, -y * z, x * x + y * y])
    return np.concatenate(([m], h, rotational))


def rod(m: float, along: np.ndarray) -> np.ndarray:
    """The inertia of a rod without thickness, from the origin to twice its centre."""
    return point(m, along) + np.concatenate((np.zeros(4), point(m / 3, along)[4:]))


@pytest.mark.parametrize(
    "inertia",
    [np.zeros(10), point(2.0, np.array([0.3, -0.2, 0.7])), rod(2.0, np.array([0.3, -0.2, 0.7]))],
    ids=["massless", "point", "rod"],
)
def test_inertias_without_an_inverse(inertia):
    """They are refused where all rows have one; where some have, those have no answer."""
    model = rd.load_urdf(robots.own("arm6"))
    given = np.stack([model.inertia] * 3)
    given[:, 3] = inertia
    with pytest.raises(rd.SingularError, match=f"and '{model.body_names[3]}' has none; wanted mass, and inertia about"):
        residual(model, "cfa", (3,), inertia=given)
    q, qd, tau = random_states(model, (3,))
    given[[0, 2]] = model.inertia * np.array([1.0, 3.0])[:, None, None]
    dyn = rd.Dynamics(model, engine="scan", check=False)
    found = dyn.forward_dynamics(q, qd, tau, method="cfa", inertia=given)
    assert np.isnan(found[1]).all()
    wanted = rd.Dynamics(model, engine="reference").forward_dynamics(q, qd, tau, inertia=given)
    assert relative(found[[0, 2]], wanted[[0, 2]]) < 1e-9


def test_a_massless_body_that_light_subtrees_give_inertia():
    model = rd.random_tree(9, seed=5, joints=("revolute",), shape="star", base="floating")
    given = model.inertia.copy()
    given[0] = 0.0
    assert residual(model, "cfa", (2,), inertia=given) < 1e-8


@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 2), (0,)], ids=str)
def test_shapes(shape):
    assert residual(rd.load_urdf(robots.own("arm6")), "cfa", shape) < 1e-9


def test_float32():
    assert residual(rd.load_urdf(robots.own("quadruped"), base="floating"), "cfa", (4,), dtype="float32") < 1e-2


def test_rows_that_are_not_finite():
    model = rd.random_tree(12, seed=6, joints=EVERY_KIND, armature=True)
    q, qd, tau = random_states(model, (3,))
    dyn = rd.Dynamics(model, engine="scan", check=False)
    wanted = dyn.forward_dynamics(q, qd, tau, method="cfa")
    q[1, 2], tau[2, 0] = np.nan, np.inf
    found = dyn.forward_dynamics(q, qd, tau, method="cfa")
    np.testing.assert_array_equal(found[0], wanted[0])
    assert not np.isfinite(found[1:]).all(axis=1).any()


def test_nothing_that_moves():
    assert residual(rd.random_tree(0, seed=0), "cfa", (2,)) == 0.0


def beyond() -> rd.Model:
    """Prismatic joints between bodies that are short for their mass: regular, and beyond what the method can do."""
    model = rd.random_tree(30, seed=5, joints=("prismatic",), shape="chain")
    X, inertia = model.Xtree.copy(), model.inertia.copy()
    X[:, 9:] *= 1e-3
    inertia[:, 1:4] *= 1e-3
    inertia[:, 4:] *= 1e-6
    return replace(model, Xtree=X, inertia=inertia)


def test_lost_digits_are_said():
    model = beyond()
    dyn = rd.Dynamics(model, engine="scan")
    q, qd, qdd = random_states(model, (2,))
    tau = dyn.inverse_dynamics(q, qd, qdd)
    with pytest.warns(RuntimeWarning, match=r"'cfa': in 2 of 2 rows .* 'aba_scan' and 'crba' lose fewer digits"):
        dyn.forward_dynamics(q, qd, tau, method="cfa")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert relative(dyn.forward_dynamics(q, qd, tau, method="aba_scan"), qdd) < 1e-6
