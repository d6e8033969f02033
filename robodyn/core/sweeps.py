"""Algorithms as data: fields on bodies, and sweeps over the tree that compute them.

Every recursion of rigid-body dynamics is a list of these sweeps:

- `World`: computes the world's fields, such as the base velocity V0, or turns sums of inward sweeps into results;
- `Outward`: root to leaves, computes a body's fields from its parent's;
- `Inward`: leaves to root, adds contributions of a body to its parent's fields;
- `Ancestors`: for a body i (every body, or the one that carries a link), visits j = i, parent(i), ... up to the root,
  carrying fields along;
- `Links`: computes one value per link from the fields of the link's body.

A sweep is data plus a pure step function. The step sees spatial quantities whose components are scalars of any kind
and must not branch on values, on the root or on the joint kind. Only engines allocate fields and choose the order
(bodies, levels, lanes). With `lanes=True` a step runs once per degree of freedom: its fields have one more axis, and
`body.unit` is 1 for the lane's own degree of freedom and 0 for every other.

Engines rely on one rule for lanes: the values that a lane step returns are linear in the lane's fields and in
`body.unit`, without a constant term. Other fields and the body's constants and inputs are its coefficients. Where the
lane's fields and `body.unit` are all zero the values are zero, and an engine may skip the step. The world is at rest in
every lane: `World` sweeps write zeros to fields that have lanes.

How to write an algorithm: docs/add_an_algorithm.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

from robodyn.core.joints import JointKind, Scalars
from robodyn.core.spatial import (
    IDENTITY,
    ZERO_ARTICULATED,
    ZERO_FORCE,
    ZERO_INERTIA,
    ZERO_MOTION,
    Force,
    Inertia,
    Motion,
    Scalar,
    Transform,
    Vec3,
)
from robodyn.internals.records import dataclass

if TYPE_CHECKING:
    from robodyn.algorithms.tasks import Chain, Products, Solve
    from robodyn.core.model import Model


@dataclass(frozen=True)
class FieldType:
    """How many scalars a field holds and how they are arranged.

    `template`: a value of the field (nested tuples). `copies(nv)`: number of such values on a body whose joint has nv
    degrees of freedom; None for exactly one, not wrapped in a tuple.
    """

    template: Any
    copies: Callable[[int], int] | None = None

    def size(self, nv: int) -> int:
        """Number of scalars on a body whose joint has nv degrees of freedom."""
        return len(flatten(self.template)) * (1 if self.copies is None else self.copies(nv))

    def build(self, scalars: Iterator[Scalar], nv: int) -> Any:
        """Arrange scalars into a value of the field."""
        if self.copies is None:
            return _build(self.template, scalars)
        return tuple(_build(self.template, scalars) for _ in range(self.copies(nv)))


def flatten(value: Any) -> list[Scalar]:
    """The scalars of a value, in order."""
    if not isinstance(value, tuple):
        return [value]
    scalars: list[Scalar] = []
    for part in value:
        if isinstance(part, tuple):
            scalars += flatten(part)
        else:
            scalars.append(part)
    return scalars


def _build(template: Any, scalars: Iterator[Scalar]) -> Any:
    if not isinstance(template, tuple):
        return next(scalars)
    parts = [_build(part, scalars) if isinstance(part, tuple) else next(scalars) for part in template]
    return type(template)(*parts) if hasattr(template, "_fields") else tuple(parts)


SCALAR = FieldType(0.0)
VECTOR3 = FieldType((0.0, 0.0, 0.0))
TRANSFORM = FieldType(IDENTITY)
POSE = FieldType((0.0,) * 16)
"""A homogeneous transform, row by row."""
MOTION = FieldType(ZERO_MOTION)
FORCE = FieldType(ZERO_FORCE)
INERTIA = FieldType(ZERO_INERTIA)
ARTICULATED = FieldType(ZERO_ARTICULATED)
DOFS = FieldType(0.0, lambda nv: nv)
"""One scalar per degree of freedom of the joint."""
DOF_MOTIONS = FieldType(ZERO_MOTION, lambda nv: nv)
DOF_FORCES = FieldType(ZERO_FORCE, lambda nv: nv)
DOF_VECTORS = FieldType((0.0, 0.0, 0.0), lambda nv: nv)
DOF_TRIANGLE = FieldType(0.0, lambda nv: nv * (nv + 1) // 2)
"""The lower triangle of a matrix over the joint's degrees of freedom, row by row."""
DOF_PAIRS = FieldType(0.0)
"""A block of a matrix over degrees of freedom, a tuple of rows. Only `Ancestors` writes it, only outputs read it."""
DOF_PAIR_MOTIONS = FieldType(ZERO_MOTION)
"""Like `DOF_PAIRS`, with motions as entries."""
DOF_ROWS = FieldType(0.0)
"""A block with a row per degree of freedom, and the same number of columns for each body or link; like `DOF_PAIRS`."""

