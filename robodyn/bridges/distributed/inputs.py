"""Sources of the states of blocks: arrays that are cut, arrays in storage, or seeds."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.api.queries.core import checked_choice, links_of, point_shapes, require_model
from robodyn.bridges.distributed.identity import UncertainError, array_bytes
from robodyn.core.model import Model
from robodyn.engines.query_table import FLAGS, LinkSelection, QuerySpec, asked_of
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, as_array, count, flag, integer, one_of, real_array, wanted_shape
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief, quoted
from robodyn.internals.records import dataclass

Draw: TypeAlias = Callable[[np.random.Generator, int], Mapping[str, Any]]
"""Function of a generator and a number of states n that returns arrays (n, ...) by name."""

MOST_BLOCKS = 10_000_000
"""Limit, because each block has a task and, in storage, a file."""
_MOST_SEED = 2**63 - 1
_RATE, _FORCE = 1.0, 1.0
"""Range of drawn velocities and forces of joints without limits, SI units."""


def random_inputs(model: Model, query: str, rng: np.random.Generator, n: int) -> dict[str, Array]:
    """Draw states as `map` does: arrays (n, ...) by name for all required inputs of a query.

    q is drawn by `model.random_configuration`. qd and tau are uniform within the model's limits, or within +-1 rad/s or
    m/s and +-1 N m or N without limits; other inputs are uniform within +-1. They are drawn in this order, so that
    equal seeds give equal q for all queries.

    Args:
        model: the robot.
        query: the name of a query, such as "forward_dynamics".
        rng: the generator, `numpy.random.default_rng(seed)` of the block's seed.
        n: number of states.

    Raises:
        ArgumentError: no such query, or a wrong number of states.
    """
    require_model(model)
    question = _question(model, query)
    n = count("n", n, 0, sys.maxsize)
    if not strict_types.is_a(rng, np.random.Generator):
        raise ArgumentError(f"rng: got {brief(rng)}; wanted a numpy.random.Generator")
    unlimited: Array = np.full(model.nv, np.inf)
    limits = {"qd": (model.velocity_limit, _RATE), "tau": (model.effort_limit, _FORCE)}
    arrays: dict[str, Array] = {"q": model.random_configuration(rng, (n,))}
    for name in question.inputs[1:]:
        limit, otherwise = limits.get(name, (unlimited, 1.0))
        half_range = np.where(np.isfinite(limit), np.abs(limit), otherwise)
        arrays[name] = half_range * rng.uniform(-1.0, 1.0, (n, model.nv))
    return arrays


def _question(model: Model, query: Any) -> QuerySpec:
    queries = asked_of(model)
    return queries[one_of("query", query, tuple(queries))]


@dataclass(frozen=True)
class Block:
    """A block of states `first` to `last` (exclusive), and the seed to draw them, or None."""

    number: int
    first: int
    last: int
    seed: int | None

    def __str__(self) -> str:
        by = "" if self.seed is None else f", seed {self.seed}"
        return f"block {self.number} (states {self.first} to {self.last - 1}{by})"


@dataclass(frozen=True)
class Inputs:
    """The states of a map.

    Args:
        states: number of states.
        chunk: number of states of a block; the last block may be smaller.
        seeds: one for each block, or None.
        draw: function that draws states by seeds.
        fixed: arrays by name that are the same for all states.
        stored: zarr arrays (states, ...), from which workers read.
        lazy: Dask arrays (states, ...).
        cut: arrays (states, ...) in this process, from which blocks are cut.
    """

    states: int
    chunk: int
    seeds: Sequence[int] | None = None
    draw: Draw | None = None
    fixed: dict[str, Array] = field(default_factory=dict)
    stored: dict[str, Any] = field(default_factory=dict)
    lazy: dict[str, Any] = field(default_factory=dict)
    cut: dict[str, Array] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return -(-self.states // self.chunk)

    def block(self, number: int) -> Block:
        """The block of this number."""
        first = number * self.chunk
        seed = None if self.seeds is None else int(self.seeds[number])
        return Block(number, first, min(self.states, first + self.chunk), seed)

    def pieces(self, block: Block, start: Callable[[Any], Any]) -> dict[str, Any]:
        """The arrays that are sent with a block; `start` starts the computation of a part of a Dask array."""
        rows = slice(block.first, block.last)
        cut = {name: array[rows] for name, array in self.cut.items()}
        return {**cut, **{name: start(array[rows]) for name, array in self.lazy.items()}}

    def digest(self, by_key: bool) -> str:
        """A hash of the states: of the bytes of arrays, including those in storage, and of seeds.

        `by_key`: True if the user's key stands for the contents of zarr and Dask arrays; then only their names count.

        Raises:
            UncertainError: there are Dask arrays, whose names do not identify their contents.
            UnavailableError: storage cannot be read.
        """
        state = hashlib.blake2b(digest_size=16)
        if self.lazy and not by_key:
            raise UncertainError(f"{next(iter(self.lazy))}: an array of Dask, which is not computed yet")
        for name, array in sorted({**self.fixed, **self.cut, **self.stored, **self.lazy}.items()):
            home = "stored" if name in self.stored else "lazy" if name in self.lazy else "here"
            state.update(f"{home} {name} {array.dtype.str} {tuple(array.shape)} ".encode())
            if home == "lazy" or (home == "stored" and by_key):
                place = array.name if home == "lazy" else array.store_path
                state.update(f"{place}".encode())
                continue
            for rows in _runs(array) if home == "here" else _stored_rows(name, array):
                for run in array_bytes(rows):
                    state.update(run.data)
        for rows in () if self.seeds is None else _runs(self.seeds):
            state.update(np.asarray(rows, dtype=np.int64).data)
        return state.hexdigest()


def _stored_rows(name: str, array: Any) -> Iterator[Array]:
    """The rows of a zarr array, one chunk at a time."""
    rows = max(1, int(array.chunks[0]))
    for start in range(0, int(array.shape[0]), rows):
        try:
            chunk = np.asarray(array[start : start + rows])
        except Exception as error:  # storage, or zarr, may raise anything
            raise UnavailableError(f"{name}: its rows from {start} on cannot be read: {brief(error)}") from error
        yield chunk


_RUN = 1 << 20


def _runs(rows: Any) -> Iterator[Any]:
    """A sequence or array in runs of rows, so that hashing does not copy all of it."""
    if isinstance(rows, np.ndarray) and rows.ndim == 0:
        yield rows
        return
    for start in range(0, len(rows), _RUN):
        yield rows[start : start + _RUN]


@dataclass(frozen=True)
class MapCall:
    """The parsed arguments of `map`: query, states, other choices, and the shapes of results for one state."""

    question: QuerySpec
    inputs: Inputs
    choices: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]


def read(
    dyn: Dynamics, query: Any, given: tuple[Any, ...], chunk: Any, draw: Draw | None, others: dict[str, Any]
) -> MapCall:
    """Parse the arguments of `map`.

    Raises:
        ArgumentError: no such query; arrays that do not fit the query or one another; unknown arguments.
    """
    question = _question(dyn.model, query)
    chunk = count("chunk", chunk, 1, sys.maxsize)
    parameters = inspect.signature(getattr(type(dyn), question.name)).parameters.values()
    seeds, named = _by_name(question, given, [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD], others)
    allowed = [p.name for p in parameters if p.name not in ("self", "out")]
    if strange := [name for name in named if name not in allowed]:
        raise ArgumentError(f"{strange[0]}: no argument of {question.name}; allowed: {', '.join(allowed)}")
    if seeds is None and draw is not None:
        raise ArgumentError("draw: got a function, but no seeds; wanted seeds in the place of arrays")
    rows = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name in dyn.argument_shapes]
    cut = dict.fromkeys((*question.arrays, *rows))
    arrays = {name: named.pop(name) for name in cut if named.get(name) is not None}
    if missing := [name for name in question.inputs if name not in arrays and seeds is None]:
        raise ArgumentError(
            f"{missing[0]}: {question.name} needs it; wanted an array, or seeds in the place of all arrays"
        )
    choices = {name: value for name, value in named.items() if value is not None and name not in cut}
    for name in {"frame", "classical", "axes"} & {*choices}:
        choices[name] = checked_choice(dyn.model, name, choices[name])
    if "sparse" in choices and flag("sparse", choices.pop("sparse")):
        raise ArgumentError("sparse: got True; wanted False, as a sparse matrix is of one state")
    if "method" in choices:
        choices["method"] = dyn._method(question, choices["method"])
    places = None
    if question.of_link:
        _, places = links_of(dyn.model, *(choices.get(name) for name in ("link", "links", "relative_to")))
    shapes = {**dyn.argument_shapes, **(point_shapes(places) if places is not None else {})}
    inputs = _inputs({name: (array, shapes[name]) for name, array in arrays.items()}, chunk, seeds, draw)
    return MapCall(question, inputs, choices, _result_shapes(question, dyn.model, arrays, draw, places))


def _result_shapes(
    question: QuerySpec, model: Model, arrays: Mapping[str, Any], draw: Draw | None, places: LinkSelection | None
) -> dict[str, tuple[int, ...]]:
    """Shapes of results for one state. A user's `draw` is called for one state to see whether it draws a vector."""
    drawn: tuple[str, ...] = ()
    if draw is not None and "vector" in question.optional:
        try:
            drawn = tuple(draw(np.random.default_rng(0), 1))
        except Exception as error:  # a user's function may raise anything
            raise ArgumentError(f"draw: raised {type(error).__name__}: {quoted(str(error), 300)}") from error
    return question.shapes(model, (*arrays, *drawn), places)


