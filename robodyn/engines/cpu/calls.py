"""Kernels that call other kernels: for one vector of states after another, for unit vectors, or step after step.

They have the usual signature, `void kernel(table, first, last, workspace)`, so threads and built-in functions need no
special case. Each inner call has an argument table in the workspace. It is filled in each round from a list of `Entry`,
with user arrays, addresses in the workspace, or constants. After its arrays the outer table has the address of a
descriptor: `Calls`, pieces to clear, then the calls, each followed by its entries.
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
"""Kinds of entries: a user array; the round's row of a user array; an address in the workspace; two constant words; a
constant word and the number of rows of the whole batch."""


class Calls(ctypes.Structure):
    """Number of calls; offsets in the workspace of their tables (`tables`) and of their own workspaces (`own`); number
    of pieces to clear."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("count", "tables", "own", "cleared"))


class Piece(ctypes.Structure):
    """A piece of the workspace, in bytes."""

    _fields_ = (("offset", ctypes.c_int64), ("size", ctypes.c_int64))


class Call(ctypes.Structure):
    """A kernel's address, the rows to call it for, and the number of entries of its table."""

    _fields_ = (("kernel", ctypes.c_void_p), *((name, ctypes.c_int64) for name in ("first", "end", "entries")))


class Entry(ctypes.Structure):
    """An entry of a table. `place`: number of a user array, offset in the workspace, or first constant; `stride`:
    second word; `move`: bytes that the first word advances per round."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("kind", "place", "stride", "move"))


HEADER_WORDS, CALL_WORDS, ENTRY_WORDS = (ctypes.sizeof(each) // 8 for each in (Calls, Call, Entry))


@dataclass(frozen=True)
class Called:
    """A planned call. Entries are tuples (kind, place, stride, move)."""

    kernel: int
    entries: Sequence[tuple[int, int, int, int]]
    workspace_bytes: int
    first: int = 0
    end: int = 0


class CallsPlan:
    """The descriptor of some calls, and the workspace that they need after the first `begin` bytes."""

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
    """Bytes of workspace for calls, given the number of entries and the workspace of each."""
    entries, sizes = zip(*calls, strict=True)
    return lines(begin + ctypes.sizeof(Argument) * max(entries)) + lines(max(sizes))


def lines(size: int) -> int:
    """`size` bytes, rounded up to whole cache lines."""
    return -(-size // LINE) * LINE


def constants_of(words: Sequence[int], kind: int = WORDS) -> list[tuple[int, int, int, int]]:
    """Entries for a kernel's constant words."""
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
    """Call each kernel for rows `first` to `end - 1`; None: for the rows that its descriptor says."""
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
    """Clear pieces of the workspace that kernels read as zeros but never write."""
    pieces = array(Piece, calls + 1)
    for k in range(calls.cleared):
        clear(workspace + pieces[k].offset, pieces[k].size)


def fetch_rows(table: Array[Argument], inputs: Word, row: Word, rows: Word) -> None:
    """Prefetch rows of inputs while the rows before them are processed. The hardware prefetcher does not recognize such
    short runs."""
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
    """All calls for one vector of W states after another. Data between the calls are vectors of states, which stay in
    the cache. The second word of the descriptor's entry is the number of rows of the whole batch, or 0 if it is
    unknown."""
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
    """All calls for one state after another, each for the unit vectors that its descriptor says."""
    calls = array(Calls, table[arrays].data)
    for row in range(first, last):
        run_calls(table, calls, None, None, workspace, 0, row)


@routine
def by_steps(table: Array[Argument], first: Word, last: Word, workspace: Address) -> None:
    """All calls for all rows, repeated for each step on arrays that advance with the steps. The second word of the
    descriptor's entry is the number of steps. Threads share the rows of a batch; each thread takes its rows through all
    steps while they are in its cache."""
    calls, steps = array(Calls, table[0].data), table[0].stride
    for step in range(steps):
        run_calls(table, calls, first, last, workspace, 0, step)


def calls_module(function: Routine[..., Any], **known: Any) -> str:
    """The module of `by_vectors`, `by_states`, `by_steps` or another such function."""
    facts = "calls", function.__name__, known
    return printed_module(facts, {}, lambda module: module.export(function, "kernel", **known))
