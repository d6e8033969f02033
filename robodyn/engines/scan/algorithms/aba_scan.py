"""Forward dynamics by scans of Riccati elements on heavy paths: the articulated-body algorithm without its recursion.

Inward, level by level from the outermost: elements of the level's stages (`stages.py`) from what bodies and finished
subtrees hold, a suffix scan along the paths (`riccati.py`), a correction, and what the heads then have goes to their
junctions. Every body knows its articulated inertia now, so that its acceleration is an affine function of its parent's
(RBDA eq. 7.45), and those are scanned outward. Long levels are cut into parts of `PART` bodies, one hanging on another
like a subtree, which bounds memory: on NumPy arrays 2.2 GB for a million bodies.

Which stages are weak (see below) follows from values and decides what is scanned. Indices are NumPy's wherever arrays
are, and follow from the tree alone until a stage is weak. On a device the host waits for one number of each part before
its scan and one after it, for flags of stages where that says that some are weak, and for nothing else.

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
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from robodyn.arguments import Array
from robodyn.cached import cached_property
from robodyn.engines.scan.algorithms.inverse import external_forces, velocities
from robodyn.engines.scan.elements import put, stored, taken
from robodyn.engines.scan.elementwise import Elementwise, operators
from robodyn.engines.scan.semigroups import sums
from robodyn.engines.scan.states import Layout, Rows, State, motion_cross
from robodyn.engines.scan.systems.riccati import (
    AFFINE,
    CORRECTIONS,
    RICCATI,
    ZERO_SYM6,
    Sym6,
    growths,
    riccati,
    symmetric,
)
from robodyn.engines.scan.systems.stages import joint_accelerations, motions, stages
from robodyn.engines.scan.trees.heavy_paths import Level
from robodyn.engines.scan.trees.prefix_scans import Segments
from robodyn.joints import KINDS
from robodyn.records import dataclass
from robodyn.spatial import ZERO_FORCE, Force, Inertia, Motion, articulated
from robodyn.sweeps import INERTIA, MOTION, FieldType
from robodyn.tree import Indices

Flags: TypeAlias = NDArray[np.bool_]

PART = 1 << 16
"""Bodies x batch whose elements are in memory at once."""
DEVICE_PART = 1 << 20
"""Likewise on a device, which shorter parts would not keep busy."""
_PART_SCALARS = 400
"""Of memory, for each body and state of a part. Measured, all else included: 345, 2.8 GB for a million bodies."""
WEAK = {np.dtype(np.float64): 1e6, np.dtype(np.float32): 1e2}
"""How many times more inertia than that of its own bodies the joints of a stage may feel behind them. The correction
squares the error, which is some roundings times this; a lower number only makes more stages into runs, which take
longer."""
LONGEST = 8
"""Bodies that are taken together for that. More than six only help where other bodies hang on them."""
_COMPILED_DOFS = 3
"""Degrees of freedom of the longest runs that a device has kernels for: wrists and universal joints spelled out."""

_C, _J = slice(42, 63), slice(69, 90)
_HELD = slice(63, 90)
"""eta and J in an element."""


def forward(state: State, out: Array) -> None:
    """Accelerations (B, nv)."""
    bodies, parts = _Bodies(state), _parts(state)
    for part in reversed(parts):
        _gather(bodies, part)
    a = state.empty(6, state.n + 1, state.batch)  # the world's comes last, where parent -1 points
    stored(state.base_acceleration, a[:, -1:])
    qdd = state.empty(state.model.nv_tree, state.batch)
    for part in parts:
        _accelerate(bodies, part, a, qdd)
    state.generalised(qdd, out)


class _Bodies:
    """What is known of each body, in its frame: X (12, n, B), c = v x S qd (6, n, B), and `held` (27, n, B), negative
    bias force and inertia, to which those of its finished subtrees are added."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.X = state.transforms
        vJ = state.joint_motion(state.tree_input("qd"))
        XR, v = velocities(state, self.X, vJ)
        self.c = motion_cross(v, vJ)
        self.held = _loads(state.inertia, v)
        if state.given("f_ext"):
            self.held[:6] += external_forces(state, self.X, XR)
        self.tau = state.tree_input("tau")

    def arrays(self, runs: _Runs) -> Iterator[Array]:
        """What `stages` takes for runs of bodies."""
        layout = self.state.layout
        for chosen, dofs in zip(runs.bodies, runs.dofs, strict=True):
            yield from (taken(each, chosen) for each in (self.X, self.c, self.held))
            yield from (self.tau[dofs], layout.armature[dofs], layout.pitch[:, chosen])


