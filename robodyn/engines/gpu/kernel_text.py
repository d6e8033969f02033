"""Builds the CUDA text of a rolled kernel: loops, barriers, and references to arrays.

A state has one thread ("thread"), the 32 threads of a warp ("warp") or all threads of a block ("block"). The texts of
these partitions differ only in shared loops, whose iterations are divided among a state's threads, and in the barriers
after them. The module `placement` decides where arrays are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from robodyn.compile.c import sincos
from robodyn.engines.gpu.dialect import FUSED, CudaDialect
from robodyn.engines.gpu.functions import Functions
from robodyn.engines.gpu.loops import by_states, by_tiles
from robodyn.engines.gpu.placement import MOST_SCALARS, Placement, Row, Scratch, cooperative, tiled
from robodyn.engines.gpu.source import SCALARS, WARP, KernelSource
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass

PARTITIONS = ("thread", "warp", "block")
_MOST_THREADS = 256
_WARPS = ((850, 16), (1400, 12))
"""Warps for which a multiprocessor must have registers, by bytes of values in the largest step. Larger steps have 8
warps, whose threads may use all 255 registers. With these bounds the assembler for sm_90 spills next to nothing;
without bounds it spills some values in order to fit a few more warps."""
_ADDRESSES = {"thread": 150, "warp": 0, "block": 0}
"""Bytes of registers for addresses. A thread that works alone has its scratch arrays in the workspace, which takes
longer addresses."""
_PRELUDE = """\
{sincos}
typedef {scalar} T;
typedef long long I;
{fused}"""


@dataclass(frozen=True)
class Ref:
    """An array of one state in the kernel's text. `own`: True for scratch arrays, which the kernel may change;
    `strided`: True for arrays in the workspace that are interleaved with those of the warp's other threads."""

    name: str
    size: int
    own: bool = False
    strided: bool = False

    def at(self, index: str) -> str:
        """The expression of an entry."""
        return f"{self.name}[(I)({index}) * {WARP}]" if self.strided else f"{self.name}[{index}]"

    def part(self, name: str, offset: str, size: int) -> tuple[str, Ref]:
        """The part of the array from an offset on: the statement that defines it as `name`, and its reference."""
        stride = f" * {WARP}" if self.strided else ""
        return f"T* const {name} = {self.name} + (I)({offset}){stride};", replace(self, name=name, size=size)


