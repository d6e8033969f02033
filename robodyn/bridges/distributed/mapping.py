"""`map`: a query of many states, block by block, on the workers of a Dask cluster."""

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
from robodyn.internals.messages import brief, quoted
from robodyn.internals.version import __version__

_GATHERED_BYTES = 1 << 30
"""Of results that are returned as arrays; more belongs into storage, or is reduced where it is."""
_AHEAD, _FEWEST_AHEAD = 4, 16
"""Blocks that wait for each one that is computed: a worker that joins finds some, and memory holds few."""
_LOOKS_S = 1.0
"""How long what is known of the cluster is taken for true."""


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
    """Ask a query of many states, in blocks, on the workers of a Dask cluster. Needs the extra `dask`.

    A block whose worker dies is computed again by another one, from the same states: the result is complete, and has
    the same bits on processors of the same kind. Each worker compiles the robot once or finds the code in the cache,
    one process of a machine after the other. The threads of all blocks that a machine computes at the same time are no
    more than its processors, as long as its workers' own threads are not.

    Args:
        dyn: what to ask; it travels by pickle.
        query: the name of a query, such as "forward_dynamics".
        arrays_or_seeds: the query's arrays in order, (n, ...) each, or one without an axis of states for all of them:
            NumPy's, which are cut and sent; zarr's, from which workers read; Dask's. Or, in the place of all arrays,
            seeds: a `range`, a list or array of integers, or one. There is a block of `chunk` states for each, drawn on
            its worker by `draw`.
        out: where results are written: a path that all workers see, a URL, or a store of zarr. A group with an array of
            NaN for each result (n, ...) in chunks of a block, which workers fill, and two, "done" and "checksums", that
            say which blocks are there, and of which bytes. With `reduce` it keeps the value of each block. What it
            holds otherwise is refused, and while another map writes there, so is this one.
        chunk: states of a block.
        client: a `distributed.Client`; None for the one that is current, or else for threads of this process, as many
            as processors.
        reduce: instead of results: a function of a block's results, whose values are returned in a list, in order of
            blocks; a `Reduction`, such as `Statistics()`; or a dictionary of these by name.
        resume: whether blocks that `out` has already, undamaged, are left out. They must be of the same robot, query,
            states, chunk, choices, functions and version. If not, what an earlier map has written to `out` is removed.
        draw: a function (rng, n) that gives arrays by name, (n, ...) each, at least those that the query needs;
            `random_inputs` where it is None.
        progress: whether to show a progress bar.
        key: a name of your own for what `draw` and `reduce` compute and for what arrays of zarr and Dask hold, which
            counts instead of these where blocks are resumed; change it when they change. None: functions are known by
            all that they read, and arrays of zarr by their bytes. Where that is not certain, as of objects of your
            classes, captured generators, files, or arrays of Dask, nothing is resumed without a key.
        others: other arguments of the query by name, such as link="tool0"; arrays as above. Beside seeds, arrays
            that are the same for all states take the place of drawn ones.

    Returns:
        With `reduce` what it makes of all blocks. Else as the query one array, or a tuple: with `out` arrays of zarr,
        to be read piece by piece; without, NumPy arrays of at most 1 GiB together.

    Raises:
        ArgumentError: arguments that do not fit the query or one another, what cannot be pickled, `out` that holds
            something else, or results of which it is not certain that they are of the same functions, a block that does
            not fit into a worker's memory; names it. Also, as every error of the query, what a block raised: of the
            same kind, if it is one of robodyn's, and the message names the block.
        RobodynError: a block raised something else, which is its cause.
        UnavailableError: no Dask or zarr, the scheduler is gone, a block whose workers died again and again, a worker
            that has another function of the same name, `out` that cannot be read or written to, that is not shared,
            that another map writes to, or where a block is missing or damaged at the end. Blocks that are done stay in
            `out`, and another call goes on from there.
    """
    dask, distributed = _dask()
    if not strict_types.is_a(dyn, Dynamics):
        raise ArgumentError(f"dyn: got {strict_types.type_name(dyn)}; wanted a robodyn.Dynamics")
    resume, progress, key = flag("resume", resume), flag("progress", progress), key_of(key)
    require_function("draw", draw)
    asked = read(dyn, query, arrays_or_seeds, chunk, draw, others)
    reducing = reduction(reduce, tuple(asked.shapes))
    sent = _sent(dyn)
    _require_picklable(draw=draw, reduce=reduce, others=asked.choices)
    manifest = None if out is None else manifest_of(dyn, asked, reducing, key)
    with _storage(out, manifest, resume, dyn, asked, reducing) as results:
        keeper = _keeper(dyn, asked, reducing, results)
        left = np.ones(asked.inputs.blocks, bool) if results is None else ~results.done
        with progress_bar(progress, asked.inputs.states, "map") as advance:
            for block in keeper.had(np.flatnonzero(~left), asked.inputs):
                advance(block.last - block.first)
            if left.any():
                output = None if reducing or results is None else results.output
                job = _job(sent, asked, reducing, output, manifest.functions if manifest else {})
                with _client(distributed, client) as used, used.as_current(), dask.config.set(_QUIET):
                    run = _Run(distributed, used, pack(job), asked.inputs)
                    with closing(run.finished(np.flatnonzero(left))) as finished:
                        for block, value in finished:
                            keeper.take(block, value)
                            left[block.number] = False
                            advance(block.last - block.first)
                if left.any():
                    raise UnavailableError(f"{asked.inputs.block(int(left.argmax()))}: it has not come back")
                if results is not None:
                    results.require_whole(asked.inputs.block)
        return keeper.result()


