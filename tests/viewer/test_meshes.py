"""Files of meshes that are made to do harm, and that each of them is refused, in time, with a word why."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
import threading
import time
import zlib

import numpy as np
import pytest

import robodyn as rd
from robodyn.tools.viewer import meshes
from robodyn.tools.viewer.meshes import read_mesh

trimesh = pytest.importorskip("trimesh")
pytest.importorskip("PIL")

OBJ = "mtllib a.mtl\nv 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0 0\nvt 1 0\nvt 0 1\nusemtl m\nf 1/1 2/2 3/3\n"
MTL = "newmtl m\nmap_Kd {}\n"
forking = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
"""From Python 3.12 on, of forks beside threads."""
posix = pytest.mark.skipif(sys.platform == "win32", reason="files of POSIX")


def textured(folder, picture="a.png"):
    """An OBJ whose texture has that name."""
    (folder / "a.mtl").write_text(MTL.format(picture))
    (folder / "a.obj").write_text(OBJ)
    return folder / "a.obj"


def png(width, height, rows=1):
    """A PNG that says it has this size, with no more than so many rows in it."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(rows * (width + 1)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def gltf(folder, name="a.gltf", **parts):
    """A glTF of a triangle, some parts of which are others."""
    places = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype="<f4").tobytes()
    (folder / "a.bin").write_bytes(places)
    document = {
        "asset": {"version": "2.0"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}}]}],
        "buffers": [{"uri": "a.bin", "byteLength": len(places)}],
        "bufferViews": [{"buffer": 0, "byteOffset": 0, "byteLength": len(places)}],
        "accessors": [{"bufferView": 0, "componentType": 5126, "count": 3, "type": "VEC3"}],
    }
    (folder / name).write_text(json.dumps(document | parts))
    return folder / name


def refused(path, says):
    begin = time.monotonic()
    with pytest.raises(rd.LoadError, match=says) as error:
        read_mesh(path)
    assert time.monotonic() - begin < 30.0
    assert str(path.name) in str(error.value)


def test_what_lies_beside_a_mesh_is_read(tmp_path):
    from PIL import Image

    (tmp_path / "textures").mkdir()
    Image.new("RGB", (4, 2), (255, 0, 0)).save(tmp_path / "textures" / "a.png")
    scene = read_mesh(textured(tmp_path, "textures/a.png"))
    (mesh,) = scene.geometry.values()
    assert mesh.visual.material.baseColorTexture.size == (4, 2) and len(mesh.faces) == 1
    (mesh,) = read_mesh(gltf(tmp_path)).geometry.values()
    np.testing.assert_array_equal(mesh.bounds, [[0, 0, 0], [1, 1, 0]])
    assert len(read_mesh(textured(tmp_path, "none.png")).geometry) == 1, "drawn without a texture that is not there"


# What never ends.


@posix
@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder"])
@pytest.mark.parametrize("what", ["mesh", "texture", "materials", "buffer", "ply", "dae"])
def test_files_that_are_none(tmp_path, kind, what, monkeypatch):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    name = {"mesh": "a.stl", "texture": "a.png", "materials": "a.mtl", "buffer": "a.bin"}.get(what, "a.png")
    path = tmp_path / "a.stl"
    if what == "texture":
        path = textured(tmp_path)
    elif what == "materials":
        path = textured(tmp_path)
        (tmp_path / "a.mtl").unlink()
    elif what == "buffer":
        path = gltf(tmp_path)
        (tmp_path / "a.bin").unlink()
    elif what == "ply":
        path = tmp_path / "a.ply"
        data = trimesh.creation.box().export(file_type="ply", encoding="ascii")
        path.write_bytes(data.replace(b"format ascii 1.0\n", b"format ascii 1.0\ncomment TextureFile a.png\n"))
    elif what == "dae":
        path = tmp_path / "a.dae"
        path.write_text(collada(picture="a.png"))
    if kind == "pipe":
        os.mkfifo(name)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(name)
    elif kind == "device":
        (tmp_path / name).symlink_to("/dev/zero")
    else:
        (tmp_path / name).mkdir()
    if kind == "device" and what != "mesh":  # it lies in another folder, and is not looked at
        if what == "buffer":
            refused(path, "cannot be read")
        else:
            assert read_mesh(path).geometry
    else:
        refused(path, "cannot be read")


