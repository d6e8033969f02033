"""The order of bodies in the arrays of folds (`folds.py`), and stretches: runs of consecutive bodies of a path.

Bodies that a fold processes at the same time are adjacent in arrays. Paths are cut into stretches of about the same
length. If the batch is large enough to keep a device busy, stretches are longer.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import numpy as np

from robodyn.core.joints import KINDS
from robodyn.core.tree import Indices
from robodyn.engines.scan.elements import put, taken
from robodyn.engines.scan.elementwise import kernels_for
from robodyn.engines.scan.states import Joints, Layout, Rows, State
from robodyn.engines.scan.trees.heavy_paths import Level
from robodyn.engines.scan.trees.prefix_scans import Segments
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass

SHORTEST = 16
"""The least length of stretches, in bodies, for paths with several of them."""
DEVICE_STRETCH = 32
"""The length of stretches on a device, in bodies, for batches that do not keep it busy by themselves. For NumPy arrays
the length is `ScanOptions.block`."""
THREADS = 1 << 16
"""Stretches become longer if stretches x batch exceeds this number of threads. A device runs fewer at a time."""

MOST_HANGING = 32
"""The most paths on one body whose contributions a thread adds one by one."""
TOGETHER = 256
"""Levels with at most this number of paths x batch share a launch with neighbouring levels. One block of threads then
processes level after level, because the launch of a kernel takes longer than a step of few paths."""

Round: TypeAlias = tuple[tuple[int, Rows, Rows, Array], ...]
"""A step of all stretches at once. For each joint kind: its code, the stretches, their bodies, and those bodies'
degrees of freedom (nv, m)."""


def order_of(state: State) -> Order:
    """The order of a call's arrays, cached for later calls."""
    layout = state.layout
    length = max(SHORTEST, layout.options.block)
    if layout.device is not None:
        length = DEVICE_STRETCH
        while layout.n * state.batch > THREADS * length and length < layout.n:
            length *= 2
    known: dict[int, Order] = layout.known.setdefault("order", {})
    if length not in known:
        known[length] = Order(layout, length)
    return known[length]


