"""Steps that are applied to every element of an array: by NumPy, as machine code, or as a kernel on a GPU.

A step is a function of scalars, as in `robodyn.core.spatial`. NumPy runs it operation by operation; each operation is a
pass over memory and makes a new array. Traced once with symbols for scalars, the same function becomes a loop in
machine code that reads each element once, ten to fifty times faster. On the device of a call it becomes a kernel. If
machine code cannot run, and for arrays of other libraries, the step runs on arrays as with NumPy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.sweeps import FieldType, flatten
from robodyn.engines.scan.elements import device_of, mapped
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError

if TYPE_CHECKING:
    from robodyn.compile.tracing.program import Program
    from robodyn.engines.scan.cuda.device import ScanDevice

OPERATORS = ("compiled", "library")
"""How steps run: as machine code, or by operations of the array library."""

_COMPILED: ContextVar[bool] = ContextVar("robodyn_scan_compiled", default=True)


@contextmanager
def operators(how: str) -> Iterator[None]:
    """Inside `with`, steps run in the given one of the `OPERATORS` ways, in this thread."""
    token = _COMPILED.set(how == "compiled")
    try:
        yield
    finally:
        _COMPILED.reset(token)


def kernels_for(array: Any) -> ScanDevice | None:
    """The device whose kernels run steps on an array, in this thread. None for NumPy arrays, and if library operations
    are selected."""
    return device_of(array) if _COMPILED.get() else None


class Elementwise:
    """A step as a function of element arrays (size, n, ...) that returns an element array.

    Args:
        step: a function of one quantity for each of `arguments`. It returns a quantity of type `result` and must not
            branch on values.
        result, arguments: the types of the quantities.
    """

    def __init__(self, step: Callable[..., Any], result: FieldType, *arguments: FieldType) -> None:
        self.step, self.result, self.arguments = step, result, arguments
        self.size = result.size(0)
        self._functions: dict[np.dtype[Any], Callable[..., None] | None] = {}

    def __call__(self, *arrays: Array, out: Array | None = None) -> Array:
        """Apply the step to every element. Axes after the first broadcast. `out` must not overlap with `arrays`."""
        device = kernels_for(arrays[0])
        if device is not None:
            return device.step(self, arrays, out)
        function = None
        if _COMPILED.get() and all(isinstance(array, np.ndarray) for array in arrays):
            dtype = arrays[0].dtype
            if dtype not in self._functions:
                self._functions[dtype] = _compiled(self, dtype)
            function = self._functions[dtype]
        if function is None:
            return mapped(self._on_arrays, self.size, *arrays, out=out)
        shape = np.broadcast_shapes(*(array.shape[1:] for array in arrays))
        whole = [_columns(array, shape) for array in arrays]
        direct = out is not None and out.shape[1:] == shape and out[:1].flags.c_contiguous
        result = out if out is not None and direct else np.empty((self.size, *shape), arrays[0].dtype)
        if result.size:
            function(_flat(result), *map(_flat, whole))
        if out is None or direct:
            return result
        out[...] = result
        return out

    def _on_arrays(self, *arrays: Array) -> Any:
        return self.step(*(field.build(iter(a), 0) for field, a in zip(self.arguments, arrays, strict=True)))


def _columns(array: Array, shape: tuple[int, ...]) -> Array:
    """The array broadcast to `shape`, with each scalar's entries contiguous. Without a copy if it is so already."""
    if array.shape[1:] != shape:
        array = np.broadcast_to(array, (len(array), *shape))
    return array if array[:1].flags.c_contiguous else np.ascontiguousarray(array)


def _flat(array: Array) -> Array:
    """A view (size, total) of an array whose scalars are contiguous."""
    total = array[:1].size
    return np.lib.stride_tricks.as_strided(array, (len(array), total), (array.strides[0], array.itemsize))


def _compiled(of: Elementwise, dtype: np.dtype[Any]) -> Callable[..., None] | None:
    """The step as a compiled function(result, *arrays) on arrays (size, total), or None without a compiler."""
    try:
        return _Kernel(of, dtype)
    except (UnavailableError, ImportError, OSError):
        return None


class _Kernel:
    """A step as machine code."""

    def __init__(self, of: Elementwise, dtype: np.dtype[Any]) -> None:
        from robodyn.compile.llvm.jit import Code
        from robodyn.compile.llvm.target import host_target

        self._code = Code(_machine_code(of, dtype), host_target())
        self._width = host_target().width(dtype)
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        self._function = signature(self._code.address("kernel"))

    def __call__(self, result: Array, *arrays: Array) -> None:
        """Fill `result` (size, total) from arrays (size, total)."""
        total = result.shape[1]
        if total < self._width:  # the kernel needs at least one whole SIMD vector
            wide = [np.zeros((len(array), self._width), array.dtype) for array in (*arrays, result)]
            for padded, array in zip(wide, arrays, strict=False):
                padded[:, :total] = array
            self._run(self._width, wide)
            result[...] = wide[-1][:, :total]
        else:
            self._run(total, [*arrays, result])

    def _run(self, total: int, arrays: list[Array]) -> None:
        words = [word for array in arrays for word in (array.ctypes.data, array.strides[0])]
        table = (ctypes.c_int64 * len(words))(*words)
        self._function(ctypes.addressof(table), 0, total, None)


def traced(of: Elementwise) -> Program:
    """The traced program of a step, with arrays in0, in1, ... and out, each with one axis."""
    from robodyn.compile.tracing.expression import Graph
    from robodyn.compile.tracing.program import Program

    graph = Graph()
    inputs = {f"in{k}": ((field.size(0),), graph.inputs(field.size(0))) for k, field in enumerate(of.arguments)}
    quantities = (
        field.build(iter(scalars), 0) for field, (_, scalars) in zip(of.arguments, inputs.values(), strict=True)
    )
    result = tuple(flatten(of.step(*quantities)))
    return Program.of("step", graph, inputs, {"out": ((of.size,), result)})


def _machine_code(of: Elementwise, dtype: np.dtype[Any]) -> bytes:
    from robodyn.compile.cache import ObjectCache
    from robodyn.compile.keys import Linked
    from robodyn.compile.llvm.jit import OPT
    from robodyn.compile.llvm.target import host_target
    from robodyn.compile.llvm.unrolled_code import unrolled_module

    program = traced(of)
    target = host_target()
    facts, label = f"elementwise {dtype} {program.digest}", f"step {dtype} {target.level}"
    kept = Linked(facts, label, target, OPT, ObjectCache.from_environment())
    return kept.code_of(partial(unrolled_module, program, dtype, target, columns=True))()
