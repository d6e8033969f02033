"""What an algorithm is: fields that live on bodies, and sweeps over the tree that fill them.

Every recursion of rigid-body dynamics is a list of these sweeps:

- `World`: fills the world's own fields, such as the base velocity V0, or turns totals that arrived there into results;
- `Outward`: root to leaves, a body's fields from its parent's;
- `Inward`: leaves to root, what a body hands to its parent, summed there;
- `Ancestors`: for a body i (every body, or the one that carries a link), visit j = i, parent(i), ... up to the root,
  carrying fields along;
- `Links`: one value per link from the fields of the body it is fixed to.

A sweep is data plus a pure step function. The step sees spatial quantities whose components are scalars of any kind
and must not branch on values, on the root or on the joint kind. Engines alone allocate fields and choose the order
(bodies, levels, lanes). With `lanes=True` a step runs once per degree of freedom: its fields have one more axis, and
`body.unit` is 1 for the lane's own degree of freedom and 0 for every other.

Engines rely on one rule for lanes: what a lane step writes and gives is linear in the lane's fields and in `body.unit`,
without a constant term; other fields and the body's constants and inputs are its coefficients. Where the lane's fields
and `body.unit` are all zero, so is what it writes, and an engine may skip it. The world is at rest in every lane: what
`World` sweeps write to fields that have lanes is zero.

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

    `template` is a value of the field (nested tuples); `copies(nv)` says how many of it a body has whose joint has
    nv degrees of freedom, or is None for exactly one, not wrapped in a tuple.
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
"""A block of a matrix over degrees of freedom, a tuple of rows; only `Ancestors` writes it, only outputs read it."""
DOF_PAIR_MOTIONS = FieldType(ZERO_MOTION)
"""The same, whose entries are motions."""
DOF_ROWS = FieldType(0.0)
"""A block of a matrix with a row for each degree of freedom and some columns for each body: likewise."""

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
)
"""Inputs that a task can have, in the order in which engines take them; V0 and dV0 come after them. Algorithms list
those up to "point"."""
PER_VELOCITY = ("qd", "qdd", "tau", "vector", "armature")
"""Inputs that have a number for each degree of freedom. Of `armature`, joints that mimic others have no share of their
own: on robots that have such joints only matrices, which add it on the diagonal, may read it."""
POINT = 3
"""Numbers of a "point" on the query's link, in the link's frame: algorithms that list it see the link there."""
PER_BODY = {"f_ext": 6, "inertia": 10}
"""Inputs that have a row for each body, and the numbers of a row."""


class Body(Protocol):
    """What a step sees of a body: its row of the joint table, its constants, its share of the inputs.

    `joint`: the row; `S`: columns of the motion subspace, as many as the joint has degrees of freedom; `Xtree`: from
    the parent's frame to the joint's; `inertia`: in the body's frame; `armature`, `qd`, `qdd`, `tau`, `vector`, `unit`:
    one scalar per degree of freedom; `q`: one per coordinate; `f_ext`: in world coordinates. `vector` is what an
    algorithm multiplies generalised forces with, and so a velocity. Inputs that the algorithm does not list are zero,
    but for `inertia` and `armature`, which are then the model's; `unit` has a meaning in lanes alone.
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
    """What a step sees of the world: base velocity and acceleration (world coordinates) and gravity."""

    V0: Motion
    dV0: Motion
    gravity: Vec3


class LinkConstants(Protocol):
    """What a step sees of a link: the transform from its body's frame to its own, or to axes like its own at the point
    that the algorithm lists."""

    X: Transform


Fields: TypeAlias = Any
"""A view of one body's fields: those a sweep declares, as attributes."""
Written: TypeAlias = Mapping[str, Any]
"""Values of fields, by name."""


@dataclass(frozen=True)
class World:
    """`step(world, own) -> writes` on the world's fields; `own` holds totals that inward sweeps left there."""

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

    A field that is given starts from what an earlier sweep wrote there, or from zero.
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

    `of_link` starts only at the body of the query's link, and values belong to j; otherwise every body starts, and
    values are blocks whose rows are the degrees of freedom of j and whose columns are those of i (`PairOutput`), or are
    as many for every body (`BodyOutput`). `of_links` starts from every link, at its body, and values are blocks whose
    columns are as many for every link (`LinkColumnOutput`).
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
        """Whether it starts from links, the query's or all, and not from bodies."""
        return self.of_link or self.of_links


