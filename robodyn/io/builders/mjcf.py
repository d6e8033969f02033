"""Builds a Model from a compiled MuJoCo model.

MuJoCo itself compiles MJCF, so defaults, includes, meshes and inertias from geoms have MuJoCo's meaning. Bodies become
links, and joints become joints. Elements that a tree of rigid bodies cannot represent are reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from robodyn.core.description import UNLIMITED, Inertial, Joint, Limits, Link, Mimic, Pose, RobotDescription
from robodyn.core.findings import Notes, Report
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, flag, one_of
from robodyn.internals.errors import ArgumentError, LoadError, RobodynError, UnavailableError
from robodyn.internals.messages import brief, install, quoted
from robodyn.io.builders.assemble import assemble, unused_name
from robodyn.io.builders.check_joints import Coupling
from robodyn.io.builders.checks import check_and_resolve
from robodyn.io.builders.coefficients import finite_gravity, with_coefficients
from robodyn.io.builders.foreign import foreign
from robodyn.io.builders.mjcf_compiler import checked_binary, compiled
from robodyn.io.builders.mjcf_contacts import WAYS, Rows, with_mjcf_contacts
from robodyn.io.builders.mjcf_elements import kept_elements
from robodyn.io.builders.mjcf_equalities import Equalities, Reading
from robodyn.io.builders.mjcf_files import MeshFile, contents, is_binary, self_contained
from robodyn.io.builders.mjcf_frames import moved, rotation, three, turned_back
from robodyn.io.builders.mjcf_geometries import geoms
from robodyn.io.builders.mjcf_keyframes import MOST_KEYFRAMES, configurations
from robodyn.io.builders.mjcf_sites import frames_of_sites
from robodyn.io.builders.mjmodel import MjArrays, actuated_joints, dof_coefficients, require_consistent
from robodyn.io.builders.urdf import MAX_LINKS

_OPTIONS = frozenset({"gravity", "density", "viscosity", "wind"})
"""Options that are read, or reported as forces of a fluid."""
_OF_CONTACTS = frozenset({"cone", "impratio", "noslip_iterations", "enableflags"})
"""Options that are read, or reported, with contacts."""
_NOT_READ = {"ncam": "cameras", "nlight": "lights", "ntex": "textures", "nskin": "skins", "nplugin": "plugins"}
"""Elements that do not affect the dynamics, by the names of their sizes in MuJoCo."""
_SOFTNESS = {"jnt_solref": (0.02, 1.0), "jnt_solimp": (0.9, 0.95, 0.001, 0.5, 2.0), "jnt_margin": (0.0,)}
"""Arrays of the softness of joint limits, with MuJoCo's defaults."""
EQUALITY = ("report", "mimic", "constraints")
"""Ways to handle equality constraints."""


