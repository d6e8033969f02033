"""Tasks: everything that an engine can run.

A chain is a task of several algorithms, solves with the mass matrix and products, each of which reads earlier results.
Forward dynamics with mimicking joints is the bias force, the mass matrix and a solve. The gradient of forward dynamics
is accelerations, the gradient of inverse dynamics at them, and a solve (Plancher et al., algorithm 3). Its second
derivatives have products as well. A chain is data: engines run its stages one after another, or as one program.

All kinds of tasks are defined in this module, and an engine must run each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cache
from typing import Any, ClassVar, Literal, Self, TypeAlias, cast

import numpy as np

from robodyn.core.integrators import HOLDS, HOLDS_JOINTS, IMPLICIT, INTEGRATORS, evaluations
from robodyn.core.joints import CODE
from robodyn.core.model import Model
from robodyn.core.sweeps import Algorithm, DofOutput, NamedScalars, Output, PairOutput, Sweep, TaskBase, Tracer
from robodyn.core.sweeps import Stage as Stage
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass


@dataclass(frozen=True)
class Solution:
    """H^-1 (plus - minus), of the shape of `like`. A missing array is zero; without both it is H^-1 itself.

    If `like` is a `PairOutput`, columns are degrees of freedom. A column is zero in the rows of degrees of freedom that
    are not coupled with its own. `known`: the columns of the first n degrees of freedom of every tree's first joint
    hold solutions instead of right-hand sides; there is one array then.
    """

    plus: str | None = None
    minus: str | None = None
    like: Output = field(default_factory=lambda: PairOutput(()))
    known: int = 0

    def known_columns(self, model: Model) -> list[int]:
        """Columns that already hold solutions."""
        roots = model.v_start[model.parent < 0].tolist()
        return [int(model.v_source[start + k]) for start in roots for k in range(self.known)]

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of its arrays."""
        return tuple(name for name in (self.plus, self.minus) if name is not None)


