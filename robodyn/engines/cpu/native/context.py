"""The memory that describes a query to its built-in function.

Everything that differs between queries, addresses above all, is in a `Context`. So one module of machine code serves
all queries, and can be cached.
"""

from __future__ import annotations

import ctypes

from robodyn.compile.loops.table import Argument

MAX_INPUTS = 15
MAX_OUTPUTS = 6
MAX_FORCES = 2
MAX_SLOTS = 16
"""Maximal number of arguments of a call."""
MAX_NAMED = 12
"""Maximal number of keyword arguments."""
MAX_TYPES = 3
MAX_TRAILING = 4
MAX_CONSTANTS = 104
"""Maximal words of a kernel's table after its inputs and outputs."""
MAX_RECORDS = MAX_INPUTS + MAX_OUTPUTS + MAX_CONSTANTS // 2
"""Maximal entries of a kernel's table."""
FIXED = -2
"""The width of an input that is the same memory in all calls."""
_WORD, _POINTER = ctypes.c_int64, ctypes.c_void_p


class Version(ctypes.Structure):
    """A kernel that answers a query."""

    _fields_ = (
        ("kernel", _POINTER),  # null if there is none
        ("constants", _POINTER),  # words of the table after inputs and outputs
        ("constant_words", _WORD),
        ("workspace", _WORD),  # bytes per thread
        ("grain", _WORD),  # minimal rows of a piece of work
        ("share_rows", _WORD),  # rows from which the pool runs the kernel
        ("release_rows", _WORD),  # rows from which the kernel runs without the GIL
        ("batch", _WORD),  # not 0: the last word must be the number of rows, times `batch` for large new results
    )


class Force(ctypes.Structure):
    """Damping and friction of the joints, added to a result or subtracted from an input."""

    _fields_ = (
        ("target", _WORD),  # index of the array in the table
        ("source", _WORD),  # index of the input with the rates; -1: `ones`
        ("step", _WORD),  # distance of the target's entries, in numbers
        ("n", _WORD),
        ("damping", _POINTER),
        ("friction", _POINTER),
        ("ones", _POINTER),
    )


class Known(ctypes.Structure):
    """Values of an input for which calls may be answered."""

    _fields_ = (("data", _POINTER), ("bytes", _WORD))


class Context(ctypes.Structure):
    """How calls with certain arrays are answered. All objects that addresses refer to outlive the context."""

    _fields_ = (
        ("inputs", _WORD),  # number of inputs
        ("outputs", _WORD),
        ("steps", _WORD),  # steps of a rollout (see `rollouts`), or 0
        ("array_type", _POINTER),
        ("tuple_type", _POINTER),
        ("float_type", _POINTER),
        ("descr", _POINTER),
        ("descr_type", _POINTER),
        ("type_number", _WORD),
        ("itemsize", _WORD),
        ("check", _WORD),  # bit 0: check single states, bit 1: check batches
        ("pool", _POINTER),
        ("start", _POINTER),  # callable that starts the pool's threads
        ("threads", _WORD),
        ("scratch", _POINTER),  # a word, 1 while in use; 64 bytes on, memory for all threads; or null
        ("known", _POINTER),  # a `Known`, or null if values of inputs do not matter
        ("known_input", _WORD),
        ("positive", _WORD),  # bit i: input i, a float, must be positive and finite
        ("nonnegative", _WORD),  # bit i: the numbers of input i, an array, must be finite and at least 0
        ("steady", _WORD),  # bit i: input i, an array, must not have an axis of time
        ("defaults", _POINTER * MAX_INPUTS),  # address of the double or fixed memory; null if calls give the input
        ("drive", _WORD),  # index of the input that forces are subtracted from, or -1
        ("forces", _WORD),  # number of forces
        ("force", Force * MAX_FORCES),
        ("memcmp", _POINTER),
        ("handler", _POINTER),  # the allocator for large results, or null
        ("PyDataMem_SetHandler", _POINTER),
        ("PyArray_New", _POINTER),
        ("PyArray_Scalar", _POINTER),
        ("PyErr_Clear", _POINTER),
        ("PyEval_RestoreThread", _POINTER),
        ("PyEval_SaveThread", _POINTER),
        ("PyMem_RawFree", _POINTER),
        ("PyMem_RawMalloc", _POINTER),
        ("PyObject_CallNoArgs", _POINTER),
        ("PyTuple_New", _POINTER),
        ("PyTuple_SetItem", _POINTER),
        ("Py_DecRef", _POINTER),
        ("Py_IncRef", _POINTER),
        ("versions", Version * 2),  # for batches; for single states and batches of one
        ("places", _WORD * MAX_INPUTS),  # index of each input among the arrays of the query
        (
            "widths",
            _WORD * MAX_INPUTS,
        ),  # length of the last axis of an input with two axes per state, -1 for a float, `FIXED`, else 0
        ("columns", _WORD * (MAX_INPUTS + MAX_OUTPUTS)),  # scalars in a row of each input, then of each output
        ("trailing", _WORD * MAX_OUTPUTS),  # number of axes of each output for one state
        ("shapes", _WORD * (MAX_TRAILING * MAX_OUTPUTS)),  # lengths of these axes
    )


