"""Named configurations of a model: keyframes of a file, postures to start from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robodyn import exact
from robodyn.arguments import Array, real_array, require_finite
from robodyn.errors import ArgumentError
from robodyn.messages import brief, quoted


class Configurations(Mapping[str, "NDArray[np.float64]"]):
    """Names to configurations q (nq,), read-only, in this library's order and convention. Never changes."""

    __slots__ = ("_places", "_rows")

    def __init__(self, names: Iterable[str] = (), rows: Array | None = None) -> None:
        self._places = {name: k for k, name in enumerate(names)}
        self._rows: NDArray[np.float64] = np.array(rows, np.float64) if self._places else np.zeros((0, 0))
        self._rows.setflags(write=False)

    @property
    def rows(self) -> NDArray[np.float64]:
        """(number of them, nq) all of them, in the order of their names; (0, 0) where there are none."""
        return self._rows

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        row: NDArray[np.float64] = self._rows[self._places[name]]
        return row

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Configurations):
            return NotImplemented
        return tuple(self) == tuple(other) and np.array_equal(self._rows, other._rows)

    def __hash__(self) -> int:
        return hash((tuple(self), (self._rows + 0.0).tobytes()))  # -0.0 becomes 0.0, which it equals

    def __repr__(self) -> str:
        return f"Configurations({', '.join(map(repr, self))})"

    def __reduce__(self) -> Any:
        return Configurations, (tuple(self), self._rows)


def checked(value: Any, nq: int) -> Configurations:
    """Configurations from what is given as such: they, or a dictionary of names to arrays (nq,).

    Raises:
        ArgumentError: something else, or other shapes.
        NumericalError: NaN or infinity.
    """
    if type(value) is Configurations:
        if not value or value.rows.shape[1] == nq:
            require_finite("configurations", value.rows, 1)
            return value
        value = dict(value)
    if not exact.is_a(value, dict):
        raise ArgumentError(f"configurations: got {brief(value)}; wanted a dictionary of names to q of shape ({nq},)")
    named = dict(dict.items(value))
    rows: list[Array] = []
    for name, q in named.items():
        if type(name) is not str or not name.strip():
            raise ArgumentError(f"configurations: got the name {brief(name)}; wanted a text that is not blank")
        what = f"configurations[{quoted(name)}]"
        row = real_array(what, q, (nq,), np.float64)
        if row.ndim != 1:
            raise ArgumentError(f"{what}: got shape {row.shape}; wanted ({nq},)")
        require_finite(what, row, 1)
        rows.append(row)
    return Configurations(named, np.array(rows).reshape(len(rows), nq))
