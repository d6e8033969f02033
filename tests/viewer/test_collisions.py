"""Shapes for distances in a view: where they are drawn, which are red, and lines between nearest points."""

from __future__ import annotations

import numpy as np
import pytest
from robots import own
from viewed import by_user

import robodyn as rd

pytest.importorskip("viser")
pytestmark = pytest.mark.extras

RED = [220, 45, 45]
TURN = np.array([[0.36, 0.48, -0.8, 0.1], [-0.8, 0.6, 0.0, 0.2], [0.48, 0.64, 0.6, 0.0], [0.0, 0.0, 0.0, 1.0]])
SHAPES = (
    rd.Plane("base", offset=-0.3),
    rd.Box("shoulder", TURN, (0.1, 0.2, 0.3)),
    rd.Capsule("forearm", (0.0, 0.0, 0.0), (0.0, 0.1, 0.2), 0.05),
    rd.Capsule("upper_arm", (0.1, 0.0, 0.0), (0.1, 0.0, 0.3), 0.06),
    rd.Cylinder("wrist_3", TURN, 0.04, 0.1),
    rd.Sphere("wrist_3", (0.0, 0.0, 0.1), 0.05),
)


@pytest.fixture(scope="module")
def model():
    return rd.load_urdf(own("arm6")).with_shapes(SHAPES)


def drawn(view):
    """Vertices and colour of each shape, in world coordinates, as a browser places them."""
    from scipy.spatial.transform import Rotation

    found = {}
    for members, node in view._scene._collisions._nodes:
        for i, k in enumerate(members):
            w, x, y, z = node.batched_wxyzs[i]
            R = Rotation.from_quat([x, y, z, w]).as_matrix()
            placed = (node.vertices * node.batched_scales[i]) @ R.T + node.batched_positions[i]
            found[int(k)] = placed, np.broadcast_to(node.batched_colors, (len(members), 3))[i].tolist()
    return [found[k] for k in range(len(found))]


def test_shapes_stand_where_they_are_and_are_red_where_they_touch(model):
    """The support function of what is drawn is that of the shape, to the mesh's coarseness."""
    dyn, rng = rd.Dynamics(model), np.random.default_rng(0)
    hit = next(q for q in model.random_configuration(rng, (200,)) if dyn.min_distance(q) < 0.0)
    clear = next(q for q in model.random_configuration(rng, (200,)) if dyn.min_distance(q) > 0.0)
    with rd.show(model) as view:
        assert view.layers["collisions"] is False
        view.layer("collisions")
        for q in (hit, clear):
            view.show(q)
            d = dyn.distances(q)
            touching = {k for pair, each in zip(model.pairs, d, strict=True) if each <= 0.0 for k in pair}
            shapes = drawn(view)
            assert {k for k, (_, colour) in enumerate(shapes) if colour == RED} == touching
            T = dyn.forward_kinematics(q)
            for n in rng.normal(size=(5, 3)):
                for k, shape in enumerate(model.shapes[1:], start=1):
                    own_frame = T[model.link_index(shape.link)]
                    reach = (shapes[k][0] @ n).max() / np.linalg.norm(n)
                    assert abs(reach - support(shape, own_frame, n / np.linalg.norm(n))) < 4e-3
        floor = shapes[0][0]
        assert abs(floor[:, 2].mean() + 0.3) < 1e-5 and np.ptp(floor[:, 2]) < 0.01


def support(shape, T, n):
    """How far a shape reaches along n in the world."""
    local = T[:3, :3].T @ n
    offset = T[:3, 3] @ n
    if shape.kind == "sphere":
        return offset + local @ shape.at + shape.radius
    if shape.kind == "capsule":
        return offset + max(local @ shape.start, local @ shape.end) + shape.radius
    own_n = shape.pose[:3, :3].T @ local
    offset += local @ shape.pose[:3, 3]
    if shape.kind == "box":
        return offset + 0.5 * np.abs(own_n) @ shape.size
    return offset + 0.5 * abs(own_n[2]) * shape.length + np.hypot(*own_n[:2]) * shape.radius


