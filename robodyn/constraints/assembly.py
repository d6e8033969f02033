"""Configurations that meet constraints, and rows that depend on each other."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robodyn import exact
from robodyn.arguments import Array, finite_number, real_array, require_finite
from robodyn.constraints.held import Held, held_by, row_names
from robodyn.constraints.kinds import Coupling, Lock, Weld
from robodyn.errors import ArgumentError, AssemblyError, RedundantWarning
from robodyn.joints import KINDS
from robodyn.messages import brief, users_line

if TYPE_CHECKING:
    from robodyn.dynamics import Dynamics
    from robodyn.model import Model

_MOST_STEPS = 200
_LEAST_GAIN = 1e-3
"""A step that leaves more than all but this of the error has stalled; this many of them and nothing is reached."""
_STALLS = 20
_HALF_TURN = 1e-6
_RANK = 1e-9
_STATES = 3
_JUDGING: ContextVar[bool] = ContextVar("robodyn_judges_rows", default=False)
"""Whether the Dynamics that is being made is the one that rows are judged with."""


def assemble(model: Model, q: ArrayLike, free: Any, tol: float) -> NDArray[np.float64]:
    """See `Model.assemble`."""
    given = real_array("q", q, (model.nq,), np.float64, what="model.nq numbers")
    require_finite("q", given, 1)
    least, moving = finite_number("tol", tol), _columns(model, free)
    if least <= 0.0:
        raise ArgumentError(f"tol: got {brief(tol)}; wanted a number greater than 0")
    found = model.normalized(given).copy()
    for row in np.ndindex(found.shape[:-1]):
        found[row] = _assembled(model, found[row], moving, least, row)
    return found


def _columns(model: Model, free: Any) -> Array:
    """Which degrees of freedom may move."""
    if free is None:
        return np.ones(model.nv, bool)
    if not exact.is_a(free, list, tuple):
        raise ArgumentError(f"free: got {brief(free)}; wanted a list of joints' names, or None for all")
    found = np.zeros(model.nv, bool)
    for name in exact.members(free):
        i = model.joint_index(name)
        start = int(model.v_start[i])
        found[model.v_source[start : start + KINDS[model.joint_kind[i]].nv]] = True
    return found


@lru_cache(maxsize=16)
def _asking(model: Model) -> Dynamics:
    token = _JUDGING.set(True)
    try:
        # By name: models, which dynamics is built on, are assembled.
        return cast("Dynamics", import_module("robodyn.dynamics").Dynamics(model, threads=1, check=False))
    finally:
        _JUDGING.reset(token)


def _assembled(model: Model, q: Array, moving: Array, tol: float, row: tuple[int, ...]) -> Array:
    """Levenberg and Marquardt's steps."""
    phi = _residual(model, q)
    damping, stalls = 1e-6, 0
    for _ in range(_MOST_STEPS):
        if np.abs(phi).max(initial=0.0) <= tol:
            return q
        J = np.where(moving, _asking(model).constraint_jacobian(q), 0.0)
        A = J @ J.T
        step = J.T @ np.linalg.lstsq(A + damping * max(np.trace(A), 1e-30) * np.eye(len(A)), -phi, rcond=None)[0]
        after = model.integrate(q, step)
        left = _residual(model, after)
        if not np.linalg.norm(left) < np.linalg.norm(phi):
            damping = min(10.0 * damping, 1e3)
            stalls += 1
        else:
            stalls = stalls + 1 if np.linalg.norm(left) > (1.0 - _LEAST_GAIN) * np.linalg.norm(phi) else 0
            damping = max(0.1 * damping, 1e-12)
            q, phi = after, left
        if stalls >= _STALLS:
            break
    if np.abs(phi).max(initial=0.0) <= tol:
        return q
    raise _not_reached(model, phi, row)


def _residual(model: Model, q: Array) -> Array:
    """phi, with the angle of welds instead of its sine, which vanishes at half a turn, too."""
    asking = _asking(model)
    phi = np.array(asking.constraint_residual(q, np.zeros(model.nv))[0])
    poses, at = np.asarray(asking.forward_kinematics(q)), 0
    for held in held_by(model):
        turns = [k for k, name in enumerate(held.rows) if name in ("rx", "ry", "rz")]
        if held.kind is Weld and len(turns) > 1:
            one, other = (_attitude(poses, link, X.E) for link, X in ((held.to, held.X_to), (held.link, held.X)))
            free = [k for k, name in enumerate(("rx", "ry", "rz")) if name not in held.rows]
            R = one.T @ other
            turn = _log(R, held) if not free else _tilt(R, free[0], held)
            phi[[at + k for k in turns]] = np.delete(turn, free)
        at += len(held.rows)
    return phi


