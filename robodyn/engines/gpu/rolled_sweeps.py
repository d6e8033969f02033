"""Prints the sweeps of rolled kernels: loops over bodies, lanes, columns and links around steps for each joint kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from robodyn.compile.loop_plan import Scope, is_block, must_be_zeroed
from robodyn.compile.tracing.rolled import Step
from robodyn.core.joints import KINDS, JointKind
from robodyn.core.model import Model
from robodyn.core.sweeps import (
    PER_VELOCITY,
    Algorithm,
    Ancestors,
    BodyOutput,
    DofOutput,
    Inward,
    LinkColumnOutput,
    LinkOutput,
    Links,
    Outward,
    PairOutput,
    World,
    WorldOutput,
)
from robodyn.engines.gpu.kernel_text import KernelText, Ref
from robodyn.engines.gpu.rolled_columns import carried_for, kinds_above, of_column
from robodyn.engines.gpu.rolled_steps import AlgorithmCode, StepWriter
from robodyn.engines.gpu.schedules import (
    Rounds,
    column_rounds,
    inward_rounds,
    lane_rounds,
    outward_rounds,
    summed,
)


def _used_fields(algorithm: Algorithm) -> set[str]:
    """The fields that a sweep or an output uses. Algorithms with many variants declare more."""
    kinds = ("reads", "writes", "carries", "gives", "visits")
    used = {name for sweep in algorithm.sweeps for kind in kinds for name in getattr(sweep, kind, ())}
    return used | {getattr(output, "field", "") for output in algorithm.outputs.values()}


class SweepWriter:
    """Writes the sweeps of one algorithm, and its outputs, into a kernel.

    `results`: references to the arrays for outputs, by name. Outputs that are not listed remain in scratch arrays.
    `outputs`: after `write`, the references to all outputs.
    """

    def __init__(
        self,
        text: KernelText,
        model: Model,
        algorithm: Algorithm,
        base: tuple[str, ...],
        link: int | None,
        given: Mapping[str, Ref],
        results: Mapping[str, Ref],
    ) -> None:
        self.text, self.model, self.algorithm = text, model, algorithm
        self.code = AlgorithmCode(text, model, algorithm, base, link, given)
        self.given, self.results = given, results
        self.outputs: dict[str, Ref] = {}

    def write(self) -> None:
        """Zero arrays, expand inputs for mimicking joints, write the sweeps, and finish the outputs."""
        text = self.text
        self._place_outputs()
        with text.section():
            self._zero()
            text.sync()
        if self.code.traits.mimic:
            with text.section():
                self._couple_inputs()
                text.sync()
        writers: dict[type, Callable[[tuple[int, ...]], None]] = {
            World: self._world,
            Outward: self._bodies,
            Inward: self._bodies,
            Ancestors: self._ancestors,
            Links: self._links,
        }
        for group in self.code.tracer.groups:
            with text.section():
                writers[type(self.algorithm.sweeps[group[0]])](group)
        with text.section():
            for name in self.algorithm.outputs:
                self._finish(name)
            text.sync()

    # Before sweeps.

    def _place_outputs(self) -> None:
        """Choose the arrays of outputs. Steps add to matrices directly in their result arrays."""
        plan = self.code.plan
        for name, output in self.algorithm.outputs.items():
            size = plan.output_columns(name)
            sums = isinstance(output, PairOutput | BodyOutput | LinkColumnOutput)
            if sums or name in plan.gathers:
                place = self.results.get(name)
                self.outputs[name] = self.text.array(f"out_{name}", size) if place is None else place
            if sums:
                self.code.results[name] = self.outputs[name]

    def _couple_inputs(self) -> None:
        """Expand inputs to entries for all joints, if some joints mimic others."""
        model, code, text = self.model, self.code, self.text
        for name in ("q", *PER_VELOCITY):
            if name not in code.given:
                continue
            which, size = ("q", model.nq_tree) if name == "q" else ("v", model.nv_tree)
            raw, whole = code.given[name], text.array(f"in_{name}", size)
            source, multiplier = (code.model_array(f"{which}_{part}") for part in ("source", "multiplier"))
            offset = f" + {code.model_array('q_offset')}[k]" if name == "q" else ""
            with text.shared("k", "0", text.integer(f"{which}_tree", size)):
                text.do(f"{whole.at('k')} = {multiplier}[k] * {raw.at(f'(int){source}[k]')}{offset};")
            code.given[name] = whole

    def _zero(self) -> None:
        code, lanes = self.code, self.code.plan.lanes
        used = _used_fields(self.algorithm)
        for name, how in must_be_zeroed(self.algorithm).items():
            if name in used and not is_block(self.algorithm, name):
                ref = code.field(name)
                self._zero_some(ref, f"zero_{name}", ref.size if how == "all" else code.tracer.stored(name))
        for name in sorted(code.lane_fields):
            assert lanes is not None
            size = code.pitch(name)
            # Row 0 is the zero row of lanes whose parent is the world.
            self._zero_some(code.field(name), f"zero_{name}", size * (lanes.n_slots if name in lanes.zeroed else 1))
        for name, ref in code.results.items():
            self._zero_some(ref, f"size_{name}", ref.size)

    def _zero_some(self, ref: Ref, name: str, count: int) -> None:
        if count:
            with self.text.shared("k", "0", self.text.integer(f"s{self.text.stage}_{name}", count)):
                self.text.do(f"{ref.at('k')} = T(0);")

    # Sweeps.

    def _world(self, group: tuple[int, ...]) -> None:
        sweep: Any = self.algorithm.sweeps[group[0]]
        with self.text.alone():
            StepWriter(self.code, self.code.tracer.world(sweep), Scope()).write()
        self.text.sync()

    def _n_bodies(self) -> str:
        return self.text.integer("n_bodies", self.model.n_bodies)

    def _bodies(self, group: tuple[int, ...]) -> None:
        """A loop over bodies, in rounds if bodies depend on one another, or over lanes."""
        sweeps: list[Any] = [self.algorithm.sweeps[number] for number in group]
        text, scope = self.text, Scope(self_="i", parent="parent")
        backwards = isinstance(sweeps[0], Inward)
        if sweeps[0].lanes:
            self._lanes(group)
        elif text.partition == "thread" and backwards:
            with text.block(f"for (int i = {self._n_bodies()} - 1; i >= 0; i--)"):
                self._body_step(group, scope)
        elif text.partition == "thread" or not any(
            (*getattr(s, "carries", ()), *getattr(s, "gives", ())) for s in sweeps
        ):
            with text.shared("i", "0", self._n_bodies()):
                self._body_step(group, scope)
            text.sync()
        else:
            totals = {name for sweep in sweeps for name in getattr(sweep, "gives", ())}
            world = bool(totals & self.code.world_fields)
            rounds = inward_rounds(self.model.tree, world) if backwards else outward_rounds(self.model.tree)
            self._rounds(rounds, f"{'in' if backwards else 'out'}ward{int(world)}", group, scope)

    def _rounds(self, rounds: Rounds, name: str, group: tuple[int, ...], scope: Scope) -> None:
        text = self.text
        order, starts = text.constant(f"{name}_order", rounds.order), text.constant(f"{name}_starts", rounds.starts)
        with text.block(f"for (int turn = 0; turn < {text.integer(name, len(rounds))}; turn++)"):
            text.do(f"const int end = (int){starts}[turn + 1];")
            with text.shared("k", f"(int){starts}[turn]", "end"):
                text.do(f"const int i = (int){order}[k];")
                self._body_step(group, scope)
            text.sync()

    def _body_step(self, group: tuple[int, ...], scope: Scope) -> None:
        self.text.do(f"const int parent = (int){self.code.model_array('parent')}[i];")
        code = self.code
        steps = {kind: code.tracer.bodies(group, KINDS[kind]) for kind in code.traits.kinds}
        self._switch("i", [*steps], lambda kind: StepWriter(code, steps[kind], scope).write())

    def _lanes(self, group: tuple[int, ...]) -> None:
        """A loop over lanes, each of which visits its bodies in order."""
        text, number, lanes = self.text, group[0], self.code.plan.lanes
        assert lanes is not None
        table, starts = lane_rounds(lanes.pairs[number])
        prefix = f"s{text.stage}_lanes{number}"
        pairs, begins = text.constant(f"{prefix}_pairs", table), text.constant(f"{prefix}_starts", starts)
        each = f"for (int k = (int){begins}[lane], end = (int){begins}[lane + 1]; k < end; k++)"
        with text.shared("lane", "0", text.integer(prefix, starts.size - 1)), text.block(each):
            text.do(f"const int i = (int){pairs}[4 * k], own_slot = (int){pairs}[4 * k + 2];")
            text.do(f"const int parent_slot = (int){pairs}[4 * k + 3];")
            slots = {"own_slot": "own_slot", "parent_slot": "parent_slot"}
            self._body_step(group, Scope(self_="i", parent="parent", lane="lane", **slots))
        text.sync()

    def _switch(self, body: str, kinds: Sequence[int], write: Callable[[int], None]) -> None:
        """A switch over the joint kinds of a body, with statements for each kind."""
        text = self.text
        several = len(kinds) > 1
        with text.block(f"switch ((int){self.code.model_array('joint_kind')}[{body}])" if several else ""):
            for code in kinds:
                with text.block(f"case {code}:" if several else ""):
                    write(code)
                    if several:
                        text.do("break;")

    def _links(self, group: tuple[int, ...]) -> None:
        sweep: Any = self.algorithm.sweeps[group[0]]
        text, code = self.text, self.code
        # A query about one link stores it as if it were the only link.
        scope = Scope(self_="i", link="link", link_row="0" if sweep.of_link else "link")
        with self._from_links(sweep.of_link):
            text.do(f"const int i = (int){code.model_array('link_body')}[link];")
            StepWriter(code, code.tracer.links(sweep), scope).write()
        text.sync()

    def _from_links(self, one: bool) -> Any:
        """A loop over all links, or over the query's link only (`one`)."""
        text = self.text
        if not one:
            return text.shared("link", "0", text.integer("n_links", len(self.model.link_names)))
        link = text.integer("link", -1 if self.code.link is None else self.code.link)
        first = link if text.partition == "thread" else f"{link} + me"
        return text.block(f"for (int link = {first}; link <= {link}; link++)")

    def _ancestors(self, group: tuple[int, ...]) -> None:
        """A loop over start bodies, links, or the query's link, with a walk from each of them to the root."""
        sweep: Any = self.algorithm.sweeps[group[0]]
        text, code = self.text, self.code
        if sweep.from_links:
            with self._from_links(sweep.of_link):
                text.do(f"const int first = (int){code.model_array('link_body')}[link];")
                # A link that is fixed to the world has no ancestors.
                text.do("if (first < 0) continue;")
                self._climb(sweep, Scope(first="first", self_="here", link="link", link_row="link"))
        elif code.traits.mimic:
            rounds = column_rounds(self.model)
            order, starts = text.constant("columns_order", rounds.order), text.constant("columns_starts", rounds.starts)
            each = f"for (int m = (int){starts}[k], end = (int){starts}[k + 1]; m < end; m++)"
            with text.shared("k", "0", text.integer("columns", len(rounds))), text.block(each):
                text.do(f"const int first = (int){order}[m];")
                self._climb(sweep, Scope(first="first", self_="here"))
        else:
            with text.shared("first", "0", self._n_bodies()):
                self._climb(sweep, Scope(first="first", self_="here"))
        text.sync()

    def _climb(self, sweep: Ancestors, scope: Scope) -> None:
        above = kinds_above(self.model)
        kinds = self.code.traits.kinds
        self._switch("first", kinds, lambda kind: self._climb_from(sweep, scope, KINDS[kind], above[kind]))

    def _climb_from(self, sweep: Ancestors, scope: Scope, first: JointKind, here: Sequence[int]) -> None:
        """Walks to the root from a joint of kind `first`, one for each column, past joints of kinds `here`."""
        tracer = self.code.tracer
        start, visits = tracer.start(sweep, first), {code: tracer.visit(sweep, KINDS[code], first) for code in here}
        if first.nv == 1 or not self._by_columns(sweep):
            self._climb_once(sweep, scope, start, visits)
            return
        for column in range(first.nv):
            carried = carried_for([*visits.values()], column)
            some = {code: of_column(step, column, carried) for code, step in visits.items()}
            self._climb_once(sweep, scope, of_column(start, column, carried), some)

    def _by_columns(self, sweep: Ancestors) -> bool:
        """Whether all results are matrices with a column for each degree of freedom of the start body."""
        outputs = [each for each in self.algorithm.outputs.values() if isinstance(each, PairOutput)]
        return set(sweep.writes) <= {blocks.field for output in outputs for blocks in output.blocks}

    def _climb_once(self, sweep: Ancestors, scope: Scope, start: Step, visits: Mapping[int, Step]) -> None:
        text, code = self.text, self.code
        above = f"(int){code.model_array('parent')}[here]"
        with text.block():
            for name in sweep.carries:
                size = max([0, *(target.index + 1 for target in start.targets if target.field == name)])
                if size:
                    text.do(f"T carry_{name}[{size}];")
            StepWriter(code, start, scope).write()
            with text.block(f"for (int here = first; here >= 0; here = {above})"):
                self._switch("here", [*visits], lambda kind: StepWriter(code, visits[kind], scope).write())

    # After sweeps.

    def _finish(self, name: str) -> None:
        """Write the sums, diagonal or copy that complete one output. Outputs are independent of each other."""
        output, plan, text = self.algorithm.outputs[name], self.code.plan, self.text
        if name in plan.gathers:
            gather, ref = plan.gathers[name], self.outputs[name]
            prefix = f"s{text.stage}_{name}"
            tables = dict(
                zip(("starts", "from", "weight"), summed(gather.pairs, gather.weight, gather.size), strict=True)
            )
            names = {part: text.constant(f"{prefix}_{part}", table) for part, table in tables.items()}
            with text.shared("k", "0", text.integer(f"{prefix}_sums", gather.size)):
                text.do("T sum = T(0);")
                with text.block(f"for (int m = (int){names['starts']}[k]; m < (int){names['starts']}[k + 1]; m++)"):
                    entry = self.code.field(gather.field).at(f"(int){names['from']}[m]")
                    text.do(f"sum += {names['weight']}[m] * {entry};")
                text.do(f"{ref.at('k')} = sum;")
        elif isinstance(output, PairOutput):
            if output.diagonal is not None:
                self._add_to_diagonal(name, output.diagonal)
        elif isinstance(output, WorldOutput | LinkOutput | DofOutput):
            self._copy(name, self.code.field(output.field))

    def _add_to_diagonal(self, name: str, added: str) -> None:
        """Add an input to the diagonal, or the model's values of that name if they are not all zero."""
        text, ref, own = self.text, self.given.get(added), getattr(self.model, added)
        if ref is None and not own.any():
            return
        nv = text.integer("nv", self.model.nv)
        table = text.constant(f"own_{added}", own) if ref is None else ""
        with text.shared("k", "0", nv):
            entry = f"{table}[k]" if ref is None else ref.at("k")
            text.do(f"{self.outputs[name].at(f'k * ({nv} + 1)')} += {entry};")

    def _copy(self, name: str, field: Ref) -> None:
        """An output that is a field or the first part of one."""
        size = self.code.plan.output_columns(name)
        place = self.results.get(name)
        self.outputs[name] = Ref(field.name, size, own=True, strided=field.strided)
        if place is not None:
            with self.text.shared("k", "0", self.text.integer(f"s{self.text.stage}_copy_{name}", size)):
                self.text.do(f"{place.at('k')} = {field.at('k')};")
