"""Constraint forces and their effects on scalars, for programs: H qdd + bias = tau + J' lambda with J qdd + r = 0.

    H = L' D L      Y = L^-T J'      A = Y' D^-1 Y      z = L^-T (tau - bias)
    (A + M) lambda_(k+1) = -(r + Y' D^-1 z) + M lambda_k      qdd = L^-1 D^-1 (z + Y lambda)

with M = mu diag(A), a fixed number of times. Where rows depend on each other, as those of every planar loop, lambda is
the shortest, each row measured in units of 1/sqrt(A_kk), and accelerations are exact to rounding after three iterations
(proximal iterations, Carpentier, Budhiraja, Mansard, Proximal and Sparse Resolution of Constrained Dynamic Equations,
2021). Structural zeros are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from robodyn.algorithms.aba import aba
from robodyn.algorithms.constraints.augmented import has_singular_mass_matrix, least_pivot, weights
from robodyn.algorithms.constraints.gradients import motions_of_bodies
from robodyn.algorithms.constraints.terms import Terms, moves, with_inputs
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.definite import Definite, TreeFactors, is_zero, mirrored, product
from robodyn.algorithms.forward_gradient import bias_and_mass_matrix
from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.manifold import joint_blocks, joint_by_joint, scalars, unit
from robodyn.algorithms.relative_motion import OfLink, between
from robodyn.algorithms.rest_gradient import MASS_MATRIX_PRODUCT_GRADIENT
from robodyn.algorithms.tasks import SymbolicFactor, coupled
from robodyn.core.constraints.kinds import Lock
from robodyn.core.constraints.resolved import ResolvedConstraint, resolved_constraints, row_sizes, velocities_of
from robodyn.core.joints import is_positive
from robodyn.core.model import Model
from robodyn.core.spatial import Transform, rotate_back
from robodyn.core.tangent import moved_by
from robodyn.internals.arguments import Array

Rows = Sequence[Sequence[Any]]
_OF_A_BODY, _OF_AN_ENTRY = 250, 24
_OF_AN_INERTIA, _OF_A_ROW, _OF_A_PATH = 380, 20, 110
"""Operations per body and per entry of the mass matrix; per articulated inertia, per row and body, and per row and body
on the row's paths. Fitted to programs of chains and trees of revolute joints."""
_MOST_COUNTED, _MOST_WITH_LOOPS, _MOST_CONNECTED = 1000, 320, 200
"""Most bodies of robots whose operations are counted, which takes matrices of as many rows: with mimicking joints; and
without, where engines have loops for larger robots. And most degrees of freedom of those for whose derivatives it is
found out which act on one another."""


@lru_cache(maxsize=16)
def _reached(model: Model) -> Array:
    """(nv, m): True where Y = L^-T J' can be nonzero."""
    columns = []
    for held in resolved_constraints(model):
        moved = np.zeros(model.nv, bool)
        if held.framed:
            moved |= between(model, held.link, held.to)
        elif held.kind is Lock:
            moved[velocities_of(model, held.joint)] = True
        else:
            moved[model.v_source[[v for v, _, _ in held.joints]]] = True
        columns += [moved] * len(held.rows)
    return SymbolicFactor(model).reached(np.array(columns, bool).reshape(-1, model.nv).T)


@lru_cache(maxsize=16)
def operations(model: Model) -> tuple[int, int]:
    """Approximate operations of responses in a program, by the mass matrix and by recursions, counted without a trace.

    Models with mimicking joints have no recursion; the second number is then larger.
    """
    elimination, reached = SymbolicFactor(model), _reached(model).astype(float)
    overlaps = np.tril(reached.T @ reached)
    filled, forces = overlaps > 0, 0
    for k in range(len(filled)):
        below = k + 1 + np.flatnonzero(filled[k + 1 :, k])
        filled[np.ix_(below, below)] = True
        forces += len(below) ** 2
    both, entries = forces + int(2 * overlaps.sum()), sum(map(len, elimination.lower))
    matrix = both + elimination.operations(0) + _OF_AN_ENTRY * entries + _OF_A_BODY * model.n_bodies
    row = _OF_A_ROW * model.n_bodies * model.n_rows + _OF_A_PATH * int(reached.sum())
    return matrix, matrix + 1 if model.has_mimic else both + _OF_AN_INERTIA * model.n_bodies + row


