"""Inverse and forward dynamics, the mass matrix, and related forces and matrices."""

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
        """Inverse dynamics: generalised forces tau (..., nv), N or N m, for accelerations qdd. RNEA, RBDA table 5.1.

        The model's constraints are ignored: see `constrained_inverse_dynamics`.
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
        """Forward dynamics: accelerations qdd (..., nv) under generalised forces tau.

        The model's constraints are ignored: see `constrained_forward_dynamics` and `rollout`.

        `method`: "aba" (RBDA table 7.1; not for models with mimic joints), "crba" (mass matrix and L'DL factorisation),
        or "auto".

        Raises:
            SingularError: the mass matrix is singular at every state; names the body, or the rows of `inertia`.
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

        `sparse`: True for a `scipy.sparse.csr_array` (nv, nv) of one state; for a state on a GPU it is a CuPy
        `csr_matrix`. Its pattern depends on the model alone: entry (i, j) is stored if one of the two joints is an
        ancestor of the other or both are the same (RBDA section 6.5). Both triangles are stored.

        Raises:
            ArgumentError: the result does not fit into memory; `out` or a batch of states with `sparse`.
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
        """The sparse mass matrix, by the scan engine whatever the engine of the `Dynamics`."""
        if call.out is not None:
            raise ArgumentError("out: got an array with sparse=True; a sparse matrix is always a new one")
        if call.leading:
            raise ArgumentError(f"sparse: got True for states of shape {call.leading}; wanted one state, q (nq,)")
        engine = self._scans.there() if call.library.on_device else self._scans
        return cast("csr_array", engine.sparse_mass_matrix(call.inputs, lambda H: call.finish({"H": H})))

    def _refill(self, H: Any, q: ArrayLike, *, inertia: ArrayLike | None = None, sparse: bool = True) -> None:
        """Overwrite the entries of a sparse matrix on a GPU with those of another state (see `capture`)."""
        call = Call(self, {"q": q, "inertia": inertia}, QUERIES["mass_matrix"].optional, None)
        H.data[...] = self._scans.there().sparse_entries(call.inputs)

    @cached_property
    def _scans(self) -> ScanEngine:
        """A scan engine: that of the `Dynamics` if it is one, else a new one."""
        from robodyn.engines.scan.engine import ScanEngine

        if isinstance(self.engine, ScanEngine):
            return self.engine
        return ScanEngine(self.model, self.dtype, self._options.scan)

    @query
    def mass_matrix_inverse(self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None) -> Array:
        """The inverse H^-1 (..., nv, nv) of the mass matrix, by the articulated-body recursion.

        Raises:
            SingularError: H is singular at every state; names the body, or the rows of `inertia`.
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
        """Bias force (..., nv): Coriolis, centrifugal and gravity forces minus external ones. It is inverse dynamics at
        qdd = 0."""
        return cast(Array, self._ask("bias_force", locals()))

    @query
    def gravity_force(self, q: ArrayLike, *, inertia: ArrayLike | None = None, out: Array | None = None) -> Array:
        """Generalised forces (..., nv) that hold the robot still against gravity, the gradient of potential energy."""
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
        """Coriolis matrix C (..., nv, nv): Hdot - 2 C is skew-symmetric, and C qd + g is the bias force for a base at
        rest.

        With a moving base (V0), C is the joints' block of the Coriolis matrix of joints and base. Damping and friction
        are not part of it. Source: Echeandia and Wensing 2021, algorithm 1.
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
        """Joint reactions (..., n_bodies, 6), N m and N: the wrench of the parent on each body through its joint.

        Each is in the body's frame (`model.body_names`), about its origin, moment first, gravity included: the force f
        of the recursive Newton-Euler algorithm (RBDA table 5.1). Its components along the joint's axes plus the force
        of armature are `inverse_dynamics`; the bearings carry the rest. Where a joint mimics another one the wrench
        includes the force of the coupling along its axes.

        If `model.constraints` hold links, `f_ext` must include the constraint forces, `constraint_wrenches(q, lam)`.
        The components along the axes are then tau of the drives plus the forces of locks and couplings.

        Raises:
            ArgumentError: no `f_ext` for a model whose constraints hold links.
        """
        return cast(Array, self._ask("joint_reaction", locals()))
