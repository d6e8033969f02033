"""Writes geometries as geoms of MJCF, with their mesh assets."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robodyn.core.description import IDENTITY, Geometry, Pose
from robodyn.core.findings import Notes
from robodyn.internals.messages import quoted
from robodyn.io.builders.elements import Element, written
from robodyn.io.builders.mesh_files import MeshFiles
from robodyn.io.editing.carried import LINKS, Names, element_name, element_of, remaining
from robodyn.io.editing.mjcf_contacts import MjcfContacts
from robodyn.io.editing.to_description import Described
from robodyn.io.editing.writer_common import numbered, quaternion_of, text_value, values

if TYPE_CHECKING:
    from robodyn.core.model import Model

_READ = (".stl", ".obj", ".msh")
"""Suffixes of mesh files that MuJoCo reads."""
_LEAST_SIZE = 1e-9
"""Length in m below which a capsule is written as a sphere. MuJoCo refuses sizes up to 1e-15."""
_SEEN, _UNSEEN = 2, 3
"""Groups of visible and hidden geoms. MuJoCo's viewer shows groups up to 2."""
WORLD = "world"
_ROUNDING = 1e-9
"""Difference in m of numbers of shapes that count as the same."""
_STL_HEADER, _STL_FACE, _MOST_FACES = 84, 50, 200_000


class MjcfGeometries:
    """Writes the geoms of links. `assets`: elements of the meshes that they use."""

    def __init__(self, model: Model, files: MeshFiles, notes: Notes, contacts: MjcfContacts) -> None:
        self._files, self._notes, self._paired = files, notes, contacts.present
        self._of: dict[str, list[Geometry]] = defaultdict(list)
        bodies = dict(zip(model.link_names, model.link_body.tolist(), strict=True))
        for each in model.geometries:
            if each.link not in bodies:
                message = "a geometry of a link that the robot does not have"
            elif each.kind == "plane" and bodies[each.link] >= 0:
                message = "a plane that moves, which MuJoCo does not have"
            else:
                self._of[each.link].append(each)
                continue
            notes.gather("not-written", f"link {quoted(each.link)}", message)
        self._touching: dict[int, Geometry] = {}
        for shape in contacts.shapes():
            if shape.kind == "plane" and bodies.get(shape.link, -1) >= 0:
                notes.gather("not-written", f"link {quoted(shape.link)}", "contacts of a plane that moves")
                continue
            known = self._of[shape.link or (WORLD if WORLD in bodies else "")]
            same = next((each for each in known if _is_same(each, shape)), None)
            if same is None:
                same = replace(shape)
                known.append(same)
            self._touching[id(same)] = shape
        self.of_contacts: dict[Geometry, str] = {}
        """The names of geoms of contacts, as attributes, filled while the lines are generated."""
        self._names: dict[str, int] = {}
        self._meshes: dict[tuple[object, ...], tuple[str | None, str]] = {}
        self._mesh_names: dict[str, int] = {}
        self.assets: list[str] = []

    def has(self, link: str) -> bool:
        """True if a link has geometries."""
        return link in self._of

    def lines(self, link: str) -> Iterator[str]:
        """The elements of a link's geoms, one per line."""
        shapes = self._of.get(link, [])
        has_visual = any(each.role == "visual" for each in shapes)
        for each in shapes:
            if (shape := self._shape(each)) is None:
                continue
            touching = self._touching.get(id(each))
            name = numbered(each.name or ("contact" if touching else ""), self._names) if each.name or touching else ""
            name_attribute = f" name={text_value(name)}" if name else ""
            if touching is not None:
                self.of_contacts[touching] = text_value(name)
            color = "" if each.color is None else f" rgba={values(each.color)}"
            yield f"<geom{name_attribute} {shape}{placed(each.pose)}{color}{self._contact(each, has_visual)}/>"

    def _contact(self, each: Geometry, seen: bool) -> str:
        """The attributes of a geom for contacts and visibility. `seen`: True if its link has visuals."""
        if self._paired:
            hidden = seen and each.role == "collision"
            return f' contype="0" conaffinity="0" group="{_UNSEEN if hidden else _SEEN}"'
        if each.format == "mjcf":
            return "".join(f" {key}={text_value(value)}" for key, value in each.attributes)
        if each.texture:
            message = f"the texture {quoted(each.texture)} of a geometry"
            self._notes.gather("not-written", f"link {quoted(each.link)}", message)
        if each.role == "visual":
            return f' contype="0" conaffinity="0" group="{_SEEN}"'
        return f' group="{_UNSEEN}"' if seen and each.role == "collision" else ""

    def _shape(self, each: Geometry) -> str | None:
        """The attributes for type and size; None if the geometry is not written."""
        if each.kind == "mesh":
            name = self._mesh(each)
            return None if name is None else f'type="mesh" mesh={text_value(name)}'
        kind, size = each.kind, each.size
        if kind == "plane":
            return f'type="plane" size={values([size[0] / 2.0, size[1] / 2.0, 1.0])}'
        if kind == "capsule" and size[1] < _LEAST_SIZE:
            kind, size = "sphere", size[:1]
        if kind == "box":
            size = tuple(x / 2.0 for x in size)
        elif kind in ("cylinder", "capsule"):
            size = (size[0], size[1] / 2.0)
        return f'type="{kind}" size={values(size)}'

    def _mesh(self, each: Geometry) -> str | None:
        """The name of a mesh's asset; None, with a finding, if MuJoCo cannot read the mesh."""
        key = (each.mesh, each.folder, each.size)
        if key not in self._meshes:
            self._meshes[key] = self._asset(each)
        name, reason = self._meshes[key]
        if reason:
            message = f"a mesh: {quoted(each.mesh)} {reason}"
            self._notes.gather("not-written", f"link {quoted(each.link)}", message)
        return name

    def _asset(self, each: Geometry) -> tuple[str | None, str]:
        """Adds a mesh asset; returns its name and "", or None and the reason why there is none."""
        path = self._files.mesh(each)
        reason = "is not found" if path is None else unreadable(path)
        if path is None or reason:
            return None, reason
        name = numbered(path.stem or "mesh", self._mesh_names)
        scale = "" if each.size == (1.0, 1.0, 1.0) else f" scale={values(each.size)}"
        file = text_value(os.path.normpath(path))
        # The file has explicit inertias. With inertia="shell" MuJoCo does not compute volumes, so it accepts open
        # meshes.
        self.assets.append(f'<mesh name={text_value(name)} file={file}{scale} inertia="shell"/>')
        return name, ""


