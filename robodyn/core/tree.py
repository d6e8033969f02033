"""The topology of a kinematic tree: quantities that follow from its parent array alone.

Passes over arrays compute them without recursion, so a chain of 10^7 bodies works. Passes over large trees run as
machine code where LLVM is available. Each quantity is computed on first use and cached.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robodyn.internals.arguments import as_array, count
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.provided import provided

_AnyArray = TypeVar("_AnyArray", bound=NDArray[Any])

Indices: TypeAlias = NDArray[np.intp]
"""A read-only array of indices."""


def read_only(array: _AnyArray) -> _AnyArray:
    """The array itself, made read-only because several callers share it."""
    array.setflags(write=False)
    return array


_COMPILED_FROM = 10_000
"""Number of bodies from which a pass runs as machine code."""


def _compiled_pass(name: str, parent: Indices, *arrays: Indices) -> bool:
    """Run a pass over a large tree as machine code; False if the tree is small or machine code is unavailable."""
    if parent.size < _COMPILED_FROM or parent.dtype.itemsize != 8:
        return False
    try:
        provided("passes")()(name, parent, *arrays)
    except (UnavailableError, ImportError, OSError):
        return False
    return True


def _frozen(values: Any) -> Indices:
    return read_only(np.asarray(values, dtype=np.intp))


class Tree:
    """A forest on bodies 0 .. n-1 given by `parent`, with -1 for the world and `parent[i] < i`.

    Raises:
        ArgumentError: `parent` is not a one-dimensional integer array with -1 <= parent[i] < i.
    """

    def __init__(self, parent: ArrayLike) -> None:
        array = as_array("parent", parent, "wanted a one-dimensional integer array")
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ArgumentError(
                f"parent: got shape {array.shape} and dtype {array.dtype}; wanted a one-dimensional integer array"
            )
        if array.dtype == np.uint64:  # the largest values would wrap around to allowed ones
            array = np.minimum(array, np.iinfo(np.intp).max)
        self.parent = _frozen(array.astype(np.intp))
        wrong = np.flatnonzero((self.parent < -1) | (self.parent >= np.arange(self.parent.size)))
        if wrong.size:
            i = int(wrong[0])
            raise ArgumentError(
                f"parent[{i}]: got {self.parent[i]}; wanted -1 (the world) or a body before it, 0 .. {i - 1}"
            )

    def __len__(self) -> int:
        return int(self.parent.size)

    def __getstate__(self) -> dict[str, Any]:
        return {"parent": self.parent}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.parent = _frozen(state["parent"])

    @cached_property
    def depth(self) -> Indices:
        """(n,) number of ancestors among the bodies: 0 for a child of the world."""
        depths = np.empty(len(self), np.intp)
        if _compiled_pass("depth", self.parent, depths):
            return read_only(depths)
        depth: list[int] = []
        append = depth.append
        for p in self.parent.tolist():
            append(0 if p < 0 else depth[p] + 1)
        return _frozen(depth)

    @cached_property
    def level_order(self) -> Indices:
        """(n,) bodies sorted by depth, in index order within a level."""
        return _frozen(np.argsort(self.depth, kind="stable"))

    @cached_property
    def level_start(self) -> Indices:
        """(n_levels + 1,) level d is `level_order[level_start[d]:level_start[d + 1]]`."""
        return _frozen(np.concatenate([[0], np.cumsum(np.bincount(self.depth))]) if len(self) else [0])

    @property
    def n_levels(self) -> int:
        """Number of levels: the depth of the deepest body plus one."""
        return self.level_start.size - 1

    def level(self, d: int) -> Indices:
        """Bodies of depth d, in index order.

        Raises:
            ArgumentError: no such level.
        """
        d = count("level", d, 0, self.n_levels - 1)
        return self.level_order[self.level_start[d] : self.level_start[d + 1]]

    @cached_property
    def child_order(self) -> Indices:
        """(n,) bodies sorted by parent (world first), in index order among siblings."""
        return _frozen(np.argsort(self.parent, kind="stable"))

    @cached_property
    def child_start(self) -> Indices:
        """(n + 2,) children of body i are `child_order[child_start[i + 1]:child_start[i + 2]]`; i = -1 is the world."""
        return _frozen(np.concatenate([[0], np.cumsum(np.bincount(self.parent + 1, minlength=len(self) + 1))]))

    def children(self, i: int) -> Indices:
        """Children of body i (-1: of the world), in index order.

        Raises:
            ArgumentError: no such body.
        """
        i = count("body", i, -1, len(self) - 1)
        return self.child_order[self.child_start[i + 1] : self.child_start[i + 2]]

    @cached_property
    def subtree_size(self) -> Indices:
        """(n,) number of bodies in the subtree of each body, itself included."""
        sizes = np.ones(len(self), np.intp)
        if _compiled_pass("subtree_size", self.parent, sizes):
            return read_only(sizes)
        size = [1] * len(self)
        parent = self.parent.tolist()
        for i in range(len(self) - 1, -1, -1):
            if parent[i] >= 0:
                size[parent[i]] += size[i]
        return _frozen(size)

    @cached_property
    def preorder_rank(self) -> Indices:
        """(n,) position of each body in a depth-first traversal that takes siblings in index order."""
        ranks, next_ranks = np.empty((2, len(self)), np.intp)
        if _compiled_pass("preorder_rank", self.parent, self.subtree_size, ranks, next_ranks):
            return read_only(ranks)
        rank: list[int] = []
        next_rank: list[int] = []
        next_root = 0
        for p, size in zip(self.parent.tolist(), self.subtree_size.tolist(), strict=True):
            if p < 0:
                mine, next_root = next_root, next_root + size
            else:
                mine = next_rank[p]
                next_rank[p] = mine + size
            rank.append(mine)
            next_rank.append(mine + 1)
        return _frozen(rank)

    @cached_property
    def preorder(self) -> Indices:
        """(n,) bodies in depth-first order; the subtree of body i is a contiguous run of it."""
        order = np.empty(len(self), dtype=np.intp)
        order[self.preorder_rank] = np.arange(len(self))
        return _frozen(order)

    def subtree(self, i: int) -> Indices:
        """Body i and everything below it, in depth-first order.

        Raises:
            ArgumentError: no such body.
        """
        i = count("body", i, 0, len(self) - 1)
        start = self.preorder_rank[i]
        return self.preorder[start : start + self.subtree_size[i]]

    def path(self, i: int) -> Indices:
        """Bodies from the child of the world down to body i, i included (kappa(i) of RBDA); empty for -1, the world.

        Raises:
            ArgumentError: no such body.
        """
        i = count("body", i, -1, len(self) - 1)
        bodies = []
        while i >= 0:
            bodies.append(i)
            i = int(self.parent[i])
        return _frozen(bodies[::-1])

    @cached_property
    def euler_tour(self) -> tuple[Indices, Indices]:
        """(lp, rp), each (n,): the steps 0 .. 2n-1 of an Euler tour at which a body is entered and left."""
        lp = 2 * self.preorder_rank - self.depth
        return _frozen(lp), _frozen(lp + 2 * self.subtree_size - 1)

    @cached_property
    def heavy_child(self) -> Indices:
        """(n,) the child with the largest subtree (the first of equals), -1 for a leaf."""
        children, sizes = np.full(len(self), -1, np.intp), np.zeros(len(self), np.intp)
        if _compiled_pass("heavy_child", self.parent, self.subtree_size, sizes, children):
            return read_only(children)
        heavy, heaviest = [-1] * len(self), [0] * len(self)
        for i, (p, size) in enumerate(zip(self.parent.tolist(), self.subtree_size.tolist(), strict=True)):
            if p >= 0 and size > heaviest[p]:
                heavy[p], heaviest[p] = i, size
        return _frozen(heavy)

    @cached_property
    def _on_heavy_edge(self) -> NDArray[np.bool_]:
        """(n,) whether the body continues its parent's heavy path."""
        continues = np.zeros(len(self), dtype=bool)
        continues[self.heavy_child[self.heavy_child >= 0]] = True
        return read_only(continues)

    @cached_property
    def _compiled_paths(self) -> tuple[Indices, Indices] | None:
        """`heavy_head` and `heavy_level` by one compiled pass, or None if there is none."""
        head, level = np.empty((2, len(self)), np.intp)
        compiled = _compiled_pass("heavy_paths", self.parent, self.heavy_child, head, level)
        return (read_only(head), read_only(level)) if compiled else None

    @cached_property
    def heavy_head(self) -> Indices:
        """(n,) first body of the heavy path that each body lies on."""
        if self._compiled_paths is not None:
            return self._compiled_paths[0]
        head: list[int] = []
        for i, (p, continues) in enumerate(zip(self.parent.tolist(), self._on_heavy_edge.tolist(), strict=True)):
            head.append(head[p] if continues else i)
        return _frozen(head)

    @cached_property
    def heavy_level(self) -> Indices:
        """(n,) number of light edges between the tree's root and the body; at most floor(log2 n)."""
        if self._compiled_paths is not None:
            return self._compiled_paths[1]
        level: list[int] = []
        for p, continues in zip(self.parent.tolist(), self._on_heavy_edge.tolist(), strict=True):
            level.append(0 if p < 0 else level[p] + (not continues))
        return _frozen(level)
