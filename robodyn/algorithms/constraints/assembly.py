"""Configurations that satisfy constraints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robodyn.core.constraints.kinds import Weld
from robodyn.core.constraints.resolved import (
    ResolvedConstraint,
    resolved_constraints,
    row_sizes,
    row_units,
    velocities_of,
)
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, finite_number, flag, real_array, require_finite
from robodyn.internals.errors import ArgumentError, AssemblyError
from robodyn.internals.messages import brief
from robodyn.internals.provided import provided

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics
    from robodyn.core.model import Model

_MOST_STEPS = 200
_LEAST_GAIN = 1e-3
"""A step that reduces the error by a smaller fraction has stalled."""
_STALLS = 20
"""Stalled steps in a row after which the search ends."""
_HALF_TURN = 1e-6
_ROUNDING = 1e-14
"""Smallest error of a row, relative to its size, that can be asked for."""


def assemble(model: Model, q: ArrayLike, free: Any, tol: float, limits: bool = False) -> NDArray[np.float64]:
    """Implements `Model.assemble`."""
    start = real_array("q", q, (model.nq,), np.float64, what="model.nq numbers")
    require_finite("q", start, 1)
    least, moving = finite_number("tol", tol), _columns(model, free)
    if least <= 0.0:
        raise ArgumentError(f"tol: got {brief(tol)}; wanted a number greater than 0")
    result, bounds = model.normalize(start).copy(), _Bounds(model, moving) if flag("limits", limits) else None
    for row in np.ndindex(result.shape[:-1]):
        held, start = (resolved_constraints(model), _asking(model), model.integrate), result[row]
        if bounds is not None:
            start = bounds.clipped(start)
            bounds.require_rest(start, row)
        try:
            result[row] = assembled(model, *held, start, moving, least, row, bounds=bounds)
        except AssemblyError as error:
            at_limits = bounds.reached() if bounds is not None else ""
            if at_limits and _is_reached(partial(assembled, model, *held, start, moving, least, row)):
                raise AssemblyError(f"{error}. Position limits are in the way: {at_limits}") from None
            raise
        if bounds is not None:
            bounds.require_rest(result[row], row)
    return result


def _is_reached(search: Callable[[], Array]) -> bool:
    try:
        search()
    except AssemblyError:
        return False
    return True


class _Bounds:
    """Position limits of coordinates that joints of one degree of freedom move.

    Args:
        model: the robot.
        moving: (nv,) which degrees of freedom may move.

    `last`: (nq,) where the last search has ended.
    """

    def __init__(self, model: Model, moving: Array) -> None:
        self._model, places = (
            model,
            [
                (int(q), int(v))
                for kind, q_index, v_index in model.free_joints
                if kind.nv == kind.nq == 1
                for q, v in zip(q_index[:, 0], v_index[:, 0], strict=True)
            ],
        )
        self._q, self._v = np.array(places, np.intp).reshape(-1, 2).T
        self._lower, self._upper = model.lower[self._q], model.upper[self._q]
        self._free = moving[self._v]
        self.last = np.zeros(model.nq)

    def clipped(self, q: Array) -> Array:
        """q with joints that may move within their limits."""
        inside = q.copy()
        inside[self._q] = np.where(self._free, np.clip(q[self._q], self._lower, self._upper), q[self._q])
        return inside

    def stays(self, q: Array, step: Array) -> Array:
        """(nv,) True for joints at a limit that a step (nv,) would move beyond it."""
        x, v = q[self._q], step[self._v]
        stays = np.zeros(len(step), bool)
        stays[self._v] = ((x <= self._lower) & (v < 0.0)) | ((x >= self._upper) & (v > 0.0))
        return stays

    def require_rest(self, q: Array, row: tuple[int, ...]) -> None:
        """Raise if a coordinate that steps do not keep within its limits is beyond them."""
        outside = np.flatnonzero((q < self._model.lower) | (q > self._model.upper))
        if outside.size:
            k, where = int(outside[0]), f" in row {row[0] if len(row) == 1 else row}" if row else ""
            raise AssemblyError(
                f"assemble: {self._model.coordinate_names[k]!r} is at {q[k]:.6g}{where}, beyond its limits "
                f"{self._model.lower[k]:.6g} and {self._model.upper[k]:.6g}, and no step moves it back; wanted a start "
                "within them, or the joint in `free`"
            )

    def reached(self) -> str:
        """The joints at a limit where the search has ended, in words; "" if there are none."""
        x, names = self.last[self._q], self._model.coordinate_names
        ends = [("lower", x <= self._lower, self._lower), ("upper", x >= self._upper, self._upper)]
        return ", ".join(
            f"{names[self._q[k]]!r} at its {end} limit {limit[k]:.6g}"
            for end, at, limit in ends
            for k in np.flatnonzero(at & self._free).tolist()
        )


def _columns(model: Model, free: Any) -> Array:
    """(nv,) True for degrees of freedom that may move."""
    if free is None:
        return np.ones(model.nv, bool)
    if not strict_types.is_a(free, list, tuple):
        raise ArgumentError(f"free: got {brief(free)}; wanted a list of joints' names, or None for all")
    columns = np.zeros(model.nv, bool)
    for name in strict_types.members(free):
        columns[velocities_of(model, model.joint_index(name))] = True
    return columns


@lru_cache(maxsize=16)
def _asking(model: Model) -> Dynamics:
    dynamics: Dynamics = provided("Dynamics")(model, threads=1, check=False)
    return dynamics


class Asking(Protocol):
    """Evaluates constraints at one state; a `Dynamics` does."""

    def constraint_residual(self, q: Array, qd: Array) -> tuple[Array, Array]:
        """(phi, phidot), (m,) each."""

    def constraint_jacobian(self, q: Array) -> Array:
        """J (m, nv)."""

    def forward_kinematics(self, q: Array) -> Any:
        """T (4, 4) of every link by its index."""


@np.errstate(over="ignore", invalid="ignore")  # states too far away for any step; the error reports them
def assembled(
    model: Model,
    held: Sequence[ResolvedConstraint],
    asking: Asking,
    integrate: Callable[[Array, Array], Array],
    q: Array,
    moving: Array,
    tol: float,
    row: tuple[int, ...] = (),
    steps: int = _MOST_STEPS,
    bounds: _Bounds | None = None,
) -> Array:
    """Levenberg-Marquardt steps from q to a configuration that satisfies the constraints, as `asking` evaluates them.

    `integrate` moves configurations, like the model's; `bounds` keeps them within limits. Rows are divided by their
    sizes, so that units do not matter.

    Raises:
        AssemblyError: the steps end elsewhere.
    """
    sizes, fixed = row_sizes(model, held), np.array([each for one in held for each in one.integrable], bool)
    most = np.maximum(tol / np.maximum(sizes, 1.0), _ROUNDING)

    def residual(q: Array) -> Array:
        return _residual(model, held, asking, q) / sizes

    phi, J = residual(q), None
    damping, stalls = 1e-6, 0
    for _ in range(steps):
        if (np.abs(phi) <= most).all():
            return q
        if J is None:
            J = np.where(moving & fixed[:, None], asking.constraint_jacobian(q), 0.0) / sizes[:, None]
        if not (np.isfinite(J @ J.T).all() and np.isfinite(phi).all()):
            break
        step = _step(J, phi, damping)
        while bounds is not None and (stays := bounds.stays(q, step)).any():
            J = np.where(stays, 0.0, J)
            step = _step(J, phi, damping)
        after = integrate(q, step)
        if bounds is not None:
            after = bounds.clipped(after)
        left = residual(after)
        if not np.linalg.norm(left) < np.linalg.norm(phi):
            damping = min(10.0 * damping, 1e3)
            stalls += 1
        else:
            stalls = stalls + 1 if np.linalg.norm(left) > (1.0 - _LEAST_GAIN) * np.linalg.norm(phi) else 0
            damping = max(0.1 * damping, 1e-12)
            q, phi, J = after, left, None
        if stalls >= _STALLS:
            break
    if (np.abs(phi) <= most).all():
        return q
    if bounds is not None:
        bounds.last = q
    raise _not_reached(model, held, phi, sizes, row)


def _step(J: Array, phi: Array, damping: float) -> Array:
    """A step (nv,) of Levenberg and Marquardt."""
    A = J @ J.T
    step: Array = J.T @ np.linalg.lstsq(A + damping * max(np.trace(A), 1e-30) * np.eye(len(A)), -phi, rcond=None)[0]
    return step


def _residual(model: Model, constraints: Sequence[ResolvedConstraint], asking: Asking, q: Array) -> Array:
    """phi, with the angle of welds instead of its sine, which is zero at half a turn as well."""
    phi, at = np.array(asking.constraint_residual(q, np.zeros(model.nv))[0]), 0
    poses: Any = None
    for held in constraints:
        turns = [k for k, name in enumerate(held.rows) if name in ("rx", "ry", "rz")]
        if held.kind is Weld and len(turns) > 1:
            poses = asking.forward_kinematics(q) if poses is None else poses
            one, other = (_attitude(poses, link, X.E) for link, X in ((held.to, held.X_to), (held.link, held.X)))
            free = [k for k, name in enumerate(("rx", "ry", "rz")) if name not in held.rows]
            R = one.T @ other
            turn = _log(R, held) if not free else _tilt(R, free[0], held)
            phi[[at + k for k in turns]] = np.delete(turn, free)
        at += len(held.rows)
    return phi


def _attitude(poses: Any, link: int, E: Sequence[Any]) -> Array:
    R = np.eye(3) if link < 0 else poses[link][:3, :3]
    attitude: Array = R @ np.array(E, float).reshape(3, 3).T
    return attitude


def _log(R: Array, held: ResolvedConstraint) -> Array:
    """The rotation vector of a rotation."""
    sine = 0.5 * np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])
    size = float(np.linalg.norm(sine))
    angle = float(np.arctan2(size, 0.5 * (np.trace(R) - 1.0)))
    if angle > np.pi - _HALF_TURN:
        raise _half_a_turn(held)
    turned: Array = sine if size < 1e-9 else sine * (angle / size)
    return turned


def _tilt(R: Array, axis: int, held: ResolvedConstraint) -> Array:
    """The shortest rotation vector that turns one axis to its direction in R."""
    before, after = np.eye(3)[axis], R[:, axis]
    turn = np.cross(before, after)
    size = float(np.linalg.norm(turn))
    angle = float(np.arctan2(size, before @ after))
    if angle > np.pi - _HALF_TURN:
        raise _half_a_turn(held)
    return turn if size < 1e-9 else turn * (angle / size)


def _half_a_turn(held: ResolvedConstraint) -> AssemblyError:
    return AssemblyError(
        f"assemble: {held.name!r} is half a turn off, and no way is shorter than another; turn it first"
    )


def _not_reached(
    model: Model, constraints: Sequence[ResolvedConstraint], phi: Array, sizes: Array, row: tuple[int, ...]
) -> AssemblyError:
    """The error for residuals that remain; `phi` is divided by `sizes`."""
    names = [f"{held.name}.{name}" for held in constraints for name in held.rows]
    worst = int(np.abs(phi).argmax())
    unit = row_units(model, constraints)[worst]
    left = abs(phi[worst]) * sizes[worst]
    where = f" in row {row[0] if len(row) == 1 else row}" if row else ""
    return AssemblyError(
        f"assemble: {names[worst]!r} is not reachable{where} from the given configuration: {left:.3g} "
        f"{unit} are left; wanted a configuration that is nearer, other joints to move (`free`), or constraints that "
        "can be met"
    )
