"""What an engine is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

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
    """`engine` and `method` answer `query` for a batch, for a `reason`; `estimates`: seconds by method, where several
    were compared."""

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
"""Why `Engine.compose` answers."""


@dataclass(frozen=True)
class Calls:
    """What calls of a query have in common that are answered in one way.

    `arrays`: names of those that are given, in the order of `QuerySpec.arrays`; `link`: its index; the others are what
    a call chooses."""

    arrays: tuple[str, ...]
    method: str = "auto"
    link: int | None = None
    frame: Frame = "world_aligned"
    classical: bool = False
    places: LinkSelection | None = None

    def task(self, question: QuerySpec, model: Model, *, damping: bool = False) -> Task | ScalarTask:
        """What answers them."""
        given = tuple(name for name in INPUTS if name in self.arrays)
        return question.made(QueryVariant(model, given, self.method, self.frame, self.classical, damping, self.places))

    @property
    def base(self) -> tuple[str, ...]:
        """Which motions of the base are given."""
        return tuple(name for name in BASE if name in self.arrays)


class Engine(ABC):
    """Runs algorithms on one model at one precision, and so answers questions.

    An engine that runs algorithms has `run` and is done; others answer in their own way.

    `normalizes`: whether quaternions of any length will do; otherwise they must be unit. `native`: whether it compiles
    machine code for the processor, so that `kernel` gives the kernel of a task. `threaded`: whether it works in several
    threads.
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
        """Fill `outputs` in place.

        Args:
            algorithm: what to run; its `outputs` name and shape what is filled.
            inputs: (B, ...) arrays of the engine's dtype: `q` (B, nq), `qd`, `qdd`, `tau`, `vector` (B, nv), `f_ext`
                (B, n_bodies, 6), `inertia` (B, n_bodies, 10), `V0`, `dV0` (B, 6). Those the algorithm does not list may
                be missing; a missing V0 or dV0 is zero. Values may be NaN or infinite: they stay in their rows.
            outputs: (B, ...) arrays of the engine's dtype, possibly strided; every entry is overwritten.
            link: index of the link that the query is about, where it is about one.
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
        """Answer a question: fill `outputs`, its results by name in their order, from `inputs`; both as `run` has them.

        Args:
            question: a row of the table.
            method: one of its methods on this engine, or "auto".
            inputs: (B, ...) arrays; which are there says what the question is asked about.
            outputs: (B, ...) arrays.
            link: index of the link, where the question is about one.
            choices: `frame`, `classical`, `damping` and `places` of `robodyn.engines.query_table.QueryVariant`.
        """
        task = question.made(QueryVariant(self.model, _names(inputs), method, **choices))
        results = dict(zip(task.outputs, outputs.values(), strict=True))
        if isinstance(task, ScalarTask):
            self.compose(task, inputs, results)
        else:
            self.run(task, inputs, results, link=link)

    def compose(self, task: ScalarTask, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Fill `outputs` (B, ...): by one program where there is one, else by parts."""
        if not self.run_program(task, inputs, outputs):
            self._run_parts(task, inputs, outputs)

    def run_program(self, task: ScalarTask, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> bool:
        """Fill `outputs` (B, ...) by one program; False where there is none, and nothing is done."""
        return False

    def _run_parts(self, task: ScalarTask, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """The same on arrays, algorithm by algorithm."""
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
            found = task.text(self.model, known, OnArrays(self.run, inputs, new, shapes))
        for name, scalars in found.items():
            every = new((len(scalars),))
            for k, scalar in enumerate(scalars):
                every[:, k] = scalar
            outputs[name][...] = every.reshape(outputs[name].shape)

    def _run_on_arrays(
        self,
        text: ArrayText,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        shapes: Callable[[Algorithm], dict[str, tuple[int, ...]]],
    ) -> None:
        """The same by whole arrays."""

        def run(algorithm: Algorithm, given: Mapping[str, Array]) -> dict[str, Array]:
            like = given["q"]
            found = {name: np.empty_like(like, shape=(len(like), *shape)) for name, shape in shapes(algorithm).items()}
            names = (*algorithm.inputs, "V0", "dV0")
            self.run(algorithm, {name: given[name] for name in names if name in given}, found)
            return found

        there = None if isinstance(inputs["q"], np.ndarray) else self.on_device()

        def placed(array: Array) -> Array:
            return array if there is None else there[1].constant(array)

        with np.errstate(all="ignore"):
            for name, array in text(self.model, inputs, run, placed).items():
                outputs[name][...] = array.reshape(outputs[name].shape)

    def explain(self, question: QuerySpec, batch: int) -> Explanation:
        """What answers a plain call of a question with n states, and why."""
        return Explanation(question.name, batch, self.name, self.method_of(question), "computed when it is asked")

    def method_of(self, question: QuerySpec) -> str:
        """What `method=` calls the way in which a plain call is answered, or the algorithm where there is no choice."""
        chosen = question.plain_task(self.model)
        for name in question.possible(self.model, self.name):
            if question.task(QueryVariant(self.model, question.plain, name)) is chosen:
                return name
        return chosen.name

    def entry(self, name: str, doc: str, fallback: Callable[..., Any], epoch: Any = None) -> Entry | None:
        """A built-in function of that name that answers calls as soon as it is told how, and passes all others on to
        `fallback`; None where there is none. `epoch`: see `robodyn.engines.cpu.native.entry.Entry`."""
        return None

    def quick(
        self,
        question: QuerySpec,
        calls: Calls,
        check: bool | None,
        joint_forces: tuple[str, ...],
        double: Engine | None = None,
    ) -> Answers | None:
        """What an entry is told to answer calls of a question, or None where code for it is not there yet.

        Args:
            question: a row of the table.
            calls: what they give.
            check: whether values are looked at, as in `Dynamics(check=)`.
            joint_forces: of damping and friction those that count.
            double: the engine in double precision that computes where single precision alone is doubted.

        Raises:
            UnavailableError: there never will be code for them.
        """
        return None

    def has_program(self, task: StraightLine, base: tuple[str, ...] = ()) -> bool:
        """Whether it runs a task that is one program or nothing, the motions `base` of the base being given."""
        return True

    def prepare(self, algorithm: Task) -> None:  # noqa: B027  (most engines have nothing to do)
        """Compile now what `run` would compile at its first call; nothing for engines that do not compile."""

    def generated(self, algorithm: Task) -> GeneratedCode | GeneratedKernels:
        """The code that runs an algorithm.

        Raises:
            UnavailableError: the engine does not compile.
        """
        raise UnavailableError(f"engine: {self.name!r} compiles nothing; programs are the 'cpu' engine's")

    def on_device(self) -> tuple[Engine, Library] | None:
        """The engine for the same on arrays on a GPU, and their library; None: it takes NumPy arrays alone."""
        return None


@runtime_checkable
class TimeLoops(Protocol):
    """An engine that can follow many steps of an integrator in one go."""

    def march(self, step: Step, states: tuple[Array, Array], given: Mapping[str, Array], dt: float) -> bool:
        """Follow an integrator's steps; False where the engine has no program for them, and nothing is done.

        Args:
            step: what a step is.
            states: q (steps + 1, B, nq) and qd (steps + 1, B, nv), contiguous, of which the first row is given and the
                others are filled.
            given: the other inputs of its dynamics by name, (steps, B, ...), or (1, B, ...) where they do not change;
                each state's numbers contiguous.
            dt: seconds of a step.
        """

    def step_gradient(self, task: StepGradient, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> bool:
        """Fill "A" (B, 2 nv, 2 nv) and "B" (B, 2 nv, nv) of a step from its inputs (B, ...), "dt" (B, 1) among them;
        False where the engine has no program for it, and nothing is done."""


def _names(inputs: Mapping[str, Array]) -> tuple[str, ...]:
    """The names of inputs that an algorithm lists."""
    return tuple(name for name in INPUTS if name in inputs)
