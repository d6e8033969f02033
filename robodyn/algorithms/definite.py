"""Factorisations of symmetric positive definite matrices of scalars, A = L D L', and of mass matrices, H = L' D L (RBDA
section 6.5). Structural zeros are skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def is_zero(value: Any) -> bool:
    """True for a structural zero: the constant 0.0."""
    return isinstance(value, float) and value == 0.0


def product(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """a' b."""
    total: Any = 0.0
    for x, y in zip(a, b, strict=True):
        if not (is_zero(x) or is_zero(y)):
            total = total + x * y
    return total


class Definite:
    """The factors of a symmetric matrix, from its lower triangle: m rows of 1 to m scalars."""

    def __init__(self, lower: Sequence[Sequence[Any]]) -> None:
        m = len(lower)
        self._L = L = [list(row) for row in lower]
        self._inverse: list[Any] = [0.0] * m
        self._below: list[list[int]] = []
        for k in range(m):
            self._inverse[k] = 1.0 / L[k][k]
            below = [i for i in range(k + 1, m) if not is_zero(L[i][k])]
            self._below.append(below)
            for count, i in enumerate(below):
                share = L[i][k] * self._inverse[k]
                for j in below[: count + 1]:
                    L[i][j] = L[i][j] - share * L[j][k]
        for k, below in enumerate(self._below):
            for i in below:
                L[i][k] = L[i][k] * self._inverse[k]

    def solved(self, b: Sequence[Any]) -> list[Any]:
        """A^-1 b."""
        x = list(b)
        for k, below in enumerate(self._below):
            for i in below:
                x[i] = x[i] - self._L[i][k] * x[k]
        for k in range(len(x) - 1, -1, -1):
            x[k] = x[k] * self._inverse[k]
            for i in self._below[k]:
                x[k] = x[k] - self._L[i][k] * x[i]
        return x

    def inverse(self) -> list[list[Any]]:
        """A^-1, both triangles: sums of products of rows of L^-1."""
        m = len(self._L)
        rows: list[dict[int, Any]] = [{k: 1.0} for k in range(m)]
        for k, below in enumerate(self._below):
            for i in below:
                for j, x in rows[k].items():
                    rows[i][j] = rows[i].get(j, 0.0) - self._L[i][k] * x
        scaled = [{j: x * self._inverse[k] for j, x in row.items()} for k, row in enumerate(rows)]
        full: list[list[Any]] = [[0.0] * m for _ in range(m)]
        for row, its in zip(rows, scaled, strict=True):
            for i, x in row.items():
                for j, y in its.items():
                    if j <= i:
                        full[i][j] = full[i][j] + x * y
        return mirrored(full)


def mirrored(lower: list[list[Any]]) -> list[list[Any]]:
    """A symmetric matrix from its lower triangle."""
    every = range(len(lower))
    return [[lower[max(i, j)][min(i, j)] for j in every] for i in every]


class TreeFactors:
    """L and 1/D of a matrix H = L' D L: n rows of n scalars, of which the lower triangle is read.

    Elimination from the last row to the first keeps the zeros that branches of a tree make in a mass matrix.
    `lower[k]`: columns of nonzero entries left of the diagonal in row k of L.
    """

    def __init__(self, H: Sequence[Sequence[Any]]) -> None:
        n = len(H)
        self.L = [list(row) for row in H]
        self.inverse: list[Any] = [0.0] * n
        self.lower: list[list[int]] = [[]] * n
        for k in range(n - 1, -1, -1):
            row = self.L[k]
            self.inverse[k] = 1.0 / row[k]
            columns = self.lower[k] = [p for p in range(k) if not is_zero(row[p])]
            for at in range(len(columns) - 1, -1, -1):
                p = columns[at]
                share = row[p] * self.inverse[k]
                for r in columns[: at + 1]:
                    self.L[p][r] = self.L[p][r] - share * row[r]
                row[p] = share

    def up(self, b: Sequence[Any]) -> list[Any]:
        """L^-T b."""
        x = list(b)
        for k in range(len(x) - 1, -1, -1):
            if not is_zero(x[k]):
                for p in self.lower[k]:
                    x[p] = x[p] - self.L[k][p] * x[k]
        return x

    def down(self, b: Sequence[Any]) -> list[Any]:
        """L^-1 D^-1 b."""
        x = list(b)
        for k in range(len(x)):
            if not is_zero(x[k]):
                x[k] = x[k] * self.inverse[k]
            for p in self.lower[k]:
                if not is_zero(x[p]):
                    x[k] = x[k] - self.L[k][p] * x[p]
        return x

    def solve(self, b: Sequence[Any]) -> list[Any]:
        """H^-1 b."""
        return self.down(self.up(b))

    def inverse_matrix(self) -> list[list[Any]]:
        """H^-1. The lower triangle is computed and mirrored: row k follows from the rows of H^-1 at the columns of row
        k of L."""
        n = len(self.inverse)
        X: list[list[Any]] = [[0.0] * n for _ in range(n)]
        for k in range(n):
            for c in range(k + 1):
                value: Any = self.inverse[k] if c == k else 0.0
                for p in self.lower[k]:
                    value = value - self.L[k][p] * X[p][c]
                X[k][c] = X[c][k] = value
        return X