INPUTS = (
    "q",
    "qd",
    "qdd",
    "tau",
    "vector",
    "f_ext",
    "inertia",
    "armature",
    "point",
    "targets",
    "active",
    "restitution",
    "row_restitution",
    "row_velocity",
    "row_acceleration",
)
"""Inputs of tasks, in the order in which engines take them; V0 and dV0 follow. Algorithms use those up to "point"."""
PER_VELOCITY = ("qd", "qdd", "tau", "vector", "armature")
"""Inputs with a number per degree of freedom. Mimicking joints have no `armature` of their own: on robots with such
joints only matrices, which add it on the diagonal, may read it."""
POINT = 3
"""Numbers of a "point" on the query's link, in the link's frame (m): algorithms with this input see the link there."""
PER_BODY = {"f_ext": 6, "inertia": 10}
"""Inputs with a row per body, and the length of a row."""
PER_ROW = ("row_restitution", "row_velocity", "row_acceleration")
"""Inputs with a number per row of the constraints."""


class Body(Protocol):
    """A step's view of a body: its row of the joint table, its constants, its share of the inputs.

    `joint`: the row; `S`: columns of the motion subspace, as many as the joint has degrees of freedom; `Xtree`: from
    the parent's frame to the joint's; `inertia`: in the body's frame; `armature`, `qd`, `qdd`, `tau`, `vector`, `unit`:
    one scalar per degree of freedom; `q`: one per coordinate; `f_ext`: in world coordinates. `vector` is a velocity, by
    which an algorithm multiplies generalised forces. Inputs that the algorithm does not list are zero, except
    `inertia` and `armature`, which are then the model's. `unit` has a meaning in lanes only.
    """

    joint: JointKind
    S: tuple[Motion, ...]
    Xtree: Transform
    inertia: Inertia
    pitch: Scalar
    armature: Scalars
    q: Scalars
    qd: Scalars
    qdd: Scalars
    tau: Scalars
    vector: Scalars
    f_ext: Force
    unit: Scalars


class WorldInputs(Protocol):
    """A step's view of the world: base velocity and acceleration (world coordinates) and gravity."""

    V0: Motion
    dV0: Motion
    gravity: Vec3


class LinkConstants(Protocol):
    """A step's view of a link: the transform X from its body's frame to its own.

    For algorithms with the input "point", X leads to a frame parallel to the link's at that point.
    """

    X: Transform


Fields: TypeAlias = Any
"""A view of one body's fields: those that a sweep declares, as attributes."""
Written: TypeAlias = Mapping[str, Any]
"""Values of fields, by name."""


@dataclass(frozen=True)
class World:
    """`step(world, own) -> writes` on the world's fields; `own` holds sums of inward sweeps."""

    step: Callable[[WorldInputs, Fields], Written]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outward:
    """`step(body, own, parent) -> writes`, parents first; `carries` are the parent's fields that it sees."""

    step: Callable[[Body, Fields, Fields], Written]
    reads: tuple[str, ...] = ()
    carries: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    lanes: bool = False


@dataclass(frozen=True)
class Inward:
    """`step(body, own) -> (writes, gives)`, children first; `gives` is added to the parent's fields of that name.

    A parent's field starts from the value that an earlier sweep wrote there, or from zero.
    """

    step: Callable[[Body, Fields], tuple[Written, Written]]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    lanes: bool = False


@dataclass(frozen=True)
class Ancestors:
    """For a body i: `start(body, own, link) -> carry`, then for j = i and each ancestor of i in turn
    `visit(body_j, own_j, body_i, own_i, carry) -> (values, carry)`.

    With `of_link` only the body of the query's link starts, and values belong to j. With `of_links` every link starts
    at its body, and values are blocks with the same number of columns for every link (`LinkColumnOutput`). Otherwise
    every body starts, and values are blocks whose rows are the degrees of freedom of j. Their columns are the degrees
    of freedom of i (`PairOutput`), or the same number for every body (`BodyOutput`).
    """

    start: Callable[[Body, Fields, LinkConstants], Written]
    visit: Callable[[Body, Fields, Body, Fields, Fields], tuple[Written, Written]]
    reads: tuple[str, ...] = ()
    carries: tuple[str, ...] = ()
    visits: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    of_link: bool = False
    of_links: bool = False

    @property
    def from_links(self) -> bool:
        """True if it starts from links, the query's or all, and not from bodies."""
        return self.of_link or self.of_links


