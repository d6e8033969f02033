"""Tiered compilation: LLVM compiles large modules fast for the first answer, then optimized in another thread.

Level 0 of LLVM's code generator is several times as fast as the optimizing one, but its code is slower. Both versions
do the same operations in the same order, so results have the same bits. A *trampoline* stands in front of both: a
function that jumps to the address in a variable. Writing that variable replaces the code, even in the middle of a
batch. Replaced code stays loaded as long as the trampoline, because threads may still run it.

Large loops, and kernels that call the kernels of a batch, have trampolines. Other code has a variable of its own:
built-in functions (`robodyn.engines.cpu.native.entry`) in their descriptions, wrappers (`robodyn.engines.cpu.wrapper`)
in their descriptors, and the pool of threads (`robodyn.engines.cpu.threads.pool`) in its state. The cache keeps both
versions: if a process ends before the optimized one is ready, other processes use the fast one. If an engine is deleted
before its code is optimized, the job is dropped.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Protocol

from robodyn.compile.llvm.jit import Code
from robodyn.compile.loops.language import Address, Word, call, load_atomic, routine, variable
from robodyn.compile.loops.llvm import Module
from robodyn.internals.errors import UnavailableError
from robodyn.internals.tuning import HURRY_PAUSE_S

HURRIED = 0
"""Level of LLVM's code generator for the first answer."""


@routine
def jump(table: Address, first: Word, last: Word, workspace: Address) -> None:
    """Jump to the code at the address in the module's variable."""
    code = load_atomic(variable(Address, "target"), "monotonic")
    call(None, code, table, first, last, workspace)


@cache
def trampoline_text() -> str:
    """The module of a trampoline. Each loaded copy has its own variable."""
    module = Module({})
    module.export(jump, "kernel")
    return module.text()


class Replaced(Protocol):
    """An object whose code may be replaced."""

    def replace(self, code: Code, /) -> None:
        """Continue with `code`."""


class Trampoline:
    """A kernel's code that is later replaced by optimized code.

    Args:
        relay: code of `trampoline_text`, loaded for this trampoline only.
        first: the code until then.
    """

    def __init__(self, relay: Code, first: Code) -> None:
        self._relay, self._held = relay, [first]
        self._word = ctypes.c_void_p.from_address(relay.address("target"))
        self._word.value = first.address("kernel")

    def address(self, name: str) -> int:
        """Address of the function that jumps."""
        return self._relay.address(name)

    @property
    def replaced(self) -> bool:
        """True if the optimized code is in use."""
        return len(self._held) > 1

    def replace(self, code: Code) -> None:
        """Continue with `code`."""
        address = code.address("kernel")
        self._held.append(code)
        self._word.value = address  # a single word, so other threads read the old or the new address


_WAITING: list[tuple[weakref.ref[Replaced], Callable[[], Code]]] = []
_WORKING: list[threading.Thread] = []
"""The thread that compiles, if any. In a forked child it is not alive."""


def later(relay: Replaced, make: Callable[[], Code]) -> None:
    """Compile optimized code in another thread, once no other code has been requested for a while."""
    _WAITING.append((weakref.ref(relay, _forget), make))
    _work()


_ANSWERS: list[object] = []
"""One object for each kernel that a caller waits for."""


@contextmanager
def going_first() -> Iterator[None]:
    """Around the compilation of a kernel that a caller waits for: no optimized compilation starts during it."""
    answer = object()
    _ANSWERS.append(answer)
    try:
        yield
    finally:
        with suppress(ValueError):  # in a forked child, whose list began empty
            _ANSWERS.remove(answer)


def settle() -> None:
    """Wait until all code is optimized, e.g. before a measurement."""
    while _WORKING:
        with suppress(IndexError):  # the thread has just ended
            thread = _WORKING[0]
            if not thread.is_alive():  # the parent's thread, in a forked child that could not start its own
                return
            thread.join()


def _forget(gone: weakref.ref[Replaced]) -> None:
    """Drop a job when its engine is deleted: the job holds a module's text."""
    for job in tuple(_WAITING):
        if job[0] is gone:
            with suppress(ValueError):  # the job has just finished
                _WAITING.remove(job)


def _work() -> None:
    if _WORKING and _WORKING[0].is_alive():
        return
    thread = threading.Thread(target=_make, name="robodyn: better code", daemon=True)
    with suppress(RuntimeError, MemoryError):  # the system refuses a thread: the first code stays
        thread.start()
        _WORKING[:] = [thread]


def _make() -> None:
    try:
        while _WAITING:
            _make_first()
    finally:
        _WORKING.clear()
        if _WAITING:  # added while this thread was ending, or left by an error (a warning may raise)
            _work()


def _make_first() -> None:
    count = -1
    while _ANSWERS or count != len(_WAITING):
        count = len(_WAITING)
        time.sleep(HURRY_PAUSE_S)
    try:
        job = _WAITING[0]  # removed only when done, so that a forked child repeats it
    except IndexError:  # its engine was deleted
        return
    held, make = job
    try:
        if held() is not None:
            code = make()
            if (relay := held()) is not None:
                relay.replace(code)
    except (UnavailableError, MemoryError) as error:
        message = f"{error}; what was compiled in a hurry goes on: the same results, in more time"
        warnings.warn(message, RuntimeWarning, stacklevel=1)
    finally:
        with suppress(ValueError):
            _WAITING.remove(job)


def _after_fork() -> None:
    _ANSWERS.clear()  # the child does not have the threads that wait
    if _WAITING:
        _work()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
