"""The codes of loading reports, and the collector of findings of builders and checks."""

from __future__ import annotations

from typing import Any

from robodyn.core.description import Finding, Severity
from robodyn.internals import strict_types
from robodyn.internals.messages import quoted

_CODES: dict[str, tuple[Severity, str]] = {
    # Found while reading a file or a robot object.
    "xml-not-well-formed": (
        "warning",
        "an error of XML that most programs let pass, as `--` in a comment or a bare `&`; it is let pass here, too",
    ),
    "robot-name-missing": ("warning", "the robot has no name; it is called `robot`"),
    "version-not-known": ("warning", "the robot's version is not 1.0; it is read as version 1.0"),
    "ignored-tag": ("info", "a known element that has no part in dynamics, such as `<plugin>` of SDF, was skipped"),
    "kept-tag": (
        "info",
        "an element that has no part in dynamics, such as `<transmission>`, is kept as text, to be written again; a "
        "warning where it is a shape that cannot be read",
    ),
    "contact-dropped": ("warning", "an edit left out a contact whose links are gone, or on one body"),
    "shape-not-read": ("warning", "what a link looks like or collides with is left out, such as a height field"),
    "ignored-attribute": (
        "info",
        "an attribute without a part in dynamics was skipped: a link's `type`, a joint's `dont_collapse`, or one with "
        "a prefix, such as `drake:x`",
    ),
    "unknown-tag": ("warning", "an element that is not known at its place was skipped; look for a misspelling"),
    "unknown-attribute": ("warning", "an attribute that is not known in its element was skipped"),
    "stray-text": ("warning", "text inside an element was skipped; values of URDF stand in attributes"),
    "repeated-tag": ("warning", "an element stands twice where one is allowed; the first is read, as others do"),
    "implicit-world": ("warning", "joints have the parent `world`, and no link is called so; it is added as the root"),
    "axis-defaulted": ("info", "a moving joint gives no axis; URDF's default 1 0 0 (axis2: 0 1 0) is used"),
    "axis-not-used": ("info", "a fixed, floating or spherical joint gives an axis, which is not looked at"),
    "axis-normalised": ("warning", "a joint axis was not a unit vector and was scaled to one"),
    "quaternion-normalised": ("warning", "a quaternion was not a unit quaternion and was scaled to one"),
    "inertial-empty": ("warning", "an `<inertial>` gives neither mass nor inertia; the link counts as massless"),
    "mass-missing": ("warning", "an `<inertial>` gives inertia and no mass; the mass is zero"),
    "inertia-missing": ("warning", "an `<inertial>` gives mass and no inertia; the inertia is zero"),
    "inertia-products-missing": ("warning", "an `<inertia>` leaves out products of inertia; they are zero"),
    "urdf-loop": (
        "info",
        "a `<loop_joint>`, or a second joint to a link, closes a loop: a constraint of the model; a warning where it "
        "is left out, as a joint for which there is no constraint",
    ),
    "armature-from-rotor": (
        "info",
        "a joint's armature is `drake:rotor_inertia` times `drake:gear_ratio` squared, or `motorInertia` times "
        "`mechanicalReduction` squared",
    ),
    "rotor-inertia-not-used": (
        "warning",
        "a `drake:rotor_inertia` or `motorInertia` belongs to no single one-coordinate joint, or is given in two ways",
    ),
    "suspected-default-inertial": (
        "warning",
        "mass exactly 1 and identity inertia: what some libraries make up for a link without `<inertial>`",
    ),
    # Found while checking a description.
    "link-without-inertial": ("info", "a link gives no mass and no inertia; both are zero"),
    "massless-moving-link": (
        "warning",
        "a moving body without mass and inertia carries others: correct, but forward dynamics may lose accuracy",
    ),
    "massless-leaf": (
        "warning",
        "nothing that a joint moves has inertia: inverse dynamics works, forward dynamics is singular",
    ),
    "negative-mass": ("error", "a link has a negative mass (accepted by `strict=False`)"),
    "negative-inertia": (
        "error",
        "a principal moment of inertia is negative by half of the largest or more (accepted by `strict=False`)",
    ),
    "slightly-negative-inertia": (
        "warning",
        "a principal moment of inertia is negative, by less than half of the largest: no real body, and used as given",
    ),
    "inertia-triangle": ("warning", "one principal moment of inertia exceeds the sum of the other two: no real body"),
    "mass-without-inertia": ("warning", "a link has mass and no rotational inertia: a point mass"),
    "inertia-without-mass": ("warning", "a link has rotational inertia and no mass; both are used as given"),
    "negative-coefficient": ("error", "damping, friction or armature is negative (accepted by `strict=False`)"),
    "joint-forces-not-used": ("info", "damping or friction is read; it acts only where `joint_forces` asks for it"),
    "limit-infinite": (
        "info",
        "a limit is infinite, which is no limit; a warning where its sign is that of the other end",
    ),
    "limit-missing": ("info", "a joint that URDF wants limited gives no lower or no upper limit"),
    "limit-reversed": ("warning", "a joint's lower limit is above its upper limit; kept as given"),
    "limit-equal": ("warning", "a joint's lower and upper limits are equal; kept as given"),
    "limit-negative": ("warning", "a joint's effort or velocity limit is negative; kept as given"),
    "limit-not-used": (
        "info",
        "position limits of a continuous joint or of a joint of several coordinates, or any limits of a fixed joint",
    ),
    "dynamics-not-used": ("info", "damping, friction or armature of a fixed joint"),
    "effort-zero": (
        "info",
        "a joint's effort limit is zero; dynamics has no limits, but whole-body control keeps them",
    ),
    "axes-not-perpendicular": (
        "info",
        "the two axes of a universal joint are not perpendicular; used as given. A warning in SDF, which wants them "
        "so, and where those of a `revolute2` joint are parallel",
    ),
    "mimic-ignored": ("info", 'a mimic was dropped because of `mimic="ignore"`: the joint moves on its own'),
    "mimic-on-fixed-joint": ("warning", "a fixed joint mimics another; the mimic was dropped"),
    "mimic-of-fixed-joint": ("warning", "a joint mimics a fixed joint; it is welded at its offset"),
    "mimic-multiplier-zero": (
        "warning",
        "a mimic's multiplier, or the product of those of its chain, is zero; the joint is welded at its offset",
    ),
    "mimic-outside-limits": (
        "warning",
        "a joint is welded by its mimic outside of its position limits",
    ),
    "limit-narrowed": (
        "info",
        "joints leave one that they mimic less than its own limits, and that is used; a warning where it cannot move",
    ),
    "limits-contradict": (
        "warning",
        "a joint and those that mimic it cannot all be within their limits; those of the joint itself are used",
    ),
    "mimic-chain": ("info", "a joint mimics a joint that mimics another; both follow the last one"),
    # Found while a mjModel of MuJoCo is read.
    "mjcf-equality": ("warning", "a constraint of MuJoCo, such as a loop; the tree moves without it"),
    "mjcf-spring": ("warning", "a joint has a spring, whose force is no part of the model"),
    "mjcf-damping": ("warning", "a joint's damping is no linear function of its velocity; the linear part is read"),
    "mjcf-effort": (
        "warning",
        "the forces of a joint's actuators are limited unevenly; the larger limit is taken for both directions",
    ),
    "mjcf-free-armature": (
        "warning",
        "a free joint has armature: MuJoCo's accelerations of free bodies are others, and so is its force",
    ),
    "mjcf-free-friction": (
        "warning",
        "a free joint has friction: MuJoCo's acts along the world's axes, the model's along the body's",
    ),
    "mjcf-actuator-coefficient": (
        "warning",
        "armature or damping of an actuator that drives a tendon, or that MuJoCo leaves out as well, has no part",
    ),
    "mjcf-gravity-compensation": ("warning", "MuJoCo holds a body against gravity; the model does not"),
    "mjcf-tendon": ("warning", "tendons have no part in the model"),
    "mjcf-flex": ("warning", "deformable bodies have no part in the model"),
    "mjcf-actuator": (
        "info",
        "actuators have no part in the model but for armature and damping of those that turn joints",
    ),
    "mjcf-option": ("info", "options of MuJoCo's simulation, such as the time step, have no part in the model"),
    "mjcf-softness": ("info", "how soft MuJoCo's limits are has no part in the model"),
    "mjcf-contact": ("warning", 'what contacts cannot do yet is left out because of `unsupported="ignore"`'),
    "mjcf-limit": ("info", "the range of a ball joint is not read"),
    "mjcf-initial-pose": ("info", "where MuJoCo begins (`qpos0`) has no part in the model; its neutral is another"),
    "mjcf-mocap": ("info", "mocap bodies are fixed to the world"),
    "mjcf-fluid": ("warning", "forces of a medium are no part of the model"),
    "mjcf-site": (
        "info",
        "sites are links, but for those without a name, and those that our own files have for ends of equalities; one "
        "that is called as a link gets another name",
    ),
    "mjcf-keyframe": (
        "info",
        "keyframes are configurations; their velocities, controls and so on have no part; a warning where one is left "
        "out, or has joints that follow others elsewhere than these lead them",
    ),
    "mjcf-missing-file": (
        "warning",
        "files of shapes or pictures are not there; the shapes are left out, as no inertia depends on them",
    ),
    "mjcf-warning": ("warning", "MuJoCo warns of something as it compiles"),
    # Found while a `pinocchio.Model` is read.
    "friction-uneven": (
        "warning",
        "Coulomb friction differs in the two directions; that of positive velocities is used",
    ),
    # Found while SDF is read.
    "sdf-old-root": ("info", "the root element is `<gazebo>` with a version, as of SDF until 1.2; read as `<sdf>`"),
    "sdf-loop": (
        "info",
        "a joint closes a loop, or is a gearbox: a constraint of the model; a warning where it is left out, as a joint "
        "for which there is no constraint",
    ),
    "sdf-several-models": (
        "warning",
        "a file has several models and no world; all are loaded, where SDF allows one, and Drake and Gazebo refuse the "
        "file or load the first",
    ),
    "sdf-constraint": ("warning", "what holds bodies beyond joints has no part in the model"),
    "sdf-include": (
        "warning",
        "an `<include>` merges a static model, whose links move; an info where `<experimental:params>` change what is "
        "included, or a file holds lights and actors alone",
    ),
    "sdf-static-around": (
        "warning",
        "a model that moves in a static one: it moves, as in Drake and by the specification; Gazebo holds it",
    ),
    "sdf-turned-joint": ("info", "a joint is passed from its child to its parent, which is further from the root"),
    "sdf-static-joint": ("info", "a joint of a static model; none of it moves"),
    "sdf-default-inertial": (
        "warning",
        "a link gives no mass or no moments of inertia; SDF's defaults, 1 kg and 1 kg m^2, are used",
    ),
    "sdf-density-not-used": (
        "warning",
        'a `<density>` of a link whose inertia is not computed from shapes (`auto="true"`); an info where mass and '
        "moments are given",
    ),
    "sdf-auto-inertial": (
        "warning",
        "an inertia that is computed from shapes (`auto`) is given as well; what is given is not used",
    ),
    "sdf-initial-pose": ("info", "where a file puts a floating link is no part of the model"),
    "sdf-spring": ("warning", "a joint has a spring, whose force is no part of the model"),
    "sdf-gravity-off": ("warning", "a link that gravity does not act on in the file; here it does"),
    "sdf-kinematic": ("warning", "a link that is moved from outside in the file; here forces move it"),
    "sdf-added-mass": ("warning", "a fluid that moves along has no part in the model"),
    # Found while xacro is expanded.
    "xacro-argument-not-used": (
        "warning",
        "an argument was given that no `<xacro:arg>` declares; look for a misspelling",
    ),
    # Found while a description becomes a model.
    "floating-world": ("warning", 'the root link is called `world`, and floats, as `base="floating"` asks'),
    "merged-link": ("info", "a link that a fixed joint holds was merged into a body; it keeps its name and pose"),
    # Found while shapes for distances, and pairs of them, are chosen.
    "collision-not-used": (
        "info",
        "a geometry for collisions is a mesh or an ellipsoid, and has no part in distances; "
        '`load_urdf(meshes="box")` or `"spheres"` puts shapes in the place of meshes',
    ),
    "collision-mesh-replaced": (
        "info",
        "a mesh for collisions is a box or spheres, as `meshes=` asks; a warning where its file is missing or not read",
    ),
    "cylinder-as-capsule": ("info", "distances of a cylinder are those of the capsule around it, except to planes"),
    "pair-left-out": ("info", "distances are not about a pair of shapes, as on neighbouring bodies"),
    "srdf-unknown-link": ("warning", "an SRDF names a link that the robot does not have"),
    # Found while a model is edited.
    "pairs-not-between": (
        "warning",
        "the pairs of shapes of a robot, or of the other one that is attached, were listed; none are between the two",
    ),
    "constraint-changed": ("info", "a constraint of a model that was edited is given otherwise; it means the same"),
    "configuration-changed": (
        "info",
        "a named configuration is not what it was: a joint is locked elsewhere, or it says nothing of another robot, "
        "which is at neutral in it",
    ),
    "constraint-dropped": (
        "warning",
        "a constraint was left out of a model that was edited: its links or joints are gone, or are one body now",
    ),
    "extension-dropped": (
        "info",
        "a kept element, such as a transmission, of a link or joint that is gone, or that does not move any more",
    ),
    # Found while a model is written to a file of another format.
    "written-otherwise": ("info", "something is written in another way, as a link that was added; it means the same"),
    "written-for-few": ("warning", "something is written that other programs than robodyn do not read"),
    "not-written": ("warning", "the format has no words for something of the model"),
    "refused-by-mujoco": ("warning", "MuJoCo does not compile what is written, as moving bodies without mass"),
    # Found by the command `robodyn check`, which computes.
    "singular-mass-matrix": (
        "warning",
        "no state has forward dynamics, because the mass matrix is singular (`robodyn check`; not in `model.report`)",
    ),
}

