"""Forward dynamics by scans of Riccati elements on heavy paths: the articulated-body algorithm without its recursion.

Inward, level by level from the outermost: elements of the level's stages (`stages.py`) from what bodies and finished
subtrees hold, a suffix scan along the paths (`riccati.py`), a correction, and what the heads then have goes to their
junctions. Every body knows its articulated inertia now, so that its acceleration is an affine function of its parent's
(RBDA eq. 7.45), and those are scanned outward. Long levels are cut into parts of `PART` bodies, one hanging on another
like a subtree, which bounds memory: 2.2 GB for a million bodies.

Two things keep digits. A stage that is light beside what lies behind it has a mobility that drowns what is composed
with it: it takes in the next stage, and both joints are eliminated together. And after the scan a step of Newton's
method, a linear scan, takes out what composing has cost. Residuals |ID(qdd) - tau| / max |tau| of a chain of 61 random
links, one to three of every three to five having so much of their inertia (the articulated-body recursion: 2e-15):

| share | float64 | no runs | no correction | neither | float32 | no runs | no correction |
|---|---|---|---|---|---|---|---|
| 1 | 2e-15 | 2e-15 | 2e-14 | 2e-14 | 2e-6 | 2e-6 | 7e-6 |
| 1e-4 | 2e-15 | 6e-15 | 8e-12 | 8e-12 | 2e-6 | 2e-5 | 7e-6 |
| 1e-6 | 3e-15 | 4e-15 | 3e-14 | 3e-10 | 3e-6 | NaN | 5e-6 |
| 1e-9 | 3e-15 | 2e-12 | 4e-14 | 4e-7 | 3e-6 | NaN | 2e-4 |
| 1e-12 | 2e-15 | 3e-6 | 8e-15 | 9e-4 | 2e-6 | NaN | 2e-4 |
| 0 | 2e-15 | 2e-15 | 9e-11 | 9e-11 | 2e-6 | 9e-3 | 2e-4 |

What neither helps: inertias that grow outward along a path by 15 and more orders of magnitude from end to end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from robodyn.arguments import Array
from robodyn.engines.scan.elements import stored
from robodyn.engines.scan.elementwise import Elementwise, operators
from robodyn.engines.scan.heavy_paths import Level
from robodyn.engines.scan.inverse import external_forces, velocities
from robodyn.engines.scan.kernels import Segments
from robodyn.engines.scan.riccati import AFFINE, CORRECTIONS, RICCATI, ZERO_SYM6, Sym6, growths, riccati, symmetric
from robodyn.engines.scan.semigroups import sums
from robodyn.engines.scan.stages import motions, stages
from robodyn.engines.scan.states import State, motion_cross
from robodyn.joints import KINDS
from robodyn.spatial import ZERO_FORCE, Force, Inertia, Motion, articulated, dot
from robodyn.sweeps import INERTIA, MOTION, FieldType
from robodyn.tree import Indices

Flags: TypeAlias = NDArray[np.bool_]

PART = 1 << 16
"""Bodies x batch whose elements are in memory at once."""
WEAK = {np.dtype(np.float64): 1e6, np.dtype(np.float32): 1e2}
"""How many times more inertia than that of its own bodies the joints of a stage may feel behind them. The correction
squares the error, which is some roundings times this; a lower number only makes more stages into runs, which take
longer."""
LONGEST = 8
"""Bodies that are taken together for that. More than six only help where other bodies hang on them."""

_C, _J = slice(42, 63), slice(69, 90)
_HELD = slice(63, 90)
"""eta and J in an element."""


def forward(state: State, out: Array) -> None:
    """Accelerations (B, nv)."""
    bodies, parts = _Bodies(state), list(_parts(state))
    for part in reversed(parts):
        _gather(bodies, part)
    a = np.empty((6, state.n + 1, state.batch), state.dtype)  # the world's comes last, where parent -1 points
    stored(state.base_acceleration, a[:, -1:])
    qdd = np.empty((state.model.nv_tree, state.batch), state.dtype)
    for part in parts:
        _accelerate(bodies, part, a, qdd)
    state.generalised(qdd, out)


class _Bodies:
    """What is known of each body, in its frame: X (12, n, B), c = v x S qd (6, n, B), and `held` (27, n, B), negative
    bias force and inertia, to which those of its finished subtrees are added."""

    def __init__(self, state: State) -> None:
        self.state, self.model = state, state.model
        self.X = state.transforms
        vJ = state.joint_motion(state.tree_input("qd"))
        XR, v = velocities(state, self.X, vJ)
        self.c = motion_cross(v, vJ)
        self.held = _loads(state.inertia, v)
        if state.given("f_ext"):
            self.held[:6] += external_forces(state, self.X, XR)
        self.tau = state.tree_input("tau")

    def arrays(self, codes: Sequence[int], runs: Indices) -> Iterator[Array]:
        """What `stages` takes for runs of bodies (length, m) whose joints have the kinds `codes`."""
        for code, chosen in zip(codes, runs, strict=True):
            rows = self.model.v_start[chosen] + np.arange(KINDS[code].nv)[:, None]
            yield from (each[:, chosen] for each in (self.X, self.c, self.held))
            yield from (self.tau[rows], self.state.layout.armature[rows])
            yield self.model.pitch[chosen].astype(self.state.dtype)[None, :, None]


def _load(inertia: Inertia, v: Motion) -> tuple[Force, Sym6]:
    """-v x* I v and I."""
    return v.cross_force(inertia.times(v)).scaled(-1.0), symmetric(articulated(inertia))


_loads = Elementwise(_load, FieldType((ZERO_FORCE, ZERO_SYM6)), INERTIA, MOTION)


def _parts(state: State) -> Iterator[Level]:
    """The levels of heavy paths, outward, cut where they are long: the rest of a path hangs on the last body of what
    comes before it."""
    width = max(1, PART // max(1, state.batch))
    parent = state.model.parent
    for level in state.layout.heavy_paths.levels:
        if level.bodies.size <= width:
            yield level
            continue
        for first in range(0, level.bodies.size, width):
            bodies = level.bodies[first : first + width]
            starts = level.starts[(level.starts > first) & (level.starts < first + width)] - first
            starts = np.concatenate(([0], starts))
            lengths = np.diff(starts, append=bodies.size)
            yield Level(bodies, starts, parent[bodies[starts]], Segments(lengths))


@dataclass
class _Stages:
    """The stages of a part: places of their first bodies in it, numbers of bodies, whether a stage ends a path, whether
    its R is singular in some row, and elements (90, stages, B)."""

    starts: Indices
    lengths: Indices
    ends: Flags
    singular: Flags
    elements: Array

    @property
    def heads(self) -> Flags:
        """Whether a stage starts a path."""
        return np.concatenate(([True], self.ends[:-1]))

    def weak(self, J: Array) -> Flags:
        """Stages that what is behind them drowns in some row; J (21, stages, B) is that of the next stage, or of all
        that are behind. Singular ones take in as many bodies as they must, others not more than `LONGEST`."""
        drowned = (growths(self.elements[_C, :-1], J[:, 1:])[0] > WEAK[J.dtype]).any(axis=1)
        drowned &= self.lengths[:-1] + self.lengths[1:] <= LONGEST
        return np.append(drowned | self.singular[:-1], False) & ~self.ends


def _elements(bodies: _Bodies, part: Level, starts: Indices, lengths: Indices) -> tuple[Array, Flags]:
    """Elements (90, stages, B) of stages, and which are singular."""
    found = np.empty((RICCATI.size, starts.size, bodies.state.batch), bodies.state.dtype)
    singular = np.empty(starts.size, np.bool_)
    kinds = np.full((starts.size, int(lengths.max())), -1, np.int8)
    for k in range(kinds.shape[1]):
        rows = np.flatnonzero(lengths > k)
        kinds[rows, k] = bodies.model.joint_kind[part.bodies[starts[rows] + k]]
    signatures, which = np.unique(kinds, axis=0, return_inverse=True)
    for k, signature in enumerate(signatures):
        codes = tuple(signature[signature >= 0].tolist())
        rows = np.flatnonzero(which.ravel() == k)
        runs = part.bodies[starts[rows] + np.arange(len(codes))[:, None]]
        # Runs come in many kinds, and each would have to be compiled.
        with operators("library") if len(codes) > 1 else nullcontext():
            made = stages(codes)(*bodies.arrays(codes, runs))
        found[:, rows] = made[: RICCATI.size]
        pivots, diagonal = np.split(made[RICCATI.size :], 2)
        singular[rows] = (8.0 * diagonal + pivots <= 8.0 * diagonal).any(axis=(0, 2))
    return found, singular


def _settled(bodies: _Bodies, part: Level) -> tuple[_Stages, Array]:
    """Stages none of which is weak, and their scan (90, stages, B)."""
    op, options = riccati(bodies.state.dtype), bodies.state.layout.options
    m = part.bodies.size
    starts, lengths, ends = np.arange(m), np.ones(m, np.intp), np.zeros(m, np.bool_)
    ends[part.ends] = True
    elements, singular = _elements(bodies, part, starts, lengths)
    now = _Stages(starts, lengths, ends, singular, elements)
    while True:
        weak = now.weak(now.elements[_J])
        if not weak.any():
            segments = Segments(np.diff(np.flatnonzero(now.heads), append=now.starts.size))
            found = segments.scan(op, now.elements, options.path_kernel, block=options.block, backwards=True)
            weak = now.weak(found[_J])
            if not weak.any():
                return now, found
        now = _merged(bodies, part, now, weak)


def _merged(bodies: _Bodies, part: Level, now: _Stages, weak: Flags) -> _Stages:
    """Weak stages together with the next one, where that is not weak itself."""
    into = np.flatnonzero(weak & ~np.append(weak[1:], False))
    kept = np.ones(weak.size, np.bool_)
    kept[into + 1] = False
    lengths, ends = now.lengths.copy(), now.ends.copy()
    lengths[into] += lengths[into + 1]
    ends[into] = ends[into + 1]
    now.elements[:, into], now.singular[into] = _elements(bodies, part, now.starts[into], lengths[into])
    return _Stages(now.starts[kept], lengths[kept], ends[kept], now.singular[kept], now.elements[:, kept])


def _gather(bodies: _Bodies, part: Level) -> None:
    """Add to what bodies of a part hold that of their subtrees, and hand what heads have to the junctions."""
    now, found = _settled(bodies, part)
    # What each body's parent sees of the path from that body on: eta and J.
    seen = np.empty((27, part.bodies.size, bodies.state.batch), bodies.state.dtype)
    seen[:, now.starts] = found[_HELD]
    behind = np.flatnonzero(~now.heads)
    bodies.held[:, part.bodies[now.starts[behind] - 1]] += found[_HELD, behind]
    for k in range(1, int(now.lengths.max())):
        runs = np.flatnonzero(now.lengths > k)
        places = now.starts[runs] + now.lengths[runs] - k
        inner, _ = _elements(bodies, part, places, np.ones(places.size, np.intp))
        seen[:, places] = inner[_HELD]
        bodies.held[:, part.bodies[places - 1]] += inner[_HELD]
    _correct(bodies, part, seen)
    bodies.state.layout.heavy_paths.join(sums(27), bodies.held, part, seen[:, part.starts])


def _correct(bodies: _Bodies, part: Level, seen: Array) -> None:
    """A step of Newton's method on what bodies hold and their parents see, from how far the recursion is off."""
    options, m = bodies.state.layout.options, part.bodies.size
    made, _ = _elements(bodies, part, np.arange(m), np.ones(m, np.intp))
    elements = np.concatenate((made[:42], made[_HELD] - seen))
    change = part.segments.scan(CORRECTIONS, elements, options.path_kernel, block=options.block, backwards=True)[42:]
    seen += change
    behind = np.ones(m, np.bool_)
    behind[part.starts] = False
    bodies.held[:, part.bodies[np.flatnonzero(behind) - 1]] += change[:, behind]


