"""What the links of a URDF look like: the shapes and meshes of its `<visual>` elements.

Everything here is for the eye alone, so nothing that is wrong with it is an error: a shape that cannot be had is left
out, and said. Files that a URDF names are opened where they lie on this machine; nothing is fetched.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from robodyn.arguments import Array
from robodyn.builders.elements import Element, parse_xml
from robodyn.builders.findings import Notes
from robodyn.builders.sources import path_of, read_source
from robodyn.builders.values import numbers
from robodyn.description import rotation_from_rpy
from robodyn.errors import LoadError, RobodynError
from robodyn.messages import brief, quoted
from robodyn.records import dataclass

_OPAQUE = frozenset({"inertial", "collision", "joint", "transmission", "gazebo"})
_GREY = (0.72, 0.74, 0.77, 1.0)
_LARGEST_MESH = 64 * 1024 * 1024
_SUFFIXES = (".stl", ".obj", ".dae", ".ply", ".glb", ".gltf", ".off")
_MOST_SAID = 20


@dataclass
class Looks:
    """Shapes (n) by the name of their link: (link, pose (4, 4) there, an object of trimesh), and what was left out."""

    shapes: list[tuple[str, Array, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def looks_of(source: Any, package_dirs: Sequence[str | os.PathLike[str]]) -> Looks:
    """The looks in a URDF: a path, XML text, bytes or an open file. Of any other format none, which is said.

    `package_dirs`: folders that hold packages, for `package://NAME/...`; after them come those of ROS_PACKAGE_PATH and
    the folders above the file.
    """
    found = Looks()
    try:
        path = path_of(source)
        data = read_source(source)
        reader = _Reader(found, _Files(path, package_dirs))
        parse_xml(data, "robot", _OPAQUE, reader.take, notes=Notes())  # told where the model is loaded
    except RobodynError as error:
        found.left_out.append(f"no looks: {error}")
        return found
    reader.finish()
    return found


class _Files:
    """Where the meshes of a file are."""

    def __init__(self, path: str | None, package_dirs: Sequence[str | os.PathLike[str]]) -> None:
        self._folder = None if path is None else Path(path).resolve().parent
        self._packages = [Path(each) for each in package_dirs]
        self._packages += [Path(each) for each in os.environ.get("ROS_PACKAGE_PATH", "").split(os.pathsep) if each]

    def find(self, name: str) -> Path | None:
        """The file of a name as a URDF has it, or None where there is none."""
        return next((path for path in self._candidates(name) if path.is_file()), None)

    def _candidates(self, name: str) -> Iterator[Path]:
        scheme, there, rest = name.partition("://")
        above = [] if self._folder is None else [self._folder, *self._folder.parents]
        if not there:
            yield from [Path(name)] if Path(name).is_absolute() else [folder / name for folder in above[:1]]
        elif scheme == "file":
            yield Path(rest)
        elif scheme in ("package", "model"):
            package, _, inside = rest.partition("/")
            for folder in [*self._packages, *above]:
                yield folder / package / inside
                if folder.name == package:
                    yield folder / inside


class _Reader:
    """Takes links as they are parsed. Colours may stand after those who name them, so shapes are made at the end."""

    def __init__(self, found: Looks, files: _Files) -> None:
        self._found, self._files = found, files
        self._visuals: list[tuple[str, Element]] = []
        self._colours: dict[str, tuple[float, ...]] = {}
        self._meshes: dict[Path, Any] = {}

    def take(self, element: Element) -> None:
        """Keep the visuals of a link, and colours."""
        if element.tag == "link":
            name = element.attributes.get("name", "")
            self._visuals += [(name, child) for child in element.children if child.tag == "visual"]
        elif element.tag == "material":
            self._take_colour(element)

    def _take_colour(self, material: Element) -> None:
        rgba = _rgba(material)
        if rgba is not None:
            self._colours[material.attributes.get("name", "")] = rgba

    def _colour(self, visual: Element) -> tuple[float, ...] | None:
        """The colour of a visual's material, its own or that of its name."""
        for material in _children(visual, "material"):
            return _rgba(material) or self._colours.get(material.attributes.get("name", ""))
        return None

    def finish(self) -> None:
        """Make the shapes."""
        for _, visual in self._visuals:
            for material in _children(visual, "material"):
                self._take_colour(material)
        for link, visual in self._visuals:
            try:
                self._found.shapes.append((link, _origin(visual), self._shape(visual)))
            except LoadError as error:
                self._found.left_out.append(f"link {quoted(link)}: {error}")
            except Exception as error:  # trimesh, its readers and the files of others may raise anything
                self._found.left_out.append(f"link {quoted(link)}: {brief(error)}")
        said = self._found.left_out
        if len(said) > _MOST_SAID:
            said[_MOST_SAID:] = [f"and {len(said) - _MOST_SAID} more"]

    def _shape(self, visual: Element) -> Any:
        shapes = [child for geometry in _children(visual, "geometry") for child in geometry.children]
        if len(shapes) != 1:
            raise LoadError(f"a visual with {len(shapes)} shapes; wanted one")
        (shape,) = shapes
        rgba = self._colour(visual)
        if shape.tag == "mesh":
            return self._mesh(shape, rgba)
        make = _PRIMITIVES.get(shape.tag)
        if make is None:
            raise LoadError(f"a shape <{shape.tag}>; drawn are {', '.join(_PRIMITIVES)} and mesh")
        return _painted(make(shape), _GREY if rgba is None else rgba)

    def _mesh(self, element: Element, rgba: tuple[float, ...] | None) -> Any:
        name = element.attributes.get("filename", "")
        path = self._files.find(name)
        if path is None:
            raise LoadError(f"mesh {quoted(name)} is not found")
        if path not in self._meshes:
            self._meshes[path] = _read_mesh(path)
        mesh = self._meshes[path].copy()
        if "scale" in element.attributes:
            mesh.apply_transform(np.diag([*_positive(element, "scale", 3, negative=True), 1.0]))
        # Formats without colours of their own get those of the file.
        own = path.suffix.lower() in (".dae", ".glb", ".gltf", ".obj")
        return mesh if own and rgba is None else _painted(mesh, _GREY if rgba is None else rgba)


