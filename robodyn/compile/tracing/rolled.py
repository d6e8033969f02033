"""Tracing an algorithm's steps once per joint kind, with body constants and fields as symbols.

What comes out does not depend on the robot, only on the joint kinds it has: engines run it in loops over bodies. A
step is a small program whose inputs say where their numbers lie (`Source`) and whose results say where they go
(`Target`); arrays and their layout are the engine's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby
from types import SimpleNamespace
from typing import Any, TypeAlias

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
    """Where an input's number lies: entry `index` of what `subject` has in `array`.

    Subjects: "self" (the body that the step is about), "parent", "first" (the body that an `Ancestors` sweep started
    from), "carry", "link", "world". Arrays: "Xtree", "inertia" (the model's, or an input where the algorithm lists it),
    "pitch"; "armature", "q", "qd", "qdd", "tau", "vector", "f_ext", "unit"; "V0", "dV0", "gravity", "point"; "X" of a
    link; "field NAME".
    """

    subject: str
    array: str
    index: int


@dataclass(frozen=True)
class Target:
    """Where a result goes: entry `index` of a field of `subject`; `add` for what is given to a parent.

    An entry of a block of an `Ancestors` sweep also has its row and column.
    """

    subject: str
    field: str
    index: int
    add: bool = False
    row: int = 0
    column: int = 0


@dataclass(frozen=True)
class Step:
    """A step's program; `sources` by number of input, `targets` in the order of its output's scalars."""

    program: Program
    sources: tuple[Source, ...]
    targets: tuple[Target, ...]


Known: TypeAlias = dict[str, dict[int, "Source | float"]]
"""Scalars of fields, by name and place, that need not be stored: where they are, or the number they are."""


class _Tracer:
    """Inputs of one step as they are asked for, and its results."""

    def __init__(self, algorithm: Algorithm, base: Iterable[str], armature: bool, known: Known) -> None:
        self.algorithm, self.base, self.armature, self.known = algorithm, tuple(base), armature, known
        self.graph = Graph()
        self.sources: list[Source] = []
        self.expressions: list[Expression] = []
        self.results: list[Value] = []
        self.targets: list[Target] = []

    def symbols(self, subject: str, array: str, count: int) -> tuple[Expression, ...]:
        """Inputs for entries 0 .. count - 1."""
        self.sources += [Source(subject, array, k) for k in range(count)]
        made = self.graph.inputs(count)
        self.expressions += made
        return made

    def body(self, kind: JointKind, subject: str = "self", lane: bool = False) -> SimpleNamespace:
        """A body as a step sees it (`robodyn.sweeps.Body`)."""
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
        """Fields as a step sees them."""
        found: dict[str, Any] = {}
        for name in names:
            field: FieldType = self.algorithm.fields[name]
            known = self.known.get(name, {})
            stored = iter(self.symbols(subject, f"field {name}", field.size(nv) - len(known)))
            scalars = [
                self._known_scalar(subject, known[k]) if k in known else next(stored) for k in range(field.size(nv))
            ]
            found[name] = field.build(iter(scalars), nv)
        return SimpleNamespace(**found)

    def _known_scalar(self, subject: str, where: Source | float) -> Value:
        if isinstance(where, float):
            return where
        self.sources.append(Source(subject, where.array, where.index))
        self.expressions.append(self.graph.input())
        return self.expressions[-1]

    def source_of(self, value: Value) -> Source | float | None:
        """Where a result can be found again without storing it: what the body is made of, or a number."""
        if not isinstance(value, Expression):
            return float(value)
        operation, number, _ = self.graph.nodes[value.index]
        if operation != INPUT:
            return None
        source = self.sources[number]
        return source if source.subject == "self" and source.array in ("Xtree", "inertia") else None

    def world(self) -> SimpleNamespace:
        """The world as a step sees it (`robodyn.sweeps.WorldInputs`)."""

        def motion(name: str) -> Motion:
            if name not in self.base:
                return ZERO_MOTION
            scalars = self.symbols("world", name, 6)
            return Motion(scalars[:3], scalars[3:])  # type: ignore[arg-type]

        return SimpleNamespace(V0=motion("V0"), dV0=motion("dV0"), gravity=self.symbols("world", "gravity", 3))

    def link(self) -> SimpleNamespace:
        """A link as a step sees it (`robodyn.sweeps.LinkConstants`)."""
        row = self.symbols("link", "X", 12)
        X = Transform(row[:9], row[9:])  # type: ignore[arg-type]
        if "point" in self.algorithm.inputs:
            X = Transform(IDENTITY.E, self.symbols("world", "point", POINT)).after(X)  # type: ignore[arg-type]
        return SimpleNamespace(X=X)

    def write(self, written: Written, subject: str, add: bool = False) -> None:
        """Results that are values of fields; scalars that are known without them are not stored."""
        for name, value in written.items():
            known = self.known.get(name, {})
            for k, scalar in enumerate(each for n, each in enumerate(flatten(value)) if n not in known):
                self.results.append(scalar)
                self.targets.append(Target(subject, name, k, add))

    def write_blocks(self, written: Written) -> None:
        """Results that are blocks between the degrees of freedom of two bodies."""
        for name, rows in written.items():
            for r, row in enumerate(rows):
                for c, entry in enumerate(row):
                    for k, scalar in enumerate(flatten(entry)):
                        self.results.append(scalar)
                        self.targets.append(Target("block", name, k, row=r, column=c))

    def step(self, name: str) -> Step:
        """What was traced."""
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

    Neighbouring sweeps of one direction run as one: what one leaves for the next on the same body is handed on without
    being stored, unless others read it too. Of a field that an outward sweep writes, scalars that are entries of the
    body's Xtree or inertia whatever its joint (`known`) are not stored either.

    Args:
        algorithm: whose steps.
        kinds: the joint kinds there are.
        base: which of V0 and dV0 are inputs; the others are zero.
        armature: whether any joint has armature; without, it is zero in every step.
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
        """Scalars of a field (of one without a value per degree of freedom) that are stored."""
        return self.algorithm.fields[name].size(0) - len(self.known.get(name, {}))

    def _find_known(self) -> Known:
        """For each field that can have them: the scalars that need not be stored, and where they are."""
        sweeps = self.algorithm.sweeps
        writers = Counter(name for sweep in sweeps for name in sweep.writes)
        # The world has no constants, and what others add to is not what was written.
        unfit = {name for sweep in sweeps for name in (*getattr(sweep, "carries", ()), *getattr(sweep, "gives", ()))}
        unfit |= {name for sweep in sweeps if isinstance(sweep, World | Links) for name in sweep.reads}
        unfit |= {output.field for output in self.algorithm.outputs.values() if not isinstance(output, PairOutput)}
        found: Known = {}
        for group in self.groups:
            first = sweeps[group[0]]
            if not isinstance(first, Outward) or first.lanes:
                continue
            for name in {name for number in group for name in sweeps[number].writes}:
                if writers[name] == 1 and name not in unfit and self.algorithm.fields[name].copies is None:
                    found[name] = self._known_scalars(group, name)
        return {name: known for name, known in found.items() if known}

    def _known_scalars(self, group: tuple[int, ...], name: str) -> dict[int, Source | float]:
        common: dict[int, Source | float] | None = None
        for kind in self.kinds:
            trace, written, _ = self._run(group, kind)
            here = {k: trace.source_of(value) for k, value in enumerate(flatten(written[name]))}
            told = {k: where for k, where in here.items() if where is not None}
            common = told if common is None else {k: w for k, w in common.items() if told.get(k) == w}
        return common or {}

    def _run(self, group: tuple[int, ...], kind: JointKind) -> tuple[_Tracer, dict[str, Any], dict[str, Any]]:
        """Trace a group of sweeps on a body of that kind: what it writes, and what it gives to its parent."""
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
        """Whether anything but the group's own later steps on the same body sees a field."""
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
        """The steps of a group of `Outward` or `Inward` sweeps on a body of that kind."""
        trace, written, given = self._run(group, kind)
        trace.write({name: value for name, value in written.items() if self._kept(group, name)}, "self")
        trace.write(given, "parent", add=True)
        return trace.step(f"{self.name} {' '.join(map(str, group))} {kind.name}")

    def world(self, sweep: World) -> Step:
        """A `World` step."""
        trace = self.new()
        trace.write(sweep.step(trace.world(), trace.fields(sweep.reads, "world", 0)), "world")
        return trace.step(f"{self.name} world")

    def start(self, sweep: Ancestors, kind: JointKind) -> Step:
        """Where an `Ancestors` sweep starts from a body of that kind: what it carries."""
        trace = self.new()
        link: Any = trace.link() if sweep.from_links else None
        own = trace.fields(sweep.reads, "first", kind.nv)
        trace.write(sweep.start(trace.body(kind, "first"), own, link), "carry")
        return trace.step(f"{self.name} start {kind.name}")

    def visit(self, sweep: Ancestors, here: JointKind, first: JointKind) -> Step:
        """A visit of an ancestor of kind `here`, having started from a body of kind `first`."""
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
        """A `Links` step; its own fields are those of the body that the link is fixed to."""
        trace = self.new()
        own = trace.fields(sweep.reads, "self", 0)
        trace.write(sweep.step(trace.link(), own), "link")
        return trace.step(f"{self.name} link")


def _groups(algorithm: Algorithm) -> list[tuple[int, ...]]:
    """Numbers of sweeps that run as one: neighbours that go the same way over bodies; every other sweep is alone."""

    def direction(numbered: tuple[int, object]) -> object:
        number, sweep = numbered
        alone = not isinstance(sweep, Outward | Inward) or sweep.lanes
        return number if alone else type(sweep)

    return [tuple(number for number, _ in run) for _, run in groupby(enumerate(algorithm.sweeps), direction)]
