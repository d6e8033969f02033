"""Access to the arrays of a mjModel and a mjData. Arrays with unexpected shapes are refused.

The meaning of MuJoCo's sizes changes between versions. Since 3.11 `nu` is the number of controls, an actuator can have
several or no controls, and gears have a row for each output of an actuator. The checks of shapes turn further changes
into errors instead of wrong results.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.internals.errors import LoadError

_FIRST = (3, 2)
"""The oldest version of MuJoCo that is read."""


class _Declared(NamedTuple):
    """The declaration of an array.

    `rows`: the size that is its number of rows; `widths`: allowed lengths of a row, as numbers or names of sizes, empty
    if a row is one number; `since`: the first version of MuJoCo that has it.
    """

    rows: str
    widths: tuple[int | str, ...]
    since: tuple[int, ...]


def _declared(rows: str, names: str, *widths: int | str, since: tuple[int, ...] = _FIRST) -> dict[str, _Declared]:
    return dict.fromkeys(names.split(), _Declared(rows, widths, since))


ARRAYS = {
    **_declared("nbody", "body_parentid body_jntnum body_jntadr body_mass body_gravcomp"),
    **_declared("nbody", "body_pos body_ipos body_inertia", 3),
    **_declared("nbody", "body_quat body_iquat", 4),
    **_declared("nbody", "body_weldid"),
    **_declared("nbody", "body_invweight0", 2),
    **_declared("njnt", "jnt_type jnt_bodyid jnt_qposadr jnt_dofadr jnt_limited jnt_actfrclimited jnt_stiffness"),
    **_declared("njnt", "jnt_pos jnt_axis", 3),
    **_declared("njnt", "jnt_margin"),
    **_declared("njnt", "jnt_solref", 2),
    **_declared("njnt", "jnt_solimp", 5),
    **_declared("njnt", "jnt_range jnt_actfrcrange", 2),
    **_declared("njnt", "jnt_actuatorid", since=(3, 7)),
    **_declared("njnt", "jnt_stiffnesspoly", 2, since=(3, 7)),
    **_declared("nv", "dof_parentid dof_armature dof_damping dof_frictionloss dof_invweight0"),
    **_declared("nv", "dof_solref", 2),
    **_declared("nv", "dof_solimp", 5),
    **_declared("nv", "dof_dampingpoly", 2, since=(3, 7)),
    **_declared("nq", "qpos0"),
    **_declared("nsite", "site_bodyid"),
    **_declared("nsite", "site_pos", 3),
    **_declared("nsite", "site_quat", 4),
    **_declared("nactuator", "actuator_trntype"),
    **_declared("nactuator", "actuator_trnid", 2),
    **_declared("nactuator", "actuator_armature actuator_damping", since=(3, 7)),
    **_declared("nactuator", "actuator_dampingpoly", 2, since=(3, 7)),
    **_declared("nactuator", "actuator_outadr", since=(3, 11)),
    **_declared("nactuator", "actuator_dyntype actuator_gaintype actuator_biastype actuator_actlimited"),
    **_declared("nactuator", "actuator_forcelimited actuator_actearly"),
    **_declared("nactuator", "actuator_dynprm actuator_gainprm actuator_biasprm", 9, 10),
    **_declared("nactuator", "actuator_forcerange actuator_actrange", 2),
    **_declared("nactuator", "actuator_ctrlnum actuator_outnum actuator_ctrladr", since=(3, 11)),
    **_declared("nu", "actuator_ctrllimited"),
    **_declared("nu", "actuator_ctrlrange", 2),
    **_declared("nout", "actuator_gear", 6),
    **_declared("nsensor", "sensor_type sensor_objtype sensor_objid sensor_reftype sensor_refid"),
    **_declared("nsensor", "sensor_cutoff sensor_noise"),
    **_declared("nexclude", "exclude_signature"),
    **_declared("npair", "pair_dim pair_geom1 pair_geom2 pair_margin pair_gap"),
    **_declared("npair", "pair_solref pair_solreffriction", 2),
    **_declared("npair", "pair_solimp pair_friction", 5),
    **_declared("npair", "pair_adhesion", since=(4, 0)),
    **_declared("neq", "eq_type eq_obj1id eq_obj2id eq_active0"),
    **_declared("neq", "eq_objtype", since=(3, 2, 3)),
    **_declared("neq", "eq_data", 11, 12),
    **_declared("neq", "eq_solref", 2),
    **_declared("neq", "eq_solimp", 5),
    **_declared("ngeom", "geom_type geom_contype geom_conaffinity geom_condim geom_bodyid geom_dataid geom_matid"),
    **_declared("ngeom", "geom_group geom_priority geom_solmix geom_margin geom_gap"),
    **_declared("ngeom", "geom_adhesion", since=(4, 0)),
    **_declared("ngeom", "geom_surfacevel", 6, since=(3, 11)),
    **_declared("ngeom", "geom_solref", 2),
    **_declared("ngeom", "geom_size geom_pos geom_friction", 3),
    **_declared("ngeom", "geom_quat geom_rgba", 4),
    **_declared("ngeom", "geom_solimp", 5),
    **_declared("nmesh", "mesh_pathadr"),
    **_declared("nmesh", "mesh_pos mesh_scale", 3),
    **_declared("nmesh", "mesh_quat", 4),
    **_declared("nmat", "mat_rgba", 4),
    **_declared("nhfield", "hfield_nrow hfield_ncol hfield_adr"),
    **_declared("nhfield", "hfield_size", 4),
    **_declared("nhfielddata", "hfield_data"),
    **_declared("nkey", "key_qpos", "nq"),
    **_declared("nkey", "key_time"),
    **_declared("nkey", "key_qvel", "nv"),
    **_declared("nkey", "key_act", "na"),
    **_declared("nkey", "key_ctrl", "nu"),
    **_declared("nq", "qpos"),
    **_declared("nv", "qvel qacc qfrc_passive qfrc_applied qfrc_actuator qfrc_constraint"),
    **_declared("nbody", "xipos", 3),
    **_declared("nbody", "xfrc_applied", 6),
    **_declared("njnt", "xaxis", 3),
}
"""The arrays of a mjModel that are read, and from `qpos` on those of a mjData, as declared in `mjxmacro.h` of MuJoCo
3.2 to 4.0."""
_UNIT = 1e-6
"""Largest deviation of a unit vector's or quaternion's length from 1."""
_NEW_SIZES, _SIZES_SINCE = ("nactuator", "nout"), (3, 11)
"""Sizes that older versions lack: there, each actuator has one control and one output, and `nu` counts all three."""


class JointType(NamedTuple):
    """A type of joint: robodyn's name for it, and its numbers of coordinates and velocities."""

    kind: str
    nq: int
    nv: int


