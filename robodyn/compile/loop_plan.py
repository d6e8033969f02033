"""What rolled code needs beside its text, whatever the language.

Sizes, traits of a robot, names of what steps are about, and which lanes of which bodies can be nonzero.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

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
"""Rows of a lane field that are unused: one is zero, the other takes what bodies hand to the world."""
_LARGEST_NV = max(kind.nv for kind in KINDS)
_MAX_LANE_PAIRS = 1 << 27
CONSTANT_ROWS = {"Xtree": 12, "inertia": 10, "pitch": 1, "X": 12}
"""Arrays of constants with a row for each body (or link), and the scalars of a row."""


@dataclass(frozen=True)
class Traits:
    """What rolled code knows of a robot when it is compiled: the joint kinds it has (rows of the joint table), and
    whether any joint has armature or mimics another."""

    kinds: tuple[int, ...]
    armature: bool
    mimic: bool

    @property
    def single(self) -> bool:
        """Whether every joint has one coordinate and one velocity: body, coordinate and velocity have one number."""
        return all(KINDS[code].nq == KINDS[code].nv == 1 for code in self.kinds)


def traits_of(model: Model) -> Traits:
    """What rolled code is compiled for."""
    kinds = tuple(np.unique(model.joint_kind).tolist())
    return Traits(kinds, armature=bool(model.tree_armature.any()), mimic=model.has_mimic)


@dataclass
class Scope:
    """Names of what a step's subjects are: body numbers, link, lane and slots. "-1" is the world."""

    self_: str = "-1"
    parent: str = "-1"
    first: str = "-1"
    link: str = ""
    link_row: str = ""
    lane: str = ""
    own_slot: str = ""
    parent_slot: str = ""

    def body(self, subject: str) -> str:
        """The body's number of a subject."""
        return {"self": self.self_, "parent": self.parent, "first": self.first, "world": "-1"}[subject]


def is_block(algorithm: Algorithm, name: str) -> bool:
    """Whether a field is only ever the blocks of a matrix, which no array holds."""
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
    """Scalars that a lane field takes for a body and a lane."""
    return field_type.size(_LARGEST_NV)


def must_be_zeroed(algorithm: Algorithm) -> dict[str, str]:
    """Fields that hold zeros where no sweep writes before one reads: "all" of them, or the "world" row alone."""
    lanes, links = lane_fields(algorithm), link_fields(algorithm)
    written: set[str] = set()
    found = {name: "world" for name, each in algorithm.fields.items() if each.copies is None}
    for sweep in algorithm.sweeps:
        reads = (*sweep.reads, *getattr(sweep, "carries", ()), *getattr(sweep, "gives", ()))
        if isinstance(sweep, Ancestors):
            reads = (*sweep.reads, *sweep.visits)
            found.update({name: "all" for name in sweep.writes if sweep.of_link})
        elif isinstance(sweep, Outward):
            reads = sweep.reads
        elif isinstance(sweep, World):
            continue
        found.update({name: "all" for name in reads if name not in written})
        written |= set(sweep.writes)
    return {name: how for name, how in found.items() if name not in lanes | links}


