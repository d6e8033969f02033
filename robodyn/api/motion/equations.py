"""The equations of motion of a robot for integrators from elsewhere, which own its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.constraints.refusals import require_places
from robodyn.core.constraints.resolved import anchored_by_calls, resolved_constraints, row_sizes, row_units
from robodyn.core.integrators import dry_resistance
from robodyn.engines.query_table import FLAGS
from robodyn.internals.arguments import Array, real_array, require_finite
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError, NumericalError

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics

_PROJECTIONS = 3
"""Newton steps back onto constraints: each squares an error."""
_FAR = 1e-3
"""rad, or m beside the reach of the robot: rows that are farther off than this are not held any more."""


class Equations:
    """Accelerations that obey the constraints of a robot, and the way back onto them.

    Joint forces are those of rollouts: dry friction is -f qd / max(|qd|, 1e-3), without the jump of `forward_dynamics`,
    over which error control makes no progress.

    `constrained`: whether there are constraints; `targets` and `active` as queries take them, for all times.
    """

    def __init__(self, dyn: Dynamics, targets: Any = None, active: Any = None) -> None:
        self._friction = dyn.model.friction if "friction" in dyn.joint_forces and dyn.model.friction.any() else None
        if self._friction is not None:
            dyn = dyn.variant(joint_forces=[name for name in dyn.joint_forces if name != "friction"])
        self.dyn, self.constrained = dyn, bool(dyn.model.constraints)
        self._targets, self._active = self._read("targets", targets), self._read("active", active)

    def _read(self, name: str, value: Any) -> Array | None:
        if value is None:
            return None
        shape = self.dyn.argument_shapes[name]
        array = real_array(name, value, shape, self.dyn.dtype, flags=name in FLAGS)
        if array.shape != shape:
            raise ArgumentError(f"{name}: got shape {array.shape} for one state; wanted {shape}")
        require_finite(name, array, len(shape))
        return array.copy()

    def anchor(self, q: Array) -> None:
        """Let constraints to the world that have no place hold where q (nq,) has them, unless targets are given."""
        if self._targets is None and anchored_by_calls(self.dyn.model.constraints):
            self._targets = self.dyn.constraint_targets(q)

    def require_anchored(self, what: str) -> None:
        """Raise an ArgumentError where a constraint has no place."""
        if self._targets is None:
            require_places(self.dyn.model, what)

    def accelerations(self, q: Array, qd: Array, tau: Any, f_ext: Any = None) -> Array:
        """qdd (nv,)."""
        if self._friction is not None:
            tau = tau - dry_resistance(self._friction, qd) * qd
        if not self.constrained:
            return self.dyn.forward_dynamics(q, qd, tau, f_ext=f_ext)
        given: dict[str, Any] = {"active": self._active, "f_ext": f_ext}
        return self.dyn.constrained_forward_dynamics(q, qd, tau, self._targets, **given)[0]

    def resistance_rate(self, q: Array, qd: Array) -> float:
        """1/s: the largest eigenvalue of H^-1 R, for damping and friction that are -R qd."""
        resistance = np.zeros(self.dyn.model.nv)
        if "damping" in self.dyn.joint_forces:
            resistance += self.dyn.model.damping
        if self._friction is not None:
            resistance += dry_resistance(self._friction, qd)
        root = np.sqrt(resistance)
        rates = np.linalg.eigvalsh(root[:, None] * self.dyn.mass_matrix_inverse(q) * root)
        return float(rates.max(initial=0.0))

    def projected(self, q: Array, qd: Array) -> tuple[Array, Array]:
        """A state (..., nq), (..., nv) moved onto the constraints, or towards them where it is far off."""
        for _ in range(_PROJECTIONS if self.constrained else 0):
            q, qd = self.dyn.project(q, qd, self._targets, active=self._active)
        return q, qd

    def held(self, q: Array, qd: Array) -> tuple[Array, Array]:
        """A state on the constraints, near one that is given.

        Raises:
            NumericalError: there is none.
        """
        q, qd = self.projected(q, qd)
        off = self.off(q) if self.constrained else None
        if off is not None:
            raise NumericalError(f"the state is no longer on the constraints: {off}")
        return q, qd

    def off(self, q: Array) -> str | None:
        """Which row is farthest from what it holds in q (..., nq), and by how much; None where all are near."""
        errors = self._errors(q)
        if (errors <= _FAR).all():
            return None
        *row, worst = map(int, np.unravel_index(np.argmax(np.nan_to_num(errors, nan=np.inf)), errors.shape))
        model, left = self.dyn.model, errors[*row, worst] / self._weights[worst]
        unit = row_units(model, resolved_constraints(model))[worst]
        where = f" in row {row[0] if len(row) == 1 else tuple(row)}" if row else ""
        return f"{self.dyn.constraint_names[worst]!r} is off by {left:.3g} {unit}{where}"

    def near(self, q: Array) -> Array:
        """(...) which of some configurations are near the constraints."""
        return np.asarray((self._errors(q) <= _FAR).all(axis=-1))

    def _errors(self, q: Array) -> Array:
        """(..., m) how far rows are from what they hold, beside their sizes; zero of constraints that are off."""
        still = np.zeros((*q.shape[:-1], self.dyn.model.nv), self.dyn.dtype)
        phi = self._unchecked.constraint_residual(q, still, self._targets)[0]
        return np.where(self._weights > 0.0, np.abs(phi) * self._weights, 0.0)

    @cached_property
    def _unchecked(self) -> Dynamics:
        """What gives residuals that are not finite as they are: a rod that is off may have no direction."""
        return self.dyn.variant(check=False)

    @cached_property
    def _weights(self) -> Array:
        """(m,) what errors of rows are multiplied by."""
        held = resolved_constraints(self.dyn.model)
        weights = 1.0 / row_sizes(self.dyn.model, held)
        if self._active is not None:
            weights *= self._active[[each.number for each in held for _ in each.rows]] > 0.0
        return weights