JOINT_TYPES = {
    "mjJNT_FREE": JointType("floating", 7, 6),
    "mjJNT_BALL": JointType("spherical", 4, 3),
    "mjJNT_SLIDE": JointType("prismatic", 1, 1),
    "mjJNT_HINGE": JointType("revolute", 1, 1),
}


class MjArrays:
    """The arrays of a mjModel by name, as views: `arrays["body_mass"]`.

    All methods raise LoadError if the mjModel lacks an array or has one with an undeclared shape. The message names the
    array, the expected shape and the version of MuJoCo.
    """

    def __init__(self, mujoco: Any, m: Any) -> None:
        self.mujoco, self.m = mujoco, m
        self._version = tuple(int(part) for part in re.findall(r"\d+", mujoco.__version__)[:3])
        self._read: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        array = self._read.get(name)
        if array is None:
            array = self._read[name] = self.of(self.m, name)
        return array

    def get(self, name: str) -> Array | None:
        """An array; None if this version of MuJoCo is too old to have it."""
        return None if self._version < ARRAYS[name].since else self[name]

    def any(self, name: str, at: Any) -> bool:
        """True if an array exists in this version of MuJoCo and has a nonzero entry at `at`."""
        array = self.get(name)
        return array is not None and bool(np.any(array[at]))

    def size(self, name: str) -> int:
        """One of MuJoCo's sizes. In older versions `nactuator` and `nout` are `nu`."""
        if name in _NEW_SIZES and self._version < _SIZES_SINCE:
            name = "nu"
        return int(self._attribute(self.m, name))

    def number(self, name: str, at: Any, size: str) -> int:
        """An entry of an array that is an index of a joint or another object, of which there are `size`.

        Raises:
            LoadError: the index is out of range.
        """
        value, n = int(self[name][at]), self.size(size)
        if not 0 <= value < n:
            place = ", ".join(map(str, at)) if isinstance(at, tuple) else at
            raise LoadError(f"the mjModel: {name}[{place}] is {value}; wanted 0 to {n - 1}, as {size} is {n}")
        return value

    def joint_types(self) -> list[JointType]:
        """The types of all joints.

        Raises:
            LoadError: an unknown type.
        """
        types = {int(getattr(self.mujoco.mjtJoint, name)): joint_type for name, joint_type in JOINT_TYPES.items()}
        numbers = self["jnt_type"].tolist()
        if any(each not in types for each in numbers):
            raise LoadError(f"the mjModel: jnt_type is {numbers}; wanted numbers from 0 to {len(types) - 1}")
        return [types[each] for each in numbers]

    def of(self, holder: Any, name: str) -> Array:
        """An array of the mjModel, or of a mjData that belongs to it, as a view."""
        rows, widths, _ = ARRAYS[name]
        array, n = np.asarray(self._attribute(holder, name)), self.size(rows)
        numbers = [each if isinstance(each, int) else self.size(each) for each in widths]
        allowed = [(n, each) for each in numbers] if numbers else [(n,)]
        if array.shape not in allowed:
            raise LoadError(
                f"MuJoCo's {name} has shape {array.shape}; wanted {' or '.join(map(str, allowed))}, as {rows} is "
                f"{n}: MuJoCo {self.mujoco.__version__} counts otherwise than the versions that this library knows"
            )
        return array

    def _attribute(self, holder: Any, name: str) -> Any:
        try:
            return getattr(holder, name)
        except AttributeError:
            raise LoadError(
                f"MuJoCo's {name} is not there, which MuJoCo has had since {'.'.join(map(str, self._since(name)))}: "
                f"MuJoCo {self.mujoco.__version__} is not known to this library"
            ) from None

    @staticmethod
    def _since(name: str) -> tuple[int, ...]:
        if name in ARRAYS:
            return ARRAYS[name].since
        return _SIZES_SINCE if name in _NEW_SIZES else _FIRST


