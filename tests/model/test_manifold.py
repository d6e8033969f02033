"""The configuration manifold: integrate and difference undo each other and agree with the matrix exponential."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

import robodyn as rd
from robodyn.description import JOINT_TYPES, Joint, Limits, Link, RobotDescription
from robodyn.joints import KINDS

EVERY_KIND = [kind for kind in JOINT_TYPES if kind != "fixed"]


def one_joint(kind):
    return rd.random_tree(1, seed=3, joints=[kind])


@pytest.mark.parametrize("size", [1e-12, 1e-6, 1e-3, 0.1, 0.4999, 0.5001, 1.0, 3.0])
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_difference_undoes_integrate(kind, size):
    model, rng = one_joint(kind), np.random.default_rng(0)
    q = model.random_configuration(rng, (20,))
    step = rng.standard_normal((20, model.nv))
    step *= size / np.linalg.norm(step, axis=-1, keepdims=True)
    # Positions of order one hold a step to one rounding of themselves.
    assert np.abs(model.difference(q, model.integrate(q, step)) - step).max() < 1e-13 * max(1.0, size) * 20


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_integrate_undoes_difference(kind):
    model, rng = one_joint(kind), np.random.default_rng(1)
    q0, q1 = model.random_configuration(rng, (2, 50))
    step = model.difference(q0, q1)
    again = model.integrate(q0, step)
    assert np.abs(model.difference(again, q1)).max() < 1e-12
    poses = rd.Dynamics(model, engine="reference").forward_kinematics
    assert np.abs(poses(again) - poses(q1)).max() < 1e-12


@pytest.mark.parametrize("size", [1e-9, 1e-3, 0.3, 0.6, 2.9])
@pytest.mark.parametrize("kind", ["floating", "spherical", "planar"])
def test_integrate_is_the_matrix_exponential(kind, size):
    """T(q (+) v) = T(q) exp(v^), with v in the body frame: the definition that the rows implement in closed form."""
    row = next(row for row in KINDS if row.name == kind)
    rng = np.random.default_rng(2)
    model = rd.random_tree(1, seed=5, joints=[kind])
    q, v = model.random_configuration(rng), rng.standard_normal(model.nv)
    v *= size / np.linalg.norm(v)
    twist = sum(np.array([*column.ang, *column.lin]) * x for column, x in zip(row.subspace(0.0), v, strict=True))
    (wx, wy, wz), p = twist[:3], twist[3:]
    generator = np.zeros((4, 4))
    generator[:3, :3] = [[0, -wz, wy], [wz, 0, -wx], [-wy, wx, 0]]
    generator[:3, 3] = p

    def pose(q):
        if kind == "floating":
            R, p = Rotation.from_quat(q[3:]).as_matrix(), q[:3]
        elif kind == "spherical":
            R, p = Rotation.from_quat(q).as_matrix(), np.zeros(3)
        else:
            R, p = Rotation.from_rotvec([0, 0, q[2]]).as_matrix(), np.array([q[0], q[1], 0])
        return np.block([[R, p[:, None]], [np.zeros(3), 1.0]])

    assert np.abs(pose(model.integrate(q, v)) - pose(q) @ expm(generator)).max() < 1e-13


def test_attitudes_go_the_short_way_round():
    model = one_joint("spherical")
    q0 = np.array([0, 0, 0, 1.0])
    q1 = np.r_[Rotation.from_rotvec([0, 0, 3.0]).as_quat()]
    assert np.allclose(model.difference(q0, -q1), [0, 0, 3.0], atol=1e-14)
    half_turn = np.array([1.0, 0, 0, 0])
    assert np.isclose(np.linalg.norm(model.difference(q0, half_turn)), np.pi)


def test_planar_angle_goes_the_nearest_way_round():
    model = one_joint("planar")
    step = model.difference([0, 0, 0.0], [1, 2, 2 * np.pi + 0.1])
    assert np.isclose(step[2], 0.1)


def test_leading_axes_broadcast_and_dt_scales():
    model = rd.random_tree(6, seed=1, joints=EVERY_KIND)
    rng = np.random.default_rng(0)
    q, v = model.random_configuration(rng, (4, 1)), rng.standard_normal((3, model.nv))
    moved = model.integrate(q, v, 0.01)
    assert moved.shape == (4, 3, model.nq)
    assert np.allclose(moved[2, 1], model.integrate(q[2, 0], v[1] * 0.01), atol=1e-15)
    assert np.allclose(model.integrate(q[0], v, np.array([0.01, 0.02, 0.03]))[1], model.integrate(q[0, 0], v[1], 0.02))
    assert model.integrate(np.empty((0, model.nq)), v[0]).shape == (0, model.nq)


def test_neutral_and_random_configurations_lie_on_the_manifold():
    model = rd.random_tree(12, seed=4, joints=EVERY_KIND, base="floating")
    assert (model.normalize(model.neutral()) == model.neutral()).all()
    q = model.random_configuration(7, (100,))
    assert np.allclose(model.normalize(q), q, atol=1e-15)
    bounded = np.isfinite(model.lower)
    assert (
        bounded.any()
        and (q[:, bounded] >= model.lower[bounded]).all()
        and (q[:, bounded] <= model.upper[bounded]).all()
    )
    assert (model.random_configuration(7, (100,)) == q).all()
    assert model.random_configuration(np.random.default_rng(7)).shape == (model.nq,)


@pytest.mark.parametrize("rng", ["seed", -1, 2.5])
def test_a_wrong_seed_is_named(rng):
    with pytest.raises(rd.ArgumentError, match="rng: got"):
        one_joint("revolute").random_configuration(rng)


def test_limits_too_far_apart_to_subtract_are_no_range():
    joints = (Joint("j", "revolute", "a", "b", limits=Limits(-1e308, 1e308)),)
    model = rd.build_model(RobotDescription("r", (Link("a"), Link("b")), joints))
    assert (np.abs(model.random_configuration(0, (100,))) <= np.pi).all()


@pytest.mark.parametrize(
    "shape", [-5, 2**62, None, "x", (2.5,), (-1,), (True,), np.array([2]), (1,) * 40, (0, 10**18), (2**62,)]
)
def test_a_wrong_shape_is_named(shape):
    with pytest.raises(rd.ArgumentError, match=r"^shape: got .*; wanted"):
        one_joint("floating").random_configuration(0, shape)


def test_quaternions_are_normalised_on_the_way_in_and_zero_length_is_an_error():
    model = one_joint("floating")
    q = model.random_configuration(0, (3,))
    longer = q.copy()
    longer[:, 3:] *= [[2.0], [0.1], [5.0]]
    dyn = rd.Dynamics(model, engine="reference")
    assert np.allclose(dyn.forward_kinematics(longer), dyn.forward_kinematics(q), atol=1e-14)
    assert np.allclose(model.integrate(longer, np.zeros(6)), q, atol=1e-14)
    longer[1, 3:] = 0.0
    checked = rd.Dynamics(model, engine="reference", check=True)
    for call in (lambda: checked.forward_kinematics(longer), lambda: model.integrate(longer, np.zeros(6))):
        with pytest.raises(rd.ArgumentError, match=r"'joint0.qx' has zero length in 1 of 3 rows: 1"):
            call()


@pytest.mark.parametrize("size", [1e-310, 1e-300, 1e-200, 1e-20, 1e-11, 1e-3, 1e200, 1.6e308])
def test_quaternions_of_any_size_are_normalised(size):
    """Squares of their components may vanish or overflow, and their sum."""
    model = one_joint("spherical")
    q = np.array([0.1, -0.7, 0.5, 0.5])
    given = q * size
    exact = given / np.longdouble(size)  # subnormal numbers have few digits
    unit = (exact / np.sqrt((exact * exact).sum())).astype(np.float64)
    for got in (model.integrate(given, np.zeros(3)), model.normalize(given), model.unit_coordinates(given)):
        np.testing.assert_allclose(got, unit, rtol=1e-15)
    turned = model.integrate(q, [0.3, -0.2, 0.1])
    np.testing.assert_allclose(model.difference(given, turned * size), [0.3, -0.2, 0.1], rtol=0, atol=1e-12)
    with pytest.raises(rd.ArgumentError, match="zero length"):
        model.normalize(q * 0.0)


def test_nan_and_infinity_stay_in_their_rows_and_warn_of_nothing():
    model = rd.random_tree(4, seed=1, joints=["floating", "planar", "spherical", "revolute"], mimic=0.5)
    q = model.random_configuration(0, (5,))
    wild, step = q.copy(), np.full((5, model.nv), 0.1)
    wild[0], wild[1], wild[2], step[3] = np.nan, np.inf, 1e308, 1e308
    moved, apart = model.integrate(wild, step, 10.0), model.difference(wild, -wild)
    assert np.isnan(moved[[0, 1, 3]]).any(axis=1).all()
    assert (moved[4] == model.integrate(q[4], step[4], 10.0)).all()
    assert np.isfinite(moved[4]).all()
    assert (apart[4] == model.difference(q[4], -q[4])).all()


@pytest.mark.parametrize(("q", "qd"), [([0.0, 1.0], [0.0]), ([0.0], [[0.0, 1.0]]), (["a"], [0.0]), ([1j], [0.0])])
def test_wrong_shapes_are_named(q, qd):
    with pytest.raises(rd.ArgumentError, match=r"^(q|qd): got .*; wanted a real array of shape \(\.\.\., 1\)"):
        one_joint("revolute").integrate(q, qd)
