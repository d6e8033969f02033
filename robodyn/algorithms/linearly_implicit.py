"""Accelerations over a step during which gyroscopic, Coriolis and centrifugal forces change with the velocities.

With H the mass matrix and C(q, qd) the bias force, an explicit step takes H qdd = tau - C(q, qd). Here C is that of the
velocities half a step later, to first order in their change:

    (H + dt / 2 dC/dqd) qdd = tau - C(q, qd).

C is quadratic in qd, so this is Kahan's method (Celledoni, McLachlan, Owren and Quispel, Geometric properties of
Kahan's method, 2013). For a free rigid body it is the discrete Euler top of Hirota and Kimura (Discretization of the
Euler top, 2000): for all times angular velocities stay on closed curves, near those of the true motion. `share` is the
fraction of dC/dqd, here 1/2. MuJoCo's integrator "implicit" takes all of it. That damps spin; and where velocities are
in the axes of a body that turns at w, as here, its linear velocity shrinks at the rate w^2 dt / 2.

Derivatives of qdd follow from those of the equation F = H qdd + C + h dC/dqd qdd - tau = 0, with h = share dt. As C
is quadratic, h dC/dqd qdd = (C(q, qd + h qdd) - C(q, qd - h qdd)) / 2 exactly, and its derivatives are differences of
first derivatives of C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from robodyn.algorithms.forward_gradient import bias_and_mass_matrix
from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.manifold import scalars
from robodyn.algorithms.tasks import Placed, RunAlgorithm, ScalarTask, Sized, SymbolicFactor
from robodyn.core.model import Model
from robodyn.core.sweeps import Algorithm, with_given
from robodyn.internals.arguments import Array

_Given: TypeAlias = Mapping[str, Any]
_Ask: TypeAlias = Callable[..., Mapping[str, Any]]
"""(algorithm, other inputs by name) -> its outputs: vectors (..., nv) and matrices (..., nv, nv)."""

_SIZES = {
    "q": Sized(("nq",)),
    **dict.fromkeys(("qd", "tau", "armature"), Sized(("nv",))),
    "f_ext": Sized(("n_bodies", 6)),
    "inertia": Sized(("n_bodies", 10)),
    "dt": Sized((1,)),
}
_OF_A_BODY, _OF_A_PAIR = 40, 30
"""Rough lower bounds of a program's operations for each body, and for each nonzero entry of the mass matrix."""
_MOST_SCALARS, _MATRICES = 1 << 24, 12
"""Approximate number of scalars that are kept for states at once, and of matrices for each state."""


class _Factors:
    """M = U L of a matrix (..., n, n) that has the zeros of the robot's mass matrix.

    Elimination from the last row to the first keeps the zeros (RBDA section 6.5). Rows are not exchanged, so that all
    states take the same operations. `rows[k]`: columns of nonzero entries left of the diagonal in row k
    (`SymbolicFactor`).
    """

    def __init__(self, M: Any, rows: Sequence[Any]) -> None:
        self._M, self._rows = M, rows
        self._inverse: list[Any] = [0.0] * len(rows)
        for k in range(len(rows) - 1, -1, -1):
            p = rows[k]
            self._inverse[k] = 1.0 / M[..., k : k + 1, k]
            if len(p):
                M[..., p, k] = M[..., p, k] * self._inverse[k]
                M[..., p[:, None], p] = M[..., p[:, None], p] - M[..., p, k : k + 1] * M[..., k : k + 1, p]

    def solved(self, b: Any) -> Any:
        """M^-1 b, of columns (..., n, c)."""
        M, x = self._M, b.copy()
        for k in range(len(self._rows) - 1, -1, -1):
            p = self._rows[k]
            if len(p):
                x[..., p, :] = x[..., p, :] - M[..., p, k : k + 1] * x[..., k : k + 1, :]
        for k, p in enumerate(self._rows):
            if len(p):
                x[..., k, :] = x[..., k, :] - (M[..., k, p][..., :, None] * x[..., p, :]).sum(axis=-2)
            x[..., k, :] = x[..., k, :] * self._inverse[k]
        return x


