"""The linear equations of identification: one triangular factor of all samples, whatever their number.

Torques are linear in the parameters x: inertial parameters of all bodies, armature, damping and dry friction. Closed
loops and feet add forces J' lambda that nobody measures, and so do joints without a sensor. Rows N' tau with N in the
null space of both contain neither: N' tau = N' Y x.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.internals.arguments import Array, real_array
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError, NumericalError
from robodyn.internals.messages import brief

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics
    from robodyn.solve.identification.base import Estimate

NAMES = "m", "hx", "hy", "hz", "Ixx", "Ixy", "Ixz", "Iyy", "Iyz", "Izz"
"""Of a body's parameters, in the order of `Model.inertia`."""
_CHUNK = 1 << 22
"""Numbers of the regressors that are made at a time."""
_DEPENDENT = 1e-8
"""Singular values of constraint rows, relative to the largest, that count as zero."""


def per_velocity(name: str, given: Any, nv: int, least: float, most: float = np.inf) -> Array:
    """(nv,) numbers from `least` to `most`, from (nv,) or from one for all.

    Raises:
        ArgumentError: others.
    """
    array = real_array(name, given, (), np.float64)
    if array.shape not in ((), (nv,)) or not ((array >= least) & (array <= most)).all():
        raise ArgumentError(f"{name}: got {brief(given)}; wanted a number from {least:g} to {most:g}, or {nv} of them")
    return np.broadcast_to(array, (nv,)).copy()


