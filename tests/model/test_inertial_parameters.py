"""Inertial parameters: order, frames, whether a body can have them, and how far apart bodies are."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import relative

import robodyn as rd
from robodyn.inertial_parameters import (
    consistency_margin,
    deviation_metric,
    frame_matrix,
    from_pseudo_inertia,
    in_frame,
    physically_consistent,
    pseudo_inertia,
)
from robodyn.spatial import rotation_from_quaternion


def clouds(shape=(50,), points=6, seed=0):
    """Parameters of point masses in a cloud that is neither flat nor centred, and the points."""
    rng = np.random.default_rng(seed)
    mass, place = rng.uniform(0.1, 2.0, (*shape, points)), rng.standard_normal((*shape, points, 3))
    x, y, z = np.moveaxis(place, -1, 0)
    inertia = (y * y + z * z, -x * y, -x * z, x * x + z * z, -y * z, x * x + y * y)
    return np.stack([(mass * each).sum(-1) for each in (np.ones_like(x), x, y, z, *inertia)], axis=-1), mass, place


def test_pseudo_inertia_is_the_second_moment_of_the_mass():
    pi, mass, place = clouds((3, 4))
    homogeneous = np.concatenate([place, np.ones((*mass.shape, 1))], axis=-1)
    wanted = np.einsum("...p,...pi,...pj->...ij", mass, homogeneous, homogeneous)
    assert relative(pseudo_inertia(pi), wanted) < 1e-14
    assert relative(from_pseudo_inertia(pseudo_inertia(pi)), pi) < 1e-14


def test_what_is_a_body():
    assert physically_consistent(clouds()[0]).all()
    assert not physically_consistent(clouds(points=3)[0], margin=1e-12).any()  # three points lie in a plane
    assert physically_consistent(clouds(points=3)[0], margin=-1e-12).all()
    brick = [2.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.5, 0.0, 2.0]
    needle = [2.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.5, 0.0, 2.6]  # 1.0 + 1.5 < 2.6: no body
    elsewhere = [2.0, 0.0, 0.0, 2.0, 1.0, 0.0, 0.0, 1.5, 0.0, 2.0]  # too little inertia for a centre so far away
    light = [-2.0, *brick[1:]]
    assert physically_consistent([brick, needle, elsewhere, light, [0.0] * 10]).tolist() == [True] + [False] * 4
    assert physically_consistent(brick) and not physically_consistent(needle)
    assert consistency_margin(brick) == pytest.approx(0.25) and consistency_margin([0.0] * 10) == 0.0
    assert consistency_margin(needle) == pytest.approx(-0.05)


def test_parameters_that_are_not_finite_belong_to_no_body():
    pi = np.stack([clouds(())[0]] * 3)
    pi[1, 5], pi[2, 0] = np.nan, np.inf
    assert physically_consistent(pi).tolist() == [True, False, False]
    assert np.isnan(consistency_margin(pi)).tolist() == [False, True, True]
    assert not physically_consistent(np.full(10, 1e308))
    assert physically_consistent(np.empty((0, 10))).shape == (0,)


def random_transforms(n, seed=1):
    rng = np.random.default_rng(seed)
    quaternion = rng.standard_normal((n, 4))
    quaternion /= np.linalg.norm(quaternion, axis=1, keepdims=True)
    return np.column_stack([*rotation_from_quaternion(*quaternion.T), rng.standard_normal((n, 3))])


def test_parameters_in_another_frame():
    pi, mass, place = clouds()
    X = random_transforms(len(pi))
    E, r = X[:, :9].reshape(-1, 3, 3), X[:, 9:]
    seen = np.einsum("nij,npj->npi", E, place - r[:, None])
    homogeneous = np.concatenate([seen, np.ones((*mass.shape, 1))], axis=-1)
    moved = in_frame(pi, X)
    assert relative(pseudo_inertia(moved), np.einsum("np,npi,npj->nij", mass, homogeneous, homogeneous)) < 1e-14
    assert relative((frame_matrix(X) @ pi[..., None])[..., 0], moved) < 1e-14
    assert in_frame(pi[0], X).shape == in_frame(pi, X[0]).shape == (50, 10) and frame_matrix(X[0]).shape == (10, 10)
    # A regressor whose columns are changed with the parameters says the same.
    Y = np.random.default_rng(2).standard_normal((50, 4, 10))
    torques = np.einsum("nij,nj->ni", Y @ frame_matrix(X), pi)
    assert relative(torques, np.einsum("nij,nj->ni", Y, moved)) < 1e-13


def test_deviations_are_weighed_alike_in_every_frame_and_unit():
    pi = clouds()[0]
    deviation = 0.1 * np.random.default_rng(3).standard_normal(pi.shape)
    G = deviation_metric(pi)
    size = np.einsum("ni,nij,nj->n", deviation, G, deviation)
    P, D = pseudo_inertia(pi), pseudo_inertia(deviation)
    share = np.linalg.inv(P) @ D
    assert relative(size, np.trace(share @ share, axis1=-2, axis2=-1)) < 1e-12
    assert (np.linalg.eigvalsh(G) > 0).all() and relative(np.swapaxes(G, -1, -2), G) < 1e-12
    X = random_transforms(len(pi))
    in_grams_and_centimetres = 1e3 * np.array([1.0, *[1e2] * 3, *[1e4] * 6])
    for change in (lambda x: in_frame(x, X), lambda x: x * in_grams_and_centimetres):
        other, moved = deviation_metric(change(pi)), change(deviation)
        assert relative(np.einsum("ni,nij,nj->n", moved, other, moved), size) < 1e-9


def test_order_of_pinocchio():
    order = rd.conventions.pinocchio_parameters(2)
    ours = np.array(["m", "mx", "my", "mz", "xx", "xy", "xz", "yy", "yz", "zz"] * 2)
    theirs = ["m", "mx", "my", "mz", "xx", "xy", "yy", "xz", "yz", "zz"] * 2
    assert ours[order].tolist() == theirs and (order[order] == np.arange(20)).all()
    assert rd.conventions.pinocchio_parameters(0).shape == (0,)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            lambda: pseudo_inertia(np.ones(9)),
            r"^inertia: got shape \(9,\); wanted a real array of shape",
        ),
        (lambda: physically_consistent("body"), "^inertia: got"),
        (lambda: physically_consistent(np.ones(10), margin=np.nan), "^margin: got"),
        (lambda: from_pseudo_inertia(np.ones((3, 3))), r"^J: got shape \(3, 3\)"),
        (lambda: in_frame(np.ones(10), np.ones(16)), r"^X: got shape \(16,\).*E row-major"),
        (lambda: in_frame(np.ones((2, 10)), np.ones((3, 12))), r"leading axes do not broadcast: got inertia \(2,\)"),
        (lambda: deviation_metric(np.zeros(10)), "^nominal: no body can have these parameters; wanted a positive"),
        (
            lambda: deviation_metric(np.zeros((3, 10))),
            "^nominal: no body can have these parameters in 3 of 3 rows: 0",
        ),
        (lambda: rd.conventions.pinocchio_parameters(-1), "^n_bodies: got -1; wanted an integer from 0"),
        (lambda: rd.conventions.pinocchio_parameters(1.0), "^n_bodies: got 1.0"),
    ],
)
def test_wrong_arguments_are_named(wrong, words):
    with pytest.raises(rd.ArgumentError, match=words):
        wrong()