class _Accelerated:
    """qdd, and quantities that its derivatives need. `given`: vectors (..., nv) by name and dt (..., 1)."""

    def __init__(self, given: _Given, ask: _Ask, rows: Sequence[Any], share: float, inputs: Sequence[str]) -> None:
        names = tuple(name for name in ("q", "qd", "f_ext") if name in inputs)
        dynamics, gradient = bias_and_mass_matrix(names), idsva(("q", "qd", "qdd", *names[2:]))
        for name in ("inertia", "armature"):
            if name in inputs:
                dynamics = with_given(dynamics, name)
                gradient = with_given(gradient, name) if name == "inertia" else gradient
        self._ask, self._gradient, self._qd, self._h = ask, gradient, given["qd"], share * given["dt"]
        terms = ask(dynamics)
        self._still = 0.0 * self._qd
        self._by_qd = ask(gradient, qdd=self._still)["tau_qd"]
        self._factors = _Factors(terms["H"] + self._h[..., None] * self._by_qd, rows)
        self.qdd = self._factors.solved((given["tau"] - terms["tau"])[..., None])[..., 0]

    def derivatives(self, one: Any) -> dict[str, Any]:
        """Derivatives by q on its tangent space, qd and tau; `one` (..., nv, nv) is the identity."""
        step = self._h * self.qdd
        more, less = (self._ask(self._gradient, qd=qd, qdd=self._still) for qd in (self._qd + step, self._qd - step))
        by_q = self._ask(self._gradient, qdd=self.qdd)["tau_q"] + 0.5 * (more["tau_q"] - less["tau_q"])
        by_qd = self._by_qd + 0.5 * (more["tau_qd"] - less["tau_qd"])
        solved = self._factors.solved
        return {"dqdd_dq": -solved(by_q), "dqdd_dqd": -solved(by_qd), "dqdd_dtau": solved(one)}


@cache
def linearly_implicit(inputs: tuple[str, ...], share: float = 0.5, differentiated: bool = False) -> ScalarTask:
    """qdd over a time dt as a task. `inputs`: those of forward dynamics. `differentiated`: adds the derivatives
    "dqdd_dq", "dqdd_dqd" and "dqdd_dtau"."""
    names = tuple(name for name in _SIZES if name in (*inputs, "dt"))
    results = {"qdd": Sized(("nv",))}
    if differentiated:
        results |= dict.fromkeys(("dqdd_dq", "dqdd_dqd", "dqdd_dtau"), Sized(("nv", "nv")))

    def results_of(given: _Given, ask: _Ask, rows: Sequence[Any], one: Any) -> dict[str, Any]:
        accelerated = _Accelerated(given, ask, rows, share, names)
        return {"qdd": accelerated.qdd, **(accelerated.derivatives(one) if differentiated else {})}

    def text(model: Model, given: Mapping[str, Sequence[Any]], at: Any) -> dict[str, list[Any]]:
        nv = model.nv

        def ask(algorithm: Algorithm, **others: Any) -> dict[str, Any]:
            answers = at(algorithm, **{name: list(values) for name, values in others.items()})
            return {name: scalars(each).reshape((nv,) * (1 if name == "tau" else 2)) for name, each in answers.items()}

        vectors = {name: scalars(values) for name, values in given.items()}
        answers = results_of(vectors, ask, SymbolicFactor(model).lower, np.eye(nv).astype(object))
        return {name: list(values.ravel()) for name, values in answers.items()}

    def on_arrays(model: Model, given: Mapping[str, Array], run: RunAlgorithm, placed: Placed) -> dict[str, Array]:
        rows = [placed(row) for row in SymbolicFactor(model).lower]
        identity = placed(np.eye(model.nv, dtype=given["qd"].dtype))

        def piece(some: Mapping[str, Array]) -> dict[str, Array]:
            def ask(algorithm: Algorithm, **others: Any) -> dict[str, Any]:
                return run(algorithm, {**some, **others})

            return results_of(some, ask, rows, identity + 0.0 * some["qd"][..., None])

        at_once = max(1, _MOST_SCALARS // (_MATRICES * model.nv * model.nv + 1))
        starts = range(0, max(1, len(given["qd"])), at_once)
        pieces = [piece({name: array[k : k + at_once] for name, array in given.items()}) for k in starts]
        return {name: np.concatenate([each[name] for each in pieces]) for name in results}

    def least(model: Model) -> int:
        sizes = [len(row) + 1 for row in SymbolicFactor(model).lower]
        factors = sum(size * size for size in sizes)
        return (_OF_A_BODY * model.n_bodies + _OF_A_PAIR * sum(sizes) + factors) * (3 if differentiated else 1)

    return ScalarTask(
        "_".join(("linearly_implicit", f"{share:g}", *(("gradient",) if differentiated else ()), *names)),
        {name: _SIZES[name] for name in names},
        results,
        text,
        lambda others: linearly_implicit(others, share, differentiated),
        on_arrays,
        least,
    )