def test_lines_join_the_nearest_points_of_the_nearest_pairs(model):
    dyn = rd.Dynamics(model)
    with rd.show(model) as view:
        by_user(view._boxes["distances"], True)
        assert view.layers["distances"]
        for q in model.random_configuration(3, (4,)):
            view.show(q)
            d, points = dyn.distances(q), dyn.witness_points(q)
            nearest = np.argsort(d)[:5]
            np.testing.assert_allclose(view._scene._collisions._lines.points, points[nearest], atol=1e-6)
            red = (np.asarray(view._scene._collisions._lines.colors) == RED).all(axis=(1, 2))
            assert red.tolist() == (d[nearest] <= 0.0).tolist()
        view.layer("distances", False)
        before = np.array(view._scene._collisions._lines.points)
        view.show(model.neutral())
        assert (view._scene._collisions._lines.points == before).all(), "nothing is computed for what is hidden"
        view.layer("distances")
        assert np.abs(np.asarray(view._scene._collisions._lines.points) - before).max() > 1e-6


def test_layers_are_in_pages_and_only_of_robots_with_shapes(model, tmp_path):
    bare = rd.load_urdf(own("arm6")).with_shapes([])
    with rd.show(bare) as view:
        assert not {"collisions", "distances"} & view.layers.keys()
    with rd.show(model) as view:
        for name in ("collisions", "distances"):
            view.layer(name)
        view.save_html(tmp_path / "page.html")
    alone = model.with_shapes(model.shapes[1:2])
    with rd.show(alone) as view:
        view.layer("collisions")
        view.layer("distances")
        view.show(model.random_configuration(1))


def test_a_layer_that_cannot_be_shown_stays_hidden(model, monkeypatch):
    def refused(*_):
        raise rd.UnavailableError("too many")

    with rd.show(model, looks=False) as view:
        monkeypatch.setattr("robodyn.tools.viewer.collisions.Collisions.place", refused)
        with pytest.raises(rd.UnavailableError, match="too many"):
            view.layer("collisions")
        by_user(view._boxes["collisions"], True)
        assert view.layers["collisions"] is False and view._boxes["collisions"].value is False


def test_geoms_of_mjcf_are_what_a_robot_looks_like():
    pytest.importorskip("mujoco")
    model = rd.load_mjcf(
        '<mujoco><worldbody><geom type="plane" size="2 2 1"/><body name="a" pos="0 0 1"><freejoint/>'
        '<geom type="capsule" size="0.1 0.2" rgba="1 0 0 1"/><body name="b" pos="0.5 0 0"><joint axis="0 1 0"/>'
        '<geom type="box" size="0.1 0.1 0.1" group="3"/></body></body></worldbody></mujoco>'
    )
    with rd.show(model) as view:
        assert {model.link_names[k] for k in view._scene._nodes["looks"]} >= {"a", "b"}
        assert "bare" not in view._scene._nodes and view.layers["shapes"]


def test_normals_of_contacts_that_touch_are_lines():
    arm = rd.load_urdf(own("arm6"))
    shapes = [rd.Sphere(name, radius=0.1) for name in arm.link_names[-4:]]
    model = arm.with_contacts([rd.Contact(each, rd.Plane(offset=0.3)) for each in shapes])
    dyn = rd.Dynamics(model)
    with rd.show(arm) as view:
        assert "contacts" not in view.layers
    with rd.show(model) as view:
        view.layer("contacts")
        touched = set()
        for q in model.random_configuration(3, (6,)):
            view.show(q)
            ends, T = np.asarray(view._scene._contacts.lines().points), dyn.contact_frames(q)
            touching = dyn.contact_distances(q) < 0.0
            np.testing.assert_allclose(ends[:, 0], T[:, :3, 3], atol=1e-6)
            long = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
            assert ((long > 0.01) == touching).all() and (ends[touching, 1, 2] > ends[touching, 0, 2]).all()
            touched |= set(touching.tolist())
        assert touched == {True, False}
