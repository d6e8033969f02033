"""MuJoCo's robots: a Model from what MuJoCo has compiled, exactly.

MuJoCo's own package reads MJCF: there is no second parser, and its defaults, includes, meshes and inertias from geoms
are what MuJoCo makes of them. Bodies become links, joints joints; what has no place in a tree of rigid bodies is
reported, never dropped in silence.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from robodyn.arguments import Array, flag, one_of
from robodyn.builders.assemble import assemble
from robodyn.builders.checks import check_and_resolve
from robodyn.builders.findings import Notes, Report
from robodyn.builders.foreign import foreign
from robodyn.builders.mjcf_files import checked_text, file_of
from robodyn.description import Inertial, Joint, Limits, Link, Mimic, Pose, RobotDescription, Rotation
from robodyn.errors import LoadError, RobodynError, UnavailableError
from robodyn.messages import quoted
from robodyn.model import Model

EQUALITY = ("report", "mimic")
"""What becomes of equalities between joints."""
TYPES = ("floating", "spherical", "prismatic", "revolute")
"""Ours of mjJNT_FREE, mjJNT_BALL, mjJNT_SLIDE and mjJNT_HINGE."""
_JOINT_EQUALITY = 2
_EQUALITIES = ("connect", "weld", "joint", "tendon", "flex", "distance")
_GRAVITY_OFF = 1 << 7
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
            exactly, where MuJoCo's constraint is soft.
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
        reader = _Reader(mujoco, compiled, equality == "mimic")
        description = reader.description()
    checked, mimics = check_and_resolve(description, mimic="follow", strict=strict)
    return reader.with_coefficients(assemble(checked, mimics, "fixed", reader.gravity))


def joint_names(mj_model: Any) -> list[str]:
    """The names that `load_mjcf` gives to MuJoCo's joints, in MuJoCo's order."""
    return _Reader(mujoco_module("load_mjcf"), mj_model, False).joint_names()


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
    if isinstance(source, mujoco.MjModel):
        return source
    try:
        if isinstance(source, mujoco.MjSpec):
            return source.copy().compile()
        path = file_of(source)
        if path is None:
            return mujoco.MjModel.from_xml_string(checked_text(source))
        return (mujoco.MjModel.from_binary_path if path.suffix == ".mjb" else mujoco.MjModel.from_xml_path)(str(path))
    except RobodynError:
        raise
    except (ValueError, TypeError, mujoco.FatalError) as error:
        raise LoadError(f"MuJoCo does not compile it: {' '.join(str(error).split())}") from None


class _Reader:
    """A mjModel, read."""

    def __init__(self, mujoco: Any, m: Any, mimic: bool) -> None:
        self._mujoco, self._m, self._mimic, self._notes = mujoco, m, mimic, Notes()
        off = int(m.opt.disableflags) & _GRAVITY_OFF
        self.gravity = np.zeros(3) if off else np.array(m.opt.gravity, dtype=np.float64)
        self._taken: set[str] = set()
        self._bodies = [self._name("body", b) for b in range(int(m.nbody))]
        self._taken = set()
        self._joints = [self._name("joint", j) for j in range(int(m.njnt))]

    def _name(self, kind: str, number: int) -> str:
        """Of a body or a joint; MuJoCo's are unique, those made up step aside."""
        enum = {"body": self._mujoco.mjtObj.mjOBJ_BODY, "joint": self._mujoco.mjtObj.mjOBJ_JOINT}[kind]
        name = self._mujoco.mj_id2name(self._m, enum, number) or f"{kind}_{number}"
        while name in self._taken:
            name = f"_{name}"
        self._taken.add(name)
        return name

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
        return RobotDescription(name, tuple(links), tuple(joints), Report(self._notes.findings()))

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
            Pose(_three(m.body_ipos[b]), _rotation(m.body_iquat[b])),
            (moments[0], 0.0, 0.0, moments[1], 0.0, moments[2]),
        )

    def _joints_of(self, b: int) -> list[Joint]:
        """The joints between a body and its parent, in MuJoCo's order, the last one's child being the body."""
        m, parent, child = self._m, self._bodies[int(self._m.body_parentid[b])], self._bodies[b]
        own = range(int(m.body_jntadr[b]), int(m.body_jntadr[b]) + int(m.body_jntnum[b]))
        placed = Pose(_three(m.body_pos[b]), _rotation(m.body_quat[b]))
        if not own:
            return [Joint(self._between(f"{child}_fixed"), "fixed", parent, child, placed)]
        made, at = [], np.zeros(3)
        for k, j in enumerate(own):
            kind = TYPES[int(m.jnt_type[j])]
            anchor = np.zeros(3) if kind == "floating" else np.array(m.jnt_pos[j])
            last = k == len(own) - 1 and not anchor.any()
            after = child if last else self._link_between(f"{child}/{k}")
            origin = _moved(placed, anchor - at) if kind != "floating" else Pose()
            made.append(self._joint(j, kind, parent, after, origin))
            parent, placed, at = after, Pose(), anchor
        if at.any():
            made.append(Joint(self._between(f"{child}_fixed"), "fixed", parent, child, Pose(_three(-at))))
        return made

    def _between(self, name: str) -> str:
        """A joint's name that no other has."""
        while name in self._joints:
            name = f"_{name}"
        self._joints.append(name)
        return name

    def _link_between(self, name: str) -> str:
        while name in self._bodies:
            name = f"_{name}"
        self._bodies.append(name)
        return name

    def _joint(self, j: int, kind: str, parent: str, child: str, origin: Pose) -> Joint:
        m, q = self._m, int(self._m.jnt_qposadr[j])
        axis, mimic, limits = (0.0, 0.0, 1.0), None, Limits()
        if kind in ("revolute", "prismatic"):
            axis = _three(m.jnt_axis[j])
            origin = _turned_back(origin, kind, axis, float(m.qpos0[q]))
            mimic = self._followed(j)
            lower, upper = (float(x) for x in m.jnt_range[j]) if m.jnt_limited[j] else (None, None)
            effort = float(np.abs(m.jnt_actfrcrange[j]).max()) if m.jnt_actfrclimited[j] else None
            limits = Limits(lower, upper, effort)
            kind = "continuous" if kind == "revolute" and lower is None else kind
        return Joint(self._joints[j], kind, parent, child, origin, axis, limits=limits, mimic=mimic)

    def _followed(self, j: int) -> Mimic | None:
        """What a joint follows by an equality, where that was asked for."""
        m = self._m
        for e in range(int(m.neq)) if self._mimic else ():
            if self._is_linear(e) and int(m.eq_obj1id[e]) == j:
                leader, a = int(m.eq_obj2id[e]), m.eq_data[e]
                zero, its_zero = (float(m.qpos0[int(m.jnt_qposadr[each])]) for each in (j, leader))
                return Mimic(self._joints[leader], float(a[1]), zero + float(a[0]) - float(a[1]) * its_zero)
        return None

    def _is_linear(self, e: int) -> bool:
        """Whether an equality makes one joint a linear function of another."""
        m = self._m
        return (
            int(m.eq_type[e]) == _JOINT_EQUALITY
            and bool(m.eq_active0[e])
            and int(m.eq_obj2id[e]) >= 0
            and not np.any(m.eq_data[e][2:5])
        )

    # What is said of the rest.

    def _report(self) -> None:
        self._report_equalities()
        self._report_passive_forces()
        self._report_the_rest()

    def _report_equalities(self) -> None:
        m, notes = self._m, self._notes
        for e in range(int(m.neq)):
            followed = self._mimic and self._is_linear(e)
            if m.eq_active0[e] and not followed:
                kind = int(m.eq_type[e])
                what = _EQUALITIES[kind] if kind < len(_EQUALITIES) else str(kind)
                hint = "; equality='mimic' follows it" if self._is_linear(e) else ""
                message = f"a constraint ({what}) that the tree does not have{hint}"
                notes.gather("mjcf-equality", f"equality {e}", message)

    def _report_passive_forces(self) -> None:
        m, notes = self._m, self._notes
        for j in range(int(m.njnt)):
            at = f"joint {quoted(self._joints[j])}"
            v = slice(int(m.jnt_dofadr[j]), int(m.jnt_dofadr[j]) + (6, 3, 1, 1)[int(m.jnt_type[j])])
            if m.jnt_stiffness[j] or np.any(_more(m, "jnt_stiffnesspoly", j)):
                notes.gather("mjcf-spring", at, "a spring; give its force as tau")
            if np.any(_more(m, "dof_dampingpoly", v)):
                message = "damping that is no linear function of the velocity; give its force as tau"
                notes.gather("mjcf-damping", at, message)
            if int(m.jnt_type[j]) == 0 and np.any(m.dof_armature[v]):
                message = "armature of a free joint, which MuJoCo takes times accelerations in the world: it adds w x v"
                notes.gather("mjcf-free-armature", at, message)
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
        if m.nmocap:
            message = "bodies that are moved from outside stand still"
            notes.add("mjcf-mocap", "mocap bodies", f"{int(m.nmocap)} of them; {message}")
        if m.opt.density or m.opt.viscosity or np.any(m.opt.wind):
            notes.add("mjcf-fluid", "option", "a medium with density or viscosity has no part")

    def with_coefficients(self, model: Model) -> Model:
        """Armature, damping and friction of every degree of freedom, those of actuators with them."""
        m = self._m
        armature = np.array(m.dof_armature, dtype=np.float64)
        for a in range(int(m.nu)):
            rotor = float(m.actuator_armature[a]) if hasattr(m, "actuator_armature") else 0.0
            if rotor and int(m.actuator_trntype[a]) in _JOINT_TRANSMISSIONS:
                start = int(m.jnt_dofadr[int(m.actuator_trnid[a][0])])
                gear = np.array(m.actuator_gear[a])
                n = (6, 3, 1, 1)[int(m.jnt_type[int(m.actuator_trnid[a][0])])]
                armature[start : start + n] += gear[:n] ** 2 * rotor
        order = self._dofs(model)
        damping, friction = (np.array(each, dtype=np.float64) for each in (_first(m.dof_damping), m.dof_frictionloss))
        return dataclasses.replace(
            model, tree_armature=armature[order], tree_damping=damping[order], tree_friction=friction[order]
        )

    def _dofs(self, model: Model) -> Array:
        """(nv_tree,) MuJoCo's degrees of freedom in our order."""
        starts = {self._joints[j]: int(self._m.jnt_dofadr[j]) for j in range(int(self._m.njnt))}
        sizes = np.diff([*model.v_start.tolist(), model.nv_tree])
        places = [starts[name] + np.arange(n) for name, n in zip(model.joint_names, sizes, strict=True)]
        return np.concatenate([np.empty(0, np.intp), *places]).astype(np.intp)


