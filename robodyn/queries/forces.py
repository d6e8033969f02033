"""Generalised forces, accelerations and the matrices between them."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.aba import INVERSE_MASS_MATRIX, aba
from robodyn.algorithms.coriolis import CORIOLIS_MATRIX
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.rnea import rnea
from robodyn.arguments import Array, one_of
from robodyn.engines.dense import solve
from robodyn.engines.protocol import METHODS
from robodyn.errors import ArgumentError
from robodyn.queries.core import Core
from robodyn.query import Query

_MASS_MATRICES_BYTES = 1 << 26


class ForceQueries(Core):
    """Queries about forces and accelerations."""

    def inverse_dynamics(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        f_ext: ArrayLike | None = None,
        method: str = "auto",
        *,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Generalised forces tau (..., nv), N or N m, that give accelerations qdd. RNEA, RBDA table 5.1."""
        one_of("method", method, ("auto", *METHODS["inverse_dynamics"]))
        query = Query(self, out, q=q, qd=qd, qdd=qdd, f_ext=f_ext, V0=V0, dV0=dV0)
        return cast(Array, self._answered("inverse_dynamics", query.finish({"tau": self._rnea(query)})))

    def _rnea(self, query: Query) -> Array:
        tau = query.result(0, self.model.nv)
        query.run(rnea(query.names), tau=tau)
        if self.joint_forces and "qd" in query.inputs:
            with np.errstate(all="ignore"):
                tau += self._joint_force(query.inputs["qd"])
        return tau

    def forward_dynamics(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        tau: ArrayLike,
        f_ext: ArrayLike | None = None,
        method: str = "auto",
        *,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Accelerations qdd (..., nv) under generalised forces tau.

        `method`: "aba" (RBDA table 7.1; for models without mimicking joints), "crba" (mass matrix and L'DL), or "auto".

        Raises:
            SingularError: the mass matrix is singular whatever the state; names the body.
        """
        one_of("method", method, ("auto", *METHODS["forward_dynamics"]))
        if method == "aba" and self.model.has_mimic:
            raise ArgumentError("method: got 'aba' for a model whose joints mimic others; allowed: 'auto', 'crba'")
        query = Query(self, out, q=q, qd=qd, tau=tau, f_ext=f_ext, V0=V0, dV0=dV0)
        return cast(Array, self._answered("forward_dynamics", query.finish({"qdd": self._forward(query, method)})))

    def _forward(self, query: Query, method: str = "auto") -> Array:
        self._require_regular()
        tau = query.inputs["tau"]
        if self.joint_forces:
            with np.errstate(all="ignore"):
                tau = tau - self._joint_force(query.inputs["qd"])
        qdd = query.result(0, self.model.nv)
        given = {**query.inputs, "tau": tau}
        if method == "crba" or self.model.has_mimic:
            self._solve_forward(given, query.names, qdd)
        else:
            self.engine.run(aba(query.names), given, {"qdd": qdd})
        return qdd

    def _solve_forward(self, given: dict[str, Array], names: tuple[str, ...], qdd: Array) -> None:
        """H qdd = tau - bias, some rows at a time: mass matrices of a whole batch may be more than there is memory."""
        nv = self.model.nv
        rows = max(1, _MASS_MATRICES_BYTES // max(1, nv * nv * self.dtype.itemsize))
        inputs = tuple(name for name in names if name != "tau")
        for start in range(0, qdd.shape[0], rows):
            part = {name: array[start : start + rows] for name, array in given.items()}
            count = part["tau"].shape[0]
            bias, H = np.empty((count, nv), self.dtype), np.empty((count, nv, nv), self.dtype)
            self.engine.run(rnea(inputs), part, {"tau": bias})
            self.engine.run(CRBA, part, {"H": H})
            with np.errstate(all="ignore"):
                force = part["tau"] - bias
            qdd[start : start + rows] = solve(H, force[..., None])[..., 0]

    def mass_matrix(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """The joint-space inertia matrix H (..., nv, nv), armature included. CRBA, RBDA table 6.2."""
        query = Query(self, out, q=q)
        H = query.result(0, self.model.nv, self.model.nv)
        query.run(CRBA, H=H)
        return cast(Array, self._answered("mass_matrix", query.finish({"H": H})))

    def mass_matrix_inverse(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """H^-1 (..., nv, nv), by the articulated-body recursion.

        Raises:
            SingularError: H is singular whatever the state; names the body.
        """
        query = Query(self, out, q=q)
        Hinv = self._inverse(query, query.result(0, self.model.nv, self.model.nv))
        return cast(Array, self._answered("mass_matrix_inverse", query.finish({"Hinv": Hinv})))

    def _inverse(self, query: Query, Hinv: Array) -> Array:
        """H^-1, in the array given where that is no detour."""
        self._require_regular()
        if not self.model.has_mimic:
            query.run(INVERSE_MASS_MATRIX, Hinv=Hinv)
            return Hinv
        H = query.new(*Hinv.shape[1:])
        query.run(CRBA, H=H)
        return solve(H, np.broadcast_to(np.eye(self.model.nv, dtype=self.dtype), H.shape).copy())

    def bias_force(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        f_ext: ArrayLike | None = None,
        *,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Inverse dynamics at qdd = 0 (..., nv): Coriolis, centrifugal and gravity forces minus external ones."""
        query = Query(self, out, q=q, qd=qd, f_ext=f_ext, V0=V0, dV0=dV0)
        return cast(Array, self._answered("bias_force", query.finish({"bias": self._rnea(query)})))

    def gravity_force(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """Generalised forces (..., nv) that hold the robot still against gravity: the gradient of potential energy."""
        query = Query(self, out, q=q)
        return cast(Array, self._answered("gravity_force", query.finish({"gravity": self._rnea(query)})))

    def coriolis_matrix(
        self, q: ArrayLike, qd: ArrayLike, *, V0: ArrayLike | None = None, out: Array | None = None
    ) -> Array:
        """C (..., nv, nv) with C qd + g = bias for a base at rest and Hdot - 2 C skew-symmetric.

        With a moving base (V0), C is the block of the robot's own velocities in the Coriolis matrix of robot and base.
        Echeandia and Wensing 2021, algorithm 1. Damping and friction are not part of it.
        """
        query = Query(self, out, q=q, qd=qd, V0=V0)
        C = query.result(0, self.model.nv, self.model.nv)
        query.run(CORIOLIS_MATRIX, C=C)
        return cast(Array, self._answered("coriolis_matrix", query.finish({"C": C})))
