"""Solves with the mass matrices of one robot: the numbers that the loops of `solve_code` read."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from robodyn.arguments import Array
from robodyn.chains import Chain, Elimination, Solve
from robodyn.engines.cpu.solve_code import CONSTANTS, OF_SOLUTION, WIDTHS, SolveKind
from robodyn.engines.cpu.vectors import VectorType
from robodyn.model import Model
from robodyn.sweeps import PairOutput
from robodyn.tracing.unrolled import output_shape

_NS = 1.0 / 25.0
"""Nanoseconds per operation of one state in a vector of one: about, see `kernels`."""


def tiles(columns: int) -> list[tuple[int, int]]:
    """(first column, columns) of as few pieces as there can be, of much the same width."""
    pieces = max(1, -(-columns // WIDTHS[0]))
    ends = [columns * k // pieces for k in range(pieces + 1)]
    return [(start, end - start) for start, end in pairwise(ends) if end > start]


class SolvePlan:
    """Arrays of a solve on one model, in the order of the table's constants."""

    def __init__(self, model: Model, kind: SolveKind, vector: VectorType) -> None:
        self.model, self.solve, self.vector = model, kind.solve, vector
        self.rows = kind.rows
        self.elimination = Elimination(model)
        found = {**self._of_matrix(), **self._of_solutions()}
        names = [*CONSTANTS, *(f"{each} {k}" for k in range(len(self.solve.outputs)) for each in OF_SOLUTION)]
        self.arrays = [np.ascontiguousarray(found[name], np.int64) for name in names]

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the second right-hand side that comes as rows, where there is one."""
        most = 0
        for columns, solution in zip(self.columns, self.solve.outputs.values(), strict=True):
            if sum(name in self.rows for name in solution.arrays) > 1:
                most = max(most, columns * self.model.nv)
        return most * self.vector.bytes

    @property
    def columns(self) -> list[int]:
        """Right-hand sides of each solution."""
        return _columns(self.model, self.solve)

    @property
    def operations(self) -> int:
        """About how many floating-point operations one state takes."""
        return self.elimination.operations(sum(self.columns))

    @property
    def row_ns(self) -> float:
        """About how long a state takes."""
        return self.operations * _NS * 8.0 / self.vector.width

    def _tiles(self, columns: int) -> Array:
        pieces = tiles(columns)
        return np.array([len(pieces), columns, *(number for piece in pieces for number in piece)], np.int64)

    def _of_matrix(self) -> dict[str, Array]:
        n = self.model.nv
        lower = self.elimination.lower
        ends = np.cumsum([0, *(len(row) for row in lower)])
        index = np.concatenate([*lower, np.empty(0, np.int64)]).astype(np.int64)
        row = np.repeat(np.arange(n), np.diff(ends))
        return {
            "n": np.array([n]),
            "lower starts": ends,
            "lower index": index,
            "down starts": ends,
            "down entries": np.stack([row * n + index, index], axis=1),
        }

    def _of_solutions(self) -> dict[str, Array]:
        """Tiles, and the way up for each of them: only rows that its columns reach take part.

        Columns of a `PairOutput` are degrees of freedom, whose rows are zero where H is.
        """
        n, pattern = self.model.nv, self.elimination.pattern
        found: dict[str, Array] = {}
        for number, (solution, columns) in enumerate(zip(self.solve.outputs.values(), self.columns, strict=True)):
            starts, entries, total = [], [], 0
            for c, count in tiles(columns):
                rows: Array = np.ones(n, dtype=bool)
                if not solution.arrays:
                    rows[:] = False
                    rows[c : c + count] = True
                elif isinstance(solution.like, PairOutput):
                    rows = np.logical_or.reduce(pattern[:, c : c + count], axis=1)
                here, pairs = self._way_up(self.elimination.reached(rows))
                starts.append(here + total)
                entries.append(pairs)
                total += len(pairs)
            found[f"tiles {number}"] = self._tiles(columns)
            found[f"up starts {number}"] = np.concatenate([*starts, np.empty(0, np.int64)])
            found[f"up entries {number}"] = np.concatenate([*entries, np.empty((0, 2), np.int64)])
        return found

    def _way_up(self, reached: Array) -> tuple[Array, Array]:
        """For each row p, pairs for the rows k that have p among their columns: V[k, p] X[k]."""
        n = self.model.nv
        by_row: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        for k in np.flatnonzero(reached).tolist():
            for p in self.elimination.lower[k].tolist():
                by_row[p].append((k * n + p, k))
        starts = np.cumsum([0, *(len(pairs) for pairs in by_row)])
        pairs = np.array([pair for pairs in by_row for pair in pairs], np.int64).reshape(-1, 2)
        return starts, pairs


def solve_operations(model: Model, chain: Chain) -> int:
    """About how many operations the solves of a chain take for one state."""
    solves = [stage for stage in chain.stages if isinstance(stage, Solve)]
    elimination = Elimination(model)
    return sum(elimination.operations(sum(_columns(model, solve))) for solve in solves)


def _columns(model: Model, solve: Solve) -> list[int]:
    nv = model.nv
    return [math.prod(output_shape(model, each)) // nv for each in solve.outputs.values()] if nv else []
