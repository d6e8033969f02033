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
        """(dtau/dq, dtau/dqd), each (..., nv, nv): column j is the change with coordinate j. Of the tree alone.

        With respect to q on the tangent space (`model.integrate`); external forces stay constant in the world.
        dtau/dqdd is the mass matrix.

        `method`: "idsva" (composites of subtrees: Singh, Russell, Wensing 2022), "columns" (RNEA differentiated line by
        line, in body frames: Plancher et al., algorithm 2), or "auto", the one that takes less (docs/gradients.md).
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
        """The gradient of vector' tau with respect to q (on the tangent space), qd and qdd, each (..., nv).

        These are vector' dtau/dq, vector' dtau/dqd and H vector, for about twice the cost of inverse dynamics: no
        matrix is made (`robodyn.algorithms.rnea_vjp`). External forces stay constant in the world.
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
        """(dqdd/dq, dqdd/dqd, dqdd/dtau), each (..., nv, nv): -H^-1 dtau/dq, -H^-1 dtau/dqd, H^-1. Of
        the tree alone: of accelerations that obey the model's constraints there is no gradient.

        Plancher et al., algorithm 3; conventions as for `inverse_dynamics_gradient`.

        Raises:
            SingularError: H is singular whatever the state; names the body.
        """
        return cast(tuple[Array, Array, Array], self._ask("forward_dynamics_gradient", locals()))
