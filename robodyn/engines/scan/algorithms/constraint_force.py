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
the largest of five states: 1e-10 at 10 bodies, 3e-8 at 40, 3e-7 at 100, 9e-6 at 1,000 by odd-even elimination; refined
or by a factorisation 100 to 300 times less. The two bases do alike. Trees of branching 2 leave 1e-12 at 1,000.
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
"""A pivot of an inertia that is no larger than that many roundings of the largest of its kind counts as zero."""

# Steps on one body: blocks of scalars, motions and forces.


def _linear_first(each: Motion | Force) -> tuple[Scalar, ...]:
    """Inertias are factorised mass first: what is left of the angular part is the inertia about the centre of mass."""
    return (*each.lin, *each.ang)


def _columns(forces: tuple[Force, ...]) -> Array:
    """Forces as columns of a block."""
    return block((x for f in forces for x in _linear_first(f)), 6).T


def _factors(J: ArticulatedInertia) -> tuple[Scalar, ...]:
    """d, and what is below the diagonal of L, with J = L d L'."""
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
    """J and eta of a path, as the body sees them that it hangs on: from what unit accelerations of that, and last the
    torques, make of the force across the path's first joint."""
    *units, own = (X.force_back(f) for f in F)
    pushed = [(*f.ang, *f.lin) for f in units]
    J = [[0.5 * (pushed[i][j] + pushed[j][i]) for j in range(6)] for i in range(6)]
    upper = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
    I, M = (tuple(J[k + i][k + j] for i, j in upper) for k in (0, 3))
    return ArticulatedInertia(M, (*J[0][3:], *J[1][3:], *J[2][3:]), I), own.scaled(-1.0)


def _answered(F: tuple[Force, ...], a: Motion) -> Force:
    """The force across a joint, whose junction accelerates by a."""
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
"""Where the diagonals of its M and I are among the scalars of an inertia."""


@cache
def _seen_by(kind: JointKind) -> Elementwise:
    """The diagonal of S'J S."""

    def step(J: ArticulatedInertia, pitch: tuple[Scalar]) -> tuple[Scalar, ...]:
        return tuple(s.dot(J.times(s)) for s in kind.subspace(pitch[0] if kind.pitched else 0.0))

    return Elementwise(step, _scalars(kind.nv), ARTICULATED, _scalars(1))


@dataclass(frozen=True)
class _Steps:
    """Steps for bodies of k constraints, which are columns W of forces. With J = L d L', what is left of a column f is
    L^-1 f, and two of those, one over d, make f'J^-1 f.

    `pushed`: X'W; `half`: L^-1 W; `gram`: W'J^-1 W from d and that; `coupling`: -W'J^-1 V from d, L^-1 W and L^-1 V;
    `against`: -W'm of a motion.
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
    """W Fc: forces of n right-hand sides, from k columns and (k, count) numbers."""

    def step(W: tuple[Force, ...], Fc: tuple[Scalar, ...]) -> tuple[Force, ...]:
        amounts = block(Fc, count)
        return tuple(_sum(w.scaled(x) for w, x in zip(W, column, strict=True)) for column in amounts.T)

    return Elementwise(step, _many(count), _many(k), _scalars(k * count))


def _sum(forces: Iterable[Force]) -> Force:
    return reduce(Force.__add__, forces)


# Balanced bases.


def _halved(D: tuple[Scalar, ...], B: Array) -> Array:
    """d^-1/2 L^-1 B of D = L d L'."""
    L, d = factor(block(D, len(B)))
    return forward_substituted(L, B) / _roots(d)


def _roots(d: Array) -> Array:
    return block((np.sqrt(each) for each in d), 1)


@cache
def _balanced(k: int, count: int) -> tuple[Elementwise, Elementwise, Elementwise]:
    """What makes diagonal blocks the identity, of couplings (from two neighbours' blocks), of right-hand sides, and
    back again of solutions."""

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
    """Of a level, where arrays are: `inner` and `before`, places of bodies that follow another one of their path, and
    of those; `junction` (m,): the body that each one's path hangs on."""

    inner: Array
    before: Array
    junction: Array


_PLACES: WeakKeyDictionary[Layout, list[_Places]] = WeakKeyDictionary()


def _places(layout: Layout) -> list[_Places]:
    """Of all levels, kept as long as the layout is."""
    if layout not in _PLACES:
        found, placed = [], layout.placed
        for level in HeavyPaths(layout.model.tree).levels:
            inner, junction = level.segments.position > 0, np.repeat(level.junctions, level.segments.lengths)
            found.append(_Places(placed(np.flatnonzero(inner)), placed(np.flatnonzero(inner) - 1), placed(junction)))
        _PLACES[layout] = found
    return _PLACES[layout]


@dataclass(frozen=True)
class _Paths:
    """The paths of a level: factors (21, m, B) of the inertias of their bodies, light subtrees included, and transforms
    (12, m, B); `hanging`: whether they hang on other paths, not on the world."""

    level: Level
    places: _Places
    factors: Array
    X: Array
    hanging: bool

    def net(self, F: Array) -> Array:
        """F_i - X_{i+1}' F_{i+1} (6, m, B): what joint forces F leave for the bodies themselves."""
        inner, before, found = self.places.inner, self.places.before, F.copy()
        found[:, before] -= force_out(self.X[:, inner], F[:, inner])
        return found

    def relative(self, V: Array) -> Array:
        """V_i - X_i V_{i-1} (6, m, B) along paths, whose first bodies follow one at rest."""
        inner, before, found = self.places.inner, self.places.before, V.copy()
        found[:, inner] -= motion_in(self.X[:, inner], V[:, before])
        return found

    def blocks(self, steps: _Steps, W: Array, back: Array, U: Array) -> Array:
        """D of A (k k, m, B), without compliances, from W and X'W; U, zeros, is filled."""
        inner, before, d = self.places.inner, self.places.before, self.factors[:6]
        H = steps.half(self.factors, W)
        D = steps.gram(d, H)
        G = steps.half(self.factors[:, before], back[:, inner])
        D[:, inner] += steps.gram(d[:, before], G)
        U[:, before] = steps.coupling(d[:, before], H[:, before], G)
        return D