FINDINGS: dict[str, str] = {code: meaning for code, (_, meaning) in _CODES.items()}
"""Every finding code of a loading report or `robodyn check`, with its meaning."""

SEVERITIES: dict[str, Severity] = {code: severity for code, (severity, _) in _CODES.items()}
"""The severity of every finding code; for codes with several, the usual one."""

_SEVERITY = frozenset(SEVERITIES.values())

LAST_LINE = 1 << 63
"""Line numbers are below this: Python prints no number of thousands of digits."""

LISTED = 5
"""Number of names that a message about many elements lists; the others are counted."""


def at_line(line: int | None) -> str:
    """ " (line 7)" for a message, or nothing where the line is not known."""
    return "" if line is None else f" (line {line})"


def listed(names: list[str]) -> str:
    """The first few names, comma separated, and how many more there are."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def cycle(names: list[str]) -> str:
    """Names of a cycle, quoted and joined by arrows; the middle is left out if there are many."""
    shown = [quoted(name) for name in names]
    if len(shown) > 2 * LISTED:
        shown = [*shown[:LISTED], "...", *shown[-LISTED:]]
    return " -> ".join([*shown, shown[0]])


class Report(tuple[Finding, ...]):
    """Findings of loading: a tuple that prints, and is shown in notebooks, as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        from robodyn.core.tables import report_table, to_text

        return to_text(report_table(self)) if self else "nothing was found"

    def _repr_html_(self) -> str:
        from robodyn.core.tables import report_table, to_html

        return to_html(report_table(self)) if self else "nothing was found"


