"""Rolled code: loops over bodies that call steps traced once per joint kind.

    void NAME(ptr table, i64 first, i64 last, ptr workspace)

as unrolled code, but its table goes on after the outputs with `RolledLayout.model_arrays`. The first of them, "layout",
holds the robot's sizes and says where the arrays of the workspace begin. The module depends on the algorithm, the joint
kinds and a few facts about the robot, not on its numbers or size: a tree of ten million bodies compiles like one of
two, and robots share machine code.

Every array of the workspace holds vectors of W states. A field has a row for the world, then one for each body; fields
with a value for each degree of freedom are indexed by the joint's first velocity; lane fields have a row for each slot
of `loop_plan.LaneSchedule`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from robodyn.codegen.llvm import sincos
from robodyn.codegen.llvm.straight_line import attributes
from robodyn.codegen.llvm.vectors import Lines, declarations
from robodyn.codegen.loop_plan import Scope, is_block, lane_size, must_be_zeroed
from robodyn.codegen.loops.llvm import joined
from robodyn.engines.cpu.loops.layout import RolledLayout
from robodyn.engines.cpu.loops.runtime import runtime_functions
from robodyn.engines.cpu.loops.steps import Function, StepWriter
from robodyn.joints import KINDS, JointKind
from robodyn.sweeps import (
    Ancestors,
    BodyOutput,
    ColumnOutput,
    DofOutput,
    FieldOutput,
    Inward,
    LinkColumnOutput,
    LinkOutput,
    Links,
    Outward,
    PairOutput,
    World,
    WorldOutput,
)


class RolledModule(RolledLayout):
    """Writes the module of one algorithm for robots with some traits."""

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
        own = "".join((*sweeps, self._kernel(name)))
        return joined(
            declarations(self.kind),
            sincos.declarations(self.kind),
            "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n",
            "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n",
            runtime_functions(self.kind, own),
            own,
            attributes(self.target),
        )

    @property
    def _kinds(self) -> list[tuple[int, JointKind]]:
        return [(code, KINDS[code]) for code in self.traits.kinds]

    def _sweep(self, group: tuple[int, ...]) -> Any:
        return self.algorithm.sweeps[group[0]]

    def _world(self, group: tuple[int, ...]) -> str:
        sweep: World = self._sweep(group)
        function = Function(self, f"sweep{group[0]}")
        out = function.block("start")
        StepWriter(function, out, self.tracer.world(sweep), Scope()).write()
        out.do("ret void")
        return function.finish("start")

    def _bodies(self, group: tuple[int, ...]) -> str:
        """A loop over bodies, or over pairs of a body and a lane."""
        sweep: Outward | Inward = self._sweep(group)
        number = group[0]
        function = Function(self, f"sweep{number}")
        backwards = isinstance(sweep, Inward) and not sweep.lanes
        count = function.integer(f"n_pairs {number}" if sweep.lanes else "n_bodies")
        head = function.block("head")
        start = function.entry.new(f"sub i64 {count}, 1") if backwards else "0"
        head.do(f"%k = phi i64 [ {start}, %entry ], [ %next, %latch ]")
        head.do(f"%inside = icmp {'sge i64 %k, 0' if backwards else f'slt i64 %k, {count}'}")
        head.do("br i1 %inside, label %step, label %done")
        out = function.block("step")
        scope = self._lane_scope(function, out, number) if sweep.lanes else Scope(self_="%k")
        at = out.new(f"getelementptr i64, ptr {function.base('parent')}, i64 {scope.self_}")
        scope.parent = out.new(f"load i64, ptr {at}")
        self._switch(function, out, [scope.self_], "latch", lambda kinds: self.tracer.bodies(group, kinds[0]), scope)
        latch = function.block("latch")
        latch.do(f"%next = add i64 %k, {-1 if backwards else 1}")
        latch.do("br label %head")
        function.block("done").do("ret void")
        return function.finish("head")

    def _lane_scope(self, function: Function, out: Lines, number: int) -> Scope:
        loaded = []
        for part in range(4):
            record = f"getelementptr [4 x i64], ptr {function.base(f'pairs {number}')}, i64 %k, i64 {part}"
            loaded.append(out.new(f"load i64, ptr {out.new(record)}"))
        return Scope(self_=loaded[0], lane=loaded[1], own_slot=loaded[2], parent_slot=loaded[3])

    def _switch(self, function: Function, out: Lines, bodies: list[str], after: str, trace: Any, scope: Scope) -> None:
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
            StepWriter(function, block, trace([kind for _, kind in some]), scope).write()
            block.do(f"br label %{after}")

    def _links(self, group: tuple[int, ...]) -> str:
        sweep: Links = self._sweep(group)
        function = Function(self, f"sweep{group[0]}")
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
        scope = Scope(self_=body, link="%link", link_row="0" if sweep.of_link else "%link")
        StepWriter(function, out, self.tracer.links(sweep), scope).write()
        out.do("%next = add i64 %link, 1")
        out.do("br label %head")
        function.block("done").do("ret void")
        return function.finish("head")

    def _ancestors(self, group: tuple[int, ...]) -> str:
        """From every body, from every link, or from the query's link, up to the root."""
        sweep: Ancestors = self._sweep(group)
        function = Function(self, f"sweep{group[0]}")
        first, last = "0", function.integer("n_links" if sweep.of_links else "n_bodies")
        scope = Scope(first="%first", self_="%here")
        if sweep.of_link:
            first = function.integer("link")
            last = function.entry.new(f"add i64 {first}, 1")
        head = function.block("head")
        origin = "%link" if sweep.from_links else "%first"
        head.do(f"{origin} = phi i64 [ {first}, %entry ], [ %next, %latch ]")
        head.do(f"%inside = icmp slt i64 {origin}, {last}")
        head.do("br i1 %inside, label %from, label %done")
        out = function.block("from")
        if origin == "%link":
            scope.link = scope.link_row = origin
            at = out.new(f"getelementptr i64, ptr {function.base('link_body')}, i64 %link")
            out.do(f"%first = load i64, ptr {at}")
        # A link fixed to the world starts nowhere.
        out.do("%moves = icmp sge i64 %first, 0")
        out.do("br i1 %moves, label %begin, label %latch")
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
        latch.do(f"%next = add i64 {origin}, 1")
        latch.do("br label %head")
        function.block("done").do("ret void")
        return function.finish("head")

    # The exported function.

    def _kernel(self, name: str) -> str:
        """Set up the arrays, then W rows at a time: inputs in, sweeps, outputs out."""
        return KernelWriter(self).text(name)