class Job(ctypes.Structure):
    """The table of a kernel that checks numbers, adds forces or takes several steps around the query's kernel."""

    _fields_ = (
        ("context", ctypes.POINTER(Context)),
        ("kernel", _POINTER),  # the query's kernel
        ("table", ctypes.POINTER(Argument)),  # the table of the query's kernel
        ("given", ctypes.POINTER(Argument)),  # the user's inputs
        ("constants", _WORD),  # words of that table after its inputs and outputs
        ("moves", ctypes.POINTER(_WORD)),  # bytes by which an array advances with each step
        ("bad", ctypes.c_int32),  # set to 1 if a number is not finite
    )


ARRAY, OUT, CHOICE = range(3)


class Slot(ctypes.Structure):
    """An argument of a form."""

    _fields_ = (
        ("role", _WORD),  # ARRAY, OUT or CHOICE
        ("place", _WORD),  # an array's index among the arrays of the query
        ("none", _WORD),  # added to the key if the array is None; 0 if it must not be None
        ("words", _POINTER),  # a dict from choices to bytes, whose first word is added to the key
        ("types", _POINTER * MAX_TYPES),  # types of choices that may be looked up: hash and equality are Python's own
    )


class Answer(ctypes.Structure):
    """A place of a hash table: a key, and the context of calls with that key, or null."""

    _fields_ = (("key", _WORD), ("context", _POINTER))


class AnswerTable(ctypes.Structure):
    """A hash table. The number of places is a power of two; `mask` is one less. No place crosses a cache line."""

    _fields_ = (("mask", _WORD), ("_", _WORD), ("places", Answer * 0))


class Form(ctypes.Structure):
    """A form of calls: number of positional arguments, names of keyword arguments, and what each argument is."""

    _fields_ = (
        ("given", _WORD),
        ("named", _WORD),
        ("names", _POINTER * MAX_NAMED),  # interned strings
        ("slots", Slot * MAX_SLOTS),
        ("answers", _POINTER),  # an `AnswerTable`
    )


class FormList(ctypes.Structure):
    """Consecutive forms."""

    _fields_ = (("count", _WORD), ("forms", Form * 0))


class State(ctypes.Structure):
    """The forms of a built-in function."""

    _fields_ = (
        ("forms", _POINTER),  # a `FormList`
        ("calls", _WORD),  # number of calls in progress
        ("epoch", _WORD),  # the epoch for which the forms are valid
    )


class Front(ctypes.Structure):
    """The description of a built-in function.

    `state`: address of the pointer to a `State`; `epoch`: address of the current epoch; forms of other epochs are
    invalid. Every change is a single word, so a thread with the GIL sees all of it or nothing: a new answer (the last
    word of a place in a hash table), a larger table, a new form (in the state), other forms, another epoch.
    """

    _fields_ = (
        ("state", _POINTER),
        ("epoch", _POINTER),
        ("fallback", _POINTER),
        ("none", _POINTER),
        ("PyDict_GetItem", _POINTER),
        ("PyObject_Vectorcall", _POINTER),
    )


HASH = 0x9E3779B97F4A7C15
"""A lookup begins at the key times this constant, without the lower 32 bits."""
