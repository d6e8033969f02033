"""Kernels of loops that process the rows of a table: compiled on a CPU engine, as Python on the reference engine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from robodyn.compile.llvm.target import Target
from robodyn.compile.loops.language import bound
from robodyn.engines.cpu.kernels import workspace

PORTABLE = Target("", "", "", "sse2")
"""The target whose vectors the reference engine has."""
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class TableKernel:
    """A kernel of an engine. Subclasses set `types`, those of names in the loops, `workspace_bytes`, and `row_ns`: ns
    for a row, which decides when threads share a batch.

    Args:
        engine: an engine on the CPU, or the reference engine.
    """

    types: dict[str, Any]
    workspace_bytes: int
    row_ns: float

    def __init__(self, engine: Any) -> None:
        self._engine, self._native = engine, engine.native
        self.target: Target = engine.target if self._native else PORTABLE

    def load(self, code: Any) -> None:
        """Take the function "kernel" of compiled code."""
        self._code, self.address = code, code.address("kernel")
        self.function = _RUN(self.address)

    def run_as_python(self, table: int, rows: int, scratch: int) -> None:
        """Run the loops as Python. `table`, `scratch`: addresses of the table, and of `workspace_bytes`."""
        raise NotImplementedError

    def run(self, table: ctypes.Array[ctypes.c_int64], rows: int) -> None:
        """Process the rows of a table. The caller keeps its arrays alive."""
        address = ctypes.addressof(table)
        if self._native:
            self._engine.launch(self, address, rows)
            return
        scratch, _owner = workspace(self.workspace_bytes)
        with bound(**self.types), np.errstate(all="ignore"):
            self.run_as_python(address, rows, scratch)

    def one(self, table: ctypes.Array[ctypes.c_int64], *kept: Any) -> Callable[[], None]:
        """A call for the first row of a table, as quick as possible. `kept`: what must stay alive."""
        if not self._native:
            return lambda: self.run(table, 1)
        scratch, owner = workspace(self.workspace_bytes)
        address, keep = ctypes.addressof(table), (table, owner, self, kept)

        def alone(run: Any = self.function, _: Any = keep) -> None:
            run(address, 0, 1, scratch)

        return alone
