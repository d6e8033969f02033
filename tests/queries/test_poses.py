"""Exponentials, logarithms and errors of poses: against matrix exponentials and differences, first and later calls."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from conftest import relative
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

import robodyn as rd
from robodyn.api.queries import poses
from robodyn.engines.cpu.native.layout import layout_is_known

FRAMES = ("world_aligned", "body", "world")
ANGLES = (0.0, 1e-12, 1e-7, 1e-3, 0.4, 1.0, 2.0, 3.0, np.pi - 1e-3, np.pi - 1e-8)


@pytest.fixture(params=["first", "later"])
def rx(request, monkeypatch):
    """The functions as their first calls answer, or compiled."""
    fresh = poses._Functions()
    monkeypatch.setattr(poses, "_FUNCTIONS", fresh)
    if request.param == "later":
        if not layout_is_known():
            pytest.skip("no built-in entries on this Python and NumPy")
        T = np.eye(4)
        for frame in FRAMES:
            for _ in range(12):
                rd.pose_error(T, T, frame=frame), rd.pose_error_gradient(T, T, frame=frame)
        for x in (np.zeros(3), np.zeros(6)):
            for _ in range(12):
                rd.exp(x), rd.exp_gradient(x), rd.log(rd.exp(x)), rd.log_gradient(rd.exp(x))
        assert all("built-in" in repr(getattr(fresh, name)) for name in poses.TASKS)
    else:
        for name in poses.TASKS:
            fresh.__dict__[name] = getattr(fresh, name).__wrapped__
    return rd


def twists(n: int = 12) -> np.ndarray:
    print("seed 3")
    return np.random.default_rng(3).normal(size=(n, 6))


def hat(xi: np.ndarray) -> np.ndarray:
    (x, y, z), v = xi[:3], xi[3:]
    return np.block([[np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]), v[:, None]], [np.zeros((1, 4))]])


def slope(function, n: int) -> np.ndarray:
    step = 1e-6
    return np.stack([(function(step * e) - function(-step * e)) / (2 * step) for e in np.eye(n)], -1)


def test_exponentials_and_logarithms_of_every_angle(rx):
    directions = [*np.eye(3), -np.eye(3)[1], *twists(6)[:, :3]]
    for angle, direction in itertools.product(ANGLES, directions):
        w = angle * direction / np.linalg.norm(direction)
        xi = np.array([*w, 0.3, -2.0, 0.7])
        T = rx.exp(xi)
        assert np.abs(T - expm(hat(xi))).max() < 1e-14
        assert np.abs(rx.exp(w) - T[:3, :3]).max() < 4e-15
        # The twist of a rotation by almost pi is as exact as its matrix.
        assert np.abs(rx.log(T) - xi).max() < 1e-14 * max(1.0, 1.0 / (np.pi - angle)), angle
        assert np.abs(rx.log(T[:3, :3]) - w).max() < 1e-14 * max(1.0, 1.0 / (np.pi - angle)), angle
    half = rx.log(np.diag([-1.0, 1.0, -1.0]))
    assert np.abs(np.abs(half) - [0.0, np.pi, 0.0]).max() < 1e-15
    turns = 20 * twists()[:, :3]
    assert np.abs(rx.exp(turns) - Rotation.from_rotvec(turns).as_matrix()).max() < 1e-13
    assert np.abs(rx.log(rx.exp(turns)) - Rotation.from_rotvec(turns).as_rotvec()).max() < 1e-12


def test_gradients_are_differences(rx):
    for xi in twists(4):
        T, w, R = rx.exp(xi), xi[:3], rx.exp(xi[:3])
        for x, X, n in ((xi, T, 6), (w, R, 3)):
            by_x = slope(lambda d, x=x, X=X: rx.log(np.linalg.inv(X) @ rx.exp(x + d)), n)
            assert np.abs(by_x - rx.exp_gradient(x)).max() < 1e-8
            assert np.abs(slope(lambda d, X=X: rx.log(X @ rx.exp(d)), n) - rx.log_gradient(X)).max() < 1e-8


@pytest.mark.parametrize("frame", FRAMES)
def test_errors_lead_to_the_target_and_have_gradients(rx, frame):
    def moved(T, twist):
        if frame != "world_aligned":
            return T @ rx.exp(twist) if frame == "body" else rx.exp(twist) @ T
        return np.block([[rx.exp(twist[:3]) @ T[:3, :3], T[:3, 3:] + twist[3:, None]], [T[3:]]])

    T = rx.exp(twists())
    for A, B in itertools.pairwise(T[:4]):
        error = rx.pose_error(A, B, frame=frame)
        assert np.abs(moved(A, error) - B).max() < 1e-13 and np.linalg.norm(error[:3]) <= np.pi
        by_A, by_B = rx.pose_error_gradient(A, B, frame=frame)
        for by, of in (
            (by_A, lambda d, A=A, B=B: rx.pose_error(moved(A, d), B, frame=frame)),
            (by_B, lambda d, A=A, B=B: rx.pose_error(A, moved(B, d), frame=frame)),
        ):
            assert np.abs(slope(of, 6) - by).max() < 1e-8


@pytest.mark.parametrize("frame", FRAMES)
def test_errors_go_with_jacobians(frame):
    model = rd.random_tree(6, seed=1, joints=("revolute", "spherical"), base="floating")
    dyn, q = rd.Dynamics(model), model.random_configuration(0)
    link, target = model.link_names[-1], dyn.link_pose(model.random_configuration(1), model.link_names[-1])

    def error(d):
        return rd.pose_error(dyn.link_pose(model.integrate(q, d), link), target, frame=frame)

    by_q = rd.pose_error_gradient(dyn.link_pose(q, link), target, frame=frame)[0] @ dyn.jacobian(q, link, frame=frame)
    assert np.abs(slope(error, model.nv) - by_q).max() < 1e-7


def test_batches_lists_and_other_dtypes(rx):
    xi = twists(30).reshape(5, 6, 6)
    T = rx.exp(xi)
    assert T.shape == (5, 6, 4, 4) and np.array_equal(T[..., 3, :], np.broadcast_to([0, 0, 0, 1.0], (5, 6, 4)))
    for call, given in ((rx.exp, xi), (rx.log, T), (rx.exp_gradient, xi), (rx.log_gradient, T)):
        assert relative(call(given), np.stack([[call(one) for one in row] for row in given])) < 1e-14
        assert np.array_equal(call(given[0, 0].tolist()), call(given[0, 0]))
        assert call(given.astype(np.float32)).dtype == np.float64
        assert relative(call(given.astype(np.float32)), call(given)) < 1e-4
        assert call(given[:0]).shape == (0, *call(given).shape[1:])
    for each in (rx.pose_error(T, T[0, 0]), rx.pose_error(T[0, 0], T)):
        assert each.shape == (5, 6, 6)
    assert relative(rx.pose_error(T, T[0, 0])[2, 3], rx.pose_error(T[2, 3], T[0, 0])) < 1e-14


def test_what_is_no_pose_is_named(rx):
    good = rx.exp(twists())
    nan = good.copy()
    nan[3] = np.nan
    assert np.array_equal(np.isfinite(rx.log(nan)).all(-1), np.arange(len(nan)) != 3)
    assert np.isnan(rx.exp(np.full(6, np.inf))).any()
    bad = good.copy()
    bad[2, :3, :3] *= -1.0
    sheared = good[0].copy()
    sheared[0, 1] += 0.05
    below = good[0].copy()
    below[3, 0] = 0.1
    for given, text in (
        (bad, r"^T: got others in 1 of 12 rows: 2; wanted a pose"),
        (sheared, r"^T: got .*; wanted a pose"),
        (below, r"^T: got .*; wanted a pose"),
        (-np.eye(3), r"^T: got .*; wanted a rotation"),
        (np.zeros((4, 4)), r"^T: got .*; wanted a pose"),
        (np.eye(5), r"^T: got shape \(5, 5\); wanted \(\.\.\., 3, 3\) or \(\.\.\., 4, 4\)"),
        (np.zeros(4), r"^T: got shape \(4,\)"),
        (1.0, r"^T: got shape \(\)"),
        ("pose", r"^T: got 'pose'"),
    ):
        for call in (rx.log, rx.log_gradient):
            with pytest.raises(rd.ArgumentError, match=text):
                call(given)
    for given in (np.zeros(4), 1.0, "twist", [[1, 2, 3], [1, 2]]):
        with pytest.raises(rd.ArgumentError, match=r"^xi: got"):
            rx.exp(given)
    for frame in FRAMES:
        for call in (rx.pose_error, rx.pose_error_gradient):
            with pytest.raises(rd.ArgumentError, match=r"^T2: got others in 1 of 12 rows: 2"):
                call(good, bad, frame=frame)
            with pytest.raises(rd.ArgumentError, match="leading axes do not broadcast"):
                call(good, good[:5], frame=frame)
    with pytest.raises(rd.ArgumentError, match=r"^frame: got 'there'"):
        rx.pose_error(good, good, frame="there")