def _children(element: Element, tag: str) -> list[Element]:
    return [child for child in element.children if child.tag == tag]


def _rgba(material: Element) -> tuple[float, ...] | None:
    """The colour that a material has itself."""
    for child in _children(material, "color"):
        rgba = numbers(child.attributes.get("rgba", ""), 4)
        return None if rgba is None else tuple(min(max(x, 0.0), 1.0) for x in rgba)
    return None


def _origin(visual: Element) -> Array:
    """The pose of a visual on its link."""
    pose = np.eye(4)
    for origin in _children(visual, "origin"):
        for name in ("xyz", "rpy"):
            values = numbers(origin.attributes.get(name, "0 0 0"), 3)
            if values is None:
                raise LoadError(f"{name} {quoted(origin.attributes[name])} of a visual; wanted three numbers")
            if name == "xyz":
                pose[:3, 3] = values
            else:
                pose[:3, :3] = np.reshape(rotation_from_rpy(values[0], values[1], values[2]), (3, 3))
    return pose


def _positive(element: Element, name: str, count: int, negative: bool = False) -> list[float]:
    """Numbers of an attribute that are sizes, or for mirrors the negatives of some."""
    values = numbers(element.attributes.get(name, ""), count)
    if values is None or not all(0.0 < (abs(x) if negative else x) < 1e6 for x in values):
        given = quoted(element.attributes.get(name, ""))
        raise LoadError(f"{name} {given} of a <{element.tag}>; wanted {count} numbers above 0")
    return list(values)


def _box(element: Element) -> Any:
    import trimesh

    return trimesh.creation.box(extents=_positive(element, "size", 3))


def _cylinder(element: Element) -> Any:
    import trimesh

    (radius,), (length,) = _positive(element, "radius", 1), _positive(element, "length", 1)
    return trimesh.creation.cylinder(radius=radius, height=length, sections=48)


def _sphere(element: Element) -> Any:
    import trimesh

    return trimesh.creation.icosphere(subdivisions=3, radius=_positive(element, "radius", 1)[0])


_PRIMITIVES: dict[str, Callable[[Element], Any]] = {"box": _box, "cylinder": _cylinder, "sphere": _sphere}


def _read_mesh(path: Path) -> Any:
    import trimesh

    if path.suffix.lower() not in _SUFFIXES:
        raise LoadError(f"mesh {quoted(str(path))}; read are {', '.join(_SUFFIXES)}")
    if path.stat().st_size > _LARGEST_MESH:
        raise LoadError(f"mesh {quoted(str(path))} is larger than {_LARGEST_MESH} bytes, the most that is read")
    scene = trimesh.load_scene(path)
    # Points and lines are no surfaces, and are neither painted nor drawn.
    scene.delete_geometry([name for name, each in scene.geometry.items() if not len(getattr(each, "faces", ()))])
    if not all(np.isfinite(each.vertices).all() for each in scene.geometry.values()) or scene.is_empty:
        raise LoadError(f"mesh {quoted(str(path))} has no faces, or places that are not finite")
    return scene


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
