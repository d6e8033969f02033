"""What inverse and forward dynamics owe to inertial parameters, external forces and gravity."""

from __future__ import annotations

from typing import cast

from numpy.typing import ArrayLike

from robodyn.arguments import Array
from robodyn.queries.core import Core
from robodyn.queries.quick import query


class ParameterQueries(Core):
    """Queries about derivatives with respect to what inverse dynamics is linear in."""

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
        """Y (..., nv, 10 n_bodies) with tau = Y pi: the derivative of inverse dynamics by inertial parameters.

        pi is `model.inertia.ravel()`: for each body of `model.body_names` m (kg), h = m c (kg m) and I xx xy xz yy yz
        zz (kg m^2), about the origin of the body's frame and in its axes. What is fixed to a body is part of it.
        Armature, damping, friction and external forces have no part in Y pi. Atkeson, An, Hollerbach 1986. Pinocchio's
        order of columns: `robodyn.conventions`.
        """
        return cast(Array, self._ask("regressor", {"q": q, "qd": qd, "qdd": qdd, "V0": V0, "dV0": dV0}, out))

    @query
    def inverse_dynamics_external_force_gradient(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """dtau/df_ext (..., nv, n_bodies, 6): minus the transposed Jacobian of each body, for forces as `f_ext`.

        Inverse dynamics is linear in f_ext: tau(f_ext) = tau(0) + sum over bodies of dtau/df_ext f_ext.
        """
        return cast(Array, self._ask("inverse_dynamics_external_force_gradient", {"q": q}, out))

    @query
    def inverse_dynamics_gravity_gradient(
        self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """dtau/dgravity (..., nv, 3), kg or kg m: `gravity_force` is dtau/dgravity `model.gravity`."""
        return cast(Array, self._ask("inverse_dynamics_gravity_gradient", {"q": q, "inertia": inertia}, out))

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
        """dqdd/dpi (..., nv, 10 n_bodies) = -H^-1 Y(q, qd, qdd), pi and Y as for `regressor`, at `inertia`.

        Raises:
            SingularError: H is singular whatever the state; names the body, or the rows of `inertia`.
        """
        given = {"q": q, "qd": qd, "tau": tau, "f_ext": f_ext, "inertia": inertia, "V0": V0, "dV0": dV0}
        return cast(Array, self._ask("forward_dynamics_parameter_gradient", given, out))

    @query
    def forward_dynamics_external_force_gradient(
        self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """dqdd/df_ext (..., nv, n_bodies, 6) = -H^-1 dtau/df_ext, for forces as `f_ext`: qdd is linear in them.

        Raises:
            SingularError: H is singular whatever the state; names the body, or the rows of `inertia`.
        """
        return cast(Array, self._ask("forward_dynamics_external_force_gradient", {"q": q, "inertia": inertia}, out))

    @query
    def forward_dynamics_gravity_gradient(
        self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """dqdd/dgravity (..., nv, 3) = -H^-1 dtau/dgravity: qdd is linear in gravity.

        Raises:
            SingularError: H is singular whatever the state; names the body, or the rows of `inertia`.
        """
        return cast(Array, self._ask("forward_dynamics_gravity_gradient", {"q": q, "inertia": inertia}, out))
