"""The memory that describes a query to its built-in function, and where that finds what it reads in Python's objects.

Whatever differs between two queries, addresses above all, is in a `Context`; what differs between versions of Python
and NumPy is a `Layout`. So one module of machine code serves all queries and can be kept on disk.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

MAX_INPUTS = 8
MAX_OUTPUTS = 4
MAX_TRAILING = 4
MAX_CONSTANTS = 104
"""Words of a kernel's table behind its inputs and outputs."""
_WORD, _POINTER = ctypes.c_int64, ctypes.c_void_p


class Version(ctypes.Structure):
    """A kernel that answers a query."""

    _fields_ = (
        ("kernel", _POINTER),  # null where there is none
        ("constants", _POINTER),  # words of the table after inputs and outputs
        ("constant_words", _WORD),
        ("workspace", _WORD),  # bytes for each thread
        ("grain", _WORD),
        ("share_rows", _WORD),  # from n rows the pool runs them
        ("release_rows", _WORD),  # from n rows without the GIL
        ("batch", _WORD),  # not 0: the last of the words is to be the number of rows
    )


class Context(ctypes.Structure):
    """A query, as its built-in function reads it. The addresses are those of objects that outlive it."""

    _fields_ = (
        ("inputs", _WORD),  # how many
        ("outputs", _WORD),
        ("array_type", _POINTER),
        ("tuple_type", _POINTER),
        ("descr", _POINTER),
        ("descr_type", _POINTER),
        ("type_number", _WORD),
        ("itemsize", _WORD),
        ("check", _WORD),  # bit 0: single states, bit 1: batches
        ("pool", _POINTER),
        ("parallel", _POINTER),
        ("start", _POINTER),  # callable that starts the pool's threads
        ("threads", _WORD),
        ("scratch", _POINTER),  # a word that says whether it is taken, and 64 bytes on, memory for all threads; or null
        ("fallback", _POINTER),
        ("out_name", _POINTER),  # the interned string "out"
        ("keyword", _POINTER),  # the interned name of the last input, where that comes by name, or null
        ("PyArray_New", _POINTER),
        ("PyArray_Return", _POINTER),
        ("PyErr_Clear", _POINTER),
        ("PyEval_RestoreThread", _POINTER),
        ("PyEval_SaveThread", _POINTER),
        ("PyMem_RawFree", _POINTER),
        ("PyMem_RawMalloc", _POINTER),
        ("PyObject_CallNoArgs", _POINTER),
        ("PyObject_Vectorcall", _POINTER),
        ("PyTuple_New", _POINTER),
        ("PyTuple_SetItem", _POINTER),
        ("Py_DecRef", _POINTER),
        ("Py_IncRef", _POINTER),
        ("versions", Version * 2),  # for batches, for a batch of one and for single states
        ("columns", _WORD * (MAX_INPUTS + MAX_OUTPUTS)),  # scalars in a row of each input, then of each output
        ("trailing", _WORD * MAX_OUTPUTS),  # axes of one state of each output
        ("shapes", _WORD * (MAX_TRAILING * MAX_OUTPUTS)),  # and their lengths
    )


@dataclass(frozen=True)
class Layout:
    """Bytes from the start of an object to what the code reads."""

    type: int
    tuple_items: int
    tuple_size: int
    bytes_data: int
    array_data: int
    array_nd: int
    array_shape: int
    array_strides: int
    array_descr: int
    array_flags: int
    descr_byteorder: int


CPYTHON = Layout(
    type=8,
    tuple_items=tuple.__basicsize__,
    tuple_size=16,
    bytes_data=bytes.__basicsize__ - 1,
    array_data=16,
    array_nd=24,
    array_shape=32,
    array_strides=40,
    array_descr=56,
    array_flags=64,
    descr_byteorder=26,
)
"""64-bit CPython with a GIL and NumPy 2, unless a probe disagrees."""
