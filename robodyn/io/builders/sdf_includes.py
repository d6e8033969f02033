"""Expands includes: the members of a model or a world of SDF, with included models in place of `<include>`."""

from __future__ import annotations

from dataclasses import field

from robodyn.core.findings import Notes, at_line
from robodyn.core.spatial import Transform
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.internals.records import dataclass
from robodyn.io.builders.elements import Element
from robodyn.io.builders.formats import reads_root
from robodyn.io.builders.sdf_files import (
    MAX_CHAIN,
    NEWEST,
    OLDEST,
    ModelFolders,
    Origin,
    chain,
    require_model,
    version_of,
)
from robodyn.io.builders.sdf_frames import WORLD, Frames, Scope
from robodyn.io.builders.sdf_params import PARAMETERS, Changes
from robodyn.io.builders.sdf_values import IGNORED_TAGS, NONE, Values, allowed_name, name_of, survey

CONSTRAINTS = frozenset(
    {
        *("drake:ball_constraint", "drake:coupler_constraint", "drake:distance_constraint", "drake:weld_constraint"),
        *("drake:tendon_constraint", "drake:linear_bushing_rpy", "drake:linear_spring_damper"),
    }
)
"""Drake's constraints and force elements other than joints."""

OPAQUE = IGNORED_TAGS - {"physics", "material"} | CONSTRAINTS
"""Elements whose contents are skipped. `<physics>` is read for gravity in old versions, `<material>` for colours."""

_MODEL_ATTRIBUTES = frozenset({"name", "canonical_link", "placement_frame"})
_MODEL_CHILDREN = frozenset({"pose", "static"})
_PARTS = frozenset({"link", "joint", "frame", "model", "include", "drake:joint"})
_INCLUDE = frozenset({"uri", "name", "pose", "static", "placement_frame", PARAMETERS})


@dataclass(slots=True)
class Given:
    """Properties in an `<include>` that override those of the included model; None or "" for no override.

    `pose`: the pose, and its reference frame, "" for none.
    """

    name: str = ""
    pose: tuple[Transform, str] | None = None
    static: bool | None = None
    placement: str = ""


@dataclass(slots=True)
class Member:
    """An element of a model or a world, the scope of its names, its file, and the overrides of its include."""

    element: Element
    scope: Scope
    origin: Origin
    given: Given = field(default_factory=Given)

    @property
    def name(self) -> str:
        """The name as written, "" for none."""
        return self.given.name or self.element.attributes.get("name", "").strip()

    @property
    def line(self) -> int | None:
        """The line in the top-level file; None for an element of an included file."""
        return None if self.origin.label else self.element.line

    def checked_name(self, kind: str) -> str:
        """The name. It must exist and be valid."""
        return self.given.name or name_of(self.element, f"{kind}{self.origin.label}")

    def subject(self, kind: str, name: str) -> str:
        """The element's name in messages."""
        return f"{kind} {quoted(name)}{self.origin.label}"


@dataclass(slots=True)
class ModelPart:
    """Properties of a `<model>`.

    `pose`: the pose, and its reference frame, "" for none; `static`: True if it does not move; `placement`: the frame
    that `pose` refers to, "" for its own; `canonical`: the link that its frame is attached to, "" for the default.
    """

    pose: tuple[Transform, str]
    static: bool
    placement: str
    canonical: str


