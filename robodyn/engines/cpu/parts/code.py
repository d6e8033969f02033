"""Rolled code for one tree in parts: a kernel whose rows are tasks.

    void NAME(ptr table, i64 first, i64 last, ptr workspace)

runs tasks `first` to `last - 1` of `tasks.Tasks` on one vector of states, in a workspace that all threads share. Steps
are those of rolled code. Bodies are numbered as in `partition.Parts`. The model's arrays are in that order; the user's
arrays are indexed through tables. After the model's arrays the table holds a `Call`: the rows of the states, a 32-bit
word for each task, which is zero until the task is done, and the function with which a waiting thread yields.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

from robodyn.compile.loop_plan import lane_fields
from robodyn.compile.loops.language import (
    Address,
    Array,
    Integer,
    Static,
    Vector,
    Word,
    array,
    call,
    load_atomic,
    routine,
    store_atomic,
    switch,
)
from robodyn.compile.loops.table import Argument
from robodyn.core.sweeps import (
    Algorithm,
    Ancestors,
    BodyOutput,
    ColumnOutput,
    FieldOutput,
    Inward,
    LinkColumnOutput,
    Links,
    Outward,
    PairOutput,
    World,
)
from robodyn.engines.cpu.loops.code import (
    Group,
    RolledModule,
    base,
    find_arrays,
    gather_entries,
    on_body,
    over_world,
    point_at_row,
    stage_inputs,
    stage_outputs,
    vectors,
    words,
)

CALL_WORDS = 4
"""Words of a `Call`, the last ones of the table."""


class Call(ctypes.Structure):
    """A vector of states, for the threads that run its tasks."""

    _fields_ = (
        ("row", ctypes.c_int64),  # the first row
        ("behind", ctypes.c_int64),  # the row after the last one
        ("done", ctypes.POINTER(ctypes.c_int32)),  # for each task 1 once it is done
        ("give_way", ctypes.c_void_p),  # sched_yield
    )


class Task(ctypes.Structure):
    """A task: ranges of its operations, and of the tasks that it waits for, in two arrays."""

    _fields_ = tuple(
        (name, ctypes.c_int64) for name in ("first_operation", "last_operation", "first_before", "last_before")
    )


class Operation(ctypes.Structure):
    """An operation: its index in `PartedModule.operations`, and the range that it works on."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("code", "first", "last"))


def works_in_parts(algorithm: Algorithm) -> bool:
    """True if all sweeps of an algorithm visit bodies, all links or the world, and fields have one value per body."""
    if lane_fields(algorithm):
        return False
    if any(isinstance(each, PairOutput | BodyOutput | LinkColumnOutput) for each in algorithm.outputs.values()):
        return False
    return not any(isinstance(sweep, Ancestors) or getattr(sweep, "of_link", False) for sweep in algorithm.sweeps)


# Bodies are numbered as in `partition.Parts`. The routines process the range first .. last - 1.


@routine
def over_numbers(
    bases: Array[Address], first: Word, last: Word, module: Static[PartedModule], group: Static[Group]
) -> None:
    """Run an outward sweep over some bodies."""
    parent, kind = words(bases, "parent", module), words(bases, "kind", module)
    for body in range(first, last):
        on_body(bases, body, parent[body], kind, module, group)


@routine
def over_visits(
    bases: Array[Address], first: Word, last: Word, module: Static[PartedModule], group: Static[Group]
) -> None:
    """Run an inward sweep over visits. A visit is a body, or a root of another part, whose values are added to its
    parent."""
    visits, gives_to = words(bases, "visits", module), words(bases, "gives_to", module)
    parent, kind = words(bases, "parent", module), words(bases, "kind", module)
    for k in reversed(range(first, last)):
        body = visits[k]
        if body >= 0:
            on_body(bases, body, gives_to[body], kind, module, group)
        else:
            add_given(bases, gives_to[~body], parent[~body], module, group)


def add_given(
    bases: Array[Address], place: Word, parent: Word, module: Static[PartedModule], group: Static[Group]
) -> None:
    """Add the values at a root's place to its parent's fields."""
    for name in module.gives(group):
        source, to = row_of(bases, name, place, module), row_of(bases, name, parent, module)
        for k in range(module.tracer.stored(name)):
            to[k] = to[k] + source[k]


@routine
def clear_places(
    bases: Array[Address], first: Word, last: Word, module: Static[PartedModule], group: Static[Group]
) -> None:
    """Clear the places of a part's roots. They are set to -0, because adding any number to -0 gives exactly that
    number."""
    for place in range(first, last):
        for name in module.gives(group):
            row = row_of(bases, name, place, module)
            for k in range(module.tracer.stored(name)):
                row[k] = -0.0


def row_of(bases: Array[Address], name: Static[str], place: Word, module: Static[PartedModule]) -> Array[Vector]:
    """A field's row of a body, or of a root's place."""
    return vectors(bases, "field " + name, module) + (place + 1) * module.tracer.stored(name)


