"""Rolled code: loops over bodies that call steps traced once per joint kind.

    void NAME(ptr table, i64 first, i64 last, ptr workspace)

as unrolled code, but its table goes on after the outputs with `RolledModule.model_arrays`. The first of them, "layout",
holds the robot's sizes and says where the arrays of the workspace begin. The module depends on the algorithm, the joint
kinds and a few facts about the robot, not on its numbers or size: a tree of ten million bodies compiles like one of
two, and robots share machine code.

Every array of the workspace holds vectors of W states. A field has a row for the world, then one for each body; fields
with a value for each degree of freedom are indexed by the joint's first velocity; lane fields have a row for each slot
of `rolled_plan.LaneSchedule`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from robodyn.engines.cpu import sincos
from robodyn.engines.cpu.rolled_plan import lane_fields, lane_size, link_fields, must_be_zeroed, per_velocity
from robodyn.engines.cpu.rolled_runtime import broadcast, runtime_functions
from robodyn.engines.cpu.straight_line import StraightLine, attributes
from robodyn.engines.cpu.target import Target
from robodyn.engines.cpu.vectors import Lines, VectorType, declarations
from robodyn.joints import KINDS, JointKind
from robodyn.sweeps import (
    Algorithm,
    Ancestors,
    ColumnOutput,
    DofOutput,
    Inward,
    LinkOutput,
    Links,
    Outward,
    PairOutput,
    World,
    WorldOutput,
)
from robodyn.tracing.expression import INPUT
from robodyn.tracing.lowering import lower
from robodyn.tracing.rolled import Source, Step, StepTracer
from robodyn.tracing.rolled import Target as Result

_CONSTANT_ROWS = {"Xtree": 12, "inertia": 10, "pitch": 1, "X": 12}
"""Arrays of constants with a row for each body (or link), and the scalars of a row."""
_PER_VELOCITY = ("qd", "qdd", "tau")


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


class _Function:
    """One function of the module: loads in its entry block, then blocks that are added in order."""

    def __init__(self, module: RolledModule, name: str) -> None:
        self.module, self.name = module, name
        self.entry = Lines()
        self.blocks: list[Lines] = []
        self._bases: dict[str, str] = {}

    def base(self, array: str) -> str:
        """Where an array begins."""
        if array not in self._bases:
            at = self.entry.new(f"getelementptr ptr, ptr %bases, i64 {self.module.base_number(array)}")
            self._bases[array] = self.entry.new(f"load ptr, ptr {at}")
        return self._bases[array]

    def integer(self, name: str) -> str:
        """A number of the layout."""
        if name not in self._bases:
            at = self.entry.new(f"getelementptr i64, ptr %layout, i64 {self.module.layout_number(name)}")
            self._bases[name] = self.entry.new(f"load i64, ptr {at}")
        return self._bases[name]

    def block(self, label: str) -> Lines:
        """A new block's lines."""
        lines = Lines(self.entry.numbers)
        lines.lines.append(f"{label}:")
        self.blocks.append(lines)
        return lines

    def finish(self, first: str) -> str:
        """The function's text; the entry goes on to block `first`."""
        body = "\n".join(line for block in self.blocks for line in block.lines)
        entry = "\n".join(["entry:", *self.entry.lines, f"  br label %{first}"])
        return f"define internal void @{self.name}(ptr %bases, ptr %layout) #0 {{\n{entry}\n{body}\n}}\n\n"


@dataclass
class _Scope:
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