class KernelText:
    """Collects the statements for one state, and the arrays and integers that they use.

    Args:
        partition: the threads of a state: "thread", "warp" or "block".
        dtype: the type of arrays and arithmetic.
        threads: threads of a block, None for an automatic choice.
        width: the most threads that a state can use.
        shared_bytes: shared memory that a block may have.
    """

    def __init__(
        self, partition: str, dtype: np.dtype[np.floating], threads: int | None, width: int, shared_bytes: int
    ) -> None:
        self.partition, self.dtype, self.threads, self.shared_bytes = partition, dtype, threads, shared_bytes
        self.scalar = SCALARS[str(dtype)]
        self.dialect = CudaDialect(self.scalar)
        self.width = min(_MOST_THREADS, max(WARP, -(-width // WARP) * WARP))
        self.stage: int | None = None
        """The stage to which new scratch arrays belong; None for arrays that are kept across stages."""
        self.lines: list[str] = []
        self.depth = 3 if partition == "thread" else 2
        self.constants: dict[str, Array] = {}
        self.integers: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        """Integers that the current section uses, or that code outside of sections uses: their indices in `layout`."""
        self.scratch: dict[str, Scratch] = {}
        self.values_bytes = 0
        """Bytes of the values in the largest step."""
        self.rows: tuple[Row, ...] = ()
        self._tiles = Placement(0)

    # Statements.

    def do(self, *lines: str) -> None:
        """Add statements."""
        self.lines += ["    " * self.depth + line for line in lines]

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """Inside `with`, statements go into a block { ... } after `head`."""
        self.do(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.do("}")

    @contextmanager
    def shared(self, index: str, first: str, last: str) -> Iterator[None]:
        """A loop over first .. last - 1, divided among the state's threads. No barrier follows it."""
        if self.partition == "thread":
            head = f"for (int {index} = {first}; {index} < {last}; {index}++)"
        else:
            start = "me" if first == "0" else f"{first} + me"
            head = f"for (int {index} = {start}; {index} < {last}; {index} += THREADS)"
        with self.block(head):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Statements that only one thread of the state executes. No barrier follows them."""
        with self.block("" if self.partition == "thread" else "if (me == 0)"):
            yield

    @contextmanager
    def section(self) -> Iterator[None]:
        """A block of statements that loads its integers at its beginning, once for each state.

        If integers were loaded before the loop over states, the compiler would keep all of them in registers.
        """
        outside, self._numbers = self._numbers, {}
        with self.block():
            start = len(self.lines)
            yield
            numbers = [
                f"const int n_{name} = (int)((const volatile I*)layout)[{k}];" for name, k in self._numbers.items()
            ]
            self.lines[start:start] = ["    " * self.depth + line for line in numbers]
        self._numbers = outside

    def sync(self) -> None:
        """A barrier: writes of the state's threads before it are visible to all of them after it."""
        if self.partition != "thread":
            self.do("__syncwarp();" if self.partition == "warp" else "__syncthreads();")

    # Constants, integers and arrays.

    def constant(self, name: str, values: Array) -> str:
        """The name of a constant array of the model, which becomes int64 or the kernel's dtype."""
        kind = np.int64 if np.asarray(values).dtype.kind in "iu" else self.dtype
        self.constants[name] = np.ascontiguousarray(values, kind)
        return f"c_{name}"

    def integer(self, name: str, value: int) -> str:
        """The name of an integer of the model."""
        assert self.integers.setdefault(name, int(value)) == int(value)
        self._numbers[name] = list(self.integers).index(name)
        return f"n_{name}"

    def array(self, name: str, size: int) -> Ref:
        """A scratch array of the current stage."""
        if size > MOST_SCALARS:
            raise UnavailableError(f"gpu: {size} scalars of {name} for one state; at most {MOST_SCALARS}")
        stays = self.stage is None
        full = f"k_{name}" if stays else f"s{self.stage}_{name}"
        self.scratch.setdefault(full, Scratch(size, self.stage))
        return Ref(full, size, own=True, strided=self.partition == "thread")

    def arguments(self, rows: Sequence[Row]) -> dict[str, Ref]:
        """Define inputs and results, in the order of the kernel's arguments. Returns references to their rows."""
        self.rows = tuple(rows)
        for row in rows:
            self.integer(f"size_{row.name}", row.size)
        if self.partition == "thread":
            self._tiles = tiled(self.rows, self.threads, self.shared_bytes // self.dtype.itemsize)
        return {row.name: self._row(row) for row in rows}

    def _row(self, row: Row) -> Ref:
        if row.name in self._tiles.drained:
            return replace(self.array(f"row_{row.name}", row.size), own=False)
        return Ref(f"u_{row.name}", row.size)

    # The kernel.

    def finish(self, name: str) -> KernelSource:
        """The source of the kernel."""
        place = self._tiles
        if self.partition == "thread":
            place.add_scratch(self.scratch, 0)
        else:
            sizes = (self.threads, self.width, self.shared_bytes, self.dtype.itemsize)
            place = cooperative(self.partition, self.rows, self.scratch, *sizes)
        offsets = {f"at_{each}": offset for each, offset in (place.near | place.far).items()}
        self.integers.update({**offsets, "held": place.held, "left": place.left})
        functions = Functions(self.scalar, name)
        if self.partition == "thread":
            body, states = by_tiles(place, self.rows, self.lines, functions), place.threads
        else:
            body = by_states(self.partition, place, self.rows, self.lines)
            states = place.threads // WARP if self.partition == "warp" else 1
        pools = 1 if self.partition == "block" else place.threads // WARP
        places = {each: k for k, each in enumerate(self.integers)}
        outside = {**self._numbers, **{each: places[each] for each in (*offsets, "held", "left")}}
        numbers = [f"    const int n_{each} = (int)layout[{k}];" for each, k in outside.items()]
        prelude = _PRELUDE.format(sincos=sincos.text(self.scalar), scalar=self.scalar, fused=FUSED)
        head = [prelude, functions.text(), *self._head(name, place.threads)]
        return KernelSource(
            name=name,
            text="\n".join([*head, "{", *numbers, *body, "}", ""]),
            dtype=self.dtype,
            inputs=tuple(row.name for row in self.rows if not row.is_output),
            outputs=tuple(row.name for row in self.rows if row.is_output),
            constants=(np.array([*self.integers.values()], np.int64), *self.constants.values()),
            threads_per_state=place.threads // states,
            block_threads=place.threads,
            shared_bytes=place.held * pools * self.dtype.itemsize,
            workspace_scalars=place.left,
        )

    def _head(self, name: str, threads: int) -> list[str]:
        kinds = {each: "I" if array.dtype == np.int64 else "T" for each, array in self.constants.items()}
        parameters = [
            *(f"const T* __restrict__ in_{row.name}" for row in self.rows if not row.is_output),
            *(f"T* out_{row.name}" for row in self.rows if row.is_output),
            "const I* __restrict__ layout",
            *(f"const {kind}* __restrict__ c_{each}" for each, kind in kinds.items()),
            "T* workspace",
            "I rows",
        ]
        joined = ",\n    ".join(parameters)
        needed = self.values_bytes + _ADDRESSES[self.partition]
        warps = next((count for most, count in _WARPS if needed <= most), 8)
        bounds = f"{threads}, {max(1, warps * WARP // threads)}"
        return [f'extern "C" __global__ void __launch_bounds__({bounds}) {name}(', f"    {joined})"]
