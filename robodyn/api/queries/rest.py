"""Derivatives of inverse dynamics at rest: gravity forces, and products of the mass matrix and a vector."""

from __future__ import annotations

from typing import cast

from numpy.typing import ArrayLike

from robodyn.api.queries.core import Core
from robodyn.api.queries.fast_path import query
from robodyn.internals.arguments import Array


class RestQueries(Core):
    """Queries about derivatives of forces at rest with respect to q."""

    @query
    def gravity_force_gradient(
        self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """dg/dq (..., nv, nv) of `gravity_force`: column j is the derivative with respect to tangent coordinate j.

        It is the second derivative of `potential_energy`, symmetric if all joints have one degree of freedom.
        """
        return cast(Array, self._ask("gravity_force_gradient", locals()))

    @query
    def mass_matrix_product_gradient(
        self, q: ArrayLike, *, vector: ArrayLike, inertia: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """d(H vector)/dq (..., nv, nv) of `mass_matrix` times a constant `vector` (..., nv): column j is the derivative
        with respect to tangent coordinate j.

        It is the gradient of inverse dynamics without gravity at qd = 0 and qdd = vector. No third-order tensor is
        formed.
        """
        return cast(Array, self._ask("mass_matrix_product_gradient", locals()))
