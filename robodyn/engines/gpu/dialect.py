"""The C++ that kernels are printed in."""

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
"""What statements call them: the compiler contracts a product and a sum."""


class CudaDialect(Dialect):
    """C++ for GPUs: a sine and its cosine are one call, and whichever is not needed costs nothing."""

    def statements(self, operation: Operation, operands: Sequence[str], results: Sequence[str]) -> list[str]:
        """Statements that define `results`, in the order of the operation's own, from `operands`."""
        if operation.kind == "sincos":
            sine, cosine = (name or f"other{operation.operands[0]}" for name in results)
            return [f"{self.scalar} {sine}, {cosine};", f"{sincos.NAME}({operands[0]}, &{sine}, &{cosine});"]
        return super().statements(operation, operands, results)