class Includes:
    """Reads the includes of one file. `canonical`: names of canonical links, which are looked up at the end."""

    def __init__(self, folders: ModelFolders, frames: Frames, values: Values) -> None:
        self._folders, self._frames, self._values = folders, frames, values
        self._notes: Notes = values.notes
        self._changes = Changes(values.notes)
        self.canonical: list[tuple[Scope, str, str, int | None]] = []

    def members(self, elements: list[Element], scope: Scope, origin: Origin) -> list[Member]:
        """Elements with includes expanded: to a model, or to the model's members if it is merged."""
        members: list[Member] = []
        for each in elements:
            if each.tag == "include":
                members += self._included(each, scope, origin)
            else:
                members.append(Member(each, scope, origin))
        return members

    def model_part(self, member: Member, subject: str, scope: Scope) -> ModelPart:
        """The properties of a model, with the overrides of its include. `scope`: the scope of its members."""
        element, overrides = member.element, member.given
        own = survey(
            element, subject, _MODEL_CHILDREN, _MODEL_ATTRIBUTES, self._notes, repeated=_PARTS | CONSTRAINTS
        )  # fmt: skip
        pose = self._values.pose(own, subject) if overrides.pose is None else overrides.pose
        static = self._values.flag(own, "static", subject, False) if overrides.static is None else overrides.static
        placement = overrides.placement or element.attributes.get("placement_frame", "").strip()
        canonical = element.attributes.get("canonical_link", "").strip()
        if canonical:
            self.canonical.append((scope, canonical, f"canonical_link of {subject}", element.line))
        return ModelPart(pose, static, placement, canonical)

    def put(self, node: int, part: ModelPart, outer: Scope, scope: Scope) -> None:
        """Set the pose of a model's frame."""
        pose, relative_to = part.pose
        self._frames.put(node, pose, (outer, relative_to) if relative_to else outer.node)
        if part.placement:
            self._frames.place(node, scope, part.placement)

    def _included(self, element: Element, scope: Scope, origin: Origin) -> list[Member]:
        subject = f"include{origin.label}"
        parts = survey(element, subject, _INCLUDE, frozenset({"merge"}), self._notes)
        uri = self._values.reference(parts, "uri", subject, element.line)
        subject = f"include {quoted(uri)}{origin.label}"
        merge = self._values.flag_of(element, "merge", subject, False)
        given = self._given(parts, subject, element)
        try:
            model, inner = self._opened(uri, origin)
        except LoadError as error:
            raise LoadError(f"{chain((*origin.uris, uri))}{at_line(element.line)}: {error}") from None
        if model is None:
            message = "the file holds lights or actors alone, which have no part in dynamics"
            self._notes.gather("sdf-include", subject, message, element.line, "info")
            return []
        if PARAMETERS in parts:
            model = self._changes.apply(model, parts[PARAMETERS], subject, inner.version)
        member = Member(model, scope, inner, given)
        return self._merged(member) if merge else [member]

    def _given(self, parts: dict[str, Element], subject: str, element: Element) -> Given:
        values = self._values
        name = values.text(parts, "name", subject) or ""
        if name:
            allowed_name(name, f"{subject} name{at_line(parts['name'].line)}")
        pose = values.pose(parts, subject) if "pose" in parts else None
        static = values.flag(parts, "static", subject, False) if "static" in parts else None
        placement = values.text(parts, "placement_frame", subject) or ""
        if placement and pose is None:
            raise LoadError(f"{subject}{at_line(element.line)}: a <placement_frame> wants a <pose> beside it")
        return Given(name, pose, static, placement)

    def _opened(self, uri: str, origin: Origin) -> tuple[Element | None, Origin]:
        """The model at a URI, None if the file contains none, and its origin."""
        path = self._folders.find(uri, origin)
        if path in origin.paths:
            raise LoadError("it includes itself")
        if len(origin.uris) >= MAX_CHAIN:
            raise LoadError(f"more than {MAX_CHAIN} files include one another in a row, the most that are followed")
        root, tops = self._folders.read(path, OPAQUE, self._values.notes)
        label = self._folders.label(path)
        version = version_in(root, label, self._notes)
        for each in tops:
            if each.tag not in ("model", "include", "world", "light", "actor"):
                survey.report_tag("sdf", each, f"sdf{label}", self._notes)
        model = require_model(tops, root)
        return model, Origin(version, path.parent, label, (*origin.paths, path), (*origin.uris, uri))

    def _merged(self, member: Member) -> list[Member]:
        """The members of a merged model. They become members of the enclosing scope, but their poses stay relative to
        the model's own frame."""
        outer, element, frames = member.scope, member.element, self._frames
        name = member.checked_name("model")
        subject = member.subject("model", name)
        node = frames.new(subject, element.line)
        scope = outer.merged(node)
        part = self.model_part(member, subject, scope)
        if part.static:
            message = "it is static, and merged into a model, which says whether its links move"
            self._notes.gather("sdf-include", subject, message, element.line)
        if outer.names.setdefault(f"_merged__{name}__model__", node) != node:
            raise LoadError(f"{subject}{at_line(element.line)}: another model of this name is merged, too")
        self.put(node, part, outer, scope)
        members = self.members(element.children, scope, member.origin)
        if outer.node == WORLD and any(each.element.tag == "link" for each in members):
            raise LoadError(f"{subject}{at_line(element.line)} has links, which cannot be merged into a world")
        holder = part.canonical or foremost(members)
        frames.hold(node, (scope, holder) if holder else outer.node)
        return members


def foremost(members: list[Member]) -> str:
    """The default for the canonical link of a model: its first link, else its first nested model, else ""."""
    for tag in ("link", "model"):
        for each in members:
            if each.element.tag == tag:
                return each.name
    return ""


def version_in(root: Element, label: str, notes: Notes) -> tuple[int, int]:
    """The version of a file. The root element may be that of old SDF.

    Raises:
        LoadError: the version is unsupported, or the file is no SDF.
    """
    survey(root, f"sdf{label}", NONE, frozenset({"version"}), notes)
    if root.tag != "sdf":
        if "version" not in root.attributes:
            text = f"not a robot file: the root element is {quoted(root.tag)}{reads_root(root.tag)}"
            raise LoadError(f"{text}{at_line(root.line)}")
        message = f"the root element is <{root.tag}>, as SDF of version 1.2 has it; read as <sdf>"
        notes.gather("sdf-old-root", f"sdf{label}", message, root.line)
    text_version = root.attributes.get("version", "").strip()
    version = version_of(text_version) or (1, 0)
    if version < OLDEST:
        wanted = f"wanted 1.{OLDEST[1]} to 1.{NEWEST[1]}"
        raise LoadError(f"sdf{label}{at_line(root.line)}: its version is {quoted(text_version)}; {wanted}")
    if version > NEWEST:
        message = f"version {quoted(text_version)} of SDF is not known here; read as version 1.{NEWEST[1]}"
        notes.add("version-not-known", f"sdf{label}", message, root.line)
    return version
