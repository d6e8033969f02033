"""Kernels from functions in restricted Python."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from robodyn.compile.loops.blocks import Number
from robodyn.compile.loops.cuda import Module
from robodyn.compile.loops.language import Routine
from robodyn.compile.loops.source import MISSING, each_part, is_static, source_of
from robodyn.engines.gpu.source import SCALARS, KernelSource


class Functions:
    """Functions that the printed text of a kernel calls: each is there once for what is known of its parameters.

    Args:
        scalar: CUDA's name of what is a Scalar there.
        kernel: what their names begin with.
    """

    def __init__(self, scalar: str, kernel: str) -> None:
        self._module = Module({"Scalar": Number(scalar)}, device=True, prefix=f"{kernel}_")
        self._names: dict[object, str] = {}

    def name(self, routine: Routine[..., None], read: Sequence[str], alone: Sequence[str] = (), **known: Any) -> str:
        """What a function is called; the rest is as in `Module.export`."""
        key = routine, *known.values()
        if key not in self._names:
            self._names[key] = self._module.export(routine, None, read, alone, **known)
        return self._names[key]

    def text(self) -> str:
        """All of them."""
        return self._module.text()


def several(count: int) -> tuple[object, ...]:
    """How many a parameter `tuple[T, ...]` has."""
    return (MISSING,) * count


def kernel_source(
    routine: Routine[..., None],
    dtype: np.dtype[np.floating],
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    threads: int,
    name: str = "",
    blocks: int = 0,
    shared_bytes: int = 0,
    overlapping: Collection[str] = (),
    **known: Any,
) -> KernelSource:
    """A kernel from a function.

    Args:
        routine: its parameters are the inputs, the outputs, arrays of constants, `workspace`, `rows`, and numbers.
        dtype: of what is a Scalar there.
        inputs, outputs: what others call these arrays; inputs and constants are only read.
        threads: of a block.
        name: of the kernel, "": like the function.
        blocks: how many of them a multiprocessor must have registers for; 0: as many as there are.
        shared_bytes: shared memory of a block beside what the function asks for by itself.
        overlapping: parameters that are arrays whose memory may be that of others.
        known: parameters that are known, and no arguments of the kernel; of those that are several, `several` of them.
    """
    scalar, source, parts = SCALARS[dtype.name], source_of(routine.function), dict[str, str]()

    def noted(part: str, annotation: ast.expr, _: object) -> None:
        parts[part] = ast.unparse(annotation)

    for parameter, annotation in source.parameters:
        if annotation is not None and not is_static(annotation):
            each_part(parameter, annotation, source, known.get(parameter, MISSING), noted)
    names, name = list(parts), name or routine.__name__
    arrays, numbers = names[: (at := names.index("workspace"))], names[at + 2 :]
    constants = arrays[len(inputs) + len(outputs) :]
    assert names[at + 1] == "rows"
    module = Module({"Scalar": Number(scalar)}, device=True)
    bounds = f"{threads}, {blocks}" if blocks else f"{threads}"
    alone = [each for each in arrays if each not in overlapping]
    module.kernel(routine, name, bounds, read=(*arrays[: len(inputs)], *constants), alone=alone, **known)
    return KernelSource(
        name,
        module.text(),
        dtype,
        tuple(inputs),
        tuple(outputs),
        tuple(np.zeros(1, np.int64 if parts[each] == "Array[Word]" else dtype) for each in constants),
        block_threads=threads,
        shared_bytes=shared_bytes,
        numbers=tuple(numbers),
    )
