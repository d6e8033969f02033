"""Kernels with single-precision arrays that compute in double precision, by calling another kernel for some rows at a
time.

Inputs are exact in double precision, and results are rounded once. Such a kernel has the usual signature, `void
kernel(table, first, last, workspace)`. After the user's arrays its table has the address of the descriptor: `Inner`, a
`Doubles` for each array, and the constant words of the other kernel's table. The workspace begins with that table,
whose arrays are in double precision.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from robodyn.compile.loops.blocks import Number
from robodyn.compile.loops.language import NULL, Address, Array, Static, Word, array, call, convert, routine
from robodyn.compile.loops.llvm import printed_module
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.calls import lines
from robodyn.engines.cpu.chains.plan import StageCall
from robodyn.engines.cpu.native.answers import JointForce
from robodyn.engines.cpu.native.context import Force
from robodyn.engines.cpu.native.joint_forces import DOUBLE, force
from robodyn.internals import arguments
from robodyn.internals.tuning import DOUBLE_BYTES, DOUBLE_ROWS

_BLOCK = 8
"""Numbers that are converted together; a power of two."""


class MixedPrecisionPlan:
    """The descriptor, and the size of the workspace.

    Args:
        sizes: scalars of one state of each array, inputs first.
        inputs: number of inputs.
        call: the kernel in double precision, with the same arrays.
        step: rows that the kernel processes at once; it gets a multiple of them.
        force: damping and friction, subtracted from an input.
    """

    def __init__(
        self, sizes: Sequence[int], inputs: int, call: StageCall, step: int, force: JointForce | None = None
    ) -> None:
        self._kept = force  # keeps its arrays alive
        self._force = Force() if force is None else _force(force)
        fitting = min(DOUBLE_ROWS, DOUBLE_BYTES // max(1, 8 * sum(sizes)))
        rows = max(step, fitting // step * step)
        constants = (*call.constants[:-1], rows) if call.batch else call.constants
        at = lines(16 * len(sizes) + 8 * len(constants))
        words: list[int] = []
        for size in sizes:
            words += (size, at)
            at += lines(8 * size * rows)
        self.workspace_bytes = at + call.workspace_bytes
        taken = 0 if force is None else ctypes.addressof(self._force)
        words = [call.address, inputs, len(sizes), len(constants), at, taken, rows, *words, *constants]
        self.descriptor: arguments.Array = np.array([word % (1 << 64) for word in words], dtype=np.uint64).view(
            np.int64
        )


def _force(force: JointForce) -> Force:
    """The struct that machine code reads."""
    assert force.source is not None
    data = force.damping.ctypes.data, force.friction.ctypes.data
    return Force(force.target, force.source, force.step, force.damping.size, *data)


class Inner(ctypes.Structure):
    """The kernel in double precision: its address, numbers of inputs, of all arrays, and of constant words in its
    table; offset of its own workspace; the law of forces that are subtracted from an input first, or null; and the rows
    of one call."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("inputs", "arrays", "words", "own")),
        ("force", ctypes.POINTER(Force)),
        ("rows", ctypes.c_int64),
    )


class Doubles(ctypes.Structure):
    """Scalars of a state in an array, and the array's offset in the workspace."""

    _fields_ = (("size", ctypes.c_int64), ("offset", ctypes.c_int64))


@routine
def convert_rows(
    source: Address,
    source_stride: Word,
    to: Address,
    to_stride: Word,
    size: Word,
    rows: Word,
    given: Static[Any],
    wanted: Static[Any],
) -> None:
    """Convert rows of numbers to the other precision, in blocks, then the rest one by one. `given`, `wanted`: types of
    a number and of a block."""
    blocks = size & -_BLOCK
    for r in range(rows):
        before, after = source + r * source_stride, to + r * to_stride
        for k in range(0, blocks, _BLOCK):
            block = array(given[1], array(given[0], before) + k)
            array(wanted[1], array(wanted[0], after) + k)[0] = convert(wanted[1], block[0])
        for k in range(blocks, size):
            array(wanted[0], after)[k] = convert(wanted[0], array(given[0], before)[k])


_SINGLES = Number("float"), Number("float", _BLOCK, 4)
_DOUBLES = Number("double"), Number("double", _BLOCK, 8)
"""Types of a number of each precision, and of a block of them."""


def take_forces(doubles: Array[Argument], law: Array[Force], rows: Word) -> None:
    """Subtract damping and friction from an input of generalised forces."""
    forces, speeds, stride = doubles[law.target].data, doubles[law.source].data, law.n * 8
    for r in range(rows):
        force(forces + r * stride, forces + r * stride, speeds + r * stride, law, -1, DOUBLE)


def lay_out(inner: Array[Inner], workspace: Address) -> Array[Argument]:
    """Fill in the table of the kernel in double precision."""
    table, doubles = array(Argument, workspace), array(Doubles, inner + 1)
    for k in range(inner.arrays):
        table[k].data, table[k].stride = workspace + doubles[k].offset, doubles[k].size * 8
    words, to = array(Word, doubles + inner.arrays), array(Word, table + inner.arrays)
    for k in range(inner.words):
        to[k] = words[k]
    return table


@routine
def kernel(table: Array[Argument], first: Word, last: Word, workspace: Address, arrays: Static[int]) -> None:
    """For some rows at a time: convert inputs, call the other kernel, convert results."""
    inner = array(Inner, table[arrays].data)
    doubles, sizes = lay_out(inner, workspace), array(Doubles, inner + 1)
    row = first
    while row < last:
        rows = min(last - row, inner.rows)
        for k in range(inner.inputs):
            users, own = table[k], doubles[k]
            at = users.data + row * users.stride
            convert_rows(at, users.stride, own.data, own.stride, sizes[k].size, rows, _SINGLES, _DOUBLES)
        if inner.force != NULL:
            take_forces(doubles, inner.force, rows)
        call(None, inner.kernel, doubles, 0, rows, workspace + inner.own)
        for k in range(inner.inputs, inner.arrays):
            users, own = table[k], doubles[k]
            at = users.data + row * users.stride
            convert_rows(own.data, own.stride, at, users.stride, sizes[k].size, rows, _DOUBLES, _SINGLES)
        row += rows


def mixed_precision_module(arrays: int) -> str:
    """The module for some number of arrays."""
    return printed_module(("in double", arrays), {}, lambda module: module.export(kernel, arrays=arrays))
