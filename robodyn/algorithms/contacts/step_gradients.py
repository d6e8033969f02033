"""Derivatives of time steps with contacts.

A step is that of `robodyn.algorithms.contacts.tasks.contact_step`; derivatives of accelerations are those of
`robodyn.algorithms.contacts.gradients`, of motions on the manifold those of `robodyn.core.tangent`. Matrices have
columns of q on its tangent space, of qd and of tau.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from robodyn.algorithms.constraints.scalars import table, times
from robodyn.algorithms.constraints.terms import with_inputs
from robodyn.algorithms.contacts.gradients import bias_slopes, derived, least
from robodyn.algorithms.contacts.rows import bias_of_axes
from robodyn.algorithms.contacts.tasks import SIZES, require_all_slots
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.definite import TreeFactors, is_zero
from robodyn.algorithms.joint_limits import linear_dofs
from robodyn.algorithms.manifold import joint_blocks, joint_by_joint, scalars
from robodyn.algorithms.relative_motion import OfLink
from robodyn.algorithms.rest_gradient import MASS_MATRIX_PRODUCT_GRADIENT
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.joints import JointKind
from robodyn.core.model import Model
from robodyn.core.tangent import bracket_matrix, moved_by


def contact_step_gradient(
    model: Model, bounding: float, integrator: str, damped: bool, inputs: tuple[str, ...]
) -> ScalarTask:
    """Derivatives `A` by the state and `B` by tau of the state after a step, at its accelerations "qdd".

    Arguments are those of `robodyn.algorithms.contacts.tasks.contact_step`. `inputs`: also "qdd".

    Raises:
        UnavailableError: there are more slots than act at once.
    """
    require_all_slots(model)
    return _gradient(model.nv, bounding, integrator, damped, tuple(name for name in SIZES if name in inputs))


@lru_cache(maxsize=256)
def _gradient(nv: int, bounding: float, integrator: str, damped: bool, inputs: tuple[str, ...]) -> ScalarTask:
    def text(model: Model, given: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        damping = given.get("damping", model.damping.tolist() if damped else [0.0] * model.nv)
        every = np.vstack(_STEPS[integrator](model, given, at, bounding, damping))
        return {"A": list(every[:, : 2 * nv].ravel()), "B": list(every[:, 2 * nv :].ravel())}

    name = "_".join(("contact_step_gradient", integrator, *inputs, repr(bounding), *(("damped",) if damped else ())))
    outputs = {"A": Sized((2 * nv, 2 * nv)), "B": Sized((2 * nv, nv))}
    return ScalarTask(name, {each: SIZES[each] for each in inputs}, outputs, text, least=least, one_program=True)


def _semi_implicit_euler(
    model: Model, given: Mapping[str, Sequence[Any]], at: OfLink, bounding: float, damping: Sequence[Any]
) -> tuple[Any, Any]:
    """v' = v + dt qdd and q' = q (+) dt v', with implicit damping as armature."""
    changed, dt, (length,) = {}, scalars(given["dt"]), given["dt"]
    if not all(map(is_zero, damping)):
        armature = given.get("armature", model.armature.tolist())
        changed["armature"] = [x + length * d for x, d in zip(armature, damping, strict=True)]
    by = derived(model, given, at, bounding, damping, length, **changed)
    ahead = np.hstack([table(each, model.nv) for each in by])
    for i, slopes in enumerate(bias_slopes(model, given["qd"])):
        for j, slope in slopes.items():
            ahead[i, model.nv + j] = ahead[i, model.nv + j] - length * slope
        ahead[i, model.nv + i] = ahead[i, model.nv + i] + 1.0
    step = (scalars(given["qd"]) + scalars(given["qdd"]) * dt) * dt
    by_q, by_step = _blocks(model, step, moved_by)
    moved = times(by_step, ahead * dt)
    moved[:, : model.nv] = moved[:, : model.nv] + by_q
    return moved, ahead


