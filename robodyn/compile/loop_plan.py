"""Language-independent data of loop code: array sizes, traits of a robot, names of a step's subjects, and the (body,
lane) pairs whose lane fields can be nonzero."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from robodyn.algorithms.tasks import Sized
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.sweeps import (
    Algorithm,
    Ancestors,
    BodyOutput,
    ColumnOutput,
    DofOutput,
    FieldOutput,
    FieldType,
    Inward,
    LinkColumnOutput,
    LinkOutput,
    Links,
    Outward,
    PairOutput,
    World,
    WorldOutput,
)
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass

ZERO_SLOT, SPARE_SLOT = 0, 1
"""Two extra rows of a lane field. The row ZERO_SLOT stays zero; bodies without a parent add to the row SPARE_SLOT."""
_LARGEST_NV = max(kind.nv for kind in KINDS)
_MAX_LANE_PAIRS = 1 << 27
CONSTANT_ROWS = {"Xtree": 12, "inertia": 10, "pitch": 1, "X": 12}
"""Arrays of constants with one row for each body (or link), and the number of scalars in a row."""


@dataclass(frozen=True)
class Traits:
    """The traits of a robot for which loop code is compiled: its joint kinds (rows of the joint table), whether any
    joint has armature, and whether any joint mimics another."""

    kinds: tuple[int, ...]
    armature: bool
    mimic: bool

    @property
    def single(self) -> bool:
        """True if every joint has one coordinate and one velocity. Bodies, coordinates and velocities then share one
        index."""
        return all(KINDS[code].nq == KINDS[code].nv == 1 for code in self.kinds)


def traits_of(model: Model) -> Traits:
    """The traits of a model."""
    kinds = tuple(np.unique(model.joint_kind).tolist())
    return Traits(kinds, armature=bool(model.tree_armature.any()), mimic=model.has_mimic)


@dataclass
class Scope:
    """Names of the variables that hold a step's subjects: body indices, link, lane and slots. "-1" is the world."""

    self_: str = "-1"
    parent: str = "-1"
    first: str = "-1"
    link: str = ""
    link_row: str = ""
    lane: str = ""
    own_slot: str = ""
    parent_slot: str = ""

    def body(self, subject: str) -> str:
        """The body index of a subject."""
        return {"self": self.self_, "parent": self.parent, "first": self.first, "world": "-1"}[subject]


def is_block(algorithm: Algorithm, name: str) -> bool:
    """Whether a field only holds the blocks of a matrix. No array stores such a field."""
    return any(
        isinstance(sweep, Ancestors) and not sweep.of_link and name in sweep.writes for sweep in algorithm.sweeps
    )


def lane_fields(algorithm: Algorithm) -> set[str]:
    """Fields that have a value for each lane."""
    return {
        name
        for sweep in algorithm.sweeps
        if isinstance(sweep, Outward | Inward) and sweep.lanes
        for name in (*sweep.writes, *getattr(sweep, "gives", ()))
    }


def link_fields(algorithm: Algorithm) -> set[str]:
    """Fields that belong to links."""
    return {name for sweep in algorithm.sweeps if isinstance(sweep, Links) for name in sweep.writes}


