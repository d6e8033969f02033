"""Generalised forces, accelerations and the matrices between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast, overload

from numpy.typing import ArrayLike

from robodyn.api.queries.call import Call
from robodyn.api.queries.core import Core
from robodyn.api.queries.fast_path import query
from robodyn.engines.memory import require_memory
from robodyn.engines.query_table import QUERIES
from robodyn.internals.arguments import Array, flag
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError

if TYPE_CHECKING:
    from scipy.sparse import csr_array  # type: ignore[import-untyped]

    from robodyn.engines.scan.engine import ScanEngine


class ForceQueries(Core):
    """Queries about forces and accelerations."""

    @query
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
        """Generalised forces tau (..., nv), N or N m, that give accelerations qdd. RNEA, RBDA table 5.1.

        Of the tree alone, without the model's constraints: see `constrained_inverse_dynamics`.
        """
        return cast(Array, self._ask("inverse_dynamics", locals()))

    @query
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

        Of the tree alone, without the model's constraints: see `constrained_forward_dynamics`, and `rollout`.

        `method`: "aba" (RBDA table 7.1; for models without mimicking joints), "crba" (mass matrix and L'DL), or "auto".

        Raises:
            SingularError: the mass matrix is singular whatever the state; names the body, or the rows of `inertia`.
        """
        return cast(Array, self._ask("forward_dynamics", locals()))

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

    @query
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
        question = QUERIES["mass_matrix"]
        call = self._call(question, locals())
        if flag("sparse", sparse):
            return self._sparse_mass_matrix(call)
        nv = self.model.nv
        if (out is None or call.checked) and not call.library.on_device:
            remedy = "sparse=True, which leaves out zeros" if call.leading == () else "fewer states, or sparse=True"
            require_memory("mass matrix", (*call.leading, nv, nv), self.dtype.itemsize, remedy)
        return cast(Array, call.finish(self._results(question, call)))

    def _sparse_mass_matrix(self, call: Call) -> csr_array:
        """By scans, whatever the engine."""
        if call.out is not None:
            raise ArgumentError("out: got an array with sparse=True; a sparse matrix is always a new one")
        if call.leading:
            raise ArgumentError(f"sparse: got True for states of shape {call.leading}; wanted one state, q (nq,)")
        engine = self._scans.there() if call.library.on_device else self._scans
        return cast("csr_array", engine.sparse_mass_matrix(call.inputs, lambda H: call.finish({"H": H})))

    def _refill(self, H: Any, q: ArrayLike, *, inertia: ArrayLike | None = None, sparse: bool = True) -> None:
        """Let a sparse matrix that an earlier call returned on a GPU be that of another state, see `capture`."""
        call = Call(self, {"q": q, "inertia": inertia}, QUERIES["mass_matrix"].optional, None)
        H.data[...] = self._scans.there().sparse_entries(call.inputs)

    @cached_property
    def _scans(self) -> ScanEngine:
        """A scan engine: the chosen one, if it is one."""
        from robodyn.engines.scan.engine import ScanEngine

        if isinstance(self.engine, ScanEngine):
            return self.engine
        return ScanEngine(self.model, self.dtype, self._options.scan)

    @query
    def mass_matrix_inverse(self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None) -> Array:
        """H^-1 (..., nv, nv), by the articulated-body recursion.

        Raises:
            SingularError: H is singular whatever the state; names the body, or the rows of `inertia`.
        """
        return cast(Array, self._ask("mass_matrix_inverse", locals()))

    @query
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
        return cast(Array, self._ask("bias_force", locals()))

    @query
    def gravity_force(self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None) -> Array:
        """Generalised forces (..., nv) that hold the robot still against gravity: the gradient of potential energy."""
        return cast(Array, self._ask("gravity_force", locals()))

    @query
    def coriolis_matrix(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        *,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """C (..., nv, nv) with C qd + g = bias for a base at rest and Hdot - 2 C skew-symmetric.

        With a moving base (V0), C is the block of the robot's own velocities in the Coriolis matrix of robot and base.
        Echeandia and Wensing 2021, algorithm 1. Damping and friction are not part of it.
        """
        return cast(Array, self._ask("coriolis_matrix", locals()))

    @query
    def joint_reaction(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        *,
        f_ext: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Wrenches (..., n_bodies, 6) through every joint: what the parent exerts on the body, N m and N.

        In the body's frame (`model.body_names`), about its origin, moment first: the force f of the recursive
        Newton-Euler algorithm (RBDA table 5.1), gravity included. `inverse_dynamics` is its part along the joint's axes
        and the forces of armature; the rest is what bearings hold. Where joints mimic others the wrench is that of the
        tree: what the coupling exerts along the axes is part of it.

        Where `model.constraints` hold links, what they exert must be in `f_ext`: `constraint_wrenches(q, lam)`, and
        other external forces added to it. Then the part along axes is tau of the drives, plus what locks and couplings
        give there.

        Raises:
            ArgumentError: no `f_ext` for a model whose constraints hold links.
        """
        return cast(Array, self._ask("joint_reaction", locals()))
