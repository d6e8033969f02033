"""Solves batches of quadratic programmes: compiled on a CPU engine, as Python on the reference engine."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from robodyn.compile.loops.language import Array as Memory
from robodyn.compile.loops.language import struct_of
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.table_kernel import TableKernel
from robodyn.internals.arguments import Array
from robodyn.solve.quadratic.code import kernel, module_text
from robodyn.solve.quadratic.factors import types, workspace_bytes

_STEPS, _STEPS_OF_EACH = 60, 4
"""Most steps of one programme after those for equalities, and in addition for each unknown."""
_TOLERANCES = {"float64": (1e-10, 1e-6, 1e-18), "float32": (1e-7, 1e-5, 1e-14)}
"""Tolerances by the dtype of arrays, whose rounding makes dependent rows differ."""
_CODE: WeakKeyDictionary[Any, dict[bool, Any]] = WeakKeyDictionary()
"""Loaded code of each engine, without and with squares."""


class Programmes(TableKernel):
    """Quadratic programmes of one size; see `robodyn.solve.quadratic.code`.

    Args:
        engine: an engine on the CPU, or the reference engine, whose dtype arrays have.
        n, m: number of unknowns, and of rows of C.
        rows: number of rows of A; None: calls give H and g.
        scale: size of x below which violations of bounds are relative to it, and not to x.
        most: steps after which a programme counts as not solved, besides one for each equality; None: 60 + 4 n.
    """

    def __init__(
        self, engine: Any, n: int, m: int, rows: int | None = None, *, scale: float = 0.0, most: int | None = None
    ) -> None:
        super().__init__(engine)
        self.n, self.m, self.rows = n, m, rows
        target, dtype, squares = self.target, engine.dtype, rows is not None
        self.types = types(dtype, target)
        width = self.types["Vector"].width
        padded = -(-n // width) * width
        steps = _STEPS + _STEPS_OF_EACH * n if most is None else most
        sizes = np.array([n, m, rows or 0, padded, steps], np.int64)
        self._constants = sizes, np.array([*_TOLERANCES[dtype.name], scale])
        self.workspace_bytes = workspace_bytes(n, m, rows or 0, padded, width)
        # A factorisation, and as much for the first steps: it decides when threads share a batch.
        self.row_ns = 50.0 + n**3 / width + (rows or 0) * n * (n / width + 1.0)
        if self._native:
            loaded = _CODE.setdefault(engine, {})
            if squares not in loaded:
                text = module_text(dtype, target, squares)
                label = f"robodyn quadratic {dtype} {target.level}"
                loaded[squares] = engine.compiler.shared(text, label, target)
            self.load(loaded[squares])

    def table(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> ctypes.Array[ctypes.c_int64]:
        """The argument table for arrays (B, ...) whose rows are contiguous.

        Args:
            inputs: A (B, rows, n), b (B, rows), d and e (B, n), or H (B, n, n) and g (B, n); then C (B, m, n), and
                lower and upper bounds (B, n + m).
            outputs: x (B, n), multipliers (B, n + m), and 64-bit integers (B, 2): what became of the programme, and the
                number of steps.
        """
        arrays = (*inputs, *outputs, *self._constants)
        words = [word for array in arrays for word in (array.__array_interface__["data"][0], array.strides[0])]
        return (ctypes.c_int64 * len(words))(*words)

    def run_as_python(self, table: int, rows: int, scratch: int) -> None:
        """The loops of `robodyn.solve.quadratic.code`."""
        kernel(Memory(table, struct_of(Argument)), 0, rows, scratch, self.rows is not None)
