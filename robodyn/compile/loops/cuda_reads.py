"""GPU memory reads that CUDA C++ cannot express."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robodyn.compile.loops.c_terms import Printed

ALIGNMENT = 16
"""Alignment in bytes of the memory that `SharedRead` reads."""
_READS = {
    "float": """\
    asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]) : "r"(at));
""",
    "double": """\
    asm volatile("ld.volatile.shared.v2.f64 {%0, %1}, [%2];" : "=d"(to[0]), "=d"(to[1]) : "r"(at));
    asm volatile("ld.volatile.shared.v2.f64 {%0, %1}, [%2];" : "=d"(to[2]), "=d"(to[3]) : "r"(at + 16));
""",
}


class SharedRead(Printed):
    """Reads four scalars of shared memory, aligned to `ALIGNMENT`, into an array. The read is volatile: otherwise the
    compiler moves all reads of a thread to the beginning, and runs out of registers.

    Args:
        scalar: CUDA's name of the scalar type.
    """

    name = "read_four"

    def __init__(self, scalar: str) -> None:
        self.scalar = scalar

    def __call__(self, *arguments: Any) -> None:
        """Read them as Python."""
        to, source = arguments
        for k in range(4):
            to[k] = source[k]

    def definition(self, name: str, arguments: Sequence[Any]) -> str:
        """The definition in CUDA C++, with a C++ version for tests on the host."""
        return f"""\
static __device__ __forceinline__ void {name}({self.scalar}* to, const {self.scalar}* source)
{{
#ifdef __CUDA_ARCH__
    const unsigned at = (unsigned)__cvta_generic_to_shared(source);
{_READS[self.scalar]}\
#else
    for (int k = 0; k < 4; k++)
        to[k] = source[k];
#endif
}}
"""
