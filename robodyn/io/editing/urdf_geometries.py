"""Writes geometries and kept elements as URDF."""

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
"""Ways to name meshes in a written file."""


class MeshNames:
    """Names of meshes and textures in a file that will be in `folder`, None if unknown. `meshes`: see
    `Model.to_urdf`."""

    def __init__(self, meshes: str, folder: Path | None, files: MeshFiles, notes: Notes) -> None:
        self._meshes, self._folder = meshes, folder
        self._files, self._elsewhere, self._notes = files, MeshFiles(), notes

    def of(self, given: str, geometry: Geometry) -> str:
        """The name in the written file for a file of a geometry. `given`: its name in the geometry."""
        is_absolute = "://" in given or Path(given).is_absolute()
        path = self._files.find(given, geometry.folder)
        if path is None and self._meshes == "paths":
            message = f"{quoted(given)} is not found; its name is written as it is"
            self._notes.gather("written-otherwise", f"link {quoted(geometry.link)}", message)
        # A name that also finds a file from the folder of the written file is kept.
        keeps_name = (
            is_absolute and self._elsewhere.find(given, "" if self._folder is None else str(self._folder)) is not None
        )
        if path is not None and (
            self._meshes == "paths" or (self._meshes == "auto" and is_absolute and not keeps_name)
        ):
            if is_absolute:
                message = "files of meshes are named by where they are on this machine, and not by their packages"
                self._notes.gather("written-otherwise", f"link {quoted(geometry.link)}", message)
            return self._from_folder(path)
        return given if is_absolute or not geometry.folder else self._from_folder(Path(geometry.folder) / given)

    def _from_folder(self, path: Path) -> str:
        if self._folder is None:
            return os.path.normpath(path)
        try:
            # Symbolic links are resolved first, because `..` after a link leads to the parent of the link's target.
            return os.path.relpath(os.path.realpath(path), self._folder)
        except ValueError:  # another drive
            return os.path.normpath(path)


