"""Rolled code: loops over bodies that call steps, which are traced once per joint kind.

    void NAME(ptr table, i64 first, i64 last, ptr workspace)

The signature is that of unrolled code. After the outputs, the table continues with `RolledLayout.model_arrays`. The
first of them, "layout", holds the robot's sizes and the offsets of arrays in the workspace. The module depends on the
algorithm, the joint kinds and a few traits of the robot, not on its numbers or size. So compile time does not grow with
the number of bodies, and robots share machine code.

Every array of the workspace holds vectors of W states. A field has a row for the world, then one for each body. Fields
with a value for each degree of freedom are indexed by the joint's first velocity. Lane fields have a row for each slot
of `loop_plan.LaneSchedule`.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar, TypeAlias

from robodyn.compile.llvm import sincos
from robodyn.compile.llvm.straight_line import attributes
from robodyn.compile.llvm.vectors import declarations
from robodyn.compile.loop_plan import is_block, lane_size, must_be_zeroed
from robodyn.compile.loops.language import (
    Address,
    Array,
    Routine,
    Scalar,
    Static,
    Vector,
    Word,
    array,
    clear,
    convert,
    copy,
    local,
    routine,
    switch,
)
from robodyn.compile.loops.llvm import Module
from robodyn.compile.loops.table import Argument
from robodyn.core.joints import KINDS
from robodyn.core.sweeps import (
    Ancestors,
    DofOutput,
    Inward,
    LinkOutput,
    Links,
    Outward,
    PairOutput,
    World,
    WorldOutput,
)
from robodyn.engines.cpu.loops import runtime
from robodyn.engines.cpu.loops.layout import RolledLayout
from robodyn.engines.cpu.loops.runtime import Pair
from robodyn.engines.cpu.loops.steps import Steps

_KINDS = len(KINDS)
Group: TypeAlias = tuple[int, ...]
"""Indices of sweeps that run together, in one pass over the bodies."""


class LanePair(ctypes.Structure):
    """A body and a lane, and their rows in lane fields."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("body", "lane", "own_slot", "parent_slot"))


# Arrays. `bases` holds the addresses of the model's arrays and those of the workspace; the first one is the layout.


def base(bases: Array[Address], array: Static[str], module: Static[RolledModule]) -> Address:
    """Address of an array."""
    return bases[module.base_number(array)]


def words(bases: Array[Address], name: Static[str], module: Static[RolledModule]) -> Array[Word]:
    """An array of integers."""
    return array(Word, base(bases, name, module))


def scalars(bases: Array[Address], name: Static[str], module: Static[RolledModule]) -> Array[Scalar]:
    """An array of the model's numbers."""
    return array(Scalar, base(bases, name, module))


def vectors(bases: Array[Address], name: Static[str], module: Static[RolledModule]) -> Array[Vector]:
    """An array of vectors of states."""
    return array(Vector, base(bases, name, module))


def number(bases: Array[Address], name: Static[int | str], module: Static[RolledModule]) -> Word:
    """An entry of the layout by its name, or a known number."""
    if isinstance(name, int):
        return name
    return words(bases, "layout", module)[module.layout_number(name)]


# Sweeps.


@routine
def over_world(bases: Array[Address], module: Static[RolledModule], group: Static[Group]) -> None:
    """Run the world's step."""
    module.run(module.tracer.world(module.sweep(group)), bases)


@routine
def over_bodies(bases: Array[Address], module: Static[RolledModule], group: Static[Group]) -> None:
    """Run the step of each body, outward or inward."""
    parent, kind = words(bases, "parent", module), words(bases, "kind", module)
    count = number(bases, "n_bodies", module)
    if isinstance(module.sweep(group), Inward):
        for body in reversed(range(count)):
            on_body(bases, body, parent[body], kind, module, group)
    else:
        for body in range(count):
            on_body(bases, body, parent[body], kind, module, group)


def on_body(
    bases: Array[Address],
    body: Word,
    parent: Word,
    kind: Array[Word],
    module: Static[RolledModule],
    group: Static[Group],
) -> None:
    """Run a body's step for its joint kind."""
    for code in switch(kind[body], module.traits.kinds):
        module.run(module.tracer.bodies(group, KINDS[code]), bases, body=body, parent=parent)


@routine
def over_lanes(bases: Array[Address], module: Static[RolledModule], group: Static[Group]) -> None:
    """Run the step of each pair of a body and a lane."""
    parent, kind = words(bases, "parent", module), words(bases, "kind", module)
    which = str(group[0])
    pairs = array(LanePair, base(bases, "pairs " + which, module))
    for k in range(number(bases, "n_pairs " + which, module)):
        pair = pairs[k]
        body, lane, own, above = pair.body, pair.lane, pair.own_slot, pair.parent_slot
        for code in switch(kind[body], module.traits.kinds):
            step = module.tracer.bodies(group, KINDS[code])
            module.run(step, bases, body=body, parent=parent[body], lane=lane, own_slot=own, parent_slot=above)