def collada(picture="", nodes='<node><instance_geometry url="#g"/></node>', library="", head=""):
    """A COLLADA of one triangle."""
    image = f'<image id="i"><init_from>{picture}</init_from></image>' if picture else ""
    colour = '<texture texture="t" texcoord="UV"/>' if picture else "<color>1 0 0 1</color>"
    surface = (
        '<newparam sid="s"><surface type="2D"><init_from>i</init_from></surface></newparam>'
        '<newparam sid="t"><sampler2D><source>s</source></sampler2D></newparam>'
        if picture
        else ""
    )
    return f"""<?xml version="1.0"?>{head}
<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">
<asset><created>2020-01-01T00:00:00Z</created><modified>2020-01-01T00:00:00Z</modified></asset>
<library_images>{image}</library_images>
<library_effects><effect id="e"><profile_COMMON>{surface}<technique sid="common"><phong><diffuse>{colour}</diffuse>
</phong></technique></profile_COMMON></effect></library_effects>
<library_materials><material id="m"><instance_effect url="#e"/></material></library_materials>
<library_geometries><geometry id="g"><mesh><source id="p"><float_array id="a" count="9">0 0 0 1 0 0 0 1 0</float_array>
<technique_common><accessor source="#a" count="3" stride="3"><param name="X" type="float"/>
<param name="Y" type="float"/><param name="Z" type="float"/></accessor></technique_common></source>
<vertices id="v"><input semantic="POSITION" source="#p"/></vertices>
<triangles count="1" material="m"><input semantic="VERTEX" source="#v" offset="0"/><p>0 1 2</p></triangles>
</mesh></geometry></library_geometries>{library}
<library_visual_scenes><visual_scene id="s">{nodes}</visual_scene></library_visual_scenes>
<scene><instance_visual_scene url="#s"/></scene></COLLADA>"""


@pytest.mark.matrix
def test_a_mesh_that_takes_for_ever(tmp_path, monkeypatch):
    """As many materials as faces, which trimesh takes for meshes of their own, in a time that grows with the square."""
    assert read_mesh(gltf(tmp_path)).geometry, "the process has begun"
    monkeypatch.setattr(meshes._PROGRAM, "seconds", 0.5)
    faces = "".join(f"usemtl m{k}\nf 1 2 3\n" for k in range(50_000))
    (tmp_path / "a.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\n" + faces)
    refused(tmp_path / "a.obj", "takes more than 0.5 s")
    monkeypatch.undo()
    assert read_mesh(gltf(tmp_path)).geometry, "the next one is read"


@pytest.mark.matrix
def test_nodes_that_double(tmp_path, monkeypatch):
    assert read_mesh(gltf(tmp_path)).geometry, "the process has begun"
    monkeypatch.setattr(meshes._PROGRAM, "seconds", 0.5)
    library = '<node id="n0"><instance_geometry url="#g"/></node>' + "".join(
        f'<node id="n{k}"><instance_node url="#n{k - 1}"/><instance_node url="#n{k - 1}"/></node>' for k in range(1, 40)
    )
    text = collada(
        nodes='<node><instance_node url="#n39"/></node>', library=f"<library_nodes>{library}</library_nodes>"
    )
    (tmp_path / "a.dae").write_text(text)
    refused(tmp_path / "a.dae", "takes more than|cannot be read|the process that reads it ended")


# What is too large.


def test_files_that_are_too_large(tmp_path):
    with (tmp_path / "a.stl").open("wb") as file:
        file.truncate((64 << 20) + 1)
    refused(tmp_path / "a.stl", "is larger than 67108864 bytes")
    with (tmp_path / "a.png").open("wb") as file:
        file.truncate((256 << 20) + 1)
    refused(textured(tmp_path), "names files of more than 268435456 bytes together")


def test_files_that_are_named_too_often(tmp_path):
    path = textured(tmp_path)
    (tmp_path / "a.png").write_bytes(png(1, 1))
    (tmp_path / "a.mtl").write_text("newmtl m\n" + 2000 * "map_Kd a.png\n")
    refused(path, "names files more than 1000 times")


@pytest.mark.parametrize("size", [(30_000, 30_000), (8_193, 8_192), (1 << 30, 1)])
@pytest.mark.parametrize("way", ["beside", "inside"])
def test_pictures_that_are_too_large(tmp_path, size, way):
    if way == "beside":
        path = textured(tmp_path)
        (tmp_path / "a.png").write_bytes(png(*size, rows=0))
    else:
        import base64

        path = gltf(
            tmp_path,
            images=[{"uri": "data:image/png;base64," + base64.b64encode(png(*size, rows=0)).decode()}],
            textures=[{"source": 0}],
            materials=[{"pbrMetallicRoughness": {"baseColorTexture": {"index": 0}}}],
            meshes=[{"primitives": [{"attributes": {"POSITION": 0}, "material": 0}]}],
        )
    refused(path, "has pictures of more than 67108864 pixels together")


def test_many_pictures_are_too_large_together(tmp_path):
    path = textured(tmp_path)
    for k in range(5):
        (tmp_path / f"{k}.png").write_bytes(png(4096, 4096, rows=0))
    (tmp_path / "a.mtl").write_text("".join(f"newmtl m{k}\nmap_Kd {k}.png\n" for k in range(5)))
    refused(path, "has pictures of more than")


@pytest.mark.parametrize("count", [10**9, 10**12, 10**19])
@pytest.mark.some(of=3, rest="matrix")
def test_numbers_that_are_not_there(tmp_path, count):
    """A glTF may have accessors without data, which are zero."""
    accessors = [{"componentType": 5126, "count": count, "type": "VEC3"}]
    refused(gltf(tmp_path, accessors=accessors), "faces; at most|bytes of memory|cannot be read|ended")


