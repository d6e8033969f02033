"""Where the states of blocks come from: arrays that are cut, arrays in storage, or seeds."""

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
"""A function of a generator and a number of states n that gives arrays by name, (n, ...) each."""

MOST_BLOCKS = 10_000_000
"""Each has a task, and in storage a file."""
_MOST_SEED = 2**63 - 1
_RATE, _FORCE = 1.0, 1.0
"""How far velocities and forces are drawn where a joint has no limit, SI units."""


def random_inputs(model: Model, query: str, rng: np.random.Generator, n: int) -> dict[str, Array]:
    """States as `map` draws them: arrays (n, ...) by name for everything that a query cannot do without.

    q as `model.random_configuration`; qd and tau uniform within the model's limits, or within +-1 rad/s or m/s and
    +-1 N m or N where there is none; others uniform within +-1. They are drawn in this order, so that equal seeds give
    equal q for all queries.

    Args:
        model: the robot.
        query: the name of a query, such as "forward_dynamics".
        rng: what draws: `numpy.random.default_rng(seed)` of the block's seed.
        n: number of states.

    Raises:
        ArgumentError: no such query, or no number of states.
    """
    require_model(model)
    question = _question(model, query)
    n = count("n", n, 0, sys.maxsize)
    if not strict_types.is_a(rng, np.random.Generator):
        raise ArgumentError(f"rng: got {brief(rng)}; wanted a numpy.random.Generator")
    none: Array = np.full(model.nv, np.inf)
    limits = {"qd": (model.velocity_limit, _RATE), "tau": (model.effort_limit, _FORCE)}
    found: dict[str, Array] = {"q": model.random_configuration(rng, (n,))}
    for name in question.inputs[1:]:
        limit, otherwise = limits.get(name, (none, 1.0))
        wide = np.where(np.isfinite(limit), np.abs(limit), otherwise)
        found[name] = wide * rng.uniform(-1.0, 1.0, (n, model.nv))
    return found


def _question(model: Model, query: Any) -> QuerySpec:
    asked = asked_of(model)
    return asked[one_of("query", query, tuple(asked))]


