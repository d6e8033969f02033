"""Centre of mass, centroidal momentum, and their derivatives."""

from __future__ import annotations

from typing import cast

from numpy.typing import ArrayLike

from robodyn.api.queries.core import Core
from robodyn.api.queries.fast_path import query
from robodyn.internals.arguments import Array


class MomentumQueries(Core):
    """Queries about the centre of mass and the momentum of the whole robot.

    Links fixed to the world do not count. If no moving body has mass, all queries but `subtree_center_of_mass` raise a
    NumericalError. With `inertia` and unchecked values they do not raise: such rows are NaN, on a GPU NaN or infinite.
    """

    @query
    def center_of_mass(self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None) -> Array:
        """Centre of mass (..., 3) in world coordinates, m, of everything that can move.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        return cast(Array, self._ask("center_of_mass", locals()))

    @query
    def center_of_mass_jacobian(
        self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """Jacobian (..., 3, nv) of `center_of_mass`: its velocity is J qd, m/s in world axes, for a base at rest.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        return cast(Array, self._ask("center_of_mass_jacobian", locals()))

    @query
    def center_of_mass_velocity(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        *,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Velocity (..., 3) of `center_of_mass`, m/s in world axes.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        return cast(Array, self._ask("center_of_mass_velocity", locals()))

    @query
    def center_of_mass_acceleration(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        *,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Acceleration (..., 3) of `center_of_mass`, m/s^2 in world axes, without gravity.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        return cast(Array, self._ask("center_of_mass_acceleration", locals()))

    @query
    def subtree_center_of_mass(
        self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """Centres of mass (..., n_bodies, 3) of each body's subtree, in world coordinates, m, in `model.body_names`
        order. For a subtree without mass it is the body's origin."""
        return cast(Array, self._ask("subtree_center_of_mass", locals()))

    @query
    def centroidal_momentum(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        *,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(h, A): momentum h (..., 6) about the centre of mass in world axes, angular part first, and the centroidal
        momentum matrix A (..., 6, nv) with h = A qd for a base at rest. Armature does not count. Source: Orin, Goswami,
        Lee 2013.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        return cast(tuple[Array, Array], self._ask("centroidal_momentum", locals()))

    @query
    def centroidal_momentum_rate(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        *,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Time derivative (..., 6) of the momentum h of `centroidal_momentum`: N m, then N, in world axes.

        For a base at rest it is A qdd + dA/dt qd. For accelerations of `forward_dynamics` it is the sum of gravity and
        external forces on the robot, about the centre of mass (Newton-Euler).

        Raises:
            NumericalError: nothing that moves has mass.
        """
        return cast(Array, self._ask("centroidal_momentum_rate", locals()))

    @query
    def centroidal_momentum_matrix_derivative(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        *,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """dA/dt (..., 6, nv) of the matrix A of `centroidal_momentum` while the robot moves with qd.

        With V0 the base's motion also changes the columns. Source: Wensing and Orin 2016.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        return cast(Array, self._ask("centroidal_momentum_matrix_derivative", locals()))

    @query
    def center_of_mass_velocity_gradient(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        *,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(dv/dq, dv/dqd): derivatives (..., 3, nv) of `center_of_mass_velocity`, in world axes.

        dv/dq is on the tangent space. dv/dqd is `center_of_mass_jacobian`.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        return cast(tuple[Array, Array], self._ask("center_of_mass_velocity_gradient", locals()))

    @query
    def centroidal_momentum_gradient(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        *,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(dh/dq, dh/dqd): derivatives (..., 6, nv) of the momentum h of `centroidal_momentum`, angular part first.

        dh/dq is on the tangent space, and counts that the centre of mass moves with q. dh/dqd is the centroidal
        momentum matrix A.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        return cast(tuple[Array, Array], self._ask("centroidal_momentum_gradient", locals()))

    @query
    def composite_inertia(self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None) -> Array:
        """Inertial parameters (..., n_bodies, 10) of each body's subtree as one rigid body, in that body's frame.

        In `model.body_names` order; the ten numbers are those of `Model.inertia`: mass (kg), mass times centre (kg m),
        rotational inertia xx xy xz yy yz zz about the frame's origin (kg m^2). Source: RBDA eq. 6.12.
        """
        return cast(Array, self._ask("composite_inertia", locals()))

    @query
    def centroidal_inertia(self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None) -> Array:
        """Spatial inertia (..., 6, 6) about the centre of mass, in world axes, of the robot with its joints locked.

        The rotational inertia (kg m^2) is the upper left block, mass (kg) times identity the lower right one. The
        inverse times the momentum h of `centroidal_momentum` is the average spatial velocity. Armature does not count.
        Source: Orin, Goswami, Lee 2013.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        return cast(Array, self._ask("centroidal_inertia", locals()))
