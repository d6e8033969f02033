"""The driver of our own machine code: what it tells programs, as Python and as machine code."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from robodyn.compile.llvm.jit import OPT, Code, compile_object
from robodyn.compile.llvm.target import host_target
from robodyn.compile.loops.blocks import Number
from robodyn.compile.loops.language import Array, bound, struct_of
from robodyn.compile.loops.table import Argument
from robodyn.compile.x86.driver import Program, Used, drive, driver_module
from robodyn.engines.cpu import backends

pytestmark = pytest.mark.skipif(
    host_target().level == "neon" or not backends._runs(host_target().level),
    reason="this processor or system has it not",
)
VECTORS, ROWS, POINTED = [2, 0], [3, 1, 4], 16


class Told(ctypes.Structure):
    """A frame, in the order of `VECTORS` and `ROWS`; offsets of up to 16 rows."""

    _fields_ = (("vectors", ctypes.c_int64 * 2), ("rows", (ctypes.c_int64 * 18) * 3))


def told_programs(rows: range, step: int, *, python: bool) -> list[tuple[list[int], list[list[int]]]]:
    """What a program finds in its frame each time that it runs, which goes on by W rows itself."""
    found = []

    def run(pointed: int) -> None:
        frame = Told.from_address(pointed - POINTED)
        assert (pointed - POINTED) % 64 == 0
        found.append(([*frame.vectors], [row[: 2 + step] for row in frame.rows]))
        for row in frame.rows:
            row[1] += row[0]

    code = ctypes.CFUNCTYPE(None, ctypes.c_int64)(run)
    words = np.zeros(5 + 2 * 5, np.int64)
    program, place = Program.from_buffer(words), words.ctypes.data
    program.frame, program.pointed, program.vectors, program.rows = ctypes.sizeof(Told), POINTED, 2, 3
    program.code = ctypes.cast(code, ctypes.c_void_p).value - place
    starts = [0, 8, *(Told.rows.offset + 8 * (18 * k + 1) for k in range(3))]
    used = (Used * 5).from_buffer(words, 5 * 8)
    used[:] = [Used(number, at) for number, at in zip(VECTORS + ROWS, starts, strict=True)]
    table = (Argument * 5)(*(Argument(1000 * k + 7, 8 * k - 16) for k in range(5)))
    at = ctypes.addressof(table)
    if python:
        with bound(Words=Number("i64", 2, align=8)):
            of = Array(at, struct_of(Argument)), rows.start, rows.stop, 0, Array(place, struct_of(Program))
            drive(*of, step=step, avx=True)
    else:
        target = host_target().for_one_state if step == 1 else host_target()
        compiled = Code(compile_object(driver_module(step, target), target, OPT), target)
        ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 5)(compiled.address("drive"))(at, rows.start, rows.stop, 0, place)
    return found


@pytest.mark.parametrize("step", [1, 4, 8, 16])
@pytest.mark.parametrize("rows", [range(1), range(3, 19), range(5, 54)])
def test_programs_are_told_where_rows_are(rows, step):
    found = told_programs(rows, step, python=True)
    assert found == told_programs(rows, step, python=False)
    for row, (vectors, told) in zip(rows[::step], found, strict=True):
        assert vectors == [1000 * k + 7 for k in VECTORS]
        for number, (advance, first, *offsets) in zip(ROWS, told, strict=True):
            stride = 8 * number - 16
            assert (advance, first) == (step * stride, 1000 * number + 7 + row * stride)
            last = min(rows[-1] - row, step - 1)
            assert offsets == [min(k, last) * stride for k in range(step)]
