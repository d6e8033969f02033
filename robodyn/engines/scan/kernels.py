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

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np

from robodyn.arguments import Array
from robodyn.engines.scan.elements import library
from robodyn.tree import Indices

KERNELS = ("hillis_steele", "blelloch", "blocked", "native", "mapped")
PLAIN_KERNELS = ("native", "mapped")
"""Kernels for plain sums; where an operator is another one, or there are several segments, `blocked` takes over."""
BLOCK = 64
"""Length of a block where none is given: the best of those that the thesis compares."""

Compose: TypeAlias = Callable[[Array, Array], Array]


class Operator(Protocol):
    """What kernels ask of an operator (`robodyn.engines.scan.semigroups.Semigroup` has it)."""

    @property
    def plain(self) -> bool:
        """Whether it is the sum of numbers."""

    def compose(self, a: Array, b: Array) -> Array:
        """a followed by b, element by element along axis 1; of one element of `a` all of `b` may share."""


class Segments:
    """A sequence cut into segments, and how to scan each of them for itself.

    Args:
        lengths: of the segments, in order; at least 1 each.
    """

    def __init__(self, lengths: Any) -> None:
        self.lengths: Indices = np.asarray(lengths, dtype=np.intp)
        self.starts: Indices = (
            np.concatenate(([0], np.cumsum(self.lengths)[:-1])) if self.lengths.size else self.lengths
        )
        self.n = int(self.lengths.sum())
        self._plans: dict[int, _Blocks] = {}

    @cached_property
    def position(self) -> Indices:
        """(n,) place of each element in its segment."""
        return np.arange(self.n) - np.repeat(self.starts, self.lengths)

    @cached_property
    def reversed(self) -> Segments:
        """The segments of the sequence read backwards."""
        return Segments(self.lengths[::-1])

    def blocks(self, length: int) -> _Blocks:
        """The segments cut into blocks of at most `length`."""
        if length not in self._plans:
            self._plans[length] = _Blocks(self, length)
        return self._plans[length]

    def scan(
        self, op: Operator, elements: Array, kernel: str = "blocked", *, block: int = BLOCK, backwards: bool = False
    ) -> Array:
        """Inclusive prefixes (size, n, ...) of elements (size, n, ...) within each segment.

        `backwards`: suffixes instead, element i being composed of i, i + 1, ... up to the end of its segment.
        """
        if not backwards:
            return self._scan(op, op.compose, elements, kernel, block)
        found = self.reversed._scan(op, lambda a, b: op.compose(b, a), elements[:, ::-1], kernel, block)
        return found[:, ::-1]

    def _scan(self, op: Operator, compose: Compose, elements: Array, kernel: str, block: int) -> Array:
        if self.n == self.lengths.size:
            return elements
        if kernel in PLAIN_KERNELS and op.plain and self.lengths.size == 1:
            return _native(elements) if kernel == "native" else _per_component(elements)
        if kernel == "hillis_steele":
            return self._hillis_steele(compose, elements)
        if kernel == "blelloch":
            return _blelloch(compose, elements, self.position == 0)
        return self._blocked(compose, elements, block)

    def _hillis_steele(self, compose: Compose, elements: Array) -> Array:
        """In round d every prefix of up to d elements is joined by the one that ends d before it."""
        distance, longest = 1, int(self.lengths.max())
        while distance < longest:
            rows = np.flatnonzero(self.position >= distance)
            joined = elements.copy()
            joined[:, rows] = compose(elements[:, rows - distance], elements[:, rows])
            elements, distance = joined, 2 * distance
        return elements

    def _blocked(self, compose: Compose, elements: Array, length: int) -> Array:
        plan = self.blocks(length)
        out: Array = library(elements).empty_like(elements)
        running = elements[:, plan.rows[0]]
        out[:, plan.rows[0]] = running
        for rows in plan.rows[1:]:
            running = compose(running[:, : rows.size], elements[:, rows])
            out[:, rows] = running
        if plan.carries is not None:
            totals = plan.carries._scan(_ANY, compose, out[:, plan.last_rows], "blocked", length)
            out[:, plan.carried_rows] = compose(totals[:, plan.carry_of_row], out[:, plan.carried_rows])
        return out


class _Blocks:
    """Segments cut into blocks. `rows[k]` are the k-th elements of all blocks that have one, longest blocks first."""

    def __init__(self, segments: Segments, length: int) -> None:
        counts = -(-segments.lengths // length)
        first = np.concatenate(([0], np.cumsum(counts)[:-1]))
        within = np.arange(int(counts.sum())) - np.repeat(first, counts)
        starts = np.repeat(segments.starts, counts) + within * length
        lengths = np.minimum(length, np.repeat(segments.starts + segments.lengths, counts) - starts)
        order = np.argsort(-lengths, kind="stable")
        by_length, sizes = starts[order], -lengths[order]
        taken = (int(np.searchsorted(sizes, -k, side="left")) for k in range(int(lengths.max())))
        self.rows = [by_length[:n] + k for k, n in enumerate(taken)]
        self.carries: Segments | None = None
        several = counts > 1
        if several.any():
            # Totals of all blocks but the last of their segment, and the rows that each total is carried into.
            giving = np.repeat(several, counts) & (within < np.repeat(counts, counts) - 1)
            self.carries = Segments(counts[several] - 1)
            self.last_rows = (starts + lengths - 1)[giving]
            taking = within > 0
            self.carried_rows = _ranges(starts[taking], lengths[taking])
            self.carry_of_row = np.repeat(np.arange(int(taking.sum())), lengths[taking])


class _AnyOperator:
    """Stands for an operator of which only its composition is known."""

    plain = False

    def compose(self, a: Array, b: Array) -> Array:
        raise NotImplementedError


_ANY = _AnyOperator()


def _ranges(starts: Indices, lengths: Indices) -> Indices:
    """start, start + 1, ... of every range, one after another."""
    before = np.cumsum(lengths) - lengths
    found: Indices = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return found


def _blelloch(compose: Compose, elements: Array, first: Array) -> Array:
    """Prefixes by pairs; `first` marks elements that start a segment, into which nothing is carried."""
    n = elements.shape[1]
    if n == 1:
        return elements
    even, odd = elements[:, 0 : n - 1 : 2], elements[:, 1::2]
    pairs = odd.copy()
    open_pairs = np.flatnonzero(~first[1::2])
    pairs[:, open_pairs] = compose(even[:, open_pairs], odd[:, open_pairs])
    ends = _blelloch(compose, pairs, first[0 : n - 1 : 2] | first[1::2])
    out = elements.copy()
    out[:, 1::2] = ends
    carried = 2 + 2 * np.flatnonzero(~first[2::2])
    out[:, carried] = compose(ends[:, carried // 2 - 1], elements[:, carried])
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
