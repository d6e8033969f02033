"""Prints a scheduled program as Verilog.

The module has a stream interface on either side. A state's inputs are transferred in a cycle in which `in_valid` and
`in_ready` are high, results in one in which `out_valid` and `out_ready` are high. While results wait, the whole circuit
stalls.

`phase` counts the cycles of an interval. A value that is ready in cycle c of its state is written in phase c - 1 modulo
the interval, and shifts to its next register in the same phase of each later interval. The phase selects a multiplier's
operands. The constant one half that rounds a product is added in the multiplier, as DSP blocks can.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from robodyn.compile.tracing.expression import ADD, CONSTANT, INPUT, MUL, NEG
from robodyn.compile.tracing.program import Program
from robodyn.tools.hardware.formats import Formats
from robodyn.tools.hardware.program import input_nodes, output_scalars
from robodyn.tools.hardware.schedule import Schedule

_PART = 100
"""Statements per block. Simulators' compilers take disproportionally long for long blocks."""


def verilog(program: Program, formats: Formats, schedule: Schedule, name: str, about: Sequence[str] = ()) -> str:
    """The module's source text, Verilog-2005. `about`: lines of the comment above it."""
    return "\n".join(_Printer(program, formats, schedule, name).lines(about)) + "\n"


class _Printer:
    """Prints one module."""

    def __init__(self, program: Program, formats: Formats, schedule: Schedule, name: str) -> None:
        self._program, self._formats, self._schedule, self._name = program, formats, schedule, name
        self._width = formats.width
        self._double = 2 * formats.width + 1  # a product and the half that rounds it
        self._live = [i for i in program.live if program.nodes[i][0] != CONSTANT]
        self._flagged = not formats.proved
        self._writes: dict[int, list[str]] = {}
        """Register assignments by phase."""
        self._overflows: dict[int, list[str]] = {}
        """Overflow conditions by the cycle in which they are evaluated."""

    def lines(self, about: Sequence[str]) -> Iterator[str]:
        """The lines of the module's source."""
        body = [*self._values(), *self._multipliers()]
        yield from (f"// {line}".rstrip() for line in about)
        yield from self._head()
        yield from self._control()
        yield from body
        yield from self._blocks()
        if self._flagged:
            yield from self._flags()
        yield from self._results()
        yield "endmodule"

    def _head(self) -> Iterator[str]:
        W, n_in, n_out = self._width, len(input_nodes(self._program)), len(output_scalars(self._program))
        yield f"module {self._name} ("
        yield "    input wire clk,"
        yield "    input wire rst,"
        yield "    input wire in_valid,"
        yield "    output wire in_ready,"
        yield f"    input wire [{W * n_in - 1}:0] in_data,"
        yield "    output wire out_valid,"
        yield "    input wire out_ready,"
        if self._flagged:
            yield "    output wire out_wrapped,"
        yield f"    output wire [{W * n_out - 1}:0] out_data"
        yield ");"

    def _control(self) -> Iterator[str]:
        L, II = self._schedule.latency, self._schedule.interval
        bits = max(1, (II - 1).bit_length())
        yield f"reg [{L}:0] live;  // bit c: a state is in its cycle c"
        yield f"assign out_valid = live[{L}];"
        yield "wire go = !out_valid || out_ready;"
        if II == 1:
            yield "assign in_ready = go;"
            yield "wire taken = in_ready && in_valid;"
        else:
            # In an empty circuit the counter waits in the phase in which a state can enter.
            yield f"reg [{bits - 1}:0] phase;"
            yield f"assign in_ready = go && phase == {bits}'d{II - 1};"
            yield "wire taken = in_ready && in_valid;"
            yield f"wire idle = live[{L - 1}:0] == 0;" if L else "wire idle = 1'b1;"
            yield "always @(posedge clk)"
            yield f"    if (rst) phase <= {bits}'d{II - 1};"
            yield f"    else if (taken) phase <= {bits}'d0;"
            yield f"    else if (go) phase <= idle ? {bits}'d{II - 1} :"
            yield f"        phase == {bits}'d{II - 1} ? {bits}'d0 : phase + {bits}'d1;"
        yield "always @(posedge clk)"
        yield f"    if (rst) live <= {L + 1}'d0;"
        yield f"    else if (go) live <= {{live[{L - 1}:0], taken}};" if L else "    else if (go) live <= taken;"

    # Values and registers.

    def _register(self, index: int, cycle: int) -> str:
        """Verilog expression of a value, for the state that is in this cycle."""
        if self._program.nodes[index][0] == CONSTANT:
            return _literal(self._formats.words[index], self._width)
        if self._schedule.copies[index] == 1:
            return f"v{index}"
        low = self._width * self._schedule.copy(index, cycle)
        return f"$signed(v{index}[{low + self._width - 1}:{low}])"

    def _write(self, index: int, value: str) -> str:
        """The declaration of a value's registers. Their assignment is added to `_writes`."""
        W, copies = self._width, self._schedule.copies[index]
        phase = (self._schedule.ready[index] - 1) % self._schedule.interval
        moved = value if copies == 1 else f"{{v{index}[{W * (copies - 1) - 1}:0], {value}}}"
        self._writes.setdefault(phase, []).append(f"v{index} <= {moved};")
        return f"reg {'signed ' if copies == 1 else ''}[{W * copies - 1}:0] v{index};"

    def _values(self) -> Iterator[str]:
        W = self._width
        place = {node: k for k, (_, _, node) in enumerate(input_nodes(self._program))}
        for index in self._live:
            operation = self._program.nodes[index][0]
            if operation == INPUT:
                yield self._write(index, f"in_data[{W * place[index]} +: {W}]")
                continue
            shift = self._formats.shift(self._program, index)
            if operation == MUL:
                wide, size = f"p{self._schedule.unit[index]}", self._double
            else:
                wide, size = f"s{index}", self._sum_width(index)
                yield f"wire signed [{size - 1}:0] s{index} = {self._sum(index, size, shift)};"
            cycle = self._schedule.ready[index] - 1
            top = f"{wide}[{size - 1}:{shift + W - 1}]"
            if shift + W < size and self._flagged:
                self._overflows.setdefault(cycle, []).append(f"(|{top}) != (&{top})")
            yield self._write(index, f"{wide}[{shift + W - 1}:{shift}]")

    def _sum_width(self, index: int) -> int:
        """Bits of a sum or negation before rounding, including the carry and the bits to be dropped."""
        operation, a, b = self._program.nodes[index]
        apart = 0 if operation == NEG else abs(self._formats.fraction[a] - self._formats.fraction[b])
        shift = self._formats.shift(self._program, index)
        return max(self._width + apart + 2, self._width + shift)

    def _sum(self, index: int, size: int, shift: int) -> str:
        operation, a, b = self._program.nodes[index]
        cycle, fraction = self._schedule.start[index], self._formats.fraction
        finest = fraction[a] if operation == NEG else max(fraction[a], fraction[b])
        # Verilog extends shorter signed operands to the full width, since all operands are signed.
        terms = [
            self._register(each, cycle)
            if finest == fraction[each]
            else f"$signed({{{self._register(each, cycle)}, {finest - fraction[each]}'d0}})"
            for each in ((a,) if operation == NEG else (a, b))
        ]
        half = f" + {_literal(1 << (shift - 1), size)}" if shift else ""
        if operation == NEG:
            return f"-{terms[0]}{half}"
        return f"{terms[0]} {'+' if operation == ADD else '-'} {terms[1]}{half}"

    def _multipliers(self) -> Iterator[str]:
        """Multipliers with operand and product registers; the phase selects their operands."""
        of_unit: dict[int, list[int]] = {}
        for index in self._live:
            if self._program.nodes[index][0] == MUL:
                of_unit.setdefault(self._schedule.unit[index], []).append(index)
        for unit, nodes in sorted(of_unit.items()):
            W, D, II = self._width, self._double, self._schedule.interval
            yield f"reg signed [{W - 1}:0] a{unit}, b{unit};"
            yield f"reg signed [{D - 1}:0] p{unit};"
            halves = {index: self._half(index) for index in nodes}
            alike = len(set(halves.values())) == 1
            if not alike:
                yield f"reg signed [{D - 1}:0] c{unit};"
            yield "always @(posedge clk) if (go) begin"
            half = next(iter(halves.values())) if alike else f"c{unit}"
            yield f"    p{unit} <= a{unit} * b{unit} + {half};"
            bits = max(1, (II - 1).bit_length())
            if II > 1:
                yield "    case (phase)"
            for index in nodes:
                start = self._schedule.start[index]
                _, a, b = self._program.nodes[index]
                chosen = f"a{unit} <= {self._register(a, start)}; b{unit} <= {self._register(b, start)};"
                if not alike:
                    chosen += f" c{unit} <= {halves[index]};"
                yield f"    {chosen}" if II == 1 else f"    {bits}'d{start % II}: begin {chosen} end"
            if II > 1:
                yield "    default: ;"
                yield "    endcase"
            yield "end"

    def _half(self, index: int) -> str:
        shift = self._formats.shift(self._program, index)
        return _literal(1 << (shift - 1) if shift else 0, self._double)

    def _blocks(self) -> Iterator[str]:
        """The register assignments of each phase."""
        bits = max(1, (self._schedule.interval - 1).bit_length())
        for phase, statements in sorted(self._writes.items()):
            when = "go" if self._schedule.interval == 1 else f"go && phase == {bits}'d{phase}"
            for start in range(0, len(statements), _PART):
                yield f"always @(posedge clk) if ({when}) begin"
                yield from (f"    {statement}" for statement in statements[start : start + _PART])
                yield "end"

    def _flags(self) -> Iterator[str]:
        """A flag that accompanies each state: whether one of its results overflowed."""
        L = self._schedule.latency
        yield f"reg [{L}:0] wrapped;"
        yield f"wire [{L}:0] over;"
        yield "assign over[0] = 1'b0;"
        for cycle in range(L):
            conditions = self._overflows.get(cycle, [])
            if not conditions:
                yield f"assign over[{cycle + 1}] = 1'b0;"
                continue
            yield f"wire [{len(conditions) - 1}:0] o{cycle};"
            yield from (f"assign o{cycle}[{k}] = {condition};" for k, condition in enumerate(conditions))
            yield f"assign over[{cycle + 1}] = |o{cycle};"
        yield "always @(posedge clk)"
        yield f"    if (go) wrapped <= {{wrapped[{L - 1}:0], 1'b0}} | over;" if L else "    if (go) wrapped <= 1'b0;"
        yield f"assign out_wrapped = wrapped[{L}];"

    def _results(self) -> Iterator[str]:
        W, L = self._width, self._schedule.latency
        for k, scalar in enumerate(output_scalars(self._program)):
            value = self._register(scalar, L) if isinstance(scalar, int) else _literal(0, W)
            yield f"assign out_data[{W * k + W - 1}:{W * k}] = {value};"


def _literal(value: int, width: int) -> str:
    return f"{width}'sh{value % (1 << width):x}"
