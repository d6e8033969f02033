"""Kernels that apply a step to every element, and kernels that gather and scatter elements."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from robodyn.compile.loops.gpu import all_threads, first_work
from robodyn.compile.loops.language import Array, Scalar, Static, Word, routine
from robodyn.compile.tracing.program import Program
from robodyn.engines.gpu.functions import kernel_source, several
from robodyn.engines.gpu.source import KernelSource
from robodyn.engines.gpu.straight import Straight
from robodyn.internals import arguments

BLOCK_THREADS = 128
BEGIN = np.zeros(1, np.int64)
"""A placeholder for an index array that is an argument of launches."""


class Strides(NamedTuple):
    """The strides of an array between scalars, elements and rows, in scalars."""

    scalar: Word
    element: Word
    row: Word


def at_row(array: Array[Scalar], by: Strides, element: Word, row: Word) -> Array[Scalar]:
    """The address of an element's first scalar, in a row of the batch."""
    return array + (element * by.element + row * by.row)


def strides_in(array: arguments.Array, elements: int, batch: int) -> tuple[int, int, int]:
    """The strides of an array in scalars; 0 along axes that broadcast to `elements` or `batch`."""
    (scalar, element, row), (_, n, rows), size = array.strides, array.shape, array.itemsize
    return scalar // size, 0 if n < elements else element // size, 0 if rows < batch else row // size


@routine
def scan_step(
    given: tuple[Array[Scalar], ...],
    out: Array[Scalar],
    workspace: Array[Scalar],
    rows: Word,
    batch: Word,
    given_by: tuple[Strides, ...],
    out_by: Strides,
    step: Static[Straight],
) -> None:
    """Apply a step to every element, with one thread for each of `rows` = elements x batch. Arrays may have any
    strides, also 0 for broadcasting."""
    for k in range(first_work(BLOCK_THREADS), rows, all_threads(BLOCK_THREADS)):
        element, row = k // batch, k % batch
        places = [at_row(array, by, element, row) for array, by in zip(given, given_by, strict=True)]
        step(*places, at_row(out, out_by, element, row), *[by.scalar for by in given_by], out_by.scalar)


def step_kernel(program: Program, dtype: np.dtype[Any]) -> KernelSource:
    """The kernel `scan_step` of a traced step, whose inputs and single output have one axis each."""
    count = len(program.inputs)
    known: dict[str, Any] = {"given": several(count), "given_by": several(count)}
    step = Straight("step", program, dtype, reads="first")
    names = [f"given_{k}" for k in range(count)]
    return kernel_source(scan_step, dtype, names, ("out",), threads=BLOCK_THREADS, step=step, **known)


@routine
def scan_move(
    source: Array[Scalar],
    to: Array[Scalar],
    places: Array[Word],
    workspace: Array[Scalar],
    rows: Word,
    batch: Word,
    size: Word,
    putting: Word,
    many: Word,
    source_by: Strides,
    to_by: Strides,
) -> None:
    """Gather elements from indices `places`, or scatter them to these if `putting` is nonzero.

    `rows` is elements x batch. There is one thread for each scalar. Threads process the first scalar of all elements,
    then the second, and so on, so that scattered accesses stay within the cache. Arrays may have any strides. Negative
    indices count from the end of the `many` elements.
    """
    for k in range(first_work(BLOCK_THREADS), rows * size, all_threads(BLOCK_THREADS)):
        scalar, at = k // rows, k % rows
        element, row = at // batch, at % batch
        asked = places[element]
        place = asked + many if asked < 0 else asked
        value = at_row(source, source_by, element if putting else place, row)[scalar * source_by.scalar]
        at_row(to, to_by, place if putting else element, row)[scalar * to_by.scalar] = value


def move_kernel(dtype: np.dtype[Any]) -> KernelSource:
    """The kernel `scan_move`."""
    return kernel_source(scan_move, dtype, ("source",), ("to",), threads=BLOCK_THREADS)
