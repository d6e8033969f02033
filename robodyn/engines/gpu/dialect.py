"""The dialect of C++ in which kernels are printed."""

from __future__ import annotations

from collections.abc import Sequence

from robodyn.compile.c import sincos
from robodyn.compile.c.body import Dialect
from robodyn.compile.lowering import Operation

FUSED = """\
#define MULADD(x, y, z) ((x) * (y) + (z))
#define MULSUB(x, y, z) ((x) * (y) - (z))
#define NMULADD(x, y, z) ((z) - (x) * (y))
"""
"""Macros for fused multiply-adds: the compiler contracts a product and a sum into one instruction."""


class CudaDialect(Dialect):
    """C++ for GPUs. One call computes sine and cosine; the compiler removes an unused result."""

    def statements(self, operation: Operation, operands: Sequence[str], results: Sequence[str]) -> list[str]:
        """Statements that compute `results` from `operands`. `results` are in the order of the operation's results."""
        if operation.kind == "sincos":
            sine, cosine = (name or f"other{operation.operands[0]}" for name in results)
            return [f"{self.scalar} {sine}, {cosine};", f"{sincos.NAME}({operands[0]}, &{sine}, &{cosine});"]
        return super().statements(operation, operands, results)
