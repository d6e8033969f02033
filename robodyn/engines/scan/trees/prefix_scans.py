"""Scans: all prefixes of a sequence of elements under an associative operator.

The thesis of Lynghus compares these kernels (section 5.2.4, figures 11 and 12). Here each is implemented once for all
operators, and for sequences that are divided into segments with separate scans:

- `hillis_steele`: log2 n rounds over all elements (Hillis, Steele 1986): n log2 n compositions, the fewest rounds.
- `blelloch`: sums of pairs up a binary tree and prefixes down it (Blelloch 1990): 2n compositions, 2 log2 n rounds.
- `blocked`: blocks are scanned sequentially, all blocks in parallel. A scan of the blocks' totals gives the carry of
  each block: 2n compositions, n / `block` of them at a time.
- `native`: one cumulative sum of the array library over whole elements. For plain sums of one segment only.
- `mapped`: one cumulative sum for each component. For plain sums of one segment only.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from robodyn.core.tree import Indices
from robodyn.engines.scan.elements import device_of, library
from robodyn.engines.scan.semigroups import Semigroup
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property

KERNELS = ("hillis_steele", "blelloch", "blocked", "native", "mapped")
PLAIN_KERNELS = ("native", "mapped")
"""Kernels for plain sums. `blocked` replaces them for other operators and for several segments."""
BLOCK = 64
"""Default length of a block, the best of those that the thesis compares."""
LONGEST_BLOCK = 1 << 20


class Compose(Protocol):
    """Composes elements a followed by elements b, element by element along axis 1."""

    def __call__(self, a: Array, b: Array, out: Array | None = None) -> Array:
        """Compose. A single element in `a` broadcasts. `out` must not share memory with a and b."""


class Operator(Protocol):
    """The interface of operators that kernels need (`robodyn.engines.scan.semigroups.Semigroup` has it)."""

    @property
    def plain(self) -> bool:
        """Whether the operator is the sum of numbers."""

    @property
    def compose(self) -> Compose:
        """The operator on arrays of elements."""


class Segments:
    """A sequence that is divided into segments, each of which is scanned separately.

    Args:
        lengths: lengths of the segments, in order; at least 1 each.
        kept: True if later calls scan the same segments. A device then keeps its index arrays for them.
    """

    def __init__(self, lengths: Any, *, kept: bool = True) -> None:
        self.kept = kept
        self.lengths: Indices = np.asarray(lengths, dtype=np.intp)
        self.starts: Indices = np.cumsum(self.lengths) - self.lengths
        self.n = int(self.lengths.sum())
        self._plans: dict[tuple[int, bool], _Blocks] = {}

    @cached_property
    def position(self) -> Indices:
        """(n,) index of each element in its segment."""
        return np.arange(self.n) - np.repeat(self.starts, self.lengths)

    @cached_property
    def left(self) -> Indices:
        """(n,) number of elements that follow each element in its segment."""
        return np.repeat(self.lengths, self.lengths) - 1 - self.position

    @cached_property
    def reversed(self) -> Segments:
        """The segments of the reversed sequence."""
        return Segments(self.lengths[::-1])

    def rounds(self, block: int) -> int:
        """Number of sequential compositions in a blocked scan."""
        longest = int(self.lengths.max(initial=0))
        if longest <= block:
            return longest
        counts = -(-self.lengths // block)
        return 2 * block + Segments(counts[counts > 1] - 1).rounds(block)

    def scan(
        self, op: Operator, elements: Array, kernel: str = "blocked", *, block: int = BLOCK, backwards: bool = False
    ) -> Array:
        """Inclusive prefixes (size, n, ...) of elements (size, n, ...) within each segment.

        `backwards`: True for suffixes: result i composes elements i, i + 1, ... up to the end of the segment. Arrays on
        the device of a call use a kernel for GPUs instead of `kernel`.
        """
        if self.n == self.lengths.size:
            return elements
        device = device_of(elements)
        if device is not None and isinstance(op, Semigroup):
            return device.scan(op, self, elements, backwards)
        if kernel in PLAIN_KERNELS and op.plain and self.lengths.size == 1:
            scanned = _native if kernel == "native" else _per_component
            return scanned(elements[:, ::-1])[:, ::-1] if backwards else scanned(elements)
        compose = op.compose
        if kernel not in ("hillis_steele", "blelloch"):
            return self._blocked(_swapped(compose) if backwards else compose, elements, block, backwards)
        run = _hillis_steele if kernel == "hillis_steele" else _blelloch
        if not backwards:
            return run(compose, elements, self)
        return run(_swapped(compose), elements[:, ::-1], self.reversed)[:, ::-1]

    def _blocked(self, compose: Compose, elements: Array, length: int, backwards: bool) -> Array:
        """Compute the totals of blocks, scan the totals, and scan each block, starting from the total before it."""
        if (length, backwards) not in self._plans:
            self._plans[length, backwards] = _Blocks(self.reversed if backwards else self, length, backwards)
        plan, xp = self._plans[length, backwards], library(elements)
        # In the plan's order, the k-th elements of all blocks are adjacent.
        arranged = xp.take(elements, plan.order, axis=1)
        prefixes = xp.empty_like(arranged)
        prefixes[:, : plan.bounds[1]] = arranged[:, : plan.bounds[1]]
        if plan.carries is not None:
            totals = plan.totals(compose, arranged, prefixes)
            before = plan.carries._blocked(compose, totals, length, False)
            prefixes[:, plan.carried] = compose(before, xp.take(arranged, plan.carried, axis=1))
        plan.run(compose, arranged, prefixes)
        return xp.take(prefixes, plan.places, axis=1)  # type: ignore[no-any-return]


def _swapped(compose: Compose) -> Compose:
    return lambda a, b, out=None: compose(b, a, out)


class _Blocks:
    """Segments that are cut into blocks, the longest blocks first.

    `order`: the elements by their position in blocks; `order[bounds[k]:bounds[k + 1]]` are the k-th elements of all
    blocks that have one. `places`: the inverse of `order`. `carries`: the segments for the scan of totals, of all
    blocks that are followed by another block of their segment, in the sequence's order; None if there are none.
    `carried`: the following blocks, as indices of blocks.
    """

    def __init__(self, segments: Segments, length: int, backwards: bool) -> None:
        counts = -(-segments.lengths // length)
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = np.repeat(segments.starts, counts) + within * length
        lengths = np.minimum(length, np.repeat(segments.starts + segments.lengths, counts) - starts)
        by_length = np.argsort(-lengths, kind="stable")
        starts, sizes = starts[by_length], lengths[by_length]
        taken = np.searchsorted(-sizes, -np.arange(int(sizes[0])), side="left")
        self.bounds = [0, *np.cumsum(taken).tolist()]
        order = np.concatenate([starts[:n] + k for k, n in enumerate(taken.tolist())])
        self.order: Indices = segments.n - 1 - order if backwards else order
        self.places: Indices = np.empty(segments.n, np.intp)
        self.places[self.order] = np.arange(segments.n)
        self.carries: Segments | None = None
        several = counts > 1
        if several.any():
            place = np.empty(within.size, np.intp)
            place[by_length] = np.arange(within.size)
            self.carries = Segments(counts[several] - 1)
            self.carried = place[within > 0]
            self._giving = place[within < np.repeat(counts, counts) - 1]
            self._whole = int(taken[-1]) if int(sizes[0]) == length else 0

    def run(self, compose: Compose, given: Array, found: Array) -> None:
        """Compute the prefixes of all blocks, from the first prefixes of blocks, which are in `found` already."""
        for a, b, c in zip(self.bounds[:-2], self.bounds[1:-1], self.bounds[2:], strict=True):
            compose(found[:, a : a + c - b], given[:, b:c], found[:, b:c])

    def totals(self, compose: Compose, given: Array, scratch: Array) -> Array:
        """Totals of the blocks that are followed by others, in the sequence's order. All of them have full length."""
        bounds, whole = self.bounds, self._whole
        running = given[:, :whole]
        for b in bounds[1:-1]:
            into = scratch[:, b : b + whole]
            running = compose(running, given[:, b : b + whole], into)
        return library(given).take(running, self._giving, axis=1)  # type: ignore[no-any-return]


