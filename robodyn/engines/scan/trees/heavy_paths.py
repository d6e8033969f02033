"""Heavy paths: a tree as paths that are scanned level by level, for operators without an inverse.

The child with the largest subtree continues its parent's path; every other child heads a path of its own, one level
further out. A walk from a root to a leaf changes paths at most log2 n times, so there are few levels however deep the
tree is (Sleator, Tarjan 1983). All paths of a level are scanned at once: outward each starts from what its head's
parent has, inward each hands its total to the parent of its head before that one's path is scanned. Nothing is ever
taken back, so nothing cancels.
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
"""Puts a NumPy array where the arrays of a call are."""


@dataclass(frozen=True)
class Junctions:
    """Paths of a level by the body that they hang on: those of `bodies[k]` are a segment of `order`, ending at
    `last[k]`."""

    bodies: Indices
    order: Indices
    paths: Segments
    last: Indices

    def placed(self, where: Placing) -> Junctions:
        """With indices where arrays are."""
        return Junctions(where(self.bodies), where(self.order), self.paths, where(self.last))


@dataclass(frozen=True)
class Level:
    """Paths with equally many light edges above them, one after another.

    `bodies` (m,): those of all paths, each from its head outward; `starts` (number of paths,): where each path starts
    among them; `junctions`: the parent of each head, -1 for the world; `segments`: how to scan the paths.
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
        """With indices where arrays are."""
        found = Level(where(self.bodies), where(self.starts), where(self.junctions), self.segments)
        found.__dict__.update(ends=where(self.ends), inner=where(self.inner), grouped=self.grouped.placed(where))
        return found

    @cached_property
    def ends(self) -> Indices:
        """Place of the last body of each path among `bodies`."""
        return read_only(self.starts + self.segments.lengths - 1)

    @cached_property
    def inner(self) -> Indices:
        """Places among `bodies` of those whose path goes on."""
        return read_only(np.delete(np.arange(self.bodies.size), self.ends))

    @cached_property
    def grouped(self) -> Junctions:
        """The paths that hang on bodies, by those."""
        hanging = np.flatnonzero(self.junctions >= 0)
        order = hanging[np.argsort(self.junctions[hanging], kind="stable")]
        junctions = self.junctions[order]
        first = np.flatnonzero(np.diff(junctions, prepend=-1))
        paths = Segments(np.diff(first, append=order.size))
        return Junctions(junctions[first], order, paths, first + paths.lengths - 1)


class HeavyPaths:
    """The heavy paths of a parent array (see `VectorTree` for what that may be), outermost level last.

    `where`: puts indices where arrays are, if that is not NumPy.
    """

    def __init__(self, parent: ArrayLike | Tree, where: Callable[[Array], Array] | None = None) -> None:
        self.tree = parent if isinstance(parent, Tree) else Tree(parent)
        self._where = where

    def __len__(self) -> int:
        return len(self.tree)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """At most floor(log2 n) + 1 of them."""
        where = self._where
        return self.here if where is None else tuple(level.placed(where) for level in self.here)

    @cached_property
    def here(self) -> tuple[Level, ...]:
        """The levels with NumPy's indices, wherever arrays are."""
        tree = self.tree
        order = np.lexsort((tree.heavy_head, tree.heavy_level))  # stable: along a path in index order, so outward
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
        """Elements (size, n, ...) composed along the path from the root down to each body, itself included."""
        found: Array = library(elements).empty_like(elements)
        for k, level in enumerate(self.levels):
            part = taken(elements, level.bodies)
            if k:  # only the first level hangs on the world
                put(part, level.starts, op.compose(taken(found, level.junctions), taken(part, level.starts)))
            put(found, level.bodies, level.segments.scan(op, part, kernel, block=block))
        return found

    def inward(self) -> Iterator[Level]:
        """Levels from the outermost in: when one comes, all subtrees that hang off its paths are done."""
        return reversed(self.levels)

    def totals(
        self, op: Semigroup | Callables, elements: Array, *, kernel: str = "blocked", block: int = BLOCK
    ) -> Array:
        """`op`, which must be commutative, over the subtree of each body, itself included."""
        found = elements.copy()
        for level in self.inward():
            part = taken(found, level.bodies)
            put(found, level.bodies, level.segments.scan(op, part, kernel, block=block, backwards=True))
            self.join(op, found, level, taken(found, level.heads))
        return found

    def join(self, op: Semigroup | Callables, into: Array, level: Level, values: Array) -> None:
        """Compose what junctions hold in `into` (size, n, ...) with values (size, paths, ...) of a level's paths."""
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
        """For each body, `op` over the bodies on its path from the root, itself included.

        Arguments as of `VectorTree.rootfix`, but for the inverse and the identity, which this does not need.

        Raises:
            ArgumentError: an operator that raises or returns another shape, `data` of another length, no such kernel.
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
        """For each body, `op` over its subtree, itself included.

        Arguments and errors as of `rootfix`. The order of a subtree's bodies is the paths', so the operator must be
        commutative: those of `Semigroup` say so themselves, of a function `commutative` does.
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
