"""The constraint force algorithm: joint forces from a block tri-diagonal system, without a recursion.

Fijany, Sharf and D'Eleuterio (1995), as in Yang, Wu and Pan, A Novel GPU-based Parallel Implementation Scheme (2016),
eq. 9-17 and algorithm 1. After subtraction of bias torques, a chain obeys V_i = X_i V_{i-1} + S_i qdd_i and F_i = J_i
V_i + X_{i+1}' F_{i+1}. Hence S qdd = T F, with a block tri-diagonal T that contains the inverses of the bodies'
inertias J. Forces are F = S (S'S)^-1 tau + W Fc with W'S = 0, and W'T F = 0 is the system (eq. 15)

    A Fc = -B tau,    A = W'T W,    B = W'T S (S'S)^-1,

whose solution gives qdd = C tau + B'Fc (eq. 17). B and C are only multiplied with vectors and are not formed.

Extensions of the papers:

- Joints with k degrees of freedom have 6 - k constraints. Blocks are padded to the largest size with unit diagonals.
- Armature r: of the torque tau, u = r qdd accelerates the rotor and S'F = tau - u the bodies. So -u is one more
  constraint force, along S (S'S)^-1. Its row of T F, qdd = u / r, adds the compliance 1 / r to the diagonal of A.
- Branching trees: heavy paths, from the outermost level inward, each a chain. The systems of all paths of a level are
  solved at once. A solved light subtree acts on its junction body with a force that is affine in that body's
  acceleration, X'F = J a - eta. So the path's system has seven right-hand sides: six unit accelerations and the
  torques. J is added to the inertia of the junction body, and eta to the forces on it. The response of the path to unit
  accelerations is kept. Accelerations are then computed level by level from the root outward.

Every body, including its light subtrees, needs an invertible inertia. Massless bodies (such as the middle of a
universal joint), points and thin rods are refused. Nearly massless bodies are accepted but may cost all accuracy: of
206 random trees with bodies of 1e-9 of the others' mass, 13 have residuals above 1e-7, at worst 0.1. Prismatic and
spherical joints on links that are short for their mass are as bad. Every call checks its residual and warns.

The condition number of A grows with the length of paths. Residuals |ID(qdd) - tau| / max |tau| of chains with skewed
joints, the largest of five states, by odd-even elimination: 1e-10 for 10 bodies, 3e-8 for 40, 3e-7 for 100, 9e-6 for
1,000. With refinement or by a factorisation they are 100 to 300 times smaller. Both bases have similar residuals. Trees
of 1,000 bodies with branching 2 have 1e-12.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cache, reduce
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from robodyn.core.joints import JointKind
from robodyn.core.spatial import (
    ZERO_ARTICULATED,
    ZERO_FORCE,
    ArticulatedInertia,
    Force,
    Motion,
    Scalar,
    Transform,
    articulated,
    full,
)
from robodyn.core.sweeps import ARTICULATED, FORCE, INERTIA, MOTION, TRANSFORM, FieldType
from robodyn.engines.scan.algorithms.inverse import inverse_dynamics
from robodyn.engines.scan.elementwise import Elementwise
from robodyn.engines.scan.semigroups import sums
from robodyn.engines.scan.states import Layout, State, force_out, motion_in
from robodyn.engines.scan.systems.constraints import constraints_of
from robodyn.engines.scan.systems.odd_even import (
    SOLVERS,
    back_substituted,
    below,
    block,
    factor,
    forward_substituted,
    lower,
    solved,
    taken,
    transposed_times,
)
from robodyn.engines.scan.trees.heavy_paths import HeavyPaths, Level
from robodyn.engines.scan.trees.prefix_scans import Segments
from robodyn.internals.arguments import Array
from robodyn.internals.errors import SingularError
from robodyn.internals.records import dataclass

_ROUNDINGS = 1000.0
"""A pivot of an inertia counts as zero if it is at most this number of rounding units of the largest diagonal entry of
its kind (linear or angular)."""

# Steps for one body: blocks of scalars, motions and forces.


def _linear_first(each: Motion | Force) -> tuple[Scalar, ...]:
    """The linear, then the angular scalars. Inertias are factorised in this order: after elimination of the linear
    part, the angular part is the inertia about the centre of mass."""
    return (*each.lin, *each.ang)


def _columns(forces: tuple[Force, ...]) -> Array:
    """Forces as the columns of a block."""
    return block((x for f in forces for x in _linear_first(f)), 6).T


def _factors(J: ArticulatedInertia) -> tuple[Scalar, ...]:
    """d, and the entries below the diagonal of L, with J = L diag(d) L'."""
    whole = np.zeros((6, 6), object)
    whole[:3, :3], whole[3:, :3], whole[3:, 3:] = block(full(J.M), 3), block(J.H, 3), block(full(J.I), 3)
    L, d = factor(whole)
    return (*d, *below(L))


