"""Derivatives of inverse and forward dynamics."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.rnea_gradient import rnea_gradient
from robodyn.arguments import Array
from robodyn.queries.forces import ForceQueries
from robodyn.query import Query


class GradientQueries(ForceQueries):
    """Queries about first derivatives."""

    def inverse_dynamics_gradient(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        f_ext: ArrayLike | None = None,
        *,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """(dtau/dq, dtau/dqd), each (..., nv, nv): column j is the change with coordinate j.

        With respect to q on the tangent space (`model.integrate`); external forces stay constant in the world.
        Plancher et al., algorithm 2. dtau/dqdd is the mass matrix.
        """
        query = Query(self, out, q=q, qd=qd, qdd=qdd, f_ext=f_ext, V0=V0, dV0=dV0)
        nv = self.model.nv
        by_q, by_qd = query.result(0, nv, nv), query.result(1, nv, nv)
        self._rnea_gradient(query, by_q, by_qd)
        return cast(tuple[Array, Array], query.finish({"dtau_dq": by_q, "dtau_dqd": by_qd}))

    def _rnea_gradient(self, query: Query, by_q: Array, by_qd: Array) -> None:
        nv = self.model.nv
        inputs = tuple(name for name in query.names if name != "tau")
        query.run(rnea_gradient(inputs), tau_q=by_q, tau_qd=by_qd)
        if "damping" in self.joint_forces:
            by_qd[:, np.arange(nv), np.arange(nv)] += self.model.damping.astype(self.dtype)

    def forward_dynamics_gradient(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        tau: ArrayLike,
        f_ext: ArrayLike | None = None,
        *,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: tuple[Array, Array, Array] | None = None,
    ) -> tuple[Array, Array, Array]:
        """(dqdd/dq, dqdd/dqd, dqdd/dtau), each (..., nv, nv): -H^-1 dtau/dq, -H^-1 dtau/dqd, H^-1.

        Plancher et al., algorithm 3; conventions as for `inverse_dynamics_gradient`.

        Raises:
            SingularError: H is singular whatever the state; names the body.
        """
        query = Query(self, out, q=q, qd=qd, tau=tau, f_ext=f_ext, V0=V0, dV0=dV0)
        nv = self.model.nv
        by_q, by_qd, Hinv = query.new(nv, nv), query.new(nv, nv), query.result(2, nv, nv)
        query.inputs["qdd"] = self._forward(query)
        self._rnea_gradient(query, by_q, by_qd)
        Hinv = self._inverse(query, Hinv)
        with np.errstate(all="ignore"):
            results = {"dqdd_dq": -(Hinv @ by_q), "dqdd_dqd": -(Hinv @ by_qd), "dqdd_dtau": Hinv}
        return cast(tuple[Array, Array, Array], query.finish(results))
