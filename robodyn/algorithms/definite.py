"""Small symmetric positive definite systems on scalars, A = L D L'; zeros of the structure are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def is_zero(value: Any) -> bool:
    """Whether a scalar is zero by structure."""
    return isinstance(value, float) and value == 0.0


def product(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """a' b."""
    total: Any = 0.0
    for x, y in zip(a, b, strict=True):
        if not (is_zero(x) or is_zero(y)):
            total = total + x * y
    return total


class Definite:
    """The factors of a matrix of which the lower triangle is given, m rows of 1 to m scalars."""

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