def _solved_inertia(factors: tuple[Scalar, ...], f: Force) -> Motion:
    """J^-1 f."""
    d, rest = factors[:6], factors[6:]
    lin_x, lin_y, lin_z, x, y, z = solved(lower(d, rest), 1.0 / block(d, 6)[0], _columns((f,)))[:, 0]
    return Motion((x, y, z), (lin_x, lin_y, lin_z))


def _seen(X: Transform, F: tuple[Force, ...]) -> tuple[ArticulatedInertia, Force]:
    """J and eta of a path in the frame of its junction body, from the force F across the path's first joint under six
    unit accelerations of the junction and, last, under the torques."""
    *units, own = (X.force_back(f) for f in F)
    pushed = [(*f.ang, *f.lin) for f in units]
    J = [[0.5 * (pushed[i][j] + pushed[j][i]) for j in range(6)] for i in range(6)]
    upper = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
    I, M = (tuple(J[k + i][k + j] for i, j in upper) for k in (0, 3))
    return ArticulatedInertia(M, (*J[0][3:], *J[1][3:], *J[2][3:]), I), own.scaled(-1.0)


def _answered(F: tuple[Force, ...], a: Motion) -> Force:
    """The force across a joint if its path's junction has the acceleration a."""
    *units, own = F
    for unit, rate in zip(units, (*a.ang, *a.lin), strict=True):
        own = own + unit.scaled(rate)
    return own


def _many(k: int) -> FieldType:
    return FieldType((ZERO_FORCE,) * k)


def _scalars(k: int) -> FieldType:
    return FieldType((0.0,) * k)


_FACTORS = 21
_rigid = Elementwise(articulated, ARTICULATED, INERTIA)
_factored = Elementwise(_factors, _scalars(_FACTORS), ARTICULATED)
_solve_inertia = Elementwise(_solved_inertia, MOTION, _scalars(_FACTORS), FORCE)
_seen_from_below = Elementwise(_seen, FieldType((ZERO_ARTICULATED, ZERO_FORCE)), TRANSFORM, _many(7))
_answer = Elementwise(_answered, FORCE, _many(7), MOTION)
_LINEAR, _ANGULAR = (0, 3, 5), (15, 18, 20)
"""Indices of the diagonals of M and of I among the scalars of an articulated inertia."""


@cache
def _seen_by(kind: JointKind) -> Elementwise:
    """The step for the diagonal of S'J S of joints of a kind."""

    def step(J: ArticulatedInertia, pitch: tuple[Scalar]) -> tuple[Scalar, ...]:
        return tuple(s.dot(J.times(s)) for s in kind.subspace(pitch[0] if kind.pitched else 0.0))

    return Elementwise(step, _scalars(kind.nv), ARTICULATED, _scalars(1))


@dataclass(frozen=True)
class _Steps:
    """Steps for bodies with k constraint forces, the columns of W. J = L diag(d) L' is the body's inertia.

    `pushed`: X'W; `half`: L^-1 W; `gram`: W'J^-1 W from d and L^-1 W; `coupling`: -W'J^-1 V from d, L^-1 W and L^-1 V;
    `against`: -W'm of a motion m.
    """

    pushed: Elementwise
    half: Elementwise
    gram: Elementwise
    coupling: Elementwise
    against: Elementwise


