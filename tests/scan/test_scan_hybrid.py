"""The hybrid articulated-body algorithm by scans: its operators against the matrices of the paper, its answers against
inverse dynamics."""

from __future__ import annotations

import numpy as np
import pytest
import robots
from conftest import random_states, relative
from hypothesis import given, settings
from hypothesis import strategies as st
from scan_forward import EVERY_KIND, everything, residual

import robodyn as rd
from robodyn.engines.scan import ScanOptions, Semigroup
from robodyn.engines.scan.algorithms.backward import backward, forward, fused
from robodyn.engines.scan.trees.prefix_scans import Segments
from robodyn.spatial import rotation_from_quaternion

METHODS = ("hybrid_abia", "hybrid_abia_fused")
ACCURATE = 1e-10
"""The residual that is promised at any size; small trees leave 1e-13."""
seeds = st.integers(0, 2**32 - 1)

# Operators.


def elements(op: Semigroup, seed: int, n: int = 4) -> np.ndarray:
    """(size, n, 1); those that begin with a transform begin with a proper one."""
    rng = np.random.default_rng(seed)
    array = rng.uniform(-1, 1, (op.size, n, 1))
    if "fused" in op.name:
        quaternion = rng.standard_normal((4, n, 1))
        array[:9] = rotation_from_quaternion(*(quaternion / np.linalg.norm(quaternion, axis=0)))
    return array


def motion_matrix(X: np.ndarray) -> np.ndarray:
    """6 x 6 of a transform's twelve scalars."""
    E, r = X[:9].reshape(3, 3), X[9:]
    cross = np.array([[0, -r[2], r[1]], [r[2], 0, -r[0]], [-r[1], r[0], 0]])
    return np.block([[E, np.zeros((3, 3))], [-E @ cross, E]])


def matrix(op: Semigroup, element: np.ndarray) -> np.ndarray:
    """What an element stands for, columns of outputs and the last row included."""
    if "fused" in op.name:
        k = (element.size - 60) // 13
        X, Y = motion_matrix(element[:12]), element[12:48].reshape(6, 6)
        state = np.block([[X.T, np.zeros((6, 6))], [Y - X.T, Y]])
        constant, C, d = element[48:60], element[60 : 60 + 12 * k].reshape(k, 12), element[60 + 12 * k :]
    else:
        k = (element.size - 42) // 7
        state, constant = element[:36].reshape(6, 6), element[36:42]
        C, d = element[42 : 42 + 6 * k].reshape(k, 6), element[42 + 6 * k :]
    size = len(state)
    whole = np.zeros((size + k + 1, size + k + 1))
    whole[:size, :size], whole[:size, -1] = state, constant
    whole[size:-1, :size], whole[size:-1, -1], whole[-1, -1] = C, d, 1.0
    return whole