def actuated_joints(arrays: MjArrays) -> tuple[Array, Array]:
    """Indices of the actuators whose armature and damping MuJoCo adds to those of a joint, and of these joints.

    `jnt_actuatorid` is the only actuator of a joint with armature or damping, -1 if there is none, and less than -1 if
    there are several. An edit of the mjModel does not change it until `mj_setConst` is called. An actuator
    `<orientation>` (mjTRN_SO3) also rotates a joint, but MuJoCo adds nothing for it.

    Raises:
        LoadError: a joint index out of range, for instance in an edited mjModel.
    """
    if arrays.get("actuator_armature") is None:
        return np.empty(0, np.intp), np.empty(0, np.intp)
    kinds = [int(getattr(arrays.mujoco.mjtTrn, name)) for name in ("mjTRN_JOINT", "mjTRN_JOINTINPARENT")]
    actuators = np.flatnonzero(np.isin(arrays["actuator_trntype"], kinds))
    joints = np.array([arrays.number("actuator_trnid", (k, 0), "njnt") for k in actuators.tolist()], dtype=np.intp)
    only = arrays["jnt_actuatorid"][joints]
    added = (only == actuators) | (only < -1)
    return actuators[added], joints[added]


def dof_coefficients(arrays: MjArrays) -> dict[str, Array]:
    """Armature, linear damping and dry friction (nv,) in MuJoCo's order, including those of actuators.

    An actuator's armature and damping act on all degrees of freedom of its joint, multiplied by the square of the first
    gear entry of its first output.
    """
    named = (("armature", "dof_armature"), ("damping", "dof_damping"), ("friction", "dof_frictionloss"))
    coefficients = {name: np.array(arrays[mujoco_name], dtype=np.float64) for name, mujoco_name in named}
    actuators, joints = actuated_joints(arrays)
    if not actuators.size:
        return coefficients
    gears, rows = arrays["actuator_gear"][:, 0], actuators
    if arrays.get("actuator_outadr") is not None:
        rows = np.array([arrays.number("actuator_outadr", k, "nout") for k in actuators.tolist()], dtype=np.intp)
    ratios = gears[rows] ** 2
    joint_of_dof = np.repeat(np.arange(arrays.size("njnt")), [each.nv for each in arrays.joint_types()])
    for name in ("armature", "damping"):
        added = np.bincount(joints, ratios * arrays[f"actuator_{name}"][actuators], arrays.size("njnt"))
        coefficients[name] += added[joint_of_dof]
    return coefficients


