"""MuJoCo as a peer: its forward and inverse dynamics on the same robot, converted body by body."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.tools.benchmark.contenders import Answers, Contender, Prepared, RefusedError, States, one_by_one
from robodyn.tools.testing.mujoco_models import mujoco_model, places

_MOST_BODIES = 2000
_CALLS = {"inverse_dynamics": "mj_inverse", "forward_dynamics": "mj_forward"}
_SWITCHED_OFF = ("CONSTRAINT", "SPRING", "DAMPER", "CONTACT", "WARMSTART", "SENSOR")
_STEP_S = 1.0
"""Time step of a rollout, 1 s, so that the change of velocity is the acceleration."""


class MuJoCo:
    """A robot in MuJoCo, without constraints, contacts, limits, springs, damping and friction.

    Raises:
        RefusedError: MuJoCo is not installed, cannot represent the robot, or has other coordinates for it.
    """

    notes: tuple[str, ...] = (
        "mj_inverse, mj_forward: called in a loop in Python, arguments copied into MjData first, as MuJoCo asks for. "
        "Both do more than RNEA and ABA: mj_forward also factorises the mass matrix, works out the centre of mass and "
        "actuators, and looks for constraints.",
        "mujoco.rollout: one step of each state, that is mj_forward and an integration.",
        "MuJoCo has no single call for mass_matrix or bias_force, and no gradients but by finite differences.",
    )

    def __init__(self, model: Model) -> None:
        if model.has_mimic:
            raise RefusedError("MuJoCo: not compared on robots with joints that mimic others")
        if model.n_bodies > _MOST_BODIES:
            raise RefusedError(f"MuJoCo: not compared on robots of more than {_MOST_BODIES} bodies")
        try:
            self._mujoco: Any = import_module("mujoco")
            self._rollout: Any = import_module("mujoco.rollout")
        except Exception as error:  # a module built for another NumPy may raise anything
            raise RefusedError(f"MuJoCo is not installed ({error})") from None
        self.name = f"MuJoCo {self._mujoco.__version__}"
        kinds = [KINDS[code].name for code in model.joint_kind]
        others = {kind for i, kind in enumerate(kinds) if kind not in _allowed(model, i)}
        if others:
            raise RefusedError(f"MuJoCo: not compared on robots with such joints: {', '.join(sorted(others))}")
        self._floating = kinds[0] == "floating"
        try:
            self._model = mujoco_model(model, links=False)
        except UnavailableError as error:
            raise RefusedError(str(error)) from None
        self._model.opt.timestep = _STEP_S
        for flag in _SWITCHED_OFF:
            self._model.opt.disableflags |= getattr(self._mujoco.mjtDisableBit, f"mjDSBL_{flag}", 0)
        self._q_at, self._v_at = places(model, self._model)

    # MuJoCo's conventions: quaternions are wxyz; linear rates and forces of a free body are in world axes.

    def _coordinates(self, q: Array) -> Array:
        ours = q[:, [0, 1, 2, 6, 3, 4, 5, *range(7, q.shape[1])]] if self._floating else q
        theirs = np.empty_like(ours)
        theirs[:, self._q_at] = ours
        return theirs

    def _turned(self, q: Array, rates: Array, back: bool = False) -> Array:
        """Rotate the linear part of the base in rates or forces (B, nv) to world axes, or back."""
        turned = rates.copy()
        if self._floating:
            R = _rotations(q[:, 3:7])
            turned[:, :3] = np.einsum("bji,bj->bi" if back else "bij,bj->bi", R, rates[:, :3])
        return turned

    def _swing(self, qd: Array) -> Array:
        """Difference w x v between the classical and the spatial acceleration of the base, in body axes."""
        swing = np.zeros_like(qd)
        if self._floating:
            swing[:, :3] = np.cross(qd[:, 3:6], qd[:, :3])
        return swing

    def _placed(self, ours: Array) -> Array:
        theirs = np.empty_like(ours)
        theirs[:, self._v_at] = ours
        return theirs

    def _arguments(self, query: str, states: States) -> list[Array]:
        q, qd = states["q"], states["qd"]
        last = states["tau"] if query == "forward_dynamics" else states["qdd"] + self._swing(qd)
        return [self._coordinates(q), self._placed(self._turned(q, qd)), self._placed(self._turned(q, last))]

    def _ours(self, query: str, states: States, theirs: Array) -> Array:
        """Convert MuJoCo's generalised forces or accelerations to our order and frames."""
        turned = self._turned(states["q"], theirs[:, self._v_at], back=True)
        return turned - self._swing(states["qd"]) if query == "forward_dynamics" else turned

    # Contenders.

    def contenders(self, query: str, threads: Sequence[int]) -> list[Contender]:
        """mj_inverse or mj_forward; for forward dynamics also rollouts of one step, for each number of threads."""
        if query not in _CALLS:
            return []
        prepare = partial(self._single, query)
        contenders = [Contender(_CALLS[query], query, "float64", 1, single=True, prepare=prepare)]
        if query == "forward_dynamics":
            for count in threads:
                prepare = partial(self._rolled, count)
                contenders.append(Contender("mujoco.rollout", query, "float64", count, single=False, prepare=prepare))
        return contenders

    def _single(self, query: str, states: States) -> Prepared:
        model, data = self._model, self._mujoco.MjData(self._model)
        compute = getattr(self._mujoco, _CALLS[query])
        forward = query == "forward_dynamics"
        qpos, qvel = data.qpos, data.qvel
        input_array, result = (data.qfrc_applied, data.qacc) if forward else (data.qacc, data.qfrc_inverse)

        def call(q: Array, qd: Array, last: Array) -> Array:
            qpos[:], qvel[:], input_array[:] = q, qd, last
            compute(model, data)
            return result  # type: ignore[no-any-return]

        def read(answer: Any, row: int) -> Answers:
            one = {name: array[row : row + 1] for name, array in states.items()}
            return (self._ours(query, one, answer[None])[0],)

        return one_by_one(call, list(zip(*self._arguments(query, states), strict=True)), read)

    def _rolled(self, threads: int, states: States) -> Prepared:
        q, qd, tau = self._arguments("forward_dynamics", states)
        batch, nq = len(q), q.shape[1]
        initial = np.hstack([np.zeros((batch, 1)), q, qd])
        after = np.full((batch, 1, initial.shape[1]), np.nan)
        # With one thread the calling thread is used. MuJoCo's own checks are skipped to save time.
        pool = self._rollout.Rollout(nthread=threads if threads > 1 else 0)
        run = partial(
            pool.rollout,
            [self._model] * batch,
            [self._mujoco.MjData(self._model) for _ in range(threads)],
            initial,
            np.ascontiguousarray(tau[:, None, :]),
            control_spec=self._mujoco.mjtState.mjSTATE_QFRC_APPLIED.value,
            skip_checks=True,
            nstep=1,
            state=after,
            sensordata=np.empty((batch, 1, 0)),
        )

        def answers() -> Answers:
            qacc = (after[:, 0, 1 + nq :] - qd) / _STEP_S
            return (self._ours("forward_dynamics", states, qacc),)

        return Prepared(run, answers, batch)


def _allowed(model: Model, i: int) -> tuple[str, ...]:
    return ("revolute", "prismatic", "floating") if i == 0 and model.parent[i] < 0 else ("revolute", "prismatic")


def _rotations(quaternion: Array) -> Array:
    """Rotations (B, 3, 3), body to world, of unit quaternions xyzw (B, 4)."""
    x, y, z, w = quaternion.T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), -1, 0)