@dataclass(frozen=True)
class Block:
    """States `first` to `last`, that excluded, of all; drawn by a seed, or None."""

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
        states: how many.
        chunk: of a block, but for the last one.
        seeds: one for each block, or None.
        draw: what draws by them.
        fixed: arrays by name that are the same for all states.
        stored: arrays of zarr, (states, ...), from which workers read.
        lazy: arrays of Dask, (states, ...).
        cut: arrays in this process, (states, ...).
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
        """How many."""
        return -(-self.states // self.chunk)

    def block(self, number: int) -> Block:
        """One of them."""
        first = number * self.chunk
        seed = None if self.seeds is None else int(self.seeds[number])
        return Block(number, first, min(self.states, first + self.chunk), seed)

    def pieces(self, block: Block, start: Callable[[Any], Any]) -> dict[str, Any]:
        """What is sent with a block; `start` begins to compute a piece of an array of Dask."""
        rows = slice(block.first, block.last)
        cut = {name: array[rows] for name, array in self.cut.items()}
        return {**cut, **{name: start(array[rows]) for name, array in self.lazy.items()}}

    def digest(self, by_key: bool) -> str:
        """A hash of the states: of the bytes of arrays, those in storage included, and of seeds.

        `by_key`: the user's key stands for what arrays in storage and of Dask hold; only their names are read.

        Raises:
            UncertainError: there are arrays of Dask, whose names do not tell what they hold.
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
    """An array of zarr, as many rows at a time as it has in a chunk."""
    rows = max(1, int(array.chunks[0]))
    for start in range(0, int(array.shape[0]), rows):
        try:
            found = np.asarray(array[start : start + rows])
        except Exception as error:  # storage, or zarr, may raise anything
            raise UnavailableError(f"{name}: its rows from {start} on cannot be read: {brief(error)}") from error
        yield found


_RUN = 1 << 20


def _runs(rows: Any) -> Iterator[Any]:
    """A sequence or an array in runs of rows: a hash of it all takes no copy of it all."""
    if isinstance(rows, np.ndarray) and rows.ndim == 0:
        yield rows
        return
    for start in range(0, len(rows), _RUN):
        yield rows[start : start + _RUN]


@dataclass(frozen=True)
class MapCall:
    """A call of `map`, read: the question, its states, what a call of it chooses besides, and the shapes of a state's
    results."""

    question: QuerySpec
    inputs: Inputs
    choices: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]


def read(
    dyn: Dynamics, query: Any, given: tuple[Any, ...], chunk: Any, draw: Draw | None, others: dict[str, Any]
) -> MapCall:
    """What a call of `map` asks.

    Raises:
        ArgumentError: no such query; arrays that do not fit it, or one another; arguments that it does not have.
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
    arrays = {name: named.pop(name) for name in question.arrays if named.get(name) is not None}
    if missing := [name for name in question.inputs if name not in arrays and seeds is None]:
        raise ArgumentError(
            f"{missing[0]}: {question.name} needs it; wanted an array, or seeds in the place of all arrays"
        )
    choices = {name: value for name, value in named.items() if value is not None and name not in question.arrays}
    for name in {"frame", "classical"} & {*choices}:
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
    """Of one state; of what a function draws one state is drawn, to see whether a vector is among it."""
    drawn: tuple[str, ...] = ()
    if draw is not None and "vector" in question.optional:
        try:
            drawn = tuple(draw(np.random.default_rng(0), 1))
        except Exception as error:  # of a user's function
            raise ArgumentError(f"draw: raised {type(error).__name__}: {quoted(str(error), 300)}") from error
    return question.shapes(model, (*arrays, *drawn), places)


def _by_name(
    question: QuerySpec, given: tuple[Any, ...], order: list[str], others: dict[str, Any]
) -> tuple[Sequence[int] | None, dict[str, Any]]:
    """Seeds, if they stand in the place of arrays, and all other arguments by name."""
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
    """The seeds that a value is: a `range`, an integer, or integers in one dimension; None for anything else.

    Raises:
        ArgumentError: one of them cannot be a seed, one stands twice, or there are none or too many.
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
    found: Any = value if type(value) is range else np.asarray(value).tolist()
    if not 1 <= len(found[: MOST_BLOCKS + 1]) <= MOST_BLOCKS:  # a range may be longer than `len` can say
        raise ArgumentError(f"seeds: got {brief(value)}; wanted from 1 to {MOST_BLOCKS} of them, one for each block")
    # Of a range the ends tell, and none stands twice.
    for seed in (found[0], found[-1]) if type(value) is range else found:
        count("seeds", seed, 0, _MOST_SEED)
    if type(value) is not range and len(set(found)) < len(found):
        twice = next(seed for k, seed in enumerate(sorted(found)[1:]) if sorted(found)[k] == seed)
        raise ArgumentError(f"seeds: {twice} stands twice; wanted others for every block, or its states count twice")
    seeds: Sequence[int] = found
    return seeds


def _inputs(
    arrays: dict[str, tuple[Any, tuple[int, ...]]], chunk: int, seeds: Sequence[int] | None, draw: Draw | None
) -> Inputs:
    """Arrays by name, each with the shape of one state, sorted by where they live."""
    fixed: dict[str, Array] = {}
    divided: dict[str, dict[str, Any]] = {"zarr": {}, "dask": {}, "numpy": {}}
    for name, (value, shape) in arrays.items():
        home = type(value).__module__.partition(".")[0]
        if home in ("zarr", "dask") and hasattr(value, "shape") and hasattr(value, "dtype"):
            array = value
            if integer(array.shape[0] if array.shape else None) is None:  # Dask may not know yet
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
    if not any(divided.values()) and seeds is None:  # the only state
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
