"""What LLVM makes twice: in a hurry for the first answer, and with care in another thread, to take its place.

Level 0 of LLVM's code generator takes a quarter of the time of the usual one, for code that runs two to six times as
long. Both do the same operations in the same order, so results have the same bits before and after. A *relay* stands in
front of both, a function that jumps to where a word says: a change of code is a change of that word, whoever calls it,
in the middle of a batch as well. Code that was replaced stays as long as the relay, for threads that are in it.

Large loops are made so, and what calls the kernels of a batch one after another. Others need no relay: of the module of
all built-in functions (`robodyn.engines.cpu.native.entry`) the code stands in the description of each function; of what
is around kernels of batches (`robodyn.engines.cpu.wrapper`) in each descriptor; and of the pool of threads
(`robodyn.engines.cpu.threads.pool`) a word of its own says which of both runs. Code of both kinds is kept in the cache:
a process that ends before the second is there leaves the first one to others. So does an engine that is dropped before
its turn: nothing is compiled for what nobody can call any more.
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
"""Level of LLVM's code generator for a first answer."""


@routine
def jump(table: Address, first: Word, last: Word, workspace: Address) -> None:
    """Jump to the code that the module's word says."""
    code = load_atomic(variable(Address, "target"), "monotonic")
    call(None, code, table, first, last, workspace)


@cache
def trampoline_text() -> str:
    """The module of a relay. Each has a word of its own, as often as it is loaded."""
    module = Module({})
    module.export(jump, "kernel")
    return module.text()


class Replaced(Protocol):
    """What has code that may be replaced."""

    def replace(self, code: Code, /) -> None:
        """Go on with that code."""


class Trampoline:
    """A kernel's code that is replaced once by better code.

    Args:
        relay: code of `trampoline_text`, loaded for this one alone.
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
        """Whether the better code is there."""
        return len(self._held) > 1

    def replace(self, code: Code) -> None:
        """Go on with that code."""
        address = code.address("kernel")
        self._held.append(code)
        self._word.value = address  # one word: others read the old one or the new one


_WAITING: list[tuple[weakref.ref[Replaced], Callable[[], Code]]] = []
_WORKING: list[threading.Thread] = []
"""The thread that works, if there is one. In the child of a fork it is not alive."""


def later(relay: Replaced, make: Callable[[], Code]) -> None:
    """Have better code made, once nothing else has been asked for a while."""
    _WAITING.append((weakref.ref(relay, _forget), make))
    _work()


_ANSWERS: list[object] = []
"""What stands for a kernel each that somebody waits for."""


@contextmanager
def going_first() -> Iterator[None]:
    """Around making a kernel that somebody waits for: no better code is begun meanwhile."""
    answer = object()
    _ANSWERS.append(answer)
    try:
        yield
    finally:
        with suppress(ValueError):  # in the child of a fork, which began without any
            _ANSWERS.remove(answer)


def settle() -> None:
    """Wait until nothing is left to be replaced: what is measured then is what stays."""
    while _WORKING:
        with suppress(IndexError):  # it has just ended
            thread = _WORKING[0]
            if not thread.is_alive():  # the parent's, in the child of a fork that may start no thread
                return
            thread.join()


def _forget(gone: weakref.ref[Replaced]) -> None:
    """What waits holds a module's text: it goes with the engine, not when its turn comes."""
    for job in tuple(_WAITING):
        if job[0] is gone:
            with suppress(ValueError):  # it is done just now
                _WAITING.remove(job)


def _work() -> None:
    if _WORKING and _WORKING[0].is_alive():
        return
    thread = threading.Thread(target=_make, name="robodyn: better code", daemon=True)
    with suppress(RuntimeError, MemoryError):  # the system grants no thread: what there is goes on
        thread.start()
        _WORKING[:] = [thread]


def _make() -> None:
    try:
        while _WAITING:
            _make_first()
    finally:
        _WORKING.clear()
        if _WAITING:  # from somebody who saw this thread alive, or left by an error, as a warning may be one
            _work()


def _make_first() -> None:
    count = -1
    while _ANSWERS or count != len(_WAITING):
        count = len(_WAITING)
        time.sleep(HURRY_PAUSE_S)
    try:
        job = _WAITING[0]  # there until it is done: a child of a fork in between does it again
    except IndexError:  # its engine went
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
    _ANSWERS.clear()  # those of threads that the child does not have
    if _WAITING:
        _work()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