@dataclass(frozen=True)
class Links:
    """`step(link, own) -> writes` for every link, with `of_link` for the query's only; `own`: its body's fields."""

    step: Callable[[LinkConstants, Fields], Written]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    of_link: bool = False


Sweep: TypeAlias = World | Outward | Inward | Ancestors | Links
"""Any of the five kinds of sweeps."""


@dataclass(frozen=True)
class WorldOutput:
    """The world's value of a field, of the given array shape."""

    field: str
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class LinkOutput:
    """A field of the links: (n_links, *shape), or (*shape) with `of_link`."""

    field: str
    shape: tuple[int, ...] = ()
    of_link: bool = False


@dataclass(frozen=True)
class FieldOutput:
    """A field of the bodies: (n_bodies, *shape), or with `flat` as one vector."""

    field: str
    shape: tuple[int, ...] = ()
    flat: bool = False


@dataclass(frozen=True)
class DofOutput:
    """A field of DOFS as (nv,), or as (nv, nv) for a lane field (columns are lanes).

    `force=True`: a generalised force, to which a mimicking joint contributes through its multiplier. Otherwise a
    generalised motion, which exists only on robots without mimicking joints.
    """

    field: str
    force: bool = True
    lanes: bool = False


@dataclass(frozen=True)
class ColumnOutput:
    """A field of DOF_MOTIONS or DOF_FORCES as (6, nv), or one of DOF_VECTORS as (3, nv); with `transposed` as (nv, 6)
    or (nv, 3)."""

    field: str
    rows: int = 6
    transposed: bool = False


@dataclass(frozen=True)
class PairBlocks:
    """Blocks of one field of an `Ancestors` sweep, whose rows are j's degrees of freedom and whose columns are i's.

    `transposed`: puts the transposed block at (i, j). `diagonal`: True if the block of j = i counts.
    """

    field: str
    transposed: bool = False
    diagonal: bool = True


@dataclass(frozen=True)
class PairOutput:
    """A matrix (nv, nv) filled by blocks of an `Ancestors` sweep; (rows, nv, nv) if an entry has `rows` scalars.

    `diagonal`: "armature" or "damping", coefficients of the model that are added on the diagonal.
    """

    blocks: tuple[PairBlocks, ...]
    diagonal: str | None = None
    rows: int | None = None


@dataclass(frozen=True)
class BodyOutput:
    """A matrix (nv, n_bodies, width) filled by blocks of an `Ancestors` sweep: rows are j's degrees of freedom, columns
    are the `width` of body i, zero where j is no ancestor of i; with `flat` as (nv, n_bodies width). Rows are
    generalised forces, to which a mimicking joint contributes through its multiplier.
    """

    field: str
    width: int
    flat: bool = False


@dataclass(frozen=True)
class LinkColumnOutput:
    """Matrices (n_links, rows, nv) filled by blocks of an `Ancestors` sweep from every link: columns are the degrees of
    freedom of j, zero where the link does not move with j."""

    field: str
    rows: int = 6


Output: TypeAlias = (
    WorldOutput | LinkOutput | FieldOutput | DofOutput | ColumnOutput | PairOutput | BodyOutput | LinkColumnOutput
)
"""Any of the eight kinds of outputs."""


NamedScalars: TypeAlias = Mapping[str, Sequence[Scalar]]
"""Scalars in C order of arrays of one state, by the arrays' names."""


class Tracer(Protocol):
    """Traces tasks as one program on a model, about a link if `link` is not None."""

    model: Model
    link: int | None

    def on_base(self, moves: tuple[str, ...]) -> Tracer:
        """The same tracer where V0, dV0 or both are given."""

    def own(self, task: Any, given: NamedScalars) -> NamedScalars:
        """Results of a task at scalars of its inputs, by the tracer's implementation of this kind of task."""


