"""Traces the steps of an algorithm once per joint kind. Body constants and fields are symbols.

A traced step does not depend on the robot, only on the joint kinds: engines run it in loops over bodies. A step is a
small program. A `Source` says where each input lies, a `Target` says where each result goes. The engine chooses the
arrays and their layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby
from types import SimpleNamespace
from typing import Any, TypeAlias

from robodyn.algorithms.tasks import Sized
from robodyn.compile.tracing.expression import INPUT, Expression, Graph, Value
from robodyn.compile.tracing.program import Program
from robodyn.core.joints import JointKind, unit_quaternion
from robodyn.core.spatial import IDENTITY, ZERO_FORCE, ZERO_MOTION, Force, Inertia, Motion, Transform
from robodyn.core.sweeps import (
    POINT,
    Algorithm,
    Ancestors,
    FieldType,
    Inward,
    Links,
    Outward,
    PairOutput,
    World,
    Written,
    flatten,
)
from robodyn.internals.records import dataclass


@dataclass(frozen=True)
class Source:
    """Where an input lies: entry `index` of the array `array` of `subject`.

    Subjects: "self" (the body of the step), "parent", "first" (the body from which an `Ancestors` sweep started),
    "carry", "link", "world". Arrays: "Xtree", "inertia" (the model's, or an input if the algorithm lists it), "pitch";
    "armature", "q", "qd", "qdd", "tau", "vector", "f_ext", "unit"; "V0", "dV0", "gravity", "point"; "X" of a link;
    "field NAME".
    """

    subject: str
    array: str
    index: int


@dataclass(frozen=True)
class Target:
    """Where a result goes: entry `index` of a field of `subject`. `add`: True if it is added to a field of the parent.

    `row` and `column`: the place of the entry in a block of an `Ancestors` sweep.
    """

    subject: str
    field: str
    index: int
    add: bool = False
    row: int = 0
    column: int = 0


@dataclass(frozen=True)
class Step:
    """A step's program; `sources` in the order of its inputs, `targets` in the order of its output's scalars."""

    program: Program
    sources: tuple[Source, ...]
    targets: tuple[Target, ...]


Known: TypeAlias = dict[str, dict[int, "Source | float"]]
"""Scalars of fields that are not stored, by name and index: the source from which they can be read, or their constant
value."""


class _Tracer:
    """Collects the inputs and results of one step while it is traced."""

    def __init__(self, algorithm: Algorithm, base: Iterable[str], armature: bool, known: Known) -> None:
        self.algorithm, self.base, self.armature, self.known = algorithm, tuple(base), armature, known
        self.graph = Graph()
        self.sources: list[Source] = []
        self.expressions: list[Expression] = []
        self.results: list[Value] = []
        self.targets: list[Target] = []

    def symbols(self, subject: str, array: str, count: int) -> tuple[Expression, ...]:
        """New inputs for entries 0 to count - 1 of an array."""
        self.sources += [Source(subject, array, k) for k in range(count)]
        symbols = self.graph.inputs(count)
        self.expressions += symbols
        return symbols

    def body(self, kind: JointKind, subject: str = "self", lane: bool = False) -> SimpleNamespace:
        """A body as a step sees it (`robodyn.core.sweeps.Body`)."""
        inputs = self.algorithm.inputs
        pitch = self.symbols(subject, "pitch", 1)[0] if kind.pitched else 0.0
        X, inertia = self.symbols(subject, "Xtree", 12), self.symbols(subject, "inertia", 10)

        def given(name: str, count: int) -> tuple[Value, ...]:
            return self.symbols(subject, name, count) if name in inputs else (0.0,) * count

        force = self.symbols(subject, "f_ext", 6) if "f_ext" in inputs else None
        return SimpleNamespace(
            joint=kind,
            S=kind.subspace(pitch),
            Xtree=Transform(X[:9], X[9:]),  # type: ignore[arg-type]
            inertia=Inertia(inertia[0], inertia[1:4], inertia[4:]),  # type: ignore[arg-type]
            pitch=pitch,
            armature=self.symbols(subject, "armature", kind.nv) if self.armature else given("armature", kind.nv),
            q=_unit_quaternion(kind, given("q", kind.nq)),
            qd=given("qd", kind.nv),
            qdd=given("qdd", kind.nv),
            tau=given("tau", kind.nv),
            vector=given("vector", kind.nv),
            f_ext=ZERO_FORCE if force is None else Force(force[:3], force[3:]),  # type: ignore[arg-type]
            unit=self.symbols(subject, "unit", kind.nv) if lane else (0.0,) * kind.nv,
        )

    def fields(self, names: Iterable[str], subject: str, nv: int) -> SimpleNamespace:
        """A body's fields as a step sees them."""
        values: dict[str, Any] = {}
        for name in names:
            field: FieldType = self.algorithm.fields[name]
            known = self.known.get(name, {})
            stored = iter(self.symbols(subject, f"field {name}", field.size(nv) - len(known)))
            scalars = [
                self._known_scalar(subject, known[k]) if k in known else next(stored) for k in range(field.size(nv))
            ]
            values[name] = field.build(iter(scalars), nv)
        return SimpleNamespace(**values)

    def _known_scalar(self, subject: str, where: Source | float) -> Value:
        if isinstance(where, float):
            return where
        self.sources.append(Source(subject, where.array, where.index))
        self.expressions.append(self.graph.input())
        return self.expressions[-1]

    def source_of(self, value: Value) -> Source | float | None:
        """The source of a result that need not be stored: a body constant, or a number. None if the result must be
        stored."""
        if not isinstance(value, Expression):
            return float(value)
        operation, number, _ = self.graph.nodes[value.index]
        if operation != INPUT:
            return None
        source = self.sources[number]
        return source if source.subject == "self" and source.array in ("Xtree", "inertia") else None

    def world(self) -> SimpleNamespace:
        """The world as a step sees it (`robodyn.core.sweeps.WorldInputs`)."""

        def motion(name: str) -> Motion:
            if name not in self.base:
                return ZERO_MOTION
            scalars = self.symbols("world", name, 6)
            return Motion(scalars[:3], scalars[3:])  # type: ignore[arg-type]

        return SimpleNamespace(V0=motion("V0"), dV0=motion("dV0"), gravity=self.symbols("world", "gravity", 3))

    def link(self) -> SimpleNamespace:
        """A link as a step sees it (`robodyn.core.sweeps.LinkConstants`)."""
        row = self.symbols("link", "X", 12)
        X = Transform(row[:9], row[9:])  # type: ignore[arg-type]
        if "point" in self.algorithm.inputs:
            X = Transform(IDENTITY.E, self.symbols("world", "point", POINT)).after(X)  # type: ignore[arg-type]
        return SimpleNamespace(X=X)

    def write(self, written: Written, subject: str, add: bool = False) -> None:
        """Add results that are values of fields, except the scalars in `known`."""
        for name, value in written.items():
            known = self.known.get(name, {})
            for k, scalar in enumerate(each for n, each in enumerate(flatten(value)) if n not in known):
                self.results.append(scalar)
                self.targets.append(Target(subject, name, k, add))

    def write_blocks(self, written: Written) -> None:
        """Add results that are blocks between the degrees of freedom of two bodies."""
        for name, rows in written.items():
            for r, row in enumerate(rows):
                for c, entry in enumerate(row):
                    for k, scalar in enumerate(flatten(entry)):
                        self.results.append(scalar)
                        self.targets.append(Target("block", name, k, row=r, column=c))

    def step(self, name: str) -> Step:
        """The traced step."""
        inputs = {"in": ((len(self.expressions),), self.expressions)}
        program = Program.of(name, self.graph, inputs, {"out": ((len(self.results),), self.results)})
        return Step(program, tuple(self.sources), tuple(self.targets))


def _unit_quaternion(kind: JointKind, q: tuple[Value, ...]) -> tuple[Value, ...]:
    if kind.quaternion is None or not isinstance(q[0], Expression):
        return q
    start = kind.quaternion
    return (*q[:start], *unit_quaternion(q[start : start + 4]))


class StepTracer:
    """Traces the steps of one algorithm.

    Consecutive sweeps of one direction run as one group. A field that one sweep of a group passes to the next on the
    same body is stored only if other steps read it as well. `known` lists scalars of outward fields that equal an entry
    of the body's Xtree or inertia for every joint kind; these are not stored either.

    Args:
        algorithm: the algorithm.
        kinds: the joint kinds of the model.
        base: the inputs among V0 and dV0; the others are zero.
        armature: True if some joint has armature; if False, armature is zero in every step.
    """

    def __init__(
        self, algorithm: Algorithm, kinds: Iterable[JointKind], base: Iterable[str] = (), armature: bool = True
    ) -> None:
        self.algorithm, self.name = algorithm, algorithm.name
        self.kinds = tuple(kinds)
        self.known: Known = {}
        self.new: Callable[[], _Tracer] = lambda: _Tracer(algorithm, base, armature, self.known)
        self.groups = _groups(algorithm)
        self.known = self._find_known()

    def stored(self, name: str) -> int:
        """Number of stored scalars of a field. The field must not have one value per degree of freedom."""
        return self.algorithm.fields[name].size(0) - len(self.known.get(name, {}))

    def _find_known(self) -> Known:
        """For each field: the scalars that need not be stored, and their sources."""
        sweeps = self.algorithm.sweeps
        writers = Counter(name for sweep in sweeps for name in sweep.writes)
        # The world has no body constants. A field to which children add differs from the value that was written.
        unfit = {name for sweep in sweeps for name in (*getattr(sweep, "carries", ()), *getattr(sweep, "gives", ()))}
        unfit |= {name for sweep in sweeps if isinstance(sweep, World | Links) for name in sweep.reads}
        outputs = self.algorithm.outputs.values()
        unfit |= {output.field for output in outputs if not isinstance(output, PairOutput | Sized)}
        known_of: Known = {}
        for group in self.groups:
            first = sweeps[group[0]]
            if not isinstance(first, Outward) or first.lanes:
                continue
            for name in {name for number in group for name in sweeps[number].writes}:
                if writers[name] == 1 and name not in unfit and self.algorithm.fields[name].copies is None:
                    known_of[name] = self._known_scalars(group, name)
        return {name: known for name, known in known_of.items() if known}

    def _known_scalars(self, group: tuple[int, ...], name: str) -> dict[int, Source | float]:
        common: dict[int, Source | float] | None = None
        for kind in self.kinds:
            trace, written, _ = self._run(group, kind)
            sources = {k: trace.source_of(value) for k, value in enumerate(flatten(written[name]))}
            available = {k: where for k, where in sources.items() if where is not None}
            common = available if common is None else {k: w for k, w in common.items() if available.get(k) == w}
        return common or {}

    def _run(self, group: tuple[int, ...], kind: JointKind) -> tuple[_Tracer, dict[str, Any], dict[str, Any]]:
        """Trace a group of sweeps on a body of that joint kind. Returns the trace, the values written, and the values
        given to the parent."""
        trace = self.new()
        written: dict[str, Any] = {}
        given: dict[str, Any] = {}
        body: Any = None
        for number in group:
            sweep: Any = self.algorithm.sweeps[number]
            if body is None:
                body = trace.body(kind, lane=sweep.lanes)
            fresh = [name for name in sweep.reads if name not in written]
            own = SimpleNamespace(**{**vars(trace.fields(fresh, "self", kind.nv)), **written})
            if isinstance(sweep, Outward):
                written.update(sweep.step(body, own, trace.fields(sweep.carries, "parent", 0)))
            else:
                more, gives = sweep.step(body, own)
                written.update(more)
                given.update(gives)
        return trace, written, given

    def _kept(self, group: tuple[int, ...], name: str) -> bool:
        """Whether steps outside the group, or steps on other bodies, read a field."""
        if any(getattr(output, "field", None) == name for output in self.algorithm.outputs.values()):
            return True
        for number, sweep in enumerate(self.algorithm.sweeps):
            if number < group[0]:
                continue
            seen = (*getattr(sweep, "carries", ()), *getattr(sweep, "gives", ()))
            if number > group[-1]:
                seen = (*seen, *sweep.reads, *getattr(sweep, "visits", ()))
            if name in seen:
                return True
        return False

    def bodies(self, group: tuple[int, ...], kind: JointKind) -> Step:
        """The combined step of a group of `Outward` or `Inward` sweeps on a body of that joint kind."""
        trace, written, given = self._run(group, kind)
        trace.write({name: value for name, value in written.items() if self._kept(group, name)}, "self")
        trace.write(given, "parent", add=True)
        return trace.step(f"{self.name} {' '.join(map(str, group))} {kind.name}")

    def world(self, sweep: World) -> Step:
        """The step of a `World` sweep."""
        trace = self.new()
        trace.write(sweep.step(trace.world(), trace.fields(sweep.reads, "world", 0)), "world")
        return trace.step(f"{self.name} world")

    def start(self, sweep: Ancestors, kind: JointKind) -> Step:
        """The start of an `Ancestors` sweep at a body of that joint kind: computes the carried fields."""
        trace = self.new()
        link: Any = trace.link() if sweep.from_links else None
        own = trace.fields(sweep.reads, "first", kind.nv)
        trace.write(sweep.start(trace.body(kind, "first"), own, link), "carry")
        return trace.step(f"{self.name} start {kind.name}")

    def visit(self, sweep: Ancestors, here: JointKind, first: JointKind) -> Step:
        """The visit of an ancestor of kind `here` by an `Ancestors` sweep that started from a body of kind `first`."""
        trace = self.new()
        written, carry = sweep.visit(
            trace.body(here),
            trace.fields(sweep.visits, "self", here.nv),
            trace.body(first, "first"),
            trace.fields(sweep.reads, "first", first.nv),
            trace.fields(sweep.carries, "carry", first.nv),
        )
        if sweep.of_link:
            trace.write(written, "self")
        else:
            trace.write_blocks(written)
        trace.write(carry, "carry")
        return trace.step(f"{self.name} visit {here.name} from {first.name}")

    def links(self, sweep: Links) -> Step:
        """The step of a `Links` sweep. It reads the fields of the body to which the link is fixed."""
        trace = self.new()
        own = trace.fields(sweep.reads, "self", 0)
        trace.write(sweep.step(trace.link(), own), "link")
        return trace.step(f"{self.name} link")


def _groups(algorithm: Algorithm) -> list[tuple[int, ...]]:
    """Indices of the sweeps that run together: consecutive sweeps of one direction. Every other sweep is a group of its
    own."""

    def direction(numbered: tuple[int, object]) -> object:
        number, sweep = numbered
        alone = not isinstance(sweep, Outward | Inward) or sweep.lanes
        return number if alone else type(sweep)

    return [tuple(number for number, _ in run) for _, run in groupby(enumerate(algorithm.sweeps), direction)]