def _accelerate(bodies: _Bodies, part: Level, a: Array, qdd: Array) -> None:
    """Accelerations of a part's bodies and joints from those of its junctions."""
    state, model, options = bodies.state, bodies.model, bodies.state.layout.options
    elements = np.empty((AFFINE.size, part.bodies.size, state.batch), state.dtype)
    kinds = model.joint_kind[part.bodies]
    joints = []
    for code in np.unique(kinds).tolist():
        places = np.flatnonzero(kinds == code)
        chosen = part.bodies[places]
        found = motions(code)(*bodies.arrays((code,), chosen[None]))
        elements[:, places] = found[: AFFINE.size]
        joints.append((chosen, KINDS[code].nv, found[AFFINE.size :]))
    # What heads move with is known: their elements are constants, and so are all prefixes.
    start = np.zeros((AFFINE.size, part.starts.size, state.batch), state.dtype)
    start[36:] = a[:, part.junctions]
    elements[:, part.starts] = AFFINE.compose(start, elements[:, part.starts])
    a[:, part.bodies] = part.segments.scan(AFFINE, elements, options.path_kernel, block=options.block)[36:]
    for chosen, nv, known in joints:
        G, g, before = known[: 6 * nv], known[6 * nv :], a[:, model.parent[chosen]]
        for k in range(nv):
            qdd[model.v_start[chosen] + k] = -(dot(tuple(G[6 * k : 6 * k + 6]), tuple(before)) + g[k])
