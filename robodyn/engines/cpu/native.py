"""Built-in functions that answer a query without passing through Python.

A call with arrays of the engine's own dtype, contiguous and of the right shape, is answered by machine code that reads
the arrays' structs. Everything else, and whatever goes wrong, is handed to the checked Python function.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from robodyn.engines.cpu.jit import Code
from robodyn.engines.cpu.native_code import (
    CPYTHON,
    MAX_INPUTS,
    MAX_QUATERNIONS,
    MAX_TRAILING,
    Context,
    Layout,
    native_text,
)
from robodyn.engines.cpu.pool import Pool, compile_text, load_once
from robodyn.engines.cpu.pool_code import State

_METH_KEYWORDS, _METH_FASTCALL = 0x0002, 0x0080
_NUMPY_ABI = 0x02000000
_API = {"PyArray_New": 93, "PyArray_Return": 76}  # places in NumPy's table of functions
_PYTHON_API = tuple(name for name, *_ in Context._fields_ if name.startswith("Py") and name not in _API)
_OUT = sys.intern("out")
_FALLBACK = 4  # place of the checked function in what a built-in owns
_NEVER = 2**63 - 1
_LINE = 64


class _MethodDef(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@cache
def entry_text() -> str:
    """The module that all built-ins of this process share; the same for every model and query."""
    return native_text(CPYTHON, State.started.offset)


def _word(address: int) -> int:
    return int(ctypes.c_uint64.from_address(address).value)


def _reads_array(array: Any, layout: Layout) -> bool:
    """Whether the struct of an array says what the array says."""
    start = id(array)
    seen = (
        _word(start + layout.type),
        _word(start + layout.array_data),
        ctypes.c_int32.from_address(start + layout.array_nd).value,
        _word(start + layout.array_descr),
        ctypes.c_int32.from_address(start + layout.array_flags).value,
        ctypes.c_char.from_address(id(array.dtype) + layout.descr_byteorder).value.decode("latin1"),
    )
    told = (id(type(array)), array.ctypes.data, array.ndim, id(array.dtype), array.flags.num, array.dtype.byteorder)
    if seen != told:
        return False
    shape, strides = _word(start + layout.array_shape), _word(start + layout.array_strides)
    if array.ndim and (not shape or strides - shape != 8 * array.ndim):
        return False  # not one block, as known: do not follow the pointers
    axes = [ctypes.c_int64.from_address(shape + 8 * i).value for i in range(2 * array.ndim)]
    return axes == [*array.shape, *array.strides]


@cache
def layout_is_known(layout: Layout = CPYTHON) -> bool:
    """Whether objects of this Python and this NumPy look in memory as the machine code expects."""
    if (
        sys.implementation.name != "cpython"
        or sysconfig.get_config_var("Py_GIL_DISABLED")
        or sys.byteorder != "little"
        or struct.calcsize("P") != 8
        or np.ndarray.__basicsize__ < layout.array_flags + 4
    ):
        return False
    grid = np.arange(24.0).reshape(2, 3, 4)
    locked = np.ones((3, 5), np.float32)
    locked.flags.writeable = False
    swapped = np.ones(2, ">f8")
    arrays = (grid, grid[:, ::2, ::-1], grid[1, 2], grid.T, locked, np.array(1.5), np.empty((0, 7)), swapped)
    if not all(_reads_array(array, layout) for array in arrays):
        return False
    mark, text = object(), b"robodyn's bytes"
    pair = (text, mark)
    return (
        [_word(id(pair) + layout.tuple_items + 8 * i) for i in range(2)] == [id(text), id(mark)]
        and _word(id(pair) + layout.tuple_size) == len(pair)
        and ctypes.string_at(id(text) + layout.bytes_data, len(text)) == text
        and np.empty(1).dtype is np.dtype(np.float64)
        and np.empty(1, np.float32).dtype is np.dtype(np.float32)
        and bool(_api())
    )


@cache
def _api() -> dict[str, int]:
    """Addresses of functions of Python and NumPy; empty for a NumPy of another binary interface."""
    capsule = getattr(np, "_core")._multiarray_umath._ARRAY_API  # noqa: B009  (no type stub has it)
    python = ctypes.pythonapi
    name, pointer = python.PyCapsule_GetName, python.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_void_p, (ctypes.py_object,)
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_void_p)
    table = pointer(capsule, name(capsule))
    version = ctypes.CFUNCTYPE(ctypes.c_uint)(_word(table))()
    if version != _NUMPY_ABI or _word(table + 8 * 2) != id(np.ndarray):
        return {}
    own = {name: ctypes.cast(getattr(python, name), ctypes.c_void_p).value or 0 for name in _PYTHON_API}
    return own | {name: _word(table + 8 * place) for name, place in _API.items()}


def _numbers(dtype: np.dtype[Any]) -> dict[str, int]:
    return {
        "array_type": id(np.ndarray),
        "descr": id(dtype),
        "descr_type": id(type(dtype)),
        "type_number": dtype.num,
        "itemsize": dtype.itemsize,
    }


def _shapes(inputs: tuple[int, ...], output_shape: tuple[int, ...]) -> dict[str, Any]:
    return {
        "inputs": len(inputs),
        "columns": inputs + (0,) * (MAX_INPUTS - len(inputs)),
        "trailing": len(output_shape),
        "shape": output_shape + (0,) * (MAX_TRAILING - len(output_shape)),
        "out_columns": math.prod(output_shape),
    }


def _sharing(pool: Pool | None, grain: int, threshold_rows: int, release_rows: int) -> dict[str, int]:
    if pool is None or pool.threads == 1:
        return {"share_rows": _NEVER, "release_rows": release_rows}
    return {
        "pool": pool.pointer,
        "parallel": pool.parallel,
        "threads": pool.threads,
        "grain": grain,
        "share_rows": threshold_rows,
        "release_rows": min(release_rows, threshold_rows),
    }


class _Owned(tuple[Any, ...]):
    """What a built-in function owns. Pickled as the object whose method it stands before, to be found there again."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _object_of, (self[_FALLBACK],)


