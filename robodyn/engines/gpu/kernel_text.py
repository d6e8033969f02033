"""The text of a kernel that works state by state: its loops and barriers, arrays, and where those lie.

A state has one thread ("thread"), the 32 of a warp ("warp") or those of a block ("block"). Texts are the same but for
loops that threads share and barriers between them. Every part of the work that threads share ends with a barrier.

Scratch arrays of a state lie in shared memory where they fit, the smallest first, else in the global workspace. There
the states of single threads are interleaved, so that neighbouring threads touch neighbouring scalars.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from robodyn.arguments import Array
from robodyn.engines.gpu import sincos
from robodyn.engines.gpu.dialect import FUSED, CudaDialect
from robodyn.engines.gpu.source import SCALARS, WARP, KernelSource
from robodyn.errors import UnavailableError

PARTITIONS = ("thread", "warp", "block")
_MOST_SCALARS = (1 << 31) - 1
_WARP_BLOCKS = (128, 64, 32)
_MOST_THREADS = 256
_PRELUDE = """\
{sincos}
typedef {scalar} T;
typedef long long I;
{fused}"""


@dataclass(frozen=True)
class Ref:
    """An array of one state as code reaches it; `own`: a scratch array, which the kernel may change."""

    name: str
    size: int
    own: bool = False
    strided: bool = False

    def at(self, index: str) -> str:
        """The entry of that number."""
        return f"{self.name}[(I)({index}) * stride]" if self.strided else f"{self.name}[{index}]"


@dataclass(frozen=True)
class _Scratch:
    size: int
    stage: int | None


class KernelText:
    """Collects the statements for one state, and what they refer to.

    Args:
        partition: how many threads a state has.
        dtype: of arrays and arithmetic.
        threads: threads of a block, None for as many as seem good; `width` is how many can be of use to a state.
        width: see there.
    """

    def __init__(self, partition: str, dtype: np.dtype[np.floating], threads: int | None, width: int) -> None:
        self.partition, self.dtype, self.threads = partition, dtype, threads
        self.scalar = SCALARS[str(dtype)]
        self.dialect = CudaDialect(self.scalar)
        self.width = min(_MOST_THREADS, max(WARP, -(-width // WARP) * WARP))
        self.stage: int | None = None
        """The stage whose scratch arrays are made; None for those that stay from stage to stage."""
        self.lines: list[str] = []
        self.depth = 2
        self.constants: dict[str, Array] = {}
        self.integers: dict[str, int] = {}
        self.scratch: dict[str, _Scratch] = {}

    # Statements.

    def do(self, *lines: str) -> None:
        """Add statements."""
        self.lines += ["    " * self.depth + line for line in lines]

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """Statements inside are a block after `head`."""
        self.do(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.do("}")

    @contextmanager
    def shared(self, index: str, first: str, last: str) -> Iterator[None]:
        """A loop over first .. last - 1 whose turns the threads of the state share; without a barrier after it."""
        if self.partition == "thread":
            head = f"for (int {index} = {first}; {index} < {last}; {index}++)"
        else:
            start = "me" if first == "0" else f"{first} + me"
            head = f"for (int {index} = {start}; {index} < {last}; {index} += THREADS)"
        with self.block(head):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """What one thread of the state does for all; without a barrier after it."""
        with self.block("" if self.partition == "thread" else "if (me == 0)"):
            yield

    def sync(self) -> None:
        """What threads of the state wrote before is there for all of them after."""
        if self.partition != "thread":
            self.do("__syncwarp();" if self.partition == "warp" else "__syncthreads();")

    # What statements refer to.

    def constant(self, name: str, values: Array) -> str:
        """An array of the model's, of int64 or of the kernel's dtype."""
        kind = np.int64 if np.asarray(values).dtype.kind in "iu" else self.dtype
        self.constants[name] = np.ascontiguousarray(values, kind)
        return f"c_{name}"

    def integer(self, name: str, value: int) -> str:
        """A number of the model's."""
        assert self.integers.setdefault(name, int(value)) == int(value)
        return f"n_{name}"

    def array(self, name: str, size: int) -> Ref:
        """A scratch array of the present stage."""
        if size > _MOST_SCALARS:
            raise UnavailableError(f"gpu: {size} scalars of {name} for one state; at most {_MOST_SCALARS}")
        stays = self.stage is None
        full = f"k_{name}" if stays else f"s{self.stage}_{name}"
        self.scratch.setdefault(full, _Scratch(size, self.stage))
        return Ref(full, size, own=True, strided=self.partition == "thread")

    # The whole.

    def finish(
        self, name: str, inputs: Sequence[tuple[str, int]], outputs: Sequence[tuple[str, int]], shared: int
    ) -> KernelSource:
        """The kernel with inputs and outputs of so many scalars for each state, with at most so many bytes of shared
        memory for a block."""
        threads, places, held, left = self._place(shared)
        self.integers.update({f"at_{each}": offset for each, (_, offset) in places.items()})
        text = "\n".join(
            [
                *_PRELUDE.format(sincos=sincos.text(self.scalar), scalar=self.scalar, fused=FUSED).splitlines(),
                "",
                *self._head(name, inputs, outputs, threads),
                "{",
                *self._opening(threads, bool(held)),
                *(f"    const I size_{each} = layout[{len(self.integers) + k}];" for k, (each, _) in enumerate(inputs)),
                *(
                    f"    const I size_{each} = layout[{len(self.integers) + len(inputs) + k}];"
                    for k, (each, _) in enumerate(outputs)
                ),
                *self._pointers(places),
                "    for (I row = first; row < rows; row += all) {",
                *(f"        const T* const u_{each} = in_{each} + row * size_{each};" for each, _ in inputs),
                *(f"        T* const u_{each} = out_{each} + row * size_{each};" for each, _ in outputs),
                *self.lines,
                "    }",
                "}",
                "",
            ]
        )
        layout = np.array([*self.integers.values(), *(size for _, size in (*inputs, *outputs))], np.int64)
        states = {"thread": threads, "warp": threads // WARP, "block": 1}[self.partition]
        return KernelSource(
            name=name,
            text=text,
            dtype=self.dtype,
            inputs=tuple(each for each, _ in inputs),
            outputs=tuple(each for each, _ in outputs),
            constants=(layout, *self.constants.values()),
            threads_per_state=threads // states,
            block_threads=threads,
            shared_bytes=held * states * self.dtype.itemsize,
            workspace_scalars=left,
        )

    def _head(
        self, name: str, inputs: Sequence[tuple[str, int]], outputs: Sequence[tuple[str, int]], threads: int
    ) -> list[str]:
        kinds = {each: "I" if array.dtype == np.int64 else "T" for each, array in self.constants.items()}
        parameters = [
            *(f"const T* __restrict__ in_{each}" for each, _ in inputs),
            *(f"T* out_{each}" for each, _ in outputs),
            "const I* __restrict__ layout",
            *(f"const {kind}* __restrict__ c_{each}" for each, kind in kinds.items()),
            "T* workspace",
            "I rows",
        ]
        joined = ",\n    ".join(parameters)
        return [f'extern "C" __global__ void __launch_bounds__({threads}) {name}(', f"    {joined})"]

    def _opening(self, threads: int, held: bool) -> list[str]:
        lines = [f"    const int n_{each} = (int)layout[{k}];" for k, each in enumerate(self.integers)]
        if self.partition == "thread":
            # Scratch arrays of all threads are interleaved, hence the stride.
            lines += [
                "    const I first = (I)blockIdx.x * blockDim.x + threadIdx.x, all = (I)gridDim.x * blockDim.x;",
                "    const I stride = all;",
                "    T* const own = workspace + first;",
            ]
            return lines
        warps = threads // WARP
        lines += ["    extern __shared__ T pool[];"] if held else []
        if self.partition == "warp":
            lines += [
                f"    const int THREADS = {WARP}, me = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};",
                f"    const I first = (I)blockIdx.x * {warps} + warp, all = (I)gridDim.x * {warps};",
            ]
        else:
            lines += [
                f"    const int THREADS = {threads}, me = threadIdx.x;",
                "    const I first = blockIdx.x, all = gridDim.x;",
            ]
        at = "warp * n_held" if self.partition == "warp" else "0"
        lines += [f"    T* const near = pool + {at};"] if held else []
        return [*lines, "    T* const own = workspace + first * n_left;"]

    def _pointers(self, places: dict[str, tuple[bool, int]]) -> list[str]:
        if self.partition == "thread":
            return [f"    T* const {each} = own + n_at_{each} * stride;" for each in places]
        return [
            f"    T* const {each} = {'near' if near else 'own'} + n_at_{each};" for each, (near, _) in places.items()
        ]

    def _place(self, shared: int) -> tuple[int, dict[str, tuple[bool, int]], int, int]:
        """Threads of a block, where each array lies (in shared memory or not, and its offset), and the scalars of a
        state there and there."""
        if self.partition == "thread":
            places, held, left = self._places(0)
            return self.threads or 128, places, held, left
        if self.partition == "block":
            places, held, left = self._places(shared // self.dtype.itemsize)
            threads = self.threads or self.width
        else:
            for threads in (self.threads,) if self.threads else _WARP_BLOCKS:
                places, held, left = self._places(shared * WARP // (threads * self.dtype.itemsize))
                if not left:
                    break
        self.integers.update({"held": held, "left": left})
        return threads, places, held, left

    def _places(self, room: int) -> tuple[dict[str, tuple[bool, int]], int, int]:
        """Arrays of different stages overlap; those that stay come first."""
        places: dict[str, tuple[bool, int]] = {}
        ends = {True: 0, False: 0}
        most = dict(ends)
        stages = sorted(
            {each.stage for each in self.scratch.values()}, key=lambda stage: -1 if stage is None else stage
        )
        for stage in stages:
            end = dict(ends)
            mine = [(each.size, name) for name, each in self.scratch.items() if each.stage == stage]
            for size, name in sorted(mine):
                near = end[True] + size <= room
                places[name] = (near, end[near])
                end[near] += size
            most = {near: max(most[near], end[near]) for near in most}
            ends = end if stage is None else ends
        if sum(most.values()) > _MOST_SCALARS:
            raise UnavailableError(f"gpu: {sum(most.values())} scalars for one state; at most {_MOST_SCALARS}")
        return places, most[True], most[False]
