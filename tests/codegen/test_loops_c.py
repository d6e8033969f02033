"""Functions with loops, printed in C: they do what they do as Python and as machine code."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from typing import NamedTuple

import numpy as np
import pytest
import test_loops
from test_loops import TYPES, both

from robodyn.compile.loops import language
from robodyn.compile.loops.blocks import Number
from robodyn.compile.loops.cuda import Module
from robodyn.compile.loops.language import (
    Array,
    Flag,
    Index,
    Integer,
    Scalar,
    Static,
    Word,
    array,
    bound,
    local,
    routine,
    switch,
    wrapped,
)
from robodyn.compile.loops.source import MISSING

C_TYPES = {"Scalar": Number("double")}
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")


def compiled(text, folder):
    """What gcc makes of a text in C."""
    source, made = folder / "loops.c", folder / "loops.so"
    source.write_text(f"#include <stdbool.h>\n{text}")
    flags = ["-std=gnu99", "-O1", "-fwrapv", "-fno-strict-aliasing", "-Wall", "-Werror", "-Wno-unused-function"]
    done = subprocess.run(["gcc", *flags, "-shared", "-fPIC", source, "-o", made], capture_output=True, text=True)
    assert not done.returncode, f"{text}\n{done.stderr}"
    return ctypes.CDLL(str(made))


def in_c(function, words, folder, /, **known):
    """The words after the function ran on them in C, and its result."""
    module = Module(C_TYPES)
    module.export(function, "kernel", **known)
    run = compiled(module.text(), folder).kernel
    run.restype, run.argtypes = ctypes.c_int64, [ctypes.c_void_p]
    memory = np.zeros(len(words) + 8, np.int64)
    own = memory[-memory.ctypes.data // 8 % 8 :][: len(words)]
    own[:] = words
    result = run(own.ctypes.data)
    return own.tolist(), int(result)


def everywhere(function, words, folder, /, **known):
    """What `both` finds, and C as well."""
    found = both(function, words, **known)
    assert in_c(function, words, folder, **known) == found
    return found


CASES = [
    *((test_loops.control, [*words, 0, 0]) for words in [(0, 0, 0), (3, 2, 5), (60, 9, 1), (60, 3, 1000), (1, -4, 0)]),
    *((test_loops.swapped, [1, 2, rounds, 0, 0]) for rounds in [0, 1, 6]),
    *((test_loops.memory, [first, 20, 30, 40, 50, 0, 0, 0]) for first in [2, 5]),
    *((test_loops.threads, [first, 0]) for first in [1, 2]),
]


@needs_gcc
@pytest.mark.parametrize(("function", "words"), CASES)
def test_what_llvm_prints_as_well(function, words, tmp_path):
    everywhere(function, words, tmp_path)


def larger(a: Word, b: Word) -> Word:
    if a < b:
        return b
    return a


def ordered(a: Word, b: Word) -> tuple[Word, Word]:
    return larger(a, b), a + b - larger(a, b)


@routine
def scopes(w: Array[Word]) -> Word:
    """Variables that begin in blocks and are read behind them."""
    if w[0] > 2:
        kind = 1
        bonus = w[1]
    elif w[0] == 2:
        kind, bonus = 2, 7
    else:
        return -1
    count = 0
    for k in range(w[1], w[2], w[0]):
        step = k * kind
        if step > bonus:
            count += step - bonus
            break
        count += 1
    total = 0
    register = 5
    while total < 30 and count > 0:
        register -= 1
        total += register if register > 2 else 9
        step = total
        w[3] = step
    for k in range(w[1], min(w[1] + 3, w[2])):
        total += k
    for k in reversed(range(max(w[1], 4), w[2] + 1)):
        total -= k * k
    short: Integer = 3
    for each in (1, 2, 4):
        if each == 2:
            continue
        short += each
    return total + 100 * kind + 1000 * count - int(short)


@needs_gcc
@pytest.mark.parametrize("words", [(0, 1, 2), (2, 3, 30), (3, 5, 60), (9, 0, 9), (7, 100, 90)])
def test_variables_live_as_long_as_the_function(words, tmp_path):
    everywhere(scopes, [*words, 0], tmp_path)


@routine
def real(w: Array[Word]) -> Word:
    """Numbers with a fraction, in an array of its own."""
    X = array(Scalar, w + 2)
    sums = local(Scalar, 4)
    for k in range(4):
        sums[k] = X[k] * 0.5
    total: Scalar = 0.0
    for k in range(w[0]):
        total += sums[k % 4] if k % 3 != 1 else -sums[0] / 3.0
        if total > 4.0:
            total = total - 1.0
    X[0] = total
    X[1] = -(-total - 1.5)
    return w[1]


@needs_gcc
@pytest.mark.parametrize("rounds", [0, 3, 11])
def test_numbers_with_fractions(rounds, tmp_path):
    values = np.array([1.5, 2.0, -4.0, 8.0]).view(np.int64)
    everywhere(real, [rounds, 7, *values], tmp_path)


@routine
def several_results(w: Array[Word]) -> Word:
    a, b = ordered(w[0], w[1])
    return 10 * a + b


@routine
def of_any_width(w: Array[Word]) -> Word:
    def_ = narrow(array(Integer, w), 2) + narrow(w, w[1])
    return wrapped(def_)


def narrow(at: Array[Word], k: Index) -> Word:
    return at[0] + k


@needs_gcc
def test_functions_with_two_results(tmp_path):
    for pair in ([3, 4], [9, 4]):
        with bound(**C_TYPES):
            wanted = several_results(Array(np.array(pair).ctypes.data, language.I64))
        assert in_c(several_results, pair, tmp_path)[1] == wanted == 10 * max(pair) + min(pair)


def test_a_function_for_each_width_and_for_what_is_only_read():
    @routine
    def first(w: Array[Word], flag: Flag) -> Word:
        return narrow(w, 2) + narrow(w, w[0]) + narrow(w + 1, 3)

    module = Module(C_TYPES)
    module.export(first)
    text = module.text()
    assert text.count("narrow(\n    long long* at,\n    int k)") == 1
    assert text.count("narrow_1(\n    long long* at,\n    long long k)") == 1
    assert "bool flag" in text


def test_what_is_known_leaves_no_trace():
    @routine
    def function(w: Array[Word], large: Static[bool]) -> Word:
        width = 4 if large else 2
        while width < 8:
            width *= 2
        if large or w is None:
            return width
        return w[width]

    module = Module(C_TYPES)
    module.export(function, large=True)
    assert module.text() == "long long function(\n    long long* w)\n{\n    return 8;\n}\n"


@routine
def leaves_late(w: Array[Word]) -> Word:
    for k in (1, 2):
        if w[k] > 0:
            break
    return w[0]


@routine
def counts_itself(w: Array[Word]) -> Word:
    for k in range(w[0]):
        k += 1
    return 0


def counted(w: Array[Word], value: Word) -> Word:
    w[0] += 1
    return value


@routine
def extremes_of_calls(w: Array[Word]) -> Word:
    """Arguments of `min` and `max` that count their calls, in the test of a loop as well."""
    small, k = min(w[1], counted(w, w[2])), 0
    while k < max(counted(w, w[1]), counted(w, 4), small):
        k += 1
    return 100 * k + small


@needs_gcc
@pytest.mark.parametrize("words", [[0, 3, 5], [0, 5, 3], [0, 7, 7]])
def test_arguments_of_extremes_are_evaluated_once(words, tmp_path):
    (calls, *_), _ = everywhere(extremes_of_calls, words, tmp_path)
    assert calls == 1 + 2 * (max(words[1], 4) + 1)


@routine
def switches(w: Array[Word]) -> Word:
    total = 0
    for k in range(w[0]):
        for number in switch(w[k + 1], [1, 2, 5]):
            last = number
            if number * k > 3:
                total += 10 * k
            w[k + 1] = total * number
        total += last
    return total


@needs_gcc
@pytest.mark.parametrize("words", [[0, 1], [1, 5], [6, 1, 2, 5, 5, 2, 1]])
def test_switches(words, tmp_path):
    everywhere(switches, words, tmp_path)


@routine
def leaves_a_switch(w: Array[Word]) -> Word:
    for k in range(w[0]):
        for _ in switch(w[k], [1, 2]):
            if k == 1:
                continue
            w[k] = 3
    return w[0]


@routine
def counts(w: Array[Word]) -> Word:
    w[0] += 1
    return w[0]


@routine
def between_calls(w: Array[Word]) -> Word:
    return 1 if 0 < counts(w) < 3 else 0


@routine
def call_among(w: Array[Word]) -> Word:
    return 1 if counts(w) not in (1, 3) else 0


@routine
def calls_at_ends(w: Array[Word]) -> Word:
    return 1 if counts(w) < w[1] < 3 + counts(w) else 0


@needs_gcc
def test_calls_at_the_ends_of_comparisons_are_evaluated_once(tmp_path):
    (calls, _), _ = everywhere(calls_at_ends, [0, 3], tmp_path)
    assert calls == 2


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (between_calls, "evaluated several times"),
        (call_among, "evaluated several times"),
        (leaves_a_switch, "loop that is repeated"),
        (test_loops.undefined, "found"),
        (leaves_late, "loop that is repeated"),
        (counts_itself, "changes what it counts"),
        (test_loops.aliased, "append"),
    ],
)
def test_what_cannot_be_printed_is_refused(function, message):
    with pytest.raises(TypeError, match=message):
        Module(TYPES).export(function)


class Place(NamedTuple):
    row: Word
    column: Word


def stride_of(place: Place, width: Index) -> Word:
    return place.row * width + place.column


@routine
def groups(w: Array[Word], others: tuple[Array[Word], ...], place: Place) -> Word:
    places = [Place(each[0], place.column) for each in others]
    total = 0
    for at, one in zip(others, places, strict=True):
        total += stride_of(one, 10) * at[1]
    return total + stride_of(place, w[0])


@needs_gcc
def test_parameters_in_groups(tmp_path):
    module = Module(C_TYPES)
    module.export(groups, others=(MISSING, MISSING))
    run = compiled(module.text(), tmp_path).groups
    run.restype = ctypes.c_int64
    words = np.array([5, 1, 2, 3, 4])
    ctypes_words = [ctypes.c_void_p(words.ctypes.data + 8 * k) for k in (0, 1, 3)]
    with bound(**C_TYPES):
        arrays = [Array(each.value, language.I64) for each in ctypes_words]
        wanted = groups(arrays[0], tuple(arrays[1:]), Place(7, 9))
    assert run(*ctypes_words, ctypes.c_int64(7), ctypes.c_int64(9)) == wanted == 19 * 2 + 39 * 4 + 44