def _solved(layout: Layout, D: Array, U: Array, R: Array, segments: Segments) -> Array:
    """Fc (k count, m, B) of blocks D and U (k k, m, B) and right-hand sides (k, count, m, B)."""
    k, count = R.shape[:2]
    blocks, columns = (k, k, *R.shape[2:]), (k * count, *R.shape[2:])
    solve = SOLVERS[layout.options.constraint_solver]
    if layout.options.constraint_basis != "balanced":
        found: Array = solve(D.reshape(blocks), U.reshape(blocks), R, segments).reshape(columns)
        return found
    # W times the inverse of the Cholesky factor of D turns D into the identity; U and R follow.
    coupling, right, back = _balanced(k, count)
    U[:, :-1] = coupling(D[:, :-1], D[:, 1:], U[:, :-1])
    R = right(D, R.reshape(columns)).reshape(R.shape)
    identity = layout.xp.zeros(D.shape, D.dtype)
    identity[:: k + 1] = 1.0
    return back(D, solve(identity.reshape(blocks), U.reshape(blocks), R, segments).reshape(columns))


class _ConstraintForces:
    """Forward dynamics under torques (nv, B) that bias torques were taken off.

    `refused` (n,): bodies whose inertia has no inverse in any row.
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
        # Beside a heavy rotor, differences of accelerations have few digits, and its share of the torque has many.
        armature, seen = state.layout.armature, self._seen_by_joints()
        found: Array = state.xp.where(armature > seen, (self.tau - state.joint_force(across)) / armature, rates)
        return found

    def _seen_by_joints(self) -> Array:
        """The diagonal of S'J S (nv, B) for the inertias of the bodies behind joints."""
        found = self.state.empty(self.state.model.nv_tree, self.state.batch)
        for joints in self.state.layout.joints:
            seen = _seen_by(joints.kind)(self.J[:, joints.bodies], joints.pitch[None])
            for rows, values in zip(joints.v_rows, seen, strict=True):
                found[rows] = values
        return found

    def _paths(self, level: Level, places: _Places, *, hanging: bool) -> _Paths:
        xp, J = self.state.xp, self.J[:, level.bodies]
        factors = _factored(J)
        singular = self._singular(factors[:6], J)
        self.refused[level.bodies] = singular.all(axis=1)
        factors[:6] = xp.where(singular, np.nan, factors[:6])  # rows of inertias that are given have no answer then
        return _Paths(level, places, factors, self.state.transforms[:, level.bodies], hanging)

    def _singular(self, d: Array, J: Array) -> Array:
        """(m, B): whether a pivot is zero up to rounding; where values are not finite, they are not."""
        limit = _ROUNDINGS * float(np.finfo(J.dtype).eps)
        found: Any = False
        for pivots, diagonal in ((d[:3], _LINEAR), (d[3:], _ANGULAR)):
            largest = abs(self.state.xp.stack([J[k] for k in diagonal])).max(axis=0)
            found = found | (pivots <= limit * largest).any(axis=0)
        return found  # type: ignore[no-any-return]

    def _forces(self, paths: _Paths) -> Array:
        """F (6 c, m, B), the force of each right-hand side: unit accelerations of the junction, where paths have one,
        and last the torques."""
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

    On a device it takes one look at four numbers, once all is computed, for what it warns of and raises.

    Warns:
        RuntimeWarning: inverse dynamics of the result misses the torques by more than 1e-6 of the largest of a row (in
            single precision 2.5e-3).

    Raises:
        SingularError: the inertia of a body cannot be inverted. Of inertias given for each row, rows where one cannot
            are NaN, and it is raised where none can.
        ArgumentError: `constraint_basis` gives no basis.
        UnavailableError: `constraint_solver` is for NumPy arrays alone.
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
    """How many bodies (n,) are refused, and the first; how many rows of torques are missed (nv, B) by more than is
    right, and by how much at most, relative to the largest of the row."""
    xp, size = state.xp, abs(state.tree_input("tau")).max(axis=0)
    residual = abs(missed).max(axis=0) / xp.where(size > 0.0, size, float(np.finfo(state.dtype).tiny))
    residual = xp.where(xp.isfinite(residual), residual, 0.0)  # not finite for other reasons, which the result shows
    numbers = state.layout.numbers
    found = (
        refused.sum(),
        xp.where(refused, numbers, state.n).min(),
        (residual > float(np.finfo(state.dtype).eps) ** 0.375).sum(),
        residual.max(),
    )
    seen: list[float] = state.layout.here(xp.stack([each.astype(np.float64) for each in found])).tolist()
    return seen


def _refuse(state: State, bodies: int, first: int) -> None:
    """Raise where n bodies have, in all rows, an inertia that cannot be inverted."""
    name = state.model.body_names[first]
    more = f" (nor have {bodies - 1} more)" if bodies > 1 else ""
    raise SingularError(
        f"method: 'cfa' takes the inverse of every body's inertia, and {name!r} has none{more}; wanted mass, and "
        "inertia about the centre of mass in every direction. Methods without that need: 'aba_scan', 'crba'"
    )
