"""What a worker does with a block. Functions here are sent to workers by name: both sides have the same version."""

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
"""The lock in the cache of compiled code that a process holds while it asks for the first time, and how long others
wait for it; those who come later find the code there."""
_FIRST_STATES = 4096
"""Of the first call: enough for the code for batches, and over in no time."""
_DOUBLE = 8
_KEPT = 4
"""Jobs whose compiled robots a worker keeps."""


@dataclass(frozen=True)
class Job:
    """What all blocks of a map have in common."""

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
    """Hashes of functions by the names of their arguments, as they are where map was called."""

    @property
    def question(self) -> QuerySpec:
        """Its row."""
        return asked_of(self.dyn.model)[self.query]

    def require_known(self) -> None:
        """Raise where this worker has another function under the name by which one was sent.

        Raises:
            UnavailableError: names the argument.
        """
        for name, wanted in self.known.items():
            try:
                found = identity(name, self.draw if name == "draw" else self.reduction)
                reason = "another function"
            except UncertainError as error:
                found, reason = None, str(error)
            if found != wanted:
                raise UnavailableError(
                    f"{name}: on this worker it is not what it is where map was called ({reason}); wanted workers that "
                    "were started after its module changed, with the same Python and NumPy, or key="
                )

    def arrays(self, block: Block, pieces: Mapping[str, Any]) -> dict[str, Array]:
        """Inputs of a block by name, those that are the same for all states without an axis for them.

        Raises:
            ArgumentError: the function that draws gives something else than arrays by name.
        """
        found = dict(pieces)
        if block.seed is not None:
            rng, n = np.random.default_rng(block.seed), block.last - block.first
            drawn = random_inputs(self.dyn.model, self.query, rng, n) if self.draw is None else self.draw(rng, n)
            if not isinstance(drawn, Mapping) or not set(drawn) <= set(self.question.arrays):
                allowed = ", ".join(self.question.arrays)
                raise ArgumentError(f"draw: gave {brief(drawn)}; wanted a dictionary of arrays with names of {allowed}")
            found.update(drawn)
        found.update({name: array[block.first : block.last] for name, array in self.stored.items()})
        return {**found, **self.fixed}

    def ask(self, dyn: Dynamics, arrays: Mapping[str, Array]) -> tuple[Array, ...]:
        """Results in order."""
        question = self.question
        if missing := [name for name in question.inputs if name not in arrays]:
            raise ArgumentError(f"draw: gave no {missing[0]}, which {self.query} needs")
        by_place, by_name = question.arguments(arrays)
        found = getattr(dyn, self.query)(*by_place, **by_name, **self.choices)
        return found if isinstance(found, tuple) else (found,)

    def bytes_of_a_state(self) -> int:
        """In what is drawn or cut for a state, and in its results."""
        inputs = {*self.question.inputs, *self.stored} - set(self.fixed)
        numbers = sum(math.prod(self.dyn.argument_shapes[name]) for name in inputs)
        return _DOUBLE * numbers + self.dyn.dtype.itemsize * sum(map(math.prod, self.shapes.values()))


class _Prepared:
    """A job on this worker, with its compiled robot."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._lock = forks.lock()
        self._dyn: Dynamics | None = None

    def dynamics(self, threads: int, arrays: Mapping[str, Array]) -> Dynamics:
        """With so many threads, compiled: once in a process, and by one process of a machine at a time."""
        with self._lock:
            if self._dyn is None or self._dyn.threads != threads:
                # Code that is made in the background would leave the first blocks to another engine, with other bits.
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
    """The job that was sent, one object for all its blocks.

    Raises:
        UnavailableError: this worker has another version, or another function.
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
    """A job as it is sent. The version can be read where the rest cannot."""
    import cloudpickle

    packed: bytes = cloudpickle.dumps((job.version, cloudpickle.dumps(job)))
    return packed


def run_block(payload: bytes, block: Block, pieces: Mapping[str, Any], slots: Mapping[str, int]) -> Any:
    """Compute a block on a worker.

    Args:
        payload: the job, of `pack`.
        block: which one.
        pieces: arrays of its states by name, as far as they are sent.
        slots: by machine, how many blocks its workers compute at the same time.

    Returns:
        Its value where there is a reduction, its results where there is no output, or None.

    Raises:
        ArgumentError: its states do not fit into the memory of this worker.
        UnavailableError: this worker has another version, or does not see the storage.
    """
    prepared = _prepared(payload)
    job, states = prepared.job, block.last - block.first
    _require_room(job, states)
    arrays = job.arrays(block, pieces)
    dyn = prepared.dynamics(_threads(job.dyn.threads, slots), arrays)
    results = job.ask(dyn, arrays)
    named = dict(zip(job.shapes, results, strict=True))
    wanted = {name: (states, *shape) for name, shape in job.shapes.items()}
    if wrong := [name for name in wanted if named[name].shape != wanted[name]]:
        name = wrong[0]
        raise ArgumentError(f"draw: gives a result {name} of shape {named[name].shape}; wanted {wanted[name]}")
    if job.reduction is not None:
        return job.reduction.block({**arrays, **named})
    if job.output is None:
        return results
    job.output.write(block, named)
    return None


def _threads(asked: int | None, slots: Mapping[str, int]) -> int:
    """A block's part of the processors of this machine; one where it is not known how many others there are."""
    from dask.system import CPU_COUNT
    from distributed import get_worker
    from distributed.comm import get_address_host

    at_once = slots.get(get_address_host(get_worker().address), CPU_COUNT)
    part: int = max(1, CPU_COUNT // max(1, at_once))
    return min(part, asked or part)


def _require_room(job: Job, states: int) -> None:
    """Raise where a block would take more memory than this worker may have: its end would come without a word."""
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