@routine
def over_links(bases: Array[Address], module: Static[RolledModule], group: Static[Group]) -> None:
    """Run the step of each link, or of the query's link only, whose row in arrays is the first."""
    sweep = module.sweep(group)
    step, body = module.tracer.links(sweep), words(bases, "link_body", module)
    if sweep.of_link:
        link = number(bases, "link", module)
        module.run(step, bases, body=body[link], link=link, link_row=0)
    else:
        for link in range(number(bases, "n_links", module)):
            module.run(step, bases, body=body[link], link=link, link_row=link)


@routine
def over_ancestors(bases: Array[Address], module: Static[RolledModule], group: Static[Group]) -> None:
    """Climb to the root from every body, from every link, or from the query's link."""
    sweep = module.sweep(group)
    if sweep.of_link:
        climb(bases, number(bases, "link", module), module, group)
    else:
        for start in range(number(bases, "n_links" if sweep.of_links else "n_bodies", module)):
            climb(bases, start, module, group)


def climb(bases: Array[Address], start: Word, module: Static[RolledModule], group: Static[Group]) -> None:
    """Climb from a body or a link to the root. Links fixed to the world are skipped."""
    sweep, kinds = module.sweep(group), module.traits.kinds
    parent, kind = words(bases, "parent", module), words(bases, "kind", module)
    first = words(bases, "link_body", module)[start] if sweep.from_links else start
    if first < 0:
        return
    for code in switch(kind[first], kinds):
        module.run(module.tracer.start(sweep, KINDS[code]), bases, first=first, link=start, link_row=start)
    pairs = [here * _KINDS + code for here in kinds for code in kinds]
    body = first
    while True:
        for pair in switch(kind[body] * _KINDS + kind[first], pairs):
            step = module.tracer.visit(sweep, KINDS[pair // _KINDS], KINDS[pair % _KINDS])
            module.run(step, bases, body=body, first=first, link=start, link_row=start)
        body = parent[body]
        if body < 0:
            break


# The exported function.


@routine
def kernel(table: Array[Argument], first: Word, last: Word, workspace: Address, module: Static[RolledModule]) -> None:
    """Process W rows at a time: load inputs, run sweeps, store outputs."""
    bases = find_arrays(table, workspace, module)
    clear_arrays(bases, module.zero_rows, module)
    for row in range(first, last, module.kind.width):
        point_at_row(table, bases, row, module)
        stage_inputs(table, bases, row, last - 1, module)
        for group in module.tracer.groups:
            sweep = module.sweep_function(group)
            sweep(bases, module=module, group=group)
        stage_outputs(table, bases, row, last - 1, module)


def find_arrays(table: Array[Argument], workspace: Address, module: Static[RolledModule]) -> Array[Address]:
    """Addresses of all arrays. Those of the model are in the table; the last entries of the layout are offsets of the
    others in the workspace."""
    count, own = len(module.model_arrays), len(module.workspace_arrays)
    bases, models = local(Address, count + own), table + module.first_model
    for k in range(convert(Word, count)):
        bases[k] = models[k].data
    offsets = words(bases, "layout", module) + (len(module.integers) - own)
    for k in range(convert(Word, own)):
        bases[count + k] = workspace + offsets[k]
    return bases


def point_at_row(table: Array[Argument], bases: Array[Address], row: Word, module: Static[RolledModule]) -> None:
    """Let the arrays that are the user's own begin at a row."""
    for name, k in module.users_own:
        bases[module.base_number(name)] = table[k].data + row * table[k].stride


def clear_arrays(
    bases: Array[Address], arrays: Static[list[tuple[str, int | str]]], module: Static[RolledModule]
) -> None:
    """Set some vectors of each array to zero."""
    for name, count in arrays:
        clear(base(bases, name, module), number(bases, count, module) * module.kind.bytes)


def stage_inputs(
    table: Array[Argument], bases: Array[Address], row: Word, end: Word, module: Static[RolledModule]
) -> None:
    """Load inputs into vectors, and clear arrays."""
    for k, name in module.staged:
        raw, entry, columns = name in module.raw, table[k], number(bases, "columns " + name, module)
        to = vectors(bases, ("raw " if raw else "in ") + name, module)
        if name in module.vectors:
            copy(to, entry.data, columns * module.kind.bytes)
        else:
            runtime.stage_in(entry.data, entry.stride, row, end, to, columns, module.kind.width)
        if raw:
            v, tree = "q_" if name == "q" else "v_", vectors(bases, "in " + name, module)
            source, multiplier = words(bases, v + "source", module), scalars(bases, v + "multiplier", module)
            offset, count = scalars(bases, v + "offset", module), number(bases, "tree " + name, module)
            runtime.couple(to, tree, source, multiplier, offset, count)
    clear_arrays(bases, module.cleared, module)


def stage_outputs(
    table: Array[Argument], bases: Array[Address], row: Word, end: Word, module: Static[RolledModule]
) -> None:
    """Store vectors to outputs."""
    for k, name in module.written:
        added = module.diagonal(name)
        if added is not None:
            matrix, nv = vectors(bases, "out " + name, module), number(bases, "nv", module)
            if added in module.model_arrays:
                runtime.add_diagonal(matrix, scalars(bases, added, module), nv)
            else:
                runtime.add_given_diagonal(matrix, vectors(bases, added, module), nv)
        if name in module.gathered_whole:
            gather_entries(bases, 0, number(bases, "n_gather " + name, module), module, name)
        if name not in module.direct.values():
            entry, columns = table[k], number(bases, "columns " + name, module)
            result = vectors(bases, module.result(name), module)
            if name in module.vectors:
                copy(entry.data, result, columns * module.kind.bytes)
            else:
                runtime.stage_out(entry.data, entry.stride, row, end, result, None, columns, module.kind.width)


def gather_entries(
    bases: Array[Address], first: Word, count: Word, module: Static[RolledModule], name: Static[str]
) -> None:
    """Sum entries of a field into an output."""
    pairs = array(Pair, base(bases, "gather " + name, module)) + first
    weights = scalars(bases, "weight " + name, module) + first
    source, to = vectors(bases, module.gathered_field(name), module), vectors(bases, "out " + name, module)
    runtime.gather(source, to, pairs, weights, count)


class RolledModule(RolledLayout):
    """The module of one algorithm for robots with some traits, and the facts that its functions need when they are
    printed."""

    KERNEL: ClassVar[Routine[..., None]] = kernel
    SWEEPS: ClassVar[dict[type, Routine[..., None]]] = {
        World: over_world,
        Outward: over_bodies,
        Inward: over_bodies,
        Ancestors: over_ancestors,
        Links: over_links,
    }

    def text(self, name: str = "kernel") -> str:
        """The text of the module."""
        module = Module(self.types, "#0")
        for line in (declarations(self.kind) + sincos.declarations(self.kind)).splitlines():
            module.declare(line.removeprefix("declare "))
        module.export(self.KERNEL, name, module=self)
        return module.text() + attributes(self.target)

    @property
    def run(self) -> Steps:
        """The operator that runs steps."""
        return Steps(self)

    def sweep(self, group: Group) -> Any:
        """The first sweep of a group."""
        return self.algorithm.sweeps[group[0]]

    def sweep_function(self, group: Group) -> Routine[..., None]:
        """The routine that runs a group of sweeps."""
        sweep = self.sweep(group)
        return over_lanes if getattr(sweep, "lanes", False) else self.SWEEPS[type(sweep)]

    @property
    def first_model(self) -> int:
        """Number of entries of the table before the model's arrays."""
        return len(self.inputs) + len(self.algorithm.outputs)

    @property
    def users_own(self) -> list[tuple[str, int]]:
        """Arrays of the workspace that are replaced by the user's own arrays, and their entries in the table."""
        names = [*self.inputs, *self.algorithm.outputs]
        return [(array, names.index(name)) for array, name in self.direct.items()]

    @property
    def staged(self) -> list[tuple[int, str]]:
        """Inputs that are loaded into vectors, and their entries in the table."""
        return [(k, name) for k, name in enumerate(self.inputs) if f"in {name}" not in self.direct]

    @property
    def written(self) -> list[tuple[int, str]]:
        """Outputs, and their entries in the table."""
        return [(len(self.inputs) + k, name) for k, name in enumerate(self.algorithm.outputs)]

    @property
    def gathered_whole(self) -> list[str]:
        """Outputs that are gathered after all sweeps."""
        return self.gathered

    @property
    def zero_rows(self) -> list[tuple[str, int | str]]:
        """Lane fields with a zero row that is never written, and the vectors of that row."""
        return [(f"field {name}", lane_size(self.algorithm.fields[name])) for name in sorted(self.lane_fields)]

    @property
    def cleared(self) -> list[tuple[str, int | str]]:
        """Arrays that are cleared before the first sweep, and their size in vectors: a number, or the name of a layout
        entry."""
        found: list[tuple[str, int | str]] = []
        for name, how in must_be_zeroed(self.algorithm).items():
            if not is_block(self.algorithm, name):
                found.append((f"field {name}", f"vectors field {name}" if how == "all" else self.tracer.stored(name)))
        found += [(f"field {name}", f"zeroed {name}") for name in sorted(self.lane_fields)]
        for name in self.algorithm.outputs:
            if f"out {name}" in self.workspace_arrays:
                size = f"columns {name}" if f"out {name}" in self.direct else f"vectors out {name}"
                found.append((f"out {name}", size))
        return found

    def diagonal(self, name: str) -> str | None:
        """The array that is added to the diagonal of an output: numbers of the model, or an input."""
        output = self.algorithm.outputs[name]
        added = output.diagonal if isinstance(output, PairOutput) else None
        if added in self.inputs:
            return f"{'raw' if added in self.raw else 'in'} {added}"
        return f"own_{added}" if added == "damping" or (added == "armature" and self.traits.armature) else None

    def gathered_field(self, name: str) -> str:
        """The field whose entries are summed to an output."""
        output: Any = self.algorithm.outputs[name]
        return f"field {output.field}"

    def result(self, name: str) -> str:
        """The array that holds an output after all sweeps."""
        output = self.algorithm.outputs[name]
        if name in self.gathered or not isinstance(output, WorldOutput | LinkOutput | DofOutput):
            return f"out {name}"
        return f"field {output.field}"
