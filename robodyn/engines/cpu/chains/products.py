"""Products of matrices between the stages of a chain: plans (code: `products_code`)."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from robodyn.algorithms.tasks import Products, coupled
from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.vectors import VectorType
from robodyn.core.model import Model
from robodyn.engines.cpu.chains.column_lanes import vectors_of_columns
from robodyn.engines.cpu.chains.products_code import CONSTANTS, WIDTHS, joined, products_module
from robodyn.engines.cpu.chains.solves import pieces
from robodyn.internals.arguments import Array
from robodyn.internals.tuning import LOOP_OPERATION_NS


class ProductsPlan:
    """The constants of products on one model, in the order of the table. `columns`: vectors of columns of one state, or
    None for vectors of states."""

    def __init__(self, model: Model, stage: Products, kind: VectorType, columns: VectorType | None) -> None:
        self.stage, self.kind, self.columns, self.nv = stage, kind, columns, model.nv
        pattern = coupled(model)
        rows = [self.nv] if columns is None else [self._row * len(names) for names in joined(stage).values()]
        constants = {
            "n": [model.nv],
            "tiles": [number for row in rows for number in self._tiles(row)],
            "starts": [0, *accumulate(pattern.sum(axis=1).tolist())],
            "index": np.nonzero(pattern)[1],
        }
        self.entries = int(pattern.sum())
        self.arrays: list[Array] = [np.ascontiguousarray(constants[name], np.int64) for name in CONSTANTS]

    @staticmethod
    def _tiles(row: int) -> list[int]:
        widths = pieces(row, WIDTHS[0])
        begins = accumulate([0, *widths[:-1]])
        return [len(widths), *(number for tile in zip(begins, widths, strict=True) for number in tile)]

    @property
    def words(self) -> tuple[int, ...]:
        """Constant words of the table, after inputs and outputs."""
        return tuple(word for array in self.arrays for word in (array.ctypes.data, 0))

    @property
    def _lanes(self) -> int:
        """Columns in a vector."""
        return 1 if self.columns is None else self.columns.width

    @property
    def _row(self) -> int:
        """Vectors in a row of a matrix."""
        return -(-self.nv // self._lanes)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of one product. For vectors of columns: of all products and their right matrices."""
        if self.columns is None:
            return self.nv**2 * self.kind.bytes
        count = sum(map(len, joined(self.stage).values()))
        return count * (self.nv + self._row * self._lanes) * self._row * self.columns.bytes

    @property
    def operations(self) -> int:
        """Floating-point operations for one state."""
        each = (2 * self.entries * self.nv * (product.left is not None) for product in self.stage.outputs.values())
        return sum(each) + 3 * self.nv**2 * len(self.stage.outputs)

    @property
    def row_ns(self) -> float:
        """Estimated time of a state, ns."""
        return self.operations * LOOP_OPERATION_NS * 8.0 / max(self.kind.width, self._lanes)


def products_for(model: Model, stage: Products, kind: VectorType, target: Target) -> tuple[ProductsPlan, str]:
    """The plan and the module of products, on vectors of states, or on vectors of columns if `kind` has one state."""
    columns = vectors_of_columns(kind, target)
    return ProductsPlan(model, stage, kind, columns), products_module(stage, kind, columns, target)
