"""Steps of rolled code: loads of their sources, operations, stores to their targets."""

from __future__ import annotations

import ast
from typing import Any

from robodyn.compile.llvm.straight_line import StraightLine
from robodyn.compile.llvm.vectors import Lines
from robodyn.compile.loop_plan import CONSTANT_ROWS, lane_size, per_velocity
from robodyn.compile.loops.blocks import I64, Number, Pointer, Value
from robodyn.compile.loops.language import Operator
from robodyn.compile.loops.reader import Reader
from robodyn.compile.lowering import lower
from robodyn.compile.tracing.expression import CONSTANT, INPUT
from robodyn.compile.tracing.rolled import Source, Step, Target
from robodyn.core.sweeps import PER_BODY, PER_VELOCITY, BodyOutput, LinkColumnOutput, PairOutput
from robodyn.engines.cpu.loops.layout import RolledLayout

_ADD, _MULTIPLY, _EQUAL = ast.Add(), ast.Mult(), ast.Eq()


class Steps(Operator):
    """Runs a step: `run(step, bases, body=..., parent=...)`, with the indices of its subjects: `body`, `parent`,
    `first` (the body at which a sweep started), `link`, `link_row` (the link's row in arrays), `lane`, `own_slot` and
    `parent_slot` (rows of lane fields)."""

    READER: type[StepReader]

    def __init__(self, module: RolledLayout) -> None:
        self.module = module

    def read(self, reader: Reader, *arguments: Any, **subjects: Any) -> None:
        """Emit the step's code at this point of a sweep."""
        step, bases = arguments
        self.READER(self.module, reader, step, bases, subjects).read()


