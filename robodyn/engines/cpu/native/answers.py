"""Answers: contexts that describe to machine code how kernels answer calls with certain arrays."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from robodyn.engines.buffer_pool import handler
from robodyn.engines.cpu.kernels import workspace
from robodyn.engines.cpu.native.context import (
    FIXED,
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
    """An array that a kernel reads: its index among the arrays of its query, and the shape for one state, (n,) or (n,
    width), or () for a Python float.

    `default`: the float if calls do not give one; `positive`: True if the float must be positive and finite;
    `nonnegative`: True if the numbers of the array must be finite and at least 0; `steady`: True if it must not have a
    value for each step of a rollout; `fixed`: memory that kernels read in all calls, which do not give it.
    """

    place: int
    shape: tuple[int, ...]
    default: float | None = None
    positive: bool = False
    nonnegative: bool = False
    steady: bool = False
    fixed: Array | None = None


@dataclass(frozen=True)
class JointForce:
    """damping x + friction sign(x), (n,), added to a result or subtracted from an input.

    `target`: index of the array, inputs first; `source`: index of the input x, None for ones; `step`: distance of the
    target's entries, in numbers.
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
    arrays; `workspace`: bytes of scratch memory per thread, 0 passes null; `grain`: rows of a piece of work;
    `share_rows`: rows from which the pool runs it; `release_rows`: rows from which it runs without the GIL; `keep`:
    owner of code and constants; `batch`: 0, or the last constant must be the number of rows, times `batch` if large
    results go to new arrays.
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
        """Bytes between the scratch memories of two threads."""
        return -(-self.workspace // _LINE) * _LINE


class Scratch:
    """Scratch memory that entries share, for one call at a time. A call that finds it in use allocates its own memory.

    In a forked child it may stay in use for ever, by a thread that the child does not have.

    Raises:
        UnavailableError: there is not enough memory.
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
    """The context of calls with certain arrays, and all memory that it points to.

    Arrays of such calls have exactly the type `numpy.ndarray` and the dtype `dtype`, are C-contiguous, and have the
    shape of one state, or one leading axis of rows, of the same length of at least 1. Results are new arrays: one, or a
    tuple of several; or arrays of the user, which share no memory with the inputs or each other. All other calls are
    left to the checked function, and so are calls with NaN or infinity if `check` applies, or without enough memory.

    Args:
        dtype: float64 or float32.
        inputs: inputs of the kernels, in order.
        outputs: shape of each output for one state; at least one output.
        batches, states: kernels for two states and more, and for one state; None: such calls are left.
        check: True if inputs and outputs are checked for NaN and infinity; None: for single states only.
        pool: threads that share large batches, or None.
        scratch: returns scratch memory of a size. Without it, or while another call uses that memory, calls allocate
            their own.
        forces: joint forces, of which at most one is subtracted from an input.
        known: index of an input; calls are answered only for its values set by `know`.
        whole: True if no further kernels will be compiled for these calls.
        steps: 0, or the number of steps of a rollout (`robodyn.engines.cpu.native.rollouts`), where all numbers are
            checked.
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
        steps: int = 0,
    ) -> None:
        dtype = np.dtype(dtype.type)  # the object that arrays refer to, if this is a copy of it
        self.whole, self.knows = whole, known is not None
        self.start = pool.start if pool is not None else None
        self._pool, self._scratch = pool, scratch
        defaults = [None if each.default is None else ctypes.c_double(each.default) for each in inputs]
        fixed = [each.fixed for each in inputs]
        self._kept: list[object] = [dtype, pool, self.start, defaults, fixed]
        self._known = None if known is None else Known(bytes=-1)
        self._values: Array | None = None
        drives = [force.target for force in forces if force.target < len(inputs)]
        self.context = Context(
            steps=steps,
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
            positive=sum(1 << k for k, each in enumerate(inputs) if each.positive),
            nonnegative=sum(1 << k for k, each in enumerate(inputs) if each.nonnegative),
            steady=sum(1 << k for k, each in enumerate(inputs) if each.steady),
            defaults=(ctypes.c_void_p * MAX_INPUTS)(
                *(
                    own.ctypes.data if own is not None else None if each is None else ctypes.addressof(each)
                    for each, own in zip(defaults, fixed, strict=True)
                )
            ),
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
        """From now on answer only calls whose input `known` has these values. The array must not change."""
        assert self._known is not None
        mine = np.ascontiguousarray(values)
        old = self._values
        self._known.bytes = -1  # matches no input while the address changes
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
    """True if a context has room for all this, and machine code supports this Python and this NumPy."""
    return (
        dtype in (np.dtype(np.float64), np.dtype(np.float32))
        and layout_is_known()
        and len(inputs) <= MAX_INPUTS
        and all(len(each.shape) <= 2 for each in inputs)
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
    columns = (*(0 if each.fixed is not None else math.prod(each.shape) for each in inputs), *map(math.prod, outputs))
    lengths = [(*shape, *(0,) * (MAX_TRAILING - len(shape))) for shape in outputs]
    # An input of width 0 has no numbers, so it is treated as having one axis.
    widths = tuple(
        FIXED if each.fixed is not None else each.shape[1] if len(each.shape) > 1 else len(each.shape) - 1
        for each in inputs
    )
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
