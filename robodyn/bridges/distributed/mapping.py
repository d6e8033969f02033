"""`map`: answers a query for many states, block by block, on the workers of a Dask cluster."""

from __future__ import annotations

import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from importlib import import_module
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.api.motion.rollout import progress_bar
from robodyn.bridges.distributed.block import Job, pack, run_block
from robodyn.bridges.distributed.inputs import Block, Draw, Inputs, MapCall, read
from robodyn.bridges.distributed.manifest import Manifest, key_of, manifest_of
from robodyn.bridges.distributed.reductions import Reduction, reduction, require_function
from robodyn.bridges.distributed.store import Results, open_results
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, flag
from robodyn.internals.errors import ArgumentError, RobodynError, UnavailableError
from robodyn.internals.messages import brief, install, quoted
from robodyn.internals.version import __version__

_GATHERED_BYTES = 1 << 30
"""Largest size of results returned as arrays. Larger ones must be stored or reduced."""
_AHEAD, _FEWEST_AHEAD = 4, 16
"""Blocks at the scheduler per computed block, and at least in total. Workers that join find waiting blocks, but few
blocks take memory."""
_LOOKS_S = 1.0
"""Seconds until the list of workers is read again."""


def map(
    dyn: Dynamics,
    query: str,
    *arrays_or_seeds: Any,
    out: Any = None,
    chunk: int = 1_000_000,
    client: Any = None,
    reduce: Any = None,
    resume: bool = True,
    draw: Draw | None = None,
    progress: bool = False,
    key: str | None = None,
    **others: Any,
) -> Any:
    """Answer a query for many states, in blocks, on the workers of a Dask cluster. Needs the extra `dask`.

    If a worker dies, another one computes its block again from the same states. So the result is complete, and has the
    same bits on CPUs of the same kind. Each worker compiles the robot once or finds the code in the cache; processes of
    a machine compile one after another. All blocks that a machine computes at the same time use at most as many threads
    as it has CPUs, if its workers do not have more threads themselves.

    Args:
        dyn: the `Dynamics` to use; it is sent by pickle.
        query: the name of a query, such as "forward_dynamics".
        arrays_or_seeds: the query's arrays in order, (n, ...) each, or without the axis of states if one value is for
            all states. NumPy arrays are cut and sent, zarr arrays are read by workers; Dask arrays work, too.
            Alternatively seeds instead of all arrays: a `range`, a list or array of integers, or one integer. Each seed
            stands for a block of `chunk` states, which its worker draws by `draw`.
        out: location for results: a path that all workers see, a URL, or a zarr store. It becomes a group with an array
            (n, ...) for each result, in chunks of a block and NaN until workers fill it. Two more arrays, "done" and
            "checksums", tell which blocks are complete, and check their bytes. With `reduce` it keeps the value of each
            block. A location with other contents is refused, as is one that another map writes to.
        chunk: number of states of a block.
        client: a `distributed.Client`; None for the current one or, without one, for as many threads of this process as
            there are CPUs.
        reduce: returns reduced values instead of results: a function of a block's results, whose values are returned in
            a list in the order of blocks; a `Reduction`, such as `Statistics()`; or a dictionary of these by name.
        resume: True to skip blocks that `out` already has undamaged. They must be of the same robot, query, states,
            chunk, choices, functions and version. False: results of an earlier map in `out` are removed.
        draw: function of (rng, n) that returns arrays (n, ...) by name, at least the required ones; None for
            `random_inputs`.
        progress: True to show a progress bar.
        key: your name for the computations of `draw` and `reduce` and for the contents of zarr and Dask arrays, used to
            decide whether blocks may be resumed; change it when these change. None: functions are identified by
            everything that they read, zarr arrays by their bytes. Objects of your classes, captured generators, files
            and Dask arrays cannot be identified; with them a map is resumed only with a key.
        others: other arguments of the query by name, such as link="tool0"; arrays as above. With seeds, arrays that are
            the same for all states replace drawn ones.

    Returns:
        With `reduce` its result for all blocks. Otherwise one array or a tuple, as the query returns: with `out` zarr
        arrays, to be read piece by piece; without `out` NumPy arrays of at most 1 GiB in total.

    Raises:
        ArgumentError: arguments that do not fit the query or one another; an object that cannot be pickled; `out` with
            other contents, or with results that cannot be shown to be of the same functions; a block that does not fit
            into a worker's memory. Also every error of the query in a block: robodyn's errors keep their type, and the
            message names the block.
        RobodynError: a block raised another error, which is the cause.
        UnavailableError: no Dask or zarr; the scheduler is gone; a block whose workers died repeatedly; a worker with
            another function of the same name; `out` that cannot be read or written, is not shared, or is in use by
            another map; a block that is missing or damaged at the end. Complete blocks stay in `out`, and another call
            continues from there.
    """
    dask, distributed = _dask()
    if not strict_types.is_a(dyn, Dynamics):
        raise ArgumentError(f"dyn: got {strict_types.type_name(dyn)}; wanted a robodyn.Dynamics")
    resume, progress, key = flag("resume", resume), flag("progress", progress), key_of(key)
    require_function("draw", draw)
    request = read(dyn, query, arrays_or_seeds, chunk, draw, others)
    reducing = reduction(reduce, tuple(request.shapes))
    sent = _sent(dyn)
    _require_picklable(draw=draw, reduce=reduce, others=request.choices)
    manifest = None if out is None else manifest_of(dyn, request, reducing, key)
    with _storage(out, manifest, resume, dyn, request, reducing) as results:
        keeper = _keeper(dyn, request, reducing, results)
        remaining = np.ones(request.inputs.blocks, bool) if results is None else ~results.done
        with progress_bar(progress, request.inputs.states, "map") as advance:
            for block in keeper.had(np.flatnonzero(~remaining), request.inputs):
                advance(block.last - block.first)
            if remaining.any():
                output = None if reducing or results is None else results.output
                job = _job(sent, request, reducing, output, manifest.functions if manifest else {})
                with _client(distributed, client) as used, used.as_current(), dask.config.set(_QUIET):
                    run = _Run(distributed, used, pack(job), request.inputs)
                    with closing(run.finished(np.flatnonzero(remaining))) as finished:
                        for block, value in finished:
                            keeper.take(block, value)
                            remaining[block.number] = False
                            advance(block.last - block.first)
                if remaining.any():
                    raise UnavailableError(f"{request.inputs.block(int(remaining.argmax()))}: it has not come back")
                if results is not None:
                    results.require_whole(request.inputs.block)
        return keeper.result()


