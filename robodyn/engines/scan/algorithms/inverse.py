"""Inverse dynamics by scans, with three methods for the motions.

- `rnea` (thesis of Lynghus, listing 3): velocities, then accelerations, each a first-order recurrence in body frames.
- `rnea_world` (listing 7): one scan of transforms; all else are plain sums in one frame. The thesis uses the world
  frame, in which a robot far from the origin loses all accuracy. Here it is the frame of each tree's first body.
- `twist_pair` (Yang, Wu, Pan 2016, eq. 13): velocities and accelerations in one scan.

Forces are summed towards the root: on heavy paths by a recurrence in body frames (eq. 16), on vector trees by sums in
one frame (listing 5), because siblings have no common path and only sums have inverses across them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from robodyn.core.spatial import IDENTITY, ZERO_MOTION, Motion
from robodyn.core.sweeps import flatten
from robodyn.engines.scan.elements import put, stored, taken
from robodyn.engines.scan.elementwise import kernels_for
from robodyn.engines.scan.folds import Fold, Handed, entered, scanned
from robodyn.engines.scan.order import Order, order_of
from robodyn.engines.scan.semigroups import (
    AFFINE_FORCES,
    AFFINE_MOTIONS,
    POSES,
    TWIST_PAIRS,
    AffineMotion,
    Semigroup,
    TwistPair,
    sums,
)
from robodyn.engines.scan.states import (
    State,
    body_force,
    force_in,
    force_out,
    motion_cross,
    motion_in,
    motion_out,
)
from robodyn.engines.scan.systems.motions import EXERTING, EXERTING_PUSHED, PULLING, SUMMING, TWISTING
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass


@dataclass
class Motions:
    """Motions of all bodies in their frames.

    X: transforms from the parent (12, n, B); XR: transforms from the tree's first body (12, n, B); v and a: velocities
    and accelerations (6, n, B), where a includes -g.
    """

    X: Array
    XR: Array
    v: Array
    a: Array


def _joint_rates(state: State) -> tuple[Array, Array]:
    """S qd and S qdd (6, n, B); zero if they are no inputs of the call."""

    def motion(name: str) -> Array:
        if state.given(name):
            return state.joint_motion(state.tree_input(name))
        return state.zeros(6, state.n, state.batch)

    return motion("qd"), motion("qdd")


def _from_base(state: State, op: Semigroup, elements: Array, base: object) -> Array:
    """Elements (X, ...) composed outward from the world's element `base`.

    Transforms X start at first bodies instead of the world, so that accuracy does not depend on the robot's position.
    """
    start = stored(base, state.empty(op.size, 1, state.batch))
    roots = state.layout.roots
    elements[:, roots] = op.compose(start, elements[:, roots])
    elements[:12, roots] = POSES.identities(elements, roots.size)
    return state.outward(op, elements)


def affine_scan(state: State, X: Array, b: Array, base: Motion | None) -> Array:
    """(XR, x) with x_i = X_i x_parent + b_i and x = `base` at the world: (18, n, B)."""
    elements = state.xp.concatenate((X, b))
    return _from_base(state, AFFINE_MOTIONS, elements, AffineMotion(IDENTITY, base or ZERO_MOTION))


def velocities(state: State, X: Array, vJ: Array) -> tuple[Array, Array]:
    """XR (12, n, B) and v (6, n, B)."""
    result = affine_scan(state, X, vJ, state.base_velocity)
    return result[:12], result[12:]


def external_forces(state: State, X: Array, XR: Array) -> Array:
    """The call's external forces in body frames (6, n, B)."""
    return force_in(XR, force_in(X[:, state.layout.root_of], state.external_forces))


def _by_recurrences(state: State) -> Motions:
    X, (vJ, aJ) = state.transforms, _joint_rates(state)
    XR, v = velocities(state, X, vJ)
    a = affine_scan(state, X, aJ + motion_cross(v, vJ), state.base_acceleration)[12:]
    return Motions(X, XR, v, a)


def _by_twist_pairs(state: State) -> Motions:
    X, (vJ, aJ) = state.transforms, _joint_rates(state)
    base = TwistPair(IDENTITY, state.base_acceleration, state.base_velocity or ZERO_MOTION)
    twists = _from_base(state, TWIST_PAIRS, state.xp.concatenate((X, aJ, vJ)), base)
    return Motions(X, twists[:12], twists[18:], twists[12:18])


