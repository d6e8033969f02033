"""The order of arrays in which folds (`folds.py`) meet bodies, and stretches of paths: bodies that follow one another.

What is met at the same time lies side by side. A path is cut into stretches of about one length; a batch large enough
to keep a device busy has longer ones.
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
"""Bodies of a stretch, where a path has several."""
DEVICE_STRETCH = 32
"""Bodies of a stretch on a device, where a batch alone does not keep it busy; NumPy arrays have as many as
`ScanOptions.block` says."""
THREADS = 1 << 16
"""Stretches x batch beyond which stretches become longer: more than a device runs at a time."""

MOST_HANGING = 32
"""Paths on one body that a thread goes through."""
TOGETHER = 256
"""Paths x batch of a level up to which it shares a launch with its neighbours, in one block of threads, which goes
along those of one level after those of the other: starting a kernel takes longer than a step of few paths."""

Round: TypeAlias = tuple[tuple[int, Rows, Rows, Array], ...]
"""By kind of joint: its code, stretches, their bodies, and those bodies' degrees of freedom (nv, m)."""


def order_of(state: State) -> Order:
    """The order of a call's arrays, kept for later calls."""
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
    """The bodies of a layout in the order in which folds meet them: level by level of heavy paths, the first bodies of
    all stretches of a level, then the second ones, and so on; joints likewise. Bodies are known by their places in it,
    of which the last, -1, is the world's.

    Args:
        layout: the tree and its constants.
        length: of stretches, about; those of a path are equally long but for one body.
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
        """The levels outward as folds go along them: where kernels do, neighbours of few paths, none of which is cut,
        are taken together, but for the first level with `first_apart`."""
        if kernels_for(state.inputs["q"]) is None:
            return self.levels
        few = tuple(
            paths.direct and not paths.along.several and len(paths.along) * state.batch <= TOGETHER
            for paths in self.levels
        )
        key = few, first_apart  # many batches share one
        if key not in self._launches:
            begins = [k for k in range(len(few)) if not (k and few[k] and few[k - 1]) or (first_apart and k == 1)]
            self._launches[key] = tuple(self._together(a, b) for a, b in pairwise([*begins, len(few)]))
        return self._launches[key]

    def _together(self, begin: int, end: int) -> Paths:
        """Some levels that follow one another as if they were one."""
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
        """(nv,) where degrees of freedom of the model are in this order."""
        place = np.empty_like(self._dofs)
        place[self._dofs] = np.arange(place.size)
        return self.layout.rows(place)

    @cached_property
    def dof_bodies(self) -> Rows:
        """(nv,) where in this order the body of each degree of freedom of the model is."""
        model = self.layout.model
        counts = np.diff(model.v_start, append=model.nv_tree)
        return self.layout.rows(np.repeat(self._place[:-1], counts))

    def of_bodies(self, array: Array) -> Array:
        """(size, n, ...) of bodies in the model's order, in this one; not a copy where that is the same."""
        return taken(array, self._body_rows)

    def of_dofs(self, array: Array) -> Array:
        """(nv, ...) of degrees of freedom in the model's order as (1, nv, ...) in this one."""
        return taken(array[None], self._dof_rows)

    def to_model(self, array: Array) -> Array:
        """(1, nv, ...) in this order as (nv, ...) in the model's."""
        if isinstance(self._dof_rows, slice):
            found = array
        else:
            found = self.layout.xp.empty_like(array)
            put(found, self._dof_rows, array)
        first: Array = found[0]
        return first

    @cached_property
    def pitch(self) -> Array:
        """(1, n, 1)."""
        return self.of_bodies(self.layout.pitch)

    @cached_property
    def armature(self) -> Array:
        """(1, nv, 1)."""
        return self.of_dofs(self.layout.armature)

    @cached_property
    def _inertia(self) -> Array:
        return self.of_bodies(self.layout.inertia)

    def inertia(self, state: State) -> Array:
        """(10, n, 1), or (10, n, B) where the call gives inertias."""
        return self.of_bodies(state.inertia) if state.given("inertia") else self._inertia

    def rates(self, state: State, name: str) -> Array:
        """An input with a number for each degree of freedom (1, nv, B); zeros where the call gives none."""
        if not state.given(name):
            return state.zeros(1, state.model.nv_tree, 1)
        return self.of_dofs(state.tree_input(name))

    @cached_property
    def codes(self) -> tuple[int, ...]:
        """Kinds of joints that there are."""
        return tuple(np.unique(self.kinds).tolist())

    @cached_property
    def on_device(self) -> tuple[Array, Array]:
        """Kinds of joints and their first degrees of freedom, as integers of 64 bits."""
        placed = self.layout.placed
        return placed(self.kinds.astype(np.int64)), placed(self.first_dofs.astype(np.int64))

    @cached_property
    def hung(self) -> tuple[Array, Array]:
        """Where each body starts in the list (n + 1,) of paths that hang on bodies, and that list; without those of
        levels where too many hang on one."""
        none = np.zeros(0, np.int64)
        junctions = np.concatenate([none, *(each for each, _ in self._hanging)])
        paths = np.concatenate([none, *(each for _, each in self._hanging)])
        order = np.argsort(junctions, kind="stable")
        first = np.searchsorted(junctions[order], np.arange(self.layout.n + 1))
        return self.layout.placed(first.astype(np.int64)), self.layout.placed(paths[order])

    # Transforms.

    @cached_property
    def _joints(self) -> tuple[tuple[Joints, Array], ...]:
        """By kind of joint: where they are, and their part of Xtree."""
        layout, found = self.layout, []
        for code in self.codes:
            places = np.flatnonzero(self.kinds == code)
            joints = layout.joints_of(code, self.bodies[places], places)
            found.append((joints, taken(layout.Xtree, layout.rows(self.bodies[places]))))
        return tuple(found)

    def transforms(self, state: State) -> Array:
        """X (12, n, B): from each parent's frame to the body's."""
        return state.across(self._joints)

    @cached_property
    def root_of(self) -> Array:
        """(n,) first body of the tree that each body is in."""
        return self.layout.placed(self._place[self.layout.first_bodies[self.bodies]])


