"""Parallel scans on trees: prefix sums along paths from the root, and sums over subtrees.

A recursion over a tree with an associative operator is a scan. Two layouts turn a tree into sequences: `VectorTree`
(the parentheses of an Euler tour), for operators with an inverse, and `HeavyPaths`, for all operators. Both work for
your own trees and operators:

>>> import numpy as np
>>> from robodyn.engines.scan import VectorTree
>>> tree = VectorTree([-1, 0, 0, 1, 1])
>>> tree.rootfix(np.add, np.ones(5, int), inverse=np.negative, identity=0)
array([1, 2, 2, 3, 3])
>>> tree.leaffix(np.add, np.ones(5, int), inverse=np.negative, identity=0)
array([5, 3, 1, 1, 1])

The operators of rigid-body dynamics are `POSES`, `AFFINE_MOTIONS`, `TWIST_PAIRS`, `AFFINE_FORCES` and `sums`.
"""

from __future__ import annotations

from robodyn.engines.scan.options import LAYOUTS, ScanOptions
from robodyn.engines.scan.semigroups import (
    AFFINE_FORCES,
    AFFINE_MOTIONS,
    POSES,
    TWIST_PAIRS,
    Semigroup,
    sums,
)
from robodyn.engines.scan.trees.heavy_paths import HeavyPaths
from robodyn.engines.scan.trees.prefix_scans import KERNELS
from robodyn.engines.scan.trees.vector_tree import VectorTree

__all__ = [
    "AFFINE_FORCES",
    "AFFINE_MOTIONS",
    "KERNELS",
    "LAYOUTS",
    "POSES",
    "TWIST_PAIRS",
    "HeavyPaths",
    "ScanOptions",
    "Semigroup",
    "VectorTree",
    "sums",
]
