"""Steps of rolled code: loads from where sources lie, operations, stores to where targets lie."""

from __future__ import annotations

from robodyn.codegen.llvm.straight_line import StraightLine
from robodyn.codegen.llvm.vectors import Lines, spread
from robodyn.codegen.loop_plan import CONSTANT_ROWS, Scope, lane_size, per_velocity
from robodyn.codegen.lowering import lower
from robodyn.engines.cpu.loops.layout import RolledLayout
from robodyn.sweeps import PER_BODY, PER_VELOCITY, BodyOutput, LinkColumnOutput, PairOutput
from robodyn.tracing.expression import INPUT
from robodyn.tracing.rolled import Source, Step, Target


class Function:
    """One function of the module: loads in its entry block, then blocks that are added in order."""

    def __init__(self, module: RolledLayout, name: str, arguments: str = "") -> None:
        self.module, self.name, self.arguments = module, name, arguments
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
        arguments = f"ptr %bases, ptr %layout{self.arguments}"
        return f"define internal void @{self.name}({arguments}) #0 {{\n{entry}\n{body}\n}}\n\n"


class StepWriter:
    """Writes one step into a block: loads where sources lie, operations, stores where targets lie."""

    def __init__(self, function: Function, out: Lines, step: Step, scope: Scope) -> None:
        self.function, self.out, self.step, self.scope = function, out, step, scope
        self.module = function.module
        self.kind = self.module.kind
        self._starts: dict[tuple[str, str], str] = {}
        self._rows: dict[tuple[str, str], str] = {}

    def write(self) -> None:
        """All of it. Every result is computed before the first is stored: a step may read what it replaces."""
        program = self.step.program
        code = StraightLine(self.kind, program.nodes, self.out, self._fetch)
        for operation in lower(program, nested=True):
            code.compute(operation)
        values = [code.value(scalar) for scalar in program.outputs[0].scalars]
        for value, target in zip(values, self.step.targets, strict=True):
            self._store(value, target)

    def _start(self, what: str, subject: str) -> str:
        """What a body has first; see `RolledLayout.table_of`."""
        body, table = self.scope.body(subject), self.module.table_of(what)
        if table is None:
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
        constant = self._is_constant(array)
        if constant and array in CONSTANT_ROWS:
            row = self.scope.link if subject == "link" else self.scope.body(subject)
            index = out.new(f"mul i64 {row}, {CONSTANT_ROWS[array]}")
        elif array == "armature":
            index = self._start("v_start", subject)
        elif array == "q":
            index = self._start("q_start", subject)
        elif array in PER_VELOCITY:
            index = self._start("v_start", subject)
        elif array in PER_BODY:
            index = out.new(f"mul i64 {self._start('row', subject)}, {PER_BODY[array]}")
        else:
            index = "0"
        base = self.function.base(array if constant else f"in {array}")
        return out.new(f"getelementptr {self.kind.scalar if constant else self.kind.name}, ptr {base}, i64 {index}")

    def _is_constant(self, array: str) -> bool:
        """Whether an array is the model's, with one number for all states."""
        return array not in self.module.inputs and array in (*CONSTANT_ROWS, "armature", "gravity")

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
            index = out.new(f"mul i64 {self._start(module.place_of(name), subject)}, {per_velocity(each)}")
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
        if self._is_constant(source.array):
            at = self.out.new(f"getelementptr {self.kind.scalar}, ptr {row}, i64 {source.index}")
            scalar = self.out.new(f"load {self.kind.scalar}, ptr {at}, align {self.kind.itemsize}")
            return self._broadcast(scalar)
        return self._load(self.out.new(f"getelementptr {self.kind.name}, ptr {row}, i64 {source.index}"))

    def _broadcast(self, scalar: str) -> str:
        return scalar if self.kind.width == 1 else spread(self.out, self.kind.scalar, self.kind.width, scalar)

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

    def _store(self, value: str, target: Target) -> None:
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

    def _store_block(self, value: str, target: Target) -> None:
        out, T = self.out, self.kind.name
        row = out.new(f"add i64 {self._start('v_start', 'self')}, {target.row}")
        if self._store_row(value, target, row):
            return
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
                nv = self.function.integer("nv")
                if target.index:
                    a = out.new(f"add i64 {a}, {out.new(f'mul i64 {nv}, {target.index}')}")
                index = out.new(f"add i64 {out.new(f'mul i64 {a}, {nv}')}, {b}")
                at = out.new(f"getelementptr {T}, ptr {self.function.base(f'out {name}')}, i64 {index}")
                entry = value
                if not blocks.diagonal:
                    same = out.new(f"icmp eq i64 {self.scope.self_}, {self.scope.first}")
                    entry = out.new(f"select i1 {same}, {T} {self.kind.splat(0.0)}, {T} {value}")
                self._store_at(entry, at, add=True)

    def _store_row(self, value: str, target: Target, row: str) -> bool:
        """An entry of outputs that have columns for the body or link that the sweep started from; whether any do."""
        out, T = self.out, self.kind.name
        outputs = {
            name: output
            for name, output in self.module.algorithm.outputs.items()
            if isinstance(output, BodyOutput | LinkColumnOutput) and output.field == target.field
        }
        if outputs and self.module.traits.mimic:
            value = out.new(f"fmul {T} {value}, {self._weight(row)}")
            row = self._source(row)
        for name, output in outputs.items():
            if isinstance(output, BodyOutput):
                index = self._place((row, "n_bodies"), (self.scope.first, output.width), target.column)
            else:
                index = self._place((self.scope.link, output.rows), (str(target.column), "nv"), row)
            at = out.new(f"getelementptr {T}, ptr {self.function.base(f'out {name}')}, i64 {index}")
            self._store_at(value, at, add=True)
        return bool(outputs)

    def _place(self, first: tuple[str, int | str], second: tuple[str, int | str], last: int | str) -> str:
        """Place of an entry of an array: two indices with the lengths of the axes after them, and the last index."""
        place = "0"
        for index, length in (first, second):
            size = length if isinstance(length, int) else self.function.integer(length)
            place = self.out.new(f"mul i64 {self.out.new(f'add i64 {place}, {index}')}, {size}")
        return self.out.new(f"add i64 {place}, {last}")

    def _weight(self, velocity: str) -> str:
        at = self.out.new(f"getelementptr {self.kind.scalar}, ptr {self.function.base('v_multiplier')}, i64 {velocity}")
        return self._broadcast(self.out.new(f"load {self.kind.scalar}, ptr {at}"))

    def _source(self, velocity: str) -> str:
        at = self.out.new(f"getelementptr i64, ptr {self.function.base('v_source')}, i64 {velocity}")
        return self.out.new(f"load i64, ptr {at}")
