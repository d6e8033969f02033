"""Prints a step of a rolled kernel as statements: loads of its sources, operations, and stores of its targets."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from robodyn.compile.c.body import Body
from robodyn.compile.loop_plan import (
    CONSTANT_ROWS,
    SPARE_SLOT,
    RolledPlan,
    Scope,
    lane_fields,
    lane_size,
    link_fields,
    per_velocity,
    traits_of,
)
from robodyn.compile.lowering import lower
from robodyn.compile.ordering import in_short_order, values_alive
from robodyn.compile.tracing.program import Port
from robodyn.compile.tracing.rolled import Source, Step, StepTracer, Target
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.sweeps import (
    PER_BODY,
    PER_VELOCITY,
    Algorithm,
    BodyOutput,
    LinkColumnOutput,
    Output,
    PairOutput,
    World,
    WorldOutput,
)
from robodyn.engines.gpu.kernel_text import KernelText, Ref
from robodyn.engines.gpu.source import WARP
from robodyn.internals.arguments import Array

_WHOLE = 1 << 30
"""The most operations in a part of a step. So large that steps are never divided."""
_LARGEST_PITCH = 1 << 16
_CROWDED_BYTES = 600
"""Steps with more bytes of values than this are printed so as to save registers. A thread has 1020 bytes of registers,
also for addresses."""
_RESULT = re.compile(r"r(\d+) = (.*);")


def _columns(rows: Array, width: int) -> Array:
    """A table in column-major order, so that threads with neighbouring bodies read neighbouring numbers. Its pitch is a
    constant of the kernel's text. Pitches are rounded up, so that robots of similar size share the text."""
    rows = np.asarray(rows).reshape(-1, width)
    pitch = WARP
    while pitch < len(rows):
        pitch += min(pitch, _LARGEST_PITCH)
    table = np.zeros((width, pitch), rows.dtype)
    table[:, : len(rows)] = rows.T
    return table


