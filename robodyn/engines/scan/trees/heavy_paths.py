"""Heavy paths: a tree as paths that are scanned level by level, for operators without an inverse.

The child with the largest subtree continues its parent's path. Every other child is the head of a new path, one level
further out. A walk from a root to a leaf changes paths at most log2 n times, so there are few levels in trees of any
depth (Sleator, Tarjan 1983). All paths of a level are scanned in parallel. In an outward scan, a path starts from the
result of its head's parent. In an inward scan, a path adds its total to its head's parent before the parent's path is
scanned. There are no inverses, so no cancellation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from robodyn.core.tree import Indices, Tree, read_only
from robodyn.engines.scan.elements import library, put, taken
from robodyn.engines.scan.operators import Callables, elements_of, operator_of, values_of
from robodyn.engines.scan.semigroups import Semigroup
from robodyn.engines.scan.trees.prefix_scans import BLOCK, KERNELS, LONGEST_BLOCK, PLAIN_KERNELS, Segments
from robodyn.internals.arguments import Array, count, flag, one_of
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError
from robodyn.internals.records import dataclass

Placing: TypeAlias = Callable[[Array], Array]
"""A function that copies a NumPy array to the device of a call's arrays."""


@dataclass(frozen=True)
class Junctions:
    """The paths of a level, grouped by their junctions, the bodies that they hang on.

    `bodies`: the junctions; `order`: the paths, grouped; `paths`: a segment for each junction; `last`: the index of
    each segment's last path.
    """

    bodies: Indices
    order: Indices
    paths: Segments
    last: Indices

    def placed(self, where: Placing) -> Junctions:
        """The same with indices on the device of the arrays."""
        return Junctions(where(self.bodies), where(self.order), self.paths, where(self.last))


@dataclass(frozen=True)
class Level:
    """The paths with the same number of light edges between them and the root.

    `bodies` (m,): the bodies, path after path, each from its head outward; `starts` (paths,): the index in `bodies` of
    each path's head; `junctions` (paths,): the parent of each head, -1 for the world; `segments`: a segment for each
    path.
    """

    bodies: Indices
    starts: Indices
    junctions: Indices
    segments: Segments

    @property
    def heads(self) -> Indices:
        """First body of each path."""
        return self.bodies[self.starts]

    def placed(self, where: Placing) -> Level:
        """The same with indices on the device of the arrays."""
        level = Level(where(self.bodies), where(self.starts), where(self.junctions), self.segments)
        level.__dict__.update(ends=where(self.ends), inner=where(self.inner), grouped=self.grouped.placed(where))
        return level

    @cached_property
    def ends(self) -> Indices:
        """Index in `bodies` of each path's last body."""
        return read_only(self.starts + self.segments.lengths - 1)

    @cached_property
    def inner(self) -> Indices:
        """Indices in `bodies` of all bodies that are not the last of their path."""
        return read_only(np.delete(np.arange(self.bodies.size), self.ends))

    @cached_property
    def grouped(self) -> Junctions:
        """The paths that hang on bodies, grouped by these bodies."""
        hanging = np.flatnonzero(self.junctions >= 0)
        order = hanging[np.argsort(self.junctions[hanging], kind="stable")]
        junctions = self.junctions[order]
        first = np.flatnonzero(np.diff(junctions, prepend=-1))
        paths = Segments(np.diff(first, append=order.size))
        return Junctions(junctions[first], order, paths, first + paths.lengths - 1)


