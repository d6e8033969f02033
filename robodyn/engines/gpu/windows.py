"""Results with long rows on their way to memory: a few at a time, through a window of shared memory.

A row of a gradient is longer than the shared memory that a thread can have. Written as they come, each scalar of a
warp's 32 states goes to a sector of memory of its own, of which it fills an eighth: a quadruped's gradient took seven
times as long as its bytes. So threads keep scalars in a window until it is full. Then the warp writes all of them:
sorted by their places in their rows, they are runs of neighbours, which lanes write side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from robodyn.codegen.c_body import BEGINNING, Dialect
from robodyn.codegen.lowering import Operation
from robodyn.engines.gpu.source import WARP
from robodyn.records import dataclass
from robodyn.tracing.expression import INPUT
from robodyn.tracing.program import Port, Program

FLUSH = f"""\
/* A warp writes WIDTH neighbouring scalars of each of its rows, which are SIZE long: those at `window`, where ROW
   scalars belong to each lane. As many lanes as the next power of two share a row. */
template <int WIDTH, int SIZE, int ROW, typename T>
__device__ __forceinline__ void robodyn_flush(T* __restrict__ rows, const T* window, int count, int lane)
{{
    constexpr int LANES = WIDTH > 16 ? 32 : WIDTH > 8 ? 16 : WIDTH > 4 ? 8 : WIDTH > 2 ? 4 : WIDTH;
    const int r = lane / LANES, c = lane % LANES;
    #pragma unroll 8
    for (int first = 0; first < {WARP}; first += {WARP} / LANES)
        #pragma unroll
        for (int k = 0; k < WIDTH; k += LANES)
            if (first + r < count && k + c < WIDTH)
                rows[(long long)(first + r) * SIZE + k + c] = window[(first + r) * ROW + k + c];
}}
"""

_Place = tuple[int, int]
"""Which output, and which of its scalars."""


@dataclass(frozen=True)
class Run:
    """Neighbouring scalars of an output: the first of them, how many, and where the first is in the window."""

    port: Port
    start: int
    width: int
    slot: int


@dataclass(frozen=True)
class Batch:
    """What goes through the window at once: when `node` is there, or at the beginning; `constants` are scalars that no
    operation makes."""

    node: int
    runs: tuple[Run, ...]
    constants: tuple[tuple[Port, int], ...]


class Window:
    """Where each scalar of the results of a program waits, if there is room for `size` of them at once: `slots`. (One
    that is a result in more places than that needs room for all of them.)

    `operations`: the program's, in their order.
    """

    def __init__(self, program: Program, operations: Sequence[Operation], size: int) -> None:
        self.program = program
        self.slots: dict[_Place, int] = {}
        self.made = replace(program, outputs=tuple(self._only_made(port) for port in program.outputs))
        """The program without the scalars that no operation makes."""
        ports = (program.outputs, self.made.outputs)
        self._numbers = {id(port): k for each in ports for k, port in enumerate(each)}
        made = {node: k for k, operation in enumerate(operations) for node in operation.results}
        waiting = sorted(
            (time, not self._made(scalar), number, k)
            for number, port in enumerate(program.outputs)
            for k, (time, scalar) in enumerate(zip(_times(port, made), port.scalars, strict=True))
        )
        self.batches = []
        while waiting:
            end = min(size, len(waiting))
            if end < len(waiting) and not waiting[end][1]:  # an operation's results are stored at once
                together = [k for k, each in enumerate(waiting) if each[0] == waiting[end][0] and not each[1]]
                end = together[0] or together[-1] + 1
            behind = waiting[end - 1][0]
            node = BEGINNING if behind < 0 else max(operations[behind].results)
            self.batches.append(self._batch([(number, k) for _, _, number, k in waiting[:end]], node))
            waiting = waiting[end:]

    def _made(self, scalar: int | float) -> bool:
        """Whether an operation makes it."""
        return isinstance(scalar, int) and self.program.nodes[scalar][0] > INPUT

    def _only_made(self, port: Port) -> Port:
        return port.without([not self._made(scalar) for scalar in port.scalars])

    @property
    def room(self) -> int:
        """The most scalars that wait at once."""
        return max((sum(run.width for run in batch.runs) for batch in self.batches), default=0)

    def _batch(self, waiting: Sequence[_Place], node: int) -> Batch:
        places, ports = sorted(waiting), self.program.outputs
        self.slots.update({place: slot for slot, place in enumerate(places)})
        constants = tuple((ports[number], k) for number, k in places if not self._made(ports[number].scalars[k]))
        return Batch(node, tuple(self._runs(places)), constants)

    def _runs(self, places: Sequence[_Place]) -> Iterator[Run]:
        start = 0
        for k in range(1, len(places) + 1):
            if k == len(places) or places[k] != (places[k - 1][0], places[k - 1][1] + 1):
                number, first = places[start]
                yield Run(self.program.outputs[number], first, k - start, start)
                start = k

    def slot(self, port: Port, k: int) -> int:
        """Where a scalar waits."""
        return self.slots[self._numbers[id(port)], k]

    def statements(
        self, dialect: Dialect, inputs: Mapping[int, str], rows: Mapping[int, str], row: int
    ) -> dict[int, list[str]]:
        """What stands behind nodes, or at the beginning (`BEGINNING`).

        Args:
            dialect: how numbers are spelt.
            inputs: expressions for nodes that are inputs.
            rows: pointers to the first row of the warp, by the `id` of an output.
            row: scalars of the window from one lane to the next.
        """
        found: dict[int, list[str]] = {}
        for batch in self.batches:
            lines = found.setdefault(batch.node, [])
            for port, k in batch.constants:
                scalar = port.scalars[k]
                value = inputs[scalar] if isinstance(scalar, int) and scalar in inputs else None
                if value is None:
                    number = self.program.nodes[scalar][1] if isinstance(scalar, int) else scalar
                    value = dialect.number(number)
                lines.append(f"mine[{self.slot(port, k)}] = {value};")
            lines.append("__syncwarp();")
            for run in batch.runs:
                place = f"{rows[id(run.port)]} + {run.start}, window + {run.slot}"
                lines.append(f"robodyn_flush<{run.width}, {run.port.size}, {row}>({place}, count, lane);")
            lines.append("__syncwarp();")
        return found


def _times(port: Port, at: Mapping[int, int]) -> list[int]:
    """When each scalar of an output is there: what no operation makes comes with the next that one makes, or else with
    the one before it."""
    made = [at.get(scalar) if isinstance(scalar, int) else None for scalar in port.scalars]
    times, following = [-1] * len(made), None
    for k in range(len(made) - 1, -1, -1):
        following = made[k] if made[k] is not None else following
        times[k] = -1 if following is None else following
    before = -1
    for k, time in enumerate(times):
        before = times[k] = before if time < 0 else time
    return times
