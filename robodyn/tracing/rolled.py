"""Tracing an algorithm's steps once per joint kind, with body constants and fields as symbols.

What comes out does not depend on the robot, only on the joint kinds it has: engines run it in loops over bodies. A
step is a small program whose inputs say where their numbers lie (`Source`) and whose results say where they go
(`Target`); arrays and their layout are the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from robodyn.joints import JointKind
from robodyn.spatial import ZERO_FORCE, ZERO_MOTION, Force, Inertia, Motion, Transform
from robodyn.sweeps import Algorithm, Ancestors, FieldType, Inward, Links, Outward, World, Written, flatten
from robodyn.tracing.expression import Expression, Graph, Value
from robodyn.tracing.program import Program


@dataclass(frozen=True)
class Source:
    """Where an input's number lies: entry `index` of what `subject` has in `array`.

    Subjects: "self" (the body that the step is about), "parent", "first" (the body that an `Ancestors` sweep started
    from), "carry", "link", "world". Arrays: "Xtree", "inertia", "pitch"; "armature", "q", "qd", "qdd", "tau", "f_ext",
    "unit"; "V0", "dV0", "gravity"; "X" of a link; "field NAME".
    """

    subject: str
    array: str
    index: int


@dataclass(frozen=True)
class Target:
    """Where a result goes: entry `index` of a field of `subject`; `add` for what is given to a parent.

    A block of an `Ancestors` sweep has its row and column instead of an index.
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


class _Tracer:
    """Inputs of one step as they are asked for, and its results."""

    def __init__(self, algorithm: Algorithm, base: Iterable[str], armature: bool) -> None:
        self.algorithm, self.base, self.armature = algorithm, tuple(base), armature
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
        pitch = self.symbols(subject, "pitch", 1)[0] if kind.name == "helical" else 0.0
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
            armature=self.symbols(subject, "armature", kind.nv) if self.armature else (0.0,) * kind.nv,
            q=_unit_quaternion(kind, given("q", kind.nq)),
            qd=given("qd", kind.nv),
            qdd=given("qdd", kind.nv),
            tau=given("tau", kind.nv),
            f_ext=ZERO_FORCE if force is None else Force(force[:3], force[3:]),  # type: ignore[arg-type]
            unit=self.symbols(subject, "unit", kind.nv) if lane else (0.0,) * kind.nv,
        )

    def fields(self, names: Iterable[str], subject: str, nv: int) -> SimpleNamespace:
        """Fields as a step sees them."""
        found: dict[str, Any] = {}
        for name in names:
            field: FieldType = self.algorithm.fields[name]
            scalars: Iterator[Any] = iter(self.symbols(subject, f"field {name}", field.size(nv)))
            found[name] = field.build(scalars, nv)
        return SimpleNamespace(**found)

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
        X = self.symbols("link", "X", 12)
        return SimpleNamespace(X=Transform(X[:9], X[9:]))  # type: ignore[arg-type]

    def write(self, written: Written, subject: str, add: bool = False) -> None:
        """Results that are values of fields."""
        for name, value in written.items():
            for k, scalar in enumerate(flatten(value)):
                self.results.append(scalar)
                self.targets.append(Target(subject, name, k, add))

    def write_blocks(self, written: Written) -> None:
        """Results that are blocks between the degrees of freedom of two bodies."""
        for name, rows in written.items():
            for r, row in enumerate(rows):
                for c, scalar in enumerate(row):
                    self.results.append(scalar)
                    self.targets.append(Target("block", name, 0, row=r, column=c))

    def step(self, name: str) -> Step:
        """What was traced."""
        inputs = {"in": ((len(self.expressions),), self.expressions)}
        program = Program.of(name, self.graph, inputs, {"out": ((len(self.results),), self.results)})
        return Step(program, tuple(self.sources), tuple(self.targets))


def _unit_quaternion(kind: JointKind, q: tuple[Value, ...]) -> tuple[Value, ...]:
    if kind.quaternion is None or not isinstance(q[0], Expression):
        return q
    start = kind.quaternion
    x, y, z, w = q[start : start + 4]
    inverse = 1.0 / np.sqrt(x * x + y * y + z * z + w * w)
    return (*q[:start], x * inverse, y * inverse, z * inverse, w * inverse)


class StepTracer:
    """Traces the steps of one algorithm.

    Args:
        algorithm: whose steps.
        base: which of V0 and dV0 are inputs; the others are zero.
        armature: whether any joint has armature; without, it is zero in every step.
    """

    def __init__(self, algorithm: Algorithm, base: Iterable[str] = (), armature: bool = True) -> None:
        self.new: Callable[[], _Tracer] = lambda: _Tracer(algorithm, base, armature)
        self.name = algorithm.name

    def world(self, sweep: World) -> Step:
        """A `World` step."""
        trace = self.new()
        trace.write(sweep.step(trace.world(), trace.fields(sweep.reads, "world", 0)), "world")
        return trace.step(f"{self.name} world")

    def outward(self, sweep: Outward, kind: JointKind) -> Step:
        """An `Outward` step on a body of that kind."""
        trace = self.new()
        own, parent = trace.fields(sweep.reads, "self", kind.nv), trace.fields(sweep.carries, "parent", 0)
        trace.write(sweep.step(trace.body(kind, lane=sweep.lanes), own, parent), "self")
        return trace.step(f"{self.name} outward {kind.name}")

    def inward(self, sweep: Inward, kind: JointKind) -> Step:
        """An `Inward` step on a body of that kind."""
        trace = self.new()
        own = trace.fields(sweep.reads, "self", kind.nv)
        written, given = sweep.step(trace.body(kind, lane=sweep.lanes), own)
        trace.write(written, "self")
        trace.write(given, "parent", add=True)
        return trace.step(f"{self.name} inward {kind.name}")

    def start(self, sweep: Ancestors, kind: JointKind) -> Step:
        """Where an `Ancestors` sweep starts from a body of that kind: what it carries."""
        trace = self.new()
        link: Any = trace.link() if sweep.of_link else None
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
