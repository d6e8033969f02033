"""Checks that the memory layout of Python's and NumPy's objects is the one that machine code expects."""

from __future__ import annotations

import ctypes
import struct
import sys
import sysconfig
from functools import cache

import numpy as np

from robodyn.engines.cpu.native.context import Context
from robodyn.engines.cpu.native.objects import PyArray, PyBytes, PyDescr, PyFloat, PyObject, PyTuple
from robodyn.internals.arguments import Array

_NUMPY_ABI = 0x02000000
_API = {"PyArray_New": 93, "PyArray_Scalar": 60, "PyDataMem_SetHandler": 304}  # indices in NumPy's C API table
_PYTHON_API = tuple(name for name, *_ in Context._fields_ if name.startswith("Py") and name not in _API)


def _word(address: int) -> int:
    return int(ctypes.c_uint64.from_address(address).value)


def _reads_array(array: Array) -> bool:
    """True if the struct of an array agrees with its attributes."""
    it = PyArray.from_address(id(array))
    shape, strides, descr = (ctypes.cast(each, ctypes.c_void_p).value for each in (it.shape, it.strides, it.descr))
    seen = it.type, it.data, it.ndim, descr, it.flags, PyDescr.from_address(id(array.dtype)).byteorder
    told = (
        id(type(array)),
        array.ctypes.data,
        array.ndim,
        id(array.dtype),
        array.flags.num,
        array.dtype.byteorder.encode(),
    )
    if seen != told:
        return False
    if array.ndim and (not shape or not strides or strides - shape != 8 * array.ndim):
        return False  # shape and strides are not adjacent as expected: do not follow the pointers
    axes = [it.shape[i] for i in range(2 * array.ndim)]
    return axes == [*array.shape, *array.strides]


@cache
def layout_is_known() -> bool:
    """True if objects of this Python and this NumPy have the memory layout that machine code expects."""
    if (
        sys.implementation.name != "cpython"
        or sysconfig.get_config_var("Py_GIL_DISABLED")
        or sys.byteorder != "little"
        or struct.calcsize("P") != 8
        or np.ndarray.__basicsize__ < PyArray.flags.offset + 4
    ):
        return False
    grid = np.arange(24.0).reshape(2, 3, 4)
    locked = np.ones((3, 5), np.float32)
    locked.flags.writeable = False
    swapped = np.ones(2, ">f8")
    arrays = (grid, grid[:, ::2, ::-1], grid[1, 2], grid.T, locked, np.array(1.5), np.empty((0, 7)), swapped)
    if not all(_reads_array(array) for array in arrays):
        return False
    number, text = 1.5, b"robodyn's bytes"
    pair = (text, object())
    tuple_seen, float_seen = PyTuple.from_address(id(pair)), PyFloat.from_address(id(number))
    items = (ctypes.c_void_p * 2).from_address(id(pair) + PyTuple.items.offset)
    return (
        list(items) == list(map(id, pair))
        and tuple_seen.size == len(pair)
        and ctypes.string_at(id(text) + PyBytes.data.offset, len(text)) == text
        and float_seen.value == number
        and float_seen.type == PyObject.from_address(id(number)).type == id(float)
        and np.empty(1).dtype is np.dtype(np.float64)
        and np.empty(1, np.float32).dtype is np.dtype(np.float32)
        and bool(api())
    )


@cache
def api() -> dict[str, int]:
    """Addresses of functions of Python and NumPy; empty if NumPy has another binary interface."""
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
    # On Windows CDLL(None), the functions of the whole process, does not exist.
    library = ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)
    memcmp = ctypes.cast(library.memcmp, ctypes.c_void_p).value or 0
    return own | {name: _word(table + 8 * place) for name, place in _API.items()} | {"memcmp": memcmp}