class UrdfGeometries:
    """Writes the geometries of a model by links, their materials, and the kept elements.

    `materials`: elements of materials; `geared`: joints whose armature is in a kept transmission.
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
            subject = f"link {quoted(each.link)}"
            if each.link not in links:
                notes.gather("not-written", subject, "a geometry of a link that the robot does not have")
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
        """The joints whose armature equals that of the motors in their transmissions.

        If it differs, for instance after an edit, the motors' inertias are removed from the transmissions in `kept`.
        """
        transmissions = {}
        for k, extension in enumerate(kept):
            top = element_of(extension)
            if top.tag == "transmission":
                transmissions[k] = top
        without_armature = [replace(joint, armature=0.0) for joint in robot.joints]
        from_motors = with_armatures(without_armature, list(transmissions.values()), Notes())
        of_motors = {
            child.attributes.get("name")
            for top in transmissions.values()
            if any(part.tag in ROTORS for each in (top, *top.children) for part in each.children)
            for child in top.children
            if child.tag == "joint"
        }
        pairs = [
            (joint, geared_joint)
            for joint, geared_joint in zip(robot.joints, from_motors, strict=True)
            if joint.name in of_motors
        ]
        unequal = {joint.name for joint, geared_joint in pairs if joint.armature != geared_joint.armature}
        for k, top in transmissions.items():
            if any(child.attributes.get("name") in unequal for child in top.children if child.tag == "joint"):
                for each in (top, *top.children):
                    each.children = [child for child in each.children if child.tag not in ROTORS]
                kept[k] = replace(kept[k], text=written(top))
                message = "the inertia of its motor, as the armature of the joint is another one"
                self._notes.gather("not-written", element_name(kept[k]), message)
        return frozenset(joint.name for joint, geared_joint in pairs if joint.armature == geared_joint.armature)

    def kept(self, parent: str, of: str = "") -> list[str]:
        """The kept elements of a link, a joint or the robot. `parent`: its tag; `of`: its name."""
        return self._kept.pop((parent, of), [])

    def note_left(self) -> None:
        """Report kept elements whose link or joint is not written. Call it last."""
        for parent, of in self._kept:
            message = f"a kept element of a {parent} that is not written"
            self._notes.gather("not-written", f"{parent} {quoted(of)}", message)

    def lines(self, link: str) -> Iterator[str]:
        """The lines of a link's elements, without the link's indentation."""
        for each in self._of.get(link, ()):
            for part in self._parts(each):
                for tag in ("visual", "collision") if part.role == "both" else (part.role,):
                    yield from self._element(tag, part)
        yield from self.kept("link", link)

    def _parts(self, given: Geometry) -> list[Geometry]:
        """The URDF shapes of a geometry."""
        subject = f"link {quoted(given.link)}"
        if given.kind in ("ellipsoid", "plane"):
            self._notes.gather("not-written", subject, f"a geometry of kind {given.kind}, which URDF does not have")
            return []
        if given.kind != "capsule":
            return [given]
        if not given.size[1]:
            return [replace(given, kind="sphere", size=given.size[:1])]
        if given.format == "urdf":
            self._notes.gather("written-for-few", subject, "a capsule, which not all programs know of URDF")
            return [given]
        self._notes.gather("written-otherwise", subject, "a capsule, as a cylinder and two spheres")
        return capsule_parts(given)

    def _element(self, tag: str, each: Geometry) -> Iterator[str]:
        name_attribute = f" name={text_value(each.name)}" if each.name else ""
        own = each.format == "urdf"
        attributes = "".join(f" {key}={text_value(value)}" for key, value in each.attributes) if own else ""
        yield f"<{tag}{name_attribute}{attributes}>"
        rpy = "" if each.pose.rotation == IDENTITY else f" rpy={values(rpy_of(each.pose.rotation))}"
        if rpy or any(each.pose.xyz):
            yield f"  <origin xyz={values(each.pose.xyz)}{rpy}/>"
        if each.kind == "mesh":
            scale = "" if each.size == (1.0, 1.0, 1.0) else f" scale={values(each.size)}"
            shape = f"filename={text_value(self._names.of(each.mesh, each))}{scale}"
        elif each.kind == "box":
            shape = f"size={values(each.size)}"
        else:
            shape = " ".join(f"{key}={values([x])}" for key, x in zip(SIZES[each.kind], each.size, strict=True))
        yield f"  <geometry><{each.kind} {shape}/></geometry>"
        if tag == "visual" and (key := _material_key(each)) is not None:
            yield f"  <material name={text_value(self._materials[key])}/>"
        if own and each.elements:
            yield f"  {each.elements}"
        yield f"</{tag}>"

    def _name_material(self, each: Geometry, taken: dict[str, int]) -> None:
        """Add a material with a unique name: readers treat materials of the same name as equal."""
        key = _material_key(each)
        if each.role == "collision" or key is None or key in self._materials:
            return
        name = self._materials[key] = numbered(each.material or f"material_{len(self._materials)}", taken)
        content = "" if each.color is None else f"<color rgba={values(each.color)}/>"
        content += f"<texture filename={text_value(self._names.of(each.texture, each))}/>" if each.texture else ""
        if content:
            self.materials.append(f"<material name={text_value(name)}>{content}</material>")


def _material_key(each: Geometry) -> tuple[object, ...] | None:
    """A key that is equal for equal materials; None if a geometry has no material."""
    if each.color is None and not each.material and not each.texture:
        return None
    return each.material, each.color, each.texture, each.folder if each.texture else ""


def capsule_parts(given: Geometry) -> list[Geometry]:
    """A cylinder and two spheres that form a capsule."""
    radius, length = given.size
    x, y, z = rotate(given.pose.rotation, (0.0, 0.0, length / 2.0))
    px, py, pz = given.pose.xyz
    ends = [Pose((px + s * x, py + s * y, pz + s * z), given.pose.rotation) for s in (1.0, -1.0)]
    parts = [replace(given, kind="cylinder", size=(radius, length))] if length else []
    spheres = [replace(given, kind="sphere", size=(radius,), pose=end, name="") for end in ends]
    return [*parts, *spheres]
