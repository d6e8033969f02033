"""LLVM: compiles the text of a module to machine code and loads it into this process."""

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
"""Level of LLVM's code generator. Level 2 takes twice the time for code that is no faster."""
_LOCK = threading.RLock()
"""LLVM's global state is not thread-safe: only one thread at a time compiles or links, in the background as well."""

# At exit, the process waits for a compilation in the background and prevents further ones: LLVM destroys its global
# state then, while another thread may still compile.
atexit.register(_LOCK.acquire)
_LLVMLITE_LOCK = getattr(getattr(llvm.ffi.lib, "_lock", None), "_lock", None) or contextlib.nullcontext()
"""llvmlite holds this lock in every call, also when it frees objects that are no longer referenced, without `_LOCK`."""
_FORKING: list[Generator[None]] = []


def _holding() -> Generator[None]:
    """Hold every lock that must be free during a fork, until this generator is closed. Each `with` block releases only
    its own lock, wherever an exception ends it."""
    with _LOCK:
        await_imports()
        with _LLVMLITE_LOCK:
            yield


def _before_fork() -> None:
    """Take the locks. If a signal handler raises here, Python prints the exception and forks all the same, so the
    exception is raised only after all locks are held."""
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


# A fork waits for a compilation in another thread. Otherwise the child's copy of LLVM would stay locked forever.
guard(_before_fork, _after_fork)


def compile_object(text: str, target: Target, opt: int) -> bytes:
    """Compile a module in LLVM's language to machine code, a relocatable object.

    `opt`: level of the code generator (0 to 3). No optimisation pass runs on the module: the expression graph is
    already simplified.

    Raises:
        UnavailableError: LLVM cannot compile the module.
    """
    with _LOCK:
        try:
            return bytes(target.machine(opt).emit_object(_module(text, target)))
        except RuntimeError as error:
            raise UnavailableError(f"engine 'cpu': LLVM cannot compile a program: {error}") from error


def assembly(text: str, target: Target, opt: int) -> str:
    """The same machine code as assembly text."""
    with _LOCK:
        return str(target.machine(opt).emit_assembly(_module(text, target)))


def _module(text: str, target: Target) -> Any:
    """Parse a module in a context of its own. A context keeps all types and constants it has seen, and LLVM's default
    context is never freed."""
    return llvm.parse_assembly(f'target triple = "{target.triple}"\n' + text, llvm.create_context())


class _Linker:
    """LLVM's linker. It gives each library that it links a name.

    The linker is JITLink, which places all sections of an object next to each other. LLVM's older linker does not: in a
    process whose address space is full of large arrays it can place constants out of reach of the code that reads them,
    and then aborts the process.

    Each linked library leaves some ten kilobytes until the linker is freed. So a linker serves a limited number of
    libraries and is freed with the last of them.
    """

    SERVED = 32
    """Number of libraries that one linker links. Making a linker takes as long as linking several libraries."""

    def __init__(self, target: Target) -> None:
        self._jit = llvm.create_lljit_compiler(target.machine(1), use_jit_link=True, suppress_errors=True)
        self._count = 0
        _LINKERS.add(self)

    @property
    def spent(self) -> bool:
        """Whether the linker has linked its number of libraries."""
        return self._count >= self.SERVED

    def link(self, machine_code: bytes) -> tuple[str, Any]:
        """Link machine code. Returns the name of the new library, and an object that keeps it alive."""
        self._count += 1
        name = f"robodyn {self._count}"
        library = llvm.JITLibraryBuilder().add_object_img(machine_code).add_current_process()
        return name, library.link(self._jit, name)

    def lookup(self, library: str, name: str) -> Any:
        """Look up a function of a library by name."""
        return self._jit.lookup(library, name)

    def stay(self) -> None:
        """Keep the linker alive until the process ends."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._jit))


_LINKERS: weakref.WeakSet[_Linker] = weakref.WeakSet()
_SERVING: list[_Linker] = []
"""The linker in use, if there is one."""


def _serving(target: Target) -> _Linker:
    if not _SERVING or _SERVING[0].spent:
        _SERVING[:] = [_Linker(target)]
    return _SERVING[0]


@atexit.register
def _stay() -> None:
    """Keep all linkers alive at exit: threads may still run machine code while the interpreter shuts down."""
    for linker in tuple(_LINKERS):
        linker.stay()


class Code:
    """Machine code loaded into this process. Its functions are valid as long as this object lives."""

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
        if name not in self._found:  # no lock for known names: another thread may be compiling
            with _LOCK:
                if name not in self._found:  # only once: freeing the result of a second lookup would free the code
                    self._found[name] = self._lookup(name)
        return int(self._found[name][name])

    def _lookup(self, name: str) -> Any:
        try:
            return self._linker.lookup(self._name, name)
        except RuntimeError as error:
            raise UnavailableError(f"engine 'cpu': machine code without a function {name!r}: {error}") from error
