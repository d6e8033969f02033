"""Solves with the mass matrices of one robot: the numbers that the loops of `solve_code` read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from weakref import WeakKeyDictionary

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from robodyn.algorithms.tasks import Solution, Solve, SymbolicFactor, Traceable, on_paths
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.core.model import Model
from robodyn.core.sweeps import BodyOutput, PairOutput
from robodyn.engines.cpu.chains.panel_code import WIDTH
from robodyn.engines.cpu.chains.solve_code import CONSTANTS, OF_SOLUTION, SolveKind
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import LOOP_OPERATION_NS, TILE_COLUMNS


def pieces(count: int, most: int) -> list[int]:
    """Sizes of as few pieces of a number as there can be, none larger than `most`, of much the same size."""
    number = -(-count // most)
    return [count * (k + 1) // number - count * k // number for k in range(number)]


class Tiling:
    """The tiles of a solution, and which rows of them its sweeps pass; the same for every vector of states.

    `reached`: (nv, columns) where L^-T b can be nonzero; `column_lanes`: columns of a vector. Those of an inverse have
    the same tiles either way: what is copied from one side of the diagonal to the other has the same bits then.
    """

    def __init__(
        self, model: Model, elimination: SymbolicFactor, solution: Solution, columns: int, column_lanes: int
    ) -> None:
        self.elimination, n = elimination, model.nv
        self.column_lanes = column_lanes if solution.arrays else 1
        if not solution.arrays:
            begin: Array = np.eye(n, dtype=bool)
        elif isinstance(solution.like, PairOutput):  # columns are degrees of freedom, whose rows are zero where H is
            begin = elimination.pattern
        elif isinstance(solution.like, BodyOutput):  # of a body, on which its path to the world alone has forces
            begin = np.repeat(on_paths(model), solution.like.width, axis=1)
        else:
            begin = np.ones((n, columns), dtype=bool)
        self.reached = elimination.reached(begin)
        self.tiles = self._tiles(solution.known_columns(model))

    def rows_up(self, first: int, count: int) -> Array:
        """(nv,) where L^-T b can be nonzero in one of some columns."""
        found: Array = np.logical_or.reduce(self.reached[:, first : first + count], axis=1)
        return found

    def rows_down(self, first: int, count: int) -> Array:
        """(nv,) where a solution can be."""
        return self._filled(self.rows_up(first, count))

    def written(self) -> Array:
        """(nv, columns): what is read and written; all other entries stay what they are."""
        found = np.zeros_like(self.reached)
        for first, count in self.tiles:
            found[:, first : first + count] = self.rows_down(first, count)[:, None]
        return found

    def _tiles(self, known: list[int]) -> list[tuple[int, int]]:
        """(first column, columns) of tiles, between columns that are known, by vectors of columns."""
        cuts = [-1, *sorted(known), self.reached.shape[1]]
        runs = [(before + 1, after) for before, after in pairwise(cuts) if before + 1 < after]
        sizes = np.array([len(row) for row in self.elimination.lower], np.intp)
        both, W = (self.reached, self._filled(self.reached)), self.column_lanes
        found = []
        for start, stop in runs:
            begins = range(0, stop - start, W)
            reached, filled = (np.logical_or.reduceat(rows[:, start:stop], begins, axis=1) for rows in both)
            for c, count in tiled(reached, filled, sizes):
                first = start + c * W
                found.append((first, min(count * W, stop - first)))
        return found

    def _filled(self, reached: Array) -> Array:
        """(nv, ...): where solutions can be nonzero: what is reached, and what stands behind it."""
        filled = reached.copy()
        for row, columns in enumerate(self.elimination.lower):
            filled[row] |= filled[columns].any(axis=0)
        return filled


@dataclass(frozen=True)
class Tiled:
    """The elimination of a model's mass matrix, and the tiling of each solution of a solve."""

    elimination: SymbolicFactor
    tilings: tuple[Tiling, ...]


_TILED: WeakKeyDictionary[Model, dict[tuple[Solve, int], Tiled]] = WeakKeyDictionary()