@cache
def _steps(k: int) -> _Steps:
    def push(X: Transform, W: tuple[Force, ...]) -> tuple[Force, ...]:
        return tuple(X.force_back(w) for w in W)

    def half(factors: tuple[Scalar, ...], W: tuple[Force, ...]) -> tuple[Scalar, ...]:
        return tuple(forward_substituted(lower(factors[:6], factors[6:]), _columns(W)).ravel())

    def gram(d: tuple[Scalar, ...], H: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        whole = block(H, k)
        return tuple(transposed_times(whole, whole / block(d, 1)).ravel())

    def couple(d: tuple[Scalar, ...], H: tuple[Scalar, ...], G: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        return tuple(taken(0.0, block(H, k), block(G, k), 1.0 / block(d, 6)[0]).ravel())

    def against(W: tuple[Force, ...], m: Motion) -> tuple[Scalar, ...]:
        return tuple(-m.dot(w) for w in W)

    columns, halves, square = _many(k), _scalars(6 * k), _scalars(k * k)
    return _Steps(
        Elementwise(push, columns, TRANSFORM, columns),
        Elementwise(half, halves, _scalars(_FACTORS), columns),
        Elementwise(gram, square, _scalars(6), halves),
        Elementwise(couple, square, _scalars(6), halves, halves),
        Elementwise(against, _scalars(k), columns, MOTION),
    )


@cache
def _combined(k: int, count: int) -> Elementwise:
    """The step for forces W Fc of `count` right-hand sides, from k columns W and numbers Fc (k, count)."""

    def step(W: tuple[Force, ...], Fc: tuple[Scalar, ...]) -> tuple[Force, ...]:
        amounts = block(Fc, count)
        return tuple(_sum(w.scaled(x) for w, x in zip(W, column, strict=True)) for column in amounts.T)

    return Elementwise(step, _many(count), _many(k), _scalars(k * count))


def _sum(forces: Iterable[Force]) -> Force:
    return reduce(Force.__add__, forces)


# Balanced bases.


def _halved(D: tuple[Scalar, ...], B: Array) -> Array:
    """d^-1/2 L^-1 B with D = L diag(d) L'."""
    L, d = factor(block(D, len(B)))
    return forward_substituted(L, B) / _roots(d)


def _roots(d: Array) -> Array:
    return block((np.sqrt(each) for each in d), 1)


@cache
def _balanced(k: int, count: int) -> tuple[Elementwise, Elementwise, Elementwise]:
    """Steps of the scaling that turns diagonal blocks into the identity: for couplings (from the diagonal blocks of two
    neighbours), for right-hand sides, and back for solutions."""

    def coupling(D: tuple[Scalar, ...], D_next: tuple[Scalar, ...], U: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        return tuple(_halved(D_next, _halved(D, block(U, k)).T).T.ravel())

    def right(D: tuple[Scalar, ...], R: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        return tuple(_halved(D, block(R, count)).ravel())

    def back(D: tuple[Scalar, ...], X: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        L, d = factor(block(D, k))
        return tuple(back_substituted(L, block(X, count) / _roots(d)).ravel())

    square, columns = _scalars(k * k), _scalars(k * count)
    return (
        Elementwise(coupling, square, square, square, square),
        Elementwise(right, columns, square, columns),
        Elementwise(back, columns, square, columns),
    )


# Paths.


@dataclass(frozen=True)
class _Places:
    """Indices of a level: `inner`, the bodies that follow another one on their path; `before`, their predecessors;
    `junction` (m,), the junction body of each body's path."""

    inner: Array
    before: Array
    junction: Array


_PLACES: WeakKeyDictionary[Layout, list[_Places]] = WeakKeyDictionary()


def _places(layout: Layout) -> list[_Places]:
    """The `_Places` of all levels, cached as long as the layout exists."""
    if layout not in _PLACES:
        places, placed = [], layout.placed
        for level in HeavyPaths(layout.model.tree).levels:
            inner, junction = level.segments.position > 0, np.repeat(level.junctions, level.segments.lengths)
            places.append(_Places(placed(np.flatnonzero(inner)), placed(np.flatnonzero(inner) - 1), placed(junction)))
        _PLACES[layout] = places
    return _PLACES[layout]


@dataclass(frozen=True)
class _Paths:
    """The paths of a level.

    `factors` (21, m, B): factors of the bodies' inertias, including light subtrees; `X` (12, m, B): transforms;
    `hanging`: True if the paths hang on other paths, False if they hang on the world.
    """

    level: Level
    places: _Places
    factors: Array
    X: Array
    hanging: bool

    def net(self, F: Array) -> Array:
        """F_i - X_{i+1}' F_{i+1} (6, m, B): the net joint force on each body."""
        inner, before, net = self.places.inner, self.places.before, F.copy()
        net[:, before] -= force_out(self.X[:, inner], F[:, inner])
        return net

    def relative(self, V: Array) -> Array:
        """V_i - X_i V_{i-1} (6, m, B) along paths, with V_{i-1} = 0 for first bodies."""
        inner, before, motions = self.places.inner, self.places.before, V.copy()
        motions[:, inner] -= motion_in(self.X[:, inner], V[:, before])
        return motions

    def blocks(self, steps: _Steps, W: Array, back: Array, U: Array) -> Array:
        """The diagonal blocks D of A (k k, m, B) without compliances, from W and X'W (`back`). Fills the zero U."""
        inner, before, d = self.places.inner, self.places.before, self.factors[:6]
        H = steps.half(self.factors, W)
        D = steps.gram(d, H)
        G = steps.half(self.factors[:, before], back[:, inner])
        D[:, inner] += steps.gram(d[:, before], G)
        U[:, before] = steps.coupling(d[:, before], H[:, before], G)
        return D


def _solved(layout: Layout, D: Array, U: Array, R: Array, segments: Segments) -> Array:
    """Fc (k count, m, B) from blocks D and U (k k, m, B) and right-hand sides R (k, count, m, B)."""
    k, count = R.shape[:2]
    blocks, columns = (k, k, *R.shape[2:]), (k * count, *R.shape[2:])
    solve = SOLVERS[layout.options.constraint_solver]
    if layout.options.constraint_basis != "balanced":
        forces: Array = solve(D.reshape(blocks), U.reshape(blocks), R, segments).reshape(columns)
        return forces
    # Scaling W by the inverse of the Cholesky factor of D turns D into the identity. U and R are scaled accordingly.
    coupling, right, back = _balanced(k, count)
    U[:, :-1] = coupling(D[:, :-1], D[:, 1:], U[:, :-1])
    R = right(D, R.reshape(columns)).reshape(R.shape)
    identity = layout.xp.zeros(D.shape, D.dtype)
    identity[:: k + 1] = 1.0
    return back(D, solve(identity.reshape(blocks), U.reshape(blocks), R, segments).reshape(columns))


class _ConstraintForces:
    """Forward dynamics under torques (nv, B) minus bias torques.

    `refused` (n,): True for bodies whose inertia is singular in all rows of the batch.
    """

    def __init__(self, state: State, tau: Array) -> None:
        self.state, self.tau, self.constraints = state, tau, constraints_of(state.layout)
        self.active = state.joint_motion(self.constraints.weights * tau)
        """S (S'S)^-1 tau (6, n, B)."""
        self.table = state.zeros(27, state.n, state.batch)
        self.J, self.eta = self.table[:21], self.table[21:]
        _rigid(state.inertia, out=self.J)
        self.refused = state.xp.zeros(state.n, bool)

    def accelerations(self) -> Array:
        """qdd (nv, B)."""
        state, heavy_paths = self.state, self.state.layout.heavy_paths
        levels = list(zip(heavy_paths.levels, _places(state.layout), strict=True))
        done = []
        for number in range(len(levels) - 1, -1, -1):
            paths = self._paths(*levels[number], hanging=number > 0)
            F = self._forces(paths)
            done.append((paths, F))
            if paths.hanging:
                starts = paths.level.starts
                heavy_paths.join(sums(27), self.table, paths.level, _seen_from_below(paths.X[:, starts], F[:, starts]))
        V, relative, across = (state.zeros(6, state.n, state.batch) for _ in range(3))
        for paths, F in reversed(done):
            level = paths.level
            total = _answer(F, V[:, paths.places.junction]) if paths.hanging else F
            across[:, level.bodies] = total
            V[:, level.bodies] = _solve_inertia(paths.factors, paths.net(total) + self.eta[:, level.bodies])
            relative[:, level.bodies] = paths.relative(V[:, level.bodies])
            if paths.hanging:
                relative[:, level.heads] -= motion_in(paths.X[:, level.starts], V[:, level.junctions])
        rates: Array = self.constraints.weights * state.joint_force(relative)
        if not state.model.tree_armature.any():
            return rates
        # With a heavy rotor, the difference of accelerations is inaccurate, and the rotor's share of the torque is
        # accurate.
        armature, seen = state.layout.armature, self._seen_by_joints()
        mixed: Array = state.xp.where(armature > seen, (self.tau - state.joint_force(across)) / armature, rates)
        return mixed

    def _seen_by_joints(self) -> Array:
        """The diagonal of S'J S (nv, B), with J the inertia of the body behind each joint."""
        diagonal = self.state.empty(self.state.model.nv_tree, self.state.batch)
        for joints in self.state.layout.joints:
            seen = _seen_by(joints.kind)(self.J[:, joints.bodies], joints.pitch[None])
            for rows, values in zip(joints.v_rows, seen, strict=True):
                diagonal[rows] = values
        return diagonal

    def _paths(self, level: Level, places: _Places, *, hanging: bool) -> _Paths:
        xp, J = self.state.xp, self.J[:, level.bodies]
        factors = _factored(J)
        singular = self._singular(factors[:6], J)
        self.refused[level.bodies] = singular.all(axis=1)
        factors[:6] = xp.where(singular, np.nan, factors[:6])  # if inertias are inputs, such rows become NaN
        return _Paths(level, places, factors, self.state.transforms[:, level.bodies], hanging)

    def _singular(self, d: Array, J: Array) -> Array:
        """(m, B): whether a pivot is zero up to rounding errors. False for non-finite values."""
        limit = _ROUNDINGS * float(np.finfo(J.dtype).eps)
        singular: Any = False
        for pivots, diagonal in ((d[:3], _LINEAR), (d[3:], _ANGULAR)):
            largest = abs(self.state.xp.stack([J[k] for k in diagonal])).max(axis=0)
            singular = singular | (pivots <= limit * largest).any(axis=0)
        return singular  # type: ignore[no-any-return]

    def _forces(self, paths: _Paths) -> Array:
        """Joint forces F (6 c, m, B) for c right-hand sides: unit accelerations of the junction, if there is one, and
        last the torques."""
        state, level = self.state, paths.level
        W, active = self.constraints.W[:, level.bodies], self.active[:, level.bodies]
        k, m = len(W) // 6, active.shape[1]
        steps, count = _steps(k), 7 if paths.hanging else 1
        back, U = steps.pushed(paths.X, W), state.zeros(k * k, m, state.batch)
        D = paths.blocks(steps, W, back, U)
        D[:: k + 1] += self.constraints.compliance[:, level.bodies]
        R = state.zeros(k, count, m, state.batch)
        drift = paths.relative(_solve_inertia(paths.factors, paths.net(active) + self.eta[:, level.bodies]))
        R[:, -1] = steps.against(W, drift)
        if paths.hanging:
            R[:, :6, level.starts] = back[:, level.starts].reshape(k, 6, -1, state.batch)
        F = _combined(k, count)(W, _solved(state.layout, D, U, R, level.segments))
        F[-6:] += active
        return F


def cfa(state: State, out: Array) -> None:
    """qdd (B, nv) by algorithm 1: bias torques by scans, then constraint forces.

    On a device, the host reads four numbers after the computation, to decide on the warning and the errors.

    Warns:
        RuntimeWarning: inverse dynamics of the result differs from the torques by more than 1e-6 (in single precision
            2.5e-3) of the largest torque of a row.

    Raises:
        SingularError: the inertia of a body is singular. If inertias are inputs, rows with a singular inertia are NaN,
            and the error is raised only if a body's inertia is singular in all rows.
        ArgumentError: `constraint_basis` returns no valid basis.
        UnavailableError: `constraint_solver` is for NumPy arrays only.
    """
    if not state.n:
        return
    tau = state.tree_input("tau")
    forces = _ConstraintForces(state, tau - inverse_dynamics(state))
    out[...] = forces.accelerations().T
    bodies, first, rows, worst = _looked_at(state, forces.refused, inverse_dynamics(state.moving(out)) - tau)
    if bodies:
        _refuse(state, int(bodies), int(first))
    if rows:
        warnings.warn(
            f"method 'cfa': in {int(rows)} of {state.batch} rows its accelerations need other torques than those "
            f"given, by up to {worst:.0e} of the largest; 'aba_scan' and 'crba' lose fewer digits",
            RuntimeWarning,
            stacklevel=2,
        )


def _looked_at(state: State, refused: Array, missed: Array) -> list[float]:
    """Four numbers: the count of refused bodies, the first of them, the count of rows whose residual is too large, and
    the largest residual, relative to the largest torque of its row.

    `refused` (n,): the refused bodies; `missed` (nv, B): the residual torques.
    """
    xp, size = state.xp, abs(state.tree_input("tau")).max(axis=0)
    residual = abs(missed).max(axis=0) / xp.where(size > 0.0, size, float(np.finfo(state.dtype).tiny))
    residual = xp.where(xp.isfinite(residual), residual, 0.0)  # non-finite results need no warning
    numbers = state.layout.numbers
    counts = (
        refused.sum(),
        xp.where(refused, numbers, state.n).min(),
        (residual > float(np.finfo(state.dtype).eps) ** 0.375).sum(),
        residual.max(),
    )
    seen: list[float] = state.layout.here(xp.stack([each.astype(np.float64) for each in counts])).tolist()
    return seen


def _refuse(state: State, bodies: int, first: int) -> None:
    """Raise: `bodies` bodies, the first of them `first`, have a singular inertia in all rows."""
    name = state.model.body_names[first]
    more = f" (nor have {bodies - 1} more)" if bodies > 1 else ""
    raise SingularError(
        f"method: 'cfa' takes the inverse of every body's inertia, and {name!r} has none{more}; wanted mass, and "
        "inertia about the centre of mass in every direction. Methods without that need: 'aba_scan', 'crba'"
    )