def _object_of(method: Any) -> Any:
    return method.__self__


def _builtin(name: str, doc: str, function: int, context: Context, owned: tuple[object, ...]) -> Callable[..., Any]:
    """A built-in function whose `self` is a tuple of the context's bytes and of all that the context points to.

    The tuple is in sight of the garbage collector, so that a Dynamics and its entries can go together.
    """
    texts = name.encode(), doc.encode()
    method = _MethodDef(texts[0], function, _METH_FASTCALL | _METH_KEYWORDS, texts[1])
    pointer, any_object = ctypes.c_void_p, ctypes.py_object
    make = ctypes.PYFUNCTYPE(any_object, pointer, any_object, pointer, pointer)(("PyCMethod_New", ctypes.pythonapi))
    everything = _Owned((bytes(context), method, texts, *owned))
    built: Callable[..., Any] = make(ctypes.addressof(method), everything, None, None)
    return built


def make_entry(
    name: str,
    doc: str,
    kernel_address: int,
    dtype: np.dtype[Any],
    inputs: tuple[int, ...],
    output_shape: tuple[int, ...],
    fallback: Callable[..., Any],
    pool: Pool | None,
    grain: int,
    threshold_rows: int,
    check: bool | None,
    *,
    release_rows: int = 64,
    quaternions: tuple[int, ...] = (),
    workspace: int = 0,
    keep: object = None,
    load: Callable[[str], Code] = compile_text,
) -> Callable[..., Any] | None:
    """A built-in function that runs a kernel on arrays, or None where it cannot be made and `fallback` must do.

    It answers calls with one array (n,) or (B, n) per input, all positional, exactly of type `numpy.ndarray`, of
    `dtype`, C-contiguous, B the same and at least 1, and returns a new array (*output_shape) or (B, *output_shape). A
    batch that is not checked may come with `out=`, such an array that shares no memory with the inputs. Any
    other call, and one that meets NaN or infinity where they are checked, or no memory, becomes the same call of
    `fallback`. It holds references to `fallback` and `keep`.

    Args:
        name, doc: of the function.
        kernel_address: `void kernel(ptr table, i64 first, i64 last, ptr workspace)`.
        dtype: float64 or float32.
        inputs, output_shape: n of each input, and the shape of the output for one state.
        fallback: the checked function.
        pool, grain, threshold_rows: threads that run batches of at least so many rows in pieces of `grain`, or None.
        check: whether inputs and outputs are scanned for NaN and infinity; None: those of single states.
        release_rows: rows from which other Python threads run meanwhile.
        quaternions: columns of the first input at which quaternions start; those that the kernel cannot scale to unit
            length (too short or too long by ten orders of magnitude) are left to `fallback`, checked or not.
        workspace: bytes of scratch memory that the kernel needs in each thread, aligned to 64; 0 passes null.
        keep: whatever owns the kernel's code.
        load: compiles `entry_text()` (once for the process), e.g. through a cache of objects.
    """
    known = dtype in (np.dtype(np.float64), np.dtype(np.float32)) and layout_is_known()
    if not known or len(quaternions) > MAX_QUATERNIONS or len(inputs) > MAX_INPUTS or len(output_shape) > MAX_TRAILING:
        return None
    dtype = np.dtype(dtype.type)  # the one that arrays have, where this is a copy
    start = pool.start if pool is not None else None
    context = Context(
        kernel=kernel_address,
        check={None: 1, True: 3, False: 0}[check],
        workspace=-(-workspace // _LINE) * _LINE,
        fallback=id(fallback),
        out_name=id(_OUT),
        start=id(start),
        **_numbers(dtype),
        **_shapes(inputs, output_shape),
        quaternions=len(quaternions),
        quaternion=quaternions + (0,) * (MAX_QUATERNIONS - len(quaternions)),
        **_sharing(pool, grain, threshold_rows, release_rows),
        **_api(),
    )
    function = load_once(entry_text(), load).address("entry")
    return _builtin(name, doc, function, context, (dtype, fallback, pool, start, keep))
