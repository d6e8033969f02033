"""Inverse dynamics by scans: three ways to the same torques.

- `rnea` (thesis of Lynghus, listing 3): velocities, then accelerations, each a first-order recurrence, in body frames.
- `rnea_world` (listing 7): one scan of transforms; everything else is a plain sum in one frame. The thesis takes the
  world's, which costs a robot far from its origin all digits; here it is that of each tree's first body.
- `twist_pair` (Yang, Wu, Pan 2016, eq. 13): velocities and accelerations in one scan.

Forces come back to the root by a recurrence in body frames on heavy paths (eq. 16), by sums in one frame on
vector trees (listing 5): siblings have no common path, and only sums can be taken back across them.
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
    """Of all bodies, in their frames: X from the parent and XR from the tree's first body (12, n, B), v and a (6, n,
    B), a being against gravity."""

    X: Array
    XR: Array
    v: Array
    a: Array


def _joint_rates(state: State) -> tuple[Array, Array]:
    """S qd and S qdd (6, n, B); zero where the call gives none."""

    def motion(name: str) -> Array:
        if state.given(name):
            return state.joint_motion(state.tree_input(name))
        return state.zeros(6, state.n, state.batch)

    return motion("qd"), motion("qdd")


def _from_base(state: State, op: Semigroup, elements: Array, base: object) -> Array:
    """Elements (X, ...) composed outward from an element of the world, but for X, which starts at first bodies: where a
    robot stands in the world would only cost it digits."""
    start = stored(base, state.empty(op.size, 1, state.batch))
    roots = state.layout.roots
    elements[:, roots] = op.compose(start, elements[:, roots])
    elements[:12, roots] = POSES.identities(elements, roots.size)
    return state.outward(op, elements)


def affine_scan(state: State, X: Array, b: Array, base: Motion | None) -> Array:
    """(XR, x) with x_i = X_i x_parent + b_i, x of the world being `base`: (18, n, B)."""
    elements = state.xp.concatenate((X, b))
    return _from_base(state, AFFINE_MOTIONS, elements, AffineMotion(IDENTITY, base or ZERO_MOTION))


def velocities(state: State, X: Array, vJ: Array) -> tuple[Array, Array]:
    """XR (12, n, B) and v (6, n, B)."""
    found = affine_scan(state, X, vJ, state.base_velocity)
    return found[:12], found[12:]


def external_forces(state: State, X: Array, XR: Array) -> Array:
    """Those given, in body frames (6, n, B)."""
    return force_in(XR, force_in(X[:, state.layout.root_of], state.external_forces))


def _by_recurrences(state: State) -> Motions:
    X, (vJ, aJ) = state.transforms, _joint_rates(state)
    XR, v = velocities(state, X, vJ)
    a = affine_scan(state, X, aJ + motion_cross(v, vJ), state.base_acceleration)[12:]
    return Motions(X, XR, v, a)


def _by_twist_pairs(state: State) -> Motions:
    X, (vJ, aJ) = state.transforms, _joint_rates(state)
    base = TwistPair(IDENTITY, state.base_acceleration, state.base_velocity or ZERO_MOTION)
    found = _from_base(state, TWIST_PAIRS, state.xp.concatenate((X, aJ, vJ)), base)
    return Motions(X, found[:12], found[18:], found[12:18])


def _by_sums(state: State) -> Motions:
    X, (vJ, aJ) = state.transforms, _joint_rates(state)
    XR = _from_base(state, POSES, X.copy(), IDENTITY)
    vJ = motion_out(XR, vJ)
    v = _sum(state, X, vJ, state.base_velocity)
    a = _sum(state, X, motion_out(XR, aJ) + motion_cross(v, vJ), state.base_acceleration)
    return Motions(X, XR, *(motion_in(XR, x) for x in (v, a)))


def _sum(state: State, X: Array, terms: Array, base: Motion | None) -> Array:
    """Terms summed along paths, with the base's motion before them."""
    if base is not None:
        roots, terms = state.layout.roots, terms.copy()
        terms[:, roots] += motion_in(X[:, roots], stored(base, state.empty(6, 1, state.batch)))
    return state.outward(sums(6), terms)


# Along stretches of heavy paths.