def _by_sums(state: State) -> Motions:
    X, (vJ, aJ) = state.transforms, _joint_rates(state)
    XR = _from_base(state, POSES, X.copy(), IDENTITY)
    vJ = motion_out(XR, vJ)
    v = _sum(state, X, vJ, state.base_velocity)
    a = _sum(state, X, motion_out(XR, aJ) + motion_cross(v, vJ), state.base_acceleration)
    return Motions(X, XR, *(motion_in(XR, x) for x in (v, a)))


def _sum(state: State, X: Array, terms: Array, base: Motion | None) -> Array:
    """Sums of terms along paths, including the base's motion."""
    if base is not None:
        roots, terms = state.layout.roots, terms.copy()
        terms[:, roots] += motion_in(X[:, roots], stored(base, state.empty(6, 1, state.batch)))
    return state.outward(sums(6), terms)


# Folds along stretches of heavy paths.


class Outward:
    """The inputs of outward folds, in the order of `order`: transforms X (12, n, B), quantities of bodies (X, pitch,
    inertia, and external forces if the call has any), and the elements before first bodies (op.size, .., B).

    With external forces, with `from_first`, and for the operator `POSES`, composed transforms start at the tree's first
    body instead of the world. So accuracy does not depend on the robot's position.
    """

    def __init__(self, state: State, order: Order, op: Semigroup, base: object, *, from_first: bool = False) -> None:
        self._state, self._order, self._op, self._base = state, order, op, base
        self.X = X = order.transforms(state)
        pushed = state.given("f_ext") and op is not POSES
        if op is POSES and order.levels:
            put(X, order.levels[0].level.heads, state.constant(IDENTITY))
        self._bodies = [X, order.pitch, order.inertia(state)]
        self._first: Array | None = None
        if pushed or from_first:
            roots = order.levels[0].level.heads
            first = stored(op.identity, state.empty(op.size, len(roots), state.batch))
            first[:12] = taken(X, roots)
            self._first = op.compose(stored(base, state.empty(op.size, 1, state.batch)), first)
            self._first[:12] = state.constant(IDENTITY)
            self._bodies[0] = X.copy()
            put(self._bodies[0], roots, self._first[:12])
        if pushed:
            self._bodies.append(force_in(X[:, order.root_of], order.of_bodies(state.external_forces)))

    def found(self, alone: Fold, fold: Fold, dofs: Sequence[Array], found_dofs: Array | None = None) -> Array:
        """Run a fold outward and return its results for bodies (size, n + 1, B); the last entry is the world's.

        Args:
            alone: the fold that computes the operator's elements of stretches.
            fold: the fold to run. Its results begin with its carry, which is an element of the operator, or the last
                scalars of one.
            dofs: quantities of degrees of freedom.
            found_dofs: an array for results of degrees of freedom.
        """
        state, op, size = self._state, self._op, fold.size
        results = state.empty(fold.found.size(0), state.n + 1, state.batch)
        world = flatten(self._base)[-size:]
        stored(tuple(world), results[:size, -1:])
        for k, paths in enumerate(self._order.launches(state, first_apart=self._first is not None)):
            level, along = paths.level, paths.along
            start: Array = results[:size]
            sources: Array | None = level.junctions
            if self._first is not None and not k:  # only the first level hangs on the world
                start, sources = self._first, None
            if along.several:
                whole = stored(op.identity, state.empty(op.size, len(level.starts), state.batch))
                whole[-size:] = (start if sources is None else taken(start, sources))[-size:]
                elements = alone(along, state.constant(op.identity), self._bodies[:2], dofs)
                start, sources = entered(op, along, elements, whole), None
            fold(along, start[-size:], self._bodies, dofs, results, found_dofs, sources=sources)
        return results


def _along_stretches(state: State) -> Array:
    """tau (nv_tree, B) without armatures, by folds: twist pairs outward, affine forces inward."""
    order = order_of(state)
    base = TwistPair(IDENTITY, state.base_acceleration, state.base_velocity or ZERO_MOTION)
    outward = Outward(state, order, TWIST_PAIRS, base)
    fold = EXERTING_PUSHED if state.given("f_ext") else EXERTING
    f = outward.found(TWISTING, fold, (order.rates(state, "qd"), order.rates(state, "qdd")))[-6:]
    X, tau = outward.X, state.empty(1, state.model.nv_tree, state.batch)
    inward(state, order, AFFINE_FORCES, (PULLING, (X, f)), (SUMMING, (X, order.pitch, f)), f, found_dofs=tau)
    return order.to_model(tau)