def kept_lines(model: Model, robot: Described, sites: set[str], new: Mapping[str, str], notes: Notes) -> list[str]:
    """The lines of kept MJCF elements: actuators, sensors and excluded contacts.

    `sites`: links that are written as sites; `new`: new names of renamed links.
    """
    moving = [joint.name for joint in robot.joints if joint.type != "fixed"]
    known = Names.of([link.name for link in robot.links], moving, ())
    elements: dict[str, list[str]] = {}
    for extension in model.extensions:
        rest = remaining(extension, lambda *named: not known.has(*named)) if extension.format == "mjcf" else None
        element = None if rest is None else element_of(rest)
        if element is not None and _refers_correctly(element, sites):
            for key in LINKS & element.attributes.keys():
                element.attributes[key] = new.get(element.attributes[key], element.attributes[key])
            elements.setdefault(extension.parent, []).append(f"    {written(element)}")
        else:
            message = "a kept element of another format, or of a joint or site that MJCF has otherwise"
            notes.gather("not-written", element_name(extension), message)
    return [line for parent, lines in elements.items() for line in (f"  <{parent}>", *lines, f"  </{parent}>")]


def _refers_correctly(element: Element, sites: set[str]) -> bool:
    """True if the bodies and sites that an element names are written as such.

    References to frames can be of bodies or sites, and are adapted. `xbody` is the frame of a body, and a site has the
    same kind of frame. `body` is the frame of a body's inertia, which a site does not have.
    """
    attributes = element.attributes
    for kind, name in (("objtype", "objname"), ("reftype", "refname")):
        if name in attributes and attributes[name] in sites:
            if attributes.get(kind) == "body":
                return False
            attributes[kind] = "site"
        elif name in attributes and attributes.get(kind) == "site":
            attributes[kind] = "xbody"
    return all(
        (attributes[key] in sites) == (key == "site") for key in ("site", "body", "body1", "body2") if key in attributes
    )


def _is_same(one: Geometry, other: Geometry) -> bool:
    """True if two geometries of a link have the same name, kind and place."""
    if one.kind != other.kind or one.name != other.name:
        return False
    return bool(np.allclose(_place(one), _place(other), rtol=0.0, atol=_ROUNDING))


def _place(each: Geometry) -> tuple[float, ...]:
    """The numbers that determine the surface of a shape."""
    (x, y, z), R = each.pose.xyz, each.pose.rotation
    axis = (R[2], R[5], R[8])
    if each.kind == "plane":
        return *axis, axis[0] * x + axis[1] * y + axis[2] * z
    return x, y, z, *({"sphere": (), "box": R}.get(each.kind, axis)), *each.size


def unreadable(path: Path) -> str:
    """The reason why MuJoCo does not read a mesh file, "" if it does."""
    if path.suffix.lower() not in _READ:
        return f"is none of the formats that MuJoCo reads: {', '.join(_READ)}"
    if path.suffix.lower() == ".stl":
        try:
            with path.open("rb") as file:
                header = file.read(_STL_HEADER)
            size = path.stat().st_size
        except OSError as error:
            return f"cannot be read: {error.strerror or error}"
        faces = int.from_bytes(header[-4:], "little")
        is_binary = len(header) == _STL_HEADER and size == _STL_HEADER + _STL_FACE * faces
        if not is_binary and header.lstrip().startswith(b"solid"):
            return "is an STL of text; MuJoCo reads binary ones"
        if not is_binary or not 0 < faces <= _MOST_FACES:
            return f"is an STL that is cut off, or has none or more than {_MOST_FACES} faces, which MuJoCo refuses"
    return ""


def placed(pose: Pose, always: bool = False) -> str:
    """The attributes of a pose in a body. A zero position is omitted unless `always`, and so is an identity
    rotation."""
    attributes = f" pos={values(pose.xyz)}" if always or any(pose.xyz) else ""
    return attributes if pose.rotation == IDENTITY else f"{attributes} quat={values(quaternion_of(pose.rotation))}"