def _counts(paths: Segments, length: int) -> Indices:
    """Stretches of each path."""
    counts: Indices = np.maximum(1, (paths.lengths + length // 2) // length)
    return counts


def has_several(layout: Layout, length: int) -> bool:
    """Whether any path has several stretches of about this length."""
    return any(int(_counts(level.segments, length).max(initial=1)) > 1 for level in layout.heavy_paths.here)


def _cut(paths: Segments, length: int) -> tuple[Indices, Array]:
    """Where stretches start, and which of them end paths."""
    counts = _counts(paths, length)
    of_path = np.repeat(np.arange(counts.size), counts)
    within = np.arange(of_path.size) - (np.cumsum(counts) - counts)[of_path]
    starts = paths.starts[of_path] + within * paths.lengths[of_path] // counts[of_path]
    return starts, within == counts[of_path] - 1


@dataclass(frozen=True)
class Paths:
    """A level of heavy paths, its bodies being places of an `Order` and its indices where arrays are; how it is cut
    where values do not matter; which of all paths these are; and whether kernels may look for them at junctions: a
    thread takes them one by one."""

    level: Level
    along: Stretches
    which: slice
    direct: bool


class Stretches:
    """Consecutive bodies of the paths of a level.

    Args:
        order: where bodies are.
        bodies: (m,) those of all paths, one path after another.
        starts: (R,) where stretches start among them, in order; the first at 0.
        ends: (R,) whether a stretch ends a path.
        kept: whether later calls go along them too.

    `turns`: where those of one level after the other begin among them, and the end; None where all are of one level.
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
        """Whether any path has several of them."""
        return not bool(self.ends.all())

    @cached_property
    def _heads(self) -> Indices:
        return np.flatnonzero(np.concatenate(([True], self.ends[:-1])))

    @cached_property
    def stops(self) -> Indices:
        """(R,) where the path of each ends among the bodies."""
        starts = np.append(self.starts[self._heads][1:], self.bodies.size)
        return np.repeat(starts, np.diff(self._heads, append=len(self)))

    @cached_property
    def goes_on(self) -> Array:
        """Of all but the last (R - 1, 1): 1 where another one follows on the path, else infinity; where arrays are."""
        return self._where(np.where(self.ends[:-1], np.inf, 1.0)[:, None].astype(self.order.layout.dtype))

    @cached_property
    def first(self) -> Rows:
        """Those that start paths."""
        return self.order.layout.rows(self._heads, kept=self.kept)

    @cached_property
    def segments(self) -> Segments:
        """The stretches of each path as a segment."""
        return Segments(np.diff(self._heads, append=len(self)), kept=self.kept)

    @cached_property
    def open(self) -> tuple[Rows, Rows]:
        """Those that another one follows on its path, and their followers."""
        found, layout = np.flatnonzero(~self.ends), self.order.layout
        return layout.rows(found, kept=self.kept), layout.rows(found + 1, kept=self.kept)

    def moved(self, starts: Indices) -> Stretches:
        """As many of the same paths, starting elsewhere."""
        found = Stretches(self.order, self.bodies, starts, self.ends, kept=False)
        for name in ("several", "stops", "first", "segments", "open", "own", "_bodies"):
            found.__dict__[name] = getattr(self, name)
        return found

    def chosen(self, which: Indices) -> Stretches:
        """Some of them, for a fold alone, which has the same carry for all at first."""
        found = Stretches(self.order, self.bodies, self.starts[which], self.ends[which], kept=False)
        found.lengths = self.lengths[which]
        found.__dict__["_bodies"] = self._bodies
        return found

    @cached_property
    def _bodies(self) -> Array:
        return self._where(self.bodies)

    @cached_property
    def own(self) -> Array:
        """(R,) numbers of stretches, where arrays are."""
        return self._where(np.arange(len(self)))

    @cached_property
    def on_device(self) -> tuple[Array, Array, Array]:
        """Bodies, starts and lengths where arrays are."""
        return self._bodies, self._where(self.starts), self._where(self.lengths)

    @cached_property
    def turns_on_device(self) -> Array:
        """`turns` as integers of 64 bits where arrays are."""
        assert self.turns is not None
        return self._where(self.turns.astype(np.int64))

    @cached_property
    def inward(self) -> tuple[Round, ...]:
        """Last bodies, then those before them, ..."""
        return tuple(self._round(self.lengths - 1 - k, k) for k in range(int(self.lengths.max(initial=0))))

    @cached_property
    def outward(self) -> tuple[Round, ...]:
        """First bodies, then those behind them, ..."""
        return tuple(self._round(np.full(len(self), k), k) for k in range(int(self.lengths.max(initial=0))))

    def _round(self, within: Indices, k: int) -> Round:
        order, layout, rows = self.order, self.order.layout, np.flatnonzero(self.lengths > k)
        bodies = self.bodies[self.starts[rows] + within[rows]]
        kinds = order.kinds[bodies]
        found = []
        for code in np.unique(kinds).tolist():
            here = np.flatnonzero(kinds == code)
            dofs = order.first_dofs[bodies[here]] + np.arange(KINDS[code].nv)[:, None]
            of_kind = (layout.rows(each[here], kept=self.kept) for each in (rows, bodies))
            found.append((code, *of_kind, self._where(dofs)))
        return tuple(found)