def inward(
    state: State,
    order: Order,
    op: Semigroup,
    alone: tuple[Fold, Sequence[Array]],
    fold: tuple[Fold, Sequence[Array]],
    held: Array,
    dofs: Sequence[Array] = (),
    found: Array | None = None,
    found_dofs: Array | None = None,
) -> None:
    """Run a fold inward along stretches, from the leaves to the root.

    Args:
        state, order: the call's state and order.
        op: the operator of the stretches' elements. The last scalars of an element are the carry of `fold`.
        alone: the fold that computes the elements of stretches, with its quantities of bodies.
        fold: the fold to run, with its quantities of bodies.
        held: (size, n + 1, B) the quantity of bodies that receives the contributions of light subtrees; it is changed.
        dofs: quantities of degrees of freedom for `fold`.
        found, found_dofs: arrays for the results of bodies and of degrees of freedom.
    """
    (by_itself, of_alone), (step, of_bodies), size = alone, fold, fold[0].size
    nothing, handed = state.constant(step.carry.template), Handed(state, order, held, size)
    for paths in reversed(order.launches(state)):
        along, behind = paths.along, nothing
        if along.several:
            elements = by_itself(along, state.constant(op.identity), of_alone, (), handed=handed)
            open_, following = along.open
            behind = state.zeros(size, len(along), state.batch)
            put(behind, open_, taken(scanned(op, along, elements, backwards=True)[-size:], following))
        place = handed.place(paths)
        handed.take(paths, step(along, behind, of_bodies, dofs, found, found_dofs, handed=handed, into=place))


METHODS: dict[str, Callable[[State], Motions]] = {
    "rnea": _by_recurrences,
    "rnea_world": _by_sums,
    "twist_pair": _by_twist_pairs,
}
"""The function that computes the motions, by method."""


def inverse_dynamics(state: State, method: str | None = None) -> Array:
    """tau (nv_tree, B) of all joints. `method`: None for a fast one, on a device the one with fewest launches."""
    if method is None:
        method = "rnea" if kernels_for(state.inputs["q"]) is None else "twist_pair"
    heavy = state.layout.options.layout == "heavy"
    tau = _along_stretches(state) if method == "twist_pair" and heavy else _body_by_body(state, method)
    if state.given("qdd"):
        tau += state.layout.armature * state.tree_input("qdd")
    return tau


def _body_by_body(state: State, method: str) -> Array:
    """tau (nv_tree, B) without armatures, by scans over all bodies."""
    motions = METHODS[method](state)
    f = body_force(state.inertia, motions.v, motions.a)
    if state.given("f_ext"):
        f -= external_forces(state, motions.X, motions.XR)
    in_one_frame = method == "rnea_world" or state.layout.options.layout == "euler"
    summed = _summed(state, motions.XR, f) if in_one_frame else summed_inward(state, motions.X, f)
    return state.joint_force(summed)


def _summed(state: State, XR: Array, f: Array) -> Array:
    """Sums of forces over subtrees (6, n, B) in body frames, summed in the frame of the tree's first body."""
    return force_in(XR, state.subtree_sums(force_out(XR, f)))


def summed_inward(state: State, X: Array, f: Array) -> Array:
    """F_i = f_i + sum of X' F over children (6, n, B), in body frames, on heavy paths."""
    paths, options, F = state.layout.heavy_paths, state.layout.options, f.copy()
    for level in paths.inward():
        elements = state.empty(18, level.bodies.size, state.batch)
        elements[:12, :-1] = taken(X, level.bodies[1:])  # the next body's
        elements[:12, level.ends] = 0.0  # the last bodies of paths have no successor
        elements[12:] = taken(F, level.bodies)
        scanned = level.segments.scan(AFFINE_FORCES, elements, options.path_kernel, block=options.block, backwards=True)
        put(F, level.bodies, scanned[12:])
        paths.join(sums(6), F, level, force_out(taken(X, level.heads), taken(F, level.heads)))
    return F