class Order:
    """The bodies of a layout in the order in which folds process them, and their degrees of freedom likewise.

    The order goes through the levels of heavy paths. In each level come the first bodies of all stretches, then the
    second ones, and so on. A body is identified by its index ("place") in this order. Index -1, the last entry of
    arrays, is the world.

    Args:
        layout: the tree and its constants.
        length: approximate length of stretches, in bodies. Stretches of a path differ in length by one body at most.
    """

    def __init__(self, layout: Layout, length: int) -> None:
        self.layout, model = layout, layout.model
        cuts, bodies = [], []
        for level in layout.heavy_paths.here:
            starts, ends = _cut(level.segments, length)
            lengths = np.diff(starts, append=level.bodies.size)
            within = np.arange(level.bodies.size) - np.repeat(starts, lengths)
            met = np.argsort(within, kind="stable")
            cuts.append((level, starts, ends))
            bodies.append(level.bodies[met])
        self.bodies: Indices = np.concatenate([*bodies, np.zeros(0, np.intp)])
        place = np.full(layout.n + 1, -1)
        place[self.bodies] = np.arange(layout.n)
        self.kinds = model.joint_kind[self.bodies]
        counts = np.diff(model.v_start, append=model.nv_tree)[self.bodies]
        self.first_dofs: Indices = np.cumsum(counts) - counts
        self._dofs = np.repeat(model.v_start[self.bodies] - self.first_dofs, counts) + np.arange(model.nv_tree)
        self._place = place
        self._hanging: list[tuple[Indices, Indices]] = []
        self.paths = 0
        self._here: list[Level] = []
        self._launches: dict[tuple[tuple[bool, ...], bool], tuple[Paths, ...]] = {}
        self.levels = tuple(self._level(*each) for each in cuts)

    def _level(self, level: Level, starts: Indices, ends: Array) -> Paths:
        place, first = self._place, self.paths
        here = Level(place[level.bodies], level.starts, place[level.junctions], level.segments)
        self._here.append(here)
        there = here if self.layout.device is None else here.placed(self.layout.placed)
        self.paths += level.starts.size
        direct = int(np.bincount(here.junctions + 1).max(initial=0)) <= MOST_HANGING or int(level.junctions[0]) < 0
        if direct:
            hang = np.flatnonzero(here.junctions >= 0)
            self._hanging.append((here.junctions[hang], first + hang))
        return Paths(there, Stretches(self, here.bodies, starts, ends, kept=True), slice(first, self.paths), direct)

    def launches(self, state: State, *, first_apart: bool = False) -> tuple[Paths, ...]:
        """The launches of outward folds, each with the paths of one level or of several.

        Kernels take neighbouring levels together if they have few paths and none of these is cut into stretches.
        `first_apart`: True to keep the first level separate.
        """
        if kernels_for(state.inputs["q"]) is None:
            return self.levels
        few = tuple(
            paths.direct and not paths.along.several and len(paths.along) * state.batch <= TOGETHER
            for paths in self.levels
        )
        key = few, first_apart  # the same for many batch sizes
        if key not in self._launches:
            begins = [k for k in range(len(few)) if not (k and few[k] and few[k - 1]) or (first_apart and k == 1)]
            self._launches[key] = tuple(self._together(a, b) for a, b in pairwise([*begins, len(few)]))
        return self._launches[key]

    def _together(self, begin: int, end: int) -> Paths:
        """Consecutive levels, merged for one launch."""
        parts, here = self.levels[begin:end], self._here[begin:end]
        if len(parts) == 1:
            return parts[0]
        sizes = [level.bodies.size for level in here]
        shift: Indices = np.repeat(np.cumsum(sizes) - sizes, [level.starts.size for level in here])
        starts: Indices = np.concatenate([level.starts for level in here]) + shift
        bodies, junctions = (
            np.concatenate([getattr(level, name) for level in here]) for name in ("bodies", "junctions")
        )
        level = Level(bodies, starts, junctions, Segments(np.diff(starts, append=bodies.size)))
        along = Stretches(self, bodies, starts, np.ones(starts.size, bool), kept=True)
        along.turns = np.cumsum([0, *(level.starts.size for level in here)])
        return Paths(level.placed(self.layout.placed), along, slice(parts[0].which.start, parts[-1].which.stop), True)

    @cached_property
    def _body_rows(self) -> Rows:
        return self.layout.rows(self.bodies)

    @cached_property
    def _dof_rows(self) -> Rows:
        return self.layout.rows(self._dofs)

    @cached_property
    def dof_places(self) -> Rows:
        """(nv,) index in this order of each degree of freedom of the model."""
        place = np.empty_like(self._dofs)
        place[self._dofs] = np.arange(place.size)
        return self.layout.rows(place)

    @cached_property
    def dof_bodies(self) -> Rows:
        """(nv,) index in this order of the body of each degree of freedom of the model."""
        model = self.layout.model
        counts = np.diff(model.v_start, append=model.nv_tree)
        return self.layout.rows(np.repeat(self._place[:-1], counts))

    def of_bodies(self, array: Array) -> Array:
        """An array (size, n, ...) of bodies, from the model's order to this one. No copy if the orders are the same."""
        return taken(array, self._body_rows)

    def of_dofs(self, array: Array) -> Array:
        """An array (nv, ...) of degrees of freedom in the model's order, as (1, nv, ...) in this one."""
        return taken(array[None], self._dof_rows)

    def to_model(self, array: Array) -> Array:
        """An array (1, nv, ...) of degrees of freedom in this order, as (nv, ...) in the model's."""
        if isinstance(self._dof_rows, slice):
            in_model = array
        else:
            in_model = self.layout.xp.empty_like(array)
            put(in_model, self._dof_rows, array)
        first: Array = in_model[0]
        return first

    @cached_property
    def pitch(self) -> Array:
        """Pitches of joints (1, n, 1)."""
        return self.of_bodies(self.layout.pitch)

    @cached_property
    def armature(self) -> Array:
        """Armatures (1, nv, 1)."""
        return self.of_dofs(self.layout.armature)

    @cached_property
    def _inertia(self) -> Array:
        return self.of_bodies(self.layout.inertia)

    def inertia(self, state: State) -> Array:
        """Inertias (10, n, 1), or (10, n, B) if they are an input of the call."""
        return self.of_bodies(state.inertia) if state.given("inertia") else self._inertia

    def rates(self, state: State, name: str) -> Array:
        """An input with a number for each degree of freedom (1, nv, B), or zeros (1, nv, 1) if the call has none."""
        if not state.given(name):
            return state.zeros(1, state.model.nv_tree, 1)
        return self.of_dofs(state.tree_input(name))

    @cached_property
    def codes(self) -> tuple[int, ...]:
        """The codes of the model's joint kinds."""
        return tuple(np.unique(self.kinds).tolist())

    @cached_property
    def on_device(self) -> tuple[Array, Array]:
        """Joint kinds and first degrees of freedom of all bodies, as 64-bit integers."""
        placed = self.layout.placed
        return placed(self.kinds.astype(np.int64)), placed(self.first_dofs.astype(np.int64))

    @cached_property
    def hung(self) -> tuple[Array, Array]:
        """The paths that hang on each body, in compressed form: starts (n + 1,) and paths. Without levels in which too
        many paths hang on one body."""
        none = np.zeros(0, np.int64)
        junctions = np.concatenate([none, *(each for each, _ in self._hanging)])
        paths = np.concatenate([none, *(each for _, each in self._hanging)])
        order = np.argsort(junctions, kind="stable")
        first = np.searchsorted(junctions[order], np.arange(self.layout.n + 1))
        return self.layout.placed(first.astype(np.int64)), self.layout.placed(paths[order])

    # Transforms.

    @cached_property
    def _joints(self) -> tuple[tuple[Joints, Array], ...]:
        """The joints of each kind, with their part of Xtree."""
        layout, by_kind = self.layout, []
        for code in self.codes:
            places = np.flatnonzero(self.kinds == code)
            joints = layout.joints_of(code, self.bodies[places], places)
            by_kind.append((joints, taken(layout.Xtree, layout.rows(self.bodies[places]))))
        return tuple(by_kind)

    def transforms(self, state: State) -> Array:
        """X (12, n, B) from the parent's frame to the body's."""
        return state.across(self._joints)

    @cached_property
    def root_of(self) -> Array:
        """(n,) first body of each body's tree."""
        return self.layout.placed(self._place[self.layout.first_bodies[self.bodies]])


