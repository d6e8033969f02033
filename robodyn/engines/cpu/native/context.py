"""The memory that describes a query to its built-in function.

Whatever differs between two queries, addresses above all, is in a `Context`. So one module of machine code serves all
queries and can be kept on disk.
"""

from __future__ import annotations

import ctypes

from robodyn.compile.loops.table import Argument

MAX_INPUTS = 8
MAX_OUTPUTS = 4
MAX_FORCES = 2
MAX_SLOTS = 16
"""Arguments of a call."""
MAX_NAMED = 12
"""Those that come by name."""
MAX_TYPES = 3
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
        ("batch", _WORD),  # not 0: the last of the words is to be the number of rows, or n times that
    )


class Force(ctypes.Structure):
    """Damping and friction of the joints, added to a result or taken from an input."""

    _fields_ = (
        ("target", _WORD),  # which array of the table
        ("source", _WORD),  # which input has the rates; -1: `ones`
        ("step", _WORD),  # numbers from one entry of the target to the next
        ("n", _WORD),
        ("damping", _POINTER),
        ("friction", _POINTER),
        ("ones", _POINTER),
    )


class Known(ctypes.Structure):
    """Numbers of an input at which calls may be answered at once."""

    _fields_ = (("data", _POINTER), ("bytes", _WORD))


class Context(ctypes.Structure):
    """How calls that give certain arrays are answered. The addresses are those of objects that outlive it."""

    _fields_ = (
        ("inputs", _WORD),  # how many
        ("outputs", _WORD),
        ("array_type", _POINTER),
        ("tuple_type", _POINTER),
        ("float_type", _POINTER),
        ("descr", _POINTER),
        ("descr_type", _POINTER),
        ("type_number", _WORD),
        ("itemsize", _WORD),
        ("check", _WORD),  # bit 0: single states, bit 1: batches
        ("pool", _POINTER),
        ("start", _POINTER),  # callable that starts the pool's threads
        ("threads", _WORD),
        ("scratch", _POINTER),  # a word that says whether it is taken, and 64 bytes on, memory for all threads; or null
        ("known", _POINTER),  # a `Known`, or null where every input will do
        ("known_input", _WORD),
        ("drive", _WORD),  # the input that forces are taken from, or -1
        ("forces", _WORD),  # how many
        ("force", Force * MAX_FORCES),
        ("memcmp", _POINTER),
        ("handler", _POINTER),  # an allocator for large results; or null
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
        ("versions", Version * 2),  # for batches, for a batch of one and for single states
        ("places", _WORD * MAX_INPUTS),  # where each input stands among the arrays of the question
        (
            "widths",
            _WORD * MAX_INPUTS,
        ),  # the last axis of an input that has two besides that of rows, -1 of a float, else 0
        ("columns", _WORD * (MAX_INPUTS + MAX_OUTPUTS)),  # scalars in a row of each input, then of each output
        ("trailing", _WORD * MAX_OUTPUTS),  # axes of one state of each output
        ("shapes", _WORD * (MAX_TRAILING * MAX_OUTPUTS)),  # and their lengths
    )


class Job(ctypes.Structure):
    """The table of a kernel that does more than the query's kernel."""

    _fields_ = (
        ("context", ctypes.POINTER(Context)),
        ("kernel", _POINTER),  # the query's,
        ("table", ctypes.POINTER(Argument)),  # and its table
        ("given", ctypes.POINTER(Argument)),  # inputs as they came
        ("bad", ctypes.c_int32),  # becomes 1 where a number is not finite
    )


ARRAY, OUT, CHOICE = range(3)


class Slot(ctypes.Structure):
    """An argument of a form."""

    _fields_ = (
        ("role", _WORD),  # ARRAY, OUT or CHOICE
        ("place", _WORD),  # of an array among those of the question
        ("none", _WORD),  # what None in place of an array adds to the key, 0 where it may not be None
        ("words", _POINTER),  # the dict from what may be chosen to bytes that begin with what it adds to the key
        ("types", _POINTER * MAX_TYPES),  # what may be looked up there: types whose hash and equality are Python's own
    )


class Answer(ctypes.Structure):
    """The context for calls with a key, or null: of a place of a hash table."""

    _fields_ = (("key", _WORD), ("context", _POINTER))


class AnswerTable(ctypes.Structure):
    """A hash table. The number of places is a power of two; `mask` is one less. No place lies on two cache lines."""

    _fields_ = (("mask", _WORD), ("_", _WORD), ("places", Answer * 0))


class Form(ctypes.Structure):
    """A way to write a call: how many arguments come by place, which by name, and what each is."""

    _fields_ = (
        ("given", _WORD),
        ("named", _WORD),
        ("names", _POINTER * MAX_NAMED),  # interned strings
        ("slots", Slot * MAX_SLOTS),
        ("answers", _POINTER),  # an `AnswerTable`
    )


class FormList(ctypes.Structure):
    """Forms one behind the other."""

    _fields_ = (("count", _WORD), ("forms", Form * 0))


class State(ctypes.Structure):
    """The forms of a built-in function."""

    _fields_ = (
        ("forms", _POINTER),  # a `FormList`
        ("calls", _WORD),  # how many are being answered
        ("epoch", _WORD),  # when the forms were learnt
    )


class Front(ctypes.Structure):
    """A built-in function.

    `state`: where the address of a `State` stands; `epoch`: where the epoch stands, of which forms are answered. All
    changes are of one word, so that whoever holds the GIL sees all of one or nothing: another answer (the last word of
    a place of a hash table), a larger table, a new form (the state's), other forms altogether, another epoch.
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
"""A key times this, without its lower 32 bits, is where a hash table begins to look for it."""