def least_operations(model: Model) -> int:
    """Approximate operations of a program with responses; for huge robots more than any program may have."""
    if has_singular_mass_matrix(model):  # H + J' R J is full on the paths of constraints
        paths = _reached(model).any(axis=1).sum()
        return int(paths**3) // 6 + _OF_AN_INERTIA * model.n_bodies // 4
    most = _MOST_COUNTED if model.has_mimic else _MOST_WITH_LOOPS
    return min(operations(model)) if model.n_bodies <= most else _OF_AN_INERTIA * model.n_bodies


@lru_cache(maxsize=16)
def least_operations_of_gradient(model: Model) -> int:
    """A lower bound on the operations of a program for derivatives, counted like `least_operations`.

    Besides those of the forces it counts A^-1, which is full where rows act on one another, and products with P, which
    is full where degrees of freedom do.
    """
    least, pairs = least_operations(model), coupled(model).astype(float)
    widths = pairs.sum(axis=0)
    if model.nv > _MOST_CONNECTED:
        return least + int(3 * (widths**2).sum())
    rows = _reached(model).astype(float)
    acting = pairs + rows @ rows.T > 0
    for _ in range(model.nv.bit_length()):  # who acts on whom by others
        acting = acting.astype(float) @ acting.astype(float) > 0
    together = (rows.T @ acting @ rows > 0).sum(axis=0)
    inverse = model.proximal[1] * int((together.astype(float) ** 2).sum())
    return least + inverse + int(3 * (widths * acting.sum(axis=0)).sum())


class Factors(TreeFactors):
    """Factors of a mass matrix, with products in its inverse."""

    def product(self, a: Mapping[int, Any], b: Sequence[Any] | Mapping[int, Any]) -> Any:
        """a' D^-1 b of entries by their indices; missing entries of a are zero."""
        total: Any = 0.0
        for k, x in a.items():
            y = b.get(k, 0.0) if isinstance(b, Mapping) else b[k]
            if not is_zero(y):
                total = total + x * self.inverse[k] * y
        return total


class ProximalSolver:
    """Solves A lambda = b by proximal iterations, each row measured by its own A_kk; A = J H^-1 J'.

    A factorisation L D L' of A + mu diag(A) rounds like one of rows that are scaled to A_kk = 1. So rows of any units
    keep their digits.

    Args:
        A: (m, m) scalars, of which the lower triangle is read.
        moving: 1 for rows that move with some joint, 0 for others, whose force is zero.
        proximal: mu, and the number of iterations.
    """

    def __init__(self, A: Rows, moving: Sequence[Any], proximal: tuple[float, int]) -> None:
        size, self._iterations = proximal
        self._moving, self._mu = moving, [size * row[k] for k, row in enumerate(A)]
        lower = [list(row[: k + 1]) for k, row in enumerate(A)]
        for k, weight in enumerate(moving):
            lower[k][k] = lower[k][k] + self._mu[k] + (1.0 - weight)
        self._factors = Definite(lower)

    def forces(self, rhs: Any) -> Any:
        """lambda (m,) with A lambda = rhs."""
        rhs = self._of_moving(rhs)
        solution = self._factors.solved(rhs)
        for _ in range(self._iterations - 1):
            solution = self._factors.solved([b + mu * x for b, mu, x in zip(rhs, self._mu, solution, strict=True)])
        return scalars(self._of_moving(solution))

    @property
    def inverse(self) -> Any:
        """The matrix (m, m) of `forces`: X + X M X + X M X M X + ..., X = (A + M)^-1. It is symmetric."""
        X = self._factors.inverse()
        total, every = X, range(len(X))
        for _ in range(self._iterations - 1):
            weighed = [[mu * x for mu, x in zip(self._mu, row, strict=True)] for row in X]
            lower = [[X[i][j] + product(weighed[i], total[j]) for j in range(i + 1)] for i in every]
            total = mirrored(lower)
        moving = self._moving
        return table(mirrored([[moving[i] * moving[j] * total[i][j] for j in range(i + 1)] for i in every]))

    def _of_moving(self, values: Sequence[Any]) -> list[Any]:
        return [weight * value for weight, value in zip(self._moving, values, strict=True)]


