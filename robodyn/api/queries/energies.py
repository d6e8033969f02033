"""Energies and their gradients."""

from __future__ import annotations

from typing import cast

from numpy.typing import ArrayLike

from robodyn.api.queries.core import Core
from robodyn.api.queries.fast_path import query
from robodyn.internals.arguments import Array


class EnergyQueries(Core):
    """Queries about the energies of the whole robot."""

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
        return cast(Array, self._ask("kinetic_energy", locals()))

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

        Derivatives with respect to q are on the tangent space (`model.integrate`). For a base at rest dK/dqd is H qd.
        """
        return cast(tuple[Array, Array], self._ask("kinetic_energy_gradient", locals()))

    @query
    def potential_energy(self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None) -> Array:
        """Potential energy (...), J, of all moving bodies; zero at the height of the world's origin."""
        return cast(Array, self._ask("potential_energy", locals()))

    @query
    def potential_energy_gradient(
        self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """dU/dq (..., nv) of `potential_energy`, on the tangent space: the same numbers as `gravity_force`."""
        return cast(Array, self._ask("potential_energy_gradient", locals()))