def _load(inertia: Inertia, v: Motion) -> tuple[Force, Sym6]:
    """-v x* I v and I."""
    return inertia.velocity_force(v).scaled(-1.0), symmetric(articulated(inertia))


_loads = Elementwise(_load, FieldType((ZERO_FORCE, ZERO_SYM6)), INERTIA, MOTION)

# Indices.


@dataclass(frozen=True)
class _Runs:
    """Runs of bodies whose joints have the kinds `codes`: the places (m,) of their stages, and for each body in turn
    which it is (m,), and its degrees of freedom (nv, m)."""

    codes: tuple[int, ...]
    stages: Rows
    bodies: tuple[Rows, ...]
    dofs: tuple[Array, ...]


def _runs(layout: Layout, bodies: Indices, starts: Indices, lengths: Indices, *, kept: bool) -> tuple[_Runs, ...]:
    """Runs of `bodies` that start at these places and have these lengths, by their kinds."""
    model = layout.model
    kinds = np.full((starts.size, int(lengths.max())), -1, np.int8)
    for k in range(kinds.shape[1]):
        rows = np.flatnonzero(lengths > k)
        kinds[rows, k] = model.joint_kind[bodies[starts[rows] + k]]
    signatures, which = np.unique(kinds, axis=0, return_inverse=True)
    found = []
    for k, signature in enumerate(signatures):
        codes = tuple(signature[signature >= 0].tolist())
        rows = np.flatnonzero(which.ravel() == k)
        chosen = [bodies[starts[rows] + j] for j in range(len(codes))]
        numbers = (np.arange(KINDS[code].nv)[:, None] for code in codes)
        dofs = tuple(layout.where(model.v_start[each] + k, kept=kept) for each, k in zip(chosen, numbers, strict=True))
        runs = tuple(layout.rows(each, kept=kept) for each in chosen)
        found.append(_Runs(codes, layout.rows(rows, kept=kept), runs, dofs))
    return tuple(found)


@dataclass
class _Cut:
    """How the bodies of a part are cut into stages: places of their first bodies, numbers of bodies, and whether a
    stage ends a path, with NumPy's indices; and what follows from that, where arrays are.

    `kept`: whether it serves later calls too.
    """

    layout: Layout
    bodies: Indices
    starts: Indices
    lengths: Indices
    ends: Flags
    kept: bool

    @cached_property
    def heads(self) -> Flags:
        """Whether a stage starts a path."""
        return np.concatenate(([True], self.ends[:-1]))

    @cached_property
    def segments(self) -> Segments:
        """Paths as segments of stages."""
        return Segments(np.diff(np.flatnonzero(self.heads), append=self.starts.size), kept=self.kept)

    @cached_property
    def first(self) -> Rows:
        """Places of first bodies."""
        return self.layout.rows(self.starts, kept=self.kept)

    @cached_property
    def behind(self) -> tuple[Rows, Rows]:
        """Stages that start no path, and the bodies before them."""
        places = np.flatnonzero(~self.heads)
        before = self.bodies[self.starts[places] - 1]
        return self.layout.rows(places, kept=self.kept), self.layout.rows(before, kept=self.kept)

    @cached_property
    def joinable(self) -> tuple[Array, Array]:
        """Of all stages but the last: whether it ends no path, and whether besides it and the next are not more than
        `LONGEST` bodies."""
        goes_on = ~self.ends[:-1]
        few = self.lengths[:-1] + self.lengths[1:] <= LONGEST
        return self.layout.where(goes_on, kept=self.kept), self.layout.where(goes_on & few, kept=self.kept)

    def merged(self, weak: Flags) -> tuple[_Cut, Indices, Indices]:
        """Weak stages together with the next one, where that is not weak itself; which stages are left, and the places
        of the longer ones among these."""
        into = np.flatnonzero(weak & ~np.append(weak[1:], False))
        kept = np.ones(weak.size, np.bool_)
        kept[into + 1] = False
        lengths, ends = self.lengths.copy(), self.ends.copy()
        lengths[into] += lengths[into + 1]
        ends[into] = ends[into + 1]
        left = np.flatnonzero(kept)
        cut = _Cut(self.layout, self.bodies, self.starts[kept], lengths[kept], ends[kept], kept=False)
        return cut, left, np.searchsorted(left, into)


