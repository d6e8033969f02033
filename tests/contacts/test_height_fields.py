"""Contacts with height fields: planes, sampled surfaces, large fields, engines."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import random_states
from robots import own

import robodyn as rd
from robodyn.algorithms.contacts.geometry import APART, Ball, Rod, body, points
from robodyn.core.description import Geometry, Pose

N = 150
SIZE = (2.0, 1.5)


def surface(heights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The height of the field at places (N,)."""
    rows, columns = heights.shape
    u, v = (x / SIZE[0] + 0.5) * (columns - 1), (y / SIZE[1] + 0.5) * (rows - 1)
    i, j = np.clip(u.astype(int), 0, columns - 2), np.clip(v.astype(int), 0, rows - 2)
    a, b = u - i, v - j
    h00, h10, h01, h11 = heights[j, i], heights[j, i + 1], heights[j + 1, i], heights[j + 1, i + 1]
    lower = h00 + a * (h10 - h00) + b * (h01 - h00)
    return np.where(a + b <= 1.0, lower, h11 + (1.0 - a) * (h01 - h11) + (1.0 - b) * (h10 - h11))


def field_of(heights: np.ndarray, margin: float = 0.5):
    """The field at the world's origin."""
    size = (*SIZE, *map(float, heights.shape), *heights.ravel().tolist())
    return body(Geometry("", "collision", "height field", Pose(), size), np.eye(4).ravel().tolist(), margin)


def stacked(slot) -> np.ndarray:
    return np.stack([np.broadcast_to(x, N) for x in (slot.dist, *slot.point, *slot.n, *slot.t1, *slot.t2)], -1)


def test_flat_and_tilted_fields_are_planes():
    rng = np.random.default_rng(3)
    print("tilted fields: seed 3")
    x, y = np.meshgrid(np.linspace(-1.0, 1.0, 7), np.linspace(-0.75, 0.75, 5))
    c = (*rng.uniform(-0.5, 0.5, (2, N)), rng.uniform(-0.1, 0.4, N))
    h = rng.standard_normal((3, N))
    rod = Rod(c, tuple(0.15 * h / np.linalg.norm(h, axis=0)), 0.05, 0.15**2)
    for gx, gy in ((0.0, 0.0), (0.3, -0.2)):
        n = np.array([-gx, -gy, 1.0]) / np.sqrt(1.0 + gx * gx + gy * gy)
        plane = body(rd.Plane(normal=n, offset=0.05 * n[2]).geometry, np.eye(4).ravel().tolist())
        field = field_of(gx * x + gy * y + 0.05)
        for shape in (Ball(c, 0.1), rod):
            with np.errstate(all="ignore"):
                found, wanted = points(field, shape), points(plane, shape)
            for one, other in zip(found, wanted, strict=False):
                assert np.abs(stacked(one) - stacked(other)).max() < 1e-12
            assert len(found) == len(wanted) or (found[2].dist == APART).all()


@pytest.mark.parametrize("shape", [(6, 8), (2, 2), (19, 23)])
def test_distances_are_those_of_sampled_surfaces(shape):
    rng = np.random.default_rng(4)
    print("sampled surfaces: seed 4")
    heights = rng.uniform(0.0, 0.25, shape)
    step = 0.008
    X, Y = np.meshgrid(np.arange(-1.0, 1.0 + 1e-9, step), np.arange(-0.75, 0.75 + 1e-9, step))
    samples = np.stack([X.ravel(), Y.ravel(), surface(heights, X.ravel(), Y.ravel())], -1)
    x, y, z = rng.uniform(-1.05, 1.05, N), rng.uniform(-0.8, 0.8, N), rng.uniform(-0.1, 0.45, N)
    x[:21] = np.linspace(-0.99, 0.99, 21)  # the middle is on a line of the grid
    y[:10] = 0.0
    inside = (abs(x) <= 1.0) & (abs(y) <= 0.75)
    below = inside & (z < surface(heights, x, y))
    slot = points(field_of(heights, 1.0), Ball((x, y, z), 0.1))[0]
    d = slot.dist + 0.1
    wanted = np.array([np.linalg.norm(samples - p, axis=1).min() for p in np.stack([x, y, z], -1)])
    assert (np.sign(d) == np.where(below, -1.0, 1.0)).all() and below.sum() > 15
    assert (abs(d) <= wanted + 1e-12).all() and (wanted - abs(d)).max() < 1.5 * step
    # The nearest point is on the surface, and the normal leads from it to the centre.
    n = np.stack(np.broadcast_arrays(*slot.n), -1)
    foot = np.stack([x, y, z], -1) - d[:, None] * n
    assert np.abs(np.linalg.norm(n, axis=1) - 1.0).max() < 1e-12
    assert np.abs(surface(heights, foot[:, 0], foot[:, 1]) - foot[:, 2]).max() < 1e-9
    # With the reach of contacts only, the same where the sphere touches.
    near = points(field_of(heights, 0.0), Ball((x, y, z), 0.1))[0]
    touching = slot.dist < 0.0
    assert np.abs(near.dist - slot.dist)[touching & (abs(d) <= 0.1)].max() < 1e-14
    assert (near.dist >= slot.dist - 1e-14)[~below].all()


