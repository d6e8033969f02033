"""Folds: a step that is taken from body to body along stretches of paths, all stretches side by side.

A stretch is some bodies of a heavy path that follow one another. What it has so far is its carry. On NumPy arrays the
step runs on the k-th bodies of all stretches at once, for k = 0, 1, ...; on the device of a call a thread goes along
each stretch, its carry in registers. What stretches need of each other comes from scans of what each is by itself: a
path of one stretch needs none, and is gone along as a recursion would.

Arrays are in an order of their own (`Order`), so that what is met at the same time lies side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from robodyn.arguments import Array
from robodyn.cached import cached_property
from robodyn.engines.scan.elements import put, taken
from robodyn.engines.scan.elementwise import Elementwise, kernels_for
from robodyn.engines.scan.semigroups import Semigroup, sums
from robodyn.engines.scan.states import Joints, Layout, Rows, State
from robodyn.engines.scan.trees.heavy_paths import Level
from robodyn.engines.scan.trees.prefix_scans import Segments
from robodyn.joints import KINDS
from robodyn.records import dataclass
from robodyn.sweeps import FieldType
from robodyn.tree import Indices

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


# Where bodies are, and how paths are cut.


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


# Going along them.


class Fold:
    """A step along stretches.

    Args:
        step: gives the step for a kind of joint. That takes the carry, what is known of the body, and for each quantity
            of its degrees of freedom a tuple; it gives the carry, what is found of the body, and a tuple of what is
            found of each degree of freedom. It must not branch on values.
        carry, bodies, dofs, found, found_dofs: what these look like.
        inward: from the last body of each stretch to the first.
        hung: to which of `bodies` that is added which paths hand to the bodies that they hang on, if to any.
    """

    def __init__(
        self,
        step: Callable[[int], Callable[..., Any]],
        carry: FieldType,
        bodies: tuple[FieldType, ...],
        dofs: tuple[FieldType, ...],
        found: FieldType | None = None,
        found_dofs: FieldType | None = None,
        *,
        inward: bool,
        hung: int | None = None,
    ) -> None:
        self.step, self.carry, self.bodies, self.dofs = step, carry, bodies, dofs
        self.inward, self.hung = inward, hung
        self.found, self.found_dofs = found or FieldType(()), found_dofs or FieldType(())
        self.size = carry.size(0)
        self._kinds: dict[int, Elementwise] = {}

    def of_kind(self, code: int) -> Elementwise:
        """The step for a kind of joint, on element arrays: carry, bodies, degrees of freedom."""
        if code not in self._kinds:
            nv = KINDS[code].nv
            result = FieldType((self.carry.template, self.found.template, (self.found_dofs.template,) * nv))
            dofs = (FieldType((each.template,) * nv) for each in self.dofs)
            self._kinds[code] = Elementwise(self.step(code), result, self.carry, *self.bodies, *dofs)
        return self._kinds[code]

    def __call__(
        self,
        along: Stretches,
        carry: Array,
        bodies: Sequence[Array],
        dofs: Sequence[Array],
        found: Array | None = None,
        found_dofs: Array | None = None,
        *,
        sources: Array | None = None,
        handed: Handed | None = None,
        into: Array | None = None,
    ) -> Array:
        """What stretches have in the end (size, R, B).

        Args:
            along: the stretches.
            carry: what they have at first (size, .., B).
            bodies, dofs: (size, n, B) and (size, nv, B); axes of length 1 serve all states.
            found, found_dofs: take what is found of bodies and of degrees of freedom.
            sources: (R,) which of `carry` each stretch has; None: its own, or the only one.
            handed: what hangs on bodies, for folds that ask for it.
            into: takes the result.
        """
        device = kernels_for(bodies[0])
        if device is not None:
            return device.fold(self, along, carry, bodies, dofs, found, found_dofs, sources, handed, into)
        batch = max(array.shape[2] for array in (carry, *bodies, *dofs))
        before = carry if sources is None else taken(carry, sources)
        result: Array = along.order.layout.xp.empty((len(carry), len(along), batch), carry.dtype)
        result[...] = before
        size, middle = len(carry), len(carry) + self.found.size(0)
        for each in along.inward if self.inward else along.outward:
            for code, rows, here, there in each:
                given = [taken(result, rows), *(taken(array, here) for array in bodies)]
                made = self.of_kind(code)(*given, *(_per_dof(array, there) for array in dofs))
                put(result, rows, made[:size])
                if found is not None:
                    put(found, here, made[size:middle])
                if found_dofs is not None:
                    self._put_dofs(found_dofs, there, made[middle:])
        if into is None:
            return result
        into[...] = result
        return into

    def _put_dofs(self, target: Array, dofs: Array, made: Array) -> None:
        """Let what is found of degrees of freedom (nv, m) be `made` (nv x size, m, B)."""
        size = self.found_dofs.size(0)
        for k, which in enumerate(dofs):
            put(target, which, made[k * size : (k + 1) * size])


def _per_dof(array: Array, dofs: Array) -> Array:
    """Of (size, nv, B) what degrees of freedom (nv, m) have, one after another: (nv x size, m, B)."""
    found = array[:, dofs].swapaxes(0, 1)
    return found.reshape(-1, *found.shape[2:])


class Handed:
    """What paths hand to the bodies that they hang on, inward: kernels look for it, elsewhere it is added to what
    bodies have.

    Args:
        state, order: of the call.
        held: (size, n + 1, B) what bodies have.
        carry: scalars that a fold inward has in the end, the last ones being what is handed.
    """

    def __init__(self, state: State, order: Order, held: Array, carry: int) -> None:
        self._layout, self._held, self._all = state.layout, held, None
        if kernels_for(held) is not None:
            self._all = state.empty(carry, order.paths, state.batch)

    @property
    def of_paths(self) -> Array | None:
        """(size, all paths, B), for kernels."""
        return None if self._all is None else self._all[-len(self._held) :]

    def place(self, paths: Paths) -> Array | None:
        """Where a fold along these may put what it has in the end."""
        return None if self._all is None or paths.along.several else self._all[:, paths.which]

    def take(self, paths: Paths, found: Array) -> None:
        """Take what a fold along these has in the end."""
        if self._all is None or not paths.direct:
            total = taken(found[-len(self._held) :], paths.along.first)
            self._layout.heavy_paths.join(sums(len(self._held)), self._held, paths.level, total)
        elif paths.along.several:
            self._all[:, paths.which] = taken(found, paths.along.first)


def scanned(op: Semigroup, along: Stretches, elements: Array, *, backwards: bool) -> Array:
    """Elements of stretches (size, R, B) scanned along paths."""
    options = along.order.layout.options
    return along.segments.scan(op, elements, options.path_kernel, block=options.block, backwards=backwards)


def entered(op: Semigroup, along: Stretches, alone: Array, start: Array) -> Array:
    """What comes before stretches (size, R, B), outward: from what comes before paths, `start` (size, paths, B), and
    from what stretches are by themselves, which is changed."""
    first, (open_, following) = along.first, along.open
    put(alone, first, op.compose(start, taken(alone, first)))
    before: Array = along.order.layout.xp.empty_like(alone)
    put(before, first, start)
    put(before, following, taken(scanned(op, along, alone, backwards=False), open_))
    return before
