"""Derivatives of inverse and forward dynamics."""

from __future__ import annotations

from typing import cast

from numpy.typing import ArrayLike

from robodyn.api.queries.core import Core
from robodyn.api.queries.fast_path import query
from robodyn.internals.arguments import Array


class GradientQueries(Core):
    """Queries about first derivatives."""

    @query
    def inverse_dynamics_gradient(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        *,
        f_ext: ArrayLike | None = None,
        method: str = "auto",
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(dtau/dq, dtau/dqd), each (..., nv, nv): column j is the derivative with respect to coordinate j.

        Derivatives with respect to q are on the tangent space (`model.integrate`). dtau/dqdd is the mass matrix.
        External forces stay constant in the world. The model's constraints are ignored.

        `method`: "idsva" (composites of subtrees: Singh, Russell, Wensing 2022), "columns" (RNEA differentiated line by
        line, in body frames: Plancher et al., algorithm 2), or "auto", the cheaper one (docs/gradients.md).
        """
        return cast(tuple[Array, Array], self._ask("inverse_dynamics_gradient", locals()))

    @query
    def inverse_dynamics_vjp(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        *,
        vector: ArrayLike,
        f_ext: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: tuple[Array, Array, Array] | None = None,
    ) -> tuple[Array, Array, Array]:
        """Gradients of vector' tau with respect to q (on the tangent space), qd and qdd, each (..., nv).

        They are vector' dtau/dq, vector' dtau/dqd and H vector. No matrix is formed: they cost about twice as much as
        inverse dynamics (`robodyn.algorithms.rnea_vjp`). External forces stay constant in the world.
        """
        return cast(tuple[Array, Array, Array], self._ask("inverse_dynamics_vjp", locals()))

    @query
    def forward_dynamics_gradient(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        tau: ArrayLike,
        *,
        f_ext: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: tuple[Array, Array, Array] | None = None,
    ) -> tuple[Array, Array, Array]:
        """(dqdd/dq, dqdd/dqd, dqdd/dtau), each (..., nv, nv): -H^-1 dtau/dq, -H^-1 dtau/dqd, H^-1.

        The model's constraints are ignored: see `constrained_forward_dynamics_gradient`. Conventions are those of
        `inverse_dynamics_gradient`. Source: Plancher et al., algorithm 3.

        Raises:
            SingularError: H is singular at every state; names the body.
        """
        return cast(tuple[Array, Array, Array], self._ask("forward_dynamics_gradient", locals()))
