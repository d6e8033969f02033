"""The constraint force algorithm: forces across joints from a block tri-diagonal system, without any recursion.

Fijany, Sharf and D'Eleuterio (1995), as in Yang, Wu and Pan, A Novel GPU-based Parallel Implementation Scheme (2016),
eq. 9-17 and algorithm 1. After bias torques are taken off, a chain obeys V_i = X_i V_{i-1} + S_i qdd_i and
F_i = J_i V_i + X_{i+1}' F_{i+1}, hence S qdd = T F with a block tri-diagonal T that holds the inverses of the bodies'
inertias J. Forces are F = S (S'S)^-1 tau + W Fc with W'S = 0, and W'T F = 0 is the system (eq. 15)

    A Fc = -B tau,    A = W'T W,    B = W'T S (S'S)^-1,

whose solution gives qdd = C tau + B'Fc (eq. 17). B and C are only ever multiplied with vectors and are not formed.

Ours, beyond the papers:

- Joints of k degrees of freedom have 6 - k constraints; blocks are filled up with unit diagonals to the largest.
- Armature r: of the torque tau, u = r qdd goes into the rotor and S'F = tau - u into the bodies. So -u is one more
  constraint force, along S (S'S)^-1, and its row of T F, qdd = u / r, adds the compliance 1 / r to the diagonal of A.
- Branching trees, of which the papers say nothing: heavy paths, from the outermost level in, every path a chain; the
  systems of all paths of a level are solved at once. A finished light subtree is to its junction body a force that is
  affine in that body's acceleration, X'F = J a - eta: six unit accelerations and the torques themselves are right-hand
  sides of its path's system. J joins the inertia of the junction body, eta the forces on it; what a unit acceleration
  does to a path is kept, and accelerations then follow level by level from the root out.

Every body needs an inertia that can be inverted, light subtrees included: massless bodies (such as the middle of a
universal joint), points and thin rods are refused. Nearly massless ones are not, and cost up to all digits: residuals
of 206 random trees with bodies of 1e-9 of the others' mass are above 1e-7 in 13 cases, 0.1 at worst. Prismatic and
spherical joints on links that are short for their mass are as bad. Every call checks its residual and warns.

The condition of A grows with the length of paths. Residuals |ID(qdd) - tau| / max |tau| of chains with skewed joints,
the largest of five states: 1e-10 at 10 bodies, 3e-8 at 40, 3e-7 at 100, 8e-6 at 1,000 by odd-even elimination; refined
or by a factorisation 100 to 300 times less. The two bases do alike. Trees of branching 2 leave 1e-12 at 1,000.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from robodyn.arguments import Array
from robodyn.engines.scan.heavy_paths import Level
from robodyn.engines.scan.inverse import inverse_dynamics
from robodyn.engines.scan.kernels import Segments
from robodyn.engines.scan.odd_even import (
    SOLVERS,
    back_substituted,
    factor,
    forward_substituted,
    times,
    transposed_times,
)
from robodyn.engines.scan.options import Basis, ScanOptions
from robodyn.engines.scan.semigroups import sums
from robodyn.engines.scan.states import Layout, State
from robodyn.errors import ArgumentError, RobodynError, SingularError
from robodyn.messages import brief
from robodyn.spatial import articulated, rows_cross
from robodyn.sweeps import INERTIA, TRANSFORM

_LINEAR_FIRST = np.array([3, 4, 5, 0, 1, 2])
"""Inertias are factorised mass first: what is left of the angular part is the inertia about the centre of mass."""
_ROUNDINGS = 1000.0
"""A pivot of an inertia that is no larger than that many roundings of the largest of its kind counts as zero."""
_ORTHOGONAL, _INDEPENDENT = 1e-9, 1e-9
"""Of a user's W: the largest cosine to a column of S, and the smallest singular value relative to the largest."""

# Bases of constraint forces.


