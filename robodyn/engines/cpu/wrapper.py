"""What is around kernels of batches and the same for every robot: modules with a function for each number of arrays.

Behind its arrays the table of such a kernel has one more entry: the address of a descriptor, which says what the kernel
is around, and the rows of the whole batch. The kernel of n arrays finds it there, whatever robot it is for: so one
module serves all of them. It is compiled in a hurry first (`robodyn.engines.cpu.tiered_compilation`), and the
descriptor says where the code is that runs now."""

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
"""Arrays of a kernel at most."""


class Descriptor(ctypes.Structure):
    """What a kernel around others is told: `run`, the address of run(table, arrays, first, last, workspace), and what
    that one needs."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = (("run", ctypes.c_void_p),)


@routine
def kernel(table: Array[Argument], first: Word, last: Word, workspace: Address, arrays: Static[int]) -> None:
    """The kernel of so many arrays."""
    descriptor = array(Descriptor, table[arrays].data)
    run = load_atomic(place(descriptor, "run"), "monotonic")  # another thread may replace it
    call(None, run, table, arrays, first, last, workspace)


def export_kernels(module: Module) -> None:
    """Add `kernel1` to `kernel16` to a module."""
    for n in range(1, MAX_ARRAYS + 1):
        module.export(kernel, f"kernel{n}", arrays=n)


class Wrapper:
    """The kernel of n arrays of such a module, as "kernel"; `descriptor`: what its table leads to."""

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
        """Go on with what was compiled with care: both do the same, so a word says which (`hurry.later`)."""
        self._held.append(code)
        self._descriptor.run = code.address("run")