class TaskBase:
    """Properties that all kinds of tasks, and the stages of chains, have; the values here are defaults.

    `floating_base_variant`: a cheaper chain for robots with floating bases, or None. `mixed_precision`: an equivalent
    chain of fewer operations that loses digits, which only double precision can spare, or None. `recurrent`: True if
    its results are inputs of the next call. `extra`: inputs whose shapes do not follow from their names, each with an
    output of the same shape."""

    floating_base_variant: Chain | None = None
    mixed_precision: Any = None
    recurrent: ClassVar[bool] = False

    @property
    def traceable(self) -> bool:
        """True if it can be traced as one program."""
        return True

    @property
    def budget(self) -> str:
        """The limit of operations of a program, by its name in `robodyn.internals.tuning.MAX_OPERATIONS`."""
        return "query"

    @property
    def fallback(self) -> Literal["loops", "parts"] | None:
        """How it runs if not as one program: by loops over bodies, as kernels of its parts, or (None) not at all."""
        return None

    def least_operations(self, model: Model) -> int | None:
        """A rough lower bound of the operations of its program, or None if only a trace can tell."""
        return None

    @property
    def extra(self) -> Mapping[str, Any]:
        """Described in the class."""
        return {}

    @property
    def unit_input(self) -> str | None:
        """The input for which it runs at every unit vector, or None."""
        return None

    @property
    def solves(self) -> tuple[Solve, ...]:
        """The solves of a chain; none for other tasks."""
        return ()

    def in_stages(self) -> tuple[Stage | Solve | Products, ...]:
        """Stages that compute it one after another, for each unit vector if it has a `unit_input`.

        Empty for tasks that run as one program only.
        """
        return ()

    def calls(self, model: Model) -> tuple[int, Any]:
        """(number of evaluations, task) of the task that it evaluates; (1, itself) if there is no other."""
        return 1, self

    def on_given(self, name: str) -> Any:
        """The same task with "inertia" or "armature" as an input instead of the model's numbers."""
        return self

    def trace(self, tracer: Tracer, given: NamedScalars) -> NamedScalars:
        """Results at scalars of its inputs."""
        return tracer.own(self, given)


@dataclass(frozen=True, eq=False)
class Algorithm(TaskBase):
    """A named list of sweeps over declared fields. `inputs`: those of `INPUTS` that its steps read; others read as
    zero, `inertia` and `armature` as the model's. Algorithms are compared by identity.

    `mixed_precision`: an equivalent `Chain` of fewer operations that loses digits, which only double precision can
    spare, or None."""

    name: str
    inputs: tuple[str, ...]
    fields: Mapping[str, FieldType]
    sweeps: tuple[Sweep, ...]
    outputs: Mapping[str, Output] = field(default_factory=dict)
    mixed_precision: Any = None

    @property
    def fallback(self) -> Literal["loops"]:
        """Every engine has loops over bodies."""
        return "loops"

    def in_stages(self) -> tuple[Stage, ...]:
        """One stage, the algorithm."""
        return (Stage(self),)

    def on_given(self, name: str) -> Algorithm:
        """The same with an input instead of the model's numbers."""
        return with_given(self, name)


@dataclass(frozen=True, eq=False)
class Stage:
    """An algorithm of a chain. `names` maps its outputs, and `reads` its inputs, to the chain's names where they
    differ."""

    algorithm: Algorithm
    names: Mapping[str, str] = field(default_factory=dict)
    reads: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The chain's names of its inputs, in the order of the algorithm's inputs."""
        return tuple(self.reads.get(name, name) for name in self.algorithm.inputs)

    @property
    def outputs(self) -> dict[str, Output]:
        """Its outputs by the chain's names."""
        return {self.names.get(name, name): output for name, output in self.algorithm.outputs.items()}

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Sweeps of the algorithm."""
        return self.algorithm.sweeps

    def on_given(self, name: str) -> Stage:
        """The same with an input instead of the model's numbers."""
        return replace(self, algorithm=with_given(self.algorithm, name))

    def trace(self, tracer: Tracer, given: NamedScalars) -> NamedScalars:
        """Results at scalars of its inputs; both by the chain's names."""
        renamed = {name: given[other] for name, other in self.reads.items()}
        results = self.algorithm.trace(tracer, {**given, **renamed})
        return {self.names.get(name, name): scalars for name, scalars in results.items()}


@cache
def with_given(algorithm: Algorithm, name: str) -> Algorithm:
    """The same algorithm with an additional input: "inertia" or "armature" instead of the model's numbers, or a "point"
    on the query's link instead of its origin."""
    if name in algorithm.inputs:
        return algorithm
    return replace(algorithm, name=f"{algorithm.name}_{name}", inputs=(*algorithm.inputs, name))
