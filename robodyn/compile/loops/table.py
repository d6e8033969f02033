"""The argument table of kernels.

A kernel is `void kernel(ptr table, i64 first, i64 last, ptr workspace)` and computes some rows of a batch. Its table
has an entry for each input, then one for each output, then further entries that the kernel needs.
"""

from __future__ import annotations

import ctypes

from robodyn.compile.loops.language import Array, Word, array


class Argument(ctypes.Structure):
    """An array in a kernel's table: the address of its rows, and the stride in bytes from one row to the next."""

    _fields_ = (("data", ctypes.c_void_p), ("stride", ctypes.c_int64))


def words_of(table: Array[Argument], number: Word) -> Array[Word]:
    """An array of words whose address is in the table."""
    return array(Word, table[number].data)
