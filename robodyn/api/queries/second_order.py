"""Second derivatives of inverse and forward dynamics."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.dense import solve
from robodyn.algorithms.regressor import GRAVITY_GRADIENT
from robodyn.api.queries.call import Call
from robodyn.api.queries.core import Core
from robodyn.api.queries.fast_path import query
from robodyn.api.queries.precision import TOLERATED, judged_rows, worst_loss
from robodyn.engines.query_table import QUERIES, QuerySpec
from robodyn.internals.arguments import Array, row_named
from robodyn.internals.cached import cached_property
from robodyn.internals.messages import users_line

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics
    from robodyn.core.model import Model

Hessians: TypeAlias = tuple[Array, Array, Array, Array]
_Arrays: TypeAlias = dict[str, Array]
_ROUNDING = ("reference", "cpu")
"""Engines that compute float32 results in float64 and round them: on CPUs float64 is nearly as fast."""
_ROUNDED_ROWS = 4096
"""Number of rows computed in float64 at a time."""


class SecondOrderQueries(Core):
    """Queries about second derivatives."""

    @abstractmethod
    def variant(self, model: Model | None = None, **options: Any) -> Dynamics:
        """A `Dynamics` with the same options except those passed here."""

    @query
    def inverse_dynamics_hessian(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        qdd: ArrayLike,
        *,
        vector: ArrayLike | None = None,
        f_ext: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Hessians | None = None,
    ) -> Hessians:
        """(d2tau/dqdq, d2tau/dqdqd, d2tau/dqddqd, d2tau/dqdqdd); all other second derivatives are zero.

        With `vector` (..., nv) each is (..., nv, nv): entry [k, m] of d2tau/dxdy is d/dy_m of d/dx_k of vector' tau.
        Without `vector` each is a tensor (..., nv, nv, nv): entry [i, k, m] is the same derivative of tau_i.

        Derivatives with respect to q are on the tangent space: d2tau/dqdq[k, m] is the derivative of column k of
        dtau/dq along `model.integrate(q, h e_m)`. It is symmetric except in blocks of joints with several degrees of
        freedom. d2tau/dqdqdd[i, k, m] is dH_im/dq_k. External forces stay constant in the world.

        Source: Singh, Russell, Wensing, On Second-Order Derivatives of Rigid-Body Dynamics (2023), with the vector
        contracted before the sums (`robodyn.algorithms.idsva_hessian`).

        With dtype "float32" the engines "reference" and "cpu" round results of float64. With check=False they compute
        in float32.

        Warns:
            RuntimeWarning: (other engines, dtype "float32") up to four rows of the call, computed again in float64,
                show a result whose error is above 1e-2 of its largest entry. Tensors are compared by their sum over
                i, arrays on a GPU only with check=True.
        """
        return self._hessians("inverse_dynamics_hessian", locals())

    def _hessians(self, name: str, given: Mapping[str, Any]) -> Hessians:
        """Answer a query. In float32 compute it in float64 and round, or compare some rows with float64."""
        question = QUERIES[name]
        call = self._call(question, given)
        doubted = self._are_doubted(call)
        if doubted and call.engine.name in _ROUNDING:
            results = self._rounded_results(question, call)
        else:
            inputs = dict(call.inputs)
            results = self._results(question, call)
            if doubted:
                self._warn_of_lost_digits(question, call, inputs, results)
        return cast(Hessians, call.finish(results))

    @query
    def forward_dynamics_hessian(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        tau: ArrayLike,
        *,
        vector: ArrayLike | None = None,
        f_ext: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
        V0: ArrayLike | None = None,
        dV0: ArrayLike | None = None,
        out: Hessians | None = None,
    ) -> Hessians:
        """(d2qdd/dqdq, d2qdd/dqdqd, d2qdd/dqddqd, d2qdd/dqdtau); all other second derivatives are zero.

        With `vector` (..., nv) each is (..., nv, nv): entry [k, m] of d2qdd/dxdy is d/dy_m of d/dx_k of vector' qdd.
        Without `vector` each is a tensor (..., nv, nv, nv): entry [i, k, m] is the same derivative of qdd_i.
        Conventions and warnings are those of `inverse_dynamics_hessian`; `robodyn.algorithms.forward_hessian` has the
        formulas.

        Raises:
            SingularError: H is singular at every state; names the body, or the rows of `inertia`.
        """
        return self._hessians("forward_dynamics_hessian", locals())

    # Single precision.

    @cached_property
    def _in_double(self) -> Dynamics:
        return self.variant(dtype="float64", check=False)

    def _are_doubted(self, call: Call) -> bool:
        """Whether a call in float32 needs float64 for rounding or comparison."""
        if self.dtype == np.float64 or self.check is False or not call.batch or not self.model.nv:
            return False
        return call.checked or not call.library.on_device  # reading values would wait for the device

    def _rounded_results(self, question: QuerySpec, call: Call) -> dict[str, Array]:
        """The results of a call, computed in float64 block by block and rounded."""
        if "inverse" in question.needs:
            self._require_regular(call)
        double = self._in_double
        double.joint_forces = self.joint_forces
        results = call.results(question.shapes(self.model, call.inputs))
        with np.errstate(all="ignore"):  # values too large for float32 become infinite
            for first in range(0, call.batch, _ROUNDED_ROWS):
                rows = slice(first, first + _ROUNDED_ROWS)
                inputs = {name: array[rows].astype(np.float64) for name, array in call.inputs.items()}
                for name, result in double._results(question, Call(double, inputs)).items():
                    results[name][rows] = result
        return results

    def _warn_of_lost_digits(self, question: QuerySpec, call: Call, asked: _Arrays, results: _Arrays) -> None:
        """Compute some rows of a call again in float64 and warn if the float32 results differ too much.

        `asked`: the call's inputs."""
        rows = judged_rows(call.batch)
        inputs = {key: _rows_in_double(call, array, rows) for key, array in asked.items()}
        got = {key: _rows_in_double(call, array, rows) for key, array in results.items()}
        if "vector" not in inputs:
            inputs["vector"] = np.ones((rows.size, self.model.nv))
            with np.errstate(all="ignore"):
                got = {key: array.sum(axis=1) for key, array in got.items()}
        double = self._in_double
        double.joint_forces = self.joint_forces
        double_call = Call(double, inputs)
        reference = double._results(question, double_call)
        sizes = double._usual_sizes(double_call)
        if call.singular is not None:
            sizes = {key: np.where(call.singular[rows], np.inf, size) for key, size in sizes.items()}
        loss = worst_loss(got, reference, dict(zip(reference, sizes.values(), strict=True)))
        if loss is not None:
            where = f" at {row_named(int(rows[loss.row]), call.leading)}" if call.leading else ""
            warnings.warn(
                f"{question.name}: in float32 {loss}{where}, more than {TOLERATED:.0e}, by comparison with float64 at "
                f"{rows.size} of {call.batch} rows; dtype='float64' has the digits, check=False compares nothing",
                RuntimeWarning,
                stacklevel=users_line(),
            )

    def _usual_sizes(self, call: Call) -> _Arrays:
        """Typical magnitude of each result of a call, in order, each (B,).

        The results differentiate y' tau; y is the vector for inverse dynamics and H^-1 vector for forward dynamics.
        The estimates multiply the largest velocities and accelerations with inertias and forces weighted by y.
        """
        H, weights = call.new(self.model.nv, self.model.nv), call.new(self.model.nv, 3)
        call.run(CRBA, H=H)
        call.run(GRAVITY_GRADIENT, tau_g=weights)
        inputs = call.inputs
        with np.errstate(all="ignore"):
            y = solve(H, inputs["vector"][..., None])[..., 0] if "tau" in inputs else inputs["vector"]
            inertia = _largest(np.abs(H) @ np.abs(y)[..., None])
            weight = _largest(np.abs(y)[:, None] @ np.abs(weights)) * np.linalg.norm(self.model.gravity)
            largest = {name: _largest(array) for name, array in inputs.items()}
            rate = largest["qd"] + largest.get("V0", 0.0)
            rates = largest.get("qdd", 0.0) + rate * rate + largest.get("dV0", 0.0)
            by_q = inertia * rates + weight + _largest(y) * largest.get("f_ext", 0.0)
            last = inertia
            if "tau" in inputs:  # torques replace accelerations; |y| / |vector| estimates the size of H^-1
                by_q = by_q + (np.abs(y) * np.abs(inputs["tau"])).sum(axis=1)
                last = inertia * _largest(y) / largest["vector"]
        return {"dqdq": by_q, "dqdqd": inertia * rate, "dqddqd": inertia, "last": last}


def _rows_in_double(call: Call, array: Array, rows: Array) -> Array:
    picked = call.library.to_numpy(array[call.library.like_numpy(rows)])
    return picked.astype(np.float64)


def _largest(array: Array) -> Array:
    return np.asarray(np.abs(array).max(axis=tuple(range(1, array.ndim)), initial=0.0))