class MatrixResponse:
    """H^-1 J' and A = J H^-1 J' by the factors of the mass matrix.

    `A`: its lower triangle. `least`: pivots below this share of their diagonal entries give NaN. `weights`: R of rows
    if H is H + J' R J.
    """

    def __init__(self, model: Model, H: Rows, J: Rows, least: float = 0.0, weights: Any = None) -> None:
        self.weights = weights
        self._factors = factors = Factors(H)
        if least:
            for k, inverse in enumerate(factors.inverse):
                large = is_positive(inverse) * is_positive(1.0 - least * H[k][k] * inverse)
                factors.inverse[k] = inverse * (large / large)
        up = map(factors.up, J)
        self._Y = Y = [{k: y for k, y in enumerate(row) if not is_zero(y)} for row in up]
        self.A = [[factors.product(Y[i], Y[j]) for j in range(i + 1)] for i in range(len(Y))]

    def free(self, force: Sequence[Any]) -> list[Any]:
        """z = L^-T f of a generalised force, for `rates` and `accelerations`."""
        return self._factors.up(force)

    def rates(self, z: Sequence[Any]) -> Any:
        """J H^-1 f (m,)."""
        return scalars([self._factors.product(row, z) for row in self._Y])

    def accelerations(self, z: Sequence[Any], forces: Sequence[Any]) -> Any:
        """H^-1 (f + J' lambda) (nv,)."""
        total = list(z)
        for row, strength in zip(self._Y, forces, strict=True):
            for k, y in row.items():
                total[k] = total[k] + y * strength
        return scalars(self._factors.down(total))

    @property
    def inverse(self) -> Any:
        """H^-1 (nv, nv)."""
        return table(self._factors.inverse_matrix())

    @property
    def columns(self) -> Any:
        """H^-1 J' (nv, m)."""
        n = len(self._factors.L)
        return table([self._factors.down([row.get(k, 0.0) for k in range(n)]) for row in self._Y], n).T

    def less(self, W: Any, G: Any) -> Any:
        """H^-1 - W G (nv, nv), for a symmetric W G: both triangles from the lower one."""
        inverse = self.inverse
        rows, columns = W.tolist(), G.T.tolist()
        return table(
            mirrored([[inverse[i, j] - product(rows[i], columns[j]) for j in range(i + 1)] for i in range(len(rows))])
        )


class RecursiveResponse:
    """H^-1 J' and A by a recursion for each row, for long chains, whose mass matrix has many entries.

    Args:
        solve: computes H^-1 f.
        J: rows.
    """

    def __init__(self, solve: Callable[[Sequence[Any]], Sequence[Any]], J: Rows) -> None:
        self._J, self._responses = J, [solve(row) for row in J]
        self.A = [[product(J[i], self._responses[j]) for j in range(i + 1)] for i in range(len(J))]

    def rates(self, accelerations: Sequence[Any]) -> Any:
        """J qdd (m,) of accelerations without constraints."""
        return scalars([product(row, accelerations) for row in self._J])

    def accelerations(self, free: Sequence[Any], forces: Sequence[Any]) -> Any:
        """Accelerations (nv,): those without constraints plus H^-1 J' lambda."""
        total = list(free)
        for row, strength in zip(self._responses, forces, strict=True):
            total = [t + x * strength for t, x in zip(total, row, strict=True)]
        return scalars(total)


