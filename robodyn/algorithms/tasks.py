"""Chains: queries that take several algorithms, solves with the mass matrix and products, one feeding the next.

Forward dynamics with mimicking joints is the bias force, the mass matrix and a solve; the gradient of forward dynamics
is accelerations, the gradient of inverse dynamics at them, and a solve (Plancher et al., algorithm 3); its second
derivatives have products besides. A chain says so once, as data: engines run its stages one after another, or as one
program.

All kinds of tasks stand here together: an engine is what runs each of them, and whoever writes one reads this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cache
from typing import Any, ClassVar, Literal, Self, TypeAlias, cast

import numpy as np

from robodyn.core.integrators import HOLDS, IMPLICIT, INTEGRATORS, evaluations
from robodyn.core.joints import CODE
from robodyn.core.model import Model
from robodyn.core.sweeps import Algorithm, DofOutput, NamedScalars, Output, PairOutput, Sweep, TaskBase, Tracer
from robodyn.core.sweeps import Stage as Stage
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass


@dataclass(frozen=True)
class Solution:
    """H^-1 (plus - minus), of the shape of `like`; one of them may be missing. Without both it is H^-1 itself.

    Columns of those like a `PairOutput` are degrees of freedom: zero in the rows of those that theirs is not coupled
    with. `known`: for n degrees of freedom of every tree's first joint the columns of the one array that there is
    are no right-hand sides, but solutions.
    """

    plus: str | None = None
    minus: str | None = None
    like: Output = field(default_factory=lambda: PairOutput(()))
    known: int = 0

    def known_columns(self, model: Model) -> list[int]:
        """Columns that need not be solved for."""
        roots = model.v_start[model.parent < 0].tolist()
        return [int(model.v_source[start + k]) for start in roots for k in range(self.known)]

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of what it is made of."""
        return tuple(name for name in (self.plus, self.minus) if name is not None)