@dataclass(frozen=True)
class Constraints:
    """Which forces of joints are unknown, and how to split the others off.

    `W` (6, M, n, 1): columns for constraints, then for degrees of freedom with armature, then zeros; `compliance`
    (M, n, 1): what is added to the diagonal of A, zero, 1 / armature, and 1; `weights` (nv, 1): (S'S)^-1, diagonal as
    the columns of S are orthogonal to each other for every joint kind.
    """

    W: Array
    compliance: Array
    weights: Array


_KNOWN: WeakKeyDictionary[Layout, Constraints] = WeakKeyDictionary()


def constraints_of(layout: Layout) -> Constraints:
    """The constraints of a layout's model, kept as long as the layout is.

    Raises:
        ArgumentError: the function `constraint_basis` of its options returns no such basis.
    """
    if layout not in _KNOWN:
        _KNOWN[layout] = _constraints(layout)
    return _KNOWN[layout]


def _constraints(layout: Layout) -> Constraints:
    n = layout.n
    W, compliance, width = np.zeros((6, 6, n)), np.ones((6, n)), np.zeros(n, dtype=np.intp)
    weights = np.ones(layout.model.nv_tree)
    for joints in layout.joints:
        bodies, pitch = np.arange(n)[joints.bodies], joints.pitch[:, 0].astype(np.float64)
        for value in np.unique(pitch) if joints.kind.pitched else (0.0,):
            chosen = bodies[pitch == value] if joints.kind.pitched else bodies
            S = np.array([(*column.ang, *column.lin) for column in joints.kind.subspace(float(value))]).T
            basis = _basis(joints.kind.name, S, layout.options.constraint_basis)
            W[:, : basis.shape[1], chosen], width[chosen] = basis[:, :, None], basis.shape[1]
            compliance[: basis.shape[1], chosen] = 0.0
            for s, start in zip(S.T, range(S.shape[1]), strict=True):
                dofs = layout.model.v_start[chosen] + start
                weights[dofs] = 1.0 / (s @ s)
                armature = layout.model.tree_armature[dofs]
                moved = chosen[armature > 0.0]
                W[:, width[moved], moved] = (s / (s @ s))[:, None]
                compliance[width[moved], moved] = 1.0 / armature[armature > 0.0]
                width[moved] += 1
    most = max(int(width.max(initial=0)), 1)
    return Constraints(
        W[:, :most, :, None].astype(layout.dtype),
        compliance[:most, :, None].astype(layout.dtype),
        weights[:, None].astype(layout.dtype),
    )


def _basis(kind: str, S: Array, chosen: Basis) -> Array:
    """W (6, 6 - k) of a joint kind."""
    if S.shape[1] == 6:
        return np.empty((6, 0))
    if not callable(chosen):
        return complement(S)
    try:
        W = np.asarray(chosen(kind, S.copy()))
    except RobodynError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise ArgumentError(f"constraint_basis: for {kind!r} it raised {type(error).__name__}: {error}") from error
    wanted = (6, 6 - S.shape[1])
    if W.shape != wanted or W.dtype.kind not in "fiu" or not np.isfinite(W).all():
        raise ArgumentError(f"constraint_basis: for {kind!r} it returned {brief(W)}; wanted finite numbers {wanted}")
    W = W.astype(np.float64)
    lengths = np.linalg.norm(W, axis=0)
    if (np.abs(W.T @ S) > _ORTHOGONAL * lengths[:, None] * np.linalg.norm(S, axis=0)).any():
        raise ArgumentError(
            f"constraint_basis: for {kind!r} it returned a W that is not orthogonal to S; wanted W'S = 0, got "
            f"entries up to {np.abs(W.T @ S).max():.3g}"
        )
    sizes = np.linalg.svd(W, compute_uv=False)
    if not sizes[-1] > _INDEPENDENT * sizes[0]:
        raise ArgumentError(f"constraint_basis: for {kind!r} it returned a W of rank below {wanted[1]}; wanted full")
    return W


def complement(S: Array) -> Array:
    """An orthonormal basis (6, 6 - k) of what is orthogonal to S (6, k): unit vectors wherever S has zero rows."""
    touched = S.any(axis=1)
    left = np.linalg.svd(S[touched])[0][:, S.shape[1] :]  # what the touched rows have beside S
    mixed = np.zeros((6, left.shape[1]))
    mixed[touched] = left
    return np.concatenate((np.eye(6)[:, ~touched], mixed), axis=1)