class StepReader:
    """Emits the code of one step."""

    def __init__(
        self, module: RolledLayout, reader: Reader, step: Step, bases: Value, subjects: dict[str, Any]
    ) -> None:
        self.module, self.reader, self.step, self.bases, self.subjects = module, reader, step, bases, subjects
        self.bodies = {"self": subjects.get("body"), "world": -1, **subjects}
        self.vector, self.scalar = module.types["Vector"], module.types["Scalar"]
        self._starts: dict[str, Value] = {}
        self._rows: dict[tuple[str, str], Value] = {}

    def read(self) -> None:
        """Emit the whole step. All results are computed before the first one is stored, because a step may read fields
        that it overwrites."""
        for value, target in zip(self._results(), self.step.targets, strict=True):
            self._store(value, target)

    def _results(self) -> list[Value]:
        program, out = self.step.program, Lines(self.reader.numbers())

        def flush() -> None:
            if out.lines:
                self.reader.do("lines", lines=out.lines)
                out.lines = []

        def fetch(node: int) -> str:
            operation, number, _ = program.nodes[node]
            assert operation == INPUT
            flush()
            return f"%{self._source(self.step.sources[number]).name}"

        code = StraightLine(self.module.kind, program.nodes, out, fetch)
        for operation in lower(program, nested=True):
            code.compute(operation)
        found = [self._result(node, code) for node in program.outputs[0].scalars]
        flush()
        return found

    def _result(self, node: int | float, code: StraightLine) -> Value:
        operation, constant, _ = self.step.program.nodes[node] if isinstance(node, int) else (CONSTANT, node, 0)
        if operation == CONSTANT:
            return Value(self.vector.value, constant=constant)
        return Value(self.vector.value, code.value(node).removeprefix("%"))

    # Addresses.

    def _add(self, a: Any, b: Any) -> Any:
        return self.reader.binary(_ADD, a, b)

    def _times(self, a: Any, b: Any) -> Any:
        return self.reader.binary(_MULTIPLY, a, b)

    def _base(self, array: str, of: Number) -> Value:
        """Address of an array."""
        reader, number = self.reader, self.module.base_number(array)
        found = reader.once(array, lambda: reader.load(reader.moved(self.bases, number)))
        return reader.cast(found, Pointer(of))

    def _integer(self, name: str) -> Value:
        """An entry of the layout."""
        reader, number = self.reader, self.module.layout_number(name)
        return reader.once(name, lambda: self._entry("layout", I64, number))

    def _entry(self, array: str, of: Number, k: Any) -> Value:
        """An entry of an array."""
        return self.reader.load(self.reader.moved(self._base(array, of), k))

    def _start(self, what: str, subject: str) -> Any:
        """A body's first coordinate, velocity or row; see `RolledLayout.table_of`."""
        body, table = self.bodies[subject], self.module.table_of(what)
        if table is None:
            return body
        key = f"{table} {subject}"
        if key not in self._starts:
            self._starts[key] = self._entry(table, I64, body)
        return self._starts[key]

    def _row(self, subject: str, array: str) -> Value:
        """Address of a subject's row of an array."""
        if (subject, array) not in self._rows:
            self._rows[subject, array] = self._find_row(subject, array)
        return self._rows[subject, array]

    def _find_row(self, subject: str, array: str) -> Value:
        if array.startswith("field "):
            return self._field_row(subject, array.removeprefix("field "))
        constant = self._is_constant(array)
        index: Any = 0
        if constant and array in CONSTANT_ROWS:
            row = self.subjects["link"] if subject == "link" else self.bodies[subject]
            index = self._times(row, CONSTANT_ROWS[array])
        elif array == "q":
            index = self._start("q_start", subject)
        elif array == "armature" or array in PER_VELOCITY:
            index = self._start("v_start", subject)
        elif array in PER_BODY:
            index = self._times(self._start("row", subject), PER_BODY[array])
        base = self._base(array, self.scalar) if constant else self._base(f"in {array}", self.vector)
        return self.reader.moved(base, index)

    def _is_constant(self, array: str) -> bool:
        """True if an array belongs to the model, with one number for all states."""
        return array not in self.module.inputs and array in (*CONSTANT_ROWS, "armature", "gravity")

    def _field_row(self, subject: str, name: str) -> Value:
        module, subjects = self.module, self.subjects
        each = module.algorithm.fields[name]
        base = self._base(f"carry {name}" if subject == "carry" else f"field {name}", self.vector)
        if subject in ("carry", "world"):
            return base
        if name in module.lane_fields and "lane" in subjects:
            index = self._times(subjects["own_slot" if subject == "self" else "parent_slot"], lane_size(each))
        elif name in module.link_fields:
            index = self._times(subjects["link_row"], each.size(0))
        elif each.copies is not None:
            index = self._times(self._start(module.place_of(name), subject), per_velocity(each))
        else:
            index = self._times(self._add(self.bodies[subject], 1), module.tracer.stored(name))
        return self.reader.moved(base, index)

    # Values.

    def _source(self, source: Source) -> Value:
        """An input of the step."""
        if source.array == "unit":
            velocity = self._add(self._start("v_start", source.subject), source.index)
            return self._select(self.reader.compared(_EQUAL, velocity, self.subjects["lane"]), 1.0, 0.0)
        at = self.reader.moved(self._row(source.subject, source.array), source.index)
        return self._broadcast(self.reader.load(at))

    def _broadcast(self, value: Value) -> Value:
        found: Value = self.reader.primitives["spread"](self.reader, self.vector, value)
        return found

    def _select(self, test: Value, a: Value | float, b: Value | float) -> Value:
        found: Value = self.reader.select(test, *(self.reader.typed(each, self.vector.value) for each in (a, b)))
        return found

    def _store(self, value: Value, target: Target) -> None:
        if target.subject == "block":
            self._store_block(value, target)
        elif target.subject == "world" and target.field in self.module.lane_fields:
            # The world is at rest in every lane, and lane fields have a zero row for it already.
            assert value.constant == 0.0
        else:
            row = self._row(target.subject, f"field {target.field}")
            self._store_at(value, self.reader.moved(row, target.index), add=target.add)

    def _store_at(self, value: Value, at: Value, *, add: bool) -> None:
        self.reader.do("store", self._add(self.reader.load(at), value) if add else value, at)

    def _store_block(self, value: Value, target: Target) -> None:
        """Add an entry to matrices. Its row is a velocity of the body, its column a velocity of the body at which the
        sweep started."""
        row = self._add(self._start("v_start", "self"), target.row)
        if self._store_row(value, target, row):
            return
        column = self._add(self._start("v_start", "first"), target.column)
        if self.module.traits.mimic:
            value = self._times(self._times(value, self._weight(row)), self._weight(column))
            row, column = self._coupled(row), self._coupled(column)
        for name, output in self.module.algorithm.outputs.items():
            for blocks in output.blocks if isinstance(output, PairOutput) else ():
                if blocks.field != target.field:
                    continue
                a, b = (column, row) if blocks.transposed else (row, column)
                nv = self._integer("nv")
                a = self._add(a, self._times(nv, target.index)) if target.index else a
                at = self.reader.moved(self._base(f"out {name}", self.vector), self._add(self._times(a, nv), b))
                entry = value
                if not blocks.diagonal:
                    same = self.reader.compared(_EQUAL, self.bodies["self"], self.bodies["first"])
                    entry = self._select(same, 0.0, value)
                self._store_at(entry, at, add=True)

    def _store_row(self, value: Value, target: Target, row: Any) -> bool:
        """Add an entry to outputs with columns for the body or link at which the sweep started. False if there are no
        such outputs."""
        outputs = {
            name: output
            for name, output in self.module.algorithm.outputs.items()
            if isinstance(output, BodyOutput | LinkColumnOutput) and output.field == target.field
        }
        if outputs and self.module.traits.mimic:
            value, row = self._times(value, self._weight(row)), self._coupled(row)
        for name, output in outputs.items():
            if isinstance(output, BodyOutput):
                place = self._add(self._times(row, self._integer("n_bodies")), self.bodies["first"])
                index = self._add(self._times(place, output.width), target.column)
            else:
                place = self._add(self._times(self.subjects["link"], output.rows), target.column)
                index = self._add(self._times(place, self._integer("nv")), row)
            self._store_at(value, self.reader.moved(self._base(f"out {name}", self.vector), index), add=True)
        return bool(outputs)

    def _weight(self, velocity: Any) -> Value:
        return self._broadcast(self._entry("v_multiplier", self.scalar, velocity))

    def _coupled(self, velocity: Any) -> Value:
        return self._entry("v_source", I64, velocity)


Steps.READER = StepReader