def _storage(
    out: Any, manifest: Manifest | None, resume: bool, dyn: Dynamics, asked: MapCall, reducing: Reduction | None
) -> AbstractContextManager[Results | None]:
    """Context with the storage of `out`, locked for this map; None without `out`."""
    if manifest is None:
        return nullcontext()
    inputs = asked.inputs
    arrays = {name: (shape, dyn.dtype) for name, shape in asked.shapes.items()} if reducing is None else None
    rows = (inputs.blocks, inputs.states, inputs.chunk)
    return open_results(out, manifest.words, manifest.unknown, resume, rows, arrays)


_QUIET = {"distributed.admin.large-graph-warning-threshold": "1TB"}
"""Silences Dask's warning about large tasks. States are sent with their block, because scattered data would be lost
with their worker."""


def _dask() -> tuple[Any, Any]:
    try:
        return tuple(import_module(name) for name in ("dask", "distributed", "zarr"))[:2]  # type: ignore[return-value]
    except ImportError as error:
        raise UnavailableError(f"map: {error}: {install('dask')}") from error


@contextmanager
def _client(distributed: Any, given: Any) -> Iterator[Any]:
    """The user's client, the current one, or one with threads of this process."""
    if given is None:
        try:
            given = distributed.default_client()
        except ValueError:
            # Threads, because worker processes would run a user's script again if it lacks a main guard.
            options = {"processes": False, "n_workers": 1, "memory_limit": 0, "dashboard_address": "127.0.0.1:0"}
            with distributed.Client(**options, set_as_default=False) as local:
                yield local
            return
    if not isinstance(given, distributed.Client) or given.asynchronous:
        raise ArgumentError(f"client: got {brief(given)}; wanted a distributed.Client that is not asynchronous")
    if given.status != "running":
        raise UnavailableError(f"client: it is {given.status}, and not connected to a scheduler")
    yield given


