"""Energies, centre of mass, momentum, and gradients of these."""

from __future__ import annotations

from typing import cast

from numpy.typing import ArrayLike

from robodyn.algorithms import energy
from robodyn.algorithms.rnea import rnea
from robodyn.arguments import Array
from robodyn.queries.core import Core
from robodyn.query import Query


class TotalQueries(Core):
    """Queries about the whole robot."""

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
        query = Query(self, out, q=q, qd=qd, inertia=inertia, V0=V0)
        K = query.result(0)
        query.run(energy.KINETIC_ENERGY, K=K)
        return cast(Array, self._answered("kinetic_energy", query.finish({"K": K})))

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
        query = Query(self, out, q=q, qd=qd, inertia=inertia, V0=V0)
        by_q, by_qd = query.result(0, self.model.nv), query.result(1, self.model.nv)
        query.run(energy.KINETIC_ENERGY_GRADIENT, K_q=by_q, K_qd=by_qd)
        results = query.finish({"dK_dq": by_q, "dK_dqd": by_qd})
        return cast(tuple[Array, Array], self._answered("kinetic_energy_gradient", results))

    def potential_energy(self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None) -> Array:
        """Potential energy (...), J, of everything that can move, zero at the height of the world's origin."""
        query = Query(self, out, q=q, inertia=inertia)
        U = query.result(0)
        query.run(energy.POTENTIAL_ENERGY, U=U)
        return cast(Array, self._answered("potential_energy", query.finish({"U": U})))

    def potential_energy_gradient(
        self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """dU/dq (..., nv) of `potential_energy`, on the tangent space: the same numbers as `gravity_force`."""
        query = Query(self, out, q=q, inertia=inertia)
        by_q = query.result(0, self.model.nv)
        query.run(rnea(("q",)), tau=by_q)
        return cast(Array, self._answered("potential_energy_gradient", query.finish({"dU_dq": by_q})))

    def center_of_mass(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """Centre of mass (..., 3) in world coordinates, m, of everything that can move.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        self._require_mass()
        query = Query(self, out, q=q)
        com = query.result(0, 3)
        query.run(energy.CENTER_OF_MASS, com=com)
        return cast(Array, self._answered("center_of_mass", query.finish({"com": com})))

    def center_of_mass_jacobian(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """Jacobian (..., 3, nv) of `center_of_mass`: its velocity is J qd, m/s in world axes, for a base at rest.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        self._require_mass()
        query = Query(self, out, q=q)
        J = query.result(0, 3, self.model.nv)
        query.run(energy.CENTER_OF_MASS_JACOBIAN, J=J)
        return cast(Array, self._answered("center_of_mass_jacobian", query.finish({"J": J})))

    def centroidal_momentum(
        self, q: ArrayLike, qd: ArrayLike, *, V0: ArrayLike | None = None, out: tuple[Array, Array] | None = None
    ) -> tuple[Array, Array]:
        """(h, A): momentum h (..., 6) about the centre of mass in world axes, angular part first, and the matrix A
        (..., 6, nv) with h = A qd for a base at rest. Orin, Goswami, Lee 2013. Armature does not count.

        Raises:
            NumericalError: nothing that moves has mass.
        """
        self._require_mass()
        query = Query(self, out, q=q, qd=qd, V0=V0)
        h, A = query.result(0, 6), query.result(1, 6, self.model.nv)
        query.run(energy.CENTROIDAL_MOMENTUM, h=h, A=A)
        return cast(tuple[Array, Array], self._answered("centroidal_momentum", query.finish({"h": h, "A": A})))