def _storage(
    out: Any, manifest: Manifest | None, resume: bool, dyn: Dynamics, asked: MapCall, reducing: Reduction | None
) -> AbstractContextManager[Results | None]:
    """What `out` is, open as long as this map writes there."""
    if manifest is None:
        return nullcontext()
    inputs = asked.inputs
    arrays = {name: (shape, dyn.dtype) for name, shape in asked.shapes.items()} if reducing is None else None
    rows = (inputs.blocks, inputs.states, inputs.chunk)
    return open_results(out, manifest.words, manifest.unknown, resume, rows, arrays)


_QUIET = {"distributed.admin.large-graph-warning-threshold": "1TB"}
"""States are sent with their block on purpose: what is scattered would be lost with its worker."""


def _dask() -> tuple[Any, Any]:
    try:
        return tuple(import_module(name) for name in ("dask", "distributed", "zarr"))[:2]  # type: ignore[return-value]
    except ImportError as error:
        raise UnavailableError(f"map: {error}: pip install 'robodyn[dask]'") from error


@contextmanager
def _client(distributed: Any, given: Any) -> Iterator[Any]:
    """The client that was given, the current one, or one of threads of this process."""
    if given is None:
        try:
            given = distributed.default_client()
        except ValueError:
            # No processes: they would run a user's script again that does not guard its main part.
            here = {"processes": False, "n_workers": 1, "memory_limit": 0, "dashboard_address": "127.0.0.1:0"}
            with distributed.Client(**here, set_as_default=False) as own:
                yield own
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
    """Blocks on their way: some are with the scheduler, the others wait here."""

    def __init__(self, distributed: Any, client: Any, payload: bytes, inputs: Inputs) -> None:
        self._distributed, self._client, self._payload, self._inputs = distributed, client, payload, inputs
        self._name = f"robodyn-{uuid.uuid4().hex}"
        self._flying: dict[Any, Block] = {}
        self._slots: dict[str, int] = {}
        self._looked = -np.inf

    def finished(self, numbers: Array) -> Generator[tuple[Block, Any]]:
        """Blocks of these numbers and what became of them, as they come.

        Raises:
            RobodynError: one failed, or the scheduler is gone.
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
                with suppress(Exception):  # of a scheduler that is gone
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
        """Ask which workers there are, now and then."""
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
    """Around what talks to the scheduler.

    Raises:
        UnavailableError: it is gone.
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
    """The error of a block, with its name."""
    if isinstance(error, distributed.KilledWorker):
        times = error.allowed_failures + 1
        return UnavailableError(
            f"{block}: {times} workers died with it; too little memory for chunk=, or machines that are taken away "
            "often (distributed.scheduler.allowed-failures)"
        )
    if isinstance(error, RobodynError):
        return type(error)(f"{block}: {error}")
    return RobodynError(f"{block}: {type(error).__name__}: {quoted(str(error), 300)}")


# What is kept of blocks.


class _Keeper:
    """Of results in storage nothing is kept here."""

    def __init__(self, results: Results | None) -> None:
        self._results = results

    def had(self, numbers: Array, inputs: Inputs) -> Iterator[Block]:
        """Blocks of these numbers, which are in storage."""
        yield from (inputs.block(int(number)) for number in numbers)

    def take(self, block: Block, value: Any) -> None:
        """Of a block that has come."""

    def result(self) -> Any:
        """What `map` returns."""
        assert self._results is not None
        return _one_or_all(self._results.arrays())


class _Gathered(_Keeper):
    """Results in arrays."""

    def __init__(self, arrays: tuple[Array, ...]) -> None:
        super().__init__(None)
        self._arrays = arrays

    def take(self, block: Block, value: Any) -> None:
        for array, piece in zip(self._arrays, value, strict=True):
            array[block.first : block.last] = piece

    def result(self) -> Any:
        return _one_or_all(self._arrays)


class _Reduced(_Keeper):
    """Values of blocks, put together in their order whatever the order in which they come, each of them once."""

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
    """What is to be kept.

    Raises:
        ArgumentError: results that are too large to be gathered.
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


# What is sent, and what it is known by.


def _sent(dyn: Dynamics) -> Dynamics:
    """What travels: the same, which compiles nothing before it is asked.

    Raises:
        ArgumentError: it cannot be pickled, or is another one afterwards; names the robot.
    """
    import cloudpickle

    robot = f"dyn: the robot {quoted(dyn.model.name)}"
    try:
        sent = dyn.variant(compile="lazy")
        back = cloudpickle.loads(cloudpickle.dumps(sent))
    except Exception as error:  # of whatever a user's class does
        raise ArgumentError(f"{robot} cannot be pickled, and so not sent to workers: {brief(error)}") from error
    if type(back) is not type(dyn) or back.model != dyn.model or type(back.engine) is not type(dyn.engine):
        raise ArgumentError(f"{robot} is another one after it was pickled: {brief(back)}; wanted {brief(dyn)}")
    return sent


def _require_picklable(**values: Any) -> None:
    """Raise for what cannot be sent to workers.

    Raises:
        ArgumentError: it cannot be pickled; names it.
    """
    import cloudpickle

    for name, value in values.items():
        try:
            cloudpickle.dumps(value)
        except Exception as error:  # of whatever a user's object does
            reason = f"cannot be pickled, and so not sent to workers: {brief(error)}"
            raise ArgumentError(f"{name}: {brief(value)} {reason}") from error
