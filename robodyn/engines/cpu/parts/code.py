"""Rolled code for one tree in parts: a kernel whose rows are tasks.

    void NAME(ptr table, i64 first, i64 last, ptr workspace)

runs tasks `first` to `last - 1` of `tasks.Tasks` on one vector of states, in a workspace that all threads share. Steps
are those of rolled code. Bodies have the numbers of `partition.Parts`; the model's arrays are in that order, and the
user's are found through tables. Behind the model's arrays the table says which rows are asked for, where there is a
32-bit word for each task, zero until it is done, and how a thread gives way while it waits.
"""

from __future__ import annotations

from string import Template

from robodyn.codegen.llvm.vectors import Lines
from robodyn.codegen.loop_plan import Scope, lane_fields
from robodyn.engines.cpu.loops.code import KernelWriter, RolledModule
from robodyn.engines.cpu.loops.steps import Function, StepWriter
from robodyn.sweeps import (
    Algorithm,
    Ancestors,
    BodyOutput,
    ColumnOutput,
    FieldOutput,
    Inward,
    LinkColumnOutput,
    PairOutput,
    World,
)

CALL_WORDS = 4
"""Of the table, the last ones: first row, row behind the last, address of the words of tasks, and `sched_yield`."""
_RANGE = ", i64 %from, i64 %to"


def works_in_parts(algorithm: Algorithm) -> bool:
    """Whether an algorithm has nothing but sweeps over bodies or all links, one value of a field for each."""
    if lane_fields(algorithm):
        return False
    if any(isinstance(each, PairOutput | BodyOutput | LinkColumnOutput) for each in algorithm.outputs.values()):
        return False
    return not any(isinstance(sweep, Ancestors) or getattr(sweep, "of_link", False) for sweep in algorithm.sweeps)