class Outward:
    """What folds outward start from, at places of an order: X (12, n, B), what is known of bodies (X, pitch, inertia,
    and external forces where the call gives any), and what comes before the first ones (op.size, .., B).

    With external forces transforms are those from the tree's first body: where a robot stands in the world would only
    cost it digits. Poses are always those, and with `from_first` so is what other operators have of them.
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
        """What a fold finds of bodies (size, n + 1, B), its carry first, the last entry being the world's. The carry is
        an element of the operator, or what is last in one; `alone` gives those of stretches. `found_dofs` takes what is
        found of degrees of freedom."""
        state, op, size = self._state, self._op, fold.size
        found = state.empty(fold.found.size(0), state.n + 1, state.batch)
        world = flatten(self._base)[-size:]
        stored(tuple(world), found[:size, -1:])
        for k, paths in enumerate(self._order.launches(state, first_apart=self._first is not None)):
            level, along = paths.level, paths.along
            start: Array = found[:size]
            sources: Array | None = level.junctions
            if self._first is not None and not k:  # which alone hangs on the world
                start, sources = self._first, None
            if along.several:
                whole = stored(op.identity, state.empty(op.size, len(level.starts), state.batch))
                whole[-size:] = (start if sources is None else taken(start, sources))[-size:]
                elements = alone(along, state.constant(op.identity), self._bodies[:2], dofs)
                start, sources = entered(op, along, elements, whole), None
            fold(along, start[-size:], self._bodies, dofs, found, found_dofs, sources=sources)
        return found


def _along_stretches(state: State) -> Array:
    """tau (nv_tree, B) without armatures, by twist pairs of stretches outward and affine forces of stretches inward."""
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
    """Let `found` and `found_dofs` be what a fold finds along stretches from the leaves inward.

    Args:
        state, order: of the call.
        op: of what stretches are by themselves, the last scalars being what is handed on.
        alone, fold: the folds that find that, and what is asked for, each with what it is given of bodies.
        held: (size, n + 1, B) which of that takes what hangs on bodies; it is changed.
        dofs: what `fold` is given of degrees of freedom.
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
"""How the motions are found."""


def inverse_dynamics(state: State, method: str | None = None) -> Array:
    """tau (nv_tree, B) of all joints; where no method is named by a quick one: on a device that of fewest launches."""
    if method is None:
        method = "rnea" if kernels_for(state.inputs["q"]) is None else "twist_pair"
    heavy = state.layout.options.layout == "heavy"
    tau = _along_stretches(state) if method == "twist_pair" and heavy else _body_by_body(state, method)
    if state.given("qdd"):
        tau += state.layout.armature * state.tree_input("qdd")
    return tau


def _body_by_body(state: State, method: str) -> Array:
    """tau (nv_tree, B) without armatures, by scans of all bodies."""
    motions = METHODS[method](state)
    f = body_force(state.inertia, motions.v, motions.a)
    if state.given("f_ext"):
        f -= external_forces(state, motions.X, motions.XR)
    in_one_frame = method == "rnea_world" or state.layout.options.layout == "euler"
    summed = _summed(state, motions.XR, f) if in_one_frame else summed_inward(state, motions.X, f)
    return state.joint_force(summed)


def _summed(state: State, XR: Array, f: Array) -> Array:
    """Forces (6, n, B) of subtrees, summed in the frame of their tree's first body."""
    return force_in(XR, state.subtree_sums(force_out(XR, f)))


def summed_inward(state: State, X: Array, f: Array) -> Array:
    """F_i = f_i + sum of X' F over children (6, n, B), in body frames, on heavy paths."""
    paths, options, F = state.layout.heavy_paths, state.layout.options, f.copy()
    for level in paths.inward():
        elements = state.empty(18, level.bodies.size, state.batch)
        elements[:12, :-1] = taken(X, level.bodies[1:])  # the next body's
        elements[:12, level.ends] = 0.0  # what ends a path is followed by nothing
        elements[12:] = taken(F, level.bodies)
        scanned = level.segments.scan(AFFINE_FORCES, elements, options.path_kernel, block=options.block, backwards=True)
        put(F, level.bodies, scanned[12:])
        paths.join(sums(6), F, level, force_out(taken(X, level.heads), taken(F, level.heads)))
    return F
