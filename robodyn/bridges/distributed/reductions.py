"""Reductions: each block's results become a value, and the values of all blocks are combined."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, as_array
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass

Of: TypeAlias = Callable[[Mapping[str, Array]], Any]
"""Function of a block's arrays (inputs and results by name), whose first axis is that of states."""


class Reduction(ABC):
    """Reduces the arrays of all blocks to one value.

    Workers call `block`. The process that called `map` combines the values in the order of blocks, so the result has
    the same bits whichever worker is faster. Values are numbers and arrays, or dictionaries, tuples and lists of them.
    """

    @abstractmethod
    def block(self, arrays: Mapping[str, Array]) -> Any:
        """The value of a block, from its inputs and results by name, such as q, qd, qdd and tau. Each is (n, ...), or
        without the axis of states if it is the same for all states of the map."""

    @abstractmethod
    def combine(self, one: Any, other: Any) -> Any:
        """The value of two consecutive runs of blocks."""

    def finish(self, value: Any) -> Any:
        """The result of `map`, from the value of all blocks."""
        return value


@dataclass(frozen=True)
class Statistics(Reduction):
    """Count, mean, standard deviation, minimum and maximum of every entry of a result.

    `map` returns a dictionary: "count", "mean", "std" (of the population), "minimum", "maximum", and "not_finite", the
    number of NaN or infinite entries, which the others exclude. All have the shape of one state. Means and squares are
    combined as by Chan, Golub and LeVeque (1979), which avoids cancellation over many states.

    Args:
        of: function of the block's arrays by name whose statistics to compute instead of the result's, such as power:
            `lambda a: a["tau"] * a["qd"]`. Queries with several results need it.
    """

    of: Of | None = None

    def __post_init__(self) -> None:
        require_function("of", self.of)

    def block(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Count, mean, sum of squares about the mean, minimum and maximum of a block."""
        x = _chosen(self.of, arrays)
        finite = np.isfinite(x)
        all_finite = bool(finite.all())
        values = x if all_finite else np.where(finite, x, 0.0)
        count = finite.sum(axis=0)
        with np.errstate(all="ignore"):  # an overflow shows in the result; entries without values become NaN below
            mean = values.sum(axis=0) / np.maximum(count, 1)
            deviation = values - mean
            squares = np.square(deviation, out=deviation).sum(axis=0, where=True if all_finite else finite)
        least, largest = (values, values) if all_finite else (np.where(finite, x, np.inf), np.where(finite, x, -np.inf))
        return {
            "count": count,
            "mean": mean,
            "squares": squares,
            "minimum": least.min(axis=0, initial=np.inf),
            "maximum": largest.max(axis=0, initial=-np.inf),
            "not_finite": x.shape[0] - count,
        }

    def combine(self, one: dict[str, Array], other: dict[str, Array]) -> dict[str, Array]:
        """Statistics of both runs."""
        count = one["count"] + other["count"]
        with np.errstate(all="ignore"):
            share = other["count"] / np.maximum(count, 1)
            difference = other["mean"] - one["mean"]
            squares = one["squares"] + other["squares"] + difference * difference * (one["count"] * share)
            mean = one["mean"] + difference * share
        return {
            "count": count,
            "mean": mean,
            "squares": squares,
            "minimum": np.minimum(one["minimum"], other["minimum"]),
            "maximum": np.maximum(one["maximum"], other["maximum"]),
            "not_finite": one["not_finite"] + other["not_finite"],
        }

    def finish(self, value: dict[str, Array]) -> dict[str, Array]:
        """Replace squares by the standard deviation. Entries without finite values are NaN."""
        empty = value["count"] == 0
        with np.errstate(all="ignore"):
            std = np.sqrt(value["squares"] / np.maximum(value["count"], 1))
        statistics = {"mean": value["mean"], "std": std, "minimum": value["minimum"], "maximum": value["maximum"]}
        statistics = {name: np.where(empty, np.nan, array) for name, array in statistics.items()}
        return {"count": value["count"], **statistics, "not_finite": value["not_finite"]}


@dataclass(frozen=True)
class Histogram(Reduction):
    """Counts states in the bins of a grid.

    `map` returns a dictionary: "counts", integers with one axis for each dimension, and "outside", the number of states
    beyond the grid or not finite.

    Args:
        of: function of the block's arrays by name that returns (n,) or (n, d). `lambda a: a["T"][:, :3, 3]` is the
            position of a link of "link_pose".
        edges: for each of the d dimensions the increasing edges of its bins. A bin includes its lower edge, the last
            bin both edges.
    """

    of: Of
    edges: tuple[Array, ...]

    def __init__(self, of: Of, edges: Sequence[Any]) -> None:
        if of is None:
            raise ArgumentError("of: got None; wanted a function of a dictionary of arrays")
        require_function("of", of)
        members = strict_types.members(edges) if strict_types.is_a(edges, list, tuple) else ()
        arrays = []
        for number, each in enumerate(members):
            array = as_array(f"edges[{number}]", each, "wanted a one-dimensional array of increasing numbers")
            rising = array.ndim == 1 and array.size > 1 and array.dtype.kind in "fiu"
            if not (rising and np.isfinite(array).all() and (np.diff(array) > 0).all()):
                raise ArgumentError(
                    f"edges[{number}]: got {brief(each)}; wanted a one-dimensional array of increasing finite numbers"
                )
            arrays.append(array.astype(np.float64))
        if not arrays:
            raise ArgumentError(f"edges: got {brief(edges)}; wanted a list of arrays, one for each dimension")
        object.__setattr__(self, "of", of)
        object.__setattr__(self, "edges", tuple(arrays))

    def block(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The counts of a block."""
        x = _chosen(self.of, arrays)
        x = x.reshape(x.shape[0], -1)
        if x.shape[1] != len(self.edges):
            raise ArgumentError(
                f"of: gave {x.shape[1]} numbers for a state; wanted {len(self.edges)}, as there are edges"
            )
        inside = np.isfinite(x).all(axis=1)
        counts, _ = np.histogramdd(x[inside], bins=list(self.edges))
        counts = counts.astype(np.int64)
        return {"counts": counts, "outside": np.asarray(x.shape[0] - counts.sum())}

    def combine(self, one: dict[str, Array], other: dict[str, Array]) -> dict[str, Array]:
        """The sums of counts."""
        return {name: one[name] + other[name] for name in one}


@dataclass(frozen=True)
class Several(Reduction):
    """Several reductions by name, of the same blocks."""

    parts: Mapping[str, Reduction]

    def block(self, arrays: Mapping[str, Array]) -> dict[str, Any]:
        """The block's value of each reduction."""
        return {name: part.block(arrays) for name, part in self.parts.items()}

    def combine(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        """The combined value of each reduction."""
        return {name: part.combine(one[name], other[name]) for name, part in self.parts.items()}

    def finish(self, value: dict[str, Any]) -> dict[str, Any]:
        """The result of each reduction."""
        return {name: part.finish(value[name]) for name, part in self.parts.items()}


@dataclass(frozen=True)
class Listed(Reduction):
    """List of a function's values for the results of each block."""

    function: Callable[..., Any]
    results: tuple[str, ...]

    def block(self, arrays: Mapping[str, Array]) -> list[Any]:
        """List with the value of one block."""
        return [self.function(*(arrays[name] for name in self.results))]

    def combine(self, one: list[Any], other: list[Any]) -> list[Any]:
        """Extend the first list in place: it gets as long as the number of blocks."""
        one.extend(other)
        return one


def reduction(given: Any, results: tuple[str, ...]) -> Reduction | None:
    """Convert the user's argument `reduce` to a `Reduction`, or None.

    Raises:
        ArgumentError: it is no reduction.
    """
    if given is None:
        return None
    parts = dict(dict.items(given)) if strict_types.is_a(given, dict) else {"": given}
    if parts and all(type(name) is str and strict_types.is_a(part, Reduction) for name, part in parts.items()):
        for name, part in parts.items():
            if strict_types.is_a(part, Statistics) and part.of is None and len(results) > 1:
                which = f"reduce[{name!r}]" if name else "reduce"
                raise ArgumentError(
                    f"{which}: got Statistics() of {', '.join(results)}; wanted of=, which tells of what"
                )
        return Several(parts) if strict_types.is_a(given, dict) else parts[""]
    if callable(given) and not strict_types.is_a(given, dict, type):
        return Listed(given, results)
    raise ArgumentError(
        f"reduce: got {brief(given)}; wanted a function of a block's results, a robodyn.distributed.Reduction, or a "
        "dictionary of these by name"
    )


def require_function(name: str, given: Any) -> None:
    """Raise unless `given` is a function or None.

    Raises:
        ArgumentError: it cannot be called.
    """
    if given is not None and not callable(given):
        raise ArgumentError(f"{name}: got {brief(given)}; wanted a function")


def _chosen(of: Of | None, arrays: Mapping[str, Array]) -> Array:
    """Array (n, ...) to reduce: the value of `of`, or the block's only result, which is the last array."""
    result = tuple(arrays.values())[-1]
    wanted = f"wanted a real array whose first axis is that of the {len(result)} states"
    values = result if of is None else as_array("of", of(arrays), wanted)
    if values.ndim == 0 or len(values) != len(result) or values.dtype.kind not in "fiub":
        raise ArgumentError(f"of: gave {values.dtype} of shape {values.shape}; {wanted}")
    return values.astype(np.float64, copy=False)