def load_mjcf(
    source: Any,
    equality: str = "report",
    strict: bool = True,
    *,
    contacts: bool = False,
    max_contacts: int | None = None,
    unsupported: str = "refuse",
) -> Model:
    """Load a robot from MJCF or from a model of MuJoCo. Needs the extra `mujoco`.

    The root link is the world, and free bodies are its children on floating joints. Coordinates, velocities and their
    order are robodyn's; `robodyn.converter` converts them to MuJoCo's. q of hinges and slides equals qpos. Bodies with
    several joints have massless links "body/0" and so on between the joints. Named sites become massless links after
    those of bodies; a site is called "tool_site" if a link is called "tool". Keyframes become `model.configurations`.
    Springs, actuators, tendons, contacts and equalities are not part of the model: `model.report` lists them.

    A child process compiles texts and files within limits of time and memory (`robodyn.io.builders.mjcf_compiler`). It
    is kept for the next file. A MjSpec is compiled in this process, and a MjModel is read directly.

    Args:
        source: a path (.xml or .mjcf, or .mjb of this version of MuJoCo), MJCF text, a `mujoco.MjSpec` or a
            `mujoco.MjModel`. Included files, meshes and textures of a file are opened. Shapes with missing files are
            omitted if no inertia depends on them.
        equality: "report": equalities are reported. "mimic": a joint whose coordinate is a linear function of another's
            follows it exactly, although MuJoCo's constraint is soft. "constraints": equalities of two bodies (connect,
            weld) and linear equalities of joint coordinates become `model.constraints`, which hold exactly as well. A
            weld with a `torquescale` of zero does not constrain rotation.
        strict: True to refuse a negative mass, damping, friction or armature, and a principal moment of inertia that is
            negative by half of the largest or more. False to use and report such values. Moments that violate the
            triangle inequality are used and reported in any case.
        contacts: True to read contacts with friction, limits, dry friction and equalities as the soft rows of
            `model.contacts` (docs/contacts.md). Equalities become `model.constraints` with rows.
        max_contacts: contact points that can act at once, the deepest ones; None for all.
        unsupported: what becomes of contacts, rows and options that are not available, such as those of meshes:
            "refuse" the file, or "ignore" them with findings.

    Returns:
        The model, with MuJoCo's gravity, armature, damping, friction and limits.

    Raises:
        LoadError: MuJoCo cannot compile the source, or not within the limits; the result is no usable robot; or this
            version of MuJoCo has other arrays than 3.2 to 4.0. The message gives the reason.
        ArgumentError: an unknown option, or an unsupported kind of source.
        UnavailableError: MuJoCo is not installed, or no child process can be started; or the file has something that
            contacts cannot do yet, and `unsupported` is "refuse".
    """
    equality, strict = one_of("equality", equality, EQUALITY), flag("strict", strict)
    if not flag("contacts", contacts) and max_contacts is not None:
        raise ArgumentError(f"max_contacts: got {brief(max_contacts)} with contacts=False; wanted None")
    unsupported = one_of("unsupported", unsupported, WAYS)
    if contacts and equality == "mimic":
        raise ArgumentError("equality: got 'mimic' with contacts=True; wanted 'constraints', which get soft rows")
    equality = "constraints" if contacts else equality
    mujoco, notes = mujoco_module("load_mjcf"), Notes()
    compiled, files = _compiled(mujoco, source, notes)
    with foreign("the mjModel"), np.errstate(all="ignore"):  # later checks report overflow
        reader = _Reader(mujoco, compiled, equality, notes, files, soft=contacts)
        description = reader.description()
    checked, mimics = check_and_resolve(description, mimic="follow", strict=strict)
    model = assemble(checked, mimics, "fixed", reader.gravity)
    model = with_coefficients(model, reader.coefficients(model), "mjcf", strict)
    with foreign("the mjModel"), np.errstate(all="ignore"):
        model = reader.with_configurations(model, mimics.couplings)
        return reader.with_contacts(model, max_contacts, unsupported) if contacts else model


def joint_names(mj_model: Any) -> list[str]:
    """The names that `load_mjcf` gives to MuJoCo's joints, in MuJoCo's order."""
    return _Reader(mujoco_module("load_mjcf"), mj_model, "report", Notes(), {}).joint_names()


def mujoco_module(asked: str) -> Any:
    """The module `mujoco`. `asked`: name of the calling function, for the error message.

    Raises:
        UnavailableError: it is not installed.
    """
    try:
        import mujoco
    except ImportError as error:
        raise UnavailableError(f"{asked}: MuJoCo cannot be imported here ({error}): {install('mujoco')}") from error
    return mujoco


def _compiled(mujoco: Any, source: Any, notes: Notes) -> tuple[Any, dict[str, MeshFile]]:
    """The mjModel of a source, and its mesh files by the mjModel's names for them.

    A child process compiles files and texts, because they may be untrusted.

    Raises:
        LoadError: MuJoCo refuses the source, or exceeds a limit.
    """
    if strict_types.is_a(source, mujoco.MjModel):
        return source, {}
    try:
        if strict_types.is_a(source, mujoco.MjSpec):
            return source.copy().compile(), {}
        data, path = contents(source)
        text, assets, files = ("", {}, {}) if is_binary(data) else self_contained(data, path, notes)
        result = compiled(text, assets) if text else checked_binary(data)
        for warning in result.warnings:
            notes.add("mjcf-warning", "MuJoCo", f"it warns: {warning}")
        return mujoco.MjModel.from_binary_path("model.mjb", {"model.mjb": result.data}), files
    except RobodynError:
        raise
    except MemoryError:
        raise UnavailableError("there is not enough memory for the compiled model") from None
    except Exception as error:
        raise LoadError(f"MuJoCo does not compile it: {' '.join(str(error).split())}") from None