# Inertias of bodies.


@dataclass(frozen=True)
class _Inertias:
    """Symmetric inertias (6, 6, m, B) as L d L', in the order of `_LINEAR_FIRST`."""

    L: Array
    d: Array

    def half(self, B: Array, chosen: Array | slice = slice(None)) -> tuple[Array, Array]:
        """(H, H / d) of some of them, with H'H / d = B'J^-1 B."""
        L = self.L[:, :, chosen]
        H = forward_substituted(L, np.broadcast_to(B[_LINEAR_FIRST], (*B.shape[:2], *L.shape[2:])))
        return H, H / self.d[:, None, chosen]

    def solved(self, f: Array) -> Array:
        """J^-1 f (6, m, B)."""
        x = forward_substituted(self.L, f[_LINEAR_FIRST][:, None]) / self.d[:, None]
        found: Array = back_substituted(self.L, x)[:, 0][_LINEAR_FIRST]  # which is its own inverse
        return found

    def singular(self, J: Array) -> Array:
        """(m, B): whether a pivot is zero up to rounding; where values are not finite, they are not."""
        limit = _ROUNDINGS * np.finfo(J.dtype).eps
        diagonal = np.stack([J[k, k] for k in _LINEAR_FIRST])
        pairs = zip(np.split(self.d, 2), np.split(diagonal, 2), strict=True)
        found: Array = np.any([(d <= limit * np.abs(size).max(axis=0)).any(axis=0) for d, size in pairs], axis=0)
        return found


def _rigid(state: State) -> Array:
    """J (6, 6, n, B)."""
    M, H, I = articulated(INERTIA.build(iter(state.inertia), 0))
    J = np.zeros((6, 6, state.n, state.batch), state.dtype)
    at = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
    for (i, j), rotational, translational in zip(at, I, M, strict=True):
        J[i, j] = J[j, i] = rotational
        J[3 + i, 3 + j] = J[3 + j, 3 + i] = translational
    for k, value in enumerate(H):
        i, j = divmod(k, 3)
        J[i, 3 + j] = J[3 + j, i] = value
    return J


def _matrices(X: Array) -> Array:
    """Transforms (12, n, B) as matrices on motions (6, 6, n, B)."""
    E, r = TRANSFORM.build(iter(X), 0)
    matrices = np.zeros((6, 6, *X.shape[1:]), X.dtype)
    for k, (entry, shifted) in enumerate(zip(E, rows_cross(E, r), strict=True)):
        i, j = divmod(k, 3)
        matrices[i, j] = matrices[3 + i, 3 + j] = entry
        matrices[3 + i, j] = -shifted
    return matrices


# Paths.


@dataclass(frozen=True)
class _Paths:
    """The paths of a level: inertias and transforms (6, 6, m, B) of their bodies, light subtrees included; `inner`:
    places of bodies that follow another one of their path."""

    level: Level
    inertias: _Inertias
    X: Array
    inner: Array

    def net(self, F: Array) -> Array:
        """F_i - X_{i+1}' F_{i+1} (6, m, B): what joint forces F leave for the bodies themselves."""
        found = F.copy()
        found[:, self.inner - 1] -= transposed_times(self.X[:, :, self.inner], F[:, None, self.inner])[:, 0]
        return found

    def relative(self, V: Array) -> Array:
        """V_i - X_i V_{i-1} (6, m, B) along paths, whose first bodies follow one at rest."""
        found = V.copy()
        found[:, self.inner] -= times(self.X[:, :, self.inner], V[:, None, self.inner - 1])[:, 0]
        return found

    def blocks(self, W: Array, back: Array) -> tuple[Array, Array]:
        """D and U of A (M, M, m, B), without compliances, from W and X'W."""
        H, H_scaled = self.inertias.half(W)
        D = transposed_times(H_scaled, H)
        U = np.zeros_like(D)
        before = self.inner - 1
        G, G_scaled = self.inertias.half(back[:, :, self.inner], before)
        D[:, :, self.inner] += transposed_times(G_scaled, G)
        U[:, :, before] = -transposed_times(H_scaled[:, :, before], G)
        return D, U


