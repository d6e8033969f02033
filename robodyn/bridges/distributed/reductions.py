"""What becomes of a block's results where not all of them are kept: a value for each block, and values put together."""

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
"""A function of a block's arrays, inputs and results by name, whose first axis is that of states."""


class Reduction(ABC):
    """How the arrays of blocks become one value.

    Workers ask `block`. The values are put together here, in the order of blocks: the outcome is the same bits
    whichever worker was quicker. Values are numbers and arrays, or dictionaries, tuples and lists of them.
    """

    @abstractmethod
    def block(self, arrays: Mapping[str, Array]) -> Any:
        """The value of a block, from its inputs and results by name, such as q, qd, qdd and tau: (n, ...) each, or one
        for all states of the map."""

    @abstractmethod
    def combine(self, one: Any, other: Any) -> Any:
        """The value of two runs of blocks, the other behind the one."""

    def finish(self, value: Any) -> Any:
        """What `map` returns, from the value of all blocks."""
        return value


@dataclass(frozen=True)
class Statistics(Reduction):
    """Number, mean, standard deviation, least and largest of every entry of a result.

    `map` returns a dictionary: "count", "mean", "std" (of the population), "minimum", "maximum", and "not_finite", the
    number of entries that were NaN or infinite and are left out of the others. All have the shape of one state. Means
    and squares are put together as Chan, Golub and LeVeque do (1979), so that nothing cancels over many states.

    Args:
        of: a function of the block's arrays by name, for something else than the result, such as power:
            `lambda a: a["tau"] * a["qd"]`. It is needed where the query has several results.
    """

    of: Of | None = None

    def __post_init__(self) -> None:
        require_function("of", self.of)

    def block(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Count, mean, sum of squares about the mean, least and largest."""
        x = _chosen(self.of, arrays)
        finite = np.isfinite(x)
        whole = bool(finite.all())
        known = x if whole else np.where(finite, x, 0.0)
        count = finite.sum(axis=0)
        with np.errstate(all="ignore"):  # an overflow shows in what is returned; nothing at all is NaN below
            mean = known.sum(axis=0) / np.maximum(count, 1)
            apart = known - mean
            squares = np.square(apart, out=apart).sum(axis=0, where=True if whole else finite)
        least, largest = (known, known) if whole else (np.where(finite, x, np.inf), np.where(finite, x, -np.inf))
        return {
            "count": count,
            "mean": mean,
            "squares": squares,
            "minimum": least.min(axis=0, initial=np.inf),
            "maximum": largest.max(axis=0, initial=-np.inf),
            "not_finite": x.shape[0] - count,
        }

    def combine(self, one: dict[str, Array], other: dict[str, Array]) -> dict[str, Array]:
        """Of both."""
        count = one["count"] + other["count"]
        with np.errstate(all="ignore"):
            share = other["count"] / np.maximum(count, 1)
            apart = other["mean"] - one["mean"]
            squares = one["squares"] + other["squares"] + apart * apart * (one["count"] * share)
            mean = one["mean"] + apart * share
        return {
            "count": count,
            "mean": mean,
            "squares": squares,
            "minimum": np.minimum(one["minimum"], other["minimum"]),
            "maximum": np.maximum(one["maximum"], other["maximum"]),
            "not_finite": one["not_finite"] + other["not_finite"],
        }

    def finish(self, value: dict[str, Array]) -> dict[str, Array]:
        """With the standard deviation in place of squares; NaN where there was nothing finite."""
        none = value["count"] == 0
        with np.errstate(all="ignore"):
            std = np.sqrt(value["squares"] / np.maximum(value["count"], 1))
        found = {"mean": value["mean"], "std": std, "minimum": value["minimum"], "maximum": value["maximum"]}
        found = {name: np.where(none, np.nan, array) for name, array in found.items()}
        return {"count": value["count"], **found, "not_finite": value["not_finite"]}


@dataclass(frozen=True)
class Histogram(Reduction):
    """How many states fall into each box of a grid.

    `map` returns a dictionary: "counts", integers of one axis for each dimension, and "outside", how many states were
    beyond the grid or not finite.

    Args:
        of: a function of the block's arrays by name that gives (n,) or (n, d): `lambda a: a["T"][:, :3, 3]` is the
            place of a link of "link_pose".
        edges: for each of the d dimensions the increasing edges of its boxes; boxes have their lower edge, the last one
            both.
    """

    of: Of
    edges: tuple[Array, ...]

    def __init__(self, of: Of, edges: Sequence[Any]) -> None:
        if of is None:
            raise ArgumentError("of: got None; wanted a function of a dictionary of arrays")
        require_function("of", of)
        given = strict_types.members(edges) if strict_types.is_a(edges, list, tuple) else ()
        found = []
        for number, each in enumerate(given):
            array = as_array(f"edges[{number}]", each, "wanted a one-dimensional array of increasing numbers")
            rising = array.ndim == 1 and array.size > 1 and array.dtype.kind in "fiu"
            if not (rising and np.isfinite(array).all() and (np.diff(array) > 0).all()):
                raise ArgumentError(
                    f"edges[{number}]: got {brief(each)}; wanted a one-dimensional array of increasing finite numbers"
                )
            found.append(array.astype(np.float64))
        if not found:
            raise ArgumentError(f"edges: got {brief(edges)}; wanted a list of arrays, one for each dimension")
        object.__setattr__(self, "of", of)
        object.__setattr__(self, "edges", tuple(found))

    def block(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Counts of a block."""
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
        """Sums."""
        return {name: one[name] + other[name] for name in one}


@dataclass(frozen=True)
class Several(Reduction):
    """Reductions by name, of the same blocks."""

    parts: Mapping[str, Reduction]

    def block(self, arrays: Mapping[str, Array]) -> dict[str, Any]:
        """Of each."""
        return {name: part.block(arrays) for name, part in self.parts.items()}

    def combine(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        """Of each."""
        return {name: part.combine(one[name], other[name]) for name, part in self.parts.items()}

    def finish(self, value: dict[str, Any]) -> dict[str, Any]:
        """Of each."""
        return {name: part.finish(value[name]) for name, part in self.parts.items()}


@dataclass(frozen=True)
class Listed(Reduction):
    """What a function makes of the results of each block, in a list."""

    function: Callable[..., Any]
    results: tuple[str, ...]

    def block(self, arrays: Mapping[str, Array]) -> list[Any]:
        """Of one block."""
        return [self.function(*(arrays[name] for name in self.results))]

    def combine(self, one: list[Any], other: list[Any]) -> list[Any]:
        """One list, extended where it lies: it is as long as there are blocks."""
        one.extend(other)
        return one


def reduction(given: Any, results: tuple[str, ...]) -> Reduction | None:
    """What a user gave for `reduce`.

    Raises:
        ArgumentError: it is nothing that reduces.
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
    """Raise for anything but a function or None.

    Raises:
        ArgumentError: it cannot be called.
    """
    if given is not None and not callable(given):
        raise ArgumentError(f"{name}: got {brief(given)}; wanted a function")


def _chosen(of: Of | None, arrays: Mapping[str, Array]) -> Array:
    """(n, ...) of a block: what `of` makes of its arrays, or its one result, which stands last."""
    result = tuple(arrays.values())[-1]
    wanted = f"wanted a real array whose first axis is that of the {len(result)} states"
    found = result if of is None else as_array("of", of(arrays), wanted)
    if found.ndim == 0 or len(found) != len(result) or found.dtype.kind not in "fiub":
        raise ArgumentError(f"of: gave {found.dtype} of shape {found.shape}; {wanted}")
    return found.astype(np.float64, copy=False)
