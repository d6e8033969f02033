"""A query about constraints on one robot as loops: the shared module, and the arrays that it reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.algorithms.constraints.sweeps import ConstraintQuery, sweeps_of
from robodyn.compile.llvm.target import Target
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.engines.cpu.constraints.code import TABLES, ConstraintModule
from robodyn.engines.cpu.constraints.tables import BLOCK, constraint_traits, tables
from robodyn.engines.cpu.loops.program import RolledProgram
from robodyn.internals.arguments import Array


class ConstraintProgram(RolledProgram):
    """A query about constraints on one model as loops; see `RolledProgram`.

    Args:
        model: the robot, without mimicking joints.
        query: the query.
        dtype: dtype of arrays and arithmetic.
        target: the processor.
        base: the motions of the base (V0, dV0) that are inputs.
        width: states in a vector; None for as many as registers hold.
    """

    module: ConstraintModule

    def __init__(
        self,
        model: Model,
        query: ConstraintQuery,
        dtype: np.dtype[Any],
        target: Target,
        base: tuple[str, ...],
        width: int | None,
    ) -> None:
        self.tables, self._query = tables(model), query
        super().__init__(model, sweeps_of(query.name, query.inputs), dtype, target, base, None, width)

    @classmethod
    def traits(cls, model: Model, base: tuple[str, ...]) -> tuple[Any, ...]:
        """`Traits`, and those of the robot's constraints."""
        return *super().traits(model, base), constraint_traits(model, base)

    def _make_module(self, *of: Any) -> ConstraintModule:
        query, (algorithm, traits, dtype, target, base, width, _) = self._query, of
        _, constraints = self.traits(self.model, base)
        return ConstraintModule(algorithm, traits, dtype, target, base, width, query.name, query.proximal, constraints)

    def _vectors(self, array: str) -> int:
        if array not in self.module.sizes:
            return super()._vectors(array)
        m = self.model.n_rows
        sizes = {
            "rows": m,
            "side": self._side,
            "square": self._side**2,
            "constraints": 12 * self.model.n_constraints,
            "entries": self.module.most_entries,
            "responses": self.tables.responses,
            "pushes": self.tables.pushes,
        }
        return sizes[self.module.sizes[array]]

    @property
    def _side(self) -> int:
        """Rows of A, with one for what fills up lines of segments, and columns in whole blocks."""
        return -(-(self.model.n_rows + 1) // BLOCK) * BLOCK

    def _integers(self) -> dict[str, int]:
        arrays = self.tables.arrays
        counts = {
            "n_constraints": self.model.n_constraints,
            "n_rows": self.model.n_rows,
            "n_visits": len(arrays["visits"]),
            "n_segments": len(arrays["segments"]),
            "side": self._side,
        }
        return {**super()._integers(), **counts}

    def _array(self, name: str) -> Array:
        if name not in TABLES:
            return super()._array(name)
        array = self.tables.arrays[name]
        return np.ascontiguousarray(array, np.int64 if array.dtype.kind == "i" else self.dtype)

    @property
    def steps(self) -> int:
        """Bodies and visits."""
        return self.model.n_bodies + len(self.tables.arrays["visits"])

    @property
    def operations(self) -> int:
        """Floating-point operations for one state."""
        module, tracer, m = self.module, self.module.tracer, self.model.n_rows
        held, visits = self.tables.arrays["held"], self.tables.arrays["visits"]
        total = super().operations
        for form, times in enumerate(np.bincount(held[:, 0], minlength=len(module.forms)).tolist()):
            if module.is_lock(form):
                total += times * tracer.lock(module.forms[form]).program.operations
            elif not module.is_coupling(form):
                total += times * tracer.frame(module.forms[form]).program.operations
        if module.query == "constraint_residual":
            return total
        kinds, forms = self.model.joint_kind[visits[:, 0]], held[visits[:, 1], 0]
        for code in module.traits.kinds:
            for form, each in enumerate(module.forms):
                at = (kinds == code) & (forms == form)
                if module.fits(form, code):
                    times = int((visits[at, 6] >= 0).sum())
                    total += times * tracer.entries(each, KINDS[code]).program.operations
                if module.responds:
                    total += int(at.sum()) * tracer.respond(len(each.rows), KINDS[code]).program.operations
        if module.responds:
            for _, lines, _, dofs, _ in self.tables.arrays["segments"].tolist():
                total += dofs * lines * (lines + BLOCK)
        if module.last is not None:
            total += m**3 // 3 + 4 * module.proximal[1] * m**2
        return total * (2 if module.query == "project" else 1)
