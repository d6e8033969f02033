"""Where one looks from at first: the robot fills the picture, of any size and in any motion."""

from __future__ import annotations

import re

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.tools.viewer.framing import FIELD, camera_for, corners, middle_and_size, together

SEED = 12


def seen(camera, points):
    """Where a pinhole camera sees points, in halves of the picture's height from its middle, and how far off they are;
    by the matrix of an OpenGL camera that looks along -z."""
    back = camera.position - camera.look_at
    back /= np.linalg.norm(back)
    right = np.cross([0.0, 0.0, 1.0], back)
    right /= np.linalg.norm(right)
    view = np.eye(4)
    view[:3, :3] = np.stack([right, np.cross(back, right), back])
    view[:3, 3] = -view[:3, :3] @ camera.position
    x, y, z = (view @ np.c_[points, np.ones(len(points))].T)[:3]
    return np.stack([x, y]) / (-z * np.tan(FIELD / 2.0)), -z


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3, 1e8])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0.01), (0.01, 1, 1), (5, 0.1, 1)])
def test_points_fill_the_picture(size, shape):
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    points = size * (rng.uniform(-1.0, 1.0, size=(200, 3)) * shape + rng.normal(size=3))
    places, away = seen(camera_for(points), points)
    assert (away > 0.0).all()
    assert 0.89 < np.abs(places).max() < 0.91, "up to its edge, and not beyond"
    np.testing.assert_allclose(places.min(axis=1) + places.max(axis=1), 0.0, atol=0.02, err_msg="in the middle")


def test_boxes_have_their_corners():
    low, high = np.array([[0.0, 1.0, 2.0]]), np.array([[3.0, 4.0, 5.0]])
    found = corners(low, high)
    assert found.shape == (1, 8, 3) and len(np.unique(found[0], axis=0)) == 8
    np.testing.assert_array_equal(middle_and_size(found[0])[0], [1.5, 2.5, 3.5])
    np.testing.assert_allclose(middle_and_size(found[0])[1], np.sqrt(27.0))


@pytest.mark.parametrize("points", [np.zeros((0, 3)), np.ones((1, 3)), np.ones((5, 3))])
def test_where_there_is_next_to_nothing(points):
    camera = camera_for(points)
    assert np.isfinite(camera.position).all() and np.linalg.norm(camera.position - camera.look_at) > 0.1


def test_motions_are_fitted_as_far_as_they_stay():
    robot = np.random.default_rng(SEED).normal(size=(20, 3))
    size = middle_and_size(robot)[1]
    along = np.array([size, 0.0, 0.0])
    near, far = robot + along, robot + 1e3 * along
    found = together([robot, near, far, robot - [0.0, 0.5 * size, 0.0]])
    low, high = found.min(axis=0), found.max(axis=0)
    assert high[0] >= near.max(axis=0)[0] and high[0] < 5.0 * size
    assert low[1] <= robot.min(axis=0)[1] - 0.5 * size


def scaled(text, factor):
    """A URDF whose lengths are so many times as large, and inertias those of the same masses."""

    def times(match, power=1):
        numbers = " ".join(repr(float(x) * factor**power) for x in match[2].split())
        return f'{match[1]}="{numbers}"'

    text = text.replace("<axis xyz", "<axis direction")
    text = re.sub(r'\b(xyz|size|radius|length)="([^"]+)"', times, text)
    text = re.sub(r'\b(i[xyz]{2})="([^"]+)"', lambda match: times(match, 2), text)
    return text.replace("<axis direction", "<axis xyz")


@pytest.mark.extras
@pytest.mark.parametrize("factor", [1e-2, 1.0, 1e3])
@pytest.mark.parametrize("looks", [True, False])
def test_robots_fill_the_picture(factor, looks):
    pytest.importorskip("viser")
    text = scaled(own("arm6").read_text(), factor)
    robot = rd.load_urdf(text, strict=False)
    with rd.show(robot, looks=text if looks else False) as view:
        camera = view._server.initial_camera
        places, _ = seen(camera, rd.Dynamics(robot).forward_kinematics(robot.neutral())[:, :3, 3])
        assert 0.5 < np.abs(places).max() < 0.95
        assert camera.near < 0.1 * np.linalg.norm(camera.position - camera.look_at) < camera.far
        before = camera.position.copy()
        view.show(robot.random_configuration(SEED))
        np.testing.assert_array_equal(camera.position, before)


@pytest.mark.extras
def test_a_run_fits_the_picture():
    pytest.importorskip("viser")
    robot = rd.load_urdf(own("arm6"))
    t = np.linspace(0.0, 1.0, 101)
    q = np.zeros((101, 6))
    q[:, 0] = np.pi * t
    run = rd.Rollout(t, q, np.zeros((101, 6)), np.array(-1), 100, robot)
    with rd.show(run) as view:
        for k in (0, 50, 100):
            places, _ = seen(view._server.initial_camera, rd.Dynamics(robot).forward_kinematics(q[k])[:, :3, 3])
            assert np.abs(places).max() < 0.95


@pytest.mark.extras
def test_forces_fit_the_picture():
    pytest.importorskip("viser")
    robot = rd.load_urdf(own("arm6"))
    q = np.zeros(6)
    f_ext = rd.external_force(robot, q, "tool0", [0.0, 0.0, 0.0, 0.0, 0.0, 50.0])
    with rd.show(robot, q, f_ext=f_ext) as view:
        (arrow,) = view._scene._nodes["forces"].points
        places, _ = seen(view._server.initial_camera, np.asarray(arrow, dtype=float))
        assert np.abs(places).max() < 0.95
