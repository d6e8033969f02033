"""Forward dynamics by scans of Riccati elements on heavy paths: the articulated-body algorithm in parallel along paths.

Paths are cut into stretches of some bodies. For each level, from the outermost inward: a fold computes the Riccati
element of each stretch (`stretches.py`). A suffix scan along paths (`riccati.py`) computes the articulated inertia and
bias force behind each stretch. From these, the articulated-body algorithm runs along each stretch. The results of path
heads are added to their junction bodies.

Each joint's acceleration is then an affine function of the acceleration of the body before it (RBDA eq. 7.45 and 7.46),
and so is the acceleration of a stretch's last body. An outward scan over stretches gives the acceleration before each
stretch, and a fold computes those of its bodies. A path of one stretch needs no scan: it is the plain recursion, in
parallel for all paths of a level.

Two measures keep accuracy. First, a stretch is weak if its last body is light compared to the inertia behind it. The
mobility of its end then swamps other terms in compositions. A weak stretch is extended by the first body of the next
stretch. This depends on values. On a device, if a path has several stretches, the host reads one number after the
computation. If that shows weak stretches, the computation is repeated. From then on, for this model, the host reads one
number for each level with several stretches on a path before its scan, another one after it, and flags of stretches.
Second, a step of Newton's method, which is a linear scan, removes rounding errors of the compositions.

The table shows residuals |ID(qdd) - tau| / max |tau| of a chain of 61 random links in stretches of `SHORTEST` bodies.
Of every three to five links, one to three have their inertia multiplied by the factor in the first column. The
articulated-body recursion has a residual of 2e-15.

| factor | float64 | not extended | no correction | neither | float32 | not extended | no correction |
|---|---|---|---|---|---|---|---|
| 1 | 1e-15 | 1e-15 | 2e-15 | 2e-15 | 1e-6 | 1e-6 | 1e-6 |
| 1e-4 | 2e-15 | 2e-15 | 1e-14 | 1e-14 | 2e-6 | 1e-6 | 1e-6 |
| 1e-6 | 2e-15 | 2e-15 | 3e-15 | 6e-13 | 2e-6 | 1e-6 | 2e-6 |
| 1e-9 | 2e-15 | 3e-15 | 3e-15 | 1e-9 | 1e-6 | NaN | 2e-6 |
| 1e-12 | 3e-15 | 3e-15 | 3e-15 | 1e-6 | 1e-6 | NaN | 2e-6 |
| 0 | 4e-15 | 8e-11 | 3e-15 | 8e-6 | 1e-6 | 1e-6 | 2e-6 |

Neither measure helps if inertias grow outward along a path by 15 or more orders of magnitude from end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from operator import or_
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from robodyn.core.spatial import IDENTITY, ZERO_MOTION, Scalar
from robodyn.core.sweeps import SCALAR
from robodyn.engines.scan.algorithms.inverse import Outward
from robodyn.engines.scan.elements import put, stored, taken
from robodyn.engines.scan.elementwise import Elementwise
from robodyn.engines.scan.folds import Handed, entered, scanned
from robodyn.engines.scan.order import Order, Paths, Stretches, order_of
from robodyn.engines.scan.semigroups import AFFINE_MOTIONS, AffineMotion
from robodyn.engines.scan.states import State
from robodyn.engines.scan.systems.motions import LOADING, LOADING_PUSHED, MOVING
from robodyn.engines.scan.systems.riccati import (
    AFFINE,
    CORRECTIONS,
    SYM6,
    Sym6,
    growth,
    riccati,
)
from robodyn.engines.scan.systems.stretches import (
    ACCELERATING,
    ALONE,
    SETTLED,
    SETTLING,
    growing,
)
from robodyn.engines.scan.trees.heavy_paths import Level
from robodyn.internals.arguments import Array

Flags: TypeAlias = NDArray[np.bool_]

WEAK = {np.dtype(np.float64): 1e6, np.dtype(np.float32): 1e2}
"""The largest inertia behind a stretch, relative to that of its own end, before the stretch counts as weak. The
relative error of compositions is some rounding units times this number; the correction squares the error."""
_LONGEST = 8
"""The most bodies by which a weak stretch is extended. More than six help only if other bodies hang on them. If a joint
has no inertia at all, there is no such limit."""

_A_B, _C, _HELD, _J, _SOUND = slice(42), slice(42, 63), slice(63, 90), slice(69, 90), slice(90, 91)
"""Slices of the scalars of `Growing`. `_HELD` is eta and J, in the order of the bodies' negative bias forces and
inertias."""


_IDLE = 1e30
"""A weakness above this means that a joint has no inertia."""


@cache
def weakness(dtype: np.dtype[Any]) -> Elementwise:
    """The step for the weakness of stretches, from C and `sound` of `Growing` and J behind them. At most 1 for
    stretches that need no extension."""

    def step(C: Sym6, sound: Scalar, J: Sym6) -> Scalar:
        # 1 - sound is 0, or at least 1/2.
        return growth(C, J) * (1.0 / WEAK[dtype]) + (1.0 - sound) * (4.0 * _IDLE)

    return Elementwise(step, SCALAR, SYM6, SCALAR, SYM6)


def forward(state: State, out: Array) -> None:
    """Fill accelerations (B, nv)."""
    layout = state.layout
    looks: list[Array] | None = None if layout.device is None or "weak" in layout.known else []
    _fill(state, out, looks)
    if looks and layout.here(reduce(or_, looks)):
        layout.known["weak"] = True
        _fill(state, out, None)


def _fill(state: State, out: Array, looks: list[Array] | None) -> None:
    """Compute accelerations. With a list `looks`, no stretch is extended, and flags on the device that tell whether any
    is weak are appended to the list."""
    order = order_of(state)
    bodies = _Bodies(state, order, looks)
    launches = order.launches(state)
    done = [_gather(bodies, each) for each in reversed(launches)]
    a = state.empty(6, state.n + 1, state.batch)  # the last entry, index -1, is the world's
    stored(state.base_acceleration, a[:, -1:])
    qdd = state.empty(1, state.model.nv_tree, state.batch)
    for paths, (along, maps) in zip(launches, reversed(done), strict=True):
        _accelerate(bodies, paths.level, along, maps, a, qdd)
    state.generalised(order.to_model(qdd), out)


class _Bodies:
    """Quantities of bodies in their frames, in the order of `order`; the last of n + 1 entries is the world's.

    `X` (12, n, B): transforms from parents; `c` (6, n + 1, B): v x S qd; `held` (27, n + 1, B): negative bias force and
    inertia, to which the contributions of light subtrees are added; `gains` (7, nv, B): gains of joints.
    """

    def __init__(self, state: State, order: Order, looks: list[Array] | None) -> None:
        self.state, self.order, self.looks = state, order, looks
        base = AffineMotion(IDENTITY, state.base_velocity or ZERO_MOTION)
        fold = LOADING_PUSHED if state.given("f_ext") else LOADING
        outward = Outward(state, order, AFFINE_MOTIONS, base)
        known = outward.found(MOVING, fold, (order.rates(state, "qd"),))
        self.X, self.c, self.held = outward.X, known[-33:-27], known[-27:]
        self.loads = order.rates(state, "tau"), order.armature
        self.gains = state.empty(7, state.model.nv_tree, state.batch)
        self.handed = Handed(state, order, self.held, CORRECTIONS.size)

    @property
    def members(self) -> Sequence[Array]:
        """The quantities of bodies for inward folds."""
        return self.X, self.c, self.held, self.order.pitch

    def grown(self, along: Stretches) -> Array:
        """The elements of stretches, as `Growing` (91, R, B)."""
        fold, alone = growing(self.state.dtype), self.state.constant(ALONE)
        return fold(along, alone, self.members, self.loads, handed=self.handed)

    def settled(self, along: Stretches, behind: Array, into: Array | None = None) -> Array:
        """A, b, eta and J of stretches (69, R, B) by the articulated-body algorithm, from eta and J behind them.

        `behind` has the same form as the result, with A and b of stretches without bodies.
        """
        gains, handed = self.gains, self.handed
        return SETTLING(along, behind, self.members, self.loads, found_dofs=gains, handed=handed, into=into)


# Inward.


class _Ends:
    """The stretches of a level, which are extended while they are weak.

    `along`: the stretches; `found` (91, R, B): their elements.
    """

    def __init__(self, bodies: _Bodies, along: Stretches) -> None:
        self._bodies, self._nominal = bodies, along
        self.along, self.found = along, bodies.grown(along)

    def weak(self, J: Array) -> Flags | None:
        """Flags of stretches that are weak in some row or have a joint without inertia; None if there are none.

        `J` (21, R, B): the inertia of each stretch by itself, or with all that is behind it.
        """
        look, step = self.along.order.layout.here, weakness(J.dtype)
        weak = step(self.found[_C, :-1], self.found[_SOUND, :-1], J[:, 1:])[0] > self._allowed()
        if self._bodies.looks is not None:
            self._bodies.looks.append(weak.any())
            return None
        if not look(weak.any()):
            return None
        return np.append(look(weak.any(axis=1)), False)

    def _allowed(self) -> Array:
        """The largest allowed weakness of all stretches but the last (R - 1, 1).

        It is larger for stretches that are extended by `_LONGEST` bodies already, and infinite if the path has no more
        bodies.
        """
        along, layout = self.along, self.along.order.layout
        if along is self._nominal:
            return along.goes_on
        left = ~along.ends[:-1] & (along.starts < along.stops)[1:]
        few = (along.starts - self._nominal.starts)[1:] < _LONGEST
        allowed = np.where(left, np.where(few, 1.0, _IDLE), np.inf)
        return layout.moved(allowed[:, None].astype(layout.dtype))

    def lengthen(self, weak: Flags) -> None:
        """Extend weak stretches by one body."""
        before, starts = self.along, self.along.starts.copy()
        starts[1:] += weak[:-1]
        along = before.moved(np.maximum.accumulate(np.minimum(starts, before.stops)))
        changed = np.flatnonzero((along.starts != before.starts) | (along.lengths != before.lengths))
        self.along = along
        put(self.found, along.order.layout.moved(changed), self._bodies.grown(along.chosen(changed)))


def _gather(bodies: _Bodies, paths: Paths) -> tuple[Stretches, Array]:
    """Process the paths of a level inward. Returns their stretches, and A and b (42, R, B), the affine maps from the
    acceleration before each stretch to that of its last body."""
    along, behind = paths.along, bodies.state.constant(SETTLED)
    if along.several:
        along, behind = _look_behind(bodies, along)
    results = bodies.settled(along, behind, bodies.handed.place(paths))
    bodies.handed.take(paths, results)
    return along, results[_A_B]


def _look_behind(bodies: _Bodies, along: Stretches) -> tuple[Stretches, Array]:
    """Extend weak stretches. Returns the stretches, and eta and J behind each (69, R, B) as for `_Bodies.settled`."""
    state, ends = bodies.state, _Ends(bodies, along)
    suffixes = _found_behind(bodies, ends)
    along = ends.along
    open_, following = along.open
    behind = state.empty(CORRECTIONS.size, len(along), state.batch)
    behind[...] = state.constant(SETTLED)
    put(behind[42:], open_, taken(suffixes[_HELD], following))
    # A step of Newton's method, from the difference between the recursion and the scan.
    errors = bodies.settled(along, behind)
    errors[42:] -= suffixes[_HELD]
    change = scanned(CORRECTIONS, along, errors, backwards=True)[42:]
    put(behind[42:], open_, taken(behind[42:], open_) + taken(change, following))
    return along, behind


def _found_behind(bodies: _Bodies, ends: _Ends) -> Array:
    """The suffix scan of the stretches' elements (90, R, B), after extension of weak stretches."""
    op = riccati(bodies.state.dtype)
    while True:
        weak = ends.weak(ends.found[_J])
        if weak is None:
            suffixes = scanned(op, ends.along, ends.found[: op.size], backwards=True)
            weak = ends.weak(suffixes[_J])
            if weak is None:
                return suffixes
        ends.lengthen(weak)


# Outward.


def _accelerate(bodies: _Bodies, level: Level, along: Stretches, maps: Array, a: Array, qdd: Array) -> None:
    """Accelerations of a level's bodies and joints from those of its junctions."""
    state, before = bodies.state, a
    sources: Array | None = level.junctions
    if along.several:
        # The accelerations of junctions are known, so prefixes are constant maps (A = 0).
        start = state.zeros(AFFINE.size, len(level.starts), state.batch)
        start[36:] = taken(a, level.junctions)
        before, sources = entered(AFFINE, along, maps, start)[36:], None
    of_bodies = bodies.X, bodies.c, bodies.order.pitch
    ACCELERATING(along, before, of_bodies, (bodies.gains,), found=a, found_dofs=qdd, sources=sources)
