"""Vector trees: a tree as the parentheses of its Euler tour, so that scans compute paths and subtrees.

Blelloch, Vector Models for Data-Parallel Computing (1990); Lynghus, Data Parallel Rigid Body Dynamics, section 4.6. The
tour enters body i at step lp[i] and leaves it at step rp[i]. With a body's value at lp and its inverse at rp, each
prefix is the product along the path that is open at that step. The difference of two prefixes is the sum over a
subtree. Hence operators need an inverse, and cancelled values leave rounding errors. The other layout,
`robodyn.engines.scan.trees.heavy_paths`, avoids both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


class VectorTree:
    """The vector tree of a parent array.

    Args:
        parent: (n,) integers, -1 for children of the world, else parent[i] < i. Or a `robodyn.core.tree.Tree`. Several
            children of the world make a forest. Its trees are joined by the world, whose value is the identity.
        where: a function that copies indices to the device of the arrays; None for NumPy arrays.

    Raises:
        ArgumentError: `parent` is no such array. The message names the entry.
    """

    def __init__(self, parent: ArrayLike | Tree, where: Callable[[Array], Array] | None = None) -> None:
        self.tree = parent if isinstance(parent, Tree) else Tree(parent)
        self._where = where

    def __len__(self) -> int:
        return len(self.tree)

    @property
    def lp(self) -> Indices:
        """(n,) step at which the Euler tour enters each body."""
        return self.tree.euler_tour[0]

    @property
    def rp(self) -> Indices:
        """(n,) step at which the Euler tour leaves each body."""
        return self.tree.euler_tour[1]

    @property
    def depth(self) -> Indices:
        """(n,) number of ancestors among the bodies."""
        return self.tree.depth

    @property
    def subtree_size(self) -> Indices:
        """(n,) bodies in the subtree of each body, itself included."""
        return self.tree.subtree_size

    @cached_property
    def paths(self) -> tuple[Indices, Indices]:
        """(bodies, starts): the path kappa(i) from the root's child to body i is bodies[starts[i]:starts[i + 1]]."""
        starts = np.concatenate(([0], np.cumsum(self.depth + 1)))
        bodies = np.empty(int(starts[-1]), dtype=np.intp)
        at, ends = np.arange(len(self)), starts[1:] - 1
        while at.size:  # a step up for all bodies at once
            bodies[ends] = at
            parents = self.tree.parent[at]
            there = parents >= 0
            at, ends = parents[there], ends[there] - 1
        return read_only(bodies), read_only(starts)

    def _placed(self, indices: Indices) -> Indices:
        return indices if self._where is None else self._where(indices)

    @cached_property
    def _steps(self) -> tuple[Indices, Indices]:
        """lp and rp, on the device of the arrays."""
        return self._placed(self.lp), self._placed(self.rp)

    @cached_property
    def _spans(self) -> tuple[Indices, Indices, Indices]:
        """The depth-first order, and the ranks of each subtree's first and last body, on the device of the arrays."""
        first = self.tree.preorder_rank
        last = first + self.subtree_size - 1
        return self._placed(self.tree.preorder), self._placed(first), self._placed(last)

    @cached_property
    def _before_steps(self) -> tuple[Indices, Indices]:
        """The step before each lp, and the bodies without such a step, on the device of the arrays."""
        return self._preceding(self.lp)

    @cached_property
    def _before_spans(self) -> tuple[Indices, Indices]:
        """The rank before each body's rank in the depth-first order, and the bodies without one."""
        return self._preceding(self.tree.preorder_rank)

    def _preceding(self, steps: Indices) -> tuple[Indices, Indices]:
        return self._placed(np.maximum(steps - 1, 0)), self._placed(np.flatnonzero(steps == 0))

    @cached_property
    def _tour(self) -> Segments:
        return Segments([2 * len(self)] if len(self) else [])

    @cached_property
    def _walk(self) -> Segments:
        return Segments([len(self)] if len(self) else [])

    def rootfix(
        self,
        op: Semigroup | Callable[[Array, Array], Array],
        data: Array,
        inverse: Callable[[Array], Array] | None = None,
        identity: Any = None,
        *,
        inclusive: bool = True,
        kernel: str = "blocked",
        block: int = BLOCK,
    ) -> Array:
        """For each body, `op` over the bodies on the path from the root, including the body itself if `inclusive`.

        Args:
            op: a `Semigroup`; or an associative function of two arrays (m, ...) of values, the first nearer the root.
            data: (n, ...) a value for each body; (size, n, ...) for a `Semigroup`.
            inverse: a function of values (m, ...) with op(x, inverse(x)) = identity. Not needed for a `Semigroup`.
            identity: the identity, one value. Not needed for a `Semigroup`.
            inclusive: False to leave out the body itself.
            kernel: see `robodyn.engines.scan.trees.prefix_scans`.
            block: length of the blocks of the kernel "blocked".

        Raises:
            ArgumentError: the operator has no inverse or identity, raises, or returns another shape; `data` has another
                length; or the kernel is unknown.
        """
        work = operator_of(op, inverse, identity)
        values, kernel, block = self._checked(work, data, inclusive, kernel, block)
        n, (lp, rp) = len(self), self._steps
        tour = library(values).empty((values.shape[0], 2 * n, *values.shape[2:]), values.dtype)
        put(tour, lp, values)
        put(tour, rp, work.inverse(values))
        prefixes = self._tour.scan(work, tour, kernel, block=block)
        if inclusive:
            return values_of(work, taken(prefixes, lp))
        return values_of(work, _before(work, prefixes, *self._before_steps))

    def leaffix(
        self,
        op: Semigroup | Callable[[Array, Array], Array],
        data: Array,
        inverse: Callable[[Array], Array] | None = None,
        identity: Any = None,
        *,
        inclusive: bool = True,
        kernel: str = "blocked",
        block: int = BLOCK,
    ) -> Array:
        """For each body, `op` over its subtree in depth-first order, including the body itself if `inclusive`.

        Parameters and errors are those of `rootfix`. Here the values at rp would be identities, so they are left out,
        and the scan runs over the n bodies in depth-first order.
        """
        work = operator_of(op, inverse, identity)
        values, kernel, block = self._checked(work, data, inclusive, kernel, block)
        order, first, last = self._spans
        prefixes = self._walk.scan(work, taken(values, order), kernel, block=block)
        left = _before(work, prefixes, *self._before_spans) if inclusive else taken(prefixes, first)
        return values_of(work, work.compose(work.inverse(left), taken(prefixes, last)))

    def _checked(
        self, work: Semigroup | Callables, data: Any, inclusive: Any, kernel: Any, block: Any
    ) -> tuple[Array, str, int]:
        flag("inclusive", inclusive)
        one_of("kernel", kernel, KERNELS)
        if kernel in PLAIN_KERNELS and not work.plain:
            raise ArgumentError(
                f"kernel: got {kernel!r} for the operator {work.name!r}; it scans plain sums, such as "
                f"robodyn.engines.scan.sums(6); allowed here: {', '.join(map(repr, KERNELS[:3]))}"
            )
        return elements_of(work, data, len(self)), kernel, count("block", block, 2, LONGEST_BLOCK)


def _before(work: Semigroup | Callables, prefixes: Array, steps: Indices, first: Indices) -> Array:
    """The prefixes that end at `steps`. Bodies `first` get the identity."""
    result = taken(prefixes, steps)
    result[:, first] = work.identities(prefixes, first.size)
    return result
