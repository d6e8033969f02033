"""Structs of Python's and NumPy's objects in 64-bit CPython with a GIL and NumPy 2; `layout` checks them."""

from __future__ import annotations

import ctypes

_POINTER, _WORD, _INT, _BYTE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_char
_HEAD = (("references", _WORD), ("type", _POINTER))
_SIZED = (*_HEAD, ("size", _WORD))
_SIZED_BYTES = 24


class PyObject(ctypes.Structure):
    """The beginning of every object."""

    _fields_ = _HEAD


class PyFloat(ctypes.Structure):
    """A Python float."""

    _fields_ = (*_HEAD, ("value", ctypes.c_double))


class PyTuple(ctypes.Structure):
    """A Python tuple. From Python 3.14 on it stores its hash before its items."""

    _fields_ = (*_SIZED, ("hash", _BYTE * (tuple.__basicsize__ - _SIZED_BYTES)), ("items", _POINTER * 1))


class PyBytes(ctypes.Structure):
    """A Python bytes object, terminated by a zero byte."""

    _fields_ = (
        *_SIZED,
        ("hash", ctypes.c_char * (bytes.__basicsize__ - 1 - _SIZED_BYTES)),
        ("data", ctypes.c_char * 1),
    )


class PyDescr(ctypes.Structure):
    """A NumPy dtype."""

    _fields_ = (
        *_HEAD,
        ("scalar_type", _POINTER),
        ("kind", _BYTE),
        ("character", _BYTE),
        ("byteorder", _BYTE),
    )


class PyArray(ctypes.Structure):
    """A NumPy array."""

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
