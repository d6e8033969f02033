"""Translates functions in restricted Python (`robodyn.compile.loops`) to CUDA."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from robodyn.compile.loops.blocks import Number, Type
from robodyn.compile.loops.cuda import Module
from robodyn.compile.loops.language import Routine
from robodyn.compile.loops.source import MISSING, each_part, is_static, source_of
from robodyn.engines.gpu.source import SCALARS, WARP, KernelSource
from robodyn.internals.arguments import Array


class Functions:
    """The device functions that a kernel's printed text calls: one for each routine and set of known parameters.

    Args:
        scalar: CUDA's name of the type `Scalar`.
        kernel: the prefix of the functions' names.
    """

    def __init__(self, scalar: str, kernel: str) -> None:
        self._module = Module({"Scalar": Number(scalar)}, device=True, prefix=f"{kernel}_")
        self._names: dict[object, str] = {}

    def name(self, routine: Routine[..., None], read: Sequence[str], alone: Sequence[str] = (), **known: Any) -> str:
        """The name of a function in the text. The other parameters are those of `Module.export`."""
        key = routine, *known.values()
        if key not in self._names:
            self._names[key] = self._module.export(routine, None, read, alone, **known)
        return self._names[key]

    def text(self) -> str:
        """The text of all functions."""
        return self._module.text()


def several(count: int) -> tuple[object, ...]:
    """A placeholder for a parameter of type `tuple[T, ...]` with `count` entries."""
    return (MISSING,) * count


def vector_types(dtype: np.dtype[np.floating]) -> dict[str, Type]:
    """Types of functions whose vectors are spread over the lanes of a warp."""
    scalar, lane, size = SCALARS[dtype.name], f"i{8 * dtype.itemsize}", dtype.itemsize
    return {
        "Vector": Number(scalar, WARP),
        "Loose": Number(scalar, WARP, size),
        "LooseScalar": Number(scalar, 1, size),
        "Lanes": Number(lane, WARP),
        "Lane": Number(lane),
    }


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
    workspace_scalars: int = 0,
    threads_per_state: int = 1,
    types: Mapping[str, Type] | None = None,
    constants: Sequence[Array] = (),
    **known: Any,
) -> KernelSource:
    """A kernel from a routine.

    Args:
        routine: its parameters are the inputs, the outputs, arrays of constants, `workspace`, `rows`, and integers.
        dtype: the type `Scalar`.
        inputs, outputs: the array names in `KernelSource`. The kernel only reads inputs and constants.
        threads: threads of a block.
        name: the kernel's name; "" for the routine's name.
        blocks: how many blocks a multiprocessor must have registers for (`__launch_bounds__`); 0 for no such bound.
        shared_bytes: dynamic shared memory of a block, in addition to the routine's static arrays.
        overlapping: array parameters whose memory may overlap that of others.
        workspace_scalars, threads_per_state: of the source.
        types: types of further type names.
        constants: the arrays of constants, if they are the same at every launch.
        known: values of parameters that are compile-time constants; for a parameter `tuple[T, ...]`, `several(n)`.
    """
    scalar, source, parts = SCALARS[dtype.name], source_of(routine.function), dict[str, str]()

    def noted(part: str, annotation: ast.expr, _: object) -> None:
        parts[part] = ast.unparse(annotation)

    for parameter, annotation in source.parameters:
        if annotation is not None and not is_static(annotation):
            each_part(parameter, annotation, source, known.get(parameter, MISSING), noted)
    names, name = list(parts), name or routine.__name__
    arrays, numbers = names[: (at := names.index("workspace"))], names[at + 2 :]
    fixed = arrays[len(inputs) + len(outputs) :]
    assert names[at + 1] == "rows"
    module = Module({"Scalar": Number(scalar), **(types or {})}, device=True)
    bounds = f"{threads}, {blocks}" if blocks else f"{threads}"
    alone = [each for each in arrays if each not in overlapping]
    module.kernel(routine, name, bounds, read=(*arrays[: len(inputs)], *fixed), alone=alone, **known)
    return KernelSource(
        name,
        module.text(),
        dtype,
        tuple(inputs),
        tuple(outputs),
        tuple(constants or (np.zeros(1, np.int64 if parts[each] == "Array[Word]" else dtype) for each in fixed)),
        threads_per_state=threads_per_state,
        block_threads=threads,
        shared_bytes=shared_bytes,
        workspace_scalars=workspace_scalars,
        numbers=tuple(numbers),
    )
