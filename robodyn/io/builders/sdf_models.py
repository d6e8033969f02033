"""Reads the models of an SDF file: worlds, models and nested models, with the frames of their members."""

from __future__ import annotations

import os
from dataclasses import field
from pathlib import Path
from typing import Any

from robodyn.core.description import Geometry, Link
from robodyn.core.findings import Notes, at_line, listed
from robodyn.core.spatial import IDENTITY
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import near_misses, quoted
from robodyn.internals.records import dataclass
from robodyn.io.builders.elements import Element, parse_xml
from robodyn.io.builders.sdf_files import ROOTS, ModelFolders, Origin
from robodyn.io.builders.sdf_frames import WORLD, Frames, Scope
from robodyn.io.builders.sdf_geometries import Shapes
from robodyn.io.builders.sdf_includes import CONSTRAINTS, OPAQUE, Includes, Member, foremost, version_in
from robodyn.io.builders.sdf_parts import Axis, JointPart, read_inertial, read_joint, read_link
from robodyn.io.builders.sdf_values import Values, survey
from robodyn.io.builders.urdf import MAX_LINKS

_MAX_MODELS_DEEP = 100
"""Deepest nesting of models, including those of included files."""

_PLANAR = frozenset({"drake:parent", "drake:child", "drake:damping"})


@dataclass(slots=True)
class Body:
    """A link. `node`: its frame; `static`: True if its model does not move."""

    link: Link
    node: int
    static: bool


@dataclass(slots=True)
class Edge:
    """A joint between the frames `parent` and `child`.

    `from_parent`, `from_child`: the joint's frame on the parent and on the child. They are the same frame for joints of
    SDF; for Drake's joints they are two frames that coincide at coordinate zero. `axes_in`: frame of each axis;
    `leaders`: full name of the joint that each axis mimics, and the number of that joint's axis; `subject`: name in
    messages; `line`: None for a joint of an included file; `static`: True for a joint of a static model; `reference`:
    reference frame of a gearbox's angles.
    """

    name: str
    part: JointPart
    scope: Scope
    node: int
    static: bool
    subject: str = ""
    line: int | None = None
    axes_in: list[int] = field(default_factory=list)
    parent: int = WORLD
    child: int = WORLD
    from_parent: int = WORLD
    from_child: int = WORLD
    leaders: list[tuple[str, int] | None] = field(default_factory=list)
    reference: int | None = None


@dataclass(slots=True)
class SdfFile:
    """The contents of a file: links and joints in the file's order, `<frame>` elements as massless links with their
    frames (`marks`), all frames, gravity if the file has a world, and geometries."""

    name: str
    bodies: list[Body]
    edges: list[Edge]
    marks: list[tuple[Link, int]]
    frames: Frames
    gravity: tuple[float, float, float] | None
    geometries: tuple[Geometry, ...] = ()


def read_file(data: bytes, path: str | None, model_dirs: Any, model: str | None, notes: Notes) -> SdfFile:
    """Reads all models of a file, or one of them.

    Args:
        data: contents of the file.
        path: path of the file; None for text.
        model_dirs: where to find included models; see `load_sdf`.
        model: name of the only model to read; None for all.
        notes: collects findings.

    Raises:
        LoadError: no usable SDF; the message names the element, its value and the allowed values.
        ArgumentError: `model_dirs` names no folders.
    """
    folders = ModelFolders(path, model_dirs)
    tops: list[Element] = []
    root = parse_xml(data, ROOTS, OPAQUE, tops.append, texts=True, notes=notes)
    paths = () if path is None else (Path(os.path.realpath(path)),)
    origin = Origin(version_in(root, "", notes), folders.home, paths=paths)
    return _Reader(notes, folders, origin).read(tops, model)


