"""Models of an SDF file: worlds, models and nested models, with the frames of all that is in them."""

from __future__ import annotations

import re
from dataclasses import field

from robodyn.builders.elements import Element, parse_xml
from robodyn.builders.findings import Notes, at_line, listed
from robodyn.builders.sdf_frames import WORLD, Frames, Scope
from robodyn.builders.sdf_parts import Axis, JointPart, read_inertial, read_joint, read_link
from robodyn.builders.sdf_values import IGNORED_TAGS, NONE, Values, name_of, survey
from robodyn.builders.urdf import MAX_LINKS
from robodyn.description import Link
from robodyn.errors import LoadError
from robodyn.messages import near_misses, quoted
from robodyn.records import dataclass
from robodyn.spatial import IDENTITY

_OLDEST, _NEWEST = (1, 2), (1, 12)
_VERSION = re.compile(r"1\.([0-9]{1,3})")
_MODEL_ATTRIBUTES = frozenset({"name", "canonical_link", "placement_frame"})
_MODEL_CHILDREN = frozenset({"pose", "static"})
_PARTS = frozenset({"link", "joint", "frame", "model", "include", "drake:joint"})
_CONSTRAINTS = frozenset(
    {
        *("drake:ball_constraint", "drake:coupler_constraint", "drake:distance_constraint", "drake:weld_constraint"),
        *("drake:tendon_constraint", "drake:linear_bushing_rpy", "drake:linear_spring_damper"),
    }
)
"""What holds bodies in Drake beyond joints."""
_PLANAR = frozenset({"drake:parent", "drake:child", "drake:damping"})


@dataclass(slots=True)
class Body:
    """A link: its frame and whether its model stands still."""

    link: Link
    node: int
    static: bool


@dataclass(slots=True)
class Edge:
    """A joint between two frames, `parent` and `child`, once they are found. `from_parent`, `from_child`: its own frame
    on either side: one where it is a joint of SDF; two, which coordinate zero brings together, where it is Drake's.
    `leaders`: names of the joints that its axes mimic, with the numbers of their axes."""

    name: str
    part: JointPart
    scope: Scope
    node: int
    static: bool
    axes_in: list[int] = field(default_factory=list)
    parent: int = WORLD
    child: int = WORLD
    from_parent: int = WORLD
    from_child: int = WORLD
    leaders: list[tuple[str, int] | None] = field(default_factory=list)


@dataclass(slots=True)
class SdfFile:
    """What a file holds: bodies and joints in the file's order, what its `<frame>` elements are called and where they
    are, the frames of all that, gravity where a world names it."""

    name: str
    bodies: list[Body]
    edges: list[Edge]
    marks: list[tuple[Link, int]]
    frames: Frames
    gravity: tuple[float, float, float] | None


def read_file(data: bytes, model: str | None, notes: Notes) -> SdfFile:
    """Everything that is in a file, or one model of it.

    Raises:
        LoadError: no SDF that can be used; names the element, what is there and what is allowed.
    """
    opaque = IGNORED_TAGS - {"physics"} | _CONSTRAINTS
    tops: list[Element] = []
    root = parse_xml(data, "sdf", opaque, tops.append, texts=True, notes=notes)
    return _Reader(notes, _version(root, notes)).read(root, tops, model)


def _version(root: Element, notes: Notes) -> tuple[int, int]:
    survey(root, "sdf", NONE, frozenset({"version"}), notes)
    given = root.attributes.get("version", "").strip()
    found = _VERSION.fullmatch(given)
    version = (1, int(found[1]) if found else 0)
    if version < _OLDEST:
        wanted = f"wanted 1.{_OLDEST[1]} to 1.{_NEWEST[1]}"
        raise LoadError(f"sdf{at_line(root.line)}: its version is {quoted(given)}; {wanted}")
    if version > _NEWEST:
        message = f"version {quoted(given)} of SDF is not known here; read as version 1.{_NEWEST[1]}"
        notes.add("version-not-known", "sdf", message, root.line)
    return version