class PartedModule(RolledModule):
    """Writes the module of one algorithm for trees in parts, of robots with some traits."""

    def gives(self, group: tuple[int, ...]) -> list[str]:
        """Fields that a group of inward sweeps sums at parents."""
        sweeps = [self.algorithm.sweeps[number] for number in group]
        return list(dict.fromkeys(name for sweep in sweeps if isinstance(sweep, Inward) for name in sweep.gives))

    @property
    def given(self) -> set[str]:
        """All of these, which have places for roots besides those of bodies."""
        return {name for group in self.tracer.groups for name in self.gives(group)}

    def _model_arrays(self, lanes: list[int]) -> list[str]:
        own = ["row", "v_own", "gives_to", "visits", "tasks", "operations", "after"]
        return [*super()._model_arrays(lanes), *own]

    def table_of(self, what: str) -> str | None:
        """Bodies, and fields that are no results, are in the order of parts; the user's arrays are not."""
        if not self.traits.single:
            return what
        return None if what == "v_own" else "row"

    def place_of(self, field: str) -> str:
        """What is not the user's is in the order of parts."""
        results = {getattr(output, "field", None) for output in self.algorithm.outputs.values()}
        return "v_start" if field in results else "v_own"

    def _bodies(self, group: tuple[int, ...]) -> str:
        """A loop over the bodies of a part: outward over their numbers, inward over its visits."""
        inward = self.gives(group) if isinstance(self._sweep(group), Inward) else None
        function = Function(self, f"sweep{group[0]}", _RANGE)
        head = function.block("head")
        start, step = ("%from", 1) if inward is None else (function.entry.new("sub i64 %to, 1"), -1)
        head.do(f"%k = phi i64 [ {start}, %entry ], [ %next, %latch ]")
        head.do(f"%inside = icmp {'slt i64 %k, %to' if inward is None else 'sge i64 %k, %from'}")
        head.do(f"br i1 %inside, label %{'step' if inward is None else 'visit'}, label %done")
        body = "%k"
        if inward is not None:
            visit = function.block("visit")
            body = _entry(function, visit, "visits", "%k")
            visit.do(f"%is.body = icmp sge i64 {body}, 0")
            visit.do("br i1 %is.body, label %step, label %sum")
            self._sum(function, body, inward)
        out = function.block("step")
        scope = Scope(self_=body, parent=_entry(function, out, "parent" if inward is None else "gives_to", body))
        self._switch(function, out, [body], "latch", lambda kinds: self.tracer.bodies(group, kinds[0]), scope)
        latch = function.block("latch")
        latch.do(f"%next = add i64 %k, {step}")
        latch.do("br label %head")
        function.block("done").do("ret void")
        clear = "" if inward is None else self._clear(group[0], inward)
        return clear + function.finish("head")

    def _sum(self, function: Function, entry: str, fields: list[str]) -> None:
        """Add what a root of another part has given to its parent."""
        out, T = function.block("sum"), self.kind.name
        root = out.new(f"xor i64 {entry}, -1")
        subjects = {table: _entry(function, out, table, root) for table in ("gives_to", "parent")}
        for name in fields:
            size = self.tracer.stored(name)
            source, to = (self._body_row(function, out, name, subject) for subject in subjects.values())
            for k in range(size):
                loaded = []
                for row in (to, source):
                    at = out.new(f"getelementptr {T}, ptr {row}, i64 {k}")
                    loaded.append(out.new(f"load {T}, ptr {at}, align {self.alignment}"))
                total = out.new(f"fadd {T} {loaded[0]}, {loaded[1]}")
                at = out.new(f"getelementptr {T}, ptr {to}, i64 {k}")
                out.do(f"store {T} {total}, ptr {at}, align {self.alignment}")
        out.do("br label %latch")

    def _body_row(self, function: Function, out: Lines, name: str, body: str) -> str:
        index = out.new(f"mul i64 {out.new(f'add i64 {body}, 1')}, {self.tracer.stored(name)}")
        return out.new(f"getelementptr {self.kind.name}, ptr {function.base(f'field {name}')}, i64 {index}")

    def _clear(self, number: int, fields: list[str]) -> str:
        """Nothing yet in the places of a part's roots: -0, to which any number is added as it is."""
        function = Function(self, f"clear{number}", _RANGE)
        head = function.block("head")
        head.do("%k = phi i64 [ %from, %entry ], [ %next, %step ]")
        head.do("%inside = icmp slt i64 %k, %to")
        head.do("br i1 %inside, label %step, label %done")
        out, T = function.block("step"), self.kind.name
        for name in fields:
            row = self._body_row(function, out, name, "%k")
            for k in range(self.tracer.stored(name)):
                at = out.new(f"getelementptr {T}, ptr {row}, i64 {k}")
                out.do(f"store {T} {self.kind.splat(-0.0)}, ptr {at}, align {self.alignment}")
        out.do("%next = add i64 %k, 1")
        out.do("br label %head")
        function.block("done").do("ret void")
        return function.finish("head")

    def _links(self, group: tuple[int, ...]) -> str:
        """A loop over some links."""
        function = Function(self, f"sweep{group[0]}", _RANGE)
        head = function.block("head")
        head.do("%link = phi i64 [ %from, %entry ], [ %next, %step ]")
        head.do("%inside = icmp slt i64 %link, %to")
        head.do("br i1 %inside, label %step, label %done")
        out = function.block("step")
        scope = Scope(self_=_entry(function, out, "link_body", "%link"), link="%link", link_row="%link")
        StepWriter(function, out, self.tracer.links(self._sweep(group)), scope).write()
        out.do("%next = add i64 %link, 1")
        out.do("br label %head")
        function.block("done").do("ret void")
        return function.finish("head")

    @property
    def pieced(self) -> list[str]:
        """Outputs that are gathered in pieces: every entry comes from one place."""
        outputs, one = self.algorithm.outputs, FieldOutput if self.traits.mimic else FieldOutput | ColumnOutput
        return [name for name in self.gathered if isinstance(outputs[name], one)]

    @property
    def operations(self) -> list[str]:
        """What a task may do, in the order of the numbers that stand for it."""
        found = ["begin", "end", *(f"gather {name}" for name in self.pieced)]
        for group in self.tracer.groups:
            found += [f"clear {group[0]}"] if self.gives(group) else []
            found.append(f"sweep {group[0]}")
        return found

    def _kernel(self, name: str) -> str:
        return _TasksWriter(self).text(name)


def _entry(function: Function, out: Lines, array: str, index: str) -> str:
    """An entry of an array of integers."""
    return out.new(f"load i64, ptr {out.new(f'getelementptr i64, ptr {function.base(array)}, i64 {index}')}")


