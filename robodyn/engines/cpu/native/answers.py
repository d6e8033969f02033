"""Contexts: how calls that give certain arrays are answered by kernels."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from robodyn.engines.buffer_pool import handler
from robodyn.engines.cpu.kernels import workspace
from robodyn.engines.cpu.native.context import (
    MAX_CONSTANTS,
    MAX_FORCES,
    MAX_INPUTS,
    MAX_OUTPUTS,
    MAX_TRAILING,
    Context,
    Force,
    Known,
    Version,
)
from robodyn.engines.cpu.native.layout import api, layout_is_known
from robodyn.engines.cpu.threads.pool import Pool
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

_NEVER = 2**63 - 1
_LINE = 64


@dataclass(frozen=True)
class Input:
    """An array that a kernel reads: where it stands among the arrays of its question, and the shape of one state's,
    (n,) or (n, width); or a float of Python's, ()."""

    place: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class JointForce:
    """damping x + friction sign(x), (n,), added to results, every `step` numbers, or taken from an input.

    `target`: a number of an array, inputs first; `source`: of the input x, None for ones.
    """

    target: int
    source: int | None
    damping: Array
    friction: Array
    step: int = 1


@dataclass(frozen=True)
class EntryKernel:
    """A kernel as an entry calls it.

    `address`: `void kernel(ptr table, i64 first, i64 last, ptr workspace)`; `constants`: words of the table after the
    arrays; `workspace`: bytes of scratch memory that it needs in each thread, 0 passes null; `grain`: rows of a piece
    of work; `share_rows`, `release_rows`: rows from which the pool runs it, and from which other Python threads run
    meanwhile; `keep`: whatever owns its code and its constants; `batch`: 0, or the last of the constants is to be the
    number of rows, n times as many where large results go to new arrays.
    """

    address: int
    constants: tuple[int, ...] = ()
    workspace: int = 0
    grain: int = 64
    share_rows: int = _NEVER
    release_rows: int = 64
    keep: object = None
    batch: int = 0

    @property
    def stride(self) -> int:
        """Bytes from one thread's scratch memory to the next one's."""
        return -(-self.workspace // _LINE) * _LINE


class Scratch:
    """Scratch memory that entries use one call at a time; a call that finds it taken takes memory of its own.

    In the child of a fork it may stay taken by a thread that is not there.

    Raises:
        UnavailableError: there is not that much memory.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.address, self._owner = workspace(_LINE + size)
        ctypes.memset(self.address, 0, _LINE)


def _version(kernel: EntryKernel | None, constants: ctypes.Array[ctypes.c_int64], pool: Pool | None) -> Version:
    if kernel is None:
        return Version()
    alone = pool is None or pool.threads == 1
    return Version(
        kernel=kernel.address,
        constants=ctypes.addressof(constants),
        constant_words=len(constants),
        workspace=kernel.stride,
        grain=kernel.grain,
        share_rows=_NEVER if alone else kernel.share_rows,
        release_rows=kernel.release_rows if alone else min(kernel.release_rows, kernel.share_rows),
        batch=kernel.batch,
    )


def _staff(pool: Pool | None) -> dict[str, int]:
    return {} if pool is None else {"pool": pool.pointer, "threads": pool.threads}


class Answers:
    """The context of calls that give certain arrays, and what it points to.

    Calls give arrays exactly of type `numpy.ndarray`, of `dtype`, C-contiguous, with the shape of one state or with one
    axis of rows in front, of the same length of at least 1, and get new arrays: one, or a tuple of several. The user's
    may come instead, which share no memory with the inputs or each other. What is not such a call, meets NaN or
    infinity where these are checked, or no memory, is left.

    Args:
        dtype: float64 or float32.
        inputs: what kernels read, in their order.
        outputs: the shape of each output for one state; at least one output.
        batches, states: the kernel that runs two states and more, and the one for one state; calls for which there is
            None are left.
        check: whether inputs and outputs are scanned for NaN and infinity; None: those of single states.
        pool: threads that share large batches, or None.
        scratch: gives memory of a size for kernels that need some; without, or while another call uses it, calls
            allocate theirs.
        forces: joint forces, among them at most one that is taken from an input.
        known: the number of an input at whose values calls are answered only if they are those of `know`.
        whole: whether there will be no more kernels than these.
    """

    def __init__(
        self,
        dtype: np.dtype[Any],
        inputs: Sequence[Input],
        outputs: Sequence[tuple[int, ...]],
        batches: EntryKernel | None,
        states: EntryKernel | None,
        check: bool | None,
        *,
        pool: Pool | None = None,
        scratch: Callable[[int], Scratch] | None = None,
        forces: Sequence[JointForce] = (),
        known: int | None = None,
        whole: bool = True,
    ) -> None:
        dtype = np.dtype(dtype.type)  # the one that arrays have, where this is a copy
        self.whole, self.knows = whole, known is not None
        self.start = pool.start if pool is not None else None
        self._pool, self._scratch = pool, scratch
        self._kept: list[object] = [dtype, pool, self.start]
        self._known = None if known is None else Known(bytes=-1)
        self._values: Array | None = None
        drives = [force.target for force in forces if force.target < len(inputs)]
        self.context = Context(
            check=1 if check is None else 3 if check else 0,
            tuple_type=id(tuple),
            float_type=id(float),
            start=id(self.start),
            known=None if self._known is None else ctypes.addressof(self._known),
            known_input=-1 if known is None else known,
            drive=drives[0] if drives else -1,
            forces=len(forces),
            force=(Force * MAX_FORCES)(*map(self._force, forces)),
            **_numbers(dtype),
            **_shapes(inputs, outputs),
            **_staff(pool),
            **api(),
            handler=handler(),
        )
        self._equip((batches, states))

    def _equip(self, kernels: tuple[EntryKernel | None, EntryKernel | None]) -> None:
        constants = [(ctypes.c_int64 * len(each))(*each) for each in (k.constants if k else () for k in kernels)]
        threads = self._pool.threads if self._pool is not None else 1
        needed = max(k.stride * n if k else 0 for k, n in zip(kernels, (threads, 1), strict=True))
        own = self._scratch(needed) if self._scratch is not None and needed else None
        self._kept += [constants, own, *(k.keep for k in kernels if k)]
        self.context.scratch = own.address if own is not None else None
        self.context.versions = (Version * 2)(
            *(_version(k, words, self._pool) for k, words in zip(kernels, constants, strict=True))
        )

    def know(self, values: Array) -> None:
        """Answer calls whose input `known` has these values from now on, and no others. Nobody writes to them."""
        assert self._known is not None
        mine = np.ascontiguousarray(values)
        old = self._values
        self._known.bytes = -1  # nothing is known while the address changes
        self._known.data = mine.ctypes.data
        self._values, self._known.bytes = mine, mine.nbytes
        del old

    def _force(self, force: JointForce) -> Force:
        n, dtype = force.damping.size, self._kept[0]
        arrays = [np.ascontiguousarray(each, dtype) for each in (force.damping, force.friction, np.ones(n))]  # type: ignore[call-overload]
        self._kept.append(arrays)
        source = -1 if force.source is None else force.source
        return Force(force.target, source, force.step, n, *(array.ctypes.data for array in arrays))


def answers_can_be(
    dtype: np.dtype[Any],
    inputs: Sequence[Input],
    outputs: Sequence[tuple[int, ...]],
    kernels: Sequence[EntryKernel | None],
    forces: int = 0,
) -> bool:
    """Whether a context has room for all this, and machine code knows this Python and this NumPy."""
    return (
        dtype in (np.dtype(np.float64), np.dtype(np.float32))
        and layout_is_known()
        and len(inputs) <= MAX_INPUTS
        and all(len(each.shape) in (1, 2) or (not each.shape and dtype == np.float64) for each in inputs)
        and 1 <= len(outputs) <= MAX_OUTPUTS
        and all(len(shape) <= MAX_TRAILING for shape in outputs)
        and all(len(kernel.constants) <= MAX_CONSTANTS for kernel in kernels if kernel is not None)
        and forces <= MAX_FORCES
    )


def _numbers(dtype: np.dtype[Any]) -> dict[str, int]:
    return {
        "array_type": id(np.ndarray),
        "descr": id(dtype),
        "descr_type": id(type(dtype)),
        "type_number": dtype.num,
        "itemsize": dtype.itemsize,
    }


def _shapes(inputs: Sequence[Input], outputs: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    columns = (*(math.prod(each.shape) for each in inputs), *map(math.prod, outputs))
    lengths = [(*shape, *(0,) * (MAX_TRAILING - len(shape))) for shape in outputs]
    # An input of no width has no numbers: one axis of none is as good.
    widths = tuple(each.shape[1] if len(each.shape) > 1 else len(each.shape) - 1 for each in inputs)
    return {
        "inputs": len(inputs),
        "outputs": len(outputs),
        "places": _filled(tuple(each.place for each in inputs), MAX_INPUTS),
        "widths": _filled(widths, MAX_INPUTS),
        "columns": _filled(columns, MAX_INPUTS + MAX_OUTPUTS),
        "trailing": _filled(tuple(map(len, outputs)), MAX_OUTPUTS),
        "shapes": _filled(tuple(n for shape in lengths for n in shape), MAX_OUTPUTS * MAX_TRAILING),
    }


def _filled(numbers: tuple[int, ...], length: int) -> tuple[int, ...]:
    return numbers + (0,) * (length - len(numbers))