def tiled_solve(model: Model, solve: Solve, column_lanes: int = 1) -> Tiled:
    """The same object whenever it is asked for: stages want to know what solves read, too. `column_lanes`: columns of a
    vector."""
    found, key = _TILED.setdefault(model, {}), (solve, column_lanes)
    if key not in found:
        elimination = SymbolicFactor(model)
        each = zip(solve.outputs.values(), _columns(model, solve), strict=True)
        found[key] = Tiled(
            elimination,
            tuple(Tiling(model, elimination, solution, columns, column_lanes) for solution, columns in each),
        )
    return found[key]


class SolvePlan:
    """Arrays of a solve on one model, in the order of the table's constants.

    `panel`: rows of a panel, at most.
    """

    def __init__(self, model: Model, kind: SolveKind, vector: VectorType, panel: int) -> None:
        self.model, self.solve, self.vector, self.panel = model, kind.solve, vector, panel
        self.rows, self.column_lanes, self.stores_rows = kind.rows, kind.columns, kind.stores_rows
        tiled = tiled_solve(model, kind.solve, 1 if kind.columns is None else kind.columns.width)
        self.elimination = tiled.elimination
        lower = self.elimination.lower
        self.ends: list[int] = np.cumsum([0, *(len(row) for row in lower)]).tolist()
        """Place of each row's first entry among all, and how many there are."""
        self.upper: list[list[int]] = [[] for _ in lower]
        """For each row p, the rows k that have p among their columns."""
        for k, columns in enumerate(lower):
            for p in columns.tolist():
                self.upper[p].append(k)
        found = {
            "n": np.array([model.nv]),
            "lower starts": np.array(self.ends),
            "lower index": np.concatenate([*lower, np.empty(0, np.int64)]),
        }
        before = 0
        each = zip(self.solve.outputs.values(), tiled.tilings, self.columns, strict=True)
        for number, (solution, tiling, count) in enumerate(each):
            for name, array in zip(OF_SOLUTION, self._of_solution(solution, tiling, count, before), strict=True):
                found[f"{name} {number}"] = array
            before = model.nv * count
        names = [*CONSTANTS, *(f"{each} {k}" for k in range(len(self.solve.outputs)) for each in OF_SOLUTION)]
        self.arrays = [np.ascontiguousarray(found[name], np.int64) for name in names]

    @property
    def workspace_bytes(self) -> int:
        """Bytes of a tile of columns side by side, and of the second right-hand side that comes as rows, where there
        are any."""
        staged = 0
        for columns, solution in zip(self.columns, self.solve.outputs.values(), strict=True):
            if sum(name in self.rows for name in solution.arrays) > 1:
                staged = max(staged, columns)
        tile = 0 if self.column_lanes is None else WIDTH * self.column_lanes.bytes
        return self.model.nv * (tile + staged * self.vector.bytes)

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
        return self.operations * LOOP_OPERATION_NS * 8.0 / (self.column_lanes or self.vector).width

    def _of_solution(self, solution: Solution, tiling: Tiling, columns: int, before: int) -> tuple[Array, Array]:
        """Tiles, and the programs of their sweeps. Tiles that reach the same rows share the way up.

        The way down they share with all that reach the same trees. Those of an inverse have the rows from the tile's
        first one on: others are known. Columns that are known are copied, by tiles without a way, where tiles are
        stored to the user's rows. `before`: scalars of the solution before, of which every tile has its share to flush.
        """
        unit = not solution.arrays
        tiles = tiling.tiles
        cuts = [c for c, _ in tiles] if unit else []
        copied = solution.known_columns(self.model) if self.stores_rows else []
        records, words, known = [len(tiles) + len(copied), columns], list[int](), dict[bytes, int]()
        downs = dict[bytes, dict[int, int]]()
        W = self.vector.width
        for t, (c, count) in enumerate(tiles, 1):
            share = before if t == len(tiles) else before * t // len(tiles) // W * W
            rows, filled = tiling.rows_up(c, count), tiling.rows_down(c, count)
            if filled.tobytes() not in downs:
                down, starts = self._down(cuts, filled)
                downs[filled.tobytes()] = {row: len(words) + at for row, at in starts.items()}
                words += down
            first = c if unit else int(np.flatnonzero(filled)[0])
            if unit:
                rows[:c] = False
            start = known.setdefault(rows.tobytes(), len(words))
            if start == len(words):
                words += self._up(rows)
            records += [c, count, start, downs[filled.tobytes()][first], share]
        for c in copied:
            records += [c, 1, len(words), len(words), 0]
        words += [0] * bool(copied)
        return np.array(records, np.int64), np.array(words, np.int64)

    def _panels(self, up: bool, cuts: Sequence[int]) -> list[tuple[int, int]]:
        """(first row, rows) of panels, none across one of the rows where it is cut."""
        lower, upper = self.elimination.lower, self.upper
        joined = [
            upper[k] == [k + 1, *upper[k + 1]] if up else lower[k + 1].tolist() == [*lower[k], k]
            for k in range(self.model.nv - 1)
        ]
        begins = sorted({*cuts, *(k + 1 for k, same in enumerate(joined) if not same), *range(min(1, self.model.nv))})
        found = []
        for k, end in pairwise([*begins, self.model.nv]):
            for rows in pieces(end - k, self.panel):
                found.append((k, rows))
                k += rows
        return found

    def _head(self, row: int, rows: int, terms: int) -> list[int]:
        return [rows, row, terms, *self.ends[row + 1 : row + rows + 1]]

    def _up(self, reached: Array) -> list[int]:
        """The way up, of panels into which anything comes; one does not go beyond the first row that is reached."""
        words = []
        for row, rows in reversed(self._panels(True, np.flatnonzero(reached)[:1].tolist())):
            below = [j for j in reversed(self.upper[row + rows - 1]) if reached[j]]
            if reached[row] and (below or reached[row + 1 : row + rows].any()):
                words += self._head(row, rows, len(below))
                for j in below:
                    words += [j, self.ends[j] + int(np.searchsorted(self.elimination.lower[j], row))]
        return [*words, 0]

    def _down(self, cuts: Sequence[int], filled: Array) -> tuple[list[int], dict[int, int]]:
        """The way down, and where panels of it begin, by their first row. A panel's rows are of one path to the root:
        all of them are filled, or none."""
        words: list[int] = []
        starts = {}
        for row, rows in self._panels(False, cuts):
            if not filled[row]:
                continue
            starts[row] = len(words)
            columns = self.elimination.lower[row].tolist()
            words += self._head(row, rows, len(columns)) + columns
        return [*words, 0], starts