def is_finding(given: Any) -> bool:
    """True for a finding whose fields have their types, so that it can be compared, printed and written."""
    return (
        strict_types.is_whole(given, Finding)
        and type(given.severity) is str
        and given.severity in _SEVERITY
        and strict_types.all_are((given.code, given.element, given.message), str)
        and (given.line is None or (type(given.line) is int and 0 <= given.line < LAST_LINE))
        and type(given.elements) is tuple
        and strict_types.all_are(given.elements, str)
    )


class Notes:
    """Collects the findings of one load. `add` makes a finding about one element; `gather` makes one finding about all
    elements with the same message."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._gathered: dict[tuple[str, str, Severity | None], list[tuple[str, int | None]]] = {}

    def add(self, code: str, element: str, message: str, line: int | None = None) -> None:
        """One finding about one element; the severity belongs to the code."""
        self._findings.append(Finding(SEVERITIES[code], code, element, message, line, (element,)))

    def gather(
        self, code: str, element: str, message: str, line: int | None = None, severity: Severity | None = None
    ) -> None:
        """One finding for all elements with the same `code` and `message`; its text names the first few of them.
        `severity`: None for that of the code."""
        key = code, message, severity
        places = self._gathered.get(key)
        if places is None:
            places = self._gathered[key] = []
        places.append((element, line))

    def findings(self) -> tuple[Finding, ...]:
        """All findings: first the single ones, then the gathered ones, each in the order in which they were made."""
        gathered = []
        for (code, message, own_severity), places in self._gathered.items():
            severity = own_severity or SEVERITIES[code]
            elements = tuple(dict.fromkeys(element for element, _ in places))
            if len(places) > 1:
                lines = [str(line) for _, line in places if line is not None] if severity != "info" else []
                where = f": lines {listed(lines)}" if lines else ""
                message = f"{message} ({len(places)} times{where})"
            finding = Finding(severity, code, listed(list(elements)), message, places[0][1], elements)
            gathered.append(finding)
        return (*self._findings, *gathered)
