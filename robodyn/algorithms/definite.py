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
        for k in range(m):
            self._inverse[k] = 1.0 / L[k][k]
            for i in range(k + 1, m):
                if is_zero(L[i][k]):
                    continue
                share = L[i][k] * self._inverse[k]
                for j in range(k + 1, i + 1):
                    if not is_zero(L[j][k]):
                        L[i][j] = L[i][j] - share * L[j][k]
        for k in range(m):
            for i in range(k + 1, m):
                if not is_zero(L[i][k]):
                    L[i][k] = L[i][k] * self._inverse[k]

    def solved(self, b: Sequence[Any]) -> list[Any]:
        """A^-1 b."""
        x, m = list(b), len(b)
        for k in range(m):
            for i in range(k + 1, m):
                if not is_zero(self._L[i][k]):
                    x[i] = x[i] - self._L[i][k] * x[k]
        for k in range(m - 1, -1, -1):
            x[k] = x[k] * self._inverse[k]
            for i in range(k + 1, m):
                if not is_zero(self._L[i][k]):
                    x[k] = x[k] - self._L[i][k] * x[i]
        return x
