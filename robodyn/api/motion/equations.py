"""The equations of motion of a robot for external integrators, which hold the state themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.constraints.refusals import require_no_contacts, require_places
from robodyn.core.constraints.resolved import anchored_by_calls, resolved_constraints, row_sizes, row_units
from robodyn.core.integrators import dry_resistance
from robodyn.engines.query_table import FLAGS
from robodyn.internals.arguments import Array, real_array, require_finite
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError, NumericalError

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics

_PROJECTIONS = 3
"""Newton steps of the projection onto the constraints. Each squares the error."""
_FAR = 1e-3
"""Largest tolerated residual, in rad, or in m divided by the robot's reach. Beyond it the constraint counts as lost."""


class Equations:
    """Accelerations that obey the constraints of a robot, and the projection of states onto the constraints.

    Joint forces are those of rollouts. Dry friction is -f qd / max(|qd|, 1e-3): error control makes no progress across
    the jump that it has in `forward_dynamics`.

    `constrained`: whether the robot has constraints. `targets` and `active` are as in queries, constant in time.
    """

    def __init__(self, dyn: Dynamics, targets: Any = None, active: Any = None) -> None:
        require_no_contacts(dyn.model, "an integrator of its own")
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
        """Set targets so that constraints to the world hold their place in q (nq,), unless targets were given."""
        if self._targets is None and anchored_by_calls(self.dyn.model.constraints):
            self._targets = self.dyn.constraint_targets(q)

    def require_anchored(self, what: str) -> None:
        """Raise an ArgumentError if a constraint to the world has no target."""
        if self._targets is None:
            require_places(self.dyn.model, what)

    def accelerations(self, q: Array, qd: Array, tau: Any, f_ext: Any = None) -> Array:
        """Accelerations qdd (nv,)."""
        if self._friction is not None:
            tau = tau - dry_resistance(self._friction, qd) * qd
        if not self.constrained:
            return self.dyn.forward_dynamics(q, qd, tau, f_ext=f_ext)
        options: dict[str, Any] = {"active": self._active, "f_ext": f_ext}
        return self.dyn.constrained_forward_dynamics(q, qd, tau, self._targets, **options)[0]

    def resistance_rate(self, q: Array, qd: Array) -> float:
        """The largest eigenvalue of H^-1 R, 1/s, where damping and friction are -R qd."""
        resistance = np.zeros(self.dyn.model.nv)
        if "damping" in self.dyn.joint_forces:
            resistance += self.dyn.model.damping
        if self._friction is not None:
            resistance += dry_resistance(self._friction, qd)
        root = np.sqrt(resistance)
        rates = np.linalg.eigvalsh(root[:, None] * self.dyn.mass_matrix_inverse(q) * root)
        return float(rates.max(initial=0.0))

    def projected(self, q: Array, qd: Array) -> tuple[Array, Array]:
        """A state (..., nq), (..., nv) projected onto the constraints. A state far off is only moved towards them."""
        for _ in range(_PROJECTIONS if self.constrained else 0):
            q, qd = self.dyn.project(q, qd, self._targets, active=self._active)
        return q, qd

    def held(self, q: Array, qd: Array) -> tuple[Array, Array]:
        """The state projected onto the constraints.

        Raises:
            NumericalError: the result is not on the constraints.
        """
        q, qd = self.projected(q, qd)
        off = self.off(q) if self.constrained else None
        if off is not None:
            raise NumericalError(f"the state is no longer on the constraints: {off}")
        return q, qd

    def off(self, q: Array) -> str | None:
        """Description of the row with the largest residual at q (..., nq); None if all residuals are tolerable."""
        errors = self._errors(q)
        if (errors <= _FAR).all():
            return None
        *row, worst = map(int, np.unravel_index(np.argmax(np.nan_to_num(errors, nan=np.inf)), errors.shape))
        model, residual = self.dyn.model, errors[*row, worst] / self._weights[worst]
        unit = row_units(model, resolved_constraints(model))[worst]
        where = f" in row {row[0] if len(row) == 1 else tuple(row)}" if row else ""
        return f"{self.dyn.constraint_names[worst]!r} is off by {residual:.3g} {unit}{where}"

    def near(self, q: Array) -> Array:
        """Which configurations are near the constraints, (...)."""
        return np.asarray((self._errors(q) <= _FAR).all(axis=-1))

    def _errors(self, q: Array) -> Array:
        """Weighted residuals of rows, (..., m); zero for inactive constraints."""
        still = np.zeros((*q.shape[:-1], self.dyn.model.nv), self.dyn.dtype)
        phi = self._unchecked.constraint_residual(q, still, self._targets)[0]
        return np.where(self._weights > 0.0, np.abs(phi) * self._weights, 0.0)

    @cached_property
    def _unchecked(self) -> Dynamics:
        """The `Dynamics` without checks: residuals may be NaN, as for a rod of zero length."""
        return self.dyn.variant(check=False)

    @cached_property
    def _weights(self) -> Array:
        """Weights (m,) of the residuals of rows."""
        constraints = resolved_constraints(self.dyn.model)
        weights = 1.0 / row_sizes(self.dyn.model, constraints)
        if self._active is not None:
            weights *= self._active[[each.number for each in constraints for _ in each.rows]] > 0.0
        return weights
