"""Shapes of links for drawing: a model's geometries, or the `<visual>` elements of a URDF.

Shapes do not affect results, so no problem with them is an error: a shape that cannot be made is left out and listed.
Mesh files are opened on this machine; nothing is downloaded.
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
"""Limits of the faces of all meshes, and of the time in seconds to read them."""
_FLAT = 1e-4
"""Thickness of a drawn plane relative to its shorter edge."""
GROUND = "ground"
"""Metadata key of shapes that the camera does not need to cover."""
_COLOURED = (".dae", ".glb", ".gltf", ".obj")
"""Formats with their own colours, used unless the robot's file gives a colour."""


@dataclass
class Looks:
    """`shapes`: (link name, pose (4, 4) on the link, trimesh object). `left_out`: descriptions of omitted shapes."""

    shapes: list[tuple[str, Array, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def looks_of(source: Any, package_dirs: Any) -> Looks:
    """The shapes of a URDF: a path, XML text, bytes or an open file. Other formats give none, with a note.

    `package_dirs`: as in `MeshFiles`.
    """
    files = MeshFiles(package_dirs)
    try:
        shapes, unread = geometries_of(source)
    except RobodynError as error:
        return Looks(left_out=[f"no looks: {error}"])
    said = [f"{each.element}: {each.message}" for each in unread]
    return drawn(shapes, files, said)


def drawn(geometries: Sequence[Geometry], files: MeshFiles, said: Sequence[str] = ()) -> Looks:
    """Drawable objects of geometries: the visual ones, and the collision geometries of links without visual ones.

    `said`: descriptions of shapes that were omitted before.
    """
    result, maker = Looks(left_out=list(said)), _Maker(files)
    seen = {each.link for each in geometries if each.role != "collision"}
    for each in geometries:
        if each.role == "collision" and each.link in seen:
            continue
        try:
            result.shapes.append((each.link, matrix_of(each), maker.made(each)))
        except LoadError as error:
            result.left_out.append(f"link {quoted(each.link)}: {error}")
        except Exception as error:  # trimesh may raise anything for foreign files
            result.left_out.append(f"link {quoted(each.link)}: {brief(error)}")
    if len(result.left_out) > _MOST_SAID:
        result.left_out[_MOST_SAID:] = [f"and {len(result.left_out) - _MOST_SAID} more"]
    return result


class _Maker:
    """Makes trimesh objects. Each mesh file is read once."""

    def __init__(self, files: MeshFiles) -> None:
        self._files, self._faces, self._end = files, 0, time.monotonic() + _MOST_SECONDS
        self._meshes: dict[Path, Any] = {}

    def made(self, each: Geometry) -> Any:
        """The trimesh object of a geometry.

        Raises:
            LoadError: the geometry cannot be drawn.
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
        has_colours = path.suffix.lower() in _COLOURED
        return mesh if has_colours and each.color is None else _painted(mesh, each.color or _GREY)


def matrix_of(each: Geometry) -> Array:
    """The pose (4, 4) of a geometry on its link."""
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = np.reshape(each.pose.rotation, (3, 3)), each.pose.xyz
    return pose


def _box(size: tuple[float, ...]) -> Any:
    import trimesh

    box = trimesh.creation.box()
    box.apply_transform(np.diag([*size, 1.0]))
    return box


def cylinder(size: tuple[float, ...]) -> Any:
    """The mesh of a cylinder of this radius and length."""
    import trimesh

    # Made in unit size and scaled, because trimesh omits faces of small cylinders.
    mesh = trimesh.creation.cylinder(radius=1.0, height=1.0, sections=48)
    mesh.apply_transform(np.diag([size[0], size[0], size[1], 1.0]))
    return mesh


def capsule(size: tuple[float, ...]) -> Any:
    """The mesh of a capsule of this radius and length."""
    import trimesh

    # Made with unit radius and scaled, because trimesh omits faces of small capsules.
    mesh = trimesh.creation.capsule(radius=1.0, height=size[1] / size[0], count=[32, 24])
    low, high = mesh.bounds
    mesh.apply_translation((0.0, 0.0, -(low[2] + high[2]) / 2.0))  # some versions of trimesh do not centre it
    mesh.apply_scale(size[0])
    return mesh


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
    "capsule": capsule,
    "cylinder": cylinder,
    "ellipsoid": _ellipsoid,
    "plane": _plane,
    "sphere": _sphere,
}


def _painted(shape: Any, rgba: tuple[float, ...]) -> Any:
    """Give a mesh or scene one colour; returns it."""
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
