"""Computes a block on a worker. Functions here are sent by name, so both sides must have the same version."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.bridges.distributed.identity import UncertainError, identity
from robodyn.bridges.distributed.inputs import Block, Draw, random_inputs
from robodyn.bridges.distributed.reductions import Reduction
from robodyn.bridges.distributed.store import Output
from robodyn.compile.cache import ObjectCache
from robodyn.engines.query_table import QuerySpec, asked_of
from robodyn.internals import forks
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass
from robodyn.internals.version import __version__

_FIRST_CALL, _PATIENCE_S = "first_call", 120.0
"""Lock in the code cache for the first call, and how long (s) other processes wait for it. One process of a machine
compiles; the others then find the code in the cache."""
_FIRST_STATES = 4096
"""States of the first call: enough to compile code for batches, and quickly computed."""
_DOUBLE = 8
_KEPT = 4
"""Number of jobs whose compiled robots a worker keeps."""


@dataclass(frozen=True)
class Job:
    """The part of a map that all its blocks share."""

    version: str
    dyn: Dynamics
    query: str
    fixed: Mapping[str, Array]
    stored: Mapping[str, Any]
    draw: Draw | None
    choices: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    reduction: Reduction | None
    output: Output | None
    known: Mapping[str, str] = field(default_factory=dict)
    """Hashes of functions by argument name, computed in the process that called `map`."""

    @property
    def question(self) -> QuerySpec:
        """The query's row of the table."""
        return asked_of(self.dyn.model)[self.query]

    def require_known(self) -> None:
        """Raise if this worker's version of a function differs from the one that was sent by name.

        Raises:
            UnavailableError: names the argument.
        """
        for name, expected in self.known.items():
            try:
                actual = identity(name, self.draw if name == "draw" else self.reduction)
                reason = "another function"
            except UncertainError as error:
                actual, reason = None, str(error)
            if actual != expected:
                raise UnavailableError(
                    f"{name}: on this worker it is not what it is where map was called ({reason}); wanted workers that "
                    "were started after its module changed, with the same Python and NumPy, or key="
                )

    def arrays(self, block: Block, pieces: Mapping[str, Any]) -> dict[str, Array]:
        """Inputs of a block by name. Inputs that are the same for all states have no axis of states.

        Raises:
            ArgumentError: the draw function does not return arrays by name.
        """
        arrays = dict(pieces)
        if block.seed is not None:
            rng, n = np.random.default_rng(block.seed), block.last - block.first
            drawn = random_inputs(self.dyn.model, self.query, rng, n) if self.draw is None else self.draw(rng, n)
            if not isinstance(drawn, Mapping) or not set(drawn) <= set(self.question.arrays):
                allowed = ", ".join(self.question.arrays)
                raise ArgumentError(f"draw: gave {brief(drawn)}; wanted a dictionary of arrays with names of {allowed}")
            arrays.update(drawn)
        arrays.update({name: array[block.first : block.last] for name, array in self.stored.items()})
        return {**arrays, **self.fixed}

    def ask(self, dyn: Dynamics, arrays: Mapping[str, Array]) -> tuple[Array, ...]:
        """The results of the query, in order."""
        question = self.question
        if missing := [name for name in question.inputs if name not in arrays]:
            raise ArgumentError(f"draw: gave no {missing[0]}, which {self.query} needs")
        by_place, by_name = question.arguments(arrays)
        results = getattr(dyn, self.query)(*by_place, **by_name, **self.choices)
        return results if isinstance(results, tuple) else (results,)

    def bytes_of_a_state(self) -> int:
        """Bytes of a state's inputs and results."""
        inputs = {*self.question.inputs, *self.stored} - set(self.fixed)
        numbers = sum(math.prod(self.dyn.argument_shapes[name]) for name in inputs)
        return _DOUBLE * numbers + self.dyn.dtype.itemsize * sum(map(math.prod, self.shapes.values()))