def tiled(reached: Array, filled: Array, sizes: Array) -> list[tuple[int, int]]:
    """(first column, columns) of tiles, cut where there is least to do.

    Args:
        reached: (nv, columns), the rows that the way up passes.
        filled: (nv, columns), those of the way down.
        sizes: (nv,) entries of each row.
    """
    columns = reached.shape[1]

    def passed(rows: Array, width: int) -> Array:
        return sizes @ sliding_window_view(rows, width, axis=1).any(axis=2)

    work = [
        (width + TILE_COLUMNS) * (passed(reached, width) + passed(filled, width))
        for width in range(1, min(WIDTH, columns) + 1)
    ]
    best: list[tuple[float, int]] = [(0.0, 0)]
    """Least work up to each column, and the columns of the last tile then."""
    for end in range(1, columns + 1):
        widths = range(1, min(WIDTH, end) + 1)
        best.append(min((best[end - width][0] + float(work[width - 1][end - width]), width) for width in widths))
    found, end = [], columns
    while end:
        width = best[end][1]
        end -= width
        found.append((end, width))
    return found[::-1]


def solve_operations(model: Model, task: Traceable) -> int:
    """About how many operations the solves of a chain take for one state."""
    if not task.solves:
        return 0
    elimination = SymbolicFactor(model)
    return sum(elimination.operations(sum(_columns(model, solve))) for solve in task.solves)


def _columns(model: Model, solve: Solve) -> list[int]:
    nv = model.nv
    return [math.prod(output_shape(model, each)) // nv for each in solve.outputs.values()] if nv else []