def require_consistent(arrays: MjArrays) -> None:
    """Checks that joints and bodies of a mjModel are consistent, because users can edit it.

    Raises:
        LoadError: an inconsistent field; the message names it.
    """
    types, bodies = arrays.joint_types(), np.arange(arrays.size("nbody"))
    ends = {letter: np.cumsum([0, *(getattr(each, f"n{letter}") for each in types)]) for letter in "qv"}
    count = np.array(arrays["body_jntnum"])
    before = np.cumsum(count) - count
    for name, actual, expected in (
        ("jnt_dofadr", arrays["jnt_dofadr"], ends["v"][:-1]),
        ("jnt_qposadr", arrays["jnt_qposadr"], ends["q"][:-1]),
        ("nv", arrays.size("nv"), ends["v"][-1]),
        ("nq", arrays.size("nq"), ends["q"][-1]),
        ("njnt", arrays.size("njnt"), count.sum()),
        ("body_jntadr", arrays["body_jntadr"], np.where(count > 0, before, -1)),
        ("jnt_bodyid", arrays["jnt_bodyid"], np.repeat(bodies, np.maximum(count, 0))),
    ):
        if not np.array_equal(actual, expected):
            raise LoadError(f"the mjModel: {name} contradicts the types and numbers of its joints, as after an edit")
    parents = np.array(arrays["body_parentid"])
    if (parents[1:] >= bodies[1:]).any() or (parents < 0).any():
        raise LoadError("the mjModel: body_parentid has a body that stands before its parent, as after an edit")
    if not np.array_equal(arrays["dof_parentid"], _parents_of_dofs(parents, np.cumsum(count), count, ends["v"])):
        raise LoadError("the mjModel: dof_parentid contradicts body_parentid, as after an edit")
    has_axis = np.array([each.kind in ("prismatic", "revolute") for each in types], dtype=bool)
    for name in ("body_quat", "body_iquat", "site_quat", "jnt_axis"):
        rows = arrays[name]
        used = has_axis if name == "jnt_axis" else np.full(len(rows), True)
        wrong = np.flatnonzero(used & ~(np.abs(np.linalg.norm(rows, axis=1) - 1.0) < _UNIT))
        if wrong.size:
            i = int(wrong[0])
            raise LoadError(
                f"the mjModel: {name}[{i}] is {rows[i].tolist()}; wanted unit length, as MuJoCo compiles it"
            )


def _parents_of_dofs(parents: Array, after: Array, count: Array, start: Array) -> Array:
    """(nv,) the parent of each degree of freedom: the next one towards the world, -1 for none.

    Args:
        parents: parent of each body.
        after: index after the last joint of each body.
        count: number of joints of each body.
        start: (njnt + 1,) first degree of freedom of each joint.
    """
    parents_of_dofs, last = np.arange(start[-1]) - 1, np.full(len(parents), -1)
    for b, (parent, end, n) in enumerate(zip(parents.tolist(), after.tolist(), count.tolist(), strict=True)):
        last[b] = last[parent] if b else -1
        if n:
            parents_of_dofs[start[end - n]] = last[b]
            last[b] = start[end] - 1
    return parents_of_dofs
