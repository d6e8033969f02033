"""Writes models as MJCF."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.constraints.kinds import ROWS, Coupling, Lock, Point, Weld
from robodyn.core.constraints.resolved import anchored_by_calls
from robodyn.core.constraints.serialization import frame
from robodyn.core.description import UNLIMITED, Inertial, Joint, Link, Pose
from robodyn.core.findings import Notes
from robodyn.core.joints import KINDS
from robodyn.core.spatial import IDENTITY, ZERO3, Transform, rotate
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.internals.messages import quoted
from robodyn.io.builders.axes import pose_transform, turn_to_z
from robodyn.io.builders.mesh_files import MeshFiles
from robodyn.io.editing.constraint_edits import element
from robodyn.io.editing.mjcf_contacts import MjcfContacts
from robodyn.io.editing.mjcf_geometries import MjcfGeometries, kept_lines, placed
from robodyn.io.editing.mjcf_keys import keyframes
from robodyn.io.editing.parts import unused
from robodyn.io.editing.to_description import Described, describe, pose_of
from robodyn.io.editing.writer_common import RobotText, name, note_pairs, note_unread, values

if TYPE_CHECKING:
    from robodyn.core.model import Model

_TYPES = {"revolute": "hinge", "continuous": "hinge", "prismatic": "slide", "spherical": "ball", "floating": "free"}
_ONE = ("revolute", "continuous", "prismatic")
"""Joint types of which a body of MuJoCo can have several."""
_MOST_JOINTS = 6
"""Largest number of degrees of freedom of a body in MuJoCo."""
_SMALLEST = 1e-15
"""MuJoCo requires masses and moments of inertia of moving bodies to be larger than this."""
_ROUNDING = 1e-12
"""Share of the largest moment of inertia up to which violations of MuJoCo's rules are corrected as rounding errors."""
_DEEPEST = 496
"""Deepest nesting of bodies. MuJoCo's parser allows 500 nested elements."""
_INDENTED = 20
"""Deepest indentation. Without this limit the text of a chain would grow with the square of its length."""
_APART = 0.1
"""Distance in m of the two points on an axis that represent a hinge."""
_COMPILER = 'angle="radian" autolimits="false" inertiafromgeom="false" balanceinertia="false" fusestatic="false"'


def to_mjcf(model: Model, package_dirs: Any) -> RobotText:
    """Writes the robot as MJCF; see `Model.to_mjcf`."""
    notes = Notes()
    contacts = MjcfContacts(model, notes)
    geoms = MjcfGeometries(model, MeshFiles(package_dirs), notes, contacts)
    robot = describe(model, notes)
    note_pairs(model, notes)
    equalities = _Equalities(model, robot, notes, contacts)
    bodies = _Bodies(model, robot, equalities.sites, geoms, notes, contacts)
    body_lines = [*bodies.lines()]
    lines = [
        f"<mujoco model={name('robot', model.name or 'robot')}>",
        f"  <compiler {_COMPILER}/>",
        f"  <option gravity={values(model.gravity.tolist())}{contacts.option}>{contacts.flags}</option>"
        if contacts.flags
        else f"  <option gravity={values(model.gravity.tolist())}{contacts.option}/>",
        *(["  <asset>", *(f"    {asset}" for asset in geoms.assets), "  </asset>"] if geoms.assets else []),
        *body_lines,
    ]
    followers = [joint for joint in robot.joints if joint.mimic is not None]
    equality_lines = [*(line for joint in followers for line in _equality(joint, notes)), *equalities.equalities]
    if equality_lines:
        lines += ["  <equality>", *equality_lines, "  </equality>"]
    lines += contacts.lines(geoms.of_contacts)
    lines += [*kept_lines(model, robot, bodies.frames, bodies.renamed, notes), *keyframes(model, bodies.joints)]
    note_unread(model, notes)
    return RobotText.of([*lines, "</mujoco>"], notes)