# Every task: wait for those that it needs, then one operation after the other.
_KERNEL = Template("""define void @$name(ptr %table, i64 %first.task, i64 %last.task, ptr %workspace) #0 {
entry:
  %rows.at = getelementptr {i64, i64}, ptr %table, i64 $rows
  %row = load i64, ptr %rows.at
  %behind.at = getelementptr i64, ptr %rows.at, i64 1
  %behind = load i64, ptr %behind.at
  %end = sub i64 %behind, 1
  %words.at = getelementptr {ptr, ptr}, ptr %table, i64 $words
  %words = load ptr, ptr %words.at
  %give_way.at = getelementptr ptr, ptr %words.at, i64 1
  %give_way = load ptr, ptr %give_way.at
$setup
  br label %task
task:
  %t = phi i64 [ %first.task, %entry ], [ %t.next, %task.done ]
  %task.at = getelementptr [4 x i64], ptr $tasks, i64 %t
  %first.operation = load i64, ptr %task.at
  %last.operation.at = getelementptr i64, ptr %task.at, i64 1
  %last.operation = load i64, ptr %last.operation.at
  %first.after.at = getelementptr i64, ptr %task.at, i64 2
  %first.after = load i64, ptr %first.after.at
  %last.after.at = getelementptr i64, ptr %task.at, i64 3
  %last.after = load i64, ptr %last.after.at
  br label %waiting
waiting:
  %a = phi i64 [ %first.after, %task ], [ %a.next, %there ]
  %waits = icmp slt i64 %a, %last.after
  br i1 %waits, label %which, label %operation
which:
  %before.at = getelementptr i64, ptr $after, i64 %a
  %before = load i64, ptr %before.at
  %word = getelementptr i32, ptr %words, i64 %before
  br label %look
look:
  %seen = load atomic i32, ptr %word acquire, align 4
  %is.done = icmp ne i32 %seen, 0
  br i1 %is.done, label %there, label %give
give:
  %given = call i32 %give_way()
  br label %look
there:
  %a.next = add i64 %a, 1
  br label %waiting
operation:
  %o = phi i64 [ %first.operation, %waiting ], [ %o.next, %operation.done ]
  %more.operations = icmp slt i64 %o, %last.operation
  br i1 %more.operations, label %run, label %task.done
run:
  %operation.at = getelementptr [3 x i64], ptr $operations, i64 %o
  %code = load i64, ptr %operation.at
  %from.at = getelementptr i64, ptr %operation.at, i64 1
  %from = load i64, ptr %from.at
  %to.at = getelementptr i64, ptr %operation.at, i64 2
  %to = load i64, ptr %to.at
  switch i64 %code, label %unknown [ $cases ]
unknown:
  unreachable
${blocks}operation.done:
  %o.next = add i64 %o, 1
  br label %operation
task.done:
  %own = getelementptr i32, ptr %words, i64 %t
  store atomic i32 1, ptr %own release, align 4
  %t.next = add i64 %t, 1
  %more.tasks = icmp slt i64 %t.next, %last.task
  br i1 %more.tasks, label %task, label %done
done:
  ret void
}

""")


class _TasksWriter(KernelWriter):
    """Writes the exported function of a module."""

    module: PartedModule

    def text(self, name: str) -> str:
        """The function."""
        self._arrays()
        blocks = []
        for number, operation in enumerate(self.module.operations):
            self.body = Lines(self.setup.numbers)
            what, _, name_of = operation.partition(" ")
            if what == "begin":
                self._begin()
            elif what == "end":
                self._end()
            elif what == "gather":
                super()._gather(name_of, self.body.new("sub i64 %to, %from"), "%from")
            else:
                several = not isinstance(self.module.algorithm.sweeps[int(name_of)], World)
                arguments = f"ptr %bases, ptr {self.bases['layout']}" + (_RANGE if several else "")
                self.body.do(f"call void @{what}{name_of}({arguments})")
            lines = "\n".join(self.body.lines)
            blocks.append(f"run.{number}:\n{lines}\n  br label %operation.done\n")
        cases = " ".join(f"i64 {number}, label %run.{number}" for number in range(len(blocks)))
        call = self._first_model + len(self.module.model_arrays)
        words = {
            "name": name,
            "rows": call,
            "words": call + 1,
            "setup": "\n".join((*self.setup.lines, *self.rows.lines)),
            "cases": cases,
            "blocks": "".join(blocks),
            **{array: self.bases[array] for array in ("tasks", "operations", "after")},
        }
        return _KERNEL.substitute(words)

    def _gather(self, name: str, count: str, first: str = "0") -> None:
        if name not in self.module.pieced:
            super()._gather(name, count, first)