class LaneSchedule:
    """For each lane sweep the pairs of a body and a lane that it visits, in order; and a slot for each pair.

    A lane step is linear in the lane's fields and in `body.unit`: where all of those are zero it need not run.
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
        every = np.zeros((n, lanes), dtype=bool)
        for _, pairs, _ in visited:
            every |= pairs
        self.slots[every] = np.arange(2, 2 + np.count_nonzero(every))
        self.n_slots = 2 + int(np.count_nonzero(every))
        self.pairs = {k: self._table(pairs, inward) for k, pairs, inward in visited}

    def _any(self, names: Iterable[str]) -> Array:
        found = np.zeros_like(self.unit)
        for name in names:
            if name in self.active:
                found |= self.active[name]
        return found

    def _note_unwritten(self, names: Iterable[str], pairs: Array) -> None:
        """Fields read at pairs where nothing was written hold zeros there."""
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
        """(m, 4): body, lane, its slot, and the slot at the parent."""
        body, lane = np.nonzero(pairs)
        if inward:
            body, lane = body[::-1], lane[::-1]
        parent = self.model.parent[body]
        at_world = SPARE_SLOT if inward else ZERO_SLOT
        above = np.where(parent >= 0, self.slots[parent, lane], at_world)
        return np.stack([body, lane, self.slots[body, lane], above], axis=1).astype(np.int64)


@dataclass
class Gather:
    """Sums that make an output from a field: out[pairs[k, 1]] += weight[k] field[pairs[k, 0]]."""

    field: str
    pairs: Array
    weight: Array
    size: int


class RolledPlan:
    """Sizes and arrays of one algorithm on one model; `integers` and `vectors` by name are laid out by the module.

    `mimic`: whether the module expects that joints may mimic others, as those of the model may or may not do.
    """

    def __init__(
        self, model: Model, algorithm: Algorithm, base: tuple[str, ...], link: int | None, mimic: bool
    ) -> None:
        self.model, self.algorithm, self.base, self.link, self.mimic = model, algorithm, base, link, mimic

    @cached_property
    def lanes(self) -> LaneSchedule | None:
        """The schedule of lane sweeps, where there are any."""
        return LaneSchedule(self.model, self.algorithm) if lane_fields(self.algorithm) else None

    @cached_property
    def integers(self) -> dict[str, int]:
        """Numbers that code reads when it runs."""
        model = self.model
        found = {
            "n_bodies": model.n_bodies,
            "nv": model.nv,
            "n_links": len(model.link_names),
            "link": -1 if self.link is None else self.link,
        }
        for k, table in ({} if self.lanes is None else self.lanes.pairs).items():
            found[f"n_pairs {k}"] = len(table)
        for name, gather in self.gathers.items():
            found[f"n_gather {name}"] = len(gather.weight)
        return found

    def field_vectors(self, name: str, stored: int) -> int:
        """Vectors in a field's array, `stored` being those of a plain field on one body."""
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
        """Outputs that are sums over a field rather than the field itself."""
        found = {}
        for name, output in self.algorithm.outputs.items():
            if isinstance(output, ColumnOutput):
                found[name] = self._columns(output)
            elif isinstance(output, FieldOutput):
                found[name] = self._bodies(output)
            elif isinstance(output, DofOutput) and output.lanes:
                found[name] = self._lane_columns(output)
            elif isinstance(output, DofOutput) and self.mimic:
                v = np.arange(self.model.nv_tree)
                pairs = np.stack([v, self.model.v_source], axis=1)
                found[name] = Gather(output.field, pairs, self.model.v_multiplier, self.model.nv)
        return found

    def _columns(self, output: ColumnOutput) -> Gather:
        model = self.model
        v, p = (index.ravel() for index in np.indices((model.nv_tree, output.rows)))
        to = model.v_source[v]
        place = to * output.rows + p if output.transposed else p * model.nv + to
        pairs = np.stack([output.rows * v + p, place], axis=1)
        return Gather(output.field, pairs, model.v_multiplier[v], output.rows * model.nv)

    def _bodies(self, output: FieldOutput) -> Gather:
        """All rows of a field but the first, which is the world's."""
        each = self.algorithm.fields[output.field].size(0)
        k = np.arange(self.model.n_bodies * each)
        return Gather(output.field, np.stack([each + k, k], axis=1), np.ones(k.size), k.size)

    def _lane_columns(self, output: DofOutput) -> Gather:
        model, lanes = self.model, self.lanes
        assert lanes is not None
        body, lane = np.nonzero(lanes.active[output.field])
        nv = np.array([kind.nv for kind in KINDS])[model.joint_kind][body]
        which = np.repeat(np.arange(body.size), nv)
        c = np.arange(which.size) - np.repeat(np.cumsum(nv) - nv, nv)
        v, column = model.v_start[body[which]] + c, lane[which]
        size = lane_size(self.algorithm.fields[output.field])
        at = lanes.slots[body[which], column] * size + c
        to = model.v_source[v] * model.nv + model.v_source[column]
        weight = model.v_multiplier[v] * model.v_multiplier[column]
        return Gather(output.field, np.stack([at, to], axis=1), weight, model.nv**2)

    def output_vectors(self, name: str) -> int:
        """Vectors in an output's own array; outputs that are a field have none."""
        output = self.algorithm.outputs[name]
        if isinstance(output, PairOutput):
            return (output.rows or 1) * self.model.nv**2
        if isinstance(output, BodyOutput):
            return self.model.nv * self.model.n_bodies * output.width
        if isinstance(output, LinkColumnOutput):
            return len(self.model.link_names) * output.rows * self.model.nv
        return self.gathers[name].size if name in self.gathers else 0

    def output_columns(self, name: str) -> int:
        """Scalars of one state's result."""
        output, model = self.algorithm.outputs[name], self.model
        own = self.output_vectors(name)
        if own:
            return own
        if isinstance(output, WorldOutput | LinkOutput):
            size = self.algorithm.fields[output.field].size(0)
            many = isinstance(output, LinkOutput) and not output.of_link
            return size * (len(model.link_names) if many else 1)
        return model.nv
