"""Kernels that call other kernels one after the other: for vectors of states, for unit vectors, or step after step.

Each is a kernel like any other, `void kernel(table, first, last, workspace)`, so threads and quick calls need not know.
A call has a table of its own, which is filled for each round from `Entry`s: with the user's arrays, places in the
workspace, or words. Behind the arrays of its own table a kernel finds the descriptor, `Calls`, then what it clears, and
its calls, each with its entries behind it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from robodyn.compile.loops.language import (
    Address,
    Array,
    Routine,
    Static,
    Word,
    address,
    array,
    call,
    chosen,
    clear,
    fetch,
    processor,
    routine,
)
from robodyn.compile.loops.llvm import printed_module
from robodyn.compile.loops.table import Argument
from robodyn.internals import arguments
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import MAX_FETCHED_ROWS

LINE = 64
USER, ROW, WORKSPACE, WORDS, BATCH = range(5)
"""What an entry is: an array of the user's; the row of a round in it; a place in the workspace; two words; a word, and
the rows of the whole batch."""


class Calls(ctypes.Structure):
    """How many calls there are, where in the workspace their tables and their own workspace are, and how many places
    are cleared."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("count", "tables", "own", "cleared"))


class Piece(ctypes.Structure):
    """Bytes of the workspace."""

    _fields_ = (("offset", ctypes.c_int64), ("size", ctypes.c_int64))


class Call(ctypes.Structure):
    """A kernel's address, the rows it is called for, and how many entries its table has."""

    _fields_ = (("kernel", ctypes.c_void_p), *((name, ctypes.c_int64) for name in ("first", "end", "entries")))


class Entry(ctypes.Structure):
    """What stands in a table: the kind, an array's number or what the first word is made of, the second word, and how
    far the first one moves from round to round."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("kind", "place", "stride", "move"))


@dataclass(frozen=True)
class Called:
    """A call as it is planned: entries as tuples (kind, place, stride, move)."""

    kernel: int
    entries: Sequence[tuple[int, int, int, int]]
    workspace_bytes: int
    first: int = 0
    end: int = 0


class CallsPlan:
    """The descriptor of some calls, and the workspace that they take behind `begin` bytes of other things."""

    def __init__(self, calls: Sequence[Called], begin: int = 0, cleared: Iterable[tuple[int, int]] = ()) -> None:
        pieces = list(cleared)
        own = lines(begin + ctypes.sizeof(Argument) * max(len(each.entries) for each in calls))
        self.workspace_bytes = workspace_of(((len(each.entries), each.workspace_bytes) for each in calls), begin)
        words = [len(calls), begin, own, len(pieces), *(word for piece in pieces for word in piece)]
        for each in calls:
            words += [each.kernel, each.first, each.end, len(each.entries)]
            words += [word for entry in each.entries for word in entry]
        self.descriptor: arguments.Array = np.array([word % (1 << 64) for word in words], np.uint64).view(np.int64)


def workspace_of(calls: Iterable[tuple[int, int]], begin: int = 0) -> int:
    """Bytes of workspace that calls take, each with some entries and a workspace of its own."""
    entries, sizes = zip(*calls, strict=True)
    return lines(begin + ctypes.sizeof(Argument) * max(entries)) + lines(max(sizes))


def lines(size: int) -> int:
    """Bytes of the cache lines that so many bytes take."""
    return -(-size // LINE) * LINE


def constants_of(words: Sequence[int], kind: int = WORDS) -> list[tuple[int, int, int, int]]:
    """Entries for a kernel's constants."""
    return [(kind, first, second, 0) for first, second in zip(words[0::2], words[1::2], strict=True)]


def run_calls(
    table: Array[Argument],
    calls: Array[Calls],
    first: Word | None,
    end: Word | None,
    workspace: Address,
    batch: Word,
    round: Word,
) -> None:
    """Call each kernel for rows `first` to `end - 1`; None: for those that the call says."""
    inner, own = array(Argument, workspace + calls.tables), workspace + calls.own
    at = array(Call, array(Piece, calls + 1) + calls.cleared)
    for _ in range(calls.count):
        entries = array(Entry, at + 1)
        for e in range(at.entries):
            entry = entries[e]
            kind, place, move = entry.kind, entry.place, entry.move
            is_user, is_row = kind == USER, kind == ROW
            user = table[chosen(is_user | is_row, place, 0)]
            data = chosen(is_user | is_row, user.data, chosen(kind == WORKSPACE, workspace + place, address(place)))
            inner[e].data = data + round * chosen(is_row, user.stride, move)
            inner[e].stride = chosen(is_user, user.stride, chosen(kind == BATCH, batch, entry.stride))
        if first is None:
            call(None, at.kernel, inner, at.first, at.end, own)
        else:
            call(None, at.kernel, inner, first, end, own)
        at = array(Call, entries + at.entries)


def clear_pieces(calls: Array[Calls], workspace: Address) -> None:
    """What nothing writes, and others read as zeros."""
    pieces = array(Piece, calls + 1)
    for k in range(calls.cleared):
        clear(workspace + pieces[k].offset, pieces[k].size)


def fetch_rows(table: Array[Argument], inputs: Word, row: Word, rows: Word) -> None:
    """Rows of inputs on their way to the cache while those before them are at work: they are too few for the processor
    to see them coming."""
    for k in range(inputs):
        stride = table[k].stride
        size, begin = stride * rows, table[k].data + stride * row
        if size > 0 and size <= MAX_FETCHED_ROWS:
            for b in range(0, size, LINE):
                fetch(begin + b)


@routine
def by_vectors(
    table: Array[Argument],
    first: Word,
    last: Word,
    workspace: Address,
    inputs: Static[int],
    arrays: Static[int],
    width: Static[int],
    fence: Static[str],
) -> None:
    """All calls for one vector of W states after another. What lies between the calls is vectors of states, which stays
    in the cache. The second word of the descriptor's entry is the number of rows of the whole batch, or 0 where nobody
    said. `fence`: what waits for lines that are on their way past the caches, or nothing."""
    calls, batch = array(Calls, table[arrays].data), table[arrays].stride
    clear_pieces(calls, workspace)
    row = first
    while row < last:
        stop = min(row + width, last)
        fetch_rows(table, inputs, stop, min(last - stop, width))
        run_calls(table, calls, row, stop, workspace, batch, 0)
        row = stop
    if fence:
        processor(fence)


@routine
def by_states(table: Array[Argument], first: Word, last: Word, workspace: Address, arrays: Static[int]) -> None:
    """All calls for one state after another, each for as many unit vectors as the call says."""
    calls = array(Calls, table[arrays].data)
    for row in range(first, last):
        run_calls(table, calls, None, None, workspace, 0, row)


@routine
def by_steps(table: Array[Argument], first: Word, last: Word, workspace: Address) -> None:
    """All calls for all rows, again and again on arrays that move on. The second word of the descriptor's entry is the
    number of steps: threads share the rows of a batch, and each takes its rows through all steps while they are in its
    cache."""
    calls, steps = array(Calls, table[0].data), table[0].stride
    for step in range(steps):
        run_calls(table, calls, first, last, workspace, 0, step)


def calls_module(function: Routine[..., Any], **known: Any) -> str:
    """The module of one of these."""
    facts = "calls", function.__name__, known
    return printed_module(facts, {}, lambda module: module.export(function, "kernel", **known))