def _by_name(
    question: QuerySpec, given: tuple[Any, ...], order: list[str], others: dict[str, Any]
) -> tuple[Sequence[int] | None, dict[str, Any]]:
    """Seeds, if they replace the arrays, and all other arguments by name."""
    placed = [name for name in order if name in question.inputs]
    rest = [name for name in order[1:] if name not in placed]
    first = given[0] if given else None
    seeds = None if any(map(_is_array, given[1:])) else _seeds(first)
    names = rest if seeds is not None else placed + rest
    values = given[1:] if seeds is not None else given
    if len(values) > len(names):
        raise ArgumentError(
            f"{question.name}: got {len(given)} arguments in order; wanted {', '.join(placed + rest)}, or seeds in the "
            "place of arrays"
        )
    named = dict(zip(names, values, strict=False))
    if twice := [name for name in named if name in others]:
        raise ArgumentError(f"{twice[0]}: given twice, in order and by name")
    return seeds, {**named, **others}


def _is_array(value: Any) -> bool:
    """Whether a value is neither the name nor the number of a link."""
    return strict_types.text_or_none(value) is None and integer(value) is None


def _seeds(value: Any) -> Sequence[int] | None:
    """Seeds from a `range`, an integer, or a one-dimensional list or array of integers; None for anything else.

    Raises:
        ArgumentError: an invalid seed, a duplicate, or none or too many seeds.
    """
    if integer(value) is not None:
        value = [value]
    elif strict_types.is_a(value, np.ndarray):
        value = as_array("seeds", value, "wanted integers in one dimension")
        if value.ndim != 1 or value.dtype.kind not in "iu":
            return None
    elif type(value) is not range and not (
        strict_types.is_a(value, list, tuple) and all(integer(each) is not None for each in strict_types.members(value))
    ):
        return None
    numbers: Any = value if type(value) is range else np.asarray(value).tolist()
    if not 1 <= len(numbers[: MOST_BLOCKS + 1]) <= MOST_BLOCKS:  # a range may be longer than `len` can say
        raise ArgumentError(f"seeds: got {brief(value)}; wanted from 1 to {MOST_BLOCKS} of them, one for each block")
    # For a range checking both ends suffices, and it has no duplicates.
    for seed in (numbers[0], numbers[-1]) if type(value) is range else numbers:
        count("seeds", seed, 0, _MOST_SEED)
    if type(value) is not range and len(set(numbers)) < len(numbers):
        twice = next(seed for k, seed in enumerate(sorted(numbers)[1:]) if sorted(numbers)[k] == seed)
        raise ArgumentError(f"seeds: {twice} stands twice; wanted others for every block, or its states count twice")
    seeds: Sequence[int] = numbers
    return seeds


