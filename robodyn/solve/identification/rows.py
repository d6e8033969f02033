"""The linear equations of identification: one triangular factor of all samples, whatever their number.

Torques are linear in the parameters x: inertial parameters of all bodies, armature, damping and dry friction. Closed
loops and feet add forces J' lambda that nobody measures, and so do joints without a sensor. Rows N' tau with N in the
null space of both contain neither: N' tau = N' Y x.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics

NAMES = "m", "hx", "hy", "hz", "Ixx", "Ixy", "Ixz", "Iyy", "Iyz", "Izz"
"""Of a body's parameters, in the order of `Model.inertia`."""
_CHUNK = 1 << 22
"""Numbers of the regressors that are made at a time."""
_DEPENDENT = 1e-8
"""Singular values of constraint rows, relative to the largest, that count as zero."""


class Unknowns:
    """The parameters that are looked for: their names, and their columns.

    `joints` (k,): velocities with armature and friction, those of a floating base left out. `kinds`: which of
    "armature", "damping", "friction" and "stribeck" are unknown; each has a column a joint, after the inertial ones.
    """

    def __init__(self, model: Model, kinds: tuple[str, ...]) -> None:
        base = [KINDS[code].name == "floating" for code in model.joint_kind.tolist()]
        widths = np.diff([*model.v_start.tolist(), model.nv_tree])
        joints = np.ones(model.nv, bool)
        joints[model.v_source[np.repeat(base, widths)]] = False
        self.model, self.kinds, self.joints = model, kinds, np.flatnonzero(joints)
        self.inertial = 10 * model.n_bodies

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
        """The columns of "armature", "damping", "friction" or "stribeck"."""
        begin = self.inertial + self.kinds.index(kind) * self.joints.size
        return slice(begin, begin + self.joints.size)

    def per_velocity(self, x: Array, kind: str) -> Array:
        """(nv,) values of a kind, zero for a floating base."""
        values = np.zeros(self.model.nv)
        values[self.joints] = x[self.part(kind)]
        return values


class Samples:
    """Measured motions and torques, flattened to (n, ...), and the equations that they give.

    `loads` (n, nv): the part of the torques that is known. `hidden` (nv,): torques that were not measured.
    `speeds` (k,): speeds of the Stribeck effect of each joint, None without it.
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
        self.constraints, self.speeds = constraints, np.ones(unknowns.joints.size)

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.tau)

    @property
    def mixed(self) -> bool:
        """Whether equations combine torques of several joints."""
        return bool(self.unknowns.model.constraints) or bool(self.hidden.any())

    def some(self, most: int) -> Samples:
        """At most so many of them, evenly spread."""
        chosen = np.unique(np.linspace(0, self.count - 1, min(most, self.count)).astype(int))
        q, qd, qdd = (each[chosen] for each in self.motion)
        targets, active = (None if each is None else each[chosen] for each in self.constraints)
        return Samples(self.dyn, self.unknowns, (q, qd, qdd), self.tau[chosen], self.hidden, (targets, active))

    def errors(self, x: Array) -> Array:
        """(nv,) root mean square of tau less that of unknowns x."""
        total = np.zeros(self.unknowns.model.nv)
        for piece in self._pieces():
            total += np.sum((self.tau[piece] - self.regressor(piece) @ x) ** 2, axis=0)
        return np.asarray(np.sqrt(total / self.count))

    def _pieces(self) -> Iterator[slice]:
        """Samples whose regressors are made at a time."""
        step = max(1, _CHUNK // (self.unknowns.count * max(1, self.unknowns.model.nv)))
        return (slice(start, start + step) for start in range(0, self.count, step))

    def joint_rows(self, qd: Array, qdd: Array) -> Array:
        """(n, nv, columns) what armature and friction of joints add to the regressor."""
        unknowns, joints = self.unknowns, self.unknowns.joints
        made = np.zeros((len(qd), unknowns.model.nv, unknowns.count - unknowns.inertial))
        v, a = qd[:, joints], qdd[:, joints]
        laws = {"armature": a, "damping": v, "friction": np.sign(v)}
        laws["stribeck"] = np.sign(v) * np.exp(-((v / self.speeds) ** 2))
        for k, kind in enumerate(unknowns.kinds):
            made[:, joints, k * joints.size + np.arange(joints.size)] = laws[kind]
        return made

    def regressor(self, piece: slice) -> Array:
        """(n, nv, columns) derivatives of the torques of samples by all unknowns."""
        q, qd, qdd = (each[piece] for each in self.motion)
        inertial = np.asarray(self.dyn.regressor(q, qd, qdd)).reshape(len(q), -1, self.unknowns.inertial)
        return np.concatenate((inertial, self.joint_rows(qd, qdd)), axis=-1)

    def equations(self, noise: Array) -> Iterator[tuple[Array, Array]]:
        """Matrices (rows, columns) and right-hand sides (rows,) of pieces of the samples, in units of their noise."""
        for piece in self._pieces():
            Y, tau = self.regressor(piece), self.tau[piece]
            for rows, W in self._free(piece, noise):
                A, b = (Y, tau[..., None]) if W is None else (W @ Y[rows], W @ tau[rows][..., None])
                if W is None:
                    A, b = A / noise[:, None], b / noise[:, None]
                yield A.reshape(-1, self.unknowns.count), b.reshape(-1)

    def column(self, k: int, noise: Array) -> Array:
        """One column of all equations, of a coefficient of joints."""
        _, qd, qdd = self.motion
        parts = []
        for piece in self._pieces():
            y = self.joint_rows(qd[piece], qdd[piece])[:, :, k - self.unknowns.inertial]
            for rows, W in self._free(piece, noise):
                parts.append((y / noise if W is None else np.einsum("sri,si->sr", W, y[rows])).reshape(-1))
        return np.concatenate(parts)

    def _free(self, piece: slice, noise: Array) -> Iterator[tuple[Array | slice, Array | None]]:
        """Which samples of a piece have rows W tau (n, r, nv) without unknown forces, of unit noise; None: all rows."""
        model = self.unknowns.model
        if not model.constraints and not self.hidden.any():
            yield slice(None), None
            return
        q = self.motion[0][piece]
        forces = np.broadcast_to(np.eye(model.nv)[self.hidden], (len(q), int(self.hidden.sum()), model.nv))
        if model.constraints:
            J = self._constraint_rows(q, piece)
            forces = np.concatenate((J, forces), axis=1)
        _, sizes, V = np.linalg.svd(forces)
        ranks = (sizes > _DEPENDENT * sizes[:, :1]).sum(axis=1) if sizes.shape[1] else np.zeros(len(q), int)
        for rank in np.unique(ranks):
            rows = np.flatnonzero(ranks == rank)
            N = V[rows, rank:]
            if N.shape[1]:
                spread = np.linalg.cholesky((N * noise**2) @ np.swapaxes(N, -1, -2))
                yield rows, np.linalg.solve(spread, N)

    def _constraint_rows(self, q: Array, piece: slice) -> Array:
        """Constraint Jacobians with rows of unit length; rows of constraints that are off are zero."""
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
            "identify: constraints and torques that are not measured leave no equation; wanted more measured torques"
        )
    full = np.zeros((columns, columns))
    full[: len(R)] = R
    return full, rows