def _equality(joint: Joint, notes: Notes) -> Iterator[str]:
    assert joint.mimic is not None
    notes.gather("written-otherwise", f"joint {quoted(joint.name)}", "it follows another by an equality, which is soft")
    ends = f"joint1={name('joint', joint.name)} joint2={name('joint', joint.mimic.joint)}"
    yield f"    <joint {ends} polycoef={values([joint.mimic.offset, joint.mimic.multiplier, 0.0, 0.0, 0.0])}/>"


class _Equalities:
    """Writes constraints as equalities of MuJoCo between sites at the constraints' frames.

    `sites`: elements of sites by link. Sites of constraints to the world belong to the root link, or to "" if the root
    link floats.
    """

    def __init__(self, model: Model, robot: Described, notes: Notes, contacts: MjcfContacts) -> None:
        self._soft = contacts.equality
        self.sites: dict[str, list[str]] = defaultdict(list)
        self.equalities: list[str] = []
        self._notes, self._taken = notes, {link.name for link in robot.links}  # some links become sites
        self._world = robot.root if robot.floating is None else ""
        self._names: set[str] = set()
        for each in model.constraints:
            subject = element(each)
            if each.baumgarte is not None:
                notes.gather("not-written", subject, "how errors of the constraint decay")
            if anchored_by_calls([each]):
                notes.gather(
                    "written-otherwise", subject, "its place, which comes with every call, is the world's origin"
                )
            equality = self._sum(model, each) if isinstance(each, Coupling | Lock) else self._frames(each)
            if equality:
                notes.gather("written-otherwise", subject, "an equality, which is soft")
                self.equalities += equality
            else:
                notes.gather(
                    "not-written", subject, f"a constraint that is no equality of MuJoCo's ({type(each).__name__})"
                )

    def _frames(self, held: Any) -> list[str]:
        rows = held.rows
        if isinstance(held, Point) or (isinstance(held, Weld) and rows == ROWS[3:]):
            return [self._equality("connect", held, ZERO3)]
        if rows == ROWS and isinstance(held, Weld):
            return [self._equality("weld", held, ZERO3)]
        free = [k for k in range(3) if ROWS[k] not in rows]
        if not isinstance(held, Weld) or len(rows) < 5 or not free:
            return []
        x, y, z = (_APART * (k == free[0]) for k in range(3))
        self._notes.gather("written-otherwise", element(held), "a hinge as two points of its axis")
        return [self._equality("connect", held, place) for place in (ZERO3, (x, y, z))]

    def _equality(self, kind: str, held: Any, shift: Any) -> str:
        """An equality between two sites, one on each link, shifted along the axes of the constraint."""
        equality_name = unused(held.name, self._names)
        ends = []
        for end, link, place in (("site1", held.to, held.to_at), ("site2", held.link, held.at)):
            site = name("constraint", unused(f"{equality_name}/{end}", self._taken))
            X_pose = pose_of(Transform(IDENTITY.E, shift).after(frame(place)))
            self.sites[self._world if link is None else link].append(f"<site name={site}{placed(X_pose)}/>")
            ends.append(f"{end}={site}")
        return f"    <{kind} name={name('constraint', equality_name)} {' '.join(ends)}{self._soft(held.name)}/>"

    def _sum(self, model: Model, held: Coupling | Lock) -> list[str]:
        """An equality that fixes a joint or couples two joints. MuJoCo supports joints with one coordinate only."""
        if isinstance(held, Lock):
            if KINDS[model.joint_kind[model.joint_index(held.joint)]].nq != 1:
                return []
            pairs, offset = [(held.joint, 1.0)], held.value[0] if held.value else 0.0
        else:
            pairs, offset = [pair for pair in held.joints if pair[1]], held.offset
        if len(pairs) > 2:
            return []
        joints = " ".join(f"joint{k}={name('joint', joint)}" for k, (joint, _) in enumerate(pairs, start=1))
        slope = -pairs[1][1] / pairs[0][1] if len(pairs) == 2 else 0.0
        numbers = [offset / pairs[0][1], slope, 0.0, 0.0, 0.0]
        if not np.isfinite(numbers).all():
            return []
        equality_name = name("constraint", unused(held.name, self._names))
        return [f"    <joint name={equality_name} {joints} polycoef={values(numbers)}{self._soft(held.name)}/>"]


