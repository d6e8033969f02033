"""Shapes and meshes of a URDF: primitives, colours, packages, and what is left out and said."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
from robots import OWN, example_robot_data, own

import robodyn as rd
from robodyn.description import Geometry, Pose
from robodyn.io.builders.mesh_files import MeshFiles
from robodyn.tools.viewer.visuals import GROUND, drawn, looks_of

trimesh = pytest.importorskip("trimesh")

BOX = '<box size="1 2 3"/>'


def robot(*visuals, more=""):
    """A URDF of one link."""
    return f'<robot name="r">{more}<link name="a">{"".join(visuals)}</link></robot>'


def visual(shape, origin="", material=""):
    return f"<visual>{origin}<geometry>{shape}</geometry>{material}</visual>"


def colour(shape):
    return shape.visual.material.baseColorFactor


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_our_robots_look_like_something(path):
    found, model = looks_of(path, ()), rd.load_urdf(path, strict=False)
    assert found.left_out == []
    assert {link for link, _, _ in found.shapes} <= set(model.link_names)
    assert len(found.shapes) == path.read_text().count("<visual>")


def test_primitives_have_their_sizes_and_places():
    origin = '<origin xyz="1 2 3" rpy="0 0 1.5707963267948966"/>'
    text = robot(visual(BOX, origin), visual('<cylinder radius="0.5" length="2"/>'), visual('<sphere radius="2"/>'))
    (_, pose, box), (_, _, cylinder), (_, _, sphere) = looks_of(text, ()).shapes
    np.testing.assert_allclose(box.bounds, [[-0.5, -1, -1.5], [0.5, 1, 1.5]])
    np.testing.assert_allclose(cylinder.bounds, [[-0.5, -0.5, -1], [0.5, 0.5, 1]], atol=2e-3)
    np.testing.assert_allclose(sphere.bounds, [[-2, -2, -2], [2, 2, 2]], atol=1e-9)
    np.testing.assert_allclose(pose, [[0, -1, 0, 1], [1, 0, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]], atol=1e-15)


def test_colours_are_found_wherever_they_stand():
    named, own_one = '<material name="red"/>', '<material name=""><color rgba="0 0 1 0.5"/></material>'
    late = '<material name="red"><color rgba="1 0 0 1"/></material>'
    text = robot(visual(BOX, material=named), visual(BOX, material=own_one), visual(BOX), more="").replace(
        "</robot>", late + "</robot>"
    )
    reds, blue, grey = (colour(shape) for _, _, shape in looks_of(text, ()).shapes)
    assert list(reds) == [255, 0, 0, 255] and list(blue)[:3] == [0, 0, 255] and list(blue)[3] in (127, 128)
    assert len(set(map(int, grey[:3]))) > 1 and min(grey[:3]) > 150


@pytest.fixture
def package(tmp_path):
    """A folder with a package "some", in whose meshes/ is a box."""
    folder = tmp_path / "some" / "meshes"
    folder.mkdir(parents=True)
    trimesh.creation.box(extents=(1, 2, 3)).export(folder / "box.stl")
    trimesh.creation.box(extents=(1, 2, 3)).export(folder / "box.obj")
    return tmp_path


@pytest.mark.parametrize("name", ["package://some/meshes/box.stl", "package://some/meshes/box.obj"])
def test_meshes_of_packages(name, package, monkeypatch):
    mesh = visual(f'<mesh filename="{name}" scale="2 1 -1"/>')
    assert "is not found" in looks_of(robot(mesh), ()).left_out[0]
    for found in (
        looks_of(robot(mesh), [package]),
        looks_of(robot(mesh), [str(package / "some")]),
    ):
        assert found.left_out == []
        np.testing.assert_allclose(found.shapes[0][2].bounds, [[-1, -1, -1.5], [1, 1, 1.5]])
    monkeypatch.setenv("ROS_PACKAGE_PATH", f"/nowhere:{package}")
    assert looks_of(robot(mesh), ()).shapes


def test_meshes_beside_the_file(package):
    for name in ("../meshes/box.stl", f"file://{package}/some/meshes/box.stl", f"{package}/some/meshes/box.stl"):
        path = package / "some" / "urdf" / "r.urdf"
        path.parent.mkdir(exist_ok=True)
        path.write_text(robot(visual(f'<mesh filename="{name}"/>')))
        assert looks_of(path, ()).shapes, name
    path.write_text(robot(visual('<mesh filename="package://some/meshes/box.stl"/>')))
    assert looks_of(path, ()).shapes, "the folders above the file are searched"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<mesh filename="http://example.org/a.stl"/>', "is not found"),
        ('<mesh filename="package://../../../../etc/passwd"/>', "is not found|read are"),
        ('<mesh filename="/etc/passwd"/>', "read are"),
        ("<mesh/>", "no filename"),
        ('<box size="1 2"/>', "wanted 3 numbers above 0"),
        ('<box size="1 -2 3"/>', "wanted 3 numbers above 0"),
        ('<sphere radius="nan"/>', "wanted 1 numbers above 0"),
        ('<sphere radius="1e300"/>', "wanted 1 numbers above 0"),
        ('<torus radius="1"/>', "<torus> is none of"),
        ("", "it has 0 shapes"),
        (BOX + BOX, "it has 2 shapes"),
    ],
)
def test_what_cannot_be_drawn_is_said_and_the_rest_drawn(text, said):
    found = looks_of(robot(visual(text), visual(BOX)), ())
    assert len(found.shapes) == 1 and len(found.left_out) == 1
    assert re.match(f'link "a": .*({said})', found.left_out[0]), found.left_out


def test_damaged_meshes_are_said(tmp_path):
    for name, data in (
        ("a.stl", b""),
        ("b.stl", b"solid x\nfacet"),
        ("c.dae", b"<no"),
        ("d.obj", b"f 1 2 3\n"),
        ("e.glb", b"glTF\0"),
    ):
        (tmp_path / name).write_bytes(data)
        path = tmp_path / "r.urdf"
        path.write_text(robot(visual(f'<mesh filename="{name}"/>')))
        found = looks_of(path, ())
        assert found.shapes == [] and len(found.left_out) == 1, name


def test_points_are_no_meshes(tmp_path):
    (tmp_path / "a.ply").write_bytes(trimesh.PointCloud(np.eye(3)).export(file_type="ply"))
    path = tmp_path / "r.urdf"
    path.write_text(robot(visual('<mesh filename="a.ply"/>'), visual(BOX)))
    found = looks_of(path, ())
    assert len(found.shapes) == 1 and "has no faces" in found.left_out[0]


@pytest.mark.parametrize("way", ["..", "absolute"])
def test_meshes_read_no_files_of_other_folders(tmp_path, way):
    """A mesh names buffers and textures: none that lie elsewhere, and that pages would carry away."""
    (tmp_path / "meshes").mkdir()
    scene = trimesh.Scene(trimesh.creation.box()).export(file_type="gltf")
    document = json.loads(scene.pop("model.gltf"))
    for buffer in document["buffers"]:
        name = buffer["uri"]
        (tmp_path / name).write_bytes(scene[name])
        buffer["uri"] = f"../{name}" if way == ".." else str(tmp_path / name)
    (tmp_path / "meshes" / "a.gltf").write_text(json.dumps(document))
    path = tmp_path / "r.urdf"
    path.write_text(robot(visual('<mesh filename="meshes/a.gltf"/>')))
    found = looks_of(path, ())
    assert found.shapes == [] and len(found.left_out) == 1
    (tmp_path / "a.gltf").write_text(json.dumps(document))
    path.write_text(robot(visual('<mesh filename="a.gltf"/>')))
    assert way == ".." or len(looks_of(path, ()).shapes) == 1, "beside the mesh they are read"


@pytest.mark.parametrize(
    "source", [b"", b"<sdf/>", "<robot", 3, None, "/nowhere/at/all.urdf", "<!DOCTYPE x []><robot/>"]
)
def test_sources_that_are_no_urdf_have_no_looks(source):
    found = looks_of(source, ())
    assert found.shapes == [] and len(found.left_out) == 1


def test_many_are_summed_up():
    found = looks_of(robot(*[visual('<mesh filename="nowhere.stl"/>')] * 1000), ())
    assert len(found.left_out) < 30 and "and 980 more" in found.left_out[-1]


def test_robots_with_meshes():
    """Those of a wheel, whose packages are above the files: formats STL, DAE and OBJ."""
    paths = [path for path in example_robot_data() if path.stem in ("panda", "ur5_robot", "solo12", "talos_reduced")]
    if not paths:
        pytest.skip("example-robot-data is not installed")
    for path in paths:
        found = looks_of(path, ())
        drawn = {link for link, _, _ in found.shapes}
        assert drawn, (path, found.left_out)
        assert drawn <= set(rd.load_urdf(path, strict=False).link_names)


def test_models_remember_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(own("arm6").parent)
    model = rd.load_urdf("arm6.urdf")
    assert model.source == str(own("arm6")) and rd.load_urdf(own("arm6").read_text()).source is None
    assert model.lock({"elbow": 0.1}).source == model.source
    model.save(tmp_path / "a.npz")
    again = rd.Model.load(tmp_path / "a.npz")
    assert again.source is None and again == model and b"arm6.urdf" not in (tmp_path / "a.npz").read_bytes()
    with pytest.raises(rd.ArgumentError, match="source: got 3; wanted a text or None"):
        dataclasses.replace(model, source=3)


@pytest.mark.parametrize(
    ("kind", "size", "edges"),
    [
        ("box", (1e-4, 2e-4, 3e-4), (1e-4, 2e-4, 3e-4)),
        ("sphere", (2e-5,), (4e-5, 4e-5, 4e-5)),
        ("cylinder", (1e-4, 3e-4), (2e-4, 2e-4, 3e-4)),
        ("capsule", (0.5, 2.0), (1.0, 1.0, 3.0)),
        ("ellipsoid", (1.0, 2.0, 3.0), (2.0, 4.0, 6.0)),
        ("plane", (4.0, 6.0), (4.0, 6.0, 4e-4)),
    ],
)
def test_every_kind_is_drawn_as_large_as_it_is(kind, size, edges):
    found = drawn([Geometry("a", "both", kind, Pose(), size)], MeshFiles())
    ((_, _, shape),) = found.shapes
    assert not found.left_out and np.ptp(shape.bounds, axis=0) == pytest.approx(edges, rel=1e-2)
    assert shape.bounds.sum(axis=0) == pytest.approx(0.0, abs=1e-9), "centred"
    assert (GROUND in shape.metadata) == (kind == "plane")


def test_what_links_collide_with_is_drawn_where_nothing_is_to_be_seen():
    shapes = [Geometry(link, role, "sphere", Pose(), (1.0,)) for link, role in (("a", "visual"), ("a", "collision"))]
    others = (("sphere", (1.0,)), ("plane", (0.0, 0.0)))
    shapes += [Geometry("b", "collision", kind, Pose(), size) for kind, size in others]
    found = drawn(shapes, MeshFiles())
    assert [link for link, _, _ in found.shapes] == ["a", "b"]
    assert found.left_out == ['link "b": a plane without end is not drawn']