OPERATORS = [make(k) for make in (backward, forward, fused) for k in (0, 1, 3)]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
@settings(deadline=None, max_examples=20)
@given(seed=seeds)
def test_operators_are_associative_products_of_matrices(op, seed):
    a, b, c = (elements(op, seed + k) for k in range(3))
    left, right = op.compose(op.compose(a, b), c), op.compose(a, op.compose(b, c))
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-11)
    ab = op.compose(a, b)
    for i in range(ab.shape[1]):
        first, then = matrix(op, a[:, i, 0]), matrix(op, b[:, i, 0])
        wanted = then @ first if "forward" in op.name else first @ then
        np.testing.assert_allclose(matrix(op, ab[:, i, 0]), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", [backward, forward, fused])
def test_identity_of_operators_without_outputs(make):
    op = make()
    a = elements(op, 5)
    one = op.identities(a, a.shape[1])
    np.testing.assert_allclose(op.compose(one, a), a, rtol=0, atol=1e-15)
    np.testing.assert_allclose(op.compose(a, one), a, rtol=0, atol=1e-15)


class PaperChain:
    """A chain of one-degree-of-freedom joints in the paper's symbols, made of random numbers; after the last body comes
    nothing, written as X = 1 and S = 0. Lists start at body 0, the base, of which only the force is used."""

    def __init__(self, n: int = 6, seed: int = 7) -> None:
        print(f"paper's chain: seed {seed}")
        rng = np.random.default_rng(seed)
        self.n = n
        quaternions = rng.standard_normal((n, 4))
        rotations = [np.array(rotation_from_quaternion(*(x / np.linalg.norm(x)))) for x in quaternions]
        self.transforms = [None, *(np.concatenate((E, rng.uniform(-1, 1, 3))) for E in rotations), None]
        self.X = [None, *(motion_matrix(x) for x in self.transforms[1:-1]), np.eye(6)]
        self.S = [None, *rng.uniform(-1, 1, (n, 6)), np.zeros(6)]
        self.tau = [None, *rng.uniform(-1, 1, n), 0.0]
        self.F_hat = [*rng.uniform(-1, 1, (n + 1, 6))]
        factors = rng.uniform(-1, 1, (n + 1, 6, 6))
        inertia = [A @ A.T + np.eye(6) for A in factors]
        self.omega = [None] * (n + 1) + [1.0]
        self.pi = [None] * (n + 1) + [np.zeros(6)]
        self.Y = [None] * (n + 1) + [np.eye(6)]
        for i in range(n, 0, -1):  # eq. 7, and the definitions below eq. 8
            U = inertia[i] @ self.S[i]
            self.omega[i] = self.S[i] @ U
            self.pi[i] = self.X[i].T @ U / self.omega[i]
            self.Y[i] = self.X[i].T @ (np.eye(6) - np.outer(U, self.S[i]) / self.omega[i])
            inertia[i - 1] += self.X[i].T @ (inertia[i] - np.outer(U, U) / self.omega[i]) @ self.X[i]

    def eq_16(self, i: int) -> np.ndarray:
        A = np.zeros((8, 8))
        A[:6, :6], A[:6, 7], A[6, :6], A[7, 7] = self.X[i + 1].T, self.F_hat[i], self.S[i + 1], 1.0
        return A

    def eq_18(self, i: int) -> np.ndarray:
        """With Omega^-1 tau-hat for the paper's Omega tau-hat, as in eq. 8."""
        A, j = np.zeros((8, 8)), i + 1
        A[:6, :6], A[:6, 7] = self.Y[j], self.pi[j] * self.tau[j]
        A[6, :6], A[6, 7], A[7, 7] = -self.S[j] / self.omega[j], self.tau[j] / self.omega[j], 1.0
        return A

    def eq_19(self, i: int, c_hat: float) -> np.ndarray:
        A = np.zeros((8, 8))
        A[:6, :6], A[:6, 7], A[6, :6], A[6, 7], A[7, 7] = self.Y[i].T, self.S[i] * c_hat, -self.pi[i], c_hat, 1.0
        return A

    def eq_20(self, i: int) -> np.ndarray:
        """On (F_i, tau-hat_{i+1}, z-hat_{i+1}, c-hat_{i+2}, 1), with Omega^-1 likewise."""
        A, j = np.zeros((15, 15)), i + 1
        A[:6, :6], A[:6, 14] = self.X[i].T, self.F_hat[i - 1]
        A[6, :6], A[6, 14] = -self.S[i], self.tau[i]
        A[7:13, 6], A[7:13, 7:13] = self.pi[j], self.Y[j]
        A[13, 6], A[13, 7:13], A[14, 14] = 1.0 / self.omega[j], -self.S[j] / self.omega[j], 1.0
        return A


def suffixes(matrices: list[np.ndarray]) -> list[np.ndarray]:
    """A_i ... A_n for every i."""
    found = [matrices[-1]]
    for A in reversed(matrices[:-1]):
        found.append(A @ found[-1])
    return found[::-1]


def affine(A: np.ndarray) -> np.ndarray:
    """The element of a matrix 8 x 8."""
    return np.concatenate((A[:6, :6].ravel(), A[:6, 7], A[6, :6], A[6, 7:]))


@pytest.mark.parametrize("equation", ["eq_16", "eq_18"])
def test_backward_scan_is_the_product_of_the_papers_8x8(equation):
    chain, op = PaperChain(), backward(1)
    matrices = [getattr(chain, equation)(i) for i in range(1, chain.n + 1)]
    assert all((A[:, 6] == 0).all() for A in matrices), "no product reads an output"
    stacked = np.stack([affine(A) for A in matrices], axis=1)[:, :, None]
    scanned = Segments([chain.n]).scan(op, stacked, backwards=True)
    for i, wanted in enumerate(suffixes(matrices)):
        np.testing.assert_allclose(matrix(op, scanned[:, i, 0]), wanted, rtol=0, atol=1e-12)


def test_forward_scan_is_the_product_of_the_papers_8x8():
    chain, op, c_hat = PaperChain(), forward(1), np.linspace(-1, 1, 6)
    matrices = [chain.eq_19(i, c_hat[i - 1]) for i in range(1, chain.n + 1)]
    stacked = np.stack([affine(A) for A in matrices], axis=1)[:, :, None]
    scanned, product = Segments([chain.n]).scan(op, stacked), np.eye(8)
    for i, A in enumerate(matrices):
        product = A @ product
        np.testing.assert_allclose(matrix(op, scanned[:, i, 0]), product, rtol=0, atol=1e-12)


def test_fused_scan_is_the_product_of_the_papers_15x15():
    """The paper's F is one body ahead of its z-hat, so what is compared are F, z-hat and c-hat of every body."""
    chain, op = PaperChain(), fused(1)
    matrices = [chain.eq_20(i) for i in range(1, chain.n + 1)]
    assert all((A[:, 13] == 0).all() for A in matrices), "no product reads c-hat"
    start = np.zeros(15)
    start[:6], start[14] = chain.F_hat[chain.n], 1.0
    literal = [product @ start for product in suffixes(matrices)]  # F_{i-1}, tau-hat_i, z_i, c_{i+1}
    stacked = np.zeros((op.size, chain.n, 1))
    for i in range(1, chain.n + 1):
        j = i + 1
        X = np.concatenate((np.eye(3).ravel(), np.zeros(3))) if j > chain.n else chain.transforms[j]
        row = -chain.S[j] / chain.omega[j]
        parts = (X, chain.Y[j].ravel(), chain.F_hat[i], chain.pi[j] * chain.tau[j], row, row)
        stacked[:, i - 1, 0] = np.concatenate((*parts, [chain.tau[j] / chain.omega[j]]))
    scanned = Segments([chain.n]).scan(op, stacked, backwards=True)[:, :, 0]
    F = np.stack([chain.F_hat[0] + chain.X[1].T @ scanned[48:54, 0], *scanned[48:54, :-1].T])
    np.testing.assert_allclose(F, [x[:6] for x in literal], rtol=0, atol=1e-12)
    np.testing.assert_allclose(scanned[54:60].T, [x[7:13] for x in literal], rtol=0, atol=1e-12)
    np.testing.assert_allclose(scanned[72], [x[13] for x in literal], rtol=0, atol=1e-12)


# Forward dynamics.

TREES = [
    (1, "chain", "fixed"),
    (2, "star", "floating"),
    (7, "chain", "fixed"),
    (23, "random", "floating"),
    (60, "caterpillar", "fixed"),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n, shape, base", TREES)
@pytest.mark.some(of=3, rest="matrix")
def test_random_trees(method, n, shape, base):
    """Joints of every kind, universal ones with their massless middle included; forces, moving base, armature."""
    model = rd.random_tree(n, seed=n, joints=(*EVERY_KIND, "universal"), shape=shape, base=base, armature=n % 2 == 1)
    assert residual(model, method, (3,), n, **everything(model, (3,), n)) < 1e-12


@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.parametrize("path", robots.OWN, ids=lambda path: path.stem)
@pytest.mark.some(of=3, rest="matrix")
def test_robots(path, base):
    model = rd.load_urdf(path, base=base)
    if model.has_mimic:
        with pytest.raises(rd.ArgumentError, match="mimic"):
            residual(model, "hybrid_abia")
        return
    q, qd, tau = random_states(model, (2,))
    scan, reference = (rd.Dynamics(model, engine=engine) for engine in ("scan", "reference"))
    if scan.singularity() is not None:
        with pytest.raises(rd.SingularError):
            scan.forward_dynamics(q, qd, tau, method="hybrid_abia")
        return
    wanted = reference.forward_dynamics(q, qd, tau)
    for method in METHODS:
        assert relative(scan.forward_dynamics(q, qd, tau, method=method), wanted) < 1e-9


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "model",
    [
        lambda: rd.auto_tree(2000, skew=0.3),
        lambda: rd.auto_tree(2000, branching=1.5, skew=0.3),
        lambda: rd.auto_tree(2000, branching=2.0, skew=0.3),
        lambda: rd.auto_tree(300, branching=300.0, skew=0.3),
        lambda: rd.random_tree(40, seed=40, shape="star"),
    ],
    ids=["chain", "branching 1.5", "branching 2", "star", "forest"],
)
def test_long_and_wide_trees(method, model):
    assert residual(model(), method, engine="cpu") < ACCURATE


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", [{"layout": "euler"}, {"kernel": "blelloch"}, {"kernel": "hillis_steele"}])
def test_options(method, options):
    model = rd.random_tree(15, seed=3)
    assert residual(model, method, (2,), scan=ScanOptions(**options)) < 1e-12


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 2), (0,)], ids=str)
def test_shapes(method, shape):
    assert residual(rd.load_urdf(robots.own("arm6")), method, shape) < 1e-12


@pytest.mark.parametrize("method", METHODS)
def test_float32(method):
    model = rd.load_urdf(robots.own("quadruped"), base="floating")
    assert residual(model, method, (4,), dtype="float32") < 1e-4


@pytest.mark.parametrize("method", METHODS)
def test_inertia_of_each_row_and_rows_that_are_not_finite(method):
    model = rd.load_urdf(robots.own("arm6"))
    inertia = model.inertia * np.array([1.0, 2.0, 3.0])[:, None, None]
    assert residual(model, method, (3,), inertia=inertia) < 1e-12
    q, qd, tau = random_states(model, (3,))
    dyn = rd.Dynamics(model, engine="scan", check=False)
    wanted = dyn.forward_dynamics(q, qd, tau, method=method)
    q[1, 2], tau[2, 0] = np.nan, np.inf
    found = dyn.forward_dynamics(q, qd, tau, method=method)
    np.testing.assert_array_equal(found[0], wanted[0])
    assert not np.isfinite(found[1:]).all(axis=1).any()


def test_nothing_that_moves():
    model = rd.random_tree(0, seed=0)
    for method in METHODS:
        assert residual(model, method, (2,)) == 0.0