class _Reader:
    """One file, read."""

    def __init__(self, notes: Notes, version: tuple[int, int]) -> None:
        self._notes, self._version, self._values = notes, version, Values(notes)
        self._frames = Frames()
        self._bodies: list[Body] = []
        self._edges: list[Edge] = []
        self._marks: list[tuple[Link, int]] = []
        self._first: set[int] = set()
        self._joints: dict[tuple[int, str], Edge] = {}
        self._canonical: list[tuple[Scope, str, str, int | None]] = []

    def read(self, root: Element, tops: list[Element], wanted: str | None) -> SdfFile:
        """The models of the root or of its world; see `read_file`."""
        worlds = [each for each in tops if each.tag == "world"]
        outer = [each for each in tops if each.tag in ("model", "include")]
        for each in tops:
            if each.tag not in ("world", "model", "include"):
                survey.report_tag("sdf", each, "sdf", self._notes)
        if len(worlds) > 1 or (worlds and outer):
            raise LoadError("the file holds several worlds, or a world and models beside it; wanted one or the other")
        name, gravity, elements = "robot", None, outer
        if worlds:
            name, gravity, elements = self._world(worlds[0])
        models = self._chosen([each for each in elements if each.tag == "model"], wanted)
        if wanted is None:
            self._refuse_includes(elements)
        if not models:
            raise LoadError("the file holds no model; at least one is needed")
        world = Scope("", WORLD, 0)
        prefixed = len(models) > 1
        for element in models:
            self._model(element, world, prefixed, False)
        beside = [each for each in elements if each.tag in ("frame", "joint")]
        if wanted is None:
            self._parts(beside, world, False)
        for each in beside if wanted is not None else ():
            if each.tag == "joint":
                message = "a joint between models, of which one alone is loaded; left out"
                name = quoted(each.attributes.get("name", ""))
                self._notes.gather("sdf-constraint", f"joint {name}", message, each.line)
        self._finish(world)
        name = models[0].attributes["name"].strip() if len(models) == 1 else name
        return SdfFile(name, self._bodies, self._edges, self._marks, self._frames, gravity)

    def _world(self, element: Element) -> tuple[str, tuple[float, float, float], list[Element]]:
        """Name, gravity and parts of a world."""
        repeated = frozenset({"model", "include", "frame", "joint"})
        subject = "world"
        parts = survey(
            element, subject, frozenset({"gravity"}), frozenset({"name"}), self._notes, repeated=repeated
        )  # fmt: skip
        if self._version < (1, 6):  # where it was with what integrates
            physics = [each for each in element.children if each.tag == "physics"]
            parts = {each.tag: each for part in physics[:1] for each in part.children if each.tag == "gravity"} or parts
        gravity = self._values.vector(parts, "gravity", subject, (0.0, 0.0, -9.8))
        name = element.attributes.get("name", "").strip() or "world"
        return name, gravity, [each for each in element.children if each.tag in repeated]

    def _chosen(self, models: list[Element], wanted: str | None) -> list[Element]:
        names = [name_of(each, "model") for each in models]
        if wanted is None:
            return models
        found = [each for each, name in zip(models, names, strict=True) if name == wanted]
        if not found:
            near = listed([quoted(name) for name in near_misses(wanted, names, 5)])
            raise LoadError(f"model: there is no model {quoted(wanted)} in the file; there are {near or 'none'}")
        return found

    def _refuse_includes(self, elements: list[Element]) -> None:
        for each in elements:
            if each.tag == "include":
                uri = next((child.text for child in each.children if child.tag == "uri"), "")
                raise LoadError(
                    f"include{at_line(each.line)}: {quoted(uri)} is another file, and none but the given one is "
                    "opened; put its contents here, or name a model of this file (model=) to load that alone"
                )

    def _model(self, element: Element, outer: Scope, prefixed: bool, static: bool) -> None:
        """A model and, in it, its nested models; XML is at most `MAX_DEPTH` deep, and so is this."""
        name = name_of(element, "model")
        subject = f"model {quoted(name)}"
        own = survey(
            element, subject, _MODEL_CHILDREN, _MODEL_ATTRIBUTES, self._notes, repeated=_PARTS | _CONSTRAINTS
        )  # fmt: skip
        self._refuse_includes(element.children)
        frames, node = self._frames, self._frames.new(subject, element.line)
        self._add(outer, name, node, subject, element.line)
        prefix = frames.full_name(outer, f"{name}::") if prefixed else ""
        scope = outer.scopes[name] = Scope(prefix, node, outer.depth + 1)
        pose, relative_to = self._values.pose(own, subject)
        frames.put(node, pose, (outer, relative_to) if relative_to else outer.node)
        if placed := element.attributes.get("placement_frame", "").strip():
            frames.place(node, scope, placed)
        static = static or self._values.flag(own, "static", subject, False)
        for child in element.children:
            if child.tag == "model":
                self._model(child, scope, True, static)
            elif child.tag in _CONSTRAINTS:
                message = f"<{child.tag}> holds bodies beyond joints; the tree moves without it"
                self._notes.gather("sdf-constraint", subject, message, child.line)
        self._parts(element.children, scope, static)
        canonical = element.attributes.get("canonical_link", "").strip()
        if canonical:
            self._canonical.append((scope, canonical, f"canonical_link of {subject}", element.line))
        stands_for_it = canonical or _foremost(element)
        if not stands_for_it:
            raise LoadError(f"{subject}{at_line(element.line)} has no link; at least one is needed")
        frames.hold(node, (scope, stands_for_it))

    def _parts(self, elements: list[Element], scope: Scope, static: bool) -> None:
        """Links, frames and joints of a model, and frames and joints of a world."""
        for element in elements:
            if element.tag == "link":
                self._link(element, scope, static)
            elif element.tag == "frame":
                self._frame(element, scope)
            elif element.tag in ("joint", "drake:joint"):
                self._joint(element, scope, static)
            if max(len(self._bodies) + len(self._marks), len(self._edges)) > MAX_LINKS:
                raise LoadError(f"the robot has more than {MAX_LINKS} links or joints, the most that are read")

    def _add(self, scope: Scope, name: str, node: int, subject: str, line: int | None) -> None:
        """A name for a frame. Until version 1.6 a joint could be called like a link, which the name then means."""
        first = subject.startswith(("link", "model"))
        if name in scope.names:
            if self._version >= (1, 7) or (first and scope.names[name] in self._first):
                raise LoadError(f"{subject}{at_line(line)}: the name is that of something else; give another")
            if not first:
                return
        scope.names[name] = node
        if first:
            self._first.add(node)

    def _link(self, element: Element, scope: Scope, static: bool) -> None:
        name = name_of(element, "link")
        subject = f"link {quoted(name)}"
        parts = read_link(element, subject, self._values)
        node = self._frames.new(subject, element.line)
        self._add(scope, name, node, subject, element.line)
        pose, relative_to = self._values.pose(parts, subject)
        self._frames.put(node, pose, (scope, relative_to) if relative_to else scope.node)
        self._frames.hold(node, node)
        inertial = read_inertial(element, parts, subject, self._values, moves=not static)
        full = self._frames.full_name(scope, name)
        self._bodies.append(Body(Link(full, inertial, element.line), node, static))

    def _frame(self, element: Element, scope: Scope) -> None:
        name = name_of(element, "frame")
        subject = f"frame {quoted(name)}"
        parts = survey(element, subject, frozenset({"pose"}), frozenset({"name", "attached_to"}), self._notes)
        node = self._frames.new(subject, element.line)
        self._add(scope, name, node, subject, element.line)
        pose, relative_to = self._values.pose(parts, subject)
        attached = element.attributes.get("attached_to", "").strip()
        holder = (scope, attached) if attached else scope.node
        self._frames.put(node, pose, (scope, relative_to) if relative_to else holder)
        self._frames.hold(node, holder)
        self._marks.append((Link(self._frames.full_name(scope, name), line=element.line), node))

    def _joint(self, element: Element, scope: Scope, static: bool) -> None:
        subject = f"joint {quoted(element.attributes.get('name', ''))}"
        read = self._planar if element.tag == "drake:joint" else self._usual
        part = read(element, subject)
        node = self._frames.new(subject, element.line)
        self._add(scope, part.name, node, subject, element.line)
        if (scope.node, part.name) in self._joints:
            raise LoadError(f"{subject}{at_line(element.line)}: the name is that of another joint; give another")
        self._frames.put(node, part.pose, (scope, part.relative_to or part.child))
        self._frames.hold(node, (scope, part.child))
        edge = Edge(self._frames.full_name(scope, part.name), part, scope, node, static)
        self._joints[scope.node, part.name] = edge
        self._edges.append(edge)

    def _usual(self, element: Element, subject: str) -> JointPart:
        return read_joint(element, subject, self._values, self._version)

    def _planar(self, element: Element, subject: str) -> JointPart:
        """Drake's own joints, of which the planar one is read."""
        name, kind = name_of(element, "joint"), element.attributes.get("type", "").strip()
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
        return JointPart(name, "planar", parent, child, IDENTITY, "", axes, element.line)

    def _finish(self, world: Scope) -> None:
        """Find all that is named."""
        self._frames.resolve()
        for scope, name, subject, line in self._canonical:
            node = self._frames.find(scope, name, subject, line)
            if node == WORLD or self._frames.body(node) != node:
                raise LoadError(f"{subject}{at_line(line)}: {quoted(name)} is no link; wanted a link of the model")
        for edge in self._edges:
            part, scope, frames = edge.part, edge.scope, self._frames
            subject, line = f"joint {quoted(part.name)}", part.line
            edge.parent = WORLD if part.parent == "world" else frames.find(scope, part.parent, subject, line)
            edge.child = frames.find(scope, part.child, subject, line)
            drakes = part.type == "planar"
            edge.from_parent, edge.from_child = (edge.parent, edge.child) if drakes else (edge.node, edge.node)
            for axis in part.axes:
                where = axis.expressed_in
                edge.axes_in.append(frames.find(scope, where, subject, line) if where else edge.from_child)
                edge.leaders.append(self._leader(axis, scope, subject, line))

    def _leader(self, axis: Axis, scope: Scope, subject: str, line: int | None) -> tuple[str, int] | None:
        """The full name of the joint that an axis mimics, and the number of its axis."""
        if axis.leader is None:
            return None
        name, number = axis.leader
        path, _, last = name.rpartition("::")
        inner: Scope | None = scope
        for each in path.split("::") if path else ():
            inner = None if inner is None else inner.scopes.get(each)
        found = None if inner is None else self._joints.get((inner.node, last))
        found = self._joints.get((scope.node, name), found)
        if found is None:
            raise LoadError(f"{subject}{at_line(line)} mimics joint {quoted(name)}, which does not exist")
        if number and number >= len(found.part.axes):
            raise LoadError(f"{subject}{at_line(line)} mimics joint {quoted(name)}, which has no such axis")
        return found.name, number


def _foremost(model: Element) -> str:
    """What the frame of a model moves with where it does not say: its first link, or where it has none its first nested
    model, which may say."""
    for tag in ("link", "model"):
        for child in model.children:
            if child.tag == tag:
                return child.attributes.get("name", "").strip()
    return ""