class HeavyPaths:
    """The heavy paths of a tree, in levels, the outermost last.

    `parent`: as in `VectorTree`; `where`: a function that copies indices to the device of the arrays, None for NumPy.
    """

    def __init__(self, parent: ArrayLike | Tree, where: Callable[[Array], Array] | None = None) -> None:
        self.tree = parent if isinstance(parent, Tree) else Tree(parent)
        self._where = where

    def __len__(self) -> int:
        return len(self.tree)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The levels, at most floor(log2 n) + 1."""
        where = self._where
        return self.here if where is None else tuple(level.placed(where) for level in self.here)

    @cached_property
    def here(self) -> tuple[Level, ...]:
        """The levels with NumPy indices, also if arrays are on a device."""
        tree = self.tree
        order = np.lexsort((tree.heavy_head, tree.heavy_level))  # stable: paths stay in index order, outward
        level, head = tree.heavy_level[order], tree.heavy_head[order]
        bounds = np.flatnonzero(np.diff(level, prepend=-1, append=-1)) if order.size else np.zeros(1, np.intp)
        return tuple(self._level(order[a:b], head[a:b]) for a, b in pairwise(bounds.tolist()))

    def _level(self, bodies: Indices, head: Indices) -> Level:
        starts = np.flatnonzero(np.diff(head, prepend=-1))
        lengths = np.diff(starts, append=bodies.size)
        return Level(bodies, starts, self.tree.parent[bodies[starts]], Segments(lengths))

    def outward(
        self,
        op: Semigroup | Callables,
        elements: Array,
        *,
        kernel: str = "blocked",
        block: int = BLOCK,
    ) -> Array:
        """Elements (size, n, ...) composed along the path from the root to each body, including the body itself."""
        result: Array = library(elements).empty_like(elements)
        for k, level in enumerate(self.levels):
            part = taken(elements, level.bodies)
            if k:  # only the first level hangs on the world
                put(part, level.starts, op.compose(taken(result, level.junctions), taken(part, level.starts)))
            put(result, level.bodies, level.segments.scan(op, part, kernel, block=block))
        return result

    def inward(self) -> Iterator[Level]:
        """The levels from the outermost inward: the subtrees that hang on a level's paths come before that level."""
        return reversed(self.levels)

    def totals(
        self, op: Semigroup | Callables, elements: Array, *, kernel: str = "blocked", block: int = BLOCK
    ) -> Array:
        """`op` over the subtree of each body, including the body itself. `op` must be commutative."""
        result = elements.copy()
        for level in self.inward():
            part = taken(result, level.bodies)
            put(result, level.bodies, level.segments.scan(op, part, kernel, block=block, backwards=True))
            self.join(op, result, level, taken(result, level.heads))
        return result

    def join(self, op: Semigroup | Callables, into: Array, level: Level, values: Array) -> None:
        """Compose the junctions' entries in `into` (size, n, ...) with values (size, paths, ...) of a level's paths."""
        junctions = level.grouped
        if junctions.bodies.size:
            sums = taken(junctions.paths.scan(op, taken(values, junctions.order)), junctions.last)
            put(into, junctions.bodies, op.compose(taken(into, junctions.bodies), sums))

    def rootfix(
        self,
        op: Semigroup | Callable[[Array, Array], Array],
        data: Array,
        *,
        kernel: str = "blocked",
        block: int = BLOCK,
    ) -> Array:
        """For each body, `op` over the bodies on the path from the root, including the body itself.

        Parameters are those of `VectorTree.rootfix`, without the inverse and the identity.

        Raises:
            ArgumentError: the operator raises or returns another shape, `data` has another length, or the kernel is
                unknown.
        """
        work, values = self._checked(op, data, kernel, block)
        return values_of(work, self.outward(work, values, kernel=kernel, block=block))

    def leaffix(
        self,
        op: Semigroup | Callable[[Array, Array], Array],
        data: Array,
        *,
        commutative: bool = True,
        kernel: str = "blocked",
        block: int = BLOCK,
    ) -> Array:
        """For each body, `op` over its subtree, including the body itself.

        Parameters and errors are those of `rootfix`. The bodies of a subtree are taken in the order of paths, so the
        operator must be commutative. A `Semigroup` declares that itself; for a function, `commutative` does.
        """
        flag("commutative", commutative)
        work, values = self._checked(op, data, kernel, block)
        if not (work.commutative if isinstance(work, Semigroup) else commutative):
            raise ArgumentError(f"op: got {work.name!r}, which is not commutative; wanted one that is")
        return values_of(work, self.totals(work, values, kernel=kernel, block=block))

    def _checked(self, op: Any, data: Any, kernel: Any, block: Any) -> tuple[Semigroup | Callables, Array]:
        work = operator_of(op, None, 0, invertible=False)
        one_of("kernel", kernel, [name for name in KERNELS if name not in PLAIN_KERNELS])
        count("block", block, 2, LONGEST_BLOCK)
        return work, elements_of(work, data, len(self))
