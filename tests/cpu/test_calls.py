"""Kernels that call others: what these are called with, as machine code and as Python."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from robodyn.compile.llvm.jit import OPT, Code, compile_object
from robodyn.compile.llvm.target import host_target
from robodyn.compile.loops.language import Array, bound, struct_of
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.calls import (
    BATCH,
    ROW,
    USER,
    WORDS,
    WORKSPACE,
    Called,
    CallsPlan,
    by_states,
    by_steps,
    by_vectors,
    calls_module,
)
from robodyn.engines.cpu.kernels import workspace

KERNEL = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
ENTRIES = [
    [(USER, 0, 0, 0), (WORKSPACE, 64, 8, 0), (WORDS, 5, -7, 3)],
    [(ROW, 1, 24, 0), (BATCH, 9, 0, 0), (WORKSPACE, 0, 16, 0), (USER, 1, 0, 0)],
]
OF_STEPS = [[(WORDS, 1000, 8, 16), (WORDS, 7, 3, 0)], [(WORKSPACE, 8, 24, 32), (WORDS, -4, 0, -8), (WORDS, 1, 1, 1)]]
USERS, STRIDES = (4096, 8192), (16, 8)
BEFORE, PLACES = 128, (8, 16)
"""Bytes of the workspace before tables of calls, and the place that is cleared."""


def wanted(entry: tuple[int, int, int, int], scratch: int, batch: int, number: int) -> tuple[int, int]:
    """What stands in a table in a round."""
    kind, place, stride, move = entry
    if kind == USER:
        return USERS[place], STRIDES[place]
    if kind == ROW:
        return USERS[place] + number * STRIDES[place], stride
    data = scratch + place if kind == WORKSPACE else place
    return data + number * move, batch if kind == BATCH else stride


@pytest.mark.parametrize("as_python", [False, True])
@pytest.mark.parametrize("rows", [(0, 0), (2, 11), (5, 6)])
@pytest.mark.parametrize(
    ("function", "known", "second"),
    [
        (by_vectors, {"inputs": 0, "arrays": 2, "width": 4, "fence": ""}, 77),
        (by_states, {"arrays": 2}, 0),
        (by_steps, {}, 3),
    ],
)
def test_what_kernels_are_called_with(function, known, second, rows, as_python):
    calls, seen = OF_STEPS if function is by_steps else ENTRIES, []

    def record(table, first, end, own):
        count = len(calls[len(seen) % 2])
        words = np.ctypeslib.as_array((ctypes.c_int64 * (2 * count)).from_address(table)).tolist()
        seen.append((list(zip(words[0::2], words[1::2], strict=True)), (first, end), own))

    callback = KERNEL(record)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    planned = [Called(address, entries, 40, 3 * k, 3 * k + 2) for k, entries in enumerate(calls)]
    plan = CallsPlan(planned, BEFORE, [PLACES])
    scratch, owner = workspace(plan.workspace_bytes)
    owner[:] = 255
    arrays = [] if function is by_steps else [word for pair in zip(USERS, STRIDES, strict=True) for word in pair]
    table = (ctypes.c_int64 * (len(arrays) + 2))(*arrays, plan.descriptor.ctypes.data, second)
    if as_python:
        with bound():
            function(Array(ctypes.addressof(table), struct_of(Argument)), *rows, scratch, **known)
    else:
        code = Code(compile_object(calls_module(function, **known), host_target(), OPT), host_target())
        KERNEL(code.address("kernel"))(ctypes.addressof(table), *rows, scratch)
    base = scratch - owner.ctypes.data
    cleared = owner[base + PLACES[0] : base + sum(PLACES)]
    assert (cleared == (0 if function is by_vectors else 255)).all()
    if function is by_vectors:
        rounds = [(0, [(first, min(first + 4, rows[1]))] * 2) for first in range(*rows, 4)]
    elif function is by_states:
        rounds = [(row, [(0, 2), (3, 5)]) for row in range(*rows)]
    else:
        rounds = [(step, [rows] * 2) for step in range(second)]
    batch = second if function is by_vectors else 0
    assert seen == [
        ([wanted(entry, scratch, batch, number) for entry in entries], ranges[k], scratch + plan.workspace_bytes - 64)
        for number, ranges in rounds
        for k, entries in enumerate(calls)
    ]