@routine
def over_some_links(
    bases: Array[Address], first: Word, last: Word, module: Static[PartedModule], group: Static[Group]
) -> None:
    """Run the step of each link."""
    step, body = module.tracer.links(module.sweep(group)), words(bases, "link_body", module)
    for link in range(first, last):
        module.run(step, bases, body=body[link], link=link, link_row=link)


# The exported function.


@routine
def kernel(table: Array[Argument], first: Word, last: Word, workspace: Address, module: Static[PartedModule]) -> None:
    """Run tasks. For each task, wait for the tasks that it depends on, then do its operations in order."""
    bases = find_arrays(table, workspace, module)
    states = array(Call, table + module.first_model + len(module.model_arrays))
    point_at_row(table, bases, states.row, module)
    tasks, operations = array(Task, base(bases, "tasks", module)), array(Operation, base(bases, "operations", module))
    before, done, give_way = words(bases, "after", module), states.done, states.give_way
    for t in range(first, last):
        task = tasks[t]
        for k in range(task.first_before, task.last_before):
            while load_atomic(done + before[k], "acquire") == 0:
                call(Integer, give_way)
        for k in range(task.first_operation, task.last_operation):
            operation = operations[k]
            for code in switch(operation.code, range(len(module.operations))):
                do(table, bases, states, operation.first, operation.last, module, *module.operation(code))
        store_atomic(done + t, 1, "release")


def do(
    table: Array[Argument],
    bases: Array[Address],
    states: Array[Call],
    first: Word,
    last: Word,
    module: Static[PartedModule],
    what: Static[str],
    of: Static[Any],
) -> None:
    """Run an operation on some bodies, links or entries."""
    if what == "begin":
        stage_inputs(table, bases, states.row, states.behind - 1, module)
    elif what == "end":
        stage_outputs(table, bases, states.row, states.behind - 1, module)
    elif what == "gather":
        gather_entries(bases, first, last - first, module, of)
    elif what == "clear":
        clear_places(bases, first, last, module=module, group=of)
    elif isinstance(module.sweep(of), World):
        over_world(bases, module=module, group=of)
    else:
        sweep = module.sweep_function(of)
        sweep(bases, first, last, module=module, group=of)


class PartedModule(RolledModule):
    """The module of one algorithm for trees in parts, of robots with some traits."""

    KERNEL = kernel
    SWEEPS: ClassVar = {Outward: over_numbers, Inward: over_visits, Links: over_some_links}

    def gives(self, group: tuple[int, ...]) -> list[str]:
        """Fields that a group of inward sweeps sums at parents."""
        sweeps = [self.algorithm.sweeps[number] for number in group]
        return list(dict.fromkeys(name for sweep in sweeps if isinstance(sweep, Inward) for name in sweep.gives))

    @property
    def given(self) -> set[str]:
        """Fields that inward sweeps sum. They have places for roots after those of bodies."""
        return {name for group in self.tracer.groups for name in self.gives(group)}

    def _model_arrays(self, lanes: list[int]) -> list[str]:
        own = ["row", "v_own", "gives_to", "visits", "tasks", "operations", "after"]
        return [*super()._model_arrays(lanes), *own]

    def table_of(self, what: str) -> str | None:
        """The table for a body's entries. Bodies, and fields that are not results, are in the order of parts; the
        user's arrays are not."""
        if not self.traits.single:
            return what
        return None if what == "v_own" else "row"

    def place_of(self, field: str) -> str:
        """The table for values per degree of freedom. Results are in the user's order, other fields in the order of
        parts."""
        results = {getattr(output, "field", None) for output in self.algorithm.outputs.values()}
        return "v_start" if field in results else "v_own"

    @property
    def pieced(self) -> list[str]:
        """Outputs that are gathered in pieces: every entry has exactly one source."""
        outputs, one = self.algorithm.outputs, FieldOutput if self.traits.mimic else FieldOutput | ColumnOutput
        return [name for name in self.gathered if isinstance(outputs[name], one)]

    @property
    def gathered_whole(self) -> list[str]:
        """Outputs that are gathered after all sweeps, in one piece."""
        return [name for name in self.gathered if name not in self.pieced]

    @property
    def operations(self) -> list[str]:
        """Names of the possible operations of tasks. Their indices are the operations' codes."""
        found = ["begin", "end", *(f"gather {name}" for name in self.pieced)]
        for group in self.tracer.groups:
            found += [f"clear {group[0]}"] if self.gives(group) else []
            found.append(f"sweep {group[0]}")
        return found

    def operation(self, code: int) -> tuple[str, Any]:
        """The kind of an operation, and its output or group of sweeps."""
        what, _, of = self.operations[code].partition(" ")
        groups = {str(group[0]): group for group in self.tracer.groups}
        return what, of if what == "gather" else groups.get(of)