@dataclass(frozen=True, eq=False)
class Solve(TaskBase):
    """Solves with one mass matrix H, the result `matrix` of an earlier stage."""

    matrix: str
    outputs: Mapping[str, Solution]
    sweeps: ClassVar[tuple[Sweep, ...]] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of its inputs, without duplicates."""
        names = (self.matrix, *(name for each in self.outputs.values() for name in each.arrays))
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Product:
    """-(plain + left right), or with `symmetric` -(plain + left right + (left right)'), of matrices (nv, nv).

    A matrix without a name is zero. `left` is zero wherever the mass matrix is.
    """

    plain: str | None = None
    left: str | None = None
    right: str | None = None
    symmetric: bool = False


@dataclass(frozen=True, eq=False)
class Products(TaskBase):
    """Products of matrices that earlier stages computed."""

    outputs: Mapping[str, Product]
    sweeps: ClassVar[tuple[Sweep, ...]] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of its inputs, without duplicates."""
        names = (name for each in self.outputs.values() for name in (each.plain, each.left, each.right))
        return tuple(dict.fromkeys(name for name in names if name is not None))


@dataclass(frozen=True, eq=False)
class Chain(TaskBase):
    """Stages in order; each reads the chain's inputs and results of earlier stages. `results`: names of its outputs.

    `floating_base_variant`: a cheaper chain for robots whose trees all float freely, or None. It is for engines whose
    solves skip known columns."""

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
        """Its stages that solve."""
        return tuple(stage for stage in self.stages if isinstance(stage, Solve))

    def in_stages(self) -> tuple[Stage | Solve | Products, ...]:
        """Its stages."""
        return self.stages

    def on_given(self, name: str) -> Chain:
        """The same with an input instead of the model's numbers.

        A floating-base variant is dropped for an "armature": it assumes that first joints have none.
        """
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
        values = dict(given)
        for stage in self.stages:
            values.update(stage.trace(tracer, values))
        return {name: values[name] for name in self.results}

    @property
    def budget(self) -> str:
        """The budget of chains."""
        return "chain"

    @property
    def fallback(self) -> Literal["parts"]:
        """It runs as kernels of its stages."""
        return "parts"

    def algorithms(self) -> Iterator[tuple[Stage, frozenset[str]]]:
        """Each stage that is an algorithm, with its arrays, by the algorithm's names, that pass between stages."""
        computed: set[str] = set()
        for stage in self.stages:
            if isinstance(stage, Stage):
                read = (name for name in stage.algorithm.inputs if stage.reads.get(name, name) in computed)
                yield stage, frozenset((*stage.algorithm.outputs, *read))
            computed.update(stage.outputs)


@dataclass(frozen=True)
class Stacked:
    """An output for each unit vector, (nv, ...)."""

    output: Output | Solution | Product


@dataclass(frozen=True, eq=False)
class IdentitySeeds(TaskBase):
    """An algorithm or a chain at every unit vector of its input `vector`, which has a number per degree of freedom.

    One program of an algorithm is cheaper than nv runs: terms that do not depend on the vector are computed once, and
    zeros cost nothing.
    """

    algorithm: Algorithm | Chain
    vector: str

    @cached_property
    def name(self) -> str:
        """The algorithm's name with a suffix."""
        return f"{self.algorithm.name}_at_units"

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The algorithm's inputs except the vector."""
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
        """True for algorithms, False for chains."""
        return isinstance(self.algorithm, Algorithm)

    @property
    def parts(self) -> tuple[Algorithm | Chain]:
        """The algorithm, which runs at one unit vector after another."""
        return (self.algorithm,)

    @property
    def fallback(self) -> Literal["parts"]:
        """It runs as the algorithm's kernel."""
        return "parts"

    @property
    def unit_input(self) -> str:
        """The name of the vector."""
        return self.vector

    def in_stages(self) -> tuple[Stage | Solve | Products, ...]:
        """The algorithm's stages."""
        return self.algorithm.in_stages()

    def calls(self, model: Model) -> tuple[int, Algorithm | Chain]:
        """The algorithm, once for each degree of freedom."""
        return model.nv, self.algorithm

    def on_given(self, name: str) -> IdentitySeeds:
        """The same with an input instead of the model's numbers."""
        return replace(self, algorithm=_on_given(self.algorithm, name))

    def trace(self, tracer: Tracer, given: NamedScalars) -> NamedScalars:
        """Results at scalars of its inputs."""
        nv = tracer.model.nv
        units = [[float(k == v) for v in range(nv)] for k in range(nv)]
        rows = [self.algorithm.trace(tracer, {**given, self.vector: unit}) for unit in units]
        return {name: [scalar for row in rows for scalar in row[name]] for name in self.outputs}


@cache
def with_identity_seeds(algorithm: Algorithm | Chain, vector: str = "vector") -> IdentitySeeds:
    """The `IdentitySeeds` of an algorithm, cached because engines compare tasks by identity."""
    return IdentitySeeds(algorithm, vector)


@dataclass(frozen=True)
class Configuration:
    """An output (nq,): a configuration."""


_LARGE_MATRIX = 100
"""Most rows of a mass matrix that is factorised where a recursion could be used instead."""
RESISTANCES = ("damping", "friction")
"""Joint forces, by their names in a model, in `Dynamics(joint_forces=)` and as inputs of steps."""
COEFFICIENTS = ("armature", *RESISTANCES)
"""Numbers per degree of freedom that can be inputs of a step instead of the model's."""
TARGETS = ("kp", "kd", "q_des")
"""Inputs of steps that drive joints: stiffness and damping per degree of freedom, and a target configuration."""
LIMITS = ("effort", "velocity", "position")
"""Limits of a model that a step can enforce."""
STEP_INPUTS = (*RESISTANCES, *TARGETS, "dt")
"""Inputs of steps that no algorithm has."""


@dataclass(frozen=True, eq=False)
class Step(TaskBase):
    """One step of an integrator over the time `dt` (s, an input (1,)), with a constant tau.

    `forward_dynamics`: the task that computes accelerations. `projection`: the task that brings the state after the
    step onto constraints, or None. `integrator`: a name in `robodyn.core.integrators`. `joint_forces`: those that
    count, of "damping" and "friction". `given`: the `COEFFICIENTS` that are inputs instead of the model's, and the
    `TARGETS` that are inputs. `limits`: the `LIMITS` that the step enforces.
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
        """Names of the integrator, the dynamics and the options."""
        words = (
            *self.joint_forces,
            *(f"{name}_given" for name in self.given),
            *(f"{name}_kept" for name in self.limits),
            *(("projected",) if self.projection is not None else ()),
        )
        return "_".join((self.integrator, self.forward_dynamics.name, *words))

    @property
    def implicit(self) -> bool:
        """True if the step adds an armature that stands for the change of forces during it, or needs the model's."""
        targets = [name for name in self.given if name in TARGETS]
        needed = bool(self.joint_forces or targets or self.holds) or self.integrator not in HOLDS_JOINTS
        return needed and self.integrator in IMPLICIT

    @property
    def holds(self) -> bool:
        """True if accelerations are evaluated once more, to hold joints at their limits."""
        return "velocity" in self.limits or "position" in self.limits

    @cached_property
    def dynamics(self) -> Algorithm | Chain | ScalarTask:
        """The task that computes accelerations, with an armature as an input where the step adds to it."""
        added = self.implicit or "armature" in self.given
        return on_armature(self.forward_dynamics) if added else self.forward_dynamics

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Inputs of the dynamics, coefficients and targets that are inputs, and the time."""
        return tuple(dict.fromkeys((*self.forward_dynamics.inputs, *self.given, "dt")))

    @cached_property
    def outputs(self) -> dict[str, Output | Configuration]:
        """The state after the step."""
        return {"q_next": Configuration(), "qd_next": DofOutput("")}

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Sweeps of the dynamics."""
        return self.dynamics.sweeps

    def calls(self, model: Model) -> tuple[int, Algorithm | Chain | ScalarTask]:
        """The dynamics, once before each part but the first."""
        return len(self.parts) - 1, self.dynamics

    def on_given(self, name: str) -> Step:
        """The same with an input instead of the model's numbers."""
        dynamics = _on_given(self.forward_dynamics, name)
        return self if dynamics is self.forward_dynamics else replace(self, forward_dynamics=dynamics)

    @cached_property
    def asks(self) -> tuple[str, ...]:
        """Inputs of the dynamics that change within the step."""
        return tuple(name for name in ("q", "qd", "tau", "armature") if name in self.dynamics.inputs)

    @cached_property
    def acting(self) -> tuple[str, ...]:
        """Inputs, or numbers of the model, that determine forces within the step."""
        armature = ("armature",) if "armature" in self.asks else ()
        return ("tau", *armature, *self.joint_forces, *(name for name in TARGETS if name in self.given))

    @cached_property
    def parts(self) -> tuple[StepPart, ...]:
        """The computations before, between and after its evaluations of the dynamics."""
        return tuple(
            StepPart(self, k) for k in range(evaluations(INTEGRATORS[self.integrator]) + HOLDS * self.holds + 1)
        )

    @property
    def budget(self) -> str:
        """The budget of steps."""
        return "step"

    @property
    def fallback(self) -> Literal["parts"] | None:
        """Its parts and the dynamics as kernels, unless the dynamics can be one program only."""
        return None if isinstance(self.dynamics, ScalarTask) else "parts"

    def least_operations(self, model: Model) -> int | None:
        """Operations of the dynamics and of the projection."""
        least = self.dynamics.least_operations(model)
        if least is None or self.projection is None:
            return least
        return least + (self.projection.least_operations(model) or 0)

    @property
    def between(self) -> dict[str, str]:
        """Arrays that parts and the dynamics pass to one another, each with "q" or "qd", whose shape it has."""
        first, last = self.parts[0], self.parts[-1]
        return {**dict.fromkeys((*first.outputs, *last.known), "qd"), first.at("q"): "q"}


@dataclass(frozen=True, eq=False)
class StepPart(TaskBase):
    """The computation of a step between two evaluations of the dynamics.

    It starts from the state before the step and the first `number` accelerations. It ends with the state, torques and
    armature of the next evaluation of the dynamics, or with the state after the step."""

    step: Step
    number: int
    sweeps: ClassVar[tuple[Sweep, ...]] = ()
    recurrent: ClassVar[bool] = True

    @property
    def budget(self) -> str:
        """The budget of parts of steps."""
        return "part of a step"

    @property
    def fallback(self) -> Literal["loops"]:
        """Loops by name, but engines have none for parts: they take the step on arrays of states then."""
        return "loops"

    @property
    def last(self) -> bool:
        """True if all accelerations are known."""
        return self.number + 1 == len(self.step.parts)

    @cached_property
    def name(self) -> str:
        """Name of the step, and number of the part."""
        return f"{self.step.name}_part_{self.number}"

    @cached_property
    def known(self) -> tuple[str, ...]:
        """Names of the known accelerations."""
        return tuple(f"qdd_{k}" for k in range(self.number))

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The state before the step, torques, coefficients and time, and known accelerations."""
        return ("q", "qd", "tau", *self.step.given, "dt", *self.known)

    @cached_property
    def outputs(self) -> dict[str, Output | Configuration]:
        """The state after the step, or inputs of the next evaluation of the dynamics."""
        if self.last:
            return self.step.outputs
        return {self.at(name): Configuration() if name == "q" else DofOutput("") for name in self.step.asks}

    def at(self, name: str) -> str:
        """Name of an input of the dynamics at their next evaluation."""
        return f"{name}_at" if name in self.step.asks else name

    @property
    def asked(self) -> str:
        """Name of the accelerations that are evaluated after this part."""
        return f"qdd_{self.number}"

    @property
    def extra(self) -> dict[str, DofOutput]:
        """The known accelerations."""
        return {name: DofOutput("") for name in self.known}


@dataclass(frozen=True)
class StateMatrix:
    """An output (2 nv, n nv): derivatives of q on its tangent space and of qd, by n vectors over degrees of freedom."""

    vectors: int


@dataclass(frozen=True, eq=False)
class StepGradient(TaskBase):
    """The derivatives of the state after a step by the state before (`A`) and by tau (`B`), on tangent spaces.

    `gradient`: the task that computes accelerations "qdd" and their derivatives "dqdd_dq", "dqdd_dqd" and "dqdd_dtau"
    from the inputs of the step's dynamics. `projection`: the task that computes the derivatives "q_q", "qd_q" and
    "qd_qd" of the step's projection, if it has one.
    """

    step: Step
    gradient: Chain | ScalarTask
    projection: ScalarTask | None = None

    @property
    def name(self) -> str:
        """The step's name with a suffix."""
        return f"{self.step.name}_gradient"

    @property
    def inputs(self) -> tuple[str, ...]:
        """Inputs of the step."""
        return self.step.inputs

    @cached_property
    def outputs(self) -> dict[str, StateMatrix]:
        """The matrices `A` (2 nv, 2 nv) and `B` (2 nv, nv)."""
        return {"A": StateMatrix(2), "B": StateMatrix(1)}

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Sweeps of the gradient."""
        return self.gradient.sweeps

    @property
    def budget(self) -> str:
        """The budget of gradients."""
        return "gradient"

    def calls(self, model: Model) -> tuple[int, Chain | ScalarTask]:
        """The gradient, as often as the step evaluates the dynamics."""
        return self.step.calls(model)[0], self.gradient

    def least_operations(self, model: Model) -> int | None:
        """Operations of the gradient and of that of the projection."""
        least = self.gradient.least_operations(model)
        if least is None or self.projection is None:
            return least
        return least + (self.projection.least_operations(model) or 0)


@cache
def step_gradient_of(step: Step, gradient: Chain | ScalarTask, projection: ScalarTask | None = None) -> StepGradient:
    """The `StepGradient` of a step, cached because engines compare tasks by identity.

    A chain `gradient` is extended by the result qdd, and by an armature if the step's dynamics read one. A `ScalarTask`
    must have the inputs of the step's dynamics and return qdd. `projection`: as in `StepGradient`.
    """
    if isinstance(gradient, ScalarTask):
        return StepGradient(step, gradient, projection)
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
    """The `Step` with these options, cached because engines compare tasks by identity."""
    return Step(dynamics, integrator, joint_forces, given, limits, projection)


@dataclass(frozen=True)
class LikeInput:
    """An output with the shape of an input of a task."""

    task: Task
    name: str


@dataclass(frozen=True, eq=False)
class Derivative(TaskBase):
    """The derivative of a task with respect to its inputs `wrt`: its straight-line program, differentiated."""

    task: Task
    wrt: tuple[str, ...]

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Inputs of the task, and additional ones of the derivative."""
        return (*self.task.inputs, *self.extra)

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Sweeps of the task."""
        return self.task.sweeps

    @property
    def budget(self) -> str:
        """The budget of gradients for steps and gradients, that of queries for others."""
        return "gradient" if self.task.budget in ("step", "gradient") else "query"

    def least_operations(self, model: Model) -> int | None:
        """Operations of the task."""
        return self.task.least_operations(model)

    def on_given(self, name: str) -> Self:
        """The same with an input instead of the model's numbers."""
        return replace(self, task=_on_given(self.task, name))


class Jvp(Derivative):
    """The rates of a task's results while some of its inputs change: forward differentiation of its program.

    Additional inputs are the rates, `x_rate` for each `x` in `wrt` (`rates`). q is differentiated by its coordinates,
    not on the tangent space."""

    @cached_property
    def name(self) -> str:
        """Names of the task and of the inputs."""
        return "_".join((self.task.name, "along", *self.wrt))

    @cached_property
    def rates(self) -> dict[str, str]:
        """Name of the rate of each input."""
        return _fresh(self.wrt, "rate", self.task.inputs)

    @cached_property
    def extra(self) -> dict[str, LikeInput]:
        """The rates."""
        return {rate: LikeInput(self.task, name) for name, rate in self.rates.items()}

    @property
    def outputs(self) -> Mapping[str, Result]:
        """Outputs of the task."""
        return self.task.outputs


class Vjp(Derivative):
    """The gradient of the weighted sum of a task's results, with respect to some of its inputs: backward
    differentiation of its program.

    Additional inputs are the weights, `y_weight` for each result `y` (`weights`). Outputs are called `by_x`."""

    @cached_property
    def name(self) -> str:
        """Names of the task and of the inputs."""
        return "_".join((self.task.name, "against", *self.wrt))

    @cached_property
    def weights(self) -> dict[str, str]:
        """Name of the weight of each result."""
        return _fresh(self.task.outputs, "weight", self.task.inputs)

    @cached_property
    def extra(self) -> dict[str, Result]:
        """The weights."""
        return {self.weights[name]: output for name, output in self.task.outputs.items()}

    @cached_property
    def outputs(self) -> Mapping[str, Result]:
        """The gradient by each input."""
        return {f"by_{name}": LikeInput(self.task, name) for name in self.wrt}


def _fresh(names: Iterable[str], what: str, taken: Iterable[str]) -> dict[str, str]:
    """A name for each of some names that is not taken: `{name}_{what}`, with underscores added as needed.

    Derivatives of derivatives have weights of weights.
    """
    unique: dict[str, str] = {}
    for name in names:
        fresh = f"{name}_{what}"
        while fresh in {*taken, *unique.values()}:
            fresh += "_"
        unique[name] = fresh
    return unique


@cache
def along(task: Task, wrt: tuple[str, ...]) -> Jvp:
    """The `Jvp` of a task, cached because engines compare tasks by identity."""
    return Jvp(task, wrt)


@cache
def against(task: Task, wrt: tuple[str, ...]) -> Vjp:
    """The `Vjp` of a task, cached like `along`."""
    return Vjp(task, wrt)


@dataclass(frozen=True)
class Sized:
    """An array whose axes are numbers, or attributes of a model by their names."""

    axes: tuple[int | str, ...]

    def shape(self, model: Model) -> tuple[int, ...]:
        """The shape for one state."""
        return tuple(getattr(model, axis) if isinstance(axis, str) else axis for axis in self.axes)


Text: TypeAlias = Callable[[Model, Mapping[str, Any], Callable[..., Mapping[str, Any]]], Mapping[str, Any]]
"""(model, scalars of every input, evaluator of algorithms at these scalars as in
`robodyn.algorithms.relative_motion.OfLink`) -> scalars of every result."""


RunAlgorithm: TypeAlias = Callable[[Algorithm, Mapping[str, Array]], dict[str, Array]]
"""(algorithm, arrays (B, ...) by name, which include its inputs) -> arrays of its results."""
Placed: TypeAlias = Callable[[Array], Array]
"""Converts a NumPy array to one of the library of a call."""
ArrayText: TypeAlias = Callable[[Model, Mapping[str, Array], RunAlgorithm, Placed], Mapping[str, Array]]
"""(model, arrays (B, ...) of every input, runner of algorithms, placer of constants) -> arrays of every result."""


@dataclass(frozen=True, eq=False)
class ScalarTask(TaskBase):
    """A task defined by a function on scalars. Engines run it as one straight-line program or not at all.

    `given`: its inputs. `outputs`: its results. `text`: the function. `of`: makes the same task with other inputs.
    `on_arrays`: a faster implementation on arrays of states, or None. `least`: a rough lower bound of the operations of
    its program, or None if only a trace can tell. `constraint_query`: the query about constraints that it is
    (`robodyn.algorithms.constraints.sweeps.ConstraintQuery`), or None. `distance_query`: likewise
    (`robodyn.algorithms.distances.tasks.Measured`). `one_program`: True if an engine that compiles must not run it on
    arrays, where it would be far slower. `orders`: of derivatives of its program that are right, None for all.
    """

    name: str
    given: Mapping[str, Sized]
    outputs: Mapping[str, Sized]
    text: Text
    of: Callable[[tuple[str, ...]], ScalarTask] | None = None
    on_arrays: ArrayText | None = None
    least: Callable[[Model], int] | None = None
    constraint_query: Any = None
    distance_query: Any = None
    one_program: bool = False
    orders: int | None = None
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
        """The same with an armature, to which a step adds. An inertia is an input from the start, if at all."""
        return self if name == "inertia" else self.with_input(name)

    @property
    def budget(self) -> str:
        """The budget of gradients if operations are known without a trace, else that of queries."""
        return "query" if self.least is None else "gradient"

    def least_operations(self, model: Model) -> int | None:
        """The bound of `least`."""
        return None if self.least is None else self.least(model)


class Iterations(ScalarTask):
    """A scalar task that `Repeated` goes on from."""

    recurrent: ClassVar[bool] = True

    @property
    def budget(self) -> str:
        """That of gradients if operations are known without a trace."""
        return "iterations" if self.least is None else "gradient"


@dataclass(frozen=True, eq=False)
class Repeated(ScalarTask):
    """Iterations that go on for those states alone whose error is too large.

    `first`: the first iterations. `again`: those that go on: they have one more input, `start`, the result of that name
    of the iterations before. Both give the same results, of which `outputs` are some. `error`: the result that tells
    how far they are. `most`: how often `again` runs at most. A state whose error stays too large, and is no NaN, has
    NaN in its first result if the error is not among `outputs`.
    """

    first: Any = None
    again: Any = None
    start: str = ""
    error: str = ""
    most: int = 0

    @staticmethod
    def tolerance(dtype: np.dtype[Any]) -> float:
        """The error up to which a state is done."""
        return math.pow(np.finfo(dtype).eps, 0.75)


@dataclass(frozen=True, eq=False)
class AtAnswer(ScalarTask):
    """A task at what iterations find. `first`: the iterations, with one result, which is one more input of `then`: the
    task. Where they do not converge results are NaN."""

    first: Any = None
    then: Any = None


Result: TypeAlias = Output | Solution | Product | Stacked | Configuration | LikeInput | Sized
"""Results of tasks."""
StraightLine: TypeAlias = Step | Jvp | Vjp | ScalarTask
"""Tasks that engines run as one program or not at all."""
Task: TypeAlias = Algorithm | Chain | IdentitySeeds | StraightLine
"""Tasks that an engine runs."""
Traceable: TypeAlias = Task | StepPart | StepGradient
"""Tasks that can be one straight-line program."""


def on_inertia(task: Task) -> Task:
    """The same task with inertias as an input instead of the model's."""
    return cast(Task, _on_given(task, "inertia"))


def on_armature(task: Algorithm | Chain | ScalarTask) -> Algorithm | Chain | ScalarTask:
    """The same task with the armature of every degree of freedom as an input instead of the model's."""
    return cast("Algorithm | Chain | ScalarTask", _on_given(task, "armature"))


@cache
def _on_given(task: Any, name: str) -> Any:
    return task if name in task.inputs else task.on_given(name)


def cheapest(model: Model, task: Traceable, base: tuple[str, ...]) -> Traceable:
    """The task's floating-base variant if it has one and all trees of the model float freely; else the task.

    `base`: those of V0 and dV0 that are inputs of the call; variants have none.
    """
    return (
        task if task.floating_base_variant is None or base or not floats_freely(model) else task.floating_base_variant
    )


def mixed_precision(model: Model, task: Traceable) -> Traceable:
    """The task's chain for double precision, which takes fewer operations; the task itself where that does not apply.

    The chain applies if there is one, matrices have at most `_LARGE_MATRIX` rows, no joint mimics others, and armature
    is the model's.
    """
    if task.mixed_precision is None or "armature" in task.inputs or model.has_mimic or model.nv > _LARGE_MATRIX:
        return task
    return on_inertia(task.mixed_precision) if "inertia" in task.inputs else cast(Chain, task.mixed_precision)


def floats_freely(model: Model) -> bool:
    """True if every tree's first joint is a floating one, without armature or damping."""
    roots = model.parent < 0
    dofs = (model.v_start[roots, None] + np.arange(6)).ravel()
    if not roots.any() or (model.joint_kind[roots] != CODE["floating"]).any():
        return False
    return not model.tree_armature[dofs].any() and not model.tree_damping[dofs].any()


def floating_place(model: Model) -> list[int]:
    """Indices of the three position coordinates of the floating base of a model with one tree; else an empty list."""
    roots = np.flatnonzero(model.parent < 0)
    if len(roots) != 1 or model.joint_kind[roots[0]] != CODE["floating"]:
        return []
    start = int(model.q_start[roots[0]])
    return [int(place) for place in model.q_source[start : start + 3]]


class SymbolicFactor:
    """Entries of H = L' D L that can be nonzero in some state (RBDA section 6.5).

    `lower[k]` are the columns p < k of row k of L: on a tree without mimicking joints, the degrees of freedom on the
    path to the root; otherwise those and the fill-in.
    """

    def __init__(self, model: Model) -> None:
        pattern = coupled(model)
        self.pattern = pattern.copy()
        """(nv, nv): True where H can be nonzero."""
        self.lower: list[Array] = [np.empty(0, np.intp)] * model.nv
        for k in range(model.nv - 1, -1, -1):
            columns = np.flatnonzero(pattern[k, :k])
            pattern[np.ix_(columns, columns)] = True
            self.lower[k] = columns

    def reached(self, rows: Array) -> Array:
        """Where L^-T b can be nonzero, for b that is nonzero only where `rows` (nv, ...) is True."""
        reached: Array = rows.copy()
        for k in range(len(self.lower) - 1, -1, -1):
            reached[self.lower[k]] |= reached[k]
        return reached

    def operations(self, columns: int) -> int:
        """Approximate number of floating-point operations of a factorisation and of solves for n columns."""
        sizes = [len(row) for row in self.lower]
        return sum(size * (size + 2) + columns * (4 * size + 1) for size in sizes)


def coupled(model: Model) -> Array:
    """(nv, nv): True where the mass matrix can be nonzero, that is where one body is the other's ancestor."""
    pattern = np.zeros((model.nv, model.nv), dtype=bool)
    dofs = [model.v_source[start:end] for start, end in _ranges(model)]
    for i in range(model.n_bodies):
        path = np.concatenate([dofs[j] for j in model.tree.path(i)])
        pattern[np.ix_(dofs[i], path)] = True
        pattern[np.ix_(path, dofs[i])] = True
    return pattern


def on_paths(model: Model) -> Array:
    """(nv, n_bodies): True where a degree of freedom moves a body."""
    moves = np.zeros((model.nv, model.n_bodies), dtype=bool)
    dofs = [model.v_source[start:end] for start, end in _ranges(model)]
    for i, parent in enumerate(model.parent.tolist()):
        if parent >= 0:
            moves[:, i] = moves[:, parent]
        moves[dofs[i], i] = True
    return moves


def _ranges(model: Model) -> Iterator[tuple[int, int]]:
    ends = [*model.v_start.tolist()[1:], model.nv_tree]
    return zip(model.v_start.tolist(), ends, strict=True) if model.n_bodies else iter(())
