"""Kernels from functions in restricted Python."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from robodyn.codegen.loops.blocks import Number
from robodyn.codegen.loops.cuda import Module
from robodyn.codegen.loops.language import Routine
from robodyn.codegen.loops.source import is_static, source_of
from robodyn.engines.gpu.source import SCALARS, KernelSource


def kernel_source(
    routine: Routine[..., None],
    dtype: np.dtype[np.floating],
    inputs: Sequence[str],
    outputs: Sequence[str],
    numbers: Sequence[str] = (),
    *,
    threads: int,
    most_registers: bool = False,
    shared_bytes: int = 0,
    overlapping: Collection[str] = (),
    prelude: str = "",
    **known: Any,
) -> KernelSource:
    """A kernel, named like its function.

    Args:
        routine: its parameters are the inputs, the outputs, arrays of constants, `workspace`, `rows`, and numbers.
        dtype: of what is a Scalar there.
        inputs, outputs: names of arrays; inputs and constants are only read.
        numbers: names of numbers behind `rows`.
        threads: of a block.
        most_registers: whether one block may have all registers of a multiprocessor.
        shared_bytes: shared memory of a block beside what the function asks for by itself.
        overlapping: arrays whose memory may be that of others.
        prelude: text that functions need which are printed by other means.
        known: parameters that are known, and no arguments of the kernel.
    """
    scalar, name = SCALARS[dtype.name], routine.__name__
    names = [each for each, annotation in source_of(routine.function).parameters if not is_static(annotation)]
    first, last = len(inputs) + len(outputs), len(names) - len(numbers) - 2
    assert names == [*inputs, *outputs, *names[first:last], "workspace", "rows", *numbers], (name, names)
    module = Module({"Scalar": Number(scalar)}, device=True)
    module.kernel(
        routine,
        name,
        f"{threads}, 1" if most_registers else f"{threads}",
        read=(*inputs, *names[first:last]),
        alone=[each for each in names[:last] if each not in overlapping],
        **known,
    )
    empty = (np.zeros(1, np.int64),) * (last - first)
    text = prelude + module.text()
    return KernelSource(
        name, text, dtype, tuple(inputs), tuple(outputs), empty, block_threads=threads, shared_bytes=shared_bytes,
        numbers=tuple(numbers),
    )  # fmt: skip
