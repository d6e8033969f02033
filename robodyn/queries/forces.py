"""Generalised forces, accelerations and the matrices between them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal, cast, overload

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.aba import INVERSE_MASS_MATRIX, aba
from robodyn.algorithms.coriolis import CORIOLIS_MATRIX
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.forward_gradient import forward_by_mass_matrix, inverse_by_mass_matrix
from robodyn.algorithms.rnea import rnea
from robodyn.arguments import Array, flag
from robodyn.engines.memory import require_memory
from robodyn.engines.protocol import RECURSIVE, methods_of
from robodyn.errors import ArgumentError
from robodyn.queries.core import Core
from robodyn.query import Query

if TYPE_CHECKING:
    from scipy.sparse import csr_array  # type: ignore[import-untyped]

    from robodyn.engines.scan.states import Layout


class ForceQueries(Core):
    """Queries about forces and accelerations."""

    def inverse_dynamics(
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
        out: Array | None = None,
    ) -> Array:
        """Generalised forces tau (..., nv), N or N m, that give accelerations qdd. RNEA, RBDA table 5.1."""
        self._method("inverse_dynamics", method)
        query = Query(self, out, q=q, qd=qd, qdd=qdd, f_ext=f_ext, inertia=inertia, V0=V0, dV0=dV0)
        return cast(Array, self._answered("inverse_dynamics", query.finish({"tau": self._rnea(query, method)})))

    def _rnea(self, query: Query, method: str = "auto") -> Array:
        tau = query.result(0, self.model.nv)
        query.run(self._scan("inverse_dynamics", method) or rnea(query.names), tau=tau)
        if self.joint_forces and "qd" in query.inputs:
            with np.errstate(all="ignore"):
                tau += self._joint_force(query)
        return tau

    def forward_dynamics(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        tau: ArrayLike,
        *,
        f_ext: ArrayLike | None = None,
        method: str = "auto",
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Accelerations qdd (..., nv) under generalised forces tau.

        `method`: "aba" (RBDA table 7.1; for models without mimicking joints), "crba" (mass matrix and L'DL), or "auto".

        Raises:
            SingularError: the mass matrix is singular whatever the state; names the body, or the rows of `inertia`.
        """
        self._method("forward_dynamics", method)
        if self.model.has_mimic and method in RECURSIVE:
            allowed = ", ".join(
                repr(each)
                for each in ("auto", *methods_of("forward_dynamics", self.engine.name))
                if each not in RECURSIVE
            )
            raise ArgumentError(f"method: got {method!r} for a model whose joints mimic others; allowed: {allowed}")
        query = Query(self, out, q=q, qd=qd, tau=tau, f_ext=f_ext, inertia=inertia, V0=V0, dV0=dV0)
        return cast(Array, self._answered("forward_dynamics", query.finish({"qdd": self._forward(query, method)})))

    def _forward(self, query: Query, method: str = "auto") -> Array:
        self._require_regular(query)
        self._take_joint_forces(query)
        qdd = query.result(0, self.model.nv)
        by_matrix = method == "crba" or self.model.has_mimic
        task = forward_by_mass_matrix(query.names) if by_matrix else aba(query.names)
        query.run(self._scan("forward_dynamics", method) or task, qdd=qdd)
        return qdd

    def _take_joint_forces(self, query: Query) -> None:
        """Leave of tau what damping and friction do not take."""
        if self.joint_forces:
            with np.errstate(all="ignore"):
                query.inputs["tau"] = query.inputs["tau"] - self._joint_force(query)

    @overload
    def mass_matrix(
        self,
        q: ArrayLike,
        *,
        inertia: ArrayLike | None = None,
        out: Array | None = None,
        sparse: Literal[False] = False,
    ) -> Array: ...

    @overload
    def mass_matrix(
        self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: None = None, sparse: Literal[True]
    ) -> csr_array: ...

    def mass_matrix(
        self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None, sparse: bool = False
    ) -> Array | csr_array:
        """The joint-space inertia matrix H (..., nv, nv), armature included. CRBA, RBDA table 6.2.

        `sparse`: a `scipy.sparse.csr_array` (nv, nv) of one state, of a state on a GPU a CuPy `csr_matrix` there. Its
        pattern is the model's: entry (i, j) is stored where one of the two is an ancestor of the other, or their joint
        the same (RBDA section 6.5), both triangles.

        Raises:
            ArgumentError: more than memory holds; `out` or a batch of states with `sparse`.
        """
        query = Query(self, out, q=q, inertia=inertia)
        if flag("sparse", sparse):
            return self._sparse_mass_matrix(query)
        nv = self.model.nv
        if (out is None or query.checked) and not query.library.on_device:
            remedy = "sparse=True, which leaves out zeros" if query.leading == () else "fewer states, or sparse=True"
            require_memory("mass matrix", (*query.leading, nv, nv), self.dtype.itemsize, remedy)
        H = query.result(0, nv, nv)
        query.run(self._scan("mass_matrix") or CRBA, H=H)
        return cast(Array, self._answered("mass_matrix", query.finish({"H": H})))

    def _sparse_mass_matrix(self, query: Query) -> csr_array:
        """By scans, whatever the engine."""
        from robodyn.engines.scan.elementwise import operators
        from robodyn.engines.scan.mass_matrix import require_sparse_memory, sparse_mass_matrix
        from robodyn.engines.scan.states import State

        if query.out is not None:
            raise ArgumentError("out: got an array with sparse=True; a sparse matrix is always a new one")
        if query.leading:
            raise ArgumentError(f"sparse: got True for states of shape {query.leading}; wanted one state, q (nq,)")
        if query.library.on_device:
            return self._gpu_scans.sparse_mass_matrix(query.inputs, lambda H: query.finish({"H": H[None]}))
        require_sparse_memory(self._layout)
        inputs = {**query.inputs, "q": self.model.normalized(query.inputs["q"])}
        with np.errstate(all="ignore"), operators(self._layout.options.operators):
            H = sparse_mass_matrix(State(self._layout, inputs))
        H.data = query.finish({"H": H.data[None]})
        return H

    @cached_property
    def _layout(self) -> Layout:
        """The model as scans want it."""
        from robodyn.engines.scan.options import ScanOptions
        from robodyn.engines.scan.states import Layout

        there = getattr(self.engine, "layout", None)  # the scan engine has one
        return there if there is not None else Layout(self.model, self.dtype, ScanOptions())

    def mass_matrix_inverse(self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None) -> Array:
        """H^-1 (..., nv, nv), by the articulated-body recursion.

        Raises:
            SingularError: H is singular whatever the state; names the body, or the rows of `inertia`.
        """
        query = Query(self, out, q=q, inertia=inertia)
        Hinv = self._inverse(query, query.result(0, self.model.nv, self.model.nv))
        return cast(Array, self._answered("mass_matrix_inverse", query.finish({"Hinv": Hinv})))

    def _inverse(self, query: Query, Hinv: Array) -> Array:
        """H^-1, in the array given."""
        self._require_regular(query)
        query.run(inverse_by_mass_matrix() if self.model.has_mimic else INVERSE_MASS_MATRIX, Hinv=Hinv)
        return Hinv

    def bias_force(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        *,
        f_ext: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Inverse dynamics at qdd = 0 (..., nv): Coriolis, centrifugal and gravity forces minus external ones."""
        query = Query(self, out, q=q, qd=qd, f_ext=f_ext, inertia=inertia, V0=V0, dV0=dV0)
        return cast(Array, self._answered("bias_force", query.finish({"bias": self._rnea(query)})))

    def gravity_force(self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None) -> Array:
        """Generalised forces (..., nv) that hold the robot still against gravity: the gradient of potential energy."""
        query = Query(self, out, q=q, inertia=inertia)
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
