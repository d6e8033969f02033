"""The backward pass of long horizons as a scan over stretches of knots, on the CPU.

Särkkä and García-Fernández (2023) scan single knots. Here a backward pass from the value 0 makes the element of
each stretch, the stretches are scanned, and each is passed again from the value behind it: about three times the
recursion's work and the compositions, and a depth of two stretches and log2 of their number of compositions. mpx (arXiv
2506.07823) did this on GPUs for legged robots, with elements of single knots.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from robodyn.compile.cache import ObjectCache
from robodyn.compile.llvm.target import host_target
from robodyn.engines.cpu.compiler import Compiler
from robodyn.engines.cpu.table_kernel import PORTABLE
from robodyn.internals.arguments import Array
from robodyn.solve.trajectories.backward import BackwardPass, least_pivot, run_table
from robodyn.solve.trajectories.backward_code import layout, types
from robodyn.solve.trajectories.problem import Problem
from robodyn.solve.trajectories.riccati_code import (
    SCAN_ENTRIES,
    composition_operations,
    knot_operations,
    room_bytes,
    scan_kernel,
    scan_module_text,
    stretch_operations,
)

_CODE: dict[Any, Any] = {}
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class _Kernel:
    """The kernel of stretches or of pairs."""

    def __init__(self, n: int, nu: int, steps: int, dtype: np.dtype[Any], engine: Any, composing: bool) -> None:
        self._engine = engine if engine is not None and engine.native else None
        self._native, self._composing = engine is None or engine.name != "reference", composing
        target = PORTABLE if not self._native else host_target() if self._engine is None else self._engine.target
        self.types = types(dtype, target, False)
        width, size = self.types["Vector"].width, dtype.itemsize
        line, small, ln = (-(-(count + 1) // width) * width for count in (n + nu, nu, n))
        *offsets, own = layout(n, nu, line, small, size)
        step, room = room_bytes(n, ln, size)
        self.workspace_bytes = own + room
        sizes = np.array([n, nu, steps, line, small, own, *offsets], np.int64)
        self.constants = {
            "sizes": sizes,
            "least": np.array([least_pivot(dtype)], dtype),
            "scan_sizes": np.array([ln, step, room], np.int64),
        }
        operations = composition_operations(n) if composing else steps * stretch_operations(n, nu)
        self.row_ns = 200.0 + operations / (2 * width)
        self.function: Callable[..., None] | None = None
        if self._native:
            key = dtype, target
            if key not in _CODE:
                compiler = Compiler(ObjectCache.from_environment()) if self._engine is None else self._engine.compiler
                _CODE[key] = compiler.shared(
                    scan_module_text(dtype, target), f"robodyn Riccati scan {dtype} {target.level}", target
                )
            self.address = _CODE[key].address("pairs" if composing else "stretches")
            self.function = _RUN(self.address)

    def __call__(self, arrays: Mapping[str, tuple[Array, int, int]], rows: int) -> None:
        """Run rows. `arrays`: each with the bytes from a row and from a knot to the next."""
        every = {**arrays, **{name: (each, 0, 0) for name, each in self.constants.items()}}
        words: list[int] = []
        for name in SCAN_ENTRIES:
            array, *strides = every.get(name, (None, 0, 0))
            words += [0 if array is None else array.ctypes.data, *strides]
        table = (ctypes.c_int64 * len(words))(*words)
        run_table(self, self._engine, table, rows, partial(scan_kernel, composing=self._composing))


class RiccatiScan:
    """Backward passes of one size by scans; arguments and results are those of `BackwardPass`, without bounds.

    mu is part of the costs of controls here: it is added to luu, and `expected` counts it. Gains are those of the
    recursion with mu in luu; where mu is 0, these are the gains of the recursion.

    Args:
        nv, nu, steps, dtype, engine: as of `BackwardPass`.
        length: knots of a stretch; None for the root of their number.
    """

    def __init__(
        self, nv: int, nu: int, steps: int, dtype: Any = np.float64, engine: Any = None, length: int | None = None
    ) -> None:
        self._n, self._nu, self._steps, self.dtype = 2 * nv, nu, steps, np.dtype(dtype)
        self.length = min(steps, max(1, math.isqrt(steps) if length is None else length))
        self._many, self._first = divmod(steps, self.length)
        sizes = self._n, nu, self.length, self.dtype, engine
        self._stretches, self._pairs = _Kernel(*sizes, composing=False), _Kernel(*sizes, composing=True)
        self._pass = BackwardPass(nv, nu, self.length, self.dtype, engine=engine)
        self._before = BackwardPass(nv, nu, self._first, self.dtype, engine=engine) if self._first else None

    def __call__(
        self,
        A: Array,
        B: Array,
        gap: Array | None,
        lx: Array,
        lu: Array,
        lxx: Array,
        lux: Array,
        luu: Array,
        vx: Array,
        vxx: Array,
        mu: Array,
        lower: None = None,
        upper: None = None,
    ) -> tuple[Array, Array, Array, Array]:
        """Gains of all knots; see `BackwardPass`."""
        n, nu, N, dtype = self._n, self._nu, self._steps, self.dtype
        luu = np.asarray(luu, dtype) + np.asarray(mu, dtype)[..., None, None, None] * np.eye(nu, dtype=dtype)
        given = {"A": A, "B": B, "lx": lx, "lu": lu, "lxx": lxx, "lux": lux, "luu": luu, "vx": vx, "vxx": vxx}
        own: dict[str, tuple[int, ...]] = {"A": (N, n, n), "B": (N, n, nu), "lx": (N, n), "lu": (N, nu)}
        own |= {"lxx": (N, n, n), "lux": (N, nu, n), "luu": (N, nu, nu), "vx": (n,), "vxx": (n, n), "gap": (N, n)}
        given |= {} if gap is None else {"gap": gap}
        given = {name: np.asarray(each, dtype) for name, each in given.items()}
        batch = np.broadcast_shapes(*(each.shape[: each.ndim - len(own[name])] for name, each in given.items()))
        full = {name: np.ascontiguousarray(np.broadcast_to(each, (*batch, *own[name]))) for name, each in given.items()}
        rows = math.prod(batch)
        k, K = np.empty((rows, N, nu), dtype), np.empty((rows, N, nu, n), dtype)
        expected, ok = np.empty((rows, 2), dtype), np.empty(rows, bool)
        for row in range(rows):
            one = {name: each.reshape(rows, *own[name])[row] for name, each in full.items()}
            expected[row], ok[row] = self._solve(one, k[row], K[row])
        return k.reshape(*batch, N, nu), K.reshape(*batch, N, nu, n), expected.reshape(*batch, 2), ok.reshape(batch)

    def _solve(self, one: dict[str, Array], k: Array, K: Array) -> tuple[Array, bool]:
        """One problem."""
        T, first, L, n = self._many, self._first, self.length, self._n
        knots = {name: each for name, each in one.items() if name not in ("vx", "vxx")}
        values = self.values(knots, one["vx"], one["vxx"])
        parts = {name: each[first:].reshape(T, L, *each.shape[1:]) for name, each in knots.items()}
        behind = {"vx": values[1:, 4 * n + 1], "vxx": values[1:, 3 * n : 4 * n]}
        gap = parts.pop("gap", None)
        found = self._pass(gap=gap, **parts, **behind, mu=np.zeros(1))
        k[first:], K[first:] = (each.reshape(T * L, *each.shape[2:]) for each in found[:2])
        expected, ok = found[2].sum(axis=0), bool(found[3].all())
        if self._before is not None:
            rest = {name: each[:first] for name, each in knots.items()}
            at = {"vx": values[0, 4 * n + 1], "vxx": values[0, 3 * n : 4 * n]}
            k[:first], K[:first], more, fine = self._before(gap=rest.pop("gap", None), **rest, **at, mu=np.zeros(()))
            expected, ok = expected + more, ok and bool(fine)
        if not ok:
            k[...] = K[...] = expected[...] = np.nan
        return expected, ok

    def values(self, knots: Mapping[str, Array], vx: Array, vxx: Array) -> Array:
        """Elements (T + 1, 4 n + 2, n) from the first knots of stretches to the end; the last one is the end."""
        T, n = self._many, self._n
        elements, other = (np.zeros((T + 1, 4 * n + 2, n), self.dtype) for _ in range(2))
        elements[T, 3 * n : 4 * n], elements[T, 4 * n + 1] = vxx, vx
        arrays = {}
        for name, each in knots.items():
            stride = each.strides[0]
            arrays[name] = each[self._first :], self.length * stride, stride
        row = elements.strides[0]
        self._stretches({**arrays, "element": (elements, row, 0)}, T)
        apart = 1
        while apart <= T:
            pairs = {"first": (elements, row, 0), "second": (elements[apart:], row, 0), "element": (other, row, 0)}
            self._pairs(pairs, T + 1 - apart)
            other[T + 1 - apart :] = elements[T + 1 - apart :]
            elements, other, apart = other, elements, 2 * apart
        return elements


def why_no_scan(problem: Problem, curvature: bool) -> str:
    """Why the backward passes of a problem cannot be scans; empty if they can."""
    if problem.boxed:
        return "limits of effort, which only the recursion obeys"
    if curvature:
        return "method 'ddp', whose models need not be convex"
    weights = [term.numbers(np.arange(problem.count))[0] for term in problem.terms if term.piece.kind == "Control"]
    shape = problem.count, problem.steps, problem.nu
    total = sum((np.broadcast_to(each, shape) for each in weights), np.zeros(shape))
    if not (total > 0.0).all():
        number = int(np.flatnonzero(~(total > 0.0).all(axis=(0, 1)))[0])
        name = problem.dyn.model.velocity_names[int(problem.actuated[number])]
        return f"no positive weight of Control at {name!r}"
    return ""


def counts(n: int, nu: int, steps: int, length: int) -> dict[str, tuple[float, float]]:
    """Work and depth of a backward pass: pairs of a multiplication and an addition in all, and one after another where
    there are as many processors as stretches."""
    many, first = divmod(steps, length)
    knot, own, pair = knot_operations(n, nu), stretch_operations(n, nu), composition_operations(n)
    rounds = math.ceil(math.log2(many + 1))
    pairs = sum(many + 1 - (1 << k) for k in range(rounds))
    work = steps * knot + many * length * own + pairs * pair
    return {"recursion": (steps * knot,) * 2, "scan": (work, length * (own + knot) + rounds * pair + first * knot)}
