"""Vector trees: a tree as the parentheses of its Euler tour, on which paths and subtrees are scans.

Blelloch, Vector Models for Data-Parallel Computing (1990); Lynghus, Data Parallel Rigid Body Dynamics, section 4.6.
Body i is entered at step lp[i] of the tour and left at rp[i]. A value that is put down at lp and taken back (its
inverse) at rp leaves of every prefix the path that is open there; the difference of two prefixes is a subtree. Hence
operators need an inverse, and what is taken back leaves its rounding behind: see
`robodyn.engines.scan.trees.heavy_paths` for the other way.
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
        parent: (n,) integers, -1 for children of the world and parent[i] < i elsewhere. Several children of the world
            make a forest, whose trees hang on one more root, the world, that holds the identity and that no result
            shows. Or a `robodyn.core.tree.Tree`.
        where: puts indices where arrays are, if that is not NumPy.

    Raises:
        ArgumentError: not such an array; names the entry.
    """

    def __init__(self, parent: ArrayLike | Tree, where: Callable[[Array], Array] | None = None) -> None:
        self.tree = parent if isinstance(parent, Tree) else Tree(parent)
        self._where = where

    def __len__(self) -> int:
        return len(self.tree)

    @property
    def lp(self) -> Indices:
        """(n,) step of the Euler tour at which each body is entered."""
        return self.tree.euler_tour[0]

    @property
    def rp(self) -> Indices:
        """(n,) step of the Euler tour at which each body is left."""
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
        """(bodies, starts): kappa(i), from the root's child down to i, is bodies[starts[i]:starts[i + 1]]."""
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
        """lp and rp, where arrays are."""
        return self._placed(self.lp), self._placed(self.rp)

    @cached_property
    def _spans(self) -> tuple[Indices, Indices, Indices]:
        """The depth-first order, and the ranks in it of the first and the last body of each subtree, where arrays
        are."""
        first = self.tree.preorder_rank
        last = first + self.subtree_size - 1
        return self._placed(self.tree.preorder), self._placed(first), self._placed(last)

    @cached_property
    def _before_steps(self) -> tuple[Indices, Indices]:
        """The step before each lp, and bodies that have none, where arrays are."""
        return self._preceding(self.lp)

    @cached_property
    def _before_spans(self) -> tuple[Indices, Indices]:
        """The same of ranks in the depth-first order."""
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
        """For each body, `op` over the bodies on its path from the root, the body itself included if `inclusive`.

        Args:
            op: a `Semigroup`; or a function of two arrays (m, ...) of elements, the first nearer the root, that is
                associative and works on all m at once.
            data: (n, ...) a value for each body; of a `Semigroup` (size, n, ...).
            inverse: of values (m, ...), with op(x, inverse(x)) = identity. A `Semigroup` has its own.
            identity: one value. Likewise.
            kernel: see `robodyn.engines.scan.trees.prefix_scans`.
            block: length of the blocks of "blocked".

        Raises:
            ArgumentError: an operator without inverse or identity, one that raises or returns another shape, `data` of
                another length, no such kernel.
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
        """For each body, `op` over its subtree in depth-first order, the body itself included if `inclusive`.

        Arguments and errors as of `rootfix`. Only values at lp take part in the tour's prefixes, those at rp being the
        identity: they are left out, and the scan runs over the n bodies in depth-first order.
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
    """Prefixes that end at the given steps; the identity where there is none."""
    found = taken(prefixes, steps)
    found[:, first] = work.identities(prefixes, first.size)
    return found
