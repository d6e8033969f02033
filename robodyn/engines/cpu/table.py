"""The table of a kernel, `void kernel(table, first, last, workspace)`: its arrays, then its constants."""

from __future__ import annotations

import ctypes

from robodyn.codegen.loops.language import Array, Word, array


class Argument(ctypes.Structure):
    """An array of a table: where its first row is, and bytes from one row to the next. Constants are two words."""

    _fields_ = (("data", ctypes.c_void_p), ("stride", ctypes.c_int64))


def words_of(table: Array[Argument], number: Word) -> Array[Word]:
    """An array of words."""
    return array(Word, table[number].data)