@dataclass(frozen=True)
class _Part:
    """A level of heavy paths, or a piece of one, its indices being where arrays are: cut into stages of one body, which
    are `runs` by joint kind; and the parents of the bodies of each."""

    level: Level
    cut: _Cut
    runs: tuple[_Runs, ...]
    parents: tuple[Rows, ...]


def _parts(state: State) -> tuple[_Part, ...]:
    """The levels of heavy paths, outward, cut where they are long."""
    layout, size = state.layout, PART
    if layout.device is not None and layout.n * state.batch > PART:
        room, size = layout.device.free_bytes() // (_PART_SCALARS * layout.dtype.itemsize), DEVICE_PART
        while size > PART and room < size:
            size //= 2
    width = max(1, size // state.batch)
    width = layout.n if width >= layout.n else 1 << width.bit_length() - 1  # parts are kept: no part for every batch
    known = layout.known.setdefault("aba_scan", {})
    if width not in known:
        pieces = (piece for level in layout.heavy_paths.here for piece in _pieces(level, width, layout.model.parent))
        known[width] = tuple(_part(layout, piece) for piece in pieces)
    found: tuple[_Part, ...] = known[width]
    return found


def _pieces(level: Level, width: int, parent: Indices) -> Iterator[Level]:
    """A level in pieces of n bodies: the rest of a path hangs on the last body of what comes before it."""
    if level.bodies.size <= width:
        yield level
        return
    for first in range(0, level.bodies.size, width):
        bodies = level.bodies[first : first + width]
        starts = level.starts[(level.starts > first) & (level.starts < first + width)] - first
        starts = np.concatenate(([0], starts))
        lengths = np.diff(starts, append=bodies.size)
        yield Level(bodies, starts, parent[bodies[starts]], Segments(lengths))


def _part(layout: Layout, level: Level) -> _Part:
    m = level.bodies.size
    starts, lengths, ends = np.arange(m), np.ones(m, np.intp), np.zeros(m, np.bool_)
    ends[level.ends] = True
    runs = _runs(layout, level.bodies, starts, lengths, kept=True)
    kinds = layout.model.joint_kind[level.bodies]
    parents = [layout.model.parent[level.bodies[kinds == each.codes[0]]] for each in runs]
    there = level if layout.device is None else level.placed(layout.placed)
    cut = _Cut(layout, level.bodies, starts, lengths, ends, kept=True)
    cut.__dict__["segments"] = level.segments
    return _Part(there, cut, runs, tuple(layout.rows(each, kept=True) for each in parents))


# Inward.


@dataclass
class _Stages:
    """Stages of a part: elements (90, stages, B), and which have an R that is singular in some row."""

    cut: _Cut
    elements: Array
    singular: Array

    def weak(self, J: Array) -> Flags | None:
        """Stages that what is behind them drowns in some row, or None where there is none; J (21, stages, B) is that of
        the next stage, or of all that are behind. Singular ones take in as many bodies as they must, others not more
        than `LONGEST`."""
        if self.cut.ends.all():
            return None
        look = self.cut.layout.here
        open_, joinable = self.cut.joinable
        drowned = (growths(self.elements[_C, :-1], J[:, 1:])[0] > WEAK[J.dtype]).any(axis=1)
        weak = (drowned & joinable) | (self.singular[:-1] & open_)
        return np.append(look(weak), False) if look(weak.any()) else None


def _elements(bodies: _Bodies, runs: Sequence[_Runs], count: int) -> tuple[Array, Array]:
    """Elements (90, count, B) of n stages, and which are singular."""
    state = bodies.state
    found = state.empty(RICCATI.size, count, state.batch)
    singular = state.xp.zeros(count, np.bool_)
    for each in runs:
        with operators("library") if _rare(each.codes, state.layout) else nullcontext():
            made = stages(each.codes)(*bodies.arrays(each))
        put(found, each.stages, made[: RICCATI.size])
        dofs = (len(made) - RICCATI.size) // 2
        pivots, diagonal = made[RICCATI.size : RICCATI.size + dofs], made[RICCATI.size + dofs :]
        singular[each.stages] = (8.0 * diagonal + pivots <= 8.0 * diagonal).any(axis=(0, 2))
    return found, singular


def _rare(codes: tuple[int, ...], layout: Layout) -> bool:
    """Whether runs of these kinds are not worth code of their own: they come in many kinds, and each would have to be
    compiled. Operation by operation a device takes longer for a run than for all else, so that it has code for short
    ones."""
    most = 0 if layout.device is None else _COMPILED_DOFS
    return len(codes) > 1 and sum(KINDS[code].nv for code in codes) > most


def _settled(bodies: _Bodies, part: _Part) -> tuple[_Stages, Array]:
    """Stages none of which is weak, and their scan (90, stages, B)."""
    layout = bodies.state.layout
    op, options = riccati(bodies.state.dtype), layout.options
    now = _Stages(part.cut, *_elements(bodies, part.runs, part.cut.starts.size))
    while True:
        weak = now.weak(now.elements[_J])
        if weak is None:
            found = now.cut.segments.scan(op, now.elements, options.path_kernel, block=options.block, backwards=True)
            weak = now.weak(found[_J])
            if weak is None:
                return now, found
        now = _merged(bodies, now, weak)


def _merged(bodies: _Bodies, now: _Stages, weak: Flags) -> _Stages:
    """Weak stages together with the next ones."""
    layout = now.cut.layout
    cut, left, places = now.cut.merged(weak)
    kept, longer = layout.moved(left), layout.moved(places)
    elements, singular = now.elements[:, kept], now.singular[kept]
    runs = _runs(layout, cut.bodies, cut.starts[places], cut.lengths[places], kept=False)
    elements[:, longer], singular[longer] = _elements(bodies, runs, places.size)
    return _Stages(cut, elements, singular)


def _gather(bodies: _Bodies, part: _Part) -> None:
    """Add to what bodies of a part hold that of their subtrees, and hand what heads have to the junctions."""
    seen = _seen(bodies, part)
    _correct(bodies, part, seen)
    bodies.state.layout.heavy_paths.join(sums(27), bodies.held, part.level, seen[:, part.level.starts])


def _seen(bodies: _Bodies, part: _Part) -> Array:
    """What each body's parent sees of the path from that body on, eta and J (27, m, B), which is added to what parents
    hold."""
    now, found = _settled(bodies, part)
    layout, cut = bodies.state.layout, now.cut
    seen = bodies.state.empty(27, part.cut.starts.size, bodies.state.batch)
    seen[:, cut.first] = found[_HELD]
    behind, before = cut.behind
    bodies.held[:, before] += found[_HELD, behind]
    for k in range(1, int(cut.lengths.max())):
        longer = np.flatnonzero(cut.lengths > k)
        places = cut.starts[longer] + cut.lengths[longer] - k
        runs = _runs(layout, cut.bodies, places, np.ones(places.size, np.intp), kept=False)
        inner, _ = _elements(bodies, runs, places.size)
        seen[:, layout.moved(places)] = inner[_HELD]
        bodies.held[:, layout.moved(cut.bodies[places - 1])] += inner[_HELD]
    return seen


def _correct(bodies: _Bodies, part: _Part, seen: Array) -> None:
    """A step of Newton's method on what bodies hold and their parents see, from how far the recursion is off."""
    state, options = bodies.state, bodies.state.layout.options
    made, _ = _elements(bodies, part.runs, part.cut.starts.size)
    elements = state.empty(CORRECTIONS.size, *made.shape[1:])
    elements[:42], elements[42:] = made[:42], made[_HELD] - seen
    scanned = part.cut.segments.scan(CORRECTIONS, elements, options.path_kernel, block=options.block, backwards=True)
    change = scanned[42:]
    seen += change
    behind, before = part.cut.behind
    bodies.held[:, before] += change[:, behind]


# Outward.


def _accelerate(bodies: _Bodies, part: _Part, a: Array, qdd: Array) -> None:
    """Accelerations of a part's bodies and joints from those of its junctions."""
    state, level, options = bodies.state, part.level, bodies.state.layout.options
    elements = state.empty(AFFINE.size, part.cut.starts.size, state.batch)
    joints = []
    for each in part.runs:
        found = motions(each.codes[0])(*bodies.arrays(each))
        put(elements, each.stages, found[: AFFINE.size])
        joints.append(found[AFFINE.size :].copy())
    # What heads move with is known: their elements are constants, and so are all prefixes.
    start = state.zeros(AFFINE.size, part.level.starts.size, state.batch)
    start[36:] = taken(a, level.junctions)
    put(elements, level.starts, AFFINE.compose(start, taken(elements, level.starts)))
    scanned = part.cut.segments.scan(AFFINE, elements, options.path_kernel, block=options.block)
    put(a, level.bodies, scanned[36:])
    for each, parents, known in zip(part.runs, part.parents, joints, strict=True):
        qdd[each.dofs[0]] = joint_accelerations(each.codes[0])(known, taken(a, parents))
