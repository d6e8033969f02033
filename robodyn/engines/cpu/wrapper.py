"""Wrappers: kernels around kernels of batches, the same for every robot. A module has one function per number of
arrays.

After its arrays, the table of a wrapper has one more entry: the address of a descriptor of the inner kernel, and the
number of rows of the whole batch. The wrapper for n arrays finds the descriptor there whatever the robot, so all robots
share one module. The module is first compiled without optimization (`robodyn.engines.cpu.tiered_compilation`); the
descriptor holds the address of the code in use.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar

from robodyn.compile.llvm.jit import Code
from robodyn.compile.llvm.target import Target
from robodyn.compile.loops.language import Address, Array, Static, Word, array, call, load_atomic, place, routine
from robodyn.compile.loops.llvm import Module
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.kernels import KernelCompiler

MAX_ARRAYS = 16
"""Maximal number of arrays of a kernel."""


class Descriptor(ctypes.Structure):
    """The descriptor of a wrapper. `run`: address of run(table, arrays, first, last, workspace). Subclasses add the
    data that it needs."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = (("run", ctypes.c_void_p),)


@routine
def kernel(table: Array[Argument], first: Word, last: Word, workspace: Address, arrays: Static[int]) -> None:
    """The wrapper for `arrays` arrays."""
    descriptor = array(Descriptor, table[arrays].data)
    run = load_atomic(place(descriptor, "run"), "monotonic")  # another thread may replace the code
    call(None, run, table, arrays, first, last, workspace)


def export_kernels(module: Module) -> None:
    """Add `kernel1` to `kernel16` to a module."""
    for n in range(1, MAX_ARRAYS + 1):
        module.export(kernel, f"kernel{n}", arrays=n)


class Wrapper:
    """Code of the wrapper for n arrays, as "kernel". `descriptor`: the descriptor in its table."""

    def __init__(
        self, maker: KernelCompiler, text: str, label: str, target: Target, arrays: int, descriptor: Descriptor
    ) -> None:
        self.arrays, self._descriptor = arrays, descriptor
        self._first = maker.shared_soon(text, label, target, self)
        self._held: list[Code] = []
        descriptor.run = self._first.address("run")

    def address(self, name: str) -> int:
        """Address of the function."""
        return self._first.address(f"{name}{self.arrays}")

    def replace(self, code: Code) -> None:
        """Continue with optimized code. Both versions compute the same; the descriptor's `run` selects one."""
        self._held.append(code)
        self._descriptor.run = code.address("run")