class KernelWriter:
    """Writes the exported function of a module."""

    def __init__(self, module: RolledModule) -> None:
        self.module = module
        self.setup = Lines()
        self.rows, self.body = Lines(self.setup.numbers), Lines(self.setup.numbers)
        self.bases: dict[str, str] = {}

    def text(self, name: str) -> str:
        """The function."""
        self._arrays()
        self._begin()
        for group in self.module.tracer.groups:
            self.body.do(f"call void @sweep{group[0]}(ptr %bases, ptr {self.bases['layout']})")
        self._end()
        before, inside = "\n".join(self.setup.lines), "\n".join((*self.rows.lines, *self.body.lines))
        return f"""define void @{name}(ptr %table, i64 %first, i64 %last, ptr %workspace) #0 {{
entry:
  %end = sub i64 %last, 1
{before}
  br label %rows
rows:
  %row = phi i64 [ %first, %entry ], [ %next, %rows ]
{inside}
  %next = add i64 %row, {self.module.kind.width}
  %more = icmp slt i64 %next, %last
  br i1 %more, label %rows, label %done
done:
  ret void
}}

"""

    @property
    def _first_model(self) -> int:
        """Records of the table before the model's arrays."""
        return len(self.module.inputs) + len(self.module.algorithm.outputs)

    def _arrays(self) -> None:
        """Where all arrays begin, those of the user at %row."""
        module, setup = self.module, self.setup
        setup.do(f"%bases = alloca [{len(module.model_arrays) + len(module.workspace_arrays)} x ptr]")
        for k, array in enumerate(module.model_arrays):
            self._set_base(setup, array, setup.new(f"load ptr, ptr {self._record(setup, self._first_model + k)}"))
        for array in module.workspace_arrays:
            at = setup.new(f"getelementptr i8, ptr %workspace, i64 {self._integer(f'offset {array}')}")
            self._set_base(setup, array, at)
        self._point_at_rows()

    def _begin(self) -> None:
        """Inputs into vectors, and what has to be zero."""
        self._zero_once()
        for k, each in enumerate(self.module.inputs):
            if f"in {each}" not in self.module.direct:
                self._stage_in(k, each)
        self._zero_each_time()

    def _end(self) -> None:
        """Vectors to outputs."""
        for k, each in enumerate(self.module.algorithm.outputs):
            self._add_diagonal(each)
            if each not in self.module.direct.values():
                self._stage_out(len(self.module.inputs) + k, each)

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
            if is_block(module.algorithm, name):
                continue
            all_of_it = self._integer(f"vectors field {name}")
            self._zero(self.body, f"field {name}", all_of_it if how == "all" else str(module.tracer.stored(name)))
        for name in sorted(module.lane_fields):
            self._zero(self.body, f"field {name}", self._integer(f"zeroed {name}"))
        for name in module.algorithm.outputs:
            array = f"out {name}"
            if array in module.workspace_arrays:
                size = f"columns {name}" if array in module.direct else f"vectors {array}"
                self._zero(self.body, array, self._integer(size))

    def _array(self, number: int) -> tuple[str, str]:
        """Data and stride of an input or output."""
        data = self.setup.new(f"load ptr, ptr {self._record(self.setup, number)}")
        return data, self.setup.new(f"load i64, ptr {self._record(self.setup, number, 1)}")

    def _point_at_rows(self) -> None:
        """Let arrays that are the user's own begin at the row."""
        names = [*self.module.inputs, *self.module.algorithm.outputs]
        for array, name in self.module.direct.items():
            data, stride = self._array(names.index(name))
            offset = self.rows.new(f"mul i64 %row, {stride}")
            self._set_base(self.rows, array, self.rows.new(f"getelementptr i8, ptr {data}, i64 {offset}"))

    def _stage_in(self, number: int, name: str) -> None:
        module, body = self.module, self.body
        data, stride = self._array(number)
        coupled = name in module.raw
        to = self.bases[f"raw {name}" if coupled else f"in {name}"]
        columns = self._integer(f"columns {name}")
        if name in module.vectors:
            self._copy(data, to, columns)
        else:
            body.do(f"call void @stage_in(ptr {data}, i64 {stride}, i64 %row, i64 %end, ptr {to}, i64 {columns})")
        if coupled:
            which = "q" if name == "q" else "v"
            tables = ", ".join(f"ptr {self.bases[f'{which}_{part}']}" for part in ("source", "multiplier", "offset"))
            target = self.bases[f"in {name}"]
            body.do(f"call void @couple(ptr {to}, ptr {target}, {tables}, i64 {self._integer(f'tree {name}')})")

    def _add_diagonal(self, name: str) -> None:
        """Add the model's own numbers, or those that are given, on the diagonal of a matrix that has them."""
        output = self.module.algorithm.outputs[name]
        added = output.diagonal if isinstance(output, PairOutput) else None
        if added in self.module.inputs:
            which = "raw" if added in self.module.raw else "in"
            self._add_to_diagonal("add_given_diagonal", name, f"{which} {added}")
        elif added == "damping" or (added == "armature" and self.module.traits.armature):
            self._add_to_diagonal("add_diagonal", name, f"own_{added}")

    def _add_to_diagonal(self, function: str, name: str, added: str) -> None:
        to, diagonal = self.bases[f"out {name}"], self.bases[added]
        self.body.do(f"call void @{function}(ptr {to}, ptr {diagonal}, i64 {self._integer('nv')})")

    def _stage_out(self, number: int, name: str) -> None:
        module, body = self.module, self.body
        output = module.algorithm.outputs[name]
        if name in module.gathered:
            self._gather(name, self._integer(f"n_gather {name}"))
            to = self.bases[f"out {name}"]
        elif isinstance(output, PairOutput | BodyOutput | LinkColumnOutput):
            to = self.bases[f"out {name}"]
        else:
            assert isinstance(output, WorldOutput | LinkOutput | DofOutput)
            to = self.bases[f"field {output.field}"]
        data, stride = self._array(number)
        columns = self._integer(f"columns {name}")
        if name in module.vectors:
            self._copy(to, data, columns)
        else:
            body.do(f"call void @stage_out(ptr {data}, i64 {stride}, i64 %row, i64 %end, ptr {to}, i64 {columns})")

    def _gather(self, name: str, count: str, first: str = "0") -> None:
        """Sum some entries of a field into an output."""
        output = self.module.algorithm.outputs[name]
        assert isinstance(output, ColumnOutput | DofOutput | FieldOutput)
        pairs = self.body.new(f"getelementptr {{i64, i64}}, ptr {self.bases[f'gather {name}']}, i64 {first}")
        weights = self.bases[f"weight {name}"]
        weight = self.body.new(f"getelementptr {self.module.kind.scalar}, ptr {weights}, i64 {first}")
        source, to = self.bases[f"field {output.field}"], self.bases[f"out {name}"]
        self.body.do(f"call void @gather(ptr {source}, ptr {to}, ptr {pairs}, ptr {weight}, i64 {count})")

    def _copy(self, source: str, to: str, vectors: str) -> None:
        size = self.setup.new(f"mul i64 {vectors}, {self.module.kind.bytes}")
        self.body.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)")
