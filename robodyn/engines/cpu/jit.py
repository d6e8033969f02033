"""LLVM: from the text of a module to machine code in this process."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from typing import Any

import llvmlite.binding as llvm

from robodyn.engines.cpu.target import Target
from robodyn.errors import UnavailableError

_LOCK = threading.RLock()
"""LLVM's global state is not safe to use from several threads at once; compiling in the background waits its turn."""

# The end of the process waits for a compilation in the background, and lets no other one start: LLVM's own state is
# torn down then, under the hands of whoever still compiles.
atexit.register(_LOCK.acquire)
_LLVMLITE_LOCK = getattr(llvm.ffi.lib, "_lock", None) or contextlib.nullcontext()
"""Held by llvmlite in every call, also in those that free what nobody refers to any more, without our lock."""


def _before_fork() -> None:
    _LOCK.acquire()
    _LLVMLITE_LOCK.__enter__()


def _after_fork() -> None:
    _LLVMLITE_LOCK.__exit__(None, None, None)
    _LOCK.release()


if hasattr(os, "register_at_fork"):
    # A fork waits for a compilation in another thread: the child would find LLVM half way through it, for ever.
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def compile_object(text: str, target: Target, opt: int) -> bytes:
    """Machine code, as a relocatable object, of a module in LLVM's language.

    `opt` is the level of the code generator alone (0 to 3): no pass over the module runs, because the graph that it
    was printed from left nothing to find.

    Raises:
        UnavailableError: LLVM cannot compile the module.
    """
    with _LOCK:
        try:
            module = llvm.parse_assembly(f'target triple = "{target.triple}"\n' + text)
            return bytes(target.machine(opt).emit_object(module))
        except RuntimeError as error:
            raise UnavailableError(f"engine 'cpu': LLVM cannot compile a program: {error}") from error


def assembly(text: str, target: Target, opt: int) -> str:
    """The same machine code as readable text."""
    with _LOCK:
        module = llvm.parse_assembly(f'target triple = "{target.triple}"\n' + text)
        return str(target.machine(opt).emit_assembly(module))


class Code:
    """Machine code loaded into this process; its functions live as long as this object."""

    def __init__(self, machine_code: bytes, target: Target) -> None:
        with _LOCK:
            self._engine: Any = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target.machine(1))
            try:
                self._engine.add_object_file(llvm.ObjectFileRef.from_data(machine_code))
                self._engine.finalize_object()
            except RuntimeError as error:
                raise UnavailableError(f"engine 'cpu': machine code does not load: {error}") from error

    def address(self, name: str) -> int:
        """Address of a function.

        Raises:
            UnavailableError: there is no function of that name.
        """
        found = int(self._engine.get_function_address(name))
        if not found:
            raise UnavailableError(f"engine 'cpu': machine code without a function {name!r}")
        return found
