"""What links look like: the shapes and meshes of a model's geometries, or of the `<visual>` elements of a URDF.

Everything here is for the eye alone, so nothing that is wrong with it is an error: a shape that cannot be had is left
out, and said. Files that a robot names are opened where they lie on this machine; nothing is fetched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from robodyn.core.description import Geometry
from robodyn.internals.arguments import Array
from robodyn.internals.errors import LoadError, RobodynError
from robodyn.internals.messages import brief, quoted
from robodyn.internals.records import dataclass
from robodyn.io.builders.mesh_files import MeshFiles
from robodyn.io.builders.urdf import geometries_of
from robodyn.tools.viewer.meshes import read_mesh

_GREY = (0.72, 0.74, 0.77, 1.0)
_MOST_SAID = 20
_MOST_FACES, _MOST_SECONDS = 5_000_000, 120.0
"""Faces of all meshes together, and how long reading them may take."""
_FLAT = 1e-4
"""Thickness of a plane that is drawn, beside its shorter edge."""
GROUND = "ground"
"""In the metadata of what is drawn, but is no part of the robot that a camera looks at."""
_COLOURED = (".dae", ".glb", ".gltf", ".obj")
"""Formats with colours of their own, which are drawn unless the robot's file gives one."""


@dataclass
class Looks:
    """Shapes (n) by the name of their link: (link, pose (4, 4) there, an object of trimesh), and what was left out."""

    shapes: list[tuple[str, Array, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def looks_of(source: Any, package_dirs: Any) -> Looks:
    """The looks in a URDF: a path, XML text, bytes or an open file. Of any other format none, which is said.

    `package_dirs`: as of `MeshFiles`.
    """
    files = MeshFiles(package_dirs)
    try:
        shapes, unread = geometries_of(source)
    except RobodynError as error:
        return Looks(left_out=[f"no looks: {error}"])
    said = [f"{each.element}: {each.message}" for each in unread]
    return drawn(shapes, files, said)


def drawn(geometries: Sequence[Geometry], files: MeshFiles, said: Sequence[str] = ()) -> Looks:
    """Geometries as objects that are drawn: those that are to be seen, and of links without any what they collide with.

    `said`: what was left out before.
    """
    found, maker = Looks(left_out=list(said)), _Maker(files)
    seen = {each.link for each in geometries if each.role != "collision"}
    for each in geometries:
        if each.role == "collision" and each.link in seen:
            continue
        try:
            found.shapes.append((each.link, _matrix(each), maker.made(each)))
        except LoadError as error:
            found.left_out.append(f"link {quoted(each.link)}: {error}")
        except Exception as error:  # trimesh, its readers and the files of others may raise anything
            found.left_out.append(f"link {quoted(each.link)}: {brief(error)}")
    if len(found.left_out) > _MOST_SAID:
        found.left_out[_MOST_SAID:] = [f"and {len(found.left_out) - _MOST_SAID} more"]
    return found


class _Maker:
    """Makes objects of trimesh; files of meshes are read once."""

    def __init__(self, files: MeshFiles) -> None:
        self._files, self._faces, self._end = files, 0, time.monotonic() + _MOST_SECONDS
        self._meshes: dict[Path, Any] = {}

    def made(self, each: Geometry) -> Any:
        """The object of a geometry.

        Raises:
            LoadError: it is not drawn.
        """
        if each.kind != "mesh":
            return _painted(_PRIMITIVES[each.kind](each.size), each.color or _GREY)
        path = self._files.mesh(each)
        if path is None:
            raise LoadError(f"mesh {quoted(each.mesh)} is not found")
        if path not in self._meshes:
            if time.monotonic() > self._end:
                raise LoadError(f"mesh {quoted(each.mesh)}: those before it took {_MOST_SECONDS:g} s, the most allowed")
            self._meshes[path] = read_mesh(path)
        self._faces += sum(len(part.faces) for part in self._meshes[path].geometry.values())
        if self._faces > _MOST_FACES:
            raise LoadError(
                f"mesh {quoted(each.mesh)}: with it there are more than {_MOST_FACES} faces, the most drawn"
            )
        mesh = self._meshes[path].copy()
        if each.size != (1.0, 1.0, 1.0):
            mesh.apply_transform(np.diag([*each.size, 1.0]))
        own = path.suffix.lower() in _COLOURED
        return mesh if own and each.color is None else _painted(mesh, each.color or _GREY)


def _matrix(each: Geometry) -> Array:
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = np.reshape(each.pose.rotation, (3, 3)), each.pose.xyz
    return pose


def _box(size: tuple[float, ...]) -> Any:
    import trimesh

    box = trimesh.creation.box()
    box.apply_transform(np.diag([*size, 1.0]))
    return box


def _cylinder(size: tuple[float, ...]) -> Any:
    import trimesh

    # Scaled, as trimesh leaves out faces of small ones.
    made = trimesh.creation.cylinder(radius=1.0, height=1.0, sections=48)
    made.apply_transform(np.diag([size[0], size[0], size[1], 1.0]))
    return made


def _capsule(size: tuple[float, ...]) -> Any:
    import trimesh

    # Of unit radius, and scaled, as trimesh leaves out faces of small ones.
    capsule = trimesh.creation.capsule(radius=1.0, height=size[1] / size[0], count=[32, 24])
    low, high = capsule.bounds
    capsule.apply_translation((0.0, 0.0, -(low[2] + high[2]) / 2.0))  # some versions begin it at the origin
    capsule.apply_scale(size[0])
    return capsule


def _sphere(size: tuple[float, ...]) -> Any:
    import trimesh

    ball = trimesh.creation.icosphere(subdivisions=3)
    ball.apply_scale(size[0])
    return ball


def _ellipsoid(size: tuple[float, ...]) -> Any:
    ball = _sphere((1.0,))
    ball.apply_transform(np.diag([*size, 1.0]))
    return ball


def _plane(size: tuple[float, ...]) -> Any:
    if not all(size):
        raise LoadError("a plane without end is not drawn")
    plane = _box((*size, _FLAT * min(size)))
    plane.metadata[GROUND] = True
    return plane


_PRIMITIVES: dict[str, Callable[[tuple[float, ...]], Any]] = {
    "box": _box,
    "capsule": _capsule,
    "cylinder": _cylinder,
    "ellipsoid": _ellipsoid,
    "plane": _plane,
    "sphere": _sphere,
}


def _painted(shape: Any, rgba: tuple[float, ...]) -> Any:
    """A mesh or a scene in one colour."""
    from trimesh.visual.material import PBRMaterial
    from trimesh.visual.texture import TextureVisuals

    material = PBRMaterial(
        baseColorFactor=rgba,
        metallicFactor=0.1,
        roughnessFactor=0.7,
        doubleSided=True,
        alphaMode="OPAQUE" if rgba[3] == 1.0 else "BLEND",
    )
    for mesh in shape.geometry.values() if hasattr(shape, "geometry") else (shape,):
        mesh.visual = TextureVisuals(material=material)
    return shape
