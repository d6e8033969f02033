"""Energies, centre of mass, momentum, and gradients of these."""

from __future__ import annotations

from typing import cast

from numpy.typing import ArrayLike

from robodyn.arguments import Array
from robodyn.queries.core import Core
from robodyn.queries.quick import query


class TotalQueries(Core):
    """Queries about the whole robot."""

    @query
    def kinetic_energy(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        *,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Kinetic energy (...), J, armature included: qd' H qd / 2 for a base at rest."""
        return cast(Array, self._ask("kinetic_energy", {"q": q, "qd": qd, "inertia": inertia, "V0": V0}, out))

    @query
    def kinetic_energy_gradient(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        *,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(dK/dq, dK/dqd), each (..., nv), of `kinetic_energy`: J per rad or m; N m s or N s.

        With respect to q on the tangent space (`model.integrate`). For a base at rest dK/dqd is H qd.
        """
        given = {"q": q, "qd": qd, "inertia": inertia, "V0": V0}
        return cast(tuple[Array, Array], self._ask("kinetic_energy_gradient", given, out))

    @query
    def potential_energy(self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None) -> Array:
        """Potential energy (...), J, of everything that can move, zero at the height of the world's origin."""
        return cast(Array, self._ask("potential_energy", {"q": q, "inertia": inertia}, out))

    @query
    def potential_energy_gradient(
        self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """dU/dq (..., nv) of `potential_energy`, on the tangent space: the same numbers as `gravity_force`."""
        return cast(Array, self._ask("potential_energy_gradient", {"q": q, "inertia": inertia}, out))

    @query
    def center_of_mass(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """Centre of mass (..., 3) in world coordinates, m, of everything that can move.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        return cast(Array, self._ask("center_of_mass", {"q": q}, out))

    @query
    def center_of_mass_jacobian(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """Jacobian (..., 3, nv) of `center_of_mass`: its velocity is J qd, m/s in world axes, for a base at rest.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        return cast(Array, self._ask("center_of_mass_jacobian", {"q": q}, out))

    @query
    def centroidal_momentum(
        self, q: ArrayLike, qd: ArrayLike, *, V0: ArrayLike | None = None, out: tuple[Array, Array] | None = None
    ) -> tuple[Array, Array]:
        """(h, A): momentum h (..., 6) about the centre of mass in world axes, angular part first, and the matrix A
        (..., 6, nv) with h = A qd for a base at rest. Orin, Goswami, Lee 2013. Armature does not count.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        return cast(tuple[Array, Array], self._ask("centroidal_momentum", {"q": q, "qd": qd, "V0": V0}, out))