def _first(damping: Any) -> Array:
    """Linear coefficients."""
    array = np.asarray(damping)
    return array if array.ndim == 1 else array[:, 0]


def _more(m: Any, name: str, at: Any) -> Any:
    """Coefficients that only newer versions of MuJoCo have."""
    return getattr(m, name)[at] if hasattr(m, name) else 0.0


def _three(values: Any) -> tuple[float, float, float]:
    x, y, z = (float(each) for each in values)
    return x, y, z


def _rotation(quaternion: Any) -> Rotation:
    """The axes (row-major) of a frame turned by a quaternion wxyz."""
    w, x, y, z = (float(each) for each in np.asarray(quaternion) / np.linalg.norm(quaternion))
    return (
        1.0 - 2.0 * (y * y + z * z),
        2.0 * (x * y - w * z),
        2.0 * (x * z + w * y),
        2.0 * (x * y + w * z),
        1.0 - 2.0 * (x * x + z * z),
        2.0 * (y * z - w * x),
        2.0 * (x * z - w * y),
        2.0 * (y * z + w * x),
        1.0 - 2.0 * (x * x + y * y),
    )


def _moved(pose: Pose, step: Array) -> Pose:
    """A pose moved by a vector in its own axes."""
    R = np.array(pose.rotation).reshape(3, 3)
    return Pose(_three(np.array(pose.xyz) + R @ step), pose.rotation)


def _turned_back(pose: Pose, kind: str, axis: tuple[float, float, float], zero: float) -> Pose:
    """The frame of a joint at coordinate zero, whose frame at `zero` is given."""
    if zero == 0.0:
        return pose
    if kind == "prismatic":
        return _moved(pose, -zero * np.array(axis))
    quaternion = np.concatenate([[np.cos(0.5 * zero)], -np.sin(0.5 * zero) * np.array(axis)])
    R = np.array(pose.rotation).reshape(3, 3) @ np.array(_rotation(quaternion)).reshape(3, 3)
    return Pose(pose.xyz, tuple(R.ravel().tolist()))