def _inputs(
    arrays: dict[str, tuple[Any, tuple[int, ...]]], chunk: int, seeds: Sequence[int] | None, draw: Draw | None
) -> Inputs:
    """Sort arrays, given with their shape for one state, by where they live."""
    fixed: dict[str, Array] = {}
    divided: dict[str, dict[str, Any]] = {"zarr": {}, "dask": {}, "numpy": {}}
    for name, (value, shape) in arrays.items():
        home = type(value).__module__.partition(".")[0]
        if home in ("zarr", "dask") and hasattr(value, "shape") and hasattr(value, "dtype"):
            array = value
            if integer(array.shape[0] if array.shape else None) is None:  # Dask arrays may have unknown lengths
                raise ArgumentError(
                    f"{name}: got shape {tuple(array.shape)}; {wanted_shape(shape)}, with one axis of states"
                )
            kinds = "fiub" if name in FLAGS else "fiu"
            if len(array.shape) != len(shape) + 1 or tuple(array.shape[1:]) != shape or array.dtype.kind not in kinds:
                got = f"{array.dtype} of shape {tuple(array.shape)}"
                raise ArgumentError(f"{name}: got {got}; {wanted_shape(shape)}, with one axis of states")
        else:
            home = "numpy"
            array = as_array(name, value, wanted_shape(shape))
            array = real_array(name, value if array.ndim == 0 else array, shape, array.dtype, flags=name in FLAGS)
            if array.ndim > len(shape) + 1:
                raise ArgumentError(f"{name}: got shape {array.shape}; {wanted_shape(shape)}, with one axis of states")
            if array.ndim == len(shape) or len(array) == 1:
                fixed[name] = array
                continue
        divided[home][name] = array
    if not any(divided.values()) and seeds is None:  # a map of a single state
        ones = [name for name, array in fixed.items() if array.ndim > len(arrays[name][1])]
        divided["numpy"] = {name: fixed.pop(name) for name in ones}
    lengths = {name: int(array.shape[0]) for home in divided.values() for name, array in home.items()}
    if seeds is not None:
        if lengths:
            name = next(iter(lengths))
            raise ArgumentError(
                f"{name}: got {lengths[name]} states beside seeds; wanted one, which is the same for all"
            )
        return Inputs(len(seeds) * chunk, chunk, seeds, draw, fixed)
    states = set(lengths.values())
    if len(states) != 1 or states == {0}:
        listed = ", ".join(f"{name} {n}" for name, n in lengths.items()) or "none"
        raise ArgumentError(f"arrays: got axes of states {listed}; wanted arrays of the same number of states, from 1")
    inputs = Inputs(states.pop(), chunk, None, None, fixed, divided["zarr"], divided["dask"], divided["numpy"])
    if inputs.blocks > MOST_BLOCKS:
        raise ArgumentError(f"chunk: got {chunk}, which makes {inputs.blocks} blocks; wanted at most {MOST_BLOCKS}")
    return inputs