def _solved(D: Array, U: Array, R: Array, segments: Segments, options: ScanOptions) -> Array:
    """Fc (M, c, m, B)."""
    solve = SOLVERS[options.constraint_solver]
    if options.constraint_basis != "balanced":
        return solve(D, U, R, segments)
    # W times the inverse of the Cholesky factor of D turns D into the identity; U and R follow.
    L, d = factor(D)
    root = np.sqrt(d)[:, None]
    U = forward_substituted(L, U) / root
    U[:, :, :-1] = (forward_substituted(L[:, :, 1:], U[:, :, :-1].swapaxes(0, 1)) / root[:, :, 1:]).swapaxes(0, 1)
    D = np.broadcast_to(np.eye(len(D), dtype=D.dtype)[:, :, None, None], D.shape)
    return back_substituted(L, solve(D, U, forward_substituted(L, R) / root, segments) / root)


class _ConstraintForces:
    """Forward dynamics under torques (nv, B) that bias torques were taken off."""

    def __init__(self, state: State, tau: Array) -> None:
        self.state, self.tau, self.constraints = state, tau, constraints_of(state.layout)
        self.X = _matrices(state.transforms)
        self.active = state.joint_motion(self.constraints.weights * tau)
        """S (S'S)^-1 tau (6, n, B)."""
        self.table = np.zeros((42, state.n, state.batch), state.dtype)
        self.J, self.eta = self.table[:36].reshape(6, 6, state.n, state.batch), self.table[36:]
        self.J[...] = _rigid(state)

    def accelerations(self) -> Array:
        """qdd (nv, B)."""
        state, heavy_paths = self.state, self.state.layout.heavy_paths
        done = []
        for level in heavy_paths.inward():
            paths = self._paths(level)
            F = self._forces(paths)
            done.append((paths, F))
            if F.shape[1] > 1:
                heavy_paths.join(sums(42), self.table, level, _seen(paths, F))
        V, relative, across = np.zeros((3, 6, state.n, state.batch), state.dtype)
        for paths, F in reversed(done):
            bodies, starts = paths.level.bodies, paths.level.starts
            of_junctions = V[:, paths.level.junctions] if F.shape[1] > 1 else np.zeros_like(V[:, starts])
            total = F[:, -1].copy()
            for column, a in zip(F.swapaxes(0, 1)[:-1], of_junctions, strict=False):
                total += column * np.repeat(a, paths.level.segments.lengths, axis=0)
            across[:, bodies] = total
            V[:, bodies] = paths.inertias.solved(paths.net(total) + self.eta[:, bodies])
            relative[:, bodies] = paths.relative(V[:, bodies])
            relative[:, bodies[starts]] -= times(paths.X[:, :, starts], of_junctions[:, None])[:, 0]
        rates = self.constraints.weights * state.joint_force(relative)
        armature = state.layout.armature
        if not armature.any():
            return rates
        # Beside a heavy rotor, differences of accelerations have few digits, and its share of the torque has many.
        return np.where(armature > self._seen_by_joints(), (self.tau - state.joint_force(across)) / armature, rates)

    def _seen_by_joints(self) -> Array:
        """The diagonal of S'J S (nv, B) for the inertias of the bodies behind joints."""
        found = np.zeros((self.state.model.nv_tree, self.state.batch), self.state.dtype)
        for joints in self.state.layout.joints:
            for column, rows in zip(joints.subspace, joints.v_rows, strict=True):
                s = [(k, x) for k, x in enumerate((*column.ang, *column.lin)) if isinstance(x, np.ndarray) or x]
                for i, x in s:
                    for j, y in s:
                        found[rows] += x * y * self.J[i, j, joints.bodies]
        return found

    def _paths(self, level: Level) -> _Paths:
        J = self.J[:, :, level.bodies]
        inertias = _Inertias(*factor(J[_LINEAR_FIRST][:, _LINEAR_FIRST]))
        singular = inertias.singular(J)
        if singular.any():
            _refuse(self.state, level.bodies[singular.all(axis=1)])
            inertias.d[:, singular] = np.nan  # of inertias that are given, those rows have no answer
        return _Paths(level, inertias, self.X[:, :, level.bodies], np.flatnonzero(level.segments.position > 0))

    def _forces(self, paths: _Paths) -> Array:
        """F (6, c, m, B) of each right-hand side: unit accelerations of the junction, where paths have one, and last
        the torques."""
        level = paths.level
        W, active = self.constraints.W[:, :, level.bodies], self.active[:, level.bodies]
        back = transposed_times(paths.X, W)
        D, U = paths.blocks(W, back)
        for row, compliance in enumerate(self.constraints.compliance[:, level.bodies]):
            D[row, row] += compliance
        columns = 7 if level.junctions[0] >= 0 else 1
        R = np.zeros((len(D), columns, *active.shape[1:]), active.dtype)
        drift = paths.relative(paths.inertias.solved(paths.net(active) + self.eta[:, level.bodies]))
        R[:, -1] = -transposed_times(W, drift[:, None])[:, 0]
        if columns > 1:
            R[:, :6, level.starts] = back[:, :, level.starts].swapaxes(0, 1)
        F = times(W, _solved(D, U, R, level.segments, self.state.layout.options))
        F[:, -1] += active
        return F