class Unknowns:
    """The parameters that are looked for: their names, and their columns.

    `joints` (k,): velocities with armature and friction, those of a floating base left out. `kinds`: which of
    "armature", "damping", "friction", "stribeck" and "speed" are unknown; each has a column a joint, after the inertial
    ones. The last is the speed of the Stribeck effect, about which torques are linearised.
    """

    def __init__(self, dyn: Dynamics, kinds: tuple[str, ...]) -> None:
        self.model, self.kinds, self.joints = dyn.model, kinds, np.flatnonzero(dyn._actuated(None))
        self.inertial = 10 * dyn.model.n_bodies

    @property
    def count(self) -> int:
        """Number of unknowns."""
        return self.inertial + len(self.kinds) * self.joints.size

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Such as "upper_arm.Ixx" and "elbow.damping"."""
        of_bodies = [f"{body}.{name}" for body in self.model.body_names for name in NAMES]
        velocities = [self.model.velocity_names[k] for k in self.joints]
        return (*of_bodies, *(f"{name}.{kind}" for kind in self.kinds for name in velocities))

    def part(self, kind: str) -> slice:
        """The columns of a kind."""
        begin = self.inertial + self.kinds.index(kind) * self.joints.size
        return slice(begin, begin + self.joints.size)

    def per_velocity(self, x: Array, kind: str) -> Array:
        """(nv,) values of a kind, zero for a floating base."""
        values = np.zeros(self.model.nv)
        values[self.joints] = x[self.part(kind)]
        return values


class Samples:
    """Measured motions and torques, flattened to (n, ...), and the equations that they give.

    `hidden` (n, nv): torques that are not used. `speeds`, `sizes` (k,): the Stribeck effect of each joint about which
    torques are linearised.
    """

    def __init__(
        self,
        dyn: Dynamics,
        unknowns: Unknowns,
        motion: tuple[Array, Array, Array],
        tau: Array,
        hidden: Array,
        constraints: tuple[Array | None, Array | None],
    ) -> None:
        self.dyn, self.unknowns, self.motion, self.tau, self.hidden = dyn, unknowns, motion, tau, hidden
        self.constraints = constraints
        self.speeds, self.sizes = np.ones(unknowns.joints.size), np.zeros(unknowns.joints.size)

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.tau)

    @property
    def mixed(self) -> bool:
        """Whether equations combine torques of several joints."""
        return bool(self.unknowns.model.constraints)

    def some(self, most: int) -> Samples:
        """At most so many of them, evenly spread."""
        chosen = np.unique(np.linspace(0, self.count - 1, min(most, self.count)).astype(int))
        q, qd, qdd = (each[chosen] for each in self.motion)
        targets, active = (None if each is None else each[chosen] for each in self.constraints)
        hidden = self.hidden[chosen]
        return Samples(self.dyn, self.unknowns, (q, qd, qdd), self.tau[chosen], hidden, (targets, active))

    def errors(self, x: Array) -> Array:
        """(nv,) root mean square of tau less that of unknowns x; NaN where no torque is used."""
        total = np.zeros(self.unknowns.model.nv)
        for piece in self._pieces():
            off = self.torques(piece) - self.regressor(piece) @ x
            total += np.sum(np.where(self.hidden[piece], 0.0, off) ** 2, axis=0)
        used = np.sum(~self.hidden, axis=0)
        return np.where(used > 0, np.sqrt(total / np.maximum(used, 1)), np.nan)

    def fitted(self, found: Estimate, noise: Array) -> Array:
        """(nv,) how many equations of each joint are lost to the fit: the trace of its part of the projection onto the
        columns, which is as large as the number of base parameters for all joints together."""
        base, lost = found.base, np.zeros(self.unknowns.model.nv)
        root = np.linalg.inv(np.linalg.qr(found.R[:, base.columns], mode="r"))
        for piece in self._pieces():
            rows = self.regressor(piece)[..., base.columns] @ root
            lost += np.sum(np.where(self.hidden[piece], 0.0, np.sum(rows**2, axis=-1)), axis=0) / noise**2
        return lost

    def _pieces(self) -> Iterator[slice]:
        """Samples whose regressors are made at a time."""
        step = max(1, _CHUNK // (self.unknowns.count * max(1, self.unknowns.model.nv)))
        return (slice(start, start + step) for start in range(0, self.count, step))

    def joint_rows(self, piece: slice) -> Array:
        """(n, nv, columns) what armature and friction of joints add to the regressor."""
        unknowns, joints = self.unknowns, self.unknowns.joints
        v, a = (each[piece][:, joints] for each in self.motion[1:])
        made = np.zeros((len(v), unknowns.model.nv, unknowns.count - unknowns.inertial))
        laws = {"armature": a, "damping": v, "friction": np.sign(v)}
        laws["stribeck"] = np.sign(v) * np.exp(-((v / self.speeds) ** 2))
        laws["speed"] = self.sizes * 2.0 * v**2 / self.speeds**3 * laws["stribeck"]
        for k, kind in enumerate(unknowns.kinds):
            made[:, joints, k * joints.size + np.arange(joints.size)] = laws[kind]
        return made

    def torques(self, piece: slice) -> Array:
        """(n, nv) what the regressor times the unknowns should be."""
        tau = self.tau[piece]
        if "speed" in self.unknowns.kinds:
            begin = self.unknowns.part("speed").start - self.unknowns.inertial
            tau = tau + self.joint_rows(piece)[..., begin:] @ self.speeds
        return tau

    def regressor(self, piece: slice) -> Array:
        """(n, nv, columns) derivatives of the torques of samples by all unknowns."""
        q, qd, qdd = (each[piece] for each in self.motion)
        inertial = np.asarray(self.dyn.regressor(q, qd, qdd)).reshape(len(q), -1, self.unknowns.inertial)
        return np.concatenate((inertial, self.joint_rows(piece)), axis=-1)

    def equations(self, noise: Array) -> Iterator[tuple[Array, Array]]:
        """Matrices (rows, columns) and right-hand sides (rows,) of pieces of the samples, in units of their noise."""
        for piece in self._pieces():
            rows = np.concatenate((self.regressor(piece), self.torques(piece)[..., None]), axis=-1)
            for found in self._free(rows, piece, noise):
                yield found[:, :-1], found[:, -1]

    def products(self, speeds: Array, noise: Array) -> tuple[Array, Array]:
        """(columns + 1, k, g) products of all columns, the right-hand sides last, with those of the Stribeck effect of
        joints at (k, g) other speeds, and (k, g) squares of these; in units of the noise."""
        joints, count = self.unknowns.joints, speeds.shape[1]
        found = np.zeros((self.unknowns.count + 1, *speeds.shape))
        squares = np.zeros(speeds.shape)
        for piece in self._pieces():
            rows = np.concatenate((self.regressor(piece), self.torques(piece)[..., None]), axis=-1)
            v = self.motion[1][piece]
            for k, joint in enumerate(joints.tolist()):
                law = np.sign(v[:, joint, None]) * np.exp(-((v[:, joint, None] / speeds[k]) ** 2))
                if self.mixed:
                    made = np.zeros((*v.shape, count))
                    made[:, joint] = law
                    parts = list(self._free(np.concatenate((rows, made), axis=-1), piece, noise))
                else:
                    used = ~self.hidden[piece][:, joint]
                    parts = [np.concatenate((rows[used, joint], law[used]), axis=-1) / noise[joint]]
                for part in parts:
                    found[:, k] += part[:, :-count].T @ part[:, -count:]
                    squares[k] += np.sum(part[:, -count:] ** 2, axis=0)
        return found, squares

    def _free(self, rows: Array, piece: slice, noise: Array) -> Iterator[Array]:
        """Rows (n, nv, columns) of torques, combined so that no unknown force occurs in them, in units of their noise:
        (equations, columns)."""
        hidden = self.hidden[piece]
        if not self.mixed:
            yield (rows / noise[:, None])[~hidden]
            return
        forces = np.concatenate((self._constraint_rows(piece), hidden[..., None] * np.eye(hidden.shape[1])), axis=1)
        _, sizes, V = np.linalg.svd(forces)
        ranks = (sizes > _DEPENDENT * sizes[:, :1]).sum(axis=1)
        for rank in np.unique(ranks):
            chosen = np.flatnonzero(ranks == rank)
            N = V[chosen, rank:]
            if N.shape[1]:
                spread = np.linalg.cholesky((N * noise**2) @ np.swapaxes(N, -1, -2))
                yield (np.linalg.solve(spread, N) @ rows[chosen]).reshape(-1, rows.shape[-1])

    def _constraint_rows(self, piece: slice) -> Array:
        """Constraint Jacobians with rows of unit length; rows of constraints that are off are zero."""
        q = self.motion[0][piece]
        targets, active = (None if each is None else each[piece] for each in self.constraints)
        J = np.asarray(self.dyn.constraint_jacobian(q, targets))
        if active is not None:
            J = J * self.dyn._active_rows(q, active)[..., None]
        sizes = np.linalg.norm(J, axis=-1, keepdims=True)
        return J / np.where(sizes > 0.0, sizes, 1.0)


def factor(samples: Samples, noise: Array) -> tuple[Array, int]:
    """(R, rows): the triangular factor (columns + 1, columns + 1) of all equations beside their right-hand sides.

    The last column holds Q' b, and its last entry the norm of what no parameters explain.
    """
    columns, rows = samples.unknowns.count + 1, 0
    R = np.zeros((0, columns))
    for A, b in samples.equations(noise):
        R = np.asarray(np.linalg.qr(np.vstack((R, np.column_stack((A, b)))), mode="r"))
        rows += len(b)
    if not rows:
        raise ArgumentError(
            "identify: there is no equation without constraint forces and torques that `measured` and `slowest` leave "
            "out; wanted more measured torques"
        )
    if not np.isfinite(R).all():
        raise NumericalError("identify: equations are not finite; wanted motions and torques whose squares are")
    full = np.zeros((columns, columns))
    full[: len(R)] = R
    return full, rows