def test_capsules_touch_ridges_between_their_ends():
    rng = np.random.default_rng(5)
    print("ridges: seed 5")
    heights = np.zeros((7, 9))
    heights[:, 4] = 0.3
    h = np.stack([np.full(N, 0.4), rng.uniform(-0.1, 0.1, N), rng.uniform(-0.05, 0.05, N)])
    h *= 0.4 / np.linalg.norm(h, axis=0)
    rod = Rod((np.full(N, 0.05), rng.uniform(-0.4, 0.4, N), rng.uniform(0.36, 0.5, N)), tuple(h), 0.05, 0.4**2)
    with np.errstate(all="ignore"):
        one, other, between = points(field_of(heights), rod)
    # The ridge is along y: the distance of a point and a segment in the plane of x and z.
    c, h = np.stack([rod.c[0], rod.c[2] - 0.3]), h[[0, 2]]
    s = np.clip(-(c * h).sum(0) / (h * h).sum(0), -1.0, 1.0)
    to_ridge = np.hypot(*(c + s * h)) - 0.05
    touched = between.dist < 1e9
    assert touched.sum() > N // 2
    assert np.abs(between.dist - to_ridge)[touched].max() < 1e-12
    assert (between.dist < np.minimum(one.dist, other.dist))[touched].all()


@pytest.mark.some(of=2, rest="matrix")
def test_robots_on_terrain_on_every_engine(make_dynamics, tolerance):
    heights = np.random.default_rng(6).uniform(-0.2, 0.2, (10, 12))
    pose = np.eye(4)
    pose[:3, 3] = 0.1, -0.2, 0.3
    terrain = rd.HeightField(None, heights, (3.0, 2.4), pose)
    model = rd.load_urdf(own("arm6"))
    names = model.link_names
    ball, rod = rd.Sphere(names[-1], radius=0.08), rd.Capsule(names[3], (0.0, 0.0, 0.0), (0.1, 0.0, 0.2), 0.06)
    model = model.with_contacts([rd.Contact(ball, terrain), rd.Contact(rod, terrain)])
    q = random_states(model, (33,))[0]
    dyn, right = make_dynamics(model), rd.Dynamics(model, engine="reference")
    d, wanted = dyn.contact_distances(q), right.contact_distances(q)
    assert d.shape == (33, 4) and (wanted[:, 0] < 0.0).any()
    assert np.abs(d - wanted)[wanted < 1e9].max() < 30.0 * tolerance
    T = dyn.contact_frames(q)[..., :3, :3]
    assert np.abs(T @ T.swapaxes(-1, -2) - np.eye(3)).max() < (1e-12 if dyn.dtype == np.float64 else 1e-5)


def test_large_fields_and_other_shapes_are_refused():
    terrain = rd.HeightField(None, np.zeros((3, 3)), (1.0, 1.0))
    with pytest.raises(rd.UnavailableError, match="got a box and a height field; wanted one of the pairs"):
        rd.Contact(rd.Box("tool0", size=(0.1, 0.1, 0.1)), terrain)
    large = rd.HeightField(None, np.random.default_rng(0).uniform(size=(400, 400)), (9.0, 9.0))
    with pytest.raises(rd.UnavailableError, match="HeightField of 400 by 400 heights, of which a sphere with a reach"):
        rd.Contact(rd.Sphere("tool0", radius=0.1), large)