def _hillis_steele(compose: Compose, elements: Array, segments: Segments) -> Array:
    """Each round doubles the distance d: a prefix of up to d elements is composed with the one that ends d earlier."""
    xp, distance, longest = library(elements), 1, int(segments.lengths.max())
    while distance < longest:
        rows = np.flatnonzero(segments.position >= distance)
        joined = elements.copy()
        joined[:, rows] = compose(xp.take(elements, rows - distance, axis=1), xp.take(elements, rows, axis=1))
        elements, distance = joined, 2 * distance
    return elements


def _blelloch(compose: Compose, elements: Array, segments: Segments) -> Array:
    return _by_pairs(compose, elements, segments.position == 0)


def _by_pairs(compose: Compose, elements: Array, first: Array) -> Array:
    """Prefixes by recursion over pairs. `first` marks elements that start a segment and receive no carry."""
    xp, n = library(elements), elements.shape[1]
    if n == 1:
        return elements
    open_pairs = 1 + 2 * np.flatnonzero(~first[1::2])
    pairs = elements[:, 1::2].copy()
    both = xp.take(elements, open_pairs - 1, axis=1), xp.take(elements, open_pairs, axis=1)
    pairs[:, open_pairs // 2] = compose(*both)
    ends = _by_pairs(compose, pairs, first[0 : n - 1 : 2] | first[1::2])
    out = elements.copy()
    out[:, 1::2] = ends
    carried = 2 + 2 * np.flatnonzero(~first[2::2])
    out[:, carried] = compose(xp.take(ends, carried // 2 - 1, axis=1), xp.take(elements, carried, axis=1))
    return out


def _native(elements: Array) -> Array:
    """A cumulative sum over elements with contiguous components."""
    xp = library(elements)
    return xp.moveaxis(xp.cumsum(xp.ascontiguousarray(xp.moveaxis(elements, 0, -1)), axis=0), -1, 0)  # type: ignore[no-any-return]


def _per_component(elements: Array) -> Array:
    xp = library(elements)
    out: Array = xp.empty(elements.shape, elements.dtype)
    for target, component in zip(out, elements, strict=True):
        xp.cumsum(component, axis=0, out=target)
    return out
