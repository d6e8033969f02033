"""Passes over a parent array as machine code: one loop each, for trees of millions of bodies.

Arrays hold one 64-bit integer for each of n bodies. The parent of a root is negative, and parents come before their
children. So a pass runs forward if values follow from the parent, and backward if children contribute to the parent.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from robodyn.compile.loops.language import Array, Word, routine


@routine
def depth(n: Word, parent: Array[Word], depth: Array[Word]) -> None:
    """Number of ancestors of each body."""
    for i in range(n):
        p = parent[i]
        if p < 0:
            depth[i] = 0
        else:
            depth[i] = depth[p] + 1


@routine
def subtree_size(n: Word, parent: Array[Word], size: Array[Word]) -> None:
    """Number of bodies in each subtree; `size` holds ones at the start."""
    for i in reversed(range(n)):
        p = parent[i]
        if p >= 0:
            size[p] += size[i]


@routine
def preorder_rank(n: Word, parent: Array[Word], size: Array[Word], rank: Array[Word], free: Array[Word]) -> None:
    """Index of each body in a depth-first traversal; `free` finally holds the index behind each subtree."""
    next_root = 0
    for i in range(n):
        p, own = parent[i], size[i]
        if p < 0:
            mine = next_root
            next_root += own
        else:
            mine = free[p]
            free[p] = mine + own
        rank[i] = mine
        free[i] = mine + 1


@routine
def heavy_child(n: Word, parent: Array[Word], size: Array[Word], heaviest: Array[Word], heavy: Array[Word]) -> None:
    """The first child with the largest subtree, and the size of that subtree. Only subtrees larger than the initial
    value of `heaviest` count."""
    for i in range(n):
        p, own = parent[i], size[i]
        if p >= 0 and own > heaviest[p]:
            heaviest[p] = own
            heavy[p] = i


@routine
def heavy_paths(n: Word, parent: Array[Word], heavy: Array[Word], head: Array[Word], level: Array[Word]) -> None:
    """The first body of each body's heavy path, and the number of heavy paths above that path."""
    for i in range(n):
        p = parent[i]
        if p < 0:
            head[i], level[i] = i, 0
        else:
            above, chosen = level[p], heavy[p] == i
            head[i] = head[p] if chosen else i
            level[i] = above if chosen else above + 1


PASSES = (depth, subtree_size, preorder_rank, heavy_child, heavy_paths)


@cache
def passes() -> Callable[..., None]:
    """`run(name, parent, *arrays)`: runs one pass over arrays (n,) of 64-bit integers.

    Raises:
        UnavailableError: this system cannot run machine code.
    """
    from robodyn.compile.cache import ObjectCache
    from robodyn.compile.keys import compiled
    from robodyn.compile.llvm.jit import OPT, Code
    from robodyn.compile.llvm.target import host_target
    from robodyn.compile.loops.llvm import Module

    target, module = host_target(), Module({})
    for each in PASSES:
        module.export(each)
    code = Code(compiled(module.text(), "passes over trees", target, OPT, ObjectCache.from_environment()), target)

    def run(name: str, parent: NDArray[np.intp], *arrays: NDArray[np.intp]) -> None:
        signature = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (1 + len(arrays)))
        pointers = (array.ctypes.data for array in (parent, *arrays))
        signature(code.address(name))(parent.size, *pointers)

    return run