class _StepWriter:
    """Writes one step into a block: loads where sources lie, operations, stores where targets lie."""

    def __init__(self, function: _Function, out: Lines, step: Step, scope: _Scope) -> None:
        self.function, self.out, self.step, self.scope = function, out, step, scope
        self.module = function.module
        self.kind = self.module.kind
        self._starts: dict[tuple[str, str], str] = {}
        self._rows: dict[tuple[str, str], str] = {}

    def write(self) -> None:
        """All of it. Every result is computed before the first is stored: a step may read what it replaces."""
        program = self.step.program
        code = StraightLine(self.kind, program.nodes, self.out, self._fetch)
        for operation in lower(program):
            code.compute(operation)
        values = [code.value(scalar) for scalar in program.outputs[0].scalars]
        for value, target in zip(values, self.step.targets, strict=True):
            self._store(value, target)

    def _start(self, table: str, subject: str) -> str:
        """First coordinate ("q_start") or velocity ("v_start") of a body."""
        body = self.scope.body(subject)
        if self.module.traits.single:
            return body
        if (table, body) not in self._starts:
            at = self.out.new(f"getelementptr i64, ptr {self.function.base(table)}, i64 {body}")
            self._starts[table, body] = self.out.new(f"load i64, ptr {at}")
        return self._starts[table, body]

    def _row(self, subject: str, array: str) -> str:
        """Where a subject's row of an array begins."""
        if (subject, array) not in self._rows:
            self._rows[subject, array] = self._find_row(subject, array)
        return self._rows[subject, array]

    def _find_row(self, subject: str, array: str) -> str:
        out = self.out
        if array.startswith("field "):
            return self._field_row(subject, array.removeprefix("field "))
        if array in _CONSTANT_ROWS:
            row = self.scope.link if subject == "link" else self.scope.body(subject)
            index = out.new(f"mul i64 {row}, {_CONSTANT_ROWS[array]}")
        elif array == "armature":
            index = self._start("v_start", subject)
        elif array == "q":
            index = self._start("q_start", subject)
        elif array in _PER_VELOCITY:
            index = self._start("v_start", subject)
        elif array == "f_ext":
            index = out.new(f"mul i64 {self.scope.body(subject)}, 6")
        else:
            index = "0"
        scalar = array in _CONSTANT_ROWS or array in ("armature", "gravity")
        base = self.function.base(array if scalar else f"in {array}")
        return out.new(f"getelementptr {self.kind.scalar if scalar else self.kind.name}, ptr {base}, i64 {index}")

    def _field_row(self, subject: str, name: str) -> str:
        out, module, scope = self.out, self.module, self.scope
        each = module.algorithm.fields[name]
        base = self.function.base(f"carry {name}" if subject == "carry" else f"field {name}")
        if subject in ("carry", "world"):
            return base
        if name in module.lane_fields and scope.lane:
            slot = scope.own_slot if subject == "self" else scope.parent_slot
            index = out.new(f"mul i64 {slot}, {lane_size(each)}")
        elif name in module.link_fields:
            index = out.new(f"mul i64 {scope.link_row}, {each.size(0)}")
        elif each.copies is not None:
            index = out.new(f"mul i64 {self._start('v_start', subject)}, {per_velocity(each)}")
        else:
            row = out.new(f"add i64 {scope.body(subject)}, 1")
            index = out.new(f"mul i64 {row}, {module.tracer.stored(name)}")
        return out.new(f"getelementptr {self.kind.name}, ptr {base}, i64 {index}")

    def _fetch(self, node: int) -> str:
        operation, number, _ = self.step.program.nodes[node]
        assert operation == INPUT
        source: Source = self.step.sources[number]
        if source.array == "unit":
            return self._unit(source)
        row = self._row(source.subject, source.array)
        if source.array in _CONSTANT_ROWS or source.array in ("armature", "gravity"):
            at = self.out.new(f"getelementptr {self.kind.scalar}, ptr {row}, i64 {source.index}")
            scalar = self.out.new(f"load {self.kind.scalar}, ptr {at}, align {self.kind.itemsize}")
            return self._broadcast(scalar)
        return self._load(self.out.new(f"getelementptr {self.kind.name}, ptr {row}, i64 {source.index}"))

    def _broadcast(self, scalar: str) -> str:
        if self.kind.width == 1:
            return scalar
        name = self.out.fresh().removeprefix("%")
        self.out.lines += broadcast(self.kind, scalar, name).splitlines()
        return f"%{name}"

    def _unit(self, source: Source) -> str:
        velocity = self.out.new(f"add i64 {self._start('v_start', source.subject)}, {source.index}")
        same = self.out.new(f"icmp eq i64 {velocity}, {self.scope.lane}")
        T = self.kind.name
        return self.out.new(f"select i1 {same}, {T} {self.kind.splat(1.0)}, {T} {self.kind.splat(0.0)}")

    def _load(self, at: str) -> str:
        return self.out.new(f"load {self.kind.name}, ptr {at}, align {self.module.alignment}")

    def _store_at(self, value: str, at: str, add: bool) -> None:
        T = self.kind.name
        if add:
            value = self.out.new(f"fadd {T} {self._load(at)}, {value}")
        self.out.do(f"store {T} {value}, ptr {at}, align {self.module.alignment}")

    def _store(self, value: str, target: Result) -> None:
        if target.subject == "block":
            self._store_block(value, target)
            return
        if target.subject == "world" and target.field in self.module.lane_fields:
            # Lanes start from rest: the zero row that every lane finds at the world is all there is.
            assert value == self.kind.splat(0.0)
            return
        row = self._row(target.subject, f"field {target.field}")
        self._store_at(
            value, self.out.new(f"getelementptr {self.kind.name}, ptr {row}, i64 {target.index}"), target.add
        )

    def _store_block(self, value: str, target: Result) -> None:
        out, T = self.out, self.kind.name
        row = out.new(f"add i64 {self._start('v_start', 'self')}, {target.row}")
        column = out.new(f"add i64 {self._start('v_start', 'first')}, {target.column}")
        if self.module.traits.mimic:
            value = out.new(f"fmul {T} {value}, {self._weight(row)}")
            value = out.new(f"fmul {T} {value}, {self._weight(column)}")
            row, column = self._source(row), self._source(column)
        for name, output in self.module.algorithm.outputs.items():
            for blocks in output.blocks if isinstance(output, PairOutput) else ():
                if blocks.field != target.field:
                    continue
                a, b = (column, row) if blocks.transposed else (row, column)
                index = out.new(f"add i64 {out.new(f'mul i64 {a}, ' + self.function.integer('nv'))}, {b}")
                at = out.new(f"getelementptr {T}, ptr {self.function.base(f'out {name}')}, i64 {index}")
                entry = value
                if not blocks.diagonal:
                    same = out.new(f"icmp eq i64 {self.scope.self_}, {self.scope.first}")
                    entry = out.new(f"select i1 {same}, {T} {self.kind.splat(0.0)}, {T} {value}")
                self._store_at(entry, at, add=True)

    def _weight(self, velocity: str) -> str:
        at = self.out.new(f"getelementptr {self.kind.scalar}, ptr {self.function.base('v_multiplier')}, i64 {velocity}")
        return self._broadcast(self.out.new(f"load {self.kind.scalar}, ptr {at}"))

    def _source(self, velocity: str) -> str:
        at = self.out.new(f"getelementptr i64, ptr {self.function.base('v_source')}, i64 {velocity}")
        return self.out.new(f"load i64, ptr {at}")


