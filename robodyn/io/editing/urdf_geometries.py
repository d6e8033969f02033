"""Geometries and kept elements as URDF."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from robodyn.core.description import IDENTITY, Extension, Geometry, Pose
from robodyn.core.findings import Notes
from robodyn.core.spatial import rotate
from robodyn.internals.messages import quoted
from robodyn.io.builders.elements import written
from robodyn.io.builders.mesh_files import MeshFiles
from robodyn.io.builders.transmissions import ROTORS, with_armatures
from robodyn.io.builders.urdf_geometries import SIZES
from robodyn.io.editing.carried import element_name, element_of
from robodyn.io.editing.to_description import Described
from robodyn.io.editing.writer_common import numbered, rpy_of, text_value, values

if TYPE_CHECKING:
    from robodyn.core.model import Model

MESHES = ("auto", "named", "paths")
"""How meshes are named in a file that is written."""


class MeshNames:
    """What meshes and textures are called in a file that will stand in `folder`, None where that is not known; `meshes`
    as `Model.to_urdf` has it."""

    def __init__(self, meshes: str, folder: Path | None, files: MeshFiles, notes: Notes) -> None:
        self._meshes, self._folder = meshes, folder
        self._files, self._elsewhere, self._notes = files, MeshFiles(), notes

    def of(self, given: str, geometry: Geometry) -> str:
        """The name of a file that a geometry names."""
        named = "://" in given or Path(given).is_absolute()
        found = self._files.find(given, geometry.folder)
        if found is None and self._meshes == "paths":
            message = f"{quoted(given)} is not found; its name is written as it is"
            self._notes.gather("written-otherwise", f"link {quoted(geometry.link)}", message)
        # A file that will be found by the same name, from where the text will stand, keeps it.
        there = named and self._elsewhere.find(given, "" if self._folder is None else str(self._folder)) is not None
        if found is not None and (self._meshes == "paths" or (self._meshes == "auto" and named and not there)):
            if named:
                message = "files of meshes are named by where they are on this machine, and not by their packages"
                self._notes.gather("written-otherwise", f"link {quoted(geometry.link)}", message)
            return self._from_folder(found)
        return given if named or not geometry.folder else self._from_folder(Path(geometry.folder) / given)

    def _from_folder(self, path: Path) -> str:
        if self._folder is None:
            return os.path.normpath(path)
        try:
            # From one folder without links to another: `..` behind a link is not where its name says.
            return os.path.relpath(os.path.realpath(path), self._folder)
        except ValueError:  # another drive
            return os.path.normpath(path)


class UrdfGeometries:
    """The geometries of a model by links, with the materials that they share, and its kept elements.

    `materials`: elements of materials. `geared`: joints whose armature stands in a kept transmission.
    """

    def __init__(self, model: Model, robot: Described, names: MeshNames, notes: Notes) -> None:
        self._names, self._notes = names, notes
        self._of: dict[str, list[Geometry]] = defaultdict(list)
        self._materials: dict[tuple[object, ...], str] = {}
        self._kept: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.materials: list[str] = []
        links = {link.name for link in robot.links}
        taken: dict[str, int] = {}
        for each in model.geometries:
            at = f"link {quoted(each.link)}"
            if each.link not in links:
                notes.gather("not-written", at, "a geometry of a link that the robot does not have")
            else:
                self._of[each.link].append(each)
                self._name_material(each, taken)
        kept: list[Extension] = []
        for extension in model.extensions:
            if extension.format == "urdf":
                kept.append(extension)
            else:
                message = f"a kept element of {extension.format.upper()}"
                notes.gather("not-written", element_name(extension), message)
        self.geared = self._geared(kept, robot)
        for extension in kept:
            self._kept[extension.parent, extension.of].append(extension.text)

    def _geared(self, kept: list[Extension], robot: Described) -> frozenset[str]:
        """The joints whose armature is that of the motors in their transmissions. Where it is another one, as after an
        edit, the motors' inertias are taken out of the transmissions in `kept`."""
        found = {}
        for k, extension in enumerate(kept):
            top = element_of(extension)
            if top.tag == "transmission":
                found[k] = top
        bare = [replace(joint, armature=0.0) for joint in robot.joints]
        given = with_armatures(bare, list(found.values()), Notes())
        of_motors = {
            child.attributes.get("name")
            for top in found.values()
            if any(part.tag in ROTORS for each in (top, *top.children) for part in each.children)
            for child in top.children
            if child.tag == "joint"
        }
        pairs = [(joint, made) for joint, made in zip(robot.joints, given, strict=True) if joint.name in of_motors]
        others = {joint.name for joint, made in pairs if joint.armature != made.armature}
        for k, top in found.items():
            if any(child.attributes.get("name") in others for child in top.children if child.tag == "joint"):
                for each in (top, *top.children):
                    each.children = [child for child in each.children if child.tag not in ROTORS]
                kept[k] = replace(kept[k], text=written(top))
                message = "the inertia of its motor, as the armature of the joint is another one"
                self._notes.gather("not-written", element_name(kept[k]), message)
        return frozenset(joint.name for joint, made in pairs if joint.armature == made.armature)

    def kept(self, parent: str, of: str = "") -> list[str]:
        """The elements that are kept for an element of the file."""
        return self._kept.pop((parent, of), [])

    def note_left(self) -> None:
        """Say what was asked for by no link or joint that is written."""
        for parent, of in self._kept:
            message = f"a kept element of a {parent} that is not written"
            self._notes.gather("not-written", f"{parent} {quoted(of)}", message)

    def lines(self, link: str) -> Iterator[str]:
        """The elements of a link, without their indentation."""
        for each in self._of.get(link, ()):
            for part in self._parts(each):
                for tag in ("visual", "collision") if part.role == "both" else (part.role,):
                    yield from self._element(tag, part)
        yield from self.kept("link", link)

    def _parts(self, given: Geometry) -> list[Geometry]:
        """A geometry as shapes of URDF."""
        at = f"link {quoted(given.link)}"
        if given.kind in ("ellipsoid", "plane"):
            self._notes.gather("not-written", at, f"a geometry of kind {given.kind}, which URDF does not have")
            return []
        if given.kind != "capsule":
            return [given]
        if given.format == "urdf":
            self._notes.gather("written-for-few", at, "a capsule, which not all programs know of URDF")
            return [given]
        self._notes.gather("written-otherwise", at, "a capsule, as a cylinder and two spheres")
        return capsule_parts(given)

    def _element(self, tag: str, each: Geometry) -> Iterator[str]:
        named = f" name={text_value(each.name)}" if each.name else ""
        own = each.format == "urdf"
        more = "".join(f" {key}={text_value(value)}" for key, value in each.attributes) if own else ""
        yield f"<{tag}{named}{more}>"
        turned = "" if each.pose.rotation == IDENTITY else f" rpy={values(rpy_of(each.pose.rotation))}"
        if turned or any(each.pose.xyz):
            yield f"  <origin xyz={values(each.pose.xyz)}{turned}/>"
        if each.kind == "mesh":
            scale = "" if each.size == (1.0, 1.0, 1.0) else f" scale={values(each.size)}"
            shape = f"filename={text_value(self._names.of(each.mesh, each))}{scale}"
        elif each.kind == "box":
            shape = f"size={values(each.size)}"
        else:
            shape = " ".join(f"{key}={values([x])}" for key, x in zip(SIZES[each.kind], each.size, strict=True))
        yield f"  <geometry><{each.kind} {shape}/></geometry>"
        if tag == "visual" and (key := _look(each)) is not None:
            yield f"  <material name={text_value(self._materials[key])}/>"
        if own and each.elements:
            yield f"  {each.elements}"
        yield f"</{tag}>"

    def _name_material(self, each: Geometry, taken: dict[str, int]) -> None:
        """Name a material once: readers take two of one name for the same."""
        key = _look(each)
        if each.role == "collision" or key is None or key in self._materials:
            return
        called = self._materials[key] = numbered(each.material or f"material_{len(self._materials)}", taken)
        inside = "" if each.color is None else f"<color rgba={values(each.color)}/>"
        inside += f"<texture filename={text_value(self._names.of(each.texture, each))}/>" if each.texture else ""
        if inside:
            self.materials.append(f"<material name={text_value(called)}>{inside}</material>")


def _look(each: Geometry) -> tuple[object, ...] | None:
    """What tells one material from another."""
    if each.color is None and not each.material and not each.texture:
        return None
    return each.material, each.color, each.texture, each.folder if each.texture else ""


def capsule_parts(given: Geometry) -> list[Geometry]:
    """A capsule as a cylinder and two spheres."""
    radius, length = given.size
    x, y, z = rotate(given.pose.rotation, (0.0, 0.0, length / 2.0))
    px, py, pz = given.pose.xyz
    ends = [Pose((px + s * x, py + s * y, pz + s * z), given.pose.rotation) for s in (1.0, -1.0)]
    parts = [replace(given, kind="cylinder", size=(radius, length))] if length else []
    spheres = [replace(given, kind="sphere", size=(radius,), pose=end, name="") for end in ends]
    return [*parts, *spheres]
