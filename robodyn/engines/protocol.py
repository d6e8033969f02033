"""The interface of an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from robodyn.algorithms.kinematics import Frame
from robodyn.algorithms.relative_motion import OnArrays, scalars_of
from robodyn.algorithms.tasks import ArrayText, ScalarTask, Step, StepGradient, StraightLine, Task
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.core.model import Model
from robodyn.core.sweeps import INPUTS, Algorithm
from robodyn.engines.query_table import BASE, LinkSelection, QuerySpec, QueryVariant
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass

if TYPE_CHECKING:
    from robodyn.engines.cpu.generated import GeneratedCode
    from robodyn.engines.cpu.native.answers import Answers
    from robodyn.engines.cpu.native.entry import Entry
    from robodyn.engines.gpu.generated import GeneratedKernels
    from robodyn.internals.array_library import Library

DTYPES = ("float64", "float32")


@dataclass(frozen=True)
class Explanation:
    """The choice of `engine` and `method` for a batch of `query`, and the `reason`. `estimates`: seconds by method,
    where several were compared."""

    query: str
    batch: int
    engine: str
    method: str
    reason: str
    estimates: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.query}, batch {self.batch}: engine {self.engine!r}, method {self.method!r}: {self.reason}"]
        width = max(map(len, self.estimates), default=0)
        lines += [f"  {name:{width}}  {1e3 * seconds:.4g} ms" for name, seconds in self.estimates.items()]
        return "\n".join(lines)


BY_PARTS = "algorithm by algorithm on arrays of states; it is too large for one program"
"""Reason in explanations for answers by `Engine.compose`."""


@dataclass(frozen=True)
class Calls:
    """The form of calls to a query. All calls of one form run the same kernel.

    `arrays`: names of the arrays in the call, in the order of `QuerySpec.arrays`; `link`: index of the link. The other
    fields are options of the call.
    """

    arrays: tuple[str, ...]
    method: str = "auto"
    link: int | None = None
    frame: Frame = "world_aligned"
    classical: bool = False
    places: LinkSelection | None = None
    axes: str = "to"

    def task(self, question: QuerySpec, model: Model, *, damping: bool = False) -> Task | ScalarTask:
        """The task that answers these calls."""
        names = tuple(name for name in INPUTS if name in self.arrays)
        chosen = (self.method, self.frame, self.classical, damping, self.places, self.axes)
        return question.made(QueryVariant(model, names, *chosen))

    @property
    def base(self) -> tuple[str, ...]:
        """The motions of the base (V0, dV0) that are inputs of the calls."""
        return tuple(name for name in BASE if name in self.arrays)


class Bound(NamedTuple):
    """A program on arrays that stay, or that are exchanged for others of the same strides.

    `run`: runs it, on all rows or the first of them; `places`: of the arrays' addresses in `table`, by name.
    """

    run: Callable[..., None]
    places: Mapping[str, int]
    table: Any


@dataclass(frozen=True)
class Until:
    """A program that is repeated until its result "error" (B,) is small.

    `first`: runs on all states. `again`: runs where the error is above `enough`, at most `times` times. It has the same
    results; those that are also its inputs are read.
    """

    first: ScalarTask
    again: ScalarTask
    times: int
    enough: float


class Engine(ABC):
    """Runs algorithms on one model at one precision, and so answers queries.

    A new engine needs `run` only. The other methods have default implementations on top of it.

    `normalizes`: True if the engine normalizes quaternions itself; otherwise they must be unit quaternions. `native`:
    True if it compiles machine code for the CPU, so that `kernel` returns the kernel of a task. `threaded`: True if it
    uses several threads.
    """

    name: str
    model: Model
    dtype: np.dtype[Any]
    normalizes: bool = False
    native: bool = False
    threaded: bool = False

    @abstractmethod
    def run(
        self,
        algorithm: Task,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        *,
        link: int | None = None,
    ) -> None:
        """Run an algorithm and fill `outputs` in place.

        Args:
            algorithm: the task to run; its `outputs` define names and shapes of results.
            inputs: (B, ...) arrays of the engine's dtype: `q` (B, nq), `qd`, `qdd`, `tau`, `vector` (B, nv), `f_ext`
                (B, n_bodies, 6), `inertia` (B, n_bodies, 10), `V0`, `dV0` (B, 6). Inputs that the algorithm does not
                list may be missing; a missing V0 or dV0 is zero. Values may be NaN or infinite: they affect their own
                rows only.
            outputs: (B, ...) arrays of the engine's dtype, possibly strided; every entry is overwritten.
            link: index of the link, for queries about one link.
        """

    def answer(
        self,
        question: QuerySpec,
        method: str,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        link: int | None = None,
        **choices: Any,
    ) -> None:
        """Answer a query: fill `outputs` from `inputs`. Results are in the order of the query's `results`.

        Args:
            question: a row of the query table.
            method: one of its methods on this engine, or "auto".
            inputs: (B, ...) arrays as for `run`; their names select the variant of the query.
            outputs: (B, ...) arrays as for `run`.
            link: index of the link, for queries about one link.
            choices: `frame`, `classical`, `damping`, `places` and `axes` of `robodyn.engines.query_table.QueryVariant`.
        """
        task = question.made(QueryVariant(self.model, _names(inputs), method, **choices))
        results = dict(zip(task.outputs, outputs.values(), strict=True))
        if isinstance(task, ScalarTask):
            self.compose(task, inputs, results)
        else:
            self.run(task, inputs, results, link=link)

    def compose(self, task: ScalarTask, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Fill `outputs` (B, ...) by one compiled program if the engine has one, else algorithm by algorithm.

        Raises:
            UnavailableError: the engine compiles, and the task is too large for one program and nothing else.
        """
        if self.run_program(task, inputs, outputs):
            return
        if task.one_program and self.model.n_bodies and type(self).run_program is not Engine.run_program:
            raise UnavailableError(
                f"engine {self.name!r}: {task.name.rpartition('_')[0]} of {self.model.name!r} is too large for one "
                "program; ask for fewer at a time, or use Dynamics(model, engine='reference'), which is far slower"
            )
        self._run_parts(task, inputs, outputs)

    def run_until(self, until: Until, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> bool:
        """Fill `outputs` (B, ...), all results of the tasks, by a program that is repeated, without looking at results
        between. False if the engine has no such kernels; `outputs` are untouched then.

        Raises:
            UnavailableError: a task is too large for one kernel.
        """
        return False

    def bound(self, task: ScalarTask, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Bound | None:
        """A call of a task's program on these very arrays (B, ...), whose rows are contiguous; None if the engine has
        no program, or none yet."""
        return None

    def around(
        self, task: ScalarTask, counts: Mapping[str, int], shape: tuple[int, ...], check: bool | None
    ) -> Entry | None:
        """A built-in function, the `strict` of an entry, of q, obstacles, and the clearance if there is one. None if
        the engine has no such functions.

        Args:
            task: from `robodyn.algorithms.distances.tasks.loops_task`.
            counts: numbers of obstacles by kind.
            shape: shape of the result for one state.
            check: True if values are checked, as in `Dynamics(check=)`.

        Raises:
            UnavailableError: the loops do not compile.
        """
        return None

    def run_program(self, task: ScalarTask, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> bool:
        """Fill `outputs` (B, ...) by one program. False if the engine has no program; `outputs` are untouched then."""
        return False

    def _run_parts(self, task: ScalarTask, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Fill `outputs` on arrays, algorithm by algorithm."""
        like = next(iter(outputs.values()))

        def new(shape: tuple[int, ...]) -> Array:
            return np.empty_like(like, shape=(like.shape[0], *shape))

        def shapes(algorithm: Algorithm) -> dict[str, tuple[int, ...]]:
            return {name: output_shape(self.model, output) for name, output in algorithm.outputs.items()}

        if task.on_arrays is not None:
            self._run_on_arrays(task.on_arrays, inputs, outputs, shapes)
            return
        known = {name: scalars_of(array) for name, array in inputs.items()}
        with np.errstate(all="ignore"):
            results = task.text(self.model, known, OnArrays(self.run, inputs, new, shapes))
        for name, scalars in results.items():
            columns = new((len(scalars),))
            for k, scalar in enumerate(scalars):
                columns[:, k] = scalar
            outputs[name][...] = columns.reshape(outputs[name].shape)

    def _run_on_arrays(
        self,
        text: ArrayText,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        shapes: Callable[[Algorithm], dict[str, tuple[int, ...]]],
    ) -> None:
        """Fill `outputs` by the task's implementation on whole arrays (`ScalarTask.on_arrays`)."""

        def run(algorithm: Algorithm, given: Mapping[str, Array]) -> dict[str, Array]:
            like = given["q"]
            results = {
                name: np.empty_like(like, shape=(len(like), *shape)) for name, shape in shapes(algorithm).items()
            }
            names = (*algorithm.inputs, "V0", "dV0")
            self.run(algorithm, {name: given[name] for name in names if name in given}, results)
            return results

        device = None if isinstance(inputs["q"], np.ndarray) else self.on_device()

        def placed(array: Array) -> Array:
            return array if device is None else device[1].constant(array)

        with np.errstate(all="ignore"):
            for name, array in text(self.model, inputs, run, placed).items():
                outputs[name][...] = array.reshape(outputs[name].shape)

    def explain(self, question: QuerySpec, batch: int) -> Explanation:
        """The engine and method for a plain call of a query with `batch` states, and the reason."""
        return Explanation(question.name, batch, self.name, self.method_of(question), "computed when it is asked")

    def method_of(self, question: QuerySpec) -> str:
        """The method (`method=`) of a plain call, or the name of the algorithm if the query has no choice of
        methods."""
        task = question.plain_task(self.model)
        for name in question.possible(self.model, self.name):
            if question.task(QueryVariant(self.model, question.plain, name)) is task:
                return name
        return task.name

    def entry(self, name: str, doc: str, fallback: Callable[..., Any], epoch: Any = None) -> Entry | None:
        """A built-in function of that name. It answers calls that `quick` prepared, and passes all others to
        `fallback`. None if the engine has no built-in functions. `epoch`: see
        `robodyn.engines.cpu.native.entry.Entry`."""
        return None

    def quick(
        self,
        question: QuerySpec,
        calls: Calls,
        check: bool | None,
        joint_forces: tuple[str, ...],
        double: Engine | None = None,
    ) -> Answers | None:
        """The kernels with which a built-in function answers calls. None while they are not compiled yet.

        Args:
            question: a row of the query table.
            calls: the form of the calls.
            check: True if values are checked, as in `Dynamics(check=)`.
            joint_forces: which of "damping" and "friction" count.
            double: the engine that computes in double precision, if single precision may be too coarse.

        Raises:
            UnavailableError: a built-in function cannot answer such calls.
        """
        return None

    def has_program(self, task: StraightLine, base: tuple[str, ...] = ()) -> bool:
        """True if the engine can run a task that exists as one program only. `base`: the motions of the base that are
        inputs."""
        return True

    def prepare(self, algorithm: Task) -> None:  # noqa: B027  (most engines have nothing to do)
        """Compile now what `run` would compile at its first call. Does nothing on engines that do not compile."""

    def generated(self, algorithm: Task) -> GeneratedCode | GeneratedKernels:
        """The code that runs an algorithm.

        Raises:
            UnavailableError: the engine does not compile.
        """
        raise UnavailableError(f"engine: {self.name!r} compiles nothing; programs are the 'cpu' engine's")

    def on_device(self) -> tuple[Engine, Library] | None:
        """The same engine for arrays on a GPU, and their array library. None if it takes NumPy arrays only."""
        return None


@runtime_checkable
class TimeLoops(Protocol):
    """An engine that can run many steps of an integrator in one call."""

    def march(self, step: Step, states: tuple[Array, Array], given: Mapping[str, Array], dt: float) -> bool:
        """Run steps of an integrator. False if the engine has no program for them; `states` are untouched then.

        Args:
            step: the step.
            states: q (steps + 1, B, nq) and qd (steps + 1, B, nv), contiguous. Row 0 is the initial state; the other
                rows are filled.
            given: the other inputs of the dynamics by name, (steps, B, ...), or (1, B, ...) if they are constant; the
                numbers of one state are contiguous.
            dt: duration of a step, s.
        """

    def step_gradient(self, task: StepGradient, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> bool:
        """Fill "A" (B, 2 nv, 2 nv) and "B" (B, 2 nv, nv) of a step from its inputs (B, ...), including "dt" (B, 1).
        False if the engine has no program for it; `outputs` are untouched then."""


def _names(inputs: Mapping[str, Array]) -> tuple[str, ...]:
    """Names of the inputs that algorithms list, i.e. all but V0 and dV0."""
    return tuple(name for name in INPUTS if name in inputs)