class RolledModule:
    """Writes the module of one algorithm for robots with some traits.

    Args:
        algorithm: what to run.
        traits: what is known of the robots.
        dtype: of arrays and arithmetic.
        target: the processor.
        base: which of V0 and dV0 are inputs.
        width: states in a vector; 1 for single states, None for as many as the registers hold.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        traits: Traits,
        dtype: np.dtype[Any],
        target: Target,
        base: tuple[str, ...] = (),
        width: int | None = None,
    ) -> None:
        self.algorithm, self.traits, self.target, self.base = algorithm, traits, target, base
        self.kind = VectorType.of(dtype, target, width)
        self.lane_fields, self.link_fields = lane_fields(algorithm), link_fields(algorithm)
        self.tracer = StepTracer(algorithm, [KINDS[code] for code in traits.kinds], base, traits.armature)
        self.inputs = (*(name for name in ("q", "qd", "qdd", "tau", "f_ext") if name in algorithm.inputs), *base)
        lanes = [k for k, sweep in enumerate(algorithm.sweeps) if getattr(sweep, "lanes", False)]
        self.gathered = [
            name
            for name, output in algorithm.outputs.items()
            if isinstance(output, ColumnOutput) or (isinstance(output, DofOutput) and (output.lanes or traits.mimic))
        ]
        self.carried = [name for sweep in algorithm.sweeps if isinstance(sweep, Ancestors) for name in sweep.carries]
        self.model_arrays = self._model_arrays(lanes)
        own = [name for name in algorithm.outputs if name in self.gathered or self._is_pair(name)]
        self.raw = [name for name in self.inputs if self._coupled(name)]
        self.workspace_arrays = [
            *(f"in {name}" for name in self.inputs),
            *(f"raw {name}" for name in self.raw),
            *(f"field {name}" for name in algorithm.fields if not self._is_block(name)),
            *(f"carry {name}" for name in self.carried),
            *(f"out {name}" for name in own),
        ]
        self.direct = self._direct()
        self.integers = [
            *("n_bodies", "nv", "n_links", "link"),
            *(f"n_pairs {k}" for k in lanes),
            *(f"n_gather {name}" for name in self.gathered),
            *(f"columns {name}" for name in (*self.inputs, *self.raw, *algorithm.outputs)),
            *(f"tree {name}" for name in self.raw),
            *(f"zeroed {name}" for name in sorted(self.lane_fields)),
            *(f"vectors {name}" for name in self.workspace_arrays),
            *(f"offset {name}" for name in self.workspace_arrays),
        ]

    def _direct(self) -> dict[str, str]:
        """Arrays of the workspace that are a row of the user's own array instead: by name, which input or output.

        One state at a time, coordinates need no transposing; on trees of millions copying them takes a tenth of the
        time.
        """
        if self.kind.width > 1:
            return {}
        found = {f"in {name}": name for name in self.inputs if name not in self.raw}
        for name, output in self.algorithm.outputs.items():
            if isinstance(output, DofOutput) and name not in self.gathered:
                zeroed = must_be_zeroed(self.algorithm)
                if output.field not in zeroed and self.algorithm.fields[output.field].size(1) == 1:
                    found[f"field {output.field}"] = name
        return found

    def _is_pair(self, name: str) -> bool:
        return isinstance(self.algorithm.outputs[name], PairOutput)

    def _is_block(self, name: str) -> bool:
        """Whether a field is only ever the blocks of a matrix, which no array holds."""
        return any(
            isinstance(sweep, Ancestors) and not sweep.of_link and name in sweep.writes
            for sweep in self.algorithm.sweeps
        )

    def _coupled(self, name: str) -> bool:
        return self.traits.mimic and name in ("q", *_PER_VELOCITY)

    def _model_arrays(self, lanes: list[int]) -> list[str]:
        couplings = ("q_source", "q_multiplier", "q_offset", "v_source", "v_multiplier", "v_offset")
        return [
            *("layout", "parent", "kind", "q_start", "v_start", "Xtree", "inertia", "pitch", "armature", "gravity"),
            *("X", "link_body"),
            *(couplings if self.traits.mimic else ()),
            "own_armature",
            *(f"pairs {k}" for k in lanes),
            *(part for name in self.gathered for part in (f"gather {name}", f"weight {name}")),
        ]

    @property
    def alignment(self) -> int:
        """Bytes that vectors are aligned to; of the user's own arrays nothing is known."""
        return 1 if self.direct else self.kind.itemsize

    def base_number(self, array: str) -> int:
        """Place of an array among the pointers that functions are given."""
        return [*self.model_arrays, *self.workspace_arrays].index(array)

    def layout_number(self, name: str) -> int:
        """Place of a number in the layout."""
        return self.integers.index(name)

    # Sweeps.

    def text(self, name: str = "kernel") -> str:
        """The module."""
        writers: dict[type, Callable[[tuple[int, ...]], str]] = {
            World: self._world,
            Outward: self._bodies,
            Inward: self._bodies,
            Ancestors: self._ancestors,
            Links: self._links,
        }
        sweeps = [writers[type(self.algorithm.sweeps[group[0]])](group) for group in self.tracer.groups]
        return "".join(
            (
                declarations(self.kind),
                sincos.declarations(self.kind),
                runtime_functions(self.kind),
                *sweeps,
                self._kernel(name),
                attributes(self.target),
            )
        )

    @property
    def _kinds(self) -> list[tuple[int, JointKind]]:
        return [(code, KINDS[code]) for code in self.traits.kinds]

    def _sweep(self, group: tuple[int, ...]) -> Any:
        return self.algorithm.sweeps[group[0]]

    def _world(self, group: tuple[int, ...]) -> str:
        sweep: World = self._sweep(group)
        function = _Function(self, f"sweep{group[0]}")
        out = function.block("start")
        _StepWriter(function, out, self.tracer.world(sweep), _Scope()).write()
        out.do("ret void")
        return function.finish("start")

    def _bodies(self, group: tuple[int, ...]) -> str:
        """A loop over bodies, or over pairs of a body and a lane."""
        sweep: Outward | Inward = self._sweep(group)
        number = group[0]
        function = _Function(self, f"sweep{number}")
        backwards = isinstance(sweep, Inward) and not sweep.lanes
        count = function.integer(f"n_pairs {number}" if sweep.lanes else "n_bodies")
        head = function.block("head")
        start = function.entry.new(f"sub i64 {count}, 1") if backwards else "0"
        head.do(f"%k = phi i64 [ {start}, %entry ], [ %next, %latch ]")
        head.do(f"%inside = icmp {'sge i64 %k, 0' if backwards else f'slt i64 %k, {count}'}")
        head.do("br i1 %inside, label %step, label %done")
        out = function.block("step")
        scope = self._lane_scope(function, out, number) if sweep.lanes else _Scope(self_="%k")
        at = out.new(f"getelementptr i64, ptr {function.base('parent')}, i64 {scope.self_}")
        scope.parent = out.new(f"load i64, ptr {at}")
        self._switch(function, out, [scope.self_], "latch", lambda kinds: self.tracer.bodies(group, kinds[0]), scope)
        latch = function.block("latch")
        latch.do(f"%next = add i64 %k, {-1 if backwards else 1}")
        latch.do("br label %head")
        function.block("done").do("ret void")
        return function.finish("head")

    def _lane_scope(self, function: _Function, out: Lines, number: int) -> _Scope:
        loaded = []
        for part in range(4):
            record = f"getelementptr [4 x i64], ptr {function.base(f'pairs {number}')}, i64 %k, i64 {part}"
            loaded.append(out.new(f"load i64, ptr {out.new(record)}"))
        return _Scope(self_=loaded[0], lane=loaded[1], own_slot=loaded[2], parent_slot=loaded[3])

    def _switch(
        self, function: _Function, out: Lines, bodies: list[str], after: str, trace: Any, scope: _Scope
    ) -> None:
        """A step for each combination of the kinds of some bodies, then on to block `after`."""
        combinations: list[tuple[tuple[int, JointKind], ...]] = [()]
        for _ in bodies:
            combinations = [(*some, each) for some in combinations for each in self._kinds]
        if len(combinations) > 1:
            code = "0"
            for body in bodies:
                at = out.new(f"getelementptr i64, ptr {function.base('kind')}, i64 {body}")
                scaled = out.new(f"mul i64 {code}, {len(KINDS)}")
                code = out.new(f"add i64 {scaled}, {out.new(f'load i64, ptr {at}')}")
        labels = {}
        for some in combinations:
            value = 0
            for number, _ in some:
                value = value * len(KINDS) + number
            labels[value] = f"{after}.{'.'.join(kind.name for _, kind in some)}"
        if len(combinations) > 1:
            cases = " ".join(f"i64 {value}, label %{label}" for value, label in labels.items())
            out.do(f"switch i64 {code}, label %{after}.none [ {cases} ]")
            function.block(f"{after}.none").do("unreachable")
        else:
            out.do(f"br label %{next(iter(labels.values()))}")
        for some, label in zip(combinations, labels.values(), strict=True):
            block = function.block(label)
            _StepWriter(function, block, trace([kind for _, kind in some]), scope).write()
            block.do(f"br label %{after}")

    def _links(self, group: tuple[int, ...]) -> str:
        sweep: Links = self._sweep(group)
        function = _Function(self, f"sweep{group[0]}")
        first, count = ("0", function.integer("n_links"))
        if sweep.of_link:
            first = function.integer("link")
            count = function.entry.new(f"add i64 {first}, 1")
        head = function.block("head")
        head.do(f"%link = phi i64 [ {first}, %entry ], [ %next, %step ]")
        head.do(f"%inside = icmp slt i64 %link, {count}")
        head.do("br i1 %inside, label %step, label %done")
        out = function.block("step")
        at = out.new(f"getelementptr i64, ptr {function.base('link_body')}, i64 %link")
        body = out.new(f"load i64, ptr {at}")
        # The one link that a query is about is stored as if it were the only one.
        scope = _Scope(self_=body, link="%link", link_row="0" if sweep.of_link else "%link")
        _StepWriter(function, out, self.tracer.links(sweep), scope).write()
        out.do("%next = add i64 %link, 1")
        out.do("br label %head")
        function.block("done").do("ret void")
        return function.finish("head")

    def _ancestors(self, group: tuple[int, ...]) -> str:
        """From every body (or the link's) up to the root."""
        sweep: Ancestors = self._sweep(group)
        function = _Function(self, f"sweep{group[0]}")
        first, last = "0", function.integer("n_bodies")
        scope = _Scope(first="%first", self_="%here")
        if sweep.of_link:
            link = function.integer("link")
            at = function.entry.new(f"getelementptr i64, ptr {function.base('link_body')}, i64 {link}")
            first = function.entry.new(f"load i64, ptr {at}")
            last = function.entry.new(f"add i64 {first}, 1")
            scope.link = link
        head = function.block("head")
        head.do(f"%first = phi i64 [ {first}, %entry ], [ %next, %latch ]")
        head.do(f"%inside = icmp slt i64 %first, {last}")
        # A link fixed to the world starts nowhere.
        head.do("%moves = icmp sge i64 %first, 0")
        head.do("%go = and i1 %inside, %moves")
        head.do("br i1 %go, label %begin, label %done")
        out = function.block("begin")
        self._switch(function, out, ["%first"], "climb", lambda kinds: self.tracer.start(sweep, kinds[0]), scope)
        climb = function.block("climb")
        climb.do("br label %at")
        at_block = function.block("at")
        at_block.do("%here = phi i64 [ %first, %climb ], [ %above, %visited ]")
        self._switch(
            function, at_block, ["%here", "%first"], "visited", lambda kinds: self.tracer.visit(sweep, *kinds), scope
        )
        visited = function.block("visited")
        above_at = visited.new(f"getelementptr i64, ptr {function.base('parent')}, i64 %here")
        visited.do(f"%above = load i64, ptr {above_at}")
        visited.do("%more = icmp sge i64 %above, 0")
        visited.do("br i1 %more, label %at, label %latch")
        latch = function.block("latch")
        latch.do("%next = add i64 %first, 1")
        latch.do("br label %head")
        function.block("done").do("ret void")
        return function.finish("head")

    # The exported function.

    def _kernel(self, name: str) -> str:
        """Set up the arrays, then W rows at a time: inputs in, sweeps, outputs out."""
        return _KernelWriter(self).text(name)