def _counts(paths: Segments, length: int) -> Indices:
    """The number of stretches of each path."""
    counts: Indices = np.maximum(1, (paths.lengths + length // 2) // length)
    return counts


def has_several(layout: Layout, length: int) -> bool:
    """Whether any path is cut into several stretches of about this length."""
    return any(int(_counts(level.segments, length).max(initial=1)) > 1 for level in layout.heavy_paths.here)


def _cut(paths: Segments, length: int) -> tuple[Indices, Array]:
    """The first body of each stretch, as an index into the level's bodies, and whether the stretch ends its path."""
    counts = _counts(paths, length)
    of_path = np.repeat(np.arange(counts.size), counts)
    within = np.arange(of_path.size) - (np.cumsum(counts) - counts)[of_path]
    starts = paths.starts[of_path] + within * paths.lengths[of_path] // counts[of_path]
    return starts, within == counts[of_path] - 1


@dataclass(frozen=True)
class Paths:
    """The heavy paths of a level, or of several merged levels.

    `level`: the level, with bodies as indices of an `Order`; `along`: the stretches, as they are cut independently of
    values; `which`: the range of these paths among all paths; `direct`: True if kernels add the paths' contributions to
    a junction body one by one.
    """

    level: Level
    along: Stretches
    which: slice
    direct: bool


class Stretches:
    """The stretches of a level: runs of consecutive bodies of its paths.

    Args:
        order: the order of bodies.
        bodies: (m,) the bodies of all paths, path after path.
        starts: (R,) the index in `bodies` of each stretch's first body, increasing from 0.
        ends: (R,) whether a stretch ends its path.
        kept: True if later calls use the same stretches.

    `turns`: for merged levels, the first stretch of each level, and the number of stretches; None for a single level.
    """

    turns: Indices | None = None

    def __init__(self, order: Order, bodies: Indices, starts: Indices, ends: Array, *, kept: bool) -> None:
        self.order, self.bodies, self.starts, self.ends, self.kept = order, bodies, starts, ends, kept
        self.lengths: Indices = np.diff(starts, append=bodies.size)

    def __len__(self) -> int:
        return self.starts.size

    def _where(self, indices: Array) -> Array:
        return self.order.layout.where(indices, kept=self.kept)

    @cached_property
    def several(self) -> bool:
        """Whether any path has several stretches."""
        return not bool(self.ends.all())

    @cached_property
    def _heads(self) -> Indices:
        return np.flatnonzero(np.concatenate(([True], self.ends[:-1])))

    @cached_property
    def stops(self) -> Indices:
        """(R,) the end of each stretch's path, as an index in `bodies`."""
        starts = np.append(self.starts[self._heads][1:], self.bodies.size)
        return np.repeat(starts, np.diff(self._heads, append=len(self)))

    @cached_property
    def goes_on(self) -> Array:
        """(R - 1, 1) for all stretches but the last: 1 if another stretch follows on the path, else infinity."""
        return self._where(np.where(self.ends[:-1], np.inf, 1.0)[:, None].astype(self.order.layout.dtype))

    @cached_property
    def first(self) -> Rows:
        """The stretches that start paths."""
        return self.order.layout.rows(self._heads, kept=self.kept)

    @cached_property
    def segments(self) -> Segments:
        """The stretches of each path, as a segment."""
        return Segments(np.diff(self._heads, append=len(self)), kept=self.kept)

    @cached_property
    def open(self) -> tuple[Rows, Rows]:
        """The stretches that are followed by another one on their path, and those followers."""
        followed, layout = np.flatnonzero(~self.ends), self.order.layout
        return layout.rows(followed, kept=self.kept), layout.rows(followed + 1, kept=self.kept)

    def moved(self, starts: Indices) -> Stretches:
        """The same number of stretches on the same paths, with other starts."""
        stretches = Stretches(self.order, self.bodies, starts, self.ends, kept=False)
        for name in ("several", "stops", "first", "segments", "open", "own", "_bodies"):
            stretches.__dict__[name] = getattr(self, name)
        return stretches

    def chosen(self, which: Indices) -> Stretches:
        """Some of the stretches, to be used only by a fold that has the same initial carry for all."""
        stretches = Stretches(self.order, self.bodies, self.starts[which], self.ends[which], kept=False)
        stretches.lengths = self.lengths[which]
        stretches.__dict__["_bodies"] = self._bodies
        return stretches

    @cached_property
    def _bodies(self) -> Array:
        return self._where(self.bodies)

    @cached_property
    def own(self) -> Array:
        """(R,) indices of the stretches."""
        return self._where(np.arange(len(self)))

    @cached_property
    def on_device(self) -> tuple[Array, Array, Array]:
        """Bodies, starts and lengths, as arrays of the layout's library."""
        return self._bodies, self._where(self.starts), self._where(self.lengths)

    @cached_property
    def turns_on_device(self) -> Array:
        """`turns` as 64-bit integers of the layout's library."""
        assert self.turns is not None
        return self._where(self.turns.astype(np.int64))

    @cached_property
    def inward(self) -> tuple[Round, ...]:
        """The rounds of an inward fold: the last bodies of all stretches, then those before them, and so on."""
        return tuple(self._round(self.lengths - 1 - k, k) for k in range(int(self.lengths.max(initial=0))))

    @cached_property
    def outward(self) -> tuple[Round, ...]:
        """The rounds of an outward fold: the first bodies of all stretches, then those after them, and so on."""
        return tuple(self._round(np.full(len(self), k), k) for k in range(int(self.lengths.max(initial=0))))

    def _round(self, within: Indices, k: int) -> Round:
        order, layout, rows = self.order, self.order.layout, np.flatnonzero(self.lengths > k)
        bodies = self.bodies[self.starts[rows] + within[rows]]
        kinds = order.kinds[bodies]
        by_kind = []
        for code in np.unique(kinds).tolist():
            here = np.flatnonzero(kinds == code)
            dofs = order.first_dofs[bodies[here]] + np.arange(KINDS[code].nv)[:, None]
            of_kind = (layout.rows(each[here], kept=self.kept) for each in (rows, bodies))
            by_kind.append((code, *of_kind, self._where(dofs)))
        return tuple(by_kind)
