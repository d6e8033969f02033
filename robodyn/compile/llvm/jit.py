"""LLVM: from the text of a module to machine code in this process."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import threading
import weakref
from collections.abc import Generator
from typing import Any

import llvmlite.binding as llvm

from robodyn.compile.llvm.target import Target
from robodyn.compile.pages import require_executable
from robodyn.internals.errors import UnavailableError
from robodyn.internals.forks import await_imports, guard

OPT = 1
"""Level of LLVM's code generator. Level 2 takes twice the time for code that runs no faster."""
_LOCK = threading.RLock()
"""LLVM's global state is not safe to use from several threads at once; compiling in the background waits its turn."""

# The end of the process waits for a compilation in the background, and lets no other one start: LLVM's own state is
# torn down then, under the hands of whoever still compiles.
atexit.register(_LOCK.acquire)
_LLVMLITE_LOCK = getattr(getattr(llvm.ffi.lib, "_lock", None), "_lock", None) or contextlib.nullcontext()
"""Held by llvmlite in every call, also in those that free what nobody refers to any more, without our lock."""
_FORKING: list[Generator[None]] = []


def _holding() -> Generator[None]:
    """Everything that a fork must find free, for as long as this is suspended: blocks give back what they took, and
    nothing else, wherever an exception ends them."""
    with _LOCK:
        await_imports()
        with _LLVMLITE_LOCK:
            yield


def _before_fork() -> None:
    """An exception here, such as that of a signal's handler, Python prints, and forks: it comes when all is held."""
    raised = None
    while True:
        try:
            _FORKING.append(_holding())
            next(_FORKING[-1])
            break
        except BaseException as error:
            raised = error
    if raised is not None:
        raise raised


def _after_fork() -> None:
    while _FORKING:
        _FORKING.pop().close()


# A fork waits for a compilation in another thread: the child would find LLVM half way through it, for ever.
guard(_before_fork, _after_fork)


def compile_object(text: str, target: Target, opt: int) -> bytes:
    """Machine code, as a relocatable object, of a module in LLVM's language.

    `opt` is the level of the code generator alone (0 to 3): no pass over the module runs, because the graph that it
    was printed from left nothing to find.

    Raises:
        UnavailableError: LLVM cannot compile the module.
    """
    with _LOCK:
        try:
            return bytes(target.machine(opt).emit_object(_module(text, target)))
        except RuntimeError as error:
            raise UnavailableError(f"engine 'cpu': LLVM cannot compile a program: {error}") from error


def assembly(text: str, target: Target, opt: int) -> str:
    """The same machine code as readable text."""
    with _LOCK:
        return str(target.machine(opt).emit_assembly(_module(text, target)))


def _module(text: str, target: Target) -> Any:
    """A module, in a context of its own: what a context has seen of types and constants stays as long as it does, and
    the one that LLVM would take stays for ever."""
    return llvm.parse_assembly(f'target triple = "{target.triple}"\n' + text, llvm.create_context())


class _Linker:
    """LLVM's linker, with names for what it links.

    JITLink puts all parts of an object side by side. The older linker does not: in a process whose memory is full of
    large arrays it may put constants out of the reach of the code that reads them, and ends the process then.

    Of every library that it linked, some ten kilobytes stay until the linker itself is gone. So one serves a few of
    them, and goes with the last.
    """

    SERVED = 32
    """Libraries that a linker serves: making one takes as long as linking some of them."""

    def __init__(self, target: Target) -> None:
        self._jit = llvm.create_lljit_compiler(target.machine(1), use_jit_link=True, suppress_errors=True)
        self._count = 0
        _LINKERS.add(self)

    @property
    def spent(self) -> bool:
        """Whether it has served enough."""
        return self._count >= self.SERVED

    def link(self, machine_code: bytes) -> tuple[str, Any]:
        """The name of the new library, and what keeps it alive."""
        self._count += 1
        name = f"robodyn {self._count}"
        library = llvm.JITLibraryBuilder().add_object_img(machine_code).add_current_process()
        return name, library.link(self._jit, name)

    def lookup(self, library: str, name: str) -> Any:
        """Where a function of a library is, by its name."""
        return self._jit.lookup(library, name)

    def stay(self) -> None:
        """Never be gone."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._jit))


_LINKERS: weakref.WeakSet[_Linker] = weakref.WeakSet()
_SERVING: list[_Linker] = []
"""The linker that serves now, if there is one."""


def _serving(target: Target) -> _Linker:
    if not _SERVING or _SERVING[0].spent:
        _SERVING[:] = [_Linker(target)]
    return _SERVING[0]


@atexit.register
def _stay() -> None:
    """Threads may still be inside machine code while the interpreter is torn down."""
    for linker in tuple(_LINKERS):
        linker.stay()


class Code:
    """Machine code loaded into this process; its functions live as long as this object."""

    def __init__(self, machine_code: bytes, target: Target) -> None:
        require_executable()
        with _LOCK:
            try:
                self._linker = _serving(target)
                self._name, self._library = self._linker.link(machine_code)
            except RuntimeError as error:
                raise UnavailableError(f"engine 'cpu': machine code does not load: {error}") from error
        self._found: dict[str, Any] = {}

    def address(self, name: str) -> int:
        """Address of a function.

        Raises:
            UnavailableError: there is no function of that name.
        """
        if name not in self._found:  # what was looked up need not wait for a compilation elsewhere
            with _LOCK:
                if name not in self._found:  # once: with what a second look up gives the first one's code would go
                    self._found[name] = self._lookup(name)
        return int(self._found[name][name])

    def _lookup(self, name: str) -> Any:
        try:
            return self._linker.lookup(self._name, name)
        except RuntimeError as error:
            raise UnavailableError(f"engine 'cpu': machine code without a function {name!r}: {error}") from error
