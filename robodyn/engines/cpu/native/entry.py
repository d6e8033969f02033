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
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from robodyn.codegen.llvm.jit import Code
from robodyn.engines.cpu.kernels import workspace
from robodyn.engines.cpu.native.code import native_text
from robodyn.engines.cpu.native.context import (
    CPYTHON,
    MAX_CONSTANTS,
    MAX_INPUTS,
    MAX_OUTPUTS,
    MAX_TRAILING,
    Context,
    Layout,
    Version,
)
from robodyn.engines.cpu.threads.code import State
from robodyn.engines.cpu.threads.pool import Pool, compile_text, load_once

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


def _shapes(inputs: tuple[int, ...], outputs: tuple[tuple[int, ...], ...]) -> dict[str, Any]:
    columns = (*inputs, *map(math.prod, outputs))
    lengths = [(*shape, *(0,) * (MAX_TRAILING - len(shape))) for shape in outputs]
    return {
        "inputs": len(inputs),
        "outputs": len(outputs),
        "columns": _filled(columns, MAX_INPUTS + MAX_OUTPUTS),
        "trailing": _filled(tuple(map(len, outputs)), MAX_OUTPUTS),
        "shapes": _filled(tuple(n for shape in lengths for n in shape), MAX_OUTPUTS * MAX_TRAILING),
    }


def _filled(numbers: tuple[int, ...], length: int) -> tuple[int, ...]:
    return numbers + (0,) * (length - len(numbers))


@dataclass(frozen=True)
class EntryKernel:
    """A kernel as an entry calls it.

    `address`: `void kernel(ptr table, i64 first, i64 last, ptr workspace)`; `constants`: words of the table after the
    arrays; `workspace`: bytes of scratch memory that it needs in each thread, 0 passes null; `grain`: rows of a piece
    of work; `share_rows`, `release_rows`: rows from which the pool runs it, and from which other Python threads run
    meanwhile; `keep`: whatever owns its code and its constants; `batch`: whether the last of the constants is to be the
    number of rows.
    """

    address: int
    constants: tuple[int, ...] = ()
    workspace: int = 0
    grain: int = 64
    share_rows: int = _NEVER
    release_rows: int = 64
    keep: object = None
    batch: bool = False

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
        batch=int(kernel.batch),
    )


def _staff(pool: Pool | None) -> dict[str, int]:
    return {} if pool is None else {"pool": pool.pointer, "parallel": pool.parallel, "threads": pool.threads}


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
    dtype: np.dtype[Any],
    inputs: tuple[int, ...],
    outputs: tuple[tuple[int, ...], ...],
    fallback: Callable[..., Any],
    batches: EntryKernel | None,
    states: EntryKernel | None,
    check: bool | None,
    *,
    keyword: str | None = None,
    pool: Pool | None = None,
    scratch: Callable[[int], Scratch] | None = None,
    load: Callable[[str], Code] = compile_text,
) -> Callable[..., Any] | None:
    """A built-in function that runs a kernel on arrays, or None where it cannot be made and `fallback` must do.

    It answers calls with one array (n,) or (B, n) per input, all by place but maybe the last, exactly of type
    `numpy.ndarray`, of `dtype`, C-contiguous, B the same and at least 1, and returns new arrays (*shape) or (B,
    *shape): one, or a tuple of several. They may come with `out=`: one such array, or a tuple of several, that share no
    memory with the inputs or each other. Any other call, and one that meets NaN or infinity where they are checked, or
    no memory, becomes the same call of `fallback`. It holds references to `fallback` and to what kernels keep.

    Args:
        name, doc: of the function.
        dtype: float64 or float32.
        inputs, outputs: n of each input, and the shape of each output for one state; at least one output.
        fallback: the checked function.
        batches, states: the kernel that runs two states and more, and the one for one state; calls for which there is
            None go to `fallback`.
        check: whether inputs and outputs are scanned for NaN and infinity; None: those of single states.
        keyword: the name that the last input is given by, or None for its place.
        pool: threads that share large batches, or None.
        scratch: gives memory of a size for kernels that need some; without, or while another call uses it, calls
            allocate theirs.
        load: compiles `entry_text()` (once for the process), e.g. through a cache of objects.
    """
    kernels = (batches, states)
    known = dtype in (np.dtype(np.float64), np.dtype(np.float32)) and layout_is_known()
    if not known or not _fits(inputs, outputs, kernels):
        return None
    dtype = np.dtype(dtype.type)  # the one that arrays have, where this is a copy
    start = pool.start if pool is not None else None
    name_of_last = None if keyword is None else sys.intern(keyword)
    constants = [(ctypes.c_int64 * len(each))(*each) for each in (k.constants if k else () for k in kernels)]
    threads = pool.threads if pool is not None else 1
    needed = max(k.stride * n if k else 0 for k, n in zip(kernels, (threads, 1), strict=True))
    own = scratch(needed) if scratch is not None and needed else None
    context = Context(
        check={None: 1, True: 3, False: 0}[check],
        fallback=id(fallback),
        tuple_type=id(tuple),
        out_name=id(_OUT),
        keyword=None if name_of_last is None else id(name_of_last),
        start=id(start),
        scratch=own.address if own is not None else None,
        versions=(Version * 2)(*(_version(k, words, pool) for k, words in zip(kernels, constants, strict=True))),
        **_numbers(dtype),
        **_shapes(inputs, outputs),
        **_staff(pool),
        **_api(),
    )
    function = load_once(entry_text(), load).address("entry")
    kept = (constants, own, *(k.keep for k in kernels if k))
    return _builtin(name, doc, function, context, (dtype, fallback, pool, start, name_of_last, kept))


def _fits(
    inputs: tuple[int, ...],
    outputs: tuple[tuple[int, ...], ...],
    kernels: tuple[EntryKernel | None, ...],
) -> bool:
    """Whether a context has room for all this."""
    return (
        len(inputs) <= MAX_INPUTS
        and 1 <= len(outputs) <= MAX_OUTPUTS
        and all(len(shape) <= MAX_TRAILING for shape in outputs)
        and all(len(kernel.constants) <= MAX_CONSTANTS for kernel in kernels if kernel is not None)
    )
