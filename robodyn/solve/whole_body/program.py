"""Runs whole-body control: compiled on a CPU engine, as Python on the reference engine."""

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
from robodyn.solve.quadratic.factors import types
from robodyn.solve.whole_body.code import RESIDUALS, kernel, module_text, numbers_of_state
from robodyn.solve.whole_body.elimination import PLACES, Robot
from robodyn.solve.whole_body.terms import Layout

MOST_STEPS = 60
"""Most steps of the active set for each priority, besides one for each unknown."""
_SLACK, _LOOSE, _INDEPENDENT, _SCALE = 1e-10, 1e-6, 1e-18, 1.0
"""Tolerances of the active set, see `robodyn.solve.quadratic.factors.TOLERANCES`."""
_MOST_NUMBERS = 1 << 18
"""Scratch memory up to which several states are solved at once: more of it is too far from the processor."""
_CODE: WeakKeyDictionary[Any, dict[bool, Any]] = WeakKeyDictionary()
"""Loaded code of each engine, of one state and of several at once."""


def aligned(shape: tuple[int, ...]) -> Array:
    """An array of double precision that begins at a cache line."""
    count = int(np.prod(shape))
    owner = np.empty(count + 8)
    first = -(owner.ctypes.data // 8) % 8
    return owner[first : first + count].reshape(shape)


def _code(engine: Any, several: bool) -> Any:
    """Loaded code of an engine."""
    loaded = _CODE.setdefault(engine, {})
    if several not in loaded:
        label = f"robodyn whole body {engine.target.level}"
        loaded[several] = engine.compiler.shared(module_text(engine.target, several), label, engine.target)
    return loaded[several]


class _Several(TableKernel):
    """Control of several states at once; see `robodyn.solve.whole_body.code.several`.

    Args:
        alone: of one state.
        numbers: of scratch memory.
    """

    def __init__(self, engine: Any, alone: Controller, numbers: int) -> None:
        super().__init__(engine)
        self.workspace_bytes, self.row_ns = 8 * numbers, alone.row_ns
        self.load(_code(engine, True))


class Controller(TableKernel):
    """Whole-body control by loops; see `robodyn.solve.whole_body.code`.

    Args:
        engine: an engine on the CPU, or the reference engine, in double precision.
        layout: of the terms.
        roots: (levels, unknowns), square roots of weights; kept: (levels, nv), True where a posture has one.
        friction: (feet, 2) coefficients; limit: (nv,) largest |tau|.
    """

    def __init__(self, engine: Any, layout: Layout, roots: Array, kept: Array, friction: Array, limit: Array) -> None:
        super().__init__(engine)
        target = self.target
        self.types = types(np.dtype(np.float64), target)
        doubles = [np.ascontiguousarray(each, np.float64) for each in (roots, friction, limit)]
        words = [np.array(each, np.int64) for each in (layout.order, layout.base, layout.rows, kept)]
        robot = Robot(
            layout.nv,
            len(layout.feet),
            len(layout.base),
            layout.unknowns,
            layout.equations,
            layout.levels,
            MOST_STEPS + layout.unknowns,
        )
        for name in PLACES:
            begin, _, line = layout.places[name]
            setattr(robot, f"at_{name}", begin)
            setattr(robot, f"line_{name}", line)
        robot.slack, robot.loose, robot.independent, robot.scale = _SLACK, _LOOSE, _INDEPENDENT, _SCALE
        for names, arrays, kind in (
            (("roots", "friction", "limit"), doubles, ctypes.c_double),
            (("order", "base", "rows", "kept"), words, ctypes.c_int64),
        ):
            for name, array in zip(names, arrays, strict=True):
                setattr(robot, name, array.ctypes.data_as(ctypes.POINTER(kind)))
        self.robot = robot
        self.tables = dict(
            zip(("roots", "friction", "limit", "order", "base", "rows", "kept"), (*doubles, *words), strict=True)
        )
        width = self.types["Vector"].width
        own, reduced = numbers_of_state(robot, max(layout.rows, default=0), width)
        self.workspace_bytes = 8 * own
        self.row_ns = 1000.0 + layout.unknowns**3 / 4
        self._several: _Several | None = None
        self._width, self._numbers = width, own + width * (own + layout.size + 2 * reduced)
        if self._native:
            self.load(_code(engine, False))

    def for_several(self, states: int) -> TableKernel:
        """The kernel that is quicker for so many states."""
        if not self._native or self._width == 1 or states < self._width or self._numbers > _MOST_NUMBERS:
            return self
        if self._several is None:
            self._several = _Several(self._engine, self, self._numbers)
        return self._several

    def results(self, layout: Layout, batch: int) -> list[Array]:
        """Memory for tau, qdd, f, outcomes with steps, and residuals."""
        nv, feet = layout.nv, len(layout.feet)
        return [
            np.empty((batch, nv)),
            np.empty((batch, nv)),
            np.empty((batch, feet, 3)),
            np.empty((batch, 2), np.int64),
            np.empty((batch, len(RESIDUALS))),
        ]

    def table(self, arrays: Sequence[Array]) -> ctypes.Array[ctypes.c_int64]:
        """The argument table for arrays (B, ...): terms, which feet stand, and results."""
        words = [word for array in arrays for word in (array.__array_interface__["data"][0], array.strides[0])]
        words += [ctypes.addressof(self.robot), 0, 0, 0, self.address if self._native else 0, 0]
        return (ctypes.c_int64 * len(words))(*words)

    def run_as_python(self, table: int, rows: int, scratch: int) -> None:
        """The loops of `robodyn.solve.whole_body.code`."""
        kernel(Memory(table, struct_of(Argument)), 0, rows, scratch)
