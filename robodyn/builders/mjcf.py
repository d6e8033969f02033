"""MuJoCo's robots: a Model from what MuJoCo has compiled, exactly.

MuJoCo's own package reads MJCF: there is no second parser, and its defaults, includes, meshes and inertias from geoms
are what MuJoCo makes of them. Bodies become links, joints joints; what has no place in a tree of rigid bodies is
reported, never dropped in silence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn import exact
from robodyn.arguments import Array, flag, one_of
from robodyn.builders.assemble import assemble, unused_name
from robodyn.builders.checks import check_and_resolve
from robodyn.builders.coefficients import finite_gravity, with_coefficients
from robodyn.builders.findings import Notes, Report
from robodyn.builders.foreign import foreign
from robodyn.builders.mjcf_equalities import KINDS as EQUALITIES
from robodyn.builders.mjcf_equalities import constraint_of
from robodyn.builders.mjcf_files import contents, is_binary, self_contained
from robodyn.builders.mjcf_frames import moved, rotation, three, turned_back
from robodyn.constraints.kinds import Constraint
from robodyn.description import UNLIMITED, Inertial, Joint, Limits, Link, Mimic, Pose, RobotDescription, Severity
from robodyn.errors import LoadError, RobodynError, UnavailableError
from robodyn.messages import quoted
from robodyn.model import Model

EQUALITY = ("report", "mimic", "constraints")
"""What becomes of equalities between joints."""
TYPES = ("floating", "spherical", "prismatic", "revolute")
"""Ours of mjJNT_FREE, mjJNT_BALL, mjJNT_SLIDE and mjJNT_HINGE."""
_NV, _NQ = (6, 3, 1, 1), (7, 4, 1, 1)
"""Their numbers of velocities and coordinates."""
_UNIT = 1e-6
"""How far a length may be from 1."""
_JOINT_EQUALITY = 2
_CONSTRAINT_OFF, _EQUALITY_OFF, _GRAVITY_OFF = 1 << 0, 1 << 1, 1 << 7
_JOINT_TRANSMISSIONS = (0, 1)


def load_mjcf(source: Any, equality: str = "report", strict: bool = True) -> Model:
    """Load a robot from MuJoCo: MJCF, or what MuJoCo has made of it. Needs the extra `mujoco`.

    The root link is the world; free bodies float under it. Coordinates, velocities and their order are this library's
    (`robodyn.converter` has the way to MuJoCo's): q of hinges and slides equals qpos. Bodies with several joints have
    massless links "body/0" and so on between them. Springs, actuators, tendons, contacts and equalities have no part in
    the model: `model.report` lists them.

    Args:
        source: a path (.xml or .mjcf, or .mjb of this version of MuJoCo), MJCF text, a `mujoco.MjSpec` or a
            `mujoco.MjModel`. A file opens what it includes, and meshes and textures that it names.
        equality: "report": equalities are reported; "mimic": where one joint is a linear function of another it follows
            exactly, where MuJoCo's constraint is soft; "constraints": those of two bodies (connect, weld) and those
            that are linear in joints' coordinates become `model.constraints`, which hold exactly, too.
        strict: whether inertias that no body can have are refused; if not, they are used and reported.

    Returns:
        The model, with MuJoCo's gravity, armature, damping, friction and limits.

    Raises:
        LoadError: MuJoCo cannot compile it, or it is no usable robot; names the reason.
        ArgumentError: an option that does not exist, or a source of no such kind.
        UnavailableError: MuJoCo is not installed.
    """
    equality, strict = one_of("equality", equality, EQUALITY), flag("strict", strict)
    mujoco = mujoco_module("load_mjcf")
    compiled = _compiled(mujoco, source)
    with foreign("the mjModel"):
        reader = _Reader(mujoco, compiled, equality)
        description = reader.description()
    checked, mimics = check_and_resolve(description, mimic="follow", strict=strict)
    model = assemble(checked, mimics, "fixed", reader.gravity)
    return with_coefficients(model, reader.coefficients(model), "mjcf", strict)


def joint_names(mj_model: Any) -> list[str]:
    """The names that `load_mjcf` gives to MuJoCo's joints, in MuJoCo's order."""
    return _Reader(mujoco_module("load_mjcf"), mj_model, "report").joint_names()


def mujoco_module(asked: str) -> Any:
    """The module, for what is asked for.

    Raises:
        UnavailableError: it is not installed.
    """
    try:
        import mujoco
    except ImportError as error:
        raise UnavailableError(
            f"{asked}: MuJoCo cannot be imported here ({error}): pip install 'robodyn[mujoco]'"
        ) from error
    return mujoco


def _compiled(mujoco: Any, source: Any) -> Any:
    """The mjModel of a source.

    Raises:
        LoadError: MuJoCo refuses it.
    """
    if exact.is_a(source, mujoco.MjModel):
        return source
    try:
        if exact.is_a(source, mujoco.MjSpec):
            return source.copy().compile()
        data, path = contents(source)
        if is_binary(data):
            return mujoco.MjModel.from_binary_path("model.mjb", {"model.mjb": data})
        return mujoco.MjModel.from_xml_string(*self_contained(data, path))
    except RobodynError:
        raise
    except (ValueError, TypeError, mujoco.FatalError) as error:
        raise LoadError(f"MuJoCo does not compile it: {' '.join(str(error).split())}") from None


class _Reader:
    """A mjModel, read."""

    def __init__(self, mujoco: Any, m: Any, equality: str) -> None:
        self._mujoco, self._m, self._equality, self._notes = mujoco, m, equality, Notes()
        off = int(m.opt.disableflags) & _GRAVITY_OFF
        self.gravity = np.zeros(3) if off else finite_gravity(np.array(m.opt.gravity, dtype=np.float64))
        _require_consistent(m)
        objects = mujoco.mjtObj
        self._bodies = self._names("body", objects.mjOBJ_BODY, int(m.nbody))
        self._joints = self._names("joint", objects.mjOBJ_JOINT, int(m.njnt))
        self._body_names, self._joint_names = set(self._bodies), set(self._joints)
        self._off = int(m.opt.disableflags) & (_CONSTRAINT_OFF | _EQUALITY_OFF)
        self._equalities = self._followed_equalities() if equality == "mimic" else {}
        self._constraints = self._held() if equality == "constraints" else {}
        self._coefficients = self._of_dofs()

    def _names(self, kind: str, enum: Any, n: int) -> list[str]:
        """Of bodies or joints; MuJoCo's are unique, those made up step aside."""
        given = [self._mujoco.mj_id2name(self._m, enum, number) for number in range(n)]
        taken = set(given)
        return [
            name if name and name.strip() else unused_name(f"{kind}_{number}", taken)
            for number, name in enumerate(given)
        ]

    def joint_names(self) -> list[str]:
        """Of MuJoCo's joints."""
        return self._joints[: int(self._m.njnt)]

    def description(self) -> RobotDescription:
        """Bodies as links, joints as joints."""
        m, links, joints = self._m, [Link(self._bodies[0])], []
        for b in range(1, int(m.nbody)):
            made = self._joints_of(b)
            links += [Link(joint.child) for joint in made[:-1]]
            links.append(Link(self._bodies[b], self._inertial(b)))
            joints += made
        self._report()
        with foreign("the mjModel's names"):
            name = self._model_name()
        held = tuple(each for each in self._constraints.values() if not isinstance(each, str))
        report = Report(self._notes.findings())
        return RobotDescription(name, tuple(links), tuple(joints), report, constraints=held)

    def _model_name(self) -> str:
        text = bytes(self._m.names)
        return text[: text.index(b"\0")].decode("utf-8", errors="replace") or "robot"

    def _inertial(self, b: int) -> Inertial | None:
        m = self._m
        moments = [float(x) for x in m.body_inertia[b]]
        if not m.body_mass[b] and not any(moments):
            return None
        return Inertial(
            float(m.body_mass[b]),
            Pose(three(m.body_ipos[b]), rotation(m.body_iquat[b])),
            (moments[0], 0.0, 0.0, moments[1], 0.0, moments[2]),
        )

    def _joints_of(self, b: int) -> list[Joint]:
        """The joints between a body and its parent, in MuJoCo's order, the last one's child being the body."""
        m, parent, child = self._m, self._bodies[int(self._m.body_parentid[b])], self._bodies[b]
        own = range(int(m.body_jntadr[b]), int(m.body_jntadr[b]) + int(m.body_jntnum[b]))
        placed = Pose(three(m.body_pos[b]), rotation(m.body_quat[b]))
        if not own:
            return [Joint(unused_name(f"{child}_fixed", self._joint_names), "fixed", parent, child, placed)]
        made, at = [], np.zeros(3)
        for k, j in enumerate(own):
            kind = TYPES[int(m.jnt_type[j])]
            anchor = np.zeros(3) if kind == "floating" else np.array(m.jnt_pos[j])
            last = k == len(own) - 1 and not anchor.any()
            after = child if last else unused_name(f"{child}/{k}", self._body_names)
            origin = moved(placed, anchor - at) if kind != "floating" else Pose()
            made.append(self._joint(j, kind, parent, after, origin))
            parent, placed, at = after, Pose(), anchor
        if at.any():
            name = unused_name(f"{child}_fixed", self._joint_names)
            made.append(Joint(name, "fixed", parent, child, Pose(three(-at))))
        return made

    def _joint(self, j: int, kind: str, parent: str, child: str, origin: Pose) -> Joint:
        m, q = self._m, int(self._m.jnt_qposadr[j])
        axis, mimic, limits = (0.0, 0.0, 1.0), None, Limits()
        if kind in ("revolute", "prismatic"):
            axis = three(m.jnt_axis[j])
            origin = turned_back(origin, kind, axis, float(m.qpos0[q]))
            mimic = self._followed(j)
            ends = [float(x) for x in m.jnt_range[j]] if m.jnt_limited[j] else [-UNLIMITED, UNLIMITED]
            lower, upper = (None if abs(x) >= UNLIMITED else x for x in ends)
            effort = float(np.abs(m.jnt_actfrcrange[j]).max()) if m.jnt_actfrclimited[j] else None
            limits = Limits(lower, upper, effort)
            kind = "continuous" if kind == "revolute" and lower is upper is None else kind
        return Joint(self._joints[j], kind, parent, child, origin, axis, limits=limits, mimic=mimic)

    def _followed(self, j: int) -> Mimic | None:
        """What a joint follows by an equality, where that was asked for."""
        m, e = self._m, self._equalities.get(j)
        if e is None:
            return None
        leader, a = int(m.eq_obj2id[e]), m.eq_data[e]
        zero, its_zero = (float(m.qpos0[int(m.jnt_qposadr[each])]) for each in (j, leader))
        return Mimic(self._joints[leader], float(a[1]), zero + float(a[0]) - float(a[1]) * its_zero)

    def _followed_equalities(self) -> dict[int, int]:
        """Of each joint that follows another, the equality: the first, where there are more."""
        found: dict[int, int] = {}
        for e in range(int(self._m.neq)):
            if self._is_linear(e):
                found.setdefault(int(self._m.eq_obj1id[e]), e)
        return found

    def _is_linear(self, e: int) -> bool:
        """Whether an equality makes one joint a linear function of another."""
        m = self._m
        return (
            int(m.eq_type[e]) == _JOINT_EQUALITY
            and self._is_active(e)
            and int(m.eq_obj2id[e]) >= 0
            and not np.any(m.eq_data[e][2:5])
        )

    def _is_active(self, e: int) -> bool:
        return bool(self._m.eq_active0[e]) and not self._off

    # What is said of the rest.

    def _report(self) -> None:
        self._report_equalities()
        self._report_passive_forces()
        self._report_the_rest()

    def _report_equalities(self) -> None:
        m, notes = self._m, self._notes
        followed = set(self._equalities.values())
        for e in range(int(m.neq)):
            if not self._is_active(e) and not self._off:
                notes.gather("mjcf-equality", f"equality {e}", "it is off, and has no part", severity="info")
            if not self._is_active(e) or e in followed:
                continue
            kind = int(m.eq_type[e])
            what = f"a constraint ({EQUALITIES[kind] if kind < len(EQUALITIES) else str(kind)})"
            held = self._constraints.get(e)
            if held is None:
                message = f"{what} that the tree does not have{self._hint(e, kind)}"
            elif isinstance(held, str):
                message = f"{what} {held}"
            else:
                message = f"{what} becomes a {type(held).__name__} that holds exactly, where MuJoCo's is soft"
            severity: Severity = "warning" if held is None or isinstance(held, str) else "info"
            notes.gather("mjcf-equality", f"equality {e}", message, severity=severity)

    def _hint(self, e: int, kind: int) -> str:
        """How to have an equality that is left out."""
        if self._is_linear(e):
            follows = self._equality == "mimic"
            return "; its joint follows another one already" if follows else "; equality='mimic' follows it"
        return "; equality='constraints' keeps it" if kind < _JOINT_EQUALITY else ""

    def _held(self) -> dict[int, Constraint | str]:
        """Of each equality, its constraint, or why there is none."""
        names = self._names("equality", self._mujoco.mjtObj.mjOBJ_EQUALITY, int(self._m.neq))
        return {
            e: constraint_of(self._m, e, names[e], self._bodies, self._joints)
            for e in range(int(self._m.neq))
            if self._is_active(e)
        }

    def _report_passive_forces(self) -> None:
        m, notes = self._m, self._notes
        uneven = {
            int(m.actuator_trnid[a][0])
            for a in range(int(m.nu))
            if self._turns_a_joint(a) and np.any(_more(m, "actuator_dampingpoly", a))
        }
        for j in range(int(m.njnt)):
            at = f"joint {quoted(self._joints[j])}"
            v = self._dofs_of(j)
            if m.jnt_stiffness[j] or np.any(_more(m, "jnt_stiffnesspoly", j)):
                notes.gather("mjcf-spring", at, "a spring; give its force as tau")
            if np.any(_more(m, "dof_dampingpoly", v)) or j in uneven:
                message = "damping that is no linear function of the velocity; give its force as tau"
                notes.gather("mjcf-damping", at, message)
            if int(m.jnt_type[j]) == 0 and np.any(self._coefficients["armature"][v]):
                message = "armature of a free joint, which MuJoCo takes times accelerations in the world: it adds w x v"
                notes.gather("mjcf-free-armature", at, message)
            if int(m.jnt_type[j]) == 0 and np.any(self._coefficients["friction"][v]):
                message = "friction of a free joint, which MuJoCo takes along the world's axes; here the body's"
                notes.gather("mjcf-free-friction", at, message)
        for b in range(int(m.nbody)):
            if m.body_gravcomp[b]:
                at = f"body {quoted(self._bodies[b])}"
                notes.gather("mjcf-gravity-compensation", at, "a force against gravity; give it as tau")

    def _report_the_rest(self) -> None:
        m, notes = self._m, self._notes
        if m.ntendon:
            message = "tendons: their springs, damping, limits and armature have no part"
            notes.add("mjcf-tendon", "tendons", f"{int(m.ntendon)} of them; {message}")
        if m.nflex:
            notes.add("mjcf-flex", "flexes", f"{int(m.nflex)} of them; deformable bodies have no part")
        if m.nu:
            message = "actuators: the model takes generalised forces"
            notes.add("mjcf-actuator", "actuators", f"{int(m.nu)} of them; {message}")
        for a in range(int(m.nu)):
            more = ("actuator_armature", "actuator_damping", "actuator_dampingpoly")
            if not self._turns_a_joint(a) and any(np.any(_more(m, name, a)) for name in more):
                message = "armature or damping of an actuator that turns no joint by itself has no part"
                notes.gather("mjcf-actuator-coefficient", f"actuator {a}", message)
        if m.nmocap:
            message = "bodies that are moved from outside stand still"
            notes.add("mjcf-mocap", "mocap bodies", f"{int(m.nmocap)} of them; {message}")
        if m.opt.density or m.opt.viscosity or np.any(m.opt.wind):
            notes.add("mjcf-fluid", "option", "a medium with density or viscosity has no part")

    def coefficients(self, model: Model) -> dict[str, Array]:
        """Armature, damping and friction (nv_tree,) of every degree of freedom of the model."""
        order = self._dofs(model)
        return {name: values[order] for name, values in self._coefficients.items()}

    def _of_dofs(self) -> dict[str, Array]:
        """The same in MuJoCo's order, those of actuators with them: all degrees of freedom of a joint feel theirs by
        the first number of the gear."""
        m = self._m
        armature, damping, friction = (
            np.array(each, dtype=np.float64) for each in (m.dof_armature, _first(m.dof_damping), m.dof_frictionloss)
        )
        for a in range(int(m.nu)):
            if self._turns_a_joint(a):
                own, ratio = self._dofs_of(int(m.actuator_trnid[a][0])), float(m.actuator_gear[a][0]) ** 2
                armature[own] += ratio * float(_more(m, "actuator_armature", a))
                damping[own] += ratio * float(_more(m, "actuator_damping", a))
        return {"armature": armature, "damping": damping, "friction": friction}

    def _turns_a_joint(self, a: int) -> bool:
        return int(self._m.actuator_trntype[a]) in _JOINT_TRANSMISSIONS

    def _dofs_of(self, j: int) -> slice:
        start = int(self._m.jnt_dofadr[j])
        return slice(start, start + _NV[int(self._m.jnt_type[j])])

    def _dofs(self, model: Model) -> Array:
        """(nv_tree,) MuJoCo's degrees of freedom in our order."""
        starts = {self._joints[j]: int(self._m.jnt_dofadr[j]) for j in range(int(self._m.njnt))}
        sizes = np.diff([*model.v_start.tolist(), model.nv_tree])
        places = [starts[name] + np.arange(n) for name, n in zip(model.joint_names, sizes, strict=True)]
        return np.concatenate([np.empty(0, np.intp), *places]).astype(np.intp)


def _require_consistent(m: Any) -> None:
    """Raise where a mjModel was changed so that joints and bodies contradict each other.

    Raises:
        LoadError: names the field.
    """
    types, bodies = np.array(m.jnt_type), np.arange(int(m.nbody))
    if ((types < 0) | (types >= len(TYPES))).any():
        raise LoadError(f"the mjModel: jnt_type is {types.tolist()}; wanted numbers from 0 to {len(TYPES) - 1}")
    ends = {letter: np.cumsum([0, *np.array(sizes)[types]]) for letter, sizes in (("v", _NV), ("q", _NQ))}
    count = np.array(m.body_jntnum)
    before = np.cumsum(count) - count
    for name, wanted in (
        ("jnt_dofadr", ends["v"][:-1]),
        ("jnt_qposadr", ends["q"][:-1]),
        ("nv", ends["v"][-1]),
        ("nq", ends["q"][-1]),
        ("njnt", count.sum()),
        ("body_jntadr", np.where(count > 0, before, -1)),
        ("jnt_bodyid", np.repeat(bodies, np.maximum(count, 0))),
    ):
        if not np.array_equal(np.array(getattr(m, name)), wanted):
            raise LoadError(f"the mjModel: {name} contradicts the types and numbers of its joints, as after an edit")
    parents = np.array(m.body_parentid)
    if (parents[1:] >= bodies[1:]).any() or (parents < 0).any():
        raise LoadError("the mjModel: body_parentid has a body that stands before its parent, as after an edit")
    if not np.array_equal(np.array(m.dof_parentid), _parents_of_dofs(parents, np.cumsum(count), count, ends["v"])):
        raise LoadError("the mjModel: dof_parentid contradicts body_parentid, as after an edit")
    for name, width in (("body_quat", 4), ("body_iquat", 4), ("jnt_axis", 3)):
        rows = np.array(getattr(m, name)).reshape(-1, width)
        used = types >= TYPES.index("prismatic") if name == "jnt_axis" else np.full(len(rows), True)
        wrong = np.flatnonzero(used & ~(np.abs(np.linalg.norm(rows, axis=1) - 1.0) < _UNIT))
        if wrong.size:
            i = int(wrong[0])
            raise LoadError(
                f"the mjModel: {name}[{i}] is {rows[i].tolist()}; wanted unit length, as MuJoCo compiles it"
            )


def _parents_of_dofs(parents: Array, after: Array, count: Array, start: Array) -> Array:
    """(nv,) of each degree of freedom the one before it on the way to the world, -1 for none. `after` is the joint
    after those of each body, `count` their number; `start` (njnt + 1,) where joints' degrees of freedom begin."""
    found, last = np.arange(start[-1]) - 1, np.full(len(parents), -1)
    for b, (parent, end, n) in enumerate(zip(parents.tolist(), after.tolist(), count.tolist(), strict=True)):
        last[b] = last[parent] if b else -1
        if n:
            found[start[end - n]] = last[b]
            last[b] = start[end] - 1
    return found


def _first(damping: Any) -> Array:
    """Linear coefficients."""
    array = np.asarray(damping)
    return array if array.ndim == 1 else array[:, 0]


def _more(m: Any, name: str, at: Any) -> Any:
    """Coefficients that only newer versions of MuJoCo have."""
    return getattr(m, name)[at] if hasattr(m, name) else 0.0
