"""Energies, centre of mass, momentum."""

from __future__ import annotations

from typing import cast

from numpy.typing import ArrayLike

from robodyn.algorithms import energy
from robodyn.arguments import Array
from robodyn.queries.core import Core
from robodyn.query import Query


class TotalQueries(Core):
    """Queries about the whole robot."""

    def kinetic_energy(
        self, q: ArrayLike, qd: ArrayLike, *, V0: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """Kinetic energy (...), J, armature included: qd' H qd / 2 for a base at rest."""
        query = Query(self, out, q=q, qd=qd, V0=V0)
        K = query.result(0)
        query.run(energy.KINETIC_ENERGY, K=K)
        return cast(Array, self._answered("kinetic_energy", query.finish({"K": K})))

    def potential_energy(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """Potential energy (...), J, of everything that can move, zero at the height of the world's origin."""
        query = Query(self, out, q=q)
        U = query.result(0)
        query.run(energy.POTENTIAL_ENERGY, U=U)
        return cast(Array, self._answered("potential_energy", query.finish({"U": U})))

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
        return cast(tuple[Array, Array], query.finish({"h": h, "A": A}))
