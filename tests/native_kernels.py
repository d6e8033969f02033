"""Kernels and entries that the tests of built-in entries share."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from robodyn.compile.llvm.jit import Code
from robodyn.engines.cpu.native.answers import Answers, EntryKernel, Input, answers_can_be
from robodyn.engines.cpu.native.entry import Argument, Entry
from robodyn.engines.cpu.threads.pool import compile_text

PATIENCE = 60.0  # seconds that nothing here comes near unless something hangs
DTYPES = ["float64", "float32"]


def kernel_text(inputs: tuple[int, ...], outputs: tuple[int, ...], dtype: str) -> str:
    """Scalar j of output k is the sum over inputs i of (i + 1) times their scalar (j + k) mod n_i; 0 without inputs."""
    scalar, size = ("double", 8) if dtype == "float64" else ("float", 4)
    lines = ["define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) {", "start:", "  br label %row"]
    lines += ["row:", "  %r = phi i64 [ %first, %start ], [ %next, %row ]"]
    for i in range(len(inputs) + len(outputs)):
        lines += [
            f"  %p{i} = getelementptr i64, ptr %table, i64 {2 * i}",
            f"  %q{i} = getelementptr i64, ptr %table, i64 {2 * i + 1}",
            f"  %d{i} = load ptr, ptr %p{i}",
            f"  %s{i} = load i64, ptr %q{i}",
            f"  %o{i} = mul i64 %s{i}, %r",
            f"  %a{i} = getelementptr i8, ptr %d{i}, i64 %o{i}",
        ]
    for k, n_out in enumerate(outputs):
        for j in range(n_out):
            total, name = "0.0", f"{k}.{j}"
            for i, n in enumerate(inputs):
                if n:
                    lines += [
                        f"  %b{name}.{i} = getelementptr i8, ptr %a{i}, i64 {size * ((j + k) % n)}",
                        f"  %v{name}.{i} = load {scalar}, ptr %b{name}.{i}, align 1",
                        f"  %w{name}.{i} = fmul {scalar} %v{name}.{i}, {float(i + 1)}",
                        f"  %t{name}.{i} = fadd {scalar} {total}, %w{name}.{i}",
                    ]
                    total = f"%t{name}.{i}"
            lines += [
                f"  %c{name} = getelementptr i8, ptr %a{len(inputs) + k}, i64 {size * j}",
                f"  store {scalar} {total}, ptr %c{name}, align 1",
            ]
    lines += ["  %next = add i64 %r, 1", "  %on = icmp slt i64 %next, %last", "  br i1 %on, label %row, label %done"]
    return "\n".join([*lines, "done:", "  ret void", "}", ""])


# wait: sets word 1 of the row of its first input, leaves when word 0 is not 0. scratch: writes its workspace's address
# to the output and fills the 4096 bytes there. constant: writes the second word behind its arrays to every row of the
# output. linger: waits, then does as scratch.
SPECIAL = """
define void @wait(ptr %table, i64 %first, i64 %last, ptr %workspace) {
start:
  %data = load ptr, ptr %table
  %second = getelementptr i64, ptr %data, i64 1
  store atomic i64 1, ptr %second seq_cst, align 8
  br label %look
look:
  %flag = load atomic i64, ptr %data seq_cst, align 8
  %shut = icmp eq i64 %flag, 0
  br i1 %shut, label %look, label %done
done:
  ret void
}
define void @scratch(ptr %table, i64 %first, i64 %last, ptr %workspace) {
start:
  %out.at = getelementptr i64, ptr %table, i64 2
  %out = load ptr, ptr %out.at
  %number = ptrtoint ptr %workspace to i64
  call void @llvm.memset.p0.i64(ptr %workspace, i8 85, i64 4096, i1 false)
  br label %row
row:
  %r = phi i64 [ %first, %start ], [ %next, %row ]
  %at = getelementptr i64, ptr %out, i64 %r
  store i64 %number, ptr %at
  %next = add i64 %r, 1
  %on = icmp slt i64 %next, %last
  br i1 %on, label %row, label %done
done:
  ret void
}
define void @constant(ptr %table, i64 %first, i64 %last, ptr %workspace) {
start:
  %out.at = getelementptr i64, ptr %table, i64 2
  %out = load ptr, ptr %out.at
  %word.at = getelementptr i64, ptr %table, i64 5
  %word = load i64, ptr %word.at
  br label %row
row:
  %r = phi i64 [ %first, %start ], [ %next, %row ]
  %at = getelementptr i64, ptr %out, i64 %r
  store i64 %word, ptr %at
  %next = add i64 %r, 1
  %on = icmp slt i64 %next, %last
  br i1 %on, label %row, label %done
done:
  ret void
}
define void @linger(ptr %table, i64 %first, i64 %last, ptr %workspace) {
start:
  call void @wait(ptr %table, i64 %first, i64 %last, ptr %workspace)
  call void @scratch(ptr %table, i64 %first, i64 %last, ptr %workspace)
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""


@cache
def special() -> Code:
    return compile_text(SPECIAL)


@cache
def kernel(inputs: tuple[int, ...], outputs: tuple[int, ...], dtype: str) -> Code:
    return compile_text(kernel_text(inputs, outputs, dtype))


def wanted(arrays: list[np.ndarray], shape: tuple[int, ...], number: int = 0) -> np.ndarray:
    """What the kernel computes for output `number`, by NumPy."""
    columns = np.arange(int(np.prod(shape, dtype=int))) + number
    terms = [(i + 1) * array[..., columns % array.shape[-1]] for i, array in enumerate(arrays)]
    total = np.asarray(sum(terms[1:], terms[0]))
    return total.reshape(total.shape[:-1] + shape).astype(arrays[0].dtype)


class Recorder:
    """A fallback that remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.answer = object()

    def __call__(self, *args: Any, **kwargs: Any) -> object:
        self.calls.append((args, kwargs))
        return self.answer


def make_entry(
    name: str,
    doc: str,
    dtype: np.dtype[Any],
    inputs: tuple[int, ...],
    outputs: tuple[tuple[int, ...], ...],
    fallback: Callable[..., Any],
    batches: EntryKernel | None,
    states: EntryKernel | None,
    check: bool | None,
    *,
    keyword: str | None = None,
    load: Callable[[str], Code] = compile_text,
    **options: Any,
) -> Callable[..., Any] | None:
    """An entry for calls with all inputs by place, or with the last one by a name, and maybe `out=`; None where there
    is no room."""
    places = [Input(place, (n,)) for place, n in enumerate(inputs)]
    if not answers_can_be(dtype, places, outputs, (batches, states)):
        return None
    answers = Answers(dtype, places, outputs, batches, states, check, **options)
    entry = Entry(name, doc, fallback, load)
    arguments = [Argument("array", place) for place in range(len(inputs))]
    last = () if keyword is None else (keyword,)
    given, values = len(inputs) - len(last), [0] * len(inputs)
    assert entry.forms.add(given, last, arguments, values, {}, answers)
    assert entry.forms.add(given, (*last, "out"), [*arguments, Argument("out")], [*values, 0], {}, answers)
    return entry.function


_OF_KERNELS = ("address", "constants", "workspace", "grain", "share_rows", "release_rows")


def build(
    inputs: tuple[int, ...] = (7, 7, 7),
    shapes: tuple[int, ...] | list[tuple[int, ...]] = (7,),
    dtype: str = "float64",
    fallback: Callable[..., Any] | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """An entry for one output of a shape, or for a list of them; one kernel runs batches and single states."""
    outputs = tuple(shapes) if isinstance(shapes, list) else (shapes,)
    code = kernel(inputs, tuple(int(np.prod(shape, dtype=int)) for shape in outputs), dtype)
    given = {"address": code.address("kernel"), "share_rows": 256, "keep": code}
    given |= {name: options.pop(name) for name in _OF_KERNELS if name in options}
    one = EntryKernel(**given)
    both = {"batches": one, "states": one, "check": None} | options
    entry = make_entry("query", "A query.", np.dtype(dtype), inputs, outputs, fallback or Recorder(), **both)
    assert entry is not None
    return entry


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.001)