class AlgorithmCode:
    """The arrays and constants that the steps of one algorithm on one model use.

    Args:
        text: the kernel's text.
        model: the robot.
        algorithm: the algorithm to run.
        base: which of V0 and dV0 are inputs.
        link: the index of the query's link, if the query is about one.
        given: references to the algorithm's inputs, by name.
    """

    def __init__(
        self,
        text: KernelText,
        model: Model,
        algorithm: Algorithm,
        base: tuple[str, ...],
        link: int | None,
        given: Mapping[str, Ref],
    ) -> None:
        self.text, self.model, self.algorithm, self.link = text, model, algorithm, link
        self.traits = traits_of(model)
        self.tracer = StepTracer(algorithm, [KINDS[code] for code in self.traits.kinds], base, self.traits.armature)
        self.plan = RolledPlan(model, algorithm, base, link, self.traits.mimic)
        self.lane_fields, self.link_fields = lane_fields(algorithm), link_fields(algorithm)
        self.given = dict(given)
        """References to inputs. With mimicking joints, these are arrays with entries for all joints."""
        self.results: dict[str, Ref] = {}
        """References to outputs that steps add to."""
        self._fields: dict[str, Ref] = {}
        self._tables: dict[str, tuple[str, int]] = {}
        """Tables of constants in column-major order: name in the kernel, and pitch."""
        self._seen_outside = {getattr(output, "field", "") for output in algorithm.outputs.values()}
        sweeps, outputs = algorithm.sweeps, algorithm.outputs.values()
        self.world_fields = {name for sweep in sweeps if isinstance(sweep, World) for name in sweep.reads}
        """Fields whose sums at the world are read."""
        self.world_fields |= {output.field for output in outputs if isinstance(output, WorldOutput)}
        self.world_fields |= {name for sweep in sweeps for name in getattr(sweep, "carries", ())}

    def field(self, name: str) -> Ref:
        """The array of a field."""
        if name not in self._fields:
            size, pitch = self.plan.field_vectors(name, self.tracer.stored(name)), self.pitch(name)
            self._fields[name] = self.text.array(f"f_{name}", size // max(1, self._width(name)) * pitch)
        return self._fields[name]

    def _width(self, name: str) -> int:
        """Scalars of one row of a field: of a body, of a link, of a velocity, or of a body and a lane."""
        each = self.algorithm.fields[name]
        if name in self.lane_fields:
            return lane_size(each)
        if name in self.link_fields:
            return each.size(0)
        return self.tracer.stored(name) if each.copies is None else per_velocity(each)

    def pitch(self, name: str) -> int:
        """The stride of a field's rows, in scalars.

        If several threads share a state, the stride is odd, so that they access the same entry of neighbouring rows in
        different banks of shared memory. Fields that are outputs have no padding.
        """
        width = self._width(name)
        padded = self.text.partition != "thread" and width and name not in self._seen_outside
        return width | 1 if padded else width

    def is_constant(self, array: str) -> bool:
        """Whether an array is a constant of the model, the same for all states."""
        return array not in self.given and array in (*CONSTANT_ROWS, "armature", "gravity")

    def model_array(self, name: str) -> str:
        """The name, in the kernel, of an array of the model. `name`: its name in the model or in steps."""
        values: Any = getattr(self.model, {"armature": "tree_armature"}.get(name, name))
        return self.text.constant(name, values)

    def model_entry(self, name: str, row: str, index: int) -> str:
        """The expression of an entry of a constant array with a row for each body or link."""
        if name not in self._tables:
            table = _columns(getattr(self.model, {"X": "link_X"}.get(name, name)), CONSTANT_ROWS[name])
            self._tables[name] = self.text.constant(name, table), table.shape[1]
        table_name, pitch = self._tables[name]
        return f"{table_name}[{row} + {index * pitch}]"


class StepWriter:
    """Writes one step: loads, operations, stores."""

    def __init__(self, code: AlgorithmCode, step: Step, scope: Scope) -> None:
        self.code, self.text, self.step, self.scope = code, code.text, step, scope
        self._starts: dict[tuple[str, str], str] = {}
        self._rows: dict[tuple[str, str], str] = {}
        self._numbers = 0

    def write(self) -> None:
        """Write the step.

        All loads come first and all stores last, so that a thread waits for memory once. If the registers do not
        suffice for that, each load comes at its use, and each store as early as possible: after all loads from
        locations that it may overwrite.
        """
        step, text = self.step, self.text
        values = self._values_bytes()
        text.values_bytes = max(text.values_bytes, values)
        crowded = values > _CROWDED_BYTES
        program = in_short_order(step.program) if crowded else step.program
        held = self._replaced() if crowded else set(range(len(step.targets)))
        names: dict[int, str] = {}
        for k, node in enumerate(program.inputs[0].scalars):
            if node != -1:
                source = self._source(step.sources[k])
                names[k] = f"({source})" if crowded else f"x{k}"
                if not crowded:
                    text.do(f"const T x{k} = {source};")
        if held:
            text.do(f"T {', '.join(f'r{k}' for k in sorted(held))};")

        def place(port: Port, k: int) -> str:
            return names.get(k, "") if port is program.inputs[0] else f"r{k}"

        for line in itertools.chain(*Body(program, text.dialect, place, _WHOLE).parts()):
            result = _RESULT.fullmatch(line)
            if result and int(result[1]) not in held:
                self._store(result[2], step.targets[int(result[1])])
            else:
                text.do(line)
        for k in sorted(held):
            self._store(f"r{k}", step.targets[k])

    def _values_bytes(self) -> int:
        """Bytes of the step's inputs, its results, and the most intermediate values alive at once."""
        program = self.step.program
        read = sum(node != -1 for node in program.inputs[0].scalars)
        values = read + len(self.step.targets) + values_alive(lower(program))
        return values * self.text.dtype.itemsize

    def _replaced(self) -> set[int]:
        """Indices of results whose locations the step also reads, because it reads the same field of the same body.

        A body and its parent are always different. The start body of a sweep ("first") and the current body ("self")
        may be the same.
        """
        read = {
            (source.array.removeprefix("field "), source.subject)
            for source, node in zip(self.step.sources, self.step.program.inputs[0].scalars, strict=True)
            if source.array.startswith("field ") and node != -1
        }
        apart = ({"self", "parent"}, {"carry", "self"}, {"carry", "first"}, {"carry", "parent"})
        return {
            k
            for k, target in enumerate(self.step.targets)
            if any(field == target.field and {subject, target.subject} not in apart for field, subject in read)
        }

    def _new(self, value: str, kind: str = "int") -> str:
        """Define a constant in the text and return its name."""
        self._numbers += 1
        self.text.do(f"const {kind} w{self._numbers} = {value};")
        return f"w{self._numbers}"

    def _start(self, table: str, subject: str) -> str:
        """The index of a body's first coordinate (table "q_start") or velocity ("v_start")."""
        body = self.scope.body(subject)
        if self.code.traits.single:
            return body
        if (table, body) not in self._starts:
            self._starts[table, body] = self._new(f"(int){self.code.model_array(table)}[{body}]")
        return self._starts[table, body]

    def _row(self, subject: str, array: str) -> str:
        """The start of a subject's row in an array."""
        if (subject, array) not in self._rows:
            self._rows[subject, array] = self._find_row(subject, array)
        return self._rows[subject, array]

    def _find_row(self, subject: str, array: str) -> str:
        if array.startswith("field "):
            return self._field_row(subject, array.removeprefix("field "))
        if self.code.is_constant(array) and array in CONSTANT_ROWS:
            return self.scope.link if subject == "link" else self.scope.body(subject)
        if array == "q":
            return self._start("q_start", subject)
        if array in ("armature", *PER_VELOCITY):
            return self._start("v_start", subject)
        if array in PER_BODY:
            return self._new(f"{self.scope.body(subject)} * {PER_BODY[array]}")
        return "0"

    def _field_row(self, subject: str, name: str) -> str:
        code, scope = self.code, self.scope
        if subject == "world":
            return "0"
        if name in code.lane_fields and scope.lane:
            row = scope.own_slot if subject == "self" else scope.parent_slot
        elif name in code.link_fields:
            row = scope.link_row
        elif code.algorithm.fields[name].copies is not None:
            row = self._start("v_start", subject)
        else:
            row = f"({scope.body(subject)} + 1)"
        return self._new(f"{row} * {code.pitch(name)}")

    def _source(self, source: Source) -> str:
        code, array = self.code, source.array
        if array == "unit":
            velocity = f"{self._start('v_start', source.subject)} + {source.index}"
            return f"{velocity} == {self.scope.lane} ? T(1) : T(0)"
        if source.subject == "carry":
            return f"carry_{array.removeprefix('field ')}[{source.index}]"
        row = self._row(source.subject, array)
        place = f"{row} + {source.index}"
        if array.startswith("field "):
            return code.field(array.removeprefix("field ")).at(place)
        if code.is_constant(array) and array in CONSTANT_ROWS:
            return code.model_entry(array, row, source.index)
        if code.is_constant(array):
            return f"{code.model_array(array)}[{place}]"
        return code.given[array].at(place)

    def _store(self, value: str, target: Target) -> None:
        code, name = self.code, target.field
        if target.subject == "carry":
            self.text.do(f"carry_{name}[{target.index}] = {value};")
            return
        if target.subject == "block":
            self._store_block(value, target)
            return
        if target.subject == "world" and name in code.lane_fields:
            # Lanes start with zero values: every lane reads the same zero row at the world, which no step writes.
            return
        at = code.field(name).at(f"{self._row(target.subject, f'field {name}')} + {target.index}")
        self.text.do(f"{self._guard(target)}{at} {'+=' if target.add else '='} {value};")

    def _guard(self, target: Target) -> str:
        """The condition for adding to a parent.

        Sums at the world are skipped if they are never read: the order of the world's children is not fixed, so adding
        would be a race.
        """
        if not target.add:
            return ""
        if self.scope.lane:
            return f"if ({self.scope.parent_slot} != {SPARE_SLOT}) "
        return "" if target.field in self.code.world_fields else f"if ({self.scope.parent} >= 0) "

    def _store_block(self, value: str, target: Target) -> None:
        code = self.code
        row = self._new(f"{self._start('v_start', 'self')} + {target.row}")
        if self._store_row(value, target, row):
            return
        column = self._new(f"{self._start('v_start', 'first')} + {target.column}")
        if code.traits.mimic:
            value = self._new(f"{value} * {self._weight(row)} * {self._weight(column)}", "T")
            row, column = self._new(self._followed(row)), self._new(self._followed(column))
        nv = self.text.integer("nv", code.model.nv)
        for name, output in code.algorithm.outputs.items():
            for blocks in output.blocks if isinstance(output, PairOutput) else ():
                if blocks.field != target.field:
                    continue
                a, b = (column, row) if blocks.transposed else (row, column)
                first = f"({a} + {nv} * {target.index})" if target.index else a
                guard = "" if blocks.diagonal else f"if ({self.scope.self_} != {self.scope.first}) "
                self.text.do(f"{guard}{code.results[name].at(f'{first} * {nv} + {b}')} {self._put(output)} {value};")

    def _store_row(self, value: str, target: Target, row: str) -> bool:
        """Store an entry of outputs with columns for the sweep's start body or link. Returns whether there are any."""
        code = self.code
        outputs = {
            name: output
            for name, output in code.algorithm.outputs.items()
            if isinstance(output, BodyOutput | LinkColumnOutput) and output.field == target.field
        }
        if outputs and code.traits.mimic:
            value = self._new(f"{value} * {self._weight(row)}", "T")
            row = self._new(self._followed(row))
        for name, output in outputs.items():
            if isinstance(output, BodyOutput):
                n = self.text.integer("n_bodies", code.model.n_bodies)
                place = f"({row} * {n} + {self.scope.first}) * {output.width} + {target.column}"
            else:
                nv = self.text.integer("nv", code.model.nv)
                place = f"({self.scope.link} * {output.rows} + {target.column}) * {nv} + {row}"
            self.text.do(f"{code.results[name].at(place)} {self._put(output)} {value};")
        return bool(outputs)

    def _put(self, output: Output) -> str:
        """The assignment operator. Entries are sums only if joints share a coordinate or blocks overlap; others are
        stored without a load."""
        blocks = output.blocks if isinstance(output, PairOutput) else ()
        above = [block for block in blocks if not block.transposed]
        meet = len(above) > 1 or len(blocks) - len(above) > 1 or sum(block.diagonal for block in blocks) > 1
        return "+=" if self.code.traits.mimic or meet else "="

    def _weight(self, velocity: str) -> str:
        return f"{self.code.model_array('v_multiplier')}[{velocity}]"

    def _followed(self, velocity: str) -> str:
        return f"(int){self.code.model_array('v_source')}[{velocity}]"