@dataclass(frozen=True)
class Links:
    """`step(link, own) -> writes` for every link, or with `of_link` for the query's link alone; `own` is the body's."""

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

    `force=True`: a generalised force, to which a mimicking joint contributes through its multiplier; otherwise a
    generalised motion, which exists only where every joint has a coordinate of its own.
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

    `transposed` puts the transposed block at (i, j); `diagonal` says whether the block of j = i counts.
    """

    field: str
    transposed: bool = False
    diagonal: bool = True


@dataclass(frozen=True)
class PairOutput:
    """A matrix (nv, nv) filled by blocks of an `Ancestors` sweep, or `rows` such matrices
    (rows, nv, nv), where entries are values of that many scalars.

    `diagonal`: "armature" or "damping", the model's numbers to be added on the diagonal.
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
    """What traces tasks as one program on a model, perhaps about a link; it has a text for most kinds of tasks."""

    model: Model
    link: int | None

    def own(self, task: Any, given: NamedScalars) -> NamedScalars:
        """Results of a task at scalars of its inputs, by the text for its kind."""


class TaskBase:
    """What all kinds of tasks, and the stages of chains, answer for themselves, as most of them answer it.

    `floating_base_variant`: a cheaper chain for robots that float freely, if there is one; `mixed_precision`: a chain
    that does the same in fewer operations and loses digits that double precision has to spare, if there is one;
    `recurrent`: whether its results are inputs of the next call; `extra`: inputs whose shapes do not follow from their
    names, by outputs of the same shape."""

    floating_base_variant: Chain | None = None
    mixed_precision: Any = None
    recurrent: ClassVar[bool] = False

    @property
    def traceable(self) -> bool:
        """Whether it may be one program at all."""
        return True

    @property
    def budget(self) -> str:
        """The limit of operations of a program, by its name in `robodyn.internals.tuning.MAX_OPERATIONS`."""
        return "query"

    @property
    def fallback(self) -> Literal["loops", "parts"] | None:
        """How it runs where it is not one program: by loops over bodies, as kernels of its parts, or not at all."""
        return None

    def least_operations(self, model: Model) -> int | None:
        """About how many operations a program has at least, where that is known without a trace."""
        return None

    @property
    def extra(self) -> Mapping[str, Any]:
        """See above."""
        return {}

    @property
    def unit_input(self) -> str | None:
        """The input of which it runs at every unit vector, if there is one."""
        return None

    @property
    def solves(self) -> tuple[Solve, ...]:
        """Those of a chain."""
        return ()

    def in_stages(self) -> tuple[Stage | Solve | Products, ...]:
        """What does it in steps, one after another (at each unit vector); none where it is a program or nothing."""
        return ()

    def calls(self, model: Model) -> tuple[int, Any]:
        """How often it evaluates another task, and which; once itself where there is no other."""
        return 1, self

    def on_given(self, name: str) -> Any:
        """The same on an "inertia" or "armature" that is an input instead of the model's."""
        return self

    def trace(self, tracer: Tracer, given: NamedScalars) -> NamedScalars:
        """Results at scalars of its inputs."""
        return tracer.own(self, given)


@dataclass(frozen=True, eq=False)
class Algorithm(TaskBase):
    """A named list of sweeps over declared fields. `inputs` are those of `INPUTS` that its steps read; one that is not
    listed reads as zero, `inertia` and `armature` as the model's. Two algorithms are the same if they are one
    object.

    `mixed_precision`: a `Chain` that does the same in fewer operations and loses digits that double precision has to
    spare, if there is one."""

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
        """One."""
        return (Stage(self),)

    def on_given(self, name: str) -> Algorithm:
        """The same on an input instead of the model's numbers."""
        return with_given(self, name)


@dataclass(frozen=True, eq=False)
class Stage:
    """An algorithm of a chain; `names` are what the chain calls its outputs, `reads` its inputs, where that differs."""

    algorithm: Algorithm
    names: Mapping[str, str] = field(default_factory=dict)
    reads: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[str, ...]:
        """What it reads as the chain calls it, in the order of the algorithm's inputs."""
        return tuple(self.reads.get(name, name) for name in self.algorithm.inputs)

    @property
    def outputs(self) -> dict[str, Output]:
        """Its outputs as the chain calls them."""
        return {self.names.get(name, name): output for name, output in self.algorithm.outputs.items()}

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Those of the algorithm."""
        return self.algorithm.sweeps

    def on_given(self, name: str) -> Stage:
        """The same on an input instead of the model's numbers."""
        return replace(self, algorithm=with_given(self.algorithm, name))

    def trace(self, tracer: Tracer, given: NamedScalars) -> NamedScalars:
        """Results at scalars of what it reads, all by the chain's names."""
        read = {name: given[other] for name, other in self.reads.items()}
        found = self.algorithm.trace(tracer, {**given, **read})
        return {self.names.get(name, name): scalars for name, scalars in found.items()}


@cache
def with_given(algorithm: Algorithm, name: str) -> Algorithm:
    """The same algorithm on an "inertia" or an "armature" that is an input instead of the model's, or about a "point"
    on the query's link instead of its origin."""
    if name in algorithm.inputs:
        return algorithm
    return replace(algorithm, name=f"{algorithm.name}_{name}", inputs=(*algorithm.inputs, name))