class _Reader:
    """Reads a mjModel. `soft`: whether rows of contacts, limits and equalities are read."""

    def __init__(
        self, mujoco: Any, m: Any, equality: str, notes: Notes, files: Mapping[str, MeshFile], soft: bool = False
    ) -> None:
        self._mujoco, self._m, self._equality, self._notes = mujoco, m, equality, notes
        self._files, self._soft = files, soft
        self._a = MjArrays(mujoco, m)
        if sum(map(self._a.size, ("nbody", "njnt", "nsite"))) > MAX_LINKS:
            raise LoadError(f"the robot has more than {MAX_LINKS} bodies, joints and sites, the most that are read")
        off = self._is_off("GRAVITY")
        self.gravity = np.zeros(3) if off else finite_gravity(np.array(m.opt.gravity, dtype=np.float64))
        require_consistent(self._a)
        self._types = self._a.joint_types()
        self._bodies = self._names("body", self._a.size("nbody"))
        self._joints = self._names("joint", self._a.size("njnt"))
        self._body_names, self._joint_names = set(self._bodies), set(self._joints)
        self._eq = Equalities(self._a, self._bodies, self._joints)
        self._off = self._is_off("CONSTRAINT", "EQUALITY")
        self._equalities = self._followed_equalities() if equality == "mimic" else {}
        self._constraints = self._held() if equality == "constraints" else {}
        self._coefficients = dof_coefficients(self._a)

    def _is_off(self, *features: str) -> bool:
        """True if an option disables one of these features of MuJoCo."""
        bits = [int(getattr(self._mujoco.mjtDisableBit, f"mjDSBL_{feature}")) for feature in features]
        return any(int(self._m.opt.disableflags) & bit for bit in bits)

    def _names(self, kind: str, n: int) -> list[str]:
        """Unique names of the first n objects of a kind, such as "body". Objects without a name get one."""
        mujoco_names = self._given_names(kind, n)
        taken = set(mujoco_names)
        return [
            name if name.strip() else unused_name(f"{kind}_{number}", taken) for number, name in enumerate(mujoco_names)
        ]

    def _given_names(self, kind: str, n: int) -> list[str]:
        """MuJoCo's names of the first n objects of a kind; "" for objects without a name."""
        objects = getattr(self._mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
        return [self._mujoco.mj_id2name(self._m, objects, number) or "" for number in range(n)]

    def joint_names(self) -> list[str]:
        """Names of MuJoCo's joints."""
        return self._joints

    def description(self) -> RobotDescription:
        """The description: bodies become links, joints become joints, and sites become links after those of bodies."""
        links, joints = [Link(self._bodies[0])], []
        for b in range(1, len(self._bodies)):
            own_joints = self._joints_of(b)
            links += [Link(joint.child) for joint in own_joints[:-1]]
            links.append(Link(self._bodies[b], self._inertial(b)))
            joints += own_joints
        sites = self._sites({link.name for link in links})
        links += [link for link, _ in sites.values()]
        joints += [joint for _, joint in sites.values()]
        self._report()
        with foreign("the mjModel's names"):
            name = self._model_name()
        constraints = tuple(each.constraint for each in self._constraints.values() if each.constraint is not None)
        shapes = geoms(self._a, self._bodies, self._files, self._notes)
        names = [sites[s][0].name if s in sites else "" for s in range(self._a.size("nsite"))]
        kept = kept_elements(self._a, self._bodies, self._joints, names, self._notes, self._soft)
        report = Report(self._notes.findings())
        return RobotDescription(name, tuple(links), tuple(joints), report, constraints, shapes, kept)

    def _sites(self, links: set[str]) -> dict[int, tuple[Link, Joint]]:
        names = self._given_names("site", self._a.size("nsite"))
        ends = self._eq.own_sites(self._names("equality", self._a.size("neq")), names)
        return frames_of_sites(self._a, names, ends, self._bodies, links, self._joint_names, self._notes)

    def _model_name(self) -> str:
        text = bytes(self._m.names)
        return text[: text.index(b"\0")].decode("utf-8", errors="replace") or "robot"

    def _inertial(self, b: int) -> Inertial | None:
        a = self._a
        mass, moments = float(a["body_mass"][b]), [float(x) for x in a["body_inertia"][b]]
        if not mass and not any(moments):
            return None
        pose = Pose(three(a["body_ipos"][b]), rotation(a["body_iquat"][b]))
        return Inertial(mass, pose, (moments[0], 0.0, 0.0, moments[1], 0.0, moments[2]))

    def _joints_of(self, b: int) -> list[Joint]:
        """The joints between a body and its parent, in MuJoCo's order. The child of the last one is the body."""
        a, child = self._a, self._bodies[b]
        parent, first = self._bodies[int(a["body_parentid"][b])], int(a["body_jntadr"][b])
        numbers = range(first, first + int(a["body_jntnum"][b]))
        pose = Pose(three(a["body_pos"][b]), rotation(a["body_quat"][b]))
        if not numbers:
            return [Joint(unused_name(f"{child}_fixed", self._joint_names), "fixed", parent, child, pose)]
        joints, position = [], np.zeros(3)
        for k, j in enumerate(numbers):
            kind = self._types[j].kind
            anchor = np.zeros(3) if kind == "floating" else np.array(a["jnt_pos"][j])
            last = k == len(numbers) - 1 and not anchor.any()
            next_link = child if last else unused_name(f"{child}/{k}", self._body_names)
            origin = moved(pose, anchor - position) if kind != "floating" else Pose()
            joints.append(self._joint(j, kind, parent, next_link, origin))
            parent, pose, position = next_link, Pose(), anchor
        if position.any():
            name = unused_name(f"{child}_fixed", self._joint_names)
            joints.append(Joint(name, "fixed", parent, child, Pose(three(-position))))
        return joints

    def _joint(self, j: int, kind: str, parent: str, child: str, origin: Pose) -> Joint:
        a, axis, mimic, limits = self._a, (0.0, 0.0, 1.0), None, Limits()
        if kind in ("revolute", "prismatic"):
            axis = three(a["jnt_axis"][j])
            origin = turned_back(origin, kind, axis, self._eq.zero(j))
            mimic = self._mimic_of(j)
            range = [float(x) for x in a["jnt_range"][j]] if a["jnt_limited"][j] else [-UNLIMITED, UNLIMITED]
            lower, upper = (None if abs(x) >= UNLIMITED else x for x in range)
            limits = Limits(lower, upper, self._effort(j))
            kind = "continuous" if kind == "revolute" and lower is upper is None else kind
        return Joint(self._joints[j], kind, parent, child, origin, axis, limits=limits, mimic=mimic)

    def _effort(self, j: int) -> float | None:
        """The limit of the total actuator force on a hinge or slide; None if there is none."""
        if not self._a["jnt_actfrclimited"][j]:
            return None
        least, most = (float(x) for x in self._a["jnt_actfrcrange"][j])
        if least != -most:
            message = "the forces of its actuators are limited unevenly; the larger limit is taken for both directions"
            self._notes.gather("mjcf-effort", f"joint {quoted(self._joints[j])}", message)
        return max(abs(least), abs(most))

    def _mimic_of(self, j: int) -> Mimic | None:
        """The mimic of a joint from an equality, None if it follows no joint."""
        equality = self._equalities.get(j)
        if equality is None:
            return None
        e, leader = equality
        offset, slope = (float(x) for x in self._a["eq_data"][e][:2])
        return Mimic(self._joints[leader], slope, self._eq.zero(j) + offset - slope * self._eq.zero(leader))

    def _followed_equalities(self) -> dict[int, tuple[int, int]]:
        """For each joint that follows another: its first such equality, and the other joint."""
        followed: dict[int, tuple[int, int]] = {}
        for e in range(self._a.size("neq")):
            if self._is_active(e) and (pair := self._eq.linear(e)):
                followed.setdefault(pair[0], (e, pair[1]))
        return followed

    def _is_active(self, e: int) -> bool:
        return bool(self._a["eq_active0"][e]) and not self._off

    # Findings.

    def _report(self) -> None:
        self._report_equalities()
        self._report_passive_forces()
        self._report_the_rest()

    def _report_equalities(self) -> None:
        notes, followed = self._notes, {e for e, _ in self._equalities.values()}
        for e in range(self._a.size("neq")):
            if not self._is_active(e) and not self._off:
                notes.gather("mjcf-equality", f"equality {e}", "it is off, and has no part", severity="info")
            if not self._is_active(e) or e in followed:
                continue
            reading = self._constraints.get(e) or Reading(None, f"that the tree does not have{self._hint(e)}")
            message = f" {reading.note}"
            if reading.constraint is not None:
                kind = type(reading.constraint).__name__
                message = f" becomes a {kind} that holds exactly, where MuJoCo's is soft{reading.note}"
                if self._soft:
                    message = f" becomes a {kind}{reading.note}"
            message = f"a constraint ({self._eq.kind(e)}){message}"
            notes.gather("mjcf-equality", f"equality {e}", message, severity=reading.severity)

    def _hint(self, e: int) -> str:
        """A hint on the option that keeps an equality."""
        if self._eq.linear(e):
            follows = self._equality == "mimic"
            return "; its joint follows another one already" if follows else "; equality='mimic' follows it"
        return "; equality='constraints' keeps it" if self._eq.kind(e) in ("connect", "weld") else ""

    def _held(self) -> dict[int, Reading]:
        """The constraint, or the reason why there is none, of each active equality."""
        names = self._names("equality", self._a.size("neq"))
        return {e: self._eq.reading(e, names[e]) for e in range(len(names)) if self._is_active(e)}

    def _report_passive_forces(self) -> None:
        a, notes = self._a, self._notes
        uneven = {j for k, j in zip(*actuated_joints(a), strict=True) if a.any("actuator_dampingpoly", k)}
        for j, joint in enumerate(self._joints):
            subject = f"joint {quoted(joint)}"
            v = self._dofs_of(j)
            if self._types[j].kind == "spherical" and a["jnt_limited"][j] and not self._soft:
                notes.gather("mjcf-limit", subject, "the range of a ball joint is not read")
            soft = [key for key, usual in _SOFTNESS.items() if not np.array_equal(np.ravel(a[key][j]), usual)]
            if soft and not self._soft:
                notes.gather("mjcf-softness", subject, f"{', '.join(soft)}: how soft its limit is, is not read")
            if not self._starts_neutral(j) and not self._soft:
                notes.gather("mjcf-initial-pose", subject, "where MuJoCo begins (qpos0) has no part in the model")
            if a["jnt_stiffness"][j] or a.any("jnt_stiffnesspoly", j):
                notes.gather("mjcf-spring", subject, "a spring; give its force as tau")
            if a.any("dof_dampingpoly", v) or j in uneven:
                message = "damping that is no linear function of the velocity; give its force as tau"
                notes.gather("mjcf-damping", subject, message)
            if self._types[j].kind == "floating" and np.any(self._coefficients["armature"][v]):
                message = "armature of a free joint, which MuJoCo takes times accelerations in the world: it adds w x v"
                notes.gather("mjcf-free-armature", subject, message)
            if self._types[j].kind == "floating" and np.any(self._coefficients["friction"][v]):
                message = "friction of a free joint, which MuJoCo takes along the world's axes; here the body's"
                notes.gather("mjcf-free-friction", subject, message)
        for b in np.flatnonzero(a["body_gravcomp"]).tolist():
            subject = f"body {quoted(self._bodies[b])}"
            notes.gather("mjcf-gravity-compensation", subject, "a force against gravity; give it as tau")

    def _report_the_rest(self) -> None:
        a, m, notes = self._a, self._m, self._notes
        if n := a.size("ntendon"):
            message = "tendons: their springs, damping, limits and armature have no part"
            notes.add("mjcf-tendon", "tendons", f"{n} of them; {message}")
        if n := a.size("nflex"):
            notes.add("mjcf-flex", "flexes", f"{n} of them; deformable bodies have no part")
        if n := a.size("nactuator"):
            message = "actuators: the model takes generalised forces"
            notes.add("mjcf-actuator", "actuators", f"{n} of them; {message}")
        tendons = np.flatnonzero(a["actuator_trntype"] == int(self._mujoco.mjtTrn.mjTRN_TENDON))
        for k in np.setdiff1d(np.arange(n), actuated_joints(a)[0]).tolist():
            if any(a.any(f"actuator_{each}", k) for each in ("armature", "damping", "dampingpoly")):
                message = "armature or damping of an actuator that drives a tendon has no part"
                if k not in tendons:
                    message = "armature or damping of an actuator, which MuJoCo leaves out as well, has no part"
                notes.gather("mjcf-actuator-coefficient", f"actuator {k}", message)
        if n := a.size("nmocap"):
            message = "bodies that are moved from outside stand still"
            notes.add("mjcf-mocap", "mocap bodies", f"{n} of them; {message}")
        if m.opt.density or m.opt.viscosity or np.any(m.opt.wind):
            notes.add("mjcf-fluid", "option", "a medium with density or viscosity has no part")
        if changed := self._options():
            notes.add("mjcf-option", "option", f"options of simulation are not read: {', '.join(changed)}")
        for size, what in _NOT_READ.items():
            if n := int(getattr(m, size, 0)):
                notes.add("ignored-tag", what, f"{n} of them, which have no part in dynamics; skipped")

    def _starts_neutral(self, j: int) -> bool:
        """True if a joint has its neutral coordinates in `qpos0`."""
        start, nq = int(self._a["jnt_qposadr"][j]), self._types[j].nq
        neutral = {1: (0.0,), 4: (1.0, 0.0, 0.0, 0.0), 7: (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)}[nq]
        return np.array_equal(self._a["qpos0"][start : start + nq], neutral)

    def _options(self) -> list[str]:
        """Names of options that differ from MuJoCo's defaults, without those that are read or reported elsewhere."""
        defaults, actual = self._mujoco.MjOption(), self._m.opt
        read = _OPTIONS | _OF_CONTACTS if self._soft else _OPTIONS
        names = [name for name in dir(defaults) if name[0] != "_" and name not in read]
        pairs: list[tuple[str, Any, Any]] = [(name, getattr(defaults, name), getattr(actual, name)) for name in names]
        return [name for name, a, b in pairs if not callable(a) and not np.array_equal(a, b)]

    def coefficients(self, model: Model) -> dict[str, Array]:
        """Armature, damping and friction (nv_tree,) of all degrees of freedom of the model."""
        order = self._dofs(model)
        return {name: values[order] for name, values in self._coefficients.items()}

    def with_configurations(self, model: Model, couplings: Mapping[str, Coupling]) -> Model:
        """Adds MuJoCo's keyframes, and with contacts where it begins. `couplings`: resolved mimics of the joints."""
        notes, starts = Notes(), dict(zip(self._joints, self._a["jnt_qposadr"].tolist(), strict=True))
        names = self._names("key", min(self._a.size("nkey"), MOST_KEYFRAMES))
        initial = self._soft and not all(map(self._starts_neutral, range(len(self._joints))))
        keyframes = configurations(self._a, names, starts, model, couplings, notes, initial)
        if not keyframes:
            return model
        return replace(model, configurations=keyframes, report=Report((*model.report, *notes.findings())))

    def with_contacts(self, model: Model, max_contacts: Any, unsupported: str) -> Model:
        """Adds contacts and other soft rows to the model."""
        names = {e: each.constraint.name for e, each in self._constraints.items() if each.constraint is not None}
        left = [self._eq.kind(e) for e, each in self._constraints.items() if each.constraint is None]
        read = Rows(self._bodies, self._joints, {e: name or "" for e, name in names.items()}, left)
        return with_mjcf_contacts(model, self._a, read, max_contacts, unsupported)

    def _dofs_of(self, j: int) -> slice:
        start = int(self._a["jnt_dofadr"][j])
        return slice(start, start + self._types[j].nv)

    def _dofs(self, model: Model) -> Array:
        """(nv_tree,) indices of MuJoCo's degrees of freedom in the model's order."""
        starts = dict(zip(self._joints, self._a["jnt_dofadr"].tolist(), strict=True))
        sizes = np.diff([*model.v_start.tolist(), model.nv_tree])
        indices = [starts[name] + np.arange(n) for name, n in zip(model.joint_names, sizes, strict=True)]
        return np.concatenate([np.empty(0, np.intp), *indices]).astype(np.intp)