def _attitude(poses: Array, link: int, E: Sequence[Any]) -> Array:
    R = np.eye(3) if link < 0 else poses[link, :3, :3]
    attitude: Array = R @ np.array(E, float).reshape(3, 3).T
    return attitude


def _log(R: Array, held: Held) -> Array:
    """The rotation vector of a rotation."""
    sine = 0.5 * np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])
    size = float(np.linalg.norm(sine))
    angle = float(np.arctan2(size, 0.5 * (np.trace(R) - 1.0)))
    if angle > np.pi - _HALF_TURN:
        raise _half_a_turn(held)
    turned: Array = sine if size < 1e-9 else sine * (angle / size)
    return turned


def _tilt(R: Array, axis: int, held: Held) -> Array:
    """The rotation vector that takes one axis where R has it, the shortest."""
    before, after = np.eye(3)[axis], R[:, axis]
    turn = np.cross(before, after)
    size = float(np.linalg.norm(turn))
    angle = float(np.arctan2(size, before @ after))
    if angle > np.pi - _HALF_TURN:
        raise _half_a_turn(held)
    return turn if size < 1e-9 else turn * (angle / size)


def _half_a_turn(held: Held) -> AssemblyError:
    return AssemblyError(
        f"assemble: {held.name!r} is half a turn off, and no way is shorter than another; turn it first"
    )


def _not_reached(model: Model, phi: Array, row: tuple[int, ...]) -> AssemblyError:
    names = row_names(model)
    worst = int(np.abs(phi).argmax())
    unit = [unit for held in held_by(model) for unit in _units(model, held)][worst]
    where = f" in row {row[0] if len(row) == 1 else row}" if row else ""
    return AssemblyError(
        f"assemble: {names[worst]!r} is not reachable{where} from the given configuration: {abs(phi[worst]):.3g} "
        f"{unit} are left; wanted a configuration that is nearer, other joints to move (`free`), or constraints that "
        "can be met"
    )


def _units(model: Model, held: Held) -> Sequence[str]:
    """Of the errors of its rows."""
    if held.kind is Lock:
        kind = KINDS[model.joint_kind[held.joint]]
        return ["m" if k in kind.lengths else "rad" for k in range(kind.nv)]
    if held.kind is Coupling:
        joints = np.searchsorted(model.v_start, [v for v, _, _ in held.joints], side="right") - 1
        return [" or ".join(sorted({"m" if KINDS[model.joint_kind[i]].lengths else "rad" for i in joints}))]
    return ["rad" if name in ("rx", "ry", "rz") else "m" for name in held.rows]


@lru_cache(maxsize=64)
def redundant_rows(model: Model) -> tuple[str, ...]:
    """Names of rows that are combinations of those before them, at three random configurations: assembled where the
    constraints can be met."""
    if not model.n_rows:
        return ()
    asking, rng = _asking(model), np.random.default_rng(0)
    least: set[int] | None = None
    for _ in range(_STATES):
        q = model.random_configuration(rng)
        with contextlib.suppress(AssemblyError):  # feet whose places come with every call, for instance
            q = assemble(model, q, None, 1e-9)
        dependent = _dependent(np.asarray(asking.constraint_jacobian(q), float))
        least = dependent if least is None else least & dependent
    return tuple(row_names(model)[k] for k in sorted(least or ()))


def _dependent(J: Array) -> set[int]:
    basis, found = np.zeros((0, J.shape[1])), set()
    for k, row in enumerate(J):
        left = row.astype(float)
        for _ in range(2):
            left = left - (left @ basis.T) @ basis
        size = float(np.linalg.norm(left))
        if size > _RANK * max(float(np.linalg.norm(row)), 1e-300):
            basis = np.vstack((basis, left / size))
        else:
            found.add(k)
    return found


def warn_of_redundancy(model: Model) -> None:
    """Say which rows depend on others."""
    rows = () if _JUDGING.get() else redundant_rows(model)
    if rows:
        warnings.warn(
            f"constraints of {model.name!r}: {', '.join(rows)} follow from rows before them; accelerations are unique, "
            "forces the smallest ones",
            RedundantWarning,
            stacklevel=users_line(),
        )