def per_velocity(field_type: FieldType) -> int:
    """Scalars that a field with a value for each degree of freedom takes per velocity."""
    return max(-(-field_type.size(kind.nv) // kind.nv) for kind in KINDS)


def lane_size(field_type: FieldType) -> int:
    """Scalars that a lane field needs for one body and one lane."""
    return field_type.size(_LARGEST_NV)


def must_be_zeroed(algorithm: Algorithm) -> dict[str, str]:
    """Fields that must hold zeros before the sweeps run, because a sweep reads entries that none has written: "all"
    entries, or only the row of the "world"."""
    lanes, links = lane_fields(algorithm), link_fields(algorithm)
    written: set[str] = set()
    zeroed = {name: "world" for name, each in algorithm.fields.items() if each.copies is None}
    for sweep in algorithm.sweeps:
        reads = (*sweep.reads, *getattr(sweep, "carries", ()), *getattr(sweep, "gives", ()))
        if isinstance(sweep, Ancestors):
            reads = (*sweep.reads, *sweep.visits)
            zeroed.update({name: "all" for name in sweep.writes if sweep.of_link})
        elif isinstance(sweep, Outward):
            reads = sweep.reads
        elif isinstance(sweep, World):
            continue
        zeroed.update({name: "all" for name in reads if name not in written})
        written |= set(sweep.writes)
    return {name: how for name, how in zeroed.items() if name not in lanes | links}


class LaneSchedule:
    """For each lane sweep, the (body, lane) pairs that it visits, in order. Each pair has a slot in the lane fields.

    A lane step is linear in the lane's fields and in `body.unit`. It is skipped where all of these are zero.
    """

    def __init__(self, model: Model, algorithm: Algorithm) -> None:
        self.model, self.algorithm = model, algorithm
        n, lanes = model.n_bodies, model.nv_tree
        if n * lanes > _MAX_LANE_PAIRS:
            raise UnavailableError(
                f"{algorithm.name}: {n} bodies with {lanes} degrees of freedom give a result of more than "
                f"{_MAX_LANE_PAIRS} entries; the largest tree for it has about {int(_MAX_LANE_PAIRS**0.5)} bodies"
            )
        names = lane_fields(algorithm)
        self.active = {name: np.zeros((n, lanes), dtype=bool) for name in names}
        self.unit = np.zeros((n, lanes), dtype=bool)
        nv = np.array([kind.nv for kind in KINDS])[model.joint_kind]
        self.unit[np.repeat(np.arange(n), nv), np.arange(lanes)] = True
        self.zeroed: set[str] = set()
        visited: list[tuple[int, Array, bool]] = []
        for k, sweep in enumerate(algorithm.sweeps):
            if isinstance(sweep, Outward) and sweep.lanes:
                visited.append((k, self._outward(sweep), False))
            elif isinstance(sweep, Inward) and sweep.lanes:
                visited.append((k, self._inward(sweep), True))
        self.slots = np.zeros((n, lanes), dtype=np.int64)
        either = np.zeros((n, lanes), dtype=bool)
        for _, pairs, _ in visited:
            either |= pairs
        self.slots[either] = np.arange(2, 2 + np.count_nonzero(either))
        self.n_slots = 2 + int(np.count_nonzero(either))
        self.pairs = {k: self._table(pairs, inward) for k, pairs, inward in visited}

    def _any(self, names: Iterable[str]) -> Array:
        active = np.zeros_like(self.unit)
        for name in names:
            if name in self.active:
                active |= self.active[name]
        return active

    def _note_unwritten(self, names: Iterable[str], pairs: Array) -> None:
        """Record fields that a sweep reads at pairs where no sweep has written: they must hold zeros there."""
        self.zeroed |= {name for name in names if name in self.active and (pairs & ~self.active[name]).any()}

    def _outward(self, sweep: Outward) -> Array:
        pairs = self.unit | self._any(sweep.reads)
        carried = self._any(set(sweep.carries) - set(sweep.writes))
        for i, parent in enumerate(self.model.parent.tolist()):
            if parent >= 0:
                pairs[i] |= carried[parent]
                if set(sweep.carries) & set(sweep.writes) & set(self.active):
                    pairs[i] |= pairs[parent]
        self._note_unwritten(sweep.reads, pairs)
        for name in sweep.writes:
            self.active[name] = self.active[name] | pairs
        above = pairs & (self.model.parent >= 0)[:, None]
        parents = np.zeros_like(pairs)
        np.logical_or.at(parents, self.model.parent[above.any(axis=1)], above[above.any(axis=1)])
        self._note_unwritten(sweep.carries, parents)
        return pairs

    def _inward(self, sweep: Inward) -> Array:
        pairs = self.unit | self._any(sweep.reads)
        parents = self.model.parent.tolist()
        for i in range(self.model.n_bodies - 1, -1, -1):
            if parents[i] >= 0:
                pairs[parents[i]] |= pairs[i]
        self._note_unwritten((*sweep.reads, *sweep.gives), pairs)
        for name in (*sweep.writes, *sweep.gives):
            self.active[name] = self.active[name] | pairs
        return pairs

    def _table(self, pairs: Array, inward: bool) -> Array:
        """Table (m, 4) of the visits: body, lane, the pair's slot, and the slot of the parent in the same lane."""
        body, lane = np.nonzero(pairs)
        if inward:
            body, lane = body[::-1], lane[::-1]
        parent = self.model.parent[body]
        at_world = SPARE_SLOT if inward else ZERO_SLOT
        above = np.where(parent >= 0, self.slots[parent, lane], at_world)
        return np.stack([body, lane, self.slots[body, lane], above], axis=1).astype(np.int64)


@dataclass
class Gather:
    """Computes an output as sums over a field: out[pairs[k, 1]] += weight[k] * field[pairs[k, 0]]."""

    field: str
    pairs: Array
    weight: Array
    size: int


class RolledPlan:
    """Sizes and index arrays of one algorithm on one model.

    `mimic`: True if the loop code supports mimicking joints; the model need not have any.
    """

    def __init__(
        self, model: Model, algorithm: Algorithm, base: tuple[str, ...], link: int | None, mimic: bool
    ) -> None:
        self.model, self.algorithm, self.base, self.link, self.mimic = model, algorithm, base, link, mimic

    @cached_property
    def lanes(self) -> LaneSchedule | None:
        """The schedule of the lane sweeps, or None if there are none."""
        return LaneSchedule(self.model, self.algorithm) if lane_fields(self.algorithm) else None

    @cached_property
    def integers(self) -> dict[str, int]:
        """Integers that the loop code reads at run time, by name."""
        model = self.model
        integers = {
            "n_bodies": model.n_bodies,
            "nv": model.nv,
            "n_links": len(model.link_names),
            "link": -1 if self.link is None else self.link,
        }
        for k, table in ({} if self.lanes is None else self.lanes.pairs).items():
            integers[f"n_pairs {k}"] = len(table)
        for name, gather in self.gathers.items():
            integers[f"n_gather {name}"] = len(gather.weight)
        return integers

    def field_vectors(self, name: str, stored: int) -> int:
        """Number of vectors in a field's array. `stored`: number of stored vectors of a plain field for one body."""
        each, model = self.algorithm.fields[name], self.model
        if self.lanes is not None and name in lane_fields(self.algorithm):
            return self.lanes.n_slots * lane_size(each)
        if name in link_fields(self.algorithm):
            return len(model.link_names) * each.size(0)
        if each.copies is not None:
            return model.nv_tree * per_velocity(each)
        return (model.n_bodies + 1) * stored

    @cached_property
    def gathers(self) -> dict[str, Gather]:
        """Outputs that are sums over a field instead of the field itself."""
        gathers = {}
        for name, output in self.algorithm.outputs.items():
            if isinstance(output, ColumnOutput):
                gathers[name] = self._columns(output)
            elif isinstance(output, FieldOutput):
                gathers[name] = self._bodies(output)
            elif isinstance(output, DofOutput) and output.lanes:
                gathers[name] = self._lane_columns(output)
            elif isinstance(output, DofOutput) and self.mimic:
                v = np.arange(self.model.nv_tree)
                pairs = np.stack([v, self.model.v_source], axis=1)
                gathers[name] = Gather(output.field, pairs, self.model.v_multiplier, self.model.nv)
        return gathers

    def _columns(self, output: ColumnOutput) -> Gather:
        model = self.model
        v, p = (index.ravel() for index in np.indices((model.nv_tree, output.rows)))
        column = model.v_source[v]
        place = column * output.rows + p if output.transposed else p * model.nv + column
        pairs = np.stack([output.rows * v + p, place], axis=1)
        return Gather(output.field, pairs, model.v_multiplier[v], output.rows * model.nv)

    def _bodies(self, output: FieldOutput) -> Gather:
        """All rows of a field except the first, which belongs to the world."""
        each = self.algorithm.fields[output.field].size(0)
        k = np.arange(self.model.n_bodies * each)
        return Gather(output.field, np.stack([each + k, k], axis=1), np.ones(k.size), k.size)

    def _lane_columns(self, output: DofOutput) -> Gather:
        model, lanes = self.model, self.lanes
        assert lanes is not None
        body, lane = np.nonzero(lanes.active[output.field])
        nv = np.array([kind.nv for kind in KINDS])[model.joint_kind][body]
        visits = np.repeat(np.arange(body.size), nv)
        c = np.arange(visits.size) - np.repeat(np.cumsum(nv) - nv, nv)
        v, column = model.v_start[body[visits]] + c, lane[visits]
        size = lane_size(self.algorithm.fields[output.field])
        source = lanes.slots[body[visits], column] * size + c
        target = model.v_source[v] * model.nv + model.v_source[column]
        weight = model.v_multiplier[v] * model.v_multiplier[column]
        return Gather(output.field, np.stack([source, target], axis=1), weight, model.nv**2)

    def output_vectors(self, name: str) -> int:
        """Number of vectors in an output's own array; 0 if the output is the array of a field."""
        output = self.algorithm.outputs[name]
        if isinstance(output, PairOutput):
            return (output.rows or 1) * self.model.nv**2
        if isinstance(output, BodyOutput):
            return self.model.nv * self.model.n_bodies * output.width
        if isinstance(output, LinkColumnOutput):
            return len(self.model.link_names) * output.rows * self.model.nv
        if isinstance(output, Sized):
            return math.prod(output.shape(self.model))
        return self.gathers[name].size if name in self.gathers else 0

    def output_columns(self, name: str) -> int:
        """Number of scalars in the result of one state."""
        output, model = self.algorithm.outputs[name], self.model
        own = self.output_vectors(name)
        if own:
            return own
        if isinstance(output, WorldOutput | LinkOutput):
            size = self.algorithm.fields[output.field].size(0)
            many = isinstance(output, LinkOutput) and not output.of_link
            return size * (len(model.link_names) if many else 1)
        return model.nv
