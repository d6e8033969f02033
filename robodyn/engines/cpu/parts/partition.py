"""Parts of a tree for threads: pieces of heavy paths, and bundles of small subtrees.

Bodies whose subtrees have at least `grain` bodies form the skeleton. Heavy paths of the skeleton are cut into pieces of
at most `grain` bodies. The subtrees smaller than `grain` below one piece are bundled in the order of their bodies. So
the parents of all roots of a part are in one other part, or the roots are children of the world. Parts therefore form a
tree themselves, with O(n / grain) nodes: a bushy tree is mostly bundles, a chain is pieces only.
"""

from __future__ import annotations

import numpy as np

from robodyn.core.tree import Indices, Tree, read_only
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass

WORLD = 0
"""The part of the world. It has no bodies; values that trees hand to the world are summed in it."""


@dataclass(frozen=True, eq=False)
class Parts:
    """A tree in parts, with new numbers of bodies: each part has consecutive numbers, and parents still come first.

    Bodies of a part keep their order. Siblings keep their order too, so sums over them have the same bits as without
    parts.

    `body`: (n,) body of the tree at each new number; `start`: (n_parts + 1,) part p has the numbers start[p] .. start[p
    + 1] - 1; `above`: (n_parts,) the part that holds the parents of a part's roots, -1 for the part of the world.
    """

    tree: Tree
    body: Indices
    start: Indices
    above: Indices

    def __len__(self) -> int:
        return int(self.above.size)

    @cached_property
    def number(self) -> Indices:
        """(n,) new number of each body."""
        found = np.empty_like(self.body)
        found[self.body] = np.arange(self.body.size)
        return read_only(found)

    @cached_property
    def part(self) -> Indices:
        """(n,) part of each body, by new numbers."""
        return read_only(np.repeat(np.arange(len(self)), np.diff(self.start)))

    @cached_property
    def parent(self) -> Indices:
        """(n,) parent of each body, by new numbers; -1 for the world."""
        parent = self.tree.parent[self.body]
        return read_only(np.where(parent < 0, -1, self.number[parent]))

    @cached_property
    def roots(self) -> Indices:
        """New numbers of bodies whose parent is in another part or is the world, ordered by part."""
        within = np.where(self.parent < 0, WORLD, self.part[self.parent])
        return read_only(np.flatnonzero(within != self.part))

    @cached_property
    def root_start(self) -> Indices:
        """(n_parts + 1,) part p has the roots roots[root_start[p]:root_start[p + 1]]."""
        return read_only(np.searchsorted(self.part[self.roots], np.arange(len(self) + 1)))

    @cached_property
    def gives_to(self) -> Indices:
        """(n,) where inward sweeps add a body's values: its parent. Roots have a place of their own, n and up; the part
        above adds these places in the order of bodies."""
        found = np.array(self.parent)
        found[self.roots] = self.body.size + np.arange(self.roots.size)
        return read_only(found)

    @cached_property
    def visits(self) -> tuple[Indices, Indices]:
        """Visits of inward sweeps, last one first: k >= 0 is a step of body k, k < 0 adds root ~k to its parent. And
        (n_parts + 1,) the first visit of each part.

        Visits are in the order of bodies, so a parent sums its children in the same order as a sweep over the whole
        tree.
        """
        where = np.concatenate([self.part, self.above[self.part[self.roots]]])
        entries = np.concatenate([np.arange(self.body.size), ~self.roots])
        order = np.lexsort((np.concatenate([self.body, self.body[self.roots]]), where))
        start = np.searchsorted(where[order], np.arange(len(self) + 1))
        return read_only(entries[order]), read_only(start)


def parts_of(tree: Tree, grain: int) -> Parts:
    """Divide a tree into parts of about `grain` bodies, at least 1."""
    n, size = len(tree), tree.subtree_size
    above = np.where(tree.parent < 0, n, tree.parent)  # index n is the world
    large = np.append(size >= grain, True)
    piece, n_pieces = _pieces(tree, np.flatnonzero(large[:n]), grain)
    small = np.flatnonzero(~large[:n] & large[above])
    small = small[np.argsort(piece[above[small]], kind="stable")]
    owner = piece[above[small]]
    # Subtrees below the same piece, in bins: a bin takes those that begin within `grain` bodies.
    before = np.cumsum(size[small]) - size[small]
    bins = owner * (n + 1) + (before - before[np.searchsorted(owner, owner)]) // grain
    kept, bundle = np.unique(bins, return_inverse=True)
    # The bodies of a small subtree are consecutive in preorder.
    change, rank = np.zeros(n + 1, np.intp), tree.preorder_rank[small]
    change[rank] += n_pieces + bundle
    change[rank + size[small]] -= n_pieces + bundle
    part = piece[:n] + np.cumsum(change)[tree.preorder_rank]
    body = np.argsort(part, kind="stable")
    start = np.searchsorted(part[body], np.arange(n_pieces + kept.size + 1))
    tops = piece[above[body[start[1:n_pieces]]]]
    return Parts(tree, *map(read_only, (body, start, np.concatenate([[-1], tops, kept // (n + 1)]))))


def _pieces(tree: Tree, large: Indices, grain: int) -> tuple[Indices, int]:
    """The piece of each body of the skeleton, from 1 on, of the world (the last of n + 1 entries), and 0 for all other
    bodies; and the number of pieces. A piece is identified by the head of its heavy path, and by its depth below the
    head, in grains."""
    piece, head, depth = np.zeros(len(tree) + 1, np.intp), tree.heavy_head[large], tree.depth
    down = (depth[large] - depth[head]) // grain
    kept, number = np.unique(head * (len(tree) + 1) + down, return_inverse=True)
    piece[large] = 1 + number
    return piece, 1 + kept.size
