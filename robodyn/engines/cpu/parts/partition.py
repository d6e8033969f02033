"""Parts of a tree that threads work on side by side: pieces of heavy paths, and bundles of small subtrees.

Bodies whose subtrees hold at least `grain` bodies are the skeleton. Its heavy paths are cut into pieces of at most
`grain` bodies; what hangs off a piece, subtrees smaller than `grain`, is bundled in the order of the bodies. So all
roots of a part have their parents in one other part, or are children of the world, and parts are a tree themselves, of
O(n / grain) nodes: a bush is nearly all bundles, a caterpillar pieces and the bundles of their legs, a chain pieces.
"""

from __future__ import annotations

import numpy as np

from robodyn.core.tree import Indices, Tree, read_only
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass

WORLD = 0
"""The part that has no bodies, in which what trees hand to the world is summed."""


@dataclass(frozen=True, eq=False)
class Parts:
    """A tree in parts; bodies have new numbers, by which every part is a run and parents still come first.

    A part's bodies keep their order, so that siblings do: sums over them are the same to the last bit.

    `body`: (n,) body of the tree at each new number; `start`: (n_parts + 1,) part p has the numbers start[p] ..
    start[p + 1] - 1; `above`: (n_parts,) the part in which the parents of a part's roots are, -1 for that of the world.
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
        """(n,) part of each new number."""
        return read_only(np.repeat(np.arange(len(self)), np.diff(self.start)))

    @cached_property
    def parent(self) -> Indices:
        """(n,) parents by new numbers, -1 for the world."""
        parent = self.tree.parent[self.body]
        return read_only(np.where(parent < 0, -1, self.number[parent]))

    @cached_property
    def roots(self) -> Indices:
        """New numbers of bodies whose parent is in another part, or is the world; by parts."""
        within = np.where(self.parent < 0, WORLD, self.part[self.parent])
        return read_only(np.flatnonzero(within != self.part))

    @cached_property
    def root_start(self) -> Indices:
        """(n_parts + 1,) part p has the roots roots[root_start[p]:root_start[p + 1]]."""
        return read_only(np.searchsorted(self.part[self.roots], np.arange(len(self) + 1)))

    @cached_property
    def gives_to(self) -> Indices:
        """(n,) where a body's force is summed on the way inward: its parent, or for roots a place of their own, n and
        up, which the part above adds in the order of bodies."""
        found = np.array(self.parent)
        found[self.roots] = self.body.size + np.arange(self.roots.size)
        return read_only(found)

    @cached_property
    def visits(self) -> tuple[Indices, Indices]:
        """What a sweep inward does in each part, last entry first: at k >= 0 a step of the body with that number, at
        k < 0 the sum of root ~k into its parent; and (n_parts + 1,) where the entries of each part begin.

        Entries are in the order of bodies, so that a parent sums its children in the order of a sweep over the tree.
        """
        where = np.concatenate([self.part, self.above[self.part[self.roots]]])
        entries = np.concatenate([np.arange(self.body.size), ~self.roots])
        order = np.lexsort((np.concatenate([self.body, self.body[self.roots]]), where))
        start = np.searchsorted(where[order], np.arange(len(self) + 1))
        return read_only(entries[order]), read_only(start)


def parts_of(tree: Tree, grain: int) -> Parts:
    """A tree in parts of about `grain` bodies, at least 1."""
    n, size = len(tree), tree.subtree_size
    above = np.where(tree.parent < 0, n, tree.parent)  # the world is the last of n + 1 entries
    large = np.append(size >= grain, True)
    piece, n_pieces = _pieces(tree, np.flatnonzero(large[:n]), grain)
    small = np.flatnonzero(~large[:n] & large[above])
    small = small[np.argsort(piece[above[small]], kind="stable")]
    owner = piece[above[small]]
    # Those below one piece, in bins of as many as begin within `grain` bodies.
    before = np.cumsum(size[small]) - size[small]
    bins = owner * (n + 1) + (before - before[np.searchsorted(owner, owner)]) // grain
    kept, bundle = np.unique(bins, return_inverse=True)
    # A small subtree is a run in preorder.
    change, rank = np.zeros(n + 1, np.intp), tree.preorder_rank[small]
    change[rank] += n_pieces + bundle
    change[rank + size[small]] -= n_pieces + bundle
    part = piece[:n] + np.cumsum(change)[tree.preorder_rank]
    body = np.argsort(part, kind="stable")
    start = np.searchsorted(part[body], np.arange(n_pieces + kept.size + 1))
    tops = piece[above[body[start[1:n_pieces]]]]
    return Parts(tree, *map(read_only, (body, start, np.concatenate([[-1], tops, kept // (n + 1)]))))


def _pieces(tree: Tree, large: Indices, grain: int) -> tuple[Indices, int]:
    """The piece of each body of the skeleton, 1 and up, that of the world, the last of n + 1 entries, and 0 for all
    others; and how many there are. Of heavy paths: their heads, and how many grains down from these."""
    piece, head, depth = np.zeros(len(tree) + 1, np.intp), tree.heavy_head[large], tree.depth
    down = (depth[large] - depth[head]) // grain
    kept, number = np.unique(head * (len(tree) + 1) + down, return_inverse=True)
    piece[large] = 1 + number
    return piece, 1 + kept.size