class _KernelWriter:
    """Writes the exported function of a module."""

    def __init__(self, module: RolledModule) -> None:
        self.module = module
        self.setup = Lines()
        self.body = Lines(self.setup.numbers)
        self.bases: dict[str, str] = {}

    def text(self, name: str) -> str:
        """The function."""
        module, setup, body = self.module, self.setup, self.body
        n_arrays = len(module.model_arrays) + len(module.workspace_arrays)
        setup.do(f"%bases = alloca [{n_arrays} x ptr]")
        setup.do("%end = sub i64 %last, 1")
        first_model = len(module.inputs) + len(module.algorithm.outputs)
        for k, array in enumerate(module.model_arrays):
            self._set_base(setup, array, setup.new(f"load ptr, ptr {self._record(setup, first_model + k)}"))
        for array in module.workspace_arrays:
            at = setup.new(f"getelementptr i8, ptr %workspace, i64 {self._integer(f'offset {array}')}")
            self._set_base(setup, array, at)
        self._zero_once()
        self._point_at_rows()
        for k, each in enumerate(module.inputs):
            if f"in {each}" not in module.direct:
                self._stage_in(k, each)
        self._zero_each_time()
        for group in module.tracer.groups:
            body.do(f"call void @sweep{group[0]}(ptr %bases, ptr {self.bases['layout']})")
        for k, each in enumerate(module.algorithm.outputs):
            if each not in module.direct.values():
                self._stage_out(len(module.inputs) + k, each)
        before, inside = "\n".join(setup.lines), "\n".join(body.lines)
        return f"""define void @{name}(ptr %table, i64 %first, i64 %last, ptr %workspace) #0 {{
entry:
{before}
  br label %rows
rows:
  %row = phi i64 [ %first, %entry ], [ %next, %rows ]
{inside}
  %next = add i64 %row, {module.kind.width}
  %more = icmp slt i64 %next, %last
  br i1 %more, label %rows, label %done
done:
  ret void
}}

"""

    def _record(self, out: Lines, number: int, part: int = 0) -> str:
        return out.new(f"getelementptr {{ptr, i64}}, ptr %table, i64 {number}, i32 {part}")

    def _set_base(self, out: Lines, array: str, pointer: str) -> None:
        at = out.new(f"getelementptr ptr, ptr %bases, i64 {self.module.base_number(array)}")
        out.do(f"store ptr {pointer}, ptr {at}")
        self.bases[array] = pointer

    def _integer(self, name: str) -> str:
        at = self.setup.new(f"getelementptr i64, ptr {self.bases['layout']}, i64 {self.module.layout_number(name)}")
        return self.setup.new(f"load i64, ptr {at}")

    def _zero(self, out: Lines, array: str, vectors: str) -> None:
        size = self.setup.new(f"mul i64 {vectors}, {self.module.kind.bytes}")
        out.do(f"call void @llvm.memset.p0.i64(ptr {self.bases[array]}, i8 0, i64 {size}, i1 false)")

    def _zero_once(self) -> None:
        """Lane fields' zero rows, which nothing ever writes."""
        for name in sorted(self.module.lane_fields):
            size = lane_size(self.module.algorithm.fields[name])
            self._zero(self.setup, f"field {name}", str(size))

    def _zero_each_time(self) -> None:
        module = self.module
        for name, how in must_be_zeroed(module.algorithm).items():
            if module._is_block(name):
                continue
            all_of_it = self._integer(f"vectors field {name}")
            self._zero(self.body, f"field {name}", all_of_it if how == "all" else str(module.tracer.stored(name)))
        for name in sorted(module.lane_fields):
            self._zero(self.body, f"field {name}", self._integer(f"zeroed {name}"))
        for name in module.algorithm.outputs:
            if f"out {name}" in module.workspace_arrays:
                self._zero(self.body, f"out {name}", self._integer(f"vectors out {name}"))

    def _array(self, number: int) -> tuple[str, str]:
        """Data and stride of an input or output."""
        data = self.setup.new(f"load ptr, ptr {self._record(self.setup, number)}")
        return data, self.setup.new(f"load i64, ptr {self._record(self.setup, number, 1)}")

    def _point_at_rows(self) -> None:
        """Let arrays that are the user's own begin at the row."""
        names = [*self.module.inputs, *self.module.algorithm.outputs]
        for array, name in self.module.direct.items():
            data, stride = self._array(names.index(name))
            offset = self.body.new(f"mul i64 %row, {stride}")
            self._set_base(self.body, array, self.body.new(f"getelementptr i8, ptr {data}, i64 {offset}"))

    def _stage_in(self, number: int, name: str) -> None:
        module, body = self.module, self.body
        data, stride = self._array(number)
        coupled = name in module.raw
        to = self.bases[f"raw {name}" if coupled else f"in {name}"]
        arguments = f"ptr {data}, i64 {stride}, i64 %row, i64 %end, ptr {to}, i64 {self._integer(f'columns {name}')}"
        body.do(f"call void @stage_in({arguments})")
        if coupled:
            which = "q" if name == "q" else "v"
            tables = ", ".join(f"ptr {self.bases[f'{which}_{part}']}" for part in ("source", "multiplier", "offset"))
            target = self.bases[f"in {name}"]
            body.do(f"call void @couple(ptr {to}, ptr {target}, {tables}, i64 {self._integer(f'tree {name}')})")

    def _stage_out(self, number: int, name: str) -> None:
        module, body = self.module, self.body
        output = module.algorithm.outputs[name]
        if name in module.gathered:
            assert isinstance(output, ColumnOutput | DofOutput)
            tables = f"ptr {self.bases[f'gather {name}']}, ptr {self.bases[f'weight {name}']}"
            source, to = self.bases[f"field {output.field}"], self.bases[f"out {name}"]
            count = self._integer(f"n_gather {name}")
            body.do(f"call void @gather(ptr {source}, ptr {to}, {tables}, i64 {count})")
        elif isinstance(output, PairOutput):
            to = self.bases[f"out {name}"]
            if output.armature and module.traits.armature:
                body.do(
                    f"call void @add_diagonal(ptr {to}, ptr {self.bases['own_armature']}, i64 {self._integer('nv')})"
                )
        else:
            assert isinstance(output, WorldOutput | LinkOutput | DofOutput)
            to = self.bases[f"field {output.field}"]
        data, stride = self._array(number)
        arguments = f"ptr {data}, i64 {stride}, i64 %row, i64 %end, ptr {to}, i64 {self._integer(f'columns {name}')}"
        body.do(f"call void @stage_out({arguments})")
