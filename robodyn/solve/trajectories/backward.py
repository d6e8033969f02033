"""The backward pass of iterative linear-quadratic regulators: compiled, or as Python on the reference engine."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from robodyn.compile.cache import ObjectCache
from robodyn.compile.llvm.target import Target, host_target
from robodyn.compile.loops.language import Array as Memory
from robodyn.compile.loops.language import bound, struct_of
from robodyn.engines.cpu.compiler import Compiler
from robodyn.engines.cpu.kernels import workspace
from robodyn.engines.cpu.table_kernel import PORTABLE
from robodyn.internals.arguments import Array
from robodyn.solve.trajectories.backward_code import FEW, INPUTS, OUTPUTS, Given, kernel, layout, module_text, types

_CODE: dict[tuple[Any, Target, bool], Any] = {}
"""Loaded code by dtype and target, for one problem and for several at once."""
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_LEAST = 8.0
"""A pivot of Quu that counts as zero, relative to its diagonal entry, in units of rounding errors."""
_ABSENT = 0, 0, 0
_MOST_STATES = 24
"""Number of states up to which several problems are solved at once: matrices of more are too far from the processor."""


class _Kernel:
    """The kernel for passes of one size, on an engine or alone.

    Args:
        several: True if it processes several problems at once.
        alone: the kernel for one, if this one is for several.
    """

    def __init__(
        self,
        n: int,
        nu: int,
        steps: int,
        wide: int,
        columns: Array | None,
        dtype: np.dtype[Any],
        engine: Any,
        several: bool,
        alone: _Kernel | None,
    ) -> None:
        self._engine, self._several = engine if engine is not None and engine.native else None, several
        self._native = engine is None or engine.name != "reference"
        target = PORTABLE if not self._native else host_target() if self._engine is None else self._engine.target
        self.types = types(dtype, target, several)
        width = self.types["Vector"].width
        entries = 1 if several else width
        line, small = (-(-(count + 1) // entries) * entries for count in (n + nu, nu))
        *offsets, self.workspace_bytes = layout(n, nu, line, small, self.types["Scalar"].size)
        sizes = np.array([n, nu, steps, line, small, wide, self.workspace_bytes, *offsets], np.int64)
        self.constants: tuple[Array | None, ...] = sizes, np.array([least_pivot(dtype)], dtype), columns
        self.alone = alone
        if alone is not None:
            self.workspace_bytes += alone.workspace_bytes
        # Products of a knot, and what does not fill vectors: it decides when threads share a batch.
        self.row_ns = steps * (200.0 + n * (n + nu) * (1.5 * n + nu) / (4 * width))
        self.function: Callable[..., None] | None = None
        if self._native:
            key = dtype, target, several
            if key not in _CODE:
                compiler = Compiler(ObjectCache.from_environment()) if self._engine is None else self._engine.compiler
                label = f"robodyn backward pass {dtype} {target.level}"
                _CODE[key] = compiler.shared(module_text(dtype, target, several), label, target)
            self.address = _CODE[key].address("kernel")
            self.function = _RUN(self.address)

    def table(self, words: Sequence[int]) -> tuple[ctypes.Array[ctypes.c_int64], list[Any]]:
        """The argument table, from the words of arrays, and what must stay alive."""
        own, kept = list(words), list[Any](self.constants)
        for each in self.constants:
            own += _ABSENT if each is None else (each.ctypes.data, 0, 0)
        if self.alone is None:
            own += _ABSENT
        else:
            other, its = self.alone.table(words)
            own += self.alone.address, ctypes.addressof(other), 0
            kept += [other, *its]
        return (ctypes.c_int64 * len(own))(*own), kept

    def run(self, table: ctypes.Array[ctypes.c_int64], rows: int) -> None:
        """The passes of the rows of a table. The caller keeps its arrays alive."""
        run_table(self, self._engine, table, rows, partial(kernel, several=self._several))


def run_table(own: Any, engine: Any, table: ctypes.Array[ctypes.c_int64], rows: int, text: Callable[..., None]) -> None:
    """Run a kernel on the rows of a table: by an engine, by its compiled function, or its text as Python.

    Args:
        own: the kernel, with `function` where it is compiled, `types` and `workspace_bytes`.
        engine: shares the rows among its threads; None for this thread alone.
    """
    address = ctypes.addressof(table)
    if engine is not None:
        engine.launch(own, address, rows)
        return
    scratch, _owner = workspace(own.workspace_bytes)
    if own.function is not None:
        own.function(address, 0, rows, scratch)
        return
    with bound(**own.types), np.errstate(all="ignore"):
        text(Memory(address, struct_of(Given)), 0, rows, scratch)


def least_pivot(dtype: np.dtype[Any]) -> float:
    """The pivot of Quu that counts as zero, relative to its diagonal entry."""
    return _LEAST * float(np.finfo(dtype).eps)


class BackwardPass:
    """Backward passes of one size; see `robodyn.solve.trajectories.backward_code`.

    Args:
        nv: half the number of states n = 2 nv.
        nu: number of controls.
        steps: number N of knots that have controls.
        dtype: of arrays and of arithmetic.
        box: True if calls give bounds of du.
        columns: (nu,) the columns of B that controls have, if B (..., N, n, nv) has others as well.
        engine: the engine whose threads share a batch. Without one, or on an engine that is not on the CPU, this thread
            alone works; the reference engine runs the text as Python.
    """

    def __init__(
        self,
        nv: int,
        nu: int,
        steps: int,
        dtype: Any = np.float64,
        box: bool = False,
        engine: Any = None,
        columns: Array | None = None,
    ) -> None:
        n, wide = 2 * nv, nu if columns is None else nv
        self.box, self.dtype = box, np.dtype(dtype)
        own = None if columns is None else np.ascontiguousarray(columns, np.int64)
        self._sizes = n, nu, steps, wide, own, self.dtype, engine
        self._kernels: dict[bool, _Kernel] = {}
        of_knots = {"A": (n, n), "B": (n, wide), "gap": (n,), "lx": (n,), "lu": (nu,), "lxx": (n, n), "lux": (nu, n)}
        of_knots |= {"luu": (nu, nu), "lower": (nu,), "upper": (nu,), "k": (nu,), "K": (nu, n)}
        of_knots |= {"lxx_diagonal": (n,), "luu_diagonal": (nu,), "Y": (nv, nu + n)}
        self._shapes: dict[str, tuple[int, ...]] = {"vx": (n,), "vxx": (n, n), "expected": (2,)}
        self._shapes |= dict.fromkeys(("mu", "dt", "ok"), ())
        self._shapes |= {name: (steps, *shape) for name, shape in of_knots.items()}
        self._of_knots = frozenset(of_knots)

    def __call__(
        self,
        A: Array | None,
        B: Array | None,
        gap: Array | None,
        lx: Array,
        lu: Array,
        lxx: Array | None,
        lux: Array | None,
        luu: Array | None,
        vx: Array,
        vxx: Array,
        mu: Array,
        lower: Array | None = None,
        upper: Array | None = None,
        lxx_diagonal: Array | None = None,
        luu_diagonal: Array | None = None,
        Y: Array | None = None,
        dt: Array | float | None = None,
    ) -> tuple[Array, Array, Array, Array]:
        """Gains of all knots, with n = 2 nv. Leading axes are batch axes and broadcast; knots do, too.

        Args:
            A, B: derivatives of steps, (..., N, n, n) and (..., N, n, nu), or None.
            gap: what is missing from the end of a step to the next knot, (..., N, n), or None.
            lx, lu, lxx, lux, luu: derivatives of the costs of knots with controls: (..., N, n), (..., N, nu),
                (..., N, n, n), (..., N, nu, n), (..., N, nu, nu). Matrices are symmetric, and zero if they are None.
            vx, vxx: derivatives of the cost of the last knot, (..., n) and (..., n, n).
            mu: what is added to the diagonal of Quu, (...).
            lower, upper: bounds of du, (..., N, nu), if the pass has them.
            lxx_diagonal, luu_diagonal: (..., N, n) and (..., N, nu), added to the diagonals, or None.
            Y, dt: in place of A, B and gap for steps q+ = q + dt qd+ of vector spaces: the lower half of (B, A),
                (..., N, nv, nu + n), and dt (...).

        Returns:
            k (..., N, nu) and K (..., N, nu, n): du = k + K dx; expected (..., 2): with steps alpha k, the cost changes
            by alpha expected[0] + alpha^2 expected[1]; ok (...): False, with NaN in the other results, where Quu + mu
            was not positive definite, bounds contradict or a number was not finite.
        """
        given = (A, B, gap, lx, lu, lxx, lux, luu, vx, vxx, mu, lower, upper, lxx_diagonal, luu_diagonal, Y, dt)
        if (lower is None or upper is None) is self.box or (lower is None) is not (upper is None):
            raise ValueError("backward pass: give both bounds if it was made with box=True, otherwise none")
        if len({A is None, B is None, Y is not None, dt is not None}) > 1 or (Y is not None and gap is not None):
            raise ValueError("backward pass: give A and B, or Y and dt and no gap")
        inputs = [None if each is None else np.asarray(each, self.dtype) for each in given]
        batch = np.broadcast_shapes(
            *(
                each.shape[: each.ndim - len(self._shapes[name])]
                for name, each in zip(INPUTS, inputs, strict=True)
                if each is not None
            )
        )
        results = [np.empty((*batch, *self._shapes[name]), bool if name == "ok" else self.dtype) for name in OUTPUTS]
        rows = math.prod(batch)
        if rows:
            kernel, table, kept = self._table(inputs, results, batch)
            kernel.run(table, rows)
            del kept
        k, K, expected, ok = results
        return k, K, expected, ok

    def _kernel(self, rows: int) -> _Kernel:
        """The kernel that is quicker for so many problems."""
        n, *_, engine = self._sizes
        as_python = engine is not None and engine.name == "reference"
        several = not as_python and rows >= FEW and n <= _MOST_STATES
        if several not in self._kernels:
            alone = self._kernel(1) if several else None
            self._kernels[several] = _Kernel(*self._sizes, several=several, alone=alone)
        return self._kernels[several]

    def _table(
        self, inputs: Sequence[Array | None], results: Sequence[Array], batch: tuple[int, ...]
    ) -> tuple[_Kernel, ctypes.Array[ctypes.c_int64], list[Any]]:
        """The kernel, its argument table, and what must stay alive as long as it is used. Inputs (..., N, ...)
        broadcast to the batch; results are contiguous."""
        kernel = self._kernel(math.prod(batch))
        words: list[int] = []
        kept: list[Any] = []
        for name, array in zip((*INPUTS, *OUTPUTS), (*inputs, *results), strict=True):
            if array is None:
                words += _ABSENT
                continue
            shape = self._shapes[name]
            wide = np.broadcast_to(array, (*batch, *shape))
            flat = wide.reshape(-1, *shape)  # a copy if batch axes do not have one stride
            over_knots = name in self._of_knots
            tail = shape[1:] if over_knots else shape
            inner = flat.strides[-len(tail) :] if tail else ()
            dense = [self.dtype.itemsize * math.prod(tail[k + 1 :]) for k in range(len(tail))]
            if any(length > 1 and a != b for length, a, b in zip(tail, inner, dense, strict=True)):
                flat = np.ascontiguousarray(flat)
            kept.append(flat)
            words += [flat.ctypes.data, flat.strides[0], flat.strides[1] if over_knots else 0]
        table, own = kernel.table(words)
        return kernel, table, kept + own

    def bound(self, inputs: Sequence[Array | None], results: Sequence[Array], most: int) -> BoundPass:
        """Passes of the first problems of arrays (most, ...) that stay where they are."""
        return BoundPass(*self._table(inputs, results, (most,)))


class BoundPass:
    """A kernel and its argument table, whose `arrays` it keeps alive."""

    def __init__(self, kernel: _Kernel, table: ctypes.Array[ctypes.c_int64], arrays: list[Any]) -> None:
        self.kernel, self._table, self._arrays = kernel, table, arrays

    @property
    def table(self) -> int:
        """The address of the table."""
        return ctypes.addressof(self._table)
