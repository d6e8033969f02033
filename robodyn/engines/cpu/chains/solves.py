"""Solves with the mass matrices of one robot: the constants that the loops of `solve_code` read."""

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
    """Sizes of the fewest pieces that `count` divides into, none larger than `most`, of nearly equal size."""
    number = -(-count // most)
    return [count * (k + 1) // number - count * k // number for k in range(number)]


class Tiling:
    """The tiles of a solution's columns, and the rows that the sweeps over each tile process; the same for all states.

    `reached`: (nv, columns) True where L^-T b can be nonzero; `column_lanes`: columns in a vector. The tiles of an
    inverse do not depend on `column_lanes`: entries copied across the diagonal then have the same bits in both cases.
    """

    def __init__(
        self, model: Model, elimination: SymbolicFactor, solution: Solution, columns: int, column_lanes: int
    ) -> None:
        self.elimination, n = elimination, model.nv
        self.column_lanes = column_lanes if solution.arrays else 1
        if not solution.arrays:
            begin: Array = np.eye(n, dtype=bool)
        elif isinstance(solution.like, PairOutput):  # columns are degrees of freedom; zero where H is zero
            begin = elimination.pattern
        elif isinstance(solution.like, BodyOutput):  # columns belong to a body; nonzero on its path to the world
            begin = np.repeat(on_paths(model), solution.like.width, axis=1)
        else:
            begin = np.ones((n, columns), dtype=bool)
        self.reached = elimination.reached(begin)
        self.tiles = self._tiles(solution.known_columns(model))

    def rows_up(self, first: int, count: int) -> Array:
        """(nv,) True where L^-T b can be nonzero in one of these columns."""
        rows: Array = np.logical_or.reduce(self.reached[:, first : first + count], axis=1)
        return rows

    def rows_down(self, first: int, count: int) -> Array:
        """(nv,) True where a solution can be nonzero."""
        return self._filled(self.rows_up(first, count))

    def written(self) -> Array:
        """(nv, columns): True for entries that are read and written; all other entries are untouched."""
        written = np.zeros_like(self.reached)
        for first, count in self.tiles:
            written[:, first : first + count] = self.rows_down(first, count)[:, None]
        return written

    def _tiles(self, known: list[int]) -> list[tuple[int, int]]:
        """(first column, number of columns) of the tiles, without known columns. Tiles consist of whole vectors of
        columns."""
        cuts = [-1, *sorted(known), self.reached.shape[1]]
        runs = [(before + 1, after) for before, after in pairwise(cuts) if before + 1 < after]
        sizes = np.array([len(row) for row in self.elimination.lower], np.intp)
        both, W = (self.reached, self._filled(self.reached)), self.column_lanes
        tiles = []
        for start, stop in runs:
            begins = range(0, stop - start, W)
            reached, filled = (np.logical_or.reduceat(rows[:, start:stop], begins, axis=1) for rows in both)
            for c, count in tiled(reached, filled, sizes):
                first = start + c * W
                tiles.append((first, min(count * W, stop - first)))
        return tiles

    def _filled(self, reached: Array) -> Array:
        """(nv, ...): True where solutions can be nonzero: in reached rows, and in rows that depend on them."""
        filled = reached.copy()
        for row, columns in enumerate(self.elimination.lower):
            filled[row] |= filled[columns].any(axis=0)
        return filled


@dataclass(frozen=True)
class Tiled:
    """The symbolic factor of a model's mass matrix, and the tiling of each solution of a solve."""

    elimination: SymbolicFactor
    tilings: tuple[Tiling, ...]


_TILED: WeakKeyDictionary[Model, dict[tuple[Solve, int], Tiled]] = WeakKeyDictionary()


def tiled_solve(model: Model, solve: Solve, column_lanes: int = 1) -> Tiled:
    """The tilings of a solve; the same object for the same arguments. `column_lanes`: columns in a vector."""
    solves, key = _TILED.setdefault(model, {}), (solve, column_lanes)
    if key not in solves:
        elimination = SymbolicFactor(model)
        each = zip(solve.outputs.values(), _columns(model, solve), strict=True)
        solves[key] = Tiled(
            elimination,
            tuple(Tiling(model, elimination, solution, columns, column_lanes) for solution, columns in each),
        )
    return solves[key]


class SolvePlan:
    """The constants of a solve on one model, in the order of the table.

    `panel`: maximal rows of a panel.
    """

    def __init__(self, model: Model, kind: SolveKind, vector: VectorType, panel: int) -> None:
        self.model, self.solve, self.vector, self.panel = model, kind.solve, vector, panel
        self.rows, self.column_lanes, self.stores_rows = kind.rows, kind.columns, kind.stores_rows
        tiled = tiled_solve(model, kind.solve, 1 if kind.columns is None else kind.columns.width)
        self.elimination = tiled.elimination
        lower = self.elimination.lower
        self.ends: list[int] = np.cumsum([0, *(len(row) for row in lower)]).tolist()
        """Index of each row's first entry among all entries, then the number of entries."""
        self.upper: list[list[int]] = [[] for _ in lower]
        """For each row p, the rows k that have p among their columns."""
        for k, columns in enumerate(lower):
            for p in columns.tolist():
                self.upper[p].append(k)
        constants = {
            "n": np.array([model.nv]),
            "lower starts": np.array(self.ends),
            "lower index": np.concatenate([*lower, np.empty(0, np.int64)]),
        }
        before = 0
        each = zip(self.solve.outputs.values(), tiled.tilings, self.columns, strict=True)
        for number, (solution, tiling, count) in enumerate(each):
            for name, array in zip(OF_SOLUTION, self._of_solution(solution, tiling, count, before), strict=True):
                constants[f"{name} {number}"] = array
            before = model.nv * count
        names = [*CONSTANTS, *(f"{each} {k}" for k in range(len(self.solve.outputs)) for each in OF_SOLUTION)]
        self.arrays = [np.ascontiguousarray(constants[name], np.int64) for name in names]

    @property
    def workspace_bytes(self) -> int:
        """Bytes of a tile of columns of one state, and of a second right-hand side that is the user's rows, if there is
        one."""
        staged = 0
        for columns, solution in zip(self.columns, self.solve.outputs.values(), strict=True):
            if sum(name in self.rows for name in solution.arrays) > 1:
                staged = max(staged, columns)
        tile = 0 if self.column_lanes is None else WIDTH * self.column_lanes.bytes
        return self.model.nv * (tile + staged * self.vector.bytes)

    @property
    def columns(self) -> list[int]:
        """Number of right-hand sides of each solution."""
        return _columns(self.model, self.solve)

    @property
    def operations(self) -> int:
        """Estimated floating-point operations for one state."""
        return self.elimination.operations(sum(self.columns))

    @property
    def row_ns(self) -> float:
        """Estimated time of a state, ns."""
        return self.operations * LOOP_OPERATION_NS * 8.0 / (self.column_lanes or self.vector).width

    def _of_solution(self, solution: Solution, tiling: Tiling, columns: int, before: int) -> tuple[Array, Array]:
        """The tiles, and the programs of their sweeps.

        Tiles that reach the same rows share an `up` program. Tiles that fill the same rows share a `down` program; the
        tiles of an inverse start it at their first column, because rows before that are known. Known columns are copied
        by tiles with empty programs, if tiles are stored to the user's rows. `before`: scalars of the previous
        solution; each tile flushes a share of them.
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
        """(first row, number of rows) of panels. No panel extends across one of the rows `cuts`."""
        lower, upper = self.elimination.lower, self.upper
        joined = [
            upper[k] == [k + 1, *upper[k + 1]] if up else lower[k + 1].tolist() == [*lower[k], k]
            for k in range(self.model.nv - 1)
        ]
        begins = sorted({*cuts, *(k + 1 for k, same in enumerate(joined) if not same), *range(min(1, self.model.nv))})
        panels = []
        for k, end in pairwise([*begins, self.model.nv]):
            for rows in pieces(end - k, self.panel):
                panels.append((k, rows))
                k += rows
        return panels

    def _head(self, row: int, rows: int, terms: int) -> list[int]:
        return [rows, row, terms, *self.ends[row + 1 : row + rows + 1]]

    def _up(self, reached: Array) -> list[int]:
        """The program of an `up` sweep: panels that terms are added to. No panel extends across the first reached
        row."""
        words = []
        for row, rows in reversed(self._panels(True, np.flatnonzero(reached)[:1].tolist())):
            below = [j for j in reversed(self.upper[row + rows - 1]) if reached[j]]
            if reached[row] and (below or reached[row + 1 : row + rows].any()):
                words += self._head(row, rows, len(below))
                for j in below:
                    words += [j, self.ends[j] + int(np.searchsorted(self.elimination.lower[j], row))]
        return [*words, 0]

    def _down(self, cuts: Sequence[int], filled: Array) -> tuple[list[int], dict[int, int]]:
        """The program of a `down` sweep, and the start of each panel by its first row. The rows of a panel are on one
        path to the root, so all of them are filled, or none."""
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
    """(first column, number of columns) of tiles with the least total work.

    Args:
        reached: (nv, columns), rows that `up` processes.
        filled: (nv, columns), rows that `down` processes.
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
    """Least work up to each column, and the width of the last tile for it."""
    for end in range(1, columns + 1):
        widths = range(1, min(WIDTH, end) + 1)
        best.append(min((best[end - width][0] + float(work[width - 1][end - width]), width) for width in widths))
    tiles, end = [], columns
    while end:
        width = best[end][1]
        end -= width
        tiles.append((end, width))
    return tiles[::-1]


def solve_operations(model: Model, task: Traceable) -> int:
    """Estimated operations of a chain's solves for one state."""
    if not task.solves:
        return 0
    elimination = SymbolicFactor(model)
    return sum(elimination.operations(sum(_columns(model, solve))) for solve in task.solves)


def _columns(model: Model, solve: Solve) -> list[int]:
    nv = model.nv
    return [math.prod(output_shape(model, each)) // nv for each in solve.outputs.values()] if nv else []