class _Reader:
    """Reads one file."""

    def __init__(self, notes: Notes, folders: ModelFolders, origin: Origin) -> None:
        self._notes, self._origin, self._values = notes, origin, Values(notes)
        self._frames = Frames()
        self._shapes = Shapes(self._values, self._frames)
        self._includes = Includes(folders, self._frames, self._values)
        self._bodies: list[Body] = []
        self._edges: list[Edge] = []
        self._marks: list[tuple[Link, int]] = []
        self._first: set[int] = set()
        self._name = "robot"
        self._names: dict[str, set[str]] = {"link": set(), "joint": set()}

    def read(self, tops: list[Element], wanted: str | None) -> SdfFile:
        """Reads the models of the root element or of its world; see `read_file`."""
        worlds = [each for each in tops if each.tag == "world"]
        outer = [each for each in tops if each.tag in ("model", "include")]
        for each in tops:
            if each.tag not in ("world", "model", "include"):
                survey.report_tag("sdf", each, "sdf", self._notes)
        if len(worlds) > 1 or (worlds and outer):
            raise LoadError("the file holds several worlds, or a world and models beside it; wanted one or the other")
        gravity, elements = None, outer
        if worlds:
            self._name, gravity, elements = self._world(worlds[0])
        world = Scope("", WORLD, 0)
        members, models = self._select(elements, world, wanted)
        if not models and not worlds:
            raise LoadError("the file holds no model; at least one is needed")
        if len(models) == 1:
            self._name = models[0].checked_name("model")
        elif not worlds:
            for model in models[1:]:
                message = "one more model without a world, where SDF allows one; all are loaded"
                self._notes.gather("sdf-several-models", model.subject("model", model.name), message, model.line)
        others = [each for each in members if each.element.tag in ("frame", "joint")]
        for part in others if wanted is None else ():
            self._names["link" if part.element.tag == "frame" else "joint"].add(part.name)
        for model in models:
            self._model(model, len(models) > 1, static=False)
        if wanted is None:
            self._parts(others, False)
        for part in others if wanted is not None else ():
            if part.element.tag == "joint":
                message = "a joint between models, of which one alone is loaded; left out"
                self._notes.gather("sdf-constraint", part.subject("joint", part.name), message, part.element.line)
        self._finish()
        shapes = tuple(self._shapes.geometries())
        return SdfFile(self._name, self._bodies, self._edges, self._marks, self._frames, gravity, shapes)

    def _world(self, element: Element) -> tuple[str, tuple[float, float, float], list[Element]]:
        """Name, gravity and members of a world."""
        repeated = frozenset({"model", "include", "frame", "joint"})
        subject = "world"
        parts = survey(
            element, subject, frozenset({"gravity"}), frozenset({"name"}), self._notes, repeated=repeated
        )  # fmt: skip
        if self._origin.version < (1, 6):  # older versions have gravity in <physics>
            physics = [each for each in element.children if each.tag == "physics"]
            parts = {each.tag: each for part in physics[:1] for each in part.children if each.tag == "gravity"} or parts
        gravity = self._values.vector(parts, "gravity", subject, (0.0, 0.0, -9.8))
        name = element.attributes.get("name", "").strip() or "world"
        return name, gravity, [each for each in element.children if each.tag in repeated]

    def _select(self, elements: list[Element], world: Scope, wanted: str | None) -> tuple[list[Member], list[Member]]:
        """All members of the world or root, and the models among them: all, or only the `wanted` one.

        If one model is wanted and its name is in this file, no other included files are opened.
        """
        if wanted is not None and wanted in (names := [_name_here(each) for each in elements]):
            position = names.index(wanted)
            elements = [each for i, each in enumerate(elements) if i == position or each.tag in ("frame", "joint")]
        members = self._includes.members(elements, world, self._origin)
        models = [each for each in members if each.element.tag == "model"]
        for each in models:
            each.checked_name("model")
        if wanted is None:
            return members, models
        matching = [each for each in models if each.name == wanted]
        if not matching:
            near = listed([quoted(name) for name in near_misses(wanted, [each.name for each in models], 5)])
            raise LoadError(f"model: there is no model {quoted(wanted)} in the file; there are {near or 'none'}")
        return members, matching

    def _model(self, member: Member, prefixed: bool, static: bool) -> None:
        """Reads a model and its nested models. `static`: True if the enclosing model is static."""
        element, outer = member.element, member.scope
        name = member.checked_name("model")
        subject = member.subject("model", name)
        frames, node = self._frames, self._frames.new(subject, element.line)
        self._add(member, name, node, subject)
        if outer.depth >= _MAX_MODELS_DEEP:
            raise LoadError(f"{subject}{at_line(element.line)}: models are nested more than {_MAX_MODELS_DEEP} deep")
        prefix = frames.full_name(outer, f"{name}::") if prefixed else ""
        scope = outer.scopes[name] = Scope(prefix, node, outer.depth + 1)
        part = self._includes.model_part(member, subject, scope)
        self._includes.put(node, part, outer, scope)
        members = self._includes.members(element.children, scope, member.origin)
        if static and not part.static:
            message = "it moves, though the model around it is static"
            self._notes.gather("sdf-static-around", subject, message, element.line)
        for each in members:
            if each.element.tag == "model":
                self._model(each, True, part.static)
            elif each.element.tag in CONSTRAINTS:
                message = f"<{each.element.tag}> holds bodies beyond joints; the tree moves without it"
                self._notes.gather("sdf-constraint", subject, message, each.element.line)
        self._parts(members, part.static)
        holder = part.canonical or foremost(members)
        if not holder and not part.static:
            raise LoadError(f"{subject}{at_line(element.line)} has no link; at least one is needed")
        frames.hold(node, (scope, holder) if holder else WORLD)

    def _parts(self, members: list[Member], static: bool) -> None:
        """Reads links, frames and joints of a model, or frames and joints of a world."""
        for member in members:
            tag = member.element.tag
            if tag == "link":
                self._link(member, static)
            elif tag == "frame":
                self._frame(member)
            elif tag in ("joint", "drake:joint"):
                self._joint(member, static)
            if max(len(self._bodies) + len(self._marks), len(self._edges)) > MAX_LINKS:
                raise LoadError(f"the robot has more than {MAX_LINKS} links or joints, the most that are read")

    def _add(self, member: Member, name: str, node: int, subject: str) -> None:
        """Adds a frame's name to its scope. Until version 1.6 a joint and a link may share a name, which then means the
        link."""
        scope, first = member.scope, subject.startswith(("link", "model"))
        if name in scope.names:
            if member.origin.version >= (1, 7) or (first and scope.names[name] in self._first):
                line = at_line(member.element.line)
                raise LoadError(f"{subject}{line}: the name is that of something else; give another")
            if not first:
                return
        scope.names[name] = node
        if first:
            self._first.add(node)

    def _full_name(self, scope: Scope, name: str, kind: str) -> str:
        """A name with the names of its enclosing models as prefix.

        If there is only one model, its name is omitted unless the world has an element with the same name.
        """
        full, taken = self._frames.full_name(scope, name), self._names[kind]
        if scope.depth:
            while full in taken:
                full = f"{self._name}::{full}"
            taken.add(full)
        return full

    def _link(self, member: Member, static: bool) -> None:
        element, scope, name = member.element, member.scope, member.checked_name("link")
        subject = member.subject("link", name)
        parts = read_link(element, subject, self._values)
        node = self._frames.new(subject, element.line)
        self._add(member, name, node, subject)
        pose, relative_to = self._values.pose(parts, subject)
        self._frames.put(node, pose, (scope, relative_to) if relative_to else scope.node)
        self._frames.hold(node, node)
        inertial = read_inertial(element, parts, subject, self._values, moves=not static)
        full = self._full_name(scope, name, "link")
        self._shapes.take(element, full, node, scope, member.origin.folder)
        self._bodies.append(Body(Link(full, inertial, member.line), node, static))

    def _frame(self, member: Member) -> None:
        element, scope, name = member.element, member.scope, member.checked_name("frame")
        subject = member.subject("frame", name)
        parts = survey(element, subject, frozenset({"pose"}), frozenset({"name", "attached_to"}), self._notes)
        node = self._frames.new(subject, element.line)
        self._add(member, name, node, subject)
        pose, relative_to = self._values.pose(parts, subject)
        attached = element.attributes.get("attached_to", "").strip()
        holder = (scope, attached) if attached else scope.node
        self._frames.put(node, pose, (scope, relative_to) if relative_to else holder)
        self._frames.hold(node, holder)
        self._marks.append((Link(self._full_name(scope, name, "link"), line=member.line), node))

    def _joint(self, member: Member, static: bool) -> None:
        element, scope, name = member.element, member.scope, member.checked_name("joint")
        subject = member.subject("joint", name)
        part = self._planar(member, subject) if element.tag == "drake:joint" else self._usual(member, subject)
        node = self._frames.new(subject, element.line)
        self._add(member, name, node, subject)
        if name in scope.joints:
            raise LoadError(f"{subject}{at_line(element.line)}: the name is that of another joint; give another")
        self._frames.put(node, part.pose, (scope, part.relative_to or part.child))
        self._frames.hold(node, (scope, part.child))
        scope.joints[name] = len(self._edges)
        full = self._full_name(scope, name, "joint")
        self._edges.append(Edge(full, part, scope, node, static, subject, member.line))

    def _usual(self, member: Member, subject: str) -> JointPart:
        return read_joint(member.element, subject, self._values, member.origin.version)

    def _planar(self, member: Member, subject: str) -> JointPart:
        """Reads a joint type of Drake. Only the planar one is supported."""
        element, kind = member.element, member.element.attributes.get("type", "").strip()
        if kind != "planar":
            raise LoadError(
                f"{subject}{at_line(element.line)}: <drake:joint> has type {quoted(kind)}; planar alone is read"
            )
        parts = survey(element, subject, _PLANAR, frozenset({"name", "type"}), self._notes)
        parent, child = (
            self._values.reference(parts, tag, subject, element.line) for tag in ("drake:parent", "drake:child")
        )
        damping = self._values.vector(parts, "drake:damping", subject, (0.0, 0.0, 0.0))
        axes = [Axis("planar", damping=damping[0], dampings=damping)]
        return JointPart(member.name, "planar", parent, child, IDENTITY, "", axes, element.line)

    def _finish(self) -> None:
        """Looks up all named frames and joints."""
        self._frames.resolve()
        for scope, name, subject, line in self._includes.canonical:
            node = self._frames.find(scope, name, subject, line)
            if node == WORLD or self._frames.body(node) != node:
                raise LoadError(f"{subject}{at_line(line)}: {quoted(name)} is no link; wanted a link of the model")
        for edge in self._edges:
            part, scope, frames = edge.part, edge.scope, self._frames
            subject, line = edge.subject, part.line
            edge.parent = frames.carrier(scope, part.parent, subject, line, edge.node)
            edge.child = frames.find(scope, part.child, subject, line, edge.node)
            if part.reference:
                edge.reference = frames.carrier(scope, part.reference, subject, line, edge.node)
            is_planar = part.type == "planar"
            edge.from_parent, edge.from_child = (edge.parent, edge.child) if is_planar else (edge.node, edge.node)
            for axis in part.axes:
                frame_name = axis.expressed_in
                edge.axes_in.append(
                    frames.find(scope, frame_name, subject, line, edge.node) if frame_name else edge.from_child
                )
                edge.leaders.append(self._leader(axis, scope, subject, line))

    def _leader(self, axis: Axis, scope: Scope, subject: str, line: int | None) -> tuple[str, int] | None:
        """The full name of the joint that an axis mimics, and the number of that joint's axis."""
        if axis.leader is None:
            return None
        name, number = axis.leader
        path, _, last = name.rpartition("::")
        inner: Scope | None = scope
        for each in path.split("::") if path else ():
            inner = None if inner is None else inner.scopes.get(each)
        index = None if inner is None else inner.joints.get(last)
        index = scope.joints.get(name, index)
        if index is None:
            raise LoadError(f"{subject}{at_line(line)} mimics joint {quoted(name)}, which does not exist")
        leader = self._edges[index]
        if number and number >= len(leader.part.axes):
            raise LoadError(f"{subject}{at_line(line)} mimics joint {quoted(name)}, which has no such axis")
        return leader.name, number


def _name_here(element: Element) -> str:
    """The name of a model in this file, or the `<name>` of an include; "" if only another file has the name."""
    if element.tag == "include":
        return next((each.text for each in element.children if each.tag == "name"), "")
    return element.attributes.get("name", "").strip() if element.tag == "model" else ""