@dataclass(frozen=True, eq=False)
class Solve(TaskBase):
    """Solves with one matrix H, a mass matrix that earlier stages left under the name `matrix`."""

    matrix: str
    outputs: Mapping[str, Solution]
    sweeps: ClassVar[tuple[Sweep, ...]] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names that it reads, once each."""
        names = (self.matrix, *(name for each in self.outputs.values() for name in each.arrays))
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Product:
    """-(plain + left right), or with `symmetric` -(plain + left right + (left right)'), of matrices (nv, nv).

    What is not named is zero. `left` is zero where the mass matrix is.
    """

    plain: str | None = None
    left: str | None = None
    right: str | None = None
    symmetric: bool = False


@dataclass(frozen=True, eq=False)
class Products(TaskBase):
    """Products of matrices that earlier stages left."""

    outputs: Mapping[str, Product]
    sweeps: ClassVar[tuple[Sweep, ...]] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names that it reads, once each."""
        names = (name for each in self.outputs.values() for name in (each.plain, each.left, each.right))
        return tuple(dict.fromkeys(name for name in names if name is not None))


@dataclass(frozen=True, eq=False)
class Chain(TaskBase):
    """Stages in order; each reads the chain's inputs and what stages before it left. `results` are its outputs.

    `floating_base_variant`: a cheaper chain for robots that float freely, if there is one: for engines whose solves
    pass over columns that are known."""

    name: str
    inputs: tuple[str, ...]
    stages: tuple[Stage | Solve | Products, ...]
    results: tuple[str, ...]
    floating_base_variant: Chain | None = None

    @cached_property
    def outputs(self) -> dict[str, Output | Solution | Product]:
        """The outputs by name."""
        every: dict[str, Output | Solution | Product] = {}
        for stage in self.stages:
            every.update(stage.outputs)
        return {name: every[name] for name in self.results}

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Every sweep of its algorithms."""
        return tuple(sweep for stage in self.stages for sweep in stage.sweeps)

    @cached_property
    def solves(self) -> tuple[Solve, ...]:
        """Those of its stages that solve."""
        return tuple(stage for stage in self.stages if isinstance(stage, Solve))

    def in_stages(self) -> tuple[Stage | Solve | Products, ...]:
        """Its stages."""
        return self.stages

    def on_given(self, name: str) -> Chain:
        """The same on an input instead of the model's numbers. Cheaper chains take first joints to have no armature."""
        stages = tuple(stage.on_given(name) for stage in self.stages)
        floating_base_variant = (
            None
            if self.floating_base_variant is None or name == "armature"
            else _on_given(self.floating_base_variant, name)
        )
        return replace(
            self,
            name=f"{self.name}_{name}",
            inputs=(*self.inputs, name),
            stages=stages,
            floating_base_variant=floating_base_variant,
        )

    def trace(self, tracer: Tracer, given: NamedScalars) -> NamedScalars:
        """Results at scalars of its inputs."""
        left = dict(given)
        for stage in self.stages:
            left.update(stage.trace(tracer, left))
        return {name: left[name] for name in self.results}

    @property
    def budget(self) -> str:
        """That of chains."""
        return "chain"

    @property
    def fallback(self) -> Literal["parts"]:
        """Kernels of its stages."""
        return "parts"

    def algorithms(self) -> Iterator[tuple[Stage, frozenset[str]]]:
        """The stages that are algorithms, and which arrays of each, by the algorithm's names, stay between stages."""
        left: set[str] = set()
        for stage in self.stages:
            if isinstance(stage, Stage):
                read = (name for name in stage.algorithm.inputs if stage.reads.get(name, name) in left)
                yield stage, frozenset((*stage.algorithm.outputs, *read))
            left.update(stage.outputs)


@dataclass(frozen=True)
class Stacked:
    """An output for each unit vector, (nv, ...)."""

    output: Output | Solution | Product


@dataclass(frozen=True, eq=False)
class IdentitySeeds(TaskBase):
    """An algorithm or a chain at every unit vector of one of its inputs, which has a number for each degree of freedom.

    An algorithm as one program is cheaper than that many runs: what does not depend on the vector is computed once, and
    nothing for the zeros.
    """

    algorithm: Algorithm | Chain
    vector: str

    @cached_property
    def name(self) -> str:
        """That of the algorithm, and what it is taken at."""
        return f"{self.algorithm.name}_at_units"

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The other inputs."""
        return tuple(name for name in self.algorithm.inputs if name != self.vector)

    @cached_property
    def outputs(self) -> dict[str, Stacked]:
        """The outputs by name."""
        return {name: Stacked(output) for name, output in self.algorithm.outputs.items()}

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """The algorithm's sweeps."""
        return self.algorithm.sweeps

    @property
    def traceable(self) -> bool:
        """Not what is no program at one unit vector."""
        return isinstance(self.algorithm, Algorithm)

    @property
    def parts(self) -> tuple[Algorithm | Chain]:
        """The algorithm, which runs at one unit vector after another."""
        return (self.algorithm,)

    @property
    def fallback(self) -> Literal["parts"]:
        """The algorithm's kernel."""
        return "parts"

    @property
    def unit_input(self) -> str:
        """The vector."""
        return self.vector

    def in_stages(self) -> tuple[Stage | Solve | Products, ...]:
        """The algorithm's."""
        return self.algorithm.in_stages()

    def calls(self, model: Model) -> tuple[int, Algorithm | Chain]:
        """The algorithm once for each degree of freedom."""
        return model.nv, self.algorithm

    def on_given(self, name: str) -> IdentitySeeds:
        """The same on an input instead of the model's numbers."""
        return replace(self, algorithm=_on_given(self.algorithm, name))

    def trace(self, tracer: Tracer, given: NamedScalars) -> NamedScalars:
        """Results at scalars of its inputs."""
        nv = tracer.model.nv
        units = [[float(k == v) for v in range(nv)] for k in range(nv)]
        rows = [self.algorithm.trace(tracer, {**given, self.vector: unit}) for unit in units]
        return {name: [scalar for row in rows for scalar in row[name]] for name in self.outputs}


@cache
def with_identity_seeds(algorithm: Algorithm | Chain, vector: str = "vector") -> IdentitySeeds:
    """`IdentitySeeds`, the same object whenever it is asked for: engines know tasks by identity."""
    return IdentitySeeds(algorithm, vector)


@dataclass(frozen=True)
class Configuration:
    """An output (nq,): a configuration."""


_LARGE_MATRIX = 100
"""Rows of a mass matrix from which it is not factorised where a recursion does without it."""
RESISTANCES = ("damping", "friction")
"""Joint forces: what they are called in a model, in `Dynamics(joint_forces=)`, and as inputs of steps."""
COEFFICIENTS = ("armature", *RESISTANCES)
"""Numbers of degrees of freedom that can be given to a step instead of the model's."""
TARGETS = ("kp", "kd", "q_des")
"""Inputs of steps that drive joints: stiffness and damping of every degree of freedom, and a configuration."""
LIMITS = ("effort", "velocity", "position")
"""Limits of a model that a step can keep to."""
STEP_INPUTS = (*RESISTANCES, *TARGETS, "dt")
"""Inputs of steps that are none of algorithms."""


@dataclass(frozen=True, eq=False)
class Step(TaskBase):
    """One step of an integrator over a time `dt`, an input (1,), under forces that stay as they are.

    `forward_dynamics`: what gives accelerations; `projection`: what brings the state after it onto constraints, if
    there are any; `integrator`: a name in `robodyn.core.integrators`; `joint_forces`: which to count, "damping" and
    "friction"; `given`: of `COEFFICIENTS` those that are inputs instead of the model's, and of `TARGETS` those that
    there are; `limits`: of `LIMITS` those that it keeps to.
    """

    forward_dynamics: Algorithm | Chain | ScalarTask
    integrator: str
    joint_forces: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    projection: ScalarTask | None = None
    recurrent: ClassVar[bool] = True

    @cached_property
    def name(self) -> str:
        """What it is, with what."""
        words = (
            *self.joint_forces,
            *(f"{name}_given" for name in self.given),
            *(f"{name}_kept" for name in self.limits),
            *(("projected",) if self.projection is not None else ()),
        )
        return "_".join((self.integrator, self.forward_dynamics.name, *words))

    @property
    def implicit(self) -> bool:
        """Whether it takes forces at the velocities that it leads to."""
        targets = [name for name in self.given if name in TARGETS]
        return bool(self.joint_forces or targets or self.holds) and self.integrator in IMPLICIT

    @property
    def holds(self) -> bool:
        """Whether it asks for accelerations once more, to hold joints at their limits."""
        return "velocity" in self.limits or "position" in self.limits

    @cached_property
    def dynamics(self) -> Algorithm | Chain | ScalarTask:
        """What gives accelerations, on an armature that is an input where the step adds to it."""
        added = self.implicit or "armature" in self.given
        return on_armature(self.forward_dynamics) if added else self.forward_dynamics

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Those of the dynamics, coefficients that are given, and the time."""
        return tuple(dict.fromkeys((*self.forward_dynamics.inputs, *self.given, "dt")))

    @cached_property
    def outputs(self) -> dict[str, Output | Configuration]:
        """The state after the step."""
        return {"q_next": Configuration(), "qd_next": DofOutput("")}

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Those of the dynamics."""
        return self.dynamics.sweeps

    def calls(self, model: Model) -> tuple[int, Algorithm | Chain | ScalarTask]:
        """The dynamics, once before each part but the first."""
        return len(self.parts) - 1, self.dynamics

    def on_given(self, name: str) -> Step:
        """The same on an input instead of the model's numbers."""
        dynamics = _on_given(self.forward_dynamics, name)
        return self if dynamics is self.forward_dynamics else replace(self, forward_dynamics=dynamics)

    @cached_property
    def asks(self) -> tuple[str, ...]:
        """Inputs of the dynamics that change within the step."""
        return tuple(name for name in ("q", "qd", "tau", "armature") if name in self.dynamics.inputs)

    @cached_property
    def acting(self) -> tuple[str, ...]:
        """What decides on forces within the step: inputs, or numbers of the model."""
        armature = ("armature",) if "armature" in self.asks else ()
        return ("tau", *armature, *self.joint_forces, *(name for name in TARGETS if name in self.given))

    @cached_property
    def parts(self) -> tuple[StepPart, ...]:
        """What it does before, between and behind its evaluations of the dynamics."""
        return tuple(
            StepPart(self, k) for k in range(evaluations(INTEGRATORS[self.integrator]) + HOLDS * self.holds + 1)
        )

    @property
    def budget(self) -> str:
        """That of steps."""
        return "step"

    @property
    def fallback(self) -> Literal["parts"] | None:
        """Its parts and the dynamics, unless these are a program or nothing."""
        return None if isinstance(self.dynamics, ScalarTask) else "parts"

    def least_operations(self, model: Model) -> int | None:
        """Those of the dynamics and of the projection."""
        least = self.dynamics.least_operations(model)
        if least is None or self.projection is None:
            return least
        return least + (self.projection.least_operations(model) or 0)

    @property
    def between(self) -> dict[str, str]:
        """What parts and the dynamics leave to one another, and whether it is like "q" or "qd"."""
        first, last = self.parts[0], self.parts[-1]
        return {**dict.fromkeys((*first.outputs, *last.known), "qd"), first.at("q"): "q"}


@dataclass(frozen=True, eq=False)
class StepPart(TaskBase):
    """What a step does from its beginning, once the first `number` accelerations are known: up to the state, torques
    and armature at which it asks for the next ones, or to the state after the step."""

    step: Step
    number: int
    sweeps: ClassVar[tuple[Sweep, ...]] = ()
    recurrent: ClassVar[bool] = True

    @property
    def budget(self) -> str:
        """That of parts of steps."""
        return "part of a step"

    @property
    def fallback(self) -> Literal["loops"]:
        """Loops, of which there are none for it: the step is taken on arrays of states then."""
        return "loops"

    @property
    def last(self) -> bool:
        """Whether all accelerations are known."""
        return self.number + 1 == len(self.step.parts)

    @cached_property
    def name(self) -> str:
        """Of the step, and which part."""
        return f"{self.step.name}_part_{self.number}"

    @cached_property
    def known(self) -> tuple[str, ...]:
        """Names of the accelerations that are known."""
        return tuple(f"qdd_{k}" for k in range(self.number))

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The state at the start, torques, coefficients and time, and accelerations."""
        return ("q", "qd", "tau", *self.step.given, "dt", *self.known)

    @cached_property
    def outputs(self) -> dict[str, Output | Configuration]:
        """See above."""
        if self.last:
            return self.step.outputs
        return {self.at(name): Configuration() if name == "q" else DofOutput("") for name in self.step.asks}

    def at(self, name: str) -> str:
        """What the dynamics' input of a name is called where they are asked after a part that is not the last."""
        return f"{name}_at" if name in self.step.asks else name

    @property
    def asked(self) -> str:
        """What the accelerations are called that are asked for after this part."""
        return f"qdd_{self.number}"

    @property
    def extra(self) -> dict[str, DofOutput]:
        """Accelerations that are known."""
        return {name: DofOutput("") for name in self.known}


@dataclass(frozen=True)
class StateMatrix:
    """An output (2 nv, n nv): derivatives of q on its tangent space and of qd, by n vectors over degrees of freedom."""

    vectors: int


@dataclass(frozen=True, eq=False)
class StepGradient(TaskBase):
    """The derivatives of a step's state after it, by the state before (`A`) and by tau (`B`), on tangent spaces.

    `gradient`: what gives accelerations "qdd" and their derivatives "dqdd_dq", "dqdd_dqd" and "dqdd_dtau", on the
    inputs of the step's dynamics.
    """

    step: Step
    gradient: Chain | ScalarTask

    @property
    def name(self) -> str:
        """That of the step, and what it is."""
        return f"{self.step.name}_gradient"

    @property
    def inputs(self) -> tuple[str, ...]:
        """Those of the step."""
        return self.step.inputs

    @cached_property
    def outputs(self) -> dict[str, StateMatrix]:
        """See above."""
        return {"A": StateMatrix(2), "B": StateMatrix(1)}

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Those of the gradient."""
        return self.gradient.sweeps

    @property
    def budget(self) -> str:
        """That of gradients."""
        return "gradient"

    def calls(self, model: Model) -> tuple[int, Chain | ScalarTask]:
        """The gradient, as often as the step does the dynamics."""
        return self.step.calls(model)[0], self.gradient

    def least_operations(self, model: Model) -> int | None:
        """Those of the gradient."""
        return self.gradient.least_operations(model)


@cache
def step_gradient_of(step: Step, gradient: Chain | ScalarTask) -> StepGradient:
    """`StepGradient` for the gradient of the step's forward dynamics on inputs that are given, the same object whenever
    it is asked for: engines know tasks by identity. A `ScalarTask` has the inputs of the step's dynamics, and gives
    qdd."""
    if isinstance(gradient, ScalarTask):
        return StepGradient(step, gradient)
    with_qdd = _and_accelerations(gradient)
    armature = "armature" in step.dynamics.inputs
    return StepGradient(step, cast(Chain, on_armature(with_qdd)) if armature else with_qdd)


def _and_accelerations(gradient: Chain) -> Chain:
    floating_base_variant = (
        None if gradient.floating_base_variant is None else _and_accelerations(gradient.floating_base_variant)
    )
    return replace(
        gradient,
        name=f"{gradient.name}_qdd",
        results=("qdd", *gradient.results),
        floating_base_variant=floating_base_variant,
    )


@cache
def step_of(
    dynamics: Algorithm | Chain | ScalarTask,
    integrator: str,
    joint_forces: tuple[str, ...] = (),
    given: tuple[str, ...] = (),
    limits: tuple[str, ...] = (),
    projection: ScalarTask | None = None,
) -> Step:
    """`Step`, the same object whenever it is asked for: engines know tasks by identity."""
    return Step(dynamics, integrator, joint_forces, given, limits, projection)


@dataclass(frozen=True)
class LikeInput:
    """An output with the shape of an input of a task."""

    task: Task
    name: str


@dataclass(frozen=True, eq=False)
class Derivative(TaskBase):
    """The derivative of a task with respect to some of its inputs: a straight-line program differentiated."""

    task: Task
    wrt: tuple[str, ...]

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The task's, and those of the derivative."""
        return (*self.task.inputs, *self.extra)

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Those of the task."""
        return self.task.sweeps

    @property
    def budget(self) -> str:
        """That of gradients for steps."""
        return "gradient" if self.task.budget == "step" else "query"

    def least_operations(self, model: Model) -> int | None:
        """Those of the task."""
        return self.task.least_operations(model)

    def on_given(self, name: str) -> Self:
        """The same on an input instead of the model's numbers."""
        return replace(self, task=_on_given(self.task, name))


class Jvp(Derivative):
    """The rates of a task's results while some of its inputs change: a straight-line program differentiated forwards.
    Inputs are also rates, `x_rate` for each `x` in `wrt` (`rates`); q counts as the numbers that it is."""

    @cached_property
    def name(self) -> str:
        """That of the task, and with respect to what."""
        return "_".join((self.task.name, "along", *self.wrt))

    @cached_property
    def rates(self) -> dict[str, str]:
        """What the rate of each input is called."""
        return _fresh(self.wrt, "rate", self.task.inputs)

    @cached_property
    def extra(self) -> dict[str, LikeInput]:
        """The rates."""
        return {rate: LikeInput(self.task, name) for name, rate in self.rates.items()}

    @property
    def outputs(self) -> Mapping[str, Result]:
        """Those of the task."""
        return self.task.outputs


class Vjp(Derivative):
    """The gradient of the sum of weights times results of a task, with respect to some of its inputs: a straight-line
    program differentiated backwards. Inputs are also weights, `y_weight` for each result `y` (`weights`); outputs are
    called `by_x`."""

    @cached_property
    def name(self) -> str:
        """That of the task, and with respect to what."""
        return "_".join((self.task.name, "against", *self.wrt))

    @cached_property
    def weights(self) -> dict[str, str]:
        """What the weight of each result is called."""
        return _fresh(self.task.outputs, "weight", self.task.inputs)

    @cached_property
    def extra(self) -> dict[str, Result]:
        """The weights."""
        return {self.weights[name]: output for name, output in self.task.outputs.items()}

    @cached_property
    def outputs(self) -> Mapping[str, Result]:
        """The gradient's parts."""
        return {f"by_{name}": LikeInput(self.task, name) for name in self.wrt}


def _fresh(names: Iterable[str], what: str, taken: Iterable[str]) -> dict[str, str]:
    """A name for what belongs to each of some names that none of the taken ones is: derivatives of derivatives have
    weights of weights."""
    found: dict[str, str] = {}
    for name in names:
        fresh = f"{name}_{what}"
        while fresh in {*taken, *found.values()}:
            fresh += "_"
        found[name] = fresh
    return found


@cache
def along(task: Task, wrt: tuple[str, ...]) -> Jvp:
    """`Jvp`, the same object whenever it is asked for: engines know tasks by identity."""
    return Jvp(task, wrt)


@cache
def against(task: Task, wrt: tuple[str, ...]) -> Vjp:
    """`Vjp`, the same object whenever it is asked for."""
    return Vjp(task, wrt)


@dataclass(frozen=True)
class Sized:
    """An array whose axes are numbers, or numbers of a model by their names."""

    axes: tuple[int | str, ...]

    def shape(self, model: Model) -> tuple[int, ...]:
        """Of one state."""
        return tuple(getattr(model, axis) if isinstance(axis, str) else axis for axis in self.axes)


Text: TypeAlias = Callable[[Model, Mapping[str, Any], Callable[..., Mapping[str, Any]]], Mapping[str, Any]]
"""(model, scalars of every input, what gives an algorithm's results at them, as
`robodyn.algorithms.relative_motion.OfLink` says) to the scalars of every result."""


RunAlgorithm: TypeAlias = Callable[[Algorithm, Mapping[str, Array]], dict[str, Array]]
"""(algorithm, arrays (B, ...) of its inputs, others among them) to arrays of its results."""
Placed: TypeAlias = Callable[[Array], Array]
"""A NumPy array to one of the library of a call."""
ArrayText: TypeAlias = Callable[[Model, Mapping[str, Array], RunAlgorithm, Placed], Mapping[str, Array]]
"""(model, arrays (B, ...) of every input, what runs algorithms, what places constants) to arrays of every result."""


@dataclass(frozen=True, eq=False)
class ScalarTask(TaskBase):
    """What is written down on scalars at once: a straight-line program or nothing.

    `given`: its inputs; `outputs`: its results; `text`: how they follow; `of`: the same task of other inputs;
    `on_arrays`: how they follow on arrays of states, where there is a quicker way than scalar by scalar; `least`: about
    how many operations a program has at least, where that is known without a trace.
    """

    name: str
    given: Mapping[str, Sized]
    outputs: Mapping[str, Sized]
    text: Text
    of: Callable[[tuple[str, ...]], ScalarTask] | None = None
    on_arrays: ArrayText | None = None
    least: Callable[[Model], int] | None = None
    sweeps: ClassVar[tuple[Sweep, ...]] = ()

    @property
    def extra(self) -> Mapping[str, Sized]:
        """All of its inputs."""
        return self.given

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of its inputs."""
        return tuple(self.given)

    def with_input(self, name: str) -> ScalarTask:
        """The same with one more input."""
        assert self.of is not None
        return self.of((*self.inputs, name))

    def on_given(self, name: str) -> ScalarTask:
        """The same on an armature to which a step adds; whoever made it for an inertia has named that."""
        return self if name == "inertia" else self.with_input(name)

    @property
    def budget(self) -> str:
        """That of gradients, where operations are known without a trace."""
        return "query" if self.least is None else "gradient"

    def least_operations(self, model: Model) -> int | None:
        """As `least` says."""
        return None if self.least is None else self.least(model)


Result: TypeAlias = Output | Solution | Product | Stacked | Configuration | LikeInput | Sized
"""What tasks return."""
StraightLine: TypeAlias = Step | Jvp | Vjp | ScalarTask
"""Tasks that engines run as one program or not at all."""
Task: TypeAlias = Algorithm | Chain | IdentitySeeds | StraightLine
"""What an engine runs."""
Traceable: TypeAlias = Task | StepPart | StepGradient
"""What can be one straight-line program."""


def on_inertia(task: Task) -> Task:
    """The same task on inertias that are an input instead of the model's."""
    return cast(Task, _on_given(task, "inertia"))


def on_armature(task: Algorithm | Chain | ScalarTask) -> Algorithm | Chain | ScalarTask:
    """The same task on an armature of every degree of freedom that is an input instead of the model's."""
    return cast("Algorithm | Chain | ScalarTask", _on_given(task, "armature"))


@cache
def _on_given(task: Any, name: str) -> Any:
    return task if name in task.inputs else task.on_given(name)


def cheapest(model: Model, task: Traceable, base: tuple[str, ...]) -> Traceable:
    """The chain for robots that float freely, where there is one and this is such a robot; else the same task.

    `base`: which of V0 and dV0 are given.
    """
    return (
        task if task.floating_base_variant is None or base or not floats_freely(model) else task.floating_base_variant
    )


def mixed_precision(model: Model, task: Traceable) -> Traceable:
    """The chain that does the same in double precision with fewer operations, where there is one, its matrices are not
    large, no joint mimics others, and armature is the model's; else the same task."""
    if task.mixed_precision is None or "armature" in task.inputs or model.has_mimic or model.nv > _LARGE_MATRIX:
        return task
    return on_inertia(task.mixed_precision) if "inertia" in task.inputs else cast(Chain, task.mixed_precision)


def floats_freely(model: Model) -> bool:
    """Whether every tree's first joint is a floating one, without inertia or damping of its own."""
    roots = model.parent < 0
    dofs = (model.v_start[roots, None] + np.arange(6)).ravel()
    if not roots.any() or (model.joint_kind[roots] != CODE["floating"]).any():
        return False
    return not model.tree_armature[dofs].any() and not model.tree_damping[dofs].any()


def floating_place(model: Model) -> list[int]:
    """The coordinates that say where a robot is, three: of its one tree's floating base. Empty where there is none."""
    roots = np.flatnonzero(model.parent < 0)
    if len(roots) != 1 or model.joint_kind[roots[0]] != CODE["floating"]:
        return []
    start = int(model.q_start[roots[0]])
    return [int(place) for place in model.q_source[start : start + 3]]


class SymbolicFactor:
    """Which entries of H = L' D L are nonzero, whatever the state (RBDA section 6.5).

    `lower[k]` are the columns p < k of row k of L: on a tree without mimicking joints, the degrees of freedom on the
    path to the root; otherwise those and the fill-in.
    """

    def __init__(self, model: Model) -> None:
        pattern = coupled(model)
        self.pattern = pattern.copy()
        """(nv, nv) where H can be nonzero."""
        self.lower: list[Array] = [np.empty(0, np.intp)] * model.nv
        for k in range(model.nv - 1, -1, -1):
            columns = np.flatnonzero(pattern[k, :k])
            pattern[np.ix_(columns, columns)] = True
            self.lower[k] = columns

    def reached(self, rows: Array) -> Array:
        """Where L^-T b can be nonzero, for b that is nonzero in `rows` (nv, ...) alone."""
        reached: Array = rows.copy()
        for k in range(len(self.lower) - 1, -1, -1):
            reached[self.lower[k]] |= reached[k]
        return reached

    def operations(self, columns: int) -> int:
        """About how many floating-point operations a factorisation and solves for n columns take."""
        sizes = [len(row) for row in self.lower]
        return sum(size * (size + 2) + columns * (4 * size + 1) for size in sizes)


def coupled(model: Model) -> Array:
    """(nv, nv): whether an entry of the mass matrix can be nonzero, one body being the other's ancestor."""
    found = np.zeros((model.nv, model.nv), dtype=bool)
    dofs = [model.v_source[start:end] for start, end in _ranges(model)]
    for i in range(model.n_bodies):
        path = np.concatenate([dofs[j] for j in model.tree.path(i)])
        found[np.ix_(dofs[i], path)] = True
        found[np.ix_(path, dofs[i])] = True
    return found


def on_paths(model: Model) -> Array:
    """(nv, n_bodies): whether a degree of freedom moves a body."""
    found = np.zeros((model.nv, model.n_bodies), dtype=bool)
    dofs = [model.v_source[start:end] for start, end in _ranges(model)]
    for i, parent in enumerate(model.parent.tolist()):
        if parent >= 0:
            found[:, i] = found[:, parent]
        found[dofs[i], i] = True
    return found


def _ranges(model: Model) -> Iterator[tuple[int, int]]:
    ends = [*model.v_start.tolist()[1:], model.nv_tree]
    return zip(model.v_start.tolist(), ends, strict=True) if model.n_bodies else iter(())
