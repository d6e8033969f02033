"""Converts states, forces and torques between a `Model` and the same robot in a MuJoCo simulation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.bridges.simulators.checks import require_model, vector
from robodyn.core.constraints.refusals import constraints_named
from robodyn.core.findings import listed
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, flag
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief, quoted, users_line
from robodyn.io.builders.foreign import foreign
from robodyn.io.builders.mjcf import joint_names, load_mjcf, mujoco_module
from robodyn.io.builders.mjmodel import MjArrays, dof_coefficients
from robodyn.io.conventions.converter import converter

Policy = Callable[[float, Array, Array], Any]
"""(t, q (nq,), qd (nv,)) to tau (nv,), as in rollouts."""
Callback = Callable[[Any, Any], None]
"""The type of callback of `mujoco.set_mjcb_control`."""

_ALIKE = 1e-6
"""Largest tolerated difference of gravity and axes between model and scene."""


class Bridge:
    """Connects a `Model` to the `mujoco.MjData` of a simulation of the same robot. Needs the extra `mujoco`.

    Args:
        mj_model: the simulation's `mujoco.MjModel`.
        model: the robot. Its joints are matched by name; a floating base with another name matches MuJoCo's only free
            joint. Other joints and bodies of the scene are left alone. None for the whole scene:
            `robodyn.load_mjcf(mj_model)`.

    All arguments and results are in this library's coordinates and axes, float64: q (nq,), qd, qdd and tau (nv,).
    Quantities that MuJoCo computes, such as `data.qacc` and `data.xipos`, are those of its last step or `mj_forward`.

    Warns:
        RuntimeWarning: gravity or axes of joints differ between scene and model, or the model has constraints and the
            scene no equalities.

    Raises:
        ArgumentError: no mjModel, or joints of the robot are missing in MuJoCo or have another type there.
        LoadError: without a model, an mjModel that is no usable robot.
        UnavailableError: MuJoCo is not installed.
    """

    def __init__(self, mj_model: Any, model: Model | None = None) -> None:
        self._mujoco = mujoco_module("robodyn.simulators.mujoco.Bridge")
        if not strict_types.is_a(mj_model, self._mujoco.MjModel):
            raise ArgumentError(f"mj_model: got {brief(mj_model)}; wanted a mujoco.MjModel")
        if model is not None:
            require_model(model, ", or None")
        self.mj_model = mj_model
        self.model = load_mjcf(mj_model) if model is None else model
        self._arrays = MjArrays(self._mujoco, mj_model)
        with foreign("the mjModel"):
            self._types = self._arrays.joint_types()
            numbers = self._joints_by_name()
        self.converter = converter(self.model, "mujoco", joint_names=tuple(numbers))
        self._q_at = self._places("jnt_qposadr", numbers, "nq")
        self._v_at = self._places("jnt_dofadr", numbers, "nv")
        self._bodies, self._their_bodies = self._carried(numbers)
        if model is not None:
            self._warn_of_directions(numbers)
            if model.constraints and not mj_model.neq:
                warnings.warn(
                    f"model: {quoted(model.name)} has constraints ({constraints_named(model)}), and the scene has no "
                    "equalities: MuJoCo moves the open tree",
                    RuntimeWarning,
                    stacklevel=users_line(),
                )

    def __repr__(self) -> str:
        return f"<Bridge between {self.model.name!r} and MuJoCo: nq {self.model.nq}, nv {self.model.nv}>"

    # The state.

    def q(self, data: Any) -> Array:
        """The configuration (nq,). Coordinates of mimic joints are ignored."""
        return self._array(self.converter.q_from(self._read(data, "qpos")[self._q_at]))

    def qd(self, data: Any) -> Array:
        """The velocity (nv,)."""
        return self._array(self.converter.v_from(self.q(data), self._read(data, "qvel")[self._v_at]))

    def qdd(self, data: Any) -> Array:
        """The acceleration (nv,), the rate of qd, from MuJoCo's `qacc`."""
        q, qd = self.q(data), self.qd(data)
        return self._array(self.converter.a_from(q, qd, self._read(data, "qacc")[self._v_at]))

    def set_state(self, data: Any, q: Any, qd: Any = None) -> None:
        """Set the state to q and qd (None for rest), and let MuJoCo compute derived quantities (`mj_forward`).

        Raises:
            ArgumentError: wrong arrays, or a quaternion of zero length.
            NumericalError: NaN or infinity.
        """
        self._of(data)
        q = self.model.normalize(vector("q", q, self.model.nq))
        qd = vector("qd", np.zeros(self.model.nv) if qd is None else qd, self.model.nv)
        data.qpos[self._q_at], data.qvel[self._v_at] = self.converter.q_to(q), self.converter.v_to(q, qd)
        self._mujoco.mj_forward(self.mj_model, data)

    @property
    def keyframes(self) -> dict[str, tuple[Array, Array]]:
        """(q, qd) of MuJoCo's keyframes by name; keyframes without a name are "key_0" and so on."""
        keyframes = {}
        for k, (qpos, qvel) in enumerate(zip(self._arrays["key_qpos"], self._arrays["key_qvel"], strict=True)):
            name = self._mujoco.mj_id2name(self.mj_model, self._mujoco.mjtObj.mjOBJ_KEY, k) or f"key_{k}"
            q = self.converter.q_from(qpos[self._q_at])
            keyframes[name] = (q, self.converter.v_from(q, qvel[self._v_at]))
        return keyframes

    # Forces.

    def f_ext(self, data: Any) -> Array:
        """The wrenches (n_bodies, 6) of `xfrc_applied` on the robot's bodies, as the `f_ext` of queries: moments about
        the world's origin, then forces."""
        points, applied = (self._read(data, name)[self._their_bodies] for name in ("xipos", "xfrc_applied"))
        f_ext = np.zeros((self.model.n_bodies, 6))
        np.add.at(f_ext, self._bodies, self.converter.wrench_from(self.q(data), points, applied))
        return f_ext

    def passive(self, data: Any, damping: bool = True) -> Array:
        """MuJoCo's passive forces (nv,): springs, dampers, gravity compensation, fluids.

        `damping`: False leaves out the linear damping that the model itself has, for a `Dynamics` with
        `joint_forces="damping"`: `dof_damping`, and the damping of actuators on joints.
        """
        force = self._read(data, "qfrc_passive")
        if not flag("damping", damping):
            force = force + dof_coefficients(self._arrays)["damping"] * self._read(data, "qvel")
        return self._tau(data, force)

    def tau(self, data: Any) -> Array:
        """The driving forces (nv,): `qfrc_applied` plus the forces of actuators."""
        return self._tau(data, self._read(data, "qfrc_applied") + self._read(data, "qfrc_actuator"))

    def constraint(self, data: Any) -> Array:
        """Forces (nv,) of contacts, limits, equalities and dry friction, `qfrc_constraint`."""
        return self._tau(data, self._read(data, "qfrc_constraint"))

    def apply_torque(self, data: Any, tau: Any) -> None:
        """Set `qfrc_applied` so that tau (nv,) acts in the next steps; actuators are unchanged. tau is converted with
        the base's present orientation, so call this before every step.

        Raises:
            ArgumentError: wrong array.
            NumericalError: NaN or infinity, which would make MuJoCo reset the simulation.
        """
        q = self.q(data)
        data.qfrc_applied[self._v_at] = self.converter.tau_to(q, vector("tau", tau, self.model.nv))

    def controller(self, policy: Policy) -> Callback:
        """A callback for `mujoco.set_mjcb_control` that applies the tau of a policy, a function of (t, q, qd).

        MuJoCo has one callback per process; this one ignores other mjModels. MuJoCo calls it in every `mj_step`,
        `mj_forward` and Runge-Kutta stage, after positions and velocities are known.
        """
        if not callable(policy):
            raise ArgumentError(f"policy: got {brief(policy)}; wanted a function of (t, q, qd) that returns tau")

        def control(mj_model: Any, data: Any) -> None:
            if mj_model is self.mj_model:
                self.apply_torque(data, policy(float(data.time), self.q(data), self.qd(data)))

        return control

    @contextmanager
    def controlled(self, policy: Policy) -> Iterator[None]:
        """Context in which a policy drives the robot (see `controller`). The previous callback is restored at the
        end."""
        before = self._mujoco.get_mjcb_control()
        self._mujoco.set_mjcb_control(self.controller(policy))
        try:
            yield
        finally:
            self._mujoco.set_mjcb_control(before)

    # Helpers.

    def _of(self, data: Any) -> Any:
        """Check that data belong to the mjModel, and return them."""
        if not strict_types.is_a(data, self._mujoco.MjData):
            raise ArgumentError(f"data: got {brief(data)}; wanted a mujoco.MjData")
        mj_model = self.mj_model
        if (data.qpos.size, data.qvel.size, len(data.xipos)) != (mj_model.nq, mj_model.nv, mj_model.nbody):
            raise ArgumentError(
                f"data: got nq {data.qpos.size}, nv {data.qvel.size} and {len(data.xipos)} bodies; wanted data of the "
                f"bridge's mjModel, with {mj_model.nq}, {mj_model.nv} and {mj_model.nbody}"
            )
        return data

    def _read(self, data: Any, name: str) -> Array:
        """View of a named array of the data."""
        return self._arrays.of(self._of(data), name)

    def _tau(self, data: Any, force: Array) -> Array:
        return self._array(self.converter.tau_from(self.q(data), force[self._v_at]))

    @staticmethod
    def _array(value: Any) -> Array:
        return np.asarray(value, dtype=np.float64)

    def _joints_by_name(self) -> dict[str, int]:
        """The robot's joints in MuJoCo's order: our name and MuJoCo's number."""
        types = [each.kind for each in self._types]
        kinds, numbers, wrong = self._kinds(), {}, []
        floating = [name for name, kind in kinds.items() if kind == "floating"]
        for j, their_name in enumerate(joint_names(self.mj_model)):
            alone = types[j] == "floating" and types.count("floating") == len(floating) == 1
            name = floating[0] if alone and their_name not in kinds else their_name
            if name in kinds:
                numbers[name] = j
                if kinds[name] != types[j]:
                    wrong.append(f"{quoted(name)} ({kinds[name]} here, {types[j]} in MuJoCo)")
        if wrong:
            raise ArgumentError(f"model: joints of another type: {listed(wrong)}; wanted the robot of the mjModel")
        return numbers

    def _places(self, starts: str, numbers: dict[str, int], count: str) -> Array:
        """Indices of the joints' entries in qpos (`count` "nq") or qvel ("nv")."""
        starting = self._arrays[starts]
        ranges = [int(starting[j]) + np.arange(getattr(self._types[j], count)) for j in numbers.values()]
        return np.concatenate([np.empty(0, np.intp), *ranges]).astype(np.intp)

    def _kinds(self) -> dict[str, str]:
        kinds = (KINDS[code].name for code in self.model.joint_kind.tolist())
        return dict(zip(self.model.joint_names, kinds, strict=True))

    def _warn_of_directions(self, numbers: dict[str, int]) -> None:
        """Warn if gravity or axes of joints differ in the scene: forces would be in other axes than states."""
        m, model, data = self.mj_model, self.model, self._mujoco.MjData(self.mj_model)
        off = int(m.opt.disableflags) & int(self._mujoco.mjtDisableBit.mjDSBL_GRAVITY)
        gravity = np.zeros(3) if off else np.array(m.opt.gravity)
        if np.abs(gravity - model.gravity).max() > _ALIKE * max(1.0, np.abs(gravity).max()):
            warnings.warn(
                f"model: gravity of {model.name!r} is {model.gravity.tolist()}, that of the scene {gravity.tolist()}",
                RuntimeWarning,
                stacklevel=users_line(),
            )
        self._mujoco.mj_kinematics(m, data)
        axes = self._read(data, "xaxis")
        dyn, q = Dynamics(model, engine="reference", constraints=()), self.q(data)
        for name, j in numbers.items():
            i = model.joint_names.index(name)
            kind = KINDS[model.joint_kind[i]]
            if kind.nv != 1 or model.has_mimic:  # a Jacobian column includes the motion of mimic joints
                continue
            link = int(np.flatnonzero(model.link_body == i)[0])
            column = dyn.jacobian(q, link, frame="world")[:, model.v_source[model.v_start[i]]]
            axis = column[3:] if kind.name == "prismatic" else column[:3]
            if np.abs(axis - axes[j]).max() > _ALIKE:
                ours, theirs = (np.round(each, 6).tolist() for each in (axis, axes[j]))
                warnings.warn(
                    f"model: joint {name!r} of {model.name!r} has the axis {ours} in the world, {theirs} in the "
                    "scene; forces and gravity are in axes of the scene",
                    RuntimeWarning,
                    stacklevel=users_line(),
                )
                return

    def _carried(self, numbers: dict[str, int]) -> tuple[Array, Array]:
        """(our bodies, MuJoCo's bodies): pairs for each MuJoCo body that moves with a joint of the robot."""
        moved, parents = self._arrays["jnt_bodyid"].tolist(), self._arrays["body_parentid"].tolist()
        last = {moved[j]: self.model.joint_names.index(name) for name, j in numbers.items()}
        jointed, ours, theirs = set(moved), [], []
        for b in range(1, len(parents)):
            at = b
            while at and at not in jointed:
                at = parents[at]
            if at in last:
                ours.append(last[at])
                theirs.append(b)
        return np.array(ours, dtype=np.intp), np.array(theirs, dtype=np.intp)
