"""Derivatives of inverse and forward dynamics."""

from __future__ import annotations

from typing import cast

from numpy.typing import ArrayLike

from robodyn.algorithms.forward_gradient import forward_gradient
from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.rnea_gradient import rnea_gradient
from robodyn.algorithms.rnea_vjp import rnea_vjp
from robodyn.arguments import Array
from robodyn.queries.forces import ForceQueries
from robodyn.query import Query
from robodyn.sweeps import Algorithm

_COUNTED_BODIES = 8
"""Trees whose operations are counted to choose between formulations. Columns in body frames win on some of them;
composites have won on every larger robot, and counting takes as long as the choice could save."""


class GradientQueries(ForceQueries):
    """Queries about first derivatives."""

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
        """(dtau/dq, dtau/dqd), each (..., nv, nv): column j is the change with coordinate j.

        With respect to q on the tangent space (`model.integrate`); external forces stay constant in the world.
        dtau/dqdd is the mass matrix.

        `method`: "idsva" (composites of subtrees: Singh, Russell, Wensing 2022), "columns" (RNEA differentiated line by
        line, in body frames: Plancher et al., algorithm 2), or "auto", the one with fewer operations.
        """
        self._method("inverse_dynamics_gradient", method)
        query = Query(self, out, q=q, qd=qd, qdd=qdd, f_ext=f_ext, inertia=inertia, V0=V0, dV0=dV0)
        nv = self.model.nv
        by_q, by_qd = query.result(0, nv, nv), query.result(1, nv, nv)
        self._rnea_gradient(query, by_q, by_qd, method)
        results = query.finish({"dtau_dq": by_q, "dtau_dqd": by_qd})
        return cast(tuple[Array, Array], self._answered("inverse_dynamics_gradient", results))

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
        # Elsewhere a vector may be left out: None is refused here.
        given = {"q": q, "qd": qd, "qdd": qdd, "vector": vector, "f_ext": f_ext, "inertia": inertia}
        query = Query(self, out, "vector", **given, V0=V0, dV0=dV0)
        by_q, by_qd, by_qdd = (query.result(k, self.model.nv) for k in range(3))
        query.run(rnea_vjp(query.names), by_q=by_q, by_qd=by_qd, by_qdd=by_qdd)
        if "damping" in self.joint_forces:
            by_qd += self._damping(query) * query.inputs["vector"]
        results = query.finish({"by_q": by_q, "by_qd": by_qd, "by_qdd": by_qdd})
        return cast(tuple[Array, Array, Array], self._answered("inverse_dynamics_vjp", results))

    def _rnea_gradient(self, query: Query, by_q: Array, by_qd: Array, method: str = "auto") -> None:
        inputs = tuple(name for name in query.names if name != "tau")
        task = self._scan("inverse_dynamics_gradient", method) or self._gradient_algorithm(inputs, method)
        query.run(task, tau_q=by_q, tau_qd=by_qd)
        if "damping" in self.joint_forces:
            nv = self.model.nv
            diagonals = by_qd.reshape(query.batch, nv * nv)[:, :: nv + 1]  # a view: results are contiguous
            diagonals += self._damping(query)

    def _gradient_algorithm(self, inputs: tuple[str, ...] = ("q", "qd", "qdd"), method: str = "auto") -> Algorithm:
        """The algorithm behind the gradient of inverse dynamics."""
        if method == "columns":
            return rnea_gradient(inputs)
        if method == "idsva" or self.model.n_bodies > _COUNTED_BODIES:
            return idsva(inputs)
        from robodyn.tracing.unrolled import trace

        chosen: dict[tuple[str, ...], Algorithm] = self.__dict__.setdefault("_formulations", {})
        if inputs not in chosen:
            both = (idsva(inputs), rnea_gradient(inputs))
            chosen[inputs] = min(both, key=lambda each: trace(self.model, each).operations)
        return chosen[inputs]

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

        Plancher et al., algorithm 3; conventions as for `inverse_dynamics_gradient`.

        Raises:
            SingularError: H is singular whatever the state; names the body.
        """
        query = Query(self, out, q=q, qd=qd, tau=tau, f_ext=f_ext, inertia=inertia, V0=V0, dV0=dV0)
        self._require_regular(query)
        self._take_joint_forces(query)
        nv = self.model.nv
        results = {name: query.result(k, nv, nv) for k, name in enumerate(("dqdd_dq", "dqdd_dqd", "dqdd_dtau"))}
        query.run(forward_gradient(query.names, damping="damping" in self.joint_forces), None, **results)
        answer = query.finish(results)
        return cast(tuple[Array, Array, Array], self._answered("forward_dynamics_gradient", answer))
