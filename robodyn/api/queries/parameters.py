"""Derivatives of dynamics and energies with respect to inertial parameters, external forces and gravity."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.api.queries.base_parameters import BaseParameters, base_parameters
from robodyn.api.queries.core import Core
from robodyn.api.queries.fast_path import query
from robodyn.internals.arguments import Array, real_array

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics


class ParameterQueries(Core):
    """Queries about derivatives with respect to parameters, external forces and gravity.

    Inverse dynamics is linear in each of them."""

    @query
    def regressor(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        *,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Regressor Y (..., nv, 10 n_bodies) with tau = Y pi: the derivative of inverse dynamics with respect to
        inertial parameters.

        pi is `model.inertia.ravel()`: for each body of `model.body_names` m (kg), h = m c (kg m) and I xx xy xz yy yz
        zz (kg m^2), about the origin of the body's frame and in its axes. Links fixed to a body are part of it. Y pi
        does not include armature, damping, friction and external forces. `robodyn.conventions` has Pinocchio's order of
        columns. Source: Atkeson, An, Hollerbach 1986.
        """
        return cast(Array, self._ask("regressor", locals()))

    @query
    def body_regressor(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        *,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Body regressors A (..., n_bodies, 6, 10): A_i pi_i is the wrench (N m, N) that moves body i against gravity.

        The wrench is in the body's frame about its origin; pi_i is row i of `model.inertia`. It does not include
        external forces. For a leaf body it is the `joint_reaction`.
        """
        return cast(Array, self._ask("body_regressor", locals()))

    @query
    def kinetic_energy_regressor(
        self, q: ArrayLike, qd: ArrayLike, *, V0: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """k (..., 10 n_bodies): k . pi is the kinetic energy of the bodies, J, without that of armature; pi as in
        `regressor`."""
        return cast(Array, self._ask("kinetic_energy_regressor", locals()))

    @query
    def potential_energy_regressor(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """u (..., 10 n_bodies): u . pi is `potential_energy`, J; pi as in `regressor`."""
        return cast(Array, self._ask("potential_energy_regressor", locals()))

    def armature_regressor(self, qdd: ArrayLike) -> Array:
        """(..., nv, nv): its product with `model.armature` is the contribution of armature to tau, N m or N."""
        return _diagonal(self._per_velocity("qdd", qdd))

    def friction_regressor(self, qd: ArrayLike) -> Array:
        """(..., nv, 2 nv): its product with `model.damping`, followed by `model.friction`, is the contribution of
        `joint_forces` to tau, N m or N: damping qd + friction sign(qd)."""
        array = self._per_velocity("qd", qd)
        return np.concatenate((_diagonal(array), _diagonal(np.sign(array))), -1)

    def _per_velocity(self, name: str, value: ArrayLike) -> Array:
        return real_array(name, value, (self.model.nv,), self.dtype, what="model.nv numbers")

    def base_parameters(self, states: int | None = None, rng: object = 0) -> BaseParameters:
        """Base parameters: the combinations of inertial parameters that inverse dynamics depends on.

        With `base = dyn.base_parameters()`, `regressor(q, qd, qdd) @ pi` equals `regressor(...)[..., base.columns] @
        base.matrix @ pi` for all states and all pi. Columns are taken from the first body to the last; a column that is
        a linear combination of previous ones is left out. The method is a QR factorisation of the regressors of random
        states within the limits (Gautier, Numerical Calculation of the Base Inertial Parameters of Robots, 1991). Other
        random states verify the result.

        Args:
            states: number of states; None for five times as many rows as parameters.
            rng: a seed or a `numpy.random.Generator`.

        Raises:
            NumericalError: the states do not determine which columns depend on others; pass a larger `states`.
        """
        return base_parameters(cast("Dynamics", self), states, rng)

    @query
    def inverse_dynamics_external_force_gradient(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """dtau/df_ext (..., nv, n_bodies, 6): minus the transposed Jacobian of each body.

        Inverse dynamics is linear in f_ext: tau(f_ext) = tau(0) + sum over bodies of dtau/df_ext f_ext.
        """
        return cast(Array, self._ask("inverse_dynamics_external_force_gradient", locals()))

    @query
    def inverse_dynamics_gravity_gradient(
        self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """dtau/dgravity (..., nv, 3), kg or kg m: `gravity_force` is dtau/dgravity `model.gravity`."""
        return cast(Array, self._ask("inverse_dynamics_gravity_gradient", locals()))

    @query
    def forward_dynamics_parameter_gradient(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        tau: ArrayLike,
        *,
        f_ext: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """dqdd/dpi (..., nv, 10 n_bodies) = -H^-1 Y(q, qd, qdd) at `inertia`; pi and Y as in `regressor`.

        Raises:
            SingularError: H is singular at every state; names the body, or the rows of `inertia`.
        """
        return cast(Array, self._ask("forward_dynamics_parameter_gradient", locals()))

    @query
    def forward_dynamics_external_force_gradient(
        self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """dqdd/df_ext (..., nv, n_bodies, 6) = -H^-1 dtau/df_ext. qdd is linear in f_ext.

        Raises:
            SingularError: H is singular at every state; names the body, or the rows of `inertia`.
        """
        return cast(Array, self._ask("forward_dynamics_external_force_gradient", locals()))

    @query
    def forward_dynamics_gravity_gradient(
        self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """dqdd/dgravity (..., nv, 3) = -H^-1 dtau/dgravity. qdd is linear in gravity.

        Raises:
            SingularError: H is singular at every state; names the body, or the rows of `inertia`.
        """
        return cast(Array, self._ask("forward_dynamics_gravity_gradient", locals()))


def _diagonal(values: Array) -> Array:
    """Matrices (..., n, n) with values (..., n) on the diagonal."""
    matrices = np.zeros((*values.shape, values.shape[-1]), values.dtype)
    np.einsum("...ii->...i", matrices)[...] = values
    return matrices