def _job(dyn: Dynamics, asked: MapCall, reducing: Reduction | None, output: Any, known: dict[str, str]) -> Job:
    inputs, name = asked.inputs, asked.question.name
    drawn = (inputs.fixed, inputs.stored, inputs.draw, asked.choices, asked.shapes)
    return Job(__version__, dyn, name, *drawn, reducing, output, known)


class _Run:
    """Sends blocks to the scheduler, a limited number at a time, and yields their results."""

    def __init__(self, distributed: Any, client: Any, payload: bytes, inputs: Inputs) -> None:
        self._distributed, self._client, self._payload, self._inputs = distributed, client, payload, inputs
        self._name = f"robodyn-{uuid.uuid4().hex}"
        self._flying: dict[Any, Block] = {}
        self._slots: dict[str, int] = {}
        self._looked = -np.inf

    def finished(self, numbers: Array) -> Generator[tuple[Block, Any]]:
        """The blocks of these numbers with their results, in the order of completion.

        Raises:
            RobodynError: a block failed, or the scheduler is gone.
        """
        try:
            with _scheduler_there():
                arriving = self._distributed.as_completed()
                sent = 0
                while self._flying or sent < len(numbers):
                    while len(self._flying) < self._most() and sent < len(numbers):
                        arriving.add(self._send(self._inputs.block(int(numbers[sent]))))
                        sent += 1
                    future = next(arriving)
                    block = self._flying.pop(future)
                    try:
                        error = future.exception() if future.status == "error" else None
                        if error is not None:
                            raise _named(self._distributed, block, error) from error
                        value = future.result()
                    finally:
                        future.release()
                    yield block, value
        finally:
            if self._flying:
                with suppress(Exception):  # the scheduler may be gone
                    self._client.cancel(list(self._flying), force=True)

    def _send(self, block: Block) -> Any:
        pieces = self._inputs.pieces(block, self._client.compute)
        self._look()
        future = self._client.submit(
            run_block, self._payload, block, pieces, self._slots, key=(self._name, block.number), pure=False
        )
        self._flying[future] = block
        return future

    def _most(self) -> int:
        self._look()
        return max(_FEWEST_AHEAD, _AHEAD * sum(self._slots.values()))

    def _look(self) -> None:
        """Update the number of worker threads per machine, at most once per `_LOOKS_S`."""
        from distributed.comm import get_address_host

        if time.monotonic() - self._looked < _LOOKS_S:
            return
        slots: dict[str, int] = {}
        for address, threads in self._client.nthreads().items():
            host = get_address_host(address)
            slots[host] = slots.get(host, 0) + threads
        self._slots, self._looked = slots, time.monotonic()


@contextmanager
def _scheduler_there() -> Iterator[None]:
    """Context around communication with the scheduler.

    Raises:
        UnavailableError: the scheduler is gone.
    """
    from distributed import CancelledError

    try:
        yield
    except (OSError, TimeoutError, CancelledError) as error:
        raise UnavailableError(
            f"client: the scheduler is gone, or has cancelled blocks ({brief(error)}); blocks that are done stay in "
            "out=, and another call goes on from there"
        ) from error


def _named(distributed: Any, block: Block, error: BaseException) -> RobodynError:
    """The error of a block, with the block named in the message."""
    if isinstance(error, distributed.KilledWorker):
        times = error.allowed_failures + 1
        return UnavailableError(
            f"{block}: {times} workers died with it; too little memory for chunk=, or machines that are taken away "
            "often (distributed.scheduler.allowed-failures)"
        )
    if isinstance(error, RobodynError):
        return type(error)(f"{block}: {error}")
    return RobodynError(f"{block}: {type(error).__name__}: {quoted(str(error), 300)}")


# Collection of results.


class _Keeper:
    """Collects results of blocks. This base class is for results in storage, of which nothing is kept in memory."""

    def __init__(self, results: Results | None) -> None:
        self._results = results

    def had(self, numbers: Array, inputs: Inputs) -> Iterator[Block]:
        """The blocks of these numbers, which are complete in storage."""
        yield from (inputs.block(int(number)) for number in numbers)

    def take(self, block: Block, value: Any) -> None:
        """Take the result of a completed block."""

    def result(self) -> Any:
        """The return value of `map`."""
        assert self._results is not None
        return _one_or_all(self._results.arrays())