class ConstraintState:
    """Constraints of a robot in one state, on scalars. Vectors are arrays of scalars."""

    def __init__(self, model: Model, given: Mapping[str, Sequence[Any]], at: OfLink, moving: bool = True) -> None:
        self._model, self._given, self._at = model, given, at
        self._terms = terms = Terms(model, resolved_constraints(model), given, at, moving, nearby=True)
        self._rows, self._active = terms.rows(), terms.active
        self.phi, self.phidot = (scalars([getattr(row, name) for row in self._rows]) for name in ("phi", "phidot"))
        self.gamma = scalars([row.gamma for row in self._rows])

    def at(self, q: Any) -> ConstraintState:
        """The same constraints in another configuration."""
        return ConstraintState(self._model, {**self._given, "q": list(q)}, partial(self._at, q=list(q)))

    def given(self, name: str) -> Any:
        """An input, or None."""
        return scalars(self._given[name]) if name in self._given else None

    @property
    def jacobian(self) -> Any:
        """(m nv,), row by row."""
        return scalars([value for row in self._rows for value in row.J or []])

    def constant(self, values: Any) -> Any:
        """An array of constants, the same in all states."""
        return np.array(values, float).astype(object)

    def masked(self, values: Any) -> Any:
        """Values of rows (m,), with zeros for inactive constraints."""
        return values if self._active is None else scalars(self._active) * values

    def moved(self, step: Any) -> Any:
        """q (+) step."""
        q = unit(self._model, self._given["q"])
        return joint_by_joint(self._model, "q", lambda kind, at, on: kind.integrate(tuple(q[at]), tuple(step[on])))

    def response(self, r: Any = None, by_matrix: bool = False) -> tuple[Any, Any]:
        """H^-1 J' and A, and zeros: the accelerations of a robot at rest without forces.

        `by_matrix`: True for a `MatrixResponse`, whatever it costs.
        """
        zeros = [0.0] * self._model.nv
        if r is not None and has_singular_mass_matrix(self._model):
            return self._augmented(self._at(with_inputs(CRBA, self._given))["H"], zeros, r)
        if self._by_recursion and not by_matrix:
            return RecursiveResponse(self._at_rest, self._masked_jacobian()), zeros
        return self._response(self._at(with_inputs(CRBA, self._given))["H"]), zeros

    def response_of_forces(self, r: Any = None, by_matrix: bool = False) -> tuple[Any, Any]:
        """H^-1 J' and A, and the accelerations without constraints, in the form of `rates` and `accelerations`.

        `by_matrix`: True for a `MatrixResponse`, whatever it costs.
        """
        inputs = tuple(name for name in ("q", "qd", "f_ext") if name in self._given)
        augmented = r is not None and has_singular_mass_matrix(self._model)
        if self._by_recursion and not (augmented or by_matrix):
            free = self._at(with_inputs(aba((*inputs[:2], "tau", *inputs[2:])), self._given))["qdd"]
            return RecursiveResponse(self._at_rest, self._masked_jacobian()), free
        terms = self._at(with_inputs(bias_and_mass_matrix(inputs), self._given))
        force = [t - b for t, b in zip(self._given["tau"], terms["tau"], strict=True)]
        if augmented:
            return self._augmented(terms["H"], force, r)
        responds = self._response(terms["H"])
        return responds, responds.free(force)

    def _augmented(self, entries: Sequence[Any], force: Sequence[Any], r: Any) -> tuple[MatrixResponse, Any]:
        """The response by H + J' R J, and the free accelerations under the force less J' R r."""
        n, J, proximal = self._model.nv, self._masked_jacobian(), self._model.proximal
        H, force = [list(entries[n * k : n * k + n]) for k in range(n)], list(force)
        size, given_weights = sum(H[k][k] for k in range(n)) * (1.0 / n), []
        for row, moving, error in zip(J, self._moving_rows(proximal), r, strict=True):
            weight = weights(size, moving, product(row, row))
            given_weights.append(weight)
            places = [k for k, x in enumerate(row) if not is_zero(x)]
            for count, i in enumerate(places):
                share = weight * row[i]
                force[i] = force[i] - share * error
                for j in places[: count + 1]:
                    H[i][j] = H[i][j] + share * row[j]
        responds = MatrixResponse(self._model, H, J, least_pivot(proximal), scalars(given_weights))
        return responds, responds.free(force)

    @property
    def _by_recursion(self) -> bool:
        matrix, recursion = operations(self._model)
        return recursion < matrix

    def _at_rest(self, force: Sequence[Any]) -> Sequence[Any]:
        """H^-1 f: accelerations of the robot at rest, whose base falls freely."""
        falling = (0.0, 0.0, 0.0, *self._model.gravity.tolist())
        algorithm = with_inputs(aba(("q", "tau")), self._given)
        return self._at(algorithm, tau=force, V0=(0.0,) * 6, dV0=falling)["qdd"]

    def _response(self, H: Sequence[Any]) -> MatrixResponse:
        n = self._model.nv
        return MatrixResponse(self._model, [list(H[n * r : n * r + n]) for r in range(n)], self._masked_jacobian())

    def _masked_jacobian(self) -> list[list[Any]]:
        rows = [row.J or [] for row in self._rows]
        if self._active is None:
            return rows
        return [
            [value if is_zero(value) else weight * value for value in row]
            for row, weight in zip(rows, self._active, strict=True)
        ]

    def solver(self, responds: MatrixResponse | RecursiveResponse, proximal: tuple[float, int]) -> ProximalSolver:
        """The solver of forces. Rows that are inactive, or move nothing, get none."""
        return ProximalSolver(responds.A, self._moving_rows(proximal), proximal)

    def _moving_rows(self, proximal: tuple[float, int]) -> list[Any]:
        """1 for rows that move with some joint and are active, 0 for others."""
        sizes = row_sizes(self._model, resolved_constraints(self._model)).tolist()
        rows = zip(self._masked_jacobian(), self._rows, sizes, strict=True)
        return [moves(product(J, J), row.size, size, proximal) for J, row, size in rows]

    def delassus(self, responds: MatrixResponse | RecursiveResponse) -> Any:
        """A (m m,), with 1 on the diagonal of inactive rows."""
        A = [list(row) for row in responds.A]
        for k, weight in enumerate(self._active or ()):
            A[k][k] = A[k][k] + (1.0 - weight)
        every = range(len(A))
        return scalars([A[max(i, j)][min(i, j)] for i in every for j in every])

    def in_world(self, forces: Any) -> Any:
        """Forces of rows (m,) in world axes: of every three rows that are along the axes of a frame."""
        turned, row = list(forces), 0
        for held in resolved_constraints(self._model):
            for k in held.vectors:
                at = slice(row + k, row + k + 3)
                turned[at] = rotate_back(self._terms.frames(held)[0].E, tuple(turned[at]))
            row += len(held.rows)
        return scalars(turned)

    # For derivatives: `robodyn.algorithms.constraints.gradients.Moving`.

    def index(self, numbers: Any) -> Any:
        """Indices of entries."""
        return numbers

    def times(self, A: Any, B: Any) -> Any:
        """A B."""
        return times(A, B)

    def moved_by(self, step: Any) -> tuple[Any, Any]:
        """Derivatives (nv, nv) of q (+) step by q and by step."""
        return joint_blocks(self._model, step, moved_by)

    @property
    def active_jacobian(self) -> Any:
        """J (m, nv), with zeros for inactive constraints."""
        return table(self._masked_jacobian(), self._model.nv)

    def zeros(self, *shape: int) -> Any:
        """An array of zeros."""
        return np.full(shape, 0.0, object)

    def frames(self, held: ResolvedConstraint) -> tuple[Transform, Transform]:
        """Transforms from the world to frames a and b, of arrays of one scalar."""
        a, b = (
            Transform(tuple(scalars([x]) for x in X.E), tuple(scalars([x]) for x in X.r))
            for X in self._terms.frames(held)
        )
        return a, b

    def motions(self, share: Any = None, **others: Any) -> Mapping[str, Any]:
        """Transforms, velocities and accelerations of all bodies, and of the base."""
        still, world = [0.0] * 6, self._terms.world
        factor = 1.0 if share is None else share[0]
        base = {"X0": [*world.E, *world.r], "v": [factor * x for x in self._given.get("V0", still)]}
        base["a"] = list(self._given.get("dV0", still))
        moves: dict[str, Any] = {"V0": base["v"]} if "V0" in self._given else {}
        given: dict[str, Any] = {name: list(values) for name, values in others.items()}
        found = self._terms.at(motions_of_bodies(others), **given, **moves)
        return {name: scalars([*found[name], *base[name]]).reshape(-1, len(base[name])) for name in found}

    def inverse_gradient(self, qdd: Any, damping: bool) -> tuple[Any, Any]:
        """Derivatives (nv, nv) of inverse dynamics by q and qd."""
        inputs = ("q", "qd", "qdd", *(("f_ext",) if "f_ext" in self._given else ()))
        found, n = self._at(with_inputs(idsva(inputs, damping), self._given), qdd=list(qdd)), self._model.nv
        return scalars(found["tau_q"]).reshape(n, n), scalars(found["tau_qd"]).reshape(n, n)

    def product_gradient(self, vector: Any) -> Any:
        """Derivatives (nv, nv) of H vector by q."""
        algorithm, n = with_inputs(MASS_MATRIX_PRODUCT_GRADIENT, self._given), self._model.nv
        return scalars(self._at(algorithm, vector=list(vector))["by_q"]).reshape(n, n)


_TILE = (4, 6)
"""Rows and columns of a product whose sums are computed side by side, so that entries of both factors are read from
registers."""


def times(A: Any, B: Any) -> Any:
    """A B of arrays of scalars, tile by tile. Structural zeros are skipped."""
    (rows, inner), columns = A.shape, B.shape[1]
    a, b, total = A.tolist(), B.tolist(), [[0.0] * columns for _ in range(rows)]
    for top in range(0, rows, _TILE[0]):
        for left in range(0, columns, _TILE[1]):
            for k in range(inner):
                some = [(c, b[k][c]) for c in range(left, min(left + _TILE[1], columns)) if not is_zero(b[k][c])]
                for r in range(top, min(top + _TILE[0], rows)):
                    x = a[r][k]
                    if not is_zero(x):
                        for c, y in some:
                            total[r][c] = total[r][c] + x * y
    return table(total, columns)


def table(rows: Rows, columns: int = 0) -> Any:
    """A matrix of scalars as an array. `columns`: their number where there may be no row."""
    return scalars([value for row in rows for value in row]).reshape(len(rows), len(rows[0]) if rows else columns)
