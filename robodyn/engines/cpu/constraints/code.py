"""Loops over constraints, their paths and rows, between the sweeps of loops over bodies.

For a vector of states: sweeps outward; rows of all constraints; the inward sweeps of articulated inertias and forces;
responses of the bodies on each constraint's paths; A = J H^-1 J' from them, segment by segment; forces by proximal
iterations; and the sweep outward to accelerations. `project` does it twice, for the configuration and for the
velocity.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from robodyn.compile.llvm.target import Target
from robodyn.compile.loop_plan import Traits
from robodyn.compile.loops.blocks import Number, Value
from robodyn.compile.loops.language import (
    Address,
    Array,
    Integer,
    Static,
    Vector,
    Word,
    address,
    array,
    clear,
    copy,
    fma,
    local,
    processor,
    routine,
    spread,
    switch,
)
from robodyn.compile.loops.table import Argument
from robodyn.compile.tracing.rolled import Target as StepTarget
from robodyn.core.constraints.kinds import Coupling, Lock
from robodyn.core.joints import KINDS, JointKind
from robodyn.core.sweeps import Algorithm, Outward
from robodyn.engines.cpu.chains.panel_code import panel_rows
from robodyn.engines.cpu.constraints.matrix_code import multiply, push, solve
from robodyn.engines.cpu.constraints.tables import BLOCK, FRAMES, ConstraintTraits, Held, Term, Visit
from robodyn.engines.cpu.constraints.tracer import MODEL_NUMBERS, OF_CONSTRAINT, OF_ROW, ConstraintTracer
from robodyn.engines.cpu.loops.code import (
    Group,
    RolledModule,
    base,
    clear_arrays,
    find_arrays,
    number,
    point_at_row,
    scalars,
    stage_inputs,
    stage_outputs,
    vectors,
    words,
)
from robodyn.engines.cpu.loops.steps import StepReader, Steps

TABLES = (
    *("held", "visits", "segments", "segment_rows", "segment_dofs", "terms", "place"),
    *("frames", "gains", "row_sizes", "numbers", "weights_of_terms", "sizes"),
)
"""Arrays of `tables`, after those of the model."""
TINY_ARE_ZERO = 0x8040
"""Bits of the control register of SSE: results below normal numbers are zero, and so are operands."""
_WIDTHS = {**OF_CONSTRAINT, "numbers": 1, "J": 1, "pushes": 1, "responses": 1}


# Rows.


@routine
def place_world(bases: Array[Address], module: Static[ConstraintModule]) -> None:
    """Let the world's origin be at the floating base (`robodyn.algorithms.constraints.terms.place_of_base`). Digits are
    then not lost far away."""
    place, q, X0 = words(bases, "place", module), vectors(bases, "in q", module), vectors(bases, "field X0", module)
    E = scalars(bases, "Xtree", module) + place[3]
    for k in range(3):
        total = spread(Vector, 0.0)
        for j in range(3):
            total = fma(spread(Vector, E[3 * j + k]), q[place[j]], total)
        X0[9 + k] = -total


@routine
def over_constraints(bases: Array[Address], module: Static[ConstraintModule]) -> None:
    """Residuals, rates and accelerations of the rows of all constraints."""
    every = array(Held, base(bases, "held", module))
    for c in range(number(bases, "n_constraints", module)):
        held = every[c]
        if module.tracer.weighted:
            module.run(module.tracer.weight(), bases, constraint=c)
        for form in switch(held.form, range(len(module.forms))):
            if module.is_coupling(form):
                couple(bases, c, held.row, held.first_term, held.last_term, module)
            elif module.is_lock(form):
                module.run(module.tracer.lock(module.forms[form]), bases, constraint=c, row=held.row, body=held.b)
            else:
                step = module.tracer.frame(module.forms[form])
                module.run(step, bases, constraint=c, row=held.row, b=held.b, a=held.a)


def couple(
    bases: Array[Address], c: Word, row: Word, first: Word, last: Word, module: Static[ConstraintModule]
) -> None:
    """The row of a coupling: a sum of coordinates."""
    terms, weights = array(Term, base(bases, "terms", module)), scalars(bases, "weights_of_terms", module)
    q = vectors(bases, "in q", module)
    phi = -spread(Vector, scalars(bases, "frames", module)[c * FRAMES])
    for k in range(first, last):
        phi = fma(spread(Vector, weights[k]), q[terms[k].q], phi)
    vectors(bases, "phi", module)[row] = phi
    if module.has("v"):
        qd, phidot = vectors(bases, "in qd", module), spread(Vector, 0.0)
        for k in range(first, last):
            phidot = fma(spread(Vector, weights[k]), qd[terms[k].v], phidot)
        vectors(bases, "phidot", module)[row] = phidot
    if module.has("a"):
        vectors(bases, "gamma", module)[row] = spread(Vector, 0.0)


@routine
def over_visits(bases: Array[Address], module: Static[ConstraintModule]) -> None:
    """Entries of J along the paths of constraints, and responses to rows from the leaves to the root."""
    every, visits = array(Held, base(bases, "held", module)), array(Visit, base(bases, "visits", module))
    kind, entries = words(bases, "kind", module), vectors(bases, "J", module)
    sizes, size = scalars(bases, "sizes", module), vectors(bases, "size", module)
    for r in range(number(bases, "n_rows", module)):
        size[r] = spread(Vector, sizes[r])
    clear(vectors(bases, "square", module), number(bases, "n_rows", module) * module.kind.bytes)
    for k in range(number(bases, "n_visits", module)):
        visit = visits[k]
        held, joint = every[visit.constraint], kind[visit.body]
        if visit.numbers >= 0:
            for form in switch(held.form, range(len(module.forms))):
                for code in switch(joint, module.traits.kinds):
                    if module.fits(form, code):
                        step = module.tracer.entries(module.forms[form], KINDS[code])
                        module.run(
                            step,
                            bases,
                            body=visit.body,
                            constraint=visit.constraint,
                            row=held.row,
                            numbers=visit.numbers,
                            start=0,
                        )
            if module.query == "constraint_jacobian":
                write_entries(bases, visit.body, held.row, held.rows, joint, module)
        else:
            clear(entries, module.most_entries * module.kind.bytes)
        if module.responds:
            line, dof = visit.line, visit.place
            for rows in switch(held.rows, module.counts):
                for code in switch(joint, module.traits.kinds):
                    module.run(
                        module.tracer.respond(rows, KINDS[code]),
                        bases,
                        body=visit.body,
                        start=0,
                        own=visit.own,
                        above=visit.above,
                        dof0=dof,
                        dof1=dof + line,
                        dof2=dof + 2 * line,
                        dof3=dof + 3 * line,
                        dof4=dof + 4 * line,
                        dof5=dof + 5 * line,
                    )


def write_entries(
    bases: Array[Address], body: Word, row: Word, rows: Word, joint: Word, module: Static[ConstraintModule]
) -> None:
    """Store entries of J in the result."""
    J, entries = vectors(bases, "out J", module), vectors(bases, "J", module)
    nv, start = number(bases, "nv", module), first_velocity(bases, body, module)
    for code in switch(joint, module.traits.kinds):
        for k in range(KINDS[code].nv):
            for r in range(rows):
                J[(row + r) * nv + start + k] = entries[k * rows + r]


def first_velocity(bases: Array[Address], body: Word, module: Static[ConstraintModule]) -> Word:
    """The first degree of freedom of a body."""
    if module.traits.single:
        return body
    return words(bases, "v_start", module)[body]


@routine
def find_errors(bases: Array[Address], module: Static[ConstraintModule], error: Static[str]) -> None:
    """What forces have to remove: r, or an error of rows; zero in inactive rows."""
    every, gains = array(Held, base(bases, "held", module)), scalars(bases, "gains", module)
    errors = vectors(bases, "errors", module)
    phi, phidot = vectors(bases, "phi", module), vectors(bases, "phidot", module)
    for c in range(number(bases, "n_constraints", module)):
        held = every[c]
        for r in range(held.row, held.row + held.rows):
            if error == "phi":
                value = phi[r]
            elif error == "phidot":
                value = phidot[r]
            else:
                value = vectors(bases, "gamma", module)[r]
                if module.constraints.gains[0]:
                    value = fma(spread(Vector, gains[2 * r]), phidot[r], value)
                if module.constraints.gains[1]:
                    value = fma(spread(Vector, gains[2 * r + 1]), phi[r], value)
            if module.tracer.weighted:
                value = value * vectors(bases, "weights", module)[c]
            errors[r] = value


# The exported function.


@routine
def move(bases: Array[Address], module: Static[ConstraintModule]) -> None:
    """The configuration after a step."""
    kind = words(bases, "kind", module)
    for body in range(number(bases, "n_bodies", module)):
        for code in switch(kind[body], module.traits.kinds):
            module.run(module.tracer.moved(KINDS[code]), bases, body=body)


def sweep_all(bases: Array[Address], module: Static[ConstraintModule], error: Static[str]) -> None:
    """Run all sweeps, and what comes between them."""
    for group in module.tracer.groups:
        if group is module.first_outward and module.constraints.nearby:
            place_world(bases, module=module)
        if group is module.last:
            respond(bases, module, error)
            push(bases, module=module)
        sweep = module.sweep_function(group)
        sweep(bases, module=module, group=group)
    if module.last is None:
        respond(bases, module, error)


def respond(bases: Array[Address], module: Static[ConstraintModule], error: Static[str]) -> None:
    """Rows, their responses, and forces."""
    over_constraints(bases, module=module)
    if module.query != "constraint_residual":
        over_visits(bases, module=module)
    if module.responds:
        multiply(bases, module=module)
        find_errors(bases, module=module, error=error)
    if module.last is not None:
        solve(bases, module=module)


@routine
def kernel(
    table: Array[Argument], first: Word, last: Word, workspace: Address, module: Static[ConstraintModule]
) -> None:
    """Process W rows at a time: load inputs, run sweeps, store outputs.

    Responses decay along paths. x86 processors take a hundred times as long for numbers below the normal ones, which
    therefore count as zero meanwhile."""
    control = local(Integer, 2)
    if module.slow_when_tiny:
        processor("x86.sse.stmxcsr", control)
        control[1] = control[0] | TINY_ARE_ZERO
        processor("x86.sse.ldmxcsr", control + 1)
    bases = find_arrays(table, workspace, module)
    clear_arrays(bases, module.zero_rows, module)
    for row in range(first, last, module.kind.width):
        point_at_row(table, bases, row, module)
        stage_inputs(table, bases, row, last - 1, module)
        if module.query == "project":
            sweep_all(bases, module, "phi")
            move(bases, module=module)
            given = bases[module.base_number("in q")]
            bases[module.base_number("in q")] = bases[module.base_number("out q_held")]
            sweep_all(bases, module, "phidot")
            bases[module.base_number("in q")] = given
        else:
            sweep_all(bases, module, module.error)
        write_rows(bases, module=module)
        stage_outputs(table, bases, row, last - 1, module)
    if module.slow_when_tiny:
        processor("x86.sse.ldmxcsr", control)


@routine
def write_rows(bases: Array[Address], module: Static[ConstraintModule]) -> None:
    """Copy results of rows."""
    m = number(bases, "n_rows", module)
    for name, source in module.row_results:
        copy(address(vectors(bases, "out " + name, module)), vectors(bases, source, module), m * module.kind.bytes)
    if module.query == "delassus":
        write_delassus(bases, module)


def write_delassus(bases: Array[Address], module: Static[ConstraintModule]) -> None:
    """A, with 1 on the diagonal of inactive rows, and accelerations of rows without forces."""
    m, side = number(bases, "n_rows", module), number(bases, "side", module)
    A, out = vectors(bases, "A", module), vectors(bases, "out A", module)
    for i in range(m):
        for j in range(i, m):
            value = A[i * side + j]
            out[i * m + j] = value
            out[j * m + i] = value
    free, errors, rates = (
        vectors(bases, "out v_free", module),
        vectors(bases, "errors", module),
        vectors(bases, "rates", module),
    )
    for r in range(m):
        free[r] = errors[r] + rates[r]
    if module.tracer.weighted:
        every = array(Held, base(bases, "held", module))
        for c in range(number(bases, "n_constraints", module)):
            weight = vectors(bases, "weights", module)[c]
            for r in range(every[c].row, every[c].row + every[c].rows):
                out[r * m + r] = out[r * m + r] + (1.0 - weight)


class ConstraintModule(RolledModule):
    """The module of a query about constraints, for robots and constraints with some traits.

    Args:
        algorithm: the sweeps over bodies (`robodyn.algorithms.constraints.sweeps`).
        traits: known traits of the robots.
        dtype: dtype of arrays and arithmetic.
        target: the processor.
        base: the motions of the base (V0, dV0) that are inputs.
        width: states in a vector; None for as many as registers hold.
        query: the name of the query.
        proximal: mu, and the number of iterations.
        constraints: known traits of the constraints.
    """

    KERNEL: ClassVar = kernel
    tracer: ConstraintTracer

    def __init__(
        self,
        algorithm: Algorithm,
        traits: Traits,
        dtype: np.dtype[Any],
        target: Target,
        base: tuple[str, ...],
        width: int | None,
        query: str,
        proximal: tuple[float, int],
        constraints: ConstraintTraits,
    ) -> None:
        self.query, self.proximal, self.constraints, self.forms = query, proximal, constraints, constraints.forms
        super().__init__(algorithm, traits, dtype, target, base, width)

    def _step_tracer(self, kinds: list[JointKind]) -> ConstraintTracer:
        return ConstraintTracer(self.algorithm, kinds, self.base, self.traits.armature, self.proximal)

    def _more_arrays(self) -> list[str]:
        return [*self.sizes]

    def _more_integers(self) -> list[str]:
        return ["n_constraints", "n_rows", "n_visits", "n_segments", "side"]

    def _model_arrays(self, lanes: list[int]) -> list[str]:
        return [*super()._model_arrays(lanes), *TABLES]

    @property
    def sizes(self) -> dict[str, str]:
        """Arrays of the workspace for constraints, with what their sizes depend on (`ConstraintProgram`)."""
        rows = [name for name in OF_ROW if name not in MODEL_NUMBERS]
        own = dict.fromkeys(rows, "rows") | {"ends": "constraints", "weights": "constraints", "J": "entries"}
        if self.responds:
            own |= {"responses": "responses", "pushes": "pushes", "A": "square", "rates": "side", "errors": "rows"}
        if self.last is not None:
            own |= {"lam": "side", "mu": "rows", "pivots": "rows"}
        return own

    @property
    def run(self) -> ConstraintSteps:
        """The operator that runs steps."""
        return ConstraintSteps(self)

    @property
    def zero_rows(self) -> list[tuple[str, int | str]]:
        """Arrays that are zero at the start: sums of forces, and what fills up lines of responses."""
        return [(name, f"vectors {name}") for name in ("responses", "pushes") if self.responds]

    @property
    def slow_when_tiny(self) -> bool:
        """True if the processor has SSE."""
        return self.target.level in ("sse2", "avx2", "avx512")

    @property
    def types(self) -> dict[str, Number]:
        """Types in the module, by name. `Columns` are rows of a block for a single state, else vectors of states."""
        types = super().types
        of_state = Number(self.kind.scalar, BLOCK, self.kind.itemsize)
        return {**types, "Columns": of_state if self.single else types["Vector"]}

    @property
    def single(self) -> bool:
        """True for single states."""
        return self.kind.width == 1

    @property
    def columns(self) -> int:
        """Entries of a row of A in `Columns`."""
        return BLOCK if self.single else 1

    @property
    def most_lines(self) -> int:
        """Most rows that are multiplied at a time, so that sums stay in registers."""
        return 2 * BLOCK if self.single else panel_rows(self.target)

    @property
    def heights(self) -> list[int]:
        """Numbers of rows that are multiplied at a time."""
        return sorted({self.most_lines, min(BLOCK, self.most_lines)})

    def has(self, field: str) -> bool:
        """True if the sweeps have a field."""
        return field in self.algorithm.fields

    @property
    def free(self) -> bool:
        """True if there are forces besides those of constraints."""
        return self.has("f")

    @property
    def responds(self) -> bool:
        """True if the query needs responses to rows."""
        return self.has("inverse")

    @property
    def error(self) -> str:
        """What forces have to remove."""
        return "drift" if self.free else "phidot"

    @property
    def last(self) -> Group | None:
        """The sweep that needs constraint forces."""
        return self.tracer.groups[-1] if self.has("change") else None

    @property
    def first_outward(self) -> Group:
        """The first sweep that needs the place of the world."""
        return next(group for group in self.tracer.groups if isinstance(self.sweep(group), Outward))

    def is_coupling(self, form: int) -> bool:
        """True if a form is that of a coupling."""
        return self.forms[form].kind is Coupling

    def is_lock(self, form: int) -> bool:
        """True if a form is that of a lock."""
        return self.forms[form].kind is Lock

    def fits(self, form: int, code: int) -> bool:
        """True if constraints of a form can have entries of J for joints of a kind."""
        of = self.forms[form]
        return of.joint == code if of.kind is Lock else of.kind is not Coupling or KINDS[code].nv == 1

    @property
    def counts(self) -> list[int]:
        """Numbers of rows that constraints have."""
        return sorted({len(form.rows) for form in self.forms})

    @property
    def most_entries(self) -> int:
        """Most entries of J of a constraint and a joint."""
        return max(self.counts) * max(KINDS[code].nv for code in self.traits.kinds)

    @property
    def row_results(self) -> list[tuple[str, str]]:
        """Results that are arrays of rows, and these arrays."""
        names = {"lam": "lam", "impulse": "lam", "phi": "phi", "phidot": "phidot"}
        return [(name, names[name]) for name in self.algorithm.outputs if name in names]


class ConstraintReader(StepReader):
    """Emits the code of one step, also of those of `ConstraintTracer`."""

    def _find_row(self, subject: str, array: str) -> Value:
        if array == "q_held":
            return self.reader.moved(self._base("out q_held", self.vector), self._start("q_start", "self"))
        width = 1 if array in OF_ROW else _WIDTHS.get(array)
        if width is None:
            return super()._find_row(subject, array)
        name = f"in {array}" if array in self.module.inputs else array
        base = self._base(name, self.scalar if array in MODEL_NUMBERS else self.vector)
        index = self.subjects[subject]
        return self.reader.moved(base, self._times(index, width) if isinstance(index, Value) else index * width)

    def _store(self, value: Value, target: StepTarget) -> None:
        if target.field in OF_ROW or target.field in _WIDTHS or target.field == "q_held":
            row = self._row(target.subject, target.field)
            self._store_at(value, self.reader.moved(row, target.index), add=target.add)
        else:
            super()._store(value, target)


class ConstraintSteps(Steps):
    """Runs the steps of `ConstraintTracer`."""

    READER = ConstraintReader