class _Bodies:
    """Writes the links of a robot as nested bodies, each with the joint that moves it."""

    def __init__(
        self,
        model: Model,
        robot: Described,
        sites: dict[str, list[str]],
        geoms: MjcfGeometries,
        notes: Notes,
        contacts: MjcfContacts,
    ) -> None:
        self._soft = contacts.joint
        self._model, self._robot, self._notes = model, robot, notes
        self._sites, self._geoms = sites, geoms
        self._links = {link.name: link for link in robot.links}
        self._above = {joint.child: joint for joint in robot.joints}
        self._on: dict[str, list[str]] = defaultdict(list)
        for joint in robot.joints:
            self._on[joint.parent].append(joint.child)
        self.renamed: dict[str, str] = {}
        """New names of renamed links, filled while the lines are generated."""
        self.frames: set[str] = set()
        """Links that are written as sites."""
        self.joints: list[str] = []
        """Joints in MuJoCo's order, filled while the lines are generated."""
        # Bodies have the order of the model's links, so that a model read from the file has the same order.
        place = {link.name: k for k, link in enumerate(robot.links)}
        for children in self._on.values():
            children.sort(key=place.__getitem__)
        for link in robot.links:
            self._as_site(link)

    def lines(self) -> Iterator[str]:
        """The lines of the <worldbody>. It is not recursive, because chains can exceed Python's recursion limit."""
        root = self._robot.root
        yield "  <worldbody>"
        yield from (f"    {site}" for site in self._sites.get(root if self._is_world(root) else "", ()))
        if self._is_world(root):
            yield from (f"    {geom}" for geom in self._geoms.lines(root))
            stack = [(child, 2) for child in reversed(self._on[root])]
            if self._links[root].inertial is not None:
                self._notes.add("not-written", 'link "world"', "the mass of what is the world itself")
        else:
            yield from (f"    {geom}" for geom in self._geoms.lines(""))
            stack = [(root, 2)]
            self._notes.add("written-otherwise", f"link {quoted(root)}", 'it stands in a root link that is "world"')
        closing: list[int] = []
        while stack:
            link, depth = stack.pop()
            while closing and closing[-1] >= depth:
                yield f"{_indent(closing.pop())}</body>"
            if depth - 1 > _DEEPEST:
                message = f"more than {_DEEPEST} bodies in bodies, which MuJoCo's parser does not read"
                self._notes.gather("refused-by-mujoco", f"link {quoted(link)}", message)
            chain = self._chain(link)
            link = chain[-1].child if chain else link
            yield from self._body(self._links[link], chain, _indent(depth))
            closing.append(depth)
            stack += [(child, depth + 1) for child in reversed(self._on[link])]
        for depth in reversed(closing):
            yield f"{_indent(depth)}</body>"
        yield "  </worldbody>"
        base = [] if self._robot.floating is None else [self._model.joint_names[self._robot.floating]]
        if self.joints != [*base, *(joint.name for joint in self._robot.joints if joint.type != "fixed")]:
            self._notes.add(
                "written-otherwise", "joints", "MuJoCo's order of joints is another, depth-first; go by names"
            )

    def _as_site(self, link: Link) -> None:
        """Mark a link as a site if it is only a frame: fixed, without inertia, geometries, sites and child links."""
        joint = self._above.get(link.name)
        if link.inertial is not None or joint is None or joint.type != "fixed":
            return
        if not self._on[link.name] and not self._is_used(link.name):
            self.frames.add(link.name)
            self._on[joint.parent].remove(link.name)
            self._sites[joint.parent].append(f"<site name={self._named(link.name)}{placed(joint.origin)}/>")

    def _is_world(self, link: str) -> bool:
        return link == self._robot.root == "world" and self._robot.floating is None

    def _named(self, link: str) -> str:
        """The name of a link's body. MuJoCo reserves the name "world"."""
        new_name = link
        while new_name == "world" or (new_name != link and new_name in self._links):
            new_name = f"_{new_name}"
        if new_name != link:
            self.renamed[link] = new_name
            self._notes.add(
                "written-otherwise", f"link {quoted(link)}", f"it is not MuJoCo's world, and called {quoted(new_name)}"
            )
        return name("link", new_name)

    def _chain(self, link: str) -> list[Joint]:
        """The joints of the body that begins with a link.

        MuJoCo requires moving bodies to have mass. A link that is only a frame between two joints is therefore not
        written as a body: its joint becomes one of the next body's joints.
        """
        if link not in self._above:
            return []
        chain = [self._above[link]]
        while len(chain) < _MOST_JOINTS and self._is_passed(link):
            next_joint = self._above[self._on[link][0]]
            if chain[-1].type not in _ONE or next_joint.type not in _ONE:
                break
            message = "a frame between two joints, which are joints of one body"
            self._notes.gather("written-otherwise", f"link {quoted(link)}", message)
            link = next_joint.child
            chain.append(next_joint)
        return chain

    def _is_passed(self, link: str) -> bool:
        """True if a link is only a frame between two joints."""
        return self._links[link].inertial is None and len(self._on[link]) == 1 and not self._is_used(link)

    def _is_used(self, link: str) -> bool:
        return link in self._sites or self._geoms.has(link)

    def _body(self, link: Link, chain: list[Joint], indent: str) -> Iterator[str]:
        joint = chain[-1] if chain else None
        steps = [pose_transform(each.origin) for each in chain]
        pose = chain[0].origin if len(chain) == 1 else pose_of(_composed(steps))
        yield f"{indent}<body name={self._named(link.name)}{placed(pose)}>"
        if link.inertial is not None:
            yield f"{indent}  <inertial {self._inertial(link.name, link.inertial)}/>"
        elif self._geoms.has(link.name) and joint is not None and joint.type == "fixed":
            # Without it MuJoCo computes the softness of contacts at a place that is off by the body's own position.
            yield f'{indent}  <inertial mass="0" diaginertia="0 0 0" pos="0 0 0"/>'
        yield from (f"{indent}  {part}" for part in (*self._sites.get(link.name, ()), *self._geoms.lines(link.name)))
        moving = joint is not None and joint.type != "fixed"
        if joint is None and self._robot.floating is not None:
            moving = True
            self.joints.append(self._model.joint_names[self._robot.floating])
            yield f'{indent}  <joint name={name("joint", self.joints[-1])} type="free"/>'
        elif joint is not None and moving:
            for k, each in enumerate(chain):
                self.joints.append(each.name)
                yield from (f"{indent}  {line}" for line in self._joint(each, _composed(steps[k + 1 :])))
        if moving:
            self._require_mass(link)

    def _inertial(self, link: str, inertial: Inertial) -> str:
        """The attributes for mass, centre of mass, principal moments and principal axes. MuJoCo does not change
        them."""
        square = _square(inertial)
        if square[np.triu_indices(3, 1)].any():
            moments, axes = np.linalg.eigh(square)
            axes[:, 0] *= np.sign(np.linalg.det(axes))
        else:
            moments, axes = np.diag(square).copy(), np.eye(3)
        largest = float(np.abs(moments).max())
        moments[(moments < 0.0) & (moments > -_ROUNDING * largest)] = 0.0
        k = int(moments.argmax())
        others = float(np.delete(moments, k).sum())
        if others < moments[k] <= others + _ROUNDING * largest:
            moments[k] = others
        if moments.min() < 0.0 or moments.max() > others or inertial.mass < 0.0:
            message = "its moments of inertia are those of no body: MuJoCo wants A + B >= C, none negative"
            self._notes.gather("refused-by-mujoco", f"link {quoted(link)}", message)
        pose = Pose(inertial.pose.xyz, tuple(axes.ravel().tolist()))
        return f"mass={values([inertial.mass])} diaginertia={values(moments.tolist())}{placed(pose, always=True)}"

    def _require_mass(self, link: Link) -> None:
        """Report a moving body that MuJoCo refuses because it and the bodies fixed to it lack mass or inertia."""
        queue = [link.name]
        for each in queue:
            inertial = self._links[each].inertial
            if inertial is not None and min(inertial.mass, np.linalg.eigvalsh(_square(inertial)).min()) > _SMALLEST:
                return
            queue += [child for child in self._on[each] if self._above[child].type == "fixed"]
        self._notes.gather(
            "refused-by-mujoco",
            f"link {quoted(link.name)}",
            "a moving body without mass, or without inertia about an axis",
        )

    def _joint(self, joint: Joint, beyond: Transform) -> Iterator[str]:
        """The elements of a joint. `beyond`: the transform from the joint's child frame to the body's frame."""
        subject, attributes = f"joint {quoted(joint.name)}", self._attributes(joint)
        if joint.type == "planar":
            message = "two slides and a hinge; their velocities are seen from the parent"
            self._notes.gather("not-written", subject, f"a planar joint is written as {message}")
            E = turn_to_z(joint.axis)
            for part, kind, axis in (("x", "slide", E[0:3]), ("y", "slide", E[3:6]), ("theta", "hinge", joint.axis)):
                joint_name = name("joint", f"{joint.name}.{part}")
                yield f'<joint name={joint_name} type="{kind}" axis={values(axis)}{attributes}/>'
            return
        if joint.type not in _TYPES:
            raise UnavailableError(f"{subject}: MuJoCo has no {joint.type} joints")
        if joint.type == "floating" and not self._in_the_world(joint):
            raise UnavailableError(
                f"{subject} floats against {quoted(joint.parent)}; MuJoCo's bodies float in the world"
            )
        axis_attribute = f" axis={values(rotate(beyond.E, joint.axis))}" if joint.type in _ONE else ""
        anchor = beyond.inverse().r
        axis_attribute += f" pos={values(anchor)}" if any(anchor) else ""
        yield f'<joint name={name("joint", joint.name)} type="{_TYPES[joint.type]}"{axis_attribute}{attributes}/>'

    def _in_the_world(self, joint: Joint) -> bool:
        return self._is_world(joint.parent) and joint.origin == Pose()

    def _attributes(self, joint: Joint) -> str:
        """The attributes for damping, friction, armature and limits."""
        subject, limits, attributes = f"joint {quoted(joint.name)}", joint.limits, ""
        for key, value in (("damping", joint.damping), ("frictionloss", joint.friction), ("armature", joint.armature)):
            attributes += f" {key}={values([value])}" if value else ""
        if limits.velocity is not None:
            self._notes.gather("not-written", subject, "velocity limits, which MuJoCo does not have")
        one = joint.type in _ONE
        lower = -UNLIMITED if limits.lower is None else limits.lower
        upper = UNLIMITED if limits.upper is None else limits.upper
        if lower >= upper:
            self._notes.gather("not-written", subject, "position limits that leave no room, which MuJoCo refuses")
        elif one and (limits.lower is not None or limits.upper is not None):
            attributes += f' limited="true" range={values([lower, upper])}'
        if limits.effort is not None:
            if one and limits.effort > 0.0:
                attributes += f' actuatorfrclimited="true" actuatorfrcrange={values([-limits.effort, limits.effort])}'
            else:
                message = "effort limits that are not positive, or of a joint of several coordinates"
                self._notes.gather("not-written", subject, message)
        return attributes + self._soft(joint.name)


def _composed(steps: Sequence[Transform]) -> Transform:
    """The composition of transforms in series."""
    return reduce(lambda first, second: second.after(first), steps, IDENTITY)


def _square(inertial: Inertial) -> Array:
    """The inertia matrix (3, 3) about the centre of mass."""
    return np.array(inertial.inertia)[[0, 1, 2, 1, 3, 4, 2, 4, 5]].reshape(3, 3)


def _indent(depth: int) -> str:
    return "  " * min(depth, _INDENTED)