@pytest.mark.parametrize("suffix", ["ply", "off", "stl"])
def test_counts_beyond_the_file(tmp_path, suffix):
    numbers = 10**12
    data = {
        "ply": f"ply\nformat binary_little_endian 1.0\nelement vertex {numbers}\nproperty float x\nproperty float y\n"
        f"property float z\nelement face {numbers}\nproperty list uchar int vertex_indices\nend_header\n".encode(),
        "off": f"OFF\n{numbers} {numbers} 0\n0 0 0\n".encode(),
        "stl": bytes(80) + struct.pack("<I", 2**32 - 1) + bytes(50),
    }[suffix]
    (tmp_path / f"a.{suffix}").write_bytes(data)
    refused(tmp_path / f"a.{suffix}", "cannot be read|bytes of memory|has no faces")


def test_too_many_faces(tmp_path):
    nodes = [{"mesh": 0} for _ in range(30_000)]
    path = gltf(tmp_path, nodes=nodes, scenes=[{"nodes": list(range(len(nodes)))}])
    refused(path, "has 30000 parts; at most 20000 are drawn|takes more than")


# What lies elsewhere.


@pytest.mark.parametrize("uri", ["file:{}", "file://{}", "http://127.0.0.1:9/c.bin", "{}", "../b.bin", "%2e%2e/b.bin"])
def test_buffers_of_other_places(tmp_path, uri):
    folder = tmp_path / "meshes"
    folder.mkdir()
    secret = tmp_path / "b.bin"
    path = gltf(folder, buffers=[{"uri": uri.format(secret), "byteLength": 36}])
    secret.write_bytes((folder / "a.bin").read_bytes())
    refused(path, "cannot be read")


@posix
def test_links_to_other_places(tmp_path):
    folder = tmp_path / "meshes"
    folder.mkdir()
    path = gltf(folder)
    (folder / "a.bin").rename(tmp_path / "b.bin")
    (folder / "a.bin").symlink_to(tmp_path / "b.bin")
    refused(path, "cannot be read")
    path.rename(tmp_path / "b.gltf")
    (folder / "a.gltf").symlink_to(tmp_path / "b.gltf")
    (folder / "a.bin").unlink()
    (tmp_path / "b.bin").rename(folder / "a.bin")
    assert read_mesh(folder / "a.gltf").geometry, "a mesh may be a link, as installed packages have it"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_are_not_read(tmp_path, encoding):
    (tmp_path / "a.dae").write_bytes(collada().replace('<?xml version="1.0"?>', "").encode(encoding))
    assert read_mesh(tmp_path / "a.dae").geometry
    head = f'<!DOCTYPE COLLADA [<!ENTITY x SYSTEM "{tmp_path / "b"}">]>'
    (tmp_path / "a.dae").write_bytes(collada(head=head).replace('<?xml version="1.0"?>', "").encode(encoding))
    refused(tmp_path / "a.dae", "has a document type declaration")


def test_pictures_that_are_programs(tmp_path):
    """PIL would give PostScript to Ghostscript."""
    path = textured(tmp_path)
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nquit\n")
    (mesh,) = read_mesh(path).geometry.values()
    assert mesh.visual.material.baseColorTexture is None


# The process that reads.


@posix
@pytest.mark.matrix
def test_the_process_is_started_again(tmp_path):
    path = gltf(tmp_path)
    assert read_mesh(path).geometry
    (reader,) = meshes._PROGRAM.idle
    reader.process.kill()
    assert read_mesh(path).geometry and reader not in meshes._PROGRAM.idle


@forking
@posix
def test_children_of_a_fork_have_their_own(tmp_path):
    path = gltf(tmp_path)
    assert read_mesh(path).geometry
    child = os.fork()
    if child == 0:
        status = 1
        try:
            begun = not meshes._PROGRAM.idle
            status = 0 if begun and read_mesh(path).geometry and len(meshes._PROGRAM.idle) == 1 else 2
            meshes._PROGRAM.close()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert read_mesh(path).geometry


@forking
@posix
def test_a_fork_while_another_thread_reads(tmp_path):
    """The child has the pipes in the middle of an answer, and none of the threads."""
    faces = "".join(f"usemtl m{k}\nf 1 2 3\n" for k in range(3_000))
    (tmp_path / "a.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\n" + faces)
    path = gltf(tmp_path)
    assert read_mesh(path).geometry
    thread = threading.Thread(target=read_mesh, args=(tmp_path / "a.obj",))
    thread.start()
    time.sleep(0.2)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(60)
            status = 0 if read_mesh(path).geometry else 2
            meshes._PROGRAM.close()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()


@pytest.mark.matrix
def test_a_program_whose_python_is_not_known(tmp_path, monkeypatch):
    meshes._PROGRAM.close()
    monkeypatch.setattr(sys, "exec_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(rd.LoadError, match=r"does not start .*is not known"):
        read_mesh(gltf(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(rd.LoadError, match="does not start"):
        read_mesh(gltf(tmp_path))
