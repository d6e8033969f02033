"""Solves with sparse mass matrices on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from robodyn.engines.gpu.device import LoadedKernel
from robodyn.engines.gpu.source import WARP
from robodyn.engines.scan.cuda.branch_elimination import BLOCK_THREADS, branch_kernel
from robodyn.engines.scan.trees.branches import Branches
from robodyn.internals.arguments import Array

if TYPE_CHECKING:
    from robodyn.engines.scan.cuda.device import ScanDevice


class BranchSolver:
    """Factorises H = L' D L and solves with it, with a launch for each tree level inward and one outward."""

    def __init__(self, device: ScanDevice) -> None:
        self.device = device
        self._kernels: dict[np.dtype[Any], tuple[LoadedKernel, LoadedKernel]] = {}
        self._indices: WeakKeyDictionary[Branches, tuple[list[Array], dict[str, Array]]] = WeakKeyDictionary()

    def solved(self, branches: Branches, entries: Array, b: Array) -> Array:
        """H^-1 b (nv_tree, B), from packed rows of H (pairs, B), which are overwritten, and b (nv_tree, B).

        Non-finite entries of H and zero pivots affect only their own column of the batch.
        """
        dtype, batch, xp = b.dtype, b.shape[1], self.device.xp
        if dtype not in self._kernels:
            names = "eliminate_level", "solve_level"
            inward, outward = (self.device.device.load(branch_kernel(name, dtype)) for name in names)
            self._kernels[dtype] = inward, outward
        eliminate, solve = self._kernels[dtype]
        levels, at = self._placed(branches)
        vector, reciprocals, x = xp.ascontiguousarray(b).copy(), xp.empty(b.shape, dtype), xp.empty(b.shape, dtype)
        for depth in range(len(levels) - 1, -1, -1):
            rows = len(levels[depth])
            arrays = [entries, vector, reciprocals, levels[depth], at["first"], at["order"], at["rank"], at["size"]]
            blocks = -(-rows * (depth + 2) * batch * WARP // BLOCK_THREADS)
            self.device.start(eliminate, blocks, arrays, rows, [batch, depth])
        for depth, dofs in enumerate(levels):
            arrays = [entries, vector, reciprocals, x, dofs, at["first"], at["ancestors"]]
            self.device.start(solve, -(-len(dofs) * batch // BLOCK_THREADS), arrays, len(dofs), [batch, depth])
        result: Array = x
        return result

    def _placed(self, branches: Branches) -> tuple[list[Array], dict[str, Array]]:
        if branches not in self._indices:
            tree, placed = branches.tree, self.device.placed
            indices = {
                "first": branches.first,
                "order": tree.preorder,
                "rank": tree.preorder_rank,
                "size": tree.subtree_size,
                "ancestors": branches.ancestors,
            }
            levels = [placed(tree.level(depth).astype(np.int64)) for depth in range(tree.n_levels)]
            self._indices[branches] = levels, {name: placed(each.astype(np.int64)) for name, each in indices.items()}
        return self._indices[branches]
