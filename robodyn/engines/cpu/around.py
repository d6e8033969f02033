"""What is around kernels of batches and the same for every robot: modules with a function for each number of arrays.

Such a module has `run(ptr table, i64 arrays, i64 first, i64 last, ptr workspace)`, and of n arrays the function
`kernel<n>`, a kernel like any other. It is made in a hurry first, and a word of its own, `now`, says which of both
runs (`robodyn.engines.cpu.hurry`).
"""

from __future__ import annotations

import ctypes

from robodyn.codegen.llvm.jit import Code
from robodyn.codegen.llvm.target import Target
from robodyn.engines.cpu.kernels import Maker

MAX_ARRAYS = 16
"""Arrays of a kernel at most."""


def entries_text() -> str:
    """`now`, and `kernel1` to `kernel16`."""
    functions = "".join(
        f"""define void @kernel{n}(ptr %table, i64 %first, i64 %last, ptr %workspace) {{
  %now = load atomic ptr, ptr @now monotonic, align 8
  call void %now(ptr %table, i64 {n}, i64 %first, i64 %last, ptr %workspace)
  ret void
}}
"""
        for n in range(1, MAX_ARRAYS + 1)
    )
    return f"@now = global ptr @run\n{functions}"


class Around:
    """The function of such a module for n arrays, as "kernel"."""

    def __init__(self, maker: Maker, text: str, label: str, target: Target, arrays: int) -> None:
        self.arrays = arrays
        self._first = maker.shared_soon(text, label, target, self)
        self._held: list[Code] = []

    def address(self, name: str) -> int:
        """Address of the function."""
        return self._first.address(f"{name}{self.arrays}")

    def replace(self, code: Code) -> None:
        """Go on with what was compiled with care: both do the same, so a word says which (`hurry.later`)."""
        self._held.append(code)
        ctypes.c_void_p.from_address(self._first.address("now")).value = code.address("run")
