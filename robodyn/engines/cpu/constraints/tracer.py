"""Traces of formulas of constraints, as steps of loops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from robodyn.algorithms.constraints.sweeps import response
from robodyn.algorithms.constraints.terms import (
    frame_entries,
    frame_rows,
    moves,
    orthonormal,
    rod_entry,
    rod_row,
)
from robodyn.compile.tracing.rolled import Step, StepTracer, Target
from robodyn.core.constraints.kinds import Coupling, Lock, Rod
from robodyn.core.joints import KINDS, JointKind, is_positive
from robodyn.core.spatial import ZERO3, ZERO_MOTION, Force, Motion, Transform
from robodyn.core.sweeps import Algorithm
from robodyn.engines.cpu.constraints.tables import FRAMES, PUSH, Form

OF_CONSTRAINT = {"frames": FRAMES, "targets": 12, "active": 1, "weights": 1, "ends": 12}
"""Arrays with some numbers for each constraint."""
OF_ROW = ("phi", "phidot", "gamma", "square", "size", "row_sizes", "moving")
"""Arrays with a number for each row."""
MODEL_NUMBERS = ("frames", "row_sizes", "numbers")
"""Those that are numbers of the model, the same in all states."""
_READ = ("X0", "v", "a", "X", "U", "D", "inverse", "w")


class ConstraintTracer(StepTracer):
    """Traces the steps of sweeps, and formulas of constraints between them.

    Sources and targets of the latter have these subjects: "constraint" for the arrays of `OF_CONSTRAINT`, "row" for
    those of `OF_ROW`, "start" for the entries of J at hand, column by column, "numbers", "own" and "above" for sums of
    forces, "dof0" to "dof5" for responses; and the bodies "b" and "a" of frames.

    Args:
        algorithm: the sweeps.
        kinds: the joint kinds of the model.
        base: the inputs among V0 and dV0.
        armature: True if some joint has armature.
        proximal: mu, and the number of iterations.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        kinds: Iterable[JointKind],
        base: Iterable[str],
        armature: bool,
        proximal: tuple[float, int],
    ) -> None:
        self.proximal = proximal
        self._read = (*_READ, *(("x",) if "q_held" in algorithm.outputs else ()))
        super().__init__(algorithm, kinds, base, armature)

    def _kept(self, group: tuple[int, ...], name: str) -> bool:
        return name in self._read or super()._kept(group, name)

    @property
    def weighted(self) -> bool:
        """True if constraints can be switched off."""
        return "active" in self.algorithm.inputs

    def _finished(self, trace: Any, name: str, results: Iterable[tuple[Any, Target]]) -> Step:
        for value, target in results:
            trace.results.append(value)
            trace.targets.append(target)
        return trace.step(f"{self.name} {name}")  # type: ignore[no-any-return]

    def weight(self) -> Step:
        """1 for an active constraint, 0 for an inactive one."""
        trace = self.new()
        (active,) = trace.symbols("constraint", "active", 1)
        return self._finished(trace, "weight", [(is_positive(active), Target("constraint", "weights", 0))])

    def frame(self, form: Form) -> Step:
        """phi, phidot and gamma of a constraint's rows, and what entries of J need: E of frame a or the direction of a
        rod, and the place of frame b."""
        trace = self.new()
        names = [name for name in ("X0", "v", "a") if name in self.algorithm.fields]
        numbers: Any = trace.symbols("constraint", "frames", FRAMES)
        world, on_b = trace.fields(["X0"], "world", 0).X0, trace.fields(names, "b", 0)
        b = Transform(numbers[:9], numbers[9:12]).after(on_b.X0)
        V, A = _motions(on_b)
        a = Transform(numbers[12:21], numbers[21:24])
        if not form.to_world:
            on_a = trace.fields(names, "a", 0)
            a = a.after(on_a.X0)
            V_a, A_a = _motions(on_a)
            V = V - V_a
            A = A - A_a - V_a.cross(V)
        else:
            if "targets" in self.algorithm.inputs:
                target: Any = trace.symbols("constraint", "targets", 12)
                a = Transform(orthonormal(target[:9]), target[9:])
            a = a.after(world)
            if "a" in names:  # gravity is an upward acceleration of the world in sweeps
                A = A + Motion(ZERO3, trace.symbols("world", "gravity", 3))  # type: ignore[arg-type]
        if form.kind is Rod:
            weight = trace.symbols("constraint", "weights", 1)[0] if self.weighted else None
            *row, u = rod_row(numbers[24], a, b, V, A, weight)
            rows, kept = [tuple(row)], (*u, *b.r)
        else:
            rows, kept = list(frame_rows(form.kind, form.rows, a, b, V, A).values()), (*a.E, *b.r)
        results = _row_targets(rows, 3 if "a" in names else 2 if "v" in names else 1)
        results += [(value, Target("constraint", "ends", k)) for k, value in enumerate(kept)]
        return self._finished(trace, f"frame of {form.kind.__name__} {' '.join(form.rows)}", results)

    def lock(self, form: Form) -> Step:
        """phi and phidot of a lock's rows."""
        trace, kind = self.new(), KINDS[form.joint]
        body = trace.body(kind)
        held: Any = trace.symbols("constraint", "frames", kind.nq)
        rows = [(phi, qd, 0.0) for phi, qd in zip(kind.difference(held, body.q), body.qd, strict=True)]
        count = 3 if "a" in self.algorithm.fields else 2 if "v" in self.algorithm.fields else 1
        return self._finished(trace, f"lock of {kind.name}", _row_targets(rows, count))

    def entries(self, form: Form, kind: JointKind) -> Step:
        """Entries of J of a joint's degrees of freedom, zero in inactive rows; sums of their squares, and of those of
        their terms."""
        trace = self.new()
        body = trace.body(kind)
        weight = trace.symbols("constraint", "weights", 1)[0] if self.weighted else None
        rows = len(form.rows)
        squares: list[Any] = [0.0] * rows
        sizes: list[Any] = [0.0] * rows
        results: list[tuple[Any, Target]] = []
        framed = form.kind not in (Lock, Coupling)
        if framed:
            (sign,) = trace.symbols("numbers", "numbers", 1)
            X0 = trace.fields(["X0"], "self", 0).X0
            ends: Any = trace.symbols("constraint", "ends", 6 if form.kind is Rod else 12)
        else:
            block = trace.symbols("numbers", "numbers", rows * kind.nv)
        for k, S in enumerate(body.S):
            if framed:
                column = X0.motion_back(S).scaled(sign)
                if form.kind is Rod:
                    found = [rod_entry(ends[:3], Transform((0.0,) * 9, ends[3:]), column)]
                else:
                    a, b = Transform(ends[:9], ZERO3), Transform((0.0,) * 9, ends[9:])
                    found = list(frame_entries(form.rows, a, b, column).values())
            else:
                found = [(block[k * rows + r], 0.0) for r in range(rows)]
            for r, (entry, size) in enumerate(found):
                value = entry if weight is None else weight * entry
                results.append((value, Target("start", "J", k * rows + r)))
                squares[r], sizes[r] = squares[r] + value * value, sizes[r] + size
        for r in range(rows):
            results.append((squares[r], Target("row", "square", r, add=True)))
            if framed:
                results.append((sizes[r], Target("row", "size", r, add=True)))
        return self._finished(trace, f"entries of {form.kind.__name__} {' '.join(form.rows)} {kind.name}", results)

    def respond(self, rows: int, kind: JointKind) -> Step:
        """Responses of a joint to rows, whose forces on the body are summed so far, and forces on its parent's body.
        The sums start at zero again."""
        trace = self.new()
        body, own = trace.body(kind), trace.fields(("X", "U", "D", "inverse"), "self", kind.nv)
        J = trace.symbols("start", "J", rows * kind.nv)
        sums = trace.symbols("own", "pushes", rows * PUSH)
        results, given = [], []
        for r in range(rows):
            push: Any = sums[PUSH * r : PUSH * r + PUSH]
            w, force = response(body, own, J[r::rows], Force(push[:3], push[3:]))
            results += [(value, Target(f"dof{k}", "responses", r)) for k, value in enumerate(w)]
            results += [(0.0, Target("own", "pushes", PUSH * r + k)) for k in range(PUSH)]
            for k, value in enumerate((*force.ang, *force.lin)):
                given.append((value, Target("above", "pushes", PUSH * r + k, add=True)))
        return self._finished(trace, f"responses of {rows} rows {kind.name}", [*results, *given])

    def moving(self) -> Step:
        """1 for a row that moves with some joint, 0 for others."""
        trace = self.new()
        names = ("square", "size", "row_sizes")
        square, made_of, size = (trace.symbols("row", name, 1)[0] for name in names)
        value = moves(square, made_of, size, self.proximal)
        return self._finished(trace, "moving", [(value, Target("row", "moving", 0))])

    def moved(self, kind: JointKind) -> Step:
        """Coordinates of a joint after a step of its velocities."""
        trace = self.new()
        q, x = trace.body(kind).q, trace.fields(["x"], "self", kind.nv).x
        results = [(value, Target("self", "q_held", k)) for k, value in enumerate(kind.integrate(q, x))]
        return self._finished(trace, f"moved {kind.name}", results)


def _motions(on: Any) -> tuple[Motion, Motion]:
    """Velocity and acceleration of a body in world coordinates, zero where they are not computed."""
    v, a = (on.X0.motion_back(getattr(on, name)) if hasattr(on, name) else ZERO_MOTION for name in ("v", "a"))
    return v, a


def _row_targets(rows: list[tuple[Any, ...]], count: int) -> list[tuple[Any, Target]]:
    names = ("phi", "phidot", "gamma")[:count]
    return [
        (value, Target("row", name, r)) for r, row in enumerate(rows) for name, value in zip(names, row, strict=False)
    ]