def _seen(paths: _Paths, F: Array) -> Array:
    """J and eta (42, paths, B) of paths, as the bodies see them that they hang on."""
    pushed = transposed_times(paths.X[:, :, paths.level.starts], F[:, :, paths.level.starts])
    J = 0.5 * (pushed[:, :6] + pushed[:, :6].swapaxes(0, 1))
    return np.concatenate((J.reshape(36, *J.shape[2:]), -pushed[:, 6]))


def _refuse(state: State, bodies: Array) -> None:
    """Raise where bodies have, in all rows, an inertia that cannot be inverted."""
    if bodies.size:
        name = state.model.body_names[int(bodies.min())]
        more = f" (nor have {bodies.size - 1} more)" if bodies.size > 1 else ""
        raise SingularError(
            f"method: 'cfa' takes the inverse of every body's inertia, and {name!r} has none{more}; wanted mass, and "
            "inertia about the centre of mass in every direction. Methods without that need: 'aba_scan', 'crba'"
        )


def cfa(state: State, out: Array) -> None:
    """qdd (B, nv) by algorithm 1: bias torques by scans, then constraint forces.

    Warns:
        RuntimeWarning: inverse dynamics of the result misses the torques by more than 1e-6 of the largest of a row (in
            single precision 2.5e-3).

    Raises:
        SingularError: the inertia of a body cannot be inverted. Of inertias given for each row, rows where one cannot
            are NaN, and it is raised where none can.
        ArgumentError: `constraint_basis` gives no basis.
    """
    tau = state.tree_input("tau") - inverse_dynamics(state, "rnea")
    out[...] = _ConstraintForces(state, tau).accelerations().T
    _warn_of_residual(state, out)


def _warn_of_residual(state: State, qdd: Array) -> None:
    """Say so where inverse dynamics of the accelerations (B, nv) does not give the torques back."""
    tau = state.tree_input("tau")
    missed = np.abs(inverse_dynamics(state.moving(qdd), "rnea") - tau).max(axis=0, initial=0.0)
    residual = missed / np.abs(tau).max(axis=0, initial=np.finfo(tau.dtype).tiny)
    residual[~np.isfinite(residual)] = 0.0  # not finite for other reasons, which the result shows
    limit = np.finfo(tau.dtype).eps ** 0.375
    if (worst := float(residual.max(initial=0.0))) > limit:
        warnings.warn(
            f"method 'cfa': in {np.count_nonzero(residual > limit)} of {residual.size} rows its accelerations need "
            f"other torques than those given, by up to {worst:.0e} of the largest; 'aba_scan' and 'crba' lose fewer "
            "digits",
            RuntimeWarning,
            stacklevel=2,
        )