def _mujoco(
    model: Model, given: Mapping[str, Sequence[Any]], at: OfLink, bounding: float, damping: Sequence[Any]
) -> tuple[Any, Any]:
    """`robodyn.core.integrators.mujoco`: linear velocities change and move along axes that do not turn."""
    nv, dt, (length,) = model.nv, scalars(given["dt"]), given["dt"]
    ahead = np.hstack([table(each, nv) for each in derived(model, given, at, bounding, damping, length)])
    a = scalars([x + b for x, b in zip(given["qdd"], bias_of_axes(model, given["qd"]), strict=True)])
    if not all(map(is_zero, damping)):
        a, ahead = _damped(model, given, at, damping, a, ahead)
    for i in range(nv):
        ahead[i, nv + i] = ahead[i, nv + i] + 1.0
    along, linear = scalars(given["qd"]) + a * dt, linear_dofs(model)
    across = scalars([x if one else 0.0 for x, one in zip(along, linear, strict=True)])
    turn = scalars([0.0 if one else x for x, one in zip(along, linear, strict=True)]) * dt
    by_q, _ = _blocks(model, across * dt, moved_by)
    turned, by_turn = _blocks(model, turn, moved_by)
    zeros = np.full(ahead.shape, 0.0, dtype=object)
    of_linear, of_others = (np.where(each[:, None], ahead, zeros) for each in (linear > 0.0, linear == 0.0))
    new = joint_by_joint(model, "v", lambda kind, _, k: kind.turned(tuple(across[k]), tuple(turn[k])))
    bracket = _blocks(model, new, lambda kind, v: (bracket_matrix(kind, v),) * 2)[0]
    slid, turns = times(turned, of_linear), times(by_turn, of_others * dt)  # a slide moves a place as it is
    after = slid + times(bracket, turns) + of_others
    moved = slid * dt + turns
    moved[:, :nv] = moved[:, :nv] + times(turned, by_q)
    return moved, after


def _damped(
    model: Model, given: Mapping[str, Sequence[Any]], at: OfLink, damping: Sequence[Any], a: Any, slopes: Any
) -> tuple[Any, Any]:
    """a' = (H + dt D)^-1 H a, and (H + dt D) da' = H da + dH (a - a'). `slopes`: those of dt a."""
    nv, (length,) = model.nv, given["dt"]
    entries = at(with_inputs(CRBA, given))["H"]
    rows = [entries[nv * i : nv * (i + 1)] for i in range(nv)]
    resistance = [length * d for d in damping]
    factors = TreeFactors(
        [[x + resistance[i] if i == k else x for k, x in enumerate(row)] for i, row in enumerate(rows)]
    )
    lost = factors.solve([d * x for d, x in zip(resistance, a, strict=True)])
    inertia = {name for name in given if name == "inertia"}
    by_q = at(with_inputs(MASS_MATRIX_PRODUCT_GRADIENT, inertia), None, None, vector=[length * x for x in lost])["by_q"]
    change = scalars(resistance)[:, None] * slopes
    change[:, :nv] = change[:, :nv] - table([by_q[nv * i : nv * (i + 1)] for i in range(nv)], nv)
    solved = [factors.solve(change[:, j].tolist()) for j in range(3 * nv)]
    return a - scalars(lost), slopes - table([list(row) for row in zip(*solved, strict=True)], 3 * nv)


def _blocks(model: Model, u: Any, derivatives: Callable[[JointKind, Any], tuple[Any, Any]]) -> tuple[Any, Any]:
    """`joint_blocks` of scalars of any kind: an engine without programs has arrays of states, which `derivatives` takes
    as one array (B, k)."""

    def of_kind(kind: JointKind, along: Any) -> tuple[Any, Any]:
        if not any(isinstance(x, np.ndarray) for x in along):
            return derivatives(kind, along)
        one, other = derivatives(kind, np.stack(np.broadcast_arrays(*along), axis=-1))
        return by_entry(one), by_entry(other)

    def by_entry(matrices: Any) -> Any:
        rows, columns = matrices.shape[1:]
        return table([[matrices[:, i, j] for j in range(columns)] for i in range(rows)])

    return joint_blocks(model, u, of_kind)


_STEPS = {"semi_implicit_euler": _semi_implicit_euler, "mujoco": _mujoco}
