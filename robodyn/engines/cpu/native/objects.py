"""Python's and NumPy's objects in memory: those of 64-bit CPython with a GIL and NumPy 2, unless a probe (`layout`)
disagrees."""

from __future__ import annotations

import ctypes

_POINTER, _WORD, _INT, _BYTE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_char
_HEAD = (("references", _WORD), ("type", _POINTER))
_SIZED = (*_HEAD, ("size", _WORD))
_SIZED_BYTES = 24


class PyObject(ctypes.Structure):
    """What all objects begin with."""

    _fields_ = _HEAD


class PyFloat(ctypes.Structure):
    """A float."""

    _fields_ = (*_HEAD, ("value", ctypes.c_double))


class PyTuple(ctypes.Structure):
    """A tuple. From Python 3.14 on it keeps its hash before its items."""

    _fields_ = (*_SIZED, ("hash", _BYTE * (tuple.__basicsize__ - _SIZED_BYTES)), ("items", _POINTER * 1))


class PyBytes(ctypes.Structure):
    """Bytes, with a zero behind them."""

    _fields_ = (
        *_SIZED,
        ("hash", ctypes.c_char * (bytes.__basicsize__ - 1 - _SIZED_BYTES)),
        ("data", ctypes.c_char * 1),
    )


class PyDescr(ctypes.Structure):
    """A dtype of NumPy's."""

    _fields_ = (
        *_HEAD,
        ("scalar_type", _POINTER),
        ("kind", _BYTE),
        ("character", _BYTE),
        ("byteorder", _BYTE),
    )


class PyArray(ctypes.Structure):
    """An array of NumPy's."""

    _fields_ = (
        *_HEAD,
        ("data", _POINTER),
        ("ndim", _INT),
        ("shape", ctypes.POINTER(_WORD)),
        ("strides", ctypes.POINTER(_WORD)),
        ("base", _POINTER),
        ("descr", ctypes.POINTER(PyDescr)),
        ("flags", _INT),
    )
