"""Converts the graph of links and joints of an SDF file to the tree of a description.

Joints of SDF can connect any two links, but each link of a tree has one parent. `spanning_tree` takes joints in the
file's order as long as they connect separate parts. All other joints close loops: they are cut, and become constraints
(`loops`). A joint is reversed if its child is nearer to the root than its parent.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

from robodyn.core.description import ONE_COORDINATE_TYPES, Joint, Link, Mimic, Pose, RobotDescription, Vector3
from robodyn.core.findings import Notes
from robodyn.core.spatial import IDENTITY, ZERO3, Transform, rotate, rotate_back, transpose
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.io.builders.checks import PARALLEL
from robodyn.io.builders.loops import Loop, lost
from robodyn.io.builders.sdf_frames import WORLD, Frames
from robodyn.io.builders.sdf_gears import TURNING, Gears
from robodyn.io.builders.sdf_models import Body, Edge, SdfFile
from robodyn.io.builders.values import UNIT_TOLERANCE

_ROOT = "world"


def spanning_tree(file: SdfFile) -> tuple[list[Edge], list[Edge]]:
    """The joints of a spanning tree of the links and the world, and the joints that close loops, in the file's order.

    Static links are connected to the world first. A gearbox is in neither list, because it only couples other joints.
    """
    leader = list(range(len(file.bodies) + 1))
    number = {body.node: i for i, body in enumerate(file.bodies, start=1)}
    number[WORLD] = 0

    def top(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    for body in file.bodies:
        if body.static:
            leader[top(number[body.node])] = top(0)
    kept, cuts = [], []
    standing = _standing(file)
    for edge in file.edges:
        if edge.node in standing or edge.part.type == "gearbox":
            continue
        one, other = (top(number[file.frames.body(end)]) for end in (edge.parent, edge.child))
        if one == other:
            cuts.append(edge)
        else:
            leader[one] = other
            kept.append(edge)
    return kept, cuts


def _standing(file: SdfFile) -> set[int]:
    """Joints of static models between links that do not move. Other joints of static models carry moving models."""
    fixed = {WORLD, *(body.node for body in file.bodies if body.static)}
    ends = {edge.node: {file.frames.body(end) for end in (edge.parent, edge.child)} for edge in file.edges}
    return {edge.node for edge in file.edges if edge.static and ends[edge.node] <= fixed}


def describe(file: SdfFile, base: str | None, notes: Notes) -> tuple[RobotDescription, list[Loop], Gears]:
    """Converts a file to an unchecked description, in which all robots are below the root link "world".

    Args:
        file: the file.
        base: None: links without a joint float unless their model is static; "fixed": they are welded to the world;
            "floating": they float, and so do links of static models.
        notes: collects findings.

    Returns:
        The description, the joints that close loops, and the gearboxes.
    """
    if base == "floating":
        bodies = [replace(body, static=False) for body in file.bodies]
        file = replace(file, bodies=bodies, edges=[replace(edge, static=False) for edge in file.edges])
    kept, cuts = spanning_tree(file)
    standing = _standing(file)
    for edge in file.edges:
        if edge.node in standing:
            message = "a joint of a static model does not move; left out"
            notes.gather("sdf-static-joint", f"joint {quoted(edge.name)}", message, edge.line)
    tree = _Tree(file, kept, notes)
    boxes = [edge for edge in file.edges if edge.part.type == "gearbox" and edge.node not in standing]
    return tree.description(base), [tree.loop(edge) for edge in cuts], tree.gears(boxes)


class _Tree:
    """Builds the links and joints of a description from the roots outward."""

    def __init__(self, file: SdfFile, edges: list[Edge], notes: Notes) -> None:
        self._file, self._edges, self._notes = file, edges, notes
        self._frames: Frames = file.frames
        self._body = {body.node: body for body in file.bodies}
        self._links = {_ROOT} | {body.link.name for body in file.bodies} | {mark.name for mark, _ in file.marks}
        self._joints = {edge.name for edge in file.edges}
        self._axis_names: dict[tuple[str, int], str] = {}
        for edge in edges:
            for k in range(max(1, len(edge.part.axes))):  # other joints may mimic a fixed joint
                name = edge.name if len(edge.part.axes) < 2 else self._unused(f"{edge.name}/{k + 1}", self._joints)
                self._axis_names[edge.name, k] = name

    def description(self, base: str | None) -> RobotDescription:
        """The description. Joints to the world come first, then the file's joints in their order. Links of the file
        come first, then links between joints of several axes, then frames as massless links."""
        at: dict[int, list[Edge]] = defaultdict(list)
        child_of_some = set()
        for edge in self._edges:
            for end in (edge.parent, edge.child):
                at[self._frames.body(end)].append(edge)
            child_of_some.add(self._frames.body(edge.child))
        base_joints: list[Joint] = []
        near: dict[int, int] = {}
        reached = {WORLD}
        static_nodes = [body.node for body in self._file.bodies if body.static]
        base_joints += [self._weld(self._body[node]) for node in static_nodes]
        self._walk([WORLD, *static_nodes], at, reached, near)
        # Roots are links that are no joint's child. A tree of n links has n - 1 joints, so it has at least one root.
        for body in self._file.bodies:
            if body.node not in reached and body.node not in child_of_some:
                base_joints.append(self._weld(body) if base == "fixed" else self._float(body))
                self._walk([body.node], at, reached, near)
        self._require_floating(base, near)
        intermediate: list[Link] = []
        joints = list(base_joints)
        for edge in self._edges:
            new_joints, links = self._joints_of_edge(edge, near[edge.node])
            joints += new_joints
            intermediate += links
        bodies = [body.link for body in self._file.bodies]
        joints += [self._mark(mark, node) for mark, node in self._file.marks]
        marks = [mark for mark, _ in self._file.marks]
        return RobotDescription(self._file.name, (Link(_ROOT), *bodies, *intermediate, *marks), tuple(joints))

    def _walk(self, roots: list[int], at: dict[int, list[Edge]], reached: set[int], near: dict[int, int]) -> None:
        """Traverses the tree from some bodies. `near`: for each joint the body that it is reached from."""
        reached.update(roots)
        queue = list(roots)
        for body in queue:  # grows during the loop
            for edge in at[body]:
                ends = [self._frames.body(end) for end in (edge.parent, edge.child)]
                far = ends[1] if ends[0] == body else ends[0]
                if edge.node in near:
                    continue
                near[edge.node] = body
                reached.add(far)
                queue.append(far)

    def _require_floating(self, base: str | None, near: dict[int, int]) -> None:
        for edge in self._edges if base == "floating" else ():
            if near[edge.node] == WORLD:
                raise LoadError(
                    f'base="floating": joint {quoted(edge.name)} holds the robot to the world; base=None loads it as '
                    "the file says"
                )

    def _weld(self, body: Body) -> Joint:
        name = self._unused(body.link.name, self._joints)
        return Joint(name, "fixed", _ROOT, body.link.name, _pose(self._frames.in_world(body.node)), line=body.link.line)

    def _float(self, body: Body) -> Joint:
        if self._frames.in_world(body.node) is not IDENTITY:
            message = "it floats: where the file puts it is a configuration, and no part of the model"
            self._notes.gather("sdf-initial-pose", f"link {quoted(body.link.name)}", message, body.link.line)
        name = self._unused(body.link.name, self._joints)
        return Joint(name, "floating", _ROOT, body.link.name, line=body.link.line)

    def _mark(self, mark: Link, node: int) -> Joint:
        body = self._frames.body(node)
        name = self._unused(f"{mark.name}/fixed", self._joints)
        return Joint(
            name, "fixed", self._name(body), mark.name, _pose(self._frames.relative(node, body)), line=mark.line
        )

    def loop(self, edge: Edge) -> Loop:
        """The loop joint of a joint that is cut."""
        frames, part = self._frames, edge.part
        ends = [frames.body(end) for end in (edge.parent, edge.child)]
        sides = (edge.from_parent, edge.from_child)
        to_at, at = (frames.relative(side, end) for side, end in zip(sides, ends, strict=True))
        single = part.axes[0] if len(part.axes) == 1 else None
        axis = (0.0, 0.0, 1.0) if single is None else self._axis(edge, 0)
        kind = part.type if single is None else single.type
        lost_properties = () if single is None else lost(single)
        names = self._name(ends[0]), self._name(ends[1])
        return Loop(edge.name, f"joint {quoted(edge.name)}", kind, *names, to_at, at, axis, edge.line, lost_properties)

    def gears(self, gearboxes: list[Edge]) -> Gears:
        """The gearboxes, and the joints that they may couple."""
        single = [edge for edge in self._edges if len(edge.part.axes) == 1 and edge.part.axes[0].type in TURNING]
        turning = tuple((edge, self._axis_names[edge.name, 0]) for edge in single)
        ends = {end for edge in (*gearboxes, *single) for end in (edge.parent, edge.child, edge.reference)}
        link = {end: self._name(self._frames.body(end)) for end in ends if end is not None}
        return Gears(self._file, tuple(gearboxes), turning, link)

    def _axis(self, edge: Edge, k: int) -> Vector3:
        """The direction of an axis in the joint's frame on its child."""
        x, y, z = rotate(self._frames.relative(edge.from_child, edge.axes_in[k]).E, edge.part.axes[k].xyz)
        return x, y, z

    def _name(self, body: int) -> str:
        return _ROOT if body == WORLD else self._body[body].link.name

    def _joints_of_edge(self, edge: Edge, start: int) -> tuple[list[Joint], list[Link]]:
        """The joints and intermediate links for one joint of the file, from the body that it is reached from.

        In a description a joint's frame is the child link's frame at coordinate zero. In SDF it can be anywhere, so a
        fixed joint may follow at the end.
        """
        frames, part = self._frames, edge.part
        ends = [frames.body(end) for end in (edge.parent, edge.child)]
        reversed_joint = ends[0] != start
        near, far = reversed(ends) if reversed_joint else ends
        sides = (edge.from_child, edge.from_parent) if reversed_joint else (edge.from_parent, edge.from_child)
        from_near, from_far = (frames.relative(side, end) for side, end in zip(sides, (near, far), strict=True))
        parent, child = self._name(near), self._name(far)
        if not part.axes:
            return [Joint(edge.name, "fixed", parent, child, _pose(frames.relative(far, near)), line=edge.line)], []
        axes = [self._axis(edge, k) for k in range(len(part.axes))]
        if len(axes) == 2:
            self._report_angle(edge, *axes)
        to_far = from_far.inverse() if from_far is not IDENTITY else IDENTITY
        if len(axes) == 1 and part.axes[0].type in ONE_COORDINATE_TYPES:
            # With one axis, the joint's frame can be rotated to the far link's axes, and shifted along a sliding axis.
            axes = [rotate_back(from_far.E, axes[0])]
            aligned = Transform(transpose(from_far.E), ZERO3) if from_far.E != IDENTITY.E else IDENTITY
            from_near = aligned.after(from_near) if aligned is not IDENTITY else from_near
            to_far = Transform(IDENTITY.E, tuple(-x + 0.0 for x in from_far.r))
            if part.axes[0].type == "prismatic":
                from_near, to_far = frames.relative(far, near), IDENTITY
        return self._chain(edge, reversed_joint, axes, from_near, to_far, (parent, child))

    def _chain(
        self,
        edge: Edge,
        turned: bool,
        axes: list[Vector3],
        from_near: Transform,
        to_far: Transform,
        names: tuple[str, str],
    ) -> tuple[list[Joint], list[Link]]:
        """The joints of one edge in series."""
        order = list(enumerate(edge.part.axes))
        if turned:
            self._report_turned(edge)
            order.reverse()
        coincides = to_far.E == IDENTITY.E and not any(to_far.r)
        joints: list[Joint] = []
        links: list[Link] = []
        parent, origin = names[0], _pose(from_near)
        for k, axis in order:
            last = k == order[-1][0] and coincides
            child = names[1] if last else self._unused(f"{edge.name}/{len(links) + 1}", self._links)
            if not last:
                links.append(Link(child, line=edge.line))
            x, y, z = axes[k]
            joints.append(
                Joint(
                    self._axis_names[edge.name, k],
                    axis.type,
                    parent,
                    child,
                    origin,
                    (-x + 0.0, -y + 0.0, -z + 0.0) if turned else (x, y, z),
                    pitch=axis.pitch,
                    limits=axis.limits,
                    damping=axis.damping,
                    friction=axis.friction,
                    armature=axis.armature,
                    mimic=self._mimic(edge, k),
                    line=edge.line,
                )
            )
            parent, origin = child, Pose()
        if not coincides:
            name = self._unused(f"{edge.name}/fixed", self._joints)
            joints.append(Joint(name, "fixed", parent, names[1], _pose(to_far), line=edge.line))
        return joints, links

    def _report_angle(self, edge: Edge, one: Vector3, other: Vector3) -> None:
        """Reports axes of a universal joint that are not perpendicular, and parallel axes of any joint."""
        cosine = math.fsum(a * b for a, b in zip(one, other, strict=True))
        parallel = 1.0 - abs(cosine) < PARALLEL**2 / 2
        if not parallel and (edge.part.type != "universal" or abs(cosine) <= UNIT_TOLERANCE):
            return
        angle = math.degrees(math.acos(min(1.0, max(-1.0, cosine))))
        consequence = "both turn alike, and forward dynamics will be singular" if parallel else "used as given"
        message = f"its axes meet at {angle:.4g} degrees, not 90; {consequence}"
        self._notes.gather("axes-not-perpendicular", f"joint {quoted(edge.name)}", message, edge.line, "warning")

    def _report_turned(self, edge: Edge) -> None:
        one = edge.part.axes[0].type in ONE_COORDINATE_TYPES
        message = "its child carries its parent here, since that is nearer to the root; " + (
            "its axes are turned around, and its coordinates are the file's"
            if one
            else "its coordinates are those of the motion back"
        )
        self._notes.gather("sdf-turned-joint", f"joint {quoted(edge.name)}", message, edge.line)

    def _mimic(self, edge: Edge, k: int) -> Mimic | None:
        """The mimic of an axis; None, with a finding, if the joint that it follows is not in the tree."""
        leader, mimic = edge.leaders[k], edge.part.axes[k].mimic
        if leader is None or mimic is None:
            return None
        if leader not in self._axis_names:
            message = f"it mimics joint {quoted(leader[0])}, which is no part of the tree; it moves on its own"
            self._notes.gather("sdf-constraint", f"joint {quoted(edge.name)}", message, edge.line)
            return None
        return replace(mimic, joint=self._axis_names[leader])

    @staticmethod
    def _unused(name: str, taken: set[str]) -> str:
        while name in taken:
            name = f"_{name}"
        taken.add(name)
        return name


def _pose(X: Transform) -> Pose:
    return Pose(X.r, transpose(X.E))