class _Prepared:
    """A job on this worker, and its compiled robot."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._lock = forks.lock()
        self._dyn: Dynamics | None = None

    def dynamics(self, threads: int, arrays: Mapping[str, Array]) -> Dynamics:
        """The compiled robot for a number of threads. It is compiled once per process, by one process of a machine at a
        time."""
        with self._lock:
            if self._dyn is None or self._dyn.threads != threads:
                # "background" would leave the first blocks to another engine, whose results have other bits.
                dyn = self.job.dyn.variant(threads=threads, compile="lazy")
                shapes = dyn.argument_shapes
                few = {
                    name: array[:_FIRST_STATES] if np.ndim(array) > len(shapes[name]) else array
                    for name, array in arrays.items()
                }
                with ObjectCache.from_environment().alone(_FIRST_CALL, _PATIENCE_S):
                    self.job.ask(dyn, few)
                self._dyn = dyn
            return self._dyn


_PREPARED: OrderedDict[bytes, _Prepared] = OrderedDict()
_PREPARING = forks.lock()


def _prepared(payload: bytes) -> _Prepared:
    """The job of a payload, cached for all its blocks.

    Raises:
        UnavailableError: this worker has another version of robodyn or of a function.
    """
    key = hashlib.blake2b(payload, digest_size=16).digest()
    with _PREPARING:
        if key not in _PREPARED:
            import cloudpickle

            version, rest = cloudpickle.loads(payload)
            if version != __version__:
                raise UnavailableError(f"robodyn {__version__} is on this worker, {version} where map was called")
            job = cloudpickle.loads(rest)
            job.require_known()
            _PREPARED[key] = _Prepared(job)
            while len(_PREPARED) > _KEPT:
                _PREPARED.popitem(last=False)
        _PREPARED.move_to_end(key)
        return _PREPARED[key]


def pack(job: Job) -> bytes:
    """Pickle a job. The version is pickled separately, so that other versions can read it."""
    import cloudpickle

    packed: bytes = cloudpickle.dumps((job.version, cloudpickle.dumps(job)))
    return packed


def run_block(payload: bytes, block: Block, pieces: Mapping[str, Any], slots: Mapping[str, int]) -> Any:
    """Compute a block on a worker.

    Args:
        payload: the job, from `pack`.
        block: the block.
        pieces: arrays of its states by name, those that are sent with it.
        slots: for each machine, the number of blocks that its workers compute at the same time.

    Returns:
        The block's value if there is a reduction, else its results if there is no output, else None.

    Raises:
        ArgumentError: its states do not fit into the memory of this worker.
        UnavailableError: this worker has another version, or cannot access the storage.
    """
    prepared = _prepared(payload)
    job, states = prepared.job, block.last - block.first
    _require_room(job, states)
    arrays = job.arrays(block, pieces)
    dyn = prepared.dynamics(_threads(job.dyn.threads, slots), arrays)
    results = job.ask(dyn, arrays)
    named = dict(zip(job.shapes, results, strict=True))
    wanted_shapes = {name: (states, *shape) for name, shape in job.shapes.items()}
    if wrong := [name for name in wanted_shapes if named[name].shape != wanted_shapes[name]]:
        name = wrong[0]
        raise ArgumentError(f"draw: gives a result {name} of shape {named[name].shape}; wanted {wanted_shapes[name]}")
    if job.reduction is not None:
        return job.reduction.block({**arrays, **named})
    if job.output is None:
        return results
    job.output.write(block, named)
    return None


def _threads(asked: int | None, slots: Mapping[str, int]) -> int:
    """The number of threads for a block: its share of this machine's CPUs; 1 if the number of other blocks is
    unknown."""
    from dask.system import CPU_COUNT
    from distributed import get_worker
    from distributed.comm import get_address_host

    at_once = slots.get(get_address_host(get_worker().address), CPU_COUNT)
    part: int = max(1, CPU_COUNT // max(1, at_once))
    return min(part, asked or part)


def _require_room(job: Job, states: int) -> None:
    """Raise if a block needs more memory than this worker may use: Dask would kill the worker without a reason."""
    from distributed import get_worker

    worker = get_worker()
    limit = worker.memory_manager.memory_limit
    if not limit:
        return
    room = int(limit) // max(1, worker.state.nthreads)
    state = job.bytes_of_a_state()
    if state * states > room:
        raise ArgumentError(
            f"chunk: {states} states of {state} bytes each, with their results, do not fit into the {room} bytes that "
            f"this worker has for a block; wanted at most {max(1, room // (2 * state))}"
        )
