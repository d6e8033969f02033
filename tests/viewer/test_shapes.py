"""What is drawn, as arrays: ellipsoids, lines, places, arrows and what sliders set, without anything that draws."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from robots import OWN, own

import robodyn as rd
from robodyn.inertial_parameters import in_frame
from robodyn.joints import KINDS
from robodyn.tools.viewer.shapes import (
    attitudes,
    ellipsoids,
    first_links,
    force_lines,
    held_places,
    line_ends,
    pose_of_rows,
    sensible,
    visible,
)
from robodyn.tools.viewer.sliders import first, readings, sliders, turned

ROBOTS = [*OWN, *sorted((own("arm6").parent / "loops").glob("*.urdf"))]
SEED = 30


def everything():
    """Models of every joint kind, floating and mimicking ones among them."""
    yield rd.random_tree(40, seed=SEED, joints=tuple(kind.name for kind in KINDS), mimic=0.2, base="floating")
    yield rd.load_urdf(own("hand"))
    yield rd.load_urdf(own("ball_joint_arm"), base="floating")


def inertia_of(m, centre, R, axes):
    """Inertia (10,) about the origin of a solid ellipsoid, from the integrals of its quadratic moments."""
    second = m / 5.0 * R @ np.diag(axes**2) @ R.T + m * np.outer(centre, centre)
    I = np.trace(second) * np.eye(3) - second
    return np.array([m, *(m * centre), I[0, 0], I[0, 1], I[0, 2], I[1, 1], I[1, 2], I[2, 2]])


@pytest.mark.parametrize("path", ROBOTS, ids=lambda path: path.stem)
def test_ellipsoids_have_the_inertia_of_their_links(path):
    model = rd.load_urdf(path, strict=False)
    found = ellipsoids(model)
    heavy = np.flatnonzero(model.link_inertia[:, 0] > 0.0)
    assert found.link.tolist() == heavy.tolist()
    np.testing.assert_allclose(np.linalg.det(found.attitude), 1.0)
    for k, link in enumerate(found.link):
        row = model.link_inertia[link]
        again = inertia_of(row[0], found.centre[k], found.attitude[k], found.axes[k])
        np.testing.assert_allclose(again, row, atol=1e-12 * max(1.0, np.abs(row).max()))


def test_ellipsoids_of_bodies_where_links_are_not_known():
    model = rd.load_urdf(own("arm6"))
    bare = dataclasses.replace(model, link_inertia=None)
    found = ellipsoids(bare)
    bodies = bare.link_body[found.link]
    assert sorted(bodies) == list(range(model.n_bodies))
    for k, (link, body) in enumerate(zip(found.link, bodies, strict=True)):
        m = bare.inertia[body, 0]
        there = inertia_of(m, found.centre[k], found.attitude[k], found.axes[k])
        back = pose_of_rows(bare.link_X[[link]])[0]  # of the link, on its body
        to_body = np.concatenate([back[:3, :3].ravel(), -back[:3, :3].T @ back[:3, 3]])
        turned_back = in_frame(there, to_body)
        np.testing.assert_allclose(turned_back, bare.inertia[body], atol=1e-12)


def test_inertias_that_no_body_can_have_or_no_picture_can_show():
    model = rd.load_urdf(own("arm6"))
    rows = model.link_inertia.copy()
    rows[1, 0] = 0.0
    rows[2] = [1e-6, 0, 0, 0, 1, 0, 0, 1, 0, 1]  # a placeholder for a mass
    rows[3] = [1e-300, 1e300, 0, 0, 1, 0, 0, 1, 0, 1]
    rows[4] = [1, 0, 0, 0, 1, 0, 0, 0.1, 0, 0.1]  # breaks the triangle inequality
    rows[5] = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    odd = dataclasses.replace(model, link_inertia=rows)
    found = ellipsoids(odd)
    assert 1 not in found.link and not np.isnan(found.axes).any()
    poses = rd.Dynamics(model).forward_kinematics(model.neutral())
    kept, away = sensible(found, poses)
    assert away == [2, 3] and np.isfinite(kept.axes).all()
    assert (visible(kept.axes, 2.0) > 0.0).all()
    mass_point = kept.axes[kept.link.tolist().index(5)]
    assert (mass_point == 0.0).all()


@pytest.mark.parametrize("model", tuple(everything()), ids=lambda model: model.name)
def test_lines_join_links_that_hang_on_each_other(model):
    ends = line_ends(model)
    known = [(int(p), k) for k, p in enumerate(model.link_parent) if p >= 0]
    assert ends.tolist() == sorted(map(list, known), key=lambda pair: pair[1])
    unknown = line_ends(dataclasses.replace(model, link_parent=None))
    body = model.link_body
    for parent, child in unknown:
        assert body[parent] == body[child] or body[parent] == model.parent[body[child]]
    first = first_links(model)
    assert (body[first[first >= 0]] == np.flatnonzero(first >= 0)).all()


def test_places_that_constraints_hold():
    model = rd.load_urdf(own("quadruped"), base="floating")
    turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    at, to_at = np.eye(4), np.eye(4)
    at[:3, :3], at[:3, 3], to_at[:3, 3] = turn, [0.1, 0.2, 0.3], [1.0, 2.0, 3.0]
    feet = [name for name in model.link_names if name.endswith("_foot")]
    held = [
        rd.Weld(feet[0], None, at, to_at),
        rd.Point(feet[1]),
        rd.Point(feet[2], feet[3]),
        rd.Lock(model.joint_names[3]),
    ]
    found = held_places(dataclasses.replace(model, constraints=tuple(held)))
    numbers = [model.link_index(foot) for foot in feet]
    assert found.links.tolist() == [[numbers[0], -1], [numbers[1], -1], [numbers[2], numbers[3]]]
    np.testing.assert_allclose(found.places[0], [[0.1, 0.2, 0.3], [1.0, 2.0, 3.0]])
    assert found.anchored.tolist() == [True, False, True]


def test_arrows_lie_on_the_line_of_the_force():
    rng = np.random.default_rng(SEED)
    points, forces, centres = rng.normal(size=(3, 20, 3))
    moments = np.cross(points, forces)
    f_ext = np.concatenate([moments, forces], axis=1)
    f_ext[3], f_ext[4, 3:], f_ext[5] = 0.0, 0.0, [1e5, 0, 0, 0, 1e-9, 0]
    start, force = force_lines(f_ext, centres, 50.0)
    acting = [k for k in range(20) if k not in (3, 4)]
    np.testing.assert_array_equal(force, f_ext[acting, 3:])
    for k, at, push in zip(acting, start, force, strict=True):
        if k == 5:
            np.testing.assert_array_equal(at, centres[5])
            continue
        np.testing.assert_allclose(np.cross(at - points[k], push), 0.0, atol=1e-9)
        assert abs((at - centres[k]) @ push) < 1e-9, "nearest to the centre"


def test_attitudes_are_quaternions_wxyz():
    turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(attitudes(turn[None])[0], [np.sqrt(0.5), 0, 0, np.sqrt(0.5)])
    assert attitudes(np.empty((0, 3, 3))).shape == (0, 4)


@pytest.mark.parametrize("model", tuple(everything()), ids=lambda model: model.name)
def test_a_knob_moves_its_coordinate_and_no_other(model):
    found, q = sliders(model), model.random_configuration(SEED)
    values = readings(found, q)
    assert len(found) == model.nv, "a knob for each degree of freedom"
    for k, knob in enumerate(found):
        same = turned(found, values, q, k)
        np.testing.assert_allclose(model.difference(q, same), 0.0, atol=1e-12)
        moved = list(values)
        moved[k] = 0.3 if abs(values[k] - 0.3) > 0.05 else 0.5
        changed = turned(found, moved, q, k)
        assert set(np.flatnonzero(changed != q)) <= set(knob.places)
        np.testing.assert_allclose(readings(found, changed)[k], moved[k], atol=1e-9)
        assert knob.lower < knob.upper and np.isfinite([knob.lower, knob.upper]).all()


def test_ranges_of_knobs():
    model = rd.load_urdf(own("arm6"))
    lower, upper = model.tree_lower.copy(), model.tree_upper.copy()
    lower[0], upper[0] = -np.inf, np.inf
    lower[1], upper[1] = 0.5, np.inf
    lower[2], upper[2] = -np.inf, -4.0
    lower[3], upper[3] = 1.0, -1.0
    lower[4], upper[4] = 0.0, 0.0
    lower[5], upper[5] = -1e9, 1e9
    found = sliders(dataclasses.replace(model, tree_lower=lower, tree_upper=upper))
    assert (found[0].lower, found[0].upper) == (-np.pi, np.pi) == (found[5].lower, found[5].upper)
    assert found[1].lower == 0.5 and found[1].upper > 0.5
    assert found[2].upper == -4.0 and found[2].lower < -4.0
    assert found[3].lower <= -1.0 and found[3].upper >= 1.0
    assert found[4].lower < 0.0 < found[4].upper


def test_the_first_knobs_keep_quaternions_whole():
    model = rd.load_urdf(own("quadruped"), base="floating")
    every = sliders(model)
    assert [each.name.split(".")[-1] for each in every[:6]] == ["x", "y", "z", "roll", "pitch", "yaw"]
    assert first(every, 100) == every and first(every, 6) == every[:6]
    assert first(every, 5) == first(every, 4) == first(every, 3) == every[:3]
