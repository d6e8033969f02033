"""Solves with a mass matrix on traced scalars: H = L' D L (RBDA section 6.5). Structural zeros are skipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robodyn.algorithms.definite import TreeFactors
from robodyn.algorithms.tasks import Solve, SymbolicFactor
from robodyn.compile.tracing.expression import Value
from robodyn.core.model import Model

PACK = 4
"""Number of scalars that a GPU reads with one instruction. Their index must be a multiple of it."""


class Factors(TreeFactors):
    """The factors of a mass matrix, with the operations that chains of algorithms need."""

    def packed(self, model: Model) -> list[Value]:
        """The factors of a model's mass matrix as one list. For each row k of L it holds 1 / D[k], then the entries
        left of the diagonal that are not structurally zero. Zeros fill the list up to `packed_size`."""
        numbers: list[Value] = []
        for k, row in enumerate(SymbolicFactor(model).lower):
            numbers += [self.inverse[k], *(self.L[k][p] for p in row.tolist())]
        return numbers + [0.0] * (packed_size(model) - len(numbers))


def packed_size(model: Model) -> int:
    """Length of the list from `Factors.packed`, a multiple of `PACK`."""
    return -(-(model.nv + sum(map(len, SymbolicFactor(model).lower))) // PACK) * PACK


def solved(solve: Solve, pool: Mapping[str, Sequence[Value]], model: Model) -> dict[str, list[Value]]:
    """The outputs of a `Solve` stage. Inputs and outputs are named lists of scalars in C order."""
    nv = model.nv
    H = pool[solve.matrix]
    factors = Factors([H[nv * r : nv * r + nv] for r in range(nv)])
    outputs: dict[str, list[Value]] = {}
    for name, solution in solve.outputs.items():
        if not solution.arrays:
            outputs[name] = [entry for row in factors.inverse_matrix() for entry in row]
            continue
        zero: Sequence[Value] = (0.0,) * len(pool[solution.arrays[0]])
        plus = zero if solution.plus is None else pool[solution.plus]
        minus = zero if solution.minus is None else pool[solution.minus]
        b = [p - m for p, m in zip(plus, minus, strict=True)]
        columns = len(b) // nv if nv else 0
        known = {c: pool[solution.arrays[0]][c::columns] for c in solution.known_columns(model)}
        solutions = [known[c] if c in known else factors.solve(b[c::columns]) for c in range(columns)]
        outputs[name] = [solutions[c][r] for r in range(nv) for c in range(columns)]
    return outputs
