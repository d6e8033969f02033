"""States, forces and torques between a robot here and the same robot in a MuJoCo simulation."""

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
"""What `mujoco.set_mjcb_control` takes."""

_ALIKE = 1e-6
"""How far gravity and axes may be from those of the scene."""


class Bridge:
    """The way between a `Model` and the `mujoco.MjData` of a simulation of the same robot. Needs the extra `mujoco`.

    Args:
        mj_model: the simulation's `mujoco.MjModel`.
        model: the robot, as other programs of yours know it; its joints are found by their names, and a base that
            floats by MuJoCo's only free joint where names differ. Joints and bodies of the scene that the robot does
            not have are left alone. None for the whole scene: `robodyn.load_mjcf(mj_model)`.

    Everything that is returned or taken is in this library's coordinates and axes, float64: q (nq,), qd, qdd and tau
    (nv,). What MuJoCo computes, as `data.qacc` and `data.xipos`, is as old as its last step or `mj_forward`.

    Warns:
        RuntimeWarning: gravity, or the axes of the robot's joints, are others in the scene than in the model, or the
            model has constraints and the scene no equalities.

    Raises:
        ArgumentError: no mjModel, or joints of the robot that MuJoCo does not have, or has of another type.
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
        """The configuration (nq,). Joints that mimic others are not looked at."""
        return self._array(self.converter.q_from(self._read(data, "qpos")[self._q_at]))

    def qd(self, data: Any) -> Array:
        """The velocity (nv,)."""
        return self._array(self.converter.v_from(self.q(data), self._read(data, "qvel")[self._v_at]))

    def qdd(self, data: Any) -> Array:
        """The acceleration (nv,), the rate of qd, of MuJoCo's `qacc`."""
        q, qd = self.q(data), self.qd(data)
        return self._array(self.converter.a_from(q, qd, self._read(data, "qacc")[self._v_at]))

    def set_state(self, data: Any, q: Any, qd: Any = None) -> None:
        """Put the robot at q with velocity qd, None for rest, and let MuJoCo compute what follows (`mj_forward`).

        Raises:
            ArgumentError: no such arrays, or a quaternion of zero length.
            NumericalError: NaN or infinity.
        """
        self._of(data)
        q = self.model.normalized(vector("q", q, self.model.nq))
        qd = vector("qd", np.zeros(self.model.nv) if qd is None else qd, self.model.nv)
        data.qpos[self._q_at], data.qvel[self._v_at] = self.converter.q_to(q), self.converter.v_to(q, qd)
        self._mujoco.mj_forward(self.mj_model, data)

    @property
    def keyframes(self) -> dict[str, tuple[Array, Array]]:
        """(q, qd) of MuJoCo's keyframes by their names, "key_0" and so on for those without."""
        found = {}
        for k, (qpos, qvel) in enumerate(zip(self._arrays["key_qpos"], self._arrays["key_qvel"], strict=True)):
            name = self._mujoco.mj_id2name(self.mj_model, self._mujoco.mjtObj.mjOBJ_KEY, k) or f"key_{k}"
            q = self.converter.q_from(qpos[self._q_at])
            found[name] = (q, self.converter.v_from(q, qvel[self._v_at]))
        return found

    # Forces.

    def f_ext(self, data: Any) -> Array:
        """(n_bodies, 6) what `xfrc_applied` does to the robot's bodies, as queries take it: moments about the world's
        origin, then forces."""
        points, applied = (self._read(data, name)[self._their_bodies] for name in ("xipos", "xfrc_applied"))
        f_ext = np.zeros((self.model.n_bodies, 6))
        np.add.at(f_ext, self._bodies, self.converter.wrench_from(self.q(data), points, applied))
        return f_ext

    def passive(self, data: Any, damping: bool = True) -> Array:
        """(nv,) MuJoCo's passive forces: springs, dampers, compensation of gravity, fluids.

        `damping`: False leaves out what the model has itself, for a `Dynamics` made with `joint_forces="damping"`: the
        linear damping of `dof_damping`, with that of actuators which turn joints.
        """
        force = self._read(data, "qfrc_passive")
        if not flag("damping", damping):
            force = force + dof_coefficients(self._arrays)["damping"] * self._read(data, "qvel")
        return self._tau(data, force)

    def tau(self, data: Any) -> Array:
        """(nv,) what drives the robot: `qfrc_applied` and the forces of actuators."""
        return self._tau(data, self._read(data, "qfrc_applied") + self._read(data, "qfrc_actuator"))

    def constraint(self, data: Any) -> Array:
        """(nv,) forces of contacts, limits, equalities and dry friction, `qfrc_constraint`."""
        return self._tau(data, self._read(data, "qfrc_constraint"))

    def apply_torque(self, data: Any, tau: Any) -> None:
        """Let tau (nv,) act in the next steps, by `qfrc_applied`; actuators stay as they are. It is in the axes of the
        base as it is now: call it before every step.

        Raises:
            ArgumentError: no such array.
            NumericalError: NaN or infinity, from which MuJoCo would start all over.
        """
        q = self.q(data)
        data.qfrc_applied[self._v_at] = self.converter.tau_to(q, vector("tau", tau, self.model.nv))

    def controller(self, policy: Policy) -> Callback:
        """A callback for `mujoco.set_mjcb_control` that applies the tau of a policy, a function of (t, q, qd).

        MuJoCo's callback is one for the whole process: this one leaves other mjModels alone. MuJoCo calls it in every
        `mj_step`, `mj_forward` and stage of a Runge-Kutta step, when it knows positions and velocities.
        """
        if not callable(policy):
            raise ArgumentError(f"policy: got {brief(policy)}; wanted a function of (t, q, qd) that returns tau")

        def control(mj_model: Any, data: Any) -> None:
            if mj_model is self.mj_model:
                self.apply_torque(data, policy(float(data.time), self.q(data), self.qd(data)))

        return control

    @contextmanager
    def controlled(self, policy: Policy) -> Iterator[None]:
        """A `with` block in which a policy drives the robot (`controller`); then the callback is what it was before."""
        before = self._mujoco.get_mjcb_control()
        self._mujoco.set_mjcb_control(self.controller(policy))
        try:
            yield
        finally:
            self._mujoco.set_mjcb_control(before)

    # What all of that is made of.

    def _of(self, data: Any) -> Any:
        """Data that belong to the mjModel."""
        if not strict_types.is_a(data, self._mujoco.MjData):
            raise ArgumentError(f"data: got {brief(data)}; wanted a mujoco.MjData")
        own = self.mj_model
        if (data.qpos.size, data.qvel.size, len(data.xipos)) != (own.nq, own.nv, own.nbody):
            raise ArgumentError(
                f"data: got nq {data.qpos.size}, nv {data.qvel.size} and {len(data.xipos)} bodies; wanted data of the "
                f"bridge's mjModel, with {own.nq}, {own.nv} and {own.nbody}"
            )
        return data

    def _read(self, data: Any, name: str) -> Array:
        """An array of data that belong to the mjModel, as a view."""
        return self._arrays.of(self._of(data), name)

    def _tau(self, data: Any, force: Array) -> Array:
        return self._array(self.converter.tau_from(self.q(data), force[self._v_at]))

    @staticmethod
    def _array(value: Any) -> Array:
        return np.asarray(value, dtype=np.float64)

    def _joints_by_name(self) -> dict[str, int]:
        """MuJoCo's joints that the robot has, in MuJoCo's order: our name and their number."""
        types = [each.kind for each in self._types]
        kinds, found, wrong = self._kinds(), {}, []
        floating = [name for name, kind in kinds.items() if kind == "floating"]
        for j, given in enumerate(joint_names(self.mj_model)):
            alone = types[j] == "floating" and types.count("floating") == len(floating) == 1
            name = floating[0] if alone and given not in kinds else given
            if name in kinds:
                found[name] = j
                if kinds[name] != types[j]:
                    wrong.append(f"{quoted(name)} ({kinds[name]} here, {types[j]} in MuJoCo)")
        if wrong:
            raise ArgumentError(f"model: joints of another type: {listed(wrong)}; wanted the robot of the mjModel")
        return found

    def _places(self, starts: str, numbers: dict[str, int], count: str) -> Array:
        """Where the numbers of joints stand in qpos ("nq" of them) or qvel ("nv")."""
        starting = self._arrays[starts]
        ranges = [int(starting[j]) + np.arange(getattr(self._types[j], count)) for j in numbers.values()]
        return np.concatenate([np.empty(0, np.intp), *ranges]).astype(np.intp)

    def _kinds(self) -> dict[str, str]:
        kinds = (KINDS[code].name for code in self.model.joint_kind.tolist())
        return dict(zip(self.model.joint_names, kinds, strict=True))

    def _warn_of_directions(self, numbers: dict[str, int]) -> None:
        """Warn where gravity or the root's axes are others in the scene: forces would be in other axes than states."""
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
            if kind.nv != 1 or model.has_mimic:  # a leader's column has its followers' motion, too
                continue
            link = int(np.flatnonzero(model.link_body == i)[0])
            column = dyn.jacobian(q, link, frame="world")[:, model.v_source[model.v_start[i]]]
            axis = column[3:] if kind.name == "prismatic" else column[:3]
            if np.abs(axis - axes[j]).max() > _ALIKE:
                here, there = (np.round(each, 6).tolist() for each in (axis, axes[j]))
                warnings.warn(
                    f"model: joint {name!r} of {model.name!r} has the axis {here} in the world, {there} in the "
                    "scene; forces and gravity are in axes of the scene",
                    RuntimeWarning,
                    stacklevel=users_line(),
                )
                return

    def _carried(self, numbers: dict[str, int]) -> tuple[Array, Array]:
        """Our bodies and theirs, side by side: each of theirs that moves with a joint of the robot."""
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
