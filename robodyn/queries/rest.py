"""Derivatives of inverse dynamics at rest: gravity forces, and products of the mass matrix and a vector."""

from __future__ import annotations

from typing import cast

from numpy.typing import ArrayLike

from robodyn.algorithms.rest_gradient import GRAVITY_FORCE_GRADIENT, MASS_MATRIX_PRODUCT_GRADIENT
from robodyn.arguments import Array
from robodyn.queries.core import Core
from robodyn.query import Query


class RestQueries(Core):
    """Queries about how forces at rest change with coordinates."""

    def gravity_force_gradient(
        self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """dg/dq (..., nv, nv) of `gravity_force`: column j is the change with coordinate j, on the tangent space.

        The second derivative of `potential_energy`. It is symmetric where all joints have one degree of freedom.
        """
        query = Query(self, out, q=q, inertia=inertia)
        by_q = query.result(0, self.model.nv, self.model.nv)
        query.run(GRAVITY_FORCE_GRADIENT, by_q=by_q)
        return cast(Array, self._answered("gravity_force_gradient", query.finish({"dg_dq": by_q})))

    def mass_matrix_product_gradient(
        self, q: ArrayLike, *, vector: ArrayLike, inertia: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """d(H vector)/dq (..., nv, nv) of `mass_matrix` times a constant `vector` (..., nv): column j is the change
        with coordinate j, on the tangent space.

        Inverse dynamics without gravity at qd = 0 and qdd = vector, differentiated: no third-order tensor is made.
        """
        query = Query(self, out, "vector", q=q, vector=vector, inertia=inertia)
        by_q = query.result(0, self.model.nv, self.model.nv)
        query.run(MASS_MATRIX_PRODUCT_GRADIENT, by_q=by_q)
        return cast(Array, self._answered("mass_matrix_product_gradient", query.finish({"dHx_dq": by_q})))