class _Gathered(_Keeper):
    """Collects results in arrays in memory."""

    def __init__(self, arrays: tuple[Array, ...]) -> None:
        super().__init__(None)
        self._arrays = arrays

    def take(self, block: Block, value: Any) -> None:
        for array, piece in zip(self._arrays, value, strict=True):
            array[block.first : block.last] = piece

    def result(self) -> Any:
        return _one_or_all(self._arrays)


class _Reduced(_Keeper):
    """Combines values of blocks in the order of blocks, whatever the order of their completion."""

    def __init__(self, reducing: Reduction, results: Results | None) -> None:
        super().__init__(results)
        self._reducing = reducing
        self._waiting: dict[int, Any] = {}
        self._value: Any = None
        self._next = 0

    def had(self, numbers: Array, inputs: Inputs) -> Iterator[Block]:
        if self._results is not None:
            for number, value in self._results.values(numbers):
                self._put(number, value)
                yield inputs.block(number)

    def take(self, block: Block, value: Any) -> None:
        if self._results is not None:
            with _naming(block):
                value = self._results.put_value(block.number, value)
        self._put(block.number, value)

    def _put(self, number: int, value: Any) -> None:
        self._waiting[number] = value
        while self._next in self._waiting:
            value = self._waiting.pop(self._next)
            self._value = value if self._next == 0 else self._reducing.combine(self._value, value)
            self._next += 1

    def result(self) -> Any:
        return self._reducing.finish(self._value)


@contextmanager
def _naming(block: Block) -> Iterator[None]:
    try:
        yield
    except RobodynError as error:
        raise type(error)(f"{block}: {error}") from error


def _keeper(dyn: Dynamics, asked: MapCall, reducing: Reduction | None, results: Results | None) -> _Keeper:
    """The collector for the arguments of a map.

    Raises:
        ArgumentError: results are too large to be returned as arrays.
    """
    inputs = asked.inputs
    if reducing is not None:
        return _Reduced(reducing, results)
    if results is not None:
        return _Keeper(results)
    shapes = {name: (inputs.states, *shape) for name, shape in asked.shapes.items()}
    size = dyn.dtype.itemsize * sum(int(np.prod(shape, dtype=object)) for shape in shapes.values())
    if size > _GATHERED_BYTES:
        allowed = f"a place for them, reduce=, or at most {_GATHERED_BYTES} bytes"
        raise ArgumentError(f"out: got None for results of {size} bytes; wanted {allowed}")
    return _Gathered(tuple(np.empty(shape, dyn.dtype) for shape in shapes.values()))


def _one_or_all(arrays: tuple[Any, ...]) -> Any:
    return arrays[0] if len(arrays) == 1 else arrays


# Pickling.


def _sent(dyn: Dynamics) -> Dynamics:
    """The `Dynamics` that is sent to workers: the same with compile="lazy".

    Raises:
        ArgumentError: it cannot be pickled, or differs afterwards; names the robot.
    """
    import cloudpickle

    robot = f"dyn: the robot {quoted(dyn.model.name)}"
    try:
        sent = dyn.variant(compile="lazy")
        back = cloudpickle.loads(cloudpickle.dumps(sent))
    except Exception as error:  # a user's class may raise anything
        raise ArgumentError(f"{robot} cannot be pickled, and so not sent to workers: {brief(error)}") from error
    if type(back) is not type(dyn) or back.model != dyn.model or type(back.engine) is not type(dyn.engine):
        raise ArgumentError(f"{robot} is another one after it was pickled: {brief(back)}; wanted {brief(dyn)}")
    return sent


def _require_picklable(**values: Any) -> None:
    """Raise if a value cannot be sent to workers.

    Raises:
        ArgumentError: a value cannot be pickled; names it.
    """
    import cloudpickle

    for name, value in values.items():
        try:
            cloudpickle.dumps(value)
        except Exception as error:  # a user's object may raise anything
            reason = f"cannot be pickled, and so not sent to workers: {brief(error)}"
            raise ArgumentError(f"{name}: {brief(value)} {reason}") from error
