"""Solves batches of quadratic programmes: compiled on a CPU engine, as Python on the reference engine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from robodyn.compile.llvm.target import Target
from robodyn.compile.loops.language import Array as Memory
from robodyn.compile.loops.language import bound, struct_of
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.kernels import workspace
from robodyn.internals.arguments import Array
from robodyn.solve.quadratic.code import kernel, module_text
from robodyn.solve.quadratic.factors import types, workspace_bytes

_STEPS, _STEPS_OF_EACH = 60, 4
"""Most steps of one programme after those for equalities, and in addition for each unknown."""
_TOLERANCES = {"float64": (1e-10, 1e-6, 1e-18), "float32": (1e-7, 1e-5, 1e-14)}
"""Tolerances by the dtype of arrays, whose rounding makes dependent rows differ."""
_PORTABLE = Target("", "", "", "sse2")
"""The target whose vectors the reference engine has."""
_CODE: WeakKeyDictionary[Any, dict[bool, Any]] = WeakKeyDictionary()
"""Loaded code of each engine, without and with squares."""
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Programmes:
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
        self.n, self.m, self.rows, self._engine = n, m, rows, engine
        self._native, squares = engine.native, rows is not None
        target, dtype = (engine.target if self._native else _PORTABLE), engine.dtype
        self._types = types(dtype, target)
        width = self._types["Vector"].width
        padded = -(-n // width) * width
        steps = _STEPS + _STEPS_OF_EACH * n if most is None else most
        sizes = np.array([n, m, rows or 0, padded, steps], np.int64)
        self._constants = sizes, np.array([*_TOLERANCES[dtype.name], scale])
        self.workspace_bytes = workspace_bytes(n, m, rows or 0, padded)
        # A factorisation, and as much for the first steps: it decides when threads share a batch.
        self.row_ns = 50.0 + n**3 / width + (rows or 0) * n * (n / width + 1.0)
        if self._native:
            loaded = _CODE.setdefault(engine, {})
            if squares not in loaded:
                text = module_text(dtype, target, squares)
                label = f"robodyn quadratic {dtype} {target.level}"
                loaded[squares] = engine.compiler.shared(text, label, target)
            self._code = loaded[squares]
            self.address = self._code.address("kernel")
            self.function = _RUN(self.address)

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

    def run(self, table: ctypes.Array[ctypes.c_int64], rows: int) -> None:
        """Solve the programmes of the rows of a table. The caller keeps its arrays alive."""
        address = ctypes.addressof(table)
        if self._native:
            self._engine.launch(self, address, rows)
            return
        scratch, _owner = workspace(self.workspace_bytes)
        with bound(**self._types), np.errstate(all="ignore"):
            kernel(Memory(address, struct_of(Argument)), 0, rows, scratch, self.rows is not None)

    def one(self, table: ctypes.Array[ctypes.c_int64], *kept: Any) -> Callable[[], None]:
        """A call for the first row of a table, as quick as possible. `kept`: what must stay alive."""
        if not self._native:
            return lambda: self.run(table, 1)
        scratch, owner = workspace(self.workspace_bytes)
        address, keep = ctypes.addressof(table), (table, owner, self._code, self._constants, kept)

        def alone(run: Any = self.function, _: Any = keep) -> None:
            run(address, 0, 1, scratch)

        return alone
