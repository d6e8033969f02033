"""Forward dynamics by scans of Riccati elements on heavy paths: the articulated-body algorithm without its recursion.

Paths are cut into stretches of some bodies. Level by level from the outermost inward, a thread goes along each stretch
and finds what it is to those around it (`stretches.py`); a suffix scan along the paths (`riccati.py`) tells what is
behind each; and the articulated-body algorithm goes along each stretch from there. What the heads of paths then have
goes to their junctions. Every joint's acceleration is an affine function of that of the body before it now (RBDA
eq. 7.45 and 7.46), and so is that of a stretch's last body: a scan outward of stretches, and each goes along its bodies
once more. A path of one stretch needs no scan: that is the recursion itself, and all paths of a level do it side by
side.

Two things keep digits. A stretch whose last body is light beside what lies behind it has a mobility that drowns what is
composed with it: it takes in the first body of the next one. That follows from values. On a device the host waits for
one number, once all is computed, where a path has several stretches. Should that say that some are weak, all is
computed again, and for this model from then on the host waits for a number of each such level before its scan and after
it, and for flags. And a step of Newton's method, a linear scan, takes out what composing has cost. Residuals
|ID(qdd) - tau| / max |tau| of a chain of 61 random links in stretches of `SHORTEST` bodies, one to three of every
three to five having so much of their inertia (the articulated-body recursion: 2e-15):

| share | float64 | not lengthened | no correction | neither | float32 | not lengthened | no correction |
|---|---|---|---|---|---|---|---|
| 1 | 1e-15 | 1e-15 | 2e-15 | 2e-15 | 1e-6 | 1e-6 | 1e-6 |
| 1e-4 | 2e-15 | 2e-15 | 1e-14 | 1e-14 | 2e-6 | 1e-6 | 1e-6 |
| 1e-6 | 2e-15 | 2e-15 | 3e-15 | 6e-13 | 2e-6 | 1e-6 | 2e-6 |
| 1e-9 | 2e-15 | 3e-15 | 3e-15 | 1e-9 | 1e-6 | NaN | 2e-6 |
| 1e-12 | 3e-15 | 3e-15 | 3e-15 | 1e-6 | 1e-6 | NaN | 2e-6 |
| 0 | 4e-15 | 8e-11 | 3e-15 | 8e-6 | 1e-6 | 1e-6 | 2e-6 |

What neither helps: inertias that grow outward along a path by 15 and more orders of magnitude from end to end.
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
"""How many times more inertia than that of its own bodies the end of a stretch may feel behind it. The correction
squares the error, which is some roundings times this."""
_LONGEST = 8
"""Bodies that a stretch takes in for that. More than six only help where other bodies hang on them. Where a joint
feels no inertia at all, a stretch takes in as many as it must."""

_A_B, _C, _HELD, _J, _SOUND = slice(42), slice(42, 63), slice(63, 90), slice(69, 90), slice(90, 91)
"""Of a growing stretch; eta and J are what bodies hold."""


_IDLE = 1e30
"""What is weaker than that has a joint that feels no inertia."""


@cache
def weakness(dtype: np.dtype[Any]) -> Elementwise:
    """Of stretches that have C and `sound`, J being behind them: at most 1 where they need not be longer."""

    def step(C: Sym6, sound: Scalar, J: Sym6) -> Scalar:
        # 1 - sound is 0, or else at least 1/2.
        return growth(C, J) * (1.0 / WEAK[dtype]) + (1.0 - sound) * (4.0 * _IDLE)

    return Elementwise(step, SCALAR, SYM6, SCALAR, SYM6)


def forward(state: State, out: Array) -> None:
    """Accelerations (B, nv)."""
    layout = state.layout
    looks: list[Array] | None = None if layout.device is None or "weak" in layout.known else []
    _fill(state, out, looks)
    if looks and layout.here(reduce(or_, looks)):
        layout.known["weak"] = True
        _fill(state, out, None)


def _fill(state: State, out: Array, looks: list[Array] | None) -> None:
    """With `looks` no stretch is lengthened, and whether one ought to be is found there."""
    order = order_of(state)
    bodies = _Bodies(state, order, looks)
    launches = order.launches(state)
    done = [_gather(bodies, each) for each in reversed(launches)]
    a = state.empty(6, state.n + 1, state.batch)  # the world's comes last, where parent -1 points
    stored(state.base_acceleration, a[:, -1:])
    qdd = state.empty(1, state.model.nv_tree, state.batch)
    for paths, (along, maps) in zip(launches, reversed(done), strict=True):
        _accelerate(bodies, paths.level, along, maps, a, qdd)
    state.generalised(order.to_model(qdd), out)


class _Bodies:
    """What is known of each body, in its frame and at its place in an order: X (12, n, B), c = v x S qd (6, n + 1, B),
    and `held` (27, n + 1, B), negative bias force and inertia, to which those of its finished subtrees are added, the
    last entry being the world's; and `gains` (7, nv, B) of joints that are done."""

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
        """What folds inward take of bodies."""
        return self.X, self.c, self.held, self.order.pitch

    def grown(self, along: Stretches) -> Array:
        """Stretches by themselves (91, R, B)."""
        fold, alone = growing(self.state.dtype), self.state.constant(ALONE)
        return fold(along, alone, self.members, self.loads, handed=self.handed)

    def settled(self, along: Stretches, behind: Array, into: Array | None = None) -> Array:
        """A and b of stretches, and what those before them see of them (69, R, B), by the articulated-body algorithm
        from what is behind them, which looks alike."""
        gains, handed = self.gains, self.handed
        return SETTLING(along, behind, self.members, self.loads, found_dofs=gains, handed=handed, into=into)


