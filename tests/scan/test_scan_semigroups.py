"""The operators of scans: associativity, identity, inverse, on random elements."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robodyn.engines.scan import AFFINE_FORCES, AFFINE_MOTIONS, POSES, TWIST_PAIRS, Semigroup, sums
from robodyn.spatial import rotation_from_quaternion

OPERATORS = [POSES, AFFINE_MOTIONS, TWIST_PAIRS, AFFINE_FORCES, sums(6), sums(10)]
seeds = st.integers(0, 2**32 - 1)


def elements(op: Semigroup, seed: int, n: int = 5, batch: int = 2) -> np.ndarray:
    """Elements (size, n, batch); those that begin with a transform begin with a proper one."""
    rng = np.random.default_rng(seed)
    array = rng.uniform(-2, 2, (op.size, n, batch))
    if not op.plain:
        quaternion = rng.standard_normal((4, n, batch))
        array[:9] = rotation_from_quaternion(*(quaternion / np.linalg.norm(quaternion, axis=0)))
    return array


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * (1 + np.abs(b).max()))


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
@settings(deadline=None, max_examples=30)
@given(seed=seeds)
def test_associative(op, seed):
    a, b, c = (elements(op, seed + k) for k in range(3))
    close(op.compose(op.compose(a, b), c), op.compose(a, op.compose(b, c)))


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
@settings(deadline=None, max_examples=30)
@given(seed=seeds)
def test_identity_and_inverse(op, seed):
    a = elements(op, seed)
    one = op.identities(a, a.shape[1])
    close(op.compose(one, a), a)
    close(op.compose(a, one), a)
    close(op.compose(a, op.inverse(a)), one)
    close(op.compose(op.inverse(a), a), one)


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_copies_that_were_used(op):
    a, b = elements(op, 1), elements(op, 2)
    wanted = op.compose(a, b)
    for again in (pickle.loads(pickle.dumps(op)), copy.deepcopy(op)):
        np.testing.assert_array_equal(again.compose(a, b), wanted)


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_only_sums_commute(op):
    a, b = elements(op, 1), elements(op, 2)
    assert np.allclose(op.compose(a, b), op.compose(b, a)) == op.commutative == op.plain


def motion_matrix(X: np.ndarray) -> np.ndarray:
    """6 x 6 of a transform's twelve scalars."""
    E, r = X[:9].reshape(3, 3), X[9:]
    cross = np.array([[0, -r[2], r[1]], [r[2], 0, -r[0]], [-r[1], r[0], 0]])
    return np.block([[E, np.zeros((3, 3))], [-E @ cross, E]])


def motion_cross(v: np.ndarray) -> np.ndarray:
    w, l = (np.array([[0, -x[2], x[1]], [x[2], 0, -x[0]], [-x[1], x[0], 0]]) for x in (v[:3], v[3:]))
    return np.block([[w, np.zeros((3, 3))], [l, w]])


def affine(A, b):
    return np.block([[A, b[:, None]], [np.zeros((1, A.shape[1])), np.ones((1, 1))]])


def matrix(op: Semigroup, element: np.ndarray) -> np.ndarray:
    """The matrix that an element stands for; the one nearer the leaves multiplies from the left, but for forces."""
    X = motion_matrix(element[:12])
    if op is POSES:
        return X
    if op is AFFINE_MOTIONS:
        return affine(X, element[12:])
    if op is AFFINE_FORCES:
        return affine(X.T, element[12:])
    xi1, xi2 = element[12:18], element[18:]
    both = np.block([[X, -motion_cross(xi2) @ X], [np.zeros((6, 6)), X]])
    return affine(both, np.concatenate((xi1, xi2)))


@pytest.mark.parametrize("op", OPERATORS[:4], ids=lambda op: op.name)
def test_elements_are_the_matrices_of_the_papers(op):
    """Yang, Wu, Pan 2016: eq. 12 for twist pairs, eq. 16 for forces; products of them are compositions."""
    a, b = (elements(op, seed, 1, 1)[:, 0, 0] for seed in (3, 4))
    ab = op.compose(a[:, None, None], b[:, None, None])[:, 0, 0]
    left, right = (matrix(op, a), matrix(op, b)) if op is AFFINE_FORCES else (matrix(op, b), matrix(op, a))
    close(matrix(op, ab), left @ right)
