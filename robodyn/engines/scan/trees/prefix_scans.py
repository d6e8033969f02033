"""Scans: all prefixes of a sequence of elements, by an associative operator.

The kernels are those that the thesis of Lynghus compares (section 5.2.4, figures 11 and 12), here of one text for all
operators and for sequences that are cut into segments, each scanned for itself:

- `hillis_steele`: log2 n rounds over everything (Hillis, Steele 1986): n log2 n compositions, the shortest chain.
- `blelloch`: sums of pairs up a binary tree and prefixes down it (Blelloch 1990): 2n compositions, 2 log2 n rounds.
- `blocked`: blocks are scanned element by element, all blocks side by side; their totals are scanned in turn and
  carried in: 2n compositions, n / `block` of them at a time.
- `native`: the cumulative sum of the array library, over elements as they stand. Plain sums of one segment only.
- `mapped`: one cumulative sum for each component. Likewise.
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
"""Kernels for plain sums; where an operator is another one, or there are several segments, `blocked` takes over."""
BLOCK = 64
"""Length of a block where none is given: the best of those that the thesis compares."""
LONGEST_BLOCK = 1 << 20


class Compose(Protocol):
    """a followed by b, element by element along axis 1, into `out` where it is given; it shares no memory with them."""

    def __call__(self, a: Array, b: Array, out: Array | None = None) -> Array:
        """Of one element of `a` all of `b` may share."""


class Operator(Protocol):
    """What kernels ask of an operator (`robodyn.engines.scan.semigroups.Semigroup` has it)."""

    @property
    def plain(self) -> bool:
        """Whether it is the sum of numbers."""

    @property
    def compose(self) -> Compose:
        """The operator."""


class Segments:
    """A sequence cut into segments, and how to scan each of them for itself.

    Args:
        lengths: of the segments, in order; at least 1 each.
        kept: whether later calls scan them too: a device then keeps what it has to know of them.
    """

    def __init__(self, lengths: Any, *, kept: bool = True) -> None:
        self.kept = kept
        self.lengths: Indices = np.asarray(lengths, dtype=np.intp)
        self.starts: Indices = np.cumsum(self.lengths) - self.lengths
        self.n = int(self.lengths.sum())
        self._plans: dict[tuple[int, bool], _Blocks] = {}

    @cached_property
    def position(self) -> Indices:
        """(n,) place of each element in its segment."""
        return np.arange(self.n) - np.repeat(self.starts, self.lengths)

    @cached_property
    def left(self) -> Indices:
        """(n,) elements that follow each in its segment."""
        return np.repeat(self.lengths, self.lengths) - 1 - self.position

    @cached_property
    def reversed(self) -> Segments:
        """The segments of the sequence read backwards."""
        return Segments(self.lengths[::-1])

    def rounds(self, block: int) -> int:
        """Compositions one after another in a blocked scan."""
        longest = int(self.lengths.max(initial=0))
        if longest <= block:
            return longest
        counts = -(-self.lengths // block)
        return 2 * block + Segments(counts[counts > 1] - 1).rounds(block)

    def scan(
        self, op: Operator, elements: Array, kernel: str = "blocked", *, block: int = BLOCK, backwards: bool = False
    ) -> Array:
        """Inclusive prefixes (size, n, ...) of elements (size, n, ...) within each segment.

        `backwards`: suffixes instead, element i being composed of i, i + 1, ... up to the end of its segment. Arrays
        on the device of a call have a kernel of their own, whatever `kernel` says.
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
        """Totals of blocks, a scan of these, and then the blocks again, each from what comes before it."""
        if (length, backwards) not in self._plans:
            self._plans[length, backwards] = _Blocks(self.reversed if backwards else self, length, backwards)
        plan, xp = self._plans[length, backwards], library(elements)
        # Position by position: the k-th elements of all blocks side by side.
        given = xp.take(elements, plan.order, axis=1)
        found = xp.empty_like(given)
        found[:, : plan.bounds[1]] = given[:, : plan.bounds[1]]
        if plan.carries is not None:
            totals = plan.totals(compose, given, found)
            before = plan.carries._blocked(compose, totals, length, False)
            found[:, plan.carried] = compose(before, xp.take(given, plan.carried, axis=1))
        plan.run(compose, given, found)
        return xp.take(found, plan.places, axis=1)  # type: ignore[no-any-return]


def _swapped(compose: Compose) -> Compose:
    return lambda a, b, out=None: compose(b, a, out)


class _Blocks:
    """Segments cut into blocks, longest blocks first.

    `order` lists the elements position by position, the k-th of all blocks that have one being `order[bounds[k]:
    bounds[k + 1]]`; `places` leads back. `carries`: how to scan the totals of blocks that others of their segment
    follow, in the sequence's order; `carried`: the followers, as places among blocks.
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
        """Prefixes of all blocks, from what `found` holds of their first elements."""
        for a, b, c in zip(self.bounds[:-2], self.bounds[1:-1], self.bounds[2:], strict=True):
            compose(found[:, a : a + c - b], given[:, b:c], found[:, b:c])

    def totals(self, compose: Compose, given: Array, scratch: Array) -> Array:
        """Totals of the blocks that others follow, which are all of full length, in the sequence's order."""
        bounds, whole = self.bounds, self._whole
        running = given[:, :whole]
        for b in bounds[1:-1]:
            into = scratch[:, b : b + whole]
            running = compose(running, given[:, b : b + whole], into)
        return library(given).take(running, self._giving, axis=1)  # type: ignore[no-any-return]


def _hillis_steele(compose: Compose, elements: Array, segments: Segments) -> Array:
    """In round d every prefix of up to d elements is joined by the one that ends d before it."""
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
    """Prefixes by pairs; `first` marks elements that start a segment, into which nothing is carried."""
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
    """Over elements as they stand in memory, all components of one after another."""
    xp = library(elements)
    return xp.moveaxis(xp.cumsum(xp.ascontiguousarray(xp.moveaxis(elements, 0, -1)), axis=0), -1, 0)  # type: ignore[no-any-return]


def _per_component(elements: Array) -> Array:
    xp = library(elements)
    out: Array = xp.empty(elements.shape, elements.dtype)
    for target, component in zip(out, elements, strict=True):
        xp.cumsum(component, axis=0, out=target)
    return out