# Inward.


class _Ends:
    """A level's stretches while it is decided where they end.

    `along`, and `found` (91, R, B): what they are by themselves.
    """

    def __init__(self, bodies: _Bodies, along: Stretches) -> None:
        self._bodies, self._nominal = bodies, along
        self.along, self.found = along, bodies.grown(along)

    def weak(self, J: Array) -> Flags | None:
        """Stretches that what is behind them drowns in some row, or a joint of which feels no inertia, or None where
        there is none; J (21, R, B) is that of the next stretch, or of all that are behind."""
        look, step = self.along.order.layout.here, weakness(J.dtype)
        weak = step(self.found[_C, :-1], self.found[_SOUND, :-1], J[:, 1:])[0] > self._allowed()
        if self._bodies.looks is not None:
            self._bodies.looks.append(weak.any())
            return None
        if not look(weak.any()):
            return None
        return np.append(look(weak.any(axis=1)), False)

    def _allowed(self) -> Array:
        """How weak all stretches but the last may be (R - 1, 1): those that took in `_LONGEST` bodies may be drowned,
        and none is too weak where there are no more on the path."""
        along, layout = self.along, self.along.order.layout
        if along is self._nominal:
            return along.goes_on
        left = ~along.ends[:-1] & (along.starts < along.stops)[1:]
        few = (along.starts - self._nominal.starts)[1:] < _LONGEST
        allowed = np.where(left, np.where(few, 1.0, _IDLE), np.inf)
        return layout.moved(allowed[:, None].astype(layout.dtype))

    def lengthen(self, weak: Flags) -> None:
        """Let weak stretches have one more body."""
        before, starts = self.along, self.along.starts.copy()
        starts[1:] += weak[:-1]
        along = before.moved(np.maximum.accumulate(np.minimum(starts, before.stops)))
        changed = np.flatnonzero((along.starts != before.starts) | (along.lengths != before.lengths))
        self.along = along
        put(self.found, along.order.layout.moved(changed), self._bodies.grown(along.chosen(changed)))


def _gather(bodies: _Bodies, paths: Paths) -> tuple[Stretches, Array]:
    """Go along a level's paths inward: their stretches, and how last bodies of these move with what is before their
    first ones, A and b (42, R, B)."""
    along, behind = paths.along, bodies.state.constant(SETTLED)
    if along.several:
        along, behind = _look_behind(bodies, along)
    found = bodies.settled(along, behind, bodies.handed.place(paths))
    bodies.handed.take(paths, found)
    return along, found[_A_B]


def _look_behind(bodies: _Bodies, along: Stretches) -> tuple[Stretches, Array]:
    """Where stretches end, and what is behind them (69, R, B)."""
    state, ends = bodies.state, _Ends(bodies, along)
    found = _found_behind(bodies, ends)
    along = ends.along
    open_, following = along.open
    behind = state.empty(CORRECTIONS.size, len(along), state.batch)
    behind[...] = state.constant(SETTLED)
    put(behind[42:], open_, taken(found[_HELD], following))
    # A step of Newton's method, from how far the recursion is off.
    errors = bodies.settled(along, behind)
    errors[42:] -= found[_HELD]
    change = scanned(CORRECTIONS, along, errors, backwards=True)[42:]
    put(behind[42:], open_, taken(behind[42:], open_) + taken(change, following))
    return along, behind


def _found_behind(bodies: _Bodies, ends: _Ends) -> Array:
    """Stretches with all that is behind them (90, R, B), none being weak."""
    op = riccati(bodies.state.dtype)
    while True:
        weak = ends.weak(ends.found[_J])
        if weak is None:
            found = scanned(op, ends.along, ends.found[: op.size], backwards=True)
            weak = ends.weak(found[_J])
            if weak is None:
                return found
        ends.lengthen(weak)


# Outward.


def _accelerate(bodies: _Bodies, level: Level, along: Stretches, maps: Array, a: Array, qdd: Array) -> None:
    """Accelerations of a level's bodies and joints from those of its junctions."""
    state, before = bodies.state, a
    sources: Array | None = level.junctions
    if along.several:
        # What heads move with is known: their maps are constants, and so are all prefixes.
        start = state.zeros(AFFINE.size, len(level.starts), state.batch)
        start[36:] = taken(a, level.junctions)
        before, sources = entered(AFFINE, along, maps, start)[36:], None
    of_bodies = bodies.X, bodies.c, bodies.order.pitch
    ACCELERATING(along, before, of_bodies, (bodies.gains,), found=a, found_dofs=qdd, sources=sources)
